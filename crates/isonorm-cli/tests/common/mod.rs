//! The program in a folder of its own, with files to work on.

#![allow(dead_code, reason = "each test program uses its own part of this")]

use std::fs::File;
use std::path::PathBuf;
use std::process::{Command, Output};

use isonorm::{DType, TensorData};
use isonorm_cli::io::{Array, npy, safetensors};
use tempfile::TempDir;

/// The program in a temporary folder.
pub struct Sandbox(TempDir);

impl Sandbox {
    pub fn new() -> Sandbox {
        Sandbox(tempfile::tempdir().unwrap())
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// The program, with words separated by spaces; quoted by `'` where a word has spaces itself.
    pub fn command(&self, line: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_isonorm"));
        command
            .current_dir(self.0.path())
            .env_remove("NO_COLOR")
            .env_remove("CLICOLOR_FORCE");
        for (i, part) in line.split('\'').enumerate() {
            match i % 2 {
                0 => command.args(part.split_ascii_whitespace()),
                _ => command.arg(part),
            };
        }
        command
    }

    pub fn run(&self, line: &str) -> Output {
        self.command(line).output().unwrap()
    }

    /// Runs, expects success and returns the standard output.
    pub fn ok(&self, line: &str) -> String {
        let output = self.run(line);
        let (out, err) = (text(&output.stdout), text(&output.stderr));
        assert!(output.status.success(), "{line}: {err}");
        assert_eq!(err, "", "{line}");
        out
    }

    /// Runs with `--json`, expects success and parses.
    pub fn json(&self, line: &str) -> serde_json::Value {
        serde_json::from_str(&self.ok(&format!("{line} --json"))).unwrap()
    }

    pub fn write_npy(&self, name: &str, array: &Array) {
        npy::write(array, File::create(self.path(name)).unwrap()).unwrap();
    }

    pub fn write_safetensors(&self, name: &str, tensors: &[(&str, &Array)]) {
        safetensors::write(tensors, File::create(self.path(name)).unwrap()).unwrap();
    }

    pub fn npy(&self, name: &str) -> Array {
        let file = File::open(self.path(name)).unwrap();
        let length = file.metadata().unwrap().len();
        npy::read(file, length).unwrap()
    }

    pub fn safetensors(&self, name: &str, tensor: &str) -> Array {
        let file = File::open(self.path(name)).unwrap();
        let length = file.metadata().unwrap().len();
        safetensors::read(file, length, Some(tensor)).unwrap()
    }

    /// The files that there are, sorted.
    pub fn files(&self) -> Vec<String> {
        let entries = self.0.path().read_dir().unwrap();
        let mut names: Vec<_> = entries.map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// An array of this shape with values between −2 and 2 that look random and are exact in every type.
pub fn array(shape: &[usize], dtype: DType, seed: usize) -> Array {
    let len = shape.iter().product();
    let value = |i: usize| ((i + 1).wrapping_mul(2_654_435_761 + 2 * seed) >> 7) % 65;
    let values: Vec<f64> = (0..len).map(|i| value(i) as f64 / 16.0 - 2.0).collect();
    Array {
        shape: shape.to_vec(),
        data: TensorData::from_f64(dtype, &values),
    }
}

/// Fails unless all values are this close.
pub fn assert_close(got: &[f64], expected: &[f64], tolerance: f64) {
    assert_eq!(got.len(), expected.len());
    for (i, (g, e)) in got.iter().zip(expected).enumerate() {
        assert!((g - e).abs() <= tolerance, "element {i}: {g}, expected {e}");
    }
}

/// Mean and variance (biased).
pub fn moments(values: &[f64]) -> (f64, f64) {
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n;
    (mean, values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / n)
}
