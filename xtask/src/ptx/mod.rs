//! `cargo xtask ptx`: compiles the kernels to PTX, looks at what came out, and keeps it beside its sources.
//!
//! 1. rustc compiles each module (a family of kernels and an element type) for each target;
//! 2. whatever threads do together must have stayed a convergent intrinsic, in one place for all of them, and nothing may be left to call;
//! 3. `ptxas` assembles every kernel for every GPU of [`assemble::GPUS`]; a spill or a stack frame is an error;
//! 4. the text goes to `crates/isonorm-kernels/ptx/`, under a line with the hash of the sources.

mod apart;
mod assemble;
mod build;
mod module;
mod registers;
mod sources;
mod toolchain;

use std::fs;
use std::path::PathBuf;
use std::sync::mpsc;
use std::thread;

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

/// Assembles modules as they come, keeps those that nothing is wrong with, and returns how many kernels were assembled; says of all
/// modules what is wrong with them.
fn assemble_all<'m>(
    context: &Context,
    assembler: Option<&assemble::Assembler>,
    modules: impl IntoIterator<Item = (&'m Module, String)>,
    check: bool,
) -> Result<usize> {
    let (mut kernels, mut wrong) = (0, Vec::new());
    for (module, text) in modules {
        let assembled = assembler.map_or(Ok(0), |assembler| assembler.check(context, module, &text));
        match assembled.and_then(|of_module| keep(context, module, &text, check).map(|()| of_module)) {
            Ok(of_module) => kernels += of_module,
            Err(error) => wrong.push(error.to_string()),
        }
    }
    match wrong.is_empty() {
        true => Ok(kernels),
        false => bail!("{}", wrong.join("\n")),
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
    // A module is assembled while the next one is compiled.
    let kernels = thread::scope(|scope| {
        let (compiled, to_assemble) = mpsc::channel::<(&Module, String)>();
        let assembler = assembler.as_ref();
        let assembled = scope.spawn(move || assemble_all(context, assembler, to_assemble, options.check));
        for module in &modules {
            let text = build::module(context, &toolchain, module, &hash)?;
            // Where nobody takes it any more, what went wrong is in the result.
            let _ = compiled.send((module, text));
        }
        drop(compiled);
        assembled
            .join()
            .unwrap_or_else(|_| bail!("the assembler's thread stopped"))
    })?;
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
