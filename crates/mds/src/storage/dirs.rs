//! Fragments of directories: names and inodes in the omap of an object, page by page.
//!
//! Source: CDir::_omap_fetch, CDir::_omap_fetched and CDir::_omap_commit_ops in src/mds/CDir.cc.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use codec::{Decode, DecodeError, Encode};
use messages::osd::{OmapValsResponse, Op};
use types::{Errno, PoolId, SnapContext};

use super::desk::{Desk, Owner};
use super::event::{Event, LoadedDir, StorageError, Tag};
use super::object::{ObjectName, ObjectSteps, Reply, Step, StepResult};
use crate::format::{Dentry, DentryKey, DirFrag, Fnode};

/// Bytes of keys and values that one operation of a commit has, unless a single name has more: below what
/// OSDs take (`osd_max_write_size`, 90 MiB). Source: `mds_dir_max_commit_size`.
pub const MAX_COMMIT_BYTES: usize = 10 << 20;

/// What is to be stored of a fragment.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct DirCommit {
    pub fnode: Fnode,
    /// The fragment is new: its object is made if it is not there. One that is not new must have its object.
    pub is_new: bool,
    /// Encoded keys and values.
    pub set: BTreeMap<Bytes, Bytes>,
    pub remove: BTreeSet<Bytes>,
}

impl DirCommit {
    pub fn new(fnode: Fnode) -> Self {
        Self { fnode, ..Self::default() }
    }

    pub fn set(&mut self, key: &DentryKey, dentry: &Dentry) {
        self.set.insert(key.to_key().into(), dentry.to_bytes());
    }

    pub fn remove(&mut self, key: &DentryKey) {
        self.remove.insert(key.to_key().into());
    }

    /// The operations of the commit, in order. The last one has the header: until it is done the fragment
    /// has its old version, and the journal what is new.
    pub(super) fn operations(self) -> Vec<Vec<Step>> {
        let mut batches = vec![Batch::default()];
        let mut bytes = 0;
        let changes = self.remove.into_iter().map(|key| (key, None));
        for (key, value) in changes.chain(self.set.into_iter().map(|(key, value)| (key, Some(value)))) {
            let size = key.len() + value.as_ref().map_or(0, Bytes::len) + 8;
            if bytes > 0 && bytes + size > MAX_COMMIT_BYTES {
                batches.push(Batch::default());
                bytes = 0;
            }
            bytes += size;
            if let Some(batch) = batches.last_mut() {
                batch.add(key, value);
            }
        }
        let last = batches.len() - 1;
        let operation = |(i, batch): (usize, Batch)| {
            let mut steps = match (self.is_new, i) {
                (true, 0) => vec![Op::Create],
                (true, _) => vec![],
                (false, _) => vec![Op::Stat],
            };
            steps.extend(batch.steps());
            if i == last {
                steps.push(Op::OmapSetHeader { header: self.fnode.to_bytes() });
            }
            steps.into_iter().map(Step::from).collect()
        };
        batches.into_iter().enumerate().map(operation).collect()
    }
}

#[derive(Debug, Default)]
struct Batch {
    set: BTreeMap<Bytes, Bytes>,
    remove: BTreeSet<Bytes>,
}

impl Batch {
    fn add(&mut self, key: Bytes, value: Option<Bytes>) {
        match value {
            Some(value) => drop(self.set.insert(key, value)),
            None => {
                self.remove.insert(key);
            }
        }
    }

    fn steps(self) -> Vec<Op> {
        let mut steps = Vec::new();
        if !self.remove.is_empty() {
            steps.push(Op::OmapRmKeys { keys: self.remove });
        }
        if !self.set.is_empty() {
            steps.push(Op::OmapSetVals { vals: self.set });
        }
        steps
    }
}

/// What an operation of a load is for.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum DirOp {
    /// `fnode`: that of the pages before.
    Page {
        tag: Tag,
        dir: DirFrag,
        fnode: Option<Box<Fnode>>,
    },
    Names {
        tag: Tag,
        dir: DirFrag,
    },
}

fn object(pool: PoolId, dir: DirFrag) -> ObjectName {
    ObjectName::new(pool, dir.object())
}

/// Reads the first page.
pub(super) fn load(desk: &mut Desk, pool: PoolId, tag: Tag, dir: DirFrag, max: u64) {
    let page = Op::OmapGetVals { start_after: Bytes::new(), max, prefix: Bytes::new() };
    let steps = vec![Op::OmapGetHeader.into(), page.into()];
    desk.send(Owner::Dir(DirOp::Page { tag, dir, fnode: None }), object(pool, dir), steps);
}

fn load_more(desk: &mut Desk, pool: PoolId, tag: Tag, dir: DirFrag, fnode: Fnode, after: Bytes, max: u64) {
    let page = Op::OmapGetVals { start_after: after, max, prefix: Bytes::new() };
    let owner = Owner::Dir(DirOp::Page { tag, dir, fnode: Some(Box::new(fnode)) });
    desk.send(owner, object(pool, dir), vec![page.into()]);
}

pub(super) fn load_names(desk: &mut Desk, pool: PoolId, tag: Tag, dir: DirFrag, keys: BTreeSet<Bytes>) {
    let steps = vec![Op::OmapGetHeader.into(), Op::OmapGetValsByKeys { keys }.into()];
    desk.send(Owner::Dir(DirOp::Names { tag, dir }), object(pool, dir), steps);
}

/// The operations of a commit, for a job.
pub(super) fn commit_ops(pool: PoolId, dir: DirFrag, commit: DirCommit) -> Vec<ObjectSteps> {
    let with = |steps| (object(pool, dir), SnapContext::default(), steps);
    commit.operations().into_iter().map(with).collect()
}

/// Hands a page on, and asks for the next one.
pub(super) fn done(desk: &mut Desk, pool: PoolId, max: u64, op: DirOp, reply: Reply) -> Event {
    let (tag, dir) = match &op {
        DirOp::Page { tag, dir, .. } | DirOp::Names { tag, dir } => (*tag, *dir),
    };
    let failed = |error| Event::DirFailed { tag, dir, error };
    let steps = match reply {
        Ok(steps) => steps,
        Err(Errno::ENOENT) => return failed(StorageError::Missing { object: dir.object() }),
        Err(errno) => return failed(StorageError::Os { object: dir.object(), errno }),
    };
    match loaded(op, steps) {
        Ok((loaded, after)) => {
            if let Some(after) = after {
                load_more(desk, pool, tag, dir, loaded.fnode.clone(), after, max);
            }
            Event::DirLoaded { tag, dir, loaded: Box::new(loaded) }
        }
        Err(error) => failed(StorageError::Damaged { object: dir.object(), error }),
    }
}

/// The page, and the key behind which the next one begins.
fn loaded(op: DirOp, steps: Vec<StepResult>) -> Result<(LoadedDir, Option<Bytes>), DecodeError> {
    let mut outputs = steps.into_iter().map(|step| step.output);
    let mut output = || outputs.next().unwrap_or_default();
    let (fnode, vals, more) = match op {
        DirOp::Page { fnode, .. } => {
            let fnode = match fnode {
                Some(fnode) => *fnode,
                None => Fnode::from_bytes(output())?,
            };
            let page = OmapValsResponse::from_bytes(output())?;
            (fnode, page.vals, page.more)
        }
        DirOp::Names { .. } => (Fnode::from_bytes(output())?, Decode::from_bytes(output())?, false),
    };
    let after = vals.last_key_value().map(|(key, _)| key.clone()).filter(|_| more);
    let mut loaded = LoadedDir { fnode, is_last: after.is_none(), ..LoadedDir::default() };
    for (key, value) in vals {
        match dentry(&key, value) {
            Ok(found) => loaded.dentries.push(found),
            Err(error) => loaded.damaged.push((key.to_vec(), error)),
        }
    }
    Ok((loaded, after))
}

fn dentry(key: &[u8], value: Bytes) -> Result<(DentryKey, Dentry), DecodeError> {
    let unknown = DecodeError::Invalid { what: "key of a dentry", value: key.len() as u64 };
    Ok((DentryKey::of_key(key).ok_or(unknown)?, Dentry::from_bytes(value)?))
}
