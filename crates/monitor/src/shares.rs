//! Bounds the requests that wait at a monitor, by the entity that sent them: an entity that asks for too much
//! is refused, and other entities are not.
//!
//! Invariants:
//! 1. A request counts from when it was taken until it is dropped ([`Charge`]).
//! 2. The waiting requests of one entity, over all its sessions, are within its share; those of all entities
//!    are within [`WHOLE`]. Only a single request may be larger than that.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use types::{AuthName, EntityType};

/// The most requests, and the most bytes of them on the wire.
struct Bound {
    requests: usize,
    bytes: usize,
}

/// For one entity that is a client.
const CLIENT: Bound = Bound { requests: 1_000, bytes: 32 << 20 };
/// For one daemon: an OSD may send a message about each of its PGs.
const DAEMON: Bound = Bound { requests: 10_000, bytes: 128 << 20 };
/// For all entities together.
const WHOLE: Bound = Bound { requests: 50_000, bytes: 512 << 20 };

/// A sum of charges.
#[derive(Debug, Default)]
struct Account {
    requests: AtomicUsize,
    bytes: AtomicUsize,
}

impl Account {
    /// Whether a request of so many bytes may wait as well. A single one may, whatever its size.
    fn has_room(&self, bytes: usize, bound: &Bound) -> bool {
        let (requests, held) = (self.requests.load(Ordering::Relaxed), self.bytes.load(Ordering::Relaxed));
        requests == 0 || requests < bound.requests && held.saturating_add(bytes) <= bound.bytes
    }

    fn add(&self, bytes: usize) {
        self.requests.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    fn take_off(&self, bytes: usize) {
        self.requests.fetch_sub(1, Ordering::Relaxed);
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
    }
}

/// One request's part of its entity's account and of the whole, until it is dropped.
#[derive(Debug)]
pub(crate) struct Charge {
    accounts: [Arc<Account>; 2],
    bytes: usize,
}

impl Charge {
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Clone for Charge {
    fn clone(&self) -> Self {
        self.accounts.iter().for_each(|a| a.add(self.bytes));
        Self { accounts: self.accounts.clone(), bytes: self.bytes }
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.accounts.iter().for_each(|a| a.take_off(self.bytes));
    }
}

impl PartialEq for Charge {
    fn eq(&self, other: &Self) -> bool {
        self.bytes == other.bytes
    }
}

/// The accounts of all entities.
#[derive(Debug, Default)]
pub(crate) struct Shares {
    whole: Arc<Account>,
    entities: BTreeMap<AuthName, Arc<Account>>,
}

impl Shares {
    /// Charges a request of this entity, of so many bytes of payload. `None` when its share, or the whole,
    /// has no room for it.
    pub(crate) fn take(&mut self, name: &AuthName, bytes: usize) -> Option<Charge> {
        let bound = if name.kind == EntityType::Client { CLIENT } else { DAEMON };
        if !self.whole.has_room(bytes, &WHOLE) {
            return None;
        }
        let own = self.entities.entry(name.clone()).or_default();
        if !own.has_room(bytes, &bound) {
            return None;
        }
        let accounts = [Arc::clone(own), Arc::clone(&self.whole)];
        accounts.iter().for_each(|a| a.add(bytes));
        Some(Charge { accounts, bytes })
    }

    /// Forgets entities that have no waiting request.
    pub(crate) fn sweep(&mut self) {
        self.entities.retain(|_, own| Arc::strong_count(own) > 1);
    }
}
