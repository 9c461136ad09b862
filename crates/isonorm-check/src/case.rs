//! [`Case`]: a problem string with the words `data=`, `seed=`, `mean=`, `running=`, `dx=`, `dweight=`, `means=` and `rung=`.

use std::fmt;
use std::str::FromStr;

use isonorm::{DType, Error, Norm, NormDesc, Pass, Rung};
use serde::{Serialize, Serializer};

use crate::Data;

/// What is computed, and on which data. Prints and parses as a problem string with eight more words:
/// `data=` (see [`Data`]), `seed=` (a number), `mean=f64` (the mean that is saved, or told, is kept in `f64` whatever the data),
/// `running=none` (training updates no running statistics), `dx=none` (a backward pass computes the other gradients only), `dweight=none`
/// (it leaves out those of weight and bias), `means=told` (it is told the means that dx needs) and `rung=` (a published kernel computes
/// it, see [`Rung`]).
///
/// ```
/// use isonorm_check::Case;
///
/// let text = "rmsnorm x=4x100 dtype=f32 pass=train data=spike seed=3";
/// assert_eq!(text.parse::<Case>()?.to_string(), text);
/// # Ok::<(), isonorm::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Case {
    /// What is computed.
    pub desc: NormDesc,
    /// What `x` looks like.
    pub data: Data,
    /// Which of the many tensors that look like this.
    pub seed: u64,
    /// Whether the mean that is saved, or told, is `f64`, not the type of the other statistics.
    pub wide_mean: bool,
    /// Whether training updates no running statistics (PyTorch's `track_running_stats=False`).
    pub untracked: bool,
    /// Whether a backward pass leaves dx out, as where x needs no gradient and the parameters do.
    pub without_dx: bool,
    /// Whether a backward pass leaves the gradients of weight and bias out.
    pub without_dweight: bool,
    /// Whether a backward pass through statistics that are told is told the means of their gradients, too.
    pub told_means: bool,
    /// The rung of the ladder that computes it, instead of what would be planned.
    pub rung: Option<Rung>,
}

impl Case {
    /// This problem on normally distributed data.
    pub fn new(desc: NormDesc) -> Case {
        Case {
            desc,
            data: Data::Normal,
            seed: 0,
            wide_mean: false,
            untracked: false,
            without_dx: false,
            without_dweight: false,
            told_means: false,
            rung: None,
        }
    }

    /// The same problem by a rung of the ladder.
    pub fn rung(self, rung: Rung) -> Case {
        Case {
            rung: Some(rung),
            ..self
        }
    }

    /// The same problem on other data.
    pub fn data(self, data: Data) -> Case {
        Case { data, ..self }
    }

    /// The same problem on other numbers.
    pub fn seed(self, seed: u64) -> Case {
        Case { seed, ..self }
    }

    /// The same problem with the saved mean in `f64`.
    pub fn wide_mean(self) -> Case {
        Case {
            wide_mean: true,
            ..self
        }
    }

    /// The same problem without running statistics to update.
    pub fn untracked(self) -> Case {
        Case {
            untracked: true,
            ..self
        }
    }

    /// The same problem, a backward pass, without dx.
    pub fn without_dx(self) -> Case {
        Case {
            without_dx: true,
            ..self
        }
    }

    /// The same problem, a backward pass, without the gradients of weight and bias.
    pub fn without_dweight(self) -> Case {
        Case {
            without_dweight: true,
            ..self
        }
    }

    /// The same problem, a backward pass through statistics that are told, with the means that dx needs.
    pub fn told_means(self) -> Case {
        Case {
            told_means: true,
            ..self
        }
    }

    /// The type of the saved mean.
    pub fn mean_dtype(&self) -> DType {
        if self.wide_mean {
            DType::F64
        } else {
            self.desc.get_statistics_dtype()
        }
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} data={} seed={}", self.desc, self.data, self.seed)?;
        f.write_str(if self.wide_mean { " mean=f64" } else { "" })?;
        f.write_str(if self.untracked { " running=none" } else { "" })?;
        f.write_str(if self.without_dx { " dx=none" } else { "" })?;
        f.write_str(if self.without_dweight { " dweight=none" } else { "" })?;
        f.write_str(if self.told_means { " means=told" } else { "" })?;
        self.rung.map_or(Ok(()), |rung| write!(f, " rung={rung}"))
    }
}

impl FromStr for Case {
    type Err = Error;

    /// Parses and checks a problem string with or without the words of a case.
    fn from_str(text: &str) -> Result<Case, Error> {
        let invalid = |reason: String| Error::InvalidProblem {
            reason,
            text: text.chars().take(1024).collect(),
        };
        let (mut data, mut seed, mut mean, mut running, mut rung) = (None, None, None, None, None);
        let (mut dx, mut dweight, mut means) = (None, None, None);
        let mut problem = String::new();
        for word in text.split_ascii_whitespace() {
            let slot = match word.split_once('=') {
                Some(("data", v)) => (&mut data, v),
                Some(("seed", v)) => (&mut seed, v),
                Some(("mean", v)) => (&mut mean, v),
                Some(("running", v)) => (&mut running, v),
                Some(("dx", v)) => (&mut dx, v),
                Some(("dweight", v)) => (&mut dweight, v),
                Some(("means", v)) => (&mut means, v),
                Some(("rung", v)) => (&mut rung, v),
                _ => {
                    problem.push_str(word);
                    problem.push(' ');
                    continue;
                }
            };
            if slot.0.replace(slot.1).is_some() {
                return Err(invalid(format!("{word} comes after another of its kind")));
            }
        }
        let desc: NormDesc = problem.trim_end().parse()?;
        let data = data.map_or(Ok(Data::Normal), str::parse).map_err(invalid)?;
        let seed = seed.map_or(Ok(0), |v| {
            let reason = |_| invalid(format!("seed={v} is not a number of at most {}", u64::MAX));
            v.parse().map_err(reason)
        })?;
        let wide_mean = match mean {
            None => false,
            Some("f64") => true,
            Some(v) => return Err(invalid(format!("mean={v}; expected f64"))),
        };
        let untracked = match running {
            None => false,
            Some("none") => true,
            Some(v) => return Err(invalid(format!("running={v}; expected none"))),
        };
        let without = |gradient: &str, word| match word {
            None => Ok(false),
            Some("none") if desc.get_pass().is_backward() => Ok(true),
            Some("none") => Err(invalid(format!("{gradient}=none is for backward passes"))),
            Some(v) => Err(invalid(format!("{gradient}={v}; expected none"))),
        };
        let (without_dx, without_dweight) = (without("dx", dx)?, without("dweight", dweight)?);
        let told_means = match means {
            None => false,
            Some("told") if (desc.get_norm(), desc.get_pass()) != (Norm::Batch, Pass::BackwardEval) || without_dx => {
                return Err(invalid(
                    "means=told is for the dx of batchnorm and pass=backward_eval".into(),
                ));
            }
            Some("told") => true,
            Some(v) => return Err(invalid(format!("means={v}; expected told"))),
        };
        let unknown = |v| {
            invalid(format!(
                "rung={v}; expected one of {}",
                Rung::ALL.map(Rung::name).join(", ")
            ))
        };
        let rung = rung.map(|v| Rung::named(v).ok_or_else(|| unknown(v))).transpose()?;
        Ok(Case {
            desc,
            data,
            seed,
            wide_mean,
            untracked,
            without_dx,
            without_dweight,
            told_means,
            rung,
        })
    }
}

impl Serialize for Case {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}
