//! Takes the statistics of rows into running statistics: the average over the instances of each channel (InstanceNorm; of
//! BatchNorm with a batch of one there is one instance).

use super::access::Data;
use super::lanes::unrolled;
use crate::simt::{self, Shared, WARP};

/// What the kernel is told at launch.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Args<T> {
    /// `[instances, channels]`
    pub mean: *const f32,
    /// `[instances, channels]`: biased, over the elements of a row.
    pub variance: *const f32,
    /// `[channels]`, in the parameters' type.
    pub running_mean: *mut u8,
    /// `[channels]`, in the parameters' type.
    pub running_variance: *mut u8,
    /// How many rows each channel has.
    pub instances: u64,
    /// How many channels there are.
    pub channels: u64,
    /// `running = (1 − factor)·running + factor·batch`
    pub factor: f64,
    /// What makes a variance unbiased: n / (n − 1) for rows of n elements.
    pub unbias: f64,
    /// Whether running statistics have the data's type (1), or are `f32` (0).
    pub as_data: u32,
    /// The data's type.
    pub of: core::marker::PhantomData<T>,
}

/// Running statistics of rows, one of each kind for each, as a forward kernel is told.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Running {
    /// `[rows]`, in the parameters' type; or null.
    pub mean: *mut u8,
    /// `[rows]`, in the parameters' type.
    pub variance: *mut u8,
    /// `running = (1 − factor)·running + factor·batch`
    pub factor: f64,
    /// What makes a variance unbiased: n / (n − 1) for rows of n elements.
    pub unbias: f64,
}

impl Running {
    /// None.
    pub const NONE: Running = Running {
        mean: core::ptr::null_mut(),
        variance: core::ptr::null_mut(),
        factor: 0.0,
        unbias: 1.0,
    };

    /// What they are before the row, where there are any: early enough for the loads to take their time.
    ///
    /// # Safety
    ///
    /// The pointers are as said there.
    #[inline(always)]
    pub(super) unsafe fn before<T: Data>(&self, row: u64, as_data: u32) -> [f32; 2] {
        if self.mean.is_null() {
            return [0.0; 2];
        }
        // SAFETY: the caller's.
        unsafe {
            [
                load::<T>(self.mean, row, as_data),
                load::<T>(self.variance, row, as_data),
            ]
        }
    }

    /// Takes the mean and the biased variance of a row into what they were before.
    ///
    /// # Safety
    ///
    /// The pointers are as said there; one thread a row.
    #[inline(always)]
    pub(super) unsafe fn update<T: Data>(&self, row: u64, before: [f32; 2], [mean, variance]: [f32; 2], as_data: u32) {
        if !self.mean.is_null() {
            let mean = blended(before[0], mean.into(), self.factor);
            let variance = blended(before[1], f64::from(variance) * self.unbias, self.factor);
            // SAFETY: the caller's.
            unsafe {
                store::<T>(self.mean, row, mean, as_data);
                store::<T>(self.variance, row, variance, as_data);
            }
        }
    }
}

/// Instances that a thread reads before it adds them up.
const AT_ONCE: usize = 4;

/// Sums of the mean and of the variance, as words of shared memory.
const WORDS: u32 = 4;

/// Bytes of shared memory of a block of `threads` threads.
pub const fn shared_bytes(threads: u32) -> u32 {
    threads * WORDS * 4
}

/// Updates the running statistics: a block has 32 channels at a time, whose instances its warps share. For a grid of any size.
///
/// # Safety
///
/// The pointers of `args` are as said there; blocks have [`shared_bytes`].
#[inline(always)]
pub unsafe fn running<T: Data>(args: &Args<T>) {
    let warps = simt::block_threads() / WARP;
    let mut first = u64::from(simt::block_index()) * u64::from(WARP);
    while first < args.channels {
        let channel = first + u64::from(simt::lane());
        let mut sums = [0.0; 2];
        if channel < args.channels {
            // SAFETY: the caller's.
            sums = unsafe { own_sums(args, channel, warps) };
        }
        // SAFETY: a place for each thread.
        unsafe { leave(simt::thread_index(), sums) };
        simt::block_barrier();
        if simt::warp_index() == 0 && channel < args.channels {
            let mut warp = 1;
            while warp < warps {
                // SAFETY: written before the barrier.
                let more = unsafe { left(warp * WARP + simt::lane()) };
                sums = [sums[0] + more[0], sums[1] + more[1]];
                warp += 1;
            }
            let [mean, variance] = sums.map(|sum| sum / args.instances as f64);
            // SAFETY: the caller's; a thread for each channel.
            unsafe {
                let how = (args.factor, args.as_data);
                blend::<T>(args.running_mean, channel, mean, how);
                blend::<T>(args.running_variance, channel, variance * args.unbias, how);
            }
        }
        simt::block_barrier();
        first += u64::from(simt::grid_blocks()) * u64::from(WARP);
    }
}

/// The sums over those instances of a channel that the thread's warp has, of mean and variance.
#[inline(always)]
unsafe fn own_sums<T>(args: &Args<T>, channel: u64, warps: u32) -> [f64; 2] {
    let mut sums = [0.0; 2];
    let mut instance = u64::from(simt::warp_index());
    while instance < args.instances {
        // All on their way at once. Opaque, for otherwise each address becomes a variable of the loop.
        instance = simt::opaque_64(instance);
        let mut some = [[0.0; 2]; AT_ONCE];
        unrolled::<AT_ONCE>(|i| {
            let instance = instance + i as u64 * u64::from(warps);
            if instance < args.instances {
                let place = (instance * args.channels + channel) as usize;
                // SAFETY: the caller's.
                some[i] = unsafe {
                    [
                        f32::load(args.mean.wrapping_add(place)),
                        f32::load(args.variance.wrapping_add(place)),
                    ]
                };
            }
        });
        unrolled::<AT_ONCE>(|i| {
            sums[0] += f64::from(some[i][0]);
            sums[1] += f64::from(some[i][1]);
        });
        instance += AT_ONCE as u64 * u64::from(warps);
    }
    sums
}

/// Words lie apart by a warp's width, so that lanes do not meet in a bank.
#[inline(always)]
fn word(thread: u32, index: u32) -> Shared<u32> {
    Shared::<u32>::at(0).offset(index * simt::block_threads() + thread)
}

#[inline(always)]
unsafe fn leave(thread: u32, sums: [f64; 2]) {
    let [mean, variance] = sums.map(f64::to_bits);
    let words = [
        mean as u32,
        (mean >> 32) as u32,
        variance as u32,
        (variance >> 32) as u32,
    ];
    unrolled::<{ WORDS as usize }>(|i| {
        // SAFETY: the caller's.
        unsafe { simt::shared_store(word(thread, i as u32), words[i]) };
    });
}

#[inline(always)]
unsafe fn left(thread: u32) -> [f64; 2] {
    let mut words = [0; WORDS as usize];
    unrolled::<{ WORDS as usize }>(|i| {
        // SAFETY: the caller's.
        words[i] = unsafe { simt::shared_load(word(thread, i as u32)) };
    });
    let [a, b, c, d] = words.map(u64::from);
    [f64::from_bits(b << 32 | a), f64::from_bits(d << 32 | c)]
}

/// Takes the batch's number of a channel into the running one.
///
/// # Safety
///
/// There are running numbers up to that of the channel, in the data's type or in `f32`; one thread a channel.
#[inline(always)]
pub(crate) unsafe fn blend<T: Data>(running: *mut u8, channel: u64, batch: f64, (factor, as_data): (f64, u32)) {
    // SAFETY: the caller's.
    unsafe {
        let before = load::<T>(running, channel, as_data);
        store::<T>(running, channel, blended(before, batch, factor), as_data);
    }
}

#[inline(always)]
fn blended(before: f32, batch: f64, factor: f64) -> f32 {
    ((1.0 - factor) * f64::from(before) + factor * batch) as f32
}

#[inline(always)]
unsafe fn load<T: Data>(running: *const u8, channel: u64, as_data: u32) -> f32 {
    // SAFETY: the caller's.
    unsafe {
        match as_data {
            0 => f32::load(running.cast::<f32>().wrapping_add(channel as usize)),
            _ => T::load(running.cast::<T>().wrapping_add(channel as usize)).to_acc(),
        }
    }
}

#[inline(always)]
unsafe fn store<T: Data>(running: *mut u8, channel: u64, number: f32, as_data: u32) {
    // SAFETY: the caller's.
    unsafe {
        match as_data {
            0 => f32::store(running.cast::<f32>().wrapping_add(channel as usize), number),
            _ => T::store(running.cast::<T>().wrapping_add(channel as usize), T::from_acc(number)),
        }
    }
}
