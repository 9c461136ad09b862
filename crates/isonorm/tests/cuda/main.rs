//! The CUDA engine. Without a GPU: what is refused, and how. With one: everything else; what is skipped says so.
#![cfg(feature = "cuda")]

mod ablation;
mod again;
mod channels;
mod scratch;
mod several;

use std::io::Write;
use std::thread;

use isonorm::cuda::{Backward, Buffer, Device, Forward, Plan, Stream, View, Workspace};
use isonorm::{DType, Error, NormDesc, Pass, Result, bf16};

/// The first GPU; where there is none, a line says what is left out.
fn gpu(what: &str) -> Option<Device> {
    match Device::first() {
        Ok(device) => Some(device),
        Err(error) => {
            say(&format!("{what}: {error}"));
            None
        }
    }
}

/// Past the test harness, which would keep it to itself.
fn say(skipped: &str) {
    let _ = writeln!(std::io::stderr(), "SKIPPED: {skipped}");
}

/// So many numbers, which are those of a small tensor again and again.
fn repeated(stream: &Stream, small: &Buffer<bf16>, len: usize) -> Result<Buffer<bf16>> {
    let mut large = stream.zeros::<bf16>(len)?;
    for start in (0..len).step_by(small.len()) {
        let end = len.min(start + small.len());
        let (from, to) = (small.get(0..end - start), large.get_mut(start..end));
        stream.copy(from.expect("in bounds"), to.expect("in bounds"))?;
    }
    Ok(large)
}

#[test]
fn without_a_gpu_there_is_an_error_and_never_a_panic() {
    match (
        Device::count(),
        Device::first(),
        Device::all(),
        isonorm::cuda::driver_version(),
    ) {
        (Ok(count), Ok(device), Ok(all), Ok(version)) => {
            assert_eq!((all.len(), device.ordinal()), (count as usize, 0));
            assert!(version.contains('.'), "{version}");
            assert!(matches!(Device::get(count), Err(Error::NoGpu { .. })));
        }
        (count, device, all, _) => {
            for error in [count.err(), device.err(), all.err()] {
                let error = error.expect("none of them works");
                assert!(matches!(error, Error::NoGpu { .. }), "{error}");
                assert!(error.to_string().starts_with("no GPU: "), "{error}");
            }
        }
    }
}

#[test]
fn handles_may_go_to_other_threads() {
    fn shared<T: Send + Sync>() {}
    shared::<(Device, Stream, Plan, Buffer<f32>)>();
    shared::<(isonorm::cuda::Graph, isonorm::cuda::Event, View<'static>)>();
}

/// A LayerNorm with its tensors.
struct Layer {
    plan: Plan,
    x: Buffer<f32>,
    weight: Buffer<f32>,
    bias: Buffer<f32>,
    y: Buffer<f32>,
}

impl Layer {
    fn new(stream: &Stream, rows: usize, columns: usize) -> Result<Layer> {
        let value = |i: usize| ((i * 7919 % 1013) as f32) / 100.0;
        let data: Vec<f32> = (0..rows * columns).map(value).collect();
        Ok(Layer {
            plan: stream.device().plan(&NormDesc::layer_norm([rows, columns], 1))?,
            x: stream.upload(&data)?,
            weight: stream.upload(&vec![1.5; columns])?,
            bias: stream.upload(&vec![0.25; columns])?,
            y: stream.zeros(rows * columns)?,
        })
    }

    fn run(&mut self, stream: &Stream) -> Result<()> {
        let arguments = Forward::new(&self.x, &mut self.y).weight(&self.weight).bias(&self.bias);
        stream.forward(&self.plan, arguments, Workspace::Pool)
    }

    fn bits(&self) -> Result<Vec<u32>> {
        Ok(self.y.to_vec()?.into_iter().map(f32::to_bits).collect())
    }
}

#[test]
fn copies_come_back_and_lengths_are_checked() -> Result<()> {
    let Some(gpu) = gpu("copies") else { return Ok(()) };
    let stream = gpu.stream()?;
    let data: Vec<f32> = (0..1000).map(|i| i as f32).collect();
    let mut buffer = stream.upload(&data)?;
    let mut copy = stream.zeros::<f32>(1000)?;
    assert_eq!(copy.to_vec()?, vec![0.0; 1000]);
    stream.copy(buffer.view(), copy.view_mut())?;
    assert_eq!(copy.to_vec()?, data);
    assert!(matches!(buffer.copy_from(&[1.0]), Err(Error::LengthMismatch { .. })));
    assert!(stream.upload::<f32>(&[])?.is_empty());
    assert!(buffer.get(0..1001).is_none() && buffer.get(10..20).is_some());
    Ok(())
}

#[test]
fn a_hundred_runs_on_four_threads_are_the_same_bits() -> Result<()> {
    let Some(gpu) = gpu("the same bits on four threads") else {
        return Ok(());
    };
    let stream = gpu.stream()?;
    let mut layer = Layer::new(&stream, 333, 1000)?;
    layer.run(&stream)?;
    let expected = layer.bits()?;
    let work = || -> Result<()> {
        let stream = gpu.stream()?;
        let mut layer = Layer::new(&stream, 333, 1000)?;
        for _ in 0..25 {
            layer.run(&stream)?;
            assert!(layer.bits()? == expected, "other bits");
        }
        Ok(())
    };
    let work = &work;
    thread::scope(|scope| {
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(work)).collect();
        threads.into_iter().try_for_each(|t| t.join().expect("no panic"))
    })
}

/// GroupNorms of channels whose rows the whole grid shares, with a counter where there are many runs and a residual, by messages otherwise:
/// the workspace is used again and again.
#[test]
fn a_grid_that_exchanges_gives_the_same_bits_each_time_also_on_two_streams_at_once() -> Result<()> {
    let Some(gpu) = gpu("a grid that exchanges") else {
        return Ok(());
    };
    let added = "groupnorm x=3x800x30x30 groups=2 act=silu residual=add";
    exchange(&gpu, (added, 800), "rows/grid")?;
    exchange(&gpu, ("groupnorm x=3x8x800x800 groups=2 act=silu", 8), "rows/pieces")?;
    exchange(&gpu, ("groupnorm x=3x8x300x300 groups=2", 8), "rows/chip")
}

fn exchange(gpu: &Device, (problem, channels): (&str, usize), name: &str) -> Result<()> {
    let desc: NormDesc = problem.parse()?;
    let plan = gpu.plan(&desc)?;
    assert_eq!(plan.name(), name, "{}", *plan);
    assert!(plan.kernels()[0].resident, "{}", *plan);
    let elements = desc.get_shape().elements().expect("a size");
    let data: Vec<f32> = (0..elements).map(|i| ((i * 7919 % 1013) as f32) / 100.0).collect();
    let work = || -> Result<Vec<u32>> {
        let stream = gpu.stream()?;
        let (x, weight) = (stream.upload(&data)?, stream.upload(&vec![1.5f32; channels])?);
        let (mut y, mut expected) = (stream.zeros::<f32>(elements)?, None);
        for _ in 0..10 {
            let mut arguments = Forward::new(&x, &mut y).weight(&weight).bias(&weight);
            if desc.has_residual() {
                arguments = arguments.residual(&x);
            }
            stream.forward(&plan, arguments, Workspace::Pool)?;
            let bits: Vec<u32> = y.to_vec()?.into_iter().map(f32::to_bits).collect();
            assert!(*expected.get_or_insert_with(|| bits.clone()) == bits, "other bits");
        }
        Ok(expected.unwrap_or_default())
    };
    thread::scope(|scope| {
        let threads = [scope.spawn(work), scope.spawn(work)];
        let [one, other] = threads.map(|t| t.join().expect("no panic"));
        assert!(one? == other?, "other bits");
        Ok(())
    })
}

/// Gradients, with a workspace of the caller's and from the pool, by a kernel that needs none and by two that do.
#[test]
fn gradients_are_the_same_bits_whatever_the_workspace() -> Result<()> {
    let Some(gpu) = gpu("gradients") else { return Ok(()) };
    for columns in [1024, 5120] {
        gradients(&gpu, 777, columns)?;
    }
    Ok(())
}

fn gradients(gpu: &Device, rows: usize, columns: usize) -> Result<()> {
    let stream = gpu.stream()?;
    let desc = NormDesc::layer_norm([rows, columns], 1).pass(Pass::Backward);
    let plan = gpu.plan(&desc)?;
    let value = |i: usize| ((i * 7919 % 1013) as f32) / 500.0 - 1.0;
    let data: Vec<f32> = (0..rows * columns).map(value).collect();
    let (x, dy) = (stream.upload(&data)?, stream.upload(&data[..])?);
    let (weight, mean) = (
        stream.upload(&vec![1.5f32; columns])?,
        stream.upload(&vec![0.0f32; rows])?,
    );
    let rstd = stream.upload(&vec![1.7f32; rows])?;
    let mut dx = stream.zeros::<f32>(rows * columns)?;
    let (mut dweight, mut dbias) = (stream.zeros::<f32>(columns)?, stream.zeros::<f32>(columns)?);
    let mut workspace = stream.zeros::<f32>(plan.workspace_bytes() / 4 + 1)?;

    let mut run = |workspace: Workspace<'_>| -> Result<Vec<f32>> {
        let arguments = Backward::new(&x, &dy, &mut dx)
            .weight(&weight)
            .saved(&mean, &rstd)
            .dweight(&mut dweight)
            .dbias(&mut dbias);
        stream.backward(&plan, arguments, workspace)?;
        Ok([dx.to_vec()?, dweight.to_vec()?, dbias.to_vec()?].concat())
    };
    let expected = run(Workspace::Pool)?;
    assert_eq!(expected, run(Workspace::Given(workspace.view_mut()))?);
    for _ in 0..20 {
        assert!(expected == run(Workspace::Pool)?, "the same bits each time");
    }
    // One kernel needs no workspace; where the last-level cache is small, there are two of the short rows as well.
    if plan.kernels().len() > 1 {
        let off = workspace.get_mut(1..plan.workspace_bytes() / 4 + 1).expect("as long");
        let error = run(Workspace::Given(off)).unwrap_err();
        assert!(matches!(error, Error::Misaligned { .. }), "{error}");
    }
    let sum: f64 = expected[rows * columns + columns..].iter().map(|d| f64::from(*d)).sum();
    let of_dy: f64 = data.iter().map(|d| f64::from(*d)).sum();
    assert!((sum - of_dy).abs() < 0.1, "{sum} {of_dy}");
    Ok(())
}

/// They are launched with different amounts of shared memory, of which the driver knows one maximum.
#[test]
fn plans_that_share_a_kernel_do_not_take_each_others_memory() -> Result<()> {
    let Some(gpu) = gpu("plans of one kernel") else {
        return Ok(());
    };
    let stream = gpu.stream()?;
    let (mut more, less) = (Layer::new(&stream, 3, 65_536)?, Layer::new(&stream, 3, 40_960)?);
    let [of_more, of_less] = [&more, &less].map(|layer| layer.plan.kernels()[0]);
    if of_more.entry != of_less.entry || of_more.shared_bytes <= of_less.shared_bytes {
        say("plans of one kernel: here these are of two, or take the same memory");
    }
    more.plan.prepare()?;
    less.plan.prepare()?;
    more.run(&stream)?;
    stream.synchronize()
}

#[test]
fn another_streams_tensors_are_worked_on_in_order() -> Result<()> {
    let Some(gpu) = gpu("two streams") else { return Ok(()) };
    let (one, other) = (gpu.stream()?, gpu.stream()?);
    let mut layer = Layer::new(&one, 4096, 1024)?;
    layer.run(&one)?;
    let expected = layer.bits()?;
    for _ in 0..20 {
        layer.y = one.zeros(4096 * 1024)?;
        layer.run(&other)?;
        assert!(layer.bits()? == expected, "other bits");
    }
    Ok(())
}

#[test]
fn a_graph_replays_and_an_unprepared_plan_is_refused_in_a_capture() -> Result<()> {
    let Some(gpu) = gpu("graphs") else { return Ok(()) };
    let stream = gpu.stream()?;
    // A shape that no other test has, so that its plan is new.
    let mut layer = Layer::new(&stream, 77, 123)?;
    let error = stream.capture(|stream| layer.run(stream)).unwrap_err();
    assert!(matches!(error, Error::Capturing { .. }), "{error}");
    let error = stream.capture(|stream| stream.zeros::<f32>(3).map(drop)).unwrap_err();
    assert!(matches!(error, Error::Capturing { .. }), "{error}");

    layer.plan.prepare()?;
    let graph = stream.capture(|stream| layer.run(stream))?;
    assert!(layer.y.to_vec()?.iter().all(|y| *y == 0.0), "recorded, not done");
    // SAFETY: the layer outlives the graph, and only this stream works on it.
    unsafe { graph.launch(&stream)? };
    let replayed = layer.bits()?;
    layer.y = stream.zeros(77 * 123)?;
    layer.run(&stream)?;
    assert!(layer.bits()? == replayed, "other bits");
    Ok(())
}

#[test]
fn host_memory_is_refused_and_the_context_survives() -> Result<()> {
    let Some(gpu) = gpu("pointers of the host") else {
        return Ok(());
    };
    let stream = gpu.stream()?;
    let mut layer = Layer::new(&stream, 4, 64)?;
    let host = vec![0.0f32; 4 * 64];
    // SAFETY: the host's memory outlives the call, which refuses it.
    let x = unsafe { View::from_raw(host.as_ptr() as u64, host.len(), DType::F32) };
    let arguments = Forward::new(x, &mut layer.y).weight(&layer.weight).bias(&layer.bias);
    let error = stream.forward(&layer.plan, arguments, Workspace::Pool).unwrap_err();
    assert!(matches!(error, Error::WrongMemory { tensor: "x", .. }), "{error}");
    // SAFETY: the buffer outlives the call, in its own stream.
    let x = unsafe { View::from_raw(layer.x.address(), layer.x.len(), DType::F32) };
    let arguments = Forward::new(x, &mut layer.y).weight(&layer.weight).bias(&layer.bias);
    stream.forward(&layer.plan, arguments, Workspace::Pool)?;
    stream.synchronize()
}

#[test]
fn too_much_memory_is_refused_and_the_context_survives() -> Result<()> {
    let Some(gpu) = gpu("out of memory") else { return Ok(()) };
    let stream = gpu.stream()?;
    for len in [1 << 45, usize::MAX / 2] {
        let error = stream.zeros::<f32>(len).unwrap_err();
        assert!(matches!(error, Error::OutOfMemory { .. }), "{error}");
    }
    Layer::new(&stream, 4, 64)?.run(&stream)?;
    stream.synchronize()
}

/// The rows of a small tensor again and again: each result is, bit by bit, that of the same row of the small one.
#[test]
fn more_than_2_32_elements() -> Result<()> {
    const COLUMNS: usize = 4096;
    const TILE: usize = 1031;
    const ROWS: usize = (1 << 20) + 1033;
    let Some(gpu) = gpu("more than 2^32 elements") else {
        return Ok(());
    };
    let (all, tile) = (ROWS * COLUMNS, TILE * COLUMNS);
    let needed = 3 * all * size_of::<bf16>() + (1 << 30);
    let (free, _) = gpu.memory()?;
    if free < needed {
        say(&format!(
            "more than 2^32 elements: {needed} bytes are needed, {free} are free"
        ));
        return Ok(());
    }
    let stream = gpu.stream()?;
    let numbers = |seed: usize| -> Vec<bf16> {
        let number = |i: usize| ((i * 7919 + seed) % 2003) as f32 / 500.0 - 2.0;
        (0..tile).map(|i| bf16::from_f32(number(i))).collect()
    };
    let (weight, bias) = (stream.upload(&[1.5f32; COLUMNS])?, stream.upload(&[0.25f32; COLUMNS])?);
    let (small_x, small_dy) = (stream.upload(&numbers(1))?, stream.upload(&numbers(2))?);
    let run = |rows: usize, x: &Buffer<bf16>, dy: &Buffer<bf16>, out: &mut Buffer<bf16>, pass: Pass| -> Result<()> {
        let desc = NormDesc::layer_norm([rows, COLUMNS], 1).dtype(DType::Bf16);
        let (mut mean, mut rstd) = (stream.zeros::<f32>(rows)?, stream.zeros::<f32>(rows)?);
        let forward = Forward::new(x, &mut *out).weight(&weight).bias(&bias);
        stream.forward(&gpu.plan(&desc)?, forward.save(&mut mean, &mut rstd), Workspace::Pool)?;
        if pass == Pass::Backward {
            let backward = Backward::new(x, dy, out).weight(&weight).bias(&bias);
            stream.backward(
                &gpu.plan(&desc.pass(pass))?,
                backward.saved(&mean, &rstd),
                Workspace::Pool,
            )?;
        }
        stream.synchronize()
    };
    let (x, dy) = (repeated(&stream, &small_x, all)?, repeated(&stream, &small_dy, all)?);
    for pass in [Pass::Train, Pass::Backward] {
        let (mut large, mut small) = (stream.zeros::<bf16>(all)?, stream.zeros::<bf16>(tile)?);
        run(TILE, &small_x, &small_dy, &mut small, pass)?;
        run(ROWS, &x, &dy, &mut large, pass)?;
        let expected = small.to_vec()?;
        for start in (0..all).step_by(tile) {
            let end = all.min(start + tile);
            let to = small.get_mut(0..end - start).expect("in bounds");
            stream.copy(large.get(start..end).expect("in bounds"), to)?;
            let same = small.to_vec()?[..end - start] == expected[..end - start];
            assert!(same, "{pass:?}: other bits from element {start} on");
        }
    }
    Ok(())
}
