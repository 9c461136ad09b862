use std::path::PathBuf;

use crate::io::ReadError;

/// Why a command could not do its work. Shown as one line; the exit code is 2.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// The arguments contradict each other, or the files.
    #[error("{0}")]
    Usage(String),
    /// The library refused.
    #[error(transparent)]
    Isonorm(#[from] isonorm::Error),
    /// A file could not be read.
    #[error("{}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why not.
        source: ReadError,
    },
    /// A file is no benchmark record, or a newer one.
    #[error("{}: {source}", path.display())]
    Record {
        /// The file.
        path: PathBuf,
        /// Why not.
        source: isonorm_report::record::LoadError,
    },
    /// A picture of a report could not be drawn.
    #[error(transparent)]
    Draw(#[from] isonorm_report::picture::DrawError),
    /// A file could not be written. Nothing is left of it.
    #[error("{}: cannot write: {reason}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// Why not.
        reason: String,
    },
    /// The standard output is gone.
    #[error("cannot write to the standard output: {0}")]
    Output(#[from] std::io::Error),
}

impl Error {
    /// An error of usage.
    pub(crate) fn usage(message: impl Into<String>) -> Error {
        Error::Usage(message.into())
    }
}

/// The result of everything that a command does.
pub(crate) type Result<T, E = Error> = std::result::Result<T, E>;

/// What a command that did its work found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// All is well: exit code 0.
    Success,
    /// A verification failed, a benchmark regressed, or there was nothing to fold: exit code 1.
    Failure,
}
