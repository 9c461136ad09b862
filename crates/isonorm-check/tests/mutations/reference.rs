//! A plain engine in `f64` with one mistake.

use isonorm::{Activation, DType, Norm, NormDesc, Pass, Result, TensorData, bf16};
use isonorm_check::oracle::{Index, activation};
use isonorm_check::{BackwardInputs, Engine, ForwardInputs, Output, Outputs, Running};

/// A mistake that somebody made, or will make.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Mistake {
    None,
    /// The variance that y uses is divided by n − 1.
    UnbiasedVariance,
    /// E[x²] − E[x]² in `f32`.
    MeanOfSquares,
    NoEps,
    /// The mean that x̂ uses is rounded to `f32`.
    NarrowMean,
    /// Sums are kept in `bf16`.
    SumsInBf16,
    /// Sums are kept in one `f32`, one term after the other, about zero.
    PlainSums,
    /// Distances are taken from the first element, whatever it is.
    FirstIsShift,
    /// The last element of a group is left out of the statistics.
    TailDropped,
    /// Running variances are the biased ones.
    BiasedRunningVariance,
    /// Old and new statistics have each other's factor (ONNX's momentum).
    MomentumSwapped,
    /// Parameters are one channel off.
    NextParameter,
    /// The approximation where the exact GELU was asked for.
    WrongGelu,
    /// The residual is added behind the activation.
    ResidualLast,
    /// The residual stream is normalized before it is rounded.
    StreamUnrounded,
    /// The residual stream is written, but it is x that is normalized.
    StreamIgnored,
    /// The gradient of the residual stream is forgotten.
    NoDstream,
    /// ReLU passes gradients at 0.
    ReluAtZero,
    /// Two of a mask's elements have each other's bit.
    MaskSwapped,
    /// The mask is of what the residual is added to.
    MaskWithoutResidual,
    /// dx without the x̂ term.
    NoXhatTerm,
    /// dx without the mean of g.
    NoMeanTerm,
    /// The means that are told are taken for those of g with its weight.
    MeansUnweighted,
    /// The means that are told are not looked at.
    MeansIgnored,
    /// dx goes through running statistics as if they were the batch's.
    EvalAsTrain,
    /// The weight's gradient ignores the activation.
    GradientPastActivation,
    /// Results are cut off, not rounded.
    Truncated,
    /// Subnormal results are 0.
    Flushed,
    /// The last element is never written.
    Unwritten,
    /// A NaN in one group reaches the next.
    NanSpreads,
}

/// The engine.
pub struct Reference(pub Mistake);

struct Normalizer {
    mean: f64,
    var: f64,
    rstd: f64,
    count: usize,
}

fn values(data: &Option<TensorData>) -> Option<Vec<f64>> {
    data.as_ref().map(TensorData::to_f64)
}

impl Reference {
    fn is(&self, mistake: Mistake) -> bool {
        self.0 == mistake
    }

    fn sum(&self, terms: impl Iterator<Item = f64>) -> f64 {
        match self.0 {
            Mistake::SumsInBf16 => terms.fold(0.0, |s, t| bf16::from_f64(s + t).to_f64()),
            Mistake::PlainSums => terms.fold(0f32, |s, t| s + t as f32).into(),
            _ => terms.sum(),
        }
    }

    fn normalizer(&self, desc: &NormDesc, members: &[usize], x: &[f64]) -> Normalizer {
        let kept = members.len() - usize::from(self.is(Mistake::TailDropped) && members.len() > 1);
        let members = &members[..kept];
        let n = members.len() as f64;
        let of = |i: &usize| x[*i];
        let centred = desc.get_norm().is_centred();
        let about = match self.0 {
            Mistake::PlainSums => 0.0,
            Mistake::FirstIsShift => members.first().map_or(0.0, of),
            _ => {
                let mut samples: Vec<f64> = members.iter().take(3).map(of).collect();
                samples.sort_by(f64::total_cmp);
                samples.get(samples.len() / 2).copied().unwrap_or(0.0)
            }
        };
        let shift = self.sum(members.iter().map(|i| of(i) - about)) / n;
        let mean = if centred { about + shift } else { 0.0 };
        let mut var = self.sum(members.iter().map(|i| {
            let d = if centred && !self.is(Mistake::PlainSums) {
                (of(i) - about) - shift
            } else {
                of(i) - mean
            };
            d * d
        })) / n;
        if self.is(Mistake::UnbiasedVariance) {
            var *= n / (n - 1.0);
        }
        if self.is(Mistake::MeanOfSquares) {
            let squares = members.iter().fold(0f32, |s, i| s + (of(i) * of(i)) as f32);
            let mean = mean as f32;
            var = (squares / n as f32 - mean * mean).max(0.0).into();
        }
        self.finished(desc, mean, var, members.len())
    }

    fn finished(&self, desc: &NormDesc, mean: f64, var: f64, count: usize) -> Normalizer {
        let eps = if self.is(Mistake::NoEps) { 0.0 } else { desc.get_eps() };
        let mean = if self.is(Mistake::NarrowMean) {
            f64::from(mean as f32)
        } else {
            mean
        };
        Normalizer {
            mean,
            var,
            rstd: 1.0 / (var + eps).sqrt(),
            count,
        }
    }

    /// Running statistics, where the description uses those.
    fn given(&self, desc: &NormDesc, index: &Index, running: Option<&Running>) -> Option<Vec<Normalizer>> {
        let running = running.filter(|_| desc.uses_running_statistics())?;
        let (mean, var) = (running.mean.to_f64(), running.var.to_f64());
        let of_channel = |&c: &usize| self.finished(desc, mean[c], var[c], 0);
        Some(index.channel.iter().map(of_channel).collect())
    }

    fn parameter(&self, index: &Index, i: usize) -> usize {
        let off = usize::from(self.is(Mistake::NextParameter));
        (index.parameter[i] + off) % index.parameters
    }

    /// f′ and f of an element.
    fn pointwise(&self, desc: &NormDesc, z: f64, residual: f64) -> (f64, f64) {
        let f = match desc.get_activation() {
            Activation::Gelu if self.is(Mistake::WrongGelu) => Activation::GeluTanh,
            f => f,
        };
        if self.is(Mistake::ResidualLast) {
            return (activation::derivative(f, z), activation::value(f, z) + residual);
        }
        let z = z + residual;
        let slope = if self.is(Mistake::ReluAtZero) && f == Activation::Relu && z == 0.0 {
            1.0
        } else {
            activation::derivative(f, z)
        };
        (slope, activation::value(f, z))
    }

    /// 1 for each element of `y` that is not 0, and 0 for others.
    fn mask(&self, y: &TensorData, residual: Option<&[f64]>) -> TensorData {
        let without = |(i, y): (usize, f64)| match residual {
            Some(r) if self.is(Mistake::MaskWithoutResidual) => y - r[i] > 0.0,
            _ => y != 0.0,
        };
        let mut bits: Vec<bool> = y.to_f64().into_iter().enumerate().map(without).collect();
        if self.is(Mistake::MaskSwapped) {
            bits.chunks_exact_mut(2).for_each(|pair| pair.swap(0, 1));
        }
        let numbers: Vec<f64> = bits.into_iter().map(|bit| f64::from(u8::from(bit))).collect();
        TensorData::from_f64(y.dtype(), &numbers)
    }

    fn stored(&self, dtype: DType, mut values: Vec<f64>) -> TensorData {
        if self.is(Mistake::Truncated) && dtype == DType::Bf16 {
            values
                .iter_mut()
                .for_each(|v| *v = f32::from_bits((*v as f32).to_bits() & 0xFFFF_0000).into());
        }
        let smallest = if dtype == DType::F16 {
            2f64.powi(-14)
        } else {
            f32::MIN_POSITIVE.into()
        };
        if self.is(Mistake::Flushed) && dtype != DType::F64 {
            values.iter_mut().filter(|v| v.abs() < smallest).for_each(|v| *v = 0.0);
        }
        let mut data = TensorData::from_f64(dtype, &values);
        if self.is(Mistake::Unwritten)
            && let TensorData::F32(v) = &mut data
            && let Some(last) = v.last_mut()
        {
            *last = f32::from_bits(0xFFFB_ABAB);
        }
        data
    }
}

impl Engine for Reference {
    fn name(&self) -> String {
        format!("reference with {:?}", self.0)
    }

    fn forward(&mut self, desc: &NormDesc, inputs: &ForwardInputs) -> Result<Outputs> {
        let index = Index::of(desc);
        let mut x = inputs.x.to_f64();
        let mut residual = values(&inputs.residual);
        let mut stream = None;
        if let Some(residual) = residual.take_if(|_| desc.has_stream()) {
            let wide = desc.get_dtype() == DType::F64;
            let add = |(x, r): (&f64, f64)| if wide { x + r } else { f64::from(*x as f32 + r as f32) };
            let sums: Vec<f64> = x.iter().zip(residual).map(add).collect();
            let rounded = TensorData::from_f64(desc.get_dtype(), &sums);
            match self.0 {
                Mistake::StreamUnrounded => x = sums,
                Mistake::StreamIgnored => {}
                _ => x = rounded.to_f64(),
            }
            stream = Some(rounded);
        }
        let given = self.given(desc, &index, inputs.running.as_ref());
        let of_x = || {
            (0..index.groups())
                .map(|g| self.normalizer(desc, index.members(g), &x))
                .collect()
        };
        let is_given = given.is_some();
        let mut normalizers: Vec<Normalizer> = given.unwrap_or_else(of_x);
        if self.is(Mistake::NanSpreads)
            && let Some(i) = normalizers.iter().position(|n| n.mean.is_nan())
        {
            let next = (i + 1) % normalizers.len();
            normalizers[next].mean = f64::NAN;
        }
        let [weight, bias] = [&inputs.weight, &inputs.bias].map(values);
        let y: Vec<f64> = (0..x.len())
            .map(|i| {
                let (n, p) = (&normalizers[index.group[i]], self.parameter(&index, i));
                let xhat = (x[i] - n.mean) * n.rstd;
                let z = xhat * weight.as_ref().map_or(1.0, |w| w[p]) + bias.as_ref().map_or(0.0, |b| b[p]);
                self.pointwise(desc, z, residual.as_ref().map_or(0.0, |r| r[i])).1
            })
            .collect();
        let y = self.stored(desc.get_dtype(), y);
        let mut outputs = Outputs::default();
        if desc.has_mask() {
            outputs.tensors.push((Output::Mask, self.mask(&y, residual.as_deref())));
        }
        outputs.tensors.push((Output::Y, y));
        outputs.tensors.extend(stream.map(|stream| (Output::Stream, stream)));
        if let Some((mean, rstd)) = inputs.saved {
            let of = |f: fn(&Normalizer) -> f64| normalizers.iter().map(f).collect();
            outputs.tensors.push((Output::Mean, self.stored(mean, of(|n| n.mean))));
            outputs.tensors.push(match desc.get_pass() {
                Pass::Moments => (Output::Var, self.stored(rstd, of(|n| n.var))),
                _ => (Output::Rstd, self.stored(rstd, of(|n| n.rstd))),
            });
        }
        if !is_given && let Some(running) = &inputs.running {
            let (mut mean, mut var) = (running.mean.to_f64(), running.var.to_f64());
            let instances = match desc.get_norm() {
                Norm::Instance => desc.get_shape().dims()[0] as f64,
                _ => 1.0,
            };
            let factor = if self.is(Mistake::MomentumSwapped) {
                1.0 - inputs.factor
            } else {
                inputs.factor
            };
            let groups = normalizers.iter().zip(&index.channel).filter(|(n, _)| n.count > 0);
            let scaled = |v: &mut Vec<f64>| v.iter_mut().for_each(|v| *v *= 1.0 - factor);
            if groups.clone().next().is_some() {
                scaled(&mut mean);
                scaled(&mut var);
            }
            for (n, &c) in groups {
                let count = n.count as f64;
                let unbiased = if self.is(Mistake::BiasedRunningVariance) {
                    1.0
                } else {
                    count / (count - 1.0)
                };
                mean[c] += factor * n.mean / instances;
                var[c] += factor * n.var * unbiased / instances;
            }
            outputs
                .tensors
                .push((Output::RunningMean, self.stored(desc.get_param_dtype(), mean)));
            outputs
                .tensors
                .push((Output::RunningVar, self.stored(desc.get_param_dtype(), var)));
        }
        Ok(outputs)
    }

    fn backward(&mut self, desc: &NormDesc, inputs: &BackwardInputs) -> Result<Outputs> {
        let index = Index::of(desc);
        let (x, dy) = (inputs.x.to_f64(), inputs.dy.to_f64());
        let (mean, rstd) = (values(&inputs.mean), values(&inputs.rstd));
        let saved = |g: usize| Normalizer {
            mean: mean.as_ref().map_or(0.0, |m| m[g]),
            var: 0.0,
            rstd: rstd.as_ref().map_or(0.0, |r| r[g]),
            count: 0,
        };
        let given = self.given(desc, &index, inputs.running.as_ref());
        let is_given = given.is_some();
        let normalizers: Vec<Normalizer> = given.unwrap_or_else(|| (0..index.groups()).map(saved).collect());
        let [weight, bias, residual] = [&inputs.weight, &inputs.bias, &inputs.residual].map(values);
        let bits = inputs.passes();
        let passes = |i: usize| {
            let i = if self.is(Mistake::MaskSwapped) { i ^ 1 } else { i };
            bits.as_ref().map(|bits| bits.get(i).copied().unwrap_or(false))
        };
        let mut dz = vec![0.0; x.len()];
        let (mut g, mut xhat) = (dz.clone(), dz.clone());
        let mut terms = vec![Vec::new(); index.parameters];
        for i in 0..x.len() {
            let (n, p) = (&normalizers[index.group[i]], self.parameter(&index, i));
            let w = weight.as_ref().map_or(1.0, |w| w[p]);
            xhat[i] = (x[i] - n.mean) * n.rstd;
            let z = xhat[i] * w + bias.as_ref().map_or(0.0, |b| b[p]);
            let slope = match passes(i) {
                Some(bit) => f64::from(u8::from(bit)),
                None => self.pointwise(desc, z, residual.as_ref().map_or(0.0, |r| r[i])).0,
            };
            dz[i] = dy[i] * slope;
            g[i] = dz[i] * w;
            let of_parameter = if self.is(Mistake::GradientPastActivation) {
                dy[i]
            } else {
                dz[i]
            };
            terms[p].push((of_parameter * xhat[i], of_parameter));
        }
        let mut dx = vec![0.0; x.len()];
        for (group, n) in normalizers.iter().enumerate() {
            let members = index.members(group);
            let count = members.len() as f64;
            let through = !is_given || self.is(Mistake::EvalAsTrain);
            let centred = desc.get_norm().is_centred() && !self.is(Mistake::NoMeanTerm);
            let mean_g = if through && centred {
                self.sum(members.iter().map(|&i| g[i])) / count
            } else {
                0.0
            };
            let mean_gx = if through && !self.is(Mistake::NoXhatTerm) {
                self.sum(members.iter().map(|&i| g[i] * xhat[i])) / count
            } else {
                0.0
            };
            let told = inputs.means.as_ref().filter(|_| !self.is(Mistake::MeansIgnored));
            let [mean_g, mean_gx] = match (told, members.first()) {
                (Some([g, gx]), Some(&first)) => {
                    let w = weight.as_ref().filter(|_| !self.is(Mistake::MeansUnweighted));
                    let w = w.map_or(1.0, |w| w[self.parameter(&index, first)]);
                    [g, gx].map(|means| w * means.to_f64()[index.channel[group]])
                }
                _ => [mean_g, mean_gx],
            };
            members
                .iter()
                .for_each(|&i| dx[i] = n.rstd * (g[i] - mean_g - xhat[i] * mean_gx));
        }
        if let Some(dstream) = values(&inputs.dstream).filter(|_| !self.is(Mistake::NoDstream)) {
            dx.iter_mut().zip(dstream).for_each(|(dx, more)| *dx += more);
        }
        let dweight = terms.iter().map(|t| self.sum(t.iter().map(|t| t.0))).collect();
        let dbias = terms.iter().map(|t| self.sum(t.iter().map(|t| t.1))).collect();
        let (dtype, params) = (desc.get_dtype(), desc.get_param_dtype());
        let tensors = vec![
            (Output::Dx, self.stored(dtype, dx)),
            (Output::Dweight, self.stored(params, dweight)),
            (Output::Dbias, self.stored(params, dbias)),
            (Output::Dresidual, self.stored(dtype, dz)),
        ];
        Ok(Outputs {
            tensors,
            faults: Vec::new(),
        })
    }
}
