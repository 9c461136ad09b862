//! Columns that are groups, in strips over the whole chip: every plan of them, with what passes, what shared memory keeps and what registers
//! hold.

use isonorm::cuda::Interpreter;
use isonorm::{GpuPlan, GpuProperties};
use isonorm_check::{Case, InterpreterEngine, run_suite};

/// A GPU with so little shared memory that a block keeps two or three accesses of its threads to a strip.
fn small(sms: u32) -> GpuProperties {
    GpuProperties {
        sms,
        shared_bytes_per_block: 50 << 10,
        shared_bytes_per_sm: 56 << 10,
        ..GpuProperties::known("h200").expect("a known GPU")
    }
}

/// How many plans for a case are those of strips.
fn strips(case: &Case, gpu: &GpuProperties) -> usize {
    let plans = GpuPlan::alternatives(&case.desc, &gpu.clone().into()).expect("a valid problem");
    let of_strips = |plan: &&GpuPlan| plan.kernels()[0].family.contains("columns");
    plans.iter().filter(of_strips).count()
}

fn cases(passes: &[&str]) -> Vec<Case> {
    let shapes = [
        // A strip that registers hold; one of which most passes; some, the last of which is narrow; rows of an odd number of accesses.
        "batchnorm x=7x64x3x5 layout=nhwc",
        "batchnorm x=6000x16",
        "batchnorm x=40x104x2x3 layout=nhwc",
        "batchnorm x=3001x24",
        "batchnorm x=5x328",
        "batchnorm x=1x8x1x1x2 layout=ndhwc",
    ];
    let problems = shapes.iter().flat_map(|shape| {
        passes.iter().flat_map(move |pass| {
            ["f32", "bf16", "f16 param=f16"].map(|dtype| format!("{shape} dtype={dtype} {pass} data=offset:100 seed=6"))
        })
    });
    problems.map(|problem| problem.parse().expect("a problem")).collect()
}

fn check(passes: &[&str]) {
    let cases = cases(passes);
    for sms in [1, 4, 11] {
        let gpu = small(sms);
        let planned: usize = cases.iter().map(|case| strips(case, &gpu)).sum();
        assert!(planned > cases.len(), "{planned} plans for {sms} multiprocessors");
        let interpreter = Interpreter::new(gpu);
        for alternative in 0.. {
            let mut engine = InterpreterEngine::new(interpreter.clone()).alternative(alternative);
            let report = run_suite(&mut engine, &cases, |_| {});
            assert!(report.passed() || report.right() == 0, "{alternative}: {report}");
            if report.right() == 0 {
                assert!(alternative > 2);
                break;
            }
        }
    }
}

#[test]
fn every_plan_of_strips_is_right_forward() {
    check(&[
        "pass=train",
        "pass=train residual=add affine=none",
        "pass=train act=relu residual=add affine=none",
        "pass=train act=relu residual=masked",
    ]);
}

#[test]
fn every_plan_of_strips_is_right_backward() {
    check(&[
        "pass=backward",
        "pass=backward act=relu",
        "pass=backward residual=add",
        "pass=backward act=relu residual=masked",
        "pass=backward act=relu residual=result",
    ]);
}
