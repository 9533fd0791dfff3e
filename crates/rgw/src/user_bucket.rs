//! The buckets of a user, in the omap of `<user>.buckets`. Source: src/cls/user/cls_user_types.h.

use bytes::Bytes;
use codec::{Decode, DecodeError, Encode, Reader, Writer};
use types::{RealTime, Utime};

/// A bucket's name and where its objects are: by a rule's name, or by pools.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UserBucket {
    pub name: Bytes,
    pub marker: Bytes,
    pub id: Bytes,
    pub placement: Bytes,
    pub data_pool: Bytes,
    pub index_pool: Bytes,
    pub extra_pool: Bytes,
}

impl Encode for UserBucket {
    fn encode(&self, w: &mut Writer) {
        if self.placement.is_empty() {
            w.envelope(7, 3, |w| {
                self.name.encode(w);
                self.data_pool.encode(w);
                self.marker.encode(w);
                self.id.encode(w);
                self.index_pool.encode(w);
                self.extra_pool.encode(w);
            });
        } else {
            w.envelope(9, 8, |w| {
                self.name.encode(w);
                self.marker.encode(w);
                self.id.encode(w);
                self.placement.encode(w);
            });
        }
    }
}
impl Decode for UserBucket {
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.legacy_envelope("user bucket", 8, 3, |r, v| {
            let mut b = Self { name: r.blob()?, ..Self::default() };
            if v < 8 {
                b.data_pool = r.blob()?;
            }
            if v >= 2 {
                b.marker = r.blob()?;
                b.id = if v <= 3 { r.u64()?.to_string().into() } else { r.blob()? };
            }
            if v < 8 {
                b.index_pool = if v >= 5 { r.blob()? } else { b.data_pool.clone() };
                if v >= 7 {
                    b.extra_pool = r.blob()?;
                }
            } else {
                b.placement = r.blob()?;
                if v == 8 && b.placement.is_empty() {
                    (b.data_pool, b.index_pool, b.extra_pool) = (r.blob()?, r.blob()?, r.blob()?);
                }
            }
            Ok(b)
        })
    }
}

/// A bucket in its owner's list, under its name. Source: cls_user_bucket_entry.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UserBucketEntry {
    pub bucket: UserBucket,
    /// Bytes.
    pub size: u64,
    /// Bytes, in whole allocation units.
    pub size_rounded: u64,
    pub created: RealTime,
    /// Objects.
    pub count: u64,
    /// Whether the header's sums hold this one.
    pub synced: bool,
}

impl Encode for UserBucketEntry {
    fn encode(&self, w: &mut Writer) {
        w.envelope(9, 5, |w| {
            Bytes::new().encode(w); // the bucket's name, once
            self.size.encode(w);
            self.created.0.sec.encode(w);
            self.count.encode(w);
            self.bucket.encode(w);
            self.size_rounded.encode(w);
            self.synced.encode(w);
            self.created.encode(w);
        });
    }
}
impl Decode for UserBucketEntry {
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.legacy_envelope("user bucket entry", 9, 5, |r, v| {
            r.blob()?;
            let (size, sec) = (r.u64()?, r.u32()?);
            let mut e = Self { size, size_rounded: size, ..Self::default() };
            if v < 7 {
                e.created = RealTime(Utime::new(sec, 0));
            }
            if v >= 2 {
                e.count = r.u64()?;
            }
            if v >= 3 {
                e.bucket = Decode::decode(r)?;
            }
            if v >= 4 {
                e.size_rounded = r.u64()?;
            }
            if v >= 6 {
                e.synced = Decode::decode(r)?;
            }
            if v >= 7 {
                e.created = Decode::decode(r)?;
            }
            if v == 8 {
                r.blob()?; // a placement rule
            }
            Ok(e)
        })
    }
}
