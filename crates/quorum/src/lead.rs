//! What a leader does: replicates entries, commits them, sends heartbeats, and changes the membership.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use types::{Now, Utime};

use crate::log::Payload;
use crate::member::{MemberId, Membership, Peer};
use crate::message::{Append, AppendReply, Body, PartReply, PeerStatus};
use crate::parts::Sending;
use crate::raft::{Output, Raft, Role};

/// Entries and bytes of one message.
const MAX_ENTRIES: usize = 512;
const MAX_BYTES: usize = 4 << 20;
/// A snapshot that was not acknowledged is sent again after so long.
const SNAPSHOT_RETRY: Duration = Duration::from_secs(2);
/// Differences of wall clocks below this are not told. Source: mon_clock_drift_allowed, which is 50 ms.
const SKEW_STEP_MS: i64 = 10;
const SKEW_TOLD_MS: i64 = 50;

/// What a leader knows of another member.
#[derive(Debug, Clone, Default)]
pub(crate) struct Progress {
    /// The last entry that is known to be equal to ours and durable there.
    matched: u64,
    /// When (monotonic) we learned of that.
    matched_since: Duration,
    /// The next entry to send; 0 for a member that needs a snapshot.
    next: u64,
    /// `matched` at the last heartbeat: if it has not grown since, a message was lost.
    matched_at_beat: u64,
    snapshot_sent: Option<Duration>,
    sending: Option<Sending>,
    /// When we sent the newest message that it answered.
    acked: Option<Duration>,
    heard_at: Option<Duration>,
    /// By how much its wall clock is ahead, and the round trip of that measurement, in milliseconds.
    skew_ms: i64,
    latency_ms: u64,
}

/// A leader's state, from its election to its end.
#[derive(Debug, Clone)]
pub(crate) struct Leading {
    /// The first entry of our term.
    pub(crate) start: u64,
    since: Duration,
    progress: BTreeMap<MemberId, Progress>,
    next_beat: Duration,
    pub(crate) active: Vec<PeerStatus>,
    /// Reads of others and of our own (from ourselves) that wait for the lease.
    pub(crate) waiting_reads: VecDeque<(MemberId, u64)>,
    /// While we resign: until when (monotonic) the successor may catch up.
    pub(crate) resigns: Option<Duration>,
}

impl Leading {
    pub(crate) fn new(start: u64, members: &Membership, now: Duration) -> Self {
        let progress = |id: &MemberId| (*id, Progress { next: start, ..Progress::default() });
        Self {
            start,
            since: now,
            progress: members.peers.keys().map(progress).collect(),
            next_beat: now,
            active: Vec::new(),
            waiting_reads: VecDeque::new(),
            resigns: None,
        }
    }

    /// Notes that a member has answered a part of a snapshot. Returns the snapshot that is on its way to it.
    pub(crate) fn answered_part(
        &mut self,
        now: Now,
        from: MemberId,
        reply: &PartReply,
    ) -> Option<&mut Sending> {
        let p = self.progress.get_mut(&from)?;
        p.heard_at = Some(now.mono);
        if !reply.sent.is_zero() {
            p.acked = p.acked.max(Some(reply.sent));
            measure(p, now, reply.sent, reply.wall);
        }
        p.sending.as_mut()
    }

    /// Allows the next message of a snapshot to be sent before `SNAPSHOT_RETRY` is over.
    pub(crate) fn send_snapshot_again(&mut self, to: MemberId) {
        if let Some(p) = self.progress.get_mut(&to) {
            p.snapshot_sent = None;
        }
    }
}

impl Raft {
    /// Whether a majority was heard of within `limit`; a new leader has that long to hear of it.
    pub(crate) fn has_majority(&self, leading: &Leading, now: Now, limit: Duration) -> bool {
        let heard = |id: MemberId| {
            if id == self.hard.id {
                return now.mono;
            }
            let heard = leading.progress.get(&id).and_then(|p| p.heard_at);
            heard.unwrap_or(leading.since).max(leading.since)
        };
        let newest = self.log.members().majority_value(heard);
        newest.is_none_or(|at| at + limit >= now.mono)
    }

    /// When the newest message was sent that a majority answered.
    fn majority_acked(&self, leading: &Leading, now: Now) -> Option<Duration> {
        let acked = |id: MemberId| match id == self.hard.id {
            true => Some(now.mono),
            false => leading.progress.get(&id).and_then(|p| p.acked),
        };
        self.log.members().majority_value(acked).flatten()
    }

    /// Whether nobody else can lead now, and we know all that earlier leaders committed.
    pub(crate) fn may_read(&self, now: Now) -> bool {
        let Role::Leader(leading) = &self.role else { return false };
        let lease = if types::is_planted!(self.tuning.planted, LongLease) {
            self.tuning.election_min * 5
        } else {
            self.tuning.lease
        };
        let knows =
            self.commit >= leading.start || types::is_planted!(self.tuning.planted, ReadBeforeOwnTerm);
        knows && self.majority_acked(leading, now).is_some_and(|sent| sent + lease > now.mono)
    }

    pub(crate) fn lead_tick(&mut self, now: Now, out: &mut Vec<Output>) {
        let Role::Leader(leading) = &self.role else { return };
        if !self.has_majority(leading, now, self.tuning.election_max) {
            return self.step_down(now, self.hard.term);
        }
        if now.mono < leading.next_beat {
            return;
        }
        self.tend_members(now);
        let Role::Leader(leading) = &mut self.role else { return };
        leading.next_beat = now.mono + self.tuning.heartbeat;
        for p in leading.progress.values_mut() {
            if p.next > p.matched + 1 && p.matched == p.matched_at_beat && p.next > 0 {
                p.next = p.matched + 1;
            }
            p.matched_at_beat = p.matched;
        }
        self.broadcast(now, out);
    }

    /// The voter to hand over to, and how much of the log it holds: it answered lately, and nobody holds more.
    pub(crate) fn successor(&self, now: Now) -> Option<(u64, MemberId)> {
        let Role::Leader(leading) = &self.role else { return None };
        let lives = |p: &Progress| p.heard_at.is_some_and(|at| at + self.tuning.election_min >= now.mono);
        let voters = self.log.members().voters().filter(|id| *id != self.hard.id);
        let known =
            voters.filter_map(|id| Some((leading.progress.get(&id).filter(|p| lives(p))?.matched, id)));
        known.max()
    }

    pub(crate) fn update_active(&mut self, now: Now) {
        let (me, limit) = (self.hard.id, self.tuning.election_max);
        let Role::Leader(leading) = &mut self.role else { return };
        leading.active.clear();
        for id in self.log.members().voters() {
            let p = leading.progress.get(&id);
            let lives = p.and_then(|p| p.heard_at).is_some_and(|at| at + limit >= now.mono);
            if id == me || lives {
                let shown = p.filter(|p| p.skew_ms.abs() >= SKEW_TOLD_MS);
                let (skew_ms, latency_ms) = shown.map_or((0, 0), |p| (p.skew_ms, p.latency_ms));
                leading.active.push(PeerStatus { id, skew_ms, latency_ms });
            }
        }
    }

    /// Sends every other member what it lacks, or a sign of life.
    pub(crate) fn broadcast(&mut self, now: Now, out: &mut Vec<Output>) {
        let ids: Vec<MemberId> =
            self.log.members().peers.keys().copied().filter(|id| *id != self.hard.id).collect();
        for id in ids {
            self.replicate(now, id, out);
        }
    }

    pub(crate) fn replicate(&mut self, now: Now, to: MemberId, out: &mut Vec<Output>) {
        let Role::Leader(leading) = &mut self.role else { return };
        let active = leading.active.clone();
        let fresh = Progress { next: self.log.last_index() + 1, ..Progress::default() };
        let p = leading.progress.entry(to).or_insert(fresh);
        // Whoever does not answer is probed: what it does not read would only pile up in front of it.
        let silent = p.heard_at.unwrap_or(leading.since) + self.tuning.election_min < now.mono;
        let lacks_all = p.next <= self.log.snapshot.index;
        if lacks_all && !silent && p.snapshot_sent.is_none_or(|at| at + SNAPSHOT_RETRY <= now.mono) {
            p.snapshot_sent = Some(now.mono);
            let part_bytes = self.tuning.part_bytes;
            // A snapshot that was begun in parts goes on although a newer one exists: with a log that is
            // compacted often, no member would ever get to its end otherwise.
            let begun = p.sending.take().filter(|s| s.is_in_parts(part_bytes));
            let sending = p.sending.insert(begun.unwrap_or_else(|| Sending::new(self.log.snapshot.clone())));
            let body = sending.message(part_bytes, now.mono, active);
            return out.push(Output::Send(self.to(to, body)));
        }
        // While a snapshot is on its way, signs of life keep the member from campaigning.
        let prev_index = if lacks_all { self.log.snapshot.index } else { p.next - 1 };
        let entries = match lacks_all || silent {
            true => Vec::new(),
            false => self.log.range(p.next, MAX_ENTRIES, MAX_BYTES),
        };
        p.next += entries.len() as u64;
        let Some(prev_term) = self.log.term(prev_index) else { return };
        let append = Append { prev_index, prev_term, entries, commit: self.commit, sent: now.mono, active };
        out.push(Output::Send(self.to(to, Body::Append(append))));
    }

    pub(crate) fn append_reply(
        &mut self,
        now: Now,
        from: MemberId,
        reply: &AppendReply,
        out: &mut Vec<Output>,
    ) {
        let last = self.log.last_index();
        let snapshot_index = self.log.snapshot.index;
        let Role::Leader(leading) = &mut self.role else { return };
        let Some(p) = leading.progress.get_mut(&from) else { return };
        p.heard_at = Some(now.mono);
        if !reply.sent.is_zero() {
            p.acked = p.acked.max(Some(reply.sent));
            measure(p, now, reply.sent, reply.wall);
        }
        if !reply.ok {
            // Asked after it had acknowledged more: it is no late answer. Where to go on from proves nothing: the run of a
            // term that goes may begin before what it acknowledged.
            let lacks = reply.last_index < p.matched || reply.refused <= p.matched;
            if reply.index > 0 && lacks && reply.sent > p.matched_since {
                return out.push(Output::Send(self.to(from, Body::Outdated)));
            }
            if reply.index == 0 {
                p.next = 0;
            } else {
                p.next = reply.index.max(p.matched + 1).min(last + 1);
            }
            if p.next <= snapshot_index && p.snapshot_sent.is_some() {
                return;
            }
            return self.replicate(now, from, out);
        }
        if reply.index > last {
            return;
        }
        if reply.index > p.matched {
            (p.matched, p.matched_since) = (reply.index, now.mono);
        }
        let sending = p.sending.as_ref().map_or(snapshot_index, |s| s.snapshot.index);
        if reply.index >= sending && p.sending.take().is_some() {
            p.snapshot_sent = None;
            p.next = reply.index + 1;
        }
        p.next = p.next.max(p.matched + 1);
        if p.next <= last {
            self.replicate(now, from, out);
        }
    }

    /// Commits what a majority holds, if it is of our term (invariant 3).
    pub(crate) fn advance_commit(&mut self, now: Now, out: &mut Vec<Output>) {
        let Role::Leader(leading) = &self.role else { return };
        let held = |id: MemberId| match id == self.hard.id {
            true if types::is_planted!(self.tuning.planted, LeaderCountsEarly) => self.log.last_index(),
            true => self.durable,
            false => leading.progress.get(&id).map_or(0, |p| p.matched),
        };
        let Some(index) = self.log.members().majority_value(held) else { return };
        let own = self.log.term(index) == Some(self.hard.term);
        if index <= self.commit || !own && !types::is_planted!(self.tuning.planted, CommitOldTerm) {
            return;
        }
        self.commit = index;
        let me = self.hard.id;
        let gone = self.log.members_index() <= index && !self.log.members().is_voter(me);
        // Followers apply, and answer reads, without waiting for the next sign of life.
        self.broadcast(now, out);
        if gone {
            self.step_down(now, self.hard.term);
        }
    }

    /// A store asks to be let in.
    pub(crate) fn join(&mut self, now: Now, from: MemberId, name: String, out: &mut Vec<Output>) {
        let members = self.log.members();
        let Role::Leader(leading) = &self.role else { return };
        if members.peers.contains_key(&from) {
            return self.replicate(now, from, out);
        }
        if !self.names.contains(&name) || !self.may_change_members() {
            return;
        }
        let mut members = members.clone();
        if let Some(old) = members.by_name(&name) {
            // Two processes under one name: the one that is a member stays.
            // A new leader gives it the time to answer.
            let heard = leading.progress.get(&old).and_then(|p| p.heard_at).unwrap_or(leading.since);
            if old == self.hard.id || heard + self.tuning.election_max >= now.mono {
                return;
            }
            members.peers.remove(&old);
        }
        members.peers.insert(from, Peer { name, voter: false });
        self.change_members(now, members);
        self.broadcast(now, out);
    }

    /// One change at a time, and none before we know what earlier leaders committed.
    fn may_change_members(&self) -> bool {
        let Role::Leader(leading) = &self.role else { return false };
        types::is_planted!(self.tuning.planted, TwoChanges)
            || self.commit >= leading.start && self.log.members_index() <= self.commit
    }

    /// Learners that have caught up become voters; members whose names are gone go.
    fn tend_members(&mut self, now: Now) {
        if !self.may_change_members() {
            return;
        }
        let Role::Leader(leading) = &self.role else { return };
        let mut members = self.log.members().clone();
        let removed =
            members.peers.iter().find(|(_, p)| !self.names.is_empty() && !self.names.contains(&p.name));
        if let Some(id) = removed.map(|(id, _)| *id) {
            // Others first: we go when nobody else is left to remove.
            members.peers.remove(&id);
            return self.change_members(now, members);
        }
        let caught_up = |id: &MemberId| {
            let p = leading.progress.get(id);
            p.is_some_and(|p| {
                p.matched >= self.commit
                    && p.heard_at.is_some_and(|at| at + self.tuning.election_min >= now.mono)
            })
        };
        let ready = members.peers.iter_mut().find(|(id, p)| !p.voter && caught_up(id));
        if let Some((_, peer)) = ready {
            peer.voter = true;
            self.change_members(now, members);
        }
    }

    fn change_members(&mut self, now: Now, members: Membership) {
        self.append_own(Payload::Members(members.clone()));
        let last = self.log.last_index();
        let Role::Leader(leading) = &mut self.role else { return };
        leading.progress.retain(|id, _| members.peers.contains_key(id));
        for id in members.peers.keys() {
            leading.progress.entry(*id).or_insert(Progress { next: last, ..Progress::default() });
        }
        leading.next_beat = now.mono;
    }
}

/// Compares the other's wall clock with ours in the middle of the round trip.
fn measure(p: &mut Progress, now: Now, sent: Duration, theirs: Utime) {
    let trip = now.mono.saturating_sub(sent);
    let ms = |t: Utime| i64::from(t.sec) * 1_000 + i64::from(t.nsec / 1_000_000);
    let half = i64::try_from(trip.as_millis() / 2).unwrap_or(0);
    let skew = ms(theirs) - (ms(now.wall) - half);
    // What the round trip may account for is not held against the clock.
    let sure = if skew.abs() <= half { 0 } else { skew };
    p.skew_ms = sure / SKEW_STEP_MS * SKEW_STEP_MS;
    p.latency_ms = u64::try_from(trip.as_millis()).unwrap_or(0);
}
