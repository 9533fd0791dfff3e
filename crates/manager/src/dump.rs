//! Statistics in the JSON shapes of Ceph.
//!
//! Source: the `dump` functions of object_stat_sum_t, pg_stat_t, pool_stat_t, store_statfs_t, osd_stat_t and
//! objectstore_perf_stat_t in src/osd/osd_types.cc.

use messages::pg_state;
use messages::stats::{
    ObjectStatSum, OsdStat, PeerPingTimes, PgShard, PgStat, PingTimes, PoolStat, StorePerfStat, StoreStatfs,
};
use serde_json::{Map, Value, json};
use types::Utime;

use crate::text::ctime;

/// Puts the second object's fields behind the first one's.
pub fn merge(mut first: Value, second: Value) -> Value {
    if let (Some(first), Value::Object(second)) = (first.as_object_mut(), second) {
        first.extend(second);
    }
    first
}

macro_rules! fields {
    ($of:expr, $($name:literal: $field:ident),+ $(,)?) => {
        Value::Object(Map::from_iter([$( ($name.to_owned(), Value::from($of.$field)) ),+]))
    };
}

pub fn object_stat_sum(s: &ObjectStatSum) -> Value {
    fields!(
        s,
        "num_bytes": num_bytes,
        "num_objects": num_objects,
        "num_object_clones": num_object_clones,
        "num_object_copies": num_object_copies,
        "num_objects_missing_on_primary": num_objects_missing_on_primary,
        "num_objects_missing": num_objects_missing,
        "num_objects_degraded": num_objects_degraded,
        "num_objects_misplaced": num_objects_misplaced,
        "num_objects_unfound": num_objects_unfound,
        "num_objects_dirty": num_objects_dirty,
        "num_whiteouts": num_whiteouts,
        "num_read": num_rd,
        "num_read_kb": num_rd_kb,
        "num_write": num_wr,
        "num_write_kb": num_wr_kb,
        "num_scrub_errors": num_scrub_errors,
        "num_shallow_scrub_errors": num_shallow_scrub_errors,
        "num_deep_scrub_errors": num_deep_scrub_errors,
        "num_objects_recovered": num_objects_recovered,
        "num_bytes_recovered": num_bytes_recovered,
        "num_keys_recovered": num_keys_recovered,
        "num_objects_omap": num_objects_omap,
        "num_objects_hit_set_archive": num_objects_hit_set_archive,
        "num_bytes_hit_set_archive": num_bytes_hit_set_archive,
        "num_flush": num_flush,
        "num_flush_kb": num_flush_kb,
        "num_evict": num_evict,
        "num_evict_kb": num_evict_kb,
        "num_promote": num_promote,
        "num_flush_mode_high": num_flush_mode_high,
        "num_flush_mode_low": num_flush_mode_low,
        "num_evict_mode_some": num_evict_mode_some,
        "num_evict_mode_full": num_evict_mode_full,
        "num_objects_pinned": num_objects_pinned,
        "num_legacy_snapsets": num_legacy_snapsets,
        "num_large_omap_objects": num_large_omap_objects,
        "num_objects_manifest": num_objects_manifest,
        "num_omap_bytes": num_omap_bytes,
        "num_omap_keys": num_omap_keys,
        "num_objects_repaired": num_objects_repaired,
    )
}

pub fn pg_stat(s: &PgStat) -> Value {
    let head = json!({
        "version": s.version.to_string(),
        "reported_seq": s.reported_seq,
        "reported_epoch": s.reported_epoch.0,
        "state": pg_state::to_text(s.state),
        "last_fresh": s.last_fresh.to_string(),
        "last_change": s.last_change.to_string(),
        "last_active": s.last_active.to_string(),
        "last_peered": s.last_peered.to_string(),
        "last_clean": s.last_clean.to_string(),
        "last_became_active": s.last_became_active.to_string(),
        "last_became_peered": s.last_became_peered.to_string(),
        "last_unstale": s.last_unstale.to_string(),
        "last_undegraded": s.last_undegraded.to_string(),
        "last_fullsized": s.last_fullsized.to_string(),
        "mapping_epoch": s.mapping_epoch.0,
        "log_start": s.log_start.to_string(),
        "ondisk_log_start": s.ondisk_log_start.to_string(),
        "created": s.created.0,
        "last_epoch_clean": s.last_epoch_clean.0,
        "parent": s.parent.to_string(),
        "parent_split_bits": s.parent_split_bits,
        "last_scrub": s.last_scrub.to_string(),
        "last_scrub_stamp": s.last_scrub_stamp.to_string(),
        "last_deep_scrub": s.last_deep_scrub.to_string(),
        "last_deep_scrub_stamp": s.last_deep_scrub_stamp.to_string(),
        "last_clean_scrub_stamp": s.last_clean_scrub_stamp.to_string(),
        "log_size": s.log_size,
        "ondisk_log_size": s.ondisk_log_size,
        "stats_invalid": s.stats_invalid,
        "dirty_stats_invalid": s.dirty_stats_invalid,
        "omap_stats_invalid": s.omap_stats_invalid,
        "hitset_stats_invalid": s.hitset_stats_invalid,
        "hitset_bytes_stats_invalid": s.hitset_bytes_stats_invalid,
        "pin_stats_invalid": s.pin_stats_invalid,
        "manifest_stats_invalid": s.manifest_stats_invalid,
        "snaptrimq_len": s.snaptrimq_len,
    });
    let locations = s.object_location_counts.iter().map(|(shards, n)| {
        let shards: Vec<String> = shards.iter().map(shard).collect();
        json!({ "shards": shards.join(","), "objects": n })
    });
    let purged = s
        .purged_snaps
        .iter()
        .map(|(start, len)| json!({ "start": format!("{:x}", start.0), "length": format!("{len:x}") }));
    let tail = json!({
        "stat_sum": object_stat_sum(&s.stats.sum),
        "up": s.up,
        "acting": s.acting,
        "avail_no_missing": s.avail_no_missing.iter().map(shard).collect::<Vec<_>>(),
        "object_location_counts": locations.collect::<Vec<_>>(),
        "blocked_by": s.blocked_by,
        "up_primary": s.up_primary,
        "acting_primary": s.acting_primary,
        "purged_snaps": purged.collect::<Vec<_>>(),
    });
    merge(head, tail)
}

/// Without statistics.
pub fn pg_stat_brief(s: &PgStat) -> Value {
    json!({
        "state": pg_state::to_text(s.state),
        "up": s.up,
        "acting": s.acting,
        "up_primary": s.up_primary,
        "acting_primary": s.acting_primary,
    })
}

/// `3`, or `3(1)` with a shard. Source: operator<< of pg_shard_t.
fn shard(s: &PgShard) -> String {
    if s.shard < 0 { s.osd.to_string() } else { format!("{}({})", s.osd, s.shard) }
}

pub fn pool_stat(s: &PoolStat) -> Value {
    json!({
        "stat_sum": object_stat_sum(&s.stats.sum),
        "store_stats": statfs(&s.store_stats),
        "log_size": s.log_size,
        "ondisk_log_size": s.ondisk_log_size,
        "up": s.up,
        "acting": s.acting,
        "num_store_stats": s.num_store_stats,
    })
}

pub fn statfs(s: &StoreStatfs) -> Value {
    fields!(
        s,
        "total": total,
        "available": available,
        "internally_reserved": internally_reserved,
        "allocated": allocated,
        "data_stored": data_stored,
        "data_compressed": data_compressed,
        "data_compressed_allocated": data_compressed_allocated,
        "data_compressed_original": data_compressed_original,
        "omap_allocated": omap_allocated,
        "internal_metadata": internal_metadata,
    )
}

pub fn osd_stat(s: &OsdStat) -> Value {
    let fs = &s.statfs;
    let alerts = s.alerts.iter().flat_map(|(osd, alerts)| {
        alerts.iter().map(move |(name, text)| format!(" osd: {osd} {name}:{text}"))
    });
    json!({
        "up_from": s.up_from.0,
        "seq": s.seq,
        "num_pgs": s.num_pgs,
        "num_osds": s.num_osds,
        "num_per_pool_osds": s.num_per_pool_osds,
        "num_per_pool_omap_osds": s.num_per_pool_omap_osds,
        "kb": fs.total >> 10,
        "kb_used": fs.used_raw() >> 10,
        "kb_used_data": fs.allocated >> 10,
        "kb_used_omap": fs.omap_allocated >> 10,
        "kb_used_meta": fs.internal_metadata >> 10,
        "kb_avail": fs.available >> 10,
        "statfs": statfs(fs),
        "hb_peers": s.hb_peers,
        "snap_trim_queue_len": s.snap_trim_queue_len,
        "num_snap_trimming": s.num_snap_trimming,
        "num_shards_repaired": s.num_shards_repaired,
        "op_queue_age_hist": {
            "histogram": s.op_queue_age_hist.bins,
            "upper_bound": 1u64.checked_shl(s.op_queue_age_hist.bins.len() as u32).unwrap_or(0),
        },
        "perf_stat": perf_stat(&s.perf),
        "alerts": alerts.collect::<Vec<_>>(),
        "network_ping_times": s.hb_pingtime.iter().map(|(osd, t)| ping_times(*osd, t)).collect::<Vec<_>>(),
    })
}

pub fn perf_stat(s: &StorePerfStat) -> Value {
    json!({
        "commit_latency_ms": s.commit_latency_ns as f64 / 1_000_000.0,
        "apply_latency_ms": s.apply_latency_ns as f64 / 1_000_000.0,
        "commit_latency_ns": s.commit_latency_ns,
        "apply_latency_ns": s.apply_latency_ns,
    })
}

fn ping_times(osd: i32, t: &PeerPingTimes) -> Value {
    let mut interfaces = vec![interface("back", &t.back)];
    if t.front.average_us != [0; 3] {
        interfaces.push(interface("front", &t.front));
    }
    json!({ "osd": osd, "last update": ctime(Utime::new(t.last_update_s, 0)), "interfaces": interfaces })
}

fn interface(name: &str, t: &PingTimes) -> Value {
    let ms = |us: u32| f64::from(us) / 1000.0;
    let three =
        |[one, five, fifteen]: [u32; 3]| json!({ "1min": ms(one), "5min": ms(five), "15min": ms(fifteen) });
    json!({
        "interface": name,
        "average": three(t.average_us),
        "min": three(t.min_us),
        "max": three(t.max_us),
        "last": ms(t.last_us),
    })
}
