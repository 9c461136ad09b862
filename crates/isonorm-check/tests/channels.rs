//! Channels: their running statistics over many steps, a NaN in one of them, and very many.

mod common;

use isonorm::cuda::Interpreter;
use isonorm::{Device, GpuProperties, Layout, NormDesc, TensorData};
use isonorm_check::data::{backward_inputs, forward_inputs};
use isonorm_check::oracle::Index;
use isonorm_check::{Case, CpuEngine, CudaEngine, Engine, InterpreterEngine, Output, Outputs, Running, run_suite};

/// The CPU, the interpreter of a small GPU, and every GPU.
fn engines(what: &str) -> Vec<Box<dyn Engine>> {
    let small = GpuProperties {
        sms: 4,
        ..GpuProperties::known("h200").expect("a known GPU")
    };
    let mut engines: Vec<Box<dyn Engine>> = vec![
        Box::new(CpuEngine::new(Device::cpu())),
        Box::new(InterpreterEngine::new(Interpreter::new(small))),
    ];
    for gpu in common::gpus(what) {
        engines.push(Box::new(CudaEngine::new(gpu).expect("a stream")));
    }
    engines
}

fn parsed(problem: &str) -> Case {
    problem.parse().expect("a problem")
}

/// PyTorch's update: `running = (1 − momentum) · running + momentum · batch`, with the unbiased variance, here in f64.
fn blend(running: &mut [f64], batch: &[f64], momentum: f64) {
    for (running, batch) in running.iter_mut().zip(batch) {
        *running = (1.0 - momentum) * *running + momentum * batch;
    }
}

#[test]
fn running_statistics_over_a_thousand_steps() {
    const STEPS: u64 = 1000;
    const MOMENTUM: f64 = 0.1;
    let mut engines = engines("running statistics");
    for problem in [
        "batchnorm x=4x3x3x3",
        "batchnorm x=4x3x3x3 layout=nhwc",
        "batchnorm x=9x5 dtype=bf16",
        "instancenorm x=3x2x5 affine=full layout=nlc",
    ] {
        let case = parsed(&format!("{problem} pass=train data=offset:3"));
        let mut running: Vec<Option<Running>> = vec![None; engines.len()];
        let mut expected: Option<[Vec<f64>; 2]> = None;
        for seed in 0..STEPS {
            let case = Case { seed, ..case };
            let mut inputs = forward_inputs(&case);
            inputs.factor = MOMENTUM;
            let first = inputs.running.clone().expect("it has running statistics");
            let [mean, var] = expected.get_or_insert_with(|| [first.mean.to_f64(), first.var.to_f64()]);
            let [batch_mean, batch_var] = of_batch(&case.desc, &inputs.x.to_f64());
            blend(mean, &batch_mean, MOMENTUM);
            blend(var, &batch_var, MOMENTUM);
            for (engine, running) in engines.iter_mut().zip(&mut running) {
                inputs.running = Some(running.take().unwrap_or_else(|| first.clone()));
                let outputs = engine.forward(&case.desc, &inputs).expect("valid");
                let of = |output| outputs.get(output).cloned().expect("an output");
                *running = Some(Running {
                    mean: of(Output::RunningMean),
                    var: of(Output::RunningVar),
                });
            }
        }
        let [mean, var] = expected.expect("there are steps");
        for (engine, running) in engines.iter().zip(running) {
            let Running { mean: m, var: v } = running.expect("there are steps");
            // Each step rounds to f32 once, and later steps shrink what earlier ones left.
            let close = |got: &TensorData, expected: &[f64]| {
                let mut pairs = got.to_f64().into_iter().zip(expected);
                pairs.all(|(got, expected)| (got - expected).abs() <= 1e-6 * expected.abs())
            };
            assert!(
                close(&m, &mean),
                "{problem} on {}: {m:?}, expected {mean:?}",
                engine.name()
            );
            assert!(
                close(&v, &var),
                "{problem} on {}: {v:?}, expected {var:?}",
                engine.name()
            );
        }
    }
}

/// Mean and unbiased variance of each channel: over the batch, or the average of those of instances.
fn of_batch(desc: &NormDesc, x: &[f64]) -> [Vec<f64>; 2] {
    let index = Index::of(desc);
    let channels = desc.get_shape().dims()[1];
    let instances = index.groups() / channels;
    let (mut means, mut vars) = (vec![0.0; channels], vec![0.0; channels]);
    for group in 0..index.groups() {
        let members: Vec<f64> = index.members(group).iter().map(|&i| x[i]).collect();
        let n = members.len() as f64;
        let mean = members.iter().sum::<f64>() / n;
        let squares: f64 = members.iter().map(|x| (x - mean) * (x - mean)).sum();
        means[group % channels] += mean / instances as f64;
        vars[group % channels] += squares / (n - 1.0) / instances as f64;
    }
    [means, vars]
}

/// Values of a tensor by channel: those of the data, or of the parameters.
fn of_channel(desc: &NormDesc, values: &[f64], channel: usize) -> Vec<f64> {
    let dims = desc.get_shape();
    let (channels, elements) = (dims.dims()[1], dims.elements().expect("few"));
    let spatial: usize = dims.dims()[2..].iter().product();
    let channel_of = |i: usize| match desc.get_layout() {
        _ if values.len() < elements => i % channels,
        Layout::ChannelsFirst => i / spatial % channels,
        Layout::ChannelsLast => i % channels,
    };
    let of = values.iter().enumerate().filter(|(i, _)| channel_of(*i) == channel);
    of.map(|(_, value)| *value).collect()
}

/// Whether these are the same but for how sums were rounded: a channel may be measured again for the sake of another one.
fn close(a: &[f64], b: &[f64]) -> bool {
    let mut pairs = a.iter().zip(b);
    pairs.all(|(a, b)| (a - b).abs() <= 1e-5 * (1.0 + a.abs()))
}

#[test]
fn a_nan_in_one_channel_stays_there() {
    const SICK: usize = 5;
    let run = |engine: &mut dyn Engine, case: &Case, sick: bool| -> Outputs {
        let poison = |x: &mut TensorData| {
            let mut values = x.to_f64();
            let index = Index::of(&case.desc);
            let of_channel = (0..values.len()).filter(|&i| index.coordinates(i)[1] == SICK);
            // Of a gradient all: one that a ReLU does not let pass may be dropped, as PyTorch does.
            let some = if case.desc.get_pass().is_backward() {
                usize::MAX
            } else {
                1
            };
            for element in of_channel.take(some).collect::<Vec<_>>() {
                values[element] = f64::NAN;
            }
            *x = TensorData::from_f64(x.dtype(), &values);
        };
        if case.desc.get_pass().is_backward() {
            let mut inputs = backward_inputs(case);
            if sick {
                poison(&mut inputs.dy);
            }
            return engine.backward(&case.desc, &inputs).expect("valid");
        }
        let mut inputs = forward_inputs(case);
        if sick {
            poison(&mut inputs.x);
        }
        engine.forward(&case.desc, &inputs).expect("valid")
    };
    let shapes = [
        "batchnorm x=6x24x4x4",
        "batchnorm x=6x24x4x4 layout=nhwc",
        "batchnorm x=70x24",
        "batchnorm x=3x9x5x5",
    ];
    let options = [
        "pass=train",
        "act=relu residual=add pass=train",
        "pass=backward",
        "act=relu residual=add pass=backward",
    ];
    for mut engine in engines("a NaN") {
        for problem in shapes
            .iter()
            .flat_map(|shape| options.map(|options| format!("{shape} {options}")))
        {
            let case = parsed(&problem);
            let (well, sick) = (run(&mut *engine, &case, false), run(&mut *engine, &case, true));
            for (output, values) in &well.tensors {
                let (values, other) = (values.to_f64(), sick.get(*output).expect("the same outputs").to_f64());
                for channel in 0..case.desc.get_shape().dims()[1] {
                    let [well, sick] = [&values, &other].map(|values| of_channel(&case.desc, values, channel));
                    let right = match channel == SICK {
                        true => *output == Output::Dresidual || sick.iter().any(|value| value.is_nan()),
                        false => close(&well, &sick),
                    };
                    assert!(right, "{case} on {}: {output}, channel {channel}", engine.name());
                }
            }
        }
    }
}

#[test]
fn more_batches_and_channels_than_a_grid_has_in_its_second_dimension() {
    let problems = [
        "batchnorm x=2x66000",
        "instancenorm x=66000x1x2 layout=nlc affine=full",
        "layernorm x=66000x2x2 over=channels",
    ];
    let passes = |problem: &str| ["train", "backward"].map(|pass| parsed(&format!("{problem} pass={pass}")));
    let cases: Vec<Case> = problems.into_iter().flat_map(passes).collect();
    for mut engine in engines("many channels") {
        // Tens of thousands of tiles, one by one, take the interpreter minutes.
        let cases = if engine.name().starts_with("interpreter") {
            &cases[..2]
        } else {
            &cases
        };
        let report = run_suite(&mut *engine, cases, |_| {});
        assert_eq!((report.skipped(), report.right()), (0, cases.len()), "{report}");
    }
}
