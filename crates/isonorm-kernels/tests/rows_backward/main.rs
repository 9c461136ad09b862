//! The backward kernels for rows in the interpreter, against the definitions in `f64`.

mod case;
mod expect;

use isonorm_kernels::rows::Data;
use isonorm_kernels::rows::access::Width;
use isonorm_kernels::rows::backward::Args;
use isonorm_kernels::rows::epilogue::Class;
use isonorm_kernels::rows::key::{Kernel, Key, backward_kernels};
use isonorm_kernels::rows::parameters::Sharing;
use isonorm_kernels::rows::team::Owner;
use isonorm_math::{Activation, Bf16, F16};

use case::{Case, blocks, input, run};
use expect::{F32_UNIT, check};

/// Kernels of rows that are contiguous; of those in segments or pieces, or that begin anywhere, the conformance suites have cases.
fn contiguous<T: Data>() -> Vec<Kernel<Args<T>>> {
    let mut kernels = backward_kernels::<T>();
    kernels.retain(|kernel| kernel.key.sharing != Sharing::Segmented && kernel.key.width != Width::Ragged);
    kernels.retain(|kernel| kernel.key.owner != Owner::Pieces);
    kernels
}

fn lengths<T: Data>(kernel: &Kernel<Args<T>>, threads: u32) -> Vec<usize> {
    if kernel.key.is_of_lines() {
        return vec![case::columns_of_lines(kernel, threads)];
    }
    let shape = (threads, blocks(&kernel.key));
    let fits = |columns: &usize| kernel.key.fits(*columns as u64, shape, size_of::<T>() as u32);
    let fitting: Vec<usize> = (1..40_000).filter(fits).collect();
    let mut some = vec![fitting[0], fitting[fitting.len() / 2], fitting[fitting.len() - 1]];
    some.dedup();
    some
}

fn every_kernel<T: Data>(unit: f64) {
    for kernel in contiguous::<T>() {
        let threads: &[u32] = match kernel.key.owner {
            Owner::Lanes(_) => &[64],
            _ => &[32, 160],
        };
        for &threads in threads {
            for columns in lengths(&kernel, threads) {
                let mut case = Case::new(kernel, threads, columns);
                case.narrow = columns % 3 == 0;
                case.stream = columns % 2 == 1;
                check(&case, unit);
            }
        }
    }
}

#[test]
fn every_kernel_f32() {
    every_kernel::<f32>(F32_UNIT);
}

#[test]
fn every_kernel_f16() {
    every_kernel::<F16>(1.0 / 2048.0);
}

#[test]
fn every_kernel_bf16() {
    every_kernel::<Bf16>(1.0 / 256.0);
}

#[test]
fn runs_of_one_warp_or_of_several() {
    let by_run = |kernel: &Kernel<Args<f32>>| kernel.key.sharing == Sharing::ByRun;
    for kernel in contiguous::<f32>().into_iter().filter(by_run) {
        let columns = lengths(&kernel, 192)[0];
        for runs in [1, 2, 3, 4, 6, 12] {
            for (rows, sets) in [(5, 1), (8, 4)] {
                let mut case = Case::new(kernel, 192, columns);
                (case.runs, case.rows, case.sets) = (runs, rows, sets);
                check(&case, F32_UNIT);
            }
        }
    }
}

#[test]
fn every_activation_with_a_residual() {
    let smooth = [
        Activation::Silu,
        Activation::Gelu,
        Activation::GeluTanh,
        Activation::Sigmoid,
        Activation::Tanh,
    ];
    let with_one = |kernel: &Kernel<Args<f32>>| matches!(kernel.key.class, Class::Any | Class::Added);
    for kernel in contiguous::<f32>().into_iter().filter(with_one) {
        let piecewise = [Activation::Relu, Activation::LeakyRelu { slope: 0.25 }];
        let activations = smooth.into_iter().chain(piecewise);
        for activation in activations.filter(|&activation| kernel.key.class.has(activation)) {
            let mut case = Case::new(kernel, 64, lengths(&kernel, 64)[0]);
            (case.activation, case.residual) = (activation, kernel.key.residual);
            check(&case, F32_UNIT);
        }
    }
}

/// Threads of a strip go round several times, and strips are more than blocks have at a time.
#[test]
fn columns_of_many_rows() {
    for kernel in contiguous::<F16>().into_iter().filter(|kernel| kernel.key.is_apart()) {
        for (lanes, narrow) in [(16, true), (2, false)] {
            let columns = *lengths(&kernel, 32).last().expect("some");
            let mut case = Case::new(kernel, 32, columns);
            (case.rows, case.slots, case.narrow) = (75, lanes, narrow);
            check(&case, 1.0 / 2048.0);
        }
    }
}

/// The whole chip has one row at a time: its sums are the gradients, in the parameters' type.
#[test]
fn one_team_writes_gradients() {
    let of_chip = |key: &Key| key.owner == Owner::Chip && key.sharing == Sharing::ByColumn;
    let mut kernels = contiguous::<F16>();
    kernels.retain(|kernel| of_chip(&kernel.key));
    assert_eq!(kernels.len(), 6);
    for kernel in kernels {
        for narrow in [true, false] {
            let mut case = Case::new(kernel, 64, lengths(&kernel, 64)[0]);
            (case.most_teams, case.narrow) = (1, narrow);
            check(&case, 1.0 / 2048.0);
        }
    }
}

#[test]
fn results_may_replace_their_inputs() {
    for kernel in contiguous::<f32>().into_iter().filter(|kernel| !kernel.key.is_apart()) {
        let mut case = Case::new(kernel, 64, lengths(&kernel, 64)[0]);
        case.residual = true;
        let input = input(&case);
        let apart = run(&case, &input);
        case.in_place = true;
        let within = run(&case, &input);
        assert_eq!(within.dx.get(), apart.dx.get(), "{} {}", kernel.family, kernel.name);
        assert_eq!(within.gradients, apart.gradients);
    }
}

#[test]
fn the_order_of_threads_changes_no_bit() {
    for kernel in contiguous::<f32>() {
        let mut case = Case::new(kernel, 64, lengths(&kernel, 64)[0]);
        // Multiples of six, as the kernel that adds up parts has as many warps, and as wide ones, for all of these.
        case.seed = 96;
        let input = input(&case);
        let first = run(&case, &input);
        for seed in [102, 108, 114] {
            case.seed = seed;
            let again = run(&case, &input);
            assert_eq!(again.dx.get(), first.dx.get());
            assert_eq!(again.gradients, first.gradients);
        }
    }
}
