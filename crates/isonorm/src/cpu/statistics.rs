//! From moments to what normalizes, and to what is saved; running statistics.

use isonorm_math::{BackwardCoefficients, Moments, Normalizer, Real};

use super::memory::{Numbers, Scratch};
use crate::launch::Running;
use crate::plan::Region;
use crate::{DType, Geometry, NormDesc, View, ViewMut};

/// Groups whose statistics are computed side by side: a division or a square root takes as long as adding up a short group, and
/// does several groups at once.
pub(super) const BATCH: usize = crate::plan::MOST_BATCHED;

/// Mean and biased variance of a group (for RMSNorm: 0 and the mean square).
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct GroupStatistics {
    pub(super) mean: f64,
    pub(super) var: f64,
}

impl GroupStatistics {
    /// From moments of `x − shift`.
    #[inline(always)]
    pub(super) fn about(shift: f64, moments: Moments<f64>) -> GroupStatistics {
        GroupStatistics {
            mean: shift + moments.mean,
            var: moments.variance(),
        }
    }
}

/// The share of the squares about the centre that the squares about the mean must have, for what is left of their digits to be
/// enough: the rest, `count·(mean − centre)²`, is taken off. Otherwise another pass is made.
pub(super) const DIGITS_KEPT: f64 = 0.25;

/// The median of the medians of three times three elements of a group, which its moments are taken about: near its mean unless
/// most of it is far.
#[inline(always)]
pub(super) fn central<A: Real>([a, b, c, d, e, f, g, h, i]: [A; 9]) -> A {
    median([median([a, b, c]), median([d, e, f]), median([g, h, i])])
}

#[inline(always)]
fn median<A: Real>([a, b, c]: [A; 3]) -> A {
    a.min(b).max(a.max(b).min(c))
}

/// Mean and variance that are given: running statistics, one pair a channel.
#[derive(Clone, Copy)]
pub(super) struct Given<'a> {
    mean: Numbers<'a>,
    var: Numbers<'a>,
    channels: usize,
    eps: f64,
}

impl<'a> Given<'a> {
    pub(super) fn new(running: &Running<View<'a>, ViewMut<'a>>, desc: &NormDesc, g: &Geometry) -> Option<Given<'a>> {
        let Running::Given { mean, var } = running else {
            return None;
        };
        let (mean, var) = (Numbers::read_only(*mean), Numbers::read_only(*var));
        Some(Given {
            mean,
            var,
            channels: g.channels,
            eps: desc.get_eps(),
        })
    }

    /// What normalizes group `group`.
    pub(super) fn normalizer<A: Real>(&self, group: usize) -> Normalizer<A> {
        let channel = group % self.channels;
        let rstd = 1.0 / (self.var.get(channel) + self.eps).sqrt();
        Normalizer::new(self.mean.get(channel), rstd)
    }
}

/// Where running statistics are kept up to date.
#[derive(Clone, Copy)]
struct Update<'a> {
    mean: Numbers<'a>,
    var: Numbers<'a>,
    factor: f64,
}

impl Update<'_> {
    /// `running = (1 − factor)·running + factor·batch`.
    ///
    /// # Safety
    /// No other task touches this channel.
    unsafe fn channel(&self, channel: usize, batch: GroupStatistics) {
        let blend = |old: f64, new: f64| (1.0 - self.factor) * old + self.factor * new;
        // SAFETY: this function's contract.
        unsafe {
            self.mean.set(channel, blend(self.mean.get(channel), batch.mean));
            self.var.set(channel, blend(self.var.get(channel), batch.var));
        }
    }
}

/// What becomes of each group's statistics in a forward pass.
#[derive(Clone, Copy)]
pub(super) struct Outcome<'a> {
    eps: f64,
    group_size: usize,
    groups: usize,
    channels: usize,
    saved_mean: Option<Numbers<'a>>,
    saved_rstd: Option<Numbers<'a>>,
    saved_var: Option<Numbers<'a>>,
    update: Option<Update<'a>>,
    /// Statistics of each group, to be averaged over the instances of a channel.
    instances: Option<(Scratch<'a>, Region)>,
}

impl<'a> Outcome<'a> {
    pub(super) fn new(
        desc: &NormDesc,
        g: &Geometry,
        running: Option<Running<View<'a>, ViewMut<'a>>>,
        [saved_mean, saved_rstd, saved_var]: [Option<ViewMut<'a>>; 3],
        (scratch, region): (Scratch<'a>, Region),
    ) -> Outcome<'a> {
        let update = match running {
            Some(Running::Update { mean, var, factor }) => Some(Update {
                mean: Numbers::new(mean),
                var: Numbers::new(var),
                factor,
            }),
            _ => None,
        };
        Outcome {
            eps: desc.get_eps(),
            group_size: g.group_size(),
            groups: g.groups(),
            channels: g.channels,
            saved_mean: saved_mean.map(Numbers::new),
            saved_rstd: saved_rstd.map(Numbers::new),
            saved_var: saved_var.map(Numbers::new),
            instances: (update.is_some() && g.channels != g.groups()).then_some((scratch, region)),
            update,
        }
    }

    /// The factor that makes a biased variance unbiased.
    fn unbias(&self) -> f64 {
        self.group_size as f64 / (self.group_size as f64 - 1.0)
    }

    #[inline(always)]
    fn rstd(&self, s: GroupStatistics) -> f64 {
        1.0 / (s.var + self.eps).sqrt()
    }

    /// Saves a group's statistics and returns what normalizes it.
    ///
    /// # Safety
    /// No other task finishes this group.
    pub(super) unsafe fn finish_group<A: Real>(&self, group: usize, s: GroupStatistics) -> Normalizer<A> {
        let mut normalizer = [Normalizer::default()];
        // SAFETY: this function's contract.
        unsafe { self.finish_groups(group, &[s], &mut normalizer) };
        normalizer[0]
    }

    /// Saves the statistics of at most [`BATCH`] consecutive groups, and says what normalizes each.
    ///
    /// # Safety
    /// No other task finishes these groups.
    #[inline(always)]
    pub(super) unsafe fn finish_groups<A: Real>(
        &self,
        first: usize,
        statistics: &[GroupStatistics],
        normalizers: &mut [Normalizer<A>],
    ) {
        let len = statistics.len();
        let (mut mean, mut var, mut rstd) = ([0.0; BATCH], [0.0; BATCH], [0.0; BATCH]);
        let (mean, var, rstd) = (&mut mean[..len], &mut var[..len], &mut rstd[..len]);
        let normalizers = &mut normalizers[..len];
        for i in 0..len {
            mean[i] = statistics[i].mean;
            var[i] = statistics[i].var;
            rstd[i] = self.rstd(statistics[i]);
        }
        for i in 0..len {
            normalizers[i] = Normalizer::new(mean[i], rstd[i]);
        }
        // SAFETY: this function's contract.
        unsafe {
            if let Some(saved) = &self.saved_mean {
                saved.set_all(first, mean);
            }
            if let Some(saved) = &self.saved_rstd {
                saved.set_all(first, rstd);
            }
            if let Some(saved) = &self.saved_var {
                saved.set_all(first, var);
            }
        }
        if self.update.is_some() {
            for (i, s) in statistics.iter().enumerate() {
                // SAFETY: this function's contract.
                unsafe { self.update_running(first + i, *s) };
            }
        }
    }

    /// Takes a group's statistics into the running statistics, or keeps them for [`finish`](Outcome::finish).
    ///
    /// # Safety
    /// No other task finishes this group.
    unsafe fn update_running(&self, group: usize, s: GroupStatistics) {
        // SAFETY: this function's contract.
        unsafe {
            if let Some((scratch, region)) = &self.instances {
                scratch
                    .slice::<f64>(*region, 2 * group, 2)
                    .copy_from_slice(&[s.mean, s.var]);
            } else if let Some(update) = &self.update {
                update.channel(
                    group,
                    GroupStatistics {
                        var: s.var * self.unbias(),
                        ..s
                    },
                );
            }
        }
    }

    /// Averages the statistics of a channel's instances into its running statistics. Once, after all groups.
    pub(super) fn finish(&self) {
        let (Some(update), Some((scratch, region))) = (&self.update, &self.instances) else {
            return;
        };
        // SAFETY: all tasks have ended.
        let groups = unsafe { scratch.slice::<f64>(*region, 0, 2 * self.groups) };
        let instances = (self.groups / self.channels) as f64;
        for channel in 0..self.channels {
            let (mut mean, mut var) = (0.0, 0.0);
            for group in groups.chunks_exact(2).skip(channel).step_by(self.channels) {
                mean += group[0];
                var += group[1];
            }
            let average = GroupStatistics {
                mean: mean / instances,
                var: var / instances * self.unbias(),
            };
            // SAFETY: this is the only task.
            unsafe { update.channel(channel, average) };
        }
    }
}

/// The statistics that a backward pass goes through.
#[derive(Clone, Copy)]
pub(super) enum BackwardStatistics<'a> {
    /// Those of `x`, saved by the forward pass: gradients flow through them.
    Saved {
        mean: Option<Numbers<'a>>,
        rstd: Numbers<'a>,
    },
    /// Constants; or the means that the gradient of `x` needs are told, too.
    Given(Given<'a>, Option<GivenMeans<'a>>),
}

/// Means of `g` and of `g·x̂` that are told, one of each a channel.
#[derive(Clone, Copy)]
pub(super) struct GivenMeans<'a> {
    g: Numbers<'a>,
    gx: Numbers<'a>,
    channels: usize,
}

impl<'a> GivenMeans<'a> {
    pub(super) fn new([g, gx]: [View<'a>; 2], geometry: &Geometry) -> GivenMeans<'a> {
        GivenMeans {
            g: Numbers::read_only(g),
            gx: Numbers::read_only(gx),
            channels: geometry.channels,
        }
    }

    /// Those of group `group`, whose elements have this weight.
    pub(super) fn of<A: Real>(&self, group: usize, weight: A) -> BackwardCoefficients<A> {
        let (channel, weight) = (group % self.channels, weight.to_f64());
        BackwardCoefficients {
            mean_g: A::from_f64(weight * self.g.get(channel)),
            mean_gx: A::from_f64(weight * self.gx.get(channel)),
        }
    }
}

impl<'a> BackwardStatistics<'a> {
    /// What normalizes group `group`.
    pub(super) fn normalizer<A: Real>(&self, group: usize) -> Normalizer<A> {
        let mut normalizer = [Normalizer::default()];
        self.normalizers(group, &mut normalizer);
        normalizer[0]
    }

    /// What normalizes each of at most [`BATCH`] consecutive groups.
    #[inline(always)]
    pub(super) fn normalizers<A: Real>(&self, first: usize, normalizers: &mut [Normalizer<A>]) {
        match self {
            BackwardStatistics::Saved { mean, rstd } => {
                let (mut means, mut rstds) = ([0.0; BATCH], [0.0; BATCH]);
                let len = normalizers.len();
                let (means, rstds) = (&mut means[..len], &mut rstds[..len]);
                if let Some(mean) = mean {
                    mean.get_all(first, means);
                }
                rstd.get_all(first, rstds);
                for i in 0..len {
                    normalizers[i] = Normalizer::new(means[i], rstds[i]);
                }
            }
            BackwardStatistics::Given(given, _) => {
                for (i, normalizer) in normalizers.iter_mut().enumerate() {
                    *normalizer = given.normalizer(first + i);
                }
            }
        }
    }

    /// Whether they depend on `x`.
    pub(super) fn depend_on_x(&self) -> bool {
        !matches!(self, BackwardStatistics::Given(_, None))
    }

    /// The means that the gradient of `x` needs, where they are told.
    pub(super) fn means(&self) -> Option<GivenMeans<'a>> {
        match self {
            BackwardStatistics::Given(_, means) => *means,
            BackwardStatistics::Saved { .. } => None,
        }
    }
}

/// The accumulator's type as a value.
pub(super) const fn accumulator<A: Real>() -> DType {
    if size_of::<A>() == 8 { DType::F64 } else { DType::F32 }
}
