//! Addresses from Python as the library's arguments, for the memory of the host and that of a GPU.

use std::ptr::NonNull;

use isonorm::{BackwardArguments, DType, Error, ForwardArguments, Geometry, NormDesc, View, ViewMut, cuda};
use pyo3::PyResult;
use pyo3::exceptions::PyValueError;

/// Of an argument: 0 is none.
pub(crate) type Address = usize;

/// What both kinds of views are made from.
pub(crate) trait Memory {
    type View<'a>;
    type ViewMut<'a>;

    /// # Safety
    /// That of the views.
    unsafe fn view<'a>(&self, address: Address, len: usize, dtype: DType) -> Option<Self::View<'a>>;

    /// # Safety
    /// That of the views.
    unsafe fn view_mut<'a>(&self, address: Address, len: usize, dtype: DType) -> Option<Self::ViewMut<'a>>;
}

/// Memory of the host.
pub(crate) struct Host;

impl Memory for Host {
    type View<'a> = View<'a>;
    type ViewMut<'a> = ViewMut<'a>;

    unsafe fn view<'a>(&self, address: Address, len: usize, dtype: DType) -> Option<View<'a>> {
        // SAFETY: the caller's.
        NonNull::new(address as *mut u8).map(|first| unsafe { View::from_raw(first, len, dtype) })
    }

    unsafe fn view_mut<'a>(&self, address: Address, len: usize, dtype: DType) -> Option<ViewMut<'a>> {
        // SAFETY: the caller's.
        NonNull::new(address as *mut u8).map(|first| unsafe { ViewMut::from_raw(first, len, dtype) })
    }
}

impl Memory for cuda::Device {
    type View<'a> = cuda::View<'a>;
    type ViewMut<'a> = cuda::ViewMut<'a>;

    unsafe fn view<'a>(&self, address: Address, len: usize, dtype: DType) -> Option<cuda::View<'a>> {
        // SAFETY: the caller's.
        (address != 0).then(|| unsafe { cuda::View::from_raw_of(*self, address as u64, len, dtype) })
    }

    unsafe fn view_mut<'a>(&self, address: Address, len: usize, dtype: DType) -> Option<cuda::ViewMut<'a>> {
        // SAFETY: the caller's.
        (address != 0).then(|| unsafe { cuda::ViewMut::from_raw_of(*self, address as u64, len, dtype) })
    }
}

/// Addresses of a forward pass.
pub(crate) struct ForwardAddresses {
    pub(crate) x: Address,
    pub(crate) y: Address,
    pub(crate) weight: Address,
    pub(crate) bias: Address,
    pub(crate) residual: Address,
    pub(crate) stream: Address,
    pub(crate) running_mean: Address,
    pub(crate) running_var: Address,
    pub(crate) factor: f64,
    pub(crate) mean: Address,
    pub(crate) rstd: Address,
}

/// Addresses of a backward pass.
pub(crate) struct BackwardAddresses {
    pub(crate) x: Address,
    pub(crate) dy: Address,
    pub(crate) dx: Address,
    pub(crate) weight: Address,
    pub(crate) bias: Address,
    pub(crate) residual: Address,
    pub(crate) dstream: Address,
    pub(crate) running_mean: Address,
    pub(crate) running_var: Address,
    pub(crate) mean: Address,
    pub(crate) rstd: Address,
    pub(crate) means: [Address; 2],
    pub(crate) dweight: Address,
    pub(crate) dbias: Address,
    pub(crate) dresidual: Address,
}

/// What the arguments of a problem have to be.
pub(crate) struct Sizes {
    pub(crate) desc: NormDesc,
    /// The numbers of elements of each kind of argument.
    pub(crate) elements: usize,
    pub(crate) groups: usize,
    pub(crate) parameters: usize,
    pub(crate) channels: usize,
    /// The type of a saved mean, and of a running one that is given.
    pub(crate) mean_dtype: DType,
    pub(crate) running_mean_dtype: DType,
}

/// Arguments in some kind of memory.
type Forward<'a, M> = ForwardArguments<<M as Memory>::View<'a>, <M as Memory>::ViewMut<'a>>;
type Backward<'a, M> = BackwardArguments<<M as Memory>::View<'a>, <M as Memory>::ViewMut<'a>>;

impl Sizes {
    /// Of a problem whose mean is saved in this type; `synchronized`: the running mean that is given is, too.
    pub(crate) fn of(desc: NormDesc, mean_dtype: DType, synchronized: bool) -> Result<Sizes, Error> {
        let geometry = Geometry::of(&desc)?;
        Ok(Sizes {
            elements: geometry.elements(),
            groups: geometry.groups(),
            parameters: geometry.parameters,
            channels: geometry.channels,
            mean_dtype,
            running_mean_dtype: if synchronized {
                mean_dtype
            } else {
                desc.get_param_dtype()
            },
            desc,
        })
    }

    /// The arguments of a forward pass.
    ///
    /// # Safety
    /// The addresses are of such memory, as long and of such types as this says, and are used as the views' constructors ask.
    pub(crate) unsafe fn forward<'a, M: Memory>(&self, memory: &M, a: &ForwardAddresses) -> PyResult<Forward<'a, M>> {
        let (data, params, stats) = (
            self.desc.get_dtype(),
            self.desc.get_param_dtype(),
            self.desc.get_statistics_dtype(),
        );
        let missing = || PyValueError::new_err(format!("{}: x or y is missing", self.desc.op()));
        // SAFETY: the caller's.
        unsafe {
            let x = memory.view(a.x, self.elements, data).ok_or_else(missing)?;
            let y = memory.view_mut(a.y, self.elements, data).ok_or_else(missing)?;
            let mut arguments = ForwardArguments::new(x, y);
            if let Some(weight) = memory.view(a.weight, self.parameters, params) {
                arguments = arguments.weight(weight);
            }
            if let Some(bias) = memory.view(a.bias, self.parameters, params) {
                arguments = arguments.bias(bias);
            }
            if let Some(residual) = memory.view(a.residual, self.elements, data) {
                arguments = match memory.view_mut(a.stream, self.elements, data) {
                    Some(stream) => arguments.stream(residual, stream),
                    None => arguments.residual(residual),
                };
            }
            if self.desc.uses_running_statistics() {
                let mean = memory.view(a.running_mean, self.channels, self.running_mean_dtype);
                if let (Some(mean), Some(var)) = (mean, memory.view(a.running_var, self.channels, params)) {
                    arguments = arguments.running(mean, var);
                }
            } else if let (Some(mean), Some(var)) = (
                memory.view_mut(a.running_mean, self.channels, params),
                memory.view_mut(a.running_var, self.channels, params),
            ) {
                arguments = arguments.update_running(mean, var, a.factor);
            }
            let rstd = memory.view_mut(a.rstd, self.groups, stats);
            Ok(match (memory.view_mut(a.mean, self.groups, self.mean_dtype), rstd) {
                (Some(mean), Some(rstd)) => arguments.save(mean, rstd),
                (None, Some(rstd)) => arguments.save_rstd(rstd),
                _ => arguments,
            })
        }
    }

    /// The arguments of a pass that only takes moments.
    ///
    /// # Safety
    /// As for [`forward`](Sizes::forward).
    pub(crate) unsafe fn moments<'a, M: Memory>(
        &self,
        memory: &M,
        [x, mean, var]: [Address; 3],
    ) -> PyResult<Forward<'a, M>> {
        let missing = || PyValueError::new_err("batchnorm: x, mean or var is missing");
        // SAFETY: the caller's.
        unsafe {
            let x = memory
                .view(x, self.elements, self.desc.get_dtype())
                .ok_or_else(missing)?;
            let mean = memory
                .view_mut(mean, self.groups, self.mean_dtype)
                .ok_or_else(missing)?;
            let var = memory
                .view_mut(var, self.groups, self.desc.get_statistics_dtype())
                .ok_or_else(missing)?;
            Ok(ForwardArguments::without_y(x).save_variance(mean, var))
        }
    }

    /// The arguments of a backward pass.
    ///
    /// # Safety
    /// As for [`forward`](Sizes::forward).
    pub(crate) unsafe fn backward<'a, M: Memory>(
        &self,
        memory: &M,
        a: &BackwardAddresses,
    ) -> PyResult<Backward<'a, M>> {
        let (data, params, stats) = (
            self.desc.get_dtype(),
            self.desc.get_param_dtype(),
            self.desc.get_statistics_dtype(),
        );
        let missing = || PyValueError::new_err(format!("{}: x or dy is missing", self.desc.op()));
        // SAFETY: the caller's.
        unsafe {
            let x = memory.view(a.x, self.elements, data).ok_or_else(missing)?;
            let dy = memory.view(a.dy, self.elements, data).ok_or_else(missing)?;
            let mut arguments = match memory.view_mut(a.dx, self.elements, data) {
                Some(dx) => BackwardArguments::new(x, dy, dx),
                None => BackwardArguments::without_dx(x, dy),
            };
            if let Some(weight) = memory.view(a.weight, self.parameters, params) {
                arguments = arguments.weight(weight);
            }
            if let Some(bias) = memory.view(a.bias, self.parameters, params) {
                arguments = arguments.bias(bias);
            }
            if let Some(residual) = memory.view(a.residual, self.elements, data) {
                arguments = arguments.residual(residual);
            }
            if let Some(dstream) = memory.view(a.dstream, self.elements, data) {
                arguments = arguments.dstream(dstream);
            }
            let running = memory.view(a.running_mean, self.channels, self.running_mean_dtype);
            if let (Some(mean), Some(var)) = (running, memory.view(a.running_var, self.channels, params)) {
                arguments = arguments.running(mean, var);
            }
            let rstd = memory.view(a.rstd, self.groups, stats);
            arguments = match (memory.view(a.mean, self.groups, self.mean_dtype), rstd) {
                (Some(mean), Some(rstd)) => arguments.saved(mean, rstd),
                (None, Some(rstd)) => arguments.saved_rstd(rstd),
                _ => arguments,
            };
            let [mean_g, mean_gx] = a.means.map(|mean| memory.view(mean, self.channels, stats));
            if let (Some(mean_g), Some(mean_gx)) = (mean_g, mean_gx) {
                arguments = arguments.means(mean_g, mean_gx);
            }
            if let Some(dweight) = memory.view_mut(a.dweight, self.parameters, params) {
                arguments = arguments.dweight(dweight);
            }
            if let Some(dbias) = memory.view_mut(a.dbias, self.parameters, params) {
                arguments = arguments.dbias(dbias);
            }
            if let Some(dresidual) = memory.view_mut(a.dresidual, self.elements, data) {
                arguments = arguments.dresidual(dresidual);
            }
            Ok(arguments)
        }
    }
}
