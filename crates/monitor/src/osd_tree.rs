//! The tree of buckets and OSDs, as text and JSON: `osd tree`, `osd crush tree`.
//!
//! Source: src/crush/CrushTreeDumper.h, OSDTreePlainDumper in src/osd/OSDMap.cc, CrushTreePlainDumper in
//! src/crush/CrushWrapper.cc.

use std::collections::BTreeSet;

use crush::{CrushMap, DEFAULT_CHOOSE_ARGS, WalkItem, weight_to_f32};
use maps::OsdMap;
use serde_json::{Map, Value, json};
use types::PoolId;

use crate::text::table::{Align, TextTable};
use crate::text::units::weight;

/// Which OSDs are shown: those in any of the named states; all of them when none is named.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct TreeFilter {
    pub(crate) up: bool,
    pub(crate) down: bool,
    pub(crate) r#in: bool,
    pub(crate) out: bool,
    pub(crate) destroyed: bool,
}

impl TreeFilter {
    fn shows(&self, map: &OsdMap, osd: i32) -> bool {
        *self == Self::default()
            || self.up && map.is_up(osd)
            || self.down && map.is_down(osd)
            || self.r#in && map.is_in(osd)
            || self.out && map.is_out(osd)
            || self.destroyed && map.is_destroyed(osd)
    }
}

/// Lines of a tree, and the OSDs outside of it.
#[derive(Debug, Clone)]
pub(crate) struct Tree {
    nodes: Vec<WalkItem>,
    stray: Vec<WalkItem>,
    /// One subtree alone: nothing is stray.
    rooted: bool,
}

impl Tree {
    /// Of OSDs, from one bucket when one is given.
    pub(crate) fn of_osds(map: &OsdMap, root: Option<i32>, filter: TreeFilter) -> Self {
        let crush = &map.crush;
        let walk = match root {
            Some(root) => crush.walk_from([root]),
            None => crush.walk(false),
        };
        let mut nodes: Vec<WalkItem> = walk.collect();
        if filter != TreeFilter::default() {
            // Buckets are shown for what is in them.
            let shown = |item: &i32| match *item >= 0 {
                true => filter.shows(map, *item),
                false => crush.leaves(*item).iter().any(|osd| filter.shows(map, *osd)),
            };
            nodes.retain(|n| shown(&n.id));
            nodes.iter_mut().for_each(|n| n.children.retain(shown));
        }
        let candidates = (0..map.max_osd()).filter(|osd| map.exists(*osd) && filter.shows(map, *osd));
        Self { stray: strays(&nodes, candidates), nodes, rooted: root.is_some() }
    }

    /// Of the CRUSH map alone.
    pub(crate) fn of_crush(crush: &CrushMap, with_shadow: bool) -> Self {
        let nodes: Vec<WalkItem> = crush.walk(with_shadow).collect();
        let named = crush.item_names.keys().copied().filter(|item| *item >= 0);
        Self { stray: strays(&nodes, named), nodes, rooted: false }
    }

    /// `osd tree`.
    pub(crate) fn osd_text(&self, map: &OsdMap) -> String {
        let column = |t: TextTable, heading, align| t.column_headed(heading, Align::Left, align);
        let mut table = column(TextTable::new(), "ID", Align::Right);
        table = column(table, "CLASS", Align::Right);
        table = column(table, "WEIGHT", Align::Right);
        table = column(table, "TYPE NAME", Align::Left);
        for heading in ["STATUS", "REWEIGHT", "PRI-AFF"] {
            table = column(table, heading, Align::Right);
        }
        let stray: &[WalkItem] = if self.rooted { &[] } else { &self.stray };
        for item in self.nodes.iter().chain(stray) {
            let mut row = node_cells(&map.crush, item);
            row.push(node_name(&map.crush, item));
            if item.id >= 0 && !map.exists(item.id) {
                row.extend(["DNE".to_owned(), "0".to_owned()]);
            } else if item.id >= 0 {
                row.push(osd_status(map, item.id).to_owned());
                row.push(weight(map.weight_f32(item.id)));
                row.push(weight(map.primary_affinity_f32(item.id)));
            }
            table.row(row);
        }
        table.render()
    }

    /// `osd tree -f json`.
    pub(crate) fn osd_json(&self, map: &OsdMap) -> Value {
        self.json(|item| {
            let mut fields = node_json(map, &map.crush, item);
            if item.id >= 0 {
                fields.insert("exists".to_owned(), u8::from(map.exists(item.id)).into());
                fields.insert("status".to_owned(), osd_status(map, item.id).into());
                fields.insert("reweight".to_owned(), f64::from(map.weight_f32(item.id)).into());
                fields.insert(
                    "primary_affinity".to_owned(),
                    f64::from(map.primary_affinity_f32(item.id)).into(),
                );
            }
            fields
        })
    }

    /// `osd crush tree`. The OSD map gives weight sets their names.
    pub(crate) fn crush_text(&self, map: &OsdMap) -> String {
        let crush = &map.crush;
        let column = |t: TextTable, heading: &str| t.column_headed(heading, Align::Left, Align::Right);
        let mut table = ["ID", "CLASS", "WEIGHT"].into_iter().fold(TextTable::new(), column);
        for set in crush.choose_args.keys() {
            table = column(table, &weight_set_name(map, *set));
        }
        table = table.left("TYPE NAME");
        for item in &self.nodes {
            let mut row = node_cells(crush, item);
            for set in crush.choose_args.keys() {
                let first = set_weights(crush, *set, item).and_then(|w| w.first().copied());
                row.push(first.map(weight).unwrap_or_default());
            }
            row.push(node_name(crush, item));
            table.row(row);
        }
        table.render()
    }

    /// `osd crush tree -f json`.
    pub(crate) fn crush_json(&self, map: &OsdMap) -> Value {
        self.json(|item| node_json(map, &map.crush, item))
    }

    fn json(&self, fields: impl Fn(&WalkItem) -> Map<String, Value>) -> Value {
        let node = |item: &WalkItem| {
            let mut fields = fields(item);
            if item.id < 0 {
                fields.insert("children".to_owned(), json!(item.children));
            }
            Value::Object(fields)
        };
        let list = |items: &[WalkItem]| items.iter().map(node).collect::<Vec<_>>();
        match self.rooted {
            true => json!({ "nodes": list(&self.nodes) }),
            false => json!({ "nodes": list(&self.nodes), "stray": list(&self.stray) }),
        }
    }
}

/// OSDs that the tree does not hold.
fn strays(nodes: &[WalkItem], candidates: impl Iterator<Item = i32>) -> Vec<WalkItem> {
    let held: BTreeSet<i32> = nodes.iter().map(|n| n.id).collect();
    let item = |id| WalkItem { id, parent: 0, depth: 0, weight: 0, children: Vec::new() };
    candidates.filter(|osd| !held.contains(osd)).map(item).collect()
}

fn osd_status(map: &OsdMap, osd: i32) -> &'static str {
    if map.is_up(osd) {
        "up"
    } else if map.is_destroyed(osd) {
        "destroyed"
    } else {
        "down"
    }
}

fn type_name(crush: &CrushMap, item: i32) -> &str {
    crush.item_type(item).and_then(|t| crush.type_name(t)).unwrap_or_default()
}

/// ID, class and weight.
fn node_cells(crush: &CrushMap, item: &WalkItem) -> Vec<String> {
    let class = crush.item_class(item.id).unwrap_or_default();
    vec![item.id.to_string(), class.to_owned(), weight(weight_to_f32(item.weight))]
}

/// Type and name, moved in by the depth.
fn node_name(crush: &CrushMap, item: &WalkItem) -> String {
    let indent = "    ".repeat(item.depth);
    match item.id >= 0 {
        true => format!("{indent}osd.{}", item.id),
        false => {
            format!("{indent}{} {}", type_name(crush, item.id), crush.item_name(item.id).unwrap_or_default())
        }
    }
}

fn node_json(map: &OsdMap, crush: &CrushMap, item: &WalkItem) -> Map<String, Value> {
    let mut fields = Map::new();
    let mut put = |key: &str, value: Value| fields.insert(key.to_owned(), value);
    put("id", item.id.into());
    if let Some(class) = crush.item_class(item.id) {
        put("device_class", class.into());
    }
    if item.id < 0 {
        put("name", crush.item_name(item.id).into());
        put("type", type_name(crush, item.id).into());
        put("type_id", crush.item_type(item.id).into());
    } else {
        put("name", format!("osd.{}", item.id).into());
        put("type", crush.type_name(0).unwrap_or_default().into());
        put("type_id", 0.into());
        put("crush_weight", f64::from(weight_to_f32(item.weight)).into());
        put("depth", item.depth.into());
    }
    if item.parent < 0 {
        let sets = crush.choose_args.keys().filter_map(|set| {
            let weights: Vec<f64> = set_weights(crush, *set, item)?.into_iter().map(f64::from).collect();
            Some((weight_set_name(map, *set), json!(weights)))
        });
        put("pool_weights", Value::Object(sets.collect()));
    }
    fields
}

/// `(compat)`, or the pool's name.
pub(crate) fn weight_set_name(map: &OsdMap, set: i64) -> String {
    match set {
        DEFAULT_CHOOSE_ARGS => "(compat)".to_owned(),
        pool => map.pool_name(PoolId(pool)).map_or_else(|| pool.to_string(), ToOwned::to_owned),
    }
}

/// The weights of an item in a weight set, by position; `None` when the set has none for the bucket above.
fn set_weights(crush: &CrushMap, set: i64, item: &WalkItem) -> Option<Vec<f32>> {
    let parent = crush.bucket(item.parent)?;
    let arg = crush.choose_args.get(&set)?.get(item.parent)?;
    if arg.weight_sets.is_empty() {
        return None;
    }
    let at = parent.position(item.id)?;
    Some(arg.weight_sets.iter().filter_map(|w| w.get(at)).map(|w| weight_to_f32(*w)).collect())
}
