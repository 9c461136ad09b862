//! State dicts to fold, and a folder to fold them in.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::process::Command;

use half::{bf16, f16};
use safetensors::tensor::TensorView;
use safetensors::{Dtype, SafeTensors};
use serde_json::Value;

/// A tensor in a file.
#[derive(Clone, Debug, PartialEq)]
pub struct Stored {
    dtype: Dtype,
    shape: Vec<usize>,
    bytes: Vec<u8>,
}

/// A state dict of random tensors.
pub struct Model {
    pub tensors: BTreeMap<String, Stored>,
    pub metadata: HashMap<String, String>,
    /// The type of its tensors, but for running statistics, which are `F32`.
    pub dtype: &'static str,
}

impl Default for Model {
    fn default() -> Model {
        let metadata = HashMap::from([("format".to_owned(), "pt".to_owned())]);
        Model {
            tensors: BTreeMap::new(),
            metadata,
            dtype: "F32",
        }
    }
}

fn dtype(name: &str) -> Dtype {
    serde_json::from_value(name.into()).unwrap()
}

impl Model {
    /// Adds a tensor as it is.
    pub fn raw(&mut self, name: &str, dtype_name: &str, shape: &[usize], bytes: Vec<u8>) {
        self.tensors.insert(
            name.into(),
            Stored {
                dtype: dtype(dtype_name),
                shape: shape.into(),
                bytes,
            },
        );
    }

    /// Adds a tensor of numbers in `[0.25, 2)`, signs alternating unless it is a variance.
    pub fn tensor(&mut self, name: &str, shape: &[usize]) {
        let seed = name
            .bytes()
            .fold(7u64, |seed, b| seed.wrapping_mul(31).wrapping_add(b.into()));
        let mut rng = fastrand::Rng::with_seed(seed);
        let is_statistic = name.contains("running");
        let sign = |i: usize| if i % 2 == 1 && !name.contains("var") { -1.0 } else { 1.0 };
        let values = (0..shape.iter().product()).map(|i| sign(i) * (0.25 + 1.75 * rng.f64()));
        let dtype = if is_statistic { "F32" } else { self.dtype };
        let bytes = match dtype {
            "F16" => values.flat_map(|v| f16::from_f64(v).to_le_bytes()).collect(),
            "BF16" => values.flat_map(|v| bf16::from_f64(v).to_le_bytes()).collect(),
            "F32" => values.flat_map(|v| (v as f32).to_le_bytes()).collect(),
            _ => values.flat_map(f64::to_le_bytes).collect(),
        };
        self.raw(name, dtype, shape, bytes);
    }

    pub fn weight(&mut self, module: &str, shape: &[usize]) {
        self.tensor(&format!("{module}.weight"), shape);
    }

    pub fn batch_norm(&mut self, module: &str, features: usize) {
        for leaf in ["weight", "bias", "running_mean", "running_var"] {
            self.tensor(&format!("{module}.{leaf}"), &[features]);
        }
    }

    /// The numbers in a tensor.
    pub fn read(stored: &Stored) -> Vec<f64> {
        match stored.dtype {
            Dtype::F32 => stored
                .bytes
                .chunks(4)
                .map(|b| f32::from_le_bytes(b.try_into().unwrap()).into())
                .collect(),
            other => panic!("no test reads {other}"),
        }
    }

    pub fn values(&self, name: &str) -> Vec<f64> {
        Model::read(&self.tensors[name])
    }

    /// `γ/√(σ² + eps)`.
    pub fn scales(&self, bn: &str, eps: f64) -> Vec<f64> {
        let var = self.values(&format!("{bn}.running_var"));
        self.values(&format!("{bn}.weight"))
            .iter()
            .zip(var)
            .map(|(w, v)| w / (v + eps).sqrt())
            .collect()
    }

    /// Compares a folded layer without bias with the formula.
    pub fn assert_folded(&self, folded: &BTreeMap<String, Stored>, layer: &str, bn: &str, eps: f64) {
        let (old, new) = (
            self.values(&format!("{layer}.weight")),
            Model::read(&folded[&format!("{layer}.weight")]),
        );
        let (scale, beta) = (self.scales(bn, eps), self.values(&format!("{bn}.bias")));
        let width = old.len() / scale.len();
        for (i, (new, old)) in new.iter().zip(&old).enumerate() {
            assert!(
                (new - old * scale[i / width]).abs() <= 6e-8 * new.abs(),
                "{layer}.weight[{i}]"
            );
        }
        let mean = self.values(&format!("{bn}.running_mean"));
        for (c, new) in Model::read(&folded[&format!("{layer}.bias")]).iter().enumerate() {
            assert!(
                (new - (beta[c] - mean[c] * scale[c])).abs() <= 6e-8 * new.abs(),
                "{layer}.bias[{c}]"
            );
        }
        assert!(!folded.contains_key(&format!("{bn}.running_mean")));
    }

    pub fn bytes(&self) -> Vec<u8> {
        let views = self.tensors.iter().map(|(name, t)| {
            (
                name.as_str(),
                TensorView::new(t.dtype, t.shape.clone(), &t.bytes).unwrap(),
            )
        });
        safetensors::serialize(views, Some(self.metadata.clone())).unwrap()
    }
}

/// What a run of the program left.
pub struct Run {
    pub code: i32,
    pub stdout: String,
    pub stderr: String,
}

/// A folder with `model.safetensors` in it.
pub struct Sandbox {
    folder: tempfile::TempDir,
}

impl Sandbox {
    pub fn new(model: &Model) -> Sandbox {
        let sandbox = Sandbox {
            folder: tempfile::tempdir().unwrap(),
        };
        sandbox.write("model.safetensors", &model.bytes());
        sandbox
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn output(&self) -> PathBuf {
        self.path("folded.safetensors")
    }

    /// The names of the files in the folder.
    pub fn files(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.folder.path()).unwrap();
        entries
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect()
    }

    pub fn write(&self, name: &str, bytes: &[u8]) -> PathBuf {
        std::fs::write(self.path(name), bytes).unwrap();
        self.path(name)
    }

    /// Runs `isonorm fold` on a file; arguments may say another output.
    pub fn run_on(&self, input: &Path, arguments: &[&str]) -> Run {
        let mut command = Command::new(env!("CARGO_BIN_EXE_isonorm"));
        command.arg("fold").arg(input).args(arguments);
        if !arguments.contains(&"--output") {
            command.arg("--output").arg(self.output());
        }
        let output = command.output().unwrap();
        Run {
            code: output.status.code().expect("no signal"),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }

    /// Runs `isonorm fold` on the model.
    pub fn run(&self, arguments: &[&str]) -> Run {
        self.run_on(&self.path("model.safetensors"), arguments)
    }

    /// Folds the model, which has to work; the report and the file.
    pub fn fold(&self, arguments: &[&str]) -> (Value, BTreeMap<String, Stored>) {
        let run = self.run(&[arguments, &["--json"]].concat());
        assert_eq!(run.code, 0, "{}{}", run.stdout, run.stderr);
        let report: Value = serde_json::from_str(&run.stdout).unwrap();
        assert_eq!(report["passed"], true);
        let bytes = std::fs::read(self.output()).unwrap();
        let tensors = SafeTensors::deserialize(&bytes).unwrap();
        let stored = |(name, t): (String, TensorView<'_>)| {
            (
                name,
                Stored {
                    dtype: t.dtype(),
                    shape: t.shape().into(),
                    bytes: t.data().into(),
                },
            )
        };
        (report, tensors.tensors().into_iter().map(stored).collect())
    }

    /// The output's only entry of metadata.
    pub fn metadata(&self) -> Option<(String, String)> {
        let bytes = std::fs::read(self.output()).unwrap();
        let (_, header) = SafeTensors::read_metadata(&bytes).unwrap();
        header.metadata().clone()?.into_iter().next()
    }
}

/// The norms of a report that were left alone, and why.
pub fn left_alone(report: &Value) -> Vec<(&str, &str)> {
    let left = report["left_alone"].as_array().unwrap().iter();
    left.map(|left| (left["norm"].as_str().unwrap(), left["reason"].as_str().unwrap()))
        .collect()
}
