//! Plans for GPUs where channels of a group, or rows, begin anywhere.

use super::plan;

/// Channels of groups and instances that begin anywhere, or that no other way holds, have accesses of their own; and rows of any length.
#[test]
fn channels_of_any_size_are_held() {
    for (problem, family) in [
        // Accesses that lie across two channels, where rows are whole ones.
        (
            "groupnorm x=64x1024x14x14 groups=32 dtype=bf16",
            "rows_forward_across_runs_piecewise",
        ),
        (
            "groupnorm x=64x2048x7x7 groups=32 act=silu residual=add",
            "rows_forward_across_runs_any",
        ),
        (
            "groupnorm x=64x2048x7x7 groups=32 pass=backward",
            "rows_backward_across_runs_plain",
        ),
        (
            "groupnorm x=64x2048x7x7 groups=32 act=relu pass=backward",
            "rows_backward_across_runs_piecewise",
        ),
        (
            "groupnorm x=64x2048x7x7 groups=32 act=silu residual=add pass=backward",
            "rows_backward_across_runs",
        ),
        // Where they are not, and where no block holds one.
        (
            "groupnorm x=64x96x7x7 groups=32 dtype=bf16",
            "rows_forward_by_segment_piecewise",
        ),
        (
            "groupnorm x=64x96x7x7 groups=32 act=silu residual=add",
            "rows_forward_by_segment_any",
        ),
        (
            "groupnorm x=2x256x75x75 groups=32 act=relu",
            "rows_forward_cluster_by_segment_piecewise",
        ),
        (
            "groupnorm x=64x96x7x7 groups=32 pass=backward",
            "rows_backward_by_segment_plain",
        ),
        (
            "groupnorm x=64x96x7x7 groups=32 act=relu pass=backward",
            "rows_backward_by_segment_piecewise",
        ),
        (
            "instancenorm x=8x64x255x255 pass=backward",
            "rows_backward_cluster_by_segment_plain",
        ),
        // Whole accesses, but fewer than a warp has lanes.
        (
            "groupnorm x=128x256x8x8 groups=32 dtype=bf16 pass=backward",
            "rows_backward_by_segment_plain",
        ),
        (
            "groupnorm x=2x10x75x75 groups=2 dtype=bf16 pass=backward",
            "rows_backward_cluster_by_segment_plain",
        ),
        // One channel, and none.
        (
            "instancenorm x=64x288x35x35 affine=full",
            "rows_forward_by_segment_piecewise",
        ),
        ("layernorm x=8192x4095 affine=none", "rows_forward_by_segment_piecewise"),
        ("rmsnorm x=8192x4095 dtype=bf16", "rows_forward_ragged_by_column_block"),
        (
            "layernorm x=65536x770 pass=backward",
            "rows_backward_ragged_by_column_plain",
        ),
        // Where statistics are given, nothing is held.
        ("batchnorm x=64x2048x7x7 dtype=bf16 pass=eval", "rows_each_piecewise"),
        (
            "batchnorm x=64x1024x14x14 dtype=bf16 act=silu pass=eval",
            "rows_each_any",
        ),
        ("batchnorm x=64x1024x14x14 pass=eval", "rows_each_piecewise"),
        // Forward, as they come where whole accesses have one weight: short ones in registers or in shared memory, others as lines of warps.
        (
            "groupnorm x=16x1280x16x16 groups=32 dtype=bf16",
            "rows_forward_runs_piecewise",
        ),
        (
            "groupnorm x=64x512x64x64 groups=256 dtype=bf16 act=silu",
            "rows_long_runs_any",
        ),
        (
            "groupnorm x=64x256x56x56 groups=32 dtype=bf16",
            "rows_forward_lines_piecewise",
        ),
        (
            "groupnorm x=64x256x56x56 groups=32 dtype=bf16 act=gelu",
            "rows_forward_lines_any",
        ),
        ("batchnorm x=1x4096x112x112 dtype=bf16", "rows_forward_lines_piecewise"),
        (
            "groupnorm x=8x512x64x64 groups=32",
            "rows_forward_cluster_lines_piecewise",
        ),
        (
            "groupnorm x=8x512x64x64 groups=32 dtype=bf16 act=silu",
            "rows_forward_cluster_lines_any",
        ),
        // Of runs shorter than a line of a warp most lanes had nothing; a smooth activation leaves sums time to travel, if there are several rows for
        // each team.
        (
            "groupnorm x=64x2048x8x8 groups=4 dtype=bf16",
            "rows_forward_cluster_runs_plain",
        ),
        (
            "groupnorm x=256x2048x8x8 groups=4 dtype=bf16 act=silu",
            "rows_forward_chip_runs_any",
        ),
        (
            "groupnorm x=16x2048x8x8 groups=4 dtype=bf16 act=silu",
            "rows_forward_cluster_runs_any",
        ),
    ] {
        let plan = plan(problem);
        assert_eq!(plan.kernels()[0].family, family, "{plan}");
        let traffic = plan.traffic();
        assert!(traffic.compulsory_bytes * 105 / 100 >= traffic.moved_bytes, "{plan}");
    }
}

/// An access lies across two channels at most, all accesses are a row's, and nothing has to be selected where each has one channel.
#[test]
fn accesses_lie_across_two_channels_at_most() {
    let is_across = |problem: &str| plan(problem).name() == "rows/across";
    for (dtype, elements) in [("f32", 4), ("bf16", 8)] {
        for (channels, side) in [
            (8, 2),
            (8, 3),
            (16, 1),
            (7, 5),
            (8, 5),
            (6, 7),
            (32, 7),
            (24, 14),
            (8, 35),
        ] {
            for pass in ["train", "backward"] {
                let run = side * side;
                let whole_rows = (channels * run) % elements == 0;
                // A warp has more than one access for each thread, a block of 512 threads no more than four.
                let held = (33..=2048).contains(&(channels * run / elements));
                let expected = whole_rows && held && run > elements && run % elements > 0;
                let problem = format!("groupnorm x=9x{channels}x{side}x{side} groups=1 dtype={dtype} pass={pass}");
                assert_eq!(is_across(&problem), expected, "{problem}");
            }
        }
    }
    // A row of one channel, and no parameters.
    assert!(!is_across("instancenorm x=9x8x7x7 affine=full"));
    assert!(!is_across("groupnorm x=9x32x7x7 groups=1 affine=none"));
}

/// All rows of a team begin equally far behind the start of an access.
#[test]
fn teams_of_rows_that_begin_anywhere_go_from_row_to_row_by_whole_accesses() {
    for (dtype, elements) in [("f32", 4), ("bf16", 8)] {
        for side in [5, 7, 10, 14, 35, 99] {
            for channels in [1, 2, 3, 4, 8] {
                for (op, pass) in [("groupnorm", "train"), ("groupnorm", "backward"), ("batchnorm", "eval")] {
                    let groups = if op == "groupnorm" { "groups=1" } else { "" };
                    let plan = plan(&format!(
                        "{op} x=999x{channels}x{side}x{side} {groups} dtype={dtype} pass={pass}"
                    ));
                    let kernel = &plan.kernels()[0];
                    if !kernel.family.contains("by_segment") {
                        continue;
                    }
                    let (rows, columns) = match op {
                        "groupnorm" => (999, channels * side * side),
                        _ => (999 * channels, side * side),
                    };
                    let of_block = match kernel.entry {
                        lanes if lanes.contains("_lanes8_") => kernel.block / 8,
                        warps if warps.contains("_warp_") => kernel.block / 32,
                        _ => 1,
                    };
                    let teams = (of_block * kernel.grid / kernel.cluster) as usize;
                    assert!(teams >= rows || (teams * columns).is_multiple_of(elements), "{plan}");
                }
            }
        }
    }
}

/// Without overflow, whatever the size.
#[test]
fn rows_that_no_cluster_holds_are_declined() {
    for problem in [
        "instancenorm x=1x2x1073741824 affine=full",
        "groupnorm x=2x4x268435456 groups=1 pass=backward",
        "layernorm x=2x1073741823 dtype=bf16",
        "batchnorm x=2x2x1073741823 pass=eval",
    ] {
        let plan = plan(problem);
        plan.check().expect("a kernel");
        let kernel = &plan.kernels()[0];
        assert!(
            !kernel.family.contains("by_segment") && !kernel.family.contains("ragged"),
            "{plan}"
        );
    }
}
