//! The named scenarios, for rows of the table in docs/scenarios.md: all checks hold, and what is special to the row.

use simulator::{CATALOG, Report, Scenario, run};

fn scenario(name: &str, seed: u64) -> Scenario {
    CATALOG.iter().find(|n| n.name == name).expect("a scenario of that name").scenario(seed)
}

/// Runs it with a few seeds; without optimisation, one.
fn good(name: &str) -> Vec<Report> {
    let one = |seed| {
        let report = run(&scenario(name, seed));
        assert!(report.is_good(), "{name}, seed {seed}:\n{}", report.violations.join("\n"));
        assert_eq!(report.undecided, 0, "{name}, seed {seed}");
        assert!(report.acked > 100, "{name}, seed {seed}: {} answers", report.acked);
        report
    };
    let seeds = if cfg!(debug_assertions) { 21..22 } else { 21..24 };
    seeds.map(one).collect()
}

macro_rules! rows {
    ($($name:ident),+ $(,)?) => {
        $(#[test]
        fn $name() {
            good(stringify!($name));
        })+
    };
}
rows![
    flapping_replica,
    primary_killed_at_each_step,
    all_copies_return_in_every_order,
    stale_primary,
    stale_primary_with_rare_heartbeats,
    primary_replaced_while_a_member_supports_it,
    power_loss_of_one,
    power_loss_of_all,
    power_loss_of_all_with_two_copies,
    failing_devices,
    slow_device,
    monitors_lose_power_together,
    wiped_monitors,
    wiped_monitor_and_one_that_lags,
    two_osds_cut_from_each_other,
    wrong_clocks,
    cut_links,
    lost_replies,
    late_resends,
    small_duplicate_window,
    missed_maps,
    splits_and_moves,
    replaced_disk,
    restarted_clients,
    lone_monitor_restarts,
];

/// What was answered between the two notes.
fn between(report: &Report) -> u64 {
    let [first, second] = report.marks[..] else { panic!("two notes: {:?}", report.marks) };
    second - first
}

#[test]
fn only_a_stale_copy_returns() {
    good("only_a_stale_copy_returns").iter().for_each(|r| assert_eq!(between(r), 0));
}

#[test]
fn fewer_than_min_size() {
    good("fewer_than_min_size").iter().for_each(|r| assert_eq!(between(r), 0));
}

#[test]
fn monitors_without_a_majority() {
    good("monitors_without_a_majority").iter().for_each(|r| assert!(between(r) > 100, "{}", between(r)));
}

/// A leader that is cut off is replaced once, and the one that comes back disturbs nobody.
#[test]
fn monitors_in_a_minority() {
    for r in good("monitors_in_a_minority") {
        assert!(r.leaders <= 8, "{} leaders in 38 s", r.leaders);
        assert!(r.commands.iter().all(|(_, result)| *result == 0), "{:?}", r.commands);
    }
}

#[test]
fn one_way_partitions() {
    good("one_way_partitions").iter().for_each(|r| assert!(r.leaders <= 8, "{} leaders in 58 s", r.leaders));
}

/// What was asked while a leader died is done once: asked again, a pool that is there is no error.
#[test]
fn leading_monitor_killed_in_a_commit() {
    for r in good("leading_monitor_killed_in_a_commit") {
        assert!(r.commands.iter().all(|(_, result)| *result == 0), "{:?}", r.commands);
        assert_eq!(r.commands.iter().filter(|(cmd, _)| cmd.contains("pool create")).count(), 7);
    }
}

#[test]
fn damaged_monitor_stores() {
    good("damaged_monitor_stores")
        .iter()
        .for_each(|r| assert!(r.refused_stores >= 2, "{}", r.refused_stores));
}

#[test]
fn every_named_scenario_has_a_test() {
    let source = include_str!("rows.rs");
    let without: Vec<_> = CATALOG.iter().map(|n| n.name).filter(|n| !source.contains(*n)).collect();
    assert!(without.is_empty(), "{without:?}");
}
