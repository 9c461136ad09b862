//! The hash of what PTX is made from.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

/// The folders whose sources the kernels are made from.
const FOLDERS: [&str; 2] = ["crates/isonorm-math/src", "crates/isonorm-kernels/src"];

fn collect(folder: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    let entries = fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))?;
    for entry in entries {
        let path = entry?.path();
        if path.is_dir() {
            collect(&path, files)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    Ok(())
}

/// FNV-1a with 128 bits: tells sources apart, and is no protection against anyone.
fn fnv(mut state: u128, bytes: impl Iterator<Item = u8>) -> u128 {
    const PRIME: u128 = (1 << 88) + 0x13b;
    for byte in bytes {
        state = (state ^ u128::from(byte)).wrapping_mul(PRIME);
    }
    state
}

/// The hash of all sources, with their names, as hexadecimal digits. The ends of lines do not count.
pub fn hash(root: &Path) -> Result<String> {
    const START: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
    let mut files = Vec::new();
    for folder in FOLDERS {
        collect(&root.join(folder), &mut files)?;
    }
    let names = |path: &PathBuf| {
        let relative = path.strip_prefix(root).unwrap_or(path);
        let parts = relative.components().map(|part| part.as_os_str().to_string_lossy());
        parts.collect::<Vec<_>>().join("/")
    };
    files.sort_by_key(names);
    let mut state = START;
    for path in &files {
        let text = fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
        state = fnv(state, names(path).bytes().chain([0]));
        state = fnv(state, text.into_iter().filter(|&byte| byte != b'\r').chain([0]));
    }
    Ok(format!("{state:032x}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fnv_is_the_published_one() {
        let start = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
        assert_eq!(fnv(start, "a".bytes()), 0xd228_cb69_6f1a_8caf_7891_2b70_4e4a_8964);
    }
}
