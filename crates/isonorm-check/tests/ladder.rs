//! The ladder: published kernels, in the interpreter. What they compute, what they move, and where their algorithms lose digits.

use std::sync::Arc;

use isonorm::cuda::Interpreter;
use isonorm::{Forward, GpuPlan, GpuProperties, NormDesc, Rung, Variance};
use isonorm_check::{Case, InterpreterEngine, Start, run_case, run_suite, suites};

fn gpu() -> GpuProperties {
    GpuProperties::known("h200").expect("a known GPU")
}

fn cases() -> Vec<Case> {
    let ladder = suites().into_iter().find(|suite| suite.name == "ladder");
    ladder.expect("it is there").cases
}

#[test]
fn rungs_are_as_exact_as_their_algorithms() {
    for (seed, start) in [(0, Start::Aligned), (1, Start::Misaligned), (2, Start::Aligned)] {
        let mut engine = InterpreterEngine::new(Interpreter::new(gpu()).seed(seed)).starting(start);
        let report = run_suite(&mut engine, &cases(), |_| {});
        println!("{report}");
        assert!(report.passed(), "{report}");
        assert!(report.right() > 60, "{report}");
    }
}

#[test]
fn every_rung_has_cases() {
    for rung in Rung::ALL {
        assert_eq!(Rung::named(rung.name()), Some(rung));
        let of_rung = cases().into_iter().filter(|case| case.rung == Some(rung)).count();
        assert!(of_rung >= 3, "{rung} has {of_rung}");
    }
}

#[test]
fn no_plan_takes_a_rung() {
    for (name, gpu) in GpuProperties::KNOWN {
        let gpu = Arc::new(gpu);
        for case in suites().iter().flat_map(|suite| &suite.cases) {
            let plans = GpuPlan::alternatives(&case.desc, &gpu).into_iter().flatten();
            for kernel in plans.flat_map(|plan| [plan.kernels(), plan.misaligned_kernels()].concat()) {
                assert!(!kernel.family.starts_with("ladder"), "{case} on {name}: {kernel:?}");
            }
        }
    }
}

/// LayerNorm of rows of numbers that count on, by a rung, or as it is planned.
fn counting(rung: Option<Rung>, first: usize, columns: usize) -> Vec<f32> {
    let interpreter = Interpreter::new(gpu());
    let desc = Rung::LnNaive.desc([1, columns]);
    let plan = match rung {
        Some(rung) => interpreter.rung(rung, &desc),
        None => interpreter.plan(&desc),
    };
    let x: Vec<f32> = (first..first + columns).map(|i| i as f32).collect();
    let mut y = vec![f32::NAN; columns];
    let done = interpreter.forward(&plan.expect("a plan"), Forward::new(&x[..], &mut y[..]));
    done.unwrap_or_else(|error| panic!("{rung:?}: {error}"));
    y
}

/// The published input of LayerNorm's ladder is 1, 2, 3, … in rows of 1024: the last row has a variance of 87381.25, of which
/// E[x²] − E[x]² makes 131072 or 65536 in `f32`, by the order of summation.
#[test]
fn three_rungs_are_wrong_on_their_own_benchmark() {
    let (columns, last) = (1024, 1023 * 1024 + 1);
    let deviation = |variance: f64| (variance + 1e-6).sqrt();
    let right = 511.5 / deviation((1024.0 * 1024.0 - 1.0) / 12.0);
    let end = |rung| f64::from(counting(rung, last, columns)[columns - 1]);
    for rung in Rung::ALL.into_iter().filter(|rung| rung.is_layer_norm()) {
        let got = end(Some(rung));
        match rung.variance() {
            Variance::Squares => {
                let found = if rung == Rung::LnVec4 { 65_536.0 } else { 131_072.0 };
                let wrong = 511.5 / deviation(found);
                assert!((got - wrong).abs() < 0.01, "{rung}: {got}, expected {wrong}");
                // The first row has nothing to lose.
                let first = f64::from(counting(Some(rung), 1, columns)[columns - 1]);
                assert!((first - right).abs() < 1e-4, "{rung}: {first}, expected {right}");
            }
            // The mean of its sum, one by one, is off by a quarter; the distances are from that.
            _ => assert!((got - right).abs() < 3e-3, "{rung}: {got}, expected {right}"),
        }
    }
    let ours = end(None);
    assert!((ours - right).abs() < 1e-6, "{ours}, expected {right}");
}

/// What a rung is said to move is what its threads ask for.
#[test]
fn transfers_are_counted() {
    let interpreter = Interpreter::new(gpu());
    for rung in Rung::ALL {
        let desc: NormDesc = match rung {
            Rung::BnTileNc => rung.desc([70, 40]),
            _ if rung.is_layer_norm() => rung.desc([5, 301]),
            _ => rung.desc([3, 5, 7, 11]),
        };
        let mut engine = InterpreterEngine::new(interpreter.clone());
        let report = run_case(&mut engine, &Case::new(desc).rung(rung));
        assert!(report.passed, "{report}");
        let moved = engine.moved();
        let plan = interpreter.rung(rung, &desc).expect("a rung");
        let tensor = (plan.geometry().elements() * size_of::<f32>()) as u64;
        let of = |names: [&str; 2]| {
            let named = moved.iter().filter(|m| names.contains(&&m.argument[..]));
            named.fold((0, 0), |(r, w), m| (r + m.read_bytes, w + m.written_bytes))
        };
        let (read, written) = (of(["x", "dy"]).0, of(["y", "dx"]).1);
        let (reads, writes) = rung.transfers();
        assert_eq!((read, written), (reads * tensor, writes * tensor), "{rung}: {moved:?}");
        let traffic = plan.traffic();
        let least = if desc.get_pass().is_backward() { 3 } else { 2 };
        assert_eq!(
            traffic.moved_bytes - traffic.compulsory_bytes,
            (reads + writes - least) * tensor,
            "{rung}"
        );
    }
}
