//! Client requests that have to wait for their turn: so much was done with one batch of inputs that others come first.
//!
//! A request may be heavy (`exec::work` bounds it), and many heavy ones fit into what is read from a socket
//! at once. When the work of a slice is spent, the core goes back to its shell, which brings heartbeats and
//! the like, and then asks the core to go on. Entities take turns, a request each, and the connections of one
//! entity take turns among themselves: more connections are no more turns. A request that is longer than a slice
//! goes on in the next turn of its entity. One connection's requests stay in order. A client that does not read its answers has no turn: what it does not read waits in memory.
//!
//! Invariant: an entity is in the order of its ring exactly once when a connection of it has a queue, a
//! connection in that of its entity when it has one, and no queue is empty.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use messages::osd::MOsdOp;
use types::{AuthName, ConnId};

use super::account::Charge;
use crate::pg::ClientOp;

/// Bytes of work in one slice: some milliseconds. A request that reads more than its slice has room for pauses
/// (`exec::pause`), so others wait for no more than that. No more is answered until the shell has told again how
/// much of it waits for its readers.
pub(crate) const SLICE: u64 = 8 << 20;
/// What is answered at least: who reads is not stopped by those who do not.
const LEAST_ANSWERS: u64 = 4 << 20;

/// Bytes that may be answered when answers of so many may wait for their readers before somebody is cut off.
pub(super) fn answers(free_bytes: u64) -> u64 {
    (free_bytes / 2).clamp(LEAST_ANSWERS, SLICE)
}

/// A request that waits.
#[derive(Debug)]
pub(super) struct Turn {
    pub tid: u64,
    pub what: Wanted,
}

/// What a request wants.
#[derive(Debug)]
pub(super) enum Wanted {
    ToBegin { msg: Box<MOsdOp>, charge: Charge },
    ToGoOn(Box<ClientOp>),
}

/// See the module's documentation.
#[derive(Debug, Default)]
pub(super) struct Turns {
    entities: Ring<AuthName, Ring<ConnId, VecDeque<Turn>>>,
    /// Clients with much to read, as the shell last said.
    unread: BTreeSet<ConnId>,
}

impl Turns {
    pub fn is_empty(&self) -> bool {
        self.entities.order.is_empty()
    }

    pub fn push(&mut self, entity: &AuthName, conn: ConnId, turn: Turn) {
        self.entities.entry(entity).entry(&conn).push_back(turn);
    }

    /// Takes back what paused in its turn: it is the next of its connection, and that the next of its entity.
    pub fn put_back(&mut self, entity: &AuthName, conn: ConnId, turn: Turn) {
        self.entities.entry(entity).first(&conn).push_front(turn);
    }

    /// The clients that wait.
    pub fn clients(&self) -> impl Iterator<Item = ConnId> {
        self.entities.of.values().flat_map(|conns| conns.order.iter().copied())
    }

    /// These have no turn until the next word on it. What a request of theirs has come to is not kept so long: others
    /// could not pause for want of room.
    pub fn set_unread(&mut self, unread: BTreeSet<ConnId>) {
        let queues = self.entities.of.values_mut().flat_map(|conns| &mut conns.of);
        for turn in queues.filter(|(conn, _)| unread.contains(conn)).flat_map(|(_, queue)| queue) {
            if let Wanted::ToGoOn(op) = &mut turn.what {
                op.paused = None;
            }
        }
        self.unread = unread;
    }

    /// Whether all that wait have to read first.
    pub fn wait_for_readers(&self) -> bool {
        self.clients().all(|conn| self.unread.contains(&conn))
    }

    /// The oldest request of the connection whose turn it is, of the entity whose turn it is.
    pub fn pop(&mut self) -> Option<(ConnId, Turn)> {
        let unread = &self.unread;
        let reads = |conn: &ConnId, _: &VecDeque<Turn>| !unread.contains(conn);
        let (_, found) = self.entities.turn(
            |_, conns| conns.order.iter().any(|conn| !unread.contains(conn)),
            |conns| conns.turn(reads, VecDeque::pop_front, VecDeque::is_empty),
            |conns| conns.order.is_empty(),
        )?;
        let (conn, turn) = found?;
        Some((conn, turn?))
    }

    /// The client is gone, and with it what it wanted.
    pub fn remove(&mut self, conn: ConnId) {
        self.entities.of.values_mut().for_each(|conns| conns.remove(&conn));
        let Ring { of, order } = &mut self.entities;
        of.retain(|_, conns| !conns.order.is_empty());
        order.retain(|entity| of.contains_key(entity));
    }

    /// Connection and number of all that wait.
    pub fn iter(&self) -> impl Iterator<Item = (ConnId, u64)> {
        let queues = self.entities.of.values().flat_map(|conns| &conns.of);
        queues.flat_map(|(conn, q)| q.iter().map(|t| (*conn, t.tid)))
    }

    /// Checks the invariant that the module states.
    pub fn assert_invariants(&self) {
        self.entities.assert_invariants();
        for (entity, conns) in &self.entities.of {
            assert!(!conns.of.is_empty(), "{entity} has nothing");
            conns.assert_invariants();
            assert!(conns.of.values().all(|queue| !queue.is_empty()), "a connection of {entity} has nothing");
        }
    }
}

/// Those who take turns, and whose turn is next.
#[derive(Debug)]
struct Ring<K, V> {
    of: BTreeMap<K, V>,
    order: VecDeque<K>,
}

impl<K, V> Default for Ring<K, V> {
    fn default() -> Self {
        Self { of: BTreeMap::new(), order: VecDeque::new() }
    }
}

impl<K: Ord + Clone + std::fmt::Debug, V: Default> Ring<K, V> {
    /// What `key` has; whoever is new comes last.
    fn entry(&mut self, key: &K) -> &mut V {
        if !self.of.contains_key(key) {
            self.order.push_back(key.clone());
        }
        self.of.entry(key.clone()).or_default()
    }

    /// The same; it has the next turn.
    fn first(&mut self, key: &K) -> &mut V {
        self.order.retain(|k| k != key);
        self.order.push_front(key.clone());
        self.of.entry(key.clone()).or_default()
    }

    /// Takes from the first that may have a turn; it is last then, or out of the ring when it has nothing
    /// left.
    fn turn<T>(
        &mut self,
        may: impl Fn(&K, &V) -> bool,
        take: impl FnOnce(&mut V) -> T,
        is_empty: impl FnOnce(&V) -> bool,
    ) -> Option<(K, T)> {
        let at = self.order.iter().position(|key| self.of.get(key).is_some_and(|v| may(key, v)))?;
        let key = self.order.remove(at)?;
        let value = self.of.get_mut(&key)?;
        let taken = take(value);
        if is_empty(value) {
            self.of.remove(&key);
        } else {
            self.order.push_back(key.clone());
        }
        Some((key, taken))
    }

    fn remove(&mut self, key: &K) {
        if self.of.remove(key).is_some() {
            self.order.retain(|k| k != key);
        }
    }

    fn assert_invariants(&self) {
        let ordered: BTreeSet<&K> = self.order.iter().collect();
        assert_eq!(ordered.len(), self.order.len(), "somebody is in the order twice");
        assert!(self.of.keys().eq(ordered), "{:?} have turns", self.order);
    }
}
