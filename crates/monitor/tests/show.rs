//! Commands that only read, compared byte by byte with what 16.2.15 answers for the same maps.
//!
//! Each list of captures holds commands with their code, status line and output:
//! `show-new` from a cluster without anything; `show` from one with five OSDs that never came up, two pools, device
//! classes, weight sets and flags; `show-down` from the same one with two OSDs up, one down, and muted health checks;
//! `show-used` from one whose manager reported data.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use codec::Decode;
use maps::{MonMap, OsdMap};
use messages::stats::StoreStatfs;
use monitor::command::{self, Args, Ctx, Format, Handler, Reply, Signature};
use monitor::state::{Mute, OsdHistory, OsdUsage, PgDigest, PoolUsage, State};
use monitor::{GenesisConfig, Monitor, Settings};
use serde_json::{Value, json};
use types::{Now, PoolId, SeededEntropy, Utime};

/// When the captured cluster made its first OSD map.
const CREATED: Utime = Utime { sec: 1_795_299_877, nsec: 222_051_000 };

/// A command with the code, status line and output of 16.2.15.
type Capture = (Value, i32, String, String);

struct Cluster {
    state: State,
    now: Now,
}

fn at(wall: Utime) -> Now {
    Now { wall, ..Now::default() }
}

fn settings() -> Settings {
    let mut settings = Settings::new("a", types::AddrVec::default());
    settings.quorum.term = 3;
    settings
}

impl Cluster {
    /// A minute old, with the captured monitor map.
    fn new(osdmap: Option<&'static [u8]>) -> Self {
        let monmap = Bytes::from_static(include_bytes!("data/monmap.bin"));
        let monmap = MonMap::from_bytes(monmap).expect("a monmap");
        let config = GenesisConfig {
            fsid: monmap.fsid,
            monmap,
            entities: BTreeMap::new(),
            failure_domain: "host".to_owned(),
            options: Vec::new(),
            osds: Vec::new(),
        };
        let snapshot = Monitor::genesis(&config, at(CREATED), &mut SeededEntropy(1));
        let mon = Monitor::new(settings(), Box::new(SeededEntropy(2)), &snapshot).expect("a snapshot");
        let mut state = mon.state().clone();
        if let Some(map) = osdmap {
            let map = OsdMap::from_bytes(Bytes::from_static(map)).expect("an osdmap");
            state.osds = Arc::new(OsdHistory::new(map));
        }
        Self { state, now: at(CREATED.plus(Duration::from_secs(60))) }
    }

    fn run(&self, cmd: &Value) -> Reply {
        let (prefix, mut args) = Args::parse(&[cmd.to_string()]).expect("a command");
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
        let (state, now) = (&self.state, self.now);
        let ctx = Ctx {
            now,
            state,
            args: &args,
            format,
            settings: &settings,
            sessions: &sessions,
            conn: types::ConnId(1),
            input: &input,
        };
        handler(&ctx)
    }

    fn check(&self, captures: &str, skipped: &[&str]) {
        let cases: Vec<Capture> = serde_json::from_str(captures).expect("captures");
        let mut wrong = Vec::new();
        for (cmd, code, outs, data) in &cases {
            let name = cmd.to_string();
            if skipped.iter().any(|s| name.contains(s)) {
                continue;
            }
            let got = self.run(cmd);
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
}

fn idle() -> Cluster {
    Cluster::new(Some(include_bytes!("data/osdmap.bin")))
}

/// Eleven seconds after the last OSD came up, with the mutes that the capture shows.
fn down() -> Cluster {
    let mut cluster = Cluster::new(Some(include_bytes!("data/osdmap-down.bin")));
    cluster.now = at(cluster.state.osdmap().last_up_change.plus(Duration::from_millis(11_100)));
    let until = |sec: u32, micros: u32| Utime::new(sec, micros * 1_000);
    let weak =
        Mute { until: until(1_795_905_845, 483_025), sticky: false, summary: "1 osds down".into(), count: 1 };
    let sticky =
        Mute { until: until(1_795_304_645, 241_264), sticky: true, summary: String::new(), count: 0 };
    cluster.state.mutes = Arc::new([("OSD_DOWN".to_owned(), weak), ("OSD_ORPHAN".to_owned(), sticky)].into());
    cluster
}

/// The digest from which `df detail` comes out as it was captured.
fn used() -> Cluster {
    let mut cluster = Cluster::new(Some(include_bytes!("data/osdmap-used.bin")));
    cluster.now = at(cluster.state.osdmap().last_up_change.plus(Duration::from_secs(99 * 60 + 55)));
    let captures: Vec<Capture> = serde_json::from_str(include_str!("data/show-used.json")).expect("captures");
    let df = json!({ "prefix": "df", "detail": "detail", "format": "json" });
    let (_, _, _, df) = captures.iter().find(|(cmd, ..)| *cmd == df).expect("df was captured");
    let df: Value = serde_json::from_str(df).expect("JSON");
    let number = |v: &Value, key: &str| v[key].as_u64().expect(key);
    let mut digest = PgDigest { stamp: CREATED, pg_states: [(6, 185)].into(), ..PgDigest::default() };
    // Three stores share the sum; the first has what does not divide.
    let share = |key: &str, osd: i32| {
        let sum = number(&df["stats"], key);
        if osd == 0 { sum - 2 * (sum / 3) } else { sum / 3 }
    };
    for osd in 0..3 {
        let statfs = StoreStatfs {
            total: share("total_bytes", osd),
            available: share("total_avail_bytes", osd),
            ..StoreStatfs::default()
        };
        digest.osds.insert(osd, OsdUsage { statfs, ..OsdUsage::default() });
    }
    for pool in df["pools"].as_array().expect("pools") {
        let stats = &pool["stats"];
        let int = |key: &str| number(stats, key) as i64;
        let mut usage = PoolUsage { avail_raw: number(stats, "avail_raw"), ..PoolUsage::default() };
        let sum = &mut usage.stat.stats.sum;
        sum.num_objects = int("objects");
        sum.num_object_copies = 2 * int("objects");
        sum.num_objects_dirty = int("dirty");
        sum.num_bytes = int("stored");
        (sum.num_rd, sum.num_rd_kb) = (int("rd"), int("rd_bytes") / 1024);
        (sum.num_wr, sum.num_wr_kb) = (int("wr"), int("wr_bytes") / 1024);
        usage.stat.store_stats.data_stored = int("stored_raw");
        usage.stat.store_stats.allocated = int("bytes_used");
        digest.pools.insert(PoolId(number(pool, "id") as i64), usage);
    }
    cluster.state.digest = Arc::new(digest);
    cluster
}

#[test]
fn a_new_cluster_answers_as_cephs() {
    Cluster::new(None).check(include_str!("data/show-new.json"), &[]);
}

#[test]
fn outputs_are_those_of_ceph_for_the_same_map() {
    // Older epochs are not in the one map that was captured.
    idle().check(include_str!("data/show.json"), &[r#""epoch":3"#, r#""epoch":2"#]);
}

#[test]
fn health_and_trees_tell_of_osds_that_are_down() {
    let mut cluster = down();
    let version = "ceph version 16.2.15 (618f440892089921c3e944a991122ddc44e60516) pacific (stable)";
    let told = || [("ceph_version".to_owned(), version.to_owned())].into();
    cluster.state.osd_metadata = Arc::new([(0, told()), (1, told())].into());
    cluster.check(include_str!("data/show-down.json"), &[]);
}

#[test]
fn space_is_reckoned_as_ceph_does() {
    let cluster = used();
    // The capture's status is cut down to what is the same here.
    cluster.check(include_str!("data/show-used.json"), &["status", "health"]);
    let captures: Vec<Capture> = serde_json::from_str(include_str!("data/show-used.json")).expect("captures");
    for (cmd, _, _, want) in captures.iter().filter(|(cmd, ..)| cmd["prefix"] == "status") {
        let text = String::from_utf8(cluster.run(cmd).data.to_vec()).expect("text");
        if cmd.get("format").is_none() {
            assert!(text.ends_with(want.as_str()), "want {want}\ngot {text}");
            continue;
        }
        let (got, want): (Value, Value) =
            (serde_json::from_str(&text).expect("JSON"), serde_json::from_str(want).expect("JSON"));
        for part in ["pgmap", "osdmap"] {
            assert_eq!(got[part].to_string(), want[part].to_string());
        }
    }
}

/// A value for each argument, good or bad, so that handlers get past their first line.
fn arguments(sig: &Signature) -> Vec<Value> {
    let with = |pick: fn(&'static str) -> Value, optional: bool| {
        let mut cmd = serde_json::Map::new();
        cmd.insert("prefix".to_owned(), sig.prefix.join(" ").into());
        for param in sig.params.iter().filter(|p| optional || p.required) {
            let value = match param.choices.first() {
                Some(choice) => json!(choice),
                None => match param.kind {
                    command::ParamKind::Int | command::ParamKind::OsdName => json!(1),
                    command::ParamKind::Float => json!(0.5),
                    command::ParamKind::Bool => json!(true),
                    command::ParamKind::Text => pick(param.name),
                },
            };
            cmd.insert(param.name.to_owned(), if param.repeated { json!([value]) } else { value });
        }
        Value::Object(cmd)
    };
    let known = |name: &'static str| match name {
        "pool" => json!("p1"),
        "pgid" => json!("1.0"),
        "bucket" | "node" | "name" => json!("default"),
        "class" => json!("ssd"),
        "id" | "ids" | "who" => json!("a"),
        _ => json!("x"),
    };
    let unknown = |_: &'static str| json!("nonsense~");
    vec![with(known, false), with(known, true), with(unknown, true)]
}

/// Every command that reads answers, in every format, whatever the cluster; what it calls JSON is JSON.
#[test]
fn every_command_answers_in_every_format() {
    for cluster in [Cluster::new(None), idle(), down(), used()] {
        for found in command::all().filter(|c| matches!(c.handler, Handler::Read(_))) {
            for mut cmd in arguments(&Signature::parse(found.sig)) {
                let plain = cluster.run(&cmd);
                for format in ["json", "json-pretty"] {
                    cmd["format"] = json!(format);
                    let got = cluster.run(&cmd);
                    assert_eq!(got.code, plain.code, "{cmd}");
                    // Maps are bytes in every format; two lists in a row are no document, but they are what Ceph prints.
                    let other = [
                        "getmap",
                        "getcrushmap",
                        "blocklist",
                        "blacklist",
                        "min-compat-client",
                        "minimal-conf",
                    ];
                    let is_other =
                        other.iter().any(|o| found.sig.contains(o)) || found.sig.starts_with("auth");
                    if !is_other && !got.data.is_empty() {
                        let parsed: Result<Value, _> = serde_json::from_slice(&got.data);
                        assert!(parsed.is_ok(), "{cmd}: {:?}", String::from_utf8_lossy(&got.data));
                    }
                }
            }
        }
    }
}
