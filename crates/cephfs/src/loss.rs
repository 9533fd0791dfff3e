//! What could not be written back, and who has heard of it: each handle once, as with Linux' errseq.

use types::Errno;

use crate::core::Client;
use crate::io::Node;

/// Losses of one inode, or of all of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Losses {
    count: u64,
    last: Option<Errno>,
    told: u64,
}

impl Losses {
    fn note(&mut self, errno: Errno) {
        self.count += 1;
        self.last = Some(errno);
    }

    /// Up to where a new listener has heard: not of what nobody heard of yet.
    pub fn told(&self) -> u64 {
        self.told
    }

    /// What is new to a listener that has heard of so many.
    pub fn tell(&mut self, heard: u64) -> Option<(u64, Errno)> {
        let new = self.last.filter(|_| self.count > heard)?;
        self.told = self.count;
        Some((self.count, new))
    }
}

impl Client {
    /// Something of these inodes is lost.
    pub(crate) fn lose(&mut self, nodes: impl IntoIterator<Item = Node>, errno: Errno) {
        self.losses.note(errno);
        for node in nodes {
            if let Some(inode) = self.inodes.get_mut(&node) {
                inode.losses.note(errno);
            }
        }
    }

    /// Nothing is left to write an inode's changes back with.
    pub(crate) fn lose_dirty(&mut self, node: Node, errno: Errno) {
        let Some(inode) = self.inodes.get_mut(&node) else { return };
        let is_lost = inode.is_dirty();
        (inode.dirty, inode.hold_until) = (Default::default(), None);
        for tid in std::mem::take(&mut inode.flushing).keys() {
            self.orphans.remove(tid);
        }
        inode.cap_snaps.clear();
        (inode.wanted_max, inode.requested_max) = (0, 0);
        if is_lost {
            self.lose([node], errno);
        }
    }
}
