//! A ReLU behind a residual: the mask that the forward pass writes is what of y is not 0, and with the mask, or with y, the backward pass gets
//! what it gets with the residual.

mod common;

use isonorm::cuda::Interpreter;
use isonorm::{DType, Device, Error, GpuPlan, GpuProperties, NormDesc, Pass, Residual, TensorData};
use isonorm_check::data::{backward_inputs, forward_inputs, mask};
use isonorm_check::{BackwardInputs, Case, CpuEngine, CudaEngine, Engine, InterpreterEngine, Output};

/// The CPU, interpreters of GPUs with and without strips, and every GPU.
fn engines(what: &str) -> Vec<Box<dyn Engine>> {
    let small = |name| GpuProperties {
        sms: 4,
        ..GpuProperties::known(name).expect("a known GPU")
    };
    let mut engines: Vec<Box<dyn Engine>> = vec![Box::new(CpuEngine::new(Device::cpu()))];
    for name in ["h200", "a100"] {
        engines.push(Box::new(InterpreterEngine::new(Interpreter::new(small(name)))));
    }
    for gpu in common::gpus(what) {
        engines.push(Box::new(CudaEngine::new(gpu).expect("a stream")));
    }
    engines
}

fn problems() -> impl Iterator<Item = Case> {
    let shapes = [
        "batchnorm x=6x16x4x6 layout=nhwc",
        "batchnorm x=6x4x4x8",
        "batchnorm x=300x64",
        "batchnorm x=1x8x16",
        "batchnorm x=3x8x4x4x2 layout=ndhwc affine=none",
    ];
    let of_shape = |shape| {
        ["f32", "bf16", "f16 param=f16"]
            .map(|dtype| format!("{shape} dtype={dtype} act=relu residual=masked data=offset:3 seed=5"))
    };
    shapes
        .into_iter()
        .flat_map(of_shape)
        .map(|problem| problem.parse().expect("a problem"))
}

#[test]
fn what_is_written_is_what_is_not_zero() {
    for case in problems() {
        for engine in &mut engines("masks") {
            let outputs = engine.forward(&case.desc, &forward_inputs(&case)).expect("valid");
            let of = |output| outputs.get(output).expect("an output").to_f64();
            let expected: Vec<f64> = of(Output::Y).iter().map(|y| f64::from(u8::from(*y != 0.0))).collect();
            assert_eq!(of(Output::Mask), expected, "{case} on {}", engine.name());
            assert!(expected.contains(&0.0) && expected.contains(&1.0));
        }
    }
}

#[test]
fn gradients_are_those_with_the_residual() {
    for case in problems() {
        for pass in [Pass::Backward, Pass::BackwardEval] {
            for residual in [Residual::Masked, Residual::Result] {
                let desc = case.desc.pass(pass).residual(residual);
                for engine in &mut engines("masks") {
                    gradients(engine.as_mut(), &Case { desc, ..case });
                }
            }
        }
    }
}

/// Of shapes that no mask is for: rows of memory of an odd length.
#[test]
fn gradients_with_the_result_of_any_shape() {
    let shapes = [
        "batchnorm x=5x7x3x3",
        "batchnorm x=3x5x7 dtype=bf16",
        "batchnorm x=9x3 dtype=f16",
        "batchnorm x=4x6x7x7 layout=nhwc",
        "batchnorm x=2x1x17 affine=none",
        "batchnorm x=40x8 inplace=yes",
    ];
    for shape in shapes {
        for pass in ["backward", "backward_eval"] {
            let problem = format!("{shape} act=relu residual=result pass={pass} data=offset:3 seed=6");
            for engine in &mut engines("results") {
                gradients(engine.as_mut(), &problem.parse().expect("a problem"));
            }
        }
    }
}

fn gradients(engine: &mut dyn Engine, case: &Case) {
    let added = Case {
        desc: case.desc.residual(Residual::Add),
        ..*case
    };
    let inputs = backward_inputs(&added);
    let expected = engine.backward(&added.desc, &inputs).expect("valid");
    // Where the gradient of the residual is that of y.
    let passed = expected.get(Output::Dresidual).expect("an output").to_f64();
    assert!(passed.contains(&0.0) && passed.iter().any(|g| *g != 0.0), "{case}");
    let y: Vec<f64> = passed.iter().map(|g| g.abs()).collect();
    let is_masked = case.desc.has_mask();
    let inputs = BackwardInputs {
        residual: None,
        bias: None,
        mask: is_masked.then(|| mask::from_bits(&case.desc, |i| passed[i] != 0.0)),
        result: (!is_masked).then(|| TensorData::from_f64(case.desc.get_dtype(), &y)),
        ..inputs
    };
    let got = engine.backward(&case.desc, &inputs).expect("valid");
    for (output, expected) in &expected.tensors {
        let (got, expected) = (got.get(*output).expect("an output").to_f64(), expected.to_f64());
        let largest = expected.iter().fold(0.0, |largest: f64, v| largest.max(v.abs()));
        let off = got
            .iter()
            .zip(&expected)
            .map(|(a, b)| (a - b).abs())
            .fold(0.0, f64::max);
        // The same numbers, summed in another order; and, of 16 bits, rounded to their neighbour.
        let share = if case.desc.get_dtype() == DType::F32 {
            1e-5
        } else {
            1e-2
        };
        assert!(
            off <= share * largest,
            "{output} of {case} on {}: {off:e} of {largest:e}",
            engine.name()
        );
        if *output == Output::Dresidual {
            assert_eq!(got, expected, "{case} on {}", engine.name());
        }
    }
}

#[test]
fn what_cannot_have_a_mask_says_why() {
    let of = |problem: &str| problem.parse::<NormDesc>().and_then(|desc| desc.check().map(|()| desc));
    let refused = |problem: &str| match of(problem) {
        Err(Error::InvalidDescription { reason, .. }) => reason,
        other => panic!("{problem}: {other:?}"),
    };
    assert_eq!(
        refused("layernorm x=4x8 act=relu residual=masked"),
        "residual=masked is for batchnorm with act=relu"
    );
    assert_eq!(
        refused("batchnorm x=4x8x4 act=silu residual=masked"),
        "residual=masked is for batchnorm with act=relu"
    );
    assert_eq!(
        refused("groupnorm x=4x8x4 groups=2 act=relu residual=result"),
        "residual=result is for batchnorm with act=relu"
    );
    assert_eq!(
        refused("batchnorm x=4x8x4 act=tanh residual=result"),
        "residual=result is for batchnorm with act=relu"
    );
    assert_eq!(
        refused("batchnorm x=4x8x7x7 dtype=bf16 act=relu residual=masked"),
        "residual=masked needs channels of a sample of a multiple of 16 bytes, got 98 (x is 4x8x7x7 of bf16)"
    );
    assert_eq!(
        refused("batchnorm x=4x6x7x7 layout=nhwc act=relu residual=masked"),
        "residual=masked needs rows of channels of a multiple of 16 bytes, got 24 (x is 4x6x7x7 of f32)"
    );
}

#[test]
fn a_mask_takes_a_sixteenth_and_less_is_moved() {
    let gpu = std::sync::Arc::new(GpuProperties::known("h200").expect("a known GPU"));
    let moved = |problem: &str| {
        let desc: NormDesc = problem.parse().expect("a problem");
        let plan = GpuPlan::new(&desc, &gpu).expect("valid");
        plan.check().expect("there are kernels");
        (desc.mask_elements(), plan.traffic().compulsory_bytes)
    };
    let tensor = 64 * 256 * 56 * 56 * 2;
    for layout in ["nchw", "nhwc"] {
        let of = |residual: &str, pass: &str| {
            moved(&format!(
                "batchnorm x=64x256x56x56 layout={layout} dtype=bf16 act=relu residual={residual} pass={pass}"
            ))
        };
        let (elements, masked) = of("masked", "backward");
        assert_eq!(elements * 2, tensor / 16);
        assert_eq!(of("add", "backward").1 - masked, (tensor - tensor / 16) as u64);
        assert_eq!(of("masked", "train").1 - of("add", "train").1, (tensor / 16) as u64);
        // The result takes the residual's place.
        assert_eq!(of("result", "backward").1, of("add", "backward").1);
        assert_eq!(of("result", "train").1, of("add", "train").1);
    }
}
