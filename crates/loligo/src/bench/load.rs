//! The load itself: which block comes next, what it must hold, and how long each operation took.
//!
//! A block's contents are a slice of one buffer of random bytes; which slice, its object, place and generation say. Making
//! and checking contents costs nothing but the comparison.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use bytes::Bytes;
use rados::{IoCtx, ReadOp, WriteOp};
use tokio::task::JoinSet;
use types::{Entropy, SeededEntropy};

use super::args::{Mode, RadosBench};
use super::report::Histogram;

/// Random bytes that blocks are slices of, beyond the length of one block.
const POOL_BYTES: usize = 1 << 20;
/// Blocks read back after a run with writes, unless all are wanted.
const SAMPLE: usize = 1024;

pub struct Load {
    pool: IoCtx,
    mode: Mode,
    depth: usize,
    block: u64,
    blocks_per_object: u64,
    objects: u64,
    reads: u64,
    run: String,
    random: Bytes,
    state: Mutex<State>,
    progress: Progress,
}

struct State {
    entropy: SeededEntropy,
    /// The next block in turn.
    next: u64,
    /// By block: how often it was written; 0 for never.
    generations: Vec<u32>,
    /// By block: an operation on it is under way.
    busy: Vec<bool>,
}

/// Counters that the progress line reads.
#[derive(Debug, Default)]
pub struct Progress {
    ops: AtomicU64,
    bytes: AtomicU64,
}

impl Progress {
    pub fn so_far(&self) -> (u64, u64) {
        (self.ops.load(Ordering::Relaxed), self.bytes.load(Ordering::Relaxed))
    }
}

/// What was measured.
#[derive(Debug, Clone, Default)]
pub struct Tally {
    pub reads: Histogram,
    pub writes: Histogram,
    pub elapsed: Duration,
}

impl Tally {
    pub fn ops(&self) -> u64 {
        self.reads.count() + self.writes.count()
    }
}

/// One operation to do.
struct Step {
    block: u64,
    generation: u32,
    is_read: bool,
}

impl Load {
    pub fn new(pool: IoCtx, args: &RadosBench) -> Result<Arc<Self>> {
        if args.block_size > args.object_size || args.object_size % args.block_size != 0 {
            bail!("the object size must be a multiple of the block size");
        }
        let blocks_per_object = args.object_size / args.block_size;
        let blocks = blocks_per_object.checked_mul(args.objects).filter(|n| *n > 0 && *n <= 1 << 28);
        let blocks = blocks.context("the working set has no block, or more than 268 million")? as usize;
        if args.depth == 0 || args.depth > blocks / 2 {
            bail!("depth {} needs more blocks than {blocks}: raise --objects", args.depth);
        }
        let seed = runtime::OsEntropy.next_u64();
        let mut entropy = SeededEntropy(seed);
        let mut random = vec![0; POOL_BYTES + args.block_size as usize];
        entropy.fill(&mut random);
        Ok(Arc::new(Self {
            pool,
            mode: args.mode,
            depth: args.depth,
            block: args.block_size,
            blocks_per_object,
            objects: args.objects,
            reads: args.reads,
            run: format!("loligo-bench-{seed:016x}"),
            random: random.into(),
            state: Mutex::new(State {
                entropy,
                next: 0,
                generations: vec![0; blocks],
                busy: vec![false; blocks],
            }),
            progress: Progress::default(),
        }))
    }

    pub fn progress(&self) -> &Progress {
        &self.progress
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// The object and the offset of a block; neighbours in turn lie in different objects.
    fn place(&self, block: u64) -> (String, u64) {
        (self.object(block % self.objects), block / self.objects * self.block)
    }

    fn object(&self, n: u64) -> String {
        format!("{}-{n}", self.run)
    }

    /// What a block holds in this generation.
    fn contents(&self, block: u64, generation: u32) -> Bytes {
        let mixed = SeededEntropy(block << 20 ^ u64::from(generation)).next_u64();
        let at = (mixed % POOL_BYTES as u64) as usize;
        self.random.slice(at..at + self.block as usize)
    }

    /// Writes every block, in large pieces, before the clock starts.
    pub async fn fill(&self) -> Result<()> {
        let blocks = self.blocks_per_object * self.objects;
        let per_piece = ((1 << 20) / self.block).max(1);
        let mut pending = std::collections::VecDeque::new();
        for object in 0..self.objects {
            let mut at = 0;
            while at < self.blocks_per_object {
                let end = (at + per_piece).min(self.blocks_per_object);
                let mut piece = Vec::with_capacity(((end - at) * self.block) as usize);
                for row in at..end {
                    piece.extend_from_slice(&self.contents(row * self.objects + object, 1));
                }
                let op = WriteOp::new().write(at * self.block, piece);
                pending.push_back(self.pool.submit_write(&self.object(object), op));
                if pending.len() > 16 {
                    if let Some(first) = pending.pop_front() {
                        first.await?;
                    }
                }
                at = end;
            }
        }
        for p in pending {
            p.await?;
        }
        self.state().generations = vec![1; blocks as usize];
        Ok(())
    }

    pub async fn run(self: &Arc<Self>, limit: Duration) -> Result<Tally> {
        let start = Instant::now();
        let mut workers = JoinSet::new();
        for _ in 0..self.depth {
            let load = Arc::clone(self);
            workers.spawn(async move { load.worker(start + limit).await });
        }
        let mut whole = Tally::default();
        while let Some(ended) = workers.join_next().await {
            let tally = ended.context("a worker failed")??;
            whole.reads.add(&tally.reads);
            whole.writes.add(&tally.writes);
        }
        whole.elapsed = start.elapsed();
        Ok(whole)
    }

    async fn worker(&self, until: Instant) -> Result<Tally> {
        let mut tally = Tally::default();
        while Instant::now() < until {
            let step = self.next_step();
            let begun = Instant::now();
            self.do_step(&step).await?;
            let taken = begun.elapsed();
            if step.is_read {
                tally.reads.record(taken)
            } else {
                tally.writes.record(taken)
            }
            self.progress.ops.fetch_add(1, Ordering::Relaxed);
            self.progress.bytes.fetch_add(self.block, Ordering::Relaxed);
        }
        Ok(tally)
    }

    fn next_step(&self) -> Step {
        let mut guard = self.state();
        let s = &mut *guard;
        let blocks = s.busy.len() as u64;
        let mut block = match self.mode {
            Mode::Write | Mode::Seq => {
                s.next += 1;
                (s.next - 1) % blocks
            }
            Mode::Rand | Mode::Mixed => s.entropy.next_u64() % blocks,
        };
        // Half of the blocks at most are busy.
        while s.busy[block as usize] {
            block = (block + 1) % blocks;
        }
        let is_read = match self.mode {
            Mode::Write => false,
            Mode::Seq | Mode::Rand => true,
            Mode::Mixed => s.entropy.next_u64() % 100 < self.reads,
        };
        s.busy[block as usize] = true;
        let known = s.generations[block as usize];
        Step { block, generation: if is_read { known } else { known + 1 }, is_read }
    }

    async fn do_step(&self, step: &Step) -> Result<()> {
        let (object, offset) = self.place(step.block);
        let contents = self.contents(step.block, step.generation);
        if step.is_read {
            let got = self.pool.submit_read(&object, ReadOp::new().read(offset, self.block)).await;
            let got = got.with_context(|| format!("a read of {object} failed"))?.output(0);
            if got != contents {
                bail!("no figures: {object} does not hold what was written at {offset}");
            }
        } else {
            let done = self.pool.submit_write(&object, WriteOp::new().write(offset, contents)).await;
            done.with_context(|| format!("a write to {object} failed"))?;
        }
        let mut s = self.state();
        s.generations[step.block as usize] = step.generation;
        s.busy[step.block as usize] = false;
        Ok(())
    }

    /// Reads back what was written, all of it or a sample; how many blocks were compared.
    pub async fn check(&self, everything: bool) -> Result<usize> {
        let written: Vec<(u64, u32)> = {
            let s = self.state();
            (0..).zip(&s.generations).filter(|(_, g)| **g > 0).map(|(block, g)| (block, *g)).collect()
        };
        let step = if everything { 1 } else { (written.len() / SAMPLE).max(1) };
        let mut pending = std::collections::VecDeque::new();
        let mut compared = 0;
        for (block, generation) in written.into_iter().step_by(step) {
            let (object, offset) = self.place(block);
            let read = self.pool.submit_read(&object, ReadOp::new().read(offset, self.block));
            pending.push_back((block, generation, read));
            if pending.len() >= 64 {
                compared += self.compare(pending.pop_front()).await?;
            }
        }
        while !pending.is_empty() {
            compared += self.compare(pending.pop_front()).await?;
        }
        Ok(compared)
    }

    async fn compare(&self, read: Option<(u64, u32, rados::Pending)>) -> Result<usize> {
        let Some((block, generation, read)) = read else { return Ok(0) };
        let got = read.await.context("no figures: reading back failed")?.output(0);
        if got != self.contents(block, generation) {
            let (object, offset) = self.place(block);
            bail!("no figures: {object} does not hold what was written at {offset}");
        }
        Ok(1)
    }

    pub async fn clean_up(&self) -> Result<()> {
        let pending: Vec<_> = (0..self.objects)
            .map(|n| self.pool.submit_write(&self.object(n), WriteOp::new().remove()))
            .collect();
        for p in pending {
            match p.await {
                Err(e) if !e.is_not_found() => return Err(e.into()),
                _ => {}
            }
        }
        Ok(())
    }
}
