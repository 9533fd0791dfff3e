//! Frames of msgr2 with right checksums around mutated contents, to either end of a connection: what a peer
//! that knows the protocol can send. (The target `connection` takes bytes as they are.)

use bytes::{BufMut, Bytes, BytesMut};
use codec::crc32c;
use messages::wire::{Header, WireMessage};
use msgr::{ConMode, Connection, Event, Limits, Local, Peer, Policy, Session, SessionAnswer, SessionRequest};
use types::{AddrVec, EntityAddr, Now};

const BANNER_LEN: usize = 26;
const PREAMBLE_LEN: usize = 32;
const SEGMENTS: usize = 4;
/// Tag, then the lengths of the segments in two bytes each.
const RECORD_HEAD: usize = 1 + 2 * SEGMENTS;
/// What an end may hold: a receive buffer runs ahead of a large frame by so much.
pub(crate) const RECEIVE_BUFFER: u64 = 8 << 20;

fn banner() -> Vec<u8> {
    let mut out = b"ceph v2\n".to_vec();
    out.put_u16_le(16);
    out.put_u64_le(1);
    out.put_u64_le(1);
    out
}

fn put_frame(out: &mut BytesMut, tag: u8, segments: &[&[u8]; SEGMENTS]) {
    let count = segments.iter().rposition(|s| !s.is_empty()).unwrap_or(0) + 1;
    let mut preamble = BytesMut::new();
    preamble.put_u8(tag);
    preamble.put_u8(count as u8);
    for segment in segments {
        preamble.put_u32_le(segment.len() as u32);
        preamble.put_u16_le(8);
    }
    preamble.put_u16_le(0);
    let crc = crc32c(0, &preamble);
    out.put_slice(&preamble);
    out.put_u32_le(crc);
    let [first, later @ ..] = segments;
    if !first.is_empty() {
        out.put_slice(first);
        out.put_u32_le(crc32c(!0, first));
    }
    if count > 1 {
        later.iter().for_each(|s| out.put_slice(s));
        out.put_u8(0xe);
        later.iter().for_each(|s| out.put_u32_le(crc32c(!0, s)));
    }
}

/// One byte says which end (and what kind of session); then records, each the contents of one frame.
pub(crate) fn frames(data: &[u8]) {
    let Some((how, mut rest)) = data.split_first() else { return };
    let mut end = End::new(*how);
    end.receive(&banner());
    let mut frame = BytesMut::new();
    while let Some((head, body)) = rest.split_first_chunk::<RECORD_HEAD>() {
        rest = body;
        let mut segments = [&[][..]; SEGMENTS];
        for (segment, len) in segments.iter_mut().zip(head[1..].chunks_exact(2)) {
            let len = usize::from(u16::from_le_bytes([len[0], len[1]])).min(rest.len());
            (*segment, rest) = rest.split_at(len);
        }
        frame.clear();
        put_frame(&mut frame, head[0], &segments);
        end.receive(&frame);
    }
    end.conn.tick(now(2_000));
    end.settle();
}

fn now(ms: u64) -> Now {
    Now { mono: std::time::Duration::from_millis(ms), ..Now::default() }
}

/// An end whose owner grants everything: what is behind authentication is reached too.
struct End {
    conn: Connection,
    buf: BytesMut,
    connects: bool,
    policy: Policy,
    sent: Vec<Bytes>,
}

impl End {
    fn new(how: u8) -> Self {
        let connects = how & 1 != 0;
        let policy = if how & 2 != 0 { Policy::lossless_peer() } else { Policy::stateless_server() };
        let at = EntityAddr::default();
        let local = Local { addrs: AddrVec::single(at), ..Local::default() };
        let conn = if connects {
            let mut session = Session::outgoing(policy, Peer::default(), 555);
            session.push(WireMessage {
                header: Header { ty: 2, ..Header::default() },
                ..WireMessage::default()
            });
            Connection::connect(now(1), local, session, at, 1, 7, Limits::default())
        } else {
            Connection::accept(now(1), local, at, Limits::default())
        };
        Self { conn, buf: BytesMut::new(), connects, policy, sent: Vec::new() }
    }

    fn receive(&mut self, bytes: &[u8]) {
        self.buf.extend_from_slice(bytes);
        // Bytes that nobody waits for any more are dropped with the connection.
        self.conn.handle_bytes(now(1), &mut self.buf);
        self.settle();
    }

    fn settle(&mut self) {
        while let Some(event) = self.conn.poll_event() {
            self.answer(event);
        }
        self.conn.take_outgoing(&mut self.sent);
        if let Some(session) = self.conn.session() {
            session.assert_invariants();
        }
    }

    fn answer(&mut self, event: Event) {
        let conn = &mut self.conn;
        match event {
            Event::Hello { .. } if self.connects => conn.auth_request(1, &[ConMode::Crc], Bytes::new()),
            Event::AuthRequest { .. } => conn.auth_reply_more(Bytes::from_static(b"challenge")),
            Event::AuthRequestMore { .. } => conn.auth_done(1, ConMode::Crc, Bytes::new(), &[], &[]),
            Event::AuthReplyMore { .. } => conn.auth_request_more(Bytes::from_static(b"proof")),
            Event::AuthBadMethod { .. } => conn.auth_request(1, &[ConMode::Crc], Bytes::new()),
            Event::AuthDone { .. } => conn.auth_established(&[], &[]),
            Event::SessionRequest(SessionRequest::Open(_)) => {
                conn.accept_session(Session::incoming(self.policy), 1, 1);
            }
            Event::SessionRequest(SessionRequest::Resume(_)) => {
                conn.answer_session(SessionAnswer::Reset { full: true });
            }
            Event::RetryGlobal { peer_knows } => conn.set_global_seq(peer_knows.saturating_add(1)),
            _ => {}
        }
    }
}

/// The records of what `end` has sent, all of it checked frames of ours.
fn records(sent: &[Bytes]) -> Vec<u8> {
    let all = sent.concat();
    let mut rest = all.get(BANNER_LEN..).unwrap_or_default();
    let mut out = Vec::new();
    while let Some((head, body)) = rest.split_first_chunk::<PREAMBLE_LEN>() {
        let len = |i: usize| {
            u32::from_le_bytes([head[2 + i * 6], head[3 + i * 6], head[4 + i * 6], head[5 + i * 6]])
        };
        let lens: Vec<usize> = (0..SEGMENTS).map(|i| len(i) as usize).collect();
        out.push(head[0]);
        lens.iter().for_each(|l| out.put_u16_le(*l as u16));
        let first_crc = if lens[0] > 0 { 4 } else { 0 };
        let later: usize = lens[1..].iter().sum();
        let epilogue = if head[1] > 1 { 13 } else { 0 };
        out.put_slice(&body[..lens[0]]);
        out.put_slice(&body[lens[0] + first_crc..][..later]);
        rest = &body[lens[0] + first_crc + later + epilogue..];
    }
    out
}

/// Both directions of whole connections with a few messages on them.
pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let mut out = Vec::new();
    for kind in [0u8, 2] {
        let (mut a, mut b) = (End::new(kind | 1), End::new(kind));
        let (mut of_a, mut of_b) = (Vec::new(), Vec::new());
        for round in 0..12 {
            if round > 8 {
                let header = Header { ty: 42, tid: round, version: 8, ..Header::default() };
                let part = |n: usize| Bytes::from(vec![round as u8; n]);
                let message = WireMessage { header, front: part(40), middle: part(3), data: part(70) };
                assert!(b.conn.send(message.clone()).is_ok() && a.conn.send(message).is_ok(), "ready");
            }
            a.settle();
            b.settle();
            let (from_a, from_b) = (std::mem::take(&mut a.sent), std::mem::take(&mut b.sent));
            b.receive(&from_a.concat());
            a.receive(&from_b.concat());
            of_a.extend(from_a);
            of_b.extend(from_b);
        }
        assert!(a.conn.is_ready() && b.conn.is_ready(), "both are");
        out.push([&[kind][..], &records(&of_a)].concat());
        out.push([&[kind | 1][..], &records(&of_b)].concat());
    }
    out
}
