//! The host in the place of a GPU.

use isonorm::cuda::Interpreter;
use isonorm::{Error, Forward, GpuProperties, NormDesc, Result};

fn interpreter() -> Interpreter {
    Interpreter::new(GpuProperties::known("h200").expect("a known GPU"))
}

#[test]
fn it_may_go_to_other_threads() {
    fn shared<T: Send + Sync>() {}
    shared::<Interpreter>();
}

#[test]
fn arguments_are_checked_before_anything_runs() -> Result<()> {
    let interpreter = interpreter();
    let plan = interpreter.plan(&NormDesc::layer_norm([2, 4], 1))?;
    let (x, weight) = ([1.0f32; 8], [1.0f32; 4]);
    let mut y = [7.0f32; 8];
    let run = |a: Forward<'_>| interpreter.forward(&plan, a);
    let error = run(Forward::new(&x[..7], &mut y[..]).weight(&weight[..])).unwrap_err();
    assert!(matches!(error, Error::LengthMismatch { tensor: "x", .. }), "{error}");
    let error = run(Forward::new(&x[..], &mut y[..]).weight(&weight[..])).unwrap_err();
    assert!(
        matches!(error, Error::MissingArgument { tensor: "bias", .. }),
        "{error}"
    );
    let mut mean = [0.0f64; 2];
    let mut rstd = [0.0f32; 2];
    let all = Forward::new(&x[..], &mut y[..]).weight(&weight[..]).bias(&weight[..]);
    let error = run(all.save(&mut mean[..], &mut rstd[..])).unwrap_err();
    assert!(matches!(error, Error::Unsupported { .. }), "{error}");
    assert_eq!(y, [7.0; 8]);
    Ok(())
}

#[test]
fn the_interpreter_computes_and_a_constant_row_is_its_bias() -> Result<()> {
    let interpreter = interpreter();
    let plan = interpreter.plan(&NormDesc::layer_norm([2, 4], 1))?;
    let x = [1.0f32, 2.0, 3.0, 4.0, -1.0, -1.0, -1.0, -1.0];
    let (weight, bias) = ([1.0f32; 4], [0.5f32; 4]);
    for seed in 0..4 {
        let mut y = [f32::NAN; 8];
        let arguments = Forward::new(&x[..], &mut y[..]).weight(&weight[..]).bias(&bias[..]);
        interpreter.clone().seed(seed).forward(&plan, arguments)?;
        assert_eq!(y[4..], [0.5; 4]);
        assert!((y[0] - (0.5 - 1.3416355)).abs() < 1e-5, "{y:?}");
    }
    Ok(())
}
