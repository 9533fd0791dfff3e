//! The persistent write-back cache: a block device over another one and a local file.
//!
//! One thread writes the log: it takes every operation that waits, writes their records, flushes once, then answers all.
//! One task copies batches to the image. Both meet in `State`; no lock is held while a device works.
//!
//! Invariants
//! 1. An operation is answered after its records are durable in the file, never before.
//! 2. After a failed write or flush of the file nothing more is accepted.
//! 3. Space of the file is written again only after the image is flushed and a superblock says so.
//! 4. While an operation is acknowledged that the image lacks, the file is claimed and the image bears the claim's mark.
//!
//! ```text
//! Clean --a write comes: claim the file--> Claimed --mark the image--> Dirty
//! Dirty --idle or closing, image has all: settle the file--> Settled --unmark the image--> Clean
//! ```

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use tokio::sync::{Notify, oneshot};
use tokio::task::JoinSet;
use writeback::{Batch, BatchPiece, BatchWork, Log, MediaWrite, Op, RecordRef, Segment, Source, Stats};

use crate::device::{BlockDevice, BlockError, BoxFuture, CachedImage, Piece, Range, SHUT_OUT, check_range};
use crate::media::{CacheFile, MediaFile};

/// When the cache writes to the image.
#[derive(Debug, Clone, Copy)]
pub struct Timing {
    /// How long a write may wait before it goes to the image: what is written again meanwhile goes there once.
    pub linger: Duration,
    /// How long nothing must have been written until the image, which has everything by then, loses the cache's mark.
    pub idle: Duration,
}

/// Data of one batch, and pieces of it under way at once.
const BATCH_BYTES: u64 = 4 << 20;
const BATCH_PIECES: usize = 16;
/// Waiting operations above which writers wait.
const MAX_QUEUE: usize = 256;
/// Failed batches after which a closing cache leaves the rest in its file.
const CLOSING_TRIES: u32 = 3;
const RETRY_PAUSE: Duration = Duration::from_secs(1);

/// See the module's documentation.
pub struct Cache {
    shared: Arc<Shared>,
    /// One permit per operation in the queue.
    queue_slots: Arc<tokio::sync::Semaphore>,
}

struct Shared {
    device: Arc<dyn CachedImage>,
    media: MediaFile,
    timing: Timing,
    state: Mutex<State>,
    /// The thread: something was queued, or space may be free.
    work: Condvar,
    /// The task: something is dirty, or must go now.
    dirty: Notify,
    /// Closing waits for the task to find the log clean.
    clean: Notify,
}

/// See the module's documentation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Clean,
    Claimed,
    Dirty,
    Settled,
}

struct State {
    log: Log,
    phase: Phase,
    /// The task found nothing to do for long enough.
    idle: bool,
    queue: VecDeque<Job>,
    /// The thread waits for space: the task must not linger.
    starved: bool,
    closing: bool,
    stopped: bool,
    failed: Option<BlockError>,
}

struct Job {
    parts: VecDeque<Op>,
    reply: oneshot::Sender<Result<(), BlockError>>,
}

impl Cache {
    /// Puts the cache of this file over `device`; what an earlier process left there is seen at once. If there is such,
    /// the image bears the mark of the file's token, else none: see [`CacheFile::dirty_records`].
    ///
    /// # Panics
    /// For an image that is read-only.
    #[must_use]
    pub fn start(file: CacheFile, device: Arc<dyn CachedImage>, timing: Timing) -> Self {
        assert!(!device.is_read_only(), "a write-back cache is for an image that can be written");
        let left = file.dirty_records();
        if left > 0 {
            tracing::info!(records = left, image = %device.identity(), "replaying the cache");
        }
        let CacheFile { media, log, .. } = file;
        let state = State {
            phase: if log.is_claimed() { Phase::Dirty } else { Phase::Clean },
            log,
            idle: false,
            queue: VecDeque::new(),
            starved: false,
            closing: false,
            stopped: false,
            failed: None,
        };
        let shared = Arc::new(Shared {
            device,
            media,
            timing,
            state: Mutex::new(state),
            work: Condvar::new(),
            dirty: Notify::new(),
            clean: Notify::new(),
        });
        let for_thread = Arc::clone(&shared);
        std::thread::spawn(move || for_thread.write_log());
        tokio::spawn(Arc::clone(&shared).copy_to_image());
        shared.dirty.notify_one();
        Self { shared, queue_slots: Arc::new(tokio::sync::Semaphore::new(MAX_QUEUE)) }
    }

    #[must_use]
    pub fn stats(&self) -> Stats {
        self.shared.lock().log.stats()
    }

    /// Queues an operation and waits until it is durable in the file.
    async fn submit(&self, op: Op) -> Result<(), BlockError> {
        let (start, end) = op.range();
        check_range(start, end - start, self.size())?;
        if start == end {
            return Ok(());
        }
        let slot =
            self.queue_slots.acquire().await.map_err(|_| BlockError::new(108, "the cache is closed"))?;
        let (reply, answer) = oneshot::channel();
        {
            let mut state = self.shared.lock();
            if let Some(error) = &state.failed {
                return Err(error.clone());
            }
            if state.closing {
                return Err(BlockError::new(108, "the cache is closed"));
            }
            state.queue.push_back(Job { parts: op.split().into(), reply });
        }
        self.shared.work.notify_one();
        let result = answer.await.map_err(|_| BlockError::new(5, "the cache's writer ended"));
        drop(slot);
        result?
    }

    async fn read_merged(&self, offset: u64, len: u64) -> Result<Vec<Piece>, BlockError> {
        check_range(offset, len, self.size())?;
        loop {
            let segments = self.shared.lock().log.read(offset, len);
            if let Some(pieces) = self.shared.load(&segments).await? {
                return Ok(pieces);
            }
        }
    }

    async fn merged_status(&self, offset: u64, len: u64) -> Result<Vec<Range>, BlockError> {
        check_range(offset, len, self.size())?;
        let segments = self.shared.lock().log.read(offset, len);
        let mut out = Vec::new();
        for segment in segments {
            match segment {
                Segment::Clean { offset, len } => out.extend(self.shared.device.status(offset, len).await?),
                Segment::Dirty { source: Source::Record { .. }, len, .. } => {
                    out.push(Range { len, hole: false, zero: false });
                }
                Segment::Dirty { source: Source::Zero { punch }, len, .. } => {
                    out.push(Range { len, hole: punch, zero: true });
                }
            }
        }
        Ok(out)
    }

    async fn drain_and_close(&self) -> Result<(), BlockError> {
        {
            let mut state = self.shared.lock();
            state.closing = true;
        }
        self.shared.work.notify_all();
        self.shared.dirty.notify_one();
        loop {
            let clean = self.shared.clean.notified();
            {
                let state = self.shared.lock();
                if let Some(error) = &state.failed {
                    return Err(error.clone());
                }
                if state.stopped {
                    break;
                }
            }
            clean.await;
        }
        self.shared.device.close().await
    }
}

impl Drop for Cache {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        state.closing = true;
        drop(state);
        self.shared.work.notify_all();
        self.shared.dirty.notify_one();
    }
}

impl BlockDevice for Cache {
    fn identity(&self) -> String {
        self.shared.device.identity()
    }

    fn size(&self) -> u64 {
        self.shared.device.size()
    }

    fn is_read_only(&self) -> bool {
        false
    }

    fn preferred_block(&self) -> u32 {
        self.shared.device.preferred_block()
    }

    fn read(&self, offset: u64, len: u64) -> BoxFuture<'_, Result<Vec<Piece>, BlockError>> {
        Box::pin(self.read_merged(offset, len))
    }

    fn write(&self, offset: u64, data: Bytes) -> BoxFuture<'_, Result<(), BlockError>> {
        Box::pin(self.submit(Op::Write { offset, data }))
    }

    fn zero(&self, offset: u64, len: u64, punch: bool) -> BoxFuture<'_, Result<(), BlockError>> {
        Box::pin(self.submit(Op::Zero { offset, len, punch }))
    }

    /// What was answered is durable already; what comes later reaches the image after it.
    fn flush(&self) -> BoxFuture<'_, Result<(), BlockError>> {
        Box::pin(async move {
            let mut state = self.shared.lock();
            state.log.barrier();
            state.failed.clone().map_or(Ok(()), Err)
        })
    }

    fn status(&self, offset: u64, len: u64) -> BoxFuture<'_, Result<Vec<Range>, BlockError>> {
        Box::pin(self.merged_status(offset, len))
    }

    fn close(&self) -> BoxFuture<'_, Result<(), BlockError>> {
        Box::pin(self.drain_and_close())
    }
}

/// What the thread does in one turn.
#[derive(Default)]
struct Turn {
    writes: Vec<MediaWrite>,
    seq: Option<u64>,
    superblock: bool,
    /// What holds once the superblock is durable.
    phase: Option<Phase>,
    done: Vec<oneshot::Sender<Result<(), BlockError>>>,
}

/// What the task does next.
enum Step {
    Mark(String),
    Unmark,
    Copy(Batch),
    Wait,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The thread: group commit of what waits.
    fn write_log(&self) {
        while let Some(turn) = self.next_turn() {
            let result =
                turn.writes.iter().try_for_each(|w| self.media.write(w)).and_then(|()| self.media.sync());
            let mut state = self.lock();
            if let Err(e) = result {
                tracing::error!(error = %e, "the cache's file failed");
                let error = BlockError::new(5, format!("the cache's file failed: {e}"));
                state.failed = Some(error.clone());
                turn.done.into_iter().for_each(|r| drop(r.send(Err(error.clone()))));
                break;
            }
            if turn.superblock {
                state.log.superblock_durable();
            }
            if let Some(seq) = turn.seq {
                state.log.committed(seq);
            }
            state.phase = turn.phase.unwrap_or(state.phase);
            drop(state);
            turn.done.into_iter().for_each(|r| drop(r.send(Ok(()))));
            self.dirty.notify_one();
        }
        let mut state = self.lock();
        state.stopped = true;
        if let Some(error) = state.failed.clone() {
            state.queue.drain(..).for_each(|j| drop(j.reply.send(Err(error.clone()))));
        }
        drop(state);
        self.dirty.notify_one();
        self.clean.notify_waiters();
        self.clean.notify_one();
    }

    /// Waits for work; `None` when closed and everything is in the image, or after a failure.
    fn next_turn(&self) -> Option<Turn> {
        let mut state = self.lock();
        loop {
            let is_drained = state.closing && state.queue.is_empty() && state.phase == Phase::Clean;
            if is_drained || state.failed.is_some() {
                return None;
            }
            let turn = state.turn();
            if !turn.writes.is_empty() {
                return Some(turn);
            }
            if state.starved || state.closing {
                self.dirty.notify_one();
            }
            state = self.work.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Dirty parts from the file, clean ones from the image; `None` when a record's space was used again meanwhile.
    async fn load(&self, segments: &[Segment]) -> Result<Option<Vec<Piece>>, BlockError> {
        let mut out = Vec::with_capacity(segments.len());
        for segment in segments {
            match segment {
                Segment::Clean { offset, len } => out.extend(self.device.read(*offset, *len).await?),
                Segment::Dirty { source: Source::Zero { .. }, len, .. } => out.push(Piece::Zeros(*len)),
                Segment::Dirty { source: Source::Record { record, skip }, len, .. } => {
                    let Some(data) = self.record(record)? else { return Ok(None) };
                    out.push(Piece::Data(data.slice(*skip as usize..(*skip + *len) as usize)));
                }
            }
        }
        Ok(Some(out))
    }

    /// A record's data; `None` when it is not there any more and may be so.
    fn record(&self, record: &RecordRef) -> Result<Option<Bytes>, BlockError> {
        let bytes = self.media.read_at(record.pos, record.len);
        let bytes = bytes.map_err(|e| BlockError::new(5, format!("the cache's file failed: {e}")))?;
        match record.data(&bytes) {
            Some(data) => Ok(Some(data)),
            None if !self.lock().log.is_live(record.seq) => Ok(None),
            None => Err(BlockError::new(5, format!("record {} of the cache is damaged", record.seq))),
        }
    }

    /// The task: marks the image, copies batches to it, in order, and takes the mark off again.
    async fn copy_to_image(self: Arc<Self>) {
        let mut failures = 0;
        loop {
            let step = self.next_step();
            let done = match &step {
                Step::Mark(token) => self.device.mark(token).await,
                Step::Unmark => self.device.unmark().await,
                Step::Copy(batch) => self.copy(&batch.pieces).await,
                Step::Wait => {
                    let is_over = self.is_over();
                    // The thread frees space, settles, or ends when closing.
                    self.work.notify_all();
                    if is_over {
                        return;
                    }
                    self.wait_for_more().await;
                    continue;
                }
            };
            match done {
                Ok(()) => {
                    failures = 0;
                    self.lock().finish(&step);
                    self.work.notify_all();
                }
                Err(e) => {
                    failures += 1;
                    if self.gives_up(failures, &e) {
                        return;
                    }
                    tracing::warn!(error = %e, "cannot write back to the image; trying again");
                    tokio::time::sleep(RETRY_PAUSE).await;
                }
            }
        }
    }

    fn next_step(&self) -> Step {
        let state = self.lock();
        match state.phase {
            _ if state.failed.is_some() => Step::Wait,
            Phase::Claimed => Step::Mark(state.log.token()),
            Phase::Settled => Step::Unmark,
            Phase::Clean => Step::Wait,
            Phase::Dirty => state.log.next_batch(BATCH_BYTES).map_or(Step::Wait, Step::Copy),
        }
    }

    fn is_over(&self) -> bool {
        let state = self.lock();
        state.stopped || state.failed.is_some()
    }

    /// Another client has the image: nothing may be acknowledged any more that would never reach it. And a closing cache
    /// does not wait for an image that takes nothing. The file keeps what is left for the next open.
    fn gives_up(&self, failures: u32, error: &BlockError) -> bool {
        let mut state = self.lock();
        let is_shut_out = error.errno == SHUT_OUT;
        let gives_up = is_shut_out || state.closing && failures >= CLOSING_TRIES;
        if gives_up {
            if is_shut_out {
                tracing::error!(%error, "the image was taken by another client: the cache takes no more writes");
            }
            state.failed = Some(error.clone());
            drop(state);
            self.work.notify_all();
        }
        gives_up
    }

    /// Waits until there is something to do, and lets writes gather, unless space or closing presses.
    async fn wait_for_more(&self) {
        let is_settling = {
            let state = self.lock();
            state.phase == Phase::Dirty && !state.idle
        };
        if !is_settling {
            self.dirty.notified().await;
        } else if tokio::time::timeout(self.timing.idle, self.dirty.notified()).await.is_err() {
            let mut state = self.lock();
            state.idle = state.log.is_clean() && state.queue.is_empty();
            return;
        }
        let deadline = tokio::time::Instant::now() + self.timing.linger;
        loop {
            if self.lock().has_hurry() {
                return;
            }
            if tokio::time::timeout_at(deadline, self.dirty.notified()).await.is_err() {
                return;
            }
        }
    }

    async fn copy(self: &Arc<Self>, pieces: &[BatchPiece]) -> Result<(), BlockError> {
        let mut running = JoinSet::new();
        for piece in pieces {
            if running.len() >= BATCH_PIECES {
                finish(&mut running).await?;
            }
            running.spawn(Arc::clone(self).copy_piece(piece.clone()));
        }
        while !running.is_empty() {
            finish(&mut running).await?;
        }
        self.device.flush().await
    }

    async fn copy_piece(self: Arc<Self>, piece: BatchPiece) -> Result<(), BlockError> {
        // The image may have shrunk since.
        let len = piece.len.min(self.device.size().saturating_sub(piece.offset));
        if len == 0 {
            return Ok(());
        }
        match piece.work {
            BatchWork::Zero { punch } => self.device.zero(piece.offset, len, punch).await,
            BatchWork::Write(parts) => {
                let mut data = BytesMut::with_capacity(piece.len as usize);
                for (source, len) in parts {
                    let Source::Record { record, skip } = source else { continue };
                    let bytes = self.record(&record)?;
                    let bytes = bytes.ok_or_else(|| BlockError::new(5, "a dirty record was overwritten"))?;
                    data.extend_from_slice(&bytes[skip as usize..(skip + len) as usize]);
                }
                data.truncate(len as usize);
                self.device.write(piece.offset, data.freeze()).await
            }
        }
    }
}

async fn finish(running: &mut JoinSet<Result<(), BlockError>>) -> Result<(), BlockError> {
    match running.join_next().await {
        Some(Ok(result)) => result,
        Some(Err(e)) => Err(BlockError::new(5, e.to_string())),
        None => Ok(()),
    }
}

impl State {
    /// What the thread writes next; nothing when it has to wait.
    fn turn(&mut self) -> Turn {
        let mut turn = Turn::default();
        match self.phase {
            Phase::Clean if !self.queue.is_empty() => {
                // The halves have their fixed bits at different places.
                let (high, low) = uuid::Uuid::new_v4().as_u64_pair();
                turn.writes.push(self.log.claim(high ^ low));
                (turn.superblock, turn.phase) = (true, Some(Phase::Claimed));
            }
            Phase::Dirty => {
                self.fill(&mut turn);
                let stats = self.log.stats();
                let is_over = self.queue.is_empty() && turn.seq.is_none() && self.log.is_clean();
                if is_over && (self.idle || self.closing) {
                    turn.writes.push(self.log.settle());
                    (turn.superblock, turn.phase) = (true, Some(Phase::Settled));
                } else if self.log.has_space_to_free() && (self.starved || stats.used > stats.area / 2) {
                    turn.writes.push(self.log.superblock_write());
                    turn.superblock = true;
                }
            }
            Phase::Clean | Phase::Claimed | Phase::Settled => {}
        }
        turn
    }

    /// Appends what waits, as far as there is space.
    fn fill(&mut self, turn: &mut Turn) {
        self.starved = false;
        while let Some(job) = self.queue.front_mut() {
            self.idle = false;
            while let Some(op) = job.parts.front() {
                let Ok(appended) = self.log.append(op) else {
                    self.starved = true;
                    return;
                };
                job.parts.pop_front();
                turn.writes.extend(appended.writes);
                turn.seq = Some(appended.seq);
            }
            if let Some(job) = self.queue.pop_front() {
                turn.done.push(job.reply);
            }
        }
    }

    /// The task's step succeeded.
    fn finish(&mut self, step: &Step) {
        match step {
            Step::Mark(_) => self.phase = Phase::Dirty,
            Step::Unmark => self.phase = Phase::Clean,
            Step::Copy(batch) => {
                self.log.retire(batch);
                self.starved = false;
            }
            Step::Wait => {}
        }
        self.idle = false;
    }

    /// Whether the task must not let writes gather.
    fn has_hurry(&self) -> bool {
        let stats = self.log.stats();
        self.starved
            || self.closing
            || self.failed.is_some()
            || self.phase != Phase::Dirty
            || stats.used > stats.area / 4
    }
}
