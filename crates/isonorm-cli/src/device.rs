//! `--threads` and `--isa`, which every command that computes takes.

use clap::builder::RangedU64ValueParser;
use isonorm::{CpuProperties, Device, Isa};
use rayon::{ThreadPool, ThreadPoolBuilder};

use crate::error::{Error, Result};

/// More than any machine has, and few enough that a slip of the finger does no harm.
const MOST_THREADS: u64 = 4096;

#[derive(Clone, Copy, Debug, clap::Args)]
pub(crate) struct DeviceArgs {
    /// Threads to work with; 0: as many as there are cores. The result is the same bits for any number
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = RangedU64ValueParser::<usize>::new().range(0..=MOST_THREADS))]
    threads: usize,
    /// Vector instructions to work with; the widest there are unless said (x86-64: sse2, avx2 or avx512)
    #[arg(long, value_name = "ISA")]
    isa: Option<Isa>,
}

impl DeviceArgs {
    /// The vector instructions to work with.
    pub(crate) fn isa(&self) -> String {
        self.isa.unwrap_or_else(Isa::best).to_string()
    }

    /// A pool with these threads.
    pub(crate) fn pool(&self) -> Result<ThreadPool> {
        let refused = |e| Error::usage(format!("cannot start {} threads: {e}", self.threads));
        ThreadPoolBuilder::new()
            .num_threads(self.threads)
            .build()
            .map_err(refused)
    }

    /// The CPU, with the threads of the pool that this is called in.
    pub(crate) fn device(&self) -> Result<Device> {
        let device = Device::cpu();
        let Some(isa) = self.isa else { return Ok(device) };
        let best = Isa::best();
        device
            .with_isa(isa)
            .ok_or_else(|| Error::usage(format!("this machine has no {isa}; its best is {best}")))
    }

    /// What a plan has to know, without starting a thread. Any ISA will do, since nothing runs.
    pub(crate) fn properties(&self) -> CpuProperties {
        let cores = || std::thread::available_parallelism().map_or(1, |n| n.get());
        let threads = if self.threads == 0 { cores() } else { self.threads };
        CpuProperties::detect(threads, self.isa.unwrap_or_else(Isa::best))
    }
}
