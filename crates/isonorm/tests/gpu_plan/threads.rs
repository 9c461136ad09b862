//! The kernels and threads that rows get.

use isonorm::GpuPlan;

use super::{gpu, plan};

/// Lanes have short rows whatever follows, and a ReLU backward does not take what a slope does.
#[test]
fn rows_with_an_activation_have_the_threads_that_others_have() {
    for (problem, kernel, threads) in [
        (
            "layernorm x=10000x128 dtype=bf16 param=bf16 act=gelu",
            "layer_lanes4_v4 of rows_forward_any",
            64,
        ),
        (
            "rmsnorm x=10000x32 dtype=bf16 act=silu",
            "rms_lanes2_v2 of rows_forward_any",
            64,
        ),
        (
            "layernorm x=10000x512 dtype=bf16 act=relu pass=backward",
            "layer_warp_v2_ahead of rows_backward_added",
            256,
        ),
        (
            "layernorm x=100000x768 dtype=bf16 act=relu pass=backward",
            "layer_warp_v3_ahead of rows_backward_added",
            192,
        ),
        (
            "layernorm x=100000x384 act=relu pass=backward",
            "layer_warp_v3_ahead of rows_backward_added",
            256,
        ),
        (
            "layernorm x=10000x4096 dtype=bf16 act=relu pass=backward",
            "layer_block_v2_ahead of rows_backward_added",
            256,
        ),
        (
            "layernorm x=100000x512 dtype=bf16 act=leaky_relu:0.1 pass=backward",
            "layer_block_v1_ahead of rows_backward",
            64,
        ),
    ] {
        let plan = plan(problem);
        let planned = &plan.kernels()[0];
        let is = format!("{} of {}", planned.entry, planned.family);
        assert_eq!((is.as_str(), planned.block), (kernel, threads), "{plan}");
    }
}

/// About four accesses a thread, and few threads, so that a multiprocessor has several rows; a row among few gets more threads.
#[test]
fn a_block_is_as_its_row_is_computed() {
    for (problem, entry, threads) in [
        ("layernorm x=10000x4096 dtype=bf16", "layer_block_v4", 128),
        ("layernorm x=10000x6144 dtype=bf16", "layer_block_v6", 128),
        ("layernorm x=10000x8192 dtype=bf16", "layer_block_v8", 128),
        ("layernorm x=10000x1536 dtype=bf16", "layer_block_v3", 64),
        ("layernorm x=10000x4096", "layer_block_v8", 128),
        ("layernorm x=10000x2048", "layer_block_v4", 128),
        ("layernorm x=10000x1024", "layer_block_v2", 128),
        ("rmsnorm x=100x4096 dtype=bf16", "rms_block_v2", 256),
        ("layernorm x=1024x1024 dtype=bf16", "layer_block_v2", 64),
        ("layernorm x=1x100", "layer_warp_v1", 64),
        ("layernorm x=100x32768 dtype=bf16", "layer_blocks_v4_ahead", 256),
        ("rmsnorm x=10000x128 dtype=bf16", "rms_lanes4_v4", 64),
        ("layernorm x=10000x768 dtype=bf16", "layer_warp_v3", 64),
    ] {
        let plan = plan(problem);
        let kernel = &plan.kernels()[0];
        assert_eq!((kernel.entry, kernel.block), (entry, threads), "{plan}");
        assert!(!kernel.family.contains("any"), "{plan}");
    }
    let without_clusters = "layernorm x=100x32768 dtype=bf16".parse().expect("a problem");
    let plan = GpuPlan::new(&without_clusters, &gpu("a100")).expect("valid");
    assert_eq!(plan.kernels()[0].entry, "layer_block_v8", "{plan}");
}
