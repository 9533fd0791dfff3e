//! Planted bugs: each is found by a scenario made for it, within a few seeds, or else among the faults of random ones; the same
//! scenario without the bug is good. So the checks are known to be able to fail.

use std::io::Write;

use pg::Planted as Osd;
use simulator::{CATALOG, Level, Mutant, NOT_FOUND, PLANTED, Scenario, run};
use store::Planted as Store;

/// Other seeds that are tried with the scenario made for the bug.
const SEEDS: u64 = 8;
/// And with random ones, when changes elsewhere have moved the moment that mattered.
const RANDOM_SEEDS: u64 = 60;

fn is_found(mutant: Mutant) {
    let plant = PLANTED.iter().find(|p| p.mutant == mutant).expect("a scenario for every bug");
    let named = CATALOG.iter().find(|n| n.name == plant.name).expect("a scenario of that name");
    let finds = |seed: &u64| !run(&named.scenario(*seed).with_mutant(mutant)).is_good();
    if finds(&plant.seed) {
        return must_be_good(&named.scenario(plant.seed));
    }
    // Counted, not timed: what a slow machine finds is what a fast one does.
    if let Some(seed) = (1..=SEEDS).filter(|seed| *seed != plant.seed).find(finds) {
        let (name, was) = (plant.name, plant.seed);
        say(&format!(
            "{mutant}: seed {was} of {name} does not find it any more: RECORD SEED {seed} in src/planted.rs"
        ));
        return must_be_good(&named.scenario(seed));
    }
    let random = |seed| {
        let plain = Scenario::from_seed(seed).with_level(Level::Links).with_seconds(18).with_mutant(mutant);
        let plain = if mutant.needs_bytes() { plain.with_wire(true) } else { plain };
        let plain = if named.scenario(1).coded { plain.with_coded() } else { plain };
        if named.scenario(1).options.guests.is_empty() { plain } else { plain.with_guests() }
    };
    let found = (1..=RANDOM_SEEDS).map(random).find(|s| !run(s).is_good());
    let found = found.unwrap_or_else(|| panic!("{mutant} is found neither by {} nor at random", plant.name));
    say(&format!("{mutant}: {} DOES NOT FIND IT ANY MORE; at random: {}", plant.name, found.line()));
    must_be_good(&Scenario { mutant: None, ..found });
}

/// They are planted where messages travel as they are, and again where links carry bytes.
#[test]
fn sessions_that_repeat_or_reorder_are_found_through_bytes_too() {
    let named = CATALOG.iter().find(|n| n.name == "cut_frames").expect("a scenario of that name");
    for mutant in [Mutant::RepeatingSessions, Mutant::ReorderingSessions] {
        let found = (1..=SEEDS)
            .map(|seed| named.scenario(seed))
            .find(|s| !run(&s.clone().with_mutant(mutant)).is_good());
        let honest = found.unwrap_or_else(|| panic!("{mutant} is not found where links carry bytes"));
        must_be_good(&honest);
    }
}

/// Also of tests that pass: what goes to the stream itself is not kept back.
fn say(text: &str) {
    // Without anybody who reads there is nobody to tell.
    let _ = writeln!(std::io::stderr(), "PLANTED BUG {text}");
}

fn must_be_good(honest: &Scenario) {
    let report = run(honest);
    assert!(report.is_good(), "without the bug, {}: {:?}", honest.line(), report.violations);
}

macro_rules! planted {
    ($($name:ident $mutant:expr;)+) => {
        $(#[test]
        fn $name() {
            is_found($mutant);
        })+

        #[test]
        fn every_planted_bug_is_looked_for() {
            let looked_for = [$($mutant),+];
            assert!(looked_for.len() >= 40);
            // Each is either looked for or has a reason why not.
            let reasons = |m: &Mutant| NOT_FOUND.iter().filter(|u| u.mutant == *m).count();
            let known = |m: &Mutant| usize::from(looked_for.contains(m)) + reasons(m) == 1;
            let left: Vec<_> = Mutant::ALL.iter().filter(|(_, m)| !known(m)).collect();
            assert!(left.is_empty(), "{left:?}");
        }
    };
}
planted![
    ack_early Mutant::AckEarly;
    replica_ack_early Mutant::ReplicaAckEarly;
    lose_flush Mutant::LoseFlush;
    lose_payload Mutant::LosePayload;
    forget_requests Mutant::ForgetRequests;
    dups_forgotten Mutant::DupsForgotten;
    read_any_copy Mutant::ReadAnyCopy;
    repeating_sessions Mutant::RepeatingSessions;
    reordering_sessions Mutant::ReorderingSessions;
    acked_unhanded Mutant::AckedUnhanded;
    resume_drops Mutant::ResumeDrops;
    ends_unheard Mutant::EndsUnheard;
    old_disk Mutant::OldDisk;
    slow_clock Mutant::SlowClock;
    no_wait_for_readers Mutant::NoWaitForReaders;
    same_client Mutant::SameClient;
    mon_forgets Mutant::MonForgets;
    mon_ack_early Mutant::MonAckEarly;
    mon_drops_tail Mutant::MonDropsTail;
    wiped_voter Mutant::WipedVoter;
    reuse_global_ids Mutant::ReuseGlobalIds;
    trims_too_much Mutant::TrimsTooMuch;
    blocklist_ignored Mutant::BlocklistIgnored;
    watches_forever Mutant::WatchesForever;
    one_handle Mutant::OneHandle;
    no_repair Mutant::NoRepair;
    forgotten_maps Mutant::ForgottenMaps;
    skips_prior_interval Mutant::Osd(Osd::SkipsPriorInterval);
    no_wait_for_up_thru Mutant::Osd(Osd::NoWaitForUpThru);
    ack_without_own_commit Mutant::Osd(Osd::AckWithoutOwnCommit);
    deleted_objects_stay Mutant::Osd(Osd::DeletedObjectsStay);
    serves_below_min_size Mutant::Osd(Osd::ServesBelowMinSize);
    incomplete_copy_leads Mutant::Osd(Osd::IncompleteCopyLeads);
    backfill_boundary Mutant::Osd(Osd::BackfillBoundary);
    writes_in_backfill_range Mutant::Osd(Osd::WritesInBackfillRange);
    backfill_keeps_strangers Mutant::Osd(Osd::BackfillKeepsStrangers);
    backfill_without_dups Mutant::Osd(Osd::BackfillWithoutDups);
    divergent_objects_stay Mutant::Osd(Osd::DivergentObjectsStay);
    tells_before_durable Mutant::Osd(Osd::TellsBeforeDurable);
    accepts_gaps Mutant::Osd(Osd::AcceptsGaps);
    lease_forgotten_at_restart Mutant::Osd(Osd::LeaseForgottenAtRestart);
    clean_too_soon Mutant::Osd(Osd::CleanTooSoon);
    split_forgets_dups Mutant::Osd(Osd::SplitForgetsDups);
    backfill_moves_early Mutant::Osd(Osd::BackfillMovesEarly);
    ignores_last_start Mutant::Osd(Osd::IgnoresLastStart);
    starts_alone Mutant::Osd(Osd::StartsAlone);
    trims_unacknowledged Mutant::Osd(Osd::TrimsUnacknowledged);
    staged_left_behind Mutant::Osd(Osd::StagedLeftBehind);
    held_for_ever Mutant::Osd(Osd::HeldForEver);
    stale_shards_serve Mutant::Osd(Osd::StaleShardsServe);
    lost_shards_stay Mutant::Osd(Osd::LostShardsStay);
    parity_added_twice Mutant::Osd(Osd::ParityAddedTwice);
    shards_out_of_place Mutant::Osd(Osd::ShardsOutOfPlace);
    replay_takes_places Mutant::Store(Store::ReplayTakesPlaces);
];
