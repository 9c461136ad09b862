//! Seeded data: ordinary, adversarial and exact. Everything is rounded to the tensors' types before anybody sees it.

mod exact;
mod inputs;
pub mod mask;

use std::fmt;
use std::str::FromStr;

use isonorm::DType;
use rand::{RngExt, SeedableRng};
use rand_distr::StandardNormal;
use rand_xoshiro::Xoshiro256PlusPlus;

pub use inputs::{backward_inputs, forward_inputs};

use crate::Case;
use crate::oracle::Index;

/// What the elements of `x` look like.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Data {
    /// Normally distributed, mean 0, deviation 1.
    Normal,
    /// Uniform in −1..1.
    Uniform,
    /// Small integers whose sums are exact in any order and by any blocks of even length: see
    /// [`data`](crate::data).
    Exact,
    /// Normally distributed with this mean, its sign alternating from channel to channel, and deviation 1 (both smaller
    /// where the type ends before).
    Offset(f64),
    /// Every group has one value.
    Constant,
    /// Normally distributed around the smallest normal number: many are subnormal.
    Denormal,
    /// Normally distributed with deviation 10³⁰, or near the end of the type: squares overflow in `f32`.
    Huge,
    /// Normally distributed with a variance of `eps`: forgetting it shows.
    Small,
    /// Normal, but for one NaN.
    Nan,
    /// Normal, but for one infinity.
    Infinity,
    /// Normal, but the first element of each group is 10⁴: a bad shift, a bad first guess of the mean.
    Spike,
    /// ±1000 in turns, with noise: sums that cancel.
    Alternating,
}

impl Data {
    /// One of each kind.
    pub const ALL: [Data; 13] = [
        Data::Normal,
        Data::Uniform,
        Data::Exact,
        Data::Offset(1e3),
        Data::Offset(1e6),
        Data::Constant,
        Data::Denormal,
        Data::Huge,
        Data::Small,
        Data::Nan,
        Data::Infinity,
        Data::Spike,
        Data::Alternating,
    ];

    const fn name(self) -> &'static str {
        match self {
            Data::Normal => "normal",
            Data::Uniform => "uniform",
            Data::Exact => "exact",
            Data::Offset(_) => "offset",
            Data::Constant => "constant",
            Data::Denormal => "denormal",
            Data::Huge => "huge",
            Data::Small => "small",
            Data::Nan => "nan",
            Data::Infinity => "infinity",
            Data::Spike => "spike",
            Data::Alternating => "alternating",
        }
    }

    /// The deviation, and the mean of channels or groups with an even number (others have its negative).
    fn scale_and_mean(self, dtype: DType, eps: f64) -> (f64, f64) {
        let (smallest, largest) = range(dtype);
        match self {
            // No normal deviate that can be drawn reaches 16.
            Data::Huge => (1e30f64.min(largest / 16.0), 0.0),
            Data::Denormal => (smallest, 0.0),
            Data::Small => (eps.sqrt(), 0.0),
            Data::Offset(mean) => {
                let scale = (largest / (mean.abs() + 16.0)).min(1.0);
                (scale, mean * scale)
            }
            _ => (1.0, 0.0),
        }
    }
}

impl fmt::Display for Data {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Data::Offset(mean) => write!(f, "offset:{mean}"),
            _ => f.write_str(self.name()),
        }
    }
}

impl FromStr for Data {
    type Err = String;

    fn from_str(s: &str) -> Result<Data, String> {
        if let Some(mean) = s.strip_prefix("offset:") {
            return mean
                .parse()
                .ok()
                .filter(|m: &f64| m.is_finite())
                .map(Data::Offset)
                .ok_or_else(|| format!("the mean {mean:?} is not a finite number"));
        }
        let named = |d: &&Data| d.name() == s && !matches!(d, Data::Offset(_));
        Data::ALL.iter().find(named).copied().ok_or_else(|| {
            format!(
                "unknown data {s:?}; expected normal, uniform, exact, offset:MEAN, constant, denormal, huge, small, nan, \
                 infinity, spike or alternating"
            )
        })
    }
}

/// The smallest normal number and the largest.
fn range(dtype: DType) -> (f64, f64) {
    match dtype {
        DType::F16 => (2f64.powi(-14), 65504.0),
        DType::Bf16 | DType::F32 => (f32::MIN_POSITIVE.into(), f32::MAX.into()),
        DType::F64 => (f64::MIN_POSITIVE, f64::MAX),
    }
}

/// Which tensor: each has random numbers of its own.
#[derive(Clone, Copy, Debug)]
enum Role {
    X,
    Groups,
    Weight,
    Bias,
    Residual,
    RunningMean,
    RunningVar,
    Dy,
    Dstream,
    Mask,
    Means,
}

fn random(seed: u64, role: Role) -> Xoshiro256PlusPlus {
    Xoshiro256PlusPlus::seed_from_u64(seed.wrapping_mul(16).wrapping_add(role as u64))
}

fn normals(seed: u64, role: Role, len: usize) -> Vec<f64> {
    random(seed, role).sample_iter(StandardNormal).take(len).collect()
}

/// The elements of `x` in the order of memory, before rounding. The same logical tensor whatever the layout, except for
/// what concerns the first element of a group in memory, and for exact data.
fn x(case: &Case, index: &Index) -> Vec<f64> {
    let (seed, len) = (case.seed, index.group.len());
    if case.data == Data::Exact {
        return exact::x(index, &mut random(seed, Role::X));
    }
    let (scale, mean) = case.data.scale_and_mean(case.desc.get_dtype(), case.desc.get_eps());
    let noise: Vec<f64> = match case.data {
        Data::Uniform => {
            let mut rng = random(seed, Role::X);
            (0..len).map(|_| rng.random_range(-1.0..1.0)).collect()
        }
        _ => normals(seed, Role::X, len),
    };
    let constants = normals(seed, Role::Groups, index.groups());
    let mut x: Vec<f64> = (0..len)
        .map(|offset| {
            let (group, i) = (index.group[offset], index.logical(offset));
            match case.data {
                Data::Constant => 10.0 * constants[group],
                Data::Alternating if i % 2 == 0 => 1000.0 + noise[i],
                Data::Alternating => -1000.0 + noise[i],
                _ => scale * noise[i] + signed(mean, index, group),
            }
        })
        .collect();
    plant(case, index, &mut x);
    x
}

/// The mean of this group.
fn signed(mean: f64, index: &Index, group: usize) -> f64 {
    let channel = index.channel.get(group).copied().unwrap_or(group);
    if channel.is_multiple_of(2) { mean } else { -mean }
}

/// Puts single bad values where they belong.
fn plant(case: &Case, index: &Index, x: &mut [f64]) {
    if x.is_empty() {
        return;
    }
    let mut rng = random(case.seed, Role::Groups);
    let somewhere = rng.random_range(0..x.len());
    match case.data {
        Data::Nan => x[somewhere] = f64::NAN,
        Data::Infinity if case.seed.is_multiple_of(2) => x[somewhere] = f64::INFINITY,
        Data::Infinity => x[somewhere] = f64::NEG_INFINITY,
        Data::Spike => (0..index.groups())
            .filter_map(|g| index.members(g).first())
            .for_each(|&first| x[first] = 1e4),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_parse_back() {
        for data in Data::ALL {
            assert_eq!(data.to_string().parse(), Ok(data));
        }
        assert!("offset".parse::<Data>().is_err());
        assert!("offset:nan".parse::<Data>().is_err());
    }

    #[test]
    fn the_same_seed_is_the_same_data_and_layouts_agree() -> isonorm::Result<()> {
        let case: Case = "batchnorm x=2x3x5 layout=nlc seed=9".parse()?;
        let first: Case = "batchnorm x=2x3x5 layout=ncl seed=9".parse()?;
        let (last, first) = (forward_inputs(&case).x, forward_inputs(&first).x);
        assert_eq!(forward_inputs(&case).x, last);
        let index = Index::of(&case.desc);
        let (last, first) = (last.to_f64(), first.to_f64());
        assert!((0..30).all(|offset| last[offset] == first[index.logical(offset)]));
        Ok(())
    }
}
