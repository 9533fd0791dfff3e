//! Commands of an administrator, executed by a monitor and by a manager.
//!
//! No piece of a monitor's work panics, contained or not. What it commits can be loaded again, by a monitor
//! that starts from it and by an OSD that follows the map; whoever applies the same entries is in the same
//! state.

use std::collections::BTreeMap;
use std::sync::OnceLock;
use std::time::Duration;

use admin::Signature;
use bytes::Bytes;
use cephx::{CryptoKey, EntityAuth, METHOD_NONE};
use codec::{Decode, Encode};
use maps::{MonMap, OsdMap};
use messages::mon::MMonCommand;
use messages::osd::{MOsdBoot, OsdSuperblock};
use messages::{Header, Message};
use monitor::command::Handler;
use monitor::{GenesisConfig, GenesisOsd, Input, Monitor, Output, Settings};
use types::{
    AddrKind, AddrVec, AuthName, ConnId, EntityAddr, EntityName, EntityType, Errno, Fsid, GlobalId, Now,
    SeededEntropy, Utime,
};

use crate::arguments::{Chooser, RAW, command};

const FSID: Fsid = Fsid([7; 16]);
const ADMIN: ConnId = ConnId(1);
/// A longer list is cut: a command may take some milliseconds.
const MAX_COMMANDS: usize = 40;
/// PGs of each map that are placed.
const PLACED: usize = 8;

fn at(secs: u64) -> Now {
    let mono = Duration::from_secs(secs);
    Now { mono, wall: Utime::from_unix(Duration::from_secs(1_700_000_000 + secs)) }
}

fn addr(port: u32, nonce: u32) -> EntityAddr {
    EntityAddr::parse(&format!("v2:127.0.0.1:{port}/{nonce}"), AddrKind::Msgr2).unwrap_or_default()
}

fn settings() -> Settings {
    let mut settings = Settings::new("a", AddrVec::single(addr(3_300, 0)));
    settings.auth_methods = vec![METHOD_NONE, cephx::METHOD_CEPHX];
    let options = [
        ("mon_allow_pool_delete", "true"),
        ("mon_allow_pool_size_one", "true"),
        ("osd_pool_default_size", "2"),
        ("osd_pool_default_min_size", "1"),
        ("osd_pool_default_pg_autoscale_mode", "off"),
        ("osd_pool_default_pg_num", "8"),
    ];
    settings.options.extend(options.map(|(name, value)| (name.to_owned(), value.to_owned())));
    settings
}

/// A monitor alone with its log, which it also follows from a second one.
struct World {
    mon: Monitor,
    follower: Monitor,
    now: Now,
    index: u64,
    next_tid: u64,
    log: Vec<Bytes>,
    /// What commands were answered.
    results: Vec<i32>,
}

impl World {
    fn from(snapshot: &Bytes, index: u64) -> Self {
        let started = |seed: u64| {
            let entropy = Box::new(SeededEntropy(seed));
            Monitor::new(settings(), entropy, snapshot).expect("a monitor starts from what was committed")
        };
        let mut follower_settings = settings();
        follower_settings.quorum = monitor::QuorumView::electing(1, 3);
        let follower =
            Monitor::new(follower_settings, Box::new(SeededEntropy(8)), snapshot).expect("as the other one");
        Self {
            mon: started(9),
            follower,
            now: at(100),
            index,
            next_tid: 0,
            log: Vec::new(),
            results: Vec::new(),
        }
    }

    fn input(&mut self, input: Input) {
        let mut out = Vec::new();
        self.mon.handle(self.now, input, &mut out);
        for output in out {
            match output {
                Output::Propose { data } => self.log.push(data),
                Output::Send { msg: Message::MonCommandAck(ack), .. } => {
                    let is_bug =
                        ack.result == Errno::EIO.neg() && ack.status.contains("a bug in the monitor");
                    assert!(!is_bug, "{:?} panics", ack.cmd);
                    self.results.push(ack.result);
                }
                _ => {}
            }
        }
    }

    fn run(&mut self) {
        while !self.log.is_empty() {
            let change = self.log.remove(0);
            self.index += 1;
            let committed = Input::Committed { index: self.index, change };
            self.follower.handle(self.now, committed.clone(), &mut Vec::new());
            let before = self.mon.state().osdmap().epoch;
            self.input(committed);
            self.check_commit(before);
        }
    }

    /// What has been committed can be loaded.
    fn check_commit(&self, before: types::Epoch) {
        self.mon.state().osds.assert_invariants();
        let snapshot = self.mon.snapshot();
        let again = Monitor::new(settings(), Box::new(SeededEntropy(5)), &snapshot);
        let again = again.expect("what was committed is loaded");
        assert!(again.snapshot() == snapshot, "a state comes back as it went");
        let map = self.mon.state().osdmap();
        if map.epoch != before {
            let raw = map.to_bytes();
            let theirs = OsdMap::from_bytes(raw.clone()).expect("OSDs read the map");
            assert!(theirs.to_bytes() == raw, "a map comes back as it went");
            theirs.pgs().take(PLACED).for_each(|pg| drop(theirs.pg_to_up_acting(pg)));
        }
    }

    fn login(&mut self, conn: ConnId, name: AuthName, peer: EntityName, at: EntityAddr) {
        let payload = cephx::none_login_request(&name, GlobalId(0));
        self.input(Input::AuthRequest {
            conn,
            peer_type: name.kind,
            method: METHOD_NONE,
            preferred_modes: vec![2, 1],
            payload,
            peer_addr: at,
        });
        self.run();
        let features = types::features::PACIFIC;
        self.input(Input::Connected { conn, peer, addrs: AddrVec::single(at), features });
        self.run();
    }

    fn admin(&mut self) {
        self.login(ADMIN, AuthName::new(EntityType::Client, "admin"), EntityName::client(4_100), addr(0, 77));
    }

    fn send(&mut self, conn: ConnId, msg: Message) {
        self.next_tid += 1;
        let header = Header { tid: self.next_tid, ..Header::default() };
        let bytes = msg.clone().into_wire(0).payload_len();
        self.input(Input::Message { conn, header, msg, bytes });
        self.run();
    }

    fn command(&mut self, json: &str, input: Bytes) {
        let msg = MMonCommand { fsid: FSID, cmd: vec![json.to_owned()], input, ..MMonCommand::default() };
        self.send(ADMIN, msg.into());
    }

    /// Minutes pass.
    fn age(&mut self) {
        for minute in 1..4 {
            self.now = at(100 + minute * 60);
            self.input(Input::Tick);
            self.run();
        }
        assert!(self.follower.snapshot() == self.mon.snapshot(), "who applies the same is in the same state");
        // Lines of the log are part of the state.
        let log = self.mon.state().log.to_bytes();
        let bug = b"a bug keeps the monitor";
        assert!(!log.windows(bug.len()).any(|w| w == bug), "a part of a tick panics");
    }

    /// Everything that can be asked without an argument, and one of each that needs some.
    fn ask_everything(&mut self) {
        for (i, command) in monitor::command::all().enumerate() {
            if !matches!(command.handler, Handler::Read(_)) {
                continue;
            }
            let sig = Signature::parse(command.sig);
            let chosen = [3, i as u8, 3, i as u8, 3, i as u8, 3];
            self.command(&self::command(&sig, &mut Chooser(&chosen)), Bytes::new());
        }
    }
}

/// Three OSDs that are up, five pools, a file system: what commands find.
fn prepared() -> &'static (Bytes, u64) {
    static PREPARED: OnceLock<(Bytes, u64)> = OnceLock::new();
    PREPARED.get_or_init(|| {
        let entity = |b: u8, caps: &str| EntityAuth {
            key: CryptoKey::new([b; 16], Utime::ZERO),
            caps: ["mon", "osd", "mgr"].map(|s| (s.to_owned(), caps.to_owned())).into(),
        };
        let entities = [("client.admin", 2), ("mon.", 3), ("mgr.x", 4), ("osd.0", 5), ("client.x", 6)];
        let entities: BTreeMap<AuthName, EntityAuth> = entities
            .into_iter()
            .filter_map(|(name, key)| Some((AuthName::parse(name)?, entity(key, "allow *"))))
            .collect();
        let osd = |id: i32| GenesisOsd {
            id,
            uuid: Fsid([id as u8 + 1; 16]),
            weight_16_16: 0x1_0000,
            host: format!("h{id}"),
        };
        let config = GenesisConfig {
            fsid: FSID,
            monmap: MonMap::new(FSID, at(0).wall, [("a".to_owned(), AddrVec::single(addr(3_300, 0)))]),
            entities,
            failure_domain: "osd".to_owned(),
            options: Vec::new(),
            osds: (0..3).map(osd).collect(),
        };
        let mut world = World::from(&Monitor::genesis(&config, at(0), &mut SeededEntropy(1)), 0);
        world.input(Input::Tick);
        world.run();
        world.admin();
        (0..3).for_each(|id| world.boot(id));
        for pool in ["p", "q", "r", "m", "d"] {
            world.command(
                &format!(r#"{{"prefix":"osd pool create","pool":"{pool}","pg_num":8}}"#),
                Bytes::new(),
            );
        }
        world.command(
            r#"{"prefix":"osd erasure-code-profile set","name":"prof","profile":["k=2","m=1"]}"#,
            Bytes::new(),
        );
        world.command(r#"{"prefix":"fs new","fs_name":"a","metadata":"m","data":"d"}"#, Bytes::new());
        assert_eq!(world.mon.state().osdmap().pools.len(), 5, "the pools are there");
        assert_eq!(world.mon.state().fs.map.filesystems.len(), 1, "the file system is there");
        (world.mon.snapshot(), world.index)
    })
}

impl World {
    fn boot(&mut self, id: i32) {
        let conn = ConnId(100 + id as u64);
        let at = |port: u32| AddrVec::single(addr(port + id as u32, 1));
        self.login(
            conn,
            AuthName::new(EntityType::Osd, id.to_string()),
            EntityName::osd(id),
            addr(6_800 + id as u32, 1),
        );
        let newest_map = self.mon.state().osdmap().epoch;
        let superblock = OsdSuperblock {
            cluster_fsid: FSID,
            whoami: id,
            osd_fsid: Fsid([id as u8 + 1; 16]),
            newest_map,
            mounted: newest_map,
            ..OsdSuperblock::default()
        };
        let boot = MOsdBoot {
            superblock,
            cluster_addrs: at(7_000),
            hb_back_addrs: at(7_100),
            hb_front_addrs: at(7_200),
            metadata: [("hostname".to_owned(), format!("h{id}"))].into(),
            features: types::features::PACIFIC,
            ..MOsdBoot::default()
        };
        self.send(conn, boot.into());
    }
}

/// The results of the commands themselves.
fn execute(commands: impl Iterator<Item = (String, Bytes)>) -> Vec<i32> {
    let (snapshot, index) = prepared();
    let mut world = World::from(snapshot, *index);
    world.admin();
    for (json, input) in commands.take(MAX_COMMANDS) {
        world.command(&json, input);
    }
    let results = world.results.clone();
    world.age();
    world.ask_everything();
    let mut next = World::from(&world.mon.snapshot(), world.index);
    next.admin();
    next.age();
    results
}

/// A command in each line; behind a tab what is sent along with it, as hexadecimal digits.
pub(crate) fn mon_commands(data: &[u8]) {
    drop(told(data));
}

fn told(data: &[u8]) -> Vec<i32> {
    let text = String::from_utf8_lossy(data);
    execute(text.lines().map(|line| {
        let (json, input) = line.split_once('\t').unwrap_or((line, ""));
        (json.to_owned(), crate::recorded::unhex(input).into())
    }))
}

/// Records of two bytes that say which command, and what its arguments take.
pub(crate) fn mon_arguments(data: &[u8]) {
    drop(chosen(data));
}

fn chosen(data: &[u8]) -> Vec<i32> {
    static SIGNATURES: OnceLock<Vec<Signature>> = OnceLock::new();
    let all = SIGNATURES.get_or_init(|| monitor::command::all().map(|c| Signature::parse(c.sig)).collect());
    let mut chooser = Chooser(data);
    execute(std::iter::from_fn(move || {
        if chooser.0.is_empty() {
            return None;
        }
        let which = usize::from(chooser.byte()) | usize::from(chooser.byte()) << 8;
        let sig = all.get(which % all.len())?;
        let json = command(sig, &mut chooser);
        let input = chooser.of(inputs()).cloned().unwrap_or_default();
        Some((json, input))
    }))
}

/// What commands are given along: nothing as a rule.
fn inputs() -> &'static [Bytes] {
    static INPUTS: OnceLock<Vec<Bytes>> = OnceLock::new();
    INPUTS.get_or_init(|| {
        let mut all = vec![Bytes::new(); 8];
        let (snapshot, index) = prepared();
        let world = World::from(snapshot, *index);
        all.push(world.mon.state().osdmap().crush.to_bytes());
        all.push(world.mon.state().monmap.to_bytes());
        all.push(Bytes::from_static(
            b"[client.y]\n\tkey = AQDk9bdhAAAAABAAT0pF0rgAXkyA3I9yBzgeQA==\n\tcaps mon = \"allow *\"\n",
        ));
        all.push(Bytes::from_static(b"[global]\nosd_pool_default_size = 3\n[osd.0]\ndebug osd = 20/20\n"));
        all.push(Bytes::from_static(br#"{"cephx_secret":"AQDk9bdhAAAAABAAT0pF0rgAXkyA3I9yBzgeQA=="}"#));
        all
    })
}

/// What a real monitor was told, some lines at a time.
pub(crate) fn mon_commands_seeds() -> Vec<Vec<u8>> {
    let lines = crate::recorded::commands();
    lines.chunks(12).map(|lines| lines.join(&b'\n')).collect()
}

/// Every command with several choices of arguments.
pub(crate) fn mon_arguments_seeds() -> Vec<Vec<u8>> {
    let count = monitor::command::all().count();
    let one = |which: usize, choice: u8| {
        let mut out = (which as u16).to_le_bytes().to_vec();
        out.extend((0..18).map(|n: u8| choice.wrapping_mul(n | 1).wrapping_add(n) % RAW));
        out
    };
    let all: Vec<Vec<u8>> =
        (0..count * 2).map(|i| one(i.wrapping_mul(37) % count, (i / count * 53) as u8)).collect();
    all.chunks(MAX_COMMANDS).map(<[Vec<u8>]>::concat).collect()
}

#[cfg(test)]
mod tests {
    #[test]
    fn many_of_the_seeds_commands_succeed() {
        for (seeds, run) in [
            (super::mon_commands_seeds(), super::told as fn(&[u8]) -> Vec<i32>),
            (super::mon_arguments_seeds(), super::chosen),
        ] {
            let results: Vec<i32> = seeds.iter().step_by(3).flat_map(|seed| run(seed)).collect();
            let good = results.iter().filter(|r| **r >= 0).count();
            assert!(results.len() > 100 && good * 4 > results.len(), "{good} of {}", results.len());
        }
    }
}
