//! Whether a map is safe to place with: references resolve, lists fit together, the hierarchy is a shallow forest.

use codec::DecodeError;

use crate::{Bucket, BucketData, CrushMap, ITEM_UNDEF};

/// Edges from a root to the deepest bucket below it. Source: CRUSH_MAX_DEPTH in src/crush/crush.h.
pub const MAX_DEPTH: usize = 10;
/// Rules a map can have. Source: CRUSH_MAX_RULES in src/crush/crush.h.
pub const MAX_RULES: usize = 256;

/// Why a map is refused; the fault is the writer's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MapError {
    #[error("bucket {id} stands in the slot of bucket {slot}")]
    MisplacedBucket { id: i32, slot: i32 },
    #[error("bucket {id} has the devices' type 0")]
    DeviceType { id: i32 },
    #[error("bucket {id}: {got} per-item values for {items} items")]
    Lengths { id: i32, items: usize, got: usize },
    #[error("tree bucket {id} has {items} items, the form holds 64")]
    TreeTooLarge { id: i32, items: usize },
    #[error("bucket {id} holds {item}, which is no bucket and no device")]
    DanglingItem { id: i32, item: i32 },
    #[error("bucket {id} is part of a cycle")]
    Cycle { id: i32 },
    #[error("bucket {id} has more than {MAX_DEPTH} levels below it")]
    TooDeep { id: i32 },
    #[error("{rules} rules, {MAX_RULES} is the bound")]
    TooManyRules { rules: usize },
    #[error("choose_args {set} bucket {bucket}: {got} ids for {items} items")]
    ChooseArgIds { set: i64, bucket: i32, items: usize, got: usize },
}

impl MapError {
    pub(crate) fn as_decode_error(&self) -> DecodeError {
        let bad = |what, value: i64| DecodeError::Invalid { what, value: value as u64 };
        match *self {
            Self::MisplacedBucket { id, .. } => bad("crush bucket id", i64::from(id)),
            Self::DeviceType { id } => bad("type of crush bucket", i64::from(id)),
            Self::Lengths { id, .. } => bad("weights of crush bucket", i64::from(id)),
            Self::TreeTooLarge { id, .. } => bad("size of crush tree bucket", i64::from(id)),
            Self::DanglingItem { item, .. } => bad("crush item", i64::from(item)),
            Self::Cycle { id } => bad("cycle at crush bucket", i64::from(id)),
            Self::TooDeep { id } => bad("depth of crush bucket", i64::from(id)),
            Self::TooManyRules { rules } => bad("number of crush rules", rules as i64),
            Self::ChooseArgIds { bucket, .. } => bad("choose_args ids of bucket", i64::from(bucket)),
        }
    }
}

/// A bucket whose stored weights disagree with each other. Placement stays safe; it is only skewed, and real maps
/// that were edited by hand have this, so it is reported and not refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WeightMismatch {
    pub bucket: i32,
    /// The bucket's own weight, 16.16.
    pub stored: u32,
    /// The sum of its items' weights, 16.16.
    pub sum: u64,
}

impl CrushMap {
    /// Checks everything that placement and editing rely on.
    pub fn validate(&self) -> Result<(), MapError> {
        if self.rules.len() > MAX_RULES {
            return Err(MapError::TooManyRules { rules: self.rules.len() });
        }
        for (index, slot) in self.buckets.iter().enumerate() {
            if let Some(b) = slot {
                self.check_bucket(Self::bucket_id(index), b)?;
            }
        }
        self.check_depth()?;
        self.check_choose_args()
    }

    /// Buckets whose weight is not the sum of their items' weights.
    pub fn weight_mismatches(&self) -> Vec<WeightMismatch> {
        let buckets = self.buckets.iter().flatten();
        let sums = buckets.map(|b| (b, b.weighted_items().map(|(_, w)| u64::from(w)).sum::<u64>()));
        sums.filter(|(b, sum)| u64::from(b.weight) != *sum)
            .map(|(b, sum)| WeightMismatch { bucket: b.id, stored: b.weight, sum })
            .collect()
    }

    fn check_bucket(&self, slot: i32, b: &Bucket) -> Result<(), MapError> {
        if b.id != slot {
            return Err(MapError::MisplacedBucket { id: b.id, slot });
        }
        if b.type_id == 0 {
            return Err(MapError::DeviceType { id: b.id });
        }
        check_lengths(b)?;
        for &item in &b.items {
            let known = if item < 0 { self.bucket(item).is_some() } else { item < ITEM_UNDEF };
            if !known {
                return Err(MapError::DanglingItem { id: b.id, item });
            }
        }
        Ok(())
    }

    /// Computes each bucket's height depth first; a bucket met again while open closes a cycle. Each item is looked at
    /// once, whatever the map's shape.
    fn check_depth(&self) -> Result<(), MapError> {
        let mut marks = vec![Mark::New; self.buckets.len()];
        for start in 0..self.buckets.len() {
            if !matches!(marks.get(start), Some(Mark::New)) {
                continue;
            }
            set(&mut marks, start, Mark::Open);
            let mut path = vec![Visit { at: start, next: 0, height: 0 }];
            while let Some(visit) = path.last_mut() {
                let id = Self::bucket_id(visit.at);
                let item = self.bucket(id).and_then(|b| b.items.get(visit.next));
                let Some(item) = item else {
                    let height = visit.height;
                    set(&mut marks, visit.at, Mark::Done(height));
                    path.pop();
                    if let Some(parent) = path.last_mut() {
                        parent.height = parent.height.max(height + 1);
                    }
                    continue;
                };
                visit.next += 1;
                let Some(child) = Self::bucket_index(*item) else { continue };
                match marks.get(child) {
                    Some(Mark::Open) => return Err(MapError::Cycle { id }),
                    Some(Mark::Done(h)) => visit.height = visit.height.max(h + 1),
                    Some(Mark::New) => {
                        set(&mut marks, child, Mark::Open);
                        path.push(Visit { at: child, next: 0, height: 0 });
                    }
                    None => {}
                }
                let below = path.last().map_or(0, |v| v.height);
                if path.len() + below > MAX_DEPTH + 1 {
                    return Err(MapError::TooDeep { id: Self::bucket_id(start) });
                }
            }
        }
        Ok(())
    }

    fn check_choose_args(&self) -> Result<(), MapError> {
        for (set, map) in &self.choose_args {
            for (index, arg) in map.args.iter().enumerate().filter(|(_, a)| !a.ids.is_empty()) {
                let bucket = Self::bucket_id(index);
                let items = self.bucket(bucket).map_or(0, |b| b.items.len());
                if arg.ids.len() != items {
                    return Err(MapError::ChooseArgIds { set: *set, bucket, items, got: arg.ids.len() });
                }
            }
        }
        Ok(())
    }
}

/// An open bucket on the path from the start of a search.
struct Visit {
    at: usize,
    /// Position of the item to look at next.
    next: usize,
    /// Height over the items looked at so far.
    height: usize,
}

#[derive(Clone, Copy)]
enum Mark {
    New,
    Open,
    Done(usize),
}

fn set(marks: &mut [Mark], at: usize, mark: Mark) {
    if let Some(m) = marks.get_mut(at) {
        *m = mark;
    }
}

fn check_lengths(b: &Bucket) -> Result<(), MapError> {
    let items = b.items.len();
    let wrong = |got| MapError::Lengths { id: b.id, items, got };
    let lists: [&[u32]; 2] = match &b.data {
        BucketData::Uniform { .. } => return Ok(()),
        BucketData::List { item_weights, sum_weights } => [item_weights, sum_weights],
        BucketData::Straw { item_weights, straws } => [item_weights, straws],
        BucketData::Straw2 { item_weights } => [item_weights, item_weights],
        BucketData::Tree { node_weights } => {
            let nodes = tree_nodes(items).ok_or(MapError::TreeTooLarge { id: b.id, items })?;
            // An empty tree is written with no node or with one, depending on how it became empty.
            let fits = if items == 0 { node_weights.len() <= 1 } else { node_weights.len() == nodes };
            return if fits { Ok(()) } else { Err(wrong(node_weights.len())) };
        }
    };
    match lists.iter().find(|l| l.len() != items) {
        Some(list) => Err(wrong(list.len())),
        None => Ok(()),
    }
}

/// Nodes of the implicit tree over `items` leaves; `None` when the count does not fit its byte on the wire.
pub(crate) fn tree_nodes(items: usize) -> Option<usize> {
    match items {
        0 => Some(0),
        1..=64 => Some(2 * items.next_power_of_two()),
        _ => None,
    }
}
