//! The activation behind a normalization. Kernels are compiled for a class of them, and told at launch which it is: code that
//! is there for nothing costs registers, and time to load.

use isonorm_math::activation::{Gelu, GeluTanh, HardSwish, LeakyRelu, Pointwise, Relu, Sigmoid, Silu, Tanh};
use isonorm_math::{Activation, Brief, Real};

use super::access::{Access, Data};
use super::lanes::{Lanes, rotated, unrolled};
use super::parameters::{Map, Parameters};
pub(crate) use super::written_out::WrittenOut;
use crate::simt;

/// The activation as a kernel is told it.
#[derive(Clone, Copy, Debug, PartialEq)]
#[repr(C)]
pub struct Told {
    /// Its number.
    kind: u32,
    /// The factor for negative z, of a leaky ReLU.
    slope: f32,
}

/// The code for an activation, where there is some for [`Told::IDENTITY`] alone, some for [`Told::RELU`], and some for all.
#[derive(Clone, Copy)]
pub(super) enum Apart {
    Identity,
    Relu,
    Other,
}

/// The kernels that an activation is compiled into, in order of how much code they have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Class {
    /// Identity.
    Plain,
    /// Identity, ReLU, leaky ReLU.
    Piecewise,
    /// All of them.
    Any,
    /// ReLU, behind a residual. The forward pass may leave its mask, a bit for each element; the backward pass reads that, and neither the
    /// residual nor the bias again. Only [`tiles`](crate::tiles) have such kernels, and, forward, given statistics (`each`).
    Masked,
    /// ReLU, behind a residual that the backward pass reads again; and in kernels of rows and of [`held`](crate::tiles::held) without one, of the
    /// latter also with its result. Only these and [`strips`](crate::tiles::strips) have such kernels, all of them backward.
    Added,
    /// ReLU, behind a residual, whose result the backward pass reads. Only [`strips`](crate::tiles::strips) have such kernels.
    Result,
}

/// The numbers of activations.
mod kind {
    pub const IDENTITY: u32 = 0;
    pub const RELU: u32 = 1;
    pub const LEAKY_RELU: u32 = 2;
    pub const SILU: u32 = 3;
    pub const GELU: u32 = 4;
    pub const GELU_TANH: u32 = 5;
    pub const SIGMOID: u32 = 6;
    pub const TANH: u32 = 7;
    pub const HARD_SWISH: u32 = 8;
}

impl Class {
    /// Whether its kernels have this activation.
    pub fn has(self, activation: Activation) -> bool {
        match activation {
            Activation::Identity => !matches!(self, Class::Masked | Class::Added | Class::Result),
            Activation::Relu => self != Class::Plain,
            Activation::LeakyRelu { .. } => matches!(self, Class::Piecewise | Class::Any),
            _ => self == Class::Any,
        }
    }

    /// Whether the backward pass multiplies dy by slopes; else it is as it comes, or 0 where a mask has no bit.
    pub(crate) const fn has_slopes(self) -> bool {
        matches!(self, Class::Piecewise | Class::Any)
    }

    /// Tensors that the backward pass reads: x and dy, and where z is needed perhaps a residual.
    pub(crate) const fn tensors(self) -> u32 {
        match self {
            Class::Plain | Class::Masked => 2,
            Class::Piecewise | Class::Any | Class::Added | Class::Result => 3,
        }
    }
}

impl From<Activation> for Told {
    fn from(activation: Activation) -> Told {
        let kind = match activation {
            Activation::Identity => kind::IDENTITY,
            Activation::Relu => kind::RELU,
            Activation::LeakyRelu { .. } => kind::LEAKY_RELU,
            Activation::Silu => kind::SILU,
            Activation::Gelu => kind::GELU,
            Activation::GeluTanh => kind::GELU_TANH,
            Activation::Sigmoid => kind::SIGMOID,
            Activation::Tanh => kind::TANH,
            Activation::HardSwish => kind::HARD_SWISH,
        };
        let slope = match activation {
            Activation::LeakyRelu { slope } => slope as f32,
            _ => 0.0,
        };
        Told { kind, slope }
    }
}

/// A class of activations, as a type.
pub trait Epilogue {
    /// Which one.
    const CLASS: Class;

    /// Whether the code is worth being there once, for all parts of a row.
    const LARGE: bool;

    /// Weight and bias as a backward pass has them in registers: where z is not needed there is no bias, and room for more of the
    /// weight.
    type Parameters<M: Map, T: Data, A: Access, const V: usize>: Parameters<T, A, V>;

    /// f(z), for results that are stored as `T`, with `told` the same in all threads.
    fn apply<T: Data, L: Lanes, const V: usize>(z: [L; V], told: Told) -> [L; V];

    /// f′(z).
    fn derivative<T: Data, L: Lanes, const V: usize>(z: [L; V], told: Told) -> [L; V];

    /// f′(z) of a part, a few of its numbers at a time where that takes many registers.
    #[inline(always)]
    fn derivative_in_turn<T: Data, L: Lanes>(z: L, told: Told) -> L {
        let [slope] = Self::derivative::<T, _, _>([z], told);
        slope
    }
}

/// Identity.
pub struct Plain;

/// Identity, ReLU, leaky ReLU.
pub struct Piecewise;

/// All activations.
pub struct Any;

/// ReLU behind a residual, whose mask is kept or not.
pub struct Behind<const MASKED: bool>;

/// See [`Class::Masked`].
pub type Masked = Behind<true>;

/// See [`Class::Added`].
pub type Added = Behind<false>;

/// See [`Class::Result`].
pub struct OfResult;

impl Told {
    /// Identity.
    pub(super) const IDENTITY: Told = Told {
        kind: kind::IDENTITY,
        slope: 0.0,
    };

    /// ReLU.
    pub(super) const RELU: Told = Told {
        kind: kind::RELU,
        slope: 0.0,
    };

    /// Which code it is for, where there is one for each of the usual piecewise ones, so that none is looked up for every access of a row.
    #[inline(always)]
    pub(super) fn apart<E: Epilogue>(self) -> Apart {
        match self.kind {
            _ if !matches!(E::CLASS, Class::Piecewise) => Apart::Other,
            kind::IDENTITY => Apart::Identity,
            kind::RELU => Apart::Relu,
            _ => Apart::Other,
        }
    }

    /// The same for code of [`Apart::Other`]: of the piecewise ones only one is left, which the compiler should know.
    #[inline(always)]
    pub(super) fn other<E: Epilogue>(self) -> Told {
        match E::CLASS {
            Class::Piecewise => Told {
                kind: kind::LEAKY_RELU,
                ..self
            },
            _ => self,
        }
    }

    /// Of the smooth ones, one that there is code of its own for.
    #[inline(always)]
    pub(crate) fn written_out(self) -> Option<WrittenOut> {
        match self.kind {
            kind::SILU => Some(WrittenOut::Silu),
            kind::GELU => Some(WrittenOut::Gelu),
            _ => None,
        }
    }

    #[inline(always)]
    fn leaky(self) -> LeakyRelu {
        LeakyRelu {
            slope: f64::from(self.slope),
        }
    }
}

/// Every part changed, written out.
#[inline(always)]
fn each<L: Lanes, const V: usize>(parts: [L; V], mut change: impl FnMut(L) -> L) -> [L; V] {
    let mut parts = parts;
    unrolled::<V>(|v| parts[v] = change(parts[v]));
    parts
}

/// A smooth activation of every part, or, with `DERIVATIVE`, its slopes: by code that is there once.
#[inline(always)]
fn smooth<const DERIVATIVE: bool, L: Lanes, const V: usize>(parts: [L; V], told: Told) -> [L; V] {
    let mut parts = parts;
    let mut left = if V == 1 { 1 } else { simt::opaque(V as u32) };
    while left > 0 {
        parts[0] = changed::<DERIVATIVE, L>(parts[0], told);
        parts = rotated(parts);
        left -= 1;
    }
    parts
}

/// f(z) of the numbers of a part, or, with `DERIVATIVE`, f′(z). The activation is chosen once for all of them: a branch for each number would
/// keep them from being computed side by side.
#[inline(always)]
fn changed<const DERIVATIVE: bool, L: Lanes>(z: L, told: Told) -> L {
    match told.kind {
        kind::SILU => changed_by::<DERIVATIVE, L>(z, Silu),
        kind::GELU => changed_by::<DERIVATIVE, L>(z, Gelu),
        kind::GELU_TANH => changed_by::<DERIVATIVE, L>(z, GeluTanh),
        kind::SIGMOID => changed_by::<DERIVATIVE, L>(z, Sigmoid),
        kind::TANH => changed_by::<DERIVATIVE, L>(z, Tanh),
        _ => changed_by::<DERIVATIVE, L>(z, HardSwish),
    }
}

/// The same of one activation, by functions that are [`Brief`].
#[inline(always)]
fn changed_by<const DERIVATIVE: bool, L: Lanes>(z: L, f: impl Pointwise) -> L {
    z.map_rolled(|z| changed_number::<DERIVATIVE, _>(Brief(z), f).0)
}

#[inline(always)]
fn changed_number<const DERIVATIVE: bool, R: Real>(z: R, f: impl Pointwise) -> R {
    if DERIVATIVE { f.derivative(z) } else { f.apply(z) }
}

impl Epilogue for Plain {
    const CLASS: Class = Class::Plain;
    const LARGE: bool = false;
    type Parameters<M: Map, T: Data, A: Access, const V: usize> = M::Of<T, A, V, 16>;

    #[inline(always)]
    fn apply<T: Data, L: Lanes, const V: usize>(z: [L; V], _told: Told) -> [L; V] {
        z
    }

    #[inline(always)]
    fn derivative<T: Data, L: Lanes, const V: usize>(_z: [L; V], _told: Told) -> [L; V] {
        [L::splat(1.0); V]
    }
}

impl Piecewise {
    /// f(z) of a part, where parts are finished one after the other.
    #[inline(always)]
    pub(super) fn apply_in_turn<L: Lanes>(z: L, told: Told) -> L {
        if told.kind == kind::LEAKY_RELU {
            return z.map(|z| told.leaky().apply(z));
        }
        // One instruction for both.
        let bound = if told.kind == kind::RELU {
            0.0
        } else {
            f32::NEG_INFINITY
        };
        z.map(|z| z.not_below(bound))
    }
}

impl Epilogue for Piecewise {
    const CLASS: Class = Class::Piecewise;
    const LARGE: bool = true;
    type Parameters<M: Map, T: Data, A: Access, const V: usize> = M::Of<T, A, V, 8>;

    #[inline(always)]
    fn apply<T: Data, L: Lanes, const V: usize>(z: [L; V], told: Told) -> [L; V] {
        match told.kind {
            kind::IDENTITY => z,
            kind::RELU => each(z, |z| z.map(|z| Relu.apply(z))),
            _ => each(z, |z| z.map(|z| told.leaky().apply(z))),
        }
    }

    #[inline(always)]
    fn derivative<T: Data, L: Lanes, const V: usize>(z: [L; V], told: Told) -> [L; V] {
        match told.kind {
            kind::IDENTITY => [L::splat(1.0); V],
            kind::RELU => each(z, |z| z.map(|z| Relu.derivative(z))),
            _ => each(z, |z| z.map(|z| told.leaky().derivative(z))),
        }
    }
}

impl Epilogue for Any {
    const CLASS: Class = Class::Any;
    const LARGE: bool = true;
    type Parameters<M: Map, T: Data, A: Access, const V: usize> = M::Of<T, A, V, 8>;

    #[inline(always)]
    fn apply<T: Data, L: Lanes, const V: usize>(z: [L; V], told: Told) -> [L; V] {
        match told.kind {
            ..=kind::LEAKY_RELU => Piecewise::apply::<T, L, V>(z, told),
            kind::SILU => each(z, |z| WrittenOut::Silu.apply(z)),
            _ => smooth::<false, L, V>(z, told),
        }
    }

    #[inline(always)]
    fn derivative<T: Data, L: Lanes, const V: usize>(z: [L; V], told: Told) -> [L; V] {
        match told.kind {
            ..=kind::LEAKY_RELU => Piecewise::derivative::<T, L, V>(z, told),
            kind::SILU => each(z, |z| z.map(|z| Silu.derivative(Brief(z)).0)),
            _ => smooth::<true, L, V>(z, told),
        }
    }

    #[inline(always)]
    fn derivative_in_turn<T: Data, L: Lanes>(z: L, told: Told) -> L {
        // A SiLU has code of its own here too: beside the others it would take two registers more.
        let [slope] = match told.kind {
            ..=kind::LEAKY_RELU => Piecewise::derivative::<T, L, 1>([z], told),
            kind::SILU => [z.map_rolled(|z| Silu.derivative(Brief(z)).0)],
            _ => smooth::<true, L, 1>([z], told),
        };
        slope
    }
}

impl<const MASKED: bool> Epilogue for Behind<MASKED> {
    const CLASS: Class = if MASKED { Class::Masked } else { Class::Added };
    const LARGE: bool = false;
    type Parameters<M: Map, T: Data, A: Access, const V: usize> = M::Of<T, A, V, 8>;

    #[inline(always)]
    fn apply<T: Data, L: Lanes, const V: usize>(z: [L; V], _told: Told) -> [L; V] {
        each(z, |z| z.map(|z| Relu.apply(z)))
    }

    #[inline(always)]
    fn derivative<T: Data, L: Lanes, const V: usize>(z: [L; V], _told: Told) -> [L; V] {
        each(z, |z| z.map(|z| Relu.derivative(z)))
    }
}

impl Epilogue for OfResult {
    const CLASS: Class = Class::Result;
    const LARGE: bool = false;
    type Parameters<M: Map, T: Data, A: Access, const V: usize> = M::Of<T, A, V, 16>;

    #[inline(always)]
    fn apply<T: Data, L: Lanes, const V: usize>(z: [L; V], told: Told) -> [L; V] {
        Masked::apply::<T, L, V>(z, told)
    }

    #[inline(always)]
    fn derivative<T: Data, L: Lanes, const V: usize>(z: [L; V], told: Told) -> [L; V] {
        Masked::derivative::<T, L, V>(z, told)
    }
}

#[cfg(test)]
mod tests {
    use isonorm_math::{Bf16, F16};

    use super::*;

    /// What `apply` makes of a few parts, against each number alone.
    fn check<T: Data, L: Lanes, const V: usize>(kind: u32) {
        let told = Told { kind, slope: 0.0 };
        let parts = core::array::from_fn(|v| L::each(|lane| v as f32 - 2.0 + lane as f32 / 16.0));
        let all: [L; V] = Any::apply::<T, L, V>(parts, told);
        for (v, part) in all.into_iter().enumerate() {
            let [alone] = Any::apply::<T, L, 1>([parts[v]], told);
            assert!(part.fold(true, |same, number| same && number.is_finite()));
            let numbers = part.zip(alone, |a, b| (a - b).abs());
            assert!(
                numbers.fold(true, |same, off| same && off == 0.0),
                "{kind}: part {v} of {V}"
            );
        }
    }

    #[test]
    fn parts_side_by_side_are_what_they_are_alone() {
        for kind in [
            kind::SILU,
            kind::GELU,
            kind::GELU_TANH,
            kind::SIGMOID,
            kind::TANH,
            kind::HARD_SWISH,
        ] {
            check::<f32, [f32; 4], 4>(kind);
            check::<Bf16, [f32; 8], 4>(kind);
            check::<Bf16, [f32; 4], 8>(kind);
            check::<F16, [f32; 4], 4>(kind);
            check::<f32, [f32; 2], 8>(kind);
        }
    }

    /// On both sides of a bend, at it, and beyond all numbers.
    const AROUND: [f32; 4] = [-2.5, 0.0, f32::NEG_INFINITY, f32::NAN];

    #[test]
    fn a_part_in_turn_is_what_it_is_beside_others() {
        for kind in [kind::IDENTITY, kind::RELU, kind::LEAKY_RELU] {
            let told = Told { kind, slope: 0.25 };
            let [beside, _] = Piecewise::apply::<f32, _, 2>([AROUND, AROUND], told);
            let alone = Piecewise::apply_in_turn(AROUND, told);
            assert_eq!(beside.map(f32::to_bits), alone.map(f32::to_bits), "{kind}");
        }
    }

    #[test]
    fn what_is_written_out_is_what_the_loop_computes() {
        for (kind, written_out) in [(kind::SILU, WrittenOut::Silu), (kind::GELU, WrittenOut::Gelu)] {
            let told = Told { kind, slope: 0.0 };
            assert!(matches!(told.written_out(), Some(found) if found as u32 == written_out as u32));
            let z: [f32; 8] = core::array::from_fn(|n| n as f32 * 0.7 - 2.4);
            let [by_loop] = Any::apply::<Bf16, _, 1>([z], told);
            assert_eq!(written_out.apply(z), by_loop);
        }
    }
}
