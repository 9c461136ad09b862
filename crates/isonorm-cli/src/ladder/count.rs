//! How often kernels read and write tensors: the interpreter runs them on a small case and counts.

use isonorm::cuda::{Interpreter, Moved};
use isonorm::{Error as Refusal, Geometry, GpuProperties, NormDesc, Rung, Shape};
use isonorm_check::{Case, InterpreterEngine, run_case};

use crate::error::{Error, Result};

/// Sizes of a small case, at most.
const SMALL: usize = 6;
const SMALL_ROW: usize = 300;

/// The same rank, small.
fn small(shape: Shape, last: usize) -> Option<Shape> {
    let dims = shape.dims();
    let (rest, end) = dims.split_at(dims.len().saturating_sub(1));
    let rest = rest.iter().map(|&size| size.min(SMALL));
    Shape::new(&rest.chain(end.iter().map(|&size| size.min(last))).collect::<Vec<_>>())
}

/// How often the kernels of a rung read x (and dy) and write the result, on a GPU with these properties.
pub(super) fn transfers(rung: Rung, desc: &NormDesc, gpu: GpuProperties) -> Result<(f64, f64)> {
    let last = if rung.is_layer_norm() { SMALL_ROW } else { SMALL };
    let small = rung.desc(small(desc.get_shape(), last).unwrap_or(desc.get_shape()));
    let mut engine = InterpreterEngine::new(Interpreter::new(gpu));
    let report = run_case(&mut engine, &Case::new(small).rung(rung));
    if !report.passed {
        return Err(Error::Isonorm(Refusal::Kernel {
            kernel: rung.name().into(),
            fault: format!("on a small case: {report}"),
        }));
    }
    let tensor = (Geometry::of(&small)?.elements() * size_of::<f32>()) as f64;
    let sum = |names: [&str; 2], of: fn(&Moved) -> u64| {
        let named = engine.moved().iter().filter(|m| names.contains(&&m.argument[..]));
        named.map(of).sum::<u64>() as f64 / tensor
    };
    Ok((
        sum(["x", "dy"], |m| m.read_bytes),
        sum(["y", "dx"], |m| m.written_bytes),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rungs_are_counted_on_a_small_case() {
        let gpu = || GpuProperties::known("h200").unwrap();
        let of = |rung: Rung, dims: &[usize]| {
            let desc = rung.desc(Shape::new(dims).unwrap());
            transfers(rung, &desc, gpu()).unwrap()
        };
        assert_eq!(of(Rung::BnNaive, &[64, 256, 56, 56]), (3.0, 1.0));
        assert_eq!(of(Rung::BnWelfordFused, &[64, 256, 56, 56]), (2.0, 1.0));
        assert_eq!(of(Rung::BnReluBackward, &[64, 256, 56, 56]), (4.0, 1.0));
        assert_eq!(of(Rung::LnVec4, &[1024, 1024]), (2.0, 1.0));
    }
}
