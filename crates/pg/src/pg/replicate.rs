//! Writes: the primary logs, ships and submits them; members apply them in order; the client hears when all are durable.

use bytes::Bytes;
use store::{ObjectIndex, Priority, StoreError, Txn};
use types::{Epoch, Eversion, HObject, OsdId, PgShard, SpgId};

use super::backend::{Change, Shipped};
use super::client::ClientOp;
use super::room::Taken;
use super::writes::InFlight;
use super::{Pg, Phase, persist};
use crate::dirty::Dirty;
use crate::entry::{EntryKind, LogEntry, OpReturn};
use crate::exec::{EntryDraft, Executed};
use crate::info::AfterWrite;
use crate::io::{FatalReason, LogLevel};
use crate::osd::shared::{Done, PgDone, Shared};
use crate::peer::{PgBody, RepAck, RepOp};

/// Bytes of the largest write, payload included. It is less than the largest transaction of any store, so
/// that every member can apply the write, and less than the largest message, so that it can be sent. Pieces
/// of recovery are no larger.
pub(super) const WRITE_MAX: usize = 94 << 20;

/// A write that is ready to go out: its transaction, its entries, and what follows it.
pub(super) struct Write {
    pub change: Change,
    pub entries: Vec<LogEntry>,
    pub in_flight: InFlight,
    pub executed: Box<Executed>,
}

impl Pg {
    /// The version that the next log entry gets.
    pub fn next_version(&self, cx: &Shared) -> Eversion {
        Eversion::new(cx.epoch(), self.info.last_update.version + 1)
    }

    /// Log entries of an execution: the request's name and results go with the last one.
    pub(super) fn complete_entries(
        op: &ClientOp,
        drafts: Vec<EntryDraft>,
        return_code: i32,
        op_returns: Vec<OpReturn>,
    ) -> Vec<LogEntry> {
        let count = drafts.len();
        let mut op_returns = Some(op_returns);
        let complete = |(i, d): (usize, EntryDraft)| {
            let named = i + 1 == count;
            LogEntry {
                kind: d.kind,
                object: d.object,
                version: d.version,
                prior_version: d.prior_version,
                user_version: d.user_version,
                reqid: if named { op.reqid } else { Default::default() },
                mtime: op.msg.mtime,
                return_code: if named { return_code } else { 0 },
                op_returns: if named { op_returns.take().unwrap_or_default() } else { Vec::new() },
                dirty: d.dirty,
            }
        };
        drafts.into_iter().enumerate().map(complete).collect()
    }

    /// The entry that remembers a refused write, so that a resend gets the same answer.
    pub(super) fn error_entry(
        &self,
        op: &ClientOp,
        result: i32,
        returns: Vec<OpReturn>,
        cx: &Shared,
    ) -> LogEntry {
        LogEntry {
            kind: EntryKind::Error,
            object: op.msg.object.head(),
            version: self.next_version(cx),
            prior_version: Eversion::ZERO,
            user_version: 0,
            reqid: op.reqid,
            mtime: Default::default(),
            return_code: result,
            op_returns: returns,
            dirty: Dirty::NOTHING,
        }
    }

    /// Ships a write to all members and submits it here. When the store refuses it for lack of space nothing has
    /// happened, and the request gets its reply from the caller; the same when the write is larger than `WRITE_MAX`.
    pub(super) fn issue(&mut self, w: Write, cx: &mut Shared) -> Result<(), (StoreError, ClientOp)> {
        let Write { change, entries, mut in_flight, executed } = w;
        let targets = self.write_targets(cx);
        let version = in_flight.version;
        let payload_bytes = change.payload_len() as u64;
        in_flight.in_bytes = payload_bytes;
        let frees = change.is_empty() || in_flight.op.only_frees();
        if let Err(e) = self.members_have_room(&targets, payload_bytes, frees) {
            return Err((e, in_flight.op));
        }
        let before =
            (self.info.last_update, self.info.last_complete, self.info.last_user_version, self.info.sums);
        self.info.last_update = version;
        self.info.last_complete = if self.missing.is_empty() { version } else { self.info.last_complete };
        let newest = entries.last().map_or(0, |e| e.user_version);
        self.info.last_user_version = self.info.last_user_version.max(newest);
        self.info.sums.add(&executed.delta);
        let trim_to = self.trim_target(cx);
        let after = AfterWrite { last_user_version: self.info.last_user_version, sums: self.info.sums };
        let short = types::is_planted!(cx.config.planted, BackfillBoundary);
        let without = |to| self.goes_without(to, &entries, short);
        let without: Vec<PgShard> = targets.iter().copied().filter(|to| without(*to)).collect();
        let is_without = |to| without.contains(&to);
        let urgent = cx.urgent;
        let replaced = self.replaced_shards(&change, &entries);
        let ready =
            self.make_ready(change, &entries, &after, (&targets, is_without), (before.0, trim_to), cx);
        let done = Done::Pg { id: self.id, interval: self.interval(), what: PgDone::Write(version) };
        let submitted = ready.and_then(|ready| {
            let (txn, shipped, after) = ready.into_parts();
            cx.try_submit(txn, Priority::Client, done)?;
            Ok((shipped, after))
        });
        let (shipped, behind) = match submitted {
            Ok(submitted) => submitted,
            Err(e) => {
                (
                    self.info.last_update,
                    self.info.last_complete,
                    self.info.last_user_version,
                    self.info.sums,
                ) = before;
                return Err((e, in_flight.op));
            }
        };
        if !targets.is_empty() {
            // Our part is waited for when the members have done theirs.
            cx.urgent = urgent;
        }
        match shipped {
            Shipped::Nothing => {}
            Shipped::Whole(txn_head, payload) => {
                let op = RepOp { txn_head, payload, prev: before.0, trim_to, coded: None };
                self.ship(&targets, &without, &entries, &after, &op, cx);
            }
            Shipped::Shards(ops) => ops.into_iter().for_each(|(to, op)| {
                cx.send_pg(to, self.id, self.interval(), PgBody::RepOp(Box::new(op)));
            }),
        }
        self.submitted(behind, cx);
        self.use_room(&targets, payload_bytes);
        entries.into_iter().for_each(|e| self.log.append(e));
        self.scrub.note_write(&in_flight.object, &executed.delta);
        replaced.into_iter().for_each(|(object, shards)| self.scrub.note_replaced(object, shards));
        self.writes.push(in_flight, executed.new_state);
        self.report = true;
        // On its own: a write that the store refuses must not leave a trim behind that only memory knows of.
        self.trim_log(trim_to, cx);
        Ok(())
    }

    /// Whether a member gets the entries alone, because its backfill has not come to the object.
    fn goes_without(&self, to: PgShard, entries: &[LogEntry], short: bool) -> bool {
        let reached = |o: &HObject, to: &HObject| o < to || o == to && !short;
        let backfill = self.backfills.get(&to);
        !backfill.is_none_or(|b| entries.iter().all(|e| reached(&e.object, &b.last_backfill)))
    }

    fn ship(
        &self,
        targets: &[PgShard],
        without: &[PgShard],
        entries: &[LogEntry],
        after: &AfterWrite,
        op: &RepOp,
        cx: &mut Shared,
    ) {
        for osd in targets {
            let op = if without.contains(osd) {
                let mut txn = Txn::new();
                put_entries(&mut txn, self.id, entries, after);
                RepOp { txn_head: txn.head(), payload: Bytes::new(), coded: None, ..*op }
            } else {
                op.clone()
            };
            cx.send_pg(*osd, self.id, self.interval(), PgBody::RepOp(Box::new(op)));
        }
    }

    /// How far the log may be trimmed now; its present tail when it is not worth it.
    fn trim_target(&self, cx: &Shared) -> Eversion {
        let c = &cx.config;
        let keep = if self.is_clean() { c.min_pg_log_entries } else { c.max_pg_log_entries };
        if self.log.len() <= keep + c.pg_log_trim_min {
            return self.log.tail();
        }
        if types::is_planted!(cx.config.planted, TrimsUnacknowledged) {
            return self.log.version_before_last(keep);
        }
        // Entries that a member has not made durable stay: they are what it would be caught up with.
        self.log.version_before_last(keep).min(self.durable_everywhere(cx)).min(self.info.last_complete)
    }

    fn trim_log(&mut self, to: Eversion, cx: &mut Shared) {
        if to <= self.log.tail() {
            return;
        }
        let mut txn = Txn::new();
        let trimmed = self.log.trim(to, cx.config.pg_log_dups_tracked);
        persist::put_trimmed(&mut txn, self.id, &trimmed);
        self.info.log_tail = self.log.tail();
        self.save_info(&mut txn);
        cx.submit(txn, Done::Nothing);
    }

    /// Member: objects that are lacking here and that the write brings whole: the primary has given up what they lacked.
    fn given(&self, txn: &Txn, entries: &[LogEntry]) -> Vec<HObject> {
        if self.missing.is_empty() || !txn.names_objects() {
            return Vec::new();
        }
        entries.iter().filter(|e| self.missing.contains(&e.object)).map(|e| e.object.clone()).collect()
    }

    fn have_now(&mut self, given: &[HObject]) {
        for object in given {
            self.missing.remove(object);
        }
        if !given.is_empty() {
            self.update_last_complete();
        }
    }

    /// Member: decodes a write and checks that it follows the last one here. Gives its parts and the version
    /// that it leads to, or says what is wrong with it.
    fn next_write(
        &mut self,
        op: &RepOp,
        cx: &mut Shared,
    ) -> Result<(Txn, Vec<LogEntry>, AfterWrite, Eversion), String> {
        let txn = Txn::from_head(op.txn_head.clone(), op.payload.clone());
        let decoded = txn
            .and_then(|txn| persist::entries_of(&txn, self.id).map(|(entries, after)| (txn, entries, after)));
        let (txn, entries, after) = decoded.map_err(|e| format!("that is damaged: {e}"))?;
        let head = self.log.head();
        let follows = op.prev == head || cx.config.accepts_gaps();
        if op.coded.is_some() != self.is_coded() {
            return Err("of another kind of pool".into());
        }
        if self.is_coded() {
            let keys = || (0..).map_while(|index| txn.object(ObjectIndex(index)));
            if let Some(key) = keys().find(|key| key.shard != self.id.shard) {
                return Err(format!("of shard {} of {}", key.shard, key.object));
            }
            if let Some((object, version)) = self.newer_than_followed(&entries, cx) {
                let why = format!("that follows an older version of {object} than {version}");
                cx.send_pg(self.primary(), self.id, self.primary_interval, PgBody::Newer { object, version });
                return Err(why);
            }
        }
        let in_order = follows && entries.first().is_some_and(|e| e.version > head);
        match entries.last().map(|e| e.version).filter(|_| in_order) {
            Some(version) => Ok((txn, entries, after, version)),
            None => Err(format!("that follows {}, and stands at {head}", op.prev)),
        }
    }

    /// Member: applies a write.
    pub fn handle_rep_op(
        &mut self,
        from: PgShard,
        interval: Epoch,
        op: Box<RepOp>,
        cx: &mut Shared,
    ) -> Taken {
        if from != self.primary() || interval != self.primary_interval {
            return Taken::Done;
        }
        if self.phase != Phase::Replica {
            // This copy was stopped because it was out of step. The primary may not have heard of that.
            self.tell_out_of_step(cx);
            return Taken::Done;
        }
        let Some(old) = self.old_chunks(&op, cx) else { return Taken::OnDevice(PgBody::RepOp(op)) };
        let (txn, entries, after, version) = match self.next_write(&op, cx) {
            Ok(write) => write,
            Err(why) => {
                cx.counters.shards_refused += u64::from(self.is_coded());
                let text = format!("pg {} got a write from osd.{from} {why}", self.id);
                self.out_of_step(text, cx);
                return Taken::Done;
            }
        };
        let (mut txn, behind) = match self.on_member(txn, &op, &entries, &old, cx) {
            Ok(ready) => ready,
            Err(e) => {
                self.store_failed(&e, cx);
                return Taken::Done;
            }
        };
        let given = self.given(&txn, &entries);
        given.iter().for_each(|o| persist::forget_missing(&mut txn, self.id, o));
        // Clients read from the primary.
        txn.note_unread();
        let before =
            (self.info.last_update, self.info.last_complete, self.info.last_user_version, self.info.sums);
        self.info.last_update = version;
        self.update_last_complete();
        self.info.last_user_version = after.last_user_version;
        self.info.sums = after.sums;
        let what = PgDone::RepOp { version, came_ns: cx.now_ns };
        let done = Done::Pg { id: self.id, interval: self.interval(), what };
        if let Err(e) = cx.try_submit(txn, Priority::Member, done) {
            (self.info.last_update, self.info.last_complete, self.info.last_user_version, self.info.sums) =
                before;
            match e {
                StoreError::Full { .. } => return Taken::NoRoom(PgBody::RepOp(op)),
                StoreError::Misuse(e) => {
                    // The start that follows has them made before the write runs again.
                    let lost = self.lost_sources(&op, &entries, cx);
                    self.lost_shards(lost, cx);
                    let text = format!("pg {} cannot apply a write from osd.{from}: {e}", self.id);
                    self.out_of_step(text, cx);
                }
                e => self.store_failed(&e, cx),
            }
            return Taken::Done;
        }
        self.have_now(&given);
        let lost = cx.store.take_lost();
        self.tell_damaged(lost, cx);
        self.submitted(behind, cx);
        cx.counters.rep_op_bytes += (op.txn_head.len() + op.payload.len()) as u64;
        let trim_to = op.trim_to;
        entries.into_iter().for_each(|e| self.log.append(e));
        self.trim_log(trim_to, cx);
        Taken::Done
    }

    /// Member: stops this copy, because a write of the primary was lost or cannot be applied. The writes
    /// after it must not be applied either: the log would have a hole, and an acknowledgement stands for all
    /// writes up to its version.
    fn out_of_step(&mut self, why: String, cx: &mut Shared) {
        cx.cluster_log(LogLevel::Error, why);
        self.stop(cx);
        self.tell_out_of_step(cx);
    }

    pub(super) fn tell_out_of_step(&self, cx: &mut Shared) {
        cx.send_pg(self.primary(), self.id, self.primary_interval, PgBody::OutOfStep);
    }

    /// Primary: has the PG peer again in the same interval, because a member is out of step or may be.
    pub fn peer_again(&mut self, cx: &mut Shared) {
        if !matches!(self.phase, Phase::Activating { .. } | Phase::Active) {
            // It is peering already, and repeats its questions until they are answered.
            return;
        }
        // Kept: clients see no change of the interval, so they would not register their watches again.
        let watches = std::mem::take(&mut self.watches);
        self.start_interval(cx);
        self.watches = watches;
    }

    /// The session with another OSD was lost, and with it messages that were under way.
    pub fn session_lost(&mut self, osd: OsdId, cx: &mut Shared) {
        if cx.config.accepts_gaps() {
            return;
        }
        if self.is_primary(cx) {
            let known = || self.acting().chain(self.up()).chain(self.peers.keys().copied());
            if known().any(|copy| copy.osd == osd) {
                self.peer_again(cx);
            }
        } else if self.primary().osd == osd {
            match self.phase {
                Phase::Replica => {
                    self.stop(cx);
                    self.tell_out_of_step(cx);
                }
                _ => {
                    // That it is out of step may be what was lost: a primary that serves heeds nothing else.
                    let me = self.me(cx);
                    if self.acting().any(|copy| copy == me) {
                        self.tell_out_of_step(cx);
                    }
                    self.notify(self.primary(), cx);
                }
            }
        }
    }

    /// Answers a primary that asks for this copy's info. If this copy serves that primary already, it stops:
    /// the primary peers again, so this member is out of step and has not noticed.
    pub fn handle_query_info(&mut self, from: PgShard, cx: &mut Shared) {
        if self.phase == Phase::Replica && from == self.primary() {
            self.stop(cx);
        }
        self.notify(from, cx);
    }

    /// Member: a write is durable here; the ack, with whom to send it to. One for the newest of a batch tells of all before
    /// it. `tight`: so little room is left here.
    pub fn rep_op_durable(
        &mut self,
        version: Eversion,
        tight: Option<u64>,
        cx: &mut Shared,
    ) -> Option<(PgShard, RepAck)> {
        if self.phase != Phase::Replica {
            return None;
        }
        if let Some(bytes) = tight {
            cx.told_tight = true;
            self.tell_room(bytes, cx);
        }
        let primary = self.primary();
        let pgid = SpgId { shard: primary.shard, ..self.id };
        Some((primary, RepAck { pgid, from: self.id.shard, interval: self.primary_interval, version }))
    }

    /// Primary: everything up to `version` is durable on that member.
    pub fn handle_rep_op_ack(&mut self, from: PgShard, version: Eversion, cx: &mut Shared) {
        if let Some(peer) = self.peers.get_mut(&from) {
            peer.acked = peer.acked.max(version);
        }
        self.complete_writes(cx);
        let oldest = self.writes.oldest();
        if oldest.is_some_and(|v| v > self.writes.local) && oldest <= self.durable_elsewhere(cx) {
            cx.hurry();
        }
    }

    /// Primary: our own part is durable up to `version`. It may be a write of before the PG peered again in
    /// this interval, and that was taken back: the next one has the same version, and is not durable yet.
    pub fn write_durable(&mut self, version: Eversion, cx: &mut Shared) {
        self.writes.local = self.writes.local.max(version.min(self.info.last_update));
        self.complete_writes(cx);
    }

    /// Answers writes that are durable everywhere, oldest first, and lets requests go on that waited for them.
    fn complete_writes(&mut self, cx: &mut Shared) {
        let everywhere = self.durable_everywhere(cx);
        while let Some((done, freed)) = self.writes.pop_done(everywhere) {
            self.apply_effects(&done.op, &done.effects, cx);
            if done.reply.result >= 0 {
                done.op.count(done.in_bytes, done.out_bytes, cx);
            }
            done.op.send(done.reply, cx);
            done.resends.into_iter().for_each(|(op, reply)| op.send(reply, cx));
            // What has waited for the write: the next one begins when all targets have the object.
            if self.is_coded() {
                self.finish_ranges(cx);
                self.between_writes(&done.object, cx);
            }
            self.let_go(freed, cx);
            self.repair_shards_of(&done.object, cx);
            self.repair_found(cx);
        }
        if self.trim.pass.is_some() {
            self.trim_step(cx);
        }
    }

    pub fn store_failed(&self, e: &StoreError, cx: &mut Shared) {
        cx.fail(FatalReason::Store(e.to_string()));
    }
}

/// The write's log entries, the newest with what becomes of the info.
pub(super) fn put_entries(txn: &mut Txn, id: SpgId, entries: &[LogEntry], after: &AfterWrite) {
    if let Some((newest, older)) = entries.split_last() {
        older.iter().for_each(|e| persist::put_entry(txn, id, e));
        persist::put_newest_entry(txn, id, newest, after);
    }
}
