//! Problem strings: what is printed parses back, and what does not parse says why.

use isonorm::{Activation, Affine, DType, Error, Norm, NormDesc, Over, Pass, Residual, Shape};
use proptest::prelude::*;

fn activations() -> impl Strategy<Value = Activation> {
    prop_oneof![
        Just(Activation::Identity),
        Just(Activation::Relu),
        (-2.0..2.0f64).prop_map(|slope| Activation::LeakyRelu { slope }),
        Just(Activation::Silu),
        Just(Activation::Gelu),
        Just(Activation::GeluTanh),
        Just(Activation::Sigmoid),
        Just(Activation::Tanh),
        Just(Activation::HardSwish),
    ]
}

fn norms() -> impl Strategy<Value = Norm> {
    prop_oneof![
        Just(Norm::Batch),
        Just(Norm::Instance),
        (1usize..5).prop_map(|groups| Norm::Group { groups }),
        (1usize..4).prop_map(|n| Norm::Layer(Over::Last(n))),
        (1usize..4).prop_map(|n| Norm::Rms(Over::Last(n))),
        Just(Norm::Layer(Over::Channels)),
        Just(Norm::Rms(Over::Channels)),
    ]
}

fn descriptions() -> impl Strategy<Value = NormDesc> {
    let shapes = prop::collection::vec(0usize..70, 1..7);
    let dtypes = prop::sample::select(DType::ALL.to_vec());
    let affines = prop::sample::select(vec![Affine::None, Affine::Weight, Affine::Full]);
    let passes = prop::sample::select(vec![
        Pass::Train,
        Pass::Moments,
        Pass::Eval,
        Pass::Backward,
        Pass::BackwardEval,
    ]);
    let eps = prop::option::of(0.0..1.0f64);
    (
        norms(),
        shapes,
        dtypes,
        any::<bool>(),
        affines,
        activations(),
        passes,
        eps,
        any::<[bool; 3]>(),
    )
        .prop_filter_map(
            "not a description",
            |(norm, dims, dtype, same, affine, activation, pass, eps, [last, residual, in_place])| {
                // Rows have one layout.
                let rows = matches!(norm, Norm::Layer(Over::Last(_)) | Norm::Rms(Over::Last(_)));
                let residual = if rows && last {
                    Residual::Stream
                } else {
                    residual.into()
                };
                let mut desc = NormDesc::new(norm, Shape::new(&dims)?)
                    .dtype(dtype)
                    .affine(affine)
                    .activation(activation);
                desc = desc.pass(pass).residual(residual).in_place(in_place);
                desc = desc.param_dtype(if same { dtype } else { DType::F32 });
                if let Some(eps) = eps {
                    desc = desc.eps(eps);
                }
                if last && !rows {
                    desc = desc.channels_last();
                }
                desc.check().is_ok().then_some(desc)
            },
        )
}

proptest! {
    #[test]
    fn what_is_printed_parses_back(desc in descriptions()) {
        let text = desc.to_string();
        let parsed: NormDesc = text.parse().map_err(|e| TestCaseError::fail(format!("{text}: {e}")))?;
        prop_assert_eq!(parsed, desc);
        let json = serde_json::to_string(&desc).unwrap();
        prop_assert_eq!(serde_json::from_str::<NormDesc>(&json).unwrap(), desc);
    }

    #[test]
    fn any_text_is_parsed_or_refused(text in ".{0,200}") {
        let _ = text.parse::<NormDesc>();
    }
}

#[test]
fn refusals_say_what_was_expected() {
    for (text, said) in [
        ("", "empty; expected an op"),
        ("batchnorm", "the shape is missing"),
        ("convolution x=2x3", "unknown op \"convolution\""),
        ("batchnorm x=2xx3", "\"\" is not a size"),
        ("batchnorm x=2x-3", "\"-3\" is not a size"),
        ("batchnorm x=2x3 x=2x3", "x is given twice"),
        ("batchnorm x=2x3 colour=red", "unknown key \"colour\""),
        ("batchnorm x=2x3 groups=2", "batchnorm takes no groups"),
        ("groupnorm x=2x6x4 groups=4", "got 6 channels and 4 groups"),
        ("groupnorm x=2x6x4 groups=0", "got 6 channels and 0 groups"),
        ("batchnorm x=2x3x4x5x6x7", "expected x of 2 to 5 dimensions"),
        ("instancenorm x=2x3", "expected x of 3 to 5 dimensions"),
        ("layernorm x=2x3 dims=3", "cannot normalize over the last 3 dimensions"),
        (
            "layernorm x=2x3 layout=channels_last",
            "channels_last has no meaning for rows",
        ),
        ("layernorm x=2x3 dims=1 over=channels", "exclude each other"),
        ("batchnorm x=1x3", "expected more than 1 value per channel in training"),
        (
            "instancenorm x=4x3x1",
            "expected more than 1 value per channel of a sample in training",
        ),
        (
            "batchnorm x=2x3 eps=NaN",
            "eps must be finite and not negative, got NaN",
        ),
        ("batchnorm x=2x3 eps=-1", "eps must be finite and not negative, got -1"),
        (
            "batchnorm x=2x3 dtype=f32 param=bf16",
            "parameters must be f32 or of x's type f32, got bf16",
        ),
        (
            "batchnorm x=2x3 act=leaky_relu:inf",
            "slope of leaky ReLU must be finite",
        ),
        (
            "batchnorm x=2x3 inplace=yes",
            "cannot work in place: the backward pass of pass=train needs x",
        ),
        (
            "batchnorm x=4294967296x4294967296x2",
            "more elements than this machine can address",
        ),
        ("batchnorm x=99999999999999999999999x2", "is too large a size"),
    ] {
        let error = text.parse::<NormDesc>().expect_err(text).to_string();
        assert!(error.contains(said), "{text}: {error}");
    }
}

#[test]
fn defaults_are_pytorchs() {
    let parse = |text: &str| text.parse::<NormDesc>().unwrap();
    assert_eq!(parse("batchnorm x=2x3").get_eps(), 1e-5);
    assert_eq!(parse("rmsnorm x=2x3").get_eps(), f64::from(f32::EPSILON));
    assert_eq!(parse("rmsnorm x=2x3 dtype=f64").get_eps(), f64::EPSILON);
    assert_eq!(parse("instancenorm x=2x3x4").get_affine(), Affine::None);
    assert_eq!(parse("rmsnorm x=2x3").get_affine(), Affine::Weight);
    assert_eq!(parse("batchnorm x=2x3 dtype=bf16").get_param_dtype(), DType::F32);
    assert!(matches!("".parse::<NormDesc>(), Err(Error::InvalidProblem { .. })));
}
