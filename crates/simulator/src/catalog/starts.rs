//! Scenarios for what holds when a PG starts: whose log is taken, who has the start, and how far logs may be
//! trimmed.

use super::{Kind, Node, OFF, another_disk, block, command, kill, pool_set, prefer, s, start};
use crate::faults::Fault;
use crate::queue::MILLISECOND;
use crate::scenario::{Options, Scenario};

/// A client that only reads.
const READER: usize = 0;

fn down(seconds: f64, osd: i32) -> Fault {
    command(seconds, format!(r#"{{"prefix":"osd down","ids":["{osd}"]}}"#))
}

/// A flag of the OSD map.
fn flag(seconds: f64, verb: &str, key: &str) -> Fault {
    command(seconds, format!(r#"{{"prefix":"osd {verb}","key":"{key}"}}"#))
}

fn restart_clients(seconds: f64, clients: std::ops::Range<usize>) -> impl Iterator<Item = Fault> {
    clients.map(move |client| Fault::at(seconds, Kind::RestartClient { client }))
}

/// A primary reaches no member any more, and dies with what it has written alone, and so do those who asked
/// for that. The others start without it. It is back before they have written in each PG, and its disk is
/// lost before anything is copied.
pub(super) fn a_disk_with_lost_writes_returns_and_is_lost(base: Scenario) -> Scenario {
    let leader = Node::Osd(0);
    let mut plan = prefer(0, 3);
    plan.extend([
        block(2.4, [1, 2].map(|osd| (leader, Node::Osd(osd))).to_vec(), s(2)),
        kill(3.9, leader),
        down(3.95, 0),
        flag(4.0, "set", "norecover"),
        // What the others have let it answer is over, and they have started.
        start(6.8, leader),
        kill(10.0, leader),
        flag(10.5, "unset", "norecover"),
    ]);
    plan.extend(restart_clients(3.9, 0..3));
    plan.extend(another_disk(10.0, 0, 0xc8));
    let options = |o: &mut Options| {
        (o.pg_num, o.objects) = (64, 200);
        (o.clients, o.depth, o.think) = (3, 6, 800 * MILLISECOND);
    };
    base.with_seconds(16).with_options(options).with_plan(plan)
}

/// A primary reaches no member any more, one of them dies, and the other one's device is slow when the two
/// start. What only the primary had written is read there; then it dies, and the member's power fails. The
/// two members start without it.
pub(super) fn a_start_that_a_slow_member_loses(base: Scenario) -> Scenario {
    let [leader, member, other] = [0, 1, 2].map(Node::Osd);
    let mut plan = prefer(0, 3);
    plan.extend([
        block(3.0, vec![(leader, member), (leader, other)], s(1)),
        kill(3.5, other),
        down(3.55, 2),
        Fault::at(3.9, Kind::SlowDevice { osd: 1, factor: 1_000, lasts: s(1) }),
        kill(4.6, leader),
        Fault::at(4.6, Kind::Kill { node: member, death: OFF }),
        down(4.65, 0),
        start(5.2, member),
        start(5.2, other),
        start(11.0, leader),
    ]);
    plan.extend(restart_clients(3.95, READER + 1..3));
    let options = |o: &mut Options| {
        (o.objects, o.reader) = (60, Some(READER));
        (o.clients, o.depth) = (3, 6);
    };
    base.with_seconds(14).with_options(options).with_plan(plan)
}

/// Of two members one has a slow device, and its power fails while many writes are on their way to it. It is
/// back, and has caught up with the other one, before that one's disk is lost.
pub(super) fn a_slow_member_is_left_alone(base: Scenario) -> Scenario {
    let [leader, member] = [0, 1].map(Node::Osd);
    let mut plan = prefer(0, 2);
    plan.extend([
        Fault::at(3.0, Kind::SlowDevice { osd: 1, factor: 1_000, lasts: s(1) }),
        Fault::at(3.9, Kind::Kill { node: member, death: OFF }),
        // Its log is enough to catch it up.
        flag(4.0, "set", "nobackfill"),
        start(4.2, member),
        kill(7.5, leader),
        flag(9.0, "unset", "nobackfill"),
        command(7.6, pool_set("min_size", 1)),
    ]);
    plan.extend(another_disk(7.5, 0, 0xc8));
    let options = |o: &mut Options| {
        (o.osds, o.size, o.min_size, o.pg_num) = (2, 2, 2, 1);
        (o.objects, o.backfill_scan, o.log_entries) = (100, 1, 1);
        (o.clients, o.depth, o.think) = (3, 6, 20 * MILLISECOND);
    };
    base.with_seconds(14).with_options(options).with_plan(plan)
}
