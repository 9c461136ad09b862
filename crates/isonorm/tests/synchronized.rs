//! What the ranks of a synchronized BatchNorm are made of: moments of a part of the batch, sums of another, and the whole batch's result.

use isonorm::{Activation, Backward, DType, Device, Error, Forward, NormDesc, Pass, Result, Workspace};

const CHANNELS: usize = 6;
const SPATIAL: usize = 35;

fn forward(desc: &NormDesc, arguments: Forward<'_>) -> Result<()> {
    let device = Device::cpu();
    let plan = device.plan(desc)?;
    device.forward(&plan, arguments, &mut Workspace::new(&plan))
}

fn backward(desc: &NormDesc, arguments: Backward<'_>) -> Result<()> {
    let device = Device::cpu();
    let plan = device.plan(desc)?;
    device.backward(&plan, arguments, &mut Workspace::new(&plan))
}

fn numbers(len: usize, seed: usize, scale: f32, mean: f32) -> Vec<f32> {
    let of = |i: usize| ((i * 7919 + seed * 104_729) % 1009) as f32 / 1009.0 - 0.5;
    (0..len).map(|i| mean + scale * of(i)).collect()
}

/// Mean and variance of all from those of parts, by Chan's formula.
fn merged(parts: &[(usize, Vec<f64>, Vec<f32>)]) -> (Vec<f64>, Vec<f32>) {
    let count: usize = parts.iter().map(|p| p.0).sum();
    let mean = |c: usize| parts.iter().map(|p| p.0 as f64 * p.1[c]).sum::<f64>() / count as f64;
    let var = |c: usize| {
        let mean = mean(c);
        let m2 = |p: &(usize, Vec<f64>, Vec<f32>)| p.0 as f64 * (f64::from(p.2[c]) + (p.1[c] - mean).powi(2));
        parts.iter().map(m2).sum::<f64>() / count as f64
    };
    (
        (0..CHANNELS).map(mean).collect(),
        (0..CHANNELS).map(|c| var(c) as f32).collect(),
    )
}

#[track_caller]
fn near(got: &[f32], expected: &[f32], tolerance: f32) {
    let largest = expected.iter().fold(0f32, |l, v| l.max(v.abs()));
    for (i, (g, e)) in got.iter().zip(expected).enumerate() {
        assert!((g - e).abs() <= tolerance * largest, "{i}: {g} and {e}");
    }
}

/// Ranks of 3, 0, 1 and 5 samples, against one BatchNorm of all nine.
fn ranks(desc: impl Fn(usize) -> NormDesc, mean: f32) {
    let batches = [3, 0, 1, 5];
    let sample = CHANNELS * SPATIAL;
    let len = 9 * sample;
    let (x, dy, residual) = (
        numbers(len, 1, 2.0, mean),
        numbers(len, 2, 1.0, 0.1),
        numbers(len, 3, 1.0, 0.0),
    );
    let (weight, bias) = (numbers(CHANNELS, 4, 1.0, 1.0), numbers(CHANNELS, 5, 1.0, 0.0));

    // All of it at once.
    let all = desc(9);
    let (mut y, mut dx, mut dr) = (vec![0f32; len], vec![0f32; len], vec![0f32; len]);
    let (mut saved, mut rstd) = (vec![0f64; CHANNELS], vec![0f32; CHANNELS]);
    let (mut dw, mut db) = (vec![0f32; CHANNELS], vec![0f32; CHANNELS]);
    let arguments = Forward::new(&x, &mut y).weight(&weight).bias(&bias).residual(&residual);
    forward(&all, arguments.save(&mut saved, &mut rstd)).unwrap();
    let arguments = Backward::new(&x, &dy, &mut dx)
        .weight(&weight)
        .bias(&bias)
        .residual(&residual);
    let arguments = arguments
        .saved(&saved, &rstd)
        .dweight(&mut dw)
        .dbias(&mut db)
        .dresidual(&mut dr);
    backward(&all.pass(Pass::Backward), arguments).unwrap();

    // Each rank its moments.
    let starts = |rank: usize| batches[..rank].iter().sum::<usize>() * sample;
    let part = |rank: usize| starts(rank)..starts(rank) + batches[rank] * sample;
    let parts: Vec<_> = (0..batches.len())
        .map(|rank| {
            let (mut mean, mut var) = (vec![f64::NAN; CHANNELS], vec![f32::NAN; CHANNELS]);
            let arguments = Forward::without_y(&x[part(rank)]).save_variance(&mut mean, &mut var);
            forward(&desc(batches[rank]).moments(), arguments).unwrap();
            (batches[rank] * SPATIAL, mean, var)
        })
        .collect();
    assert_eq!(parts[1], (0, vec![0.0; CHANNELS], vec![0.0; CHANNELS]));
    let (mean, var) = merged(&parts);

    // The result, and the sums.
    let (mut own_y, mut sums) = (vec![0f32; len], [[0f64; CHANNELS]; 2]);
    for (rank, samples) in batches.into_iter().enumerate() {
        let (desc, part) = (desc(samples), part(rank));
        let arguments = Forward::new(&x[part.clone()], &mut own_y[part.clone()]);
        let arguments = arguments.weight(&weight).bias(&bias).residual(&residual[part.clone()]);
        forward(&desc.pass(Pass::Eval), arguments.running(&mean, &var)).unwrap();
        let (mut dw, mut db) = (vec![f32::NAN; CHANNELS], vec![f32::NAN; CHANNELS]);
        let arguments = Backward::without_dx(&x[part.clone()], &dy[part.clone()]);
        let arguments = arguments.weight(&weight).bias(&bias).residual(&residual[part]);
        let arguments = arguments.running(&mean, &var).dweight(&mut dw).dbias(&mut db);
        backward(&desc.pass(Pass::BackwardEval), arguments).unwrap();
        for (sums, own) in sums.iter_mut().zip([&db, &dw]) {
            sums.iter_mut().zip(own).for_each(|(sum, own)| *sum += f64::from(*own));
        }
    }
    near(&own_y, &y, 1e-5);
    let count = (9 * SPATIAL) as f64;
    let [mean_g, mean_gx] = sums.map(|sums| sums.map(|sum| (sum / count) as f32).to_vec());
    near(&sums[0].map(|s| s as f32), &db, 1e-5);
    near(&sums[1].map(|s| s as f32), &dw, 1e-5);

    // The gradient of x.
    let (mut own_dx, mut own_dr) = (vec![0f32; len], vec![0f32; len]);
    for (rank, samples) in batches.into_iter().enumerate() {
        let (desc, part) = (desc(samples), part(rank));
        let arguments = Backward::new(&x[part.clone()], &dy[part.clone()], &mut own_dx[part.clone()]);
        let arguments = arguments.weight(&weight).bias(&bias).residual(&residual[part.clone()]);
        let arguments = arguments
            .running(&mean, &var)
            .means(&mean_g, &mean_gx)
            .dresidual(&mut own_dr[part]);
        backward(&desc.pass(Pass::BackwardEval), arguments).unwrap();
    }
    near(&own_dx, &dx, 1e-5);
    assert_eq!(own_dr, dr);
}

#[test]
fn ranks_together_are_one_batch() {
    for mean in [0.0, 300.0] {
        let first = |n: usize| {
            NormDesc::batch_norm([n, CHANNELS, SPATIAL])
                .activation(Activation::Relu)
                .residual(true)
        };
        ranks(first, mean);
        ranks(|n| first(n).channels_last(), mean);
    }
}

fn refused(desc: &str, call: impl FnOnce(&NormDesc) -> Result<()>) -> String {
    call(&desc.parse().expect("a valid description"))
        .expect_err(desc)
        .to_string()
}

#[test]
fn moments_refuse_what_they_have_no_use_for() {
    let (x, mut y) = (vec![1f32; 24], vec![0f32; 24]);
    let (mut mean, mut var, mut rstd) = (vec![0f32; 3], vec![0f32; 3], vec![0f32; 3]);
    let moments = "batchnorm x=2x3x4 affine=none pass=moments";
    let said = refused(moments, |d| forward(d, Forward::new(&x, &mut y)));
    assert!(
        said.contains("y was given but pass=moments writes none (pass x to without_y)"),
        "{said}"
    );
    let said = refused("batchnorm x=2x3x4 affine=none", |d| forward(d, Forward::without_y(&x)));
    assert!(said.contains("y is missing: only pass=moments writes none"), "{said}");
    let said = refused(moments, |d| {
        forward(d, Forward::without_y(&x).save(&mut mean, &mut rstd))
    });
    assert!(
        said.contains("pass=moments saves the variance (save_variance)"),
        "{said}"
    );
    let said = refused("batchnorm x=2x3x4 affine=none", |d| {
        forward(d, Forward::new(&x, &mut y).save_variance(&mut mean, &mut var))
    });
    assert!(said.contains("only pass=moments saves it"), "{said}");
    let said = refused(moments, |d| {
        forward(d, Forward::without_y(&x).update_running(&mut mean, &mut var, 0.1))
    });
    assert!(said.contains("pass=moments may be of a part of a batch"), "{said}");
    let said = refused(moments, |d| forward(d, Forward::without_y(&x).weight(&mean)));
    assert!(
        said.contains("weight was given but the description's affine has none"),
        "{said}"
    );
    let said = refused(moments, |d| {
        forward(d, Forward::without_y(&x).save_variance(&mut mean, &mut vec![0f32; 4]))
    });
    assert!(said.contains("var has 4 elements, expected 3"), "{said}");
    let said = refused(moments, |d| {
        forward(d, Forward::without_y(&x).save_variance(&mut mean, &mut vec![0f64; 3]))
    });
    assert!(said.contains("var is f64, expected f32"), "{said}");
    for (problem, why) in [
        (
            "layernorm x=2x3 affine=none pass=moments",
            "pass=moments is for batchnorm",
        ),
        (
            "batchnorm x=2x3 pass=moments",
            "pass=moments does nothing with elements",
        ),
        (
            "batchnorm x=2x3 affine=none act=relu pass=moments",
            "pass=moments does nothing with elements",
        ),
    ] {
        let said = problem.parse::<NormDesc>().expect_err(problem).to_string();
        assert!(said.contains(why), "{said}");
    }
    let desc: NormDesc = "batchnorm x=1x3 act=relu residual=add dtype=bf16 pass=backward"
        .parse()
        .unwrap();
    assert_eq!(
        desc.moments().to_string(),
        "batchnorm x=1x3 dtype=bf16 param=f32 affine=none pass=moments"
    );
    desc.moments().check().unwrap();
}

#[test]
fn a_constant_channel_has_no_variance() {
    let (x, mut mean, mut var) = (vec![0.1f32; 24], vec![0f64; 3], vec![1f32; 3]);
    let desc = NormDesc::batch_norm([2, 3, 4]).moments();
    forward(&desc, Forward::without_y(&x).save_variance(&mut mean, &mut var)).unwrap();
    assert_eq!((mean, var), (vec![f64::from(0.1f32); 3], vec![0.0; 3]));
    assert_eq!(desc.get_dtype(), DType::F32);
}

#[test]
fn means_are_for_a_dx_through_statistics_that_are_told() {
    let (x, mut dx, three, wide) = (vec![1f32; 24], vec![0f32; 24], vec![1f32; 3], vec![1f64; 3]);
    let told = "batchnorm x=2x3x4 affine=none pass=backward_eval";
    let through = |problem: &str| problem.replace("backward_eval", "backward");
    let said = refused(&through(told), |d| {
        let arguments = Backward::new(&x, &x, &mut dx).saved(&three, &three);
        backward(d, arguments.means(&three, &three))
    });
    assert!(
        said.contains("mean_g and mean_gx was given but pass=backward computes them"),
        "{said}"
    );
    let said = refused("instancenorm x=2x3x4 pass=backward_eval", |d| {
        let arguments = Backward::new(&x, &x, &mut dx).running(&three, &three);
        backward(d, arguments.means(&three, &three))
    });
    assert!(said.contains("they are for batchnorm"), "{said}");
    let said = refused(told, |d| {
        let arguments = Backward::without_dx(&x, &x).running(&three, &three);
        backward(d, arguments.means(&three, &three))
    });
    assert!(said.contains("there is no dx that needs them"), "{said}");
    let said = refused(told, |d| {
        let arguments = Backward::new(&x, &x, &mut dx).running(&three, &three);
        backward(d, arguments.means(&three, &wide))
    });
    assert!(said.contains("mean_gx is f64, expected f32"), "{said}");
    let desc: NormDesc = told.parse().unwrap();
    let arguments = Backward::new(&x, &x, &mut dx).running(&wide, &three);
    backward(&desc, arguments.means(&three, &three)).unwrap();
    // The mean may be f64, the variance has the parameters' type.
    let arguments = Backward::new(&x, &x, &mut dx).running(&three, &wide);
    let error = backward(&desc, arguments).unwrap_err();
    assert!(
        matches!(
            error,
            Error::DTypeMismatch {
                tensor: "running_var",
                ..
            }
        ),
        "{error}"
    );
}
