//! `ptxas`, out of the PyPI package `nvidia-cuda-nvcc`: assembles every kernel, and says what it takes.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail};

use super::module::Module;
use crate::Context;
use crate::process::run;

/// The GPUs that kernels are assembled for, as far as a module's target allows.
pub const GPUS: [u32; 6] = [80, 86, 89, 90, 100, 120];

/// The package with `ptxas`, about 40 MB.
const PACKAGE: &str = "nvidia-cuda-nvcc>=13,<14";

/// The assembler, installed.
pub struct Assembler(PathBuf);

/// What a kernel takes on a GPU.
#[derive(Debug, Default, PartialEq, Eq)]
struct Usage {
    kernel: String,
    registers: u32,
    stack_bytes: u32,
    spill_bytes: u32,
}

fn find(folder: &Path) -> Option<PathBuf> {
    let entries = fs::read_dir(folder).ok()?;
    entries.flatten().find_map(|entry| {
        let path = entry.path();
        match path.is_dir() {
            true => find(&path),
            false => (path.file_stem()? == "ptxas").then_some(path),
        }
    })
}

impl Assembler {
    /// Finds it in its environment under the target folder, which is made when missing.
    pub fn install(context: &Context) -> Result<Assembler> {
        let folder = context.target.join("ptxas-venv");
        if let Some(path) = find(&folder) {
            return Ok(Assembler(path));
        }
        run(Command::new("python3").args(["-m", "venv"]).arg(&folder))?;
        let python = folder.join(if cfg!(windows) { "Scripts/python" } else { "bin/python" });
        run(Command::new(python).args(["-m", "pip", "install", "--quiet", PACKAGE]))?;
        find(&folder).map(Assembler).context("the package has no ptxas")
    }

    /// Assembles a module for every GPU that can run it, prints what its kernels take, and returns how many there are.
    pub fn check(&self, context: &Context, module: &Module, text: &str) -> Result<usize> {
        let path = context
            .target
            .join("ptx")
            .join(format!("{}.{}.ptx", module.name(), module.target.cpu));
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
        let oldest: u32 = module.target.cpu.trim_start_matches("sm_").parse()?;
        let mut usages: Vec<Usage> = Vec::new();
        let gpus = GPUS.into_iter().filter(|&gpu| gpu >= oldest);
        let mut refused = Vec::new();
        for gpu in gpus.clone() {
            let these = self.usages(&path, gpu)?;
            let spilling = these.iter().filter(|usage| usage.stack_bytes + usage.spill_bytes > 0);
            refused.extend(spilling.map(|usage| format!("sm_{gpu}: {usage:?}")));
            if usages.is_empty() {
                usages = these;
            } else {
                for (most, usage) in usages.iter_mut().zip(these) {
                    most.registers = most.registers.max(usage.registers);
                }
            }
        }
        if !refused.is_empty() {
            let name = module.name();
            bail!(
                "{name}: expected no spill and no stack frame, and there is\n{}",
                refused.join("\n")
            );
        }
        let mut said = format!(
            "{}: {} KB of PTX; most registers on {:?}; no spill, no stack frame\n",
            module.name(),
            text.len() / 1000,
            gpus.collect::<Vec<_>>()
        );
        for usage in &usages {
            said += &format!("  {:<40} {:>4}\n", usage.kernel, usage.registers);
        }
        // At once, beside other modules.
        print!("{said}");
        Ok(usages.len())
    }

    fn usages(&self, path: &Path, gpu: u32) -> Result<Vec<Usage>> {
        let mut command = Command::new(&self.0);
        command
            .arg(format!("-arch=sm_{gpu}"))
            .args(["-v", "-o"])
            .arg(path.with_extension("cubin"))
            .arg(path);
        let output = command.stdin(Stdio::null()).output().context("cannot start ptxas")?;
        let text = String::from_utf8_lossy(&output.stderr);
        if !output.status.success() {
            bail!("ptxas failed for sm_{gpu}:\n{text}");
        }
        let usages = parse(&text);
        if usages.is_empty() {
            bail!("ptxas found no kernel for sm_{gpu}:\n{text}");
        }
        Ok(usages)
    }
}

/// The number before `what`.
fn number(line: &str, what: &str) -> u32 {
    let before = line.split(what).next().filter(|before| before.len() < line.len());
    before
        .and_then(|b| b.trim_end().rsplit([' ', ',']).next()?.parse().ok())
        .unwrap_or(0)
}

fn parse(report: &str) -> Vec<Usage> {
    let mut usages: Vec<Usage> = Vec::new();
    for line in report.lines() {
        if line.contains("Compiling entry function") {
            let kernel = line.split('\'').nth(1).unwrap_or_default().into();
            usages.push(Usage {
                kernel,
                ..Usage::default()
            });
        }
        let Some(usage) = usages.last_mut() else {
            continue;
        };
        usage.registers = usage.registers.max(number(line, " registers"));
        usage.stack_bytes = usage.stack_bytes.max(number(line, " bytes stack frame"));
        usage.spill_bytes += number(line, " bytes spill stores") + number(line, " bytes spill loads");
    }
    usages.sort_by(|a, b| a.kernel.cmp(&b.kernel));
    usages
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_report_is_understood() {
        let report = "ptxas info    : 0 bytes gmem\n\
                      ptxas info    : Compiling entry function 'a' for 'sm_80'\n\
                      ptxas info    : Function properties for a\n    \
                      8 bytes stack frame, 4 bytes spill stores, 12 bytes spill loads\n\
                      ptxas info    : Used 40 registers, used 1 barriers\n";
        let expected = Usage {
            kernel: "a".into(),
            registers: 40,
            stack_bytes: 8,
            spill_bytes: 16,
        };
        assert_eq!(parse(report), [expected]);
    }
}
