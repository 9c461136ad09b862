//! What blocks of a cluster, or of the grid, tell each other.

use isonorm_kernels::interpreter::{Fault, FaultKind, Launch, Report};
use isonorm_kernels::simt::{self, Shared, Transfer};

use super::{THREADS, expect, run};

/// Blocks wait for each other through a counter.
fn exchange(launch: Launch, expected: u32) -> Result<Report, Fault> {
    run(launch, |_, y| {
        // SAFETY: on the host every access is checked.
        unsafe {
            simt::block_barrier();
            if simt::thread_index() == 0 {
                simt::counter_add(y, 1);
                simt::counter_wait(y, expected);
            }
            simt::block_barrier();
        }
    })
}

#[test]
fn deadlock() {
    let resident = Launch::new(4, THREADS).resident();
    expect(
        exchange(resident, 5),
        FaultKind::Deadlock,
        &["4 threads", "for a counter to reach 5", "barrier of the Block"],
    );
    // Blocks that need not run together may not wait for each other.
    expect(
        exchange(Launch::new(4, THREADS), 4),
        FaultKind::Deadlock,
        &["counter to reach 4"],
    );
    exchange(resident, 4).unwrap();
}

/// Every block reads what the next one of its cluster wrote.
fn peers(before: bool, after: bool) -> Result<Report, Fault> {
    run(Launch::new(4, 32).cluster(2).shared_bytes(128), |_, _| {
        let place = Shared::<u32>::at(4 * simt::lane());
        let next = (simt::cluster_rank() + 1) % simt::cluster_blocks();
        // SAFETY: on the host every access is checked.
        unsafe {
            simt::shared_store(place, simt::block_index());
            if before {
                simt::cluster_barrier();
            } else {
                simt::block_barrier();
            }
            assert_eq!(simt::peer_load(place, next), simt::block_index() ^ 1);
            if after {
                simt::cluster_barrier();
            }
        }
    })
}

#[test]
fn peers_shared_memory_needs_a_barrier_of_the_cluster() {
    let fault = peers(false, true).expect_err("the bug was not found");
    assert!(matches!(fault.kind, FaultKind::Race | FaultKind::Poison), "{fault}");
    expect(peers(true, false), FaultKind::Misuse, &["is ending"]);
    peers(true, true).unwrap();
}

#[test]
fn a_block_may_wait_for_itself_while_its_cluster_waits_for_it() {
    let report = run(Launch::new(4, 64).cluster(2), |_, _| {
        if simt::cluster_rank() == 1 {
            simt::block_barrier();
        }
        simt::cluster_barrier();
    });
    report.unwrap();
    // But not a part of it.
    let fault = run(Launch::new(2, 64).cluster(2), |_, _| {
        if simt::warp_index() == 1 {
            simt::block_barrier();
        }
        simt::cluster_barrier();
    });
    expect(fault, FaultKind::DivergentBarrier, &["has to meet here"]);
}

/// How the blocks of a cluster begin.
#[derive(Clone, Copy)]
enum Start {
    Barrier,
    ArriveAndWait,
    ArriveOnly,
    WaitOnly,
    ArriveTwice,
    /// The first block does not arrive.
    ArriveInPart,
    BarrierBetween,
}

impl Start {
    fn meet(self) {
        match self {
            Start::Barrier => simt::cluster_barrier(),
            Start::ArriveAndWait => {
                simt::cluster_arrive();
                simt::cluster_wait();
            }
            Start::ArriveOnly => simt::cluster_arrive(),
            Start::WaitOnly => simt::cluster_wait(),
            Start::ArriveTwice => {
                simt::cluster_arrive();
                simt::cluster_arrive();
            }
            Start::ArriveInPart => {
                if simt::cluster_rank() > 0 {
                    simt::cluster_arrive();
                    simt::cluster_wait();
                }
            }
            Start::BarrierBetween => {
                simt::cluster_arrive();
                simt::cluster_barrier();
                simt::cluster_wait();
            }
        }
    }
}

/// Two rounds in which each block sends a number to all blocks of its cluster, from slots that take turns, or from one.
fn messages(start: Start, wait: bool, slots: u32, expected: u32) -> Result<Report, Fault> {
    run(Launch::new(4, 32).cluster(2).shared_bytes(128), move |_, _| {
        let transfer = |slot: u32| Transfer::at(64).offset(slot);
        // SAFETY: on the host every access is checked.
        unsafe {
            if simt::thread_index() == 0 {
                simt::transfer_init(transfer(0), 1);
                simt::transfer_init(transfer(1), 1);
            }
            start.meet();
            for round in 0..4 {
                let (slot, parity) = (round % slots, round / slots % 2);
                let place = Shared::<u32>::at(16 * slot);
                if simt::thread_index() == 0 {
                    simt::transfer_expect(transfer(slot), expected);
                }
                if simt::lane() < simt::cluster_blocks() {
                    let own = place.offset(2 * simt::cluster_rank());
                    simt::peer_send(own, simt::lane(), [round, simt::cluster_rank()], transfer(slot));
                }
                if wait {
                    simt::transfer_wait(transfer(slot), parity);
                }
                // As a sum would, this makes a warp of its lanes.
                simt::warp_barrier();
                for rank in 0..simt::cluster_blocks() {
                    assert_eq!(simt::shared_load(place.offset(2 * rank)), round);
                    assert_eq!(simt::shared_load(place.offset(2 * rank + 1)), rank);
                }
                simt::warp_barrier();
            }
        }
    })
}

#[test]
fn messages_land_when_waited_for() {
    messages(Start::Barrier, true, 2, 16).unwrap();
    let fault = messages(Start::Barrier, false, 2, 16).expect_err("the bug was not found");
    assert!(
        matches!(fault.kind, FaultKind::MissingWait | FaultKind::Poison),
        "{fault}"
    );
    expect(
        messages(Start::Barrier, true, 2, 24),
        FaultKind::Deadlock,
        &["for copies on the barrier"],
    );
}

#[test]
fn messages_need_a_cluster_that_has_arrived() {
    let start = |start| messages(start, true, 2, 16);
    start(Start::ArriveAndWait).unwrap();
    let fault = start(Start::ArriveOnly).expect_err("the bug was not found");
    assert!(
        matches!(fault.kind, FaultKind::Race | FaultKind::Poison | FaultKind::Misuse),
        "{fault}"
    );
    expect(start(Start::WaitOnly), FaultKind::Misuse, &["has not arrived"]);
    expect(start(Start::ArriveTwice), FaultKind::Misuse, &["has not waited"]);
    expect(start(Start::BarrierBetween), FaultKind::Misuse, &["has not waited"]);
}

#[test]
fn a_cluster_waits_for_all_its_blocks() {
    let result = run(Launch::new(2, 32).cluster(2), |_, _| Start::ArriveInPart.meet());
    expect(result, FaultKind::Deadlock, &["for their cluster to arrive"]);
}

/// What was stored before a thread arrived is not ordered by that.
#[test]
fn arriving_is_no_barrier_for_what_was_stored() {
    let result = run(Launch::new(2, 32).cluster(2).shared_bytes(128), |_, _| {
        let place = Shared::<u32>::at(4 * simt::lane());
        // SAFETY: on the host every access is checked.
        unsafe {
            simt::shared_store(place, simt::block_index());
            Start::ArriveAndWait.meet();
            simt::peer_load(place, 1 - simt::cluster_rank());
        }
        simt::cluster_barrier();
    });
    expect(result, FaultKind::Race, &["no barrier between"]);
}

#[test]
fn a_message_may_not_overtake_the_reader_of_the_one_before() {
    expect(
        messages(Start::Barrier, true, 1, 16),
        FaultKind::Race,
        &["no barrier between"],
    );
}

/// Rounds in which each block leaves a number for all blocks of the grid, at places that take turns, or at one; in the last one
/// some blocks are silent.
fn messages_of_the_grid(launch: Launch, slots: u32, silent: u32) -> Result<Report, Fault> {
    const ROUNDS: u32 = 8;
    run(launch, move |_, y| {
        let (blocks, own) = (simt::grid_blocks(), simt::block_index());
        if simt::thread_index() > 0 {
            return;
        }
        for round in 1..=ROUNDS {
            let place = |block: u32| y.wrapping_add((round % slots * blocks + block) as usize * 4);
            // SAFETY: on the host every access is checked.
            unsafe {
                if round < ROUNDS || own >= silent {
                    simt::message_send(place(own), [round, own], round);
                }
                for block in 0..blocks {
                    assert_eq!(simt::message_wait::<u32>(place(block), round), [round, block]);
                }
            }
        }
    })
}

#[test]
fn messages_of_the_grid_are_waited_for() {
    let resident = Launch::new(4, 32).resident();
    messages_of_the_grid(resident, 2, 0).unwrap();
    expect(
        messages_of_the_grid(resident, 2, 1),
        FaultKind::Deadlock,
        &["4 threads", "for message 8"],
    );
    // Blocks that need not run together may not wait for each other.
    expect(
        messages_of_the_grid(Launch::new(4, 32), 2, 0),
        FaultKind::Deadlock,
        &["for message 1"],
    );
}

#[test]
fn a_message_of_the_grid_stays_until_all_have_it() {
    expect(
        messages_of_the_grid(Launch::new(4, 32).resident(), 1, 0),
        FaultKind::Race,
        &["was not received before message"],
    );
}
