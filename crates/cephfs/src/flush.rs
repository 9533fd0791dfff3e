//! Writing back what was changed under capabilities, and giving back what is not needed.
//!
//! Source: Client::mark_caps_flushing, kick_flushing_caps, handle_cap_flush_ack.

use maps::Rank;
use messages::fs::Caps;

use crate::core::Client;
use crate::inode::Inode;
use crate::io::Node;

impl Client {
    /// What is dirty becomes part of a flush.
    pub(crate) fn mark_flushing(&mut self, node: Node) -> Option<(u64, Caps)> {
        let inode = self.inodes.get_mut(&node).filter(|i| !i.dirty.is_empty())?;
        let session = self.sessions.get_mut(&inode.auth?)?;
        self.last_flush += 1;
        let tid = self.last_flush;
        let dirty = std::mem::take(&mut inode.dirty);
        inode.hold_until = None;
        inode.flushing.insert(tid, dirty);
        session.flushes.insert(tid);
        Some((tid, dirty))
    }

    /// Sends what is dirty, or asks for a capability to send it with.
    pub(crate) fn write_back(&mut self, node: Node) {
        let Some(inode) = self.inodes.get(&node).filter(|_| node.is_head()) else { return };
        if inode.auth.is_some() || !inode.is_unsent() {
            return self.check_caps(node, true);
        }
        if let Err(errno) = self.renew_caps(node) {
            self.lose_dirty(node, errno);
        }
    }

    /// A rank is responsible again after a time without one.
    pub(crate) fn resume_flushes(&mut self, node: Node) {
        let Some(inode) = self.inodes.get(&node).filter(|i| i.is_dirty()) else { return };
        if !inode.flushing.is_empty() {
            self.send_flushes(node);
        }
        self.flush_snaps(node);
        self.check_caps(node, true);
        self.wake_settling();
    }

    /// Sends all flushes of an inode again. Source: Client::kick_flushing_caps.
    pub(crate) fn send_flushes(&mut self, node: Node) {
        let Some(inode) = self.inodes.get_mut(&node) else { return };
        inode.kick_flush = false;
        let Some(rank) = inode.auth else { return };
        let (wanted, used) = (inode.wanted(), inode.used() | inode.dirty);
        let Some(cap) = inode.caps.get(&rank) else { return };
        let all = cap.issued | cap.implemented;
        let flushing: Vec<(u64, Caps)> = inode.flushing.iter().map(|(tid, caps)| (*tid, *caps)).collect();
        for (tid, caps) in flushing {
            if !caps.is_empty() {
                self.send_cap(node, rank, used, wanted, all, Some((tid, caps)));
                continue;
            }
            let snaps = self.inodes.get(&node).map(|i| &i.cap_snaps);
            let snap = snaps.and_then(|s| s.iter().find(|(_, s)| s.flush_tid == tid));
            if let Some((follows, snap)) = snap.map(|(f, s)| (*f, s.clone())) {
                self.send_snap_flush(node, follows, &snap);
            }
        }
    }

    /// The server is active again: what was put off goes.
    pub(crate) fn kick_flushes(&mut self, rank: Rank) {
        let waits = |i: &Inode| i.kick_flush && i.auth == Some(rank);
        let nodes: Vec<Node> = self.inodes.iter().filter(|(_, i)| waits(i)).map(|(node, _)| *node).collect();
        nodes.into_iter().for_each(|node| self.send_flushes(node));
    }

    /// Whichever rank said so: the inode may have moved meanwhile.
    pub(crate) fn flushes_over(&mut self, tids: &[u64]) {
        for session in self.sessions.values_mut() {
            session.flushes.retain(|tid| !tids.contains(tid));
        }
        self.orphans.retain(|tid| !tids.contains(tid));
    }

    /// Source: Client::handle_cap_flush_ack.
    pub(crate) fn flushed(&mut self, node: Node, tid: u64) {
        let Some(inode) = self.inodes.get_mut(&node) else { return };
        let done = |t: u64, caps: Caps| t <= tid && !caps.is_empty();
        let tids: Vec<u64> = inode.flushing.iter().filter(|(t, c)| done(**t, **c)).map(|(t, _)| *t).collect();
        for tid in &tids {
            inode.flushing.remove(tid);
        }
        self.flushes_over(&tids);
        self.wake(node);
        self.wake_settling();
    }

    /// What has been kept back for long enough.
    pub(crate) fn flush_due(&mut self) {
        let is_due = |i: &Inode| i.hold_until.is_some_and(|at| at <= self.now.mono);
        let nodes: Vec<Node> = self.inodes.iter().filter(|(_, i)| is_due(i)).map(|(node, _)| *node).collect();
        for node in nodes {
            if let Some(inode) = self.inodes.get_mut(&node) {
                inode.hold_until = None;
            }
            self.write_back(node);
        }
    }

    /// All that is dirty.
    pub(crate) fn flush_all(&mut self) {
        let is_due = |i: &Inode| i.is_unsent() || i.hold_until.is_some();
        let nodes: Vec<Node> = self.inodes.iter().filter(|(_, i)| is_due(i)).map(|(node, _)| *node).collect();
        nodes.into_iter().for_each(|node| self.write_back(node));
    }
}
