//! What waits at a monitor, by who sent it: an entity that asks for too much is refused, and nobody else.
//!
//! Invariants:
//! 1. A request counts from when it was taken until it is dropped ([`Charge`]).
//! 2. What waits of one entity, over all its sessions, is within its share; all together is within the whole.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use messages::Message;
use types::{AuthName, EntityType};

/// Requests, and their bytes.
struct Bound {
    requests: usize,
    bytes: usize,
}

const CLIENT: Bound = Bound { requests: 1_000, bytes: 32 << 20 };
/// An OSD may speak of each of its PGs.
const DAEMON: Bound = Bound { requests: 10_000, bytes: 128 << 20 };
const WHOLE: Bound = Bound { requests: 50_000, bytes: 512 << 20 };

#[derive(Debug, Default)]
struct Account {
    requests: AtomicUsize,
    bytes: AtomicUsize,
}

impl Account {
    /// One request of any size may wait.
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

/// A request that counts.
#[derive(Debug)]
pub(crate) struct Charge {
    accounts: [Arc<Account>; 2],
    bytes: usize,
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

/// What waits of everybody.
#[derive(Debug, Default)]
pub(crate) struct Shares {
    whole: Arc<Account>,
    entities: BTreeMap<AuthName, Arc<Account>>,
}

impl Shares {
    /// Lets a request wait, when its sender's share has room for it.
    pub(crate) fn take(&mut self, name: &AuthName, msg: &Message) -> Option<Charge> {
        let wire = msg.clone().into_wire(0);
        let bytes = wire.front.len() + wire.middle.len() + wire.data.len();
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

    /// Forgets entities of which nothing waits.
    pub(crate) fn sweep(&mut self) {
        self.entities.retain(|_, own| Arc::strong_count(own) > 1);
    }
}
