//! Commands that only read, compared byte by byte with what 16.2.15 answers for the same maps.
//!
//! `show.json` was captured from a lone monitor with five OSDs that never came up, two pools, device classes, weight sets
//! and flags; `show-new.json` from one without anything. Each entry: the command, its code, status line and output.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use codec::Decode;
use maps::{MonMap, OsdMap};
use monitor::command::{self, Args, Ctx, Format, Handler, Reply, Signature};
use monitor::state::{OsdHistory, State};
use monitor::{GenesisConfig, Monitor, Settings};
use serde_json::Value;
use types::{Now, SeededEntropy, Utime};

/// When the captured cluster made its first OSD map.
const CREATED: Utime = Utime { sec: 1_795_299_877, nsec: 222_051_000 };

/// A minute later.
fn now() -> Now {
    Now { wall: CREATED.plus(Duration::from_secs(60)), ..Now::default() }
}

fn state(monmap: MonMap, osdmap: Option<OsdMap>) -> State {
    let config = GenesisConfig {
        fsid: monmap.fsid,
        monmap,
        entities: BTreeMap::new(),
        failure_domain: "host".to_owned(),
        options: Vec::new(),
        osds: Vec::new(),
    };
    let snapshot = Monitor::genesis(&config, Now { wall: CREATED, ..Now::default() }, &mut SeededEntropy(1));
    let mon = Monitor::new(settings(), Box::new(SeededEntropy(2)), &snapshot).expect("a snapshot");
    let mut state = mon.state().clone();
    if let Some(map) = osdmap {
        state.osds = Arc::new(OsdHistory::new(map));
    }
    state
}

fn settings() -> Settings {
    let mut settings = Settings::new("a", types::AddrVec::default());
    settings.quorum.term = 3;
    settings
}

fn captured_monmap() -> MonMap {
    MonMap::from_bytes(Bytes::from_static(include_bytes!("data/monmap.bin"))).expect("a monmap")
}

fn captured() -> State {
    let map = OsdMap::from_bytes(Bytes::from_static(include_bytes!("data/osdmap.bin"))).expect("an osdmap");
    state(captured_monmap(), Some(map))
}

fn run(state: &State, cmd: &Value) -> Reply {
    let parsed = Args::parse(&[cmd.to_string()]);
    let (prefix, mut args) = match parsed {
        Ok(parsed) => parsed,
        Err(e) => panic!("{cmd}: {e}"),
    };
    let Some(found) = command::find(&prefix) else {
        return Reply::error(types::Errno::EINVAL, format!("{prefix} is not in the table"));
    };
    if let Err(e) = args.check(&Signature::parse(found.sig)) {
        return Reply::error(types::Errno::EINVAL, e.to_string());
    }
    let format = match Format::parse(args.text("format")) {
        Ok(format) => format,
        Err(refusal) => return refusal,
    };
    let Handler::Read(handler) = found.handler else { panic!("{prefix} does not only read") };
    let (sessions, settings, input) = (BTreeMap::new(), settings(), Bytes::new());
    handler(&Ctx {
        now: now(),
        state,
        args: &args,
        format,
        settings: &settings,
        sessions: &sessions,
        input: &input,
    })
}

fn compare(state: &State, captures: &str, skipped: &[&str]) {
    let cases: Vec<(Value, i32, String, String)> = serde_json::from_str(captures).expect("captures");
    let mut wrong = Vec::new();
    for (cmd, code, outs, data) in &cases {
        let name = cmd.to_string();
        if skipped.iter().any(|s| name.contains(s)) {
            continue;
        }
        let got = run(state, cmd);
        let text = String::from_utf8_lossy(&got.data).into_owned();
        if (got.code, &got.outs, &text) != (*code, outs, data) {
            wrong.push(format!(
                "{name}\n--- want {code} {outs:?}\n{data}\n--- got {} {:?}\n{text}",
                got.code, got.outs
            ));
        }
    }
    assert!(wrong.is_empty(), "{} of {} differ\n{}", wrong.len(), cases.len(), wrong.join("\n\n"));
}

#[test]
fn outputs_are_those_of_ceph_for_the_same_map() {
    compare(&captured(), include_str!("data/show.json"), &[r#""epoch":3"#, r#""epoch":2"#]);
}

#[test]
fn a_new_cluster_answers_as_cephs() {
    compare(&state(captured_monmap(), None), include_str!("data/show-new.json"), &[]);
}
