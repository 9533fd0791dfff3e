//! Sessions over connections that break anywhere: everything arrives once and in order, unless a session is
//! given up.

use std::collections::BTreeMap;

use bytes::Bytes;
use testkit::Rng;
use types::ConnId;

use crate::net::{Arrival, Delivery, End, Net, Node, Packet};
use crate::queue::{MILLISECOND, Time};
use crate::wire::{Told, Wire};

const OSDS: [Node; 2] = [Node::Osd(0), Node::Osd(1)];

/// Two OSDs, and a lossless session that one of them opened.
struct Pair {
    net: Net,
    conn: ConnId,
    now: Time,
    planned: BTreeMap<(Time, u64), Delivery>,
    seq: u64,
    heard: Vec<u32>,
    resumed: u32,
    resets: u32,
    over: u32,
}

impl Pair {
    fn new(seed: u64) -> Self {
        let mut net = Net::new(seed, 100_000, Some(Wire::new(seed, None)));
        let conn = net.open(0, OSDS, [1, 1], false);
        let planned = BTreeMap::new();
        Self { net, conn, now: 0, planned, seq: 0, heard: Vec::new(), resumed: 0, resets: 0, over: 0 }
    }

    fn send(&mut self, nr: u32) {
        let data = Bytes::from(nr.to_le_bytes().repeat(1 + nr as usize % 300));
        self.net.send_packet(self.now, self.conn, End::Opener, Packet::Peer(data));
    }

    /// Takes one delivery; `false` when there is none.
    fn step(&mut self) -> bool {
        for (at, d) in std::mem::take(&mut self.net.planned) {
            self.seq += 1;
            self.planned.insert((at, self.seq), d);
        }
        let Some(((at, _), d)) = self.planned.pop_first() else { return false };
        self.now = self.now.max(at);
        let Arrival::Packet(packet) = self.net.arrive(self.now, d) else { return true };
        match packet {
            Packet::Open => self.net.accept(self.now, self.conn, 0),
            Packet::Up { tcp } => self.net.wire_up(self.now, self.conn, tcp),
            Packet::Bytes { tcp, data } => {
                let told = self.net.wire_receive(self.now, self.conn, d.to, tcp, &data);
                told.into_iter().for_each(|t| self.hear(d.to, &t));
            }
            Packet::Cut { tcp } => {
                if self.net.wire_cut(self.now, self.conn, d.to, tcp) && d.to == End::Opener {
                    self.net.reopen(self.now, self.conn);
                }
            }
            Packet::Fin => {
                self.net.reset_session(self.now, self.conn);
                self.net.reopen(self.now, self.conn);
            }
            other => panic!("{other:?}"),
        }
        true
    }

    fn hear(&mut self, to: End, told: &Told) {
        match told {
            Told::Message(msg) => {
                self.heard.push(u32::from_le_bytes(msg.data[..4].try_into().expect("a number")));
            }
            Told::Ready { resumed, .. } if to == End::Opener => {
                self.resumed += u32::from(*resumed);
                self.net.now_ready(self.now, self.conn);
            }
            Told::Reset => self.resets += 1,
            Told::Over => {
                self.over += 1;
                if to == End::Opener {
                    self.net.reset_session(self.now, self.conn);
                    self.net.reopen(self.now, self.conn);
                }
            }
            _ => {}
        }
    }

    fn settle(&mut self) {
        while self.step() {}
    }
}

#[test]
fn what_is_cut_anywhere_arrives_once_and_in_order() {
    let (mut resumed, mut over) = (0, 0);
    for seed in 1..40 {
        let (mut pair, mut rng) = (Pair::new(seed), Rng::new(seed));
        for nr in 0..200 {
            pair.send(nr);
            pair.now += rng.below(MILLISECOND);
            (0..rng.below(8)).for_each(|_| _ = pair.step());
            match rng.below(30) {
                0 => pair.net.wire_break(pair.now, pair.conn),
                1 => _ = pair.net.wire_flip(pair.conn),
                _ => {}
            }
        }
        pair.settle();
        let all: Vec<u32> = (0..200).collect();
        assert_eq!(pair.heard, all, "seed {seed}");
        assert_eq!(pair.resets, 0, "seed {seed}");
        (resumed, over) = (resumed + pair.resumed, over + pair.over);
    }
    assert!(resumed > 40 && over > 10, "{resumed} resumed, {over} over");
}

#[test]
fn the_opener_hears_of_a_session_that_expired() {
    for seed in 1..20 {
        let mut pair = Pair::new(seed);
        (0..20).for_each(|nr| pair.send(nr));
        pair.settle();
        assert_eq!(pair.heard.len(), 20);
        pair.send(20);
        pair.net.wire_break(pair.now, pair.conn);
        pair.net.close(pair.now, pair.conn, End::Target);
        pair.settle();
        assert_eq!(pair.resets, 1, "seed {seed}");
        pair.heard.clear();
        (21..40).for_each(|nr| pair.send(nr));
        pair.settle();
        assert_eq!(pair.heard, (21..40).collect::<Vec<_>>(), "seed {seed}");
    }
}
