//! The shell around the objecter: sockets, timers, and who waits for what.
//!
//! A caller's request runs through the core on the caller's own thread and, while few are under way, is written to the
//! socket there; an answer runs through it on the task of its connection. With many under way a task writes what all callers
//! that were woken together have submitted, in one call for each socket.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock, Weak};
use std::time::Duration;

use maps::OsdMap;
use messages::Message;
use messages::wire::WireMessage;
use msgr::{Limits, Local, Peer, Policy};
use objecter::{
    Effect, Input, Objecter, Outcome, Request, ServicePeer, SessionId, Settings, Ticket, WatchEvent,
};
use runtime::net::{AuthInput, AuthStep, ConnectTo, Gone, Handler, Messenger, PeerReady};
use runtime::session::{MonSession, SharedAuth};
use runtime::{Clock, Machine, Owner};
use tokio::sync::{Notify, oneshot};
use types::{AddrVec, ConnId, EntityAddr, EntityName, EntityType, Errno};

use crate::companion::Beside;

/// Events that wait for a watcher who does not take them; older ones are dropped, and their notifiers time out.
const MAX_WATCH_EVENTS: usize = 1024;

/// With at most so many requests under way each is written at once.
const FEW: usize = 2;

/// Everything of one client that its tasks share.
pub(crate) struct Shared {
    pub(crate) auth: Arc<SharedAuth>,
    pub(crate) messenger: Messenger,
    pub(crate) session: Arc<MonSession>,
    owner: OnceLock<Owner<Shell>>,
    map: RwLock<Arc<OsdMap>>,
    /// Told of every new map, and of refused logins.
    pub(crate) news: Notify,
    next_ticket: AtomicU64,
    /// Nanoseconds of monotonic time at which the timer task wakes up.
    armed: AtomicU64,
    rearm: Notify,
    /// Wakes the task that writes what is queued.
    flush: Arc<Notify>,
    down: AtomicBool,
    pub(crate) beside: Beside,
}

/// The queue of one watch.
#[derive(Debug, Default)]
pub(crate) struct WatchQueue {
    events: Mutex<VecDeque<WatchEvent>>,
    filled: Notify,
}

impl WatchQueue {
    fn push(&self, event: WatchEvent) {
        let mut events = lock(&self.events);
        if events.len() >= MAX_WATCH_EVENTS {
            events.pop_front();
        }
        events.push_back(event);
        drop(events);
        self.filled.notify_one();
    }

    pub(crate) async fn pop(&self) -> WatchEvent {
        loop {
            if let Some(event) = lock(&self.events).pop_front() {
                return event;
            }
            self.filled.notified().await;
        }
    }
}

/// Who waits for a request.
pub(crate) enum Waiter {
    Outcome(oneshot::Sender<Outcome>),
    /// A watch, with the queue that its events go to from its registration on.
    Watch(oneshot::Sender<Outcome>, Arc<WatchQueue>),
    /// Told on the thread that brought the answer.
    Call(Box<dyn FnOnce(Outcome) + Send>),
    Nobody,
}

/// What is handed to the core.
pub(crate) enum Event {
    Submit(Ticket, Request, Waiter),
    Cancel(Ticket, Errno),
    Ready(Side),
    Gone(Side),
    Message { from: Side, tid: u64, msg: Message },
    DropWatch(u64),
    Tick,
    ShutDown,
}

/// Where an event of a connection comes from. Late ones of connections that we closed belong to nobody.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Side {
    Mon,
    Service(ConnId),
}

/// The core with its tables, owned by whoever brings an event.
pub(crate) struct Shell {
    objecter: Objecter,
    shared: Weak<Shared>,
    messenger: Messenger,
    effects: Vec<Effect>,
    waiters: HashMap<Ticket, Waiter>,
    watches: HashMap<u64, Arc<WatchQueue>>,
    conns: HashMap<ConnId, SessionId>,
    sessions: HashMap<SessionId, ConnId>,
    /// Connections with something queued.
    dirty: Vec<ConnId>,
    down: bool,
}

impl Shared {
    /// Must be called within the runtime that carries the connections.
    pub(crate) fn start(auth: Arc<SharedAuth>, monitors: Vec<EntityAddr>, settings: Settings) -> Arc<Self> {
        let local = Local { name: EntityName::client(-1), addrs: AddrVec::default() };
        // A peer that is silent for long is asked whether it lives, and given up when it does not answer.
        let (after, idle) = (Duration::from_secs(10), Duration::from_secs(30));
        let limits = Limits { keepalive_after: Some(after), idle_timeout: idle, ..Limits::default() };
        let messenger = Messenger::new(local, limits, Clock::start());
        let session = MonSession::new(Arc::clone(&auth), messenger.clone(), monitors, false);
        let shared = Arc::new(Self {
            auth,
            messenger: messenger.clone(),
            session,
            owner: OnceLock::new(),
            map: RwLock::new(Arc::new(OsdMap::default())),
            news: Notify::new(),
            next_ticket: AtomicU64::new(1),
            armed: AtomicU64::new(u64::MAX),
            rearm: Notify::new(),
            flush: Arc::new(Notify::new()),
            down: AtomicBool::new(false),
            beside: Beside::default(),
        });
        let shell = Shell {
            objecter: Objecter::new(settings),
            shared: Arc::downgrade(&shared),
            messenger: messenger.clone(),
            effects: Vec::new(),
            waiters: HashMap::new(),
            watches: HashMap::new(),
            conns: HashMap::new(),
            sessions: HashMap::new(),
            dirty: Vec::new(),
            down: false,
        };
        let _ = shared.owner.set(Owner::new(shell));
        messenger.set_handler(Arc::new(Ears(Arc::downgrade(&shared))));
        tokio::spawn(keep_time(Arc::downgrade(&shared)));
        tokio::spawn(flush_later(Arc::clone(&shared.flush), Arc::downgrade(&shared)));
        shared.session.connect();
        shared
    }

    pub(crate) fn map(&self) -> Arc<OsdMap> {
        Arc::clone(&self.map.read().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn hand_in(&self, event: Event) {
        if let Some(owner) = self.owner.get() {
            owner.submit(event);
        }
    }

    pub(crate) fn ticket(&self) -> Ticket {
        Ticket(self.next_ticket.fetch_add(1, Ordering::Relaxed))
    }

    /// Submits at once; the receiver hears how it ended.
    pub(crate) fn submit(&self, request: Request) -> (Ticket, oneshot::Receiver<Outcome>) {
        let (tx, rx) = oneshot::channel();
        let ticket = self.ticket();
        self.hand_in(Event::Submit(ticket, request, Waiter::Outcome(tx)));
        (ticket, rx)
    }

    pub(crate) fn submit_for(&self, request: Request, waiter: Waiter) {
        self.hand_in(Event::Submit(self.ticket(), request, waiter));
    }

    /// Ends everything; whoever waits hears of it.
    pub(crate) fn shut_down(&self) {
        self.down.store(true, Ordering::Release);
        self.hand_in(Event::ShutDown);
        self.messenger.shut_down();
        self.rearm.notify_one();
        self.flush.notify_one();
    }

    fn side(&self, conn: ConnId) -> Side {
        if self.session.is(conn) { Side::Mon } else { Side::Service(conn) }
    }

    fn arm(&self, deadline: Option<Duration>) {
        let at = deadline.map_or(u64::MAX, |d| d.as_nanos() as u64);
        if at < self.armed.load(Ordering::Acquire) {
            self.armed.store(at, Ordering::Release);
            self.rearm.notify_one();
        }
    }
}

/// Brings time to the core, and keeps tickets fresh.
async fn keep_time(shared: Weak<Shared>) {
    let second = Duration::from_secs(1);
    let Some(mut next_second) = shared.upgrade().map(|s| s.messenger.now().mono + second) else { return };
    loop {
        let Some(s) = shared.upgrade() else { return };
        if s.down.load(Ordering::Acquire) {
            return;
        }
        let now = s.messenger.now().mono;
        if next_second <= now {
            next_second = now + second;
            s.session.tick();
        }
        if s.armed.load(Ordering::Acquire) <= now.as_nanos() as u64 {
            // The core arms it again.
            s.armed.store(u64::MAX, Ordering::Release);
            s.hand_in(Event::Tick);
        }
        let armed = Duration::from_nanos(s.armed.load(Ordering::Acquire));
        let wait = armed.min(next_second).saturating_sub(s.messenger.now().mono);
        let rearmed = s.rearm.notified();
        tokio::select! {
            () = rearmed => {}
            () = tokio::time::sleep(wait) => {}
        }
    }
}

/// Writes what was queued while many requests are under way.
async fn flush_later(wake: Arc<Notify>, shared: Weak<Shared>) {
    loop {
        wake.notified().await;
        let Some(s) = shared.upgrade() else { return };
        if s.down.load(Ordering::Acquire) {
            return;
        }
        if let Some(owner) = s.owner.get() {
            owner.with(Shell::flush);
        }
    }
}

impl Machine for Shell {
    type Input = Event;

    fn apply(&mut self, inputs: &mut Vec<Event>) {
        for event in inputs.drain(..) {
            self.event(event);
            self.carry_out();
        }
        let Some(shared) = self.shared.upgrade() else { return };
        if self.waiters.len() <= FEW {
            self.flush();
        } else if !self.dirty.is_empty() {
            shared.flush.notify_one();
        }
        shared.arm(self.objecter.deadline());
    }
}

impl Shell {
    fn flush(&mut self) {
        for conn in self.dirty.drain(..) {
            self.messenger.flush(conn);
        }
    }

    fn event(&mut self, event: Event) {
        let now = self.messenger.now();
        let out = &mut self.effects;
        let input = match event {
            // Nobody is told: the waiter is dropped, which says it.
            Event::Submit(..) if self.down => return,
            Event::Submit(ticket, request, waiter) => {
                if !matches!(waiter, Waiter::Nobody) {
                    self.waiters.insert(ticket, waiter);
                }
                Input::Submit(ticket, request)
            }
            Event::Cancel(ticket, errno) => Input::Cancel(ticket, errno),
            Event::Ready(Side::Mon) => Input::MonReady,
            Event::Gone(Side::Mon) => Input::MonGone,
            Event::Message { from: Side::Mon, tid, msg } => Input::FromMon { tid, msg },
            Event::Ready(Side::Service(conn)) => match self.conns.get(&conn) {
                Some(session) => Input::SessionReady(*session),
                None => return,
            },
            Event::Gone(Side::Service(conn)) => match self.conns.remove(&conn) {
                Some(session) => {
                    self.sessions.remove(&session);
                    Input::SessionGone(session)
                }
                None => return,
            },
            Event::Message { from: Side::Service(conn), tid, msg } => match self.conns.get(&conn) {
                Some(session) => Input::FromSession { session: *session, tid, msg },
                None => return,
            },
            Event::DropWatch(cookie) => {
                self.watches.remove(&cookie);
                return;
            }
            Event::Tick => Input::Tick,
            Event::ShutDown => {
                self.down = true;
                self.waiters.clear();
                self.watches.clear();
                return;
            }
        };
        self.objecter.handle(now, input, out);
    }

    fn carry_out(&mut self) {
        let mut effects = std::mem::take(&mut self.effects);
        for effect in effects.drain(..) {
            match effect {
                Effect::Send { session, tid, msg } => {
                    if let Some(conn) = self.sessions.get(&session) {
                        self.messenger.queue(*conn, msg.into_wire(tid));
                        if !self.dirty.contains(conn) {
                            self.dirty.push(*conn);
                        }
                    }
                }
                Effect::Done(ticket, outcome) => self.done(ticket, outcome),
                Effect::Watch { cookie, event } => {
                    if let Some(queue) = self.watches.get(&cookie) {
                        queue.push(event);
                    }
                }
                other => self.carry_out_rare(other),
            }
        }
        self.effects = effects;
    }

    fn carry_out_rare(&mut self, effect: Effect) {
        let Some(shared) = self.shared.upgrade() else { return };
        match effect {
            Effect::SendMon { tid, msg } => shared.session.send_as(msg, tid),
            Effect::Open { session, peer, addrs } => self.open(&shared, session, peer, addrs),
            Effect::Close(session) => {
                if let Some(conn) = self.sessions.remove(&session) {
                    self.conns.remove(&conn);
                    self.messenger.close(conn);
                }
            }
            Effect::NewMap(map) => {
                *shared.map.write().unwrap_or_else(PoisonError::into_inner) = map;
                shared.news.notify_waiters();
                shared.tell_osd_map(shared.map().epoch);
            }
            Effect::NewMonMap(map) => {
                shared.session.follow(&map);
            }
            Effect::Send { .. } | Effect::Done(..) | Effect::Watch { .. } => {}
        }
    }

    fn done(&mut self, ticket: Ticket, outcome: Outcome) {
        match self.waiters.remove(&ticket) {
            Some(Waiter::Outcome(tx)) => drop(tx.send(outcome)),
            Some(Waiter::Watch(tx, queue)) => {
                if let Outcome::Watching { cookie } = &outcome {
                    self.watches.insert(*cookie, queue);
                }
                drop(tx.send(outcome));
            }
            Some(Waiter::Call(done)) => done(outcome),
            Some(Waiter::Nobody) | None => {}
        }
    }

    fn open(&mut self, shared: &Arc<Shared>, session: SessionId, service: ServicePeer, addrs: AddrVec) {
        let (name, kind) = match service {
            ServicePeer::Osd(osd) => (EntityName::osd(osd), EntityType::Osd),
            ServicePeer::Mgr => (EntityName::new(EntityType::Mgr, -1), EntityType::Mgr),
        };
        // Without a msgr2 address the attempt fails, and a later map may name one.
        let addr = addrs.msgr2().unwrap_or_default();
        let auth = Arc::clone(&shared.auth);
        let factory = Arc::new(move || auth.to_service(kind));
        let peer = Peer { name, addrs };
        let policy = Policy::lossy_client();
        let to = ConnectTo { peer, addr, policy, auth: factory, from: None };
        let conn = self.messenger.connect(to);
        self.conns.insert(conn, session);
        self.sessions.insert(session, conn);
    }
}

/// Hears the messenger. It must not keep the client alive, for the messenger keeps it.
struct Ears(Weak<Shared>);

impl Handler for Ears {
    fn authenticate(&self, _: ConnId, _: u8, _: EntityAddr, _: AuthInput) -> AuthStep {
        // Nobody connects to a client.
        AuthStep::Bad { errno: Errno::EOPNOTSUPP.0, methods: vec![], modes: vec![] }
    }

    fn accept_policy(&self, _: types::EntityType) -> Policy {
        Policy::stateless_server()
    }

    fn ready(&self, conn: ConnId, _: PeerReady) {
        let Some(shared) = self.0.upgrade() else { return };
        let side = shared.side(conn);
        if matches!(side, Side::Mon) {
            // OSDs know us by the number that the monitor gave us.
            let name = EntityName::client(shared.auth.global_id().0 as i64);
            shared.messenger.set_local(Local { name, addrs: AddrVec::default() });
            shared.session.on_ready();
        }
        shared.hand_in(Event::Ready(side));
        if let (Side::Mon, Some(companion)) = (side, shared.beside.get()) {
            companion.mon_ready();
        }
    }

    fn messages(&self, conn: ConnId, batch: &mut Vec<WireMessage>) {
        let Some(shared) = self.0.upgrade() else { return };
        let from = shared.side(conn);
        let companion = shared.beside.owner_of(conn);
        let mut events = Vec::with_capacity(batch.len());
        for wire in batch.drain(..) {
            let tid = wire.header.tid;
            let msg = match Message::decode(&wire) {
                Ok(msg) => msg,
                Err(error) => {
                    tracing::warn!("a message of type {} cannot be read: {error}", wire.header.ty);
                    continue;
                }
            };
            if let Some(companion) = &companion {
                companion.message(conn, tid, msg);
                continue;
            }
            let msg = match from {
                Side::Mon => shared.session.on_message(msg).and_then(|m| for_companion(&shared, m)),
                Side::Service(_) => Some(msg),
            };
            events.extend(msg.map(|msg| Event::Message { from, tid, msg }));
        }
        if let Some(owner) = shared.owner.get() {
            owner.submit_all(&mut events);
        }
    }

    fn reset(&self, conn: ConnId) {
        let companion = self.0.upgrade().and_then(|shared| shared.beside.owner_of(conn));
        if let Some(companion) = companion {
            companion.reset(conn);
        }
    }

    fn gone(&self, conn: ConnId, why: Gone) {
        let Some(shared) = self.0.upgrade() else { return };
        tracing::debug!("{conn} is gone: {why:?}");
        let side = shared.side(conn);
        shared.hand_in(Event::Gone(side));
        if matches!(side, Side::Mon) {
            shared.session.on_gone();
            shared.news.notify_waiters();
        }
    }
}

/// Maps of file systems are the companion's.
fn for_companion(shared: &Shared, msg: Message) -> Option<Message> {
    match msg {
        Message::MdsMap(_) | Message::FsMapUser(_) => {
            if let Some(companion) = shared.beside.get() {
                companion.mon_message(msg);
            }
            None
        }
        other => Some(other),
    }
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
