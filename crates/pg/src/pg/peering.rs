//! Peering: who may hold writes, whose log counts, and what each member lacks.

use std::collections::BTreeSet;

use maps::OsdMap;
use types::{Epoch, Eversion, HObject, OsdId, PgShard};

use super::prior::missing_witnesses;
use super::{Owed, Peer, Pg, Phase, persist};
use crate::info::PgInfo;
use crate::interval::{self, Interval, PastIntervals};
use crate::io::LogLevel;
use crate::merge::{LogPart, Lost, MergeError, Merged, merge_logs, peer_missing};
use crate::missing::{Missing, MissingItem};
use crate::osd::shared::{Done, Shared};
use crate::peer::PgBody;
use store::Txn;

/// The OSDs that must be asked before the PG may start.
struct PriorSet {
    probe: BTreeSet<PgShard>,
    /// Down OSDs, one of which must come back; empty when peering can go on.
    blocked_by: Vec<OsdId>,
}

impl Pg {
    pub fn start_peering(&mut self, cx: &mut Shared) {
        self.peers.clear();
        self.phase = Phase::GetInfo { waiting: BTreeSet::new() };
        self.peering_step(cx);
    }

    /// Asks for infos that are still needed; goes on when all are there.
    pub fn peering_step(&mut self, cx: &mut Shared) {
        let prior = self.prior_set(cx);
        let whoami = self.me(cx);
        let needed = prior.probe.iter().copied().filter(|o| *o != whoami && !self.peers.contains_key(o));
        let needed: BTreeSet<PgShard> = needed.collect();
        let asked = match &self.phase {
            Phase::GetInfo { waiting } => waiting.clone(),
            _ => BTreeSet::new(),
        };
        for osd in needed.difference(&asked) {
            cx.send_pg(*osd, self.id, self.interval(), PgBody::QueryInfo);
        }
        self.blocked_by.clone_from(&prior.blocked_by);
        if !needed.is_empty() {
            self.blocked_by.extend(needed.iter().map(|copy| copy.osd));
            self.phase = Phase::GetInfo { waiting: needed };
        } else if !prior.blocked_by.is_empty() {
            self.phase = Phase::Down;
            self.reconsider_waiting(cx);
        } else {
            self.choose_acting(cx);
        }
        self.report = true;
    }

    /// Members of the current interval, and of past ones that may have taken writes since the PG last started.
    ///
    /// Each such interval needs one member that is up and has its disk of then: an acknowledged write is on all of them.
    /// Source: PastIntervals::PriorSet in src/osd/osd_types.h.
    fn prior_set(&self, cx: &Shared) -> PriorSet {
        let map = &cx.map;
        let skipped = usize::from(types::is_planted!(cx.config.planted, SkipsPriorInterval));
        let mut probe: BTreeSet<PgShard> = self.acting().chain(self.up()).collect();
        let mut blocked_by = BTreeSet::new();
        for i in self.past_with_writes().skip(skipped) {
            let members = interval::copies(&i.acting, self.is_coded());
            probe.extend(members.filter(|copy| map.is_up(copy.osd)));
            blocked_by.extend(missing_witnesses(i, |places| self.backend.is_enough(places), map));
        }
        PriorSet { probe, blocked_by: blocked_by.into_iter().collect() }
    }

    /// Intervals since the PG last started, that one included, that may have taken writes; newest first.
    pub(super) fn past_with_writes(&self) -> impl Iterator<Item = &Interval> {
        let started = self.info.history.last_epoch_started;
        self.past.iter().rev().take_while(move |i| i.last >= started).filter(|i| i.maybe_went_rw)
    }

    /// A copy states its info.
    pub fn handle_notify(
        &mut self,
        from: PgShard,
        info: PgInfo,
        past: &PastIntervals,
        owed: &Owed,
        cx: &mut Shared,
    ) {
        if !self.is_primary(cx) {
            return;
        }
        self.prior.heard(from.osd, owed, cx.now.mono);
        self.info.history.merge(&info.history);
        if !info.does_not_exist() {
            self.past.merge(past, self.interval());
            self.forget_old_intervals();
        }
        let known = self.peers.contains_key(&from);
        match &self.phase {
            Phase::GetInfo { .. } | Phase::Down | Phase::Incomplete => {
                self.peers.insert(from, Peer::new(from, info, &cx.map));
                self.peering_step(cx);
            }
            Phase::Active if !known && from != self.me(cx) => {
                self.peers.insert(from, Peer::new(from, info, &cx.map));
                self.stray_appeared(cx);
            }
            _ if !known => {
                self.peers.insert(from, Peer::new(from, info, &cx.map));
            }
            _ => {}
        }
    }

    /// Fetches the authoritative log from `best`, which may be ourselves.
    pub fn get_log(&mut self, best: PgShard, cx: &mut Shared) {
        if best == self.me(cx) {
            return self.get_missing(cx);
        }
        let Some(auth) = self.peers.get(&best).map(|p| p.info.clone()) else { return self.start_peering(cx) };
        // Reach back far enough for every member that this log can catch up.
        let members = self.acting().chain(self.up());
        let mut since = self.info.last_update;
        for info in members.filter_map(|o| self.peers.get(&o)).map(|p| &p.info) {
            if info.last_update >= auth.log_tail && info.last_update < self.info.log_tail {
                since = since.min(info.last_update);
            }
        }
        self.phase = Phase::GetLog { from: best };
        cx.send_pg(best, self.id, self.interval(), PgBody::QueryLog { since });
    }

    /// A log that we asked for: the authoritative one, or a member's.
    pub fn handle_log(
        &mut self,
        from: PgShard,
        info: PgInfo,
        log: LogPart,
        missing: Vec<(HObject, MissingItem)>,
        cx: &mut Shared,
    ) {
        let missing = Missing::from_items(missing);
        match &mut self.phase {
            Phase::Active => self.got_missing_of_stray(from, missing, cx),
            Phase::GetLog { from: asked } if *asked == from => self.got_log(from, info, log, missing, cx),
            Phase::GetMissing { waiting } if waiting.contains(&from) => {
                let lost = self.backend.lost_entries();
                match peer_missing(&self.log, &log, missing, &info.last_backfill, lost) {
                    Ok((missing, common)) => {
                        waiting.remove(&from);
                        let peer = Peer { missing: Some(missing), common, ..Peer::new(from, info, &cx.map) };
                        self.peers.insert(from, peer);
                        self.got_missing(cx);
                    }
                    Err(e) if log.whole => self.bad_log(from, &e, cx),
                    Err(_) => self.query_whole_log(from, cx),
                }
            }
            _ => {}
        }
    }

    fn got_log(&mut self, from: PgShard, info: PgInfo, log: LogPart, missing: Missing, cx: &mut Shared) {
        let whole = log.whole;
        let lost = self.lost_entries(cx);
        match merge_logs(&mut self.log, &mut self.missing, &self.info.last_backfill, log, lost) {
            Ok(merged) => {
                self.info.last_user_version = self.info.last_user_version.max(info.last_user_version);
                self.info.sums = info.sums;
                let mut txn = Txn::new();
                self.record_merge(merged, &mut txn, cx);
                cx.submit(txn, Done::Nothing);
                if let Some(peer) = self.peers.get_mut(&from) {
                    peer.info = info;
                    peer.missing = Some(missing);
                }
                self.get_missing(cx);
            }
            Err(e) if whole => self.bad_log(from, &e, cx),
            Err(_) => self.query_whole_log(from, cx),
        }
    }

    fn query_whole_log(&mut self, from: PgShard, cx: &mut Shared) {
        cx.send_pg(from, self.id, self.interval(), PgBody::QueryLog { since: Eversion::ZERO });
    }

    /// Even the whole log has nothing in common with ours: the copy is of no use but as a target of backfill.
    fn bad_log(&mut self, from: PgShard, e: &MergeError, cx: &mut Shared) {
        let text = format!("pg {} got a log from osd.{from} that does not fit: {e}", self.id);
        cx.cluster_log(LogLevel::Error, text);
        if let Some(peer) = self.peers.get_mut(&from) {
            peer.info.last_backfill = HObject::min();
            peer.info.last_update = Eversion::ZERO;
        }
        self.choose_acting(cx);
    }

    /// What is done with objects that lost entries changed.
    pub(super) fn lost_entries(&self, cx: &Shared) -> Lost {
        if cx.config.undoes_divergent() { self.backend.lost_entries() } else { Lost::Stays }
    }

    /// Takes a merge over into info and store.
    pub fn record_merge(&mut self, merged: Merged, txn: &mut Txn, cx: &mut Shared) {
        persist::put_merged(txn, self.id, &merged);
        if let Some(shards) = &merged.shards {
            self.merge_shards(shards, txn, cx);
        }
        let kept = cx.config.keeps_deleted();
        for object in merged.remove_objects.iter().filter(|_| !kept) {
            txn.remove(&self.object_key(object));
        }
        persist::put_missing(txn, self.id, &self.missing);
        self.update_log_bounds();
        self.update_last_complete();
        self.save_info(txn);
    }

    /// Learns what each member lacks; asks those whose info does not say it all.
    fn get_missing(&mut self, cx: &mut Shared) {
        let mut waiting = BTreeSet::new();
        let head = self.info.last_update;
        let tail = self.log.tail();
        let members: BTreeSet<PgShard> = self.acting().chain(self.up()).collect();
        let (id, interval) = (self.id, self.info.history.same_interval_since);
        let whoami = self.me(cx);
        for osd in members.into_iter().filter(|o| *o != whoami) {
            let Some(peer) = self.peers.get_mut(&osd) else { continue };
            let info = &peer.info;
            let up_to_date = info.last_update == head && !info.has_missing();
            if up_to_date || needs_backfill_from_start(info, tail) {
                peer.missing = Some(Missing::default());
            } else if info.is_empty() {
                let mut missing = Missing::default();
                self.log.entries().for_each(|e| missing.follow(e));
                peer.missing = Some(missing);
            } else {
                // Most likely what both had when the PG last started on that copy is shared.
                let since = Eversion::new(info.last_epoch_started, 0);
                cx.send_pg(osd, id, interval, PgBody::QueryLog { since });
                waiting.insert(osd);
            }
        }
        self.phase = Phase::GetMissing { waiting };
        self.got_missing(cx);
    }

    fn got_missing(&mut self, cx: &mut Shared) {
        if matches!(&self.phase, Phase::GetMissing { waiting } if waiting.is_empty()) {
            self.phase = Phase::WaitUpThru;
            self.check_up_thru(cx);
        }
    }

    /// Goes on once the monitors have recorded that we were alive in this interval: later peerings then know that
    /// this interval may have taken writes. Until then, asks for it.
    pub fn check_up_thru(&mut self, cx: &mut Shared) {
        let recorded = cx.map.osd(cx.whoami).map_or(Epoch(0), |o| o.info.up_thru);
        if recorded >= self.interval() || types::is_planted!(cx.config.planted, NoWaitForUpThru) {
            self.check_prior(cx);
        } else {
            cx.want_up_thru(self.interval());
        }
    }

    /// Answers a primary's question about this copy.
    pub fn handle_query_log(&mut self, from: PgShard, reply: Epoch, since: Eversion, cx: &mut Shared) {
        let log = LogPart::since(&self.log, since);
        let missing = self.missing.iter().map(|(o, i)| (o.clone(), *i)).collect();
        let body = PgBody::Log { info: Box::new(self.info.clone()), log, missing };
        self.tell_when_durable(from, reply, body, cx);
    }

    /// Repeats what may have been lost with a session: every question may be asked twice.
    pub fn repeat_questions(&mut self, cx: &mut Shared) {
        match &self.phase {
            Phase::GetInfo { .. } => {
                self.phase = Phase::GetInfo { waiting: BTreeSet::new() };
                self.peering_step(cx);
            }
            Phase::GetLog { from } => self.get_log(*from, cx),
            Phase::GetMissing { waiting } if !waiting.is_empty() => self.get_missing(cx),
            Phase::WaitUpThru => self.check_up_thru(cx),
            Phase::WaitReadable => self.check_prior(cx),
            Phase::Activating { waiting } => {
                let silent: Vec<PgShard> = waiting.iter().copied().filter(|o| *o != self.me(cx)).collect();
                silent.into_iter().for_each(|osd| self.activate_member(osd, cx));
            }
            Phase::WaitActing { want } => self.request_acting(&want.clone(), cx),
            Phase::Active => {
                self.find_unfound(cx);
                self.ask_holders(cx);
                self.continue_recovery(cx);
                self.delete_doubted(cx);
                self.refuse_for_lost(cx);
                self.repeat_copies(cx);
                self.repeat_repairs(cx);
                self.settle_if_idle(cx);
            }
            // The primary remembers a bounded number of them.
            Phase::Replica if self.is_coded() => self.tell_damaged_again(cx),
            _ => {}
        }
    }
}

impl Peer {
    pub fn new(copy: PgShard, info: PgInfo, map: &OsdMap) -> Self {
        let up_from = map.osd(copy.osd).map_or(Epoch(0), |o| o.info.up_from);
        let room = super::room::PLENTY;
        Self { common: info.last_update, info, missing: None, acked: Eversion::ZERO, room, up_from }
    }

    /// Whether this copy surely holds the object in that version.
    pub fn has(&self, object: &HObject, version: Eversion) -> bool {
        // Its info is that of the activation; what it has acknowledged since, it holds too.
        self.info.last_update.max(self.acked) >= version
            && *object <= self.info.last_backfill
            && match &self.missing {
                Some(m) => !m.contains(object),
                None => self.info.last_complete >= version,
            }
    }
}

/// Whether a log that begins above `tail` cannot catch this copy up.
pub(super) fn needs_backfill_from_start(info: &PgInfo, tail: Eversion) -> bool {
    info.last_update < tail || (info.is_incomplete() && info.last_backfill.is_min())
}
