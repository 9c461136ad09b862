//! A problem with all the tensors that it reads and writes, so that it can be carried out again and again: on the CPU
//! ([`Call`]) or on a GPU ([`GpuCall`]).

mod cpu;
mod gpu;

pub(crate) use cpu::{Call, statistics_of};
pub(crate) use gpu::GpuCall;

use isonorm::{BackwardArguments, DType, ForwardArguments, Geometry, NormDesc, Pass, TensorData};

/// What a pass reads. Which of the optional ones it needs is for the library to say.
#[derive(Clone, Debug)]
pub(crate) struct Inputs<T = TensorData> {
    pub(crate) x: T,
    /// The gradient of `y`; only a backward pass has it.
    pub(crate) dy: Option<T>,
    pub(crate) weight: Option<T>,
    pub(crate) bias: Option<T>,
    pub(crate) residual: Option<T>,
    /// The mask of a ReLU; only a backward pass has it.
    pub(crate) mask: Option<T>,
    /// The result of a ReLU; only a backward pass may have it.
    pub(crate) result: Option<T>,
    /// The gradient of a residual stream; only a backward pass has it.
    pub(crate) dstream: Option<T>,
    /// Running mean and variance.
    pub(crate) running: Option<[T; 2]>,
    /// What the forward pass saved; `None` for RMSNorm's mean.
    pub(crate) saved: [Option<T>; 2],
}

impl Inputs {
    /// Only `x`.
    pub(crate) fn of(x: TensorData) -> Inputs {
        Inputs {
            x,
            dy: None,
            weight: None,
            bias: None,
            residual: None,
            mask: None,
            result: None,
            dstream: None,
            running: None,
            saved: [None, None],
        }
    }
}

/// Which statistics a training pass hands out.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Save {
    pub(crate) mean: bool,
    pub(crate) rstd: bool,
}

/// What a pass writes.
#[derive(Clone, Debug)]
pub(crate) struct Outputs<T = TensorData> {
    /// `y`, or `dx`; not written where only statistics are taken.
    pub(crate) main: T,
    /// The mask of a ReLU.
    pub(crate) mask: Option<T>,
    /// The residual stream.
    pub(crate) stream: Option<T>,
    pub(crate) running: Option<[T; 2]>,
    /// Mean and rstd, or mean and variance where only statistics are taken.
    pub(crate) saved: [Option<T>; 2],
    pub(crate) dweight: Option<T>,
    pub(crate) dbias: Option<T>,
    pub(crate) dresidual: Option<T>,
}

/// `change` of both, or of neither.
fn both<T, U, E>(pair: Option<[T; 2]>, change: impl Fn(T) -> Result<U, E>) -> Result<Option<[U; 2]>, E> {
    let Some([a, b]) = pair else { return Ok(None) };
    Ok(Some([change(a)?, change(b)?]))
}

impl<T> Inputs<T> {
    fn as_ref(&self) -> Inputs<&T> {
        Inputs {
            x: &self.x,
            dy: self.dy.as_ref(),
            weight: self.weight.as_ref(),
            bias: self.bias.as_ref(),
            residual: self.residual.as_ref(),
            mask: self.mask.as_ref(),
            result: self.result.as_ref(),
            dstream: self.dstream.as_ref(),
            running: self.running.as_ref().map(<[T; 2]>::each_ref),
            saved: self.saved.each_ref().map(Option::as_ref),
        }
    }

    /// The same tensors elsewhere.
    fn try_map<U, E>(self, change: impl Fn(T) -> Result<U, E>) -> Result<Inputs<U>, E> {
        let [mean, rstd] = self.saved;
        Ok(Inputs {
            x: change(self.x)?,
            dy: self.dy.map(&change).transpose()?,
            weight: self.weight.map(&change).transpose()?,
            bias: self.bias.map(&change).transpose()?,
            residual: self.residual.map(&change).transpose()?,
            mask: self.mask.map(&change).transpose()?,
            result: self.result.map(&change).transpose()?,
            dstream: self.dstream.map(&change).transpose()?,
            running: both(self.running, &change)?,
            saved: [mean.map(&change).transpose()?, rstd.map(&change).transpose()?],
        })
    }
}

impl<T> Outputs<T> {
    /// The same tensors elsewhere.
    fn try_map<U, E>(self, change: impl Fn(T) -> Result<U, E>) -> Result<Outputs<U>, E> {
        let [mean, rstd] = self.saved;
        Ok(Outputs {
            main: change(self.main)?,
            mask: self.mask.map(&change).transpose()?,
            stream: self.stream.map(&change).transpose()?,
            running: both(self.running, &change)?,
            saved: [mean.map(&change).transpose()?, rstd.map(&change).transpose()?],
            dweight: self.dweight.map(&change).transpose()?,
            dbias: self.dbias.map(&change).transpose()?,
            dresidual: self.dresidual.map(&change).transpose()?,
        })
    }
}

/// A type and a length: a tensor that is still to be made.
type Blank = (DType, usize);

impl Outputs<Blank> {
    /// What a pass writes.
    fn of(desc: &NormDesc, g: &Geometry, updates_running: bool, save: Save) -> Outputs<Blank> {
        let backward = desc.get_pass().is_backward();
        let tensor = (desc.get_dtype(), g.elements());
        let parameter = (desc.get_param_dtype(), g.parameters);
        let statistic = (desc.get_statistics_dtype(), g.groups());
        let statistic = |wanted: bool| (wanted && !backward).then_some(statistic);
        let updates = updates_running && desc.get_pass() == Pass::Train;
        Outputs {
            main: tensor,
            mask: (!backward && desc.has_mask()).then_some((desc.get_dtype(), desc.mask_elements())),
            stream: (!backward && desc.has_stream()).then_some(tensor),
            running: updates.then_some([(desc.get_param_dtype(), g.channels); 2]),
            saved: match desc.get_pass() {
                Pass::Moments => [statistic(true), statistic(true)],
                _ => [statistic(save.mean), statistic(save.mean || save.rstd)],
            },
            dweight: (backward && desc.get_affine().has_weight()).then_some(parameter),
            dbias: (backward && desc.get_affine().has_bias()).then_some(parameter),
            dresidual: (backward && desc.has_residual()).then_some(tensor),
        }
    }
}

/// The arguments of a forward pass over these tensors.
fn forward<'t, T, R, W>(
    desc: &NormDesc,
    inputs: &'t Inputs<T>,
    outputs: &'t mut Outputs<T>,
    momentum: f64,
) -> ForwardArguments<R, W>
where
    &'t T: Into<R>,
    &'t mut T: Into<W>,
{
    if desc.get_pass() == Pass::Moments {
        let call = ForwardArguments::without_y(&inputs.x);
        return match &mut outputs.saved {
            [Some(mean), Some(var)] => call.save_variance(mean, var),
            _ => call,
        };
    }
    let mut call = match desc.is_in_place() {
        true => ForwardArguments::in_place(&mut outputs.main),
        false => ForwardArguments::new(&inputs.x, &mut outputs.main),
    };
    if let Some(weight) = &inputs.weight {
        call = call.weight(weight);
    }
    if let Some(bias) = &inputs.bias {
        call = call.bias(bias);
    }
    call = match (&inputs.residual, &mut outputs.stream) {
        (Some(residual), Some(stream)) => call.stream(residual, stream),
        (Some(residual), None) => call.residual(residual),
        (None, _) => call,
    };
    if let Some(mask) = &mut outputs.mask {
        call = call.save_mask(mask);
    }
    call = match (&mut outputs.running, &inputs.running) {
        (Some([mean, var]), _) => call.update_running(mean, var, momentum),
        (None, Some([mean, var])) => call.running(mean, var),
        (None, None) => call,
    };
    match &mut outputs.saved {
        [Some(mean), Some(rstd)] => call.save(mean, rstd),
        [None, Some(rstd)] => call.save_rstd(rstd),
        _ => call,
    }
}

/// The arguments of a backward pass over these tensors.
fn backward<'t, T, R, W>(desc: &NormDesc, inputs: &'t Inputs<T>, outputs: &'t mut Outputs<T>) -> BackwardArguments<R, W>
where
    &'t T: Into<R>,
    &'t mut T: Into<W>,
{
    let dy = inputs.dy.as_ref().unwrap_or(&inputs.x);
    let mut call = match desc.is_in_place() {
        true => BackwardArguments::in_place(&inputs.x, &mut outputs.main),
        false => BackwardArguments::new(&inputs.x, dy, &mut outputs.main),
    };
    if let Some(weight) = &inputs.weight {
        call = call.weight(weight);
    }
    if let Some(bias) = &inputs.bias {
        call = call.bias(bias);
    }
    if let Some(residual) = &inputs.residual {
        call = call.residual(residual);
    }
    if let Some(mask) = &inputs.mask {
        call = call.mask(mask);
    }
    if let Some(y) = &inputs.result {
        call = call.result(y);
    }
    if let Some(dstream) = &inputs.dstream {
        call = call.dstream(dstream);
    }
    if let Some([mean, var]) = &inputs.running {
        call = call.running(mean, var);
    }
    call = match &inputs.saved {
        [Some(mean), Some(rstd)] => call.saved(mean, rstd),
        [None, Some(rstd)] => call.saved_rstd(rstd),
        _ => call,
    };
    if let Some(dweight) = &mut outputs.dweight {
        call = call.dweight(dweight);
    }
    if let Some(dbias) = &mut outputs.dbias {
        call = call.dbias(dbias);
    }
    if let Some(dresidual) = &mut outputs.dresidual {
        call = call.dresidual(dresidual);
    }
    call
}
