//! Groups that lie side by side, or in pieces.

use isonorm::GpuProperties;
use isonorm::cuda::Interpreter;
use isonorm_check::{Case, InterpreterEngine, run_suite};

use super::{check, interpreters, parsed, tiny};

/// Each shape with each pass, of both types, on data with a mean.
fn crossed(shapes: &[&str], passes: &[&str], dtypes: [&str; 2]) -> Vec<Case> {
    parsed(shapes.iter().flat_map(|shape| {
        passes
            .iter()
            .flat_map(move |pass| dtypes.map(|dtype| format!("{shape} dtype={dtype} {pass} data=offset:100 seed=6")))
    }))
}

#[test]
fn tiles_in_the_interpreter() {
    let shapes = [
        // Channels-last: one tile, some, the last of which is narrow; several tensors of a batch.
        "batchnorm x=7x64x3x5 layout=nhwc",
        "batchnorm x=40x100x2x3 layout=nhwc",
        "batchnorm x=301x24",
        "instancenorm x=5x40x6x7 layout=nhwc affine=full",
        "groupnorm x=3x48x5x4 groups=6 layout=nhwc",
        "groupnorm x=9x32x2x2 groups=1 layout=nhwc",
        // Channels first: a tile a channel, some channels, single elements.
        "batchnorm x=5x7x16x16",
        "batchnorm x=9x16x7x7",
        "batchnorm x=6x8x14x14",
        "batchnorm x=3x5x5x7",
    ];
    let passes = [
        "pass=train",
        "pass=train act=relu residual=add",
        "pass=backward",
        "pass=backward act=gelu",
        "pass=eval",
        "pass=backward_eval act=relu residual=add",
    ];
    let cases = crossed(&shapes, &passes, ["f32", "bf16"]);
    for sms in [1, 3, 12] {
        for mut engine in interpreters(&GpuProperties { sms, ..tiny(80) }) {
            let report = check(&mut engine, "tiles", &cases);
            assert_eq!(report.skipped(), 0, "{report}");
        }
    }
}

#[test]
fn channels_of_positions_in_the_interpreter() {
    let shapes = [
        // A tile, some, the last of which is narrow; single elements; channels that several blocks share, or that are read again.
        "layernorm x=2x24x4x4",
        "rmsnorm x=3x20x8x9 affine=none",
        "layernorm x=2x7x5x7 affine=weight",
        "rmsnorm x=3x3x1x300",
        "layernorm x=1x400x4x8",
        "rmsnorm x=1x1500x1x7",
        "layernorm x=1x2400x2x2 affine=none",
    ];
    let passes = [
        "pass=train",
        "pass=train act=relu residual=add",
        "pass=backward",
        "pass=backward act=relu residual=add",
        "pass=backward act=gelu",
    ];
    let cases = crossed(&shapes, &passes, ["f32 over=channels", "bf16 param=bf16 over=channels"]);
    for sms in [4, 12] {
        for mut engine in interpreters(&GpuProperties { sms, ..tiny(80) }) {
            let report = check(&mut engine, "channels", &cases);
            assert_eq!(report.skipped(), 0, "{report}");
        }
    }
}

#[test]
fn every_plan_of_tiles_is_right() {
    let problems = [
        "batchnorm x=7x64x3x5 layout=nhwc",
        "batchnorm x=40x100x2x3 layout=nhwc dtype=bf16 act=relu residual=add",
        "groupnorm x=9x48x5x4 groups=6 layout=nhwc",
        "batchnorm x=5x7x16x16",
        "batchnorm x=6x8x14x14 dtype=bf16",
        // As many images as one warp has; a last tile with fewer channels.
        "batchnorm x=7x2x2x4 dtype=f16",
        "batchnorm x=2x136x2x2 act=relu residual=masked",
        "layernorm x=3x90x8x16 over=channels dtype=f16",
    ];
    let passes = |problem| ["train", "backward"].map(|pass| format!("{problem} pass={pass} data=offset:100 seed=9"));
    let cases = parsed(problems.into_iter().flat_map(passes));
    // Without clusters, and with.
    for compute_capability in [80, 90] {
        let gpu = GpuProperties {
            sms: 5,
            ..tiny(compute_capability)
        };
        let interpreter = Interpreter::new(gpu);
        let mut checked = 0;
        for alternative in 1.. {
            let mut engine = InterpreterEngine::new(interpreter.clone()).alternative(alternative);
            let report = run_suite(&mut engine, &cases, |_| {});
            assert!(report.passed() || report.right() == 0, "{alternative}: {report}");
            checked += report.right();
            if report.right() == 0 {
                break;
            }
        }
        assert!(checked > 2 * cases.len(), "{checked}");
    }
}

#[test]
fn groups_wider_than_a_block_in_the_interpreter() {
    let shapes = [
        // Parts of a group: of the same width, with a narrow one, of single elements.
        "groupnorm x=2x512x3x3 groups=2 layout=nhwc",
        "groupnorm x=3x264x5x4 groups=1 layout=nhwc",
        "groupnorm x=5x302x2x2 groups=2 layout=nhwc",
    ];
    let passes = [
        "pass=train",
        "pass=train act=relu residual=add",
        "pass=backward",
        "pass=backward act=gelu residual=add",
    ];
    let cases = crossed(&shapes, &passes, ["f32", "bf16 param=bf16"]);
    for sms in [3, 12, 40] {
        for mut engine in interpreters(&GpuProperties { sms, ..tiny(80) }) {
            let report = check(&mut engine, "wide groups", &cases);
            assert_eq!(report.skipped(), 0, "{report}");
        }
    }
}
