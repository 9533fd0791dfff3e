//! What copies that lack an erasure-coded object still have of it: recovery makes and sends them what has
//! changed since.
//!
//! The log says which bytes of the object have changed, in whole stripes. Every shard may differ in its
//! chunks of these and nowhere else: data that was written lies in them, and so does what coding chunks
//! became by that. All copies get the same pieces, so shards are read where any of the copies needs it.
//!
//! Invariants:
//! 1. The ranges of a base are whole chunks, in order and apart.
//! 2. What is sent to a copy with a base lies in its ranges.
//! 3. Ranges are whole blocks of the store: to change a part of a block reads the rest, which may be rotten.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use erasure::Stripes;
use types::{Eversion, HObject, PgShard};

use super::Pg;
use super::pieces::WORTH_A_BASE_BYTES;
use crate::osd::shared::Shared;
use crate::push::{Base, Cursor};

/// Ranges that are nearer to one another are read as one: a question to each shard costs as much as so many
/// bytes.
const BRIDGED_BYTES: u64 = 32 << 10;

/// Of the store: so many bytes have a checksum.
const BLOCK: u64 = 4096;

/// What of an object's shards is to be made.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Changed {
    /// Copies that have an older version, and where it may differ.
    bases: BTreeMap<PgShard, Base>,
    /// Where any copy needs something, in order and apart; `None` for everywhere.
    ranges: Option<Vec<(u64, u64)>>,
}

impl Changed {
    /// For these copies, of which some have a base.
    fn new(targets: &BTreeSet<PgShard>, bases: BTreeMap<PgShard, Base>) -> Self {
        let all_have_one = targets.iter().all(|copy| bases.contains_key(copy));
        let of_all = || bases.values().flat_map(|base| base.ranges.iter().copied()).collect();
        let ranges = all_have_one.then(|| joined(of_all(), BRIDGED_BYTES));
        Self { bases, ranges }
    }

    pub fn base(&self, copy: PgShard) -> Option<&Base> {
        self.bases.get(&copy)
    }

    /// What a piece takes of a shard of `size` bytes from a place on, at most `max` bytes.
    pub fn piece(&self, from: u64, size: u64, max: u64) -> Vec<(u64, u64)> {
        let (mut left, mut out) = (max, Vec::new());
        let all = [(0, u64::MAX)];
        for (offset, len) in self.ranges.as_deref().unwrap_or(&all) {
            let (start, end) = ((*offset).max(from), offset.saturating_add(*len).min(size));
            let take = end.saturating_sub(start).min(left);
            if take > 0 {
                out.push((start, take));
                left -= take;
            }
        }
        out
    }

    /// Where the piece begins that follows one that ends at `end`.
    pub fn next(&self, end: u64, size: u64) -> Option<Cursor> {
        let is_more = !self.piece(end, size, 1).is_empty();
        is_more.then(|| Cursor { data: end, ..Cursor::headed() })
    }

    /// What a copy needs of bytes of its shard that begin at `at`: nothing of what it has, nor what is a
    /// hole, as it was on the shard that was lost.
    pub fn extents(&self, copy: PgShard, at: u64, data: &Bytes) -> Vec<(u64, Bytes)> {
        let all = [(0, u64::MAX)];
        let ranges = self.base(copy).map_or(all.as_slice(), |base| &base.ranges);
        let end = at.saturating_add(data.len() as u64);
        let cut = |(offset, len): &(u64, u64)| {
            let (from, until) = ((*offset).max(at), offset.saturating_add(*len).min(end));
            // Both lie in a buffer in memory.
            (from < until).then(|| (from, data.slice((from - at) as usize..(until - at) as usize)))
        };
        let holds_some = |(_, data): &(u64, Bytes)| data.iter().any(|byte| *byte != 0);
        ranges.iter().filter_map(cut).filter(holds_some).collect()
    }
}

impl Pg {
    /// What is to be made of the shards of an object, of `size` bytes each, for copies that lack it.
    pub(super) fn changed_shards(
        &self,
        object: &HObject,
        (version, size): (Eversion, u64),
        targets: &BTreeSet<PgShard>,
        cx: &mut Shared,
    ) -> Changed {
        let mut bases = BTreeMap::new();
        for copy in targets {
            if let Some(base) = self.shard_base(*copy, object, version, cx) {
                let kept = size.saturating_sub(base.bytes_below(size));
                if kept >= WORTH_A_BASE_BYTES {
                    bases.insert(*copy, base);
                }
            }
        }
        Changed::new(targets, bases)
    }

    /// The older version of a shard that a copy should have, as the log says. The copy looks whether it is
    /// there.
    fn shard_base(
        &self,
        copy: PgShard,
        object: &HObject,
        version: Eversion,
        cx: &mut Shared,
    ) -> Option<Base> {
        let is_own = copy == self.me(cx);
        let missing = if is_own { &self.missing } else { self.peers.get(&copy)?.missing.as_ref()? };
        let item = missing.get(object).filter(|item| item.need == version)?;
        let base = self.base_for(item.have, version)?;
        if is_own && !self.is_base(object, base.version, cx) {
            return None;
        }
        let stripes = &self.backend.geometry()?.stripes;
        if stripes.chunk_size() % BLOCK != 0 {
            return None;
        }
        Some(Base { ranges: on_shards(stripes, &base.ranges), ..base })
    }

    /// Primary: a copy has not the older version that it was sent changes of. It needs all of the shard, and
    /// the object's pieces begin anew.
    pub(super) fn shard_lacks_base(&mut self, copy: PgShard, object: &HObject, cx: &mut Shared) {
        self.has_no_base(copy, object);
        self.finish(object, cx);
        self.rebuild_object(object, cx);
    }
}

/// Where shards may differ when these bytes of an object do.
fn on_shards(stripes: &Stripes, ranges: &[(u64, u64)]) -> Vec<(u64, u64)> {
    let (width, chunk) = (stripes.stripe_width(), stripes.chunk_size());
    let rows = |(offset, len): &(u64, u64)| {
        let end = offset.saturating_add(*len).div_ceil(width).saturating_mul(chunk);
        (offset / width * chunk, end - offset / width * chunk)
    };
    joined(ranges.iter().map(rows).collect(), 0)
}

/// Offsets and lengths in order, one where they meet or are less than `bridged` apart.
fn joined(mut ranges: Vec<(u64, u64)>, bridged: u64) -> Vec<(u64, u64)> {
    ranges.sort_unstable();
    let mut out: Vec<(u64, u64)> = Vec::with_capacity(ranges.len());
    for (offset, len) in ranges {
        match out.last_mut() {
            Some((at, so_far)) if offset <= at.saturating_add(*so_far).saturating_add(bridged) => {
                *so_far = (*so_far).max(offset.saturating_add(len).saturating_sub(*at));
            }
            _ => out.push((offset, len)),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use types::{Epoch, OsdId};

    use super::*;

    fn copy(shard: i8) -> PgShard {
        PgShard { osd: OsdId(shard.into()), shard }
    }

    fn base(ranges: &[(u64, u64)]) -> Base {
        Base { version: Eversion::new(Epoch(1), 1), ranges: ranges.to_vec(), omap: false }
    }

    #[test]
    fn pieces_are_of_what_any_copy_needs() {
        let far = 1 << 20;
        let bases = [(copy(0), base(&[(0, 4096)])), (copy(1), base(&[(8192, 4096), (far, u64::MAX - far)]))];
        let both = BTreeSet::from([copy(0), copy(1)]);
        let changed = Changed::new(&both, bases.clone().into());
        let size = far + 8192;
        assert_eq!(changed.piece(0, size, u64::MAX), [(0, 12_288), (far, 8192)]);
        assert_eq!(changed.piece(0, size, 16_384), [(0, 12_288), (far, 4096)]);
        assert_eq!(changed.next(far + 4096, size), Some(Cursor { data: far + 4096, ..Cursor::headed() }));
        assert_eq!(changed.next(size, size), None);
        // One that has nothing needs everything.
        let three = BTreeSet::from([copy(0), copy(1), copy(2)]);
        let changed = Changed::new(&three, bases.into());
        assert_eq!(changed.piece(4096, size, 8192), [(4096, 8192)]);
        let data = Bytes::from(vec![1; 16_384]);
        let places = |shard| {
            let extents = changed.extents(copy(shard), 0, &data);
            extents.iter().map(|(at, data)| (*at, data.len())).collect::<Vec<_>>()
        };
        assert_eq!(places(0), [(0, 4096)]);
        assert_eq!(places(1), [(8192, 4096)]);
        assert_eq!(places(2), [(0, 16_384)]);
        assert!(changed.extents(copy(2), 0, &Bytes::from_static(&[0; 64])).is_empty());
    }
}
