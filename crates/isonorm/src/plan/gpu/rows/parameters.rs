//! Weight and bias of rows.

use isonorm_kernels::rows::parameters::Sharing;

use crate::{DType, Geometry, NormDesc};

/// Which parameters belong to a row, as kernels are told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Parameters {
    pub(crate) sharing: Sharing,
    /// Columns that share a parameter.
    pub(crate) run: u64,
    /// Row `r` has set `r mod sets`.
    pub(crate) sets: u32,
    /// Parameters of a set.
    pub(crate) runs: u32,
    /// Whether they have the data's type, else `f32`.
    pub(crate) as_data: bool,
}

impl Parameters {
    /// None.
    pub(super) const NONE: Parameters = Parameters {
        sharing: Sharing::ByColumn,
        run: 1,
        sets: 1,
        runs: 1,
        as_data: false,
    };

    /// Whether so many sums of each gradient are the gradient itself, in its type and place.
    pub(super) fn are_gradients(&self, sums: u64) -> bool {
        sums == 1
            && !self.as_data
            && match self.sharing {
                Sharing::ByColumn | Sharing::BySegment | Sharing::AcrossRuns => true,
                Sharing::ByRun | Sharing::Segmented => false,
            }
    }

    /// Weight and bias, and given statistics, of a row.
    pub(super) fn of(desc: &NormDesc, g: &Geometry) -> Result<Parameters, String> {
        let narrow = |number: usize| u32::try_from(number).map_err(|_| "there are more than 2³² channels".to_string());
        let (affine, given) = (desc.get_affine(), desc.uses_running_statistics());
        let by_column = g.affine.kept_stride == 0 && g.affine.inner_divisor.is_some_and(|d| d.get() == 1);
        let by_column = !given && (by_column || !affine.has_weight());
        let as_data = desc.get_param_dtype() != DType::F32;
        if by_column {
            return Ok(Parameters {
                sharing: Sharing::ByColumn,
                run: 1,
                sets: 1,
                runs: 1,
                as_data,
            });
        }
        narrow(g.parameters)?;
        let run = g.affine.inner_divisor.map_or(g.inner, |d| d.get());
        Ok(Parameters {
            sharing: Sharing::ByRun,
            run: run as u64,
            sets: narrow(if g.affine.kept_stride == 0 {
                1
            } else {
                g.affine.kept_modulus.get()
            })?,
            runs: narrow(g.inner.div_ceil(run))?,
            as_data,
        })
    }
}
