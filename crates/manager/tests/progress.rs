//! Events of recoveries and of changes of PG counts, from their cause to what is kept of them.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

mod common;

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use codec::{Decode, Encode};
use common::{ADMIN, OSDMAP, World, full_map, osd_conn, reports, text};
use manager::{Input, Output};
use maps::{AutoscaleMode, MgrMap, OsdMap};
use messages::Message;
use messages::common::MMgrCommand;
use messages::mgr::{HealthCheck, ProgressEvent};
use messages::mon::{MConfig, MMgrMap, MMonCommand, MMonCommandAck};
use messages::payload::RestOfFront;
use messages::pg_state::{ACTIVE, CLEAN, PEERING};
use messages::stats::PgStat;
use monitor::state::PgDigest;
use serde_json::{Value, json};
use types::{Epoch, PgId, PoolId};

const OSD: i32 = 1;
/// Why monitors refuse to change a pool that is gone.
const NO_POOL: &str = "unrecognized pool";

/// A cluster whose monitors keep what they are told to.
struct Cluster {
    w: World,
    map: OsdMap,
    kept: Option<Value>,
    asked: Vec<Value>,
    shown: BTreeMap<String, ProgressEvent>,
    checks: BTreeMap<String, HealthCheck>,
    /// Lines for the log.
    said: Vec<String>,
    /// Commands with this prefix are refused, with these words.
    refuse: Option<(&'static str, &'static str)>,
}

impl Cluster {
    fn new() -> Self {
        let w = World::recorded();
        let map = OsdMap::from_bytes(Bytes::from_static(OSDMAP)).unwrap();
        let (shown, checks) = (BTreeMap::new(), BTreeMap::new());
        let (asked, said) = (Vec::new(), Vec::new());
        let mut c = Self { w, map, kept: None, asked, shown, checks, said, refuse: None };
        c.w.input(Input::MonConnected { gid: 4_100 });
        c.monitors();
        c
    }

    /// The monitors answer all that they were asked, and take digests.
    fn monitors(&mut self) {
        loop {
            let sent = self.w.sent();
            let mut answers = Vec::new();
            for o in sent {
                match o {
                    Output::SendMon { tid, msg: Message::MonCommand(m) } => {
                        answers.push((tid, self.obey(&m)))
                    }
                    Output::SendMon { msg: Message::PgDigest(m), .. } => {
                        let digest = PgDigest::from_bytes(m.summary).unwrap();
                        (self.shown, self.checks) = (digest.progress, digest.checks);
                    }
                    Output::Warn(text) => self.said.push(text),
                    _ => {}
                }
            }
            if answers.is_empty() {
                return;
            }
            for (tid, ack) in answers {
                self.w.input(Input::FromMon { tid, msg: ack.into() });
            }
        }
    }

    fn obey(&mut self, m: &MMonCommand) -> MMonCommandAck {
        let cmd: Value = serde_json::from_str(&m.cmd[0]).unwrap();
        let ack = MMonCommandAck { status: "done".to_owned(), ..MMonCommandAck::default() };
        let is_progress = cmd["key"] == "mgr/progress/completed";
        if let Some((_, why)) = self.refuse.filter(|(prefix, _)| cmd["prefix"] == *prefix) {
            self.asked.push(cmd);
            let result = if why == NO_POOL { -2 } else { -22 };
            return MMonCommandAck { result, status: why.to_owned(), ..MMonCommandAck::default() };
        }
        match (cmd["prefix"].as_str().unwrap(), is_progress) {
            ("config-key get", true) => match &self.kept {
                Some(kept) => MMonCommandAck { output: kept.to_string().into(), ..ack },
                None => MMonCommandAck { result: -2, ..ack },
            },
            ("config-key set", true) => {
                self.kept = Some(serde_json::from_slice(&m.input).unwrap());
                ack
            }
            // Nobody may sign in to the dashboard.
            ("config-key get", false) => MMonCommandAck { result: -2, ..ack },
            // Crash reports are asked for with it.
            (get, _) if get.starts_with("config-key ") => ack,
            _ => {
                self.asked.push(cmd);
                ack
            }
        }
    }

    fn change_map(&mut self, edit: impl FnOnce(&mut OsdMap)) {
        self.map.epoch = self.map.epoch.next();
        edit(&mut self.map);
        self.w.mon_sends(full_map(self.map.to_bytes()));
        self.pass(1);
    }

    fn pass(&mut self, seconds: u64) {
        for _ in 0..seconds * 4 {
            self.w.advance(Duration::from_millis(250));
            self.monitors();
        }
    }

    /// All PGs that `which` names are reported anew, with this map and state.
    fn report(&mut self, epoch: Epoch, state: u64, which: impl Fn(PgId) -> bool, edit: impl Fn(&mut PgStat)) {
        for (osd, mut report) in reports() {
            report.epoch = epoch;
            report.pg_stats.retain(|pg, _| which(*pg));
            for stat in report.pg_stats.values_mut() {
                stat.reported_epoch = epoch;
                stat.reported_seq += 1_000;
                stat.state = state;
                edit(stat);
            }
            self.w.message(osd_conn(osd), report);
        }
    }

    fn said(&mut self, prefix: &str) -> String {
        let cmd = vec![json!({ "prefix": prefix }).to_string()];
        self.w.message(ADMIN, MMgrCommand { cmd, ..MMgrCommand::default() });
        // Those that go by the monitors are answered when these have.
        for _ in 0..3 {
            let sent = self.w.sent();
            for o in &sent {
                if let Output::Send { msg: Message::MgrCommandReply(r), .. } = o {
                    assert_eq!(r.result, 0, "{prefix}: {}", r.status);
                    return text(r) + &r.status;
                }
            }
            self.w.out = sent;
            self.monitors_keeping_replies();
        }
        panic!("no answer to {prefix}");
    }

    fn monitors_keeping_replies(&mut self) {
        let (commands, others): (Vec<Output>, Vec<Output>) = self
            .w
            .sent()
            .into_iter()
            .partition(|o| matches!(o, Output::SendMon { msg: Message::MonCommand(_), .. }));
        self.w.out = others;
        for o in commands {
            if let Output::SendMon { tid, msg: Message::MonCommand(m) } = o {
                let ack = self.obey(&m);
                self.w.input(Input::FromMon { tid, msg: ack.into() });
            }
        }
    }

    fn json(&mut self) -> Value {
        serde_json::from_str(&self.said("progress json")).unwrap()
    }

    /// Pool 8 has fewer PGs than it should have.
    fn with_few_pgs(mode: AutoscaleMode) -> Self {
        let mut c = Self::new();
        c.change_map(|map| {
            let p = map.pools.get_mut(&PoolId(8)).unwrap();
            (p.autoscale_mode, p.pg_num, p.pg_num_target) = (mode, 8, 8);
        });
        c
    }

    fn configure(&mut self, name: &str, value: &str) {
        let options = [(name.to_owned(), value.to_owned())].into();
        self.w.mon_sends(MConfig { options });
    }

    fn mark(&mut self, weight: u32) {
        self.change_map(|map| map.weights[OSD as usize] = weight);
    }
}

fn message(event: &Value) -> &str {
    event["message"].as_str().unwrap()
}

const OUT: &str = "Rebalancing after osd.1 marked out";
const IN: &str = "Rebalancing after osd.1 marked in";
const ALL: &str = "Global Recovery Event";

#[test]
fn an_osd_that_goes_out_is_followed_until_its_pgs_are_elsewhere() {
    let mut c = Cluster::new();
    let before = c.map.clone();
    c.mark(0);
    let out = c.map.epoch;
    let acting = |map: &OsdMap, pg: PgId| map.pg_to_up_acting(pg).acting;
    let moved: Vec<PgId> = before.pgs().filter(|pg| acting(&before, *pg) != acting(&c.map, *pg)).collect();
    assert!(moved.len() > 20, "{}", moved.len());
    let (first, rest) = moved.split_at(moved.len() / 2);
    let all = c.json();
    assert_eq!(all["events"].as_array().unwrap().len(), 1, "{all}");
    assert_eq!((message(&all["events"][0]), all["events"][0]["progress"].as_f64()), (OUT, Some(0.0)));
    assert_eq!(all["events"][0]["refs"], json!([["osd", 1]]));
    assert_eq!(all["events"][0]["time_remaining"], Value::Null);

    // Clean as they were before: that says nothing. What says that it is not clean is an event of its own.
    c.report(out, ACTIVE | PEERING, |pg| rest.contains(&pg), |_| ());
    c.pass(10);
    let events = c.json()["events"].clone();
    assert_eq!(events.as_array().unwrap().iter().map(message).collect::<Vec<_>>(), [OUT, ALL]);
    assert_eq!(events[0]["progress"].as_f64(), Some(0.0));
    c.report(out, ACTIVE | CLEAN, |pg| first.contains(&pg), |_| ());
    c.pass(10);
    let events = c.json()["events"].clone();
    let half = first.len() as f64 / moved.len() as f64;
    assert!((events[0]["progress"].as_f64().unwrap() - half).abs() < 1e-9, "{events}");
    assert!((events[1]["progress"].as_f64().unwrap() - half).abs() < 1e-9, "{events}");
    let left = events[0]["time_remaining"].as_u64().unwrap();
    assert!((15..30).contains(&left), "21 s for one half: {left}");
    let shown: Vec<(bool, &str)> =
        c.shown.values().map(|e| (e.add_to_ceph_s, e.message.lines().next().unwrap())).collect();
    assert!(shown.iter().all(|(status, text)| *status == text.starts_with(ALL)), "{shown:?}");
    assert!(c.said("progress").contains("(remaining: "));
    assert_eq!(c.kept, None);

    c.report(out, ACTIVE | CLEAN, |pg| rest.contains(&pg), |stat| stat.reported_seq += 1);
    c.pass(10);
    let after = c.json();
    assert_eq!(after["events"], json!([]));
    assert_eq!(after["completed"].as_array().unwrap().iter().map(message).collect::<Vec<_>>(), [OUT, ALL]);
    let kept = c.kept.as_ref().unwrap()["events"].as_array().unwrap();
    assert_eq!(kept.iter().map(message).collect::<Vec<_>>(), [OUT, ALL]);
    assert!(kept[0]["finished_at"].as_f64() > kept[0]["started_at"].as_f64());
    assert_eq!(c.shown, BTreeMap::new());
}

/// Bytes that a PG has recovered count as a part of it, but it has not arrived before it is clean.
#[test]
fn a_pg_on_its_way_counts_by_its_bytes() {
    let mut c = Cluster::new();
    let before = c.map.clone();
    c.mark(0);
    let acting = |map: &OsdMap, pg: PgId| map.pg_to_up_acting(pg).acting;
    let moved: Vec<PgId> = before.pgs().filter(|pg| acting(&before, *pg) != acting(&c.map, *pg)).collect();
    let out = c.map.epoch;
    let recovered = |part: i64| {
        move |stat: &mut PgStat| {
            stat.stats.sum.num_bytes = 1_000;
            stat.stats.sum.num_bytes_recovered += part;
            stat.reported_seq += part as u64;
        }
    };
    for (part, want) in [(250, 0.25), (900, 0.9), (5_000, 0.999)] {
        c.report(out, ACTIVE, |pg| moved.contains(&pg), recovered(part));
        c.pass(6);
        let got = c.json()["events"][0]["progress"].as_f64().unwrap();
        assert!((got - want).abs() < 1e-9, "{got} instead of {want}");
    }
}

#[test]
fn an_osd_that_comes_back_ends_its_event() {
    let mut c = Cluster::new();
    c.mark(0);
    // In part: nothing is said before it is wholly back.
    c.mark(0x8000);
    assert_eq!(c.json()["events"].as_array().unwrap().iter().map(message).collect::<Vec<_>>(), [OUT]);
    c.mark(0);
    c.mark(0x1_0000);
    let all = c.json();
    assert_eq!(message(&all["completed"][0]), OUT);
    let running: Vec<&str> = all["events"].as_array().unwrap().iter().map(message).collect();
    assert_eq!(running, [IN], "{all}");
}

#[test]
fn a_pool_that_is_deleted_has_arrived() {
    let mut c = Cluster::new();
    c.mark(0);
    assert_eq!(c.json()["events"].as_array().unwrap().len(), 1);
    c.change_map(|map| map.pools.clear());
    c.pass(6);
    assert_eq!(message(&c.json()["completed"][0]), OUT);
}

#[test]
fn it_can_be_switched_off_and_on_and_cleared() {
    let mut c = Cluster::new();
    c.mark(0);
    assert!(c.shown.len() == 1);
    assert_eq!(c.said("progress on"), "progress already enabled!");
    assert_eq!(c.said("progress off"), "progress disabled");
    let set =
        json!({ "prefix": "config set", "who": "mgr", "name": "mgr/progress/enabled", "value": "false" });
    assert_eq!(c.asked.last(), Some(&set));
    c.configure("mgr/progress/enabled", "false");
    assert_eq!(c.said("progress off"), "progress already disabled!");
    c.pass(6);
    assert_eq!((c.said("progress").as_str(), c.shown.len()), ("Nothing in progress", 0));
    assert_eq!(c.kept.as_ref().unwrap()["events"], json!([]));
    c.mark(0x1_0000);
    assert_eq!(c.json()["events"], json!([]), "it is off");
    assert_eq!(c.said("progress on"), "progress enabled");
    c.configure("mgr/progress/enabled", "true");
    c.mark(0);
    assert_eq!(message(&c.json()["events"][0]), OUT);
    assert_eq!(c.said("progress clear"), "");
    assert_eq!(c.json(), json!({ "completed": [], "events": [] }));
}

#[test]
fn what_another_manager_finished_is_kept() {
    let mut c = Cluster::new();
    let other = json!({ "id": "i", "message": "theirs", "refs": [], "started_at": 5.5, "finished_at": 9.5 });
    let role = |c: &mut Cluster, gid: u64| {
        let map =
            MgrMap { active_gid: gid, active_name: "x".to_owned(), available: true, ..MgrMap::initial() };
        c.w.mon_sends(MMgrMap { map: RestOfFront(map.to_bytes()) });
        c.monitors();
    };
    role(&mut c, 4_100);
    c.mark(0);
    role(&mut c, 7);
    c.kept = Some(json!({ "events": [other], "version": 2, "compat_version": 2 }));
    role(&mut c, 4_100);
    // Its sessions ended with its place.
    let admin = common::peer(types::EntityType::Client, 4_200, "allow *");
    c.w.input(Input::Connected { conn: ADMIN, peer: admin });
    let all = c.json();
    assert_eq!(all, json!({ "completed": [other], "events": [] }), "what this one saw before is over");
}

#[test]
fn a_pool_with_mode_on_gets_the_pgs_that_it_should_have() {
    let mut c = Cluster::new();
    let id = PoolId(8);
    c.change_map(|map| {
        map.pools.values_mut().for_each(|p| p.autoscale_mode = AutoscaleMode::WARN);
        let p = map.pools.get_mut(&id).unwrap();
        (p.autoscale_mode, p.pg_num, p.pg_num_target) = (AutoscaleMode::ON, 8, 8);
    });
    let name = c.map.pool_name(id).unwrap().to_owned();
    let set =
        |pool: &str, n: &str| json!({ "prefix": "osd pool set", "pool": pool, "var": "pg_num", "val": n });
    assert_eq!(c.asked, Vec::<Value>::new(), "nothing before it is known what is set");
    c.configure("mgr/pg_autoscaler/sleep_interval", "20");
    c.pass(1);
    assert_eq!(c.asked, [set(&name, "32")]);
    c.pass(10);
    let event = c.json()["events"][0].clone();
    assert_eq!(message(&event), "PG autoscaler increasing pool 8 PGs from 8 to 32");
    assert_eq!((event["progress"].as_f64(), &event["refs"]), (Some(0.0), &json!([["pool", 8]])));
    c.change_map(|map| map.pools.get_mut(&id).unwrap().pg_num_target = 32);
    for (pg_num, want) in [(14, 0.25), (20, 0.5)] {
        c.change_map(|map| map.pools.get_mut(&id).unwrap().pg_num = pg_num);
        c.pass(6);
        let events = c.json()["events"].clone();
        let of_pool = events.as_array().unwrap().iter().find(|e| message(e).contains("autoscaler")).unwrap();
        assert_eq!(of_pool["progress"], json!(want));
    }
    c.change_map(|map| map.pools.get_mut(&id).unwrap().pg_num = 32);
    c.pass(30);
    let done = c.json()["completed"]
        .as_array()
        .unwrap()
        .iter()
        .map(|e| (message(e).to_owned(), e["failed"].clone()))
        .collect::<Vec<_>>();
    assert!(
        done.contains(&("PG autoscaler increasing pool 8 PGs from 8 to 32".to_owned(), Value::Null)),
        "{done:?}"
    );
    assert_eq!(c.asked.len(), 1, "it has what it should have: {:?}", c.asked);
}

/// Monitors that refuse the command: the pool stays as it was, and the event says so.
#[test]
fn an_event_whose_command_was_refused_has_failed() {
    let mut c = Cluster::new();
    let id = PoolId(8);
    c.change_map(|map| {
        let p = map.pools.get_mut(&id).unwrap();
        (p.autoscale_mode, p.pg_num, p.pg_num_target) = (AutoscaleMode::ON, 8, 8);
    });
    c.configure("mgr/pg_autoscaler/sleep_interval", "1000");
    c.pass(50);
    assert_eq!(c.json()["completed"], json!([]));
    c.pass(20);
    let ended = c.json()["completed"][0].clone();
    assert_eq!((&ended["failed"], &ended["failure_message"]), (&json!(true), &json!("the pool has 8 PGs")));
    assert!(c.said("progress").contains("[Failed]: PG autoscaler"));
    c.configure("mgr/pg_autoscaler/noautoscale", "True");
    let before = c.asked.len();
    c.pass(1_100);
    assert_eq!(c.asked.len(), before, "it is switched off");
}

/// A pool whose PGs have not reported looks empty.
#[test]
fn pg_counts_stay_while_pgs_are_unknown() {
    let mut c = Cluster::new();
    let id = PoolId(8);
    let other = *c.map.pools.keys().find(|other| **other != id).unwrap();
    c.change_map(|map| {
        let p = map.pools.get_mut(&id).unwrap();
        (p.autoscale_mode, p.pg_num, p.pg_num_target) = (AutoscaleMode::ON, 8, 8);
        map.pools.get_mut(&other).unwrap().pg_num += 1;
    });
    c.configure("mgr/pg_autoscaler/sleep_interval", "20");
    c.pass(45);
    assert_eq!(c.asked, Vec::<Value>::new());
    c.change_map(|map| map.pools.get_mut(&other).unwrap().pg_num -= 1);
    c.pass(21);
    assert_eq!(c.asked.len(), 1, "{:?}", c.asked);
}

/// Monitors that say why they refuse the command: that is the event's reason, and a line of the log.
#[test]
fn a_refusal_is_said_once_and_is_the_events_reason() {
    let mut c = Cluster::with_few_pgs(AutoscaleMode::ON);
    c.refuse = Some(("osd pool set", "too many PGs for each OSD"));
    c.configure("mgr/pg_autoscaler/sleep_interval", "20");
    c.pass(1);
    let why = "too many PGs for each OSD (-22)";
    let all = c.json();
    assert_eq!(all["completed"][0]["failure_message"], why, "{all}");
    assert_eq!(all["events"], json!([]));
    assert_eq!(c.said.len(), 1, "{:?}", c.said);
    assert!(c.said[0].contains("pg_num") && c.said[0].ends_with(why), "{}", c.said[0]);
    c.pass(45);
    assert_eq!((c.asked.len(), c.said.len()), (3, 1), "each look asks; the log has it");
    assert_eq!(c.json()["completed"].as_array().unwrap().len(), 1);
    c.pass(30);
    assert_eq!(c.said.len(), 2, "after a minute it is said again");
}

/// What the monitors refused to keep is not taken for kept.
#[test]
fn what_is_over_is_sent_until_it_is_kept() {
    let mut c = Cluster::new();
    c.refuse = Some(("config-key set", "no quorum"));
    c.mark(0);
    c.mark(0x1_0000);
    c.pass(1);
    assert_eq!((c.asked.len(), &c.kept), (1, &None), "an event has ended");
    assert_eq!(c.said.len(), 1, "{:?}", c.said);
    c.pass(50);
    assert_eq!(c.asked.len(), 1, "it waits");
    c.refuse = None;
    c.pass(15);
    let kept = c.kept.as_ref().expect("it is sent again")["events"].clone();
    assert_eq!(message(&kept[0]), OUT);
}

/// The same of a switch and of `clear`: what was refused has not come about.
#[test]
fn what_the_monitors_refuse_to_set_stays_as_it_was() {
    let mut c = Cluster::new();
    c.mark(0);
    for (prefix, words) in [("config set", "progress off"), ("config-key set", "progress clear")] {
        c.refuse = Some((prefix, "not now"));
        let cmd = vec![json!({ "prefix": words }).to_string()];
        c.w.message(ADMIN, MMgrCommand { cmd, ..MMgrCommand::default() });
        c.monitors_keeping_replies();
        let sent = c.w.sent();
        let refusal = sent.iter().find_map(|o| match o {
            Output::Send { msg: Message::MgrCommandReply(r), .. } => Some((r.result, r.status.clone())),
            _ => None,
        });
        assert_eq!(refusal, Some((-22, "not now".to_owned())), "{words}");
        assert_eq!(message(&c.json()["events"][0]), OUT, "{words}");
    }
}

fn lines(check: &HealthCheck) -> (&str, Vec<&str>) {
    (&check.summary, check.detail.iter().map(String::as_str).collect())
}

#[test]
fn pools_that_are_not_scaled_are_told_of() {
    let mut c = Cluster::with_few_pgs(AutoscaleMode::WARN);
    let id = PoolId(8);
    let name = c.map.pool_name(id).unwrap().to_owned();
    c.configure("mgr/pg_autoscaler/sleep_interval", "20");
    c.pass(3);
    let line = format!("Pool {name} has 8 placement groups, should have 32");
    let want = ("1 pools have too few placement groups", vec![line.as_str()]);
    assert_eq!(lines(&c.checks["POOL_TOO_FEW_PGS"]), want);
    assert_eq!(c.asked, Vec::<Value>::new(), "nothing is done");
    let count = |c: &mut Cluster, n: u32| {
        c.change_map(|map| {
            let p = map.pools.get_mut(&id).unwrap();
            (p.pg_num, p.pg_num_target) = (n, n);
        });
    };
    // More than there are would not be known.
    c.change_map(|map| {
        let min = maps::OptValue::Int(4);
        map.pools.get_mut(&id).unwrap().opts.set("pg_num_min", min);
    });
    count(&mut c, 8);
    c.pass(25);
    let line = format!("Pool {name} has 8 placement groups, should have 4");
    let want = ("1 pools have too many placement groups", vec![line.as_str()]);
    assert_eq!(lines(&c.checks["POOL_TOO_MANY_PGS"]), want);
    assert!(!c.checks.contains_key("POOL_TOO_FEW_PGS"));
    count(&mut c, 4);
    c.pass(25);
    assert!(!c.checks.keys().any(|code| code.starts_with("POOL_TOO_")), "it has what it should have");
}

/// The words of 16.2.15's module, from the same sizes on a cluster of its own.
#[test]
fn sizes_that_pools_cannot_reach_are_told_of() {
    let mut c = Cluster::new();
    let id = PoolId(8);
    c.configure("mgr/pg_autoscaler/sleep_interval", "20");
    c.change_map(|map| {
        let opts = &mut map.pools.get_mut(&id).unwrap().opts;
        opts.set("target_size_bytes", maps::OptValue::Int(100 << 30));
    });
    c.pass(25);
    let name = c.map.pool_name(id).unwrap().to_owned();
    let (summary, detail) = lines(&c.checks["POOL_TARGET_SIZE_BYTES_OVERCOMMITTED"]);
    assert_eq!(summary, "1 subtrees have overcommitted pool target_size_bytes");
    assert!(detail[0].starts_with("Pools ['device_health_metrics', "), "{detail:?}");
    let end = format!("x due to target_size_bytes  200G on pools ['{name}']");
    assert!(
        detail[0].contains("] overcommit available storage by ") && detail[0].ends_with(&end),
        "{detail:?}"
    );
    c.change_map(|map| {
        let opts = &mut map.pools.get_mut(&id).unwrap().opts;
        opts.set("target_size_ratio", maps::OptValue::Double(0.5));
    });
    c.pass(25);
    let line = format!("Pool {name} has target_size_bytes and target_size_ratio set");
    let want = ("1 pools have both target_size_bytes and target_size_ratio set", vec![line.as_str()]);
    assert_eq!(lines(&c.checks["POOL_HAS_TARGET_SIZE_BYTES_AND_RATIO"]), want);
    assert!(!c.checks.contains_key("POOL_TARGET_SIZE_BYTES_OVERCOMMITTED"), "the ratio goes first");
}

#[test]
fn the_autoscaler_is_switched_off_for_all_pools() {
    let mut c = Cluster::with_few_pgs(AutoscaleMode::ON);
    c.configure("mgr/pg_autoscaler/sleep_interval", "20");
    c.pass(3);
    assert_eq!(c.json()["events"].as_array().unwrap().len(), 1);
    c.asked.clear();
    assert_eq!(c.said("osd pool get noautoscale"), "noautoscale is off");
    assert_eq!(c.said("osd pool unset noautoscale"), "noautoscale is already unset!");
    assert_eq!(c.said("osd pool set noautoscale"), "noautoscale is set, all pools now have autoscale off");
    let option = |who: &str, name: &str, value: &str| json!({ "prefix": "config set", "who": who, "name": name, "value": value });
    let mut want = vec![
        option("mgr", "mgr/pg_autoscaler/noautoscale", "true"),
        option("global", "osd_pool_default_pg_autoscale_mode", "off"),
    ];
    let names = c.map.pools.keys().map(|id| c.map.pool_name(*id).unwrap());
    want.extend(names.map(
        |pool| json!({ "prefix": "osd pool set", "pool": pool, "var": "pg_autoscale_mode", "val": "off" }),
    ));
    assert_eq!(c.asked, want);
    assert_eq!(c.json()["events"], json!([]), "its events are over");
    assert_eq!(c.said("osd pool get noautoscale"), "noautoscale is on");
    assert_eq!(c.said("osd pool set noautoscale"), "noautoscale is already set!");
    c.configure("mgr/pg_autoscaler/noautoscale", "true");
    let unset = |c: &mut Cluster, why: &'static str| {
        c.refuse = Some(("osd pool set", why));
        c.w.sent();
        let cmd = vec![json!({ "prefix": "osd pool unset noautoscale" }).to_string()];
        c.w.message(ADMIN, MMgrCommand { cmd, ..MMgrCommand::default() });
        c.monitors_keeping_replies();
        let replies = c.w.sent().into_iter().filter_map(|o| match o {
            Output::Send { msg: Message::MgrCommandReply(r), .. } => Some((r.result, r.status)),
            _ => None,
        });
        replies.collect::<Vec<_>>()
    };
    assert_eq!(unset(&mut c, "not now"), [(-22, "not now".to_owned())], "what was refused is said");
    assert_eq!(c.said("osd pool get noautoscale"), "noautoscale is on");
    // Pools that were deleted meanwhile.
    let done = "noautoscale is unset, all pools now have autoscale on";
    assert_eq!(unset(&mut c, NO_POOL), [(0, done.to_owned())]);
    assert_eq!(c.said("osd pool get noautoscale"), "noautoscale is off");
}
