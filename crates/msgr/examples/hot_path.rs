//! The frames of one small replicated write, through both ends, without sockets, to be counted by `valgrind
//! --tool=callgrind`: instructions do not depend on what else the machine does.
//!
//!   cargo build --profile ship -p msgr --example hot_path
//!   valgrind --tool=callgrind --toggle-collect='hot_path::encode' --toggle-collect='hot_path::decode' \
//!       target/ship/examples/hot_path 2000
//!   hot_path [WRITES] [BYTES] [DEPTH]
//!
//! A client's request, the replica's work, its acknowledgement, the reply; so many at a time share one write
//! and one read of their socket. Prints nanoseconds per write, which are only a hint.

#[path = "../tests/common/mod.rs"]
mod common;

use std::time::{Duration, Instant};

use bytes::Bytes;
use common::{End, now, ready_pair};
use messages::wire::{Header, WireMessage};
use msgr::{ConMode, Event, Policy};

/// Lengths of the fronts that such messages have.
const FRONTS: [usize; 4] = [230, 780, 90, 140];

fn message(nr: u64, front: usize, data: &Bytes) -> WireMessage {
    let header =
        Header { tid: nr, ty: 42, priority: 127, version: 8, compat_version: 3, ..Header::default() };
    WireMessage {
        header,
        front: vec![nr as u8; front].into(),
        middle: Bytes::new(),
        data: data.clone(),
        more: Vec::new(),
    }
}

#[inline(never)]
fn encode(from: &mut End, messages: Vec<WireMessage>, pieces: &mut Vec<Bytes>) {
    for message in messages {
        from.conn.send(message).expect("sent");
    }
    from.conn.take_outgoing(pieces);
}

/// How many messages came out.
#[inline(never)]
fn decode(to: &mut End) -> usize {
    to.conn.handle_bytes(now(5), &mut to.buf);
    std::iter::from_fn(|| to.conn.poll_event()).filter(|e| matches!(e, Event::Message(_))).count()
}

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let number = |at: usize, or: usize| args.get(at).map_or(or, |a| a.parse().expect("a number"));
    let (writes, bytes, depth) = (number(1, 20_000), number(2, 4096), number(3, 4));
    let data = Bytes::from(vec![0x5a; bytes]);
    let mut links = [Policy::stateless_server(), Policy::lossless_peer()].map(|policy| {
        let (mut from, mut to) = ready_pair(ConMode::Crc, 0, policy);
        from.events.clear();
        to.events.clear();
        (from, to)
    });
    let (mut pieces, mut busy) = (Vec::new(), Duration::ZERO);
    for first in (0..writes).step_by(depth) {
        for (step, front) in FRONTS.into_iter().enumerate() {
            // The client's connection for the first and the last, that between the OSDs for the others.
            let (a, b) = &mut links[usize::from(step == 1 || step == 2)];
            let (from, to) = if step < 2 { (a, b) } else { (b, a) };
            let payload = if step < 2 { data.clone() } else { Bytes::new() };
            let messages = (0..depth).map(|i| message((first + i) as u64, front, &payload)).collect();
            let begin = Instant::now();
            encode(from, messages, &mut pieces);
            busy += begin.elapsed();
            // What the socket does.
            pieces.drain(..).for_each(|piece| to.buf.extend_from_slice(&piece));
            let begin = Instant::now();
            assert_eq!(decode(to), depth, "every message arrives");
            busy += begin.elapsed();
        }
    }
    println!(
        "{bytes} bytes, {depth} at a time: {} ns of frames per write",
        busy.as_nanos() as usize / writes
    );
}
