//! Accepted lossless sessions: which peer may resume which, and how many are kept for peers that are away.
//!
//! Invariants:
//! 1. A session is found by its peer's authenticated entity and the address that the peer states, so that no
//!    entity can resume another's session.
//! 2. A session that no connection carries is parked. [`surplus`] leaves at most [`PARKED_OF_ONE`] parked
//!    sessions of one entity, [`PARKED`] in all, and [`PARKED_BYTES`] of messages in them; the oldest go
//!    first. Sessions whose peers are expected back (`Parked::keep`) are bound by the bytes alone, and go
//!    last.

use std::collections::BTreeMap;
use std::time::Duration;

use types::{AddrVec, AuthName, ConnId};

/// An OSD has one session to each other OSD. The others of one entity are left from its earlier lives.
const PARKED_OF_ONE: usize = 8;
const PARKED: usize = 4096;
const PARKED_BYTES: usize = 512 << 20;
/// A peer that does not come back within this time is forgotten.
const PARKED_FOR: Duration = Duration::from_secs(300);

/// The accepting side's sessions by peer, to be looked up when a peer asks to resume one.
#[derive(Debug, Default)]
pub struct Resumable {
    by_peer: BTreeMap<(AuthName, AddrVec), ConnId>,
}

/// A session that no connection carries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parked {
    pub conn: ConnId,
    pub entity: AuthName,
    /// When it was parked (monotonic).
    pub since: Duration,
    /// Bytes of messages that its peer has not received.
    pub bytes: usize,
    /// Whether its peer is expected back: it then goes only for the bound of bytes, after all others.
    pub keep: bool,
}

impl Resumable {
    /// The session of this peer.
    pub fn of(&self, entity: &AuthName, addrs: &AddrVec) -> Option<ConnId> {
        self.by_peer.get(&(entity.clone(), addrs.clone())).copied()
    }

    /// Adds a peer's session. Returns the one that it replaces, which is to be closed.
    pub fn insert(&mut self, entity: AuthName, addrs: AddrVec, conn: ConnId) -> Option<ConnId> {
        self.by_peer.insert((entity, addrs), conn).filter(|old| *old != conn)
    }

    pub fn remove(&mut self, conn: ConnId) {
        self.by_peer.retain(|_, held| *held != conn);
    }

    pub fn contains(&self, conn: ConnId) -> bool {
        self.by_peer.values().any(|held| *held == conn)
    }

    pub fn all(&self) -> Vec<(AuthName, AddrVec, ConnId)> {
        self.by_peer.iter().map(|((entity, at), conn)| (entity.clone(), at.clone(), *conn)).collect()
    }
}

/// The parked sessions that have to be forgotten: those that have waited too long, and those beyond the
/// bounds.
pub fn surplus(mut parked: Vec<Parked>, now: Duration) -> Vec<ConnId> {
    // From the sessions that stay to those that go: expected peers first, then the youngest.
    parked.sort_by_key(|p| (!p.keep, std::cmp::Reverse(p.since), p.conn));
    let (mut count, mut bytes) = (0, 0);
    let mut of: BTreeMap<AuthName, usize> = BTreeMap::new();
    let mut out = Vec::new();
    for p in parked {
        let own = of.entry(p.entity).or_default();
        let has_room = *own < PARKED_OF_ONE && count < PARKED && now <= p.since + PARKED_FOR;
        if bytes + p.bytes <= PARKED_BYTES && (p.keep || has_room) {
            *own += 1;
            count += 1;
            bytes += p.bytes;
        } else {
            out.push(p.conn);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use types::EntityType;

    use super::*;

    fn parked(conn: u64, osd: u64, since: u64, bytes: usize) -> Parked {
        let entity = AuthName::new(EntityType::Osd, osd.to_string());
        Parked { conn: ConnId(conn), entity, since: Duration::from_secs(since), bytes, keep: false }
    }

    #[test]
    fn the_oldest_sessions_beyond_the_bounds_are_forgotten() {
        let now = Duration::from_secs(400);
        let ids = |out: Vec<ConnId>| out.into_iter().map(|c| c.0).collect::<Vec<_>>();
        assert_eq!(ids(surplus(vec![parked(1, 0, 99, 0), parked(2, 0, 100, 0)], now)), [1]);
        let many = |of: fn(u64) -> u64, n: u64| (0..n).map(|i| parked(i, of(i), 200 + i / 100, 1)).collect();
        assert_eq!(surplus(many(|_| 7, 20), now).len(), 12);
        let out = surplus(many(|i| i, 5000), Duration::from_secs(200));
        assert_eq!(out.len(), 5000 - PARKED);
        assert!(out.iter().all(|c| c.0 < 1000));
        let large =
            vec![parked(1, 1, 300, PARKED_BYTES), parked(2, 2, 301, 1), parked(3, 3, 302, PARKED_BYTES - 1)];
        assert_eq!(ids(surplus(large.clone(), now)), [1]);
        let [first, ..] = &large[..] else { panic!("three") };
        let kept = Parked { keep: true, since: Duration::ZERO, ..first.clone() };
        assert_eq!(ids(surplus(vec![kept.clone()], now)), [0; 0], "expected back");
        assert_eq!(ids(surplus(vec![large[1].clone(), kept], now)), [2], "others go first");
    }
}
