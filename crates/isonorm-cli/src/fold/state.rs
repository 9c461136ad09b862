//! A state dict: named tensors of a `.safetensors` file, and what has been changed of them.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::io::{self, Write};

use isonorm::{DType, Scalar, Shape, Tensor, TensorData, bf16, f16};
use safetensors::Dtype;
use safetensors::tensor::TensorInfo;
use serde::Serialize;

use crate::io::{ReadError, safetensors as format, write_elements};

/// Data starts at a multiple of this.
const ALIGNMENT: usize = 8;

/// A tensor in the file.
struct Stored<'a> {
    dtype: Dtype,
    shape: Vec<usize>,
    bytes: &'a [u8],
}

/// The tensors by name, over the bytes of the file, and the edits.
pub(super) struct StateDict<'a> {
    stored: BTreeMap<String, Stored<'a>>,
    metadata: Option<BTreeMap<String, String>>,
    /// `None` for a tensor that is removed.
    edits: BTreeMap<String, Option<Tensor>>,
}

impl<'a> StateDict<'a> {
    /// Reads the header of a file's bytes.
    ///
    /// # Errors
    /// When they are not a complete `.safetensors` file.
    pub fn parse(bytes: &'a [u8]) -> Result<StateDict<'a>, ReadError> {
        let (header, start) = format::header(&mut &bytes[..], bytes.len() as u64)?;
        let data = &bytes[start as usize..];
        let tensor = |(name, info): (String, &TensorInfo)| {
            let (begin, end) = info.data_offsets;
            let stored = Stored {
                dtype: info.dtype,
                shape: info.shape.clone(),
                bytes: &data[begin..end],
            };
            (name, stored)
        };
        Ok(StateDict {
            stored: header.tensors().into_iter().map(tensor).collect(),
            metadata: header.metadata().clone().map(|map| map.into_iter().collect()),
            edits: BTreeMap::new(),
        })
    }

    /// The names in the file, sorted.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.stored.keys().map(String::as_str)
    }

    /// The shape of a tensor in the file.
    pub fn shape(&self, name: &str) -> Option<&[usize]> {
        self.stored.get(name).map(|stored| &stored.shape[..])
    }

    /// The bytes of a tensor in the file.
    pub fn bytes(&self, name: &str) -> Option<&'a [u8]> {
        self.stored.get(name).map(|stored| stored.bytes)
    }

    /// A tensor as it is now; the reason when there is none that can be computed with.
    pub fn tensor(&self, name: &str) -> Result<Tensor, String> {
        if let Some(edit) = self.edits.get(name) {
            return edit.clone().ok_or_else(|| format!("{name} was folded away"));
        }
        let stored = self.stored.get(name).ok_or_else(|| format!("there is no {name}"))?;
        decode(stored).ok_or_else(|| format!("{name} is of type {}, which cannot be folded", stored.dtype))?
    }

    /// A tensor as it is now, `None` when there is none of this name.
    pub fn optional(&self, name: &str) -> Result<Option<Tensor>, String> {
        match self.edits.contains_key(name) || self.stored.contains_key(name) {
            true => self.tensor(name).map(Some),
            false => Ok(None),
        }
    }

    /// Replaces or adds a tensor.
    pub fn set(&mut self, name: String, tensor: Tensor) {
        self.edits.insert(name, Some(tensor));
    }

    /// Removes a tensor, if it is there.
    pub fn remove(&mut self, name: &str) {
        if self.stored.contains_key(name) {
            self.edits.insert(name.to_owned(), None);
        }
    }

    /// The names that are not written, sorted.
    pub fn removed(&self) -> impl Iterator<Item = &str> {
        self.edits
            .iter()
            .filter(|(_, edit)| edit.is_none())
            .map(|(name, _)| name.as_str())
    }

    /// The names that are written and were not in the file, sorted.
    pub fn added(&self) -> impl Iterator<Item = &str> {
        self.edits
            .keys()
            .filter(|name| !self.stored.contains_key(*name))
            .map(String::as_str)
    }

    /// The number of tensors that are written.
    pub fn len(&self) -> usize {
        self.stored.len() + self.added().count() - self.removed().count()
    }

    /// Writes everything as a `.safetensors` file, the widest types first so that each tensor is aligned.
    ///
    /// # Errors
    /// Those of the writer.
    pub fn write(&self, to: &mut impl Write) -> io::Result<()> {
        let kept = self.stored.iter().filter(|(name, _)| !self.edits.contains_key(*name));
        let edited = self
            .edits
            .iter()
            .filter_map(|(name, edit)| Some((name, edit.as_ref()?)));
        let mut entries: Vec<(&str, Entry<'_>)> = kept
            .map(|(name, stored)| (name.as_str(), Entry::Stored(stored)))
            .chain(edited.map(|(name, tensor)| (name.as_str(), Entry::Edited(tensor))))
            .collect();
        entries.sort_by_key(|(name, entry)| (Reverse(entry.dtype()), *name));

        let header = self.header(&entries)?;
        to.write_all(&(header.len() as u64).to_le_bytes())?;
        to.write_all(&header)?;
        entries.iter().try_for_each(|(_, entry)| entry.write(to))
    }

    fn header(&self, entries: &[(&str, Entry<'_>)]) -> io::Result<Vec<u8>> {
        let mut offset = 0;
        let info = |(name, entry): &(&str, Entry<'_>)| {
            let begin = offset;
            offset += entry.bytes();
            let info = TensorInfo {
                dtype: entry.dtype(),
                shape: entry.shape(),
                data_offsets: (begin, offset),
            };
            (name.to_string(), info)
        };
        let tensors: BTreeMap<String, TensorInfo> = entries.iter().map(info).collect();
        let mut header = serde_json::to_vec(&Header {
            metadata: self.metadata.as_ref(),
            tensors,
        })?;
        header.resize(header.len().next_multiple_of(ALIGNMENT), b' ');
        Ok(header)
    }
}

/// The file's header. Its maps are sorted, so that the same tensors give the same file.
#[derive(Serialize)]
struct Header<'a> {
    #[serde(rename = "__metadata__", skip_serializing_if = "Option::is_none")]
    metadata: Option<&'a BTreeMap<String, String>>,
    #[serde(flatten)]
    tensors: BTreeMap<String, TensorInfo>,
}

/// A tensor on its way to the file.
enum Entry<'a> {
    Stored(&'a Stored<'a>),
    Edited(&'a Tensor),
}

impl Entry<'_> {
    fn dtype(&self) -> Dtype {
        match self {
            Entry::Stored(stored) => stored.dtype,
            Entry::Edited(tensor) => match tensor.dtype() {
                DType::F16 => Dtype::F16,
                DType::Bf16 => Dtype::BF16,
                DType::F32 => Dtype::F32,
                DType::F64 => Dtype::F64,
            },
        }
    }

    fn shape(&self) -> Vec<usize> {
        match self {
            Entry::Stored(stored) => stored.shape.clone(),
            Entry::Edited(tensor) => tensor.shape().dims().to_vec(),
        }
    }

    fn bytes(&self) -> usize {
        match self {
            Entry::Stored(stored) => stored.bytes.len(),
            Entry::Edited(tensor) => tensor.data().len() * tensor.dtype().bytes(),
        }
    }

    fn write(&self, to: &mut impl Write) -> io::Result<()> {
        match self {
            Entry::Stored(stored) => to.write_all(stored.bytes),
            Entry::Edited(tensor) => write_elements(tensor.data(), to),
        }
    }
}

/// The elements, when they are of a floating-point type that weights are folded in.
fn decode(stored: &Stored<'_>) -> Option<Result<Tensor, String>> {
    fn elements<T: Scalar, const N: usize>(bytes: &[u8], from: fn([u8; N]) -> T) -> TensorData
    where
        TensorData: From<Vec<T>>,
    {
        let (chunks, _) = bytes.as_chunks::<N>();
        chunks.iter().map(|chunk| from(*chunk)).collect::<Vec<T>>().into()
    }
    let bytes = stored.bytes;
    let data = match stored.dtype {
        Dtype::F16 => elements(bytes, f16::from_le_bytes),
        Dtype::BF16 => elements(bytes, bf16::from_le_bytes),
        Dtype::F32 => elements(bytes, f32::from_le_bytes),
        Dtype::F64 => elements(bytes, f64::from_le_bytes),
        _ => return None,
    };
    let shape = Shape::try_from(&stored.shape[..]);
    Some(shape.and_then(|shape| Tensor::new(shape, data).map_err(|e| e.to_string())))
}
