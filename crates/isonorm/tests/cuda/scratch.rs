//! The scratch memory that a stream keeps: calls that follow one another work in the same, whoever puts them into the stream.

use std::thread;

use isonorm::cuda::{Buffer, Device, Forward, Plan, Stream, Workspace};
use isonorm::{NormDesc, Result};

use super::{gpu, say};

/// Problems whose blocks leave messages for each other, or sums for another kernel.
const PROBLEMS: [&str; 4] = [
    "groupnorm x=3x8x300x300 groups=2 act=silu",
    "groupnorm x=3x8x300x300 groups=2",
    "batchnorm x=33x24x300x9 layout=nhwc",
    "batchnorm x=30x24x9x330",
];

/// A problem with its tensors.
pub(super) struct Work {
    pub(super) plan: Plan,
    x: Buffer<f32>,
    weight: Buffer<f32>,
    y: Buffer<f32>,
}

impl Work {
    fn new(stream: &Stream, problem: &str) -> Result<Work> {
        let desc: NormDesc = problem.parse()?;
        let plan = stream.device().plan(&desc)?;
        let (elements, channels) = (plan.geometry().elements(), plan.geometry().parameters);
        let data: Vec<f32> = (0..elements).map(|i| ((i * 7919 % 1013) as f32) / 100.0).collect();
        plan.prepare()?;
        Ok(Work {
            plan,
            x: stream.upload(&data)?,
            weight: stream.upload(&vec![1.5; channels])?,
            y: stream.zeros(elements)?,
        })
    }

    pub(super) fn all(stream: &Stream) -> Result<Vec<Work>> {
        PROBLEMS.iter().map(|problem| Work::new(stream, problem)).collect()
    }

    pub(super) fn put(&mut self, stream: &Stream, workspace: Workspace<'_>) -> Result<()> {
        let arguments = Forward::new(&self.x, &mut self.y)
            .weight(&self.weight)
            .bias(&self.weight);
        stream.forward(&self.plan, arguments, workspace)
    }

    pub(super) fn bits(&self) -> Result<Vec<u32>> {
        Ok(self.y.to_vec()?.into_iter().map(f32::to_bits).collect())
    }

    /// What comes out in memory that nobody else works in.
    pub(super) fn expected(&mut self, stream: &Stream) -> Result<Vec<u32>> {
        let mut memory = stream.zeros::<f32>(self.plan.workspace_bytes() / 4)?;
        self.put(stream, Workspace::Given(memory.view_mut()))?;
        self.bits()
    }
}

pub(super) fn expected(gpu: &Device) -> Result<Vec<Vec<u32>>> {
    let stream = gpu.stream()?;
    let mut all = Work::all(&stream)?;
    let messages = all.iter().filter(|work| work.plan.kernels()[0].resident).count();
    assert!(messages >= 2, "{messages} of these plans leave messages");
    all.iter_mut().map(|work| work.expected(&stream)).collect()
}

#[test]
fn four_threads_put_calls_into_one_stream() -> Result<()> {
    let Some(gpu) = gpu("four threads and one stream") else {
        return Ok(());
    };
    let (expected, stream) = (&expected(&gpu)?, &gpu.stream()?);
    thread::scope(|scope| {
        let of_thread = |first: usize| {
            move || -> Result<()> {
                let mut all = Work::all(stream)?;
                for turn in 0..40 {
                    let number = (first + turn) % all.len();
                    all[number].put(stream, Workspace::Pool)?;
                    if turn % 5 == 0 {
                        assert!(
                            all[number].bits()? == expected[number],
                            "{}: other bits",
                            PROBLEMS[number]
                        );
                    }
                }
                for (work, expected) in all.iter().zip(expected) {
                    assert!(work.bits()? == *expected, "{}: other bits", *work.plan);
                }
                Ok(())
            }
        };
        let threads: Vec<_> = (0..4).map(|first| scope.spawn(of_thread(first))).collect();
        threads.into_iter().try_for_each(|t| t.join().expect("no panic"))
    })
}

#[test]
fn a_graph_has_memory_of_its_own_beside_the_stream_it_was_recorded_from() -> Result<()> {
    let Some(gpu) = gpu("graphs that leave messages") else {
        return Ok(());
    };
    let expected = expected(&gpu)?;
    let (stream, other) = (gpu.stream()?, gpu.stream()?);
    let (mut eager, mut recorded) = (Work::all(&stream)?, Work::all(&stream)?);
    // So that the stream has memory already.
    eager
        .iter_mut()
        .try_for_each(|work| work.put(&stream, Workspace::Pool))?;
    // Three rounds, so that each call comes behind others in the graph's memory, which grows in the first.
    let graph = stream.capture(|stream| {
        (0..3).try_for_each(|_| {
            recorded
                .iter_mut()
                .try_for_each(|work| work.put(stream, Workspace::Pool))
        })
    })?;
    stream.synchronize()?;
    for _ in 0..20 {
        // SAFETY: the tensors outlive the graph, and only that stream works on them.
        unsafe { graph.launch(&other)? };
        eager
            .iter_mut()
            .try_for_each(|work| work.put(&stream, Workspace::Pool))?;
    }
    other.synchronize()?;
    for ((eager, recorded), expected) in eager.iter().zip(&recorded).zip(&expected) {
        assert!(eager.bits()? == *expected, "{}: other bits", *eager.plan);
        assert!(
            recorded.bits()? == *expected,
            "{}: other bits from the graph",
            *eager.plan
        );
    }
    Ok(())
}

/// A capture that fails leaves the stream as it was, and the next one begins with memory of its own.
#[test]
fn a_capture_that_fails_takes_its_memory_along() -> Result<()> {
    let Some(gpu) = gpu("captures that fail") else {
        return Ok(());
    };
    let (expected, stream) = (expected(&gpu)?, gpu.stream()?);
    let mut all = Work::all(&stream)?;
    let failed = stream.capture(|stream| {
        all.iter_mut().try_for_each(|work| work.put(stream, Workspace::Pool))?;
        stream.zeros::<f32>(1).map(drop)
    });
    assert!(failed.is_err(), "a buffer was made during a capture");
    let mut recorded = Work::all(&stream)?;
    all.iter_mut().try_for_each(|work| work.put(&stream, Workspace::Pool))?;
    let graph = stream.capture(|stream| {
        recorded
            .iter_mut()
            .try_for_each(|work| work.put(stream, Workspace::Pool))
    })?;
    // SAFETY: the tensors outlive the graph, and only that stream works on them.
    (0..5).try_for_each(|_| unsafe { graph.launch(&stream) })?;
    for (work, expected) in all.iter().chain(&recorded).zip(expected.iter().cycle()) {
        assert!(work.bits()? == *expected, "{}: other bits", *work.plan);
    }
    Ok(())
}

/// The driver's default streams: that of all threads, and that which each thread has of its own.
#[test]
fn default_streams_keep_no_memory_for_other_threads() -> Result<()> {
    let Some(gpu) = gpu("default streams") else {
        return Ok(());
    };
    let expected = &expected(&gpu)?;
    for handle in 0..3usize {
        // SAFETY: handles of the driver's own: null, `CU_STREAM_LEGACY` and `CU_STREAM_PER_THREAD`.
        let stream = &match unsafe { Stream::from_raw(gpu, std::ptr::without_provenance_mut(handle)) } {
            Ok(stream) => stream,
            Err(error) => {
                say(&format!("default stream {handle}: {error}"));
                continue;
            }
        };
        thread::scope(|scope| {
            let of_thread = || -> Result<()> {
                let mut all = Work::all(stream)?;
                for _ in 0..10 {
                    all.iter_mut().try_for_each(|work| work.put(stream, Workspace::Pool))?;
                }
                stream.synchronize()?;
                for (work, expected) in all.iter().zip(expected) {
                    assert!(work.bits()? == *expected, "{}: other bits", *work.plan);
                }
                Ok(())
            };
            let threads: Vec<_> = (0..2).map(|_| scope.spawn(of_thread)).collect();
            threads.into_iter().try_for_each(|t| t.join().expect("no panic"))
        })?;
    }
    Ok(())
}
