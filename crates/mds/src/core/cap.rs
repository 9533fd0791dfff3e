//! One client's capability of one inode: what it was given, what it still has, what it wants.
//!
//! ```text
//! issue(c) ──less than before──> revoking ──confirm(seq, kept)──> settled
//! issue(c) ──more──> settled
//! ```
//!
//! Invariant: `pending` is part of `issued`; what is issued and not pending is being taken back.
//!
//! Source: src/mds/Capability.h.

use std::time::Duration;

use messages::fs::Caps;

/// What was issued before a revocation, and the number of the message before it.
#[derive(Debug, Clone, PartialEq)]
struct Revoke {
    before: Caps,
    seq: u32,
    last_issue: u32,
}

#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Cap {
    pub id: u64,
    pub wanted: Caps,
    /// What the client may have.
    issued: Caps,
    /// What it has when all messages have arrived and are answered.
    pending: Caps,
    revokes: Vec<Revoke>,
    /// Counts messages.
    pub last_sent: u32,
    /// The last message that gave something with an inode.
    pub last_issue: u32,
    /// Counts moves; only a reconnect makes one here.
    pub mseq: u32,
    /// The client has these.
    pub xattr_version: u64,
    /// The last revocation that is not answered.
    pub revoked_at: Option<Duration>,
    /// The client was told of this bound for its writes.
    pub told_max_size: u64,
    /// What the client may have changed before snapshots that it has not told of.
    pub owed: Caps,
    /// It has told of all snapshots up to this one; means something while something is owed.
    pub follows: u64,
}

/// Of two counts that wrap around, whether `a` is the earlier one. Source: ceph_seq_cmp.
pub(crate) fn is_earlier(a: u32, b: u32) -> bool {
    (a.wrapping_sub(b) as i32) < 0
}

impl Cap {
    pub fn new(id: u64) -> Self {
        Self { id, ..Self::default() }
    }

    pub fn issued(&self) -> Caps {
        self.issued
    }

    pub fn pending(&self) -> Caps {
        self.pending
    }

    /// Whether the client may still tell what it changed before a snapshot.
    pub fn owes(&self, snap: u64) -> bool {
        !self.owed.is_empty() && self.follows < snap
    }

    pub fn revoking(&self) -> Caps {
        self.issued.without(self.pending)
    }

    /// As a client claims it after a failover.
    pub fn reconnected(&mut self, issued: Caps, wanted: Caps) {
        (self.issued, self.pending, self.wanted) = (issued, issued, wanted);
        self.revokes.clear();
        (self.last_sent, self.last_issue, self.revoked_at) = (0, 0, None);
    }

    /// The next message gives exactly these.
    pub fn issue(&mut self, caps: Caps, now: Duration) {
        if !self.pending.without(caps).is_empty() {
            let revoke = Revoke { before: self.pending, seq: self.last_sent, last_issue: self.last_issue };
            self.revokes.push(revoke);
            self.pending = caps;
            self.issued |= caps;
            self.revoked_at.get_or_insert(now);
        } else {
            self.pending |= caps;
            self.issued |= caps;
            let pending = self.pending;
            while self.revokes.last().is_some_and(|r| r.before.without(pending).is_empty()) {
                self.revokes.pop();
            }
            self.settle();
        }
        self.last_sent = self.last_sent.wrapping_add(1);
    }

    /// A reply gives these besides what is pending.
    pub fn issue_more(&mut self, caps: Caps) {
        self.pending |= caps;
        self.issued |= caps;
        self.last_sent = self.last_sent.wrapping_add(1);
        self.last_issue = self.last_sent;
    }

    /// The client keeps these, having seen the message `seq`. Source: Capability::confirm_receipt.
    pub fn confirm(&mut self, seq: u32, kept: Caps) {
        if seq == self.last_sent {
            self.revokes.clear();
            self.issued = kept;
            self.pending &= kept;
        } else {
            let done = self.revokes.iter().take_while(|r| is_earlier(r.seq, seq)).count();
            self.revokes.drain(..done);
            match self.revokes.first_mut() {
                Some(first) => {
                    if first.seq == seq {
                        first.before = kept;
                    }
                    self.sum();
                }
                None => self.issued = kept | self.pending,
            }
        }
        self.settle();
    }

    /// A release that crossed revocations: the client does not answer these any more.
    pub fn forget_revokes(&mut self, last_issue: u32) {
        let done = self.revokes.iter().take_while(|r| !is_earlier(last_issue, r.last_issue)).count();
        if done > 0 {
            self.revokes.drain(..done);
            self.sum();
            self.settle();
        }
    }

    /// The client is gone, or its capability is void: it has no more than these.
    pub fn void(&mut self, left: Caps) {
        self.issued &= left;
        self.pending &= left;
        self.revokes.clear();
        self.revoked_at = None;
    }

    fn sum(&mut self) {
        self.issued = self.revokes.iter().fold(self.pending, |all, r| all | r.before);
    }

    fn settle(&mut self) {
        if self.revoking().is_empty() {
            self.revoked_at = None;
        }
    }

    pub fn assert_invariants(&self) {
        assert!(self.issued.contains(self.pending), "pending is part of issued: {self:?}");
        assert!(self.revoking().is_empty() || self.revoked_at.is_some(), "a revocation has a time: {self:?}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: Caps = Caps::FILE_SHARED;
    const X: Caps = Caps::FILE_EXCL;
    const NOW: Duration = Duration::ZERO;

    #[test]
    fn what_is_taken_back_is_issued_until_the_client_says_so() {
        let mut cap = Cap::new(1);
        cap.issue_more(S | X);
        cap.issue(S, NOW);
        assert_eq!((cap.issued(), cap.pending(), cap.revoking()), (S | X, S, X));
        cap.confirm(1, S | X);
        assert_eq!(cap.issued(), S | X, "it has not seen the revocation");
        cap.confirm(2, S);
        assert_eq!((cap.issued(), cap.revoking(), cap.revoked_at), (S, Caps::NONE, None));
        cap.assert_invariants();
    }

    #[test]
    fn answers_of_earlier_revocations_end_those_alone() {
        let mut cap = Cap::new(1);
        cap.issue_more(S | X | Caps::FILE_RD);
        cap.issue(S | Caps::FILE_RD, NOW);
        cap.issue(S, NOW);
        cap.confirm(2, S | Caps::FILE_RD);
        assert_eq!(cap.issued(), S | Caps::FILE_RD);
        cap.confirm(3, S);
        assert_eq!(cap.issued(), S);
    }

    #[test]
    fn a_grant_after_a_revocation_makes_its_answer_needless() {
        let mut cap = Cap::new(1);
        cap.issue_more(S | X);
        cap.issue(S, NOW);
        cap.issue(S | X, NOW);
        assert_eq!((cap.issued(), cap.revoking(), cap.revoked_at), (S | X, Caps::NONE, None));
        cap.confirm(2, S);
        assert_eq!(cap.issued(), S | X, "the later message gave it again");
    }

    #[test]
    fn a_release_that_crossed_a_revocation_ends_the_wait() {
        let mut cap = Cap::new(1);
        cap.issue_more(S | X);
        cap.issue(S, NOW);
        cap.forget_revokes(1);
        assert_eq!(cap.issued(), S);
        cap.assert_invariants();
    }
}
