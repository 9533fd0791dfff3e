//! Requests that only read, in parts: a request whose slice of work is over stops between two operations, or
//! in the middle of a long read, and goes on in a later slice. Others have their turn meanwhile. So does a
//! request whose data the device has to read: whoever runs it has that done, and it goes on with the data.
//!
//! Invariant: a request that goes on sees the very object that it began with. Where the object has changed,
//! it begins anew, so that its answer is that of one moment. It then runs to its end, so that a client that
//! writes the object in every slice does not keep others from reading it.

use bytes::Bytes;
use messages::osd::OpResult;
use store::ReadPlan;
use types::{Eversion, HObject};

use super::ExecStop;
use super::scratch::Scratch;
use super::work::{OPERATION, Work};
use crate::OsdConfig;
use crate::info::PgSums;

/// Less work than that is not put off: what clients usually read in one request is an object of an image.
pub(crate) const LEAST_SLICE: u64 = 4 << 20;

/// What a request has come to.
#[derive(Debug, Clone, PartialEq)]
pub struct Begun {
    object: HObject,
    version: Eversion,
    /// The operation that is next, and what those before it say.
    next: usize,
    results: Vec<OpResult>,
    last: i32,
    work: Work,
    delta: PgSums,
    inner_ops: u32,
    /// Of the next operation, when it is a read that has begun.
    got: Vec<Bytes>,
    /// The piece that the device has to read before it goes on.
    wanted: Option<Box<ReadPlan>>,
    fetched: Option<Fetched>,
}

/// Bytes of pieces together.
pub(super) fn bytes_of(pieces: &[Bytes]) -> u64 {
    pieces.iter().map(|piece| piece.len() as u64).sum()
}

/// A piece of an operation's data that the device was asked for.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Fetched {
    pub data: Bytes,
    /// Bytes that were asked for; the object may have ended before.
    pub asked: u64,
}

/// Where operations begin or go on.
#[derive(Debug, Default)]
pub(super) struct Start {
    pub next: usize,
    pub last: i32,
}

impl Start {
    pub fn is_first(&self) -> bool {
        self.next == 0
    }
}

/// A slice of work, and what was left of the request's bound when it began.
#[derive(Debug, Clone, Copy)]
pub(super) struct Slice {
    bytes: u64,
    from: u64,
    first: usize,
}

impl Begun {
    /// Bytes that it holds.
    pub fn bytes(&self) -> u64 {
        let answers: usize = self.results.iter().map(|r| r.output_len()).sum();
        answers as u64 + bytes_of(&self.got)
    }

    /// What the device has to read before the request can go on; asked once.
    pub fn take_wanted(&mut self) -> Option<Box<ReadPlan>> {
        let plan = self.wanted.take()?;
        self.fetched = Some(Fetched { data: Bytes::new(), asked: plan.asked() });
        Some(plan)
    }

    /// What its operations have done so far, in all slices.
    pub fn work_done(&self, config: &OsdConfig) -> u64 {
        self.work.done(config)
    }

    /// Whether it waits for the device and for no slice.
    pub fn is_on_device(&self) -> bool {
        self.wanted.is_some()
    }

    /// The device has read it.
    pub fn put_fetched(&mut self, data: Bytes) {
        if let Some(fetched) = &mut self.fetched {
            fetched.data = data;
        }
    }

    fn fits(&self, s: &Scratch<'_>, ops: usize) -> bool {
        self.object == s.key.object && self.version == s.info().version && self.results.len() == ops
    }
}

impl Scratch<'_> {
    /// Goes on where the request paused, if it can, and lets it pause when `slice` bytes of work are done. A
    /// request that cannot go on does not pause again.
    pub(super) fn begin(
        &mut self,
        begun: Option<Box<Begun>>,
        slice: Option<u64>,
        results: &mut Vec<OpResult>,
    ) -> Start {
        let mut start = Start::default();
        let mut slice = slice;
        match begun {
            Some(b) if b.fits(self, results.len()) => {
                start = Start { next: b.next, last: b.last };
                *self.work = b.work;
                (*results, self.delta, self.got, self.fetched) = (b.results, b.delta, b.got, b.fetched);
                self.inner_ops = b.inner_ops;
            }
            Some(_) => slice = None,
            None => {}
        }
        self.slice = slice.map(|bytes| Slice { bytes, from: self.work.left(), first: start.next });
        start
    }

    /// What is left of the slice; `None` when the request must come to its end: what it has asked for besides
    /// answers would be asked for again.
    fn slice_left(&self) -> Option<u64> {
        let slice = self.slice.filter(|_| !self.changed() && self.effects.is_empty() && !self.broken)?;
        let ops = (self.subop as usize).saturating_sub(slice.first) as u64;
        let done = slice.from.saturating_sub(self.work.left()).saturating_add(ops * OPERATION);
        Some(slice.bytes.saturating_sub(done))
    }

    /// Whether the request should pause before the operation that is next.
    pub(super) fn is_slice_over(&self) -> bool {
        self.slice_left() == Some(0)
    }

    /// Whether the request may go on later, when the device has read something.
    pub(super) fn may_wait(&self) -> bool {
        self.slice_left().is_some()
    }

    /// How much of a read of `length` bytes to do now, of which some may have been done before.
    pub(super) fn piece(&self, length: u64) -> u64 {
        let left = length.saturating_sub(bytes_of(&self.got));
        self.slice_left().map_or(left, |slice| left.min(slice.max(LEAST_SLICE)))
    }

    /// The request goes on from here later. `work` is what was left of its bound before the next operation
    /// began.
    pub(super) fn pause(&mut self, start: &Start, work: Work, results: Vec<OpResult>) -> ExecStop {
        ExecStop::Paused(Box::new(Begun {
            object: self.key.object.clone(),
            version: self.info().version,
            next: start.next,
            results,
            last: start.last,
            work,
            delta: self.delta,
            inner_ops: self.inner_ops,
            got: std::mem::take(&mut self.got),
            wanted: self.wanted.take(),
            fetched: None,
        }))
    }
}
