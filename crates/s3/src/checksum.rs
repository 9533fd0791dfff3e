//! Checksums that clients send with a body, in front of it or behind it.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use crc_fast::CrcAlgorithm;
use sha1::Sha1;
use sha2::{Digest, Sha256};

/// A sum under way.
pub enum Checksum {
    Crc { name: &'static str, digest: crc_fast::Digest, width: usize },
    Sha1(Sha1),
    Sha256(Sha256),
}

impl std::fmt::Debug for Checksum {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Checksum({})", self.header())
    }
}

impl Checksum {
    /// All headers that carry one.
    pub const HEADERS: [&'static str; 5] = [
        "x-amz-checksum-crc32",
        "x-amz-checksum-crc32c",
        "x-amz-checksum-crc64nvme",
        "x-amz-checksum-sha1",
        "x-amz-checksum-sha256",
    ];

    /// The sum that a header carries.
    pub fn of(header: &str) -> Option<Self> {
        let crc = |name, algorithm, width| {
            Some(Self::Crc { name, digest: crc_fast::Digest::new(algorithm), width })
        };
        match header {
            "x-amz-checksum-crc32" => crc("x-amz-checksum-crc32", CrcAlgorithm::Crc32IsoHdlc, 4),
            "x-amz-checksum-crc32c" => crc("x-amz-checksum-crc32c", CrcAlgorithm::Crc32Iscsi, 4),
            "x-amz-checksum-crc64nvme" => crc("x-amz-checksum-crc64nvme", CrcAlgorithm::Crc64Nvme, 8),
            "x-amz-checksum-sha1" => Some(Self::Sha1(Sha1::new())),
            "x-amz-checksum-sha256" => Some(Self::Sha256(Sha256::new())),
            _ => None,
        }
    }

    pub fn header(&self) -> &'static str {
        match self {
            Self::Crc { name, .. } => name,
            Self::Sha1(_) => "x-amz-checksum-sha1",
            Self::Sha256(_) => "x-amz-checksum-sha256",
        }
    }

    pub fn update(&mut self, data: &[u8]) {
        match self {
            Self::Crc { digest, .. } => digest.update(data),
            Self::Sha1(digest) => digest.update(data),
            Self::Sha256(digest) => digest.update(data),
        }
    }

    /// Whether it is what the client said, in base64.
    pub fn is(self, said: &str) -> bool {
        let made = match self {
            Self::Crc { digest, width, .. } => {
                let whole = digest.finalize().to_be_bytes();
                whole.get(whole.len().saturating_sub(width)..).unwrap_or_default().to_vec()
            }
            Self::Sha1(digest) => digest.finalize().to_vec(),
            Self::Sha256(digest) => digest.finalize().to_vec(),
        };
        BASE64_STANDARD.decode(said.trim()).is_ok_and(|said| said == made)
    }
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
            assert!(!made().is("") && !made().is("AAAA"));
            assert!(made().is(want), "{header}");
        }
        assert!(Checksum::of("x-amz-checksum-type").is_none());
    }
}
