//! What the host knows of a kernel: a [`Key`] says what it is for, [`listed`] has all of them, and [`kernels`] the functions to interpret.

use super::forward::{Args, given};
use super::held::{self, gradients as held_gradients, values as held_values};
use super::list::{backward_kernels, forward_kernels};
use super::strips::{self, gradients, values};
use super::tiling::Tiling;
use super::{
    Batched, ByRow, Columns, Given, Group, Groups, Held, Joined, Kind, Of, Spec, THREADS, Wide, backward, forward,
    head_bytes, row_bytes, sum_bytes,
};
use crate::rows::Data;
use crate::rows::access::{Access, Elements, Vectors, Width};
use crate::rows::epilogue::{Added, Any, Class, Epilogue, Masked, OfResult, Piecewise, Plain};
pub use crate::rows::key::Pass;

/// What a kernel is specialised on, besides the element type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Key {
    /// Forward or backward.
    pub pass: Pass,
    /// Whose statistics and parameters elements have. A tile is one group only of vectors, all of which lie in it.
    pub kind: Kind,
    /// The width of an access.
    pub width: Width,
    /// The class of the activation.
    pub class: Class,
    /// Accesses of a thread that are under way at once; or, of [`strips`], that stay in registers.
    pub at_once: u32,
}

impl Key {
    fn of<S: Spec>(pass: Pass, at_once: u32) -> Key {
        Key {
            pass,
            kind: S::KIND,
            width: S::Access::WIDTH,
            class: S::Epilogue::CLASS,
            at_once,
        }
    }

    /// Threads of a block.
    pub fn threads(&self, tiling: &Tiling) -> u32 {
        match self.kind {
            kind if kind.is_strips() => strips::THREADS,
            Kind::Held => held::threads(tiling),
            _ => THREADS,
        }
    }

    /// The oldest GPU that runs it, as a compute capability.
    pub fn needs(&self) -> u32 {
        match self.kind {
            // What the last-level cache is asked.
            kind if kind.is_strips() => 90,
            // Clusters.
            Kind::Held => 90,
            _ => 80,
        }
    }

    /// Elements of an access.
    pub fn access_elements(&self, element_bytes: u32) -> u32 {
        self.width.elements(element_bytes)
    }

    /// Tensors whose tiles are kept, with as many accesses each. Not for [`held`], where accesses that are kept are those to all of them.
    pub fn tensors(&self) -> u32 {
        match self.pass {
            Pass::Forward => 1,
            Pass::Backward if self.kind.is_strips() => 2,
            Pass::Backward => self.class.tensors(),
        }
    }

    /// Bytes of dynamic shared memory of a block.
    pub fn shared_bytes(&self, tiling: &Tiling, element_bytes: u32) -> u32 {
        if self.kind == Kind::Held {
            return held::shared_bytes(tiling, tiling.kept);
        }
        self.head_bytes(tiling, element_bytes) + tiling.slots * tiling.kept * self.access_bytes() * self.threads(tiling)
    }

    /// Bytes of shared memory of a block before its slots.
    pub fn head_bytes(&self, tiling: &Tiling, element_bytes: u32) -> u32 {
        let elements = self.access_elements(element_bytes);
        if (self.kind, self.pass) == (Kind::Given, Pass::Forward) {
            return given::shared_bytes(tiling);
        }
        if self.kind.is_strips() {
            return strips::head_bytes(elements);
        }
        let head = head_bytes(tiling, elements);
        let of_rows = match (self.kind, self.pass) {
            (Kind::ByRow, Pass::Forward) => row_bytes(tiling),
            (Kind::ByRow, Pass::Backward) => row_bytes(tiling).saturating_add(sum_bytes(tiling)),
            _ => 0,
        };
        head.saturating_add(of_rows)
    }

    /// Bytes of shared memory of a thread's access to each tensor.
    pub fn access_bytes(&self) -> u32 {
        let bytes = match self.width {
            Width::Vector | Width::Ragged | Width::Half => <Vectors>::KEPT_BYTES,
            Width::Element => Elements::KEPT_BYTES,
        };
        bytes * self.tensors()
    }

    /// The name of the entry point in its module.
    pub fn name(&self) -> &'static str {
        match self.kind {
            Kind::Group => "group",
            Kind::Groups => "groups",
            Kind::Given => "given",
            Kind::ByRow => "by_row",
            Kind::Wide => "wide",
            Kind::Columns => "columns",
            Kind::Joined => "joined",
            Kind::Batched => "batched",
            Kind::Held => "held",
        }
    }

    /// The family of kernels that it belongs to: there is a module of it for each element type.
    pub fn family(&self) -> String {
        let pass = match self.pass {
            Pass::Forward => "tiles_forward",
            Pass::Backward => "tiles_backward",
        };
        let kind = match self.kind {
            Kind::Columns => "_columns",
            Kind::Joined => "_joined",
            Kind::Batched => "_batched",
            Kind::Held => "_held",
            _ => "",
        };
        let class = match (self.width, self.class) {
            (Width::Element, _) => "_elements",
            (_, Class::Plain) => "_plain",
            (_, Class::Piecewise) => "_piecewise",
            (_, Class::Any) => "",
            (_, Class::Masked) => "_masked",
            (_, Class::Added) => "_added",
            (_, Class::Result) => "_result",
        };
        format!("{pass}{kind}{class}")
    }
}

/// A kernel of the list, whatever the data's type. Who needs no more than that has no kernel compiled for the host.
#[derive(Clone, Copy, Debug)]
pub struct Listed {
    /// The family that it is listed in.
    pub family: &'static str,
    /// The name that it is listed under.
    pub name: &'static str,
    /// What it is for.
    pub key: Key,
}

macro_rules! listed {
    ($pass:ident: $($family:literal by $module:ident :: $function:ident { $($name:ident: $access:ty, $epilogue:ty, $kind:ty, $at_once:literal;)* })*) => {
        [$($(Listed {
            family: $family,
            name: stringify!($name),
            key: Key::of::<Of<$access, $epilogue, $kind>>(Pass::$pass, $at_once),
        }),*),*]
    };
}

macro_rules! listed_forward {
    ($($list:tt)*) => { listed!(Forward: $($list)*) };
}

macro_rules! listed_backward {
    ($($list:tt)*) => { listed!(Backward: $($list)*) };
}

/// All kernels: of the forward pass, and of the backward pass.
pub fn listed() -> impl Iterator<Item = Listed> {
    let forward = forward_kernels!(listed_forward).into_iter();
    forward.chain(backward_kernels!(listed_backward))
}

/// A kernel as the interpreter runs it, with what it is told at launch.
#[derive(Clone, Copy, Debug)]
pub struct Kernel<A> {
    /// The family that it is listed in.
    pub family: &'static str,
    /// The name that it is listed under.
    pub name: &'static str,
    /// What it is for.
    pub key: Key,
    /// Runs it as one thread of the interpreter. What the launch was not given is a fault there.
    pub run: unsafe fn(&A),
}

macro_rules! forward {
    ($($family:literal by $module:ident :: $function:ident { $($name:ident: $access:ty, $epilogue:ty, $kind:ty, $at_once:literal;)* })*) => {
        vec![$($(Kernel {
            family: $family,
            name: stringify!($name),
            key: Key::of::<Of<$access, $epilogue, $kind>>(Pass::Forward, $at_once),
            run: $module::$function::<T, Of<$access, $epilogue, $kind>, $at_once>,
        }),*),*]
    };
}

macro_rules! backward {
    ($($family:literal by $module:ident :: $function:ident { $($name:ident: $access:ty, $epilogue:ty, $kind:ty, $at_once:literal;)* })*) => {
        vec![$($(Kernel {
            family: $family,
            name: stringify!($name),
            key: Key::of::<Of<$access, $epilogue, $kind>>(Pass::Backward, $at_once),
            run: $module::$function::<T, Of<$access, $epilogue, $kind>, $at_once>,
        }),*),*]
    };
}

/// All kernels of the forward pass.
pub fn kernels<T: Data>() -> Vec<Kernel<Args<T>>> {
    forward_kernels!(forward)
}

/// All kernels of the backward pass.
pub fn backward_kernels<T: Data>() -> Vec<Kernel<backward::Args<T>>> {
    backward_kernels!(backward)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_says_what_the_keys_say() {
        for Listed { family, name, key } in listed() {
            assert_eq!((family, name), (key.family().as_str(), key.name()));
        }
    }
}
