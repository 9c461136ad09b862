//! Several GPUs.

use std::thread;

use isonorm::cuda::Device;
use isonorm::{Error, Result};

use super::{Layer, gpu, say};

#[test]
fn a_plan_of_another_gpu_is_refused() -> Result<()> {
    let Some(first) = gpu("two GPUs") else { return Ok(()) };
    let Ok(second) = Device::get(1) else {
        say("two GPUs: there is one");
        return Ok(());
    };
    let (stream, other) = (first.stream()?, second.stream()?);
    let mut layer = Layer::new(&stream, 4, 64)?;
    let error = layer.run(&other).unwrap_err();
    assert!(matches!(error, Error::PlanMismatch { .. }), "{error}");
    layer.plan = second.plan(layer.plan.desc())?;
    let error = layer.run(&other).unwrap_err();
    assert!(matches!(error, Error::WrongMemory { .. }), "{error}");
    Ok(())
}

#[test]
fn all_gpus_at_once_and_in_turns_compute_the_same_bits() -> Result<()> {
    if gpu("several GPUs").is_none() {
        return Ok(());
    }
    let gpus = Device::all()?;
    if gpus.len() < 2 {
        say("several GPUs: there is one");
        return Ok(());
    }
    let work = |gpu: Device| -> Result<Vec<Vec<u32>>> {
        let stream = gpu.stream()?;
        let mut layer = Layer::new(&stream, 517, 1000)?;
        (0..25)
            .map(|_| layer.run(&stream).and_then(|()| layer.bits()))
            .collect()
    };
    let expected = work(gpus[0])?;
    let work = &work;
    let of_each: Vec<_> = thread::scope(|scope| {
        let threads: Vec<_> = gpus.iter().map(|&gpu| scope.spawn(move || work(gpu))).collect();
        threads.into_iter().map(|t| t.join().expect("no panic")).collect()
    });
    for (gpu, bits) in gpus.iter().zip(of_each) {
        assert!(bits? == expected, "{gpu}: other bits");
    }
    // One thread, whose current GPU changes from call to call.
    let streams = gpus.iter().map(|gpu| gpu.stream()).collect::<Result<Vec<_>>>()?;
    let layers = streams.iter().map(|stream| Layer::new(stream, 517, 1000));
    let mut layers = layers.collect::<Result<Vec<_>>>()?;
    for _ in 0..5 {
        for (layer, stream) in layers.iter_mut().zip(&streams) {
            layer.run(stream)?;
        }
    }
    for layer in &layers {
        assert!(layer.bits()? == expected[0], "other bits in turns");
    }
    Ok(())
}
