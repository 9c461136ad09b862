//! The fuzz targets' entry points on mutations of valid inputs: a little fuzzing on every run, on stable Rust.
//! `ISONORM_FUZZ=1000000 cargo test --release -p isonorm-cli --test fuzz_seeds` tries that many inputs for each.

mod common;

use std::panic::{AssertUnwindSafe, catch_unwind};

use common::array;
use fastrand::Rng;
use isonorm::DType;
use isonorm::layers::BatchNorm;
use isonorm_cli::{fuzz, io};

/// Inputs for each entry point, unless the environment asks for more.
const INPUTS: usize = 10_000;
/// No mutation makes an input longer.
const LONGEST: usize = 2000;

fn inputs() -> usize {
    std::env::var("ISONORM_FUZZ")
        .ok()
        .and_then(|n| n.parse().ok())
        .unwrap_or(INPUTS)
}

/// Calls an entry point with the seeds and with what becomes of them, and shows the input that it panics on.
fn drive(seeds: &[Vec<u8>], entry: fn(&[u8]), mutate: impl Fn(&mut Rng, &[Vec<u8>]) -> Vec<u8>) {
    let mut rng = Rng::with_seed(0xf022);
    let mutated = (0..inputs()).map(|_| mutate(&mut rng, seeds));
    for input in seeds.iter().cloned().chain(mutated) {
        if catch_unwind(AssertUnwindSafe(|| entry(&input))).is_err() {
            panic!("the entry point panicked on b\"{}\"", input.escape_ascii());
        }
    }
}

fn pick<'a, T>(rng: &mut Rng, from: &'a [T]) -> &'a T {
    &from[rng.usize(..from.len())]
}

/// A part of the bytes, perhaps empty.
fn range(rng: &mut Rng, bytes: &[u8]) -> std::ops::Range<usize> {
    let (a, b) = (rng.usize(..=bytes.len()), rng.usize(..=bytes.len()));
    a.min(b)..a.max(b)
}

/// Numbers at which sizes and offsets go wrong.
const SIZES: [u64; 9] = [0, 1, 7, 8, 255, u32::MAX as u64, i64::MAX as u64, u64::MAX, 1 << 61];

/// One to four changes of bytes: flips, truncation, splices with other seeds, copies, numbers in either notation.
fn mutate_bytes(rng: &mut Rng, seeds: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = pick(rng, seeds).clone();
    for _ in 0..rng.usize(1..=4) {
        let part = range(rng, &bytes);
        match rng.u8(..8) {
            0 => bytes.truncate(part.end),
            1 => drop(bytes.drain(part)),
            2 => {
                let other = pick(rng, seeds);
                bytes.splice(part, other[range(rng, other)].to_vec()).for_each(drop);
            }
            3 => bytes
                .splice(part, pick(rng, &SIZES).to_string().into_bytes())
                .for_each(drop),
            4 => {
                let number = pick(rng, &SIZES).to_le_bytes();
                bytes.iter_mut().skip(part.start).zip(number).for_each(|(b, n)| *b = n);
            }
            5 => {
                let copied = bytes[part.clone()].to_vec();
                bytes.splice(part.end..part.end, copied).for_each(drop);
            }
            _ if bytes.is_empty() => {}
            6 => bytes[part.start.min(part.end.saturating_sub(1))] = rng.u8(..),
            _ => {
                let at = rng.usize(..bytes.len());
                bytes[at] ^= 1 << rng.u8(..8);
            }
        }
        bytes.truncate(LONGEST);
    }
    bytes
}

/// Words exchanged, doubled, dropped or with another number, so that much of it still parses.
fn mutate_words(rng: &mut Rng, seeds: &[Vec<u8>]) -> Vec<u8> {
    if rng.u8(..8) == 0 {
        return mutate_bytes(rng, seeds);
    }
    let words = |text: &Vec<u8>| {
        String::from_utf8_lossy(text)
            .split(' ')
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    let mut text = words(pick(rng, seeds));
    for _ in 0..rng.usize(1..=3) {
        let at = rng.usize(..text.len());
        let others = words(pick(rng, seeds));
        let other = pick(rng, &others).clone();
        match rng.u8(..6) {
            0 => text[at] = other,
            1 => text.insert(at, other),
            2 if text.len() > 1 => drop(text.remove(at)),
            3 => {
                let number = pick(
                    rng,
                    &[
                        "0",
                        "1",
                        "2",
                        "3",
                        "17",
                        "-1",
                        "nan",
                        "inf",
                        "1e-30",
                        "18446744073709551615",
                    ],
                );
                let (key, _) = text[at].split_once('=').unwrap_or((&text[at], ""));
                text[at] = format!("{key}={number}");
            }
            _ => {
                let dims: Vec<_> = (0..rng.usize(1..=6)).map(|_| rng.usize(..9).to_string()).collect();
                if let Some(shape) = text.iter_mut().find(|word| word.starts_with("x=")) {
                    *shape = format!("x={}", dims.join("x"));
                }
            }
        }
    }
    text.join(" ").into_bytes()
}

/// Problem strings that between them say everything there is to say.
const PROBLEMS: [&str; 9] = [
    "batchnorm x=4x6x5x5 layout=nhwc dtype=bf16 param=f32 act=relu pass=train",
    "batchnorm x=8x6 act=leaky_relu:0.2 residual=add pass=backward",
    "batchnorm x=2x3x4 layout=nlc eps=0.001 inplace=yes pass=eval",
    "layernorm x=3x4x5 dims=2 affine=weight dtype=f64 act=gelu_tanh",
    "layernorm x=2x6x3x3 over=channels layout=channels_last pass=backward",
    "rmsnorm x=7x16 dtype=f16 param=f16 act=silu pass=backward_eval",
    "groupnorm x=2x6x4 groups=3 act=hardswish pass=backward inplace=yes",
    "groupnorm x=2x6x2x2x2 groups=2 layout=ndhwc act=sigmoid pass=train",
    "instancenorm x=2x3x4x4 affine=full act=tanh pass=eval",
];

/// Inputs that fuzzing once found to panic.
const FOUND: [&str; 2] = [
    "groupnorm x=3x0x4 groups=18446744073709551615 pass=backward",
    "groupnorm x=6x8888888888888884 groups=1 act=relu residual=add pass=backward",
];

fn problems(more: &str) -> Vec<Vec<u8>> {
    PROBLEMS.map(|problem| format!("{problem}{more}").into_bytes()).to_vec()
}

#[test]
fn problem_strings() {
    FOUND.iter().for_each(|problem| fuzz::problem(problem.as_bytes()));
    drive(&problems(""), fuzz::problem, mutate_words);
}

#[test]
fn cases() {
    let mut seeds = problems(" data=normal seed=5");
    seeds.extend(problems(" data=offset:100"));
    seeds.extend(problems(" data=spike seed=1 mean=f64"));
    drive(&seeds, fuzz::case, mutate_words);
}

#[test]
fn npy_files() {
    let mut seeds = Vec::new();
    for (shape, dtype) in [
        (&[3, 4][..], DType::F32),
        (&[2, 0, 3], DType::F16),
        (&[], DType::F64),
        (&[7], DType::F64),
    ] {
        let mut bytes = Vec::new();
        io::npy::write(&array(shape, dtype, 1), &mut bytes).unwrap();
        seeds.push(bytes.clone());
        // Column-major, the other byte order, and Python 2's spelling; the header keeps its length.
        let text = String::from_utf8_lossy(&bytes[10..128])
            .replace("False", "True ")
            .replace("'<", "'>");
        seeds.push([&bytes[..10], text.as_bytes(), &bytes[128..]].concat());
    }
    drive(&seeds, fuzz::npy, mutate_bytes);
}

/// Files of tensors, with some of each type.
fn safetensors_seeds() -> Vec<Vec<u8>> {
    let (a, b) = (array(&[2, 3], DType::Bf16, 1), array(&[4], DType::F64, 2));
    let (c, d) = (array(&[0, 5], DType::F16, 3), array(&[], DType::F32, 4));
    let seeds = [
        &[("a", &a)][..],
        &[("a", &a), ("b", &b)],
        &[("x", &c)],
        &[("a", &b), ("c", &c), ("d", &d)],
    ];
    let write = |tensors: &[(&str, &io::Array)]| {
        let mut bytes = Vec::new();
        io::safetensors::write(tensors, &mut bytes).unwrap();
        bytes
    };
    seeds.map(write).to_vec()
}

#[test]
fn safetensors_files() {
    drive(&safetensors_seeds(), fuzz::safetensors, mutate_bytes);
}

#[test]
fn state_dicts() {
    let mut seeds = safetensors_seeds();
    for layer in [BatchNorm::new(3), BatchNorm::new(2).param_dtype(DType::F64)] {
        seeds.push(serde_json::to_vec(&layer.state_dict("")).unwrap());
        seeds.push(serde_json::to_vec(&layer).unwrap());
    }
    drive(&seeds, fuzz::state_dict, mutate_bytes);
}

/// A record with something in every section.
const RECORD: &str = r#"{"schema":2,"date":"2026-11-26T00:00:00Z","machine":{"cpu":"c","cores":2,"os":"l"},"versions":{"isonorm":"0.1.0"},
"settings":{"threads":2,"min_time_s":0.1},"gpu":{"name":"g","sms":132},"rows":[{"case":"layernorm x=8x16 dtype=f32 pass=train",
"median_s":2e-6,"spread":0.1,"floor_s":1e-6,"ratio":2.0,"bytes":1024,"peers":{"torch":{"median_s":8e-6},"liger":{"median_s":1e-6}}},
{"case":"batchnorm x=8x16x3x3 layout=nhwc dtype=bf16 pass=backward","median_s":2e-6,"floor_s":1e-6,"ratio":2.0,"peers":{}}],
"skipped":[{"case":"a","reason":"b"}],"ladder":[{"op":"batchnorm","shape":"2x3","input":"normal","rungs":[{"rung":"n","about":"a",
"median_s":1e-5,"floor_s":1e-6,"bytes":2048,"compulsory_bytes":1024,"error":0.5,"published":{"seconds":1e-4,"machine":"m"}},
{"rung":"isonorm","about":"b","median_s":1e-6,"floor_s":1e-6,"error":1e-7,"tolerance":1e-6}]}],"numerics":[{"implementation":"isonorm",
"case":"l","mean_over_std":1.0,"error":1e-7},{"implementation":"n","case":"l","mean_over_std":1000.0}]}"#;

#[test]
fn records() {
    drive(&[RECORD.as_bytes().to_vec()], fuzz::record, mutate_bytes);
}
