//! What the dashboard shows that no command tells as shortly: the figures of this moment, and a cell for each
//! PG.

use std::collections::BTreeMap;
use std::time::Duration;

use messages::pg_state;
use messages::stats::ObjectStatSum;
use serde_json::{Map, Value, json};
use types::{Now, OsdId};

use crate::core::Manager;
use crate::sums::Sums;

/// The figures of a moment; what is a rate is one of a second.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Figures {
    /// Of the client's requests.
    pub reads: f64,
    pub writes: f64,
    pub read_bytes: f64,
    pub write_bytes: f64,
    pub recovered_bytes: f64,
    pub recovered_objects: f64,
}

impl Figures {
    fn of(growth: Option<(Duration, ObjectStatSum)>) -> Self {
        let Some((span, d)) = growth else { return Self::default() };
        let rate = |n: i64| n.max(0) as f64 / span.as_secs_f64();
        Self {
            reads: rate(d.num_rd),
            writes: rate(d.num_wr),
            read_bytes: rate(d.num_rd_kb) * 1024.0,
            write_bytes: rate(d.num_wr_kb) * 1024.0,
            recovered_bytes: rate(d.num_bytes_recovered),
            recovered_objects: rate(d.num_objects_recovered),
        }
    }
}

impl Manager {
    /// What clients get and what recovery takes; `None` while that is not known, or another manager is in
    /// charge.
    pub fn figures(&self) -> Option<Figures> {
        (self.confirmed && self.pgs.ready).then(|| Figures::of(self.pgs.growth()))
    }

    /// What an OSD did as primary of late.
    pub fn figures_of_osd(&self, osd: i32) -> Figures {
        Figures::of(self.pgs.served(OsdId(osd)))
    }

    /// What the pool did of late.
    pub fn figures_of_pool(&self, pool: i64) -> Figures {
        Figures::of(self.pgs.pool_growth(types::PoolId(pool)))
    }

    /// The cluster as a whole, without health, which the monitors know.
    pub fn overview(&self, now: Now) -> Option<Value> {
        let map = self.map.as_ref().filter(|_| self.confirmed && self.pgs.ready)?;
        let sums = Sums::of(&self.pgs);
        let (fs, total, n) = (&sums.osds.statfs, &sums.total.stats.sum, map.counts());
        let states: Map<String, Value> =
            sums.by_state.iter().map(|(bits, pgs)| (pg_state::to_text(*bits), json!(pgs))).collect();
        let stored: i64 = total.num_bytes.max(0);
        Some(json!({
            "fsid": map.fsid.to_string(),
            "usage": {
                "total": fs.total,
                "used": fs.used_raw(),
                "avail": fs.available,
                "stored": stored,
                "nearfull_ratio": map.nearfull_ratio,
                "full_ratio": map.full_ratio,
            },
            "pgs": { "total": sums.num_pg, "states": states },
            "objects": {
                "total": total.num_objects,
                "copies": total.num_object_copies,
                "degraded": total.num_objects_degraded,
                "misplaced": total.num_objects_misplaced,
                "unfound": total.num_objects_unfound,
            },
            "osds": { "total": n.total, "up": n.up, "in": n.r#in },
            "pools": map.pools.len(),
            "tasks": self.progress.running_json(now.wall),
        }))
    }

    /// What has come to an end, in the form that Ceph's module keeps.
    pub fn ended_tasks(&self) -> Vec<Value> {
        self.progress.completed.clone()
    }

    /// What [`Self::pg_cells`] is made of: the same again only while neither the map nor what is known of PGs
    /// has changed.
    pub fn pg_version(&self) -> (u32, u64) {
        (self.map.as_ref().map_or(0, |map| map.epoch.0), self.pgs.version)
    }

    /// A cell for each PG: its number, its state's place among `states`, its primary, objects, bytes, and
    /// copies that are not where they belong.
    pub fn pg_cells(&self) -> Value {
        let mut states: BTreeMap<u64, usize> = BTreeMap::new();
        self.pgs.pgs.values().for_each(|s| {
            let next = states.len();
            states.entry(s.state).or_insert(next);
        });
        let mut names = vec![Value::Null; states.len()];
        for (bits, at) in &states {
            if let Some(name) = names.get_mut(*at) {
                *name = json!(pg_state::to_text(*bits));
            }
        }
        let mut pools: BTreeMap<i64, Vec<Value>> = BTreeMap::new();
        for (pg, s) in &self.pgs.pgs {
            let sum = &s.stats.sum;
            let away = sum.num_objects_degraded.saturating_add(sum.num_objects_misplaced);
            let state = states.get(&s.state).copied().unwrap_or(0);
            let cell = json!([pg.seed, state, s.acting_primary, sum.num_objects, sum.num_bytes, away]);
            pools.entry(pg.pool.0).or_default().push(cell);
        }
        let name =
            |id: i64| self.map.as_ref().and_then(|m| m.pool_name(types::PoolId(id)).map(ToOwned::to_owned));
        let pools = pools.into_iter().map(|(id, pgs)| json!({ "id": id, "name": name(id), "pgs": pgs }));
        json!({ "states": names, "pools": pools.collect::<Vec<_>>() })
    }

    /// How many PGs are in each state, by pool.
    pub fn pg_states_by_pool(&self) -> BTreeMap<i64, BTreeMap<String, u32>> {
        let mut pools: BTreeMap<i64, BTreeMap<String, u32>> = BTreeMap::new();
        for (pg, s) in &self.pgs.pgs {
            *pools.entry(pg.pool.0).or_default().entry(pg_state::to_text(s.state)).or_default() += 1;
        }
        pools
    }

    /// What has registered here, as `service dump` shows it.
    pub fn services(&self) -> Value {
        self.daemons.services.dump()
    }

    /// Slow requests by daemon: how many, and how many seconds the oldest has waited.
    pub fn slow_daemons(&self) -> BTreeMap<String, (u32, u32)> {
        self.daemons.slow().map(|(key, slow)| (format!("{}.{}", key.service, key.id), slow)).collect()
    }
}
