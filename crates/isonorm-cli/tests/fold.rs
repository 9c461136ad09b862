//! `isonorm fold` from the outside: files in, files, lines and exit codes out.

#[path = "fold/model.rs"]
mod model;
#[path = "fold/refusals.rs"]
mod refusals;
#[path = "fold/transformers.rs"]
mod transformers;

use model::{Model, Sandbox, left_alone};

/// A layer and a BatchNorm of its outputs.
fn layer_and_norm(model: &mut Model, layer: &str, shape: &[usize], norm: &str) {
    model.weight(layer, shape);
    model.batch_norm(norm, shape[0]);
}

#[test]
fn residual_network() {
    let mut model = Model::default();
    layer_and_norm(&mut model, "conv1", &[8, 3, 7, 7], "bn1");
    for block in ["layer1.0", "layer1.1", "layer2.0"] {
        for n in [1, 2] {
            layer_and_norm(
                &mut model,
                &format!("{block}.conv{n}"),
                &[8, 8, 3, 3],
                &format!("{block}.bn{n}"),
            );
        }
    }
    layer_and_norm(
        &mut model,
        "layer2.0.downsample.0",
        &[8, 8, 1, 1],
        "layer2.0.downsample.1",
    );
    model.weight("fc", &[10, 8]);
    model.tensor("fc.bias", &[10]);

    let sandbox = Sandbox::new(&model);
    let (report, folded) = sandbox.fold(&[]);
    assert_eq!(report["folded"].as_array().unwrap().len(), 8);
    assert!(left_alone(&report).is_empty());
    assert!(
        folded
            .keys()
            .all(|name| !name.contains("bn") && !name.contains("downsample.1"))
    );
    assert_eq!(folded["fc.weight"], model.tensors["fc.weight"]);
    for (conv, bn) in [
        ("conv1", "bn1"),
        ("layer1.1.conv2", "layer1.1.bn2"),
        ("layer2.0.downsample.0", "layer2.0.downsample.1"),
    ] {
        model.assert_folded(&folded, conv, bn, 1e-5);
    }
    assert_eq!(sandbox.metadata(), Some(("format".into(), "pt".into())));
}

#[test]
fn sequences_and_blocks() {
    let pairs: [(&str, &[usize], &str); 9] = [
        ("features.0", &[4, 3, 3, 3], "features.1"),
        ("features.3.conv.0.0", &[6, 4, 1, 1], "features.3.conv.0.1"),
        ("features.3.conv.1", &[4, 6, 1, 1], "features.3.conv.2"),
        ("conv_stem", &[5, 3, 3, 3], "bn1"),
        ("blocks.0.0.conv_dw", &[5, 1, 3, 3], "blocks.0.0.bn1"),
        ("blocks.0.0.conv_pw", &[6, 5, 1, 1], "blocks.0.0.bn2"),
        ("stem.conv", &[4, 3, 5], "stem.norm"),
        ("video.conv", &[4, 2, 1, 2, 2], "video.bn"),
        ("head.fc1", &[7, 9], "head.bn1"),
    ];
    let mut model = Model::default();
    for (layer, shape, norm) in pairs {
        layer_and_norm(&mut model, layer, shape, norm);
    }
    let (report, folded) = Sandbox::new(&model).fold(&["--eps", "0.001"]);
    assert_eq!(report["folded"].as_array().unwrap().len(), pairs.len(), "{report:#}");
    for (layer, _, norm) in pairs {
        model.assert_folded(&folded, layer, norm, 1e-3);
    }
}

#[test]
fn norms_before_their_convolutions_are_left_alone() {
    let mut model = Model::default();
    // DenseNet: norm1, conv1, norm2, conv2 in each layer. Only conv0 comes before norm0, and names do not tell.
    layer_and_norm(&mut model, "features.conv0", &[8, 3, 7, 7], "features.norm0");
    let layer = "features.denseblock1.denselayer1";
    model.batch_norm(&format!("{layer}.norm1"), 8);
    model.weight(&format!("{layer}.conv1"), &[16, 8, 1, 1]);
    model.batch_norm(&format!("{layer}.norm2"), 16);
    model.weight(&format!("{layer}.conv2"), &[4, 16, 3, 3]);
    model.batch_norm("features.norm5", 12);

    let sandbox = Sandbox::new(&model);
    let run = sandbox.run(&[]);
    assert_eq!(run.code, 1);
    for line in [
        "nothing to fold, nothing written",
        "left alone features.norm5: no layer before it by name",
        "its input fits, so the norm comes first",
        "left alone features.norm0: features.denseblock1.denselayer1.norm1 comes before",
    ] {
        assert!(run.stdout.contains(line), "{line}: {}", run.stdout);
    }
    assert!(!sandbox.output().exists());

    let (_, folded) = sandbox.fold(&["--map", "features.conv0=features.norm0"]);
    model.assert_folded(&folded, "features.conv0", "features.norm0", 1e-5);
}

#[test]
fn transposed_convolutions_are_told_apart() {
    let mut model = Model::default();
    model.weight("up.0", &[8, 3, 2, 2]);
    model.batch_norm("up.1", 6);
    layer_and_norm(&mut model, "square.0", &[4, 4, 4, 4], "square.1");
    let sandbox = Sandbox::new(&model);
    let doubtful = sandbox.run(&["--dry-run"]);
    assert_eq!(doubtful.code, 1);
    assert!(doubtful.stdout.contains("has an even kernel"), "{}", doubtful.stdout);
    assert!(doubtful.stdout.contains("has 8 outputs, not 6"), "{}", doubtful.stdout);

    let (_, folded) = sandbox.fold(&["--transposed", "square.0", "--groups", "up.*=2"]);
    let (old, scale) = (model.values("up.0.weight"), model.scales("up.1", 1e-5));
    for (i, (new, old)) in Model::read(&folded["up.0.weight"]).iter().zip(&old).enumerate() {
        let (input, output_in_group) = (i / 12, i / 4 % 3);
        let channel = input / 4 * 3 + output_in_group;
        assert!((new - old * scale[channel]).abs() <= 6e-8 * new.abs(), "element {i}");
    }
    assert_eq!(Model::read(&folded["up.0.bias"]).len(), 6);
}

#[test]
fn maps_take_stars_and_batch_norms_before_linear_layers() {
    let mut model = Model::default();
    for block in ["0", "1"] {
        model.batch_norm(&format!("blocks.{block}.before"), 4);
        model.weight(&format!("blocks.{block}.proj"), &[3, 4]);
    }
    let (report, folded) = Sandbox::new(&model).fold(&["--map", "blocks.*.before=blocks.*.proj"]);
    assert_eq!(report["folded"][1]["into"], "next");
    let (old, scale) = (
        model.values("blocks.1.proj.weight"),
        model.scales("blocks.1.before", 1e-5),
    );
    for (i, new) in Model::read(&folded["blocks.1.proj.weight"]).iter().enumerate() {
        assert!((new - old[i] * scale[i % 4]).abs() <= 6e-8 * new.abs());
    }
    assert_eq!(folded.len(), 4);
}

#[test]
fn other_types_fold_and_foreign_ones_pass_through() {
    for dtype in ["F16", "BF16", "F64"] {
        let mut model = Model {
            dtype,
            ..Model::default()
        };
        layer_and_norm(&mut model, "a.conv", &[4, 2, 3, 3], "a.bn");
        model.raw("a.bn.num_batches_tracked", "I64", &[], vec![0; 8]);
        model.raw("counter", "I64", &[1], vec![1; 8]);
        model.raw("quantized.conv.weight", "I8", &[2, 2, 1], vec![3; 4]);
        model.batch_norm("quantized.bn", 2);
        let (report, folded) = Sandbox::new(&model).fold(&[]);
        assert_eq!(report["folded"][0]["dtype"], dtype.to_lowercase());
        for name in ["counter", "quantized.conv.weight", "quantized.bn.bias"] {
            assert_eq!(folded[name], model.tensors[name]);
        }
        assert!(left_alone(&report)[0].1.contains("is of type I8"), "{report:#}");
        assert!(!folded.contains_key("a.bn.num_batches_tracked"));
    }
}

#[test]
fn the_same_input_gives_the_same_file() {
    let mut model = Model::default();
    layer_and_norm(&mut model, "conv1", &[4, 2, 3], "bn1");
    model.metadata.insert("author".into(), "a".into());
    model.metadata.insert("licence".into(), "b".into());
    let sandbox = Sandbox::new(&model);
    let mut files = Vec::new();
    for _ in 0..4 {
        sandbox.fold(&[]);
        files.push(std::fs::read(sandbox.output()).unwrap());
    }
    assert!(files.iter().all(|file| *file == files[0]));
}
