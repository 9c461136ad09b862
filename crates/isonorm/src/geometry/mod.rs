//! The one 4-D problem behind every op.
//!
//! A tensor in memory is viewed, without a copy, as `[batch, outer, kept, inner]`, row-major. Statistics are taken over
//! `(outer, inner)` for each `(batch, kept)` pair: a *group*. Op names end here; what is below sees only this view.
//!
//! | op | layout | batch | outer | kept | inner | affine parameter index |
//! |---|---|---|---|---|---|---|
//! | BatchNorm | N,C,spatial | 1 | N | C | spatial | kept |
//! | BatchNorm | channels-last | 1 | N·spatial | C | 1 | kept |
//! | LayerNorm, RMSNorm | last dims | 1 | 1 | rows | D | inner |
//! | LayerNorm, RMSNorm | channels of N,C,spatial | N | C | spatial | 1 | outer |
//! | LayerNorm, RMSNorm | channels of N,spatial,C | 1 | 1 | N·spatial | C | inner |
//! | InstanceNorm | N,C,spatial | 1 | 1 | N·C | spatial | kept mod C |
//! | InstanceNorm | channels-last | N | spatial | C | 1 | kept |
//! | InstanceNorm, running statistics | both | as BatchNorm | | | | |
//! | GroupNorm | N,C,spatial | 1 | 1 | N·G | (C/G)·spatial | (kept mod G)·C/G + inner/spatial |
//! | GroupNorm | channels-last | N | spatial | G | C/G | kept·C/G + inner |
//!
//! ```
//! use isonorm::{Geometry, NormDesc};
//!
//! let g = Geometry::of(&NormDesc::group_norm([8, 512, 64, 64], 32).channels_last())?;
//! assert_eq!((g.batch, g.outer, g.kept, g.inner), (8, 4096, 32, 16));
//! assert_eq!(g.affine.at(3, 0, 5), 3 * 16 + 5);
//! # Ok::<(), isonorm::Error>(())
//! ```

use std::num::NonZero;

use crate::{Layout, Norm, NormDesc, Over, Result};

/// Which affine parameter belongs to an element: `(kept mod kept_modulus)·kept_stride + outer·outer_stride +
/// inner/inner_divisor`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AffineIndex {
    /// After how many kept positions the parameters repeat.
    pub kept_modulus: NonZero<usize>,
    /// Parameters from one kept position to the next; 0 when they do not depend on it.
    pub kept_stride: usize,
    /// Parameters from one outer position to the next; 0 when they do not depend on it.
    pub outer_stride: usize,
    /// How many neighbouring inner elements share a parameter; `None` when all do.
    pub inner_divisor: Option<NonZero<usize>>,
}

impl AffineIndex {
    /// The parameter's index for the element at `(kept, outer, inner)`.
    pub fn at(&self, kept: usize, outer: usize, inner: usize) -> usize {
        self.of_segment(kept, outer) + self.inner_divisor.map_or(0, |d| inner / d)
    }

    /// The parameter's index of the first element of the segment at `(kept, outer)`.
    pub fn of_segment(&self, kept: usize, outer: usize) -> usize {
        let by_kept = match self.kept_stride {
            0 => 0,
            stride => (kept % self.kept_modulus) * stride,
        };
        by_kept + outer * self.outer_stride
    }
}

/// The 4-D view of a problem; see the [module](self).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Geometry {
    /// Outermost dimension: groups differ.
    pub batch: usize,
    /// Reduced dimension.
    pub outer: usize,
    /// Groups differ.
    pub kept: usize,
    /// Innermost, contiguous, reduced dimension.
    pub inner: usize,
    /// Which weight and bias belong to an element.
    pub affine: AffineIndex,
    /// The number of elements of weight and of bias.
    pub parameters: usize,
    /// The number of elements of running mean and running variance; group `g` belongs to channel `g mod channels`. Zero for
    /// ops that have none.
    pub channels: usize,
}

const ONE: NonZero<usize> = NonZero::<usize>::MIN;

impl Geometry {
    /// The view of this problem.
    ///
    /// # Errors
    /// Those of [`NormDesc::check`].
    pub fn of(desc: &NormDesc) -> Result<Geometry> {
        desc.check()?;
        let shape = desc.get_shape();
        let dims = shape.dims();
        let product = |d: &[usize]| -> usize { d.iter().product() };
        let shared = AffineIndex {
            kept_modulus: ONE,
            kept_stride: 0,
            outer_stride: 0,
            inner_divisor: None,
        };
        let by_kept = |c: usize| AffineIndex {
            kept_modulus: NonZero::new(c).unwrap_or(ONE),
            kept_stride: 1,
            ..shared
        };
        let by_inner = AffineIndex {
            inner_divisor: Some(ONE),
            ..shared
        };

        let norm = match desc.get_norm() {
            // Statistics that are told are a channel's, of every image.
            Norm::Instance if desc.uses_running_statistics() => Norm::Batch,
            norm => norm,
        };
        let (view, affine, parameters) = match (norm, desc.get_layout()) {
            (Norm::Layer(Over::Last(n)) | Norm::Rms(Over::Last(n)), _) => {
                let (rows, row) = dims.split_at(dims.len() - n);
                ([1, 1, product(rows), product(row)], by_inner, product(row))
            }
            (norm, layout) => {
                let (n, c, spatial) = (dims[0], dims[1], product(&dims[2..]));
                let last = layout == Layout::ChannelsLast;
                let (view, affine) = match norm {
                    Norm::Batch if last => ([1, n * spatial, c, 1], by_kept(c)),
                    Norm::Batch => ([1, n, c, spatial], by_kept(c)),
                    Norm::Instance if last => ([n, spatial, c, 1], by_kept(c)),
                    Norm::Instance => ([1, 1, n * c, spatial], by_kept(c)),
                    Norm::Group { groups } => {
                        let width = c / groups;
                        let of_group = AffineIndex {
                            kept_stride: if groups == 1 { 0 } else { width },
                            ..by_kept(groups)
                        };
                        let divided = |d| AffineIndex {
                            inner_divisor: Some(NonZero::new(d).unwrap_or(ONE)),
                            ..of_group
                        };
                        if last {
                            ([n, spatial, groups, width], divided(1))
                        } else {
                            ([1, 1, n * groups, width * spatial], divided(spatial))
                        }
                    }
                    // One channel, or one position: the same in memory.
                    Norm::Layer(_) | Norm::Rms(_) if last || c == 1 || spatial == 1 => {
                        ([1, 1, n * spatial, c], by_inner)
                    }
                    Norm::Layer(_) | Norm::Rms(_) => (
                        [n, c, spatial, 1],
                        AffineIndex {
                            outer_stride: 1,
                            ..shared
                        },
                    ),
                };
                (view, affine, c)
            }
        };
        let [batch, outer, kept, inner] = view;
        let channels = if desc.get_norm().has_running_statistics() {
            parameters
        } else {
            0
        };
        Ok(Geometry {
            batch,
            outer,
            kept,
            inner,
            affine,
            parameters,
            channels,
        }
        .canonical())
    }

    /// Where memory and groups allow several views, the one with the longest contiguous run: `outer` moves into `inner`
    /// when nothing is kept between them (one channel), `[N, C]` loses its inner 1 when there is a batch of one.
    fn canonical(self) -> Geometry {
        if self.kept == 1 && self.outer > 1 && self.affine.outer_stride == 0 && self.affine.inner_divisor.is_none() {
            return Geometry {
                inner: self.outer * self.inner,
                outer: 1,
                ..self
            };
        }
        self
    }

    /// The number of elements of the tensor.
    pub fn elements(&self) -> usize {
        self.batch * self.outer * self.kept * self.inner
    }

    /// The number of groups, which is also the number of elements of the saved mean and of the saved rstd. Group
    /// `(batch, kept)` has the index `batch·kept_size + kept`.
    pub fn groups(&self) -> usize {
        self.batch * self.kept
    }

    /// The number of elements of a group.
    pub fn group_size(&self) -> usize {
        self.outer * self.inner
    }

    /// The length of a contiguous row of memory at one `(batch, outer)` position.
    pub fn row(&self) -> usize {
        self.kept * self.inner
    }

    /// The offset of the segment at `(batch, outer, kept)`: `inner` contiguous elements.
    pub fn segment(&self, batch: usize, outer: usize, kept: usize) -> usize {
        ((batch * self.outer + outer) * self.kept + kept) * self.inner
    }
}
