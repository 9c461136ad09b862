//! The forward passes: every layer, type and layout, against the raw interface and against each other.

use isonorm::layers::{BatchNorm, GroupNorm, Input, InstanceNorm, LayerNorm, Normalization, RmsNorm, Saved};
use isonorm::{Activation, Affine, DType, Device, Forward, Layout, NormDesc, Pass, Tensor, Workspace};

use crate::{Numbers, every_layer, perturb, values};

#[test]
fn output_keeps_shape_type_and_layout() {
    let mut numbers = Numbers::new(1);
    for dtype in DType::ALL {
        for layer in &mut every_layer(DType::F32, Activation::Relu) {
            let x = numbers.tensor([3, 4, 5], dtype);
            let (trained, saved) = layer.forward_train((&x).into()).unwrap();
            let gradients = layer.backward((&x).into(), &trained, &saved).unwrap();
            for t in [&trained, &layer.forward((&x).into()).unwrap(), &gradients.input] {
                assert_eq!(
                    (t.shape(), t.dtype(), t.layout()),
                    (x.shape(), dtype, x.layout()),
                    "{layer:?}"
                );
            }
            assert!(gradients.parameters().all(|(_, g)| g.dtype() == DType::F32));
        }
    }
}

#[test]
fn channels_last_is_the_same_function() {
    let mut numbers = Numbers::new(2);
    let first = numbers.tensor([2, 4, 3, 5], DType::F64);
    let at = |n: usize, c: usize, s: usize| (n * 4 + c) * 15 + s;
    let permuted = |of: &Tensor| {
        let v = values(of);
        let order = (0..2).flat_map(|n| (0..15).flat_map(move |s| (0..4).map(move |c| at(n, c, s))));
        Tensor::new([2, 4, 3, 5], order.map(|i| v[i]).collect::<Vec<_>>())
            .unwrap()
            .with_layout(Layout::ChannelsLast)
    };
    let last = permuted(&first);
    let layers: [Box<dyn Normalization>; 4] = [
        Box::new(BatchNorm::new(4)),
        Box::new(GroupNorm::new(2, 4)),
        Box::new(InstanceNorm::new(4)),
        Box::new(RmsNorm::over_channels(4)),
    ];
    for mut layer in layers {
        let (y, _) = layer.forward_train((&first).into()).unwrap();
        let (z, _) = layer.forward_train((&last).into()).unwrap();
        assert_eq!(z.layout(), Layout::ChannelsLast);
        for (a, b) in values(&permuted(&y)).into_iter().zip(values(&z)) {
            assert!((a - b).abs() < 1e-13, "{layer:?}: {a} and {b}");
        }
    }
}

#[test]
fn a_layer_gives_the_bits_of_the_raw_interface() {
    let mut numbers = Numbers::new(3);
    let (x, residual) = (
        numbers.tensor([6, 4, 7], DType::F32),
        numbers.tensor([6, 4, 7], DType::F32),
    );
    let mut layer = BatchNorm::new(4).activation(Activation::Silu);
    perturb(&mut layer, &mut numbers);
    let (y, saved) = layer.forward_train(Input::new(&x).residual(&residual)).unwrap();

    let device = Device::best();
    let desc = NormDesc::batch_norm([6, 4, 7])
        .activation(Activation::Silu)
        .residual(true)
        .pass(Pass::Train);
    let plan = device.plan(&desc).unwrap();
    let mut raw = Tensor::zeros([6, 4, 7], DType::F32).unwrap();
    let (mut mean, mut rstd) = (vec![0f64; 4], vec![0f32; 4]);
    let arguments = Forward::new(x.view(), raw.view_mut())
        .weight(layer.weight().unwrap().view())
        .bias(layer.bias().unwrap().view())
        .residual(residual.view())
        .save(&mut mean, &mut rstd);
    device.forward(&plan, arguments, &mut Workspace::new(&plan)).unwrap();
    assert_eq!(y, raw);
    assert_eq!(saved.mean().unwrap(), mean);
    assert_eq!(saved.rstd().unwrap().as_slice::<f32>().unwrap(), rstd);
}

#[test]
fn in_place_is_the_same_as_out_of_place() {
    let mut numbers = Numbers::new(4);
    let x = numbers.tensor([3, 4, 5], DType::Bf16);
    let mut layer = GroupNorm::new(2, 4).activation(Activation::HardSwish);
    perturb(&mut layer, &mut numbers);
    let mut y = x.clone();
    layer.forward_in_place(&mut y).unwrap();
    assert_eq!(y, layer.forward(&x).unwrap());

    let tracked = BatchNorm::new(4).activation(Activation::Relu);
    let mut y = x.clone();
    tracked.forward_in_place(&mut y).unwrap();
    assert_eq!(y, tracked.forward(&x).unwrap());
}

#[test]
fn an_activation_and_a_residual_do_what_they_say() {
    let x = Tensor::new([1, 4], vec![-3.0f64, -1.0, 1.0, 3.0]).unwrap();
    let residual = Tensor::new([1, 4], vec![0.5f64; 4]).unwrap();
    let plain = values(&LayerNorm::new([4]).forward(&x).unwrap());
    let fused = LayerNorm::new([4])
        .activation(Activation::Relu)
        .forward(Input::new(&x).residual(&residual))
        .unwrap();
    let expected: Vec<f64> = plain.iter().map(|v| (v + 0.5).max(0.0)).collect();
    assert_eq!(values(&fused), expected);
}

#[test]
fn rms_norm_defaults_to_the_machine_epsilon() {
    for (dtype, epsilon) in [(DType::F32, f64::from(f32::EPSILON)), (DType::F64, f64::EPSILON)] {
        let x = Tensor::zeros([1, 4], dtype).unwrap();
        let (_, saved) = RmsNorm::new([4]).forward_train(&x).unwrap();
        let rstd = saved.rstd().unwrap().to_f64()[0];
        assert!((rstd * epsilon.sqrt() - 1.0).abs() < 1e-6, "{dtype}: {rstd}");
        assert_eq!(saved.mean(), None);
    }
    assert_eq!(
        values(
            &RmsNorm::new([4])
                .forward(&Tensor::zeros([1, 4], DType::F32).unwrap())
                .unwrap()
        ),
        [0.0; 4]
    );
}

#[test]
fn without_running_statistics_inference_uses_the_batch() {
    let mut numbers = Numbers::new(5);
    let x = numbers.tensor([8, 4, 3], DType::F32);
    let mut batch = BatchNorm::new(4).track_running_stats(false);
    let (trained, saved) = batch.forward_train(&x).unwrap();
    assert_eq!(batch.forward(&x).unwrap(), trained);
    assert_eq!(batch.forward_eval(&x).unwrap(), (trained.clone(), saved));
    assert_eq!(batch.num_batches_tracked(), None);

    let mut instance = InstanceNorm::new(4).affine(Affine::Full);
    let (trained, _) = instance.forward_train(&x).unwrap();
    assert_eq!(instance.forward(&x).unwrap(), trained);
}

#[test]
fn threads_share_a_layer() {
    let layer = LayerNorm::new([5]).with_device(Device::cpu_with_threads(1));
    let inputs: Vec<_> = (1..=6)
        .map(|n| Numbers::new(n as u64).tensor([n, 5], DType::F32))
        .collect();
    let alone: Vec<_> = inputs.iter().map(|x| layer.forward(x).unwrap()).collect();
    std::thread::scope(|scope| {
        for (x, expected) in inputs.iter().zip(&alone) {
            let layer = &layer;
            scope.spawn(move || (0..20).for_each(|_| assert_eq!(layer.forward(x).unwrap(), *expected)));
        }
    });
}

#[test]
fn layers_and_what_they_save_go_between_threads() {
    fn shared<T: Send + Sync + Clone>() {}
    shared::<BatchNorm>();
    shared::<RmsNorm>();
    shared::<Saved>();
}

#[test]
fn a_clone_learns_by_itself() {
    let x = Numbers::new(6).tensor([4, 4], DType::F32);
    let original = BatchNorm::new(4);
    let mut clone = original.clone();
    clone.forward_train(&x).unwrap();
    assert_eq!(
        (original.num_batches_tracked(), clone.num_batches_tracked()),
        (Some(0), Some(1))
    );
    assert_ne!(original.state_dict(""), clone.state_dict(""));
}
