//! Forward saves, backward uses: the precision of the saved mean.

use isonorm::{Device, Pass, TensorData};
use isonorm_check::data::{backward_inputs, forward_inputs};
use isonorm_check::{BackwardInputs, Case, CpuEngine, Engine, Output, oracle};

/// The largest error of dx through an engine's own saved statistics, in deviations of dx.
fn round_trip(case: &str) -> f64 {
    let case: Case = case.parse().expect("a valid case");
    let mut engine = CpuEngine::new(Device::cpu());
    let train = Case {
        desc: case.desc.pass(Pass::Train),
        ..case
    };
    let saved = engine
        .forward(&train.desc, &forward_inputs(&train))
        .expect("valid inputs");
    let of = |output| saved.get(output).cloned();
    let inputs = BackwardInputs {
        mean: of(Output::Mean),
        rstd: of(Output::Rstd),
        ..backward_inputs(&case)
    };
    let got = engine.backward(&case.desc, &inputs).expect("valid inputs");
    let got = got.get(Output::Dx).map(TensorData::to_f64).expect("backward has dx");
    let truth = oracle::backward(&case.desc, &inputs).dx;
    let size = (truth.iter().map(|v| v * v).sum::<f64>() / truth.len() as f64).sqrt();
    got.iter()
        .zip(&truth)
        .fold(0f64, |worst, (a, b)| worst.max((a - b).abs()))
        / size
}

#[test]
fn a_mean_of_a_million_deviations_survives_in_f64() {
    for problem in [
        "batchnorm x=16x4x40 act=silu",
        "batchnorm x=600x40 act=silu",
        "layernorm x=6x1000 act=tanh",
        "groupnorm x=3x12x50 groups=3 layout=nlc act=gelu",
    ] {
        let wide = round_trip(&format!("{problem} pass=backward data=offset:1e6 mean=f64"));
        let narrow = round_trip(&format!("{problem} pass=backward data=offset:1e6"));
        // The mean's half unit in the last place is 2⁻⁵ here, and x has no finer steps than twice that.
        assert!(wide < 1e-5, "{problem}: {wide:e}");
        assert!(narrow < 0.3, "{problem}: {narrow:e}");
        assert!(wide < narrow / 100.0, "{problem}: {wide:e} and {narrow:e}");
    }
}
