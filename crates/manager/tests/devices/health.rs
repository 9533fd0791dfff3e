//! What disks tell of their health: asked of OSDs, kept in a pool, and warned of.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use codec::{Decode, Encode};
use manager::job::{Failed, Found, Job};
use manager::{Input, Output};
use maps::{MgrClient, MgrMap, OsdMap};
use messages::Message;
use messages::common::{MMgrCommand, MMgrCommandReply};
use messages::mon::{MConfig, MMgrMap, MMonCommand, MMonCommandAck};
use messages::payload::RestOfFront;
use monitor::command::Reply;
use monitor::state::PgDigest;
use serde_json::{Value, json};
use types::{AddrKind, AddrVec, EntityAddr, Epoch, Errno, OsdId, PoolId};

use crate::common::{ADMIN, OSDMAP, World, full_map, osd_conn, reports, text};

const POOL: &str = "disks";

/// Three OSDs with a disk each, monitors that keep what they are told to, and a client that asks OSDs and keeps
/// what they say.
struct Cluster {
    w: World,
    map: OsdMap,
    /// Of the config-key store.
    kept: BTreeMap<String, String>,
    config: BTreeMap<String, String>,
    /// Commands that change something.
    commands: Vec<Value>,
    /// Values by object and key.
    samples: BTreeMap<(String, String), String>,
    /// What each OSD's disks tell; an OSD that is not here does not answer.
    told: BTreeMap<i32, Value>,
    asked: Vec<Value>,
    replies: BTreeMap<u64, MMgrCommandReply>,
    digest: Option<PgDigest>,
    refuse_pool: bool,
    said: Vec<String>,
    tid: u64,
}

fn addrs() -> AddrVec {
    AddrVec::single(EntityAddr::parse("v2:127.0.0.1:0/9", AddrKind::Msgr2).unwrap())
}

impl Cluster {
    fn new() -> Self {
        let mut w = World::new();
        let disks = |osd: i32| json!({ "id": osd, "hostname": "h", "device_ids": format!("sd{osd}=D{osd}") });
        w.osd_metadata = (0..3).map(disks).collect::<Value>().to_string();
        let mut map = OsdMap::from_bytes(Bytes::from_static(OSDMAP)).unwrap();
        for pool in map.pools.values_mut() {
            pool.application_metadata.remove("rbd");
        }
        let told = (0..3).map(|osd| (osd, json!({ format!("D{osd}"): { "n": osd } }))).collect();
        let config = [("mgr/devicehealth/pool_name".to_owned(), POOL.to_owned())].into();
        let (kept, commands, samples, asked, replies, digest, refuse_pool, said, tid) = Default::default();
        let mut c = Self {
            w,
            map,
            kept,
            config,
            commands,
            samples,
            told,
            asked,
            replies,
            digest,
            refuse_pool,
            said,
            tid,
        };
        c.w.input(Input::MonConnected { gid: 4_100 });
        c.w.mon_sends(full_map(c.map.to_bytes()));
        c.w.mon_sends(MConfig { options: c.config.clone().into_iter().collect() });
        c.in_charge(4_100);
        c.go();
        c
    }

    fn in_charge(&mut self, gid: u64) {
        let clients = vec![MgrClient { name: "rbd_support".to_owned(), addrs: addrs() }];
        let map = MgrMap { epoch: Epoch(10), active_gid: gid, clients, ..MgrMap::initial() };
        self.w.mon_sends(MMgrMap { map: RestOfFront(map.to_bytes()) });
        for (osd, report) in reports() {
            self.w.connect_osd(osd);
            self.w.message(osd_conn(osd), report);
        }
        let admin = crate::common::peer(types::EntityType::Client, 4_200, "allow *");
        self.w.input(Input::Connected { conn: ADMIN, peer: admin });
    }

    fn go(&mut self) {
        let mut quiet = 0;
        while quiet < 3 {
            self.w.advance(Duration::from_millis(250));
            let mut answers = Vec::new();
            for o in self.w.sent() {
                self.take(o, &mut answers);
            }
            quiet = if answers.is_empty() { quiet + 1 } else { 0 };
            answers.into_iter().for_each(|input| self.w.input(input));
        }
    }

    fn wait(&mut self, secs: u64) {
        for _ in 0..secs {
            self.w.advance(Duration::from_millis(250));
            self.go();
        }
    }

    fn take(&mut self, o: Output, answers: &mut Vec<Input>) {
        match o {
            Output::StartClient { start } => answers.push(Input::Client { start, started: Ok(addrs()) }),
            Output::SendMon { msg: Message::MgrBeacon(b), .. } if !b.client_addrs.is_empty() => {
                let clients = vec![MgrClient { name: "rbd_support".to_owned(), addrs: addrs() }];
                let map = MgrMap { epoch: Epoch(11), active_gid: 4_100, clients, ..MgrMap::initial() };
                self.w.mon_sends(MMgrMap { map: RestOfFront(map.to_bytes()) });
            }
            Output::SendMon { msg: Message::PgDigest(m), .. } => {
                self.digest = Some(PgDigest::from_bytes(m.summary).unwrap());
            }
            Output::SendMon { tid, msg: Message::MonCommand(m) } => {
                let ack = self.obey(&m, answers);
                answers.insert(0, Input::FromMon { tid, msg: ack.into() });
            }
            Output::Job { id, job } => answers.push(Input::JobDone { id, result: self.perform(job) }),
            Output::Send { conn: ADMIN, tid, msg: Message::MgrCommandReply(r) } => {
                self.replies.insert(tid, r);
            }
            Output::Warn(line) => self.said.push(line),
            _ => {}
        }
    }

    fn obey(&mut self, m: &MMonCommand, answers: &mut Vec<Input>) -> MMonCommandAck {
        let cmd: Value = serde_json::from_str(&m.cmd[0]).unwrap();
        let word = |name: &str| cmd[name].as_str().unwrap_or_default().to_owned();
        let key = word("key");
        let no = |errno: Errno| MMonCommandAck { result: -errno.0, ..MMonCommandAck::default() };
        let mut ack = MMonCommandAck::default();
        match word("prefix").as_str() {
            "config-key dump" => ack.output = json!(self.kept).to_string().into(),
            "config-key get" => match self.kept.get(&key) {
                Some(value) => ack.output = value.clone().into(),
                None => return no(Errno::ENOENT),
            },
            "config-key set" => {
                self.kept.insert(key, String::from_utf8(m.input.to_vec()).unwrap());
            }
            "config set" => {
                self.config.insert(word("name"), word("value"));
                let options = self.config.clone().into_iter().collect();
                answers.push(Input::FromMon { tid: 0, msg: MConfig { options }.into() });
            }
            "osd pool create" if self.refuse_pool => return no(Errno::EPERM),
            "osd pool create" | "osd pool application enable" => {
                self.pool(&word("app"));
                answers.push(Input::FromMon { tid: 0, msg: full_map(self.map.to_bytes()).into() });
                self.commands.push(cmd);
            }
            _ => self.commands.push(cmd),
        }
        ack
    }

    fn pool(&mut self, application: &str) {
        self.map.epoch = Epoch(self.map.epoch.0 + 1);
        let id = PoolId(100);
        let like = self.map.pools.values().next().unwrap().clone();
        self.map.pool_names.insert(id, POOL.to_owned());
        let pool = self.map.pools.entry(id).or_insert(like);
        pool.application_metadata.clear();
        if !application.is_empty() {
            pool.application_metadata.insert(application.to_owned(), BTreeMap::new());
        }
    }

    fn perform(&mut self, job: Job) -> Result<Found, Failed> {
        match job {
            Job::Tell { osd: OsdId(osd), json, .. } => {
                let command: Value = serde_json::from_str(&json).unwrap();
                self.asked.push(json!([osd, command["devid"]]));
                assert_eq!(command["prefix"], "smart");
                let none = || Failed { errno: Errno::ETIMEDOUT, why: "it does not answer".to_owned() };
                self.told.get(&osd).map(|told| Found::Said(Reply::text(told.to_string()))).ok_or_else(none)
            }
            Job::Sample { pool: PoolId(100), object, key, value, from, most: 500 } => {
                self.samples.retain(|(of, key), _| *of != object || *key >= from);
                self.samples.insert((object, key), value);
                Ok(Found::Nothing)
            }
            Job::Values { pool: PoolId(100), object, prefix, most: 500 } => {
                let here =
                    self.samples.iter().filter(|((of, key), _)| *of == object && key.starts_with(&prefix));
                let keys = here.map(|((_, key), value)| (key.clone().into(), value.clone().into())).collect();
                Ok(Found::Keys { keys: [(String::new(), keys)].into(), cut: [].into(), is_whole: true })
            }
            other => panic!("{other:?}"),
        }
    }

    fn run(&mut self, command: &Value) -> (i32, String) {
        self.tid += 1;
        let msg = MMgrCommand { cmd: vec![command.to_string()], ..MMgrCommand::default() };
        self.w.input(Input::Message { conn: ADMIN, tid: 1_000 + self.tid, msg: msg.into() });
        self.go();
        let reply = self.replies.remove(&(1_000 + self.tid)).expect("an answer");
        (reply.result, text(&reply) + &reply.status)
    }

    fn device(&mut self, what: &str, argument: (&str, &str)) -> (i32, String) {
        self.run(&json!({ "prefix": format!("device {what}"), argument.0: argument.1 }))
    }

    fn expect(&mut self, disk: &str, days: u32) {
        let at = |days: u32| {
            let sec = self.w.now.wall.sec + days * 86_400;
            types::Utime::new(sec, 0).to_string().replace("+0000", "")
        };
        let command =
            json!({ "prefix": "device set-life-expectancy", "devid": disk, "from": at(1), "to": at(days) });
        assert_eq!(self.run(&command).0, 0);
    }

    fn warned(&mut self) -> Vec<String> {
        self.wait(3);
        let checks = &self.digest.as_ref().expect("a digest").checks;
        checks.keys().filter(|code| code.starts_with("DEVICE")).cloned().collect()
    }
}

fn ok() -> (i32, String) {
    (0, String::new())
}

#[test]
fn osds_are_asked_and_what_disks_tell_is_kept_by_time() {
    let mut c = Cluster::new();
    assert_eq!(
        c.device("query-daemon-health-metrics", ("who", "osd.1")),
        (0, "{\"D1\":{\"n\":1}}\n".to_owned())
    );
    assert_eq!(c.asked, [json!([1, null])]);
    assert_eq!(
        c.device("query-daemon-health-metrics", ("who", "osd.77")),
        (-6, "osd.77 is not up".to_owned())
    );
    let bad = (-22, "not a valid mon or osd daemon name".to_owned());
    assert_eq!(c.device("query-daemon-health-metrics", ("who", "mds.a")), bad);
    assert_eq!(c.device("get-health-metrics", ("devid", "none")), (-2, "device none not found".to_owned()));
    assert_eq!(c.device("get-health-metrics", ("devid", "D1")), (0, "{}\n".to_owned()), "there is no pool");
    assert!(c.commands.is_empty(), "and none is made for that: {:?}", c.commands);

    c.asked.clear();
    assert_eq!(c.device("scrape-health-metrics", ("devid", "D2")), ok());
    assert_eq!(c.asked, [json!([2, "D2"])]);
    let made = json!({ "prefix": "osd pool create", "format": "json", "pool": POOL, "pg_num": 1,
        "pg_num_min": 1, "pg_num_max": 32 });
    let enabled = json!({ "prefix": "osd pool application enable", "format": "json", "pool": POOL,
        "app": "mgr_devicehealth" });
    assert_eq!(c.commands, [made, enabled]);
    let (at, value) = c.samples.iter().next().expect("a sample");
    assert_eq!((at.0.as_str(), at.1.len(), value.as_str()), ("D2", 15, r#"{"n": 2}"#), "as Python writes it");
    let key = at.1.clone();
    c.told.remove(&1);
    c.wait(2);
    assert_eq!(c.run(&json!({ "prefix": "device scrape-health-metrics" })), ok(), "one does not answer");
    let of = |c: &Cluster, disk: &str| c.samples.keys().filter(|(of, _)| of == disk).count();
    assert_eq!(["D0", "D1", "D2"].map(|disk| of(&c, disk)), [1, 0, 2]);
    let shown: Value = serde_json::from_str(&c.device("get-health-metrics", ("devid", "D2")).1).unwrap();
    assert_eq!((shown.as_object().unwrap().len(), &shown[&key]), (2, &json!({ "n": 2 })));
    let one = json!({ "prefix": "device get-health-metrics", "devid": "D2", "sample": key });
    let lines = format!("{{\n    \"{key}\": {{\n        \"n\": 2\n    }}\n}}\n");
    assert_eq!(c.run(&one), (0, lines));
    // What is older than it is kept goes with the next sample.
    c.config.insert("mgr/devicehealth/retention_period".to_owned(), "60".to_owned());
    c.config.insert("mgr/devicehealth/enable_monitoring".to_owned(), "false".to_owned());
    c.w.mon_sends(MConfig { options: c.config.clone().into_iter().collect() });
    c.wait(61);
    assert_eq!(c.device("scrape-daemon-health-metrics", ("who", "osd.2")), ok());
    assert_eq!((of(&c, "D2"), of(&c, "D0")), (1, 1));
}

#[test]
fn wear_that_disks_tell_is_kept_with_the_monitors() {
    let mut c = Cluster::new();
    let worn = json!({ "nvme_smart_health_information_log": { "percentage_used": 3 } });
    c.told.insert(0, json!({ "D0": worn }));
    assert_eq!(c.run(&json!({ "prefix": "device scrape-health-metrics" })), ok());
    assert_eq!(c.kept["device/D0"], r#"{"wear_level":"0.03"}"#);
    assert!(!c.kept.contains_key("device/D1"));
    assert!(c.run(&json!({ "prefix": "device ls" })).1.contains(" 3%"));
}

#[test]
fn without_a_pool_nothing_is_asked() {
    let mut c = Cluster::new();
    c.config.insert("osd_pool_default_size".to_owned(), "4".to_owned());
    c.w.mon_sends(MConfig { options: c.config.clone().into_iter().collect() });
    let scrape = json!({ "prefix": "device scrape-health-metrics" });
    assert_eq!(c.run(&scrape), (-11, "disks pool not yet available".to_owned()));
    c.config.insert("osd_pool_default_size".to_owned(), "3".to_owned());
    c.w.mon_sends(MConfig { options: c.config.clone().into_iter().collect() });
    c.refuse_pool = true;
    assert_eq!(c.run(&scrape), (-11, "error -1".to_owned()));
    assert!(c.asked.is_empty());
    c.refuse_pool = false;
    assert_eq!(c.run(&scrape), ok());
}

#[test]
fn disks_are_asked_by_themselves_once_in_a_period() {
    let mut c = Cluster::new();
    c.wait(40);
    assert_eq!(c.samples.len(), 3);
    let last = c.kept["mgr/devicehealth/last_scrape"].clone();
    c.wait(700);
    assert_eq!(c.samples.len(), 3, "a day has not passed");
    // The next manager goes on from there.
    c.in_charge(9);
    c.go();
    c.in_charge(4_100);
    c.asked.clear();
    c.wait(100);
    assert_eq!((c.asked.len(), c.kept["mgr/devicehealth/last_scrape"] == last), (0, true));
    assert_eq!(c.run(&json!({ "prefix": "device monitoring off" })), ok());
    assert_eq!(c.config["mgr/devicehealth/enable_monitoring"], "false");
    c.kept.insert("mgr/devicehealth/last_scrape".to_owned(), "20200101-000000".to_owned());
    c.in_charge(9);
    c.in_charge(4_100);
    c.wait(100);
    assert!(c.asked.is_empty());
    assert_eq!(c.run(&json!({ "prefix": "device monitoring on" })), ok());
    c.wait(5);
    assert_eq!(c.asked.len(), 3);
}

#[test]
fn a_cluster_without_disks_is_left_alone() {
    let mut c = Cluster::new();
    c.w.osd_metadata = "[]".to_owned();
    c.wait(700);
    assert!(c.commands.is_empty() && c.asked.is_empty() && c.kept.is_empty());
}

#[test]
fn disks_that_are_to_fail_are_warned_of_and_their_osds_go_in_time() {
    let mut c = Cluster::new();
    let check = json!({ "prefix": "device check-health" });
    c.expect("D0", 80);
    assert_eq!(c.run(&check), ok());
    assert_eq!(c.warned(), ["DEVICE_HEALTH"]);
    let warning = c.digest.as_ref().unwrap().checks["DEVICE_HEALTH"].clone();
    assert_eq!(
        (warning.summary.as_str(), warning.severity, warning.count),
        ("1 device(s) expected to fail soon", 1, 1)
    );
    assert!(
        warning.detail[0].starts_with("D0 (h:sd0); daemons osd.0; life expectancy between 20"),
        "{warning:?}"
    );
    assert!(c.commands.is_empty());
    // Of three OSDs three quarters have to stay in.
    c.expect("D1", 20);
    assert_eq!(c.run(&check), ok());
    assert_eq!(c.warned(), ["DEVICE_HEALTH", "DEVICE_HEALTH_TOOMANY"]);
    let line =
        "1 OSDs with failing device(s) would bring \"in\" ratio to 0.666667 < mon_osd_min_in_ratio 0.750000";
    assert_eq!(c.digest.as_ref().unwrap().checks["DEVICE_HEALTH_TOOMANY"].detail, [line]);
    c.config.insert("mon_osd_min_in_ratio".to_owned(), "0.5".to_owned());
    c.w.mon_sends(MConfig { options: c.config.clone().into_iter().collect() });
    assert_eq!(c.run(&check), ok());
    let out = json!({ "prefix": "osd out", "format": "json", "ids": ["1"] });
    let last = json!({ "prefix": "osd primary-affinity", "format": "json", "id": 1, "weight": 0.0 });
    assert_eq!(c.commands, [out, last]);
    // It is out, and has PGs still.
    c.map.weights[1] = 0;
    c.map.epoch = Epoch(c.map.epoch.0 + 1);
    c.w.mon_sends(full_map(c.map.to_bytes()));
    c.commands.clear();
    assert_eq!(c.run(&check), ok());
    assert_eq!(c.warned(), ["DEVICE_HEALTH", "DEVICE_HEALTH_IN_USE"]);
    let line = &c.digest.as_ref().unwrap().checks["DEVICE_HEALTH_IN_USE"].detail[0];
    assert!(line.starts_with("osd.1 is marked out but still has ") && line.ends_with(" PG(s)"), "{line}");
    assert!(c.commands.is_empty());
    assert_eq!(c.run(&json!({ "prefix": "device monitoring off" })), ok());
    assert_eq!(c.warned(), Vec::<String>::new());
}

#[test]
fn nobody_predicts() {
    let mut c = Cluster::new();
    let why = "unable to enable any disk prediction model[local/cloud]".to_owned();
    assert_eq!(c.device("predict-life-expectancy", ("devid", "D0")), (-1, why));
}
