//! Every structure by the kind of place that it was found in, for golden bytes and for fuzz targets.

use bytes::Bytes;
use codec::{Decode, DecodeError, Encode};

use crate::*;

/// Reads a structure and writes it again.
pub type Again = fn(&Bytes) -> Result<Bytes, DecodeError>;

fn again<T: Decode + Encode>(bytes: &Bytes) -> Result<Bytes, DecodeError> {
    T::from_bytes(bytes.clone()).map(|value| value.to_bytes())
}

/// Kinds of places, and what reads what is there: attributes of objects, data of system objects, values and
/// headers of omaps, entries of queues, and what gateways send each other.
pub const KINDS: &[(&str, Again)] = &[
    ("user", again::<UserRecord>),
    ("uid", again::<UserPointer>),
    ("entry_point", again::<EntryPoint>),
    ("bucket_instance", again::<BucketInfo>),
    ("upload", again::<UploadInfo>),
    ("part", again::<PartInfo>),
    ("notice", again::<Notice>),
    ("zone_info", again::<Zone>),
    ("zonegroup_info", again::<ZoneGroup>),
    ("names", again::<NameToId>),
    ("default", again::<DefaultId>),
    ("realms", again::<Realm>),
    ("periods", again::<Period>),
    ("period_config", again::<PeriodConfig>),
    ("attr:acl", again::<AccessControl>),
    ("attr:manifest", again::<Manifest>),
    ("attr:x-amz-tagging", again::<Tags>),
    ("attr:lc", again::<Lifecycle>),
    ("attr:olh.info", again::<OlhInfo>),
    ("attr:object-retention", again::<Retention>),
    ("attr:object-legal-hold", again::<LegalHold>),
    ("attr:compression", again::<Compression>),
    ("attr:ceph.objclass.version", again::<ObjectVersion>),
    ("cls_user_bucket_entry", again::<UserBucketEntry>),
    ("index_header", again::<index::Header>),
    ("index_entry", again::<index::Entry>),
    ("index_head", again::<index::Head>),
    ("index_log", again::<index::LogEntry>),
    ("gc", again::<Garbage>),
    ("usage", again::<UsageEntry>),
    ("lc", again::<LifecycleEntry>),
    ("lc_head", again::<LifecycleHead>),
    ("reshard", again::<ReshardEntry>),
    ("role", again::<Role>),
    ("attr:user-policy", again::<UserPolicies>),
    ("topics", again::<Topics>),
    ("bucket_topics", again::<Notifications>),
    ("attr:cors", again::<Cors>),
    ("attr:public-access", again::<PublicAccessBlock>),
    ("data_change", again::<DataChange>),
    ("log_generations", again::<DataLogGenerations>),
    ("metadata_change", again::<MetadataChange>),
];
