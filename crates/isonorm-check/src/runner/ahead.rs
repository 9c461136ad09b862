//! Cases whose data and truth are computed ahead, on other threads: the oracle takes most of a suite's time.

use std::sync::mpsc::sync_channel;
use std::thread;

use super::{CaseReport, Inputs, SuiteReport, Truth, concluded, run_suite};
use crate::Case;
use crate::engine::Engine;

/// As [`run_suite`], to the same report, while so many threads compute what the next cases read, and what should come of them. The engine stays
/// on this thread. Each thread, this one too, holds a case at a time. With no others it is [`run_suite`] itself.
///
/// # Panics
/// If the oracle does.
pub fn run_suite_ahead(
    engine: &mut dyn Engine,
    cases: &[Case],
    threads: usize,
    mut on_progress: impl FnMut(&CaseReport),
) -> SuiteReport {
    if threads == 0 {
        return run_suite(engine, cases, on_progress);
    }
    let mut suite = SuiteReport::new(engine.name());
    thread::scope(|scope| {
        // They take cases in turn, and hand each over when it is asked for.
        let prepared: Vec<_> = (0..threads)
            .map(|first| {
                let (sender, receiver) = sync_channel(0);
                scope.spawn(move || {
                    for case in cases.iter().skip(first).step_by(threads) {
                        // Nobody asks any more where the engine's thread has panicked.
                        if sender.send(prepare(case)).is_err() {
                            return;
                        }
                    }
                });
                receiver
            })
            .collect();
        for (number, case) in cases.iter().enumerate() {
            let (inputs, truth) = prepared[number % threads].recv().expect("the oracle does not panic");
            let result = engine
                .handles(case)
                .and_then(|()| Ok((inputs.run(engine, case)?, truth)));
            let report = concluded(engine, case, result);
            on_progress(&report);
            suite.add(report);
        }
    });
    suite
}

fn prepare(case: &Case) -> (Inputs, Truth) {
    let inputs = Inputs::of(case);
    let truth = inputs.truth(case);
    (inputs, truth)
}
