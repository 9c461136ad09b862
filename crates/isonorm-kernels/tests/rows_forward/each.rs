//! Statistics that are given.

use isonorm_kernels::rows::access::Width;
use isonorm_kernels::rows::each::most_rows;
use isonorm_kernels::rows::epilogue::Class;
use isonorm_kernels::rows::forward::Args;
use isonorm_kernels::rows::key::{Kernel, kernels};
use isonorm_kernels::rows::team::Owner;
use isonorm_math::{Activation, Bf16, F16};

use crate::case::{Case, Residual, input, run};
use crate::expect::{Rounding, check};
use crate::{ACTIVATIONS, bits};

/// Rows that are shorter than an access, those that are as long as some, and others.
const COLUMNS: [usize; 10] = [1, 2, 3, 5, 8, 9, 32, 49, 100, 1025];

fn kernels_of_each<T: Rounding>() -> impl Iterator<Item = Kernel<Args<T>>> {
    kernels::<T>()
        .into_iter()
        .filter(|kernel| kernel.key.owner == Owner::Each)
}

fn case_of<T: Rounding>(kernel: Kernel<Args<T>>, threads: u32, columns: usize) -> Case<T> {
    let elements = kernel.key.tile_elements(threads, size_of::<T>() as u32);
    let case = Case::new(kernel, threads, columns);
    Case {
        kept: most_rows(elements, columns as u64),
        // What leaves a mask has no other.
        activation: match kernel.key.class {
            Class::Masked => Activation::Relu,
            _ => case.activation,
        },
        ..case
    }
}

fn every_kernel<T: Rounding>() {
    for kernel in kernels_of_each::<T>() {
        for columns in COLUMNS {
            // As many sets as rows, or more, or fewer.
            for (rows, sets) in [(1, 1), (7, 3), (24, 24), (5, 6), (13, 1)] {
                let mut case = case_of(kernel, 32, columns);
                (case.rows, case.sets) = (rows, sets);
                (case.narrow, case.weight, case.bias) = (rows == 7, rows != 5, sets != 1);
                case.residual = [Residual::Absent, Residual::Added][columns % 2];
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

#[test]
fn every_activation() {
    for kernel in kernels_of_each::<F16>() {
        for activation in ACTIVATIONS.into_iter().filter(|&a| kernel.key.class.has(a)) {
            for residual in [Residual::Absent, Residual::Added] {
                let mut case = case_of(kernel, 64, 49);
                (case.activation, case.residual) = (activation, residual);
                check(&case, &input(&case, |random| random.f32() - 0.5));
            }
        }
    }
}

#[test]
fn tensors_of_elements_lie_anywhere() {
    for kernel in kernels_of_each::<Bf16>().filter(|kernel| kernel.key.width == Width::Element) {
        for lead in [1, 3, 7] {
            let mut case = case_of(kernel, 64, 49);
            case.lead = lead;
            check(&case, &input(&case, |random| random.f32()));
        }
    }
}

#[test]
fn results_may_replace_x() {
    for kernel in kernels_of_each::<Bf16>() {
        let mut case = case_of(kernel, 64, 49);
        let input = input(&case, |random| random.f32());
        let apart = run(&case, &input);
        case.in_place = true;
        assert_eq!(
            bits(run(&case, &input).y.slice()),
            bits(apart.y.slice()),
            "{}",
            kernel.family
        );
    }
}

/// The tensors once, and two numbers for each row that a tile has some of.
#[test]
fn traffic_is_what_has_to_be() {
    for kernel in kernels_of_each::<f32>() {
        let mut case = case_of(kernel, 64, 49);
        (case.weight, case.bias) = (false, false);
        let report = run(&case, &input(&case, |random| random.f32())).report;
        let (tensor, tile) = (case.rows * case.columns, kernel.key.tile_elements(64, 4) as usize);
        let rows_of = |start: usize| (start + tile).min(tensor).div_ceil(case.columns) - start / case.columns;
        let rows: usize = (0..tensor).step_by(tile).map(rows_of).sum();
        assert_eq!(
            (report.bytes_read, report.bytes_written),
            ((4 * tensor + 8 * rows) as u64, 4 * tensor as u64),
            "{}",
            kernel.family
        );
    }
}
