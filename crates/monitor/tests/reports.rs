//! A monitor's session with the manager: its counters.

use crate::common;

use std::time::Duration;

use common::World;
use messages::Message;
use messages::mgr::{MMgrConfigure, MMgrReport};
use monitor::{Input, Output};
use serde_json::{Value, json};

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
        "election_lose",
        "election_win",
        "log_index",
        "num_elections",
        "num_sessions",
        "session_add",
        "session_rm",
    ];
    assert_eq!(paths, mon.map(|name| format!("mon.{name}")));
    assert_eq!(first[0].packed.len(), 6 + 8 * mon.len());
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
