//! The task that copies to the image what only the file has, and keeps the image's mark.

use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use tokio::task::JoinSet;
use writeback::{Batch, BatchPiece, BatchWork, Source};

use super::{Phase, Shared, State};
use crate::device::{BlockError, SHUT_OUT};

/// Data of one batch, and pieces of it under way at once.
const BATCH_BYTES: u64 = 4 << 20;
const BATCH_PIECES: usize = 16;
/// Failed batches after which a closing cache leaves the rest in its file.
const CLOSING_TRIES: u32 = 3;
const RETRY_PAUSE: Duration = Duration::from_secs(1);

/// What the task does next.
enum Step {
    Mark(String),
    Unmark,
    Copy(Batch),
    Wait,
}

impl Shared {
    /// The task: marks the image, copies batches to it, in order, and takes the mark off again.
    pub(super) async fn copy_to_image(self: Arc<Self>) {
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
                    if let Step::Mark(_) = step {
                        // What waited for the mark is as new as what comes now.
                        self.gather().await;
                    }
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

    /// Waits until there is something to do, and lets writes gather.
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
        self.gather().await;
    }

    /// Lets writes gather, unless space or closing presses.
    async fn gather(&self) {
        let deadline = tokio::time::Instant::now() + self.timing.linger;
        loop {
            {
                let mut state = self.lock();
                state.gathers = !state.has_hurry();
                if !state.gathers {
                    return;
                }
            }
            if tokio::time::timeout_at(deadline, self.dirty.notified()).await.is_err() {
                self.lock().gathers = false;
                return;
            }
        }
    }

    async fn copy(self: &Arc<Self>, pieces: &[BatchPiece]) -> Result<(), BlockError> {
        let mut running = JoinSet::new();
        // None is cut off half way by another's failure.
        let mut result = Ok(());
        for piece in pieces {
            if running.len() >= BATCH_PIECES {
                result = result.and(finish(&mut running).await);
            }
            if result.is_err() {
                break;
            }
            running.spawn(Arc::clone(self).copy_piece(piece.clone()));
        }
        while !running.is_empty() {
            result = result.and(finish(&mut running).await);
        }
        result?;
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
                    let bytes = self.record(&record).await?;
                    let bytes = bytes.ok_or_else(|| BlockError::new(5, "a dirty record was overwritten"))?;
                    let part = bytes.get(skip as usize..(skip + len) as usize);
                    let part =
                        part.ok_or_else(|| BlockError::new(5, "a dirty record is shorter than it was"))?;
                    data.extend_from_slice(part);
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
    pub(super) fn has_hurry(&self) -> bool {
        let stats = self.log.stats();
        self.starved
            || self.closing
            || self.failed.is_some()
            || self.phase != Phase::Dirty
            || stats.used > stats.area / 4
    }
}
