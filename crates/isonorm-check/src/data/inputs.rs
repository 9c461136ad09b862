//! All inputs of a case.

use isonorm::{DType, Pass, Residual, Rung, TensorData};
use rand::RngExt;

use super::{Data, Role, exact, mask, normals, random, range, signed, x};
use crate::Case;
use crate::engine::{BackwardInputs, ForwardInputs, Running};
use crate::oracle::{Index, statistics};

/// The weights of new statistics in running ones that cases go through.
const FACTORS: [f64; 3] = [0.1, 1.0, 1.0 / 3.0];

/// Of all types that kernels are for the smallest number above 0 of one, and a number of each.
const SMALL: f64 = 1.0 / (1 << 24) as f64;

/// Makes the tensors of a case, all but `x`.
struct Maker<'a> {
    case: &'a Case,
    index: &'a Index,
}

impl Maker<'_> {
    fn is_exact(&self) -> bool {
        self.case.data == Data::Exact
    }

    /// A tensor like `x`: small integers, or normally distributed.
    fn like_x(&self, role: Role) -> TensorData {
        let len = self.index.group.len();
        let logical = if self.is_exact() {
            exact::integers(&mut random(self.case.seed, role), len, 3)
        } else {
            normals(self.case.seed, role, len)
        };
        let values: Vec<f64> = (0..len).map(|i| logical[self.index.logical(i)]).collect();
        TensorData::from_f64(self.case.desc.get_dtype(), &values)
    }

    fn parameter(&self, values: Vec<f64>) -> TensorData {
        TensorData::from_f64(self.case.desc.get_param_dtype(), &values)
    }

    fn weight(&self) -> Option<TensorData> {
        let (len, seed) = (self.index.parameters, self.case.seed);
        self.case.desc.get_affine().has_weight().then(|| {
            self.parameter(if self.is_exact() {
                exact::powers(&mut random(seed, Role::Weight), len)
            } else {
                let around_one = |v: f64| 1.0 + 0.5 * v;
                let values = normals(seed, Role::Weight, len).into_iter();
                values.map(around_one).collect()
            })
        })
    }

    fn bias(&self) -> Option<TensorData> {
        let (len, seed) = (self.index.parameters, self.case.seed);
        self.case.desc.get_affine().has_bias().then(|| {
            self.parameter(if self.is_exact() {
                exact::integers(&mut random(seed, Role::Bias), len, 2)
            } else {
                normals(seed, Role::Bias, len)
            })
        })
    }

    fn residual(&self) -> Option<TensorData> {
        let has = self.case.desc.get_residual() != Residual::None;
        has.then(|| self.like_x(Role::Residual))
    }

    /// Where a ReLU lets something pass, in logical order: anywhere, the same for an element in every layout.
    fn passes(&self) -> Vec<bool> {
        let mut rng = random(self.case.seed, Role::Mask);
        (0..self.index.group.len()).map(|_| rng.random_bool(0.5)).collect()
    }

    fn mask(&self) -> Option<TensorData> {
        let desc = &self.case.desc;
        desc.has_mask().then(|| {
            let passes = self.passes();
            mask::from_bits(desc, |i| passes[self.index.logical(i)])
        })
    }

    /// Numbers above 0 of all sizes, and 0.
    fn result(&self) -> Option<TensorData> {
        let desc = &self.case.desc;
        desc.reads_result().then(|| {
            let passes = self.passes();
            let numbers = self.like_x(Role::Residual).to_f64().into_iter().enumerate();
            let y = |(i, number): (usize, f64)| match passes[self.index.logical(i)] {
                true => number.abs().max(SMALL),
                false => 0.0,
            };
            TensorData::from_f64(desc.get_dtype(), &numbers.map(y).collect::<Vec<_>>())
        })
    }

    /// Statistics that the data could have had.
    fn running(&self) -> Option<Running> {
        let desc = &self.case.desc;
        if !desc.get_norm().has_running_statistics() {
            return None;
        }
        let (channels, seed) = (self.index.parameters, self.case.seed);
        let (scale, mean) = self.case.data.scale_and_mean(desc.get_dtype(), desc.get_eps());
        let mut variances = random(seed, Role::RunningVar);
        let means: Vec<f64> = if self.is_exact() {
            exact::integers(&mut random(seed, Role::RunningMean), channels, 8)
        } else {
            let noise = normals(seed, Role::RunningMean, channels);
            let of_channel = |(c, n): (usize, f64)| signed(mean, self.index, c) + scale * n;
            noise.into_iter().enumerate().map(of_channel).collect()
        };
        let (_, largest) = range(desc.get_param_dtype());
        let vars = (0..channels)
            .map(|_| (scale * scale * variances.random_range(0.5..2.0)).min(largest / 4.0))
            .collect();
        let mean_dtype = match self.case.wide_mean && desc.uses_running_statistics() {
            true => DType::F64,
            false => desc.get_param_dtype(),
        };
        Some(Running {
            mean: TensorData::from_f64(mean_dtype, &means),
            var: self.parameter(vars),
        })
    }

    /// Means of gradients that are told: of as many elements as these, or of more.
    fn means(&self) -> Option<[TensorData; 2]> {
        let (channels, dtype) = (self.index.parameters, self.case.desc.get_statistics_dtype());
        self.case.told_means.then(|| {
            let mut rng = random(self.case.seed, Role::Means);
            [(); 2].map(|()| {
                let values: Vec<f64> = (0..channels).map(|_| rng.random_range(-0.5..0.5)).collect();
                TensorData::from_f64(dtype, &values)
            })
        })
    }

    fn x(&self) -> TensorData {
        TensorData::from_f64(self.case.desc.get_dtype(), &x(self.case, self.index))
    }
}

/// What the forward pass of this case reads. Training passes save their statistics and, where there are any, update
/// running ones.
pub fn forward_inputs(case: &Case) -> ForwardInputs {
    let index = Index::of(&case.desc);
    let maker = Maker { case, index: &index };
    let trains = case.desc.get_pass() == Pass::Train;
    let updates = case.rung.is_none_or(Rung::updates_running);
    let uses_running = trains && !case.untracked && updates || case.desc.uses_running_statistics();
    // LayerNorm's rungs save nothing.
    let saves = trains || case.desc.get_pass() == Pass::Moments;
    let saves = saves && case.rung.is_none_or(|rung| !rung.is_layer_norm());
    ForwardInputs {
        x: maker.x(),
        weight: maker.weight(),
        bias: maker.bias(),
        residual: maker.residual(),
        running: maker.running().filter(|_| uses_running),
        factor: FACTORS[(case.seed % 3) as usize],
        saved: saves.then(|| (case.mean_dtype(), case.desc.get_statistics_dtype())),
    }
}

/// What the backward pass of this case reads. The saved statistics are the true ones, rounded: an error of the forward
/// pass is the forward pass's.
pub fn backward_inputs(case: &Case) -> BackwardInputs {
    let desc = &case.desc;
    let index = Index::of(desc);
    let maker = Maker { case, index: &index };
    let x = maker.x();
    let running = maker.running().filter(|_| desc.uses_running_statistics());
    let statistics = statistics(desc, &index, &x.to_f64(), running.as_ref());
    let saves = !desc.uses_running_statistics();
    let saved = |dtype: DType, of: &dyn Fn(usize) -> f64| {
        let values: Vec<f64> = (0..statistics.len()).map(of).collect();
        TensorData::from_f64(dtype, &values)
    };
    let has_mean = saves && desc.get_norm().is_centred();
    BackwardInputs {
        dy: maker.like_x(Role::Dy),
        weight: maker.weight(),
        bias: maker.bias(),
        residual: maker.residual().filter(|_| desc.get_residual() == Residual::Add),
        mask: maker.mask(),
        result: maker.result(),
        dstream: desc.has_stream().then(|| maker.like_x(Role::Dstream)),
        mean: has_mean.then(|| saved(case.mean_dtype(), &|g| statistics[g].mean)),
        rstd: saves.then(|| saved(desc.get_statistics_dtype(), &|g| statistics[g].rstd)),
        running,
        means: maker.means(),
        x,
        without_dx: case.without_dx,
        without_dweight: case.without_dweight,
    }
}
