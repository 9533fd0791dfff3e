//! The logs that other zones follow: which shards of buckets have changed, and which metadata. What changed
//! in a shard stands in the log of its index.

use std::collections::BTreeMap;

use bytes::Bytes;
use codec::{Decode, DecodeError, Encode, Reader, Writer, wire_struct};
use types::RealTime;

use crate::ObjectVersion;

/// A shard of a bucket's index that has changed. Source: rgw_data_change in src/rgw/rgw_datalog.h.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DataChange {
    /// 1 for a bucket; others are not written.
    pub kind: u8,
    /// `tenant/name:id:shard`, without the tenant or the shard where there is none.
    pub shard: Bytes,
    pub time: RealTime,
}
wire_struct!(DataChange(1, 1) { kind, shard, time });

impl DataChange {
    pub const BUCKET: u8 = 1;
}

/// A queue or an omap that the log of data is, or was, kept in. Source: logback_generation in
/// src/rgw/rgw_log_backing.h of 16.2.15.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DataLogGeneration {
    pub number: u64,
    /// 0 for omaps, 1 for queues of class `fifo`.
    pub backing: u8,
    /// When the last of it was read by all zones.
    pub pruned: Option<RealTime>,
}

impl Encode for DataLogGeneration {
    fn encode(&self, w: &mut Writer) {
        w.envelope(1, 1, |w| {
            self.number.encode(w);
            self.backing.encode(w);
            self.pruned.encode(w);
        });
    }
}
impl Decode for DataLogGeneration {
    const MIN_SIZE: usize = 16;
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.envelope("data log generation", 1, |r, _| {
            Ok(Self { number: r.u64()?, backing: r.u8()?, pruned: Decode::decode(r)? })
        })
    }
}

/// The data of `data_loggenerations_metadata`: generations of the log by their numbers.
pub type DataLogGenerations = BTreeMap<u64, DataLogGeneration>;

/// A change of metadata: the data of an entry in a log of class `log`, whose section and name say of what.
/// Source: RGWMetadataLogData in src/rgw/rgw_metadata.cc.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MetadataChange {
    pub before: ObjectVersion,
    pub after: ObjectVersion,
    pub status: u32,
}
wire_struct!(MetadataChange(1, 1) { before, after, status });

impl MetadataChange {
    pub const WRITE: u32 = 1;
    pub const SET_ATTRS: u32 = 2;
    pub const REMOVE: u32 = 3;
    pub const COMPLETE: u32 = 4;
    pub const ABORT: u32 = 5;
}
