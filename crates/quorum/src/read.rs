//! Linearizable reads: by the leader's lease, for followers by asking the leader how far they must have applied.

use std::time::Duration;

use types::Now;

use crate::member::MemberId;
use crate::message::Body;
use crate::raft::{Output, Raft, Role};

/// A leader is asked again after so long.
const RETRY: Duration = Duration::from_millis(200);

/// A read that waits.
#[derive(Debug, Clone, Default)]
pub(crate) struct Waiting {
    /// How far the state must be applied, once the leader has said so.
    index: Option<u64>,
    asked: Option<Duration>,
}

impl Raft {
    pub(crate) fn read(&mut self, now: Now, ctx: u64, out: &mut Vec<Output>) {
        self.reads.insert(ctx, Waiting::default());
        self.retry_reads(now, out);
    }

    /// Whoever was asked before does not count any more.
    pub(crate) fn ask_again(&mut self) {
        for read in self.reads.values_mut() {
            read.asked = None;
        }
    }

    pub(crate) fn retry_reads(&mut self, now: Now, out: &mut Vec<Output>) {
        let Role::Follower { leader: Some(leader), .. } = &self.role else { return };
        let leader = *leader;
        let mut due = Vec::new();
        for (ctx, read) in &mut self.reads {
            if read.index.is_none() && read.asked.is_none_or(|at| at + RETRY <= now.mono) {
                read.asked = Some(now.mono);
                due.push(*ctx);
            }
        }
        for ctx in due {
            let question = self.to(leader, Body::ReadIndex { ctx });
            self.say(question, out);
        }
    }

    /// A follower asks; it is told when nobody else can lead.
    pub(crate) fn read_index(&mut self, now: Now, from: MemberId, ctx: u64, out: &mut Vec<Output>) {
        let sure = self.may_read(now);
        let Role::Leader(leading) = &mut self.role else { return };
        if sure {
            let reply = Body::ReadIndexReply { ctx, index: self.commit };
            out.push(Output::Send(self.to(from, reply)));
        } else if !leading.waiting_reads.contains(&(from, ctx)) {
            leading.waiting_reads.push_back((from, ctx));
        }
    }

    pub(crate) fn read_index_reply(&mut self, ctx: u64, index: u64) {
        if let Some(read) = self.reads.get_mut(&ctx) {
            read.index = read.index.or(Some(index));
        }
    }

    /// Answers what can be answered now. Call when everything committed was given out.
    pub(crate) fn answer_reads(&mut self, now: Now, out: &mut Vec<Output>) {
        let asked = matches!(&self.role, Role::Leader(leading) if !leading.waiting_reads.is_empty());
        if self.reads.is_empty() && !asked {
            return;
        }
        let sure = self.may_read(now);
        let commit = self.commit;
        let ready = |read: &Waiting| sure || read.index.is_some_and(|index| index <= commit);
        let done: Vec<u64> = self.reads.iter().filter(|(_, r)| ready(r)).map(|(ctx, _)| *ctx).collect();
        for ctx in done {
            self.reads.remove(&ctx);
            out.push(Output::ReadReady { ctx });
        }
        if let Role::Leader(leading) = &mut self.role {
            if sure {
                let waiting = std::mem::take(&mut leading.waiting_reads);
                for (from, ctx) in waiting {
                    out.push(Output::Send(self.to(from, Body::ReadIndexReply { ctx, index: commit })));
                }
            }
        }
    }
}
