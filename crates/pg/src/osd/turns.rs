//! Client requests that wait for their turn, so that heavy requests hold up neither heartbeats nor other
//! clients.
//!
//! A request may be heavy (`exec::work` bounds it), and many heavy ones fit into one read of a socket. So the
//! core works in slices: when a slice's work is spent it returns to its shell, which brings heartbeats and
//! other inputs and then lets the core go on (`Input::Again`).
//!
//! Requests that wait meanwhile are taken one at a time from each entity in turn, and within an entity from
//! each of its connections in turn, so that more connections bring no more turns. A request that is longer
//! than a slice goes on in the next turn of its entity (`exec::pause`). Requests of one connection stay in
//! order. A client that does not read its answers is passed over: unread answers take memory. Where requests
//! that have paused hold much, those that hold most wait for the oldest of them.
//!
//! Invariant: an entity is in the order of its ring exactly once when a connection of it has a queue, a
//! connection in that of its entity when it has one, and no queue is empty.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use messages::osd::MOsdOp;
use types::{AuthName, ConnId};

use super::account::Charge;
use super::device_reads::HELD_AT_LEAST;
use crate::pg::ClientOp;

/// Bytes of work in one slice, about a millisecond. A request that reads more than its slice has room for
/// pauses, but does up to `exec::LEAST_SLICE` in any case. A slice ends with the read that it has begun. It
/// is also the most that is answered in one slice: with the next one the shell says how much of the answers
/// is still unread.
pub(crate) const SLICE: u64 = 1 << 20;
/// The least that is answered in one slice, so that clients that read go on although others do not.
const LEAST_ANSWERS: u64 = 512 << 10;

/// Bytes that one slice may answer, when `free_bytes` more may stay unread before the shell closes a
/// connection.
pub(super) fn answers(free_bytes: u64) -> u64 {
    (free_bytes / 2).clamp(LEAST_ANSWERS, SLICE)
}

/// A request that waits for its turn.
#[derive(Debug)]
pub(super) struct Turn {
    pub tid: u64,
    pub what: Wanted,
}

/// What a request wants.
#[derive(Debug)]
pub(super) enum Wanted {
    ToBegin {
        msg: Box<MOsdOp>,
        charge: Charge,
        /// When it came: nanoseconds of the monotonic clock.
        came_ns: u64,
    },
    ToGoOn(Box<ClientOp>),
    /// The client has heard of this backoff. Requests that it sent before that stand before this.
    Acked(u64),
}

impl Turn {
    /// The place in the order of requests of one that has paused, and holds so much that it may have to wait.
    fn holds_much(&self) -> Option<u64> {
        match &self.what {
            Wanted::ToGoOn(op) if op.held_bytes() >= HELD_AT_LEAST => Some(op.order),
            _ => None,
        }
    }
}

/// The queues of an entity's connections.
type Conns = Ring<ConnId, VecDeque<Turn>>;

/// What is next of an entity: of its connections that read their answers, the one whose turn it is.
fn front<'a>(conns: &'a Conns, unread: &BTreeSet<ConnId>) -> Option<&'a Turn> {
    let conn = conns.order.iter().find(|conn| !unread.contains(conn))?;
    conns.of.get(conn)?.front()
}

/// Whether an entity may have a turn, when of requests that hold much this one alone goes on.
fn may_go(conns: &Conns, unread: &BTreeSet<ConnId>, oldest: Option<u64>) -> bool {
    let Some(turn) = front(conns, unread) else { return false };
    oldest.is_none() || turn.holds_much().is_none_or(|order| oldest == Some(order))
}

/// All requests that wait for their turn.
#[derive(Debug, Default)]
pub(super) struct Turns {
    entities: Ring<AuthName, Conns>,
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

    /// Whether requests of this connection wait.
    pub fn has(&self, entity: &AuthName, conn: ConnId) -> bool {
        self.entities.of.get(entity).is_some_and(|conns| conns.of.contains_key(&conn))
    }

    /// Takes back a request that paused in its turn. It is the next of its connection, which is the next of
    /// its entity.
    pub fn put_back(&mut self, entity: &AuthName, conn: ConnId, turn: Turn) {
        self.entities.entry(entity).first(&conn).push_front(turn);
    }

    /// Connections with requests that wait.
    pub fn clients(&self) -> impl Iterator<Item = ConnId> {
        self.entities.of.values().flat_map(|conns| conns.order.iter().copied())
    }

    /// Connections with much to read: they have no turn until the next call says otherwise. Their paused
    /// requests drop what they have read, and will begin anew: kept so long, it would take the room for other
    /// requests to pause.
    pub fn set_unread(&mut self, unread: BTreeSet<ConnId>) {
        let queues = self.entities.of.values_mut().flat_map(|conns| &mut conns.of);
        for turn in queues.filter(|(conn, _)| unread.contains(conn)).flat_map(|(_, queue)| queue) {
            if let Wanted::ToGoOn(op) = &mut turn.what {
                (op.paused, op.has_paused) = (None, false);
            }
        }
        self.unread = unread;
    }

    /// Whether everything that waits has to wait for clients to read, or for requests that end.
    pub fn wait_for_others(&self, is_full: bool) -> bool {
        let oldest = self.oldest_to_hold(is_full);
        self.entities.of.values().all(|conns| !may_go(conns, &self.unread, oldest))
    }

    /// Where requests that have paused hold as much as they may: the oldest of those that wait here. It alone
    /// goes on, of those that hold much.
    fn oldest_to_hold(&self, is_full: bool) -> Option<u64> {
        let fronts = self.entities.of.values().filter_map(|conns| front(conns, &self.unread));
        is_full.then(|| fronts.filter_map(Turn::holds_much).min()).flatten()
    }

    /// The oldest request of the connection whose turn it is, of the entity whose turn it is. `is_full`: all
    /// requests that have paused hold as much as they may.
    pub fn pop(&mut self, is_full: bool) -> Option<(ConnId, Turn)> {
        let oldest = self.oldest_to_hold(is_full);
        let unread = &self.unread;
        let reads = |conn: &ConnId, _: &VecDeque<Turn>| !unread.contains(conn);
        let (_, found) = self.entities.turn(
            |_, conns| may_go(conns, unread, oldest),
            |conns| conns.turn(reads, VecDeque::pop_front, VecDeque::is_empty),
            |conns| conns.order.is_empty(),
        )?;
        let (conn, turn) = found?;
        Some((conn, turn?))
    }

    /// Drops the requests of a connection that has ended.
    pub fn remove(&mut self, conn: ConnId) {
        self.entities.retain(|conns| {
            conns.remove(&conn);
            !conns.order.is_empty()
        });
    }

    /// Connection and tid of every request that waits.
    pub fn iter(&self) -> impl Iterator<Item = (ConnId, u64)> {
        let queues = self.entities.of.values().flat_map(|conns| &conns.of);
        let is_request = |t: &&Turn| !matches!(t.what, Wanted::Acked(_));
        queues.flat_map(move |(conn, q)| q.iter().filter(is_request).map(|t| (*conn, t.tid)))
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

/// Queues by key, and the order in which the keys have their turns.
#[derive(Debug)]
pub(super) struct Ring<K, V> {
    of: BTreeMap<K, V>,
    order: VecDeque<K>,
}

impl<K, V> Default for Ring<K, V> {
    fn default() -> Self {
        Self { of: BTreeMap::new(), order: VecDeque::new() }
    }
}

impl<K: Ord + Clone + std::fmt::Debug, V: Default> Ring<K, V> {
    /// The queue of `key`; a new key comes last in the order.
    pub fn entry(&mut self, key: &K) -> &mut V {
        if !self.of.contains_key(key) {
            self.order.push_back(key.clone());
        }
        self.of.entry(key.clone()).or_default()
    }

    /// The queue of `key`, which now has the next turn.
    fn first(&mut self, key: &K) -> &mut V {
        self.order.retain(|k| k != key);
        self.order.push_front(key.clone());
        self.of.entry(key.clone()).or_default()
    }

    /// Calls `take` on the queue of the first key for which `may` holds. The key is last in the order then,
    /// or leaves the ring when its queue is empty.
    pub fn turn<T>(
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

    pub fn is_empty(&self) -> bool {
        self.order.is_empty()
    }

    fn remove(&mut self, key: &K) {
        if self.of.remove(key).is_some() {
            self.order.retain(|k| k != key);
        }
    }

    /// Keeps the queues for which `keep` holds.
    pub fn retain(&mut self, mut keep: impl FnMut(&mut V) -> bool) {
        let Self { of, order } = self;
        of.retain(|_, queue| keep(queue));
        order.retain(|key| of.contains_key(key));
    }

    pub fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.of.iter()
    }

    pub fn assert_invariants(&self) {
        let ordered: BTreeSet<&K> = self.order.iter().collect();
        assert_eq!(ordered.len(), self.order.len(), "somebody is in the order twice");
        assert!(self.of.keys().eq(ordered), "{:?} have turns", self.order);
    }
}
