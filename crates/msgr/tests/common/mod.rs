//! Two ends of a connection with an owner that authenticates by rote, joined by byte pipes.
#![allow(dead_code, reason = "the example takes a part of it")]

use bytes::{Bytes, BytesMut};
use messages::wire::{Header, WireMessage};
use msgr::{ConMode, Connection, Event, Limits, Local, Peer, Policy, Session};
use types::{AddrKind, AddrVec, EntityAddr, EntityName, EntityType, Now, Utime};

pub const KEY: &[u8] = b"sixteen byte key";

pub fn addr(text: &str) -> EntityAddr {
    EntityAddr::parse(text, AddrKind::Msgr2).expect("an address")
}

pub fn local(kind: EntityType, num: i64, at: &str) -> Local {
    Local { name: EntityName::new(kind, num), addrs: AddrVec::single(addr(at)) }
}

pub fn now(ms: u64) -> Now {
    Now {
        mono: std::time::Duration::from_millis(ms),
        wall: Utime::from_nanos(1_700_000_000_000_000_000 + ms * 1_000_000),
    }
}

pub fn secret(nr: u8) -> Vec<u8> {
    (0..64u8).map(|i| i.wrapping_mul(37) ^ nr).collect()
}

pub fn message(nr: u64, data_len: usize) -> WireMessage {
    let header =
        Header { tid: nr, ty: 42, priority: 127, version: 8, compat_version: 3, ..Header::default() };
    let front = Bytes::from(format!("front of {nr}"));
    let middle = if nr % 3 == 0 { Bytes::from(vec![nr as u8; 33]) } else { Bytes::new() };
    let data = Bytes::from((0..data_len).map(|i| (i as u8) ^ (nr as u8)).collect::<Vec<_>>());
    WireMessage { header, front, middle, data, more: Vec::new() }
}

/// Without the seq, which the connection gives.
pub fn content(m: &WireMessage) -> WireMessage {
    WireMessage { header: Header { seq: 0, ..m.header }, ..m.clone() }
}

/// One end: a connection, its receive buffer, and everything it said.
pub struct End {
    pub conn: Connection,
    pub buf: BytesMut,
    pub events: Vec<Event>,
    pub mode: ConMode,
    pub secret: Vec<u8>,
    pub key: Vec<u8>,
    pub connector: bool,
    /// What an acceptor gives to a session request; without it the request is left to the test.
    pub on_request: Option<Session>,
    pub cookie: u64,
}

impl End {
    pub fn new(conn: Connection, mode: ConMode, nr: u8) -> Self {
        Self {
            conn,
            buf: BytesMut::new(),
            events: vec![],
            mode,
            secret: secret(nr),
            key: KEY.to_vec(),
            connector: true,
            on_request: None,
            cookie: 1000 + u64::from(nr),
        }
    }

    pub fn outgoing(&mut self) -> Vec<u8> {
        let mut out = Vec::new();
        let promised = self.conn.outgoing_len();
        self.conn.take_outgoing(&mut out);
        let bytes = out.concat();
        assert!(bytes.len() >= promised, "an ack may be added");
        bytes
    }

    pub fn receive(&mut self, bytes: &[u8]) {
        self.buf.extend_from_slice(bytes);
        self.conn.handle_bytes(now(5), &mut self.buf);
        self.settle();
    }

    /// Answers what pauses; keeps the events.
    pub fn settle(&mut self) {
        while let Some(event) = self.conn.poll_event() {
            match &event {
                Event::Hello { .. } if self.connector => {
                    self.conn.auth_request(2, &[ConMode::Secure, ConMode::Crc], Bytes::from_static(b"first"));
                }
                Event::AuthRequest { .. } => self.conn.auth_reply_more(Bytes::from_static(b"challenge")),
                Event::AuthReplyMore { .. } => self.conn.auth_request_more(Bytes::from_static(b"proof")),
                Event::AuthRequestMore { .. } => {
                    self.conn.auth_done(
                        77,
                        self.mode,
                        Bytes::from_static(b"ticket"),
                        &self.key,
                        &self.secret,
                    );
                }
                Event::AuthDone { .. } => self.conn.auth_established(&self.key, &self.secret),
                Event::SessionRequest(_) => {
                    if let Some(session) = self.on_request.take() {
                        self.conn.accept_session(session, 9, self.cookie);
                    }
                }
                _ => {}
            }
            self.events.push(event);
        }
        if let Some(s) = self.conn.session() {
            s.assert_invariants();
        }
    }

    pub fn messages(&self) -> Vec<WireMessage> {
        self.events
            .iter()
            .filter_map(|e| match e {
                Event::Message(m) => Some(m.clone()),
                _ => None,
            })
            .collect()
    }

    pub fn closed(&self) -> Option<&msgr::Error> {
        self.events.iter().find_map(|e| match e {
            Event::Closed(error) => Some(error),
            _ => None,
        })
    }
}

pub const SERVER: &str = "v2:127.0.0.1:6800/77";
pub const CLIENT: &str = "v2:127.0.0.1:6900/88";

pub fn peer_of_client() -> Peer {
    Peer { name: EntityName::new(EntityType::Osd, 1), addrs: AddrVec::single(addr(SERVER)) }
}

pub fn outgoing_session(policy: Policy) -> Session {
    Session::outgoing(policy, peer_of_client(), 555)
}

/// A connector with `session` and an acceptor that will give `other` to whom asks.
pub fn pair(mode: ConMode, nr: u8, session: Session, other: Session) -> (End, End) {
    pair_with(mode, nr, session, other, Limits::default())
}

pub fn pair_with(mode: ConMode, nr: u8, session: Session, other: Session, limits: Limits) -> (End, End) {
    let c = Connection::connect(
        now(0),
        local(EntityType::Osd, 2, CLIENT),
        session,
        addr(SERVER),
        u64::from(nr) + 1,
        4321,
        limits.clone(),
    );
    let s =
        Connection::accept(now(0), local(EntityType::Osd, 1, SERVER), addr("v2:127.0.0.1:50000/0"), limits);
    let client = End::new(c, mode, nr);
    let mut server = End::new(s, mode, nr);
    server.connector = false;
    server.on_request = Some(other);
    (client, server)
}

/// Moves bytes until both ends are silent; `chunk` at a time (0: all). Returns the bytes of each direction.
pub fn pump(client: &mut End, server: &mut End, chunk: usize) -> (Vec<u8>, Vec<u8>) {
    let (mut up, mut down) = (Vec::new(), Vec::new());
    loop {
        let (a, b) = (client.outgoing(), server.outgoing());
        if a.is_empty() && b.is_empty() {
            return (up, down);
        }
        for piece in a.chunks(if chunk == 0 { a.len().max(1) } else { chunk }) {
            server.receive(piece);
        }
        for piece in b.chunks(if chunk == 0 { b.len().max(1) } else { chunk }) {
            client.receive(piece);
        }
        up.extend_from_slice(&a);
        down.extend_from_slice(&b);
    }
}

/// Both ends ready, events cleared.
pub fn ready_pair(mode: ConMode, nr: u8, policy: Policy) -> (End, End) {
    let (mut c, mut s) = pair(mode, nr, outgoing_session(policy), Session::incoming(policy));
    pump(&mut c, &mut s, 0);
    assert!(c.conn.is_ready() && s.conn.is_ready(), "{:?} {:?}", c.events, s.events);
    c.events.clear();
    s.events.clear();
    (c, s)
}
