//! Random descriptions conform, and their case strings parse back.

use isonorm::{Activation, Affine, DType, Device, Layout, Norm, NormDesc, Over, Pass, Residual, Shape};
use isonorm_check::{Case, CpuEngine, Data, run_case};
use proptest::prelude::*;
use proptest::sample::select;

fn activations() -> impl Strategy<Value = Activation> {
    let kinds = vec![
        Activation::Identity,
        Activation::Relu,
        Activation::Silu,
        Activation::Gelu,
        Activation::GeluTanh,
        Activation::Sigmoid,
        Activation::Tanh,
        Activation::HardSwish,
    ];
    prop_oneof![8 => select(kinds), 1 => (-2.0..2.0).prop_map(|slope| Activation::LeakyRelu { slope })]
}

/// Sizes: mostly small, sometimes around those of vectors, chunks and blocks.
fn sizes() -> impl Strategy<Value = usize> {
    prop_oneof![6 => 0usize..12, 3 => 12usize..70, 1 => 120usize..300]
}

fn norms_and_shapes() -> impl Strategy<Value = (Norm, Shape)> {
    // Sizes of zero count as one here: a tensor of no elements can have rows without end, and each has statistics.
    let dims = prop::collection::vec(sizes(), 1..6).prop_filter("not too large", |d| {
        d.iter().map(|size| (*size).max(1)).product::<usize>() <= 60_000
    });
    (0..7usize, dims, 1..6usize).prop_map(|(op, dims, n)| {
        let last = Over::Last(n.min(dims.len()));
        let channels = dims.get(1).copied().unwrap_or(1);
        // The largest divisor of C that is no larger than n.
        let groups = (1..=n).rev().find(|g| channels.is_multiple_of(*g)).unwrap_or(1);
        let norm = match op {
            0 => Norm::Batch,
            1 => Norm::Layer(last),
            2 => Norm::Rms(last),
            3 => Norm::Layer(Over::Channels),
            4 => Norm::Rms(Over::Channels),
            5 => Norm::Group { groups },
            _ => Norm::Instance,
        };
        (norm, Shape::new(&dims).unwrap_or_default())
    })
}

fn types() -> impl Strategy<Value = (DType, bool)> {
    (select(DType::ALL.to_vec()), any::<bool>())
}

fn data() -> impl Strategy<Value = Data> {
    prop_oneof![3 => Just(Data::Normal), 3 => select(Data::ALL.to_vec()), 1 => (-1e6..1e6).prop_map(Data::Offset)]
}

fn cases() -> impl Strategy<Value = Case> {
    let passes = select(vec![Pass::Train, Pass::Eval, Pass::Backward, Pass::BackwardEval]);
    let affines = select(vec![Affine::None, Affine::Weight, Affine::Full]);
    let residuals = select(vec![Residual::None, Residual::Add, Residual::Stream]);
    let epilogue = (affines, activations(), residuals);
    let how = (any::<bool>(), any::<bool>(), any::<bool>());
    (norms_and_shapes(), types(), epilogue, passes, how, data(), any::<u64>())
        .prop_map(
            |((norm, shape), (dtype, own), (affine, activation, residual), pass, how, data, seed)| {
                let (last, in_place, wide) = how;
                let layout = if last {
                    Layout::ChannelsLast
                } else {
                    Layout::ChannelsFirst
                };
                let desc = NormDesc::new(norm, shape)
                    .layout(layout)
                    .dtype(dtype)
                    .param_dtype(if own { dtype } else { DType::F32 })
                    .affine(affine)
                    .activation(activation)
                    .residual(residual)
                    .pass(pass)
                    .in_place(in_place);
                let case = Case::new(desc).data(data).seed(seed);
                if wide { case.wide_mean() } else { case }
            },
        )
        .prop_filter("a valid description", |case| case.desc.check().is_ok())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, max_global_rejects: 100_000, ..ProptestConfig::default() })]

    #[test]
    fn random_descriptions_conform(case in cases()) {
        let report = run_case(&mut CpuEngine::new(Device::cpu()), &case);
        prop_assert!(report.passed, "{}", report);
    }

    #[test]
    fn case_strings_parse_back(case in cases()) {
        prop_assert_eq!(case.to_string().parse::<Case>(), Ok(case));
    }
}
