//! Suites that are computed.

use isonorm::{Activation, Affine, DType, Layout, Norm, NormDesc, Over, Pass, Residual, Shape};

use super::pairwise::cover;
use crate::{Case, Data};

const LAYOUTS: [Layout; 2] = [Layout::ChannelsFirst, Layout::ChannelsLast];
const AFFINES: [Affine; 3] = [Affine::Full, Affine::Weight, Affine::None];
const RESIDUALS: [Residual; 5] = [
    Residual::None,
    Residual::Add,
    Residual::Masked,
    Residual::Result,
    Residual::Stream,
];
const PASSES: [Pass; 4] = [Pass::Train, Pass::Backward, Pass::Eval, Pass::BackwardEval];

const ACTIVATIONS: [Activation; 9] = [
    Activation::Identity,
    Activation::Relu,
    Activation::LeakyRelu { slope: 0.2 },
    Activation::Silu,
    Activation::Gelu,
    Activation::GeluTanh,
    Activation::Sigmoid,
    Activation::Tanh,
    Activation::HardSwish,
];

/// Types of data and of parameters.
const TYPES: [(DType, DType); 7] = [
    (DType::F32, DType::F32),
    (DType::F64, DType::F64),
    (DType::F64, DType::F32),
    (DType::F16, DType::F32),
    (DType::F16, DType::F16),
    (DType::Bf16, DType::F32),
    (DType::Bf16, DType::Bf16),
];

/// Every op; `groups` is that of GroupNorm, `dims` that of LayerNorm and RMSNorm.
fn norms(groups: usize, dims: usize) -> [Norm; 7] {
    [
        Norm::Batch,
        Norm::Layer(Over::Last(dims)),
        Norm::Layer(Over::Channels),
        Norm::Rms(Over::Last(dims)),
        Norm::Rms(Over::Channels),
        Norm::Group { groups },
        Norm::Instance,
    ]
}

/// Shapes by class: rank, tails of vectors and blocks, one channel, short and long runs. With channels that 1, 2 and 4
/// divide as far as they are more than one.
fn shapes() -> Vec<Shape> {
    vec![
        Shape::from([37, 12]),
        Shape::from([256, 8]),
        Shape::from([5, 1]),
        Shape::from([3, 4, 33]),
        Shape::from([2, 20, 129]),
        Shape::from([1, 8, 1]),
        Shape::from([4, 4, 7, 5]),
        Shape::from([2, 64, 3, 3]),
        Shape::from([1, 4, 64, 65]),
        Shape::from([3, 1, 17, 16]),
        Shape::from([2, 4, 3, 5, 7]),
        Shape::from([2, 12, 2, 8, 16]),
    ]
}

/// Any two choices meet.
pub(super) fn pairwise() -> Vec<Case> {
    let shapes = shapes();
    let norms = norms(4, 1);
    let levels = [
        norms.len(),
        LAYOUTS.len(),
        TYPES.len(),
        AFFINES.len(),
        ACTIVATIONS.len(),
        RESIDUALS.len(),
        PASSES.len(),
        2,
        shapes.len(),
        Data::ALL.len(),
        2,
    ];
    let case = |row: &[usize]| {
        let shape = shapes[row[8]];
        let norm = match norms[row[0]] {
            Norm::Group { .. } if shape.dims()[1] == 1 => Norm::Group { groups: 1 },
            norm => norm,
        };
        let (dtype, params) = TYPES[row[2]];
        let desc = NormDesc::new(norm, shape)
            .layout(LAYOUTS[row[1]])
            .dtype(dtype)
            .param_dtype(params)
            .affine(AFFINES[row[3]])
            .activation(ACTIVATIONS[row[4]])
            .residual(RESIDUALS[row[5]])
            .pass(PASSES[row[6]])
            .in_place(row[7] == 1);
        let case = Case::new(desc)
            .data(Data::ALL[row[9]])
            .seed(row.iter().sum::<usize>() as u64);
        match row[10] == 1 && !desc.uses_running_statistics() {
            true => case.wide_mean(),
            false => case,
        }
    };
    let rows = cover(&levels, 20_161, |row| case(row).desc.check().is_ok());
    distinct(rows.iter().map(|row| case(row)))
}

/// Every combination, on one small shape an op. What depends on data or sizes is other suites'.
pub(super) fn combinations() -> Vec<Case> {
    let mut cases = Vec::new();
    for norm in norms(3, 2) {
        let shape = Shape::from([3, 6, 3, 7]);
        for (layout, (dtype, params)) in product(&LAYOUTS, &TYPES) {
            for (pass, affine) in product(&PASSES, &AFFINES) {
                for (activation, residual) in product(&ACTIVATIONS, &RESIDUALS) {
                    let desc = NormDesc::new(norm, shape)
                        .layout(layout)
                        .dtype(dtype)
                        .param_dtype(params)
                        .affine(affine)
                        .activation(activation)
                        .residual(residual)
                        .pass(pass);
                    if desc.check().is_ok() {
                        cases.push(Case::new(desc).seed(cases.len() as u64 % 7));
                    }
                }
            }
        }
    }
    cases
}

/// Every length of contiguous run, in both directions. Channels-last GroupNorm has runs of a group's channels.
pub(super) fn segments() -> Vec<Case> {
    let mut cases = Vec::new();
    for (length, pass) in product(&(1..=130).collect::<Vec<usize>>(), &[Pass::Train, Pass::Backward]) {
        let descs = [
            NormDesc::batch_norm([3, 2, length]),
            NormDesc::layer_norm([3, length], 1),
            NormDesc::group_norm([2, 2 * length, 3], 2).channels_last(),
        ];
        // One of the three, so that all lengths and ops are met over a few lengths without running them all.
        let desc = descs[length % 3].dtype(DType::ALL[length % 4]).pass(pass);
        let threshold = [31, 32, 33, 63, 64, 65].contains(&length) || length > 120;
        if threshold {
            let all = descs.map(|d| Case::new(d.pass(pass)).seed(1));
            cases.extend(all.into_iter().filter(|c| c.desc.check().is_ok()));
        }
        if desc.check().is_ok() {
            cases.push(Case::new(desc));
        }
    }
    // Channels of groups, each with a weight and a bias, and rows with one of each column, that begin anywhere; then longer ones.
    let lengths = (1..=130).chain([196, 225, 1225, 2809]).enumerate();
    for (i, length) in lengths {
        let activation = [Activation::Identity, Activation::Relu, Activation::Silu][i / 4 % 3];
        let descs = [
            NormDesc::group_norm([3, 6, length], 2).activation(activation),
            NormDesc::instance_norm([2, 3, length])
                .affine(Affine::Full)
                .activation(activation),
            NormDesc::layer_norm([5, 4 * length + 1], 1),
            NormDesc::rms_norm([5, 4 * length + 2], 1),
        ];
        for (k, pass) in [Pass::Train, Pass::Backward].into_iter().enumerate() {
            let dtype = DType::ALL[(i + k) % 4];
            let desc = descs[(i + i / 4) % 4].dtype(dtype).pass(pass);
            let params = if i % 3 == 0 { dtype } else { desc.get_param_dtype() };
            let case = Case::new(desc.param_dtype(params)).seed(2);
            cases.extend(Some(case).filter(|case| case.desc.check().is_ok()));
        }
        let residual = [Residual::None, Residual::Add][i / 2 % 2];
        let evaluated = NormDesc::batch_norm([3, 5, length])
            .activation(activation)
            .residual(residual);
        cases.push(Case::new(evaluated.dtype(DType::ALL[i % 4]).pass(Pass::Eval)).seed(3));
        // What the ranks of a synchronized one do besides.
        let told = evaluated.dtype(DType::ALL[(i + 1) % 4]).pass(Pass::BackwardEval);
        let told = Case::new(told).told_means().seed(3);
        cases.push(if i % 2 == 0 { told } else { told.without_dweight() });
        cases.push(Case::new(evaluated.dtype(DType::ALL[(i + 2) % 4]).moments()).seed(3));
    }
    cases
}

/// Exact data: every op, layout, type and pass, over the shapes' classes.
pub(super) fn exact() -> Vec<Case> {
    let all = shapes();
    let mut cases = Vec::new();
    for (norm, layout) in product(&norms(4, 1), &LAYOUTS) {
        for ((dtype, params), pass) in product(&TYPES, &PASSES) {
            for choice in 0..3 {
                let i = cases.len();
                let rows = matches!(norm, Norm::Layer(Over::Last(_)) | Norm::Rms(Over::Last(_)));
                let residual = match i % 3 {
                    0 => Residual::Add,
                    1 if rows => Residual::Stream,
                    _ => Residual::None,
                };
                let desc = NormDesc::new(norm, all[(i * 5 + choice) % all.len()])
                    .layout(layout)
                    .dtype(dtype)
                    .param_dtype(params)
                    .activation([Activation::Identity, Activation::Relu][i % 2])
                    .residual(residual)
                    .pass(pass);
                let case = Case::new(desc).data(Data::Exact).seed(i as u64);
                if desc.check().is_ok() {
                    cases.push(case);
                }
            }
        }
    }
    cases
}

fn product<A: Copy, B: Copy>(a: &[A], b: &[B]) -> Vec<(A, B)> {
    a.iter().flat_map(|&a| b.iter().map(move |&b| (a, b))).collect()
}

fn distinct(cases: impl Iterator<Item = Case>) -> Vec<Case> {
    let mut found: Vec<Case> = Vec::new();
    for case in cases {
        if !found.contains(&case) {
            found.push(case);
        }
    }
    found
}
