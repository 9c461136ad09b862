//! `cargo xtask ptx`: compiles the kernels to PTX, looks at what came out, and keeps it beside its sources.
//!
//! 1. rustc compiles each module (a family of kernels and an element type) for each target;
//! 2. whatever threads do together must have stayed a convergent intrinsic, in one place for all of them, and nothing may be left to call;
//! 3. `ptxas` assembles every kernel for every GPU of [`assemble::GPUS`]; a spill or a stack frame is an error;
//! 4. the text goes to `crates/isonorm-kernels/ptx/`, under a line with the hash of the sources.
//!
//! As many modules as there are cores are on their way at the same time.

mod apart;
mod assemble;
mod build;
mod module;
mod registers;
mod sources;
mod toolchain;

use std::num::NonZero;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::{fs, slice, thread};

use anyhow::{Context as _, Result, bail};
use clap::Args;

use crate::Context;
use crate::steps::Outcome;
use module::{Module, modules};
use toolchain::Toolchain;

/// What the user asks for.
#[derive(Args)]
pub struct Options {
    /// Write nothing; fail where the committed files are not what the sources give
    #[arg(long)]
    check: bool,
    /// Leave out `ptxas`, and its download
    #[arg(long)]
    no_assemble: bool,
    /// Only modules with this in their name, such as `rows_forward_bf16`
    #[arg(long, default_value = "")]
    only: String,
}

fn path(context: &Context, module: &Module) -> PathBuf {
    let folder = context.root.join("crates/isonorm-kernels/ptx");
    folder.join(format!("{}.{}.ptx", module.name(), module.target.cpu))
}

/// Every committed file must carry the hash of the sources; needs no toolchain.
pub fn check_hashes(context: &Context) -> Result<()> {
    let hash = sources::hash(&context.root)?;
    for module in modules().iter().filter(|module| module.committed) {
        let path = path(context, module);
        let text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        if !text.lines().next().is_some_and(|line| line.contains(&hash)) {
            bail!(
                "{} was made from other sources, expected those with hash {hash}; run `cargo xtask ptx`",
                path.display()
            );
        }
    }
    Ok(())
}

fn check_text(context: &Context, module: &Module, text: &str) -> Result<()> {
    let path = path(context, module);
    let committed = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    // Another version of the compiler writes other text; the line that names it is the first.
    if committed.lines().next() == text.lines().next() && committed != text {
        bail!("{} is not what the sources give; run `cargo xtask ptx`", path.display());
    }
    Ok(())
}

/// Writes a module's text, where it is committed, or compares it with what is there.
fn keep(context: &Context, module: &Module, text: &str, check: bool) -> Result<()> {
    if !module.committed {
        return Ok(());
    }
    if check {
        return check_text(context, module, text);
    }
    let path = path(context, module);
    fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))
}

/// What is to be done with every module, and those that nobody has begun with.
struct Work<'w> {
    context: &'w Context,
    toolchain: &'w Toolchain,
    assembler: Option<&'w assemble::Assembler>,
    hash: &'w str,
    check: bool,
    left: Mutex<slice::Iter<'w, Module>>,
}

impl<'w> Work<'w> {
    /// Compiles, assembles and keeps one module after the other, beside other workers. Returns how many kernels were assembled, and what is
    /// wrong with modules; one that does not compile ends all work, for the others would not, either.
    fn work(&self, worker: usize) -> Result<(usize, Vec<String>)> {
        let (mut kernels, mut wrong) = (0, Vec::new());
        while let Some(module) = self.next() {
            let text = build::module(self.context, self.toolchain, module, self.hash, worker);
            let text = text.inspect_err(|_| self.stop())?;
            match self.assemble_and_keep(module, &text) {
                Ok(of_module) => kernels += of_module,
                Err(error) => wrong.push(error.to_string()),
            }
        }
        Ok((kernels, wrong))
    }

    fn assemble_and_keep(&self, module: &Module, text: &str) -> Result<usize> {
        let assembled = self
            .assembler
            .map_or(Ok(0), |assembler| assembler.check(self.context, module, text))?;
        keep(self.context, module, text, self.check)?;
        Ok(assembled)
    }

    fn left(&self) -> MutexGuard<'_, slice::Iter<'w, Module>> {
        self.left.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn next(&self) -> Option<&'w Module> {
        self.left().next()
    }

    fn stop(&self) {
        *self.left() = [].iter();
    }
}

/// Has work done by as many workers as there are cores. Returns how many kernels were assembled; says of all modules what is wrong with them.
fn by_all_cores(work: &Work<'_>, modules: usize) -> Result<usize> {
    let workers = thread::available_parallelism().map_or(1, NonZero::get).min(modules);
    let done = thread::scope(|scope| {
        let working: Vec<_> = (0..workers)
            .map(|worker| scope.spawn(move || work.work(worker)))
            .collect();
        let done = working.into_iter().map(|worker| worker.join());
        done.map(|done| done.unwrap_or_else(|_| bail!("a worker stopped")))
            .collect::<Result<Vec<_>>>()
    })?;
    let (kernels, wrong): (Vec<usize>, Vec<Vec<String>>) = done.into_iter().unzip();
    match wrong.concat() {
        wrong if wrong.is_empty() => Ok(kernels.into_iter().sum()),
        wrong => bail!("{}", wrong.join("\n")),
    }
}

/// Builds, checks and writes (or compares) all modules.
pub fn run(context: &Context, options: &Options) -> Result<Outcome> {
    if options.check {
        check_hashes(context)?;
    }
    let Some(toolchain) = Toolchain::find() else {
        if options.check {
            return Ok(Outcome::Passed("hashes only: no toolchain for the GPU".into()));
        }
        bail!("{}", toolchain::MISSING);
    };
    let hash = sources::hash(&context.root)?;
    let assembler = match options.no_assemble {
        true => None,
        false => Some(assemble::Assembler::install(context)?),
    };
    let mut modules = modules();
    modules.retain(|module| module.name().contains(&options.only));
    let work = Work {
        context,
        toolchain: &toolchain,
        assembler: assembler.as_ref(),
        hash: &hash,
        check: options.check,
        left: Mutex::new(modules.iter()),
    };
    let kernels = by_all_cores(&work, modules.len())?;
    let assembled = match options.no_assemble {
        true => String::new(),
        false => format!(", {kernels} kernels assembled"),
    };
    Ok(Outcome::Passed(format!(
        "{} modules by {}{assembled}",
        modules.len(),
        toolchain.version()
    )))
}

/// The step of `cargo xtask test`: the hashes, and where the toolchain is at hand, the text.
pub fn step(context: &Context) -> Result<Outcome> {
    let options = Options {
        check: true,
        no_assemble: true,
        only: String::new(),
    };
    run(context, &options)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::python;

    #[test]
    fn committed_modules_carry_the_hash_of_the_sources() {
        check_hashes(&Context::new(python::Options::default()).unwrap()).unwrap();
    }
}
