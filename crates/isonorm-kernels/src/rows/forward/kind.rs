//! What a kernel of a kind does and does not: known when it is compiled.

use super::held::Walk;
use super::{ParametersOf, Spec};
use crate::rows::access::{Access, Data};
use crate::rows::epilogue::{Class, Epilogue};
use crate::rows::parameters::{Map, Parameters, Sharing};
use crate::rows::statistics::Statistics;
use crate::rows::team::{Owner, Owns, Team};

impl<T: Data, S: Spec<Team: Team>, const V: usize> Walk<'_, T, S, V> {
    /// Whether parameters are read for each row.
    pub(super) const READS: bool = <ParametersOf<T, S, V> as Parameters<T, S::Access, V>>::READS;

    /// Whether parameters of 16 bits that are too many to be kept as numbers are kept as they came: for the next row, or because they come
    /// with the first one, where that leaves registers for enough warps: weight and bias take twice what a weight does.
    pub(super) const KEEPS: bool =
        S::AHEAD || matches!(S::Epilogue::CLASS, Class::Plain) && V <= if S::Statistics::ABOUT_FIRST { 2 } else { 4 };

    /// Whether there is code for the parameters of most calls: where many are read for a row, not number by number, and there are registers for it.
    pub(super) const HAS_USUAL: bool = Self::READS
        && !S::Access::BY_SEGMENT
        && !S::AHEAD
        && V > 2
        && (V < 8 || !S::Statistics::ABOUT_FIRST)
        && !matches!(S::Team::OWNER, Owner::Lanes(..=4));

    /// Whether the first row comes before parameters are read that are kept.
    pub(super) const EARLY: bool = !Self::RING && (S::AHEAD || Self::KEEPS);

    /// Whether weight and bias are part of what a row is finished with, as if it were normalized only.
    pub(super) const JOINED: bool = <ParametersOf<T, S, V> as Parameters<T, S::Access, V>>::JOINED;

    /// Whether the same holds part by part. Of runs that is a rounding more, for an instruction less a number: worth it where instructions are
    /// what a row takes, and no sign of z decides a slope.
    pub(super) const JOINED_BY_PART: bool = <ParametersOf<T, S, V> as Parameters<T, S::Access, V>>::JOINED_BY_PART
        && (S::Access::BY_SEGMENT || Self::IS_ANY && size_of::<T>() == 2);

    /// Whether what a row is finished with is short enough to be there for each activation.
    pub(super) const IS_SHORT: bool =
        !Self::IS_ANY && (Self::JOINED || Self::JOINED_BY_PART || matches!(S::Map::SHARING, Sharing::AcrossRuns));

    /// Whether a piecewise activation is taken part by part, so that z of all parts takes no registers.
    pub(super) const IN_TURN: bool =
        matches!(S::Epilogue::CLASS, Class::Piecewise) && matches!(S::Map::SHARING, Sharing::ByColumn);

    /// Whether there may be a smooth activation.
    pub(super) const IS_ANY: bool = matches!(S::Epilogue::CLASS, Class::Any);

    /// Whether a row is finished one part after the other: a smooth activation takes longer than parameters that are read then; kept ones have no index.
    pub(super) const ROLLED: bool = Self::IS_ANY && Self::READS;
}
