//! The device under an OSD's jobs. A job's calls are taken down when it begins and reach the device one after the other, so that
//! those of a commit and of a checkpoint lie between each other; a power loss comes between any two of them.

use std::collections::VecDeque;
use std::sync::Mutex;

use bytes::Bytes;
use store::{Checkpoint, CheckpointDone, Commit, CommitDone, Device, DeviceError, StoreError};
use testkit::{Rng, SimDevice};

use crate::mutant::Mutant;
use crate::queue::Time;

/// Steps that a job's calls come in, at most: each is an event.
const STEPS: usize = 4;
/// Each kind of job has a handle of its own: a failed write-back is told to every handle, once.
const COMMITS: usize = 0;
const CHECKPOINTS: usize = 1;
/// What discarded ranges read as.
const JUNK: u8 = 0xd5;

/// A call that changes the device.
#[derive(Debug)]
enum Call {
    Write(u64, Bytes),
    /// Durable by itself; says nothing of others.
    Durable(u64, Bytes),
    Flush,
    Discard(u64, u64),
}

/// What a job brings to the store when all its calls went through.
#[derive(Debug)]
pub enum Done {
    Commit(Result<CommitDone, DeviceError>),
    Checkpoint(Result<CheckpointDone, StoreError>),
}

/// A job on its way to the device.
#[derive(Debug)]
pub struct Job {
    /// Tells events that mean it from those that were planned before the device sped up.
    pub number: u64,
    /// Time from one step to the next.
    pub pace: Time,
    calls: VecDeque<Call>,
    per_step: usize,
    handle: usize,
    /// A call failed; the OSD hears of it a step later, when what others had under way may be through.
    failed: Option<DeviceError>,
    done: Done,
}

impl Job {
    pub fn commit(number: u64, job: Commit, device: &SimDevice, mutant: Option<Mutant>) -> Self {
        let recorder = Recorder { inner: device, mutant, calls: Mutex::default() };
        let done = Done::Commit(job.execute(&recorder));
        Self::new(number, recorder, COMMITS, done)
    }

    pub fn checkpoint(number: u64, job: Checkpoint, device: &SimDevice, mutant: Option<Mutant>) -> Self {
        let recorder = Recorder { inner: device, mutant, calls: Mutex::default() };
        let done = Done::Checkpoint(job.execute(&recorder));
        // The bug: both kinds of job flush through one handle.
        let handle = if mutant == Some(Mutant::OneHandle) { COMMITS } else { CHECKPOINTS };
        Self::new(number, recorder, handle, done)
    }

    fn new(number: u64, recorder: Recorder<'_>, handle: usize, done: Done) -> Self {
        let calls = recorder.calls.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
        let per_step = calls.len().div_ceil(STEPS).max(1);
        Self { number, pace: 0, calls: calls.into(), per_step, handle, failed: None, done }
    }

    /// Spreads the job over so much time.
    #[must_use]
    pub fn lasting(self, time: Time) -> Self {
        let steps = self.calls.len().div_ceil(self.per_step).max(1) as Time;
        Self { pace: (time / steps).max(1), ..self }
    }

    /// The next step; what it came to when it was the last, or failed.
    pub fn step(&mut self, device: &SimDevice) -> Option<Result<(), DeviceError>> {
        if let Some(e) = self.failed.take() {
            return Some(Err(e));
        }
        for _ in 0..self.per_step {
            let Some(call) = self.calls.pop_front() else { break };
            self.failed = call.reach(device, self.handle).err();
            if self.failed.is_some() {
                return None;
            }
        }
        self.calls.is_empty().then_some(Ok(()))
    }

    /// The job's result.
    pub fn finish(self, reached: Result<(), DeviceError>) -> Done {
        match (reached, self.done) {
            (Ok(()), done) => done,
            (Err(e), Done::Commit(_)) => Done::Commit(Err(e)),
            (Err(e), Done::Checkpoint(_)) => Done::Checkpoint(Err(e.into())),
        }
    }

    /// One call before the power goes; `last`: it goes in the middle of it. Whether there was one.
    fn dying_call(&mut self, device: &SimDevice, last: bool) -> bool {
        let Some(call) = self.calls.pop_front() else { return false };
        let call = match call {
            // Nobody heard that it is durable: it may be torn.
            Call::Durable(offset, data) if last => Call::Write(offset, data),
            Call::Flush if last => return true,
            other => other,
        };
        // What fails now fails unheard.
        let _ = call.reach(device, self.handle);
        true
    }
}

/// The power goes: each job still makes so many calls, those of both in any order.
pub fn die(device: &SimDevice, jobs: [(Option<Job>, u64); 2], rng: &mut Rng) {
    let mut jobs: Vec<(Job, u64)> = jobs.into_iter().filter_map(|(job, n)| Some((job?, n))).collect();
    jobs.retain(|(_, calls)| *calls > 0);
    while !jobs.is_empty() {
        let at = rng.below(jobs.len() as u64) as usize;
        let (job, calls) = &mut jobs[at];
        *calls -= 1;
        if !job.dying_call(device, *calls == 0) || *calls == 0 {
            jobs.swap_remove(at);
        }
    }
}

impl Call {
    fn reach(self, device: &SimDevice, handle: usize) -> Result<(), DeviceError> {
        match self {
            Self::Write(offset, data) => device.write_shared(offset, data),
            Self::Durable(offset, data) => device.write_through(offset, &data),
            Self::Flush => device.flush_through(handle),
            Self::Discard(offset, len) => device.discard_lazily(offset, len, JUNK),
        }
    }
}

/// Takes down what a job does; the job reads what it wrote.
struct Recorder<'a> {
    inner: &'a SimDevice,
    mutant: Option<Mutant>,
    calls: Mutex<Vec<Call>>,
}

impl Recorder<'_> {
    fn note(&self, call: Call) {
        self.calls.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push(call);
    }

    /// The bug: the device keeps the log's records but not large payloads.
    fn is_lost(&self, len: usize) -> bool {
        self.mutant == Some(Mutant::LosePayload) && len >= 32 << 10
    }
}

impl Device for Recorder<'_> {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), DeviceError> {
        self.inner.read_at(offset, buf)?;
        let calls = self.calls.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        for call in calls.iter() {
            let (Call::Write(at, data) | Call::Durable(at, data)) = call else { continue };
            let (start, end) = (offset.max(*at), (offset + buf.len() as u64).min(*at + data.len() as u64));
            if start < end {
                let piece = &data[(start - at) as usize..(end - at) as usize];
                buf[(start - offset) as usize..(end - offset) as usize].copy_from_slice(piece);
            }
        }
        Ok(())
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> Result<(), DeviceError> {
        self.write_vectored_at(offset, &[data])
    }

    fn write_vectored_at(&self, offset: u64, pieces: &[&[u8]]) -> Result<(), DeviceError> {
        let data = Bytes::from(pieces.concat());
        if !self.is_lost(data.len()) {
            self.note(Call::Write(offset, data));
        }
        Ok(())
    }

    fn write_durably(&self, offset: u64, pieces: &[&[u8]]) -> Result<(), DeviceError> {
        let data = Bytes::from(pieces.concat());
        match self.mutant {
            _ if self.is_lost(data.len()) => {}
            // The bug: flushes do nothing.
            Some(Mutant::LoseFlush) => self.note(Call::Write(offset, data)),
            _ => self.note(Call::Durable(offset, data)),
        }
        Ok(())
    }

    fn flush(&self) -> Result<(), DeviceError> {
        if self.mutant != Some(Mutant::LoseFlush) {
            self.note(Call::Flush);
        }
        Ok(())
    }

    fn len(&self) -> u64 {
        self.inner.len()
    }

    fn discard(&self, offset: u64, len: u64) -> Result<(), DeviceError> {
        self.note(Call::Discard(offset, len));
        Ok(())
    }
}
