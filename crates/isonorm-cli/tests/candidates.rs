//! What a plan takes is near the fastest of all ways that were measured: records of `isonorm bench --device cuda --alternatives`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::sync::Arc;

use isonorm::{GpuPlan, GpuProperties, NormDesc};
use serde_json::Value;

/// The time of the plan that is taken, over that of the fastest, at most.
const MOST: f64 = 1.10;

/// Problems of a GPU of which something slower is taken, and over the fastest it takes at most so much: the estimate tells their ways apart by less
/// than it is wrong. Whoever makes one right takes it off this list.
const SLOWER: &[(&str, &str, f64)] = &[
    (
        "NVIDIA H100",
        "batchnorm x=64x512x28x28 layout=nchw dtype=bf16 param=f32 act=relu residual=masked pass=backward",
        1.16,
    ),
    (
        "NVIDIA H200",
        "batchnorm x=64x1024x14x14 layout=nchw dtype=bf16 param=f32 act=silu pass=backward",
        1.11,
    ),
];

/// A way that was measured: its name and shape, if it has one, and its time in seconds.
type Measured = ((String, String), f64);

fn measured(record: &Value) -> BTreeMap<String, Vec<Measured>> {
    let mut cases: BTreeMap<String, Vec<Measured>> = BTreeMap::new();
    for row in record["rows"].as_array().expect("rows") {
        let text = |value: &Value| value.as_str().expect("a string").to_string();
        let shape = row["gpu"]["alternative"]["shape"].as_str().unwrap_or_default();
        let way = (text(&row["plan"]), shape.to_string());
        let seconds = row["median_s"].as_f64().expect("seconds");
        cases.entry(text(&row["case"])).or_default().push((way, seconds));
    }
    cases
}

/// The way that a plan takes.
fn taken_of(plan: &GpuPlan) -> (String, String) {
    let candidates = plan.candidates();
    let taken = candidates.iter().find(|c| c.declined.is_none()).expect("one is taken");
    (taken.name.to_string(), taken.shape.clone().unwrap_or_default())
}

#[test]
fn what_is_taken_is_near_the_fastest_that_was_measured() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../bench/records");
    let mut records: Vec<Value> = fs::read_dir(folder)
        .expect("records")
        .map(|entry| entry.expect("a file").path())
        .filter(|path| path.to_string_lossy().ends_with("-candidates.json"))
        .map(|path| serde_json::from_slice(&fs::read(path).expect("readable")).expect("JSON"))
        .collect();
    // Not by name: the tenth of a day would come before its second.
    records.sort_by_key(|record| record["date"].as_str().expect("a date").to_string());
    // What was measured last of a problem counts: kernels change, and their names stay.
    let mut newest = BTreeMap::new();
    for record in &records {
        let name = record["gpu"]["name"].as_str().expect("a GPU's name");
        newest.extend(measured(record).into_iter().map(|(case, ways)| ((name, case), ways)));
    }
    let (mut checked, mut outdated, mut slow) = (0, 0, BTreeSet::new());
    for ((name, case), ways) in newest {
        let gpu = Arc::new(GpuProperties::named(name).expect("a known GPU"));
        let desc: NormDesc = case.parse().expect("a problem");
        let taken = taken_of(&GpuPlan::new(&desc, &gpu).expect("a valid problem"));
        let plans = GpuPlan::alternatives(&desc, &gpu).expect("a valid problem");
        let now: Vec<_> = plans.iter().map(taken_of).collect();
        assert!(
            now.contains(&taken),
            "{case} on {}: {taken:?} is no alternative",
            gpu.name
        );
        let own = ways.iter().find(|(way, _)| *way == taken);
        // What was measured of kernels that there were then says nothing of those that there are now, nor of ways that there were not.
        let (Some((_, own)), true) = (own, ways.iter().all(|(way, _)| now.contains(way))) else {
            outdated += 1;
            continue;
        };
        let ((name, shape), best) = ways.iter().min_by(|a, b| a.1.total_cmp(&b.1)).expect("some");
        let is_this = |&&(of, problem, _): &&(&str, &str, f64)| gpu.name.starts_with(of) && case == problem;
        let slower = SLOWER.iter().find(is_this);
        slow.extend(slower.filter(|_| *own > MOST * best).map(|&(gpu, case, _)| (gpu, case)));
        let most = slower.map_or(MOST, |&(_, _, most)| most);
        assert!(
            *own <= most * best,
            "{case} on {}: {taken:?} takes {:.1} µs, and {name} {shape} {:.1}",
            gpu.name,
            own * 1e6,
            best * 1e6
        );
        checked += 1;
    }
    assert!(checked >= 300, "{checked} cases, and {outdated} that are outdated");
    let listed: BTreeSet<_> = SLOWER.iter().map(|&(gpu, case, _)| (gpu, case)).collect();
    assert_eq!(slow, listed, "on the list are those that are slower");
}
