//! Two ends over pipes: whole handshakes and messages, cut at every position, in crc and in secure mode.

use crate::common;

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use common::*;

use msgr::{ConMode, Connection, Error, Event, Limits, Policy, Session, SessionAnswer};
use types::EntityType;

const MODES: [ConMode; 2] = [ConMode::Crc, ConMode::Secure];

fn exchange(mode: ConMode, chunk: usize) -> (Vec<Event>, Vec<Event>, Vec<u8>, Vec<u8>) {
    let policy = Policy::lossless_peer();
    let (mut c, mut s) = pair(mode, 3, outgoing_session(policy), Session::incoming(policy));
    // Before the session stands, the connector queues; the acceptor has nobody to send to.
    for nr in 1..4 {
        c.conn.send(message(nr, 100 * nr as usize)).expect("queued");
    }
    assert!(s.conn.send(message(1, 1)).is_err());
    let (mut up, mut down) = pump(&mut c, &mut s, chunk);
    for nr in 4..7 {
        s.conn.send(message(nr, 5000)).expect("sent");
    }
    c.conn.send_keepalive(now(7));
    let (a, b) = pump(&mut c, &mut s, chunk);
    up.extend(a);
    down.extend(b);
    (c.events, s.events, up, down)
}

#[test]
fn every_chunk_size_gives_the_same_events() {
    for mode in MODES {
        let (c, s, up, down) = exchange(mode, 0);
        let sent: Vec<_> = (1..4).map(|nr| message(nr, 100 * nr as usize)).collect();
        let got: Vec<_> = s
            .iter()
            .filter_map(|e| if let Event::Message(m) = e { Some(content(m)) } else { None })
            .collect();
        assert_eq!(got, sent);
        let sent: Vec<_> = (4..7).map(|nr| message(nr, 5000)).collect();
        let got: Vec<_> = c
            .iter()
            .filter_map(|e| if let Event::Message(m) = e { Some(content(m)) } else { None })
            .collect();
        assert_eq!(got, sent);
        assert!(c.contains(&Event::KeepaliveAck(now(7).wall)));
        for chunk in [1, 2, 3, 7, 16, 31, 95, 97, 1000] {
            let (c2, s2, up2, down2) = exchange(mode, chunk);
            assert!(c2 == c && s2 == s, "{mode:?} {chunk}");
            if mode == ConMode::Crc {
                // Acks are batched by what comes in at once; the rest is the same.
                assert!(up2.starts_with(&up[..400]) && down2.starts_with(&down[..400]));
            }
        }
    }
}

#[test]
fn one_cut_at_every_position() {
    for mode in MODES {
        let (c, s, up, down) = exchange(mode, 0);
        // The same bytes again, each direction in two pieces, cut everywhere. Secrets are the same, so are
        // the bytes.
        for cut in 1..up.len().max(down.len()) {
            if cut > 700 && cut % 13 != 0 {
                continue;
            }
            let policy = Policy::lossless_peer();
            let (mut c2, mut s2) = pair(mode, 3, outgoing_session(policy), Session::incoming(policy));
            for nr in 1..4 {
                c2.conn.send(message(nr, 100 * nr as usize)).expect("queued");
            }
            let (a, b) = up.split_at(cut.min(up.len()));
            s2.receive(a);
            s2.receive(b);
            let (a, b) = down.split_at(cut.min(down.len()));
            c2.receive(a);
            c2.receive(b);
            assert_eq!(s2.messages().len(), 3, "{cut}");
            assert_eq!(c2.messages().len(), 3, "{cut}");
            let same = |a: &[Event], b: &[Event]| {
                a.iter()
                    .filter(|e| **e != Event::KeepaliveAck(now(7).wall))
                    .eq(b.iter().filter(|e| **e != Event::KeepaliveAck(now(7).wall)))
            };
            assert!(same(&c, &c2.events) && same(&s, &s2.events), "{mode:?} {cut}");
        }
    }
}

#[test]
fn many_messages_are_acknowledged_once_and_by_messages_if_there_are_any() {
    let (mut c, mut s) = ready_pair(ConMode::Crc, 1, Policy::lossless_peer());
    let many = Limits::default().ack_messages as u64;
    for nr in 1..=many {
        assert!(s.outgoing().is_empty(), "not yet");
        c.conn.send(message(nr, 10)).expect("sent");
        let bytes = c.outgoing();
        s.receive(&bytes);
    }
    assert_eq!(c.conn.session().expect("session").pending().0, many as usize);
    let ack = s.outgoing();
    assert_eq!((ack.len(), ack[0], u64::from(ack[32])), (32 + 8 + 4, 20, many), "one ACK of the last seq");
    assert!(s.outgoing().is_empty());
    c.receive(&ack);
    assert!(!c.conn.session().expect("session").has_pending());
    // A reply carries the acknowledgement.
    c.conn.send(message(9, 10)).expect("sent");
    let bytes = c.outgoing();
    s.receive(&bytes);
    s.conn.send(message(1, 0)).expect("sent");
    let reply = s.outgoing();
    assert_eq!(reply[0], 17);
    c.receive(&reply);
    assert!(!c.conn.session().expect("session").has_pending());
    assert!(s.outgoing().is_empty());
}

#[test]
fn a_few_messages_are_acknowledged_after_a_while_and_large_ones_at_once() {
    let (mut c, mut s) = ready_pair(ConMode::Crc, 1, Policy::lossless_peer());
    c.conn.send(message(1, 10)).expect("sent");
    let bytes = c.outgoing();
    s.receive(&bytes);
    let due = s.conn.next_deadline().expect("a deadline");
    let at = |mono| types::Now { mono, ..now(5) };
    s.conn.tick(at(due - Duration::from_millis(1)));
    assert!(s.outgoing().is_empty());
    s.conn.tick(at(due));
    let ack = s.outgoing();
    c.receive(&ack);
    assert!(!c.conn.session().expect("session").has_pending());
    assert!(s.conn.next_deadline().expect("the idle timeout") > due + Duration::from_secs(60));
    c.conn.send(message(2, Limits::default().ack_bytes)).expect("sent");
    let bytes = c.outgoing();
    s.receive(&bytes);
    let ack = s.outgoing();
    c.receive(&ack);
    assert!(!c.conn.session().expect("session").has_pending());
}

#[test]
fn lossy_sessions_keep_and_acknowledge_nothing() {
    let (mut c, mut s) = ready_pair(ConMode::Crc, 1, Policy::lossy_client());
    c.conn.send(message(1, 10)).expect("sent");
    let bytes = c.outgoing();
    s.receive(&bytes);
    assert_eq!(s.messages().len(), 1);
    assert!(s.outgoing().is_empty());
    assert!(!c.conn.session().expect("session").has_pending());
}

#[test]
fn payload_is_not_copied_in_crc_mode() {
    let (mut c, mut s) = ready_pair(ConMode::Crc, 1, Policy::lossless_peer());
    let msg = message(1, 100_000);
    let before = msg.data.as_ptr();
    c.conn.send(msg.clone()).expect("sent");
    let mut out = Vec::new();
    c.conn.take_outgoing(&mut out);
    assert!(out.iter().any(|piece| piece.as_ptr() == before && piece.len() == 100_000));
    assert_eq!(out.len(), 3, "head, data, epilogue");
    // Receiving: into the buffer whose room was made after the head came.
    s.receive(&out[0]);
    assert_eq!(s.conn.wants(&s.buf), 100_000 + 13);
    assert!(s.buf.capacity() - s.buf.len() >= 100_000 + 13);
    let place = s.buf.as_ptr() as usize..s.buf.as_ptr() as usize + s.buf.capacity();
    s.buf.extend_from_slice(&out[1]);
    s.receive(&out[2]);
    let got = s.messages();
    assert!(place.contains(&(got[0].data.as_ptr() as usize)));
    assert_eq!(content(&got[0]), content(&msg));
}

#[test]
fn room_for_a_claimed_length_grows_with_what_comes() {
    let (mut c, mut s) = ready_pair(ConMode::Crc, 1, Policy::lossless_peer());
    let mut msg = message(1, 0);
    msg.data = Bytes::from(vec![7u8; 40 << 20]);
    c.conn.send(msg).expect("sent");
    let mut out = Vec::new();
    c.conn.take_outgoing(&mut out);
    let limits = Limits::default();
    let stream = out.concat();
    let mut fed = 0;
    while fed < stream.len() {
        let n = (s.buf.capacity() - s.buf.len()).min(stream.len() - fed).max(1);
        assert!(s.buf.capacity() <= 2 * fed + 2 * limits.reserve_bytes, "{fed}");
        s.receive(&stream[fed..fed + n]);
        fed += n;
    }
    assert_eq!(s.messages()[0].data.len(), 40 << 20);
}

#[test]
fn a_refused_method_may_be_followed_by_another() {
    let policy = Policy::lossy_client();
    let (mut c, mut s) = pair(ConMode::Crc, 1, outgoing_session(policy), Session::incoming(policy));
    let hello = c.outgoing();
    s.receive(&hello);
    let hello = s.outgoing();
    c.receive(&hello);
    let rest = c.outgoing();
    s.receive(&rest[..72]);
    // By hand from here.
    s.buf.extend_from_slice(&rest[72..]);
    s.conn.handle_bytes(now(1), &mut s.buf);
    let asked = std::iter::from_fn(|| s.conn.poll_event()).last();
    assert_eq!(
        asked,
        Some(Event::AuthRequest { method: 2, preferred_modes: vec![2, 1], payload: "first".into() })
    );
    s.conn.auth_bad_method(2, -95, &[1], &[ConMode::Crc]);
    let no = s.outgoing();
    c.buf.extend_from_slice(&no);
    c.conn.handle_bytes(now(1), &mut c.buf);
    let told = std::iter::from_fn(|| c.conn.poll_event()).last();
    let want =
        Event::AuthBadMethod { method: 2, result: -95, allowed_methods: vec![1], allowed_modes: vec![1] };
    assert_eq!(told, Some(want));
    c.conn.auth_request(1, &[ConMode::Crc], Bytes::new());
    let again = c.outgoing();
    s.buf.extend_from_slice(&again);
    s.conn.handle_bytes(now(1), &mut s.buf);
    s.conn.poll_event();
    s.conn.auth_done(5, ConMode::Crc, Bytes::new(), &[], &[]);
    let done = s.outgoing();
    c.buf.extend_from_slice(&done);
    c.conn.handle_bytes(now(1), &mut c.buf);
    assert!(matches!(c.conn.poll_event(), Some(Event::AuthDone { global_id: 5, .. })));
    c.conn.auth_established(&[], &[]);
    pump(&mut c, &mut s, 0);
    assert!(c.conn.is_ready() && s.conn.is_ready());
}

#[test]
fn missing_features_are_named_and_end_the_attempt() {
    let policy = Policy::lossy_client();
    let (mut c, mut s) = pair(ConMode::Crc, 1, outgoing_session(policy), Session::incoming(policy));
    // The acceptor's owner says no at the session request.
    loop {
        let (a, b) = (c.outgoing(), s.outgoing());
        c.receive(&b);
        s.buf.extend_from_slice(&a);
        s.conn.handle_bytes(now(1), &mut s.buf);
        let mut asked = false;
        while let Some(e) = s.conn.poll_event() {
            match e {
                Event::AuthRequest { .. } => s.conn.auth_reply_more(Bytes::new()),
                Event::AuthRequestMore { .. } => s.conn.auth_done(1, ConMode::Crc, Bytes::new(), KEY, &[]),
                Event::SessionRequest(_) => asked = true,
                _ => {}
            }
        }
        if asked {
            s.conn.answer_session(SessionAnswer::MissingFeatures(0x40));
            break;
        }
    }
    pump(&mut c, &mut s, 0);
    assert_eq!(c.closed(), Some(&Error::MissingFeatures(0x40)));
    assert!(s.closed().is_none());
}

#[test]
fn a_wrong_key_is_found_by_the_signature() {
    for wrong_client in [true, false] {
        let policy = Policy::lossy_client();
        let (mut c, mut s) = pair(ConMode::Crc, 1, outgoing_session(policy), Session::incoming(policy));
        let end = if wrong_client { &mut c } else { &mut s };
        end.key = b"another key 1234".to_vec();
        pump(&mut c, &mut s, 0);
        assert_eq!(c.closed(), Some(&Error::BadSignature));
        assert_eq!(s.closed(), Some(&Error::BadSignature));
    }
    // In secure mode a wrong secret is found by the first sealed frame.
    let policy = Policy::lossy_client();
    let (mut c, mut s) = pair(ConMode::Secure, 1, outgoing_session(policy), Session::incoming(policy));
    c.secret[3] ^= 1;
    pump(&mut c, &mut s, 0);
    assert_eq!((c.closed(), s.closed()), (Some(&Error::BadAuthTag), Some(&Error::BadAuthTag)));
}

#[test]
fn a_changed_handshake_byte_never_leads_to_a_session() {
    // Someone in the middle who fixes all checksums is found by the signatures.
    let policy = Policy::lossy_client();
    let (mut c, mut s) = pair(ConMode::Crc, 1, outgoing_session(policy), Session::incoming(policy));
    let banner = c.outgoing();
    s.receive(&banner);
    let mut banner = s.outgoing();
    // The server's supported features gain a bit that nobody checks.
    banner[17] ^= 0x80;
    c.receive(&banner);
    pump(&mut c, &mut s, 0);
    assert_eq!(c.closed(), None, "what the client sent is what the server got");
    assert_eq!(s.closed(), Some(&Error::BadSignature));
}

#[test]
fn time_limits() {
    let limits = Limits { keepalive_after: Some(std::time::Duration::from_secs(2)), ..Limits::default() };
    let me = local(EntityType::Osd, 1, SERVER);
    let mut a = Connection::accept(now(100), me, addr("v2:127.0.0.1:50000/0"), limits);
    assert_eq!(a.next_deadline(), Some(now(10_100).mono));
    a.tick(now(10_099));
    assert_eq!(a.poll_event(), None);
    a.tick(now(10_100));
    assert_eq!(a.poll_event(), Some(Event::Closed(Error::HandshakeTimeout)));
    assert_eq!(a.next_deadline(), None);
    let mut ignored = BytesMut::from(&b"ceph v2\n"[..]);
    a.handle_bytes(now(10_200), &mut ignored);
    assert!(ignored.is_empty() && a.poll_event().is_none());

    let (mut c, _s) = ready_pair(ConMode::Crc, 1, Policy::lossless_peer());
    c.conn.tick(now(5 + 899_999));
    assert_eq!(c.conn.poll_event(), None);
    c.conn.tick(now(5 + 900_000));
    assert_eq!(c.conn.poll_event(), Some(Event::Closed(Error::IdleTimeout)));
}

#[test]
fn keepalives_go_out_when_nothing_is_heard() {
    let limits = Limits { keepalive_after: Some(std::time::Duration::from_secs(2)), ..Limits::default() };
    let (mut c, mut s) = pair_with(
        ConMode::Crc,
        1,
        outgoing_session(Policy::lossless_peer()),
        Session::incoming(Policy::lossless_peer()),
        limits,
    );
    pump(&mut c, &mut s, 0);
    c.conn.tick(now(2004));
    assert_eq!(c.conn.outgoing_len(), 0);
    assert_eq!(c.conn.next_deadline(), Some(now(2005).mono));
    c.conn.tick(now(2005));
    assert_eq!(c.conn.outgoing_len(), 44);
    c.conn.tick(now(2006));
    assert_eq!(c.conn.outgoing_len(), 44, "not again at once");
    pump(&mut c, &mut s, 0);
    assert_eq!(c.events.last(), Some(&Event::KeepaliveAck(now(2005).wall)));
}

#[test]
fn much_data_lies_on_a_page_in_one_piece_and_its_checksums_are_known() {
    for (mode, chunk) in
        [(ConMode::Crc, 1000), (ConMode::Crc, 64 << 10), (ConMode::Crc, 1 << 20), (ConMode::Secure, 64 << 10)]
    {
        let policy = Policy::lossless_peer();
        let (mut c, mut s) = ready_pair(mode, 3, policy);
        let sent: Vec<_> = [4 << 20, 100, 200_001, 65_536].into_iter().map(|len| message(1, len)).collect();
        for message in &sent {
            c.conn.send(message.clone()).expect("sent");
        }
        let bytes = c.outgoing();
        let mut rest = bytes.as_slice();
        while !rest.is_empty() {
            // As a socket does: never more than the room that there is.
            let room = s.buf.capacity() - s.buf.len();
            let (part, behind) = rest.split_at(rest.len().min(chunk).min(room.max(1)));
            s.receive(part);
            rest = behind;
        }
        let got = s.messages();
        assert_eq!(got.iter().map(content).collect::<Vec<_>>(), sent, "{chunk}");
        for message in got.iter().filter(|m| m.data.len() > 128 << 10 && mode == ConMode::Crc) {
            assert_eq!(
                message.data.as_ptr().addr() % 4096,
                0,
                "{} bytes in pieces of {chunk}",
                message.data.len()
            );
            let sums = codec::sums::chunk_sums(&message.data).expect("known");
            assert_eq!(sums.len(), message.data.len() / codec::sums::CHUNK);
        }
    }
}

#[test]
fn a_frame_longer_than_what_is_reserved_is_moved_a_few_times_only() {
    let reserve = Limits::default().reserve_bytes;
    for mode in [ConMode::Crc, ConMode::Secure] {
        for len in [reserve, reserve + 70_000, 16 << 20, 18_000_001] {
            let (mut c, mut s) = ready_pair(mode, 3, Policy::lossless_peer());
            let sent = message(1, len);
            c.conn.send(sent.clone()).expect("sent");
            let bytes = c.outgoing();
            let (mut moves, mut place) = (0, s.buf.as_ptr());
            for part in bytes.chunks(1000) {
                s.receive(part);
                moves += usize::from(place != s.buf.as_ptr());
                place = s.buf.as_ptr();
            }
            assert!(moves <= 8, "{mode:?}, {len} bytes: moved {moves} times");
            let got = s.messages();
            assert_eq!(got.iter().map(content).collect::<Vec<_>>(), [sent]);
            assert!(mode == ConMode::Secure || got[0].data.as_ptr().addr() % 4096 == 0, "{len} bytes");
        }
    }
}

#[test]
fn a_flipped_bit_in_much_data_is_found() {
    let (mut c, mut s) = ready_pair(ConMode::Crc, 3, Policy::lossless_peer());
    c.conn.send(message(1, 1 << 20)).expect("sent");
    let mut bytes = c.outgoing();
    let at = bytes.len() / 2;
    bytes[at] ^= 4;
    s.receive(&bytes);
    assert_eq!(s.closed(), Some(&Error::BadSegmentCrc(3)));
}
