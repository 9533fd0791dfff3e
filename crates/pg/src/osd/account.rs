//! What each client has the OSD hold: its requests, from their arrival until they are answered or dropped.
//!
//! A request carries its charge, and the charge gives back what it took when the request is dropped, wherever that is. So a
//! request that no queue remembers cannot stay counted, and one that a queue still holds is counted although its client is gone.
//!
//! Invariant: an account's sums are those of the charges on it that live.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

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

/// What a request has fetched in order to copy it, or is about to: on its client's account as long as the
/// request lives.
#[derive(Debug)]
pub(crate) struct Fetched {
    accounts: [Arc<Account>; 4],
    bytes: AtomicU64,
}

impl Fetched {
    /// Nothing yet, for the request with this charge.
    pub fn of(request: &Charge, client: &ClientAccount) -> Self {
        let accounts = [&request.of, &request.all, &client.fetched_by_entity, &client.fetched_by_all];
        Self { accounts: accounts.map(Arc::clone), bytes: AtomicU64::new(0) }
    }

    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    pub fn set(&self, bytes: u64) {
        let before = self.bytes.swap(bytes, Ordering::Relaxed);
        for account in &self.accounts {
            // Modulo 2^64: up or down.
            account.bytes.fetch_add(bytes.wrapping_sub(before), Ordering::Relaxed);
        }
    }
}

impl Drop for Fetched {
    fn drop(&mut self) {
        self.set(0);
    }
}

/// Bytes that are held in several places.
#[derive(Debug, Clone, Default)]
pub(crate) struct Sum(Arc<AtomicU64>);

/// A part of a sum, until it is dropped.
#[derive(Debug)]
pub(crate) struct Kept {
    of: Sum,
    bytes: u64,
}

impl Sum {
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    pub fn keep(&self, bytes: u64) -> Kept {
        self.0.fetch_add(bytes, Ordering::Relaxed);
        Kept { of: self.clone(), bytes }
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        self.of.0.fetch_sub(self.bytes, Ordering::Relaxed);
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
    /// What requests have fetched to copy it: of the same entity, and of all.
    fetched_by_entity: Arc<Account>,
    fetched_by_all: Arc<Account>,
    /// Nothing is read from it for now.
    pub is_held: bool,
    /// Since when (monotonic) it is held for requests that wait for a map, as ticks have seen it.
    pub parks_since: Option<Duration>,
}

impl ClientAccount {
    pub fn fetched_by_entity(&self) -> Held {
        self.fetched_by_entity.held()
    }
}

/// What the connections of one entity share.
#[derive(Debug, Default)]
struct EntityAccount {
    notifies: Arc<Account>,
    fetched: Arc<Account>,
}

/// All clients together.
#[derive(Debug, Default)]
pub(crate) struct Clients {
    running: Arc<Account>,
    parked: Arc<Account>,
    fetched: Arc<Account>,
    /// Entities are those that the monitors gave a key.
    entities: BTreeMap<AuthName, EntityAccount>,
    /// Connections that may have requests here, or are held.
    pub active: BTreeSet<ConnId>,
}

impl Clients {
    /// An account for another connection of an entity.
    pub fn account(&mut self, name: &AuthName) -> ClientAccount {
        let entity = self.entities.entry(name.clone()).or_default();
        ClientAccount {
            of_entity: Arc::clone(&entity.notifies),
            fetched_by_entity: Arc::clone(&entity.fetched),
            fetched_by_all: Arc::clone(&self.fetched),
            ..ClientAccount::default()
        }
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

    /// What requests have fetched to copy it; a part of what runs.
    pub fn fetched(&self) -> Held {
        self.fetched.held()
    }

    /// Entities whose requests hold what they fetched.
    pub fn fetchers(&self) -> impl Iterator<Item = &AuthName> {
        self.entities.iter().filter(|(_, e)| e.fetched.held().bytes > 0).map(|(name, _)| name)
    }

    /// Bytes of all requests here.
    pub fn bytes(&self) -> u64 {
        self.running().bytes.saturating_add(self.parked().bytes)
    }
}
