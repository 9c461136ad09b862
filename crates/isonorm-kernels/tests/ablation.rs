//! Of a kernel without loads, stores and sync no memory but its block's own is left, and nobody to wait for: a new instruction that no stage
//! has is found here.

use isonorm_kernels::ablation::Ablation;
use isonorm_kernels::modules::{LADDER, ROWS};

/// Instructions of memory and of sync that stay: arguments, the block's own shared memory, a warp's barrier, and what ends groups of copies.
const KEPT: [&str; 7] = [
    "ld.param.",
    "ld.shared.",
    "st.shared.",
    "bar.warp.",
    "cp.async.commit_group",
    "cp.async.wait_group",
    "fence.mbarrier_init.",
];
/// How instructions of memory and of sync begin.
const ALL: [&str; 15] = [
    "ld.",
    "ldu.",
    "st.",
    "cp.",
    "atom.",
    "red.",
    "multimem.",
    "prefetch",
    "bar.",
    "barrier.",
    "mbarrier.",
    "fence.",
    "membar.",
    "griddepcontrol.",
    "nanosleep.",
];

#[test]
fn nothing_is_left_of_memory_and_sync() {
    let all = Ablation::LOADS.and(Ablation::STORES).and(Ablation::SYNC);
    for module in ROWS.iter().chain(LADDER) {
        for entry in module.entries() {
            let text = module.without(entry, all).expect("an entry of the module");
            // What is left out has a predicate that never holds.
            let left = text
                .lines()
                .map(str::trim)
                .filter(|line| !line.starts_with("@%never ") && !line.starts_with("@%both "));
            for line in left {
                let instruction = match line.strip_prefix('@') {
                    Some(rest) => rest
                        .split_once(char::is_whitespace)
                        .map_or(rest, |(_, instruction)| instruction.trim()),
                    None => line,
                };
                let starts = |starts: &[&str]| starts.iter().any(|start| instruction.starts_with(start));
                assert!(!starts(&ALL) || starts(&KEPT), "{} {entry}: {line}", module.name());
            }
        }
    }
}
