//! Half-open connections: those whose peers have not authenticated yet.
//!
//! Invariants:
//! 1. There are at most `limit` of them; at most a sixteenth of that from one address, or half of it from a
//!    loopback address.
//! 2. A new connection is always let in. Where that would break invariant 1, the oldest half-open connection
//!    is closed for it: of the same address when that has its share, else of the address that has most. So an
//!    address that opens many connections loses its own, and others can finish their handshakes.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use types::ConnId;

#[derive(Debug)]
pub(super) struct HalfOpen {
    limit: usize,
    by_source: BTreeMap<IpAddr, BTreeSet<ConnId>>,
    count: usize,
}

impl HalfOpen {
    pub(super) fn new(limit: usize) -> Self {
        Self { limit, by_source: BTreeMap::new(), count: 0 }
    }

    /// Lets a new connection in. Returns the connection that has to be closed for it.
    pub(super) fn admit(&mut self, source: IpAddr, conn: ConnId) -> Option<ConnId> {
        let source = source.to_canonical();
        let share = if source.is_loopback() { self.limit / 2 } else { self.limit / 16 };
        let own = self.by_source.get(&source).map_or(0, BTreeSet::len);
        let loses = if own >= share {
            Some(source)
        } else if self.count >= self.limit {
            self.by_source.iter().max_by_key(|(_, conns)| conns.len()).map(|(source, _)| *source)
        } else {
            None
        };
        // Ids count up, so the first is the oldest.
        let oldest = loses.and_then(|s| self.by_source.get(&s)?.first().map(|conn| (s, *conn)));
        if let Some((source, conn)) = oldest {
            self.remove(source, conn);
        }
        self.by_source.entry(source).or_default().insert(conn);
        self.count += 1;
        oldest.map(|(_, conn)| conn)
    }

    /// The peer has authenticated, or the connection is over. Unknown connections are ignored.
    pub(super) fn remove(&mut self, source: IpAddr, conn: ConnId) {
        let source = source.to_canonical();
        let Some(conns) = self.by_source.get_mut(&source) else { return };
        if conns.remove(&conn) {
            self.count -= 1;
        }
        if conns.is_empty() {
            self.by_source.remove(&source);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    #[test]
    fn an_address_that_opens_many_loses_its_own() {
        let mut table = HalfOpen::new(64);
        assert_eq!(table.admit(ip("10.0.0.9"), ConnId(1)), None);
        for nr in 2..=5 {
            assert_eq!(table.admit(ip("10.0.0.1"), ConnId(nr)), None);
        }
        assert_eq!(table.admit(ip("10.0.0.1"), ConnId(6)), Some(ConnId(2)), "its share is four");
        assert_eq!(table.admit(ip("::ffff:10.0.0.1"), ConnId(7)), Some(ConnId(3)), "the same address");
        table.remove(ip("10.0.0.1"), ConnId(4));
        assert_eq!(table.admit(ip("10.0.0.1"), ConnId(8)), None);
    }

    #[test]
    fn when_all_is_full_the_fullest_address_loses_its_oldest() {
        let mut table = HalfOpen::new(64);
        for nr in 0..32 {
            assert_eq!(table.admit(ip("127.0.0.1"), ConnId(nr)), None, "this host may have the half");
        }
        for nr in 32..64 {
            let from = ip(&format!("10.0.0.{nr}"));
            assert_eq!(table.admit(from, ConnId(nr)), None);
        }
        assert_eq!(table.admit(ip("10.0.1.1"), ConnId(100)), Some(ConnId(0)));
        assert_eq!(table.admit(ip("127.0.0.1"), ConnId(101)), Some(ConnId(1)));
        for nr in 1..32 {
            table.remove(ip("127.0.0.1"), ConnId(nr));
        }
        table.remove(ip("127.0.0.1"), ConnId(101));
        assert_eq!(table.count, 33);
        for nr in 32..64 {
            table.remove(ip(&format!("10.0.0.{nr}")), ConnId(nr));
        }
        table.remove(ip("10.0.1.1"), ConnId(100));
        assert!(table.by_source.is_empty() && table.count == 0);
    }
}
