//! Daemons and services that register: nobody under another one's name, and no key without a bound.

mod common;

use std::collections::BTreeMap;

use codec::Decode;
use common::{World, osd_conn, peer};
use manager::{Input, Output};
use messages::Message;
use messages::mgr::{MMgrOpen, ServiceInfo};
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
    w.input(Input::Disconnected { conn: b });
    assert_eq!(registered(&mut w, "rgw"), 16, "the entry of another key stays its own");
    // Its own key takes it over before the old session is known to be gone.
    open(&mut w, again, "rgw", "a0", "");
    w.input(Input::Disconnected { conn: a });
    assert_eq!(registered(&mut w, "rgw"), 1);
    w.input(Input::Disconnected { conn: again });
    assert_eq!(registered(&mut w, "rgw"), 0);
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

    // Too much for the monitors: what they say of themselves is left out.
    let text = "x".repeat(60_000);
    for i in 0..40 {
        let conn = ConnId(40 + i);
        w.input(Input::Connected { conn, peer: peer(EntityType::Client, 80 + i as i64, "allow r") });
        open(&mut w, conn, "nfs", &i.to_string(), &text);
    }
    let map = told(&mut w).pop().expect("news");
    let nfs = &map.services["nfs"].daemons;
    assert!(nfs.len() == 40 && nfs.values().all(|d| d.metadata.is_empty()));
    (0..40).for_each(|i| w.input(Input::Disconnected { conn: ConnId(40 + i) }));
    let map = told(&mut w).pop().expect("news");
    assert_eq!(map.services.keys().collect::<Vec<_>>(), ["rgw"]);
}
