//! Becoming a leader: pre-vote, vote, and loyalty to a leader that is alive.

use std::collections::BTreeSet;

use types::Now;

use crate::lead::Leading;
use crate::log::Payload;
use crate::member::MemberId;
use crate::message::{Body, Message};
use crate::raft::{Output, Raft, Role};

/// Who said yes.
#[derive(Debug, Clone, Default)]
pub(crate) struct Votes(BTreeSet<MemberId>);

impl Raft {
    /// No leader was heard of for too long: asks whether others think so too, or, as no voter, to be let in.
    pub(crate) fn campaign(&mut self, now: Now, out: &mut Vec<Output>) {
        self.reset_deadline(now.mono);
        if !self.log.members().is_voter(self.hard.id) {
            if let Role::Follower { leader, .. } = &mut self.role {
                *leader = None;
            }
            let join = Body::Join { name: self.name.clone() };
            return out.push(Output::Send(self.to(MemberId::NONE, join)));
        }
        self.calls += 1;
        if self.alone() || types::is_planted!(self.tuning.planted, Disturb) {
            return self.stand(now, out);
        }
        self.role = Role::PreCandidate(Votes([self.hard.id].into()));
        let body = Body::PreVote { last_index: self.log.last_index(), last_term: self.log.last_term() };
        for id in self.others() {
            let ask = Message { term: self.hard.term + 1, ..self.to(id, body.clone()) };
            out.push(Output::Send(ask));
        }
    }

    /// A real candidacy, in a new term.
    fn stand(&mut self, now: Now, out: &mut Vec<Output>) {
        self.hard.term += 1;
        self.hard.vote = self.hard.id;
        self.persist_hard();
        self.reset_deadline(now.mono);
        self.role = Role::Candidate(Votes::default());
        let body = Body::Vote { last_index: self.log.last_index(), last_term: self.log.last_term() };
        for id in self.others() {
            let ask = self.to(id, body.clone());
            self.after_write(ask, out);
        }
    }

    /// A leader that is about to stop takes no more proposals, and hands over when somebody holds what it took.
    pub(crate) fn resign(&mut self, now: Now) {
        if let Role::Leader(leading) = &mut self.role {
            leading.resigns.get_or_insert(now.mono + Self::HANDOVER);
        }
    }

    /// Asks the member that has most of the log to take over, and lets everybody off their loyalty. The lease ends with that,
    /// for we do not lead any more.
    pub(crate) fn hand_over(&mut self, now: Now, out: &mut Vec<Output>) {
        let Role::Leader(leading) = &self.role else { return };
        let Some(until) = leading.resigns else { return };
        let Some((held, next)) = self.successor(now) else { return };
        // Whoever lacks what we hold would be refused our vote, and what was proposed here might be lost.
        if held.min(self.commit) < self.log.last_index() && now.mono < until {
            return;
        }
        for id in self.others() {
            out.push(Output::Send(self.to(id, Body::Resign { next })));
        }
        self.step_down(now, self.hard.term);
        // Whoever follows has the first word.
        self.deadline += self.tuning.election_max;
    }

    /// Whether proposals are accepted.
    pub(crate) fn takes_proposals(&self) -> bool {
        matches!(&self.role, Role::Leader(leading) if leading.resigns.is_none())
    }

    /// The leader of our term resigned. A message of an earlier reign has an earlier term.
    pub(crate) fn leader_resigned(
        &mut self,
        now: Now,
        from: MemberId,
        next: MemberId,
        out: &mut Vec<Output>,
    ) {
        if !matches!(&self.role, Role::Follower { leader: Some(known), .. } if *known == from) {
            return;
        }
        self.step_down(now, self.hard.term);
        self.heard_at = now.mono.saturating_sub(self.tuning.election_min);
        if next == self.hard.id {
            self.campaign(now, out);
        } else {
            self.reset_deadline(now.mono);
        }
    }

    fn others(&self) -> Vec<MemberId> {
        self.log.members().voters().filter(|id| *id != self.hard.id).collect()
    }

    /// Whether there is a leader that deserves to stay, as far as we know.
    pub(crate) fn is_loyal(&self, now: Now) -> bool {
        if types::is_planted!(self.tuning.planted, Disturb) {
            return false;
        }
        match &self.role {
            Role::Leader(leading) => self.has_majority(leading, now, self.tuning.election_min),
            _ => now.mono < self.heard_at + self.tuning.election_min,
        }
    }

    /// Whether a log that ends with this (term, index) holds all that ours does.
    fn up_to_date(&self, last: (u64, u64)) -> bool {
        last >= (self.log.last_term(), self.log.last_index())
    }

    pub(crate) fn pre_vote(
        &mut self,
        now: Now,
        from: MemberId,
        term: u64,
        last: (u64, u64),
        out: &mut Vec<Output>,
    ) {
        let granted = term > self.hard.term && !self.is_loyal(now) && self.up_to_date(last);
        let reply = self.to(from, Body::PreVoteReply { granted });
        // A refusal tells our term, so that one who lags behind catches up; a grant repeats the one asked for.
        let reply = if granted { Message { term, ..reply } } else { reply };
        if granted {
            out.push(Output::Send(reply));
        } else {
            self.after_write(reply, out);
        }
    }

    pub(crate) fn pre_vote_granted(&mut self, now: Now, from: MemberId, term: u64, out: &mut Vec<Output>) {
        let asked = self.hard.term + 1;
        let members = self.log.members();
        let Role::PreCandidate(votes) = &mut self.role else { return };
        if term != asked || !members.is_voter(from) {
            return;
        }
        votes.0.insert(from);
        if votes.0.len() >= members.majority() {
            self.stand(now, out);
        }
    }

    pub(crate) fn vote(&mut self, now: Now, from: MemberId, last: (u64, u64), out: &mut Vec<Output>) {
        let free = self.hard.vote == MemberId::NONE || self.hard.vote == from;
        let leaderless = matches!(self.role, Role::Follower { leader: None, .. } | Role::PreCandidate(_));
        let holds_all = self.up_to_date(last) || types::is_planted!(self.tuning.planted, VoteForAnybody);
        let granted = free && leaderless && holds_all;
        if granted && self.hard.vote != from {
            self.hard.vote = from;
            self.persist_hard();
        }
        if granted {
            self.reset_deadline(now.mono);
        }
        let reply = self.to(from, Body::VoteReply { granted });
        self.after_write(reply, out);
    }

    pub(crate) fn vote_counted(&mut self, now: Now, from: MemberId, granted: bool, out: &mut Vec<Output>) {
        let members = self.log.members();
        let Role::Candidate(votes) = &mut self.role else { return };
        if !granted || !members.is_voter(from) {
            return;
        }
        votes.0.insert(from);
        if votes.0.len() >= members.majority() {
            self.win(now, out);
        }
    }

    /// Our own vote counts when it is durable.
    pub(crate) fn own_vote_durable(&mut self, now: Now, out: &mut Vec<Output>) {
        if matches!(self.role, Role::Candidate(_)) && self.all_written() {
            self.vote_counted(now, self.hard.id, true, out);
        }
    }

    fn win(&mut self, now: Now, out: &mut Vec<Output>) {
        let start = self.log.last_index() + 1;
        self.role = Role::Leader(Leading::new(start, self.log.members(), now.mono));
        self.ask_again();
        self.append_own(Payload::Empty);
        self.broadcast(now, out);
    }
}
