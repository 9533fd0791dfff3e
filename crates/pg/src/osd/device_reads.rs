//! Requests whose data the device reads for them, and which of these reads the shell has been asked for.
//!
//! The shell is asked for a bounded number of reads at a time. The others wait here, and entities take turns,
//! so that a client that asks for much leaves the device to others, too.
//!
//! Invariants:
//! 1. At most `AT_ONCE` reads are asked for, at most `OF_ONE` for one entity.
//! 2. A read that waits has its request here; a read waits only where one more would break the first
//!    invariant.

use std::collections::{BTreeMap, VecDeque};

use store::ReadPlan;
use types::{AuthName, ConnId, Epoch, PgShard, SpgId};

use super::turns::Ring;
use crate::io::Output;
use crate::peer::ShardAsk;
use crate::pg::ClientOp;

/// A device reads more in a second when it is asked for several things at a time. A read that was handed out
/// has no turn any more, so there are not more of them. Shells may execute fewer side by side.
const AT_ONCE: usize = 16;
/// The rest is for other entities.
const OF_ONE: usize = 12;

/// A read that waits to be asked for.
type Waiting = (u64, Box<ReadPlan>);

/// A primary's question for a range of an object's shard.
#[derive(Debug)]
pub(crate) struct ShardRead {
    /// The copy that reads.
    pub pgid: SpgId,
    pub asker: PgShard,
    /// As the asker names it.
    pub interval: Epoch,
    pub ask: Box<ShardAsk>,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct DeviceReads {
    ops: BTreeMap<u64, ClientOp>,
    /// Reads of shards for primaries, which ask for a bounded number of bytes.
    shards: BTreeMap<u64, ShardRead>,
    /// Reads that the shell was asked for and has not answered, with the entity that each is for; none where
    /// the session had ended.
    asked: BTreeMap<u64, Option<AuthName>>,
    waiting: Ring<Option<AuthName>, VecDeque<Waiting>>,
    last: u64,
}

impl DeviceReads {
    /// The number of a new request's reads.
    pub fn number(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    /// Has the shell read for a request of this entity, now or when it is the entity's turn.
    pub fn add(
        &mut self,
        id: u64,
        op: ClientOp,
        plan: Box<ReadPlan>,
        entity: Option<AuthName>,
        out: &mut Vec<Output>,
    ) {
        self.ops.insert(id, op);
        self.waiting.entry(&entity).push_back((id, plan));
        self.ask(out);
    }

    /// Has the shell read a range of a shard. All reads of shards together count as those of one entity.
    pub fn add_shard(&mut self, read: ShardRead, plan: Box<ReadPlan>, out: &mut Vec<Output>) {
        let id = self.number();
        self.shards.insert(id, read);
        self.waiting.entry(&None).push_back((id, plan));
        self.ask(out);
    }

    /// The read of a shard with this number, if it is one.
    pub fn shard_answered(&mut self, id: u64, out: &mut Vec<Output>) -> Option<ShardRead> {
        let read = self.shards.remove(&id)?;
        self.asked.remove(&id);
        self.ask(out);
        Some(read)
    }

    /// Keeps a request for which other OSDs read.
    pub fn hold(&mut self, id: u64, op: ClientOp) {
        self.ops.insert(id, op);
    }

    /// The shell has answered a read: its request, unless that waits for it no more.
    pub fn answered(&mut self, id: u64, out: &mut Vec<Output>) -> Option<ClientOp> {
        self.asked.remove(&id);
        self.ask(out);
        self.ops.remove(&id)
    }

    /// Takes a request back. A read that is under way for it goes on, and its bytes are dropped.
    pub fn remove(&mut self, id: u64) -> Option<ClientOp> {
        let op = self.ops.remove(&id)?;
        if !self.asked.contains_key(&id) {
            self.drop_waiting(|waiting| waiting == id);
        }
        Some(op)
    }

    /// A connection has ended. Requests with a read under way stay, and count, until the read ends.
    pub fn disconnected(&mut self, conn: ConnId) {
        let gone: Vec<u64> = self.ops.iter().filter(|(_, op)| op.conn == conn).map(|(id, _)| *id).collect();
        let gone = gone.into_iter().filter(|id| !self.asked.contains_key(id)).collect::<Vec<_>>();
        for id in &gone {
            self.ops.remove(id);
        }
        self.drop_waiting(|id| gone.contains(&id));
    }

    pub fn get(&self, id: u64) -> Option<&ClientOp> {
        self.ops.get(&id)
    }

    pub fn contains(&self, id: u64) -> bool {
        self.ops.contains_key(&id)
    }

    /// Connection and tid of every request.
    pub fn requests(&self) -> impl Iterator<Item = (ConnId, u64)> {
        self.ops.values().map(|op| (op.conn, op.tid))
    }

    fn drop_waiting(&mut self, is_gone: impl Fn(u64) -> bool) {
        self.waiting.retain(|queue| {
            queue.retain(|(id, _)| !is_gone(*id));
            !queue.is_empty()
        });
    }

    /// Asks for what may be asked for, of each entity in turn.
    fn ask(&mut self, out: &mut Vec<Output>) {
        while self.asked.len() < AT_ONCE {
            let asked = &self.asked;
            let may = |entity: &Option<AuthName>, _: &VecDeque<Waiting>| {
                asked.values().filter(|of| *of == entity).count() < OF_ONE
            };
            let next = self.waiting.turn(may, VecDeque::pop_front, VecDeque::is_empty);
            let Some((entity, Some((id, plan)))) = next else { return };
            self.asked.insert(id, entity);
            out.push(Output::Read { id, plan });
        }
    }

    /// Checks the invariants that the module states.
    pub fn assert_invariants(&self) {
        let of = |entity| self.asked.values().filter(|of| *of == entity).count();
        assert!(self.asked.len() <= AT_ONCE, "1: {} reads", self.asked.len());
        assert!(self.asked.values().all(|entity| of(entity) <= OF_ONE), "1: {:?}", self.asked);
        self.waiting.assert_invariants();
        for (entity, queue) in self.waiting.iter() {
            assert!(self.asked.len() == AT_ONCE || of(entity) == OF_ONE, "2: {entity:?} waits for nothing");
            assert!(
                queue.iter().all(|(id, _)| self.ops.contains_key(id) || self.shards.contains_key(id)),
                "2: {entity:?} waits for nobody"
            );
        }
    }
}
