//! For tests: a messenger that believes what peers say of themselves, and a peer whose every byte the test
//! decides.

use std::sync::{Arc, Mutex};

use bytes::{Bytes, BytesMut};
use messages::wire::{Header, WireMessage};
use msgr::{ConMode, Connection, Event, Limits, Local, Peer, Policy, Session};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::sync::Notify;
use types::{AddrVec, AuthName, ConnId, EntityAddr, EntityName, EntityType, GlobalId, Now};

use super::connect::{ClientAuth, Established};
use super::{AuthInput, AuthStep, Bounds, Gone, Handler, Identity, Messenger, PeerReady};
use crate::Clock;
use crate::owner::lock;

/// What a handler was told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Told {
    Ready(ConnId, AuthName),
    Message(ConnId, usize),
    Reset(ConnId),
    Gone(ConnId, String),
}

/// A messenger that listens at loopback, and everything that its handler was told.
pub(super) struct Server {
    pub messenger: Messenger,
    pub at: EntityAddr,
    ear: Arc<Ear>,
}

#[derive(Default)]
struct Ear {
    told: Mutex<Vec<Told>>,
    more: Notify,
    /// Every message is answered with one of so many bytes.
    reply_bytes: usize,
    messenger: std::sync::OnceLock<Messenger>,
    /// Runs once, while the next session is decided upon, with the connection that asks for it.
    at_session: Mutex<Option<AtSession>>,
    /// The connection that has authenticated last.
    last: Mutex<ConnId>,
}

type AtSession = Box<dyn FnOnce(ConnId) + Send>;

impl Ear {
    fn note(&self, told: Told) {
        lock(&self.told).push(told);
        self.more.notify_waiters();
    }
}

impl Handler for Ear {
    /// The payload is the name.
    fn authenticate(&self, conn: ConnId, _: u8, _: EntityAddr, input: AuthInput) -> AuthStep {
        let AuthInput::Request { payload, .. } = input else { return AuthStep::Pending };
        let name = AuthName::parse(&String::from_utf8_lossy(&payload));
        let Some(name) = name else { return AuthStep::Pending };
        *lock(&self.last) = conn;
        AuthStep::Done {
            identity: Identity { name, global_id: GlobalId(conn.0), caps: Default::default() },
            mode: ConMode::Crc,
            payload: Bytes::new(),
            session_key: Default::default(),
            connection_secret: Default::default(),
        }
    }

    fn accept_policy(&self, kind: EntityType) -> Policy {
        if let Some(run) = lock(&self.at_session).take() {
            run(*lock(&self.last));
        }
        match kind {
            EntityType::Osd => Policy::stateful_server(),
            _ => Policy::stateless_server(),
        }
    }

    fn ready(&self, conn: ConnId, peer: PeerReady) {
        if let Some(identity) = peer.identity {
            self.note(Told::Ready(conn, identity.name));
        }
    }

    fn is_gated(&self, kind: EntityType) -> bool {
        kind == EntityType::Client
    }

    fn messages(&self, conn: ConnId, batch: &mut Vec<WireMessage>) {
        for msg in batch.drain(..) {
            self.note(Told::Message(conn, msg.data.len()));
            if let Some(messenger) = self.messenger.get().filter(|_| self.reply_bytes > 0) {
                messenger.send(conn, message(self.reply_bytes));
            }
        }
    }

    fn reset(&self, conn: ConnId) {
        self.note(Told::Reset(conn));
    }

    fn gone(&self, conn: ConnId, why: Gone) {
        self.note(Told::Gone(conn, format!("{why:?}")));
    }
}

impl Server {
    pub async fn start(bounds: Bounds, reply_bytes: usize) -> Self {
        Self::start_within(Limits::default(), bounds, reply_bytes).await
    }

    pub async fn start_within(limits: Limits, bounds: Bounds, reply_bytes: usize) -> Self {
        let local = Local { name: EntityName::osd(0), addrs: AddrVec::default() };
        let messenger = Messenger::bounded(local, limits, bounds, Clock::start());
        let ear = Arc::new(Ear { reply_bytes, ..Ear::default() });
        let _ = ear.messenger.set(messenger.clone());
        messenger.set_handler(Arc::clone(&ear) as Arc<dyn Handler>);
        let at = messenger.listen("127.0.0.1:0".parse().expect("an address"), 7).await.expect("bound");
        Self { messenger, at, ear }
    }

    /// Lets `run` come between the next proof of who a peer is and its session.
    pub fn at_next_session(&self, run: impl FnOnce(ConnId) + Send + 'static) {
        *lock(&self.ear.at_session) = Some(Box::new(run));
    }

    pub fn told(&self) -> Vec<Told> {
        lock(&self.ear.told).clone()
    }

    /// Waits until `seen` finds what it looks for.
    pub async fn until<T>(&self, seen: impl Fn(&[Told]) -> Option<T>) -> T {
        loop {
            let more = self.ear.more.notified();
            tokio::pin!(more);
            more.as_mut().enable();
            if let Some(found) = seen(&self.told()) {
                return found;
            }
            more.await;
        }
    }

    /// The connection of the entity of that name.
    pub async fn conn_of(&self, name: &str) -> ConnId {
        let name = AuthName::parse(name).expect("a name");
        self.until(|told| {
            told.iter().rev().find_map(|t| match t {
                Told::Ready(conn, who) if *who == name => Some(*conn),
                _ => None,
            })
        })
        .await
    }

    pub async fn gone(&self, conn: ConnId) -> String {
        self.until(|told| {
            told.iter().find_map(|t| match t {
                Told::Gone(c, why) if *c == conn => Some(why.clone()),
                _ => None,
            })
        })
        .await
    }

    /// Waits for so many messages of a connection.
    pub async fn heard(&self, conn: ConnId, count: usize) {
        self.until(|_| (self.count_of(conn) >= count).then_some(())).await;
    }

    /// Messages of a connection so far.
    pub fn count_of(&self, conn: ConnId) -> usize {
        self.told().iter().filter(|t| matches!(t, Told::Message(c, _) if *c == conn)).count()
    }
}

pub(super) fn message(data_bytes: usize) -> WireMessage {
    let header = Header { ty: 42, version: 1, compat_version: 1, ..Header::default() };
    WireMessage { header, data: Bytes::from(vec![7; data_bytes]), ..WireMessage::default() }
}

/// The client's half of authentication with an `Ear`: a name, taken at its word.
pub(super) struct Named(pub &'static str);

impl ClientAuth for Named {
    fn request(&mut self, _: Now) -> Result<(u32, Vec<ConMode>, Bytes), String> {
        Ok((1, vec![ConMode::Crc], Bytes::from(self.0)))
    }

    fn more(&mut self, _: Now, _: Bytes) -> Result<Bytes, String> {
        Err("nothing more is asked".to_owned())
    }

    fn done(&mut self, _: Now, _: u64, _: ConMode, _: Bytes) -> Result<Established, String> {
        Ok(Established::default())
    }
}

/// How a peer presents itself.
pub(super) struct As<'a> {
    /// What it proves to be.
    pub name: &'a str,
    /// What it says in its hello.
    pub hello: EntityType,
    /// Where it says that it is.
    pub addr: &'a str,
    pub policy: Policy,
}

impl<'a> As<'a> {
    pub fn client(name: &'a str) -> Self {
        Self { name, hello: EntityType::Client, addr: "v2:127.0.0.1:0/1", policy: Policy::lossy_client() }
    }

    pub fn osd(name: &'a str, addr: &'a str) -> Self {
        Self { name, hello: EntityType::Osd, addr, policy: Policy::lossless_client() }
    }
}

/// A peer that sends and reads when the test says so.
pub(super) struct Raw {
    pub stream: TcpStream,
    pub conn: Connection,
    /// Messages received.
    pub answers: usize,
    buf: BytesMut,
}

impl Raw {
    /// Connects and authenticates; `Err` when the server closed instead.
    pub async fn ready(server: &Server, me: As<'_>) -> Result<Self, String> {
        let session = Session::outgoing(me.policy, server_of(server), 5);
        Self::resume(server, me, session).await
    }

    pub async fn resume(server: &Server, me: As<'_>, session: Session) -> Result<Self, String> {
        let addr = EntityAddr::parse(me.addr, types::AddrKind::Msgr2).expect("an address");
        let local = Local { name: EntityName::new(me.hello, 3), addrs: AddrVec::single(addr) };
        let now = server.messenger.now();
        let seq = server.messenger.next_global_seq();
        let conn = Connection::connect(now, local, session, server.at, seq, 77, Limits::default());
        let stream = TcpStream::connect(server.at.socket.expect("a socket")).await.expect("connected");
        let mut raw = Self { stream, conn, answers: 0, buf: BytesMut::new() };
        while !raw.conn.is_ready() {
            raw.flush().await;
            for event in raw.receive(server).await? {
                match event {
                    Event::Hello { .. } => {
                        raw.conn.auth_request(1, &[ConMode::Crc], Bytes::from(me.name.to_owned()));
                    }
                    Event::AuthDone { .. } => raw.conn.auth_established(&[], &[]),
                    Event::Closed(why) => return Err(why.to_string()),
                    _ => {}
                }
            }
        }
        Ok(raw)
    }

    /// Events of the next read.
    pub async fn receive(&mut self, server: &Server) -> Result<Vec<Event>, String> {
        match self.stream.read_buf(&mut self.buf).await {
            Ok(0) => return Err("closed".to_owned()),
            Err(e) => return Err(e.to_string()),
            Ok(_) => {}
        }
        self.conn.handle_bytes(server.messenger.now(), &mut self.buf);
        let events: Vec<Event> = std::iter::from_fn(|| self.conn.poll_event()).collect();
        self.answers += events.iter().filter(|e| matches!(e, Event::Message(_))).count();
        Ok(events)
    }

    /// The bytes of a message, not sent yet.
    pub fn bytes_of(&mut self, msg: WireMessage) -> Vec<u8> {
        self.conn.send(msg).expect("a session");
        let mut out = Vec::new();
        self.conn.take_outgoing(&mut out);
        out.concat()
    }

    pub async fn write(&mut self, bytes: &[u8]) {
        let _ = self.stream.write_all(bytes).await;
    }

    pub async fn send(&mut self, msg: WireMessage) {
        let bytes = self.bytes_of(msg);
        self.write(&bytes).await;
    }

    pub async fn flush(&mut self) {
        let mut out = Vec::new();
        self.conn.take_outgoing(&mut out);
        self.write(&out.concat()).await;
    }
}

pub(super) fn server_of(server: &Server) -> Peer {
    Peer { name: EntityName::osd(0), addrs: AddrVec::single(server.at) }
}

/// A TCP connection from an address of the loopback network, with nothing sent.
pub(super) async fn silent(server: &Server, from: &str) -> TcpStream {
    let socket = TcpSocket::new_v4().expect("a socket");
    socket.bind(format!("{from}:0").parse().expect("an address")).expect("bound");
    socket.connect(server.at.socket.expect("a socket")).await.expect("connected")
}
