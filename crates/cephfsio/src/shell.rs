//! The shell around the core: who waits for what, connections, objects, time.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use cephfs::{Answer, Call, Client, Effect, Input, SessionId, Settings, Ticket};
use messages::Message;
use rados::{Cluster, Companion};
use runtime::{Machine, Owner};
use tokio::sync::{Notify, oneshot};
use types::{ConnId, EntityType, Epoch, Errno};

pub(crate) type Waiter = oneshot::Sender<Result<Answer, Errno>>;

pub(crate) enum Event {
    Submit(Ticket, Call, Option<Waiter>),
    /// Nobody waits for it any more.
    GiveUp(Ticket),
    Core(Input),
    Reset(ConnId),
    Message(ConnId, u64, Message),
}

/// What the tasks of a mount share.
pub(crate) struct Shared {
    pub(crate) cluster: Cluster,
    owner: OnceLock<Owner<Shell>>,
    last_ticket: AtomicU64,
    /// Nanoseconds of monotonic time at which the timer task wakes up.
    armed: AtomicU64,
    rearm: Notify,
    is_down: AtomicBool,
}

/// The core with its tables, owned by whoever brings an event.
pub(crate) struct Shell {
    client: Client,
    shared: Weak<Shared>,
    effects: Vec<Effect>,
    waiters: HashMap<Ticket, Waiter>,
    conns: HashMap<ConnId, SessionId>,
    sessions: HashMap<SessionId, ConnId>,
}

impl Shared {
    pub(crate) fn start(cluster: Cluster, settings: Settings) -> Arc<Self> {
        let shared = Arc::new(Self {
            cluster,
            owner: OnceLock::new(),
            last_ticket: AtomicU64::new(0),
            armed: AtomicU64::new(u64::MAX),
            rearm: Notify::new(),
            is_down: AtomicBool::new(false),
        });
        let shell = Shell {
            client: Client::new(settings),
            shared: Arc::downgrade(&shared),
            effects: Vec::new(),
            waiters: HashMap::new(),
            conns: HashMap::new(),
            sessions: HashMap::new(),
        };
        let _ = shared.owner.set(Owner::new(shell));
        tokio::spawn(keep_time(Arc::downgrade(&shared)));
        let companion: Arc<dyn Companion> = Arc::clone(&shared) as _;
        shared.cluster.set_companion(&companion);
        shared
    }

    pub(crate) fn hand_in(&self, event: Event) {
        if let Some(owner) = self.owner.get() {
            owner.submit(event);
        }
    }

    pub(crate) fn submit(&self, call: Call, waiter: Waiter) -> Ticket {
        let ticket = self.new_ticket();
        self.hand_in(Event::Submit(ticket, call, Some(waiter)));
        ticket
    }

    fn new_ticket(&self) -> Ticket {
        Ticket(self.last_ticket.fetch_add(1, Ordering::Relaxed) + 1)
    }

    pub(crate) fn shut_down(&self) {
        self.is_down.store(true, Ordering::Release);
        self.rearm.notify_one();
        if let Some(owner) = self.owner.get() {
            owner.with(|shell| {
                shell.waiters.clear();
                shell.conns.drain().for_each(|(conn, _)| self.cluster.companion_close(conn));
            });
        }
    }

    fn arm(&self, deadline: Option<Duration>) {
        let at = deadline.map_or(u64::MAX, |d| d.as_nanos() as u64);
        if at < self.armed.load(Ordering::Acquire) {
            self.armed.store(at, Ordering::Release);
            self.rearm.notify_one();
        }
    }
}

/// Brings time to the core.
async fn keep_time(shared: Weak<Shared>) {
    loop {
        let Some(s) = shared.upgrade() else { return };
        if s.is_down.load(Ordering::Acquire) {
            return;
        }
        let now = s.cluster.now().mono;
        if s.armed.load(Ordering::Acquire) <= now.as_nanos() as u64 {
            // The core arms it again.
            s.armed.store(u64::MAX, Ordering::Release);
            s.hand_in(Event::Core(Input::Tick));
        }
        let armed = Duration::from_nanos(s.armed.load(Ordering::Acquire));
        let wait = armed.saturating_sub(s.cluster.now().mono).min(Duration::from_secs(60));
        let rearmed = s.rearm.notified();
        tokio::select! {
            () = rearmed => {}
            () = tokio::time::sleep(wait) => {}
        }
    }
}

impl Machine for Shell {
    type Input = Event;

    fn apply(&mut self, inputs: &mut Vec<Event>) {
        let Some(shared) = self.shared.upgrade() else { return };
        for event in inputs.drain(..) {
            if let Some(input) = self.input(event) {
                self.client.handle(shared.cluster.now(), input, &mut self.effects);
                self.carry_out(&shared);
            }
        }
        shared.arm(self.client.deadline());
    }
}

impl Shell {
    /// Late events of connections that we closed belong to nobody.
    fn input(&mut self, event: Event) -> Option<Input> {
        Some(match event {
            Event::Submit(ticket, call, waiter) => {
                self.waiters.extend(waiter.map(|waiter| (ticket, waiter)));
                Input::Submit(ticket, call)
            }
            Event::GiveUp(ticket) => {
                self.waiters.remove(&ticket)?;
                Input::Cancel(ticket)
            }
            Event::Core(input) => input,
            Event::Reset(conn) => {
                let session = self.conns.remove(&conn)?;
                self.sessions.remove(&session);
                if let Some(shared) = self.shared.upgrade() {
                    shared.cluster.companion_close(conn);
                }
                Input::SessionGone(session)
            }
            Event::Message(conn, tid, msg) => {
                Input::FromSession { session: *self.conns.get(&conn)?, tid, msg }
            }
        })
    }

    fn carry_out(&mut self, shared: &Arc<Shared>) {
        let cluster = &shared.cluster;
        for effect in self.effects.drain(..) {
            match effect {
                Effect::SendMon(msg) => cluster.companion_send_mon(msg),
                Effect::Open { session, rank, addrs } => {
                    let conn = cluster.companion_connect(EntityType::Mds, rank.into(), addrs);
                    self.conns.insert(conn, session);
                    self.sessions.insert(session, conn);
                }
                Effect::Close(session) => {
                    if let Some(conn) = self.sessions.remove(&session) {
                        self.conns.remove(&conn);
                        cluster.companion_close(conn);
                    }
                }
                Effect::Send { session, tid, msg } => {
                    if let Some(conn) = self.sessions.get(&session) {
                        cluster.companion_send(*conn, tid, msg);
                    }
                }
                Effect::Object(ticket, request) => {
                    let shared = Arc::downgrade(shared);
                    cluster.companion_submit(*request, move |result| {
                        if let Some(shared) = shared.upgrade() {
                            shared.hand_in(Event::Core(Input::ObjectDone(ticket, result)));
                        }
                    });
                }
                Effect::NeedOsdMap(epoch) => cluster.companion_need_map(epoch),
                Effect::Done(ticket, result) => {
                    let unheard = match self.waiters.remove(&ticket) {
                        Some(waiter) => waiter.send(result).err(),
                        None => Some(result),
                    };
                    if let Some(Ok(Answer::Opened { handle, .. })) = unheard {
                        shared.hand_in(Event::Submit(shared.new_ticket(), Call::Close { handle }, None));
                    }
                }
            }
        }
    }
}

impl Companion for Shared {
    fn mon_ready(&self) {
        self.hand_in(Event::Core(Input::MonReady));
    }

    fn mon_message(&self, msg: Message) {
        self.hand_in(Event::Core(Input::FromMon(msg)));
    }

    fn osd_map(&self, epoch: Epoch) {
        self.hand_in(Event::Core(Input::OsdMap(epoch)));
    }

    fn reset(&self, conn: ConnId) {
        self.hand_in(Event::Reset(conn));
    }

    fn message(&self, conn: ConnId, tid: u64, msg: Message) {
        self.hand_in(Event::Message(conn, tid, msg));
    }
}
