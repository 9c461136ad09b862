//! Every suite on the CPU engine.

use isonorm::Device;
use isonorm_check::{Case, CpuEngine, Engine, run_suite, run_suite_ahead, suites};

fn cases(suite: &str) -> Vec<Case> {
    suites()
        .into_iter()
        .find(|s| s.name == suite)
        .map(|s| s.cases)
        .expect("a suite of this name")
}

fn check(engine: &mut dyn Engine, suite: &str) {
    let report = run_suite(engine, &cases(suite), |_| {});
    if let Some(worst) = &report.worst {
        println!("{suite}: {worst}");
    }
    assert!(report.passed(), "{suite}: {report}");
}

/// With threads that share the work unevenly.
fn three_threads() -> CpuEngine {
    CpuEngine::new(Device::cpu_with_threads(3))
}

/// Whatever is computed ahead, and by how many threads, the report is the same, and comes case by case in order.
#[test]
fn ahead_or_not() {
    let all = cases("smoke");
    let mut engine = three_threads();
    let mut in_turn = Vec::new();
    let expected = run_suite(&mut engine, &all, |report| in_turn.push(report.to_string()));
    for threads in [0, 1, 3, all.len() + 2] {
        let mut ahead = Vec::new();
        let report = run_suite_ahead(&mut engine, &all, threads, |report| ahead.push(report.to_string()));
        assert_eq!(ahead, in_turn, "{threads} threads");
        assert_eq!(report.to_string(), expected.to_string(), "{threads} threads");
    }
    let none = run_suite_ahead(&mut engine, &[], 2, |_| panic!("there is no case"));
    assert_eq!(none.cases, 0);
}

#[test]
fn smoke_on_every_isa() {
    CpuEngine::all().iter_mut().for_each(|engine| check(engine, "smoke"));
}

#[test]
fn shapes_on_every_isa() {
    CpuEngine::all().iter_mut().for_each(|engine| check(engine, "shapes"));
}

#[test]
fn segments() {
    check(&mut three_threads(), "segments");
}

#[test]
fn adversarial() {
    check(&mut three_threads(), "adversarial");
}

#[test]
fn exact() {
    check(&mut three_threads(), "exact");
}

#[test]
fn pairwise() {
    check(&mut three_threads(), "pairwise");
}

#[test]
fn combinations() {
    check(&mut three_threads(), "combinations");
}

#[test]
fn sync_on_every_isa() {
    CpuEngine::all().iter_mut().for_each(|engine| check(engine, "sync"));
    check(&mut three_threads(), "sync");
}

#[test]
fn large() {
    check(&mut three_threads(), "large");
}
