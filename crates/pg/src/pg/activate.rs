//! Going active: every member takes the same log over, and the start is remembered before the first write.

use std::collections::BTreeSet;
use std::time::Duration;

use store::Txn;
use types::{Epoch, Eversion, HObject, PgShard};

use super::backfill::Backfill;
use super::peering::needs_backfill_from_start;
use super::{Pg, Phase, persist};
use crate::info::{PgHistory, PgInfo};
use crate::interval::PastIntervals;
use crate::io::LogLevel;
use crate::log::PgLog;
use crate::merge::{LogPart, merge_logs};
use crate::missing::Missing;
use crate::osd::shared::{Done, PgDone, Shared};
use crate::peer::{BackfillStart, PgBody};

impl Pg {
    /// Primary: sends each member what it lacks of the log, and makes the start durable here.
    pub fn activate(&mut self, cx: &mut Shared) {
        if self.is_writeable() {
            self.info.last_epoch_started = cx.epoch();
            self.info.last_interval_started = self.interval();
        }
        self.begin_history(cx);
        self.activate_sent = cx.now.into();
        self.find_backfills();
        let mut waiting: BTreeSet<PgShard> = self.write_targets(cx).into_iter().collect();
        for osd in &waiting {
            self.activate_member(*osd, cx);
        }
        if types::is_planted!(cx.config.planted, StartsAlone) {
            waiting.clear();
        }
        waiting.insert(self.me(cx));
        self.writes.local = self.info.last_update;
        let mut txn = Txn::new();
        self.save_info(&mut txn);
        persist::put_past(&mut txn, self.id, &self.past);
        self.activations += 1;
        self.submit(txn, PgDone::Activated(self.activations), cx);
        self.phase = Phase::Activating { waiting };
        self.report = true;
    }

    /// The first start of a PG that no copy has ever started counts as a scrub that found nothing.
    fn begin_history(&mut self, cx: &Shared) {
        let h = &mut self.info.history;
        if h.last_epoch_started == Epoch(0) {
            let now = cx.now.wall;
            (h.scrub.last_stamp, h.scrub.last_deep_stamp, h.scrub.last_clean_stamp) = (now, now, now);
        }
    }

    /// Submits a transaction of the current interval.
    pub fn submit(&self, txn: Txn, what: PgDone, cx: &mut Shared) {
        cx.submit(txn, Done::Pg { id: self.id, interval: self.interval(), what });
    }

    /// Members of the up set that do not serve yet are to be backfilled.
    fn find_backfills(&mut self) {
        let tail = self.log.tail();
        let targets: Vec<PgShard> = self.up().filter(|copy| !self.is_acting(*copy)).collect();
        for osd in targets {
            if let Some(peer) = self.peers.get(&osd) {
                let restart = needs_backfill_from_start(&peer.info, tail);
                let at = if restart { HObject::min() } else { peer.info.last_backfill.clone() };
                self.backfills.insert(osd, Backfill::new(at));
            }
        }
    }

    pub fn activate_member(&mut self, osd: PgShard, cx: &mut Shared) {
        let keep = cx.config.min_pg_log_entries;
        let Some(peer) = self.peers.get_mut(&osd) else { return };
        let restart = needs_backfill_from_start(&peer.info, self.log.tail());
        let (log, backfill) = if restart {
            peer.info.last_backfill = HObject::min();
            peer.missing = Some(Missing::default());
            let mut newest = LogPart::newest(&self.log, keep);
            if types::is_planted!(cx.config.planted, BackfillWithoutDups) {
                newest.dups.clear();
            }
            (newest, BackfillStart::Restart)
        } else {
            let since = peer.common.min(self.info.last_update);
            (LogPart::since(&self.log, since), BackfillStart::Keep)
        };
        peer.info.last_update = self.info.last_update;
        peer.acked = self.info.last_update;
        let body =
            PgBody::Activate { info: Box::new(self.info.clone()), log, backfill, past: self.past.clone() };
        cx.send_pg(osd, self.id, self.info.history.same_interval_since, body);
    }

    /// Member: takes the primary's log over.
    pub fn handle_activate(
        &mut self,
        from: PgShard,
        interval: Epoch,
        auth: &PgInfo,
        log: LogPart,
        backfill: BackfillStart,
        past: &PastIntervals,
        cx: &mut Shared,
    ) {
        if from != self.primary() || from == self.me(cx) {
            return;
        }
        let mut txn = Txn::new();
        match backfill {
            BackfillStart::Restart => self.restart_as_backfill_target(log, &mut txn),
            BackfillStart::Keep => {
                let lost = self.lost_entries(cx);
                match merge_logs(&mut self.log, &mut self.missing, &self.info.last_backfill, log, lost) {
                    Ok(merged) => self.record_merge(merged, &mut txn, cx),
                    Err(e) => {
                        let text = format!("pg {} cannot take over the log of osd.{from}: {e}", self.id);
                        return cx.cluster_log(LogLevel::Error, text);
                    }
                }
            }
        }
        self.info.history.merge(&auth.history);
        self.info.last_epoch_started = self.info.last_epoch_started.max(auth.last_epoch_started);
        self.info.last_interval_started = self.info.last_interval_started.max(auth.last_interval_started);
        self.info.last_user_version = auth.last_user_version;
        self.info.sums = auth.sums;
        self.past.merge(past, self.interval());
        self.forget_old_intervals();
        self.save_info(&mut txn);
        persist::put_past(&mut txn, self.id, &self.past);
        self.primary_interval = interval;
        self.phase = Phase::Replica;
        self.tell_damaged_again(cx);
        self.activations += 1;
        self.submit(txn, PgDone::Activated(self.activations), cx);
    }

    fn restart_as_backfill_target(&mut self, log: LogPart, txn: &mut Txn) {
        self.missing.clear();
        self.forget_kept(txn);
        let head = log.head;
        self.log = PgLog::from_parts(log.tail, log.entries, log.dups);
        if head > self.log.head() {
            self.log.set_head(head);
        }
        self.info.last_backfill = HObject::min();
        self.update_log_bounds();
        self.update_last_complete();
        persist::put_log(txn, self.id, &mut self.log);
        persist::put_missing(txn, self.id, &self.missing);
    }

    pub fn forget_old_intervals(&mut self) {
        let h = &self.info.history;
        self.past.forget_before(h.last_epoch_clean);
        self.past.cut_at(h.same_interval_since);
    }

    /// The activation is durable: here, or (`from`) on a member.
    pub fn activated(&mut self, from: PgShard, lease_ms: u32, cx: &mut Shared) {
        let me = self.me(cx);
        match &mut self.phase {
            Phase::Replica if from == me => {
                let lease = cx.grant(self.primary().osd, cx.config.read_lease());
                let body = PgBody::Activated { lease_ms: u32::try_from(lease.as_millis()).unwrap_or(0) };
                cx.send_pg(self.primary(), self.id, self.primary_interval, body);
            }
            Phase::Activating { waiting } => {
                waiting.remove(&from);
                let lease = Duration::from_millis(u64::from(lease_ms)).min(cx.config.read_lease());
                cx.leases.granted(from.osd, self.activate_sent, lease);
                if waiting.is_empty() {
                    self.started(cx);
                }
            }
            _ => {}
        }
    }

    /// Every member has made the start durable.
    fn started(&mut self, cx: &mut Shared) {
        if self.is_writeable() {
            self.info.history.last_epoch_started = self.info.last_epoch_started;
            self.info.history.last_interval_started = self.info.last_interval_started;
        }
        let was = self.cluster_state(cx);
        self.phase = Phase::Active;
        self.blocked_by.clear();
        self.share_history(cx);
        self.note_state(was, cx);
        if self.is_active() {
            let waiting = std::mem::take(&mut self.waiting_for_active);
            self.let_go(waiting, cx);
            self.release_all_backoffs(cx);
        } else {
            self.reconsider_waiting(cx);
        }
        self.settle(cx);
        self.doubt_again(cx);
        self.learn_all_newer(cx);
        self.find_unfound(cx);
        self.repeat_repairs(cx);
        self.continue_recovery(cx);
    }

    /// Saves what all copies should remember, and tells them.
    pub fn share_history(&mut self, cx: &mut Shared) {
        let mut txn = Txn::new();
        self.save_info(&mut txn);
        persist::put_past(&mut txn, self.id, &self.past);
        cx.submit(txn, Done::Nothing);
        for osd in self.write_targets(cx) {
            let body = PgBody::History { history: self.info.history };
            cx.send_pg(osd, self.id, self.interval(), body);
        }
    }

    /// Member: the primary shares the PG's history.
    pub fn handle_history(&mut self, from: PgShard, history: &PgHistory, cx: &mut Shared) {
        if from != self.primary() || !self.info.history.merge(history) {
            return;
        }
        self.forget_old_intervals();
        let mut txn = Txn::new();
        self.save_info(&mut txn);
        persist::put_past(&mut txn, self.id, &self.past);
        cx.submit(txn, Done::Nothing);
    }

    /// The newest version that every member has made durable.
    pub fn durable_everywhere(&self, cx: &Shared) -> Eversion {
        let careless = types::is_planted!(cx.config.planted, AckWithoutOwnCommit);
        let with_own = |v: Eversion| if careless { v } else { v.min(self.writes.local) };
        self.durable_elsewhere(cx).map_or(self.writes.local, with_own)
    }

    /// The newest version that every other member has made durable; `None` when there is no other.
    pub fn durable_elsewhere(&self, cx: &Shared) -> Option<Eversion> {
        let me = self.me(cx);
        let members = self.acting().chain(self.backfills.keys().copied()).filter(|o| *o != me);
        members.map(|o| self.peers.get(&o).map_or(Eversion::ZERO, |p| p.acked)).min()
    }
}
