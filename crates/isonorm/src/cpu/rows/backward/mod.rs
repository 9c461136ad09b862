//! Two sweeps over a group: the sums that the gradients need, then the gradient of `x`. Through given statistics there is
//! nothing to know beforehand, and one sweep does both.

mod elements;
mod runs;

use isonorm_math::{BackwardCoefficients, Element, Real};

use super::{GroupLayout, Piece, Stretch};
use crate::Geometry;
use crate::cpu::crew::Crew;
use crate::cpu::elementwise::{All, BackwardElements};
use crate::cpu::isa::Vectors;
use crate::cpu::memory::Scratch;
use crate::cpu::parameters::{GradientSums, Parameters};
use crate::cpu::statistics::BackwardStatistics;
use crate::plan::{Region, RowsPlan};

/// Everything that the tasks of a backward pass share.
pub(in crate::cpu) struct RowsBackward<'a, T: Element> {
    pub(in crate::cpu) vectors: Vectors,
    pub(in crate::cpu) plan: &'a RowsPlan,
    pub(in crate::cpu) geometry: &'a Geometry,
    pub(in crate::cpu) elements: BackwardElements<'a, T>,
    pub(in crate::cpu) parameters: Parameters<'a, T::Acc>,
    /// Whether a mean was subtracted.
    pub(in crate::cpu) centred: bool,
    pub(in crate::cpu) statistics: BackwardStatistics<'a>,
    pub(in crate::cpu) gradients: GradientSums<'a>,
    /// Whether anybody wants the parameters' gradients.
    pub(in crate::cpu) wants_parameters: bool,
    pub(in crate::cpu) scratch: Scratch<'a>,
    /// Sums of groups and of parts of groups.
    pub(in crate::cpu) parts: Region,
    /// Short-term sums of the parameters' gradients.
    pub(in crate::cpu) staging: Region,
}

/// Runs a backward pass, but for the final addition of the parameters' gradients.
pub(in crate::cpu) fn backward<T: Element>(pass: &RowsBackward<'_, T>, crew: &Crew) {
    if pass.plan.per_element(pass.geometry) {
        elements::backward(pass, crew);
    } else {
        runs::backward(pass, crew);
    }
}

/// What one sweep does with each chunk.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Sweep {
    /// Adds up what the gradients need.
    Sum,
    /// Writes the gradient of `x` (and of the residual).
    Write,
    /// Both: the gradient of `x` needs no sums.
    Both,
}

impl Sweep {
    #[inline(always)]
    fn sums(self) -> bool {
        self != Sweep::Write
    }

    #[inline(always)]
    fn writes(self) -> bool {
        self != Sweep::Sum
    }
}

/// `Σ w·g·x̂` and `Σ w·g` of a group.
#[derive(Clone, Copy, Default)]
struct GroupSums {
    gx: f64,
    g: f64,
}

impl GroupSums {
    #[inline(always)]
    fn add(&mut self, more: GroupSums) {
        self.gx += more.gx;
        self.g += more.g;
    }
}

/// The same means for every element of a group.
type Means<A> = All<BackwardCoefficients<A>>;

impl<T: Element> RowsBackward<'_, T> {
    #[inline(always)]
    fn layout(&self, group: usize) -> GroupLayout<'_> {
        GroupLayout::new(self.plan, self.geometry, group)
    }

    /// What the first sweep does.
    #[inline(always)]
    fn first_sweep(&self) -> Sweep {
        if self.statistics.depend_on_x() || !self.elements.writes() {
            Sweep::Sum
        } else {
            Sweep::Both
        }
    }

    /// Whether the sums are wanted: not where those that `dx` needs are told, and nobody wants the parameters' gradients.
    #[inline(always)]
    fn sums(&self) -> bool {
        self.wants_parameters || self.statistics.means().is_none()
    }

    /// Whether `dx` has a sweep of its own, for it needs the sums.
    #[inline(always)]
    fn second_sweep(&self) -> bool {
        self.elements.writes() && self.statistics.depend_on_x()
    }

    /// The means that the gradient of `x` needs: none before they are known, or through given statistics.
    #[inline(always)]
    fn means(&self, sums: Option<GroupSums>) -> Means<T::Acc> {
        let count = self.geometry.group_size() as f64;
        let GroupSums { gx, g } = sums.unwrap_or_default();
        All(BackwardCoefficients {
            mean_g: T::Acc::from_f64(if self.centred { g / count } else { 0.0 }),
            mean_gx: T::Acc::from_f64(gx / count),
        })
    }
}
