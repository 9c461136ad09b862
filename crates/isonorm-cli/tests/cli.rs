//! Every subcommand but `run` (`run.rs`) and `fold`, and what all have in common.

mod common;

use std::io::Read;
use std::process::Stdio;

use common::{Sandbox, text};

#[test]
fn explain_prints_the_plan() {
    let s = Sandbox::new();
    let out = s.ok("explain batchnorm x=64x256x56x56 layout=nhwc dtype=bf16 act=relu --threads 4");
    for part in ["problem", "geometry", "candidates", "taken", "compulsory", "4 threads"] {
        assert!(out.contains(part), "{out}");
    }
    let json = s.json("explain 'groupnorm x=8x512x64x64 groups=32 layout=nhwc' --isa avx512 --threads 8");
    assert_eq!(json["desc"]["op"], "groupnorm");
    assert_eq!(json["desc"]["layout"], "channels-last");
    assert_eq!(json["device"]["threads"], 8);
    assert_eq!(json["geometry"]["group_size"], 16 * 64 * 64);
    let candidates = json["candidates"].as_array().unwrap();
    assert_eq!(candidates.iter().filter(|c| c["taken"] == true).count(), 1);
    assert!(
        candidates
            .iter()
            .all(|c| c["taken"] == true || !c["declined"].as_str().unwrap().is_empty())
    );
    assert!(json["traffic"]["moved_bytes"].as_u64() >= json["traffic"]["compulsory_bytes"].as_u64());
}

#[test]
fn the_ladder_of_the_cpu_climbs_and_is_recorded() {
    let s = Sandbox::new();
    let line = "ladder --op batchnorm --shape 8x6x5x7 --device cpu --min-time 0 --threads 1";
    let out = s.ok(&format!("{line} --save ladder.json"));
    for part in [
        "batchnorm x=8x6x5x7",
        "cpu-naive",
        "cpu-cached",
        "cpu-simd",
        "isonorm",
        "of floor",
        "largest error by mean over deviation",
    ] {
        assert!(out.contains(part), "{part} in {out}");
    }
    let json = s.json(line);
    let rungs = json["ladder"][0]["rungs"].as_array().unwrap();
    assert_eq!(rungs.len(), 4);
    for rung in rungs {
        assert_eq!(rung["right"], true, "{rung}");
        assert!(rung["error"].as_f64() <= rung["tolerance"].as_f64(), "{rung}");
        assert!(rung["bytes"].as_u64() >= rung["compulsory_bytes"].as_u64(), "{rung}");
    }
    let counting = s.json("ladder --op layernorm --shape 3x256 --device cpu --min-time 0");
    assert_eq!(counting["ladder"][0]["input"], "counting");
    assert!(
        counting["numerics"]
            .as_array()
            .unwrap()
            .iter()
            .all(|p| p["case"].as_str().unwrap().starts_with("layernorm"))
    );
    // A page is made of what was saved.
    s.ok("bench --record ladder.json --html ladder.html");
    let page = std::fs::read_to_string(s.path("ladder.html")).unwrap();
    assert!(page.contains("cpu-naive") && page.contains("<svg"), "{page}");
}

#[test]
fn verify_passes_and_says_how_near() {
    let s = Sandbox::new();
    let out = s.ok("verify --suite smoke --threads 2");
    assert!(
        out.contains("smoke") && out.contains("ok") && out.contains("worst element"),
        "{out}"
    );
    let json = s.json("verify --case 'layernorm x=8x100 dtype=bf16 pass=backward data=offset:100 seed=7'");
    assert_eq!(json["passed"], true);
    assert_eq!(json["suites"][0]["cases"], 1);
    assert!(json["suites"][0]["worst"]["worst"]["coordinates"].is_array());
}

#[test]
fn bench_measures_and_compares() {
    let s = Sandbox::new();
    let cases = "--case 'layernorm x=64x256' --case 'batchnorm x=4x8x9x9 act=relu residual=add pass=backward'";
    let line = format!("bench {cases} --min-time 0.01 --threads 1");
    let out = s.ok(&format!("{line} --save old.json"));
    for part in [
        "case",
        "floor",
        "ratio",
        "GB/s",
        "layernorm x=64x256 dtype=f32 pass=train",
        "geometric mean",
    ] {
        assert!(out.contains(part), "{out}");
    }
    let record: serde_json::Value = serde_json::from_slice(&std::fs::read(s.path("old.json")).unwrap()).unwrap();
    assert_eq!(record["schema"], 2);
    assert_eq!(record["settings"]["threads"], 1);
    assert_eq!(record["rows"].as_array().unwrap().len(), 2);
    for row in record["rows"].as_array().unwrap() {
        for field in ["median_s", "min_s", "floor_s", "ratio", "gbps"] {
            assert!(row[field].as_f64().unwrap() > 0.0, "{field}: {row}");
        }
        assert!(row["samples"].as_u64().unwrap() >= 5);
    }
    let json = s.json("bench --case 'rmsnorm x=16x32 dtype=bf16 inplace=yes pass=eval' --min-time 0");
    assert_eq!(
        json["rows"][0]["case"],
        "rmsnorm x=16x32 dtype=bf16 param=f32 inplace=yes pass=eval"
    );
}

/// Rewrites a record as if everything in it had taken this many times as long, without any spread.
fn scaled(s: &Sandbox, from: &str, to: &str, factor: f64) {
    let mut record: serde_json::Value = serde_json::from_slice(&std::fs::read(s.path(from)).unwrap()).unwrap();
    for row in record["rows"].as_array_mut().unwrap() {
        for field in ["median_s", "min_s", "ratio"] {
            row[field] = (row[field].as_f64().unwrap() * factor).into();
        }
        row["spread"] = 0.0.into();
    }
    std::fs::write(s.path(to), record.to_string()).unwrap();
}

#[test]
fn bench_exits_with_1_on_a_regression_only() {
    let s = Sandbox::new();
    let line = "bench --case 'layernorm x=64x256' --min-time 0.05 --threads 1";
    s.ok(&format!("{line} --save now.json"));
    // A thousand times faster and slower: no noise of the machine can hide either.
    scaled(&s, "now.json", "fast.json", 1e-3);
    scaled(&s, "now.json", "slow.json", 1e3);
    let regressed = s.run(&format!("{line} --compare fast.json"));
    assert_eq!(regressed.status.code(), Some(1));
    assert!(
        text(&regressed.stdout).contains("1 regressed"),
        "{}",
        text(&regressed.stdout)
    );
    assert_eq!(text(&regressed.stderr), "");
    let json = s.json(&format!("{line} --compare slow.json"));
    assert_eq!(json["comparison"]["regressions"], 0);
    assert_eq!(json["comparison"]["rows"][0]["verdict"], "faster");
}

#[test]
fn bench_compares_two_records_without_measuring() {
    let s = Sandbox::new();
    s.ok("bench --case 'layernorm x=64x256' --min-time 0.01 --threads 1 --save now.json");
    scaled(&s, "now.json", "slow.json", 1e3);
    let regressed = s.run("bench --compare now.json slow.json");
    assert_eq!(regressed.status.code(), Some(1));
    let said = text(&regressed.stdout);
    assert!(said.contains("1 regressed") && said.contains("± 0.0 %"), "{said}");
    assert!(s.ok("bench --compare slow.json now.json").contains("faster"));
    let json = s.json("bench --compare now.json now.json");
    assert_eq!(json["comparison"]["rows"][0]["verdict"], "same");
    assert!(json["comparison"]["rows"][0]["old_spread"].is_number());
    assert_eq!(json["rows"][0]["case"], "layernorm x=64x256 dtype=f32 pass=train");
}

#[test]
fn bench_writes_a_page_of_what_it_measured_or_of_records() {
    let s = Sandbox::new();
    let case = "--case 'layernorm x=64x256' --min-time 0.01 --threads 1";
    let out = s.ok(&format!("bench {case} --html page.html --save now.json"));
    assert!(out.contains("wrote page.html"), "{out}");
    let page = std::fs::read_to_string(s.path("page.html")).unwrap();
    assert!(page.contains("layernorm x=64x256 dtype=f32 pass=train") && page.contains("<svg"));
    let json = s.json("bench --record now.json --record now.json --html again.html --pictures pictures");
    assert_eq!(json["written"][0], "again.html");
    // The same record twice says nothing more, and a page is the same for the same records.
    assert_eq!(std::fs::read_to_string(s.path("again.html")).unwrap(), page);
    let picture = std::fs::read_to_string(s.path(json["written"][1].as_str().unwrap())).unwrap();
    assert!(picture.starts_with("<svg xmlns=") && picture.ends_with("</svg>\n"));
}

#[test]
fn completions_know_the_subcommands() {
    let s = Sandbox::new();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = s.ok(&format!("completions {shell}"));
        assert!(
            ["run", "bench", "explain", "verify"].iter().all(|c| script.contains(c)),
            "{shell}"
        );
    }
    assert_eq!(s.json("completions fish")["shell"], "fish");
}

#[test]
fn help_tells_the_exit_codes_and_version_the_version() {
    let s = Sandbox::new();
    assert!(s.ok("--help").contains("Exit codes"));
    assert!(s.ok("run --help").contains("N,spatial,C"));
    assert_eq!(s.ok("--version"), format!("isonorm {}\n", env!("CARGO_PKG_VERSION")));
}

#[test]
fn colours_are_for_terminals() {
    let s = Sandbox::new();
    let line = "verify --case 'layernorm x=2x3'";
    let shown = |name: &str, value: &str| text(&s.command(line).env(name, value).output().unwrap().stdout);
    assert!(!s.ok(line).contains('\x1b'));
    assert!(!shown("NO_COLOR", "1").contains('\x1b'));
    assert!(shown("CLICOLOR_FORCE", "1").contains('\x1b'));
    let refused = s.run("explain nonsense");
    assert!(!text(&refused.stderr).contains('\x1b'));
}

#[test]
fn a_reader_that_goes_away_is_no_error() {
    let s = Sandbox::new();
    for line in [
        "completions bash",
        "explain layernorm x=2x3",
        "verify --case 'layernorm x=2x3'",
        "--help",
    ] {
        let mut child = s
            .command(line)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        drop(child.stdout.take());
        let mut said = String::new();
        child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        assert_eq!((child.wait().unwrap().code(), said.as_str()), (Some(0), ""), "{line}");
    }
}
