//! The audit channel: each command that came, from whom, until the monitors have the line.

mod common;

use std::time::Duration;

use common::{ADMIN, World, peer};
use manager::{Ask, Input, Output};
use messages::Message;
use messages::log::{LogEntry, MLogAck, log_priority};
use types::{ConnId, EntityType};

/// Lines that were sent since the last call.
fn lines(w: &mut World) -> Vec<LogEntry> {
    let sent = w.sent().into_iter().filter_map(|o| match o {
        Output::SendMon { msg: Message::Log(m), .. } => Some(m.entries),
        _ => None,
    });
    sent.flatten().collect()
}

fn texts(w: &mut World) -> Vec<(u64, u16, String)> {
    lines(w).into_iter().map(|e| (e.seq, e.priority, e.text)).collect()
}

fn kept(w: &mut World, last: u64) {
    w.mon_sends(MLogAck { last, channel: "audit".to_owned(), ..MLogAck::default() });
}

#[test]
fn each_command_is_a_line_of_the_audit_channel() {
    let mut w = World::recorded();
    let reader = ConnId(30);
    w.input(Input::Connected { conn: reader, peer: peer(EntityType::Client, 77, "allow r") });
    w.command(r#"{"prefix":"pg repair","pgid":"1.0"}"#);
    w.command_as(reader, r#"{"prefix":"pg repair","pgid":"1.0"}"#);
    // What this process asks itself, as its dashboard does, is nobody's command.
    let json = r#"{"prefix":"pg stat"}"#.to_owned();
    w.input(Input::Ask { id: 1, ask: Ask::Manager { json, input: bytes::Bytes::new() } });
    w.out.clear();
    w.advance(Duration::from_millis(250));
    let said = lines(&mut w);
    // As 16.2.15's manager writes them.
    let of = |e: &LogEntry| (e.priority, e.channel.clone(), e.text.clone());
    let line = |priority, client: i64, what: &str| {
        let from = format!("from='client.{client} v2:127.0.0.1:0/1' entity='client.{client}'");
        let cmd = r#"cmd=[{"prefix":"pg repair","pgid":"1.0"}]"#;
        (priority, "audit".to_owned(), format!("{from} {cmd}{what}"))
    };
    assert_eq!(
        said.iter().map(of).collect::<Vec<_>>(),
        [line(log_priority::DEBUG, 4_200, ": dispatch"), line(log_priority::INFO, 77, ":  access denied")]
    );
    assert!(said.iter().all(|e| e.name.to_string() == "mgr.x" && e.rank.to_string() == "mgr.4100"));
}

#[test]
fn lines_are_sent_again_until_the_monitors_have_them() {
    let mut w = World::recorded();
    let ask = |w: &mut World| {
        w.command(r#"{"prefix":"pg stat"}"#);
        w.advance(Duration::from_millis(250));
    };
    let numbers = |w: &mut World| texts(w).into_iter().map(|(seq, ..)| seq).collect::<Vec<_>>();
    ask(&mut w);
    assert_eq!(numbers(&mut w), [1]);
    ask(&mut w);
    assert_eq!(numbers(&mut w), [2], "what is new");
    kept(&mut w, 1);
    w.advance(Duration::from_secs(9));
    assert!(numbers(&mut w).is_empty());
    w.advance(Duration::from_secs(2));
    assert_eq!(numbers(&mut w), [2], "nobody has said that they have it");
    // Another monitor.
    w.input(Input::MonConnected { gid: 4_100 });
    w.advance(Duration::from_millis(250));
    assert_eq!(numbers(&mut w), [2]);
    kept(&mut w, 2);
    w.advance(Duration::from_secs(30));
    assert!(numbers(&mut w).is_empty());

    // Where no monitor takes them there is a bound, in lines and in what each says.
    let long = format!(r#"{{"prefix":"pg stat","x":"{}"}}"#, "x".repeat(100_000));
    for _ in 0..1_200 {
        w.command(&long);
    }
    w.out.clear();
    let mut all = Vec::new();
    for _ in 0..20 {
        w.advance(Duration::from_millis(250));
        all.extend(lines(&mut w));
    }
    assert_eq!((all.len(), all.first().map(|e| e.seq)), (1_000, Some(203)));
    assert!(all.iter().all(|e| e.text.len() < 2_200));
}

#[test]
fn a_line_is_one_line() {
    let mut w = World::recorded();
    w.command_as(ADMIN, "{\"prefix\":\"pg stat\",\n\t\"x\":\"y\"}");
    w.advance(Duration::from_millis(250));
    let said = texts(&mut w);
    assert!(said.len() == 1 && !said[0].2.contains(char::is_control), "{said:?}");
}
