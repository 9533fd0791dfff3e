//! What a store is made and opened with, and what it says about itself.

use std::time::Duration;

use types::Fsid;

/// Parameters of a new store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FormatOptions {
    /// The cluster's id.
    pub fsid: Fsid,
    /// This OSD's own id; a disk that comes back under another OSD is refused by it.
    pub osd_uuid: Fsid,
    /// Length of the log region; `None` takes 1/64 of the device, between 4 and 64 MiB, but never more than 1/16.
    pub log_bytes: Option<u64>,
}

/// Parameters of an open store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// Bound of caches, memtable and dirty data together.
    pub memory_bytes: u64,
    /// A write of at least so many bytes goes straight to its place; a smaller one rides in its log record.
    pub direct_write_min_bytes: u32,
    /// Smaller writes of at least a block go straight to their places as well when those of one commit are at least so
    /// many bytes together, and lie in few runs.
    pub direct_batch_min_bytes: u32,
    /// The device is told of freed ranges of at least so many bytes.
    pub discard_min_bytes: u32,
    /// It is told of them when they have been free for so long.
    pub discard_after: Duration,
    /// Refuse a store of another cluster.
    pub expect_fsid: Option<Fsid>,
    /// Refuse a store of another OSD.
    pub expect_osd_uuid: Option<Fsid>,
    /// A bug to be found by tests and the simulator.
    #[doc(hidden)]
    #[cfg(feature = "planted")]
    pub planted: Option<Planted>,
}

/// Known mistakes, which tests must find.
#[doc(hidden)]
#[cfg(feature = "planted")]
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Planted {
    /// What a checkpoint replaces is free as soon as the checkpoint is built.
    FreedTooSoon,
    /// A checkpoint is published before what it wrote is flushed.
    PublishesUnflushed,
    /// Both copies of the superblock are written before the first is flushed.
    CopiesAtOnce,
    /// A checkpoint is published before all that it holds is durable in the log.
    PublishesUndurable,
    /// The log's tail moves when a checkpoint is built: new records overwrite those that a crash would need.
    TailTooSoon,
    /// The last record of a log counts although the data beside it may not be there.
    TrustsPlacedData,
    /// A replay gives data from the log places where later records have put theirs.
    ReplayTakesPlaces,
    /// A block that a moved one replaces is free although a clone has it too.
    MoveForgetsSharers,
    /// Slots of a checkpoint that was never published stay beside the valid ones.
    UnpublishedStay,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            memory_bytes: 64 << 20,
            direct_write_min_bytes: 64 << 10,
            direct_batch_min_bytes: 16 << 10,
            discard_min_bytes: 1 << 20,
            discard_after: Duration::from_secs(600),
            expect_fsid: None,
            expect_osd_uuid: None,
            #[cfg(feature = "planted")]
            planted: None,
        }
    }
}

/// How much of the store's reserve a transaction may use. Removals may always use most of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Priority {
    /// None for data, a quarter for metadata: refusing it hurts nobody else.
    Client,
    /// Half: another OSD has decided on it already. It is not refused for damaged blocks either: see `Store::take_lost`.
    Member,
    /// All: without it the OSD cannot go on.
    Essential,
}

/// What the store was made for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Identity {
    pub fsid: Fsid,
    pub osd_uuid: Fsid,
}

/// Space of the whole store, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Statfs {
    /// The device.
    pub total_bytes: u64,
    /// What object data can still take.
    pub available_bytes: u64,
    /// Blocks that hold object data, including copies that snapshots share only once.
    pub allocated_bytes: u64,
    /// Object data as clients see it, without holes; shared data counts for each object.
    pub stored_bytes: u64,
    /// Keys and values of omaps; those of the last seconds by estimate.
    pub omap_bytes: u64,
    /// Superblocks, log, allocation map, metadata pages.
    pub metadata_bytes: u64,
    pub objects: u64,
}

/// What a pool's objects take, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PoolTotals {
    /// What was written and not discarded; data that snapshots share counts for each of them.
    pub stored_bytes: i64,
    /// Blocks; shared ones count once.
    pub allocated_bytes: i64,
}

/// One object, as a listing or a read needs to know it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ObjectStat {
    /// Bytes.
    pub size: u64,
    /// Bytes of blocks mapped, shared ones included.
    pub allocated_bytes: u64,
    /// Whether the object has an omap or an omap header.
    pub has_omap: bool,
}

/// Running totals since the store was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counters {
    pub txns: u64,
    pub commits: u64,
    pub checkpoints: u64,
    /// Bytes of log records written, padding included.
    pub log_bytes: u64,
    /// Payload bytes that went straight to their place.
    pub direct_bytes: u64,
    /// Commits that sent small writes there, and those that had some and kept them in their record.
    pub batches_direct: u64,
    pub batches_logged: u64,
    /// Bytes a checkpoint wrote: data moved from the log, metadata pages, allocation map.
    pub checkpoint_bytes: u64,
    /// Bytes of free ranges that the device was told of.
    pub discarded_bytes: u64,
    /// Data blocks read from the device and verified.
    pub blocks_read: u64,
    pub pages_read: u64,
    pub page_cache_hits: u64,
    pub onode_cache_hits: u64,
    pub onode_cache_misses: u64,
    /// Checksum mismatches met in object data.
    pub corrupt_blocks: u64,
    /// Metadata pages of which the first copy was bad, and the second was read.
    pub corrupt_pages: u64,
    /// Bytes of memory in use against `Options::memory_bytes`.
    pub memory_bytes: u64,
    /// The highest value of that.
    pub memory_peak_bytes: u64,
    /// Log bytes in use.
    pub log_used_bytes: u64,
}
