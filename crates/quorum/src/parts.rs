//! Sends a snapshot whose state is too large for one message in parts: the next part goes when the member
//! says how much of the state it holds.
//!
//! Invariants:
//! 1. The leader sends all parts of one snapshot, even when its log has been compacted again meanwhile.
//! 2. A member joins only parts of one snapshot, of one leader in one term, in order. A part at any other
//!    offset is answered with the number of bytes that the member holds.
//! 3. A member joins at most [`MAX_STATE`] bytes.

use std::time::Duration;

use types::Now;

use crate::log::Snapshot;
use crate::member::MemberId;
use crate::message::{Body, InstallSnapshot, PartReply, PeerStatus, SnapshotPart};
use crate::raft::{Output, Raft, Role};

/// The largest state that a member puts together, in bytes.
pub(crate) const MAX_STATE: u64 = 2 << 30;

/// A snapshot on its way to a member.
#[derive(Debug, Clone)]
pub(crate) struct Sending {
    pub(crate) snapshot: Snapshot,
    /// Bytes of the state that the member holds.
    offset: usize,
}

impl Sending {
    pub(crate) fn new(snapshot: Snapshot) -> Self {
        Self { snapshot, offset: 0 }
    }

    pub(crate) fn is_in_parts(&self, part_bytes: usize) -> bool {
        self.snapshot.state.len() > part_bytes
    }

    /// The message to be sent next: the whole snapshot if its state fits into `part_bytes`, else the next
    /// part.
    pub(crate) fn message(&self, part_bytes: usize, sent: Duration, active: Vec<PeerStatus>) -> Body {
        let state = &self.snapshot.state;
        if !self.is_in_parts(part_bytes) {
            return Body::Snapshot(InstallSnapshot { snapshot: self.snapshot.clone(), sent, active });
        }
        let from = self.offset.min(state.len());
        let to = from.saturating_add(part_bytes).min(state.len());
        let snapshot = Snapshot { state: state.slice(from..to), ..self.snapshot.clone() };
        let (offset, total) = (from as u64, state.len() as u64);
        Body::SnapshotPart(SnapshotPart { snapshot, offset, total, sent, active })
    }
}

/// A state that a member is putting together.
#[derive(Debug, Clone)]
pub(crate) struct Receiving {
    leader: MemberId,
    term: u64,
    index: u64,
    total: u64,
    state: Vec<u8>,
}

impl Receiving {
    fn is_of(&self, leader: MemberId, term: u64, part: &SnapshotPart) -> bool {
        (self.leader, self.term, self.index, self.total) == (leader, term, part.snapshot.index, part.total)
    }

    fn held(&self) -> u64 {
        self.state.len() as u64
    }
}

impl Raft {
    /// Leader: a member has said how much of the state it holds; sends it the next part.
    pub(crate) fn part_reply(&mut self, now: Now, from: MemberId, reply: &PartReply, out: &mut Vec<Output>) {
        let Role::Leader(leading) = &mut self.role else { return };
        let Some(sending) = leading.answered_part(now, from, reply) else { return };
        let held = usize::try_from(reply.held).unwrap_or(usize::MAX);
        // The next part is under way already when the member repeats itself.
        if sending.snapshot.index != reply.index || sending.offset == held {
            return;
        }
        if held >= sending.snapshot.state.len() {
            return;
        }
        sending.offset = held;
        leading.send_snapshot_again(from);
        self.replicate(now, from, out);
    }

    /// Member: takes a part, and installs the snapshot once its state is complete.
    pub(crate) fn install_part(
        &mut self,
        now: Now,
        from: MemberId,
        part: SnapshotPart,
        out: &mut Vec<Output>,
    ) {
        let misfit = part.total > MAX_STATE || part.snapshot.state.is_empty() || part.snapshot.is_nonsense();
        if misfit || !self.hear(now, from, part.active.clone()) {
            return;
        }
        if self.holds(&part.snapshot) {
            self.receiving = None;
            return self.reply_appended(now, from, part.sent, out);
        }
        let term = self.hard.term;
        let begun = self.receiving.take().filter(|r| r.is_of(from, term, &part));
        let mut receiving = begun.unwrap_or_else(|| Receiving {
            leader: from,
            term,
            index: part.snapshot.index,
            total: part.total,
            state: Vec::new(),
        });
        let end = part.offset.saturating_add(part.snapshot.state.len() as u64);
        if part.offset == receiving.held() && end <= part.total {
            receiving.state.extend_from_slice(&part.snapshot.state);
        }
        if receiving.held() == part.total {
            let snapshot = Snapshot { state: receiving.state.into(), ..part.snapshot };
            let whole = InstallSnapshot { snapshot, sent: part.sent, active: part.active };
            return self.install(now, from, whole, out);
        }
        let reply =
            PartReply { index: part.snapshot.index, held: receiving.held(), sent: part.sent, wall: now.wall };
        self.receiving = Some(receiving);
        let reply = self.to(from, Body::PartReply(reply));
        self.say(reply, out);
    }
}
