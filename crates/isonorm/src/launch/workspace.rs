use crate::{Error, Plan, Result};

/// Scratch memory for a plan's execution: O(channels) bytes, reusable by every plan that needs no more.
#[derive(Debug, Default)]
pub struct Workspace {
    lines: Vec<CacheLine>,
}

/// The unit of allocation, so that tasks' parts do not share cache lines.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
struct CacheLine(#[expect(dead_code, reason = "memory is handed out as bytes")] [u64; 8]);

impl Workspace {
    /// A workspace large enough for this plan.
    pub fn new(plan: &Plan) -> Workspace {
        let mut workspace = Workspace::default();
        workspace.reserve(plan);
        workspace
    }

    /// Makes this workspace large enough for this plan, too.
    pub fn reserve(&mut self, plan: &Plan) {
        let lines = plan.workspace_bytes().div_ceil(size_of::<CacheLine>());
        if lines > self.lines.len() {
            self.lines.resize(lines, CacheLine([0; 8]));
        }
    }

    /// Refuses a plan that needs a larger one.
    pub(crate) fn check(&self, plan: &Plan) -> Result<()> {
        let (has, needs) = (self.bytes(), plan.workspace_bytes());
        if has >= needs {
            return Ok(());
        }
        Err(Error::PlanMismatch {
            op: plan.desc().op(),
            reason: format!("the workspace has {has} bytes, the plan needs {needs}"),
        })
    }

    /// Its size in bytes.
    pub fn bytes(&self) -> usize {
        size_of_val(&self.lines[..])
    }

    pub(crate) fn as_mut_ptr(&mut self) -> *mut u8 {
        self.lines.as_mut_ptr().cast()
    }
}
