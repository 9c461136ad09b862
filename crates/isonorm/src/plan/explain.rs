use std::fmt;

use super::{Candidate, Plan, Schedule, Traffic};
use crate::Geometry;

impl Plan {
    /// The geometry, each candidate taken or declined with its reason, and the bytes moved, as text.
    ///
    /// ```
    /// use isonorm::{Device, NormDesc};
    ///
    /// let plan = Device::cpu().plan(&"batchnorm x=64x256x56x56 act=relu pass=train".parse::<NormDesc>()?)?;
    /// assert!(plan.explain().contains("batch 1, outer 64, kept 256, inner 3136"));
    /// # Ok::<(), isonorm::Error>(())
    /// ```
    pub fn explain(&self) -> String {
        self.to_string()
    }
}

/// `12345678` as `12.3 MB`.
pub(super) fn bytes(n: u64) -> String {
    let mut value = n as f64;
    for unit in ["B", "kB", "MB", "GB"] {
        if value < 1000.0 {
            return if unit == "B" {
                format!("{n} B")
            } else {
                format!("{value:.1} {unit}")
            };
        }
        value /= 1000.0;
    }
    format!("{value:.1} TB")
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (g, p, t) = (&self.geometry, &self.properties, self.traffic());
        writeln!(f, "problem    {}", self.desc)?;
        writeln!(
            f,
            "device     cpu: {} threads, {}, L2 {}, last level {}",
            p.threads,
            p.isa,
            bytes(p.l2_bytes as u64),
            bytes(p.llc_bytes as u64)
        )?;
        geometry(g, f)?;
        candidates(&self.candidates, f)?;
        let (tiles, chunks) = match &self.schedule {
            Schedule::Empty => ("none: there are no elements".into(), 1),
            Schedule::Rows(r) => {
                let (segments, inner) = (r.block_segments, r.block_inner);
                (
                    format!(
                        "blocks of {segments} x {inner} elements, {} a group",
                        counted(r.parts, "part")
                    ),
                    r.chunks,
                )
            }
            Schedule::Columns(c) => (
                format!("{}, rows in {}", counted(c.tile, "column"), counted(c.parts, "part")),
                c.chunks,
            ),
        };
        write!(f, "tiles      {tiles}")?;
        if self.desc.pass.is_backward() {
            write!(f, ", parameter gradients in {}", counted(chunks, "chunk"))?;
        }
        writeln!(f)?;
        traffic(&t, self.workspace_bytes(), f)
    }
}

/// The 4-D view, two lines.
pub(super) fn geometry(g: &Geometry, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    writeln!(
        f,
        "geometry   batch {}, outer {}, kept {}, inner {}",
        g.batch, g.outer, g.kept, g.inner
    )?;
    writeln!(
        f,
        "           {} groups of {} elements, {} parameters",
        g.groups(),
        g.group_size(),
        g.parameters
    )
}

/// What was tried, a line each.
pub(super) fn candidates(candidates: &[Candidate], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    for (i, c) in candidates.iter().enumerate() {
        let label = if i == 0 { "candidates" } else { "" };
        let (mark, why) = match &c.declined {
            None => ('>', "taken"),
            Some(reason) => ('-', reason.as_str()),
        };
        write!(f, "{label:<10} {mark} {:<18} ", c.name)?;
        if let Some(shape) = &c.shape {
            write!(f, "{shape}: ")?;
        }
        if let Some(estimate) = c.estimate {
            write!(f, "{}, ", seconds(estimate))?;
        }
        writeln!(f, "{why}")?;
    }
    Ok(())
}

/// Bytes that must move, that do, and that are needed besides.
pub(super) fn traffic(t: &Traffic, workspace_bytes: usize, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    write!(
        f,
        "bytes      {} compulsory, {} moved ({:.2} times), {} of workspace",
        bytes(t.compulsory_bytes),
        bytes(t.moved_bytes),
        t.moved_bytes as f64 / t.compulsory_bytes.max(1) as f64,
        bytes(workspace_bytes as u64)
    )
}

/// `0.0000345` as `34.5 µs`.
pub(super) fn seconds(s: f64) -> String {
    // What is rounded to 1000 of a unit is 1 of the next.
    match s {
        ..0.999_95e-6 => format!("{:.1} ns", s * 1e9),
        ..0.999_95e-3 => format!("{:.1} µs", s * 1e6),
        _ => format!("{:.2} ms", s * 1e3),
    }
}

/// `1 part`, `2 parts`.
pub(super) fn counted(n: usize, what: &str) -> String {
    format!("{n} {what}{}", if n == 1 { "" } else { "s" })
}
