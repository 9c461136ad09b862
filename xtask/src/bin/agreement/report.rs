//! What the comparisons add up to.

use std::collections::BTreeMap;

use isonorm::{DType, Pass};

use crate::case::Case;
use crate::compare::Comparison;

/// The results that the table has a column for.
const COLUMNS: [&str; 6] = ["y", "dx", "dweight", "dbias", "running_mean", "running_var"];

/// A problem string and one of its results.
struct Line {
    problem: String,
    comparison: Comparison,
}

/// The geometric means of both errors against f64, relative to the result.
#[derive(Clone, Default)]
struct Mean {
    log_ours: f64,
    log_torch: f64,
    /// The results where both are off at all.
    count: usize,
}

impl Mean {
    fn add(&mut self, c: &Comparison) {
        if c.ours.rms > 0.0 && c.torch.rms > 0.0 && c.scale > 0.0 {
            self.count += 1;
            self.log_ours += (c.ours.rms / c.scale).ln();
            self.log_torch += (c.torch.rms / c.scale).ln();
        }
    }

    fn merge(&mut self, other: &Mean) {
        self.count += other.count;
        self.log_ours += other.log_ours;
        self.log_torch += other.log_torch;
    }

    fn of(&self, log: f64) -> f64 {
        (log / self.count.max(1) as f64).exp()
    }

    fn shown(&self) -> String {
        match self.count {
            0 => "-".into(),
            _ => format!("{:.1e}/{:.1e}", self.of(self.log_ours), self.of(self.log_torch)),
        }
    }
}

/// A row of the table: type, op and mean/std of the data.
type Row = (DType, &'static str, u64);

/// Everything that was compared.
#[derive(Default)]
pub struct Report {
    cases: usize,
    /// Cases that the engine has no kernel for.
    skipped: usize,
    results: usize,
    means: BTreeMap<Row, [Mean; COLUMNS.len()]>,
    bad: Vec<Line>,
    closest: Option<Line>,
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
        if let Some(column) = COLUMNS.iter().position(|c| *c == comparison.name)
            && !comparison.same_type
        {
            let row = (case.desc.get_dtype(), case.desc.op(), case.record.mean_over_std as u64);
            self.means.entry(row).or_default()[column].add(&comparison);
        }
        let line = Line {
            problem: problem(case, comparison.name),
            comparison,
        };
        let of_bound = |line: &Line| line.comparison.ours.of_bound;
        if !line.comparison.agrees() {
            self.bad.push(line);
        } else if of_bound(&line) <= 1.0 && self.closest.as_ref().is_none_or(|c| of_bound(&line) > of_bound(c)) {
            self.closest = Some(line);
        }
    }

    pub fn skip(&mut self) {
        self.skipped += 1;
    }

    pub fn disagreements(&self) -> usize {
        self.bad.len()
    }

    /// The errors against f64, ours and PyTorch's; f64 data have no wider type to be compared with.
    pub fn print_table(&self) {
        println!("relative error against f64 (root mean square, geometric mean over the cases): isonorm/PyTorch");
        print!("{:<5} {:<13} {:>8}", "type", "op", "mean/std");
        println!("{}", COLUMNS.map(|c| format!("{c:>17}")).concat());
        for ((dtype, op, mean), columns) in &self.means {
            print!("{:<5} {op:<13} {:>8}", dtype.name(), format!("{:.0e}", *mean as f64));
            println!("{}", columns.each_ref().map(|c| format!("{:>17}", c.shown())).concat());
        }
    }

    pub fn print_disagreements(&self, shown: usize) {
        for line in self.bad.iter().take(shown) {
            let (c, [ours, torch, exact, bound]) = (&line.comparison, line.comparison.worst);
            let off = (ours - exact).abs();
            println!("{}", line.problem);
            println!(
                "  {}[{}]: got {ours:e}, exact {exact:e}, PyTorch {torch:e}",
                c.name, c.ours.at
            );
            println!(
                "  off by {off:.1e}, allowed {bound:.1e} or PyTorch's worst {:.1e}",
                c.torch.max
            );
        }
        if self.bad.len() > shown {
            println!("and {} more", self.bad.len() - shown);
        }
    }

    /// The result that came nearest to what its types allow.
    pub fn print_closest(&self) {
        if let Some(Line { problem, comparison: c }) = &self.closest {
            println!(
                "closest call: {} of {problem}, with {:.2} of the error that the types allow",
                c.name, c.ours.of_bound
            );
        }
    }

    /// All of it in a line.
    pub fn summary(&self, torch: &str) -> String {
        let mut all = Mean::default();
        self.means.values().flatten().for_each(|mean| all.merge(mean));
        let share = all.of(all.log_ours - all.log_torch);
        let agree = self.results - self.bad.len();
        let skipped = match self.skipped {
            0 => String::new(),
            skipped => format!("; {skipped} cases skipped, for which there are no kernels"),
        };
        format!(
            "{agree} of {} results of {} cases agree with PyTorch {torch}; {share:.2} times its error{skipped}",
            self.results, self.cases
        )
    }
}
