//! A change of metadata: made in memory, told to the journal as one event, safe when that is durable.
//!
//! A request changes what is in memory only when nothing can stop it any more, then [`Server::commit`] makes
//! the event of what is there: every name that the change touched, with its inode, and the folders above that
//! replay needs to find them. Later events build on it; replies to its client go out at once, other clients
//! see it when it is safe (`Hold`).
//!
//! Source: EMetaBlob::add_dir_context, MDCache::predirty_journal_parents, journal_dirty_inode.

use std::collections::BTreeSet;

use messages::fs::FileName;
use types::{GlobalId, Ino, SnapId, Utime};

use super::cache::{FIRST, Key, Target};
use super::hold::{Hold, Mode, Part, Until};
use super::realm::View;
use super::server::{Dirty, Server};
use crate::format::{
    Backpointer, Dentry, DirFrag, DirLump, DirLumpState, FullBit, FullBitState, Link, LogEvent, MetaBlob,
    MetaReqId, NestInfo, NullBit, RemoteBit, Update,
};

/// What a change has touched so far.
#[derive(Debug, Default)]
pub(crate) struct Change {
    pub what: &'static str,
    /// Whose change it is; 0 for our own.
    pub by: GlobalId,
    pub req: MetaReqId,
    pub stamp: Utime,
    pub names: BTreeSet<(DirFrag, Key)>,
    /// Of these, those that lead elsewhere.
    pub moved: BTreeSet<(DirFrag, Key)>,
    /// What names were in snapshots, by the last of those.
    pub old_names: BTreeSet<(DirFrag, Key, SnapId)>,
    pub inodes: BTreeSet<Ino>,
    pub dirs: BTreeSet<DirFrag>,
    /// Fragments that this makes.
    pub new_dirs: BTreeSet<DirFrag>,
    /// Parts of inodes that others see when it is safe.
    pub parts: Vec<(Ino, Part, Mode)>,
    pub blob: MetaBlob,
}

impl Change {
    pub fn new(what: &'static str, stamp: Utime) -> Self {
        Self { what, stamp, ..Self::default() }
    }

    pub fn holds(&mut self, ino: Ino, part: Part, mode: Mode) {
        self.parts.push((ino, part, mode));
    }
}

impl NestInfo {
    /// Adds what changed from `before` to `after`.
    pub(crate) fn add(&mut self, after: &Self, before: &Self) {
        self.rbytes = self.rbytes.saturating_add(after.rbytes.saturating_sub(before.rbytes));
        self.rfiles = self.rfiles.saturating_add(after.rfiles.saturating_sub(before.rfiles));
        self.rsubdirs = self.rsubdirs.saturating_add(after.rsubdirs.saturating_sub(before.rsubdirs));
        self.rsnaps = self.rsnaps.saturating_add(after.rsnaps.saturating_sub(before.rsnaps));
        self.rctime = self.rctime.max(after.rctime);
    }
}

impl Server {
    /// An inode is about to change.
    pub(crate) fn touch_inode(&mut self, change: &mut Change, ino: Ino) {
        change.inodes.insert(ino);
        if let Some(place) = self.cache.get(ino).and_then(|i| i.place.clone()) {
            change.dirs.insert(place.0);
            change.names.insert(place);
        }
    }

    pub(crate) fn touch_name(change: &mut Change, frag: DirFrag, key: &Key) {
        change.dirs.insert(frag);
        change.names.insert((frag, key.clone()));
    }

    /// A name leads somewhere else from now on. Counts and links are the caller's.
    pub(crate) fn set_target(&mut self, change: &mut Change, frag: DirFrag, key: &Key, target: Target) {
        self.cow_name(change, frag, key);
        Self::touch_name(change, frag, key);
        change.moved.insert((frag, key.clone()));
        let first = SnapId(self.newest_snap(View::Now).0 + 1);
        let Some(dir) = self.cache.dirs.get_mut(&frag) else { return };
        let dentry = dir.entries.entry(key.clone()).or_insert_with(|| super::cache::Dentry::new(target));
        dentry.target = target;
        dentry.first = dentry.first.max(first);
        if let Target::Primary(ino) = target {
            self.cow(ino);
            if let Some(inode) = self.cache.get_mut(ino) {
                inode.first = inode.first.max(first);
                inode.place = Some((frag, key.clone()));
            }
            self.touch_inode(change, ino);
        }
    }

    /// A folder has a name more (`sign` 1) or less (-1), of an inode that is stored with it if `nested` is
    /// given.
    pub(crate) fn count_name(
        &mut self,
        change: &mut Change,
        frag: DirFrag,
        is_dir: bool,
        sign: i64,
        nested: Option<&NestInfo>,
    ) {
        let stamp = change.stamp;
        self.resync(frag);
        let Some(dir) = self.cache.dirs.get_mut(&frag) else { return };
        let fnode = &mut dir.fnode;
        let stat = &mut fnode.fragstat;
        if is_dir {
            stat.subdirs += sign;
        } else {
            stat.files += sign;
        }
        stat.mtime = stat.mtime.max(stamp);
        stat.change_attr = stat.change_attr.saturating_add(1);
        fnode.rstat.rctime = fnode.rstat.rctime.max(stamp);
        if let Some(nested) = nested {
            let none = NestInfo::default();
            match sign > 0 {
                true => fnode.rstat.add(nested, &none),
                false => fnode.rstat.add(&none, nested),
            }
        }
        self.sum_dir(change, frag);
    }

    /// A fragment that was written while its folder's sums were being gathered counts as gathered. Source:
    /// CDir::resync_accounted_fragstat.
    fn resync(&mut self, frag: DirFrag) {
        let Some(inode) = self.cache.get(frag.ino) else { return };
        let (stat, nest) = (inode.store.inode.dirstat.version, inode.store.inode.rstat.version);
        let Some(dir) = self.cache.dirs.get_mut(&frag) else { return };
        let fnode = &mut dir.fnode;
        if fnode.accounted_fragstat.version != stat {
            fnode.fragstat.version = stat;
            fnode.accounted_fragstat = fnode.fragstat.clone();
        }
        if fnode.accounted_rstat.version != nest {
            fnode.rstat.version = nest;
            fnode.accounted_rstat = fnode.rstat.clone();
        }
    }

    /// The folder takes over what changed in one of its fragments.
    pub(crate) fn sum_dir(&mut self, change: &mut Change, frag: DirFrag) {
        self.cow(frag.ino);
        let Some(dir) = self.cache.dirs.get_mut(&frag) else { return };
        let fnode = &mut dir.fnode;
        let (stat, told) = (fnode.fragstat.clone(), fnode.accounted_fragstat.clone());
        let (nest, told_nest) = (fnode.rstat.clone(), fnode.accounted_rstat.clone());
        (fnode.accounted_fragstat, fnode.accounted_rstat) = (stat.clone(), nest.clone());
        change.dirs.insert(frag);
        let Some(inode) = self.cache.get_mut(frag.ino) else { return };
        let i = &mut inode.store.inode;
        i.dirstat.files += stat.files - told.files;
        i.dirstat.subdirs += stat.subdirs - told.subdirs;
        if stat.mtime > i.dirstat.mtime {
            i.dirstat.mtime = stat.mtime;
            i.mtime = i.mtime.max(stat.mtime);
            i.ctime = i.ctime.max(stat.mtime);
        }
        if stat.change_attr != told.change_attr {
            i.dirstat.change_attr += stat.change_attr.saturating_sub(told.change_attr);
            i.change_attr = i.change_attr.saturating_add(1);
        }
        i.rstat.add(&nest, &told_nest);
        i.rstat.rctime = i.rstat.rctime.max(i.ctime);
        self.touch_inode(change, frag.ino);
        self.note_rstat(frag.ino);
    }

    /// The folder above does not have the inode's sums yet.
    pub(crate) fn note_rstat(&mut self, ino: Ino) {
        let Some(inode) = self.cache.get_mut(ino) else { return };
        if inode.place.is_none() {
            // Nothing is above it.
            inode.store.inode.accounted_rstat = inode.store.inode.rstat.clone();
        } else if inode.is_rstat_dirty() {
            self.unsummed.insert(ino);
        }
    }

    /// Where an inode is linked, for its backtrace.
    pub(crate) fn backpointers(&self, ino: Ino) -> Vec<Backpointer> {
        let mut pointers = Vec::new();
        for at in self.cache.ancestors(ino) {
            let Some(inode) = self.cache.get(at) else { break };
            let Some((frag, key)) = &inode.place else { break };
            let version = inode.store.inode.version;
            pointers.push(Backpointer { dir: frag.ino, name: key.name.clone(), version });
        }
        pointers
    }

    /// Makes the event, and notes what is to be written to its objects one day. Answers the event's number.
    pub(crate) fn commit(&mut self, mut change: Change) -> u64 {
        let seq = self.next_seq();
        self.assign_versions(&change, seq);
        let mut blob = std::mem::take(&mut change.blob);
        for (frag, key) in &change.names {
            self.add_bit(&mut blob, *frag, key, true);
        }
        for (frag, key, last) in &change.old_names {
            self.add_old(&mut blob, *frag, key, *last);
        }
        for ino in &change.inodes {
            if self.cache.get(*ino).is_some_and(|i| i.place.is_none()) {
                self.add_root(&mut blob, *ino, true);
                self.mark_dirty(Dirty::Base(*ino), seq);
            }
        }
        for frag in &change.dirs {
            self.add_lump(&mut blob, *frag, DirLumpState::DIRTY);
            self.add_context(&mut blob, frag.ino, seq);
        }
        // Only the event that makes a fragment says that all of its names are here: later ones may be
        // replayed without those in between.
        for frag in &change.new_dirs {
            self.add_lump(&mut blob, *frag, DirLumpState::DIRTY | DirLumpState::NEW | DirLumpState::COMPLETE);
            self.add_context(&mut blob, frag.ino, seq);
        }
        self.order_blob(&mut blob);
        self.hold_until_safe(&change, seq);
        let event = Update {
            stamp: self.now.wall,
            what: bytes::Bytes::from_static(change.what.as_bytes()),
            metadata: blob,
            req: change.req,
            ..Update::default()
        };
        self.append(LogEvent::Update(event));
        seq
    }

    fn assign_versions(&mut self, change: &Change, seq: u64) {
        for (frag, key) in &change.names {
            let target = self.cache.dentry(*frag, key).map(|d| d.target);
            let ino = match target {
                Some(Target::Primary(ino)) if change.inodes.contains(&ino) => Some(ino),
                _ => None,
            };
            let at_least = ino.and_then(|i| self.cache.get(i)).map_or(0, |i| i.store.inode.version);
            let Some(dir) = self.cache.dirs.get_mut(frag) else { continue };
            dir.fnode.version = dir.fnode.version.max(at_least) + 1;
            let version = dir.fnode.version;
            let mut is_dirty = false;
            if let Some(dentry) = dir.entries.get_mut(key) {
                dentry.version = version;
                if change.by.0 != 0 && change.moved.contains(&(*frag, key.clone())) {
                    dentry.unsafe_by = Some((change.by, seq));
                }
                is_dirty = true;
            }
            if is_dirty {
                dir.dirty.insert(key.clone());
            }
            self.mark_dir_dirty(*frag, seq);
            if let Some(inode) = ino.and_then(|i| self.cache.get_mut(i)) {
                if inode.unsafe_until == 0 {
                    inode.safe_version = inode.store.inode.version;
                }
                inode.store.inode.version = version;
                (inode.unsafe_until, inode.last_journaled) = (seq, seq);
            }
        }
        for ino in &change.inodes {
            let Some(inode) = self.cache.get_mut(*ino).filter(|i| i.place.is_none()) else { continue };
            if inode.unsafe_until == 0 {
                inode.safe_version = inode.store.inode.version;
            }
            inode.store.inode.version += 1;
            (inode.unsafe_until, inode.last_journaled) = (seq, seq);
        }
        for (frag, key, last) in &change.old_names {
            let Some(dir) = self.cache.dirs.get_mut(frag) else { continue };
            let version = dir.fnode.version;
            let at = (key.clone(), *last);
            if let Some(old) = dir.old.get_mut(&at) {
                old.version = version;
            }
            dir.dirty_old.insert(at);
        }
        for frag in change.dirs.iter().chain(&change.new_dirs) {
            if let Some(dir) = self.cache.dirs.get_mut(frag) {
                let has_names = change.names.iter().any(|(f, _)| f == frag);
                if !has_names {
                    dir.fnode.version += 1;
                }
            }
            self.mark_dir_dirty(*frag, seq);
        }
        let inodes: Vec<Ino> = change.inodes.iter().copied().collect();
        self.settle_at(seq, inodes, change.names.iter().cloned().collect());
    }

    /// Others see what changed when it is safe.
    fn hold_until_safe(&mut self, change: &Change, seq: u64) {
        if change.by.0 == 0 {
            return;
        }
        for (ino, part, mode) in &change.parts {
            let Some(inode) = self.cache.get_mut(*ino) else { continue };
            let hold = Hold { by: change.by, part: *part, mode: *mode, until: Until::Safe(seq) };
            // A later event is safe only when earlier ones are.
            inode.holds.retain(|h| {
                !(matches!(h.until, Until::Safe(_))
                    && h.by == hold.by
                    && h.part == hold.part
                    && h.mode == hold.mode)
            });
            inode.holds.push(hold);
        }
    }

    pub(crate) fn add_lump(&self, blob: &mut MetaBlob, frag: DirFrag, state: u32) {
        let Some(dir) = self.cache.dir(frag) else { return };
        let lump = blob.lumps.entry(frag).or_insert_with(|| {
            blob.order.push(frag);
            DirLump::default()
        });
        lump.fnode = dir.fnode.clone();
        lump.state.0 |= state;
    }

    /// A name with what it leads to.
    pub(crate) fn add_bit(&self, blob: &mut MetaBlob, frag: DirFrag, key: &Key, is_dirty: bool) {
        let Some(dentry) = self.cache.dentry(frag, key) else { return };
        self.add_lump(blob, frag, 0);
        let (name, first, last, version) = (key.name.clone(), dentry.first, SnapId::HEAD, dentry.version);
        let alternate_name = dentry.alternate_name.clone();
        match dentry.target {
            Target::Primary(ino) => {
                let Some(bit) = self.full_bit(ino, name, first, version, is_dirty) else { return };
                if let Some(lump) = blob.lumps.get_mut(&frag) {
                    lump.full.push(FullBit { alternate_name, ..bit });
                }
            }
            Target::Remote { ino, d_type } => {
                let bit =
                    RemoteBit { name, first, last, version, ino, d_type, dirty: is_dirty, alternate_name };
                if let Some(lump) = blob.lumps.get_mut(&frag) {
                    lump.remote.push(bit);
                }
            }
            Target::Null => {
                if let Some(lump) = blob.lumps.get_mut(&frag) {
                    lump.null.push(NullBit { name, first, last, version, dirty: is_dirty });
                }
            }
        }
    }

    /// What a name was in snapshots.
    fn add_old(&self, blob: &mut MetaBlob, frag: DirFrag, key: &Key, last: SnapId) {
        let Some(old) = self.cache.dir(frag).and_then(|d| d.old.get(&(key.clone(), last))) else { return };
        self.add_lump(blob, frag, 0);
        let Some(lump) = blob.lumps.get_mut(&frag) else { return };
        let (name, version) = (key.name.clone(), old.version);
        let Dentry { first, alternate_name, link } = old.dentry.clone();
        match link {
            Link::Primary(store) => lump.full.push(FullBit {
                name,
                first,
                last,
                version,
                inode: store.inode,
                xattrs: store.xattrs,
                symlink: store.symlink,
                state: FullBitState(FullBitState::DIRTY),
                oldest_snap: store.oldest_snap,
                alternate_name,
                ..FullBit::default()
            }),
            Link::Remote { ino, d_type } => {
                let dirty = true;
                lump.remote.push(RemoteBit {
                    name,
                    first,
                    last,
                    version,
                    ino,
                    d_type,
                    dirty,
                    alternate_name,
                });
            }
        }
    }

    fn full_bit(
        &self,
        ino: Ino,
        name: FileName,
        first: SnapId,
        version: u64,
        is_dirty: bool,
    ) -> Option<FullBit> {
        let inode = self.cache.get(ino)?;
        let mut state = if is_dirty { FullBitState::DIRTY } else { 0 };
        if self.dirty_at.contains_key(&Dirty::Backtrace(ino)) {
            state |= FullBitState::DIRTY_PARENT;
        }
        let store = &inode.store;
        Some(FullBit {
            name,
            first,
            last: SnapId::HEAD,
            version,
            inode: store.inode.clone(),
            xattrs: store.xattrs.clone(),
            symlink: store.symlink.clone(),
            frag_tree: store.frag_tree.clone(),
            realm: store.realm.clone(),
            state: FullBitState(state),
            old_inodes: store.old_inodes.clone(),
            oldest_snap: store.oldest_snap,
            alternate_name: bytes::Bytes::new(),
        })
    }

    pub(crate) fn add_root(&self, blob: &mut MetaBlob, ino: Ino, is_dirty: bool) {
        let version = self.cache.get(ino).map_or(0, |i| i.store.inode.version);
        if blob.roots.iter().any(|b| b.inode.ino == ino) {
            return;
        }
        let first = self.cache.get(ino).map_or(FIRST, |i| i.first);
        if let Some(bit) = self.full_bit(ino, FileName::new(), first, version, is_dirty) {
            blob.roots.push(bit);
        }
    }

    /// The folders above, as far as this segment of the journal does not have them yet.
    fn add_context(&mut self, blob: &mut MetaBlob, dir: Ino, seq: u64) {
        let start = self.segment_start;
        let mut found = Vec::new();
        for at in self.cache.ancestors(dir) {
            let Some(inode) = self.cache.get_mut(at) else { break };
            let was = std::mem::replace(&mut inode.last_journaled, seq);
            let Some((frag, key)) = inode.place.clone() else { break };
            let is_told = was >= start && was != seq;
            let is_it = |b: &FullBit| b.name == key.name && b.last == SnapId::HEAD;
            let in_blob = blob.lumps.get(&frag).is_some_and(|l| l.full.iter().any(is_it));
            if !in_blob {
                if is_told {
                    break;
                }
                found.push((frag, key));
            }
        }
        found.into_iter().for_each(|(frag, key)| self.add_bit(blob, frag, &key, false));
    }

    /// Folders come before what is in them: replay has to find the inode of each fragment.
    pub(crate) fn order_blob(&self, blob: &mut MetaBlob) {
        blob.order.sort_by_cached_key(|frag| self.cache.ancestors(frag.ino).len());
    }
}
