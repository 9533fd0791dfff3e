//! Disks below daemons: listed, and with what is expected of them, which the monitors keep; and their health.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

#[path = "../common/mod.rs"]
mod common;
mod health;

use std::collections::BTreeMap;
use std::time::Duration;

use codec::Encode;
use common::{ADMIN, CEPHS, OSDMAP, World, full_map, text};
use manager::{Input, Output};
use maps::MgrMap;
use messages::Message;
use messages::common::{MMgrCommand, MMgrCommandReply};
use messages::mon::{MMgrMap, MMonCommand, MMonCommandAck};
use messages::payload::RestOfFront;
use serde_json::{Value, json};

/// Monitors that keep what they are told to, and tell of the disks of OSDs.
struct Cluster {
    w: World,
    kept: BTreeMap<String, String>,
    refuse: bool,
}

impl Cluster {
    fn new() -> Self {
        let mut w = World::on(Some(CEPHS), false);
        w.input(Input::MonConnected { gid: 4_100 });
        w.mon_sends(full_map(bytes::Bytes::from_static(OSDMAP)));
        let mut c = Self { w, kept: BTreeMap::new(), refuse: false };
        c.kept.insert("device/kept".to_owned(), r#"{"wear_level":"0.25"}"#.to_owned());
        let map =
            MgrMap { active_gid: 4_100, active_name: "x".to_owned(), available: true, ..MgrMap::initial() };
        c.w.mon_sends(MMgrMap { map: RestOfFront(map.to_bytes()) });
        c.w.advance(Duration::from_secs(3));
        c.monitors();
        c
    }

    fn obey(&mut self, m: &MMonCommand) -> MMonCommandAck {
        let cmd: Value = serde_json::from_str(&m.cmd[0]).unwrap();
        let key = cmd["key"].as_str().unwrap_or_default().to_owned();
        let output = match cmd["prefix"].as_str().unwrap() {
            "config-key dump" => json!(self.kept).to_string(),
            "osd metadata" => {
                json!([{ "id": 0, "hostname": "h", "device_ids": "sda=WD_1", "device_paths": "sda=/dev/disk/1" }])
                    .to_string()
            }
            "config-key set" | "config-key rm" if self.refuse => {
                return MMonCommandAck { result: -13, status: "not now".to_owned(), ..MMonCommandAck::default() };
            }
            "config-key set" => {
                self.kept.insert(key, String::from_utf8(m.input.to_vec()).unwrap());
                String::new()
            }
            "config-key rm" => {
                self.kept.remove(&key);
                String::new()
            }
            _ => String::new(),
        };
        MMonCommandAck {
            output: output.into(),
            status: "set something".to_owned(),
            ..MMonCommandAck::default()
        }
    }

    /// The monitors answer; gives what the client is told.
    fn monitors(&mut self) -> Option<MMgrCommandReply> {
        let mut reply = None;
        for o in self.w.sent() {
            match o {
                Output::SendMon { tid, msg: Message::MonCommand(m) } => {
                    let ack = self.obey(&m);
                    self.w.input(Input::FromMon { tid, msg: ack.into() });
                }
                Output::Send { msg: Message::MgrCommandReply(r), .. } => reply = Some(r),
                _ => {}
            }
        }
        reply.or_else(|| (!self.w.out.is_empty()).then(|| self.monitors()).flatten())
    }

    fn said(&mut self, cmd: &Value) -> (i32, String) {
        self.w.message(ADMIN, MMgrCommand { cmd: vec![cmd.to_string()], ..MMgrCommand::default() });
        let reply = self.monitors().expect("an answer");
        (reply.result, text(&reply) + &reply.status)
    }

    fn ls(&mut self) -> String {
        self.said(&json!({ "prefix": "device ls" })).1
    }
}

#[test]
fn disks_are_listed_with_what_is_expected_of_them() {
    let mut c = Cluster::new();
    let cells = |text: &str| -> Vec<String> {
        text.lines().map(|l| l.split_whitespace().collect::<Vec<_>>().join(" ")).collect()
    };
    assert_eq!(
        cells(&c.ls()),
        ["DEVICE HOST:DEV DAEMONS WEAR LIFE EXPECTANCY", "WD_1 h:sda osd.0", "kept 25%"]
    );
    let expect = |from: &str, to: &str| json!({ "prefix": "device set-life-expectancy", "devid": "WD_1", "from": from, "to": to });
    assert_eq!(c.said(&expect("nix", "")), (-22, "unable to parse datetime 'nix'".to_owned()));
    assert_eq!(c.said(&expect("2027-01-01", "x")), (-22, "unable to parse datetime 'x'".to_owned()));
    assert_eq!(c.said(&expect("2027-01-01", "2027-06-01T10:11:12")), (0, String::new()));
    let kept: Value = serde_json::from_str(&c.kept["device/WD_1"]).unwrap();
    // As 16.2.15's manager has it.
    assert_eq!(kept["life_expectancy_min"], "2027-01-01T00:00:00.000000+0000");
    assert_eq!(kept["life_expectancy_max"], "2027-06-01T10:11:12.000000+0000");
    assert!(kept["life_expectancy_stamp"].as_str().unwrap().starts_with("2026-11-21T"));
    assert!(c.ls().contains(" 5w to 6M "), "{}", c.ls());
    let info = c.said(&json!({ "prefix": "device info", "devid": "WD_1" })).1;
    let begin = "device WD_1\nattachment h sda /dev/disk/1\n\nosd.0\nlife_expectancy 2027-01-01T00:00:00.000000+0000 to ";
    assert!(info.starts_with(begin), "{info}");
    let host = c.said(&json!({ "prefix": "device ls-by-host", "host": "h", "format": "json" })).1;
    let host: Value = serde_json::from_str(&host).unwrap();
    assert_eq!((host.as_array().unwrap().len(), &host[0]["devid"]), (1, &json!("WD_1")));
    assert_eq!(c.said(&expect("2020-01-01", "")).0, 0);
    assert!(c.ls().contains(" now "), "{}", c.ls());

    let forget = |id: &str| json!({ "prefix": "device rm-life-expectancy", "devid": id });
    assert_eq!(c.said(&forget("WD_1")), (0, String::new()));
    assert!(!c.kept.contains_key("device/WD_1") && c.ls().contains("WD_1 "), "it is there still");
    assert_eq!(c.said(&forget("none")), (0, String::new()), "as in Ceph");
    assert_eq!(c.said(&forget("kept")), (0, String::new()));
    assert!(c.kept["device/kept"].contains("wear_level"));
}

/// What counts is what the monitors keep.
#[test]
fn what_is_not_kept_is_not_shown() {
    let mut c = Cluster::new();
    c.refuse = true;
    let before = c.ls();
    let expect = json!({ "prefix": "device set-life-expectancy", "devid": "new", "from": "2027-01-01" });
    assert_eq!(c.said(&expect), (-13, "not now".to_owned()));
    assert_eq!(c.ls(), before);
    c.refuse = false;
    assert_eq!(c.said(&expect).0, 0);
    assert!(c.ls().contains("new  "), "a disk that no daemon has");
}
