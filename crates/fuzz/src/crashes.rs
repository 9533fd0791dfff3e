//! Commands of a manager, crash reports among them: executed by a manager that has the state of a real
//! cluster.

use std::collections::VecDeque;
use std::sync::OnceLock;
use std::time::Duration;

use admin::Signature;
use bytes::Bytes;
use codec::Decode;
use manager::{Input, Manager, Output, PeerInfo, Settings};
use maps::OsdMap;
use messages::Message;
use messages::common::MMgrCommand;
use messages::mon::{MMonCommand, MMonCommandAck, MOsdMap};
use types::{AddrVec, AuthName, ConnId, EntityAddr, EntityName, EntityType, Epoch, Now, Utime};

use crate::arguments::{Chooser, command};

const ADMIN: ConnId = ConnId(1);
/// Seconds since 1970.
const NOW_S: u32 = 1_795_300_046;
const MAX_COMMANDS: usize = 30;

struct World {
    manager: Manager,
    now: Now,
    next_tid: u64,
    /// What the monitors are asked, and hold.
    asked: VecDeque<(u64, MMonCommand)>,
    kept: serde_json::Map<String, serde_json::Value>,
    results: Vec<i32>,
}

impl World {
    fn new() -> Self {
        static MAP: OnceLock<Option<(Bytes, OsdMap)>> = OnceLock::new();
        let map = MAP.get_or_init(|| {
            let raw: Bytes = crate::recorded::files("manager", "", "osdmap", ".bin").pop()?.into();
            Some((raw.clone(), OsdMap::from_bytes(raw).ok()?))
        });
        let settings = Settings {
            name: "x".to_owned(),
            addrs: AddrVec::default(),
            metadata: Default::default(),
            options: Default::default(),
            force: false,
        };
        let now = Now { mono: Duration::from_secs(1_000), wall: Utime::new(NOW_S, 0) };
        let mut world = Self {
            manager: Manager::new(settings),
            now,
            next_tid: 0,
            asked: VecDeque::new(),
            kept: serde_json::Map::new(),
            results: Vec::new(),
        };
        let peer = PeerInfo {
            name: EntityName::client(4_200),
            auth_name: AuthName::new(EntityType::Client, "admin"),
            addr: EntityAddr::default(),
            caps: cephx::MgrCap::parse("allow *").expect("caps"),
        };
        world.input(Input::Connected { conn: ADMIN, peer });
        world.input(Input::MonConnected { gid: 4_100 });
        if let Some((raw, map)) = map {
            let full = [(map.epoch, raw.clone())].into();
            let msg = MOsdMap {
                fsid: map.fsid,
                full,
                oldest: Epoch(1),
                newest: map.epoch,
                incremental: Default::default(),
            };
            world.input(Input::FromMon { tid: 0, msg: msg.into() });
        }
        world
    }

    /// With what the monitors answer to it.
    fn input(&mut self, input: Input) {
        let mut inputs = VecDeque::from([input]);
        while let Some(input) = inputs.pop_front() {
            let mut out = Vec::new();
            self.manager.handle(self.now, input, &mut out);
            for output in out {
                match output {
                    Output::SendMon { tid, msg: Message::MonCommand(m) } => self.asked.push_back((tid, m)),
                    Output::Send { msg: Message::MgrCommandReply(reply), .. } => {
                        self.results.push(reply.result)
                    }
                    _ => {}
                }
            }
            while let Some((tid, m)) = self.asked.pop_front() {
                let msg = self.answer(m).into();
                inputs.push_back(Input::FromMon { tid, msg });
            }
        }
    }

    /// The monitors' config-key store; everything else succeeds.
    fn answer(&mut self, m: MMonCommand) -> MMonCommandAck {
        let json: serde_json::Value =
            m.cmd.first().and_then(|c| serde_json::from_str(c).ok()).unwrap_or_default();
        let text = |key: &str| json.get(key).and_then(|v| v.as_str()).unwrap_or_default().to_owned();
        let mut output = Bytes::new();
        match text("prefix").as_str() {
            "config-key set" => {
                let value = if m.input.is_empty() {
                    text("val")
                } else {
                    String::from_utf8_lossy(&m.input).into_owned()
                };
                self.kept.insert(text("key"), value.into());
            }
            "config-key rm" => drop(self.kept.remove(&text("key"))),
            "version" => output = Bytes::from_static(b"ceph version 16.2.15 (loligo 1) pacific (stable)"),
            "config-key dump" => output = serde_json::Value::Object(self.kept.clone()).to_string().into(),
            _ => {}
        }
        MMonCommandAck { cmd: m.cmd, output, ..MMonCommandAck::default() }
    }

    fn command(&mut self, json: String, input: Bytes) {
        self.next_tid += 1;
        let msg = MMgrCommand { cmd: vec![json], input, ..MMgrCommand::default() };
        self.input(Input::Message { conn: ADMIN, tid: self.next_tid, msg: msg.into() });
    }

    fn age(&mut self) {
        for _ in 0..8 {
            self.now.mono += Duration::from_secs(1);
            self.now.wall = self.now.wall.plus(Duration::from_secs(1));
            self.input(Input::Tick);
        }
    }

    /// The manager ends; the next one starts from what the monitors hold.
    fn follow(self) -> Self {
        let mut next = Self { kept: self.kept, ..Self::new() };
        next.input(Input::MonConnected { gid: 4_101 });
        next
    }
}

/// Crash reports, one in each line: posted, shown, and loaded by the next manager.
pub(crate) fn crash_report(data: &[u8]) {
    drop(posted(data));
}

fn posted(data: &[u8]) -> Vec<i32> {
    let mut world = World::new();
    for report in data.split(|b| *b == b'\n').take(MAX_COMMANDS) {
        world.command(r#"{"prefix":"crash post"}"#.to_owned(), Bytes::copy_from_slice(report));
    }
    let results = world.results.clone();
    let show = |world: &mut World| {
        for prefix in ["crash ls", "crash ls-new", "crash stat", "crash archive-all"] {
            for format in ["plain", "json"] {
                world.command(format!(r#"{{"prefix":"{prefix}","format":"{format}"}}"#), Bytes::new());
            }
        }
        world.command(r#"{"prefix":"crash json_report","hours":"24"}"#.to_owned(), Bytes::new());
        world.command(r#"{"prefix":"crash prune","keep":"1"}"#.to_owned(), Bytes::new());
        world.age();
    };
    show(&mut world);
    show(&mut world.follow());
    results
}

pub(crate) fn crash_report_seeds() -> Vec<Vec<u8>> {
    let report = |id: &str, more: &str| {
        format!(
            "{{\"crash_id\":\"{id}\",\"timestamp\":\"2026-11-21T22:39:07.104673Z\",\"process_name\":\"ceph-osd\",\
             \"entity_name\":\"osd.0\",\"ceph_version\":\"16.2.15\",\"utsname_hostname\":\"h\",\"backtrace\":[\"a\",\"b\"]{more}}}"
        )
    };
    let of = |all: &[String]| all.join("\n").into_bytes();
    vec![
        of(&[report("2026-11-21T22:39:07.104673Z_a", ""), report("b", ",\"archived\":\"2026-11-22\"")]),
        of(&[
            report("c/d e", ",\"assert_condition\":\"false\""),
            report("c/d e", ""),
            "[]".to_owned(),
            "7".to_owned(),
        ]),
        of(&[report("f", &format!(",\"x\":{}{}", "[".repeat(100), "]".repeat(100)))]),
    ]
}

/// As `mon_arguments`, for a manager.
pub(crate) fn mgr_arguments(data: &[u8]) {
    drop(chosen(data));
}

fn chosen(data: &[u8]) -> Vec<i32> {
    static SIGNATURES: OnceLock<Vec<Signature>> = OnceLock::new();
    let all = SIGNATURES.get_or_init(|| manager::command::all().map(|c| Signature::parse(c.sig)).collect());
    let mut world = World::new();
    let mut chooser = Chooser(data);
    for _ in 0..MAX_COMMANDS {
        if chooser.0.is_empty() {
            break;
        }
        let Some(sig) = chooser.of(all) else { break };
        let json = command(sig, &mut chooser);
        world.command(json, Bytes::new());
    }
    let results = world.results.clone();
    world.age();
    world.follow().age();
    results
}

/// The steps between choices are such that more than a quarter of the commands succeed.
pub(crate) fn mgr_arguments_seeds() -> Vec<Vec<u8>> {
    let count = manager::command::all().count();
    let one = |which: usize, choice: u8| {
        let mut out = vec![which as u8];
        out.extend((0..12).map(|n: u8| choice.wrapping_mul(n | 1).wrapping_add(n) % crate::arguments::RAW));
        out
    };
    let all: Vec<Vec<u8>> = (0..count * 3).map(|i| one(i % count, (i / count * 8) as u8)).collect();
    all.chunks(MAX_COMMANDS).map(<[Vec<u8>]>::concat).collect()
}

#[cfg(test)]
mod tests {
    #[test]
    fn seeds_are_executed() {
        let results: Vec<i32> = super::crash_report_seeds().iter().flat_map(|s| super::posted(s)).collect();
        assert_eq!(results, [0, 0, 0, 0, -22, -22, 0]);
        let results: Vec<i32> = super::mgr_arguments_seeds().iter().flat_map(|s| super::chosen(s)).collect();
        let good = results.iter().filter(|r| **r >= 0).count();
        assert!(results.len() > 40 && good * 4 > results.len(), "{good} of {}", results.len());
    }
}
