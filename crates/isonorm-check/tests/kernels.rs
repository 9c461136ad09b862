//! The suite `kernels` has a case for each kernel, so that a tool that watches a GPU sees them all.

use std::collections::BTreeSet;
use std::sync::Arc;

use isonorm::{GpuPlan, GpuProperties};
use isonorm_check::{Case, suites};
use isonorm_kernels::modules::ROWS;

/// Family without the element type, and entry point.
type Name = (&'static str, &'static str);

fn planned(cases: &[Case], gpu: &Arc<GpuProperties>) -> BTreeSet<Name> {
    let plans = cases.iter().filter_map(|case| GpuPlan::new(&case.desc, gpu).ok());
    let kernels = plans.flat_map(|plan| [plan.kernels(), plan.misaligned_kernels()].concat());
    kernels.map(|kernel| (kernel.family, kernel.entry)).collect()
}

#[test]
fn there_is_a_case_for_each_kernel() {
    let gpu = Arc::new(GpuProperties::known("h200").expect("a known GPU"));
    let suite = suites().into_iter().find(|suite| suite.name == "kernels");
    let used = planned(&suite.expect("it is there").cases, &gpu);
    let listed = ROWS
        .iter()
        .flat_map(|module| module.entries().map(|entry| (module.family, entry)));
    let unused: BTreeSet<Name> = listed.filter(|name| !used.contains(name)).collect();
    assert_eq!(unused, BTreeSet::new());
    // Nor does any other suite run what this one does not.
    for case in suites().iter().flat_map(|suite| &suite.cases) {
        let more: Vec<_> = planned(std::slice::from_ref(case), &gpu)
            .difference(&used)
            .cloned()
            .collect();
        assert!(more.is_empty(), "{case} runs {more:?}");
    }
}
