//! The persistent write-back cache: a block device over another one and a local file.
//!
//! The log is written by one at a time (`commit`): a thread takes every operation that waits, writes their records, makes
//! them durable at once, then answers all; a write that comes alone is written by its caller, who waits for it anyway. One
//! task copies batches to the image (`copy`). All meet in `State`; no lock is held while a device works.
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

mod commit;
mod copy;

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{Notify, oneshot};
use writeback::{Log, Op, RecordRef, Segment, Source, Stats};

use crate::device::{BlockDevice, BlockError, BoxFuture, CachedImage, Piece, Range, check_range};
use crate::media::{CacheFile, MediaFile};

/// When the cache writes to the image.
#[derive(Debug, Clone, Copy)]
pub struct Timing {
    /// How long a write may wait before it goes to the image: what is written again meanwhile goes there once.
    pub linger: Duration,
    /// How long nothing must have been written until the image, which has everything by then, loses the cache's mark.
    pub idle: Duration,
}

/// Waiting operations above which writers wait.
const MAX_QUEUE: usize = 256;
/// Parts of the cache and gaps between them that one status looks at, and how many it takes from the index at once.
const MAX_STATUS_PARTS: usize = 4096;
const STATUS_PARTS_AT_ONCE: usize = 64;

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
    /// Somebody writes to the file.
    is_writing: bool,
    /// The thread waits for the one that writes.
    is_awaited: bool,
    /// The file's last write took long.
    is_slow: bool,
    /// The task lets writes gather: it need not be told of each.
    gathers: bool,
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
            is_writing: false,
            is_awaited: false,
            is_slow: false,
            gathers: false,
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

    /// Waits until an operation is durable in the file. The caller of a write that comes `alone` may write it itself.
    async fn submit(&self, op: Op, alone: bool) -> Result<(), BlockError> {
        let (start, end) = op.range();
        check_range(start, end - start, self.size())?;
        if start == end {
            return Ok(());
        }
        if alone {
            if let Some(written) = self.shared.write_at_once(&op) {
                return written;
            }
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

    /// Looks no further than the answer needs, and at a bounded number of parts: who walks through an image asks for the rest.
    async fn merged_status(&self, offset: u64, len: u64, most: usize) -> Result<Vec<Range>, BlockError> {
        check_range(offset, len, self.size())?;
        let (mut at, end) = (offset, offset + len);
        let mut out = Vec::new();
        let mut looked_at = 0;
        while at < end && looked_at < MAX_STATUS_PARTS {
            let segments = self.shared.lock().log.first_parts(at, end - at, STATUS_PARTS_AT_ONCE);
            for segment in segments {
                looked_at += 1;
                let until = match segment {
                    Segment::Clean { offset, len } => {
                        let ranges = self.shared.device.status(offset, len, most).await?;
                        at = offset;
                        for range in ranges {
                            at += range.len;
                            join(&mut out, range);
                        }
                        offset + len
                    }
                    Segment::Dirty { source: Source::Record { .. }, offset, len } => {
                        join(&mut out, Range { len, hole: false, zero: false });
                        at = offset + len;
                        at
                    }
                    Segment::Dirty { source: Source::Zero { punch }, offset, len } => {
                        join(&mut out, Range { len, hole: punch, zero: true });
                        at = offset + len;
                        at
                    }
                };
                if out.len() > most || at < until {
                    return Ok(out);
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
        Box::pin(self.submit(Op::Write { offset, data }, false))
    }

    fn write_alone(&self, offset: u64, data: Bytes) -> BoxFuture<'_, Result<(), BlockError>> {
        Box::pin(self.submit(Op::Write { offset, data }, true))
    }

    fn zero(&self, offset: u64, len: u64, punch: bool) -> BoxFuture<'_, Result<(), BlockError>> {
        Box::pin(self.submit(Op::Zero { offset, len, punch }, false))
    }

    /// What was answered is durable already; what comes later reaches the image after it.
    fn flush(&self) -> BoxFuture<'_, Result<(), BlockError>> {
        Box::pin(async move {
            let mut state = self.shared.lock();
            state.log.barrier();
            state.failed.clone().map_or(Ok(()), Err)
        })
    }

    fn status(&self, offset: u64, len: u64, most: usize) -> BoxFuture<'_, Result<Vec<Range>, BlockError>> {
        Box::pin(self.merged_status(offset, len, most))
    }

    fn close(&self) -> BoxFuture<'_, Result<(), BlockError>> {
        Box::pin(self.drain_and_close())
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Dirty parts from the file, clean ones from the image; `None` when a record's space was used again meanwhile.
    async fn load(self: &Arc<Self>, segments: &[Segment]) -> Result<Option<Vec<Piece>>, BlockError> {
        let mut out = Vec::with_capacity(segments.len());
        for segment in segments {
            match segment {
                Segment::Clean { offset, len } => out.extend(self.device.read(*offset, *len).await?),
                Segment::Dirty { source: Source::Zero { .. }, len, .. } => out.push(Piece::Zeros(*len)),
                Segment::Dirty { source: Source::Record { record, skip }, len, .. } => {
                    let Some(data) = self.record(record).await? else { return Ok(None) };
                    out.push(Piece::Data(part_of(&data, *skip as usize, *len as usize)));
                }
            }
        }
        Ok(Some(out))
    }

    /// A record's data; `None` when it is not there any more and may be so.
    async fn record(self: &Arc<Self>, record: &RecordRef) -> Result<Option<Bytes>, BlockError> {
        let (pos, len) = (record.pos, record.len);
        let bytes = match self.media.read_at_once(pos, len) {
            Ok(Some(bytes)) => Ok(bytes),
            // The disk is waited for where nobody else is held up.
            Ok(None) => {
                let shared = Arc::clone(self);
                let read = tokio::task::spawn_blocking(move || shared.media.read_at(pos, len));
                read.await.unwrap_or_else(|e| Err(std::io::Error::other(e)))
            }
            Err(e) => Err(e),
        };
        let bytes = bytes.map_err(|e| BlockError::new(5, format!("the cache's file failed: {e}")))?;
        match record.data(&bytes) {
            Some(data) => Ok(Some(data)),
            None if !self.lock().log.is_live(record.seq) => Ok(None),
            None => Err(BlockError::new(5, format!("record {} of the cache is damaged", record.seq))),
        }
    }
}

/// Adds a range to an answer; neighbours alike are one.
fn join(out: &mut Vec<Range>, range: Range) {
    match out.last_mut() {
        Some(last) if (last.hole, last.zero) == (range.hole, range.zero) => last.len += range.len,
        _ => out.push(range),
    }
}

/// A part of a record's data. A small one is copied: it must not keep the whole record in memory until a slow reader has it.
fn part_of(data: &Bytes, skip: usize, len: usize) -> Bytes {
    let part = data.slice(skip..skip + len);
    if len * 2 < data.len() { Bytes::copy_from_slice(&part) } else { part }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_part_of_a_record_does_not_keep_the_whole() {
        let whole = Bytes::from(vec![7; 1000]);
        let small = part_of(&whole, 10, 20);
        assert_eq!(small, vec![7; 20]);
        assert!(whole.is_unique(), "nothing else refers to the record");
        let large = part_of(&whole, 10, 900);
        assert_eq!(large.len(), 900);
        assert!(!whole.is_unique(), "most of it is shared instead of copied");
    }
}
