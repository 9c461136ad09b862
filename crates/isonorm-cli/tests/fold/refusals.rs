//! What is left alone, refused, or not a file to fold.

use crate::layer_and_norm;
use crate::model::{Model, Sandbox, left_alone};

#[test]
fn a_norm_that_the_library_refuses_is_left_alone_unless_it_was_mapped() {
    let mut model = Model::default();
    layer_and_norm(&mut model, "good.conv", &[2, 2, 3, 3], "good.bn");
    layer_and_norm(&mut model, "bad.conv", &[2, 2, 3, 3], "bad.bn");
    let variance = [1f32, -1.0].iter().flat_map(|v| v.to_le_bytes()).collect();
    model.raw("bad.bn.running_var", "F32", &[2], variance);
    let sandbox = Sandbox::new(&model);
    let (report, folded) = sandbox.fold(&[]);
    assert_eq!(report["folded"].as_array().unwrap().len(), 1);
    assert!(left_alone(&report)[0].1.contains("running_var[1] is -1"));
    assert!(folded.contains_key("bad.bn.running_var"));

    std::fs::remove_file(sandbox.output()).unwrap();
    let run = sandbox.run(&["--map", "bad.conv=bad.bn"]);
    assert_eq!(run.code, 2);
    assert!(run.stderr.contains("bad.bn: running_var[1] is -1"), "{}", run.stderr);
    assert!(!sandbox.output().exists());
}

#[test]
fn a_layer_with_two_norms_and_a_norm_with_two_layers_are_left_alone() {
    let mut model = Model::default();
    layer_and_norm(&mut model, "a.conv", &[2, 2, 3, 3], "a.bn");
    model.batch_norm("a.norm", 2);
    layer_and_norm(&mut model, "b.conv1", &[2, 2, 3, 3], "b.bn1");
    model.weight("b.fc1", &[2, 2]);
    let sandbox = Sandbox::new(&model);
    let run = sandbox.run(&[]);
    assert_eq!(run.code, 1);
    for line in [
        "left alone a.bn: a.conv belongs to a.norm as well",
        "left alone b.bn1: may follow b.conv1 or b.fc1",
    ] {
        assert!(run.stdout.contains(line), "{line}: {}", run.stdout);
    }
    let maps = ["--map", "a.conv=a.bn", "--map", "b.conv1=b.bn1"];
    let run = sandbox.run(&[&maps[..], &["--keep", "a.norm", "--dry-run"]].concat());
    assert_eq!(run.code, 0, "{}", run.stderr);
    let summary = "dry run, nothing written: 2 norms folded, 1 left alone";
    assert!(run.stdout.contains(summary), "{}", run.stdout);
    assert!(!sandbox.output().exists());
}

#[test]
fn wrong_options_are_one_line_and_exit_code_2() {
    let mut model = Model::default();
    layer_and_norm(&mut model, "conv1", &[2, 2, 3, 3], "bn1");
    model.weight("ln", &[2]);
    let sandbox = Sandbox::new(&model);
    let cases: [(&[&str], &str); 13] = [
        (
            &["--map", "conv1=bn2"],
            "model.safetensors: --map conv1=bn2: no module bn2 in the file",
        ),
        (&["--map", "conv2=bn1"], "no module conv2 in the file"),
        (&["--map", "conv*=bn*", "--map", "x*=y*"], "no module x* in the file"),
        (
            &["--map", "bn1=ln"],
            "expected a layer and a norm, in the order of the data flow",
        ),
        (&["--map", "conv1=ln"], "ln has no running statistics"),
        (&["--map", "bn1=conv1"], "conv1 2x2x3x3 is a convolution"),
        (&["--map", "conv1"], "is not FIRST=SECOND"),
        (&["--map", "conv1=bn1", "--map", "conv1=bn1"], "bn1 is mapped already"),
        (&["--keep", "bn3"], "--keep bn3: no module of this name in the file"),
        (&["--groups", "conv1=0"], "is not a number of groups"),
        (&["--groups", "conv1=3", "--map", "conv1=bn1"], "has 6 outputs, not 2"),
        (&["--eps", "nan"], "--eps must be finite"),
        (&["--norms", "some"], "invalid value 'some'"),
    ];
    for (arguments, reason) in cases {
        let run = sandbox.run(arguments);
        assert_eq!(run.code, 2, "{arguments:?}: {}", run.stdout);
        assert_eq!(run.stderr.lines().count(), 1, "{}", run.stderr);
        assert!(run.stderr.contains(reason), "{reason}: {}", run.stderr);
        assert!(!sandbox.output().exists());
    }
}

#[test]
fn bad_files_are_one_line_with_their_name_and_exit_code_2() {
    let mut model = Model::default();
    layer_and_norm(&mut model, "conv1", &[2, 2, 3, 3], "bn1");
    let sandbox = Sandbox::new(&model);
    let bytes = model.bytes();
    let long = [&bytes[..], &[0]].concat();
    let cases: [(&str, &[u8], &str); 7] = [
        ("truncated.safetensors", &bytes[..bytes.len() - 1], "truncated"),
        ("header.safetensors", &bytes[..40], "truncated"),
        ("long.safetensors", &long, "too long"),
        (
            "foreign.safetensors",
            b"PK\x03\x04 a zip archive of pickles",
            "not a safetensors file",
        ),
        ("empty.safetensors", b"", "too short"),
        ("model.safetensors.index.json", b"{}", "several files"),
        ("model-00001-of-00002.safetensors", &bytes, "several files"),
    ];
    for (name, bytes, reason) in cases {
        let run = sandbox.run_on(&sandbox.write(name, bytes), &[]);
        assert_eq!(run.code, 2, "{name}: {}", run.stdout);
        assert_eq!(run.stderr.lines().count(), 1, "{}", run.stderr);
        assert!(
            run.stderr.contains(name) && run.stderr.contains(reason),
            "{}",
            run.stderr
        );
        assert!(!sandbox.output().exists());
    }
    for missing in ["missing.safetensors", "."] {
        let run = sandbox.run_on(&sandbox.path(missing), &[]);
        assert_eq!((run.code, run.stderr.lines().count()), (2, 1), "{}", run.stderr);
    }
}

#[test]
fn a_failed_check_writes_nothing_and_exits_with_1() {
    // Sums of the weights overflow before folding and not after it: not the same.
    let mut model = Model {
        dtype: "F64",
        ..Model::default()
    };
    layer_and_norm(&mut model, "conv1", &[1, 64, 1], "bn1");
    model.raw("conv1.weight", "F64", &[1, 64, 1], 1.7e308f64.to_le_bytes().repeat(64));
    model.raw("bn1.running_var", "F32", &[1], 1e30f32.to_le_bytes().to_vec());
    let sandbox = Sandbox::new(&model);
    let run = sandbox.run(&[]);
    assert_eq!(run.code, 1, "{}", run.stderr);
    assert!(run.stdout.contains("a check failed, nothing written"), "{}", run.stdout);
    assert!(run.stdout.contains("differs"), "{}", run.stdout);
    assert_eq!(sandbox.files(), ["model.safetensors"]);
}

#[test]
fn the_input_is_never_replaced() {
    let mut model = Model::default();
    layer_and_norm(&mut model, "conv1", &[2, 2, 3, 3], "bn1");
    let sandbox = Sandbox::new(&model);
    let input = sandbox.path("model.safetensors");
    let run = sandbox.run(&["--output", input.to_str().unwrap()]);
    assert_eq!(run.code, 2);
    assert_eq!(std::fs::read(&input).unwrap(), model.bytes());
}

#[test]
fn an_output_that_cannot_be_written_leaves_nothing() {
    let mut model = Model::default();
    layer_and_norm(&mut model, "conv1", &[2, 2, 3, 3], "bn1");
    let sandbox = Sandbox::new(&model);
    for output in ["missing/folded.safetensors", "."] {
        let run = sandbox.run(&["--output", sandbox.path(output).to_str().unwrap()]);
        assert_eq!((run.code, run.stderr.lines().count()), (2, 1), "{}", run.stderr);
    }
    assert_eq!(sandbox.files(), ["model.safetensors"]);
}
