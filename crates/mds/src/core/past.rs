//! What inodes and names were in snapshots: kept before they change, shown, and corrected by what clients
//! tell later.
//!
//! An inode keeps its versions itself (`old_inodes`). When a plain file loses its name, they go with the old
//! name instead, so that the inode can be purged; an inode that other old names lead to keeps them until the
//! snapshots are gone. ceph-mds puts a plain file's versions with its name at once; either server reads both.
//!
//! Source: MDCache::journal_cow_dentry, CInode::cow_old_inode, Locker::_do_snap_update,
//! Locker::_do_null_snapflush.

use messages::fs::{CapOp, Caps, FragTree, InodeStat, LeaseStat, MClientCaps, ReplyCap};
use types::{GlobalId, Ino, SnapId};

use super::access::{Asked, WRITE};
use super::cache::{DIR, Key, OldName, TYPE, Target};
use super::change::Change;
use super::flush::{Fields, writable};
use super::hold::{self, Mode, Part};
use super::realm::View;
use super::request::{Request, Run, Stop, Wait};
use super::server::{Dirty, Server};
use crate::format::{Dentry, DirFrag, Inode as Stored, InodeStore, Link, MetaReqId, OldInode, Xattrs};

/// An inode as it is, or as it was at a snapshot.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Version<'a> {
    pub inode: &'a Stored,
    pub xattrs: &'a Xattrs,
    pub symlink: &'a bytes::Bytes,
    pub frag_tree: Option<&'a FragTree>,
}

/// The kind of a directory's entry. Source: IFTODT.
pub(crate) fn d_type(mode: u32) -> u8 {
    let kind = mode & TYPE;
    if kind == DIR { 4 } else { (kind >> 12) as u8 }
}

impl Server {
    /// The inode is about to change: snapshots keep it as it is.
    pub(crate) fn cow(&mut self, ino: Ino) {
        self.cow_to(ino, self.newest_snap(View::Now));
    }

    /// The same, for snapshots up to `follows`: the change is one from before later ones.
    pub(crate) fn cow_to(&mut self, ino: Ino, follows: SnapId) {
        if self.cache.get(ino).is_none_or(|i| follows < i.first) {
            return;
        }
        let snaps = self.snaps_of(ino, View::Now);
        let Some(inode) = self.cache.get_mut(ino) else { return };
        if snaps.has(inode.first, follows) {
            let mut old = inode.store.inode.clone();
            old.client_ranges.retain(|_, range| range.follows < follows);
            let old = OldInode { first: inode.first, inode: old, xattrs: inode.store.xattrs.clone() };
            inode.store.old_inodes.insert(follows, old);
            inode.store.oldest_snap = inode.store.oldest_snap.min(inode.first);
        }
        inode.first = SnapId(follows.0 + 1);
    }

    /// The name is about to lead elsewhere: snapshots keep what it leads to.
    pub(crate) fn cow_name(&mut self, change: &mut Change, frag: DirFrag, key: &Key) {
        let follows = self.newest_snap(View::Now);
        let Some(dentry) = self.cache.dentry(frag, key).filter(|d| !d.target.is_null()).cloned() else {
            return;
        };
        if let Target::Primary(ino) = dentry.target {
            self.cow(ino);
        }
        let snaps = self.snaps_of(frag.ino, View::Now);
        if !snaps.has(dentry.first, follows) {
            return;
        }
        let alternate_name = dentry.alternate_name.clone();
        let link = match dentry.target {
            Target::Primary(ino) if self.leaves_versions(ino, dentry.first) => {
                return self.leave_versions(change, ino, frag, key);
            }
            Target::Primary(ino) => {
                let mode = self.cache.get(ino).map_or(0, |i| i.store.inode.mode);
                Link::Remote { ino, d_type: d_type(mode) }
            }
            Target::Remote { ino, d_type } => Link::Remote { ino, d_type },
            Target::Null => return,
        };
        let old = Dentry { first: dentry.first, alternate_name, link };
        self.keep_old(change, frag, key, follows, old);
    }

    fn keep_old(&mut self, change: &mut Change, frag: DirFrag, key: &Key, last: SnapId, dentry: Dentry) {
        self.cache.insert_old(frag, key.clone(), last, OldName { dentry, version: 0 });
        self.touch_old(change, frag, key, last);
    }

    fn touch_old(&mut self, change: &mut Change, frag: DirFrag, key: &Key, last: SnapId) {
        change.dirs.insert(frag);
        change.old_names.insert((frag, key.clone(), last));
    }

    /// A plain file of which only this name has been in snapshots, and whose versions are as they will be.
    fn leaves_versions(&self, ino: Ino, first: SnapId) -> bool {
        let Some(inode) = self.cache.get(ino) else { return false };
        !inode.is_dir()
            && inode.store.inode.nlink == 1
            && inode.store.realm.is_none()
            && inode.caps.values().all(|cap| cap.owed.is_empty())
            && inode.store.old_inodes.values().all(|old| old.first >= first)
    }

    fn leave_versions(&mut self, change: &mut Change, ino: Ino, frag: DirFrag, key: &Key) {
        let snaps = self.snaps_of(frag.ino, View::Now);
        let Some(inode) = self.cache.get_mut(ino) else { return };
        let symlink = inode.store.symlink.clone();
        let olds = std::mem::take(&mut inode.store.old_inodes);
        let alternate_name =
            self.cache.dentry(frag, key).map(|d| d.alternate_name.clone()).unwrap_or_default();
        for (last, old) in olds.into_iter().filter(|(last, old)| snaps.has(old.first, *last)) {
            let store = InodeStore {
                inode: old.inode,
                xattrs: old.xattrs,
                symlink: symlink.clone(),
                ..InodeStore::default()
            };
            let link = Link::Primary(Box::new(store));
            let dentry = Dentry { first: old.first, alternate_name: alternate_name.clone(), link };
            self.keep_old(change, frag, key, last, dentry);
        }
    }

    /// An inode at a snapshot. An old name may lead to one that has no version of that time: then it is the
    /// next one there is.
    pub(crate) fn version(&self, ino: Ino, snap: SnapId) -> Option<Version<'_>> {
        if let Some((last, frag, key)) = self.cache.copy_at(ino, snap) {
            let old = self.cache.dir(frag)?.old.get(&(key.clone(), last))?;
            let Link::Primary(store) = &old.dentry.link else { return None };
            let (inode, xattrs, symlink) = (&store.inode, &store.xattrs, &store.symlink);
            return Some(Version { inode, xattrs, symlink, frag_tree: None });
        }
        let head = self.cache.get(ino)?;
        let (symlink, frag_tree) = (&head.store.symlink, Some(&head.store.frag_tree));
        let old = head.store.old_inodes.range(snap..).next().map(|(_, old)| old);
        Some(match old.filter(|_| snap < head.first) {
            Some(old) => Version { inode: &old.inode, xattrs: &old.xattrs, symlink, frag_tree },
            None => Version { inode: &head.store.inode, xattrs: &head.store.xattrs, symlink, frag_tree },
        })
    }

    /// An inode at a snapshot as a client sees it.
    pub(crate) fn stat_at(&self, ino: Ino, snap: SnapId) -> Option<InodeStat> {
        let version = self.version(ino, snap)?;
        let mut stat = super::reply::attributes_of(&version);
        stat.snap = snap;
        stat.xattr_version = version.inode.xattr_version;
        stat.xattrs = messages::fs::encode_xattrs(version.xattrs);
        // The table does not have what was said with it.
        let info = self.snap_infos(ino, snap).get(&snap).copied();
        if let Some(info) = info.or_else(|| self.snaps.snaps.get(&snap)) {
            let text = |b: &bytes::Bytes| String::from_utf8_lossy(b).into_owned();
            stat.snap_btime = info.stamp;
            stat.snap_metadata = info.metadata.iter().map(|(k, v)| (text(k), text(v))).collect();
        }
        let is_open = self.owes(ino, snap);
        let caps = if is_open { Caps::PIN } else { hold::in_snapshot(version.inode.is_dir()) };
        stat.cap = ReplyCap { caps, flags: ReplyCap::AUTH, ..ReplyCap::default() };
        Some(stat)
    }

    /// A name in a snapshot stays what it is.
    pub(crate) fn lease_at() -> LeaseStat {
        LeaseStat { mask: LeaseStat::VALID, duration_ms: u32::MAX, ..LeaseStat::default() }
    }

    // What clients tell later.

    /// Whether a client may still tell what it changed before a snapshot.
    fn owes(&self, ino: Ino, snap: SnapId) -> bool {
        self.cache.get(ino).is_some_and(|i| i.caps.values().any(|cap| cap.owes(snap.0)))
    }

    /// An inode at a snapshot is as it will always be; else the request waits for who wrote to it.
    pub(crate) fn need_told(&mut self, request: &mut Request, ino: Ino, snap: SnapId) -> Run<()> {
        if !self.owes(ino, snap) {
            return Ok(());
        }
        self.need(request, &[(ino, Part::File, Mode::Flush)])?;
        match self.owes(ino, snap) {
            true => Err(Stop::Wait(Wait::Inode(ino))),
            false => Ok(()),
        }
    }

    /// Clients that may have changed an inode before this snapshot, which they have just heard of, owe it.
    pub(crate) fn note_owed(&mut self, client: GlobalId, ino: Ino, snap: SnapId) {
        let Some(cap) = self.cache.get_mut(ino).and_then(|i| i.caps.get_mut(&client)) else { return };
        let may = writable(cap.issued());
        if cap.owed.is_empty() {
            cap.follows = snap.0 - u64::from(!may.is_empty());
        }
        cap.owed |= may;
    }

    /// A client that can change nothing any more, and says that nothing is to come, owes nothing. Source:
    /// Locker::handle_client_caps.
    pub(crate) fn end_owed(&mut self, client: GlobalId, m: &MClientCaps) {
        let Some(cap) = self.cache.get_mut(m.ino).and_then(|i| i.caps.get_mut(&client)) else { return };
        if writable(cap.issued()).is_empty() && m.flags & MClientCaps::PENDING_CAPSNAP == 0 {
            cap.owed = Caps::NONE;
        }
    }

    /// What a client changed before a snapshot. Source: Locker::_do_snap_update.
    pub(crate) fn flush_snap(&mut self, client: GlobalId, tid: u64, m: &MClientCaps) {
        let (ino, follows) = (m.ino, SnapId(m.snap_follows));
        let snaps = self.snaps_of(ino, View::Told).all;
        let mut later = snaps.range(SnapId(follows.0.saturating_add(1))..);
        let (snap, is_last) = (later.next().copied(), later.next().is_none());
        let claimed = self.recon.dirty.get(&(client, ino)).copied().unwrap_or(Caps::NONE);
        let Some(cap) = self.cache.get_mut(ino).and_then(|i| i.caps.get_mut(&client)) else { return };
        let dirty = m.dirty & (writable(cap.issued()) | cap.owed | claimed);
        if let Some(snap) = snap {
            cap.follows = cap.follows.max(snap.0);
            if is_last {
                cap.owed = Caps::NONE;
            }
        }
        let asked = Asked {
            uid: m.caller_uid,
            gid: m.caller_gid,
            gids: &[],
            mask: WRITE,
            new_uid: u32::MAX,
            new_gid: u32::MAX,
        };
        let may = self.check_inode(client, ino, &asked).is_ok();
        match snap.filter(|_| may && !dirty.is_empty()) {
            Some(snap) => self.take_snap_flush(client, tid, m, dirty, snap),
            None if m.dirty.is_empty() => {}
            // The snapshot is gone: there is nothing to keep it for.
            None => self.tell_flushed(client, tid, m, self.last_seq),
        }
        self.cap_changed(ino);
    }

    fn take_snap_flush(&mut self, client: GlobalId, tid: u64, m: &MClientCaps, dirty: Caps, snap: SnapId) {
        let ino = m.ino;
        let mut change = Change::new("snap flush", self.now.wall);
        change.by = client;
        let fields = Fields {
            m,
            dirty,
            max_file_size: self.map.max_file_size,
            max_xattrs: self.settings.max_xattr_bytes,
        };
        if self.cache.get(ino).is_some_and(|i| i.first <= snap) {
            self.cow_to(ino, SnapId(m.snap_follows));
            self.take_fields(&mut change, &fields);
            self.touch_inode(&mut change, ino);
        } else {
            self.edit_past(&mut change, ino, snap, |inode, xattrs| {
                fields.put(inode, xattrs);
                inode.client_ranges.remove(&client);
            });
        }
        let num = i64::try_from(client.0).unwrap_or(i64::MAX);
        let req = MetaReqId { name: types::EntityName::client(num), tid };
        if m.oldest_flush_tid > 0 {
            change.blob.client_flushes.push((req, m.oldest_flush_tid));
        }
        let seq = self.commit(change);
        self.note_rstat(ino);
        self.note_flush(client, tid, m, seq);
        self.tell_flushed(client, tid, m, seq);
    }

    /// A flush that is in the journal is not taken again.
    pub(crate) fn note_flush(&mut self, client: GlobalId, tid: u64, m: &MClientCaps, seq: u64) {
        if tid == 0 || m.oldest_flush_tid == 0 {
            return;
        }
        if let Some(session) = self.sessions.get_mut(&client) {
            session.info.completed_flushes.insert(tid);
            session.dirty_since.get_or_insert(seq);
        }
        self.mark_dirty(Dirty::Sessions, seq);
    }

    /// A change from before snapshots that have their versions already, of a client that had not heard of
    /// them: it is one of those versions as well.
    pub(crate) fn update_past(&mut self, change: &mut Change, fields: &Fields, follows: SnapId) {
        let ino = fields.m.ino;
        let Some(first) = self.cache.get(ino).map(|i| i.first) else { return };
        let from = SnapId(follows.0.saturating_add(1));
        if fields.m.op == CapOp::FLUSHSNAP || from >= first {
            return;
        }
        let snaps: Vec<SnapId> = self.snaps_of(ino, View::Now).all.range(from..first).copied().collect();
        for snap in snaps {
            self.edit_past(change, ino, snap, |inode, xattrs| {
                fields.put(inode, xattrs);
            });
        }
    }

    /// Changes an inode's version from a snapshot on; what earlier ones have of it stays.
    fn edit_past(
        &mut self,
        change: &mut Change,
        ino: Ino,
        snap: SnapId,
        edit: impl FnOnce(&mut Stored, &mut Xattrs),
    ) {
        let before = SnapId(snap.0.saturating_sub(1));
        if let Some((last, frag, key)) = self.cache.copy_at(ino, snap) {
            let key = key.clone();
            let Some(mut old) = self.cache.dir(frag).and_then(|d| d.old.get(&(key.clone(), last))).cloned()
            else {
                return;
            };
            if old.dentry.first < snap {
                self.keep_old(change, frag, &key, before, old.dentry.clone());
                old.dentry.first = snap;
            }
            if let Link::Primary(store) = &mut old.dentry.link {
                edit(&mut store.inode, &mut store.xattrs);
            }
            return self.keep_old(change, frag, &key, last, old.dentry);
        }
        let Some(inode) = self.cache.get_mut(ino) else { return };
        let olds = &mut inode.store.old_inodes;
        let Some((last, mut old)) = olds.range(snap..).next().map(|(last, old)| (*last, old.clone())) else {
            return;
        };
        if old.first > snap {
            return;
        }
        if old.first < snap {
            olds.insert(before, old.clone());
            old.first = snap;
        }
        edit(&mut old.inode, &mut old.xattrs);
        olds.insert(last, old);
        self.touch_inode(change, ino);
    }
}
