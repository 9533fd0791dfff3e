//! Answers of metadata servers: what they show goes into memory, then whoever asked hears.
//!
//! Source: Client::handle_client_reply, insert_trace.

use std::time::Duration;

use codec::Decode;
use maps::Rank;
use messages::fs::{FileName, FsOp, LeaseStat, MClientReply, MClientRequest, ReaddirReply, Trace};
use types::Errno;

use crate::call::{Event, Reply, failure};
use crate::core::Client;
use crate::io::{Attr, Cursor, Entry, Node};

impl Client {
    pub(crate) fn on_reply(&mut self, rank: Rank, tid: u64, m: &MClientReply) {
        let Some(request) = self.requests.get_mut(&tid) else { return };
        if request.is_unsafe {
            if m.is_safe {
                self.requests.remove(&tid);
                self.wake_settling();
            }
            return;
        }
        if m.result == Errno::ESTALE.neg() && self.ask_elsewhere(rank, tid) {
            return;
        }
        let reply = self.take_reply(rank, tid, m);
        let Some(request) = self.requests.get_mut(&tid) else { return };
        let ticket = request.ticket.take();
        let renews = request.about.filter(|_| request.renews);
        request.target = reply.node;
        request.is_unsafe = !m.is_safe;
        let is_forgotten = ticket.is_none() && renews.is_none();
        if reply.result.is_ok() {
            self.undo_lock(tid);
        }
        if m.is_safe {
            self.requests.remove(&tid);
            self.wake_settling();
        }
        if let Some(node) = reply.node.filter(|_| is_forgotten) {
            // Nobody wants what it brought.
            self.check_caps(node, false);
        }
        if let Some(node) = renews {
            self.renewed_caps(node, reply.result);
        }
        if let Some(ticket) = ticket {
            self.ready.push_back((ticket, Event::Reply(reply)));
        }
    }

    /// The rank does not know the inode: perhaps another one is responsible by now.
    fn ask_elsewhere(&mut self, rank: Rank, tid: u64) -> bool {
        let Some(request) = self.requests.get(&tid) else { return false };
        let better = self.rank_for(request.about);
        if better.is_none() || better == Some(rank) {
            return false;
        }
        if let Some(request) = self.requests.get_mut(&tid) {
            (request.rank, request.resend_rank) = (None, better);
        }
        self.send_waiting();
        true
    }

    fn take_reply(&mut self, rank: Rank, tid: u64, m: &MClientReply) -> Reply {
        let (Ok(trace), Ok(snaps)) = (m.trace(), m.snap_trace()) else {
            return Reply::failed(Errno::EBADMSG);
        };
        self.update_realms(&snaps, true);
        let Some(request) = self.requests.get(&tid) else { return Reply::failed(Errno::EIO) };
        let (since, about, old_name) = (request.sent_at, request.about, request.old_name.clone());
        let snap_name = request.msg.path.path.rsplit(|b| *b == b'/').next().map(FileName::copy_from_slice);
        let changes_name = request.msg.flags & MClientRequest::WANT_DENTRY != 0;
        let node = self.take_trace(rank, since, &trace);
        let mut reply = Reply {
            result: failure(m.result).map_or(Ok(()), Err),
            node,
            extra: m.extra.clone(),
            ..Reply::default()
        };
        if reply.result.is_err() {
            return reply;
        }
        if let (true, None, Some(dir), Some(name)) = (changes_name, &trace.dentry, about, &snap_name) {
            // It may lead elsewhere now. Source: Client::insert_trace.
            self.forget_name(dir, name);
        }
        match m.op {
            FsOp::READDIR | FsOp::LSSNAP => {
                let dir = about.unwrap_or(Node::ROOT);
                match ReaddirReply::from_bytes(m.extra.clone()) {
                    Ok(listing) => self.take_listing(rank, since, dir, listing, &mut reply),
                    Err(_) => reply.result = Err(Errno::EBADMSG),
                }
            }
            FsOp::LOOKUPSNAP | FsOp::MKSNAP => {
                // The trace shows the folder as it was, without its name.
                if let (Some(dir), Some(node), Some(name)) = (about, node, snap_name) {
                    self.link(dir, &name, Some(node), &LeaseStat::default(), rank, since);
                }
            }
            _ => {}
        }
        if let Some((dir, name)) = old_name {
            self.unlink(dir, &name);
        }
        reply
    }

    fn take_trace(&mut self, rank: Rank, since: Duration, trace: &Trace) -> Option<Node> {
        let target = trace.target.as_ref().map(|stat| self.fill(rank, stat));
        if let Some(d) = &trace.dentry {
            let dir = self.fill(rank, &d.dir);
            self.link(dir, &d.name, target, &d.lease, rank, since);
        }
        target
    }

    fn take_listing(&mut self, rank: Rank, since: Duration, dir: Node, m: ReaddirReply, reply: &mut Reply) {
        let frag = m.frag.frag;
        let last = m.entries.last().map(|e| e.name.clone());
        for entry in m.entries {
            let node = self.fill(rank, &entry.inode);
            self.link(dir, &entry.name, Some(node), &entry.lease, rank, since);
            if let Some(attr) = self.attr(node) {
                reply.entries.push(Entry { name: entry.name, attr });
            }
        }
        reply.next = match (m.flags & ReaddirReply::END != 0, last) {
            (false, Some(after)) => Some(Cursor { frag, after, ..Cursor::default() }),
            _ if dir.is_snapdir() => None,
            _ => frag.next().map(|frag| Cursor { frag, ..Cursor::default() }),
        };
    }

    pub(crate) fn attr(&self, node: Node) -> Option<Attr> {
        let real = if node.is_snapdir() { Node::head(node.ino) } else { node };
        self.inodes.get(&real).map(|inode| Attr::of(node, &inode.stat))
    }
}
