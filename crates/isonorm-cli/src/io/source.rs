//! `x.npy` and `model.safetensors:name` on the command line.

use std::convert::Infallible;
use std::fmt;
use std::fs::{self, File};
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use super::{Array, ReadError, npy, safetensors};
use crate::error::{Error, Result};

/// The format of a file, by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    Npy,
    Safetensors,
}

impl Format {
    /// The format that this name stands for.
    pub(crate) fn of(path: &Path) -> Option<Format> {
        let extension = path.extension()?;
        match () {
            () if extension.eq_ignore_ascii_case("npy") => Some(Format::Npy),
            () if extension.eq_ignore_ascii_case("safetensors") => Some(Format::Safetensors),
            () => None,
        }
    }
}

/// A file, and the name of a tensor in it where it has several.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Source {
    path: PathBuf,
    tensor: Option<String>,
}

impl FromStr for Source {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Source, Infallible> {
        const EXTENSION: &str = ".safetensors";
        let named = text
            .find(&format!("{EXTENSION}:"))
            .map(|at| text.split_at(at + EXTENSION.len()));
        Ok(match named {
            Some((path, name)) => Source {
                path: path.into(),
                tensor: Some(name[1..].into()),
            },
            None => Source {
                path: text.into(),
                tensor: None,
            },
        })
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.path.display())?;
        self.tensor.as_ref().map_or(Ok(()), |name| write!(f, ":{name}"))
    }
}

impl Source {
    /// Reads the tensor.
    pub(crate) fn read(&self) -> Result<Array> {
        self.try_read().map_err(|source| Error::Read {
            path: self.path.clone(),
            source,
        })
    }

    fn try_read(&self) -> Result<Array, ReadError> {
        let Some(format) = Format::of(&self.path) else {
            return Err(ReadError::Unsupported(
                "unknown kind of file; expected .npy or .safetensors".into(),
            ));
        };
        let about = fs::metadata(&self.path)?;
        // Reading a pipe or a terminal would wait for ever.
        if !about.is_file() {
            return Err(ReadError::Unsupported("not a file".into()));
        }
        let (from, length) = (BufReader::new(File::open(&self.path)?), about.len());
        match format {
            Format::Npy => npy::read(from, length),
            Format::Safetensors => safetensors::read(from, length, self.tensor.as_deref()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tensor_is_named_after_a_colon() {
        let parse = |s: &str| s.parse::<Source>().unwrap();
        let named = parse("C:\\m.safetensors:layer.0:w");
        assert_eq!(
            (named.path.to_str(), named.tensor.as_deref()),
            (Some("C:\\m.safetensors"), Some("layer.0:w"))
        );
        assert_eq!(parse("x.npy").tensor, None);
        assert_eq!(named.to_string(), "C:\\m.safetensors:layer.0:w");
    }
}
