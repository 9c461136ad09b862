//! The CPU engine.

mod isa;

pub use isa::Isa;

use std::sync::Arc;

use rayon::ThreadPool;

use crate::launch::{Backward, Forward, Workspace, check_backward, check_forward};
use crate::{CpuProperties, Plan, Result};

/// Threads and vector instructions.
#[derive(Clone, Debug)]
pub(crate) struct Cpu {
    /// `None`: the pool that the caller runs in, or `rayon`'s global one.
    pool: Option<Arc<ThreadPool>>,
    properties: CpuProperties,
}

impl Cpu {
    pub(crate) fn new() -> Cpu {
        Cpu {
            pool: None,
            properties: CpuProperties::detect(rayon::current_num_threads(), Isa::best()),
        }
    }

    pub(crate) fn with_threads(threads: usize) -> Cpu {
        match rayon::ThreadPoolBuilder::new()
            .num_threads(threads)
            .thread_name(|i| format!("isonorm-{i}"))
            .build()
        {
            Ok(pool) => {
                let properties = CpuProperties::detect(pool.current_num_threads(), Isa::best());
                Cpu {
                    pool: Some(Arc::new(pool)),
                    properties,
                }
            }
            // The system gives no more threads: the shared pool computes the same.
            Err(_) => Cpu::new(),
        }
    }

    pub(crate) fn with_isa(mut self, isa: Isa) -> Cpu {
        self.properties.isa = isa;
        self
    }

    pub(crate) fn properties(&self) -> &CpuProperties {
        &self.properties
    }

    pub(crate) fn forward(
        &self,
        plan: &Plan,
        arguments: Forward<'_>,
        workspace: &mut Workspace,
    ) -> Result<()> {
        check_forward(plan, &arguments, workspace)?;
        let _ = &self.pool;
        Ok(())
    }

    pub(crate) fn backward(
        &self,
        plan: &Plan,
        arguments: Backward<'_>,
        workspace: &mut Workspace,
    ) -> Result<()> {
        check_backward(plan, &arguments, workspace)?;
        Ok(())
    }
}
