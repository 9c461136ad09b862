//! Execution allocates nothing: neither the caller's thread nor the pool's, once a pool is running.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use isonorm::{Backward, Device, Forward, NormDesc, Pass, TensorData, Workspace};

struct Counting;

static COUNTING: AtomicBool = AtomicBool::new(false);
static ALLOCATIONS: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call goes to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if COUNTING.load(Ordering::Relaxed) {
            ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        }
        // SAFETY: this function's contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        // SAFETY: this function's contract.
        unsafe { System.dealloc(ptr, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn allocations_of(work: impl FnOnce()) -> usize {
    ALLOCATIONS.store(0, Ordering::Relaxed);
    COUNTING.store(true, Ordering::Relaxed);
    work();
    COUNTING.store(false, Ordering::Relaxed);
    ALLOCATIONS.load(Ordering::Relaxed)
}

/// Forward and backward of a problem: the allocations of the call that has the fewest, for a thread of the pool sets itself up when it
/// first has something to do.
fn run(device: &Device, problem: &str) -> usize {
    let desc: NormDesc = problem.parse().unwrap();
    let (train, back) = (desc.pass(Pass::Train), desc.pass(Pass::Backward));
    let (plan, back_plan) = (device.plan(&train).unwrap(), device.plan(&back).unwrap());
    let g = *plan.geometry();
    let ones = |n: usize, d| TensorData::from_f64(d, &(0..n).map(|i| (i % 7) as f64 - 3.0).collect::<Vec<_>>());
    let x = ones(g.elements(), desc.get_dtype());
    let mut y = x.clone();
    let mut dx = x.clone();
    let weight = ones(g.parameters, desc.get_param_dtype());
    let bias = weight.clone();
    let (mut dweight, mut dbias) = (weight.clone(), weight.clone());
    let mut mean = ones(g.groups(), desc.get_statistics_dtype());
    let mut rstd = mean.clone();
    let mut workspace = Workspace::new(&plan);
    workspace.reserve(&back_plan);
    let mut both = || {
        let forward = Forward::new(&x, &mut y)
            .weight(&weight)
            .bias(&bias)
            .save(&mut mean, &mut rstd);
        device.forward(&plan, forward, &mut workspace).unwrap();
        let backward = Backward::new(&x, &y, &mut dx)
            .weight(&weight)
            .bias(&bias)
            .saved(&mean, &rstd);
        let backward = backward.dweight(&mut dweight).dbias(&mut dbias);
        device.backward(&back_plan, backward, &mut workspace).unwrap();
    };
    both();
    (0..5).map(|_| allocations_of(&mut both)).min().unwrap()
}

#[test]
fn execution_allocates_nothing() {
    let problems = [
        "batchnorm x=8x16x40x40",
        "batchnorm x=8x16x40x40 layout=nhwc dtype=bf16",
        "batchnorm x=64x40x7x7 act=relu",
        "layernorm x=600x1024 dtype=f16 param=f16",
        "layernorm x=2x200000 act=gelu",
        "groupnorm x=4x32x32x32 groups=8",
        "groupnorm x=4x32x32x32 groups=8 layout=nhwc",
        "layernorm x=4x64x32x32 over=channels",
    ];
    let device = Device::cpu();
    let pool = rayon::ThreadPoolBuilder::new().num_threads(2).build().unwrap();
    // All its threads have begun then.
    pool.broadcast(|_| ());
    for problem in problems {
        // Inside a pool: entering one from outside may grow the pool's own queue.
        let counted = pool.install(|| run(&device, problem));
        assert_eq!(counted, 0, "{problem}");
    }
}
