//! Requests whose data the device has to be asked for: the shell reads it (`Output::Read`), and others are
//! served meanwhile. Requests that gather data of shards (`pg::gather`) wait here in the same way.
//!
//! ```text
//! client_op ─► run ─► wait_for_device ─► (Output::Read, Input::Read) ─► device_has_read ─► client_op ─► run
//! ```
//! Invariants:
//! 1. From the time that the device is first asked for a request's data until the request is answered or
//!    waits for something else, writes of the object wait behind it, and requests that come after such a
//!    write wait behind that: a request sees what its client wrote before it, and nothing that it wrote after
//!    it. A request that is longer than a slice therefore does not go back to `turns` in between.
//! 2. Every read that is under way has its request in `Shared::reads`, which asks the shell for some of them
//!    at a time. So has one of a client that has left and for which the shell was asked, behind which nobody
//!    waits: until the device has read, what it holds counts. The answer to any other read is dropped.
//!
//! A read that fails, or that comes too late (see `store::ReadPlan`), is no answer: the request runs again,
//! in its place, and then waits for the device itself, which tells a damaged object from one that has moved.

use std::collections::{BTreeSet, VecDeque};

use bytes::Bytes;
use store::{ReadPlan, StoreError};
use types::{ConnId, HObject};

use super::Pg;
use super::backend::Backend;
use super::client::{ClientOp, queue_in_order};
use crate::osd::shared::Shared;

/// What goes on at one object.
#[derive(Debug, Default)]
pub(crate) struct Reading {
    /// Numbers of the reads.
    under_way: BTreeSet<u64>,
    /// They are for a write, for which all others wait.
    for_a_write: bool,
    pub waiters: VecDeque<ClientOp>,
}

impl Reading {
    /// Whether a request has to wait behind the reads; see the first invariant.
    fn holds(&self, op: &ClientOp) -> bool {
        let reads = op.reading.is_some_and(|id| self.under_way.contains(&id));
        let is_behind = || self.waiters.front().is_some_and(|first| first.order < op.order);
        !reads && (self.for_a_write || op.is_write_ordered() || is_behind())
    }
}

impl Pg {
    /// Takes in a request that has to wait behind reads of its object; else gives it back.
    pub(super) fn wait_behind_reads(&mut self, head: &HObject, op: ClientOp) -> Option<ClientOp> {
        match self.reading.get_mut(head).filter(|reading| reading.holds(&op)) {
            Some(reading) => {
                queue_in_order(&mut reading.waiters, op);
                None
            }
            None => Some(op),
        }
    }

    /// Has the shell read what the request needs next.
    pub(super) fn wait_for_device(
        &mut self,
        mut op: ClientOp,
        head: &HObject,
        plan: Box<ReadPlan>,
        cx: &mut Shared,
    ) {
        let id = match op.reading.filter(|_| self.is_reading(head, &op)) {
            Some(id) => id,
            None => cx.reads.number(),
        };
        op.reading = Some(id);
        self.begin_reading(head, id, false);
        let session = cx.sessions.get(&op.conn);
        let entity = session.map(|session| session.peer.auth_name.clone());
        let theirs = session.map(|session| session.account.paused_of_entity.clone());
        cx.reads.add(id, op, plan, (entity, theirs.unwrap_or_default()), &mut cx.out);
    }

    /// Notes that something is read of the object for a request.
    pub(super) fn begin_reading(&mut self, head: &HObject, id: u64, for_a_write: bool) {
        let reading = self.reading.entry(head.clone()).or_default();
        reading.under_way.insert(id);
        reading.for_a_write |= for_a_write;
    }

    /// Whether the device reads the object for this request.
    pub(super) fn is_reading(&self, head: &HObject, op: &ClientOp) -> bool {
        let under_way = self.reading.get(head).map(|reading| &reading.under_way);
        op.reading.zip(under_way).is_some_and(|(id, under_way)| under_way.contains(&id))
    }

    /// The device has read for a request of this PG, which goes on.
    pub fn device_has_read(
        &mut self,
        id: u64,
        mut op: ClientOp,
        result: Result<Bytes, StoreError>,
        cx: &mut Shared,
    ) {
        op.has_been_read(result.ok());
        let head = op.msg.object.head();
        self.client_op(cx, op);
        // Unless it needs more of the device.
        if !cx.reads.contains(id) {
            self.read_ended(id, &head, cx);
        }
    }

    /// Lets those go on that waited behind the last read of an object.
    pub(super) fn read_ended(&mut self, id: u64, head: &HObject, cx: &mut Shared) {
        if let Backend::Coded(coded) = &mut self.backend {
            coded.gathers.remove(&id);
        }
        let Some(reading) = self.reading.get_mut(head) else { return };
        reading.under_way.remove(&id);
        if reading.under_way.is_empty() {
            let waiters = self.reading.remove(head).map(|r| r.waiters).unwrap_or_default();
            self.let_go(waiters, cx);
        }
    }

    /// A connection has ended: nobody waits behind its reads.
    pub(super) fn drop_reads_of(&mut self, conn: ConnId, cx: &mut Shared) {
        let mut ended = Vec::new();
        for (head, reading) in &mut self.reading {
            reading.waiters.retain(|op| op.conn != conn);
            let gone =
                reading.under_way.iter().filter(|id| cx.reads.get(**id).is_none_or(|op| op.conn == conn));
            ended.extend(gone.map(|id| (*id, head.clone())));
        }
        for (id, head) in ended {
            self.read_ended(id, &head, cx);
        }
    }

    /// All requests that read or wait behind a read, in the order in which they came at their objects. They
    /// read anew when they run again.
    pub(super) fn stop_reading(&mut self, cx: &mut Shared) -> Vec<ClientOp> {
        let mut all = Vec::new();
        if let Backend::Coded(coded) = &mut self.backend {
            coded.gathers.clear();
        }
        for reading in std::mem::take(&mut self.reading).into_values() {
            let readers = reading.under_way.iter().filter_map(|id| cx.reads.remove(*id));
            all.extend(readers.map(ClientOp::begin_anew));
            all.extend(reading.waiters);
        }
        all
    }

    /// Checks the invariants that the module states.
    pub(super) fn assert_reads(&self, cx: &Shared) {
        for (head, reading) in &self.reading {
            assert!(!reading.under_way.is_empty(), "1: requests wait behind no read of {head}");
            assert!(reading.under_way.iter().all(|id| cx.reads.contains(*id)), "2: nobody reads {head}");
        }
    }
}
