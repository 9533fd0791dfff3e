//! Searching scenarios: the smallest that still fails, and one that finds a planted bug.

use crate::mutant::Mutant;
use crate::queue::SECOND;
use crate::run::{Report, faults, run};
use crate::scenario::{Level, Scenario};

/// Runs with more events than this are too slow to be repeated by every test run.
const CHEAP_EVENTS: u64 = 8_000;
/// Clients that ask more often than this, altogether and each second, make too many events.
const CHEAP_RATE: u64 = 60;

/// The kind of a failure: its oracle's name.
pub fn kind(r: &Report) -> Option<String> {
    let text = r.violations.first()?.split(": ").nth(1)?;
    Some(text.split(' ').next().unwrap_or_default().to_owned())
}

/// Leaves out faults, halves first, while the same kind of failure persists.
pub fn shrink(s: &Scenario, report: &Report) -> Scenario {
    let mut best = s.clone();
    let want = kind(report);
    let mut piece = faults(s).len().max(1);
    while piece > 0 {
        let kept: Vec<usize> = (0..faults(s).len()).filter(|i| !best.skip.contains(i)).collect();
        let mut any = false;
        for chunk in kept.chunks(piece) {
            let mut less = best.clone();
            less.skip.extend(chunk.iter().copied());
            if kind(&run(&less)) == want {
                best = less;
                any = true;
            }
        }
        if !any || piece == 1 {
            piece /= 2;
        }
    }
    best
}

/// A scenario that finds a planted bug.
#[derive(Debug, Clone, PartialEq)]
pub struct Found {
    pub scenario: Scenario,
    /// The first line of what was found.
    pub violation: String,
    /// Of both runs, with and without the bug: what a test pays.
    pub events: u64,
}

/// Looks for a planted bug in scenarios of these seeds, at their level (before all faults, with crashes alone); the same scenario without the bug must be
/// good. The first cheap one is taken, else the cheapest.
pub fn find(mutant: Mutant, seeds: impl Iterator<Item = u64>, level: Level, seconds: u64) -> Option<Found> {
    let levels = if level == Level::All { vec![Level::Crash, level] } else { vec![level] };
    let mut best: Option<Found> = None;
    for seed in seeds {
        for level in &levels {
            let mut good = Scenario::from_seed(seed).with_seconds(seconds).with_level(*level);
            good.wire |= mutant.needs_bytes();
            let o = &good.options;
            if (o.clients * o.depth) as u64 * SECOND / o.think > CHEAP_RATE {
                continue;
            }
            let scenario = good.clone().with_mutant(mutant);
            let report = run(&scenario);
            let Some(text) = report.violations.first() else { continue };
            let honest = run(&good);
            if !honest.is_good() || honest.undecided > 0 || honest.acked == 0 {
                continue;
            }
            let violation = text.lines().next().unwrap_or_default().to_owned();
            let events = report.events + honest.events;
            if best.as_ref().is_none_or(|b| events < b.events) {
                best = Some(Found { scenario, violation, events });
            }
            if events <= CHEAP_EVENTS {
                return best;
            }
        }
    }
    best
}
