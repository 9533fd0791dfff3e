//! Users, buckets and objects of object storage, kept in RADOS exactly as Ceph's radosgw 16.2 keeps them:
//! both can run side by side on one set of pools.
//!
//! Texts are bytes here, as in Ceph: names of objects come from clients, and nothing in RADOS says that they
//! are UTF-8. Every structure is read from bytes that others may have written, and written as 16.2 writes it.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic))]

// Names of users, pools, buckets and objects, and the places where their data lies.
mod kept;
mod names;
mod placement;

// Users.
mod quota;
mod role;
mod usage;
mod user;
mod user_bucket;

// Rights.
mod acl;
pub mod policy;

// Buckets.
mod bucket;
mod bucket_encryption;
mod bucket_logging;
mod cksum;
mod cors;
mod layout;
mod lifecycle;
mod object_lock;
mod ownership;
mod public_access;
mod topic;
mod website;

// What a bucket holds.
pub mod index;
mod reshard;

// Objects.
pub mod crypt;
mod garbage;
pub mod iso_8601;
mod manifest;
mod object;

// The zone that all of them are in.
mod period;
mod zone;
mod zonegroup;

// What gateways tell each other, and other zones.
mod logs;
mod notice;

pub use acl::{AccessControl, AccessList, Grant, Grantee, Owner, Permissions, Referer};
pub use bucket::{BucketInfo, EntryPoint, Versioning};
pub use bucket_encryption::{BucketEncryption, EncryptionRule};
pub use bucket_logging::{BucketLogging, LogKeys, LogKind};
pub use cksum::{Cksum, CksumKind};
pub use cors::{Cors, CorsRule};
pub use crypt::{Cipher, Encryption};
pub use garbage::{Chain, Garbage, GarbageObject};
pub use kept::Kept;
pub use layout::{HashType, IndexGeneration, IndexType, Layout, LogGeneration};
pub use lifecycle::{Expiration, Filter, Lifecycle, LifecycleEntry, LifecycleHead, Rule, Transition};
pub use logs::{DataChange, DataLogGeneration, DataLogGenerations, MetadataChange};
pub use manifest::{Manifest, ManifestRule, Piece, Stripe, Tail};
pub use names::{Bucket, ExplicitPlacement, Key, Object, Pool, RawObject, UserId};
pub use notice::{Notice, NoticeOp, Noticed, ObjectVersion};
pub use object::{CompressedBlock, Compression, OlhInfo, OlhPending, PartInfo, Tags, UploadInfo};
pub use object_lock::{DefaultRetention, LegalHold, ObjectLock, Retention};
pub use ownership::Ownership;
pub use period::{Period, PeriodConfig, PeriodMap, Realm};
pub use placement::PlacementRule;
pub use public_access::PublicAccessBlock;
pub use quota::Quota;
pub use reshard::ReshardEntry;
pub use role::{Role, UserPolicies};
pub use topic::{
    Destination, EventFilter, KeyFilter, Notification, Notifications, SubscribedTopic, Topic, Topics,
    ValueFilter,
};
pub use usage::{Usage, UsageEntry};
pub use user::{AccessKey, Subuser, UserInfo, UserKind, UserPointer, UserRecord};
pub use user_bucket::{UserBucket, UserBucketEntry};
pub use website::{Redirect, RoutingRule, Website};
pub use zone::{DefaultId, NameToId, PlacementPools, StorageClass, Zone};
pub use zonegroup::{PlacementTarget, ZoneEntry, ZoneGroup};

#[cfg(any(test, feature = "hostile"))]
pub mod hostile;

#[cfg(test)]
mod golden;
