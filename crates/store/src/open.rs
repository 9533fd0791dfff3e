//! Making a store, and opening one: superblock, allocation map, log replay.

use std::sync::Arc;

use crate::alloc::Allocator;
use crate::apply::{Mode, space_bounds};
use crate::checksum::{BLOCK, BLOCK_U64, crc32c_pieces};
use crate::data::DataBlocks;
use crate::discard::Resting;
use crate::fsck::used_blocks;
use crate::index::Index;
use crate::key::{onode_key, space_key};
use crate::log::{Log, Ring};
use crate::map::MapState;
use crate::pool_totals::{self, Pools};
use crate::replay::{LogReader, Logged};
use crate::store::{Limits, Phase, Store};
use crate::superblock::{Layout, LogPosition, Superblock, Totals};
use crate::tree::KeyRange;
use crate::{Corruption, Counters, Device, Foreign, FormatOptions, Op, Options, StoreError, Txn, TxnSeq};

/// Keys of the log's transactions that are announced before these are applied: some MiB.
const MAX_KEYS_AHEAD: usize = 1 << 16;
const ZERO_BYTES: usize = 1 << 20;
/// 1 GiB: what an OSD writes for itself does not grow with its device for ever.
const RESERVE_MAX_BLOCKS: u64 = 1 << 18;

impl Store {
    /// Makes an empty store; what was on the device is lost. The whole log is written once, so that later commits only
    /// overwrite, which a file system flushes twice as fast.
    pub fn format(device: &dyn Device, options: FormatOptions) -> Result<(), StoreError> {
        let layout = Layout::plan(device.len(), options.log_bytes)?;
        let zeros = vec![0u8; ZERO_BYTES];
        for run in [layout.map, layout.log] {
            let end = run.byte_offset() + u64::from(run.len) * BLOCK_U64;
            let mut at = run.byte_offset();
            while at < end {
                let n = (end - at).min(ZERO_BYTES as u64);
                device.write_at(at, zeros.get(..n as usize).unwrap_or_default())?;
                at += n;
            }
        }
        device.flush()?;
        let superblock = Superblock {
            fsid: options.fsid,
            osd_uuid: options.osd_uuid,
            device_bytes: device.len(),
            layout,
            generation: 1,
            root: None,
            map_digest: MapState::default().digest(),
            log: LogPosition { offset: 0, record: 1 },
            log_salt: crc32c_pieces([&options.fsid.0[..], &options.osd_uuid.0[..]]),
            txn: 0,
            next_omap_id: 1,
            totals: Totals::default(),
        };
        let raw = superblock.encode_block();
        for block in layout.copies() {
            device.write_at(u64::from(block) * BLOCK_U64, &raw)?;
        }
        device.flush()?;
        Ok(())
    }

    /// Opens a store: reads superblock and allocation map, replays the log, and flushes what it found there.
    pub fn open(device: Arc<dyn Device>, options: Options) -> Result<Self, StoreError> {
        let (superblock, stale) = Superblock::load(device.as_ref())?;
        check_owner(&superblock, &options)?;
        let careless = types::is_planted!(options.planted, UnpublishedStay);
        let (map, alloc) = load_map(device.as_ref(), &superblock, careless)?;
        let limits = Limits::new(&options, &superblock);
        let ring = Ring::new(superblock.layout.log);
        let (pages, onodes) = limits.caches();
        let mut store = Self {
            index: Index::new(device.clone(), superblock.root.clone(), pages, onodes),
            data: DataBlocks::new(device.clone()),
            alloc,
            log: Log::new(
                ring,
                superblock.log_salt,
                superblock.log.offset,
                superblock.log,
                TxnSeq(superblock.txn),
            ),
            phase: Phase::Idle,
            totals: superblock.totals,
            pools: Pools::new(),
            next_omap_id: superblock.next_omap_id,
            limits,
            counters: Counters::default(),
            spare: Default::default(),
            key_buffer: Vec::new(),
            lost: Vec::new(),
            wants_space: false,
            resting: Resting::default(),
            stopped: false,
            superblock,
            stale,
            map,
        };
        store.pools = pool_totals::load(&mut store.index)?;
        store.replay(device.as_ref())?;
        // What replay read may so far be only in a cache below us; once served it must not go away again.
        device.flush()?;
        Ok(store)
    }

    /// Two passes: the first finds every block that a record placed data in, so that the second, which gives new places
    /// to data from the log, keeps clear of them; and it finds which keys the second looks up.
    fn replay(&mut self, device: &dyn Device) -> Result<(), StoreError> {
        let (mut reader, mut keys) = (self.log_reader(device), Vec::new());
        while let Some(txns) = reader.next()? {
            if keys.len() < MAX_KEYS_AHEAD {
                txns.iter().for_each(|logged| keys_read(&logged.txn, &mut keys));
            }
            let careless = types::is_planted!(self.limits.planted, ReplayTakesPlaces);
            for run in txns.iter().flat_map(|t| &t.placements).flat_map(|p| &p.runs).filter(|_| !careless) {
                if !self.alloc.claim(*run) {
                    let record = reader.position.record - 1;
                    return Err(Corruption::Log { record, offset: run.byte_offset() }.into());
                }
            }
        }
        self.index.will_read(keys);
        let end = reader.position;
        let mut reader = self.log_reader(device);
        let mut last = self.superblock.txn;
        while reader.position != end {
            let Some(txns) = reader.next()? else { break };
            for logged in txns {
                last = logged.seq;
                self.replay_txn(logged)?;
            }
        }
        let sb = &self.superblock;
        self.log = Log::new(self.log.ring, sb.log_salt, sb.log.offset, end, TxnSeq(last));
        Ok(())
    }

    fn log_reader<'a>(&self, device: &'a dyn Device) -> LogReader<'a> {
        let mut reader = LogReader::new(device, &self.superblock);
        reader.trusts = types::is_planted!(self.limits.planted, TrustsPlacedData);
        reader
    }

    fn replay_txn(&mut self, logged: Logged) -> Result<(), StoreError> {
        let placements = logged.placements.into_iter().map(|p| (p.op, p)).collect();
        let (stage, outcome) = self.apply(&logged.txn, Mode::Replay { placements });
        outcome?;
        self.accept(stage);
        Ok(())
    }
}

/// Adds the keys that are looked up when the transaction is applied, but for those of omaps, whose ids only
/// objects tell.
fn keys_read(txn: &Txn, keys: &mut Vec<KeyRange>) {
    for object in txn.objects() {
        let key = onode_key(object);
        let behind = [&key[..], &[0]].concat().into();
        keys.push((key, behind));
    }
    for op in txn.ops() {
        match op {
            Op::UnsetRange { space, start, end } => {
                keys.push((space_key(*space, start), space_key(*space, end)));
            }
            Op::DropSpace { space } => keys.push(space_bounds(*space, &[], None)),
            _ => {}
        }
    }
}

/// The allocation map, or when that is damaged, what it should say by the tree; then the next checkpoint writes all of
/// it anew. `careless` is false but for a planted bug.
fn load_map(
    device: &dyn Device,
    sb: &Superblock,
    careless: bool,
) -> Result<(MapState, Allocator), StoreError> {
    let (map, taken) = MapState::load(device, &sb.layout, sb.generation)?;
    if map.digest() == sb.map_digest {
        let mut alloc = Allocator::new(taken);
        alloc.touched.extend(map.unpublished().filter(|_| !careless));
        return Ok((map, alloc));
    }
    let mut alloc = Allocator::new(used_blocks(device, sb)?);
    alloc.touched.extend(0..taken.regions());
    Ok((map.forgotten(), alloc))
}

fn check_owner(sb: &Superblock, options: &Options) -> Result<(), StoreError> {
    let foreign = match (options.expect_fsid, options.expect_osd_uuid) {
        (Some(expected), _) if expected != sb.fsid => Foreign::Cluster { found: sb.fsid, expected },
        (_, Some(expected)) if expected != sb.osd_uuid => Foreign::Osd { found: sb.osd_uuid, expected },
        _ => return Ok(()),
    };
    Err(StoreError::Foreign(foreign))
}

impl Limits {
    /// Caches take three eighths of the budget, an active layer and one being checkpointed a quarter each at most
    /// before new work should wait.
    fn new(options: &Options, sb: &Superblock) -> Self {
        let memory = options.memory_bytes as usize;
        let log_bytes = u64::from(sb.layout.log.len) * BLOCK_U64;
        let data_blocks = u64::from(sb.layout.blocks - sb.layout.fixed().len);
        let least_reserve = (data_blocks / 16).min(256).max((data_blocks / 8).min(64));
        Self {
            memory_bytes: memory,
            direct_min_bytes: (options.direct_write_min_bytes as usize)
                .min((log_bytes / 16) as usize)
                .max(4096),
            batch_min_bytes: options.direct_batch_min_bytes as usize,
            discard_min_blocks: (options.discard_min_bytes / BLOCK as u32).max(1),
            discard_after: options.discard_after,
            reserve_blocks: (data_blocks / 256).min(RESERVE_MAX_BLOCKS).max(least_reserve),
            #[cfg(feature = "planted")]
            planted: options.planted,
        }
    }

    /// Bytes of an active layer that ask for a checkpoint.
    pub(crate) fn layer_bytes(&self) -> usize {
        self.memory_bytes / 4
    }

    /// Bytes of layers and of what waits for the log, above which new work should wait.
    pub(crate) fn throttle_bytes(&self) -> usize {
        self.memory_bytes / 2
    }

    /// Bytes of the caches of pages and of onodes.
    pub(crate) fn caches(&self) -> (usize, usize) {
        (self.memory_bytes / 8, self.memory_bytes / 4)
    }
}
