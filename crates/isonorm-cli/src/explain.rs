//! `isonorm explain`: how a problem would be carried out, and why.

use isonorm::{Geometry, GpuPlan, NormDesc, Plan};
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
    match args.device.gpu_properties()? {
        Some(gpu) => {
            let plan = GpuPlan::new(&desc, &gpu.into())?;
            match screen.is_json() {
                true => screen.json(&Explained::of_gpu(&plan))?,
                false => screen.line(plan.explain())?,
            }
        }
        None => {
            let plan = Plan::new(&desc, &args.device.properties())?;
            match screen.is_json() {
                true => screen.json(&Explained::of(&plan))?,
                false => screen.line(plan.explain())?,
            }
        }
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
    /// Of a GPU.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    kernels: Vec<Kernel<'a>>,
    traffic: Traffic,
    workspace_bytes: usize,
    /// How long a GPU takes to copy the bytes that are moved, when kernels move them.
    #[serde(skip_serializing_if = "Option::is_none")]
    copy_s: Option<f64>,
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
    residual: isonorm::Residual,
    eps: f64,
    in_place: bool,
    pass: &'static str,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Properties {
    Cpu {
        threads: usize,
        isa: String,
        l2_bytes: usize,
        llc_bytes: usize,
    },
    Gpu {
        name: String,
        compute_capability: String,
        sms: u32,
        l2_bytes: usize,
        copy_bytes_per_second: f64,
    },
}

#[derive(Serialize)]
struct Kernel<'a> {
    family: &'a str,
    entry: &'a str,
    grid: u32,
    block: u32,
    cluster: u32,
    shared_bytes: u32,
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
    #[serde(skip_serializing_if = "Option::is_none")]
    shape: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    estimate_s: Option<f64>,
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
        let p = plan.properties();
        Explained {
            problem: plan.desc().to_string(),
            desc: Description::of(plan.desc()),
            device: Properties::Cpu {
                threads: p.threads,
                isa: p.isa.to_string(),
                l2_bytes: p.l2_bytes,
                llc_bytes: p.llc_bytes,
            },
            geometry: View::of(plan.geometry()),
            plan: plan.name(),
            candidates: Candidate::all(plan.candidates()),
            kernels: Vec::new(),
            traffic: plan.traffic().into(),
            workspace_bytes: plan.workspace_bytes(),
            copy_s: None,
        }
    }

    fn of_gpu(plan: &GpuPlan) -> Explained<'_> {
        let p = plan.properties();
        Explained {
            problem: plan.desc().to_string(),
            desc: Description::of(plan.desc()),
            device: Properties::Gpu {
                name: p.name.to_string(),
                compute_capability: p.compute_capability(),
                sms: p.sms,
                l2_bytes: p.l2_bytes,
                copy_bytes_per_second: p.copy_bytes_per_second,
            },
            geometry: View::of(plan.geometry()),
            plan: plan.name(),
            candidates: Candidate::all(plan.candidates()),
            kernels: plan.kernels().iter().map(Kernel::of).collect(),
            traffic: plan.traffic().into(),
            workspace_bytes: plan.workspace_bytes(),
            copy_s: plan.check().ok().map(|()| plan.copy_seconds()),
        }
    }
}

impl View {
    fn of(g: &Geometry) -> View {
        View {
            batch: g.batch,
            outer: g.outer,
            kept: g.kept,
            inner: g.inner,
            groups: g.groups(),
            group_size: g.group_size(),
            parameters: g.parameters,
            channels: g.channels,
        }
    }
}

impl Candidate<'_> {
    fn all(candidates: &[isonorm::Candidate]) -> Vec<Candidate<'_>> {
        candidates
            .iter()
            .map(|c| Candidate {
                name: c.name,
                shape: c.shape.as_deref(),
                estimate_s: c.estimate,
                taken: c.declined.is_none(),
                declined: c.declined.as_deref(),
            })
            .collect()
    }
}

impl Kernel<'_> {
    fn of(kernel: &isonorm::Kernel) -> Kernel<'_> {
        Kernel {
            family: kernel.family,
            entry: kernel.entry,
            grid: kernel.grid,
            block: kernel.block,
            cluster: kernel.cluster,
            shared_bytes: kernel.shared_bytes,
        }
    }
}

impl From<isonorm::Traffic> for Traffic {
    fn from(t: isonorm::Traffic) -> Traffic {
        Traffic {
            compulsory_bytes: t.compulsory_bytes,
            moved_bytes: t.moved_bytes,
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
            residual: desc.get_residual(),
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
