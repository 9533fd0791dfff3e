//! What `ceph pg <pgid> query` shows, under Ceph's names. Source: PG::handle_query_state, pg_info_t::dump.

use serde_json::{Value, json};

use types::PgShard;

use super::state::pg_state;
use super::{Pg, Phase};
use crate::info::{PgHistory, PgInfo};
use crate::interval::numbers;
use crate::osd::shared::Shared;

impl Pg {
    pub fn query(&self, cx: &Shared) -> Value {
        let mut members: Vec<PgShard> = self.acting().collect();
        members.extend(self.backfills.keys().filter(|o| !self.is_acting(**o)));
        members.sort_unstable();
        let mut own = info(&self.info);
        let mut stats = self.stats(cx);
        merge(&mut stats, scrubs(&self.info.history));
        merge(&mut own, json!({ "stats": stats }));
        let peers: Vec<Value> = self
            .peers
            .iter()
            .map(|(osd, p)| {
                let mut v = json!({ "peer": osd.to_string() });
                merge(&mut v, info(&p.info));
                merge(&mut v, json!({ "num_missing": p.missing.as_ref().map(|m| m.len()) }));
                v
            })
            .collect();
        json!({
            "snap_trimq": "[]",
            "snap_trimq_len": 0,
            "state": pg_state::to_text(self.cluster_state(cx)),
            "epoch": cx.epoch().0,
            "up": numbers(self.up_set()),
            "acting": numbers(self.acting_set()),
            "acting_recovery_backfill": members.iter().map(PgShard::to_string).collect::<Vec<_>>(),
            "info": own,
            "peer_info": peers,
            "recovery_state": [self.recovery_state()],
            "agent_state": {},
        })
    }

    fn stats(&self, cx: &Shared) -> Value {
        let (i, m, s) = (&self.info, &self.key.members, &self.stamps);
        let sum = self.stat_sum();
        json!({
            "version": i.last_update.to_string(),
            "reported_seq": s.reported_seq,
            "reported_epoch": cx.epoch().0,
            "state": pg_state::to_text(self.cluster_state(cx)),
            "last_change": s.last_change.to_string(),
            "last_active": s.last_active.to_string(),
            "last_peered": s.last_peered.to_string(),
            "last_clean": s.last_clean.to_string(),
            "last_became_active": s.last_became_active.to_string(),
            "last_became_peered": s.last_became_peered.to_string(),
            "last_undegraded": s.last_undegraded.to_string(),
            "last_fullsized": s.last_fullsized.to_string(),
            "mapping_epoch": i.history.same_interval_since.0,
            "log_start": i.log_tail.to_string(),
            "ondisk_log_start": i.log_tail.to_string(),
            "created": i.history.epoch_created.0,
            "last_epoch_clean": i.history.last_epoch_clean.0,
            "log_size": self.log.len(),
            "ondisk_log_size": self.log.len(),
            "stat_sum": {
                "num_bytes": sum.num_bytes,
                "num_objects": sum.num_objects,
                "num_object_clones": sum.num_object_clones,
                "num_object_copies": sum.num_object_copies,
                "num_objects_missing_on_primary": sum.num_objects_missing_on_primary,
                "num_objects_missing": sum.num_objects_missing,
                "num_objects_degraded": sum.num_objects_degraded,
                "num_objects_misplaced": sum.num_objects_misplaced,
                "num_objects_unfound": sum.num_objects_unfound,
                "num_read": sum.num_rd,
                "num_read_kb": sum.num_rd_kb,
                "num_write": sum.num_wr,
                "num_write_kb": sum.num_wr_kb,
                "num_objects_omap": sum.num_objects_omap,
                "num_omap_bytes": sum.num_omap_bytes,
                "num_omap_keys": sum.num_omap_keys,
                "num_scrub_errors": sum.num_scrub_errors,
                "num_shallow_scrub_errors": sum.num_shallow_scrub_errors,
                "num_deep_scrub_errors": sum.num_deep_scrub_errors,
                "num_large_omap_objects": sum.num_large_omap_objects,
            },
            "up": numbers(&m.up),
            "acting": numbers(&m.acting),
            "blocked_by": numbers(&self.blocked_by),
            "up_primary": m.up_primary.0,
            "acting_primary": m.acting_primary.0,
        })
    }

    fn recovery_state(&self) -> Value {
        let (pulling, pushing) = self.recovery_counts();
        let past: Vec<Value> = self
            .past
            .iter()
            .map(|i| {
                json!({
                    "first": i.first.0, "last": i.last.0, "up": numbers(&i.up), "acting": numbers(&i.acting), "primary": i.primary.0,
                    "maybe_went_rw": i.maybe_went_rw,
                })
            })
            .collect();
        json!({
            "name": phase_name(&self.phase),
            "enter_time": self.stamps.last_change.to_string(),
            "past_intervals": past,
            "blocked_by": numbers(&self.blocked_by),
            "missing": self.missing.len(),
            "unfound": self.unfound.len(),
            "recovery_progress": { "pulling": pulling, "pushing": pushing, "backfill_targets": self.backfills.keys().map(|copy| copy.osd.0).collect::<Vec<_>>() },
        })
    }
}

/// Ceph's name of the state.
fn phase_name(p: &Phase) -> &'static str {
    match p {
        Phase::Stray => "Started/Stray",
        Phase::Replica => "Started/ReplicaActive",
        Phase::GetInfo { .. } => "Started/Primary/Peering/GetInfo",
        Phase::Down => "Started/Primary/Peering/Down",
        Phase::GetLog { .. } => "Started/Primary/Peering/GetLog",
        Phase::Incomplete => "Started/Primary/Peering/Incomplete",
        Phase::GetMissing { .. } => "Started/Primary/Peering/GetMissing",
        Phase::WaitUpThru => "Started/Primary/Peering/WaitUpThru",
        Phase::WaitReadable => "Started/Primary/Peering/WaitReadable",
        Phase::WaitActing { .. } => "Started/Primary/WaitActingChange",
        Phase::Activating { .. } => "Started/Primary/Active/Activating",
        Phase::Active => "Started/Primary/Active",
    }
}

fn info(i: &PgInfo) -> Value {
    json!({
        "pgid": i.pgid.to_string(),
        "last_update": i.last_update.to_string(),
        "last_complete": i.last_complete.to_string(),
        "log_tail": i.log_tail.to_string(),
        "last_user_version": i.last_user_version,
        "last_backfill": i.last_backfill.to_string(),
        "purged_snaps": [],
        "history": history(&i.history),
        "empty": u8::from(i.is_empty()),
        "dne": u8::from(i.does_not_exist()),
        "incomplete": u8::from(i.is_incomplete()),
        "last_epoch_started": i.last_epoch_started.0,
    })
}

fn history(h: &PgHistory) -> Value {
    let mut v = json!({
        "epoch_created": h.epoch_created.0,
        "epoch_pool_created": h.epoch_pool_created.0,
        "last_epoch_started": h.last_epoch_started.0,
        "last_interval_started": h.last_interval_started.0,
        "last_epoch_clean": h.last_epoch_clean.0,
        "last_interval_clean": h.last_interval_clean.0,
        "last_epoch_split": h.last_epoch_split.0,
        "same_up_since": h.same_up_since.0,
        "same_interval_since": h.same_interval_since.0,
        "same_primary_since": h.same_primary_since.0,
    });
    merge(&mut v, scrubs(h));
    v
}

fn scrubs(h: &PgHistory) -> Value {
    let s = &h.scrub;
    json!({
        "last_scrub": s.last.to_string(),
        "last_scrub_stamp": s.last_stamp.to_string(),
        "last_deep_scrub": s.last_deep.to_string(),
        "last_deep_scrub_stamp": s.last_deep_stamp.to_string(),
        "last_clean_scrub_stamp": s.last_clean_stamp.to_string(),
    })
}

fn merge(into: &mut Value, from: Value) {
    if let (Value::Object(into), Value::Object(from)) = (into, from) {
        into.extend(from);
    }
}
