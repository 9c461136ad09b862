//! The kernels of GPUs: in the interpreter always, on the GPU where there is one.

#[path = "../common/mod.rs"]
mod common;
mod tiles;

use isonorm::cuda::Interpreter;
use isonorm::{GpuPlan, GpuProperties};
use isonorm_check::{Case, CudaEngine, Engine, InterpreterEngine, Start, SuiteReport, run_suite, suites};

/// The interpreter takes microseconds for an element, and a coroutine for each thread.
const MOST_ELEMENTS: usize = 32 << 10;

fn cases(suite: &str) -> impl Iterator<Item = Case> {
    let named = suites().into_iter().filter(move |s| s.name == suite);
    named.flat_map(|s| s.cases)
}

fn small(suite: &str) -> Vec<Case> {
    cases(suite)
        .filter(|case| case.desc.get_shape().elements().is_some_and(|n| n <= MOST_ELEMENTS))
        .collect()
}

/// The interpreter of a GPU, with tensors that begin where vectors would like to, and with others.
fn interpreters(gpu: &GpuProperties) -> [InterpreterEngine; 2] {
    let interpreter = Interpreter::new(gpu.clone());
    [Start::Aligned, Start::Misaligned].map(|start| InterpreterEngine::new(interpreter.clone()).starting(start))
}

fn known(gpu: &str) -> GpuProperties {
    GpuProperties::known(gpu).expect("a known GPU")
}

/// A GPU with so few multiprocessors and so little shared memory that rows of a few thousand elements are spread over it.
fn tiny(compute_capability: u32) -> GpuProperties {
    GpuProperties {
        compute_capability,
        sms: 3,
        shared_bytes_per_block: 50 << 10,
        shared_bytes_per_sm: 56 << 10,
        ..known("h200")
    }
}

fn parsed(problems: impl IntoIterator<Item = String>) -> Vec<Case> {
    let problems = problems.into_iter();
    problems.map(|p| p.parse().expect("a problem")).collect()
}

/// Runs a suite; some of it must have run.
fn check(engine: &mut dyn Engine, suite: &str, cases: &[Case]) -> SuiteReport {
    let report = run_suite(engine, cases, |_| {});
    println!("{suite}: {report}");
    assert!(report.passed(), "{suite}: {report}");
    assert!(report.right() > 0, "{suite}: every case was skipped: {report}");
    report
}

#[test]
fn suites_in_the_interpreter() {
    for mut engine in interpreters(&known("h200")) {
        for suite in ["smoke", "shapes", "adversarial", "exact"] {
            check(&mut engine, suite, &small(suite));
        }
    }
}

#[test]
fn rows_of_every_length_in_the_interpreter() {
    let lengths = [
        1, 2, 3, 4, 7, 8, 31, 33, 64, 127, 128, 129, 256, 511, 512, 513, 1000, 2048, 4096, 8192, 20000,
    ];
    let problems = lengths.iter().flat_map(|columns| {
        let rows = if *columns < 512 { 5 } else { 1 };
        ["f32", "bf16", "f16"].map(|dtype| {
            let epilogue = ["", "residual=add ", "act=relu ", "act=gelu residual=stream "][columns % 4];
            let op = if columns % 3 == 0 { "rmsnorm" } else { "layernorm" };
            let param = if columns % 5 == 0 { dtype } else { "f32" };
            format!("{op} x={rows}x{columns} dtype={dtype} param={param} {epilogue}pass=train data=offset:100 seed=3")
        })
    });
    let cases = parsed(problems);
    for mut engine in interpreters(&known("a100")) {
        let report = check(&mut engine, "rows", &cases);
        assert_eq!(report.skipped(), 0, "{report}");
    }
}

#[test]
fn rows_of_all_lengths_have_a_team_each() {
    let problem = |(columns, types): (usize, &str)| {
        let rows = (32 << 10) / columns;
        format!("layernorm x={rows}x{columns} {types} pass=train seed=4")
    };
    // Two, three and four accesses a thread, of which the last may be missing; parameters kept as numbers, as they came, and not.
    let of_16 = [128, 256, 512, 768, 1024, 1280, 2048, 3072, 4096].into_iter();
    let cases = parsed(
        ([8, 64, 128, 256, 1024]
            .into_iter()
            .map(|columns| (columns, "dtype=f32")))
        .chain(of_16.clone().map(|columns| (columns, "dtype=bf16 param=bf16")))
        .chain(of_16.map(|columns| (columns, "dtype=f16 param=f32 affine=weight")))
        .map(problem),
    );
    let gpu = GpuProperties { sms: 1, ..tiny(90) };
    for case in &cases {
        let plan = GpuPlan::new(&case.desc, &gpu.clone().into()).expect("valid");
        let (kernel, rows) = (&plan.kernels()[0], case.desc.get_shape().dims()[0]);
        assert!((kernel.grid * kernel.block / 2) as usize >= rows, "{plan}");
    }
    let report = check(&mut InterpreterEngine::new(Interpreter::new(gpu)), "lengths", &cases);
    assert_eq!(report.skipped(), 0, "{report}");
}

/// Plans of the problems by name, which are then computed.
fn long_rows(gpu: &GpuProperties, problems: &[(&str, &str)]) {
    let cases = parsed(problems.iter().map(|(problem, _)| format!("{problem} seed=5")));
    let name = |case: &Case| {
        let plan = GpuPlan::new(&case.desc, &gpu.clone().into()).expect("valid");
        plan.name().to_string()
    };
    let planned: Vec<_> = problems
        .iter()
        .zip(&cases)
        .map(|((p, _), case)| (*p, name(case)))
        .collect();
    let wanted: Vec<_> = problems.iter().map(|(p, name)| (*p, name.to_string())).collect();
    assert_eq!(planned, wanted);
    for mut engine in interpreters(gpu) {
        let report = check(&mut engine, "long rows", &cases);
        assert_eq!(report.skipped(), 0, "{report}");
    }
}

#[test]
fn long_rows_in_blocks_clusters_and_the_grid() {
    let problems = [
        ("layernorm x=2x8192 dtype=f32 act=gelu residual=add", "rows/block"),
        ("layernorm x=5x8200 dtype=f32 act=gelu", "rows/blocks"),
        ("layernorm x=5x8200 dtype=f32 act=gelu residual=add", "rows/alone"),
        ("layernorm x=2x16000 dtype=f32 act=silu residual=add", "rows/grid"),
        ("layernorm x=5x20000 dtype=f32", "rows/blocks"),
        // Without parameters, as a run.
        ("layernorm x=5x20000 dtype=f32 affine=none", "rows/runs"),
        (
            "groupnorm x=2x2x128x160 groups=2 affine=none dtype=bf16 act=silu",
            "rows/runs",
        ),
        ("rmsnorm x=5x20000 dtype=bf16 residual=stream", "rows/alone"),
        ("layernorm x=1x70000 dtype=f32 residual=stream", "rows/grid"),
        ("layernorm x=1x110000 residual=stream inplace=yes", "rows/grid"),
        (
            "layernorm x=5x10000 dtype=bf16 residual=stream pass=backward",
            "rows/apart",
        ),
        (
            "layernorm x=5x10000 dtype=bf16 residual=stream inplace=yes pass=backward",
            "rows/blocks",
        ),
        ("rmsnorm x=2x40000 dtype=bf16 param=bf16", "rows/blocks"),
        ("layernorm x=1x70000 dtype=f32", "rows/pieces"),
        ("rmsnorm x=1x80000 dtype=f32", "rows/pieces"),
        ("layernorm x=1x110000 dtype=f32 data=offset:1000", "rows/pieces"),
        ("rmsnorm x=1x230000 dtype=bf16 param=bf16 act=tanh", "rows/grid"),
        ("groupnorm x=3x8x50x50 groups=2 dtype=f32 act=silu", "rows/runs"),
        // Of runs shorter than a line of a warp.
        ("groupnorm x=3x625x4x4 groups=1 dtype=f32 act=silu", "rows/blocks"),
        ("groupnorm x=5x1500x4x4 groups=1 dtype=f32", "rows/blocks"),
        (
            "groupnorm x=3x8x50x50 groups=2 dtype=f32 act=silu residual=add",
            "rows/blocks",
        ),
        ("groupnorm x=5x6x64x64 groups=1 dtype=f32", "rows/runs"),
        ("groupnorm x=3x2x152x152 groups=2 dtype=f16", "rows/runs"),
        ("groupnorm x=1x6x112x112 groups=1 dtype=f32", "rows/runs"),
        ("groupnorm x=1x6x160x160 groups=1 dtype=f32", "rows/pieces"),
        ("layernorm x=5x10000 dtype=f32 pass=backward", "rows/apart"),
        ("layernorm x=5x10000 dtype=f32 inplace=yes pass=backward", "rows/blocks"),
        (
            "rmsnorm x=4x20000 dtype=bf16 act=gelu residual=add pass=backward",
            "rows/blocks",
        ),
    ];
    long_rows(&tiny(90), &problems);
}

#[test]
fn the_whole_chip_holds_rows() {
    let gpu = GpuProperties {
        sms: 6,
        shared_bytes_per_block: 100 << 10,
        shared_bytes_per_sm: 102 << 10,
        ..tiny(86)
    };
    let chip = [
        "layernorm x=5x20000 dtype=f32",
        "layernorm x=1x40000 dtype=f32 data=offset:1000",
        "rmsnorm x=4x40000 dtype=bf16 param=bf16",
        "layernorm x=3x40000 dtype=f16",
        "groupnorm x=2x1250x4x4 groups=1 dtype=f32",
        "groupnorm x=2x2888x4x4 groups=2 dtype=f16",
        "layernorm x=4x12000 dtype=f32 pass=backward",
        "layernorm x=3x12000 dtype=f32 affine=none pass=backward",
        "rmsnorm x=5x20000 dtype=bf16 param=bf16 residual=stream pass=backward",
        "layernorm x=4x20000 dtype=f16 pass=backward",
    ];
    long_rows(&gpu, &chip.map(|problem| (problem, "rows/chip")));
}

#[test]
fn without_clusters_the_grid_shares_rows() {
    let problems = [
        ("layernorm x=1x17000 dtype=f32", "rows/pieces"),
        ("layernorm x=7x20000 dtype=f32 act=relu", "rows/pieces"),
        ("rmsnorm x=2x20000 dtype=f32 residual=add", "rows/grid"),
        ("rmsnorm x=2x20000 dtype=f32 residual=stream", "rows/grid"),
        ("groupnorm x=3x4x128x128 groups=2 dtype=f32", "rows/pieces"),
        ("groupnorm x=3x2x152x152 groups=2 dtype=f16", "rows/chip"),
        ("groupnorm x=3x2x152x152 groups=2 dtype=f16 act=relu", "rows/block"),
    ];
    long_rows(&tiny(86), &problems);
}

#[test]
fn given_statistics_of_short_and_long_channels() {
    let problems = [
        "instancenorm x=2x3x4x4 dtype=bf16 affine=full pass=eval",
        "instancenorm x=2x2x64x64 dtype=f32 affine=full pass=eval",
        "instancenorm x=2x3x9x9 dtype=f32 pass=eval act=relu",
        "instancenorm x=1x2x128x128 dtype=f32 affine=full pass=eval act=silu",
        "batchnorm x=3x2x16x16 dtype=f16 param=f16 pass=eval residual=add act=relu",
        "batchnorm x=5x70x1x3 dtype=bf16 pass=eval residual=add",
        "batchnorm x=2x2x100x150 dtype=f32 pass=eval",
    ];
    let problems = problems.map(|problem| (problem, "rows/each"));
    long_rows(&tiny(90), &problems);
}

#[test]
fn gradients_of_rows() {
    let columns = [1, 8, 16, 31, 32, 64, 100, 128, 512, 1000, 1024, 2048];
    let problems = columns.iter().flat_map(|columns| {
        let rows = (4096 / columns).clamp(2, 200);
        ["f32", "bf16", "f16"].map(|dtype| {
            let epilogue = [
                "",
                "residual=add act=relu ",
                "residual=stream act=silu ",
                "residual=stream ",
            ][columns / 8 % 4];
            let op = if columns % 3 == 0 { "rmsnorm" } else { "layernorm" };
            let param = if columns % 5 == 0 { dtype } else { "f32" };
            format!("{op} x={rows}x{columns} dtype={dtype} param={param} {epilogue}pass=backward seed=6")
        })
    });
    let cases = parsed(problems.chain(["layernorm x=0x5 pass=backward".into()]));
    for gpu in [known("h200"), tiny(80)] {
        for mut engine in interpreters(&gpu) {
            let report = check(&mut engine, "gradients", &cases);
            assert_eq!(report.skipped(), 0, "{report}");
        }
    }
}

#[test]
fn gradients_of_long_rows_and_of_runs_in_the_interpreter() {
    let problems = [
        "layernorm x=5x9000",
        "layernorm x=7x20001 dtype=bf16 act=gelu residual=add",
        "rmsnorm x=3x40000 dtype=f16 param=f16",
        "layernorm x=3x20001 residual=stream",
        "layernorm x=2x8200 affine=none act=relu residual=stream",
        "rmsnorm x=2x8200 dtype=bf16 affine=none residual=stream",
        "groupnorm x=2x6x7x7 groups=3 act=silu residual=add",
        "groupnorm x=3x8x40x40 groups=2 dtype=bf16",
        "groupnorm x=2x3x100x100 groups=1",
        "groupnorm x=1x600x2x2 groups=1 dtype=f16",
        "instancenorm x=9x5x4x4",
        "instancenorm x=2x3x80x80 dtype=bf16 affine=none",
        "instancenorm x=70x4x2x2 act=relu",
    ];
    let passes = problems.iter().flat_map(|problem| {
        let given = problem.starts_with("instancenorm");
        let passes: &[&str] = if given {
            &["backward", "backward_eval"]
        } else {
            &["backward"]
        };
        passes.iter().map(move |pass| format!("{problem} pass={pass} seed=8"))
    });
    let cases = parsed(passes);
    for gpu in [known("h200"), tiny(80)] {
        for mut engine in interpreters(&gpu) {
            let report = check(&mut engine, "sweeps", &cases);
            assert_eq!(report.skipped(), 0, "{report}");
        }
    }
}

#[test]
fn what_has_no_kernel_is_skipped_with_its_reason_and_never_passed() {
    let problems = [
        "groupnorm x=1x200000x1x2 groups=2 layout=nhwc pass=train",
        "groupnorm x=4x8x5x5 groups=2 dtype=f64 pass=backward",
    ];
    let cases = parsed(problems.map(String::from));
    let [mut engine, _] = interpreters(&known("h200"));
    let report = run_suite(&mut engine, &cases, |case| {
        assert!(!case.passed && case.skipped().is_some(), "{case}");
        assert!(case.to_string().starts_with("skip"), "{case}");
    });
    assert_eq!((report.cases, report.skipped(), report.right()), (2, 2, 0), "{report}");
    assert!(
        report
            .skipped
            .keys()
            .any(|reason| reason.contains("parameters of a group side by side")),
        "{report}"
    );
}

#[test]
fn suites_on_every_gpu() {
    for device in common::gpus("conformance") {
        let engine = CudaEngine::new(device).expect("a stream");
        for start in [Start::Aligned, Start::Misaligned] {
            for suite in ["smoke", "shapes", "adversarial", "exact", "sync", "pairwise"] {
                check(
                    &mut engine.clone().starting(start),
                    suite,
                    &cases(suite).collect::<Vec<_>>(),
                );
            }
        }
    }
}
