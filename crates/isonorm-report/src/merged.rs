//! Several records as one, machine by machine: times of different machines do not belong into one picture.

use std::collections::BTreeMap;

use crate::record::{LadderProblem, Numerics, Record, Row};

/// The records of one machine, the oldest first.
#[derive(Debug)]
pub struct Machine<'a> {
    /// What worked: the GPU, or the processor and its threads.
    pub name: String,
    /// At least one.
    pub records: Vec<&'a Record>,
}

/// Sorts records by machine, in the order in which the machines first appear.
#[must_use]
pub fn machines(records: &[Record]) -> Vec<Machine<'_>> {
    let mut machines: Vec<Machine<'_>> = Vec::new();
    for record in records {
        let name = name(record);
        match machines.iter_mut().find(|machine| machine.name == name) {
            Some(machine) => machine.records.push(record),
            None => machines.push(Machine {
                name,
                records: vec![record],
            }),
        }
    }
    for machine in &mut machines {
        // RFC 3339, all in UTC; some without a `Z`. A stable sort: of two with the same date the one that was named last counts.
        machine.records.sort_by(|a, b| a.date.get(..19).cmp(&b.date.get(..19)));
    }
    machines
}

/// What worked.
fn name(record: &Record) -> String {
    match (&record.gpu, record.settings.threads) {
        (Some(gpu), _) => gpu.name.clone(),
        (None, 1) => format!("{}, 1 thread", record.machine.cpu),
        (None, threads) => format!("{}, {threads} threads", record.machine.cpu),
    }
}

impl<'a> Machine<'a> {
    /// One row a case: of those that will do, the newest. All that a row says was measured in one run.
    #[must_use]
    pub fn rows(&self, will_do: impl Fn(&Row) -> bool) -> Vec<&'a Row> {
        let mut places: BTreeMap<&str, usize> = BTreeMap::new();
        let mut rows: Vec<&'a Row> = Vec::new();
        let all = self.records.iter().flat_map(|record| &record.rows);
        for row in all.filter(|row| row.is_chosen() && will_do(row)) {
            match places.get(row.case.as_str()) {
                Some(&place) => rows[place] = row,
                None => {
                    places.insert(&row.case, rows.len());
                    rows.push(row);
                }
            }
        }
        rows
    }

    /// One ladder a problem: the newest.
    #[must_use]
    pub fn ladders(&self) -> Vec<&'a LadderProblem> {
        let key = |problem: &'a LadderProblem| (&problem.case, &problem.input);
        let mut ladders: Vec<&'a LadderProblem> = Vec::new();
        for problem in self.records.iter().flat_map(|record| &record.ladder) {
            match ladders.iter_mut().find(|ladder| key(ladder) == key(problem)) {
                Some(place) => *place = problem,
                None => ladders.push(problem),
            }
        }
        ladders
    }

    /// Errors by case, the newest of an implementation at a mean.
    #[must_use]
    pub fn numerics(&self) -> BTreeMap<&'a str, Vec<&'a Numerics>> {
        let mut cases: BTreeMap<&str, Vec<&Numerics>> = BTreeMap::new();
        for point in self.records.iter().flat_map(|record| &record.numerics) {
            let points = cases.entry(&point.case).or_default();
            let same =
                |p: &&mut &Numerics| p.implementation == point.implementation && p.mean_over_std == point.mean_over_std;
            match points.iter_mut().find(same) {
                Some(place) => *place = point,
                None => points.push(point),
            }
        }
        cases
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::samples::{record, row};

    #[test]
    fn the_newest_row_that_will_do_counts() {
        let old = record(vec![row("a", 1.0, 1.0), row("b", 1.0, 1.0)]);
        let mut new = record(vec![row("a", 2.0, 1.0)]);
        new.date = "2026-11-27T00:00:00+00:00".into();
        new.rows[0].bytes = None;
        let records = [new, old];
        let machines = machines(&records);
        assert_eq!(machines.len(), 1);
        let medians = |rows: Vec<&Row>| rows.iter().map(|row| row.median_s).collect::<Vec<_>>();
        assert_eq!(medians(machines[0].rows(|_| true)), [2.0, 1.0]);
        assert_eq!(medians(machines[0].rows(|row| row.bytes.is_some())), [1.0, 1.0]);
    }

    #[test]
    fn threads_make_a_machine() {
        let mut other = record(Vec::new());
        other.settings.threads = 1;
        let records = [record(Vec::new()), other];
        let names: Vec<_> = machines(&records).into_iter().map(|machine| machine.name).collect();
        assert_eq!(names, ["a processor, 2 threads", "a processor, 1 thread"]);
    }
}
