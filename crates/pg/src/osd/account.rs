//! How much memory each client's requests take in this OSD, from their arrival until they are answered or
//! dropped.
//!
//! Each request carries a [`Charge`]. Dropping the request drops the charge, which takes itself out of its
//! accounts. So a request counts exactly as long as it exists: not longer when a queue forgets it, and not
//! shorter when its client has gone while a queue still holds it.
//!
//! Invariant: an account's sums are those of the charges on it that exist.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use types::{AuthName, ConnId};

/// A number of requests, and the bytes of memory that they hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Held {
    pub ops: u64,
    pub bytes: u64,
}

impl Held {
    /// The sum, saturating.
    pub fn plus(self, o: Self) -> Self {
        Self { ops: self.ops.saturating_add(o.ops), bytes: self.bytes.saturating_add(o.bytes) }
    }

    /// The difference, 0 where that would be negative.
    pub fn minus(self, o: Self) -> Self {
        Self { ops: self.ops.saturating_sub(o.ops), bytes: self.bytes.saturating_sub(o.bytes) }
    }
}

/// A sum of charges. Only the core's owner changes it. It has atomics, and no lock or cell, because charges
/// travel inside requests, which may be sent between threads.
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

/// One request's part of its client's account, and of a wider one: of all clients, or for notifies of the
/// entity.
#[derive(Debug, Default)]
pub(crate) struct Charge {
    own: Arc<Account>,
    wider: Arc<Account>,
    /// 1, or 0 for the empty default and for what a request takes beside.
    ops: u64,
    /// Memory that the request takes.
    pub bytes: u64,
}

impl Charge {
    /// Adds a request of so many bytes to both accounts.
    pub fn new(own: &Arc<Account>, wider: &Arc<Account>, bytes: u64) -> Self {
        for account in [own, wider] {
            account.ops.fetch_add(1, Ordering::Relaxed);
            account.bytes.fetch_add(bytes, Ordering::Relaxed);
        }
        Self { own: Arc::clone(own), wider: Arc::clone(wider), ops: 1, bytes }
    }
}

impl Charge {
    /// So many bytes more for the same request, on the same accounts.
    pub fn beside(&self, bytes: u64) -> Self {
        for account in [&self.own, &self.wider] {
            account.bytes.fetch_add(bytes, Ordering::Relaxed);
        }
        Self { own: Arc::clone(&self.own), wider: Arc::clone(&self.wider), ops: 0, bytes }
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        for account in [&self.own, &self.wider] {
            account.ops.fetch_sub(self.ops, Ordering::Relaxed);
            account.bytes.fetch_sub(self.bytes, Ordering::Relaxed);
        }
    }
}

/// The bytes that a `copy-from` request has fetched from its sources, with those that it has just asked for.
/// They are on its client's account, and on that of all copies, as long as the request exists.
#[derive(Debug)]
pub(crate) struct Fetched {
    accounts: [Arc<Account>; 4],
    bytes: AtomicU64,
    changes: Arc<AtomicU64>,
}

impl Fetched {
    /// 0 bytes so far, for the request with this charge.
    pub fn of(request: &Charge, client: &ClientAccount) -> Self {
        let accounts = [&request.own, &request.wider, &client.fetched_by_entity, &client.fetched_by_all];
        let changes = Arc::clone(&client.fetch_changes);
        Self { accounts: accounts.map(Arc::clone), bytes: AtomicU64::new(0), changes }
    }

    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// The request holds so many fetched bytes now.
    pub fn set(&self, bytes: u64) {
        self.changes.fetch_add(1, Ordering::Relaxed);
        let before = self.bytes.swap(bytes, Ordering::Relaxed);
        for account in &self.accounts {
            // Wraps around, so that adding the difference subtracts when it is negative.
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
    /// Requests that were given to PGs, or wait for their turn to be.
    pub running: Arc<Account>,
    /// Requests that wait for an OSD map that this OSD does not have yet.
    pub parked: Arc<Account>,
    /// Notifies of this connection that wait for watchers to acknowledge them.
    pub notifies: Arc<Account>,
    /// Those of all connections of the same entity.
    pub notifies_of_entity: Arc<Account>,
    /// What copies of all connections of the same entity have fetched.
    fetched_by_entity: Arc<Account>,
    /// What copies of all entities have fetched.
    fetched_by_all: Arc<Account>,
    fetch_changes: Arc<AtomicU64>,
    /// What paused requests of all connections of the same entity hold.
    pub paused_of_entity: Sum,
    /// What requests of all connections of the same entity gather of shards.
    pub gathered_of_entity: Sum,
    /// Whether the shell was told to read nothing from the connection for now.
    pub is_held: bool,
    /// The first tick (monotonic) that found the connection held for requests that wait for a map; `None`
    /// while it is not held for them.
    pub parks_since: Option<Duration>,
}

impl ClientAccount {
    /// What copies of all connections of the same entity have fetched.
    pub fn fetched_by_entity(&self) -> Held {
        self.fetched_by_entity.held()
    }
}

/// What the connections of one entity share.
#[derive(Debug, Default)]
struct EntityAccount {
    notifies: Arc<Account>,
    fetched: Arc<Account>,
    paused: Sum,
    gathered: Sum,
}

/// The accounts of all clients together, and of each entity.
#[derive(Debug, Default)]
pub(crate) struct Clients {
    running: Arc<Account>,
    parked: Arc<Account>,
    fetched: Arc<Account>,
    /// How often a copy has said what it holds: when it begins, wants a piece, gets it or ends.
    fetch_changes: Arc<AtomicU64>,
    /// Bounded by the number of keys that the monitors have given out: only authenticated peers are in here.
    entities: BTreeMap<AuthName, EntityAccount>,
    /// Connections that may have requests here, or are held. `hold_clients` looks at these alone.
    pub active: BTreeSet<ConnId>,
}

impl Clients {
    /// The account of a new connection of this entity.
    pub fn account(&mut self, name: &AuthName) -> ClientAccount {
        let entity = self.entities.entry(name.clone()).or_default();
        ClientAccount {
            notifies_of_entity: Arc::clone(&entity.notifies),
            fetched_by_entity: Arc::clone(&entity.fetched),
            fetched_by_all: Arc::clone(&self.fetched),
            fetch_changes: Arc::clone(&self.fetch_changes),
            paused_of_entity: entity.paused.clone(),
            gathered_of_entity: entity.gathered.clone(),
            ..ClientAccount::default()
        }
    }

    /// Charges a request of the connection that goes to its PG.
    pub fn run(&mut self, conn: ConnId, client: &ClientAccount, bytes: u64) -> Charge {
        if client.running.held().ops == 0 {
            self.active.insert(conn);
        }
        Charge::new(&client.running, &self.running, bytes)
    }

    /// Charges a request of the connection that has to wait for a map.
    pub fn park(&mut self, conn: ConnId, client: &ClientAccount, bytes: u64) -> Charge {
        self.active.insert(conn);
        Charge::new(&client.parked, &self.parked, bytes)
    }

    /// All requests that `run` has charged.
    pub fn running(&self) -> Held {
        self.running.held()
    }

    /// All requests that wait for a map.
    pub fn parked(&self) -> Held {
        self.parked.held()
    }

    /// What copies have fetched; a part of `running`.
    pub fn fetched(&self) -> Held {
        self.fetched.held()
    }

    /// Changes whenever a copy that had no room may have room now.
    pub fn fetch_changes(&self) -> u64 {
        self.fetch_changes.load(Ordering::Relaxed)
    }

    /// Entities whose copies hold fetched bytes.
    pub fn fetchers(&self) -> impl Iterator<Item = &AuthName> {
        self.entities.iter().filter(|(_, e)| e.fetched.held().bytes > 0).map(|(name, _)| name)
    }

    /// Bytes of all requests here.
    pub fn bytes(&self) -> u64 {
        self.running().bytes.saturating_add(self.parked().bytes)
    }
}
