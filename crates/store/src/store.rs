//! The store as its owner sees it: open, submit, commit, checkpoint, read.

use std::ops::Bound;
use std::sync::Arc;

use bytes::Bytes;
use types::HObject;

use crate::{
    Checkpoint, CheckpointDone, Commit, CommitDone, Counters, Device, DeviceError, FormatOptions, Identity,
    ObjectKey, ObjectStat, Options, Space, Statfs, StoreError, Txn, TxnSeq,
};

/// Entries in key order, and whether more follow.
pub type KeyPage = (Vec<(Bytes, Bytes)>, bool);

/// The object store on one device. One owner calls it; device writes leave it as jobs.
pub struct Store {
    device: Arc<dyn Device>,
}

impl Store {
    /// Makes an empty store; what was on the device is lost.
    pub fn format(device: &dyn Device, options: FormatOptions) -> Result<(), StoreError> {
        let _ = (device, options);
        Err(StoreError::Stopped)
    }

    /// Opens a store: reads the superblock and replays the log.
    pub fn open(device: Arc<dyn Device>, options: Options) -> Result<Self, StoreError> {
        let _ = options;
        let _ = Self { device };
        Err(StoreError::Stopped)
    }

    pub fn identity(&self) -> Identity {
        Identity { fsid: Default::default(), osd_uuid: Default::default() }
    }

    /// Validates the transaction, applies it to what reads see, and queues its log record: all of it or nothing.
    ///
    /// It is durable once `committed` or `checkpointed` has returned a sequence at or above the one returned here.
    pub fn submit(&mut self, txn: Txn) -> Result<TxnSeq, StoreError> {
        let _ = (txn, &self.device);
        Err(StoreError::Stopped)
    }

    /// Everything submitted since the last commit, as a job to run against the device without holding the store.
    /// `None` when there is nothing, while a commit is under way, and while the log is full (a checkpoint is due then).
    pub fn take_commit(&mut self) -> Option<Commit> {
        None
    }

    /// Hands back a commit's outcome; all transactions up to the returned one are durable.
    ///
    /// After a failure the store refuses all further work.
    pub fn committed(&mut self, done: Result<CommitDone, DeviceError>) -> Result<TxnSeq, StoreError> {
        let _ = done;
        Err(StoreError::Stopped)
    }

    /// All transactions up to this one are durable.
    pub fn durable(&self) -> TxnSeq {
        TxnSeq(0)
    }

    /// Whether log space or memory ask for a checkpoint (or its second step) now.
    pub fn checkpoint_due(&self) -> bool {
        false
    }

    /// Whether the caller should hold back new work until a checkpoint is through: memory or log are nearly used up.
    pub fn throttled(&self) -> bool {
        false
    }

    /// The next step of moving log content to its place, as a job; `None` while one is under way or none is possible.
    pub fn take_checkpoint(&mut self) -> Option<Checkpoint> {
        None
    }

    /// Hands back a checkpoint step's outcome; all transactions up to the returned one are durable.
    pub fn checkpointed(&mut self, done: Result<CheckpointDone, DeviceError>) -> Result<TxnSeq, StoreError> {
        let _ = done;
        Err(StoreError::Stopped)
    }

    /// `None` when the object does not exist. The other reads take a missing object for an empty one.
    pub fn stat(&mut self, key: &ObjectKey) -> Result<Option<ObjectStat>, StoreError> {
        let _ = key;
        Err(StoreError::Stopped)
    }

    /// The bytes of a range, verified; short at the end of the object. Holes read as zeros.
    pub fn read(&mut self, key: &ObjectKey, offset: u64, len: u64) -> Result<Bytes, StoreError> {
        let _ = (key, offset, len);
        Err(StoreError::Stopped)
    }

    /// The `(offset, length)` ranges inside the given one that hold data, joined where they touch.
    pub fn extents(&mut self, key: &ObjectKey, offset: u64, len: u64) -> Result<Vec<(u64, u64)>, StoreError> {
        let _ = (key, offset, len);
        Err(StoreError::Stopped)
    }

    pub fn attr(&mut self, key: &ObjectKey, name: &[u8]) -> Result<Option<Bytes>, StoreError> {
        let _ = (key, name);
        Err(StoreError::Stopped)
    }

    /// All attributes in name order.
    pub fn attrs(&mut self, key: &ObjectKey) -> Result<Vec<(Bytes, Bytes)>, StoreError> {
        let _ = key;
        Err(StoreError::Stopped)
    }

    pub fn omap_header(&mut self, key: &ObjectKey) -> Result<Bytes, StoreError> {
        let _ = key;
        Err(StoreError::Stopped)
    }

    /// Those of the given keys that exist, with their values, in the order asked.
    pub fn omap_get(&mut self, key: &ObjectKey, keys: &[Bytes]) -> Result<Vec<(Bytes, Bytes)>, StoreError> {
        let _ = (key, keys);
        Err(StoreError::Stopped)
    }

    /// Omap entries in key order from `from`, at most so many and (but for the first) so many bytes.
    pub fn omap_list(
        &mut self,
        key: &ObjectKey,
        from: Bound<&[u8]>,
        max_entries: usize,
        max_bytes: usize,
    ) -> Result<KeyPage, StoreError> {
        let _ = (key, from, max_entries, max_bytes);
        Err(StoreError::Stopped)
    }

    /// Objects of a shard from `from` up to, without, `until`, in order.
    pub fn list(
        &mut self,
        shard: i8,
        from: &HObject,
        until: &HObject,
        max: usize,
    ) -> Result<Vec<HObject>, StoreError> {
        let _ = (shard, from, until, max);
        Err(StoreError::Stopped)
    }

    pub fn get(&mut self, space: Space, key: &[u8]) -> Result<Option<Bytes>, StoreError> {
        let _ = (space, key);
        Err(StoreError::Stopped)
    }

    /// Keys of a space from `from` up to, without, `until` (`None`: to the end), at most `max`.
    pub fn scan(
        &mut self,
        space: Space,
        from: &[u8],
        until: Option<&[u8]>,
        max: usize,
    ) -> Result<Vec<(Bytes, Bytes)>, StoreError> {
        let _ = (space, from, until, max);
        Err(StoreError::Stopped)
    }

    /// All spaces that hold a key, in order.
    pub fn spaces(&mut self) -> Result<Vec<Space>, StoreError> {
        Err(StoreError::Stopped)
    }

    pub fn statfs(&self) -> Statfs {
        Statfs::default()
    }

    pub fn counters(&self) -> Counters {
        Counters::default()
    }
}
