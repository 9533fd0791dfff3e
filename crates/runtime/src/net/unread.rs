//! Unread answers: bytes that were sent to clients and wait for their sockets, because the clients do not
//! read them.
//!
//! Two measures keep them within a limit for all clients:
//!
//! 1. The messenger reads no further requests from a connection that has left much unread (`Share::is_much`).
//!    What counts as much shrinks as the limit fills up, so that many connections pause before any is closed.
//!    All connections of one entity together may have half of what other entities leave of the limit, so that
//!    there is room for another entity.
//! 2. A pause alone bounds nothing, for one read may bring hundreds of small requests with large answers. So
//!    when the limit is exceeded, `Messenger::relieve` closes the fullest connection of the entity that has
//!    left most unread.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};

use types::AuthName;

use crate::owner::lock;

/// The sum over all clients' connections.
#[derive(Debug, Default)]
pub(super) struct Unread {
    total_bytes: AtomicU64,
    /// The sums of entities that have connections.
    entities: Mutex<BTreeMap<AuthName, Weak<AtomicU64>>>,
}

/// One connection's part of the sums, taken out of them when it is dropped.
#[derive(Debug)]
pub(super) struct Share {
    all: Arc<Unread>,
    of_entity: Arc<AtomicU64>,
    bytes: AtomicU64,
}

impl Unread {
    /// Bytes over all clients.
    pub(super) fn total(&self) -> u64 {
        self.total_bytes.load(Ordering::Relaxed)
    }

    /// The part of a new connection of this entity: 0 bytes so far.
    pub(super) fn share(self: &Arc<Self>, entity: &AuthName) -> Share {
        let mut entities = lock(&self.entities);
        let of_entity = entities.get(entity).and_then(Weak::upgrade).unwrap_or_else(|| {
            entities.retain(|_, sum| sum.strong_count() > 0);
            let sum = Arc::default();
            entities.insert(entity.clone(), Arc::downgrade(&sum));
            sum
        });
        Share { all: Arc::clone(self), of_entity, bytes: AtomicU64::new(0) }
    }
}

impl Share {
    pub(super) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Bytes over all connections of the same entity.
    pub(super) fn of_entity(&self) -> u64 {
        self.of_entity.load(Ordering::Relaxed)
    }

    /// Whether nothing may be read from the connection now: it has more bytes than `usual`, or than half of
    /// what is free of `limit`, or its entity has more than half of what other entities leave of `limit`.
    pub(super) fn is_much(&self, limit: u64, usual: u64) -> bool {
        let (total, of_entity) = (self.all.total(), self.of_entity());
        let others = total.saturating_sub(of_entity);
        self.bytes() > usual.min(limit.saturating_sub(total) / 2)
            || (self.bytes() > 0 && of_entity > limit.saturating_sub(others) / 2)
    }

    /// The connection has so many unread bytes now.
    pub(super) fn set(&self, bytes: u64) {
        let before = self.bytes.swap(bytes, Ordering::Relaxed);
        for sum in [&self.all.total_bytes, &*self.of_entity] {
            // Wraps around, so that adding the difference subtracts when it is negative.
            sum.fetch_add(bytes.wrapping_sub(before), Ordering::Relaxed);
        }
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.set(0);
    }
}

#[cfg(test)]
mod tests {
    use types::EntityType;

    use super::*;

    fn named(id: &str) -> AuthName {
        AuthName::new(EntityType::Client, id)
    }

    #[test]
    fn the_fuller_the_limit_the_less_one_client_may_leave() {
        let unread = Arc::new(Unread::default());
        let (one, other) = (unread.share(&named("one")), unread.share(&named("other")));
        for (ones, others, is_much) in [
            (20, 0, false),
            (21, 0, true),
            (15, 55, false),
            (16, 55, true),
            (1, 97, false),
            (1, 98, true),
            (0, 200, false),
        ] {
            one.set(ones);
            other.set(others);
            assert_eq!(one.is_much(100, 20), is_much, "{ones} and {others}");
        }
        drop(other);
        one.set(20);
        assert!(!one.is_much(100, 20));
    }

    #[test]
    fn more_connections_of_an_entity_leave_no_more() {
        let unread = Arc::new(Unread::default());
        let many: Vec<Share> = (0..10).map(|_| unread.share(&named("many"))).collect();
        many.iter().for_each(|share| share.set(5));
        assert!(!many[0].is_much(100, 20), "a half");
        many[1].set(6);
        assert!(many[0].is_much(100, 20));
        let other = unread.share(&named("other"));
        other.set(14);
        assert!(!other.is_much(100, 20));
        assert_eq!((unread.total(), many[0].of_entity(), other.of_entity()), (65, 51, 14));
        drop(many);
        assert_eq!((unread.total(), unread.share(&named("many")).of_entity()), (14, 0));
    }
}
