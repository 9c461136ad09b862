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

/// Whatever is computed ahead, by how many threads and for how many engines: the reports are the same, and come case by case in order.
#[test]
fn ahead_or_not() {
    let all = cases("smoke");
    let (mut first, mut second) = (three_threads(), CpuEngine::new(Device::cpu_with_threads(1)));
    let (mut in_turn, mut expected) = (Vec::new(), Vec::new());
    for engine in [&mut first, &mut second] {
        let mut reports = Vec::new();
        expected.push(run_suite(engine, &all, |report| reports.push(report.to_string())).to_string());
        in_turn.push(reports);
    }
    for threads in [0, 1, 3, all.len() + 2] {
        for engines in 1..=2 {
            let mut ahead = Vec::new();
            let mut both: [&mut dyn Engine; 2] = [&mut first, &mut second];
            let reports = run_suite_ahead(&mut both[..engines], &all, threads, |report| {
                ahead.push(report.to_string())
            });
            let reports: Vec<_> = reports.iter().map(ToString::to_string).collect();
            assert_eq!(reports, expected[..engines], "{threads} threads");
            let of_case = |i: usize| in_turn[..engines].iter().map(move |of: &Vec<String>| of[i].clone());
            let in_order = match threads {
                0 => in_turn[..engines].concat(),
                _ => (0..all.len()).flat_map(of_case).collect(),
            };
            assert_eq!(ahead, in_order, "{threads} threads");
        }
    }
    let none = run_suite_ahead(&mut [&mut first], &[], 2, |_| panic!("there is no case"));
    assert_eq!(none[0].cases, 0);
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
