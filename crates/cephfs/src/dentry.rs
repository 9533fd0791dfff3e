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
        let was_negative = inode.dentries.get(name).is_some_and(|d| d.target.is_none());
        if target.is_none() && !was_negative && (!is_valid || inode.negatives >= MAX_NEGATIVE) {
            return self.unlink(dir, name);
        }
        inode.negatives = inode.negatives.saturating_sub(was_negative.into()) + usize::from(target.is_none());
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
        let Some(child) = target.and_then(|node| self.inodes.get_mut(&node)) else { return };
        let here = (dir, name.clone());
        child.names.insert(here.clone());
        if child.is_dir() {
            // It was renamed: it has one name only.
            let others: Vec<(Node, FileName)> = child.names.iter().filter(|n| **n != here).cloned().collect();
            others.iter().for_each(|(dir, name)| self.forget_name(*dir, name));
        }
        if let Some(child) = target.and_then(|node| self.inodes.get_mut(&node)) {
            child.parent = Some(here);
        }
    }

    /// A name is gone.
    pub(crate) fn unlink(&mut self, dir: Node, name: &FileName) {
        let Some(inode) = self.inodes.get_mut(&dir) else { return };
        if let Some(dentry) = inode.dentries.remove(name) {
            inode.release_count += 1;
            inode.negatives = inode.negatives.saturating_sub(dentry.target.is_none().into());
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
            let gone = (dir, name.clone());
            child.names.remove(&gone);
            if child.parent.as_ref() == Some(&gone) {
                child.parent = child.names.last().cloned();
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inode::Inode;
    use crate::io::Settings;

    const CHILD: Node = Node::head(types::Ino(9));

    fn client() -> Client {
        let mut client = Client::new(Settings::default());
        for node in [Node::ROOT, CHILD] {
            client.inodes.insert(node, Inode::default());
        }
        client
    }

    fn link(client: &mut Client, name: &str, target: Option<Node>, duration_ms: u32) {
        let lease = LeaseStat { mask: LeaseStat::VALID, duration_ms, ..LeaseStat::default() };
        let name = FileName::copy_from_slice(name.as_bytes());
        client.link(Node::ROOT, &name, target, &lease, 0, Duration::ZERO);
    }

    #[test]
    fn names_that_lead_nowhere_are_bounded_wherever_they_led_before() {
        let mut client = client();
        for i in 0..2 * MAX_NEGATIVE {
            link(&mut client, &i.to_string(), Some(CHILD), 1000);
            link(&mut client, &i.to_string(), None, 1000);
        }
        let of_root =
            |client: &Client| (client.inodes[&Node::ROOT].dentries.len(), client.inodes[&CHILD].names.len());
        assert_eq!(of_root(&client), (MAX_NEGATIVE, 0));
        link(&mut client, "0", Some(CHILD), 1000);
        assert_eq!(of_root(&client), (MAX_NEGATIVE, 1));
        // Without a lease there is nothing to remember.
        link(&mut client, "0", None, 0);
        assert_eq!(of_root(&client), (MAX_NEGATIVE - 1, 0));
        link(&mut client, "new", None, 1000);
        assert_eq!(of_root(&client), (MAX_NEGATIVE, 0));
        client.assert_invariants();
    }

    #[test]
    fn all_names_go_with_an_inode_that_is_forgotten() {
        let mut client = client();
        for name in ["one", "two", "three"] {
            link(&mut client, name, Some(CHILD), 1000);
        }
        client.settings.max_inodes = 1;
        client.trim();
        assert_eq!((client.inodes.len(), client.inodes[&Node::ROOT].dentries.len()), (1, 0));
    }

    /// A folder that another client renamed is where it was last seen.
    #[test]
    fn a_folder_has_one_name() {
        let mut client = client();
        client.inodes.entry(CHILD).or_default().stat.mode = 0o040_755;
        for name in ["old", "new"] {
            link(&mut client, name, Some(CHILD), 1000);
        }
        let names: Vec<_> = client.inodes[&Node::ROOT].dentries.keys().cloned().collect();
        assert_eq!(names, ["new"]);
        assert_eq!(client.inodes[&CHILD].parent, Some((Node::ROOT, FileName::from_static(b"new"))));
    }
}
