//! State dicts and serde.

use isonorm::layers::{
    BatchNorm, FrozenBatchNorm, GroupNorm, InstanceNorm, Layer, LayerNorm, Momentum, RmsNorm, StateDict, StateValue, op,
};
use isonorm::{Activation, Affine, DType, Error, Tensor};

use crate::{Numbers, every_layer, perturb};

fn names(state: &StateDict) -> Vec<&str> {
    state.keys().map(String::as_str).collect()
}

fn trained(dtype: DType) -> BatchNorm {
    let mut numbers = Numbers::new(21);
    let mut layer = BatchNorm::new(3).param_dtype(dtype);
    perturb(&mut layer, &mut numbers);
    for _ in 0..3 {
        layer.forward_train(&numbers.tensor([5, 3], dtype)).unwrap();
    }
    layer
}

#[test]
fn names_are_those_of_pytorch() {
    let running = ["bias", "num_batches_tracked", "running_mean", "running_var", "weight"];
    assert_eq!(names(&BatchNorm::new(3).state_dict("")), running);
    assert_eq!(
        names(&BatchNorm::new(3).affine(Affine::None).state_dict("")),
        running[1..4]
    );
    assert_eq!(
        names(&BatchNorm::new(3).track_running_stats(false).state_dict("")),
        ["bias", "weight"]
    );
    assert_eq!(
        names(&FrozenBatchNorm::new(3).state_dict("")),
        ["bias", "running_mean", "running_var", "weight"]
    );
    assert_eq!(names(&LayerNorm::new([3]).state_dict("")), ["bias", "weight"]);
    assert_eq!(names(&RmsNorm::new([3]).state_dict("")), ["weight"]);
    assert_eq!(names(&GroupNorm::new(1, 3).state_dict("")), ["bias", "weight"]);
    assert!(InstanceNorm::new(3).state_dict("").is_empty());
    assert_eq!(
        names(&RmsNorm::new([3]).state_dict("blocks.0.norm")),
        ["blocks.0.norm.weight"]
    );
    assert_eq!(names(&RmsNorm::new([3]).state_dict("blocks.0.")), ["blocks.0.weight"]);
}

#[test]
fn what_is_saved_is_loaded() {
    for dtype in [DType::F32, DType::F64, DType::F16, DType::Bf16] {
        let source = trained(dtype);
        let mut target = BatchNorm::new(3).param_dtype(dtype);
        target.load_state_dict("", &source.state_dict("")).unwrap();
        assert_eq!(target.state_dict(""), source.state_dict(""));
        assert_eq!(target.num_batches_tracked(), Some(3));
    }
}

#[test]
fn a_layer_takes_its_own_part_of_a_models_state() {
    let source = trained(DType::F32);
    let mut model = source.state_dict("bn1");
    model.extend(LayerNorm::new([7]).state_dict("head.norm"));
    model.insert("bn10.weight".into(), StateValue::Count(1)); // begins like bn1, and is another layer
    let mut target = BatchNorm::new(3);
    target.load_state_dict("bn1", &model).unwrap();
    assert_eq!(target.state_dict(""), source.state_dict(""));
}

#[test]
fn values_are_converted_to_the_layers_type() {
    let source = trained(DType::F64);
    let mut target = BatchNorm::new(3);
    target.load_state_dict("", &source.state_dict("")).unwrap();
    let (wide, narrow) = (source.weight().unwrap(), target.weight().unwrap());
    assert_eq!(narrow.dtype(), DType::F32);
    let rounded: Vec<f32> = wide.as_slice::<f64>().unwrap().iter().map(|v| *v as f32).collect();
    assert_eq!(narrow.as_slice::<f32>().unwrap(), rounded);
}

#[test]
fn a_missing_counter_leaves_a_new_layers_zero() {
    let mut state = trained(DType::F32).state_dict("");
    state.remove("num_batches_tracked");
    let mut target = BatchNorm::new(3);
    target.load_state_dict("", &state).unwrap();
    assert_eq!(target.num_batches_tracked(), Some(0));
}

#[test]
fn a_frozen_layer_drops_the_counter() {
    let source = trained(DType::F32);
    let mut frozen = FrozenBatchNorm::new(3);
    frozen.load_state_dict("", &source.state_dict("")).unwrap();
    assert_eq!(frozen.state_dict(""), source.freeze().unwrap().state_dict(""));
}

#[test]
fn what_does_not_fit_is_listed_and_nothing_is_loaded() {
    let mut state = trained(DType::F32).state_dict("bn");
    state.remove("bn.bias");
    state.remove("bn.running_mean");
    state.insert("bn.scale".into(), Tensor::zeros([3], DType::F32).unwrap().into());
    state.insert("bn.weight".into(), Tensor::zeros([4], DType::F32).unwrap().into());
    state.insert(
        "bn.num_batches_tracked".into(),
        Tensor::zeros([1], DType::F32).unwrap().into(),
    );
    state.insert("bn.running_var".into(), 5.into());

    let mut layer = BatchNorm::new(3);
    let before = layer.state_dict("");
    let error = layer.load_state_dict("bn", &state).unwrap_err();
    assert_eq!(
        error.to_string(),
        "BatchNorm: the state dict does not fit: missing bn.bias, bn.running_mean; unexpected bn.scale; mismatched \
         bn.weight is a tensor of shape 4, expected a tensor of shape 3, bn.running_var is a counter, expected a tensor \
         of shape 3, bn.num_batches_tracked is a tensor of shape 1, expected a counter"
    );
    assert!(matches!(error, Error::StateDict { layer: "BatchNorm", .. }));
    assert_eq!(layer.state_dict(""), before);
}

#[test]
fn running_statistics_are_unexpected_where_there_are_none() {
    let state = trained(DType::F32).state_dict("");
    let error = BatchNorm::new(3)
        .track_running_stats(false)
        .load_state_dict("", &state)
        .unwrap_err()
        .to_string();
    assert!(
        error.ends_with("unexpected num_batches_tracked, running_mean, running_var"),
        "{error}"
    );
    let error = RmsNorm::new([3])
        .load_state_dict("", &LayerNorm::new([3]).state_dict(""))
        .unwrap_err()
        .to_string();
    assert_eq!(error, "RmsNorm: the state dict does not fit: unexpected bias");
}

/// Through JSON and back; the same state and the same behaviour.
fn round_trip<K: op::Op>(layer: Layer<K>) {
    let text = serde_json::to_string(&layer).unwrap();
    let back: Layer<K> = serde_json::from_str(&text).unwrap();
    assert_eq!(back.state_dict(""), layer.state_dict(""));
    assert_eq!(format!("{back:?}"), format!("{layer:?}"));
    assert_eq!(serde_json::to_string(&back).unwrap(), text);
}

#[test]
fn every_layer_survives_json() {
    for dtype in [DType::F32, DType::F64, DType::F16, DType::Bf16] {
        round_trip(
            trained(dtype)
                .activation(Activation::LeakyRelu { slope: 0.2 })
                .momentum(Momentum::Cumulative),
        );
        round_trip(trained(dtype).freeze().unwrap());
        round_trip(LayerNorm::new([2, 3]).param_dtype(dtype).eps(1e-3));
        round_trip(LayerNorm::over_channels(3).param_dtype(dtype).affine(Affine::Weight));
        round_trip(RmsNorm::new([3]).param_dtype(dtype).activation(Activation::Silu));
        round_trip(GroupNorm::new(3, 6).param_dtype(dtype));
        round_trip(InstanceNorm::new(3).param_dtype(dtype).track_running_stats(true));
    }
}

#[test]
fn a_restored_layer_computes_the_same() {
    let layer = trained(DType::F32).activation(Activation::Gelu);
    let back: BatchNorm = serde_json::from_str(&serde_json::to_string(&layer).unwrap()).unwrap();
    let x = Numbers::new(22).tensor([4, 3, 2], DType::Bf16);
    assert_eq!(back.forward(&x).unwrap(), layer.forward(&x).unwrap());
}

#[test]
fn a_state_dict_survives_json() {
    for layer in every_layer(DType::Bf16, Activation::Identity) {
        let state = layer.state_dict("model.norm");
        let back: StateDict = serde_json::from_str(&serde_json::to_string(&state).unwrap()).unwrap();
        assert_eq!(back, state);
    }
}

#[test]
fn stored_layers_that_contradict_themselves_are_refused() {
    let text = serde_json::to_string(&trained(DType::F32)).unwrap();
    let refused = |from: &str, to: &str| {
        assert!(text.contains(from), "{from} is not in {text}");
        serde_json::from_str::<BatchNorm>(&text.replacen(from, to, 1))
            .unwrap_err()
            .to_string()
    };
    assert!(refused("\"shape\":[3]", "\"shape\":[4]").contains("weight is 3 of f32, expected 4 of f32"));
    assert!(refused("\"param_dtype\":\"f32\"", "\"param_dtype\":\"f64\"").contains("expected 3 of f64"));
    assert!(refused("\"batch\"", "\"frozen_batch\"").contains("expected BatchNorm, got FrozenBatchNorm"));
    assert!(refused("\"batch\"", "{\"layer\":\"last\"}").contains("LayerNorm has no running statistics"));
    assert!(serde_json::from_str::<LayerNorm>(&text).is_err());
}
