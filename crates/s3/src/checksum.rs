//! Checksums that clients send with a body, in front of it or behind it.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use crc_fast::CrcAlgorithm;
use rgw::{Cksum, CksumKind};
use sha1::Sha1;
use sha2::{Digest, Sha256};

/// A sum under way.
pub enum Checksum {
    Crc { kind: CksumKind, digest: crc_fast::Digest },
    Sha1(Sha1),
    Sha256(Sha256),
}

impl std::fmt::Debug for Checksum {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Checksum({})", self.header())
    }
}

impl Checksum {
    pub fn new(kind: CksumKind) -> Self {
        match crc(kind) {
            Some(algorithm) => Self::Crc { kind, digest: crc_fast::Digest::new(algorithm) },
            None if kind == CksumKind::Sha1 => Self::Sha1(Sha1::new()),
            None => Self::Sha256(Sha256::new()),
        }
    }

    /// The sum that a header carries.
    pub fn of(header: &str) -> Option<Self> {
        CksumKind::ALL.into_iter().find(|kind| header_of(*kind) == header).map(Self::new)
    }

    pub fn kind(&self) -> CksumKind {
        match self {
            Self::Crc { kind, .. } => *kind,
            Self::Sha1(_) => CksumKind::Sha1,
            Self::Sha256(_) => CksumKind::Sha256,
        }
    }

    pub fn header(&self) -> &'static str {
        header_of(self.kind())
    }

    pub fn update(&mut self, data: &[u8]) {
        match self {
            Self::Crc { digest, .. } => digest.update(data),
            Self::Sha1(digest) => digest.update(data),
            Self::Sha256(digest) => digest.update(data),
        }
    }

    /// The sum of all that it was given.
    pub fn finish(self) -> Cksum {
        let kind = self.kind();
        let sum = match self {
            Self::Crc { digest, .. } => of_crc(kind, digest.finalize()),
            Self::Sha1(digest) => Bytes::copy_from_slice(&digest.finalize()),
            Self::Sha256(digest) => Bytes::copy_from_slice(&digest.finalize()),
        };
        Cksum::new(kind, sum)
    }
}

/// A sum's bytes, as headers have them.
fn of_crc(kind: CksumKind, value: u64) -> Bytes {
    let whole = value.to_be_bytes();
    Bytes::copy_from_slice(whole.get(whole.len().saturating_sub(kind.bytes())..).unwrap_or_default())
}

fn crc(kind: CksumKind) -> Option<CrcAlgorithm> {
    match kind {
        CksumKind::Crc32 => Some(CrcAlgorithm::Crc32IsoHdlc),
        CksumKind::Crc32c => Some(CrcAlgorithm::Crc32Iscsi),
        CksumKind::Crc64Nvme => Some(CrcAlgorithm::Crc64Nvme),
        CksumKind::Sha1 | CksumKind::Sha256 => None,
    }
}

/// Whether it is what a client said, in base64.
pub fn is(made: &Cksum, said: &str) -> bool {
    BASE64_STANDARD.decode(said.trim()).is_ok_and(|said| said == made.sum)
}

/// The header that carries a sum of a kind.
pub fn header_of(kind: CksumKind) -> &'static str {
    match kind {
        CksumKind::Crc32 => "x-amz-checksum-crc32",
        CksumKind::Crc32c => "x-amz-checksum-crc32c",
        CksumKind::Crc64Nvme => "x-amz-checksum-crc64nvme",
        CksumKind::Sha1 => "x-amz-checksum-sha1",
        CksumKind::Sha256 => "x-amz-checksum-sha256",
    }
}

/// How the sum of an object that was uploaded in parts is made of those of its parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Way {
    pub kind: CksumKind,
    /// The sum of the sums, with their count behind it.
    pub is_composite: bool,
}

impl Way {
    /// What requests call it.
    pub fn name(is_composite: bool) -> &'static str {
        if is_composite { "COMPOSITE" } else { "FULL_OBJECT" }
    }

    /// A way that an upload is begun for. CRCs are of all bytes where nothing is said, and others cannot be.
    pub fn new(kind: CksumKind, said: Option<&str>) -> Option<Self> {
        let is_composite = match said {
            None => !kind.is_crc(),
            Some("COMPOSITE") if kind != CksumKind::Crc64Nvme => true,
            Some("FULL_OBJECT") if kind.is_crc() => false,
            Some(_) => return None,
        };
        Some(Self { kind, is_composite })
    }

    /// As an upload keeps it.
    pub fn to_text(self) -> String {
        format!("{} {}", self.kind.name(), Self::name(self.is_composite))
    }

    pub fn of_text(text: &[u8]) -> Option<Self> {
        let (kind, way) = std::str::from_utf8(text).ok()?.split_once(' ')?;
        Self::new(CksumKind::named(kind)?, Some(way))
    }

    /// The whole's sum, of the parts' sums and sizes.
    pub fn whole<'a>(self, parts: impl IntoIterator<Item = (&'a Cksum, u64)>) -> Cksum {
        let parts = parts.into_iter();
        let sum = match crc(self.kind).filter(|_| !self.is_composite) {
            None => {
                let mut whole = Checksum::new(self.kind);
                parts.for_each(|(part, _)| whole.update(&part.sum));
                whole.finish().sum
            }
            Some(algorithm) => {
                let value = |part: &Cksum| part.sum.iter().fold(0u64, |value, b| value << 8 | u64::from(*b));
                let joined = parts.fold(None, |whole: Option<u64>, (part, size)| match whole {
                    None => Some(value(part)),
                    Some(whole) => Some(crc_fast::checksum_combine(algorithm, whole, value(part), size)),
                });
                of_crc(self.kind, joined.unwrap_or(0))
            }
        };
        Cksum::of_parts(self.kind, sum, self.is_composite)
    }
}

/// A sum as answers have it: with the count of parts where it is of their sums.
pub fn shown(sum: &Cksum, composed_of: Option<usize>) -> String {
    let text = BASE64_STANDARD.encode(&sum.sum);
    composed_of.map_or(text.clone(), |parts| format!("{text}-{parts}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_are_those_that_clients_make() {
        // Check values of the algorithms, of these nine bytes.
        for (header, want) in [
            ("x-amz-checksum-crc32", "y/Q5Jg=="),
            ("x-amz-checksum-crc32c", "4waSgw=="),
            ("x-amz-checksum-crc64nvme", "rosUhgp5mIg="),
            ("x-amz-checksum-sha1", "98O8HYCOBHMq32eZZczDTKeuNEE="),
            ("x-amz-checksum-sha256", "FeKw08M4keuw8e9gnsQZQgwg4yDOlMZfvIwzEkSOsiU="),
        ] {
            let made = || {
                let mut sum = Checksum::of(header).unwrap();
                assert_eq!(sum.header(), header);
                sum.update(b"12345");
                sum.update(b"6789");
                sum
            };
            let sum = made().finish();
            assert!(!is(&sum, "") && !is(&sum, "AAAA"));
            assert!(is(&sum, want) && shown(&sum, None) == want, "{header}");
        }
        assert!(Checksum::of("x-amz-checksum-type").is_none());
    }

    fn sum(kind: CksumKind, data: &[u8]) -> Cksum {
        let mut sum = Checksum::new(kind);
        sum.update(data);
        sum.finish()
    }

    #[test]
    fn the_sum_of_a_whole_follows_from_those_of_its_parts() {
        let data: Vec<u8> = (0..100_003u32).map(|n| (n * 7 + n / 256) as u8).collect();
        for kind in CksumKind::ALL {
            for cuts in [&[][..], &[1], &[50_000, 50_001], &[5, 99_999]] {
                let length = data.len();
                let ends = cuts.iter().chain([&length]);
                let starts = std::iter::once(&0).chain(cuts);
                let parts: Vec<&[u8]> = starts.zip(ends).map(|(from, to)| &data[*from..*to]).collect();
                let sums: Vec<(Cksum, u64)> =
                    parts.iter().map(|part| (sum(kind, part), part.len() as u64)).collect();
                let whole = |way: Way| way.whole(sums.iter().map(|(sum, size)| (sum, *size)));
                if let Some(way) = Way::new(kind, Some("FULL_OBJECT")) {
                    assert_eq!(whole(way).sum, sum(kind, &data).sum, "{kind:?} {cuts:?}");
                    assert!(!whole(way).is_composite(true));
                }
                if let Some(way) = Way::new(kind, Some("COMPOSITE")) {
                    let all: Vec<u8> = sums.iter().flat_map(|(sum, _)| sum.sum.to_vec()).collect();
                    assert_eq!(whole(way).sum, sum(kind, &all).sum, "{kind:?} {cuts:?}");
                    assert!(whole(way).is_composite(true));
                }
            }
        }
    }

    #[test]
    fn ways_are_those_that_there_are() {
        for (kind, said, want) in [
            (CksumKind::Crc32, None, Some("CRC32 FULL_OBJECT")),
            (CksumKind::Crc32, Some("COMPOSITE"), Some("CRC32 COMPOSITE")),
            (CksumKind::Crc64Nvme, Some("COMPOSITE"), None),
            (CksumKind::Sha1, None, Some("SHA1 COMPOSITE")),
            (CksumKind::Sha256, Some("FULL_OBJECT"), None),
            (CksumKind::Crc32c, Some("full_object"), None),
        ] {
            let way = Way::new(kind, said);
            assert_eq!(way.map(Way::to_text).as_deref(), want, "{kind:?} {said:?}");
            assert_eq!(way, way.and_then(|way| Way::of_text(way.to_text().as_bytes())));
        }
        assert_eq!((Way::of_text(b"MD5 COMPOSITE"), Way::of_text(b"CRC32")), (None, None));
        assert_eq!(shown(&sum(CksumKind::Crc32, b"123456789"), Some(3)), "y/Q5Jg==-3");
    }
}
