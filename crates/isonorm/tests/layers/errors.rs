//! What is refused, and in which words.

use isonorm::layers::{BatchNorm, GroupNorm, Input, InstanceNorm, LayerNorm, Momentum, RmsNorm};
use isonorm::{Activation, DType, Error, Layout, Shape, Tensor};

use crate::every_layer;

fn zeros(shape: impl Into<Shape>) -> Tensor {
    Tensor::zeros(shape, DType::F32).unwrap()
}

fn says<T: std::fmt::Debug>(result: Result<T, Error>, expected: &str) {
    assert_eq!(result.unwrap_err().to_string(), expected);
}

#[test]
fn shapes_that_do_not_fit_the_parameters() {
    let bn = BatchNorm::new(3);
    says(
        bn.forward(&zeros([2, 4])),
        "batchnorm: x has shape 2x4, expected Nx3 or Nx3x...",
    );
    says(
        bn.forward(&zeros([3])),
        "batchnorm: x has shape 3, expected Nx3 or Nx3x...",
    );
    says(
        LayerNorm::new([4, 5]).forward(&zeros([2, 5, 4])),
        "layernorm: x has shape 2x5x4, expected ...x4x5",
    );
    says(
        RmsNorm::new([4]).forward(&zeros([2, 1])),
        "rmsnorm: x has shape 2x1, expected ...x4",
    );
    says(
        LayerNorm::over_channels(4).forward(&zeros([2, 5, 4])),
        "layernorm: x has shape 2x5x4, expected Nx4 or Nx4x...",
    );
}

#[test]
fn ranks_and_groups_that_the_op_does_not_have() {
    let too_many = BatchNorm::new(3).forward(&zeros([2, 3, 1, 1, 1, 1]));
    assert!(matches!(
        too_many,
        Err(Error::InvalidDescription { op: "batchnorm", .. })
    ));
    let too_few = InstanceNorm::new(3).forward(&zeros([2, 3]));
    assert!(matches!(
        too_few,
        Err(Error::InvalidDescription { op: "instancenorm", .. })
    ));
    let indivisible = GroupNorm::new(2, 3).forward(&zeros([2, 3, 4]));
    assert!(
        indivisible
            .unwrap_err()
            .to_string()
            .contains("got 3 channels and 2 groups")
    );
    assert!(GroupNorm::new(0, 3).forward(&zeros([2, 3, 4])).is_err());
    assert!(LayerNorm::new([]).forward(&zeros([2])).is_err());
    assert!(
        LayerNorm::new([4])
            .forward(&zeros([2, 4]).with_layout(Layout::ChannelsLast))
            .is_err()
    );
}

#[test]
fn one_value_a_channel_in_training_and_the_layer_is_unchanged() {
    for momentum in [Momentum::default(), Momentum::Cumulative] {
        let mut bn = BatchNorm::new(3).momentum(momentum);
        let before = bn.state_dict("");
        let error = bn.forward_train(&zeros([1, 3])).unwrap_err().to_string();
        assert!(
            error.contains("more than 1 value per channel in training, got x of shape 1x3"),
            "{error}"
        );
        assert_eq!(bn.state_dict(""), before);
        assert!(bn.forward(&zeros([1, 3])).is_ok());
    }
    assert!(
        BatchNorm::new(3)
            .track_running_stats(false)
            .forward(&zeros([1, 3]))
            .is_err()
    );
    assert!(InstanceNorm::new(3).forward(&zeros([2, 3, 1])).is_err());
}

#[test]
fn residuals_and_gradients_that_are_not_like_x() {
    let mut bn = BatchNorm::new(3);
    let x = zeros([2, 3, 4]);
    let with = |residual: &Tensor| bn.forward(Input::new(&x).residual(residual));
    says(
        with(&zeros([2, 3])),
        "batchnorm: residual has shape 2x3 ChannelsFirst, expected 2x3x4 ChannelsFirst as x",
    );
    says(
        with(&zeros([2, 3, 4]).with_layout(Layout::ChannelsLast)),
        "batchnorm: residual has shape 2x3x4 ChannelsLast, expected 2x3x4 ChannelsFirst as x",
    );
    says(
        with(&Tensor::zeros([2, 3, 4], DType::F16).unwrap()),
        "batchnorm: residual is f16, expected f32",
    );

    let (_, saved) = bn.forward_train(&x).unwrap();
    says(
        bn.backward(&x, &zeros([2, 3]), &saved),
        "batchnorm: dy has shape 2x3 ChannelsFirst, expected 2x3x4 ChannelsFirst as x",
    );
}

#[test]
fn what_was_saved_for_another_problem() {
    let mut bn = BatchNorm::new(3);
    let (x, other) = (zeros([2, 3, 4]), zeros([5, 3, 4]));
    let (_, saved) = bn.forward_train(&x).unwrap();
    says(
        bn.backward(&other, &other, &saved),
        "batchnorm: what was saved is for `batchnorm x=2x3x4 layout=ncl dtype=f32 pass=backward`, not for `batchnorm \
         x=5x3x4 layout=ncl dtype=f32 pass=backward`",
    );
    let residual = Input::new(&x).residual(&x);
    assert!(matches!(
        bn.backward(residual, &x, &saved),
        Err(Error::PlanMismatch { .. })
    ));
    let relu = bn.clone().activation(Activation::Relu);
    assert!(matches!(relu.backward(&x, &x, &saved), Err(Error::PlanMismatch { .. })));
}

#[test]
fn types_and_numbers_that_cannot_be() {
    let f64_input = Tensor::zeros([2, 3], DType::F64).unwrap();
    assert!(BatchNorm::new(3).forward(&f64_input).is_ok());
    let wide = BatchNorm::new(3).param_dtype(DType::F64);
    says(
        wide.forward(&zeros([2, 3])),
        "batchnorm: parameters must be f32 or of x's type f32, got f64",
    );
    for eps in [-1.0, f64::NAN, f64::INFINITY] {
        assert!(matches!(
            BatchNorm::new(3).eps(eps).forward(&zeros([2, 3])),
            Err(Error::InvalidDescription { .. })
        ));
    }
    let mut bn = BatchNorm::new(3).momentum(Momentum::Exponential(f64::NAN));
    assert!(bn.forward_train(&zeros([2, 3])).is_err());
    assert_eq!(bn.num_batches_tracked(), Some(0));
}

#[test]
fn in_place_without_running_statistics() {
    let reason = "evaluation without running statistics uses those of x, by pass=train, which leaves x as it is";
    let bn = BatchNorm::new(3).track_running_stats(false);
    says(
        bn.forward_in_place(&mut zeros([2, 3])),
        &format!("batchnorm: cannot work in place: {reason}"),
    );
    says(
        InstanceNorm::new(3).forward_in_place(&mut zeros([2, 3, 4])),
        &format!("instancenorm: cannot work in place: {reason}"),
    );
    // What else is wrong is said first.
    says(
        bn.forward_in_place(&mut zeros([2, 4])),
        "batchnorm: x has shape 2x4, expected Nx3 or Nx3x...",
    );
}

#[test]
fn a_parameter_replaced_by_one_of_another_shape() {
    let mut bn = BatchNorm::new(3);
    *bn.parameters_mut().remove(0).1 = zeros([4]);
    says(
        bn.forward(&zeros([2, 3])),
        "batchnorm: weight has 4 elements, expected 3 (x is 2x3)",
    );
}

#[test]
fn a_stream_through_a_layer_that_has_none() {
    let reason = "residual=stream is for layernorm and rmsnorm over the last dimensions";
    let x = zeros([3, 4, 5]);
    for mut layer in every_layer(DType::F32, Activation::Identity) {
        let result = layer.forward_stream(&x, &x);
        if result.is_ok() {
            assert!(matches!(layer.name(), "LayerNorm" | "RmsNorm"), "{layer:?}");
            continue;
        }
        let Err(Error::InvalidDescription { op, reason: got }) = result else {
            panic!("{layer:?} says {result:?}");
        };
        assert_eq!(got, reason);
        says(layer.forward_stream_train(&x, &x), &format!("{op}: {reason}"));
        let (_, saved) = layer.forward_train((&x).into()).unwrap();
        assert!(layer.backward_stream(&x, &x, None, &saved).is_err());
    }
    says(
        LayerNorm::over_channels(4).forward_stream(&x, &x),
        &format!("layernorm: {reason}"),
    );
    let (mut x, mut stream) = (zeros([3, 4]), zeros([3, 4]));
    says(
        RmsNorm::over_channels(4).forward_stream_in_place(&mut x, &mut stream),
        &format!("rmsnorm: {reason}"),
    );
}

#[test]
fn streams_that_are_not_like_x() {
    let layer = RmsNorm::new([4]);
    let (x, other) = (zeros([2, 4]), zeros([3, 4]));
    let narrow = Tensor::zeros([2, 4], DType::F16).unwrap();
    says(
        layer.forward_stream(&zeros([2, 3]), &x),
        "rmsnorm: x has shape 2x3, expected ...x4",
    );
    let unlike = "rmsnorm: residual has shape 3x4 ChannelsFirst, expected 2x4 ChannelsFirst as x";
    says(layer.forward_stream(&x, &other), unlike);
    says(layer.forward_stream_train(&x, &other), unlike);
    says(
        layer.forward_stream(&x, &narrow),
        "rmsnorm: residual is f16, expected f32",
    );
    let (mut y, mut stream) = (x.clone(), Tensor::new([2, 4], vec![1.0f64; 8]).unwrap());
    says(
        layer.forward_stream_in_place(&mut y, &mut stream),
        "rmsnorm: residual is f64, expected f32",
    );
    assert_eq!((&y, stream.as_slice::<f64>().unwrap()), (&x, &[1.0; 8][..]));

    let (_, stream, saved) = layer.forward_stream_train(&x, &x).unwrap();
    says(
        layer.backward_stream(&zeros([2, 3]), &x, None, &saved),
        "rmsnorm: stream has shape 2x3, expected ...x4",
    );
    says(
        layer.backward_stream(&stream, &other, None, &saved),
        "rmsnorm: dy has shape 3x4 ChannelsFirst, expected 2x4 ChannelsFirst as stream",
    );
    says(
        layer.backward_stream(&stream, &x, Some(&other), &saved),
        "rmsnorm: dstream has shape 3x4 ChannelsFirst, expected 2x4 ChannelsFirst as stream",
    );
    says(
        layer.backward_stream(&stream, &x, Some(&narrow), &saved),
        "rmsnorm: dstream is f16, expected f32",
    );
}

#[test]
fn what_was_saved_with_a_stream_and_without() {
    let mut layer = LayerNorm::new([4]);
    let x = zeros([2, 4]);
    let (_, stream, with) = layer.forward_stream_train(&x, &x).unwrap();
    let (_, without) = layer.forward_train(&x).unwrap();
    says(
        layer.backward(&stream, &x, &with),
        "layernorm: what was saved is for `layernorm x=2x4 dtype=f32 residual=stream pass=backward`, not for `layernorm \
         x=2x4 dtype=f32 pass=backward`",
    );
    assert!(matches!(
        layer.backward_stream(&stream, &x, None, &without),
        Err(Error::PlanMismatch { .. })
    ));
}
