//! Daemons and services that register: nobody under another one's name, and no key without a bound.

mod common;

use std::collections::BTreeMap;

use codec::{Decode, Encode};
use common::{World, osd_conn, peer};
use manager::{Input, Output};
use messages::Message;
use messages::mgr::{MMgrOpen, MMgrReport, ServiceInfo};
use messages::payload::RestOfFront;
use monitor::state::PgDigest;
use serde_json::Value;
use types::{ConnId, EntityType};

fn open(w: &mut World, conn: ConnId, service: &str, daemon: &str, text: &str) {
    let about = [("about".to_owned(), text.to_owned())].into();
    let service_info = ServiceInfo { metadata: about, status: BTreeMap::new() };
    let open = MMgrOpen {
        daemon_name: daemon.to_owned(),
        service_name: service.to_owned(),
        service: Some(service_info),
        ..MMgrOpen::default()
    };
    w.message(conn, open);
}

fn registered(w: &mut World, service: &str) -> usize {
    let json = w.command(r#"{"prefix":"service dump","format":"json"}"#).expect("an answer").output;
    let map: Value = serde_json::from_slice(&json).expect("JSON");
    let daemons = map["services"][service]["daemons"].as_object();
    daemons.map_or(0, |d| d.keys().filter(|k| *k != "summary").count())
}

#[test]
fn nobody_registers_as_somebody_else() {
    let mut w = World::recorded();
    let status = |w: &mut World, who: &str| {
        w.command(&format!(r#"{{"prefix":"config show","who":"{who}"}}"#)).expect("an answer").result
    };
    let client = ConnId(30);
    w.input(Input::Connected { conn: client, peer: peer(EntityType::Client, 77, "allow r") });
    open(&mut w, client, "osd", "0", "");
    open(&mut w, client, "mds", "a", "");
    open(&mut w, osd_conn(1), "", "0", "");
    assert!(status(&mut w, "osd.0") != 0 && status(&mut w, "mds.a") != 0);
    open(&mut w, osd_conn(0), "", "0", "");
    assert_eq!(status(&mut w, "osd.0"), 0);
    // It cannot be locked out either.
    open(&mut w, client, "osd", "0", "");
    w.input(Input::Disconnected { conn: client });
    assert_eq!(status(&mut w, "osd.0"), 0);
}

fn counted(w: &mut World, what: &str) -> u64 {
    let cmd = format!(r#"{{"prefix":"perf dump","logger":"mgr","counter":"{what}"}}"#);
    let reply = w.manager.daemon_command(&[cmd]);
    let told: serde_json::Value = serde_json::from_slice(&reply.data).expect("JSON");
    told["mgr"][what].as_u64().expect("a number")
}

fn sessions_refused(w: &mut World) -> u64 {
    counted(w, "sessions_refused")
}

#[test]
fn tickets_in_a_form_that_is_not_taken_are_counted() {
    let mut w = World::recorded();
    assert_eq!(counted(&mut w, "tickets_refused"), 0);
    for count in [1, 2] {
        w.input(Input::OldTickets { count });
    }
    assert_eq!(counted(&mut w, "tickets_refused"), 3);
}

#[test]
fn services_have_a_share_for_each_key_and_a_size() {
    let mut w = World::recorded();
    let (a, b, again) = (ConnId(30), ConnId(31), ConnId(32));
    for (conn, num) in [(a, 77), (b, 78), (again, 77)] {
        w.input(Input::Connected { conn, peer: peer(EntityType::Client, num, "allow r") });
    }
    for i in 0..30 {
        open(&mut w, a, "rgw", &format!("a{i}"), "");
    }
    assert_eq!(registered(&mut w, "rgw"), 16);
    open(&mut w, b, "rgw", "b", "");
    assert_eq!(registered(&mut w, "rgw"), 17, "another key has its own share");
    open(&mut w, b, "rgw", "a0", "");
    open(&mut w, b, "rgw", &"n".repeat(300), "");
    open(&mut w, b, &"s".repeat(100), "x", "");
    open(&mut w, b, "rgw", "large", &"x".repeat(70_000));
    assert_eq!(registered(&mut w, "rgw"), 17);
    let said = w.out.iter().filter(|o| matches!(o, Output::Warn(text) if text.contains("was refused")));
    assert_eq!((said.count(), sessions_refused(&mut w)), (2, 18), "counted, and said once of a connection");
    w.input(Input::Disconnected { conn: b });
    assert_eq!(registered(&mut w, "rgw"), 16, "the entry of another key stays its own");
    // Its own key takes it over before the old session is known to be gone.
    open(&mut w, again, "rgw", "a0", "");
    w.input(Input::Disconnected { conn: a });
    assert_eq!(registered(&mut w, "rgw"), 1);
    w.input(Input::Disconnected { conn: again });
    assert_eq!(registered(&mut w, "rgw"), 0);
}

/// Monitors have all options of a daemon in an answer to anybody; what a key's services say of theirs is bounded.
#[test]
fn options_of_services_have_a_share_for_each_key() {
    let mut w = World::recorded();
    let conns = [(ConnId(30), 77), (ConnId(31), 78)];
    for (conn, num) in conns {
        w.input(Input::Connected { conn, peer: peer(EntityType::Client, num, "allow r") });
    }
    let values: BTreeMap<String, BTreeMap<i32, String>> =
        [("debug_ms".to_owned(), BTreeMap::from([(2, "x".repeat(300 << 10))]))].into();
    let config = [values.to_bytes(), BTreeMap::<String, String>::new().to_bytes()].concat();
    let shown = |w: &mut World, conn, daemon: &str| {
        let open = MMgrOpen {
            daemon_name: daemon.to_owned(),
            service_name: "rgw".to_owned(),
            config: config.clone().into(),
            service: Some(ServiceInfo::default()),
            ..MMgrOpen::default()
        };
        w.message(conn, open);
        let command = format!(r#"{{"prefix":"config show","who":"rgw.{daemon}"}}"#);
        w.command(&command).expect("an answer").output.len() > 300 << 10
    };
    assert!(shown(&mut w, conns[0].0, "a"));
    assert!(!shown(&mut w, conns[0].0, "b"), "600 KiB of one key");
    assert!(shown(&mut w, conns[0].0, "a"), "the same once more");
    assert!(shown(&mut w, conns[1].0, "c"), "another key has its own share");
}

#[test]
fn the_monitors_are_told_of_services_when_they_are_news() {
    let mut w = World::recorded();
    let told = |w: &mut World| {
        w.advance(std::time::Duration::from_secs(3));
        let digests = w.sent().into_iter().filter_map(|o| match o {
            Output::SendMon { msg: Message::PgDigest(m), .. } => PgDigest::from_bytes(m.summary).ok(),
            _ => None,
        });
        digests.filter_map(|d| d.services).collect::<Vec<_>>()
    };
    assert_eq!(told(&mut w), [], "there are none, and that was said");
    let conn = ConnId(30);
    w.input(Input::Connected { conn, peer: peer(EntityType::Client, 77, "allow r") });
    open(&mut w, conn, "rgw", "a", "");
    let map = told(&mut w).pop().expect("news");
    assert_eq!(map.services["rgw"].daemons["a"].gid, 77);
    w.input(Input::MonConnected { gid: 4_100 });
    assert_eq!(told(&mut w).len(), 1, "a new leader is told everything again");

    // Too much for the monitors: of some of them what they say of themselves is left out.
    let text = "x".repeat(60_000);
    for i in 0..40 {
        let conn = ConnId(40 + i);
        w.input(Input::Connected { conn, peer: peer(EntityType::Client, 80 + i as i64, "allow r") });
        open(&mut w, conn, "nfs", &i.to_string(), &text);
    }
    let map = told(&mut w).pop().expect("news");
    let nfs = &map.services["nfs"].daemons;
    let telling = nfs.values().filter(|d| !d.metadata.is_empty()).count();
    assert!(nfs.len() == 40 && (10..20).contains(&telling), "{telling} of them fit");
    (0..40).for_each(|i| w.input(Input::Disconnected { conn: ConnId(40 + i) }));
    let map = told(&mut w).pop().expect("news");
    assert_eq!(map.services.keys().collect::<Vec<_>>(), ["rgw"]);
}

/// The last map of services that the monitors were told of, and the warnings that came with it.
fn told_and_said(w: &mut World) -> (Option<maps::ServiceMap>, Vec<String>) {
    w.advance(std::time::Duration::from_secs(3));
    let (mut map, mut said) = (None, Vec::new());
    for out in w.sent() {
        match out {
            Output::SendMon { msg: Message::PgDigest(m), .. } => {
                map = PgDigest::from_bytes(m.summary).ok().and_then(|d| d.services).or(map);
            }
            Output::Warn(text) => said.push(text),
            _ => {}
        }
    }
    (map, said)
}

fn told(w: &mut World) -> Option<maps::ServiceMap> {
    told_and_said(w).0
}

fn connect(w: &mut World, num: u64) -> ConnId {
    let conn = ConnId(1_000 + num);
    w.input(Input::Connected { conn, peer: peer(EntityType::Client, num as i64, "allow r") });
    conn
}

fn busy(w: &mut World, conn: ConnId, daemon: &str, bytes: usize) {
    let tasks: BTreeMap<String, String> = [("task".to_owned(), "t".repeat(bytes))].into();
    // No answers to queries stand before it.
    let mut rest = codec::Writer::new();
    rest.u32(0);
    Some(tasks).encode(&mut rest);
    w.message(
        conn,
        MMgrReport {
            service_name: "rgw".to_owned(),
            daemon_name: daemon.to_owned(),
            packed: no_counters(),
            rest: RestOfFront(rest.into_bytes()),
            ..MMgrReport::default()
        },
    );
}

fn no_counters() -> bytes::Bytes {
    let mut w = codec::Writer::new();
    w.envelope(1, 1, |_| {});
    w.into_bytes()
}

#[test]
fn loud_services_keep_no_others_from_being_told_of() {
    let mut w = World::recorded();
    let quiet = connect(&mut w, 1);
    open(&mut w, quiet, "rgw", "quiet", "about");
    busy(&mut w, quiet, "quiet", 100);
    for num in 10..30 {
        let conn = connect(&mut w, num);
        for i in 0..16 {
            open(&mut w, conn, "rgw", &format!("{num}.{i}"), &"x".repeat(6_000));
            busy(&mut w, conn, &format!("{num}.{i}"), 4_000);
        }
    }
    let (map, said) = told_and_said(&mut w);
    let map = map.expect("news");
    let rgw = &map.services["rgw"].daemons;
    assert_eq!(rgw.len(), 1 + 20 * 16);
    assert_eq!(rgw["quiet"].metadata["about"], "about");
    assert_eq!(rgw["quiet"].task_status["task"].len(), 100);
    let bare = rgw.values().filter(|d| d.metadata.is_empty()).count();
    assert!(bare > 0 && map.to_bytes().len() <= 1 << 20);
    assert_eq!(counted(&mut w, "services_cut"), bare as u64);
    // It goes on, and that is no news.
    busy(&mut w, quiet, "quiet", 90);
    let (map, again) = told_and_said(&mut w);
    assert!(map.is_some() && again.is_empty() && said.len() == 1, "{said:?} {again:?}");
    assert!(said[0].ends_with(&format!("not told of 0 of them, nor what {bare} others say of themselves")));
}

#[test]
fn entries_that_are_too_many_are_left_out_key_by_key() {
    let mut w = World::recorded();
    let quiet = connect(&mut w, 1);
    open(&mut w, quiet, "rgw", "quiet", "about");
    for num in 10..210 {
        let conn = connect(&mut w, num);
        for i in 0..16 {
            let name = format!("{num}.{i}");
            open(&mut w, conn, "rgw", &(name.clone() + &"n".repeat(256 - name.len())), "");
        }
    }
    let map = told(&mut w).expect("news");
    let rgw = &map.services["rgw"].daemons;
    assert!(rgw.contains_key("quiet") && rgw.len() > 2_000 && map.to_bytes().len() <= 1 << 20);
    assert_eq!(rgw.len() % 16, 1, "all of a key or none");
    assert_eq!(
        counted(&mut w, "services_cut"),
        200 * 16 + 1,
        "those that are told of say nothing of themselves"
    );
}

#[test]
fn what_the_services_of_one_key_say_is_bounded() {
    let mut w = World::recorded();
    let conn = connect(&mut w, 1);
    for name in ["a", "b", "c"] {
        open(&mut w, conn, "rgw", name, &"x".repeat(60_000));
    }
    assert_eq!(registered(&mut w, "rgw"), 2);
    // The same service anew is not counted twice.
    open(&mut w, conn, "rgw", "a", &"x".repeat(60_000));
    open(&mut w, conn, "rgw", "c", &"x".repeat(5_000));
    assert_eq!(registered(&mut w, "rgw"), 3);
    for (bytes, taken) in [(4_000, 4_000), (5_000, 4_000), (10, 10)] {
        busy(&mut w, conn, "a", bytes);
        let map = w.command(r#"{"prefix":"service dump","format":"json"}"#).expect("an answer").output;
        let map: Value = serde_json::from_slice(&map).expect("JSON");
        let task = &map["services"]["rgw"]["daemons"]["a"]["task_status"]["task"];
        assert_eq!(task.as_str().map(str::len), Some(taken));
    }
}

#[test]
fn names_are_text_and_clients_that_are_no_service_have_none() {
    let mut w = World::recorded();
    let conn = connect(&mut w, 1);
    for (service, daemon) in
        [("rgw", "x\ny"), ("rgw", "\u{1b}[2J"), ("r\tgw", "x"), ("", "1"), ("client", "1")]
    {
        open(&mut w, conn, service, daemon, "");
    }
    assert_eq!(registered(&mut w, "rgw") + registered(&mut w, "r\tgw"), 0);
    let who = w.command(r#"{"prefix":"config show","who":"client.1"}"#).expect("an answer");
    assert!(who.result != 0, "nothing is kept of a client");
}
