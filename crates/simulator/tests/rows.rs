//! The named scenarios, for rows of the table in docs/scenarios.md: all checks hold, and what is special to the row.

use simulator::{CATALOG, Report, Scenario, run};

fn scenario(name: &str, seed: u64) -> Scenario {
    CATALOG.iter().find(|n| n.name == name).expect("a scenario of that name").scenario(seed)
}

/// Runs it with one seed: all checks hold, and all that was planned was done.
fn one(name: &str, seed: u64) -> Report {
    let report = run(&scenario(name, seed));
    assert!(report.is_good(), "{name}, seed {seed}:\n{}", report.violations.join("\n"));
    assert_eq!(report.undecided, 0, "{name}, seed {seed}");
    assert!(report.acked > 100, "{name}, seed {seed}: {} answers", report.acked);
    assert_eq!(report.left_out, [""; 0], "{name}, seed {seed}");
    report
}

/// The usual seeds; without optimisation, one.
const SEEDS: std::ops::Range<u64> = if cfg!(debug_assertions) { 21..22 } else { 21..24 };
/// So many at most.
const MOST: usize = 12;

fn good(name: &str) -> Vec<Report> {
    SEEDS.map(|seed| one(name, seed)).collect()
}

/// The usual seeds, and as many others as it takes until enough of what the scenario is made for has come about: whether it does
/// at one seed is a matter of luck, but that it does at all is not.
fn until(name: &str, enough: impl Fn(&[Report]) -> bool) -> Vec<Report> {
    let mut reports = good(name);
    let mut seed = SEEDS.end;
    while !enough(&reports) {
        let all: Vec<_> = reports.iter().map(|r| (&r.guests, &r.happened)).collect();
        assert!(reports.len() < MOST, "{name}: what it is for does not come about: {all:?}");
        reports.push(one(name, seed));
        seed += 1;
    }
    reports
}

/// How often something came about.
fn did(report: &Report, what: &str) -> u64 {
    report.guests.get(what).or(report.happened.get(what)).copied().unwrap_or(0)
}

/// So often, with `least` for each of the usual seeds, over all the seeds that it takes: luck may spread it.
fn all_happen(name: &str, what: &[(&str, u64)]) -> Vec<Report> {
    let usual = SEEDS.end - SEEDS.start;
    let often = |reports: &[Report], (what, least): &(&str, u64)| {
        reports.iter().map(|r| did(r, what)).sum::<u64>() >= least * usual
    };
    until(name, |reports| what.iter().all(|w| often(reports, w)))
}

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
fn empty_disk_by_mistake() {
    good("empty_disk_by_mistake").iter().for_each(|r| assert_eq!(between(r), 0));
}

#[test]
fn fewer_than_min_size() {
    good("fewer_than_min_size").iter().for_each(|r| assert_eq!(between(r), 0));
}

#[test]
fn monitors_without_a_majority() {
    let reports = until("monitors_without_a_majority", |all| {
        all.iter().map(between).sum::<u64>() > 100 * all.len() as u64
    });
    reports.iter().for_each(|r| assert!(between(r) > 10, "{}", between(r)));
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
    let refused = |all: &[Report]| all.iter().map(|r| r.refused_stores).sum::<u64>() >= 2 * all.len() as u64;
    until("damaged_monitor_stores", refused);
}

#[test]
fn coded_shards_rot() {
    for r in all_happen("coded_shards_rot", &[("rotten blocks", 4)]) {
        assert_eq!(did(&r, "rotten blocks"), did(&r, "mended"), "{:?}", r.guests);
    }
}

#[test]
fn rot_in_data() {
    for r in all_happen("rot_in_data", &[("rotten blocks", 5), ("blocks with older content", 1)]) {
        assert_eq!(did(&r, "rotten blocks"), did(&r, "mended"), "{:?}", r.guests);
    }
}

/// Nothing but scrubs comes upon it.
#[test]
fn rot_that_nobody_reads() {
    for r in all_happen("rot_that_nobody_reads", &[("rotten blocks", 2)]) {
        assert_eq!(did(&r, "rotten blocks"), did(&r, "mended"), "{:?}", r.guests);
    }
}

/// At some seeds only what nobody needs any more is damaged.
#[test]
fn rot_in_metadata() {
    let noticed = |r: &Report| {
        ["disks refused", "disks given up", "disks seen through"].map(|w| did(r, w)).iter().sum::<u64>()
    };
    let reports = until("rot_in_metadata", |all| all.iter().map(noticed).sum::<u64>() > 0);
    assert!(reports.iter().all(|r| did(r, "rotten disks") == 3));
}

#[test]
fn full_disks() {
    all_happen(
        "full_disks",
        &[("writes refused for want of room", 2), ("removals", 40), ("free space discarded", 20)],
    );
    // At 25, clients that had not asked were told that there is no room.
    let others = if cfg!(debug_assertions) { 25..26 } else { 24..32 };
    others.for_each(|seed| drop(one("full_disks", seed)));
}

const SNAPS: [(&str, u64); 4] =
    [("snapshots", 20), ("snapshots removed", 20), ("reads of snapshots", 50), ("rollbacks", 10)];

#[test]
fn snapshots_during_recovery_and_kills() {
    all_happen("snapshots_during_recovery_and_kills", &SNAPS);
}

#[test]
fn pool_snapshots_during_recovery_and_kills() {
    all_happen("pool_snapshots_during_recovery_and_kills", &SNAPS);
}

#[test]
fn lock_holder_dies() {
    let what =
        [("locks broken", 3), ("holders died", 1), ("holders fell silent", 2), ("holders shut out", 1)];
    all_happen("lock_holder_dies", &what);
}

#[test]
fn watcher_dies() {
    all_happen("watcher_dies", &[("notifies", 15), ("watches", 6), ("notifies with a silent watcher", 1)]);
}

#[test]
fn watchers_through_failures() {
    all_happen("watchers_through_failures", &[("notifies", 10), ("watches", 3)]);
}

#[test]
fn backfill_to_a_nearly_full_osd() {
    let waits = |r: &Report| r.states_at_marks[0].iter().any(|s| s.contains("backfill_toofull"));
    let reports = until("backfill_to_a_nearly_full_osd", |all| all.iter().any(waits));
    assert!(reports.iter().filter(|r| waits(r)).count() * 2 > reports.len(), "PGs seldom wait for room");
}

#[test]
fn every_named_scenario_has_a_test() {
    let source = include_str!("rows.rs");
    let without: Vec<_> = CATALOG.iter().map(|n| n.name).filter(|n| !source.contains(*n)).collect();
    assert!(without.is_empty(), "{without:?}");
}

/// With what must have come about, and how often for each of the usual seeds.
macro_rules! rows {
    ($($name:ident [$($what:literal $least:literal),*]),+ $(,)?) => {
        $(#[test]
        fn $name() {
            all_happen(stringify!($name), &[$(($what, $least)),*]);
        })+
    };
}
rows![
    flapping_replica ["marked down dead" 5],
    a_disk_with_lost_writes_returns_and_is_lost ["marked down dead" 1],
    a_start_that_a_slow_member_loses ["marked down dead" 1],
    a_slow_member_is_left_alone ["marked down dead" 1],
    // Every fault is bound to a moment, and comes.
    primary_killed_at_each_step ["marked down dead" 4],
    all_copies_return_in_every_order ["requests sent again" 6],
    stale_primary ["marked down alive" 3],
    suspended_primary ["marked down alive" 3, "hosts suspended" 3],
    stale_primary_with_rare_heartbeats ["marked down alive" 3],
    primary_replaced_while_a_member_supports_it ["marked down alive" 2],
    power_loss_of_one ["requests sent again" 9, "acknowledged writes looked for on the media of the dead" 1],
    power_loss_of_all ["requests sent again" 6],
    power_loss_of_all_with_two_copies ["requests sent again" 6],
    failing_devices ["devices failed" 5],
    dropped_writes ["devices failed" 15],
    // Nobody takes a slow one for dead.
    slow_device [],
    large_writes_through_failures ["marked down dead" 8],
    clients_beyond_their_share ["clients held" 100, "requests sent again" 5],
    monitors_lose_power_together [],
    wiped_monitors ["monitors' disks lost" 2],
    wiped_monitor_and_one_that_lags ["monitors' disks lost" 1],
    monitors_added_and_removed ["monitors added" 3, "monitors removed" 2, "former monitors turned away" 1],
    // One reporter alone has nobody marked down: what both have waits. One cut at least, both ways.
    two_osds_cut_from_each_other ["links between OSDs that held messages back" 2],
    wrong_clocks ["marked down dead" 6],
    cut_links ["sessions cut" 60],
    cut_frames ["sessions resumed" 20, "sessions expired" 2, "sessions forgotten by a peer that lives" 2, "bytes damaged under way" 5],
    messages_that_do_not_decode ["messages that did not decode" 20],
    lost_replies ["sessions cut" 40, "requests sent again" 20],
    late_resends ["requests sent again" 6],
    small_duplicate_window ["requests sent again" 15],
    missed_maps ["maps skipped" 1],
    maps_forgotten_within_an_interval ["maps skipped" 1],
    splits_and_moves ["PGs split" 9],
    merges_under_load ["PGs merged" 8, "PGs split" 2],
    replaced_disk ["disks given up" 1],
    restarted_clients [],
    lone_monitor_restarts [],
    objects_move_one_by_one ["marked down dead" 4],
    writes_while_ranges_are_copied ["marked down dead" 4],
    members_return_behind_the_log ["marked down dead" 4],
    one_member_stays_alone ["marked down dead" 6],
    writes_that_only_a_primary_has ["links between OSDs that held messages back" 8, "marked down dead" 4],
    writes_that_were_told_and_lost ["links between OSDs that held messages back" 2, "marked down alive" 3],
    a_disk_is_lost_before_all_are_whole ["marked down dead" 2],
    late_resends_after_splits ["PGs split" 31, "requests sent again" 15],
    late_resends_after_backfill ["requests sent again" 20, "marked down dead" 3],
    a_member_restarts_within_its_lease ["marked down alive" 1, "requests sent again" 50],
    whole_hosts_are_lost ["hosts lost for good" 3, "disks lost for good" 6, "monitors' disks lost" 3],
    pools_come_and_go_under_use ["writes to pools that come and go" 30, "requests whose pool had gone" 2],
    deaths_at_each_step [
        "faults at a message of peering" 2, "faults at a commit of peering" 2,
        "faults at a message of recovery" 2, "faults at a commit of recovery" 2,
        "faults at a message of a backfill" 2, "faults at a commit of a backfill" 2,
        "faults at a message of an election" 2, "faults at a commit of an election" 2
    ],
    coded_members_die_in_turn ["marked down dead" 6],
    coded_stripes_change_in_part ["marked down dead" 3],
    coded_writes_that_a_primary_has_alone ["links between OSDs that held messages back" 4, "marked down dead" 4],
    coded_disks_are_lost ["disks lost for good" 5],
    coded_pgs_split_and_move ["PGs split" 9, "PGs merged" 1, "marked down dead" 3],
];
