//! Choosing the authoritative copy and the acting set. Source: PeeringState::find_best_info, calc_replicated_acting.

use std::collections::BTreeSet;

use types::{Epoch, Eversion, OsdId, PgId, PgShard};

use super::backend::Backend;
use super::{Peer, Pg, Phase};
use crate::info::PgInfo;
use crate::osd::shared::Shared;

/// Whether a copy has all objects, or knows that it lacks them.
fn may_lead(i: &PgInfo, cx: &Shared) -> bool {
    !i.is_incomplete() || cx.config.lets_incomplete_lead()
}

impl Pg {
    fn info_of(&self, osd: PgShard, cx: &Shared) -> Option<&PgInfo> {
        if osd == self.me(cx) { Some(&self.info) } else { self.peers.get(&osd).map(|p| &p.info) }
    }

    /// Goes on with the authoritative log when the acting set suits it; else asks for another acting set.
    pub fn choose_acting(&mut self, cx: &mut Shared) {
        let Some(best) = self.find_best(cx) else {
            self.phase = Phase::Incomplete;
            self.reconsider_waiting(cx);
            return;
        };
        let want = match &self.backend {
            Backend::Replicated => self.wanted_acting(best, cx),
            Backend::Coded(_) => self.wanted_places(best, cx),
        };
        let places = want.iter().enumerate().filter(|(_, osd)| osd.is_osd()).map(|(at, _)| at);
        if !self.backend.is_enough(places) {
            // The shards do not make up the data.
            self.phase = Phase::Incomplete;
            self.reconsider_waiting(cx);
            return;
        }
        if want != self.acting_set() {
            self.request_acting(&want, cx);
            self.phase = Phase::WaitActing { want };
            return;
        }
        self.get_log(best, cx);
    }

    fn all_infos<'a>(&'a self, cx: &Shared) -> impl Iterator<Item = (PgShard, &'a PgInfo)> {
        let own = std::iter::once((self.me(cx), &self.info));
        own.chain(self.peers.iter().map(|(o, p)| (*o, &p.info)))
    }

    /// When the PG last started, as far as any copy knows.
    fn newest_start(&self, cx: &Shared) -> Option<Epoch> {
        let started = self.all_infos(cx).map(|(_, i)| {
            let own = if i.is_incomplete() { Default::default() } else { i.last_epoch_started };
            i.history.last_epoch_started.max(own)
        });
        started.max()
    }

    /// The copy whose log holds every acknowledged write: it took part in the newest start, is complete, and
    /// reaches furthest. `None` when no copy that is up qualifies.
    fn find_best(&self, cx: &Shared) -> Option<PgShard> {
        let all = || self.all_infos(cx);
        let started = self.newest_start(cx)?;
        let any = types::is_planted!(cx.config.planted, IgnoresLastStart);
        let qualifies = |i: &PgInfo| i.last_epoch_started >= started || any;
        let led = all().filter(|(_, i)| qualifies(i) && may_lead(i, cx));
        let further = |osd: PgShard, i: &PgInfo| (std::cmp::Reverse(i.log_tail), osd == self.me(cx));
        let best = match &self.backend {
            // All of these have every acknowledged write. What only some of them have may have been
            // acknowledged nowhere; the furthest log is taken, so nothing that one of them served is given
            // up.
            Backend::Replicated => led.max_by_key(|(osd, i)| (i.last_update, further(*osd, i))),
            // What one of them lacks was acknowledged nowhere, and fewer shards may have it than make up the
            // data. The others can take it back.
            Backend::Coded(_) => {
                led.max_by_key(|(osd, i)| (std::cmp::Reverse(i.last_update), further(*osd, i)))
            }
        };
        best.map(|(osd, _)| osd)
    }

    /// The acting set that can serve at once: the up set as far as the log catches it up, else older members.
    fn wanted_acting(&self, best: PgShard, cx: &Shared) -> Vec<OsdId> {
        let tail_of = |osd| self.info_of(osd, cx).map_or(Eversion::ZERO, |i| i.log_tail);
        let usable = |osd: PgShard, oldest: Eversion| {
            self.info_of(osd, cx).is_some_and(|i| may_lead(i, cx) && i.last_update >= oldest)
        };
        let up_primary = PgShard::replicated(self.key.members.up_primary);
        let primary = if usable(up_primary, tail_of(best)) { up_primary } else { best };
        let oldest = tail_of(best).min(tail_of(primary));
        let mut want = vec![primary];
        for osd in self.up() {
            if !want.contains(&osd) && usable(osd, oldest) {
                want.push(osd);
            }
        }
        let strays = self.peers.iter().filter(|(o, p)| !self.is_acting(**o) && !p.info.does_not_exist());
        let mut strays: Vec<PgShard> = strays.map(|(o, _)| *o).collect();
        strays.sort_by_key(|o| {
            std::cmp::Reverse(self.info_of(*o, cx).map_or(Eversion::ZERO, |i| i.last_update))
        });
        for osd in self.acting().chain(strays) {
            if want.len() < usize::from(self.key.size) && !want.contains(&osd) && usable(osd, oldest) {
                want.push(osd);
            }
        }
        // Same members in the order of the present set: nothing to ask for.
        let want: Vec<OsdId> = want.into_iter().map(|copy| copy.osd).collect();
        let mut sorted = (want.clone(), self.acting_set().to_vec());
        sorted.0.sort_unstable();
        sorted.1.sort_unstable();
        if sorted.0 == sorted.1 && want.first() == self.acting_set().first() {
            return self.acting_set().to_vec();
        }
        want
    }

    /// The same of an erasure-coded PG, place by place: a place is a shard, and another copy is of no use
    /// there. Source: PeeringState::calc_ec_acting.
    ///
    /// Of copies that the log catches up, what they lack has to be made from others. So as many as make up
    /// the data took part in the newest start, where there are such: these have all of it, or can take back
    /// what came after it.
    fn wanted_places(&self, best: PgShard, cx: &Shared) -> Vec<OsdId> {
        let oldest = self.info_of(best, cx).map_or(Eversion::ZERO, |i| i.log_tail);
        let started = self.newest_start(cx).unwrap_or_default();
        let usable = |copy: &PgShard| {
            let info = self.info_of(*copy, cx);
            info.is_some_and(|i| may_lead(i, cx) && i.last_update >= oldest) && cx.map.is_up(copy.osd)
        };
        let has_all = |copy: &PgShard| {
            usable(copy) && self.info_of(*copy, cx).is_some_and(|i| i.last_epoch_started >= started)
        };
        let first = |at: usize, fits: &dyn Fn(&PgShard) -> bool| {
            let shard = i8::try_from(at).ok()?;
            let at_place = |set: &[OsdId]| set.get(at).copied().filter(|osd| osd.is_osd());
            let members = [at_place(self.up_set()), at_place(self.acting_set())];
            let members = members.into_iter().flatten().map(|osd| PgShard { osd, shard });
            let strays =
                self.peers.iter().filter(|(copy, p)| copy.shard == shard && !p.info.does_not_exist());
            members.chain(strays.map(|(copy, _)| *copy)).find(|copy| fits(copy))
        };
        let mut want: Vec<Option<PgShard>> =
            (0..usize::from(self.key.size)).map(|at| first(at, &usable)).collect();
        let whole = |copy: &Option<PgShard>| copy.is_some_and(|copy| has_all(&copy));
        let mut whole: BTreeSet<usize> =
            (0..want.len()).filter(|at| want.get(*at).is_some_and(whole)).collect();
        for (at, place) in want.iter_mut().enumerate() {
            if self.backend.is_enough(whole.iter().copied()) {
                break;
            }
            if let Some(copy) = first(at, &has_all).filter(|_| !place.is_some_and(|copy| has_all(&copy))) {
                *place = Some(copy);
                whole.insert(at);
            }
        }
        want.into_iter().map(|copy| copy.map_or(OsdId::HOLE, |copy| copy.osd)).collect()
    }

    /// Asks the monitors for this acting set; the up set means "as CRUSH says".
    pub fn request_acting(&self, want: &[OsdId], cx: &mut Shared) {
        let temp = if want == self.up_set() { Vec::new() } else { want.to_vec() };
        let pgid: PgId = self.id.pgid;
        let msg = crate::osd::mon::pg_temp(cx.epoch(), pgid, temp);
        cx.send_mon(msg);
    }

    /// After backfill: whether CRUSH's own choice can take over from a temporary acting set. A shorter one must not: it
    /// would ask for the temporary set again at once.
    pub fn can_return_to_up(&self, cx: &Shared) -> bool {
        self.acting_set() != self.up_set()
            && self.up().count() >= self.acting().count()
            && self.up_is_whole(cx)
    }

    fn up_is_whole(&self, cx: &Shared) -> bool {
        self.up().all(|o| {
            self.info_of(o, cx).is_some_and(|i| !i.is_incomplete())
                && (o == self.me(cx) || self.peers.get(&o).is_some_and(Peer::is_whole))
        })
    }

    /// After backfill, where the up set is too short to take over: the up set, and members of the acting
    /// set at the places for which CRUSH finds nobody. Source: PeeringState::choose_acting,
    /// `restrict_to_up_acting`.
    pub fn up_and_acting(&self, cx: &Shared) -> Option<Vec<OsdId>> {
        if !self.up_is_whole(cx) {
            return None;
        }
        let (up, acting) = (self.up_set(), self.acting_set());
        if self.is_coded() {
            let there = |osd: Option<&OsdId>| osd.copied().filter(|osd| osd.is_osd());
            let at = |at| there(up.get(at)).or_else(|| there(acting.get(at))).unwrap_or(OsdId::HOLE);
            return Some((0..usize::from(self.key.size)).map(at).collect());
        }
        let others = acting.iter().filter(|osd| !up.contains(osd));
        Some(up.iter().chain(others).copied().take(usize::from(self.key.size)).collect())
    }
}
