//! Whole files or none: written beside their final name, put there when complete.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use tempfile::NamedTempFile;

use super::{Array, Format, npy, safetensors};
use crate::error::{Error, Result};

/// A complete file that is not yet at its place; dropped, it leaves nothing behind.
#[derive(Debug)]
pub(crate) struct Pending {
    file: NamedTempFile,
    path: PathBuf,
}

impl Pending {
    /// Writes a file for this path.
    pub(crate) fn create(
        path: &Path,
        write: impl FnOnce(&mut BufWriter<&mut File>) -> io::Result<()>,
    ) -> Result<Pending> {
        let refused = |e: io::Error| Error::Write {
            path: path.into(),
            reason: e.to_string(),
        };
        if path.is_dir() {
            return Err(Error::Write {
                path: path.into(),
                reason: "it is a directory".into(),
            });
        }
        let folder = path
            .parent()
            .filter(|p| !p.as_os_str().is_empty())
            .unwrap_or(Path::new("."));
        let mut builder = tempfile::Builder::new();
        builder.prefix(".isonorm-");
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            // Like any new file: the process's mask takes away what it must.
            builder.permissions(std::fs::Permissions::from_mode(0o666));
        }
        let mut file = builder.tempfile_in(folder).map_err(refused)?;
        let mut buffered = BufWriter::with_capacity(1 << 20, file.as_file_mut());
        write(&mut buffered).and_then(|()| buffered.flush()).map_err(refused)?;
        drop(buffered);
        Ok(Pending {
            file,
            path: path.into(),
        })
    }

    /// Puts the file at its place, over one that is there.
    pub(crate) fn publish(self) -> Result<()> {
        let Pending { file, path } = self;
        match file.persist(&path) {
            Ok(_) => Ok(()),
            Err(e) => Err(Error::Write {
                path,
                reason: e.error.to_string(),
            }),
        }
    }
}

/// Where the `index`-th of the tensors that are written for this path goes: all into one `.safetensors` file; or the first
/// into an `.npy` file and each other beside it, `y.npy` and `y.mean.npy`.
pub(crate) fn destination(path: &Path, index: usize, name: &str) -> String {
    match Format::of(path) {
        Some(Format::Safetensors) => format!("{}:{name}", path.display()),
        _ => npy_path(path, index, name).display().to_string(),
    }
}

fn npy_path(path: &Path, index: usize, name: &str) -> PathBuf {
    match index {
        0 => path.to_path_buf(),
        _ => path.with_extension(format!("{name}.npy")),
    }
}

/// Writes tensors for this path, to the files that [`destination`] says.
pub(crate) fn stage(path: &Path, tensors: &[(&str, &Array)]) -> Result<Vec<Pending>> {
    let one = |(index, (name, array)): (usize, &(&str, &Array))| {
        Pending::create(&npy_path(path, index, name), |to| npy::write(array, to))
    };
    match Format::of(path) {
        Some(Format::Safetensors) => Ok(vec![Pending::create(path, |to| safetensors::write(tensors, to))?]),
        Some(Format::Npy) => tensors.iter().enumerate().map(one).collect(),
        None => {
            let reason = "unknown kind of file; expected .npy or .safetensors".into();
            Err(Error::Write {
                path: path.into(),
                reason,
            })
        }
    }
}
