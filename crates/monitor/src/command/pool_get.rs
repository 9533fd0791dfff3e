//! `osd pool get`: a pool's settings by name, or all that apply.
//!
//! Source: "osd pool get" in OSDMonitor::preprocess_command.

use maps::{OptValue, OsdMap, Pool, PoolOpts, pool_flags};
use serde_json::{Map, Value, json};
use types::{Errno, PoolId};

use crate::command::pool::pool_arg;
use crate::command::{Command, Ctx, Handler, Reply, flags};
use crate::text::six_digits;

/// Variables of every pool and of none, in the order in which `all` lists them.
const VARS: [&str; 54] = [
    "size",
    "min_size",
    "pg_num",
    "pgp_num",
    "crush_rule",
    "hashpspool",
    "allow_ec_overwrites",
    "nodelete",
    "nopgchange",
    "nosizechange",
    "write_fadvise_dontneed",
    "noscrub",
    "nodeep-scrub",
    "hit_set_type",
    "hit_set_period",
    "hit_set_count",
    "hit_set_fpp",
    "use_gmt_hitset",
    "target_max_objects",
    "target_max_bytes",
    "cache_target_dirty_ratio",
    "cache_target_dirty_high_ratio",
    "cache_target_full_ratio",
    "cache_min_flush_age",
    "cache_min_evict_age",
    "erasure_code_profile",
    "min_read_recency_for_promote",
    "min_write_recency_for_promote",
    "fast_read",
    "hit_set_grade_decay_rate",
    "hit_set_search_last_n",
    "scrub_min_interval",
    "scrub_max_interval",
    "deep_scrub_interval",
    "recovery_priority",
    "recovery_op_priority",
    "scrub_priority",
    "compression_mode",
    "compression_algorithm",
    "compression_required_ratio",
    "compression_max_blob_size",
    "compression_min_blob_size",
    "csum_type",
    "csum_max_block",
    "csum_min_block",
    "fingerprint_algorithm",
    "pg_autoscale_mode",
    "pg_num_min",
    "pg_num_max",
    "target_size_bytes",
    "target_size_ratio",
    "pg_autoscale_bias",
    "dedup_tier",
    "bulk",
];

/// Those that only cache tiers have.
pub(super) const TIER_VARS: [&str; 16] = [
    "hit_set_type",
    "hit_set_period",
    "hit_set_count",
    "hit_set_fpp",
    "target_max_objects",
    "target_max_bytes",
    "cache_target_full_ratio",
    "cache_target_dirty_ratio",
    "cache_target_dirty_high_ratio",
    "use_gmt_hitset",
    "cache_min_flush_age",
    "cache_min_evict_age",
    "hit_set_grade_decay_rate",
    "hit_set_search_last_n",
    "min_read_recency_for_promote",
    "min_write_recency_for_promote",
];

/// Names of checksum kinds by number, from 1. Source: src/common/Checksummer.h.
pub(super) const CSUM_TYPES: [&str; 6] = ["none", "xxhash32", "xxhash64", "crc32c", "crc32c_16", "crc32c_8"];

pub(super) const COMMANDS: &[Command] = &[Command {
    sig: "osd pool get name=pool,type=CephPoolname \
          name=var,type=CephChoices,strings=size|min_size|pg_num|pgp_num|crush_rule|hashpspool|nodelete|nopgchange|\
nosizechange|write_fadvise_dontneed|noscrub|nodeep-scrub|hit_set_type|hit_set_period|hit_set_count|hit_set_fpp|\
use_gmt_hitset|target_max_objects|target_max_bytes|cache_target_dirty_ratio|cache_target_dirty_high_ratio|\
cache_target_full_ratio|cache_min_flush_age|cache_min_evict_age|erasure_code_profile|\
min_read_recency_for_promote|all|min_write_recency_for_promote|fast_read|hit_set_grade_decay_rate|\
hit_set_search_last_n|scrub_min_interval|scrub_max_interval|deep_scrub_interval|recovery_priority|\
recovery_op_priority|scrub_priority|compression_mode|compression_algorithm|compression_required_ratio|\
compression_max_blob_size|compression_min_blob_size|csum_type|csum_min_block|csum_max_block|\
allow_ec_overwrites|fingerprint_algorithm|pg_autoscale_mode|pg_autoscale_bias|pg_num_min|pg_num_max|\
target_size_bytes|target_size_ratio|bulk",
    help: "one setting of a pool, or all of them",
    module: "osd",
    perm: "r",
    flags: flags::NONE,
    handler: Handler::Read(get),
}];

fn get(ctx: &Ctx<'_>) -> Reply {
    let (name, var) = (ctx.args.text_or_empty("pool"), ctx.args.text_or_empty("var"));
    let map = ctx.osdmap();
    let (id, pool) = match pool_arg(map, name).map(|id| (id, map.pool(id))) {
        Ok((id, Some(pool))) => (id, pool),
        Ok(_) => return Reply::from(Errno::ENOENT),
        Err(reply) => return reply,
    };
    if var == "all" {
        let chosen: Vec<&str> = VARS.into_iter().filter(|v| shown_in_all(pool, v)).collect();
        return show(ctx, map, id, pool, name, &chosen);
    }
    if !VARS.contains(&var) {
        return Reply::error(Errno::EINVAL, format!("pool '{name}': invalid variable: '{var}'"));
    }
    if !pool.is_tier() && TIER_VARS.contains(&var) && var != "use_gmt_hitset" {
        let text = format!("pool '{name}' is not a tier pool: variable not applicable");
        return Reply::error(Errno::EACCES, text);
    }
    if !pool.is_erasure() && matches!(var, "erasure_code_profile" | "allow_ec_overwrites") {
        let text = format!("pool '{name}' is not a erasure pool: variable not applicable");
        return Reply::error(Errno::EACCES, text);
    }
    if value(map, pool, var).is_none() {
        return Reply::error(Errno::ENOENT, format!("option '{var}' is not set on pool '{name}'"));
    }
    show(ctx, map, id, pool, name, &[var])
}

fn shown_in_all(pool: &Pool, var: &str) -> bool {
    let of_tier = TIER_VARS.contains(&var) && var != "use_gmt_hitset";
    let of_erasure = matches!(var, "erasure_code_profile" | "allow_ec_overwrites");
    let unset = PoolOpts::describe(var).is_some() && pool.opts.get(var).is_none();
    (pool.is_tier() || !of_tier) && (pool.is_erasure() || !of_erasure) && !unset
}

fn show(ctx: &Ctx<'_>, map: &OsdMap, id: PoolId, pool: &Pool, name: &str, vars: &[&str]) -> Reply {
    let plain = || {
        let line = |v: &&str| value(map, pool, v).map(|x| format!("{v}: {}\n", plain_value(v, &x)));
        vars.iter().filter_map(line).collect()
    };
    let json_value = || {
        let mut out = Map::new();
        out.insert("pool".to_owned(), json!(name));
        out.insert("pool_id".to_owned(), json!(id.0));
        out.extend(vars.iter().filter_map(|v| Some(((*v).to_owned(), value(map, pool, v)?))));
        Value::Object(out)
    };
    Reply::show(ctx.format, plain, json_value)
}

/// As text Ceph shows some switches as numbers.
fn plain_value(var: &str, value: &Value) -> String {
    match value {
        Value::Bool(b) if var == "use_gmt_hitset" => u8::from(*b).to_string(),
        Value::String(s) => s.clone(),
        Value::Number(n) if n.is_f64() => six_digits(n.as_f64().unwrap_or(0.0)),
        other => other.to_string(),
    }
}

fn value(map: &OsdMap, p: &Pool, var: &str) -> Option<Value> {
    let ratio = |micro: u32| json!(f64::from(micro) / 1e6);
    Some(match var {
        "size" => json!(p.size),
        "min_size" => json!(p.min_size),
        "pg_num" => json!(p.pg_num),
        "pgp_num" => json!(p.pgp_num),
        "crush_rule" => {
            let name = map.crush.rule_name(p.crush_rule.into());
            json!(name.map_or_else(|| p.crush_rule.to_string(), ToOwned::to_owned))
        }
        "allow_ec_overwrites" => json!(p.has_flag(pool_flags::EC_OVERWRITES)),
        "hit_set_period" => json!(p.hit_set_period),
        "hit_set_count" => json!(p.hit_set_count),
        "use_gmt_hitset" => json!(p.use_gmt_hitset),
        "target_max_objects" => json!(p.target_max_objects),
        "target_max_bytes" => json!(p.target_max_bytes),
        "cache_target_dirty_ratio" => ratio(p.cache_target_dirty_ratio_micro),
        "cache_target_dirty_high_ratio" => ratio(p.cache_target_dirty_high_ratio_micro),
        "cache_target_full_ratio" => ratio(p.cache_target_full_ratio_micro),
        "cache_min_flush_age" => json!(p.cache_min_flush_age),
        "cache_min_evict_age" => json!(p.cache_min_evict_age),
        "erasure_code_profile" => json!(p.erasure_code_profile),
        "min_read_recency_for_promote" => json!(p.min_read_recency_for_promote),
        "min_write_recency_for_promote" => json!(p.min_write_recency_for_promote),
        "fast_read" => json!(u8::from(p.fast_read)),
        "hit_set_grade_decay_rate" => json!(p.hit_set_grade_decay_rate),
        "hit_set_search_last_n" => json!(p.hit_set_search_last_n),
        "pg_autoscale_mode" => json!(p.autoscale_mode.name()),
        "bulk" => json!(p.has_flag(BULK)),
        _ => match pool_flags::by_name(var) {
            Some(flag) => json!(p.has_flag(flag)),
            None => opt_value(var, p.opts.get(var)?),
        },
    })
}

/// The pool will hold much data. Source: pg_pool_t::FLAG_BULK in 16.2.15.
pub(super) const BULK: u64 = 1 << 17;

fn opt_value(var: &str, value: &OptValue) -> Value {
    match value {
        OptValue::Int(n) if var == "csum_type" => {
            let name = usize::try_from(n - 1).ok().and_then(|i| CSUM_TYPES.get(i));
            json!(name.copied().unwrap_or("unknown"))
        }
        OptValue::Int(n) => json!(n),
        OptValue::Double(v) => json!(v),
        OptValue::Str(s) => json!(s),
    }
}
