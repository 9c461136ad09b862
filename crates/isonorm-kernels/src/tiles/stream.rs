//! The order in which a thread has the parts of tiles, the same for both passes.
//!
//! A part comes to a place in shared memory, is added up, stays there until the sums of its tile are known, and leaves as a
//! result; then the place is free, and the next part is set on its way to it. So loads are always under way, as far ahead as there
//! are places.
//!
//! Where shared memory has room for more than a tile, sums are some parts ahead of results: while those of a tile are exchanged, the
//! next tile is added up, part by part in turns with what becomes of the tile before. Where it has room for less, the tile's first
//! parts stay, and the others pass through some places: once for the sums, and once more for the results, newest first, so that the
//! last ones are still there.
//!
//! A thread waits for what it has fetched, a block for the sums of others; all blocks have the same order.

use super::Spec;
use super::places::wait;
use super::tiling::{Cursor, Walk};
use crate::simt;

/// Tiles that are under way at once, at most: one is added up, the sums of two are exchanged, and one is finished.
pub const MOST_TURNS: u32 = 4;

/// A tile of this block's: how many it has had before.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Turn(pub u32);

impl Turn {
    /// Where the tile's numbers are kept, of [`MOST_TURNS`].
    #[inline(always)]
    pub fn slot(self) -> u32 {
        self.0 % MOST_TURNS
    }

    #[inline(always)]
    fn next(self) -> Turn {
        Turn(self.0 + 1)
    }
}

/// Accesses of a thread to a part: a number that kernels know, so that what is done with them is written out.
pub const PART: u32 = 4;

/// A part of a tile, as a thread has it.
#[derive(Clone, Copy)]
pub(super) struct Part {
    /// Where its accesses are in shared memory.
    pub place: u32,
    /// How many there are: [`PART`], or fewer at the end.
    pub count: u32,
}

impl Part {
    /// Whether there is nothing beside [`PART`] accesses; otherwise they are taken one by one.
    #[inline(always)]
    pub fn is_whole(self) -> bool {
        self.count == PART
    }
}

/// What a pass does with tiles and their parts.
///
/// # Safety
///
/// Of all functions: the order is that of [`stream`], with the pointers that the pass was made with.
pub(super) trait Stages {
    /// Of a tile that is added up.
    type Sums: Copy;

    /// The sums of no part.
    fn nothing(&self) -> Self::Sums;

    /// Sets a part on its way, from a place in memory on, which is moved behind it.
    unsafe fn fetch(&self, part: Part, at: &mut Cursor);

    /// Prepares for the sums of a tile, if there is such a tile. Called by the whole block.
    unsafe fn begin(&self, turn: Turn);

    /// Adds a part.
    unsafe fn add(&self, sums: &mut Self::Sums, part: Part);

    /// Sends the sums of a tile, and prepares for those of the next. Called by the whole block.
    unsafe fn send(&mut self, turn: Turn, sums: Self::Sums, next: Turn);

    /// Adds up what other blocks have sent. Called by the whole block.
    unsafe fn gather(&self, turn: Turn);

    /// Receives the sums of a tile. Called by the whole block.
    unsafe fn receive(&mut self, turn: Turn);

    /// Stores the results of a part, from a place in memory on, which is moved behind it.
    unsafe fn finish(&self, part: Part, at: &mut Cursor);

    /// After the last part of a tile.
    unsafe fn end(&self, turn: Turn);
}

/// A way through tiles, part by part.
#[derive(Clone, Copy)]
struct Way {
    turn: Turn,
    part: u32,
    /// Where a part that stays is in shared memory.
    place: u32,
    /// The thread's accesses to the tile.
    own: u32,
}

impl Way {
    /// From the first tile on.
    #[inline(always)]
    fn new<S: Spec>(walk: &Walk<'_, S>) -> Self {
        let turn = Turn(0);
        Self {
            turn,
            part: 0,
            place: 0,
            own: walk.own(turn),
        }
    }

    /// Whether there is a tile.
    #[inline(always)]
    fn goes_on<S: Spec>(&self, walk: &Walk<'_, S>) -> bool {
        walk.has(self.turn)
    }

    /// Part `number` of the tile, at a place.
    #[inline(always)]
    fn part(&self, number: u32, place: u32) -> Part {
        let left = self.own.saturating_sub(number * PART);
        Part {
            place,
            count: left.min(PART),
        }
    }

    /// To the next part: of so many that a tile has here.
    #[inline(always)]
    fn step<S: Spec>(&mut self, walk: &Walk<'_, S>, parts: u32) {
        self.part += 1;
        if self.part == parts {
            self.part = 0;
            self.turn = self.turn.next();
            self.own = walk.own(self.turn);
        }
    }

    /// Moves to the next place of parts that stay.
    #[inline(always)]
    fn move_on<S: Spec>(&mut self, walk: &Walk<'_, S>) {
        self.place = if self.place + 1 < walk.tiling.room {
            self.place + 1
        } else {
            0
        };
    }
}

/// Parts that stay, on their way to shared memory.
struct Coming {
    way: Way,
    at: Cursor,
    /// How many nobody has waited for.
    under_way: u32,
}

impl Coming {
    /// Sets the next part on its way, if there is one.
    #[inline(always)]
    unsafe fn fetch<S: Spec>(&mut self, walk: &Walk<'_, S>, stages: &impl Stages, place: u32) {
        if !self.way.goes_on(walk) {
            return;
        }
        if self.way.part == 0 {
            self.at = walk.start(self.way.turn);
        }
        let part = self.way.part(self.way.part, place);
        // SAFETY: the caller's: what was there has been used.
        unsafe { stages.fetch(part, &mut self.at) };
        simt::copy_commit();
        self.under_way += 1;
        self.way.step(walk, walk.tiling.kept);
    }

    /// Waits for the oldest.
    #[inline(always)]
    fn wait(&mut self) {
        self.under_way -= 1;
        wait(self.under_way);
    }
}

/// Parts that pass, of a tile of number `of`: sets number `index` of them on its way, if there is such a tile.
#[inline(always)]
unsafe fn fetch_passing<S: Spec>(walk: &Walk<'_, S>, stages: &impl Stages, turn: Turn, index: u32, place: u32) {
    if walk.has(turn) {
        let number = walk.tiling.kept + index;
        let way = Way {
            turn,
            part: number,
            place,
            own: walk.own(turn),
        };
        let mut at = walk.at(turn, number * PART);
        // SAFETY: the caller's: what was there has been used.
        unsafe { stages.fetch(way.part(number, place), &mut at) };
    }
    simt::copy_commit();
}

/// Takes a block through its team's tiles.
///
/// # Safety
///
/// As for [`Stages`].
#[inline(always)]
pub(super) unsafe fn stream<S: Spec>(walk: &Walk<'_, S>, stages: &mut impl Stages) {
    let tiling = walk.tiling;
    let (parts, room, passing) = (tiling.parts, tiling.room, tiling.passing);
    let others = parts - tiling.kept;
    // How long after its sums were sent a tile's results begin; those of other blocks are looked for half-way.
    let pause = tiling.lead.saturating_sub(parts);
    let (mut added, mut finished) = (Way::new(walk), Way::new(walk));
    let mut coming = Coming {
        way: added,
        at: walk.start(added.turn),
        under_way: 0,
    };
    let mut place = 0;
    while place < passing {
        simt::rolled();
        // SAFETY: the caller's, here and below: there is such a part, and nothing has come to the place yet.
        unsafe { fetch_passing(walk, stages, added.turn, place, room + place) };
        place += 1;
    }
    place = 0;
    while place < room {
        simt::rolled();
        // SAFETY: as above.
        unsafe { coming.fetch(walk, stages, place) };
        place += 1;
    }
    // SAFETY: the caller's.
    unsafe { stages.begin(added.turn) };
    // Where the last part that passed is.
    let mut passage = 0;
    // Whether the sums of the tile before the one that is added have been sent, and those of other blocks not been looked for.
    let mut sent = false;
    let mut finished_at = coming.at;
    let mut sums = stages.nothing();
    loop {
        let most = match tiling.lead {
            0 => parts - finished.part,
            lead => lead,
        };
        // Parts that have been added and not finished.
        let ahead = |added: &Way| (added.turn.0 - finished.turn.0) * parts + added.part - finished.part;
        let adds = ahead(&added) < most && added.goes_on(walk);
        if sent && (!adds || added.part >= pause / 2) {
            // SAFETY: the caller's.
            unsafe { stages.gather(Turn(added.turn.0 - 1)) };
            sent = false;
        }
        if adds {
            // SAFETY: the caller's, here and below.
            unsafe {
                let index = added.part.checked_sub(tiling.kept);
                let place = match index {
                    None => {
                        coming.wait();
                        let place = added.place;
                        added.move_on(walk);
                        place
                    }
                    Some(index) => {
                        passage = if index == 0 || passage + 1 == passing {
                            0
                        } else {
                            passage + 1
                        };
                        // Since it was set on its way so many have been; the first ones before those that stay.
                        wait(index.min(passing - 1));
                        room + passage
                    }
                };
                stages.add(&mut sums, added.part(added.part, place));
                if let Some(index) = index {
                    if index + passing < others {
                        fetch_passing(walk, stages, added.turn, index + passing, place);
                    } else {
                        simt::copy_commit();
                    }
                }
                if added.part + 1 == parts {
                    stages.send(added.turn, sums, added.turn.next());
                    sums = stages.nothing();
                    sent = true;
                }
                added.step(walk, parts);
            }
            let waits = sent && added.turn == finished.turn.next();
            if waits || ahead(&added) < most && added.goes_on(walk) {
                continue;
            }
        }
        if !finished.goes_on(walk) {
            break;
        }
        // SAFETY: the caller's, here and below.
        unsafe {
            if finished.part == 0 {
                stages.receive(finished.turn);
            }
            let passes = finished.part < others;
            // Of those that pass the newest first: the last ones have stayed where they came.
            let (number, place, mut at) = if passes {
                let index = others - 1 - finished.part;
                if index + passing < others {
                    wait(passing - 1);
                }
                let number = tiling.kept + index;
                (number, room + passage, walk.at(finished.turn, number * PART))
            } else {
                if finished.part == others {
                    finished_at = walk.start(finished.turn);
                }
                (finished.part - others, finished.place, finished_at)
            };
            stages.finish(finished.part(number, place), &mut at);
            if passes {
                let (turn, next) = match (number - tiling.kept).checked_sub(passing) {
                    Some(next) => (finished.turn, next),
                    None => (finished.turn.next(), number - tiling.kept),
                };
                fetch_passing(walk, stages, turn, next, place);
                passage = if passage == 0 { passing - 1 } else { passage - 1 };
            } else {
                coming.fetch(walk, stages, place);
                finished.move_on(walk);
                finished_at = at;
            }
            if finished.part + 1 == parts {
                stages.end(finished.turn);
            }
            finished.step(walk, parts);
        }
    }
}
