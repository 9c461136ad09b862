//! Arguments that do not fit are refused, by name and with what was expected, before anything is written.

use std::ptr::NonNull;

use isonorm::{Backward, DType, Device, Error, Forward, NormDesc, TensorData, View, ViewMut, Workspace};

const POISON: f32 = -77.0;

fn refusal(problem: &str, call: impl FnOnce(&Device, &isonorm::Plan, &mut Workspace) -> isonorm::Result<()>) -> String {
    let device = Device::cpu();
    let plan = device.plan(&problem.parse::<NormDesc>().unwrap()).unwrap();
    let mut workspace = Workspace::new(&plan);
    call(&device, &plan, &mut workspace).expect_err(problem).to_string()
}

#[test]
fn forward_refuses_what_does_not_fit() {
    let (x, long) = (vec![1.0f32; 24], vec![1.0f32; 25]);
    let (w, half) = (vec![1.0f32; 3], vec![half::bf16::ONE; 24]);
    let mut y = vec![POISON; 24];
    let problem = "batchnorm x=2x3x4 pass=train";
    let mut refused = |said: &str, arguments: &dyn Fn(&mut [f32]) -> String| {
        let error = arguments(&mut y);
        assert!(error.contains(said), "{said:?} is not in {error:?}");
        assert!(y.iter().all(|v| *v == POISON), "{said}: something was written");
    };
    macro_rules! forward {
        ($problem:expr, $y:ident => $arguments:expr) => {
            &|$y| refusal($problem, |d, p, ws| d.forward(p, $arguments, ws))
        };
    }
    refused(
        "x has 25 elements, expected 24 (x is 2x3x4)",
        forward!(problem, y => Forward::new(&long, y)),
    );
    refused(
        "x is bf16, expected f32",
        forward!(problem, y => Forward::new(&half, y)),
    );
    refused("weight is missing", forward!(problem, y => Forward::new(&x, y)));
    refused(
        "weight has 24 elements, expected 3",
        forward!(problem, y => Forward::new(&x, y).weight(&x).bias(&w)),
    );
    refused(
        "bias was given but",
        forward!("batchnorm x=2x3x4 affine=weight", y => Forward::new(&x, y).weight(&w).bias(&w)),
    );
    refused(
        "residual was given but the description has no residual",
        forward!(problem, y => Forward::new(&x, y).weight(&w).bias(&w).residual(&x)),
    );
    refused(
        "residual is missing",
        forward!("batchnorm x=2x3x4 residual=add", y => Forward::new(&x, y).weight(&w).bias(&w)),
    );
    let masked = "batchnorm x=2x3x4 affine=none act=relu residual=masked";
    refused(
        "mask is missing: the description's residual=masked writes one",
        forward!(masked, y => Forward::new(&x, y).residual(&x)),
    );
    refused(
        "mask has 1 elements, expected 2 (x is 2x3x4)",
        forward!(masked, y => Forward::new(&x, y).residual(&x).save_mask(&mut vec![0.0f32; 1])),
    );
    let added = "batchnorm x=2x3x4 affine=none act=relu residual=add";
    refused(
        "mask was given but the description's residual is not masked",
        forward!(added, y => Forward::new(&x, y).residual(&x).save_mask(&mut vec![0.0f32; 2])),
    );
    let stream = "rmsnorm x=2x3x4 dims=2 affine=none residual=stream";
    refused(
        "residual and stream is missing: the description's residual=stream says so",
        forward!(stream, y => Forward::new(&x, y)),
    );
    refused(
        "residual was given but the description's residual is a stream",
        forward!(stream, y => Forward::new(&x, y).residual(&x)),
    );
    refused(
        "stream was given but the description has no residual stream",
        forward!(problem, y => Forward::new(&x, y).weight(&w).bias(&w).stream(&x, &mut vec![0f32; 24])),
    );
    refused(
        "stream has 23 elements, expected 24",
        forward!(stream, y => Forward::new(&x, y).stream(&x, &mut vec![0f32; 23])),
    );
    refused(
        "residual has 25 elements, expected 24",
        forward!(stream, y => Forward::new(&x, y).stream_in_place(&mut vec![0f32; 25])),
    );
    refused(
        "running_mean and running_var is missing: pass=eval",
        forward!("batchnorm x=2x3x4 pass=eval", y => Forward::new(&x, y).weight(&w).bias(&w)),
    );
    refused(
        "pass=train uses the statistics of x",
        forward!(problem, y => Forward::new(&x, y).weight(&w).bias(&w).running(&w, &w)),
    );
    refused(
        "this op has no running statistics",
        forward!("layernorm x=8x3", y => Forward::new(&x, y).weight(&w).bias(&w).running(&w, &w)),
    );
    refused(
        "the description works out of place, the arguments in place",
        forward!(problem, y => Forward::in_place(y).weight(&w).bias(&w)),
    );
    refused(
        "forward was called with a plan of pass=backward",
        forward!("layernorm x=8x3 pass=backward", y => Forward::new(&x, y)),
    );
}

#[test]
fn a_small_workspace_is_refused() {
    let device = Device::cpu();
    let plan = device
        .plan(&"layernorm x=8x3 dtype=bf16 pass=backward".parse().unwrap())
        .unwrap();
    let (x, dy) = (vec![half::bf16::ONE; 24], vec![half::bf16::ONE; 24]);
    let mut dx = x.clone();
    let arguments = Backward::new(&x, &dy, &mut dx);
    let error = device
        .backward(&plan, arguments, &mut Workspace::default())
        .unwrap_err();
    assert!(matches!(error, Error::PlanMismatch { .. }), "{error}");
    assert!(
        error.to_string().contains("the workspace has 0 bytes, the plan needs"),
        "{error}"
    );
}

#[test]
fn backward_refuses_what_does_not_fit() {
    let (x, w, s) = (vec![1.0f32; 24], vec![1.0f32; 3], vec![1.0f32; 8]);
    let mut out = vec![POISON; 24];
    let error = refusal("layernorm x=8x3 pass=backward", |d, p, ws| {
        d.backward(p, Backward::new(&x, &x, &mut out).weight(&w), ws)
    });
    assert!(
        error.contains("mean is missing: the forward pass saved it for this"),
        "{error}"
    );
    let error = refusal("layernorm x=8x3 act=relu pass=backward", |d, p, ws| {
        d.backward(p, Backward::new(&x, &x, &mut out).weight(&w).saved(&s, &s), ws)
    });
    assert!(error.contains("bias is missing"), "{error}");
    let error = refusal("rmsnorm x=8x3 pass=backward", |d, p, ws| {
        d.backward(p, Backward::new(&x, &x, &mut out).weight(&w).saved(&s, &s), ws)
    });
    assert!(error.contains("mean was given but this op subtracts none"), "{error}");
    let error = refusal(
        "batchnorm x=2x3x4 act=relu residual=masked pass=backward",
        |d, p, ws| d.backward(p, Backward::new(&x, &x, &mut out).weight(&w).saved(&w, &w), ws),
    );
    assert!(
        error.contains("mask is missing: the forward pass wrote it for this"),
        "{error}"
    );
    let of_result = "batchnorm x=2x3x4 affine=none act=relu residual=result pass=backward";
    let error = refusal(of_result, |d, p, ws| {
        d.backward(p, Backward::new(&x, &x, &mut out).saved(&w, &w), ws)
    });
    assert!(
        error.contains("y is missing: the gradient passes where it is not 0"),
        "{error}"
    );
    let error = refusal(of_result, |d, p, ws| {
        d.backward(p, Backward::new(&x, &x, &mut out).saved(&w, &w).result(&x[1..]), ws)
    });
    assert!(error.contains("y has 23 elements, expected 24"), "{error}");
    let error = refusal("layernorm x=8x3 pass=backward", |d, p, ws| {
        d.backward(
            p,
            Backward::new(&x, &x, &mut out).weight(&w).saved(&s, &s).result(&x),
            ws,
        )
    });
    assert!(
        error.contains("y was given but the description's residual is not of the result"),
        "{error}"
    );
    let mut gradient = vec![POISON; 24];
    let error = refusal("layernorm x=8x3 pass=backward", |d, p, ws| {
        d.backward(
            p,
            Backward::new(&x, &x, &mut out)
                .weight(&w)
                .saved(&s, &s)
                .dresidual(&mut gradient),
            ws,
        )
    });
    assert!(
        error.contains("dresidual was given but the description has no residual"),
        "{error}"
    );
    assert!(out.iter().chain(&gradient).all(|v| *v == POISON));
}

#[test]
fn overlapping_and_misaligned_memory_is_refused() {
    let mut memory = [1.0f32; 40];
    let (w, base) = (vec![1.0f32; 3], NonNull::from(&mut memory[..]).cast::<u8>());
    let at = |bytes: usize| base.map_addr(|a| a.checked_add(bytes).unwrap());
    let run = |x: usize, y: usize| {
        refusal("layernorm x=8x3 pass=eval", |d, p, ws| {
            // SAFETY: both ranges lie in `memory`; overlaps are what is tested, and refused before anything is touched.
            let (x, y) = unsafe {
                (
                    View::from_raw(at(x), 24, DType::F32),
                    ViewMut::from_raw(at(y), 24, DType::F32),
                )
            };
            d.forward(p, Forward::new(x, y).weight(&w).bias(&w), ws)
        })
    };
    assert!(run(0, 0).contains("y overlaps x in memory: to overwrite it, say inplace=yes"));
    assert!(run(0, 60).contains("y overlaps x in memory"));
    assert!(run(2, 60).contains("x is not aligned to 4 bytes"));
    assert!(memory.iter().all(|v| *v == 1.0));
}

#[test]
fn empty_tensors_are_no_error_and_leave_statistics_alone() {
    let device = Device::cpu();
    let plan = device.plan(&"batchnorm x=0x3x4 pass=train".parse().unwrap()).unwrap();
    assert_eq!(plan.name(), "empty");
    let (x, w) = (Vec::<f32>::new(), vec![1.0f32; 3]);
    let (mut y, mut mean, mut var) = (Vec::<f32>::new(), vec![5.0f32; 3], vec![6.0f32; 3]);
    let mut workspace = Workspace::new(&plan);
    let arguments = Forward::new(&x, &mut y)
        .weight(&w)
        .bias(&w)
        .update_running(&mut mean, &mut var, 0.1);
    device.forward(&plan, arguments, &mut workspace).unwrap();
    assert_eq!((mean, var), (vec![5.0; 3], vec![6.0; 3]));

    let plan = device
        .plan(&"batchnorm x=0x3x4 pass=backward".parse().unwrap())
        .unwrap();
    let s = vec![1.0f32; 3];
    let mut dweight = vec![POISON; 3];
    let arguments = Backward::new(&x, &x, &mut y)
        .weight(&w)
        .saved(&s, &s)
        .dweight(&mut dweight);
    device.backward(&plan, arguments, &mut workspace).unwrap();
    assert_eq!(dweight, [0.0; 3]);
}

#[test]
fn sixteen_bit_types_are_rounded_once() {
    use isonorm::{Scalar, bf16, f16};
    let (tie, hair) = (1.0 + 2f64.powi(-8), 2f64.powi(-40));
    assert_eq!(<bf16 as Scalar>::from_f64(tie).to_f64(), 1.0);
    assert_eq!(<bf16 as Scalar>::from_f64(tie + hair).to_f64(), 1.0 + 2f64.powi(-7));
    assert_eq!(<bf16 as Scalar>::from_f64(-tie - hair).to_f64(), -1.0 - 2f64.powi(-7));
    assert_eq!(
        <f16 as Scalar>::from_f64(1.0 + 2f64.powi(-11) + hair).to_f64(),
        1.0 + 2f64.powi(-10)
    );
    assert_eq!(<f16 as Scalar>::from_f64(2f64.powi(-60)).to_f64(), 0.0);
    assert!(<f16 as Scalar>::from_f64(f64::NAN).to_f64().is_nan());
    assert_eq!(<f16 as Scalar>::from_f64(1e300).to_f64(), f64::INFINITY);
}

#[test]
fn a_view_reads_its_elements_wherever_they_begin() {
    let values = [1.5, -2.0, 0.25];
    for dtype in DType::ALL {
        assert_eq!(TensorData::from_f64(dtype, &values).view().to_f64(), values);
    }
    let mut bytes = vec![0u8];
    bytes.extend(values.iter().flat_map(|v| v.to_ne_bytes()));
    let pointer = NonNull::from(&mut bytes[1..]).cast();
    // SAFETY: three numbers that live as long as the vector.
    let view = unsafe { View::from_raw(pointer, 3, DType::F64) };
    assert_eq!(view.to_f64(), values);
}

#[test]
fn a_residual_stream_is_for_rows_and_may_overwrite_the_residual() {
    let refused = |problem: &str| problem.parse::<NormDesc>().expect_err(problem).to_string();
    for problem in [
        "batchnorm x=2x3x4 residual=stream",
        "layernorm x=2x3x4 over=channels residual=stream",
        "groupnorm x=2x4x4 groups=2 residual=stream pass=backward",
    ] {
        assert!(
            refused(problem).contains("residual=stream is for layernorm and rmsnorm over the last dimensions"),
            "{problem}"
        );
    }
    let said = refused("rmsnorm x=4 residual=later");
    assert!(
        said.contains("residual=later; expected add, masked, result, stream or none"),
        "{said}"
    );

    // y over x and the stream over the residual: what was apart before.
    let device = Device::cpu();
    let (x, residual) = (vec![1.0f32, 2.0, 3.0, -5.0], vec![0.5f32, -4.0, 1.0, 2.0]);
    let apart: NormDesc = "layernorm x=2x2 affine=none residual=stream".parse().unwrap();
    let (mut y, mut stream) = (vec![0f32; 4], vec![0f32; 4]);
    let plan = device.plan(&apart).unwrap();
    let arguments = Forward::new(&x, &mut y).stream(&residual, &mut stream);
    device.forward(&plan, arguments, &mut Workspace::new(&plan)).unwrap();
    assert_eq!(stream, [1.5, -2.0, 4.0, -3.0]);

    let (mut over_x, mut over_residual) = (x, residual);
    let plan = device.plan(&apart.in_place(true)).unwrap();
    let arguments = Forward::in_place(&mut over_x).stream_in_place(&mut over_residual);
    device.forward(&plan, arguments, &mut Workspace::new(&plan)).unwrap();
    assert_eq!((over_x, over_residual), (y, stream));
}
