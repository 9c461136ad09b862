//! Problem strings: `batchnorm x=64x256x56x56 layout=nchw dtype=bf16 act=relu pass=train`. The same words serve the
//! command line, case files, errors, benchmark rows and `explain`.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use super::{Affine, Layout, Norm, NormDesc, Over, Pass, Residual, Shape};
use crate::{Activation, Error};

/// The longest problem string that is looked at.
const MAX_LENGTH: usize = 1024;

/// Layout names by rank: `(channels first, channels last)`.
const LAYOUT_NAMES: [(usize, &str, &str); 4] = [
    (2, "nc", "nc"),
    (3, "ncl", "nlc"),
    (4, "nchw", "nhwc"),
    (5, "ncdhw", "ndhwc"),
];

impl Layout {
    fn name(self, rank: usize) -> &'static str {
        let (first, last) = LAYOUT_NAMES
            .iter()
            .find(|n| n.0 == rank)
            .map_or(("channels_first", "channels_last"), |n| (n.1, n.2));
        match self {
            Layout::ChannelsFirst => first,
            Layout::ChannelsLast => last,
        }
    }

    fn parse(s: &str, rank: usize) -> Result<Layout, String> {
        let named = LAYOUT_NAMES.iter().find(|n| n.0 == rank);
        match s {
            "channels_first" => Ok(Layout::ChannelsFirst),
            "channels_last" => Ok(Layout::ChannelsLast),
            _ if named.is_some_and(|n| n.1 == s) => Ok(Layout::ChannelsFirst),
            _ if named.is_some_and(|n| n.2 == s) => Ok(Layout::ChannelsLast),
            _ => {
                let also = named.map_or(String::new(), |n| format!("{}, {}, ", n.1, n.2));
                Err(format!(
                    "unknown layout {s:?} for {rank} dimensions; expected {also}channels_first or channels_last"
                ))
            }
        }
    }
}

fn activation_name(a: Activation) -> String {
    match a {
        Activation::Identity => "none".into(),
        Activation::Relu => "relu".into(),
        Activation::LeakyRelu { slope } => format!("leaky_relu:{slope}"),
        Activation::Silu => "silu".into(),
        Activation::Gelu => "gelu".into(),
        Activation::GeluTanh => "gelu_tanh".into(),
        Activation::Sigmoid => "sigmoid".into(),
        Activation::Tanh => "tanh".into(),
        Activation::HardSwish => "hardswish".into(),
    }
}

/// Parses an activation's name as it stands in a problem string; `leaky_relu` takes its slope after a colon (0.01
/// without one).
///
/// # Errors
/// A sentence that lists what is accepted.
pub fn parse_activation(s: &str) -> Result<Activation, String> {
    Ok(match s {
        "none" => Activation::Identity,
        "relu" => Activation::Relu,
        "leaky_relu" => Activation::LeakyRelu { slope: 0.01 },
        "silu" => Activation::Silu,
        "gelu" => Activation::Gelu,
        "gelu_tanh" => Activation::GeluTanh,
        "sigmoid" => Activation::Sigmoid,
        "tanh" => Activation::Tanh,
        "hardswish" => Activation::HardSwish,
        _ => {
            let Some(slope) = s.strip_prefix("leaky_relu:") else {
                return Err(format!(
                    "unknown activation {s:?}; expected none, relu, leaky_relu[:slope], silu, gelu, gelu_tanh, sigmoid, tanh or hardswish"
                ));
            };
            let slope = slope
                .parse()
                .map_err(|_| format!("the slope {slope:?} is not a number"))?;
            Activation::LeakyRelu { slope }
        }
    })
}

impl Pass {
    /// The pass's name in problem strings: `train`, `moments`, `eval`, `backward`, `backward_eval`.
    pub const fn name(self) -> &'static str {
        match self {
            Pass::Train => "train",
            Pass::Moments => "moments",
            Pass::Eval => "eval",
            Pass::Backward => "backward",
            Pass::BackwardEval => "backward_eval",
        }
    }
}

impl FromStr for Pass {
    type Err = String;

    fn from_str(s: &str) -> Result<Pass, String> {
        let all = [
            Pass::Train,
            Pass::Moments,
            Pass::Eval,
            Pass::Backward,
            Pass::BackwardEval,
        ];
        all.into_iter()
            .find(|p| p.name() == s)
            .ok_or_else(|| format!("unknown pass {s:?}; expected train, moments, eval, backward or backward_eval"))
    }
}

impl Affine {
    const fn name(self) -> &'static str {
        match self {
            Affine::None => "none",
            Affine::Weight => "weight",
            Affine::Full => "full",
        }
    }

    fn parse(s: &str) -> Result<Affine, String> {
        [Affine::None, Affine::Weight, Affine::Full]
            .into_iter()
            .find(|a| a.name() == s)
            .ok_or_else(|| format!("unknown affine {s:?}; expected none, weight or full"))
    }
}

impl fmt::Display for NormDesc {
    /// The shortest problem string that parses back to this description, types and pass always said.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plain = NormDesc::new(self.norm, self.shape);
        write!(f, "{} x={}", self.op(), self.shape)?;
        match self.norm {
            Norm::Layer(Over::Last(1)) | Norm::Rms(Over::Last(1)) => {}
            Norm::Layer(Over::Last(n)) | Norm::Rms(Over::Last(n)) => write!(f, " dims={n}")?,
            Norm::Layer(Over::Channels) | Norm::Rms(Over::Channels) => f.write_str(" over=channels")?,
            Norm::Group { groups } => write!(f, " groups={groups}")?,
            Norm::Batch | Norm::Instance => {}
        }
        if self.norm.has_channels() && (self.shape.rank() != 2 || self.layout == Layout::ChannelsLast) {
            let name = if self.shape.rank() == 2 {
                "channels_last"
            } else {
                self.layout.name(self.shape.rank())
            };
            write!(f, " layout={name}")?;
        }
        write!(f, " dtype={}", self.dtype)?;
        if self.get_param_dtype() != self.dtype || self.dtype != self.dtype.accumulator() {
            write!(f, " param={}", self.get_param_dtype())?;
        }
        let default_affine = if self.norm == Norm::Instance {
            Affine::None
        } else {
            plain.affine
        };
        if self.affine != default_affine {
            write!(f, " affine={}", self.affine.name())?;
        }
        if self.activation != Activation::Identity {
            write!(f, " act={}", activation_name(self.activation))?;
        }
        if self.residual != Residual::None {
            write!(f, " residual={}", self.residual.name())?;
        }
        if let Some(eps) = self.eps {
            write!(f, " eps={eps:?}")?;
        }
        if self.in_place {
            f.write_str(" inplace=yes")?;
        }
        write!(f, " pass={}", self.pass.name())
    }
}

/// The words of a problem string before they are put together; each key may come once.
#[derive(Default)]
struct Words<'a>(Vec<(&'a str, &'a str)>);

const KEYS: [&str; 13] = [
    "x", "layout", "dtype", "param", "affine", "act", "residual", "eps", "inplace", "pass", "groups", "dims", "over",
];

impl<'a> Words<'a> {
    fn parse(words: impl Iterator<Item = &'a str>) -> Result<Words<'a>, String> {
        let mut found = Words::default();
        for word in words {
            let (key, value) = word
                .split_once('=')
                .ok_or_else(|| format!("{word:?} is not key=value"))?;
            if !KEYS.contains(&key) {
                return Err(format!("unknown key {key:?}; expected one of {}", KEYS.join(", ")));
            }
            if found.get(key).is_some() {
                return Err(format!("{key} is given twice"));
            }
            found.0.push((key, value));
        }
        Ok(found)
    }

    fn get(&self, key: &str) -> Option<&'a str> {
        self.0.iter().find(|w| w.0 == key).map(|w| w.1)
    }

    fn number(&self, key: &str) -> Result<Option<usize>, String> {
        self.get(key)
            .map(|v| {
                v.parse()
                    .map_err(|_| format!("{key}={v} is not a number of at most {}", usize::MAX))
            })
            .transpose()
    }

    fn residual(&self) -> Result<Residual, String> {
        match self.get("residual") {
            None | Some("none" | "no") => Ok(Residual::None),
            Some("add") => Ok(Residual::Add),
            Some("masked") => Ok(Residual::Masked),
            Some("result") => Ok(Residual::Result),
            Some("stream") => Ok(Residual::Stream),
            Some(v) => Err(format!("residual={v}; expected add, masked, result, stream or none")),
        }
    }

    fn yes(&self, key: &str, yes: &str) -> Result<bool, String> {
        match self.get(key) {
            None | Some("none" | "no") => Ok(false),
            Some(v) if v == yes => Ok(true),
            Some(v) => Err(format!("{key}={v}; expected {yes} or none")),
        }
    }
}

fn parse(text: &str) -> Result<NormDesc, String> {
    if text.len() > MAX_LENGTH {
        return Err(format!("longer than {MAX_LENGTH} bytes"));
    }
    let mut words = text.split_ascii_whitespace();
    let op = words
        .next()
        .ok_or("empty; expected an op, such as batchnorm x=64x256x56x56")?;
    let words = Words::parse(words)?;
    let rows = matches!(op, "layernorm" | "rmsnorm");
    for (key, allowed) in [("groups", op == "groupnorm"), ("dims", rows), ("over", rows)] {
        if words.get(key).is_some() && !allowed {
            return Err(format!("{op} takes no {key}"));
        }
    }
    let over = match (words.get("over"), words.number("dims")?) {
        (None, dims) => Over::Last(dims.unwrap_or(1)),
        (Some("channels"), None) => Over::Channels,
        (Some("channels"), Some(_)) => {
            return Err("over=channels and dims exclude each other".into());
        }
        (Some(v), _) => return Err(format!("over={v}; expected channels")),
    };
    let norm = match op {
        "batchnorm" => Norm::Batch,
        "layernorm" => Norm::Layer(over),
        "rmsnorm" => Norm::Rms(over),
        "groupnorm" => Norm::Group {
            groups: words.number("groups")?.ok_or("groupnorm needs groups=")?,
        },
        "instancenorm" => Norm::Instance,
        _ => {
            return Err(format!(
                "unknown op {op:?}; expected batchnorm, layernorm, rmsnorm, groupnorm or instancenorm"
            ));
        }
    };
    let shape: Shape = words.get("x").ok_or("the shape is missing: x=64x256x56x56")?.parse()?;
    let mut desc = NormDesc::new(norm, shape)
        .residual(words.residual()?)
        .in_place(words.yes("inplace", "yes")?);
    if norm == Norm::Instance {
        desc.affine = Affine::None;
    }
    if let Some(v) = words.get("layout") {
        desc.layout = Layout::parse(v, shape.rank())?;
    }
    if let Some(v) = words.get("dtype") {
        desc.dtype = v.parse()?;
    }
    if let Some(v) = words.get("param") {
        desc.param_dtype = Some(v.parse()?);
    }
    if let Some(v) = words.get("affine") {
        desc.affine = Affine::parse(v)?;
    }
    if let Some(v) = words.get("act") {
        desc.activation = parse_activation(v)?;
    }
    if let Some(v) = words.get("eps") {
        desc.eps = Some(v.parse().map_err(|_| format!("eps={v} is not a number"))?);
    }
    if let Some(v) = words.get("pass") {
        desc.pass = v.parse()?;
    }
    Ok(desc)
}

impl FromStr for NormDesc {
    type Err = Error;

    /// Parses and checks a problem string.
    fn from_str(text: &str) -> Result<NormDesc, Error> {
        let shown = || text.chars().take(MAX_LENGTH).collect();
        let desc = parse(text).map_err(|reason| Error::InvalidProblem { reason, text: shown() })?;
        desc.check()?;
        Ok(desc)
    }
}

impl Serialize for NormDesc {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for NormDesc {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<NormDesc, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

/// An activation as its name in problem strings, for `#[serde(with = "activation_as_name")]`.
pub(crate) mod activation_as_name {
    use super::*;

    pub(crate) fn serialize<S: Serializer>(a: &Activation, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&activation_name(*a))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Activation, D::Error> {
        parse_activation(&String::deserialize(deserializer)?).map_err(de::Error::custom)
    }
}
