//! Clients that an OSD holds: its shell takes nothing more from their connections until the core lets them go
//! on. What they sent waits in the meantime, in its order.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use pg::Input;
use types::ConnId;

use crate::net::Node;
use crate::queue::{MICROSECOND, Time};
use crate::world::{Event, World};

/// The longest that a shell takes to read on.
const SOON: Time = 500 * MICROSECOND;

/// Whom an OSD holds, and what waits.
#[derive(Debug, Default)]
pub struct Holds {
    all: bool,
    conns: BTreeSet<ConnId>,
    waiting: BTreeMap<ConnId, VecDeque<Input>>,
}

impl Holds {
    fn holds(&self, conn: ConnId) -> bool {
        self.all || self.conns.contains(&conn)
    }

    /// The input, if it may go on at once.
    fn pass(&mut self, conn: ConnId, input: Input) -> Option<Input> {
        if !self.holds(conn) && !self.waiting.contains_key(&conn) {
            return Some(input);
        }
        self.waiting.entry(conn).or_default().push_back(input);
        None
    }

    /// The next of what waits, of a connection that is held no longer.
    fn next(&mut self) -> Option<Input> {
        let conn = self.waiting.keys().copied().find(|conn| !self.holds(*conn))?;
        let waiting = self.waiting.get_mut(&conn)?;
        let input = waiting.pop_front();
        if waiting.is_empty() {
            self.waiting.remove(&conn);
        }
        input
    }

    fn forget(&mut self, conn: ConnId) {
        self.conns.remove(&conn);
        self.waiting.remove(&conn);
    }
}

impl World {
    /// The core says whether to hold a connection, or those of all clients.
    pub fn hold_clients(&mut self, osd: i32, conn: Option<ConnId>, hold: bool) {
        let host = &mut self.osds[osd as usize];
        match (conn, hold) {
            (None, _) => host.holds.all = hold,
            (Some(conn), true) => _ = host.holds.conns.insert(conn),
            (Some(conn), false) => _ = host.holds.conns.remove(&conn),
        }
        if hold {
            return self.happened("clients held");
        }
        let life = host.life;
        let wait = self.rng.below(SOON);
        self.plan_in(wait, Event::LetGo { osd, life });
    }

    /// A message has come for an OSD on a connection that somebody else opened.
    pub fn osd_hears(&mut self, osd: i32, conn: ConnId, from: Node, input: Input) {
        let is_client = matches!(from, Node::Client(_) | Node::Guest(_));
        let passed = match is_client {
            true => self.osds[osd as usize].holds.pass(conn, input),
            false => Some(input),
        };
        if let Some(input) = passed {
            self.osd_input(osd, input);
        }
    }

    /// What waited goes on, until its connection is held again.
    pub fn let_go(&mut self, osd: i32, life: u32) {
        while self.osds[osd as usize].life == life {
            let Some(input) = self.osds[osd as usize].holds.next() else { return };
            self.osd_input(osd, input);
        }
    }

    /// An OSD hears that a connection is over.
    pub fn osd_loses(&mut self, osd: i32, conn: ConnId) {
        self.osds[osd as usize].holds.forget(conn);
        self.osd_input(osd, Input::Disconnected { conn });
    }
}
