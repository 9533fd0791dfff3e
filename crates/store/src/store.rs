//! The store as its owner sees it: submit, commit, checkpoint. Opening is in `open`, reading in `reads`.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::alloc::{Allocator, Run, count_blocks};
use crate::apply::{Apply, Mode};
use crate::checkpoint::{Build, Built, Checkpoint, CheckpointDone, Publish, StepDone};
use crate::checksum::BLOCK_U64;
use crate::data::DataBlocks;
use crate::discard::Resting;
use crate::index::Index;
use crate::jobs::{Commit, CommitDone};
use crate::log::Log;
use crate::map::MapState;
use crate::memtable::LayerSize;
use crate::merge::Pool;
use crate::pool_totals::{self, Pools};
use crate::record::LoggedTxn;
use crate::stage::Stage;
use crate::superblock::{LogPosition, StaleCopy, Superblock, Totals};
use crate::{
    Counters, DeviceError, Identity, Misuse, ObjectKey, PoolTotals, Priority, Statfs, StoreError, Txn, TxnSeq,
};

/// The object store on one device. One owner calls it; device writes leave it as jobs.
///
/// Invariants: (1) what `submit` accepted is in `index.active` or below and, until it is durable, in the log's queue,
/// in a commit under way, or absorbed by a checkpoint; (2) a block that the published checkpoint uses, or that was
/// taken since, is not free in `alloc` before a later checkpoint is published; (3) after a failed write or flush
/// nothing is accepted any more.
pub struct Store {
    pub(crate) superblock: Superblock,
    pub(crate) stale: StaleCopy,
    pub(crate) map: MapState,
    pub(crate) index: Index,
    pub(crate) data: DataBlocks,
    pub(crate) alloc: Allocator,
    pub(crate) log: Log,
    pub(crate) phase: Phase,
    pub(crate) totals: Totals,
    pub(crate) pools: Pools,
    pub(crate) next_omap_id: u64,
    pub(crate) limits: Limits,
    pub(crate) counters: Counters,
    /// The last transaction's stage, emptied: the next one's lists have room.
    pub(crate) spare: Option<Box<Stage>>,
    /// For keys that are only looked up.
    pub(crate) key_buffer: Vec<u8>,
    /// By the last transaction.
    pub(crate) lost: Vec<ObjectKey>,
    /// A refused transaction might fit after a checkpoint.
    pub(crate) wants_space: bool,
    pub(crate) resting: Resting,
    pub(crate) stopped: bool,
}

/// How far the checkpoint is.
#[derive(Debug)]
pub(crate) enum Phase {
    Idle,
    Building(Freeze),
    /// Waits until every transaction in it is durable.
    Built(Freeze, Box<Built>),
    Publishing(Freeze, Box<Built>),
    /// Blocks that are free, and taken for so long.
    Discarding(Vec<Run>),
}

/// What was current when the checkpoint froze the active layer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Freeze {
    txn: TxnSeq,
    /// Must be durable before the superblock is switched.
    needs: TxnSeq,
    log: LogPosition,
    /// Blocks by which the tree may grow, set aside.
    growth_blocks: u64,
    /// All that is set aside.
    pool_blocks: u64,
}

/// Bounds derived from the options.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    /// Of caches and layers together: `Options::memory_bytes`, or what was set since.
    pub(crate) memory_bytes: usize,
    pub(crate) direct_min_bytes: usize,
    pub(crate) batch_min_bytes: usize,
    pub(crate) discard_min_blocks: u32,
    pub(crate) discard_after: Duration,
    /// Kept free for removals and checkpoints.
    pub(crate) reserve_blocks: u64,
    #[cfg(feature = "planted")]
    pub(crate) planted: Option<crate::Planted>,
}

impl Store {
    pub fn identity(&self) -> Identity {
        Identity { fsid: self.superblock.fsid, osd_uuid: self.superblock.osd_uuid }
    }

    /// Validates the transaction, applies it to what reads see, and queues its log record: all of it or nothing.
    ///
    /// It is durable once `committed` or `checkpointed` has returned a sequence at or above the one returned here.
    pub fn submit(&mut self, txn: Txn) -> Result<TxnSeq, StoreError> {
        self.submit_as(txn, Priority::Client)
    }

    /// The same for a transaction that may use some or all of the reserve.
    pub fn submit_as(&mut self, txn: Txn, priority: Priority) -> Result<TxnSeq, StoreError> {
        self.check_running()?;
        let lose_damaged = priority == Priority::Member;
        let mode = Mode::Live { direct_min_bytes: self.limits.direct_min_bytes, lose_damaged };
        let (mut stage, outcome) = self.apply(&txn, mode);
        let logged = LoggedTxn::new(&txn, std::mem::take(&mut stage.placements), &stage.small);
        let checked = outcome
            .and_then(|()| self.log.check_size(&logged))
            .and_then(|()| self.check_space(&stage, priority));
        if let Err(e) = checked {
            // Whatever found no room, the next checkpoint may free some.
            self.wants_space |= matches!(e, StoreError::Full { .. });
            stage.abandon(&mut self.alloc);
            self.keep(stage);
            return Err(e);
        }
        self.lost = std::mem::take(&mut stage.lost);
        let (seq, direct) = (self.log.next_txn(), std::mem::take(&mut stage.direct));
        // Before what the transaction itself frees again is taken out.
        self.data.transit.add(seq, &direct);
        stage.small.iter().for_each(|b| self.data.transit.add_small(seq, b.place, b.content.clone()));
        self.log.push(logged, direct, stage.small.drain(..));
        self.accept(stage);
        self.counters.txns += 1;
        self.note_memory();
        Ok(seq)
    }

    pub(crate) fn apply(&mut self, txn: &Txn, mode: Mode) -> (Box<Stage>, Result<(), StoreError>) {
        let mut apply = Apply {
            txn,
            index: &mut self.index,
            data: &mut self.data,
            alloc: &mut self.alloc,
            next_omap_id: self.next_omap_id,
            mode,
            stage: self.spare.take().unwrap_or_default(),
            #[cfg(feature = "planted")]
            planted: self.limits.planted,
        };
        let outcome = apply.run();
        (apply.stage, outcome)
    }

    fn keep(&mut self, mut stage: Box<Stage>) {
        stage.empty();
        self.spare = Some(stage);
    }

    /// Makes a stage part of the state.
    pub(crate) fn accept(&mut self, mut stage: Box<Stage>) {
        self.next_omap_id += stage.new_omap_ids;
        let delta = stage.merge_into(&mut self.index, &mut self.data.transit);
        self.totals.objects = self.totals.objects.saturating_add_signed(delta.objects);
        self.totals.stored_bytes = self.totals.stored_bytes.saturating_add_signed(delta.stored_bytes());
        pool_totals::add(&mut self.pools, &delta);
        self.keep(stage);
    }

    /// Objects of which the last transaction lost a block: it changed a part of one whose rest was damaged,
    /// or copied or renamed an object that had lost one before. They need another copy's data.
    pub fn take_lost(&mut self) -> Vec<ObjectKey> {
        std::mem::take(&mut self.lost)
    }

    /// Everything submitted since the last commit, as a job to run against the device without holding the store.
    /// `None` when there is nothing, while a commit is under way, and while the log is full (a checkpoint is due then).
    pub fn take_commit(&mut self) -> Option<Commit> {
        if self.stopped {
            return None;
        }
        let taken = self.log.take(self.superblock.generation, self.limits.batch_min_bytes)?;
        let commit = taken.commit;
        let (log, direct) = commit.bytes();
        self.counters.batches_direct += u64::from(taken.placed);
        self.counters.batches_logged += u64::from(!taken.logged.is_empty());
        for block in &taken.logged {
            if let Some(content) = self.data.transit.take_small(block.place) {
                // A copy: the payload is a part of the message that brought it.
                let copy = self.data.pool.copy(&content);
                self.index.active.dirty.insert(block.place, copy);
            }
        }
        self.counters.commits += 1;
        self.counters.log_bytes += log;
        self.counters.direct_bytes += direct;
        Some(commit)
    }

    /// Hands back a commit's outcome; all transactions up to the returned one are durable.
    ///
    /// After a failure the store refuses all further work.
    pub fn committed(&mut self, done: Result<CommitDone, DeviceError>) -> Result<TxnSeq, StoreError> {
        self.check_running()?;
        let done = done.inspect_err(|_| self.stopped = true)?;
        self.log.committed(done.last)?;
        self.data.transit.forget(done.last);
        Ok(self.log.durable)
    }

    /// All transactions up to this one are durable.
    pub fn durable(&self) -> TxnSeq {
        self.log.durable
    }

    /// The last transaction submitted.
    pub fn submitted(&self) -> TxnSeq {
        self.log.last_txn
    }

    /// Whether log space, memory, free space or what was freed ask for a checkpoint, or its second step is ready.
    pub fn checkpoint_due(&self) -> bool {
        match &self.phase {
            _ if self.stopped => false,
            Phase::Idle if self.has_nothing_to_checkpoint() => false,
            Phase::Idle => {
                self.wants_space
                    || self.much_waits_to_be_free()
                    || self.log.used_bytes() > self.log.ring.len / 2
                    || self.log.queue_bytes() as u64 > self.log.ring.len / 2
                    || (self.log.has_queue() && !self.log.queue_fits())
                    || self.index.active.bytes() > self.limits.layer_bytes()
            }
            Phase::Built(freeze, _) => self.log.durable >= freeze.needs,
            Phase::Building(_) | Phase::Publishing(..) | Phase::Discarding(_) => false,
        }
    }

    /// Whether a checkpoint would free half as much again as is free now, and no less than a 64th of the device: what
    /// removed a lot leaves little in the log. Else large writes would fill the holes between small ones until nothing is
    /// left, while long runs wait.
    fn much_waits_to_be_free(&self) -> bool {
        let waiting = self.index.active.freed_blocks;
        waiting >= u64::from(self.superblock.layout.blocks / 64)
            && waiting > u64::from(self.alloc.free_blocks()) / 2
    }

    /// Whether the caller should hold back new work until a checkpoint is through: memory or log are nearly used up.
    pub fn throttled(&self) -> bool {
        let frozen = self.index.frozen.as_ref().map_or(0, |f| f.bytes());
        let queued = self.log.queue_bytes() + self.data.transit.bytes();
        self.index.active.bytes() + frozen + queued > self.limits.throttle_bytes() || !self.log.queue_fits()
    }

    /// Whether more than those who submitted wait for a commit: a checkpoint, or whoever is held back until one is through.
    pub fn commit_due(&self) -> bool {
        match &self.phase {
            Phase::Built(freeze, _) => self.log.durable < freeze.needs,
            _ => self.throttled(),
        }
    }

    /// The next step of moving log content to its place, as a job; `None` while one is under way or none is possible.
    /// May be called before a checkpoint is due, for example when the OSD is idle or stops.
    pub fn take_checkpoint(&mut self) -> Option<Checkpoint> {
        if self.stopped {
            return None;
        }
        match std::mem::replace(&mut self.phase, Phase::Idle) {
            Phase::Idle if self.has_nothing_to_checkpoint() => None,
            Phase::Idle => Some(self.freeze()),
            Phase::Built(freeze, built)
                if self.log.durable >= freeze.needs
                    || types::is_planted!(self.limits.planted, PublishesUndurable) =>
            {
                let (superblock, at_once) =
                    (built.superblock.clone(), types::is_planted!(self.limits.planted, CopiesAtOnce));
                let publish = Publish { superblock, stale: self.stale, at_once };
                self.phase = Phase::Publishing(freeze, built);
                Some(Checkpoint::publish(publish))
            }
            other => {
                self.phase = other;
                None
            }
        }
    }

    /// What is worth doing now and then, as a job that goes the way of a checkpoint's steps: the device is told of what has
    /// been free for `Options::discard_after`, no more than 64 MiB at once. What was freed on a store that nobody writes to
    /// any more gets a checkpoint for it. `now` is monotonic; call it about once a second.
    pub fn take_discard(&mut self, now: Duration) -> Option<Checkpoint> {
        let unpublished = self.resting.set_now(now);
        if self.stopped || !matches!(self.phase, Phase::Idle) || self.checkpoint_due() {
            return None;
        }
        let (least, rest) = (self.limits.discard_min_blocks, self.limits.discard_after);
        if unpublished >= rest && self.index.active.freed_blocks >= u64::from(least) {
            return Some(self.freeze());
        }
        // No more than others can do without for a moment.
        let needed = self.needed_blocks(&Stage::default(), true) + self.limits.reserve_blocks;
        let room = u64::from(self.alloc.free_blocks()).saturating_sub(needed) / 8;
        if room < u64::from(least) {
            return None;
        }
        let ripe = self.resting.take(rest, room);
        let runs: Vec<Run> = ripe.into_iter().flat_map(|run| self.alloc.claim_free(run, least)).collect();
        if runs.is_empty() {
            return None;
        }
        self.phase = Phase::Discarding(runs.clone());
        Some(Checkpoint::discard(runs))
    }

    /// Records of empty transactions change nothing, but take room in the log.
    fn has_nothing_to_checkpoint(&self) -> bool {
        self.index.active.is_empty() && self.log.used_bytes() == 0 && !self.log.has_queue()
    }

    /// Turns the active layer into the one being checkpointed.
    fn freeze(&mut self) -> Checkpoint {
        let in_flight = self.log.in_flight_last();
        let absorbed = if self.log.queue_fits() { None } else { Some(self.log.absorb()) };
        self.log.place_queue();
        let (key, value) = pool_totals::entry(&self.pools);
        self.index.active.put_kv(key, Some(value));
        let txn = self.log.last_txn;
        let needs = if absorbed.is_some() { in_flight.unwrap_or(self.log.durable) } else { txn };
        let image = self.alloc.bitmap().clone();
        let touched = std::mem::take(&mut self.alloc.touched);
        let growth_blocks = self.growth_blocks(&Stage::default());
        let (pool, mirror) = self.set_aside(growth_blocks);
        let pool_blocks = count_blocks(&pool) + count_blocks(&mirror);
        let frozen = Arc::new(std::mem::take(&mut self.index.active));
        self.index.frozen = Some(frozen.clone());
        let superblock = Superblock {
            generation: self.map.next_generation(self.superblock.generation),
            log: self.log.head,
            txn: txn.0,
            next_omap_id: self.next_omap_id,
            totals: Totals {
                page_blocks: self.superblock.totals.page_blocks,
                mirror_blocks: self.superblock.totals.mirror_blocks,
                ..self.totals
            },
            ..self.superblock.clone()
        };
        self.phase = Phase::Building(Freeze { txn, needs, log: self.log.head, growth_blocks, pool_blocks });
        self.wants_space = false;
        Checkpoint::build(Build {
            frozen,
            absorbed: absorbed.unwrap_or_default(),
            pool: Pool::new(pool),
            mirror: Pool::new(mirror),
            sick: std::mem::take(&mut self.index.pages.sick).into_values().collect(),
            image,
            touched,
            map: self.map.clone(),
            superblock,
            unflushed: types::is_planted!(self.limits.planted, PublishesUnflushed),
        })
    }

    /// Blocks for a whole new tree, and, while there is plenty beyond the reserve, for second copies of its pages.
    fn set_aside(&mut self, growth_blocks: u64) -> (Vec<Run>, Vec<Run>) {
        const PLENTY: u64 = 8;
        let tree = growth_blocks + self.superblock.totals.tree_blocks();
        let free = u64::from(self.alloc.free_blocks());
        let left = free.saturating_sub(tree + growth_blocks + self.limits.reserve_blocks);
        let copies = if left / PLENTY >= tree { tree } else { 0 };
        let mut take = |blocks: u64| self.alloc.take_all(blocks as u32).unwrap_or_default();
        (take(tree.min(free)), take(copies))
    }

    /// Hands back a checkpoint step's outcome; all transactions up to the returned one are durable.
    pub fn checkpointed(&mut self, done: Result<CheckpointDone, StoreError>) -> Result<TxnSeq, StoreError> {
        self.check_running()?;
        let done = done.inspect_err(|_| self.stopped = true)?;
        match (std::mem::replace(&mut self.phase, Phase::Idle), done.0) {
            (Phase::Building(freeze), StepDone::Built(mut built)) => {
                std::mem::take(&mut built.unused).into_iter().for_each(|run| self.alloc.give_back(run));
                self.counters.checkpoint_bytes += built.written_bytes;
                if types::is_planted!(self.limits.planted, FreedTooSoon) {
                    self.free_replaced(&built);
                }
                if types::is_planted!(self.limits.planted, TailTooSoon) {
                    self.log.tail = freeze.log.offset;
                }
                self.phase = Phase::Built(freeze, built);
            }
            (Phase::Publishing(freeze, built), StepDone::Published) => self.published(freeze, *built),
            (Phase::Discarding(runs), StepDone::Discarded) => {
                self.counters.discarded_bytes += count_blocks(&runs) * BLOCK_U64;
                runs.into_iter().for_each(|run| self.alloc.give_back(run));
            }
            (phase, _) => {
                self.phase = phase;
                return Err(StoreError::Misuse(Misuse::WrongJob));
            }
        }
        Ok(self.log.durable)
    }

    fn published(&mut self, freeze: Freeze, built: Built) {
        let layer_freed = self.index.frozen.iter().flat_map(|layer| &layer.freed);
        let freed = built.merged.replaced.iter().chain(layer_freed).copied();
        self.resting.published(freed, self.limits.discard_min_blocks);
        if !types::is_planted!(self.limits.planted, FreedTooSoon) {
            self.free_replaced(&built);
        }
        let layer = self.index.publish(built.merged.root, &built.merged.replaced, built.merged.fresh);
        if let Some(layer) = layer {
            let dirty = Arc::into_inner(layer).map(|l| l.dirty).unwrap_or_default();
            self.data.pool.recycle(dirty.into_values(), self.limits.layer_bytes());
        }
        self.map = built.map;
        self.superblock = built.superblock;
        // Both copies are current now; which one goes first next time does not matter.
        self.log.published(freeze.log.offset, freeze.txn);
        self.data.transit.forget(freeze.txn);
        self.counters.checkpoints += 1;
        self.note_memory();
    }

    /// What a checkpoint replaced may be used again.
    fn free_replaced(&mut self, built: &Built) {
        let layers = self.index.frozen.iter().flat_map(|layer| &layer.freed);
        built.merged.replaced.iter().chain(layers).for_each(|run| self.alloc.give_back(*run));
    }

    pub(crate) fn check_running(&self) -> Result<(), StoreError> {
        if self.stopped { Err(StoreError::Stopped) } else { Ok(()) }
    }

    /// Blocks by which the tree may grow in the next checkpoint if it also takes this stage.
    fn growth_blocks(&self, stage: &Stage) -> u64 {
        let leaves = self.superblock.root.as_ref().map_or(0, |r| r.sums.leaves) + 1;
        let pools = LayerSize { keys: 1, tree_bytes: pool_totals::tree_bytes(&self.pools) };
        self.index.active.size().plus(stage.size()).plus(pools).growth_blocks(leaves)
    }

    /// Blocks that must stay free, so that the next checkpoint finds room whatever happens until then. With `spare`, also
    /// what the active layer's growth takes once it is being written: then a transaction that fits now fits then.
    fn needed_blocks(&self, stage: &Stage, spare: bool) -> u64 {
        let growth = self.growth_blocks(stage);
        let later = if spare { 2 * growth } else { growth };
        match &self.phase {
            // A whole new tree may have to be written beside the old one.
            Phase::Idle | Phase::Discarding(_) => later + self.superblock.totals.tree_blocks(),
            // The one under way has that set aside, and gives back what it did not need or replaced: the tree is larger
            // by its growth at most.
            Phase::Building(f) => later + f.growth_blocks,
            Phase::Built(f, built) | Phase::Publishing(f, built) => {
                let (used, replaced) = (built.merged.used_blocks, built.merged.replaced_blocks);
                let after_publish = built.superblock.totals.tree_blocks().saturating_sub(replaced);
                // After a crash before it is published, all of it is to be done again.
                let after_crash =
                    (f.growth_blocks + self.superblock.totals.tree_blocks()).saturating_sub(used);
                (later + after_publish).max(growth + after_crash)
            }
        }
    }

    /// Refuses growth that would leave no room for the next checkpoint and for removals.
    fn check_space(&mut self, stage: &Stage, priority: Priority) -> Result<(), StoreError> {
        // What a discard holds for a moment counts as free: there is the reserve until it is back.
        let held = match &self.phase {
            Phase::Discarding(runs) => count_blocks(runs),
            _ => 0,
        };
        let free = u64::from(self.alloc.free_blocks()) + held;
        let whole = self.limits.reserve_blocks;
        // What replaces data is no release, whatever it cuts off first.
        let releases = stage.releases && stage.taken_blocks() <= count_blocks(&stage.freed);
        let reserve = match priority {
            Priority::Essential => 0,
            _ if releases => whole / 4,
            Priority::Member => whole / 2,
            Priority::Client if stage.taken.is_empty() => whole * 3 / 4,
            Priority::Client => whole,
        };
        let bare = self.needed_blocks(stage, !releases && priority != Priority::Essential);
        let needed = bare + reserve;
        // A checkpoint resets what it needs itself, and frees what was given back: time for one before it is tight.
        self.wants_space |= free < bare + self.limits.reserve_blocks / 2;
        if needed <= free {
            return Ok(());
        }
        self.wants_space = true;
        let taken = stage.taken_blocks();
        Err(StoreError::Full {
            needed_bytes: taken.max(1) * BLOCK_U64,
            available_bytes: (free + taken).saturating_sub(needed) * BLOCK_U64,
        })
    }

    pub fn statfs(&self) -> Statfs {
        let bytes = |blocks: u64| blocks * BLOCK_U64;
        let layout = &self.superblock.layout;
        let free = u64::from(self.alloc.free_blocks());
        let pages = self.superblock.totals.page_blocks;
        let fixed = u64::from(layout.fixed().len);
        let (pending, set_aside) = self.pending_blocks();
        let free_soon = free + pending + set_aside;
        let needed = self.needed_blocks(&Stage::default(), true) + self.limits.reserve_blocks;
        Statfs {
            total_bytes: self.superblock.device_bytes,
            available_bytes: bytes(free_soon.saturating_sub(needed)),
            allocated_bytes: bytes(u64::from(layout.blocks).saturating_sub(fixed + pages + free_soon)),
            stored_bytes: self.totals.stored_bytes,
            omap_bytes: self.superblock.root.as_ref().map_or(0, |r| r.sums.omap_bytes)
                + self.index.omap_bytes_in_memory(),
            metadata_bytes: bytes(fixed + pages),
            objects: self.totals.objects,
        }
    }

    /// What each pool's objects take.
    pub fn pool_totals(&self) -> &BTreeMap<i64, PoolTotals> {
        &self.pools
    }

    /// Blocks free after the next checkpoint, and blocks set aside for the one under way.
    fn pending_blocks(&self) -> (u64, u64) {
        let frozen = self.index.frozen.as_ref().map_or(0, |f| f.freed_blocks);
        let set_aside = match &self.phase {
            Phase::Building(f) => f.pool_blocks,
            Phase::Built(_, b) | Phase::Publishing(_, b) => b.merged.used_blocks,
            Phase::Discarding(runs) => count_blocks(runs),
            Phase::Idle => 0,
        };
        (self.index.active.freed_blocks + frozen, set_aside)
    }

    /// Bytes of metadata that were read from the device so far, because no cache had them. A long value of an
    /// omap is a page of its own, and is read whole to learn its key.
    pub fn metadata_bytes_read(&self) -> u64 {
        self.index.metadata_bytes_read()
    }

    pub fn counters(&self) -> Counters {
        let mut counters = self.counters;
        self.index.count(&mut counters);
        counters.blocks_read = self.data.blocks_read;
        counters.corrupt_blocks = self.data.corrupt_blocks;
        counters.memory_bytes = self.memory_bytes();
        counters.log_used_bytes = self.log.used_bytes();
        counters
    }

    /// The bound of caches, memtable and dirty data together.
    pub fn memory_limit(&self) -> u64 {
        self.limits.memory_bytes as u64
    }

    /// Moves that bound: caches shrink at once, layers with the next checkpoint.
    pub fn set_memory_limit(&mut self, bytes: u64) {
        self.limits.memory_bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        let (pages, onodes) = self.limits.caches();
        self.index.set_cache_limits(pages, onodes);
    }

    fn memory_bytes(&self) -> u64 {
        (self.index.bytes() + self.log.queue_bytes() + self.data.transit.bytes() + self.data.pool.bytes())
            as u64
    }

    fn note_memory(&mut self) {
        self.counters.memory_peak_bytes = self.counters.memory_peak_bytes.max(self.memory_bytes());
    }
}
