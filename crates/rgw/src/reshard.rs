//! The queue of buckets whose index is to be resharded.

use bytes::Bytes;
use codec::wire_struct;
use types::RealTime;

/// A bucket in the queue of those whose index is to be resharded. Source: cls_rgw_reshard_entry in
/// src/cls/rgw/cls_rgw_types.h.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReshardEntry {
    pub time: RealTime,
    pub tenant: Bytes,
    pub bucket: Bytes,
    pub bucket_id: Bytes,
    pub new_instance: Bytes,
    pub old_shards: u32,
    pub new_shards: u32,
}
wire_struct!(ReshardEntry(1, 1) { time, tenant, bucket, bucket_id, new_instance, old_shards, new_shards });
