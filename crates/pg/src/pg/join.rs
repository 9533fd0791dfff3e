//! Joining: when a pool gets fewer PGs, one takes in another's objects. They do not move in the store (a PG is a range of the
//! object order); the logs end, dups and sums are put together.
//!
//! Before it comes to that the monitors name the pair as about to be merged. Both begin an interval in which they serve nobody,
//! so nothing is under way when both are clean; their primary then states their versions, and the map that joins them names
//! those. A copy that stood at these versions is whole; any other is backfilled. A pair that is not clean soon is given up.
//!
//! Source: PeeringState::merge_from, PeeringState::try_mark_clean in src/osd/PeeringState.cc.

use std::collections::BTreeMap;

use maps::{PgMergeMeta, Pool};
use store::{Space, Txn};
use types::{Eversion, HObject, PgId};

use super::{Pg, Phase};
use crate::log::PgLog;
use crate::osd::shared::Shared;
use crate::range::ancestor;

/// The PGs that go when a pool shrinks from `from` to `to` PGs, by those that take them in.
pub(crate) fn joins(pool: types::PoolId, from: u32, to: u32) -> BTreeMap<PgId, Vec<PgId>> {
    let mut all: BTreeMap<PgId, Vec<PgId>> = BTreeMap::new();
    for source in (to..from).map(|seed| PgId::new(pool, seed)) {
        all.entry(ancestor(source, to)).or_default().push(source);
    }
    all
}

/// What a PG that is about to be merged says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Readiness {
    /// It will not be clean soon.
    No,
    NotYet,
    Yes,
}

impl Pg {
    /// Primary: whether this PG can be merged now.
    pub fn merge_readiness(&self, cx: &Shared) -> Readiness {
        if !self.key.premerge || self.phase != Phase::Active {
            return Readiness::NotYet;
        }
        if self.acting().count() < usize::from(self.key.size) || self.acting_set() != self.up_set() {
            return Readiness::No;
        }
        match self.is_clean()
            && self.writes.is_empty()
            && !self.lacks_objects()
            && !self.knows_of_damage()
            && cx.fatal.is_none()
        {
            true => Readiness::Yes,
            false => Readiness::NotYet,
        }
    }

    /// Whether this copy is whole and at this version.
    fn stands_at(&self, version: Eversion) -> bool {
        self.info.last_update == version && !self.info.is_incomplete() && self.missing.is_empty()
    }

    /// Takes in the copies of other PGs; `None` for one that is not here. The interval that ends with it must be closed already.
    /// Returns whether this copy is whole.
    pub fn join(
        &mut self,
        sources: Vec<(PgId, Option<Pg>)>,
        pool: &Pool,
        mut whole: bool,
        txn: &mut Txn,
    ) -> bool {
        let PgMergeMeta { source_pgid, source_version, target_version, .. } = pool.last_pg_merge_meta;
        whole &= self.stands_at(target_version);
        let heads = sources.iter().filter_map(|(_, s)| s.as_ref()).map(|s| s.info.last_update);
        let version = heads.fold(self.info.last_update, |a, b| {
            Eversion::new(a.epoch.max(b.epoch), a.version.max(b.version))
        });
        let mut dups: BTreeMap<Eversion, _> = BTreeMap::new();
        let add_dups = |pg: &Pg, dups: &mut BTreeMap<Eversion, _>| {
            // All have counted on their own: what is as far behind its PG's head as before stays as long as before.
            let further = version.version - pg.info.last_update.version;
            let entries = pg.log.entries().filter(|e| e.answers_requests()).map(|e| e.to_dup());
            for mut dup in pg.log.dups().chain(entries) {
                dup.version.version += further;
                while dups.contains_key(&dup.version) && dup.version.epoch.0 > 0 {
                    dup.version.epoch.0 -= 1;
                }
                dups.entry(dup.version).or_insert(dup);
            }
        };
        add_dups(self, &mut dups);
        for (id, source) in sources {
            whole &= id == source_pgid && source.as_ref().is_some_and(|s| s.stands_at(source_version));
            let Some(mut source) = source else { continue };
            self.lost_here.append(&mut source.lost_here);
            txn.drop_space(Space::Pg(source.id));
            add_dups(&source, &mut dups);
            self.info.sums.add(&source.info.sums);
            self.info.last_user_version = self.info.last_user_version.max(source.info.last_user_version);
            let (h, theirs) = (&mut self.info.history, &source.info.history);
            h.last_epoch_clean = h.last_epoch_clean.min(theirs.last_epoch_clean);
            h.scrub.shallow_errors += theirs.scrub.shallow_errors;
            h.scrub.deep_errors += theirs.scrub.deep_errors;
        }
        if !whole {
            self.info.last_backfill = HObject::min();
        }
        self.missing.clear();
        self.forget_newest();
        self.log = PgLog::from_parts(version, Vec::new(), dups.into_values().collect());
        self.info.last_update = version;
        self.info.history.last_epoch_split = self.info.history.same_interval_since;
        self.save_after_split(txn);
        whole
    }
}

/// The PG that goes next, and the one that takes it in, when the pool is about to merge two.
pub(crate) fn pending(id: types::PoolId, pool: &Pool) -> Option<(PgId, PgId)> {
    let source = PgId::new(id, pool.pg_num_pending);
    let one = pool.pg_num_pending + 1 == pool.pg_num && pool.pg_num_pending > 0;
    one.then(|| (source, ancestor(source, pool.pg_num_pending)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_takes_in_whom() {
        let pool = types::PoolId(1);
        let got: Vec<(u32, Vec<u32>)> = joins(pool, 8, 3)
            .into_iter()
            .map(|(t, s)| (t.seed, s.into_iter().map(|p| p.seed).collect()))
            .collect();
        assert_eq!(got, [(0, vec![4]), (1, vec![3, 5, 7]), (2, vec![6])]);
    }
}
