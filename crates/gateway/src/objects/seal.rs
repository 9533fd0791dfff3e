//! Objects whose bytes are encrypted.
//!
//! 1. What is stored of an encrypted object is given to nobody: it is read with its key, or not at all.
//! 2. Attributes that tell of encryption are made by what encrypts, and by nothing else.
//! 3. What radosgw 16.2 would give away as it is stored is told to be compressed by what nobody has, so that
//!    it refuses: objects, and parts of uploads that it may complete.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use codec::{Decode, Encode};
use rgw::crypt::BLOCK;
use rgw::{Cipher, Compression, Encryption, Manifest};

use super::{Head, Opened, attr};
use crate::system::Attrs;
use crate::{Error, Plan};

/// What an object is encrypted with while it is written.
#[derive(Debug, Clone)]
pub struct Seal {
    pub cipher: Arc<Cipher>,
    pub encryption: Encryption,
}

impl Seal {
    /// Has attributes of so many bytes tell of a seal, or of none.
    pub(super) fn settle(seal: Option<&Self>, attrs: &mut Attrs, size: u64) {
        let says_sealed = |raw: &Bytes| Compression::from_bytes(raw.clone()).is_ok_and(|c| c.is_sealed());
        attrs.retain(|name, raw| {
            !(Encryption::tells(name) || name.as_ref() == attr::COMPRESSION && says_sealed(raw))
        });
        let Some(seal) = seal else { return };
        attrs.extend(seal.encryption.attrs());
        if seal.encryption.is_unknown_to_16_2() {
            attrs.insert(Bytes::from_static(attr::COMPRESSION), Compression::sealed(size).to_bytes());
        }
    }

    /// Bytes from an offset of their stream on, as they are stored.
    pub(super) fn close(seal: Option<&Self>, data: &mut [u8], offset: u64) {
        if let Some(seal) = seal {
            seal.cipher.encrypt(data, offset);
        }
    }
}

impl Head {
    /// What the object is encrypted with; `None` where its bytes are as clients wrote them.
    pub fn encryption(&self) -> Option<Encryption> {
        Encryption::told_by(&self.attrs)
    }
}

/// Where stored bytes lie in their streams: how many of which, one behind the other.
#[derive(Debug, PartialEq, Eq)]
struct Extent {
    /// Where the first of them lies in the whole.
    from: u64,
    /// Lengths, and offsets in streams.
    pieces: Vec<(u64, u64)>,
}

impl Extent {
    /// All blocks that have some of the bytes.
    fn of(manifest: Option<&Manifest>, size: u64, offset: u64, end: u64) -> Result<Self, Error> {
        let mut extent = Self { from: offset, pieces: Vec::new() };
        let mut at = offset;
        while at < end {
            let part = match manifest {
                Some(manifest) => manifest.part_at(at).filter(|part| part.contains(&at)),
                None => Some(0..size),
            };
            let part = part.ok_or(Error::Unexpected)?;
            let within = (at - part.start) / BLOCK * BLOCK;
            if extent.pieces.is_empty() {
                extent.from = part.start + within;
            }
            let blocks = (end.min(part.end) - part.start).div_ceil(BLOCK);
            let to = part.start.saturating_add(blocks.saturating_mul(BLOCK)).min(part.end);
            extent.pieces.push((to - part.start - within, within));
            at = to;
        }
        Ok(extent)
    }

    fn len(&self) -> u64 {
        self.pieces.iter().map(|(length, _)| length).sum()
    }
}

impl Opened {
    /// The object with the key that it is encrypted with.
    pub fn unlocked(mut self, cipher: Arc<Cipher>) -> Self {
        self.cipher = Some(cipher);
        self
    }

    /// Bytes of an encrypted object up to `end`.
    pub(super) fn read_deciphered(&self, offset: u64, end: u64) -> Plan<Bytes> {
        let Some(cipher) = self.cipher.clone() else { return Plan::failed(Error::Encrypted) };
        let extent = match Extent::of(self.head.manifest.as_ref(), self.size(), offset, end) {
            Ok(extent) => extent,
            Err(e) => return Plan::failed(e),
        };
        let (first, length) = (offset - extent.from, end.saturating_sub(offset));
        self.read_stored(extent.from, extent.from.saturating_add(extent.len())).try_map(move |stored| {
            let mut data = BytesMut::from(stored);
            let mut rest = &mut data[..];
            for (length, offset) in extent.pieces {
                let length = usize::try_from(length).map_err(|_| Error::Unexpected)?;
                let (piece, behind) = rest.split_at_mut_checked(length).ok_or(Error::Unexpected)?;
                cipher.decrypt(piece, offset);
                rest = behind;
            }
            let range = usize::try_from(first).ok().zip(usize::try_from(first.saturating_add(length)).ok());
            let (from, to) = range.filter(|(_, to)| *to <= data.len()).ok_or(Error::Unexpected)?;
            Ok(data.freeze().slice(from..to))
        })
    }
}
