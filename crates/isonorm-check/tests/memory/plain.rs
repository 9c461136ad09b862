//! A pass with every argument that its description has, on a few different numbers and without guards.

use isonorm::{Backward, DType, Device, Forward, Pass, Plan, TensorData, Workspace};

/// Numbers around zero.
fn numbers(dtype: DType, len: usize, seed: usize) -> TensorData {
    let values: Vec<f64> = (0..len).map(|i| ((i * 7 + seed) % 11) as f64 - 4.5).collect();
    TensorData::from_f64(dtype, &values)
}

/// Runs a plan's pass; returns what it made of `x` or of `dy`.
pub fn run(device: &Device, plan: &Plan) -> TensorData {
    let (desc, g) = (plan.desc(), plan.geometry());
    let (norm, affine, pass) = (desc.get_norm(), desc.get_affine(), desc.get_pass());
    let (dtype, param) = (desc.get_dtype(), desc.get_param_dtype());
    let mut workspace = Workspace::new(plan);

    let like_x = |seed| numbers(dtype, g.elements(), seed);
    let parameter = |has: bool, seed| has.then(|| numbers(param, g.parameters, seed));
    let (mut x, mut out) = (like_x(0), like_x(1));
    let residual = desc.has_residual().then(|| like_x(2));
    let (weight, bias) = (parameter(affine.has_weight(), 3), parameter(affine.has_bias(), 4));
    let mut running_mean = numbers(param, g.channels, 5);
    let mut running_var = TensorData::from_f64(param, &vec![2.0; g.channels]);
    let (mut mean, mut rstd) = (
        numbers(DType::F64, g.groups(), 6),
        numbers(desc.get_statistics_dtype(), g.groups(), 7),
    );

    if !pass.is_backward() {
        let mut forward = match desc.is_in_place() {
            true => Forward::in_place(x.view_mut()),
            false => Forward::new(x.view(), out.view_mut()),
        };
        forward = weight.iter().fold(forward, |forward, w| forward.weight(w.view()));
        forward = bias.iter().fold(forward, |forward, b| forward.bias(b.view()));
        forward = residual.iter().fold(forward, |forward, r| forward.residual(r.view()));
        if pass == Pass::Train {
            forward = match norm.is_centred() {
                true => forward.save(mean.view_mut(), rstd.view_mut()),
                false => forward.save_rstd(rstd.view_mut()),
            };
            if norm.has_running_statistics() {
                forward = forward.update_running(running_mean.view_mut(), running_var.view_mut(), 0.25);
            }
        } else if desc.uses_running_statistics() {
            forward = forward.running(running_mean.view(), running_var.view());
        }
        device
            .forward(plan, forward, &mut workspace)
            .expect("arguments that fit");
        return if desc.is_in_place() { x } else { out };
    }

    let mut dy = like_x(8);
    let mut dresidual = desc.has_residual().then(|| like_x(9));
    let [mut dweight, mut dbias] = [&weight, &bias].map(Clone::clone);
    let mut backward = match desc.is_in_place() {
        true => Backward::in_place(x.view(), dy.view_mut()),
        false => Backward::new(x.view(), dy.view(), out.view_mut()),
    };
    backward = weight.iter().fold(backward, |backward, w| backward.weight(w.view()));
    backward = bias.iter().fold(backward, |backward, b| backward.bias(b.view()));
    backward = residual
        .iter()
        .fold(backward, |backward, r| backward.residual(r.view()));
    backward = dweight
        .iter_mut()
        .fold(backward, |backward, d| backward.dweight(d.view_mut()));
    backward = dbias
        .iter_mut()
        .fold(backward, |backward, d| backward.dbias(d.view_mut()));
    backward = dresidual
        .iter_mut()
        .fold(backward, |backward, d| backward.dresidual(d.view_mut()));
    backward = match (desc.uses_running_statistics(), norm.is_centred()) {
        (true, _) => backward.running(running_mean.view(), running_var.view()),
        (false, true) => backward.saved(mean.view(), rstd.view()),
        (false, false) => backward.saved_rstd(rstd.view()),
    };
    device
        .backward(plan, backward, &mut workspace)
        .expect("arguments that fit");
    if desc.is_in_place() { dy } else { out }
}
