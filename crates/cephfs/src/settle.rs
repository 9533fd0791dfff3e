//! Waiting until what was done is safe: fsync, sync, unmount.
//!
//! Source: Client::_fsync, _sync_fs, _unmount.

use maps::Rank;
use messages::fs::FsOp;
use types::Errno;

use crate::call::{Event, Stage, Step};
use crate::core::Client;
use crate::inode::Inode;
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
    /// What is dirty and waits for a capability to be flushed with.
    unsent: Vec<Node>,
    /// Losses that were told before.
    heard: u64,
    is_closing: bool,
}

impl Client {
    fn begin_settling(&mut self, ticket: Ticket, node: Option<Node>, heard: u64, stage: &mut Stage) {
        match node {
            Some(node) => self.write_back(node),
            None => self.flush_all(),
        }
        let is_about = |n: &Node| node.is_none_or(|node| node == *n);
        let waits = |(n, i): &(&Node, &Inode)| is_about(n) && i.is_unsent();
        let unsent = self.inodes.iter().filter(waits).map(|(node, _)| *node).collect();
        let is_unsafe = |r: &&Request| r.is_unsafe;
        let mut ranks: Vec<Rank> = self.requests.values().filter(is_unsafe).filter_map(|r| r.rank).collect();
        ranks.extend(self.sessions.iter().filter(|(_, s)| !s.flushes.is_empty()).map(|(rank, _)| *rank));
        ranks.sort_unstable();
        ranks.dedup();
        ranks.into_iter().for_each(|rank| self.ask_flush_log(rank));
        let (tid, flush) = (self.last_tid, self.last_flush);
        *stage = Stage::Settle(Settle { tid, flush, node, unsent, heard, is_closing: false });
        self.settling.insert(ticket);
    }

    /// What waited for a capability is part of a flush once it has one.
    fn settle_unsent(&mut self, settle: &mut Settle) {
        let is_unsent = |client: &Self, node: &Node| client.inodes.get(node).is_some_and(Inode::is_unsent);
        for node in std::mem::take(&mut settle.unsent) {
            if is_unsent(self, &node) {
                self.write_back(node);
            }
            if is_unsent(self, &node) {
                settle.unsent.push(node);
            } else {
                settle.flush = self.last_flush;
            }
        }
    }

    fn is_settled(&mut self, settle: &mut Settle) -> bool {
        self.settle_unsent(settle);
        let is_about =
            |r: &Request| settle.node.is_none_or(|n| r.touches.contains(&n) || r.target == Some(n));
        let waits = |(tid, r): (&u64, &Request)| {
            let is_change = r.msg.op.is_write() || r.is_unsafe;
            *tid <= settle.tid && is_change && r.msg.op != FsOp::SETFILELOCK && is_about(r)
        };
        if !settle.unsent.is_empty() || self.requests.iter().any(waits) {
            return false;
        }
        let is_later = |tid: &u64| *tid > settle.flush;
        match settle.node {
            Some(node) => self.inodes.get(&node).is_none_or(|i| i.flushing.keys().all(is_later)),
            None => {
                let of_ranks = self.sessions.values().filter_map(|s| s.flushes.first());
                of_ranks.chain(self.orphans.first()).all(is_later)
            }
        }
    }

    pub(crate) fn fsync(&mut self, ticket: Ticket, handle: Handle, stage: &mut Stage, event: Event) -> Step {
        if let Event::Start = event {
            let file = *self.handles.get(&handle).ok_or(Errno::EBADF)?;
            self.begin_settling(ticket, Some(file.node), file.heard, stage);
        }
        let Stage::Settle(settle) = stage else { return Err(Errno::EIO) };
        if !self.is_settled(settle) {
            return Ok(None);
        }
        let losses = settle.node.and_then(|node| self.inodes.get_mut(&node)).map(|i| &mut i.losses);
        let Some((heard, errno)) = losses.and_then(|l| l.tell(settle.heard)) else {
            return Ok(Some(Answer::Done));
        };
        if let Some(file) = self.handles.get_mut(&handle) {
            file.heard = heard;
        }
        Err(errno)
    }

    pub(crate) fn sync(&mut self, ticket: Ticket, stage: &mut Stage, event: Event) -> Step {
        if let Event::Start = event {
            self.begin_settling(ticket, None, self.losses.told(), stage);
        }
        let Stage::Settle(settle) = stage else { return Err(Errno::EIO) };
        if !self.is_settled(settle) {
            return Ok(None);
        }
        self.losses.tell(settle.heard).map_or(Ok(Some(Answer::Done)), |(_, errno)| Err(errno))
    }

    pub(crate) fn unmount(&mut self, ticket: Ticket, stage: &mut Stage, event: Event) -> Step {
        if let Event::Start = event {
            if !self.calls.is_empty() {
                return Err(Errno::EBUSY);
            }
            let handles: Vec<Handle> = self.handles.keys().copied().collect();
            for handle in handles {
                self.close(handle)?;
            }
            self.begin_settling(ticket, None, self.losses.told(), stage);
            self.is_unmounting = true;
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
                    State::Rejected(_) => drop(self.sessions.remove(&rank)),
                    State::Opening => self.close_session(rank, Errno::ESHUTDOWN),
                    State::Open | State::Closing => self.ask_close(rank),
                }
            }
        }
        if !self.sessions.is_empty() {
            return Ok(None);
        }
        self.losses.tell(settle.heard).map_or(Ok(Some(Answer::Done)), |(_, errno)| Err(errno))
    }
}
