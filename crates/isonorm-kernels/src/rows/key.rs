//! What the host knows of a kernel: a [`Key`] says what it is for, [`listed`] has all of them, and [`kernels`] the functions to interpret.

mod family;

use super::Data;
use super::access::{Access, Elements, Halves, Ragged, Vectors, Width};
use super::across_runs::AcrossRuns;
use super::backward::across_runs::{self, across_runs};
use super::backward::apart::{self, apart};
use super::backward::by_run::{self, by_run};
use super::backward::by_segment::{self, by_segment};
use super::backward::gradients_by_part::{self, gradients_by_part};
use super::backward::gradients_later::gradients_later;
use super::backward::gradients_of_pieces::gradients_of_pieces;
use super::backward::segmented::segmented;
use super::backward::segmented_later::segmented_later;
use super::backward::{self, backward};
use super::by_column::ByColumn;
use super::by_segment::BySegment;
use super::each::{Each, ROW_BYTES, each};
use super::epilogue::{Added, Any, Class, Epilogue, Masked, Piecewise, Plain};
use super::forward::later::{STAY, later};
use super::forward::lines::{self, lines};
use super::forward::pieces::pieces;
use super::forward::{Args, Of, Spec, forward};
use super::list::{backward_kernels, forward_kernels, sweep_kernels};
use super::long::long;
use super::long::long_down::{self, long_down};
use super::long::long_shared::{self, long_shared};
use super::parameters::{ByRun, Map, Sharing};
use super::pieces::Pieces;
use super::ring::{CHIP_APART, end_places};
use super::segments::Segmented;
use super::spread::{Alone, Grid, HEAD_BYTES};
use super::statistics::{Centred, Given, Op, Statistics, Uncentred};
use super::team::{Block, Blocks, Chip, Lanes, Owner, Owns, Team};
use super::two_sweeps::down_columns::{self, down_columns};
use super::two_sweeps::{self, tile_bytes, two_sweeps};
use crate::simt::WARP;

/// The direction of a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Pass {
    /// y from x.
    Forward,
    /// dx and the parameters' gradients from x and dy.
    Backward,
}

/// What a kernel is specialised on, besides the element type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Key {
    /// Forward or backward.
    pub pass: Pass,
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
    /// Whether rows are on their way before they are needed.
    pub ahead: bool,
}

impl Key {
    fn of<S: Spec>(function: &str, accesses: usize) -> Key {
        Key {
            pass: match function {
                "backward"
                | "across_runs"
                | "apart"
                | "by_run"
                | "by_segment"
                | "down_columns"
                | "gradients_by_part"
                | "gradients_later"
                | "gradients_of_pieces"
                | "segmented"
                | "segmented_later"
                | "two_sweeps" => Pass::Backward,
                _ => Pass::Forward,
            },
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
        let small = self.width == Width::Vector && self.class != Class::Any && self.accesses <= 2;
        let small = small && self.pass == Pass::Forward && matches!(self.owner, Owner::Lanes(_) | Owner::Block);
        let small = small && self.sharing != Sharing::AcrossRuns && !self.is_of_lines();
        // Sums over rows, two for each element, and z behind a ReLU; of rows and their columns apart they are those of other blocks.
        let most_accesses = match self.class {
            Class::Plain => 3,
            Class::Added => 2,
            _ => u32::MAX,
        };
        let sums = self.pass == Pass::Backward && self.sharing == Sharing::ByColumn && self.accesses > most_accesses;
        if sums && !self.is_apart() && self.width == Width::Vector && self.owner != Owner::Chip {
            return 256;
        }
        if self.pass == Pass::Backward && self.is_crowded() {
            return 384;
        }
        match small {
            // There are the parameters as they came.
            true if self.class == Class::Plain && self.accesses == 2 => 768,
            true => 1024,
            false => 512,
        }
    }

    /// Whether what a row has of each access, and slopes of so many, take more registers than others.
    fn is_crowded(&self) -> bool {
        let ragged = (self.width, self.owner) == (Width::Ragged, Owner::Blocks);
        ragged && self.class == Class::Piecewise && self.accesses == 8
    }

    /// Elements of an access.
    pub fn access_elements(&self, element_bytes: u32) -> u32 {
        self.width.elements(element_bytes)
    }

    /// Threads of a team: of blocks of `threads`, so many of which share a row.
    pub fn team_threads(&self, threads: u32, blocks: u32) -> u32 {
        match self.owner {
            Owner::Lanes(lanes) => lanes,
            Owner::Blocks | Owner::Chip => blocks * threads,
            _ => threads,
        }
    }

    /// Rows that a block of `threads` threads has at a time, or with those that it shares them with.
    pub fn teams(&self, threads: u32) -> u32 {
        threads / self.team_threads(threads, 1)
    }

    /// Whether so many teams leave the gradients of weight and bias as they are wanted, not sums that a second kernel adds up: a single team of
    /// the chip does, and threads that have all rows.
    pub fn leaves_gradients(&self, teams: u64) -> bool {
        (self.owner, self.sharing, teams) == (Owner::Chip, Sharing::ByColumn, 1) || self.is_down_columns()
    }

    /// Whether rows may be longer than the registers.
    pub fn is_long(&self) -> bool {
        matches!(self.owner, Owner::Alone | Owner::Grid)
    }

    /// Whether the shared memory of a block has all of a row, and no more.
    pub fn is_whole(&self) -> bool {
        self.owner == Owner::Alone && !self.ahead
    }

    /// Whether rows are held by several blocks, of a cluster or of the grid.
    pub fn spans_blocks(&self) -> bool {
        matches!(self.owner, Owner::Blocks | Owner::Chip | Owner::Pieces)
    }

    /// Rows that shared memory has room for, at least, so that one is on its way when another is worked on.
    pub fn least_slots(&self) -> u32 {
        match (self.has_slots(), self.owner) {
            (false, _) => 0,
            (true, Owner::Chip) if self.is_by_part() => gradients_by_part::HALVES,
            (true, Owner::Chip) => 2 + STAY,
            (true, _) => 1,
        }
    }

    /// Whether other blocks than those that have rows compute the gradients of weight and bias.
    pub fn is_apart(&self) -> bool {
        let holds = matches!(self.owner, Owner::Lanes(_) | Owner::Block | Owner::Blocks) && self.width == Width::Vector;
        self.pass == Pass::Backward && self.sharing == Sharing::ByColumn && holds && !self.ahead
    }

    /// Whether each part of a row comes to where one of the row before has been finished.
    fn is_by_part(&self) -> bool {
        let is_of_chip = self.pass == Pass::Backward && self.owner == Owner::Chip;
        is_of_chip && self.sharing == Sharing::ByColumn && self.accesses > 4
    }

    /// Whether warps have lines of a row in shared memory, as many as there is room for.
    pub fn is_of_lines(&self) -> bool {
        let holds = matches!(self.owner, Owner::Block | Owner::Blocks);
        match (self.pass, self.sharing) {
            (Pass::Backward, Sharing::ByRun) => holds,
            (_, Sharing::ByRun | Sharing::Segmented) => holds && self.ahead && self.accesses == 1,
            _ => false,
        }
    }

    /// Places of shared memory that an access to a line takes there, of elements of so many bytes.
    pub fn places(&self, element_bytes: u32) -> u32 {
        match self.pass {
            Pass::Forward => lines::PLACES,
            Pass::Backward => by_run::places(self.class, element_bytes),
        }
    }

    /// Whether threads have the same columns of all rows.
    pub fn is_down_columns(&self) -> bool {
        (self.owner, self.sharing, self.class) == (Owner::Grid, Sharing::ByColumn, Class::Plain)
    }

    /// Whether rows are segments, or begin anywhere as those do.
    fn is_of_segments(&self) -> bool {
        self.width == Width::Ragged || self.sharing == Sharing::Segmented
    }

    /// Whether rows come ahead to shared memory.
    pub fn has_slots(&self) -> bool {
        let to_shared = self.pass == Pass::Backward || self.spans_blocks() || self.is_of_segments();
        let to_shared = to_shared || self.is_of_lines();
        self.ahead && !self.is_long() && self.owner != Owner::Pieces && to_shared
    }

    /// Elements of a tile of a long row, which a block of `threads` threads has at a time.
    pub fn tile_elements(&self, threads: u32, element_bytes: u32) -> u32 {
        threads * self.accesses * self.access_elements(element_bytes)
    }

    /// Whether the teams of blocks of `threads` threads, so many of which share a row, hold rows of so many elements of
    /// `element_bytes`. Vectors have to fill the row, and only the last vector of a thread may lie beyond it; rows in segments are another question.
    pub fn fits(&self, columns: u64, (threads, blocks): (u32, u32), element_bytes: u32) -> bool {
        let elements = self.access_elements(element_bytes);
        let accesses = columns.div_ceil(elements.into());
        let team = u64::from(self.team_threads(threads, blocks));
        let most = team * u64::from(self.accesses);
        let least = match self.width {
            Width::Vector if !columns.is_multiple_of(elements.into()) => return false,
            Width::Vector => most - team,
            Width::Ragged | Width::Half | Width::Element => 0,
        };
        let block = threads.is_multiple_of(WARP) && (WARP..=self.max_threads()).contains(&threads);
        block
            && (self.is_long()
                || self.owner == Owner::Pieces
                || self.is_of_lines()
                || self.is_of_segments()
                || (least.max(1)..=most).contains(&accesses))
    }

    /// Bytes that an access takes in shared memory.
    fn access_bytes(&self) -> u32 {
        match self.width {
            Width::Vector | Width::Ragged => <Vectors>::KEPT_BYTES,
            Width::Half => Halves::KEPT_BYTES,
            Width::Element => Elements::KEPT_BYTES,
        }
    }

    /// Bytes of dynamic shared memory of a block of `threads` threads that keeps so much: tiles of long rows, rows that come
    /// ahead, of a cluster or in a backward pass, groups of accesses to pieces, places of lines, or what rows are normalized with that are nobody's. Otherwise nothing is kept, and of those of two sweeps this is the head alone, without their
    /// [`sweeps_tile_bytes`](Key::sweeps_tile_bytes).
    pub fn shared_bytes(&self, threads: u32, kept: u32) -> u32 {
        if self.is_whole() {
            return long_shared::shared_bytes(threads, self.sharing, kept * self.accesses * threads);
        }
        let head = match self.owner {
            Owner::Lanes(_) => 0,
            Owner::Each => kept * ROW_BYTES,
            Owner::Block => Block::SHARED_BYTES,
            Owner::Blocks => Blocks::SHARED_BYTES,
            Owner::Chip | Owner::Pieces => Chip::SHARED_BYTES,
            Owner::Grid if self.is_down_columns() && self.pass == Pass::Forward => long_down::shared_bytes(threads),
            Owner::Grid if self.is_down_columns() => down_columns::shared_bytes(threads),
            Owner::Grid if self.pass == Pass::Backward => two_sweeps::HEAD_BYTES,
            Owner::Alone | Owner::Grid => HEAD_BYTES,
        };
        // Slots of those are halves of rows.
        let of_slot = self.accesses / if self.is_by_part() { 2 } else { 1 };
        let of_tensor = of_slot * self.access_bytes();
        let of_thread = match (self.pass, self.owner) {
            _ if self.is_down_columns() => 0,
            _ if self.is_long() => kept * of_tensor,
            (Pass::Forward, Owner::Pieces) => kept * of_tensor,
            // Places of any tensor.
            _ if self.is_of_lines() => kept * of_tensor,
            // What is added comes to registers.
            (Pass::Forward, Owner::Chip) => kept * of_tensor,
            (Pass::Forward, _) if self.has_slots() => kept * of_tensor * (1 + u32::from(self.residual)),
            (Pass::Forward, _) => 0,
            _ if self.is_apart() => 0,
            // The teams of a block add up what they have summed, in the same place.
            (Pass::Backward, Owner::Lanes(_)) => {
                let sums = backward::sums_bytes(self.accesses, self.most_access_elements());
                (kept * of_tensor * self.loaded()).max(sums)
            }
            (Pass::Backward, _) => kept * of_tensor * self.loaded(),
        };
        let sums = match (self.pass, self.sharing) {
            (Pass::Backward, _) if self.is_of_lines() => by_run::sums_bytes(threads, kept),
            (Pass::Backward, Sharing::BySegment) => by_segment::sums_bytes(threads, self.accesses),
            (Pass::Backward, Sharing::AcrossRuns) => across_runs::sums_bytes(threads, self.accesses),
            _ if self.is_apart() => apart::bytes(threads, self.most_access_elements()),
            _ => 0,
        };
        let kept = threads * of_thread;
        // A whole part of each thread for what segments may have a part of only is more than there is.
        let kept = match self.has_ends() {
            true => {
                kept / self.accesses * (self.accesses - 1)
                    + kept / self.accesses / threads * end_places(threads, self.owner)
            }
            false => kept,
        };
        head + kept + sums
    }

    /// Whether one access of each thread is for what segments that begin anywhere may have a part of only.
    pub fn has_ends(&self) -> bool {
        self.width == Width::Ragged && self.sharing == Sharing::Segmented
    }

    /// Threads of a team for each access that a segment may have a part of only, at least.
    pub fn ends_apart(&self) -> u32 {
        match self.owner {
            Owner::Chip => CHIP_APART,
            _ => 1,
        }
    }

    /// Tensors that a backward pass loads.
    fn loaded(&self) -> u32 {
        match self.residual {
            true => self.class.tensors(),
            false => 2,
        }
    }

    /// Elements of an access, of the smallest type.
    fn most_access_elements(&self) -> u32 {
        self.access_elements(2)
    }

    /// Bytes of shared memory that a tile of a backward pass in two sweeps takes; with sums where there are gradients by column.
    pub fn sweeps_tile_bytes(&self, threads: u32, element_bytes: u32, has_sums: bool) -> u32 {
        let elements = self.access_elements(element_bytes);
        threads * tile_bytes(self.accesses, self.access_bytes(), elements, self.class, has_sums)
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
    ($($family:literal by $function:ident { $($name:ident: $statistics:ty, $team:ty, $access:ty, $accesses:literal, $map:ty,
        $epilogue:ty, $residual:literal, $ahead:literal;)* })*) => {
        [$($(Listed {
            family: $family,
            name: stringify!($name),
            key: Key::of::<Of<$statistics, $team, $access, $map, $epilogue, $residual, $ahead>>(stringify!($function), $accesses),
        }),*),*]
    };
}

/// All kernels: of the forward pass, of the backward pass, and of that in two sweeps.
pub fn listed() -> impl Iterator<Item = Listed> {
    let forward = forward_kernels!(listed).into_iter();
    forward.chain(backward_kernels!(listed)).chain(sweep_kernels!(listed))
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

macro_rules! kernels {
    ($($family:literal by $function:ident { $($name:ident: $statistics:ty, $team:ty, $access:ty, $accesses:literal, $map:ty,
        $epilogue:ty, $residual:literal, $ahead:literal;)* })*) => {
        vec![$($(Kernel {
            family: $family,
            name: stringify!($name),
            key: Key::of::<Of<$statistics, $team, $access, $map, $epilogue, $residual, $ahead>>(stringify!($function), $accesses),
            run: $function::<T, Of<$statistics, $team, $access, $map, $epilogue, $residual, $ahead>, $accesses>,
        }),*),*]
    };
}

/// All kernels of the forward pass.
pub fn kernels<T: Data>() -> Vec<Kernel<Args<T>>> {
    forward_kernels!(kernels)
}

/// All kernels of the backward pass over rows that their teams hold in registers.
pub fn backward_kernels<T: Data>() -> Vec<Kernel<backward::Args<T>>> {
    backward_kernels!(kernels)
}

/// All kernels of the backward pass in two sweeps.
pub fn sweep_kernels<T: Data>() -> Vec<Kernel<two_sweeps::Args<T>>> {
    sweep_kernels!(kernels)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_says_what_the_keys_say() {
        for Listed { family, name, key } in listed() {
            assert_eq!((family, name), (key.family().as_str(), key.name().as_str()));
        }
    }

    #[test]
    fn only_the_last_vector_may_be_missing() {
        let kernel = kernels::<f32>()
            .into_iter()
            .find(|kernel| kernel.name == "layer_block_v4");
        let key = kernel.unwrap().key;
        let fitting: Vec<u64> = (0..600).filter(|&columns| key.fits(columns, (32, 1), 4)).collect();
        // From 3 vectors a thread on, to 4.
        assert_eq!(fitting, (384..=512).step_by(4).collect::<Vec<_>>());
    }
}
