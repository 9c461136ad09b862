//! The helpers of warps and blocks: the same, right result in every thread that is said to hold it.

use isonorm_kernels::interpreter::{Buffers, Launch};
use isonorm_kernels::simt::{self, Shared};
use isonorm_kernels::{block, warp};
use isonorm_math::Moments;

/// Runs a block, and returns what each thread computed from its number.
fn results<const N: usize>(threads: u32, seed: u64, kernel: impl Fn(f32) -> [f32; N]) -> Vec<[f32; N]> {
    let mut output = vec![[f32::NAN; N]; threads as usize];
    let mut buffers = Buffers::new();
    let place = buffers.writable("results", &mut output).cast::<u32>();
    let launch = Launch::new(1, threads).shared_bytes(block::SCRATCH_BYTES).seed(seed);
    let report = launch.run(&buffers, || {
        let thread = simt::thread_index() as usize;
        for (i, result) in kernel(number(thread)).into_iter().enumerate() {
            // SAFETY: a place for each thread and result.
            unsafe { simt::store_32(place.wrapping_add(thread * N + i), result.to_bits()) };
        }
    });
    report.unwrap_or_else(|fault| panic!("{threads} threads: {fault}"));
    output
}

/// Thread `i`'s number.
fn number(i: usize) -> f32 {
    (i % 7) as f32 + 100.0
}

/// Thread `i`'s set: its number alone, or with its double, or nothing.
fn set(i: usize, x: f32) -> Moments<f32> {
    let one = Moments {
        count: 1.0,
        mean: x,
        m2: 0.0,
    };
    match i % 3 {
        0 => one,
        1 => one.push(2.0 * x),
        _ => Moments::EMPTY,
    }
}

/// The numbers of the sets of these threads.
fn numbers(threads: std::ops::Range<usize>) -> Vec<f64> {
    let of_thread = |i: usize| {
        let x = f64::from(number(i));
        [x, 2.0 * x].into_iter().take([1, 2, 0][i % 3])
    };
    threads.flat_map(of_thread).collect()
}

fn check_moments(results: &[[f32; 3]], numbers: &[f64]) {
    let count = numbers.len() as f64;
    let mean = numbers.iter().sum::<f64>() / count;
    let m2 = numbers.iter().map(|x| (x - mean).powi(2)).sum::<f64>();
    for &result in results {
        assert_eq!(result, results[0], "threads hold different bits");
        assert_eq!(f64::from(result[0]), count);
        // Ten merges of a few roundings each.
        let bound = 64.0 * f64::from(f32::EPSILON);
        assert!(
            (f64::from(result[1]) - mean).abs() <= bound * mean,
            "mean {} of {mean}",
            result[1]
        );
        assert!(
            (f64::from(result[2]) - m2).abs() <= bound * m2,
            "m2 {} of {m2}",
            result[2]
        );
    }
}

#[test]
fn sums_are_exact_in_every_thread() {
    for (seed, threads) in [32, 64, 96, 128, 160, 256, 288, 512, 1024].into_iter().enumerate() {
        let total: f32 = (0..threads as usize).map(number).sum();
        let of_block = results(threads, seed as u64, |x| {
            let mut scratch = block::Scratch::at_start();
            let [first, second] = block::sum_pair([x, 2.0 * x], &mut scratch);
            [
                block::sum(x, &mut scratch),
                first,
                second,
                block::sum(1.0, &mut scratch),
            ]
        });
        let expected = [total, total, 2.0 * total, threads as f32];
        assert!(of_block.iter().all(|result| *result == expected), "{threads} threads");
        let of_warp = results(threads, seed as u64, |x| [warp::sum(x)]);
        for (thread, result) in of_warp.iter().enumerate() {
            let first = thread / 32 * 32;
            assert_eq!(result[0], (first..first + 32).map(number).sum::<f32>());
        }
    }
}

/// A slot that a sum of another kind has used has zeros where a sum of few warps needs them.
#[test]
fn sums_and_moments_take_turns() {
    for (seed, threads) in [32, 160].into_iter().enumerate() {
        let of_block = results(threads, seed as u64, |x| {
            let mut scratch = block::Scratch::at_start();
            for _ in 0..3 {
                block::moments(set(simt::thread_index() as usize, x), &mut scratch);
                block::sum(x, &mut scratch);
                block::sum_pair([x, x], &mut scratch);
            }
            block::sum_pair([1.0, 2.0], &mut scratch)
        });
        let count = threads as f32;
        assert!(of_block.iter().all(|result| *result == [count, 2.0 * count]));
    }
}

#[test]
fn pairs_are_summed_over_neighbouring_lanes() {
    fn check<const LANES: u32>() {
        let of_block = results(64, LANES.into(), |x| warp::sum_pair_of_lanes::<LANES>([x, 2.0 * x]));
        for (thread, result) in of_block.iter().enumerate() {
            let first = thread / LANES as usize * LANES as usize;
            let total: f32 = (first..first + LANES as usize).map(number).sum();
            assert_eq!(*result, [total, 2.0 * total], "{LANES} lanes, thread {thread}");
        }
    }
    check::<2>();
    check::<4>();
    check::<8>();
    check::<16>();
    check::<32>();
}

#[test]
fn each_half_of_the_lanes_has_one_sum() {
    let of_block = results(32, 5, |x| [warp::half_sum::<32>([x, 2.0 * x])]);
    let total: f32 = (0..32).map(number).sum();
    for (lane, [result]) in of_block.into_iter().enumerate() {
        assert_eq!(result, if lane < 16 { total } else { 2.0 * total }, "lane {lane}");
    }
}

#[test]
fn moments_merge_sets_of_any_size() {
    let parts = |m: Moments<f32>| [m.count, m.mean, m.m2];
    for (seed, threads) in [32, 96, 1024].into_iter().enumerate() {
        let of_block = results(threads, seed as u64, |x| {
            let own = set(simt::thread_index() as usize, x);
            parts(block::moments(own, &mut block::Scratch::at_start()))
        });
        check_moments(&of_block, &numbers(0..threads as usize));
    }
    let of_warp = results(32, 3, |x| parts(warp::moments(set(simt::thread_index() as usize, x))));
    check_moments(&of_warp, &numbers(0..32));
}

#[test]
fn a_place_that_settles_is_that_of_the_first_lane() {
    let places = results(64, 9, |_| {
        let own = Shared::<f32>::at(4 * simt::lane() + 256 * simt::warp_index());
        [simt::settled(own).byte_offset() as f32]
    });
    for (thread, [place]) in places.into_iter().enumerate() {
        assert_eq!(place, 256.0 * (thread / 32) as f32, "thread {thread}");
    }
}
