//! isonorm beside others, case by case: bars from the floor on.

use super::axis::Axis;
use super::bars::{self, Group, Part};
use super::canvas::Result;
use super::{Picture, Subject, Table, slug};
use crate::case::Case;
use crate::format::{cases, number, seconds};
use crate::merged::Machine;
use crate::record::Row;
use crate::statistics::geometric_mean;

/// What a peer is called; others by their names in the record.
pub(crate) fn called(peer: &str) -> &str {
    match peer {
        "torch" => "PyTorch",
        "compile" => "torch.compile",
        "liger" => "Liger",
        other => other,
    }
}

/// All peers of these rows: the known ones first, in the order in which they are told everywhere.
pub(crate) fn peers<'a>(rows: &[&'a Row]) -> Vec<&'a str> {
    let mut peers: Vec<&str> = Vec::new();
    for name in rows.iter().flat_map(|row| row.peers.keys()) {
        if !peers.contains(&name.as_str()) {
            peers.push(name);
        }
    }
    let known = |name: &str| {
        ["torch", "compile", "liger"]
            .iter()
            .position(|k| *k == name)
            .unwrap_or(3)
    };
    peers.sort_by_key(|name| known(name));
    peers
}

pub(super) fn draw(machine: &Machine) -> Result<Vec<Picture>> {
    let all = machine.rows(|row| !row.peers.is_empty());
    let peers = peers(&all);
    let mut pictures = Vec::new();
    for backward in [false, true] {
        let mut rows = all.clone();
        rows.retain(|row| Case::of(&row.case).is_backward() == backward);
        rows.sort_by(|a, b| a.ratio.total_cmp(&b.ratio));
        for part in bars::divide(&rows) {
            let about = match part.is_first {
                true => format!("{} {}", about(&rows, &peers), order(bars::parts(rows.len()))),
                false => "The cases that follow, in the order of isonorm's ratio.".into(),
            };
            pictures.push(picture(&part, &peers, machine, backward, about)?);
        }
    }
    Ok(pictures)
}

fn order(parts: usize) -> &'static str {
    match parts {
        1 => "The cases are in the order of isonorm's ratio.",
        _ => "The cases are in the order of isonorm's ratio, over all parts.",
    }
}

fn picture(part: &Part, peers: &[&str], machine: &Machine, backward: bool, about: String) -> Result<Picture> {
    let Part {
        rows, title, suffix, ..
    } = part;
    let direction = if backward { "backward" } else { "forward" };
    let names: Vec<_> = std::iter::once("isonorm")
        .chain(peers.iter().map(|peer| called(peer)))
        .collect();
    let all: Vec<_> = rows.iter().map(|row| ratios(row, peers)).collect();
    let x = Axis::log(
        all.iter().flatten().flatten().copied().chain([1.0, 2.0]),
        2.0,
        "time over the floor, a copy of the same bytes",
        number_of,
    );
    let groups: Vec<_> = rows
        .iter()
        .zip(all)
        .map(|(row, ratios)| Group {
            case: &row.case,
            ratios,
        })
        .collect();
    let (size, body) = bars::draw(&names, &x, &groups, 1.0)?;
    Ok(Picture {
        subject: Subject::Peers,
        machine: machine.name.clone(),
        name: format!("peers-{direction}-{}{suffix}", slug(&machine.name)),
        title: format!("isonorm beside others, {direction}, {}{title}", machine.name),
        about,
        table: table(rows, peers, format!("{direction}, {}{title}", machine.name)),
        size,
        body,
    })
}

fn number_of(ratio: f64) -> String {
    crate::format::trimmed(ratio)
}

/// isonorm's ratio to the floor, and the peers'.
fn ratios(row: &Row, peers: &[&str]) -> Vec<Option<f64>> {
    let of = |name: &&str| row.peers.get(*name).map(|peer| peer.median_s / row.floor_s);
    std::iter::once(Some(row.ratio)).chain(peers.iter().map(of)).collect()
}

fn about(rows: &[&Row], peers: &[&str]) -> String {
    let own = geometric_mean(rows.iter().map(|row| row.ratio));
    let mut text = format!(
        "isonorm takes {} times the copy in the geometric mean of {}.",
        said(own),
        cases(rows.len())
    );
    for peer in peers {
        let with = rows
            .iter()
            .filter_map(|row| Some((row, row.peers.get(*peer)?.median_s)));
        let over: Vec<_> = with.map(|(row, s)| s / row.median_s).collect();
        if let Some(mean) = geometric_mean(over.iter().copied()) {
            let behind = match over.iter().filter(|ratio| **ratio < 1.0).count() {
                0 => "none".into(),
                n => n.to_string(),
            };
            text += &format!(
                " {} takes {} times isonorm's time over {}, and less in {behind}.",
                called(peer),
                number(mean),
                cases(over.len())
            );
        }
    }
    text
}

fn said(mean: Option<f64>) -> String {
    mean.map_or("–".into(), number)
}

fn table(rows: &[&Row], peers: &[&str], caption: String) -> Table {
    let head: Vec<_> = ["case", "isonorm"]
        .into_iter()
        .chain(peers.iter().map(|peer| called(peer)))
        .chain(["copy", "isonorm / copy", "fastest peer / isonorm"])
        .collect();
    let mut table = Table::new(format!("Times beside others, {caption}"), &head);
    for row in rows {
        let mut cells = vec![row.case.clone(), seconds(row.median_s)];
        cells.extend(
            peers
                .iter()
                .map(|peer| row.peers.get(*peer).map_or("–".into(), |p| seconds(p.median_s))),
        );
        cells.extend([seconds(row.floor_s), number(row.ratio), said(row.speedup())]);
        table.rows.push(cells);
    }
    table
}
