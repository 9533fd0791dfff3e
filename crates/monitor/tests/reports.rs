//! A monitor's session with the manager: its counters.

use crate::common;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use codec::Encode;
use common::World;
use messages::Message;
use messages::mgr::{MMgrConfigure, MMgrReport, MMonMgrReport};
use messages::pg_state::{ACTIVE, CLEAN, PEERING};
use messages::stats::StoreStatfs;
use monitor::{Input, Output};
use serde_json::{Value, json};

use crate::managers::{beacon, digest, report};

fn told(w: &mut World) -> Vec<Message> {
    let mut out = Vec::new();
    for o in w.take() {
        match o {
            Output::SendManager { msg, .. } => out.push(msg),
            other => w.out.push(other),
        }
    }
    out
}

fn reports(w: &mut World) -> Vec<MMgrReport> {
    let reports =
        told(w).into_iter().filter_map(|m| if let Message::MgrReport(r) = m { Some(*r) } else { None });
    reports.collect()
}

fn dump(w: &mut World) -> Value {
    let cmd = json!({ "prefix": "perf dump" }).to_string();
    serde_json::from_slice(&w.mon.daemon_command(w.now, &[cmd]).data).expect("JSON")
}

fn tick(w: &mut World, by: Duration) {
    w.now.mono += by;
    w.now.wall = w.now.wall.plus(by);
    w.input(Input::Tick);
    w.run();
}

#[test]
fn the_manager_hears_of_a_monitors_counters() {
    let mut w = World::new();
    w.admin();
    // Before the manager asks nothing is said.
    tick(&mut w, Duration::from_secs(60));
    assert_eq!(told(&mut w), []);
    w.input(Input::ManagerConnected);
    let opened = told(&mut w);
    assert!(matches!(&opened[..], [Message::MgrOpen(m)] if m.daemon_name == "a"), "{opened:?}");
    let wish = |period_s| Input::FromManager {
        tid: 0,
        msg: MMgrConfigure { period_s, ..MMgrConfigure::default() }.into(),
    };
    w.input(wish(5));
    let first = reports(&mut w);
    let paths: Vec<&str> = first[0].declare_types.iter().map(|t| t.path.as_str()).collect();
    let mon = [
        "election_call",
        "election_lose",
        "election_win",
        "log_index",
        "num_elections",
        "num_sessions",
        "session_add",
        "session_rm",
        "session_trim",
    ];
    let paxos = ["begin", "commit", "loligo_begin_bytes", "refresh", "start_leader", "start_peon"];
    let all = mon.map(|name| format!("mon.{name}")).into_iter();
    let all: Vec<String> = all.chain(paxos.map(|name| format!("paxos.{name}"))).collect();
    assert_eq!(paths, all);
    assert_eq!(first[0].packed.len(), 6 + 8 * all.len());
    tick(&mut w, Duration::from_secs(4));
    assert_eq!(reports(&mut w), []);
    tick(&mut w, Duration::from_secs(1));
    assert_eq!(reports(&mut w).len(), 1);
    w.input(wish(0));
    tick(&mut w, Duration::from_secs(60));
    assert_eq!(reports(&mut w), []);
    w.input(wish(5));
    w.take();
    w.input(Input::ManagerLost);
    tick(&mut w, Duration::from_secs(60));
    assert_eq!(told(&mut w), [], "there is no session");
}

#[test]
fn what_happens_moves_the_counters() {
    let mut w = World::new();
    let conn = w.admin();
    let open = dump(&mut w);
    assert_eq!((&open["mon"]["num_sessions"], &open["mon"]["session_add"]), (&json!(1), &json!(1)));
    w.input(Input::Disconnected { conn });
    let closed = dump(&mut w);
    assert_eq!((&closed["mon"]["num_sessions"], &closed["mon"]["session_rm"]), (&json!(0), &json!(1)));
    assert!(closed["mon"]["log_index"].as_u64().expect("a number") > 0);
    let mut view = w.mon.quorum().clone();
    let mut elect = |w: &mut World, leader| {
        (view.term, view.leader) = (view.term + 1, leader);
        w.input(Input::Quorum(view.clone()));
        let mon = dump(w)["mon"].clone();
        ["num_elections", "election_win", "election_lose"].map(|name| mon[name].as_u64().expect("a number"))
    };
    assert_eq!(elect(&mut w, None), [0, 0, 0]);
    assert_eq!(elect(&mut w, Some(1)), [1, 0, 1]);
    assert_eq!(elect(&mut w, Some(0)), [2, 1, 1]);
    let reset = w.mon.daemon_command(w.now, &[json!({ "prefix": "perf reset", "var": "all" }).to_string()]);
    assert_eq!(reset.code, 0);
    let mon = dump(&mut w)["mon"].clone();
    assert_eq!((&mon["num_elections"], &mon["session_add"]), (&json!(0), &json!(0)));
}

/// Each counter's value, by its name in reports.
fn values(w: &mut World) -> BTreeMap<String, u64> {
    let all = dump(w);
    let loggers = all.as_object().expect("loggers").iter();
    let named = loggers.flat_map(|(logger, counters)| {
        let counters = counters.as_object().expect("counters").iter();
        counters.map(move |(name, value)| (format!("{logger}.{name}"), value.as_u64().expect("a number")))
    });
    named.collect()
}

/// PGs in several states, objects in all that objects can be in, space in use.
fn rich_report() -> MMonMgrReport {
    let mut d = digest(8);
    let states = [(ACTIVE | CLEAN, 5), (ACTIVE, 2), (PEERING, 1)];
    d.num_pg_by_state = states.map(|(state, n)| (state, n)).into();
    d.osd_sum.statfs = StoreStatfs { total: 1_000 << 20, available: 900 << 20, ..StoreStatfs::default() };
    let sum = &mut d.pools.get_mut(&1).expect("the pool").stats.sum;
    (sum.num_objects_degraded, sum.num_objects_misplaced, sum.num_objects_unfound) = (3, 2, 1);
    MMonMgrReport { digest: d.to_bytes(), ..report(1, &d) }
}

#[test]
fn a_workload_moves_every_counter() {
    let mut w = World::new();
    let begin = values(&mut w);
    let mut moved = BTreeSet::new();
    let gather = |w: &mut World, moved: &mut BTreeSet<String>| {
        let now = values(w);
        assert!(now.keys().eq(begin.keys()), "the same counters at all times");
        moved.extend(now.into_iter().filter(|(name, n)| begin[name] != *n).map(|(name, _)| name));
    };
    // A cluster with an OSD, a pool and a manager.
    let admin = w.admin();
    common::boot_osd(&mut w, 0);
    w.command(admin, r#"{"prefix":"osd pool create","pool":"p","pg_num":8}"#);
    let mgr = w.manager("z", 1);
    w.send(mgr, beacon("z", 1, false));
    w.send(mgr, rich_report());
    gather(&mut w, &mut moved);
    // What is refused of managers, and who is none.
    w.send(mgr, beacon("y", 1, false));
    w.send(admin, beacon("z", 9, false));
    // More monitors, of which others lead, or this one; a client that leaves.
    w.command(admin, r#"{"prefix":"mon add","name":"b","addr":"127.0.0.1:3301"}"#);
    w.input(Input::Disconnected { conn: mgr });
    gather(&mut w, &mut moved);
    let mut view = w.mon.quorum().clone();
    (view.monitors, view.members) = (2, vec![0, 1]);
    for leader in [1, 0] {
        (view.term, view.leader, view.calls) = (view.term + 1, Some(leader), view.calls + 1);
        w.input(Input::Quorum(view.clone()));
        gather(&mut w, &mut moved);
    }
    // Nobody leads for too long: clients find another monitor.
    (view.term, view.leader) = (view.term + 1, None);
    w.input(Input::Quorum(view));
    (0..20).for_each(|_| tick(&mut w, Duration::from_secs(5)));
    gather(&mut w, &mut moved);
    let still: Vec<&String> = begin.keys().filter(|name| !moved.contains(*name)).collect();
    assert!(still.is_empty(), "nothing moves {still:?}");
    assert!(begin.len() > 25, "both loggers: {begin:?}");
}

/// Name, type, kind of the metric and of its value, unit, priority and heading of each counter of ceph-mon
/// 16.2.15.
const OF_CEPH: &str = include_str!("data/mon_perf_schema.tsv");

#[test]
fn counters_of_cephs_names_are_described_as_cephs() {
    let mut w = World::new();
    let cmd = json!({ "prefix": "perf schema" }).to_string();
    let ours: Value = serde_json::from_slice(&w.mon.daemon_command(w.now, &[cmd]).data).expect("JSON");
    let mut both = 0;
    for line in OF_CEPH.lines() {
        let (path, theirs) = line.split_once('\t').expect("columns");
        let (logger, name) = path.split_once('.').expect("a path");
        let Some(c) = ours[logger].get(name) else { continue };
        let fields = ["type", "metric_type", "value_type", "units", "priority", "nick"];
        let text = |field: &str| c[field].as_str().map_or_else(|| c[field].to_string(), str::to_owned);
        assert_eq!(fields.map(text).join("\t"), theirs, "{path}");
        both += 1;
    }
    assert!(both >= 25, "{both} in both");
}
