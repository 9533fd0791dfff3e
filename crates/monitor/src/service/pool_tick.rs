//! What time does to pools: quotas are checked against what the manager reports, and PG counts follow their targets.
//!
//! Source: OSDMonitor::update_pools_status; DaemonServer::adjust_pgs in src/mgr/DaemonServer.cc.

use maps::{Pool, SnapIntervals, pool_flags};
use types::{Now, PoolId};

use crate::monitor::Monitor;
use crate::proposal::Batch;
use crate::service::merge::resend;
use crate::service::pool::edit_pool;
use crate::state::{PgSteps, Priority};
use crate::text::units;

impl Monitor {
    /// Pools at their quota become full, and stop being it when something was deleted.
    pub(crate) fn check_quotas(&mut self, now: Now, batch: &mut Batch) {
        let digest = batch.state().digest.clone();
        let mut turned: Vec<(PoolId, bool, String)> = Vec::new();
        for (id, pool) in &batch.osdmap().pools {
            let Some(sum) = digest.pools.get(id).map(|u| u.stat.stats.sum) else { continue };
            let over = |quota: u64, used: i64| quota > 0 && used.max(0) as u64 >= quota;
            let bytes = over(pool.quota_max_bytes, sum.num_bytes);
            let objects = over(pool.quota_max_objects, sum.num_objects);
            let name = batch.osdmap().pool_name(*id).unwrap_or_default();
            match (pool.has_flag(pool_flags::FULL_QUOTA), bytes || objects) {
                (true, false) => {
                    let text = format!("pool '{name}' no longer out of quota; removing NO_QUOTA flag");
                    turned.push((*id, false, text));
                }
                (false, true) => {
                    let limit = if bytes {
                        format!("max_bytes: {}", units::bytes(pool.quota_max_bytes))
                    } else {
                        format!("max_objects: {}", pool.quota_max_objects)
                    };
                    turned.push((*id, true, format!("pool '{name}' is full (reached quota's {limit})")));
                }
                _ => {}
            }
        }
        for (id, full, text) in turned {
            let prio = if full { Priority::Warn } else { Priority::Info };
            batch.log(self.settings.log_entry(now, prio, "cluster", text));
            // The plain full flag follows when the batch is settled.
            edit_pool(batch, id, |p| match full {
                true => p.set_flag(pool_flags::FULL_QUOTA),
                false => p.unset_flag(pool_flags::FULL_QUOTA),
            });
        }
    }
}

/// Snapshots at most taken off the queues in one epoch. Source: mon_max_snap_prune_per_epoch.
const PRUNED_PER_EPOCH: u64 = 100_000;

/// Removed snapshots that no PG has clones of any more leave the queues. Source: OSDMonitor::try_prune_purged_snaps.
pub(crate) fn prune_purged_snaps(batch: &mut Batch) {
    let digest = batch.state().digest.clone();
    let map = batch.osdmap();
    let mut left = PRUNED_PER_EPOCH;
    let mut pruned: Vec<(PoolId, SnapIntervals)> = Vec::new();
    for (id, purged) in &digest.purged_snaps {
        let (Some(pool), Some(queue)) = (map.pool(*id), map.removed_snaps_queue.get(id)) else { continue };
        if digest.epoch < pool.last_force_op_resend_prenautilus {
            // It does not know the PGs that came out of the last split.
            continue;
        }
        let mut done = queue.clone();
        done.intersect(purged);
        let runs = done.iter().take_while(|(_, count)| {
            let fits = *count <= left;
            left -= if fits { *count } else { 0 };
            fits
        });
        let done: SnapIntervals = runs.collect();
        if !done.is_empty() {
            pruned.push((*id, done));
        }
    }
    if pruned.is_empty() {
        return;
    }
    let map = batch.osdmap_mut();
    for (id, done) in pruned {
        if let Some(queue) = map.removed_snaps_queue.get_mut(&id) {
            queue.subtract(&done);
            if queue.is_empty() {
                map.removed_snaps_queue.remove(&id);
            }
        }
        map.new_purged_snaps.entry(id).or_default().union_of(&done);
    }
}

/// Pools whose PG count is to grow do so once their first PGs exist; then their PGs' places follow, by as many at a time as the
/// manager finds may move.
pub(crate) fn grow_pools(batch: &mut Batch) {
    let epoch = batch.next_osdmap_epoch();
    let digest = batch.state().digest.clone();
    let due: Vec<(PoolId, Option<u32>)> = batch
        .osdmap()
        .pools
        .iter()
        .filter(|(_, p)| !p.has_flag(pool_flags::CREATING))
        .filter_map(|(id, p)| match () {
            () if p.pg_num < p.pg_num_target => Some((*id, None)),
            () => Some((*id, Some(next_pgp_num(p, digest.steps.get(id)?)?))),
        })
        .collect();
    for (id, pgp_num) in due {
        edit_pool(batch, id, |p| {
            if let Some(next) = pgp_num {
                p.pgp_num = next;
                return;
            }
            p.set_pg_num(p.pg_num_target);
            resend(p, epoch);
        });
    }
}

/// A step towards the goal that was found for the pool as it is.
fn next_pgp_num(p: &Pool, steps: &PgSteps) -> Option<u32> {
    let goal = p.pgp_num_goal();
    let on_the_way = p.pgp_num.min(goal)..=p.pgp_num.max(goal);
    let fits = steps.of == p.last_change && steps.pgp_num != p.pgp_num;
    (fits && on_the_way.contains(&steps.pgp_num)).then_some(steps.pgp_num)
}
