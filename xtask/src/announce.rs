//! What `cargo xtask test` is going to download, said before it does.

use std::env;
use std::fs;
use std::path::PathBuf;

use anyhow::{Context as _, Result};

use crate::Context;
use crate::python;
use crate::steps::Steps;

/// The mean size of a compressed crate: 20 MB for 148 of them, measured in November 2026.
const CRATE_BYTES: usize = 135_000;

/// `name-version.crate` of every package in the lock file that comes from a registry.
fn archives(lock: &str) -> Vec<String> {
    let value = |block: &str, key: &str| {
        let line = block
            .lines()
            .find_map(|line| line.strip_prefix(key)?.strip_prefix(" = \""));
        line.map(|v| v.trim_end_matches('"').to_string())
    };
    let from_registry = lock
        .split("[[package]]")
        .filter(|block| block.contains("source = \"registry+"));
    from_registry
        .filter_map(|b| Some(format!("{}-{}.crate", value(b, "name")?, value(b, "version")?)))
        .collect()
}

/// The folders that cargo keeps downloaded crates in.
fn caches() -> Vec<PathBuf> {
    let home = env::var_os("CARGO_HOME")
        .map(PathBuf::from)
        .or_else(|| Some(env::home_dir()?.join(".cargo")));
    let Some(Ok(entries)) = home.map(|home| fs::read_dir(home.join("registry/cache"))) else {
        return Vec::new();
    };
    entries.flatten().map(|entry| entry.path()).collect()
}

fn crates(context: &Context) -> Result<String> {
    let path = context.root.join("Cargo.lock");
    let lock = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let (archives, caches) = (archives(&lock), caches());
    let missing = archives
        .iter()
        .filter(|archive| !caches.iter().any(|cache| cache.join(archive).is_file()))
        .count();
    Ok(match missing {
        0 => format!("nothing (all {} are here)", archives.len()),
        n => format!(
            "up to {n} of {}, about {:.0} MB",
            archives.len(),
            (n * CRATE_BYTES) as f64 / 1e6 + 0.5
        ),
    })
}

/// Prints what these steps download and where it goes.
pub fn downloads(context: &Context, steps: &Steps) -> Result<()> {
    println!("downloads");
    println!("  crates   {}", crates(context)?);
    if steps.need_python() {
        println!("  Python   45 MB (maturin, pytest, onnx, torchvision and others, for the package's tests)");
    }
    if !steps.need_python() {
        println!("  PyTorch  nothing (left out)");
    } else if python::present(context)?.is_some() {
        println!("  PyTorch  nothing (it is here)");
    } else {
        println!("  PyTorch  {}", python::download_size(&context.python));
        println!("           into {}", context.target.join("torch-venv").display());
        println!("           --rust-only leaves it out; --python PATH uses one that is installed");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_packages_are_not_downloaded() {
        let lock = "version = 4\n\n\
                    [[package]]\nname = \"half\"\nversion = \"2.7.1\"\nsource = \"registry+https://example\"\n\n\
                    [[package]]\nname = \"isonorm\"\nversion = \"0.1.0\"\n";
        assert_eq!(archives(lock), ["half-2.7.1.crate"]);
    }
}
