//! Realms of snapshots: which snapshots writes have to preserve, and what was being changed when one was
//! taken.
//!
//! Source: Client::update_snap_trace, queue_cap_snap, finish_cap_snap, flush_snaps, handle_snap.

use std::collections::{BTreeMap, BTreeSet};

use maps::Rank;
use messages::fs::{MClientQuota, MClientSnap, SnapOp, SnapRealmInfo, SnapTrace};
use types::{Ino, SnapContext};

use crate::core::Client;
use crate::inode::{CapSnap, Inode};
use crate::io::Node;

/// Realms within realms that are followed; a longer chain is a server's fault.
const MAX_DEPTH: usize = 1024;

#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Realm {
    pub seq: u64,
    pub created: u64,
    pub parent: Ino,
    parent_since: u64,
    snaps: Vec<u64>,
    prior_parent_snaps: Vec<u64>,
}

impl Client {
    /// Source: SnapRealm::build_snap_context in src/client/SnapRealm.cc.
    pub(crate) fn realm_context(&self, realm: Ino) -> SnapContext {
        let (mut seq, mut since, mut snaps) = (0, 0, BTreeSet::new());
        let mut at = realm;
        for _ in 0..MAX_DEPTH {
            let Some(known) = self.realms.get(&at) else { break };
            seq = seq.max(known.seq);
            snaps.extend(known.snaps.iter().chain(&known.prior_parent_snaps).filter(|s| **s >= since));
            since = since.max(known.parent_since);
            at = known.parent;
        }
        SnapContext { seq, snaps: snaps.into_iter().rev().collect() }
    }

    /// Keeps those realms that inodes are in, and those that they are within.
    pub(crate) fn forget_realms(&mut self) {
        let mut used = BTreeSet::new();
        for inode in self.inodes.values() {
            let mut at = inode.realm;
            while let Some(realm) = self.realms.get(&at).filter(|_| used.insert(at)) {
                at = realm.parent;
            }
        }
        self.realms.retain(|ino, _| used.contains(ino));
    }

    /// Whether a realm is `outer`, or within it.
    fn is_within(&self, realm: Ino, outer: &BTreeSet<Ino>) -> bool {
        let mut at = realm;
        for _ in 0..MAX_DEPTH {
            if outer.contains(&at) {
                return true;
            }
            let Some(known) = self.realms.get(&at) else { return false };
            at = known.parent;
        }
        false
    }

    /// Takes realms over. What was changed before belongs to the snapshots that are new: `is_kept` unless
    /// they were removed.
    pub(crate) fn update_realms(&mut self, trace: &SnapTrace, is_kept: bool) {
        let is_new = |info: &&SnapRealmInfo| {
            self.realms.get(&info.ino).is_none_or(|r| info.seq > r.seq || info.parent != r.parent)
        };
        let changed: BTreeSet<Ino> = trace.0.iter().filter(is_new).map(|info| info.ino).collect();
        if changed.is_empty() {
            return;
        }
        let affected: Vec<(Node, SnapContext)> =
            if is_kept { self.contexts_within(&changed) } else { Vec::new() };
        for info in &trace.0 {
            let realm = self.realms.entry(info.ino).or_default();
            if info.seq >= realm.seq {
                (realm.seq, realm.created, realm.parent_since) = (info.seq, info.created, info.parent_since);
                realm.snaps.clone_from(&info.snaps);
                realm.prior_parent_snaps.clone_from(&info.prior_parent_snaps);
            }
            realm.parent = info.parent;
        }
        for (node, old) in affected {
            self.keep_for_snap(node, &old);
        }
    }

    /// Inodes that may have changes to be kept, with their contexts.
    fn contexts_within(&self, realms: &BTreeSet<Ino>) -> Vec<(Node, SnapContext)> {
        let may = |i: &Inode| i.writing > 0 || !i.dirty.is_empty();
        let inodes = self.inodes.iter().filter(|(_, i)| may(i) && self.is_within(i.realm, realms));
        inodes.map(|(node, i)| (*node, self.realm_context(i.realm))).collect()
    }

    /// Source: Client::queue_cap_snap.
    fn keep_for_snap(&mut self, node: Node, old: &SnapContext) {
        let new = self.snap_context(node);
        if !new.snaps.iter().any(|snap| *snap > old.seq) {
            return;
        }
        let issued = self.issued(node);
        let Some(inode) = self.inodes.get_mut(&node) else { return };
        if inode.cap_snaps.last_key_value().is_some_and(|(_, s)| s.is_writing) {
            return;
        }
        let is_writing = inode.writing > 0;
        let snap = CapSnap { dirty: inode.dirty, issued, is_writing, flush_tid: 0, stat: inode.stat.clone() };
        inode.cap_snaps.insert(old.seq, snap);
        if !is_writing {
            self.flush_snaps(node);
        }
    }

    /// Writes with the older context are over.
    pub(crate) fn finish_snap(&mut self, node: Node) {
        let Some(inode) = self.inodes.get_mut(&node) else { return };
        let (stat, dirty) = (inode.stat.clone(), inode.dirty);
        let Some(mut last) = inode.cap_snaps.last_entry().filter(|s| s.get().is_writing) else { return };
        let snap = last.get_mut();
        (snap.is_writing, snap.stat) = (false, stat);
        snap.dirty |= dirty;
        self.flush_snaps(node);
        self.wake(node);
    }

    pub(crate) fn flush_snaps(&mut self, node: Node) {
        loop {
            let Some(inode) = self.inodes.get_mut(&node) else { return };
            let Some(session) = inode.auth.and_then(|rank| self.sessions.get_mut(&rank)) else { return };
            let next = inode.cap_snaps.iter_mut().find(|(_, s)| s.flush_tid == 0 && !s.is_writing);
            let Some((follows, snap)) = next else { return };
            if snap.dirty.is_empty() {
                // The server hears that nothing comes, and acknowledges nothing.
                let (follows, snap) = (*follows, snap.clone());
                inode.cap_snaps.remove(&follows);
                self.send_snap_flush(node, follows, &snap);
                continue;
            }
            self.last_flush += 1;
            snap.flush_tid = self.last_flush;
            session.flushes.insert(self.last_flush);
            let (follows, snap) = (*follows, snap.clone());
            inode.flushing.insert(snap.flush_tid, Default::default());
            self.send_snap_flush(node, follows, &snap);
        }
    }

    pub(crate) fn snap_flushed(&mut self, node: Node, follows: u64, tid: u64) {
        let Some(inode) = self.inodes.get_mut(&node) else { return };
        if inode.cap_snaps.get(&follows).is_none_or(|s| s.flush_tid != tid) {
            return;
        }
        inode.cap_snaps.remove(&follows);
        inode.flushing.remove(&tid);
        self.flushes_over(&[tid]);
        self.wake(node);
        self.wake_settling();
    }

    pub(crate) fn on_snap(&mut self, rank: Rank, m: &MClientSnap) {
        self.got_push(rank);
        let mut moved = BTreeMap::new();
        if let (SnapOp::SPLIT, Some(info)) = (m.op, m.trace.0.first()) {
            for node in m.split_inos.iter().map(|ino| Node::head(Ino(*ino))) {
                let Some(realm) = self.inodes.get(&node).map(|i| i.realm) else { continue };
                let is_newer = self.realms.get(&realm).is_some_and(|r| r.created > info.created);
                if realm != m.split && !is_newer {
                    moved.insert(node, self.realm_context(realm));
                }
            }
            for realm in &m.split_realms {
                if let Some(realm) = self.realms.get_mut(&Ino(*realm)) {
                    realm.parent = m.split;
                }
            }
        }
        self.update_realms(&m.trace, m.op != SnapOp::DESTROY);
        for (node, old) in moved {
            let Some(inode) = self.inodes.get_mut(&node) else { continue };
            inode.realm = m.split;
            let may = inode.writing > 0 || !inode.dirty.is_empty();
            if may {
                self.keep_for_snap(node, &old);
            }
        }
    }

    pub(crate) fn on_quota(&mut self, rank: Rank, m: &MClientQuota) {
        self.got_push(rank);
        let Some(inode) = self.inodes.get_mut(&Node::head(m.ino)) else { return };
        let number = |v: i64| u64::try_from(v).unwrap_or(0);
        let stat = &mut inode.stat;
        (stat.quota, stat.rctime) = (m.quota, m.rctime);
        (stat.rbytes, stat.rfiles) = (number(m.rbytes), number(m.rfiles));
        stat.rsubdirs = number(m.rsubdirs);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io::Settings;

    #[test]
    fn realms_are_kept_as_long_as_inodes_are_in_them() {
        let mut client = Client::new(Settings::default());
        for (ino, parent) in [(1, 0), (2, 1), (3, 2), (4, 1), (5, 5)] {
            client.realms.insert(
                Ino(ino),
                Realm { parent: Ino(parent), seq: ino, snaps: vec![ino], ..Realm::default() },
            );
        }
        client.inodes.insert(Node::head(Ino(9)), Inode { realm: Ino(3), ..Inode::default() });
        for ino in 100..1000 {
            client.realms.insert(Ino(ino), Realm { parent: Ino(1), ..Realm::default() });
        }
        client.trim();
        assert_eq!(client.realms.keys().map(|ino| ino.0).collect::<Vec<_>>(), [1, 2, 3]);
        assert_eq!(client.realm_context(Ino(3)), SnapContext { seq: 3, snaps: vec![3, 2, 1] });
        let parent_since = 2;
        client.realms.insert(
            Ino(3),
            Realm { parent: Ino(2), parent_since, seq: 3, snaps: vec![3], ..Realm::default() },
        );
        assert_eq!(client.realm_context(Ino(3)).snaps, [3, 2], "of parents only what came since");
    }
}
