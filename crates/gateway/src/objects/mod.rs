//! Objects of a bucket.
//!
//! 1. A change is prepared in the bucket's index, made to the object's head, and completed in the index. What
//!    a gateway leaves between these is put right by whoever lists the bucket.
//! 2. The head changes in one request: an object is what it was or what it becomes.
//! 3. A tail is written before the head that names it, and handed to garbage collection after the head that
//!    does not.
//! 4. A change of attributes leaves an object's data, and so the tag of its tail, as they are. Who finds
//!    another head with that tag finds the same object, and goes on with it.
//! 5. A request that ends without an answer may be done, now or later: nothing that rests on it being undone
//!    follows, and the index keeps the change as one under way.

use std::sync::Arc;

use bytes::Bytes;
use codec::Decode;
use rgw::index::Meta;
use rgw::{AccessControl, BucketInfo, Key, Object, PlacementRule, RawObject};
use types::RealTime;

use crate::buckets::ATTR_ACL;
use crate::system::Attrs;
use crate::{Error, Site};

mod attrs;
mod change;
mod copy;
mod expire;
mod get;
mod head;
mod list;
mod lock;
mod put;
mod quota;
mod seal;
mod transition;
mod upload;
mod versions;
mod wanted;

#[cfg(test)]
mod beside_tests;
#[cfg(test)]
mod lost_tests;
#[cfg(test)]
mod moved_tests;
mod remove;
#[cfg(test)]
mod seal_tests;
#[cfg(test)]
mod suspended_tests;
#[cfg(test)]
mod sweep_tests;
#[cfg(test)]
pub(crate) mod tests;
#[cfg(test)]
mod transition_tests;
#[cfg(test)]
mod upload_tests;
#[cfg(test)]
pub(crate) mod versions_tests;

pub use attrs::AttrChange;
pub(crate) use change::Change;
pub use copy::CopyTo;
pub use get::Opened;
pub use head::Head;
pub use list::{Listed, ListedVersion, Listing};
pub use lock::Lock;
pub(crate) use lock::has_locks;
pub use put::{Condition, Finish, Upload, Written};
pub(crate) use put::{NewHead, waste};
pub use seal::Seal;
pub use upload::{Complete, FinishPart, MAX_PARTS, MIN_PART, OfParts, Part, UploadId};
pub(crate) use upload::{META, NAMESPACE};
pub(crate) use versions::is_versioned;
pub use versions::{Removed, Remover};
pub use wanted::Wanted;

/// Attributes of heads. Source: src/rgw/rgw_common.h.
pub(crate) mod attr {
    pub const ID_TAG: &[u8] = b"user.rgw.idtag";
    pub const TAIL_TAG: &[u8] = b"user.rgw.tail_tag";
    pub const MANIFEST: &[u8] = b"user.rgw.manifest";
    pub const ETAG: &[u8] = b"user.rgw.etag";
    pub const CONTENT_TYPE: &[u8] = b"user.rgw.content_type";
    pub const PG_VERSION: &[u8] = b"user.rgw.pg_ver";
    pub const SOURCE_ZONE: &[u8] = b"user.rgw.source_zone";
    pub const COMPRESSION: &[u8] = b"user.rgw.compression";
    /// Source: RGW_ATTR_CKSUM in src/rgw/rgw_common.h of 20.
    pub const CKSUM: &[u8] = b"user.rgw.cksum";
    pub const STORAGE_CLASS: &[u8] = b"user.rgw.storage_class";
    /// In front of what stays of a head when the object is removed.
    pub const OLH: &[u8] = b"user.rgw.olh.";
    /// What may change of an object while its data stays.
    pub const CHANGEABLE: [&[u8]; 4] = [b"user.rgw.acl", b"user.rgw.x-amz-tagging", RETENTION, LEGAL_HOLD];
    pub const RETENTION: &[u8] = b"user.rgw.object-retention";
    pub const LEGAL_HOLD: &[u8] = b"user.rgw.object-legal-hold";
}

/// How often a change is tried to an object whose attributes others change at the same time.
const TRIES: u32 = 15;

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
        let object = Object { bucket: bucket.bucket.clone(), key: key.clone() };
        if is_upload(key) {
            let pool = self.placement(&bucket.placement)?.data_extra().ok_or(Error::NoSuchPlacement)?;
            return Ok(object.raw(pool.clone()));
        }
        self.raw(&object, &bucket.placement)
    }
}

/// Uploads in parts have objects in a pool of their own, which can have an omap.
fn is_upload(key: &Key) -> bool {
    key.namespace == upload::NAMESPACE && key.name.ends_with(upload::META)
}

/// What listings show of an object, as its attributes tell it; its size is not among them.
fn listed_meta(attrs: &Attrs, now: RealTime) -> Meta {
    let given = |name: &[u8]| attrs.get(name).map(text).unwrap_or_default();
    let acl = attrs.get(ATTR_ACL).and_then(|raw| AccessControl::from_bytes(raw.clone()).ok());
    let owner = acl.map(|acl| acl.owner).unwrap_or_default();
    Meta {
        mtime: now,
        etag: given(attr::ETAG),
        content_type: given(attr::CONTENT_TYPE),
        owner: owner.id.to_text(),
        owner_name: owner.display_name,
        ..Meta::default()
    }
}

/// Names that can be stored.
fn named(key: &Key) -> Result<(), Error> {
    if key.name.is_empty() { Err(Error::InvalidArgument) } else { Ok(()) }
}

/// The same in a bucket that keeps no versions.
fn writable(bucket: &BucketInfo, key: &Key) -> Result<(), Error> {
    named(key)?;
    if versions::is_versioned(bucket) { Err(Error::Versioned) } else { Ok(()) }
}

/// A text in an attribute, which may end with a zero.
pub(crate) fn text(value: &Bytes) -> Bytes {
    let end = value.iter().position(|b| *b == 0).unwrap_or(value.len());
    value.slice(..end)
}
