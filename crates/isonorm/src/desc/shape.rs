use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The most dimensions a tensor may have.
pub const MAX_RANK: usize = 8;

/// The sizes of a tensor's dimensions, outermost first. Holds at most [`MAX_RANK`] and never allocates.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(try_from = "Vec<usize>", into = "Vec<usize>")]
pub struct Shape {
    dims: [usize; MAX_RANK],
    rank: u8,
}

impl Shape {
    /// A shape of these sizes, or `None` when there are more than [`MAX_RANK`].
    pub fn new(dims: &[usize]) -> Option<Shape> {
        let mut shape = Shape {
            dims: [0; MAX_RANK],
            rank: dims.len().try_into().ok()?,
        };
        shape.dims.get_mut(..dims.len())?.copy_from_slice(dims);
        Some(shape)
    }

    /// The sizes, outermost first.
    pub fn dims(&self) -> &[usize] {
        &self.dims[..usize::from(self.rank)]
    }

    /// The number of dimensions.
    pub fn rank(&self) -> usize {
        usize::from(self.rank)
    }

    /// The number of elements, or `None` when there are more than any machine has memory for (sizes of zero count as one
    /// for this test, so that a strided view of an empty tensor cannot overflow either).
    pub fn elements(&self) -> Option<usize> {
        const LARGEST_ELEMENT: usize = 8;
        /// 4 PiB, or what a pointer can address: small enough that a multiple of it, such as a workspace, can be counted.
        const MOST_BYTES: u64 = if (isize::MAX as u64) < 1 << 52 {
            isize::MAX as u64
        } else {
            1 << 52
        };
        let product = |zero_as: usize| {
            self.dims()
                .iter()
                .try_fold(1usize, |p, &d| p.checked_mul(if d == 0 { zero_as } else { d }))
        };
        let bytes = product(1)?.checked_mul(LARGEST_ELEMENT)?;
        if bytes as u64 > MOST_BYTES {
            return None;
        }
        product(0)
    }
}

impl<const N: usize> From<[usize; N]> for Shape {
    /// # Panics
    /// When `N > MAX_RANK`, at compile time.
    fn from(dims: [usize; N]) -> Shape {
        const { assert!(N <= MAX_RANK, "a tensor has at most 8 dimensions") };
        let mut all = [0; MAX_RANK];
        all[..N].copy_from_slice(&dims);
        Shape {
            dims: all,
            rank: N as u8,
        }
    }
}

impl From<usize> for Shape {
    /// One dimension.
    fn from(size: usize) -> Shape {
        Shape::from([size])
    }
}

impl TryFrom<&[usize]> for Shape {
    type Error = String;

    fn try_from(dims: &[usize]) -> Result<Shape, String> {
        Shape::new(dims).ok_or_else(|| format!("{} dimensions; at most {MAX_RANK} are supported", dims.len()))
    }
}

impl TryFrom<Vec<usize>> for Shape {
    type Error = String;

    fn try_from(dims: Vec<usize>) -> Result<Shape, String> {
        Shape::try_from(&dims[..])
    }
}

impl From<Shape> for Vec<usize> {
    fn from(shape: Shape) -> Vec<usize> {
        shape.dims().to_vec()
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.rank == 0 {
            return f.write_str("scalar");
        }
        for (i, d) in self.dims().iter().enumerate() {
            write!(f, "{}{d}", if i == 0 { "" } else { "x" })?;
        }
        Ok(())
    }
}

impl fmt::Debug for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Shape({self})")
    }
}

impl FromStr for Shape {
    type Err = String;

    fn from_str(s: &str) -> Result<Shape, String> {
        let mut dims = Vec::new();
        for part in s.split('x') {
            if !part.bytes().all(|b| b.is_ascii_digit()) || part.is_empty() {
                return Err(format!("{part:?} is not a size; a shape looks like 64x256x56x56"));
            }
            dims.push(part.parse().map_err(|_| format!("{part} is too large a size"))?);
        }
        Shape::try_from(dims)
    }
}
