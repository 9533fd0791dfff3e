//! A cluster that says anything at any time: nothing panics, and the invariants hold.

use std::time::Duration;

use bytes::Bytes;
use maps::flags::WEIGHT_IN;
use messages::Message;
use messages::common::MCommandReply;
use messages::mon::{MMgrMap, MMonGetVersionReply, MMonMap, MPoolOpReply};
use messages::osd::{MOsdBackoff, MOsdOpReply, MWatchNotify};
use messages::payload::RestOfFront;
use objecter::{Input, Request, SessionId, Settings};
use types::{Entropy, Epoch, Errno, HObject, OsdId, SeededEntropy, SpgId};

use crate::bed::{Bed, object};

struct Chaos {
    bed: Bed,
    random: SeededEntropy,
}

impl Chaos {
    fn below(&mut self, n: u64) -> u64 {
        self.random.next_u64() % n
    }

    fn garbage(&mut self) -> Bytes {
        let mut raw = vec![0; self.below(60) as usize];
        self.random.fill(&mut raw);
        raw.into()
    }

    /// Mostly a session that is open, sometimes one that is not.
    fn session(&mut self) -> SessionId {
        let open: Vec<SessionId> = self.bed.open.keys().copied().collect();
        match self.below(open.len() as u64 + 1) {
            n if (n as usize) < open.len() => open[n as usize],
            _ => SessionId(self.below(500)),
        }
    }

    fn message(&mut self) -> Message {
        let tid = self.below(200);
        match self.below(9) {
            0 => {
                let from = Epoch(self.below(20) as u32);
                let mut incs = self.bed.increments(from);
                for raw in incs.incremental.values_mut() {
                    if self.random.next_u64() % 3 == 0 {
                        let cut = (self.random.next_u64() % raw.len() as u64) as usize;
                        *raw = raw.slice(..cut);
                    }
                }
                incs.oldest = Epoch(self.below(20) as u32);
                incs.into()
            }
            1 => {
                let mut full = self.bed.full();
                if self.below(3) == 0 {
                    let garbage = self.garbage();
                    full.full.insert(Epoch(self.below(40) as u32), garbage);
                }
                full.into()
            }
            2 => MMonMap { map: self.garbage() }.into(),
            3 => MMgrMap { map: RestOfFront(self.garbage()) }.into(),
            4 => {
                MMonGetVersionReply { handle: tid, version: self.random.next_u64(), oldest_version: 0 }.into()
            }
            5 => MPoolOpReply { epoch: Epoch(u32::MAX), ..MPoolOpReply::default() }.into(),
            6 => MCommandReply { result: i32::MIN, ..MCommandReply::default() }.into(),
            7 => MWatchNotify {
                cookie: tid,
                event: self.below(5) as u8,
                notify_id: self.below(3),
                return_code: i32::MIN,
                ..MWatchNotify::default()
            }
            .into(),
            _ => MOsdBackoff {
                pgid: SpgId::default(),
                epoch: Epoch(0),
                op: self.below(5) as u8,
                id: self.below(4),
                begin: HObject::min(),
                end: HObject::max(),
            }
            .into(),
        }
    }

    fn step(&mut self) {
        let name = format!("o{}", self.below(30));
        match self.below(16) {
            0..=2 => _ = self.bed.write(&name),
            3 => _ = self.bed.read(&name),
            4 => _ = self.bed.submit(Request::Watch { object: object(&name), timeout_s: 1 }),
            5 => {
                let payload = self.garbage();
                self.bed.submit(Request::Notify { object: object(&name), payload, timeout_s: 1 });
            }
            6 => {
                let cookie = self.below(200);
                let request = if self.below(2) == 0 {
                    Request::Unwatch { cookie }
                } else {
                    Request::WatchCheck { cookie }
                };
                self.bed.submit(request);
            }
            7 => {
                let osd = self.below(5) as i32;
                self.bed.submit(Request::OsdCommand { osd, cmd: Vec::new(), input: Bytes::new() });
            }
            8 => {
                let (msg, tid) = (self.message(), self.below(200));
                self.bed.mon_says(tid, msg);
            }
            9 => {
                let (session, msg, tid) = (self.session(), self.message(), self.below(200));
                self.bed.input(Input::FromSession { session, tid, msg });
            }
            10 | 11 => self.answer(),
            12 => {
                let session = self.session();
                if self.bed.open.remove(&session).is_some() {
                    self.bed.input(Input::SessionGone(session));
                }
            }
            13 => {
                let seconds = self.below(4);
                self.bed.pass(Duration::from_secs(seconds));
            }
            14 => self.new_map(),
            _ => {
                let gone = self.below(2) == 0;
                self.bed.input(if gone { Input::MonGone } else { Input::MonReady });
            }
        }
    }

    /// Answers something that was sent, now and then with nonsense.
    fn answer(&mut self) {
        let ops: Vec<_> = self.bed.take_sent();
        let n = ops.len() as u64;
        for sent in ops {
            let Message::OsdOp(op) = &sent.msg else { continue };
            let mut reply = MOsdOpReply::to(op, 0, Epoch(1), 0);
            match self.below(n + 3) {
                0 => reply.result = i32::MIN,
                1 => reply.ops.clear(),
                2 => reply.retry_attempt = -1,
                _ => {}
            }
            self.bed.input(Input::FromSession { session: sent.session, tid: sent.tid, msg: reply.into() });
        }
    }

    fn new_map(&mut self) {
        let osd = self.below(3) as i32;
        if self.bed.map.is_up(osd) {
            self.bed.fail(osd)
        } else {
            self.bed.boot(osd)
        }
        if self.below(4) == 0 {
            self.bed.change(|inc, _| inc.set_weight(OsdId(osd), 0x8000));
        }
        if self.below(2) == 0 {
            self.bed.give();
        }
    }
}

#[test]
fn anything_may_come_at_any_time() {
    for seed in 0..60 {
        let settings = Settings { max_ops: 8, max_bytes: 100, ..Settings::default() };
        let bed = if seed % 2 == 0 { Bed::with(settings) } else { Bed::without_map(settings) };
        let mut c = Chaos { bed, random: SeededEntropy(seed) };
        for _ in 0..400 {
            c.step();
        }
        settle(&mut c.bed);
    }
}

/// With a cluster that behaves again every operation ends.
fn settle(b: &mut Bed) {
    for osd in 0..3 {
        if !b.map.is_up(osd) {
            b.boot(osd);
        }
        b.change(|inc, _| inc.set_weight(OsdId(osd), WEIGHT_IN));
    }
    b.input(Input::MonGone);
    b.input(Input::MonReady);
    for _ in 0..40 {
        // A core that could not read an increment takes a whole map, any other one the increments.
        b.give_full();
        b.give();
        b.pass(Duration::from_secs(2));
        for sent in b.take_sent() {
            if let Message::OsdOp(op) = &sent.msg {
                let reply = MOsdOpReply::to(op, Errno::ENOENT.neg(), b.map.epoch, 0);
                b.input(Input::FromSession { session: sent.session, tid: sent.tid, msg: reply.into() });
            }
        }
    }
    let open: Vec<SessionId> = b.open.keys().copied().collect();
    // What a backoff of the hostile time holds back goes when its session does.
    open.into_iter().for_each(|session| b.reset(session));
    for _ in 0..40 {
        b.pass(Duration::from_secs(1));
        for sent in b.take_sent() {
            if let Message::OsdOp(op) = &sent.msg {
                let reply = MOsdOpReply::to(op, Errno::ENOENT.neg(), b.map.epoch, 0);
                b.input(Input::FromSession { session: sent.session, tid: sent.tid, msg: reply.into() });
            }
        }
    }
    assert_eq!(b.core.map().epoch, b.map.epoch);
    assert!(**b.core.map() == b.map, "the maps differ");
    assert!((0..3).all(|o| b.map.is_up(o) && b.map.weight(o) == WEIGHT_IN));
    b.core.assert_idle();
}
