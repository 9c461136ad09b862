//! Plans for GPUs of backward passes over few rows.

use super::plan;

/// Few rows take one kernel instead of two; it must not write what its other blocks still read.
#[test]
fn few_rows_and_their_columns_go_apart() {
    for (problem, entry, threads, blocks) in [
        // 32 strips of 8 accesses, and 8 rows a block.
        ("layernorm x=256x1024", "layer_warp_v8", 256, 32 + 32),
        // 16 rows a block: each thread has all of its rows of a strip on their way at once, and each block a multiprocessor.
        ("layernorm x=1024x1024", "layer_warp_v8", 512, 64 + 64),
        ("layernorm x=1025x1024", "layer_warp_v8", 256, 64 + 129),
        (
            "layernorm x=512x768 dtype=bf16 param=bf16",
            "layer_warp_v4",
            256,
            48 + 64,
        ),
        (
            "rmsnorm x=128x4096 dtype=bf16 residual=stream",
            "rms_block_v2",
            256,
            64 + 128,
        ),
    ] {
        let apart = plan(&format!("{problem} pass=backward"));
        assert_eq!(apart.name(), "rows/apart", "{apart}");
        let [kernel] = apart.kernels() else {
            panic!("one kernel: {apart}")
        };
        let shape = (kernel.entry, kernel.block, kernel.grid);
        assert_eq!(shape, (entry, threads, blocks), "{apart}");
        assert!(
            apart.traffic().moved_bytes > apart.traffic().compulsory_bytes,
            "{apart}"
        );
        for more in [
            "pass=backward inplace=yes",
            "pass=backward affine=none",
            "pass=backward act=relu",
        ] {
            let other = plan(&format!("{problem} {more}"));
            assert_ne!(other.name(), "rows/apart", "{other}");
        }
    }
    for problem in [
        "layernorm x=8192x1024 pass=backward",
        "rmsnorm x=4096x256 dtype=bf16 pass=backward",
        "layernorm x=4096x4096 dtype=bf16 pass=backward",
        "layernorm x=300x1023 pass=backward",
    ] {
        let plan = plan(problem);
        assert_ne!(plan.name(), "rows/apart", "{plan}");
        let declined = plan.candidates().iter().find(|c| c.name == "rows/apart");
        assert!(declined.is_none_or(|c| c.declined.is_some()), "{plan}");
    }
}

/// Rows that a cluster holds, too, while x and dy are few bytes: blocks of columns are whole clusters, and have as many rows on their way as
/// there are.
#[test]
fn few_rows_of_clusters_go_apart() {
    for (problem, entry, [cluster, threads], blocks) in [
        // Strips of 64, 32 and 16 accesses, and a cluster for each row.
        (
            "layernorm x=16x65536 dtype=bf16 param=bf16",
            "layer_blocks_v4",
            [8, 256],
            128 + 16 * 8,
        ),
        ("layernorm x=16x16384", "layer_blocks_v4", [8, 128], 128 + 16 * 8),
        (
            "rmsnorm x=64x16384 dtype=bf16 param=bf16",
            "rms_blocks_v4",
            [2, 256],
            128 + 64 * 2,
        ),
        // More bytes, of rows that two blocks hold.
        (
            "layernorm x=256x16384 dtype=bf16 param=bf16",
            "layer_blocks_v4",
            [2, 256],
            128 + 256 * 2,
        ),
    ] {
        let apart = plan(&format!("{problem} pass=backward"));
        assert_eq!(apart.name(), "rows/apart", "{apart}");
        let [kernel] = apart.kernels() else {
            panic!("one kernel: {apart}")
        };
        let shape = (kernel.entry, [kernel.cluster, kernel.block], kernel.grid);
        assert_eq!(shape, (entry, [cluster, threads], blocks), "{apart}");
    }
    for problem in [
        "layernorm x=128x32768 dtype=bf16 param=bf16 pass=backward",
        "layernorm x=64x16384 pass=backward",
        "layernorm x=16x65536 dtype=bf16 param=bf16 pass=backward inplace=yes",
    ] {
        let plan = plan(problem);
        assert_ne!(plan.name(), "rows/apart", "{plan}");
    }
}

/// The sums of the only team of the whole chip are the gradients, whatever their type: nothing is left to add up.
#[test]
fn one_team_leaves_gradients() {
    for problem in [
        "layernorm x=64x1048576 dtype=bf16 param=bf16 pass=backward",
        "rmsnorm x=16x1048576 dtype=f16 param=f16 pass=backward",
        "layernorm x=2x1048576 pass=backward",
        // Sums that fill the registers.
        "layernorm x=32x2097152 dtype=bf16 param=bf16 pass=backward",
        "rmsnorm x=4x2097152 pass=backward",
        // All multiprocessors have as many blocks.
        "layernorm x=40x1300000 pass=backward",
    ] {
        let plan = plan(problem);
        let [kernel] = plan.kernels() else {
            panic!("one kernel: {plan}")
        };
        assert!(kernel.resident, "{plan}");
    }
}
