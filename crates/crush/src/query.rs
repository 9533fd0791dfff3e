//! Questions about names, types, classes and the shape of the hierarchy.
//!
//! Source: src/crush/CrushWrapper.cc, src/crush/CrushWrapper.h. Walks visit each bucket once, so that a map whose
//! buckets share children in many ways costs no more than its size.

use std::collections::{BTreeMap, BTreeSet};

use crate::{CrushMap, EditError, Step};

/// A place in the hierarchy: bucket name by type name, as `root=default host=a` gives it.
pub type Location = BTreeMap<String, String>;

/// Whether `name` may name a bucket, device, type or class: `[A-Za-z0-9_.-]+`. Shadow buckets have a `~` in their
/// names and so never are. Source: CrushWrapper::is_valid_crush_name.
pub fn is_valid_name(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'))
}

/// Reads `type=name` words. Source: CrushWrapper::parse_loc_map.
pub fn parse_location<'a>(words: impl IntoIterator<Item = &'a str>) -> Result<Location, EditError> {
    let pair = |word: &str| match word.split_once('=') {
        Some((type_name, name)) if !name.is_empty() => Ok((type_name.to_owned(), name.to_owned())),
        _ => Err(EditError::InvalidLocation(word.to_owned())),
    };
    words.into_iter().map(pair).collect()
}

/// A weight in 16.16 from one written in decimal, as Ceph computes it (in single precision); refused when it does not
/// fit 31 bits. Source: CrushWrapper::validate_weightf, adjust_item_weightf.
pub fn weight_from_f32(weight: f32) -> Result<u32, EditError> {
    let scaled = weight * 65536.0;
    if !(0.0..2_147_483_648.0).contains(&scaled) {
        return Err(EditError::WeightOverflow(scaled as u64));
    }
    Ok(scaled as u32)
}

/// A 16.16 weight as the number it stands for.
pub fn weight_to_f32(weight: u32) -> f32 {
    weight as f32 / 65536.0
}

fn id_of(names: &BTreeMap<i32, String>, name: &str) -> Option<i32> {
    names.iter().rev().find(|(_, n)| *n == name).map(|(id, _)| *id)
}

impl CrushMap {
    pub fn item_id(&self, name: &str) -> Option<i32> {
        id_of(&self.item_names, name)
    }

    pub fn item_name(&self, id: i32) -> Option<&str> {
        self.item_names.get(&id).map(String::as_str)
    }

    pub fn type_id(&self, name: &str) -> Option<i32> {
        id_of(&self.type_names, name)
    }

    pub fn type_name(&self, id: i32) -> Option<&str> {
        self.type_names.get(&id).map(String::as_str)
    }

    pub fn rule_id(&self, name: &str) -> Option<i32> {
        id_of(&self.rule_names, name)
    }

    pub fn rule_name(&self, id: i32) -> Option<&str> {
        self.rule_names.get(&id).map(String::as_str)
    }

    pub fn class_id(&self, name: &str) -> Option<i32> {
        id_of(&self.class_names, name)
    }

    pub fn class_name(&self, id: i32) -> Option<&str> {
        self.class_names.get(&id).map(String::as_str)
    }

    /// The device class of an item; shadow buckets have one too.
    pub fn item_class(&self, id: i32) -> Option<&str> {
        self.class_name(*self.device_classes.get(&id)?)
    }

    /// Devices of a class.
    pub fn devices_by_class(&self, name: &str) -> BTreeSet<i32> {
        let Some(class) = self.class_id(name) else { return BTreeSet::new() };
        self.device_classes.iter().filter(|(i, c)| **i >= 0 && **c == class).map(|(i, _)| *i).collect()
    }

    /// The level of an item: 0 for devices, `None` for buckets that do not exist.
    pub fn item_type(&self, id: i32) -> Option<i32> {
        if id >= 0 { Some(0) } else { self.bucket(id).map(|b| i32::from(b.type_id)) }
    }

    /// Whether `id` is the copy of a bucket for one device class.
    pub fn is_shadow(&self, id: i32) -> bool {
        self.item_name(id).is_some_and(|n| !is_valid_name(n))
    }

    /// The bucket behind a shadow bucket and its class, or the item itself and no class.
    /// Source: CrushWrapper::split_id_class.
    pub fn split_id_class(&self, id: i32) -> Option<(i32, Option<i32>)> {
        let name = self.item_name(id)?;
        match name.split_once('~') {
            None => Some((id, None)),
            Some((original, class)) => Some((self.item_id(original)?, Some(self.class_id(class)?))),
        }
    }

    /// Whether any bucket holds `item`.
    pub fn is_placed(&self, item: i32) -> bool {
        self.buckets.iter().flatten().any(|b| b.items.contains(&item))
    }

    /// Children of a bucket in the map's order; none for devices.
    pub fn children(&self, id: i32) -> &[i32] {
        self.bucket(id).map_or(&[], |b| b.items.as_slice())
    }

    /// The bucket that holds `item`, shadow trees aside. Source: CrushWrapper::get_immediate_parent_id.
    pub fn parent(&self, item: i32) -> Option<i32> {
        let mut holders = self.buckets.iter().flatten().filter(|b| b.items.contains(&item));
        holders.find(|b| !self.is_shadow(b.id)).map(|b| b.id)
    }

    /// The buckets above an item, nearest first, as type and name.
    /// Source: CrushWrapper::get_full_location_ordered.
    pub fn full_location_ordered(&self, item: i32) -> Vec<(String, String)> {
        let mut path = Vec::new();
        let mut at = item;
        while let Some(parent) = self.parent(at) {
            let kind = self.item_type(parent).and_then(|t| self.type_name(t)).unwrap_or_default();
            path.push((kind.to_owned(), self.item_name(parent).unwrap_or_default().to_owned()));
            at = parent;
        }
        path
    }

    pub fn full_location(&self, item: i32) -> Location {
        self.full_location_ordered(item).into_iter().collect()
    }

    /// The nearest bucket of a type above an item. Source: CrushWrapper::get_parent_of_type.
    pub fn parent_of_type(&self, item: i32, type_id: i32) -> Option<i32> {
        let above = std::iter::successors(self.parent(item), |at| self.parent(*at));
        above.into_iter().find(|at| self.item_type(*at) == Some(type_id))
    }

    /// Whether `item` is `root` or below it.
    pub fn subtree_contains(&self, root: i32, item: i32) -> bool {
        root == item || self.descendants(root).contains(&item)
    }

    /// Everything below `root`, itself excluded.
    pub fn descendants(&self, root: i32) -> BTreeSet<i32> {
        let mut seen = BTreeSet::new();
        let mut open = vec![root];
        while let Some(id) = open.pop() {
            for &child in self.children(id) {
                if seen.insert(child) && child < 0 {
                    open.push(child);
                }
            }
        }
        seen
    }

    /// Devices below `root`, or `root` when it is one.
    pub fn leaves(&self, root: i32) -> BTreeSet<i32> {
        if root >= 0 {
            return BTreeSet::from([root]);
        }
        self.descendants(root).into_iter().filter(|i| *i >= 0).collect()
    }

    /// Buckets (or devices, for type 0) of one type at or below `root`, shadow trees aside unless asked for.
    /// Source: CrushWrapper::get_children_of_type.
    pub fn children_of_type(&self, root: i32, type_id: i32, with_shadow: bool) -> BTreeSet<i32> {
        let mut all = self.descendants(root);
        all.insert(root);
        let wanted = |i: &i32| self.item_type(*i) == Some(type_id) && (with_shadow || !self.is_shadow(*i));
        all.into_iter().filter(wanted).collect()
    }

    /// Buckets that no bucket holds, lowest id first. Source: CrushWrapper::find_roots.
    pub fn roots(&self) -> Vec<i32> {
        let held: BTreeSet<i32> =
            self.buckets.iter().flatten().flat_map(|b| b.items.iter().copied()).collect();
        self.buckets.iter().rev().flatten().map(|b| b.id).filter(|id| !held.contains(id)).collect()
    }

    pub fn nonshadow_roots(&self) -> Vec<i32> {
        self.roots().into_iter().filter(|r| !self.is_shadow(*r)).collect()
    }

    pub fn shadow_roots(&self) -> Vec<i32> {
        self.roots().into_iter().filter(|r| self.is_shadow(*r)).collect()
    }

    /// Items that rules start from.
    pub fn takes(&self) -> BTreeSet<i32> {
        self.rules.iter().flatten().flat_map(|r| r.takes()).collect()
    }

    /// Weight (16.16) of a bucket, or of an item in the first bucket that holds it.
    /// Source: CrushWrapper::get_item_weight.
    pub fn item_weight(&self, id: i32) -> Option<u32> {
        let in_bucket = |b: &crate::Bucket| {
            if b.id == id { Some(b.weight) } else { b.position(id).map(|p| b.item_weight(p)) }
        };
        self.buckets.iter().flatten().find_map(in_bucket)
    }

    /// Weight (16.16) of an item in the buckets a location names.
    /// Source: CrushWrapper::get_item_weight_in_loc.
    pub fn item_weight_in(&self, id: i32, location: &Location) -> Option<u32> {
        let buckets = location.values().filter_map(|name| self.bucket(self.item_id(name)?));
        buckets.filter_map(|b| b.position(id).map(|p| b.item_weight(p))).next()
    }

    /// The item's weight (16.16) if it is in the lowest bucket that `location` names.
    /// Source: CrushWrapper::check_item_loc.
    pub fn weight_at(&self, item: i32, location: &Location) -> Option<u32> {
        let levels = self.type_names.iter().filter(|(id, _)| **id != 0);
        let lowest = levels.filter_map(|(_, name)| location.get(name)).next()?;
        let bucket = self.bucket(self.item_id(lowest)?)?;
        bucket.position(item).map(|p| bucket.item_weight(p))
    }

    /// The type of the lowest bucket that an item's location shares with `places`: type names with bucket names, any
    /// number of each. Source: CrushWrapper::get_common_ancestor_distance.
    pub fn common_ancestor_distance(&self, item: i32, places: &[(String, String)]) -> Option<i32> {
        let own = self.full_location(item);
        let shared =
            |name: &String| own.get(name).is_some_and(|b| places.iter().any(|(t, n)| t == name && n == b));
        self.type_names.iter().find(|(_, name)| shared(name)).map(|(id, _)| *id)
    }

    /// The rule of a ruleset that serves pools of this type and size. Source: crush_find_rule.
    pub fn find_rule(&self, ruleset: u32, rule_type: u8, size: usize) -> Option<u32> {
        let serves = |r: &crate::Rule| {
            let sizes = usize::from(r.min_size)..=usize::from(r.max_size);
            u32::from(r.ruleset) == ruleset && r.rule_type == rule_type && sizes.contains(&size)
        };
        let at = self.rules.iter().position(|r| r.as_ref().is_some_and(serves))?;
        u32::try_from(at).ok()
    }

    /// Each device's share (summing to 1) of what a rule places, by weight; devices that several takes reach add up.
    /// Source: CrushWrapper::get_rule_weight_osd_map.
    pub fn rule_weights(&self, rule: u32) -> BTreeMap<i32, f32> {
        let mut shares = BTreeMap::new();
        let Some(rule) = self.rule(rule) else { return shares };
        for take in rule.takes() {
            let mut weights = BTreeMap::new();
            if take >= 0 {
                weights.insert(take, 1.0);
            } else {
                self.add_leaf_weights(take, &mut weights);
            }
            let sum: f32 = weights.values().sum();
            for (device, weight) in weights.into_iter().filter(|_| sum > 0.0) {
                *shares.entry(device).or_insert(0.0) += weight / sum;
            }
        }
        shares
    }

    fn add_leaf_weights(&self, root: i32, weights: &mut BTreeMap<i32, f32>) {
        let mut seen = BTreeSet::new();
        let mut open = vec![root];
        while let Some(id) = open.pop() {
            let Some(bucket) = self.bucket(id) else { continue };
            for (item, weight) in bucket.weighted_items() {
                if item >= 0 {
                    weights.insert(item, weight_to_f32(weight));
                } else if seen.insert(item) {
                    open.push(item);
                }
            }
        }
    }
}

impl crate::Rule {
    /// Items this rule starts from, in its order.
    pub fn takes(&self) -> impl Iterator<Item = i32> + '_ {
        self.steps.iter().filter(|s| s.op == Step::TAKE).map(|s| s.arg1)
    }
}
