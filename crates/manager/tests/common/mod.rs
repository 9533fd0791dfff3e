//! A manager driven by hand, and the state of a real cluster of Ceph 16.2.15 to feed it with.
//!
//! `data/osdmap.bin` and `data/pgmap.bin` are what `osd getmap` and `pg getmap` gave within the same two seconds in which
//! `data/commands.json` was recorded: an idle cluster with 3 OSDs, 8 pools and 185 PGs.
#![allow(dead_code)]

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use cephx::caps::MgrCap;
use codec::{Decode, DecodeError, Reader};
use manager::{Input, Manager, Output, PeerInfo, Settings};
use maps::OsdMap;
use messages::Message;
use messages::common::{MMgrCommand, MMgrCommandReply};
use messages::mon::{MMonCommandAck, MOsdMap};
use messages::pool_stats::MPgStats;
use messages::stats::{OsdStat, PgStat, StoreStatfs};
use monitor::Whose;
use serde_json::Value;
use types::{
    AddrKind, AddrVec, AuthName, ConnId, EntityAddr, EntityName, EntityType, Epoch, Now, PgId, Utime,
};

pub const OSDMAP: &[u8] = include_bytes!("../data/osdmap.bin");
pub const PGMAP: &[u8] = include_bytes!("../data/pgmap.bin");

pub const ADMIN: ConnId = ConnId(1);
/// Seconds since 1970 when the data was recorded.
pub const RECORDED_S: u32 = 1_795_300_046;

pub fn osd_conn(osd: i32) -> ConnId {
    ConnId(100 + osd as u64)
}

/// The manager, its clock, and what it sent.
pub struct World {
    pub manager: Manager,
    pub now: Now,
    pub out: Vec<Output>,
    tid: u64,
    /// What the monitors answer when they are asked whose they are; `None`: nothing.
    pub version: Option<&'static str>,
    /// What monitors of ours answer when they are asked what OSDs say of themselves.
    pub osd_metadata: String,
    /// Whether they answer at all what daemons say of themselves; else the test does.
    pub tells_metadata: bool,
}

pub const OURS: &str = "ceph version 16.2.15 (loligo 0.1.0) pacific (stable)";
pub const CEPHS: &str = "ceph version 16.2.15 (618f440892089921c3e944a991122ddc44e60516) pacific (stable)";

pub fn peer(kind: EntityType, num: i64, caps: &str) -> PeerInfo {
    PeerInfo {
        name: EntityName::new(kind, num),
        auth_name: AuthName::new(kind, num.to_string()),
        addr: EntityAddr::parse("v2:127.0.0.1:0/1", AddrKind::Msgr2).expect("an address"),
        caps: MgrCap::parse(caps).expect("capabilities"),
    }
}

impl World {
    /// Without a map, but with an administrator's session; the monitors are ours.
    pub fn new() -> Self {
        Self::on(Some(OURS), false)
    }

    /// The same on monitors of this version.
    pub fn on(version: Option<&'static str>, force: bool) -> Self {
        let settings = Settings {
            name: "x".to_owned(),
            addrs: AddrVec::single(EntityAddr::v2(([127, 0, 0, 1], 6_801).into(), 1)),
            metadata: BTreeMap::new(),
            options: BTreeMap::new(),
            force,
        };
        let now = Now { mono: Duration::from_secs(1_000), wall: Utime::new(RECORDED_S, 0) };
        let mut w = Self {
            manager: Manager::new(settings),
            now,
            out: Vec::new(),
            tid: 0,
            version,
            osd_metadata: "[]".to_owned(),
            tells_metadata: true,
        };
        w.input(Input::Connected { conn: ADMIN, peer: peer(EntityType::Client, 4_200, "allow *") });
        w
    }

    /// With the real cluster's maps and reports.
    pub fn recorded() -> Self {
        let mut w = Self::new();
        w.input(Input::MonConnected { gid: 4_100 });
        w.mon_sends(full_map(Bytes::from_static(OSDMAP)));
        for (osd, report) in reports() {
            w.connect_osd(osd);
            w.message(osd_conn(osd), report);
        }
        w.out.clear();
        w
    }

    pub fn input(&mut self, input: Input) {
        self.manager.handle(self.now, input, &mut self.out);
        self.answer_whose();
        self.answer_disks();
    }

    /// The same of what daemons say of their disks, which ours are asked for when somebody wants to know.
    fn answer_disks(&mut self) {
        let kind = |o: &Output| match o {
            Output::SendMon { tid, msg: Message::MonCommand(m) } => {
                let command: Value = serde_json::from_str(&m.cmd.concat()).ok()?;
                let kind = command["prefix"].as_str()?.strip_suffix(" metadata")?.to_owned();
                (kind != "mds").then_some((*tid, kind))
            }
            _ => None,
        };
        while let Some((at, (tid, kind))) =
            self.out.iter().enumerate().find_map(|(at, o)| Some((at, kind(o)?)))
        {
            if self.version != Some(OURS) || !self.tells_metadata {
                return;
            }
            self.out.remove(at);
            let output = if kind == "osd" { self.osd_metadata.clone() } else { "[]".to_owned() };
            let ack = MMonCommandAck { output: output.into(), ..MMonCommandAck::default() };
            self.manager.handle(self.now, Input::FromMon { tid, msg: ack.into() }, &mut self.out);
        }
    }

    /// Answers the question whose the monitors are; neither it nor what is made of it stays among what was
    /// sent.
    fn answer_whose(&mut self) {
        let is_it = |o: &Output| matches!(o, Output::SendMon { msg: Message::MonCommand(m), .. } if m.cmd == [Whose::QUESTION]);
        let Some(version) = self.version else { return };
        let Some(at) = self.out.iter().position(is_it) else { return };
        let Output::SendMon { tid, .. } = self.out.remove(at) else { return };
        let output = Bytes::from_static(version.as_bytes());
        let ack = MMonCommandAck { output, ..MMonCommandAck::default() };
        self.manager.handle(self.now, Input::FromMon { tid, msg: ack.into() }, &mut self.out);
        self.out.retain(|o| !matches!(o, Output::Monitors(_)));
    }

    pub fn mon_sends(&mut self, msg: impl Into<Message>) {
        self.input(Input::FromMon { tid: 0, msg: msg.into() });
    }

    pub fn message(&mut self, conn: ConnId, msg: impl Into<Message>) {
        self.input(Input::Message { conn, tid: 0, msg: msg.into() });
    }

    pub fn connect_osd(&mut self, osd: i32) {
        let peer = peer(EntityType::Osd, osd.into(), "allow profile osd");
        self.input(Input::Connected { conn: osd_conn(osd), peer });
    }

    /// Lets time pass, in ticks of 250 ms.
    pub fn advance(&mut self, by: Duration) {
        let end = self.now.mono + by;
        while self.now.mono < end {
            let step = Duration::from_millis(250).min(end - self.now.mono);
            self.now.mono += step;
            self.now.wall = self.now.wall.plus(step);
            self.input(Input::Tick);
        }
    }

    /// What was sent since the last call.
    pub fn sent(&mut self) -> Vec<Output> {
        std::mem::take(&mut self.out)
    }

    /// Runs a command; `None` when the answer does not come at once.
    pub fn command(&mut self, json: &str) -> Option<MMgrCommandReply> {
        self.command_as(ADMIN, json)
    }

    pub fn command_as(&mut self, conn: ConnId, json: &str) -> Option<MMgrCommandReply> {
        self.tid += 1;
        let before = self.out.len();
        let msg = MMgrCommand { cmd: vec![json.to_owned()], ..MMgrCommand::default() }.into();
        self.input(Input::Message { conn, tid: self.tid, msg });
        let at =
            self.out.iter().skip(before).position(
                |o| matches!(o, Output::Send { conn: c, tid, .. } if *c == conn && *tid == self.tid),
            )?;
        match self.out.remove(before + at) {
            Output::Send { msg: Message::MgrCommandReply(reply), .. } => Some(reply),
            other => panic!("{other:?} is no answer"),
        }
    }
}

pub fn text(reply: &MMgrCommandReply) -> String {
    String::from_utf8(reply.output.to_vec()).expect("text")
}

pub fn full_map(bytes: Bytes) -> MOsdMap {
    let map = OsdMap::from_bytes(bytes.clone()).expect("a map");
    MOsdMap {
        fsid: map.fsid,
        full: [(map.epoch, bytes)].into(),
        oldest: Epoch(1),
        newest: map.epoch,
        ..MOsdMap::default()
    }
}

/// What `pg getmap` gives. Source: PGMap::decode (version 8).
#[derive(Debug, Clone, PartialEq)]
pub struct RawPgMap {
    pub version: u64,
    pub pgs: BTreeMap<PgId, PgStat>,
    pub osds: BTreeMap<i32, OsdStat>,
    pub stamp: Utime,
    pub by_pool: BTreeMap<(i64, i32), StoreStatfs>,
}

impl RawPgMap {
    pub fn decode(bytes: Bytes) -> Result<Self, DecodeError> {
        Reader::new(bytes).envelope("PGMap", 8, |r, _| {
            let (version, pgs, osds) = (r.u64()?, Decode::decode(r)?, Decode::decode(r)?);
            r.skip(8)?;
            Ok(Self { version, pgs, osds, stamp: Decode::decode(r)?, by_pool: Decode::decode(r)? })
        })
    }
}

/// The reports that lead to the recorded state.
pub fn reports() -> Vec<(i32, MPgStats)> {
    let map = OsdMap::from_bytes(Bytes::from_static(OSDMAP)).expect("a map");
    let raw = RawPgMap::decode(Bytes::from_static(PGMAP)).expect("a PG map");
    let report = |(osd, stat): (&i32, &OsdStat)| {
        let pgs = raw.pgs.iter().filter(|(_, s)| s.acting_primary == *osd);
        let pools = raw.by_pool.iter().filter(|((_, o), _)| o == osd);
        let m = MPgStats {
            fsid: map.fsid,
            osd_stat: stat.clone(),
            pg_stats: pgs.map(|(pg, s)| (*pg, s.clone())).collect(),
            epoch: map.epoch,
            pool_stats: pools.map(|((pool, _), s)| (*pool, *s)).collect(),
            ..MPgStats::default()
        };
        (*osd, m)
    };
    raw.osds.iter().map(report).collect()
}

/// JSON as text that keeps the order of fields, with each list of objects sorted: Ceph lists in the order of its hash
/// tables.
pub fn in_order(value: &Value) -> String {
    match value {
        Value::Object(fields) => {
            let fields: Vec<String> = fields.iter().map(|(k, v)| format!("{k:?}:{}", in_order(v))).collect();
            format!("{{{}}}", fields.join(","))
        }
        Value::Array(items) => {
            let mut items: Vec<String> = items.iter().map(in_order).collect();
            if value.get(0).is_some_and(Value::is_object) {
                items.sort();
            }
            format!("[{}]", items.join(",\n"))
        }
        // Python writes whole floats as 1.0, Ceph's formatter as 1; the last digits of others are the parser's.
        Value::Number(n) => n.as_f64().map_or_else(String::new, |v| format!("{v:.13e}")),
        other => other.to_string(),
    }
}
