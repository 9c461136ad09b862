//! What the page says in words: where it was measured, and what came out.

use std::collections::BTreeMap;
use std::fmt::Write;

use crate::case::Case;
use crate::format::{bytes, cases, number, trimmed};
use crate::merged::Machine;
use crate::picture::{called, escape};
use crate::record::{LadderProblem, Numerics, Record, Row};
use crate::statistics::geometric_mean;

/// A table of a machine and what ran on it.
pub(super) fn facts(machine: &Machine) -> String {
    let mut rows: Vec<(&str, String)> = Vec::new();
    let all = |of: &dyn Fn(&Record) -> Option<String>| {
        let mut told: Vec<String> = Vec::new();
        for value in machine.records.iter().filter_map(|record| of(record)) {
            if !value.is_empty() && !told.contains(&value) {
                told.push(value);
            }
        }
        // What another says with more words.
        let said = told.iter().filter(|value| {
            !told
                .iter()
                .any(|other| other.len() > value.len() && other.starts_with(*value))
        });
        said.cloned().collect::<Vec<_>>().join("; ")
    };
    rows.push(("GPU", all(&|record| Some(gpu(record.gpu.as_ref()?)))));
    rows.push(("processor", all(&|record| Some(processor(record)))));
    rows.push(("system", all(&|record| Some(record.machine.os.clone()))));
    rows.push(("software", versions(&machine.records)));
    rows.push(("measured", all(&|record| Some(date(record)))));
    rows.push((
        "least time of a case",
        all(&|record| Some(format!("{} s", trimmed(record.settings.min_time_s)))),
    ));
    let mut html = format!(
        "<table class=\"facts\">\n<caption>{}</caption>\n<tbody>\n",
        escape(&machine.name)
    );
    for (name, value) in rows.iter().filter(|(_, value)| !value.is_empty()) {
        // Writing to a string cannot fail.
        let _ = writeln!(html, "<tr><th scope=\"row\">{name}</th><td>{}</td></tr>", escape(value));
    }
    html + "</tbody>\n</table>\n"
}

fn gpu(gpu: &crate::record::Gpu) -> String {
    let mut text = gpu.name.clone();
    let parts = [
        gpu.compute_capability
            .as_ref()
            .map(|c| format!("compute capability {c}")),
        gpu.sms.map(|n| format!("{n} multiprocessors")),
        gpu.l2_bytes.map(|n| format!("{} second-level cache", bytes(n as f64))),
        gpu.memory_bytes.map(|n| format!("{} memory", bytes(n as f64))),
        gpu.driver.as_ref().map(|d| format!("driver {d}")),
        gpu.cuda.as_ref().map(|c| format!("CUDA {c}")),
    ];
    for part in parts.into_iter().flatten() {
        text += &format!(", {part}");
    }
    text
}

fn processor(record: &Record) -> String {
    let isa = record
        .settings
        .isa
        .as_ref()
        .map(|isa| format!(", {isa}"))
        .unwrap_or_default();
    format!(
        "{}, {} hardware threads, {} used{isa}",
        record.machine.cpu, record.machine.cores, record.settings.threads
    )
}

fn date(record: &Record) -> String {
    record.date.get(..10).unwrap_or(&record.date).to_owned()
}

/// Every version that a record tells, of each program once.
fn versions(records: &[&Record]) -> String {
    let mut told: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (program, version) in records.iter().flat_map(|record| &record.versions) {
        let versions = told.entry(program).or_default();
        if !versions.contains(&version.as_str()) {
            versions.push(version);
        }
    }
    let named = told.into_iter().map(|(program, versions)| {
        let versions = versions.join(" and ");
        // Of a compiler the version begins with its name.
        if versions.starts_with(program) {
            versions
        } else {
            format!("{program} {versions}")
        }
    });
    named.collect::<Vec<_>>().join(", ")
}

/// What came out, in sentences.
pub(super) fn summary(machines: &[Machine]) -> String {
    let mut html = "<section aria-labelledby=\"summary\">\n<h2 id=\"summary\">Summary</h2>\n".to_owned();
    for machine in machines {
        let sentences = sentences(machine);
        let _ = match sentences.is_empty() {
            true => writeln!(html, "<p>{}: nothing was measured.</p>", escape(&machine.name)),
            false => {
                let items: String = sentences.iter().map(|s| format!("<li>{}</li>\n", escape(s))).collect();
                writeln!(html, "<p>{}:</p>\n<ul>\n{items}</ul>", escape(&machine.name))
            }
        };
    }
    html + "</section>\n"
}

fn sentences(machine: &Machine) -> Vec<String> {
    let rows = machine.rows(|_| true);
    let mut sentences = Vec::new();
    if let Some(all) = geometric_mean(rows.iter().map(|row| row.ratio)) {
        let direction = |backward: bool, name: &str| {
            let of = rows.iter().filter(|row| Case::of(&row.case).is_backward() == backward);
            geometric_mean(of.map(|row| row.ratio)).map(|mean| format!("{} {name}", number(mean)))
        };
        let each: Vec<_> = [direction(false, "forward"), direction(true, "backward")]
            .into_iter()
            .flatten()
            .collect();
        sentences.push(format!(
            "{}: isonorm takes {} times the floor in the geometric mean ({}).",
            cases(rows.len()),
            number(all),
            each.join(", ")
        ));
    }
    sentences.extend(beside(&machine.rows(|row| !row.peers.is_empty())));
    sentences.extend(machine.ladders().into_iter().filter_map(climbed));
    sentences.extend(machine.numerics().into_iter().filter_map(errors));
    let skipped = machine.records.iter().map(|record| record.skipped.len()).sum::<usize>();
    if skipped > 0 {
        sentences.push(format!("Skipped, as there is no kernel: {}.", cases(skipped)));
    }
    sentences
}

fn beside(rows: &[&Row]) -> Option<String> {
    let speedups: Vec<f64> = rows.iter().filter_map(|row| row.speedup()).collect();
    let mean = geometric_mean(speedups.iter().copied())?;
    let slower = speedups.iter().filter(|speedup| **speedup < 1.0).count();
    let (least, most) = speedups
        .iter()
        .fold((f64::INFINITY, 0.0f64), |(l, m), s| (l.min(*s), m.max(*s)));
    Some(format!(
        "Beside the fastest peer in each of {} isonorm is {} times as fast in the geometric mean (from {} to {}), and slower \
         in {slower}.",
        cases(rows.len()),
        number(mean),
        number(least),
        number(most)
    ))
}

fn climbed(ladder: &LadderProblem) -> Option<String> {
    let own = ladder.rungs.iter().find(|rung| rung.rung == "isonorm")?;
    let others = ladder.rungs.iter().filter(|rung| rung.rung != "isonorm");
    let best = others.min_by(|a, b| a.median_s.total_cmp(&b.median_s))?;
    Some(format!(
        "The ladder of {}: isonorm is {} times as fast as {}, the fastest other design.",
        ladder.case,
        number(best.median_s / own.median_s),
        best.rung
    ))
}

/// The errors of one case: isonorm's and the largest of all others.
fn errors((case, points): (&str, Vec<&Numerics>)) -> Option<String> {
    let (own, others): (Vec<_>, Vec<_>) = points.into_iter().partition(|point| point.implementation == "isonorm");
    let most = own.iter().filter_map(|point| point.error).max_by(f64::total_cmp)?;
    let lost = others.iter().find(|point| point.error.is_none());
    let worst = lost.or(others
        .iter()
        .max_by(|a, b| a.error.unwrap_or(0.0).total_cmp(&b.error.unwrap_or(0.0))))?;
    let (name, others) = (called(&worst.implementation), worst.error);
    let others = match others {
        Some(error) => format!("those of {name} up to {error:.1e}"),
        None => format!("{name} has results that are not finite"),
    };
    Some(format!(
        "Errors of {case} whatever the mean: isonorm's are at most {most:.1e}, {others}."
    ))
}
