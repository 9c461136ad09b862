//! Each function of [`simt`] once, for the assembler to see. Nobody launches it.

use crate::simt::{self, Shared, Transfer};

/// What threads do together.
///
/// # Safety
///
/// `out` has a number for each thread.
#[unsafe(no_mangle)]
pub unsafe extern "ptx-kernel" fn simt_together(out: *mut u32) {
    let thread = simt::block_index() * simt::block_threads() + simt::thread_index();
    let thread = simt::opaque_64(thread.into()) as u32;
    let mut value = simt::shuffle_xor(thread, 1) + simt::shuffle_down(thread, 2) + simt::shuffle_index(thread, 3);
    value += simt::ballot(value > 7) + u32::from(simt::any(value > 8)) + u32::from(simt::all(value > 9));
    simt::warp_barrier();
    simt::block_barrier();
    simt::cluster_barrier();
    simt::cluster_arrive();
    simt::cluster_wait();
    value += simt::cluster_rank() * simt::cluster_blocks() + simt::grid_blocks() + simt::lane() + simt::warp_index();
    // SAFETY: the caller's.
    unsafe { simt::store_32(out.wrapping_add(thread as usize), value) };
}

/// Loads and stores.
///
/// # Safety
///
/// Both have room for 16 bytes, aligned so; the launch gives 64 bytes of shared memory.
#[unsafe(no_mangle)]
pub unsafe extern "ptx-kernel" fn simt_alone(from: *const u32, to: *mut u32) {
    let place = Shared::<u32>::at(0);
    // SAFETY: the caller's.
    unsafe {
        simt::shared_store_128(place, simt::load_128(from));
        simt::shared_store(
            place.offset(4),
            simt::load_32(from) + simt::opaque(simt::load_32_keep(from)),
        );
        simt::cluster_barrier();
        simt::peer_store(place.offset(8), 0, simt::peer_load(place.offset(4), 1));
        simt::cluster_barrier();
        let [a, b, c, d] = simt::shared_load_128(place);
        let [e, f, g, h] = simt::load_128_keep(from);
        simt::store_128(to, [a + e, b + f, c + g, d + h]);
        simt::store_128(to, simt::load_128_once(from));
        simt::store_128_once(to, simt::load_128_again(from));
        let [i, j] = simt::load_64_keep(from);
        simt::shared_store_64(place, [i, j]);
        let [k, l] = simt::load_64(from);
        let [m, n] = simt::shared_load_64(place);
        simt::store_64(to, [k + m, l + n]);
        simt::store_32(to, simt::shared_load(place.offset(8)));
        simt::store_16(to.cast(), simt::load_16(from.cast()) + simt::load_16_keep(from.cast()));
        simt::store_8(to.cast(), simt::load_8(from.cast()));
        simt::store_8_again(to.cast(), simt::load_8_again(from.cast()));
        simt::store_32_some(to, [a, b, c, d], e);
        simt::store_16_some(to.cast(), [a, b, c, d], e);
    }
}

/// Copies, and the exchange of a grid.
///
/// # Safety
///
/// `from` has 32 bytes, aligned to 16; `counter` starts at 0, with 16 bytes that are aligned so; the launch gives 128 bytes of shared memory and all blocks run.
#[unsafe(no_mangle)]
pub unsafe extern "ptx-kernel" fn simt_asynchronous(from: *const u32, counter: *mut u32) {
    let (place, transfer) = (Shared::<u32>::at(0), Transfer::at(64));
    simt::dependency_wait();
    // SAFETY: the caller's.
    unsafe {
        simt::copy_async(place, from);
        simt::copy_async_once(place, from);
        simt::copy_async_64(place.offset(8), from);
        simt::copy_async_some(place.offset(4), from, 12);
        simt::copy_commit();
        simt::copy_wait::<0>();
        if simt::thread_index() == 0 {
            simt::transfer_init(transfer, 1);
            simt::transfer_expect(transfer, 16);
            simt::transfer_copy(place.offset(4), from, 16, transfer);
            simt::transfer_wait(transfer, 0);
            simt::peer_send(place.offset(8), 0, [1, 2], transfer);
            simt::counter_add(counter, 1);
            simt::counter_wait(counter, simt::grid_blocks());
            simt::message_send(counter, [3, 4], 5);
            simt::message_send(counter, simt::message_wait::<u32>(counter, 5), 6);
            let [first, _] = simt::messages_wait_kept::<u32, 2>([counter; 2], 6);
            simt::message_send_kept(counter, first, 7);
        }
    }
    simt::dependents_launch();
}
