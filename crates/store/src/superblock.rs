//! The superblock: who the store belongs to, how the device is divided, and where the last checkpoint is.

use bytes::Bytes;
use codec::{Decode, DecodeError, Encode, Reader, Writer};
use types::Fsid;

use crate::alloc::{REGION_BLOCKS, Run};
use crate::checksum::{BLOCK, BLOCK_U64, crc32c};
use crate::page::PageRef;
use crate::{Corruption, Device, Foreign, Misuse, StoreError};

const MAGIC: [u8; 8] = *b"LOLIGOst";
/// Raised when a reader of the older form would misread the store.
const VERSION: u32 = 1;
/// Incompat features this release knows: pages of the tree may have a second copy.
const KNOWN_INCOMPAT: u64 = 1;
/// Block numbers have 32 bits and the last two mean something else.
const MAX_BLOCKS: u64 = u32::MAX as u64 - 16;
/// The log's share of a device, and its bounds; small devices have a sixteenth at most.
const LOG_SHARE: u64 = 64;
const LOG_LEAST_BYTES: u64 = 4 << 20;
const LOG_MAX_BYTES: u64 = 64 << 20;
const LOG_MIN_BLOCKS: u64 = 8;

/// How the device is divided; fixed when it is formatted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Layout {
    pub(crate) blocks: u32,
    /// Two slots of one block for each region of the allocation map.
    pub(crate) map: Run,
    pub(crate) log: Run,
}

impl Layout {
    pub(crate) fn plan(device_bytes: u64, log_bytes: Option<u64>) -> Result<Self, StoreError> {
        let too_small = StoreError::Misuse(Misuse::DeviceTooSmall);
        let blocks = (device_bytes / BLOCK_U64).min(MAX_BLOCKS);
        let share = (device_bytes / LOG_SHARE).clamp(LOG_LEAST_BYTES, LOG_MAX_BYTES);
        let log = log_bytes.unwrap_or(share.min(device_bytes / 16)) / BLOCK_U64;
        let log = log.max(LOG_MIN_BLOCKS);
        let blocks = blocks as u32;
        let map = Run::new(Self::second_copy(blocks) + 1, 2 * blocks.div_ceil(REGION_BLOCKS));
        if log + u64::from(map.end()) + 32 > u64::from(blocks) {
            return Err(too_small);
        }
        Ok(Self { blocks, map, log: Run::new(map.end(), log as u32) })
    }

    /// Where the second copy of the superblock is. It depends on the device's length alone, so it is found when the
    /// first copy is gone.
    fn second_copy(blocks: u32) -> u32 {
        if blocks >= 4096 { 64 } else { 1 }
    }

    pub(crate) fn copies(&self) -> [u32; 2] {
        [0, Self::second_copy(self.blocks)]
    }

    /// Blocks that never hold data or pages: everything before the data area.
    pub(crate) fn fixed(&self) -> Run {
        Run::new(0, self.log.end())
    }

    fn is_sound(&self) -> bool {
        let expected =
            Self::plan(u64::from(self.blocks) * BLOCK_U64, Some(u64::from(self.log.len) * BLOCK_U64));
        expected == Ok(*self)
    }
}

/// Where replay starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct LogPosition {
    /// Bytes since the store was made; modulo the log's length it is the place in the ring.
    pub(crate) offset: u64,
    /// Number of the record there.
    pub(crate) record: u64,
}

/// The root of everything. Two copies; the older one is always written first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Superblock {
    pub(crate) fsid: Fsid,
    pub(crate) osd_uuid: Fsid,
    pub(crate) device_bytes: u64,
    pub(crate) layout: Layout,
    /// Higher with each checkpoint: by one, but after a crash that left slots of the allocation map unpublished.
    pub(crate) generation: u64,
    pub(crate) root: Option<PageRef>,
    /// Over number, generation and checksum of every valid slot of the allocation map.
    pub(crate) map_digest: u64,
    pub(crate) log: LogPosition,
    /// Marks log records of this formatting.
    pub(crate) log_salt: u32,
    /// The last transaction inside the tree; replay skips what is at or below.
    pub(crate) txn: u64,
    pub(crate) next_omap_id: u64,
    pub(crate) totals: Totals,
}

/// Sums that the checkpoint carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Totals {
    pub(crate) objects: u64,
    pub(crate) stored_bytes: u64,
    /// Blocks of tree pages.
    pub(crate) page_blocks: u64,
    /// Of them, those of second copies.
    pub(crate) mirror_blocks: u64,
}

impl Totals {
    /// Blocks of the first copies: what a whole tree needs.
    pub(crate) fn tree_blocks(&self) -> u64 {
        self.page_blocks.saturating_sub(self.mirror_blocks)
    }
}

codec::wire_plain!(LogPosition { offset, record });

impl Superblock {
    pub(crate) fn encode_block(&self) -> Bytes {
        let mut w = Writer::with_capacity(BLOCK);
        w.raw(&MAGIC);
        w.u32(VERSION);
        w.u64(KNOWN_INCOMPAT);
        w.envelope(2, 1, |w| {
            self.fsid.encode(w);
            self.osd_uuid.encode(w);
            w.u64(self.device_bytes);
            w.u32(self.layout.blocks);
            for run in [self.layout.map, self.layout.log] {
                w.u32(run.start);
                w.u32(run.len);
            }
            w.u64(self.generation);
            self.root.encode(w);
            w.u64(self.map_digest);
            self.log.encode(w);
            w.u32(self.log_salt);
            w.u64(self.txn);
            w.u64(self.next_omap_id);
            let totals = self.totals;
            [totals.objects, totals.stored_bytes, totals.page_blocks].into_iter().for_each(|n| w.u64(n));
            w.u64(totals.mirror_blocks);
        });
        w.zeros(BLOCK - 4 - w.len());
        let crc = crc32c(w.as_slice());
        w.u32(crc);
        w.into_bytes()
    }

    /// `Ok(None)`: no superblock or a damaged one.
    pub(crate) fn decode_block(raw: &Bytes) -> Result<Option<Self>, StoreError> {
        let Some((body, crc)) = raw.split_last_chunk::<4>() else { return Ok(None) };
        if !raw.starts_with(&MAGIC) || crc32c(body) != u32::from_le_bytes(*crc) {
            return Ok(None);
        }
        let mut r = Reader::new(raw.slice(MAGIC.len()..));
        let head = r.u32().and_then(|v| Ok((v, r.u64()?)));
        let (version, flags) = head.map_err(|_| Corruption::Superblock)?;
        let incompat = flags & !KNOWN_INCOMPAT;
        if version > VERSION || incompat != 0 {
            return Err(StoreError::Newer { version, incompat });
        }
        let sb = Self::decode_fields(&mut r).map_err(|_| Corruption::Superblock)?;
        Ok(sb.layout.is_sound().then_some(sb))
    }

    fn decode_fields(r: &mut Reader) -> Result<Self, DecodeError> {
        r.envelope("superblock", 2, |r, form| {
            let (fsid, osd_uuid, device_bytes) = (Fsid::decode(r)?, Fsid::decode(r)?, r.u64()?);
            let blocks = r.u32()?;
            let map = Run::new(r.u32()?, r.u32()?);
            let log = Run::new(r.u32()?, r.u32()?);
            Ok(Self {
                fsid,
                osd_uuid,
                device_bytes,
                layout: Layout { blocks, map, log },
                generation: r.u64()?,
                root: Option::decode(r)?,
                map_digest: r.u64()?,
                log: LogPosition::decode(r)?,
                log_salt: r.u32()?,
                txn: r.u64()?,
                next_omap_id: r.u64()?,
                totals: Totals {
                    objects: r.u64()?,
                    stored_bytes: r.u64()?,
                    page_blocks: r.u64()?,
                    mirror_blocks: if form.version >= 2 { r.u64()? } else { 0 },
                },
            })
        })
    }

    /// Reads both copies and takes the newer one; also says which copy to write first next time.
    pub(crate) fn load(device: &dyn Device) -> Result<(Self, StaleCopy), StoreError> {
        let bytes = device.len();
        let blocks = (bytes / BLOCK_U64).min(MAX_BLOCKS) as u32;
        if blocks < 2 {
            return Err(StoreError::Foreign(Foreign::NotAStore));
        }
        let mut found: [Option<Self>; 2] = [None, None];
        let mut magic_seen = false;
        let mut refused = None;
        for (slot, block) in found.iter_mut().zip([0, Layout::second_copy(blocks)]) {
            let mut raw = vec![0u8; BLOCK];
            match device.read_at(u64::from(block) * BLOCK_U64, &mut raw) {
                Ok(()) => {}
                Err(e) => {
                    refused = Some(StoreError::Device(e));
                    continue;
                }
            }
            magic_seen |= raw.starts_with(&MAGIC);
            match Self::decode_block(&raw.into()) {
                Ok(sb) => *slot = sb,
                Err(e @ StoreError::Newer { .. }) => return Err(e),
                Err(e) => refused = Some(e),
            }
        }
        let (sb, stale) = match found {
            [Some(a), Some(b)] if b.generation > a.generation => (b, StaleCopy(0)),
            [Some(a), Some(b)] if a.generation > b.generation => (a, StaleCopy(1)),
            [Some(a), _] => (a, StaleCopy(1)),
            [None, Some(b)] => (b, StaleCopy(0)),
            [None, None] => {
                return Err(match (refused, magic_seen) {
                    (Some(e), _) => e,
                    (None, true) => Corruption::Superblock.into(),
                    (None, false) => StoreError::Foreign(Foreign::NotAStore),
                });
            }
        };
        if sb.device_bytes != bytes {
            let length = Foreign::Length { found: bytes, expected: sb.device_bytes };
            return Err(StoreError::Foreign(length));
        }
        Ok((sb, stale))
    }
}

/// Index of the copy to write first: never the only one that is good.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct StaleCopy(pub(crate) usize);

impl StaleCopy {
    /// Blocks of the two copies, the stale one first.
    pub(crate) fn write_order(self, layout: &Layout) -> [u32; 2] {
        let [a, b] = layout.copies();
        if self.0 == 0 { [a, b] } else { [b, a] }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(crate) fn sample() -> Superblock {
        Superblock {
            fsid: Fsid([1; 16]),
            osd_uuid: Fsid([2; 16]),
            device_bytes: 1 << 20,
            layout: Layout::plan(1 << 20, None).expect("fits"),
            generation: 7,
            root: Some(PageRef { runs: vec![Run::new(100, 1)], len: 77, crc: 5, sums: Default::default() }),
            map_digest: 9,
            log: LogPosition { offset: 4096, record: 3 },
            log_salt: 4,
            txn: 11,
            next_omap_id: 2,
            totals: Totals { objects: 1, stored_bytes: 2, page_blocks: 1, mirror_blocks: 0 },
        }
    }

    #[test]
    fn comes_back_and_no_flipped_bit_is_accepted() {
        let raw = sample().encode_block();
        assert_eq!(Superblock::decode_block(&raw), Ok(Some(sample())));
        for at in 0..raw.len() {
            let mut bad = raw.to_vec();
            bad[at] ^= 0x10;
            assert_eq!(Superblock::decode_block(&bad.into()), Ok(None), "{at}");
        }
    }

    #[test]
    fn a_newer_format_is_refused_by_name() {
        for (at, expected) in [
            (8, StoreError::Newer { version: 0x11, incompat: 0 }),
            (12, StoreError::Newer { version: 1, incompat: 0x10 }),
        ] {
            assert_eq!(expected.to_string().contains("a second device"), at == 12, "{expected}");
            let mut raw = sample().encode_block().to_vec();
            raw[at] ^= 0x10;
            let crc = crc32c(&raw[..BLOCK - 4]);
            raw[BLOCK - 4..].copy_from_slice(&crc.to_le_bytes());
            assert_eq!(Superblock::decode_block(&raw.into()), Err(expected));
        }
    }

    #[test]
    fn layouts_leave_room_for_data() {
        for bytes in [1u64 << 20, 16 << 20, 10 << 30, 4 << 40] {
            let l = Layout::plan(bytes, None).expect("fits");
            assert!(l.is_sound());
            assert!(u64::from(l.fixed().len) * BLOCK_U64 <= bytes / 8, "{bytes}");
        }
        assert!(Layout::plan(64 << 10, None).is_err());
    }
}
