//! `--device` of every subcommand, on any machine.

mod common;

use common::{Sandbox, array, text};
use isonorm::DType;

#[test]
fn explain_plans_for_gpus_that_are_not_there() {
    let s = Sandbox::new();
    for (gpu, name) in [
        ("h200", "NVIDIA H200"),
        ("h100", "NVIDIA H100"),
        ("a100", "A100"),
        ("rtx4090", "RTX 4090"),
    ] {
        let out = s.ok(&format!("explain layernorm x=8192x4096 dtype=bf16 --device {gpu}"));
        for part in [
            name,
            "rows/block",
            "taken",
            "blocks of",
            "shared memory",
            "compulsory",
            "to copy as much",
        ] {
            assert!(out.contains(part), "{part} in {out}");
        }
    }
    let json = s.json("explain rmsnorm x=100x64 --device h200");
    assert_eq!(json["plan"], "rows/lanes");
    assert_eq!(json["device"]["sms"], 132);
    assert_eq!(json["kernels"][0]["grid"], 50);
    assert!(json["copy_s"].as_f64().unwrap() > 0.0);
    let out = s.ok("explain groupnorm x=4x200000x8x8 groups=2 layout=nhwc pass=backward --device h200");
    assert!(
        out.contains("100000 parameters of a group side by side") && out.contains("unsupported"),
        "{out}"
    );
}

#[cfg(not(feature = "interpreter"))]
#[test]
fn without_the_interpreter_one_line_says_how_to_have_it() {
    let out = Sandbox::new().run("verify --device interpreter --case 'layernorm x=5x100'");
    assert_eq!(out.status.code(), Some(2));
    let said = text(&out.stderr);
    assert!(
        said.contains("--features interpreter") && said.lines().count() == 1,
        "{said}"
    );
}

#[cfg(feature = "interpreter")]
#[test]
fn the_interpreter_verifies_and_counts_what_it_skips() {
    let s = Sandbox::new();
    let ran = "--case 'layernorm x=5x100 dtype=bf16' --case 'rmsnorm x=3x700 residual=add'";
    let skipped = "--case 'groupnorm x=1x200000x1x2 groups=2 layout=nhwc'";
    let out = s.ok(&format!("verify --device interpreter {ran} {skipped}"));
    assert!(out.contains("ok") && out.contains("skipped 2: "), "{out}");
    let json = s.json(&format!("verify --device interpreter {ran} {skipped}"));
    let suite = &json["suites"][0];
    assert_eq!((&suite["cases"], &json["passed"]), (&3.into(), &true.into()));
    assert_eq!(json["suites"][1]["suite"], "given, misaligned");
    assert_eq!(suite["skipped"].as_object().unwrap().values().next().unwrap(), 1);
    let nothing = s.run(&format!("verify --device interpreter {skipped}"));
    assert_eq!(nothing.status.code(), Some(1));
    assert!(text(&nothing.stdout).contains("nothing was run"));
}

#[test]
fn without_a_gpu_one_line_says_so() {
    let s = Sandbox::new();
    s.write_npy("x.npy", &array(&[4, 8], DType::F32, 1));
    for line in [
        "verify --device cuda --suite smoke",
        "bench --device cuda --case 'layernorm x=8x8'",
        "run rmsnorm --input x.npy --device cuda",
        "explain layernorm x=8x8 --device cuda",
        "ladder --device cuda",
    ] {
        // No GPU is visible to it, if there is one.
        let output = s.command(line).env("CUDA_VISIBLE_DEVICES", "").output().unwrap();
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{line}: {said}");
        assert!(
            said.starts_with("error: no GPU: ") && said.trim_end().lines().count() == 1,
            "{line}: {said}"
        );
    }
}

#[test]
fn the_ladder_says_that_it_is_the_cpus_where_there_is_no_gpu() {
    let s = Sandbox::new();
    let mut command = s.command("ladder --op layernorm --shape 3x64 --min-time 0");
    let output = command.env("CUDA_VISIBLE_DEVICES", "").output().unwrap();
    let said = text(&output.stdout);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(
        said.starts_with("no GPU: ") && said.contains("this is the CPU's own ladder"),
        "{said}"
    );
    assert!(said.contains("cpu-naive") && !said.contains("ln-naive"), "{said}");
}

#[test]
fn a_gpu_that_is_only_known_runs_nothing() {
    let s = Sandbox::new();
    for (line, why) in [
        ("verify --device h200 --suite smoke", "is for explain"),
        ("bench --device interpreter", "is for verify"),
        ("bench --device gpu", "expected cpu, cuda"),
    ] {
        let refused = s.run(line);
        assert_eq!(refused.status.code(), Some(2), "{line}");
        assert!(text(&refused.stderr).contains(why), "{line}: {}", text(&refused.stderr));
    }
}
