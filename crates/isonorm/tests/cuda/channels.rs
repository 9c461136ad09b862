//! BatchNorm on a GPU: what takes more than one channel, or more than one kernel, to see.

use isonorm::cuda::{Backward, Buffer, Device, Forward, Stream, Workspace};
use isonorm::{NormDesc, Pass, Result, bf16};

use super::{gpu, repeated, say};

/// Elements of a tensor that no offset of 32 bits reaches, and more.
const LARGE: usize = (1 << 32) + (1 << 20);

fn number(i: usize, seed: usize) -> f32 {
    ((i * 7919 + seed) % 2003) as f32 / 500.0 - 2.0
}

/// A problem with its tensors.
struct Problem {
    desc: NormDesc,
    x: Buffer<f32>,
    dy: Buffer<f32>,
    y: Buffer<f32>,
    dx: Buffer<f32>,
    weight: Buffer<f32>,
    mean: Buffer<f32>,
    rstd: Buffer<f32>,
}

impl Problem {
    fn new(stream: &Stream, problem: &str) -> Result<Problem> {
        let desc: NormDesc = problem.parse()?;
        let plan = stream.device().plan(&desc)?;
        let g = plan.geometry();
        let (elements, parameters, groups) = (g.elements(), g.parameters, g.batch * g.kept);
        let numbers = |seed| (0..elements).map(|i| number(i, seed)).collect::<Vec<f32>>();
        Ok(Problem {
            desc,
            x: stream.upload(&numbers(1))?,
            dy: stream.upload(&numbers(2))?,
            y: stream.zeros(elements)?,
            dx: stream.zeros(elements)?,
            weight: stream.upload(&vec![1.5; parameters])?,
            mean: stream.zeros(groups)?,
            rstd: stream.zeros(groups)?,
        })
    }

    /// Forward and backward, into the stream.
    fn run(&mut self, stream: &Stream) -> Result<()> {
        let gpu = stream.device();
        let forward = Forward::new(&self.x, &mut self.y)
            .weight(&self.weight)
            .bias(&self.weight);
        let forward = forward.save(&mut self.mean, &mut self.rstd);
        stream.forward(&gpu.plan(&self.desc)?, forward, Workspace::Pool)?;
        let backward = Backward::new(&self.x, &self.dy, &mut self.dx).weight(&self.weight);
        let backward = backward.bias(&self.weight).saved(&self.mean, &self.rstd);
        let plan = gpu.plan(&self.desc.pass(Pass::Backward))?;
        stream.backward(&plan, backward, Workspace::Pool)
    }

    fn bits(&self) -> Result<Vec<u32>> {
        let results = [self.y.to_vec()?, self.dx.to_vec()?].concat();
        Ok(results.into_iter().map(f32::to_bits).collect())
    }
}

/// Blocks that wait for each other, in one stream, while another stream keeps the GPU full of blocks that do not, and of others that do:
/// everything ends, with the bits that it has alone.
#[test]
fn blocks_that_wait_for_each_other_end_beside_kernels_that_fill_the_gpu() -> Result<()> {
    let Some(gpu) = gpu("blocks that wait for each other") else {
        return Ok(());
    };
    let (one, other) = (gpu.stream()?, gpu.stream()?);
    let mut filling = Problem::new(&other, "layernorm x=65536x1024")?;
    let mut spinning = [
        Problem::new(&one, "batchnorm x=64x16x56x56")?,
        Problem::new(&one, "batchnorm x=64x64x75x75 act=relu")?,
        Problem::new(&one, "batchnorm x=64x64x56x56 layout=nhwc")?,
        Problem::new(&one, "groupnorm x=8x64x56x56 groups=8 layout=nhwc")?,
    ];
    let mut beside = Problem::new(&other, "batchnorm x=64x64x56x56 layout=nhwc")?;
    let mut alone = Vec::new();
    for problem in &mut spinning {
        let plan = gpu.plan(&problem.desc)?;
        assert!(plan.kernels()[0].resident, "{}", *plan);
        problem.run(&one)?;
        alone.push(problem.bits()?);
    }
    for _ in 0..20 {
        filling.run(&other)?;
        beside.run(&other)?;
        spinning.iter_mut().try_for_each(|problem| problem.run(&one))?;
    }
    other.synchronize()?;
    for (problem, alone) in spinning.iter().zip(&alone) {
        assert!(problem.bits()? == *alone, "{}: other bits", problem.desc);
    }
    Ok(())
}

/// Channels of a tensor of more than 2^32 elements, of which all have the same numbers: every result is, bit by bit, that of the first.
fn of_large(gpu: &Device, [batch, channels, side]: [usize; 3], last: bool, pass: Pass) -> Result<()> {
    let all = batch * channels * side * side;
    assert!(all >= LARGE, "{all} elements");
    let needed = 3 * all * size_of::<bf16>() + (2 << 30);
    let (free, _) = gpu.memory()?;
    if free < needed {
        say(&format!(
            "BatchNorm of {all} elements: {needed} bytes are needed, {free} are free"
        ));
        return Ok(());
    }
    let stream = gpu.stream()?;
    let desc = NormDesc::batch_norm([batch, channels, side, side]).dtype(isonorm::DType::Bf16);
    let desc = if last { desc.channels_last() } else { desc };
    // An image's piece of a channel, or a position's channels, again and again.
    let piece = if last { channels } else { side * side };
    let pattern = |seed: usize| -> Vec<bf16> {
        let of = |i: usize| if last { i / channels } else { i % piece };
        (0..piece * 1024).map(|i| bf16::from_f32(number(of(i), seed))).collect()
    };
    let filled = |seed| repeated(&stream, &stream.upload(&pattern(seed))?, all);
    let (x, dy) = (filled(1)?, filled(2)?);
    let (mut mean, mut rstd) = (stream.zeros::<f32>(channels)?, stream.zeros::<f32>(channels)?);
    let weight = stream.upload(&vec![1.5f32; channels])?;
    let mut out = stream.zeros::<bf16>(all)?;
    let forward = Forward::new(&x, &mut out)
        .weight(&weight)
        .bias(&weight)
        .save(&mut mean, &mut rstd);
    stream.forward(&gpu.plan(&desc)?, forward, Workspace::Pool)?;
    if pass.is_backward() {
        let backward = Backward::new(&x, &dy, &mut out).weight(&weight).saved(&mean, &rstd);
        stream.backward(&gpu.plan(&desc.pass(pass))?, backward, Workspace::Pool)?;
    }
    let (mean, rstd) = (mean.to_vec()?, rstd.to_vec()?);
    assert!(rstd[0] > 0.1 && rstd[0] < 10.0, "rstd {}", rstd[0]);
    let same = |numbers: &[f32]| numbers.iter().all(|number| number.to_bits() == numbers[0].to_bits());
    assert!(same(&mean) && same(&rstd), "channels differ");
    // Results at the start of the tensor, behind 2^32 elements, and at its end.
    let count = piece * 1024;
    let mut some = stream.zeros::<bf16>(count)?;
    let first = {
        let to = some.get_mut(0..count).expect("in bounds");
        stream.copy(out.get(0..count).expect("in bounds"), to)?;
        some.to_vec()?
    };
    assert!(first.iter().any(|number| number.to_f32() != 0.0), "nothing was written");
    for start in [(1 << 32) / count * count, all / count * count - count] {
        let to = some.get_mut(0..count).expect("in bounds");
        stream.copy(out.get(start..start + count).expect("in bounds"), to)?;
        assert!(
            some.to_vec()? == first,
            "{desc} {pass:?}: other bits from element {start} on"
        );
    }
    Ok(())
}

#[test]
fn batch_norm_of_more_than_2_32_elements() -> Result<()> {
    let Some(gpu) = gpu("BatchNorm of more than 2^32 elements") else {
        return Ok(());
    };
    for pass in [Pass::Train, Pass::Backward] {
        of_large(&gpu, [1025, 1024, 64], false, pass)?;
        of_large(&gpu, [1025, 1024, 64], true, pass)?;
    }
    Ok(())
}

/// Evaluation of two images of more than 2^31 elements, whose numbers repeat: every result is, bit by bit, that of the same number of its channel
/// in a small tensor.
#[test]
fn evaluation_of_images_of_more_than_2_31_elements() -> Result<()> {
    /// Elements of the small tensor's images, on no boundary of an access.
    const PERIOD: usize = 10_007;
    let Some(gpu) = gpu("evaluation of images of more than 2^31 elements") else {
        return Ok(());
    };
    let image = PERIOD * ((1 << 31) / PERIOD + 100);
    let needed = 2 * 2 * image * size_of::<bf16>() + (1 << 30);
    let (free, _) = gpu.memory()?;
    if free < needed {
        say(&format!(
            "evaluation of images of {image} elements: {needed} bytes are needed, {free} are free"
        ));
        return Ok(());
    }
    let stream = gpu.stream()?;
    let channels = [0.5f32, -1.25];
    let (mean, var) = (stream.upload(&channels)?, stream.upload(&[2.0f32, 0.75])?);
    let (weight, bias) = (stream.upload(&[1.5f32, 0.25])?, stream.upload(&channels)?);
    let evaluated = |image: usize, x: &Buffer<bf16>| -> Result<Buffer<bf16>> {
        let desc = NormDesc::batch_norm([1, 2, image])
            .dtype(isonorm::DType::Bf16)
            .activation(isonorm::Activation::Relu)
            .pass(Pass::Eval);
        let mut y = stream.zeros::<bf16>(2 * image)?;
        let forward = Forward::new(x, &mut y).weight(&weight).bias(&bias).running(&mean, &var);
        stream.forward(&gpu.plan(&desc)?, forward, Workspace::Pool)?;
        Ok(y)
    };
    let periods = |count| -> Vec<bf16> {
        let number = |i| bf16::from_f32(number(i % PERIOD, 1));
        (0..count * PERIOD).map(number).collect()
    };
    let expected = evaluated(PERIOD, &stream.upload(&periods(2))?)?.to_vec()?;
    let x = repeated(&stream, &stream.upload(&periods(1024))?, 2 * image)?;
    let y = evaluated(image, &x)?;
    let mut some = stream.zeros::<bf16>(2 * PERIOD)?;
    // At both ends of the tensor, at the boundary between the images, and behind 2^31 elements.
    let places = [0, (1 << 31) / PERIOD * PERIOD, image - PERIOD, 2 * image - 2 * PERIOD];
    for start in places {
        let to = some.get_mut(0..2 * PERIOD).expect("in bounds");
        stream.copy(y.get(start..start + 2 * PERIOD).expect("in bounds"), to)?;
        for (half, numbers) in some.to_vec()?.chunks(PERIOD).enumerate() {
            let channel = (start + half * PERIOD) / image;
            let expected = &expected[channel * PERIOD..(channel + 1) * PERIOD];
            assert!(numbers == expected, "other bits from element {start} on, half {half}");
        }
    }
    Ok(())
}
