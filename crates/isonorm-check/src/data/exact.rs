//! Data whose statistics come out in the same bits whatever the order of summation.
//!
//! Every element is `m ± k`, with a small integer m for the group and a small integer k. Within a group, in the order of
//! memory, neighbours in a contiguous run have the same k and opposite signs, and so have elements at the same place of
//! neighbouring runs; what is left over, at the end of a run of odd length and in the last of an odd number of runs, is
//! m itself. So not only are all sums of integers exact: the mean of *every* run, of every pair of runs, and of every
//! block of even length that starts at an even place is m, and squared distances from it are integers, too. An engine
//! may sum along the rows or down the columns, in blocks, in parts, about a shift or in two passes.

use rand::RngExt;

use crate::oracle::Index;

/// Largest distance from the mean, and largest mean: their sum is exact in `bf16`.
const LARGEST_DISTANCE: i32 = 4;
const LARGEST_MEAN: i32 = 64;

/// The elements of `x` in the order of memory.
pub(super) fn x(index: &Index, rng: &mut impl RngExt) -> Vec<f64> {
    let mut x = vec![0.0; index.group.len()];
    for group in 0..index.groups() {
        let mean = rng.random_range(-LARGEST_MEAN..=LARGEST_MEAN);
        let runs = runs(index.members(group));
        let Some(length) = runs.first().map(|r| r.len()) else {
            continue;
        };
        for pair in runs.chunks(2) {
            let distances: Vec<i32> = (0..length.div_ceil(2))
                .map(|_| rng.random_range(1..=LARGEST_DISTANCE))
                .collect();
            for (r, run) in pair.iter().enumerate() {
                for (j, &offset) in run.iter().enumerate() {
                    let left_over =
                        (runs.len() > 1 && pair.len() == 1) || (length > 1 && j + 1 == length && length % 2 == 1);
                    let sign = if (r + j) % 2 == 0 { 1 } else { -1 };
                    let distance = if left_over { 0 } else { sign * distances[j / 2] };
                    x[offset] = f64::from(mean + distance);
                }
            }
        }
    }
    x
}

/// The contiguous runs of ascending offsets.
fn runs(members: &[usize]) -> Vec<&[usize]> {
    members.chunk_by(|a, b| a + 1 == *b).collect()
}

/// Small integers.
pub(super) fn integers(rng: &mut impl RngExt, len: usize, largest: i32) -> Vec<f64> {
    (0..len).map(|_| rng.random_range(-largest..=largest).into()).collect()
}

/// Numbers whose products are exact: ±½, ±1, ±2.
pub(super) fn powers(rng: &mut impl RngExt, len: usize) -> Vec<f64> {
    (0..len)
        .map(|_| {
            let sign = if rng.random() { 1.0 } else { -1.0 };
            sign * 2f64.powi(rng.random_range(-1..=1))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use crate::Case;
    use crate::data::forward_inputs;
    use crate::oracle::{Index, Sum};

    #[test]
    fn means_are_integers_and_sums_are_exact() -> isonorm::Result<()> {
        for problem in [
            "batchnorm x=6x3x7x5",
            "batchnorm x=7x3x4x4 layout=nhwc",
            "layernorm x=5x131",
            "layernorm x=2x6x9 over=channels",
            "groupnorm x=3x12x10 groups=4 layout=nlc",
            "instancenorm x=2x3x1x9",
        ] {
            let case: Case = format!("{problem} data=exact").parse()?;
            let x = forward_inputs(&case).x.to_f64();
            let index = Index::of(&case.desc);
            for g in 0..index.groups() {
                let sum: Sum = index.members(g).iter().map(|&i| x[i]).collect();
                let (mean, rest) = sum.over(sum.count);
                assert!(mean.fract() == 0.0 && rest == 0.0, "{problem}: mean {mean}");
                assert!(sum.is_exact_in(24));
                assert!(index.members(g).iter().any(|&i| x[i] != mean), "{problem}");
            }
        }
        Ok(())
    }
}
