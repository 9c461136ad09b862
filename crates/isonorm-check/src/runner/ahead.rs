//! Cases whose data and truth are computed ahead, on other threads: the oracle takes most of a suite's time.

use std::sync::mpsc::sync_channel;
use std::thread;
use std::time::Instant;

use super::{CaseReport, Inputs, SuiteReport, Truth, concluded, run_suite};
use crate::Case;
use crate::engine::Engine;

/// As [`run_suite`] of each engine, to the same reports, while so many threads compute what the next cases read, and what should come of them:
/// once for all engines, which take turns with each case. They stay on this thread. Each thread, this one too, holds a case at a time. With no
/// others it is [`run_suite`] itself.
///
/// # Panics
/// If the oracle does.
pub fn run_suite_ahead(
    engines: &mut [&mut dyn Engine],
    cases: &[Case],
    threads: usize,
    mut on_progress: impl FnMut(&CaseReport),
) -> Vec<SuiteReport> {
    if threads == 0 {
        let each = engines.iter_mut();
        return each
            .map(|engine| run_suite(&mut **engine, cases, &mut on_progress))
            .collect();
    }
    let mut suites: Vec<_> = engines.iter().map(|engine| SuiteReport::new(engine.name())).collect();
    thread::scope(|scope| {
        // They take cases in turn, and hand each over when it is asked for.
        let prepared: Vec<_> = (0..threads)
            .map(|first| {
                let (sender, receiver) = sync_channel(0);
                scope.spawn(move || {
                    for case in cases.iter().skip(first).step_by(threads) {
                        // Nobody asks any more where the engines' thread has panicked.
                        if sender.send(prepare(case)).is_err() {
                            return;
                        }
                    }
                });
                receiver
            })
            .collect();
        for (number, case) in cases.iter().enumerate() {
            // The first engine waits.
            let mut start = Instant::now();
            let (inputs, truth) = prepared[number % threads].recv().expect("the oracle does not panic");
            for (engine, suite) in engines.iter_mut().zip(&mut suites) {
                let outputs = engine.handles(case).and_then(|()| inputs.run(&mut **engine, case));
                let report = concluded(&**engine, case, outputs.map(|outputs| (outputs, &truth)));
                on_progress(&report);
                suite.add(report);
                suite.seconds += start.elapsed().as_secs_f64();
                start = Instant::now();
            }
        }
    });
    suites
}

fn prepare(case: &Case) -> (Inputs, Truth) {
    let inputs = Inputs::of(case);
    let truth = inputs.truth(case);
    (inputs, truth)
}
