//! One proposal of the balancer: what it would change, and the commands for the monitors that do so.

use std::collections::BTreeMap;

use crush::DEFAULT_CHOOSE_ARGS;
use maps::{OsdMap, UpmapItems};
use serde_json::{Value, json};
use types::PgId;

use super::compat::{Weights, with_weights};
use super::options::Mode;
use crate::mon_commands::MonRequest;

/// See the module's documentation.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    pub(crate) name: String,
    pub(crate) mode: Mode,
    /// The map that it was made for.
    pub(crate) map: OsdMap,
    pub(crate) pools: Vec<String>,
    pub(crate) upmaps: BTreeMap<PgId, UpmapItems>,
    pub(crate) weights: Weights,
}

impl Plan {
    pub(crate) fn with(self, upmaps: BTreeMap<PgId, UpmapItems>) -> Self {
        Self { upmaps, ..self }
    }

    /// The map as it would be.
    pub(crate) fn result(&self) -> OsdMap {
        let mut map = match self.mode {
            Mode::CrushCompat => with_weights(&self.map, &self.weights),
            _ => self.map.clone(),
        };
        for (pg, items) in &self.upmaps {
            match items.is_empty() {
                true => map.pg_upmap_items.remove(pg),
                false => map.pg_upmap_items.insert(*pg, items.clone()),
            };
        }
        map
    }

    fn needs_weight_set(&self) -> bool {
        !self.weights.compat.is_empty() && !self.map.crush.choose_args.contains_key(&DEFAULT_CHOOSE_ARGS)
    }

    /// What `balancer show` prints.
    pub(crate) fn show(&self) -> String {
        let mut lines = vec![
            format!("# starting osdmap epoch {}", self.map.epoch),
            format!("# starting crush version {}", self.map.crush_version),
            format!("# mode {}", self.mode.name()),
        ];
        if self.needs_weight_set() {
            lines.push("ceph osd crush weight-set create-compat".to_owned());
        }
        for (osd, w) in &self.weights.compat {
            lines.push(format!("ceph osd crush weight-set reweight-compat {osd} {w:.6}"));
        }
        for (osd, w) in &self.weights.reweight {
            lines.push(format!("ceph osd reweight osd.{osd} {w:.6}"));
        }
        for (pg, items) in &self.upmaps {
            lines.push(match items.is_empty() {
                true => format!("ceph osd rm-pg-upmap-items {pg}"),
                false => format!("ceph osd pg-upmap-items {pg} {}", numbers(items).join(" ")),
            });
        }
        lines.join("\n")
    }

    /// What `balancer dump` shows: the parts of an increment of the OSD map that it sets.
    pub(crate) fn dump(&self) -> Value {
        let (set, gone): (Vec<_>, Vec<_>) = self.upmaps.iter().partition(|(_, items)| !items.is_empty());
        let mappings = |items: &UpmapItems| -> Vec<Value> {
            items.iter().map(|(from, to)| json!({ "from": from, "to": to })).collect()
        };
        let weight = |(osd, w): (&i32, &f64)| json!({ "osd": osd, "weight": w });
        json!({
            "compat_weight_set": self.weights.compat.iter().map(weight).collect::<Vec<_>>(),
            "epoch": self.map.epoch.0 + 1,
            "new_pg_upmap_items": set.iter().map(|(pg, items)| json!({
                "mappings": mappings(items),
                "pgid": pg.to_string(),
            })).collect::<Vec<_>>(),
            "new_weights": self.weights.reweight.iter().map(weight).collect::<Vec<_>>(),
            "old_pg_upmap_items": gone.iter().map(|(pg, _)| pg.to_string()).collect::<Vec<_>>(),
        })
    }

    /// What the monitors have to be asked for, in this order.
    pub(crate) fn requests(&self) -> Vec<MonRequest> {
        let mut all = Vec::new();
        if self.needs_weight_set() {
            all.push(json!({ "prefix": "osd crush weight-set create-compat" }));
        }
        for (osd, w) in &self.weights.compat {
            let item = format!("osd.{osd}");
            all.push(
                json!({ "prefix": "osd crush weight-set reweight-compat", "item": item, "weight": [w] }),
            );
        }
        if !self.weights.reweight.is_empty() {
            let fixed = |(osd, w): (&i32, &f64)| (osd.to_string(), Value::from((w * 65_536.0) as u32));
            let weights = Value::Object(self.weights.reweight.iter().map(fixed).collect());
            all.push(json!({ "prefix": "osd reweightn", "weights": weights.to_string() }));
        }
        for (pg, items) in &self.upmaps {
            let pgid = pg.to_string();
            let ids: Vec<i32> = items.iter().flat_map(|(from, to)| [*from, *to]).collect();
            all.push(match items.is_empty() {
                true => json!({ "prefix": "osd rm-pg-upmap-items", "pgid": pgid }),
                false => json!({ "prefix": "osd pg-upmap-items", "pgid": pgid, "id": ids }),
            });
        }
        let request = |json: Value| MonRequest { json: json.to_string(), ..MonRequest::default() };
        all.into_iter().map(request).collect()
    }
}

fn numbers(items: &[(i32, i32)]) -> Vec<String> {
    items.iter().flat_map(|(from, to)| [from.to_string(), to.to_string()]).collect()
}
