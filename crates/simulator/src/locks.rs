//! Guests that take a lock from each other. Who finds it held for long puts the holder's address on the blocklist, breaks the
//! lock and takes it; from then on nothing of the one before may change what the lock protects, however late it arrives.
//!
//! While it holds the lock a guest is the only writer, so it knows what it must read.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use codec::{Decode, Encode};
use messages::osd::{Op, OsdOp, flags};
use objecter::{Outcome, Request, Ticket};
use types::{EntityAddr, EntityName, Errno, SnapContext, SnapId, Utime};

use crate::guest::{Cx, Happening};
use crate::history::{Call, ENOENT, State};
use crate::queue::{MILLISECOND, SECOND, Time};
use crate::workload::{operations, outcome, random_call, too_large};

const LOCK: &str = "lock";
const NAME: &str = "owner";
const PROTECTED: u64 = 3;
const EXCLUSIVE: u8 = 1;

// What the class takes and gives. Source: src/cls/lock/cls_lock_ops.h.

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct LockerId {
    locker: EntityName,
    cookie: Bytes,
}
codec::wire_struct!(LockerId(1, 1) { locker, cookie });

#[derive(Debug, Clone, PartialEq, Eq)]
struct Held {
    expiration: Utime,
    addr: EntityAddr,
    description: Bytes,
}
codec::wire_struct!(Held(1, 1) { expiration, addr, description });

struct Info {
    lockers: BTreeMap<LockerId, Held>,
    kind: u8,
    tag: Bytes,
}
codec::wire_struct!(Info(1, 1) { lockers, kind, tag });

struct LockArgs {
    name: String,
    kind: u8,
    cookie: String,
    tag: String,
    description: String,
    duration: Utime,
    flags: u8,
}
codec::wire_struct!(LockArgs(1, 1) { name, kind, cookie, tag, description, duration, flags });

struct UnlockArgs {
    name: String,
    cookie: String,
}
codec::wire_struct!(UnlockArgs(1, 1) { name, cookie });

struct BreakArgs {
    name: String,
    locker: EntityName,
    cookie: Bytes,
}
codec::wire_struct!(BreakArgs(1, 1) { name, locker, cookie });

struct InfoArgs {
    name: String,
}
codec::wire_struct!(InfoArgs(1, 1) { name });

#[derive(Debug, Clone, PartialEq)]
struct Holder {
    id: LockerId,
    addr: EntityAddr,
}

#[derive(Debug, Clone, PartialEq)]
enum Step {
    Idle,
    Taking,
    Looking,
    /// The holder's address is being put on the blocklist.
    ShuttingOut(Holder),
    /// That it is has to be in our map.
    Learning(Holder),
    Breaking(Holder),
    /// The lock is ours: what it protects is read first.
    Reading(u64),
    Holding,
    Releasing,
}

struct Work {
    ticket: Ticket,
    object: u64,
    call: Call,
}

/// See the module.
pub struct Locker {
    cookie: String,
    step: Step,
    ticket: Option<Ticket>,
    known: BTreeMap<u64, State>,
    /// Requests as the holder, oldest first.
    work: VecDeque<Work>,
    /// Before it gives the lock up.
    left: u64,
    /// The holder that was seen last, and since when.
    seen: Option<(Holder, Time)>,
}

impl Locker {
    pub fn new(g: usize) -> Self {
        Self {
            cookie: format!("guest {g}"),
            step: Step::Idle,
            ticket: None,
            known: BTreeMap::new(),
            work: VecDeque::new(),
            left: 0,
            seen: None,
        }
    }

    pub fn act(&mut self, cx: &mut Cx, what: Happening) {
        match what {
            Happening::Began => {
                *self = Self { cookie: std::mem::take(&mut self.cookie), ..Self::new(0) };
                cx.later();
            }
            Happening::Think if self.ticket.is_none() && self.work.is_empty() => self.next(cx),
            Happening::Done(ticket, outcome) if self.ticket == Some(ticket) => {
                self.ticket = None;
                self.stepped(cx, outcome);
            }
            Happening::Done(ticket, outcome) => self.worked(cx, ticket, outcome),
            Happening::Think | Happening::Watch { .. } => {}
        }
    }

    /// How long a holder may be the same before it is taken for dead.
    fn patience(cx: &Cx) -> Time {
        if cx.options.quiet_think.is_some() { 20 * SECOND } else { 2 * SECOND }
    }

    fn next(&mut self, cx: &mut Cx) {
        if cx.pool().is_none() {
            return cx.soon(50 * MILLISECOND);
        }
        if cx.paused {
            return;
        }
        match self.step {
            Step::Holding => self.use_lock(cx),
            _ => self.take(cx),
        }
    }

    fn call(&mut self, cx: &mut Cx, method: &str, input: Bytes, flag: u32) {
        let op = Op::Call { class: "lock".to_owned(), method: method.to_owned(), input };
        self.ticket = Some(cx.op(LOCK, SnapId::HEAD, vec![OsdOp::from(op)], flag, SnapContext::default()));
    }

    fn take(&mut self, cx: &mut Cx) {
        self.step = Step::Taking;
        let args = LockArgs {
            name: NAME.to_owned(),
            kind: EXCLUSIVE,
            cookie: self.cookie.clone(),
            tag: String::new(),
            description: String::new(),
            duration: Utime::ZERO,
            flags: 0,
        };
        self.call(cx, "lock", args.to_bytes(), flags::WRITE | flags::READ);
    }

    fn break_lock(&mut self, cx: &mut Cx, holder: Holder) {
        let (locker, cookie) = (holder.id.locker, holder.id.cookie.clone());
        self.step = Step::Breaking(holder);
        let args = BreakArgs { name: NAME.to_owned(), locker, cookie };
        self.call(cx, "break_lock", args.to_bytes(), flags::WRITE | flags::READ);
    }

    fn look(&mut self, cx: &mut Cx) {
        self.step = Step::Looking;
        self.call(cx, "get_info", InfoArgs { name: NAME.to_owned() }.to_bytes(), flags::READ);
    }

    fn stepped(&mut self, cx: &mut Cx, outcome: Outcome) {
        let reply = match &outcome {
            Outcome::Op(r) => Some((r.result, r.ops.first().map(|o| o.outdata.clone()).unwrap_or_default())),
            Outcome::Command(r) => Some((r.result, Bytes::new())),
            _ => None,
        };
        let result = reply.as_ref().map_or(0, |(result, _)| *result);
        if result == -Errno::ESHUTDOWN.0 {
            return Self::shut_out(cx);
        }
        match (self.step.clone(), result) {
            (Step::Taking, 0) => {
                cx.board.count("locks taken");
                self.known.clear();
                self.seen = None;
                self.left = 3 + cx.rng.below(12);
                self.read(cx, 0);
            }
            (Step::Taking, r) if r == -Errno::EBUSY.0 || r == -Errno::EEXIST.0 => self.look(cx),
            (Step::Looking, 0) => self.looked(cx, reply.map(|(_, out)| out).unwrap_or_default()),
            (Step::ShuttingOut(holder), 0) => {
                self.step = Step::Learning(holder);
                self.ticket = Some(cx.ask(Request::LatestMap));
            }
            (Step::Learning(holder), _) if cx.map.is_blocklisted(&holder.addr) => self.break_lock(cx, holder),
            (Step::Learning(_), _) => self.ticket = Some(cx.ask(Request::LatestMap)),
            (Step::Breaking(_), 0 | ENOENT) => {
                cx.board.count("locks broken");
                self.take(cx);
            }
            (Step::Reading(object), _) => self.read_first(cx, object, outcome),
            (Step::Releasing, 0 | ENOENT) | (Step::Looking, ENOENT) => {
                self.step = Step::Idle;
                cx.later();
            }
            (step, r) => cx.violation(format!("{step:?} came to {r}: {outcome:?}")),
        }
    }

    /// Somebody took us for dead.
    fn shut_out(cx: &mut Cx) {
        cx.board.count("holders shut out");
        let after = cx.rng.below(SECOND);
        cx.restart(after);
    }

    fn looked(&mut self, cx: &mut Cx, output: Bytes) {
        self.step = Step::Idle;
        let info = match Info::from_bytes(output) {
            Ok(info) => info,
            Err(e) => return cx.violation(format!("the lock's holders: {e}")),
        };
        if info.lockers.len() > 1 || (info.kind != EXCLUSIVE && !info.lockers.is_empty()) {
            return cx.violation(format!("{} holders of an exclusive lock", info.lockers.len()));
        }
        let Some((id, held)) = info.lockers.into_iter().next() else { return cx.later() };
        let holder = Holder { id, addr: held.addr };
        match &self.seen {
            Some((seen, since)) if *seen == holder => {
                if cx.now.saturating_sub(*since) > Self::patience(cx) {
                    let add = format!(
                        r#"{{"prefix":"osd blocklist","blocklistop":"add","addr":"{}"}}"#,
                        holder.addr.without_kind()
                    );
                    self.step = Step::ShuttingOut(holder);
                    let request = Request::MonCommand { cmd: vec![add], input: Bytes::new() };
                    self.ticket = Some(cx.ask(request));
                    return;
                }
            }
            _ => self.seen = Some((holder, cx.now)),
        }
        cx.later();
    }

    // As the holder.

    fn protected(object: u64) -> String {
        format!("protected-{object}")
    }

    fn read(&mut self, cx: &mut Cx, object: u64) {
        self.step = Step::Reading(object);
        let name = Self::protected(object);
        let ops = operations(&Call::Read, cx.options);
        self.ticket = Some(cx.op(&name, SnapId::HEAD, ops, flags::READ, SnapContext::default()));
    }

    /// What is found now stays, but for what this holder writes.
    fn read_first(&mut self, cx: &mut Cx, object: u64, ended: Outcome) {
        let Outcome::Op(reply) = ended else {
            return cx.violation(format!("a read came to {ended:?}"));
        };
        match outcome(&Call::Read, reply.result, &reply.ops) {
            Ok(crate::history::Outcome::Seen(seen)) => drop(self.known.insert(object, State::holding(seen))),
            other => return cx.violation(format!("a read came to {other:?}")),
        }
        if object + 1 < PROTECTED {
            return self.read(cx, object + 1);
        }
        self.step = Step::Holding;
        cx.later();
    }

    fn use_lock(&mut self, cx: &mut Cx) {
        self.left = self.left.saturating_sub(1);
        if self.left > 0 {
            return self.work(cx);
        }
        match cx.rng.below(4) {
            // It dies with the lock.
            0 => {
                cx.board.count("holders died");
                self.work(cx);
                let after = MILLISECOND + cx.rng.below(4 * SECOND);
                cx.restart(after);
            }
            // It falls silent; what it asked arrives when somebody else has the lock.
            1 | 2 => {
                cx.board.count("holders fell silent");
                let lasts = Self::patience(cx) * 2 + cx.rng.below(3 * SECOND);
                cx.be_silent(lasts);
                // One for each object: answers about one object may come in another order than they were asked.
                (0..PROTECTED).for_each(|object| self.work_on(cx, object));
                self.left = 2;
            }
            _ => {
                self.step = Step::Releasing;
                let args = UnlockArgs { name: NAME.to_owned(), cookie: self.cookie.clone() };
                self.call(cx, "unlock", args.to_bytes(), flags::WRITE | flags::READ);
            }
        }
    }

    fn work(&mut self, cx: &mut Cx) {
        let object = cx.rng.below(PROTECTED);
        self.work_on(cx, object);
    }

    fn work_on(&mut self, cx: &mut Cx, object: u64) {
        let unique = cx.unique();
        let mut call = random_call(cx.rng, unique, cx.options);
        let known = self.known.get(&object).and_then(|s| s.content.clone());
        if too_large(&call, known.map_or(0, |c| c.data.len() as u64)) {
            call = Call::Delete;
        }
        let flag = if call.is_read() { flags::READ } else { flags::WRITE };
        let name = Self::protected(object);
        let ticket = cx.op(&name, SnapId::HEAD, operations(&call, cx.options), flag, SnapContext::default());
        self.work.push_back(Work { ticket, object, call });
    }

    fn worked(&mut self, cx: &mut Cx, ticket: Ticket, ended: Outcome) {
        let Some(at) = self.work.iter().position(|w| w.ticket == ticket) else { return };
        let Some(Work { object, call, .. }) = self.work.remove(at) else { return };
        let Outcome::Op(reply) = ended else {
            return cx.violation(format!("{call:?} came to {ended:?}"));
        };
        if reply.result == -Errno::ESHUTDOWN.0 {
            return Self::shut_out(cx);
        }
        let seen = match outcome(&call, reply.result, &reply.ops) {
            Ok(seen) => seen,
            Err(text) => return cx.violation(text),
        };
        let before = self.known.get(&object).cloned().unwrap_or_default();
        match before.step(&call, Some(&seen)) {
            Some(after) => drop(self.known.insert(object, after)),
            None => {
                let was = before.content.map_or("no object".to_owned(), |c| c.to_string());
                let name = Self::protected(object);
                return cx.violation(format!(
                    "{name} is {was} to the lock's only holder, but {call:?} saw {seen:?}"
                ));
            }
        }
        if self.work.is_empty() {
            cx.later();
        }
    }
}
