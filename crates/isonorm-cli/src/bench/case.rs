//! One problem and its floor, in turns. A turn is a stretch of runs after one that is not counted, so that each finds the
//! caches as it left them itself: how a copy left them is not the problem's fault.

use std::time::{Duration, Instant};

use isonorm::{Device, NormDesc};
use isonorm_report::record::Row;

use super::floor::Floor;
use super::random;
use crate::call::{Call, Save};
use crate::error::Result;
use crate::format::gbps;
use crate::measure::{least, median, spread};

/// PyTorch's default share of the batch in running statistics.
pub(crate) const MOMENTUM: f64 = 0.1;
/// Runs before anything is measured: caches, pages and clocks settle.
const WARM_UP: usize = 3;
/// A sample lasts at least this long, so that the clock's own time does not count.
const SHORTEST_SAMPLE: Duration = Duration::from_micros(50);
/// Turns that the problem and its floor take, each a share of the time.
pub(super) const TURNS: u32 = 4;
/// Of a turn.
const FEWEST_SAMPLES: usize = 3;
const MOST_SAMPLES: usize = 2000;

/// What was found about a time and its floor, in seconds of one run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timed {
    pub(crate) median_s: f64,
    pub(crate) floor_s: f64,
    /// 10th to 90th percentile, as a share of the median.
    pub(crate) spread: f64,
    min_s: f64,
    samples: usize,
}

impl Timed {
    pub(super) fn of(times: &[f64], floors: &[f64]) -> Timed {
        Timed {
            median_s: median(times),
            floor_s: median(floors),
            spread: spread(times),
            min_s: least(times),
            samples: times.len(),
        }
    }

    /// As a record has it.
    pub(super) fn row(&self, desc: &NormDesc, plan: &str, bytes: u64) -> Row {
        Row {
            case: desc.to_string(),
            plan: Some(plan.into()),
            median_s: self.median_s,
            min_s: Some(self.min_s),
            spread: Some(self.spread),
            floor_s: self.floor_s,
            ratio: self.median_s / self.floor_s,
            bytes: Some(bytes),
            gbps: Some(gbps(bytes, self.median_s)),
            samples: Some(self.samples),
            ..Row::default()
        }
    }
}

/// Measures a problem and its floor for at least this time.
pub(super) fn measure(desc: &NormDesc, device: &Device, min_time: Duration) -> Result<Row> {
    let mut call = prepare(desc, device)?;
    let (timed, floor) = measure_with_floor(&mut call, device, min_time)?;
    let bytes = call.plan().traffic().compulsory_bytes;
    Ok(Row {
        floor: Some(floor.name().into()),
        ..timed.row(desc, call.plan().name(), bytes)
    })
}

/// Measures what is ready to be run, and its floor, for at least this time.
pub(crate) fn measure_call(call: &mut Call, device: &Device, min_time: Duration) -> Result<Timed> {
    Ok(measure_with_floor(call, device, min_time)?.0)
}

/// The median of the seconds that something takes, and their spread.
pub(crate) fn measure_loop(min_time: Duration, mut run: impl FnMut()) -> Result<(f64, f64)> {
    let mut times = Vec::new();
    take_turn(min_time, &mut times, || {
        seconds(1, || {
            run();
            Ok(())
        })
    })?;
    Ok((median(&times), spread(&times)))
}

fn measure_with_floor(call: &mut Call, device: &Device, min_time: Duration) -> Result<(Timed, Floor)> {
    let in_place = call.desc().is_in_place();
    let mut once = || -> Result<f64> {
        call.prepare();
        seconds(1, || Ok(call.run(device)?))
    };
    let warm = (0..WARM_UP).map(|_| once()).collect::<Result<Vec<_>>>()?;
    let floor = fastest_floor(call);
    // A problem that works in place needs its input back before every run.
    let runs = if in_place { 1 } else { repeats(least(&warm)) };
    let copies = repeats(floor.1);

    let (mut times, mut floors) = (Vec::new(), Vec::new());
    let turn = min_time / (2 * TURNS);
    for _ in 0..TURNS {
        take_turn(turn, &mut times, || {
            call.prepare();
            seconds(runs, || Ok(call.run(device)?))
        })?;
        take_turn(turn, &mut floors, || Ok(time_floor(floor.0, copies, call)))?;
    }
    Ok((Timed::of(&times, &floors), floor.0))
}

/// Takes samples for at least this time.
pub(super) fn take_turn(time: Duration, samples: &mut Vec<f64>, mut sample: impl FnMut() -> Result<f64>) -> Result<()> {
    sample()?;
    let start = Instant::now();
    for taken in 0..MOST_SAMPLES {
        if taken >= FEWEST_SAMPLES && start.elapsed() >= time {
            break;
        }
        samples.push(sample()?);
    }
    Ok(())
}

fn prepare(desc: &NormDesc, device: &Device) -> Result<Call> {
    let plan = device.plan(desc)?;
    let g = plan.geometry();
    let inputs = random::inputs(desc, g.elements(), g.parameters, device)?;
    Call::new(plan, inputs, saved(desc), MOMENTUM)
}

/// A training pass saves what the backward pass needs.
pub(super) fn saved(desc: &NormDesc) -> Save {
    let train = desc.get_pass() == isonorm::Pass::Train;
    Save {
        mean: train && desc.get_norm().is_centred(),
        rstd: train,
    }
}

/// Bytes of all tensors of the problem's shape: at most `x`, `dy`, the residual, the result, the residual's gradient, and
/// what the statistics for a backward pass are computed with.
pub(crate) fn bytes(desc: &NormDesc) -> u64 {
    const MOST_TENSORS: u64 = 6;
    let elements = desc.get_shape().elements().unwrap_or(usize::MAX) as u64;
    elements.saturating_mul(MOST_TENSORS * desc.get_dtype().bytes() as u64)
}

/// Seconds of one of `runs` runs.
fn seconds(runs: u32, mut run: impl FnMut() -> Result<()>) -> Result<f64> {
    let start = Instant::now();
    for _ in 0..runs {
        run()?;
    }
    Ok(start.elapsed().as_secs_f64() / f64::from(runs))
}

/// Runs that last as long as a sample must.
fn repeats(one: f64) -> u32 {
    // The cast saturates.
    (SHORTEST_SAMPLE.as_secs_f64() / one.max(1e-9)).ceil().max(1.0) as u32
}

/// Seconds that the bytes of the problem take this way.
fn time_floor(floor: Floor, copies: u32, call: &mut Call) -> f64 {
    let start = Instant::now();
    let factor = (0..copies).fold(1.0, |_, _| floor.run(call));
    start.elapsed().as_secs_f64() / f64::from(copies) * factor
}

/// The fastest way to move the bytes, and its seconds.
fn fastest_floor(call: &mut Call) -> (Floor, f64) {
    let mut best = (Floor::Copy, f64::INFINITY);
    for &floor in Floor::ALL {
        let copies = repeats(time_floor(floor, 1, call));
        let times: Vec<_> = (0..WARM_UP).map(|_| time_floor(floor, copies, call)).collect();
        if least(&times) < best.1 {
            best = (floor, least(&times));
        }
    }
    best
}
