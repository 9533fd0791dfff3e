//! Inodes, fragments of directories and names that are in memory.
//!
//! Invariants ([`Cache::assert_invariants`]):
//! 1. An inode has one place: a name that is its primary link, in a fragment that is here; the root and the
//!    server's own folder have none.
//! 2. A fragment's folder is here.
//! 3. A fragment that is complete has all its names here; of another one, a name that is missing says
//!    nothing.
//! 4. Dirty names are here, those that are gone as names that lead nowhere.
//! 5. The name of an inode that is here is in the fragment that its folder's tree says.
//! 6. What an inode was in snapshots is found by its number, in the names that have such versions.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bytes::Bytes;
use messages::fs::{FileName, Frag};
use types::{GlobalId, Ino, SnapId};

use super::cap::Cap;
use super::flock::FileLockTable;
use super::hold::Hold;
use crate::format::{DirFrag, Fnode, InodeStore, Link, names};

/// Names of a fragment are in the order of their hashes, as listings show them.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key {
    /// The 24 bits that fragments tell apart.
    pub hash: u32,
    pub name: FileName,
}

/// What a name leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Target {
    /// The inode that is stored with it.
    Primary(Ino),
    Remote {
        ino: Ino,
        d_type: u8,
    },
    /// Nowhere.
    Null,
}

impl Target {
    pub fn ino(self) -> Option<Ino> {
        match self {
            Self::Primary(ino) | Self::Remote { ino, .. } => Some(ino),
            Self::Null => None,
        }
    }

    pub fn is_null(self) -> bool {
        self == Self::Null
    }
}

/// A client may take a name for granted until a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Lease {
    pub seq: u32,
    pub until: Duration,
    pub is_revoked: bool,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Dentry {
    pub target: Target,
    pub first: SnapId,
    pub version: u64,
    pub alternate_name: Bytes,
    pub leases: BTreeMap<GlobalId, Lease>,
    /// Who changed it last, while that is not safe.
    pub unsafe_by: Option<(GlobalId, u64)>,
}

impl Dentry {
    pub fn new(target: Target) -> Self {
        Self {
            target,
            first: SnapId(2),
            version: 0,
            alternate_name: Bytes::new(),
            leases: BTreeMap::new(),
            unsafe_by: None,
        }
    }
}

/// What a name led to in snapshots: from `first` on up to the one that it is kept under.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct OldName {
    pub dentry: crate::format::Dentry,
    pub version: u64,
}

impl OldName {
    pub fn target(&self) -> Target {
        match &self.dentry.link {
            Link::Primary(store) => Target::Primary(store.inode.ino),
            Link::Remote { ino, d_type } => Target::Remote { ino: *ino, d_type: *d_type },
        }
    }
}

/// A fragment of a directory.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Dir {
    pub fnode: Fnode,
    pub entries: BTreeMap<Key, Dentry>,
    pub is_complete: bool,
    /// Names that are to be written, and the event since which there are any.
    pub dirty: BTreeSet<Key>,
    pub dirty_since: Option<u64>,
    /// Names that are being written.
    pub committing: BTreeSet<Key>,
    /// What names were, by the last snapshot that has them so; those of a fragment that is complete are all
    /// here.
    pub old: BTreeMap<(Key, SnapId), OldName>,
    /// Of these, those that are to be written; what is not among them any more goes from the object.
    pub dirty_old: BTreeSet<(Key, SnapId)>,
    pub committing_old: BTreeSet<(Key, SnapId)>,
    /// It has no object yet.
    pub is_new: bool,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Inode {
    pub store: InodeStore,
    /// The first snapshot that would have it as it is now.
    pub first: SnapId,
    /// Where its primary link is; `None` for the root and the server's own folder.
    pub place: Option<(DirFrag, Key)>,
    pub caps: BTreeMap<GlobalId, Cap>,
    /// Requests and changes that keep clients from having some capabilities.
    pub holds: Vec<Hold>,
    /// The version that is safe, and the event that makes the present one safe; 0: it is.
    pub safe_version: u64,
    pub unsafe_until: u64,
    /// The event that had it last.
    pub last_journaled: u64,
    /// Up to where each client may write by what is safe.
    pub safe_ranges: BTreeMap<GlobalId, u64>,
    pub locks: Option<Box<FileLockTable>>,
    /// A client that may have written is gone: size and time are to be found from the objects.
    pub needs_recover: bool,
    pub touched: u64,
}

impl Inode {
    pub fn new(store: InodeStore, place: Option<(DirFrag, Key)>) -> Self {
        let safe_ranges = store.inode.client_ranges.iter().map(|(c, r)| (*c, r.last)).collect();
        Self {
            safe_version: store.inode.version,
            first: first_of(&store, FIRST),
            store,
            place,
            caps: BTreeMap::new(),
            holds: Vec::new(),
            unsafe_until: 0,
            last_journaled: 0,
            safe_ranges,
            locks: None,
            needs_recover: false,
            touched: 0,
        }
    }

    pub fn is_dir(&self) -> bool {
        self.store.inode.is_dir()
    }

    pub fn is_file(&self) -> bool {
        self.store.inode.mode & TYPE == FILE
    }

    pub fn is_rstat_dirty(&self) -> bool {
        self.store.inode.rstat != self.store.inode.accounted_rstat
    }
}

/// The first number of a snapshot. Source: CInode's default of `first`.
pub(crate) const FIRST: SnapId = SnapId(2);

/// An inode's head begins behind its versions in snapshots, and not before its name. Source:
/// EMetaBlob::fullbit::update_inode.
pub(crate) fn first_of(store: &InodeStore, name_first: SnapId) -> SnapId {
    store.old_inodes.keys().next_back().map_or(name_first, |last| name_first.max(SnapId(last.0 + 1)))
}

pub(crate) const TYPE: u32 = 0o170_000;
pub(crate) const FILE: u32 = 0o100_000;
pub(crate) const DIR: u32 = 0o040_000;
pub(crate) const SYMLINK: u32 = 0o120_000;

/// What is in memory.
#[derive(Debug, Clone, Default)]
pub(crate) struct Cache {
    pub inodes: BTreeMap<Ino, Inode>,
    pub dirs: BTreeMap<DirFrag, Dir>,
    /// Versions of inodes in snapshots that are stored with old names, by their last snapshot.
    pub copies: BTreeMap<(Ino, SnapId), (DirFrag, Key)>,
    /// Counts uses.
    uses: u64,
    /// Inodes by their last use.
    lru: BTreeMap<u64, Ino>,
}

impl Cache {
    pub fn get(&self, ino: Ino) -> Option<&Inode> {
        self.inodes.get(&ino)
    }

    pub fn get_mut(&mut self, ino: Ino) -> Option<&mut Inode> {
        self.inodes.get_mut(&ino)
    }

    pub fn insert(&mut self, inode: Inode) {
        let ino = inode.store.inode.ino;
        self.inodes.insert(ino, inode);
        self.touch(ino);
    }

    pub fn forget(&mut self, ino: Ino) {
        if let Some(inode) = self.inodes.remove(&ino) {
            self.lru.remove(&inode.touched);
        }
    }

    pub fn touch(&mut self, ino: Ino) {
        self.uses += 1;
        let Some(inode) = self.inodes.get_mut(&ino) else { return };
        self.lru.remove(&inode.touched);
        inode.touched = self.uses;
        self.lru.insert(self.uses, ino);
    }

    /// Inodes, those first that were not used for longest.
    pub fn oldest(&self) -> impl Iterator<Item = Ino> + '_ {
        self.lru.values().copied()
    }

    /// The fragment and the key that a name in a folder has.
    pub fn spot(&self, dir: Ino, name: &FileName) -> Option<(DirFrag, Key)> {
        let inode = self.get(dir)?;
        // 0 is of old folders. Source: CInode::hash_dentry_name.
        let kind = inode.store.inode.dir_hash.max(1);
        let hash = crush::str_hash(kind.into(), name) & HASH_MASK;
        let frag = inode.store.frag_tree.leaf(hash);
        Some((DirFrag { ino: dir, frag }, Key { hash, name: name.clone() }))
    }

    pub fn dir(&self, frag: DirFrag) -> Option<&Dir> {
        self.dirs.get(&frag)
    }

    pub fn dentry(&self, frag: DirFrag, key: &Key) -> Option<&Dentry> {
        self.dirs.get(&frag)?.entries.get(key)
    }

    pub fn dentry_mut(&mut self, frag: DirFrag, key: &Key) -> Option<&mut Dentry> {
        self.dirs.get_mut(&frag)?.entries.get_mut(key)
    }

    /// The folder that an inode is in, by its primary link.
    pub fn parent(&self, ino: Ino) -> Option<Ino> {
        Some(self.get(ino)?.place.as_ref()?.0.ino)
    }

    /// Whether `above` is `ino` or a folder above it.
    pub fn is_within(&self, ino: Ino, above: Ino) -> bool {
        let mut at = Some(ino);
        let mut steps = 0;
        while let Some(here) = at {
            if here == above {
                return true;
            }
            steps += 1;
            if steps > MAX_DEPTH {
                return false;
            }
            at = self.parent(here);
        }
        false
    }

    /// The inode and the folders above it, up to the root or the server's own folder.
    pub fn ancestors(&self, ino: Ino) -> Vec<Ino> {
        let mut all = vec![ino];
        let mut at = ino;
        while let Some(up) = self.parent(at).filter(|_| all.len() < MAX_DEPTH) {
            all.push(up);
            at = up;
        }
        all
    }

    /// The path from the root, without a slash in front; of a stray the path that it had.
    pub fn path(&self, ino: Ino) -> Vec<u8> {
        let mut names: Vec<&FileName> = Vec::new();
        let mut at = ino;
        while let Some((dir, key)) = self.get(at).and_then(|i| i.place.as_ref()) {
            if names::stray_owner(dir.ino).is_some() {
                let prior = self.get(at).map(|i| i.store.inode.stray_prior_path.clone()).unwrap_or_default();
                let mut path: Vec<u8> = prior.iter().skip_while(|b| **b == b'/').copied().collect();
                for name in names.iter().rev() {
                    path.push(b'/');
                    path.extend_from_slice(name);
                }
                return path;
            }
            if names.len() >= MAX_DEPTH {
                break;
            }
            names.push(&key.name);
            at = dir.ino;
        }
        names.iter().rev().map(|n| n.as_ref()).collect::<Vec<&[u8]>>().join(&b'/')
    }

    pub fn is_stray(&self, ino: Ino) -> bool {
        self.parent(ino).is_some_and(|dir| names::stray_owner(dir).is_some())
    }

    /// The fragments that a folder has by its tree.
    pub fn leaves(&self, ino: Ino) -> Vec<DirFrag> {
        let mut leaves = Vec::new();
        let Some(inode) = self.get(ino) else { return leaves };
        let mut hash = 0_u32;
        loop {
            let frag = inode.store.frag_tree.leaf(hash);
            leaves.push(DirFrag { ino, frag });
            let width = 1_u32 << (HASH_BITS - frag.bits().min(HASH_BITS));
            hash = frag.value().saturating_add(width);
            if hash > HASH_MASK {
                return leaves;
            }
        }
    }

    /// Takes a name that was read from an object, unless it is here already.
    pub fn load(&mut self, frag: DirFrag, key: Key, dentry: crate::format::Dentry, version: u64) {
        let is_here = self.dentry(frag, &key).is_some_and(|d| !d.target.is_null());
        let is_newer = self.dir(frag).is_some_and(|d| d.dirty.contains(&key) || d.committing.contains(&key));
        if is_here || is_newer {
            return;
        }
        let target = match &dentry.link {
            Link::Primary(store) => Target::Primary(store.inode.ino),
            Link::Remote { ino, d_type } => Target::Remote { ino: *ino, d_type: *d_type },
        };
        if let Target::Primary(ino) = target {
            if self.inodes.contains_key(&ino) {
                // It was moved, and the old name's end is on its way: what is in memory is newer.
                return;
            }
        }
        let Some(dir) = self.dirs.get_mut(&frag) else { return };
        let mut new = Dentry::new(target);
        (new.first, new.alternate_name, new.version) = (dentry.first, dentry.alternate_name, version);
        dir.entries.insert(key.clone(), new);
        if let Link::Primary(store) = dentry.link {
            let first = first_of(&store, dentry.first);
            self.insert(Inode { first, ..Inode::new(*store, Some((frag, key))) });
        }
    }

    /// Keeps what a name was in snapshots up to `last`.
    pub fn insert_old(&mut self, frag: DirFrag, key: Key, last: SnapId, old: OldName) {
        self.remove_old(frag, &key, last);
        let Some(dir) = self.dirs.get_mut(&frag) else { return };
        if let Link::Primary(store) = &old.dentry.link {
            self.copies.insert((store.inode.ino, last), (frag, key.clone()));
        }
        dir.old.insert((key, last), old);
    }

    pub fn remove_old(&mut self, frag: DirFrag, key: &Key, last: SnapId) {
        let Some(dir) = self.dirs.get_mut(&frag) else { return };
        let Some(old) = dir.old.remove(&(key.clone(), last)) else { return };
        if let Link::Primary(store) = &old.dentry.link {
            let at = (store.inode.ino, last);
            if self.copies.get(&at).is_some_and(|(f, k)| *f == frag && k == key) {
                self.copies.remove(&at);
            }
        }
    }

    pub fn remove_dir(&mut self, frag: DirFrag) -> Option<Dir> {
        let olds: Vec<(Key, SnapId)> = self.dirs.get(&frag)?.old.keys().cloned().collect();
        olds.iter().for_each(|(key, last)| self.remove_old(frag, key, *last));
        self.dirs.remove(&frag)
    }

    /// A fragment that is not complete any more need not have what snapshots have of it.
    pub fn make_incomplete(&mut self, frag: DirFrag) {
        let Some(dir) = self.dirs.get_mut(&frag) else { return };
        if !std::mem::replace(&mut dir.is_complete, false) {
            return;
        }
        let is_needed = |at: &(Key, SnapId)| dir.dirty_old.contains(at) || dir.committing_old.contains(at);
        let clean: Vec<(Key, SnapId)> = dir.old.keys().filter(|at| !is_needed(at)).cloned().collect();
        clean.iter().for_each(|(key, last)| self.remove_old(frag, key, *last));
    }

    /// What a name was at a snapshot, if that is not what it is now.
    pub fn old_name(&self, frag: DirFrag, key: &Key, snap: SnapId) -> Option<(SnapId, &OldName)> {
        let from = (key.clone(), snap);
        let ((at, last), old) = self.dir(frag)?.old.range(from..).next()?;
        (at == key && old.dentry.first <= snap).then_some((*last, old))
    }

    /// The version of an inode at a snapshot that is stored with an old name: its last snapshot, and where.
    pub fn copy_at(&self, ino: Ino, snap: SnapId) -> Option<(SnapId, DirFrag, &Key)> {
        let ((found, last), (frag, key)) = self.copies.range((ino, snap)..).next()?;
        let first = self.dir(*frag)?.old.get(&(key.clone(), *last))?.dentry.first;
        (*found == ino && first <= snap).then_some((*last, *frag, key))
    }

    pub fn assert_invariants(&self) {
        for (ino, inode) in &self.inodes {
            assert_eq!(*ino, inode.store.inode.ino, "an inode under its number");
            inode.caps.values().for_each(Cap::assert_invariants);
            let Some((frag, key)) = &inode.place else { continue };
            let target = self.dentry(*frag, key).map(|d| d.target);
            assert_eq!(target, Some(Target::Primary(*ino)), "invariant 1: {ino} at {key:?}");
            assert_eq!(
                self.spot(frag.ino, &key.name),
                Some((*frag, key.clone())),
                "invariant 5: {ino} at {key:?}"
            );
        }
        for ((ino, last), (frag, key)) in &self.copies {
            let old = self.dir(*frag).and_then(|d| d.old.get(&(key.clone(), *last)));
            let is_it = |o: &OldName| matches!(&o.dentry.link, Link::Primary(s) if s.inode.ino == *ino);
            assert!(old.is_some_and(is_it), "invariant 6: {ino} {last} at {key:?}");
        }
        for (frag, dir) in &self.dirs {
            assert!(self.get(frag.ino).is_some_and(Inode::is_dir), "invariant 2: {frag:?}");
            assert!(dir.dirty_old.is_empty() || dir.dirty_since.is_some(), "invariant 4: {frag:?}");
            for key in &dir.dirty {
                assert!(dir.entries.contains_key(key), "invariant 4: {frag:?} {key:?}");
            }
            assert!(dir.dirty.is_empty() || dir.dirty_since.is_some(), "invariant 4: {frag:?}");
            for (key, dentry) in &dir.entries {
                let Target::Primary(ino) = dentry.target else { continue };
                let place = self.get(ino).and_then(|i| i.place.clone());
                assert_eq!(place, Some((*frag, key.clone())), "invariant 1: {key:?}");
            }
        }
    }
}

pub(crate) const HASH_BITS: u32 = 24;
pub(crate) const HASH_MASK: u32 = (1 << HASH_BITS) - 1;

/// Folders one in the other: paths of clients are shorter.
pub(crate) const MAX_DEPTH: usize = 4_096;

impl Dir {
    /// Names that lead somewhere, that are here.
    pub fn is_empty(&self) -> bool {
        self.entries.values().all(|d| d.target.is_null())
    }
}

/// The whole directory, as long as it is in one piece.
pub(crate) fn whole(ino: Ino) -> DirFrag {
    DirFrag { ino, frag: Frag::ROOT }
}
