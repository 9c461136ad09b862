//! Runs the coroutines of the blocks that run together, until all have ended or one has failed.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;

use corosensei::stack::DefaultStack;
use corosensei::{Coroutine, CoroutineResult};

use super::coroutine::{Place, Running};
use super::exchange::answers;
use super::world::World;
use super::{Buffers, Fault, FaultKind, Launch, Report, Request, Scope};
use crate::simt::WARP;

/// Bytes of a coroutine's stack: kernels hold tens of numbers, and a panic's message needs the rest.
const STACK_BYTES: usize = 128 << 10;

type Thread = Coroutine<u32, Request, ()>;

/// What a coroutine runs, behind one pointer.
struct Kernel<'a>(&'a dyn Fn());

enum State {
    /// Runs on with this answer.
    Ready(u32),
    Waiting(Request),
    Done,
}

struct Task {
    coroutine: Option<Thread>,
    state: State,
}

/// Who of a block waits at a barrier.
#[derive(Clone, Copy, Default)]
struct Waiting {
    first: Option<(Scope, Place, u32)>,
    count: u32,
    done: u32,
}

/// The blocks that run together.
struct Wave<'a> {
    world: &'a World<'a>,
    tasks: Vec<Task>,
    barriers: Vec<Waiting>,
    ready: Vec<usize>,
    random: Random,
}

/// A small generator of random numbers (splitmix64).
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((u128::from(z ^ (z >> 31)) * bound as u128) >> 64) as usize
    }
}

/// Runs all blocks: at once, or cluster by cluster in an order of the seed.
pub(super) fn run(launch: &Launch, buffers: &Buffers<'_>, kernel: &dyn Fn()) -> Result<Report, Fault> {
    let together = if launch.resident { launch.blocks } else { launch.cluster };
    let mut firsts: Vec<u32> = (0..launch.blocks).step_by(together as usize).collect();
    let mut random = Random(launch.seed);
    let mut stacks = Vec::new();
    let mut total = Report::default();
    while !firsts.is_empty() {
        let first = firsts.swap_remove(random.below(firsts.len()));
        let world = World::new(*launch, buffers, first, together);
        let report = run_wave(
            &world,
            kernel,
            Random(launch.seed ^ u64::from(first) << 32),
            &mut stacks,
        )?;
        total.bytes_read += report.bytes_read;
        total.bytes_written += report.bytes_written;
    }
    Ok(total)
}

fn run_wave(
    world: &World<'_>,
    kernel: &dyn Fn(),
    random: Random,
    stacks: &mut Vec<DefaultStack>,
) -> Result<Report, Fault> {
    let kernel = Kernel(kernel);
    let blocks = world.block_count();
    let threads = (blocks * world.launch.threads) as usize;
    let mut wave = Wave {
        world,
        tasks: Vec::with_capacity(threads),
        barriers: vec![Waiting::default(); blocks as usize],
        ready: (0..threads).collect(),
        random,
    };
    for index in 0..threads as u32 {
        let coroutine = spawn(world, &kernel, index, stacks.pop())?;
        wave.tasks.push(Task {
            coroutine: Some(coroutine),
            state: State::Ready(0),
        });
    }
    wave.run(stacks)?;
    Ok(world.report())
}

fn spawn(world: &World<'_>, kernel: &Kernel<'_>, index: u32, stack: Option<DefaultStack>) -> Result<Thread, Fault> {
    let stack = match stack {
        Some(stack) => stack,
        None => DefaultStack::new(STACK_BYTES)
            .map_err(|error| Fault::of_launch(format!("no memory for the stack of a thread ({error})")))?,
    };
    let world_pointer = ptr::from_ref(world).cast::<World<'static>>();
    let kernel = ptr::from_ref(kernel).cast::<Kernel<'static>>();
    let threads = world.launch.threads;
    Ok(Coroutine::with_stack(stack, move |yielder, _| {
        let running = Running {
            world: world_pointer,
            yielder,
            block: index / threads,
            thread: index % threads,
        };
        // SAFETY: `run_wave` holds the kernel until every coroutine has ended or was dropped.
        running.enter(unsafe { (*kernel).0 });
    }))
}

impl Wave<'_> {
    fn run(&mut self, stacks: &mut Vec<DefaultStack>) -> Result<(), Fault> {
        let mut left = self.tasks.len();
        while left > 0 {
            if self.ready.is_empty() {
                self.poll()?;
            }
            let pick = self.random.below(self.ready.len());
            let index = self.ready.swap_remove(pick);
            match self.resume(index)? {
                CoroutineResult::Yield(request) => self.handle(index, request)?,
                CoroutineResult::Return(()) => {
                    left -= 1;
                    stacks.extend(self.tasks[index].coroutine.take().map(Coroutine::into_stack));
                    self.finish(index)?;
                }
            }
        }
        Ok(())
    }

    fn locate(&self, index: usize) -> (u32, u32) {
        let threads = self.world.launch.threads;
        (index as u32 / threads, index as u32 % threads)
    }

    fn fault(&self, kind: FaultKind, index: usize, place: Option<Place>, detail: String) -> Fault {
        let (block, thread) = self.locate(index);
        Fault::at(kind, self.world.block_index(block), thread, place, detail)
    }

    fn resume(&mut self, index: usize) -> Result<CoroutineResult<Request, ()>, Fault> {
        let task = &mut self.tasks[index];
        let answer = match task.state {
            State::Ready(answer) => answer,
            State::Waiting(_) | State::Done => unreachable!("only threads that are ready are picked"),
        };
        let coroutine = task.coroutine.as_mut().expect("a thread that is ready has a coroutine");
        catch_unwind(AssertUnwindSafe(|| coroutine.resume(answer)))
            .map_err(|payload| self.fault(FaultKind::Panic, index, None, message(payload.as_ref())))
    }

    fn handle(&mut self, index: usize, request: Request) -> Result<(), Fault> {
        self.tasks[index].state = State::Waiting(request);
        match request {
            Request::Warp { .. } => self.warp(index),
            Request::Barrier { scope, place } => self.barrier(index, scope, place),
            Request::Counter { .. } | Request::Message { .. } | Request::Transfer { .. } | Request::Cluster { .. } => {
                Ok(())
            }
            Request::Fault => Err(self.world.take_fault().expect("a thread that failed said why")),
        }
    }

    fn wake(&mut self, index: usize, answer: u32) {
        self.tasks[index].state = State::Ready(answer);
        self.ready.push(index);
    }

    /// Completes the operation of a warp when all its lanes are there.
    fn warp(&mut self, index: usize) -> Result<(), Fault> {
        let State::Waiting(Request::Warp { operation, place, .. }) = self.tasks[index].state else {
            return Ok(());
        };
        let start = index - index % WARP as usize;
        let (mut values, mut operands, mut here) = ([0; 32], [0; 32], 0);
        for lane in 0..32 {
            let other = match self.tasks[start + lane].state {
                State::Waiting(Request::Warp {
                    operation: o,
                    place: p,
                    value,
                    operand,
                }) if o == operation && p == place => {
                    (values[lane], operands[lane]) = (value, operand);
                    here += 1;
                    continue;
                }
                State::Waiting(Request::Warp { place, .. }) => format!("waits at {place}"),
                State::Done => "has ended".into(),
                _ => continue,
            };
            let detail = format!("lane {lane} of the warp {other}");
            return Err(self.fault(FaultKind::DivergentWarp, index, Some(place), detail));
        }
        if here < WARP {
            return Ok(());
        }
        if operation == super::Operation::Barrier {
            let (block, thread) = self.locate(index);
            self.world.pass_barrier(block, thread, None);
        }
        for (lane, answer) in answers(operation, &values, &operands).into_iter().enumerate() {
            self.wake(start + lane, answer);
        }
        Ok(())
    }

    /// The blocks that a barrier of `block` stops.
    fn group(&self, block: u32, scope: Scope) -> std::ops::Range<usize> {
        let size = match scope {
            Scope::Block => 1,
            Scope::Cluster => self.world.launch.cluster,
        };
        let start = block / size * size;
        start as usize..(start + size) as usize
    }

    /// Opens a barrier when all threads are there.
    fn barrier(&mut self, index: usize, scope: Scope, place: Place) -> Result<(), Fault> {
        let (block, thread) = self.locate(index);
        let group = self.group(block, scope);
        let threads = self.world.launch.threads;
        for (i, waiting) in group.clone().zip(&self.barriers[group.clone()]) {
            let other = match waiting.first {
                // Another block goes on from there without this one.
                Some((Scope::Block, ..)) if i != block as usize => continue,
                Some((_, p, t)) if p != place => format!("thread {t} of block {i} waits at {p}"),
                _ if waiting.done > 0 => format!("{} threads of block {i} have ended", waiting.done),
                _ => continue,
            };
            let detail = format!("of the group that has to meet here, {other}");
            return Err(self.fault(FaultKind::DivergentBarrier, index, Some(place), detail));
        }
        let own = &mut self.barriers[block as usize];
        own.first.get_or_insert((scope, place, thread));
        own.count += 1;
        if self.barriers[group.clone()]
            .iter()
            .all(|waiting| waiting.count == threads)
        {
            for block in group {
                self.open(block, scope);
            }
        }
        Ok(())
    }

    fn open(&mut self, block: usize, scope: Scope) {
        self.barriers[block] = Waiting::default();
        self.world.pass_barrier(block as u32, 0, Some(scope));
        let threads = self.world.launch.threads as usize;
        for index in block * threads..(block + 1) * threads {
            self.wake(index, 0);
        }
    }

    /// Notes the end of a thread; those that wait for it at a barrier would wait for ever.
    fn finish(&mut self, index: usize) -> Result<(), Fault> {
        self.tasks[index].state = State::Done;
        let (block, thread) = self.locate(index);
        self.world
            .finish(block, thread)
            .map_err(|(kind, detail)| self.fault(kind, index, None, detail))?;
        self.barriers[block as usize].done += 1;
        let stopped = self.group(block, Scope::Cluster).find_map(|other| {
            let (scope, place, thread) = self.barriers[other].first?;
            (scope == Scope::Cluster || other == block as usize).then_some((place, thread))
        });
        match stopped {
            Some((place, thread)) => {
                let detail = format!("ended, and thread {thread} waits at a barrier for it");
                Err(self.fault(FaultKind::DivergentBarrier, index, Some(place), detail))
            }
            None => Ok(()),
        }
    }

    /// Wakes the threads whose condition has come true; there must be some.
    fn poll(&mut self) -> Result<(), Fault> {
        for index in 0..self.tasks.len() {
            let State::Waiting(request) = self.tasks[index].state else {
                continue;
            };
            let (block, thread) = self.locate(index);
            let (result, place) = match request {
                Request::Counter {
                    address,
                    at_least,
                    place,
                } => (self.world.counter_reached(address, at_least), place),
                Request::Message { address, tag, place } => {
                    (self.world.message(address, tag).map(|found| found.is_some()), place)
                }
                Request::Transfer { offset, parity, place } => {
                    (self.world.transfer_passed(block, thread, offset, parity), place)
                }
                Request::Cluster { place } => (Ok(self.world.cluster_arrived(block, thread)), place),
                _ => continue,
            };
            if result.map_err(|(kind, detail)| self.fault(kind, index, Some(place), detail))? {
                self.wake(index, 0);
            }
        }
        if self.ready.is_empty() {
            Err(self.deadlock())
        } else {
            Ok(())
        }
    }

    /// Who waits where, each place once.
    fn deadlock(&self) -> Fault {
        let mut places: Vec<(String, usize, usize)> = Vec::new();
        for (index, task) in self.tasks.iter().enumerate() {
            let State::Waiting(request) = &task.state else {
                continue;
            };
            let what = describe(request);
            match places.iter_mut().find(|(known, ..)| *known == what) {
                Some((_, count, _)) => *count += 1,
                None => places.push((what, 1, index)),
            }
        }
        let list: Vec<_> = places
            .iter()
            .map(|(what, count, index)| {
                let (block, thread) = self.locate(*index);
                let block = self.world.block_index(block);
                format!("{count} threads (first: block {block} thread {thread}) wait {what}")
            })
            .collect();
        let first = places.first().map_or(0, |&(.., index)| index);
        self.fault(FaultKind::Deadlock, first, None, list.join("; "))
    }
}

fn describe(request: &Request) -> String {
    match request {
        Request::Warp { operation, place, .. } => format!("for their warp in {operation:?} at {place}"),
        Request::Barrier { scope, place } => format!("at a barrier of the {scope:?} at {place}"),
        Request::Counter { at_least, place, .. } => format!("for a counter to reach {at_least} at {place}"),
        Request::Message { tag, place, .. } => format!("for message {tag} at {place}"),
        Request::Transfer { offset, place, .. } => format!("for copies on the barrier at byte {offset} at {place}"),
        Request::Cluster { place } => format!("for their cluster to arrive at {place}"),
        Request::Fault => "for nothing".into(),
    }
}

fn message(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().map(ToString::to_string);
    text.or_else(|| payload.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "no message".into())
}
