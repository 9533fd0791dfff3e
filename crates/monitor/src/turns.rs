//! Messages that wait for the core: entities take turns, daemons go first, and nothing more is read from a
//! client that sends faster than the core handles, until less of it waits.
//!
//! While few messages come, each is handled at once. When the core has been at messages for [`TURN`], the
//! rest waits here, and the core looks at its other inputs (messages of the quorum, ends of connections)
//! before the next turn.
//!
//! Invariants:
//! 1. The messages of one connection are given out in the order in which they came.
//! 2. Of two entities of a kind with messages that may be given out, neither is given two turns while the
//!    other waits for one. Daemons go before clients, but for one turn after [`DAEMONS_IN_A_ROW`].
//! 3. A connection of a client is held exactly while its entity is over its share, from its first message in
//!    that time on, until half of the share is free. Connections of other kinds are never held: clients wait
//!    for daemons, so daemons do not wait for clients.
//! 4. What waits of one entity is within its bound, but for one message; a message that is not taken costs
//!    its connection.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use types::{AuthName, ConnId, EntityType};

/// How long the core is at messages before it looks at other inputs.
const TURN: Duration = Duration::from_millis(5);
/// How long messages wait when all their senders have answers to read first.
const LEISURE: Duration = Duration::from_millis(20);

/// Bytes of one entity that wait before nothing more is read from it.
const HOLD_BYTES: u64 = 1 << 20;
/// Bytes of one entity that may wait. It is more than the above since each of many connections brings
/// something before it is held.
const CLIENT_BYTES: u64 = 32 << 20;
/// The same for a daemon, which is never held.
const DAEMON_BYTES: u64 = 128 << 20;
/// Bytes of all that may wait; beyond it, a client has [`HOLD_BYTES`].
const WHOLE_BYTES: u64 = 256 << 20;
/// Turns of daemons before a client has one.
const DAEMONS_IN_A_ROW: u32 = 16;

/// A connection that is to be held, or let go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hold {
    pub conn: ConnId,
    pub hold: bool,
}

/// What became of a message that came.
#[derive(Debug, PartialEq, Eq)]
pub enum Arrival<T> {
    /// Its turn is now: the caller handles it.
    Now(T),
    /// It waits for its turn.
    Waits,
    /// Too much of its sender waits, so it was dropped: the caller closes its connection.
    TooMuch,
}

/// When the next turn is due, after one that ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rest {
    /// When a message comes: none waits.
    Idle,
    /// When other tasks, which read the connections, had their turns.
    Yield,
    /// After this time: what waits is from peers that have answers to read first.
    Pause(Duration),
}

/// See the module's documentation.
#[derive(Debug)]
pub struct Turns<T> {
    /// When this turn began, on the monotonic clock.
    began: Duration,
    daemons: Ring<T>,
    clients: Ring<T>,
    /// Connections with messages here.
    owners: BTreeMap<ConnId, AuthName>,
    bytes: u64,
    daemons_in_a_row: u32,
    holds: Vec<Hold>,
}

/// Entities in the order of their turns.
#[derive(Debug)]
struct Ring<T> {
    order: VecDeque<AuthName>,
    entities: BTreeMap<AuthName, Entity<T>>,
}

/// What waits of one entity; its connections in the order of their turns.
#[derive(Debug)]
struct Entity<T> {
    order: VecDeque<ConnId>,
    conns: BTreeMap<ConnId, VecDeque<(u64, T)>>,
    bytes: u64,
    held: BTreeSet<ConnId>,
}

impl<T> Default for Turns<T> {
    fn default() -> Self {
        let ring = || Ring { order: VecDeque::new(), entities: BTreeMap::new() };
        Self {
            began: Duration::ZERO,
            daemons: ring(),
            clients: ring(),
            owners: BTreeMap::new(),
            bytes: 0,
            daemons_in_a_row: 0,
            holds: Vec::new(),
        }
    }
}

impl<T> Turns<T> {
    /// A turn begins.
    pub fn begin(&mut self, now: Duration) {
        self.began = now;
    }

    fn is_over(&self, now: Duration) -> bool {
        now.saturating_sub(self.began) >= TURN
    }

    /// A message of so many bytes came. `blocked`: its connection has much to read before it is answered
    /// again.
    pub fn arrive(
        &mut self,
        now: Duration,
        (name, conn): (&AuthName, ConnId),
        blocked: bool,
        bytes: u64,
        item: T,
    ) -> Arrival<T> {
        if self.owners.is_empty() && !self.is_over(now) && !blocked {
            return Arrival::Now(item);
        }
        if self.push(name, conn, bytes, item) { Arrival::Waits } else { Arrival::TooMuch }
    }

    /// The next message of this turn, of a connection that is not `blocked`.
    pub fn next(&mut self, now: Duration, blocked: impl Fn(ConnId) -> bool) -> Option<(ConnId, T)> {
        if self.owners.is_empty() || self.is_over(now) {
            return None;
        }
        self.pop(blocked)
    }

    /// The turn ends.
    pub fn end(&self, now: Duration) -> Rest {
        match self.is_over(now) {
            _ if self.owners.is_empty() => Rest::Idle,
            true => Rest::Yield,
            false => Rest::Pause(LEISURE),
        }
    }

    /// Lets a message wait; with `false` it was not taken, and its connection has to be closed.
    #[must_use]
    fn push(&mut self, name: &AuthName, conn: ConnId, bytes: u64, item: T) -> bool {
        let total = self.bytes;
        let is_client = name.kind == EntityType::Client;
        let ring = self.ring(name);
        let entity = ring.entities.entry(name.clone()).or_insert_with(|| {
            ring.order.push_back(name.clone());
            Entity { order: VecDeque::new(), conns: BTreeMap::new(), bytes: 0, held: BTreeSet::new() }
        });
        let bound = match is_client {
            _ if is_client && total > WHOLE_BYTES => HOLD_BYTES,
            true => CLIENT_BYTES,
            false => DAEMON_BYTES,
        };
        if entity.bytes > bound {
            return false;
        }
        let queue = entity.conns.entry(conn).or_insert_with(|| {
            entity.order.push_back(conn);
            VecDeque::new()
        });
        queue.push_back((bytes, item));
        entity.bytes += bytes;
        let hold = is_client && entity.bytes > HOLD_BYTES;
        let news: Vec<ConnId> = match hold {
            true => entity.order.iter().copied().filter(|conn| entity.held.insert(*conn)).collect(),
            false => Vec::new(),
        };
        self.holds.extend(news.into_iter().map(|conn| Hold { conn, hold: true }));
        self.bytes += bytes;
        self.owners.insert(conn, name.clone());
        true
    }

    /// The next message, of a connection that is not `blocked`.
    fn pop(&mut self, blocked: impl Fn(ConnId) -> bool) -> Option<(ConnId, T)> {
        let clients_first = self.daemons_in_a_row >= DAEMONS_IN_A_ROW;
        let first = if clients_first { &mut self.clients } else { &mut self.daemons };
        let mut of_daemon = !clients_first;
        let mut taken = first.take(&blocked);
        if taken.is_none() {
            let other = if clients_first { &mut self.daemons } else { &mut self.clients };
            of_daemon = clients_first;
            taken = other.take(&blocked);
        }
        self.daemons_in_a_row = if of_daemon { self.daemons_in_a_row.saturating_add(1) } else { 0 };
        let (name, conn, bytes, item) = taken?;
        self.bytes -= bytes;
        self.settle(&name, conn);
        Some((conn, item))
    }

    /// Forgets what waits of a connection that is over.
    pub fn forget(&mut self, conn: ConnId) {
        let Some(name) = self.owners.get(&conn).cloned() else { return };
        let mut gone = 0;
        if let Some(entity) = self.ring(&name).entities.get_mut(&name) {
            gone = entity.conns.remove(&conn).into_iter().flatten().map(|(bytes, _)| bytes).sum();
            entity.bytes -= gone;
            entity.order.retain(|c| *c != conn);
            entity.held.remove(&conn);
        }
        self.bytes -= gone;
        self.settle(&name, conn);
    }

    /// The connections to hold and to let go on since the last call.
    pub fn take_holds(&mut self) -> Vec<Hold> {
        std::mem::take(&mut self.holds)
    }

    fn ring(&mut self, name: &AuthName) -> &mut Ring<T> {
        if name.kind == EntityType::Client { &mut self.clients } else { &mut self.daemons }
    }

    /// After a message of an entity has left: lets its connections go on when there is room, and forgets what
    /// is empty.
    fn settle(&mut self, name: &AuthName, conn: ConnId) {
        let ring = self.ring(name);
        let Some(entity) = ring.entities.get_mut(name) else { return };
        let may_go_on = entity.bytes <= HOLD_BYTES / 2;
        let free = if may_go_on { std::mem::take(&mut entity.held) } else { BTreeSet::new() };
        let is_conn_done = !entity.conns.contains_key(&conn);
        if entity.conns.is_empty() {
            ring.entities.remove(name);
            ring.order.retain(|other| other != name);
        }
        if is_conn_done {
            self.owners.remove(&conn);
        }
        self.holds.extend(free.into_iter().map(|conn| Hold { conn, hold: false }));
    }
}

impl<T> Ring<T> {
    fn take(&mut self, blocked: &impl Fn(ConnId) -> bool) -> Option<(AuthName, ConnId, u64, T)> {
        for _ in 0..self.order.len() {
            let name = self.order.pop_front()?;
            let taken = self.entities.get_mut(&name).and_then(|entity| entity.take(blocked));
            self.order.push_back(name.clone());
            if let Some((conn, bytes, item)) = taken {
                return Some((name, conn, bytes, item));
            }
        }
        None
    }
}

impl<T> Entity<T> {
    fn take(&mut self, blocked: &impl Fn(ConnId) -> bool) -> Option<(ConnId, u64, T)> {
        for _ in 0..self.order.len() {
            let conn = self.order.pop_front()?;
            if blocked(conn) {
                self.order.push_back(conn);
                continue;
            }
            let queue = self.conns.get_mut(&conn)?;
            let (bytes, item) = queue.pop_front()?;
            match queue.is_empty() {
                true => drop(self.conns.remove(&conn)),
                false => self.order.push_back(conn),
            }
            self.bytes -= bytes;
            return Some((conn, bytes, item));
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(text: &str) -> AuthName {
        AuthName::parse(text).expect("a name")
    }

    fn all(turns: &mut Turns<&'static str>) -> Vec<&'static str> {
        std::iter::from_fn(|| turns.pop(|_| false)).map(|(_, item)| item).collect()
    }

    fn push(turns: &mut Turns<&'static str>, name: &str, conn: u64, item: &'static str) {
        assert!(turns.push(&named(name), ConnId(conn), 1, item));
    }

    #[test]
    fn a_flood_of_one_entity_delays_no_other() {
        let mut turns = Turns::default();
        for conn in [1, 2] {
            (0..500).for_each(|_| push(&mut turns, "client.flood", conn, "flood"));
        }
        push(&mut turns, "client.other", 3, "other 1");
        push(&mut turns, "client.other", 3, "other 2");
        push(&mut turns, "osd.0", 4, "beacon");
        let order = all(&mut turns);
        assert_eq!(&order[..6], ["beacon", "flood", "other 1", "flood", "other 2", "flood"]);
        assert_eq!(order.len(), 1_003);
        assert!(turns.owners.is_empty());
    }

    #[test]
    fn a_flood_of_a_daemon_leaves_clients_a_turn_and_other_daemons_theirs() {
        let mut turns = Turns::default();
        (0..100).for_each(|_| push(&mut turns, "mds.a", 1, "flood"));
        push(&mut turns, "osd.0", 2, "beacon");
        push(&mut turns, "client.x", 3, "client");
        let order = all(&mut turns);
        assert_eq!(&order[..3], ["flood", "beacon", "flood"]);
        assert_eq!(order.iter().position(|item| *item == "client"), Some(16));
    }

    #[test]
    fn what_a_connection_sent_keeps_its_order_and_goes_with_it() {
        let mut turns = Turns::default();
        for (conn, item) in [(1, "a"), (2, "x"), (1, "b"), (2, "y"), (1, "c")] {
            push(&mut turns, "client.x", conn, item);
        }
        assert_eq!(turns.pop(|conn| conn == ConnId(1)), Some((ConnId(2), "x")));
        assert_eq!(turns.pop(|_| false), Some((ConnId(1), "a")));
        turns.forget(ConnId(1));
        assert_eq!(turns.pop(|conn| conn == ConnId(2)), None, "it does not read what it is sent");
        assert_eq!(all(&mut turns), ["y"]);
        assert!(turns.owners.is_empty());
        assert_eq!(turns.bytes, 0);
    }

    #[test]
    fn an_entity_over_its_share_is_held_with_all_its_connections_until_half_is_free() {
        let mut turns = Turns::default();
        let (x, hold) = (named("client.x"), |conn, hold| Hold { conn: ConnId(conn), hold });
        assert!(turns.push(&x, ConnId(1), HOLD_BYTES / 2, "a"));
        assert!(turns.push(&x, ConnId(2), HOLD_BYTES / 2, "b"));
        assert_eq!(turns.take_holds(), []);
        assert!(turns.push(&x, ConnId(2), 1, "c"));
        assert_eq!(turns.take_holds(), [hold(1, true), hold(2, true)]);
        assert!(turns.push(&x, ConnId(3), 1, "d"));
        assert_eq!(turns.take_holds(), [hold(3, true)]);
        assert!(turns.push(&named("client.y"), ConnId(4), 1, "e"));
        assert_eq!(turns.pop(|_| false), Some((ConnId(1), "a")));
        assert_eq!(turns.take_holds(), []);
        turns.forget(ConnId(2));
        assert_eq!(turns.take_holds(), [hold(1, false), hold(3, false)]);
        assert_eq!(all(&mut turns), ["e", "d"]);
    }

    #[test]
    fn what_waits_of_an_entity_has_a_bound() {
        let mut turns = Turns::default();
        for (name, bound) in [("client.x", CLIENT_BYTES), ("osd.1", DAEMON_BYTES)] {
            let conn = ConnId(bound);
            assert!(turns.push(&named(name), conn, bound, name));
            assert!(turns.push(&named(name), conn, 1, name));
            assert!(!turns.push(&named(name), conn, 1, name), "{name}");
        }
        assert!(turns.push(&named("client.whole"), ConnId(3), WHOLE_BYTES, "whole"));
        assert!(turns.push(&named("client.small"), ConnId(4), HOLD_BYTES + 1, "small"));
        assert!(!turns.push(&named("client.small"), ConnId(4), 1, "small"));
        assert!(turns.push(&named("osd.2"), ConnId(5), HOLD_BYTES + 1, "beacons"));
        assert!(turns.push(&named("osd.2"), ConnId(5), 1, "no daemon waits for clients"));
        assert!(turns.take_holds().iter().all(|h| h.conn != ConnId(DAEMON_BYTES)), "no daemon is held");
    }

    #[test]
    fn other_inputs_have_their_turn_while_a_flood_comes() {
        let mut turns = Turns::default();
        let (flood, osd) = (named("client.flood"), named("osd.0"));
        let at = Duration::from_micros;
        turns.begin(at(1_000));
        assert_eq!(turns.arrive(at(5_999), (&flood, ConnId(1)), false, 600, 0), Arrival::Now(0));
        assert_eq!(turns.end(at(5_999)), Rest::Idle);
        assert_eq!(turns.arrive(at(6_000), (&flood, ConnId(1)), false, 600, 1), Arrival::Waits);
        assert_eq!(turns.arrive(at(6_000), (&flood, ConnId(2)), false, 600, 2), Arrival::Waits);
        assert_eq!(turns.arrive(at(6_000), (&osd, ConnId(3)), false, 600, 3), Arrival::Waits);
        assert_eq!(turns.next(at(6_000), |_| false), None, "others' inputs first");
        assert_eq!(turns.end(at(6_000)), Rest::Yield);
        turns.forget(ConnId(1));
        turns.begin(at(7_000));
        assert_eq!(turns.next(at(7_000), |_| false), Some((ConnId(3), 3)), "daemons first");
        assert_eq!(
            turns.arrive(at(7_001), (&osd, ConnId(3)), false, 600, 4),
            Arrival::Waits,
            "behind others"
        );
        assert_eq!(turns.next(at(7_002), |_| false), Some((ConnId(3), 4)));
        assert_eq!(turns.next(at(7_003), |conn| conn == ConnId(2)), None, "it does not read");
        assert_eq!(turns.end(at(7_004)), Rest::Pause(LEISURE));
        assert_eq!(turns.next(at(7_004), |_| false), Some((ConnId(2), 2)));
        assert_eq!(turns.arrive(at(7_005), (&flood, ConnId(2)), true, 600, 5), Arrival::Waits);
        // An entity that brings without end is cut off.
        let mut brought = 600;
        while turns.arrive(at(20_000), (&flood, ConnId(2)), false, 1 << 20, 6) == Arrival::Waits {
            brought += 1 << 20;
        }
        assert!((CLIENT_BYTES..=CLIENT_BYTES + (2 << 20)).contains(&brought), "{brought}");
    }
}
