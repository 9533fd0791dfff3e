//! Large frames wait for the owner: what many connections hold of frames that are not whole yet is its to bound.
//!
//! A frame's head is 32 bytes and states its length. From there on three things can be so: the frame needs no grant, it
//! waits for one (and nothing more is read, nor is room made for it), or it has one until it is whole.

use std::time::Duration;

use bytes::BytesMut;
use types::Now;

use crate::{Connection, Limits};

/// What the frame that comes in next needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Grant {
    Unneeded,
    /// So many bytes are to be granted before anything more is read.
    Wanted(usize),
    Given,
}

/// The frame whose head has come and whose body has not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Awaited {
    /// When its body may have begun to come (monotonic).
    since: Duration,
    granted: bool,
}

impl Awaited {
    pub(crate) fn new(now: Duration) -> Self {
        Self { since: now, granted: false }
    }

    /// When a frame with `bytes` of body has to be whole.
    pub(crate) fn deadline(&self, bytes: usize, limits: &Limits) -> Duration {
        let begun = u32::try_from((bytes >> 20) + 1).unwrap_or(u32::MAX);
        self.since.saturating_add(limits.frame_timeout_per_mib.saturating_mul(begun))
    }
}

impl Connection {
    /// From now on frames of more than `bytes` are not read before `grant_frame`.
    pub fn ask_above(&mut self, bytes: usize) {
        self.ask_above = bytes;
    }

    /// Look after each `handle_bytes`, and do not read while a grant is wanted.
    pub fn grant(&self) -> Grant {
        match &self.awaited {
            Some(awaited) if self.reader.needs() > self.ask_above => {
                if awaited.granted {
                    Grant::Given
                } else {
                    Grant::Wanted(self.reader.needs())
                }
            }
            _ => Grant::Unneeded,
        }
    }

    /// The frame that waits may be read; makes room for it behind what is in `buf`.
    pub fn grant_frame(&mut self, now: Now, buf: &mut BytesMut) {
        if let Some(awaited) = &mut self.awaited {
            *awaited = Awaited { since: now.mono, granted: true };
            self.make_room(buf);
        }
    }

    /// The owner has not read for so long for reasons of its own: the peer has that much more time for its frame. Once the
    /// peer was not read from for long, `tick` has it sent something.
    pub fn was_held(&mut self, time: Duration) {
        self.unread_for = self.unread_for.saturating_add(time);
        if let Some(awaited) = &mut self.awaited {
            awaited.since = awaited.since.saturating_add(time);
        }
    }
}
