//! What a change left different of an object, at most: whoever has the version before needs only that.
//!
//! Source: ObjectCleanRegions in src/osd/osd_types.h, which keeps several ranges; one is enough for one request.

use store::{ObjectKey, Op, Txn};
use types::Eversion;

use crate::log::PgLog;
use crate::push::Base;

/// Bytes of a block: finer is not worth it, for the store's blocks are as large.
const BLOCK: u64 = 4096;
/// Ranges that a base names; more are joined where the gaps are the smallest.
const MAX_RANGES: usize = 64;

/// One range of data, in blocks, and whether the omap. Attributes always count as changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Dirty {
    from: u32,
    /// Not in it; `u32::MAX` for all there is.
    until: u32,
    omap: bool,
}

codec::wire_plain!(Dirty { from, until, omap });

/// What entries without a word on it mean.
impl Default for Dirty {
    fn default() -> Self {
        Self::ALL
    }
}

impl Dirty {
    pub const ALL: Self = Self { from: 0, until: u32::MAX, omap: true };
    pub const NOTHING: Self = Self { from: 0, until: 0, omap: false };

    /// What a transaction changes of an object that exists.
    pub fn of(txn: &Txn, key: &ObjectKey) -> Self {
        let is_it = |index| txn.object(index) == Some(key);
        let mut dirty = Self::NOTHING;
        for op in txn.ops() {
            match op {
                Op::Write { object, offset, data } if is_it(*object) => {
                    dirty.add(*offset, offset.saturating_add(data.len() as u64));
                }
                Op::Zero { object, offset, len } if is_it(*object) => {
                    dirty.add(*offset, offset.saturating_add(*len));
                }
                Op::Truncate { object, size } if is_it(*object) => dirty.add(*size, u64::MAX),
                Op::CloneRange { dst, len, dst_offset, .. } | Op::MoveRange { dst, len, dst_offset, .. }
                    if is_it(*dst) =>
                {
                    dirty.add(*dst_offset, dst_offset.saturating_add(*len));
                }
                Op::OmapSet { object, .. }
                | Op::OmapRm { object, .. }
                | Op::OmapRmRange { object, .. }
                | Op::OmapClear { object }
                | Op::OmapSetHeader { object, .. }
                    if is_it(*object) =>
                {
                    dirty.omap = true;
                }
                Op::Remove { object } if is_it(*object) => return Self::ALL,
                Op::Clone { dst, .. } if is_it(*dst) => return Self::ALL,
                Op::Rename { src, dst } if is_it(*src) || is_it(*dst) => return Self::ALL,
                _ => {}
            }
        }
        dirty
    }

    /// Takes bytes into the range; what is between counts too.
    fn add(&mut self, from: u64, until: u64) {
        if from >= until {
            return;
        }
        let block = |at: u64| u32::try_from(at).unwrap_or(u32::MAX);
        let (from, until) = (block(from / BLOCK), block(until.div_ceil(BLOCK)));
        if self.until == 0 {
            (self.from, self.until) = (from, until);
        } else {
            (self.from, self.until) = (self.from.min(from), self.until.max(until));
        }
    }

    /// Offset and end, in bytes.
    fn range(self) -> Option<(u64, u64)> {
        let end = if self.until == u32::MAX { u64::MAX } else { u64::from(self.until) * BLOCK };
        (self.from < self.until).then(|| (u64::from(self.from) * BLOCK, end))
    }
}

/// What a copy with the version `have` needs to get to `need`; `None` when the log does not say.
pub(crate) fn changed_between(log: &PgLog, have: Eversion, need: Eversion) -> Option<Base> {
    if have == Eversion::ZERO {
        return None;
    }
    let (mut at, mut ranges, mut omap) = (need, Vec::new(), false);
    while at != have {
        let entry = log.entry(at).filter(|e| e.prior_version >= have && e.prior_version < at)?;
        if entry.is_delete() || entry.dirty == Dirty::ALL {
            return None;
        }
        ranges.extend(entry.dirty.range());
        omap |= entry.dirty.omap;
        at = entry.prior_version;
    }
    Some(Base { version: have, ranges: joined(ranges), omap })
}

/// Sorted (offset, length), joined where they touch, and not too many.
fn joined(mut ranges: Vec<(u64, u64)>) -> Vec<(u64, u64)> {
    ranges.sort_unstable();
    let mut out: Vec<(u64, u64)> = Vec::with_capacity(ranges.len().min(MAX_RANGES));
    for (from, until) in ranges {
        match out.last_mut() {
            Some((_, end)) if *end >= from => *end = (*end).max(until),
            _ => out.push((from, until)),
        }
    }
    if out.len() > MAX_RANGES {
        let gap = |pair: &[(u64, u64)]| match pair {
            [(_, end), (from, _)] => from - end,
            _ => 0,
        };
        let mut gaps: Vec<u64> = out.windows(2).map(gap).collect();
        gaps.sort_unstable();
        let least = gaps.len().saturating_sub(MAX_RANGES - 1);
        let bridged = gaps.get(least).copied().unwrap_or(u64::MAX);
        out.dedup_by(|next, kept| {
            let joins = next.0 - kept.1 < bridged;
            kept.1 = if joins { next.1 } else { kept.1 };
            joins
        });
    }
    out.into_iter().map(|(from, until)| (from, until - from)).collect()
}

#[cfg(test)]
mod tests {
    use types::HObject;

    use super::*;

    type Fill = for<'a> fn(&'a mut Txn, &ObjectKey, &ObjectKey) -> &'a mut Txn;

    #[test]
    fn what_transactions_change() {
        let key = |name: &str| ObjectKey::replicated(HObject { name: name.into(), ..HObject::min() });
        let check = |fill: Fill, want: Option<(u64, u64)>, omap: bool| {
            let mut txn = Txn::new();
            fill(&mut txn, &key("o"), &key("other"));
            let dirty = Dirty::of(&txn, &key("o"));
            assert_eq!((dirty.range(), dirty.omap), (want, omap), "{txn:?}");
        };
        check(|t, _, _| t, None, false);
        check(|t, o, _| t.write(o, 5000, vec![1; 4000]), Some((4096, 12288)), false);
        check(|t, o, _| t.write(o, 8192, vec![1; 4096]).zero(o, 0, 1), Some((0, 12288)), false);
        check(|t, o, _| t.truncate(o, 4097), Some((4096, u64::MAX)), false);
        check(|t, o, _| t.truncate(o, 1 << 60), None, false);
        check(|t, o, p| t.clone_range(p, o, 0, 10, 4090), Some((0, 8192)), false);
        check(|t, o, _| t.omap_set(o, vec![(b"k"[..].into(), b"v"[..].into())]), None, true);
        check(|t, o, _| t.set_attr(o, &b"a"[..], &b"v"[..]), None, false);
        check(|t, o, p| t.clone_object(o, p).write(p, 0, vec![1]), None, false);
        check(|t, o, p| t.clone_object(p, o), Some((0, u64::MAX)), true);
        check(|t, o, _| t.remove(o), Some((0, u64::MAX)), true);
        check(|t, o, p| t.rename(p, o), Some((0, u64::MAX)), true);
    }

    #[test]
    fn ranges_are_joined_and_bounded() {
        assert_eq!(joined(vec![(8, 12), (0, 4), (4, 6), (10, u64::MAX)]), [(0, 6), (8, u64::MAX - 8)]);
        // The gaps grow: the first ones are bridged.
        let many: Vec<(u64, u64)> = (0..1000u64).map(|i| (i * (i + 10), i * (i + 10) + 1)).collect();
        let few = joined(many.clone());
        assert_eq!(few.len(), MAX_RANGES);
        assert_eq!(few.last().map(|(from, len)| from + len), many.last().map(|r| r.1));
        for (from, until) in many {
            assert!(few.iter().any(|(at, len)| *at <= from && until <= at + len), "{from} is lost");
        }
    }
}
