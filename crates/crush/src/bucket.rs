//! Building a bucket and changing its items, keeping the per-item data of its algorithm in step.
//!
//! Source: src/crush/builder.c. These functions change one bucket; its parents' weights are `edit`'s business.

use crate::validate::tree_nodes;
use crate::{Alg, Bucket, BucketData, EditError};

impl Bucket {
    /// A bucket of items with their weights (16.16). Uniform buckets take the first item's weight for all.
    /// `straw_calc_version` is the tunable, used by straw buckets alone. Source: crush_make_bucket.
    pub fn new(
        alg: Alg,
        id: i32,
        type_id: u16,
        items: &[(i32, u32)],
        straw_calc_version: u8,
    ) -> Result<Self, EditError> {
        let mut b = Self { id, type_id, hash: 0, weight: 0, items: Vec::new(), data: empty_data(alg) };
        for &(item, weight) in items {
            let uniform = items.first().filter(|_| alg == Alg::Uniform);
            b.push(item, uniform.map_or(weight, |(_, first)| *first))?;
        }
        b.calc_straws(straw_calc_version);
        Ok(b)
    }

    /// Adds an item behind the others. Source: crush_bucket_add_item.
    pub fn add_item(&mut self, item: i32, weight: u32, straw_calc_version: u8) -> Result<(), EditError> {
        self.push(item, weight)?;
        self.calc_straws(straw_calc_version);
        Ok(())
    }

    fn push(&mut self, item: i32, weight: u32) -> Result<(), EditError> {
        let sum = self.sum_with(weight)?;
        let (id, size) = (self.id, self.items.len());
        match &mut self.data {
            BucketData::Uniform { item_weight } if size == 0 => *item_weight = weight,
            BucketData::Uniform { item_weight } if *item_weight != weight => {
                return Err(EditError::NotUniform { bucket: id, expected: *item_weight, got: weight });
            }
            BucketData::Uniform { .. } => {}
            BucketData::List { item_weights, sum_weights } => {
                let below = sum_weights.last().copied().unwrap_or(0);
                sum_weights.push(below.checked_add(weight).ok_or(overflow(below, weight))?);
                item_weights.push(weight);
            }
            BucketData::Tree { node_weights } => {
                let nodes = tree_nodes(size + 1).ok_or(EditError::BucketFull(id))?;
                let old_root = node_weights.len() / 2;
                let old_total = node_weights.get(old_root).copied().unwrap_or(0);
                let grown = nodes > node_weights.len();
                node_weights.resize(nodes, 0);
                if grown && size > 0 {
                    // The old tree becomes the left half of the new one.
                    put(node_weights, nodes / 2, old_total);
                }
                add_to_path(node_weights, size, i64::from(weight));
            }
            BucketData::Straw { item_weights, straws } => {
                item_weights.push(weight);
                straws.push(0);
            }
            BucketData::Straw2 { item_weights } => item_weights.push(weight),
        }
        self.items.push(item);
        self.weight = sum;
        Ok(())
    }

    fn sum_with(&self, weight: u32) -> Result<u32, EditError> {
        self.weight.checked_add(weight).ok_or(overflow(self.weight, weight))
    }

    /// Removes an item; its weight, or `None` when it is not here. A tree bucket keeps a hole (item 0 of weight 0)
    /// unless it was last, and loses the zero-weight items at its end, as in Ceph. Source: crush_bucket_remove_item.
    pub fn remove_item(&mut self, item: i32, straw_calc_version: u8) -> Option<u32> {
        let pos = self.position(item)?;
        let weight = self.item_weight(pos);
        self.weight = self.weight.saturating_sub(weight);
        match &mut self.data {
            BucketData::Uniform { .. } => {}
            BucketData::List { item_weights, sum_weights } => {
                item_weights.remove(pos);
                sum_weights.remove(pos);
                sum_weights.iter_mut().skip(pos).for_each(|s| *s = s.wrapping_sub(weight));
            }
            BucketData::Tree { node_weights } => {
                add_to_path(node_weights, pos, -i64::from(weight));
                put_item(&mut self.items, pos, 0);
                while self.items.last().is_some() {
                    let node = 2 * (self.items.len() - 1) + 1;
                    if node_weights.get(node).is_some_and(|w| *w != 0) {
                        break;
                    }
                    self.items.pop();
                }
                // One node remains of a tree that became empty. Source: crush_remove_tree_bucket_item.
                node_weights.truncate(tree_nodes(self.items.len()).unwrap_or(0).max(1));
                return Some(weight);
            }
            BucketData::Straw { item_weights, straws } => {
                item_weights.remove(pos);
                straws.remove(pos);
            }
            BucketData::Straw2 { item_weights } => {
                item_weights.remove(pos);
            }
        }
        self.items.remove(pos);
        self.calc_straws(straw_calc_version);
        Some(weight)
    }

    /// Sets an item's weight (16.16); `None` when it is not here, else whether the bucket's weight changed. In a
    /// uniform bucket every item gets the weight. Source: crush_bucket_adjust_item_weight.
    pub fn set_item_weight(
        &mut self,
        item: i32,
        weight: u32,
        straw_calc_version: u8,
    ) -> Option<Result<bool, EditError>> {
        let pos = self.position(item)?;
        Some(self.set_weight_at(pos, weight, straw_calc_version))
    }

    fn set_weight_at(&mut self, pos: usize, weight: u32, straw_calc_version: u8) -> Result<bool, EditError> {
        let old = self.item_weight(pos);
        let times = if matches!(self.data, BucketData::Uniform { .. }) { self.items.len() as i64 } else { 1 };
        let diff = i64::from(weight) - i64::from(old);
        let base = if times > 1 { i64::from(old) * times } else { i64::from(self.weight) };
        let sum = (base + diff * times).max(0);
        let sum = u32::try_from(sum).map_err(|_| EditError::WeightOverflow(sum as u64))?;
        self.weight = sum;
        match &mut self.data {
            BucketData::Uniform { item_weight } => *item_weight = weight,
            BucketData::List { item_weights, sum_weights } => {
                put(item_weights, pos, weight);
                sum_weights.iter_mut().skip(pos).for_each(|s| *s = s.wrapping_add(diff as u32));
            }
            BucketData::Tree { node_weights } => add_to_path(node_weights, pos, diff),
            BucketData::Straw { item_weights, .. } | BucketData::Straw2 { item_weights } => {
                put(item_weights, pos, weight);
            }
        }
        if diff != 0 {
            self.calc_straws(straw_calc_version);
        }
        Ok(diff != 0)
    }

    /// Recomputes the straw lengths of a straw bucket from its weights; nothing for other algorithms.
    /// Source: crush_calc_straw. The lengths are defined by this computation in doubles, flaws included.
    pub fn calc_straws(&mut self, straw_calc_version: u8) {
        let BucketData::Straw { item_weights, straws } = &mut self.data else { return };
        let mut ascending: Vec<(u32, usize)> =
            item_weights.iter().enumerate().map(|(i, w)| (*w, i)).collect();
        ascending.sort();
        let mut left = ascending.len() as i32;
        let (mut straw, mut below, mut last) = (1.0f64, 0.0f64, 0.0f64);
        for (rank, &(weight, at)) in ascending.iter().enumerate() {
            if weight == 0 {
                put(straws, at, 0);
                left -= i32::from(straw_calc_version > 0);
                continue;
            }
            put(straws, at, (straw * 65536.0) as u32);
            let Some(&(next, _)) = ascending.get(rank + 1) else { break };
            if straw_calc_version == 0 {
                if next == weight {
                    continue;
                }
                below += (f64::from(weight) - last) * f64::from(left);
                left -= ascending.iter().skip(rank + 1).take_while(|(w, _)| *w == next).count() as i32;
            } else {
                below += (f64::from(weight) - last) * f64::from(left);
                left -= 1;
            }
            // The product wraps at 32 bits in the definition.
            let above = f64::from((left as u32).wrapping_mul(next - weight));
            let share = below / (below + above);
            straw *= (1.0 / share).powf(1.0 / f64::from(left));
            last = f64::from(weight);
        }
    }
}

fn overflow(sum: u32, weight: u32) -> EditError {
    EditError::WeightOverflow(u64::from(sum) + u64::from(weight))
}

pub(crate) fn empty_data(alg: Alg) -> BucketData {
    match alg {
        Alg::Uniform => BucketData::Uniform { item_weight: 0 },
        Alg::List => BucketData::List { item_weights: Vec::new(), sum_weights: Vec::new() },
        Alg::Tree => BucketData::Tree { node_weights: Vec::new() },
        Alg::Straw => BucketData::Straw { item_weights: Vec::new(), straws: Vec::new() },
        Alg::Straw2 => BucketData::Straw2 { item_weights: Vec::new() },
    }
}

fn put(list: &mut [u32], at: usize, value: u32) {
    if let Some(slot) = list.get_mut(at) {
        *slot = value;
    }
}

fn put_item(list: &mut [i32], at: usize, value: i32) {
    if let Some(slot) = list.get_mut(at) {
        *slot = value;
    }
}

/// Adds to the leaf of item `pos` and to every node above it, up to the root in the middle.
fn add_to_path(nodes: &mut [u32], pos: usize, diff: i64) {
    let root = nodes.len() / 2;
    let mut n = 2 * pos + 1;
    while let Some(w) = nodes.get_mut(n) {
        *w = w.wrapping_add(diff as u32);
        if n == root || n == 0 {
            break;
        }
        let step = 1 << n.trailing_zeros();
        n = if n & (step << 1) != 0 { n - step } else { n + step };
    }
}
