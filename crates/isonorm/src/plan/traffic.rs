use super::{Plan, Schedule};
use crate::{Geometry, NormDesc, Pass, Residual};

/// Bytes of a pass, parameters and statistics included, caches' lines not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Traffic {
    /// Every input read once, every output written once: no implementation moves less.
    pub compulsory_bytes: u64,
    /// What this plan moves between memory and the caches.
    pub moved_bytes: u64,
}

/// How many tensors of `x`'s size a pass reads, and how many it writes, the mask of a ReLU not counted.
pub(super) fn tensors(desc: &NormDesc) -> (u64, u64) {
    // x |
    if desc.pass == Pass::Moments {
        return (1, 0);
    }
    let needs = u64::from(desc.backward_needs_preactivation());
    match (desc.residual, desc.pass.is_backward()) {
        // x | y
        (Residual::None, false) => (1, 1),
        // x, residual | y
        (Residual::Add, false) => (2, 1),
        // x, residual | y, stream
        (Residual::Stream, false) => (2, 2),
        // x, dy | dx
        (Residual::None, true) => (2, 1),
        // x, dy, residual | dx, dresidual
        (Residual::Add, true) => (2 + needs, 2),
        // x, residual | y
        (Residual::Masked | Residual::Result, false) => (2, 1),
        // x, dy | dx, dresidual
        (Residual::Masked, true) => (2, 2),
        // x, dy, y | dx, dresidual
        (Residual::Result, true) => (3, 2),
        // stream, dy, dstream | dx
        (Residual::Stream, true) => (3, 1),
    }
}

/// Bytes of a tensor of `x`'s size.
pub(super) fn tensor_bytes(desc: &NormDesc, g: &Geometry) -> u64 {
    (g.elements() * desc.dtype.bytes()) as u64
}

/// Every input read once, every output written once.
pub(super) fn compulsory_bytes(desc: &NormDesc, g: &Geometry) -> u64 {
    if g.elements() == 0 {
        return 0;
    }
    let (read, written) = tensors(desc);
    let parameter = (g.parameters * desc.get_param_dtype().bytes()) as u64;
    let affine = u64::from(desc.affine.has_weight()) + u64::from(desc.affine.has_bias());
    let statistic = (g.groups() * desc.get_statistics_dtype().bytes()) as u64;
    let gradients = if desc.pass.is_backward() { 2 } else { 1 };
    let mask = if desc.has_mask() {
        desc.mask_elements() * desc.dtype.bytes()
    } else {
        0
    } as u64;
    tensor_bytes(desc, g) * (read + written) + mask + parameter * affine * gradients + 2 * statistic
}

impl Traffic {
    pub(super) fn of(plan: &Plan) -> Traffic {
        let (desc, g) = (&plan.desc, &plan.geometry);
        let (tensor, (read, _)) = (tensor_bytes(desc, g), tensors(desc));
        let backward = desc.pass.is_backward();
        let compulsory_bytes = compulsory_bytes(desc, g);
        let again = match &plan.schedule {
            Schedule::Empty => 0,
            // Given statistics make the forward pass, and dx, elementwise.
            _ if desc.uses_running_statistics() && !backward => 0,
            // Nothing comes behind the statistics.
            _ if desc.pass == Pass::Moments => 0,
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
