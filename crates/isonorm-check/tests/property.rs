//! Random descriptions conform, on the CPU and by a GPU's kernels, and their case strings parse back.

use isonorm::cuda::Interpreter;
use isonorm::{
    Activation, Affine, DType, Device, Error, GpuProperties, Layout, Norm, NormDesc, Over, Pass, Residual, Shape,
};
use isonorm_check::{Case, CpuEngine, Data, InterpreterEngine, Start, run_case};
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
    asked(cases_of(norms_and_shapes(), data()))
}

/// Of data that kernels take: not of squares that overflow; and not of data that is exact in blocks of even length only.
fn cases_of_kernels() -> impl Strategy<Value = Case> {
    let data = || data().prop_filter("for kernels", |data| !matches!(data, Data::Huge | Data::Exact));
    prop_oneof![
        1 => asked(cases_of(norms_and_shapes(), data())),
        2 => asked(cases_of(lengths_and_shapes(), data())),
    ]
}

fn cases_of(
    norms_and_shapes: impl Strategy<Value = (Norm, Shape)>,
    data: impl Strategy<Value = Data>,
) -> impl Strategy<Value = Case> {
    let passes = prop_oneof![
        8 => select(vec![Pass::Train, Pass::Eval, Pass::Backward, Pass::BackwardEval]),
        1 => Just(Pass::Moments),
    ];
    let affines = select(vec![Affine::None, Affine::Weight, Affine::Full]);
    let residuals = select(vec![
        Residual::None,
        Residual::Add,
        Residual::Stream,
        Residual::Masked,
        Residual::Result,
    ]);
    let epilogue = (affines, activations(), residuals);
    let how = (any::<bool>(), any::<bool>(), any::<bool>());
    (norms_and_shapes, types(), epilogue, passes, how, data, any::<u64>())
        .prop_map(
            |((norm, shape), (dtype, own), (affine, activation, residual), pass, how, data, seed)| {
                let (last, in_place, wide) = how;
                let layout = if last {
                    Layout::ChannelsLast
                } else {
                    Layout::ChannelsFirst
                };
                let is_relu = matches!(residual, Residual::Masked | Residual::Result);
                let desc = NormDesc::new(norm, shape)
                    .layout(layout)
                    .dtype(dtype)
                    .param_dtype(if own { dtype } else { DType::F32 })
                    .affine(affine)
                    .activation(if is_relu { Activation::Relu } else { activation })
                    .residual(residual)
                    .pass(pass)
                    .in_place(in_place);
                let case = Case::new(desc).data(data).seed(seed);
                if wide { case.wide_mean() } else { case }
            },
        )
        .prop_filter("a valid description", |case| case.desc.check().is_ok())
}

/// The same, and what a caller may leave out, or tell.
fn asked(cases: impl Strategy<Value = Case>) -> impl Strategy<Value = Case> {
    (cases, 0..6u32).prop_map(|(case, what)| {
        let pass = case.desc.get_pass();
        match what {
            0 if pass.is_backward() => case.without_dx(),
            1 if pass.is_backward() => case.without_dweight(),
            2 if (case.desc.get_norm(), pass) == (Norm::Batch, Pass::BackwardEval) => case.told_means(),
            0..3 if pass == Pass::Train => case.untracked(),
            _ => case,
        }
    })
}

/// Rows and channels of any length, aligned more often than not: which kernels a GPU has for them depends on it.
fn lengths_and_shapes() -> impl Strategy<Value = (Norm, Shape)> {
    let length = prop_oneof![
        3 => 1usize..300,
        2 => (1usize..1200).prop_map(|n| 8 * n),
        1 => 1usize..9_000,
        1 => (1usize..40).prop_map(|n| 1024 * n),
    ];
    let others = prop_oneof![4 => 1usize..6, 2 => 6usize..60, 1 => 60usize..400];
    let positions = prop::collection::vec(1usize..17, 0..3);
    let shapes = (length, others, positions).prop_filter("not too large", |(length, others, positions)| {
        length * others * positions.iter().product::<usize>() <= MOST_ELEMENTS
    });
    (0..7usize, shapes, 1..5usize).prop_map(|(op, (length, others, positions), groups)| {
        let of = |front: &[usize], back: &[usize]| Shape::new(&[front, back].concat()).unwrap_or_default();
        let groups = if length.is_multiple_of(groups) { groups } else { 1 };
        match op {
            0 => (Norm::Layer(Over::Last(1)), of(&[others], &[length])),
            1 => (Norm::Rms(Over::Last(1)), of(&[others], &[length])),
            2 => (Norm::Layer(Over::Channels), of(&[others, length], &positions)),
            3 => (Norm::Batch, of(&[others, length], &positions)),
            4 => (Norm::Batch, of(&[3, others], &[length])),
            5 => (Norm::Instance, of(&[2, others], &[length])),
            _ => (Norm::Group { groups }, of(&[others, length], &positions)),
        }
    })
}

/// The interpreter takes microseconds for an element.
const MOST_ELEMENTS: usize = 40 << 10;

/// GPUs with and without clusters, whose shared memory and multiprocessors are few or many.
fn gpus() -> impl Strategy<Value = GpuProperties> {
    (select(vec!["a100", "rtx4090", "h200"]), 1u32..25, any::<bool>()).prop_map(|(name, sms, is_small)| {
        let known = GpuProperties::known(name).expect("a known GPU");
        let [of_block, of_sm] = match is_small {
            true => [50 << 10, 56 << 10],
            false => [known.shared_bytes_per_block, known.shared_bytes_per_sm],
        };
        GpuProperties {
            sms,
            cluster_sms: known.cluster_sms.min(sms),
            shared_bytes_per_block: of_block,
            shared_bytes_per_sm: of_sm,
            ..known
        }
    })
}

/// So many cases, or as many as the environment asks for.
fn config(cases: u32) -> ProptestConfig {
    let asked = std::env::var("PROPTEST_CASES")
        .ok()
        .and_then(|cases| cases.parse().ok());
    ProptestConfig {
        cases: asked.unwrap_or(cases),
        failure_persistence: None,
        max_local_rejects: u32::MAX,
        max_global_rejects: 100_000,
        ..ProptestConfig::default()
    }
}

proptest! {
    #![proptest_config(config(100))]

    #[test]
    fn random_descriptions_conform_by_the_kernels_of_a_gpu(
        case in cases_of_kernels(),
        gpu in gpus(),
        start in select(vec![Start::Aligned, Start::Misaligned]),
        // The plan that is chosen, or another.
        alternative in prop_oneof![2 => Just(0usize), 1 => 1usize..8],
        order in any::<u64>(),
    ) {
        let interpreter = Interpreter::new(gpu).seed(order);
        let plans = interpreter.alternatives(&case.desc).map_or(1, |plans| plans.len());
        let mut engine = InterpreterEngine::new(interpreter).starting(start).alternative(alternative % plans);
        let report = run_case(&mut engine, &case);
        let is_without_kernel = matches!(report.refused, Some(Error::Unsupported { .. }));
        prop_assert!(report.passed || is_without_kernel, "{}", report);
    }
}

proptest! {
    #![proptest_config(config(400))]

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
