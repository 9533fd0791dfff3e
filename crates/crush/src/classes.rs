//! Device classes and their shadow trees: a copy of the hierarchy for each class, with only its devices.
//!
//! Source: src/crush/CrushWrapper.cc. Rules for a class start from shadow buckets, so their ids must stay the same when
//! the trees are rebuilt, which happens after every edit.

use std::collections::{BTreeMap, BTreeSet};

use crate::bucket::empty_data;
use crate::query::is_valid_name;
use crate::{Bucket, ChooseArg, CrushMap, EditError};

type ClassBuckets = BTreeMap<i32, BTreeMap<i32, i32>>;

impl CrushMap {
    /// Binds a device to a class, which is made if there is none of this name; whether anything changed. A device of
    /// another class has to lose that first. Source: CrushWrapper::update_device_class.
    pub fn set_device_class(&mut self, device: i32, class: &str) -> Result<bool, EditError> {
        if device < 0 {
            return Err(EditError::NotADevice(device));
        }
        if !self.item_names.contains_key(&device) {
            return Err(EditError::NoSuchItem(device));
        }
        match self.item_class(device) {
            Some(old) if old == class => return Ok(false),
            Some(old) => return Err(EditError::HasClass(device, old.to_owned())),
            None => {}
        }
        self.transact(|map| {
            let class = map.class_id_or_new(class)?;
            map.device_classes.insert(device, class);
            map.rebuild_shadow_trees()?;
            Ok(true)
        })
    }

    /// Takes a device out of its class; whether it had one. Source: CrushWrapper::remove_device_class.
    pub fn remove_device_class(&mut self, device: i32) -> Result<bool, EditError> {
        if !self.item_names.contains_key(&device) {
            return Err(EditError::NoSuchItem(device));
        }
        if self.item_class(device).is_none() {
            return Ok(false);
        }
        self.transact(|map| {
            map.device_classes.remove(&device);
            map.rebuild_shadow_trees()?;
            Ok(true)
        })
    }

    /// Binds every device below a bucket to a class, whatever class it had. The shadow trees follow at the next edit, or
    /// with [`Self::rebuild_class_roots`]. Source: CrushWrapper::set_subtree_class.
    pub fn set_subtree_class(&mut self, bucket: &str, class: &str) -> Result<(), EditError> {
        let id = self.item_id(bucket).ok_or_else(|| EditError::NoSuchName(bucket.to_owned()))?;
        self.bucket(id).ok_or_else(|| EditError::NotABucket(bucket.to_owned()))?;
        self.transact(|map| {
            let class = map.class_id_or_new(class)?;
            for device in map.leaves(id) {
                map.device_classes.insert(device, class);
            }
            Ok(())
        })
    }

    /// Makes the shadow trees anew, which every edit does by itself.
    pub fn rebuild_class_roots(&mut self) -> Result<(), EditError> {
        self.transact(Self::rebuild_shadow_trees)
    }

    /// Makes a class without devices, as `ceph osd crush class create` does; its id. The next rebuild of the shadow
    /// trees drops it unless a device or rule uses it by then.
    pub fn create_class(&mut self, name: &str) -> Result<i32, EditError> {
        self.transact(|map| map.class_id_or_new(name))
    }

    /// Gives a class another name. Source: CrushWrapper::rename_class.
    pub fn rename_class(&mut self, from: &str, to: &str) -> Result<(), EditError> {
        let class = self.class_id(from).ok_or_else(|| EditError::NoSuchClass(from.to_owned()))?;
        if self.class_id(to).is_some() {
            return Err(EditError::NameExists(to.to_owned()));
        }
        if !is_valid_name(to) {
            return Err(EditError::InvalidName(to.to_owned()));
        }
        let shadows = self.device_classes.iter().filter(|(id, c)| **id < 0 && **c == class);
        for id in shadows.map(|(id, _)| *id) {
            if let Some(name) = self.item_names.get_mut(&id) {
                if let Some((original, _)) = name.split_once('~') {
                    *name = format!("{original}~{to}");
                }
            }
        }
        self.class_names.insert(class, to.to_owned());
        Ok(())
    }

    /// Rules that start from a shadow bucket of a class. Source: CrushWrapper::class_is_in_use.
    pub fn rules_by_class(&self, class: i32) -> Vec<u32> {
        let shadows: BTreeSet<i32> =
            self.class_buckets.values().filter_map(|m| m.get(&class)).copied().collect();
        let uses =
            |rule: &Option<crate::Rule>| rule.iter().flat_map(|r| r.takes()).any(|t| shadows.contains(&t));
        (0u32..).zip(&self.rules).filter(|(_, rule)| uses(rule)).map(|(id, _)| id).collect()
    }

    pub(crate) fn class_id_or_new(&mut self, name: &str) -> Result<i32, EditError> {
        if let Some(id) = self.class_id(name) {
            return Ok(id);
        }
        if !is_valid_name(name) {
            return Err(EditError::InvalidName(name.to_owned()));
        }
        let next = self.class_names.last_key_value().map_or(Some(0), |(last, _)| last.checked_add(1));
        let id = next.filter(|id| *id >= 0).ok_or(EditError::NoFreeId)?;
        self.class_names.insert(id, name.to_owned());
        Ok(id)
    }

    /// Makes the shadow trees anew after a change, with the ids they had. Drops classes that no device has and no rule
    /// uses. Source: CrushWrapper::rebuild_roots_with_classes.
    pub(crate) fn rebuild_shadow_trees(&mut self) -> Result<(), EditError> {
        let old = self.class_buckets.clone();
        let used: BTreeSet<i32> =
            self.device_classes.iter().filter(|(id, _)| **id >= 0).map(|(_, class)| *class).collect();
        let dead: Vec<i32> = self.class_names.keys().copied().filter(|c| !used.contains(c)).collect();
        for class in dead {
            if self.rules_by_class(class).is_empty() {
                self.class_names.remove(&class);
            }
        }
        for root in self.shadow_roots() {
            self.drop_tree(root);
        }
        self.class_buckets.clear();
        self.populate_classes(&old)
    }

    /// Source: CrushWrapper::remove_root.
    fn drop_tree(&mut self, root: i32) {
        let mut open = vec![root];
        while let Some(id) = open.pop() {
            if self.bucket(id).is_some() {
                open.extend(self.children(id).iter().filter(|i| **i < 0));
                self.drop_bucket(id);
                self.item_names.remove(&id);
            }
        }
    }

    /// Makes the shadow trees of all classes; `old` says which ids they had. Source: CrushWrapper::populate_classes.
    pub(crate) fn populate_classes(&mut self, old: &ClassBuckets) -> Result<(), EditError> {
        let reserved: BTreeSet<i32> = old.values().flat_map(|m| m.values().copied()).collect();
        let mut cloning = Cloning { old, reserved, set_weights: BTreeMap::new() };
        let classes: Vec<i32> = self.class_names.keys().copied().collect();
        for root in self.nonshadow_roots() {
            for class in &classes {
                self.clone_for_class(root, *class, &mut cloning)?;
            }
        }
        Ok(())
    }

    /// The shadow bucket of `original` for a class, made with all below it unless it exists.
    /// Source: CrushWrapper::device_class_clone.
    fn clone_for_class(
        &mut self,
        original: i32,
        class: i32,
        cloning: &mut Cloning,
    ) -> Result<i32, EditError> {
        let name = self.item_name(original).ok_or(EditError::Unnamed(original))?;
        let class_name = self.class_name(class).ok_or_else(|| EditError::NoSuchClass(class.to_string()))?;
        let shadow_name = format!("{name}~{class_name}");
        if let Some(id) = self.item_id(&shadow_name) {
            return Ok(id);
        }
        let source = self.bucket(original).cloned().ok_or(EditError::NoSuchItem(original))?;
        let mut copy = Bucket { items: Vec::new(), weight: 0, data: empty_data(source.alg()), ..source };
        let straw_version = self.tunables.straw_calc_version;
        // Position in the original of each item of the copy.
        let mut positions = Vec::new();
        for (position, &item) in source.items.iter().enumerate() {
            if item < 0 {
                let child = self.clone_for_class(item, class, cloning)?;
                let weight = self.bucket(child).map_or(0, |b| b.weight);
                copy.add_item(child, weight, straw_version)?;
            } else if self.device_classes.get(&item) == Some(&class) {
                // The weight is the one in the original, found again for the tree form's holes.
                copy.add_item(item, source_weight(self, original, position), straw_version)?;
            } else {
                continue;
            }
            positions.push(position);
        }
        let had = cloning.old.get(&original).and_then(|m| m.get(&class)).copied();
        let id = had.unwrap_or_else(|| self.unused_id(&cloning.reserved));
        let items = copy.items.clone();
        self.place_bucket(id, copy)?;
        self.device_classes.insert(id, class);
        self.item_names.insert(id, shadow_name);
        self.class_buckets.entry(original).or_default().insert(class, id);
        self.clone_weight_sets(original, id, &items, &positions, cloning);
        Ok(id)
    }

    /// The first bucket id that no bucket has or had as a shadow.
    fn unused_id(&self, reserved: &BTreeSet<i32>) -> i32 {
        let mut ids = (0..).map(Self::bucket_id);
        ids.find(|id| self.bucket(*id).is_none() && !reserved.contains(id)).unwrap_or(i32::MIN)
    }

    fn clone_weight_sets(
        &mut self,
        original: i32,
        id: i32,
        items: &[i32],
        positions: &[usize],
        cloning: &mut Cloning,
    ) {
        for (set_id, set) in &mut self.choose_args {
            let Some(source) = set.get(original).cloned() else { continue };
            let known = cloning.set_weights.entry(*set_id).or_default();
            let mut arg = ChooseArg::default();
            let mut sums = Vec::new();
            for (s, weights) in source.weight_sets.iter().enumerate() {
                let weight = |(&item, &position): (&i32, &usize)| {
                    let found = if item >= 0 {
                        weights.get(position)
                    } else {
                        known.get(&item).and_then(|w| w.get(s))
                    };
                    found.copied().unwrap_or(0)
                };
                let own: Vec<u32> = items.iter().zip(positions).map(weight).collect();
                sums.push(own.iter().fold(0u32, |sum, w| sum.wrapping_add(*w)));
                arg.weight_sets.push(own);
            }
            known.insert(id, sums);
            if let Some(slot) = Self::bucket_index(id).and_then(|i| set.args.get_mut(i)) {
                *slot = arg;
            }
        }
    }
}

/// What cloning the trees carries along.
struct Cloning<'a> {
    old: &'a ClassBuckets,
    /// Ids that shadow buckets had before; new ones stay clear of them.
    reserved: BTreeSet<i32>,
    /// Weight of each shadow bucket in each weight set, by position.
    set_weights: BTreeMap<i64, BTreeMap<i32, Vec<u32>>>,
}

fn source_weight(map: &CrushMap, bucket: i32, position: usize) -> u32 {
    map.bucket(bucket).map_or(0, |b| b.item_weight(position))
}
