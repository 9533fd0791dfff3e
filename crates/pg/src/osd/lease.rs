//! Read leases: what members let this OSD do for a while as a primary, and what it let others do.
//!
//! A lease is between two OSDs and counts for all their PGs. Each side uses its own monotonic clock alone: the holder counts from
//! when it asked, the other from when it answered, which is later. Why this is enough is in ARCHITECTURE.md.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// The part by which spans grow where they are waited out, so that clocks may run apart.
const DRIFT: u32 = 16;

/// Questions to an OSD that are remembered at most; one comes with each heartbeat and activation.
const ASKED_MAX: usize = 64;

/// A span with room for clocks that run apart.
pub(crate) fn padded(span: Duration) -> Duration {
    span + span / DRIFT
}

/// Leases held and promised.
#[derive(Debug, Default)]
pub(crate) struct Leases {
    /// Until when each OSD lets us answer.
    held: BTreeMap<i32, Duration>,
    /// Until when each OSD may answer, as far as it needs us.
    promised: BTreeMap<i32, Duration>,
    /// When this process began: what it promised before is forgotten, and may be anything.
    born: Option<Duration>,
    /// When each OSD was asked, as long as an answer could be of use, oldest first.
    asked: BTreeMap<i32, VecDeque<Duration>>,
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
    pub fn granted(&mut self, osd: i32, sent: Duration, lease: Duration) {
        let until = self.held.entry(osd).or_default();
        *until = (*until).max(sent + lease);
        self.waited = true;
    }

    /// An OSD is asked now; answers are of use for `lease`.
    pub fn ask(&mut self, osd: i32, now: Duration, lease: Duration) {
        let asked = self.asked.entry(osd).or_default();
        while asked.front().is_some_and(|at| *at + lease <= now) {
            asked.pop_front();
        }
        if asked.back() != Some(&now) {
            asked.push_back(now);
        }
        if asked.len() > ASKED_MAX {
            asked.pop_front();
        }
    }

    /// Whether this process asked an OSD at that time: what an answer says of it is not believed.
    pub fn has_asked(&self, osd: i32, sent: Duration) -> bool {
        self.asked.get(&osd).is_some_and(|asked| asked.contains(&sent))
    }

    pub fn holds(&self, osd: i32, now: Duration) -> bool {
        !self.given_up && self.held.get(&osd).is_some_and(|until| now < *until)
    }

    /// We answer an OSD now: it may take us for a supporter for `lease` from when it asked, which is before.
    pub fn promise(&mut self, osd: i32, now: Duration, lease: Duration) {
        let until = self.promised.entry(osd).or_default();
        *until = (*until).max(now + padded(lease));
    }

    /// For how long an OSD may still count on us; `lease` is the longest that an earlier life of this process has granted.
    pub fn owed(&self, osd: i32, now: Duration, lease: Duration) -> Duration {
        let forgotten = self.born.unwrap_or(now) + padded(lease);
        let until = self.promised.get(&osd).map_or(forgotten, |until| forgotten.max(*until));
        until.saturating_sub(now)
    }

    /// Forgets leases of OSDs that are no peers any more, and promises that are over.
    pub fn tidy(&mut self, is_peer: impl Fn(i32) -> bool, now: Duration) {
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

    #[test]
    fn a_promise_outlasts_the_lease_it_stands_for() {
        let (mut holder, mut member) = (Leases::default(), Leases::default());
        member.begin(s(0));
        let lease = s(16);
        member.promise(3, s(100), lease);
        holder.granted(7, s(99), lease);
        assert!(holder.holds(7, s(114)) && !holder.holds(7, s(115)));
        assert!(member.owed(3, s(115), lease) > Duration::ZERO);
        assert_eq!(member.owed(3, s(117), lease), Duration::ZERO);
        holder.granted(7, s(50), lease);
        assert!(holder.holds(7, s(114)), "an older answer takes nothing away");
        assert!(!holder.holds(8, s(99)));
    }

    #[test]
    fn a_process_owes_what_its_earlier_life_may_have_promised() {
        let mut member = Leases::default();
        member.begin(s(100));
        member.begin(s(110));
        assert_eq!(member.owed(3, s(101), s(16)), s(16));
        assert_eq!(member.owed(3, s(117), s(16)), Duration::ZERO);
    }

    #[test]
    fn only_what_was_asked_counts() {
        let mut holder = Leases::default();
        holder.ask(7, s(10), s(16));
        holder.ask(7, s(10), s(16));
        holder.ask(7, s(16), s(16));
        assert!(holder.has_asked(7, s(10)) && holder.has_asked(7, s(16)));
        assert!(!holder.has_asked(7, s(9)) && !holder.has_asked(7, s(17)) && !holder.has_asked(8, s(10)));
        holder.ask(7, s(26), s(16));
        assert!(!holder.has_asked(7, s(10)), "an answer to that is of no use any more");
        assert_eq!(holder.asked[&7], [s(16), s(26)]);
    }

    #[test]
    fn one_that_gave_up_holds_nothing() {
        let mut holder = Leases::default();
        holder.granted(7, s(1), s(16));
        holder.given_up = true;
        assert!(!holder.holds(7, s(2)));
    }
}
