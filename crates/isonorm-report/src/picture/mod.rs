//! Plots as SVG, each with the table that says the same. All are drawn without JavaScript, in colours that CSS can change.

mod ablations;
mod axis;
mod bandwidth;
mod bars;
mod canvas;
pub(crate) mod ink;
mod ladder;
mod numerics;
mod peers;
mod plot;
mod sweep;
mod sweep_batchnorm;
mod sweep_rows;
mod table;

use crate::merged::{self, Machine};
use crate::record::Record;

pub use canvas::DrawError;
pub(crate) use peers::called;
pub use sweep::{CLIFF, Cliff};
pub use table::Table;

/// What a picture is about; each has a section of the page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject {
    /// Every case: its bytes, and the share of the copy's speed that it reaches.
    Bandwidth,
    /// isonorm beside others.
    Peers,
    /// Cases whose kernels lack stages.
    Ablations,
    /// One size after another.
    Sweep,
    /// Errors against `f64`.
    Numerics,
    /// Designs of kernels.
    Ladder,
}

/// A plot.
#[derive(Clone, Debug)]
pub struct Picture {
    /// What it is about.
    pub subject: Subject,
    /// Where it was measured: a [`Machine`]'s name.
    pub machine: String,
    /// The stem of its file's name, and its id in a page.
    pub name: String,
    /// One line.
    pub title: String,
    /// What it shows and what can be read in it; also the description for who does not see it.
    pub about: String,
    /// The same as numbers.
    pub table: Table,
    size: (u32, u32),
    body: String,
}

impl Picture {
    /// The SVG for a page, which has the rules for colours once for all pictures.
    #[must_use]
    pub fn inline(&self) -> String {
        let Picture { name, body, .. } = self;
        let (title, about) = (escape(&self.title), escape(&self.about));
        let (width, height) = self.size;
        format!(
            "<svg class=\"plot\" id=\"{name}\" role=\"img\" aria-labelledby=\"{name}-title {name}-desc\" \
             viewBox=\"0 0 {width} {height}\" width=\"{width}\" height=\"{height}\">\n\
             <title id=\"{name}-title\">{title}</title>\n<desc id=\"{name}-desc\">{about}</desc>\n{body}</svg>\n"
        )
    }

    /// The SVG as a file of its own, on its own ground, in the colours that the viewer prefers.
    #[must_use]
    pub fn standalone(&self) -> String {
        let (width, height) = self.size;
        let (title, about) = (escape(&self.title), escape(&self.about));
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" role=\"img\" aria-labelledby=\"title desc\" \
             viewBox=\"0 0 {width} {height}\" width=\"{width}\" height=\"{height}\">\n\
             <title id=\"title\">{title}</title>\n<desc id=\"desc\">{about}</desc>\n<style>\n{}</style>\n\
             <rect class=\"ground\" width=\"100%\" height=\"100%\"/>\n{}</svg>\n",
            ink::css(":root"),
            self.body
        )
    }
}

/// All pictures that there are numbers for.
///
/// # Errors
/// [`DrawError`]: a picture could not be drawn.
pub fn all(records: &[Record]) -> Result<Vec<Picture>, DrawError> {
    let mut pictures = Vec::new();
    for machine in merged::machines(records) {
        for mut picture in of_machine(&machine)? {
            // Names are ids of a page and names of files.
            let same = |name: &str| pictures.iter().any(|other: &Picture| other.name == name);
            if same(&picture.name) {
                let name = (2..).map(|n| format!("{}-{n}", picture.name)).find(|name| !same(name));
                picture.name = name.unwrap_or_default();
            }
            pictures.push(picture);
        }
    }
    Ok(pictures)
}

/// The pictures of one machine.
///
/// # Errors
/// [`DrawError`]: a picture could not be drawn.
pub fn of_machine(machine: &Machine) -> Result<Vec<Picture>, DrawError> {
    let mut pictures: Vec<Picture> = bandwidth::draw(machine)?.into_iter().collect();
    pictures.extend(peers::draw(machine)?);
    pictures.extend(ablations::draw(machine)?);
    pictures.extend(sweep_rows::draw(machine)?);
    pictures.extend(sweep_batchnorm::draw(machine)?);
    pictures.extend(numerics::draw(machine)?);
    pictures.extend(ladder::draw(machine)?);
    Ok(pictures)
}

/// Text as HTML or XML has it.
pub(crate) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            // What XML cannot hold.
            c if c.is_control() && !matches!(c, '\n' | '\t') => escaped.push('\u{fffd}'),
            c => escaped.push(c),
        }
    }
    escaped
}

/// Words as part of a file's name and an id.
fn slug(text: &str) -> String {
    let mapped: String = text
        .chars()
        .map(|c| {
            if c.is_ascii_alphanumeric() {
                c.to_ascii_lowercase()
            } else {
                '-'
            }
        })
        .collect();
    let parts = mapped.split('-').filter(|part| !part.is_empty());
    parts.take(12).collect::<Vec<_>>().join("-")
}
