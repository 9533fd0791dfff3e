//! The cluster maps that monitors hand out: wire forms, increments, placement of PGs, dumps as text and JSON.
//!
//! Wire forms are those of Ceph 16.2 for peers with all features, byte for byte.
//! Source: src/osd/OSDMap.cc, src/osd/osd_types.cc, src/mon/MonMap.cc, src/mon/MgrMap.h, src/mds/FSMap.cc,
//! src/mds/MDSMap.cc, src/mgr/ServiceMap.cc.
#![forbid(unsafe_code)]
#![deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic)]

pub mod flags;

mod addrs;
mod json;
mod release;
mod timespan;

mod placements;
mod pool;
mod pool_dump;
mod pool_opts;
mod pool_wire;

mod apply;
mod balance;
mod builders;
mod compat;
mod incremental;
mod incremental_wire;
mod mapping;
mod osd;
mod osdmap;
mod osdmap_dump;
mod osdmap_print;
mod osdmap_wire;
mod upmap;

mod fsmap;
mod fsmap_dump;
mod fsmap_wire;
mod mdsmap;
mod mdsmap_dump;
mod mdsmap_wire;

mod mgrmap;
mod monmap;
mod servicemap;

pub use addrs::{addr_json, addrvec_json};
pub use balance::{BalanceGoal, Deviation, UpmapItems};
pub use builders::OsdAddrs;
pub use fsmap::{Filesystem, FsMap, MirrorInfo, MirrorPeer};
pub use fsmap_wire::FsMapUser;
pub use incremental::{ApplyError, Incremental};
pub use mapping::{NO_OSD, PgMapper, PgMapping};
pub use mdsmap::{CLIENT_FEATURES, FsId, MdsGid, MdsInfo, MdsMap, MdsState, NO_FS, NO_RANK, Rank, mds_flags};
pub use mdsmap_dump::{compat_json, list_text};
pub use mgrmap::{MgrClient, MgrMap, ModuleInfo, ModuleOption, Standby};
pub use monmap::{MonInfo, MonMap, mon_features};
pub use osd::{LaggyProbability, Osd, OsdInfo, OsdXInfo};
pub use osdmap::{MAX_OSDS, OsdCounts, OsdMap, Profile, StretchMode};
pub use placements::Placements;
pub use pool::{
    AutoscaleMode, CACHE_MODES, HitSetParams, PeeringCrush, PgMergeMeta, Pool, PoolSnap, PoolType, pg_mask,
    pool_flags, stable_mod,
};
pub use pool_opts::{OptType, OptValue, POOL_OPTS, PoolOpts};
pub use pool_wire::MAX_PG_NUM;
pub use release::Release;
pub use servicemap::{Service, ServiceDaemon, ServiceMap};
pub use timespan::timespan_text;
pub use types::SnapIntervals;
pub use upmap::RuleShape;

/// The feature bits that shape Pacific's maps: what an increment's `encode_features` holds.
/// Source: OSDMap::SIGNIFICANT_FEATURES in src/osd/OSDMap.h.
pub const ENCODE_FEATURES: u64 = 0x0f00_0880_1021_2a04;
