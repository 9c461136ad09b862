//! Benchmark records: what they hold, how two of them compare, and the page and the pictures that are made of them.
//!
//! | module | |
//! |---|---|
//! | [`record`] | the JSON, as `bench/records/README.md` documents it; reading it, whatever the file holds |
//! | [`compare`] | an old record beside a new one: what got slower by more than noise |
//! | [`case`] | what a problem string says, as far as a picture needs it |
//! | [`merged`] | several records as one, machine by machine |
//! | [`picture`] | a plot as SVG, with the table that says the same |
//! | [`page`] | one self-contained HTML page of all that |
//!
//! Nothing here depends on what is measured: a record is text and numbers, and this crate builds in seconds.
//!
//! ```
//! use isonorm_report::record::Record;
//!
//! let text = r#"{
//!     "schema": 2, "date": "2026-11-26T00:00:00Z",
//!     "machine": { "cpu": "one", "cores": 2 },
//!     "versions": { "isonorm": "0.1.0" },
//!     "settings": { "threads": 2 },
//!     "rows": [{ "case": "layernorm x=8x16 dtype=f32 pass=train",
//!                "median_s": 2e-6, "floor_s": 1e-6, "ratio": 2.0, "peers": { "torch": { "median_s": 8e-6 } } }]
//! }"#;
//! let record = Record::parse(text.as_bytes())?;
//! let page = isonorm_report::page::html(&[record])?;
//! assert!(page.contains("<svg"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod case;
pub mod compare;
mod format;
pub mod merged;
pub mod page;
pub mod picture;
pub mod record;
mod statistics;

pub use format::{number, seconds};
pub use statistics::geometric_mean;
