//! `cargo xtask ptx`: compiles the kernels to PTX, looks at what came out, and keeps it beside its sources.
//!
//! 1. rustc compiles each module (a family of kernels and an element type) for each target;
//! 2. whatever threads do together must have stayed a convergent intrinsic, and nothing may be left to call;
//! 3. `ptxas` assembles every kernel for every GPU of [`assemble::GPUS`]; a spill or a stack frame is an error;
//! 4. the text goes to `crates/isonorm-kernels/ptx/`, under a line with the hash of the sources.

mod assemble;
mod build;
mod module;
mod sources;
mod toolchain;

use std::fs;
use std::path::PathBuf;

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
    let mut kernels = 0;
    let mut modules = modules();
    modules.retain(|module| module.name().contains(&options.only));
    for module in &modules {
        let text = build::module(context, &toolchain, module, &hash)?;
        if let Some(assembler) = &assembler {
            kernels += assembler.check(context, module, &text)?;
        }
        if options.check && module.committed {
            check_text(context, module, &text)?;
        } else if module.committed {
            let path = path(context, module);
            fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
        }
    }
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
