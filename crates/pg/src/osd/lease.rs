//! Read leases: what members let this OSD do for a while as a primary, and what it let others do.
//!
//! A lease is between two OSDs and counts for all their PGs. Each side uses its own clocks alone: the holder
//! counts from when it asked, the other from when it answered, which is later. Why this is enough is in
//! ARCHITECTURE.md.
//!
//! The holder's lease is over as soon as one of its clocks says so. The monotonic clock stands still while
//! the host is suspended; the wall clock shows that time has passed. A wall clock that is set ahead costs a
//! question to each member, and one that is set back changes nothing.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use types::{Now, OsdId, Utime};

/// The part by which spans grow where they are waited out, so that clocks may run apart.
const DRIFT: u32 = 16;

/// Questions to an OSD that are remembered at most; one comes with each heartbeat and activation.
const ASKED_MAX: usize = 64;

/// A span with room for clocks that run apart.
pub(crate) fn padded(span: Duration) -> Duration {
    span + span / DRIFT
}

/// A moment by both clocks of this OSD.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Moment {
    mono: Duration,
    wall: Utime,
}

impl From<Now> for Moment {
    fn from(now: Now) -> Self {
        Self { mono: now.mono, wall: now.wall }
    }
}

impl Moment {
    fn plus(self, span: Duration) -> Self {
        Self { mono: self.mono + span, wall: self.wall.plus(span) }
    }

    /// By both clocks.
    fn is_before(self, end: Self) -> bool {
        self.mono < end.mono && self.wall < end.wall
    }
}

/// Leases held and promised.
#[derive(Debug, Default)]
pub(crate) struct Leases {
    /// Until when each OSD lets us answer.
    held: BTreeMap<OsdId, Moment>,
    /// Until when each OSD may answer, as far as it needs us.
    promised: BTreeMap<OsdId, Duration>,
    /// When this process began: what it promised before is forgotten, and may be anything.
    born: Option<Duration>,
    /// When each OSD was asked, as long as an answer could be of use, oldest first.
    asked: BTreeMap<OsdId, VecDeque<Moment>>,
    /// The map shows this life of the process up. Else it lets nobody answer.
    pub is_up: bool,
    /// Requests wait for a lease, or one came.
    pub waited: bool,
    /// This OSD has told the monitors that it is dead: it answers nothing any more.
    pub given_up: bool,
}

impl Leases {
    /// The process begins.
    pub fn begin(&mut self, now: Duration) {
        self.born.get_or_insert(now);
    }

    /// An OSD answered what was sent at `sent`, and lets us answer for `lease` from then on.
    pub fn granted(&mut self, osd: OsdId, sent: Moment, lease: Duration) {
        let (known, until) = (self.held.entry(osd).or_default(), sent.plus(lease));
        if known.mono < until.mono {
            *known = until;
        }
        self.waited = true;
    }

    /// An OSD is asked now; answers are of use for `lease`.
    pub fn ask(&mut self, osd: OsdId, now: Now, lease: Duration) {
        let asked = self.asked.entry(osd).or_default();
        while asked.front().is_some_and(|at| at.mono + lease <= now.mono) {
            asked.pop_front();
        }
        if asked.back().is_none_or(|at| at.mono != now.mono) {
            asked.push_back(now.into());
        }
        if asked.len() > ASKED_MAX {
            asked.pop_front();
        }
    }

    /// The moment at which this process asked an OSD, by its monotonic clock: what an answer says of it is
    /// not believed. `None`: it did not ask then.
    pub fn asked_at(&self, osd: OsdId, sent: Duration) -> Option<Moment> {
        self.asked.get(&osd)?.iter().find(|at| at.mono == sent).copied()
    }

    pub fn holds(&self, osd: OsdId, now: Now) -> bool {
        !self.given_up && self.held.get(&osd).is_some_and(|until| Moment::from(now).is_before(*until))
    }

    /// We answer an OSD now: it may take us for a supporter for `lease` from when it asked, which is before.
    pub fn promise(&mut self, osd: OsdId, now: Duration, lease: Duration) {
        let until = self.promised.entry(osd).or_default();
        *until = (*until).max(now + padded(lease));
    }

    /// For how long an OSD may still count on us; `lease` is the longest that an earlier life of this process has granted.
    pub fn owed(&self, osd: OsdId, now: Duration, lease: Duration) -> Duration {
        let forgotten = self.born.unwrap_or(now) + padded(lease);
        let until = self.promised.get(&osd).map_or(forgotten, |until| forgotten.max(*until));
        until.saturating_sub(now)
    }

    /// Forgets leases of OSDs that are no peers any more, and promises that are over.
    pub fn tidy(&mut self, is_peer: impl Fn(OsdId) -> bool, now: Duration) {
        self.held.retain(|osd, _| is_peer(*osd));
        self.asked.retain(|osd, _| is_peer(*osd));
        self.promised.retain(|_, until| *until > now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn s(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    /// So many seconds by the monotonic clock, and by the wall clock.
    fn at(mono: u64, wall: u64) -> Now {
        Now { mono: s(mono), wall: Utime::from_unix(s(wall)) }
    }

    fn now(seconds: u64) -> Now {
        at(seconds, seconds + 1_000)
    }

    #[test]
    fn a_promise_outlasts_the_lease_it_stands_for() {
        let (mut holder, mut member) = (Leases::default(), Leases::default());
        member.begin(s(0));
        let lease = s(16);
        member.promise(OsdId(3), s(100), lease);
        holder.granted(OsdId(7), now(99).into(), lease);
        assert!(holder.holds(OsdId(7), now(114)) && !holder.holds(OsdId(7), now(115)));
        assert!(member.owed(OsdId(3), s(115), lease) > Duration::ZERO);
        assert_eq!(member.owed(OsdId(3), s(117), lease), Duration::ZERO);
        holder.granted(OsdId(7), now(50).into(), lease);
        assert!(holder.holds(OsdId(7), now(114)), "an older answer takes nothing away");
        assert!(!holder.holds(OsdId(8), now(99)));
    }

    #[test]
    fn a_lease_is_over_when_either_clock_says_so() {
        let mut holder = Leases::default();
        holder.granted(OsdId(7), at(100, 5_000).into(), s(16));
        assert!(holder.holds(OsdId(7), at(115, 5_015)));
        assert!(!holder.holds(OsdId(7), at(116, 5_000)), "the wall clock was set back");
        assert!(!holder.holds(OsdId(7), at(101, 5_016)), "the host was suspended");
        holder.granted(OsdId(7), at(102, 4_000).into(), s(16));
        assert!(
            holder.holds(OsdId(7), at(117, 4_015)),
            "the newest counts, whatever the wall clock was before"
        );
        assert!(!holder.holds(OsdId(7), at(117, 4_016)));
    }

    #[test]
    fn a_process_owes_what_its_earlier_life_may_have_promised() {
        let mut member = Leases::default();
        member.begin(s(100));
        member.begin(s(110));
        assert_eq!(member.owed(OsdId(3), s(101), s(16)), s(16));
        assert_eq!(member.owed(OsdId(3), s(117), s(16)), Duration::ZERO);
    }

    #[test]
    fn only_what_was_asked_counts() {
        let mut holder = Leases::default();
        holder.ask(OsdId(7), now(10), s(16));
        holder.ask(OsdId(7), now(10), s(16));
        holder.ask(OsdId(7), now(16), s(16));
        assert_eq!([10, 16].map(|t| holder.asked_at(OsdId(7), s(t))), [10, 16].map(|t| Some(now(t).into())));
        assert_eq!([(7, 9), (7, 17), (8, 10)].map(|(osd, t)| holder.asked_at(OsdId(osd), s(t))), [None; 3]);
        holder.ask(OsdId(7), now(26), s(16));
        assert_eq!(holder.asked_at(OsdId(7), s(10)), None, "an answer to that is of no use any more");
        assert_eq!(holder.asked[&OsdId(7)], [now(16).into(), now(26).into()]);
    }

    #[test]
    fn one_that_gave_up_holds_nothing() {
        let mut holder = Leases::default();
        holder.granted(OsdId(7), now(1).into(), s(16));
        holder.given_up = true;
        assert!(!holder.holds(OsdId(7), now(2)));
    }
}
