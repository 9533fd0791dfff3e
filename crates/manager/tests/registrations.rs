//! Daemons and services that register: nobody under another one's name, and no key without a bound.

mod common;

use std::collections::BTreeMap;

use common::{World, osd_conn, peer};
use manager::Input;
use messages::mgr::{MMgrOpen, ServiceInfo};
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
