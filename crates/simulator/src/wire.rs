//! Links that carry bytes: at both ends a connection of `msgr`, with the sessions, keys and limits that
//! daemons use.
//!
//! ```text
//! opener ── Open ──▶ target      a TCP connection is asked for, and whoever asks has logged in
//!        ◀── Up ───              it stands; handshakes and messages follow as Bytes, in pieces
//!        ◀── Cut ──▶             it broke: a lossless session waits at each end for the next one
//! ```
//!
//! One [`crate::net::Conn`] is what a process knows as one connection id: for a lossless session it outlives
//! its TCP connections, which have numbers. The target may hold one that it does not know to be broken when
//! the next one comes.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use messages::type_numbers::LOLIGO_MON_PEER;
use messages::wire::{Header, WireMessage};
use msgr::{
    ConMode, Connection, Event, Existing, Limits, Local, Parked, Peer, Phase, Policy, Resumable, Session,
    SessionRequest, Verdict, decide,
};
use testkit::Rng;
use types::{AddrVec, AuthName, ConnId, EntityName, EntityType, Now, Utime};

use crate::mutant::Mutant;
use crate::net::{Conn, End, Net, Node, Packet};
use crate::queue::Time;
use crate::world::addr_of;

/// While faults last, a bit of one piece in so many is flipped.
const FLIP_ONE_IN: u64 = 3_000;
const METHOD_NONE: u32 = 1;
/// What a planted bug repeats.
const REPEATED: usize = 4;

/// What a planted bug does to sessions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Bug {
    Repeat,
    Reverse,
    AckUnhanded,
    DropFirst,
}

impl Bug {
    fn of(mutant: Option<Mutant>) -> Option<Self> {
        match mutant? {
            Mutant::RepeatingSessions => Some(Self::Repeat),
            Mutant::ReorderingSessions => Some(Self::Reverse),
            Mutant::AckedUnhanded => Some(Self::AckUnhanded),
            Mutant::ResumeDrops => Some(Self::DropFirst),
            _ => None,
        }
    }
}

/// What an end of a connection hears.
#[derive(Debug)]
pub enum Told {
    Ready {
        resumed: bool,
        global_id: u64,
    },
    Message(WireMessage),
    /// An answer to a question for a sign of life.
    Heard,
    /// The peer has forgotten the session.
    Reset,
    /// A session that was kept for the peer's return is given up.
    Forgot(ConnId),
    /// The TCP connection is over.
    Over,
}

/// What all links share.
pub struct Wire {
    rng: Rng,
    limits: Limits,
    global_seq: u64,
    bug: Option<Bug>,
    flips: bool,
    /// Sessions that each process keeps for those who opened them.
    kept: BTreeMap<(Node, u32), Resumable>,
    /// How often something came about.
    pub counts: BTreeMap<&'static str, u64>,
}

impl Wire {
    pub fn new(seed: u64, mutant: Option<Mutant>) -> Self {
        // Small buffers: a message that is kept holds on to the one that it came in.
        let limits = Limits { read_bytes: 4 << 10, ..Limits::default() };
        let (rng, bug) = (Rng::new(seed ^ 0x7769_7265), Bug::of(mutant));
        Self { rng, limits, global_seq: 0, bug, flips: false, kept: BTreeMap::new(), counts: BTreeMap::new() }
    }

    fn count(&mut self, what: &'static str) {
        *self.counts.entry(what).or_default() += 1;
    }

    fn next_seq(&mut self, known: u64) -> u64 {
        self.global_seq = self.global_seq.max(known) + 1;
        self.global_seq
    }

    /// The pieces in which the network carries these bytes.
    fn pieces(&mut self, mut rest: Bytes) -> Vec<Bytes> {
        let mut out = Vec::with_capacity(1);
        if self.rng.one_in(4) {
            for _ in 0..=self.rng.below(2) {
                if rest.len() > 1 {
                    out.push(rest.split_to(1 + self.rng.below(rest.len() as u64 - 1) as usize));
                }
            }
        }
        out.push(rest);
        for piece in &mut out {
            if self.flips && self.rng.one_in(FLIP_ONE_IN) {
                *piece = self.flipped(piece);
            }
        }
        out
    }

    fn flipped(&mut self, piece: &Bytes) -> Bytes {
        let mut damaged = piece.to_vec();
        let at = self.rng.below(damaged.len() as u64) as usize;
        if let Some(byte) = damaged.get_mut(at) {
            *byte ^= 1 << self.rng.below(8);
            self.count("bytes damaged under way");
        }
        damaged.into()
    }
}

/// One end of one TCP connection.
struct Link {
    tcp: u32,
    machine: Connection,
    buf: BytesMut,
    key: Vec<u8>,
    secret: Vec<u8>,
    resumed: bool,
    /// Messages that came since it stands.
    came: u64,
}

#[derive(Default)]
struct Side {
    /// It holds the session, or (at the opener) will.
    link: Option<Link>,
    /// At the target: its peer has not asked for a session yet.
    fresh: Option<Link>,
    /// The session between connections, and since when.
    parked: Option<(Session, Time)>,
    /// For a planted bug.
    recent: VecDeque<WireMessage>,
}

impl Side {
    fn park(&mut self, now: Time, link: Option<Link>) {
        if let Some(session) = link.and_then(|mut l| l.machine.take_session()) {
            self.parked = Some((session, now));
        }
    }

    fn session(&self) -> Option<(&Session, bool)> {
        match (&self.link, &self.parked) {
            (Some(link), _) => link.machine.session().map(|s| (s, link.machine.is_ready())),
            (None, Some((session, _))) => Some((session, false)),
            (None, None) => None,
        }
    }

    fn take_session(&mut self) -> Option<Session> {
        let held = self.link.take().and_then(|mut l| l.machine.take_session());
        held.or_else(|| self.parked.take().map(|(session, _)| session))
    }
}

/// The bytes' part of a connection.
pub struct Wired {
    /// The newest TCP connection.
    tcp: u32,
    /// Up to this one they are broken: what is written to them arrives nowhere.
    broken: u32,
    mode: ConMode,
    global_id: u64,
    keys: (Vec<u8>, Vec<u8>),
    sides: [Side; 2],
}

impl std::fmt::Debug for Wired {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Wired").field("tcp", &self.tcp).finish_non_exhaustive()
    }
}

fn clock(now: Time) -> Now {
    let mono = Duration::from_nanos(now);
    Now { mono, wall: Utime::from_unix(Duration::from_secs(1_700_000_000) + mono) }
}

fn name(node: Node) -> EntityName {
    match node {
        Node::Mon(mon) => EntityName::mon(mon as i64),
        Node::Mgr => EntityName::new(EntityType::Mgr, 1),
        Node::Osd(osd) => EntityName::osd(osd),
        Node::Admin => EntityName::client(1),
        Node::Client(c) => EntityName::client(100 + c as i64),
        Node::Guest(g) => EntityName::client(1_000 + g as i64),
    }
}

/// Who has proven itself.
fn entity(node: Node) -> AuthName {
    let kind = EntityType::from_u8(name(node).kind).unwrap_or(EntityType::Client);
    AuthName::new(kind, name(node).num.to_string())
}

fn local(conn: &Conn, end: End) -> Local {
    let (node, life) = (conn.nodes[end as usize], conn.lives[end as usize]);
    Local { name: name(node), addrs: addr_of(node, life) }
}

/// As the daemons choose it for whoever asks.
fn accept_policy(opener: Node) -> Policy {
    match opener {
        Node::Osd(_) => Policy::stateful_server(),
        _ => Policy::stateless_server(),
    }
}

impl Net {
    pub fn is_wired(&self) -> bool {
        self.wire.is_some()
    }

    /// Whether bits flip now and then.
    pub fn set_flips(&mut self, on: bool) {
        if let Some(wire) = &mut self.wire {
            wire.flips = on;
        }
    }

    /// A new connection's part, with the session that its opener has in mind.
    pub fn new_wired(&mut self, nodes: [Node; 2], lives: [u32; 2], lossy: bool) -> Option<Box<Wired>> {
        let wire = self.wire.as_mut()?;
        let policy = if lossy { Policy::lossy_client() } else { Policy::lossless_client() };
        let peer = Peer { name: name(nodes[1]), addrs: addr_of(nodes[1], lives[1]) };
        let session = Session::outgoing(policy, peer, wire.rng.next_u64());
        let mode = if wire.rng.one_in(4) { ConMode::Secure } else { ConMode::Crc };
        let opener = Side { parked: Some((session, 0)), ..Side::default() };
        let sides = [opener, Side::default()];
        Some(Box::new(Wired { tcp: 0, broken: 0, mode, global_id: 0, keys: Default::default(), sides }))
    }

    /// The target takes a TCP connection. `None`: there are no bytes here.
    pub fn wire_accept(&mut self, now: Time, id: ConnId, global_id: u64) -> Option<()> {
        let wire = self.wire.as_mut()?;
        let conn = self.conns.get_mut(&id)?;
        let local = local(conn, End::Target);
        let peer = addr_of(conn.nodes[0], conn.lives[0]).0.first().copied().unwrap_or_default();
        let wired = conn.wired.as_mut()?;
        wired.tcp += 1;
        wired.global_id = global_id;
        wired.keys = (wire.rng.bytes(16), wire.rng.bytes(64));
        let machine = Connection::accept(clock(now), local, peer, wire.limits.clone());
        let tcp = wired.tcp;
        wired.sides[1].fresh = Some(Link::new(tcp, machine, &wired.keys));
        self.push(now, id, End::Opener, Packet::Up { tcp });
        self.flush(now, id, End::Target);
        Some(())
    }

    /// The opener's TCP connection stands.
    pub fn wire_up(&mut self, now: Time, id: ConnId, tcp: u32) {
        let (Some(wire), Some(conn)) = (&mut self.wire, self.conns.get_mut(&id)) else { return };
        let local = local(conn, End::Opener);
        let target = addr_of(conn.nodes[1], conn.lives[1]).0.first().copied().unwrap_or_default();
        let Some(wired) = conn.wired.as_mut().filter(|w| w.tcp == tcp) else { return };
        let Some(session) = wired.sides[0].take_session() else { return };
        let (seq, cookie) = (wire.next_seq(0), wire.rng.next_u64());
        let machine =
            Connection::connect(clock(now), local, session, target, seq, cookie, wire.limits.clone());
        wired.sides[0].link = Some(Link::new(tcp, machine, &wired.keys));
        self.flush(now, id, End::Opener);
    }

    /// Sends from one end, or queues for the next connection.
    pub fn wire_send(&mut self, now: Time, id: ConnId, from: End, packet: Packet) {
        let Some(wired) = self.conns.get_mut(&id).and_then(|c| c.wired.as_mut()) else { return };
        let side = &mut wired.sides[from as usize];
        let msg = match packet {
            Packet::Message { tid, msg } => msg.into_wire(tid),
            Packet::Peer(data) => {
                let header =
                    Header { ty: LOLIGO_MON_PEER, version: 1, compat_version: 1, ..Header::default() };
                WireMessage { header, data, ..WireMessage::default() }
            }
            Packet::Ping => {
                if let Some(link) = &mut side.link {
                    link.machine.send_keepalive(clock(now));
                }
                return self.flush(now, id, from);
            }
            _ => return,
        };
        match (&mut side.link, &mut side.parked) {
            // A session that ended under us takes nothing.
            (Some(link), _) => _ = link.machine.send(msg),
            (None, Some((session, _))) => session.push(msg),
            (None, None) => {}
        }
        self.flush(now, id, from);
    }

    /// Puts what an end has to write on its way.
    fn flush(&mut self, now: Time, id: ConnId, end: End) {
        let (Some(wire), Some(conn)) = (&mut self.wire, self.conns.get_mut(&id)) else { return };
        let Some(wired) = &mut conn.wired else { return };
        let side = &mut wired.sides[end as usize];
        let mut all = Vec::new();
        for link in [&mut side.link, &mut side.fresh].into_iter().flatten() {
            let mut out = Vec::new();
            link.machine.take_outgoing(&mut out);
            out.retain(|b| !b.is_empty());
            if link.tcp <= wired.broken {
                continue;
            }
            let bytes = match &out[..] {
                [] => continue,
                [one] => one.clone(),
                _ => out.concat().into(),
            };
            all.extend(wire.pieces(bytes).into_iter().map(|data| Packet::Bytes { tcp: link.tcp, data }));
        }
        all.into_iter().for_each(|piece| self.push(now, id, end.other(), piece));
    }

    /// Bytes have come.
    pub fn wire_receive(&mut self, now: Time, id: ConnId, end: End, tcp: u32, data: &Bytes) -> Vec<Told> {
        let Some(mut link) = self.take_link(id, end, tcp) else { return Vec::new() };
        link.buf.extend_from_slice(data);
        link.machine.handle_bytes(clock(now), &mut link.buf);
        self.turn(now, id, end, link)
    }

    fn take_link(&mut self, id: ConnId, end: End, tcp: u32) -> Option<Link> {
        let wired = self.conns.get_mut(&id)?.wired.as_mut()?;
        let side = &mut wired.sides[end as usize];
        let place = [&mut side.link, &mut side.fresh];
        place.into_iter().find(|l| l.as_ref().is_some_and(|l| l.tcp == tcp))?.take()
    }

    /// Works through a link's events and puts it back, unless it is over.
    fn turn(&mut self, now: Time, id: ConnId, end: End, mut link: Link) -> Vec<Told> {
        let mut told = Vec::new();
        while let Some(event) = link.machine.poll_event() {
            self.on_event(id, &mut link, event, &mut told);
        }
        self.plant(id, end, &mut link, &mut told);
        let over = told.iter().any(|t| matches!(t, Told::Over));
        let Some(conn) = self.conns.get_mut(&id) else { return told };
        let lossy = conn.lossy;
        let Some(wired) = &mut conn.wired else { return told };
        let (tcp, side) = (link.tcp, &mut wired.sides[end as usize]);
        if !over {
            match end == End::Opener || link.machine.session().is_some() {
                true => side.link = Some(link),
                false => side.fresh = Some(link),
            }
            self.flush(now, id, end);
        } else if !lossy {
            side.park(now, Some(link));
            self.push(now, id, end.other(), Packet::Cut { tcp });
        }
        told
    }

    fn on_event(&mut self, id: ConnId, link: &mut Link, event: Event, told: &mut Vec<Told>) {
        let (Some(wire), Some(conn)) = (&mut self.wire, self.conns.get(&id)) else { return };
        let Some(wired) = &conn.wired else { return };
        let (mode, global_id, connects) = (wired.mode, wired.global_id, link.connects());
        match event {
            Event::Hello { .. } if connects => {
                link.machine.auth_request(METHOD_NONE, &[mode], Bytes::from_static(b"login"));
            }
            Event::Hello { .. } => {}
            Event::AuthRequest { .. } => {
                link.machine.auth_done(global_id, mode, Bytes::new(), &link.key, &link.secret);
            }
            Event::AuthDone { .. } => link.machine.auth_established(&link.key, &link.secret),
            Event::AuthRequestMore { .. } | Event::AuthReplyMore { .. } | Event::AuthBadMethod { .. } => {
                link.machine.refuse(types::Errno::EACCES.0);
            }
            Event::SessionRequest(request) => self.judge(id, link, &request, told),
            Event::RetryGlobal { peer_knows } => link.machine.set_global_seq(wire.next_seq(peer_knows)),
            Event::RemoteReset => {
                wire.count("sessions forgotten by a peer that lives");
                told.push(Told::Reset);
            }
            Event::Ready(ready) => {
                if ready.resumed {
                    wire.count("sessions resumed");
                }
                link.resumed = ready.resumed;
                told.push(Told::Ready { resumed: ready.resumed, global_id });
            }
            Event::Message(msg) => told.push(Told::Message(msg)),
            Event::KeepaliveAck(_) => told.push(Told::Heard),
            Event::Closed(error) => {
                if !matches!(error, msgr::Error::HandshakeTimeout) {
                    wire.count("connections closed for what came in");
                }
                told.push(Told::Over);
            }
        }
    }

    /// The target answers a request for a session, as the messenger does.
    fn judge(&mut self, id: ConnId, link: &mut Link, request: &SessionRequest, told: &mut Vec<Told>) {
        let (Some(wire), Some(conn)) = (&mut self.wire, self.conns.get(&id)) else { return };
        let (opener, target, life) = (conn.nodes[0], conn.nodes[1], conn.lives[1]);
        let ours = addr_of(target, life);
        let policy = request.policy(accept_policy(opener));
        let addrs = request.addrs().clone();
        let (seq, cookie) = (wire.next_seq(0), wire.rng.next_u64());
        let held = wire.kept.entry((target, life)).or_default().of(&entity(opener), &addrs);
        let side = held.and_then(|id| self.conns.get(&id)).and_then(|c| c.wired.as_ref());
        let existing = side.and_then(|w| w.sides[1].session()).map(|(session, ready)| {
            let phase = if ready { Phase::Ready } else { Phase::Standby };
            Existing { session, phase }
        });
        let verdict = decide(&ours, &policy, request, existing);
        let forgets = match verdict {
            Verdict::Fresh { close_existing } => close_existing,
            Verdict::Take { reset } => reset || held != Some(id),
            Verdict::Answer(answer) => return link.machine.answer_session(answer),
            Verdict::Close(_) => return link.machine.refuse(types::Errno::EACCES.0),
        };
        let found = held.and_then(|id| self.conns.get_mut(&id)).and_then(|c| c.wired.as_mut());
        let session = match verdict {
            Verdict::Take { .. } if !forgets => found.and_then(|w| w.sides[1].take_session()),
            _ => None,
        };
        if let Some(forgotten) = held.filter(|_| forgets) {
            self.keep_nothing(forgotten);
            told.push(Told::Forgot(forgotten));
        }
        if session.is_none() && !policy.lossy {
            self.keep(id, entity(opener), addrs, told);
        }
        link.machine.accept_session(session.unwrap_or_else(|| Session::incoming(policy)), seq, cookie);
    }

    fn keep(&mut self, id: ConnId, entity: AuthName, addrs: AddrVec, told: &mut Vec<Told>) {
        let (Some(wire), Some(conn)) = (&mut self.wire, self.conns.get(&id)) else { return };
        let kept = wire.kept.entry((conn.nodes[1], conn.lives[1])).or_default();
        told.extend(kept.insert(entity, addrs, id).map(Told::Forgot));
    }

    fn keep_nothing(&mut self, id: ConnId) {
        let (Some(wire), Some(conn)) = (&mut self.wire, self.conns.get_mut(&id)) else { return };
        if let Some(kept) = wire.kept.get_mut(&(conn.nodes[1], conn.lives[1])) {
            kept.remove(id);
        }
        if let Some(wired) = &mut conn.wired {
            wired.sides[1].link = None;
            wired.sides[1].parked = None;
        }
    }

    /// An end of the connection is gone, with its session.
    pub fn wire_drop(&mut self, id: ConnId, end: End) {
        if end == End::Target && self.wire.is_some() {
            self.keep_nothing(id);
        }
        if let Some(wired) = self.conns.get_mut(&id).and_then(|c| c.wired.as_mut()) {
            wired.sides[end as usize] = Side::default();
        }
    }

    /// A TCP connection has broken, as one end hears. Whether it was the end's: a lossless session waits
    /// there now.
    pub fn wire_cut(&mut self, now: Time, id: ConnId, end: End, tcp: u32) -> bool {
        let mut link = self.take_link(id, end, tcp);
        let Some(conn) = self.conns.get_mut(&id) else { return false };
        let Some(wired) = &mut conn.wired else { return false };
        if end == End::Opener && link.is_none() {
            // The target was asked twice: it has let go of the connection that the opener knows.
            link = wired.sides[0].link.take_if(|l| l.tcp < tcp);
        }
        // One that the opener never heard to stand is its own too.
        let is_awaited = end == End::Opener && wired.sides[0].link.is_none() && wired.tcp == tcp;
        let was = link.is_some() || is_awaited;
        wired.sides[end as usize].park(now, link);
        if was && end == End::Opener {
            conn.ready = false;
        }
        was
    }

    /// The opener's TCP connection is over: it tells the target, as far as the network does, and keeps its
    /// session.
    pub fn wire_park_opener(&mut self, now: Time, id: ConnId) {
        let Some(wired) = self.conns.get_mut(&id).and_then(|c| c.wired.as_mut()) else { return };
        let side = &mut wired.sides[0];
        let link = side.link.take();
        let tcp = link.as_ref().map(|l| l.tcp);
        side.park(now, link);
        if let Some(tcp) = tcp {
            self.push(now, id, End::Target, Packet::Cut { tcp });
        }
    }

    /// Of a lossless session that its opener let go, the target keeps its end for a while.
    pub fn wire_park_target(&mut self, now: Time, id: ConnId) {
        let Some(wired) = self.conns.get_mut(&id).and_then(|c| c.wired.as_mut()) else { return };
        let side = &mut wired.sides[1];
        let link = side.link.take();
        side.fresh = None;
        side.park(now, link);
    }

    /// The network breaks the TCP connection of a lossless session, at any byte. The target may not hear of
    /// it.
    pub fn wire_break(&mut self, now: Time, id: ConnId) {
        let Some(wired) = self.conns.get_mut(&id).and_then(|c| c.wired.as_mut()) else { return };
        let tcp = wired.tcp;
        wired.broken = tcp;
        self.lose_unhanded(now, id, tcp);
        self.lose_tail(id, End::Opener);
        self.lose_tail(id, End::Target);
        let target_hears = self.wire.as_mut().is_some_and(|w| !w.rng.one_in(4));
        self.push(now, id, End::Opener, Packet::Cut { tcp });
        if target_hears {
            self.push(now, id, End::Target, Packet::Cut { tcp });
        }
    }

    /// A bit of something that is under way flips; `false`: nothing is.
    pub fn wire_flip(&mut self, id: ConnId) -> bool {
        let (Some(wire), Some(conn)) = (&mut self.wire, self.conns.get_mut(&id)) else { return false };
        let queued = conn.pipes.iter_mut().flat_map(|p| p.queue.iter_mut());
        for packet in queued {
            if let Packet::Bytes { data, .. } = packet {
                *data = wire.flipped(data);
                return true;
            }
        }
        false
    }

    /// Cuts the last piece under way to an end anywhere.
    pub fn wire_tear(&mut self, id: ConnId, to: End) {
        let (Some(wire), Some(conn)) = (&mut self.wire, self.conns.get_mut(&id)) else { return };
        if let Some(Packet::Bytes { data, .. }) = conn.pipes[to as usize].queue.back_mut() {
            data.truncate(1 + wire.rng.below(data.len() as u64) as usize);
        }
    }

    /// Time passes for a process's connections.
    pub fn wire_tick(&mut self, now: Time, node: Node) -> Vec<(ConnId, End, Vec<Told>)> {
        let mut all = Vec::new();
        for id in self.of_node(node) {
            let Some(conn) = self.conns.get(&id) else { continue };
            let end = conn.end_of(node);
            let Some(wired) = conn.wired.as_ref().filter(|_| conn.held[end as usize]) else { continue };
            let side = &wired.sides[end as usize];
            let tcps = [&side.link, &side.fresh].map(|l| l.as_ref().map(|l| l.tcp));
            for tcp in tcps.into_iter().flatten() {
                let Some(mut link) = self.take_link(id, end, tcp) else { continue };
                link.machine.tick(clock(now));
                let told = self.turn(now, id, end, link);
                if !told.is_empty() {
                    all.push((id, end, told));
                }
            }
        }
        all
    }

    /// Sessions that a process keeps for nobody any more.
    pub fn wire_stale(&self, now: Time, at: (Node, u32), keep: impl Fn(&AddrVec) -> bool) -> Vec<ConnId> {
        let Some(kept) = self.wire.as_ref().and_then(|w| w.kept.get(&at)) else { return Vec::new() };
        let parked = kept.all().into_iter().filter_map(|(entity, addrs, conn)| {
            let wired = self.conns.get(&conn)?.wired.as_ref()?;
            let (session, since) = wired.sides[1].parked.as_ref()?;
            let (since, bytes) = (Duration::from_nanos(*since), session.pending().1);
            Some(Parked { conn, entity, since, bytes, keep: keep(&addrs) })
        });
        msgr::surplus(parked.collect(), Duration::from_nanos(now))
    }
}

impl Link {
    fn new(tcp: u32, machine: Connection, keys: &(Vec<u8>, Vec<u8>)) -> Self {
        let (key, secret) = keys.clone();
        Self { tcp, machine, buf: BytesMut::new(), key, secret, resumed: false, came: 0 }
    }

    /// Whether it is the opener's: that one has its session from the beginning.
    fn connects(&self) -> bool {
        self.machine.session().is_some()
    }
}

// Planted bugs.

impl Net {
    /// What came is not what the process hears.
    fn plant(&mut self, id: ConnId, end: End, link: &mut Link, told: &mut Vec<Told>) {
        let Some(bug) = self.wire.as_ref().and_then(|w| w.bug) else { return };
        let Some(conn) = self.conns.get_mut(&id).filter(|c| !c.lossy) else { return };
        let Some(wired) = &mut conn.wired else { return };
        let recent = &mut wired.sides[end as usize].recent;
        let first = link.came == 0 && link.resumed;
        let came = told.iter().filter(|t| matches!(t, Told::Message(_))).count();
        link.came += came as u64;
        match bug {
            Bug::Repeat => {
                let again: Vec<Told> =
                    match told.iter().any(|t| matches!(t, Told::Ready { resumed: true, .. })) {
                        true => recent.drain(..).map(Told::Message).collect(),
                        false => Vec::new(),
                    };
                recent.extend(told.iter().filter_map(|t| match t {
                    Told::Message(msg) => Some(msg.clone()),
                    _ => None,
                }));
                recent.drain(..recent.len().saturating_sub(REPEATED));
                told.extend(again);
            }
            Bug::Reverse if link.resumed => told.reverse(),
            Bug::DropFirst if first => {
                let at = told.iter().position(|t| matches!(t, Told::Message(_)));
                at.into_iter().for_each(|at| _ = told.remove(at));
            }
            _ => {}
        }
    }

    /// The bug: what has reached the machines counts as received although nobody was given it.
    fn lose_unhanded(&mut self, now: Time, id: ConnId, tcp: u32) {
        if self.wire.as_ref().and_then(|w| w.bug) != Some(Bug::AckUnhanded) {
            return;
        }
        for end in [End::Opener, End::Target] {
            let Some(mut link) = self.take_link(id, end, tcp) else { continue };
            let Some(conn) = self.conns.get_mut(&id) else { continue };
            for packet in std::mem::take(&mut conn.pipes[end as usize].queue) {
                if let (Packet::Bytes { data, .. }, true) = (packet, link.machine.is_ready()) {
                    link.buf.extend_from_slice(&data);
                    link.machine.handle_bytes(clock(now), &mut link.buf);
                }
            }
            while link.machine.poll_event().is_some() {}
            let holds = end == End::Opener || link.machine.session().is_some();
            if let Some(wired) = &mut conn.wired {
                let side = &mut wired.sides[end as usize];
                match holds {
                    true => side.link = Some(link),
                    false => side.fresh = Some(link),
                }
            }
        }
    }
}
