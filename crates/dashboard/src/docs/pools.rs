//! `/api/pool`.
//!
//! Source: Pool._serialize_pool in src/pybind/mgr/dashboard/controllers/pool.py,
//! CephService.get_pool_list_with_stats.

use std::collections::BTreeMap;

use manager::Figures;
use serde_json::{Map, Value, json};

use super::{integer, list, set, text};

/// What pools' statistics are made of.
pub struct Stats<'a> {
    /// Of `df detail`.
    pub df: &'a Value,
    pub states: &'a BTreeMap<i64, BTreeMap<String, u32>>,
    /// Seconds since 1970.
    pub at: f64,
    pub rates: &'a dyn Fn(i64) -> Figures,
}

/// The pools of `osd dump`, their rules by the names of `osd crush dump`; of each these attributes, or all.
pub fn pools(dump: &Value, crush: &Value, attrs: Option<&str>, stats: Option<&Stats<'_>>) -> Value {
    let rules: BTreeMap<i64, &str> =
        list(crush, "/rules").iter().map(|r| (integer(r, "/rule_id"), text(r, "/rule_name"))).collect();
    let wanted: Option<Vec<&str>> = attrs.filter(|a| !a.is_empty()).map(|a| a.split(',').collect());
    let one = |pool: &Value| {
        let mut pool = pool.clone();
        if let Some(stats) = stats {
            with_stats(&mut pool, stats);
        }
        let all = pool.as_object().cloned().unwrap_or_default();
        let is_wanted =
            |name: &str| name == "pool_name" || wanted.as_ref().is_none_or(|wanted| wanted.contains(&name));
        let fields = all.into_iter().filter(|(name, _)| is_wanted(name));
        let fields = fields.map(|(name, value)| {
            let value = shown(&name, value, &rules);
            (name, value)
        });
        Value::Object(fields.collect())
    };
    Value::Array(list(dump, "/pools").iter().map(one).collect())
}

/// Names stand where the map has numbers.
fn shown(name: &str, value: Value, rules: &BTreeMap<i64, &str>) -> Value {
    match (name, value.as_i64()) {
        ("type", Some(1)) => "replicated".into(),
        ("type", Some(3)) => "erasure".into(),
        ("crush_rule", Some(rule)) => rules.get(&rule).map_or(value, |name| (*name).into()),
        ("application_metadata", _) => {
            let of: Vec<&String> = value.as_object().map(|o| o.keys().collect()).unwrap_or_default();
            json!(of)
        }
        _ => value,
    }
}

fn with_stats(pool: &mut Value, s: &Stats<'_>) {
    let id = integer(pool, "/pool");
    let states: Map<String, Value> =
        s.states.get(&id).into_iter().flatten().map(|(state, pgs)| (state.clone(), (*pgs).into())).collect();
    let df = list(s.df, "/pools").iter().find(|p| integer(p, "/id") == id);
    let sums = df.and_then(|p| p.get("stats")).and_then(Value::as_object).cloned().unwrap_or_default();
    let r = (s.rates)(id);
    // By Ceph's names of the sums that grow; the others have no rate.
    let rates = BTreeMap::from([
        ("rd", r.reads),
        ("wr", r.writes),
        ("rd_bytes", r.read_bytes),
        ("wr_bytes", r.write_bytes),
    ]);
    let one = |(name, latest): (String, Value)| {
        let rate = rates.get(name.as_str()).copied();
        let history: Vec<Value> = rate.iter().map(|rate| json!([s.at, rate])).collect();
        (name, json!({ "latest": latest, "rate": rate.unwrap_or(0.0), "rates": history }))
    };
    let stats: Map<String, Value> = sums.into_iter().map(one).collect();
    set(pool, "pg_status", states);
    set(pool, "stats", stats);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pools_are_told_by_names_and_only_what_is_wanted() {
        let dump = json!({ "pools": [
            { "pool": 2, "pool_name": "p", "type": 3, "crush_rule": 1, "application_metadata": { "rbd": {} }, "size": 6 },
        ] });
        let crush = json!({ "rules": [{ "rule_id": 1, "rule_name": "wide" }] });
        let all = pools(&dump, &crush, None, None);
        assert_eq!(
            all[0],
            json!({ "pool": 2, "pool_name": "p", "type": "erasure", "crush_rule": "wide", "application_metadata": ["rbd"], "size": 6 })
        );
        assert_eq!(
            pools(&dump, &crush, Some("size,nothing"), None),
            json!([{ "pool_name": "p", "size": 6 }])
        );
        let df = json!({ "pools": [{ "id": 2, "stats": { "stored": 5, "wr": 9 } }] });
        let states = [(2, [("active+clean".to_owned(), 8)].into())].into();
        let rates = |_| Figures { writes: 3.0, ..Figures::default() };
        let stats = Stats { df: &df, states: &states, at: 1.0, rates: &rates };
        let pool = &pools(&dump, &crush, None, Some(&stats))[0];
        assert_eq!(pool["pg_status"], json!({ "active+clean": 8 }));
        assert_eq!(pool["stats"]["stored"], json!({ "latest": 5, "rate": 0.0, "rates": [] }));
        assert_eq!(pool["stats"]["wr"], json!({ "latest": 9, "rate": 3.0, "rates": [[1.0, 3.0]] }));
    }
}
