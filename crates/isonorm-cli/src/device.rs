//! `--device`, `--threads` and `--isa`, which every command that computes takes.

use std::str::FromStr;

use clap::builder::RangedU64ValueParser;
use isonorm::cuda;
use isonorm::{CpuProperties, Device, GpuProperties, Isa};
use rayon::{ThreadPool, ThreadPoolBuilder};

use crate::error::{Error, Result};

/// More than any machine has, and few enough that a slip of the finger does no harm.
const MOST_THREADS: u64 = 4096;

/// Where to work.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Place {
    Cpu,
    /// The GPU with this number.
    Cuda(u32),
    /// The host in the place of a GPU.
    Interpreter,
    /// A GPU that need not be there, by its short name.
    Known(&'static str),
}

impl FromStr for Place {
    type Err = String;

    fn from_str(text: &str) -> Result<Place, String> {
        let known = || GpuProperties::KNOWN.into_iter().map(|(name, _)| name);
        let number = |text: &str| text.strip_prefix("cuda:").and_then(|n| n.parse().ok());
        match text {
            "cpu" => Ok(Place::Cpu),
            "cuda" => Ok(Place::Cuda(0)),
            "interpreter" => Ok(Place::Interpreter),
            _ => known()
                .find(|name| *name == text)
                .map(Place::Known)
                .or_else(|| number(text).map(Place::Cuda))
                .ok_or_else(|| {
                    let known = known().collect::<Vec<_>>().join(", ");
                    format!("expected cpu, cuda, cuda:N, interpreter, or one of {known}")
                }),
        }
    }
}

impl Place {
    /// What has to be said on the command line to be here; begins with a space.
    pub(crate) fn flag(&self) -> String {
        match self {
            Place::Cpu => String::new(),
            Place::Cuda(0) => " --device cuda".into(),
            Place::Cuda(ordinal) => format!(" --device cuda:{ordinal}"),
            Place::Interpreter => " --device interpreter".into(),
            Place::Known(name) => format!(" --device {name}"),
        }
    }
}

/// The GPU that the interpreter is planned for: the newest that is known.
const INTERPRETED: &str = "h200";

#[derive(Clone, Debug, clap::Args)]
pub(crate) struct DeviceArgs {
    /// Where to work: cpu, cuda (the first GPU) or cuda:N. `verify` also knows interpreter: a GPU's kernels, run strictly
    /// on the CPU. `explain` also knows a100, rtx4090, h100 and h200, which need not be there
    #[arg(long, value_name = "DEVICE", default_value = "cpu")]
    pub(crate) device: Place,
    /// Threads to work with; 0: as many as there are cores. The result is the same bits for any number
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = RangedU64ValueParser::<usize>::new().range(0..=MOST_THREADS))]
    threads: usize,
    /// Vector instructions to work with; the widest there are unless said (x86-64: sse2, avx2 or avx512)
    #[arg(long, value_name = "ISA")]
    isa: Option<Isa>,
}

impl DeviceArgs {
    /// There, with so many threads and the widest instructions.
    pub(crate) fn at(device: Place, threads: usize) -> DeviceArgs {
        DeviceArgs {
            device,
            threads,
            isa: None,
        }
    }

    /// The GPU to work on; `None`: the CPU.
    pub(crate) fn gpu(&self) -> Result<Option<cuda::Device>> {
        match self.device {
            Place::Cpu => Ok(None),
            Place::Cuda(ordinal) => Ok(Some(cuda::Device::get(ordinal)?)),
            Place::Interpreter => Err(Error::usage("--device interpreter is for verify and explain")),
            Place::Known(name) => Err(Error::usage(format!(
                "--device {name} is for explain: nothing runs on it"
            ))),
        }
    }

    /// What a plan has to know about the GPU; `None`: the CPU.
    pub(crate) fn gpu_properties(&self) -> Result<Option<GpuProperties>> {
        let known = |name| GpuProperties::known(name).ok_or_else(|| Error::usage(format!("{name} is not known")));
        match &self.device {
            Place::Cpu => Ok(None),
            Place::Cuda(ordinal) => Ok(Some(cuda::Device::get(*ordinal)?.properties().clone())),
            Place::Interpreter => known(INTERPRETED).map(Some),
            Place::Known(name) => known(name).map(Some),
        }
    }

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_named_and_nothing_else_is() {
        assert_eq!("cuda".parse(), Ok(Place::Cuda(0)));
        assert_eq!("cuda:3".parse(), Ok(Place::Cuda(3)));
        assert_eq!("h200".parse(), Ok(Place::Known("h200")));
        for bad in ["", "gpu", "cuda:", "cuda:-1", "cuda:x", "H200"] {
            assert!(bad.parse::<Place>().is_err(), "{bad}");
        }
    }
}
