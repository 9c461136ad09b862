//! What the host knows of a kernel: a [`Key`] says what it is for, and [`kernels`] has the functions to interpret.

use super::Data;
use super::access::{Access, Elements, Vectors, Width};
use super::epilogue::{Class, Epilogue, Piecewise, Plain, Smooth};
use super::forward::{Args, Of, Spec, forward};
use super::list::forward_kernels;
use super::parameters::{ByColumn, ByRun, Map, Sharing};
use super::statistics::{Centred, Given, Op, Statistics, Uncentred};
use super::team::{Block, Lanes, Owner, Team};
use crate::block;
use crate::simt::WARP;

/// What a kernel is specialised on, besides the element type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Key {
    /// Where mean and rstd come from.
    pub op: Op,
    /// Who owns a row.
    pub owner: Owner,
    /// The width of an access.
    pub width: Width,
    /// Accesses of a thread to a row.
    pub accesses: u32,
    /// Which parameter belongs to an element.
    pub sharing: Sharing,
    /// The class of the activation.
    pub class: Class,
    /// Whether there may be a residual.
    pub residual: bool,
    /// Whether the next row is loaded before this one is reduced.
    pub ahead: bool,
}

impl Key {
    fn of<S: Spec>(accesses: usize) -> Key {
        Key {
            op: S::Statistics::OP,
            owner: S::Team::OWNER,
            width: S::Access::WIDTH,
            accesses: accesses as u32,
            sharing: S::Map::SHARING,
            class: S::Epilogue::CLASS,
            residual: S::RESIDUAL,
            ahead: S::AHEAD,
        }
    }

    /// Threads of a block, at most: the registers are divided for that many.
    pub fn max_threads(&self) -> u32 {
        let large = self.width == Width::Element || self.class == Class::Smooth || self.accesses > 2;
        if large { 512 } else { 1024 }
    }

    /// Elements of an access.
    pub fn access_elements(&self, element_bytes: u32) -> u32 {
        match self.width {
            Width::Vector => 16 / element_bytes,
            Width::Element => 1,
        }
    }

    /// Threads of a team, in blocks of `threads`.
    pub fn team_threads(&self, threads: u32) -> u32 {
        match self.owner {
            Owner::Lanes(lanes) => lanes,
            Owner::Block => threads,
        }
    }

    /// Rows that a block of `threads` threads has at a time.
    pub fn teams(&self, threads: u32) -> u32 {
        threads / self.team_threads(threads)
    }

    /// Whether the teams of blocks of `threads` threads hold rows of so many elements of `element_bytes`. Vectors have to fill
    /// the row, and only the last vector of a thread may lie beyond it.
    pub fn fits(&self, columns: u64, threads: u32, element_bytes: u32) -> bool {
        let elements = self.access_elements(element_bytes);
        let accesses = columns.div_ceil(elements.into());
        let team = u64::from(self.team_threads(threads));
        let most = team * u64::from(self.accesses);
        let least = match self.width {
            Width::Vector if !columns.is_multiple_of(elements.into()) => return false,
            Width::Vector => most - team,
            Width::Element => 0,
        };
        let block = threads.is_multiple_of(WARP) && (WARP..=self.max_threads()).contains(&threads);
        block && (least.max(1)..=most).contains(&accesses)
    }

    /// Bytes of dynamic shared memory of a block.
    pub fn shared_bytes(&self) -> u32 {
        match self.owner {
            Owner::Lanes(_) => 0,
            Owner::Block => block::SCRATCH_BYTES,
        }
    }

    /// The name of the entry point in its module.
    pub fn name(&self) -> String {
        let op = match self.op {
            Op::Layer => "layer",
            Op::Rms => "rms",
            Op::Given => "given",
        };
        let owner = match self.owner {
            Owner::Lanes(WARP) => "warp".into(),
            Owner::Lanes(lanes) => format!("lanes{lanes}"),
            Owner::Block => "block".into(),
        };
        let ahead = if self.ahead { "_ahead" } else { "" };
        format!("{op}_{owner}_v{}{ahead}", self.accesses)
    }

    /// The family of kernels that it belongs to: there is a module of it for each element type.
    pub fn family(&self) -> String {
        let mut name = String::from("rows_forward");
        if self.width == Width::Element {
            name += "_elements";
        }
        if self.sharing == Sharing::ByRun {
            name += "_runs";
        }
        name += match (self.class, self.owner) {
            (Class::Plain, _) if self.accesses > 2 => "_wide",
            (Class::Plain, Owner::Lanes(_)) => "_lanes",
            (Class::Plain, Owner::Block) => "_block",
            (Class::Piecewise, _) => "_piecewise",
            (Class::Smooth, _) => "_smooth",
        };
        name
    }
}

/// A kernel as the interpreter runs it.
#[derive(Clone, Copy, Debug)]
pub struct Kernel<T> {
    /// The family that it is listed in.
    pub family: &'static str,
    /// The name that it is listed under.
    pub name: &'static str,
    /// What it is for.
    pub key: Key,
    /// Runs it as one thread of the interpreter. What the launch was not given is a fault there.
    pub run: unsafe fn(&Args<T>),
}

macro_rules! kernels {
    ($($family:literal { $($name:ident: $statistics:ty, $team:ty, $access:ty, $accesses:literal, $map:ty, $epilogue:ty,
        $residual:literal, $ahead:literal;)* })*) => {
        /// All kernels that there are.
        pub fn kernels<T: Data>() -> Vec<Kernel<T>> {
            vec![$($(Kernel {
                family: $family,
                name: stringify!($name),
                key: Key::of::<Of<$statistics, $team, $access, $map, $epilogue, $residual, $ahead>>($accesses),
                run: forward::<T, Of<$statistics, $team, $access, $map, $epilogue, $residual, $ahead>, $accesses>,
            }),*),*]
        }
    };
}

forward_kernels!(kernels);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_says_what_the_keys_say() {
        for kernel in kernels::<f32>() {
            assert_eq!(kernel.name, kernel.key.name());
            assert_eq!(kernel.family, kernel.key.family(), "{}", kernel.name);
        }
    }

    #[test]
    fn only_the_last_vector_may_be_missing() {
        let kernel = kernels::<f32>()
            .into_iter()
            .find(|kernel| kernel.name == "layer_block_v4");
        let key = kernel.unwrap().key;
        let fitting: Vec<u64> = (0..600).filter(|&columns| key.fits(columns, 32, 4)).collect();
        // From 3 vectors a thread on, to 4.
        assert_eq!(fitting, (384..=512).step_by(4).collect::<Vec<_>>());
    }
}
