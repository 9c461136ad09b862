//! One runner for every engine: a case's data through the engine and through the oracle, compared element by element.

mod compare;
mod report;

pub use report::{CaseReport, SuiteReport, Worst};

use crate::Case;
use crate::data::{backward_inputs, forward_inputs};
use crate::engine::{Engine, Outputs};
use crate::oracle::{self, Index};
use crate::tolerance::{self, Expected};

/// Runs one case.
pub fn run_case(engine: &mut dyn Engine, case: &Case) -> CaseReport {
    let result = engine.handles(case).and_then(|()| {
        if case.desc.get_pass().is_backward() {
            backward(engine, case)
        } else {
            forward(engine, case)
        }
    });
    let mut report = CaseReport::new(*case, engine.name());
    match result {
        Ok((outputs, expected, index)) => {
            report.faults = outputs.faults.iter().map(ToString::to_string).collect();
            compare::all(&case.desc, &outputs, &expected, &index, &mut report);
        }
        Err(error) => report.refused = Some(error),
    }
    report.passed =
        report.refused.is_none() && report.faults.is_empty() && report.worst.as_ref().is_none_or(|w| w.ratio <= 1.0);
    report
}

type Comparable = (Outputs, Vec<Expected>, Index);

fn forward(engine: &mut dyn Engine, case: &Case) -> isonorm::Result<Comparable> {
    let inputs = forward_inputs(case);
    let outputs = match case.rung {
        Some(rung) => engine.forward_by(rung, &case.desc, &inputs)?,
        None => engine.forward(&case.desc, &inputs)?,
    };
    let truth = oracle::forward(&case.desc, &inputs);
    let expected = tolerance::forward(case, &inputs, &truth);
    Ok((outputs, expected, truth.index))
}

fn backward(engine: &mut dyn Engine, case: &Case) -> isonorm::Result<Comparable> {
    let inputs = backward_inputs(case);
    let outputs = match case.rung {
        Some(rung) => engine.backward_by(rung, &case.desc, &inputs)?,
        None => engine.backward(&case.desc, &inputs)?,
    };
    let truth = oracle::backward(&case.desc, &inputs);
    let expected = tolerance::backward(case, &inputs, &truth);
    Ok((outputs, expected, truth.index))
}

/// Runs cases in order and says after each how it went.
pub fn run_suite<'a>(
    engine: &mut dyn Engine,
    cases: impl IntoIterator<Item = &'a Case>,
    mut on_progress: impl FnMut(&CaseReport),
) -> SuiteReport {
    let mut suite = SuiteReport::new(engine.name());
    for case in cases {
        let report = run_case(engine, case);
        on_progress(&report);
        suite.add(report);
    }
    suite
}

/// The outputs of two runs of one case that differ in bits, a line each: none when results do not depend on what differed.
pub fn differences(a: &Outputs, b: &Outputs) -> Vec<String> {
    compare::differences(a, b)
}
