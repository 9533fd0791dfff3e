//! Pools whose PG count is to fall lose one PG after the other: the last is named as about to be merged, its
//! primary says when it is ready, and then it is gone.
//!
//! Source: DaemonServer::adjust_pgs in src/mgr/DaemonServer.cc; OSDMonitor::prepare_pg_ready_to_merge.

use maps::{OsdMap, PgMergeMeta, Pool, pool_flags};
use messages::osd::MOsdPgReadyToMerge;
use types::{ConnId, Epoch, PgId, PoolId};

use crate::monitor::Monitor;
use crate::proposal::Batch;
use crate::service::pool::edit_pool;

/// Names pairs that can be merged now: both PGs are clean, as the manager found for the pool as it is, and at the same place.
pub(crate) fn shrink_pools(batch: &mut Batch) {
    let digest = batch.state().digest.clone();
    let map = batch.osdmap();
    let waits = |p: &Pool| p.pg_num_target < p.pg_num && p.pg_num_pending == p.pg_num;
    let due: Vec<(PoolId, PgId)> = map
        .pools
        .iter()
        .filter(|(_, p)| waits(p) && p.pgp_num < p.pg_num && !p.has_flag(pool_flags::CREATING))
        .map(|(id, p)| (*id, PgId::new(*id, p.pg_num - 1)))
        .collect();
    for (id, source) in due {
        let pair = [source, source.parent()];
        if pair.iter().any(|pg| has_upmap(batch.osdmap(), *pg)) {
            let map = batch.osdmap_mut();
            for pg in pair {
                map.pg_upmap.remove(&pg);
                map.pg_upmap_items.remove(&pg);
            }
            continue;
        }
        let ready =
            |p: &Pool| digest.steps.get(&id).is_some_and(|steps| steps.merge && steps.of == p.last_change);
        if !batch.osdmap().pool(id).is_some_and(ready) {
            continue;
        }
        let [s, t] = pair.map(|pg| batch.osdmap().pg_to_up_acting(pg));
        if s.up != s.acting || (&s.up, &s.acting, s.acting_primary) != (&t.up, &t.acting, t.acting_primary) {
            continue;
        }
        let epoch = batch.next_osdmap_epoch();
        edit_pool(batch, id, |p| {
            p.pg_num_pending = source.seed;
            resend(p, epoch);
        });
    }
}

fn has_upmap(map: &OsdMap, pg: PgId) -> bool {
    map.pg_upmap.contains_key(&pg) || map.pg_upmap_items.contains_key(&pg)
}

/// Clients that do not know that this begins an interval send again what was under way.
pub(crate) fn resend(p: &mut Pool, epoch: Epoch) {
    p.last_force_op_resend_prenautilus = epoch;
    p.last_force_op_resend_preluminous = epoch;
}

impl Monitor {
    /// The primary of a pair says whether it may be merged now.
    pub(crate) fn prepare_ready_to_merge(&mut self, batch: &mut Batch, conn: ConnId, m: &MOsdPgReadyToMerge) {
        let Some(from) = self.live_osd(batch.osdmap(), conn) else { return };
        let seen = Epoch(u32::try_from(m.version.0).unwrap_or(0));
        let map = batch.osdmap();
        let pair = [m.pgid, m.pgid.parent()].map(|pg| map.pg_to_up_acting(pg).acting_primary);
        let Some(pool) = map.pool(m.pgid.pool) else { return };
        let asked = pool.pg_num == m.pgid.seed.saturating_add(1) && pool.pg_num_pending == m.pgid.seed;
        // Both must still be led by whoever says that they are ready.
        let known = if m.ready { pair == [from; 2] } else { pair.contains(&from) };
        // What was said before the pair was named last speaks of another attempt.
        if !asked || !known || seen < pool.last_change {
            return;
        }
        let epoch = batch.next_osdmap_epoch();
        let meta = m.ready.then_some(PgMergeMeta {
            source_pgid: m.pgid,
            ready_epoch: epoch,
            last_epoch_started: m.last_epoch_started,
            last_epoch_clean: m.last_epoch_clean,
            source_version: m.source_version,
            target_version: m.target_version,
        });
        edit_pool(batch, m.pgid.pool, |p| {
            p.finish_merge(m.pgid, epoch, meta);
            resend(p, epoch);
        });
        batch.answer_with_maps(conn, seen.next());
    }
}
