use std::fmt;

use super::{GpuPlan, GpuSchedule, Kernel, rows};
use crate::plan::explain::{bytes, candidates, geometry, seconds, traffic};

impl GpuPlan {
    /// The geometry, each candidate taken or declined with its reason, the kernels with their sizes, the bytes moved and the
    /// time that a copy of them takes, as text.
    pub fn explain(&self) -> String {
        self.to_string()
    }
}

impl fmt::Display for GpuPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let p = &self.properties;
        writeln!(f, "problem    {}", self.desc)?;
        writeln!(
            f,
            "device     {}: compute capability {}, {} SMs, L2 {}, copies {}/s",
            p.name,
            p.compute_capability(),
            p.sms,
            bytes(p.l2_bytes as u64),
            bytes(p.copy_bytes_per_second as u64)
        )?;
        geometry(&self.geometry, f)?;
        candidates(&self.candidates, f)?;
        match &self.schedule {
            GpuSchedule::Empty => writeln!(f, "kernels    none: there are no elements")?,
            GpuSchedule::Unsupported => {
                writeln!(f, "kernels    none: unsupported")?;
                return write!(f, "bytes      {} compulsory", bytes(self.traffic().compulsory_bytes));
            }
            _ => {}
        }
        kernels("kernels", self.kernels(), f)?;
        if self.misaligned_kernels() != self.kernels() {
            kernels("misaligned", self.misaligned_kernels(), f)?;
        }
        traffic(&self.traffic(), self.workspace_bytes(), f)?;
        write!(f, "\ntime       {} to copy as much", seconds(self.copy_seconds()))
    }
}

/// Kernels with their sizes, two lines each.
fn kernels(label: &str, kernels: &[Kernel], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    if kernels.is_empty() {
        writeln!(f, "{label:<10} none: unsupported")?;
    }
    for (i, kernel) in kernels.iter().enumerate() {
        let label = if i == 0 { label } else { "" };
        let Kernel {
            family,
            dtype,
            entry,
            grid,
            block,
            ..
        } = kernel;
        writeln!(f, "{label:<10} {entry} of {family}_{dtype}")?;
        write!(f, "           {grid} blocks of {block} threads")?;
        if kernel.cluster > 1 {
            write!(f, ", clusters of {}", kernel.cluster)?;
        }
        if kernel.resident {
            write!(f, ", all at once")?;
        }
        write!(f, ", {} of shared memory", bytes(kernel.shared_bytes.into()))?;
        if *family == rows::running::FAMILY {
            write!(f, "; only where running statistics are updated")?;
        }
        writeln!(f)?;
    }
    Ok(())
}
