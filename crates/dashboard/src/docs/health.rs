//! `/api/health/minimal` and `/api/health/full`.
//!
//! Source: src/pybind/mgr/dashboard/controllers/health.py, services/ceph_service.py.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

use super::{integer, list, number, part, set, text};

/// What both are made of: commands' answers by the names below, and who may read what.
pub struct Facts<'a> {
    pub health: &'a Value,
    pub quorum: &'a Value,
    pub osd_dump: &'a Value,
    pub osd_tree: &'a Value,
    pub crush: &'a Value,
    pub osd_metadata: &'a Value,
    pub df: &'a Value,
    pub pool_stats: &'a Value,
    pub pg_sum: &'a Value,
    pub mgr_dump: &'a Value,
    pub fs_dump: &'a Value,
    pub services: &'a Value,
    pub pg_states: &'a BTreeMap<i64, BTreeMap<String, u32>>,
    pub pgs_by_osd: &'a BTreeMap<i64, u64>,
    pub pools: Value,
    /// Hosts that run a daemon.
    pub hosts: usize,
}

/// Health with its checks as a list, the gravest first.
pub fn basic(health: &Value) -> Value {
    let mut checks: Vec<Value> = Vec::new();
    for (code, check) in health.get("checks").and_then(Value::as_object).into_iter().flatten() {
        let mut check = check.clone();
        set(&mut check, "type", code.as_str());
        checks.push(check);
    }
    checks.sort_by(|a, b| text(a, "/severity").cmp(text(b, "/severity")));
    let mut out = health.clone();
    set(&mut out, "checks", checks);
    out
}

/// The document; each part where its scope may be read.
pub fn health(f: &Facts<'_>, minimal: bool, may_read: impl Fn(&str) -> bool) -> Value {
    let mut out = json!({ "health": basic(f.health) });
    let mut add = |scope: &str, name: &str, value: &dyn Fn() -> Value| {
        if may_read(scope) {
            set(&mut out, name, value());
        }
    };
    add("monitor", "mon_status", &|| mon_status(f, minimal));
    add("cephfs", "fs_map", &|| fs_map(f, minimal));
    add("osd", "osd_map", &|| osd_map(f, minimal));
    add("osd", "scrub_status", &|| scrub_status(f).into());
    add("osd", "pg_info", &|| pg_info(f));
    add("manager", "mgr_map", &|| match minimal {
        true => part(f.mgr_dump, &["active_name", "standbys"]),
        false => f.mgr_dump.clone(),
    });
    add("pool", "pools", &|| match minimal {
        true => json!(vec![json!({}); list(f.osd_dump, "/pools").len()]),
        false => f.pools.clone(),
    });
    add("pool", "df", &|| match minimal {
        true => {
            let fields = ["total_avail_bytes", "total_bytes", "total_used_raw_bytes"];
            json!({ "stats": part(f.df.get("stats").unwrap_or(&Value::Null), &fields) })
        }
        false => part(f.df, &["stats", "pools"]),
    });
    add("pool", "client_perf", &|| client_perf(f.pool_stats));
    add("hosts", "hosts", &|| f.hosts.into());
    add("rgw", "rgw", &|| service_count(f.services, "rgw").into());
    // Ceph's dashboard counts the gateways that were made known to itself; here there is no way to do that.
    add("iscsi", "iscsi_daemons", &|| json!({ "up": 0, "down": 0 }));
    out
}

fn mon_status(f: &Facts<'_>, minimal: bool) -> Value {
    if !minimal {
        return f.quorum.clone();
    }
    let mons = vec![json!({}); list(f.quorum, "/monmap/mons").len()];
    json!({ "monmap": { "mons": mons }, "quorum": f.quorum.get("quorum") })
}

fn fs_map(f: &Facts<'_>, minimal: bool) -> Value {
    if !minimal {
        return f.fs_dump.clone();
    }
    let one = |fs: &Value| {
        let mut map = fs.get("mdsmap").cloned().unwrap_or_default();
        let info = map.get("info").and_then(Value::as_object).cloned().unwrap_or_default();
        let info: Map<String, Value> = info.iter().map(|(k, v)| (k.clone(), part(v, &["state"]))).collect();
        set(&mut map, "info", info);
        json!({ "mdsmap": map })
    };
    let all: Vec<Value> = list(f.fs_dump, "/filesystems").iter().map(one).collect();
    json!({ "filesystems": all, "standbys": f.fs_dump.get("standbys") })
}

fn osd_map(f: &Facts<'_>, minimal: bool) -> Value {
    if minimal {
        let osds: Vec<Value> = list(f.osd_dump, "/osds").iter().map(|o| part(o, &["in", "up"])).collect();
        return json!({ "osds": osds });
    }
    let mut map = f.osd_dump.clone();
    if let Some(fields) = map.as_object_mut() {
        fields.shift_remove("pg_temp");
    }
    let by_id: Map<String, Value> =
        list(f.osd_metadata, "").iter().map(|m| (integer(m, "/id").to_string(), m.clone())).collect();
    set(&mut map, "tree", f.osd_tree.clone());
    set(&mut map, "crush", f.crush.clone());
    set(&mut map, "osd_metadata", by_id);
    map
}

/// Source: CephService.get_scrub_status.
fn scrub_status(f: &Facts<'_>) -> &'static str {
    let flags: BTreeSet<&str> = list(f.osd_dump, "/flags_set").iter().filter_map(Value::as_str).collect();
    if flags.contains("noscrub") || flags.contains("nodeep-scrub") {
        return "Disabled";
    }
    let mut states = f.pg_states.values().flat_map(BTreeMap::keys);
    if states.any(|s| s.split('+').any(|w| w == "scrubbing" || w == "deep")) { "Active" } else { "Inactive" }
}

/// Source: CephService.get_pg_info.
fn pg_info(f: &Facts<'_>) -> Value {
    let sum = f.pg_sum.pointer("/pg_stats_sum/stat_sum").unwrap_or(&Value::Null);
    let names = [
        "num_objects",
        "num_object_copies",
        "num_objects_degraded",
        "num_objects_misplaced",
        "num_objects_unfound",
    ];
    let mut statuses: BTreeMap<&str, u32> = BTreeMap::new();
    for (state, pgs) in f.pg_states.values().flatten() {
        *statuses.entry(state).or_default() += pgs;
    }
    let osds = f.pgs_by_osd.len();
    let pgs: u64 = f.pgs_by_osd.values().sum();
    let per_osd = if osds == 0 { 0.0 } else { pgs as f64 / osds as f64 };
    json!({ "object_stats": part(sum, &names), "statuses": statuses, "pgs_per_osd": per_osd })
}

/// Sums of what `osd pool stats` says. Source: CephService.get_client_perf.
fn client_perf(pool_stats: &Value) -> Value {
    let sum = |part: &str, name: &str| {
        let at = format!("/{part}/{name}");
        list(pool_stats, "").iter().map(|p| number(p, &at)).sum::<f64>() as u64
    };
    json!({
        "read_bytes_sec": sum("client_io_rate", "read_bytes_sec"),
        "read_op_per_sec": sum("client_io_rate", "read_op_per_sec"),
        "recovering_bytes_per_sec": sum("recovery_rate", "recovering_bytes_per_sec"),
        "write_bytes_sec": sum("client_io_rate", "write_bytes_sec"),
        "write_op_per_sec": sum("client_io_rate", "write_op_per_sec"),
    })
}

/// Daemons of a service that are registered; one entry of them is a summary.
fn service_count(services: &Value, name: &str) -> usize {
    let at = format!("/services/{name}/daemons");
    let daemons = services.pointer(&at).and_then(Value::as_object);
    daemons.map_or(0, |d| d.keys().filter(|k| *k != "summary").count())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checks_are_a_list_with_the_gravest_first() {
        let check = |severity: &str| json!({ "severity": severity, "summary": { "message": "m" } });
        let health = json!({
            "status": "HEALTH_ERR",
            "checks": { "OSD_DOWN": check("HEALTH_WARN"), "PG_DAMAGED": check("HEALTH_ERR") },
        });
        let all = basic(&health);
        let codes: Vec<&str> = list(&all, "/checks").iter().map(|c| text(c, "/type")).collect();
        assert_eq!(codes, ["PG_DAMAGED", "OSD_DOWN"]);
    }

    #[test]
    fn rates_of_pools_are_summed_and_summaries_do_not_count() {
        let pools = json!([
            { "client_io_rate": { "read_op_per_sec": 2, "write_bytes_sec": 10 }, "recovery_rate": {} },
            { "client_io_rate": {}, "recovery_rate": { "recovering_bytes_per_sec": 5 } },
        ]);
        let perf = client_perf(&pools);
        assert_eq!(perf["read_op_per_sec"], 2);
        assert_eq!(perf["recovering_bytes_per_sec"], 5);
        let services = json!({ "services": { "rgw": { "daemons": { "summary": "", "a": {}, "b": {} } } } });
        assert_eq!(service_count(&services, "rgw"), 2);
        assert_eq!(service_count(&services, "mds"), 0);
    }
}
