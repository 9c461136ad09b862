//! Pairwise covering: few rows in which any two levels of any two factors meet at least once.
//!
//! The greedy method of D. M. Cohen, S. R. Dalal, M. L. Fredman and G. C. Patton, *The AETG system: an approach to
//! testing based on combinatorial design*, IEEE Transactions on Software Engineering 23(7), 1997: begin a row with a pair
//! that is not covered yet, fill the rest at random several times, keep the fill that covers the most.

use std::collections::HashSet;

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

/// Fills that are tried for each row.
const CANDIDATES: usize = 40;

/// A factor's level, twice: `((factor, level), (factor, level))`, the first factor before the second.
type Pair = ((usize, usize), (usize, usize));

/// Rows of levels, one for each factor, that cover all pairs which `is_valid` lets meet. `levels` says how many each factor
/// has. Always the same rows for the same seed.
pub fn cover(levels: &[usize], seed: u64, is_valid: impl Fn(&[usize]) -> bool) -> Vec<Vec<usize>> {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
    let mut covered = HashSet::new();
    let mut rows = Vec::new();
    for pair in all_pairs(levels) {
        if covered.contains(&pair) {
            continue;
        }
        let candidates = (0..CANDIDATES).map(|_| fill(levels, pair, &mut rng));
        let gain = |row: &Vec<usize>| pairs(row).filter(|p| !covered.contains(p)).count();
        // A pair that no candidate contains validly is taken for impossible.
        if let Some(row) = candidates.filter(|row| is_valid(row)).max_by_key(gain) {
            covered.extend(pairs(&row));
            rows.push(row);
        }
    }
    rows
}

fn fill(levels: &[usize], (a, b): Pair, rng: &mut impl RngExt) -> Vec<usize> {
    let mut row: Vec<usize> = levels.iter().map(|&n| rng.random_range(0..n)).collect();
    row[a.0] = a.1;
    row[b.0] = b.1;
    row
}

fn all_pairs(levels: &[usize]) -> Vec<Pair> {
    let mut all = Vec::new();
    for (i, &first) in levels.iter().enumerate() {
        for (j, &second) in levels.iter().enumerate().skip(i + 1) {
            all.extend((0..first * second).map(|k| ((i, k / second), (j, k % second))));
        }
    }
    all
}

fn pairs(row: &[usize]) -> impl Iterator<Item = Pair> + '_ {
    let second = move |i: usize| (i + 1..row.len()).map(move |j| ((i, row[i]), (j, row[j])));
    (0..row.len()).flat_map(second)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_pairs_meet_in_few_rows() {
        let levels = [7, 2, 4, 3, 9, 2];
        let rows = cover(&levels, 1, |_| true);
        let covered: HashSet<Pair> = rows.iter().flat_map(|r| pairs(r).collect::<Vec<_>>()).collect();
        assert!(all_pairs(&levels).iter().all(|p| covered.contains(p)));
        assert!((63..100).contains(&rows.len()), "{} rows", rows.len());
    }

    #[test]
    fn what_may_not_meet_does_not() {
        let rows = cover(&[3, 3, 3], 1, |row| row[0] != row[1]);
        assert!(rows.iter().all(|row| row[0] != row[1]));
    }
}
