//! Frames of msgr2 with right checksums, or sealed, around mutated contents, to either end of a connection:
//! what a peer that knows the protocol can send. (The target `connection` takes bytes as they are.)

use bytes::{BufMut, Bytes, BytesMut};
use codec::crc32c;
use messages::wire::{Header, WireMessage};
use msgr::{ConMode, Connection, Event, Limits, Local, Peer, Policy, Session, SessionAnswer, SessionRequest};
use types::{AddrVec, EntityAddr, Now};

use crate::seal::{BLOCK, SECRET, Sealer, TAG_LEN};

const BANNER_LEN: usize = 26;
const PREAMBLE_LEN: usize = 32;
const INLINE_LEN: usize = 48;
const SEGMENTS: usize = 4;
/// Tag, then the lengths of the segments in two bytes each.
const RECORD_HEAD: usize = 1 + 2 * SEGMENTS;
/// Of the byte that says which end: it asks for secure mode, and seals.
const SECURE: u8 = 4;
/// What an end may hold: a receive buffer runs ahead of a large frame by so much.
pub(crate) const RECEIVE_BUFFER: u64 = 8 << 20;

fn banner() -> Vec<u8> {
    let mut out = b"ceph v2\n".to_vec();
    out.put_u16_le(16);
    out.put_u64_le(1);
    out.put_u64_le(1);
    out
}

fn segment_count(segments: &[&[u8]; SEGMENTS]) -> usize {
    segments.iter().rposition(|s| !s.is_empty()).unwrap_or(0) + 1
}

/// Without its checksum.
fn preamble(tag: u8, segments: &[&[u8]; SEGMENTS]) -> BytesMut {
    let mut preamble = BytesMut::new();
    preamble.put_u8(tag);
    preamble.put_u8(segment_count(segments) as u8);
    for segment in segments {
        preamble.put_u32_le(segment.len() as u32);
        preamble.put_u16_le(8);
    }
    preamble.put_u16_le(0);
    preamble
}

fn put_frame(out: &mut BytesMut, tag: u8, segments: &[&[u8]; SEGMENTS]) {
    let count = segment_count(segments);
    let preamble = preamble(tag, segments);
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

/// What is changed in a stream of sealed frames: this byte, counted from the first, by so much.
#[derive(Clone, Copy)]
struct Lie {
    at: usize,
    by: u8,
}

/// A stream of sealed frames, one of whose bytes is not what it should be.
struct Sealed {
    sealer: Sealer,
    /// In what is sealed; the checksum of a preamble fits nevertheless.
    inside: Option<Lie>,
    /// In what was sealed.
    outside: Option<Lie>,
    /// Bytes of plain text, and of sealed ones, so far.
    plain: usize,
    sent: usize,
}

impl Sealed {
    fn put(&mut self, out: &mut BytesMut, tag: u8, segments: &[&[u8]; SEGMENTS]) {
        let [first, later @ ..] = segments;
        let (inline, remainder) = first.split_at(first.len().min(INLINE_LEN));
        let mut head = preamble(tag, segments);
        self.spoil(&mut head);
        let crc = crc32c(0, &head);
        head.put_u32_le(crc);
        head.put_slice(inline);
        head.resize(PREAMBLE_LEN + INLINE_LEN, 0);
        self.sealer.seal(out, &head);
        if !remainder.is_empty() {
            self.block(out, BytesMut::from(remainder));
        }
        if segment_count(segments) > 1 {
            let mut block = BytesMut::new();
            for segment in later {
                block.put_slice(segment);
                block.put_bytes(0, segment.len().next_multiple_of(BLOCK) - segment.len());
            }
            block.put_u8(0xe);
            self.block(out, block);
        }
    }

    fn block(&mut self, out: &mut BytesMut, mut block: BytesMut) {
        self.spoil(&mut block);
        self.sealer.seal(out, &block);
    }

    fn spoil(&mut self, block: &mut [u8]) {
        change(self.inside, self.plain, block);
        self.plain += block.len();
    }

    /// Whether something of it is not as it was sealed.
    fn spoil_sealed(&mut self, frame: &mut [u8]) -> bool {
        let begin = self.sent;
        self.sent += frame.len();
        change(self.outside, begin, frame)
    }
}

fn change(lie: Option<Lie>, begin: usize, block: &mut [u8]) -> bool {
    let Some(Lie { at, by }) = lie else { return false };
    let place = at.checked_sub(begin).and_then(|at| block.get_mut(at));
    place.map(|byte| *byte ^= by).is_some() && by != 0
}

/// As `frames`, in secure mode. Three bytes more, behind the first, say which byte of all that follows
/// authentication is changed and by how much: before it is sealed, or (bit 3 of the first) on its way.
pub(crate) fn sealed_frames(data: &[u8]) {
    let Some(([how, a0, a1, by], rest)) = data.split_first_chunk::<4>() else { return };
    let lie = Some(Lie { at: usize::from(u16::from_le_bytes([*a0, *a1])), by: *by });
    let on_its_way = how & 8 != 0;
    let sealed = Sealed {
        sealer: Sealer::to(how & 1 != 0),
        inside: lie.filter(|_| !on_its_way),
        outside: lie.filter(|_| on_its_way),
        plain: 0,
        sent: 0,
    };
    run(End::new(how | SECURE), Some(sealed), rest);
}

/// One byte says which end (and what kind of session); then records, each the contents of one frame.
pub(crate) fn frames(data: &[u8]) {
    let Some((how, rest)) = data.split_first() else { return };
    run(End::new(how & !SECURE), None, rest);
}

fn run(mut end: End, mut sealed: Option<Sealed>, mut rest: &[u8]) -> End {
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
        match sealed.as_mut().filter(|_| end.seals) {
            None => put_frame(&mut frame, head[0], &segments),
            Some(sealed) => {
                sealed.put(&mut frame, head[0], &segments);
                if sealed.spoil_sealed(&mut frame) {
                    let heard = end.heard;
                    end.receive(&frame);
                    assert!(
                        end.conn.is_closed() && end.heard == heard,
                        "what was changed on its way is taken"
                    );
                }
            }
        }
        end.receive(&frame);
    }
    end.conn.tick(now(2_000));
    end.settle();
    end
}

fn now(ms: u64) -> Now {
    Now { mono: std::time::Duration::from_millis(ms), ..Now::default() }
}

/// An end whose owner grants everything: what is behind authentication is reached too.
struct End {
    conn: Connection,
    buf: BytesMut,
    connects: bool,
    mode: ConMode,
    /// From here on frames are sealed.
    seals: bool,
    policy: Policy,
    sent: Vec<Bytes>,
    /// Messages.
    heard: usize,
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
        let mode = if how & SECURE != 0 { ConMode::Secure } else { ConMode::Crc };
        Self { conn, buf: BytesMut::new(), connects, mode, seals: false, policy, sent: Vec::new(), heard: 0 }
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
        let (conn, mode) = (&mut self.conn, self.mode);
        match event {
            Event::Hello { .. } if self.connects => conn.auth_request(1, &[mode], Bytes::new()),
            Event::AuthRequest { .. } => conn.auth_reply_more(Bytes::from_static(b"challenge")),
            Event::AuthRequestMore { .. } => {
                self.seals = mode == ConMode::Secure;
                conn.auth_done(1, mode, Bytes::new(), &[], &SECRET);
            }
            Event::AuthReplyMore { .. } => conn.auth_request_more(Bytes::from_static(b"proof")),
            Event::AuthBadMethod { .. } => conn.auth_request(1, &[mode], Bytes::new()),
            Event::AuthDone { mode, .. } => {
                self.seals = mode == ConMode::Secure;
                conn.auth_established(&[], &SECRET);
            }
            Event::Message(_) => self.heard += 1,
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

/// The records of what an end has sent, all of it checked frames of ours, sealed ones behind those that are
/// not.
fn records(sent: &[Bytes], connects: bool) -> Vec<u8> {
    let all = sent.concat();
    let mut rest = all.get(BANNER_LEN..).unwrap_or_default();
    // What this end seals the other opens.
    let mut opener = Sealer::to(!connects);
    let mut out = Vec::new();
    while let Some((head, body)) = rest.split_first_chunk::<PREAMBLE_LEN>() {
        let is_plain = crc32c(0, &head[..PREAMBLE_LEN - 4]).to_le_bytes() == head[PREAMBLE_LEN - 4..];
        rest = if is_plain {
            plain_record(head, body, &mut out)
        } else {
            sealed_record(rest, &mut opener, &mut out)
        };
    }
    out
}

fn put_record_head(preamble: &[u8], out: &mut Vec<u8>) -> [usize; SEGMENTS] {
    let len = |i: usize| {
        let at = 2 + i * 6;
        u32::from_le_bytes([preamble[at], preamble[at + 1], preamble[at + 2], preamble[at + 3]]) as usize
    };
    let lens = [len(0), len(1), len(2), len(3)];
    out.push(preamble[0]);
    lens.iter().for_each(|l| out.put_u16_le(*l as u16));
    lens
}

/// Gives what is behind the frame.
fn plain_record<'a>(head: &[u8], body: &'a [u8], out: &mut Vec<u8>) -> &'a [u8] {
    let lens = put_record_head(head, out);
    let first_crc = if lens[0] > 0 { 4 } else { 0 };
    let later: usize = lens[1..].iter().sum();
    let epilogue = if head[1] > 1 { 13 } else { 0 };
    out.put_slice(&body[..lens[0]]);
    out.put_slice(&body[lens[0] + first_crc..][..later]);
    &body[lens[0] + first_crc + later + epilogue..]
}

fn sealed_record<'a>(frame: &'a [u8], opener: &mut Sealer, out: &mut Vec<u8>) -> &'a [u8] {
    let (head, mut rest) = frame.split_at(PREAMBLE_LEN + INLINE_LEN + TAG_LEN);
    let head = opener.open(head);
    let lens = put_record_head(&head, out);
    let mut first = head[PREAMBLE_LEN..].to_vec();
    if lens[0] > INLINE_LEN {
        let (remainder, more) = rest.split_at((lens[0] - INLINE_LEN).next_multiple_of(BLOCK) + TAG_LEN);
        first.extend(opener.open(remainder));
        rest = more;
    }
    out.put_slice(&first[..lens[0]]);
    if head[1] > 1 {
        let padded: usize = lens[1..].iter().map(|l| l.next_multiple_of(BLOCK)).sum();
        let (later, more) = rest.split_at(padded + BLOCK + TAG_LEN);
        let later = opener.open(later);
        let mut at = 0;
        for len in &lens[1..] {
            out.put_slice(&later[at..at + len]);
            at += len.next_multiple_of(BLOCK);
        }
        rest = more;
    }
    rest
}

/// Both directions of a whole connection with a few messages on it: to the acceptor, to the connector.
fn played(kind: u8) -> [Vec<u8>; 2] {
    let (mut a, mut b) = (End::new(kind | 1), End::new(kind));
    let (mut of_a, mut of_b) = (Vec::new(), Vec::new());
    for round in 0..12 {
        if round > 8 {
            let header = Header { ty: 42, tid: round, version: 8, ..Header::default() };
            let part = |n: usize| Bytes::from(vec![round as u8; n]);
            let message =
                WireMessage { header, front: part(40), middle: part(3), data: part(70), more: Vec::new() };
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
    assert!(a.conn.is_ready() && b.conn.is_ready() && a.heard > 1 && b.heard > 1, "both are");
    [records(&of_a, true), records(&of_b, false)]
}

pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let of = |kind: u8| {
        let [to_acceptor, to_connector] = played(kind);
        [[&[kind][..], &to_acceptor].concat(), [&[kind | 1][..], &to_connector].concat()]
    };
    [0, 2].into_iter().flat_map(of).collect()
}

pub(crate) fn sealed_seeds() -> Vec<Vec<u8>> {
    let mut out = Vec::new();
    for kind in [0, 2] {
        let streams = played(kind | SECURE);
        for (connects, stream) in [0u8, 1].into_iter().zip(&streams) {
            for (on_its_way, at, by) in
                [(0, 0u16, 0), (0, 41, 1), (0, 300, 0x80), (8, 0, 0), (8, 200, 4), (8, 430, 1)]
            {
                let [a0, a1] = at.to_le_bytes();
                out.push([&[kind | connects | on_its_way, a0, a1, by][..], stream].concat());
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sealed_seeds_are_whole_connections() {
        for connects in [0, 1] {
            let stream = &played(SECURE)[usize::from(connects)];
            let sealer = Sealer::to(connects != 0);
            let sealed = Sealed { sealer, inside: None, outside: None, plain: 0, sent: 0 };
            let end = run(End::new(connects | SECURE), Some(sealed), stream);
            assert!(end.conn.is_ready() && end.seals && end.heard > 1, "{} messages", end.heard);
        }
    }
}
