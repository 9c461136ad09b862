//! `isonorm explain`: how a problem would be carried out, and why.

use isonorm::{NormDesc, Plan};
use serde::Serialize;

use crate::device::DeviceArgs;
use crate::error::{Outcome, Result};
use crate::screen::Screen;

/// Nothing runs: vector instructions that this machine lacks can be asked about, too.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The problem, such as: batchnorm x=64x256x56x56 layout=nhwc dtype=bf16 act=relu pass=train
    #[arg(required = true, value_name = "PROBLEM")]
    problem: Vec<String>,
    #[command(flatten)]
    device: DeviceArgs,
}

pub(crate) fn execute(args: &Args, screen: &mut Screen) -> Result<Outcome> {
    let desc: NormDesc = args.problem.join(" ").parse()?;
    let plan = Plan::new(&desc, &args.device.properties())?;
    if screen.is_json() {
        screen.json(&Explained::of(&plan))?;
    } else {
        screen.line(plan.explain())?;
    }
    Ok(Outcome::Success)
}

/// A plan as JSON.
#[derive(Serialize)]
pub(crate) struct Explained<'a> {
    problem: String,
    desc: Description,
    device: Properties,
    geometry: View,
    plan: &'a str,
    candidates: Vec<Candidate<'a>>,
    traffic: Traffic,
    workspace_bytes: usize,
}

#[derive(Serialize)]
struct Description {
    op: &'static str,
    shape: Vec<usize>,
    layout: isonorm::Layout,
    dtype: isonorm::DType,
    param_dtype: isonorm::DType,
    affine: isonorm::Affine,
    activation: String,
    residual: bool,
    eps: f64,
    in_place: bool,
    pass: &'static str,
}

#[derive(Serialize)]
struct Properties {
    threads: usize,
    isa: String,
    l2_bytes: usize,
    llc_bytes: usize,
}

#[derive(Serialize)]
struct View {
    batch: usize,
    outer: usize,
    kept: usize,
    inner: usize,
    groups: usize,
    group_size: usize,
    parameters: usize,
    channels: usize,
}

#[derive(Serialize)]
struct Candidate<'a> {
    name: &'a str,
    taken: bool,
    declined: Option<&'a str>,
}

#[derive(Serialize)]
struct Traffic {
    compulsory_bytes: u64,
    moved_bytes: u64,
}

impl Explained<'_> {
    pub(crate) fn of(plan: &Plan) -> Explained<'_> {
        let (g, p, t) = (plan.geometry(), plan.properties(), plan.traffic());
        Explained {
            problem: plan.desc().to_string(),
            desc: Description::of(plan.desc()),
            device: Properties {
                threads: p.threads,
                isa: p.isa.to_string(),
                l2_bytes: p.l2_bytes,
                llc_bytes: p.llc_bytes,
            },
            geometry: View {
                batch: g.batch,
                outer: g.outer,
                kept: g.kept,
                inner: g.inner,
                groups: g.groups(),
                group_size: g.group_size(),
                parameters: g.parameters,
                channels: g.channels,
            },
            plan: plan.name(),
            candidates: plan
                .candidates()
                .iter()
                .map(|c| Candidate {
                    name: c.name,
                    taken: c.declined.is_none(),
                    declined: c.declined.as_deref(),
                })
                .collect(),
            traffic: Traffic {
                compulsory_bytes: t.compulsory_bytes,
                moved_bytes: t.moved_bytes,
            },
            workspace_bytes: plan.workspace_bytes(),
        }
    }
}

impl Description {
    fn of(desc: &NormDesc) -> Description {
        Description {
            op: desc.op(),
            shape: desc.get_shape().dims().to_vec(),
            layout: desc.get_layout(),
            dtype: desc.get_dtype(),
            param_dtype: desc.get_param_dtype(),
            affine: desc.get_affine(),
            activation: activation_name(desc),
            residual: desc.has_residual(),
            eps: desc.get_eps(),
            in_place: desc.is_in_place(),
            pass: desc.get_pass().name(),
        }
    }
}

/// The activation as the problem string says it.
fn activation_name(desc: &NormDesc) -> String {
    let text = desc.to_string();
    text.split(' ')
        .find_map(|word| word.strip_prefix("act="))
        .unwrap_or("none")
        .into()
}
