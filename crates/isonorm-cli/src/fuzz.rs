//! Entry points for fuzzing: each takes any bytes and must return, whatever they are. Used by the targets in `fuzz/` and,
//! with mutations of valid inputs, by an ordinary test.

use std::io::Cursor;

use isonorm::layers::{BatchNorm, StateDict};
use isonorm::{CpuProperties, DType, Device, Geometry, Isa, NormDesc, Plan, Tensor};
use isonorm_check::{Case, CpuEngine, run_case};
use isonorm_report::compare::Comparison;
use isonorm_report::record::Record;

use crate::io::{npy, safetensors};

/// Parses a problem string; what parses is printed, parsed again, planned and explained.
///
/// # Panics
/// When what was printed is not the problem that was parsed: the bug that is looked for.
pub fn problem(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let Ok(desc) = text.parse::<NormDesc>() else { return };
    let printed = desc.to_string();
    assert_eq!(printed.parse::<NormDesc>().as_ref(), Ok(&desc), "{printed}");
    for threads in [1, 7] {
        let properties = CpuProperties::detect(threads, Isa::Baseline);
        let (Ok(plan), Ok(geometry)) = (Plan::new(&desc, &properties), Geometry::of(&desc)) else {
            continue;
        };
        assert_eq!(
            geometry.groups() * geometry.group_size(),
            geometry.elements(),
            "{printed}"
        );
        assert!(plan.explain().contains(&printed));
    }
}

/// Reads an `.npy` file; what is read is written and read again.
///
/// # Panics
/// When what was written is not what was read.
pub fn npy(data: &[u8]) {
    let Ok(array) = npy::read(data, data.len() as u64) else {
        return;
    };
    let mut written = Vec::new();
    npy::write(&array, &mut written).expect("memory can be written");
    let again = npy::read(&written[..], written.len() as u64).expect("what was written can be read");
    assert!(same(&array, &again));
}

/// Reads the only tensor, or the one named `a`, of a `.safetensors` file; what is read is written and read again.
///
/// # Panics
/// When what was written is not what was read.
pub fn safetensors(data: &[u8]) {
    for name in [None, Some("a")] {
        let Ok(array) = safetensors::read(Cursor::new(data), data.len() as u64, name) else {
            continue;
        };
        let mut written = Vec::new();
        safetensors::write(&[("a", &array)], &mut written).expect("memory can be written");
        let length = written.len() as u64;
        let again = safetensors::read(Cursor::new(&written), length, Some("a")).expect("what was written can be read");
        assert!(same(&array, &again));
    }
}

/// Reads state dicts: a `.safetensors` file as `fold` does, whose tensors are decoded, written and read again; and the layers'
/// own, in JSON, which is offered to a layer, as are the bytes as a layer.
///
/// # Panics
/// When what was written is not what was read, or when a layer took what it cannot compute with.
pub fn state_dict(data: &[u8]) {
    crate::fold::fuzz(data);
    if let Ok(state) = serde_json::from_slice::<StateDict>(data) {
        let mut layer = BatchNorm::new(3);
        if layer.load_state_dict("", &state).is_ok() {
            evaluate(&layer);
        }
        let written = serde_json::to_vec(&state).expect("memory can be written");
        serde_json::from_slice::<StateDict>(&written).expect("what was written can be read");
    }
    if let Ok(layer) = serde_json::from_slice::<BatchNorm>(data)
        && layer.weight().is_none_or(|weight| weight.shape().dims() == [3])
    {
        evaluate(&layer);
    }
}

/// Reads a benchmark record; what is read is compared with itself, written and read again, and made a page.
///
/// # Panics
/// When what was written is not what was read, when a record is slower than itself, or when a picture cannot be drawn.
pub fn record(data: &[u8]) {
    let Ok(record) = Record::parse(data) else { return };
    let written = serde_json::to_vec(&record).expect("memory can be written");
    let again = Record::parse(&written).expect("what was written can be read");
    assert_eq!(again, record);
    assert_eq!(Comparison::of(&record, &again).regressions, 0);
    isonorm_report::page::html(&[record]).expect("what was read can be drawn");
}

/// An evaluation, whose result does not matter.
fn evaluate(layer: &BatchNorm) {
    let x = Tensor::zeros([2, 3], DType::F32).expect("small");
    let _ = layer.forward(&x);
}

/// No case larger than this is run.
const MOST_ELEMENTS: usize = 2048;

/// Parses a case; what parses is printed and parsed again, and run when it is small.
///
/// # Panics
/// When what was printed is not the case that was parsed, or when running it writes where it should not.
pub fn case(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let Ok(case) = text.parse::<Case>() else { return };
    let printed = case.to_string();
    assert_eq!(printed.parse::<Case>().as_ref(), Ok(&case), "{printed}");
    let small = Geometry::of(&case.desc).is_ok_and(|g| g.elements().max(g.parameters).max(g.groups()) <= MOST_ELEMENTS);
    if small {
        let report = run_case(&mut CpuEngine::new(Device::cpu()), &case);
        assert!(report.faults.is_empty(), "{report}");
    }
}

/// Equal to the bit: NaN is NaN here.
fn same(a: &crate::io::Array, b: &crate::io::Array) -> bool {
    a.shape == b.shape && a.data.dtype() == b.data.dtype() && crate::io::bytes(&a.data) == crate::io::bytes(&b.data)
}
