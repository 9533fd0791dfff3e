//! Statistics that OSDs report and monitors sum up: of objects, placement groups, stores, OSDs and pools.

use std::collections::{BTreeMap, BTreeSet};

use codec::{Decode, DecodeError, Encode, Reader, Writer, wire_plain, wire_struct};
use types::{Epoch, Eversion, PgId, SnapId, Utime};

/// Sums over objects. Source: object_stat_sum_t in src/osd/osd_types.h (version 20).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ObjectStatSum {
    pub num_bytes: i64,
    pub num_objects: i64,
    pub num_object_clones: i64,
    /// Objects times replicas.
    pub num_object_copies: i64,
    pub num_objects_missing_on_primary: i64,
    pub num_objects_degraded: i64,
    pub num_objects_unfound: i64,
    pub num_rd: i64,
    pub num_rd_kb: i64,
    pub num_wr: i64,
    pub num_wr_kb: i64,
    pub num_scrub_errors: i64,
    pub num_objects_recovered: i64,
    pub num_bytes_recovered: i64,
    pub num_keys_recovered: i64,
    pub num_shallow_scrub_errors: i64,
    pub num_deep_scrub_errors: i64,
    pub num_objects_dirty: i64,
    pub num_whiteouts: i64,
    pub num_objects_omap: i64,
    pub num_objects_hit_set_archive: i64,
    pub num_objects_misplaced: i64,
    pub num_bytes_hit_set_archive: i64,
    pub num_flush: i64,
    pub num_flush_kb: i64,
    pub num_evict: i64,
    pub num_evict_kb: i64,
    pub num_promote: i64,
    pub num_flush_mode_high: i32,
    pub num_flush_mode_low: i32,
    pub num_evict_mode_some: i32,
    pub num_evict_mode_full: i32,
    pub num_objects_pinned: i64,
    pub num_objects_missing: i64,
    pub num_legacy_snapsets: i64,
    pub num_large_omap_objects: i64,
    pub num_objects_manifest: i64,
    pub num_omap_bytes: i64,
    pub num_omap_keys: i64,
    pub num_objects_repaired: i64,
}

macro_rules! object_stat_sum {
    ($($field:ident),+ $(,)?) => {
        wire_struct!(ObjectStatSum(20, 14) { $($field),+ });

        impl ObjectStatSum {
            /// With no sum below 0 or above `most`: of a sender that may say anything.
            #[must_use]
            pub fn clamped(self, most: i64) -> Self {
                let fit = |n: i64| n.clamp(0, most.max(0));
                Self { $( $field: fit(self.$field.into()).try_into().unwrap_or_default() ),+ }
            }
        }

        impl std::ops::AddAssign for ObjectStatSum {
            fn add_assign(&mut self, o: Self) {
                $( self.$field = self.$field.wrapping_add(o.$field); )+
            }
        }
        impl std::ops::SubAssign for ObjectStatSum {
            fn sub_assign(&mut self, o: Self) {
                $( self.$field = self.$field.wrapping_sub(o.$field); )+
            }
        }
    };
}
object_stat_sum!(
    num_bytes,
    num_objects,
    num_object_clones,
    num_object_copies,
    num_objects_missing_on_primary,
    num_objects_degraded,
    num_objects_unfound,
    num_rd,
    num_rd_kb,
    num_wr,
    num_wr_kb,
    num_scrub_errors,
    num_objects_recovered,
    num_bytes_recovered,
    num_keys_recovered,
    num_shallow_scrub_errors,
    num_deep_scrub_errors,
    num_objects_dirty,
    num_whiteouts,
    num_objects_omap,
    num_objects_hit_set_archive,
    num_objects_misplaced,
    num_bytes_hit_set_archive,
    num_flush,
    num_flush_kb,
    num_evict,
    num_evict_kb,
    num_promote,
    num_flush_mode_high,
    num_flush_mode_low,
    num_evict_mode_some,
    num_evict_mode_full,
    num_objects_pinned,
    num_objects_missing,
    num_legacy_snapsets,
    num_large_omap_objects,
    num_objects_manifest,
    num_omap_bytes,
    num_omap_keys,
    num_objects_repaired,
);

/// The sum, and a map by category that is empty since long. Source: object_stat_collection_t.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ObjectStatCollection {
    pub sum: ObjectStatSum,
}

impl Encode for ObjectStatCollection {
    fn encode(&self, w: &mut Writer) {
        w.envelope(2, 2, |w| {
            self.sum.encode(w);
            w.u32(0);
        });
    }
}
impl Decode for ObjectStatCollection {
    const MIN_SIZE: usize = 6;
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.envelope("object_stat_collection_t", 2, |r, _| Ok(Self { sum: ObjectStatSum::decode(r)? }))
    }
}

/// An OSD and, in an erasure-coded PG, its shard. Source: pg_shard_t.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PgShard {
    pub osd: i32,
    /// -1 in a replicated PG.
    pub shard: i8,
}
wire_struct!(PgShard(1, 1) { osd, shard });

/// What a PG's primary reports. Source: pg_stat_t in src/osd/osd_types.cc (version 26).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PgStat {
    pub version: Eversion,
    pub reported_seq: u64,
    pub reported_epoch: Epoch,
    /// PG_STATE_* bits.
    pub state: u64,
    pub log_start: Eversion,
    pub ondisk_log_start: Eversion,
    pub created: Epoch,
    pub last_epoch_clean: Epoch,
    pub parent: PgId,
    pub parent_split_bits: u32,
    pub last_scrub: Eversion,
    pub last_scrub_stamp: Utime,
    pub stats: ObjectStatCollection,
    pub log_size: i64,
    pub ondisk_log_size: i64,
    pub up: Vec<i32>,
    pub acting: Vec<i32>,
    pub last_fresh: Utime,
    pub last_change: Utime,
    pub last_active: Utime,
    pub last_clean: Utime,
    pub last_unstale: Utime,
    pub mapping_epoch: Epoch,
    pub last_deep_scrub: Eversion,
    pub last_deep_scrub_stamp: Utime,
    pub stats_invalid: bool,
    pub last_clean_scrub_stamp: Utime,
    pub last_became_active: Utime,
    pub dirty_stats_invalid: bool,
    pub up_primary: i32,
    pub acting_primary: i32,
    pub omap_stats_invalid: bool,
    pub hitset_stats_invalid: bool,
    pub blocked_by: Vec<i32>,
    pub last_undegraded: Utime,
    pub last_fullsized: Utime,
    pub hitset_bytes_stats_invalid: bool,
    pub last_peered: Utime,
    pub last_became_peered: Utime,
    pub pin_stats_invalid: bool,
    pub snaptrimq_len: u32,
    /// First snapshot and count of each run.
    pub purged_snaps: Vec<(SnapId, u64)>,
    pub manifest_stats_invalid: bool,
    pub avail_no_missing: Vec<PgShard>,
    pub object_location_counts: BTreeMap<BTreeSet<PgShard>, i32>,
}

impl Encode for PgStat {
    fn encode(&self, w: &mut Writer) {
        w.envelope(26, 22, |w| {
            self.version.encode(w);
            w.u64(self.reported_seq);
            self.reported_epoch.encode(w);
            w.u32((self.state & u64::from(u32::MAX)) as u32);
            (self.log_start, self.ondisk_log_start).encode(w);
            (self.created, self.last_epoch_clean).encode(w);
            (self.parent, self.parent_split_bits).encode(w);
            (self.last_scrub, self.last_scrub_stamp).encode(w);
            self.stats.encode(w);
            (self.log_size, self.ondisk_log_size).encode(w);
            self.up.encode(w);
            self.acting.encode(w);
            (self.last_fresh, self.last_change).encode(w);
            (self.last_active, self.last_clean).encode(w);
            (self.last_unstale, self.mapping_epoch).encode(w);
            (self.last_deep_scrub, self.last_deep_scrub_stamp).encode(w);
            (self.stats_invalid, self.last_clean_scrub_stamp).encode(w);
            (self.last_became_active, self.dirty_stats_invalid).encode(w);
            (self.up_primary, self.acting_primary).encode(w);
            (self.omap_stats_invalid, self.hitset_stats_invalid).encode(w);
            self.blocked_by.encode(w);
            (self.last_undegraded, self.last_fullsized).encode(w);
            self.hitset_bytes_stats_invalid.encode(w);
            (self.last_peered, self.last_became_peered).encode(w);
            (self.pin_stats_invalid, self.snaptrimq_len).encode(w);
            // The state outgrew its 32 bits.
            w.u32((self.state >> 32) as u32);
            self.purged_snaps.encode(w);
            self.manifest_stats_invalid.encode(w);
            self.avail_no_missing.encode(w);
            self.object_location_counts.encode(w);
        });
    }
}
impl Decode for PgStat {
    const MIN_SIZE: usize = 6;
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.envelope("pg_stat_t", 26, |r, env| {
            let mut s = decode_pg_stat_22(r)?;
            if env.version >= 23 {
                s.snaptrimq_len = r.u32()?;
            }
            if env.version >= 24 {
                s.state |= u64::from(r.u32()?) << 32;
                s.purged_snaps = Decode::decode(r)?;
            }
            if env.version >= 25 {
                s.manifest_stats_invalid = bool::decode(r)?;
            }
            if env.version >= 26 {
                s.avail_no_missing = Decode::decode(r)?;
                s.object_location_counts = Decode::decode(r)?;
            }
            Ok(s)
        })
    }
}

/// The fields that every accepted writer has.
fn decode_pg_stat_22(r: &mut Reader) -> Result<PgStat, DecodeError> {
    Ok(PgStat {
        version: Decode::decode(r)?,
        reported_seq: r.u64()?,
        reported_epoch: Decode::decode(r)?,
        state: r.u32()?.into(),
        log_start: Decode::decode(r)?,
        ondisk_log_start: Decode::decode(r)?,
        created: Decode::decode(r)?,
        last_epoch_clean: Decode::decode(r)?,
        parent: Decode::decode(r)?,
        parent_split_bits: r.u32()?,
        last_scrub: Decode::decode(r)?,
        last_scrub_stamp: Decode::decode(r)?,
        stats: Decode::decode(r)?,
        log_size: r.i64()?,
        ondisk_log_size: r.i64()?,
        up: Decode::decode(r)?,
        acting: Decode::decode(r)?,
        last_fresh: Decode::decode(r)?,
        last_change: Decode::decode(r)?,
        last_active: Decode::decode(r)?,
        last_clean: Decode::decode(r)?,
        last_unstale: Decode::decode(r)?,
        mapping_epoch: Decode::decode(r)?,
        last_deep_scrub: Decode::decode(r)?,
        last_deep_scrub_stamp: Decode::decode(r)?,
        stats_invalid: Decode::decode(r)?,
        last_clean_scrub_stamp: Decode::decode(r)?,
        last_became_active: Decode::decode(r)?,
        dirty_stats_invalid: Decode::decode(r)?,
        up_primary: r.i32()?,
        acting_primary: r.i32()?,
        omap_stats_invalid: Decode::decode(r)?,
        hitset_stats_invalid: Decode::decode(r)?,
        blocked_by: Decode::decode(r)?,
        last_undegraded: Decode::decode(r)?,
        last_fullsized: Decode::decode(r)?,
        hitset_bytes_stats_invalid: Decode::decode(r)?,
        last_peered: Decode::decode(r)?,
        last_became_peered: Decode::decode(r)?,
        pin_stats_invalid: Decode::decode(r)?,
        ..PgStat::default()
    })
}

/// Bytes of a store. Source: store_statfs_t in src/osd/osd_types.h.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StoreStatfs {
    pub total: u64,
    pub available: u64,
    pub internally_reserved: u64,
    pub allocated: i64,
    pub data_stored: i64,
    pub data_compressed: i64,
    pub data_compressed_allocated: i64,
    pub data_compressed_original: i64,
    pub omap_allocated: i64,
    pub internal_metadata: i64,
}
wire_struct!(StoreStatfs(1, 1) {
    total, available, internally_reserved, allocated, data_stored, data_compressed, data_compressed_allocated,
    data_compressed_original, omap_allocated, internal_metadata,
});

impl StoreStatfs {
    /// With no number of bytes below 0 or above `most`: of a sender that may say anything.
    #[must_use]
    pub fn clamped(self, most: i64) -> Self {
        let most = most.max(0);
        let fit = |n: i64| n.clamp(0, most);
        let size = |n: u64| n.min(most.unsigned_abs());
        Self {
            total: size(self.total),
            available: size(self.available),
            internally_reserved: size(self.internally_reserved),
            allocated: fit(self.allocated),
            data_stored: fit(self.data_stored),
            data_compressed: fit(self.data_compressed),
            data_compressed_allocated: fit(self.data_compressed_allocated),
            data_compressed_original: fit(self.data_compressed_original),
            omap_allocated: fit(self.omap_allocated),
            internal_metadata: fit(self.internal_metadata),
        }
    }

    /// Bytes that are not available: data, metadata, and what the store reserves for itself.
    pub fn used_raw(&self) -> u64 {
        self.total.saturating_sub(self.available)
    }

    /// Bytes in use without the store's reserve.
    pub fn used(&self) -> u64 {
        self.used_raw().saturating_sub(self.internally_reserved)
    }
}

/// Round trips to one peer on one network: averages over 1, 5 and 15 minutes, in microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PingTimes {
    pub average_us: [u32; 3],
    pub min_us: [u32; 3],
    pub max_us: [u32; 3],
    pub last_us: u32,
}

impl Encode for PingTimes {
    fn encode(&self, w: &mut Writer) {
        for v in self.average_us.iter().chain(&self.min_us).chain(&self.max_us) {
            w.u32(*v);
        }
        w.u32(self.last_us);
    }
}
impl Decode for PingTimes {
    const MIN_SIZE: usize = 40;
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        let mut three = || Ok::<_, DecodeError>([r.u32()?, r.u32()?, r.u32()?]);
        Ok(Self { average_us: three()?, min_us: three()?, max_us: three()?, last_us: r.u32()? })
    }
}

/// Round trips to one peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PeerPingTimes {
    /// Seconds since 1970.
    pub last_update_s: u32,
    pub back: PingTimes,
    pub front: PingTimes,
}
wire_plain!(PeerPingTimes { last_update_s, back, front });

/// A histogram by powers of two. Source: pow2_hist_t in src/common/histogram.h.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Pow2Hist {
    pub bins: Vec<i32>,
}
wire_struct!(Pow2Hist(1, 1) { bins });

/// Latencies of a store. Written in whole milliseconds: sessions of 16.2 do not offer the form in nanoseconds.
///
/// Source: objectstore_perf_stat_t, CEPH_FEATURE_OS_PERF_STAT_NS.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StorePerfStat {
    pub commit_latency_ns: u64,
    pub apply_latency_ns: u64,
}

const NS_PER_MS: u64 = 1_000_000;

impl Encode for StorePerfStat {
    fn encode(&self, w: &mut Writer) {
        let ms = |ns: u64| u32::try_from(ns / NS_PER_MS).unwrap_or(u32::MAX);
        w.envelope(1, 1, |w| {
            w.u32(ms(self.commit_latency_ns));
            w.u32(ms(self.apply_latency_ns));
        });
    }
}
impl Decode for StorePerfStat {
    const MIN_SIZE: usize = 6;
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.envelope("objectstore_perf_stat_t", 2, |r, env| {
            if env.version >= 2 {
                return Ok(Self { commit_latency_ns: r.u64()?, apply_latency_ns: r.u64()? });
            }
            let mut ms = || Ok::<_, DecodeError>(u64::from(r.u32()?) * NS_PER_MS);
            Ok(Self { commit_latency_ns: ms()?, apply_latency_ns: ms()? })
        })
    }
}

/// What an OSD reports of itself. Source: osd_stat_t in src/osd/osd_types.cc (version 14).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct OsdStat {
    pub statfs: StoreStatfs,
    pub snap_trim_queue_len: i32,
    pub num_snap_trimming: i32,
    pub hb_peers: Vec<i32>,
    pub op_queue_age_hist: Pow2Hist,
    pub perf: StorePerfStat,
    pub up_from: Epoch,
    pub seq: u64,
    pub num_pgs: u32,
    /// Alerts by OSD, code and text.
    pub alerts: BTreeMap<i32, BTreeMap<String, String>>,
    pub num_shards_repaired: u64,
    pub num_osds: u32,
    pub num_per_pool_osds: u32,
    pub num_per_pool_omap_osds: u32,
    pub hb_pingtime: BTreeMap<i32, PeerPingTimes>,
}

impl Encode for OsdStat {
    fn encode(&self, w: &mut Writer) {
        let s = &self.statfs;
        w.envelope(14, 2, |w| {
            // What readers before version 9 took for the store's size.
            w.u64(s.total >> 10);
            w.u64(s.used_raw() >> 10);
            w.u64(s.available >> 10);
            w.i32(self.snap_trim_queue_len);
            w.i32(self.num_snap_trimming);
            self.hb_peers.encode(w);
            // Peers without replies: gone.
            w.u32(0);
            self.op_queue_age_hist.encode(w);
            self.perf.encode(w);
            self.up_from.encode(w);
            w.u64(self.seq);
            w.u32(self.num_pgs);
            w.i64(s.allocated >> 10);
            w.i64(s.omap_allocated >> 10);
            w.i64(s.internal_metadata >> 10);
            s.encode(w);
            self.alerts.encode(w);
            w.u64(self.num_shards_repaired);
            w.u32(self.num_osds);
            w.u32(self.num_per_pool_osds);
            w.u32(self.num_per_pool_omap_osds);
            self.hb_pingtime.encode(w);
        });
    }
}

impl Decode for OsdStat {
    const MIN_SIZE: usize = 6;
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.envelope("osd_stat_t", 14, |r, env| {
            // Mimic and older had no store_statfs_t here.
            if env.version < 9 {
                return Err(DecodeError::Invalid { what: "osd_stat_t version", value: env.version.into() });
            }
            r.skip(3 * 8)?;
            let mut s = Self {
                snap_trim_queue_len: r.i32()?,
                num_snap_trimming: r.i32()?,
                hb_peers: Decode::decode(r)?,
                ..Self::default()
            };
            Vec::<i32>::decode(r)?;
            s.op_queue_age_hist = Decode::decode(r)?;
            s.perf = Decode::decode(r)?;
            s.up_from = Decode::decode(r)?;
            s.seq = r.u64()?;
            s.num_pgs = r.u32()?;
            r.skip(3 * 8)?;
            s.statfs = Decode::decode(r)?;
            if env.version >= 10 {
                s.alerts = Decode::decode(r)?;
            }
            if env.version >= 11 {
                s.num_shards_repaired = r.u64()?;
            }
            if env.version >= 12 {
                (s.num_osds, s.num_per_pool_osds) = Decode::decode(r)?;
            }
            if env.version >= 13 {
                s.num_per_pool_omap_osds = r.u32()?;
            }
            if env.version >= 14 {
                s.hb_pingtime = Decode::decode(r)?;
            }
            Ok(s)
        })
    }
}

/// Sums over a pool. Source: pool_stat_t in src/osd/osd_types.cc (version 7).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PoolStat {
    pub stats: ObjectStatCollection,
    pub log_size: i64,
    pub ondisk_log_size: i64,
    /// Replicas or shards that are up.
    pub up: i32,
    pub acting: i32,
    pub store_stats: StoreStatfs,
    /// How many OSDs' numbers are summed in `store_stats`.
    pub num_store_stats: i32,
}
wire_struct!(PoolStat(7, 5) { stats, log_size, ondisk_log_size, up, acting, store_stats, num_store_stats });
