//! What time does to pools: quotas are checked against what the manager reports, and PG counts follow their targets.
//!
//! Source: OSDMonitor::update_pools_status; DaemonServer::adjust_pgs in src/mgr/DaemonServer.cc.

use maps::pool_flags;
use types::{Now, PoolId};

use crate::monitor::Monitor;
use crate::proposal::Batch;
use crate::service::pool::edit_pool;
use crate::state::Priority;
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

/// Pools whose PG count is to grow do so once their first PGs exist; then their PGs' places follow, once the new ones exist.
pub(crate) fn grow_pools(batch: &mut Batch) {
    let (epoch, at) = (batch.next_osdmap_epoch(), batch.osdmap().epoch);
    let digest = batch.state().digest.clone();
    let settled = digest.epoch >= at && !digest.pg_states.contains_key(&0);
    let due: Vec<(PoolId, bool)> = batch
        .osdmap()
        .pools
        .iter()
        .filter(|(_, p)| !p.has_flag(pool_flags::CREATING))
        .filter_map(|(id, p)| match () {
            () if p.pg_num < p.pg_num_target => Some((*id, true)),
            () if p.pgp_num != p.pgp_num_target.min(p.pg_num) && settled => Some((*id, false)),
            () => None,
        })
        .collect();
    for (id, split) in due {
        edit_pool(batch, id, |p| {
            if !split {
                p.pgp_num = p.pgp_num_target.min(p.pg_num);
                return;
            }
            p.set_pg_num(p.pg_num_target);
            // Clients that do not know that a split begins a new interval send again what was under way.
            p.last_force_op_resend_prenautilus = epoch;
            p.last_force_op_resend_preluminous = epoch;
        });
    }
}
