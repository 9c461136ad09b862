//! Running statistics from those of rows.

use isonorm_kernels::interpreter::{Buffers, Launch};
use isonorm_kernels::rows::running::{Args, running, shared_bytes};
use isonorm_math::{Bf16, F16};

use crate::expect::Rounding;

const FACTOR: f64 = 0.3;
const UNBIAS: f64 = 1.25;

/// What instance `i` of channel `c` has: a multiple of 1/8, so that sums of them have no error.
fn statistic(i: usize, c: usize) -> f32 {
    ((7 * i + 3 * c) % 16) as f32 / 8.0
}

/// Running statistics of type `P`, of data of type `T`.
fn updated<T: Rounding, P: Rounding>(as_data: bool, instances: usize, channels: usize, (grid, warps): (u32, u32)) {
    let mean: Vec<f32> = (0..instances * channels)
        .map(|n| statistic(n / channels, n % channels))
        .collect();
    let variance: Vec<f32> = mean.iter().map(|mean| 2.0 - mean).collect();
    let old = |c: usize| P::from_acc(c as f32 / 4.0 - 1.0);
    let mut new: [Vec<P>; 2] = std::array::from_fn(|_| (0..channels).map(old).collect());
    let [of_mean, of_variance] = &mut new;
    let mut buffers = Buffers::new();
    let args = Args::<T> {
        mean: buffers.read_only("mean", &mean),
        variance: buffers.read_only("variance", &variance),
        running_mean: buffers.writable("running mean", of_mean).cast(),
        running_variance: buffers.writable("running variance", of_variance).cast(),
        instances: instances as u64,
        channels: channels as u64,
        factor: FACTOR,
        unbias: UNBIAS,
        as_data: as_data.into(),
        of: std::marker::PhantomData,
    };
    let threads = 32 * warps;
    let launch = Launch::new(grid, threads)
        .shared_bytes(shared_bytes(threads))
        .seed(u64::from(warps));
    // SAFETY: the interpreter checks every access.
    let report = launch.run(&buffers, || unsafe { running(&args) });
    report.unwrap_or_else(|fault| panic!("{instances} of {channels}: {fault}"));
    drop(buffers);
    for c in 0..channels {
        let average = (0..instances).map(|i| f64::from(statistic(i, c))).sum::<f64>() / instances as f64;
        for (name, new, batch) in [
            ("mean", &new[0], average),
            ("variance", &new[1], (2.0 - average) * UNBIAS),
        ] {
            let blended = (1.0 - FACTOR) * f64::from(old(c).to_acc()) + FACTOR * batch;
            let (expected, got) = (P::from_acc(blended as f32).to_acc(), new[c].to_acc());
            assert_eq!(got, expected, "{name} of {c}, {instances} of {channels}");
        }
    }
}

fn every_shape<T: Rounding>() {
    for (instances, channels, shape) in [
        (1, 1, (1, 1)),
        (3, 40, (1, 1)),
        (4, 70, (2, 1)),
        (9, 33, (3, 2)),
        (100, 5, (1, 4)),
    ] {
        updated::<T, T>(true, instances, channels, shape);
        updated::<T, f32>(false, instances, channels, shape);
    }
}

#[test]
fn running_statistics_are_averages_over_instances() {
    every_shape::<f32>();
    every_shape::<F16>();
    every_shape::<Bf16>();
}
