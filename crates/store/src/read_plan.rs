//! Reading object data: what is in memory is taken at once, what only the device has becomes a plan that can be carried
//! out without holding the store.

use std::ops::Range;

use bytes::Bytes;
use codec::{crc32c, sums};

use crate::checksum::{BLOCK, BLOCK_U64, place_mask, placed_crc};
use crate::onode::{Onode, Slot, block_of, blocks_up_to};
use crate::store::Store;
use crate::{Corruption, Device, ObjectKey, StoreError};

/// The longest run of blocks read from the device in one call.
const RUN_BLOCKS: usize = 1024;

/// How to get the bytes of a range.
///
/// Blocks that the plan names may be given to other data while it waits; then they do not verify. An error of
/// `execute` is therefore not final: ask `Store::read`, which looks again.
#[derive(Debug, Clone, PartialEq)]
pub struct ReadPlan {
    key: ObjectKey,
    /// Bytes that were asked for.
    asked: u64,
    first_block: u32,
    blocks: usize,
    wanted: Range<usize>,
    parts: Vec<Part>,
}

/// What a read has come to.
#[derive(Debug, Clone)]
pub enum Found {
    Data(Bytes),
    /// The device must be waited for.
    OnDevice(Box<ReadPlan>),
}

/// Whether a plan may wait for the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wait {
    Yes,
    No,
}

/// Some of the blocks; those in no part are holes. Positions are counted in blocks from the plan's first.
#[derive(Debug, Clone, PartialEq)]
enum Part {
    Memory {
        at: usize,
        content: Bytes,
    },
    /// Neighbours on the device.
    Device {
        at: usize,
        slots: Vec<Slot>,
    },
    Lost {
        at: usize,
    },
}

impl ReadPlan {
    /// A plan with nothing to do.
    pub fn of_nothing() -> Self {
        Self::empty(&ObjectKey::replicated(types::HObject::min()), 0)
    }

    fn empty(key: &ObjectKey, asked: u64) -> Self {
        Self { key: key.clone(), asked, first_block: 0, blocks: 0, wanted: 0..0, parts: Vec::new() }
    }

    /// Whether `execute` will not read from the device.
    pub fn is_in_memory(&self) -> bool {
        !self.parts.iter().any(|p| matches!(p, Part::Device { .. }))
    }

    /// Bytes that were asked for: more than the answer has when the object ends before.
    pub fn asked(&self) -> u64 {
        self.asked
    }

    /// Length of the answer in bytes.
    pub fn len(&self) -> usize {
        self.wanted.len()
    }

    pub fn is_empty(&self) -> bool {
        self.wanted.is_empty()
    }

    pub(crate) fn device_blocks(&self) -> u64 {
        let blocks =
            self.parts.iter().map(|p| if let Part::Device { slots, .. } = p { slots.len() } else { 0 });
        blocks.sum::<usize>() as u64
    }

    /// Reads, verifies every block that came from the device, and puts the answer together.
    pub fn execute(&self, device: &dyn Device) -> Result<Bytes, StoreError> {
        self.read(device).map(PlanRead::into_bytes)
    }

    /// The same without the last step, which takes a lock that the whole process shares.
    pub fn read(&self, device: &dyn Device) -> Result<PlanRead, StoreError> {
        // Whoever waits gets an answer; none must not be taken for no bytes.
        self.run(device, Wait::Yes)?.ok_or_else(|| self.corrupt(0))
    }

    /// `None` when the device would have to be waited for.
    fn run(&self, device: &dyn Device, wait: Wait) -> Result<Option<PlanRead>, StoreError> {
        if let (1, [Part::Memory { content, .. }]) = (self.blocks, self.parts.as_slice()) {
            let content = content.slice(self.wanted.clone());
            return Ok(Some(PlanRead { wanted: 0..content.len(), content, known: Vec::new() }));
        }
        let mut out = Vec::with_capacity(self.blocks * BLOCK);
        let is_large = self.blocks * BLOCK >= sums::WORTHWHILE;
        let mut known = Vec::with_capacity(if is_large { self.blocks } else { 0 });
        for part in &self.parts {
            let (Part::Memory { at, .. } | Part::Device { at, .. } | Part::Lost { at }) = part;
            fill_hole(*at, &mut out, &mut known, is_large);
            match part {
                Part::Lost { at } => return Err(self.corrupt(*at)),
                Part::Memory { content, .. } => {
                    out.extend_from_slice(content);
                    known.extend(is_large.then(|| crc32c(0, content)));
                }
                Part::Device { at, slots } => {
                    if !self.read_run(device, *at, slots, &mut out, wait)? {
                        return Ok(None);
                    }
                    let sums = slots.iter().filter(|_| is_large);
                    known.extend(sums.map(|s| sums::from_standard(s.crc ^ place_mask(s.place))));
                }
            }
        }
        fill_hole(self.blocks, &mut out, &mut known, is_large);
        Ok(Some(PlanRead { content: Bytes::from(out), known, wanted: self.wanted.clone() }))
    }

    fn read_run(
        &self,
        device: &dyn Device,
        at: usize,
        slots: &[Slot],
        out: &mut Vec<u8>,
        wait: Wait,
    ) -> Result<bool, StoreError> {
        let offset = slots.first().map_or(0, |s| u64::from(s.place) * BLOCK_U64);
        let len = slots.len() * BLOCK;
        let read = match wait {
            Wait::Yes => device.read_append(offset, len, out).map(|()| true),
            Wait::No => device.read_at_once(offset, len, out),
        };
        // Another copy mends what cannot be read, as it does what reads wrong.
        if !read.map_err(|e| if e.is_bad_sector() { self.corrupt(at) } else { e.into() })? {
            return Ok(false);
        }
        let mut blocks = slots.iter().zip(out.get(at * BLOCK..).unwrap_or_default().chunks(BLOCK));
        match blocks.position(|(slot, content)| placed_crc(slot.place, content) != slot.crc) {
            Some(bad) => Err(self.corrupt(at + bad)),
            None => Ok(true),
        }
    }

    fn corrupt(&self, at: usize) -> StoreError {
        let offset = (u64::from(self.first_block) + at as u64) * BLOCK_U64;
        Corruption::Data { key: Box::new(self.key.clone()), offset, len: BLOCK_U64 }.into()
    }
}

/// What a plan has read.
#[derive(Debug)]
pub struct PlanRead {
    content: Bytes,
    /// Checksums of the blocks, where they are known and the content is long.
    known: Vec<u32>,
    wanted: Range<usize>,
}

impl PlanRead {
    /// The answer, whose checksums are known to who frames it.
    pub fn into_bytes(self) -> Bytes {
        sums::keep(self.content, self.known.into()).slice(self.wanted)
    }
}

/// Zeros up to the block `at`, and what is known of them.
fn fill_hole(at: usize, out: &mut Vec<u8>, known: &mut Vec<u32>, is_large: bool) {
    out.resize(at * BLOCK, 0);
    if is_large {
        known.resize(at, 0);
    }
}

impl Store {
    /// The bytes of a range, verified; short at the end of the object. Holes read as zeros.
    pub fn read(&mut self, key: &ObjectKey, offset: u64, len: u64) -> Result<Bytes, StoreError> {
        let plan = self.plan_read(key, offset, len)?;
        let read = plan.execute(self.data.device.as_ref());
        self.count_corrupt(&read);
        read
    }

    /// The same when it takes no longer than a copy in memory; else what remains to be done.
    pub fn read_at_once(&mut self, key: &ObjectKey, offset: u64, len: u64) -> Result<Found, StoreError> {
        let plan = self.plan_read(key, offset, len)?;
        let read = plan.run(self.data.device.as_ref(), Wait::No);
        self.count_corrupt(&read);
        Ok(read?.map_or_else(|| Found::OnDevice(Box::new(plan)), |read| Found::Data(read.into_bytes())))
    }

    fn count_corrupt<T>(&mut self, read: &Result<T, StoreError>) {
        if let Err(StoreError::Corrupt(Corruption::Data { .. })) = read {
            self.data.corrupt_blocks += 1;
        }
    }

    /// The same in two steps, so that nobody waits for the store while this waits for the device.
    pub fn plan_read(&mut self, key: &ObjectKey, offset: u64, len: u64) -> Result<ReadPlan, StoreError> {
        let Some(o) = self.onode(key)? else { return Ok(ReadPlan::empty(key, len)) };
        let end = offset.saturating_add(len).min(o.size);
        if offset >= end {
            return Ok(ReadPlan::empty(key, len));
        }
        let (first, after) = (block_of(offset), blocks_up_to(end));
        let skip = (offset - u64::from(first) * BLOCK_U64) as usize;
        let plan = ReadPlan {
            key: key.clone(),
            asked: len,
            first_block: first,
            blocks: (after - first) as usize,
            wanted: skip..skip + (end - offset) as usize,
            parts: self.read_parts(&o, first, after),
        };
        self.data.blocks_read += plan.device_blocks();
        Ok(plan)
    }

    fn read_parts(&self, o: &Onode, first: u32, after: u32) -> Vec<Part> {
        let mut parts: Vec<Part> = Vec::new();
        for index in first..after.min(o.slots_end()) {
            let (at, slot) = ((index - first) as usize, o.slot(index));
            if slot.is_hole() {
                continue;
            } else if slot.is_lost() {
                parts.push(Part::Lost { at });
            } else if let Some(content) = self.data.in_memory(&self.index, slot.place) {
                parts.push(Part::Memory { at, content });
            } else {
                match parts.last_mut() {
                    Some(Part::Device { at: start, slots })
                        if *start + slots.len() == at
                            && slots.len() < RUN_BLOCKS
                            && slots.last().is_some_and(|s| s.place + 1 == slot.place) =>
                    {
                        slots.push(slot);
                    }
                    _ => parts.push(Part::Device { at, slots: vec![slot] }),
                }
            }
        }
        parts
    }
}
