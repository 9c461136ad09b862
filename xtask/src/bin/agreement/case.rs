//! The cases of a file: inputs, PyTorch's results, the exact ones, and how far apart they may be.

use std::collections::HashMap;

use anyhow::{Context as _, Result, bail};
use half::{bf16, f16};
use isonorm::{NormDesc, TensorData};
use safetensors::{Dtype, SafeTensors};
use serde::Deserialize;

/// What the file says about a case.
#[derive(Deserialize)]
pub struct Record {
    pub problem: String,
    /// `None` for a cumulative average.
    pub momentum: Option<f64>,
    pub steps: usize,
    pub batches: usize,
    pub mean_over_std: f64,
}

/// One case.
pub struct Case<'f> {
    pub record: &'f Record,
    pub desc: NormDesc,
    index: usize,
    tensors: &'f SafeTensors<'f>,
}

/// A file of cases.
pub struct File<'f> {
    records: Vec<Record>,
    torch: String,
    tensors: SafeTensors<'f>,
}

impl<'f> File<'f> {
    pub fn parse(bytes: &'f [u8]) -> Result<File<'f>> {
        let (_, header) = SafeTensors::read_metadata(bytes)?;
        let empty = HashMap::new();
        let metadata = header.metadata().as_ref().unwrap_or(&empty);
        let cases = metadata.get("cases").context("the file's metadata has no cases")?;
        Ok(File {
            records: serde_json::from_str(cases).context("the file's cases")?,
            torch: metadata.get("torch").cloned().unwrap_or_default(),
            tensors: SafeTensors::deserialize(bytes)?,
        })
    }

    /// The version of PyTorch.
    pub fn torch(&self) -> &str {
        &self.torch
    }

    pub fn cases(&self) -> impl Iterator<Item = Result<Case<'_>>> {
        self.records.iter().enumerate().map(|(index, record)| {
            let desc = record.problem.parse()?;
            Ok(Case {
                record,
                desc,
                index,
                tensors: &self.tensors,
            })
        })
    }
}

fn data(dtype: Dtype, bytes: &[u8]) -> Result<TensorData> {
    let words = |size| bytes.chunks_exact(size);
    fn of<const N: usize>(word: &[u8]) -> [u8; N] {
        let mut bytes = [0; N];
        bytes.copy_from_slice(word);
        bytes
    }
    Ok(match dtype {
        Dtype::F16 => words(2).map(|w| f16::from_le_bytes(of(w))).collect::<Vec<_>>().into(),
        Dtype::BF16 => words(2).map(|w| bf16::from_le_bytes(of(w))).collect::<Vec<_>>().into(),
        Dtype::F32 => words(4).map(|w| f32::from_le_bytes(of(w))).collect::<Vec<_>>().into(),
        Dtype::F64 => words(8).map(|w| f64::from_le_bytes(of(w))).collect::<Vec<_>>().into(),
        other => bail!("tensors of type {other:?} are not compared"),
    })
}

impl Case<'_> {
    /// A tensor of the case, when it has it.
    pub fn get(&self, name: &str) -> Result<Option<TensorData>> {
        match self.tensors.tensor(&format!("{}.{name}", self.index)) {
            Ok(tensor) => data(tensor.dtype(), tensor.data()).map(Some),
            Err(_) => Ok(None),
        }
    }

    /// A tensor that every case has.
    pub fn tensor(&self, name: &str) -> Result<TensorData> {
        self.get(name)?
            .with_context(|| format!("case {} has no {name}", self.index))
    }

    /// The batches of `x`, which lie back to back.
    pub fn batches(&self) -> Result<Vec<TensorData>> {
        let name = format!("{}.x", self.index);
        let x = self
            .tensors
            .tensor(&name)
            .with_context(|| format!("the file has no {name}"))?;
        let bytes = x.data().len() / self.record.batches.max(1);
        x.data()
            .chunks_exact(bytes.max(1))
            .map(|batch| data(x.dtype(), batch))
            .collect()
    }

    /// How much of the running statistics a step replaces.
    pub fn factor(&self, step: usize) -> f64 {
        self.record.momentum.unwrap_or(1.0 / (step + 1) as f64)
    }
}
