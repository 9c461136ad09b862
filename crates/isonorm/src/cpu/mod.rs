//! The CPU engine.

mod columns;
mod crew;
mod elementwise;
mod engine;
mod isa;
mod lanes;
mod lookahead;
mod mask;
mod memory;
mod parameters;
mod round;
mod rows;
mod same;
mod statistics;
mod stream;

pub use isa::Isa;

use std::sync::Arc;

use rayon::ThreadPool;

use self::crew::Crew;
use self::engine::{BackwardWork, ForElement, ForwardWork, with_element};
use self::memory::Numbers;
use crate::launch::{Backward, Forward, Problem, Workspace, check_backward, check_forward};
use crate::plan::Schedule;
use crate::{CpuProperties, Pass, Plan, Result};

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

    pub(crate) fn forward(&self, plan: &Plan, arguments: Forward<'_>, workspace: &mut Workspace) -> Result<()> {
        workspace.check(plan)?;
        check_forward(problem(plan), &arguments)?;
        if plan.schedule == Schedule::Empty {
            if plan.desc().get_pass() == Pass::Moments {
                for statistic in [arguments.saved_mean, arguments.saved_var].into_iter().flatten() {
                    Numbers::new(statistic).clear();
                }
            }
            return Ok(());
        }
        self.run(plan, |crew| ForwardWork {
            plan,
            arguments,
            workspace,
            crew,
        });
        Ok(())
    }

    pub(crate) fn backward(&self, plan: &Plan, arguments: Backward<'_>, workspace: &mut Workspace) -> Result<()> {
        workspace.check(plan)?;
        check_backward(problem(plan), &arguments)?;
        if plan.schedule == Schedule::Empty {
            for gradient in [arguments.dweight, arguments.dbias].into_iter().flatten() {
                Numbers::new(gradient).clear();
            }
            return Ok(());
        }
        self.run(plan, |crew| BackwardWork {
            plan,
            arguments,
            workspace,
            crew,
        });
        Ok(())
    }

    /// Runs work in this device's pool, or where the caller is when it is too small for several threads.
    fn run<W: ForElement + Send>(&self, plan: &Plan, work: impl FnOnce(Crew) -> W + Send) {
        let bytes = plan.traffic().compulsory_bytes as usize;
        let run = || {
            with_element(
                plan.desc().get_dtype(),
                work(Crew::new(self.properties.isa.vectors(), bytes)),
            )
        };
        match &self.pool {
            Some(pool) if Crew::pays(bytes) => pool.install(run),
            _ => run(),
        }
    }
}

/// What a plan's arguments are checked against.
fn problem(plan: &Plan) -> Problem<'_> {
    Problem {
        desc: plan.desc(),
        geometry: plan.geometry(),
    }
}
