//! `.safetensors` files: `F16`, `BF16`, `F32` and `F64`. Only the header and the one tensor asked for are read.

use std::io::{self, Read, Seek, SeekFrom, Write};

use isonorm::{DType, TensorData};
use safetensors::tensor::{Metadata, TensorInfo};
use safetensors::{Dtype, SafeTensorError};

use super::elements::{self, Array};
use super::error::ReadError;

const FORMAT: &str = "safetensors";
/// The longest header that the format allows.
const LONGEST_HEADER: u64 = 100_000_000;
/// Data starts at a multiple of this.
const ALIGNMENT: usize = 8;
/// How many names a message lists.
const NAMES_SHOWN: usize = 8;

/// Reads the tensor of this name from a file of this length; without a name, the only one there is.
///
/// # Errors
/// When it is not a `.safetensors` file, is shorter or longer than its header says, has no such tensor, or the tensor's
/// elements are no floating-point numbers of 16, 32 or 64 bits.
pub fn read(mut from: impl Read + Seek, length: u64, name: Option<&str>) -> Result<Array, ReadError> {
    let (metadata, start) = header(&mut from, length)?;
    let name = chosen(&metadata, name)?;
    let info = metadata
        .info(&name)
        .ok_or_else(|| ReadError::NoSuchTensor(format!("no tensor {name:?}")))?;
    let dtype = dtype(info).ok_or_else(|| ReadError::DType {
        what: format!("tensor {name:?}"),
        expected: "F16, BF16, F32 or F64",
        got: format!("{:?}", info.dtype),
    })?;
    let len = elements::elements(&info.shape).map_err(|reason| ReadError::Header {
        format: FORMAT,
        reason: format!("tensor {name:?}: {reason}"),
    })?;
    from.seek(SeekFrom::Start(start + info.data_offsets.0 as u64))?;
    let data = elements::read(from, dtype, len, false)?;
    Ok(Array {
        shape: info.shape.clone(),
        data,
    })
}

/// The checked header, and where the data starts.
pub(crate) fn header(from: &mut impl Read, length: u64) -> Result<(Metadata, u64), ReadError> {
    let foreign = |reason: String| ReadError::Foreign { format: FORMAT, reason };
    if length < 8 {
        return Err(foreign("too short".into()));
    }
    let mut n = [0; 8];
    from.read_exact(&mut n)?;
    let n = u64::from_le_bytes(n);
    if n > LONGEST_HEADER {
        return Err(foreign(format!(
            "its header would be {n} bytes long; at most {LONGEST_HEADER} are allowed"
        )));
    }
    let start = 8 + n;
    if length < start {
        return Err(ReadError::Length {
            expected: start,
            got: length,
        });
    }
    // Not larger than the file, as was just seen.
    let mut text = vec![0; n as usize];
    from.read_exact(&mut text)?;
    let metadata: Metadata = serde_json::from_slice(&text).map_err(|e| ReadError::Header {
        format: FORMAT,
        reason: e.to_string(),
    })?;
    let expected = start.saturating_add(metadata.data_len() as u64);
    if expected != length {
        return Err(ReadError::Length { expected, got: length });
    }
    Ok((metadata, start))
}

/// The name to read: the one asked for, or the only one.
fn chosen(metadata: &Metadata, name: Option<&str>) -> Result<String, ReadError> {
    let names = || {
        let mut names = metadata.offset_keys();
        names.sort();
        let shown = names
            .iter()
            .take(NAMES_SHOWN)
            .map(|n| format!("{n:?}"))
            .collect::<Vec<_>>()
            .join(", ");
        let more = names.len().saturating_sub(NAMES_SHOWN);
        if more > 0 {
            format!("{shown} and {more} more")
        } else {
            shown
        }
    };
    match name {
        Some(name) if metadata.info(name).is_some() => Ok(name.into()),
        Some(name) => Err(ReadError::NoSuchTensor(format!(
            "no tensor {name:?}; the file has {}",
            names()
        ))),
        None => match metadata.offset_keys().as_slice() {
            [only] => Ok(only.clone()),
            [] => Err(ReadError::NoSuchTensor("the file has no tensors".into())),
            _ => Err(ReadError::NoSuchTensor(format!(
                "say which tensor as FILE:NAME; the file has {}",
                names()
            ))),
        },
    }
}

fn dtype(info: &TensorInfo) -> Option<DType> {
    match info.dtype {
        Dtype::F16 => Some(DType::F16),
        Dtype::BF16 => Some(DType::Bf16),
        Dtype::F32 => Some(DType::F32),
        Dtype::F64 => Some(DType::F64),
        _ => None,
    }
}

fn dtype_in_file(data: &TensorData) -> Dtype {
    match data {
        TensorData::F16(_) => Dtype::F16,
        TensorData::Bf16(_) => Dtype::BF16,
        TensorData::F32(_) => Dtype::F32,
        TensorData::F64(_) => Dtype::F64,
    }
}

/// Writes tensors under their names, the widest types first so that each is aligned.
///
/// # Errors
/// Those of the writer.
pub fn write(tensors: &[(&str, &Array)], mut to: impl Write) -> io::Result<()> {
    let invalid = |e: SafeTensorError| io::Error::new(io::ErrorKind::InvalidInput, e);
    let mut tensors = tensors.to_vec();
    tensors.sort_by_key(|(name, array)| (std::cmp::Reverse(array.data.dtype().bytes()), *name));
    let mut offset = 0;
    let infos = tensors.iter().map(|(name, array)| {
        let begin = offset;
        offset += elements::bytes(&array.data).len();
        let info = TensorInfo {
            dtype: dtype_in_file(&array.data),
            shape: array.shape.clone(),
            data_offsets: (begin, offset),
        };
        (name.to_string(), info)
    });
    let metadata = Metadata::new(None, infos.collect()).map_err(invalid)?;
    let mut header = serde_json::to_vec(&metadata)?;
    header.resize(header.len().next_multiple_of(ALIGNMENT), b' ');
    to.write_all(&(header.len() as u64).to_le_bytes())?;
    to.write_all(&header)?;
    tensors
        .iter()
        .try_for_each(|(_, array)| elements::write(&array.data, &mut to))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_bytes(bytes: &[u8], name: Option<&str>) -> Result<Array, String> {
        read(io::Cursor::new(bytes), bytes.len() as u64, name).map_err(|e| e.to_string())
    }

    fn sample() -> (Array, Array, Vec<u8>) {
        let a = Array {
            shape: vec![2, 2],
            data: TensorData::from_f64(DType::Bf16, &[1.0, -2.0, 0.5, 4.0]),
        };
        let b = Array {
            shape: vec![],
            data: TensorData::from_f64(DType::F64, &[7.0]),
        };
        let mut bytes = Vec::new();
        write(&[("a", &a), ("b", &b)], &mut bytes).unwrap();
        (a, b, bytes)
    }

    #[test]
    fn what_is_written_is_read() {
        let (a, b, bytes) = sample();
        assert_eq!(read_bytes(&bytes, Some("a")).unwrap(), a);
        assert_eq!(read_bytes(&bytes, Some("b")).unwrap(), b);
        assert_eq!(safetensors::SafeTensors::deserialize(&bytes).unwrap().len(), 2);
    }

    #[test]
    fn the_name_may_be_left_out_when_there_is_one() {
        let (a, _, bytes) = sample();
        assert!(read_bytes(&bytes, None).unwrap_err().contains("say which"));
        assert!(read_bytes(&bytes, Some("c")).unwrap_err().contains("\"a\", \"b\""));
        let mut one = Vec::new();
        write(&[("y", &a)], &mut one).unwrap();
        assert_eq!(read_bytes(&one, None).unwrap(), a);
    }

    #[test]
    fn bad_files_are_refused_with_a_reason() {
        let (_, _, bytes) = sample();
        let with_header = |text: &str, data: usize| {
            let mut file = (text.len() as u64).to_le_bytes().to_vec();
            file.extend(text.as_bytes());
            file.resize(file.len() + data, 0);
            file
        };
        let tensor = |dtype: &str, shape: &str, end: u64| {
            format!(r#"{{"a":{{"dtype":"{dtype}","shape":{shape},"data_offsets":[0,{end}]}}}}"#)
        };
        for (file, reason) in [
            (bytes[..bytes.len() - 1].to_vec(), "truncated"),
            ([&bytes[..], &[0]].concat(), "too long"),
            (bytes[..20].to_vec(), "truncated"),
            (b"PK\x03\x04abcdefgh".to_vec(), "not a safetensors file"),
            (with_header("{", 0), "header"),
            (with_header(&tensor("I64", "[1]", 8), 8), "type I64"),
            (with_header(&tensor("F32", "[2]", 4), 4), "header"),
            (with_header(&tensor("F32", "[18446744073709551615,2]", 4), 4), "header"),
            (with_header(&tensor("F32", "[1,1,1,1,1,1,1,1,1]", 4), 4), "at most 8"),
            (with_header("{}", 0), "no tensors"),
        ] {
            let error = read_bytes(&file, None).unwrap_err();
            assert!(error.contains(reason), "{reason}: {error}");
        }
    }
}
