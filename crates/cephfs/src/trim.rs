//! Forgetting inodes that nobody uses, when there are too many or a server asks for capabilities back.
//!
//! Source: Client::trim_caps, trim_cache.

use maps::Rank;

use crate::core::Client;
use crate::inode::Inode;
use crate::io::Node;

/// Realms that are kept without a look.
const MIN_REALMS: usize = 64;

impl Client {
    pub(crate) fn trim(&mut self) {
        let excess = self.inodes.len().saturating_sub(self.settings.max_inodes);
        if excess > 0 {
            self.forget_oldest(excess, |_| true);
        }
        // Looked through when there are twice as many as were in use.
        if self.realms.len() > 2 * self.realms_in_use.max(MIN_REALMS) {
            self.forget_realms();
            self.realms_in_use = self.realms.len();
        }
        self.forget_unlinked();
    }

    /// A server keeps what has no name for as long as somebody has a capability of it. Source:
    /// Client::_try_to_trim_inode.
    fn forget_unlinked(&mut self) {
        let nodes: Vec<Node> = self.unlinked.iter().copied().collect();
        for node in nodes {
            let Some(inode) = self.inodes.get(&node).filter(|i| i.stat.nlink == 0 && node != self.root)
            else {
                self.unlinked.remove(&node);
                continue;
            };
            if inode.is_idle() {
                self.unlinked.remove(&node);
                self.forget(node);
            }
        }
    }

    /// A server wants us to hold no more than `max` capabilities of it.
    pub(crate) fn recall(&mut self, rank: Rank, max: usize) {
        let held = self.inodes.values().filter(|i| i.caps.contains_key(&rank)).count();
        if let Some(excess) = held.checked_sub(max).filter(|n| *n > 0) {
            self.forget_oldest(excess, |i| i.caps.contains_key(&rank));
        }
        self.flush_releases();
    }

    /// Folders after what is in them: a folder with known names that lead to known inodes stays.
    fn forget_oldest(&mut self, count: usize, which: impl Fn(&Inode) -> bool) {
        let mut left = count;
        // Once the lowest are gone, what was above them may go.
        while left > 0 {
            let may = |(node, i): &(&Node, &Inode)| {
                **node != self.root && i.is_idle() && which(i) && self.is_leaf(i)
            };
            let mut nodes: Vec<(u64, Node)> =
                self.inodes.iter().filter(may).map(|(node, i)| (i.touched, *node)).collect();
            nodes.sort_unstable();
            nodes.truncate(left);
            if nodes.is_empty() {
                return;
            }
            left -= nodes.len();
            nodes.into_iter().for_each(|(_, node)| self.forget(node));
        }
    }

    fn is_leaf(&self, inode: &Inode) -> bool {
        let is_known = |node: &Node| self.inodes.contains_key(node);
        !inode.dentries.values().any(|d| d.target.as_ref().is_some_and(is_known))
    }

    fn forget(&mut self, node: Node) {
        let ranks: Vec<Rank> =
            self.inodes.get(&node).map(|i| i.caps.keys().copied().collect()).unwrap_or_default();
        ranks.into_iter().for_each(|rank| self.remove_cap(node, rank, true));
        let Some(inode) = self.inodes.remove(&node) else { return };
        for (dir, name) in inode.names {
            self.forget_name(dir, &name);
        }
    }
}
