//! Bytes that no honest peer sends: cut, changed and random messages never panic.

mod common;

use bytes::Bytes;
use codec::Decode;
use common::{captured, captured_types};
use messages::fs::{CreateReply, ReaddirReply};
use messages::{Header, Message, WireMessage};

/// Decodes, and whatever was decoded must encode too; operations are parsed, and what is inside replies.
fn feed(wire: &WireMessage) -> bool {
    let Ok(message) = Message::decode(wire) else { return false };
    if let Message::OsdOp(m) = &message {
        for op in &m.ops {
            let _ = op.parse();
        }
    }
    if let Message::ClientReply(m) = &message {
        let _ = (m.trace(), m.snap_trace());
        let _ = (ReaddirReply::from_bytes(m.extra.clone()), CreateReply::from_bytes(m.extra.clone()));
    }
    let again = message.clone().into_wire(wire.header.tid);
    assert_eq!(again.header.ty, wire.header.ty);
    true
}

#[test]
fn messages_cut_at_every_length_do_not_panic() {
    for ty in captured_types() {
        for wire in captured(ty) {
            // Each length of what is short, and a sample of the lengths of what is long.
            let step = 1 + wire.front.len() / 2000 * 37;
            for n in (0..wire.front.len()).step_by(step) {
                feed(&WireMessage { front: wire.front.slice(..n), ..wire.clone() });
            }
            for n in 0..wire.data.len().min(512) {
                feed(&WireMessage { data: wire.data.slice(..n), ..wire.clone() });
            }
        }
    }
}

/// The operations' bytes must all be there.
#[test]
fn requests_with_too_little_data_are_refused() {
    let mut checked = 0;
    for wire in captured(messages::type_numbers::OSD_OP) {
        for n in 0..wire.data.len() {
            assert!(!feed(&WireMessage { data: wire.data.slice(..n), ..wire.clone() }));
            checked += 1;
        }
    }
    assert!(checked > 100);
}

/// A generator with a fixed seed: xorshift64*.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }
    fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }
    /// Bytes that are often small numbers, so that counts and lengths are sometimes plausible.
    fn bytes(&mut self, n: usize) -> Bytes {
        let mut byte = || match self.next() % 4 {
            0 => 0,
            1 => (self.next() % 9) as u8,
            _ => self.next() as u8,
        };
        (0..n).map(|_| byte()).collect::<Vec<u8>>().into()
    }
}

#[test]
fn random_bytes_do_not_panic_in_any_message() {
    let mut random = Random(0x1011_5eed);
    let mut decoded = 0;
    for (ty, newest, _) in Message::KNOWN {
        for round in 0..300 {
            let header =
                Header { ty: *ty, version: (round % (newest + 2)), compat_version: 1, ..Header::default() };
            let (front, data) = (random.below(400), random.below(60));
            let wire = WireMessage {
                header,
                front: random.bytes(front),
                data: random.bytes(data),
                ..Default::default()
            };
            decoded += u32::from(feed(&wire));
        }
    }
    assert!(decoded > 0, "random bytes never reach the end of any decoder");
}

#[test]
fn changed_bytes_do_not_panic() {
    let mut random = Random(0x0c7a_9e55);
    for ty in captured_types() {
        for wire in captured(ty) {
            if wire.front.is_empty() {
                continue;
            }
            for _ in 0..60 {
                let mut front = wire.front.to_vec();
                for _ in 0..=random.below(3) {
                    let at = random.below(front.len());
                    front[at] = [0, 1, 0x7f, 0x80, 0xff, random.next() as u8][random.below(6)];
                }
                feed(&WireMessage { front: front.into(), ..wire.clone() });
            }
        }
    }
}

#[test]
fn unknown_types_are_kept_whole() {
    let header = Header { ty: 0x6fff, tid: 9, ..Header::default() };
    let wire = WireMessage { header, front: Bytes::from_static(b"abc"), ..Default::default() };
    let message = Message::decode(&wire).expect("no error");
    assert_eq!(message, Message::Unknown(wire.clone()));
    assert_eq!(message.into_wire(9), wire);
}

#[test]
fn a_message_for_newer_readers_is_refused() {
    for (ty, newest, name) in Message::KNOWN {
        let header = Header { ty: *ty, version: newest + 1, compat_version: newest + 1, ..Header::default() };
        assert!(Message::decode(&WireMessage { header, ..Default::default() }).is_err(), "{name}");
    }
}
