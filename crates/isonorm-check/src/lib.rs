//! Whether an engine computes what isonorm promises: a double-precision oracle written from the definitions, seeded data,
//! cases, derived tolerances, and one runner that every engine goes through.
//!
//! | module | what it holds |
//! |---|---|
//! | [`case`] | [`Case`]: a problem string with its data and seed |
//! | [`cases`] | [`suites`]: the ordered enumerations of cases |
//! | [`data`] | seeded generators: ordinary, adversarial and exact data |
//! | [`oracle`] | every op from its definition, in compensated `f64` |
//! | [`tolerance`] | how far an engine may be from the oracle, and why |
//! | [`engine`] | [`Engine`]; the CPU, the interpreter of GPU kernels, and GPUs, in guarded memory |
//! | [`runner`] | [`run_case`], [`run_suite`], [`run_suite_ahead`] and their reports |
//!
//! ```
//! use isonorm_check::{Case, CpuEngine, run_case};
//!
//! let case: Case = "layernorm x=8x100 dtype=bf16 act=gelu pass=backward data=offset:100 seed=7".parse()?;
//! let report = run_case(&mut CpuEngine::new(isonorm::Device::cpu()), &case);
//! println!("{report}");
//! # Ok::<(), isonorm::Error>(())
//! ```

pub mod case;
pub mod cases;
pub mod data;
pub mod engine;
pub mod oracle;
pub mod runner;
pub mod tolerance;

pub use case::Case;
pub use cases::{Suite, suites};
pub use data::Data;
#[cfg(feature = "interpreter")]
pub use engine::InterpreterEngine;
pub use engine::{BackwardInputs, CpuEngine, CudaEngine, Engine, ForwardInputs, Output, Outputs, Running, Start};
pub use runner::{CaseReport, SuiteReport, Worst, run_case, run_suite, run_suite_ahead};
