//! Commands that change the cluster, in the order in which they were given to a new Ceph 16.2.15 cluster of one monitor:
//! code, status line and output must be the same.
//!
//! Times and keys are masked on both sides.

use crate::common;

use common::World;
use serde_json::Value;

/// Answers that differ on purpose, with the reason.
const DIFFERENT: &[(&str, &str)] = &[
    (
        r#"{"prefix":"osd pool get-quota","pool":"p"}"#,
        "Ceph has no answer before a manager reports; the quota is known",
    ),
    (r#"{"prefix":"osd pool get-quota","pool":"p","format":"json"}"#, "the same"),
    (r#"{"prefix":"osd reweight","id":1,"weight":1.5}"#, "above the range that the command states"),
    (r#"{"prefix":"osd reweight","id":1,"weight":-0.5}"#, "below the range; one text for all commands"),
    (r#"{"prefix":"osd primary-affinity","id":1,"weight":1.5}"#, "above the range that the command states"),
    (r#"{"prefix":"osd set-full-ratio","ratio":1.5}"#, "above the range that the command states"),
    (
        r#"{"prefix":"osd crush reweight","name":"osd.0","weight":-1.0}"#,
        "below the range; one text for all commands",
    ),
    (r#"{"prefix":"osd getmaxosd"}"#, "Ceph makes new epochs for commands that change nothing"),
    (r#"{"prefix":"osd getmaxosd","format":"json"}"#, "the same"),
    (r#"{"prefix":"osd setcrushmap"}"#, "says what is wrong with the map"),
    (r#"{"prefix":"osd setcrushmap","prior_version":3}"#, "the same"),
    (r#"{"prefix":"auth import"}"#, "names the line of the keyring"),
];

/// `2026-11-21T22:39:07.104673+0000` becomes `<time>`, a key becomes `<key>`.
fn mask(text: &str) -> String {
    let (mut out, mut rest) = (String::new(), text);
    while let Some(c) = rest.chars().next() {
        if is_time(rest) {
            out += "<time>";
            rest = rest.get(31..).unwrap_or_default();
        } else if is_key(rest) {
            out += "<key>";
            rest = rest.get(40..).unwrap_or_default();
        } else {
            out.push(c);
            rest = rest.get(c.len_utf8()..).unwrap_or_default();
        }
    }
    out
}

fn is_time(s: &str) -> bool {
    s.starts_with("20") && s.get(10..11) == Some("T") && s.get(26..31) == Some("+0000")
}

fn is_key(s: &str) -> bool {
    s.starts_with("AQ") && s.get(38..40) == Some("==")
}

#[test]
fn answers_are_those_of_ceph() {
    let mut w = World::new();
    let conn = w.admin();
    let mut differ = Vec::new();
    let lines = include_str!("data/changes.jsonl").lines();
    let mut count = 0;
    let mut excuses = std::collections::BTreeMap::new();
    for line in lines {
        let want: Value = serde_json::from_str(line).expect("JSON");
        let text = |field: &str| want.get(field).and_then(Value::as_str).unwrap_or_default().to_owned();
        let cmd = text("cmd");
        let ack = w.raw_command(conn, &cmd, text("input").into_bytes().into());
        let data = String::from_utf8_lossy(&ack.output).into_owned();
        let got = (i64::from(ack.result), mask(&ack.status), mask(&data));
        let want = (want.get("ret").and_then(Value::as_i64).unwrap_or(0), text("outs"), text("data"));
        count += 1;
        let excused = DIFFERENT.iter().any(|(c, _)| *c == cmd);
        excuses.insert(cmd.clone(), excuses.get(&cmd).copied().unwrap_or(false) || got != want);
        if got != want && !excused {
            differ.push(format!(
                "{cmd}\n--- want {} {:?}\n{}\n--- got  {} {:?}\n{}\n",
                want.0, want.1, want.2, got.0, got.1, got.2
            ));
        }
    }
    let idle = DIFFERENT.iter().find(|(cmd, _)| excuses.get(*cmd) != Some(&true));
    assert_eq!(idle, None, "listed as different and is not");
    assert!(differ.is_empty(), "{} of {count} differ\n{}", differ.len(), differ.join("\n"));
}
