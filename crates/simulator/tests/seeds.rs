//! A few seeds of each level, past failures, and the same run twice.

use simulator::{Fault, FaultKind, Level, Node, Profile, Scenario, run};

fn must_be_good(s: &Scenario) {
    let report = run(s);
    assert!(report.is_good(), "{}\n{}", s.line(), report.violations.join("\n"));
    assert_eq!(report.undecided, 0, "{}", s.line());
    assert!(report.acked > 0, "{}: nobody was answered", s.line());
}

fn seeds(level: Level, seeds: std::ops::Range<u64>) {
    for seed in seeds {
        must_be_good(&Scenario::from_seed(seed).with_level(level).with_seconds(6));
    }
}

#[test]
fn without_faults() {
    seeds(Level::Calm, 100..102);
}

#[test]
fn all_processes_at_once() {
    seeds(Level::Power, 200..204);
}

#[test]
fn single_processes() {
    seeds(Level::Crash, 300..306);
}

#[test]
fn links() {
    seeds(Level::Links, 400..406);
}

#[test]
fn everything() {
    seeds(Level::All, 500..508);
}

/// Ten are run twice by `simulator --hours`, which the gate runs optimised; here it is one, shorter.
#[test]
fn a_spell_of_a_cluster_hour() {
    let s = Scenario::from_seed(600).with_profile(Profile::Hour).with_guests().with_seconds(70);
    must_be_good(&s);
    let o = &s.options;
    assert!(o.mons >= 3 && o.osds >= 4 && o.clients >= 2 && !o.guests.is_empty());
}

#[test]
fn with_guests() {
    for seed in 700..704 {
        must_be_good(&Scenario::from_seed(seed).with_guests().with_seconds(8));
    }
}

#[test]
fn with_erasure_coded_pools() {
    for seed in 800..806 {
        must_be_good(&Scenario::from_seed(seed).with_coded().with_seconds(8));
    }
}

#[test]
fn past_failures() {
    let lines = include_str!("regressions.txt").lines();
    for line in lines.filter(|l| !l.starts_with('#') && !l.is_empty()) {
        must_be_good(&line.parse().expect("a scenario"));
    }
}

/// A box that refused connections held sessions back for as long as it was to stand there, whatever was
/// healed (seed 2020).
#[test]
fn no_fault_outlasts_healing() {
    let lasts = 200_000_000_000;
    let faults = [
        FaultKind::Refuse { osd: 0, nth: 0, lasts },
        FaultKind::Freeze { node: Node::Osd(1), lasts },
        FaultKind::Suspend { host: 2, lasts },
    ];
    for fault in faults {
        let plan = vec![Fault::at(1.0, fault.clone())];
        let report = run(&Scenario::from_seed(900).with_wire(false).with_seconds(4).with_plan(plan));
        assert!(report.is_good(), "{fault:?}: {:?}", report.violations);
        assert_eq!(report.faults, 1);
        let took = report.healing_seconds;
        assert!(took < 60.0, "{fault:?}: healed in {took} s");
    }
}

/// Seeds that have what came later.
#[test]
fn late_seeds() {
    seeds(Level::All, 20_000..20_006);
    let garbled =
        (20_000..20_800).filter(|seed| Scenario::from_seed(*seed).options.garbled.is_some()).count();
    assert!((70..130).contains(&garbled), "messages do not decode at {garbled} of 800");
    assert!((1..800).all(|seed| Scenario::from_seed(seed).options.garbled.is_none()));
}

/// Where links carry bytes; one seed of eight is so by itself.
#[test]
fn with_bytes() {
    for seed in 800..803 {
        must_be_good(&Scenario::from_seed(seed).with_wire(true).with_seconds(6));
    }
    let wired = (1..=800).filter(|seed| Scenario::from_seed(*seed).wire).count();
    assert!((70..130).contains(&wired), "{wired} of 800");
}

#[test]
fn the_same_seed_goes_the_same_way() {
    for seed in 1..5 {
        let s = Scenario::from_seed(seed).with_wire(seed == 4).with_seconds(4);
        let (a, b) = (run(&s), run(&s));
        assert_eq!(a, b, "O9: {}", s.line());
        let other = run(&Scenario { seed: seed + 1_000, ..s.clone() });
        assert_ne!(a.trace_hash, other.trace_hash, "the hash tells runs apart");
    }
}

/// In every other life of an OSD what is not in its memory is read while others are served.
#[test]
fn requests_wait_for_what_devices_read() {
    let mut waited = 0;
    for seed in 1..=30 {
        let report = run(&Scenario::from_seed(seed).with_seconds(20));
        assert!(report.is_good(), "seed {seed}:\n{}", report.violations.join("\n"));
        waited += report.happened.get("reads that waited for a device").copied().unwrap_or(0);
        if waited > 30 {
            return;
        }
    }
    panic!("{waited} reads in 30 runs");
}
