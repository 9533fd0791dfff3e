//! What Prometheus is told: the series of a recorded cluster, what hostile daemons can do to them, the
//! history of health checks, and where it is served. What a large cluster costs: `large.rs`.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

mod common;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use codec::{Encode, Writer};
use common::{ADMIN, World, osd_conn, peer};
use manager::prometheus::{MetricsAt, Role};
use manager::{Ask, Input, Output};
use maps::{MgrMap, ModuleInfo, Standby};
use messages::Message;
use messages::mgr::{MMgrBeacon, MMgrOpen, MMgrReport, PerfCounterType, ServiceInfo};
use messages::mon::{MConfig, MMgrMap, MMonCommand, MMonCommandAck};
use messages::payload::RestOfFront;
use serde_json::{Value, json};
use testkit::exposition::{Families, check, parse};
use types::{AddrVec, ConnId, EntityAddr, EntityType, Errno};

const GID: u64 = 4_100;
const HISTORY: &str = "mgr/prometheus/health_history";

/// A manager in charge, and monitors that answer it.
struct Cluster {
    w: World,
    health: Value,
    /// What is kept of the history.
    kept: Option<String>,
    /// The monitors say nothing.
    silent: bool,
    asked: Vec<String>,
    served: Vec<Option<MetricsAt>>,
    warned: Vec<String>,
    beacons: Vec<MMgrBeacon>,
    answers: BTreeMap<u64, (i32, String)>,
    replies: Vec<(i32, String)>,
    asks: u64,
}

impl Cluster {
    fn new() -> Self {
        let mut c = Self::silent(World::recorded());
        c.silent = false;
        c.w.input(Input::MonConnected { gid: GID });
        c.go_on();
        c.takes_charge(&["prometheus"]);
        c
    }

    fn silent(mut w: World) -> Self {
        w.tells_metadata = false;
        Self {
            w,
            health: json!({ "status": "HEALTH_OK", "checks": {}, "mutes": [] }),
            kept: None,
            silent: true,
            asked: Vec::new(),
            served: Vec::new(),
            warned: Vec::new(),
            beacons: Vec::new(),
            answers: BTreeMap::new(),
            replies: Vec::new(),
            asks: 0,
        }
    }

    fn takes_charge(&mut self, modules: &[&str]) {
        self.map(GID, modules);
        // Its earlier sessions ended.
        let admin = peer(EntityType::Client, 4_200, "allow *");
        self.w.input(Input::Connected { conn: ADMIN, peer: admin });
        self.w.connect_osd(0);
    }

    fn map(&mut self, active_gid: u64, modules: &[&str]) {
        self.map_at(active_gid, modules, AddrVec::default());
    }

    /// The manager in charge has these addresses.
    fn map_at(&mut self, active_gid: u64, modules: &[&str], active_addrs: AddrVec) {
        let modules = modules.iter().map(|m| (*m).to_owned()).collect();
        let standby = |gid, name: &str| Standby { gid, name: name.to_owned(), ..Standby::default() };
        let standbys = match active_gid {
            GID => [(9, standby(9, "y"))].into(),
            _ => [(GID, standby(GID, "x"))].into(),
        };
        let active_name = if active_gid == GID { "x" } else { "y" };
        let map = MgrMap {
            active_gid,
            active_name: active_name.to_owned(),
            active_addrs,
            available: true,
            modules,
            standbys,
            available_modules: vec![ModuleInfo::new("balancer"), ModuleInfo::new("prometheus")],
            services: [("prometheus".to_owned(), "http://10.0.0.9:9283/".to_owned())].into(),
            ..MgrMap::initial()
        };
        self.w.mon_sends(MMgrMap { map: RestOfFront(map.to_bytes()) });
        self.go_on();
    }

    fn go_on(&mut self) {
        loop {
            let mut inputs = Vec::new();
            for o in self.w.sent() {
                match o {
                    Output::SendMon { tid, msg: Message::MonCommand(m) } => {
                        let ack = self.obey(&m);
                        if !self.silent {
                            inputs.push(Input::FromMon { tid, msg: ack.into() });
                        }
                    }
                    Output::SendMon { msg: Message::MgrBeacon(m), .. } => self.beacons.push(*m),
                    Output::Metrics(at) => self.served.push(at.map(|at| *at)),
                    Output::Warn(text) => self.warned.push(text),
                    Output::Answer { id, reply } => {
                        let said = String::from_utf8_lossy(&reply.data).into_owned() + &reply.outs;
                        self.answers.insert(id, (reply.code, said));
                    }
                    Output::Send { msg: Message::MgrCommandReply(m), .. } => {
                        let said = String::from_utf8_lossy(&m.output).into_owned() + &m.status;
                        self.replies.push((m.result, said));
                    }
                    _ => {}
                }
            }
            if inputs.is_empty() {
                return;
            }
            inputs.into_iter().for_each(|i| self.w.input(i));
        }
    }

    fn obey(&mut self, m: &MMonCommand) -> MMonCommandAck {
        let cmd: Value = serde_json::from_str(&m.cmd[0]).unwrap();
        let prefix = cmd["prefix"].as_str().unwrap();
        self.asked.push(prefix.to_owned());
        let ack = |output: String| MMonCommandAck { output: output.into(), ..MMonCommandAck::default() };
        let daemon = |id: Value| json!({ "id": id, "hostname": "h", "ceph_version": "v 16", "osd_objectstore": "loligo" });
        match (prefix, cmd["key"] == HISTORY) {
            ("health", _) => ack(self.health.to_string()),
            ("quorum_status", _) => {
                let mon =
                    |rank, name| json!({ "rank": rank, "name": name, "public_addr": "10.0.0.1:6789/0" });
                ack(json!({ "quorum": [0], "monmap": { "mons": [mon(0, "a"), mon(1, "b")] } }).to_string())
            }
            ("osd metadata", _) => {
                ack(json!([daemon(json!(0)), daemon(json!(1)), daemon(json!(2))]).to_string())
            }
            ("mon metadata" | "mds metadata", _) => {
                ack(json!([{ "name": "a", "hostname": "h" }]).to_string())
            }
            ("mgr metadata", _) => {
                ack(json!([{ "name": "x", "hostname": "h" }, { "name": "y", "hostname": "i" }]).to_string())
            }
            ("config-key get", true) => match &self.kept {
                Some(kept) => ack(kept.clone()),
                None => MMonCommandAck { result: Errno::ENOENT.neg(), ..MMonCommandAck::default() },
            },
            ("config-key set", true) => {
                self.kept = Some(String::from_utf8(m.input.to_vec()).unwrap());
                ack(String::new())
            }
            ("config-key get", false) => {
                MMonCommandAck { result: Errno::ENOENT.neg(), ..MMonCommandAck::default() }
            }
            ("fsid", _) => ack("the-id".to_owned()),
            _ => ack(String::new()),
        }
    }

    fn configure(&mut self, options: &[(&str, &str)]) {
        let options = options.iter().map(|(n, v)| (format!("mgr/prometheus/{n}"), (*v).to_owned())).collect();
        self.w.mon_sends(MConfig { options });
        self.go_on();
    }

    fn ask(&mut self) -> u64 {
        self.asks += 1;
        self.w.input(Input::Ask { id: self.asks, ask: Ask::Metrics });
        self.go_on();
        self.asks
    }

    /// All series; what Prometheus would refuse is no answer.
    fn series(&mut self) -> Families {
        let id = self.ask();
        let (code, text) = self.answers.remove(&id).expect("an answer");
        assert_eq!(code, 0, "{text}");
        let all = parse(&text).unwrap();
        check(&all).unwrap();
        all
    }

    fn command(&mut self, cmd: Value) -> (i32, String) {
        let reply = self.w.command(&cmd.to_string());
        if let Some(reply) = reply {
            return (reply.result, common::text(&reply) + &reply.status);
        }
        self.go_on();
        self.replies.pop().expect("an answer")
    }

    /// A daemon opens a session and declares counters.
    fn counts(&mut self, conn: ConnId, service: &str, id: &str, counters: &[(&str, u8, u8, [u64; 2])]) {
        let service_of = if service == "osd" { "" } else { service };
        let service_info = (service != "osd").then(ServiceInfo::default);
        let open = MMgrOpen {
            service_name: service_of.to_owned(),
            daemon_name: id.to_owned(),
            service: service_info,
            ..MMgrOpen::default()
        };
        self.w.message(conn, open);
        let mut sorted: Vec<_> = counters.to_vec();
        sorted.sort_by_key(|c| c.0);
        let declare = |(path, kind, priority, _): &(&str, u8, u8, [u64; 2])| PerfCounterType {
            path: (*path).to_owned(),
            description: format!("what {path} is"),
            kind: *kind,
            priority: *priority,
            ..PerfCounterType::default()
        };
        let mut w = Writer::new();
        w.envelope(1, 1, |w| {
            for (_, kind, _, [value, count]) in &sorted {
                w.u64(*value);
                if kind & AVERAGE != 0 {
                    w.u64(*count);
                    w.u64(*count);
                }
            }
        });
        let report = MMgrReport {
            service_name: service_of.to_owned(),
            daemon_name: id.to_owned(),
            declare_types: counters.iter().map(declare).collect(),
            packed: w.into_bytes(),
            ..MMgrReport::default()
        };
        self.w.message(conn, report);
        self.go_on();
    }
}

const TIME: u8 = 1;
const NUMBER: u8 = 2;
const AVERAGE: u8 = 4;
const COUNTER: u8 = 8;

#[test]
fn a_recorded_cluster_has_the_series_of_cephs_module() {
    let mut c = Cluster::new();
    c.counts(
        osd_conn(0),
        "osd",
        "0",
        &[
            ("osd.op", NUMBER | COUNTER, 10, [7, 0]),
            ("osd.op_latency", TIME | AVERAGE, 10, [3_500_000_000, 2]),
            ("osd.numpg", NUMBER, 5, [9, 0]),
            ("osd.quiet", NUMBER, 4, [1, 0]),
        ],
    );
    let all = c.series();
    let value = |name: &str, labels: &[(&str, &str)]| {
        all.get(name).unwrap_or_else(|| panic!("{name} is missing")).value(labels)
    };
    assert_eq!(value("ceph_health_status", &[]), Some(0.0));
    assert_eq!(value("ceph_mon_quorum_status", &[("ceph_daemon", "mon.a")]), Some(1.0));
    assert_eq!(value("ceph_mon_quorum_status", &[("ceph_daemon", "mon.b")]), Some(0.0));
    assert_eq!(value("ceph_mgr_status", &[("ceph_daemon", "mgr.x")]), Some(1.0));
    assert_eq!(value("ceph_mgr_metadata", &[("ceph_daemon", "mgr.y"), ("hostname", "i")]), Some(1.0));
    assert_eq!(value("ceph_mgr_module_status", &[("name", "balancer")]), Some(2.0));
    assert_eq!(value("ceph_mgr_module_status", &[("name", "prometheus")]), Some(1.0));
    assert_eq!(value("ceph_osd_up", &[("ceph_daemon", "osd.2")]), Some(1.0));
    assert_eq!(
        value("ceph_osd_metadata", &[("ceph_daemon", "osd.2"), ("public_addr", "127.0.0.1")]),
        Some(1.0)
    );
    assert_eq!(value("ceph_osd_flag_nodeep_scrub", &[]), Some(0.0));
    assert_eq!(value("ceph_osd_op", &[("ceph_daemon", "osd.0")]), Some(7.0));
    assert_eq!(value("ceph_osd_op_latency_sum", &[("ceph_daemon", "osd.0")]), Some(3.5));
    assert_eq!(value("ceph_osd_op_latency_count", &[("ceph_daemon", "osd.0")]), Some(2.0));
    assert_eq!(all["ceph_osd_op_latency_sum"].help, "what osd.op_latency is Total");
    assert_eq!((all["ceph_osd_numpg"].kind.as_str(), all["ceph_osd_op"].kind.as_str()), ("gauge", "counter"));
    assert!(!all.contains_key("ceph_osd_quiet"), "below the priority that is told");
    // What `df` and `pg stat` said when the cluster was recorded.
    let sum = |name: &str| all[name].series.iter().map(|(_, value)| value).sum::<f64>();
    assert_eq!((sum("ceph_pg_total"), sum("ceph_pg_active"), sum("ceph_pg_down")), (185.0, 185.0, 0.0));
    assert_eq!(all["ceph_pool_metadata"].series.len(), 8);
    let recorded: Value = serde_json::from_str(include_str!("data/commands.json")).unwrap();
    assert_eq!(all["ceph_cluster_total_bytes"].value(&[]), total_bytes(&recorded), "as recorded");
    assert_eq!(all["ceph_pool_objects_repaired"].label_names(), ["poolid"]);
    let text = |c: &mut Cluster| {
        let id = c.ask();
        c.answers.remove(&id)
    };
    assert_eq!(text(&mut c), text(&mut c), "the same state gives the same text");
}

/// Of `pg stat` as it was recorded, wherever it stands.
fn total_bytes(value: &Value) -> Option<f64> {
    match value {
        Value::Object(all) => match all.get("total_bytes").and_then(Value::as_f64) {
            Some(bytes) if bytes > 0.0 => Some(bytes),
            _ => all.values().find_map(total_bytes),
        },
        Value::Array(all) => all.iter().find_map(total_bytes),
        Value::String(text) => {
            serde_json::from_str::<Value>(text).ok().filter(|v| !v.is_string()).and_then(|v| total_bytes(&v))
        }
        _ => None,
    }
}

#[test]
fn names_of_others_cannot_break_the_text_or_take_a_series() {
    let mut c = Cluster::new();
    let conn = ConnId(900);
    c.w.input(Input::Connected { conn, peer: peer(EntityType::Client, 77, "allow *") });
    let odd = "x\"} 1\nceph_health_status 2 \\ <b>\u{202e}";
    let counters = [
        ("health_status", NUMBER, 10, [5, 0]),
        ("a{b=\"c\"} 7\nceph_evil", NUMBER, 10, [1, 0]),
        ("same.name", NUMBER | COUNTER, 10, [1, 0]),
        ("same_name", NUMBER, 10, [2, 0]),
        ("osd.op", NUMBER, 10, [1, 0]),
        ("osd.op_sum", NUMBER, 10, [1, 0]),
    ];
    c.counts(conn, "rgw", "77", &counters);
    c.counts(
        osd_conn(0),
        "osd",
        "0",
        &[("osd.op", TIME | AVERAGE, 10, [1, 1]), ("same.name", NUMBER, 10, [3, 0])],
    );
    c.health["checks"][odd] = json!({ "severity": "HEALTH_WARN", "summary": { "message": odd } });
    let all = c.series();
    assert_eq!(all["ceph_health_status"].value(&[]), Some(0.0));
    assert_eq!(all["ceph_health_detail"].value(&[("name", odd)]), Some(1.0), "as it is, once it is read");
    assert_eq!(all["ceph_a_b__c___7_ceph_evil"].value(&[("instance_id", "77")]), Some(1.0));
    // The first daemon by name decides what it is; of one daemon's two the first is told.
    assert_eq!(all["ceph_osd_op_sum"].kind, "counter");
    assert!(!all.contains_key("ceph_osd_op"));
    assert_eq!(all["ceph_same_name"].kind, "gauge");
    assert_eq!(all["ceph_same_name"].series.len(), 2);
    assert_eq!(all["ceph_same_name"].value(&[("instance_id", "77")]), Some(1.0));
}

#[test]
fn those_who_ask_together_get_one_answer_and_silence_has_an_end() {
    let mut c = Cluster::new();
    c.series();
    c.asked.clear();
    c.silent = true;
    let ids: Vec<u64> = (0..70).map(|_| c.ask()).collect();
    assert_eq!(c.asked.iter().filter(|p| *p == "health").count(), 1, "one round of questions");
    assert!(!c.asked.iter().any(|p| p == "osd metadata"), "the map is the same");
    let refused = ids.iter().filter(|id| c.answers.contains_key(id)).count();
    assert_eq!(refused, 6, "more than can wait");
    c.w.input(Input::GivenUp { id: ids[0] });
    c.w.advance(Duration::from_secs(9));
    c.go_on();
    assert_eq!(c.answers.get(&ids[1]), Some(&(Errno::EAGAIN.neg(), "the monitors do not answer".to_owned())));
    assert!(!c.answers.contains_key(&ids[0]), "it does not wait any more");
    c.silent = false;
    assert!(c.series().contains_key("ceph_osd_metadata"), "they answer again");
    // The monitor that was asked is gone.
    c.silent = true;
    let id = c.ask();
    c.w.input(Input::MonConnected { gid: GID });
    c.silent = false;
    c.go_on();
    assert_eq!(c.answers[&id].0, Errno::EAGAIN.neg());
}

#[test]
fn nothing_is_told_before_it_is_known() {
    let mut c = Cluster::silent(World::new());
    let id = c.ask();
    assert_eq!(c.answers[&id].0, Errno::EAGAIN.neg());
}

#[test]
fn health_checks_that_failed_are_remembered_across_managers() {
    let mut c = Cluster::new();
    let ls = |c: &mut Cluster, format: &str| {
        c.command(json!({ "prefix": "healthcheck history ls", "format": format }))
    };
    assert_eq!(ls(&mut c, "plain"), (0, "No healthchecks have been recorded".to_owned()));
    c.health["checks"]["OSD_DOWN"] =
        json!({ "severity": "HEALTH_WARN", "summary": { "message": "1 osds down" } });
    c.health["status"] = json!("HEALTH_WARN");
    let all = c.series();
    let labels = [("name", "OSD_DOWN"), ("severity", "HEALTH_WARN")];
    assert_eq!(all["ceph_health_detail"].value(&labels), Some(1.0));
    assert_eq!(all["ceph_health_status"].value(&[]), Some(1.0));
    assert!(
        c.kept.as_ref().is_some_and(|k| k.starts_with(r#"{"OSD_DOWN": {"name": "OSD_DOWN", "#)),
        "{:?}",
        c.kept
    );
    c.health["checks"] = json!({});
    assert_eq!(c.series()["ceph_health_detail"].value(&labels), Some(0.0));
    // Another manager, and this one again.
    c.map(GID + 1, &["prometheus"]);
    c.takes_charge(&["prometheus"]);
    let (code, plain) = ls(&mut c, "plain");
    assert!(code == 0 && plain.contains("OSD_DOWN") && plain.contains("    1    No  \n"), "{plain}");
    assert!(ls(&mut c, "yaml").1.starts_with("---\nOSD_DOWN:\n  active: false\n  count: 1\n"));
    assert_eq!(ls(&mut c, "json").1, c.kept.clone().unwrap());
    assert!(ls(&mut c, "json-pretty").1.starts_with("{\n  \"OSD_DOWN\": {\n    \"name\""));
    assert_eq!(ls(&mut c, "html").0, Errno::EINVAL.neg());
    assert_eq!(
        c.command(json!({ "prefix": "healthcheck history clear" })),
        (0, "healthcheck history cleared".to_owned())
    );
    assert_eq!(ls(&mut c, "json").1, "{}");
    assert_eq!(c.kept.as_deref(), Some("{}"));
    // What cannot be read does not stop it.
    c.kept = Some("nonsense".to_owned());
    c.map(GID + 1, &["prometheus"]);
    c.takes_charge(&["prometheus"]);
    assert!(c.warned.iter().any(|w| w.contains(HISTORY)), "{:?}", c.warned);
}

#[test]
fn commands_of_the_module_are_refused_where_it_is_off() {
    let mut c = Cluster::new();
    let config = json!({ "prefix": "prometheus file_sd_config" });
    assert_eq!(c.command(config.clone()).0, Errno::EAGAIN.neg(), "no host is known yet");
    c.configure(&[("y/server_port", "9000")]);
    c.series();
    let want = r#"[{"targets": ["h:9283", "i:9000"], "labels": {}}]"#;
    assert_eq!(c.command(config.clone()), (0, want.to_owned()));
    c.takes_charge(&["iostat"]);
    let (code, said) = c.command(config);
    assert_eq!(code, Errno::EOPNOTSUPP.neg());
    assert!(said.starts_with("Module 'prometheus' is not enabled (required by command"), "{said}");
}

#[test]
fn it_is_served_where_options_say_and_health_says_where_it_cannot_be() {
    let mut c = Cluster::new();
    let last = |c: &Cluster| c.served.last().cloned().flatten();
    let at = last(&c).expect("served");
    assert_eq!((at.ip, at.port, at.tls, at.username, at.role), (None, 9283, false, None, Role::Active));
    c.configure(&[("server_port", "9000"), ("server_addr", "127.0.0.1"), ("cache", "false")]);
    let at = last(&c).expect("served");
    assert_eq!((at.url.as_str(), at.cache), ("http://127.0.0.1:9000/", false));
    let told = c.served.len();
    c.configure(&[("server_port", "9000"), ("server_addr", "127.0.0.1"), ("cache", "false")]);
    assert_eq!(c.served.len(), told, "nothing new");
    c.configure(&[("server_port", "0")]);
    assert_eq!(last(&c), None);
    assert!(
        c.warned.iter().any(|w| w.contains("server_port is no number from 1 to 65535")),
        "{:?}",
        c.warned
    );
    c.configure(&[("standby_behaviour", "error"), ("standby_error_status_code", "503")]);
    c.map(GID, &["iostat"]);
    assert_eq!(last(&c), None, "switched off");
    c.map(GID + 1, &["prometheus"]);
    let standby = Role::Standby { active: "http://10.0.0.9:9283/".to_owned(), status: Some(503) };
    assert_eq!(last(&c).map(|at| at.role), Some(standby));
}

#[test]
fn a_manager_that_stands_by_leaves_the_port_to_the_active_one_of_its_host() {
    let mut c = Cluster::new();
    let last = |c: &Cluster| c.served.last().cloned().flatten();
    let at = |ip: &str| AddrVec::single(EntityAddr::v2(SocketAddr::new(ip.parse().unwrap(), 6800), 1));
    let (here, there) = (at("127.0.0.1"), at("10.0.0.9"));
    c.map_at(GID + 1, &["prometheus"], here.clone());
    assert_eq!(last(&c), None);
    c.configure(&[("y/server_port", "9000")]);
    assert!(last(&c).is_some(), "each has a port of its own");
    c.configure(&[("server_port", "9000"), ("y/server_port", "9000")]);
    assert_eq!(last(&c), None);
    c.configure(&[("y/server_addr", "127.0.0.2"), ("x/server_addr", "127.0.0.1")]);
    assert!(last(&c).is_some(), "each has an address of its own");
    c.configure(&[("y/server_addr", "127.0.0.2"), ("x/server_addr", "::")]);
    assert_eq!(last(&c), None, "all addresses are the other's too");
    c.configure(&[("y/server_port", "nonsense")]);
    assert_eq!(last(&c), None, "where the active one listens is not known");
    c.configure(&[]);
    c.map_at(GID + 1, &["prometheus"], there);
    assert!(last(&c).is_some(), "it is on another host");
    c.map_at(GID + 1, &["prometheus"], here.clone());
    assert_eq!(last(&c), None, "one on this host took over");
    c.map_at(GID, &["prometheus"], here);
    assert_eq!(last(&c).map(|at| at.role), Some(Role::Active), "it takes charge itself");
}

#[test]
fn an_address_that_cannot_be_had_is_tried_again_in_growing_pauses() {
    let mut c = Cluster::new();
    let failed = |why: Option<&str>| Input::MetricsServed { failed: why.map(str::to_owned) };
    let why = "cannot listen at [::]:9283: Address already in use (os error 98)";
    let warned = |c: &Cluster| c.warned.iter().filter(|w| w.contains(why)).count();
    let mut pauses = Vec::new();
    for _ in 0..8 {
        let told = c.served.len();
        c.w.input(failed(Some(why)));
        let seconds = (1..100).find(|_| {
            c.w.advance(Duration::from_secs(1));
            c.go_on();
            c.served.len() > told
        });
        pauses.push(seconds.expect("another attempt"));
        assert!(c.served.last().unwrap().is_some());
        let told = c.served.len();
        c.w.advance(Duration::from_secs(100));
        c.go_on();
        assert_eq!(c.served.len(), told, "the shell is at it, or serves");
    }
    assert_eq!(pauses, [1, 2, 4, 8, 16, 30, 30, 30]);
    assert_eq!(warned(&c), 1, "the log says so once: {:?}", c.warned);
    c.w.input(failed(None));
    c.w.input(failed(Some(why)));
    let told = c.served.len();
    c.w.advance(Duration::from_secs(1));
    c.go_on();
    assert_eq!((c.served.len(), warned(&c)), (told + 1, 2), "it begins anew after a success");
    // An answer to what is not wanted any more changes nothing.
    c.map(GID, &["iostat"]);
    c.w.input(failed(Some(why)));
    let told = c.served.len();
    c.w.advance(Duration::from_secs(100));
    c.go_on();
    assert_eq!((c.served.len(), warned(&c)), (told, 2));
}

#[test]
fn what_the_shell_serves_is_told_and_what_it_cannot_is_a_warning_of_health() {
    let mut c = Cluster::new();
    let url = "http://h:9283/".to_owned();
    let serving = |url: Option<String>| Input::Serving { service: "prometheus".to_owned(), url };
    c.w.input(serving(Some(url.clone())));
    c.go_on();
    assert_eq!(c.beacons.last().unwrap().services.get("prometheus"), Some(&url));
    c.w.input(serving(None));
    c.go_on();
    assert!(c.beacons.last().unwrap().services.is_empty());
    let why = "cannot listen at [::]:9283: Address already in use (os error 98)";
    let checks = |c: &mut Cluster| {
        c.w.advance(Duration::from_secs(3));
        let digests = c.w.sent().into_iter().filter_map(|o| match o {
            Output::SendMon { msg: Message::PgDigest(m), .. } => Some(m.summary),
            _ => None,
        });
        let last: Bytes = digests.last().expect("a digest");
        let digest: monitor::state::PgDigest = codec::Decode::from_bytes(last).unwrap();
        digest.checks
    };
    c.w.input(Input::MetricsServed { failed: Some(why.to_owned()) });
    let all = checks(&mut c);
    let check = &all["MGR_MODULE_ERROR"];
    assert_eq!(
        (check.severity, check.summary.as_str()),
        (1, format!("Module 'prometheus' has failed: {why}").as_str())
    );
    c.w.input(Input::MetricsServed { failed: None });
    assert!(!checks(&mut c).contains_key("MGR_MODULE_ERROR"));
}
