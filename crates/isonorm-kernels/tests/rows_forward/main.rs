//! The forward kernels for rows in the interpreter, against the definitions in `f64`.

mod case;
mod each;
mod expect;
mod long;
mod running;

use isonorm_kernels::rows::access::Width;
use isonorm_kernels::rows::epilogue::Class;
use isonorm_kernels::rows::forward::Args;
use isonorm_kernels::rows::key::{Kernel, kernels};
use isonorm_kernels::rows::parameters::Sharing;
use isonorm_kernels::rows::statistics::Op;
use isonorm_kernels::rows::team::Owner;
use isonorm_math::{Activation, Bf16, F16};

use case::{Case, Residual, input, run};
use expect::{Rounding, check};

const ACTIVATIONS: [Activation; 9] = [
    Activation::Identity,
    Activation::Relu,
    Activation::LeakyRelu { slope: 0.25 },
    Activation::Silu,
    Activation::Gelu,
    Activation::GeluTanh,
    Activation::Sigmoid,
    Activation::Tanh,
    Activation::HardSwish,
];

fn named<T: Rounding>(family: &str, name: &str) -> Kernel<Args<T>> {
    let mut all = kernels::<T>().into_iter();
    all.find(|kernel| kernel.family == family && kernel.name == name)
        .unwrap_or_else(|| panic!("no kernel {family} {name}"))
}

/// Row lengths at the ends of what a kernel holds.
fn lengths<T: Rounding>(kernel: &Kernel<Args<T>>, threads: u32) -> Vec<usize> {
    let bytes = size_of::<T>() as u32;
    if kernel.key.is_of_lines() {
        // Of three runs: an access, a line, one and a quarter, and four.
        return [3, 96, 120, 360]
            .map(|accesses| accesses * (16 / size_of::<T>()))
            .into();
    }
    let shape = (threads, Case::new(*kernel, threads, 1).blocks);
    let fitting: Vec<usize> = (1..40_000)
        .filter(|&columns| kernel.key.fits(columns, shape, bytes))
        .map(|columns| columns as usize)
        .collect();
    let mut some = vec![fitting[0], fitting[fitting.len() / 2], fitting[fitting.len() - 1]];
    some.dedup();
    some
}

/// Those that hold a row in registers.
fn short_kernels<T: Rounding>() -> impl Iterator<Item = Kernel<Args<T>>> {
    let contiguous =
        |kernel: &Kernel<Args<T>>| kernel.key.sharing != Sharing::Segmented && kernel.key.width != Width::Ragged;
    kernels::<T>()
        .into_iter()
        .filter(|kernel| !kernel.key.is_long() && !matches!(kernel.key.owner, Owner::Each | Owner::Pieces))
        .filter(contiguous)
}

fn every_kernel<T: Rounding>() {
    for kernel in short_kernels::<T>() {
        let threads: &[u32] = match kernel.key.owner {
            Owner::Lanes(_) => &[64],
            _ => &[32, 160],
        };
        for &threads in threads {
            for columns in lengths(&kernel, threads) {
                let mut case = Case::new(kernel, threads, columns);
                case.narrow = columns % 3 == 0;
                let lanes = kernel.key.access_elements(size_of::<T>() as u32) as usize;
                case.run = match kernel.key.sharing {
                    Sharing::ByRun => (columns / 3).max(1).next_multiple_of(lanes),
                    // No whole number of accesses.
                    Sharing::AcrossRuns => (columns / 5).max(lanes) | 1,
                    _ => case.run,
                };
                check(&case, &input(&case, |random| random.f32() * 4.0 - 1.0));
            }
        }
    }
}

#[test]
fn every_kernel_f32() {
    every_kernel::<f32>();
}

#[test]
fn every_kernel_f16() {
    every_kernel::<F16>();
}

#[test]
fn every_kernel_bf16() {
    every_kernel::<Bf16>();
}

fn misaligned<T: Rounding>() {
    for kernel in short_kernels::<T>().filter(|kernel| kernel.key.width == Width::Element) {
        for (lead, gap) in [(1, 0), (0, 1), (3, 2), (8, 7), (5, 8)] {
            for columns in [1, 31, 33, 127, 128] {
                let mut case = Case::new(kernel, 64, columns);
                (case.lead, case.gap, case.weight, case.bias) = (lead, gap, lead != 3, gap != 7);
                case.run = 7;
                case.residual = [Residual::Absent, Residual::Added, Residual::Stream][lead % 3];
                check(&case, &input(&case, |random| random.f32()));
            }
        }
    }
}

#[test]
fn elements_lie_anywhere() {
    misaligned::<f32>();
    misaligned::<Bf16>();
}

#[test]
fn vectors_may_have_gaps() {
    for kernel in short_kernels::<F16>().filter(|kernel| kernel.key.width == Width::Vector) {
        let columns = lengths(&kernel, 64)[0];
        let mut case = Case::new(kernel, 64, columns);
        (case.lead, case.gap) = (16, 8);
        case.run = 8;
        check(&case, &input(&case, |random| random.f32()));
    }
}

/// Kernels have code of its own for the parameters of most calls.
#[test]
fn each_parameter_may_be_there_or_not() {
    for kernel in short_kernels::<Bf16>().filter(|kernel| kernel.key.sharing == Sharing::ByColumn) {
        for (weight, bias) in [(true, true), (true, false), (false, true), (false, false)] {
            for narrow in [true, false] {
                let mut case = Case::new(kernel, 64, lengths(&kernel, 64)[0]);
                (case.weight, case.bias, case.narrow) = (weight, bias, narrow);
                check(&case, &input(&case, |random| random.f32()));
            }
        }
    }
}

#[test]
fn every_activation_with_every_residual() {
    for kernel in short_kernels::<f32>().filter(|kernel| kernel.key.residual) {
        for activation in ACTIVATIONS.into_iter().filter(|&a| kernel.key.class.has(a)) {
            for residual in [Residual::Absent, Residual::Added, Residual::Stream] {
                let mut case = Case::new(kernel, 64, lengths(&kernel, 64)[0]);
                (case.activation, case.residual) = (activation, residual);
                check(&case, &input(&case, |random| random.f32()));
            }
        }
    }
}

/// What is usual has code of its own.
fn every_activation_of_lines<T: Rounding>() {
    for kernel in short_kernels::<T>().filter(|kernel| kernel.key.is_of_lines()) {
        for activation in ACTIVATIONS.into_iter().filter(|&a| kernel.key.class.has(a)) {
            for (weight, bias) in [(true, true), (false, true), (false, false)] {
                let columns = lengths(&kernel, 64)[2];
                let mut case = Case::new(kernel, 64, columns);
                (case.activation, case.weight, case.bias, case.run) = (activation, weight, bias, columns / 3);
                check(&case, &input(&case, |random| random.f32() * 4.0 - 2.0));
            }
        }
    }
}

#[test]
fn every_activation_of_lines_f32() {
    every_activation_of_lines::<f32>();
}

#[test]
fn every_activation_of_lines_bf16() {
    every_activation_of_lines::<Bf16>();
}

#[test]
fn every_activation_is_somewhere() {
    for activation in ACTIVATIONS {
        for sharing in [Sharing::ByColumn, Sharing::ByRun] {
            for width in [Width::Vector, Width::Element] {
                let has = |kernel: &Kernel<Args<f32>>| {
                    kernel.key.class.has(activation)
                        && kernel.key.sharing == sharing
                        && kernel.key.width == width
                        && kernel.key.residual
                };
                assert!(kernels::<f32>().iter().any(has), "{activation:?} {sharing:?} {width:?}");
            }
        }
    }
}

/// What isonorm-math says of −0, infinities and NaN holds in kernels: weight 0 leaves the bias, whatever it is.
#[test]
fn activations_of_special_numbers() {
    for activation in ACTIVATIONS {
        let kernel = match Class::Piecewise.has(activation) {
            true => named::<f32>("rows_forward_residual", "rms_lanes8_v4"),
            false => named::<f32>("rows_forward_any_residual", "rms_warp_v1"),
        };
        let mut case = Case::new(kernel, 32, 128);
        (case.activation, case.residual) = (activation, Residual::Added);
        let specials = [
            f32::NEG_INFINITY,
            f32::INFINITY,
            f32::NAN,
            -0.0,
            0.0,
            -1e30,
            1e30,
            1e-40,
        ];
        let mut input = input(&case, |_| 0.0);
        (case.weight, case.bias) = (false, false);
        let mut i = 0;
        input.residual = case::Aligned::new(case.rows * 128, |_| {
            i += 1;
            specials[i % 8]
        });
        let output = run(&case, &input);
        for (i, (&y, &special)) in output.y.slice().iter().zip(input.residual.slice()).enumerate() {
            // x̂ is +0, and +0 − 0 is +0.
            let expected = activation.apply(special + 0.0);
            let same = y.to_bits() == expected.to_bits() || (y.is_nan() && expected.is_nan());
            assert!(
                same,
                "{activation:?} of {special}: got {y}, expected {expected} (element {i})"
            );
        }
    }
}

#[test]
fn teams_with_rows_of_their_own() {
    for (name, columns) in [
        ("layer_lanes2_v1", 8),
        ("rms_lanes2_v1", 4),
        ("layer_lanes2_v2", 12),
        ("rms_lanes4_v2", 20),
        ("layer_lanes4_v3", 44),
        ("layer_lanes8_v3", 76),
        ("layer_warp_v3", 300),
        ("rms_warp_v4", 480),
    ] {
        for rows in [1, 3, 4, 9, 33] {
            let mut case = Case::new(named::<f32>("rows_forward_lanes", name), 96, columns);
            case.rows = rows;
            check(&case, &input(&case, |random| random.f32()));
        }
    }
}

#[test]
fn large_mean() {
    for (name, columns) in [("layer_block_v8", 2048), ("layer_block_v2", 512)] {
        for mean in [100.0, 1e6] {
            let case = Case::new(named::<f32>("rows_forward_block", name), 64, columns);
            check(&case, &input(&case, |random| mean + random.f32()));
        }
    }
}

#[test]
fn the_first_element_may_lie_far_off() {
    let plain = [
        ("rows_forward_lanes", "layer_lanes4_v2", 32),
        ("rows_forward_block", "layer_block_v2", 512),
        ("rows_forward_lines_any", "layer_block_v1_ahead", 480),
        ("rows_forward_cluster_lines_piecewise", "layer_blocks_v1_ahead", 480),
    ];
    for (family, name, columns) in plain {
        for off in [10.0, 1e4, 1e15] {
            let case = Case::new(named::<f32>(family, name), 64, columns);
            let mut input = input(&case, |random| random.f32());
            let rows = input.x.slice().to_vec();
            // Every other row, so that teams of one warp differ.
            input.x = case::Aligned::new(rows.len(), |i| if i % (2 * columns) == 0 { off } else { rows[i] });
            check(&case, &input);
        }
    }
}

#[test]
fn constant_rows_give_exactly_the_bias() {
    for value in [0.1f32, -3.0e7, 1e30] {
        let mut case = Case::new(named::<f32>("rows_forward_block", "layer_block_v2"), 64, 332);
        case.narrow = true;
        let input = input(&case, |_| value);
        let output = run(&case, &input);
        for row in output.y.slice().chunks(case.columns) {
            for (i, &y) in row.iter().enumerate() {
                assert_eq!(f64::from(y), input.bias.get(i));
            }
        }
        assert_eq!(output.mean, [value; 5]);
    }
}

#[test]
fn nan_and_infinity_stay_in_their_row() {
    for bad in [f32::NAN, f32::INFINITY] {
        for (family, name, columns) in [
            ("rows_forward_lanes", "layer_lanes4_v2", 32),
            ("rows_forward_lanes", "rms_lanes8_v3", 96),
            ("rows_forward_lanes", "layer_warp_v3", 320),
            ("rows_forward_lines_piecewise", "layer_block_v1_ahead", 480),
        ] {
            let case = Case::new(named::<f32>(family, name), 64, columns);
            let spoilt = columns + 8;
            let mut input = input(&case, |random| random.f32());
            let good = run(&case, &input);
            input.x = case::Aligned::new(5 * columns, |i| if i == spoilt { bad } else { input.x.slice()[i] });
            let output = run(&case, &input);
            assert!(output.y.slice()[spoilt].is_nan());
            for i in (0..5 * columns).filter(|i| i / columns != 1) {
                assert_eq!(output.y.slice()[i].to_bits(), good.y.slice()[i].to_bits());
            }
        }
    }
}

fn bits<T: Rounding>(numbers: &[T]) -> Vec<u32> {
    numbers.iter().map(|y| y.to_acc().to_bits()).collect()
}

#[test]
fn the_order_of_threads_changes_no_bit() {
    let mut case = Case::new(named::<f32>("rows_forward_block", "layer_block_v2"), 128, 1000);
    let input = input(&case, |random| random.f32());
    let first = run(&case, &input);
    for seed in 1000..1010 {
        case.seed = seed;
        assert_eq!(bits(first.y.slice()), bits(run(&case, &input).y.slice()));
    }
}

#[test]
fn results_may_replace_their_inputs() {
    for kernel in short_kernels::<Bf16>() {
        let residual = if kernel.key.residual {
            Residual::Stream
        } else {
            Residual::Absent
        };
        let mut case = Case::new(kernel, 64, lengths(&kernel, 64)[0]);
        case.residual = residual;
        let input = input(&case, |random| random.f32());
        let apart = run(&case, &input);
        case.in_place = true;
        for seed in 0..3 {
            case.seed = seed;
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

/// Every element is read once, but for the first of a row, which each thread takes as shift, or an access of it.
#[test]
fn traffic_is_what_has_to_be() {
    for kernel in short_kernels::<f32>() {
        let columns = lengths(&kernel, 64)[0];
        let mut case = Case::new(kernel, 64, columns);
        (case.weight, case.bias) = (false, false);
        let report = run(&case, &input(&case, |random| random.f32())).report;
        let tensor = (4 * case.rows * columns) as u64;
        let threads = case.rows as u64 * u64::from(kernel.key.team_threads(64, case.blocks));
        let extra = match kernel.key.op {
            Op::Layer if kernel.key.is_of_lines() => 16 * threads,
            Op::Layer => 4 * threads,
            _ => 0,
        };
        let saved = 3 * 4 * case.rows as u64;
        assert_eq!(
            (report.bytes_read, report.bytes_written),
            (tensor + extra, tensor + saved),
            "{}",
            kernel.name
        );
    }
}
