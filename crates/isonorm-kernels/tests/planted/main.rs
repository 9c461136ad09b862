//! Kernels with planted bugs, each of which the interpreter must find, and must let pass once it is fixed.

mod between_blocks;

use isonorm_kernels::interpreter::{Buffers, Fault, FaultKind, Launch, Report};
use isonorm_kernels::simt::{self, Shared, Transfer};

const THREADS: u32 = 64;
const SEEDS: u64 = 8;
/// Numbers of a buffer.
const WORDS: usize = 256;

/// Runs with one input of 256 numbers and one output of 256, for each seed; the outcomes must agree in kind.
fn run(launch: Launch, kernel: impl Fn(*const u32, *mut u32)) -> Result<Report, Fault> {
    let mut last = None;
    for seed in 0..SEEDS {
        let input: Vec<Aligned> = (0..64)
            .map(|i| Aligned(std::array::from_fn(|j| 4 * i + j as u32)))
            .collect();
        let mut output = vec![Aligned([0; 4]); 64];
        let mut buffers = Buffers::new();
        let x = buffers.read_only("x", &input).cast::<u32>();
        let y = buffers.writable("y", &mut output).cast::<u32>();
        let outcome = launch.seed(seed).run(&buffers, || kernel(x, y));
        if let Some(Err(fault)) = &last {
            let fault: &Fault = fault;
            assert_eq!(outcome.as_ref().err().map(|f| f.kind), Some(fault.kind), "seed {seed}");
        }
        last = Some(outcome);
    }
    last.expect("there are seeds")
}

/// 16 bytes where 128-bit accesses may start.
#[derive(Clone, Copy)]
#[repr(align(16))]
#[expect(dead_code, reason = "read and written by the kernels, through pointers")]
struct Aligned([u32; 4]);

#[track_caller]
fn expect(outcome: Result<Report, Fault>, kind: FaultKind, words: &[&str]) {
    let fault = outcome.expect_err("the bug was not found");
    let text = fault.to_string();
    assert_eq!(fault.kind, kind, "{text}");
    for word in words {
        assert!(text.contains(word), "{text:?} does not say {word:?}");
    }
}

fn launch() -> Launch {
    Launch::new(1, THREADS).shared_bytes(1024)
}

/// Every thread writes its place and reads its neighbour's.
fn neighbour(barrier: bool) -> Result<Report, Fault> {
    run(launch(), |_, y| {
        let (i, places) = (simt::thread_index(), Shared::<u32>::at(0));
        // SAFETY: on the host every access is checked.
        unsafe {
            simt::shared_store(places.offset(i), i);
            if barrier {
                simt::block_barrier();
            }
            let value = simt::shared_load(places.offset((i + 1) % THREADS));
            simt::store_32(y.wrapping_add(i as usize), value);
        }
    })
}

#[test]
fn missing_barrier() {
    let fault = neighbour(false).expect_err("the bug was not found");
    assert!(matches!(fault.kind, FaultKind::Race | FaultKind::Poison), "{fault}");
    assert!(fault.to_string().contains("planted/main.rs"), "{fault}");
    let report = neighbour(true).unwrap();
    assert_eq!((report.bytes_read, report.bytes_written), (0, 256));
}

/// A slot is written again while others may still read it.
fn reuse(barrier: bool) -> Result<Report, Fault> {
    run(launch(), |_, _| {
        let slot = Shared::<u32>::at(0);
        for round in 0..2 {
            // SAFETY: on the host every access is checked.
            unsafe {
                if simt::thread_index() == 0 {
                    simt::shared_store(slot, round);
                }
                simt::block_barrier();
                simt::shared_load(slot);
                if barrier {
                    simt::block_barrier();
                }
            }
        }
    })
}

#[test]
fn race_of_a_write_with_earlier_reads() {
    expect(reuse(false), FaultKind::Race, &["byte 0", "no barrier between"]);
    reuse(true).unwrap();
}

#[test]
fn race_of_two_writes() {
    let outcome = run(launch(), |_, _| {
        // SAFETY: on the host every access is checked.
        unsafe { simt::shared_store(Shared::at(8), simt::thread_index()) };
    });
    expect(outcome, FaultKind::Race, &["byte 8 is written", "wrote it"]);
}

#[test]
fn shuffles_do_not_order_memory_and_a_warp_barrier_does() {
    let exchange = |barrier: bool| {
        run(Launch::new(1, 32).shared_bytes(128), |_, _| {
            let (i, places) = (simt::lane(), Shared::<u32>::at(0));
            // SAFETY: on the host every access is checked.
            unsafe {
                simt::shared_store(places.offset(i), i);
                simt::shuffle_xor(i, 1);
                if barrier {
                    simt::warp_barrier();
                }
                assert_eq!(simt::shared_load(places.offset(i ^ 1)), i ^ 1);
            }
        })
    };
    expect(exchange(false), FaultKind::Race, &["is read"]);
    exchange(true).unwrap();
}

/// Writes as many numbers as there are threads, rounded up to blocks.
fn overrun(guard: bool) -> Result<Report, Fault> {
    run(Launch::new(5, THREADS), |_, y| {
        let i = (simt::block_index() * simt::block_threads() + simt::thread_index()) as usize;
        if !guard || i < 256 {
            // SAFETY: on the host every access is checked.
            unsafe { simt::store_32(y.wrapping_add(i), 1) };
        }
    })
}

#[test]
fn overrun_of_global_memory() {
    expect(
        overrun(false),
        FaultKind::OutOfBounds,
        &["buffer `y`", "1024 bytes", "block 4"],
    );
    assert_eq!(overrun(true).unwrap().bytes_written, 1024);
}

#[test]
fn overrun_of_shared_memory() {
    let store = |at: u32| {
        run(launch(), move |_, _| {
            if simt::thread_index() == 0 {
                // SAFETY: on the host every access is checked.
                unsafe { simt::shared_store(Shared::at(at), 1u32) };
            }
        })
    };
    expect(
        store(1024),
        FaultKind::OutOfBounds,
        &["byte 1024 of shared memory, which has 1024 bytes"],
    );
    store(1020).unwrap();
}

#[test]
fn misaligned_and_read_only() {
    // SAFETY: on the host every access is checked.
    let misaligned = run(launch(), |x, _| unsafe {
        simt::load_128(x.wrapping_add(1));
    });
    expect(misaligned, FaultKind::Misaligned, &["byte 4 of buffer `x`"]);
    // SAFETY: on the host every access is checked.
    let read_only = run(launch(), |x, _| unsafe { simt::store_32(x.cast_mut(), 1) });
    expect(read_only, FaultKind::ReadOnly, &["buffer `x`"]);
}

/// Copies 16 bytes a thread and reads them back.
fn copied(wait: bool) -> Result<Report, Fault> {
    run(launch(), |x, y| {
        let i = simt::thread_index();
        let place = Shared::<u32>::at(16 * i);
        // SAFETY: on the host every access is checked.
        unsafe {
            simt::copy_async(place, x.wrapping_add(4 * i as usize));
            simt::copy_commit();
            if wait {
                simt::copy_wait::<0>();
            }
            simt::store_128(y.wrapping_add(4 * i as usize), simt::shared_load_128(place));
        }
    })
}

#[test]
fn forgotten_wait() {
    expect(copied(false), FaultKind::MissingWait, &["has not landed"]);
    assert_eq!(copied(true).unwrap().bytes_read, 1024);
}

/// Copies 8 bytes a thread, from so many words on, and reads them back.
fn copied_halves(first: usize, wait: bool) -> Result<Report, Fault> {
    run(launch(), move |x, y| {
        let i = simt::thread_index();
        let place = Shared::<u32>::at(8 * i);
        // SAFETY: on the host every access is checked.
        unsafe {
            simt::copy_async_64(place, x.wrapping_add(first + 2 * i as usize));
            simt::copy_commit();
            if wait {
                simt::copy_wait::<0>();
            }
            let [a, b] = simt::shared_load_64(place);
            let from = x.wrapping_add(first + 2 * i as usize);
            assert_eq!([a, b], simt::load_64(from));
            simt::shared_store_64(place, [b, a]);
            let [b, a] = simt::shared_load_64(place);
            simt::store_64(y.wrapping_add(2 * i as usize), [a, b]);
        }
    })
}

#[test]
fn eight_bytes_are_checked_as_sixteen_are() {
    let report = copied_halves(2, true).unwrap();
    assert_eq!((report.bytes_read, report.bytes_written), (1024, 512));
    expect(copied_halves(0, false), FaultKind::MissingWait, &["has not landed"]);
    expect(
        copied_halves(1, true),
        FaultKind::Misaligned,
        &["read of 8 bytes at byte"],
    );
    // Far enough behind one buffer to lie nearer to the other, wherever that is.
    expect(
        copied_halves(WORDS - 2, true),
        FaultKind::OutOfBounds,
        &["read of 8 bytes at byte"],
    );
}

/// Copies the first bytes of 16, the last of which lie at the end of the buffer, and zeros behind them.
fn copied_in_part(first: usize, bytes: u32) -> Result<Report, Fault> {
    run(launch(), move |x, _| {
        let place = Shared::<u32>::at(16 * simt::thread_index());
        // SAFETY: on the host every access is checked.
        unsafe {
            simt::copy_async_some(place, x.wrapping_add(first), bytes);
            simt::copy_commit();
            simt::copy_wait::<0>();
            let [a, b, c, d] = simt::shared_load_128(place);
            assert!(bytes > 4 || [b, c, d] == [0; 3], "{a} {b} {c} {d}");
        }
    })
}

#[test]
fn parts_of_copies_are_checked_as_far_as_they_go() {
    assert!(copied_in_part(WORDS - 4, 16).is_ok());
    assert!(copied_in_part(WORDS, 0).is_ok());
    assert!(copied_in_part(WORDS - 4, 4).is_ok());
    expect(copied_in_part(WORDS, 4), FaultKind::OutOfBounds, &["buffer `x`"]);
    expect(copied_in_part(1, 4), FaultKind::Misaligned, &["multiple of 16"]);
    expect(copied_in_part(0, 20), FaultKind::OutOfBounds, &["copy of 20 bytes"]);
}

#[test]
fn some_of_sixteen_bytes_are_stored() {
    let stored = |bits: u32| {
        run(launch(), move |_, y| {
            if simt::thread_index() == 0 {
                // SAFETY: on the host every access is checked.
                unsafe {
                    let end = y.wrapping_add(WORDS);
                    simt::store_32_some(end.wrapping_sub(2), [1, 2, 3, 4], bits);
                    simt::store_16_some(end.wrapping_sub(2).cast(), [1, 2, 3, 4], bits);
                }
            }
        })
    };
    assert!(stored(0b0011).is_ok());
    expect(stored(0b0111), FaultKind::OutOfBounds, &["buffer `y`"]);
}

#[test]
fn copies_that_nobody_waits_for() {
    let outcome = run(launch(), |x, _| {
        // SAFETY: on the host every access is checked.
        unsafe { simt::copy_async(Shared::<u32>::at(16 * simt::thread_index()), x) };
    });
    expect(outcome, FaultKind::MissingWait, &["ended with copies"]);
}

/// One thread starts a bulk copy; all read it.
fn bulk(wait: bool, announced: u32) -> Result<Report, Fault> {
    run(launch(), |x, _| {
        let transfer = Transfer::at(512);
        // SAFETY: on the host every access is checked.
        unsafe {
            if simt::thread_index() == 0 {
                simt::transfer_init(transfer, 1);
            }
            simt::block_barrier();
            if simt::thread_index() == 0 {
                simt::transfer_expect(transfer, announced);
                simt::transfer_copy(Shared::<u32>::at(0), x, 256, transfer);
            }
            if wait {
                simt::transfer_wait(transfer, 0);
            } else {
                simt::block_barrier();
            }
            let i = simt::thread_index();
            assert_eq!(simt::shared_load(Shared::<u32>::at(4 * i)), i);
        }
    })
}

#[test]
fn bulk_copies_land_when_waited_for() {
    expect(bulk(false, 256), FaultKind::MissingWait, &["has not landed"]);
    expect(
        bulk(true, 512),
        FaultKind::Deadlock,
        &["64 threads", "for copies on the barrier at byte 512"],
    );
    assert_eq!(bulk(true, 256).unwrap().bytes_read, 256);
}

/// Some threads miss a barrier.
fn divergent(threads: u32) -> Result<Report, Fault> {
    run(launch(), |_, _| {
        if simt::thread_index() < threads {
            simt::block_barrier();
        }
    })
}

#[test]
fn divergent_barrier() {
    expect(
        divergent(THREADS - 1),
        FaultKind::DivergentBarrier,
        &["ended", "planted/main.rs"],
    );
    divergent(THREADS).unwrap();
}

#[test]
#[expect(clippy::if_same_then_else, reason = "the planted bug")]
fn barriers_at_two_places() {
    let outcome = run(launch(), |_, _| {
        if simt::warp_index() == 0 {
            simt::block_barrier();
        } else {
            simt::block_barrier();
        }
    });
    expect(outcome, FaultKind::DivergentBarrier, &["waits at"]);
}

#[test]
fn divergent_shuffle() {
    let shuffle = |lanes: u32| {
        run(launch(), move |_, _| {
            if simt::lane() < lanes {
                simt::shuffle_xor(1.0f32, 1);
            }
        })
    };
    expect(shuffle(31), FaultKind::DivergentWarp, &["lane 31", "has ended"]);
    shuffle(32).unwrap();
}

#[test]
fn a_panic_is_a_fault() {
    let outcome = run(launch(), |_, _| assert!(simt::thread_index() != 5, "not five"));
    expect(outcome, FaultKind::Panic, &["thread 5", "not five"]);
}

#[test]
fn launches_are_checked() {
    expect(run(Launch::new(1, 33), |_, _| {}), FaultKind::Launch, &["33 threads"]);
    expect(
        run(Launch::new(3, 32).cluster(2), |_, _| {}),
        FaultKind::Launch,
        &["3 blocks in clusters of 2"],
    );
}
