//! Tolerances are tight: an engine with a mistake fails, the same engine without one passes.

mod reference;

use isonorm_check::{Case, run_case, suites};
use reference::{Mistake, Reference};

fn cases(names: &[&str]) -> Vec<Case> {
    let chosen = suites().into_iter().filter(|s| names.contains(&s.name));
    chosen.flat_map(|s| s.cases).collect()
}

/// Whether the runner catches this mistake in one of these cases.
fn is_caught(mistake: Mistake, cases: &[&str]) -> bool {
    let mut engine = Reference(mistake);
    cases.iter().any(|case| {
        let case = case.parse().expect("a valid case");
        let without = run_case(&mut Reference(Mistake::None), &case);
        assert!(without.passed, "{without}");
        !run_case(&mut engine, &case).passed
    })
}

#[test]
fn without_a_mistake_everything_passes() {
    let mut engine = Reference(Mistake::None);
    for case in cases(&["smoke", "segments", "adversarial", "exact", "pairwise"]) {
        let report = run_case(&mut engine, &case);
        assert!(report.passed, "{report}");
    }
}

/// Each with the case that it is made for; the variance's divisor at a thousand elements, the narrow sums at few hundred.
#[test]
fn every_mistake_is_caught_where_it_shows() {
    use Mistake::*;
    for (mistake, cases) in [
        (
            UnbiasedVariance,
            &["layernorm x=4x1000", "batchnorm x=25x3x40", "batchnorm x=1000x3"][..],
        ),
        (MeanOfSquares, &["layernorm x=4x1000 data=offset:1e3"]),
        (MeanOfSquares, &["batchnorm x=25x3x40 data=offset:100"]),
        (NoEps, &["layernorm x=4x1000 data=small"]),
        (NoEps, &["rmsnorm x=4x1000 data=small"]),
        (NoEps, &["layernorm x=4x256 data=exact"]),
        (NarrowMean, &["layernorm x=4x1000 data=offset:1e6"]),
        (NarrowMean, &["batchnorm x=25x3x40 data=offset:1e3 dtype=f64"]),
        (SumsInBf16, &["layernorm x=4x300 dtype=bf16"]),
        (SumsInBf16, &["layernorm x=4x300 dtype=bf16 pass=backward"]),
        (SumsInBf16, &["batchnorm x=4x3x20 dtype=bf16 pass=backward"]),
        (PlainSums, &["layernorm x=4x1000 data=offset:1e3"]),
        (PlainSums, &["rmsnorm x=1x500000"]),
        (FirstIsShift, &["batchnorm x=16x6x40 layout=ncl dtype=f64 data=spike"]),
        (TailDropped, &["layernorm x=4x1000", "groupnorm x=2x6x50 groups=2"]),
        (
            BiasedRunningVariance,
            &["batchnorm x=25x3x40", "instancenorm x=2x3x500"],
        ),
        (MomentumSwapped, &["batchnorm x=25x3x40"]),
        (
            NextParameter,
            &["batchnorm x=4x3x20", "batchnorm x=4x3x20 pass=backward"],
        ),
        (WrongGelu, &["layernorm x=4x100 act=gelu"]),
        (WrongGelu, &["layernorm x=4x100 act=gelu pass=backward"]),
        (ResidualLast, &["layernorm x=4x100 act=relu residual=add"]),
        (StreamUnrounded, &["rmsnorm x=4x100 dtype=bf16 residual=stream"]),
        (StreamIgnored, &["layernorm x=4x100 residual=stream"]),
        (NoDstream, &["rmsnorm x=4x100 dtype=f16 residual=stream pass=backward"]),
        (
            ReluAtZero,
            &["layernorm x=4x101 affine=none act=relu pass=backward data=exact"],
        ),
        (MaskSwapped, &["batchnorm x=4x6x16 act=relu residual=masked"]),
        (
            MaskSwapped,
            &["batchnorm x=4x6x16 act=relu residual=masked pass=backward"],
        ),
        (
            MaskSwapped,
            &["batchnorm x=4x6x16 act=relu residual=result pass=backward"],
        ),
        (MaskWithoutResidual, &["batchnorm x=4x6x16 act=relu residual=masked"]),
        (NoXhatTerm, &["batchnorm x=25x3x40 pass=backward"]),
        (NoMeanTerm, &["layernorm x=4x1000 pass=backward"]),
        (MeansUnweighted, &["batchnorm x=25x3x40 pass=backward_eval means=told"]),
        (MeansIgnored, &["batchnorm x=25x3x40 pass=backward_eval means=told"]),
        (UnbiasedVariance, &["batchnorm x=25x3x40 affine=none pass=moments"]),
        (EvalAsTrain, &["batchnorm x=25x3x40 pass=backward_eval"]),
        (GradientPastActivation, &["batchnorm x=25x3x40 act=silu pass=backward"]),
        (Truncated, &["layernorm x=4x100 dtype=bf16"]),
        (
            Flushed,
            &["batchnorm x=9x3 data=denormal dtype=f16 eps=1.0 pass=eval affine=none"],
        ),
        (Flushed, &["rmsnorm x=4x100 data=denormal affine=none eps=1.0"]),
        (
            Unwritten,
            &[
                "layernorm x=4x100",
                "layernorm x=4x100 pass=backward",
                "layernorm x=4x100 data=nan",
            ],
        ),
        (NanSpreads, &["layernorm x=4x100 data=nan"]),
    ] {
        assert!(is_caught(mistake, cases), "{mistake:?} goes unnoticed in {cases:?}");
    }
}

/// The plain suites catch every mistake, too.
#[test]
fn every_mistake_is_caught_by_the_suites() {
    use Mistake::*;
    let cases = cases(&["smoke", "adversarial", "exact"]);
    for mistake in [
        UnbiasedVariance,
        MeanOfSquares,
        NoEps,
        NarrowMean,
        SumsInBf16,
        PlainSums,
        FirstIsShift,
        TailDropped,
        BiasedRunningVariance,
        MomentumSwapped,
        NextParameter,
        WrongGelu,
        ResidualLast,
        StreamUnrounded,
        StreamIgnored,
        NoDstream,
        ReluAtZero,
        MaskSwapped,
        MaskWithoutResidual,
        NoXhatTerm,
        NoMeanTerm,
        MeansUnweighted,
        MeansIgnored,
        EvalAsTrain,
        GradientPastActivation,
        Truncated,
        Flushed,
        Unwritten,
        NanSpreads,
    ] {
        let mut engine = Reference(mistake);
        let caught = cases.iter().any(|case| !run_case(&mut engine, case).passed);
        assert!(caught, "{mistake:?} goes unnoticed");
    }
}
