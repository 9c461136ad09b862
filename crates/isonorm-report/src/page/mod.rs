//! One self-contained page: nothing is loaded, nothing is drawn by JavaScript, and every picture has its numbers as a table.

mod words;

use std::fmt::Write;

use crate::merged::{self, Machine};
use crate::picture::{self, DrawError, Picture, Subject, escape, ink};
use crate::record::Record;

/// A section of the page: what pictures it has, and what to say where there are none.
struct Section {
    subject: Subject,
    id: &'static str,
    heading: &'static str,
    about: &'static str,
    missing: &'static str,
}

const SECTIONS: [Section; 6] = [
    Section {
        subject: Subject::Bandwidth,
        id: "bandwidth",
        heading: "Roofline: how near to the copy",
        about: "A normalization is limited by memory: no kernel is faster than moving its bytes once. So a case is held against a \
                copy of as many bytes on the same machine, in the same run, which is its floor.",
        missing: "No bytes of cases were recorded.",
    },
    Section {
        subject: Subject::Peers,
        id: "peers",
        heading: "Beside others",
        about: "Times over the floor, on a logarithmic axis: a bar begins at the floor, and the shorter it is the better. The \
                numbers at the right are the ratios, in the order of the legend. All bars of a case are of one run.",
        missing: "No peer was recorded; bench/compare_torch.py measures PyTorch, torch.compile and Liger-Kernel.",
    },
    Section {
        subject: Subject::Ablations,
        id: "ablations",
        heading: "What the time is made of",
        about: "Kernels without some of their stages. What is saved when a stage is left out does not hide behind others; the \
                results are wrong. The line is the copy; the numbers at the right are times over it, in the order of the legend.",
        missing: "No ablations were recorded; isonorm bench --device cuda --ablate measures them.",
    },
    Section {
        subject: Subject::Sweep,
        id: "sweeps",
        heading: "Sweeps",
        about: "One size after another, to find where a plan stops fitting.",
        missing: "No sweep was recorded; scripts/gpu.sh measures them with SWEEP=1.",
    },
    Section {
        subject: Subject::Numerics,
        id: "numerics",
        heading: "Numerics",
        about: "The largest error against a computation in f64 while the mean of the input grows over its standard deviation. \
                What sums squares loses digits there.",
        missing: "No errors were recorded.",
    },
    Section {
        subject: Subject::Ladder,
        id: "ladder",
        heading: "The ladder",
        about: "Designs of kernels from the simplest on, all run on this machine on the same data, each with what it loses.",
        missing: "No ladder was recorded; isonorm ladder measures one.",
    },
];

/// The page of these records.
///
/// # Errors
/// [`DrawError`]: a picture could not be drawn.
pub fn html(records: &[Record]) -> Result<String, DrawError> {
    let machines = merged::machines(records);
    let pictures = picture::all(records)?;
    let names: Vec<_> = machines.iter().map(|machine| machine.name.as_str()).collect();
    let mut html = head(&names.join("; "));
    html += &machines_section(&machines);
    html += &words::summary(&machines);
    for section in &SECTIONS {
        let of: Vec<_> = pictures
            .iter()
            .filter(|picture| picture.subject == section.subject)
            .collect();
        html += &show(section, &of, &names);
    }
    html += "</main>\n<footer><p>Made by <code>isonorm bench --html</code>. What the columns of a record are, and what is measured, \
             is in bench/README.md of isonorm.</p></footer>\n</body>\n</html>\n";
    Ok(html)
}

fn head(names: &str) -> String {
    let title = format!("isonorm on {}", if names.is_empty() { "no machine" } else { names });
    let links = [("machine", "Machine"), ("summary", "Summary")]
        .into_iter()
        .chain(SECTIONS.iter().map(|section| (section.id, section.heading)));
    let links: String = links
        .map(|(id, name)| format!("<li><a href=\"#{id}\">{name}</a></li>"))
        .collect();
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n<title>{0}</title>\n\
         <link rel=\"icon\" href=\"data:,\">\n<style>\n{1}{2}</style>\n</head>\n<body>\n\
         <a class=\"skip\" href=\"#main\">To the content</a>\n\
         <header><h1>{0}</h1><p>Normalization layers beside the time of copying the same bytes.</p></header>\n\
         <nav aria-label=\"Sections\"><ul>{links}</ul></nav>\n<main id=\"main\">\n",
        escape(&title),
        ink::css(":root"),
        include_str!("style.css"),
    )
}

fn machines_section(machines: &[Machine]) -> String {
    let mut html = "<section aria-labelledby=\"machine\">\n<h2 id=\"machine\">Machine</h2>\n".to_owned();
    if machines.is_empty() {
        html += "<p>There are no records.</p>\n";
    }
    for machine in machines {
        html += &words::facts(machine);
    }
    html + "</section>\n"
}

fn show(section: &Section, pictures: &[&Picture], machines: &[&str]) -> String {
    let Section { id, heading, about, .. } = section;
    let mut html = format!("<section aria-labelledby=\"{id}\">\n<h2 id=\"{id}\">{heading}</h2>\n");
    let lead = if pictures.is_empty() { section.missing } else { about };
    // Writing to a string cannot fail.
    let _ = writeln!(html, "<p>{}</p>", escape(lead));
    for picture in pictures {
        let (title, name) = (escape(&picture.title), &picture.name);
        let _ = write!(
            html,
            "<div class=\"shown\">\n<h3>{title}</h3>\n<p>{}</p>\n<div class=\"wide\" tabindex=\"0\" role=\"group\" aria-label=\"Picture: {title}\">\n{}</div>\n</div>\n\
             <details><summary>The numbers of “{title}”</summary>\n\
             <div class=\"wide{}\" tabindex=\"0\" role=\"group\" aria-label=\"Table: {title}\" id=\"{name}-table\">\n{}</div></details>\n",
            escape(&picture.about),
            picture.inline(),
            if section.subject == Subject::Ladder {
                " words"
            } else {
                ""
            },
            picture.table.html(),
        );
    }
    for machine in machines {
        if !pictures.is_empty() && !pictures.iter().any(|picture| picture.machine == *machine) {
            let _ = writeln!(html, "<p>{}: {}</p>", escape(machine), escape(section.missing));
        }
    }
    html + "</section>\n"
}
