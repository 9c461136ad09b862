//! isonorm on the command line: `run`, `explain`, `verify`, `bench`, `ladder`, `fold` and `completions`.
//!
//! Every subcommand takes `--json`. Problems are written the same everywhere: on the command line, in suites, in records
//! and in errors. For example:
//!
//! ```text
//! isonorm explain batchnorm x=64x256x56x56 layout=nhwc dtype=bf16 act=relu
//! isonorm run layernorm --input x.npy --weight w.npy --bias b.npy --output y.npy
//! isonorm bench --suite cpu --save before.json
//! ```
//!
//! # Exit codes
//! 0: done. 1: a verification failed, a benchmark regressed or a rung of the ladder is wrong. 2: bad usage or bad input; one line on the standard error
//! says what.
//!
//! # Modules
//! One module a subcommand (private); [`io`] reads and writes tensors in files,
//! [`fuzz`] is what the fuzz targets call.

mod allocator;
mod bench;
mod call;
mod cli;
mod completions;
mod device;
mod error;
mod explain;
mod fold;
mod format;
pub mod fuzz;
pub mod io;
mod ladder;
mod measure;
mod memory;
mod record;
mod run;
mod screen;
mod stats;
mod table;
mod verify;

pub use allocator::LineAllocator;
pub use cli::main;
