//! The holder of a rank changed: the new one hears what we have, and what we asked.
//!
//! Source: Client::send_reconnect, resend_unsafe_requests, early_kick_flushing_caps.

use std::collections::BTreeSet;

use codec::Encode;
use maps::Rank;
use messages::fs::{CapReconnect, Caps, FileName, MClientReconnect, SnapRealmReconnect};
use types::{Errno, Ino};

use crate::core::Client;
use crate::inode::Inode;
use crate::io::Node;
use crate::session::State;

/// Capabilities in one message.
const MAX_CAPS: usize = 65_536;

impl Client {
    pub(crate) fn reconnect(&mut self, rank: Rank) {
        let Some(session) = self.sessions.get_mut(&rank) else { return };
        match session.state {
            // It is asked when it serves.
            State::Opening | State::Rejected(_) => return,
            State::Closing => return self.close_session(rank, Errno::EIO),
            State::Open => {}
        }
        session.is_read_only = false;
        session.releases.clear();
        session.pushes = 0;
        self.connect(rank);
        self.resend_requests(rank);
        self.flush_before_reconnect(rank);
        let nodes: Vec<Node> = {
            let has = |i: &Inode| i.caps.contains_key(&rank);
            self.inodes.iter().filter(|(node, i)| node.is_head() && has(i)).map(|(node, _)| *node).collect()
        };
        let mut told = BTreeSet::new();
        let mut parts = nodes.chunks(MAX_CAPS).peekable();
        if nodes.is_empty() {
            self.send(rank, 0, MClientReconnect::default().into());
        }
        while let Some(part) = parts.next() {
            let mut m = MClientReconnect { more: parts.peek().is_some(), ..MClientReconnect::default() };
            for node in part {
                self.tell_cap(rank, *node, &mut m, &mut told);
            }
            self.send(rank, 0, m.into());
        }
    }

    fn tell_cap(&mut self, rank: Rank, node: Node, m: &mut MClientReconnect, told: &mut BTreeSet<Ino>) {
        let generation = self.sessions.get(&rank).map_or(0, |s| s.generation);
        let Some(inode) = self.inodes.get_mut(&node) else { return };
        let wanted = inode.wanted();
        let Some(cap) = inode.caps.get_mut(&rank) else { return };
        (cap.seq, cap.issue_seq, cap.migrate_seq) = (0, 0, 0);
        if cap.generation < generation {
            cap.generation = generation;
            (cap.issued, cap.implemented) = (Caps::PIN, Caps::PIN);
        } else {
            cap.issued = cap.implemented;
        }
        let has_locks = !inode.locks.fcntl.is_empty() || !inode.locks.flock.is_empty();
        let parent = inode.parent.as_ref().filter(|(dir, _)| dir.is_head());
        let (path_base, path) = match parent {
            Some((dir, name)) => (dir.ino, name.clone()),
            None => (node.ino, FileName::new()),
        };
        let told_cap = CapReconnect {
            path,
            path_base,
            cap_id: cap.id,
            wanted,
            issued: cap.issued,
            realm: inode.realm,
            flock: if has_locks { inode.locks.to_bytes() } else { FileName::new() },
            snap_follows: inode.cap_snaps.keys().next().copied().unwrap_or(0),
        };
        let realm = inode.realm;
        m.caps.insert(node.ino, told_cap);
        if told.insert(realm) {
            if let Some(known) = self.realms.get(&realm) {
                m.realms.push(SnapRealmReconnect { ino: realm, seq: known.seq, parent: known.parent });
            }
        }
    }

    /// Flushes of what is being taken back go first, so that nobody else gets it before they are done; the
    /// others wait until the server is active.
    fn flush_before_reconnect(&mut self, rank: Rank) {
        let is_ours = |i: &Inode| i.auth == Some(rank) && !i.flushing.is_empty();
        let nodes: Vec<Node> =
            self.inodes.iter().filter(|(_, i)| is_ours(i)).map(|(node, _)| *node).collect();
        for node in nodes {
            let Some(inode) = self.inodes.get_mut(&node) else { continue };
            let flushing = inode.flushing.values().fold(Caps::NONE, |all, c| all | *c);
            let Some(cap) = inode.caps.get_mut(&rank) else { continue };
            if cap.issued.contains(flushing) {
                inode.kick_flush = true;
                continue;
            }
            (cap.seq, cap.issue_seq, cap.migrate_seq) = (0, 0, 0);
            cap.issued = cap.implemented;
            self.send_flushes(node);
        }
    }
}
