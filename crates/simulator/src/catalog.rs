//! Scenarios with a name: faults by hand at the moment that matters, for rows of the table in `docs/scenarios.md` and for
//! planted bugs. The seed still chooses delays, contents and which copy of a torn write survives.

mod coded;
mod late;
mod links;
mod resends;
mod starts;

use crate::faults::FaultKind as Kind;
use crate::faults::{Death, Fault, From, Mons, Trigger};
use crate::guest::GuestKind;
use crate::net::Node;
use crate::queue::{MICROSECOND, MILLISECOND, SECOND, Time};
use crate::scenario::{Options, Scenario};
use coded::*;
use late::*;
use links::*;
use resends::{late_resends_after_backfill, late_resends_after_splits};
use starts::{
    a_disk_with_lost_writes_returns_and_is_lost, a_slow_member_is_left_alone,
    a_start_that_a_slow_member_loses,
};

/// A scenario with a name.
#[derive(Clone, Copy)]
pub struct Named {
    pub name: &'static str,
    make: fn(Scenario) -> Scenario,
}

impl Named {
    pub fn scenario(&self, seed: u64) -> Scenario {
        // What most rows are for has to do with what messages say.
        (self.make)(Scenario::from_seed(seed).with_wire(false).with_options(|o| usual(o, seed)))
    }
}

/// Three monitors, three OSDs with all copies, two clients: small, so that a run takes little.
fn usual(o: &mut Options, seed: u64) {
    *o = Options {
        mons: 3,
        osds: 3,
        clients: 2,
        size: 3,
        min_size: 2,
        pg_num: 4,
        objects: 6,
        depth: 2,
        think: 60 * MILLISECOND,
        payload: 2_000,
        latency: 100 * MICROSECOND,
        flush: MILLISECOND,
        heartbeat_grace_s: 3,
        down_out_s: 600,
        log_entries: 30,
        dups_tracked: 500,
        backfill_scan: 16,
        slice_bytes: pg::Portions::default().slice,
        room: crate::scenario::ROOM,
        stage: crate::scenario::LARGE,
        maps_kept: 500,
        beacon_s: 60,
        cold: 0,
        garbled: None,
        osds_per_host: 1,
        guests: Vec::new(),
        log_kb: 8 << 10,
        mon_snapshot_every: if seed % 2 == 0 { 20 } else { 1_000 },
        ..o.clone()
    };
}

macro_rules! catalog {
    ($($name:ident),+ $(,)?) => {
        /// Every named scenario.
        pub const CATALOG: &[Named] = &[$( Named { name: stringify!($name), make: $name } ),+];
    };
}
catalog![
    flapping_replica,
    primary_killed_at_each_step,
    all_copies_return_in_every_order,
    only_a_stale_copy_returns,
    fewer_than_min_size,
    stale_primary,
    suspended_primary,
    stale_primary_with_rare_heartbeats,
    primary_replaced_while_a_member_supports_it,
    power_loss_of_one,
    power_loss_of_all,
    power_loss_of_all_with_two_copies,
    failing_devices,
    dropped_writes,
    slow_device,
    large_writes_through_failures,
    clients_beyond_their_share,
    monitors_in_a_minority,
    monitors_without_a_majority,
    leading_monitor_killed_in_a_commit,
    monitors_lose_power_together,
    damaged_monitor_stores,
    wiped_monitors,
    wiped_monitor_and_one_that_lags,
    monitors_added_and_removed,
    one_way_partitions,
    two_osds_cut_from_each_other,
    wrong_clocks,
    cut_links,
    cut_frames,
    messages_that_do_not_decode,
    lost_replies,
    late_resends,
    small_duplicate_window,
    missed_maps,
    maps_forgotten_within_an_interval,
    splits_and_moves,
    replaced_disk,
    empty_disk_by_mistake,
    restarted_clients,
    lone_monitor_restarts,
    rot_in_data,
    rot_that_nobody_reads,
    rot_in_metadata,
    full_disks,
    snapshots_during_recovery_and_kills,
    pool_snapshots_during_recovery_and_kills,
    merges_under_load,
    backfill_to_a_nearly_full_osd,
    lock_holder_dies,
    watcher_dies,
    watchers_through_failures,
    objects_move_one_by_one,
    writes_while_ranges_are_copied,
    members_return_behind_the_log,
    one_member_stays_alone,
    writes_that_only_a_primary_has,
    writes_that_were_told_and_lost,
    a_disk_is_lost_before_all_are_whole,
    late_resends_after_splits,
    late_resends_after_backfill,
    a_member_restarts_within_its_lease,
    a_disk_with_lost_writes_returns_and_is_lost,
    a_start_that_a_slow_member_loses,
    a_slow_member_is_left_alone,
    coded_members_die_in_turn,
    coded_stripes_change_in_part,
    coded_writes_that_a_primary_has_alone,
    coded_disks_are_lost,
    coded_shards_rot,
    coded_pgs_split_and_move,
    deaths_at_each_step,
    whole_hosts_are_lost,
    pools_come_and_go_under_use,
];

const KILLED: Death = Death::Killed;
const OFF: Death = Death::PowerLoss;

fn kill(seconds: f64, node: Node) -> Fault {
    Fault::at(seconds, Kind::Kill { node, death: KILLED })
}

fn start(seconds: f64, node: Node) -> Fault {
    Fault::at(seconds, Kind::Start { node })
}

fn note(seconds: f64) -> Fault {
    Fault::at(seconds, Kind::Note)
}

fn command(seconds: f64, json: String) -> Fault {
    Fault::at(seconds, Kind::Command(json))
}

fn s(seconds: u64) -> Time {
    seconds * SECOND
}

/// So many faults, one after the other.
fn each(first: f64, every: f64, count: usize, fault: impl Fn(usize, f64) -> Vec<Fault>) -> Vec<Fault> {
    (0..count).flat_map(|i| fault(i, first + every * i as f64)).collect()
}

/// A change of the OSD map that moves nothing.
fn affinity(i: usize) -> String {
    let weight = 0.5 + (i / 3 % 2) as f64 / 4.0;
    format!(r#"{{"prefix":"osd primary-affinity","id":{},"weight":{weight}}}"#, i % 3)
}

fn flapping_replica(base: Scenario) -> Scenario {
    let osd = Node::Osd(2);
    base.with_seconds(32).with_plan(each(1.0, 5.0, 6, |_, at| vec![kill(at, osd), start(at + 2.5, osd)]))
}

fn primary_killed_at_each_step(base: Scenario) -> Scenario {
    let steps = [Trigger::Submit, Trigger::Durable, Trigger::Answer, Trigger::Heard];
    let plan = each(1.0, 3.0, 8, |i, at| {
        let puller = Fault::at(at, Kind::CrashPuller { death: KILLED, down: s(2) });
        let any = Fault::at(at, Kind::CrashOsds { osds: vec![(i % 3) as i32], death: KILLED, down: s(1) });
        let fault = if i % 4 == 3 { any } else { puller };
        vec![fault.when(steps[i % 4])]
    });
    base.with_seconds(28).with_plan(plan)
}

fn all_copies_return_in_every_order(base: Scenario) -> Scenario {
    let orders = [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]];
    let plan = each(2.0, 7.0, 6, |i, at| {
        let mut faults: Vec<Fault> = (0..3).map(|osd| kill(at, Node::Osd(osd))).collect();
        let starts = orders[i].iter().zip([1.0, 2.0, 3.0]);
        faults.extend(starts.map(|(osd, after)| start(at + after, Node::Osd(*osd))));
        faults
    });
    base.with_seconds(46).with_plan(plan)
}

/// One copy would be enough, were it not an old one. Nothing is answered between the notes.
fn only_a_stale_copy_returns(base: Scenario) -> Scenario {
    let [a, b, stale] = [0, 1, 2].map(Node::Osd);
    let plan = vec![
        kill(2.0, stale),
        kill(9.0, a),
        kill(9.0, b),
        start(11.0, stale),
        note(13.0),
        note(23.0),
        start(24.0, a),
        start(25.0, b),
    ];
    base.with_seconds(30).with_options(|o| o.min_size = 1).with_plan(plan)
}

/// Nothing is answered between the notes.
fn fewer_than_min_size(base: Scenario) -> Scenario {
    let (a, b) = (Node::Osd(1), Node::Osd(2));
    let plan = vec![kill(3.0, a), kill(3.0, b), note(8.0), note(18.0), start(19.0, a), start(20.0, b)];
    base.with_seconds(26).with_plan(plan)
}

/// Alone with a primary, a client that writes waits for its writes after a moment with all that it may ask at once: this one does not.
const READER: usize = 0;

/// A primary that only one client reaches, and that reaches nobody else, for much longer than its lease. The client only reads.
fn stale_primary(base: Scenario) -> Scenario {
    alone_with_a_reader(base, |_, _| Vec::new())
}

/// The same, and the primary's host is suspended until it was replaced. Its monotonic clock says that its
/// lease goes on.
fn suspended_primary(base: Scenario) -> Scenario {
    let suspend = Kind::Suspend { host: 0, lasts: s(12) };
    alone_with_a_reader(base, |_, at| vec![Fault::at(at + 0.2, suspend.clone())])
}

fn alone_with_a_reader(base: Scenario, beside: impl Fn(usize, f64) -> Vec<Fault>) -> Scenario {
    let client = READER;
    let mut plan = each(3.0, 24.0, 3, |i, at| {
        let island = Kind::Island { osd: 0, client, lasts: s(18) };
        [vec![Fault::at(at, island)], beside(i, at)].concat()
    });
    // It leads every PG: a client alone with it that asks others as well soon waits for these with all that it may ask at once.
    for osd in 1..3 {
        let text = format!(r#"{{"prefix":"osd primary-affinity","id":"{osd}","weight":0.0}}"#);
        plan.push(command(0.5, text));
    }
    base.with_seconds(78)
        .with_options(|o| (o.depth, o.clients, o.reader) = (4, 3, Some(client)))
        .with_plan(plan)
}

/// The same with the usual heartbeats: how lately others heard of the primary differs by seconds.
fn stale_primary_with_rare_heartbeats(base: Scenario) -> Scenario {
    let client = READER;
    let plan = each(7.0, 50.0, 3, |i, at| {
        let island = Kind::Island { osd: i as i32 / 2, client, lasts: s(30) };
        vec![Fault::at(at + i as f64 * 1.7, island)]
    });
    let usual = |o: &mut Options| {
        (o.heartbeat_interval_s, o.heartbeat_grace_s) = (6, 20);
        (o.osds, o.clients, o.reader) = (5, 3, Some(client));
    };
    base.with_seconds(150).with_options(usual).with_plan(plan)
}

/// Two OSDs that do not reach a primary report it, while the other member of some of its PGs answers it to the end. Just as the
/// monitors mark it down it is alone with a client, and has that member's lease for seconds.
fn primary_replaced_while_a_member_supports_it(base: Scenario) -> Scenario {
    supported_primary(base, 2)
}

/// So many times.
fn supported_primary(base: Scenario, times: usize) -> Scenario {
    let client = READER;
    let plan = each(2.0, 36.0, times, |_, at| {
        let cut = |osd| Kind::Partition { osd: 0, from: From::OneOsd(osd), both_ways: true, lasts: s(24) };
        let island = Kind::Island { osd: 0, client, lasts: s(14) };
        vec![Fault::at(at, cut(2)), Fault::at(at, cut(3)), Fault::at(at + 6.0, island).when(Trigger::NewMap)]
    });
    let options = |o: &mut Options| {
        (o.heartbeat_interval_s, o.heartbeat_grace_s) = (2, 8);
        (o.osds, o.size, o.min_size, o.pg_num) = (4, 2, 1, 48);
        (o.clients, o.depth, o.objects, o.reader) = (3, 4, 72, Some(client));
    };
    base.with_seconds(2 + 36 * times as u64).with_options(options).with_plan(plan)
}

fn power_loss_of_one(base: Scenario) -> Scenario {
    let steps = [Trigger::Submit, Trigger::Durable, Trigger::Answer];
    let plan = each(1.0, 3.0, 9, |i, at| {
        vec![Fault::at(at, Kind::CrashPuller { death: OFF, down: s(1) }).when(steps[i % 3])]
    });
    base.with_seconds(30).with_plan(plan)
}

fn power_loss_of_all(base: Scenario) -> Scenario {
    let steps = [Trigger::Heard, Trigger::Answer, Trigger::Submit, Trigger::Durable];
    let plan = each(2.0, 5.0, 6, |i, at| {
        vec![Fault::at(at, Kind::CrashAll { death: OFF, down: 20 * MILLISECOND }).when(steps[i % 4])]
    });
    base.with_seconds(32).with_options(|o| o.payload = 20_000).with_plan(plan)
}

fn power_loss_of_all_with_two_copies(base: Scenario) -> Scenario {
    let few = |o: &mut Options| (o.osds, o.size, o.min_size, o.pg_num) = (4, 2, 1, 8);
    power_loss_of_all(base).with_options(few)
}

/// Flushes, writes, reads and write-backs fail.
fn failing_devices(base: Scenario) -> Scenario {
    let plan = each(1.0, 4.0, 6, |i, at| {
        let fail = Kind::FailDevice { osd: (i % 3) as i32, nth: i as u64 + 2, down: s(2) };
        vec![Fault::at(at, fail)]
    });
    base.with_seconds(26).with_plan(plan)
}

/// Writes get lost on their way from the cache to the medium while commits and checkpoints flush side by side.
fn dropped_writes(base: Scenario) -> Scenario {
    let plan = each(1.0, 2.0, 20, |i, at| {
        let drop = Kind::FailDevice { osd: (i % 3) as i32, nth: 3 + 4 * (i as u64 % 17), down: s(1) };
        vec![Fault::at(at, drop)]
    });
    let options = |o: &mut Options| {
        // Payloads go straight to their places, through the cache; a short log has checkpoints beside many commits.
        (o.payload, o.log_kb, o.flush) = (60_000, 192, 20 * MILLISECOND);
        (o.depth, o.think) = (4, 10 * MILLISECOND);
    };
    base.with_seconds(44).with_options(options).with_plan(plan)
}

fn slow_device(base: Scenario) -> Scenario {
    let slow = |osd, factor| Kind::SlowDevice { osd, factor, lasts: s(8) };
    let plan =
        vec![Fault::at(1.0, slow(1, 10)), Fault::at(10.0, slow(2, 100)), Fault::at(20.0, slow(0, 1_000))];
    base.with_seconds(32).with_plan(plan)
}

/// OSDs die and sessions break just when a piece of a large write, or the write itself, is submitted or durable.
fn large_writes_through_failures(base: Scenario) -> Scenario {
    let plan = each(1.0, 1.5, 18, |i, at| {
        let osd = (i / 3 % 3) as i32;
        vec![match i % 3 {
            0 => Fault::at(at, Kind::CrashPuller { death: KILLED, down: s(1) }).when(Trigger::Submit),
            1 => {
                let crash = Kind::CrashOsds { osds: vec![osd], death: OFF, down: s(1) };
                Fault::at(at, crash).when(Trigger::Durable)
            }
            _ => Fault::at(at, Kind::CutAll { node: Node::Osd(osd) }).when(Trigger::Submit),
        }]
    });
    let options = |o: &mut Options| {
        (o.stage, o.payload, o.pg_num) = ((6 << 10, 4 << 10), 60_000, 2);
        (o.depth, o.think) = (4, 20 * MILLISECOND);
    };
    base.with_seconds(32).with_options(options).with_plan(plan)
}

/// OSDs have room for two requests, and clients send four at a time: all are held and let go while members
/// die and sessions break.
fn clients_beyond_their_share(base: Scenario) -> Scenario {
    let plan = each(2.0, 3.0, 6, |i, at| {
        let osd = (i % 3) as i32;
        vec![match i % 2 {
            0 => Fault::at(at, Kind::CrashOsds { osds: vec![osd], death: KILLED, down: s(1) }),
            _ => Fault::at(at, Kind::CutAll { node: Node::Osd(osd) }),
        }]
    });
    let options = |o: &mut Options| {
        (o.room, o.clients, o.depth, o.think) = (2, 3, 4, 20 * MILLISECOND);
    };
    base.with_seconds(24).with_options(options).with_plan(plan)
}

/// The leading monitor, then another one, is cut off by itself; commands go on meanwhile.
fn monitors_in_a_minority(base: Scenario) -> Scenario {
    let cut = |which| Kind::CutMon { which, from: None, both_ways: true, lasts: s(8) };
    let mut plan = vec![
        Fault::at(2.0, cut(Mons::Leader)),
        Fault::at(14.0, cut(Mons::One(1))),
        Fault::at(26.0, cut(Mons::Leader)),
    ];
    plan.extend(each(3.0, 1.0, 30, |i, at| vec![command(at, affinity(i))]));
    base.with_seconds(38).with_plan(plan)
}

/// Clients are answered between the notes.
fn monitors_without_a_majority(base: Scenario) -> Scenario {
    let plan = vec![
        Fault::at(3.0, Kind::CrashMons { which: Mons::Majority, death: KILLED, down: s(16) }),
        note(6.0),
        note(16.0),
        command(8.0, affinity(1)),
    ];
    base.with_seconds(24).with_plan(plan)
}

fn leading_monitor_killed_in_a_commit(base: Scenario) -> Scenario {
    let steps = [Trigger::MonWrite, Trigger::MonDurable, Trigger::NewMap];
    let plan = each(2.0, 5.0, 6, |i, at| {
        let death = if i % 2 == 0 { KILLED } else { OFF };
        let crash = Kind::CrashMons { which: Mons::Leader, death, down: s(2) };
        let create = format!(r#"{{"prefix":"osd pool create","pool":"q{i}","pg_num":1,"pgp_num":1}}"#);
        vec![
            Fault::at(at, crash).when(steps[i % 3]),
            command(at + 0.02, create),
            command(at + 0.03, affinity(i)),
        ]
    });
    base.with_seconds(34).with_plan(plan)
}

fn monitors_lose_power_together(base: Scenario) -> Scenario {
    let plan = each(2.0, 5.0, 5, |i, at| {
        let crash = Kind::CrashMons { which: Mons::All, death: OFF, down: 200 * MILLISECOND };
        let when = if i % 2 == 0 { Trigger::NewMap } else { Trigger::MonDurable };
        vec![command(at, affinity(i)), Fault::at(at, crash).when(when), command(at + 3.0, affinity(i + 3))]
    });
    base.with_seconds(28).with_plan(plan)
}

/// Each in its turn.
fn damaged_monitor_stores(base: Scenario) -> Scenario {
    wiped(base, true)
}

fn wiped_monitors(base: Scenario) -> Scenario {
    wiped(base, false)
}

fn wiped(base: Scenario, damaged: bool) -> Scenario {
    let plan = each(3.0, 9.0, 3, |mon, at| {
        let cut =
            Kind::CutMon { which: Mons::One(mon), from: Some((mon + 1) % 3), both_ways: true, lasts: s(3) };
        let wipe = Fault::at(at, Kind::WipeMon { mon, damaged });
        vec![
            wipe,
            Fault::at(at + 0.1, cut),
            command(at + 1.0, affinity(mon)),
            command(at + 6.0, affinity(mon + 3)),
        ]
    });
    base.with_seconds(32).with_plan(plan)
}

/// One monitor lags behind the two others; then one of those is dead and the other comes back with an empty disk. Counted as
/// what it was, it would make the one that lags a leader.
fn wiped_monitor_and_one_that_lags(base: Scenario) -> Scenario {
    let [a, b, c] = [0, 1, 2].map(Node::Mon);
    let lags = [(a, c), (c, a), (b, c), (c, b)].to_vec();
    let mut plan = vec![
        Fault::at(2.0, Kind::Block { links: lags, lasts: s(8) }),
        kill(9.9, a),
        kill(9.9, b),
        Fault::at(10.0, Kind::EmptyMon { mon: 1 }),
        start(10.5, b),
        start(22.0, a),
    ];
    plan.extend(each(3.0, 0.5, 8, |i, at| vec![command(at, affinity(i))]));
    plan.push(command(12.0, affinity(3)));
    base.with_seconds(30).with_plan(plan)
}

/// From three to five, to three, to four, with deaths and cuts between; a former one is started again, and
/// comes back as another one.
fn monitors_added_and_removed(base: Scenario) -> Scenario {
    let cut = Kind::CutMon { which: Mons::One(3), from: None, both_ways: true, lasts: s(2) };
    let crash = |which, death| Kind::CrashMons { which, death, down: s(1) };
    let mut plan = vec![
        Fault::at(2.0, Kind::AddMon { early: false }),
        Fault::at(4.1, cut),
        Fault::at(10.0, Kind::AddMon { early: true }),
        Fault::at(18.0, crash(Mons::Leader, KILLED)).when(Trigger::MonDurable),
        Fault::at(22.0, Kind::RemoveMon { which: Mons::One(0) }),
        Fault::at(22.1, crash(Mons::One(1), OFF)),
        start(30.0, Node::Mon(0)),
        Fault::at(36.0, Kind::RemoveMon { which: Mons::Leader }).when(Trigger::MonWrite),
        Fault::at(44.0, Kind::AddMon { early: true }),
    ];
    plan.extend(each(2.5, 1.0, 50, |i, at| vec![command(at, affinity(i))]));
    base.with_seconds(56).with_plan(plan)
}

fn one_way_partitions(base: Scenario) -> Scenario {
    let cut = |which, from| Kind::CutMon { which, from, both_ways: false, lasts: s(12) };
    let osd = |osd, from| Kind::Partition { osd, from, both_ways: false, lasts: s(8) };
    let plan = vec![
        Fault::at(2.0, cut(Mons::Leader, None)),
        Fault::at(16.0, cut(Mons::One(0), Some(1))),
        Fault::at(30.0, cut(Mons::One(2), None)),
        Fault::at(34.0, osd(0, From::Monitors)),
        Fault::at(44.0, osd(1, From::OneMonitor(1))),
        Fault::at(46.0, osd(2, From::OtherOsds)),
    ];
    base.with_seconds(58).with_plan(plan)
}

fn two_osds_cut_from_each_other(base: Scenario) -> Scenario {
    let cut = |osd, from| Kind::Partition { osd, from, both_ways: true, lasts: s(12) };
    let plan = vec![
        Fault::at(2.0, cut(0, From::OneOsd(1))),
        Fault::at(18.0, cut(2, From::Clients)),
        Fault::at(34.0, cut(3, From::OneOsd(0))),
    ];
    base.with_seconds(50).with_options(|o| o.osds = 4).with_plan(plan)
}

/// Wall clocks jump by an hour, both ways, on top of rates that differ.
fn wrong_clocks(base: Scenario) -> Scenario {
    let plan = each(1.0, 2.0, 12, |i, at| {
        let node = if i % 2 == 0 { Node::Mon(i / 2 % 3) } else { Node::Osd((i / 2 % 3) as i32) };
        let seconds = [3_600, -3_600, 1, -7_200, 7_200, -1][i / 2 % 6];
        let crash = Kind::CrashOsds { osds: vec![(i % 3) as i32], death: KILLED, down: s(1) };
        vec![Fault::at(at, Kind::Jump { node, seconds }), Fault::at(at + 0.5, crash)]
    });
    base.with_seconds(27).with_plan(plan)
}

/// A client hears nothing for a while and asks again, long after what it asked was done.
fn late_resends(base: Scenario) -> Scenario {
    let plan = each(1.0, 4.0, 6, |i, at| {
        let client = Node::Client(i % 3);
        let links = (0..3).map(|osd| (Node::Osd(osd), client)).collect();
        let block = Fault::at(at, Kind::Block { links, lasts: s(2) });
        let cut = |after: f64| Fault::at(at + after, Kind::CutAll { node: client });
        vec![block, cut(1.9), cut(1.95)]
    });
    let busy = |o: &mut Options| (o.clients, o.objects, o.pg_num, o.think) = (3, 2, 1, 20 * MILLISECOND);
    base.with_seconds(26).with_options(busy).with_plan(plan)
}

/// PGs remember little more than what clients can have under way.
fn small_duplicate_window(base: Scenario) -> Scenario {
    let mut plan = each(1.0, 0.7, 30, |i, at| {
        vec![Fault::at(at, Kind::CutAll { node: Node::Client(i % 2) }).when(Trigger::Answer)]
    });
    plan.extend(each(2.0, 5.0, 4, |i, at| {
        let crash = Kind::CrashOsds { osds: vec![(i % 3) as i32], death: KILLED, down: s(1) };
        vec![Fault::at(at, crash).when(Trigger::Answer)]
    }));
    plan.push(command(10.0, pool_set("pg_num", 8)));
    let small = |o: &mut Options| (o.log_entries, o.dups_tracked) = (2, 10);
    base.with_seconds(24).with_options(small).with_plan(plan)
}

fn pool_set(var: &str, value: u64) -> String {
    format!(r#"{{"prefix":"osd pool set","pool":"p","var":"{var}","val":"{value}"}}"#)
}

/// An OSD is away for more maps than the monitors keep.
fn missed_maps(base: Scenario) -> Scenario {
    let mut plan = vec![kill(1.0, Node::Osd(3)), start(40.0, Node::Osd(3))];
    plan.extend(each(2.0, 0.5, 70, |i, at| vec![command(at, affinity(i))]));
    let few = |o: &mut Options| (o.osds, o.maps_kept, o.beacon_s, o.down_out_s) = (4, 5, 1, 5);
    base.with_seconds(46).with_options(few).with_plan(plan)
}

/// Clean PGs take writes for many maps in which nothing happens to them, and the first of those are forgotten. Then all who took
/// writes are away, and one comes back that has copies from before, or none.
fn maps_forgotten_within_an_interval(base: Scenario) -> Scenario {
    let mut plan = vec![kill(1.0, Node::Osd(3))];
    plan.extend(each(10.0, 0.25, 48, |i, at| {
        let verb = if i % 2 == 0 { "set" } else { "unset" };
        vec![command(at, format!(r#"{{"prefix":"osd {verb}","key":"noscrub"}}"#))]
    }));
    plan.extend([
        Fault::at(24.0, Kind::CrashOsds { osds: vec![0, 1, 2], death: OFF, down: s(16) }),
        command(24.2, r#"{"prefix":"osd down","ids":["0","1","2"]}"#.to_owned()),
        start(24.5, Node::Osd(3)),
    ]);
    let few = |o: &mut Options| {
        (o.osds, o.size, o.min_size) = (4, 2, 1);
        (o.maps_kept, o.beacon_s, o.down_out_s) = (5, 1, 4);
    };
    base.with_seconds(46).with_options(few).with_plan(plan)
}

fn splits_and_moves(base: Scenario) -> Scenario {
    let weight =
        |osd: usize, w: f64| format!(r#"{{"prefix":"osd crush reweight","name":"osd.{osd}","weight":{w}}}"#);
    let plan = vec![
        command(1.0, pool_set("pg_num", 8)),
        command(3.0, pool_set("pgp_num", 8)),
        Fault::at(4.0, Kind::CrashOsds { osds: vec![1], death: KILLED, down: s(2) }),
        command(8.0, pool_set("pg_num", 13)),
        command(9.0, weight(0, 0.5)),
        command(12.0, pool_set("pgp_num", 13)),
        Fault::at(13.0, Kind::CrashOsds { osds: vec![2, 3], death: OFF, down: s(1) }).when(Trigger::NewMap),
        command(16.0, weight(3, 2.0)),
        command(18.0, weight(0, 1.0)),
        Fault::at(20.0, Kind::MarkOut { osd: 1, lasts: s(6) }),
    ];
    base.with_seconds(30).with_options(|o| o.osds = 4).with_plan(plan)
}

/// A destroyed OSD gets another disk; the old one comes back, serves nobody, and goes again.
fn replaced_disk(base: Scenario) -> Scenario {
    let osd = Node::Osd(1);
    let uuid = "c8c8c8c8-c8c8-c8c8-c8c8-c8c8c8c8c8c8";
    let swap = || Kind::OldDisk { osd: 1 };
    let plan = vec![
        kill(3.0, osd),
        command(5.0, r#"{"prefix":"osd down","ids":["1"]}"#.to_owned()),
        command(6.0, r#"{"prefix":"osd destroy-actual","id":"1","yes_i_really_mean_it":true}"#.to_owned()),
        command(6.5, format!(r#"{{"prefix":"osd new","uuid":"{uuid}","id":"1"}}"#)),
        Fault::at(7.0, Kind::NewDisk { osd: 1, uuid: 0xc8 }),
        start(8.0, osd),
        kill(16.0, osd),
        Fault::at(16.5, swap()),
        start(17.0, osd),
        note(18.0),
        kill(24.0, osd),
        Fault::at(24.5, swap()),
        start(25.0, osd),
    ];
    base.with_seconds(32).with_plan(plan)
}

/// An OSD is started on an empty disk of its own UUID, while the only other copy that is up is an old one: it does not count as a
/// member, and nothing is answered between the notes. Its disk is put back.
fn empty_disk_by_mistake(base: Scenario) -> Scenario {
    let [a, empty, stale] = [0, 1, 2].map(Node::Osd);
    let uuid = crate::mon::osd_uuid(1).0[0];
    let plan = vec![
        kill(2.0, stale),
        kill(9.0, a),
        kill(9.0, empty),
        Fault::at(10.0, Kind::NewDisk { osd: 1, uuid }),
        start(11.0, stale),
        start(11.0, empty),
        note(14.0),
        note(23.0),
        kill(23.5, empty),
        Fault::at(24.0, Kind::OldDisk { osd: 1 }),
        start(24.5, empty),
        start(25.0, a),
    ];
    base.with_seconds(32).with_plan(plan)
}

fn restarted_clients(base: Scenario) -> Scenario {
    base.with_seconds(22)
        .with_plan(each(1.0, 1.0, 20, |i, at| vec![Fault::at(at, Kind::RestartClient { client: i % 2 })]))
}

fn lone_monitor_restarts(base: Scenario) -> Scenario {
    let mon = Node::Mon(0);
    let plan = each(1.0, 3.0, 5, |i, at| {
        let client = Kind::RestartClient { client: i % 2 };
        vec![kill(at, mon), start(at + 0.5, mon), Fault::at(at + 1.5, client)]
    });
    base.with_mons(1).with_seconds(18).with_plan(plan)
}

/// Clients, writes and scrubs come upon damaged blocks, one at a time, on any member.
fn rot_in_data(base: Scenario) -> Scenario {
    let plan = each(3.0, 4.0, 8, |i, at| {
        let nth = (base.seed + i as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mut faults = vec![Fault::at(at, Kind::Rot { nth })];
        if i % 3 == 2 {
            let down = Kind::CrashOsds { osds: vec![(i % 3) as i32], death: OFF, down: s(1) };
            faults.push(Fault::at(at + 2.0, down));
        }
        faults
    });
    base.with_seconds(40)
        .with_options(|o| (o.payload, o.think, o.log_kb) = (20_000, 100 * MILLISECOND, 512))
        .with_plan(plan)
}

/// Blocks of objects that were written once: only scrubs come upon them.
fn rot_that_nobody_reads(base: Scenario) -> Scenario {
    let plan = each(6.0, 6.0, 4, |i, at| {
        let nth = (base.seed + i as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        vec![Fault::at(at, Kind::Rot { nth })]
    });
    let options = |o: &mut Options| (o.objects, o.cold, o.log_kb) = (12, 6, 512);
    base.with_seconds(32).with_options(options).with_plan(plan)
}

/// Each OSD in turn finds its disk damaged anywhere: what it does not refuse it must not serve. Then it gets another disk.
fn rot_in_metadata(base: Scenario) -> Scenario {
    let plan = each(3.0, 14.0, 3, |i, at| {
        let osd = i as i32;
        let nth = (base.seed + i as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mut faults = vec![
            kill(at, Node::Osd(osd)),
            Fault::at(at + 0.2, Kind::RotAnywhere { osd, nth }),
            start(at + 0.5, Node::Osd(osd)),
            kill(at + 5.0, Node::Osd(osd)),
        ];
        faults.extend(another_disk(at + 5.0, osd, 0xc1 + i as u8));
        faults
    });
    base.with_seconds(48).with_options(|o| (o.payload, o.log_kb) = (20_000, 512)).with_plan(plan)
}

/// The disks become full, stay so, and have room again, twice; an OSD dies while they are full.
fn full_disks(base: Scenario) -> Scenario {
    let crash = |osd| Kind::CrashOsds { osds: vec![osd], death: KILLED, down: s(1) };
    let plan = vec![Fault::at(12.0, crash(1)), Fault::at(21.0, crash(2)), Fault::at(30.0, crash(0))];
    let small = |o: &mut Options| (o.device_mb, o.guests, o.pg_num) = (24, vec![GuestKind::Filler], 2);
    base.with_seconds(40).with_options(small).with_plan(plan)
}

fn snapshots_during_recovery_and_kills(base: Scenario) -> Scenario {
    snapshots(base, GuestKind::Snaps)
}

fn pool_snapshots_during_recovery_and_kills(base: Scenario) -> Scenario {
    snapshots(base, GuestKind::PoolSnaps)
}

fn snapshots(base: Scenario, kind: GuestKind) -> Scenario {
    let mut plan = each(2.0, 3.5, 8, |i, at| {
        let death = if i % 2 == 0 { KILLED } else { OFF };
        let crash = Kind::CrashOsds { osds: vec![(i % 4) as i32], death, down: s(2) };
        vec![Fault::at(at, crash).when([Trigger::AtOnce, Trigger::Submit, Trigger::NewMap][i % 3])]
    });
    plan.extend(each(7.0, 9.0, 3, |_, at| vec![Fault::at(at, Kind::RestartGuest { guest: 0 })]));
    plan.extend(each(6.0, 3.0, 8, |i, at| {
        let kind = Kind::Scrub { deep: i % 2 == 0, repair: false };
        vec![Fault::at(at, kind)]
    }));
    plan.push(command(9.0, pool_set("pg_num", 7)));
    plan.push(Fault::at(15.0, Kind::MarkOut { osd: 3, lasts: s(6) }));
    plan.push(Fault::at(24.0, Kind::CrashAll { death: OFF, down: 20 * MILLISECOND }));
    let guests = |o: &mut Options| (o.osds, o.guests, o.think) = (4, vec![kind; 1], 40 * MILLISECOND);
    base.with_seconds(32).with_options(guests).with_plan(plan)
}

/// The pool shrinks, grows, and shrinks again while OSDs die and move.
fn merges_under_load(base: Scenario) -> Scenario {
    let crash = |osd, death| Kind::CrashOsds { osds: vec![osd], death, down: s(1) };
    let plan = vec![
        command(1.0, pool_set("pg_num", 5)),
        Fault::at(2.0, crash(0, KILLED)),
        Fault::at(5.0, crash(1, OFF)).when(Trigger::NewMap),
        Fault::at(8.0, crash(2, KILLED)).when(Trigger::NewMap),
        Fault::at(11.0, Kind::CrashMgr { down: s(1) }),
        Fault::at(14.0, Kind::CrashAll { death: OFF, down: 20 * MILLISECOND }).when(Trigger::NewMap),
        command(24.0, pool_set("pg_num", 12)),
        command(26.0, pool_set("pgp_num", 12)),
        Fault::at(29.0, Kind::MarkOut { osd: 3, lasts: s(5) }),
        command(32.0, pool_set("pg_num", 2)),
        Fault::at(36.0, crash(3, OFF)).when(Trigger::NewMap),
        Fault::at(42.0, crash(1, KILLED)).when(Trigger::NewMap),
    ];
    base.with_seconds(56).with_options(|o| (o.osds, o.pg_num, o.objects) = (4, 12, 18)).with_plan(plan)
}

/// What has to move waits while the OSDs it would go to are too full for it, and goes on when they are not: PGs wait at the note.
fn backfill_to_a_nearly_full_osd(base: Scenario) -> Scenario {
    let ratio = |r: f64| format!(r#"{{"prefix":"osd set-backfillfull-ratio","ratio":{r}}}"#);
    let out = r#"{"prefix":"osd out","ids":["0"]}"#.to_owned();
    let plan = vec![
        command(2.0, ratio(0.001)),
        command(6.0, out),
        note(12.0),
        Fault::at(13.0, Kind::CrashOsds { osds: vec![2], death: KILLED, down: s(1) }),
        command(18.0, ratio(0.9)),
    ];
    let options = |o: &mut Options| (o.osds, o.pg_num, o.objects, o.log_entries) = (4, 8, 24, 5);
    base.with_seconds(30).with_options(options).with_plan(plan)
}

/// Holders die, and fall silent with writes under way that arrive when another one has the lock.
fn lock_holder_dies(base: Scenario) -> Scenario {
    let mut plan = each(4.0, 6.0, 8, |i, at| vec![Fault::at(at, Kind::RestartGuest { guest: i % 3 })]);
    plan.extend(each(9.0, 14.0, 3, |i, at| {
        let crash = Kind::CrashOsds { osds: vec![(i % 3) as i32], death: KILLED, down: s(1) };
        vec![Fault::at(at, crash).when(Trigger::Submit)]
    }));
    let guests = |o: &mut Options| (o.guests, o.clients) = (vec![GuestKind::Locker; 3], 1);
    base.with_seconds(55).with_options(guests).with_plan(plan)
}

fn watching() -> Vec<GuestKind> {
    vec![GuestKind::Watcher, GuestKind::Watcher, GuestKind::Watcher, GuestKind::Notifier]
}

/// Nothing else goes wrong: the watches of those that die end in their time.
fn watcher_dies(base: Scenario) -> Scenario {
    let plan = each(5.0, 11.0, 4, |i, at| vec![Fault::at(at, Kind::RestartGuest { guest: i % 3 })]);
    let guests = |o: &mut Options| (o.guests, o.only_guests_die, o.clients) = (watching(), true, 1);
    base.with_seconds(60).with_options(guests).with_plan(plan)
}

fn watchers_through_failures(base: Scenario) -> Scenario {
    let plan = each(3.0, 5.0, 8, |i, at| {
        let fault = match i % 4 {
            0 => Kind::CrashOsds { osds: vec![(i / 4 % 3) as i32], death: KILLED, down: s(2) },
            1 => Kind::CutAll { node: Node::Guest(i / 4) },
            2 => Kind::CrashAll { death: OFF, down: 20 * MILLISECOND },
            _ => Kind::Partition { osd: (i / 4) as i32, from: From::Clients, both_ways: true, lasts: s(4) },
        };
        vec![Fault::at(at, fault)]
    });
    base.with_seconds(45).with_options(|o| (o.guests, o.clients) = (watching(), 1)).with_plan(plan)
}

fn osd_option(name: &str, value: &str) -> String {
    format!(r#"{{"prefix":"config set","who":"osd","name":"{name}","value":"{value}"}}"#)
}

/// Who leads where it is whole: all PGs, in the end.
fn prefer(osd: i32, osds: i32) -> Vec<Fault> {
    let others = (0..osds).filter(|o| *o != osd);
    let text = |o| format!(r#"{{"prefix":"osd primary-affinity","id":{o},"weight":0.0}}"#);
    others.map(|o| command(0.5, text(o))).collect()
}

fn block(seconds: f64, links: Vec<(Node, Node)>, lasts: Time) -> Fault {
    Fault::at(seconds, Kind::Block { links, lasts })
}

/// PGs are much larger than a range of a backfill: they move while clients write, and one of the two that
/// have them dies.
fn objects_move_one_by_one(base: Scenario) -> Scenario {
    let mut plan = vec![command(0.5, osd_option("osd_recovery_sleep", "0.06"))];
    plan.extend(each(2.0, 6.0, 4, |i, at| {
        let (out, dies) = (i as i32 % 4, (i as i32 + 1) % 4);
        let crash = Kind::CrashOsds { osds: vec![dies], death: KILLED, down: s(1) };
        vec![Fault::at(at, Kind::MarkOut { osd: out, lasts: s(4) }), Fault::at(at + 0.4, crash)]
    }));
    let options = |o: &mut Options| {
        (o.osds, o.size, o.min_size, o.pg_num) = (4, 2, 1, 4);
        (o.objects, o.backfill_scan, o.log_entries) = (60, 1, 5);
        (o.clients, o.depth) = (3, 3);
    };
    base.with_seconds(27).with_options(options).with_plan(plan)
}

/// The same while each range takes much longer to copy than the time between two writes.
fn writes_while_ranges_are_copied(base: Scenario) -> Scenario {
    let slower = |o: &mut Options| {
        (o.flush, o.latency, o.backfill_scan) = (10 * MILLISECOND, MILLISECOND, 4);
    };
    objects_move_one_by_one(base).with_options(slower)
}

/// Each OSD is away for longer than logs reach back, and is filled again object by object while clients write
/// and delete.
fn members_return_behind_the_log(base: Scenario) -> Scenario {
    let mut plan = vec![command(0.5, osd_option("osd_recovery_sleep", "0.03"))];
    plan.extend(each(2.0, 6.0, 4, |i, at| {
        let osd = Node::Osd(i as i32 % 3);
        vec![kill(at, osd), start(at + 2.0, osd)]
    }));
    let options = |o: &mut Options| {
        (o.pg_num, o.objects, o.backfill_scan, o.log_entries) = (2, 60, 1, 2);
        (o.clients, o.depth) = (3, 3);
    };
    base.with_seconds(27).with_options(options).with_plan(plan)
}

/// Two of three die, and the third one when it was alone for a while: what it had answered then the others
/// would not know.
fn one_member_stays_alone(base: Scenario) -> Scenario {
    let plan = each(2.0, 11.0, 2, |i, at| {
        let [alone, a, b] = [0, 1, 2].map(|o| Node::Osd((o + i as i32) % 3));
        vec![
            kill(at, a),
            kill(at, b),
            kill(at + 4.0, alone),
            start(at + 4.5, a),
            start(at + 4.5, b),
            start(at + 8.0, alone),
        ]
    });
    base.with_seconds(24).with_plan(plan)
}

/// A primary reaches no member any more, and dies with what it has written alone, and so do those who asked
/// for that.
fn writes_that_only_a_primary_has(base: Scenario) -> Scenario {
    let leader = Node::Osd(0);
    let mut plan = prefer(0, 3);
    plan.extend(each(2.0, 5.0, 4, |_, at| {
        let links = [1, 2].map(|o| (leader, Node::Osd(o))).to_vec();
        let mut faults = vec![block(at, links, s(1)), kill(at + 0.9, leader), start(at + 3.0, leader)];
        faults.extend((0..3).map(|client| Fault::at(at + 0.9, Kind::RestartClient { client })));
        faults
    }));
    let options = |o: &mut Options| {
        (o.objects, o.clients, o.depth, o.think) = (200, 3, 6, 400 * MILLISECOND);
    };
    base.with_seconds(22).with_options(options).with_plan(plan)
}

/// Of two members one has writes that its slow device has not made durable. The primary dies, the other
/// member leads and hears of them, and then the power of the first one fails.
fn writes_that_were_told_and_lost(base: Scenario) -> Scenario {
    let [leader, next, slow] = [0, 1, 2].map(Node::Osd);
    let mut plan = prefer(0, 3);
    plan.extend(each(2.0, 9.0, 3, |_, at| {
        let lame = |osd| Fault::at(at, Kind::SlowDevice { osd, factor: 1_000, lasts: s(3) });
        let down =
            |osd: i32, after| command(at + after, format!(r#"{{"prefix":"osd down","ids":["{osd}"]}}"#));
        vec![
            lame(0),
            lame(2),
            block(at + 0.1, vec![(leader, next)], s(2)),
            Fault::at(at + 0.6, Kind::Kill { node: leader, death: OFF }),
            down(0, 0.6),
            Fault::at(at + 0.9, Kind::Kill { node: slow, death: OFF }),
            start(at + 2.5, slow),
            start(at + 4.0, leader),
        ]
    }));
    base.with_seconds(29).with_options(|o| (o.clients, o.objects) = (3, 12)).with_plan(plan)
}

/// A member that returns lacks objects when the whole one that leads loses its disk: the OSD that stood in
/// for it still has them.
fn a_disk_is_lost_before_all_are_whole(base: Scenario) -> Scenario {
    let [lost, away] = [0, 1].map(Node::Osd);
    let mut plan = prefer(0, 3);
    plan.extend([
        command(0.5, osd_option("osd_recovery_sleep", "0.3")),
        kill(2.0, away),
        start(16.0, away),
        kill(17.5, lost),
    ]);
    plan.extend(another_disk(17.5, 0, 0xc8));
    let options = |o: &mut Options| {
        (o.size, o.min_size, o.pg_num, o.objects) = (2, 1, 8, 60);
        (o.down_out_s, o.log_entries) = (2, 2_000);
    };
    base.with_seconds(30).with_options(options).with_plan(plan)
}

/// A dead OSD is destroyed, and started with an empty disk under its number.
fn another_disk(seconds: f64, osd: i32, uuid: u8) -> Vec<Fault> {
    let b = format!("{uuid:02x}");
    let text = [4, 2, 2, 2, 6].map(|n| b.repeat(n)).join("-");
    vec![
        command(seconds + 0.1, format!(r#"{{"prefix":"osd down","ids":["{osd}"]}}"#)),
        command(
            seconds + 0.6,
            format!(r#"{{"prefix":"osd destroy-actual","id":"{osd}","yes_i_really_mean_it":true}}"#),
        ),
        command(seconds + 1.0, format!(r#"{{"prefix":"osd new","uuid":"{text}","id":"{osd}"}}"#)),
        Fault::at(seconds + 1.5, Kind::NewDisk { osd, uuid }),
        start(seconds + 2.0, Node::Osd(osd)),
    ]
}

/// A primary is alone with a client when the monitors have marked it down, and the member that let it answer
/// restarts just then.
fn a_member_restarts_within_its_lease(base: Scenario) -> Scenario {
    let mut scenario = supported_primary(base, 1);
    let crash = Kind::CrashOsds { osds: vec![1], death: KILLED, down: 100 * MILLISECOND };
    scenario.plan.get_or_insert_default().push(Fault::at(8.0, crash).when(Trigger::NewMap));
    scenario
}
