//! The hierarchy depth first, in the order of `ceph osd tree`.
//!
//! Source: src/crush/CrushTreeDumper.h.

use std::collections::BTreeMap;

use crate::CrushMap;

/// Items a walk yields at most: buckets that share children many times over would otherwise make it endless.
const WALK_LIMIT: usize = 1 << 20;

/// One line of the tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WalkItem {
    pub id: i32,
    /// The bucket above; 0 for roots.
    pub parent: i32,
    pub depth: usize,
    /// Weight (16.16) in the bucket above; of a root its own.
    pub weight: u32,
    /// In the order the JSON forms list them: the reverse of the order in which the walk yields them.
    pub children: Vec<i32>,
}

/// An iterator over a map's trees; see [`CrushMap::walk`].
#[derive(Debug, Clone)]
pub struct Walk<'a> {
    map: &'a CrushMap,
    /// Items to yield, the next one last.
    open: Vec<WalkItem>,
    left: usize,
}

impl CrushMap {
    /// Walks all trees, lowest root id first; shadow trees only `with_shadow`. Below a bucket, devices come by class
    /// and number and buckets by name.
    pub fn walk(&self, with_shadow: bool) -> Walk<'_> {
        self.walk_from(if with_shadow { self.roots() } else { self.nonshadow_roots() })
    }

    /// Walks the trees below some buckets.
    pub fn walk_from(&self, roots: impl IntoIterator<Item = i32>) -> Walk<'_> {
        let root = |id| {
            let weight = self.bucket(id).map_or(0, |b| b.weight);
            WalkItem { id, parent: 0, depth: 0, weight, children: Vec::new() }
        };
        let mut open: Vec<_> = roots.into_iter().map(root).collect();
        open.reverse();
        Walk { map: self, open, left: WALK_LIMIT }
    }

    fn sort_key(&self, item: i32) -> String {
        if item >= 0 {
            format!("{}_osd.{item:08}", self.item_class(item).unwrap_or_default())
        } else {
            format!("_{}", self.item_name(item).unwrap_or_default())
        }
    }
}

impl Iterator for Walk<'_> {
    type Item = WalkItem;

    fn next(&mut self) -> Option<WalkItem> {
        self.left = self.left.checked_sub(1)?;
        let mut item = self.open.pop()?;
        if let Some(bucket) = self.map.bucket(item.id) {
            let keyed =
                bucket.weighted_items().map(|(child, weight)| (self.map.sort_key(child), (child, weight)));
            // Equal keys fall together, and the first of them in the bucket stays.
            let sorted: BTreeMap<_, _> = keyed.collect::<Vec<_>>().into_iter().rev().collect();
            for (child, weight) in sorted.into_values().rev() {
                item.children.push(child);
                let depth = item.depth + 1;
                self.open.push(WalkItem { id: child, parent: item.id, depth, weight, children: Vec::new() });
            }
        }
        Some(item)
    }
}
