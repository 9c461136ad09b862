//! The same bits whatever the number of threads, the vector width and the place of the result; the same numbers whatever
//! the layout.

mod common;

use isonorm::cuda::Interpreter;
use isonorm::{Device, Error, GpuProperties, Isa, Layout, NormDesc, Result};
use isonorm_check::data::{backward_inputs, forward_inputs};
use isonorm_check::oracle::{self, Index};
use isonorm_check::runner::differences;
use isonorm_check::tolerance::{self, Expected};
use isonorm_check::{
    BackwardInputs, Case, CpuEngine, CudaEngine, Engine, ForwardInputs, InterpreterEngine, Outputs, suites,
};

/// A case's inputs, made once for many engines.
enum Inputs {
    Forward(ForwardInputs),
    Backward(Box<BackwardInputs>),
}

impl Inputs {
    fn of(case: &Case) -> Inputs {
        if case.desc.get_pass().is_backward() {
            Inputs::Backward(Box::new(backward_inputs(case)))
        } else {
            Inputs::Forward(forward_inputs(case))
        }
    }

    fn try_run(&self, engine: &mut dyn Engine, desc: &NormDesc) -> Result<Outputs> {
        match self {
            Inputs::Forward(inputs) => engine.forward(desc, inputs),
            Inputs::Backward(inputs) => engine.backward(desc, inputs),
        }
    }

    fn run(&self, engine: &mut CpuEngine, desc: &NormDesc) -> Outputs {
        self.try_run(engine, desc)
            .unwrap_or_else(|error| panic!("{desc}: {error}"))
    }
}

fn cases(names: &[&str]) -> Vec<Case> {
    let chosen = suites().into_iter().filter(|s| names.contains(&s.name));
    chosen.flat_map(|s| s.cases).collect()
}

/// Engines that have to agree, the first with one thread.
fn engines() -> Vec<CpuEngine> {
    let of_threads = [1, 2, 3, 8].map(Device::cpu_with_threads);
    let narrower = Isa::ALL.into_iter().filter_map(|isa| of_threads[0].with_isa(isa));
    let narrower: Vec<Device> = narrower.chain(of_threads[2].with_isa(Isa::Baseline)).collect();
    of_threads.into_iter().chain(narrower).map(CpuEngine::new).collect()
}

#[test]
fn threads_and_vectors_do_not_change_a_bit() {
    let mut engines = engines();
    for case in cases(&["smoke", "segments", "sync", "large"]) {
        let (first, others) = engines.split_first_mut().expect("there are several");
        let inputs = Inputs::of(&case);
        let expected = inputs.run(first, &case.desc);
        for engine in others {
            let found = differences(&expected, &inputs.run(engine, &case.desc));
            assert!(
                found.is_empty(),
                "{case} on {} and {}: {found:?}",
                first.name(),
                engine.name()
            );
        }
    }
}

#[test]
fn working_in_place_does_not_change_a_bit() {
    let mut engine = CpuEngine::new(Device::cpu_with_threads(3));
    let mut compared = 0;
    for case in cases(&["smoke", "pairwise"]) {
        let desc = case.desc.in_place(true);
        if desc.check().is_err() {
            continue;
        }
        let inputs = Inputs::of(&case);
        let apart = inputs.run(&mut engine, &desc.in_place(false));
        let found = differences(&apart, &inputs.run(&mut engine, &desc));
        assert!(found.is_empty(), "{case}: {found:?}");
        compared += 1;
    }
    assert!(compared > 50);
}

/// What one layout may be, from the oracle.
fn expected(case: &Case) -> Vec<Expected> {
    match Inputs::of(case) {
        Inputs::Forward(inputs) => tolerance::forward(case, &inputs, &oracle::forward(&case.desc, &inputs)),
        Inputs::Backward(inputs) => tolerance::backward(case, &inputs, &oracle::backward(&case.desc, &inputs)),
    }
}

/// The same logical tensors in channels-first memory conform to what channels-last may be, element by element.
/// Problems that only one layout has (runs of a mask are multiples of 16 bytes) are left out.
fn layouts_agree_on(engine: &mut dyn Engine) {
    let mut compared = 0;
    for case in cases(&["smoke"])
        .into_iter()
        .filter(|c| c.desc.get_norm().has_channels())
    {
        let [first, last] = [Layout::ChannelsFirst, Layout::ChannelsLast].map(|layout| Case {
            desc: case.desc.layout(layout),
            ..case
        });
        if first.desc.check().is_err() || last.desc.check().is_err() {
            continue;
        }
        let outputs = match Inputs::of(&first).try_run(engine, &first.desc) {
            Err(Error::Unsupported { .. }) => continue,
            ran => ran.unwrap_or_else(|error| panic!("{first}: {error}")),
        };
        compared += 1;
        let index = Index::of(&last.desc);
        for expected in expected(&last) {
            let got = outputs.get(expected.output).expect("the same outputs");
            let values = got.to_f64();
            let elementwise = expected.output.is_elementwise();
            for i in 0..values.len() {
                let v = values[if elementwise { index.logical(i) } else { i }];
                let (low, high) = expected.interval(i, got.dtype());
                assert!(
                    (low..=high).contains(&v),
                    "{case}: {} {v} not in {low}..{high}",
                    expected.output
                );
            }
        }
    }
    assert!(compared > 20, "{compared}");
}

#[test]
fn layouts_agree() {
    layouts_agree_on(&mut CpuEngine::new(Device::cpu_with_threads(2)));
}

#[test]
fn layouts_agree_on_gpus() {
    let h200 = GpuProperties::known("h200").expect("a known GPU");
    layouts_agree_on(&mut InterpreterEngine::new(Interpreter::new(h200)));
    for device in common::gpus("layouts") {
        layouts_agree_on(&mut CudaEngine::new(device).expect("a stream"));
    }
}
