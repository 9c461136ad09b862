//! A problem's rungs as a table.

use isonorm_report::record::{LadderProblem, Numerics, Published, Rung};

use crate::error::Result;
use crate::format::{bytes, seconds};
use crate::screen::{BAD, LABEL, STRONG, Screen, styled};
use crate::table::{Align, Columns};

const HEADING: [&str; 9] = [
    "rung",
    "time",
    "of floor",
    "reads",
    "moved",
    "error",
    "bound",
    "faster",
    "published",
];

/// Prints a problem, its rungs, and what there is to say about them.
pub(super) fn show(problem: &LadderProblem, screen: &mut Screen) -> Result<()> {
    let Some(first) = problem.rungs.first() else {
        return Ok(());
    };
    let input = if problem.input == "counting" {
        ", the input 1, 2, 3, …"
    } else {
        ""
    };
    screen.line("")?;
    screen.line(styled(STRONG, format!("{}{input}", problem.case)))?;
    screen.line(format!(
        "{} have to move, which a copy takes {} for",
        bytes(first.compulsory_bytes.unwrap_or(0)),
        seconds(first.floor_s)
    ))?;
    let rows: Vec<[String; 9]> = problem.rungs.iter().map(|rung| cells(rung, first)).collect();
    let heading = HEADING.map(String::from);
    let aligns = [[Align::Left].as_slice(), &[Align::Right; 7], &[Align::Left]].concat();
    let all = std::iter::once(&heading[..]).chain(rows.iter().map(|row| &row[..]));
    let columns = Columns::fitting(&aligns, all);
    screen.line(styled(LABEL, columns.row(&heading)))?;
    for (rung, cells) in problem.rungs.iter().zip(&rows) {
        let verdict = match rung.right {
            Some(false) => styled(BAD, "  OUT OF BOUND"),
            _ => String::new(),
        };
        screen.line(format!("{}{verdict}", columns.row(cells)))?;
    }
    for rung in problem.rungs.iter().filter(|rung| loses_digits(rung)) {
        let error = rung.error.map_or("not a number".into(), |error| format!("{error:.1e}"));
        screen.line(format!(
            "{}: E[x²] − E[x]² is the difference of two numbers of the size of the mean's square; here it is off by {error}",
            rung.rung
        ))?;
    }
    for rung in &problem.rungs {
        if let Some(claim) = rung
            .published
            .as_ref()
            .map(|p| &p.claim)
            .filter(|claim| !claim.is_empty())
        {
            screen.line(styled(LABEL, format!("{}, as published: {claim}", rung.rung)))?;
        }
    }
    Ok(())
}

/// Prints the errors as the mean grows: a line for each implementation of a problem.
pub(super) fn show_numerics(points: &[Numerics], screen: &mut Screen) -> Result<()> {
    let mut lines: Vec<(&str, &str)> = Vec::new();
    for point in points {
        let line = (&point.case[..], &point.implementation[..]);
        if !lines.contains(&line) {
            lines.push(line);
        }
    }
    let mut case = "";
    for line in lines {
        let of_line: Vec<_> = points
            .iter()
            .filter(|p| (&p.case[..], &p.implementation[..]) == line)
            .collect();
        if line.0 != case {
            case = line.0;
            screen.line("")?;
            screen.line(styled(STRONG, format!("{case}: largest error by mean over deviation")))?;
            let heading = of_line
                .iter()
                .map(|p| format!("{:>8.0e}", p.mean_over_std))
                .collect::<String>();
            screen.line(styled(LABEL, format!("{:<18}{heading}", "")))?;
        }
        let error = |p: &&Numerics| {
            p.error
                .map_or(format!("{:>8}", "NaN"), |error| format!("{error:>8.0e}"))
        };
        screen.line(format!(
            "{:<18}{}",
            line.1,
            of_line.iter().map(error).collect::<String>()
        ))?;
    }
    Ok(())
}

/// Whether it promises no digit of this input.
fn loses_digits(rung: &Rung) -> bool {
    let squares = |rung: isonorm::Rung| rung.variance() == isonorm::Variance::Squares;
    rung.tolerance.is_none() && isonorm::Rung::named(&rung.rung).is_some_and(squares)
}

fn cells(rung: &Rung, first: &Rung) -> [String; 9] {
    let or = |cell: Option<String>| cell.unwrap_or_else(|| "-".into());
    [
        rung.rung.clone(),
        seconds(rung.median_s),
        format!("{:.0} %", 100.0 * rung.floor_s / rung.median_s),
        or(rung.reads.map(|reads| format!("{reads:.2}"))),
        or(rung.bytes.map(bytes)),
        rung.error.map_or("NaN".into(), |error| format!("{error:.1e}")),
        rung.tolerance.map_or("none".into(), |bound| format!("{bound:.1e}")),
        format!("{:.2}x", first.median_s / rung.median_s),
        rung.published.as_ref().map_or_else(String::new, of_publication),
    ]
}

fn of_publication(published: &Published) -> String {
    match published.seconds {
        Some(s) => format!("{} ({})", seconds(s), published.machine),
        None => format!("({})", published.machine),
    }
}
