//! How much one request may have the OSD do: bytes read, written, checked and answered, over all of its operations.
//!
//! A message is small and what it asks for is not: 65,535 operations may each read an object whole. The OSD's core runs a request to
//! its end, heartbeats and other clients waiting meanwhile, so the sum is bounded, whatever the operations are. A request that
//! goes beyond is refused whole with E2BIG.
//!
//! What the operations answer stays in memory until the last of them has run, and longer where the client
//! reads slowly. So answers have a smaller bound of their own: one of the largest size, and what is small
//! beside it.

use types::Errno;

use super::ExecStop;
use crate::OsdConfig;

/// Bytes that any request may touch; Ceph has no such bound.
const LEAST_BYTES: u64 = 64 << 20;
/// Bytes that the operations of one request may answer together: the largest object, and room for more beside
/// it. Clients of Ceph read parts of one object that do not overlap, and pages of some MiB.
const ANSWERS: u64 = 144 << 20;
const BESIDE_AN_OBJECT: u64 = 16 << 20;
/// What an operation costs however little it does, in bytes.
pub(crate) const OPERATION: u64 = 16 << 10;
/// The same for what a class method does to its object, each time.
pub(super) const METHOD_STEP: u64 = 4 << 10;
/// What an entry of a list costs beside its bytes: a key, an extent, a checksum.
pub(super) const ENTRY: u64 = 64;

/// What a key that comes with a request costs in memory, about.
pub(super) const KEY: u64 = 256;

/// What is left of a request's bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Work {
    left: u64,
    answers_left: u64,
}

impl Work {
    /// An object of the largest size can be read and written again.
    pub fn new(config: &OsdConfig) -> Self {
        let largest = config.max_object_size.saturating_add(BESIDE_AN_OBJECT);
        Self { left: bytes(config), answers_left: ANSWERS.max(largest) }
    }

    pub fn left(self) -> u64 {
        self.left
    }

    /// What was taken.
    pub fn done(self, config: &OsdConfig) -> u64 {
        bytes(config).saturating_sub(self.left)
    }

    /// Takes what is about to be done.
    pub fn spend(&mut self, bytes: u64) -> Result<(), ExecStop> {
        self.left = self.left.checked_sub(bytes).ok_or(ExecStop::Refused(Errno::E2BIG))?;
        Ok(())
    }

    /// Bytes that may still be answered.
    pub fn answers_left(self) -> u64 {
        self.answers_left
    }

    /// Asks before so much is read to be answered: it would be in memory before `answer` refuses it.
    pub fn may_answer(self, bytes: u64) -> Result<(), ExecStop> {
        if bytes <= self.answers_left { Ok(()) } else { Err(ExecStop::Refused(Errno::E2BIG)) }
    }

    /// Takes an operation's answer.
    pub fn answer(&mut self, bytes: usize) -> Result<(), ExecStop> {
        self.may_answer(bytes as u64)?;
        self.answers_left -= bytes as u64;
        Ok(())
    }

    /// Takes what was done, as far as there is something left.
    pub fn note(&mut self, bytes: u64) {
        self.left = self.left.saturating_sub(bytes);
    }
}

/// The bound of one request; of what it copies from other objects too.
pub(crate) fn bytes(config: &OsdConfig) -> u64 {
    LEAST_BYTES.max(config.max_object_size.saturating_mul(2)).saturating_add(OPERATION)
}
