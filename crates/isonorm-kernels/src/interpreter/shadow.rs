//! [`SharedMemory`]: a block's shared memory, and what happened to each of its bytes.

use super::FaultKind;
use super::sent::Known;
use crate::simt::WARP;

/// Who accessed a byte, and which barriers that thread had passed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Access {
    /// The block's index among those that run together.
    pub block: u32,
    /// The thread's index in its block.
    pub thread: u32,
    pub cluster_barriers: u32,
    pub block_barriers: u32,
    pub warp_barriers: u32,
    /// How much the thread's warp had sent.
    pub sent: u32,
    /// How often the thread had arrived at its cluster, and how often waited for it.
    pub arrivals: u32,
    pub waits: u32,
}

impl Access {
    const NONE: Self = Self {
        block: u32::MAX,
        thread: u32::MAX,
        cluster_barriers: 0,
        block_barriers: 0,
        warp_barriers: 0,
        sent: 0,
        arrivals: 0,
        waits: 0,
    };

    /// The warp: of which block, and its index there.
    pub fn warp(self) -> (u32, u32) {
        (self.block, self.thread / WARP)
    }

    /// Whether a barrier (or being the same thread) puts `self` before `later`.
    fn precedes(self, later: Self) -> bool {
        let same_block = self.block == later.block;
        let same_warp = self.warp() == later.warp();
        self.block == u32::MAX
            || (same_block && self.thread == later.thread)
            || self.cluster_barriers != later.cluster_barriers
            || (same_block && self.block_barriers != later.block_barriers)
            || (same_warp && self.warp_barriers != later.warp_barriers)
    }
}

/// An access that is made now, and what the thread has been told of others'.
#[derive(Clone, Copy)]
pub(crate) struct Now<'a> {
    pub access: Access,
    pub known: &'a Known,
}

impl Now<'_> {
    fn follows(self, earlier: Access) -> bool {
        earlier.precedes(self.access) || self.known.includes(earlier)
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Content {
    /// Nobody wrote it.
    Poison,
    Written,
    /// Part of a barrier for copies.
    Prepared,
    /// The destination of a copy that has not landed.
    InFlight,
}

#[derive(Clone, Copy)]
struct Byte {
    value: u8,
    content: Content,
    writer: Access,
    /// Two readers: a later writer is not one of them at least.
    readers: [Access; 2],
}

/// A block's dynamic shared memory.
pub(crate) struct SharedMemory(Vec<Byte>);

type Problem = (FaultKind, String);

impl SharedMemory {
    pub fn new(bytes: u32) -> Self {
        let poison = Byte {
            value: 0,
            content: Content::Poison,
            writer: Access::NONE,
            readers: [Access::NONE; 2],
        };
        Self(vec![poison; bytes as usize])
    }

    /// The bytes of an access, aligned to its size (16 at most).
    fn range(&mut self, offset: u32, bytes: u32) -> Result<&mut [Byte], Problem> {
        let size = self.0.len();
        if bytes.is_power_of_two() && !offset.is_multiple_of(bytes.min(16)) {
            return Err((
                FaultKind::Misaligned,
                format!("{bytes} bytes at byte {offset} of shared memory"),
            ));
        }
        let start = offset as usize;
        self.0.get_mut(start..start + bytes as usize).ok_or_else(|| {
            let detail = format!("{bytes} bytes at byte {offset} of shared memory, which has {size} bytes");
            (FaultKind::OutOfBounds, detail)
        })
    }

    pub fn read(&mut self, offset: u32, to: &mut [u8], now: Now<'_>) -> Result<(), Problem> {
        for (i, (byte, to)) in self.range(offset, to.len() as u32)?.iter_mut().zip(to).enumerate() {
            let place = offset as usize + i;
            match byte.content {
                Content::Written | Content::Prepared => {}
                Content::Poison => return Err((FaultKind::Poison, format!("byte {place}"))),
                Content::InFlight => return Err(in_flight("read", place)),
            }
            if !now.follows(byte.writer) && !byte.is_prepared_for(now) {
                return Err(race(place, "is read", byte.writer, "wrote"));
            }
            byte.remember_reader(now);
            *to = byte.value;
        }
        Ok(())
    }

    pub fn write(&mut self, offset: u32, from: &[u8], now: Now<'_>) -> Result<(), Problem> {
        for (i, (byte, &from)) in self.range(offset, from.len() as u32)?.iter_mut().zip(from).enumerate() {
            byte.check_write(offset as usize + i, now)?;
            byte.set(from, now.access);
        }
        Ok(())
    }

    /// Prepares a barrier for copies.
    pub fn prepare(&mut self, offset: u32, now: Now<'_>) -> Result<(), Problem> {
        self.write(offset, &[0; 8], now)?;
        for byte in self.range(offset, 8)? {
            byte.content = Content::Prepared;
        }
        Ok(())
    }

    /// Marks the destination of a copy that starts now.
    pub fn start_copy(&mut self, offset: u32, bytes: u32, now: Now<'_>) -> Result<(), Problem> {
        for (i, byte) in self.range(offset, bytes)?.iter_mut().enumerate() {
            byte.check_write(offset as usize + i, now)?;
            byte.content = Content::InFlight;
        }
        Ok(())
    }

    /// Puts the data of a copy in its place, as written by `writer`, or by nobody in particular.
    pub fn land_copy(&mut self, offset: u32, from: &[u8], writer: Option<Access>) {
        let start = offset as usize;
        for (byte, &from) in self.0[start..start + from.len()].iter_mut().zip(from) {
            byte.set(from, writer.unwrap_or(Access::NONE));
        }
    }
}

impl Byte {
    fn check_write(&self, place: usize, now: Now<'_>) -> Result<(), Problem> {
        if self.content == Content::InFlight {
            return Err(in_flight("write", place));
        }
        if !now.follows(self.writer) {
            return Err(race(place, "is written", self.writer, "wrote"));
        }
        match self.readers.iter().find(|reader| !now.follows(**reader)) {
            Some(&reader) => Err(race(place, "is written", reader, "read")),
            None => Ok(()),
        }
    }

    /// Whether it was prepared before its thread arrived at a cluster that has been waited for since.
    fn is_prepared_for(&self, now: Now<'_>) -> bool {
        self.content == Content::Prepared && now.access.waits > self.writer.arrivals
    }

    fn set(&mut self, value: u8, writer: Access) {
        *self = Self {
            value,
            content: Content::Written,
            writer,
            readers: [Access::NONE; 2],
        };
    }

    fn remember_reader(&mut self, now: Now<'_>) {
        let [first, second] = &mut self.readers;
        if now.follows(*first) {
            *first = now.access;
        } else {
            *second = now.access;
        }
    }
}

fn in_flight(what: &str, place: usize) -> Problem {
    let detail = format!("{what} of byte {place} of shared memory, where a copy has not landed");
    (FaultKind::MissingWait, detail)
}

fn race(place: usize, what: &str, other: Access, did: &str) -> Problem {
    let detail = format!(
        "byte {place} {what}, and thread {} of block {} of those running {did} it with no barrier between",
        other.thread, other.block
    );
    (FaultKind::Race, detail)
}
