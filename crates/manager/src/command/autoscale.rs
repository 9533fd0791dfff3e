//! `osd pool autoscale-status`: how many PGs each pool should have. Nothing acts on it.
//!
//! Source: src/pybind/mgr/pg_autoscaler/module.py (16.2).

use std::collections::BTreeMap;

use maps::{AutoscaleMode, OptValue, OsdMap, Pool, pool_flags};
use monitor::command::{Format, Reply};
use serde_json::{Value, json};
use types::{OsdId, PoolId};

use crate::command::{Command, Ctx};
use crate::pretty_table::{PrettyTable, of_bytes};
use crate::sums::Sums;

pub(super) const COMMANDS: &[Command] = &[Command::new(
    "osd pool autoscale-status name=format,type=CephString,req=false",
    "report on pool pg_num sizing recommendation and intent",
    "mgr",
    "r",
    status,
)];

/// PGs that an OSD should have. Source: mon_target_pg_per_osd.
const PGS_PER_OSD: f64 = 100.0;
/// A pool that does not say otherwise has at least so many.
const PG_NUM_MIN: u32 = 32;
/// A pool is left alone as long as it is within this factor of its ideal.
const THRESHOLD: f64 = 3.0;

/// The OSDs below one CRUSH root.
#[derive(Default)]
struct Root {
    capacity: u64,
    osds: u32,
    target_ratios: f64,
    target_bytes: f64,
}

struct Row {
    pool: PoolId,
    name: String,
    mode: AutoscaleMode,
    root: i32,
    capacity: u64,
    logical_used: f64,
    rate: f64,
    bias: f64,
    target_bytes: u64,
    target_ratio: f64,
    effective_ratio: f64,
    capacity_ratio: f64,
    pg_num: u32,
    ideal: f64,
    pg_num_final: u32,
    bulk: bool,
}

fn float(pool: &Pool, name: &str) -> f64 {
    match pool.opts.get(name) {
        Some(OptValue::Double(v)) => *v,
        Some(OptValue::Int(v)) => *v as f64,
        _ => 0.0,
    }
}

fn number(pool: &Pool, name: &str) -> Option<u32> {
    match pool.opts.get(name) {
        Some(OptValue::Int(v)) => u32::try_from(*v).ok(),
        _ => None,
    }
}

/// The first root that the pool's rule takes from.
fn root_of(map: &OsdMap, pool: &Pool) -> Option<i32> {
    map.crush.rule(u32::from(pool.crush_rule))?.takes().next()
}

/// Raw bytes per byte of data. The k of a profile is not always its data chunks: lrc may have layers instead.
fn raw_rate(map: &OsdMap, pool: &Pool) -> f64 {
    let size = f64::from(pool.size);
    let values = map.erasure_code_profiles.get(&pool.erasure_code_profile);
    let Some(values) = values.filter(|_| pool.is_erasure()) else {
        return size;
    };
    let of_profile = erasure::Profile::new(values).ok().map(|profile| profile.data_chunks() as f64);
    match of_profile.or_else(|| values.get("k")?.parse().ok()) {
        Some(k) if k > 0.0 => size / k,
        _ => size,
    }
}

/// Source: nearest_power_of_two.
fn nearest_power_of_two(n: f64) -> u32 {
    let whole = (n.max(0.0) as u32).min(1 << 30);
    if whole == 0 {
        return 0;
    }
    let above = whole.next_power_of_two();
    let below = above >> 1;
    if f64::from(above) - n > n - f64::from(below) { below } else { above }
}

impl Row {
    fn new(ctx: &Ctx<'_>, sums: &Sums, roots: &BTreeMap<i32, Root>, id: PoolId, pool: &Pool) -> Option<Self> {
        let root_id = root_of(ctx.map, pool)?;
        let root = roots.get(&root_id)?;
        let rate = raw_rate(ctx.map, pool);
        let stat = sums.pools.get(&id).map(|p| p.stat).unwrap_or_default();
        let logical_used = match stat.num_store_stats > 0 && rate > 0.0 {
            true => (stat.store_stats.data_stored.max(0) as f64 / rate).trunc(),
            false => stat.stats.sum.num_bytes.max(0) as f64,
        };
        let target_bytes = float(pool, "target_size_bytes") as u64;
        let target_ratio = float(pool, "target_size_ratio");
        let share = |raw: f64| if root.capacity > 0 { raw / root.capacity as f64 } else { 0.0 };
        let effective_ratio = if root.target_ratios > 0.0 {
            target_ratio / root.target_ratios * (1.0 - share(root.target_bytes).min(1.0))
        } else {
            0.0
        };
        let capacity_ratio = share(logical_used.max(target_bytes as f64) * rate).max(effective_ratio);
        let bias = match float(pool, "pg_autoscale_bias") {
            0.0 => 1.0,
            bias => bias,
        };
        let ideal = capacity_ratio * f64::from(root.osds) * PGS_PER_OSD / rate.max(1.0) * bias;
        let least = number(pool, "pg_num_min").unwrap_or(PG_NUM_MIN);
        let most = number(pool, "pg_num_max").filter(|m| *m > 0).unwrap_or(u32::MAX);
        Some(Self {
            pool: id,
            name: ctx.map.pool_name(id)?.to_owned(),
            mode: pool.autoscale_mode,
            root: root_id,
            capacity: root.capacity,
            logical_used,
            rate,
            bias,
            target_bytes,
            target_ratio,
            effective_ratio,
            capacity_ratio,
            pg_num: pool.pg_num_target,
            ideal,
            pg_num_final: nearest_power_of_two(ideal).max(least).min(most),
            bulk: pool.has_flag(pool_flags::BULK),
        })
    }

    fn would_adjust(&self) -> bool {
        let (now, then) = (f64::from(self.pg_num), f64::from(self.pg_num_final));
        self.mode != AutoscaleMode::OFF
            && (then > now * THRESHOLD || then < now / THRESHOLD)
            && (0.0..=1.0).contains(&self.capacity_ratio)
    }

    fn value(&self) -> Value {
        let raw_used = self.logical_used * self.rate;
        let share = |raw: f64| if self.capacity > 0 { raw / self.capacity as f64 } else { 0.0 };
        json!({
            "actual_capacity_ratio": share(raw_used),
            "actual_raw_used": raw_used,
            "bias": self.bias,
            "bulk": self.bulk,
            "capacity_ratio": self.capacity_ratio,
            "crush_root_id": self.root,
            "effective_target_ratio": self.effective_ratio,
            "logical_used": self.logical_used as u64,
            "pg_autoscale_mode": self.mode.name(),
            "pg_num_final": self.pg_num_final,
            "pg_num_ideal": self.ideal as u32,
            "pg_num_target": self.pg_num,
            "pool_id": self.pool.0,
            "pool_name": self.name,
            "raw_used": raw_used.max(self.target_bytes as f64 * self.rate),
            "raw_used_rate": self.rate,
            "subtree_capacity": self.capacity,
            "target_bytes": self.target_bytes,
            "target_ratio": self.target_ratio,
            "would_adjust": self.would_adjust(),
        })
    }

    fn cells(&self) -> [String; 13] {
        let when = |shown: bool, text: String| if shown { text } else { String::new() };
        [
            self.name.clone(),
            of_bytes(self.logical_used, 6),
            when(self.target_bytes > 0, of_bytes(self.target_bytes as f64, 6)),
            format!("{:.1}", self.rate),
            of_bytes(self.capacity as f64, 6),
            format!("{:.4}", self.capacity_ratio),
            when(self.target_ratio > 0.0, format!("{:.4}", self.target_ratio)),
            when(self.effective_ratio > 0.0, format!("{:.4}", self.effective_ratio)),
            format!("{:?}", self.bias),
            self.pg_num.to_string(),
            when(self.would_adjust(), self.pg_num_final.to_string()),
            self.mode.name().to_owned(),
            if self.bulk { "True" } else { "False" }.to_owned(),
        ]
    }
}

fn roots(ctx: &Ctx<'_>) -> BTreeMap<i32, Root> {
    let mut roots: BTreeMap<i32, Root> = BTreeMap::new();
    for pool in ctx.map.pools.values() {
        let Some(id) = root_of(ctx.map, pool) else { continue };
        let root = roots.entry(id).or_insert_with(|| {
            let osds = ctx.map.crush.leaves(id);
            let stats = osds.iter().filter_map(|o| ctx.pgs.osds.get(&OsdId(*o)));
            let capacity = stats.fold(0u64, |sum, r| sum.wrapping_add(r.stat.statfs.total >> 10 << 10));
            Root { capacity, osds: osds.len() as u32, ..Root::default() }
        });
        root.target_ratios += float(pool, "target_size_ratio");
        root.target_bytes += float(pool, "target_size_bytes") * raw_rate(ctx.map, pool);
    }
    roots
}

fn status(ctx: &mut Ctx<'_>) -> Reply {
    let (sums, roots) = (Sums::of(ctx.pgs), roots(ctx));
    let rows = ctx.map.pools.iter().filter_map(|(id, pool)| Row::new(ctx, &sums, &roots, *id, pool));
    let rows: Vec<Row> = rows.collect();
    match ctx.format {
        Format::Plain => {
            let mut table = PrettyTable::new(&COLUMNS);
            rows.iter().for_each(|r| table.row(r.cells()));
            Reply::text(table.render())
        }
        // Other formats get it indented, all of them.
        _ => Reply::json(Format::JsonPretty, &rows.iter().map(Row::value).collect()),
    }
}

const COLUMNS: [(&str, bool); 13] = [
    ("POOL", false),
    ("SIZE", true),
    ("TARGET SIZE", true),
    ("RATE", true),
    ("RAW CAPACITY", true),
    ("RATIO", true),
    ("TARGET RATIO", true),
    ("EFFECTIVE RATIO", true),
    ("BIAS", true),
    ("PG_NUM", true),
    ("NEW PG_NUM", true),
    ("AUTOSCALE", false),
    ("BULK", false),
];

#[cfg(test)]
mod tests {
    use super::*;

    /// Layers whose `k` is -1 in the map, as Ceph stores it.
    const LAYERS: [(&str, &str); 4] = [
        ("plugin", "lrc"),
        ("k", "-1"),
        ("mapping", "DD__DD__"),
        ("layers", r#"[["DDc_DDc_"],["DDDc____"],["____DDDc"]]"#),
    ];

    fn check(words: &[(&str, &str)], size: u8, want: f64) {
        let mut map =
            OsdMap::new_cluster(Default::default(), Default::default(), crush::CrushMap::new_default());
        let values = words.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        map.erasure_code_profiles.insert("p".to_owned(), values);
        let mut pool = Pool::new(maps::PoolType::Erasure, 8);
        pool.size = size;
        pool.erasure_code_profile = "p".to_owned();
        assert_eq!(raw_rate(&map, &pool), want, "{words:?}");
    }

    #[test]
    fn a_code_takes_all_its_chunks_by_those_with_data() {
        check(&[("plugin", "jerasure"), ("technique", "reed_sol_van"), ("k", "4"), ("m", "2")], 6, 1.5);
        check(&[("plugin", "lrc"), ("k", "4"), ("m", "2"), ("l", "3")], 8, 2.0);
        check(&LAYERS, 8, 2.0);
        // A code that is not built here.
        check(&[("plugin", "shec"), ("k", "4"), ("m", "3"), ("c", "2")], 7, 1.75);
    }

    #[test]
    fn powers_of_two_are_rounded_to_the_nearer_one() {
        let got = [0.0, 0.9, 1.0, 2.9, 3.1, 5.9, 6.1, 100.0, 1e12].map(nearest_power_of_two);
        assert_eq!(got, [0, 0, 1, 2, 4, 4, 8, 128, 1 << 30]);
    }
}
