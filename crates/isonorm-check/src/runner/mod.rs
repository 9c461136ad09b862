//! One runner for every engine: a case's data through the engine and through the oracle, compared element by element.

mod ahead;
mod compare;
mod report;

pub use ahead::run_suite_ahead;
pub use report::{CaseReport, SuiteReport, Worst};

use std::borrow::Borrow;
use std::time::Instant;

use crate::Case;
use crate::data::{backward_inputs, forward_inputs};
use crate::engine::{BackwardInputs, Engine, ForwardInputs, Outputs};
use crate::oracle::{self, Index};
use crate::tolerance::{self, Expected};

/// Runs one case.
pub fn run_case(engine: &mut dyn Engine, case: &Case) -> CaseReport {
    let result = engine.handles(case).and_then(|()| {
        let inputs = Inputs::of(case);
        // What the engine refuses, the oracle need not compute.
        let outputs = inputs.run(engine, case)?;
        Ok((outputs, inputs.truth(case)))
    });
    concluded(engine, case, result)
}

/// Runs cases in order and says after each how it went.
pub fn run_suite<'a>(
    engine: &mut dyn Engine,
    cases: impl IntoIterator<Item = &'a Case>,
    mut on_progress: impl FnMut(&CaseReport),
) -> SuiteReport {
    let mut suite = SuiteReport::new(engine.name());
    let start = Instant::now();
    for case in cases {
        let report = run_case(engine, case);
        on_progress(&report);
        suite.add(report);
    }
    suite.seconds = start.elapsed().as_secs_f64();
    suite
}

/// The outputs of two runs of one case that differ in bits, a line each: none when results do not depend on what differed.
pub fn differences(a: &Outputs, b: &Outputs) -> Vec<String> {
    compare::differences(a, b)
}

/// What a case reads.
enum Inputs {
    Forward(Box<ForwardInputs>),
    Backward(Box<BackwardInputs>),
}

/// What every output should be, and where its elements are.
type Truth = (Vec<Expected>, Index);

impl Inputs {
    fn of(case: &Case) -> Inputs {
        match case.desc.get_pass().is_backward() {
            true => Inputs::Backward(Box::new(backward_inputs(case))),
            false => Inputs::Forward(Box::new(forward_inputs(case))),
        }
    }

    fn run(&self, engine: &mut dyn Engine, case: &Case) -> isonorm::Result<Outputs> {
        match (self, case.rung) {
            (Inputs::Forward(inputs), Some(rung)) => engine.forward_by(rung, &case.desc, inputs),
            (Inputs::Forward(inputs), None) => engine.forward(&case.desc, inputs),
            (Inputs::Backward(inputs), Some(rung)) => engine.backward_by(rung, &case.desc, inputs),
            (Inputs::Backward(inputs), None) => engine.backward(&case.desc, inputs),
        }
    }

    fn truth(&self, case: &Case) -> Truth {
        match self {
            Inputs::Forward(inputs) => {
                let truth = oracle::forward(&case.desc, inputs);
                (tolerance::forward(case, inputs, &truth), truth.index)
            }
            Inputs::Backward(inputs) => {
                let truth = oracle::backward(&case.desc, inputs);
                (tolerance::backward(case, inputs, &truth), truth.index)
            }
        }
    }
}

/// What came of a case that the engine has run, or refused.
fn concluded(engine: &dyn Engine, case: &Case, result: isonorm::Result<(Outputs, impl Borrow<Truth>)>) -> CaseReport {
    let mut report = CaseReport::new(*case, engine.name());
    match result {
        Ok((outputs, truth)) => {
            let (expected, index) = truth.borrow();
            report.faults = outputs.faults.iter().map(ToString::to_string).collect();
            compare::all(&case.desc, &outputs, expected, index, &mut report);
        }
        Err(error) => report.refused = Some(error),
    }
    report.passed =
        report.refused.is_none() && report.faults.is_empty() && report.worst.as_ref().is_none_or(|w| w.ratio <= 1.0);
    report
}
