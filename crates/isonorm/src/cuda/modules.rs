//! The kernels of a GPU's context: a module is loaded when the first of its kernels is wanted, and stays.

use std::sync::{Mutex, OnceLock, PoisonError};

use isonorm_kernels::ablation::Ablation;
use isonorm_kernels::modules::{LADDER, Module, ROWS};

use super::driver::{Context, Function, LoadedModule};
use crate::{Error, GpuProperties, Kernel, Result};

/// All modules that there are, loaded or not.
pub(super) struct Modules(Vec<Slot>);

struct Slot {
    source: Module,
    loaded: OnceLock<LoadedModule>,
    /// Held while it is loaded: who wants the same module waits, nobody else does.
    loading: Mutex<()>,
}

impl Default for Modules {
    fn default() -> Modules {
        let slot = |source| Slot {
            source,
            loaded: OnceLock::new(),
            loading: Mutex::new(()),
        };
        Modules(ROWS.iter().chain(LADDER).copied().map(slot).collect())
    }
}

impl Modules {
    /// A kernel, its module loaded if it was not.
    pub(super) fn function(&self, context: &Context, gpu: &GpuProperties, kernel: &Kernel) -> Result<Function> {
        let module = self.newest(kernel, gpu)?.module(context)?;
        module.function(context, kernel, gpu.shared_bytes_per_block)
    }

    /// The same without some stages, in a module of its own, made for this call.
    pub(super) fn ablated(
        &self,
        context: &Context,
        gpu: &GpuProperties,
        kernel: &Kernel,
        ablation: Ablation,
    ) -> Result<Function> {
        let source = &self.newest(kernel, gpu)?.source;
        let ptx = source.without(kernel.entry, ablation);
        let ptx = ptx.expect("plans take kernels that their modules have");
        let name = format!("{} without {ablation}", source.name());
        let module = LoadedModule::load(context, &name, &ptx)?;
        module.function(context, kernel, gpu.shared_bytes_per_block)
    }

    /// The module of the kernel's family and type that was compiled for the newest GPU not newer than this one.
    fn newest(&self, kernel: &Kernel, gpu: &GpuProperties) -> Result<&Slot> {
        let Kernel { family, dtype, .. } = kernel;
        let of_kernel = |slot: &&Slot| (slot.source.family, slot.source.data) == (*family, dtype.name());
        let runs = |slot: &&Slot| slot.source.compute_capability <= gpu.compute_capability;
        let slots = self.0.iter().filter(of_kernel).filter(runs);
        slots
            .max_by_key(|slot| slot.source.compute_capability)
            .ok_or_else(|| Error::NoGpu {
                reason: format!(
                    "module {family}_{dtype} has no kernels for {}, compute capability {}",
                    gpu.name,
                    gpu.compute_capability()
                ),
            })
    }
}

impl Slot {
    fn module(&self, context: &Context) -> Result<LoadedModule> {
        if let Some(module) = self.loaded.get() {
            return Ok(*module);
        }
        let _loading = self.loading.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(module) = self.loaded.get() {
            return Ok(*module);
        }
        let module = LoadedModule::load(context, &self.source.name(), self.source.ptx)?;
        Ok(*self.loaded.get_or_init(|| module))
    }
}
