//! A record of the log: header, data, padding.

use bytes::{Bytes, BytesMut};
use codec::{Reader, Writer, crc32c};

/// Records start on multiples of this; media do not tear smaller pieces.
pub const SECTOR: u64 = 512;

/// The most data of one record, in bytes; longer writes take several.
pub const MAX_DATA: usize = 256 << 10;

pub const HEADER_LEN: usize = 72;
const MAGIC: u32 = 0x3152_4257;
const CRC_SEED: u32 = u32::MAX;

/// A change of the image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Op {
    Write {
        offset: u64,
        data: Bytes,
    },
    /// `punch`: the space may be given back.
    Zero {
        offset: u64,
        len: u64,
        punch: bool,
    },
}

impl Op {
    #[must_use]
    pub fn range(&self) -> (u64, u64) {
        match self {
            Self::Write { offset, data } => (*offset, offset.saturating_add(data.len() as u64)),
            Self::Zero { offset, len, .. } => (*offset, offset.saturating_add(*len)),
        }
    }

    /// The same change in parts that fit a record each.
    #[must_use]
    pub fn split(self) -> Vec<Self> {
        match self {
            Self::Write { offset, data } if data.len() > MAX_DATA => (0..data.len())
                .step_by(MAX_DATA)
                .map(|at| {
                    let part = data.slice(at..data.len().min(at + MAX_DATA));
                    Self::Write { offset: offset + at as u64, data: part }
                })
                .collect(),
            other => vec![other],
        }
    }

    #[must_use]
    pub fn data_len(&self) -> usize {
        match self {
            Self::Write { data, .. } => data.len(),
            Self::Zero { .. } => 0,
        }
    }
}

/// What a record's header says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    pub crc: u32,
    pub file_id: u64,
    pub seq: u64,
    pub epoch: u64,
    pub synced: u64,
    pub group: u64,
    pub kind: Kind,
    pub data_len: u32,
    pub offset: u64,
    pub length: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Write,
    Zero,
    Punch,
    Wrap,
}

impl Kind {
    fn number(self) -> u32 {
        match self {
            Self::Write => 1,
            Self::Zero => 2,
            Self::Punch => 3,
            Self::Wrap => 4,
        }
    }

    fn from_number(number: u32) -> Option<Self> {
        Some(match number {
            1 => Self::Write,
            2 => Self::Zero,
            3 => Self::Punch,
            4 => Self::Wrap,
            _ => return None,
        })
    }
}

/// Where a record is in the file, and what it must be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecordRef {
    /// Byte of the file.
    pub pos: u64,
    /// Header and data, in bytes.
    pub len: usize,
    pub seq: u64,
    pub file_id: u64,
}

impl RecordRef {
    /// The record's data out of the bytes read at `pos`; `None` when they are another record's or damaged.
    #[must_use]
    pub fn data(&self, bytes: &Bytes) -> Option<Bytes> {
        let header = Header::parse(bytes)?;
        let fits = header.seq == self.seq
            && header.file_id == self.file_id
            && HEADER_LEN + header.data_len as usize == self.len
            && header.is_intact(bytes);
        fits.then(|| bytes.slice(HEADER_LEN..self.len))
    }
}

/// The length on the media of a record with so much data.
pub fn padded(data_len: usize) -> u64 {
    ((HEADER_LEN + data_len) as u64).next_multiple_of(SECTOR)
}

impl Header {
    /// The buffers of a record: header, data, padding.
    pub fn encode(&self, data: &Bytes) -> Vec<Bytes> {
        let mut w = Writer::with_capacity(HEADER_LEN);
        w.u32(0);
        w.u32(MAGIC);
        w.u64(self.file_id);
        w.u64(self.seq);
        w.u64(self.epoch);
        w.u64(self.synced);
        w.u64(self.group);
        w.u32(self.kind.number());
        w.u32(self.data_len);
        w.u64(self.offset);
        w.u64(self.length);
        let crc = crc32c(crc32c(CRC_SEED, w.as_slice().get(4..).unwrap_or_default()), data);
        w.patch_u32(0, crc);
        let pad = padded(data.len()) as usize - HEADER_LEN - data.len();
        vec![w.into_bytes(), data.clone(), BytesMut::zeroed(pad).freeze()]
    }

    /// Whether the magic is there.
    pub fn may_start(bytes: &[u8]) -> bool {
        bytes.get(4..8) == Some(&MAGIC.to_le_bytes())
    }

    /// Reads a header; the checksum is not looked at.
    pub fn parse(bytes: &Bytes) -> Option<Self> {
        let mut r = Reader::new(bytes.clone());
        let crc = r.u32().ok()?;
        if r.u32().ok()? != MAGIC {
            return None;
        }
        let header = Self {
            crc,
            file_id: r.u64().ok()?,
            seq: r.u64().ok()?,
            epoch: r.u64().ok()?,
            synced: r.u64().ok()?,
            group: r.u64().ok()?,
            kind: Kind::from_number(r.u32().ok()?)?,
            data_len: r.u32().ok()?,
            offset: r.u64().ok()?,
            length: r.u64().ok()?,
        };
        let data_fits = match header.kind {
            Kind::Write => header.length == u64::from(header.data_len) && header.length > 0,
            Kind::Zero | Kind::Punch | Kind::Wrap => header.data_len == 0,
        };
        let is_sane = data_fits
            && header.data_len as usize <= MAX_DATA
            && header.offset.checked_add(header.length).is_some();
        is_sane.then_some(header)
    }

    /// Whether the checksum fits `bytes`, which start with this header and hold the data too.
    pub fn is_intact(&self, bytes: &Bytes) -> bool {
        bytes
            .get(4..HEADER_LEN + self.data_len as usize)
            .is_some_and(|covered| crc32c(CRC_SEED, covered) == self.crc)
    }
}
