//! Changing weights so that every bucket above, and every weight set, keeps adding up.
//!
//! Source: adjust_item_weight* and choose_args_adjust_item_weight in src/crush/CrushWrapper.cc, crush_reweight_bucket
//! in src/crush/builder.c.

use std::collections::BTreeMap;

use crate::{BucketData, ChooseArgMap, CrushMap, EditError};

impl CrushMap {
    /// Sets an item's weight (16.16) wherever it stands; in how many buckets it does.
    pub fn adjust_item_weight(&mut self, item: i32, weight: u32) -> Result<usize, EditError> {
        self.transact(|map| map.set_weight_everywhere(item, weight, true)?.ok_or(EditError::NoSuchItem(item)))
    }

    /// Sets the weight (16.16) of every device below a bucket; how many there are.
    /// Source: CrushWrapper::adjust_subtree_weight.
    pub fn adjust_subtree_weight(&mut self, root: i32, weight: u32) -> Result<usize, EditError> {
        self.transact(|map| {
            map.bucket(root).ok_or(EditError::NoSuchItem(root))?;
            let mut buckets = map.descendants(root);
            buckets.insert(root);
            let mut changed = 0;
            for bucket in buckets.into_iter().filter(|i| *i < 0) {
                for device in map.children(bucket).to_vec().into_iter().filter(|i| *i >= 0) {
                    map.set_weight_in_bucket(device, weight, bucket, true)?;
                    changed += 1;
                }
            }
            Ok(changed)
        })
    }

    /// Recomputes every bucket's weight from the devices up, and the shadow trees. Source: CrushWrapper::reweight.
    pub fn reweight(&mut self) -> Result<(), EditError> {
        self.transact(|map| {
            let mut done = BTreeMap::new();
            for root in map.nonshadow_roots() {
                map.reweight_bucket(root, &mut done)?;
            }
            let ids: Vec<i64> = map.choose_args.keys().copied().collect();
            for id in ids {
                let Some(mut set) = map.choose_args.remove(&id) else { continue };
                let mut sums = BTreeMap::new();
                for root in map.nonshadow_roots() {
                    map.reweight_set(root, &mut set, &mut sums);
                }
                map.choose_args.insert(id, set);
            }
            map.rebuild_shadow_trees()
        })
    }

    /// Sets a weight in every bucket that holds the item; `None` when none does.
    pub(crate) fn set_weight_everywhere(
        &mut self,
        item: i32,
        weight: u32,
        with_sets: bool,
    ) -> Result<Option<usize>, EditError> {
        let mut changed = 0;
        for index in 0..self.buckets.len() {
            changed +=
                usize::from(self.set_weight_in_bucket(item, weight, Self::bucket_id(index), with_sets)?);
        }
        Ok(Some(changed).filter(|n| *n > 0))
    }

    pub(crate) fn set_weight_at_location(
        &mut self,
        item: i32,
        weight: u32,
        location: &crate::Location,
        with_sets: bool,
    ) -> Result<usize, EditError> {
        let mut changed = 0;
        for name in location.values() {
            let Some(bucket) = self.item_id(name).filter(|id| self.bucket(*id).is_some()) else { continue };
            changed += usize::from(self.set_weight_in_bucket(item, weight, bucket, with_sets)?);
        }
        Ok(changed)
    }

    /// Sets an item's weight in one bucket and carries the bucket's new weight upwards; whether the item is there.
    /// Weight sets are summed up from the bucket in any case, as in Ceph: so a bucket that is given a weight by hand
    /// keeps the one its weight sets add up to.
    pub(crate) fn set_weight_in_bucket(
        &mut self,
        item: i32,
        weight: u32,
        bucket: i32,
        with_sets: bool,
    ) -> Result<bool, EditError> {
        let straw_version = self.tunables.straw_calc_version;
        let Some(b) = self.bucket_mut(bucket) else { return Ok(false) };
        let Some(position) = b.position(item) else {
            self.carry_weight_sets_up(bucket);
            return Ok(false);
        };
        b.set_item_weight(item, weight, straw_version).transpose()?;
        let total = b.weight;
        if with_sets {
            self.for_weight_sets_of(bucket, |set| put(set, position, weight));
        }
        self.set_weight_everywhere(bucket, total, false)?;
        self.carry_weight_sets_up(bucket);
        Ok(true)
    }

    fn for_weight_sets_of(&mut self, bucket: i32, mut change: impl FnMut(&mut Vec<u32>)) {
        let Some(index) = Self::bucket_index(bucket) else { return };
        for set in self.choose_args.values_mut() {
            if let Some(arg) = set.args.get_mut(index) {
                arg.weight_sets.iter_mut().for_each(&mut change);
            }
        }
    }

    /// Makes every weight set's entry for `bucket`, in the buckets above it, the sum of its own entries.
    pub(crate) fn carry_weight_sets_up(&mut self, bucket: i32) {
        let ids: Vec<i64> = self.choose_args.keys().copied().collect();
        for id in ids {
            let Some(mut set) = self.choose_args.remove(&id) else { continue };
            if let Some(sums) = sums_of(&set, bucket) {
                self.set_in_weight_set(&mut set, bucket, &sums);
            }
            self.choose_args.insert(id, set);
        }
    }

    /// Sets an item's weights (16.16, one for each position) in the weight set `id`, and carries the sums upwards.
    /// Source: CrushWrapper::choose_args_adjust_item_weight.
    pub fn adjust_choose_args(&mut self, id: i64, item: i32, weights: &[u32]) -> Result<(), EditError> {
        let mut set = self.choose_args.get(&id).cloned().ok_or(EditError::NoSuchChooseArgs(id))?;
        if !self.is_placed(item) {
            return Err(EditError::NoSuchItem(item));
        }
        self.set_in_weight_set(&mut set, item, weights);
        self.choose_args.insert(id, set);
        Ok(())
    }

    /// A bucket without entries gets its own weights first, whether it holds the item or not and whatever its
    /// algorithm, as in Ceph. (Decoding drops those of other algorithms than straw2, which never use them.)
    fn set_in_weight_set(&self, set: &mut ChooseArgMap, item: i32, weights: &[u32]) {
        let positions = set.positions();
        for bucket in self.buckets.iter().flatten() {
            let Some(arg) = Self::bucket_index(bucket.id).and_then(|i| set.args.get_mut(i)) else { continue };
            let mut changed = false;
            if arg.weight_sets.is_empty() {
                arg.weight_sets = vec![bucket.weighted_items().map(|(_, w)| w).collect(); positions];
                changed = true;
            }
            if arg.weight_sets.len() != weights.len() {
                continue;
            }
            if let Some(position) = bucket.position(item) {
                arg.weight_sets.iter_mut().zip(weights).for_each(|(s, w)| put(s, position, *w));
                changed = true;
            }
            if changed {
                if let Some(sums) = sums_of(set, bucket.id) {
                    self.set_in_weight_set(set, bucket.id, &sums);
                }
            }
        }
    }

    /// Weight of a bucket recomputed from its devices up. Source: crush_reweight_bucket, except that a list's running
    /// sums and a tree's inner nodes follow too, which Ceph leaves as they were.
    fn reweight_bucket(&mut self, id: i32, done: &mut BTreeMap<i32, u32>) -> Result<u32, EditError> {
        if let Some(weight) = done.get(&id) {
            return Ok(*weight);
        }
        let Some(bucket) = self.bucket(id) else { return Ok(0) };
        let old: Vec<(i32, u32)> = bucket.weighted_items().collect();
        let mut weights = Vec::with_capacity(old.len());
        for &(item, weight) in &old {
            weights.push(if item < 0 { self.reweight_bucket(item, done)? } else { weight });
        }
        let straw_version = self.tunables.straw_calc_version;
        let Some(bucket) = self.bucket_mut(id) else { return Ok(0) };
        if let BucketData::Uniform { item_weight } = &mut bucket.data {
            let inner = old.iter().filter(|(i, _)| *i < 0).count();
            if inner > old.len() - inner {
                let sum: u64 =
                    old.iter().zip(&weights).filter(|((i, _), _)| *i < 0).map(|(_, w)| u64::from(*w)).sum();
                *item_weight = (sum / inner as u64) as u32;
            }
            let total = u64::from(*item_weight) * old.len() as u64;
            bucket.weight = u32::try_from(total).map_err(|_| EditError::WeightOverflow(total))?;
        } else {
            let total: u64 = weights.iter().map(|w| u64::from(*w)).sum();
            let total = u32::try_from(total).map_err(|_| EditError::WeightOverflow(total))?;
            bucket.weight = old.iter().fold(0u32, |sum, (_, w)| sum.saturating_add(*w));
            for ((item, _), weight) in old.iter().zip(&weights).filter(|((_, old), new)| old != *new) {
                bucket.set_item_weight(*item, *weight, straw_version).transpose()?;
            }
            bucket.weight = total;
            bucket.calc_straws(straw_version);
        }
        let weight = bucket.weight;
        done.insert(id, weight);
        Ok(weight)
    }

    fn reweight_set(&self, id: i32, set: &mut ChooseArgMap, done: &mut BTreeMap<i32, Vec<u32>>) -> Vec<u32> {
        if let Some(sums) = done.get(&id) {
            return sums.clone();
        }
        for (position, &item) in self.children(id).iter().enumerate().filter(|(_, i)| **i < 0) {
            let below = self.reweight_set(item, set, done);
            let Some(arg) = Self::bucket_index(id).and_then(|i| set.args.get_mut(i)) else { continue };
            arg.weight_sets.iter_mut().zip(&below).for_each(|(s, w)| put(s, position, *w));
        }
        let own = self.bucket(id).map_or(0, |b| b.weight);
        let sums = sums_of(set, id).unwrap_or_else(|| vec![own; set.positions()]);
        done.insert(id, sums.clone());
        sums
    }
}

/// Sum of a bucket's weights for each position; `None` without weight sets.
fn sums_of(set: &ChooseArgMap, bucket: i32) -> Option<Vec<u32>> {
    let sets = &set.get(bucket)?.weight_sets;
    let sum = |weights: &Vec<u32>| weights.iter().fold(0u32, |sum, w| sum.wrapping_add(*w));
    if sets.is_empty() { None } else { Some(sets.iter().map(sum).collect()) }
}

fn put(list: &mut [u32], at: usize, value: u32) {
    if let Some(slot) = list.get_mut(at) {
        *slot = value;
    }
}
