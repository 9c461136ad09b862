use super::{Plan, Schedule};

/// Bytes of a pass, parameters and statistics included, caches' lines not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Traffic {
    /// Every input read once, every output written once: no implementation moves less.
    pub compulsory_bytes: u64,
    /// What this plan moves between memory and the caches.
    pub moved_bytes: u64,
}

impl Traffic {
    pub(super) fn of(plan: &Plan) -> Traffic {
        let (desc, g) = (&plan.desc, &plan.geometry);
        let tensor = (g.elements() * desc.dtype.bytes()) as u64;
        let backward = desc.pass.is_backward();
        let residual = u64::from(desc.residual);
        let reads_residual = if backward {
            residual * u64::from(desc.backward_needs_preactivation())
        } else {
            residual
        };
        // Forward: x, residual | y. Backward: x, dy, residual | dx, dresidual.
        let read = 1 + u64::from(backward) + reads_residual;
        let written = 1 + if backward { residual } else { 0 };
        let parameter = (g.parameters * desc.get_param_dtype().bytes()) as u64;
        let affine = u64::from(desc.affine.has_weight()) + u64::from(desc.affine.has_bias());
        let statistic = (g.groups() * desc.get_statistics_dtype().bytes()) as u64;
        let small = parameter * affine * if backward { 2 } else { 1 } + 2 * statistic;
        let compulsory_bytes = if g.elements() == 0 {
            0
        } else {
            tensor * (read + written) + small
        };

        let again = match &plan.schedule {
            Schedule::Empty => 0,
            // Given statistics make the forward pass, and dx, elementwise.
            _ if desc.uses_running_statistics() && !backward => 0,
            Schedule::Rows(r) if r.resident && !r.split => 0,
            Schedule::Columns(c) if c.resident => 0,
            // The second pass over a forward's x; of a backward pass the residual's contribution is read again, too.
            _ if !backward => tensor,
            _ => tensor * read,
        };
        Traffic {
            compulsory_bytes,
            moved_bytes: compulsory_bytes + again,
        }
    }
}
