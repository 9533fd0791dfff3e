//! The messenger: listens, accepts, connects, and drives every link.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use bytes::BytesMut;
use messages::wire::WireMessage;
use msgr::{
    Connection, Error, Event, Existing, Limits, Local, Parked, Phase, Resumable, Session, SessionRequest,
    Verdict, decide,
};
use tokio::net::{TcpListener, TcpStream};
use types::{AddrVec, AuthName, ConnId, EntityAddr, EntityType, Entropy, Now};

use super::bounds::Bounds;
use super::budget::{Budget, Reading, SMALL_FRAME_BYTES};
use super::channel::Channel;
use super::connect::{self, ConnectTo, Ended};
use super::half_open::HalfOpen;
use super::link::{Flushed, Link};
use super::places::{Places, Seated};
use super::refusals::Refusals;
use super::unread::Unread;
use super::{AuthInput, AuthStep, Gate, Gone, Handler, PeerReady};
use crate::owner::lock;
use crate::{Clock, OsEntropy};

/// Cheap to clone; all clones are one messenger.
#[derive(Clone)]
pub struct Messenger(Arc<Inner>);

struct Inner {
    local: Mutex<Local>,
    limits: Limits,
    clock: Clock,
    handler: OnceLock<Arc<dyn Handler>>,
    next_conn: AtomicU64,
    global_seq: AtomicU64,
    half_open: Mutex<HalfOpen>,
    places: Mutex<Places>,
    channels: Mutex<BTreeMap<ConnId, Arc<Channel>>>,
    resumable: Mutex<Resumable>,
    refusals: Mutex<Refusals>,
    runtime: tokio::runtime::Handle,
    down: AtomicBool,
    /// Tells the tasks that accept connections that this messenger was shut down.
    downed: tokio::sync::Notify,
    /// The nonce in the address of a process that does not listen; see `client_addrs`.
    nonce: u32,
    /// What `client_addrs` gives since it was learned; empty before.
    stated: Mutex<AddrVec>,
    gate: Gate,
    /// Memory for clients' large frames that are not whole yet.
    frames: Arc<Budget>,
    /// Answers that clients have not read yet.
    unread: Arc<Unread>,
    bounds: Bounds,
}

impl Messenger {
    /// Must be called within the runtime that carries the connections.
    pub fn new(local: Local, limits: Limits, clock: Clock) -> Self {
        Self::bounded(local, limits, Bounds::default(), clock)
    }

    /// As `new`, with other bounds than the usual ones.
    pub fn bounded(local: Local, limits: Limits, bounds: Bounds, clock: Clock) -> Self {
        Self(Arc::new(Inner {
            local: Mutex::new(local),
            limits,
            clock,
            handler: OnceLock::new(),
            next_conn: AtomicU64::new(1),
            // Larger than that of an earlier process at the same address.
            global_seq: AtomicU64::new(clock.now().wall.as_nanos()),
            half_open: Mutex::new(HalfOpen::new(bounds.half_open)),
            places: Mutex::new(Places::new(bounds.client_conns)),
            channels: Mutex::new(BTreeMap::new()),
            resumable: Mutex::default(),
            refusals: Mutex::default(),
            runtime: tokio::runtime::Handle::current(),
            down: AtomicBool::new(false),
            downed: tokio::sync::Notify::new(),
            nonce: OsEntropy.next_u64() as u32,
            stated: Mutex::default(),
            gate: Gate::default(),
            frames: Budget::new(bounds.frames_bytes),
            unread: Arc::default(),
            bounds,
        }))
    }

    /// While this gate is closed, nothing is read from peers that `Handler::is_gated` names.
    pub fn gate(&self) -> &Gate {
        &self.0.gate
    }

    /// Stops reading from one gated peer; with `hold` false, reading goes on. Other peers are not affected.
    pub fn hold(&self, conn: ConnId, hold: bool) {
        if let Some(channel) = self.channel(conn) {
            channel.gate.hold(hold);
        }
    }

    /// Waits until both the messenger's gate and the channel's own are open.
    async fn pass(&self, channel: &Channel) {
        self.gate().pass().await;
        channel.gate.pass().await;
    }

    /// Sets the handler of all connections. Call it once, before the first connection; a second call panics.
    pub fn set_handler(&self, handler: Arc<dyn Handler>) {
        assert!(self.0.handler.set(handler).is_ok(), "the handler is set once");
    }

    /// Binds to `at` and accepts connections from now on. Returns our address, with the port that the kernel
    /// chose if `at` has port 0, and states it to all peers.
    pub async fn listen(&self, at: SocketAddr, nonce: u32) -> std::io::Result<EntityAddr> {
        let addr = self.listen_also(at, nonce).await?;
        lock(&self.0.local).addrs = AddrVec::single(addr);
        Ok(addr)
    }

    /// Accepts connections at a further address as well. Only peers that connect there are told that it is
    /// ours.
    pub async fn listen_also(&self, at: SocketAddr, nonce: u32) -> std::io::Result<EntityAddr> {
        let listener = TcpListener::bind(at).await?;
        let addr = EntityAddr::v2(listener.local_addr()?, nonce);
        let messenger = self.clone();
        self.0.runtime.spawn(async move { messenger.accept_all(listener, AddrVec::single(addr)).await });
        Ok(addr)
    }

    /// Opens a channel. Messages may be sent at once; they wait until the session stands.
    pub fn connect(&self, to: ConnectTo) -> ConnId {
        let id = self.next_conn();
        if self.is_down() {
            return id;
        }
        let channel = Arc::new(connect::new_channel(id, &to, self.random(), self.now()));
        lock(&self.0.channels).insert(id, Arc::clone(&channel));
        self.0.runtime.spawn(connect::run(self.clone(), to, channel));
        id
    }

    /// Queues a message on the channel; `flush` sends it. Dropped when the channel is over.
    pub fn queue(&self, conn: ConnId, msg: WireMessage) {
        if let Some(channel) = self.channel(conn) {
            channel.send(msg);
        }
    }

    /// Writes what is queued on the channel, as far as its socket takes it now.
    pub fn flush(&self, conn: ConnId) {
        if let Some(link) = self.channel(conn).and_then(|c| c.link()) {
            link.flush_from_outside();
            self.relieve();
        }
    }

    /// `queue` and `flush`.
    pub fn send(&self, conn: ConnId, msg: WireMessage) {
        if let Some(link) = self.channel(conn).and_then(|c| c.send(msg)) {
            link.flush_from_outside();
            self.relieve();
        }
    }

    /// Whether a client has left so many bytes of answers unread that the messenger reads nothing from it.
    pub fn has_much_unread(&self, conn: ConnId) -> bool {
        let link = self.channel(conn).and_then(|c| c.link());
        link.is_some_and(|link| self.is_much(&link))
    }

    /// Bytes of answers that may be added to what clients have not read yet before one of them is cut off.
    pub fn room_for_answers(&self) -> u64 {
        self.0.bounds.unread_bytes.saturating_sub(self.0.unread.total())
    }

    fn is_much(&self, link: &Link) -> bool {
        let bounds = &self.0.bounds;
        link.has_much_unread(bounds.unread_bytes, bounds.unread_pause_bytes)
    }

    /// Closes clients' connections until the unread answers of all are within the bound: each time the
    /// fullest connection of the entity that has left most unread.
    fn relieve(&self) {
        while self.0.unread.total() > self.0.bounds.unread_bytes {
            let channels: Vec<_> = lock(&self.0.channels).values().cloned().collect();
            let links = channels.iter().filter_map(|c| c.link()).filter(|link| link.unread() > 0);
            match links.max_by_key(|link| (link.unread_of_entity(), link.unread())) {
                Some(fullest) => fullest.give_up(),
                // Another thread has closed the last of them, and its bytes are about to leave the sum.
                None => return,
            }
        }
    }

    /// How long ago the peer was last heard; `None` when no TCP connection carries the channel.
    pub fn silent(&self, conn: ConnId) -> Option<Duration> {
        let link = self.channel(conn)?.link()?;
        Some(self.now().mono.saturating_sub(link.with(|m| m.heard_at())))
    }

    /// Sends the peer a keepalive, unless an earlier one is unanswered.
    pub fn ask_for_life(&self, conn: ConnId) {
        if let Some(link) = self.channel(conn).and_then(|c| c.link()) {
            let now = self.now();
            link.with(|m| {
                if !m.awaits_keepalive() {
                    m.send_keepalive(now);
                }
            });
            link.wake();
        }
    }

    /// Ends the channel. `Handler::gone` is not called for it.
    pub fn close(&self, conn: ConnId) {
        self.end(conn);
    }

    /// Ends the channel, and tells the handler as of any other end; nothing if it has ended already.
    pub fn give_up(&self, conn: ConnId, why: &str) {
        if self.end(conn) {
            self.handler().gone(conn, Gone::Lost(why.into()));
        }
    }

    /// Whether there was such a channel.
    fn end(&self, conn: ConnId) -> bool {
        let Some(channel) = lock(&self.0.channels).remove(&conn) else { return false };
        lock(&self.0.places).leave(conn);
        lock(&self.0.resumable).remove(conn);
        if let Some(link) = channel.end() {
            link.with(|m| m.refuse(types::Errno::ECANCELED.0));
            link.wake();
        }
        true
    }

    /// Closes everything; nothing is accepted or connected from now on.
    pub fn shut_down(&self) {
        self.0.down.store(true, Ordering::Release);
        self.0.downed.notify_waiters();
        let all: Vec<ConnId> = lock(&self.0.channels).keys().copied().collect();
        all.into_iter().for_each(|conn| self.close(conn));
    }

    pub(crate) fn is_down(&self) -> bool {
        self.0.down.load(Ordering::Acquire)
    }

    /// The answer to an `AuthInput` that was `Pending`.
    pub fn answer_auth(&self, conn: ConnId, step: AuthStep) {
        if let Some(channel) = self.channel(conn) {
            if let Some(link) = channel.link() {
                self.apply_auth(&channel, &link, step);
                link.wake();
            }
        }
    }

    /// The address at the other end: where the peer connected from, or what was connected to. `None` for a
    /// channel that is gone.
    pub fn peer_addr(&self, conn: ConnId) -> Option<EntityAddr> {
        self.channel(conn).map(|c| c.peer_addr())
    }

    /// Sets the name and addresses that later connections state.
    pub fn set_local(&self, local: Local) {
        *lock(&self.0.local) = local;
    }

    pub fn local(&self) -> Local {
        lock(&self.0.local).clone()
    }

    /// The runtime that carries the connections, for callers that run outside of it.
    pub fn runtime(&self) -> &tokio::runtime::Handle {
        &self.0.runtime
    }

    pub fn now(&self) -> Now {
        self.0.clock.now()
    }

    /// Forgets accepted lossless sessions whose peers have not come back, as `msgr::surplus` decides, and
    /// tells the handler. With a session, messages that its peer has not received are lost: where `keep`
    /// holds for the peer's addresses, a session goes only when all together hold too many bytes. Call it
    /// regularly.
    pub fn sweep(&self, keep: impl Fn(&AddrVec) -> bool) {
        codec::spare::age();
        let held = lock(&self.0.resumable).all();
        let parked = held.into_iter().filter_map(|(entity, at, conn)| {
            let (since, bytes) = self.channel(conn)?.waits()?;
            Some(Parked { conn, entity, since, bytes, keep: keep(&at) })
        });
        let stale = msgr::surplus(parked.collect(), self.now().mono);
        for id in stale {
            self.give_up(id, "did not come back");
        }
    }

    /// The address that a process which does not listen states: its own as the first peer saw it, without a
    /// port, and a number that tells it from others on the host. Every peer gets the same one, also where the
    /// route to it begins elsewhere: a blocklist shuts the process out of all of them by this address. `None`
    /// for one that listens.
    ///
    /// Source: AsyncMessenger::learned_addr.
    pub(super) fn client_addrs(&self, seen: EntityAddr) -> Option<AddrVec> {
        if !lock(&self.0.local).addrs.is_empty() {
            return None;
        }
        let socket = SocketAddr::new(seen.socket?.ip(), 0);
        let mut stated = lock(&self.0.stated);
        if stated.is_empty() {
            *stated = AddrVec::single(EntityAddr::v2(socket, self.0.nonce));
        }
        Some(stated.clone())
    }

    /// What a process that does not listen states as its address; empty before a peer was reached.
    pub fn stated(&self) -> AddrVec {
        lock(&self.0.stated).clone()
    }

    pub(super) fn handler(&self) -> &dyn Handler {
        self.0.handler.get().expect("the handler is set before connections exist").as_ref()
    }

    pub(super) fn limits(&self) -> &Limits {
        &self.0.limits
    }

    /// A random number, never 0: cookies of 0 mean that there is none.
    pub(super) fn random(&self) -> u64 {
        OsEntropy.next_u64().max(1)
    }

    pub(super) fn next_global_seq(&self) -> u64 {
        self.0.global_seq.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// The next number, and larger than `known`, the one that a peer has seen from us.
    pub(super) fn global_seq_above(&self, known: u64) -> u64 {
        self.0.global_seq.fetch_max(known, Ordering::Relaxed);
        self.next_global_seq()
    }

    fn next_conn(&self) -> ConnId {
        ConnId(self.0.next_conn.fetch_add(1, Ordering::Relaxed))
    }

    fn channel(&self, conn: ConnId) -> Option<Arc<Channel>> {
        lock(&self.0.channels).get(&conn).cloned()
    }

    async fn accept_all(self, listener: TcpListener, ours: AddrVec) {
        loop {
            let downed = self.0.downed.notified();
            if self.is_down() {
                return;
            }
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                () = downed => return,
            };
            match accepted {
                Ok((stream, peer)) => {
                    let (messenger, ours) = (self.clone(), ours.clone());
                    self.0.runtime.spawn(async move { messenger.accepted(stream, peer, ours).await });
                }
                // Out of file descriptors: wait for some to come back instead of spinning.
                Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
            }
        }
    }

    async fn accepted(self, stream: TcpStream, peer: SocketAddr, ours: AddrVec) {
        let addr = EntityAddr { kind: types::AddrKind::Msgr2, nonce: 0, socket: Some(peer) };
        let local = Local { addrs: ours.clone(), ..self.local() };
        let machine = Connection::accept(self.now(), local, addr, self.0.limits.clone());
        let link = Arc::new(Link::new(stream, machine));
        let channel = Arc::new(Channel::with_link(self.next_conn(), Arc::clone(&link), addr));
        lock(&self.0.channels).insert(channel.id, Arc::clone(&channel));
        let crowded_out = lock(&self.0.half_open).admit(peer.ip(), channel.id);
        if let Some(conn) = crowded_out {
            self.give_up(conn, "too many connections do not prove who they are");
        }
        let entered = || lock(&self.0.half_open).remove(peer.ip(), channel.id);
        // The channel that carries on: after a resumption it is the older one.
        let mut carried = Arc::clone(&channel);
        let mut peer_type = 0;
        let mut open = true;
        let ended = self
            .drive(&channel, &link, |messenger, link, event| {
                // First: while it is given a session it must not be closed as one that proves nothing.
                if open && link.with(|m| m.is_authenticated()) {
                    open = false;
                    entered();
                }
                messenger.on_accept_event(link, &channel, &mut carried, &mut peer_type, &ours, event);
            })
            .await;
        entered();
        let resumable = lock(&self.0.resumable).contains(carried.id);
        if resumable && (carried.park(&link, self.now().mono) || !carried.is_over()) {
            return;
        }
        self.end_channel(carried.id, ended);
    }

    /// Answers an accepted connection's questions: how its peer authenticates, and which session it gets.
    fn on_accept_event(
        &self,
        link: &Arc<Link>,
        own: &Arc<Channel>,
        carried: &mut Arc<Channel>,
        peer_type: &mut u8,
        ours: &AddrVec,
        event: Event,
    ) {
        let input = match event {
            Event::Hello { entity_type, .. } => {
                *peer_type = entity_type;
                return;
            }
            Event::AuthRequest { method, preferred_modes, payload } => {
                if let Ok(login) = cephx::LoginRequest::parse(&payload) {
                    own.set_claim(login.name);
                }
                AuthInput::Request { method, preferred_modes, payload }
            }
            Event::AuthRequestMore { payload } => AuthInput::More { payload },
            Event::SessionRequest(request) => {
                return self.on_session(link, own, carried, *peer_type, ours, &request);
            }
            _ => return,
        };
        let step = self.handler().authenticate(own.id, *peer_type, own.peer_addr(), input);
        self.apply_auth(own, link, step);
    }

    fn on_session(
        &self,
        link: &Arc<Link>,
        own: &Arc<Channel>,
        carried: &mut Arc<Channel>,
        peer_type: u8,
        ours: &AddrVec,
        request: &SessionRequest,
    ) {
        let Some(kind) = proven_kind(own, peer_type, request) else {
            self.note_refusal(own, "it claims to be a daemon that its key is not of");
            return link.with(|m| m.refuse(types::Errno::EACCES.0));
        };
        if !self.has_place(own) {
            self.note_refusal(own, "it has too many connections");
            return link.with(|m| m.refuse(types::Errno::EBUSY.0));
        }
        let policy = request.policy(self.handler().accept_policy(kind));
        let addrs = request.addrs().clone();
        // Only the entity that opened a session may resume it.
        let entity = own.identity().map(|i| i.name).unwrap_or_default();
        let held = lock(&self.0.resumable).of(&entity, &addrs).and_then(|id| self.channel(id));
        let judge = |existing: Option<Existing<'_>>| decide(ours, &policy, request, existing);
        let verdict = held
            .as_ref()
            .and_then(|c| {
                c.with_session(|session, ready| {
                    let phase = if ready { Phase::Ready } else { Phase::Standby };
                    judge(Some(Existing { session, phase }))
                })
            })
            .unwrap_or_else(|| judge(None));
        match verdict {
            Verdict::Fresh { close_existing } => {
                if close_existing {
                    self.forget(held);
                }
                self.accept_new(link, own, policy, addrs);
            }
            Verdict::Take { reset: true } => {
                self.forget(held);
                self.accept_new(link, own, policy, addrs);
            }
            Verdict::Take { reset: false } => self.take_over(link, own, carried, held, policy, addrs),
            Verdict::Answer(answer) => link.with(|m| m.answer_session(answer)),
            Verdict::Close(error) => {
                self.note_refusal(own, &error.to_string());
                link.with(|m| m.refuse(types::Errno::EACCES.0));
            }
        }
    }

    /// Whether this connection has a place among those of its entity (see `places`). Another may be closed
    /// for it.
    fn has_place(&self, own: &Channel) -> bool {
        let Some(identity) = own.identity() else { return false };
        if !identity.has_share() {
            let same = |c: &&Arc<Channel>| c.identity().is_some_and(|i| i.name == identity.name);
            return lock(&self.0.channels).values().filter(same).count() <= self.0.bounds.daemon_conns;
        }
        let seated = lock(&self.0.places).take(&identity.name, own.id);
        if !lock(&self.0.channels).contains_key(&own.id) {
            // It has ended meanwhile, and has left its place already.
            lock(&self.0.places).leave(own.id);
        }
        if let Seated::InsteadOf(conn) = seated {
            self.give_up(conn, "its entity has too many connections");
        }
        seated != Seated::Refused
    }

    fn accept_new(&self, link: &Link, own: &Arc<Channel>, policy: msgr::Policy, addrs: AddrVec) {
        if !policy.lossy {
            let entity = own.identity().map(|i| i.name).unwrap_or_default();
            let before = lock(&self.0.resumable).insert(entity, addrs, own.id);
            self.forget(before.and_then(|id| self.channel(id)));
        }
        let (seq, cookie) = (self.next_global_seq(), self.random());
        link.with(|m| m.accept_session(Session::incoming(policy), seq, cookie));
    }

    /// Carries the found session on with the new connection, under the channel's old id.
    fn take_over(
        &self,
        link: &Arc<Link>,
        own: &Arc<Channel>,
        carried: &mut Arc<Channel>,
        held: Option<Arc<Channel>>,
        policy: msgr::Policy,
        addrs: AddrVec,
    ) {
        let Some(held) = held else { return self.accept_new(link, own, policy, addrs) };
        let (seq, cookie) = (self.next_global_seq(), self.random());
        let old = held.link();
        let _turn = old.as_ref().map(|l| l.turn());
        let taken = held.move_session(|session| {
            link.with(|m| m.accept_session(session, seq, cookie));
            Arc::clone(link)
        });
        if taken.is_none() {
            return self.accept_new(link, own, policy, addrs);
        }
        own.end();
        lock(&self.0.channels).remove(&own.id);
        // The session has kept the place that it had.
        lock(&self.0.places).leave(own.id);
        *carried = held;
    }

    fn forget(&self, held: Option<Arc<Channel>>) {
        if let Some(held) = held {
            self.give_up(held.id, "the peer started over");
        }
    }

    /// Ends a channel whose connection is over, and tells the handler if it had heard of it.
    pub(super) fn end_channel(&self, id: ConnId, ended: Ended) {
        let Some(channel) = lock(&self.0.channels).remove(&id) else { return };
        lock(&self.0.places).leave(id);
        lock(&self.0.resumable).remove(id);
        channel.end();
        self.handler().gone(id, ended.why);
    }

    /// Carries a link until it is over. `on_pause` answers the machine's questions.
    pub(super) async fn drive(
        &self,
        channel: &Arc<Channel>,
        link: &Arc<Link>,
        mut on_pause: impl FnMut(&Self, &Arc<Link>, Event),
    ) -> Ended {
        let mut pump = Pump::new(channel.id);
        let mut reading = Reading::Free;
        let mut buf = BytesMut::with_capacity(self.0.limits.read_bytes);
        let sleep = tokio::time::sleep(Duration::from_secs(1));
        tokio::pin!(sleep);
        loop {
            pump.catch_up(self, channel, link, &mut on_pause);
            let flushed = link.flush();
            self.relieve();
            if let Some(why) = pump.over.take() {
                return Ended { why, was_ready: pump.was_ready };
            }
            if flushed == Flushed::Over {
                pump.catch_up(self, channel, link, &mut on_pause);
                let why = pump.over.take().unwrap_or_else(|| Gone::Lost(link.failure().into()));
                return Ended { why, was_ready: pump.was_ready };
            }
            // A held peer that has closed its connection is read to the end. Little is left to read, and the
            // requests of the peer keep their share of the memory until its end is seen.
            let is_held = pump.gated && !(self.gate().is_open() && channel.gate.is_open());
            let closed = is_held && !link.is_hung_up();
            if reading.is_waiting() && link.is_hung_up() {
                let why = Gone::Lost("closed in the middle of a frame".into());
                return Ended { why, was_ready: pump.was_ready };
            }
            let is_full = self.is_much(link) && !link.is_hung_up();
            let unread_since = (closed || reading.is_waiting()).then(|| self.now().mono);
            let mut tick = false;
            tokio::select! {
                () = self.pass(channel), if closed => {}
                // The next round of the loop reads what the peer has left.
                () = link.hung_up(), if closed => {}
                lease = reading.granted(), if reading.is_waiting() => {
                    reading = Reading::Granted(lease);
                    link.with(|m| m.grant_frame(self.now(), &mut buf));
                }
                _ = link.stream().readable(), if !closed && !is_full && !reading.is_waiting() => {
                    let _turn = link.turn();
                    let read = link.read(self.now(), &mut buf, &mut pump.events);
                    pump.turn(self, channel, link, &mut on_pause);
                    match read {
                        Ok(grant) => reading.next(grant, &self.0.frames, pump.client.as_ref()),
                        Err(e) => {
                            return Ended { why: Gone::Lost(e.to_string()), was_ready: pump.was_ready };
                        }
                    }
                }
                _ = link.stream().writable(), if flushed == Flushed::Blocked => {}
                () = tokio::task::yield_now(), if flushed == Flushed::More => {}
                () = link.woken() => {}
                () = &mut sleep => {
                    tick = true;
                    sleep.as_mut().reset(tokio::time::Instant::now() + Duration::from_secs(1));
                }
            }
            if unread_since.is_some() || tick {
                note_time(link, self.now(), unread_since, tick);
            }
        }
    }
}

/// Tells the connection since when nothing was read from it, if so, and that it is time for its `tick`.
fn note_time(link: &Link, now: Now, unread_since: Option<Duration>, tick: bool) {
    link.with(|m| {
        unread_since.into_iter().for_each(|at| m.was_held(now.mono.saturating_sub(at)));
        if tick {
            m.tick(now);
        }
    });
}

/// Hands a link's events to the handler in order, messages in batches.
struct Pump {
    conn: ConnId,
    events: Vec<Event>,
    batch: Vec<WireMessage>,
    over: Option<Gone>,
    was_ready: bool,
    /// Whether nothing is read from the peer while the gate is closed.
    gated: bool,
    /// The peer's entity if it has a share (`Identity::has_share`): its large frames and unread answers count
    /// against bounds that all of these share.
    client: Option<AuthName>,
}

impl Pump {
    fn new(conn: ConnId) -> Self {
        Self {
            conn,
            events: Vec::new(),
            batch: Vec::new(),
            over: None,
            was_ready: false,
            gated: false,
            client: None,
        }
    }

    /// Works through what the link has to say now.
    fn catch_up(
        &mut self,
        messenger: &Messenger,
        channel: &Arc<Channel>,
        link: &Arc<Link>,
        on_pause: &mut impl FnMut(&Messenger, &Arc<Link>, Event),
    ) {
        let _turn = link.turn();
        link.poll_events(&mut self.events);
        self.turn(messenger, channel, link, on_pause);
    }

    fn turn(
        &mut self,
        messenger: &Messenger,
        channel: &Arc<Channel>,
        link: &Arc<Link>,
        on_pause: &mut impl FnMut(&Messenger, &Arc<Link>, Event),
    ) {
        while !self.events.is_empty() {
            let mut events = std::mem::take(&mut self.events);
            for event in events.drain(..) {
                match event {
                    Event::Message(msg) => self.batch.push(msg),
                    other => {
                        self.deliver(messenger);
                        self.other(messenger, channel, link, on_pause, other);
                    }
                }
            }
            self.deliver(messenger);
            self.events = events;
            link.poll_events(&mut self.events);
        }
    }

    fn deliver(&mut self, messenger: &Messenger) {
        if !self.batch.is_empty() {
            messenger.handler().messages(self.conn, &mut self.batch);
            self.batch.clear();
        }
    }

    fn other(
        &mut self,
        messenger: &Messenger,
        channel: &Arc<Channel>,
        link: &Arc<Link>,
        on_pause: &mut impl FnMut(&Messenger, &Arc<Link>, Event),
        event: Event,
    ) {
        match event {
            Event::Ready(ready) => {
                self.was_ready = true;
                // A resumed session goes on under the id that the handler knows.
                if let Some(id) = messenger.carrier_of(channel, link) {
                    self.conn = id;
                }
                if let Some(identity) = channel.identity().filter(|i| i.has_share()) {
                    link.with(|m| m.ask_above(SMALL_FRAME_BYTES));
                    link.count_unread_in(messenger.0.unread.share(&identity.name));
                    self.client = Some(identity.name);
                }
                if !ready.resumed {
                    // The first address stands for the peer. A client's has the client's nonce and kind
                    // "any".
                    let mut addrs = ready.peer.addrs.clone();
                    addrs.0.truncate(super::ADDRS_KEPT);
                    if addrs.0.first().is_none_or(|stated| stated.is_blank()) {
                        addrs = AddrVec::single(channel.peer_addr());
                    }
                    let addr = addrs.0.first().copied().unwrap_or_default();
                    let (name, features, identity) = (ready.peer.name, ready.features, channel.identity());
                    self.gated = identity.as_ref().is_some_and(|i| messenger.handler().is_gated(i.name.kind));
                    messenger.handler().ready(self.conn, PeerReady { name, addr, addrs, features, identity });
                    // Given up while it began: the handler was told of its end before its beginning.
                    if channel.is_accepted() && messenger.channel(self.conn).is_none() {
                        messenger.handler().gone(self.conn, Gone::Lost("ended as it began".into()));
                    }
                }
            }
            Event::Closed(error) => {
                // `note_refusal` was called already where the messenger refused the peer itself.
                if !self.was_ready && !matches!(error, Error::Refused(_) | Error::Replaced) {
                    messenger.note_refusal(channel, &error.to_string());
                }
                let why = match error {
                    Error::Replaced => Gone::Lost("replaced by a newer connection".into()),
                    other => Gone::Lost(other.to_string()),
                };
                self.over = Some(why);
            }
            Event::RemoteReset => messenger.handler().reset(self.conn),
            Event::KeepaliveAck(_) | Event::Message(_) => {}
            pausing => on_pause(messenger, link, pausing),
        }
    }
}

impl Messenger {
    fn apply_auth(&self, channel: &Channel, link: &Link, step: AuthStep) {
        match step {
            AuthStep::More(payload) => link.with(|m| m.auth_reply_more(payload)),
            AuthStep::Done { identity, mode, payload, session_key, connection_secret } => {
                let global_id = identity.global_id.0;
                channel.set_identity(identity);
                link.with(|m| m.auth_done(global_id, mode, payload, &session_key, &connection_secret));
            }
            AuthStep::Bad { errno, methods, modes } => {
                self.note_refusal(channel, &format!("authentication refused: {}", types::Errno(errno.abs())));
                let method = methods.first().copied().unwrap_or_default();
                link.with(|m| m.auth_bad_method(method, -errno.abs(), &methods, &modes));
            }
            AuthStep::Pending => {}
        }
    }

    /// Logs that a connecting peer was turned away.
    fn note_refusal(&self, channel: &Channel, why: &str) {
        let at = channel.peer_addr();
        let Some(socket) = at.socket.filter(|_| channel.is_accepted()) else { return };
        let Some(left_out) = lock(&self.0.refusals).note(self.now().mono, socket.ip()) else { return };
        let who = match (channel.identity(), channel.claim()) {
            (Some(proven), _) => proven.name.to_string(),
            (None, Some(claimed)) => format!("a peer that claims to be {claimed}"),
            (None, None) => "a peer".to_owned(),
        };
        let more =
            if left_out > 0 { format!(" ({left_out} lines left out before this)") } else { String::new() };
        // After a restart at either end daemons are refused in the ordinary course: no reason to warn.
        if channel.identity().is_some_and(|i| i.is_daemon()) {
            tracing::info!("turned away {who} at {socket}: {why}{more}");
        } else {
            tracing::warn!("turned away {who} at {socket}: {why}{more}");
        }
    }

    /// The id of the channel that this link carries: the one that it came with, unless it took up a session.
    fn carrier_of(&self, came_with: &Arc<Channel>, link: &Arc<Link>) -> Option<ConnId> {
        let carries = |c: &&Arc<Channel>| c.link().is_some_and(|l| Arc::ptr_eq(&l, link));
        if carries(&came_with) {
            return Some(came_with.id);
        }
        lock(&self.0.channels).values().find(carries).map(|c| c.id)
    }
}

#[cfg(test)]
impl Messenger {
    pub(super) fn frames_held(&self) -> u64 {
        self.0.frames.held()
    }

    pub(super) fn refusal_lines(&self) -> u32 {
        lock(&self.0.refusals).lines()
    }

    pub(super) fn unread(&self) -> u64 {
        self.0.unread.total()
    }

    pub(super) fn frames_waiting(&self) -> usize {
        self.0.frames.waiting()
    }
}

/// The kind of peer that decides how this one's session behaves. `None` when the peer calls itself a daemon
/// and has not proven to be that daemon.
///
/// A tool that uses a daemon's key calls itself a client and is treated as one: its session ends with its
/// connection.
fn proven_kind(own: &Channel, peer_type: u8, request: &SessionRequest) -> Option<EntityType> {
    let said = EntityType::from_u8(peer_type).unwrap_or(EntityType::Client);
    let proven = own.identity()?;
    if said == EntityType::Client || said == EntityType::Any {
        return Some(EntityType::Client);
    }
    let is_its_number = match request {
        SessionRequest::Open(ident) if said == EntityType::Osd => ident.gid.to_string() == proven.name.id,
        _ => true,
    };
    (said == proven.name.kind && is_its_number).then_some(said)
}
