//! A guest that writes objects under snapshots, and knows what each object was at each of them. It is the only one who
//! writes them, one request at a time.

use std::collections::BTreeMap;

use codec::Decode;
use messages::mon::pool_op;
use messages::osd::{Op, flags};
use objecter::{Outcome, Request, Ticket};
use types::{Errno, SnapContext, SnapId};

use crate::guest::{Cx, Happening};
use crate::history::{Call, ENOENT, State};
use crate::queue::MILLISECOND;
use crate::workload::{operations, outcome, random_call, too_large};

const OBJECTS: usize = 4;
const SNAPS: usize = 4;

enum Doing {
    Write {
        name: String,
        call: Call,
    },
    ReadHead {
        name: String,
    },
    ReadSnap {
        name: String,
        snap: u64,
    },
    Rollback {
        name: String,
        snap: u64,
    },
    Create,
    /// The pool's snapshot is in no map of ours yet.
    Await,
    Remove {
        snap: u64,
    },
}

/// See the module.
pub struct Snapper {
    pool_mode: bool,
    /// How many times each object was given up.
    slots: [u32; OBJECTS],
    heads: BTreeMap<String, State>,
    snaps: BTreeMap<u64, BTreeMap<String, State>>,
    seq: u64,
    /// Names of the pool's snapshots, in order.
    named: u64,
    doing: Option<(Ticket, Doing)>,
    /// The pool's snapshot that was made and is in no map of ours yet.
    awaited: Option<String>,
    /// Removals that were never answered.
    again: Vec<u64>,
    /// Nobody else's snapshots are left at the end.
    clear: bool,
    /// What is still to be read at the end.
    left: Option<Vec<(u64, String)>>,
}

impl Snapper {
    pub fn new(pool_mode: bool) -> Self {
        Self {
            pool_mode,
            slots: [0; OBJECTS],
            heads: BTreeMap::new(),
            snaps: BTreeMap::new(),
            seq: 0,
            named: 0,
            doing: None,
            awaited: None,
            again: Vec::new(),
            clear: false,
            left: None,
        }
    }

    pub fn has_finished(&self) -> bool {
        let read = self.left.as_ref().is_some_and(Vec::is_empty);
        read && self.clear && self.doing.is_none() && self.snaps.is_empty() && self.again.is_empty()
    }

    pub fn act(&mut self, cx: &mut Cx, what: Happening) {
        match what {
            Happening::Began => {
                self.interrupted();
                cx.later();
            }
            Happening::Think if self.doing.is_none() => self.next(cx),
            Happening::Done(ticket, outcome) => {
                let Some((_, doing)) = self.doing.take_if(|(t, _)| *t == ticket) else { return };
                self.ended(cx, doing, outcome);
                if self.doing.is_none() {
                    if cx.finishing { cx.soon(MILLISECOND) } else { cx.later() }
                }
            }
            Happening::Think | Happening::Watch { .. } => {}
        }
    }

    /// What was under way may happen at any time or never: its object is left alone from now on, but for its snapshots.
    fn interrupted(&mut self) {
        self.awaited = None;
        match self.doing.take() {
            Some((_, Doing::Write { name, .. } | Doing::Rollback { name, .. })) => {
                self.heads.remove(&name);
                let slot = (0..OBJECTS).find(|slot| self.name(*slot) == name);
                slot.into_iter().for_each(|slot| self.slots[slot] += 1);
            }
            Some((_, Doing::Remove { snap })) => self.again.push(snap),
            _ => {}
        }
    }

    fn name(&self, slot: usize) -> String {
        format!("snapped-{slot}-{}", self.slots[slot])
    }

    fn next(&mut self, cx: &mut Cx) {
        if cx.pool().is_none() {
            return cx.soon(50 * MILLISECOND);
        }
        if let Some(snap) = self.again.pop() {
            return self.remove(cx, snap);
        }
        if cx.finishing {
            return self.finish(cx);
        }
        if cx.paused {
            return;
        }
        let name = self.name(cx.rng.below(OBJECTS as u64) as usize);
        let snap = self.any_snap(cx);
        match (cx.rng.below(100), snap) {
            (0..=11, _) if self.snaps.len() < SNAPS => self.create(cx),
            (12..=19, Some((snap, _))) => {
                self.snaps.remove(&snap);
                self.remove(cx, snap);
            }
            (20..=44, Some((snap, name))) => self.read(cx, name, Some(snap)),
            (45..=52, Some((snap, name))) if self.heads.contains_key(&name) => self.roll_back(cx, name, snap),
            (53..=59, _) => self.read(cx, name, None),
            _ => self.write(cx, name),
        }
    }

    /// A snapshot, and an object that it has.
    fn any_snap(&self, cx: &mut Cx) -> Option<(u64, String)> {
        let ids: Vec<u64> = self.snaps.keys().copied().collect();
        if ids.is_empty() {
            return None;
        }
        let snap = *cx.rng.pick(&ids);
        let names: Vec<&String> = self.snaps.get(&snap)?.keys().collect();
        if names.is_empty() {
            return None;
        }
        let name = (*cx.rng.pick(&names)).clone();
        Some((snap, name))
    }

    /// The last checks: every snapshot is read once more, then all are removed.
    fn finish(&mut self, cx: &mut Cx) {
        if self.left.is_none() {
            let all = self.snaps.iter().flat_map(|(id, s)| s.keys().map(|name| (*id, name.clone())));
            self.left = Some(all.collect());
        }
        if let Some((snap, name)) = self.left.as_mut().and_then(Vec::pop) {
            return self.read(cx, name, Some(snap));
        }
        if let Some((snap, _)) = self.snaps.pop_first() {
            return self.remove(cx, snap);
        }
        // One whose creation was never answered.
        let stray = cx.pool().and_then(|(_, p)| p.snaps.keys().next().copied());
        match stray.filter(|_| self.pool_mode) {
            Some(snap) => self.remove(cx, snap),
            None => self.clear = true,
        }
    }

    fn snapc(&self, cx: &Cx) -> SnapContext {
        let Some((_, pool)) = cx.pool().filter(|_| self.pool_mode) else {
            return SnapContext { seq: self.seq, snaps: self.snaps.keys().rev().copied().collect() };
        };
        SnapContext { seq: pool.snap_seq, snaps: pool.snaps.keys().rev().copied().collect() }
    }

    fn write(&mut self, cx: &mut Cx, name: String) {
        let unique = cx.unique();
        let mut call = random_call(cx.rng, unique, cx.options);
        if call.is_read() {
            return self.read(cx, name, None);
        }
        let head = self.heads.get(&name).and_then(|s| s.content.clone());
        if too_large(&call, head.map_or(0, |c| c.data.len() as u64)) {
            call = Call::Delete;
        }
        let snapc = self.snapc(cx);
        let ticket = cx.op(&name, SnapId::HEAD, operations(&call, cx.options), flags::WRITE, snapc);
        self.doing = Some((ticket, Doing::Write { name, call }));
    }

    fn read(&mut self, cx: &mut Cx, name: String, snap: Option<u64>) {
        let at = snap.map_or(SnapId::HEAD, SnapId);
        let ticket =
            cx.op(&name, at, operations(&Call::Read, cx.options), flags::READ, SnapContext::default());
        let doing = match snap {
            Some(snap) => Doing::ReadSnap { name, snap },
            None => Doing::ReadHead { name },
        };
        self.doing = Some((ticket, doing));
    }

    fn roll_back(&mut self, cx: &mut Cx, name: String, snap: u64) {
        let snapc = self.snapc(cx);
        let op = Op::Rollback { snap: SnapId(snap) };
        let ticket = cx.op(&name, SnapId::HEAD, vec![op.into()], flags::WRITE, snapc);
        self.doing = Some((ticket, Doing::Rollback { name, snap }));
    }

    fn pool_op(&mut self, cx: &mut Cx, op: u32, snap: u64, name: String) -> Option<Ticket> {
        let pool = cx.pool()?.0;
        Some(cx.ask(Request::PoolOp { pool, op, snap: SnapId(snap), name, crush_rule: 0 }))
    }

    fn create(&mut self, cx: &mut Cx) {
        self.named += 1;
        let ticket = match self.pool_mode {
            true => self.pool_op(cx, pool_op::CREATE_SNAP, 0, format!("s{}", self.named)),
            false => self.pool_op(cx, pool_op::CREATE_UNMANAGED_SNAP, 0, String::new()),
        };
        self.doing = ticket.map(|t| (t, Doing::Create));
    }

    fn remove(&mut self, cx: &mut Cx, snap: u64) {
        let ticket = match self.pool_mode {
            true => {
                let name = cx.pool().and_then(|(_, p)| p.snaps.get(&snap)).map(|s| s.name.clone());
                // Removed before, by a request whose answer was lost.
                let Some(name) = name else { return cx.soon(MILLISECOND) };
                self.pool_op(cx, pool_op::DELETE_SNAP, 0, name)
            }
            false => self.pool_op(cx, pool_op::DELETE_UNMANAGED_SNAP, snap, String::new()),
        };
        self.doing = ticket.map(|t| (t, Doing::Remove { snap }));
    }

    fn ended(&mut self, cx: &mut Cx, doing: Doing, outcome: Outcome) {
        match doing {
            Doing::Create | Doing::Await | Doing::Remove { .. } => self.pool_op_ended(cx, doing, outcome),
            Doing::Rollback { name, snap } => {
                let Outcome::Op(reply) = outcome else {
                    return cx.violation(format!("a rollback of {name} came to {outcome:?}"));
                };
                let then = self.snaps.get(&snap).and_then(|s| s.get(&name)).cloned().unwrap_or_default();
                if reply.result != 0 && (reply.result != ENOENT || then.content.is_some()) {
                    return cx.violation(format!("a rollback of {name} to {snap} came to {}", reply.result));
                }
                cx.board.count("rollbacks");
                self.heads.insert(name, then);
            }
            Doing::Write { name, call } => self.op_ended(cx, &name, None, &call, outcome),
            Doing::ReadHead { name } => self.op_ended(cx, &name, None, &Call::Read, outcome),
            Doing::ReadSnap { name, snap } => self.op_ended(cx, &name, Some(snap), &Call::Read, outcome),
        }
    }

    fn op_ended(&mut self, cx: &mut Cx, name: &str, snap: Option<u64>, call: &Call, ended: Outcome) {
        let Outcome::Op(reply) = ended else {
            return cx.violation(format!("{call:?} on {name} came to {ended:?}"));
        };
        let seen = match outcome(call, reply.result, &reply.ops) {
            Ok(seen) => seen,
            Err(text) => return cx.violation(format!("{text}: {call:?} on {name} at {snap:?}")),
        };
        let before = match snap {
            Some(snap) => self.snaps.get(&snap).and_then(|s| s.get(name)).cloned().unwrap_or_default(),
            None => self.heads.get(name).cloned().unwrap_or_default(),
        };
        let Some(after) = before.step(call, Some(&seen)) else {
            let was = before.content.map_or("no object".to_owned(), |c| c.to_string());
            return cx.violation(format!("{name} at {snap:?} is {was}, but {call:?} saw {seen:?}"));
        };
        match snap {
            Some(_) => cx.board.count("reads of snapshots"),
            None => drop(self.heads.insert(name.to_owned(), after)),
        }
    }

    fn pool_op_ended(&mut self, cx: &mut Cx, doing: Doing, outcome: Outcome) {
        let result = match &outcome {
            Outcome::PoolOp { result, .. } => *result,
            _ => 0,
        };
        // Asked again of another monitor, what was done is there.
        if result != 0 && result != -Errno::EEXIST.0 && result != ENOENT {
            return cx.violation(format!("an operation on snapshots came to {result}"));
        }
        let have_map = matches!(doing, Doing::Await);
        match (doing, outcome) {
            (Doing::Create, Outcome::PoolOp { response, .. }) if !self.pool_mode => {
                let id = response.and_then(|r| SnapId::from_bytes(r).ok()).map_or(0, |s| s.0);
                return self.created(cx, id);
            }
            (Doing::Create, _) => self.awaited = Some(format!("s{}", self.named)),
            (Doing::Remove { .. }, _) => cx.board.count("snapshots removed"),
            _ => {}
        }
        if self.pool_mode {
            self.look_for_pool_snap(cx, have_map);
        }
    }

    /// From the map on that has the pool's snapshot every write makes clones for it: nothing may be written before ours has it.
    fn look_for_pool_snap(&mut self, cx: &mut Cx, have_map: bool) {
        let wanted = self.awaited.clone();
        let snaps = cx.pool().map(|(_, p)| p.snaps.clone()).unwrap_or_default();
        let found = snaps.iter().find(|(_, s)| Some(&s.name) == wanted.as_ref()).map(|(id, _)| *id);
        match (found, wanted) {
            (Some(id), Some(_)) => {
                self.awaited = None;
                self.created(cx, id);
            }
            (None, None) if have_map => {}
            _ => self.doing = Some((cx.ask(Request::LatestMap), Doing::Await)),
        }
    }

    fn created(&mut self, cx: &mut Cx, id: u64) {
        if id <= self.seq {
            return cx.violation(format!("snapshot {id} was given after {}", self.seq));
        }
        cx.board.count("snapshots");
        self.seq = id;
        self.snaps.insert(id, self.heads.clone());
    }
}
