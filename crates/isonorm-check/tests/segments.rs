//! Channels in segments that blocks of the whole chip hold: every plan of them, on a GPU so small that a team has several channels in turn.

use isonorm::cuda::Interpreter;
use isonorm::{GpuPlan, GpuProperties};
use isonorm_check::{Case, InterpreterEngine, run_suite};

/// A GPU whose shared memory has room for two to four channels and those that come next.
fn small() -> GpuProperties {
    GpuProperties {
        sms: 4,
        ..GpuProperties::known("h200").expect("a known GPU")
    }
}

/// Runs every plan for the whole chip of each problem, with images that begin anywhere and with others; each has some.
fn check(problems: &[&str]) {
    let gpu = small();
    let interpreter = Interpreter::new(gpu.clone());
    for problem in problems {
        for image in ["35x35", "36x36"] {
            let text = format!("batchnorm x=9x7x{image} {problem} data=offset:100 seed=6");
            let case: Case = text.parse().expect("a problem");
            let plans = GpuPlan::alternatives(&case.desc, &gpu.clone().into()).expect("a valid problem");
            let of_chip = |plan: &GpuPlan| plan.kernels()[0].family.contains("_chip_");
            let numbers = (0..plans.len()).filter(|&number| of_chip(&plans[number]));
            let mut planned = 0;
            for number in numbers {
                let mut engine = InterpreterEngine::new(interpreter.clone()).alternative(number);
                let report = run_suite(&mut engine, &[case], |_| {});
                assert_eq!(report.right(), 1, "plan {number} of {case}: {report}");
                planned += 1;
            }
            assert!(planned > 0, "no plan of {case} is for the whole chip");
        }
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
