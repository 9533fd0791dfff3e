//! What each client has the OSD hold: its requests, from their arrival until they are answered or dropped.
//!
//! A request carries its charge, and the charge gives back what it took when the request is dropped, wherever that is. So a
//! request that no queue remembers cannot stay counted, and one that a queue still holds is counted although its client is gone.
//!
//! Invariant: an account's sums are those of the charges on it that live.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use types::{AuthName, ConnId};

/// Requests and the bytes of memory that they hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Held {
    pub ops: u64,
    pub bytes: u64,
}

impl Held {
    pub fn plus(self, o: Self) -> Self {
        Self { ops: self.ops.saturating_add(o.ops), bytes: self.bytes.saturating_add(o.bytes) }
    }

    pub fn minus(self, o: Self) -> Self {
        Self { ops: self.ops.saturating_sub(o.ops), bytes: self.bytes.saturating_sub(o.bytes) }
    }
}

/// A sum of charges. Only the core's owner touches it: the atomics are there because charges are in requests.
#[derive(Debug, Default)]
pub(crate) struct Account {
    ops: AtomicU64,
    bytes: AtomicU64,
}

impl Account {
    pub fn held(&self) -> Held {
        Held { ops: self.ops.load(Ordering::Relaxed), bytes: self.bytes.load(Ordering::Relaxed) }
    }
}

/// One request's part of its client's account and of the whole.
#[derive(Debug, Default)]
pub(crate) struct Charge {
    of: Arc<Account>,
    all: Arc<Account>,
    ops: u64,
    pub bytes: u64,
}

impl Charge {
    pub fn new(of: &Arc<Account>, all: &Arc<Account>, bytes: u64) -> Self {
        for account in [of, all] {
            account.ops.fetch_add(1, Ordering::Relaxed);
            account.bytes.fetch_add(bytes, Ordering::Relaxed);
        }
        Self { of: Arc::clone(of), all: Arc::clone(all), ops: 1, bytes }
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        for account in [&self.of, &self.all] {
            account.ops.fetch_sub(self.ops, Ordering::Relaxed);
            account.bytes.fetch_sub(self.bytes, Ordering::Relaxed);
        }
    }
}

/// One connection's account.
#[derive(Debug, Default)]
pub(crate) struct ClientAccount {
    /// Requests in PGs.
    pub running: Arc<Account>,
    /// Requests that wait for a map.
    pub parked: Arc<Account>,
    /// Notifies that wait for watchers; and those of all connections of the same entity.
    pub notifies: Arc<Account>,
    pub of_entity: Arc<Account>,
    /// Nothing is read from it for now.
    pub is_held: bool,
}

/// All clients together.
#[derive(Debug, Default)]
pub(crate) struct Clients {
    running: Arc<Account>,
    parked: Arc<Account>,
    /// What all connections of an entity have in notifies. Entities are those that the monitors gave a key.
    entities: BTreeMap<AuthName, Arc<Account>>,
    /// Connections that may have requests here, or are held.
    pub active: BTreeSet<ConnId>,
}

impl Clients {
    /// The account of an entity, for another of its connections.
    pub fn of_entity(&mut self, name: &AuthName) -> Arc<Account> {
        Arc::clone(self.entities.entry(name.clone()).or_default())
    }

    /// A request of the connection goes to its PG.
    pub fn run(&mut self, conn: ConnId, client: &ClientAccount, bytes: u64) -> Charge {
        if client.running.held().ops == 0 {
            self.active.insert(conn);
        }
        Charge::new(&client.running, &self.running, bytes)
    }

    /// A request of the connection waits for a map.
    pub fn park(&mut self, conn: ConnId, client: &ClientAccount, bytes: u64) -> Charge {
        self.active.insert(conn);
        Charge::new(&client.parked, &self.parked, bytes)
    }

    pub fn running(&self) -> Held {
        self.running.held()
    }

    pub fn parked(&self) -> Held {
        self.parked.held()
    }

    /// Bytes of all requests here.
    pub fn bytes(&self) -> u64 {
        self.running().bytes.saturating_add(self.parked().bytes)
    }
}
