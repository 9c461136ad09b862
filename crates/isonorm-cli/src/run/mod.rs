//! `isonorm run`: a tensor in a file, normalized into another.

mod args;
mod files;
mod outputs;
mod problem;
mod report;

pub(crate) use args::Args;

use std::time::Instant;

use isonorm::{Device, NormDesc, cuda};

use crate::call::{Call, GpuCall, Inputs, Outputs};
use crate::error::{Outcome, Result};
use crate::io::{self, Pending, Source};
use crate::screen::{Screen, progress};
use files::Files;
use report::{Report, Tensor, Work};

pub(crate) fn execute(args: &Args, screen: &mut Screen) -> Result<Outcome> {
    args.device.pool()?.install(|| {
        let device = args.device.device()?;
        let files = Files::read(args)?;
        let desc = problem::describe(args, &files)?;
        let gpu = args.device.gpu()?;
        let read = |(name, file, array): (_, &Source, _)| Tensor::new(name, Some(file.to_string()), array);
        let mut tensors: Vec<_> = files.iter().map(read).collect();
        let shapes = files.shapes();
        let inputs = files.into_inputs(&desc, &device)?;
        let (work, outputs) = match gpu {
            Some(gpu) => on_gpu(gpu, &desc, &inputs, args)?,
            None => on_cpu(&device, &desc, inputs, args)?,
        };
        let outputs = outputs::named(&desc, outputs, args.save(), &shapes);
        if let Some(path) = &args.output {
            let arrays: Vec<_> = outputs.iter().map(|(name, array)| (*name, array)).collect();
            io::stage(path, &arrays)?.into_iter().try_for_each(Pending::publish)?;
        }
        let file = |i, name| args.output.as_ref().map(|path| io::destination(path, i, name));
        let written = outputs
            .iter()
            .enumerate()
            .map(|(i, (name, array))| Tensor::new(name, file(i, name), array));
        tensors.extend(written);
        Report::new(work, tensors).show(screen)?;
        Ok(Outcome::Success)
    })
}

fn on_cpu(device: &Device, desc: &NormDesc, inputs: Inputs, args: &Args) -> Result<(Work, Outputs)> {
    let mut call = Call::new(device.plan(desc)?, inputs, args.save(), args.momentum)?;
    let seconds = repeat(args.repeat, || {
        call.prepare();
        let start = Instant::now();
        call.run(device)?;
        Ok(start.elapsed().as_secs_f64())
    })?;
    let work = Work {
        desc: *desc,
        plan: call.plan().name(),
        device: device.to_string(),
        compulsory_bytes: call.plan().traffic().compulsory_bytes,
        seconds,
    };
    Ok((work, call.into_outputs()))
}

fn on_gpu(gpu: cuda::Device, desc: &NormDesc, inputs: &Inputs, args: &Args) -> Result<(Work, Outputs)> {
    let stream = gpu.stream()?;
    let mut call = GpuCall::new(gpu.plan(desc)?, &stream, inputs, args.save(), args.momentum)?;
    call.plan().prepare()?;
    let seconds = repeat(args.repeat, || {
        call.prepare()?;
        let start = stream.record()?;
        call.run()?;
        Ok(stream.record()?.seconds_since(&start)?)
    })?;
    let work = Work {
        desc: *desc,
        plan: call.plan().name(),
        device: gpu.to_string(),
        compulsory_bytes: call.plan().traffic().compulsory_bytes,
        seconds,
    };
    Ok((work, call.into_outputs()?))
}

/// Runs the problem so many times and returns the seconds that each took. The outputs are those of one run.
fn repeat(times: usize, mut run: impl FnMut() -> Result<f64>) -> Result<Vec<f64>> {
    let bar = progress(times as u64, "running");
    let seconds = (0..times).map(|_| {
        bar.inc(1);
        run()
    });
    let seconds = seconds.collect();
    bar.finish_and_clear();
    seconds
}
