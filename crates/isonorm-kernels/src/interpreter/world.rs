//! [`World`]: the memory of the blocks that run together.

use std::cell::RefCell;
use std::collections::HashMap;

use super::coroutine::Scope;
use super::sent::Sent;
use super::shadow::{Access, Now, SharedMemory};
pub(crate) use super::transfer::{Copy, Source};
use super::transfer::{Groups, TransferState};
use super::{Buffers, Fault, FaultKind, Launch, Report};
use crate::simt::WARP;

type Checked<T> = Result<T, (FaultKind, String)>;

/// What blocks of the grid leave for each other: two values, and the tag that they are known by.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Message {
    pub values: [u32; 2],
    pub tag: u32,
}

/// How often a thread has arrived at its cluster, and whether it has yet to wait.
#[derive(Clone, Copy, Default)]
struct Arrivals {
    count: u32,
    pending: bool,
}

struct BlockState {
    shared: SharedMemory,
    transfers: HashMap<u32, TransferState>,
    groups: Vec<Groups>,
    arrivals: Vec<Arrivals>,
    /// Those of all threads.
    arrived: u64,
    cluster_barriers: u32,
    block_barriers: u32,
    warp_barriers: Vec<u32>,
    running: u32,
}

impl BlockState {
    fn new(launch: &Launch) -> Self {
        Self {
            shared: SharedMemory::new(launch.shared_bytes),
            transfers: HashMap::new(),
            groups: (0..launch.threads).map(|_| Groups::default()).collect(),
            arrivals: vec![Arrivals::default(); launch.threads as usize],
            arrived: 0,
            cluster_barriers: 0,
            block_barriers: 0,
            warp_barriers: vec![0; (launch.threads / WARP) as usize],
            running: launch.threads,
        }
    }
}

/// The memory of the blocks that run together, and what they have done so far. Blocks are named by their index among
/// those.
pub(crate) struct World<'a> {
    pub launch: Launch,
    /// The index in the grid of the first of these blocks.
    first: u32,
    buffers: &'a Buffers<'a>,
    blocks: RefCell<Vec<BlockState>>,
    sent: Sent,
    report: RefCell<Report>,
    fault: RefCell<Option<Fault>>,
}

impl<'a> World<'a> {
    pub fn new(launch: Launch, buffers: &'a Buffers<'a>, first: u32, count: u32) -> Self {
        Self {
            launch,
            first,
            buffers,
            blocks: RefCell::new((0..count).map(|_| BlockState::new(&launch)).collect()),
            sent: Sent::default(),
            report: RefCell::default(),
            fault: RefCell::default(),
        }
    }

    pub fn block_index(&self, block: u32) -> u32 {
        self.first + block
    }

    pub fn block_count(&self) -> u32 {
        self.blocks.borrow().len() as u32
    }

    pub fn report(&self) -> Report {
        *self.report.borrow()
    }

    pub fn fail(&self, fault: Fault) {
        self.fault.borrow_mut().get_or_insert(fault);
    }

    pub fn take_fault(&self) -> Option<Fault> {
        self.fault.borrow_mut().take()
    }

    /// An access of this thread, now.
    fn access(&self, block: u32, thread: u32) -> Access {
        let state = &self.blocks.borrow()[block as usize];
        let Arrivals { count, pending } = state.arrivals[thread as usize];
        Access {
            block,
            thread,
            cluster_barriers: state.cluster_barriers,
            block_barriers: state.block_barriers,
            warp_barriers: state.warp_barriers[(thread / WARP) as usize],
            sent: self.sent.so_far((block, thread / WARP)),
            arrivals: count,
            waits: count - u32::from(pending),
        }
    }

    /// Calls `check` with the shared memory of block `owner`, and what there is to know of an access of this thread, now.
    fn with_shared<R>(
        &self,
        owner: u32,
        (block, thread): (u32, u32),
        check: impl FnOnce(&mut SharedMemory, Now<'_>) -> R,
    ) -> R {
        let access = self.access(block, thread);
        self.sent.with_known(block, thread, |known| {
            let shared = &mut self.blocks.borrow_mut()[owner as usize].shared;
            check(shared, Now { access, known })
        })
    }

    pub fn global_read(&self, address: usize, to: &mut [u8]) -> Checked<()> {
        self.buffers.read(address, to)?;
        self.report.borrow_mut().bytes_read += to.len() as u64;
        Ok(())
    }

    pub fn global_write(&self, address: usize, from: &[u8]) -> Checked<()> {
        self.buffers.write(address, from)?;
        self.report.borrow_mut().bytes_written += from.len() as u64;
        Ok(())
    }

    /// Whether the counter has reached a value; no traffic.
    pub fn counter_reached(&self, address: usize, at_least: u32) -> Checked<bool> {
        let mut bytes = [0; 4];
        self.buffers.read(address, &mut bytes)?;
        Ok(u32::from_ne_bytes(bytes) >= at_least)
    }

    pub fn counter_add(&self, address: usize, value: u32) -> Checked<()> {
        let mut bytes = [0; 4];
        self.buffers.read(address, &mut bytes)?;
        let sum = u32::from_ne_bytes(bytes).wrapping_add(value);
        self.buffers.write(address, &sum.to_ne_bytes())
    }

    /// Leaves a message: its values, each with the tag behind it.
    pub fn message_send(&self, address: usize, message: Message) -> Checked<()> {
        let Message { values: [a, b], tag } = message;
        let words = [a, tag, b, tag].map(u32::to_ne_bytes);
        self.buffers.write(address, words.as_flattened())
    }

    /// The values that are there with a tag, if they have come; a later message has taken the place of one that somebody still waits
    /// for.
    pub fn message(&self, address: usize, tag: u32) -> Checked<Option<[u32; 2]>> {
        let mut bytes = [0; 16];
        self.buffers.read(address, &mut bytes)?;
        let word = |i: usize| u32::from_ne_bytes([bytes[4 * i], bytes[4 * i + 1], bytes[4 * i + 2], bytes[4 * i + 3]]);
        if word(1) > tag {
            let detail = format!(
                "message {tag} was not received before message {} came to its place",
                word(1)
            );
            return Err((FaultKind::Race, detail));
        }
        Ok((word(1) == tag && word(3) == tag).then(|| [word(0), word(2)]))
    }

    /// Reads the shared memory of block `owner` as thread `thread` of block `block`.
    pub fn shared_read(&self, owner: u32, block: u32, thread: u32, offset: u32, to: &mut [u8]) -> Checked<()> {
        self.with_shared(owner, (block, thread), |shared, now| shared.read(offset, to, now))
    }

    /// Writes the shared memory of block `owner` as thread `thread` of block `block`.
    pub fn shared_write(&self, owner: u32, block: u32, thread: u32, offset: u32, from: &[u8]) -> Checked<()> {
        self.with_shared(owner, (block, thread), |shared, now| shared.write(offset, from, now))
    }

    /// The block of rank `rank` in the cluster of `block`, if it has not ended.
    pub fn peer(&self, block: u32, rank: u32) -> Checked<u32> {
        let cluster = self.launch.cluster;
        if rank >= cluster {
            let detail = format!("block {rank} of a cluster, which has {cluster} blocks");
            return Err((FaultKind::OutOfBounds, detail));
        }
        let peer = block / cluster * cluster + rank;
        if self.blocks.borrow()[peer as usize].running < self.launch.threads {
            let detail = format!("shared memory of block {rank} of the cluster, which is ending");
            return Err((FaultKind::Misuse, detail));
        }
        Ok(peer)
    }

    /// Starts a copy to the shared memory of block `owner`, as thread `thread` of block `block`.
    fn start(&self, owner: u32, (block, thread): (u32, u32), copy: Copy) -> Checked<()> {
        match copy.from {
            Source::Global(address) => self.buffers.check_read(address, copy.bytes as usize)?,
            Source::GlobalSome(address, bytes) => self.check_some(address, bytes, copy)?,
            Source::Thread(..) => {}
        }
        self.with_shared(owner, (block, thread), |shared, now| {
            shared.start_copy(copy.to, copy.bytes, now)
        })
    }

    /// Whether a copy of some of its bytes may be made.
    fn check_some(&self, address: usize, bytes: u32, copy: Copy) -> Checked<()> {
        if !address.is_multiple_of(16) {
            return Err((
                FaultKind::Misaligned,
                format!("copy of {bytes} bytes from an address that is no multiple of 16"),
            ));
        }
        if bytes > copy.bytes {
            let detail = format!("copy of {bytes} bytes to a place for {}", copy.bytes);
            return Err((FaultKind::OutOfBounds, detail));
        }
        match bytes {
            0 => Ok(()),
            _ => self.buffers.check_read(address, bytes as usize),
        }
    }

    fn land(&self, block: u32, copies: Vec<Copy>, writer: Option<Access>) -> Checked<()> {
        for copy in copies {
            let mut data = vec![0; copy.bytes as usize];
            match copy.from {
                Source::Global(address) => self.global_read(address, &mut data)?,
                Source::GlobalSome(_, 0) => {}
                Source::GlobalSome(address, bytes) => self.global_read(address, &mut data[..bytes as usize])?,
                Source::Thread(sent, _) => data.copy_from_slice(&sent),
            }
            let shared = &mut self.blocks.borrow_mut()[block as usize].shared;
            shared.land_copy(copy.to, &data, writer);
        }
        Ok(())
    }

    pub fn copy_async(&self, block: u32, thread: u32, copy: Copy) -> Checked<()> {
        self.start(block, (block, thread), copy)?;
        self.blocks.borrow_mut()[block as usize].groups[thread as usize].start(copy);
        Ok(())
    }

    pub fn copy_commit(&self, block: u32, thread: u32) {
        self.blocks.borrow_mut()[block as usize].groups[thread as usize].commit();
    }

    pub fn copy_wait(&self, block: u32, thread: u32, pending: u32) -> Checked<()> {
        let now = self.access(block, thread);
        let landing = self.blocks.borrow_mut()[block as usize].groups[thread as usize].wait(pending as usize);
        self.land(block, landing, Some(now))
    }

    pub fn transfer_init(&self, block: u32, thread: u32, offset: u32, arrivals: u32) -> Checked<()> {
        self.with_shared(block, (block, thread), |shared, now| shared.prepare(offset, now))?;
        let state = TransferState::new(arrivals);
        self.blocks.borrow_mut()[block as usize].transfers.insert(offset, state);
        Ok(())
    }

    /// Applies `change` to a prepared barrier of block `owner`, which `thread` of `block` must be allowed to see.
    fn with_transfer<T>(
        &self,
        owner: u32,
        (block, thread): (u32, u32),
        offset: u32,
        change: impl FnOnce(&mut TransferState) -> T,
    ) -> Checked<T> {
        self.shared_read(owner, block, thread, offset, &mut [0; 8])?;
        let mut blocks = self.blocks.borrow_mut();
        let Some(state) = blocks[owner as usize].transfers.get_mut(&offset) else {
            let detail = format!("no barrier for copies was prepared at byte {offset} of shared memory");
            return Err((FaultKind::Misuse, detail));
        };
        Ok(change(state))
    }

    pub fn transfer_expect(&self, block: u32, thread: u32, offset: u32, bytes: u32) -> Checked<()> {
        let arrived = self.with_transfer(block, (block, thread), offset, |state| {
            state.expected_bytes += u64::from(bytes);
            state.pending.checked_sub(1).map(|pending| state.pending = pending)
        })?;
        arrived.ok_or_else(|| {
            let detail = format!("more arrivals than prepared for at byte {offset} of shared memory");
            (FaultKind::Misuse, detail)
        })
    }

    pub fn transfer_copy(&self, block: u32, thread: u32, offset: u32, copy: Copy) -> Checked<()> {
        let whole = matches!(copy.from, Source::Global(address) if address.is_multiple_of(16));
        if !(whole && copy.to.is_multiple_of(16) && copy.bytes.is_multiple_of(16)) {
            let detail = format!(
                "bulk copy of {} bytes to byte {}, expected multiples of 16",
                copy.bytes, copy.to
            );
            return Err((FaultKind::Misaligned, detail));
        }
        self.start(block, (block, thread), copy)?;
        self.with_transfer(block, (block, thread), offset, |state| state.copies.push(copy))
    }

    /// Sends 8 bytes to the shared memory of block `owner`, which count on its barrier at `offset`.
    pub fn transfer_send(
        &self,
        owner: u32,
        (block, thread): (u32, u32),
        offset: u32,
        to: u32,
        data: [u8; 8],
    ) -> Checked<()> {
        let message = self.sent.send((block, thread / WARP));
        let copy = Copy {
            from: Source::Thread(data, message),
            to,
            bytes: 8,
        };
        self.start(owner, (block, thread), copy)?;
        self.with_transfer(owner, (block, thread), offset, |state| state.copies.push(copy))
    }

    /// Whether a phase has ended; ends it, with all its copies, if everything has arrived.
    pub fn transfer_passed(&self, block: u32, thread: u32, offset: u32, parity: u32) -> Checked<bool> {
        let own = (block, thread);
        if !self.with_transfer(block, own, offset, |state| state.has_passed(parity))? {
            let Some(copies) = self.with_transfer(block, own, offset, TransferState::complete)? else {
                return Ok(false);
            };
            self.land(block, copies, None)?;
        }
        let known = self.with_transfer(block, own, offset, |state| state.known.clone())?;
        self.sent.receive(block, thread, &known);
        Ok(true)
    }

    /// Notes that a thread has arrived at its cluster.
    pub fn cluster_arrive(&self, block: u32, thread: u32) -> Checked<()> {
        self.cluster_free(block, thread)?;
        let state = &mut self.blocks.borrow_mut()[block as usize];
        let own = &mut state.arrivals[thread as usize];
        *own = Arrivals {
            count: own.count + 1,
            pending: true,
        };
        state.arrived += 1;
        Ok(())
    }

    /// Fails if a thread has arrived and not waited.
    pub fn cluster_free(&self, block: u32, thread: u32) -> Checked<()> {
        match self.blocks.borrow()[block as usize].arrivals[thread as usize].pending {
            true => Err((
                FaultKind::Misuse,
                "arrived at the cluster before and has not waited for it".into(),
            )),
            false => Ok(()),
        }
    }

    /// Notes that a thread waits for its cluster.
    pub fn cluster_wait(&self, block: u32, thread: u32) -> Checked<()> {
        let own = &mut self.blocks.borrow_mut()[block as usize].arrivals[thread as usize];
        match std::mem::replace(&mut own.pending, false) {
            true => Ok(()),
            false => Err((
                FaultKind::Misuse,
                "waits for the cluster and has not arrived at it".into(),
            )),
        }
    }

    /// Whether all threads of a thread's cluster have arrived as often as it has.
    pub fn cluster_arrived(&self, block: u32, thread: u32) -> bool {
        let blocks = self.blocks.borrow();
        let threads = u64::from(self.launch.threads);
        let all = u64::from(blocks[block as usize].arrivals[thread as usize].count) * threads;
        let first = block - block % self.launch.cluster;
        let cluster = &blocks[first as usize..(first + self.launch.cluster) as usize];
        cluster.iter().all(|state| state.arrived >= all)
    }

    /// Notes that a group has passed a barrier: the warp of `thread` where `scope` is `None`.
    pub fn pass_barrier(&self, block: u32, thread: u32, scope: Option<Scope>) {
        let mut blocks = self.blocks.borrow_mut();
        let state = &mut blocks[block as usize];
        match scope {
            None => state.warp_barriers[(thread / WARP) as usize] += 1,
            Some(Scope::Block) => state.block_barriers += 1,
            Some(Scope::Cluster) => state.cluster_barriers += 1,
        }
    }

    /// Notes that a thread has ended.
    pub fn finish(&self, block: u32, thread: u32) -> Checked<()> {
        let state = &mut self.blocks.borrow_mut()[block as usize];
        state.running -= 1;
        if state.groups[thread as usize].is_empty() && (state.running > 0 || no_copies(&state.transfers)) {
            return Ok(());
        }
        Err((FaultKind::MissingWait, "ended with copies on their way".into()))
    }
}

fn no_copies(transfers: &HashMap<u32, TransferState>) -> bool {
    transfers.values().all(|state| state.copies.is_empty())
}
