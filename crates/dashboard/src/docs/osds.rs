//! The tree of OSDs as the page shows it, and `/api/osd`.
//!
//! Source: src/pybind/mgr/dashboard/controllers/osd.py.

use std::collections::{BTreeMap, BTreeSet};

use manager::Figures;
use serde_json::{Map, Value, json};

use super::{integer, list, number, set, text};

/// The tree, of `osd df tree`, `osd perf` and `osd dump`.
pub fn tree(df: &Value, perf: &Value, dump: &Value) -> Value {
    let latencies: BTreeMap<i64, &Value> =
        list(perf, "/osdstats/osd_perf_infos").iter().map(|p| (integer(p, "/id"), p)).collect();
    let osds: BTreeMap<i64, &Value> = list(dump, "/osds").iter().map(|o| (integer(o, "/osd"), o)).collect();
    let node = |n: &Value| node(n, &latencies, &osds);
    let children: BTreeSet<i64> =
        list(df, "/nodes").iter().flat_map(|n| list(n, "/children")).filter_map(Value::as_i64).collect();
    let ids = |nodes: &[Value]| nodes.iter().map(|n| integer(n, "/id")).collect::<Vec<_>>();
    let roots: Vec<i64> =
        ids(list(df, "/nodes")).into_iter().filter(|id| *id < 0 && !children.contains(id)).collect();
    let nodes: Vec<Value> = list(df, "/nodes").iter().chain(list(df, "/stray")).map(node).collect();
    // Those that pools show by themselves say nothing of how the cluster is.
    let quiet = ["sortbitwise", "recovery_deletes", "purged_snapdirs", "pglog_hardlimit"];
    let flags: Vec<&str> = list(dump, "/flags_set")
        .iter()
        .filter_map(Value::as_str)
        .filter(|flag| !quiet.contains(flag))
        .collect();
    json!({ "nodes": nodes, "roots": roots, "stray": ids(list(df, "/stray")), "flags": flags })
}

fn node(n: &Value, latencies: &BTreeMap<i64, &Value>, osds: &BTreeMap<i64, &Value>) -> Value {
    let id = integer(n, "/id");
    let mut out = json!({
        "id": id,
        "name": text(n, "/name"),
        "type": text(n, "/type"),
        "crush_weight": number(n, "/crush_weight"),
        "size": integer(n, "/kb").saturating_mul(1024),
        "used": integer(n, "/kb_used").saturating_mul(1024),
        "pgs": integer(n, "/pgs"),
        "children": list(n, "/children"),
    });
    if id < 0 {
        return out;
    }
    let osd = osds.get(&id).copied().unwrap_or(&Value::Null);
    let up = integer(osd, "/up") == 1;
    if let Some(class) = n.get("device_class") {
        set(&mut out, "device_class", class.clone());
    }
    set(&mut out, "reweight", number(n, "/reweight"));
    set(&mut out, "status", text(n, "/status"));
    set(&mut out, "in", integer(osd, "/in") == 1);
    // What an OSD last said before it went down is no latency of now.
    if let Some(p) = latencies.get(&id).filter(|_| up) {
        set(&mut out, "commit_ms", number(p, "/perf_stats/commit_latency_ms"));
        set(&mut out, "apply_ms", number(p, "/perf_stats/apply_latency_ms"));
    }
    out
}

/// `/api/osd`, of `osd dump`, `pg dump osds` and `osd tree`; `rates` are those of an OSD as primary.
pub fn osds(dump: &Value, stats: &Value, tree: &Value, at: f64, rates: impl Fn(i32) -> Figures) -> Value {
    let by = |nodes: &[Value], field: &str| -> BTreeMap<i64, Value> {
        nodes.iter().map(|n| (integer(n, field), n.clone())).collect()
    };
    let (stats, nodes) = (by(list(stats, "/osd_stats"), "/osd"), by(list(tree, "/nodes"), "/id"));
    let is_host = |n: &&Value| text(n, "/type") == "host";
    let mut hosts: BTreeMap<i64, &Value> = BTreeMap::new();
    for host in list(tree, "/nodes").iter().filter(is_host) {
        hosts.extend(list(host, "/children").iter().filter_map(|c| Some((c.as_i64()?, host))));
    }
    let one = |osd: &Value| {
        let id = integer(osd, "/osd");
        let mut out = osd.clone();
        set(&mut out, "id", id);
        for (name, value) in
            [("osd_stats", stats.get(&id)), ("tree", nodes.get(&id)), ("host", hosts.get(&id).copied())]
        {
            if let Some(value) = value {
                set(&mut out, name, value.clone());
            }
        }
        let rates = i32::try_from(id).map(&rates).unwrap_or_default();
        let (now, history) = of_rates(at, &rates, stats.get(&id));
        set(&mut out, "stats", now);
        set(&mut out, "stats_history", history);
        // No orchestrator takes OSDs away.
        set(&mut out, "operational_status", "unmanaged");
        out
    };
    Value::Array(list(dump, "/osds").iter().map(one).collect())
}

/// Rates by Ceph's names of its counters, and the same as a history of one moment.
fn of_rates(at: f64, r: &Figures, stat: Option<&Value>) -> (Value, Value) {
    let rates = [
        ("op_w", r.writes),
        ("op_in_bytes", r.write_bytes),
        ("op_r", r.reads),
        ("op_out_bytes", r.read_bytes),
    ];
    let mut now: Map<String, Value> = rates.iter().map(|(n, v)| ((*n).to_owned(), json!(v))).collect();
    let stat = stat.unwrap_or(&Value::Null);
    now.insert("numpg".to_owned(), integer(stat, "/num_pgs").into());
    now.insert("stat_bytes".to_owned(), integer(stat, "/kb").saturating_mul(1024).into());
    now.insert("stat_bytes_used".to_owned(), integer(stat, "/kb_used").saturating_mul(1024).into());
    let history: Map<String, Value> =
        rates.iter().map(|(n, v)| ((*n).to_owned(), json!([[at, v]]))).collect();
    (Value::Object(now), Value::Object(history))
}

/// PGs by OSD, of `pg dump osds`.
pub fn pgs_by_osd(stats: &Value) -> BTreeMap<i64, u64> {
    let pgs = |s: &Value| u64::try_from(integer(s, "/num_pgs")).unwrap_or(0);
    list(stats, "/osd_stats").iter().map(|s| (integer(s, "/osd"), pgs(s))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tree_has_states_and_latencies_of_osds_that_are_up() {
        let df = json!({
            "nodes": [
                { "id": -1, "name": "default", "type": "root", "crush_weight": 2.0, "kb": 4, "kb_used": 2, "pgs": 0, "children": [-2] },
                { "id": -2, "name": "h", "type": "host", "crush_weight": 2.0, "kb": 4, "kb_used": 2, "pgs": 0, "children": [0, 1] },
                { "id": 0, "name": "osd.0", "type": "osd", "device_class": "hdd", "crush_weight": 1.0, "reweight": 1.0, "kb": 2, "kb_used": 1, "pgs": 9, "status": "up" },
                { "id": 1, "name": "osd.1", "type": "osd", "crush_weight": 1.0, "reweight": 0.0, "kb": 2, "kb_used": 1, "pgs": 9, "status": "down" },
            ],
            "stray": [{ "id": 5, "name": "osd.5", "type": "osd", "kb": 0, "kb_used": 0, "pgs": 0, "status": "up" }],
        });
        let perf = json!({ "osdstats": { "osd_perf_infos": [
            { "id": 0, "perf_stats": { "commit_latency_ms": 3, "apply_latency_ms": 2 } },
            { "id": 1, "perf_stats": { "commit_latency_ms": 3, "apply_latency_ms": 2 } },
        ] } });
        let dump = json!({
            "osds": [{ "osd": 0, "up": 1, "in": 1 }, { "osd": 1, "up": 0, "in": 0 }, { "osd": 5, "up": 1, "in": 1 }],
            "flags_set": ["noout", "sortbitwise"],
        });
        let tree = tree(&df, &perf, &dump);
        assert_eq!(
            (&tree["roots"], &tree["stray"], &tree["flags"]),
            (&json!([-1]), &json!([5]), &json!(["noout"]))
        );
        let node =
            |id: i64| list(&tree, "/nodes").iter().find(|n| n["id"] == id).cloned().unwrap_or_default();
        assert_eq!((&node(0)["commit_ms"], &node(0)["in"]), (&json!(3.0), &json!(true)));
        assert_eq!((node(1).get("commit_ms"), &node(1)["status"]), (None, &json!("down")));
        assert_eq!(node(-2)["size"], 4_096);
    }

    #[test]
    fn an_osd_is_told_with_its_node_and_its_host() {
        let dump = json!({ "osds": [{ "osd": 3, "up": 1, "in": 1, "weight": 1.0 }] });
        let stats = json!({ "osd_stats": [{ "osd": 3, "num_pgs": 7, "kb": 10, "kb_used": 1 }] });
        let tree = json!({ "nodes": [
            { "id": -2, "name": "h", "type": "host", "children": [3] },
            { "id": 3, "name": "osd.3", "type": "osd" },
        ] });
        let all = osds(&dump, &stats, &tree, 5.0, |_| Figures { writes: 2.0, ..Figures::default() });
        let osd = &all[0];
        assert_eq!(
            (&osd["id"], &osd["host"]["name"], &osd["tree"]["name"]),
            (&json!(3), &json!("h"), &json!("osd.3"))
        );
        assert_eq!((&osd["stats"]["numpg"], &osd["stats"]["op_w"]), (&json!(7), &json!(2.0)));
        assert_eq!(osd["stats_history"]["op_w"], json!([[5.0, 2.0]]));
        assert_eq!(pgs_by_osd(&stats), [(3, 7)].into());
    }
}
