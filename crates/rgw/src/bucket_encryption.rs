//! How what comes into a bucket is encrypted where its request says nothing. 16.2 has nothing of the kind,
//! and passes over it. Source: src/rgw/rgw_bucket_encryption.h of 17.2.

use bytes::Bytes;
use codec::{Decode, DecodeError, Encode, Reader, Writer};

/// Source: ServerSideEncryptionConfiguration, with ApplyServerSideEncryptionByDefault.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EncryptionRule {
    /// Of the service that has the key; empty for keys of the gateways' own.
    pub key_id: Bytes,
    /// `AES256` or `aws:kms`.
    pub algorithm: Bytes,
    pub bucket_key: bool,
}

impl Encode for EncryptionRule {
    fn encode(&self, w: &mut Writer) {
        w.envelope(1, 1, |w| {
            w.envelope(1, 1, |w| {
                self.key_id.encode(w);
                self.algorithm.encode(w);
            });
            self.bucket_key.encode(w);
        });
    }
}
impl Decode for EncryptionRule {
    const MIN_SIZE: usize = 12;
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.envelope("encryption rule", 1, |r, _| {
            let (key_id, algorithm) =
                r.envelope("default encryption", 1, |r, _| Ok((r.blob()?, r.blob()?)))?;
            Ok(Self { key_id, algorithm, bucket_key: Decode::decode(r)? })
        })
    }
}

/// The attribute `user.rgw.sse-s3.policy`. Source: RGWBucketEncryptionConfig.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BucketEncryption {
    pub rule: Option<EncryptionRule>,
}

impl Encode for BucketEncryption {
    fn encode(&self, w: &mut Writer) {
        // As an option is encoded.
        w.envelope(1, 1, |w| self.rule.encode(w));
    }
}
impl Decode for BucketEncryption {
    const MIN_SIZE: usize = 7;
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.envelope("bucket encryption", 1, |r, _| Ok(Self { rule: Decode::decode(r)? }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// By the source: no release that writes it is at hand.
    #[test]
    fn rules_are_as_later_releases_have_them() {
        let rule = EncryptionRule { key_id: "k".into(), algorithm: "aws:kms".into(), bucket_key: true };
        let all = BucketEncryption { rule: Some(rule) };
        let bytes = all.to_bytes();
        let want =
            b"\x01\x01\x1e\0\0\0\x01\x01\x01\x17\0\0\0\x01\x01\x10\0\0\0\x01\0\0\0k\x07\0\0\0aws:kms\x01";
        assert_eq!(&bytes[..], want);
        assert_eq!(BucketEncryption::from_bytes(bytes.clone()), Ok(all));
        for end in 0..bytes.len() {
            assert!(BucketEncryption::from_bytes(bytes.slice(..end)).is_err(), "{end}");
        }
        let none = BucketEncryption::default();
        assert_eq!(BucketEncryption::from_bytes(none.to_bytes()), Ok(none));
    }
}
