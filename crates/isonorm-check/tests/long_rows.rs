//! Rows that are longer than registers, in the interpreter: on GPUs so small that there need not be many of them.

use std::sync::Arc;

use isonorm::cuda::Interpreter;
use isonorm::{GpuPlan, GpuProperties};
use isonorm_check::{Case, InterpreterEngine, Start, run_suite};

/// A GPU so small that rows of some ten thousand elements are more than all of it holds, and their parameters more than its last-level cache.
fn tiny() -> GpuProperties {
    GpuProperties {
        compute_capability: 80,
        sms: 3,
        shared_bytes_per_block: 50 << 10,
        shared_bytes_per_sm: 56 << 10,
        l2_bytes: 64 << 10,
        ..GpuProperties::known("h200").expect("a known GPU")
    }
}

/// A GPU as small, whose multiprocessors have room for several rows.
fn roomy() -> GpuProperties {
    GpuProperties {
        shared_bytes_per_block: 99 << 10,
        shared_bytes_per_sm: 100 << 10,
        ..tiny()
    }
}

/// Plans problems, of which each plan and its first family is told, and checks them.
fn check(problems: &[(&str, &str, &str)], pass: &str) {
    check_on(&tiny(), problems, pass);
}

fn check_on(gpu: &GpuProperties, problems: &[(&str, &str, &str)], pass: &str) {
    let gpu = Arc::new(gpu.clone());
    let case = |problem: &str| -> Case {
        format!("{problem} {pass} data=offset:100 seed=3")
            .parse()
            .expect("a problem")
    };
    let cases: Vec<Case> = problems.iter().map(|(problem, ..)| case(problem)).collect();
    for (case, (_, name, family)) in cases.iter().zip(problems) {
        let plan = GpuPlan::new(&case.desc, &gpu).expect("valid");
        assert_eq!((plan.name(), plan.kernels()[0].family), (*name, *family), "{plan}");
    }
    for start in [Start::Aligned, Start::Misaligned] {
        let mut engine = InterpreterEngine::new(Interpreter::new((*gpu).clone())).starting(start);
        let report = run_suite(&mut engine, &cases, |_| {});
        println!("{pass}: {report}");
        assert!(report.passed() && report.right() == cases.len(), "{report}");
    }
}

#[test]
fn many_rows_come_to_shared_memory_whole() {
    check_on(
        &roomy(),
        &[
            ("layernorm x=80x6148", "rows/shared", "rows_long_plain"),
            ("rmsnorm x=75x6144 affine=none", "rows/shared", "rows_long_plain"),
            (
                "layernorm x=73x12304 dtype=f16 affine=weight",
                "rows/shared",
                "rows_long_plain",
            ),
            (
                "layernorm x=74x12312 dtype=bf16 param=bf16",
                "rows/shared",
                "rows_long_plain",
            ),
            (
                "rmsnorm x=77x18440 dtype=bf16 param=bf16",
                "rows/shared",
                "rows_long_plain",
            ),
            // Registers hold two of 32 KiB, and a few rows do not wait for each other.
            ("layernorm x=80x8192", "rows/block", "rows_forward_block"),
            ("layernorm x=59x6148", "rows/block", "rows_forward_block"),
            ("layernorm x=80x6148 act=relu", "rows/block", "rows_forward_piecewise"),
        ],
        "pass=train",
    );
}

/// A row of a warp's lines, where runs are as long as one.
#[test]
fn rows_of_runs_stay_in_shared_memory_as_lines() {
    let (piecewise, any) = ("rows_forward_lines_piecewise", "rows_forward_lines_any");
    check_on(
        &roomy(),
        &[
            ("groupnorm x=16x8x52x60 groups=4", "rows/runs", piecewise),
            (
                "groupnorm x=16x16x52x60 groups=4 dtype=bf16 act=relu",
                "rows/runs",
                piecewise,
            ),
            ("instancenorm x=31x2x80x80 affine=weight", "rows/runs", piecewise),
            ("groupnorm x=16x8x52x60 groups=4 act=gelu", "rows/runs", any),
        ],
        "pass=train",
    );
}

/// Of shorter runs most lanes of a line had nothing.
#[test]
fn rows_of_runs_come_to_shared_memory_whole() {
    let (piecewise, any) = ("rows_long_runs_piecewise", "rows_long_runs_any");
    check_on(
        &roomy(),
        &[
            ("groupnorm x=64x98x8x8 groups=1", "rows/shared", piecewise),
            (
                "groupnorm x=64x52x15x16 groups=1 dtype=bf16 act=relu",
                "rows/shared",
                piecewise,
            ),
            ("groupnorm x=64x98x8x8 groups=1 act=gelu", "rows/shared", any),
            // Shorter ones, where there are more of them and instructions count.
            (
                "groupnorm x=24x16x28x60 groups=4 dtype=f16 param=f16 act=silu",
                "rows/shared",
                any,
            ),
            (
                "groupnorm x=16x16x28x60 groups=4 dtype=f16 param=f16 act=silu",
                "rows/block",
                "rows_forward_runs_any",
            ),
        ],
        "pass=train",
    );
    // A multiprocessor has room for seven, so that few are enough, unless they begin a second round.
    let seven = GpuProperties {
        shared_bytes_per_sm: 200 << 10,
        ..roomy()
    };
    check_on(
        &seven,
        &[
            ("groupnorm x=12x98x8x8 groups=1", "rows/shared", piecewise),
            (
                "groupnorm x=24x98x8x8 groups=1",
                "rows/block",
                "rows_forward_runs_piecewise",
            ),
            ("groupnorm x=32x98x8x8 groups=1", "rows/shared", piecewise),
            (
                "groupnorm x=8x98x8x8 groups=1",
                "rows/block",
                "rows_forward_runs_piecewise",
            ),
        ],
        "pass=train",
    );
}

#[test]
fn parameters_that_no_cache_keeps_are_read_once() {
    check(
        &[
            ("layernorm x=5x30000", "rows/down", "rows_long_down"),
            (
                "layernorm x=3x40008 dtype=bf16 param=bf16 affine=weight",
                "rows/down",
                "rows_long_down",
            ),
            ("rmsnorm x=4x40000 dtype=f16", "rows/down", "rows_long_down"),
            // Few rows have nothing to read again, and there may be nothing to read.
            ("layernorm x=2x30000", "rows/pieces", "rows_forward_pieces_piecewise"),
            (
                "layernorm x=5x30000 affine=none",
                "rows/pieces",
                "rows_forward_pieces_runs_piecewise",
            ),
            (
                "layernorm x=5x30000 act=relu",
                "rows/pieces",
                "rows_forward_pieces_piecewise",
            ),
        ],
        "pass=train",
    );
}

#[test]
fn threads_have_the_gradients_of_their_columns() {
    check(
        &[
            ("layernorm x=5x30000", "rows/sweeps", "rows_sweeps_down"),
            (
                "layernorm x=3x40008 dtype=bf16 param=bf16",
                "rows/sweeps",
                "rows_sweeps_down",
            ),
            (
                "rmsnorm x=4x40000 dtype=f16 residual=stream",
                "rows/sweeps",
                "rows_sweeps_down",
            ),
            ("layernorm x=2x30000 residual=add", "rows/sweeps", "rows_sweeps_down"),
            ("layernorm x=5x30000 act=relu", "rows/sweeps", "rows_sweeps"),
        ],
        "pass=backward",
    );
}

#[test]
fn more_rows_than_there_is_room_for_at_once() {
    check(&[("layernorm x=66x18432", "rows/down", "rows_long_down")], "pass=train");
    check(
        &[("layernorm x=66x18432", "rows/sweeps", "rows_sweeps_down")],
        "pass=backward",
    );
}
