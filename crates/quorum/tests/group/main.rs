//! A group of members under faults from seeds, and known mistakes that must be found.

mod world;

use std::panic::{AssertUnwindSafe, catch_unwind};

use quorum::Planted;
use world::{Faults, World};

const STORM: Faults = Faults {
    drop_percent: 5,
    duplicate_percent: 3,
    crashes: true,
    partitions: true,
    wipes: false,
    drift_percent: 10,
    keep_identity_on_wipe: false,
};

/// Faults for a while, then peace: everybody agrees, and new entries are accepted.
fn check(members: usize, seed: u64, faults: Faults, planted: Option<Planted>, millis: u64) -> World {
    let mut w = World::new(members, seed, faults, planted);
    w.run(millis);
    w.calm();
    w.run(8_000);
    let before = w.acks;
    w.run(2_000);
    assert!(w.acks > before + 20, "seed {seed}: a healed group goes on");
    assert!(w.all_voters(), "seed {seed}: everybody is a voter again");
    let leader = w.leader().expect("a leader");
    let commit = w.raft(leader).commit_index();
    assert!(commit >= w.acked());
    for at in 0..members {
        assert!(w.raft(at).commit_index() + 20 >= commit, "seed {seed}: m{at} has caught up");
    }
    assert!(w.reads_done > 50, "seed {seed}: reads were answered");
    w
}

#[test]
fn groups_of_one_three_and_five_survive_storms() {
    for seed in 1..=12 {
        check(3, seed, STORM, None, 20_000);
    }
    for seed in 1..=4 {
        check(5, seed, STORM, None, 20_000);
        check(1, seed, STORM, None, 10_000);
    }
}

#[test]
fn wiped_members_come_back_as_learners_first() {
    for seed in 1..=8 {
        check(3, seed, Faults { wipes: true, ..STORM }, None, 30_000);
    }
    let mut w = World::new(3, 5, Faults::default(), None);
    w.run(4_000);
    let leader = w.leader().expect("a leader");
    let wiped = (leader + 1) % 3;
    let old = w.raft(wiped).id();
    w.wipe(wiped);
    w.run(3_000);
    let members = w.raft(leader).members();
    assert!(!members.peers.contains_key(&old), "the old identity is gone");
    assert!(members.is_voter(w.raft(wiped).id()), "the new one votes");
    // Cut off from the leader it cannot be let in: it stays without a vote, and makes nobody a leader.
    let mut w = World::new(3, 6, Faults::default(), None);
    w.run(4_000);
    let leader = w.leader().expect("a leader");
    w.cut_off(leader);
    let wiped = (leader + 1) % 3;
    w.wipe(wiped);
    w.run(10_000);
    assert_eq!(w.leader(), None, "one of three voters is left: no leader");
}

#[test]
fn the_same_seed_gives_the_same_trace() {
    for seed in 1..=6 {
        let run = || {
            let mut w = World::new(3, seed, Faults { wipes: true, ..STORM }, None);
            w.run(15_000);
            (w.trace, w.acks, w.reads_done)
        };
        assert_eq!(run(), run(), "seed {seed}");
    }
}

#[test]
fn a_leader_is_replaced_within_two_seconds() {
    for seed in 1..=20 {
        let mut w = World::new(3, seed, Faults::default(), None);
        w.run(4_000);
        let leader = w.leader().expect("a leader");
        w.crash(leader);
        w.run(1_900);
        let next = w.leader().expect("another leader within 2 s");
        assert_ne!(next, leader);
    }
}

#[test]
fn a_member_that_was_cut_off_does_not_disturb() {
    for seed in 1..=10 {
        let mut w = World::new(3, seed, Faults::default(), None);
        assert!(stays(&mut w), "seed {seed}: the leader stays");
    }
    let disturbed =
        (1..=10).any(|seed| !stays(&mut World::new(3, seed, Faults::default(), Some(Planted::Disturb))));
    assert!(disturbed, "without a pre-vote it would");
}

fn stays(w: &mut World) -> bool {
    w.run(4_000);
    let Some(leader) = w.leader() else { return false };
    let term = w.raft(leader).term();
    w.cut_off((leader + 1) % 3);
    w.run(10_000);
    w.heal();
    w.run(4_000);
    w.leader() == Some(leader) && w.raft(leader).term() == term
}

#[test]
fn a_leader_without_a_majority_steps_down_and_answers_no_reads() {
    let mut w = World::new(3, 11, Faults::default(), None);
    w.run(4_000);
    let leader = w.leader().expect("a leader");
    let acked = w.acked();
    w.cut_off(leader);
    w.run(3_000);
    assert!(!w.raft(leader).is_leader(), "it knows that it is alone");
    assert!(w.acked() > acked, "the others go on");
}

/// A leader whose disk is slow and the one follower that it reaches go on; then the leader loses what its disk
/// did not have yet, and only the other follower is left to it.
fn slow_leader_loses_its_tail(seed: u64, planted: Option<Planted>) {
    let mut w = World::new(3, seed, Faults::default(), planted);
    w.run(4_000);
    let leader = w.leader().expect("a leader");
    let [with, without] = [1, 2].map(|n| (leader + n) % 3);
    w.slow_disk(leader, 400);
    w.cut_between(leader, without);
    w.run(300);
    w.crash(leader);
    w.heal();
    w.cut_off(with);
    w.slow_disk(leader, 0);
    w.start(leader);
    w.run(5_000);
    w.heal();
    w.run(5_000);
    assert!(w.leader().is_some(), "a healed group has a leader");
}

/// A second process takes the name of a member that is cut off, just as the leader loses sight of the other
/// one. The leader and the newcomer are no majority of those who vote: the two others are.
fn twin_joins_while_the_leader_is_cut_off(seed: u64, planted: Option<Planted>) {
    let mut w = World::new(3, seed, Faults::default(), planted);
    w.run(4_000);
    let leader = w.leader().expect("a leader");
    let [near, far] = [1, 2].map(|n| (leader + n) % 3);
    let twin = w.add_twin(far);
    w.cut_off(far);
    w.run(1_500);
    w.heal();
    for other in [near, far] {
        w.cut_between(leader, other);
        w.cut_between(twin, other);
    }
    w.run(5_000);
    w.heal();
    w.run(5_000);
    assert!(w.leader().is_some(), "a healed group has a leader");
}

/// The first of ten seeds that finds the bug; all of them are good without it.
fn is_found_in(scenario: fn(u64, Option<Planted>), bug: Planted) -> Option<u64> {
    (1..=10).for_each(|seed| scenario(seed, None));
    (1..=10).find(|seed| catch_unwind(|| scenario(*seed, Some(bug))).is_err())
}

#[test]
fn planted_bugs_are_found() {
    // The first seeds are those that found it before.
    let found = |first: u64, faults: Faults, planted: Option<Planted>, members: usize| {
        (first..first + 40).find(|seed| {
            let run = AssertUnwindSafe(|| {
                check(members, *seed, faults, planted, 20_000);
            });
            catch_unwind(run).is_err()
        })
    };
    std::panic::set_hook(Box::new(|_| {}));
    let bugs = [
        ("vote in memory", found(1, STORM, Some(Planted::VoteInMemory), 3)),
        ("ack before durable", found(1, STORM, Some(Planted::AckBeforeDurable), 3)),
        ("commit of an old term", found(2, STORM, Some(Planted::CommitOldTerm), 5)),
        ("long lease", found(48, STORM, Some(Planted::LongLease), 3)),
        ("read before own term", found(1, STORM, Some(Planted::ReadBeforeOwnTerm), 3)),
        ("keep conflict", found(10, STORM, Some(Planted::KeepConflict), 3)),
        ("term in memory", found(2, STORM, Some(Planted::TermInMemory), 3)),
        ("snapshot drops tail", found(34, STORM, Some(Planted::SnapshotDropsTail), 3)),
        ("commit unverified", found(10, STORM, Some(Planted::CommitUnverified), 3)),
        ("vote for anybody", found(34, STORM, Some(Planted::VoteForAnybody), 3)),
        ("leader counts early", is_found_in(slow_leader_loses_its_tail, Planted::LeaderCountsEarly)),
        ("two changes at once", is_found_in(twin_joins_while_the_leader_is_cut_off, Planted::TwoChanges)),
        (
            "wiped voter counted",
            found(3, Faults { wipes: true, keep_identity_on_wipe: true, ..STORM }, None, 3),
        ),
    ];
    let _ = std::panic::take_hook();
    bugs.iter().for_each(|(name, seed)| eprintln!("{name}: seed {seed:?}"));
    for (name, seed) in bugs {
        assert!(seed.is_some(), "{name} is not found");
    }
}
