//! Rows and channels in segments that blocks of the whole chip hold: every plan of them, on a GPU so small that a team has several in turn.

use isonorm::cuda::Interpreter;
use isonorm::{GpuPlan, GpuProperties};
use isonorm_check::{Case, InterpreterEngine, run_suite};

/// A GPU of so many multiprocessors.
fn small(sms: u32) -> GpuProperties {
    GpuProperties {
        sms,
        ..GpuProperties::known("h200").expect("a known GPU")
    }
}

/// Runs every plan for the whole chip of each problem, with images that begin anywhere and with others; each has some. Shared memory has room
/// for two to four channels and those that come next.
fn check(problems: &[&str]) {
    for problem in problems {
        for image in ["35x35", "36x36"] {
            check_on(&small(4), &format!("batchnorm x=9x7x{image} {problem} data=offset:100"));
        }
    }
}

/// Runs every plan for the whole chip of a problem, of which there is one; the entry points of their first kernels.
fn check_on(gpu: &GpuProperties, problem: &str) -> Vec<&'static str> {
    let interpreter = Interpreter::new(gpu.clone());
    let case: Case = format!("{problem} seed=6").parse().expect("a problem");
    let plans = GpuPlan::alternatives(&case.desc, &gpu.clone().into()).expect("a valid problem");
    let of_chip = |plan: &GpuPlan| plan.kernels()[0].family.contains("_chip_");
    let mut planned = Vec::new();
    for number in (0..plans.len()).filter(|&number| of_chip(&plans[number])) {
        let mut engine = InterpreterEngine::new(interpreter.clone()).alternative(number);
        let report = run_suite(&mut engine, &[case], |_| {});
        assert_eq!(report.right(), 1, "plan {number} of {case}: {report}");
        planned.push(plans[number].kernels()[0].entry);
    }
    assert!(!planned.is_empty(), "no plan of {case} is for the whole chip");
    planned
}

/// One team has all rows, whose sums fill the registers: of 16 bits shared memory has room for three rows, of `f32` for one and a half.
#[test]
fn rows_that_fill_the_chip_are_right_backward() {
    for (rows, problem, kernel) in [
        (1, "layernorm", "layer_chip_v8_ahead"),
        (2, "rmsnorm", "rms_chip_v8_ahead"),
        (5, "layernorm residual=stream", "layer_chip_v8_ahead"),
        (4, "layernorm dtype=bf16 param=bf16", "layer_chip_v4_ahead"),
        (5, "rmsnorm dtype=f16", "rms_chip_v4_ahead"),
    ] {
        let (op, more) = problem.split_once(' ').unwrap_or((problem, ""));
        let planned = check_on(&small(2), &format!("{op} x={rows}x30000 {more} pass=backward"));
        assert!(planned.contains(&kernel), "{problem}: {planned:?}");
    }
}

#[test]
fn every_plan_for_the_whole_chip_is_right_forward() {
    check(&[
        "pass=train",
        "dtype=bf16 act=silu pass=train",
        "act=gelu pass=train",
        "residual=add pass=train",
        "dtype=bf16 act=relu residual=add pass=train",
        "dtype=f16 param=f16 act=leaky_relu:0.1 residual=add pass=train",
    ]);
}

#[test]
fn every_plan_for_the_whole_chip_is_right_backward() {
    check(&[
        "act=relu pass=backward",
        "dtype=bf16 act=silu pass=backward",
        "residual=add pass=backward",
        "act=relu residual=add pass=backward",
        "dtype=bf16 act=relu residual=add pass=backward",
        "dtype=f16 param=f16 act=leaky_relu:0.1 residual=add pass=backward",
    ]);
}
