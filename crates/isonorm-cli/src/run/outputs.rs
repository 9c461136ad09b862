//! What `isonorm run` writes: names and shapes.

use isonorm::{Norm, NormDesc, Over, Pass, TensorData};

use super::files::Shapes;
use crate::call::{Outputs, Save};
use crate::io::Array;

/// The results that go to files, the main one first.
pub(super) fn named(desc: &NormDesc, outputs: Outputs, save: Save, shapes: &Shapes) -> Vec<(&'static str, Array)> {
    let parameters = shapes.weight.clone().unwrap_or_else(|| parameters_shape(desc));
    let [mean, rstd] = outputs.saved;
    let [running_mean, running_var] = outputs.running.map_or([None, None], |r| r.map(Some));
    let mut named = Vec::new();
    let mut add = |name, data: Option<TensorData>, shape: Vec<usize>| {
        named.extend(data.map(|data| (name, Array { shape, data })));
    };
    if desc.get_pass() == Pass::Moments {
        add("mean", mean, statistics_shape(desc));
        add("var", rstd, statistics_shape(desc));
        return named;
    }
    add(
        if desc.get_pass().is_backward() { "dx" } else { "y" },
        Some(outputs.main),
        shapes.x.clone(),
    );
    add("stream", outputs.stream, shapes.x.clone());
    add("mean", mean.filter(|_| save.mean), statistics_shape(desc));
    add("rstd", rstd.filter(|_| save.rstd), statistics_shape(desc));
    add("running_mean", running_mean, parameters_shape(desc));
    add("running_var", running_var, parameters_shape(desc));
    add("dweight", outputs.dweight, parameters.clone());
    add("dbias", outputs.dbias, parameters);
    add("dresidual", outputs.dresidual, shapes.x.clone());
    named
}

/// The dimensions that groups differ in: one mean and rstd each.
fn statistics_shape(desc: &NormDesc) -> Vec<usize> {
    let shape = desc.get_shape();
    let dims = shape.dims();
    match desc.get_norm() {
        Norm::Batch => vec![dims[1]],
        Norm::Instance => dims[..2].to_vec(),
        Norm::Group { groups } => vec![dims[0], groups],
        Norm::Layer(Over::Last(n)) | Norm::Rms(Over::Last(n)) => dims[..dims.len() - n].to_vec(),
        Norm::Layer(Over::Channels) | Norm::Rms(Over::Channels) => [&dims[..1], &dims[2..]].concat(),
    }
}

/// The dimensions of weight, bias and running statistics.
fn parameters_shape(desc: &NormDesc) -> Vec<usize> {
    let shape = desc.get_shape();
    let dims = shape.dims();
    match desc.get_norm() {
        Norm::Layer(Over::Last(n)) | Norm::Rms(Over::Last(n)) => dims[dims.len() - n..].to_vec(),
        _ => vec![dims[1]],
    }
}
