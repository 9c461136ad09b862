use std::io;

/// Why a file could not be read. The file's name is added by who knows it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// The system says so.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// The name ends in neither `.npy` nor `.safetensors`, or it is not a file.
    #[error("{0}")]
    Unsupported(String),
    /// It is of another format, whatever its name says.
    #[error("not a {format} file: {reason}")]
    Foreign {
        /// What was expected.
        format: &'static str,
        /// What was found.
        reason: String,
    },
    /// The header is malformed, or claims what cannot be.
    #[error("{format} header: {reason}")]
    Header {
        /// The file's format.
        format: &'static str,
        /// What is wrong, with the values.
        reason: String,
    },
    /// The file is shorter or longer than its header says.
    #[error("{}: {got} bytes, expected {expected} by its header", if got < expected { "truncated" } else { "too long" })]
    Length {
        /// The file's length by its header.
        expected: u64,
        /// The file's length.
        got: u64,
    },
    /// The elements are of a type that there is no arithmetic for.
    #[error("{what} has elements of type {got}, expected {expected}")]
    DType {
        /// Which tensor.
        what: String,
        /// The types that would do.
        expected: &'static str,
        /// The type in the file.
        got: String,
    },
    /// There are several tensors and none was named, or the named one is not there.
    #[error("{0}")]
    NoSuchTensor(String),
}
