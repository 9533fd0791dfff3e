//! The step from one epoch of the OSD map to the next.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use types::{AddrVec, EntityAddr, Epoch, Fsid, PgId, PoolId, Utime};

use crate::osdmap::Profile;
use crate::{OsdXInfo, Pool, Release, SnapIntervals, StretchMode};

/// What changes from epoch `epoch - 1` to `epoch`.
///
/// Source: OSDMap::Incremental in src/osd/OSDMap.h.
#[derive(Debug, Clone, PartialEq)]
pub struct Incremental {
    pub fsid: Fsid,
    pub epoch: Epoch,
    pub modified: Utime,
    /// -1 for no change.
    pub new_pool_max: i64,
    /// -1 for no change, as in [`Incremental::new_max_osd`].
    pub new_flags: i32,
    /// A whole encoded map that replaces everything; empty as a rule.
    pub fullmap: Bytes,
    /// A whole encoded CRUSH map; empty for no change.
    pub crush: Bytes,
    pub new_max_osd: i32,
    pub new_pools: BTreeMap<PoolId, Pool>,
    pub new_pool_names: BTreeMap<PoolId, String>,
    pub old_pools: BTreeSet<PoolId>,
    /// OSDs that come up, with where clients reach them; the three lists of addresses below belong to it.
    pub new_up_client: BTreeMap<i32, AddrVec>,
    pub new_up_cluster: BTreeMap<i32, AddrVec>,
    pub new_hb_back_up: BTreeMap<i32, AddrVec>,
    pub new_hb_front_up: BTreeMap<i32, AddrVec>,
    /// State bits to flip; 0 stands for "flip up".
    pub new_state: BTreeMap<i32, u32>,
    pub new_weight: BTreeMap<i32, u32>,
    /// An empty list removes the entry.
    pub new_pg_temp: BTreeMap<PgId, Vec<i32>>,
    /// -1 removes the entry.
    pub new_primary_temp: BTreeMap<PgId, i32>,
    pub new_primary_affinity: BTreeMap<i32, u32>,
    pub new_erasure_code_profiles: BTreeMap<String, Profile>,
    pub old_erasure_code_profiles: Vec<String>,
    pub new_pg_upmap: BTreeMap<PgId, Vec<i32>>,
    pub old_pg_upmap: BTreeSet<PgId>,
    pub new_pg_upmap_items: BTreeMap<PgId, Vec<(i32, i32)>>,
    pub old_pg_upmap_items: BTreeSet<PgId>,
    pub new_removed_snaps: BTreeMap<PoolId, SnapIntervals>,
    pub new_purged_snaps: BTreeMap<PoolId, SnapIntervals>,
    /// Zero for no change, as in [`Incremental::new_last_in_change`].
    pub new_last_up_change: Utime,
    pub new_last_in_change: Utime,
    pub new_up_thru: BTreeMap<i32, Epoch>,
    pub new_last_clean_interval: BTreeMap<i32, (Epoch, Epoch)>,
    pub new_lost: BTreeMap<i32, Epoch>,
    pub new_blocklist: BTreeMap<EntityAddr, Utime>,
    pub old_blocklist: Vec<EntityAddr>,
    pub new_range_blocklist: BTreeMap<EntityAddr, Utime>,
    pub old_range_blocklist: Vec<EntityAddr>,
    pub cluster_snapshot: String,
    pub new_uuid: BTreeMap<i32, Fsid>,
    pub new_xinfo: BTreeMap<i32, OsdXInfo>,
    /// Below 0 for no change, as in the next two.
    pub new_nearfull_ratio: f32,
    pub new_full_ratio: f32,
    pub new_backfillfull_ratio: f32,
    /// [`Release::UNSET`] for no change.
    pub new_require_min_compat_client: Release,
    pub new_require_osd_release: Release,
    /// 0 removes the entry.
    pub new_crush_node_flags: BTreeMap<i32, u32>,
    pub new_device_class_flags: BTreeMap<i32, u32>,
    /// `None` for no change.
    pub stretch: Option<StretchMode>,
    /// Feature bits that whoever made this wrote it for; the map that follows is written for the same.
    pub encode_features: u64,
    /// crc32c of the map that results; [`crate::OsdMap::encode_with_crc`] gives it.
    pub full_crc: u32,
}

/// Why an increment does not fit a map.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ApplyError {
    #[error("increment of cluster {theirs}, the map is of cluster {ours}")]
    OtherCluster { ours: Fsid, theirs: Fsid },
    #[error("increment to epoch {theirs}, the map is at epoch {ours}")]
    WrongEpoch { ours: Epoch, theirs: Epoch },
    #[error("increment changes osd.{osd}, the map has {max_osd} OSDs")]
    NoSuchOsd { osd: i32, max_osd: i32 },
    #[error("increment brings osd.{osd} up without heartbeat addresses")]
    NoHeartbeatAddrs { osd: i32 },
    #[error("increment purges snapshots of pool {pool}, which has none queued")]
    NothingToPurge { pool: PoolId },
    #[error("max_osd {max_osd} is above the bound")]
    TooManyOsds { max_osd: i32 },
    #[error("crc of the resulting map is {actual:#x}, the increment says {expected:#x}")]
    Crc { actual: u32, expected: u32 },
    #[error("inner map: {0}")]
    Decode(#[from] codec::DecodeError),
    #[error("the increment does not lead to the map that was meant: {0}")]
    Astray(String),
}

impl Incremental {
    /// An increment that changes nothing but the epoch.
    pub fn new(fsid: Fsid, epoch: Epoch, modified: Utime) -> Self {
        Self {
            fsid,
            epoch,
            modified,
            new_pool_max: -1,
            new_flags: -1,
            fullmap: Bytes::new(),
            crush: Bytes::new(),
            new_max_osd: -1,
            new_pools: BTreeMap::new(),
            new_pool_names: BTreeMap::new(),
            old_pools: BTreeSet::new(),
            new_up_client: BTreeMap::new(),
            new_up_cluster: BTreeMap::new(),
            new_hb_back_up: BTreeMap::new(),
            new_hb_front_up: BTreeMap::new(),
            new_state: BTreeMap::new(),
            new_weight: BTreeMap::new(),
            new_pg_temp: BTreeMap::new(),
            new_primary_temp: BTreeMap::new(),
            new_primary_affinity: BTreeMap::new(),
            new_erasure_code_profiles: BTreeMap::new(),
            old_erasure_code_profiles: Vec::new(),
            new_pg_upmap: BTreeMap::new(),
            old_pg_upmap: BTreeSet::new(),
            new_pg_upmap_items: BTreeMap::new(),
            old_pg_upmap_items: BTreeSet::new(),
            new_removed_snaps: BTreeMap::new(),
            new_purged_snaps: BTreeMap::new(),
            new_last_up_change: Utime::ZERO,
            new_last_in_change: Utime::ZERO,
            new_up_thru: BTreeMap::new(),
            new_last_clean_interval: BTreeMap::new(),
            new_lost: BTreeMap::new(),
            new_blocklist: BTreeMap::new(),
            old_blocklist: Vec::new(),
            new_range_blocklist: BTreeMap::new(),
            old_range_blocklist: Vec::new(),
            cluster_snapshot: String::new(),
            new_uuid: BTreeMap::new(),
            new_xinfo: BTreeMap::new(),
            new_nearfull_ratio: -1.0,
            new_full_ratio: -1.0,
            new_backfillfull_ratio: -1.0,
            new_require_min_compat_client: Release::UNSET,
            new_require_osd_release: Release::UNSET,
            new_crush_node_flags: BTreeMap::new(),
            new_device_class_flags: BTreeMap::new(),
            stretch: None,
            encode_features: crate::ENCODE_FEATURES,
            full_crc: 0,
        }
    }
}
