//! Every command on every state: answers are well formed, and malformed commands are refused.

mod common;

use std::collections::BTreeSet;

use codec::Encode;
use common::{ADMIN, World, full_map, osd_conn, peer, reports, text};
use manager::{Input, Output};
use messages::Message;
use messages::common::MCommand;
use messages::pg_state as state;
use monitor::command::Signature;
use serde_json::{Map, Value, json};
use types::{ConnId, EntityType, Fsid, Utime};

/// Arguments that fit each signature.
fn arguments(sig: &'static str) -> Map<String, Value> {
    let mut out = Map::new();
    for param in Signature::parse(sig).params.iter().filter(|p| p.required) {
        let value = match param.name {
            "who" if sig.starts_with("osd pool") => json!("bench"),
            "who" => json!("osd.0"),
            "poolstr" => json!("bench"),
            "pgid" => json!("2.0"),
            "osd" | "id" if sig.contains("CephOsdName") => json!(0),
            "ids" => json!("0"),
            _ => match param.choices.first() {
                Some(choice) => json!(choice),
                None => json!("x"),
            },
        };
        out.insert(param.name.to_owned(), if param.repeated { json!([value]) } else { value });
    }
    out
}

/// A cluster in a bad way: every PG has some state, and OSD 2 is down.
fn troubled() -> World {
    let mut w = World::recorded();
    for (osd, mut report) in reports() {
        for (i, s) in report.pg_stats.values_mut().enumerate() {
            s.reported_seq += 1;
            s.state = [
                state::ACTIVE | state::CLEAN,
                state::ACTIVE | state::UNDERSIZED | state::DEGRADED,
                state::ACTIVE | state::REMAPPED | state::BACKFILLING,
                state::DOWN | state::PEERING,
                state::INCOMPLETE,
                state::ACTIVE | state::CLEAN | state::INCONSISTENT,
                0,
            ][i % 7];
            s.last_undegraded = Utime::ZERO;
            s.last_fullsized = Utime::ZERO;
            s.last_active = Utime::ZERO;
            s.stats.sum.num_objects_degraded = 1;
            s.stats.sum.num_objects_unfound = i64::from(i % 3 == 0);
            s.stats.sum.num_scrub_errors = 1;
            s.stats.sum.num_large_omap_objects = 1;
            s.blocked_by = vec![2];
            s.acting[1] = crush::ITEM_NONE;
        }
        w.message(osd_conn(osd), report);
    }
    let mut map = <maps::OsdMap as codec::Decode>::from_bytes(bytes::Bytes::from_static(common::OSDMAP))
        .expect("a map");
    map.epoch = map.epoch.next();
    map.osds[2].state &= !maps::flags::osd_state::UP;
    w.mon_sends(full_map(map.to_bytes()));
    w.sent();
    w
}

/// A map without anything, as right after bootstrap.
fn empty() -> World {
    let mut w = World::new();
    let map = maps::OsdMap { fsid: Fsid([5; 16]), epoch: types::Epoch(1), ..maps::OsdMap::default() };
    w.mon_sends(full_map(map.to_bytes()));
    w.sent();
    w
}

#[test]
fn every_command_answers_json_when_asked_on_every_state() {
    for mut w in [World::recorded(), troubled(), empty()] {
        for command in manager::command::all() {
            let prefix = Signature::prefix_of(command.sig).collect::<Vec<_>>().join(" ");
            for format in ["plain", "json", "json-pretty"] {
                let mut cmd = arguments(command.sig);
                cmd.insert("prefix".to_owned(), json!(prefix));
                cmd.insert("format".to_owned(), json!(format));
                let Some(reply) = w.command(&Value::Object(cmd).to_string()) else {
                    // Or for what pools keep or daemons say, for which no client asks here.
                    let asks = ["rbd task ", "device "];
                    let waits =
                        command.perm.contains('w') || asks.iter().any(|begin| prefix.starts_with(begin));
                    assert!(waits, "{prefix} waits for the monitors");
                    continue;
                };
                let text = String::from_utf8_lossy(&reply.output).into_owned();
                // Those are text in every format, or binary.
                let never_json = ["pg getmap", "pg debug", "iostat", "osd status", "crash stat"];
                let never = never_json.contains(&prefix.as_str()) || prefix.starts_with("balancer ev");
                if format != "plain" && !text.is_empty() && !never {
                    let parsed: Result<Value, _> = serde_json::from_str(&text);
                    assert!(parsed.is_ok(), "{prefix}: {text}");
                }
                assert!(reply.result >= 0 || !reply.status.is_empty() || prefix == "config show", "{prefix}");
            }
        }
    }
}

#[test]
fn commands_are_well_formed_and_there_once() {
    let mut seen = BTreeSet::new();
    for c in manager::command::all() {
        let sig = Signature::parse(c.sig);
        assert!(seen.insert(sig.prefix.clone()), "{} is there twice", c.sig);
        assert!(!sig.prefix.is_empty() && !c.help.is_empty() && !c.module.is_empty(), "{}", c.sig);
        assert!(!c.perm.is_empty() && c.perm.chars().all(|p| "rwx".contains(p)), "{}", c.sig);
        assert!(sig.params.iter().all(|p| !p.name.is_empty() && !p.described.is_empty()), "{}", c.sig);
    }
}

#[test]
fn malformed_commands_are_refused() {
    let mut w = World::recorded();
    let mut check = |cmd: &str, code: i32, text: &str| {
        let reply = w.command(cmd).expect("an answer");
        assert_eq!((reply.result, reply.status.as_str()), (code, text), "{cmd}");
    };
    // The first three as 16.2.15 answers.
    check("{", -22, "unparseable JSON {");
    check(r#"{"prefix":"nonsense"}"#, -22, "No handler found for 'nonsense'");
    check(r#"{"prefix":"pg ls","pool":"x"}"#, -22, "bad or missing field 'pool'");
    check(r#"{"prefix":"pg ls-by-pool"}"#, -22, "bad or missing field 'poolstr'");
    check(
        r#"{"prefix":"pg dump","dumpcontents":["x"]}"#,
        -22,
        "x not in all|summary|sum|delta|pools|osds|pgs|pgs_brief for 'dumpcontents'",
    );
    check(r#"{"prefix":"pg ls","pool":99}"#, -2, "pool 99 does not exist");
    check(r#"{"prefix":"pg ls-by-osd","osd":99}"#, -11, "osd 99 is not up");
    check(r#"{"prefix":"osd pool stats","pool_name":"no"}"#, -2, "unrecognized pool 'no'");
    check(r#"{"prefix":"osd test-reweight-by-pg","pools":["no"]}"#, -2, "pool 'no' does not exist");
    check(r#"{"prefix":"osd test-reweight-by-pg","max_change":-1}"#, -22, "max_change -1 must be positive");
    check(r#"{"prefix":"osd test-reweight-by-pg","max_osds":0}"#, -22, "max_osds 0 must be positive");
    check(r#"{"prefix":"osd df","filter":"no"}"#, -22, "'no' not a pool, crush node or device class name");
    check(r#"{"prefix":"osd status","bucket":"no"}"#, -2, "Bucket 'no' not found");
    check("[]", -22, "not JSON object []");
    check(r#"{"prefix":7}"#, -22, "bad or missing field 'prefix'");
    // Numbers at their limits.
    for n in ["9223372036854775807", "-9223372036854775808", "1e300", "0"] {
        for cmd in [
            format!(r#"{{"prefix":"pg dump_stuck","threshold":{n}}}"#),
            format!(r#"{{"prefix":"iostat","width":{n}}}"#),
            format!(r#"{{"prefix":"osd ok-to-stop","ids":["0"],"max":{n}}}"#),
            format!(r#"{{"prefix":"osd test-reweight-by-pg","oload":{n},"max_change":{n}}}"#),
            format!(r#"{{"prefix":"pg ls-by-primary","osd":{n},"pool":{n}}}"#),
        ] {
            assert!(w.command(&cmd).is_some(), "{cmd}");
        }
    }
}

#[test]
fn caps_decide_who_may_do_what() {
    let mut w = World::recorded();
    let conn = ConnId(60);
    let mut check = |caps: &str, cmd: &str, allowed: bool| {
        w.input(Input::Connected { conn, peer: peer(EntityType::Client, 5, caps) });
        let refused = w.command_as(conn, cmd).is_some_and(|r| r.result == -13);
        assert_eq!(!refused, allowed, "{caps}: {cmd}");
    };
    let (read, write) = (r#"{"prefix":"pg stat"}"#, r#"{"prefix":"osd scrub","who":"0"}"#);
    check("allow *", read, true);
    check("allow *", write, true);
    check("allow r", read, true);
    check("allow r", write, false);
    check("allow command \"pg stat\"", read, true);
    check("allow command \"osd scrub\"", read, false);
    check("allow service osd rw", write, true);
    check("allow service osd rw", read, false);
    // What is a module's with Ceph is of the service `py`, and not of the one that its description names.
    let modules = [
        ("pg_autoscaler", "osd pool autoscale-status"),
        ("balancer", "balancer status"),
        ("crash", "crash ls"),
        ("progress", "progress"),
        ("status", "fs status"),
        ("iostat", "iostat"),
        ("status", "osd status"),
        ("telemetry", "telemetry status"),
        ("orchestrator", "orch status"),
        ("orchestrator", "device ls-lights"),
        ("rbd_support", "rbd mirror snapshot schedule list"),
    ];
    for (module, prefix) in modules {
        let command = format!(r#"{{"prefix":"{prefix}"}}"#);
        check("allow service py r", &command, true);
        check(&format!("allow module {module} r"), &command, true);
        check(&format!("allow module {module} w"), &command, false);
        check("allow service mgr rw, allow module mgr rw", &command, false);
    }
    let own = r#"{"prefix":"device ls"}"#;
    check("allow service mgr r", own, true);
    check("allow service py rw, allow module devicehealth rw", own, false);
}

#[test]
fn tell_is_for_those_who_may_do_everything() {
    let mut w = World::recorded();
    let mut tid = 0;
    let mut tell = |w: &mut World, conn: ConnId, cmd: &str| {
        tid += 1;
        let msg = MCommand { fsid: Fsid([1; 16]), cmd: vec![cmd.to_owned()], ..MCommand::default() };
        w.input(Input::Message { conn, tid, msg: msg.into() });
        match w.sent().pop() {
            Some(Output::Send { msg: Message::CommandReply(reply), .. }) => {
                (reply.result, String::from_utf8(reply.output.to_vec()).expect("text"))
            }
            other => panic!("{other:?}"),
        }
    };
    let reader = ConnId(61);
    w.input(Input::Connected { conn: reader, peer: peer(EntityType::Client, 5, "allow rw") });
    assert_eq!(tell(&mut w, reader, r#"{"prefix":"version"}"#).0, -13);
    let version = "{\n    \"version\": \"16.2.15\",\n    \"release\": \"pacific\",\n    \"release_type\": \"stable\"\n}\n";
    assert_eq!(tell(&mut w, ADMIN, r#"{"prefix":"version"}"#), (0, version.to_owned()));
    let get = r#"{"prefix":"config get","var":"mgr_stats_period","format":"json"}"#;
    assert_eq!(tell(&mut w, ADMIN, get), (0, r#"{"mgr_stats_period":"5"}"#.to_owned()));
    let set = r#"{"prefix":"config set","var":"mgr_stats_period","val":["7"],"format":"json"}"#;
    assert_eq!(tell(&mut w, ADMIN, set), (0, r#"{"success":"mgr_stats_period = '7' "}"#.to_owned()));
    assert_eq!(tell(&mut w, ADMIN, get).1, r#"{"mgr_stats_period":"7"}"#);
    let diff = tell(&mut w, ADMIN, r#"{"prefix":"config diff","format":"json"}"#).1;
    assert_eq!(diff, r#"{"diff":{"mgr_stats_period":{"default":5,"override":7,"final":7}}}"#);
    assert_eq!(tell(&mut w, ADMIN, r#"{"prefix":"config set","var":"mgr_stats_period","val":["x"]}"#).0, -22);
    assert_eq!(tell(&mut w, ADMIN, r#"{"prefix":"config get","var":"no"}"#).0, -2);
    assert_eq!(tell(&mut w, ADMIN, r#"{"prefix":"pg stat"}"#).0, -22);
    for cmd in ["help", "get_command_descriptions", "config show", "config help", "perf dump", "mgr_status"] {
        let (code, output) = tell(&mut w, ADMIN, &json!({ "prefix": cmd }).to_string());
        let parsed: Value = serde_json::from_str(&output).expect("JSON");
        assert!(code == 0 && parsed.as_object().is_some_and(|o| !o.is_empty()), "{cmd}: {output}");
    }
}

#[test]
fn descriptions_have_the_form_that_clients_parse() {
    let mut w = World::recorded();
    let reply = w.command(r#"{"prefix":"get_command_descriptions"}"#).expect("an answer");
    let all: Value = serde_json::from_str(&text(&reply)).expect("JSON");
    assert_eq!(all.as_object().expect("an object").len(), manager::command::all().count());
    let want = json!({
        "sig": ["pg", "stat"],
        "help": "show placement group status.",
        "module": "pg",
        "perm": "r",
        "flags": 0,
    });
    assert_eq!(all["cmd000"], want);
}

#[test]
fn a_troubled_cluster_is_described_as_ceph_would() {
    let mut w = troubled();
    let stat = text(&w.command(r#"{"prefix":"pg stat"}"#).expect("an answer"));
    assert!(stat.contains(" unknown, ") && stat.contains("/7608 objects degraded ("), "{stat}");
    assert!(stat.contains("/3804 objects unfound ("), "{stat}");
    let blocked = text(&w.command(r#"{"prefix":"osd blocked-by"}"#).expect("an answer"));
    assert_eq!(blocked, "osd  num_blocked\n  2          185\n");
    let stuck =
        text(&w.command(r#"{"prefix":"pg dump_stuck","stuckops":["undersized"]}"#).expect("an answer"));
    assert!(stuck.starts_with("PG_STAT  STATE                             UP"), "{stuck}");
    assert!(stuck.contains(",2147483647]"), "{stuck}");
    let list = text(&w.command(r#"{"prefix":"pg ls","states":["undersized"]}"#).expect("an answer"));
    assert!(list.contains(",NONE]p"), "{list}");
    let debug =
        text(&w.command(r#"{"prefix":"pg debug","debugop":"unfound_objects_exist"}"#).expect("an answer"));
    assert_eq!(debug, "TRUE\n");
}
