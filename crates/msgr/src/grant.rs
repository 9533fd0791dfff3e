//! Grants: a large frame is read only when the connection's owner allows it, so that the owner can bound the
//! memory of frames that are not whole yet, over many connections.
//!
//! A frame's head of 32 bytes states its length. Once the head is here, the frame is in one of three states:
//! it needs no grant; it waits for one, and meanwhile nothing more is read and no room is made for it; or it
//! has one, until it is whole.

use std::time::Duration;

use bytes::BytesMut;
use types::Now;

use crate::{Connection, Limits};

/// Whether the frame that is coming in needs the owner's permission.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Grant {
    Unneeded,
    /// The owner must not read on before it has called `grant_frame` for a frame of so many bytes.
    Wanted(usize),
    /// The frame may be read.
    Given,
}

/// The frame whose head has come and whose body has not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Awaited {
    /// Since when (monotonic) the peer could have been sending the body, moved on by the time in which the
    /// owner did not read.
    since: Duration,
    granted: bool,
}

impl Awaited {
    pub(crate) fn new(now: Duration) -> Self {
        Self { since: now, granted: false }
    }

    /// When (monotonic) a frame with `bytes` of body has to be whole.
    pub(crate) fn deadline(&self, bytes: usize, limits: &Limits) -> Duration {
        let begun = u32::try_from((bytes >> 20) + 1).unwrap_or(u32::MAX);
        self.since.saturating_add(limits.frame_timeout_per_mib.saturating_mul(begun))
    }
}

impl Connection {
    /// From now on a frame of more than `bytes` needs a grant. At first none does.
    pub fn ask_above(&mut self, bytes: usize) {
        self.ask_above = bytes;
    }

    /// Whether the frame that is coming in needs a grant. Ask after each `handle_bytes`, and read nothing
    /// while the answer is `Wanted`.
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

    /// Grants the frame that waits, and makes room for it in `buf`. Its time to become whole begins anew.
    pub fn grant_frame(&mut self, now: Now, buf: &mut BytesMut) {
        if let Some(awaited) = &mut self.awaited {
            *awaited = Awaited { since: now.mono, granted: true };
            self.make_room(buf);
        }
    }

    /// Tells the connection that its owner has not read for `time`, for reasons of its own. The peer gets as
    /// much more time for the frame that is coming in. Once it was not read from for
    /// `Limits::probe_held_after`, `tick` sends it an acknowledgement, to find out whether it still exists.
    pub fn was_held(&mut self, time: Duration) {
        self.unread_for = self.unread_for.saturating_add(time);
        if let Some(awaited) = &mut self.awaited {
            awaited.since = awaited.since.saturating_add(time);
        }
    }
}
