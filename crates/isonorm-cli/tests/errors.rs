//! Whatever is wrong: exit code 2, one line that begins with `error: `, nothing on the standard output, no file left.

mod common;

use std::fs;

use common::{Sandbox, array, text};
use isonorm::DType;

/// A folder with valid and broken files.
fn sandbox() -> Sandbox {
    let s = Sandbox::new();
    let x = array(&[2, 6, 4], DType::F32, 1);
    s.write_npy("x.npy", &x);
    s.write_npy("one.npy", &array(&[1, 6], DType::F32, 1));
    s.write_npy("w6.npy", &array(&[6], DType::F32, 2));
    s.write_npy("w5.npy", &array(&[5], DType::F32, 2));
    s.write_npy("w6_f64.npy", &array(&[6], DType::F64, 2));
    let bf16 = array(&[2, 6, 4], DType::Bf16, 1);
    s.write_safetensors("two.safetensors", &[("a", &bf16), ("b", &x)]);
    let whole = fs::read(s.path("x.npy")).unwrap();
    fs::write(s.path("short.npy"), &whole[..whole.len() - 1]).unwrap();
    fs::write(s.path("header.npy"), &whole[..9]).unwrap();
    fs::write(s.path("foreign.npy"), "PK\x03\x04 a zip file").unwrap();
    fs::write(s.path("empty.npy"), "").unwrap();
    let huge = String::from_utf8_lossy(&whole[10..128]).replace("(2, 6, 4)", "(9999999999, 9999999999)");
    fs::write(s.path("huge.npy"), [&whole[..10], &huge.as_bytes()[..118]].concat()).unwrap();
    let whole = fs::read(s.path("two.safetensors")).unwrap();
    fs::write(s.path("short.safetensors"), &whole[..whole.len() - 1]).unwrap();
    fs::write(s.path("foreign.safetensors"), "not a tensor in here").unwrap();
    fs::write(s.path("x.txt"), "1 2 3").unwrap();
    fs::write(s.path("record.json"), r#"{"schema": 99, "rows": []}"#).unwrap();
    fs::create_dir(s.path("folder.npy")).unwrap();
    s
}

fn refused(s: &Sandbox, line: &str, expected: &str) {
    let before = s.files();
    let output = s.run(line);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{line}: {said}");
    assert!(said.starts_with("error: ") && said.ends_with('\n'), "{line}: {said:?}");
    assert_eq!(said.lines().count(), 1, "{line}: {said}");
    assert!(said.contains(expected), "{line}: {said:?} lacks {expected:?}");
    assert_eq!(text(&output.stdout), "", "{line}");
    assert_eq!(s.files(), before, "{line}");
}

#[test]
fn bad_usage() {
    let s = sandbox();
    for (line, expected) in [
        ("", "requires a subcommand"),
        ("walk", "unrecognized subcommand 'walk'"),
        ("ladder --op rmsnorm", "--op"),
        ("ladder --shape 3x4", "--op"),
        ("ladder --op layernorm --shape 3xx4", "expected sizes such as"),
        ("ladder --op layernorm --shape ten", "expected sizes such as"),
        ("ladder --op batchnorm --shape 8 --device cpu", "batchnorm"),
        (
            "ladder --op batchnorm --shape 1x4 --device cpu",
            "more than 1 value per channel",
        ),
        (
            "ladder --op layernorm --shape 0x4 --device cpu",
            "there are no elements",
        ),
        ("ladder --device h200", "--device h200 is for explain"),
        ("ladder --device interpreter", "--device interpreter is for verify"),
        (
            "ladder --device cpu --save folder/that/is/not/there.json",
            "cannot write",
        ),
        ("run batchnorm", "--input"),
        ("run batchnorm --inptu x.npy", "--input"),
        ("run --input x.npy", "PROBLEM"),
        ("run batchnorm --input x.npy --threads -1", "unexpected argument '-1'"),
        ("run batchnorm --input x.npy --threads 1000000", "--threads"),
        ("run batchnorm --input x.npy --isa mmx", "unknown isa"),
        ("run batchnorm --input x.npy --repeat 0", "--repeat"),
        ("explain", "PROBLEM"),
        ("explain nonsense", "unknown op"),
        ("explain layernorm x=2xx3", "is not a size"),
        (
            "explain 'groupnorm x=2x5x3 groups=2'",
            "multiple of the number of groups",
        ),
        ("explain 'batchnorm x=99999999999x99999999999'", "more elements than"),
        ("verify --suite everything", "possible values"),
        ("verify --case 'layernorm x=2x3 data=odd'", "data"),
        ("verify --case 'layernorm x=100000000x100000'", "not enough memory"),
        ("bench --suite everything", "possible values"),
        ("bench --case 'layernorm x=2x0'", "no elements"),
        ("bench --case 'layernorm x=100000000x100000'", "not enough memory"),
        ("bench --min-time -1", "unexpected argument '-1'"),
        ("bench --min-time nan --suite smoke", "--min-time"),
        ("bench --suite smoke --compare missing.json", "missing.json"),
        (
            "bench --suite smoke --compare record.json",
            "record.json: benchmark record of schema 99, which a newer isonorm wrote",
        ),
        ("bench --suite smoke --compare x.txt", "x.txt: not a benchmark record"),
        ("bench --compare missing.json record.json", "missing.json"),
        (
            "bench --compare empty.npy record.json",
            "empty.npy: not a benchmark record: EOF",
        ),
        ("bench --compare folder.npy record.json", "folder.npy: not a file"),
        ("bench --compare a.json b.json c.json", "c.json"),
        ("bench --compare a.json b.json --suite smoke", "measures nothing"),
        ("bench --compare a.json b.json --html page.html", "measures nothing"),
        ("bench --record record.json", "--html FILE or --pictures FOLDER"),
        ("bench --record record.json --html page.html", "a newer isonorm"),
        (
            "bench --record record.json --html page.html --suite smoke",
            "cannot be used with",
        ),
        (
            "bench --ablate --case 'layernorm x=2x3'",
            "--ablate is for kernels of a GPU",
        ),
        ("bench --ablate --device cuda --compare a.json", "cannot be used with"),
        ("completions tcsh", "possible values"),
    ] {
        refused(&s, line, expected);
    }
}

#[test]
fn bad_files() {
    let s = sandbox();
    for (input, expected) in [
        ("missing.npy", "missing.npy: No such file"),
        ("x.txt", "x.txt: unknown kind of file"),
        ("folder.npy", "folder.npy: not a file"),
        ("short.npy", "short.npy: truncated"),
        ("header.npy", "header.npy: not a npy file: too short"),
        ("empty.npy", "empty.npy: not a npy file: too short"),
        ("foreign.npy", "foreign.npy: not a npy file"),
        ("huge.npy", "huge.npy: npy header: a shape of"),
        ("short.safetensors:a", "short.safetensors: truncated"),
        ("foreign.safetensors", "foreign.safetensors: not a safetensors file"),
        ("two.safetensors", "say which tensor"),
        ("two.safetensors:c", "no tensor \"c\"; the file has \"a\", \"b\""),
    ] {
        refused(&s, &format!("run batchnorm --input {input} --output y.npy"), expected);
    }
    refused(
        &s,
        "run batchnorm --input x.npy --weight short.npy --output y.npy",
        "short.npy: truncated",
    );
}

#[test]
fn tensors_that_do_not_fit() {
    let s = sandbox();
    for (line, expected) in [
        (
            "batchnorm --input x.npy --weight w5.npy",
            "weight has 5 elements, expected 6",
        ),
        ("batchnorm --input x.npy --weight w6_f64.npy", "parameters must be f32"),
        ("batchnorm --input x.npy --bias w6.npy", "--bias needs --weight"),
        (
            "'batchnorm affine=full' --input x.npy --weight w6.npy",
            "bias is missing",
        ),
        (
            "batchnorm --input x.npy --residual w6.npy",
            "residual has 6 elements, expected 48",
        ),
        (
            "'batchnorm x=2x6x5' --input x.npy",
            "x.npy is 2x6x4 (N,C,spatial), the problem says 2x6x5",
        ),
        (
            "'batchnorm dtype=bf16' --input x.npy",
            "x.npy has elements of type f32, the problem says bf16",
        ),
        ("batchnorm --layout nhwc --input x.npy", "unknown layout"),
        ("batchnorm --act swish --input x.npy", "unknown activation"),
        ("'batchnorm act=relu' --act gelu --input x.npy", "act is given twice"),
        ("batchnorm --eps nan --input x.npy", "eps must be finite"),
        (
            "batchnorm --eps -1 --input x.npy",
            "eps must be finite and not negative",
        ),
        (
            "batchnorm --momentum inf --input x.npy --running-mean w6.npy --running-var w6.npy",
            "factor",
        ),
        ("batchnorm --input one.npy", "more than 1 value per channel"),
        ("groupnorm --groups 4 --input x.npy", "multiple of the number of groups"),
        ("groupnorm --input x.npy", "groups"),
        ("batchnorm --groups 2 --input x.npy", "groups"),
        ("layernorm --dims 4 --input x.npy", "cannot normalize over the last 4"),
        (
            "batchnorm --pass eval --input x.npy",
            "running_mean and running_var is missing",
        ),
        (
            "batchnorm --pass eval --input x.npy --running-mean w6.npy",
            "go together",
        ),
        (
            "layernorm --input x.npy --running-mean w6.npy --running-var w6.npy",
            "no running statistics",
        ),
        ("rmsnorm --input x.npy --save-mean", "subtracts none"),
        ("layernorm --pass backward --input x.npy", "--grad is missing"),
        ("layernorm --grad x.npy --input x.npy", "computes no gradient"),
        ("layernorm --rstd w6.npy --input x.npy", "pass=backward only"),
        (
            "layernorm --pass backward --input x.npy --grad x.npy --mean w6.npy",
            "--mean needs --rstd",
        ),
        ("'layernorm inplace=yes' --input x.npy", "cannot work in place"),
    ] {
        refused(&s, &format!("run {line} --output y.npy"), expected);
    }
}

#[test]
fn outputs_that_cannot_be_written() {
    let s = sandbox();
    for (line, expected) in [
        (
            "batchnorm --input x.npy --output y.txt",
            "y.txt: cannot write: unknown kind of file",
        ),
        ("batchnorm --input x.npy --output no/such/y.npy", "y.npy: cannot write"),
        (
            "batchnorm --input x.npy --output folder.npy",
            "folder.npy: cannot write: it is a directory",
        ),
        ("batchnorm --input two.safetensors:a --output y.npy", "npy has no bf16"),
        (
            "batchnorm --input two.safetensors:a --save-mean --output y.npy",
            "npy has no bf16",
        ),
    ] {
        refused(&s, &format!("run {line}"), expected);
    }
    for option in [
        "--save no/such/record.json",
        "--html no/such/page.html",
        "--html folder.npy",
        "--pictures x.txt",
        "--pictures x.txt/pictures",
    ] {
        // Before an hour of measuring.
        let line = format!("bench --case 'layernorm x=2x3' --min-time 3600 {option}");
        refused(&s, &line, "cannot write");
    }
}

#[test]
fn names_with_line_breaks_stay_on_one_line() {
    let s = sandbox();
    refused(&s, "run batchnorm --input 'a\nb.npy'", "a b.npy");
    refused(&s, "explain 'batchnorm\nx=\u{1b}[31m'", "is not a size");
}
