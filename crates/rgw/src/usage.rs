//! The usage log: what users did in an hour. Source: src/cls/rgw/cls_rgw_types.h.

use std::collections::BTreeMap;

use bytes::Bytes;
use codec::{Decode, DecodeError, Encode, Reader, Writer, wire_struct};

use crate::UserId;

/// Source: rgw_usage_data in src/cls/rgw/cls_rgw_types.h.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    /// Bytes.
    pub sent: u64,
    /// Bytes.
    pub received: u64,
    pub ops: u64,
    pub successful_ops: u64,
}
wire_struct!(Usage(1, 1) { sent, received, ops, successful_ops });

impl Usage {
    fn add(&mut self, other: &Self) {
        self.sent = self.sent.wrapping_add(other.sent);
        self.received = self.received.wrapping_add(other.received);
        self.ops = self.ops.wrapping_add(other.ops);
        self.successful_ops = self.successful_ops.wrapping_add(other.successful_ops);
    }

    /// Its fields stand in an entry without an envelope.
    fn encode_bare(&self, w: &mut Writer) {
        for field in [self.sent, self.received, self.ops, self.successful_ops] {
            field.encode(w);
        }
    }

    fn decode_bare(r: &mut Reader) -> Result<Self, DecodeError> {
        Ok(Self { sent: r.u64()?, received: r.u64()?, ops: r.u64()?, successful_ops: r.u64()? })
    }
}

/// Source: rgw_usage_log_entry.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UsageEntry {
    pub owner: UserId,
    /// Empty for the owner.
    pub payer: UserId,
    pub bucket: Bytes,
    /// Seconds since 1970.
    pub epoch: u64,
    pub total: Usage,
    pub by_category: BTreeMap<Bytes, Usage>,
}

impl Encode for UsageEntry {
    fn encode(&self, w: &mut Writer) {
        w.envelope(3, 1, |w| {
            self.owner.to_text().encode(w);
            self.bucket.encode(w);
            self.epoch.encode(w);
            self.total.encode_bare(w);
            self.by_category.encode(w);
            self.payer.to_text().encode(w);
        });
    }
}
impl Decode for UsageEntry {
    const MIN_SIZE: usize = 6;
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.envelope("usage entry", 3, |r, env| {
            let (owner, bucket, epoch) = (UserId::from_text(&r.blob()?), r.blob()?, r.u64()?);
            let total = Usage::decode_bare(r)?;
            let by_category = match env.version {
                0 | 1 => BTreeMap::from([(Bytes::new(), total)]),
                _ => Decode::decode(r)?,
            };
            let payer = if env.version >= 3 { UserId::from_text(&r.blob()?) } else { UserId::default() };
            Ok(Self { owner, payer, bucket, epoch, total, by_category })
        })
    }
}

impl UsageEntry {
    /// Whose account it goes on.
    pub fn user(&self) -> &UserId {
        // A tenant without an id is none either.
        if self.payer.id.is_empty() { &self.owner } else { &self.payer }
    }

    /// Adds another entry's sums; an entry without an owner takes the other's.
    pub fn aggregate(&mut self, other: &Self) {
        if self.owner.id.is_empty() {
            self.owner = other.owner.clone();
            self.bucket = other.bucket.clone();
            self.epoch = other.epoch;
            self.payer = other.payer.clone();
        }
        for (category, data) in &other.by_category {
            self.by_category.entry(category.clone()).or_default().add(data);
            self.total.add(data);
        }
    }
}
