//! Requests whose data the device reads for them, and which of these reads the shell has been asked for.
//!
//! The shell is asked for a bounded number of reads at a time. The others wait here, and entities take turns,
//! so that a client that asks for much leaves the device to others, too.
//!
//! A long request reads piece by piece, and what it has read is held until it is answered. What requests hold
//! has a bound. Beyond it the oldest goes on, alone, and the others keep what they have and wait for it. So
//! there is always one that comes to its end.
//!
//! Invariants:
//! 1. At most `AT_ONCE` reads are asked for, at most `OF_ONE` for one entity. Of long ones it is
//!    at most `LONG_AT_ONCE` and `LONG_OF_ONE`: short ones do not wait until such a one ends.
//! 2. What an entity's requests hold, with what the device reads for them, is beyond its part only by what
//!    its oldest request reads. All entities' together are beyond `HELD` only by that of the oldest of all,
//!    and by what `HELD_AT_LEAST` gives to each.
//! 3. A read that waits has its request here; a read waits only where one more would break the others.

use std::collections::{BTreeMap, VecDeque};

use store::ReadPlan;
use types::{AuthName, ConnId, Epoch, PgShard, SpgId};

use super::account::Sum;
use super::turns::Ring;
use crate::io::Output;
use crate::peer::ShardAsk;
use crate::pg::ClientOp;

/// A device reads more in a second when it is asked for several things at a time. A read that was handed out
/// has no turn any more, so there are not more of them. Shells may execute fewer side by side.
const AT_ONCE: usize = 16;
/// The rest is for other entities.
const OF_ONE: usize = 12;
/// Shells may have fewer threads for long reads, or slower ones: short ones find a place beside so many, and
/// another entity's long ones beside so many of one.
const LONG_AT_ONCE: usize = 11;
const LONG_OF_ONE: usize = 8;
/// Bytes of the longest read that is none.
const SHORT: u64 = 128 << 10;

/// Bytes that requests which have paused hold, over all entities.
pub(crate) const HELD: u64 = 64 << 20;
/// An entity has half of what others leave of it, and this much in any case.
pub(crate) const HELD_AT_LEAST: u64 = 8 << 20;

/// A read that waits to be asked for.
#[derive(Debug)]
struct Waiting {
    id: u64,
    /// When its request came: older ones have lower numbers.
    order: u64,
    plan: Box<ReadPlan>,
    /// What requests of its entity hold.
    theirs: Sum,
}

/// A read that the shell was asked for and has not answered.
#[derive(Debug)]
struct Asked {
    /// None where the session had ended.
    entity: Option<AuthName>,
    order: u64,
    bytes: u64,
    is_long: bool,
}

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

/// What is read of shards beside clients' requests. Primaries ask for a bounded number of bytes, and a copy
/// reads for one write at a time.
#[derive(Debug)]
pub(crate) enum OfShard {
    Part(ShardRead),
    /// Of a copy's coding chunks, for a write that adds to them.
    Chunk(SpgId),
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct DeviceReads {
    ops: BTreeMap<u64, ClientOp>,
    shards: BTreeMap<u64, OfShard>,
    asked: BTreeMap<u64, Asked>,
    waiting: Ring<Option<AuthName>, VecDeque<Waiting>>,
    /// What all requests hold.
    held: Sum,
    last: u64,
}

impl DeviceReads {
    /// `held` is what all requests that have paused hold.
    pub fn new(held: Sum) -> Self {
        Self { held, ..Self::default() }
    }

    /// The number of a new request's reads.
    pub fn number(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    /// Has the shell read for a request of this entity, now or when it is the entity's turn. `theirs` is what
    /// requests of the entity hold.
    pub fn add(
        &mut self,
        id: u64,
        op: ClientOp,
        plan: Box<ReadPlan>,
        (entity, theirs): (Option<AuthName>, Sum),
        out: &mut Vec<Output>,
    ) {
        let waiting = Waiting { id, order: op.order, plan, theirs };
        self.ops.insert(id, op);
        self.waiting.entry(&entity).push_back(waiting);
        self.ask(out);
    }

    /// Has the shell read a range of a shard. All reads of shards together count as those of one entity.
    pub fn add_shard(&mut self, read: ShardRead, plan: Box<ReadPlan>, out: &mut Vec<Output>) {
        self.add_of_shard(OfShard::Part(read), plan, out);
    }

    /// Has the shell read a coding chunk of a copy, among those; gives the number of the read.
    pub fn add_chunk(&mut self, pgid: SpgId, plan: Box<ReadPlan>, out: &mut Vec<Output>) -> u64 {
        self.add_of_shard(OfShard::Chunk(pgid), plan, out)
    }

    fn add_of_shard(&mut self, what: OfShard, plan: Box<ReadPlan>, out: &mut Vec<Output>) -> u64 {
        let id = self.number();
        self.shards.insert(id, what);
        self.waiting.entry(&None).push_back(Waiting { id, order: id, plan, theirs: Sum::default() });
        self.ask(out);
        id
    }

    /// The read of a shard with this number, if it is one.
    pub fn shard_answered(&mut self, id: u64, out: &mut Vec<Output>) -> Option<OfShard> {
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
    pub fn answered(&mut self, id: u64) -> Option<ClientOp> {
        // Others are asked for when this one has gone on (`look_again`): it may be the oldest.
        self.asked.remove(&id);
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
            queue.retain(|waiting| !is_gone(waiting.id));
            !queue.is_empty()
        });
    }

    /// Asks for what may be asked for by now: requests may hold less.
    pub fn look_again(&mut self, out: &mut Vec<Output>) {
        if !self.waiting.is_empty() {
            self.ask(out);
        }
    }

    /// Asks for what may be asked for, of each entity in turn, and of an entity for what its oldest request
    /// needs.
    fn ask(&mut self, out: &mut Vec<Output>) {
        while self.asked.len() < AT_ONCE {
            let room = Room::of(&self.asked, &self.waiting, self.held.get());
            let may = |entity: &Option<AuthName>, queue: &VecDeque<Waiting>| {
                room.is_there(entity, oldest(queue).and_then(|at| queue.get(at)))
            };
            let take = |queue: &mut VecDeque<Waiting>| oldest(queue).and_then(|at| queue.remove(at));
            let next = self.waiting.turn(may, take, VecDeque::is_empty);
            let Some((entity, Some(Waiting { id, order, plan, .. }))) = next else { return };
            let is_long = plan.asked() > SHORT;
            self.asked.insert(id, Asked { entity, order, bytes: plan.len() as u64, is_long });
            out.push(Output::Read { id, plan });
        }
    }

    /// Checks the invariants that the module states.
    pub fn assert_invariants(&self) {
        let of = |entity: &Option<AuthName>| self.asked.values().filter(|a| a.entity == *entity).count();
        assert!(self.asked.len() <= AT_ONCE, "1: {} reads", self.asked.len());
        assert!(self.asked.values().all(|a| of(&a.entity) <= OF_ONE), "1: {:?}", self.asked);
        let long = self.asked.values().filter(|a| a.is_long).count();
        assert!(long <= LONG_AT_ONCE, "1: {long} long reads");
        self.waiting.assert_invariants();
        let room = Room::of(&self.asked, &self.waiting, self.held.get());
        for (entity, queue) in self.waiting.iter() {
            let first = oldest(queue).and_then(|at| queue.get(at));
            let waits = self.asked.len() == AT_ONCE || !room.is_there(entity, first);
            assert!(waits, "3: {entity:?} waits for nothing");
            assert!(
                queue.iter().all(|w| self.ops.contains_key(&w.id) || self.shards.contains_key(&w.id)),
                "3: {entity:?} waits for nobody"
            );
        }
    }
}

/// Where the read of the oldest request stands.
fn oldest(queue: &VecDeque<Waiting>) -> Option<usize> {
    (0..queue.len()).min_by_key(|at| queue.get(*at).map(|w| w.order))
}

/// What there is room for.
struct Room<'a> {
    asked: &'a BTreeMap<u64, Asked>,
    /// What all requests hold, with what the device reads for them.
    all: u64,
    /// The oldest request for which the device reads, or is to read.
    oldest: Option<u64>,
}

impl<'a> Room<'a> {
    fn of(
        asked: &'a BTreeMap<u64, Asked>,
        waiting: &Ring<Option<AuthName>, VecDeque<Waiting>>,
        held: u64,
    ) -> Self {
        let of_clients = waiting.iter().filter(|(entity, _)| entity.is_some());
        let orders = of_clients.flat_map(|(_, queue)| queue.iter().map(|w| w.order));
        let oldest = orders.chain(asked.values().filter(|a| a.entity.is_some()).map(|a| a.order)).min();
        Self { asked, all: held + asked.values().map(|a| a.bytes).sum::<u64>(), oldest }
    }

    /// Whether the read may be asked for now; see the module's invariants.
    fn is_there(&self, entity: &Option<AuthName>, next: Option<&Waiting>) -> bool {
        let Some(next) = next else { return false };
        let of_theirs = || self.asked.values().filter(|a| a.entity == *entity);
        let is_long = next.plan.asked() > SHORT;
        let long = self.asked.values().filter(|a| a.is_long).count();
        let long_of_theirs = of_theirs().filter(|a| a.is_long).count();
        let has_place = !is_long || (long < LONG_AT_ONCE && long_of_theirs < LONG_OF_ONE);
        if of_theirs().count() >= OF_ONE || !has_place {
            return false;
        }
        // Primaries ask for shards within bounds of their own.
        if entity.is_none() {
            return true;
        }
        let theirs = next.theirs.get() + of_theirs().map(|a| a.bytes).sum::<u64>();
        let part = (HELD.saturating_sub(self.all.saturating_sub(theirs)) / 2).max(HELD_AT_LEAST);
        let is_first = of_theirs().next().is_none() && (self.all < HELD || self.oldest == Some(next.order));
        theirs + next.plan.len() as u64 <= part || is_first
    }
}
