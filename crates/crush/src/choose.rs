//! Picking one item of one bucket, by each of the five algorithms.
//!
//! Source: bucket_*_choose in src/crush/mapper.c.

use crate::hash::{hash32_3, hash32_4};
use crate::ln::neg_ln;
use crate::{Bucket, BucketData, ChooseArg, ITEM_NONE};

/// Permutations of uniform buckets made so far for one input; a pure cache.
#[derive(Debug, Clone, Default)]
pub(crate) struct Perms {
    done: Vec<Perm>,
    /// Item positions, permuted; each bucket's run starts at `Perm::start`.
    order: Vec<u32>,
}

#[derive(Debug, Clone)]
struct Perm {
    bucket: i32,
    start: usize,
    /// How many leading positions are final.
    fixed: usize,
}

impl Perms {
    /// Forgets everything and keeps the memory: for a new input or map.
    pub(crate) fn clear(&mut self) {
        self.done.clear();
        self.order.clear();
    }

    /// Item of `b` at position `r` (modulo the size) of its permutation for `x`. Needs a bucket that is not empty.
    /// Source: bucket_perm_choose.
    pub(crate) fn choose(&mut self, b: &Bucket, x: u32, r: u32) -> i32 {
        let size = b.items.len();
        let at = r as usize % size.max(1);
        if at == 0 {
            let first = hash3(b, x, b.id as u32, 0) as usize % size.max(1);
            return item(b, first);
        }
        let known = self.done.iter().position(|p| p.bucket == b.id);
        let index = known.unwrap_or_else(|| {
            self.done.push(Perm { bucket: b.id, start: self.order.len(), fixed: 0 });
            self.order.extend(0..size as u32);
            self.done.len() - 1
        });
        let Some(perm) = self.done.get_mut(index) else { return ITEM_NONE };
        let Some(order) = self.order.get_mut(perm.start..perm.start + size) else { return ITEM_NONE };
        while perm.fixed <= at {
            let p = perm.fixed;
            if p + 1 < size {
                let i = hash3(b, x, b.id as u32, p as u32) as usize % (size - p);
                order.swap(p, p + i);
            }
            perm.fixed += 1;
        }
        order.get(at).map_or(ITEM_NONE, |s| item(b, *s as usize))
    }
}

/// Picks an item of `b`, which must not be empty, for input `x` and draw `r`. `position` (in the result) selects the
/// weight set. The answer is [`ITEM_NONE`] where the bucket's data leads to no item.
pub(crate) fn choose(
    b: &Bucket,
    perms: &mut Perms,
    x: u32,
    r: u32,
    arg: Option<&ChooseArg>,
    position: usize,
) -> i32 {
    match &b.data {
        BucketData::Uniform { .. } => perms.choose(b, x, r),
        BucketData::List { item_weights, sum_weights } => list(b, item_weights, sum_weights, x, r),
        BucketData::Tree { node_weights } => tree(b, node_weights, x, r),
        BucketData::Straw { straws, .. } => straw(b, straws, x, r),
        BucketData::Straw2 { item_weights } => {
            let (ids, weights) = straw2_draws(b, item_weights, arg, position);
            item(b, straw2(b.hash, ids, weights, x, r))
        }
    }
}

/// What a straw2 bucket draws with at a position of the result: the ids to hash and the weights.
pub(crate) fn straw2_draws<'a>(
    b: &'a Bucket,
    item_weights: &'a [u32],
    arg: Option<&'a ChooseArg>,
    position: usize,
) -> (&'a [i32], &'a [u32]) {
    let n = b.items.len();
    let set = arg.and_then(|a| a.weight_sets.get(position).or(a.weight_sets.last()));
    let weights = set.filter(|s| s.len() == n).map_or(item_weights, Vec::as_slice);
    let ids = arg.map(|a| &a.ids).filter(|ids| ids.len() == n).unwrap_or(&b.items);
    (ids, weights)
}

fn item(b: &Bucket, at: usize) -> i32 {
    b.items.get(at).copied().unwrap_or(ITEM_NONE)
}

/// Unknown hash functions hash everything to 0. Source: crush_hash32_3.
fn hash3(b: &Bucket, x: u32, y: u32, z: u32) -> u32 {
    if b.hash == 0 { hash32_3(x, y, z) } else { 0 }
}

fn hash4(b: &Bucket, x: u32, y: u32, z: u32) -> u32 {
    if b.hash == 0 { hash32_4(x, y, z, b.id as u32) } else { 0 }
}

/// From the newest item backwards: stay with probability weight over the sum of what is left.
fn list(b: &Bucket, item_weights: &[u32], sum_weights: &[u32], x: u32, r: u32) -> i32 {
    let rows = b.items.iter().zip(item_weights).zip(sum_weights);
    for ((&item, &weight), &sum) in rows.rev() {
        let draw = u64::from(hash4(b, x, item as u32, r) & 0xffff);
        if (draw * u64::from(sum)) >> 16 < u64::from(weight) {
            return item;
        }
    }
    item(b, 0)
}

/// Down an implicit binary tree: the node with `h` trailing zero bits has its children `2^(h-1)` to either side.
fn tree(b: &Bucket, nodes: &[u32], x: u32, r: u32) -> i32 {
    let weight = |n: usize| u64::from(nodes.get(n).copied().unwrap_or(0));
    let mut n = nodes.len() / 2;
    while n != 0 && n & 1 == 0 {
        let point = (u64::from(hash4(b, x, n as u32, r)) * weight(n)) >> 32;
        let half = 1 << (n.trailing_zeros() - 1);
        n = if point < weight(n - half) { n - half } else { n + half };
    }
    item(b, n / 2)
}

fn straw(b: &Bucket, straws: &[u32], x: u32, r: u32) -> i32 {
    let (mut high, mut high_draw) = (0, 0);
    for (i, (&item, &straw)) in b.items.iter().zip(straws).enumerate() {
        let draw = u64::from(hash3(b, x, item as u32, r) & 0xffff) * u64::from(straw);
        if i == 0 || draw > high_draw {
            (high, high_draw) = (i, draw);
        }
    }
    item(b, high)
}

/// Ids hashed at once: enough for the compiler to use vector registers.
const LANES: usize = 8;

/// Position of the item with the longest straw. Each draws `ln(u) / weight`, a negative number; the shortest distance
/// from zero wins, and the first of equals. A weight of 0 never wins against another.
///
/// Most items are ruled out without the logarithm: it grows with `u`, so neither a smaller `u` nor a smaller weight
/// than the winner's can win. And `n / w < best` is the same as `n < best * w`, so only a new winner costs a division.
pub(crate) fn straw2(hash: u8, ids: &[i32], weights: &[u32], x: u32, r: u32) -> usize {
    let (mut high, mut best) = (0, u64::MAX);
    let (mut high_u, mut high_weight) = (0, 0);
    let mut base = 0;
    for (chunk, chunk_weights) in ids.chunks(LANES).zip(weights.chunks(LANES)) {
        let mut draws = [0u32; LANES];
        if hash == 0 {
            let mut lanes = [0u32; LANES];
            lanes.iter_mut().zip(chunk).for_each(|(lane, id)| *lane = *id as u32);
            draws.iter_mut().zip(&lanes).for_each(|(draw, id)| *draw = hash32_3(x, *id, r) & 0xffff);
        }
        for (i, (&u, &weight)) in draws.iter().zip(chunk_weights).enumerate() {
            if u <= high_u && weight <= high_weight {
                continue;
            }
            if weight > i32::MAX as u32 {
                return straw2_signed(hash, ids, weights, x, r);
            }
            let n = neg_ln(u);
            if u128::from(n) < u128::from(best) * u128::from(weight) {
                best = n / u64::from(weight);
                high = base + i;
                high_weight = weight;
                // The logarithm's table dips at its very end: 0xffff lies between 0xfffd and 0xfffe.
                high_u = if u == 0xffff { 0xfffd } else { u };
            }
        }
        base += LANES;
    }
    high
}

/// The same for weights of 32768 or more, which count as negative numbers. Source: the `int weight` of
/// generate_exponential_distribution.
fn straw2_signed(hash: u8, ids: &[i32], weights: &[u32], x: u32, r: u32) -> usize {
    let (mut high, mut high_draw) = (0, i64::MIN);
    for (i, (&id, &weight)) in ids.iter().zip(weights).enumerate() {
        let u = if hash == 0 { hash32_3(x, id as u32, r) } else { 0 };
        let draw = match weight as i32 {
            0 => i64::MIN,
            w => -(neg_ln(u) as i64) / i64::from(w),
        };
        if i == 0 || draw > high_draw {
            (high, high_draw) = (i, draw);
        }
    }
    high
}
