//! A few of every kernel on every way through it, for tools that watch memory (`cargo xtask miri`, `sanitize` and `valgrind`):
//! small, and compared with the oracle. Tensors begin between vectors' boundaries; see `engine::guard`.

#[cfg(miri)]
mod plain;

use std::collections::BTreeSet;

use isonorm::{CpuProperties, Device, Isa, Plan};
use isonorm_check::Case;
#[cfg(not(miri))]
use isonorm_check::{CpuEngine, run_case};

const DTYPES: [&str; 4] = ["f32", "bf16", "f64", "f16 param=f16"];
const PASSES: [&str; 5] = ["train", "eval", "eval inplace=yes", "backward", "backward inplace=yes"];
/// No activation and ReLU are loops of their own; the others go in stages.
const ACTIVATIONS: [&str; 6] = [
    "none",
    "gelu residual=add",
    "relu",
    "none residual=add",
    "silu",
    "relu residual=add",
];

/// Groups of each form that a kernel treats by itself, in shapes that are no multiples of anything.
#[cfg(not(miri))]
const PROBLEMS: [&str; 19] = [
    // Rows with parameters of their own elements: short ones side by side, many, long ones of several chunks.
    "layernorm x=5x70",
    "layernorm x=35x13 affine=none",
    "rmsnorm x=3x599",
    // Rows with runs of elements that share parameters.
    "groupnorm x=2x6x11 groups=3",
    "instancenorm x=2x3x37 affine=full",
    "batchnorm x=3x2x131",
    // Columns, by column and by row, joined and not.
    "batchnorm x=9x5",
    "batchnorm x=4x3x17 layout=nlc",
    "batchnorm x=67x259",
    "batchnorm x=3x2x7",
    "groupnorm x=2x6x9 groups=3 layout=nlc",
    "instancenorm x=3x4x10 affine=full layout=nlc",
    "layernorm x=2x6x7 over=channels",
    "rmsnorm x=2x5x7 over=channels",
    // Groups that threads share.
    "layernorm x=2x70001",
    "batchnorm x=2x2x40001",
    "groupnorm x=1x2x40001 groups=1",
    "batchnorm x=9001x9",
    "instancenorm x=2x3x40001 affine=full layout=nlc",
];

/// The same forms, for Miri takes a millisecond for what takes a microsecond. Its plans have shorter blocks and parts.
#[cfg(miri)]
const PROBLEMS: [&str; 19] = [
    "layernorm x=3x67",
    "layernorm x=33x2 affine=none",
    "rmsnorm x=2x65",
    "groupnorm x=2x4x5 groups=2",
    "instancenorm x=2x2x9 affine=full",
    "batchnorm x=2x2x129",
    "batchnorm x=5x3",
    "batchnorm x=2x2x5 layout=nlc",
    "batchnorm x=2x259",
    "batchnorm x=2x2x3",
    "groupnorm x=2x4x3 groups=2 layout=nlc",
    "instancenorm x=2x2x5 affine=full layout=nlc",
    "layernorm x=2x3x3 over=channels",
    "rmsnorm x=2x3x5 over=channels",
    "layernorm x=2x131",
    "batchnorm x=2x1x130",
    "groupnorm x=1x2x65 groups=1",
    "batchnorm x=70x9",
    "instancenorm x=1x9x70 affine=full layout=nlc",
];

/// Types, activations and passes in turn, so that each meets each other in some problem; all passes of each problem.
fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for (i, problem) in PROBLEMS.into_iter().enumerate() {
        let evaluates = problem.starts_with("batch") || problem.starts_with("instance");
        let given = ["backward_eval", "backward_eval inplace=yes"];
        let passes = PASSES.iter().chain(given.iter().filter(|_| evaluates));
        for (j, pass) in passes.enumerate() {
            if cfg!(miri) && (i + j) % 3 == 0 {
                continue;
            }
            let (dtype, act) = (DTYPES[(i + j) % 4], ACTIVATIONS[(i / 4 + j) % 6]);
            let text = format!("{problem} dtype={dtype} act={act} pass={pass} seed={j}");
            cases.push(text.parse().expect("a problem that can be computed"));
        }
    }
    cases
}

/// Whether the kernels that a test is about were among those that ran.
fn assert_ran(names: &BTreeSet<&str>, expected: &[&str]) {
    assert!(expected.iter().all(|name| names.contains(name)), "{names:?}");
}

/// Every case with these threads and caches, against the oracle.
#[cfg(not(miri))]
fn check((threads, l2_bytes, llc_bytes): (usize, usize, usize), expected: &[&str]) {
    let properties = CpuProperties {
        threads,
        l2_bytes,
        llc_bytes,
        isa: Isa::best(),
    };
    let mut engine = CpuEngine::new(Device::cpu_with_threads(threads)).planning_for(properties);
    let mut kernels = BTreeSet::new();
    for case in cases() {
        // Said beforehand, for a tool that finds something ends the process.
        println!("{case}");
        kernels.insert(Plan::new(&case.desc, &properties).expect("checked").name());
        let report = run_case(&mut engine, &case);
        assert!(report.passed, "{report}");
    }
    assert_ran(&kernels, expected);
}

#[cfg(not(miri))]
#[test]
fn one_thread() {
    check((1, 1 << 22, 1 << 30), &["rows/resident", "columns/resident"]);
}

#[cfg(not(miri))]
#[test]
fn one_thread_past_the_caches() {
    check((1, 1 << 10, 1), &["rows/streaming", "columns/streaming"]);
}

#[cfg(not(miri))]
#[test]
fn threads_that_share_groups() {
    check((3, 1 << 10, 1 << 30), &["rows/split", "columns/split"]);
}

#[cfg(not(miri))]
#[test]
fn threads_that_share_groups_past_the_caches() {
    check((3, 1 << 22, 1), &["rows/split", "columns/split"]);
}

/// Every case once, with one thread or three and results past the caches or not. What comes out is not looked at, but for
/// being numbers: an oracle would take Miri longer than the engine.
#[cfg(miri)]
#[test]
fn every_kernel() {
    let device = Device::cpu_with_threads(2);
    let mut kernels = BTreeSet::new();
    for (i, case) in cases().iter().enumerate() {
        println!("{case}");
        let properties = CpuProperties {
            threads: if i % 3 == 0 { 1 } else { 2 },
            l2_bytes: 1 << 20,
            llc_bytes: if i % 2 == 0 { 1 } else { 1 << 30 },
            isa: Isa::best(),
        };
        let plan = Plan::new(&case.desc, &properties).expect("checked");
        kernels.insert(plan.name());
        let result = plain::run(&device, &plan);
        assert!(result.to_f64().iter().all(|v| v.is_finite()), "{case}");
    }
    let all = ["rows/resident", "rows/split", "columns/resident", "columns/split"];
    assert_ran(&kernels, &all);
}
