//! Rows that are longer than registers.

use isonorm_kernels::rows::access::Width;
use isonorm_kernels::rows::forward::Args;
use isonorm_kernels::rows::key::{Kernel, kernels};
use isonorm_kernels::rows::parameters::Sharing;
use isonorm_kernels::rows::statistics::Op;
use isonorm_kernels::rows::team::Owner;
use isonorm_math::{Activation, Bf16, F16};

use crate::case::{Aligned, Case, Residual, input, run};
use crate::expect::{Rounding, check};
use crate::{bits, named};

/// Threads, and blocks that share a row: few of both leave more tiles.
const THREADS: u32 = 64;

fn long_kernels<T: Rounding>() -> impl Iterator<Item = Kernel<Args<T>>> {
    kernels::<T>().into_iter().filter(|kernel| kernel.key.is_long())
}

fn blocks<T>(kernel: &Kernel<Args<T>>) -> &'static [u32] {
    match kernel.key.owner {
        Owner::Alone => &[1],
        _ => &[1, 2, 5],
    }
}

/// A case whose row has about this many tiles in each block.
fn case_of<T: Rounding>(kernel: Kernel<Args<T>>, blocks: u32, tiles: f64, kept: u32) -> Case<T> {
    let bytes = size_of::<T>() as u32;
    let columns = tiles * f64::from(blocks) * f64::from(kernel.key.tile_elements(THREADS, bytes));
    let lanes = kernel.key.access_elements(bytes) as usize;
    let mut case = Case::new(kernel, THREADS, (columns as usize).next_multiple_of(lanes).max(lanes));
    (case.blocks, case.kept, case.rows) = (blocks, kept, 3);
    case.run = (case.columns / 3).max(1).next_multiple_of(lanes);
    case
}

fn every_long_kernel<T: Rounding>() {
    for kernel in long_kernels::<T>() {
        for &blocks in blocks(&kernel) {
            for (tiles, kept) in [(0.01, 1), (0.9, 0), (2.0, 2), (3.3, 1), (2.7, 9)] {
                let mut case = case_of(kernel, blocks, tiles, kept);
                case.narrow = kept == 1;
                check(&case, &input(&case, |random| random.f32() * 4.0 - 1.0));
            }
        }
    }
}

#[test]
fn every_long_kernel_f32() {
    every_long_kernel::<f32>();
}

#[test]
fn every_long_kernel_f16() {
    every_long_kernel::<F16>();
}

#[test]
fn every_long_kernel_bf16() {
    every_long_kernel::<Bf16>();
}

#[test]
fn each_parameter_may_be_there_or_not() {
    for kernel in long_kernels::<Bf16>().filter(|kernel| kernel.key.is_whole()) {
        for (weight, bias) in [(true, true), (true, false), (false, true), (false, false)] {
            for narrow in [true, false] {
                let mut case = case_of(kernel, 1, 3.3, 0);
                (case.weight, case.bias, case.narrow) = (weight, bias, narrow);
                check(&case, &input(&case, |random| random.f32()));
            }
        }
    }
}

#[test]
fn residual_and_stream_also_in_place() {
    for kernel in long_kernels::<Bf16>().filter(|kernel| kernel.key.residual) {
        for residual in [Residual::Added, Residual::Stream] {
            let mut case = case_of(kernel, *blocks(&kernel).last().unwrap(), 2.5, 1);
            (case.residual, case.activation) = (residual, Activation::Gelu);
            let input = input(&case, |random| random.f32());
            let apart = check(&case, &input);
            case.in_place = true;
            let within = run(&case, &input);
            assert_eq!(
                bits(within.y.slice()),
                bits(apart.y.slice()),
                "{} {}",
                kernel.family,
                kernel.name
            );
        }
    }
}

#[test]
fn long_elements_lie_anywhere() {
    for kernel in long_kernels::<F16>().filter(|kernel| kernel.key.width == Width::Element) {
        for (lead, gap) in [(1, 0), (3, 2)] {
            let mut case = case_of(kernel, *blocks(&kernel).last().unwrap(), 1.7, 1);
            (case.lead, case.gap, case.columns, case.run) = (lead, gap, case.columns + 1, 7);
            check(&case, &input(&case, |random| random.f32()));
        }
    }
}

#[test]
fn large_mean_of_a_long_row() {
    for kernel in long_kernels::<f32>().filter(|kernel| kernel.key.op == Op::Layer) {
        let case = case_of(kernel, blocks(&kernel)[0], 3.3, 1);
        check(&case, &input(&case, |random| 1e6 + random.f32()));
    }
}

/// The first element is what distances are taken from; it may lie far away from all others.
#[test]
fn first_element_far_from_the_others() {
    for kernel in long_kernels::<f32>().filter(|kernel| kernel.key.op == Op::Layer) {
        let case = case_of(kernel, blocks(&kernel)[0], 3.3, 1);
        let mut first = true;
        let value = |random: &mut fastrand::Rng| {
            let value = if first { 1e3 } else { random.f32() };
            first = false;
            value
        };
        check(&case, &input(&case, value));
    }
}

#[test]
fn constant_long_rows_give_exactly_the_bias() {
    for (family, name) in [
        ("rows_long", "layer_alone_v2"),
        ("rows_long", "layer_grid_v2"),
        ("rows_long_plain", "layer_alone_v4"),
        ("rows_long_runs_piecewise", "layer_alone_v4"),
    ] {
        for value in [0.1f32, -3.0e7, 1e30] {
            let kernel = named::<f32>(family, name);
            let mut case = case_of(kernel, if name.contains("grid") { 3 } else { 1 }, 2.3, 1);
            case.narrow = true;
            let input = input(&case, |_| value);
            let output = run(&case, &input);
            for (row, y) in output.y.slice().chunks(case.columns).enumerate() {
                for (i, &y) in y.iter().enumerate() {
                    let of_run = row % case.sets * case.runs() + i / case.run;
                    let parameter = if case.by_run() { of_run } else { i };
                    assert_eq!(f64::from(y), input.bias.get(parameter));
                }
            }
            assert_eq!(output.mean, [value; 3]);
        }
    }
}

/// Whole rows have one for each thread at most, and blocks that go on to another row replace them.
#[test]
fn as_many_runs_as_threads() {
    for kernel in long_kernels::<Bf16>().filter(|kernel| kernel.key.is_whole() && kernel.key.sharing == Sharing::ByRun)
    {
        for activation in [
            Activation::Identity,
            Activation::Relu,
            Activation::LeakyRelu { slope: 0.25 },
        ] {
            let mut case = case_of(kernel, 1, 3.75, 0);
            (case.run, case.rows, case.activation) = (case.columns / THREADS as usize, 7, activation);
            assert_eq!(case.runs(), THREADS as usize);
            check(&case, &input(&case, |random| random.f32() * 2.0));
        }
    }
}

#[test]
fn a_nan_stays_in_its_long_row() {
    let kernels = [
        (named::<f32>("rows_long", "layer_grid_v2"), 2),
        (named::<f32>("rows_long_plain", "rms_alone_v4"), 1),
        (named::<f32>("rows_long_plain", "layer_alone_v4"), 1),
        (named::<f32>("rows_long_runs_any", "layer_alone_v4"), 1),
    ];
    for (kernel, blocks) in kernels {
        let case = case_of(kernel, blocks, 2.3, 1);
        let mut input = input(&case, |random| random.f32());
        let good = run(&case, &input);
        let at = case.columns + case.columns / 2;
        input.x = Aligned::new(
            3 * case.columns,
            |i| if i == at { f32::NAN } else { input.x.slice()[i] },
        );
        let output = run(&case, &input);
        for (i, (&y, &good)) in output.y.slice().iter().zip(good.y.slice()).enumerate() {
            assert_eq!(y.is_nan(), i / case.columns == 1);
            assert!(y.is_nan() || y.to_bits() == good.to_bits());
        }
    }
}

#[test]
fn the_order_of_blocks_changes_no_bit() {
    let mut case = case_of(named::<f32>("rows_long", "layer_grid_v2"), 4, 2.3, 1);
    let input = input(&case, |random| random.f32());
    let first = run(&case, &input);
    for seed in 1000..1005 {
        case.seed = seed;
        assert_eq!(bits(first.y.slice()), bits(run(&case, &input).y.slice()));
    }
}

/// Where a thread's first tile lies far from all that follows, its mean is no number to take distances from: it adds up again, what
/// is kept from where that is, and the rest from memory.
#[test]
fn the_first_tile_may_lie_far_off() {
    for (off, kept) in [(30.0, 1), (30.0, 0), (-20.0, 2)] {
        let kernel = named::<f32>("rows_long", "layer_alone_v2");
        let case = case_of(kernel, 1, 400.0, kept);
        let mut input = input(&case, |random| random.f32());
        let (x, tile) = (input.x.slice().to_vec(), case.columns / 400);
        input.x = Aligned::new(x.len(), |i| if i % case.columns < tile { x[i] + off } else { x[i] });
        check(&case, &input);
    }
}

/// What is kept is read once, the rest twice; each thread looks at three elements before.
#[test]
fn traffic_of_long_rows() {
    for kept in 0..4 {
        let kernel = named::<f32>("rows_long", "layer_alone_v2");
        let mut case = case_of(kernel, 1, 3.0, kept);
        (case.weight, case.bias) = (false, false);
        let report = run(&case, &input(&case, |random| random.f32())).report;
        let rows = case.rows as u64;
        let tensor = 4 * rows * case.columns as u64;
        let again = tensor / 3 * u64::from(3 - kept);
        let before = 3 * 4 * rows * u64::from(THREADS);
        assert_eq!(report.bytes_read, tensor + again + before);
        assert_eq!(report.bytes_written, tensor + 3 * 4 * rows);
    }
}

/// Rows that are kept whole are read once, also where sums are taken again because the first element lies far off; each thread looks at that one before.
#[test]
fn traffic_of_whole_rows() {
    for far in [0.0, 1e3] {
        let mut case = case_of(named::<f32>("rows_long_plain", "layer_alone_v4"), 1, 3.3, 0);
        (case.weight, case.bias) = (false, false);
        let mut input = input(&case, |random| random.f32());
        let x = input.x.slice().to_vec();
        input.x = Aligned::new(x.len(), |i| if i % case.columns == 0 { x[i] + far } else { x[i] });
        let report = check(&case, &input).report;
        let rows = case.rows as u64;
        let tensor = 4 * rows * case.columns as u64;
        assert_eq!(report.bytes_read, tensor + 4 * rows * u64::from(THREADS));
        assert_eq!(report.bytes_written, tensor + 3 * 4 * rows);
    }
}
