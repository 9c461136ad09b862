//! Gradients against central differences, in `f64`, forward and backward through the CPU engine.
//!
//! The loss is L = Σ cᵢ·yᵢ with random c, so dy = c. A central difference D(h) = (L(θ + h) − L(θ − h)) / 2h is off by
//! h²·L‴/6 + …, which D(2h) is four times: (4·D(h) − D(2h))/3 is closer, and |D(h) − D(2h)| bounds what it corrects, and
//! grows where a kink lies between. The roundings of y, a few hundred units of 2⁻⁵³ of Σ|cᵢ·yᵢ|, are divided by h: with
//! h = 2⁻¹³ they come to about 10⁻¹⁰.

use isonorm::{Activation, Affine, DType, Device, Layout, Norm, NormDesc, Over, Pass, TensorData};
use isonorm_check::data::{backward_inputs, forward_inputs};
use isonorm_check::{BackwardInputs, Case, CpuEngine, Engine, ForwardInputs, Output};

const STEP: f64 = 1.0 / 8192.0;

/// Roundings of y, relative to Σ|c·y|, divided by the step.
const ROUNDINGS: f64 = 500.0 * f64::EPSILON / STEP;

const ACTIVATIONS: [Activation; 9] = [
    Activation::Identity,
    Activation::Relu,
    Activation::LeakyRelu { slope: 0.3 },
    Activation::Silu,
    Activation::Gelu,
    Activation::GeluTanh,
    Activation::Sigmoid,
    Activation::Tanh,
    Activation::HardSwish,
];

fn norms() -> [Norm; 7] {
    [
        Norm::Batch,
        Norm::Layer(Over::Last(1)),
        Norm::Layer(Over::Channels),
        Norm::Rms(Over::Last(2)),
        Norm::Rms(Over::Channels),
        Norm::Group { groups: 2 },
        Norm::Instance,
    ]
}

/// A forward pass as a function of its inputs.
struct Loss<'a> {
    engine: &'a mut CpuEngine,
    desc: NormDesc,
    c: Vec<f64>,
}

impl Loss<'_> {
    /// L, and Σ|cᵢ·yᵢ|.
    fn at(&mut self, inputs: &ForwardInputs) -> (f64, f64) {
        let outputs = self.engine.forward(&self.desc, inputs).expect("valid inputs");
        let y = outputs.get(Output::Y).expect("forward has y").to_f64();
        let products = self.c.iter().zip(&y).map(|(c, y)| c * y);
        (products.clone().sum(), products.map(f64::abs).sum())
    }

    /// The derivative by the `i`-th element of an input, and how far off it may be.
    fn slope(
        &mut self,
        inputs: &ForwardInputs,
        i: usize,
        of: impl Fn(&mut ForwardInputs) -> &mut TensorData,
    ) -> (f64, f64) {
        let mut magnitude = 0f64;
        let mut shifted = |by: f64| {
            let mut inputs = inputs.clone();
            of(&mut inputs).as_mut_slice::<f64>().expect("f64 data")[i] += by;
            let (loss, size) = self.at(&inputs);
            magnitude = magnitude.max(size);
            loss
        };
        let mut difference = |h: f64| (shifted(h) - shifted(-h)) / (2.0 * h);
        let (near, far) = (difference(STEP), difference(2.0 * STEP));
        ((4.0 * near - far) / 3.0, (near - far).abs() + ROUNDINGS * magnitude)
    }
}

fn compare(case: &Case, loss: &mut Loss<'_>, inputs: &ForwardInputs, (output, got): (Output, &TensorData)) {
    for (i, got) in got.to_f64().into_iter().enumerate() {
        let (slope, tolerance) = loss.slope(inputs, i, |inputs| match output {
            Output::Dweight => inputs.weight.as_mut().expect("a weight"),
            Output::Dbias => inputs.bias.as_mut().expect("a bias"),
            Output::Dresidual => inputs.residual.as_mut().expect("a residual"),
            _ => &mut inputs.x,
        });
        let off = (got - slope).abs();
        assert!(
            off <= tolerance,
            "{case}: {output}[{i}] = {got}, slope {slope} ± {tolerance:e}"
        );
    }
}

/// Forward, then backward with what forward saved.
fn check(engine: &mut CpuEngine, case: &Case) {
    let forward_pass = match case.desc.get_pass() {
        Pass::BackwardEval => Pass::Eval,
        _ => Pass::Train,
    };
    let forward = Case {
        desc: case.desc.pass(forward_pass),
        ..*case
    };
    let inputs = forward_inputs(&forward);
    let outputs = engine.forward(&forward.desc, &inputs).expect("valid inputs");
    let saved = |output| outputs.get(output).cloned();
    let backward = BackwardInputs {
        mean: saved(Output::Mean),
        rstd: saved(Output::Rstd),
        ..backward_inputs(case)
    };
    // LayerNorm and its like have no statistics but those of x: evaluation saves none here, and takes the true ones.
    let backward = if forward_pass == Pass::Eval && !case.desc.uses_running_statistics() {
        backward_inputs(case)
    } else {
        backward
    };
    let gradients = engine.backward(&case.desc, &backward).expect("valid inputs");
    let mut loss = Loss {
        engine,
        desc: forward.desc,
        c: backward.dy.to_f64(),
    };
    for (output, got) in &gradients.tensors {
        compare(case, &mut loss, &inputs, (*output, got));
    }
}

#[test]
fn gradients_are_the_slopes_of_the_forward_pass() {
    let mut engine = CpuEngine::new(Device::cpu_with_threads(1));
    for (i, norm) in norms().into_iter().enumerate() {
        for (j, activation) in ACTIVATIONS.into_iter().enumerate() {
            for pass in [Pass::Backward, Pass::BackwardEval] {
                let layouts = [Layout::ChannelsFirst, Layout::ChannelsLast];
                let channels = NormDesc::new(norm, [2, 4, 5]).layout(layouts[j % 2]);
                let desc = if norm.has_channels() {
                    channels
                } else {
                    NormDesc::new(norm, [2, 4, 5])
                };
                let desc = desc
                    .dtype(DType::F64)
                    .affine(Affine::Full)
                    .residual(true)
                    .activation(activation)
                    .pass(pass);
                check(&mut engine, &Case::new(desc).seed((10 * i + j) as u64));
            }
        }
    }
}
