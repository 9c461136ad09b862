//! The page and the pictures of records, and that there is a place for what a run will write.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use isonorm_report::record::Record;
use isonorm_report::{page, picture};

use crate::error::{Error, Result};
use crate::io::Pending;

/// Where reports go.
#[derive(Debug, clap::Args)]
pub(super) struct Outputs {
    /// Write a page about the results: tables and pictures in one file, for any browser
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Write the page's pictures into this folder, each as an SVG file of its own
    #[arg(long, value_name = "FOLDER")]
    pictures: Option<PathBuf>,
}

impl Outputs {
    /// Whether any is asked for.
    pub(super) fn any(&self) -> bool {
        self.html.is_some() || self.pictures.is_some()
    }

    /// That all can be written, found out before the work.
    pub(super) fn check(&self) -> Result<()> {
        if let Some(path) = &self.html {
            check(path)?;
        }
        if let Some(folder) = &self.pictures {
            fs::create_dir_all(folder).map_err(|e| Error::Write {
                path: folder.clone(),
                reason: e.to_string(),
            })?;
            check(&folder.join("picture.svg"))?;
        }
        Ok(())
    }

    /// Writes what is asked for; the files' names come back.
    pub(super) fn write(&self, records: &[Record]) -> Result<Vec<PathBuf>> {
        let mut written = Vec::new();
        if let Some(path) = &self.html {
            write(path, &page::html(records)?)?;
            written.push(path.clone());
        }
        if let Some(folder) = &self.pictures {
            for picture in picture::all(records)? {
                let path = folder.join(&picture.name).with_extension("svg");
                write(&path, &picture.standalone())?;
                written.push(path);
            }
        }
        Ok(written)
    }
}

/// That a file can be written there; nothing is left of the attempt.
pub(crate) fn check(path: &Path) -> Result<()> {
    Pending::create(path, |_| Ok(())).map(drop)
}

fn write(path: &Path, text: &str) -> Result<()> {
    Pending::create(path, |to| to.write_all(text.as_bytes()))?.publish()
}
