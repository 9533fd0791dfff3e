//! The map of one file system's metadata servers: which ranks there are, who holds them, and how it is set.
//!
//! Invariants (checked by `FsMap::check`):
//! 1. A rank that is up is in, and its daemon is in `info` with that rank.
//! 2. A daemon in `info` that does not follow another one holds the rank that it names.
//! 3. A rank that is up is neither failed nor damaged.
//!
//! Source: src/mds/MDSMap.h, src/mds/MDSMap.cc.

use std::collections::{BTreeMap, BTreeSet};

use types::{AddrVec, CompatSet, Epoch, FeatureBits, Utime};

/// A daemon's global id.
pub type MdsGid = u64;
/// A file system's number; -1 for none.
pub type FsId = i32;
/// A place among the metadata servers of a file system; -1 for none.
pub type Rank = i32;

pub const NO_FS: FsId = -1;
pub const NO_RANK: Rank = -1;

/// What a daemon, or the holder of a rank, is doing. Source: CEPH_MDS_STATE_* in src/include/ceph_fs.h.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct MdsState(pub i32);

impl MdsState {
    pub const DNE: Self = Self(0);
    pub const STOPPED: Self = Self(-1);
    pub const BOOT: Self = Self(-4);
    pub const STANDBY: Self = Self(-5);
    pub const CREATING: Self = Self(-6);
    pub const STARTING: Self = Self(-7);
    pub const STANDBY_REPLAY: Self = Self(-8);
    pub const REPLAY_ONCE: Self = Self(-9);
    pub const NULL: Self = Self(-10);
    pub const REPLAY: Self = Self(8);
    pub const RESOLVE: Self = Self(9);
    pub const RECONNECT: Self = Self(10);
    pub const REJOIN: Self = Self(11);
    pub const CLIENT_REPLAY: Self = Self(12);
    pub const ACTIVE: Self = Self(13);
    pub const STOPPING: Self = Self(14);
    pub const DAMAGED: Self = Self(15);

    /// Source: ceph_mds_state_name in src/common/ceph_strings.cc.
    pub fn name(self) -> &'static str {
        match self {
            Self::DNE => "down:dne",
            Self::STOPPED => "down:stopped",
            Self::DAMAGED => "down:damaged",
            Self::BOOT => "up:boot",
            Self::STANDBY => "up:standby",
            Self::STANDBY_REPLAY => "up:standby-replay",
            Self::REPLAY_ONCE => "up:oneshot-replay",
            Self::CREATING => "up:creating",
            Self::STARTING => "up:starting",
            Self::REPLAY => "up:replay",
            Self::RESOLVE => "up:resolve",
            Self::RECONNECT => "up:reconnect",
            Self::REJOIN => "up:rejoin",
            Self::CLIENT_REPLAY => "up:clientreplay",
            Self::ACTIVE => "up:active",
            Self::STOPPING => "up:stopping",
            Self::NULL => "null",
            _ => "???",
        }
    }

    /// Whether a holder of a rank may go from here to `next` by itself.
    ///
    /// Source: MDSMap::state_transition_valid.
    pub fn may_become(self, next: Self) -> bool {
        match self {
            _ if next == self => true,
            Self::REPLAY => matches!(next, Self::RESOLVE | Self::RECONNECT),
            Self::REJOIN => matches!(next, Self::ACTIVE | Self::CLIENT_REPLAY | Self::STOPPED),
            Self::RESOLVE | Self::RECONNECT | Self::CLIENT_REPLAY => next.0 == self.0 + 1,
            _ => true,
        }
    }
}

/// A metadata server. Source: MDSMap::mds_info_t.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MdsInfo {
    pub gid: MdsGid,
    pub name: String,
    pub rank: Rank,
    /// The map's epoch in which it got its rank.
    pub inc: i32,
    pub state: MdsState,
    pub state_seq: u64,
    pub addrs: AddrVec,
    /// Since when its beacons are missing; zero while they come.
    pub laggy_since: Utime,
    /// Ranks to which it gives subtrees.
    pub export_targets: BTreeSet<Rank>,
    pub features: u64,
    /// The file system that it would rather serve.
    pub join_fscid: FsId,
    pub flags: u64,
    pub compat: CompatSet,
}

impl MdsInfo {
    /// The monitors leave it where it is until somebody tells them to fail it.
    pub const FROZEN: u64 = 1;

    pub fn is_laggy(&self) -> bool {
        !self.laggy_since.is_zero()
    }

    pub fn is_frozen(&self) -> bool {
        self.flags & Self::FROZEN != 0
    }

    /// On its way from a predecessor's journal to serving.
    pub fn is_degraded(&self) -> bool {
        (MdsState::REPLAY..=MdsState::CLIENT_REPLAY).contains(&self.state)
    }

    pub fn follows(&self) -> bool {
        self.state == MdsState::STANDBY_REPLAY
    }

    /// `daemon mds.a`.
    pub fn human_name(&self) -> String {
        format!("daemon mds.{}", self.name)
    }
}

impl Default for MdsInfo {
    fn default() -> Self {
        Self {
            gid: 0,
            name: String::new(),
            rank: NO_RANK,
            inc: 0,
            state: MdsState::STANDBY,
            state_seq: 0,
            addrs: AddrVec::default(),
            laggy_since: Utime::ZERO,
            export_targets: BTreeSet::new(),
            features: 0,
            join_fscid: NO_FS,
            flags: 0,
            compat: CompatSet::default(),
        }
    }
}

/// Features of clients, by number. Source: cephfs_features.cc.
pub const CLIENT_FEATURES: [&str; 19] = [
    "reserved",
    "reserved",
    "reserved",
    "reserved",
    "reserved",
    "jewel",
    "kraken",
    "luminous",
    "mimic",
    "reply_encoding",
    "reclaim_client",
    "lazy_caps_wanted",
    "multi_reconnect",
    "deleg_ino",
    "metric_collect",
    "alternate_name",
    "notify_session_state",
    "op_getvxattr",
    "32bits_retry_fwd",
];

/// Flags of a file system. Source: CEPH_MDSMAP_* in src/include/ceph_fs.h.
pub mod mds_flags {
    /// Daemons may not take its ranks.
    pub const NOT_JOINABLE: u32 = 1;
    pub const ALLOW_SNAPS: u32 = 1 << 1;
    pub const ALLOW_MULTIMDS_SNAPS: u32 = 1 << 4;
    pub const ALLOW_STANDBY_REPLAY: u32 = 1 << 5;
    pub const DEFAULT: u32 = ALLOW_SNAPS | ALLOW_MULTIMDS_SNAPS;
}

/// The map of one file system's metadata servers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MdsMap {
    pub epoch: Epoch,
    pub fs_name: String,
    pub enabled: bool,
    /// `mds_flags`.
    pub flags: u32,
    pub last_failure: Epoch,
    /// Whoever replays a rank's journal waits for this OSD map: it blocks the rank's last holder.
    pub last_failure_osd_epoch: Epoch,
    pub created: Utime,
    pub modified: Utime,
    pub tableserver: Rank,
    pub root: Rank,
    pub session_timeout: u32,
    pub session_autoclose: u32,
    pub max_file_size: u64,
    pub required_client_features: FeatureBits,
    /// The first is the default.
    pub data_pools: Vec<i64>,
    pub cas_pool: i64,
    pub metadata_pool: i64,
    pub max_mds: i32,
    /// What `max_mds` becomes when the file system is no longer marked down.
    pub old_max_mds: i32,
    /// -1 until it is set by hand, or because there was a standby.
    pub standby_count_wanted: i32,
    /// The object with the balancer's program.
    pub balancer: String,
    /// The ranks that there are.
    pub r#in: BTreeSet<Rank>,
    pub up: BTreeMap<Rank, MdsGid>,
    pub failed: BTreeSet<Rank>,
    pub damaged: BTreeSet<Rank>,
    /// Ranks that were there once.
    pub stopped: BTreeSet<Rank>,
    pub info: BTreeMap<MdsGid, MdsInfo>,
    pub ever_allowed_features: u8,
    pub explicitly_allowed_features: u8,
    pub inline_data: bool,
    pub compat: CompatSet,
}

impl Default for MdsMap {
    fn default() -> Self {
        Self {
            epoch: Epoch(0),
            fs_name: String::new(),
            enabled: false,
            flags: mds_flags::DEFAULT,
            last_failure: Epoch(0),
            last_failure_osd_epoch: Epoch(0),
            created: Utime::ZERO,
            modified: Utime::ZERO,
            tableserver: 0,
            root: 0,
            session_timeout: 60,
            session_autoclose: 300,
            max_file_size: 1 << 40,
            required_client_features: FeatureBits::default(),
            data_pools: Vec::new(),
            cas_pool: -1,
            metadata_pool: -1,
            max_mds: 1,
            old_max_mds: 0,
            standby_count_wanted: -1,
            balancer: String::new(),
            r#in: BTreeSet::new(),
            up: BTreeMap::new(),
            failed: BTreeSet::new(),
            damaged: BTreeSet::new(),
            stopped: BTreeSet::new(),
            info: BTreeMap::new(),
            ever_allowed_features: 0,
            explicitly_allowed_features: 0,
            inline_data: false,
            compat: CompatSet::default(),
        }
    }
}

impl MdsMap {
    pub fn has_flag(&self, flag: u32) -> bool {
        self.flags & flag != 0
    }

    /// Sets a flag that says what is allowed, and remembers that it was.
    pub fn allow(&mut self, flag: u32) {
        self.flags |= flag;
        let bit = u8::try_from(flag).unwrap_or(0);
        self.ever_allowed_features |= bit;
        self.explicitly_allowed_features |= bit;
    }

    pub fn was_ever_allowed(&self, flag: u32) -> bool {
        u32::from(self.ever_allowed_features) & flag != 0
    }

    pub fn uses_pool(&self, pool: i64) -> bool {
        self.metadata_pool == pool || self.data_pools.contains(&pool)
    }

    /// The holder of a rank.
    pub fn holder(&self, rank: Rank) -> Option<&MdsInfo> {
        self.info.get(self.up.get(&rank)?)
    }

    /// Whoever follows the journal of a rank's holder.
    pub fn follower(&self, rank: Rank) -> Option<&MdsInfo> {
        self.info.values().find(|i| i.rank == rank && i.follows())
    }

    pub fn count_of(&self, state: MdsState) -> usize {
        self.info.values().filter(|i| i.state == state).count()
    }

    pub fn is_degraded(&self) -> bool {
        !self.failed.is_empty() || !self.damaged.is_empty() || self.info.values().any(MdsInfo::is_degraded)
    }

    /// Whether ranks may be added or taken away now.
    pub fn is_resizeable(&self) -> bool {
        let changing = [MdsState::CREATING, MdsState::STARTING, MdsState::STOPPING];
        !self.is_degraded() && changing.into_iter().all(|s| self.count_of(s) == 0)
    }

    /// Whether somebody may begin to follow the journal of this rank.
    pub fn is_followable(&self, rank: Rank) -> bool {
        self.holder(rank).is_some_and(|i| !i.is_degraded()) && self.follower(rank).is_none()
    }

    /// Standbys that are missing, when so many daemons have no rank.
    pub fn standbys_missing(&self, standbys: usize) -> usize {
        let wanted = usize::try_from(self.standby_count_wanted).unwrap_or(0);
        wanted.saturating_sub(standbys + self.count_of(MdsState::STANDBY_REPLAY))
    }
}
