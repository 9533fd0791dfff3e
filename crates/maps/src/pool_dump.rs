//! Pools as `osd dump` and `osd pool ls detail` show them. Source: pg_pool_t::dump and operator<< for pg_pool_t in
//! src/osd/osd_types.cc.

use std::fmt::Write as _;

use crush::{ITEM_NONE, str_hash_name};
use serde_json::{Value, json};
use types::PoolId;

use crate::json::{array, float, object, stream_float, strings};
use crate::pool::{AutoscaleMode, HitSetParams, PeeringCrush, PgMergeMeta, Pool, PoolSnap, pool_flags};
use crate::{OptValue, SnapIntervals};

impl OptValue {
    /// As JSON dumps show it.
    pub fn dump(&self) -> Value {
        match self {
            Self::Str(s) => Value::from(s.as_str()),
            Self::Int(i) => Value::from(*i),
            Self::Double(d) => float(*d),
        }
    }
}
impl std::fmt::Display for OptValue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Str(s) => f.write_str(s),
            Self::Int(i) => write!(f, "{i}"),
            Self::Double(d) => f.write_str(&stream_float(*d)),
        }
    }
}

impl HitSetParams {
    fn dump(&self) -> Value {
        match self {
            Self::None => json!({ "type": "none" }),
            Self::ExplicitHash => json!({ "type": "explicit_hash" }),
            Self::ExplicitObject => json!({ "type": "explicit_object" }),
            Self::Bloom { fpp_micro, target_size, seed } => json!({
                "type": "bloom",
                "false_positive_probability": float(f64::from(*fpp_micro) / 1e6),
                "target_size": target_size,
                "seed": seed,
            }),
        }
    }
}
impl std::fmt::Display for HitSetParams {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::None => f.write_str("none"),
            Self::ExplicitHash => f.write_str("explicit_hash"),
            Self::ExplicitObject => f.write_str("explicit_object"),
            Self::Bloom { fpp_micro, target_size, seed } => {
                let fpp = stream_float(f64::from(*fpp_micro) / 1e6);
                write!(
                    f,
                    "bloom{{false_positive_probability: {fpp}, target_size: {target_size}, seed: {seed}}}"
                )
            }
        }
    }
}

fn merge_meta_json(m: &PgMergeMeta) -> Value {
    json!({
        "source_pgid": m.source_pgid.to_string(),
        "ready_epoch": m.ready_epoch.0,
        "last_epoch_started": m.last_epoch_started.0,
        "last_epoch_clean": m.last_epoch_clean.0,
        "source_version": m.source_version.to_string(),
        "target_version": m.target_version.to_string(),
    })
}

fn snap_json(s: &PoolSnap) -> Value {
    json!({ "snapid": s.snapid.0, "stamp": s.stamp.to_string(), "name": s.name })
}

impl Pool {
    /// The fields of `osd dump --format json`, without the pool's id and name, which come first there.
    pub fn dump(&self) -> Value {
        object(self.dump_fields())
    }

    pub(crate) fn dump_fields(&self) -> Vec<(&'static str, Value)> {
        let mut fields = self.dump_basics();
        fields.extend(self.dump_snaps_and_tiers());
        fields.extend(self.dump_cache_and_rest());
        fields
    }

    fn dump_basics(&self) -> Vec<(&'static str, Value)> {
        let peering = self.peering_crush.unwrap_or(PeeringCrush {
            bucket_count: 0,
            bucket_target: 0,
            bucket_barrier: 0,
            mandatory_member: ITEM_NONE,
        });
        let kind = self.kind as u8;
        vec![
            ("create_time", self.create_time.to_string().into()),
            ("flags", self.flags.into()),
            ("flags_names", pool_flags::to_text(self.flags).into()),
            ("type", kind.into()),
            ("size", self.size.into()),
            ("min_size", self.min_size.into()),
            ("crush_rule", self.crush_rule.into()),
            ("peering_crush_bucket_count", peering.bucket_count.into()),
            ("peering_crush_bucket_target", peering.bucket_target.into()),
            ("peering_crush_bucket_barrier", peering.bucket_barrier.into()),
            ("peering_crush_bucket_mandatory_member", peering.mandatory_member.into()),
            ("object_hash", self.object_hash.into()),
            ("pg_autoscale_mode", self.autoscale_mode.name().into()),
            ("pg_num", self.pg_num.into()),
            ("pg_placement_num", self.pgp_num.into()),
            ("pg_placement_num_target", self.pgp_num_target.into()),
            ("pg_num_target", self.pg_num_target.into()),
            ("pg_num_pending", self.pg_num_pending.into()),
            ("last_pg_merge_meta", merge_meta_json(&self.last_pg_merge_meta)),
            // These four are strings in Ceph's output too.
            ("last_change", self.last_change.to_string().into()),
            ("last_force_op_resend", self.last_force_op_resend.to_string().into()),
            ("last_force_op_resend_prenautilus", self.last_force_op_resend_prenautilus.to_string().into()),
            ("last_force_op_resend_preluminous", self.last_force_op_resend_preluminous.to_string().into()),
            ("auid", self.auid.into()),
        ]
    }

    fn dump_snaps_and_tiers(&self) -> Vec<(&'static str, Value)> {
        let snap_mode = if self.is_pool_snaps_mode() { "pool" } else { "selfmanaged" };
        vec![
            ("snap_mode", snap_mode.into()),
            ("snap_seq", self.snap_seq.into()),
            ("snap_epoch", self.snap_epoch.0.into()),
            ("pool_snaps", array(self.snaps.values().map(snap_json))),
            ("removed_snaps", self.removed_snaps.to_string().into()),
            ("quota_max_bytes", self.quota_max_bytes.into()),
            ("quota_max_objects", self.quota_max_objects.into()),
            ("tiers", array(self.tiers.iter().copied())),
            ("tier_of", self.tier_of.0.into()),
            ("read_tier", self.read_tier.0.into()),
            ("write_tier", self.write_tier.0.into()),
            ("cache_mode", self.cache_mode_name().into()),
        ]
    }

    fn dump_cache_and_rest(&self) -> Vec<(&'static str, Value)> {
        let applications = self.application_metadata.iter().map(|(app, kv)| (app.as_str(), strings(kv)));
        vec![
            ("target_max_bytes", self.target_max_bytes.into()),
            ("target_max_objects", self.target_max_objects.into()),
            ("cache_target_dirty_ratio_micro", self.cache_target_dirty_ratio_micro.into()),
            ("cache_target_dirty_high_ratio_micro", self.cache_target_dirty_high_ratio_micro.into()),
            ("cache_target_full_ratio_micro", self.cache_target_full_ratio_micro.into()),
            ("cache_min_flush_age", self.cache_min_flush_age.into()),
            ("cache_min_evict_age", self.cache_min_evict_age.into()),
            ("erasure_code_profile", self.erasure_code_profile.as_str().into()),
            ("hit_set_params", self.hit_set_params.dump()),
            ("hit_set_period", self.hit_set_period.into()),
            ("hit_set_count", self.hit_set_count.into()),
            ("use_gmt_hitset", self.use_gmt_hitset.into()),
            ("min_read_recency_for_promote", self.min_read_recency_for_promote.into()),
            ("min_write_recency_for_promote", self.min_write_recency_for_promote.into()),
            ("hit_set_grade_decay_rate", self.hit_set_grade_decay_rate.into()),
            ("hit_set_search_last_n", self.hit_set_search_last_n.into()),
            ("grade_table", array(self.grade_table())),
            ("stripe_width", self.stripe_width.into()),
            ("expected_num_objects", self.expected_num_objects.into()),
            ("fast_read", self.fast_read.into()),
            ("options", object(self.opts.iter().map(|(name, v)| (name, v.dump())))),
            ("application_metadata", object(applications)),
        ]
    }

    /// The pool's line in `osd dump` and `osd pool ls detail`, after `pool 1 'name' `.
    pub fn describe(&self) -> String {
        let mut out = self.kind.name().to_owned();
        if self.is_erasure() {
            let _ = write!(out, " profile {}", self.erasure_code_profile);
        }
        let _ = write!(
            out,
            " size {} min_size {} crush_rule {} object_hash {} pg_num {} pgp_num {}",
            self.size,
            self.min_size,
            self.crush_rule,
            str_hash_name(self.object_hash.into()),
            self.pg_num,
            self.pgp_num
        );
        let counts = [
            ("pg_num_target", self.pg_num_target, self.pg_num),
            ("pgp_num_target", self.pgp_num_target, self.pgp_num),
            ("pg_num_pending", self.pg_num_pending, self.pg_num),
        ];
        for (name, value, _) in counts.into_iter().filter(|(_, value, usual)| value != usual) {
            let _ = write!(out, " {name} {value}");
        }
        if self.autoscale_mode != AutoscaleMode::UNKNOWN {
            let _ = write!(out, " autoscale_mode {}", self.autoscale_mode.name());
        }
        let _ = write!(out, " last_change {}", self.last_change);
        let resend = [
            self.last_force_op_resend,
            self.last_force_op_resend_prenautilus,
            self.last_force_op_resend_preluminous,
        ];
        if resend.iter().any(|e| e.0 != 0) {
            let texts: Vec<String> = resend.iter().map(ToString::to_string).collect();
            let _ = write!(out, " lfor {}", texts.join("/"));
        }
        self.describe_options(&mut out);
        out
    }

    fn describe_options(&self, out: &mut String) {
        let number = |value: u64| if value == 0 { None } else { Some(value.to_string()) };
        let some = |present: bool, value: String| present.then_some(value);
        let ids: Vec<String> = self.tiers.iter().map(ToString::to_string).collect();
        let tier = |id: PoolId| some(id.0 >= 0, id.to_string());
        let hit_set = || {
            format!(
                "{} {}s x{} decay_rate {} search_last_n {}",
                self.hit_set_params,
                self.hit_set_period,
                self.hit_set_count,
                self.hit_set_grade_decay_rate,
                self.hit_set_search_last_n
            )
        };
        let applications: Vec<&str> = self.application_metadata.keys().map(String::as_str).collect();
        let options = self.opts.iter().map(|(name, value)| (name, Some(value.to_string())));
        let fields = [
            ("owner", number(self.auid)),
            ("flags", some(self.flags != 0, pool_flags::to_text(self.flags))),
            ("max_bytes", number(self.quota_max_bytes)),
            ("max_objects", number(self.quota_max_objects)),
            ("tiers", some(!ids.is_empty(), ids.join(","))),
            ("tier_of", tier(self.tier_of)),
            ("read_tier", tier(self.read_tier)),
            ("write_tier", tier(self.write_tier)),
            ("cache_mode", some(self.cache_mode != 0, self.cache_mode_name().to_owned())),
            ("target_bytes", number(self.target_max_bytes)),
            ("target_objects", number(self.target_max_objects)),
            ("hit_set", some(self.hit_set_params != HitSetParams::None, hit_set())),
            ("min_read_recency_for_promote", number(self.min_read_recency_for_promote.into())),
            ("min_write_recency_for_promote", number(self.min_write_recency_for_promote.into())),
            ("stripe_width", Some(self.stripe_width.to_string())),
            ("expected_num_objects", number(self.expected_num_objects)),
            ("fast_read", number(self.fast_read.into())),
        ];
        let last = ("application", some(!applications.is_empty(), applications.join(",")));
        for (name, value) in fields.into_iter().chain(options).chain([last]) {
            if let Some(value) = value {
                let _ = write!(out, " {name} {value}");
            }
        }
    }

    /// The pool's line and those below it for its snapshots, as `osd pool ls detail` shows them.
    pub(crate) fn print(&self, id: i64, name: &str, queue: Option<&SnapIntervals>, out: &mut String) {
        let _ = writeln!(out, "pool {id} '{name}' {}", self.describe());
        for snap in self.snaps.values() {
            let _ = writeln!(out, "\tsnap {} '{}' {}", snap.snapid, snap.name, snap.stamp);
        }
        if !self.removed_snaps.is_empty() {
            let _ = writeln!(out, "\tremoved_snaps {}", self.removed_snaps);
        }
        if let Some(queue) = queue {
            let _ = writeln!(out, "\tremoved_snaps_queue {queue}");
        }
    }
}
