//! What the ladder's kernels are run on.

use isonorm::{DType, Device, Geometry, NormDesc, Pass, Rung, Shape, TensorData};

use super::Op;
use crate::bench;
use crate::call::{Inputs, statistics_of};
use crate::error::{Error, Result};

/// Sizes that kernels of BatchNorm were published with. Of the third only batch and channels are known; this is the other layer of a
/// ResNet-50 that has as many channels.
const BATCH_NORM: [&[usize]; 3] = [&[5000, 512], &[64, 256, 56, 56], &[64, 256, 14, 14]];
/// The same for LayerNorm.
const LAYER_NORM: &[usize] = &[1024, 1024];

/// What `x` looks like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Input {
    /// Random: mean 0, deviation 1.
    Normal,
    /// 1, 2, 3, and so on, in the order of memory.
    Counting,
}

impl Input {
    /// Its name in records.
    pub(super) fn name(self) -> &'static str {
        match self {
            Input::Normal => "normal",
            Input::Counting => "counting",
        }
    }
}

/// A problem, and the rungs that carry it out.
#[derive(Clone, Debug)]
pub(super) struct Problem {
    pub(super) desc: NormDesc,
    pub(super) input: Input,
    pub(super) rungs: Vec<Rung>,
}

impl Problem {
    /// Whether it is the forward pass of a training step.
    pub(super) fn is_training(&self) -> bool {
        self.desc.get_pass() == Pass::Train
    }

    /// Bytes of its tensors, and of what a CPU's rung has beside them.
    pub(super) fn bytes(&self) -> u64 {
        bench::bytes(&self.desc)
    }

    /// All that it reads, the same every time.
    pub(super) fn inputs(&self, device: &Device) -> Result<Inputs> {
        let g = Geometry::of(&self.desc)?;
        let mut inputs = bench::random_inputs(&self.desc, g.elements(), g.parameters, device)?;
        if self.input == Input::Counting {
            let counted: Vec<f32> = (0..g.elements()).map(|i| (i + 1) as f32).collect();
            inputs.x = TensorData::F32(counted);
            if self.desc.get_pass() == Pass::Backward {
                inputs.saved = statistics_of(&self.desc, &inputs.x, device)?;
            }
        }
        debug_assert_eq!(self.desc.get_dtype(), DType::F32);
        Ok(inputs)
    }
}

/// The problems of these sizes, or those that were published.
pub(super) fn asked_for(op: Option<Op>, shape: Option<Shape>) -> Result<Vec<Problem>> {
    let has = |of| op.is_none_or(|op| op == of);
    let shapes = |published: &[&[usize]]| match shape {
        Some(shape) => vec![shape],
        None => published.iter().filter_map(|dims| Shape::new(dims)).collect(),
    };
    let mut problems = Vec::new();
    if has(Op::Batchnorm) {
        for shape in shapes(&BATCH_NORM) {
            // The other kernels were written for images; they can do rows, when asked to.
            let rows = shape.dims().len() == 2;
            let fits = |rung: &Rung| match rung {
                Rung::BnTileNc => rows,
                rung => !rung.is_layer_norm() && (!rows || op.is_some()),
            };
            group(shape, Input::Normal, Rung::ALL.into_iter().filter(fits), &mut problems);
        }
    }
    if has(Op::Layernorm) {
        for shape in shapes(&[LAYER_NORM]) {
            let of_layer_norm = Rung::ALL.into_iter().filter(|rung| rung.is_layer_norm());
            group(shape, Input::Counting, of_layer_norm, &mut problems);
        }
    }
    for Problem { desc, .. } in &problems {
        desc.check()?;
        if desc.get_shape().elements() == Some(0) {
            return Err(Error::usage(format!("{desc}: there are no elements to measure")));
        }
    }
    Ok(problems)
}

/// Rungs that compute the same make a problem.
fn group(shape: Shape, input: Input, rungs: impl Iterator<Item = Rung>, problems: &mut Vec<Problem>) {
    let first = problems.len();
    for rung in rungs {
        let desc = rung.desc(shape);
        match problems[first..].iter_mut().find(|problem| problem.desc == desc) {
            Some(problem) => problem.rungs.push(rung),
            None => problems.push(Problem {
                desc,
                input,
                rungs: vec![rung],
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rung_has_a_place_in_the_published_set_ups() {
        let problems = asked_for(None, None).unwrap();
        for rung in Rung::ALL {
            assert!(problems.iter().any(|p| p.rungs.contains(&rung)), "{rung}");
        }
        assert_eq!(
            problems[0].desc.to_string(),
            Rung::BnTileNc.desc([5000, 512]).to_string()
        );
        assert_eq!(problems.last().unwrap().input, Input::Counting);
    }

    #[test]
    fn sizes_choose_the_rungs_that_were_written_for_them() {
        let of = |op, dims: &[usize]| asked_for(Some(op), Shape::new(dims)).unwrap();
        let names = |problem: &Problem| problem.rungs.iter().map(|r| r.name()).collect::<Vec<_>>();
        let rows = of(Op::Batchnorm, &[8, 4]);
        assert_eq!(
            names(&rows[0]),
            [
                "bn-tile-nc",
                "bn-naive",
                "bn-welford-block",
                "bn-welford-warp",
                "bn-welford-fused"
            ]
        );
        let images = of(Op::Batchnorm, &[8, 4, 3]);
        assert!(images.iter().all(|p| !p.rungs.contains(&Rung::BnTileNc)));
        assert_eq!(of(Op::Layernorm, &[8, 4])[0].rungs.len(), 4);
        assert!(asked_for(Some(Op::Batchnorm), Shape::new(&[7])).is_err());
    }
}
