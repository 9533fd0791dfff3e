//! Writing a journal: entries in batches, the header now and then, objects that are not needed any more.

use std::time::Duration;

use codec::Encode;
use messages::fs::FileLayout;
use messages::osd::{Extent, Op};
use types::PoolId;

use super::{Appender, CLEAR_AHEAD, Journal, JournalEvent, JournalOp, Phase, WRITES_AT_ONCE};
use crate::format::{JournalHeader, MAGIC, StreamFormat, write_entry};
use crate::storage::desk::Desk;

/// Bytes of an object of a journal that is made. Source: file_layout_t::get_default.
const OBJECT_BYTES: u32 = 4 << 20;

/// Bytes of entries that do not wait for more.
const MANY: usize = 256 << 10;

/// The header of a journal that is made: entries begin in the second object.
pub(in crate::storage) fn fresh_header(pool: PoolId) -> JournalHeader {
    let at = u64::from(OBJECT_BYTES);
    JournalHeader {
        magic: MAGIC.into(),
        trimmed_pos: at,
        expire_pos: at,
        unused: at,
        write_pos: at,
        layout: FileLayout {
            stripe_unit: OBJECT_BYTES,
            stripe_count: 1,
            object_size: OBJECT_BYTES,
            pool,
            pool_ns: String::new(),
        },
        format: StreamFormat::Resilient,
    }
}

/// Objects that must not exist when a journal is made: what a former attempt may have left.
pub(in crate::storage) fn cleared_of_fresh() -> std::ops::RangeInclusive<u64> {
    1..=CLEAR_AHEAD
}

impl Journal {
    /// Takes what is left of an entry behind the end away, and begins to write.
    pub(in crate::storage) fn start_writing(&mut self, desk: &mut Desk) {
        assert!(self.is_all_read(), "a journal is read before it is written");
        if self.format() != StreamFormat::Resilient {
            return self.damaged("the journal has the old format; a ceph-mds has to rewrite it");
        }
        let at = self.write_pos;
        self.phase = Phase::Cutting;
        self.write =
            Appender { sent: at, safe: at, trim_next: self.trimmed / self.period, ..Appender::default() };
        self.write.clear_next = at.div_ceil(self.period);
        let in_object = at % self.period;
        if in_object != 0 {
            self.write.is_cutting = true;
            self.send(desk, JournalOp::Cut, at / self.period, Op::Truncate(Extent::new(in_object, 0)));
        }
        self.clear_ahead(desk);
    }

    /// Makes a journal of which there is nothing: it is written once its header is durable.
    pub(in crate::storage) fn begin_fresh(&mut self, desk: &mut Desk) {
        let header = fresh_header(self.pool);
        self.period = u64::from(OBJECT_BYTES);
        (self.trimmed, self.expire, self.write_pos) =
            (header.trimmed_pos, header.expire_pos, header.write_pos);
        self.read_from(header.write_pos);
        self.header = Some(header);
        self.phase = Phase::Reading;
        self.start_writing(desk);
        self.send_head(desk);
    }

    pub(super) fn cut_done(&mut self) {
        let is_done = !self.write.is_cutting && self.write.head_in_flight.is_none();
        if self.phase == Phase::Cutting && is_done && self.is_clear(self.write_pos / self.period) {
            self.phase = Phase::Writing;
            self.write.is_head_wanted = true;
            self.events.push(JournalEvent::Writeable);
        }
    }

    /// Whether an object may be written to: nothing lies in the one behind it.
    fn is_clear(&self, object: u64) -> bool {
        let gone = self.write.clearing.first().copied().unwrap_or(self.write.clear_next);
        gone > object + 1
    }

    fn clear_ahead(&mut self, desk: &mut Desk) {
        let until = self.write_pos / self.period + 1 + CLEAR_AHEAD;
        while self.write.clear_next < until {
            let object = self.write.clear_next;
            self.write.clearing.insert(object);
            self.write.clear_next += 1;
            self.send(desk, JournalOp::Clear { object }, object, Op::Delete);
        }
    }

    /// Appends an entry and answers where it ends.
    pub(in crate::storage) fn append(&mut self, payload: &[u8]) -> u64 {
        assert!(matches!(self.phase, Phase::Writing | Phase::Failed), "a journal that is not written");
        self.write_pos = write_entry(&mut self.write.pending, payload, self.write_pos);
        self.write.ends.push_back(self.write_pos);
        self.write_pos
    }

    /// Whether there are entries that were not sent.
    pub(in crate::storage) fn has_unsent(&self) -> bool {
        !self.write.pending.is_empty()
    }

    /// Sends what may be sent now; `all`: entries too, which otherwise are sent when there are many.
    pub(in crate::storage) fn flush(
        &mut self,
        all: bool,
        now: Duration,
        interval: Duration,
        trims: usize,
        desk: &mut Desk,
    ) {
        if self.phase != Phase::Writing {
            return;
        }
        self.clear_ahead(desk);
        if all || self.write.pending.len() >= MANY {
            self.send_entries(desk);
        }
        self.write_head(now, interval, desk);
        self.trim(trims, desk);
    }

    fn send_entries(&mut self, desk: &mut Desk) {
        if self.write.pending.is_empty() || !self.may_send() {
            return;
        }
        let mut left = std::mem::take(&mut self.write.pending).into_bytes();
        while !left.is_empty() && self.may_send() {
            let at = self.write.sent;
            let (object, offset) = (at / self.period, at % self.period);
            let length = (left.len() as u64).min(self.period - offset);
            let data = left.split_to(length as usize);
            self.write.in_flight.insert(at, (at + length, false));
            self.write.sent += length;
            let extent = Extent::new(offset, length);
            self.send(desk, JournalOp::Write { at }, object, Op::Write { extent, data });
        }
        if !left.is_empty() {
            self.write.pending.raw(&left);
        }
    }

    /// Invariants 2 and 3.
    fn may_send(&self) -> bool {
        let object = self.write.sent / self.period;
        let is_free = self.write.in_flight.keys().all(|at| at / self.period == object);
        is_free && self.write.in_flight.len() < WRITES_AT_ONCE && self.is_clear(object)
    }

    pub(super) fn written(&mut self, at: u64) {
        if let Some(write) = self.write.in_flight.get_mut(&at) {
            write.1 = true;
        }
        let mut durable = None;
        while let Some(first) = self.write.in_flight.first_entry().filter(|e| e.get().1) {
            durable = Some(first.remove().0);
        }
        let Some(durable) = durable else { return };
        let before = self.write.safe;
        while let Some(end) = self.write.ends.front().copied().filter(|end| *end <= durable) {
            self.write.ends.pop_front();
            self.write.safe = end;
        }
        if self.write.safe > before {
            self.events.push(JournalEvent::Safe(self.write.safe));
        }
    }

    // The header.

    /// Entries before `pos` are not needed any more. `soon`: the header says so with the next flush, and not
    /// only after its interval.
    pub(in crate::storage) fn mark_expired(&mut self, pos: u64, soon: bool) {
        assert!(pos <= self.write.safe, "only what is durable expires: {pos} of {}", self.write.safe);
        if pos > self.expire {
            self.expire = pos;
            self.write.is_head_wanted |= soon;
        }
    }

    fn is_head_stale(&self) -> bool {
        self.header.as_ref().is_some_and(|h| {
            (h.trimmed_pos, h.expire_pos, h.write_pos) != (self.trimmed, self.expire, self.write.safe)
        })
    }

    /// When the header is due (monotonic).
    pub(in crate::storage) fn head_due(&self, interval: Duration) -> Option<Duration> {
        let is_due = self.phase == Phase::Writing && self.write.head_in_flight.is_none();
        (is_due && self.is_head_stale()).then(|| self.write.head_at.saturating_add(interval))
    }

    fn write_head(&mut self, now: Duration, interval: Duration, desk: &mut Desk) {
        let is_time = self.head_due(interval).is_some_and(|at| at <= now);
        if self.write.head_in_flight.is_some() || !(is_time || self.write.is_head_wanted) {
            return;
        }
        (self.write.is_head_wanted, self.write.head_at) = (false, now);
        self.send_head(desk);
    }

    fn send_head(&mut self, desk: &mut Desk) {
        let Some(old) = &self.header else { return };
        let header = JournalHeader {
            trimmed_pos: self.trimmed,
            expire_pos: self.expire,
            unused: self.expire,
            write_pos: self.write.safe,
            ..old.clone()
        };
        assert!(header.is_ordered(), "{header:?}");
        let data = header.to_bytes();
        let extent = Extent::new(0, data.len() as u64);
        self.write.head_in_flight = Some(header);
        self.send(desk, JournalOp::WriteHead, 0, Op::WriteFull { extent, data });
    }

    pub(super) fn head_written(&mut self) {
        let Some(header) = self.write.head_in_flight.take() else { return };
        let before = self.header.replace(header).map_or(0, |h| h.expire_pos);
        let expire = self.header.as_ref().map_or(0, |h| h.expire_pos);
        if expire > before {
            self.events.push(JournalEvent::Expired(expire));
        }
        self.cut_done();
    }

    // Objects that are not needed any more.

    fn trim(&mut self, at_once: usize, desk: &mut Desk) {
        let until = self.header.as_ref().map_or(0, |h| h.expire_pos) / self.period;
        while self.write.trim_next < until && self.write.trimming.len() < at_once {
            let object = self.write.trim_next;
            self.write.trimming.insert(object);
            self.write.trim_next += 1;
            self.send(desk, JournalOp::Trim { object }, object, Op::Delete);
        }
    }

    pub(super) fn trimmed(&mut self, object: u64) {
        self.write.trimming.remove(&object);
        let gone = self.write.trimming.first().copied().unwrap_or(self.write.trim_next);
        self.trimmed = self.trimmed.max(gone * self.period);
    }

    /// Checks the module's numbered invariants. For tests.
    pub(in crate::storage) fn assert_invariants(&self) {
        if self.phase != Phase::Writing {
            return;
        }
        let durable = self.write.in_flight.first_key_value().map_or(self.write.sent, |(at, _)| *at);
        let order = [self.trimmed, self.expire, self.write.safe, durable, self.write.sent, self.write_pos];
        assert!(order.is_sorted(), "invariant 1: {order:?}");
        let mut objects = self.write.in_flight.keys().map(|at| at / self.period);
        let first = objects.next();
        assert!(objects.all(|object| Some(object) == first), "invariant 2");
        assert!(first.is_none_or(|object| self.is_clear(object)), "invariant 3");
        assert!(self.write.ends.back().is_none_or(|end| *end == self.write_pos), "invariant 4");
        let begin = self.header.as_ref().map_or(0, |h| h.expire_pos);
        assert!(self.trimmed <= begin, "invariant 5");
    }
}
