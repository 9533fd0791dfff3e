//! The checkpoint: moves log content to its place and makes a new tree, then switches the superblock to it.
//!
//! Two steps, each a job. `Build` writes only to blocks that the last checkpoint does not use, and flushes. `Publish`,
//! once every transaction in it is durable, writes the superblock copies one after the other, each followed by a flush.
//! Until the first superblock write the old state is untouched; after it the new one is complete.
//!
//! A third kind of step, between checkpoints, tells the device of free blocks that nobody has wanted for a while.

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;
use codec::Encode;

use crate::alloc::{Bitmap, REGION_BLOCKS, Run};
use crate::checksum::BLOCK_U64;
use crate::data::DirectWrite;
use crate::jobs::write_direct;
use crate::key::{class, refs_key};
use crate::map::MapState;
use crate::memtable::MemTable;
use crate::merge::{BlockWriter, Change, Merged, Pool, merge};
use crate::page::PageRef;
use crate::superblock::{StaleCopy, Superblock};
use crate::{Device, StoreError};

/// What is discarded with one call: a file's writers wait for it (a third of a millisecond for each MiB on ext4).
const DISCARD_BYTES: u64 = 4 << 20;
/// New pages that go into the reader's cache beside the inner ones.
const FRESH_BYTES: usize = 2 << 20;

/// One step of a checkpoint, or a discard, to run without holding the store.
#[derive(Debug)]
pub struct Checkpoint(Step);

#[derive(Debug)]
enum Step {
    Build(Box<Build>),
    Publish(Publish),
    Discard(Vec<Run>),
}

/// Proof that a checkpoint step went through.
#[derive(Debug)]
pub struct CheckpointDone(pub(crate) StepDone);

#[derive(Debug)]
pub(crate) enum StepDone {
    Built(Box<Built>),
    Published,
    Discarded,
}

/// What the first step works from.
#[derive(Debug)]
pub(crate) struct Build {
    pub(crate) frozen: Arc<MemTable>,
    /// Data of transactions that never reach the log.
    pub(crate) absorbed: Vec<DirectWrite>,
    pub(crate) pool: Pool,
    /// For second copies.
    pub(crate) mirror: Pool,
    /// Pages of the old tree that have a bad copy.
    pub(crate) sick: Vec<PageRef>,
    /// Taken blocks at the moment of freezing.
    pub(crate) image: Bitmap,
    /// Regions whose taken blocks changed since the last checkpoint.
    pub(crate) touched: BTreeSet<u32>,
    pub(crate) map: MapState,
    /// The new superblock, but for the fields that the step finds out.
    pub(crate) superblock: Superblock,
    /// For a planted bug: what was written is not flushed.
    pub(crate) unflushed: bool,
}

/// What the first step made.
#[derive(Debug)]
pub(crate) struct Built {
    pub(crate) merged: Merged,
    pub(crate) unused: Vec<Run>,
    pub(crate) map: MapState,
    pub(crate) superblock: Superblock,
    pub(crate) written_bytes: u64,
}

/// The second step.
#[derive(Debug)]
pub(crate) struct Publish {
    pub(crate) superblock: Superblock,
    pub(crate) stale: StaleCopy,
    /// For a planted bug: no flush between the copies.
    pub(crate) at_once: bool,
}

impl Checkpoint {
    pub(crate) fn build(build: Build) -> Self {
        Self(Step::Build(Box::new(build)))
    }

    pub(crate) fn publish(publish: Publish) -> Self {
        Self(Step::Publish(publish))
    }

    /// Nobody may get these blocks before the step is handed back.
    pub(crate) fn discard(runs: Vec<Run>) -> Self {
        Self(Step::Discard(runs))
    }

    /// Does the step. Fails when the device does, or when a page of the old tree is damaged; both stop the store.
    pub fn execute(self, device: &dyn Device) -> Result<CheckpointDone, StoreError> {
        let done = match self.0 {
            Step::Build(build) => StepDone::Built(Box::new(build.execute(device)?)),
            Step::Publish(publish) => publish.execute(device)?,
            Step::Discard(runs) => discard(device, &runs),
        };
        Ok(CheckpointDone(done))
    }
}

impl Build {
    fn execute(mut self, device: &dyn Device) -> Result<Built, StoreError> {
        write_direct(device, self.absorbed)?;
        let mut writer = BlockWriter::new(device);
        for (block, content) in &self.frozen.dirty {
            writer.write(*block, content.clone())?;
        }
        self.sick.iter().for_each(|page| page.mend(device));
        let old_root = self.superblock.root.take();
        let merged = merge(
            device,
            &mut writer,
            (&mut self.pool, &mut self.mirror),
            old_root.as_ref(),
            changes(&self.frozen),
            &self.frozen.dead_ranges(),
            FRESH_BYTES,
        )?;
        let replaced = merged.replaced.iter().map(|run| (*run, false));
        let changed = self.frozen.freed.iter().map(|run| (*run, false)).chain(replaced);
        for (run, taken) in changed.chain(merged.used.iter().map(|run| (*run, true))) {
            self.image.put(run, taken);
            self.touched.extend(run.start / REGION_BLOCKS..=run.end().saturating_sub(1) / REGION_BLOCKS);
        }
        let regions = self.touched.iter().map(|r| (*r, self.image.region(*r)));
        let layout = &self.superblock.layout;
        let (map, slots) = self.map.update(layout, self.superblock.generation, regions);
        for (block, raw) in slots {
            writer.write(block, raw)?;
        }
        writer.finish()?;
        if !self.unflushed {
            device.flush()?;
        }
        let sb = &mut self.superblock;
        sb.totals.page_blocks = sb.totals.page_blocks + merged.used_blocks - merged.replaced_blocks;
        sb.totals.mirror_blocks =
            sb.totals.mirror_blocks + merged.used_mirror_blocks - merged.replaced_mirror_blocks;
        sb.root = merged.root.clone();
        sb.map_digest = map.digest();
        let written_bytes = writer.written_bytes;
        let unused = [self.pool.into_rest(), self.mirror.into_rest()].concat();
        Ok(Built { merged, unused, map, superblock: self.superblock, written_bytes })
    }
}

impl Publish {
    fn execute(self, device: &dyn Device) -> Result<StepDone, StoreError> {
        let raw = self.superblock.encode_block();
        for block in self.stale.write_order(&self.superblock.layout) {
            device.write_at(u64::from(block) * BLOCK_U64, &raw)?;
            if !self.at_once {
                device.flush()?;
            }
        }
        if self.at_once {
            device.flush()?;
        }
        Ok(StepDone::Published)
    }
}

/// A discard is a hint: it may fail.
fn discard(device: &dyn Device, runs: &[Run]) -> StepDone {
    for run in runs {
        let (mut at, end) = (run.byte_offset(), run.byte_offset() + u64::from(run.len) * BLOCK_U64);
        while at < end {
            let len = DISCARD_BYTES.min(end - at);
            let _ = device.discard(at, len);
            at += len;
        }
    }
    StepDone::Discarded
}

/// The layer's changes in the order of their keys, which is the order of their classes.
fn changes(layer: &MemTable) -> impl Iterator<Item = Result<Change, StoreError>> + '_ {
    let kv = |start: u8, end: u8| {
        let (start, end) = (Bytes::copy_from_slice(&[start]), Bytes::copy_from_slice(&[end]));
        layer.kv.range(start..end).map(|(k, v)| Ok((k.clone(), v.clone())))
    };
    let onodes = layer.onodes.iter().map(|(k, o)| Ok((k.bytes().clone(), o.as_ref().map(|o| o.to_bytes()))));
    let refs = layer.refs.iter().map(|(region, r)| {
        let value: Option<Bytes> = (!r.is_empty()).then(|| r.to_bytes());
        Ok((refs_key(*region), value))
    });
    kv(class::META, class::ONODE)
        .chain(onodes)
        .chain(kv(class::OMAP, class::REFS))
        .chain(refs)
        .chain(kv(class::POOLS, class::POOLS + 1))
}
