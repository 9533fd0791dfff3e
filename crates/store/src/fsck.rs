//! Checking a store that is not open: every structure of the last checkpoint, the log, and if asked all object data.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use codec::Decode;

use crate::alloc::{Bitmap, Run};
use crate::checksum::{BLOCK, BLOCK_U64, placed_crc};
use crate::index::decode_onode;
use crate::key::{class, parse_onode_key, split_space_key};
use crate::map::MapState;
use crate::onode::{Onode, Slot};
use crate::page::{Page, PageRef};
use crate::pool_totals::{self, Pools};
use crate::refs::RefRegion;
use crate::replay::LogReader;
use crate::superblock::Superblock;
use crate::tree::child_page;
use crate::{Corruption, Device, Identity, ObjectKey, StoreError};

/// What a check found.
#[derive(Debug, Clone, PartialEq)]
pub struct FsckReport {
    pub identity: Identity,
    /// Number of the last checkpoint.
    pub generation: u64,
    pub objects: u64,
    pub stored_bytes: u64,
    pub omap_entries: u64,
    pub space_keys: u64,
    pub pages: u64,
    /// Data blocks whose checksum was verified.
    pub blocks_verified: u64,
    /// Records and transactions in the log that the last checkpoint does not hold.
    pub log_records: u64,
    pub log_txns: u64,
    /// Empty when the store is sound.
    pub findings: Vec<Finding>,
}

impl FsckReport {
    pub fn is_clean(&self) -> bool {
        self.findings.is_empty()
    }
}

/// One thing that is wrong.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum Finding {
    #[error("superblock copy {copy} is damaged or old")]
    SuperblockCopy { copy: u32 },
    #[error("metadata page at block {block} cannot be read: {error}")]
    Page { block: u32, error: StoreError },
    #[error("a copy of the metadata page at block {block} is damaged")]
    PageCopy { block: u32 },
    #[error("keys out of order in the page at block {block}")]
    KeyOrder { block: u32 },
    #[error("a key or value of class {class} does not decode")]
    Undecodable { class: u8 },
    #[error("block {block} is used twice")]
    UsedTwice { block: u32 },
    #[error("block {block} is used but lies outside the data area")]
    OutsideData { block: u32 },
    #[error("block {block} has {found} extra users, recorded are {recorded}")]
    Users { block: u32, found: u32, recorded: u32 },
    #[error("block {block} is used but free in the allocation map")]
    UsedButFree { block: u32 },
    #[error("{blocks} blocks from {block} on are taken but not used")]
    Leaked { block: u32, blocks: u32 },
    #[error("the allocation map does not match its digest")]
    MapDigest,
    #[error("omap {omap_id} belongs to {owners} objects")]
    OmapOwners { omap_id: u64, owners: u32 },
    #[error("data of {key:?} at {offset} is damaged")]
    Data { key: Box<ObjectKey>, offset: u64 },
    #[error("data of {key:?} at {offset} was lost earlier")]
    Lost { key: Box<ObjectKey>, offset: u64 },
    #[error("{what}: recorded {recorded}, found {found}")]
    Total { what: &'static str, recorded: u64, found: u64 },
    #[error("log: {0}")]
    Log(StoreError),
}

/// Checks a store without changing it. With `verify_data` every block of every object is read.
///
/// An error means that there is no store to check; damage inside one is in the report.
pub fn fsck(device: &dyn Device, verify_data: bool) -> Result<FsckReport, StoreError> {
    let (sb, _) = Superblock::load(device)?;
    let mut check = Check::new(device, &sb, verify_data);
    check.superblock_copies();
    if let Some(root) = &sb.root {
        check.subtree(root, None);
    }
    check.users();
    check.omap_owners();
    check.totals();
    check.map()?;
    check.log();
    Ok(check.report)
}

/// The blocks that the last checkpoint uses, found by walking its tree: what the allocation map should say. Refuses
/// when the tree itself is damaged.
pub(crate) fn used_blocks(device: &dyn Device, sb: &Superblock) -> Result<Bitmap, StoreError> {
    let mut check = Check::new(device, sb, false);
    if let Some(root) = &sb.root {
        check.subtree(root, None);
    }
    check.users();
    let lost = |f: &Finding| matches!(f, Finding::Lost { .. });
    if !check.report.findings.iter().all(lost) {
        return Err(Corruption::AllocMap { region: 0 }.into());
    }
    check.used.put(sb.layout.fixed(), true);
    Ok(check.used)
}

struct Check<'a> {
    device: &'a dyn Device,
    sb: &'a Superblock,
    verify_data: bool,
    report: FsckReport,
    used: Bitmap,
    pages: u32,
    mirror_blocks: u32,
    /// Users beyond the first, as found and as recorded.
    extra: BTreeMap<u32, u32>,
    recorded: BTreeMap<u32, u32>,
    owners: BTreeMap<u64, u32>,
    omaps: BTreeSet<u64>,
    omap_bytes: u64,
    /// Blocks of object data, and what each pool stores, as found and as recorded.
    data_blocks: u64,
    pools: BTreeMap<i64, i64>,
    recorded_pools: Pools,
    last_key: Option<Bytes>,
}

impl<'a> Check<'a> {
    fn new(device: &'a dyn Device, sb: &'a Superblock, verify_data: bool) -> Self {
        let report = FsckReport {
            identity: Identity { fsid: sb.fsid, osd_uuid: sb.osd_uuid },
            generation: sb.generation,
            objects: 0,
            stored_bytes: 0,
            omap_entries: 0,
            space_keys: 0,
            pages: 0,
            blocks_verified: 0,
            log_records: 0,
            log_txns: 0,
            findings: Vec::new(),
        };
        let used = Bitmap::new(sb.layout.blocks);
        Self {
            device,
            sb,
            verify_data,
            report,
            used,
            pages: 0,
            mirror_blocks: 0,
            extra: BTreeMap::new(),
            recorded: BTreeMap::new(),
            owners: BTreeMap::new(),
            omaps: BTreeSet::new(),
            omap_bytes: 0,
            data_blocks: 0,
            pools: BTreeMap::new(),
            recorded_pools: Pools::new(),
            last_key: None,
        }
    }

    fn find(&mut self, finding: Finding) {
        self.report.findings.push(finding);
    }

    fn superblock_copies(&mut self) {
        let expected = self.sb.encode_block();
        for (copy, block) in (0..).zip(self.sb.layout.copies()) {
            let mut raw = vec![0; BLOCK];
            let read = self.device.read_at(u64::from(block) * BLOCK_U64, &mut raw);
            if read.is_err() || raw != expected {
                self.find(Finding::SuperblockCopy { copy });
            }
        }
    }

    /// Pages in key order, depth first.
    fn subtree(&mut self, r: &PageRef, parent: Option<(&Page, u32)>) {
        self.claim_page(r);
        let mut device = self.device;
        let page = match parent {
            None => r.read(self.device),
            Some((page, i)) => child_page(&mut device, page, i).map(|(_, page)| page),
        };
        let page = match page {
            Ok(page) => page,
            Err(error) => return self.find(Finding::Page { block: r.block(), error }),
        };
        self.report.pages += 1;
        self.mirror_blocks += r.mirror_blocks();
        if self.verify_data && !r.is_whole(self.device) {
            self.find(Finding::PageCopy { block: r.block() });
        }
        if page.level() == 0 {
            return self.leaf(r, &page);
        }
        for i in 0..page.count() {
            match page.child(i) {
                Ok(child) => self.subtree(&child, Some((&page, i))),
                Err(error) => self.find(Finding::Page { block: r.block(), error }),
            }
        }
    }

    fn claim_page(&mut self, r: &PageRef) {
        for run in &r.runs {
            self.pages += run.len;
            for block in run.start..run.end() {
                if !self.in_data_area(block) {
                    self.find(Finding::OutsideData { block });
                } else if self.used.put(Run::new(block, 1), true) == 0 {
                    self.find(Finding::UsedTwice { block });
                }
            }
        }
    }

    fn in_data_area(&self, block: u32) -> bool {
        block >= self.sb.layout.fixed().end() && block < self.sb.layout.blocks
    }

    fn leaf(&mut self, r: &PageRef, page: &Page) {
        for i in 0..page.count() {
            let (Some(key), Some(value)) = (page.key(i), page.value(i)) else { continue };
            if self.last_key.as_ref().is_some_and(|last| last.as_ref() >= key) {
                self.find(Finding::KeyOrder { block: r.block() });
            }
            self.last_key = Some(Bytes::copy_from_slice(key));
            let class = key.first().copied().unwrap_or(0);
            if self.entry(class, key, value).is_none() {
                self.find(Finding::Undecodable { class });
            }
        }
    }

    fn entry(&mut self, class: u8, key: &[u8], value: Bytes) -> Option<()> {
        match class {
            class::META | class::PG => {
                split_space_key(key)?;
                self.report.space_keys += 1;
            }
            class::ONODE => {
                let onode = decode_onode(value).ok()?;
                self.onode(&parse_onode_key(key)?, &onode);
            }
            class::OMAP => {
                let (id, rest) = key.get(1..)?.split_first_chunk::<8>()?;
                self.omaps.insert(u64::from_be_bytes(*id));
                self.omap_bytes += (rest.len() + value.len()) as u64;
                self.report.omap_entries += 1;
            }
            class::REFS => {
                let region = u32::from_be_bytes(*key.get(1..)?.first_chunk()?);
                let refs = RefRegion::from_bytes(value).ok()?;
                self.recorded.extend(refs.blocks(region));
            }
            class::POOLS => self.recorded_pools = pool_totals::decode(value).ok()?,
            _ => return None,
        }
        Some(())
    }

    fn onode(&mut self, key: &ObjectKey, o: &Onode) {
        self.report.objects += 1;
        self.report.stored_bytes += o.stored_bytes();
        *self.pools.entry(key.object.pool.0).or_default() += o.stored_bytes() as i64;
        if o.omap_id != 0 {
            *self.owners.entry(o.omap_id).or_default() += 1;
        }
        for (index, slot) in o.mapped_slots() {
            let offset = u64::from(index) * BLOCK_U64;
            if slot.is_lost() {
                self.find(Finding::Lost { key: Box::new(key.clone()), offset });
                continue;
            }
            let block = slot.place;
            if !self.in_data_area(block) {
                self.find(Finding::OutsideData { block });
                continue;
            }
            let fresh = self.used.put(Run::new(block, 1), true);
            self.data_blocks += u64::from(fresh);
            if fresh == 0 {
                if o.shared {
                    *self.extra.entry(block).or_default() += 1;
                } else {
                    self.find(Finding::UsedTwice { block });
                }
            }
            if self.verify_data && !self.verifies(slot) {
                self.find(Finding::Data { key: Box::new(key.clone()), offset });
            }
        }
    }

    fn verifies(&mut self, slot: Slot) -> bool {
        let mut raw = vec![0; BLOCK];
        self.report.blocks_verified += 1;
        let read = self.device.read_at(u64::from(slot.place) * BLOCK_U64, &mut raw);
        read.is_ok() && placed_crc(slot.place, &raw) == slot.crc
    }

    fn users(&mut self) {
        let blocks: BTreeSet<u32> = self.extra.keys().chain(self.recorded.keys()).copied().collect();
        for block in blocks {
            let of = |m: &BTreeMap<u32, u32>| m.get(&block).copied().unwrap_or(0);
            let (found, recorded) = (of(&self.extra), of(&self.recorded));
            if found != recorded {
                self.find(Finding::Users { block, found, recorded });
            }
        }
    }

    fn omap_owners(&mut self) {
        let ids: BTreeSet<u64> = self.owners.keys().chain(&self.omaps).copied().collect();
        for omap_id in ids {
            let owners = self.owners.get(&omap_id).copied().unwrap_or(0);
            if owners != 1 || omap_id >= self.sb.next_omap_id {
                self.find(Finding::OmapOwners { omap_id, owners });
            }
        }
    }

    fn totals(&mut self) {
        let totals = self.sb.totals;
        let sums = self.sb.root.as_ref().map(|r| r.sums).unwrap_or_default();
        let allocated: i64 = self.recorded_pools.values().map(|p| p.allocated_bytes).sum();
        let stored = |pool: &i64| self.recorded_pools.get(pool).map_or(0, |p| p.stored_bytes);
        let wrong_pools = self.pools.iter().filter(|(pool, found)| stored(pool) != **found).count();
        let pairs = [
            ("objects", totals.objects, self.report.objects),
            ("stored bytes", totals.stored_bytes, self.report.stored_bytes),
            ("page blocks", totals.page_blocks, u64::from(self.pages)),
            ("blocks of pages' second copies", totals.mirror_blocks, u64::from(self.mirror_blocks)),
            ("omap bytes", sums.omap_bytes, self.omap_bytes),
            ("bytes of the pools' blocks", allocated as u64, self.data_blocks * BLOCK_U64),
            ("pools with another sum than is recorded", 0, wrong_pools as u64),
        ];
        for (what, recorded, found) in pairs {
            if recorded != found {
                self.find(Finding::Total { what, recorded, found });
            }
        }
    }

    fn map(&mut self) -> Result<(), StoreError> {
        let (map, taken) = MapState::load(self.device, &self.sb.layout, self.sb.generation)?;
        if map.digest() != self.sb.map_digest {
            self.find(Finding::MapDigest);
            return Ok(());
        }
        let mut leak: Option<Run> = None;
        for block in self.sb.layout.fixed().end()..self.sb.layout.blocks {
            let leaked = taken.get(block) && !self.used.get(block);
            if self.used.get(block) && !taken.get(block) {
                self.find(Finding::UsedButFree { block });
            }
            match &mut leak {
                Some(run) if leaked => run.len += 1,
                None if leaked => leak = Some(Run::new(block, 1)),
                _ => self.end_leak(&mut leak),
            }
        }
        self.end_leak(&mut leak);
        Ok(())
    }

    fn end_leak(&mut self, leak: &mut Option<Run>) {
        if let Some(run) = leak.take() {
            self.find(Finding::Leaked { block: run.start, blocks: run.len });
        }
    }

    fn log(&mut self) {
        let mut reader = LogReader::new(self.device, self.sb);
        loop {
            match reader.next() {
                Ok(Some(txns)) => {
                    self.report.log_records += 1;
                    self.report.log_txns += txns.len() as u64;
                }
                Ok(None) => return,
                Err(e) => return self.find(Finding::Log(e)),
            }
        }
    }
}
