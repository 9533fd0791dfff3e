//! The simulated cluster: its processes, the clock, and the loop that takes one event after the other.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use messages::Message;
use messages::osd::OpResult;
use testkit::Rng;
use types::{AddrVec, ConnId, EntityAddr, EntityName, EntityType, Fsid, Now, Utime};

use crate::admin::Admin;
use crate::board::Board;
use crate::client::Client;
use crate::faults::{Death, Fault};
use crate::guest::Guest;
use crate::history::{Hash, Record};
use crate::mgr::MgrHost;
use crate::middle::Standstill;
use crate::mon::MonHost;
use crate::mon_shell::Agreed;
use crate::mutant::Mutant;
use crate::net::{Arrival, Delivery, End, Net, Node, Packet};
use crate::osd::OsdHost;
use crate::phases::Phases;
use crate::queue::{MILLISECOND, Queue, SECOND, Time};
use crate::rot::Rot;
use crate::scenario::Scenario;

/// Source: mon_client_ping_interval, mon_client_ping_timeout.
const MON_PING: Time = 10 * SECOND;
const MON_TIMEOUT: Time = 30 * SECOND;
/// Between two ticks of a monitor that has others beside it.
const MON_TICK: Time = 50 * MILLISECOND;

pub const FSID: Fsid = Fsid([7; 16]);

/// Something that will happen.
#[derive(Debug)]
pub enum Event {
    Deliver(Delivery),
    Tick {
        node: Node,
        life: u32,
    },
    /// The next calls of a job reach the device.
    JobStep {
        osd: i32,
        life: u32,
        job: u64,
    },
    MonAppended {
        mon: usize,
        life: u32,
    },
    /// A device has read for a request.
    DeviceRead {
        osd: i32,
        life: u32,
        id: u64,
    },
    /// An OSD's core goes on with what a slice has left.
    NextSlice {
        osd: i32,
        life: u32,
    },
    /// An OSD's shell reads on from clients that were held.
    LetGo {
        osd: i32,
        life: u32,
    },
    /// The opener of a connection that nobody answers sends its first packet again.
    Knock {
        conn: ConnId,
    },
    /// The opener of a lossless session tries again.
    Retry {
        conn: ConnId,
        wait: Time,
    },
    /// A lossy connection that is not ready by now has failed.
    ConnectTimeout {
        conn: ConnId,
    },
    /// A session with the monitor is sought (again).
    SeekMon {
        node: Node,
        life: u32,
    },
    Think {
        client: usize,
        spell: u32,
    },
    GuestThink {
        guest: usize,
        turn: u64,
    },
    /// A guest's core wanted to be called at this time.
    GuestTick {
        guest: usize,
        life: u32,
    },
    StartGuest {
        guest: usize,
    },
    LookAtRot,
    /// What scrubs found before it was mended is forgotten by another scrub.
    ScrubAgain,
    /// Rot is tried again: nothing could spare a copy.
    Rot {
        nth: u64,
        tries: u32,
    },
    /// A client's connection that never stood is tried again.
    ReachOsd {
        client: usize,
        life: u32,
        osd: i32,
        conn: ConnId,
    },
    RestartClient {
        client: usize,
    },
    /// The time of the fault at this place of the plan has come.
    Fault(usize),
    Inject(usize),
    Start(Node),
    Unblock(Vec<(Node, Node)>),
    /// For mutants.
    Mangle {
        conn: ConnId,
    },
    SpeedUp {
        osd: i32,
    },
    /// A flag of the OSD map is taken back.
    Unset {
        flag: &'static str,
    },
    /// Somebody between these goes on refusing connections in their names.
    Refusing {
        pairs: Vec<(Node, Node)>,
        until: Time,
    },
    MarkIn {
        osd: i32,
    },
    /// An administrator's command.
    Ask {
        command: String,
    },
}

/// Why a connection is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gone {
    Refused,
    Lost,
}

/// A process's session with one of the monitors.
#[derive(Debug, Clone, Default)]
pub struct MonLink {
    pub conn: Option<ConnId>,
    pub ready: bool,
    /// Which monitor it goes to, or went to last.
    pub target: usize,
    /// When anything came from there.
    pub heard: Time,
    /// When a sign of life was last asked for.
    pub asked: Time,
    /// Kept over reconnections, as clients do.
    pub global_id: u64,
}

/// Everything.
pub struct World {
    pub scenario: Scenario,
    pub now: Time,
    pub queue: Queue<Event>,
    pub net: Net,
    pub rng: Rng,
    pub plan: Vec<Fault>,
    /// Faults that wait for their moment.
    pub armed: Vec<usize>,
    pub mons: Vec<MonHost>,
    pub agreed: Agreed,
    /// What every monitor of the new cluster began with.
    pub genesis: quorum::Snapshot,
    /// Monitors whose stores were damaged: they have to refuse them.
    pub damaged_mons: BTreeSet<usize>,
    pub refused_stores: u64,
    /// Who made the last fault happen that waited for its moment.
    pub puller: Node,
    /// Requests answered at each [`crate::FaultKind::Note`].
    pub marks: Vec<u64>,
    pub mgr: MgrHost,
    pub osds: Vec<OsdHost>,
    pub clients: Vec<Client>,
    pub guests: Vec<Guest>,
    pub board: Board,
    /// The last checks of guests.
    pub finishing: bool,
    pub rot: Option<Rot>,
    pub rot_ended: Option<Time>,
    /// What has rotted so far, by OSD.
    pub rotted: BTreeSet<(i32, types::HObject)>,
    /// When the last fault happened, and the longest time without one.
    pub last_fault: Time,
    pub longest_calm: Time,
    /// What PGs were at each note.
    pub states_at_marks: Vec<BTreeSet<String>>,
    pub admin: Admin,
    pub history: Vec<Record>,
    /// About how large each object's data is.
    pub sizes: BTreeMap<usize, u64>,
    pub trace: Hash,
    pub events: u64,
    pub faults: u64,
    /// Places in the plan of what has been done.
    pub came: BTreeSet<usize>,
    /// How often something came about that scenarios are made for.
    pub happened: BTreeMap<&'static str, u64>,
    /// Clients have much to ask until then, whatever else.
    pub busy_until: Time,
    pub violations: Vec<String>,
    /// Print what happens.
    pub verbose: bool,
    /// Healing has begun: no fault happens any more.
    pub healed: bool,
    /// When it will begin.
    pub heals_at: Time,
    pub healed_at: Time,
    /// When everything was whole after that: no new disk is on its way any more, nobody stands still.
    pub settled_at: Time,
    /// Disks that were lost for good.
    pub disks_lost: u64,
    /// How often each fault has waited for its moment.
    pub tries: BTreeMap<usize, u32>,
    /// Processes that stand still until then; their clocks go on.
    pub frozen: BTreeMap<Node, Time>,
    /// Hosts that were suspended.
    pub suspended: BTreeMap<usize, Standstill>,
    /// Flags of the OSD map that were set and will be taken back.
    pub flags: BTreeSet<&'static str>,
    /// Writes that OSDs acknowledged.
    pub acknowledged: u64,
    /// By PG and version: whose write it is, for O7.
    pub versions: BTreeMap<(types::PgId, types::Eversion), (i64, u64)>,
    pub spare: Spare,
    /// Which messages do not decode.
    pub garbler: Rng,
    /// What faults may wait for, step by step.
    pub phases: Phases,
}

/// Empty lists for what cores put out, with their memory from the event before.
#[derive(Default)]
pub struct Spare {
    pub osd: Vec<pg::Output>,
    pub mon: Vec<monitor::Output>,
}

/// An address on the one host of the simulation; the nonce is the process's life.
pub fn addr(port: u16, life: u32) -> AddrVec {
    let ip = std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);
    AddrVec::single(EntityAddr::v2(std::net::SocketAddr::new(ip, port), life))
}

/// The life that an address names.
pub fn life_of(addrs: &AddrVec) -> u32 {
    addrs.msgr2().map_or(0, |a| a.nonce)
}

pub fn addr_of(node: Node, life: u32) -> AddrVec {
    match node {
        Node::Mon(mon) => addr(3_300 + mon as u16, 0),
        Node::Mgr => addr(6_700, life),
        Node::Osd(osd) => addr(6_800 + osd as u16, life),
        Node::Admin => addr(0, 1),
        Node::Client(c) => addr(0, life * 100 + c as u32),
        Node::Guest(g) => addr(0, 1_000_000 + life * 100 + g as u32),
    }
}

impl World {
    pub fn clock(&self) -> Now {
        let mono = Duration::from_nanos(self.now);
        Now { mono, wall: Utime::from_unix(Duration::from_secs(1_700_000_000) + mono) }
    }

    /// The time as a process sees it.
    pub fn clock_of(&self, node: Node) -> Now {
        let (rate, skew_s) = match node {
            Node::Mon(mon) => (self.mons[mon].rate, self.mons[mon].skew_s),
            Node::Osd(osd) => (self.osds[osd as usize].rate, self.osds[osd as usize].skew_s),
            _ => (1_000, 0),
        };
        let at_rate = |t: Time| Duration::from_nanos(t / 1_000 * rate + t % 1_000 * rate / 1_000);
        let mono = at_rate(self.now - self.missed_by(node));
        let wall = Duration::from_secs(1_700_000_000u64.saturating_add_signed(skew_s)) + at_rate(self.now);
        Now { mono, wall: Utime::from_unix(wall) }
    }

    pub fn plan_in(&mut self, delay: Time, event: Event) {
        self.queue.plan(self.now + delay, event);
    }

    pub fn say(&self, text: impl FnOnce() -> String) {
        if self.verbose {
            println!("{:>12.6} {}", self.now as f64 / SECOND as f64, text());
        }
    }

    pub fn violation(&mut self, text: String) {
        self.say(|| format!("VIOLATION {text}"));
        if self.violations.len() < 20 {
            self.violations.push(format!("at {:.3} s: {text}", self.now as f64 / SECOND as f64));
        }
    }

    pub fn happened(&mut self, what: &'static str) {
        *self.happened.entry(what).or_default() += 1;
    }

    pub fn is_alive(&self, node: Node) -> bool {
        match node {
            Node::Mon(mon) => self.mons[mon].core.is_some(),
            Node::Mgr => self.mgr.core.is_some(),
            Node::Osd(osd) => self.osds[osd as usize].core.is_some(),
            Node::Admin | Node::Client(_) => true,
            Node::Guest(g) => !self.guests[g].is_gone(),
        }
    }

    pub fn life(&self, node: Node) -> u32 {
        match node {
            Node::Mon(mon) => self.mons[mon].life,
            Node::Mgr => self.mgr.life,
            Node::Osd(osd) => self.osds[osd as usize].life,
            Node::Client(c) => self.clients[c].life,
            Node::Guest(g) => self.guests[g].life,
            Node::Admin => 1,
        }
    }

    /// Dead without anybody there who says so.
    fn is_silent(&self, node: Node) -> bool {
        match node {
            Node::Mon(mon) => self.mons[mon].silent,
            Node::Mgr => false,
            Node::Osd(osd) => self.osds[osd as usize].silent,
            Node::Admin | Node::Client(_) | Node::Guest(_) => false,
        }
    }

    /// Takes events until `end`, or until `stop` says so between two of them.
    pub fn run_until(&mut self, end: Time, mut stop: impl FnMut(&mut Self) -> bool) {
        let mut look = self.now;
        while self.queue.next_at().is_some_and(|at| at <= end) {
            let Some((at, event)) = self.queue.pop() else { break };
            self.now = at;
            if let Some(until) = self.stands_still(&event) {
                self.queue.plan(until, event);
                continue;
            }
            self.events += 1;
            self.handle(event);
            for (at, d) in self.net.planned.drain(..) {
                self.queue.plan(at, Event::Deliver(d));
            }
            if !self.violations.is_empty() {
                return;
            }
            if self.now >= look {
                look = self.now + 50 * MILLISECOND;
                if stop(self) {
                    return;
                }
            }
        }
        self.now = self.now.max(end);
    }

    fn handle(&mut self, event: Event) {
        self.trace.word(self.now);
        match event {
            Event::Deliver(d) => self.deliver(d),
            Event::Tick { node, life } => self.tick(node, life),
            Event::JobStep { osd, life, job } => self.job_step(osd, life, job),
            Event::MonAppended { mon, life } => self.mon_appended(mon, life),
            Event::DeviceRead { osd, life, id } => self.device_has_read(osd, life, id),
            Event::NextSlice { osd, life } => self.next_slice(osd, life),
            Event::LetGo { osd, life } => self.let_go(osd, life),
            Event::Knock { conn } => self.net.reopen(self.now, conn),
            Event::Retry { conn, wait } => self.retry(conn, wait),
            Event::ConnectTimeout { conn } => {
                if self.net.conn(conn).is_some_and(|c| !c.ready) {
                    self.gone(conn, End::Opener, Gone::Lost);
                }
            }
            Event::SeekMon { node, life } => self.seek_mon(node, life),
            Event::Think { client, spell } if self.clients[client].spell == spell => self.think(client),
            // A busier spell has begun since.
            Event::Think { .. } => {}
            Event::GuestThink { guest, turn } => self.guest_thinks(guest, turn),
            Event::GuestTick { guest, life } => self.guest_tick(guest, life),
            Event::StartGuest { guest } => self.start_guest(guest),
            Event::LookAtRot => self.look_at_rot(),
            Event::ScrubAgain => self.scrub_again(),
            Event::Rot { nth, tries } => self.try_rot(nth, tries),
            Event::ReachOsd { client, life, osd, conn } => self.reach_osd(client, life, osd, conn),
            Event::RestartClient { client } if !self.healed => self.restart_client(client),
            Event::RestartClient { .. } => {}
            Event::Fault(i) => self.arm(i),
            Event::Inject(i) => self.inject(i),
            Event::Start(node) => self.start(node),
            Event::Unblock(links) => {
                for (from, to) in links {
                    let held = self.net.unblock(self.now, from, to);
                    if held > 0 && matches!((from, to), (Node::Osd(_), Node::Osd(_))) {
                        self.happened("links between OSDs that held messages back");
                    }
                }
            }
            Event::Mangle { conn } => self.mangle(conn),
            Event::Unset { flag } => self.unset_flag(flag),
            Event::Refusing { pairs, until } => self.refuse_between(pairs, until),
            Event::SpeedUp { osd } => self.speed_up(osd),
            Event::Ask { command } => self.admin_command(command),
            Event::MarkIn { osd } => self.admin_command(format!(r#"{{"prefix":"osd in","ids":["{osd}"]}}"#)),
        }
    }

    fn tick(&mut self, node: Node, life: u32) {
        if !self.is_alive(node) || self.life(node) != life {
            return;
        }
        let every = match node {
            Node::Mgr => 250 * MILLISECOND,
            Node::Client(_) | Node::Admin | Node::Guest(_) => 5 * SECOND,
            Node::Mon(_) if self.mons.len() > 1 => MON_TICK,
            _ => 500 * MILLISECOND,
        };
        self.plan_in(every, Event::Tick { node, life });
        self.keep_alive(node);
        match node {
            Node::Mon(mon) => {
                self.mon_input(mon, monitor::Input::Tick);
                self.look_at_membership(mon);
            }
            Node::Mgr => self.mgr_input(manager::Input::Tick),
            Node::Osd(osd) => self.osd_tick(osd),
            Node::Client(c) => self.client_tick(c),
            Node::Admin => self.admin_tick(),
            Node::Guest(_) => {}
        }
    }

    // Connections.

    /// Opens a connection to a process in the life that its address names.
    pub fn connect(&mut self, opener: Node, target: Node, target_life: u32, lossy: bool) -> ConnId {
        let lives = [self.life(opener), target_life];
        let conn = self.net.open(self.now, [opener, target], lives, lossy);
        if lossy {
            self.plan_in(5 * SECOND, Event::ConnectTimeout { conn });
        }
        conn
    }

    fn deliver(&mut self, d: Delivery) {
        let packet = match self.net.arrive(self.now, d) {
            Arrival::Packet(packet) => packet,
            Arrival::Later(at) => return self.queue.plan(at, Event::Deliver(d)),
            Arrival::Nothing => return,
        };
        let Some(conn) = self.net.conn(d.conn) else { return };
        let (nodes, lives) = (conn.nodes, conn.lives);
        let to = nodes[d.to as usize];
        self.trace_packet(d, &packet);
        self.say(|| format!("{:?} -> {to:?} {} {}", nodes[d.to.other() as usize], d.conn, describe(&packet)));
        if let Packet::Open = packet {
            return self.opened(d.conn, nodes, lives);
        }
        let held = self.net.conn(d.conn).is_some_and(|c| c.held[d.to as usize]);
        if !held || !self.is_alive(to) || self.life(to) != lives[d.to as usize] {
            return;
        }
        match packet {
            Packet::Open => {}
            Packet::Accepted { global_id } => self.accepted(d.conn, nodes, global_id),
            Packet::Refused => self.gone(d.conn, End::Opener, Gone::Refused),
            Packet::Fin if self.keeps_session(&d) => self.net.wire_park_target(self.now, d.conn),
            Packet::Fin => self.gone(d.conn, d.to, Gone::Lost),
            Packet::Message { tid, msg } => {
                self.heard_of(d, nodes);
                self.message(d, nodes, tid, msg);
            }
            Packet::Peer(data) => {
                if let Node::Mon(mon) = to {
                    self.peer_message(mon, d.conn, nodes[d.to.other() as usize], data);
                }
            }
            Packet::Ping => self.net.send_packet(self.now, d.conn, d.to, Packet::Pong),
            Packet::Pong => self.heard_of(d, nodes),
            Packet::Up { tcp } => self.net.wire_up(self.now, d.conn, tcp),
            Packet::Bytes { tcp, data } => {
                let told = self.net.wire_receive(self.now, d.conn, d.to, tcp, &data);
                self.told(d, told);
            }
            Packet::Cut { tcp } => self.tcp_is_cut(d, tcp),
        }
    }

    fn trace_packet(&mut self, d: Delivery, packet: &Packet) {
        self.trace.word(d.conn.0 * 2 + d.to as u64);
        match packet {
            Packet::Message { tid, msg } => {
                self.trace.word(*tid);
                self.trace.word(msg.ty().into());
                match msg {
                    Message::Unknown(wire) => self.trace.bytes(&wire.front),
                    Message::OsdOpReply(r) => {
                        self.trace.word(r.user_version);
                        self.trace.word(r.result as u64);
                        r.ops.iter().flat_map(OpResult::output).for_each(|data| self.trace.bytes(data));
                    }
                    Message::OsdMap(m) => m.incremental.values().for_each(|b| self.trace.bytes(b)),
                    _ => {}
                }
            }
            Packet::Accepted { global_id } => self.trace.word(*global_id),
            Packet::Peer(data) => self.trace.bytes(data),
            Packet::Bytes { tcp, data } => {
                self.trace.word((*tcp).into());
                self.trace.bytes(data);
            }
            Packet::Up { tcp } | Packet::Cut { tcp } => self.trace.word((*tcp).into()),
            Packet::Open | Packet::Refused | Packet::Fin | Packet::Ping | Packet::Pong => {}
        }
    }

    /// Somebody asks for a session.
    fn opened(&mut self, conn: ConnId, nodes: [Node; 2], lives: [u32; 2]) {
        let [opener, target] = nodes;
        if self.net.is_refused(opener, target) {
            return self.refused_between(conn, nodes);
        }
        if !self.is_alive(target) {
            if !self.is_silent(target) {
                self.net.refuse(self.now, conn);
            } else if self.net.conn(conn).is_some_and(|c| !c.lossy) {
                self.plan_in(5 * SECOND, Event::Retry { conn, wait: SECOND });
            } else {
                self.plan_in(SECOND, Event::Knock { conn });
            }
            return;
        }
        if let Node::Mon(mon) = target {
            return self.mon_login(mon, conn, opener);
        }
        if self.life(target) != lives[1] {
            // Another process at the same port: it says who it is, and the opener hangs up.
            return match self.net.conn(conn).is_some_and(|c| c.lossy) {
                true => self.gone(conn, End::Opener, Gone::Lost),
                false => self.plan_in(SECOND, Event::Retry { conn, wait: SECOND }),
            };
        }
        self.net.accept(self.now, conn, 0);
        if !self.net.is_wired() {
            self.connected(conn, nodes, lives);
        }
    }

    /// A session that the target has taken stands.
    pub fn connected(&mut self, conn: ConnId, [opener, target]: [Node; 2], lives: [u32; 2]) {
        let (name, kind, global_id) = self.name_of(opener);
        let mut peer_addr = addr_of(opener, lives[0]).0[0];
        if self.scenario.mutant == Some(Mutant::BlocklistIgnored) && kind == EntityType::Client {
            peer_addr.nonce = 0;
        }
        match target {
            Node::Osd(osd) => {
                let peer = pg::PeerInfo {
                    name,
                    auth_name: types::AuthName::new(kind, name.num.to_string()),
                    global_id: types::GlobalId(global_id),
                    addr: peer_addr,
                    ip: peer_addr.socket.map(|s| s.ip()),
                    caps: cephx::caps::OsdCap::allow_all(),
                    features: types::features::PACIFIC,
                };
                self.osd_input(osd, pg::Input::Connected { conn, peer });
            }
            Node::Mgr => {
                let auth_name = types::AuthName::new(kind, name.num.to_string());
                let caps = cephx::caps::MgrCap::allow_all();
                let peer = manager::PeerInfo { name, auth_name, addr: peer_addr, caps };
                self.mgr_input(manager::Input::Connected { conn, peer });
            }
            _ => {}
        }
    }

    pub fn name_of(&self, node: Node) -> (EntityName, EntityType, u64) {
        match node {
            Node::Osd(osd) => (EntityName::osd(osd), EntityType::Osd, self.osds[osd as usize].mon.global_id),
            Node::Client(c) => {
                let id = self.clients[c].mon.global_id;
                (EntityName::client(id as i64), EntityType::Client, id)
            }
            Node::Guest(g) => {
                let id = self.guests[g].mon.global_id;
                (EntityName::client(id as i64), EntityType::Client, id)
            }
            Node::Admin => (
                EntityName::client(self.admin.mon.global_id as i64),
                EntityType::Client,
                self.admin.mon.global_id,
            ),
            Node::Mgr => (
                EntityName::new(EntityType::Mgr, self.mgr.mon.global_id as i64),
                EntityType::Mgr,
                self.mgr.mon.global_id,
            ),
            Node::Mon(mon) => (EntityName::mon(mon as i64), EntityType::Mon, 0),
        }
    }

    /// A session that we asked for stands.
    pub fn accepted(&mut self, conn: ConnId, nodes: [Node; 2], global_id: u64) {
        self.net.now_ready(self.now, conn);
        if let [Node::Osd(_) | Node::Mgr | Node::Client(_) | Node::Admin | Node::Guest(_), Node::Mon(_)] =
            nodes
        {
            let now = self.now;
            if let Some(link) = self.mon_link(nodes[0]).filter(|l| l.conn == Some(conn)) {
                link.ready = true;
                (link.heard, link.asked) = (now, now);
                link.global_id = global_id;
            } else {
                return;
            }
        }
        match nodes {
            [Node::Osd(osd), Node::Mon(_)] => self.osd_mon_ready(osd),
            [Node::Osd(osd), Node::Mgr] => self.osd_input(osd, pg::Input::MgrConnected),
            [Node::Mgr, Node::Mon(_)] => self.mgr_input(manager::Input::MonConnected { gid: global_id }),
            [Node::Client(c), Node::Mon(_)] => self.client_mon_ready(c),
            [Node::Client(c), Node::Osd(osd)] => self.client_osd_ready(c, osd, conn),
            [Node::Admin, Node::Mon(_)] => self.admin_mon_ready(),
            [Node::Guest(g), Node::Mon(_)] => self.guest_input(g, objecter::Input::MonReady),
            [Node::Guest(g), Node::Osd(_) | Node::Mgr] => self.guest_session_ready(g, conn),
            _ => {}
        }
    }

    pub fn mon_link(&mut self, node: Node) -> Option<&mut MonLink> {
        match node {
            Node::Osd(osd) => Some(&mut self.osds[osd as usize].mon),
            Node::Mgr => Some(&mut self.mgr.mon),
            Node::Client(c) => Some(&mut self.clients[c].mon),
            Node::Admin => Some(&mut self.admin.mon),
            Node::Guest(g) => Some(&mut self.guests[g].mon),
            Node::Mon(_) => None,
        }
    }

    /// Connects to a monitor, unless that is done: to another one than last time.
    pub fn seek_mon(&mut self, node: Node, life: u32) {
        if !self.is_alive(node) || self.life(node) != life {
            return;
        }
        if self.mon_link(node).is_some_and(|l| l.conn.is_none()) {
            let count = self.mons.len();
            let last = self.mon_link(node).map_or(0, |l| l.target);
            let target = match count {
                1 => 0,
                _ => (last + 1 + self.rng.below(count as u64 - 1) as usize) % count,
            };
            let conn = self.connect(node, Node::Mon(target), 0, true);
            if let Some(link) = self.mon_link(node) {
                link.conn = Some(conn);
                link.target = target;
                link.ready = false;
            }
        }
    }

    /// A session with a monitor from which nothing came for long is given up, as Ceph's clients do.
    fn keep_alive(&mut self, node: Node) {
        let now = self.now;
        let Some(link) = self.mon_link(node).filter(|l| l.ready) else { return };
        let Some(conn) = link.conn else { return };
        if now > link.heard + MON_TIMEOUT {
            return self.gone(conn, End::Opener, Gone::Lost);
        }
        if now > link.asked + MON_PING {
            link.asked = now;
            self.net.send_packet(now, conn, End::Opener, Packet::Ping);
        }
    }

    pub fn heard_of(&mut self, d: Delivery, nodes: [Node; 2]) {
        if let (End::Opener, Node::Mon(_)) = (d.to, nodes[1]) {
            let now = self.now;
            if let Some(link) = self.mon_link(nodes[0]).filter(|l| l.conn == Some(d.conn)) {
                link.heard = now;
            }
        }
    }

    /// Sends to the monitor; dropped without a session.
    pub fn send_mon(&mut self, node: Node, tid: u64, msg: Message) {
        let conn = self.mon_link(node).filter(|l| l.ready).and_then(|l| l.conn);
        if let Some(conn) = conn {
            self.net.send(self.now, conn, End::Opener, tid, msg);
        }
    }

    /// A connection is over for one end: it hears of it, and does what its shell does.
    pub fn gone(&mut self, conn: ConnId, end: End, why: Gone) {
        let Some(c) = self.net.conn(conn) else { return };
        let (nodes, lossy, stood) = (c.nodes, c.lossy, c.ready);
        let me = nodes[end as usize];
        if end == End::Target {
            self.net.close(self.now, conn, end);
            return match me {
                Node::Mon(mon) => self.mon_input(mon, monitor::Input::Disconnected { conn }),
                Node::Mgr => self.mgr_input(manager::Input::Disconnected { conn }),
                Node::Osd(osd) => self.osd_loses(osd, conn),
                _ => {}
            };
        }
        if !lossy {
            self.net.reset_session(self.now, conn);
            self.plan_in(20 * MILLISECOND, Event::Retry { conn, wait: 20 * MILLISECOND });
            if let ([Node::Osd(osd), Node::Osd(to)], Gone::Refused) = (nodes, why) {
                self.osd_input(osd, pg::Input::OsdRefused { osd: types::OsdId(to) });
            }
            return;
        }
        self.net.close(self.now, conn, end);
        if let [Node::Mon(mon), _] = nodes {
            return self.mon_link_gone(mon, conn);
        }
        if let Node::Mon(_) = nodes[1] {
            if let Some(link) = self.mon_link(me).filter(|l| l.conn == Some(conn)) {
                link.conn = None;
                link.ready = false;
                let life = self.life(me);
                self.plan_in(200 * MILLISECOND, Event::SeekMon { node: me, life });
                if let Node::Guest(g) = me {
                    self.guest_input(g, objecter::Input::MonGone);
                }
            }
            return;
        }
        match nodes {
            [Node::Osd(osd), Node::Mgr] => self.osd_mgr_gone(osd, conn),
            [Node::Client(c), Node::Osd(osd)] => self.client_session_gone(c, osd, conn, stood),
            [Node::Guest(g), _] => self.guest_session_gone(g, conn),
            _ => {}
        }
    }

    /// The opener of a lossless session whose target process ended looks whether it is back.
    fn retry(&mut self, conn: ConnId, wait: Time) {
        let Some(c) = self.net.conn(conn) else { return };
        let (nodes, lives, held, ready) = (c.nodes, c.lives, c.held[0], c.ready);
        if !held || ready || self.life(nodes[0]) != lives[0] {
            return;
        }
        let wait = (wait * 2).min(SECOND);
        let target = nodes[1];
        if self.is_alive(target) {
            if self.life(target) == lives[1] {
                self.net.reopen(self.now, conn);
                if let ([Node::Osd(osd), Node::Osd(to)], false) = (nodes, self.net.is_wired()) {
                    self.osd_input(osd, pg::Input::OsdReset { osd: types::OsdId(to) });
                }
                return;
            }
        } else if !self.is_silent(target) && !self.net.is_blocked(nodes[0], target) {
            if let [Node::Osd(osd), Node::Osd(to)] = nodes {
                self.osd_input(osd, pg::Input::OsdRefused { osd: types::OsdId(to) });
            }
        }
        self.plan_in(wait, Event::Retry { conn, wait });
    }

    pub fn message(&mut self, d: Delivery, nodes: [Node; 2], tid: u64, msg: Message) {
        if self.is_garbled(d, nodes) {
            return self.does_not_decode(d, nodes);
        }
        let (me, other) = (nodes[d.to as usize], nodes[d.to.other() as usize]);
        if let (Node::Osd(_), Node::Osd(_)) = (me, other) {
            self.step_of_osds([other, me], &msg);
        }
        match me {
            Node::Mon(mon) => self.mon_message(mon, d.conn, tid, msg),
            Node::Mgr if d.to == End::Target => {
                self.mgr_input(manager::Input::Message { conn: d.conn, tid, msg })
            }
            Node::Mgr => self.mgr_from_mon(d.conn, tid, msg),
            Node::Osd(osd) => self.osd_message(osd, d, other, tid, msg),
            Node::Client(c) => self.client_message(c, d.conn, other, tid, msg),
            Node::Admin => self.admin_message(tid, msg),
            Node::Guest(g) => self.guest_message(g, d.conn, other, tid, msg),
        }
    }

    // Ends of processes.

    /// What becomes of a process's connections when it ends.
    pub fn drop_connections(&mut self, node: Node, death: Death) {
        for id in self.net.of_node(node) {
            let Some(c) = self.net.conn(id) else { continue };
            let end = c.end_of(node);
            if !c.held[end as usize] {
                // Asked for and not taken yet, or left long ago.
                continue;
            }
            let (lossy, other) = (c.lossy, end.other());
            self.net.lose_tail(id, other);
            self.net.forget_end(id, end);
            if self.net.conn(id).is_none() {
                continue;
            }
            match (lossy, end, death) {
                (false, End::Target, _) => {
                    self.net.reset_session(self.now, id);
                    let wait = 20 * MILLISECOND + self.rng.below(50 * MILLISECOND);
                    self.plan_in(wait, Event::Retry { conn: id, wait });
                }
                (_, _, Death::Killed) => self.net.close(self.now, id, end),
                (_, _, Death::PowerLoss) => {}
            }
        }
    }

    /// A host is back: it answers what still comes for the old process with resets.
    pub fn reset_old_connections(&mut self, node: Node) {
        for id in self.net.of_node(node) {
            let Some(c) = self.net.conn(id) else { continue };
            let end = c.end_of(node);
            let old = c.lives[end as usize] != self.life(node);
            if old && !c.held[end as usize] && c.held[end.other() as usize] && (c.lossy || end == End::Opener)
            {
                self.net.close(self.now, id, end);
            }
        }
    }

    fn start(&mut self, node: Node) {
        if self.is_alive(node) {
            return;
        }
        if let Node::Osd(osd) = node
            && self.waits_for_disk(osd)
        {
            return;
        }
        self.say(|| format!("start {node:?}"));
        match node {
            Node::Mon(mon) => self.start_mon(mon),
            Node::Mgr => self.start_mgr(),
            Node::Osd(osd) => self.start_osd(osd),
            Node::Admin | Node::Client(_) | Node::Guest(_) => {}
        }
        self.reset_old_connections(node);
    }
}

pub fn describe(packet: &Packet) -> String {
    let mut text = match packet {
        Packet::Message { tid, msg: msg @ Message::Unknown(_) } => {
            format!(
                "{tid} {}",
                pg::OsdCore::describe_message(msg).unwrap_or_else(|| format!("type {}", msg.ty()))
            )
        }
        Packet::Message { tid, msg: Message::OsdMap(m) } => {
            format!("{tid} OsdMap {:?}..{:?}", m.first(), m.last())
        }
        Packet::Message { tid, msg } => format!("{tid} {msg:?}"),
        Packet::Bytes { tcp, data } => format!("{} bytes in TCP connection {tcp}", data.len()),
        other => format!("{other:?}"),
    };
    if text.len() > 300 {
        let cut = (0..=300).rev().find(|i| text.is_char_boundary(*i)).unwrap_or(0);
        text.truncate(cut);
    }
    text
}
