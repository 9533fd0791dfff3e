//! Every command on file systems and metadata servers with every way to refuse it, against what 16.2.15
//! answered.

use serde_json::{Map, Value};

use crate::common::{World, boot_osd};

/// Recorded from a cluster of 16.2.15 without metadata servers: `>` and a command (`J` for JSON), its code
/// and words, and after `|` the lines of its output without those that tell epochs, times and keys.
const RECORDED: &str = include_str!("data/fs-commands.txt");

/// Lines of an output that no two clusters share.
const OWN: [&str; 7] =
    ["epoch", "created", "modified", "key = ", "last_failure_osd", "mdsmap_last", "mdsmap_first"];

/// A file system that is reset keeps the features that it was written with; in 16.2.15 it gets those of new
/// ones.
const KEPT: &str = r#""feature_5": "mds uses versioned encoding","#;

struct Step<'a> {
    command: &'a str,
    code: i32,
    outs: String,
    lines: Vec<&'a str>,
}

fn steps() -> Vec<Step<'static>> {
    let mut steps: Vec<Step<'_>> = Vec::new();
    let mut lines = RECORDED.lines();
    while let Some(line) = lines.next() {
        if let Some(command) = line.strip_prefix("> ") {
            let ended = lines.next().expect("a result");
            let (code, outs) = ended.split_once(' ').unwrap_or((ended, ""));
            let (code, outs) = (code.parse().expect("a code"), outs.replace("\\n", "\n"));
            steps.push(Step { command, code, outs, lines: Vec::new() });
        } else if let Some(step) = steps.last_mut() {
            step.lines.push(line.strip_prefix('|').expect("a line of an output").trim());
        }
    }
    steps
}

/// `osd pool create pool=m pg_num=8` as JSON: words of the prefix first, then arguments; `int:8`, `true!` and
/// lists are no texts.
fn json(command: &str) -> String {
    let (rest, pretty) = command.strip_prefix("J ").map_or((command, false), |rest| (rest, true));
    let (mut prefix, mut args) = (Vec::new(), Map::new());
    for word in words(rest) {
        let Some((name, value)) = word.split_once('=') else {
            prefix.push(word);
            continue;
        };
        let value = match value.strip_prefix("int:") {
            Some(number) => serde_json::from_str(number).expect("a number"),
            None if name == "pg_num" || value.starts_with('[') => serde_json::from_str(value).expect("JSON"),
            None if value == "true!" => Value::Bool(true),
            None => value.trim_matches('"').into(),
        };
        args.insert(name.to_owned(), value);
    }
    args.insert("prefix".to_owned(), prefix.join(" ").into());
    if pretty {
        args.insert("format".to_owned(), "json-pretty".into());
    }
    Value::Object(args).to_string()
}

/// Words, with blanks between quotation marks kept.
fn words(text: &str) -> Vec<String> {
    let (mut words, mut quoted) = (vec![String::new()], false);
    for c in text.chars() {
        quoted ^= c == '"';
        match c {
            ' ' if !quoted => words.push(String::new()),
            c => words.last_mut().expect("one").push(c),
        }
    }
    words
}

/// An output without what no two clusters share.
fn shown(step: &Step<'_>, text: &str) -> Vec<String> {
    if step.command.starts_with("fs authorize") {
        return Vec::new();
    }
    let own = |line: &&str| {
        let is_epoch =
            line.strip_prefix('e').is_some_and(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()));
        is_epoch || OWN.iter().any(|word| line.contains(word))
    };
    text.lines().filter(|line| !own(line)).map(|line| line.trim().to_owned()).collect()
}

#[test]
fn commands_are_answered_as_ceph_does() {
    let mut w = World::with_options(&[("osd_pool_default_size", "1"), ("mon_allow_pool_delete", "true")]);
    let admin = w.admin();
    for osd in 0..3 {
        boot_osd(&mut w, osd);
    }
    // The first pool of a cluster with Ceph's manager is its own.
    let (code, outs, _) =
        w.command(admin, r#"{"prefix":"osd pool create","pool":"device_health_metrics","pg_num":1}"#);
    assert_eq!(code, 0, "{outs}");
    let enable =
        r#"{"prefix":"osd pool application enable","pool":"device_health_metrics","app":"mgr_devicehealth"}"#;
    let (code, outs, _) = w.command(admin, enable);
    assert_eq!(code, 0, "{outs}");
    let (mut differ, mut reset) = (Vec::new(), false);
    for (n, step) in steps().iter().enumerate() {
        let (code, outs, text) = w.command(admin, &json(step.command));
        let outs = match outs.strip_prefix("dumped fsmap epoch ") {
            Some(_) => "dumped fsmap epoch N".to_owned(),
            None => outs.trim_end().to_owned(),
        };
        let (mut got, want) = (shown(step, &text), step.lines.clone());
        if reset && !want.contains(&KEPT) {
            got.retain(|line| line != KEPT);
        }
        reset |= step.command.starts_with("fs reset") && code == 0;
        if (code, outs.as_str()) != (step.code, step.outs.trim_end()) || got != want {
            let want = (step.code, &step.outs, want);
            differ.push(format!("{n}: {}\n  ours {:?}\n  Ceph {want:?}", step.command, (code, outs, got)));
        }
    }
    assert!(differ.is_empty(), "{} differ:\n{}", differ.len(), differ.join("\n"));
}
