//! Planted bugs: each is found by a scenario made for it, within a few seeds; the same scenario without the bug is good. So the
//! checks are known to be able to fail.

use simulator::{CATALOG, Mutant, PLANTED, run};

/// Seeds tried for one bug.
const SEEDS: u64 = 12;

fn find(mutant: Mutant, name: &str) {
    let named = CATALOG.iter().find(|n| n.name == name).expect("a scenario");
    let (seed, report) = (1..=SEEDS)
        .map(|seed| (seed, run(&named.scenario(seed).with_mutant(mutant))))
        .find(|(_, report)| !report.is_good())
        .unwrap_or_else(|| panic!("{mutant} is not found by {name} within {SEEDS} seeds"));
    println!("{mutant}: {name}, seed {seed}: {}", report.violations[0].lines().next().unwrap_or_default());
    let honest = run(&named.scenario(seed));
    assert!(honest.is_good(), "{name}, seed {seed}, without {mutant}: {:?}", honest.violations);
}

/// A part of the bugs, so that the parts run side by side.
fn part(which: usize) {
    std::panic::set_hook(Box::new(|_| {}));
    PLANTED.iter().skip(which).step_by(3).for_each(|p| find(p.mutant, p.name));
}

#[test]
fn planted_bugs_are_found() {
    part(0);
}

#[test]
fn more_planted_bugs_are_found() {
    part(1);
}

#[test]
fn the_other_planted_bugs_are_found() {
    part(2);
}

#[test]
fn every_planted_bug_has_a_scenario() {
    assert!(PLANTED.len() >= 15);
    let has = |m: &Mutant| PLANTED.iter().any(|p| p.mutant == *m);
    let without: Vec<_> = Mutant::ALL.iter().filter(|(_, m)| !has(m)).collect();
    assert!(without.is_empty(), "{without:?}");
}
