//! Three monitors with their quorum: requests at any of them, a leader that dies, a member that comes back empty.

use crate::common;

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use cephx::METHOD_NONE;
use common::{FSID, addr};
use maps::{MdsState, MonMap};
use messages::Message;
use messages::mds::MMdsBeacon;
use messages::mon::MMonCommand;
use monitor::{GenesisConfig, Input, Member, Monitor, Output, Settings};
use quorum::{Entry, HardState, MemberId, Membership, Snapshot, Start, Tuning, Write};
use types::{
    AddrVec, AuthName, ConnId, EntityAddr, EntityName, EntityType, GlobalId, Now, SeededEntropy, Utime,
};

const NAMES: [&str; 3] = ["a", "b", "c"];

/// A monitor and its disk.
struct Host {
    member: Option<Member>,
    disk: Start,
    conns: BTreeMap<usize, ConnId>,
    sent: Vec<(ConnId, Message)>,
    closed: Vec<ConnId>,
}

struct Group {
    hosts: Vec<Host>,
    now: Now,
    net: VecDeque<(usize, usize, bytes::Bytes)>,
    next_conn: u64,
    lives: u64,
    /// Where monitors listen that start from now on.
    ip: &'static str,
    /// Those that start are told that all have moved there.
    moved: bool,
}

fn mon_addr(ip: &str, at: usize) -> EntityAddr {
    addr(&format!("v2:{ip}:{}/0", 3_300 + at))
}

fn write(disk: &mut Start, write: Write) {
    if let Some(hard) = write.hard {
        disk.hard = hard;
    }
    if let Some(snapshot) = write.snapshot {
        disk.entries.retain(|e: &Entry| e.index > snapshot.index);
        disk.snapshot = snapshot;
    }
    if let Some(from) = write.truncate {
        disk.entries.retain(|e| e.index < from);
    }
    disk.entries.extend(write.entries);
}

impl Group {
    fn new() -> Self {
        let now = Now { mono: Duration::from_secs(1), wall: Utime { sec: 1_700_000_000, nsec: 0 } };
        let mons = NAMES
            .iter()
            .enumerate()
            .map(|(i, n)| ((*n).to_owned(), AddrVec::single(mon_addr("127.0.0.1", i))));
        let config = GenesisConfig {
            fsid: FSID,
            monmap: MonMap::new(FSID, now.wall, mons),
            entities: BTreeMap::new(),
            failure_domain: "osd".to_owned(),
            options: Vec::new(),
            osds: Vec::new(),
        };
        let state = Monitor::genesis(&config, now, &mut SeededEntropy(1));
        let ids = (0..3).map(|i| MemberId(100 + i));
        let members = Membership::of(ids.clone().zip(NAMES.map(str::to_owned)));
        let snapshot = Snapshot { members, state, ..Snapshot::default() };
        let host = |id| Host {
            member: None,
            disk: Start {
                hard: HardState { id, ..HardState::default() },
                snapshot: snapshot.clone(),
                entries: Vec::new(),
            },
            conns: BTreeMap::new(),
            sent: Vec::new(),
            closed: Vec::new(),
        };
        let hosts = ids.map(host).collect();
        let mut g =
            Self { hosts, now, net: VecDeque::new(), next_conn: 10, lives: 0, ip: "127.0.0.1", moved: false };
        (0..3).for_each(|at| g.start(at));
        g
    }

    fn start(&mut self, at: usize) {
        self.lives += 1;
        let mut settings = Settings::new(NAMES[at], AddrVec::single(mon_addr(self.ip, at)));
        if self.moved {
            settings.moved =
                NAMES.map(str::to_owned).into_iter().zip((0..).map(|i| mon_addr(self.ip, i))).collect();
        }
        settings.auth_methods = vec![METHOD_NONE];
        let seeds = (0..3).map(|i| mon_addr(self.ip, i)).collect();
        let entropy = Box::new(SeededEntropy(self.lives));
        let start = self.hosts[at].disk.clone();
        let member =
            Member::new(settings, Tuning::default(), seeds, entropy, start, self.now).expect("a store");
        self.hosts[at].member = Some(member);
        self.hosts[at].conns.clear();
    }

    fn kill(&mut self, at: usize) {
        self.hosts[at].member = None;
        for other in 0..3 {
            if let Some(conn) = self.hosts[other].conns.remove(&at) {
                self.input(other, Input::Disconnected { conn });
                self.input(other, Input::PeerLost { addr: mon_addr(self.ip, at) });
            }
        }
    }

    fn input(&mut self, at: usize, input: Input) {
        let now = self.now;
        let Some(member) = &mut self.hosts[at].member else { return };
        let mut out = Vec::new();
        member.handle(now, input, &mut out);
        for output in out {
            match output {
                Output::Write(w) => {
                    let seq = w.seq;
                    write(&mut self.hosts[at].disk, w);
                    self.input(at, Input::Written { seq });
                }
                Output::Peer { addr, data } => {
                    let to = (0..3).find(|i| mon_addr(self.ip, *i) == addr).expect("one of us");
                    self.net.push_back((at, to, data));
                }
                Output::Send { conn, msg, .. } => self.hosts[at].sent.push((conn, msg)),
                Output::Close { conn } => self.hosts[at].closed.push(conn),
                Output::AuthDone { conn, global_id, .. } => {
                    let peer = EntityName::client(global_id.0 as i64);
                    let addrs = AddrVec::single(addr("v2:127.0.0.1:0/9"));
                    self.input(
                        at,
                        Input::Connected { conn, peer, addrs, features: types::features::PACIFIC },
                    );
                    self.hosts[at].sent.push((conn, messages::common::MPing::default().into()));
                }
                _ => {}
            }
        }
    }

    fn login(&mut self, at: usize, name: &str) -> ConnId {
        self.login_again(at, name, GlobalId(0))
    }

    /// As one who has an id already.
    fn login_again(&mut self, at: usize, name: &str, id: GlobalId) -> ConnId {
        self.next_conn += 1;
        let conn = ConnId(self.next_conn);
        let name = AuthName::parse(name).expect("a name");
        self.input(
            at,
            Input::AuthRequest {
                conn,
                peer_type: name.kind,
                method: METHOD_NONE,
                preferred_modes: vec![1],
                payload: cephx::none_login_request(&name, id),
                peer_addr: addr("v2:127.0.0.1:0/9"),
            },
        );
        conn
    }

    fn run(&mut self, millis: u64) {
        let end = self.now.mono + Duration::from_millis(millis);
        while self.now.mono < end {
            self.now.mono += Duration::from_millis(10);
            self.now.wall = Utime { sec: 1_700_000_000 + self.now.mono.as_secs() as u32, nsec: 0 };
            (0..3).for_each(|at| self.input(at, Input::Tick));
            while let Some((from, to, data)) = self.net.pop_front() {
                if self.hosts[to].member.is_none() || self.hosts[from].member.is_none() {
                    continue;
                }
                let conn = match self.hosts[to].conns.get(&from) {
                    Some(conn) => *conn,
                    None => {
                        let conn = self.login(to, "mon.");
                        self.hosts[to].conns.insert(from, conn);
                        conn
                    }
                };
                self.input(to, Input::Peer { conn, data });
            }
        }
    }

    fn leader(&self) -> Option<usize> {
        (0..3).find(|at| {
            self.hosts[*at]
                .member
                .as_ref()
                .is_some_and(|m| m.raft().is_leader() && m.raft().members().peers.len() == 3)
        })
    }

    fn command(&mut self, at: usize, conn: ConnId, json: &str) {
        let m = MMonCommand { fsid: FSID, cmd: vec![json.to_owned()], ..MMonCommand::default() };
        self.input(at, Input::Message { conn, header: Default::default(), msg: m.into(), bytes: 0 });
    }

    /// The answer to the last command: code, words, data.
    fn answer(&mut self, at: usize, conn: ConnId) -> Option<(i32, String, String)> {
        let sent = std::mem::take(&mut self.hosts[at].sent);
        sent.into_iter().rev().find_map(|(c, msg)| match msg {
            Message::MonCommandAck(a) if c == conn => {
                Some((a.result, a.status, String::from_utf8_lossy(&a.output).into_owned()))
            }
            _ => None,
        })
    }
}

const PUT: &str = r#"{"prefix":"config-key set","key":"k","val":"v"}"#;
const GET: &str = r#"{"prefix":"config-key get","key":"k"}"#;

#[test]
fn every_member_answers_and_a_change_at_one_is_seen_at_the_others_at_once() {
    let mut g = Group::new();
    g.run(4_000);
    let leader = g.leader().expect("a leader");
    let conns: Vec<ConnId> = (0..3).map(|at| g.login(at, "client.admin")).collect();
    g.run(200);
    let mut ids: Vec<u64> =
        (0..3).filter_map(|at| g.hosts[at].member.as_ref()?.core().session_id(conns[at])).collect();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), 3, "every client has an id of its own");
    let follower = (leader + 1) % 3;
    g.command(follower, conns[follower], PUT);
    g.run(100);
    assert_eq!(g.answer(follower, conns[follower]).map(|a| a.0), Some(0));
    for (at, conn) in conns.iter().enumerate() {
        g.command(at, *conn, GET);
    }
    g.run(50);
    for (at, conn) in conns.iter().enumerate() {
        assert_eq!(g.answer(at, *conn).map(|a| a.2), Some("v".to_owned()), "at {at}");
    }
}

#[test]
fn a_dead_leader_is_replaced_and_those_who_asked_through_it_come_again() {
    let mut g = Group::new();
    g.run(4_000);
    let leader = g.leader().expect("a leader");
    let follower = (leader + 1) % 3;
    let conn = g.login(follower, "client.admin");
    g.run(200);
    g.kill(leader);
    g.command(follower, conn, PUT);
    g.run(2_000);
    let next = g.leader().expect("another leader within 2 s");
    assert_ne!(next, leader);
    // Either it was kept until there was a leader, or its sender was told to come again.
    let done = g.answer(follower, conn).map(|a| a.0);
    assert!(done == Some(0) || g.hosts[follower].closed.contains(&conn), "{done:?}");
    let conn = g.login(follower, "client.admin");
    g.run(200);
    g.command(follower, conn, r#"{"prefix":"health","detail":"detail"}"#);
    g.run(100);
    let (_, _, text) = g.answer(follower, conn).expect("an answer");
    let dead = NAMES[leader];
    assert!(
        text.contains("1/3 mons down, quorum ") && text.contains(&format!("mon.{dead} (rank {leader})")),
        "{text}"
    );
    g.start(leader);
    g.run(2_000);
    let conn = g.login(leader, "client.admin");
    g.run(500);
    g.command(leader, conn, PUT);
    g.run(200);
    g.command(leader, conn, GET);
    g.run(200);
    assert_eq!(g.answer(leader, conn).map(|a| a.2), Some("v".to_owned()));
}

/// A metadata server with its session at one of the monitors.
struct Server {
    at: usize,
    conn: ConnId,
    gid: u64,
    name: &'static str,
    port: u16,
    seq: u64,
}

impl Server {
    fn start(g: &mut Group, at: usize, name: &'static str, port: u16) -> Self {
        let mut server = Self { at, conn: ConnId(0), gid: 0, name, port, seq: 0 };
        server.connect(g);
        server.say(g, MdsState::BOOT);
        server
    }

    fn connect(&mut self, g: &mut Group) {
        self.conn = g.login_again(self.at, &format!("mds.{}", self.name), GlobalId(self.gid));
        g.run(200);
        let peer = EntityName { kind: EntityType::Mds as u8, num: 0 };
        let addrs = AddrVec::single(addr(&format!("v2:127.0.0.1:{}/9", self.port)));
        let (conn, features) = (self.conn, types::features::PACIFIC);
        g.input(self.at, Input::Connected { conn, peer, addrs, features });
        let core = g.hosts[self.at].member.as_ref().expect("it runs").core();
        let gid = core.session_id(conn).expect("a session");
        assert!(self.gid == 0 || self.gid == gid);
        self.gid = gid;
    }

    fn state(&self, g: &Group) -> MdsState {
        let core = g.hosts[self.at].member.as_ref().expect("it runs").core();
        core.state().fs.map.daemon(self.gid).map_or(MdsState::DNE, |i| i.state)
    }

    fn say(&mut self, g: &mut Group, state: MdsState) {
        if g.hosts[self.at].closed.contains(&self.conn) {
            self.connect(g);
        }
        self.seq += 1;
        let core = g.hosts[self.at].member.as_ref().expect("it runs").core();
        let beacon = MMdsBeacon {
            epoch: core.state().fs.map.epoch_for(self.gid).unwrap_or_default(),
            fsid: FSID,
            gid: self.gid,
            name: self.name.to_owned(),
            state: state.0,
            seq: self.seq,
            compat: types::CompatSet::all(),
            features: types::features::PACIFIC,
            ..MMdsBeacon::default()
        };
        let (conn, msg) = (self.conn, beacon.into());
        g.input(self.at, Input::Message { conn, header: Default::default(), msg, bytes: 0 });
        g.run(100);
    }

    fn alive(&mut self, g: &mut Group) {
        let state = self.state(g);
        self.say(g, state);
    }
}

/// What a leader has heard of metadata servers goes with it: the next one gives all of them time.
#[test]
fn metadata_servers_outlive_a_leader_and_are_watched_by_the_next_one() {
    let mut g = Group::new();
    // Longer than any grace: a clock at its beginning knows no long silence.
    g.run(20_000);
    let leader = g.leader().expect("a leader");
    let at = (leader + 1) % 3;
    let admin = g.login(at, "client.admin");
    g.run(200);
    for command in [
        r#"{"prefix":"osd pool create","pool":"m","pg_num":1}"#,
        r#"{"prefix":"osd pool create","pool":"d","pg_num":1}"#,
        r#"{"prefix":"fs new","fs_name":"f","metadata":"m","data":"d"}"#,
    ] {
        g.command(at, admin, command);
        g.run(200);
        let (code, words, _) = g.answer(at, admin).expect("an answer");
        assert_eq!(code, 0, "{words}");
    }
    let mut a = Server::start(&mut g, at, "a", 7_000);
    g.run(1_500);
    assert_eq!(a.state(&g), MdsState::CREATING);
    a.say(&mut g, MdsState::ACTIVE);
    let mut b = Server::start(&mut g, at, "b", 7_002);
    let states = |g: &Group, a: &Server, b: &Server| (a.state(g), b.state(g));
    assert_eq!(states(&g, &a, &b), (MdsState::ACTIVE, MdsState::STANDBY));
    g.kill(leader);
    g.run(3_000);
    assert!(g.leader().is_some_and(|next| next != leader), "another leader");
    for _ in 0..5 {
        a.alive(&mut g);
        b.alive(&mut g);
        g.run(1_000);
        assert_eq!(states(&g, &a, &b), (MdsState::ACTIVE, MdsState::STANDBY));
    }
    // Now one of them falls silent, with its connection open.
    let silent = g.now.mono;
    while a.state(&g) == MdsState::ACTIVE && g.now.mono < silent + Duration::from_secs(30) {
        b.alive(&mut g);
        g.run(500);
    }
    let waited = g.now.mono - silent;
    assert_eq!(states(&g, &a, &b), (MdsState::DNE, MdsState::REPLAY));
    assert!(waited >= Duration::from_secs(13), "not before the grace of 15 s: {waited:?}");
    let core = g.hosts[at].member.as_ref().expect("it runs").core();
    assert!(core.state().osdmap().is_blocklisted(&addr("v2:127.0.0.1:7000/9")));
}

/// A client is sent away from a monitor without a majority: what it asked for there is not done when there is
/// one again, for it may have asked elsewhere and done more since.
#[test]
fn what_a_client_that_was_sent_away_asked_for_is_not_done_later() {
    let mut g = Group::new();
    g.run(4_000);
    let alone = (g.leader().expect("a leader") + 1) % 3;
    let others = [(alone + 1) % 3, (alone + 2) % 3];
    let conn = g.login(alone, "client.admin");
    g.run(200);
    others.iter().for_each(|at| g.kill(*at));
    g.run(3_000);
    g.command(alone, conn, PUT);
    g.run(15_000);
    assert!(g.hosts[alone].closed.contains(&conn), "it is sent away");
    assert_eq!(g.hosts[alone].member.as_ref().and_then(|m| m.core().session_id(conn)), None);
    others.iter().for_each(|at| g.start(*at));
    g.run(6_000);
    assert!(g.leader().is_some(), "a majority");
    let conn = g.login(alone, "client.admin");
    g.run(500);
    g.command(alone, conn, GET);
    g.run(200);
    assert_eq!(g.answer(alone, conn).map(|a| a.0), Some(types::Errno::ENOENT.neg()));
}

/// All stop and start elsewhere: nobody is sent anything at an old address (`Group::input` would not know
/// it), and the leader has the map say where they are, once.
#[test]
fn monitors_that_were_moved_find_each_other_and_the_map_follows() {
    let mut g = Group::new();
    g.run(4_000);
    (0..3).for_each(|at| g.kill(at));
    (g.ip, g.moved) = ("10.0.0.9", true);
    (0..3).for_each(|at| g.start(at));
    g.run(4_000);
    let maps = |g: &Group| -> Vec<(u32, Vec<String>)> {
        let members = g.hosts.iter().filter_map(|h| h.member.as_ref());
        let maps = members.map(|m| &m.core().state().monmap);
        maps.map(|map| (map.epoch.0, map.ranked().map(|m| m.addrs.to_string()).collect())).collect()
    };
    let want: Vec<String> = (0..3).map(|at| AddrVec::single(mon_addr("10.0.0.9", at)).to_string()).collect();
    assert_eq!(maps(&g), vec![(2, want.clone()); 3]);
    // Later changes are nobody's to take back.
    let leader = g.leader().expect("a leader");
    let conn = g.login(leader, "client.admin");
    g.run(200);
    g.command(leader, conn, r#"{"prefix":"mon add","name":"d","addr":"10.0.0.9:3400"}"#);
    g.run(1_000);
    assert!(
        maps(&g).iter().all(|(epoch, mons)| *epoch == 3 && mons.get(..3) == Some(&want)),
        "{:?}",
        maps(&g)
    );
}

/// Whether one that resigned so long ago has to stay.
fn stays(g: &Group, at: usize, resigned_for: Duration) -> bool {
    g.hosts[at].member.as_ref().is_some_and(|m| m.waits_for_successor(resigned_for))
}

/// How long one that resigned now has to stay; some seconds at most.
fn stayed(g: &mut Group, at: usize) -> Duration {
    let begin = g.now.mono;
    while stays(g, at, g.now.mono - begin) && g.now.mono < begin + Duration::from_secs(5) {
        g.run(10);
    }
    g.now.mono - begin
}

#[test]
fn a_leader_that_stops_with_a_proposal_under_way_stays_until_another_one_has_it() {
    let mut g = Group::new();
    g.run(4_000);
    let leader = g.leader().expect("a leader");
    let conn = g.login(leader, "client.admin");
    g.run(200);
    g.command(leader, conn, PUT);
    // Until it is sent to the others.
    while g.hosts[leader].member.as_ref().is_some_and(|m| m.raft().last_index() == m.raft().commit_index()) {
        g.now.mono += Duration::from_millis(1);
        g.input(leader, Input::Tick);
    }
    g.input(leader, Input::Resign);
    assert!(stays(&g, leader, Duration::ZERO), "nobody else holds what was proposed");
    assert!(stayed(&mut g, leader) < Duration::from_millis(500), "there is a successor soon");
    g.kill(leader);
    let next = g.leader().expect("the successor");
    assert_ne!(next, leader);
    let conn = g.login(next, "client.admin");
    g.run(200);
    g.command(next, conn, GET);
    g.run(50);
    assert_eq!(g.answer(next, conn).map(|a| a.2), Some("v".to_owned()));
}

#[test]
fn a_leader_without_others_stops_when_it_has_offered_its_place() {
    let mut g = Group::new();
    g.run(4_000);
    let leader = g.leader().expect("a leader");
    (0..3).filter(|at| *at != leader).for_each(|at| g.kill(at));
    g.input(leader, Input::Resign);
    assert!(stayed(&mut g, leader) < Duration::from_millis(2_000), "it goes in the end");
}

#[test]
fn without_a_majority_nobody_is_let_in_and_an_empty_store_is_filled() {
    let mut g = Group::new();
    g.run(4_000);
    let leader = g.leader().expect("a leader");
    let (b, c) = ((leader + 1) % 3, (leader + 2) % 3);
    g.kill(b);
    g.kill(c);
    g.run(8_000);
    assert_eq!(g.leader(), None);
    let conn = g.login(leader, "client.admin");
    g.run(3_000);
    assert!(g.hosts[leader].sent.iter().all(|(c, _)| *c != conn), "nobody is let in without a quorum");
    g.start(b);
    g.run(4_000);
    assert!(g.hosts[leader].sent.iter().any(|(c, _)| *c == conn), "and is, when there is one again");
    let auth = cephx::EntityAuth { key: cephx::CryptoKey::new([1; 16], Utime::ZERO), caps: BTreeMap::new() };
    let state = Monitor::blank(FSID, auth, g.now, &mut SeededEntropy(5));
    g.hosts[c].disk = Start {
        hard: HardState { id: MemberId(777), ..HardState::default() },
        snapshot: Snapshot { state, ..Snapshot::default() },
        entries: Vec::new(),
    };
    g.start(c);
    g.run(5_000);
    let leader = g.leader().expect("a leader");
    let members = g.hosts[leader].member.as_ref().expect("it runs").raft().members().clone();
    assert!(members.is_voter(MemberId(777)) && members.peers.len() == 3, "{members:?}");
    let state = |at: usize| g.hosts[at].member.as_ref().map(|m| m.core().state().clone());
    let osdmaps: Vec<_> = (0..3).filter_map(|at| state(at).map(|s| s.osds)).collect();
    assert!(osdmaps.len() == 3 && osdmaps[0] == osdmaps[1] && osdmaps[1] == osdmaps[2]);
    assert_eq!(EntityType::Mon, AuthName::parse("mon.").expect("a name").kind);
}

/// The rank of the leader changes then, and the leader does not: what it has under way is still under way.
#[test]
fn removing_a_monitor_of_a_lower_rank_disturbs_no_proposal() {
    let mut g = Group::new();
    g.run(4_000);
    for _ in 0..20 {
        match g.leader() {
            Some(1) => break,
            Some(other) => {
                g.kill(other);
                g.run(2_000);
                g.start(other);
            }
            None => {}
        }
        g.run(2_000);
    }
    assert_eq!(g.leader(), Some(1), "the middle one leads");
    let core = |g: &Group, at: usize| g.hosts[at].member.as_ref().expect("it runs").core().state().clone();
    let conn = g.login(1, "client.admin");
    let other = g.login(2, "client.admin");
    g.run(1_000);
    let (epoch, term) = (core(&g, 1).osds.newest(), g.hosts[1].member.as_ref().map(|m| m.raft().term()));
    (0..3).for_each(|at| g.hosts[at].sent.clear());
    (0..3).for_each(|at| g.hosts[at].closed.clear());
    g.command(1, conn, r#"{"prefix":"mon rm","name":"a"}"#);
    for flag in ["noout", "nobackfill", "norebalance"] {
        g.command(1, conn, &format!(r#"{{"prefix":"osd set","key":"{flag}"}}"#));
    }
    g.command(2, other, r#"{"prefix":"osd set","key":"noscrub"}"#);
    g.command(1, conn, PUT);
    g.run(1_000);
    assert_eq!(g.hosts[1].member.as_ref().map(|m| m.raft().term()), term, "nobody was elected");
    let answers = |g: &Group, at: usize, of: ConnId| {
        let acks = g.hosts[at].sent.iter().filter_map(|(c, msg)| match msg {
            Message::MonCommandAck(a) if *c == of => Some(a.result),
            _ => None,
        });
        acks.collect::<Vec<i32>>()
    };
    assert_eq!(answers(&g, 1, conn), [0; 5]);
    assert_eq!(answers(&g, 2, other), [0]);
    for at in [1, 2] {
        assert!(!g.hosts[at].closed.iter().any(|c| *c == conn || *c == other), "nobody has to come again");
        let state = core(&g, at);
        assert_eq!(state.monmap.mons.len(), 2);
        // One map for those who asked the leader, one for the other.
        assert_eq!(state.osds.newest(), epoch.next().next(), "at {at}");
    }
}

/// What a store held at some time.
struct Old {
    state: bytes::Bytes,
    index: u64,
    term: u64,
}

impl Old {
    /// A store's snapshot is the old state, and its log goes on from there.
    fn restore(&self, disk: &mut Start) {
        let (index, term, members) = (self.index, self.term, disk.snapshot.members.clone());
        disk.snapshot = Snapshot { index, term, members, state: self.state.clone() };
        disk.entries.retain(|e| e.index > index);
        assert_eq!(disk.entries.first().map(|e| e.index), Some(index + 1));
    }
}

fn dismissed(g: &Group, at: usize) -> Option<monitor::Dismissal> {
    g.hosts[at].member.as_ref().and_then(|m| m.dismissed(g.now))
}

/// Which member leads, whoever the others are.
fn leads(g: &Group) -> usize {
    let leads = |at: &usize| g.hosts[*at].member.as_ref().is_some_and(|m| m.raft().is_leader());
    (0..3).find(leads).expect("a leader")
}

/// A monitor is removed, and added again with a blank store: what the others had between.
fn added_again(g: &mut Group, added: usize) -> Old {
    let leader = leads(g);
    let conn = g.login(leader, "client.admin");
    g.run(200);
    // The state that all snapshots are taken from does not name it.
    let name = NAMES[added];
    g.command(leader, conn, &format!(r#"{{"prefix":"mon rm","name":"{name}"}}"#));
    g.run(500);
    let member = g.hosts[leader].member.as_ref().expect("it runs");
    let (state, index) = (member.core().snapshot(), member.core().index());
    let term = member.raft().entry(index).expect("it is in the log").term;
    g.run(6_000);
    assert_eq!(dismissed(g, added), Some(monitor::Dismissal::Removed), "it was removed while it ran");
    assert_eq!(dismissed(g, leader), None);
    g.kill(added);
    let auth = cephx::EntityAuth { key: cephx::CryptoKey::new([1; 16], Utime::ZERO), caps: BTreeMap::new() };
    let blank = Monitor::blank(FSID, auth, g.now, &mut SeededEntropy(5));
    g.hosts[added].disk = Start {
        hard: HardState { id: MemberId(778), ..HardState::default() },
        snapshot: Snapshot { state: blank, ..Snapshot::default() },
        entries: Vec::new(),
    };
    g.start(added);
    g.run(3_000);
    assert_eq!(dismissed(g, added), None, "a blank store waits");
    let leader = leads(g);
    let conn = g.login(leader, "client.admin");
    g.run(200);
    let add = format!(r#"{{"prefix":"mon add","name":"{name}","addr":"127.0.0.1:{}"}}"#, 3_300 + added);
    g.command(leader, conn, &add);
    g.run(3_000);
    assert!(g.leader().is_some(), "three of them again: {:?}", g.answer(leader, conn));
    Old { state, index, term }
}

/// All of them restart with snapshots from before a monitor's addition, or removal: only the newest map
/// counts.
#[test]
fn membership_is_judged_by_the_newest_map_alone() {
    let mut g = Group::new();
    g.run(4_000);
    let added = (g.leader().expect("a leader") + 1) % 3;
    let old = added_again(&mut g, added);
    (0..3).for_each(|at| g.kill(at));
    g.hosts.iter_mut().for_each(|host| old.restore(&mut host.disk));
    // Slowly: for ten seconds the added one is alone.
    g.start(added);
    g.run(10_000);
    assert_eq!(dismissed(&g, added), None, "nobody has told it the newest map");
    (0..3).filter(|at| *at != added).for_each(|at| g.start(at));
    g.run(6_000);
    assert!(g.leader().is_some());
    assert!((0..3).all(|at| dismissed(&g, at).is_none()));
}

/// All of them restart elsewhere, with snapshots from before a monitor's addition, as in a cluster that began
/// with fewer.
#[test]
fn monitors_that_were_moved_find_one_that_their_snapshots_do_not_name() {
    let mut g = Group::new();
    g.run(4_000);
    let added = (g.leader().expect("a leader") + 1) % 3;
    let old = added_again(&mut g, added);
    (0..3).for_each(|at| g.kill(at));
    g.hosts.iter_mut().for_each(|host| old.restore(&mut host.disk));
    (g.ip, g.moved) = ("10.0.0.9", true);
    (0..3).for_each(|at| g.start(at));
    g.run(6_000);
    assert!(g.leader().is_some());
    let want: Vec<String> = (0..3).map(|at| AddrVec::single(mon_addr("10.0.0.9", at)).to_string()).collect();
    for host in &g.hosts {
        let map = &host.member.as_ref().expect("it runs").core().state().monmap;
        assert_eq!(map.ranked().map(|m| m.addrs.to_string()).collect::<Vec<_>>(), want);
    }
}

/// One that was removed starts again, and knows no address of the monitor that leads: that was added after
/// its snapshot.
#[test]
fn a_former_member_hears_of_it_from_followers_too() {
    let mut g = Group::new();
    g.run(4_000);
    let first = g.leader().expect("a leader");
    let (added, former) = ((first + 1) % 3, (first + 2) % 3);
    let old = added_again(&mut g, added);
    g.kill(former);
    old.restore(&mut g.hosts[former].disk);
    let leader = leads(&g);
    let conn = g.login(leader, "client.admin");
    g.run(200);
    g.command(leader, conn, &format!(r#"{{"prefix":"mon rm","name":"{}"}}"#, NAMES[former]));
    g.run(3_000);
    if leader != added {
        g.input(leader, Input::Resign);
        g.run(3_000);
    }
    assert_eq!(leads(&g), added);
    g.start(former);
    g.run(10_000);
    assert_eq!(dismissed(&g, former), Some(monitor::Dismissal::Former));
    assert_eq!([first, added].map(|at| dismissed(&g, at)), [None; 2]);
    assert_eq!(leads(&g), added, "it disturbed nobody");
}
