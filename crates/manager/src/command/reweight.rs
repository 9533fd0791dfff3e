//! `osd reweight-by-utilization`, `osd reweight-by-pg` and their dry runs.
//!
//! Source: reweight::by_utilization in src/mon/PGMap.cc, OSDMap::summarize_mapping_stats in src/osd/OSDMap.cc.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use crush::weight_to_f32;
use maps::OsdMap;
use monitor::command::{Format, Reply};
use monitor::text::json::general;
use serde_json::{Map, Value, json};
use types::{Errno, PgId, PoolId};

use crate::command::{Command, Ctx};
use crate::dump::merge;
use crate::sums::Sums;

pub(super) const COMMANDS: &[Command] = &[
    Command::new(
        "osd reweight-by-utilization name=oload,type=CephInt,req=false name=max_change,type=CephFloat,req=false \
         name=max_osds,type=CephInt,req=false name=no_increasing,type=CephChoices,strings=--no-increasing,req=false",
        "reweight OSDs by utilization [overload-percentage-for-consideration, default 120]",
        "osd",
        "rw",
        |ctx| reweight(ctx, false, false),
    ),
    Command::new(
        "osd test-reweight-by-utilization name=oload,type=CephInt,req=false name=max_change,type=CephFloat,req=false \
         name=max_osds,type=CephInt,req=false name=no_increasing,type=CephBool,req=false",
        "dry run of reweight OSDs by utilization [overload-percentage-for-consideration, default 120]",
        "osd",
        "r",
        |ctx| reweight(ctx, false, true),
    ),
    Command::new(
        "osd reweight-by-pg name=oload,type=CephInt,req=false name=max_change,type=CephFloat,req=false \
         name=max_osds,type=CephInt,req=false name=pools,type=CephPoolname,n=N,req=false",
        "reweight OSDs by PG distribution [overload-percentage-for-consideration, default 120]",
        "osd",
        "rw",
        |ctx| reweight(ctx, true, false),
    ),
    Command::new(
        "osd test-reweight-by-pg name=oload,type=CephInt,req=false name=max_change,type=CephFloat,req=false \
         name=max_osds,type=CephInt,req=false name=pools,type=CephPoolname,n=N,req=false",
        "dry run of reweight OSDs by PG distribution [overload-percentage-for-consideration, default 120]",
        "osd",
        "r",
        |ctx| reweight(ctx, true, true),
    ),
];

const ONE: u32 = 0x10000;

/// How much each OSD has to do with: PGs per CRUSH weight, or the share of its store in use.
struct Load {
    average: f64,
    by_osd: Vec<(i32, f32)>,
}

/// One OSD's weights (16.16).
#[derive(Debug, Clone, Copy, PartialEq)]
struct Change {
    osd: i32,
    from: u32,
    to: u32,
}

struct Limits {
    oload: i64,
    max_change: f64,
    max_osds: i64,
    no_increasing: bool,
}

fn reweight(ctx: &mut Ctx<'_>, by_pg: bool, dry_run: bool) -> Reply {
    let mut pools = BTreeSet::new();
    for name in ctx.args.list("pools") {
        match ctx.map.pool_by_name(&name) {
            Some(pool) => pools.insert(pool),
            None => return Reply::error(Errno::ENOENT, format!("pool '{name}' does not exist")),
        };
    }
    let max_change = ctx.args.float("max_change");
    let limits = Limits {
        oload: ctx.args.int("oload").unwrap_or(120),
        max_change: max_change.unwrap_or_else(|| ctx.options.float("mon_reweight_max_change")),
        max_osds: ctx.args.int("max_osds").unwrap_or_else(|| ctx.options.int("mon_reweight_max_osds")),
        no_increasing: ctx.args.flag("no_increasing") || ctx.args.text("no_increasing").is_some(),
    };
    if limits.max_change <= 0.0 {
        let text = format!("max_change {} must be positive", general(limits.max_change, 6));
        return Reply::error(Errno::EINVAL, text);
    }
    if limits.max_osds <= 0 {
        return Reply::error(Errno::EINVAL, format!("max_osds {} must be positive", limits.max_osds));
    }
    if limits.oload <= 100 {
        let text = "You must give a percentage higher than 100. The reweighting threshold will be calculated as \
                    <average-utilization> times <input-percentage>. For example, an argument of 200 would reweight OSDs \
                    which are twice as utilized as the average OSD.\nFAILED reweight-by-pg";
        return Reply::error(Errno::EINVAL, text);
    }
    let load = if by_pg { load_by_pg(ctx, &pools) } else { load_by_use(ctx) };
    let load = match load {
        Ok(load) => load,
        Err(why) => return Reply::error(Errno::EDOM, format!("{why}\nFAILED reweight-by-pg")),
    };
    let changes = changes(ctx.map, &load, &limits);
    let mapping = Mapping::compare(ctx.map, &changes, &pools);
    let data = match ctx.format {
        Format::Plain => Reply::text(plain(&limits, &load, &changes, mapping.as_ref())),
        format => Reply::json(format, &value(&limits, &load, &changes, mapping.as_ref())),
    };
    if dry_run || changes.is_empty() {
        let code = i32::try_from(changes.len()).unwrap_or(i32::MAX);
        return Reply { code, ..data }.with_outs("no change");
    }
    let weights: BTreeMap<String, String> =
        changes.iter().map(|c| (c.osd.to_string(), c.to.to_string())).collect();
    let weights = json!(weights).to_string().replace('"', "'");
    ctx.ask_monitors_after(data.data, &json!({ "prefix": "osd reweightn", "weights": weights }), Bytes::new())
}

fn crush_weight(map: &OsdMap, osd: i32) -> f32 {
    map.crush.item_weight(osd).map_or(0.0, weight_to_f32)
}

fn load_by_pg(ctx: &Ctx<'_>, pools: &BTreeSet<PoolId>) -> Result<Load, String> {
    let mut pgs: BTreeMap<i32, u32> = BTreeMap::new();
    let mut copies = 0u32;
    for (pg, stat) in &ctx.pgs.pgs {
        if !pools.is_empty() && !pools.contains(&pg.pool) {
            continue;
        }
        for osd in stat.acting.iter().filter(|o| ctx.map.exists(**o) && crush_weight(ctx.map, **o) > 0.0) {
            *pgs.entry(*osd).or_default() += 1;
            copies += 1;
        }
    }
    let osds = pgs.len() as u32;
    let least = ctx.options.int("mon_reweight_min_pgs_per_osd");
    if osds == 0 || i64::from(copies / osds) < least {
        return Err(format!("Refusing to reweight: we only have {copies} PGs across {osds} osds!"));
    }
    let weights: f64 = pgs.keys().map(|o| f64::from(crush_weight(ctx.map, *o))).sum();
    let by_osd =
        ctx.pgs.osds.keys().filter_map(|o| Some((o.0, *pgs.get(&o.0)? as f32 / crush_weight(ctx.map, o.0))));
    Ok(Load { average: f64::from(copies) / weights, by_osd: by_osd.collect() })
}

fn load_by_use(ctx: &Ctx<'_>) -> Result<Load, String> {
    let fs = Sums::of(ctx.pgs).osds.statfs;
    let osds = ctx.pgs.osds.len().max(1) as u64;
    let least = u64::try_from(ctx.options.int("mon_reweight_min_bytes_per_osd")).unwrap_or(0);
    if fs.total / osds < least {
        return Err(format!("Refusing to reweight: we only have {} kb across all osds!", fs.total >> 10));
    }
    if fs.used_raw() / osds < least {
        return Err(format!(
            "Refusing to reweight: we only have {} kb used across all osds!",
            fs.used_raw() >> 10
        ));
    }
    let share = |fs: &messages::stats::StoreStatfs| fs.used_raw() as f64 / fs.total as f64;
    let by_osd = ctx.pgs.osds.iter().map(|(osd, r)| (osd.0, share(&r.stat.statfs) as f32));
    Ok(Load { average: share(&fs), by_osd: by_osd.collect() })
}

/// New weights for those that are furthest from the average: lower ones only above the threshold, higher ones wherever
/// there is room.
fn changes(map: &OsdMap, load: &Load, limits: &Limits) -> Vec<Change> {
    let overload = load.average * limits.oload as f64 / 100.0;
    let max_change = (limits.max_change * f64::from(ONE)) as u32;
    let distance = |util: f32| (f64::from(util) - load.average).abs();
    let mut by_osd = load.by_osd.clone();
    by_osd.sort_by(|a, b| distance(b.1).total_cmp(&distance(a.1)));
    let mut out = Vec::new();
    for (osd, util) in by_osd {
        let from = map.weight(osd);
        let ideal = (load.average / f64::from(util) * f64::from(from as f32)) as u32;
        let to = match f64::from(util) {
            _ if from == 0 => continue,
            util if util >= overload => ideal.max(from.saturating_sub(max_change)),
            util if !limits.no_increasing && util <= load.average => {
                let to = ideal.min(from.saturating_add(max_change)).min(ONE);
                if to <= from {
                    continue;
                }
                to
            }
            _ => continue,
        };
        out.push(Change { osd, from, to });
        if out.len() as i64 >= limits.max_osds {
            break;
        }
    }
    out
}

/// The OSD with the fewest or most PGs, how many, and how many then.
type Extreme = (i32, u32, u32);

/// PGs per OSD before and after.
struct Mapping {
    moved: u32,
    total: u32,
    average: f32,
    deviation: f32,
    new_deviation: f32,
    expected: f32,
    min: Extreme,
    max: Extreme,
}

impl Mapping {
    /// `None` when no OSD is up and in.
    fn compare(map: &OsdMap, changes: &[Change], pools: &BTreeSet<PoolId>) -> Option<Self> {
        let mut new_map = map.clone();
        for change in changes {
            if let Some(weight) = usize::try_from(change.osd).ok().and_then(|i| new_map.weights.get_mut(i)) {
                *weight = change.to;
            }
        }
        let wanted = |pg: &PgId| pools.is_empty() || pools.contains(&pg.pool);
        let (mut before, mut after) = (maps::PgMapper::new(map), maps::PgMapper::new(&new_map));
        let mut counts: BTreeMap<i32, (u32, u32)> = BTreeMap::new();
        let (mut moved, mut total) = (0, 0);
        for pg in map.pgs().filter(wanted) {
            let Some(pool) = map.pool(pg.pool) else { continue };
            total += u32::from(pool.size);
            let (old, new) = (&before.map(pg).up, &after.map(pg).up);
            old.iter().for_each(|o| counts.entry(*o).or_default().0 += 1);
            new.iter().for_each(|o| counts.entry(*o).or_default().1 += 1);
            moved += match pool.is_erasure() {
                true => old.iter().zip(new).filter(|(a, b)| a != b).count() as u32,
                false => old.iter().filter(|o| !new.contains(o)).count() as u32,
            };
        }
        let live: Vec<i32> =
            map.existing_osds().map(|(id, _)| id.0).filter(|o| map.is_up(*o) && map.is_in(*o)).collect();
        if live.is_empty() {
            return None;
        }
        let n = live.len() as f32;
        let average = total as f32 / n;
        let (mut square, mut new_square) = (0f32, 0f32);
        let (mut min, mut max): (Option<Extreme>, Option<Extreme>) = (None, None);
        for osd in live {
            let (old, new) = counts.get(&osd).copied().unwrap_or_default();
            square += (old as f32 - average).powi(2);
            new_square += (new as f32 - average).powi(2);
            min = Some(min.filter(|m| m.1 <= old).unwrap_or((osd, old, new)));
            max = Some(max.filter(|m| m.1 >= old).unwrap_or((osd, old, new)));
        }
        Some(Self {
            moved,
            total,
            average,
            deviation: (square / n).sqrt(),
            new_deviation: (new_square / n).sqrt(),
            expected: (f64::from(average) * (1.0 - 1.0 / f64::from(n))).sqrt() as f32,
            min: min?,
            max: max?,
        })
    }

    fn plain(&self) -> String {
        let g = |v: f32| general(f64::from(v), 6);
        let percent = if self.total > 0 { self.moved as f32 * 100.0 / self.total as f32 } else { 0.0 };
        let line = |what: &str, (osd, old, new): Extreme| {
            let (a, b) = (g(old as f32 / self.average), g(new as f32 / self.average));
            format!("{what} osd.{osd} with {old} -> {new} pgs ({a} -> {b} * mean)\n")
        };
        format!(
            "moved {} / {} ({}%)\navg {}\nstddev {} -> {} (expected baseline {})\n{}{}",
            self.moved,
            self.total,
            g(percent),
            g(self.average),
            g(self.deviation),
            g(self.new_deviation),
            g(self.expected),
            line("min", self.min),
            line("max", self.max),
        )
    }

    fn value(&self) -> Value {
        json!({
            "moved_pgs": self.moved,
            "total_pgs": self.total,
            "avg_pgs": f64::from(self.average),
            "std_dev": f64::from(self.deviation),
            "expected_baseline_std_dev": f64::from(self.expected),
            "new_std_dev": f64::from(self.new_deviation),
            "min_osd": self.min.0,
            "min_osd_pgs": self.min.1,
            "new_min_osd_pgs": self.min.2,
            "max_osd": self.max.0,
            "max_osd_pgs": self.max.1,
            "new_max_osd_pgs": self.max.2,
        })
    }
}

fn overload(limits: &Limits, load: &Load) -> f64 {
    load.average * limits.oload as f64 / 100.0
}

fn weight(weight: u32) -> f64 {
    f64::from(weight as f32 / ONE as f32)
}

fn plain(limits: &Limits, load: &Load, changes: &[Change], mapping: Option<&Mapping>) -> String {
    let mut out = mapping.map(Mapping::plain).unwrap_or_default();
    out += &format!(
        "\noload {}\nmax_change {}\nmax_change_osds {}\naverage_utilization {:.4}\noverload_utilization {:.4}\n",
        limits.oload,
        general(limits.max_change, 6),
        limits.max_osds,
        load.average,
        overload(limits, load),
    );
    for c in changes {
        out += &format!("osd.{} weight {:.4} -> {:.4}\n", c.osd, weight(c.from), weight(c.to));
    }
    out
}

fn value(limits: &Limits, load: &Load, changes: &[Change], mapping: Option<&Mapping>) -> Value {
    let change = |c: &Change| json!({ "osd": c.osd, "weight": weight(c.from), "new_weight": weight(c.to) });
    let out = json!({
        "overload_min": limits.oload,
        "max_change": limits.max_change,
        "max_change_osds": limits.max_osds,
        "average_utilization": load.average,
        "overload_utilization": overload(limits, load),
        "reweights": changes.iter().map(change).collect::<Vec<_>>(),
    });
    let mapping = mapping.map_or(Value::Object(Map::new()), |m| json!({ "utilization": m.value() }));
    merge(out, mapping)
}
