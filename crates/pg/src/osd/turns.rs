//! Client requests that have to wait for their turn: so much was done with one batch of inputs that others come first.
//!
//! A request may be heavy (`exec::work` bounds it), and many heavy ones fit into what is read from a socket at once. When the work of
//! a slice is spent, the core goes back to its shell, which brings heartbeats and the like, and then asks the core to go on.
//! Clients take turns, a request each; one client's requests stay in order. A client that does not read its answers has no turn:
//! what it does not read waits in memory.
//!
//! Invariant: a connection is in `order` exactly once when it has a queue, and no queue is empty.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use messages::osd::MOsdOp;
use types::ConnId;

use super::account::Charge;

/// Bytes of work in one slice: some tens of milliseconds.
pub(crate) const SLICE: u64 = 64 << 20;

/// A request that waits.
#[derive(Debug)]
pub(super) struct Turn {
    pub tid: u64,
    pub msg: MOsdOp,
    pub charge: Charge,
}

/// See the module's documentation.
#[derive(Debug, Default)]
pub(super) struct Turns {
    queues: BTreeMap<ConnId, VecDeque<Turn>>,
    order: VecDeque<ConnId>,
    /// Clients with much to read, as the shell last said.
    unread: BTreeSet<ConnId>,
}

impl Turns {
    pub fn is_empty(&self) -> bool {
        self.order.is_empty()
    }

    pub fn push(&mut self, conn: ConnId, turn: Turn) {
        let queue = self.queues.entry(conn).or_default();
        if queue.is_empty() {
            self.order.push_back(conn);
        }
        queue.push_back(turn);
    }

    /// The clients that wait.
    pub fn clients(&self) -> impl Iterator<Item = ConnId> {
        self.order.iter().copied()
    }

    /// These have no turn until the next word on it.
    pub fn set_unread(&mut self, unread: BTreeSet<ConnId>) {
        self.unread = unread;
    }

    /// Whether all that wait have to read first.
    pub fn wait_for_readers(&self) -> bool {
        self.order.iter().all(|conn| self.unread.contains(conn))
    }

    /// The next client's oldest request.
    pub fn pop(&mut self) -> Option<(ConnId, Turn)> {
        let at = self.order.iter().position(|conn| !self.unread.contains(conn))?;
        let conn = self.order.remove(at)?;
        let queue = self.queues.get_mut(&conn)?;
        let turn = queue.pop_front()?;
        if queue.is_empty() {
            self.queues.remove(&conn);
        } else {
            self.order.push_back(conn);
        }
        Some((conn, turn))
    }

    /// The client is gone, and with it what it wanted.
    pub fn remove(&mut self, conn: ConnId) {
        if self.queues.remove(&conn).is_some() {
            self.order.retain(|c| *c != conn);
        }
    }

    /// Connection and number of all that wait.
    pub fn iter(&self) -> impl Iterator<Item = (ConnId, u64)> {
        self.queues.iter().flat_map(|(conn, q)| q.iter().map(|t| (*conn, t.tid)))
    }

    /// Checks the invariant that the module states.
    pub fn assert_invariants(&self) {
        assert_eq!(self.order.len(), self.queues.len());
        for conn in &self.order {
            assert!(self.queues.get(conn).is_some_and(|q| !q.is_empty()), "{conn} has nothing");
        }
    }
}
