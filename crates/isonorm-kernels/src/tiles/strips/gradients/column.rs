//! What is known of a column when a strip begins: what the forward pass saved, and weight and bias.

use super::Pass;
use crate::rows::access::Data;
use crate::simt::{self, Shared};
use crate::tiles::Spec;
use crate::tiles::columns::Map;
use crate::tiles::strips::{MOST_COLUMNS, SAVED, ask, tell};

/// What the thread has asked for of its column, and does not wait for yet.
#[derive(Clone, Copy, Default)]
pub(super) struct Asked {
    mean: f32,
    rstd: f32,
    weight: u32,
    bias: u32,
}

/// What is known of the thread's column.
#[derive(Clone, Copy)]
pub(super) struct Column {
    /// From x to z.
    map: Map<f32>,
    pub(super) weight: f32,
    rstd: f32,
}

impl<T: Data, S: Spec, const N: usize> Pass<'_, T, S, N> {
    /// Starts to load what is known of the thread's column of a strip; nothing where there is none.
    #[inline(always)]
    pub(super) unsafe fn ask(&self, number: u32) -> Asked {
        let (args, walk) = (self.args, &self.walk);
        if !walk.has(number) {
            return Asked::default();
        }
        let strip = walk.strip::<S>(number, N as u32);
        if !walk.has_column(&strip) {
            return Asked::default();
        }
        let group = walk.group::<S>(&strip, simt::thread_index()) as usize;
        // SAFETY: the caller's: a number for each column.
        unsafe {
            Asked {
                mean: f32::load(args.mean.wrapping_add(group)),
                rstd: f32::load(args.rstd.wrapping_add(group)),
                weight: ask::<T, S>(&args.affine, (args.affine.weight, 1.0), (walk, &strip)),
                bias: ask::<T, S>(&args.affine, (args.affine.bias, 0.0), (walk, &strip)),
            }
        }
    }

    /// Waits for what was asked for.
    #[inline(always)]
    pub(super) fn known(&self, asked: Asked) -> Column {
        let [centre, rstd] = [asked.mean, asked.rstd].map(simt::opaque);
        let [weight, shift] = [asked.weight, asked.bias].map(|word| self.args.affine.known::<T>(word));
        let map = Map {
            centre,
            scale: rstd * weight,
            shift,
        };
        Column { map, weight, rstd }
    }

    /// Tells all threads that have the column what they want to know, and keeps what its own thread will: registers are full until then.
    ///
    /// # Safety
    ///
    /// As for [`tell`].
    #[inline(always)]
    pub(super) unsafe fn tell(&self, place: Shared<f32>, column: &Column) {
        let Map { centre, scale, shift } = column.map;
        // SAFETY: the caller's.
        unsafe {
            tell(place, [centre, scale, shift]);
            tell(SAVED, [column.rstd]);
        }
    }

    /// What the thread of a column has kept for later.
    #[inline(always)]
    pub(super) unsafe fn own_rstd(&self) -> f32 {
        match simt::thread_index() {
            // SAFETY: the caller's: this thread has told it.
            thread if thread < MOST_COLUMNS => unsafe { simt::shared_load(SAVED.offset(thread)) },
            _ => 0.0,
        }
    }
}
