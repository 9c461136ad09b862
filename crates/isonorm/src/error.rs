use crate::DType;

/// What went wrong. Every variant says which op, what was expected and what came; nothing was read or written.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A description that no tensor could satisfy, or that contradicts itself.
    #[error("{op}: {reason}")]
    InvalidDescription {
        /// The op, as in a problem string.
        op: &'static str,
        /// What is wrong, with the values.
        reason: String,
    },
    /// A problem string that does not parse.
    #[error("problem string: {reason} (in {text:?})")]
    InvalidProblem {
        /// What is wrong, with what would be accepted.
        reason: String,
        /// The whole text.
        text: String,
    },
    /// A tensor has the wrong number of elements.
    #[error("{op}: {tensor} has {got} elements, expected {expected} ({why})")]
    LengthMismatch {
        /// The op, as in a problem string.
        op: &'static str,
        /// The argument's name.
        tensor: &'static str,
        /// The number of elements the description asks for.
        expected: usize,
        /// The number of elements that came.
        got: usize,
        /// Where the expected number comes from, such as `x is 2x3x4`.
        why: String,
    },
    /// A tensor has the wrong shape.
    #[error("{op}: {tensor} has shape {got}, expected {expected}")]
    ShapeMismatch {
        /// The op, as in a problem string.
        op: &'static str,
        /// The argument's name.
        tensor: &'static str,
        /// The shape, or the family of shapes, that would do.
        expected: String,
        /// The shape that came.
        got: String,
    },
    /// A tensor has the wrong type.
    #[error("{op}: {tensor} is {got}, expected {expected}")]
    DTypeMismatch {
        /// The op, as in a problem string.
        op: &'static str,
        /// The argument's name.
        tensor: &'static str,
        /// The type the description asks for.
        expected: DType,
        /// The type that came.
        got: DType,
    },
    /// An argument that this description needs was not given.
    #[error("{op}: {tensor} is missing: {why}")]
    MissingArgument {
        /// The op, as in a problem string.
        op: &'static str,
        /// The argument's name.
        tensor: &'static str,
        /// Why it is needed.
        why: &'static str,
    },
    /// An argument was given that this description has no use for.
    #[error("{op}: {tensor} was given but {why}")]
    UnexpectedArgument {
        /// The op, as in a problem string.
        op: &'static str,
        /// The argument's name.
        tensor: &'static str,
        /// Why it has no use.
        why: &'static str,
    },
    /// Two arguments share memory in a way that would corrupt the result.
    #[error("{op}: {written} overlaps {other} in memory{hint}")]
    Overlap {
        /// The op, as in a problem string.
        op: &'static str,
        /// The output.
        written: &'static str,
        /// The other argument.
        other: &'static str,
        /// How to ask for what was probably meant; empty or starting with `: `.
        hint: &'static str,
    },
    /// Memory that is not aligned for its element type.
    #[error("{op}: {tensor} is not aligned to {expected} bytes (address {got:#x})")]
    Misaligned {
        /// The op, as in a problem string.
        op: &'static str,
        /// The argument's name.
        tensor: &'static str,
        /// The alignment that the type needs.
        expected: usize,
        /// The address that came.
        got: usize,
    },
    /// Working in place would destroy something that is still needed.
    #[error("{op}: cannot work in place: {reason}")]
    InPlace {
        /// The op, as in a problem string.
        op: &'static str,
        /// What would be destroyed.
        reason: &'static str,
    },
    /// A plan was given arguments, a workspace or a device of another problem.
    #[error("{op}: {reason}")]
    PlanMismatch {
        /// The op, as in a problem string.
        op: &'static str,
        /// What does not belong together, with the values.
        reason: String,
    },
    /// There is no GPU, or no driver for it.
    #[error("no GPU: {reason}")]
    NoGpu {
        /// What was looked for and not found.
        reason: String,
    },
    /// No kernel carries this out on a GPU; the CPU does.
    #[error("{op}: pass={pass} cannot run on a GPU: {reason}")]
    Unsupported {
        /// The op, as in a problem string.
        op: &'static str,
        /// The pass, as in a problem string.
        pass: &'static str,
        /// Why not.
        reason: String,
    },
    /// A call of the GPU's driver failed.
    #[error("gpu: {call} failed: {reason} ({name}, {code})")]
    Driver {
        /// The driver's function.
        call: &'static str,
        /// The driver's number of the error.
        code: i32,
        /// The driver's name of the error, such as `CUDA_ERROR_ILLEGAL_ADDRESS`.
        name: String,
        /// What the driver says about it.
        reason: String,
    },
    /// A GPU has not so much memory left.
    #[error("gpu {device}: out of memory: {bytes} bytes were asked for, {free} of {total} are free")]
    OutOfMemory {
        /// The GPU's number.
        device: u32,
        /// What was asked for.
        bytes: usize,
        /// What is free.
        free: usize,
        /// What it has in all.
        total: usize,
    },
    /// An argument lies elsewhere than in the memory of the GPU that is to work on it.
    #[error("{op}: {tensor} (address {address:#x}) is {got}, expected memory of gpu {device}")]
    WrongMemory {
        /// The op, as in a problem string.
        op: &'static str,
        /// The argument's name.
        tensor: &'static str,
        /// The address that came.
        address: u64,
        /// Where that is.
        got: String,
        /// The GPU that was to work on it.
        device: u32,
    },
    /// A caller's stream that belongs to another context than the one that frameworks share.
    #[error("gpu {device}: the stream is not one of the GPU's primary context")]
    ForeignStream {
        /// The GPU that it was to be a stream of.
        device: u32,
    },
    /// Something that a stream cannot do while its work is recorded into a graph.
    #[error("gpu: the stream is being captured: {reason}")]
    Capturing {
        /// What cannot be done, and what to do before.
        reason: String,
    },
    /// The interpreter found a mistake of a kernel: a bug of this library.
    #[error("kernel {kernel}: {fault}")]
    Kernel {
        /// The name of its entry point.
        kernel: String,
        /// What it did, where.
        fault: String,
    },
    /// A state dict that does not fit a layer. Nothing was loaded.
    #[error("{layer}: the state dict does not fit: {}", listed(missing, unexpected, mismatched))]
    StateDict {
        /// The layer's name, such as `BatchNorm`.
        layer: &'static str,
        /// Names that the layer needs and the state dict lacks.
        missing: Vec<String>,
        /// Names that the state dict has and the layer does not know.
        unexpected: Vec<String>,
        /// Entries of another shape or kind: name, what it is, what was expected.
        mismatched: Vec<String>,
    },
    /// Weights that cannot be folded into each other.
    #[error("fold: {reason}")]
    Fold {
        /// What does not fit, with names and shapes.
        reason: String,
    },
}

/// The result of every fallible call of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// `missing a, b; unexpected c; mismatched d is ..., expected ...`, without what is empty.
fn listed(missing: &[String], unexpected: &[String], mismatched: &[String]) -> String {
    [
        ("missing", missing),
        ("unexpected", unexpected),
        ("mismatched", mismatched),
    ]
    .into_iter()
    .filter(|(_, names)| !names.is_empty())
    .map(|(what, names)| format!("{what} {}", names.join(", ")))
    .collect::<Vec<_>>()
    .join("; ")
}
