//! Faults of seeds that came late: from numbers of their own, behind all others of the plan, so that earlier
//! seeds go on meaning what they meant.

use testkit::Rng;

use crate::faults::{Fault, FaultKind, Trigger, death, lasts};
use crate::phases::{Moment, Phase, Step};
use crate::queue::{SECOND, Time};
use crate::scenario::{Level, Scenario};

/// Flags that an administrator sets for a while, besides those of `faults.rs`.
const FLAGS: [&str; 2] = ["nodeep-scrub", "nosnaptrim"];
/// Steps of a phase that a death may wait for.
const STEPS: u64 = 12;

pub fn plan(s: &Scenario, out: &mut Vec<Fault>) {
    if s.level >= Level::Crash {
        deaths_at_steps(s, out);
    }
    if s.level == Level::All {
        flags_and_pools(s, out);
        hosts(s, out);
    }
}

/// A process ends at the k-th step of what it goes through.
fn deaths_at_steps(s: &Scenario, out: &mut Vec<Fault>) {
    let mut r = Rng::new(s.seed ^ 0x57_e95);
    let every = s.options.fault_every * 3;
    let mut at = r.below(every);
    while at < s.seconds * SECOND {
        let phase = match r.below(7) {
            0..=2 => Phase::Peering,
            3 | 4 => Phase::Recovery,
            5 => Phase::Backfill,
            _ => Phase::Election,
        };
        let step = if r.one_in(2) { Step::Message } else { Step::Commit };
        let k = 1 + r.below(STEPS) as u32;
        let kind = FaultKind::CrashPuller { death: death(&mut r), down: lasts(&mut r, s) };
        out.push(Fault { at, when: Trigger::Nth { what: Moment { phase, step }, k }, kind });
        at += every / 2 + r.below(every);
    }
}

/// More flags; and pools come and go more often, with a guest that uses them.
fn flags_and_pools(s: &Scenario, out: &mut Vec<Fault>) {
    let mut r = Rng::new(s.seed ^ 0xf1_a65);
    let every = s.options.fault_every * 2;
    let mut at = r.below(every);
    while at < s.seconds * SECOND {
        let kind = match r.below(4) {
            0 => FaultKind::Flag { flag: r.pick::<&'static str>(&FLAGS), lasts: lasts(&mut r, s) },
            n => FaultKind::Command(another_pool(n < 3, r.below(2), 1 + r.below(4))),
        };
        out.push(Fault { at, when: Trigger::AtOnce, kind });
        at += every / 2 + r.below(every);
    }
}

/// A pool besides the clients' is made or deleted.
pub fn another_pool(make: bool, number: u64, pgs: u64) -> String {
    if make {
        return format!(r#"{{"prefix":"osd pool create","pool":"q{number}","pg_num":{pgs}}}"#);
    }
    let names = format!(r#""pool":"q{number}","pool2":"q{number}""#);
    format!(r#"{{"prefix":"osd pool delete",{names},"yes_i_really_really_mean_it":true}}"#)
}

/// Whole hosts are gone for good.
fn hosts(s: &Scenario, out: &mut Vec<Fault>) {
    if s.options.size < 2 {
        return;
    }
    let mut r = Rng::new(s.seed ^ 0x40_5750);
    let every: Time = s.options.fault_every * 12;
    let mut at = r.below(every);
    while at < s.seconds * SECOND {
        let count = (s.options.osds as usize).div_ceil(s.options.osds_per_host);
        let host = r.below(count as u64) as usize;
        let when = *r.pick(&[Trigger::AtOnce, Trigger::Answer, Trigger::Heard]);
        let kind = FaultKind::LoseHost { host, death: death(&mut r), down: lasts(&mut r, s) };
        out.push(Fault { at, when, kind });
        at += every / 2 + r.below(every);
    }
}
