//! What the comparisons add up to.

use std::collections::BTreeMap;

use isonorm::{Device, Pass};

use crate::case::Case;
use crate::compare::Comparison;

/// A problem string and one of its results.
struct Line {
    problem: String,
    comparison: Comparison,
}

/// What the errors of many cases of a kind add up to.
#[derive(Default)]
struct Sum {
    cases: usize,
    /// Sums of logarithms of the relative errors, over the cases where both are off at all.
    log_ours: f64,
    log_torch: f64,
    inexact: usize,
    worst_ours: f64,
    worst_torch: f64,
}

impl Sum {
    fn add(&mut self, c: &Comparison) {
        self.cases += 1;
        self.worst_ours = self.worst_ours.max(c.ours.of_bound);
        self.worst_torch = self.worst_torch.max(c.torch.of_bound);
        let relative = |rms: f64| rms / c.scale;
        if c.ours.rms > 0.0 && c.torch.rms > 0.0 && c.scale > 0.0 {
            self.inexact += 1;
            self.log_ours += relative(c.ours.rms).ln();
            self.log_torch += relative(c.torch.rms).ln();
        }
    }

    fn mean(&self, log: f64) -> f64 {
        if self.inexact == 0 {
            0.0
        } else {
            (log / self.inexact as f64).exp()
        }
    }
}

#[derive(Default)]
pub struct Report {
    cases: usize,
    results: usize,
    /// By type, op, conditioning and result.
    sums: BTreeMap<(String, String, String, &'static str), Sum>,
    bad: Vec<Line>,
    worst: Option<Line>,
}

/// The problem string of the pass that made a result.
fn problem(case: &Case<'_>, name: &str) -> String {
    let pass = match (name.starts_with('d'), case.desc.get_pass()) {
        (false, pass) => pass,
        (true, Pass::Eval) => Pass::BackwardEval,
        (true, _) => Pass::Backward,
    };
    case.desc.pass(pass).to_string()
}

impl Report {
    pub fn add(&mut self, case: &Case<'_>, comparison: Comparison) {
        self.cases += usize::from(comparison.name == "y");
        self.results += 1;
        let conditioning = format!("{:.0e}", case.record.mean_over_std);
        let key = (
            case.desc.get_dtype().to_string(),
            case.desc.op().to_string(),
            conditioning,
            comparison.name,
        );
        self.sums.entry(key).or_default().add(&comparison);
        let line = Line {
            problem: problem(case, comparison.name),
            comparison,
        };
        if !line.comparison.agrees() {
            self.bad.push(line);
        } else if self
            .worst
            .as_ref()
            .is_none_or(|w| line.comparison.ours.of_bound > w.comparison.ours.of_bound)
        {
            self.worst = Some(line);
        }
    }

    pub fn disagreements(&self) -> usize {
        self.bad.len()
    }

    /// The errors against f64, relative to the result: geometric means over the cases, and the worst in units of what
    /// the types allow.
    pub fn print_table(&self) {
        println!(
            "{:<5} {:<13} {:>8} {:<13} {:>5}  {:>9} {:>9} {:>7}  {:>9} {:>9}",
            "type", "op", "mean/std", "result", "cases", "ours", "torch", "ratio", "ours/bnd", "torch/bnd"
        );
        for ((dtype, op, conditioning, name), sum) in &self.sums {
            let (ours, torch) = (sum.mean(sum.log_ours), sum.mean(sum.log_torch));
            let ratio = if torch > 0.0 {
                format!("{:.2}", ours / torch)
            } else {
                "-".into()
            };
            println!(
                "{dtype:<5} {op:<13} {conditioning:>8} {name:<13} {:>5}  {ours:>9.1e} {torch:>9.1e} {ratio:>7}  {:>9.2} {:>9.2}",
                sum.cases, sum.worst_ours, sum.worst_torch
            );
        }
    }

    pub fn print_disagreements(&self, shown: usize) {
        for line in self.bad.iter().take(shown) {
            let (c, [ours, torch, exact, bound]) = (&line.comparison, line.comparison.worst);
            println!(
                "{}\n  {}[{}] is {ours:e}, exact {exact:e}, PyTorch {torch:e}: off by {:.1e}, allowed {bound:.1e}; PyTorch's worst is {:.1e}, ours {:.1e}",
                line.problem,
                c.name,
                c.ours.at,
                (ours - exact).abs(),
                c.torch.max,
                c.ours.max
            );
        }
        if self.bad.len() > shown {
            println!("and {} more", self.bad.len() - shown);
        }
    }

    /// All of it in a line.
    pub fn summary(&self, device: &Device, torch: &str) -> String {
        let agree = self.results - self.bad.len();
        let worst = self.worst.as_ref().map_or(String::new(), |w| {
            format!(
                "; closest call {:.2} of the allowed error: {} of {}",
                w.comparison.ours.of_bound, w.comparison.name, w.problem
            )
        });
        format!(
            "{agree} of {} results of {} cases agree with PyTorch {torch} on {device}{worst}",
            self.results, self.cases
        )
    }
}
