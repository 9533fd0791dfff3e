//! Writes in flight, in order, and the objects that they hold.
//!
//! Invariants:
//! 1. Versions rise from front to back.
//! 2. An object's count is the number of writes in flight on it; an object that neither has one nor is held is not kept.

use std::collections::VecDeque;

use messages::osd::MOsdOpReply;
use types::{ConnId, Eversion, HObject};

use super::client::ClientOp;
use crate::exec::Effect;
use crate::hash::FixedMap;
use crate::object::ObjectState;

/// One write on its way to every member's disk.
#[derive(Debug, Clone)]
pub(crate) struct InFlight {
    pub version: Eversion,
    pub object: HObject,
    /// The request: when the interval ends and we stay primary it runs again, for clients send again only when the
    /// primary changes.
    pub op: ClientOp,
    /// Data that it stores, in bytes.
    pub in_bytes: u64,
    /// Bytes that it gives. Only what changes nothing gives any.
    pub out_bytes: u64,
    pub reply: Box<MOsdOpReply>,
    /// Resends of the same request that came meanwhile.
    pub resends: Vec<(ClientOp, Box<MOsdOpReply>)>,
    pub effects: Vec<Effect>,
}

impl InFlight {
    pub fn new(version: Eversion, object: HObject, op: ClientOp, reply: Box<MOsdOpReply>) -> Self {
        let (resends, effects) = (Vec::new(), Vec::new());
        Self { version, object, op, in_bytes: 0, out_bytes: 0, reply, resends, effects }
    }
}

/// An object with writes in flight, or requests that wait for them.
#[derive(Debug, Clone, Default)]
pub(crate) struct ObjectLock {
    pub writes: u32,
    /// A request stages what it writes (`pg::staging`): all that come later wait.
    pub held: bool,
    /// The object as the newest write leaves it.
    pub state: Option<ObjectState>,
    pub waiters: VecDeque<ClientOp>,
}

/// See the module's invariants.
#[derive(Debug, Default)]
pub(crate) struct Writes {
    queue: VecDeque<InFlight>,
    locks: FixedMap<HObject, ObjectLock>,
    /// Our own part is durable up to here.
    pub local: Eversion,
}

impl Writes {
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }
    /// The version of the oldest.
    pub fn oldest(&self) -> Option<Eversion> {
        self.queue.front().map(|w| w.version)
    }
    pub fn iter(&self) -> impl Iterator<Item = &InFlight> {
        self.queue.iter()
    }
    /// Requests that wait for a write in flight, in no particular order.
    pub fn waiters(&self) -> impl Iterator<Item = &ClientOp> {
        self.locks.values().flat_map(|l| &l.waiters)
    }
    pub fn objects(&self) -> impl Iterator<Item = &HObject> {
        self.queue.iter().map(|w| &w.object)
    }

    pub fn lock(&self, o: &HObject) -> Option<&ObjectLock> {
        if self.locks.is_empty() {
            return None;
        }
        self.locks.get(o)
    }

    pub fn wait(&mut self, o: &HObject, op: ClientOp) {
        self.locks.entry(o.clone()).or_default().waiters.push_back(op);
    }

    pub fn push(&mut self, w: InFlight, state: Option<ObjectState>) {
        let lock = self.locks.entry(w.object.clone()).or_default();
        lock.writes += 1;
        if state.is_some() {
            lock.state = state;
        }
        self.queue.push_back(w);
    }

    /// The write of this version, if it is still in flight.
    pub fn find(&mut self, v: Eversion) -> Option<&mut InFlight> {
        let at = self.queue.partition_point(|w| w.version < v);
        self.queue.get_mut(at).filter(|w| w.version == v)
    }

    /// Takes the oldest write if it is durable up to `everywhere`, with the requests that its object lets go.
    pub fn pop_done(&mut self, everywhere: Eversion) -> Option<(InFlight, VecDeque<ClientOp>)> {
        if self.queue.front()?.version > everywhere {
            return None;
        }
        let w = self.queue.pop_front()?;
        let mut freed = VecDeque::new();
        if let Some(lock) = self.locks.get_mut(&w.object) {
            lock.writes -= 1;
            if lock.writes == 0 && !lock.held {
                freed = std::mem::take(&mut lock.waiters);
                self.locks.remove(&w.object);
            }
        }
        Some((w, freed))
    }

    /// Has all requests of an object wait from now on.
    pub fn hold(&mut self, o: &HObject) {
        self.locks.entry(o.clone()).or_default().held = true;
    }

    /// The object is not held any more; these have waited for it.
    pub fn let_go(&mut self, o: &HObject) -> VecDeque<ClientOp> {
        let Some(lock) = self.locks.get_mut(o) else { return VecDeque::new() };
        lock.held = false;
        let waiters = std::mem::take(&mut lock.waiters);
        if lock.writes == 0 {
            self.locks.remove(o);
        }
        waiters
    }

    /// How many objects are held.
    pub fn held(&self) -> usize {
        self.locks.values().filter(|l| l.held).count()
    }

    /// The newest write stores so many bytes of data, wherever they were.
    pub fn newest_stores(&mut self, bytes: u64) {
        if let Some(newest) = self.queue.back_mut() {
            newest.in_bytes = bytes;
        }
    }

    /// A client is gone: requests of its own that wait do not run.
    pub fn drop_waiters_of(&mut self, conn: ConnId) {
        self.locks.values_mut().for_each(|l| l.waiters.retain(|op| op.conn != conn));
    }

    /// Forgets everything, as a new interval does; returns the requests: those of writes in their order, then those
    /// that waited for objects.
    pub fn clear(&mut self) -> Vec<ClientOp> {
        let Self { queue, locks, .. } = std::mem::take(self);
        let mut requests = Vec::with_capacity(queue.len());
        for w in queue {
            requests.push(w.op);
            requests.extend(w.resends.into_iter().map(|(op, _)| op));
        }
        let mut waiting: Vec<(HObject, ObjectLock)> = locks.into_iter().collect();
        // The map's own order means nothing.
        waiting.sort_by(|a, b| a.0.cmp(&b.0));
        requests.extend(waiting.into_iter().flat_map(|(_, l)| l.waiters));
        requests
    }

    /// Checks the invariants that the module states.
    pub fn assert_invariants(&self, last_update: Eversion) {
        for (a, b) in self.queue.iter().zip(self.queue.iter().skip(1)) {
            assert!(a.version < b.version, "1: {} before {}", a.version, b.version);
        }
        assert!(self.queue.back().is_none_or(|w| w.version <= last_update), "1: newest above last_update");
        let counted: u32 = self.locks.values().map(|l| l.writes).sum();
        assert_eq!(counted as usize, self.queue.len(), "2: counts");
        for (o, l) in &self.locks {
            assert!(l.writes > 0 || l.held, "2: {o} is kept without a write");
        }
    }
}
