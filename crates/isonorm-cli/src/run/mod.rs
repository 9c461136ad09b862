//! `isonorm run`: a tensor in a file, normalized into another.

mod args;
mod files;
mod outputs;
mod problem;
mod report;

pub(crate) use args::Args;

use std::time::Instant;

use isonorm::Device;

use crate::call::Call;
use crate::error::{Outcome, Result};
use crate::io::{self, Pending, Source};
use crate::screen::{Screen, progress};
use files::Files;
use report::{Report, Tensor};

pub(crate) fn execute(args: &Args, screen: &mut Screen) -> Result<Outcome> {
    args.device.pool()?.install(|| {
        let device = args.device.device()?;
        let files = Files::read(args)?;
        let desc = problem::describe(args, &files)?;
        let plan = device.plan(&desc)?;
        let read = |(name, file, array): (_, &Source, _)| Tensor::new(name, Some(file.to_string()), array);
        let mut tensors: Vec<_> = files.iter().map(read).collect();
        let shapes = files.shapes();
        let inputs = files.into_inputs(&desc, &device)?;
        let mut call = Call::new(plan.clone(), inputs, args.save(), args.momentum)?;
        let seconds = time(&mut call, &device, args.repeat)?;
        let outputs = outputs::named(&desc, call.into_outputs(), args.save(), &shapes);
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
        Report::new(&plan, &device, tensors, &seconds).show(screen)?;
        Ok(Outcome::Success)
    })
}

/// Runs the problem `repeat` times and returns the seconds that each took. The outputs are those of one run.
fn time(call: &mut Call, device: &Device, repeat: usize) -> Result<Vec<f64>> {
    let bar = progress(repeat as u64, "running");
    let mut seconds = Vec::with_capacity(repeat);
    for _ in 0..repeat {
        call.prepare();
        let start = Instant::now();
        call.run(device)?;
        seconds.push(start.elapsed().as_secs_f64());
        bar.inc(1);
    }
    bar.finish_and_clear();
    Ok(seconds)
}
