//! A guest that uses pools which administrators make and delete under it. What it has written is there as
//! long as the pool is, and of a pool that is gone it hears that.

use std::collections::BTreeMap;

use messages::osd::{Extent, Op, OsdOp, flags};
use objecter::{OpRequest, Outcome, Request, Ticket};
use testkit::Rng;
use types::{HObject, PoolId, SnapContext, SnapId};

use crate::guest::{Cx, Happening};
use crate::history::ENOENT;
use crate::queue::MILLISECOND;

const OBJECTS: u64 = 6;
const BYTES: usize = 5_000;

#[derive(Debug, Clone, Copy)]
enum Doing {
    /// With this content.
    Write(u64),
    Read,
}

/// See the module.
#[derive(Default)]
pub struct Visitor {
    doing: Option<(Ticket, (PoolId, u64), Doing)>,
    /// What is in each object of a pool; `None` where nobody knows.
    written: BTreeMap<(PoolId, u64), Option<u64>>,
    /// Two of them have objects of their own.
    me: u64,
}

fn content(number: u64) -> bytes::Bytes {
    Rng::new(number).bytes(BYTES).into()
}

impl Visitor {
    pub fn new(g: usize) -> Self {
        Self { me: g as u64, ..Self::default() }
    }

    pub fn has_finished(&self) -> bool {
        self.doing.is_none()
    }

    pub fn act(&mut self, cx: &mut Cx, what: Happening) {
        match what {
            Happening::Began => {
                if let Some((_, at, Doing::Write(_))) = self.doing.take() {
                    self.written.insert(at, None);
                }
                cx.soon(MILLISECOND);
            }
            Happening::Think if self.doing.is_none() => self.next(cx),
            Happening::Done(ticket, outcome) => {
                let Some((_, at, doing)) = self.doing.take_if(|(t, ..)| *t == ticket) else { return };
                self.done(cx, at, doing, &outcome);
                cx.later();
            }
            Happening::Think | Happening::Watch { .. } => {}
        }
    }

    fn next(&mut self, cx: &mut Cx) {
        let mut pools: Vec<PoolId> = cx.map.pools.keys().map(|id| PoolId(id.0)).collect();
        // The first one is the clients'.
        pools.drain(..pools.len().min(1));
        if cx.paused || cx.finishing {
            return;
        }
        if pools.is_empty() {
            return cx.soon(100 * MILLISECOND);
        }
        let at = (*cx.rng.pick(&pools), cx.rng.below(OBJECTS));
        let (doing, op, flags) = match cx.rng.one_in(3) {
            true => (Doing::Read, Op::Read(Extent::new(0, 0)), flags::READ),
            false => {
                let n = cx.unique();
                let op = Op::WriteFull { extent: Extent::new(0, BYTES as u64), data: content(n) };
                (Doing::Write(n), op, flags::WRITE)
            }
        };
        let name = format!("visit-{}-{}", self.me, at.1);
        let object = HObject { pool: at.0, name: name.into(), snap: SnapId::HEAD, ..HObject::min() };
        let (ops, snapc) = (vec![OsdOp::from(op)], SnapContext::default());
        let request = OpRequest { object, ops, flags, snapc, mtime: None, timeout: None };
        self.doing = Some((cx.ask(Request::Op(Box::new(request))), at, doing));
    }

    fn done(&mut self, cx: &mut Cx, at: (PoolId, u64), doing: Doing, outcome: &Outcome) {
        let pool_is_there = cx.map.pools.keys().any(|id| id.0 == at.0.0);
        let known = self.written.get(&at).copied();
        let reply = match outcome {
            Outcome::Op(reply) if reply.result == 0 || pool_is_there => reply,
            // The pool has gone under the request.
            Outcome::Op(_) | Outcome::Failed(_) if !pool_is_there => {
                cx.board.count("requests whose pool had gone");
                return self.written.retain(|(pool, _), _| *pool != at.0);
            }
            other => return cx.violation(format!("a request to a pool that is there came to {other:?}")),
        };
        match (doing, reply.result) {
            (Doing::Write(n), 0) => {
                cx.board.count("writes to pools that come and go");
                self.written.insert(at, Some(n));
            }
            (Doing::Read, ENOENT) if !matches!(known, Some(Some(_))) => {}
            (Doing::Read, 0) => {
                let data = reply.ops.first().map(|op| op.outdata.clone()).unwrap_or_default();
                match known {
                    Some(Some(n)) if data != content(n) => {
                        cx.violation(format!("object {} of pool {:?} is not what was written", at.1, at.0));
                    }
                    None => cx.violation(format!("object {} of pool {:?} was never written", at.1, at.0)),
                    Some(_) => {}
                }
            }
            (doing, r) => cx.violation(format!("{doing:?} of {at:?}, which has {known:?}, came to {r}")),
        }
    }
}
