//! Names in folders: for how long each may be taken for granted, by its lease or by the folder's shared
//! capability.

use std::time::Duration;

use maps::Rank;
use messages::fs::{Caps, FileName, LeaseAction, LeaseStat, MClientLease};

use crate::core::Client;
use crate::io::Node;

/// Names that lead nowhere and are remembered, in one folder.
const MAX_NEGATIVE: usize = 1024;

/// What a name leads to; `None` for nowhere.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Dentry {
    pub target: Option<Node>,
    lease_rank: Rank,
    lease_generation: u64,
    lease_until: Duration,
    /// `Inode::shared_gen` when it was learnt.
    shared_gen: u64,
}

/// What is known of a name without asking.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Known {
    Leads(Node),
    Nowhere,
    Unknown,
}

impl Client {
    /// Source: Client::_lookup.
    pub(crate) fn known(&self, dir: Node, name: &FileName) -> Known {
        let Some(inode) = self.inodes.get(&dir).filter(|_| dir.is_head()) else { return Known::Unknown };
        let is_shared = self.issued(dir).contains(Caps::FILE_SHARED);
        let Some(dentry) = inode.dentries.get(name) else {
            return if is_shared && inode.is_complete { Known::Nowhere } else { Known::Unknown };
        };
        let is_covered = is_shared && dentry.shared_gen == inode.shared_gen;
        if !is_covered && !self.is_leased(dentry) {
            return Known::Unknown;
        }
        match dentry.target {
            Some(node) if self.inodes.contains_key(&node) => Known::Leads(node),
            Some(_) => Known::Unknown,
            None => Known::Nowhere,
        }
    }

    fn is_leased(&self, dentry: &Dentry) -> bool {
        self.now.mono < dentry.lease_until
            && self
                .sessions
                .get(&dentry.lease_rank)
                .is_some_and(|s| s.generation == dentry.lease_generation && self.now.mono < s.good_until)
    }

    /// A name as a reply shows it; `since` is when its request was sent.
    pub(crate) fn link(
        &mut self,
        dir: Node,
        name: &FileName,
        target: Option<Node>,
        lease: &LeaseStat,
        rank: Rank,
        since: Duration,
    ) {
        if !dir.is_head() {
            return self.set_snap_path(dir, name, target);
        }
        let generation = self.sessions.get(&rank).map_or(0, |s| s.generation);
        let Some(inode) = self.inodes.get_mut(&dir) else { return };
        let is_valid = lease.mask & LeaseStat::VALID != 0 && lease.duration_ms > 0;
        if target.is_none() && !inode.dentries.contains_key(name) {
            let negative = inode.dentries.values().filter(|d| d.target.is_none()).count();
            if !is_valid || negative >= MAX_NEGATIVE {
                return;
            }
        }
        let shared_gen = inode.shared_gen;
        let dentry = inode.dentries.entry(name.clone()).or_default();
        let before = std::mem::replace(&mut dentry.target, target);
        dentry.shared_gen = shared_gen;
        if is_valid {
            dentry.lease_rank = rank;
            dentry.lease_generation = generation;
            dentry.lease_until = since.saturating_add(Duration::from_millis(lease.duration_ms.into()));
        } else if before != target {
            dentry.lease_until = Duration::ZERO;
        }
        if before != target && before.is_some() {
            inode.release_count += 1;
            self.forget_parent(before, dir, name);
        }
        if let Some(child) = target.and_then(|node| self.inodes.get_mut(&node)) {
            child.parent = Some((dir, name.clone()));
        }
    }

    /// A name is gone.
    pub(crate) fn unlink(&mut self, dir: Node, name: &FileName) {
        let Some(inode) = self.inodes.get_mut(&dir) else { return };
        if let Some(dentry) = inode.dentries.remove(name) {
            inode.release_count += 1;
            self.forget_parent(dentry.target, dir, name);
        }
    }

    /// Nothing is known of a name any more.
    pub(crate) fn forget_name(&mut self, dir: Node, name: &FileName) {
        self.unlink(dir, name);
        if let Some(inode) = self.inodes.get_mut(&dir) {
            inode.is_complete = false;
            inode.release_count += 1;
        }
    }

    fn forget_parent(&mut self, child: Option<Node>, dir: Node, name: &FileName) {
        if let Some(child) = child.and_then(|node| self.inodes.get_mut(&node)) {
            if child.parent.as_ref().is_some_and(|(d, n)| *d == dir && n == name) {
                child.parent = None;
            }
        }
    }

    /// The path of a snapshot's inode leads through the folder `.snap`, which is an empty name.
    fn set_snap_path(&mut self, dir: Node, name: &FileName, target: Option<Node>) {
        let Some(node) = target.filter(|n| !n.is_head()) else { return };
        let Some((base, path)) = self.path_of(dir) else { return };
        let path = [path.as_ref(), b"/", name.as_ref()].concat().into();
        if let Some(child) = self.inodes.get_mut(&node) {
            child.snap_path = Some((base, path));
            child.parent = Some((dir, name.clone()));
        }
    }

    /// How requests name an inode: by its number, or by a snapshot's path from a number.
    pub(crate) fn path_of(&self, node: Node) -> Option<(types::Ino, FileName)> {
        if node.is_head() || node.is_snapdir() {
            return Some((node.ino, FileName::new()));
        }
        self.inodes.get(&node)?.snap_path.clone()
    }

    /// A server takes a lease back. Source: Client::handle_lease.
    pub(crate) fn on_lease(&mut self, rank: Rank, m: MClientLease) {
        self.got_push(rank);
        if m.action != LeaseAction::REVOKE {
            return;
        }
        let dir = Node::head(m.ino);
        let dentry = self.inodes.get_mut(&dir).and_then(|i| i.dentries.get_mut(&m.name));
        if let Some(dentry) = dentry.filter(|d| d.lease_rank == rank) {
            dentry.lease_until = Duration::ZERO;
        }
        let release = MClientLease { action: LeaseAction::RELEASE, duration_ms: 0, ..m };
        self.send(rank, 0, release.into());
    }
}
