//! Following the map: closing intervals, starting new ones, and forgetting what belonged to the old.

use maps::OsdMap;
use store::Txn;
use types::{Epoch, HObject, PgShard};

use super::copy::Copying;
use super::prior::Prior;
use super::trim::Trim;
use super::{Peer, Pg, Phase, persist};
use crate::interval::IntervalKey;
use crate::osd::shared::Shared;
use crate::peer::PgBody;

impl Pg {
    /// Takes one map after `last`. Returns whether a new interval began; its changes are in `txn`, which is submitted
    /// together with the map. The PG must exist in `map`. `presume`: as for [`crate::interval::PastIntervals::close`].
    pub fn advance_map(
        &mut self,
        last: &OsdMap,
        map: &OsdMap,
        key: IntervalKey,
        presume: bool,
        txn: &mut Txn,
    ) -> bool {
        // Maps that the monitors have forgotten may have had other members.
        let gap = last.epoch.next() != map.epoch;
        if !gap && !key.begins_interval(&self.key) {
            self.key = key;
            return false;
        }
        let h = &mut self.info.history;
        if h.same_interval_since <= last.epoch {
            self.past.close(h.same_interval_since, last, &self.key, h.last_epoch_clean, presume);
        }
        h.same_interval_since = map.epoch;
        if key.members.up != self.key.members.up {
            h.same_up_since = map.epoch;
        }
        if key.members.acting_primary != self.key.members.acting_primary {
            h.same_primary_since = map.epoch;
        }
        self.key = key;
        self.save_info(txn);
        persist::put_past(txn, self.id, &self.past);
        true
    }

    /// Begins the current interval: nothing of an older one is left. Requests stay while we stay primary.
    pub fn start_interval(&mut self, cx: &mut Shared) {
        let was = self.cluster_state(cx);
        self.stop(cx);
        self.know_geometry(cx);
        self.prior = Prior::begin(cx.now.mono);
        if self.is_primary(cx) {
            self.start_peering(cx);
        } else if cx.map.is_up(self.primary().osd) {
            self.notify(self.primary(), cx);
        }
        self.note_state(was, cx);
    }

    /// Leaves whatever the PG was doing in an older interval; this OSD may not be up any more.
    pub fn stop(&mut self, cx: &mut Shared) {
        self.phase = Phase::Stray;
        let mut requests: Vec<_> = self.writes.clear();
        let copies = std::mem::take(&mut self.copies).into_values().flat_map(Copying::into_requests);
        requests.extend(copies);
        requests.extend(self.stop_reading(cx));
        requests.extend(self.stop_staging());
        requests.extend(std::mem::take(&mut self.waiting_for_object).into_values().flatten());
        requests.extend(self.waiting_for_lease.drain(..));
        requests.extend(self.waiting_for_space.drain(..));
        self.short_of = 0;
        self.held_back.clear();
        self.chunk_reads = None;
        self.release_all_backoffs(cx);
        requests.extend(self.ready.drain(..));
        requests.extend(self.waiting_for_active.drain(..));
        // Those of one object may have waited in several queues.
        requests.sort_by_key(|op| op.order);
        // What was fetched may have changed when the request runs again; other OSDs ask again by themselves.
        requests.iter_mut().for_each(|op| {
            (op.sources, op.fetched, op.staged) = (None, None, None);
        });
        requests.retain(|op| op.asked_by.is_none());
        let primary = self.is_primary(cx);
        let (kept, gone): (Vec<_>, Vec<_>) =
            requests.into_iter().partition(|op| primary && !self.will_be_sent_again(op, cx));
        self.waiting_for_active.extend(kept);
        gone.iter().for_each(|op| op.drop_it(cx));
        let under_way: Vec<HObject> = self.recovering.keys().cloned().collect();
        under_way.iter().for_each(|o| self.finish(o, cx));
        self.begin_coded(primary);
        self.drop_incoming(cx);
        self.drop_aside(cx);
        // Large writes of other PGs may have waited for what was aside here.
        cx.pieces_wait = true;
        self.batch = Default::default();
        cx.recovery_waits.remove(&self.id);
        cx.leave_backfill_place(self.id);
        cx.backfill_waits.remove(&self.id);
        self.places = Default::default();
        cx.end_reservation(self.id);
        self.watches.clear();
        self.peers.clear();
        self.backfills.clear();
        self.unfound.clear();
        self.damaged.clear();
        self.lamented.clear();
        self.reverting.clear();
        self.blocked_by.clear();
        self.trim = Trim::default();
        self.scrub_interrupted(cx);
        self.forced = super::Forced::default();
        cx.forced.remove(&self.id);
    }

    /// States this copy's info to another OSD.
    pub fn notify(&self, to: PgShard, cx: &mut Shared) {
        let owed = self.owed(cx);
        let body = PgBody::Notify { info: Box::new(self.info.clone()), past: self.past.clone(), owed };
        self.tell_when_durable(to, self.interval(), body, cx);
    }

    /// Tells what is here when all of it is durable: a new primary takes a log entry for safe, and an object for not
    /// missing, and a loss of power must not take back what it has built on.
    pub(super) fn tell_when_durable(&self, osd: PgShard, interval: Epoch, body: PgBody, cx: &mut Shared) {
        if types::is_planted!(cx.config.planted, TellsBeforeDurable) {
            return cx.send_pg(osd, self.id, interval, body);
        }
        cx.tell_when_durable(osd, self.id, (self.interval(), interval), body);
    }

    /// A map came that did not begin a new interval: members we waited for may be gone or back, and what we asked the
    /// monitors for may have happened.
    pub fn map_changed(&mut self, cx: &mut Shared) {
        if !self.is_primary(cx) {
            return;
        }
        let same_life = |copy: PgShard, p: &Peer| {
            cx.map.osd(copy.osd).is_some_and(|o| o.is_up() && o.info.up_from == p.up_from)
        };
        let gone = self.peers.iter().filter(|(o, p)| !same_life(**o, p));
        let gone: Vec<PgShard> = gone.map(|(o, _)| *o).collect();
        for osd in &gone {
            self.peers.remove(osd);
        }
        match &self.phase {
            Phase::GetInfo { .. } | Phase::Down | Phase::Incomplete => self.peering_step(cx),
            Phase::GetLog { from } if !cx.map.is_up(from.osd) => self.start_peering(cx),
            Phase::WaitUpThru => self.check_up_thru(cx),
            Phase::WaitReadable => self.check_prior(cx),
            Phase::Active if !gone.is_empty() => self.sources_gone(&gone, cx),
            _ => {}
        }
    }
}
