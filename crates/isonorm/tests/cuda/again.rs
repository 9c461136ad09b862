//! Calls that come again are launched as graphs, each with its own arguments.

use isonorm::cuda::{Backward, Buffer, Forward, Plan, Stream, Workspace};
use isonorm::{NormDesc, Pass, Result};

use super::gpu;

/// Kernels of blocks, of clusters, and of blocks that leave messages for each other; one for a call, or two.
const PROBLEMS: [&str; 8] = [
    "layernorm x=64x1024",
    "groupnorm x=4x64x56x56 groups=8 dtype=f32",
    "batchnorm x=64x8x56x56",
    "batchnorm x=33x24x300x9 layout=nhwc",
    "layernorm x=64x1024 pass=backward",
    "layernorm x=777x5120 pass=backward",
    "groupnorm x=4x64x56x56 groups=8 pass=backward",
    "batchnorm x=33x24x300x9 layout=nhwc pass=backward",
];

/// A problem with its tensors.
struct Call {
    plan: Plan,
    x: Buffer<f32>,
    dy: Buffer<f32>,
    weight: Buffer<f32>,
    mean: Buffer<f32>,
    rstd: Buffer<f32>,
    /// y, or dx; dweight and dbias.
    results: [Buffer<f32>; 3],
}

impl Call {
    fn new(stream: &Stream, problem: &str, seed: usize) -> Result<Call> {
        let plan = stream.device().plan(&problem.parse::<NormDesc>()?)?;
        plan.prepare()?;
        let geometry = plan.geometry();
        let data = |len: usize, factor: usize| -> Result<Buffer<f32>> {
            let value = |i: usize| ((i * factor + seed * 131) % 1013) as f32 / 500.0 - 1.0;
            stream.upload(&(0..len).map(value).collect::<Vec<_>>())
        };
        Ok(Call {
            x: data(geometry.elements(), 7919)?,
            dy: data(geometry.elements(), 104_729)?,
            weight: data(geometry.parameters, 1301)?,
            mean: data(geometry.groups(), 17)?,
            rstd: data(geometry.groups(), 23)?,
            results: Call::nothing(stream, &plan)?,
            plan,
        })
    }

    fn nothing(stream: &Stream, plan: &Plan) -> Result<[Buffer<f32>; 3]> {
        let [elements, parameters] = [plan.geometry().elements(), plan.geometry().parameters];
        Ok([
            stream.zeros(elements)?,
            stream.zeros(parameters)?,
            stream.zeros(parameters)?,
        ])
    }

    /// Into a stream, with results in new memory; those of a backward pass with gradients of the parameters or without.
    fn put(&mut self, stream: &Stream, gradients: bool) -> Result<()> {
        self.results = Call::nothing(stream, &self.plan)?;
        self.record(stream, gradients)
    }

    /// The same with results where they are.
    fn record(&mut self, stream: &Stream, gradients: bool) -> Result<()> {
        let [result, dweight, dbias] = &mut self.results;
        if self.plan.desc().get_pass() != Pass::Backward {
            let arguments = Forward::new(&self.x, result).weight(&self.weight).bias(&self.weight);
            return stream.forward(&self.plan, arguments, Workspace::Pool);
        }
        let mut arguments = Backward::new(&self.x, &self.dy, result)
            .weight(&self.weight)
            .saved(&self.mean, &self.rstd);
        if gradients {
            arguments = arguments.dweight(dweight).dbias(dbias);
        }
        stream.backward(&self.plan, arguments, Workspace::Pool)
    }

    fn bits(&self) -> Result<Vec<u32>> {
        let mut bits = Vec::new();
        for result in &self.results {
            bits.extend(result.to_vec()?.into_iter().map(f32::to_bits));
        }
        Ok(bits)
    }
}

/// What each call computes where it comes for the first time, with gradients of parameters and without.
fn alone(stream: &Stream, call: &mut Call) -> Result<[Vec<u32>; 2]> {
    let mut bits = |gradients| {
        let stream = stream.device().stream()?;
        call.put(&stream, gradients)?;
        assert_eq!(stream.graphs(), 0, "of a call that came once");
        call.bits()
    };
    Ok([bits(false)?, bits(true)?])
}

#[test]
fn each_has_its_own_arguments() -> Result<()> {
    let Some(gpu) = gpu("calls that come again") else {
        return Ok(());
    };
    let stream = gpu.stream()?;
    let mut calls = Vec::new();
    for seed in 0..3 {
        for problem in PROBLEMS {
            let mut call = Call::new(&stream, problem, seed)?;
            let expected = alone(&stream, &mut call)?;
            calls.push((problem, call, expected));
        }
    }
    let different = |k: usize| calls[k].2 != calls[k + PROBLEMS.len()].2;
    assert!((0..PROBLEMS.len()).all(different), "results that tell nothing");
    for round in 0..6 {
        // Without and with gradients of the parameters in turns, and nothing waited for meanwhile.
        let gradients = round % 2 == 1;
        calls
            .iter_mut()
            .try_for_each(|(_, call, _)| call.put(&stream, gradients))?;
        for (problem, call, expected) in &calls {
            assert!(
                call.bits()? == expected[usize::from(gradients)],
                "{problem}: other bits"
            );
        }
    }
    // One for each plan of a forward pass, two for the others.
    let backward = PROBLEMS.iter().filter(|problem| problem.contains("backward")).count();
    assert_eq!(stream.graphs(), PROBLEMS.len() + backward);

    // What is recorded is not done, also of calls that have a graph.
    for (_, call, _) in &mut calls {
        call.results = Call::nothing(&stream, &call.plan)?;
    }
    let recorded = stream.capture(|stream| calls.iter_mut().try_for_each(|(_, call, _)| call.record(stream, true)))?;
    let is_nothing = |call: &Call| Ok(call.bits()?.iter().all(|bits| *bits == 0));
    assert!(is_nothing(&calls[0].1)?, "done while it was recorded");
    // SAFETY: the tensors outlive the graph, and only this stream works on them.
    unsafe { recorded.launch(&stream)? };
    for (problem, call, expected) in &calls {
        assert!(
            call.bits()? == expected[1],
            "{problem}: other bits of what was recorded"
        );
    }
    Ok(())
}

#[test]
fn two_streams_launch_one_plan_beside_each_other() -> Result<()> {
    let Some(gpu) = gpu("one plan on two streams") else {
        return Ok(());
    };
    let streams = [gpu.stream()?, gpu.stream()?];
    for problem in PROBLEMS {
        let mut calls = Vec::new();
        for (seed, stream) in streams.iter().enumerate() {
            let mut call = Call::new(stream, problem, seed)?;
            let [_, expected] = alone(stream, &mut call)?;
            calls.push((call, expected));
        }
        for _ in 0..20 {
            for (stream, (call, _)) in streams.iter().zip(&mut calls) {
                call.put(stream, true)?;
            }
        }
        for (stream, (call, expected)) in streams.iter().zip(&calls) {
            assert!(call.bits()? == *expected, "{problem}: other bits");
            assert!(stream.graphs() > 0, "{problem}: launched one by one");
        }
    }
    Ok(())
}

/// A graph takes memory of the GPU, and problems whose sizes vary may make any number.
#[test]
fn a_stream_has_some_graphs_and_forgets_those_of_calls_that_come_no_more() -> Result<()> {
    const MOST: usize = 256;
    let Some(gpu) = gpu("as many graphs as a stream has") else {
        return Ok(());
    };
    let stream = gpu.stream()?;
    let mut calls = Vec::new();
    for number in 0..MOST + 40 {
        let mut call = Call::new(&stream, &format!("layernorm x=3x{}", 64 + 4 * number), number)?;
        let [_, expected] = alone(&stream, &mut call)?;
        calls.push((call, expected));
    }
    for _ in 0..3 {
        calls.iter_mut().try_for_each(|(call, _)| call.put(&stream, true))?;
    }
    assert_eq!(stream.graphs(), MOST, "more, or not all that there may be");
    // All others came long ago then.
    for _ in 0..5000 {
        calls[0].0.record(&stream, true)?;
    }
    for _ in 0..3 {
        calls[MOST..]
            .iter_mut()
            .try_for_each(|(call, _)| call.put(&stream, true))?;
        assert!(stream.graphs() <= MOST, "a graph for each of too many");
    }
    assert_eq!(stream.graphs(), MOST, "none for calls that came later");
    for (call, expected) in &calls {
        assert!(call.bits()? == *expected, "{}: other bits", call.plan.desc());
    }
    Ok(())
}
