//! What `isonorm run` says.

use isonorm::NormDesc;
use serde::Serialize;

use crate::error::Result;
use crate::format::{bytes, dims, gbps, number, seconds as duration};
use crate::io::Array;
use crate::measure::{least, median};
use crate::screen::{LABEL, STRONG, Screen, styled};
use crate::stats::Summary;
use crate::table::{Align, Columns};

/// A tensor that was read or written.
#[derive(Serialize)]
pub(super) struct Tensor {
    name: &'static str,
    /// The file it was read from or written to.
    file: Option<String>,
    shape: Vec<usize>,
    dtype: isonorm::DType,
    #[serde(flatten)]
    summary: Summary,
}

impl Tensor {
    pub(super) fn new(name: &'static str, file: Option<String>, array: &Array) -> Tensor {
        Tensor {
            name,
            file,
            shape: array.shape.clone(),
            dtype: array.data.dtype(),
            summary: Summary::of(&array.data),
        }
    }

    fn cells(&self) -> Vec<String> {
        let s = &self.summary;
        let known = |v: Option<f64>| v.map_or("-".into(), number);
        vec![
            self.name.into(),
            dims(&self.shape),
            self.dtype.to_string(),
            known(s.min),
            known(s.max),
            known(s.mean),
            known(s.std),
            s.non_finite.to_string(),
            self.file.clone().unwrap_or_default(),
        ]
    }
}

/// What was carried out, where, and how long each time took.
pub(super) struct Work {
    pub(super) desc: NormDesc,
    pub(super) plan: &'static str,
    pub(super) device: String,
    pub(super) compulsory_bytes: u64,
    pub(super) seconds: Vec<f64>,
}

#[derive(Serialize)]
pub(super) struct Report {
    problem: String,
    plan: &'static str,
    device: String,
    tensors: Vec<Tensor>,
    time: Time,
}

#[derive(Serialize)]
struct Time {
    median_s: f64,
    min_s: f64,
    repeats: usize,
    compulsory_bytes: u64,
    gbps: f64,
}

impl Report {
    pub(super) fn new(work: Work, tensors: Vec<Tensor>) -> Report {
        let median_s = median(&work.seconds);
        Report {
            problem: work.desc.to_string(),
            plan: work.plan,
            device: work.device,
            tensors,
            time: Time {
                median_s,
                min_s: least(&work.seconds),
                repeats: work.seconds.len(),
                compulsory_bytes: work.compulsory_bytes,
                gbps: gbps(work.compulsory_bytes, median_s),
            },
        }
    }

    pub(super) fn show(&self, screen: &mut Screen) -> Result<()> {
        if screen.is_json() {
            return screen.json(self);
        }
        let label = |text: &str| styled(LABEL, format!("{text:<8}"));
        screen.line(format!("{} {}", label("problem"), styled(STRONG, &self.problem)))?;
        screen.line(format!("{} {} on {}", label("plan"), self.plan, self.device))?;
        let t = &self.time;
        screen.line(format!(
            "{} {} (median of {}), {:.1} GB/s of {} compulsory",
            label("time"),
            duration(t.median_s),
            t.repeats,
            t.gbps,
            bytes(t.compulsory_bytes)
        ))?;
        screen.line("")?;
        let heading = [
            "tensor",
            "shape",
            "type",
            "min",
            "max",
            "mean",
            "std",
            "non-finite",
            "file",
        ]
        .map(String::from);
        let rows: Vec<_> = self.tensors.iter().map(Tensor::cells).collect();
        let aligns = [[Align::Left; 3].as_slice(), &[Align::Right; 5], &[Align::Left]].concat();
        let columns = Columns::fitting(
            &aligns,
            std::iter::once(&heading[..]).chain(rows.iter().map(Vec::as_slice)),
        );
        screen.line(styled(STRONG, columns.row(&heading)))?;
        rows.iter().try_for_each(|row| screen.line(columns.row(row)))
    }
}
