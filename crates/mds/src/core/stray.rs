//! Inodes that have lost their primary name: kept while they are open or linked, then removed with their
//! objects; or given a hard link's name as their primary one.
//!
//! ```text
//! unlink ──> stray ──no link, no capability──> purge queue has it ──> its name among the strays is gone
//!              └──a hard link is seen──> reintegrated
//! ```
//!
//! Source: src/mds/StrayManager.cc.

use types::{Ino, Utime};

use super::cache::{Key, Target};
use super::change::Change;
use super::realm::View;
use super::request::{Run, Stop, Wait};
use super::server::{Dirty, Server};
use crate::format::{DirFrag, NestInfo, PurgeAction, PurgeItem, names};
use types::Errno;

impl Server {
    /// The name that an inode gets among the strays.
    pub(crate) fn stray_place(&mut self, ino: Ino) -> Run<(DirFrag, Key)> {
        let rank = u32::try_from(self.rank).unwrap_or(0);
        let i = (ino.0 % u64::from(names::STRAYS)) as u32;
        let dir = names::stray(rank, i);
        let name = format!("{:x}", ino.0).into_bytes().into();
        let (frag, key) = self.cache.spot(dir, &name).ok_or(Stop::Fail(Errno::EIO))?;
        if self.cache.dir(frag).is_none() {
            self.load_dir(frag)?;
            return Err(Stop::Wait(Wait::Dir(frag)));
        }
        Ok((frag, key))
    }

    /// Whether anything keeps a stray.
    fn is_kept(&self, ino: Ino) -> bool {
        let Some(inode) = self.cache.get(ino) else { return true };
        let i = &inode.store.inode;
        let what = Dirty::Stray(ino);
        i.nlink > 0
            || !inode.caps.is_empty()
            || inode.unsafe_until > self.safe_seq
            || inode.holds.iter().any(|h| matches!(h.until, super::hold::Until::Request(_)))
            || i.truncate_pending > 0
            || inode.needs_recover
            || self.dirty_at.contains_key(&what)
    }

    /// Forgets of a stray what only snapshots had that are gone. Whether others have it still. Source:
    /// SnapRealm::prune_past_parent_snaps, CInode::purge_stale_snap_data.
    fn is_in_snapshots(&mut self, ino: Ino) -> bool {
        let snaps = self.snaps_of(ino, View::Now);
        let all = &self.snaps.snaps;
        let Some(inode) = self.cache.inodes.get_mut(&ino) else { return false };
        let is_dir = inode.is_dir();
        let store = &mut inode.store;
        let Some(realm) = store.realm.as_mut() else { return false };
        realm.past_parent_snaps.retain(|snap| all.contains_key(snap));
        let is_in_any = !realm.past_parent_snaps.is_empty();
        store.old_inodes.retain(|last, old| snaps.has(old.first, *last));
        is_in_any && (is_dir || !store.old_inodes.is_empty())
    }

    pub(crate) fn look_at_strays(&mut self) {
        let rank = u32::try_from(self.rank).unwrap_or(0);
        let strays: Vec<Ino> = (0..names::STRAYS)
            .flat_map(|i| self.cache.leaves(names::stray(rank, i)))
            .filter_map(|frag| self.cache.dir(frag))
            .flat_map(|dir| dir.entries.values().filter_map(|d| d.target.ino()))
            .collect();
        strays.into_iter().for_each(|ino| self.look_at_stray(ino));
    }

    /// A stray that nobody keeps goes to the purge queue.
    pub(crate) fn look_at_stray(&mut self, ino: Ino) {
        if !self.is_serving() || !self.cache.is_stray(ino) {
            return;
        }
        if let Some(home) = self.homes.remove(&ino) {
            if self.cache.get(ino).is_some_and(|i| i.store.inode.nlink > 0) {
                return self.reintegrate(ino, &home);
            }
        }
        if self.is_kept(ino) {
            return;
        }
        let is_in_snapshots = self.is_in_snapshots(ino);
        let snaps = self.snap_context(ino);
        let Some(inode) = self.cache.get(ino) else { return };
        // Of a file in snapshots only what it is now goes.
        if is_in_snapshots && (!inode.is_file() || inode.store.inode.size == 0) {
            return;
        }
        let i = &inode.store.inode;
        let size =
            i.client_ranges.values().map(|r| r.last).max().unwrap_or(0).max(i.size).max(i.max_size_ever);
        let item = PurgeItem {
            action: match inode.is_dir() {
                true => PurgeAction::Dir,
                false if is_in_snapshots => PurgeAction::Truncate,
                false => PurgeAction::File,
            },
            ino,
            size: if inode.is_file() { size } else { 0 },
            layout: i.layout.clone(),
            old_pools: i.old_pools.clone(),
            snaps,
            frag_tree: inode.store.frag_tree.clone(),
            stamp: self.now.wall,
            padding: 0,
        };
        self.mark_dirty(Dirty::Stray(ino), self.last_seq);
        if is_in_snapshots {
            self.cut_strays.insert(ino);
        }
        self.begin_purge(item);
    }

    /// The queue has what a stray is now; its versions in snapshots stay. Source:
    /// StrayManager::_purge_stray_purged.
    fn stray_cut(&mut self, ino: Ino) {
        let mut change = Change::new("purge_stray truncate", self.now.wall);
        let Some(inode) = self.cache.get_mut(ino) else { return };
        let i = &mut inode.store.inode;
        (i.size, i.max_size_ever, i.truncate_size, i.truncate_from) = (0, 0, 0, 0);
        i.client_ranges.clear();
        self.touch_inode(&mut change, ino);
        self.commit(change);
    }

    /// The queue has it: the inode and its name go.
    pub(crate) fn purged(&mut self, ino: Ino) {
        self.mark_clean(Dirty::Stray(ino));
        if self.cut_strays.remove(&ino) {
            return self.stray_cut(ino);
        }
        let Some((frag, key)) = self.cache.get(ino).and_then(|i| i.place.clone()) else { return };
        if !self.cache.is_stray(ino) {
            return;
        }
        let Some(inode) = self.cache.get(ino) else { return };
        let (is_dir, nested) = (inode.is_dir(), inode.store.inode.accounted_rstat.clone());
        let mut change = Change::new("purge_stray", self.now.wall);
        self.set_target(&mut change, frag, &key, Target::Null);
        self.count_name(&mut change, frag, is_dir, -1, Some(&nested));
        change.blob.destroyed_inodes.push(ino);
        change.inodes.remove(&ino);
        self.forget_tree(ino);
        self.commit(change);
        self.wake(&Wait::Inode(ino));
    }

    /// A hard link leads to a stray: it may become its primary name.
    pub(crate) fn note_home(&mut self, ino: Ino, frag: DirFrag, key: &Key) {
        if self.cache.is_stray(ino) && self.cache.get(ino).is_some_and(|i| i.store.inode.nlink > 0) {
            self.homes.insert(ino, (frag, key.clone()));
        }
    }

    /// Strays whose hard links were seen get those as their names.
    pub(crate) fn bring_home(&mut self) {
        for (ino, home) in std::mem::take(&mut self.homes) {
            self.reintegrate(ino, &home);
        }
    }

    fn reintegrate(&mut self, ino: Ino, home: &(DirFrag, Key)) {
        let (frag, key) = home;
        let is_link = self.cache.dentry(*frag, key).is_some_and(|d| {
            matches!(d.target, Target::Remote { ino: to, .. } if to == ino) && d.unsafe_by.is_none()
        });
        let is_free =
            self.cache.get(ino).is_some_and(|i| i.unsafe_until <= self.safe_seq && i.store.inode.nlink > 0);
        if !is_link || !is_free || !self.cache.is_stray(ino) || self.snap_change.is_some() {
            return;
        }
        let Some((old_frag, old_key)) = self.cache.get(ino).and_then(|i| i.place.clone()) else { return };
        let nested: NestInfo =
            self.cache.get(ino).map(|i| i.store.inode.accounted_rstat.clone()).unwrap_or_default();
        let stamp = Utime::ZERO;
        let mut change = Change::new("rename", stamp);
        self.cow(ino);
        let realm = self.realm_at_home(ino, home);
        self.count_name(&mut change, old_frag, false, -1, Some(&nested));
        self.set_target(&mut change, old_frag, &old_key, Target::Null);
        if let Some(inode) = self.cache.get_mut(ino) {
            inode.store.inode.accounted_rstat = inode.store.inode.rstat.clone();
            inode.store.inode.stray_prior_path = bytes::Bytes::new();
        }
        self.unsummed.remove(&ino);
        // The name was counted as a link already; its inode's sums were not.
        self.count_name(&mut change, *frag, false, -1, None);
        self.set_target(&mut change, *frag, key, Target::Primary(ino));
        let nested = self.cache.get(ino).map(|i| i.store.inode.rstat.clone());
        self.count_name(&mut change, *frag, false, 1, nested.as_ref());
        self.backtrace_due(ino);
        let told = self.set_realm(ino, realm);
        let seq = self.commit(change);
        self.when_safe(seq, told);
    }

    /// Source: Server::handle_client_rename, where names of one inode become one.
    fn realm_at_home(&self, ino: Ino, (frag, key): &(DirFrag, Key)) -> Option<crate::format::SnapRealm> {
        let is_last = self.cache.get(ino).is_some_and(|i| i.store.inode.nlink == 1);
        if !is_last || !self.is_global(ino) {
            return None;
        }
        let mut realm = self.realm_or_new(ino, types::SnapId(0));
        let first = self.cache.dentry(*frag, key).map(|d| d.first);
        self.keep_snaps_of_name(&mut realm, frag.ino, first);
        self.unlinked_realm(&mut realm);
        Some(realm)
    }
}
