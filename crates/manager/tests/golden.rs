//! Commands answered as Ceph 16.2.15 answered them on the same state.

mod common;

use common::{RawPgMap, World, in_order, text};
use serde_json::Value;

/// Version, time and rates of the PG map are the manager's own.
const OWN_FIELDS: [&str; 3] = ["version", "stamp", "stamp_delta"];

fn without_own(value: &mut Value, depth: usize) {
    match value {
        Value::Object(fields) if depth <= 2 => {
            fields.retain(|k, _| !OWN_FIELDS.contains(&k.as_str()));
            fields.values_mut().for_each(|v| without_own(v, depth + 1));
        }
        _ => {}
    }
}

fn normal(data: &str, format: Option<&str>) -> String {
    if format.is_some() {
        if let Ok(mut value) = serde_json::from_str::<Value>(data) {
            without_own(&mut value, 0);
            return in_order(&value);
        }
    }
    assert!(format.is_some() || data.is_empty() || data.ends_with('\n'), "no line end: {data}");
    // Rows come in the order of hash tables.
    let mut lines: Vec<&str> = data.lines().collect();
    lines.retain(|l| !l.starts_with("version ") && !l.starts_with("stamp "));
    lines.sort_unstable();
    lines.join("\n")
}

#[test]
fn answers_are_those_of_ceph() {
    let recorded: Value = serde_json::from_str(include_str!("data/commands.json")).expect("JSON");
    let mut w = World::recorded();
    let cases = recorded["commands"].as_array().expect("a list");
    assert!(cases.len() > 60);
    let mut wrong = Vec::new();
    for case in cases {
        let cmd = case["cmd"].to_string();
        let always_json = case["cmd"]["prefix"].as_str().is_some_and(|p| p.ends_with("_json"));
        let format = case["cmd"]["format"].as_str().or(always_json.then_some("json"));
        let reply = w.command(&cmd).expect("an answer");
        let got = (i64::from(reply.result), reply.status.as_str(), normal(&text(&reply), format));
        let mut data = case["data"].as_str().expect("text");
        // Ceph puts its frame of JSON also behind what is no JSON, and behind refusals.
        if case["code"] != 0 || cmd.contains("pg debug") {
            data = data.strip_suffix("{\"pg_ready\":true}").unwrap_or(data);
        }
        let want = (
            case["code"].as_i64().expect("a number"),
            case["outs"].as_str().expect("text"),
            normal(data, format),
        );
        if got != want {
            wrong.push(format!("{cmd}\n got {got:?}\nwant {want:?}"));
        }
    }
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), cases.len(), wrong.join("\n\n"));
}

#[test]
fn the_binary_pg_map_is_ceph_s() {
    let mut w = World::recorded();
    let reply = w.command(r#"{"prefix":"pg getmap"}"#).expect("an answer");
    let mut got = RawPgMap::decode(reply.output).expect("a PG map");
    let want = RawPgMap::decode(common::PGMAP.into()).expect("a PG map");
    assert!(reply.status.starts_with("got pgmap version "));
    got.version = want.version;
    got.stamp = want.stamp;
    assert_eq!(got, want);
}
