//! A guest that fills the disks: it writes until there is no room, keeps them full for a while, reads some of it back, removes
//! everything, and begins again. It asks to be told when there is no room; everybody else waits.

use messages::osd::{Extent, Op, OsdOp, flags};
use objecter::{Outcome, Ticket};
use testkit::Rng;
use types::{Errno, SnapContext, SnapId};

use crate::guest::{Cx, Happening};
use crate::history::ENOENT;
use crate::queue::{MILLISECOND, SECOND, Time};

const PIECE: usize = 256 << 10;
/// The disks stay full for so long.
const FULL_FOR: Time = 6 * SECOND;

enum Doing {
    Write(u64),
    Read(u64),
    Remove(u64),
}

/// See the module.
#[derive(Default)]
pub struct Filler {
    /// Objects that are there.
    written: Vec<u64>,
    doing: Option<(Ticket, Doing)>,
    /// Written or not, nobody knows.
    unsure: Vec<u64>,
    full_since: Option<Time>,
    emptying: bool,
}

fn name(number: u64) -> String {
    format!("fill-{number}")
}

fn content(number: u64) -> bytes::Bytes {
    Rng::new(number).bytes(PIECE).into()
}

impl Filler {
    pub fn has_finished(&self) -> bool {
        self.doing.is_none() && self.written.is_empty() && self.unsure.is_empty()
    }

    pub fn act(&mut self, cx: &mut Cx, what: Happening) {
        match what {
            Happening::Began => {
                match self.doing.take() {
                    Some((_, Doing::Write(n) | Doing::Remove(n))) => self.unsure.push(n),
                    Some((_, Doing::Read(n))) => self.written.push(n),
                    None => {}
                }
                cx.soon(MILLISECOND);
            }
            Happening::Think if self.doing.is_none() => self.next(cx),
            Happening::Done(ticket, outcome) => {
                let Some((_, doing)) = self.doing.take_if(|(t, _)| *t == ticket) else { return };
                let wait = if matches!(doing, Doing::Read(_)) { 200 * MILLISECOND } else { MILLISECOND };
                self.done(cx, doing, outcome);
                cx.soon(wait);
            }
            Happening::Think | Happening::Watch { .. } => {}
        }
    }

    fn next(&mut self, cx: &mut Cx) {
        if cx.pool().is_none() {
            return cx.soon(50 * MILLISECOND);
        }
        // Healing waits for room, which nobody else makes.
        let ends = cx.finishing || cx.now >= cx.healed_at;
        if let Some(n) = self.unsure.pop() {
            return self.ask(cx, Doing::Remove(n), Op::Delete);
        }
        match self.full_since {
            Some(since) if !ends && cx.now < since + FULL_FOR => {
                return match self.written.pop() {
                    Some(n) => self.ask(cx, Doing::Read(n), Op::Read(Extent::new(0, 0))),
                    None => cx.soon(100 * MILLISECOND),
                };
            }
            Some(_) => {
                self.full_since = None;
                self.emptying = true;
            }
            None => {}
        }
        if self.emptying || ends {
            return match self.written.pop() {
                Some(n) => self.ask(cx, Doing::Remove(n), Op::Delete),
                None if ends => {}
                None => {
                    self.emptying = false;
                    cx.soon(2 * SECOND);
                }
            };
        }
        if cx.paused {
            return;
        }
        let n = cx.unique();
        let op = Op::WriteFull { extent: Extent::new(0, PIECE as u64), data: content(n) };
        self.ask(cx, Doing::Write(n), op);
    }

    fn ask(&mut self, cx: &mut Cx, doing: Doing, op: Op) {
        let (n, flag) = match &doing {
            Doing::Write(n) | Doing::Remove(n) => (*n, flags::WRITE | flags::FULL_TRY),
            Doing::Read(n) => (*n, flags::READ),
        };
        let ticket = cx.op(&name(n), SnapId::HEAD, vec![OsdOp::from(op)], flag, SnapContext::default());
        self.doing = Some((ticket, doing));
    }

    fn done(&mut self, cx: &mut Cx, doing: Doing, outcome: Outcome) {
        let Outcome::Op(reply) = outcome else {
            return cx.violation(format!("a request came to {outcome:?}"));
        };
        match (doing, reply.result) {
            (Doing::Write(n), 0) => self.written.push(n),
            (Doing::Write(n), r) if r == -Errno::ENOSPC.0 || r == -Errno::EDQUOT.0 => {
                cx.board.count("writes refused for want of room");
                // Refused, or not done: it must not be there.
                self.full_since = Some(cx.now);
                self.unsure.push(n);
            }
            (Doing::Read(n), 0) => {
                let same = reply.ops.first().is_some_and(|o| o.outdata == content(n));
                if !same {
                    return cx.violation(format!("{} is not what was written", name(n)));
                }
                self.written.insert(0, n);
            }
            (Doing::Remove(_), 0 | ENOENT) => cx.board.count("removals"),
            (_, r) => cx.violation(format!("a request came to {r}")),
        }
    }
}
