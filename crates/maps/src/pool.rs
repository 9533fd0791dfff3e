//! A pool's settings: size, PG counts, rule, snapshots, quotas, tiers, options, applications.

use std::collections::{BTreeMap, BTreeSet};

use types::{Epoch, Eversion, PgId, PoolId, SnapContext, SnapId, Utime};

use crate::{PoolOpts, SnapIntervals};

/// How a pool keeps its data. Source: pg_pool_t::TYPE_* in src/osd/osd_types.h.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[repr(u8)]
pub enum PoolType {
    #[default]
    Replicated = 1,
    Erasure = 3,
}

impl PoolType {
    pub fn from_u8(v: u8) -> Option<Self> {
        match v {
            1 => Some(Self::Replicated),
            3 => Some(Self::Erasure),
            _ => None,
        }
    }
    pub fn name(self) -> &'static str {
        match self {
            Self::Replicated => "replicated",
            Self::Erasure => "erasure",
        }
    }
}

/// Bits of [`Pool::flags`]. Source: pg_pool_t::FLAG_* in src/osd/osd_types.h.
pub mod pool_flags {
    /// Hashes pool id and PG seed together; always set on new pools.
    pub const HASHPSPOOL: u64 = 1 << 0;
    pub const FULL: u64 = 1 << 1;
    pub const EC_OVERWRITES: u64 = 1 << 2;
    pub const INCOMPLETE_CLONES: u64 = 1 << 3;
    pub const NODELETE: u64 = 1 << 4;
    pub const NOPGCHANGE: u64 = 1 << 5;
    pub const NOSIZECHANGE: u64 = 1 << 6;
    pub const WRITE_FADVISE_DONTNEED: u64 = 1 << 7;
    pub const NOSCRUB: u64 = 1 << 8;
    pub const NODEEP_SCRUB: u64 = 1 << 9;
    pub const FULL_QUOTA: u64 = 1 << 10;
    pub const NEARFULL: u64 = 1 << 11;
    pub const BACKFILLFULL: u64 = 1 << 12;
    pub const SELFMANAGED_SNAPS: u64 = 1 << 13;
    pub const POOL_SNAPS: u64 = 1 << 14;
    /// The first PGs are still being made.
    pub const CREATING: u64 = 1 << 15;
    pub const EIO: u64 = 1 << 16;
    /// Starts with as many PGs as a large pool.
    pub const BULK: u64 = 1 << 17;

    /// Names by bit number.
    pub const NAMES: [&str; 18] = [
        "hashpspool",
        "full",
        "ec_overwrites",
        "incomplete_clones",
        "nodelete",
        "nopgchange",
        "nosizechange",
        "write_fadvise_dontneed",
        "noscrub",
        "nodeep-scrub",
        "full_quota",
        "nearfull",
        "backfillfull",
        "selfmanaged_snaps",
        "pool_snaps",
        "creating",
        "eio",
        "bulk",
    ];

    /// Names of the set bits, comma separated; unknown bits are `???`.
    pub fn to_text(flags: u64) -> String {
        let names = (0..64).filter(|bit| flags & (1 << bit) != 0);
        let texts: Vec<&str> = names.map(|bit| NAMES.get(bit).copied().unwrap_or("???")).collect();
        texts.join(",")
    }

    /// The bit called `name`.
    pub fn by_name(name: &str) -> Option<u64> {
        NAMES.iter().position(|n| *n == name).map(|bit| 1 << bit)
    }
}

/// Whether the PG count follows the data. Unknown bytes are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct AutoscaleMode(pub u8);

impl AutoscaleMode {
    pub const OFF: Self = Self(0);
    pub const WARN: Self = Self(1);
    pub const ON: Self = Self(2);
    pub const UNKNOWN: Self = Self(0xff);

    pub fn name(self) -> &'static str {
        match self {
            Self::OFF => "off",
            Self::WARN => "warn",
            Self::ON => "on",
            _ => "???",
        }
    }
    pub fn from_name(name: &str) -> Option<Self> {
        [Self::OFF, Self::WARN, Self::ON].into_iter().find(|m| m.name() == name)
    }
}
impl Default for AutoscaleMode {
    fn default() -> Self {
        Self::UNKNOWN
    }
}

/// Names of the cache tier modes by number. Source: pg_pool_t::get_cache_mode_name.
pub const CACHE_MODES: [&str; 7] =
    ["none", "writeback", "forward", "readonly", "readforward", "readproxy", "proxy"];

/// What records recent use of a cache tier's objects. Source: HitSet::Params in src/osd/HitSet.h.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum HitSetParams {
    #[default]
    None,
    ExplicitHash,
    ExplicitObject,
    Bloom {
        /// False positive probability in millionths.
        fpp_micro: u32,
        target_size: u64,
        seed: u64,
    },
}

/// A snapshot of a whole pool. Source: pool_snap_info_t.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolSnap {
    pub snapid: SnapId,
    pub stamp: Utime,
    pub name: String,
}

/// The most recent merge of two PGs. Source: pg_merge_meta_t.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PgMergeMeta {
    pub source_pgid: PgId,
    pub ready_epoch: Epoch,
    pub last_epoch_started: Epoch,
    pub last_epoch_clean: Epoch,
    pub source_version: Eversion,
    pub target_version: Eversion,
}

/// Which failure domains must be present for a PG of a stretched pool to peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PeeringCrush {
    pub bucket_count: u32,
    pub bucket_target: u32,
    pub bucket_barrier: u32,
    pub mandatory_member: i32,
}

/// A pool. Source: pg_pool_t in src/osd/osd_types.h.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Pool {
    pub create_time: Utime,
    /// Bits of [`pool_flags`].
    pub flags: u64,
    pub kind: PoolType,
    /// Copies, or data and coding shards together.
    pub size: u8,
    /// Fewest shards with which a PG serves IO.
    pub min_size: u8,
    pub crush_rule: u8,
    /// Name hash: 2 is rjenkins, 1 linux.
    pub object_hash: u8,
    pub autoscale_mode: AutoscaleMode,
    pub pg_num: u32,
    pub pgp_num: u32,
    /// The count we are about to merge down to; `pg_num` otherwise.
    pub pg_num_pending: u32,
    pub pg_num_target: u32,
    pub pgp_num_target: u32,
    /// Obsolete; kept so that maps come back byte for byte.
    pub properties: BTreeMap<String, String>,
    pub erasure_code_profile: String,
    pub last_change: Epoch,
    pub peering_crush: Option<PeeringCrush>,
    /// Clients resend operations that they sent before this epoch.
    pub last_force_op_resend: Epoch,
    pub last_force_op_resend_prenautilus: Epoch,
    pub last_force_op_resend_preluminous: Epoch,
    pub last_pg_merge_meta: PgMergeMeta,
    /// The newest snapshot id handed out.
    pub snap_seq: u64,
    pub snap_epoch: Epoch,
    pub auid: u64,
    /// 0 is no quota.
    pub quota_max_bytes: u64,
    pub quota_max_objects: u64,
    /// Pool snapshots by id.
    pub snaps: BTreeMap<u64, PoolSnap>,
    /// Obsolete since Octopus: [`crate::OsdMap::removed_snaps_queue`] took over.
    pub removed_snaps: SnapIntervals,
    pub tiers: BTreeSet<u64>,
    /// -1 for none, as in the next two.
    pub tier_of: PoolId,
    pub read_tier: PoolId,
    pub write_tier: PoolId,
    /// Index into [`CACHE_MODES`].
    pub cache_mode: u8,
    pub target_max_bytes: u64,
    pub target_max_objects: u64,
    /// Fractions in millionths.
    pub cache_target_dirty_ratio_micro: u32,
    pub cache_target_dirty_high_ratio_micro: u32,
    pub cache_target_full_ratio_micro: u32,
    /// Seconds.
    pub cache_min_flush_age: u32,
    pub cache_min_evict_age: u32,
    pub hit_set_params: HitSetParams,
    /// Seconds.
    pub hit_set_period: u32,
    pub hit_set_count: u32,
    pub use_gmt_hitset: bool,
    pub min_read_recency_for_promote: u32,
    pub min_write_recency_for_promote: u32,
    pub hit_set_grade_decay_rate: u32,
    pub hit_set_search_last_n: u32,
    /// Bytes of data in one stripe of an erasure-coded pool.
    pub stripe_width: u32,
    pub expected_num_objects: u64,
    pub fast_read: bool,
    pub opts: PoolOpts,
    /// Key/value metadata by application (`rbd`, `rgw`, ...).
    pub application_metadata: BTreeMap<String, BTreeMap<String, String>>,
}

/// Maps a hash to one of `count` slots, so that growing `count` moves only what the new slots take.
///
/// `mask` is the next power of two above `count - 1`, less one. Source: ceph_stable_mod in src/include/rados.h.
pub fn stable_mod(hash: u32, count: u32, mask: u32) -> u32 {
    if hash & mask < count { hash & mask } else { hash & (mask >> 1) }
}

/// The mask for [`stable_mod`]. Source: pg_pool_t::calc_pg_masks.
pub fn pg_mask(count: u32) -> u32 {
    let bits = u32::BITS - count.wrapping_sub(1).leading_zeros();
    1u32.checked_shl(bits).unwrap_or(0).wrapping_sub(1)
}

impl Pool {
    /// A pool as `osd pool create` makes it before the monitor sets rule, size and counts.
    pub fn new(kind: PoolType, pg_num: u32) -> Self {
        Self {
            kind,
            flags: pool_flags::HASHPSPOOL | pool_flags::CREATING,
            object_hash: 2,
            pg_num,
            pgp_num: pg_num,
            pg_num_pending: pg_num,
            pg_num_target: pg_num,
            pgp_num_target: pg_num,
            tier_of: PoolId(-1),
            read_tier: PoolId(-1),
            write_tier: PoolId(-1),
            use_gmt_hitset: true,
            // Defaults of the settings osd_pool_default_cache_*, which every new pool gets.
            cache_target_dirty_ratio_micro: 400_000,
            cache_target_dirty_high_ratio_micro: 600_000,
            cache_target_full_ratio_micro: 800_000,
            ..Self::default()
        }
    }

    pub fn is_replicated(&self) -> bool {
        self.kind == PoolType::Replicated
    }

    pub fn is_erasure(&self) -> bool {
        self.kind == PoolType::Erasure
    }

    /// Whether holes in a PG's OSD list close up; shards of an erasure-coded PG keep their positions.
    pub fn can_shift_osds(&self) -> bool {
        self.is_replicated()
    }

    pub fn has_flag(&self, flag: u64) -> bool {
        self.flags & flag != 0
    }

    pub fn set_flag(&mut self, flag: u64) {
        self.flags |= flag;
    }

    pub fn unset_flag(&mut self, flag: u64) {
        self.flags &= !flag;
    }

    pub fn is_tier(&self) -> bool {
        self.tier_of.0 >= 0
    }

    pub fn is_stretch(&self) -> bool {
        self.peering_crush.is_some_and(|p| p.bucket_count != 0)
    }

    pub fn is_pool_snaps_mode(&self) -> bool {
        self.has_flag(pool_flags::POOL_SNAPS)
    }

    pub fn is_unmanaged_snaps_mode(&self) -> bool {
        self.has_flag(pool_flags::SELFMANAGED_SNAPS)
    }

    pub fn cache_mode_name(&self) -> &'static str {
        CACHE_MODES.get(usize::from(self.cache_mode)).copied().unwrap_or("unknown")
    }

    /// The number of places that its PGs are on the way to: those that will go move to where what takes them in is.
    pub fn pgp_num_goal(&self) -> u32 {
        self.pgp_num_target.min(self.pg_num_target).min(self.pg_num)
    }

    /// Sets the PG count, and with it the pending one.
    pub fn set_pg_num(&mut self, pg_num: u32) {
        self.pg_num = pg_num;
        self.pg_num_pending = pg_num;
    }

    /// The PG with the highest number is merged into another now, or, without a `meta`, it is not after all.
    /// Source: pg_pool_t::dec_pg_num.
    pub fn finish_merge(&mut self, source: PgId, epoch: Epoch, meta: Option<PgMergeMeta>) {
        match meta {
            Some(meta) => {
                self.set_pg_num(source.seed);
                self.last_pg_merge_meta = meta;
            }
            None => self.pg_num_pending = self.pg_num,
        }
        // Clients that do not know that this begins a new interval send again what was under way.
        self.last_force_op_resend_prenautilus = epoch;
    }

    /// Whether a PG is about to be merged into another, or to take one in. Source: pg_pool_t::is_pending_merge.
    pub fn is_pending_merge(&self, pg: PgId) -> bool {
        let mut leaving = self.pg_num_pending..self.pg_num;
        leaving.contains(&pg.seed) || leaving.any(|seed| PgId::new(pg.pool, seed).parent() == pg)
    }

    /// The id of the pool snapshot called `name`.
    pub fn snap_by_name(&self, name: &str) -> Option<SnapId> {
        self.snaps.values().find(|s| s.name == name).map(|s| s.snapid)
    }

    /// Takes a pool snapshot and returns its id. The caller has refused pools with self-managed snapshots.
    pub fn add_snap(&mut self, name: &str, stamp: Utime) -> SnapId {
        self.flags |= pool_flags::POOL_SNAPS;
        self.snap_seq = self.snap_seq.saturating_add(1);
        let snapid = SnapId(self.snap_seq);
        self.snaps.insert(snapid.0, PoolSnap { snapid, stamp, name: name.to_owned() });
        snapid
    }

    /// Drops a pool snapshot; the sequence moves on so that clients notice. False when there is none with that id.
    pub fn remove_snap(&mut self, snap: SnapId) -> bool {
        let found = self.snaps.remove(&snap.0).is_some();
        self.snap_seq = self.snap_seq.saturating_add(u64::from(found));
        found
    }

    /// Hands out an id for a snapshot that a client manages; the first one is 2, for 1 once marked the mode.
    /// The caller has refused pools with pool snapshots. Source: pg_pool_t::add_unmanaged_snap.
    pub fn add_unmanaged_snap(&mut self) -> SnapId {
        self.snap_seq = self.snap_seq.max(1).saturating_add(1);
        self.flags |= pool_flags::SELFMANAGED_SNAPS;
        SnapId(self.snap_seq)
    }

    /// Notes that a client removed one of its snapshots; the id goes to the increment's `new_removed_snaps`.
    pub fn remove_unmanaged_snap(&mut self) {
        self.snap_seq = self.snap_seq.saturating_add(1);
    }

    /// The context that writes to a pool with pool snapshots carry.
    pub fn snap_context(&self) -> SnapContext {
        SnapContext { seq: self.snap_seq, snaps: self.snaps.keys().rev().copied().collect() }
    }

    /// Importance in millionths of a hit in each hit set, the newest first. Source: pg_pool_t::calc_grade_table.
    pub fn grade_table(&self) -> Vec<u32> {
        let keep = 1.0 - f64::from(self.hit_set_grade_decay_rate) / 100.0;
        let step = |v: &mut u32| {
            *v = (f64::from(*v) * keep) as u32;
            Some(*v)
        };
        std::iter::repeat_n((), self.hit_set_count as usize).scan(1_000_000, |v, ()| step(v)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masks_cover_the_counts() {
        let got: Vec<u32> = [1, 2, 3, 4, 5, 8, 9, 12, 32, 33].map(pg_mask).to_vec();
        assert_eq!(got, [0, 1, 3, 3, 7, 7, 15, 15, 31, 63]);
    }

    #[test]
    fn growing_moves_only_into_new_slots() {
        for n in 1..200u32 {
            for h in 0..1_000u32 {
                let h = h.wrapping_mul(2_654_435_761);
                let (old, new) = (stable_mod(h, n, pg_mask(n)), stable_mod(h, n + 1, pg_mask(n + 1)));
                assert!(old < n && (new == old || new == n));
            }
        }
    }

    #[test]
    fn snapshots_count_up() {
        let mut p = Pool::new(PoolType::Replicated, 8);
        assert_eq!((p.add_snap("a", Utime::ZERO), p.add_snap("b", Utime::ZERO)), (SnapId(1), SnapId(2)));
        assert_eq!(p.snap_by_name("a"), Some(SnapId(1)));
        assert!(p.remove_snap(SnapId(1)) && !p.remove_snap(SnapId(1)));
        assert_eq!(p.snap_context(), SnapContext { seq: 3, snaps: vec![2] });
        let mut q = Pool::new(PoolType::Replicated, 8);
        assert_eq!((q.add_unmanaged_snap(), q.add_unmanaged_snap()), (SnapId(2), SnapId(3)));
    }

    #[test]
    fn flag_names() {
        assert_eq!(
            pool_flags::to_text(pool_flags::HASHPSPOOL | pool_flags::POOL_SNAPS),
            "hashpspool,pool_snaps"
        );
        assert_eq!(pool_flags::by_name("nodeep-scrub"), Some(pool_flags::NODEEP_SCRUB));
    }
}
