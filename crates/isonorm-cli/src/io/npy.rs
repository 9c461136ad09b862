//! NumPy's `.npy` files: `f2`, `f4` and `f8` of either byte order, row- or column-major, format versions 1 to 3.
//!
//! The header is a Python dictionary. What NumPy writes is a very small part of that language, and the reader accepts
//! just that part: a general parser of Python literals would accept nesting, whose cost an attacker chooses.

use std::io::{self, Read, Write};

use isonorm::{DType, TensorData};

use super::elements::{self, Array};
use super::error::ReadError;

const MAGIC: &[u8; 6] = b"\x93NUMPY";
const FORMAT: &str = "npy";
/// The longest header that NumPy itself reads without being told to trust the file.
const LONGEST_HEADER: usize = 10_000;
/// Data starts at a multiple of this, as the format asks.
const ALIGNMENT: usize = 64;

fn header_error(reason: impl Into<String>) -> ReadError {
    ReadError::Header {
        format: FORMAT,
        reason: reason.into(),
    }
}

/// Reads an array from a file of this length.
///
/// # Errors
/// When it is not an `.npy` file, is shorter or longer than its header says, or has elements other than `f2`, `f4`, `f8`.
pub fn read(mut from: impl Read, length: u64) -> Result<Array, ReadError> {
    let (text, start) = header_text(&mut from, length)?;
    let header = Header::parse(&text)?;
    let (dtype, big_endian) = header.element()?;
    let len = elements::elements(&header.shape).map_err(header_error)?;
    let expected = start + (len * dtype.bytes()) as u64;
    if length != expected {
        return Err(ReadError::Length { expected, got: length });
    }
    let mut data = elements::read(from, dtype, len, big_endian)?;
    if header.fortran_order && header.shape.len() > 1 {
        data = elements::row_major(&data, &header.shape);
    }
    Ok(Array {
        shape: header.shape,
        data,
    })
}

/// The header's text, and where the data starts.
fn header_text(from: &mut impl Read, length: u64) -> Result<(String, u64), ReadError> {
    let foreign = |reason: &str| ReadError::Foreign {
        format: FORMAT,
        reason: reason.into(),
    };
    let mut fixed = [0; 8];
    if length < 10 {
        return Err(foreign("too short"));
    }
    from.read_exact(&mut fixed)?;
    if &fixed[..6] != MAGIC {
        return Err(foreign("it does not start with \\x93NUMPY"));
    }
    let (bytes, before) = match fixed[6..] {
        [1, 0] => {
            let mut n = [0; 2];
            from.read_exact(&mut n)?;
            (usize::from(u16::from_le_bytes(n)), 10)
        }
        [2 | 3, 0] => {
            let mut n = [0; 4];
            from.read_exact(&mut n)?;
            (u32::from_le_bytes(n) as usize, 12)
        }
        _ => {
            return Err(header_error(format!(
                "version {}.{}; expected 1.0, 2.0 or 3.0",
                fixed[6], fixed[7]
            )));
        }
    };
    if bytes > LONGEST_HEADER {
        return Err(header_error(format!(
            "{bytes} bytes long; at most {LONGEST_HEADER} are accepted"
        )));
    }
    let start = before + bytes as u64;
    if length < start {
        return Err(ReadError::Length {
            expected: start,
            got: length,
        });
    }
    let mut text = vec![0; bytes];
    from.read_exact(&mut text)?;
    let text = String::from_utf8(text).map_err(|_| header_error("not UTF-8"))?;
    Ok((text, start))
}

#[derive(Debug, PartialEq)]
struct Header {
    descr: String,
    fortran_order: bool,
    shape: Vec<usize>,
}

impl Header {
    fn parse(text: &str) -> Result<Header, ReadError> {
        let mut p = Parser(text);
        let (mut descr, mut fortran_order, mut shape) = (None, None, None);
        p.expect('{')?;
        while !p.eat('}') {
            let key = p.string()?;
            p.expect(':')?;
            let twice = match key {
                "descr" => descr.replace(p.descr()?.to_owned()).is_some(),
                "fortran_order" => fortran_order.replace(p.boolean()?).is_some(),
                "shape" => shape.replace(p.shape()?).is_some(),
                _ => return Err(header_error(format!("unknown key {key:?}"))),
            };
            if twice {
                return Err(header_error(format!("{key:?} is given twice")));
            }
            if !p.eat(',') {
                p.expect('}')?;
                break;
            }
        }
        if !p.0.trim_ascii().is_empty() {
            return Err(header_error("text after the dictionary"));
        }
        match (descr, fortran_order, shape) {
            (Some(descr), Some(fortran_order), Some(shape)) => Ok(Header {
                descr,
                fortran_order,
                shape,
            }),
            _ => Err(header_error("expected the keys 'descr', 'fortran_order' and 'shape'")),
        }
    }

    /// The element type, and whether its most significant byte comes first.
    fn element(&self) -> Result<(DType, bool), ReadError> {
        let expected = "f2, f4 or f8 (npy has no bf16: safetensors does)";
        let refused = || ReadError::DType {
            what: "the array".into(),
            expected,
            got: self.descr.clone(),
        };
        let (order, kind) = self.descr.split_at_checked(1).ok_or_else(refused)?;
        let big_endian = match order {
            "<" => false,
            ">" => true,
            "=" => cfg!(target_endian = "big"),
            _ => return Err(refused()),
        };
        let dtype = match kind {
            "f2" => DType::F16,
            "f4" => DType::F32,
            "f8" => DType::F64,
            _ => return Err(refused()),
        };
        Ok((dtype, big_endian))
    }
}

/// What is left of the header's text.
struct Parser<'a>(&'a str);

impl<'a> Parser<'a> {
    fn eat(&mut self, c: char) -> bool {
        self.0 = self.0.trim_ascii_start();
        let rest = self.0.strip_prefix(c);
        self.0 = rest.unwrap_or(self.0);
        rest.is_some()
    }

    fn expect(&mut self, c: char) -> Result<(), ReadError> {
        if self.eat(c) {
            return Ok(());
        }
        let got: String = self.0.chars().take(12).collect();
        Err(header_error(format!("expected {c:?} at {got:?}")))
    }

    fn string(&mut self) -> Result<&'a str, ReadError> {
        let quote = if self.eat('"') { '"' } else { '\'' };
        if quote == '\'' {
            self.expect('\'')?;
        }
        let (text, rest) = self
            .0
            .split_once(quote)
            .ok_or_else(|| header_error("a string does not end"))?;
        self.0 = rest;
        Ok(text)
    }

    /// The element type; that of a structured array is a list.
    fn descr(&mut self) -> Result<&'a str, ReadError> {
        if self.eat('[') {
            let (what, got) = ("the array".into(), "a structure".into());
            return Err(ReadError::DType {
                what,
                expected: "f2, f4 or f8",
                got,
            });
        }
        self.string()
    }

    fn word(&mut self) -> &'a str {
        self.0 = self.0.trim_ascii_start();
        let end = self
            .0
            .find(|c: char| !c.is_ascii_alphanumeric())
            .unwrap_or(self.0.len());
        let (word, rest) = self.0.split_at(end);
        self.0 = rest;
        word
    }

    fn boolean(&mut self) -> Result<bool, ReadError> {
        match self.word() {
            "True" => Ok(true),
            "False" => Ok(false),
            other => Err(header_error(format!("expected True or False, got {other:?}"))),
        }
    }

    fn shape(&mut self) -> Result<Vec<usize>, ReadError> {
        self.expect('(')?;
        let mut shape = Vec::new();
        while !self.eat(')') {
            let word = self.word();
            // Python 2 wrote long integers as 3L.
            let digits = word.strip_suffix('L').unwrap_or(word);
            let size = digits
                .parse()
                .map_err(|_| header_error(format!("expected a size, got {word:?}")))?;
            shape.push(size);
            if !self.eat(',') {
                self.expect(')')?;
                break;
            }
        }
        Ok(shape)
    }
}

/// Writes an array, row-major and with the least significant byte first.
///
/// # Errors
/// Those of the writer, and [`io::ErrorKind::Unsupported`] for `bf16`, which the format does not have.
pub fn write(array: &Array, mut to: impl Write) -> io::Result<()> {
    let descr = match &array.data {
        TensorData::F16(_) => "<f2",
        TensorData::F32(_) => "<f4",
        TensorData::F64(_) => "<f8",
        TensorData::Bf16(_) => {
            return Err(io::Error::new(
                io::ErrorKind::Unsupported,
                "npy has no bf16; write a .safetensors file",
            ));
        }
    };
    let sizes: String = array.shape.iter().map(|size| format!("{size}, ")).collect();
    let sizes = if array.shape.len() == 1 {
        sizes.trim_end()
    } else {
        sizes.trim_end_matches(", ")
    };
    let dictionary = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': ({sizes}), }}");
    let before = MAGIC.len() + 4;
    let length = (before + dictionary.len() + 1).next_multiple_of(ALIGNMENT) - before;
    to.write_all(MAGIC)?;
    to.write_all(&[1, 0])?;
    // At most eight sizes of twenty digits: far below the limit.
    to.write_all(&(length as u16).to_le_bytes())?;
    writeln!(to, "{dictionary:<width$}", width = length - 1)?;
    elements::write(&array.data, &mut to)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(header: &str, data: &[u8]) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        bytes.extend([1, 0]);
        bytes.extend((header.len() as u16).to_le_bytes());
        bytes.extend(header.as_bytes());
        bytes.extend(data);
        bytes
    }

    fn read_bytes(bytes: &[u8]) -> Result<Array, String> {
        read(bytes, bytes.len() as u64).map_err(|e| e.to_string())
    }

    #[test]
    fn what_is_written_is_read() {
        for shape in [vec![], vec![4], vec![2, 3], vec![2, 0, 5]] {
            let len = shape.iter().product();
            let values: Vec<f64> = (0..len).map(|i| i as f64 / 4.0).collect();
            for dtype in [DType::F16, DType::F32, DType::F64] {
                let array = Array {
                    shape: shape.clone(),
                    data: TensorData::from_f64(dtype, &values),
                };
                let mut bytes = Vec::new();
                write(&array, &mut bytes).unwrap();
                assert_eq!((bytes.len() - len * dtype.bytes()) % ALIGNMENT, 0);
                assert_eq!(read_bytes(&bytes).unwrap(), array);
            }
        }
    }

    #[test]
    fn column_major_and_big_endian_are_read() {
        let data: Vec<u8> = [1f32, 3.0, 2.0, 4.0].iter().flat_map(|v| v.to_be_bytes()).collect();
        let array = read_bytes(&file(
            "{'descr': '>f4', 'fortran_order': True, 'shape': (2, 2L), }\n",
            &data,
        ))
        .unwrap();
        assert_eq!(array.data, TensorData::from(vec![1f32, 2.0, 3.0, 4.0]));
    }

    #[test]
    fn bad_files_are_refused_with_a_reason() {
        let header =
            |descr: &str, shape: &str| format!("{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}}}");
        for (header, data, reason) in [
            (header("'<f4'", "(2,)"), &[0; 7][..], "truncated"),
            (header("'<f4'", "(2,)"), &[0; 9], "too long"),
            (header("'<i4'", "(1,)"), &[0; 4], "has elements of type <i4"),
            (header("'é4'", "(1,)"), &[0; 4], "has elements of type é4"),
            (header("[('a', '<f4')]", "(1,)"), &[0; 4], "a structure"),
            (header("'<f4'", "(-1,)"), &[], "expected a size"),
            (header("'<f4'", "(99999999999999999999,)"), &[], "expected a size"),
            (header("'<f8'", "(9999999999, 9999999999)"), &[], "more elements than"),
            (header("'<f4'", "(1,1,1,1,1,1,1,1,1)"), &[0; 4], "at most 8"),
            (header("'<f4'", "(1,)").replace("descr", "what"), &[0; 4], "unknown key"),
            ("{'descr': '<f4'}".into(), &[], "expected the keys"),
            ("{'descr': '<f4".into(), &[], "does not end"),
            ("((((((((".into(), &[], "expected '{'"),
        ] {
            let error = read_bytes(&file(&header, data)).unwrap_err();
            assert!(error.contains(reason), "{header}: {error}");
        }
        assert!(
            read_bytes(b"PK\x03\x04 something else")
                .unwrap_err()
                .contains("not a npy file")
        );
        let long = [&MAGIC[..], &[2, 0, 0xff, 0xff, 0xff, 0xff]].concat();
        assert!(read_bytes(&long).unwrap_err().contains("at most 10000"));
    }
}
