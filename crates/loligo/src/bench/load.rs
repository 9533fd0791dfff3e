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
use rbd::Image;
use tokio::task::JoinSet;
use types::{Entropy, SeededEntropy};

use super::args::Mode;
use super::report::Histogram;

/// Random bytes that blocks are slices of, beyond the length of one block.
const POOL_BYTES: usize = 1 << 20;
/// Blocks read back after a run with writes, unless all are wanted.
const SAMPLE: usize = 1024;

/// Requests under way while the working set is filled or read back.
const FILL_DEPTH: usize = 16;
/// Bytes of one request while it is filled.
const FILL_BYTES: u64 = 1 << 20;

/// What the blocks lie in: parts of the same size, which neighbouring blocks take in turn.
pub enum Target {
    /// Objects of a pool that belong to this run.
    Objects(IoCtx),
    Images(Vec<Image>),
}

/// The working set: how many parts, of how many blocks, of how many bytes.
#[derive(Debug, Clone, Copy)]
pub struct Shape {
    pub parts: u64,
    pub blocks_per_part: u64,
    pub block: u64,
}

impl Shape {
    /// Parts of `part` bytes in blocks of `block` bytes.
    pub fn new(parts: u64, part: u64, block: u64) -> Result<Self> {
        if block == 0 || block > part || part % block != 0 {
            bail!("the size must be a multiple of the block size");
        }
        let shape = Self { parts, blocks_per_part: part / block, block };
        let blocks = shape.blocks_per_part.checked_mul(parts).filter(|n| *n > 0 && *n <= 1 << 28);
        blocks.context("the working set has no block, or more than 268 million")?;
        Ok(shape)
    }

    fn blocks(&self) -> u64 {
        self.blocks_per_part * self.parts
    }
}

/// What one run does with it.
#[derive(Debug, Clone, Copy)]
pub struct Work {
    pub mode: Mode,
    /// Operations in flight.
    pub depth: usize,
    /// Per cent of reads in a mixed load.
    pub reads: u64,
}

pub struct Load {
    target: Target,
    shape: Shape,
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

impl State {
    fn generation(&self, block: u64) -> u32 {
        self.generations.get(block as usize).copied().unwrap_or(0)
    }

    fn set_busy(&mut self, block: u64, is_busy: bool) {
        if let Some(busy) = self.busy.get_mut(block as usize) {
            *busy = is_busy;
        }
    }
}

/// Counters that the progress line reads.
#[derive(Debug, Default)]
pub struct Progress {
    ops: AtomicU64,
    bytes: AtomicU64,
    /// Blocks read back.
    compared: AtomicU64,
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
    /// Reads and writes together.
    pub fn both(&self) -> Histogram {
        let mut all = self.reads.clone();
        all.add(&self.writes);
        all
    }

    pub fn ops(&self) -> u64 {
        self.reads.count() + self.writes.count()
    }
}

/// What is done with the whole working set, outside of the measured time.
#[derive(Debug, Clone, Copy)]
enum Chore {
    /// Writes piece n.
    Fill,
    /// Reads back every `step`th block.
    Compare { step: u64 },
}

/// One operation to do.
struct Step {
    block: u64,
    generation: u32,
    is_read: bool,
}

impl Load {
    pub fn new(target: Target, shape: Shape) -> Arc<Self> {
        let seed = runtime::OsEntropy.next_u64();
        let mut entropy = SeededEntropy(seed);
        let mut random = vec![0; POOL_BYTES + shape.block as usize];
        entropy.fill(&mut random);
        let blocks = shape.blocks() as usize;
        let state = State { entropy, next: 0, generations: vec![0; blocks], busy: vec![false; blocks] };
        Arc::new(Self {
            target,
            shape,
            run: format!("loligo-bench-{seed:016x}"),
            random: random.into(),
            state: Mutex::new(state),
            progress: Progress::default(),
        })
    }

    pub fn progress(&self) -> &Progress {
        &self.progress
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// The part and the offset of a block; neighbours in turn lie in different parts.
    fn place(&self, block: u64) -> (u64, u64) {
        (block % self.shape.parts, block / self.shape.parts * self.shape.block)
    }

    /// A part's name.
    fn part(&self, n: u64) -> String {
        match &self.target {
            Target::Objects(_) => format!("{}-{n}", self.run),
            Target::Images(images) => images.get(n as usize).map(|i| i.name().to_owned()).unwrap_or_default(),
        }
    }

    fn image<'a>(&self, images: &'a [Image], part: u64) -> Result<&'a Image> {
        images.get(part as usize).context("there are fewer images than parts")
    }

    async fn read(&self, part: u64, offset: u64) -> Result<Bytes> {
        let got = match &self.target {
            Target::Objects(pool) => {
                let op = ReadOp::new().read(offset, self.shape.block);
                pool.submit_read(&self.part(part), op).await.map(|reply| reply.output(0)).map_err(Into::into)
            }
            Target::Images(images) => {
                self.image(images, part)?.read(offset, self.shape.block).await.map_err(anyhow::Error::from)
            }
        };
        got.with_context(|| format!("no figures: a read of {} failed", self.part(part)))
    }

    async fn write(&self, part: u64, offset: u64, data: Bytes) -> Result<()> {
        let done = match &self.target {
            Target::Objects(pool) => {
                let op = WriteOp::new().write(offset, data);
                pool.submit_write(&self.part(part), op).await.map(|_| ()).map_err(anyhow::Error::from)
            }
            Target::Images(images) => {
                self.image(images, part)?.write(offset, data).await.map_err(anyhow::Error::from)
            }
        };
        done.with_context(|| format!("no figures: a write to {} failed", self.part(part)))
    }

    /// What a block holds in this generation.
    fn contents(&self, block: u64, generation: u32) -> Bytes {
        let mixed = SeededEntropy(block << 20 ^ u64::from(generation)).next_u64();
        let at = (mixed % POOL_BYTES as u64) as usize;
        self.random.slice(at..at + self.shape.block as usize)
    }

    /// Writes every block, in large pieces, before the clock starts.
    pub async fn fill(self: &Arc<Self>) -> Result<()> {
        let pieces = self.shape.blocks_per_part.div_ceil(self.rows_per_piece());
        self.each(self.shape.parts * pieces, Chore::Fill).await?;
        self.state().generations.fill(1);
        Ok(())
    }

    fn rows_per_piece(&self) -> u64 {
        (FILL_BYTES / self.shape.block).clamp(1, self.shape.blocks_per_part)
    }

    async fn fill_piece(&self, n: u64) -> Result<()> {
        let Shape { parts, blocks_per_part, block } = self.shape;
        let (part, first) = (n % parts, n / parts * self.rows_per_piece());
        let last = (first + self.rows_per_piece()).min(blocks_per_part);
        let mut piece = Vec::with_capacity(((last - first) * block) as usize);
        for row in first..last {
            piece.extend_from_slice(&self.contents(row * parts + part, 1));
        }
        self.write(part, first * block, piece.into()).await
    }

    /// Does a chore for each number below `count`, a few at a time.
    async fn each(self: &Arc<Self>, count: u64, chore: Chore) -> Result<()> {
        let next = Arc::new(AtomicU64::new(0));
        let mut workers = JoinSet::new();
        for _ in 0..FILL_DEPTH {
            let (load, next) = (Arc::clone(self), Arc::clone(&next));
            workers.spawn(async move {
                loop {
                    let n = next.fetch_add(1, Ordering::Relaxed);
                    if n >= count {
                        return anyhow::Ok(());
                    }
                    match chore {
                        Chore::Fill => load.fill_piece(n).await?,
                        Chore::Compare { step } => load.compare_written(n * step).await?,
                    }
                }
            });
        }
        while let Some(ended) = workers.join_next().await {
            ended.context("a worker failed")??;
        }
        Ok(())
    }

    pub async fn run(self: &Arc<Self>, work: Work, limit: Duration) -> Result<Tally> {
        let blocks = self.shape.blocks() as usize;
        if work.depth == 0 || work.depth > blocks / 2 {
            bail!("{} operations in flight need twice as many blocks; there are {blocks}", work.depth);
        }
        let start = Instant::now();
        let mut workers = JoinSet::new();
        for _ in 0..work.depth {
            let load = Arc::clone(self);
            workers.spawn(async move { load.worker(work, start + limit).await });
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

    async fn worker(&self, work: Work, until: Instant) -> Result<Tally> {
        let mut tally = Tally::default();
        while Instant::now() < until {
            let step = self.next_step(work);
            let begun = Instant::now();
            self.do_step(&step).await?;
            let taken = begun.elapsed();
            if step.is_read {
                tally.reads.record(taken)
            } else {
                tally.writes.record(taken)
            }
            self.progress.ops.fetch_add(1, Ordering::Relaxed);
            self.progress.bytes.fetch_add(self.shape.block, Ordering::Relaxed);
        }
        Ok(tally)
    }

    fn next_step(&self, work: Work) -> Step {
        let mut guard = self.state();
        let s = &mut *guard;
        let blocks = s.busy.len() as u64;
        let mut block = match work.mode {
            Mode::Write | Mode::Seq => {
                s.next += 1;
                (s.next - 1) % blocks
            }
            Mode::Rand | Mode::Mixed => s.entropy.next_u64() % blocks,
        };
        // Half of the blocks at most are busy.
        while s.busy.get(block as usize).is_some_and(|b| *b) {
            block = (block + 1) % blocks;
        }
        let is_read = match work.mode {
            Mode::Write => false,
            Mode::Seq | Mode::Rand => true,
            Mode::Mixed => s.entropy.next_u64() % 100 < work.reads,
        };
        s.set_busy(block, true);
        let known = s.generation(block);
        Step { block, generation: if is_read { known } else { known + 1 }, is_read }
    }

    async fn do_step(&self, step: &Step) -> Result<()> {
        if step.is_read {
            self.compare(step.block, step.generation).await?;
        } else {
            let (part, offset) = self.place(step.block);
            self.write(part, offset, self.contents(step.block, step.generation)).await?;
        }
        let mut s = self.state();
        if let Some(generation) = s.generations.get_mut(step.block as usize) {
            *generation = step.generation;
        }
        s.set_busy(step.block, false);
        Ok(())
    }

    async fn compare(&self, block: u64, generation: u32) -> Result<()> {
        let (part, offset) = self.place(block);
        if self.read(part, offset).await? != self.contents(block, generation) {
            bail!("no figures: {} does not hold what was written at {offset}", self.part(part));
        }
        Ok(())
    }

    /// Reads back what was written, all of it or a sample; how many blocks were compared.
    pub async fn check(self: &Arc<Self>, everything: bool) -> Result<usize> {
        let written = self.state().generations.iter().filter(|g| **g > 0).count();
        let step = if everything { 1 } else { (written / SAMPLE).max(1) as u64 };
        self.each(self.shape.blocks().div_ceil(step), Chore::Compare { step }).await?;
        Ok(self.progress.compared.swap(0, Ordering::Relaxed) as usize)
    }

    async fn compare_written(&self, block: u64) -> Result<()> {
        let generation = self.state().generation(block);
        if generation > 0 {
            self.compare(block, generation).await?;
            self.progress.compared.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Removes the objects; images are their maker's.
    pub async fn clean_up(&self) -> Result<()> {
        let Target::Objects(pool) = &self.target else { return Ok(()) };
        let pending: Vec<_> = (0..self.shape.parts)
            .map(|n| pool.submit_write(&self.part(n), WriteOp::new().remove()))
            .collect();
        for p in pending {
            match p.await {
                Err(e) if !e.is_not_found() => return Err(e.into()),
                _ => {}
            }
        }
        Ok(())
    }

    /// Closes the images.
    pub async fn close(&self) -> Result<()> {
        if let Target::Images(images) = &self.target {
            for image in images {
                image.close().await?;
            }
        }
        Ok(())
    }
}
