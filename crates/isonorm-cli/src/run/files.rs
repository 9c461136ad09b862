//! What `isonorm run` reads.

use isonorm::{Device, NormDesc, Pass};

use super::args::Args;
use crate::call::{Inputs, statistics_of};
use crate::error::{Error, Result};
use crate::io::{Array, Source};

/// The arguments that are files, read.
pub(super) struct Files<'a> {
    pub(super) x: File<'a>,
    grad: Option<File<'a>>,
    pub(super) weight: Option<File<'a>>,
    pub(super) bias: Option<File<'a>>,
    residual: Option<File<'a>>,
    dstream: Option<File<'a>>,
    pub(super) running_mean: Option<File<'a>>,
    running_var: Option<File<'a>>,
    mean: Option<File<'a>>,
    rstd: Option<File<'a>>,
}

/// A file and the array in it.
pub(super) type File<'a> = (&'a Source, Array);

/// Shapes in files, which outputs take over.
pub(super) struct Shapes {
    pub(super) x: Vec<usize>,
    pub(super) weight: Option<Vec<usize>>,
}

impl<'a> Files<'a> {
    pub(super) fn read(args: &'a Args) -> Result<Files<'a>> {
        let read = |source: &'a Source| source.read().map(|array| (source, array));
        let maybe = |source: &'a Option<Source>| source.as_ref().map(read).transpose();
        let files = Files {
            x: read(&args.input)?,
            grad: maybe(&args.grad)?,
            weight: maybe(&args.weight)?,
            bias: maybe(&args.bias)?,
            residual: maybe(&args.residual)?,
            dstream: maybe(&args.dstream)?,
            running_mean: maybe(&args.running_mean)?,
            running_var: maybe(&args.running_var)?,
            mean: maybe(&args.mean)?,
            rstd: maybe(&args.rstd)?,
        };
        match () {
            () if files.running_mean.is_some() != files.running_var.is_some() => {
                Err(Error::usage("--running-mean and --running-var go together"))
            }
            () if files.bias.is_some() && files.weight.is_none() => Err(Error::usage(
                "--bias needs --weight: there is no affine map with a bias only",
            )),
            () if files.mean.is_some() && files.rstd.is_none() => {
                Err(Error::usage("--mean needs --rstd: the forward pass saves both"))
            }
            () => Ok(files),
        }
    }

    /// Each file with the name of the argument it is for.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&'static str, &Source, &Array)> {
        [
            ("x", Some(&self.x)),
            ("dy", self.grad.as_ref()),
            ("weight", self.weight.as_ref()),
            ("bias", self.bias.as_ref()),
            ("residual", self.residual.as_ref()),
            ("dstream", self.dstream.as_ref()),
            ("running_mean", self.running_mean.as_ref()),
            ("running_var", self.running_var.as_ref()),
            ("mean", self.mean.as_ref()),
            ("rstd", self.rstd.as_ref()),
        ]
        .into_iter()
        .filter_map(|(name, file)| file.map(|(source, array)| (name, *source, array)))
    }

    pub(super) fn shapes(&self) -> Shapes {
        let shape = |file: &File<'_>| file.1.shape.clone();
        Shapes {
            x: shape(&self.x),
            weight: self.weight.as_ref().map(shape),
        }
    }

    /// The tensors to compute with. The statistics that a backward pass needs are computed when no file has them.
    pub(super) fn into_inputs(self, desc: &NormDesc, device: &Device) -> Result<Inputs> {
        let backward = desc.get_pass().is_backward();
        match (&self.grad, backward) {
            (None, true) => {
                return Err(Error::usage(format!(
                    "--grad is missing: pass={} needs it",
                    desc.get_pass().name()
                )));
            }
            (Some(_), false) => {
                let pass = desc.get_pass().name();
                return Err(Error::usage(format!(
                    "--grad was given but pass={pass} computes no gradient"
                )));
            }
            _ => {}
        }
        let given = self.mean.is_some() || self.rstd.is_some();
        if given && desc.get_pass() != Pass::Backward {
            return Err(Error::usage("--mean and --rstd are read by pass=backward only"));
        }
        let data = |file: Option<File<'_>>| file.map(|(_, array)| array.data);
        let x = self.x.1.data;
        let saved = match desc.get_pass() == Pass::Backward && !given {
            true => statistics_of(desc, &x, device)?,
            false => [data(self.mean), data(self.rstd)],
        };
        Ok(Inputs {
            x,
            dy: data(self.grad),
            weight: data(self.weight),
            bias: data(self.bias),
            residual: data(self.residual),
            mask: None,
            result: None,
            dstream: data(self.dstream),
            running: data(self.running_mean).zip(data(self.running_var)).map(<[_; 2]>::from),
            saved,
        })
    }
}
