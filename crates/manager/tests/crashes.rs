//! Crash reports: posted, listed, acknowledged, kept by the monitors.

mod common;

use codec::{Decode, Encode};
use common::{ADMIN, World, text};
use manager::Output;
use messages::Message;
use messages::common::{MMgrCommand, MMgrCommandReply};

use messages::mon::{MMonCommand, MMonCommandAck};
use monitor::state::PgDigest;
use serde_json::{Value, json};
use types::{EntityType, Utime};

fn report(id: &str) -> Value {
    json!({
        "crash_id": id, "entity_name": "osd.0", "utsname_hostname": "h", "process_name": "ceph-osd",
        "timestamp": Utime::new(common::RECORDED_S - 60, 0).to_string().replace("+0000", "Z"),
    })
}

/// Requests to the monitors among what was sent, and the answer to the client if there is one.
fn sent(w: &mut World) -> (Vec<(u64, MMonCommand)>, Option<MMgrCommandReply>) {
    let (mut asked, mut answer) = (Vec::new(), None);
    for o in w.sent() {
        match o {
            Output::SendMon { tid, msg: Message::MonCommand(m) } => asked.push((tid, m)),
            Output::Send { msg: Message::MgrCommandReply(r), .. } => answer = Some(r),
            _ => {}
        }
    }
    (asked, answer)
}

fn run(w: &mut World, cmd: Value, input: &str) -> (Vec<(u64, MMonCommand)>, Option<MMgrCommandReply>) {
    let input = input.to_owned().into();
    w.message(ADMIN, MMgrCommand { cmd: vec![cmd.to_string()], input, ..MMgrCommand::default() });
    sent(w)
}

/// The monitors do as they are told.
fn monitors_answer(w: &mut World, asked: &[(u64, MMonCommand)]) -> Option<MMgrCommandReply> {
    for (tid, _) in asked {
        let ack = MMonCommandAck { status: "set something".to_owned(), ..MMonCommandAck::default() };
        w.input(manager::Input::FromMon { tid: *tid, msg: ack.into() });
    }
    sent(w).1
}

fn warning(w: &mut World) -> Option<String> {
    w.advance(std::time::Duration::from_secs(2));
    let digest = w.sent().into_iter().rev().find_map(|o| match o {
        Output::SendMon { msg: Message::PgDigest(m), .. } => PgDigest::from_bytes(m.summary).ok(),
        _ => None,
    });
    digest.expect("a digest").checks.remove("RECENT_CRASH").map(|c| c.summary)
}

#[test]
fn a_new_report_takes_the_place_of_the_oldest() {
    let mut w = World::recorded();
    let post = |w: &mut World, n: usize| {
        let (asked, early) =
            run(w, json!({ "prefix": "crash post" }), &report(&format!("{n:04}")).to_string());
        let reply = monitors_answer(w, &asked).or(early).expect("an answer");
        let asked = asked.into_iter().map(|(_, m)| serde_json::from_str(&m.cmd[0]).expect("JSON"));
        (reply.result, asked.collect::<Vec<Value>>())
    };
    for n in 1..=1_000 {
        assert_eq!(post(&mut w, n).0, 0);
    }
    let key = |n: &str| format!("mgr/crash/crash/{n}");
    let (result, asked) = post(&mut w, 1_001);
    let want = [
        json!({ "prefix": "config-key rm", "key": key("0001") }),
        json!({ "prefix": "config-key set", "key": key("1001") }),
    ];
    assert_eq!((result, asked.as_slice()), (0, want.as_slice()));
    assert_eq!(post(&mut w, 0), (-28, Vec::new()), "older than all of them");
}

#[test]
fn a_crash_is_posted_listed_and_acknowledged() {
    let mut w = World::recorded();
    let post = json!({ "prefix": "crash post" });
    let (asked, early) = run(&mut w, post.clone(), &report("a").to_string());
    assert_eq!((asked.len(), early), (1, None), "answered when the monitors have it");
    assert!(asked[0].1.cmd[0].contains("mgr/crash/crash/a"));
    let reply = monitors_answer(&mut w, &asked).expect("an answer");
    assert_eq!((reply.result, reply.status.as_str()), (0, ""));
    let again = run(&mut w, post.clone(), &report("a").to_string());
    assert!(again.0.is_empty() && again.1.is_some_and(|r| r.result == 0));
    let (asked, _) = run(&mut w, post.clone(), &report("b").to_string());
    monitors_answer(&mut w, &asked);
    assert_eq!(warning(&mut w).as_deref(), Some("2 daemons have recently crashed"));
    let ls = run(&mut w, json!({ "prefix": "crash ls" }), "").1.expect("an answer");
    assert_eq!(text(&ls), "ID  ENTITY  NEW  \na   osd.0    *   \nb   osd.0    *   \n");

    let (asked, _) = run(&mut w, json!({ "prefix": "crash archive", "id": "a" }), "");
    monitors_answer(&mut w, &asked);
    let new = run(&mut w, json!({ "prefix": "crash ls-new", "format": "json" }), "").1.expect("an answer");
    let new: Value = serde_json::from_str(&text(&new)).expect("JSON");
    assert_eq!(new.as_array().map(Vec::len), Some(1));
    let (asked, _) = run(&mut w, json!({ "prefix": "crash archive-all" }), "");
    monitors_answer(&mut w, &asked);
    assert_eq!(warning(&mut w), None);
    let (asked, _) = run(&mut w, json!({ "prefix": "crash prune", "keep": "0" }), "");
    assert_eq!(asked.len(), 2, "both are old enough");
    assert!(asked.iter().all(|(_, m)| m.cmd[0].contains("config-key rm")));
    monitors_answer(&mut w, &asked).expect("one answer");
    let stat = run(&mut w, json!({ "prefix": "crash stat" }), "").1.expect("an answer");
    assert_eq!(text(&stat), "0 crashes recorded\n");
}

#[test]
fn malformed_reports_are_refused() {
    let mut w = World::recorded();
    let mut no_time = report("a");
    no_time["timestamp"] = json!("yesterday");
    for bad in
        ["", "[]", "{}", r#"{"crash_id":"x"}"#, r#"{"crash_id":7,"timestamp":"x"}"#, &no_time.to_string()]
    {
        let (asked, reply) = run(&mut w, json!({ "prefix": "crash post" }), bad);
        let reply = reply.expect("an answer");
        assert!(asked.is_empty() && reply.result == -22, "{bad}");
        assert!(reply.status.starts_with("malformed crash metadata: "), "{}", reply.status);
    }
    for cmd in ["info", "archive"] {
        let (_, reply) = run(&mut w, json!({ "prefix": format!("crash {cmd}"), "id": "x" }), "");
        assert_eq!(reply.expect("an answer").status, "crash info: x not found");
    }
}

#[test]
fn a_new_manager_knows_what_the_monitors_kept() {
    let mut w = World::recorded();
    w.sent();
    w.input(manager::Input::MonConnected { gid: 9 });
    let (asked, _) = sent(&mut w);
    let (tid, ask) = asked.first().expect("a question");
    assert!(ask.cmd[0].contains("config-key dump"), "{:?}", ask.cmd);
    let dump = json!({ "mgr/crash/crash/kept": report("kept").to_string(), "mgr/crash/crash/bad": "{" });
    let ack = MMonCommandAck { output: dump.to_string().into(), ..MMonCommandAck::default() };
    w.input(manager::Input::FromMon { tid: *tid, msg: ack.into() });
    assert_eq!(warning(&mut w).as_deref(), Some("1 daemons have recently crashed"));
    let info = run(&mut w, json!({ "prefix": "crash info", "id": "kept" }), "").1.expect("an answer");
    assert!(text(&info).contains("\"entity_name\": \"osd.0\""));
}

/// It has stood by since before they were posted.
#[test]
fn a_standby_that_takes_over_knows_what_the_last_one_was_told() {
    let mut w = World::recorded();
    let mut names = |active_gid: u64| {
        let map = maps::MgrMap { active_gid, ..maps::MgrMap::initial() };
        w.mon_sends(messages::mon::MMgrMap { map: messages::payload::RestOfFront(map.to_bytes()) });
        sent(&mut w).0
    };
    names(77);
    let asked = names(4_100);
    let (tid, ask) = asked.first().expect("a question");
    assert!(ask.cmd[0].contains("config-key dump"), "{:?}", ask.cmd);
    let dump = json!({ "mgr/crash/crash/kept": report("kept").to_string() });
    let ack = MMonCommandAck { output: dump.to_string().into(), ..MMonCommandAck::default() };
    w.input(manager::Input::FromMon { tid: *tid, msg: ack.into() });
    w.input(manager::Input::Connected {
        conn: ADMIN,
        peer: common::peer(EntityType::Client, 4_200, "allow *"),
    });
    let stat = run(&mut w, json!({ "prefix": "crash stat" }), "").1.expect("an answer");
    assert_eq!(text(&stat), "1 crashes recorded\n");
}

#[test]
fn what_cephs_manager_finished_is_shown_until_it_is_cleared() {
    let mut w = World::recorded();
    w.sent();
    w.input(manager::Input::MonConnected { gid: 9 });
    let (asked, _) = sent(&mut w);
    let (tid, _) =
        asked.iter().find(|(_, m)| m.cmd[0].contains("mgr/progress/completed")).expect("a question");
    let event = json!({
        "id": "i", "message": "Global Recovery Event", "refs": [], "started_at": 5.5, "finished_at": 9.5,
    });
    let stored = json!({ "events": [event], "version": 2, "compat_version": 2 });
    let ack = MMonCommandAck { output: stored.to_string().into(), ..MMonCommandAck::default() };
    w.input(manager::Input::FromMon { tid: *tid, msg: ack.into() });
    let said = |w: &mut World, prefix: &str| {
        let reply = run(w, json!({ "prefix": prefix }), "").1.expect("an answer");
        text(&reply) + &reply.status
    };
    let shown: Value = serde_json::from_str(&said(&mut w, "progress json")).expect("JSON");
    assert_eq!(shown, json!({ "completed": [event], "events": [] }));
    assert!(said(&mut w, "progress").starts_with("[Complete]: Global Recovery Event ("));
    let (asked, _) = run(&mut w, json!({ "prefix": "progress clear" }), "");
    assert!(asked[0].1.cmd[0].contains("config-key set") && asked[0].1.input.starts_with(b"{"));
    assert_eq!(monitors_answer(&mut w, &asked).map(|r| (r.result, r.status)), Some((0, String::new())));
    assert_eq!(said(&mut w, "progress"), "Nothing in progress");
}
