//! Kernels without stages: they end, and what runs behind them in the same memory is right.

use isonorm::Result;
use isonorm::cuda::Workspace;

use super::gpu;
use super::scratch::{Work, expected};

#[test]
fn kernels_without_stages_end_and_harm_nobody() -> Result<()> {
    let Some(gpu) = gpu("kernels without stages") else {
        return Ok(());
    };
    let (expected, stream) = (expected(&gpu)?, gpu.stream()?);
    for (mut work, expected) in Work::all(&stream)?.into_iter().zip(expected) {
        let whole = work.plan.clone();
        for ablation in whole.ablations() {
            work.plan = whole.without(ablation);
            work.plan.prepare()?;
            (0..20).try_for_each(|_| work.put(&stream, Workspace::Pool))?;
            stream.synchronize()?;
            work.plan = whole.clone();
            work.put(&stream, Workspace::Pool)?;
            assert!(
                work.bits()? == expected,
                "{}: other bits after no {ablation}",
                *work.plan
            );
        }
    }
    Ok(())
}
