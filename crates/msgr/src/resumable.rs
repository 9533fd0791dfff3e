//! Accepted lossless sessions: who may take one up again, and how many wait for that.
//!
//! Invariants:
//! 1. A session is found by the entity that has proven itself and the address that it states, so that nobody comes upon
//!    another's.
//! 2. Of sessions that no connection holds, there are at most [`PARKED_OF_ONE`] of one entity and [`PARKED`] in all, and
//!    what they keep for their peers is at most [`PARKED_BYTES`]. The oldest go first. Peers that the map shows up do not
//!    count: there is one of each.

use std::collections::BTreeMap;
use std::time::Duration;

use types::{AddrVec, AuthName, ConnId};

/// An OSD has one session to each other OSD; more are left by earlier lives.
const PARKED_OF_ONE: usize = 8;
const PARKED: usize = 4096;
const PARKED_BYTES: usize = 512 << 20;
/// A peer that does not come back within this time is forgotten.
const PARKED_FOR: Duration = Duration::from_secs(300);

/// By peer: what the accepting side looks in when it is asked for a session.
#[derive(Debug, Default)]
pub struct Resumable {
    by_peer: BTreeMap<(AuthName, AddrVec), ConnId>,
}

/// A session that no connection holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parked {
    pub conn: ConnId,
    pub entity: AuthName,
    /// Monotonic.
    pub since: Duration,
    /// Of messages that its peer does not have.
    pub bytes: usize,
    /// Its peer is expected to come back: it goes by the bound of bytes only, and after all others.
    pub keep: bool,
}

impl Resumable {
    pub fn of(&self, entity: &AuthName, addrs: &AddrVec) -> Option<ConnId> {
        self.by_peer.get(&(entity.clone(), addrs.clone())).copied()
    }

    /// Gives the session that stood there before.
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

/// The sessions that are forgotten: those that waited too long, and those beyond the bounds.
pub fn surplus(mut parked: Vec<Parked>, now: Duration) -> Vec<ConnId> {
    // The youngest stay.
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
