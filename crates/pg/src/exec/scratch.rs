//! A request in the making: the object as the operations so far leave it, and what they change.

use std::borrow::Cow;

use bytes::Bytes;
use store::{ObjectKey, ReadPlan, Store, Txn};

use super::Effect;
use super::pause::{Fetched, Slice};
use super::work::Work;
use crate::info::PgSums;
use crate::object::{ObjectInfo, ObjectState, info_flags};

/// Operations work on this; nothing of it reaches the PG unless all of them succeed.
pub(crate) struct Scratch<'a> {
    /// The head's key; for a read of a snapshot, the key of what serves it.
    pub key: ObjectKey,
    /// The object before the request.
    pub before: &'a ObjectState,
    /// The object now; copied at the first change.
    pub state: Cow<'a, ObjectState>,
    pub txn: Txn,
    /// Something changed although the transaction may be empty (a watch, a `create` of what exists).
    pub modify: bool,
    /// The change counts as a new version to clients.
    pub user_modify: bool,
    pub delta: PgSums,
    pub effects: Vec<Effect>,
    /// Ranges (offset, length) of the head's data that changed, in any order; clones no longer share them.
    pub modified: Vec<(u64, u64)>,
    /// The object became a copy of another, with its version and time.
    pub copied: bool,
    /// A class method changed the object against its declaration: the request fails, FAILOK or not.
    pub broken: bool,
    /// What the request may still have done.
    pub work: &'a mut Work,
    /// The running operation's place in the request.
    pub subop: u32,
    /// Operations that class methods did in this request.
    pub inner_ops: u32,
    /// The work after which the request may pause, and what it has got of the read that is next.
    pub slice: Option<Slice>,
    pub got: Vec<Bytes>,
    /// What the device has read for the operation that is next, and what it has to read.
    pub fetched: Option<Fetched>,
    pub wanted: Option<Box<ReadPlan>>,
    /// What the store's count of metadata stood at when it was last looked at.
    pub metadata_read: u64,
}

impl<'a> Scratch<'a> {
    pub fn new(key: ObjectKey, state: &'a ObjectState, work: &'a mut Work) -> Self {
        Self {
            key,
            before: state,
            state: Cow::Borrowed(state),
            txn: Txn::new(),
            modify: false,
            user_modify: false,
            delta: PgSums::default(),
            effects: Vec::new(),
            modified: Vec::new(),
            copied: false,
            broken: false,
            work,
            subop: 0,
            inner_ops: 0,
            slice: None,
            got: Vec::new(),
            fetched: None,
            wanted: None,
            metadata_read: 0,
        }
    }

    /// Takes the metadata that the store has read for the request since this was called last. Whoever lists
    /// keys has long values read which it does not get. Whether that was within the request's bound.
    pub fn note_metadata(&mut self, store: &Store) -> bool {
        let read = store.metadata_bytes_read();
        let more = read.saturating_sub(std::mem::replace(&mut self.metadata_read, read));
        let is_within = more <= self.work.left();
        self.work.note(more);
        is_within
    }

    pub fn changed(&self) -> bool {
        self.modify || !self.txn.is_empty()
    }

    /// The object is there for clients.
    pub fn present(&self) -> bool {
        self.state.is_present()
    }

    pub fn info(&self) -> &ObjectInfo {
        &self.state.info
    }

    pub fn info_mut(&mut self) -> &mut ObjectInfo {
        &mut self.state.to_mut().info
    }

    /// Creates the object, or makes it visible again. Source: PrimaryLogPG::maybe_create_new_object.
    pub fn make_exist(&mut self) {
        if !self.state.exists {
            self.state.to_mut().exists = true;
            self.txn.touch(&self.key);
            self.delta.objects += 1;
            self.forget_digests();
        } else if self.state.info.test(info_flags::WHITEOUT) {
            self.info_mut().flags &= !info_flags::WHITEOUT;
            self.delta.whiteouts -= 1;
        }
    }

    /// Sets the size and counts the bytes.
    pub fn set_size(&mut self, size: u64) {
        let old = self.state.info.size;
        if old != size {
            self.delta.bytes += size as i64 - old as i64;
            self.info_mut().size = size;
        }
    }

    /// Data or omap changed: stored digests say nothing any more.
    pub fn forget_digests(&mut self) {
        const DIGESTS: u32 = info_flags::DATA_DIGEST | info_flags::OMAP_DIGEST;
        if self.state.info.flags & DIGESTS != 0 {
            self.info_mut().flags &= !DIGESTS;
        }
    }

    /// Notes that a range of data changed.
    pub fn touch_range(&mut self, offset: u64, length: u64) {
        if length > 0 {
            self.modified.push((offset, length));
        }
    }

    /// Counts one write of so many bytes.
    pub fn count_write(&mut self, bytes: u64) {
        self.delta.writes += 1;
        self.delta.write_kib += bytes.div_ceil(1024) as i64;
    }

    /// Counts one read of so many bytes.
    pub fn count_read(&mut self, bytes: usize) {
        self.delta.reads += 1;
        self.delta.read_kib += bytes.div_ceil(1024) as i64;
    }

    /// Counts whether the object has come to hold an omap or lost it. Source: PrimaryLogPG::make_writeable.
    pub fn count_omap_objects(&mut self) {
        let has = |s: &ObjectState| i64::from(s.exists && s.info.test(info_flags::OMAP));
        self.delta.objects_omap += has(&self.state) - has(self.before);
    }
}
