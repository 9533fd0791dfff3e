//! Damaged, truncated, misplaced and random input: the connection closes with a typed error, and nothing else
//! happens.

use crate::common;

use bytes::{BufMut, Bytes, BytesMut};
use codec::crc32c;
use common::*;
use messages::wire::WireMessage;
use msgr::{ConMode, Connection, Error, Event, Limits, Policy, Session, Tag};
use types::EntityType;

/// A well-formed crc frame.
fn frame(tag: u8, segments: &[&[u8]]) -> Vec<u8> {
    let mut head = BytesMut::new();
    head.put_u8(tag);
    head.put_u8(segments.len() as u8);
    for i in 0..4 {
        head.put_u32_le(segments.get(i).map_or(0, |s| s.len() as u32));
        head.put_u16_le(if i < segments.len() { 8 } else { 0 });
    }
    head.put_u16_le(0);
    head.put_u32_le(crc32c(0, &head));
    let first = segments[0];
    head.put_slice(first);
    if !first.is_empty() {
        head.put_u32_le(crc32c(!0, first));
    }
    if segments.len() > 1 {
        segments[1..].iter().for_each(|s| head.put_slice(s));
        head.put_u8(0xe);
        for i in 1..4 {
            head.put_u32_le(segments.get(i).map_or(0, |s| crc32c(!0, s)));
        }
    }
    head.to_vec()
}

/// The bytes of a whole connection: handshake, messages and keepalives both ways. (To the acceptor, to the
/// connector.)
fn streams(mode: ConMode) -> (Vec<u8>, Vec<u8>) {
    let policy = Policy::lossless_peer();
    let (mut c, mut s) = pair(mode, 3, outgoing_session(policy), Session::incoming(policy));
    let (mut up, mut down) = pump(&mut c, &mut s, 0);
    c.conn.send(message(3, 50)).expect("sent");
    s.conn.send(message(6, 50)).expect("sent");
    c.conn.send_keepalive(now(7));
    s.conn.send_keepalive(now(7));
    let (a, b) = pump(&mut c, &mut s, 0);
    up.extend(a);
    down.extend(b);
    (up, down)
}

fn fresh(mode: ConMode) -> (End, End) {
    let policy = Policy::lossless_peer();
    pair(mode, 3, outgoing_session(policy), Session::incoming(policy))
}

/// What `end` says to `bytes`.
fn hear(mut end: End, bytes: &[u8]) -> Vec<Event> {
    end.receive(bytes);
    end.events
}

fn damaged_is_found(mode: ConMode, bytes: &[u8], make: impl Fn() -> End) {
    let whole = hear(make(), bytes);
    assert!(!whole.iter().any(|e| matches!(e, Event::Closed(_))));
    let mut harmless = 0;
    for at in 0..bytes.len() {
        let mut bad = bytes.to_vec();
        bad[at] ^= 1 << (at % 8);
        let said = hear(make(), &bad);
        if let Some((Event::Closed(_), before)) = said.split_last() {
            assert!(whole.starts_with(before), "{mode:?} {at}: nothing wrong was said before");
        } else if said.len() < whole.len() {
            panic!("{mode:?} {at}: waits for more");
        } else {
            // Bits that mean nothing: unknown features of the banner, reserved bits and unused checksums of
            // epilogues.
            assert_eq!(said, whole, "{mode:?} {at}");
            harmless += 1;
        }
    }
    assert!(harmless <= 40, "{harmless}");
}

#[test]
fn every_flipped_bit_is_found_or_means_nothing() {
    for mode in [ConMode::Crc, ConMode::Secure] {
        let (up, down) = streams(mode);
        damaged_is_found(mode, &up, || fresh(mode).1);
        damaged_is_found(mode, &down, || {
            let mut c = fresh(mode).0;
            // What it sent before counts in the signature, and it must have sent what it is answered to.
            c.conn.poll_event();
            c
        });
    }
}

#[test]
fn truncation_only_waits() {
    for mode in [ConMode::Crc, ConMode::Secure] {
        let (up, _) = streams(mode);
        let whole = hear(fresh(mode).1, &up);
        let mut events = 0;
        for n in 0..=up.len() {
            let said = hear(fresh(mode).1, &up[..n]);
            assert!(whole.starts_with(&said) && said.len() >= events, "{n}");
            assert!(said.len() <= events + 2, "an event comes with its last byte");
            events = said.len();
        }
        assert_eq!(events, whole.len());
    }
}

/// Stages of an acceptor and of a connector: how much of the recorded bytes they have heard.
fn stages(bytes: &[u8]) -> Vec<usize> {
    let mut at = 26;
    let mut all = vec![0, 26];
    while at < bytes.len() {
        let len = |i: usize| {
            u32::from_le_bytes(bytes[at + 2 + 6 * i..at + 6 + 6 * i].try_into().expect("4")) as usize
        };
        let first = if len(0) == 0 { 0 } else { len(0) + 4 };
        let rest = if bytes[at + 1] == 1 { 0 } else { len(1) + len(2) + len(3) + 13 };
        at += 32 + first + rest;
        all.push(at);
    }
    all
}

fn at_stage(connector: bool, prefix: &[u8]) -> End {
    let (c, s) = fresh(ConMode::Crc);
    let mut end = if connector { c } else { s };
    end.receive(prefix);
    assert!(end.closed().is_none());
    end.events.clear();
    end
}

#[test]
fn every_tag_in_every_state_with_every_short_payload() {
    let (up, down) = streams(ConMode::Crc);
    let payload: Vec<u8> = (0..64u8).map(|i| if i % 4 == 0 { i } else { 0 }).collect();
    let mut kinds = std::collections::BTreeSet::new();
    for (connector, bytes) in [(false, &up), (true, &down)] {
        for stage in stages(bytes) {
            for tag in 0..=25u8 {
                for n in [0, 1, 3, 4, 5, 7, 8, 9, 12, 16, 31, 32, 40, 41, 48, 64] {
                    let mut end = at_stage(connector, &bytes[..stage]);
                    end.receive(&frame(tag, &[&payload[..n]]));
                    let known = Tag::from_u8(tag).is_some();
                    match end.closed() {
                        None => {
                            assert!(known && stage >= 26, "{stage} {tag}");
                            kinds.insert(tag);
                        }
                        Some(Error::UnknownTag(t)) => assert!(*t == tag && !known),
                        Some(e) => assert!(known || stage == 0, "{stage} {tag} {e:?}"),
                    }
                }
            }
        }
    }
    // Some of these bytes are a frame's proper fields, somewhere.
    for tag in [Tag::Ack, Tag::Keepalive2, Tag::Keepalive2Ack, Tag::Message, Tag::AuthRequest] {
        assert!(kinds.contains(&(tag as u8)), "{tag:?}");
    }
}

#[test]
fn reconnect_answers_cut_short() {
    for tag in [Tag::SessionReset, Tag::SessionRetry, Tag::SessionRetryGlobal, Tag::SessionReconnectOk] {
        for n in 0..9 {
            let (mut c, mut s) = ready_pair(ConMode::Crc, 1, Policy::lossless_peer());
            let session = c.conn.take_session().expect("a session");
            s.conn.take_session();
            let (mut c, mut s) = pair(ConMode::Crc, 2, session, Session::incoming(Policy::lossless_peer()));
            s.on_request = None;
            pump(&mut c, &mut s, 0);
            assert!(matches!(s.events.last(), Some(Event::SessionRequest(_))));
            c.receive(&frame(tag as u8, &[&[0u8; 8][..n]]));
            let enough = n >= if tag == Tag::SessionReset { 1 } else { 8 };
            assert_eq!(c.closed().is_none(), enough, "{tag:?} {n} {:?}", c.closed());
        }
    }
}

fn closes_with(connector: bool, prefix: &[u8], bytes: &[u8], want: &Error) {
    let mut end = at_stage(connector, prefix);
    end.receive(bytes);
    assert_eq!(end.closed(), Some(want));
    assert!(end.buf.is_empty());
}

#[test]
fn typed_errors() {
    let (up, _) = streams(ConMode::Crc);
    closes_with(false, &[], b"GET / HTTP/1.1\r\n", &Error::BadBanner);
    closes_with(false, &[], b"c\0", &Error::BadBanner);
    closes_with(false, &[], b"ceph v2\n\x11\0", &Error::BadBanner);
    closes_with(false, &[], b"ceph v027", &Error::LegacyPeer);
    let mut banner = up[..26].to_vec();
    banner[10] = 0;
    closes_with(false, &[], &banner, &Error::NoRevision1 { missing: 1 });
    banner[10] = 1;
    banner[18] = 4;
    closes_with(false, &[], &banner, &Error::UnknownRequired { unknown: 4 });

    let hello = &up[..26];
    let bad = |f: &dyn Fn(&mut Vec<u8>)| {
        let mut raw = frame(1, &[b"x"]);
        f(&mut raw);
        let crc = crc32c(0, &raw[..28]);
        raw[28..32].copy_from_slice(&crc.to_le_bytes());
        raw
    };
    closes_with(false, hello, &bad(&|r| r[1] = 0), &Error::BadSegmentCount(0));
    closes_with(false, hello, &bad(&|r| r[1] = 5), &Error::BadSegmentCount(5));
    closes_with(false, hello, &bad(&|r| r[1] = 2), &Error::EmptyLastSegment);
    closes_with(false, hello, &bad(&|r| r[0] = 99), &Error::UnknownTag(99));
    closes_with(false, hello, &bad(&|r| r[33] ^= 1), &Error::BadSegmentCrc(0));
    let huge = Error::FrameTooLarge { tag: Tag::Hello, segment: 0, claimed: 0xffff_ffff, bound: 512 };
    closes_with(false, hello, &bad(&|r| r[2..6].fill(0xff)), &huge);
    let shape = Error::BadFrameShape { tag: Tag::Hello, segments: 2 };
    closes_with(false, hello, &frame(1, &[b"x", b"y"]), &shape);
    let early = Error::UnexpectedFrame { tag: Tag::Message, state: "waiting for the peer's hello" };
    closes_with(false, hello, &frame(17, &[&[0; 41], b"front"]), &early);

    // A message before authentication is refused by its head: its body is not waited for.
    closes_with(false, hello, &frame(17, &[&[0; 41], &[0; 9000]])[..32], &early);
    let ready = &up[..];
    let header = Error::BadFrameShape { tag: Tag::Message, segments: 1 };
    closes_with(false, ready, &frame(17, &[&[0; 40]]), &header);
    let mut late = frame(17, &[&[9; 41], b"front"]);
    let n = late.len();
    late[n - 13] = 0x7;
    closes_with(false, ready, &late, &Error::BadLateStatus(0x7));
    let limits = Limits::default();
    let mut claims = frame(17, &[&[9; 41], b"f", b"m", b"d"]);
    claims[20..24].copy_from_slice(&(limits.data_bytes + 1).to_le_bytes());
    let crc = crc32c(0, &claims[..28]);
    claims[28..32].copy_from_slice(&crc.to_le_bytes());
    let (claimed, bound) = (u64::from(limits.data_bytes) + 1, u64::from(limits.data_bytes));
    closes_with(
        false,
        ready,
        &claims,
        &Error::FrameTooLarge { tag: Tag::Message, segment: 3, claimed, bound },
    );
}

#[test]
fn an_aborted_message_is_dropped_and_the_next_one_read() {
    let (mut c, mut s) = ready_pair(ConMode::Crc, 1, Policy::lossless_peer());
    let mut header = [0u8; 41];
    header[0] = 1;
    let mut raw = frame(17, &[&header, b"half a front"]);
    let n = raw.len();
    raw[n - 13..].fill(0);
    raw[n - 13] = 0x1;
    raw[32 + 41 + 4 + 5..n - 13].fill(0);
    s.receive(&raw);
    assert_eq!(s.events, []);
    c.conn.send(message(1, 10)).expect("sent");
    let bytes = c.outgoing();
    s.receive(&bytes);
    assert_eq!(s.messages().len(), 1);
}

#[test]
fn calls_in_the_wrong_state_close_and_calls_on_the_closed_do_nothing() {
    let me = local(EntityType::Osd, 1, SERVER);
    let mut a = Connection::accept(now(0), me, addr("v2:127.0.0.1:50000/0"), Limits::default());
    a.auth_done(1, ConMode::Crc, Bytes::new(), &[], &[]);
    assert!(matches!(a.poll_event(), Some(Event::Closed(Error::Misuse { call: "auth_done", .. }))));
    a.auth_established(&[], &[]);
    a.accept_session(Session::incoming(Policy::lossless_peer()), 1, 1);
    a.set_global_seq(1);
    a.refuse(-13);
    a.tick(now(1_000_000));
    assert_eq!(a.poll_event(), None);
    assert_eq!(a.send(WireMessage::default()), Err(WireMessage::default()));
    let (mut c, _) = ready_pair(ConMode::Crc, 1, Policy::lossless_peer());
    c.conn.auth_request(1, &[], Bytes::new());
    assert!(matches!(c.conn.poll_event(), Some(Event::Closed(Error::Misuse { .. }))));
    assert!(c.conn.take_session().is_some(), "the session is not lost");
}

#[test]
fn before_authentication_memory_is_bounded() {
    let bound = Limits::default().handshake_bytes;
    // Rounds of authentication without end.
    let (up, down) = streams(ConMode::Crc);
    let heard = stages(&up);
    let mut s = at_stage(false, &up[..heard[2]]);
    s.buf.extend_from_slice(&up[heard[2]..heard[3]]);
    let mut fed = 0;
    loop {
        s.conn.handle_bytes(now(1), &mut s.buf);
        match s.conn.poll_event() {
            Some(Event::AuthRequest { .. } | Event::AuthRequestMore { .. }) => {
                s.conn.auth_reply_more(Bytes::new());
            }
            Some(Event::Closed(e)) => {
                assert_eq!(e, Error::HandshakeTooLarge);
                break;
            }
            other => panic!("{other:?}"),
        }
        let mut payload = 20_000u32.to_le_bytes().to_vec();
        payload.resize(20_004, 7);
        let more = frame(5, &[&payload]);
        fed += more.len();
        assert!(fed < 2 * bound);
        s.buf.extend_from_slice(&more);
    }
    // Bytes sent while the owner thinks.
    let mut c = fresh(ConMode::Crc).0;
    c.connector = false; // the owner does not answer
    c.receive(&down[..98]);
    assert_eq!(c.conn.wants(&c.buf), 0);
    for _ in 0..bound / 1000 {
        c.receive(&[0; 1000]);
    }
    assert_eq!(c.closed(), None);
    c.receive(&[0; 1000]);
    assert_eq!(c.closed(), Some(&Error::HandshakeTooLarge));
}

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.0 >> 24
    }
    fn below(&mut self, n: usize) -> usize {
        self.next() as usize % n
    }
    fn bytes(&mut self, n: usize) -> Vec<u8> {
        (0..n).map(|_| if self.below(3) == 0 { self.next() as u8 } else { self.below(3) as u8 }).collect()
    }
}

#[test]
fn a_hundred_thousand_random_inputs() {
    let mut r = Random(2026);
    let (up, down) = streams(ConMode::Crc);
    let (ups, downs) = (stages(&up), stages(&down));
    let (mut closed, mut lived) = (0, 0);
    let mut inputs = 0;
    while inputs < 100_000 {
        let connector = r.below(2) == 0;
        let (bytes, stages) = if connector { (&down, &downs) } else { (&up, &ups) };
        let mut end = at_stage(connector, &bytes[..stages[r.below(stages.len())]]);
        // One connection takes inputs until it closes.
        for _ in 0..40 {
            inputs += 1;
            let input = random_input(&mut r, bytes);
            end.receive(&input);
            if end.closed().is_some() {
                closed += 1;
                break;
            }
            lived += 1;
            let mut out = vec![];
            end.conn.take_outgoing(&mut out);
            assert!(
                end.conn.is_authenticated() || end.buf.capacity() <= 4 * Limits::default().handshake_bytes
            );
        }
    }
    assert!(closed > 10_000 && lived > 5_000, "{closed} {lived}");
}

fn random_input(r: &mut Random, recorded: &[u8]) -> Vec<u8> {
    match r.below(6) {
        0 => {
            let n = r.below(200);
            r.bytes(n)
        }
        1 => {
            let at = r.below(recorded.len());
            let n = r.below(300).min(recorded.len() - at);
            recorded[at..at + n].to_vec()
        }
        2 => {
            let (a, b, c) = (r.below(100) + 1, r.below(40) + 1, r.below(100) + 1);
            let (a, b, c) = (r.bytes(a), r.bytes(b), r.bytes(c));
            let mut header = r.bytes(41);
            header[1..8].fill(0);
            frame(17, &[&header, &a, &b, &c])
        }
        _ => {
            let n = r.below(120);
            let payload = r.bytes(n);
            frame(18 + r.below(3) as u8 * u8::from(r.below(4) > 0), &[&payload]).tap(r)
        }
    }
}

trait Tap {
    fn tap(self, r: &mut Random) -> Self;
}

impl Tap for Vec<u8> {
    /// Now and then another tag, with a proper checksum.
    fn tap(mut self, r: &mut Random) -> Self {
        if r.below(3) == 0 {
            self[0] = r.below(24) as u8;
            let crc = crc32c(0, &self[..28]);
            self[28..32].copy_from_slice(&crc.to_le_bytes());
        }
        self
    }
}
