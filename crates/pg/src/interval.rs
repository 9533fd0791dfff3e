//! Intervals: spans of epochs in which a PG's members did not change, and which of them may have taken writes.
//!
//! Invariants of `PastIntervals`:
//! 1. Intervals are in order and do not overlap.
//! 2. None ends at or after the current interval's first epoch.

use std::collections::BTreeSet;

use codec::{Decode, Encode};
use maps::OsdMap;
use types::{Epoch, PgId};

use crate::range::split_bits;

/// A PG's members in one map, as placement gives them; -1 and holes never occur in replicated pools.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Members {
    pub up: Vec<i32>,
    /// -1 for none.
    pub up_primary: i32,
    pub acting: Vec<i32>,
    /// -1 for none.
    pub acting_primary: i32,
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
        let pool = map.pool(pgid.pool)?;
        if pgid.seed >= pool.pg_num {
            return None;
        }
        Some(Self {
            members: members_of(map, pgid),
            size: pool.size,
            min_size: pool.min_size,
            pg_num: pool.pg_num,
            bits: split_bits(pgid.seed, pool.pg_num),
            premerge: pool.is_pending_merge(pgid),
        })
    }

    /// Whether a new interval begins with it.
    pub fn begins_interval(&self, before: &Self) -> bool {
        *self != Self { pg_num: self.pg_num, ..before.clone() }
    }
}

/// One span of epochs, both ends included.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Interval {
    pub first: Epoch,
    pub last: Epoch,
    pub up: Vec<i32>,
    pub acting: Vec<i32>,
    pub primary: i32,
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

    pub fn push(&mut self, i: Interval) {
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

    /// Takes older intervals that another copy remembers.
    pub fn merge_older(&mut self, theirs: &Self) {
        let Some(first) = self.intervals.first().map(|i| i.first) else {
            self.intervals.clone_from(&theirs.intervals);
            return;
        };
        let mut older: Vec<_> = theirs.intervals.iter().filter(|i| i.last < first).cloned().collect();
        older.append(&mut self.intervals);
        self.intervals = older;
    }

    /// Drops intervals that reach into the current one (a peer may know later epochs than we do).
    pub fn cut_at(&mut self, same_interval_since: Epoch) {
        self.intervals.retain(|i| i.last < same_interval_since);
    }

    /// All OSDs that were members.
    pub fn participants(&self) -> BTreeSet<i32> {
        self.intervals.iter().flat_map(|i| i.acting.iter().chain(&i.up).copied()).collect()
    }

    pub fn assert_invariants(&self, same_interval_since: Epoch) {
        for (a, b) in self.intervals.iter().zip(self.intervals.iter().skip(1)) {
            assert!(a.first <= a.last && a.last < b.first, "1: {} and {}", a.last, b.first);
        }
        assert!(self.intervals.last().is_none_or(|i| i.last < same_interval_since), "2: reaches the present");
    }
}

/// Closes the interval that began at `first` and of which `last_map` is the last epoch.
///
/// Writes were possible when enough members were there and the primary was alive beyond its start: a primary asks the
/// monitors to record that it is alive (`up_thru`) before it takes the first write. Source:
/// PastIntervals::check_new_interval.
pub fn close_interval(
    first: Epoch,
    last_map: &OsdMap,
    key: &IntervalKey,
    last_epoch_clean: Epoch,
) -> Interval {
    let m = &key.members;
    let last = last_map.epoch;
    let enough = m.acting.len() >= usize::from(key.min_size.max(1)) && m.acting_primary >= 0;
    let primary_alive =
        last_map.osd(m.acting_primary).is_some_and(|o| o.info.up_thru >= first && o.info.up_from <= first);
    let was_clean = last_epoch_clean >= first && last_epoch_clean <= last;
    Interval {
        first,
        last,
        up: m.up.clone(),
        acting: m.acting.clone(),
        primary: m.acting_primary,
        maybe_went_rw: enough && (primary_alive || was_clean),
    }
}

fn members_of(map: &OsdMap, pgid: PgId) -> Members {
    let m = map.pg_to_up_acting(pgid);
    Members { up: m.up, up_primary: m.up_primary, acting: m.acting, acting_primary: m.acting_primary }
}
