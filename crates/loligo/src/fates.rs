//! Decides when a daemon that failed is started again, while the other daemons of its process go on.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use daemons::Failure;

/// The first pause; each further one is twice as long.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// A daemon that has run for so long begins with the first pause again.
const STEADY: Duration = Duration::from_secs(600);

/// The daemons of this process that have failed, by name. Bounded by the number of daemons.
#[derive(Debug, Default)]
pub struct Fates {
    of: BTreeMap<String, Fate>,
    /// The length of every pause, in tests.
    fixed: Option<Duration>,
}

#[derive(Debug)]
struct Fate {
    failures: u32,
    pause: Duration,
    started: Instant,
    /// When it is started again. `None`: it runs, or a new start would fail in the same way.
    due: Option<Instant>,
}

impl Fates {
    /// In a build for tests `LOLIGO_PAUSE_MS` says how long every pause is.
    pub fn chosen() -> Self {
        #[cfg(feature = "test-medium")]
        if let Some(ms) = std::env::var("LOLIGO_PAUSE_MS").ok().and_then(|ms| ms.parse().ok()) {
            return Self { fixed: Some(Duration::from_millis(ms)), ..Self::default() };
        }
        Self::default()
    }

    /// How often this daemon has failed in this process.
    pub fn failures(&self, name: &str) -> u32 {
        self.of.get(name).map_or(0, |fate| fate.failures)
    }

    /// Notes that a daemon has failed. Returns the pause until it is started again; `None` when that would
    /// not help.
    pub fn failed(&mut self, name: &str, failure: &Failure, now: Instant) -> Option<Duration> {
        let fresh = Fate { failures: 0, pause: Duration::ZERO, started: now, due: None };
        let fate = self.of.entry(name.to_owned()).or_insert(fresh);
        let is_steady = now.saturating_duration_since(fate.started) >= STEADY;
        let longer = if is_steady { FIRST_PAUSE } else { (fate.pause * 2).clamp(FIRST_PAUSE, LONGEST_PAUSE) };
        fate.pause = self.fixed.unwrap_or(longer);
        fate.failures += 1;
        fate.due = failure.may_pass.then(|| now + fate.pause);
        failure.may_pass.then_some(fate.pause)
    }

    /// Notes that a daemon is being started again.
    pub fn started(&mut self, name: &str, now: Instant) {
        if let Some(fate) = self.of.get_mut(name) {
            (fate.started, fate.due) = (now, None);
        }
    }

    /// Whether a daemon is about to be started again.
    pub fn waits(&self, name: &str) -> bool {
        self.of.get(name).is_some_and(|fate| fate.due.is_some())
    }

    /// The daemon that is started again next, and when.
    pub fn next(&self) -> Option<(Instant, String)> {
        self.of.iter().filter_map(|(name, fate)| Some((fate.due?, name.clone()))).min()
    }

    /// Forgets a daemon that was removed.
    pub fn forget(&mut self, name: &str) {
        self.of.remove(name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_until_a_daemon_holds() {
        let mut fates = Fates::default();
        let (mut now, failure) = (Instant::now(), Failure::passing("an EIO"));
        for (n, seconds) in [1, 2, 4, 8, 16, 32, 60, 60].into_iter().enumerate() {
            assert_eq!(fates.failed("osd.1", &failure, now), Some(Duration::from_secs(seconds)));
            assert_eq!(fates.failures("osd.1") as usize, n + 1);
            let due = now + Duration::from_secs(seconds);
            assert_eq!(fates.next(), Some((due, "osd.1".to_owned())));
            fates.started("osd.1", due);
            assert_eq!(fates.next(), None);
            now = due + STEADY - Duration::from_millis(1);
        }
        assert_eq!(fates.failed("osd.1", &failure, now + STEADY), Some(FIRST_PAUSE));
    }

    #[test]
    fn what_cannot_pass_is_left_to_the_operator_and_others_go_on() {
        let mut fates = Fates::default();
        let now = Instant::now();
        assert_eq!(fates.failed("osd.1", &Failure::lasting("a wrong key"), now), None);
        assert_eq!(fates.next(), None);
        fates.failed("osd.2", &Failure::passing("a panic"), now);
        fates.failed("mon.a", &Failure::passing("a panic"), now - Duration::from_secs(1));
        assert!(fates.waits("osd.2") && !fates.waits("osd.1") && !fates.waits("osd.7"));
        assert_eq!(fates.next().map(|(_, name)| name), Some("mon.a".to_owned()));
        fates.forget("mon.a");
        assert_eq!(fates.next().map(|(_, name)| name), Some("osd.2".to_owned()));
        assert_eq!(fates.failures("osd.3"), 0);
    }
}
