//! A fresh rank: what a file system has before anybody used it.
//!
//! Source: MDSRank::boot_create, MDCache::create_empty_hierarchy, create_mydir_hierarchy,
//! create_unlinked_system_inode, InoTable::reset_state, SnapServer::reset_state.

use std::collections::{BTreeMap, BTreeSet};

use codec::Encode;
use messages::fs::{FileLayout, Frag};
use messages::osd::{Extent, Op};
use types::{Ino, InoSet, PoolId, SnapContext, SnapId, Utime};

use super::dirs::{DirCommit, commit_ops};
use super::journal::{cleared_of_fresh, fresh_header};
use super::object::{ObjectName, ObjectSteps, Step};
use crate::format::{
    Backpointer, Backtrace, BaseInode, Dentry, DentryKey, DirFrag, DirLump, Fnode, InoTable, Inode,
    InodeStore, JournalPointer, Link, LogEvent, NestInfo, SessionMapHeader, SnapRealm, SnapTable, SubtreeMap,
    names, write_entry,
};

/// The snapshot from which on names and inodes are that no snapshot has. Source: CInode::CInode.
const FIRST: SnapId = SnapId(2);
/// A directory's names are hashed by rjenkins. Source: CEPH_STR_HASH_RJENKINS.
const DIR_HASH: u8 = 2;
/// Numbers of inodes that each rank has. Source: InoTable::reset_state.
const INOS_OF_A_RANK: u64 = 1 << 40;

/// What a fresh rank is made for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Fresh {
    pub(super) rank: u32,
    pub(super) pool: PoolId,
    pub(super) data_pool: PoolId,
    pub(super) has_snap_table: bool,
    /// Snapshots that the data pools had before: none is given a number up to this again.
    pub(super) last_snap: SnapId,
    pub(super) stamp: Utime,
}

impl Fresh {
    /// What a former attempt, or a former rank, may have left and would be taken for this one's: entries of
    /// journals, names in folders.
    pub(super) fn objects_before(&self) -> Vec<String> {
        let files = [names::journal(self.rank), names::purge_queue(self.rank)];
        let entries =
            files.into_iter().flat_map(|ino| cleared_of_fresh().map(move |no| names::object(ino, no)));
        let root = (self.rank == 0).then_some(Ino::ROOT);
        let strays = (0..names::STRAYS).map(|i| names::stray(self.rank, i));
        let dirs = root.into_iter().chain([names::mdsdir(self.rank)]).chain(strays);
        entries.chain(dirs.map(|ino| names::object(ino, 0))).collect()
    }

    /// Everything, in any order: the rank is not used before all of it is durable.
    pub(super) fn operations(&self) -> Vec<ObjectSteps> {
        let mut ops = Vec::new();
        let root = (self.rank == 0).then(|| self.root());
        let (mydir, mydir_node) = self.own_folder(&mut ops);
        if let Some(root) = &root {
            self.put(&mut ops, names::base_inode(Ino::ROOT), &BaseInode(root.clone()));
            self.dir(&mut ops, Ino::ROOT, DirCommit::new(fresh_fnode()));
            self.backtrace(&mut ops, root, Vec::new());
        }
        self.put(&mut ops, names::base_inode(mydir.inode.ino), &BaseInode(mydir.clone()));
        self.tables(&mut ops);
        self.journals(&mut ops, &self.first_event(mydir_node));
        ops
    }

    fn op(&self, object: String, steps: Vec<Step>) -> ObjectSteps {
        (ObjectName::new(self.pool, object), SnapContext::default(), steps)
    }

    fn put(&self, ops: &mut Vec<ObjectSteps>, object: String, value: &impl Encode) {
        ops.push(self.op(object, vec![whole(value)]));
    }

    fn dir(&self, ops: &mut Vec<ObjectSteps>, ino: Ino, commit: DirCommit) {
        let commit = DirCommit { is_new: true, ..commit };
        ops.extend(commit_ops(self.pool, DirFrag { ino, frag: Frag::ROOT }, commit));
    }

    fn system_dir(&self, ino: Ino, mode: u32) -> InodeStore {
        let rstat = NestInfo { rsubdirs: 1, rctime: self.stamp, ..NestInfo::default() };
        let inode = Inode {
            ino,
            version: 1,
            xattr_version: 1,
            mode: 0o040_500 | mode,
            ctime: self.stamp,
            mtime: self.stamp,
            btime: self.stamp,
            nlink: 1,
            truncate_size: u64::MAX,
            dir_hash: DIR_HASH,
            // Of a folder it means nothing.
            inline_version: 1,
            accounted_rstat: rstat.clone(),
            rstat,
            ..Inode::default()
        };
        InodeStore { inode, oldest_snap: SnapId::HEAD, ..InodeStore::default() }
    }

    /// The realm that a base inode begins.
    fn with_realm(store: InodeStore) -> InodeStore {
        InodeStore { realm: Some(SnapRealm { seq: SnapId(1), ..SnapRealm::default() }), ..store }
    }

    fn root(&self) -> InodeStore {
        let mut root = Self::with_realm(self.system_dir(Ino::ROOT, 0o755));
        root.inode.layout = FileLayout {
            stripe_unit: 4 << 20,
            stripe_count: 1,
            object_size: 4 << 20,
            pool: self.data_pool,
            pool_ns: String::new(),
        };
        root
    }

    /// The rank's folder, with folders for inodes that have lost their names.
    fn own_folder(&self, ops: &mut Vec<ObjectSteps>) -> (InodeStore, Fnode) {
        let ino = names::mdsdir(self.rank);
        let mut mydir = Self::with_realm(self.system_dir(ino, 0));
        let mut commit = DirCommit::new(fresh_fnode());
        let node = &mut commit.fnode;
        node.fragstat.subdirs = i64::from(names::STRAYS);
        node.rstat.rsubdirs = i64::from(names::STRAYS);
        (node.rstat.rctime, node.fragstat.mtime) = (self.stamp, Utime::ZERO);
        (node.accounted_fragstat, node.accounted_rstat) = (node.fragstat.clone(), node.rstat.clone());
        let node = node.clone();
        for i in 0..names::STRAYS {
            let stray = self.system_dir(names::stray(self.rank, i), 0);
            let key = DentryKey::head(format!("stray{i}"));
            self.stray(ops, &stray, &key, ino);
            let link = Link::Primary(Box::new(stray));
            commit.set(&key, &Dentry { first: FIRST, alternate_name: bytes::Bytes::new(), link });
        }
        self.dir(ops, ino, commit);
        mydir.inode.dirstat = node.fragstat.clone();
        mydir.inode.rstat = NestInfo { rsubdirs: node.rstat.rsubdirs + 1, ..node.rstat.clone() };
        mydir.inode.accounted_rstat = mydir.inode.rstat.clone();
        (mydir, node)
    }

    fn stray(&self, ops: &mut Vec<ObjectSteps>, stray: &InodeStore, key: &DentryKey, dir: Ino) {
        let inode = &stray.inode;
        self.dir(ops, inode.ino, DirCommit::new(fresh_fnode()));
        let up = Backpointer { dir, name: key.name.clone(), version: inode.version };
        self.backtrace(ops, stray, vec![up]);
    }

    fn backtrace(&self, ops: &mut Vec<ObjectSteps>, store: &InodeStore, ancestors: Vec<Backpointer>) {
        let inode = &store.inode;
        let (ino, pool, old_pools) = (inode.ino, self.pool, BTreeSet::new());
        let trace = Backtrace { ino, ancestors, pool, old_pools };
        let steps = backtrace_steps(&trace, Some(&inode.layout));
        ops.push(self.op(names::object(inode.ino, 0), steps));
    }

    fn tables(&self, ops: &mut Vec<ObjectSteps>) {
        let mut free = InoSet::new();
        free.insert_run((u64::from(self.rank) + 1) * INOS_OF_A_RANK, INOS_OF_A_RANK);
        self.put(ops, names::ino_table(self.rank), &InoTable { version: 0, free });
        let header = SessionMapHeader::default().to_bytes();
        let steps = vec![Op::Create.into(), Op::OmapClear.into(), Op::OmapSetHeader { header }.into()];
        ops.push(self.op(names::session_map(self.rank), steps));
        if self.has_snap_table {
            // The first one is the root's realm.
            let last = self.last_snap.max(SnapId(1));
            let table = SnapTable {
                version: 1,
                last_snap: last,
                snaps: BTreeMap::new(),
                need_to_purge: BTreeMap::new(),
                pending_update: BTreeMap::new(),
                pending_destroy: BTreeMap::new(),
                pending_noop: BTreeSet::new(),
                last_created: last,
                last_destroyed: last,
                realms_v2_since: SnapId(last.0 + 1),
                pending_for_ranks: BTreeMap::new(),
            };
            self.put(ops, names::SNAP_TABLE.to_owned(), &table);
        }
    }

    fn journals(&self, ops: &mut Vec<ObjectSteps>, first: &LogEvent) {
        let (log, queue) = (names::journal(self.rank), names::purge_queue(self.rank));
        let pointer = JournalPointer { front: log, back: Ino(0) };
        self.put(ops, names::object(names::journal_pointer(self.rank), 0), &pointer);
        let header = fresh_header(self.pool);
        let entry = codec::Writer::collect(|w| {
            write_entry(w, &first.to_bytes(), header.write_pos);
        });
        let step = Op::WriteFull { extent: Extent::new(0, entry.len() as u64), data: entry };
        ops.push(self.op(names::object(log, 1), vec![step.into()]));
        for ino in [log, queue] {
            self.put(ops, names::object(ino, 0), &header);
        }
    }

    /// Opens the first segment: which subtrees the rank has.
    fn first_event(&self, mydir_node: Fnode) -> LogEvent {
        let mut map = SubtreeMap { stamp: self.stamp, event_seq: 1, ..SubtreeMap::default() };
        map.expire_pos = fresh_header(self.pool).expire_pos;
        let root = (self.rank == 0).then(|| (Ino::ROOT, fresh_fnode()));
        for (ino, fnode) in root.into_iter().chain([(names::mdsdir(self.rank), mydir_node)]) {
            let dir = DirFrag { ino, frag: Frag::ROOT };
            map.metadata.order.push(dir);
            map.metadata.lumps.insert(dir, DirLump { fnode, ..DirLump::default() });
            map.subtrees.insert(dir, Vec::new());
        }
        LogEvent::SubtreeMap(map)
    }
}

fn fresh_fnode() -> Fnode {
    Fnode { version: 1, ..Fnode::default() }
}

fn whole(value: &impl Encode) -> Step {
    let data = value.to_bytes();
    Op::WriteFull { extent: Extent::new(0, data.len() as u64), data }.into()
}

/// The steps that store a backtrace. Source: CInodeCommitObjectSteps::update.
pub(super) fn backtrace_steps(trace: &Backtrace, layout: Option<&FileLayout>) -> Vec<Step> {
    let set = |name: &str, value| Step::from(Op::SetXattr { name: name.to_owned(), value });
    let mut steps = vec![Op::Create.into(), set("parent", trace.to_bytes())];
    steps.extend(layout.map(|layout| set("layout", layout.to_bytes())));
    steps
}
