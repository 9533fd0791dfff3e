//! The OSD map as `osd dump --format json` shows it, with Ceph's keys in Ceph's order.
//!
//! Floats are equal as numbers; Ceph prints more digits than a double needs. The blocklist is sorted, where Ceph's order
//! is that of a hash table. Source: OSDMap::dump in src/osd/OSDMap.cc.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use types::{EntityAddr, PoolId, Utime};

use crate::addrs::{addrvec_json, in_memory_order, legacy_text};
use crate::flags::{map_flags, osd_state};
use crate::json::{array, float, object, strings};
use crate::{Osd, OsdMap, SnapIntervals};

impl OsdMap {
    /// `ceph osd dump --format json`.
    pub fn dump(&self) -> Value {
        let mut fields = self.dump_head();
        fields.push(("pools", array(self.pools.keys().map(|id| self.dump_pool(*id)))));
        fields.push(("osds", array(self.existing_osds().map(|(id, o)| self.dump_osd(id.0, o)))));
        fields.push(("osd_xinfo", array(self.existing_osds().map(|(id, o)| dump_xinfo(id.0, o)))));
        fields.extend(self.dump_placement());
        fields.push(("blocklist", dump_blocklist(&self.blocklist)));
        fields.push(("range_blocklist", dump_blocklist(&self.range_blocklist)));
        fields.push(("erasure_code_profiles", self.dump_profiles()));
        fields.push(("removed_snaps_queue", dump_snaps(&self.removed_snaps_queue)));
        fields.push(("new_removed_snaps", dump_snaps(&self.new_removed_snaps)));
        fields.push(("new_purged_snaps", dump_snaps(&self.new_purged_snaps)));
        fields.push(("crush_node_flags", dump_flags(&self.crush_node_flags, &self.crush.item_names)));
        fields.push(("device_class_flags", dump_flags(&self.device_class_flags, &self.crush.class_names)));
        fields.push(("stretch_mode", self.dump_stretch()));
        object(fields)
    }

    fn dump_head(&self) -> Vec<(&'static str, Value)> {
        vec![
            ("epoch", self.epoch.0.into()),
            ("fsid", self.fsid.to_string().into()),
            ("created", self.created.to_string().into()),
            ("modified", self.modified.to_string().into()),
            ("last_up_change", self.last_up_change.to_string().into()),
            ("last_in_change", self.last_in_change.to_string().into()),
            ("flags", self.flags_text().into()),
            ("flags_num", self.flags.into()),
            ("flags_set", array(map_flags::name_set(self.flags))),
            ("crush_version", self.crush_version.into()),
            ("full_ratio", float(self.full_ratio.into())),
            ("backfillfull_ratio", float(self.backfillfull_ratio.into())),
            ("nearfull_ratio", float(self.nearfull_ratio.into())),
            ("cluster_snapshot", self.cluster_snapshot_now().into()),
            ("pool_max", self.pool_max.into()),
            ("max_osd", self.max_osd().into()),
            ("require_min_compat_client", self.require_min_compat_client.name().into()),
            ("min_compat_client", self.min_compat_client().name().into()),
            ("require_osd_release", self.require_osd_release.name().into()),
        ]
    }

    /// A pool as it stands in `pools`; `null` when there is none.
    pub fn dump_pool(&self, id: PoolId) -> Value {
        let Some(pool) = self.pool(id) else { return Value::Null };
        let name = self.pool_name(id).unwrap_or("<unknown>");
        let head = [("pool", Value::from(id.0)), ("pool_name", Value::from(name))];
        object(head.into_iter().chain(pool.dump_fields()))
    }

    /// An OSD as it stands in `osds`. Source: OSDMap::dump_osd.
    pub fn dump_osd(&self, id: i32, o: &Osd) -> Value {
        json!({
            "osd": id,
            "uuid": o.uuid.to_string(),
            "up": u8::from(self.is_up(id)),
            "in": u8::from(self.is_in(id)),
            "weight": float(self.weight_f32(id).into()),
            "primary_affinity": float(self.primary_affinity_f32(id).into()),
            "last_clean_begin": o.info.last_clean_begin.0,
            "last_clean_end": o.info.last_clean_end.0,
            "up_from": o.info.up_from.0,
            "up_thru": o.info.up_thru.0,
            "down_at": o.info.down_at.0,
            "lost_at": o.info.lost_at.0,
            "public_addrs": addrvec_json(&o.client_addrs),
            "cluster_addrs": addrvec_json(&o.cluster_addrs),
            "heartbeat_back_addrs": addrvec_json(&o.hb_back_addrs),
            "heartbeat_front_addrs": addrvec_json(&o.hb_front_addrs),
            "public_addr": legacy_text(&o.client_addrs),
            "cluster_addr": legacy_text(&o.cluster_addrs),
            "heartbeat_back_addr": legacy_text(&o.hb_back_addrs),
            "heartbeat_front_addr": legacy_text(&o.hb_front_addrs),
            "state": osd_state::name_set(o.state),
        })
    }

    fn dump_placement(&self) -> Vec<(&'static str, Value)> {
        let upmap = self.pg_upmap.iter().map(|(pg, osds)| json!({ "pgid": pg.to_string(), "osds": osds }));
        let items = self.pg_upmap_items.iter().map(|(pg, items)| {
            let mappings = items.iter().map(|(from, to)| json!({ "from": from, "to": to }));
            json!({ "pgid": pg.to_string(), "mappings": array(mappings) })
        });
        let temp = self.pg_temp.iter().map(|(pg, osds)| json!({ "pgid": pg.to_string(), "osds": osds }));
        // PG and OSD stand side by side in one list, in Ceph too.
        let primary =
            self.primary_temp.iter().flat_map(|(pg, osd)| [Value::from(pg.to_string()), Value::from(*osd)]);
        vec![
            ("pg_upmap", array(upmap)),
            ("pg_upmap_items", array(items)),
            ("pg_temp", array(temp)),
            ("primary_temp", array(primary)),
        ]
    }

    fn dump_profiles(&self) -> Value {
        object(self.erasure_code_profiles.iter().map(|(name, p)| (name.as_str(), strings(p))))
    }

    fn dump_stretch(&self) -> Value {
        json!({
            "stretch_mode_enabled": self.stretch.enabled,
            "stretch_bucket_count": self.stretch.bucket_count,
            "degraded_stretch_mode": self.stretch.degraded,
            "recovering_stretch_mode": self.stretch.recovering,
            "stretch_mode_bucket": self.stretch.bucket_type,
        })
    }

    /// `ceph osd stat --format json`, and the `osdmap` part of `ceph status`. Source: OSDMap::print_summary.
    pub fn dump_summary(&self) -> Value {
        let n = self.counts();
        json!({
            "epoch": self.epoch.0,
            "num_osds": n.total,
            "num_up_osds": n.up,
            "osd_up_since": self.last_up_change.sec,
            "num_in_osds": n.r#in,
            "osd_in_since": self.last_in_change.sec,
            "num_remapped_pgs": self.pg_temp.len(),
        })
    }
}

fn dump_xinfo(id: i32, o: &Osd) -> Value {
    let x = &o.xinfo;
    json!({
        "osd": id,
        "down_stamp": x.down_stamp.to_string(),
        "laggy_probability": float(x.laggy_probability.as_f32().into()),
        "laggy_interval": x.laggy_interval,
        "features": x.features as i64,
        "old_weight": x.old_weight,
        "last_purged_snaps_scrub": x.last_purged_snaps_scrub.to_string(),
        "dead_epoch": x.dead_epoch.0,
    })
}

fn dump_blocklist(list: &BTreeMap<EntityAddr, Utime>) -> Value {
    object(
        in_memory_order(list).into_iter().map(|(a, until)| (a.to_string(), Value::from(until.to_string()))),
    )
}

fn dump_snaps(pools: &BTreeMap<PoolId, SnapIntervals>) -> Value {
    array(pools.iter().map(|(pool, snaps)| {
        let intervals = snaps.iter().map(|(begin, length)| json!({ "begin": begin, "length": length }));
        json!({ "pool": pool.0, "snaps": array(intervals) })
    }))
}

fn dump_flags(flags: &BTreeMap<i32, u32>, names: &BTreeMap<i32, String>) -> Value {
    object(flags.iter().map(|(id, bits)| {
        let name = names.get(id).cloned().unwrap_or_else(|| id.to_string());
        (name, array(osd_state::name_set(*bits)))
    }))
}
