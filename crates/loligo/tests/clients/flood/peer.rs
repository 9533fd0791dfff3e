//! A client's connection by hand: it reads and writes what and when it wants to.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::BytesMut;
use messages::Message;
use messages::wire::WireMessage;
use msgr::{Connection, Event, Limits, Local, Peer as Wanted, Policy, Session};
use runtime::Clock;
use runtime::net::ClientAuth;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use types::{AddrKind, AddrVec, EntityAddr, EntityName, EntityType};

/// Whoever is not answered for so long gives up: daemons stop reading from hostile peers.
const PATIENCE: Duration = Duration::from_secs(2);

/// How a peer presents itself.
#[derive(Clone)]
pub struct As {
    /// What it says in its hello.
    pub name: EntityName,
    /// Where it says that it is.
    pub addr: EntityAddr,
    pub policy: Policy,
}

impl As {
    pub fn client() -> Self {
        let addr = EntityAddr { kind: AddrKind::Any, nonce: 1, socket: None };
        Self { name: EntityName::new(EntityType::Client, -1), addr, policy: Policy::lossy_client() }
    }
}

pub struct Peer {
    stream: TcpStream,
    conn: Connection,
    buf: BytesMut,
    clock: Clock,
    next_tid: u64,
}

impl Peer {
    /// Connects and authenticates; `Err` when the daemon closes instead or says nothing.
    pub async fn open(
        clock: Clock,
        to: (EntityAddr, EntityName),
        me: As,
        mut auth: Box<dyn ClientAuth>,
    ) -> Result<Self, String> {
        static SEQ: AtomicU64 = AtomicU64::new(1);
        let seq = clock.now().wall.as_nanos() + SEQ.fetch_add(1, Ordering::Relaxed);
        let (at, name) = to;
        let session = Session::outgoing(me.policy, Wanted { name, addrs: AddrVec::single(at) }, seq);
        let local = Local { name: me.name, addrs: AddrVec::single(me.addr) };
        let conn = Connection::connect(clock.now(), local, session, at, seq, seq, Limits::default());
        let stream = TcpStream::connect(at.socket.expect("an address")).await.map_err(|e| e.to_string())?;
        let mut peer = Self { stream, conn, buf: BytesMut::new(), clock, next_tid: 1 };
        while !peer.conn.is_ready() {
            peer.flush().await?;
            for event in peer.receive().await? {
                peer.on_event(event, auth.as_mut())?;
            }
        }
        Ok(peer)
    }

    fn on_event(&mut self, event: Event, auth: &mut dyn ClientAuth) -> Result<(), String> {
        let now = self.clock.now();
        match event {
            Event::Hello { .. } => {
                let (method, modes, payload) = auth.request(now)?;
                self.conn.auth_request(method, &modes, payload);
            }
            Event::AuthReplyMore { payload } => self.conn.auth_request_more(auth.more(now, payload)?),
            Event::AuthDone { global_id, mode, payload } => {
                let known = auth.done(now, global_id, mode, payload)?;
                if let Some(num) = known.our_num {
                    self.conn.set_local_num(num);
                }
                self.conn.auth_established(&known.session_key, &known.connection_secret);
            }
            Event::AuthBadMethod { result, .. } => return Err(format!("refused with {result}")),
            Event::Closed(why) => return Err(why.to_string()),
            _ => {}
        }
        Ok(())
    }

    /// Events of the next read.
    pub async fn receive(&mut self) -> Result<Vec<Event>, String> {
        self.buf.reserve(64 << 10);
        match tokio::time::timeout(PATIENCE, self.stream.read_buf(&mut self.buf)).await {
            Ok(Ok(0)) => return Err("closed".to_owned()),
            Ok(Ok(_)) => {}
            Ok(Err(e)) => return Err(e.to_string()),
            Err(_) => return Err("nothing comes".to_owned()),
        }
        self.conn.handle_bytes(self.clock.now(), &mut self.buf);
        Ok(std::iter::from_fn(|| self.conn.poll_event()).collect())
    }

    /// Reads until so many messages have come; those that are answers of OSDs or monitors.
    pub async fn messages(&mut self, count: usize) -> Result<Vec<Message>, String> {
        let mut found = Vec::new();
        while found.len() < count {
            for event in self.receive().await? {
                match event {
                    Event::Message(wire) => found.extend(Message::decode(&wire).ok()),
                    Event::Closed(why) => return Err(why.to_string()),
                    _ => {}
                }
            }
            self.flush().await?;
        }
        Ok(found)
    }

    /// The bytes of a message, not sent yet.
    pub fn bytes_of(&mut self, msg: impl Into<Message>) -> Vec<u8> {
        let wire: WireMessage = msg.into().into_wire(self.next_tid);
        self.next_tid += 1;
        let _ = self.conn.send(wire);
        self.outgoing()
    }

    /// The number of the next message.
    pub fn next_tid(&self) -> u64 {
        self.next_tid
    }

    pub fn set_next_tid(&mut self, tid: u64) {
        self.next_tid = tid;
    }

    fn outgoing(&mut self) -> Vec<u8> {
        let mut out = Vec::new();
        self.conn.take_outgoing(&mut out);
        out.concat()
    }

    pub async fn write(&mut self, bytes: &[u8]) -> Result<(), String> {
        match tokio::time::timeout(PATIENCE, self.stream.write_all(bytes)).await {
            Ok(result) => result.map_err(|e| e.to_string()),
            Err(_) => Err("nothing is read".to_owned()),
        }
    }

    pub async fn send(&mut self, msg: impl Into<Message>) -> Result<(), String> {
        let bytes = self.bytes_of(msg);
        self.write(&bytes).await
    }

    async fn flush(&mut self) -> Result<(), String> {
        let bytes = self.outgoing();
        self.write(&bytes).await
    }
}

/// Makes the client's halves of authentications.
pub type Auth = Arc<runtime::session::SharedAuth>;
