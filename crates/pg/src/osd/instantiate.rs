//! Making PG copies: straight from the map, whenever it names this OSD as a member of a PG that is not here.
//!
//! A new copy must not believe that its PG is new: it looks back through the stored maps to where the pool began, and
//! remembers who else may have taken writes. Peering asks them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use maps::{OsdMap, Placements};
use store::Txn;
use types::{Epoch, HObject, OsdId, SpgId};

use super::{OsdCore, superblock};
use crate::FatalReason;
use crate::info::PgInfo;
use crate::interval::{IntervalKey, PastIntervals};
use crate::io::LogLevel;
use crate::log::PgLog;
use crate::missing::Missing;
use crate::pg::{Pg, persist};
use crate::range::ancestor;

impl OsdCore {
    /// Makes the copies that the current map wants here. `recent` holds maps that are not in the store yet.
    pub(super) fn instantiate(
        &mut self,
        recent: &BTreeMap<Epoch, Arc<OsdMap>>,
        txn: &mut Txn,
        changed: &mut BTreeSet<SpgId>,
    ) {
        let map = self.shared.map.clone();
        let whoami = self.shared.whoami;
        let mut wanted: Vec<SpgId> = Vec::new();
        for (pool, e) in self.shared.coded_pools.follow(&map) {
            let name = map.pool_name(pool).unwrap_or_default();
            self.shared.cluster_log(LogLevel::Error, format!("pool '{name}' cannot be served: {e}"));
        }
        self.placements.for_each_pg(&map, |pgid, m| {
            if !m.up.contains(&whoami.0) && !m.acting.contains(&whoami.0) {
                return;
            }
            let mut want = |id| {
                if !self.pgs.contains_key(&id) && !wanted.contains(&id) {
                    wanted.push(id);
                }
            };
            match map.pool(pgid.pool) {
                Some(pool) if pool.is_replicated() => want(SpgId::replicated(pgid)),
                Some(_) if self.shared.coded_pools.serves(pgid.pool) => {
                    // An OSD may hold one shard and be wanted for another.
                    for shard in shards_of(&m.up, whoami).chain(shards_of(&m.acting, whoami)) {
                        want(SpgId { pgid, shard });
                    }
                }
                _ => {}
            }
        });
        if wanted.is_empty() {
            return;
        }
        let oldest = wanted.iter().map(|id| id.pgid.pool).collect::<BTreeSet<_>>();
        let history = self.maps_back_to_birth(&map, &oldest, recent);
        // Of old maps: this one's are kept.
        let mut old = Placements::default();
        for id in wanted {
            let mut pg = born(id, &history, self.shared.config.presumes_writes(), &mut old);
            let range = crate::range::pg_range(id.pgid, pg.key.pg_num);
            if crate::pg::remove::make_way(pg.id.shard, &range, txn, &mut self.shared) {
                pg.info.last_backfill = HObject::min();
            }
            persist::put_info(txn, pg.id, &pg.info);
            persist::put_past(txn, pg.id, &pg.past);
            changed.insert(pg.id);
            self.pgs.insert(pg.id, pg);
        }
    }

    /// Maps in order up to the current one, back to one that has none of these pools, or to the oldest that is kept.
    fn maps_back_to_birth(
        &mut self,
        current: &Arc<OsdMap>,
        pools: &BTreeSet<types::PoolId>,
        recent: &BTreeMap<Epoch, Arc<OsdMap>>,
    ) -> Vec<Arc<OsdMap>> {
        let mut back = vec![current.clone()];
        let mut e = current.epoch;
        while e > self.superblock.oldest_map && e.0 > 1 {
            e = e.prev();
            let map = match recent.get(&e) {
                Some(map) => map.clone(),
                None => match superblock::full_map(&mut self.shared.store, e) {
                    Ok(Some(map)) => Arc::new(map),
                    Ok(None) => break,
                    Err(error) => {
                        // Who had the PGs before is not known then.
                        self.shared.fail(FatalReason::Store(error.to_string()));
                        break;
                    }
                },
            };
            let any = pools.iter().any(|p| map.pool(*p).is_some());
            back.push(map);
            if !any {
                break;
            }
        }
        back.reverse();
        back
    }
}

/// Places of an OSD in an up or acting set of an erasure-coded PG.
fn shards_of(osds: &[i32], osd: OsdId) -> impl Iterator<Item = i8> + '_ {
    (0i8..).zip(osds).filter(move |(_, at)| **at == osd.0).map(|(shard, _)| shard)
}

/// A copy of a PG as the last of `history` has it, with the intervals before.
fn born(id: SpgId, history: &[Arc<OsdMap>], presume: bool, placements: &mut Placements) -> Pg {
    let pgid = id.pgid;
    let mut key_in = |map: &OsdMap| {
        let pool = map.pool(pgid.pool)?;
        IntervalKey::placed(map, ancestor(pgid, pool.pg_num), placements)
    };
    let mut past = PastIntervals::default();
    let mut info = PgInfo::new(pgid);
    let mut current: Option<(IntervalKey, Arc<OsdMap>)> = None;
    // Without the pool's first epoch nothing is known of when the PG was clean.
    let birth_known = history.first().is_some_and(|m| m.epoch.0 <= 1 || m.pool(pgid.pool).is_none());
    let h = &mut info.history;
    for map in history {
        let Some(key) = key_in(map) else { continue };
        match &current {
            None => {
                h.epoch_created = map.epoch;
                h.epoch_pool_created = map.epoch;
                // Until it starts, nobody is to miss its scrubs. Source: pg_history_t's constructor for a new PG.
                let made = map.modified;
                (h.scrub.last_stamp, h.scrub.last_deep_stamp, h.scrub.last_clean_stamp) = (made, made, made);
                h.last_epoch_clean = if birth_known { map.epoch } else { Epoch(0) };
                h.same_interval_since = map.epoch;
                h.same_up_since = map.epoch;
                h.same_primary_since = map.epoch;
            }
            Some((was, last)) if key.begins_interval(was) => {
                past.close(h.same_interval_since, last, was, h.last_epoch_clean, presume);
                h.same_interval_since = map.epoch;
                if was.members.up != key.members.up {
                    h.same_up_since = map.epoch;
                }
                if was.members.acting_primary != key.members.acting_primary {
                    h.same_primary_since = map.epoch;
                }
            }
            Some(_) => {}
        }
        current = Some((key, map.clone()));
    }
    let mut pg = Pg::new(id, info, past, PgLog::default(), Missing::default());
    pg.key = current.map(|(key, _)| key).unwrap_or_default();
    pg
}
