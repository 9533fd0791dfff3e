//! `osd df`: use of each OSD's store, flat or along the CRUSH tree.
//!
//! Source: OSDUtilizationDumper in src/osd/OSDMap.cc, dump_item_fields in src/crush/CrushTreeDumper.h.

use std::collections::BTreeSet;

use crush::{CrushMap, DEFAULT_CHOOSE_ARGS, WalkItem, weight_to_f32};
use maps::OsdMap;
use messages::stats::{OsdStat, StoreStatfs};
use monitor::command::{Format, Reply};
use monitor::text::units::{bytes, bytes_signed, weight};
use serde_json::{Map, Value, json};
use types::{Errno, OsdId, PoolId};

use crate::command::{Command, Ctx};
use crate::dump::merge;
use crate::sums::{Sums, add_osd_stat};
use crate::text::table;

pub(super) const COMMANDS: &[Command] = &[Command::new(
    "osd df name=output_method,type=CephChoices,strings=plain|tree,req=false \
     name=filter_by,type=CephChoices,strings=class|name,req=false name=filter,type=CephString,req=false",
    "show OSD utilization",
    "osd",
    "r",
    osd_df,
)];

/// Buckets lie at most this deep in each other.
const MAX_DEPTH: usize = 64;

fn osd_df(ctx: &mut Ctx<'_>) -> Reply {
    let filter = ctx.args.text_or_empty("filter");
    let crush = &ctx.map.crush;
    let known = ctx.map.pool_by_name(filter).is_some()
        || crush.class_id(filter).is_some()
        || crush.item_id(filter).is_some();
    if !filter.is_empty() && !known {
        let text = format!("'{filter}' not a pool, crush node or device class name");
        return Reply::error(Errno::EINVAL, text);
    }
    let tree = ctx.args.text("output_method") == Some("tree");
    let df = Df::new(ctx, Filter::new(ctx.map, filter));
    match ctx.format {
        Format::Plain => Reply::text(df.plain(tree)),
        format => Reply::json(format, &df.value(tree)),
    }
}

/// Which items are shown.
#[derive(Default)]
struct Filter {
    /// Everything when empty.
    allowed: BTreeSet<i32>,
    class: Option<i32>,
}

impl Filter {
    /// The name of a bucket or device goes before that of a class, and that before a pool's.
    fn new(map: &OsdMap, name: &str) -> Self {
        let crush = &map.crush;
        let mut allowed = BTreeSet::new();
        let mut below = |root: i32| {
            allowed.insert(root);
            allowed.extend(crush.descendants(root));
        };
        if name.is_empty() {
            return Self::default();
        }
        if let Some(item) = crush.item_id(name) {
            below(item);
        } else if let Some(class) = crush.class_id(name) {
            return Self { class: Some(class), ..Self::default() };
        } else if let Some(pool) = map.pool_by_name(name).and_then(|id| map.pool(id)) {
            let rule = crush.rule(u32::from(pool.crush_rule));
            rule.into_iter().flat_map(crush::Rule::takes).for_each(&mut below);
        }
        Self { allowed, class: None }
    }

    fn shows(&self, crush: &CrushMap, id: i32) -> bool {
        let in_class = || crush.device_classes.get(&id).copied() == self.class;
        (self.allowed.is_empty() || self.allowed.contains(&id))
            && (id < 0 || self.class.is_none() || in_class())
    }

    fn is_everything(&self) -> bool {
        self.allowed.is_empty() && self.class.is_none()
    }
}

/// Numbers of one line, in KiB.
#[derive(Debug, Clone, Copy, Default)]
struct Use {
    kb: u64,
    used: u64,
    data: i64,
    omap: i64,
    meta: i64,
    avail: u64,
}

impl Use {
    fn of(fs: &StoreStatfs) -> Self {
        Self {
            kb: fs.total >> 10,
            used: fs.used_raw() >> 10,
            data: fs.allocated >> 10,
            omap: fs.omap_allocated >> 10,
            meta: fs.internal_metadata >> 10,
            avail: fs.available >> 10,
        }
    }

    fn add(&mut self, o: Self) {
        self.kb = self.kb.wrapping_add(o.kb);
        self.used = self.used.wrapping_add(o.used);
        self.data = self.data.wrapping_add(o.data);
        self.omap = self.omap.wrapping_add(o.omap);
        self.meta = self.meta.wrapping_add(o.meta);
        self.avail = self.avail.wrapping_add(o.avail);
    }

    fn percent(&self) -> f64 {
        if self.kb > 0 { 100.0 * self.used as f64 / self.kb as f64 } else { 0.0 }
    }
}

struct Line {
    item: WalkItem,
    reweight: f32,
    usage: Use,
    percent: f64,
    var: f64,
    pgs: u32,
}

struct Df<'a> {
    ctx: &'a Ctx<'a>,
    filter: Filter,
    /// Of the OSDs that are shown and in.
    average: f64,
    lines: Vec<Line>,
    /// OSDs outside the tree.
    stray: Vec<Line>,
    sum: OsdStat,
    min_var: f64,
    max_var: f64,
    deviation: f64,
}

impl<'a> Df<'a> {
    fn new(ctx: &'a Ctx<'a>, filter: Filter) -> Self {
        let mut df = Df {
            ctx,
            filter,
            average: 0.0,
            lines: Vec::new(),
            stray: Vec::new(),
            sum: OsdStat::default(),
            min_var: -1.0,
            max_var: -1.0,
            deviation: 0.0,
        };
        df.average = df.average_use();
        let sums = Sums::of(ctx.pgs);
        let items: Vec<WalkItem> = ctx.map.crush.walk(false).collect();
        let seen: BTreeSet<i32> = items.iter().map(|i| i.id).collect();
        let stray = ctx.map.existing_osds().filter(|(id, _)| !seen.contains(&id.0));
        let stray: Vec<WalkItem> = stray
            .map(|(id, _)| WalkItem { id: id.0, parent: 0, depth: 0, weight: 0, children: Vec::new() })
            .collect();
        df.lines = items.into_iter().filter_map(|i| df.line(i, &sums)).collect();
        df.stray = stray.into_iter().filter_map(|i| df.line(i, &sums)).collect();
        df.summarize(&sums);
        df
    }

    fn stat(&self, osd: i32) -> Option<Use> {
        let report = self.ctx.pgs.osds.get(&OsdId(osd))?;
        Some(Use::of(&report.stat.statfs))
    }

    fn average_use(&self) -> f64 {
        let mut sum = Use::default();
        for (id, _) in self.ctx.map.existing_osds() {
            if self.ctx.map.weight(id.0) != 0 && self.filter.shows(&self.ctx.map.crush, id.0) {
                self.stat(id.0).filter(|u| u.kb > 0).into_iter().for_each(|u| sum.add(u));
            }
        }
        sum.percent()
    }

    /// What an item uses, and whether that is known of everything below it.
    fn usage(&self, id: i32, depth: usize) -> (bool, Use) {
        let crush = &self.ctx.map.crush;
        let mut sum = Use::default();
        if id >= 0 {
            if self.ctx.map.is_out(id) || !self.filter.shows(crush, id) {
                return (true, sum);
            }
            let usage = self.stat(id).unwrap_or_default();
            return (usage.kb > 0, usage);
        }
        if depth > MAX_DEPTH {
            return (false, sum);
        }
        for item in crush.children(id).iter().rev() {
            let (known, usage) = self.usage(*item, depth + 1);
            if !known {
                return (false, sum);
            }
            sum.add(usage);
        }
        (sum.kb > 0, sum)
    }

    fn line(&self, item: WalkItem, sums: &Sums) -> Option<Line> {
        if !self.filter.shows(&self.ctx.map.crush, item.id) {
            return None;
        }
        let (known, usage) = self.usage(item.id, 0);
        let percent = if known { usage.percent() } else { 0.0 };
        let var = if self.average != 0.0 { percent / self.average } else { 1.0 };
        let is_bucket = item.id < 0;
        let reweight = if is_bucket { -1.0 } else { self.ctx.map.weight_f32(item.id) };
        let pgs = if is_bucket { 0 } else { sums.osd_pgs(item.id).acting };
        Some(Line { item, reweight, usage, percent, var, pgs })
    }

    fn summarize(&mut self, sums: &Sums) {
        let osds = || self.lines.iter().chain(&self.stray).filter(|l| l.item.id >= 0);
        let (mut square, mut weight, mut min, mut max) = (0.0, 0.0, -1.0, -1.0);
        for l in osds().filter(|l| l.reweight > 0.0) {
            min = if min < 0.0 || l.var < min { l.var } else { min };
            max = if max < 0.0 || l.var > max { l.var } else { max };
            square += f64::from(l.reweight) * (l.percent - self.average).powi(2);
            weight += f64::from(l.reweight);
        }
        let mut sum = OsdStat::default();
        let shown: Vec<i32> = osds().map(|l| l.item.id).collect();
        if self.filter.is_everything() || shown.is_empty() {
            sum = sums.osds.clone();
        } else {
            for report in shown.iter().filter_map(|id| self.ctx.pgs.osds.get(&OsdId(*id))) {
                add_osd_stat(&mut sum, &report.stat);
            }
        }
        self.sum = sum;
        (self.min_var, self.max_var) = (min, max);
        self.deviation = if weight > 0.0 { (square / weight).sqrt() } else { 0.0 };
    }

    fn status(&self, osd: i32) -> &'static str {
        match () {
            () if self.ctx.map.is_up(osd) => "up",
            () if self.ctx.map.is_destroyed(osd) => "destroyed",
            () => "down",
        }
    }

    fn shown(&self, tree: bool) -> impl Iterator<Item = &Line> {
        self.lines.iter().filter(move |l| tree || l.item.id >= 0)
    }

    fn plain(&self, tree: bool) -> String {
        let mut table = table(&[], HEADINGS);
        if tree {
            table = table.left("TYPE NAME");
        }
        for line in self.shown(tree).chain(&self.stray) {
            let mut row = self.row(line);
            if tree {
                row.push(self.tree_name(&line.item));
            }
            table.row(row);
        }
        let fs = &self.sum.statfs;
        table.row([
            String::new(),
            String::new(),
            String::new(),
            "TOTAL".to_owned(),
            bytes(fs.total),
            bytes(fs.used_raw()),
            bytes_signed(fs.allocated),
            bytes_signed(fs.omap_allocated),
            bytes_signed(fs.internal_metadata),
            bytes(fs.available),
            short(self.average),
        ]);
        let (min, max, dev) = (short(self.min_var), short(self.max_var), short(self.deviation));
        format!("{}MIN/MAX VAR: {min}/{max}  STDDEV: {dev}\n", table.render())
    }

    fn row(&self, l: &Line) -> Vec<String> {
        let (id, u) = (l.item.id, &l.usage);
        let kb = |v: u64| bytes(v.wrapping_mul(1024));
        let kb_signed = |v: i64| bytes_signed(v.wrapping_mul(1024));
        let (pgs, status) = if id < 0 { ("-".to_owned(), "") } else { (l.pgs.to_string(), self.status(id)) };
        vec![
            id.to_string(),
            self.ctx.map.crush.item_class(id).unwrap_or_default().to_owned(),
            weight(weight_to_f32(l.item.weight)),
            weight(l.reweight),
            kb(u.kb),
            kb(u.used),
            kb_signed(u.data),
            kb_signed(u.omap),
            kb_signed(u.meta),
            kb(u.avail),
            short(l.percent),
            short(l.var),
            pgs,
            status.to_owned(),
        ]
    }

    fn tree_name(&self, item: &WalkItem) -> String {
        let indent = "    ".repeat(item.depth);
        if item.id >= 0 {
            return format!("{indent}osd.{}", item.id);
        }
        let crush = &self.ctx.map.crush;
        let kind = crush.bucket(item.id).and_then(|b| crush.type_name(i32::from(b.type_id)));
        format!("{indent}{} {}", kind.unwrap_or_default(), crush.item_name(item.id).unwrap_or_default())
    }

    fn value(&self, tree: bool) -> Value {
        let fs = &self.sum.statfs;
        json!({
            "nodes": self.shown(tree).map(|l| self.node(l)).collect::<Vec<_>>(),
            "stray": self.stray.iter().map(|l| self.node(l)).collect::<Vec<_>>(),
            "summary": {
                "total_kb": fs.total >> 10,
                "total_kb_used": fs.used_raw() >> 10,
                "total_kb_used_data": fs.allocated >> 10,
                "total_kb_used_omap": fs.omap_allocated >> 10,
                "total_kb_used_meta": fs.internal_metadata >> 10,
                "total_kb_avail": fs.available >> 10,
                "average_utilization": self.average,
                "min_var": self.min_var,
                "max_var": self.max_var,
                "dev": self.deviation,
            },
        })
    }

    fn node(&self, l: &Line) -> Value {
        let (id, u) = (l.item.id, &l.usage);
        let mut node = item_fields(self.ctx.map, &l.item);
        let numbers = json!({
            "reweight": f64::from(l.reweight),
            "kb": u.kb,
            "kb_used": u.used,
            "kb_used_data": u.data,
            "kb_used_omap": u.omap,
            "kb_used_meta": u.meta,
            "kb_avail": u.avail,
            "utilization": l.percent,
            "var": l.var,
            "pgs": l.pgs,
        });
        node = merge(node, numbers);
        match id < 0 {
            true => merge(node, json!({ "children": l.item.children })),
            false => merge(node, json!({ "status": self.status(id) })),
        }
    }
}

const HEADINGS: [&str; 14] = [
    "ID", "CLASS", "WEIGHT", "REWEIGHT", "SIZE", "RAW USE", "DATA", "OMAP", "META", "AVAIL", "%USE", "VAR",
    "PGS", "STATUS",
];

/// Two decimals, `-` below zero. Source: lowprecision_t.
fn short(v: f64) -> String {
    let v = v as f32;
    if v < -0.01 {
        "-".to_owned()
    } else if v < 0.001 {
        "0".to_owned()
    } else {
        format!("{v:.2}")
    }
}

/// What all dumps of the CRUSH tree have of an item.
fn item_fields(map: &OsdMap, item: &WalkItem) -> Value {
    let (crush, id) = (&map.crush, item.id);
    let mut out = Map::new();
    out.insert("id".to_owned(), id.into());
    if let Some(class) = crush.item_class(id) {
        out.insert("device_class".to_owned(), class.into());
    }
    let fields = match crush.bucket(id) {
        Some(bucket) => {
            let type_id = i32::from(bucket.type_id);
            json!({ "name": crush.item_name(id), "type": crush.type_name(type_id), "type_id": type_id })
        }
        None => json!({
            "name": format!("osd.{id}"),
            "type": crush.type_name(0),
            "type_id": 0,
            "crush_weight": f64::from(weight_to_f32(item.weight)),
            "depth": item.depth,
        }),
    };
    let mut value = merge(Value::Object(out), fields);
    if item.parent < 0 {
        value = merge(value, json!({ "pool_weights": pool_weights(map, item) }));
    }
    value
}

/// The item's weights in the weight sets of pools.
fn pool_weights(map: &OsdMap, item: &WalkItem) -> Value {
    let mut out = Map::new();
    let Some(position) = map.crush.bucket(item.parent).and_then(|b| b.position(item.id)) else {
        return Value::Object(out);
    };
    for (id, args) in &map.crush.choose_args {
        let Some(arg) = args.get(item.parent).filter(|a| !a.weight_sets.is_empty()) else { continue };
        let name = match *id {
            DEFAULT_CHOOSE_ARGS => "(compat)".to_owned(),
            id => map.pool_name(PoolId(id)).map_or_else(|| id.to_string(), ToOwned::to_owned),
        };
        let weights = arg.weight_sets.iter().filter_map(|set| set.get(position));
        out.insert(name, weights.map(|w| f64::from(weight_to_f32(*w))).collect());
    }
    Value::Object(out)
}
