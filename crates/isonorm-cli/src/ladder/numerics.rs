//! Errors as the mean grows: what each algorithm makes of data that lies far from 0.

use isonorm::cuda::Stream;
use isonorm::{Device, NormDesc, Rung, TensorData};
use isonorm_report::record::Numerics;

use super::gpu::OURS;
use super::judge::judge;
use super::problem::{Input, Problem};
use crate::call::{Call, GpuCall, Inputs, Save};
use crate::error::Result;

/// Sizes of which every algorithm sums up a few thousand numbers.
const ROWS: [usize; 2] = [4096, 64];
const IMAGES: [usize; 4] = [16, 32, 16, 16];
const LONG_ROWS: [usize; 2] = [64, 4096];
/// Means of the data, in standard deviations, as powers of ten; `f32` ends soon behind the last.
const POWERS: std::ops::RangeInclusive<i32> = 0..=7;

/// The problems, and the rungs that differ in how they add up.
fn problems() -> [(NormDesc, &'static [Rung]); 3] {
    [
        (Rung::BnTileNc.desc(ROWS), &[Rung::BnTileNc]),
        (
            Rung::BnNaive.desc(IMAGES),
            &[Rung::BnNaive, Rung::BnWelfordBlock, Rung::BnWelfordFused],
        ),
        (
            Rung::LnNaive.desc(LONG_ROWS),
            &[Rung::LnNaive, Rung::LnShared, Rung::LnVec4],
        ),
    ]
}

/// The largest errors of isonorm and, on a GPU, of rungs.
pub(super) fn measure(
    stream: Option<&Stream>,
    host: &Device,
    is_of: impl Fn(&NormDesc) -> bool,
) -> Result<Vec<Numerics>> {
    let mut points = Vec::new();
    for (desc, rungs) in problems().into_iter().filter(|(desc, _)| is_of(desc)) {
        let problem = Problem {
            desc,
            input: Input::Normal,
            rungs: rungs.to_vec(),
        };
        let inputs = problem.inputs(host)?;
        for power in POWERS {
            let mean = 10f64.powi(power);
            let given = Inputs {
                x: moved(&inputs.x, mean),
                running: None,
                ..inputs.clone()
            };
            let by = rungs.iter().map(|&rung| Some(rung)).filter(|_| stream.is_some());
            for rung in by.chain([None]) {
                let y = match stream {
                    Some(stream) => on_gpu(&desc, rung, stream, &given)?,
                    None => on_host(&desc, host, &given)?,
                };
                points.push(Numerics {
                    implementation: rung.map_or(OURS, Rung::name).into(),
                    case: desc.to_string(),
                    mean_over_std: mean,
                    error: judge(&desc, rung, &given, &y)?.error,
                });
            }
        }
    }
    Ok(points)
}

/// The same data about another mean, rounded to what `f32` has there.
fn moved(x: &TensorData, mean: f64) -> TensorData {
    let values: Vec<f64> = x.to_f64().into_iter().map(|x| x + mean).collect();
    TensorData::from_f64(x.dtype(), &values)
}

fn on_gpu(desc: &NormDesc, rung: Option<Rung>, stream: &Stream, inputs: &Inputs) -> Result<TensorData> {
    let device = stream.device();
    let plan = match rung {
        Some(rung) => device.rung(rung, desc)?,
        None => device.plan(desc)?,
    };
    plan.prepare()?;
    let mut call = GpuCall::new(plan, stream, inputs, Save::default(), 0.0)?;
    call.run()?;
    Ok(call.into_outputs()?.main)
}

fn on_host(desc: &NormDesc, host: &Device, inputs: &Inputs) -> Result<TensorData> {
    let mut call = Call::new(host.plan(desc)?, inputs.clone(), Save::default(), 0.0)?;
    call.run(host)?;
    Ok(call.into_outputs().main)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mean_of_ten_million_deviations_costs_isonorm_no_digit() {
        let points = measure(None, &Device::cpu(), |_| true).unwrap();
        assert_eq!(points.len(), 3 * POWERS.count());
        for point in points {
            assert!(point.error.is_some_and(|error| error < 1e-4), "{point:?}");
        }
    }
}
