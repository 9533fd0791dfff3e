//! The state, and the way of an input through it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use maps::{FsId, MdsMap, Rank};
use messages::Message;
use objecter::OpRequest;
use types::{Epoch, Errno, Ino, Now};

use crate::call::{Event, Running, Stage};
use crate::file::OpenFile;
use crate::inode::Inode;
use crate::io::{Answer, Call, Effect, Handle, Input, Node, ObjectTicket, SessionId, Settings, Ticket};
use crate::loss::Losses;
use crate::request::Request;
use crate::session::Session;
use crate::snap::Realm;

/// Looking after sessions and what waits to be given back.
const TICK: Duration = Duration::from_secs(1);

/// See the crate's documentation.
#[derive(Debug)]
pub struct Client {
    pub(crate) settings: Settings,
    pub(crate) now: Now,
    pub(crate) out: Vec<Effect>,
    next_tick: Duration,

    pub(crate) is_mon_ready: bool,
    pub(crate) fs: Option<FsId>,
    /// Of epoch 0 before the first one came.
    pub(crate) map: MdsMap,
    /// Operations on objects wait for an OSD map of this epoch: others may be blocked by it.
    pub(crate) osd_barrier: Epoch,
    pub(crate) osd_epoch: Epoch,

    pub(crate) last_session: u64,
    pub(crate) sessions: BTreeMap<Rank, Session>,
    pub(crate) by_conn: BTreeMap<SessionId, Rank>,

    pub(crate) root: Node,
    pub(crate) inodes: BTreeMap<Node, Inode>,
    pub(crate) realms: BTreeMap<Ino, Realm>,
    /// How many there were when they were last looked through.
    pub(crate) realms_in_use: usize,
    /// Inodes that may have no name any more.
    pub(crate) unlinked: BTreeSet<Node>,
    /// Counts uses of inodes.
    pub(crate) uses: u64,

    pub(crate) last_tid: u64,
    pub(crate) last_flush: u64,
    /// Flushes of inodes that no rank is responsible for right now.
    pub(crate) orphans: BTreeSet<u64>,
    pub(crate) losses: Losses,
    pub(crate) requests: BTreeMap<u64, Request>,

    pub(crate) calls: BTreeMap<Ticket, Running>,
    /// What is to be handled before an input is done with.
    pub(crate) ready: VecDeque<(Ticket, Event)>,
    /// Calls that wait until something is safe, clean or mapped.
    pub(crate) settling: BTreeSet<Ticket>,
    /// Until when calls may wait that wait for so long only.
    pub(crate) timed: BTreeMap<Ticket, Duration>,
    pub(crate) last_handle: u64,
    pub(crate) handles: BTreeMap<Handle, OpenFile>,
    last_object: u64,
    objects: BTreeMap<ObjectTicket, (Ticket, usize)>,
    held_objects: Vec<(ObjectTicket, Box<OpRequest>)>,
    pub(crate) is_unmounting: bool,
}

impl Client {
    pub fn new(settings: Settings) -> Self {
        Self {
            settings,
            now: Now::default(),
            out: Vec::new(),
            next_tick: Duration::ZERO,
            is_mon_ready: false,
            fs: None,
            map: MdsMap::default(),
            osd_barrier: Epoch(0),
            osd_epoch: Epoch(0),
            last_session: 0,
            sessions: BTreeMap::new(),
            by_conn: BTreeMap::new(),
            root: Node::ROOT,
            inodes: BTreeMap::new(),
            realms: BTreeMap::new(),
            realms_in_use: 0,
            unlinked: BTreeSet::new(),
            uses: 0,
            last_tid: 0,
            last_flush: 0,
            orphans: BTreeSet::new(),
            losses: Losses::default(),
            requests: BTreeMap::new(),
            calls: BTreeMap::new(),
            ready: VecDeque::new(),
            settling: BTreeSet::new(),
            timed: BTreeMap::new(),
            last_handle: 0,
            handles: BTreeMap::new(),
            last_object: 0,
            objects: BTreeMap::new(),
            held_objects: Vec::new(),
            is_unmounting: false,
        }
    }

    /// Handles one input and appends what has to be done.
    pub fn handle(&mut self, now: Now, input: Input, out: &mut Vec<Effect>) {
        self.now = now;
        match input {
            Input::Submit(ticket, call) => self.submit(ticket, call),
            Input::Cancel(ticket) => self.cancel(ticket, Errno::ECANCELED),
            Input::MonReady => {
                self.is_mon_ready = true;
                self.subscribe();
            }
            Input::FromMon(msg) => self.on_mon(msg),
            Input::SessionGone(conn) => self.conn_gone(conn),
            Input::FromSession { session, tid, msg } => {
                if let Some(rank) = self.by_conn.get(&session).copied() {
                    self.on_session(rank, tid, msg);
                }
            }
            Input::ObjectDone(object, result) => {
                if let Some((ticket, index)) = self.objects.remove(&object) {
                    self.ready.push_back((ticket, Event::Object(index, result)));
                }
            }
            Input::OsdMap(epoch) => {
                self.osd_epoch = self.osd_epoch.max(epoch);
                self.release_objects();
            }
            Input::Tick => self.tick(),
        }
        while let Some((ticket, event)) = self.ready.pop_front() {
            self.run(ticket, event);
        }
        out.append(&mut self.out);
    }

    /// When a `Tick` is due (monotonic); `None` while nothing needs one.
    pub fn deadline(&self) -> Option<Duration> {
        (!self.sessions.is_empty() || !self.timed.is_empty()).then_some(self.next_tick)
    }

    fn on_session(&mut self, rank: Rank, tid: u64, msg: Message) {
        match msg {
            Message::ClientSession(m) => self.on_session_word(rank, m),
            Message::ClientReply(m) => self.on_reply(rank, tid, &m),
            Message::ClientRequestForward(m) => self.on_forward(tid, &m),
            Message::ClientCaps(m) => self.on_caps(rank, tid, &m),
            Message::ClientLease(m) => self.on_lease(rank, m),
            Message::ClientSnap(m) => self.on_snap(rank, &m),
            Message::ClientQuota(m) => self.on_quota(rank, &m),
            Message::MdsMap(m) => self.on_map(m),
            _ => {}
        }
    }

    fn tick(&mut self) {
        if self.now.mono < self.next_tick {
            return;
        }
        self.next_tick = self.now.mono + TICK;
        self.renew_sessions();
        self.flush_due();
        self.trim();
        self.flush_releases();
        self.expire();
    }

    pub(crate) fn send(&mut self, rank: Rank, tid: u64, msg: Message) {
        if let Some(session) = self.sessions.get(&rank) {
            self.out.push(Effect::Send { session: session.conn, tid, msg });
        }
    }

    pub(crate) fn done(&mut self, ticket: Ticket, result: Result<Answer, Errno>) {
        if self.calls.remove(&ticket).is_some() {
            self.settling.remove(&ticket);
            self.timed.remove(&ticket);
            self.out.push(Effect::Done(ticket, result));
        }
    }

    /// Runs an operation on an object for a call, which hears of it by `index`.
    pub(crate) fn object(&mut self, ticket: Ticket, index: usize, request: OpRequest) {
        self.last_object += 1;
        let object = ObjectTicket(self.last_object);
        self.objects.insert(object, (ticket, index));
        if self.osd_epoch < self.osd_barrier {
            return self.held_objects.push((object, Box::new(request)));
        }
        self.out.push(Effect::Object(object, Box::new(request)));
    }

    pub(crate) fn raise_barrier(&mut self, epoch: Epoch) {
        if epoch > self.osd_barrier {
            self.osd_barrier = epoch;
            if epoch > self.osd_epoch {
                self.out.push(Effect::NeedOsdMap(epoch));
            }
        }
    }

    fn release_objects(&mut self) {
        if self.osd_epoch >= self.osd_barrier {
            self.out
                .extend(self.held_objects.drain(..).map(|(ticket, request)| Effect::Object(ticket, request)));
        }
    }

    /// Those who wait for capabilities of an inode look again.
    pub(crate) fn wake(&mut self, node: Node) {
        if let Some(inode) = self.inodes.get_mut(&node) {
            self.ready.extend(inode.waiters.drain(..).map(|ticket| (ticket, Event::Retry)));
        }
    }

    /// Those who wait until something is safe, clean or mapped look again.
    pub(crate) fn wake_settling(&mut self) {
        self.ready.extend(self.settling.iter().map(|ticket| (*ticket, Event::Retry)));
    }

    fn submit(&mut self, ticket: Ticket, call: Call) {
        let is_refused = self.calls.len() >= self.settings.max_calls || self.calls.contains_key(&ticket);
        if is_refused {
            return self.out.push(Effect::Done(ticket, Err(Errno::EBUSY)));
        }
        if matches!(call, Call::Mount { .. } | Call::Unmount) {
            self.timed.insert(ticket, self.now.mono + self.settings.mount_timeout);
        }
        self.calls.insert(ticket, Running { call, stage: Stage::New });
        self.ready.push_back((ticket, Event::Start));
    }

    /// Checks the numbered invariants of the crate's documentation. For tests.
    pub fn assert_invariants(&self) {
        for (ticket, _) in self.objects.values() {
            assert!(self.calls.contains_key(ticket), "invariant 1");
        }
        for request in self.requests.values() {
            assert!(request.ticket.is_none_or(|t| self.calls.contains_key(&t)), "invariant 1");
        }
        for (node, inode) in &self.inodes {
            for (rank, cap) in &inode.caps {
                let unused = cap.implemented.without(cap.issued | inode.used());
                let is_held_back = inode.caps.len() > 1;
                assert!(unused.is_empty() || is_held_back, "invariant 2: {node:?} holds {unused} of {rank}");
                assert!(self.sessions.contains_key(rank), "invariant 5");
            }
            assert!(inode.auth.is_none_or(|rank| inode.caps.contains_key(&rank)), "invariant 5");
            let of_rank = |tid| self.sessions.values().any(|s| s.flushes.contains(tid));
            let is_known = |tid| if inode.auth.is_some() { of_rank(tid) } else { self.orphans.contains(tid) };
            assert!(inode.flushing.keys().all(is_known), "invariant 3");
            let leads_nowhere = |d: &&crate::dentry::Dentry| d.target.is_none();
            let negatives = inode.dentries.values().filter(leads_nowhere).count();
            assert_eq!(inode.negatives, negatives, "invariant 6");
        }
    }

    /// The number of the newest connection. For tests.
    pub fn connections_opened(&self) -> u64 {
        self.last_session
    }

    /// Panics unless every call has ended. For tests.
    pub fn assert_idle(&self) {
        assert!(self.calls.is_empty() && self.requests.is_empty(), "{:?} {:?}", self.calls, self.requests);
    }
}
