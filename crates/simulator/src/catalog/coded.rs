//! Scenarios with an erasure-coded pool: members that die in turn, writes that too few shards have, disks
//! that are lost for good, rot, PGs that split, merge and move.

use super::{KILLED, Kind, Node, OFF, block, command, each, kill, pool_set, prefer, s, start};
use crate::faults::{Death, Fault, Trigger};
use crate::queue::MILLISECOND;
use crate::scenario::{Options, Scenario};

/// Two shards of data and two of coding on five OSDs.
fn coded(base: Scenario) -> Scenario {
    let options = |o: &mut Options| {
        (o.code, o.size, o.min_size, o.osds) = (Some((2, 2)), 4, 3, 5);
        (o.objects, o.depth, o.think, o.payload) = (12, 3, 30 * MILLISECOND, 20_000);
        (o.log_entries, o.backfill_scan) = (8, 3);
    };
    let mut scenario = base.with_options(options);
    scenario.coded = true;
    scenario
}

/// OSDs die in turn, two at a time now and then, some with the power; each is back soon after the next one
/// has died, and has missed writes.
pub(super) fn coded_members_die_in_turn(base: Scenario) -> Scenario {
    let death = |i: usize| -> Death { if i % 3 == 0 { OFF } else { KILLED } };
    let plan = each(1.0, 4.0, 10, |i, at| {
        let at_once = if i % 4 == 3 { 2 } else { 1 };
        let osds = (0..at_once).map(|more| ((i * 2 + more) % 7) as i32).collect();
        let down = if i % 2 == 0 { s(2) } else { s(5) };
        let when = [Trigger::Answer, Trigger::Submit, Trigger::AtOnce][i % 3];
        vec![Fault::at(at, Kind::CrashOsds { osds, death: death(i), down }).when(when)]
    });
    // Writes go on while two are away, and both miss them.
    let wide = |o: &mut Options| (o.code, o.size, o.min_size, o.osds) = (Some((3, 3)), 6, 4, 7);
    coded(base).with_options(wide).with_seconds(44).with_plan(plan)
}

/// Small parts of large stripes are written, whose coding chunks get what differs, and a member is away now
/// and then.
pub(super) fn coded_stripes_change_in_part(base: Scenario) -> Scenario {
    let plan = each(2.0, 6.0, 4, |i, at| {
        let away = Node::Osd(i as i32 + 1);
        vec![kill(at, away), start(at + 2.5, away)]
    });
    let narrow = |o: &mut Options| (o.code, o.size, o.min_size, o.osds) = (Some((5, 1)), 6, 5, 6);
    coded(base).with_options(narrow).with_seconds(28).with_plan(plan)
}

/// A primary reaches few members for a moment, in which they alone have its writes, and dies.
pub(super) fn coded_writes_that_a_primary_has_alone(base: Scenario) -> Scenario {
    let leader = Node::Osd(0);
    let mut plan = prefer(0, 5);
    plan.extend(each(3.0, 8.0, 5, |i, at| {
        let hears = |osd: &i32| i % 2 == 0 || *osd != 1 + i as i32 % 4;
        let links = (1..5).filter(hears).map(|osd| (leader, Node::Osd(osd))).collect();
        vec![block(at, links, s(1)), kill(at + 0.4, leader), start(at + 5.0, leader)]
    }));
    coded(base).with_seconds(44).with_plan(plan)
}

/// Disks are gone for good, as many at a time as there are coding shards, and new ones are filled while
/// others die.
pub(super) fn coded_disks_are_lost(base: Scenario) -> Scenario {
    let plan = each(2.0, 10.0, 4, |i, at| {
        let osds = (0..2).map(|more| ((i * 3 + more) % 6) as i32).collect();
        let when = [Trigger::Answer, Trigger::AtOnce][i % 2];
        let lost = Kind::LoseDisks { osds, death: [KILLED, OFF][i % 2], down: s(2) };
        let other = Kind::CrashOsds { osds: vec![(i * 3 + 4) as i32 % 6], death: KILLED, down: s(1) };
        vec![Fault::at(at, lost).when(when), Fault::at(at + 5.0, other).when(Trigger::Submit)]
    });
    coded(base).with_options(|o| o.osds = 6).with_seconds(46).with_plan(plan)
}

/// A block of a shard rots at each place, and clients, writes and scrubs come upon it.
pub(super) fn coded_shards_rot(base: Scenario) -> Scenario {
    let plan = each(2.0, 9.0, 5, |i, at| {
        let nth = (i as u64) << 32 | (i as u64 * 0x9e37 + 5);
        vec![Fault::at(at, Kind::Rot { nth })]
    });
    coded(base).with_options(|o| o.log_kb = 512).with_seconds(46).with_plan(plan)
}

/// PGs split, shards move to other OSDs and back, and PGs merge, while members die in the middle of that.
pub(super) fn coded_pgs_split_and_move(base: Scenario) -> Scenario {
    let weight =
        |osd: usize, w: f64| format!(r#"{{"prefix":"osd crush reweight","name":"osd.{osd}","weight":{w}}}"#);
    let crash = |osds, death| Kind::CrashOsds { osds, death, down: s(1) };
    let plan = vec![
        command(1.0, pool_set("pg_num", 8)),
        command(3.0, pool_set("pgp_num", 8)),
        Fault::at(4.0, crash(vec![1], KILLED)).when(Trigger::NewMap),
        command(8.0, pool_set("pg_num", 13)),
        command(9.0, weight(0, 0.5)),
        command(12.0, pool_set("pgp_num", 13)),
        Fault::at(13.0, crash(vec![2], OFF)).when(Trigger::NewMap),
        command(17.0, weight(3, 2.0)),
        Fault::at(18.0, crash(vec![3, 4], KILLED)).when(Trigger::Submit),
        command(21.0, weight(0, 1.0)),
        Fault::at(22.0, Kind::MarkOut { osd: 1, lasts: s(6) }),
        command(30.0, pool_set("pg_num", 6)),
        Fault::at(33.0, crash(vec![5], OFF)).when(Trigger::NewMap),
    ];
    let options = |o: &mut Options| (o.osds, o.pg_num, o.objects) = (7, 4, 18);
    coded(base).with_options(options).with_seconds(44).with_plan(plan)
}
