//! Primaries of earlier intervals that may not know yet that they are replaced: they answer reads for as long as members let
//! them. A new primary begins when none of them can. ARCHITECTURE.md has the argument.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use maps::OsdMap;

use super::{Pg, Phase};
use crate::config::Planted;
use crate::interval::Interval;
use crate::osd::lease::padded;
use crate::osd::shared::Shared;

/// What a primary learned in its interval of those before it.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Prior {
    /// When the interval began here.
    since: Duration,
    /// OSDs that know of the interval, and when they were first heard.
    heard: BTreeMap<i32, Duration>,
    /// By member and earlier primary: when what the one promised the other is over.
    owed: BTreeMap<(i32, i32), Duration>,
}

/// For how many milliseconds some OSDs may still count on the sender of a notify.
pub(crate) type Owed = Vec<(i32, u32)>;

impl Prior {
    pub fn begin(now: Duration) -> Self {
        Self { since: now, ..Self::default() }
    }

    /// An OSD spoke in the present interval.
    pub fn heard(&mut self, from: i32, owed: &Owed, now: Duration) {
        self.heard.entry(from).or_insert(now);
        for (primary, ms) in owed {
            // What it answers from now on helps nobody who does not know of this interval: the first statement holds.
            let until = now + padded(Duration::from_millis(u64::from(*ms)));
            self.owed.entry((from, *primary)).or_insert(until);
        }
    }
}

impl Pg {
    /// What this copy owes the primaries that it knows of.
    pub fn owed(&self, cx: &Shared) -> Owed {
        let primaries: BTreeSet<i32> = self.past.iter().map(|i| i.primary).filter(|p| *p >= 0).collect();
        owed_to(primaries, cx)
    }

    /// Begins when no earlier primary can answer any more; else waits, and says for whom.
    pub fn check_prior(&mut self, cx: &mut Shared) {
        let readers = self.prior_readers(cx);
        if readers.is_empty() || cx.config.planted == Some(Planted::NoWaitForReaders) {
            return self.activate(cx);
        }
        self.blocked_by = readers.into_iter().collect();
        self.report |= self.phase != Phase::WaitReadable;
        self.phase = Phase::WaitReadable;
    }

    /// Primaries of earlier intervals that may still answer.
    fn prior_readers(&self, cx: &Shared) -> BTreeSet<i32> {
        self.past_with_writes()
            .filter(|i| !self.has_ended(i, cx) && self.readable_until(i, cx) > cx.now.mono)
            .map(|i| i.primary)
            .collect()
    }

    /// Whether an interval's primary surely knows that it is over, or is dead.
    fn has_ended(&self, i: &Interval, cx: &Shared) -> bool {
        i.primary == cx.whoami || self.prior.heard.contains_key(&i.primary) || is_over(&cx.map, i)
    }

    /// The primary needed every member: the one that owes it least decides. Who knows of this interval answers nobody any more
    /// who does not; one that was heard without a word on that primary may have answered it just before.
    fn readable_until(&self, i: &Interval, cx: &Shared) -> Duration {
        let lease = padded(cx.config.read_lease());
        let heard = |osd: i32| self.prior.heard.get(&osd).map(|at| *at + lease);
        let stated = |osd: i32| match osd == cx.whoami {
            true => Some(cx.now.mono + cx.owed(i.primary)),
            false => self.prior.owed.get(&(osd, i.primary)).copied().or_else(|| heard(osd)),
        };
        let least = i.acting.iter().filter(|o| **o != i.primary).filter_map(|o| stated(*o)).min();
        least.unwrap_or(self.prior.since + lease)
    }
}

/// What this OSD owes each of these.
pub(crate) fn owed_to(osds: impl IntoIterator<Item = i32>, cx: &Shared) -> Owed {
    let ms = |left: Duration| u32::try_from(left.as_nanos().div_ceil(1_000_000)).unwrap_or(u32::MAX);
    osds.into_iter().map(|osd| (osd, ms(cx.owed(osd)))).collect()
}

/// Whether the map proves that the process that led this interval is dead, or has learned of a later one.
fn is_over(map: &OsdMap, i: &Interval) -> bool {
    map.is_dead(i.primary) || map.osd(i.primary).is_some_and(|o| o.exists() && o.info.up_from > i.last)
}
