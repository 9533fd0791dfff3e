//! A lone monitor with its log and clock, driven by hand.
#![allow(dead_code, reason = "tests of crates/manager use a part of it")]

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use cephx::{CryptoKey, EntityAuth, METHOD_NONE};
use codec::{Encode, Writer};
use maps::{MonMap, OsdMap};
use messages::mon::{MMonCommand, MMonCommandAck};
use messages::osd::{MOsdBoot, OsdSuperblock};
use messages::{Header, Message};
use monitor::state::OsdHistory;
use monitor::{GenesisConfig, Input, Monitor, Output, Settings};
use types::{
    AddrKind, AddrVec, AuthName, ConnId, EntityAddr, EntityName, EntityType, Fsid, Now, SeededEntropy, Utime,
};

pub const FSID: Fsid = Fsid([7; 16]);

pub struct World {
    pub mon: Monitor,
    pub now: Now,
    pub out: Vec<Output>,
    /// Proposals not committed yet; the test commits them, or `run` does.
    pub log: Vec<Bytes>,
    pub index: u64,
    next_tid: u64,
}

pub fn addr(text: &str) -> EntityAddr {
    EntityAddr::parse(text, AddrKind::Msgr2).expect("an address")
}

pub fn entity(mon_caps: &str) -> EntityAuth {
    let key = CryptoKey::new([1; 16], Utime::ZERO);
    EntityAuth { key, caps: [("mon".to_owned(), mon_caps.to_owned())].into() }
}

pub fn genesis() -> Bytes {
    let admin = ["mon", "osd", "mds", "mgr"].map(|s| (s.to_owned(), "allow *".to_owned())).into();
    let addrs = AddrVec::single(addr("v2:127.0.0.1:3300/0"));
    let now = at(0);
    let mut entities = std::collections::BTreeMap::new();
    let key = |b: u8| CryptoKey::new([b; 16], Utime::ZERO);
    entities
        .insert(AuthName::parse("client.admin").expect("a name"), EntityAuth { key: key(2), caps: admin });
    for (name, caps) in [("mon.", "allow *"), ("mgr.x", "allow profile mgr"), ("osd.0", "allow profile osd")]
    {
        entities.insert(AuthName::parse(name).expect("a name"), entity(caps));
    }
    let config = GenesisConfig {
        fsid: FSID,
        monmap: MonMap::new(FSID, now.wall, [("a".to_owned(), addrs)]),
        entities,
        failure_domain: "osd".to_owned(),
        options: Vec::new(),
        osds: Vec::new(),
    };
    Monitor::genesis(&config, now, &mut SeededEntropy(1))
}

pub fn at(secs: u64) -> Now {
    let mono = Duration::from_secs(secs);
    Now { mono, wall: Utime::from_unix(Duration::from_secs(1_700_000_000 + secs)) }
}

pub fn settings() -> Settings {
    let mut s = Settings::new("a", AddrVec::single(addr("v2:127.0.0.1:3300/0")));
    s.auth_methods = vec![METHOD_NONE, cephx::METHOD_CEPHX];
    for (name, value) in [
        ("mon_allow_pool_delete", "true"),
        ("mon_allow_pool_size_one", "true"),
        ("osd_pool_default_size", "2"),
        ("osd_pool_default_min_size", "1"),
        ("osd_pool_default_pg_autoscale_mode", "off"),
        ("osd_pool_default_pg_num", "32"),
    ] {
        s.options.insert(name.into(), value.into());
    }
    s
}

impl World {
    pub fn new() -> Self {
        Self::with_options(&[])
    }

    /// One whose configuration says this as well.
    pub fn with_options(options: &[(&str, &str)]) -> Self {
        let mut settings = settings();
        settings.options.extend(options.iter().map(|(name, value)| ((*name).into(), (*value).into())));
        let mon = Monitor::new(settings, Box::new(SeededEntropy(9)), &genesis()).expect("a snapshot");
        let mut w = Self { mon, now: at(1), out: Vec::new(), log: Vec::new(), index: 0, next_tid: 0 };
        w.input(Input::Tick);
        w.run();
        w
    }

    /// The monitor begins anew with a map that no command makes. Its sessions and older maps are gone.
    pub fn begin_with(&mut self, change: impl FnOnce(&mut OsdMap)) {
        let mut state = self.mon.state().clone();
        let mut map = state.osdmap().clone();
        change(&mut map);
        state.osds = Arc::new(OsdHistory::new(map));
        let mut w = Writer::new();
        w.envelope(1, 1, |w| {
            w.u64(self.index);
            state.encode(w);
        });
        let snapshot = w.into_bytes();
        self.mon = Monitor::new(settings(), Box::new(SeededEntropy(10)), &snapshot).expect("a snapshot");
        self.input(Input::Tick);
        self.run();
    }

    /// Feeds one input; proposals are put aside.
    pub fn input(&mut self, input: Input) {
        let mut out = Vec::new();
        self.mon.handle(self.now, input, &mut out);
        for o in out {
            match o {
                Output::Propose { data } => self.log.push(data),
                other => self.out.push(other),
            }
        }
    }

    /// Commits until nothing is proposed any more.
    pub fn run(&mut self) {
        while !self.log.is_empty() {
            let change = self.log.remove(0);
            self.index += 1;
            self.input(Input::Committed { index: self.index, change });
            self.mon.state().osds.assert_invariants();
        }
    }

    pub fn take(&mut self) -> Vec<Output> {
        std::mem::take(&mut self.out)
    }

    /// Everything sent to a connection.
    pub fn sent(&mut self, conn: ConnId) -> Vec<Message> {
        let mut mine = Vec::new();
        for o in self.take() {
            match o {
                Output::Send { conn: c, msg, .. } if c == conn => mine.push(msg),
                other => self.out.push(other),
            }
        }
        mine
    }

    /// Logs in with method none, which makes everybody an administrator.
    pub fn connect(&mut self, conn: u64, name: &str, num: i64, at: &str) -> ConnId {
        let conn = ConnId(conn);
        let name = AuthName::parse(name).expect("a name");
        let payload = cephx::none_login_request(&name, types::GlobalId(0));
        self.input(Input::AuthRequest {
            conn,
            peer_type: name.kind,
            method: METHOD_NONE,
            preferred_modes: vec![2, 1],
            payload,
            peer_addr: addr(at),
        });
        self.run();
        assert!(self.take().iter().any(|o| matches!(o, Output::AuthDone { .. })), "logged in");
        let peer = EntityName { kind: name.kind as u8, num };
        let features = types::features::PACIFIC;
        self.input(Input::Connected { conn, peer, addrs: AddrVec::single(addr(at)), features });
        conn
    }

    pub fn admin(&mut self) -> ConnId {
        self.connect(1, "client.admin", 4_100, "v2:127.0.0.1:0/77")
    }

    pub fn osd(&mut self, id: i32) -> ConnId {
        self.connect(
            100 + id as u64,
            &format!("osd.{id}"),
            id.into(),
            &format!("v2:127.0.0.1:{}/1", 6_800 + id),
        )
    }

    pub fn send(&mut self, conn: ConnId, msg: impl Into<Message>) {
        self.bring(conn, msg.into());
        self.run();
    }

    /// Brings a message; what is proposed stays under way. Connection 50 stands for all managers: a beacon
    /// goes over a session of the manager that it speaks of.
    pub fn bring(&mut self, conn: ConnId, msg: Message) {
        let conn = match &msg {
            Message::MgrBeacon(m) if conn == ConnId(50) && self.mon.session_id(conn) != Some(m.gid) => {
                self.manager(&m.name, m.gid)
            }
            _ => conn,
        };
        self.next_tid += 1;
        let header = Header { tid: self.next_tid, ..Header::default() };
        let bytes = msg.clone().into_wire(0).payload_len();
        self.input(Input::Message { conn, header, msg, bytes });
    }

    /// Sends these while a change of the administrator's is under way: they are worked through together.
    pub fn send_behind_a_change(&mut self, messages: Vec<(ConnId, Message)>) {
        let cmd = format!(r#"{{"prefix":"config-key set","key":"k","val":"{}"}}"#, self.next_tid);
        self.bring(ConnId(1), MMonCommand { fsid: FSID, cmd: vec![cmd], ..MMonCommand::default() }.into());
        assert_eq!(self.log.len(), 1, "a proposal is under way");
        messages.into_iter().for_each(|(conn, msg)| self.bring(conn, msg));
        self.run();
    }

    /// A session of a manager with that number.
    pub fn manager(&mut self, name: &str, gid: u64) -> ConnId {
        let conn = ConnId(60_000 + gid);
        let name = AuthName::new(EntityType::Mgr, name);
        if self.mon.entity_of(conn) != Some(&name) {
            let payload = cephx::none_login_request(&name, types::GlobalId(gid));
            self.input(Input::AuthRequest {
                conn,
                peer_type: EntityType::Mgr,
                method: METHOD_NONE,
                preferred_modes: vec![2, 1],
                payload,
                peer_addr: addr("v2:127.0.0.1:6790/1"),
            });
            let peer = EntityName { kind: EntityType::Mgr as u8, num: 4_200 };
            let (addrs, features) = (AddrVec::default(), types::features::PACIFIC);
            self.input(Input::Connected { conn, peer, addrs, features });
        }
        assert_eq!(self.mon.session_id(conn), Some(gid));
        conn
    }

    pub fn raw_command(&mut self, conn: ConnId, cmd: &str, input: Bytes) -> MMonCommandAck {
        let msg = MMonCommand { fsid: FSID, cmd: vec![cmd.to_owned()], input, ..MMonCommand::default() };
        self.send(conn, msg);
        let acks = self.sent(conn).into_iter().filter_map(|m| match m {
            Message::MonCommandAck(ack) => Some(ack),
            _ => None,
        });
        acks.last().expect("a command is answered")
    }

    /// Code, status line and output of a command.
    pub fn command(&mut self, conn: ConnId, cmd: &str) -> (i32, String, String) {
        let ack = self.raw_command(conn, cmd, Bytes::new());
        (ack.result, ack.status, String::from_utf8_lossy(&ack.output).into_owned())
    }

    pub fn tick(&mut self, secs: u64) {
        self.now = at(secs);
        self.input(Input::Tick);
        self.run();
    }
}

pub fn uuid(id: i32) -> Fsid {
    Fsid([id as u8 + 1; 16])
}

pub fn boot_message(id: i32, w: &World) -> MOsdBoot {
    let at = |port: i32| AddrVec::single(addr(&format!("v2:127.0.0.1:{}/1", port + id)));
    let newest_map = w.mon.state().osdmap().epoch;
    let superblock = OsdSuperblock {
        cluster_fsid: FSID,
        whoami: id,
        osd_fsid: uuid(id),
        newest_map,
        mounted: newest_map,
        ..OsdSuperblock::default()
    };
    MOsdBoot {
        superblock,
        cluster_addrs: at(7_000),
        hb_back_addrs: at(7_100),
        hb_front_addrs: at(7_200),
        metadata: [("hostname", "h"), ("loligo", "0.1")].map(|(k, v)| (k.to_owned(), v.to_owned())).into(),
        features: types::features::PACIFIC,
        ..MOsdBoot::default()
    }
}

/// An OSD on a host of its own, created by the administrator that is connected, boots.
pub fn boot_osd(w: &mut World, id: i32) {
    let admin = ConnId(1);
    w.command(admin, &format!(r#"{{"prefix":"osd new","uuid":"{}"}}"#, uuid(id)));
    let args = format!(r#""args":["host=h{id}","root=default"]"#);
    w.command(admin, &format!(r#"{{"prefix":"osd crush add","id":{id},"weight":1.0,{args}}}"#));
    let conn = w.osd(id);
    let boot = boot_message(id, w);
    w.send(conn, boot);
}
