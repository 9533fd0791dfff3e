//! Objects of a bucket.
//!
//! 1. A change is prepared in the bucket's index, made to the object's head, and completed in the index. What
//!    a gateway leaves between these is put right by whoever lists the bucket.
//! 2. The head changes in one request: an object is what it was or what it becomes.
//! 3. A tail is written before the head that names it, and handed to garbage collection after the head that
//!    does not.

use std::sync::Arc;

use bytes::Bytes;
use rgw::{BucketInfo, Key, Object, PlacementRule, RawObject, Versioning};

use crate::{Error, Site};

mod change;
mod get;
mod head;
mod list;
mod put;

mod remove;
#[cfg(test)]
mod tests;

pub use get::Opened;
pub use head::Head;
pub use list::{Listed, Listing};
pub use put::{Condition, Finish, Upload, Written};

/// Attributes of heads. Source: src/rgw/rgw_common.h.
pub(crate) mod attr {
    pub const ID_TAG: &[u8] = b"user.rgw.idtag";
    pub const TAIL_TAG: &[u8] = b"user.rgw.tail_tag";
    pub const MANIFEST: &[u8] = b"user.rgw.manifest";
    pub const ETAG: &[u8] = b"user.rgw.etag";
    pub const CONTENT_TYPE: &[u8] = b"user.rgw.content_type";
    pub const PG_VERSION: &[u8] = b"user.rgw.pg_ver";
    pub const SOURCE_ZONE: &[u8] = b"user.rgw.source_zone";
    pub const STORAGE_CLASS: &[u8] = b"user.rgw.storage_class";
    /// In front of what stays of a head when the object is removed.
    pub const OLH: &[u8] = b"user.rgw.olh.";
}

/// A bucket that objects are written to and read from.
pub type SharedBucket = Arc<BucketInfo>;

impl Site {
    /// Where an object lies, in the pool of a placement and its storage class.
    pub(crate) fn raw(&self, object: &Object, rule: &PlacementRule) -> Result<RawObject, Error> {
        let pools = self.placement(rule)?;
        let pool = pools.data(rule.storage_class()).ok_or(Error::NoSuchPlacement)?;
        Ok(object.raw(pool.clone()))
    }

    pub(crate) fn head_object(&self, bucket: &BucketInfo, key: &Key) -> Result<RawObject, Error> {
        self.raw(&Object { bucket: bucket.bucket.clone(), key: key.clone() }, &bucket.placement)
    }
}

/// Names that can be stored, in a bucket that keeps no versions: their heads point to versions, which this
/// core does not write yet.
fn writable(bucket: &BucketInfo, key: &Key) -> Result<(), Error> {
    if key.name.is_empty() {
        return Err(Error::InvalidArgument);
    }
    if bucket.flags.has(Versioning::VERSIONED) {
        return Err(Error::Versioned);
    }
    Ok(())
}

/// A text in an attribute, which may end with a zero.
pub(crate) fn text(value: &Bytes) -> Bytes {
    let end = value.iter().position(|b| *b == 0).unwrap_or(value.len());
    value.slice(..end)
}
