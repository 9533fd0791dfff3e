//! Guests: client processes around the real client core ([`objecter`]). Each has one habit that the ordinary clients lack, and
//! knows by itself what it must be told: snapshots, locks, watches, filling the disks.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::sync::Arc;

use maps::{OsdMap, Pool};
use messages::Message;
use messages::osd::OsdOp;
use objecter::{
    Effect, Input, Objecter, OpRequest, Outcome, Request, ServicePeer, SessionId, Settings, Ticket,
    WatchEvent,
};
use testkit::Rng;
use types::{ConnId, HObject, PoolId, SnapContext, SnapId};

use crate::board::Board;
use crate::faults::Death;
use crate::filler::Filler;
use crate::locks::Locker;
use crate::net::{End, Node};
use crate::queue::{MILLISECOND, SECOND, Time};
use crate::scenario::Options;
use crate::snaps::Snapper;
use crate::visits::Visitor;
use crate::watches::{Notifier, Watcher};
use crate::world::{Event, MonLink, World, life_of};

/// What a guest is there for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GuestKind {
    /// Writes objects under snapshots that it manages itself.
    Snaps,
    /// The same with snapshots of the whole pool.
    PoolSnaps,
    /// One of several that take a lock from each other, also from one that is dead or silent.
    Locker,
    Watcher,
    /// Notifies the watchers.
    Notifier,
    /// Writes until the disks are full, removes everything, and begins again.
    Filler,
    /// Uses pools that come and go.
    Visitor,
}

impl fmt::Display for GuestKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Snaps => "snaps",
            Self::PoolSnaps => "pool-snaps",
            Self::Locker => "locker",
            Self::Watcher => "watcher",
            Self::Notifier => "notifier",
            Self::Filler => "filler",
            Self::Visitor => "visitor",
        })
    }
}

enum Role {
    Snaps(Snapper),
    Locks(Locker),
    Watch(Watcher),
    Notify(Notifier),
    Fill(Filler),
    Visit(Visitor),
}

impl Role {
    fn new(kind: GuestKind, g: usize) -> Self {
        match kind {
            GuestKind::Snaps => Self::Snaps(Snapper::new(false)),
            GuestKind::PoolSnaps => Self::Snaps(Snapper::new(true)),
            GuestKind::Locker => Self::Locks(Locker::new(g)),
            GuestKind::Watcher => Self::Watch(Watcher::default()),
            GuestKind::Notifier => Self::Notify(Notifier::default()),
            GuestKind::Filler => Self::Fill(Filler::default()),
            GuestKind::Visitor => Self::Visit(Visitor::new(g)),
        }
    }

    fn act(&mut self, cx: &mut Cx, what: Happening) {
        match self {
            Self::Snaps(r) => r.act(cx, what),
            Self::Locks(r) => r.act(cx, what),
            Self::Watch(r) => r.act(cx, what),
            Self::Notify(r) => r.act(cx, what),
            Self::Fill(r) => r.act(cx, what),
            Self::Visit(r) => r.act(cx, what),
        }
    }

    /// Whether nothing is left that it has to see before the end.
    fn has_finished(&self) -> bool {
        match self {
            Self::Snaps(r) => r.has_finished(),
            Self::Notify(r) => r.has_finished(),
            Self::Fill(r) => r.has_finished(),
            Self::Visit(r) => r.has_finished(),
            Self::Locks(_) | Self::Watch(_) => true,
        }
    }
}

/// What a role hears.
pub enum Happening {
    /// A new process begins; what the one before had under way is never answered.
    Began,
    /// It may ask something.
    Think,
    Done(Ticket, Outcome),
    Watch {
        cookie: u64,
        event: WatchEvent,
    },
}

/// What a role wants.
pub enum Ask {
    Request(Ticket, Request),
    /// To think after so long.
    Later(Time),
    /// The process ends, and another one begins after so long.
    Restart(Time),
    /// Nothing of it reaches an OSD for so long.
    Silence(Time),
    Violation(String),
}

/// A role's view of the world.
pub struct Cx<'a> {
    pub now: Time,
    pub healed_at: Time,
    /// When everything was whole again after that.
    pub settled_at: Time,
    /// Nothing new is to be asked.
    pub paused: bool,
    /// The run is at its end: last checks.
    pub finishing: bool,
    /// Mean time between a reply and the next request.
    pub think: Time,
    pub rng: &'a mut Rng,
    pub map: Arc<OsdMap>,
    /// This process's global id.
    pub gid: u64,
    pub board: &'a mut Board,
    pub options: &'a Options,
    tickets: &'a mut u64,
    out: Vec<Ask>,
}

impl Cx<'_> {
    /// The only pool.
    pub fn pool(&self) -> Option<(PoolId, &Pool)> {
        self.map.pools.iter().next().map(|(id, pool)| (PoolId(id.0), pool))
    }

    /// A number that nobody had before.
    pub fn unique(&mut self) -> u64 {
        self.board.unique += 1;
        (1 << 40) + self.board.unique
    }

    pub fn ask(&mut self, request: Request) -> Ticket {
        *self.tickets += 1;
        let ticket = Ticket(*self.tickets);
        self.out.push(Ask::Request(ticket, request));
        ticket
    }

    pub fn object(&self, name: &str) -> HObject {
        let pool = self.pool().map_or(PoolId(0), |(id, _)| id);
        HObject { pool, name: name.into(), snap: SnapId::HEAD, ..HObject::min() }
    }

    /// An operation on an object of the only pool; `flags` with READ or WRITE.
    pub fn op(
        &mut self,
        name: &str,
        snap: SnapId,
        ops: Vec<OsdOp>,
        flags: u32,
        snapc: SnapContext,
    ) -> Ticket {
        let object = HObject { snap, ..self.object(name) };
        self.ask(Request::Op(Box::new(OpRequest { object, ops, flags, snapc, mtime: None, timeout: None })))
    }

    pub fn later(&mut self) {
        let wait = self.rng.below(self.think * 3) + 1;
        self.out.push(Ask::Later(wait));
    }

    pub fn soon(&mut self, wait: Time) {
        self.out.push(Ask::Later(wait));
    }

    pub fn restart(&mut self, after: Time) {
        self.out.push(Ask::Restart(after));
    }

    pub fn be_silent(&mut self, lasts: Time) {
        self.out.push(Ask::Silence(lasts));
    }

    pub fn violation(&mut self, text: String) {
        self.out.push(Ask::Violation(text));
    }
}

/// A guest's process, and what it is there for, which outlives the process.
pub struct Guest {
    pub kind: GuestKind,
    pub life: u32,
    pub mon: MonLink,
    pub core: Objecter,
    rng: Rng,
    role: Role,
    sessions: BTreeMap<SessionId, ConnId>,
    conns: BTreeMap<ConnId, SessionId>,
    /// When the core is called next, as far as that is planned.
    tick_at: Option<Time>,
    tickets: u64,
    open: BTreeSet<Ticket>,
    inbox: VecDeque<Happening>,
    reading: bool,
    /// Only the last thought that was planned is thought.
    turn: u64,
    pub paused: bool,
    pub answered: u64,
    /// Ended, and not begun again.
    gone: bool,
}

impl Guest {
    pub fn new(seed: u64, g: usize, kind: GuestKind) -> Self {
        Self {
            kind,
            life: 1,
            mon: MonLink::default(),
            core: Objecter::new(Settings::default()),
            rng: Rng::new(seed ^ (0x9_0e57_0000 + g as u64)),
            role: Role::new(kind, g),
            sessions: BTreeMap::new(),
            conns: BTreeMap::new(),
            tick_at: None,
            tickets: 0,
            open: BTreeSet::new(),
            inbox: VecDeque::new(),
            reading: false,
            turn: 0,
            paused: true,
            answered: 0,
            gone: false,
        }
    }

    pub fn is_gone(&self) -> bool {
        self.gone
    }

    pub fn is_idle(&self) -> bool {
        self.open.is_empty() && !self.gone && self.core.map().epoch.0 > 0
    }

    pub fn has_finished(&self) -> bool {
        self.is_idle() && self.role.has_finished()
    }

    /// What waits longest, for reports.
    pub fn oldest(&self) -> String {
        format!("{} life {}: {:?}", self.kind, self.life, self.open.first())
    }
}

impl World {
    pub fn start_guest(&mut self, g: usize) {
        let life = self.guests[g].life;
        self.guests[g].gone = false;
        self.seek_mon(Node::Guest(g), life);
        self.plan_in(5 * SECOND, Event::Tick { node: Node::Guest(g), life });
        self.guest_hears(g, Happening::Began);
    }

    /// A guest's process ends, and another one begins after so long: what it had under way is never answered.
    pub fn restart_guest(&mut self, g: usize, after: Time) {
        if self.guests[g].gone {
            return;
        }
        let gid = self.guests[g].mon.global_id;
        self.board.process_ended(gid, self.now);
        self.drop_connections(Node::Guest(g), Death::Killed);
        let guest = &mut self.guests[g];
        guest.life += 1;
        guest.gone = true;
        guest.mon = MonLink::default();
        guest.core = Objecter::new(Settings::default());
        guest.tick_at = None;
        guest.turn += 1;
        guest.open.clear();
        guest.inbox.clear();
        guest.sessions.clear();
        guest.conns.clear();
        self.plan_in(after, Event::StartGuest { guest: g });
    }

    /// Lets every guest think (again).
    pub fn wake_guests(&mut self) {
        for g in 0..self.guests.len() {
            let wait = self.guests[g].rng.below(50 * MILLISECOND);
            self.guest_later(g, wait);
        }
    }

    fn guest_later(&mut self, g: usize, wait: Time) {
        let guest = &mut self.guests[g];
        guest.turn += 1;
        let turn = guest.turn;
        self.plan_in(wait, Event::GuestThink { guest: g, turn });
    }

    pub fn guest_thinks(&mut self, g: usize, turn: u64) {
        if self.guests[g].turn == turn && !self.guests[g].gone {
            self.guest_hears(g, Happening::Think);
        }
    }

    /// The role acts on what it hears, one thing after the other.
    fn guest_hears(&mut self, g: usize, what: Happening) {
        self.guests[g].inbox.push_back(what);
        if self.guests[g].reading {
            return;
        }
        self.guests[g].reading = true;
        while let Some(what) = self.guests[g].inbox.pop_front() {
            self.guest_acts(g, what);
        }
        self.guests[g].reading = false;
    }

    fn guest_acts(&mut self, g: usize, what: Happening) {
        let think = self.think_time();
        let guest = &mut self.guests[g];
        let mut cx = Cx {
            now: self.now,
            healed_at: self.healed_at,
            settled_at: self.settled_at,
            paused: guest.paused,
            finishing: self.finishing,
            think,
            rng: &mut guest.rng,
            map: guest.core.map().clone(),
            gid: guest.mon.global_id,
            board: &mut self.board,
            options: &self.scenario.options,
            tickets: &mut guest.tickets,
            out: Vec::new(),
        };
        guest.role.act(&mut cx, what);
        for ask in cx.out {
            match ask {
                Ask::Request(ticket, request) => {
                    self.guests[g].open.insert(ticket);
                    self.guest_input(g, Input::Submit(ticket, request));
                }
                Ask::Later(wait) => self.guest_later(g, wait),
                Ask::Restart(after) => self.restart_guest(g, after),
                Ask::Silence(lasts) if !self.healed => {
                    let osds = (0..self.scenario.options.osds).map(|o| (Node::Guest(g), Node::Osd(o)));
                    self.block(osds.collect(), lasts);
                }
                Ask::Silence(_) => {}
                Ask::Violation(text) => {
                    let kind = self.guests[g].kind;
                    self.violation(format!("O3: {kind} {g}: {text}"));
                }
            }
        }
    }

    pub fn guest_input(&mut self, g: usize, input: Input) {
        let now = self.clock();
        let mut out = Vec::new();
        self.guests[g].core.handle(now, input, &mut out);
        let mut heard = Vec::new();
        for effect in out {
            match effect {
                Effect::SendMon { tid, msg } => self.send_mon(Node::Guest(g), tid, msg),
                Effect::Open { session, peer, addrs } => {
                    let to = match peer {
                        ServicePeer::Osd(osd) => Node::Osd(osd),
                        ServicePeer::Mgr => Node::Mgr,
                    };
                    let conn = self.connect(Node::Guest(g), to, life_of(&addrs), true);
                    self.guests[g].sessions.insert(session, conn);
                    self.guests[g].conns.insert(conn, session);
                }
                Effect::Close(session) => {
                    if let Some(conn) = self.guests[g].sessions.remove(&session) {
                        self.guests[g].conns.remove(&conn);
                        self.net.close(self.now, conn, End::Opener);
                    }
                }
                Effect::Send { session, tid, msg } => {
                    if let Some(conn) = self.guests[g].sessions.get(&session).copied() {
                        self.net.send(self.now, conn, End::Opener, tid, msg);
                    }
                }
                Effect::Done(ticket, outcome) => {
                    self.guests[g].open.remove(&ticket);
                    self.guests[g].answered += 1;
                    heard.push(Happening::Done(ticket, outcome));
                }
                Effect::Watch { cookie, event } => heard.push(Happening::Watch { cookie, event }),
                Effect::NewMap(_) | Effect::NewMonMap(_) => {}
            }
        }
        self.plan_guest_tick(g);
        let life = self.guests[g].life;
        for what in heard {
            if self.guests[g].life == life {
                self.guest_hears(g, what);
            }
        }
    }

    fn plan_guest_tick(&mut self, g: usize) {
        let Some(deadline) = self.guests[g].core.deadline() else { return };
        let at = (deadline.as_nanos() as Time).max(self.now + 1);
        let guest = &mut self.guests[g];
        if guest.tick_at.is_none_or(|planned| at < planned) {
            guest.tick_at = Some(at);
            let life = guest.life;
            self.queue.plan(at, Event::GuestTick { guest: g, life });
        }
    }

    pub fn guest_tick(&mut self, g: usize, life: u32) {
        let now = self.now;
        let guest = &mut self.guests[g];
        if guest.life != life || guest.tick_at != Some(now) {
            return;
        }
        guest.tick_at = None;
        self.guest_input(g, Input::Tick);
    }

    // What the network brings.

    pub fn guest_session_ready(&mut self, g: usize, conn: ConnId) {
        if let Some(session) = self.guests[g].conns.get(&conn).copied() {
            self.guest_input(g, Input::SessionReady(session));
        }
    }

    pub fn guest_session_gone(&mut self, g: usize, conn: ConnId) {
        if let Some(session) = self.guests[g].conns.remove(&conn) {
            self.guests[g].sessions.remove(&session);
            self.guest_input(g, Input::SessionGone(session));
        }
    }

    pub fn guest_message(&mut self, g: usize, conn: ConnId, from: Node, tid: u64, msg: Message) {
        if let Node::Mon(_) = from {
            if self.guests[g].mon.conn == Some(conn) {
                self.guest_input(g, Input::FromMon { tid, msg });
            }
            return;
        }
        if let Some(session) = self.guests[g].conns.get(&conn).copied() {
            self.guest_input(g, Input::FromSession { session, tid, msg });
        }
    }
}
