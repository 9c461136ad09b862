//! Gradients against central differences, in `f64`.

use isonorm::layers::{FrozenBatchNorm, Input, Normalization, Saved};
use isonorm::{Activation, DType, Layout, Result, Tensor};

use crate::{Numbers, every_layer, perturb, values};

const STEP: f64 = 1e-5;
/// The differences' own error: `STEP²` times a third derivative, and `EPSILON/STEP`, each times sums of some hundred terms.
const TOLERANCE: f64 = 1e-7;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Mode {
    Train,
    Eval,
}

fn run(layer: &mut dyn Normalization, input: Input<'_>, mode: Mode) -> Result<(Tensor, Saved)> {
    match mode {
        Mode::Train => layer.forward_train(input),
        Mode::Eval => layer.forward_eval(input),
    }
}

/// What is differentiated: layer, `x`, residual and `dy`; the loss is `Σ y·dy`.
struct Case {
    layer: Box<dyn Normalization>,
    x: Tensor,
    residual: Option<Tensor>,
    dy: Tensor,
    mode: Mode,
}

impl Case {
    fn input(&self) -> Input<'_> {
        let input = Input::new(&self.x);
        self.residual.as_ref().map_or(input, |r| input.residual(r))
    }

    fn forward(&mut self) -> (Tensor, Saved) {
        let (x, residual) = (self.x.clone(), self.residual.clone());
        let input = Input::new(&x);
        let input = residual.as_ref().map_or(input, |r| input.residual(r));
        run(&mut *self.layer, input, self.mode).unwrap()
    }

    fn loss(&mut self) -> f64 {
        let y = self.forward().0;
        values(&y).iter().zip(values(&self.dy)).map(|(y, dy)| y * dy).sum()
    }

    /// Compares a gradient with the change of the loss along each element of what `pick` finds.
    fn compare(&mut self, what: &str, gradient: &Tensor, pick: impl Fn(&mut Case) -> &mut Tensor) {
        for (i, expected) in values(gradient).into_iter().enumerate() {
            let mut nudged = |by: f64| {
                pick(self).as_mut_slice::<f64>().unwrap()[i] += by;
                let loss = self.loss();
                pick(self).as_mut_slice::<f64>().unwrap()[i] -= by;
                loss
            };
            let difference = (nudged(STEP) - nudged(-STEP)) / (2.0 * STEP);
            assert!(
                (difference - expected).abs() < TOLERANCE,
                "{:?} {:?}: {what}[{i}] is {expected}, differences say {difference}",
                self.layer,
                self.mode
            );
        }
    }
}

fn check(layer: Box<dyn Normalization>, mode: Mode, with_residual: bool, layout: Layout) {
    let mut numbers = Numbers::new(7);
    let mut random = || numbers.tensor([3, 4, 5], DType::F64).with_layout(layout);
    let (x, residual, dy) = (random(), with_residual.then(&mut random), random());
    let mut case = Case {
        layer,
        x,
        residual,
        dy,
        mode,
    };
    perturb(&mut *case.layer, &mut numbers);

    let (_, saved) = case.forward();
    let gradients = case.layer.backward(case.input(), &case.dy, &saved).unwrap();
    assert_eq!(gradients.residual.is_some(), with_residual);
    let names: Vec<_> = gradients.parameters().map(|(name, _)| name).collect();
    assert_eq!(
        names,
        case.layer
            .parameters_mut()
            .iter()
            .map(|(name, _)| *name)
            .collect::<Vec<_>>()
    );

    case.compare("dx", &gradients.input, |c| &mut c.x);
    if let Some(dresidual) = &gradients.residual {
        case.compare("dresidual", dresidual, |c| c.residual.as_mut().unwrap());
    }
    for (at, (name, gradient)) in gradients.parameters().enumerate() {
        case.compare(name, gradient, |c| c.layer.parameters_mut().swap_remove(at).1);
    }
}

fn check_all(activation: Activation, with_residual: bool) {
    for mode in [Mode::Train, Mode::Eval] {
        for layer in every_layer(DType::F64, activation) {
            check(layer, mode, with_residual, Layout::ChannelsFirst);
        }
    }
}

#[test]
fn plain() {
    check_all(Activation::Identity, false);
}

#[test]
fn with_an_activation() {
    check_all(Activation::Silu, false);
}

#[test]
fn with_a_residual() {
    check_all(Activation::Identity, true);
}

#[test]
fn with_a_residual_before_an_activation() {
    check_all(Activation::GeluTanh, true);
}

#[test]
fn channels_last() {
    let channelled = |l: &dyn Normalization| {
        // Rows have no channels; over_channels is told apart by its parameters' shape.
        let over_rows = matches!(l.name(), "LayerNorm" | "RmsNorm")
            && l.state_dict("")["weight"].as_tensor().unwrap().shape().dims() != [4];
        !over_rows
    };
    for layer in every_layer(DType::F64, Activation::Tanh)
        .into_iter()
        .filter(|l| channelled(&**l))
    {
        check(layer, Mode::Train, true, Layout::ChannelsLast);
    }
}

#[test]
fn through_constant_statistics_it_is_dy_weight_rstd() {
    let mut layer = FrozenBatchNorm::new(2).eps(0.0);
    let mut state = layer.state_dict("");
    state.insert(
        "running_var".into(),
        Tensor::new([2], vec![4.0f32, 0.25]).unwrap().into(),
    );
    state.insert("weight".into(), Tensor::new([2], vec![3.0f32, 5.0]).unwrap().into());
    layer.load_state_dict("", &state).unwrap();

    let x = Tensor::new([2, 2], vec![1.0f32, 2.0, 3.0, 4.0]).unwrap();
    let dy = Tensor::new([2, 2], vec![2.0f32, 1.0, -4.0, 0.0]).unwrap();
    let (_, saved) = layer.forward_train(&x).unwrap();
    let gradients = layer.backward(&x, &dy, &saved).unwrap();
    assert_eq!(values(&gradients.input), [3.0, 10.0, -6.0, 0.0]);
    assert_eq!((gradients.weight, gradients.bias), (None, None));
}

#[test]
fn of_f32_with_a_mean_far_above_the_spread() {
    let mut numbers = Numbers::new(3);
    // Multiples of 2^-9 near 2^12: exact in f32, with a mean that is not.
    let far: Vec<f64> = (0..96)
        .map(|_| 4096.0 + (numbers.next() * 512.0).round() / 512.0)
        .collect();
    let dy = numbers.tensor([32, 3], DType::F32);
    let backward = |dtype: DType| {
        let mut layer = isonorm::layers::BatchNorm::new(3).param_dtype(dtype);
        let of = |v: &[f64]| Tensor::new([32, 3], isonorm::TensorData::from_f64(dtype, v)).unwrap();
        let (x, dy) = (of(&far), of(&values(&dy)));
        let (_, saved) = layer.forward_train(&x).unwrap();
        assert_eq!(saved.mean().unwrap().len(), 3);
        values(&layer.backward(&x, &dy, &saved).unwrap().input)
    };
    for (narrow, wide) in backward(DType::F32).into_iter().zip(backward(DType::F64)) {
        // An f32 mean would be off by up to 2^-13, and this by 1e-4 relative to a spread of 0.6.
        assert!((narrow - wide).abs() < 4e-6, "{narrow} in f32, {wide} in f64");
    }
}
