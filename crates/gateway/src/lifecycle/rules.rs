//! What a rule of a lifecycle does to an object, as a list of its bucket shows it. Source: LCOpAction and its
//! like in src/rgw/rgw_lc.cc.

use std::collections::BTreeMap;

use bytes::Bytes;
use rgw::index::Meta;
use rgw::{Key, PlacementRule, Rule, Transition, iso_8601};
use types::RealTime;

const DAY_S: u64 = 24 * 3600;

/// What time it is, and how long a day is taken to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Age {
    pub now: RealTime,
    /// Seconds that are taken for a day, for tests; 0 for days. Source: rgw_lc_debug_interval in
    /// src/common/options.cc.
    pub interval: u32,
}

impl Age {
    fn now_s(self) -> u64 {
        self.now.0.sec.into()
    }

    fn day(self) -> u64 {
        if self.interval > 0 { self.interval.into() } else { DAY_S }
    }

    /// Whether so many days have passed since a time. Days end at midnight, of UTC.
    fn has_passed(self, since: RealTime, days: u32) -> bool {
        let now = if self.interval > 0 { self.now_s() } else { self.now_s() / DAY_S * DAY_S };
        let due = u64::from(since.0.sec).saturating_add(u64::from(days).saturating_mul(self.day()));
        now >= due
    }

    /// Whether a round that began then is the one of today.
    pub(super) fn is_of_this_round(self, started: u64) -> bool {
        let since = if self.interval > 0 { started } else { started / DAY_S * DAY_S };
        self.now_s() < since.saturating_add(self.day())
    }

    /// Whether whoever began to work on a bucket then is taken for dead.
    pub(super) fn is_given_up(self, started: u64) -> bool {
        started.saturating_add(2 * self.day()) < self.now_s()
    }
}

/// An object, or a version of one, as a list shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen {
    /// With the version's id, or `null`.
    pub key: Key,
    pub meta: Meta,
    pub is_latest: bool,
    pub is_marker: bool,
    /// When the version came that is the next newer one.
    pub newer: Option<RealTime>,
    /// No older version follows.
    pub is_last: bool,
}

/// What is done to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expiry {
    /// What is shown goes; a delete marker comes where versions are kept.
    Shown,
    /// The version goes.
    Version,
}

/// When objects go to another storage class.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum When {
    /// So many days after they came, or after a newer version did.
    Days(u32),
    /// Seconds since 1970.
    Date(u64),
}

/// A rule that is in force, with numbers for its texts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Action {
    pub prefix: Bytes,
    /// All of which an object has to have.
    pub tags: BTreeMap<Bytes, Bytes>,
    /// Days that objects are kept; 0 where none are said, as in the next ones.
    days: u32,
    /// Seconds since 1970.
    date: Option<u64>,
    noncurrent_days: u32,
    pub upload_days: u32,
    /// Delete markers that are all that is left go.
    markers: bool,
    /// Storage classes that objects go to.
    moves: Vec<(When, Bytes)>,
    /// The same of older versions.
    noncurrent_moves: Vec<(When, Bytes)>,
}

/// A number as the C library reads it: what is none is 0.
fn days(text: &Bytes) -> u32 {
    std::str::from_utf8(text).ok().and_then(|text| text.trim().parse().ok()).unwrap_or(0)
}

/// A storage class by its name, also where it has none. Source: get_canonical_storage_class in
/// src/rgw/rgw_common.h.
pub(crate) fn canonical(class: &Bytes) -> Bytes {
    let rule = PlacementRule { storage_class: class.clone(), ..PlacementRule::default() };
    Bytes::copy_from_slice(rule.storage_class())
}

/// What moves objects, in the order of the classes. Days that are no number are none, and move nothing.
fn moves(all: &BTreeMap<Bytes, Transition>) -> Vec<(When, Bytes)> {
    let text = |raw: &Bytes| std::str::from_utf8(raw).ok().map(|text| text.trim().to_owned());
    let when = |of: &Transition| match of.days.is_empty() {
        true => Some(When::Date(iso_8601::read(&text(&of.date)?)?.0)),
        false => Some(When::Days(text(&of.days)?.parse().ok()?)),
    };
    all.iter().filter_map(|(class, of)| Some((when(of)?, canonical(class)))).collect()
}

impl Action {
    /// Nothing for a rule that is not in force.
    pub fn of(rule: &Rule) -> Option<Self> {
        if rule.status.as_ref() != b"Enabled" {
            return None;
        }
        let prefix = if rule.filter.prefix.is_empty() { &rule.prefix } else { &rule.filter.prefix };
        let date = std::str::from_utf8(&rule.expiration.date).ok();
        Some(Self {
            prefix: prefix.clone(),
            tags: rule.filter.tags.tags.clone(),
            days: days(&rule.expiration.days),
            date: date.and_then(iso_8601::read).map(|(seconds, _)| seconds),
            noncurrent_days: days(&rule.noncurrent_expiration.days),
            upload_days: days(&rule.upload_expiration.days),
            markers: rule.expires_markers,
            moves: moves(&rule.transitions),
            noncurrent_moves: moves(&rule.noncurrent_transitions),
        })
    }

    /// Whether it is about objects, not uploads alone.
    pub fn is_of_objects(&self) -> bool {
        self.expires() || self.noncurrent_days > 0 || self.markers || self.classes().next().is_some()
    }

    /// The storage classes that objects go to.
    pub fn classes(&self) -> impl Iterator<Item = &Bytes> {
        self.moves.iter().chain(&self.noncurrent_moves).map(|(_, class)| class)
    }

    fn expires(&self) -> bool {
        self.days > 0 || self.date.is_some()
    }

    /// What is due. Tags are not looked at, but that a delete marker has none.
    pub fn due(&self, age: Age, seen: &Seen) -> Option<Expiry> {
        if !seen.key.name.starts_with(&self.prefix) {
            return None;
        }
        if !seen.is_latest {
            let since =
                seen.newer.filter(|_| self.noncurrent_days > 0 && (!seen.is_marker || self.tags.is_empty()));
            return since
                .filter(|since| age.has_passed(*since, self.noncurrent_days))
                .map(|_| Expiry::Version);
        }
        if seen.is_marker {
            let goes = (self.markers || self.expires()) && seen.is_last && self.tags.is_empty();
            return goes.then_some(Expiry::Version);
        }
        let is_due = match self.days {
            0 => self.date.is_some_and(|date| age.now_s() >= date),
            days => age.has_passed(seen.meta.mtime, days),
        };
        is_due.then_some(Expiry::Shown)
    }

    /// The storage class that it is to go to, where it is not there yet: of those that are due the one that
    /// came last. Tags are not looked at. Source: LCOpRule::process.
    pub fn moves_to(&self, age: Age, seen: &Seen) -> Option<&Bytes> {
        if seen.is_marker || !seen.key.name.starts_with(&self.prefix) {
            return None;
        }
        let (all, since) = match seen.is_latest {
            true => (&self.moves, seen.meta.mtime),
            false => (&self.noncurrent_moves, seen.newer?),
        };
        let due = |when: &When| match when {
            When::Days(days) => {
                let days_s = u64::from(*days).saturating_mul(age.day());
                age.has_passed(since, *days).then(|| u64::from(since.0.sec).saturating_add(days_s))
            }
            When::Date(date) => (age.now_s() >= *date).then_some(*date),
        };
        let due = all.iter().filter_map(|(when, class)| Some((due(when)?, class)));
        // Of two at once the first one counts.
        let (_, class) = due.reduce(|last, next| if next.0 > last.0 { next } else { last })?;
        (*class != canonical(&seen.meta.storage_class)).then_some(class)
    }

    /// Whether an upload that began then is to be given up.
    pub fn ends_upload(&self, age: Age, began: RealTime) -> bool {
        self.upload_days > 0 && age.has_passed(began, self.upload_days)
    }
}
