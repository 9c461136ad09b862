//! The activation behind a normalization. Kernels are compiled for a class of them, and told at launch which it is: code that
//! is there for nothing costs registers, and time to load.

use isonorm_math::Activation;
use isonorm_math::activation::{Gelu, GeluTanh, HardSwish, LeakyRelu, Pointwise, Relu, Sigmoid, Silu, Tanh};

use super::lanes::{Lanes, rotated, unrolled};
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

/// The kernels that an activation is compiled into.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Class {
    /// Identity.
    Plain,
    /// Identity, ReLU, leaky ReLU.
    Piecewise,
    /// All of them.
    Any,
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
            Activation::Identity => true,
            Activation::Relu | Activation::LeakyRelu { .. } => self != Class::Plain,
            _ => self == Class::Any,
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

    /// f(z), with `told` the same in all threads.
    fn apply<L: Lanes, const V: usize>(z: [L; V], told: Told) -> [L; V];

    /// f′(z).
    fn derivative<L: Lanes, const V: usize>(z: [L; V], told: Told) -> [L; V];
}

/// Identity.
pub struct Plain;

/// Identity, ReLU, leaky ReLU.
pub struct Piecewise;

/// All activations.
pub struct Any;

impl Told {
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

/// Every number changed, by code that is there once.
#[inline(always)]
fn each_rolled<L: Lanes, const V: usize>(parts: [L; V], mut change: impl FnMut(f32) -> f32) -> [L; V] {
    let mut parts = parts;
    let mut left = simt::opaque(V as u32);
    while left > 0 {
        parts[0] = parts[0].map_rolled(&mut change);
        parts = rotated(parts);
        left -= 1;
    }
    parts
}

impl Epilogue for Plain {
    const CLASS: Class = Class::Plain;
    const LARGE: bool = false;

    #[inline(always)]
    fn apply<L: Lanes, const V: usize>(z: [L; V], _told: Told) -> [L; V] {
        z
    }

    #[inline(always)]
    fn derivative<L: Lanes, const V: usize>(_z: [L; V], _told: Told) -> [L; V] {
        [L::splat(1.0); V]
    }
}

impl Epilogue for Piecewise {
    const CLASS: Class = Class::Piecewise;
    const LARGE: bool = true;

    #[inline(always)]
    fn apply<L: Lanes, const V: usize>(z: [L; V], told: Told) -> [L; V] {
        match told.kind {
            kind::IDENTITY => z,
            kind::RELU => each(z, |z| z.map(|z| Relu.apply(z))),
            _ => each(z, |z| z.map(|z| told.leaky().apply(z))),
        }
    }

    #[inline(always)]
    fn derivative<L: Lanes, const V: usize>(z: [L; V], told: Told) -> [L; V] {
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

    #[inline(always)]
    fn apply<L: Lanes, const V: usize>(z: [L; V], told: Told) -> [L; V] {
        if told.kind <= kind::LEAKY_RELU {
            return Piecewise::apply(z, told);
        }
        each_rolled(z, |z| match told.kind {
            kind::SILU => Silu.apply(z),
            kind::GELU => Gelu.apply(z),
            kind::GELU_TANH => GeluTanh.apply(z),
            kind::SIGMOID => Sigmoid.apply(z),
            kind::TANH => Tanh.apply(z),
            _ => HardSwish.apply(z),
        })
    }

    #[inline(always)]
    fn derivative<L: Lanes, const V: usize>(z: [L; V], told: Told) -> [L; V] {
        if told.kind <= kind::LEAKY_RELU {
            return Piecewise::derivative(z, told);
        }
        each_rolled(z, |z| match told.kind {
            kind::SILU => Silu.derivative(z),
            kind::GELU => Gelu.derivative(z),
            kind::GELU_TANH => GeluTanh.derivative(z),
            kind::SIGMOID => Sigmoid.derivative(z),
            kind::TANH => Tanh.derivative(z),
            _ => HardSwish.derivative(z),
        })
    }
}
