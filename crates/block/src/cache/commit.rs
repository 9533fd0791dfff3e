//! Who writes the cache's file: the thread for all that wait, or the caller of a write that comes alone.

use std::sync::PoisonError;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::oneshot;
use writeback::{MediaWrite, Op};

use super::{Phase, Shared, State};
use crate::device::BlockError;

/// Longer data goes to the thread.
const MAX_AT_ONCE: usize = 64 << 10;
/// After a write of the file that took longer the thread writes, and callers keep their threads for others.
const QUICK: Duration = Duration::from_millis(10);

/// Callers that write to a cache's file, whichever cache's. Never all of the runtime's threads do: a disk that stalls would
/// hold up every image and connection of the process.
static AT_ONCE: Callers = Callers(AtomicUsize::new(0));

struct Callers(AtomicUsize);

impl Callers {
    /// Nothing where the runtime, of so many threads, would have none left.
    fn enter(&self, threads: usize) -> Option<Caller<'_>> {
        let caller = Caller(&self.0);
        let others = self.0.fetch_add(1, Ordering::AcqRel);
        (others + 1 < threads).then_some(caller)
    }
}

/// Counts a caller while it writes.
struct Caller<'a>(&'a AtomicUsize);

impl Drop for Caller<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// What is written at once.
#[derive(Default)]
struct Turn {
    writes: Vec<MediaWrite>,
    seq: Option<u64>,
    superblock: bool,
    /// What holds once the superblock is durable.
    phase: Option<Phase>,
    done: Vec<oneshot::Sender<Result<(), BlockError>>>,
}

impl Shared {
    /// The thread: group commit of what waits.
    pub(super) fn write_log(&self) {
        while let Some(turn) = self.next_turn() {
            if self.carry_out(turn).is_err() {
                break;
            }
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
            state.is_awaited = state.is_writing;
            if !state.is_writing {
                let turn = state.turn();
                if !turn.writes.is_empty() {
                    state.is_writing = true;
                    return Some(turn);
                }
                if state.starved || state.closing {
                    self.dirty.notify_one();
                }
            }
            state = self.work.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Writes a record on the caller's thread, which saves handing it over and back; nothing where that has to wait for
    /// others, or would hold the thread up for long.
    pub(super) fn write_at_once(&self, op: &Op) -> Option<Result<(), BlockError>> {
        let threads = tokio::runtime::Handle::try_current().map_or(0, |r| r.metrics().num_workers());
        let _caller = AT_ONCE.enter(threads)?;
        let turn = self.lock().single(op)?;
        Some(self.carry_out(turn))
    }

    /// Makes a turn durable, says what follows from it, and answers. The caller has set `is_writing`.
    fn carry_out(&self, turn: Turn) -> Result<(), BlockError> {
        let begin = Instant::now();
        let result = self.media.write_durably(&turn.writes);
        let mut state = self.lock();
        state.is_writing = false;
        state.is_slow = begin.elapsed() > QUICK;
        if let Err(e) = result {
            tracing::error!(error = %e, "the cache's file failed");
            let error = BlockError::new(5, format!("the cache's file failed: {e}"));
            state.failed.get_or_insert(error);
        }
        // Perhaps the image failed meanwhile: what is in the file will not get there.
        let failed = state.failed.clone();
        if std::mem::take(&mut state.is_awaited) || failed.is_some() {
            self.work.notify_all();
        }
        if let Some(error) = failed {
            drop(state);
            turn.done.into_iter().for_each(|r| drop(r.send(Err(error.clone()))));
            self.dirty.notify_one();
            return Err(error);
        }
        if turn.superblock {
            state.log.superblock_durable();
        }
        if let Some(seq) = turn.seq {
            state.log.committed(seq);
        }
        state.phase = turn.phase.unwrap_or(state.phase);
        let tells = !state.gathers || state.has_hurry();
        drop(state);
        turn.done.into_iter().for_each(|r| drop(r.send(Ok(()))));
        if tells {
            self.dirty.notify_one();
        }
        Ok(())
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

    /// The turn of one operation that nothing stands before.
    fn single(&mut self, op: &Op) -> Option<Turn> {
        let is_free = !self.is_writing && !self.is_slow && self.queue.is_empty();
        let is_open = self.phase == Phase::Dirty && !self.closing && self.failed.is_none();
        if !is_free || !is_open || op.data_len() > MAX_AT_ONCE {
            return None;
        }
        let appended = self.log.append(op).ok()?;
        (self.idle, self.is_writing) = (false, true);
        Some(Turn { writes: appended.writes, seq: Some(appended.seq), ..Turn::default() })
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
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::cache::{Cache, Job, Timing};
    use crate::media::CacheFile;
    use crate::stub::Stub;

    #[test]
    fn one_thread_is_always_left() {
        for threads in 0..4 {
            let callers = Callers(AtomicUsize::new(0));
            for _ in 0..2 {
                let inside: Vec<_> = std::iter::from_fn(|| callers.enter(threads)).take(10).collect();
                assert_eq!(inside.len(), threads.saturating_sub(1));
            }
        }
    }

    /// A cache whose file is claimed and whose image bears the mark, so that it takes writes.
    fn dirty(folder: &std::path::Path) -> Cache {
        let file = CacheFile::open(&folder.join("cache"), "", 0).expect("opens");
        let timing = Timing { linger: Duration::from_secs(60), idle: Duration::from_secs(60) };
        let cache = Cache::start(file, Arc::new(Stub::stuck()), timing);
        let mut state = cache.shared.lock();
        let claim = state.log.claim(7);
        cache.shared.media.write_durably(&[claim]).expect("writes");
        state.log.superblock_durable();
        state.phase = Phase::Dirty;
        drop(state);
        cache
    }

    fn write(len: usize) -> Op {
        Op::Write { offset: 0, data: vec![1; len].into() }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_write_that_nothing_stands_before_is_written_by_its_caller() {
        let folder = tempfile::tempdir().expect("folder");
        let cache = dirty(folder.path());
        for round in 1..=2 {
            let (cache, shared) = (&cache, Arc::clone(&cache.shared));
            let written = tokio::spawn(async move { shared.write_at_once(&write(MAX_AT_ONCE)) }).await;
            assert_eq!(written.expect("ran"), Some(Ok(())));
            assert_eq!(cache.shared.lock().log.stats().dirty_records, round);
        }
    }

    #[tokio::test]
    async fn a_runtime_of_one_thread_leaves_writing_to_the_cache_s_own() {
        let folder = tempfile::tempdir().expect("folder");
        let cache = dirty(folder.path());
        assert_eq!(cache.shared.write_at_once(&write(1)), None);
        assert_eq!(cache.shared.lock().log.stats().dirty_records, 0);
    }

    #[tokio::test]
    async fn a_write_with_something_before_it_waits_for_its_turn() {
        type Change = fn(&mut State);
        let folder = tempfile::tempdir().expect("folder");
        let cache = dirty(folder.path());
        let mut state = cache.shared.lock();
        assert!(state.single(&write(MAX_AT_ONCE + 1)).is_none(), "too long");
        let cases: [(&str, Change, Change); 5] = [
            ("another is written", |s| s.is_writing = true, |s| s.is_writing = false),
            ("the disk is slow", |s| s.is_slow = true, |s| s.is_slow = false),
            ("closing", |s| s.closing = true, |s| s.closing = false),
            ("failed", |s| s.failed = Some(BlockError::new(5, "broken")), |s| s.failed = None),
            ("not marked yet", |s| s.phase = Phase::Claimed, |s| s.phase = Phase::Dirty),
        ];
        for (name, begin, end) in cases {
            begin(&mut state);
            assert!(state.single(&write(1)).is_none(), "{name}");
            end(&mut state);
        }
        let (reply, _) = oneshot::channel();
        state.queue.push_back(Job { parts: [write(1)].into(), reply });
        assert!(state.single(&write(1)).is_none(), "others wait");
        state.queue.clear();
        assert!(state.single(&write(1)).is_some());
    }

    #[tokio::test]
    async fn what_was_being_written_when_the_image_failed_is_not_acknowledged() {
        let folder = tempfile::tempdir().expect("folder");
        let file = CacheFile::open(&folder.path().join("cache"), "", 0).expect("opens");
        let timing = Timing { linger: Duration::from_secs(60), idle: Duration::from_secs(60) };
        let cache = Cache::start(file, Arc::new(Stub::stuck()), timing);
        let (reply, answer) = oneshot::channel();
        let turn = Turn { done: vec![reply], ..Turn::default() };
        let lost = BlockError::new(crate::SHUT_OUT, "another client has it");
        cache.shared.lock().failed = Some(lost.clone());
        assert_eq!(cache.shared.carry_out(turn), Err(lost.clone()));
        assert_eq!(answer.await, Ok(Err(lost)));
    }
}
