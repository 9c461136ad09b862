//! How often kernels read and write tensors: the interpreter runs them on a small case and counts.

use isonorm::cuda::Interpreter;
use isonorm::{Error as Refusal, Geometry, GpuProperties, NormDesc, Rung, Shape};
use isonorm_check::{Case, InterpreterEngine, run_case};

use crate::error::{Error, Result};

/// The GPU that the small case is planned for, where none is at hand.
const GPU: &str = "h200";
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

/// How often the kernels of a rung, or of the plan, read x (and dy) and write the result.
pub(super) fn transfers(desc: &NormDesc, rung: Option<Rung>, gpu: Option<GpuProperties>) -> Result<(f64, f64)> {
    let last = if desc.get_norm().has_channels() { SMALL } else { SMALL_ROW };
    let shape = small(desc.get_shape(), last).unwrap_or(desc.get_shape());
    let of_shape = match rung {
        Some(rung) => rung.desc(shape),
        None => resized(desc, shape)?,
    };
    let known = || GpuProperties::known(GPU).ok_or_else(|| Error::usage(format!("{GPU} is not known")));
    let mut engine = InterpreterEngine::new(Interpreter::new(gpu.map_or_else(known, Ok)?));
    let mut case = Case::new(of_shape);
    case.rung = rung;
    let report = run_case(&mut engine, &case);
    if !report.passed {
        return Err(Error::Isonorm(Refusal::Kernel {
            kernel: rung.map_or("isonorm", Rung::name).into(),
            fault: format!("on a small case: {report}"),
        }));
    }
    let tensor = (Geometry::of(&of_shape)?.elements() * size_of::<f32>()) as f64;
    let sum = |names: [&str; 2], of: fn(&isonorm::cuda::Moved) -> u64| {
        let named = engine.moved().iter().filter(|m| names.contains(&&m.argument[..]));
        named.map(of).sum::<u64>() as f64 / tensor
    };
    Ok((sum(["x", "dy"], |m| m.read_bytes), sum(["y", "dx"], |m| m.written_bytes)))
}

/// The same problem of other sizes.
fn resized(desc: &NormDesc, shape: Shape) -> Result<NormDesc> {
    let text = desc.to_string();
    let words = text.split(' ').map(|word| match word.strip_prefix("x=") {
        Some(_) => format!("x={shape}"),
        None => word.to_owned(),
    });
    Ok(words.collect::<Vec<_>>().join(" ").parse()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fused_kernel_reads_twice_and_the_plan_once() {
        let desc = Rung::BnWelfordFused.desc([64, 256, 56, 56]);
        assert_eq!(transfers(&desc, Some(Rung::BnWelfordFused), None).unwrap(), (2.0, 1.0));
        assert_eq!(transfers(&desc, None, None).unwrap(), (1.0, 1.0));
        let desc = Rung::LnNaive.desc([1024, 1024]);
        assert_eq!(transfers(&desc, Some(Rung::LnNaive), None).unwrap(), (3.0, 1.0));
        assert_eq!(transfers(&desc, None, None).unwrap(), (1.0, 1.0));
    }
}
