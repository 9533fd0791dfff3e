//! Counters that daemons report: they are kept as they come, and what is out of order or out of bounds is
//! refused.

mod common;

use bytes::Bytes;
use codec::Writer;
use common::{World, osd_conn, peer};
use manager::{Input, Output};
use messages::mgr::{MMgrClose, MMgrConfigure, MMgrOpen, MMgrReport, PerfCounterType, ServiceInfo};
use messages::mon::MConfig;
use serde_json::{Value, json};
use types::{ConnId, EntityType};

const TIME_AVERAGE: u8 = 5;
const TOTAL: u8 = 10;

fn declared(path: &str, kind: u8) -> PerfCounterType {
    PerfCounterType { path: path.to_owned(), kind, priority: 5, unit: 1, ..PerfCounterType::default() }
}

fn packed(values: &[u64]) -> Bytes {
    let mut w = Writer::new();
    w.envelope(1, 1, |w| values.iter().for_each(|v| w.u64(*v)));
    w.into_bytes()
}

fn report(osd: i32, declare_types: Vec<PerfCounterType>, values: &[u64]) -> MMgrReport {
    MMgrReport {
        daemon_name: osd.to_string(),
        declare_types,
        packed: packed(values),
        ..MMgrReport::default()
    }
}

/// OSD 0's session stands.
fn world() -> World {
    let mut w = World::recorded();
    open(&mut w, 0);
    w
}

fn open(w: &mut World, osd: i32) {
    w.message(osd_conn(osd), MMgrOpen { daemon_name: osd.to_string(), ..MMgrOpen::default() });
    w.out.clear();
}

fn tell(w: &mut World, cmd: Value) -> (i32, Value) {
    let reply = w.manager.daemon_command(&[cmd.to_string()]);
    (reply.code, serde_json::from_slice(&reply.data).unwrap_or(Value::Null))
}

fn counters(w: &mut World, who: &str) -> Value {
    let (code, told) = tell(w, json!({ "prefix": "counters dump", "who": who }));
    assert_eq!(code, 0);
    told
}

fn refused(w: &mut World) -> u64 {
    let told = tell(w, json!({ "prefix": "perf dump", "logger": "mgr", "counter": "reports_refused" })).1;
    told["mgr"]["reports_refused"].as_u64().expect("a number")
}

fn warnings(w: &mut World) -> Vec<String> {
    let said =
        w.sent().into_iter().filter_map(|o| if let Output::Warn(text) = o { Some(text) } else { None });
    said.collect()
}

#[test]
fn the_last_values_of_each_daemon_are_kept() {
    let mut w = world();
    let types =
        vec![declared("osd.op_latency", TIME_AVERAGE), declared("osd.op", TOTAL), declared("a.b.c", 2)];
    // By name, whatever the order in which they were declared.
    w.message(osd_conn(0), report(0, types, &[9, 7, 3_500_000_000, 2, 2]));
    let lat = json!({ "avgcount": 2, "sum": 3.5, "avgtime": 1.75 });
    assert_eq!(
        counters(&mut w, "osd.0"),
        json!({ "a.b": { "c": 9 }, "osd": { "op": 7, "op_latency": lat } })
    );
    w.message(osd_conn(0), report(0, vec![], &[1, 8, 0, 0, 0]));
    assert_eq!(counters(&mut w, "osd.0")["osd"]["op"], 8);
    let gone = MMgrReport { undeclare_types: vec!["a.b.c".to_owned()], ..report(0, vec![], &[9, 0, 0, 0]) };
    w.message(osd_conn(0), gone);
    assert_eq!(counters(&mut w, "osd.0")["osd"]["op"], 9);
    assert_eq!(counters(&mut w, "osd.0").get("a.b"), None);
    assert_eq!(tell(&mut w, json!({ "prefix": "counters dump" })), (0, json!({ "osd.0": 2 })));
    assert_eq!(tell(&mut w, json!({ "prefix": "counters dump", "who": "osd.1" })).0, -2);
    // Another session declares anew.
    open(&mut w, 0);
    assert_eq!(counters(&mut w, "osd.0"), json!({}));
    assert_eq!((refused(&mut w), warnings(&mut w)), (0, vec![]));
}

/// One report that is refused, three times: it changes no value and is logged once.
fn check(bad: &dyn Fn() -> MMgrReport, why: &str, goes_on: bool) {
    let mut w = world();
    w.message(osd_conn(0), report(0, vec![declared("osd.op", TOTAL)], &[7]));
    for _ in 0..3 {
        w.message(osd_conn(0), bad());
    }
    let said = warnings(&mut w);
    assert!(said.len() == 1 && said[0].contains(why) && said[0].contains("osd.0"), "{said:?}");
    let kept = if goes_on { json!({ "osd": { "op": 7 } }) } else { json!({}) };
    assert_eq!(counters(&mut w, "osd.0"), kept, "{why}");
    assert_eq!(refused(&mut w), if goes_on { 3 } else { 1 }, "{why}");
    // What is in order counts again: at once, or where the values cannot be told apart, from the next session
    // on.
    w.message(osd_conn(0), report(0, vec![], &[8]));
    assert_eq!(counters(&mut w, "osd.0") == json!({ "osd": { "op": 8 } }), goes_on, "{why}");
    open(&mut w, 0);
    w.message(osd_conn(0), report(0, vec![declared("osd.op", TOTAL)], &[9]));
    assert_eq!(counters(&mut w, "osd.0"), json!({ "osd": { "op": 9 } }), "{why}");
}

#[test]
fn values_that_are_not_those_of_what_was_declared_are_refused() {
    let values = "the values are not those";
    check(&|| report(0, vec![], &[]), values, true);
    check(&|| report(0, vec![], &[1, 2]), values, true);
    check(&|| MMgrReport { packed: Bytes::new(), ..report(0, vec![], &[]) }, values, true);
    check(
        &|| MMgrReport {
            packed: Bytes::from_static(&[1, 1, 255, 255, 255, 255, 0]),
            ..report(0, vec![], &[])
        },
        values,
        true,
    );
    check(
        &|| MMgrReport {
            packed: Bytes::from_static(&[9, 9, 8, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1]),
            ..report(0, vec![], &[])
        },
        values,
        true,
    );
    // An average takes three.
    let average = || report(0, vec![declared("osd.lat", TIME_AVERAGE)], &[1, 2]);
    let mut w = world();
    w.message(osd_conn(0), average());
    assert_eq!((counters(&mut w, "osd.0")["osd"]["lat"]["sum"].clone(), refused(&mut w)), (json!(0), 1));
}

#[test]
fn declarations_are_bounded() {
    let many = |n: usize| (0..n).map(|i| declared(&format!("x.{i:05}"), TOTAL)).collect::<Vec<_>>();
    check(&|| report(0, many(4_096), &[1; 4_097]), "too many", false);
    check(&|| report(0, many(100_000), &[]), "too many", false);
    check(&|| report(0, vec![declared(&"x".repeat(513), TOTAL)], &[1, 2]), "too long", false);
    let described = PerfCounterType { description: "x".repeat(513), ..declared("x.y", TOTAL) };
    check(&|| report(0, vec![described.clone()], &[1, 2]), "too long", false);
    for kind in [0, 3, 4, 8, 32, 255] {
        check(&|| report(0, vec![declared("x.y", kind)], &[1, 2]), "no type", false);
    }
    // As many as there may be, and one of them often.
    let mut w = world();
    let twice = [many(4_096), many(4_096)].concat();
    w.message(osd_conn(0), report(0, twice, &[5; 4_096]));
    assert_eq!((counters(&mut w, "osd.0")["x"]["04095"].clone(), refused(&mut w)), (json!(5), 0));
    // A counter that was never declared is undeclared.
    let gone = MMgrReport { undeclare_types: vec!["none".to_owned(); 9], ..report(0, vec![], &[6; 4_096]) };
    w.message(osd_conn(0), gone);
    assert_eq!((counters(&mut w, "osd.0")["x"]["00000"].clone(), refused(&mut w)), (json!(6), 0));
}

#[test]
fn a_duplicate_keeps_its_first_type() {
    let mut w = world();
    let types = vec![declared("osd.op", TOTAL), declared("osd.op", TIME_AVERAGE)];
    w.message(osd_conn(0), report(0, types, &[7]));
    assert_eq!((counters(&mut w, "osd.0"), refused(&mut w)), (json!({ "osd": { "op": 7 } }), 0));
    w.message(osd_conn(0), report(0, vec![declared("osd.op", TOTAL)], &[8]));
    let said = warnings(&mut w);
    let line =
        "a report of osd.0 as osd.0 was cut: it declares a counter twice, of which the first type stays";
    assert_eq!(said, [line], "once of a connection");
    let (_, perf) = tell(&mut w, json!({ "prefix": "perf dump" }));
    assert_eq!((&perf["mgr"]["declared_twice"], &perf["mgr"]["reports_refused"]), (&json!(2), &json!(0)));
    // One that was undeclared may come again.
    let gone = MMgrReport { undeclare_types: vec!["osd.op".to_owned()], ..report(0, vec![], &[]) };
    w.message(osd_conn(0), gone);
    w.message(osd_conn(0), report(0, vec![declared("osd.op", TOTAL)], &[9]));
    let (_, perf) = tell(&mut w, json!({ "prefix": "perf dump" }));
    assert_eq!(perf["mgr"]["declared_twice"], 2);
}

#[test]
fn nobody_reports_in_the_name_of_another() {
    let mut w = world();
    open(&mut w, 1);
    w.message(osd_conn(1), report(1, vec![declared("osd.op", TOTAL)], &[1]));
    let foreign = report(1, vec![], &[99]);
    for _ in 0..3 {
        w.message(osd_conn(0), foreign.clone());
    }
    assert_eq!(counters(&mut w, "osd.1"), json!({ "osd": { "op": 1 } }));
    let said = warnings(&mut w);
    assert!(said.len() == 1 && said[0].contains("osd.0") && said[0].contains("as osd.1"), "{said:?}");
    assert_eq!(refused(&mut w), 3);
    // A client is no daemon, whatever it calls itself; one that registers a service is.
    let client = ConnId(50);
    w.input(Input::Connected { conn: client, peer: peer(EntityType::Client, 4_144, "allow r") });
    w.message(client, MMgrOpen { daemon_name: "4144".to_owned(), ..MMgrOpen::default() });
    w.out.clear();
    let said = MMgrReport { daemon_name: "4144".to_owned(), ..report(0, vec![declared("a.b", TOTAL)], &[1]) };
    w.message(client, said.clone());
    let none = tell(&mut w, json!({ "prefix": "counters dump", "who": "client.4144" })).0;
    assert_eq!((none, warnings(&mut w).len(), refused(&mut w)), (-2, 0, 3));
    let service = Some(ServiceInfo::default());
    let (daemon_name, service_name) = ("4144".to_owned(), "rgw".to_owned());
    w.message(client, MMgrOpen { daemon_name, service_name, service, ..MMgrOpen::default() });
    w.message(client, MMgrReport { service_name: "rgw".to_owned(), ..said });
    assert_eq!(counters(&mut w, "rgw.4144"), json!({ "a": { "b": 1 } }));
    assert_eq!((warnings(&mut w).len(), refused(&mut w)), (0, 3));
}

/// What a daemon declares piece by piece has the same bound.
#[test]
fn counters_without_end_are_refused() {
    let mut w = world();
    for step in 0..20 {
        let new = (0..512).map(|i| declared(&format!("x.{:05}", step * 512 + i), TOTAL)).collect();
        w.message(osd_conn(0), report(0, new, &vec![step as u64; (step + 1) * 512]));
        let kept = counters(&mut w, "osd.0")["x"].as_object().map_or(0, |all| all.len());
        assert_eq!(kept, if step < 8 { (step + 1) * 512 } else { 0 }, "{step}");
    }
    let said = warnings(&mut w);
    assert!(said.len() == 1 && said[0].contains("too many"), "{said:?}");
}

/// Two processes with one daemon's key.
#[test]
fn of_two_daemons_of_one_name_the_later_one_counts() {
    let mut w = world();
    w.message(osd_conn(0), report(0, vec![declared("osd.op", TOTAL)], &[7]));
    let later = ConnId(500);
    w.input(Input::Connected { conn: later, peer: peer(EntityType::Osd, 0, "allow profile osd") });
    w.message(later, MMgrOpen { daemon_name: "0".to_owned(), ..MMgrOpen::default() });
    w.message(later, report(0, vec![declared("osd.op", TOTAL)], &[1]));
    w.out.clear();
    for _ in 0..3 {
        w.message(osd_conn(0), report(0, vec![], &[8]));
    }
    assert_eq!(counters(&mut w, "osd.0"), json!({ "osd": { "op": 1 } }));
    assert_eq!((refused(&mut w), warnings(&mut w).len()), (3, 1));
    // The end of the first one takes nothing from it.
    w.input(Input::Disconnected { conn: osd_conn(0) });
    w.message(later, report(0, vec![], &[2]));
    assert_eq!((counters(&mut w, "osd.0"), refused(&mut w)), (json!({ "osd": { "op": 2 } }), 3));
}

#[test]
fn daemons_hear_at_once_how_they_are_to_report() {
    let mut w = world();
    open(&mut w, 2);
    let set = |w: &mut World, options: &[(&str, &str)]| {
        let options = options.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        w.mon_sends(MConfig { options });
        w.out.clear();
        w.advance(std::time::Duration::from_millis(250));
        let told = w
            .sent()
            .into_iter()
            .filter(|o| matches!(o, Output::Send { msg: messages::Message::MgrConfigure(_), .. }));
        told.collect::<Vec<_>>()
    };
    let wish = MMgrConfigure { period_s: 2, threshold: 8, ..MMgrConfigure::default() };
    let both = [0, 2].map(|osd| Output::send(osd_conn(osd), 0, wish.clone()));
    assert_eq!(set(&mut w, &[("mgr_stats_period", "2"), ("mgr_stats_threshold", "8")]), both);
    assert_eq!(set(&mut w, &[("mgr_stats_period", "2"), ("mgr_stats_threshold", "8")]), []);
    // Who comes later hears it when it opens its session.
    w.message(osd_conn(1), MMgrOpen { daemon_name: "1".to_owned(), ..MMgrOpen::default() });
    assert_eq!(w.sent(), [Output::send(osd_conn(1), 0, wish)]);
}

/// A client's session for one more service.
fn serve(w: &mut World, client: i64, name: &str) -> ConnId {
    let conn = ConnId(1_000 + client as u64);
    w.input(Input::Connected { conn, peer: peer(EntityType::Client, client, "allow r") });
    let (daemon_name, service_name) = (name.to_owned(), "rgw".to_owned());
    let service = Some(ServiceInfo::default());
    w.message(conn, MMgrOpen { daemon_name, service_name, service, ..MMgrOpen::default() });
    conn
}

fn full_report(name: &str, service_name: &str) -> MMgrReport {
    MMgrReport {
        daemon_name: name.to_owned(),
        service_name: service_name.to_owned(),
        declare_types: (0..4_096).map(|i| declared(&format!("x.{i:05}"), TOTAL)).collect(),
        packed: packed(&[1; 4_096]),
        ..MMgrReport::default()
    }
}

#[test]
fn services_take_no_room_from_osds_and_a_key_none_from_another() {
    let mut w = world();
    for client in 0..17 {
        for service in ["a", "b"] {
            let name = format!("{client}{service}");
            let conn = serve(&mut w, client, &name);
            w.message(conn, full_report(&name, "rgw"));
        }
    }
    // The second of each key, and the first of the last key.
    assert_eq!(refused(&mut w), 18);
    w.message(osd_conn(0), full_report("0", ""));
    assert_eq!(counters(&mut w, "osd.0")["x"]["04095"], 1);
    assert_eq!(refused(&mut w), 18);
    let all = tell(&mut w, json!({ "prefix": "counters dump" })).1;
    assert_eq!(all.as_object().map(|o| o.len()), Some(17), "16 keys and the OSD: {all}");
}

#[test]
fn a_connection_is_logged_once_and_in_one_line() {
    let mut w = world();
    let conn = serve(&mut w, 7, "a");
    w.out.clear();
    for _ in 0..5 {
        let name = "a\nWARN all is lost\u{1b}[2J";
        w.message(
            conn,
            MMgrReport {
                service_name: "rgw".to_owned(),
                daemon_name: name.to_owned(),
                ..report(0, vec![], &[1])
            },
        );
        w.message(
            conn,
            MMgrReport {
                service_name: "rgw".to_owned(),
                daemon_name: "a".to_owned(),
                ..report(0, vec![], &[1])
            },
        );
        w.message(conn, MMgrClose::default());
        serve(&mut w, 7, "a");
    }
    let said = warnings(&mut w);
    assert_eq!(said.len(), 2, "each refusal once: {said:?}");
    assert!(said.iter().all(|line| !line.contains(char::is_control)), "{said:?}");
    w.input(Input::Disconnected { conn });
    serve(&mut w, 7, "a");
    w.message(
        conn,
        MMgrReport { service_name: "rgw".to_owned(), daemon_name: "a".to_owned(), ..report(0, vec![], &[1]) },
    );
    assert_eq!(warnings(&mut w).len(), 1, "another connection");
}
