//! Intervals: spans of epochs in which a PG's members did not change, and which of them may have taken writes.
//!
//! Invariants of `PastIntervals`:
//! 1. Intervals are in order and do not overlap.
//! 2. None ends at or after the current interval's first epoch.

use codec::{Decode, Encode};
use maps::{OsdMap, PgMapping, Placements};
use types::{Epoch, OsdId, PgId, PgShard, SpgId};

use crate::range::split_bits;

/// A PG's members in one map, as placement gives them. In an erasure-coded pool the place is the shard, and
/// places may be holes; replicated pools have none.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Members {
    pub up: Vec<OsdId>,
    /// -1 for none.
    pub up_primary: OsdId,
    pub acting: Vec<OsdId>,
    /// -1 for none.
    pub acting_primary: OsdId,
}

/// Everything whose change starts a new interval. Source: PastIntervals::is_new_interval in src/osd/osd_types.cc.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct IntervalKey {
    pub members: Members,
    pub size: u8,
    pub min_size: u8,
    /// Of the pool. Its change is none of this PG's business while the PG keeps its objects.
    pub pg_num: u32,
    /// Bits of an object's hash that decide about membership.
    pub bits: u32,
    /// It waits to be merged with another, and serves nobody.
    pub premerge: bool,
}

impl IntervalKey {
    /// The PG's key in this map; `None` when the pool or the PG is not in it.
    pub fn of(map: &OsdMap, pgid: PgId) -> Option<Self> {
        Self::with(map, pgid, OsdMap::pg_to_up_acting)
    }

    /// The same, for maps one after the other.
    pub fn placed(map: &OsdMap, pgid: PgId, placements: &mut Placements) -> Option<Self> {
        Self::with(map, pgid, |map, pgid| placements.pg_to_up_acting(map, pgid))
    }

    fn with(map: &OsdMap, pgid: PgId, place: impl FnOnce(&OsdMap, PgId) -> PgMapping) -> Option<Self> {
        let pool = map.pool(pgid.pool)?;
        if pgid.seed >= pool.pg_num {
            return None;
        }
        Some(Self {
            members: members_of(place(map, pgid)),
            size: pool.size,
            min_size: pool.min_size,
            pg_num: pool.pg_num,
            bits: split_bits(pgid.seed, pool.pg_num),
            premerge: pool.is_pending_merge(pgid),
        })
    }

    /// Whether a new interval begins with it.
    pub fn begins_interval(&self, before: &Self) -> bool {
        let Self { members, size, min_size, pg_num: _, bits, premerge } = self;
        (members, size, min_size, bits, premerge)
            != (&before.members, &before.size, &before.min_size, &before.bits, &before.premerge)
    }
}

/// One span of epochs, both ends included.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Interval {
    pub first: Epoch,
    pub last: Epoch,
    pub up: Vec<OsdId>,
    pub acting: Vec<OsdId>,
    pub primary: OsdId,
    /// Whether writes may have been acknowledged in it.
    pub maybe_went_rw: bool,
}

codec::wire_struct!(Interval(1, 1) { first, last, up, acting, primary, maybe_went_rw });

/// The intervals since the PG was last clean, oldest first.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PastIntervals {
    intervals: Vec<Interval>,
}

impl Encode for PastIntervals {
    fn encode(&self, w: &mut codec::Writer) {
        self.intervals.encode(w);
    }
}
impl Decode for PastIntervals {
    fn decode(r: &mut codec::Reader) -> Result<Self, codec::DecodeError> {
        Ok(Self { intervals: Vec::decode(r)? })
    }
}

impl PastIntervals {
    pub fn is_empty(&self) -> bool {
        self.intervals.is_empty()
    }
    /// Oldest first.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &Interval> {
        self.intervals.iter()
    }
    pub fn clear(&mut self) {
        self.intervals.clear();
    }

    fn push(&mut self, i: Interval) {
        assert!(
            self.intervals.last().is_none_or(|l| l.last < i.first),
            "interval {} is out of order",
            i.first
        );
        self.intervals.push(i);
    }

    /// Forgets intervals that ended before the PG was last clean: what they wrote is on every copy since.
    pub fn forget_before(&mut self, last_epoch_clean: Epoch) {
        self.intervals.retain(|i| i.last >= last_epoch_clean);
    }

    /// Takes what another copy remembers from before `since`. One that lacks maps knows only the end of an interval, and may
    /// not know that writes were taken in it: where both remember the same, the wider counts.
    pub fn merge(&mut self, theirs: &Self, since: Epoch) {
        for t in theirs.intervals.iter().filter(|t| t.last < since) {
            let meets = |i: &Interval| i.first <= t.last && t.first <= i.last;
            let same = |i: &Interval| (i.primary, &i.acting, &i.up) == (t.primary, &t.acting, &t.up);
            if self.intervals.iter().any(|i| meets(i) && !same(i)) {
                continue;
            }
            let mut wide = t.clone();
            for i in self.intervals.iter().filter(|i| meets(i)) {
                wide.first = wide.first.min(i.first);
                wide.last = wide.last.max(i.last);
                wide.maybe_went_rw |= i.maybe_went_rw;
            }
            self.intervals.retain(|i| !meets(i));
            let at = self.intervals.partition_point(|i| i.last < wide.first);
            self.intervals.insert(at, wide);
        }
    }

    /// Closes the interval that began at `first` and of which `last_map` is the last epoch.
    ///
    /// Writes were possible when enough members were there and the primary was alive beyond its start: a primary asks the
    /// monitors to record that it is alive (`up_thru`) before it takes the first write. When nothing is known of the time just
    /// before, trimmed maps may hide the real start, which `up_thru` counts from: writes are presumed. (They go when every PG was
    /// clean there or later, so an interval that they cut is that one, or an older one, whose writes do not matter.) `presume` is
    /// true but for a planted bug. Source: PastIntervals::check_new_interval.
    pub fn close(
        &mut self,
        first: Epoch,
        last_map: &OsdMap,
        key: &IntervalKey,
        last_epoch_clean: Epoch,
        presume: bool,
    ) {
        let m = &key.members;
        let last = last_map.epoch;
        let enough = present(&m.acting) >= usize::from(key.min_size.max(1)) && m.acting_primary.is_osd();
        let primary_alive = last_map
            .osd(m.acting_primary)
            .is_some_and(|o| o.info.up_thru >= first && o.info.up_from <= first);
        let was_clean = last_epoch_clean >= first && last_epoch_clean <= last;
        let cut = presume && self.intervals.last().is_none_or(|before| before.last.next() != first);
        self.push(Interval {
            first,
            last,
            up: m.up.clone(),
            acting: m.acting.clone(),
            primary: m.acting_primary,
            maybe_went_rw: enough && (primary_alive || was_clean || cut),
        });
    }

    /// As `close` does now, for intervals that were stored before it presumed anything.
    pub fn presume_writes(&mut self, min_size: u8) {
        let mut known_to = None;
        for i in &mut self.intervals {
            let cut = known_to != Some(i.first);
            i.maybe_went_rw |=
                cut && i.primary.is_osd() && present(&i.acting) >= usize::from(min_size.max(1));
            known_to = Some(i.last.next());
        }
    }

    /// Drops intervals that reach into the current one (a peer may know later epochs than we do).
    pub fn cut_at(&mut self, same_interval_since: Epoch) {
        self.intervals.retain(|i| i.last < same_interval_since);
    }

    pub fn assert_invariants(&self, same_interval_since: Epoch) {
        for (a, b) in self.intervals.iter().zip(self.intervals.iter().skip(1)) {
            assert!(a.first <= a.last && a.last < b.first, "1: {} and {}", a.last, b.first);
        }
        assert!(self.intervals.last().is_none_or(|i| i.last < same_interval_since), "2: reaches the present");
    }
}

/// The copies at the places of an up or acting set. Holes are nobody.
pub(crate) fn copies(osds: &[OsdId], is_coded: bool) -> impl Iterator<Item = PgShard> + Clone + '_ {
    let shard = move |at: usize| if is_coded { i8::try_from(at).unwrap_or(i8::MAX) } else { SpgId::NO_SHARD };
    let there = osds.iter().enumerate().filter(|(_, osd)| osd.is_osd());
    there.map(move |(at, osd)| PgShard { osd: *osd, shard: shard(at) })
}

/// How many of these are OSDs.
pub(crate) fn present(osds: &[OsdId]) -> usize {
    osds.iter().filter(|osd| osd.is_osd()).count()
}

/// As wire forms and dumps list OSDs.
pub(crate) fn numbers(osds: &[OsdId]) -> Vec<i32> {
    osds.iter().map(|osd| osd.0).collect()
}

fn members_of(m: PgMapping) -> Members {
    let osds = |osds: Vec<i32>| osds.into_iter().map(OsdId).collect();
    Members {
        up: osds(m.up),
        up_primary: OsdId(m.up_primary),
        acting: osds(m.acting),
        acting_primary: OsdId(m.acting_primary),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(first: u32, last: u32, osd: i32, rw: bool) -> Interval {
        let (first, last, osd) = (Epoch(first), Epoch(last), OsdId(osd));
        Interval { first, last, up: vec![osd], acting: vec![osd], primary: osd, maybe_went_rw: rw }
    }

    fn past(all: &[(u32, u32, i32, bool)]) -> PastIntervals {
        PastIntervals { intervals: all.iter().map(|(a, b, osd, rw)| span(*a, *b, *osd, *rw)).collect() }
    }

    #[test]
    fn of_two_views_of_an_interval_the_wider_counts() {
        let cut = past(&[(50, 60, 1, true), (700, 1_199, 2, false)]);
        let whole = past(&[(55, 60, 1, false), (61, 1_199, 2, true)]);
        let both = past(&[(50, 60, 1, true), (61, 1_199, 2, true)]);
        for (mut ours, theirs) in [(cut.clone(), &whole), (whole.clone(), &cut)] {
            ours.merge(theirs, Epoch(1_200));
            assert_eq!(ours, both);
        }
        // Between ours, and before; what reaches into the present, or has other members, is left.
        let mut ours = past(&[(10, 19, 1, true), (30, 39, 2, false)]);
        ours.merge(
            &past(&[(5, 9, 4, true), (15, 22, 9, true), (23, 29, 3, true), (36, 45, 2, true)]),
            Epoch(40),
        );
        assert_eq!(ours, past(&[(5, 9, 4, true), (10, 19, 1, true), (23, 29, 3, true), (30, 39, 2, false)]));
        ours.assert_invariants(Epoch(40));
        // One that spans several of ours.
        let mut ours = past(&[(10, 19, 1, false), (30, 39, 1, false)]);
        ours.merge(&past(&[(15, 32, 1, true)]), Epoch(40));
        assert_eq!(ours, past(&[(10, 39, 1, true)]));
    }

    #[test]
    fn stored_intervals_without_a_known_start_may_have_been_written_in() {
        let mut stored =
            past(&[(10, 19, 1, false), (20, 29, 2, false), (700, 799, 3, false), (800, 801, 4, false)]);
        stored.presume_writes(1);
        let rw: Vec<bool> = stored.iter().map(|i| i.maybe_went_rw).collect();
        assert_eq!(rw, [true, false, true, false]);
        let mut alone = past(&[(10, 19, 1, false)]);
        alone.presume_writes(2);
        assert_eq!(alone, past(&[(10, 19, 1, false)]), "too few for any");
    }
}
