//! Plans: pure, printable, and deciding bits by the geometry alone.

use isonorm::{CpuProperties, Isa, NormDesc, Plan};

fn properties(threads: usize) -> CpuProperties {
    CpuProperties {
        threads,
        l2_bytes: 1 << 20,
        llc_bytes: 32 << 20,
        isa: Isa::Baseline,
    }
}

fn plan(problem: &str, threads: usize) -> Plan {
    Plan::new(&problem.parse::<NormDesc>().unwrap(), &properties(threads)).unwrap()
}

#[test]
fn the_family_follows_from_the_geometry() {
    for (problem, name) in [
        ("batchnorm x=64x256x56x56", "rows/resident"),
        ("batchnorm x=256x64x112x112", "rows/streaming"),
        ("batchnorm x=256x3x112x112", "rows/split"),
        ("batchnorm x=64x2048x7x7", "columns/resident"),
        ("batchnorm x=64x256x56x56 layout=nhwc", "columns/split"),
        ("batchnorm x=64x1x56x56 layout=nhwc", "rows/split"),
        ("layernorm x=4096x1024", "rows/resident"),
        ("layernorm x=1x50000000", "rows/split"),
        ("layernorm x=8x64x56x56 over=channels", "columns/resident"),
        ("instancenorm x=16x64x256x256", "rows/resident"),
        ("batchnorm x=0x3", "empty"),
    ] {
        assert_eq!(
            plan(problem, 2).name(),
            name,
            "{problem}\n{}",
            plan(problem, 2).explain()
        );
    }
}

#[test]
fn every_candidate_is_taken_or_says_why_not() {
    for problem in [
        "batchnorm x=64x256x56x56",
        "batchnorm x=64x256x56x56 layout=nhwc",
        "layernorm x=1x50000000 pass=backward",
    ] {
        let plan = plan(problem, 2);
        assert_eq!(
            plan.candidates().iter().filter(|c| c.declined.is_none()).count(),
            1,
            "{problem}"
        );
        let text = plan.explain();
        for candidate in plan.candidates() {
            assert!(text.contains(candidate.name), "{text}");
            assert!(
                candidate.declined.as_ref().is_none_or(|reason| text.contains(reason)),
                "{text}"
            );
        }
    }
}

#[test]
fn resident_plans_move_the_compulsory_bytes_and_streaming_ones_more() {
    let t = plan("batchnorm x=64x256x56x56 affine=none", 2).traffic();
    let tensor = 64 * 256 * 56 * 56 * 4u64;
    assert_eq!(t.compulsory_bytes, 2 * tensor + 2 * 256 * 4);
    assert_eq!(t.moved_bytes, t.compulsory_bytes);
    let t = plan("batchnorm x=256x64x112x112 affine=none", 2).traffic();
    let tensor = 256 * 64 * 112 * 112 * 4u64;
    assert_eq!(t.moved_bytes - t.compulsory_bytes, tensor);
    let t = plan("batchnorm x=256x64x112x112 residual=add act=relu pass=backward", 2).traffic();
    // x, dy and the residual are read twice; dx and dresidual are written.
    assert_eq!(t.moved_bytes - t.compulsory_bytes, 3 * tensor);
}

#[test]
fn the_workspace_is_small_beside_the_tensor() {
    for problem in [
        "batchnorm x=64x256x56x56 pass=train",
        "batchnorm x=64x256x56x56 pass=backward",
        "batchnorm x=64x256x56x56 layout=nhwc pass=train",
        "batchnorm x=64x256x56x56 layout=nhwc pass=backward",
        "layernorm x=16384x768 pass=backward",
        "layernorm x=1024x65536 dtype=bf16 pass=backward",
        "groupnorm x=8x512x64x64 groups=32 layout=nhwc pass=backward",
        "instancenorm x=16x64x256x256 pass=backward",
    ] {
        for threads in [1, 2, 64] {
            let plan = plan(problem, threads);
            let tensor = plan.geometry().elements() * plan.desc().get_dtype().bytes();
            assert!(
                plan.workspace_bytes() * 5 <= tensor,
                "{problem}: {} of {tensor} bytes",
                plan.workspace_bytes()
            );
        }
    }
}
