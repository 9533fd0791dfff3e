//! The two slots that say whose file it is and where the log starts.

use bytes::Bytes;
use codec::{Reader, Writer, crc32c};

use crate::error::OpenError;
use crate::record::SECTOR;

pub const SLOT_LEN: u64 = 4096;
/// Byte of the file where the records start.
pub const AREA_START: u64 = 2 * SLOT_LEN;
/// The smallest file: the longest record fits several times.
pub const MIN_FILE_LEN: u64 = 1 << 20;

const MAGIC: &[u8; 8] = b"LOLIGOWB";
const VERSION: u32 = 3;
/// Its claims were counted; otherwise the same.
const COUNTED: u32 = 2;
/// Counters of a file that was really used stay below.
const MAX_SEQ: u64 = 1 << 62;
const MAX_IDENTITY: usize = 1024;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Superblock {
    pub id: [u8; 16],
    pub generation: u64,
    pub epoch: u64,
    pub area_len: u64,
    /// Byte of the area.
    pub tail_pos: u64,
    pub tail_seq: u64,
    /// Of the record at the tail, or of the session when there was none: an older record there was never acknowledged.
    pub tail_epoch: u64,
    pub synced: u64,
    /// Random, of the last claim.
    pub claim: u64,
    /// There may be records that the image lacks.
    pub is_claimed: bool,
    pub identity: String,
}

impl Superblock {
    /// Byte of the file where this generation goes.
    pub fn position(&self) -> u64 {
        (self.generation % 2) * SLOT_LEN
    }

    pub fn file_id(&self) -> u64 {
        let mut half = [0; 8];
        half.iter_mut().zip(self.id).for_each(|(to, from)| *to = from);
        u64::from_le_bytes(half)
    }

    pub fn encode(&self) -> Bytes {
        let mut w = Writer::with_capacity(SLOT_LEN as usize);
        w.u32(0);
        w.raw(MAGIC);
        w.u32(VERSION);
        w.raw(&self.id);
        for number in [
            self.generation,
            self.epoch,
            self.area_len,
            self.tail_pos,
            self.tail_seq,
            self.tail_epoch,
            self.synced,
            self.claim,
            u64::from(self.is_claimed),
        ] {
            w.u64(number);
        }
        let mut cut = self.identity.len().min(MAX_IDENTITY);
        while !self.identity.is_char_boundary(cut) {
            cut -= 1;
        }
        w.blob(self.identity.get(..cut).unwrap_or_default().as_bytes());
        w.zeros(SLOT_LEN as usize - w.len());
        let crc = crc32c(u32::MAX, w.as_slice().get(4..).unwrap_or_default());
        w.patch_u32(0, crc);
        w.into_bytes()
    }

    /// Reads one slot; `Ok(None)` when it holds nothing valid.
    fn decode(slot: &Bytes) -> Result<Option<Self>, OpenError> {
        let Some(covered) = slot.get(4..SLOT_LEN as usize) else { return Ok(None) };
        let mut r = Reader::new(slot.clone());
        if r.u32().ok() != Some(crc32c(u32::MAX, covered)) || r.array::<8>().ok() != Some(*MAGIC) {
            return Ok(None);
        }
        match r.u32() {
            Ok(VERSION | COUNTED) => {}
            Ok(found) => return Err(OpenError::OtherVersion { found, known: VERSION }),
            Err(_) => return Ok(None),
        }
        Ok(Self::fields(&mut r).filter(Self::is_sane))
    }

    fn fields(r: &mut Reader) -> Option<Self> {
        Some(Self {
            id: r.array().ok()?,
            generation: r.u64().ok()?,
            epoch: r.u64().ok()?,
            area_len: r.u64().ok()?,
            tail_pos: r.u64().ok()?,
            tail_seq: r.u64().ok()?,
            tail_epoch: r.u64().ok()?,
            synced: r.u64().ok()?,
            claim: r.u64().ok()?,
            is_claimed: r.u64().ok()? != 0,
            identity: String::from_utf8(r.blob().ok()?.to_vec()).ok()?,
        })
    }

    fn is_sane(&self) -> bool {
        self.area_len % SECTOR == 0
            && self.area_len >= MIN_FILE_LEN - AREA_START
            && self.tail_pos % SECTOR == 0
            && self.tail_pos < self.area_len
            && (1..MAX_SEQ).contains(&self.tail_seq)
            && self.epoch < MAX_SEQ
            && self.tail_epoch <= self.epoch
            && self.generation < MAX_SEQ
    }

    /// The newer valid slot of the file's first [`AREA_START`] bytes, if it is this image's.
    pub fn choose(start: &Bytes, wanted: &str) -> Result<Self, OpenError> {
        let slot = |n: usize| {
            let at = n * SLOT_LEN as usize;
            if start.len() >= at + SLOT_LEN as usize {
                start.slice(at..at + SLOT_LEN as usize)
            } else {
                Bytes::new()
            }
        };
        let newest = [Self::decode(&slot(0))?, Self::decode(&slot(1))?]
            .into_iter()
            .flatten()
            .max_by_key(|s| s.generation)
            .ok_or(OpenError::NotACache)?;
        if newest.identity == wanted {
            Ok(newest)
        } else {
            Err(OpenError::OtherImage { found: newest.identity, wanted: wanted.to_owned() })
        }
    }
}
