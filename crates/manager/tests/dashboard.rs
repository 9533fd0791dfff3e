//! The dashboard's users, where it is served, and what others of the process are answered.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

mod common;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use codec::Encode;
use common::{ADMIN, CEPHS, World};
use manager::{Ask, DashboardAt, Input, Output};
use maps::MgrMap;
use messages::Message;
use messages::common::{MMgrCommand, MMgrCommandReply};
use messages::mgr::MMgrBeacon;
use messages::mon::{MConfig, MMgrMap, MMonCommand, MMonCommandAck};
use messages::payload::RestOfFront;
use serde_json::{Value, json};
use types::Errno;

const GID: u64 = 4_100;
const KEY: &str = "mgr/dashboard/accessdb_v2";
/// What the shell is said to have made of a password.
const HASH: &str = "$2b$12$sd0Az7mm3FaJl8kN3b/xwOuztaN0sWUwC1SJqjM4wcDw/s5cmGbLK";

/// A manager in charge, and monitors that keep what they are told to.
struct Cluster {
    w: World,
    kept: Option<Value>,
    /// What is asked for is refused.
    refuse: bool,
    /// The monitors do not say which users there are.
    silent: bool,
    hashed: Vec<String>,
    served: Vec<Option<DashboardAt>>,
    warned: Vec<String>,
    beacons: Vec<MMgrBeacon>,
    answers: BTreeMap<u64, (i32, String)>,
    replies: Vec<MMgrCommandReply>,
}

impl Cluster {
    fn new() -> Self {
        Self::with(World::recorded(), None)
    }

    fn with(w: World, kept: Option<Value>) -> Self {
        let mut c = Self {
            w,
            kept,
            refuse: false,
            silent: false,
            hashed: Vec::new(),
            served: Vec::new(),
            warned: Vec::new(),
            beacons: Vec::new(),
            answers: BTreeMap::new(),
            replies: Vec::new(),
        };
        c.w.input(Input::MonConnected { gid: GID });
        c.go_on();
        c.takes_charge(&["dashboard"]);
        c
    }

    fn takes_charge(&mut self, modules: &[&str]) {
        self.map(GID, modules);
        // Its earlier sessions ended.
        let admin = common::peer(types::EntityType::Client, 4_200, "allow *");
        self.w.input(Input::Connected { conn: ADMIN, peer: admin });
    }

    fn map(&mut self, active_gid: u64, modules: &[&str]) {
        let modules = modules.iter().map(|m| (*m).to_owned()).collect();
        let map =
            MgrMap { active_gid, active_name: "x".to_owned(), available: true, modules, ..MgrMap::initial() };
        self.w.mon_sends(MMgrMap { map: RestOfFront(map.to_bytes()) });
        self.go_on();
    }

    fn go_on(&mut self) {
        loop {
            let mut inputs = Vec::new();
            for o in self.w.sent() {
                match o {
                    Output::SendMon { tid, msg: Message::MonCommand(m) } => {
                        inputs.push(Input::FromMon { tid, msg: self.obey(&m).into() });
                    }
                    Output::SendMon { msg: Message::MgrBeacon(m), .. } => self.beacons.push(*m),
                    Output::Hash { id, password } => {
                        self.hashed.push(password);
                        inputs.push(Input::Hashed { id, hash: Some(HASH.to_owned()) });
                    }
                    Output::Dashboard(at) => self.served.push(at),
                    Output::Warn(text) => self.warned.push(text),
                    Output::Answer { id, reply } => {
                        let said = String::from_utf8_lossy(&reply.data).into_owned() + &reply.outs;
                        self.answers.insert(id, (reply.code, said));
                    }
                    Output::Send { msg: Message::MgrCommandReply(m), .. } => self.replies.push(m),
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
        let ack = MMonCommandAck::default();
        match (cmd["prefix"].as_str().unwrap(), cmd["key"] == KEY) {
            ("config-key get", true) if self.silent => MMonCommandAck { result: Errno::EAGAIN.neg(), ..ack },
            ("config-key get", true) => match &self.kept {
                Some(kept) => MMonCommandAck { output: kept.to_string().into(), ..ack },
                None => MMonCommandAck { result: -2, ..ack },
            },
            ("config-key set", true) if self.refuse => {
                MMonCommandAck { result: -22, status: "no room".to_owned(), ..ack }
            }
            ("config-key set", true) => {
                self.kept = Some(serde_json::from_slice(&m.input).unwrap());
                ack
            }
            ("fsid", _) => MMonCommandAck { output: "the-id".into(), ..ack },
            ("config-key get", false) => MMonCommandAck { result: -2, ..ack },
            _ => ack,
        }
    }

    fn configure(&mut self, options: &[(&str, &str)]) {
        let options = options.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect();
        self.w.mon_sends(MConfig { options });
        self.go_on();
    }

    /// Code, and what the command says.
    fn run(&mut self, words: Value, input: &str) -> (i32, String) {
        let cmd = vec![words.to_string()];
        self.w.message(ADMIN, MMgrCommand { cmd, input: input.to_owned().into(), ..MMgrCommand::default() });
        self.go_on();
        let reply = self.replies.pop().expect("an answer");
        (reply.result, String::from_utf8_lossy(&reply.output).into_owned() + &reply.status)
    }

    fn create(&mut self, name: &str, role: &str, password: &str) -> (i32, String) {
        let words = json!({ "prefix": "dashboard ac-user-create", "username": name, "rolename": role });
        self.run(words, password)
    }

    fn of(&mut self, command: &str, name: &str, input: &str) -> (i32, String) {
        self.run(json!({ "prefix": format!("dashboard {command}"), "username": name }), input)
    }
}

#[test]
fn users_are_made_shown_changed_and_deleted_as_by_cephs_module() {
    let mut c = Cluster::new();
    let (code, said) = c.create("ann", "read-only", "p@ssw0rd\n");
    assert_eq!(code, 0, "{said}");
    assert_eq!(
        said,
        format!(
            r#"{{"username": "ann", "password": "{HASH}", "roles": ["read-only"], "name": null, "email": null, "lastUpdate": {}, "enabled": true, "pwdExpirationDate": null, "pwdUpdateRequired": false}}"#,
            c.w.now.wall.sec
        )
    );
    assert_eq!(c.hashed, ["p@ssw0rd"], "without the line's end");
    assert_eq!(c.kept.as_ref().unwrap()["users"]["ann"]["password"], HASH);
    assert_eq!(c.kept.as_ref().unwrap()["version"], 2);
    assert_eq!(c.create("ann", "read-only", "p@ssw0rd"), (0, "User 'ann' already exists".to_owned()));
    let show = json!({ "prefix": "dashboard ac-user-show" });
    assert_eq!(c.run(show, ""), (0, r#"["ann"]"#.to_owned()));
    assert_eq!(c.of("ac-user-show", "bob", ""), (-2, "User 'bob' does not exist".to_owned()));
    assert_eq!(c.of("ac-user-set-password", "ann", "another-one").0, 0);
    assert_eq!(c.of("ac-user-set-password", "bob", "another-one").0, -2);
    assert!(c.of("ac-user-disable", "ann", "").1.contains("\"enabled\": false"));
    assert!(c.of("ac-user-enable", "ann", "").1.contains("\"enabled\": true"));
    let roles = |roles: &[&str]| json!({ "prefix": "dashboard ac-user-set-roles", "username": "ann", "roles": roles });
    assert!(
        c.run(roles(&["rgw-manager", "block-manager"]), "").1.contains(r#"["block-manager", "rgw-manager"]"#)
    );
    assert_eq!(c.run(roles(&["king"]), ""), (-2, "Role 'king' does not exist".to_owned()));
    assert_eq!(c.of("ac-user-delete", "ann", ""), (0, "User 'ann' deleted".to_owned()));
    assert_eq!(c.kept.as_ref().unwrap()["users"], json!({}));
    let (code, said) = c.of("set-login-credentials", "root", "x");
    assert!(code == 0 && said.ends_with("Username and password updated"), "{said}");
    assert_eq!(c.kept.as_ref().unwrap()["users"]["root"]["roles"], json!(["administrator"]));
}

#[test]
fn what_makes_no_user_is_refused_and_changes_nothing() {
    let mut c = Cluster::new();
    let none = "Please specify the file containing the password/secret with \"-i\" option.";
    assert_eq!(c.create("ann", "read-only", ""), (-22, none.to_owned()));
    assert!(c.create("ann", "read-only", "\n").1.starts_with("Empty content"));
    assert_eq!(c.create("ann", "read-only", "short"), (-22, "Password is too weak.".to_owned()));
    assert_eq!(c.create("ann", "read-only", &"x".repeat(73)).0, -22, "bcrypt would not see all of it");
    assert_eq!(c.create("ann", "king", "p@ssw0rd"), (-2, "Role 'king' does not exist".to_owned()));
    assert_eq!(c.create("", "read-only", "p@ssw0rd").0, -22);
    assert_eq!(c.create("a\u{1b}[31m", "read-only", "p@ssw0rd").0, -22);
    assert_eq!(c.create(&"x".repeat(300), "read-only", "p@ssw0rd").0, -22);
    // Sessions of whoever signs in with a code have this name.
    assert!(c.create("once", "read-only", "p@ssw0rd").1.contains("no user has it"));
    assert_eq!(c.of("set-login-credentials", "once", "p@ssw0rd").0, -22);
    assert_eq!((c.hashed.len(), &c.kept), (0, &None));
    c.refuse = true;
    assert_eq!(c.create("ann", "read-only", "p@ssw0rd"), (-22, "no room".to_owned()));
    assert_eq!(c.w.manager.user("ann"), None, "what the monitors do not keep does not count");
    c.refuse = false;
    assert_eq!(c.create("ann", "read-only", "p@ssw0rd").0, 0, "the next change is not held up");
    let (user, may) = c.w.manager.user("ann").unwrap();
    assert_eq!((user.password.as_deref(), may["osd"].contains("read")), (Some(HASH), true));
}

#[test]
fn users_that_cannot_be_read_are_left_as_they_are() {
    let odd = json!({ "users": {}, "roles": {}, "version": 3 });
    let mut c = Cluster::with(World::recorded(), Some(odd.clone()));
    assert!(c.warned.iter().any(|w| w.contains(KEY)), "{:?}", c.warned);
    assert_eq!(c.create("ann", "read-only", "p@ssw0rd").0, Errno::EAGAIN.neg());
    assert_eq!(c.kept, Some(odd));
}

#[test]
fn monitors_that_do_not_say_which_users_there_are_are_asked_again() {
    let mut c = Cluster::new();
    assert_eq!(c.create("ann", "read-only", "p@ssw0rd").0, 0);
    c.silent = true;
    // The manager loses its place and gets it back.
    c.map(GID + 1, &["dashboard"]);
    c.takes_charge(&["dashboard"]);
    assert_eq!(c.w.manager.user("ann"), None);
    assert_eq!(c.create("bob", "read-only", "p@ssw0rd").0, Errno::EAGAIN.neg(), "nothing is overwritten");
    c.silent = false;
    c.w.advance(Duration::from_secs(3));
    c.go_on();
    assert!(c.w.manager.user("ann").is_some());
}

#[test]
fn it_is_served_by_the_manager_in_charge_where_its_module_is_on() {
    let mut c = Cluster::with(World::recorded(), None);
    let at = |addr: &str, tls| Some(DashboardAt { addr: addr.parse::<SocketAddr>().unwrap(), tls });
    assert_eq!(c.served.last(), Some(&at("127.0.0.1:8080", false)));
    c.configure(&[("mgr/dashboard/server_port", "9000")]);
    assert_eq!(c.served.last(), Some(&at("127.0.0.1:9000", false)));
    c.configure(&[("mgr/dashboard/x/server_addr", "10.0.0.7")]);
    assert_eq!(c.served.last(), Some(&at("10.0.0.7:8443", true)));
    c.configure(&[("mgr/dashboard/server_addr", "10.0.0.7"), ("mgr/dashboard/ssl", "false")]);
    assert_eq!(c.served.last(), Some(&None), "not without TLS");
    assert!(c.warned.iter().any(|w| w.contains("by TLS only")), "{:?}", c.warned);
    let told = c.served.len();
    c.configure(&[
        ("mgr/dashboard/server_addr", "10.0.0.7"),
        ("mgr/dashboard/ssl", "false"),
        ("debug_mgr", "3"),
    ]);
    assert_eq!(c.served.len(), told, "said once");
    c.configure(&[]);
    c.map(GID, &["iostat"]);
    assert_eq!(c.served.last(), Some(&None), "switched off");
    c.map(GID, &["dashboard"]);
    assert_eq!(c.served.last(), Some(&at("127.0.0.1:8080", false)));
    c.map(GID + 1, &["dashboard"]);
    assert_eq!(c.served.last(), Some(&None), "another manager is in charge");
}

#[test]
fn the_monitors_are_told_where_it_is() {
    let mut c = Cluster::new();
    let services: BTreeMap<String, String> = [("dashboard".to_owned(), "http://h:1/".to_owned())].into();
    let before = c.beacons.len();
    let serving = |url: &str| Input::Serving { service: "dashboard".to_owned(), url: Some(url.to_owned()) };
    c.w.input(serving("http://h:1/"));
    c.go_on();
    assert_eq!((c.beacons.len(), &c.beacons.last().unwrap().services), (before + 1, &services));
    c.w.input(serving("http://h:1/"));
    c.go_on();
    assert_eq!(c.beacons.len(), before + 1, "nothing new");
}

#[test]
fn a_code_lets_somebody_in_once_while_this_manager_is_in_charge() {
    let mut c = Cluster::new();
    let give = |c: &mut Cluster, code: &str| c.run(json!({ "prefix": "dashboard sign-in-once" }), code).0;
    assert_eq!(give(&mut c, "too-short"), -22);
    assert_eq!(give(&mut c, "abcde-fghij-klmno-pqrst\n"), 0);
    let now = c.w.now;
    assert!(!c.w.manager.take_once(now, "abcde-fghij-klmno-pqrsx"));
    assert!(c.w.manager.take_once(now, "abcde-fghij-klmno-pqrst"));
    assert!(!c.w.manager.take_once(now, "abcde-fghij-klmno-pqrst"));
    assert_eq!(give(&mut c, "abcde-fghij-klmno-pqrst"), 0);
    c.map(GID + 1, &["dashboard"]);
    assert!(!c.w.manager.take_once(now, "abcde-fghij-klmno-pqrst"));
}

#[test]
fn who_asks_in_this_process_is_answered() {
    let mut c = Cluster::new();
    let ask = |c: &mut Cluster, id, ask| {
        c.w.input(Input::Ask { id, ask });
        c.go_on();
        c.answers.remove(&id)
    };
    let of_mons = Ask::Monitors { json: json!({ "prefix": "fsid" }).to_string(), input: "".into() };
    assert_eq!(ask(&mut c, 1, of_mons), Some((0, "the-id".to_owned())));
    let own =
        Ask::Manager { json: json!({ "prefix": "pg stat", "format": "json" }).to_string(), input: "".into() };
    let (code, said) = ask(&mut c, 2, own).unwrap();
    assert!(code == 0 && said.contains("num_pgs"), "{said}");
    let none = Ask::Manager { json: json!({ "prefix": "no such" }).to_string(), input: "".into() };
    assert_eq!(ask(&mut c, 3, none).unwrap().0, -22);
}

#[test]
fn what_the_page_shows_is_that_of_the_recorded_cluster() {
    assert_eq!(World::new().manager.overview(World::new().now), None, "nothing was reported");
    let mut c = Cluster::new();
    for (osd, report) in common::reports() {
        c.w.connect_osd(osd);
        c.w.message(common::osd_conn(osd), report);
    }
    c.w.advance(Duration::from_secs(3));
    c.go_on();
    let all = c.w.manager.overview(c.w.now).unwrap();
    assert_eq!((&all["pgs"]["total"], &all["pgs"]["states"]), (&json!(185), &json!({ "active+clean": 185 })));
    assert_eq!(all["osds"], json!({ "total": 3, "up": 3, "in": 3 }));
    assert_eq!(all["pools"], 8);
    assert!(all["usage"]["total"].as_u64() > all["usage"]["used"].as_u64());
    let cells = c.w.manager.pg_cells();
    let pgs: usize =
        cells["pools"].as_array().unwrap().iter().map(|p| p["pgs"].as_array().unwrap().len()).sum();
    assert_eq!((pgs, &cells["states"]), (185, &json!(["active+clean"])));
    // The page's cells are made anew when something of them may be new.
    let version = c.w.manager.pg_version();
    assert_eq!(c.w.manager.pg_version(), version);
    let (osd, report) = common::reports().into_iter().next().unwrap();
    c.w.message(common::osd_conn(osd), report);
    assert_ne!(c.w.manager.pg_version(), version);
    let by_pool: u32 = c.w.manager.pg_states_by_pool().values().flat_map(|s| s.values()).sum();
    assert_eq!(by_pool, 185);
    assert!(c.w.manager.figures().is_some());
}

#[test]
fn on_cephs_monitors_it_is_offered_too() {
    let mut w = World::on(Some(CEPHS), true);
    w.input(Input::MonConnected { gid: GID });
    w.mon_sends(common::full_map(bytes::Bytes::from_static(common::OSDMAP)));
    let beacons = w.sent().into_iter().filter_map(|o| match o {
        Output::SendMon { msg: Message::MgrBeacon(m), .. } => Some(m),
        _ => None,
    });
    let module = beacons.last().unwrap().modules.into_iter().find(|m| m.name == "dashboard").unwrap();
    assert!(module.can_run && module.options.contains_key("server_addr"));
}
