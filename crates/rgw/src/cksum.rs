//! Checksums that clients ask for, kept with objects and parts. 16.2 has none, and passes over them. Source:
//! src/rgw/rgw_cksum.h of 20.

use bytes::Bytes;
use codec::{Decode, DecodeError, Encode, Reader, Writer};

/// Algorithms that S3 has. Others that a later release may have stored are told to nobody. Source: Type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CksumKind {
    Crc32 = 1,
    Crc32c = 2,
    Sha1 = 4,
    Sha256 = 5,
    Crc64Nvme = 8,
}

impl CksumKind {
    pub const ALL: [Self; 5] = [Self::Crc32, Self::Crc32c, Self::Crc64Nvme, Self::Sha1, Self::Sha256];

    /// As requests name it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Crc32 => "CRC32",
            Self::Crc32c => "CRC32C",
            Self::Sha1 => "SHA1",
            Self::Sha256 => "SHA256",
            Self::Crc64Nvme => "CRC64NVME",
        }
    }

    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name().eq_ignore_ascii_case(name))
    }

    /// Bytes of a sum.
    pub fn bytes(self) -> usize {
        match self {
            Self::Crc32 | Self::Crc32c => 4,
            Self::Crc64Nvme => 8,
            Self::Sha1 => 20,
            Self::Sha256 => 32,
        }
    }

    /// Whether the sum of a whole follows from those of its parts.
    pub fn is_crc(self) -> bool {
        matches!(self, Self::Crc32 | Self::Crc32c | Self::Crc64Nvme)
    }
}

/// Bytes of a sum, at most. Source: max_digest_size.
const MAX: usize = 64;
/// It has flags at all.
const V2: u16 = 1;
/// Made of the sums of an upload's parts: as the sum of these, or as that of all bytes.
const COMPOSITE: u16 = 2 | 8;
const FULL_OBJECT: u16 = 4 | 8;

/// The attribute `user.rgw.cksum`, and a field of parts. Source: Cksum.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cksum {
    /// A number of an algorithm.
    kind: u16,
    pub sum: Bytes,
    flags: u16,
}

impl Cksum {
    /// Of bytes that came at once.
    pub fn new(kind: CksumKind, sum: Bytes) -> Self {
        Self { kind: kind as u16, sum, flags: V2 }
    }

    /// Of what is made of parts: the sum of their sums, or that of all bytes.
    pub fn of_parts(kind: CksumKind, sum: Bytes, is_composite: bool) -> Self {
        let flags = V2 | if is_composite { COMPOSITE } else { FULL_OBJECT };
        Self { kind: kind as u16, sum, flags }
    }

    /// `None` for what S3 does not know.
    pub fn kind(&self) -> Option<CksumKind> {
        let known = CksumKind::ALL.into_iter().find(|kind| *kind as u16 == self.kind);
        known.filter(|kind| kind.bytes() == self.sum.len())
    }

    /// Whether it is the sum of the parts' sums. One without flags is from when there was no other way for
    /// uploads; what else has none is no upload.
    pub fn is_composite(&self, is_upload: bool) -> bool {
        match self.flags & V2 {
            0 => is_upload,
            _ => self.flags & COMPOSITE == COMPOSITE,
        }
    }
}

impl Encode for Cksum {
    fn encode(&self, w: &mut Writer) {
        w.envelope(2, 1, |w| {
            self.kind.encode(w);
            u16::try_from(self.sum.len()).unwrap_or(0).encode(w);
            w.raw(&self.sum);
            self.flags.encode(w);
        });
    }
}
impl Decode for Cksum {
    const MIN_SIZE: usize = 10;
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.envelope("checksum", 2, |r, env| {
            let (kind, length) = (r.u16()?, r.u16()?);
            if usize::from(length) > MAX {
                return Err(DecodeError::Invalid { what: "checksum", value: length.into() });
            }
            let sum = r.raw(length.into())?;
            let flags = if env.version >= 2 { r.u16()? } else { 0 };
            Ok(Self { kind, sum, flags })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// By the source: no release that writes it is at hand.
    #[test]
    fn sums_are_as_later_releases_have_them() {
        let sum = Cksum::new(CksumKind::Crc32, Bytes::from_static(&[0xcb, 0xf4, 0x39, 0x26]));
        let bytes = sum.to_bytes();
        assert_eq!(&bytes[..], b"\x02\x01\x0a\0\0\0\x01\0\x04\0\xcb\xf4\x39\x26\x01\0");
        assert_eq!(Cksum::from_bytes(bytes.clone()), Ok(sum));
        for end in 0..bytes.len() {
            assert!(Cksum::from_bytes(bytes.slice(..end)).is_err(), "{end}");
        }
        let whole = Cksum::of_parts(CksumKind::Sha256, vec![7; 32].into(), true);
        assert_eq!(whole.to_bytes().get(42..), Some(&[0x0b, 0][..]));
        let long = [&b"\x02\x01\x47\0\0\0\x01\0\x41\0"[..], &[0; 67]].concat();
        assert!(Cksum::from_bytes(Bytes::from(long)).is_err());
    }

    #[test]
    fn what_is_not_known_has_no_name() {
        let read = |kind: u8, len: u8| {
            let body = [&[kind, 0, len, 0][..], &vec![1; len.into()], &[1, 0]].concat();
            let head = [2, 1, body.len() as u8, 0, 0, 0];
            Cksum::from_bytes(Bytes::from([&head[..], &body].concat())).unwrap()
        };
        assert_eq!(
            (read(1, 4).kind(), read(1, 5).kind(), read(7, 32).kind()),
            (Some(CksumKind::Crc32), None, None)
        );
        for kind in CksumKind::ALL {
            assert_eq!(read(kind as u8, kind.bytes() as u8).kind(), Some(kind));
            assert_eq!(CksumKind::named(&kind.name().to_ascii_lowercase()), Some(kind));
        }
        assert_eq!(CksumKind::named("MD5"), None);
    }

    #[test]
    fn a_sum_of_sums_says_so() {
        let of = |flags| Cksum { kind: 1, sum: vec![0; 4].into(), flags };
        assert_eq!([of(0).is_composite(true), of(0).is_composite(false)], [true, false]);
        let plain = Cksum::new(CksumKind::Crc32, vec![0; 4].into());
        assert_eq!([plain.is_composite(true), plain.is_composite(false)], [false, false]);
        for is_composite in [true, false] {
            let sum = Cksum::of_parts(CksumKind::Crc32, vec![0; 4].into(), is_composite);
            assert_eq!(sum.is_composite(true), is_composite);
        }
    }
}
