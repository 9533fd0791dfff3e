//! Scenarios for what late seeds have besides: deaths at each step of what PGs and monitors go through, hosts
//! that are lost, pools that come and go under use.

use super::{KILLED, Kind, OFF, command, each, kill, s, start};
use crate::faults::{Fault, Mons, Trigger};
use crate::guest::GuestKind;
use crate::late::another_pool;
use crate::net::Node;
use crate::phases::{Moment, Phase, Step};
use crate::queue::MILLISECOND;
use crate::scenario::{Options, Scenario};

/// Members die and come back, behind the log at times, and leaders are killed; in what follows somebody dies
/// at the k-th message or commit.
pub(super) fn deaths_at_each_step(base: Scenario) -> Scenario {
    let phases = [Phase::Peering, Phase::Recovery, Phase::Backfill, Phase::Election];
    let plan = each(1.0, 6.0, 16, |i, at| {
        let (phase, step) = (phases[i % 4], [Step::Message, Step::Commit][i / 4 % 2]);
        // A recovery of few objects has few messages.
        let most = if matches!(phase, Phase::Election | Phase::Recovery) { 2 } else { 4 };
        let k = 1 + (i as u32 * 5 + base.seed as u32) % most;
        let victim = Node::Osd((i / 4 % 3) as i32);
        let leader = Kind::CrashMons { which: Mons::Leader, death: KILLED, down: s(1) };
        let death = if i % 2 == 0 { OFF } else { KILLED };
        let puller = Fault::at(at, Kind::CrashPuller { death, down: s(1) });
        let mut faults = vec![puller.when(Trigger::Nth { what: Moment { phase, step }, k })];
        match phase {
            Phase::Election => faults.push(Fault::at(at + 0.5, leader)),
            _ => faults.extend([kill(at + 0.5, victim), start(at + 3.5, victim)]),
        }
        faults
    });
    let options = |o: &mut Options| {
        (o.log_entries, o.backfill_scan, o.objects, o.think) = (5, 4, 12, 40 * MILLISECOND);
    };
    base.with_seconds(98).with_options(options).with_plan(plan)
}

/// Two OSDs share a host, with a monitor: all of them are gone for good right after somebody was answered.
pub(super) fn whole_hosts_are_lost(base: Scenario) -> Scenario {
    let plan = each(2.0, 9.0, 4, |i, at| {
        let death = if i % 2 == 0 { OFF } else { KILLED };
        vec![Fault::at(at, Kind::LoseHost { host: i % 3, death, down: s(1) }).when(Trigger::Answer)]
    });
    let options = |o: &mut Options| {
        (o.osds, o.osds_per_host, o.pg_num) = (6, 2, 8);
        o.osd_clocks = vec![(1_000, 0); 6];
    };
    base.with_seconds(38).with_options(options).with_plan(plan)
}

/// Pools are deleted while somebody writes to them, with members that die and links that break.
pub(super) fn pools_come_and_go_under_use(base: Scenario) -> Scenario {
    let plan = each(1.0, 2.0, 14, |i, at| {
        let number = (i % 2) as u64;
        let mut faults = vec![
            command(at, another_pool(true, number, 1 + i as u64 % 4)),
            command(at + 3.0, another_pool(false, number, 0)),
        ];
        match i % 3 {
            0 => faults.extend([kill(at + 2.5, Node::Osd(2)), start(at + 3.3, Node::Osd(2))]),
            1 => faults.push(Fault::at(at + 2.9, Kind::CutAll { node: Node::Osd(0) })),
            _ => {}
        }
        faults
    });
    let options = |o: &mut Options| o.guests = vec![GuestKind::Visitor; 2];
    base.with_seconds(34).with_options(options).with_plan(plan)
}
