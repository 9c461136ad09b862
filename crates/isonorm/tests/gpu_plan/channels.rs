//! Plans for GPUs where groups are not contiguous: tiles, strips of columns, and channels in segments.

use isonorm::{GpuPlan, Kernel, NormDesc};

use super::{gpu, plan};

#[test]
fn tiles_fit_the_gpu() {
    // Also of sizes that no memory holds, without overflow.
    let first = "2x2x1073741824 1048576x2x1048577 64x256x56x56 64x1024x14x14 64x2048x7x7 5000x512 65536x1024 70000x3 2x100000x3x3 1000x3x35x35";
    let last = "64x256x56x56 256x64x112x112 64x2048x7x7".split(' ');
    let shapes = first.split(' ').map(String::from);
    for shape in shapes.chain(last.map(|shape| format!("{shape} layout=nhwc"))) {
        for types in ["dtype=f32", "dtype=bf16", "dtype=f16 param=f16"] {
            for pass in [
                "train",
                "backward act=relu",
                "eval act=gelu residual=add",
                "backward_eval",
            ] {
                let plan = plan(&format!("batchnorm x={shape} {types} pass={pass}"));
                plan.check().expect("a kernel");
                // Channels first, segments are rows of evaluation, and those of a channel may be a row of training.
                let tiles = plan.name().starts_with("tiles");
                assert!(
                    tiles || plan.name().starts_with("rows") && !shape.contains("nhwc"),
                    "{plan}"
                );
                for kernels in [plan.kernels(), plan.misaligned_kernels()] {
                    let (kernel, gpu) = (kernels[0], plan.properties());
                    let at_once = kernel.shared_bytes <= gpu.shared_bytes_per_block && kernel.grid <= 2 * gpu.sms;
                    assert!(
                        kernel.family.starts_with("rows") || !kernel.resident || at_once,
                        "{plan}"
                    );
                }
                // Never more than twice; and once, where a block holds a channel.
                let traffic = plan.traffic();
                assert!(traffic.moved_bytes * 3 <= traffic.compulsory_bytes * 5, "{plan}");
                let once = traffic.moved_bytes == traffic.compulsory_bytes;
                assert!(once || shape != "64x1024x14x14" || pass != "train", "{plan}");
            }
        }
    }
}

/// Rows in segments, and tiles, with and without what a GPU has for them.
#[test]
fn channels_of_segments_are_rows_wherever_these_begin() {
    for (problem, is_rows) in [
        ("batchnorm x=64x256x56x56", true),
        ("batchnorm x=64x256x56x56 dtype=bf16 param=bf16 act=relu", true),
        ("batchnorm x=64x256x56x56 pass=backward", true),
        // Segments of 196 bytes, of 98, and of 18, which tiles hold.
        ("batchnorm x=64x2048x7x7", false),
        ("batchnorm x=64x2048x7x7 dtype=bf16", false),
        // Of 392 bytes, which are no multiple of 16.
        ("batchnorm x=64x1024x14x14 dtype=bf16", true),
        (
            "batchnorm x=64x1024x14x14 dtype=f16 act=relu residual=add pass=backward",
            true,
        ),
        ("batchnorm x=64x256x35x35 dtype=bf16 pass=backward act=relu", true),
        ("batchnorm x=64x2048x3x3 dtype=bf16", false),
        // One weight for several channels, and channels side by side.
        ("groupnorm x=64x256x14x14 groups=32", false),
        ("batchnorm x=64x256x56x56 layout=nhwc", false),
    ] {
        let plan = plan(problem);
        let kinds = ["segments", "ragged", "halves"];
        let in_segments = |kernel: &Kernel| kinds.iter().any(|kind| kernel.family.contains(kind));
        assert_eq!(plan.kernels().iter().any(in_segments), is_rows, "{plan}");
        // Wherever tensors start.
        assert!(!plan.misaligned_kernels().iter().any(in_segments), "{plan}");
        plan.check().expect("a kernel");
    }
}

/// Images of a multiple of 8 bytes, which is none of 16, by accesses of 8 where they have elements of 16 bits; forward, a row of each block.
#[test]
fn images_are_accessed_by_what_they_are_a_multiple_of() {
    for (problem, family, teams) in [
        ("x=64x1024x14x14", "rows_forward_segments_piecewise", 1024),
        ("x=64x1024x14x14 dtype=bf16", "rows_forward_halves_piecewise", 1024),
        ("x=64x1024x15x15 dtype=bf16", "rows_forward_ragged_piecewise", 1024),
        ("x=32x1024x14x15", "rows_forward_ragged_piecewise", 1024),
    ] {
        let plan = plan(&format!("batchnorm {problem}"));
        let [kernel] = plan.kernels() else { panic!("{plan}") };
        assert_eq!((kernel.family, kernel.grid), (family, teams), "{plan}");
        // Nothing comes to shared memory before it is needed.
        assert!(kernel.shared_bytes < 2048, "{plan}");
    }
    for problem in [
        "x=32x1024x14x14 dtype=bf16 pass=backward",
        "x=64x512x22x22 dtype=f16 pass=backward act=relu",
    ] {
        let plan = plan(&format!("batchnorm {problem}"));
        assert!(plan.kernels()[0].family.contains("halves"), "{plan}");
    }
}

#[test]
fn ways_are_compared_by_their_estimates_and_each_can_be_had() {
    for problem in [
        "batchnorm x=64x256x28x28 dtype=bf16",
        "batchnorm x=16x24x32x32 pass=backward",
    ] {
        let desc: NormDesc = problem.parse().expect("a problem");
        let plans = GpuPlan::alternatives(&desc, &gpu("h200")).expect("a valid problem");
        let estimates = plans.iter().map(|plan| {
            let taken = plan
                .candidates()
                .iter()
                .find(|c| c.declined.is_none())
                .expect("one is taken");
            assert_eq!(taken.name, plan.name());
            taken.estimate.expect("an estimate")
        });
        assert!(estimates.is_sorted(), "{problem}");
        for name in ["rows/block", "rows/blocks", "rows/chip", "tiles"] {
            assert!(
                plans.iter().any(|plan| plan.name().starts_with(name)),
                "{problem}: {name}"
            );
        }
        assert_eq!(plans[0].kernels(), plan(problem).kernels());
        let (first, rest) = plans.split_first().expect("some");
        assert!(rest.iter().all(|other| other.kernels() != first.kernels()), "{problem}");
    }
}

#[test]
fn columns_are_strips_where_the_gpu_is_new_enough_and_a_strip_is_worth_it() {
    for (problem, is_strips) in [
        ("batchnorm x=64x256x56x56 layout=nhwc dtype=bf16 act=relu", true),
        ("batchnorm x=64x256x56x56 layout=nhwc pass=backward act=relu", true),
        ("batchnorm x=64x256x56x56 layout=nhwc pass=backward residual=add", true),
        ("batchnorm x=64x256x56x56 layout=nhwc act=relu residual=add", true),
        ("batchnorm x=64x256x56x56 layout=nhwc act=relu residual=masked", true),
        (
            "batchnorm x=64x256x56x56 layout=nhwc pass=backward act=relu residual=masked",
            true,
        ),
        (
            "batchnorm x=64x256x56x56 layout=nhwc pass=backward act=relu residual=add",
            true,
        ),
        (
            "batchnorm x=64x256x56x56 layout=nhwc pass=backward act=relu residual=result",
            true,
        ),
        // Several rows of memory are one.
        ("batchnorm x=64x3x56x56 layout=nhwc dtype=bf16 pass=backward", true),
        ("batchnorm x=64x100x56x56 layout=nhwc dtype=bf16 act=relu", true),
        ("batchnorm x=64x256x56x56 layout=nhwc act=gelu", true),
        (
            "batchnorm x=64x256x56x56 layout=nhwc dtype=bf16 pass=backward act=silu",
            true,
        ),
        // Several columns a group, or a batch.
        ("groupnorm x=64x256x56x56 groups=32 layout=nhwc", true),
        (
            "groupnorm x=16x320x64x64 groups=32 layout=nhwc dtype=bf16 act=silu",
            true,
        ),
        ("groupnorm x=1x320x64x64 groups=32 layout=nhwc pass=backward", true),
        ("instancenorm x=16x64x128x128 layout=nhwc pass=backward act=relu", true),
        // Few columns, whose rows are joined.
        ("batchnorm x=64x3x56x56 layout=nhwc dtype=bf16 act=gelu", true),
        // The residual decides the slope, of joined rows behind a ReLU, too; given statistics.
        (
            "batchnorm x=64x256x56x56 layout=nhwc pass=backward act=leaky_relu:0.1 residual=add",
            false,
        ),
        (
            "groupnorm x=16x320x64x64 groups=32 layout=nhwc pass=backward act=silu residual=add",
            false,
        ),
        (
            "batchnorm x=64x3x56x56 layout=nhwc dtype=bf16 pass=backward act=relu residual=add",
            false,
        ),
        ("batchnorm x=64x256x56x56 layout=nhwc pass=eval", false),
        // A group is wider than a strip; groups and accesses have no common multiple that divides a line.
        ("groupnorm x=8x1024x32x32 groups=2 layout=nhwc", false),
        ("groupnorm x=8x36x64x64 groups=3 layout=nhwc dtype=bf16", false),
        // Four rows that are one have too many columns; 25 are no multiple of eight.
        ("batchnorm x=64x255x56x56 layout=nhwc", false),
        ("batchnorm x=1x3x5x5 layout=nhwc dtype=bf16", false),
        // More than 2³⁰ elements.
        ("batchnorm x=512x256x128x128 layout=nhwc dtype=bf16", false),
    ] {
        let plan = plan(problem);
        assert_eq!(plan.name() == "tiles/strips", is_strips, "{plan}");
        plan.check().expect("a kernel");
    }
    let desc: NormDesc = "batchnorm x=64x256x56x56 layout=nhwc".parse().expect("a problem");
    let old = GpuPlan::new(&desc, &gpu("a100")).expect("a valid problem");
    assert_eq!(old.name(), "tiles", "{old}");
}

/// Segments stay in shared memory as lines of warps where another row comes while one is worked on; backward only behind a smooth activation.
#[test]
fn rows_of_segments_stay_in_shared_memory() {
    for (problem, family) in [
        (
            "batchnorm x=64x256x56x56 dtype=bf16 act=relu",
            "rows_forward_cluster_lines_of_segments_piecewise",
        ),
        (
            "batchnorm x=64x256x56x56 dtype=bf16 act=silu",
            "rows_forward_cluster_lines_of_segments_any",
        ),
        (
            "batchnorm x=8x256x64x64 dtype=f16 act=silu",
            "rows_forward_lines_of_segments_any",
        ),
        (
            "batchnorm x=64x512x28x28 dtype=bf16 act=silu pass=backward",
            "rows_backward_cluster_lines_of_segments",
        ),
    ] {
        let plan = plan(problem);
        assert_eq!((plan.name(), plan.kernels()[0].family), ("rows/runs", family), "{plan}");
        assert_eq!(plan.kernels().len(), 1, "{plan}");
    }
    for other in [
        "batchnorm x=64x64x112x112 dtype=bf16 act=silu",
        "batchnorm x=64x256x56x56 dtype=bf16 act=silu pass=backward",
        "batchnorm x=64x512x28x28 dtype=bf16 act=relu pass=backward",
        "batchnorm x=64x256x56x56 dtype=bf16 act=relu residual=add",
    ] {
        assert_ne!(plan(other).name(), "rows/runs");
    }
}
