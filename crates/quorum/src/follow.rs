//! Following: entries and snapshots from the leader.

use std::time::Duration;

use types::Now;

use crate::log::Snapshot;
use crate::member::MemberId;
use crate::message::{Append, AppendReply, Body, InstallSnapshot, PeerStatus};
use crate::raft::{Output, Raft, Role};

impl Raft {
    /// A leader of our term spoke. False when that cannot be, for it is ours: nothing of the message counts.
    pub(crate) fn hear(&mut self, now: Now, from: MemberId, statuses: Vec<PeerStatus>) -> bool {
        if self.is_leader() {
            return false;
        }
        self.heard_at = now.mono;
        self.reset_deadline(now.mono);
        match &mut self.role {
            Role::Follower { leader: Some(known), active, .. } if *known == from => *active = statuses,
            Role::Follower { leader, active, .. } => {
                *leader = Some(from);
                *active = statuses;
                self.ask_again();
            }
            _ => {
                self.role = Role::Follower { leader: Some(from), verified: self.commit, active: statuses };
                self.ask_again();
            }
        }
        true
    }

    pub(crate) fn append(&mut self, now: Now, from: MemberId, append: Append, out: &mut Vec<Output>) {
        let Append { prev_index, prev_term, entries, commit, sent, active } = append;
        // No log comes near the end of the numbers.
        let Some(first) = prev_index.checked_add(1).filter(|_| prev_index < u64::MAX / 2) else { return };
        let whole = (first..).zip(&entries).all(|(index, e)| e.index == index && e.term <= self.hard.term);
        // Invariant 4: no leader has another entry in place of one that is committed.
        let committed = |e: &&crate::Entry| e.index <= self.commit && e.index > self.log.snapshot.index;
        let denies = entries.iter().filter(committed).any(|e| self.log.term(e.index) != Some(e.term));
        if !whole || denies || !self.hear(now, from, active) {
            return;
        }
        self.leader_commit = commit;
        if let Some(hint) = self.mismatch(prev_index, prev_term) {
            let last_index = self.log.last_index();
            let reply =
                AppendReply { ok: false, index: hint, sent, wall: now.wall, last_index, refused: prev_index };
            let reply = self.to(from, Body::AppendReply(reply));
            return self.after_write(reply, out);
        }
        let equal = prev_index + entries.len() as u64;
        let held = self.log.snapshot.index;
        for entry in entries.into_iter().filter(|e| e.index > held) {
            match self.log.term(entry.index) {
                Some(term) if term == entry.term => continue,
                Some(_) if types::is_planted!(self.tuning.planted, KeepConflict) => continue,
                Some(_) => self.truncate(entry.index),
                None => {}
            }
            self.push(entry);
        }
        let last = self.log.last_index();
        if let Role::Follower { verified, .. } = &mut self.role {
            *verified = (*verified).max(equal).min(last);
            let known =
                if types::is_planted!(self.tuning.planted, CommitUnverified) { last } else { *verified };
            self.commit = self.commit.max(commit.min(known));
        }
        self.reply_appended(now, from, sent, out);
    }

    /// Where to go on from when our log does not hold what the leader's entries follow.
    fn mismatch(&self, prev_index: u64, prev_term: u64) -> Option<u64> {
        if self.is_blank() {
            return Some(0);
        }
        if prev_index < self.log.snapshot.index {
            return None;
        }
        match self.log.term(prev_index) {
            Some(term) if term == prev_term => None,
            // The whole run of that term goes, but nothing that is committed.
            Some(_) => Some(self.log.term_start(prev_index).max(self.commit + 1)),
            None => Some(self.log.last_index() + 1),
        }
    }

    pub(crate) fn reply_appended(
        &mut self,
        now: Now,
        leader: MemberId,
        sent: Duration,
        out: &mut Vec<Output>,
    ) {
        let Role::Follower { verified, .. } = &self.role else { return };
        // Invariant 2.
        let hasty = types::is_planted!(self.tuning.planted, AckBeforeDurable);
        let index = if hasty { *verified } else { (*verified).min(self.durable) };
        let last_index = self.log.last_index();
        let reply = AppendReply { ok: true, index, sent, wall: now.wall, last_index, refused: 0 };
        let reply = self.to(leader, Body::AppendReply(reply));
        self.say(reply, out);
    }

    /// More became durable: the leader hears of it.
    pub(crate) fn acknowledge(&mut self, now: Now, out: &mut Vec<Output>) {
        if let Role::Follower { leader: Some(leader), .. } = &self.role {
            let leader = *leader;
            self.reply_appended(now, leader, Duration::ZERO, out);
        }
    }

    /// Whether everything up to a snapshot's index is here. An entry of the same term there says so: everything before it is
    /// the same too, and what follows may be what we acknowledged.
    pub(crate) fn holds(&self, snapshot: &Snapshot) -> bool {
        let index = snapshot.index;
        !self.is_blank() && (index <= self.commit || self.log.term(index) == Some(snapshot.term))
    }

    pub(crate) fn install(
        &mut self,
        now: Now,
        from: MemberId,
        install: InstallSnapshot,
        out: &mut Vec<Output>,
    ) {
        let InstallSnapshot { snapshot, sent, active } = install;
        if snapshot.is_nonsense() || !self.hear(now, from, active) {
            return;
        }
        self.receiving = None;
        // How much more is committed is told by the next append.
        self.leader_commit = u64::MAX;
        let index = snapshot.index;
        if !self.holds(&snapshot) || types::is_planted!(self.tuning.planted, SnapshotDropsTail) {
            self.replace(snapshot, out);
        }
        let last = self.log.last_index();
        if let Role::Follower { verified, .. } = &mut self.role {
            *verified = (*verified).max(index).min(last);
            self.commit = self.commit.max(index.min(*verified));
        }
        self.reply_appended(now, from, sent, out);
    }
}
