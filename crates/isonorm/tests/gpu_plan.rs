//! Plans for GPUs: pure, so tested without one.
#![cfg(feature = "cuda")]

use std::sync::Arc;

use isonorm::{Error, GpuPlan, GpuProperties, NormDesc};

fn gpu(name: &str) -> Arc<GpuProperties> {
    GpuProperties::known(name).expect("a known GPU").into()
}

fn plan(problem: &str) -> GpuPlan {
    let desc: NormDesc = problem.parse().expect("a problem");
    GpuPlan::new(&desc, &gpu("h200")).expect("a valid problem")
}

#[test]
fn every_length_of_row_up_to_the_longest_has_a_kernel_that_holds_it() {
    for (dtype, bytes, longest) in [("f32", 4, 8192), ("bf16", 2, 16384), ("f16", 2, 16384)] {
        for columns in (1..600).chain((600..=longest).step_by(97)).chain([longest]) {
            let plan = plan(&format!("layernorm x=7x{columns} dtype={dtype} param=f32"));
            plan.check().expect("a kernel");
            let [kernel] = plan.kernels() else {
                panic!("one kernel, got {:?}", plan.kernels())
            };
            assert_eq!(kernel.module, format!("rows_forward_{dtype}"));
            let vectors: usize = kernel
                .entry
                .rsplit_once("_v")
                .and_then(|(_, v)| v.parse().ok())
                .expect("vectors");
            let (team, rows) = match plan.name() {
                "rows/warp" => (32, kernel.block as usize / 32),
                "rows/block" => (kernel.block as usize, 1),
                other => panic!("{other}"),
            };
            assert!(team * vectors * 16 / bytes >= columns, "{columns}: {kernel:?}");
            assert_eq!(kernel.grid as usize, 7usize.div_ceil(rows));
            assert!(kernel.block.is_multiple_of(32) && kernel.block <= 512);
            assert_eq!(plan.traffic().moved_bytes, plan.traffic().compulsory_bytes);
        }
        let plan = plan(&format!("layernorm x=7x{} dtype={dtype} param=f32", longest + 1));
        let error = plan.check().expect_err("no kernel");
        assert!(
            error.to_string().contains(&format!("more than {longest} elements")),
            "{error}"
        );
    }
}

#[test]
fn exactly_one_candidate_is_taken_and_every_other_says_why_not() {
    for problem in [
        "layernorm x=4x64",
        "layernorm x=4x5000",
        "rmsnorm x=4x4096 dtype=bf16",
        "instancenorm x=2x3x8x8",
    ] {
        let plan = plan(problem);
        let taken: Vec<_> = plan.candidates().iter().filter(|c| c.declined.is_none()).collect();
        assert_eq!(taken.len(), 1, "{plan}");
        assert_eq!(taken[0].name, plan.name());
        let reasons = plan.candidates().iter().filter_map(|c| c.declined.as_deref());
        assert!(reasons.into_iter().all(|r| !r.is_empty()), "{plan}");
    }
}

#[test]
fn what_no_kernel_does_is_refused_with_op_pass_and_reason() {
    for (problem, why) in [
        ("layernorm x=4x64 pass=backward", "backward"),
        ("layernorm x=4x64 dtype=f64", "f64"),
        ("layernorm x=4x64 act=gelu", "activation"),
        ("layernorm x=4x64 dtype=bf16 param=bf16", "f32"),
        ("batchnorm x=4x3x8x8", "contiguous"),
        ("batchnorm x=4x3x8x8 pass=eval", "running statistics"),
        ("groupnorm x=4x8x8x8 groups=2", "share"),
    ] {
        let plan = plan(problem);
        assert_eq!((plan.name(), plan.kernels()), ("unsupported", &[][..]));
        let error = plan.check().expect_err(problem);
        let Error::Unsupported { op, pass, reason } = &error else {
            panic!("{error}")
        };
        assert_eq!(*op, plan.desc().op());
        assert_eq!(*pass, plan.desc().get_pass().name());
        assert!(reason.contains(why), "{problem}: {reason}");
        assert!(plan.explain().contains(why));
    }
}

#[test]
fn an_old_gpu_is_refused() {
    let old = GpuProperties {
        compute_capability: 75,
        ..GpuProperties::known("a100").expect("known")
    };
    let plan = GpuPlan::new(&NormDesc::layer_norm([4, 64], 1), &old.into()).expect("valid");
    let error = plan.check().expect_err("too old");
    assert!(error.to_string().contains("compute capability 75"), "{error}");
}

#[test]
fn rows_beyond_the_largest_grid_and_tensors_without_elements() {
    let many = plan("layernorm x=9000000000x2 dtype=bf16");
    assert_eq!(many.kernels()[0].grid, (1 << 31) - 1);
    let none = plan("layernorm x=0x7");
    assert_eq!(
        (none.name(), none.kernels().len(), none.traffic().moved_bytes),
        ("empty", 0, 0)
    );
    none.check().expect("nothing to do is done");
}

#[test]
fn a_plan_prints_its_kernel_its_bytes_and_their_time() {
    let text = plan("layernorm x=8192x4096 dtype=bf16").explain();
    for part in [
        "NVIDIA H200",
        "132 SMs",
        "> rows/block",
        "taken",
        "rows_forward_bf16_layer_block",
        "8192 blocks",
        "compulsory",
        "to copy as much",
    ] {
        assert!(text.contains(part), "{part} in:\n{text}");
    }
    // 134 MB at 4.2 TB/s.
    let seconds = plan("layernorm x=8192x4096 dtype=bf16").copy_seconds();
    assert!((31e-6..33e-6).contains(&seconds), "{seconds}");
}

#[test]
fn bad_descriptions_are_errors_here_too() {
    let desc = NormDesc::layer_norm([4, 64], 3);
    assert!(GpuPlan::new(&desc, &gpu("a100")).is_err());
    assert_eq!(GpuProperties::known("h300"), None);
}
