//! Waiting until what was done is safe: fsync, sync, unmount.
//!
//! Source: Client::_fsync, _sync_fs, _unmount.

use maps::Rank;
use messages::fs::FsOp;
use types::Errno;

use crate::call::{Event, Stage, Step};
use crate::core::Client;
use crate::io::{Answer, Handle, Node, Ticket};
use crate::request::Request;
use crate::session::State;

#[derive(Debug)]
pub(crate) struct Settle {
    /// Requests and flushes up to these.
    tid: u64,
    flush: u64,
    /// Only what is about this inode.
    node: Option<Node>,
    is_closing: bool,
}

impl Client {
    fn begin_settling(&mut self, ticket: Ticket, node: Option<Node>, stage: &mut Stage) {
        let is_unsafe = |r: &&Request| r.is_unsafe;
        let mut ranks: Vec<Rank> = self.requests.values().filter(is_unsafe).filter_map(|r| r.rank).collect();
        ranks.extend(self.sessions.iter().filter(|(_, s)| !s.flushes.is_empty()).map(|(rank, _)| *rank));
        ranks.sort_unstable();
        ranks.dedup();
        ranks.into_iter().for_each(|rank| self.ask_flush_log(rank));
        let (tid, flush) = (self.last_tid, self.last_flush);
        *stage = Stage::Settle(Settle { tid, flush, node, is_closing: false });
        self.settling.insert(ticket);
    }

    fn is_settled(&self, settle: &Settle) -> bool {
        let is_about =
            |r: &Request| settle.node.is_none_or(|n| r.touches.contains(&n) || r.target == Some(n));
        let waits = |(tid, r): (&u64, &Request)| {
            let is_change = r.msg.op.is_write() || r.is_unsafe;
            *tid <= settle.tid && is_change && r.msg.op != FsOp::SETFILELOCK && is_about(r)
        };
        if self.requests.iter().any(waits) {
            return false;
        }
        match settle.node {
            Some(node) => {
                self.inodes.get(&node).is_none_or(|i| i.flushing.keys().all(|tid| *tid > settle.flush))
            }
            None => self.sessions.values().all(|s| s.flushes.first().is_none_or(|tid| *tid > settle.flush)),
        }
    }

    pub(crate) fn fsync(&mut self, ticket: Ticket, handle: Handle, stage: &mut Stage, event: Event) -> Step {
        let node = self.handles.get(&handle).ok_or(Errno::EBADF)?.node;
        if let Event::Start = event {
            self.check_caps(node, true);
            self.begin_settling(ticket, Some(node), stage);
        }
        let Stage::Settle(settle) = stage else { return Err(Errno::EIO) };
        if let Some(errno) = self.inodes.get_mut(&node).and_then(|i| i.error.take()) {
            return Err(errno);
        }
        Ok(self.is_settled(settle).then_some(Answer::Done))
    }

    pub(crate) fn sync(&mut self, ticket: Ticket, stage: &mut Stage, event: Event) -> Step {
        if let Event::Start = event {
            self.flush_all();
            self.begin_settling(ticket, None, stage);
        }
        let Stage::Settle(settle) = stage else { return Err(Errno::EIO) };
        Ok(self.is_settled(settle).then_some(Answer::Done))
    }

    pub(crate) fn unmount(&mut self, ticket: Ticket, stage: &mut Stage, event: Event) -> Step {
        if let Event::Start = event {
            if self.is_unmounting || !self.calls.is_empty() {
                return Err(Errno::EBUSY);
            }
            let handles: Vec<Handle> = self.handles.keys().copied().collect();
            for handle in handles {
                self.close(handle)?;
            }
            self.flush_all();
            self.is_unmounting = true;
            self.begin_settling(ticket, None, stage);
        }
        let Stage::Settle(settle) = stage else { return Err(Errno::EIO) };
        if !self.is_settled(settle) {
            return Ok(None);
        }
        if !settle.is_closing {
            settle.is_closing = true;
            let all: Vec<(Rank, State)> = self.sessions.iter().map(|(rank, s)| (*rank, s.state)).collect();
            for (rank, state) in all {
                match state {
                    State::Rejected => drop(self.sessions.remove(&rank)),
                    State::Opening => self.close_session(rank, Errno::ESHUTDOWN),
                    State::Open | State::Closing => self.ask_close(rank),
                }
            }
        }
        Ok(self.sessions.is_empty().then_some(Answer::Done))
    }
}
