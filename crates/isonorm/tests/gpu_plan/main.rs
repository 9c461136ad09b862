//! Plans for GPUs: pure, so tested without one.
#![cfg(feature = "cuda")]

mod apart;
mod by_segment;
mod channels;
mod threads;

use std::sync::Arc;

use isonorm::{Error, GpuPlan, GpuProperties, Kernel, NormDesc};

fn gpu(name: &str) -> Arc<GpuProperties> {
    GpuProperties::known(name).expect("a known GPU").into()
}

fn plan(problem: &str) -> GpuPlan {
    let desc: NormDesc = problem.parse().expect("a problem");
    GpuPlan::new(&desc, &gpu("h200")).expect("a valid problem")
}

/// Accesses of a thread to a row, as the entry point is named.
fn accesses(kernel: &Kernel) -> usize {
    let number = kernel.entry.split("_v").nth(1).and_then(|v| v.split('_').next());
    number.and_then(|v| v.parse().ok()).expect("accesses")
}

/// Elements that the teams of a kernel hold in registers.
fn held(kernel: &Kernel, of_access: usize) -> usize {
    let team = match kernel.entry {
        e if e.contains("_block_") => kernel.block as usize,
        e if e.contains("_blocks_") => (kernel.cluster * kernel.block) as usize,
        // Of several teams, perhaps.
        e if e.contains("_chip_") => (kernel.grid * kernel.block) as usize,
        e if e.contains("_lanes2_") => 2,
        e if e.contains("_lanes4_") => 4,
        e if e.contains("_lanes8_") => 8,
        e if e.contains("_lanes16_") => 16,
        _ => 32,
    };
    team * accesses(kernel) * of_access
}

#[test]
fn every_length_of_row_has_a_kernel_that_holds_it() {
    for (dtype, bytes) in [("f32", 4), ("bf16", 2), ("f16", 2)] {
        for epilogue in ["", "act=relu", "act=gelu residual=add"] {
            for columns in (1..600).chain((600..40_000).step_by(97)).chain([4096, 16384, 1 << 20]) {
                let plan = plan(&format!("layernorm x=700x{columns} dtype={dtype} param=f32 {epilogue}"));
                plan.check().expect("a kernel");
                let of_vector = 16 / bytes;
                // Others begin anywhere, and have aligned accesses all the same where there is no epilogue.
                let is_ragged = |kernel: &Kernel| kernel.family.contains("ragged");
                let begins_anywhere = plan.kernels().iter().any(is_ragged);
                assert!(
                    !begins_anywhere || epilogue.is_empty() && columns % of_vector != 0,
                    "{plan}"
                );
                let may_be_held = (16..=4096).contains(&columns);
                assert!(
                    begins_anywhere || !epilogue.is_empty() || columns % of_vector == 0 || !may_be_held,
                    "{plan}"
                );
                let of_aligned = if begins_anywhere || columns % of_vector == 0 {
                    of_vector
                } else {
                    1
                };
                for (kernels, of_access) in [(plan.kernels(), of_aligned), (plan.misaligned_kernels(), 1)] {
                    let [kernel] = kernels else {
                        panic!("one kernel, got {kernels:?}")
                    };
                    let is_elements = kernel.family.contains("elements");
                    assert_eq!(is_elements, of_access == 1, "{plan}");
                    let in_pieces = kernel.family.starts_with("rows_forward_pieces");
                    let in_registers = kernel.family.starts_with("rows_forward") && !in_pieces;
                    assert_eq!(kernel.cluster > 1, kernel.family.contains("cluster"), "{plan}");
                    assert!(!in_registers || held(kernel, of_access) >= columns, "{plan}");
                    assert!(in_registers || plan.name() != "rows/block" || of_access == 1, "{plan}");
                    assert!(kernel.block.is_multiple_of(32) && kernel.block <= 1024, "{plan}");
                    assert!(
                        kernel.shared_bytes <= plan.properties().shared_bytes_per_block,
                        "{plan}"
                    );
                    assert!(kernel.grid.is_multiple_of(kernel.cluster), "{plan}");
                }
            }
        }
    }
}

#[test]
fn rows_are_spread_as_they_grow_and_read_once_as_long_as_the_chip_keeps_them() {
    for (problem, name) in [
        ("layernorm x=10000x64 dtype=bf16", "rows/lanes"),
        ("layernorm x=10000x4096 dtype=bf16", "rows/block"),
        ("layernorm x=10000x16384 dtype=f32", "rows/shared"),
        ("layernorm x=1000x16384 dtype=f32", "rows/blocks"),
        ("layernorm x=1000x50000 dtype=f32", "rows/blocks"),
        ("layernorm x=1000x50000 dtype=f32 act=relu", "rows/blocks"),
        ("layernorm x=1000x50000 dtype=f32 act=relu residual=add", "rows/alone"),
        ("layernorm x=1000x100000 dtype=f32", "rows/chip"),
        ("layernorm x=4x2000000 dtype=f32", "rows/chip"),
        ("layernorm x=4x4000000 dtype=bf16", "rows/chip"),
        ("layernorm x=4x2500000 dtype=f32", "rows/pieces"),
        ("layernorm x=4x2500000 dtype=f32 act=silu", "rows/grid"),
    ] {
        let plan = plan(problem);
        assert_eq!(plan.name(), name, "{plan}");
        assert_eq!(plan.traffic().moved_bytes, plan.traffic().compulsory_bytes, "{plan}");
        let resident = ["rows/grid", "rows/chip", "rows/pieces"];
        assert_eq!(plan.kernels()[0].resident, resident.contains(&name));
        assert_eq!(plan.workspace_bytes() > 0, plan.misaligned_kernels()[0].resident);
    }
    let too_long = plan("layernorm x=2x100000000 dtype=f32");
    assert!(too_long.traffic().moved_bytes > too_long.traffic().compulsory_bytes);
    let old = GpuPlan::new(too_long.desc(), &gpu("a100")).expect("valid");
    assert_eq!(old.name(), "rows/pieces");
    assert!(
        old.candidates()
            .iter()
            .any(|c| c.declined.as_deref() == Some("clusters need compute capability 9.0"))
    );
}

/// One cluster more than run at once would run when all others are done.
#[test]
fn there_are_as_many_clusters_as_run_at_once() {
    for problem in [
        "layernorm x=4096x16384 pass=backward",
        "layernorm x=100000x65536 dtype=bf16 pass=backward act=gelu",
        // Runs shorter than a line of a warp.
        "groupnorm x=256x4096x4x4 groups=1",
    ] {
        let gpu = gpu("h200");
        for cluster_sms in [120, 8] {
            let gpu = GpuProperties {
                cluster_sms,
                ..(*gpu).clone()
            };
            let plan = GpuPlan::new(&problem.parse().expect("a problem"), &gpu.into()).expect("valid");
            assert_eq!(plan.name(), "rows/blocks", "{plan}");
            let kernel = &plan.kernels()[0];
            assert!(
                kernel.cluster == 8 && kernel.shared_bytes > 0 && !kernel.resident,
                "{plan}"
            );
            assert!(kernel.grid.is_multiple_of(cluster_sms), "{plan}");
        }
        for (name, without) in [("h200", 0), ("a100", 0)] {
            let gpu = GpuProperties {
                cluster_sms: without,
                ..GpuProperties::known(name).expect("known")
            };
            let plan = GpuPlan::new(&problem.parse().expect("a problem"), &gpu.into()).expect("valid");
            plan.check().expect("a kernel without clusters");
            let reason = plan
                .candidates()
                .iter()
                .find(|c| c.name == "rows/blocks")
                .expect("tried");
            assert!(
                reason.declined.as_ref().is_some_and(|r| r.contains("clusters")),
                "{plan}"
            );
            assert!(plan.kernels().iter().all(|kernel| kernel.cluster == 1), "{plan}");
        }
    }
}

/// Rows come ahead as far as shared memory goes, which is less on some GPUs.
#[test]
fn rows_that_come_ahead_fit_shared_memory() {
    for name in ["h200", "h100", "a100", "rtx4090"] {
        for problem in [
            "layernorm x=8192x4096 dtype=bf16 pass=backward",
            "layernorm x=8192x8192 dtype=bf16 pass=backward act=gelu residual=add",
            "rmsnorm x=131072x128 dtype=bf16 pass=backward",
            "layernorm x=9999x768 dtype=bf16 pass=backward",
        ] {
            let gpu = gpu(name);
            let plan = GpuPlan::new(&problem.parse().expect("a problem"), &gpu).expect("valid");
            let kernel = &plan.kernels()[0];
            assert!(kernel.entry.ends_with("_ahead"), "{plan}");
            let tensors = if problem.contains("act") { 3 } else { 2 };
            let row = kernel.block * accesses(kernel) as u32 * 16 * tensors;
            assert!(
                (row..=gpu.shared_bytes_per_block).contains(&kernel.shared_bytes),
                "{plan}"
            );
        }
    }
}

/// All blocks run at the same time, for they wait for each other.
#[test]
fn a_grid_that_exchanges_fits_the_gpu() {
    for sms in [1, 3, 46, 132] {
        let gpu = Arc::new(GpuProperties {
            sms,
            compute_capability: 86,
            ..GpuProperties::known("rtx4090").expect("known")
        });
        for (rows, columns) in [(1usize, 1usize << 20), (3, 300_000), (50, 100_000), (100_000, 40_000)] {
            let desc = NormDesc::layer_norm([rows, columns], 1);
            let plan = GpuPlan::new(&desc, &gpu).expect("valid");
            for kernel in plan.kernels().iter().chain(plan.misaligned_kernels()) {
                // Two blocks share a multiprocessor where they keep pieces.
                let of_each = if kernel.entry.contains("_pieces_") { 2 } else { 1 };
                assert!(!kernel.resident || kernel.grid <= of_each * sms, "{plan}");
            }
        }
    }
}

#[test]
fn a_backward_pass_sums_in_the_workspace_and_adds_up() {
    let plan = plan("layernorm x=8192x4096 dtype=bf16 pass=backward");
    let [first, second] = plan.kernels() else {
        panic!("two kernels, got {:?}", plan.kernels())
    };
    assert_eq!((second.entry, second.family), ("gather", "rows_gather"));
    let sums = first.grid as usize * 4096 * 2 * size_of::<f32>();
    assert!(plan.workspace_bytes() >= sums, "{plan}");
    let traffic = plan.traffic();
    assert_eq!(traffic.moved_bytes, traffic.compulsory_bytes + 2 * sums as u64);
    let misaligned: Vec<_> = plan.misaligned_kernels().iter().map(|kernel| kernel.family).collect();
    assert_eq!(misaligned, ["rows_sweeps_elements", "rows_gather"], "{plan}");
    // Few sums of each column need few threads.
    let long = self::plan("layernorm x=1024x65536 dtype=bf16 pass=backward");
    assert!(long.kernels()[1].block < second.block, "{long}");
    let plain = self::plan("rmsnorm x=64x64 affine=none pass=backward");
    assert_eq!((plain.kernels().len(), plain.workspace_bytes()), (1, 0));
}

/// x and dy of rows of runs stay in shared memory: of a block, or of the blocks of a cluster.
#[test]
fn rows_of_runs_stay_in_shared_memory_in_a_backward_pass() {
    for (problem, family) in [
        (
            "groupnorm x=8x512x64x64 groups=32 pass=backward",
            "rows_backward_cluster_runs_plain",
        ),
        (
            "groupnorm x=8x512x64x64 groups=32 act=silu pass=backward",
            "rows_backward_cluster_runs",
        ),
        (
            "groupnorm x=64x256x56x56 groups=32 dtype=bf16 act=relu pass=backward",
            "rows_backward_cluster_runs_piecewise",
        ),
        (
            "groupnorm x=16x1280x16x16 groups=32 dtype=bf16 pass=backward",
            "rows_backward_runs_plain",
        ),
        (
            "instancenorm x=64x256x48x48 affine=full act=relu pass=backward",
            "rows_backward_runs_piecewise",
        ),
        (
            "instancenorm x=64x256x64x64 dtype=bf16 affine=full act=gelu pass=backward",
            "rows_backward_runs",
        ),
        // Without parameters every row is one run.
        (
            "instancenorm x=16x64x256x256 pass=backward",
            "rows_backward_cluster_runs_plain",
        ),
        (
            "layernorm x=1000x65536 affine=none pass=backward",
            "rows_backward_cluster_runs_plain",
        ),
    ] {
        let plan = plan(problem);
        let first = &plan.kernels()[0];
        assert_eq!((plan.name(), first.family), ("rows/runs", family), "{plan}");
        assert_eq!(first.cluster > 1, family.contains("cluster"), "{plan}");
        assert!(first.shared_bytes > 0, "{plan}");
    }
    // Of runs shorter than a line of a warp most lanes had nothing.
    let short = plan("groupnorm x=128x256x8x8 groups=32 dtype=bf16 pass=backward");
    assert_eq!(short.name(), "rows/block", "{short}");
    // A block alone on its multiprocessor has nothing to do while it waits, but for slopes.
    let alone = "instancenorm x=2x32x64x64x64 dtype=f16 affine=full act=leaky_relu pass=backward";
    assert_eq!(plan(alone).name(), "rows/pieces");
    let residual = plan("groupnorm x=8x512x64x64 groups=32 act=relu residual=add pass=backward");
    assert_eq!(residual.name(), "rows/sweeps");
}

#[test]
fn sweeps_share_rows_among_blocks_that_run_at_once_or_are_kernels_of_their_own() {
    // Groups of 0.8 MB are more than the registers of a cluster, and their runs too short for pieces.
    let shared = plan("groupnorm x=2x512x28x28 groups=2 pass=backward");
    let [first, gather] = shared.kernels() else {
        panic!("{shared}")
    };
    assert_eq!(
        (shared.name(), first.family, gather.entry),
        ("rows/sweeps", "rows_sweeps_runs_plain", "gather")
    );
    assert!(first.resident && first.grid > 132, "{shared}");
    assert_eq!(shared.traffic().moved_bytes, shared.traffic().compulsory_bytes);
    // Two million runs of one row are more than a GPU has blocks for.
    let apart = plan("groupnorm x=1x2000000x2 groups=1 layout=ncl pass=backward");
    let [first, second, _] = apart.kernels() else {
        panic!("{apart}")
    };
    assert!(first == second && !first.resident, "{apart}");
    // Nothing has to be known beforehand: no block waits for another.
    let given = plan("instancenorm x=16x64x256x256 pass=backward_eval");
    assert!(given.kernels().iter().all(|kernel| !kernel.resident), "{given}");
}

#[test]
fn what_one_team_sums_are_the_gradients() {
    for (problem, kernels) in [
        ("layernorm x=3x64 pass=backward", 1),
        // Two sweeps and the sums of rows between: each block of the second one has its columns of all rows.
        ("layernorm x=16x4194304 pass=backward", 3),
        // Sums are of another type than the gradients.
        ("layernorm x=3x64 dtype=bf16 param=bf16 pass=backward", 2),
        // But not where threads have all rows.
        ("layernorm x=16x4194304 dtype=bf16 param=bf16 pass=backward", 3),
    ] {
        assert_eq!(plan(problem).kernels().len(), kernels, "{problem}");
    }
}

#[test]
fn running_statistics_are_updated_by_a_kernel_after_the_first() {
    for problem in [
        "instancenorm x=4x16x32x32 pass=train",
        "instancenorm x=2x3x2000x2000 affine=full pass=train",
        "batchnorm x=1x16x32x32 pass=train",
    ] {
        let plan = plan(problem);
        let [_, running] = plan.kernels() else { panic!("{plan}") };
        assert_eq!((running.family, running.entry), ("rows_running", "running"), "{plan}");
        assert!(plan.workspace_bytes() > 0, "{plan}");
        assert!(plan.to_string().contains("only where running statistics are updated"));
    }
    for problem in ["groupnorm x=4x16x32x32 groups=4", "instancenorm x=4x16x32x32 pass=eval"] {
        assert_eq!(plan(problem).kernels().len(), 1, "{problem}");
    }
}

#[test]
fn a_row_of_2_40_elements_has_a_plan() {
    for pass in ["train", "backward"] {
        for options in ["", " dtype=bf16 param=bf16", " affine=none", " act=gelu residual=add"] {
            let plan = plan(&format!("layernorm x=1x1099511627776{options} pass={pass}"));
            assert!(!plan.kernels().is_empty(), "{plan}");
        }
    }
}

#[test]
fn exactly_one_candidate_is_taken_and_every_other_says_why_not() {
    for problem in [
        "layernorm x=4x64",
        "layernorm x=4x5000",
        "rmsnorm x=4x4096 dtype=bf16",
        "instancenorm x=2x3x8x8",
        "batchnorm x=4x3x8x8",
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
        ("layernorm x=4x64 dtype=f64", "f64"),
        ("batchnorm x=4x3x8x8 dtype=f64", "f64"),
        (
            "groupnorm x=4x200000x8x8 groups=2 layout=nhwc",
            "100000 parameters of a group side by side",
        ),
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
    many.check().expect("a kernel");
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
        "layer_block_v4 of rows_forward_block_bf16",
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
