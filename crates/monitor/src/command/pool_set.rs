//! `osd pool set`.
//!
//! Source: OSDMonitor::prepare_command_pool_set.

use maps::{AutoscaleMode, OptType, OptValue, Pool, PoolOpts, pool_flags};
use types::{Errno, PoolId};

use crate::command::pool::pool_arg;
use crate::command::pool_get::{BULK, CSUM_TYPES, TIER_VARS};
use crate::command::{Command, Handler, Reply, WriteCtx, flags};
use crate::service::erasure;
use crate::service::merge::resend;
use crate::service::pool::{Refusal, check_pg_num, check_rule, edit_pool, rule_by_name};
use admin::units::{parse_float, parse_iec, parse_int};

pub(super) const COMMANDS: &[Command] = &[Command {
    sig: "osd pool set name=pool,type=CephPoolname \
          name=var,type=CephChoices,strings=size|min_size|pg_num|pgp_num|pgp_num_actual|crush_rule|hashpspool|nodelete|\
nopgchange|nosizechange|write_fadvise_dontneed|noscrub|nodeep-scrub|hit_set_type|hit_set_period|hit_set_count|\
hit_set_fpp|use_gmt_hitset|target_max_bytes|target_max_objects|cache_target_dirty_ratio|\
cache_target_dirty_high_ratio|cache_target_full_ratio|cache_min_flush_age|cache_min_evict_age|\
min_read_recency_for_promote|min_write_recency_for_promote|fast_read|hit_set_grade_decay_rate|\
hit_set_search_last_n|scrub_min_interval|scrub_max_interval|deep_scrub_interval|recovery_priority|\
recovery_op_priority|scrub_priority|compression_mode|compression_algorithm|compression_required_ratio|\
compression_max_blob_size|compression_min_blob_size|csum_type|csum_min_block|csum_max_block|\
allow_ec_overwrites|fingerprint_algorithm|pg_autoscale_mode|pg_autoscale_bias|pg_num_min|pg_num_max|\
target_size_bytes|target_size_ratio|bulk \
          name=val,type=CephString name=yes_i_really_mean_it,type=CephBool,req=false",
    help: "change a setting of a pool",
    module: "osd",
    perm: "rw",
    flags: flags::NONE,
    handler: Handler::Write(set),
}];

fn set(ctx: &mut WriteCtx<'_>) -> Reply {
    let (name, var) = (ctx.args.text_or_empty("pool"), ctx.args.text_or_empty("var"));
    let val = ctx.args.text_or_empty("val");
    let id = match pool_arg(ctx.osdmap(), name) {
        Ok(id) => id,
        Err(reply) => return reply,
    };
    match changed(ctx, id, var, val) {
        Ok(pool) => {
            edit_pool(ctx.batch, id, |p| *p = pool);
            Reply::done(format!("set pool {id} {var} to {val}"))
        }
        Err((errno, text)) => Reply::error(errno, text),
    }
}

/// The pool as it is after the change.
fn changed(ctx: &WriteCtx<'_>, id: PoolId, var: &str, val: &str) -> Result<Pool, Refusal> {
    let sure = ctx.args.flag("yes_i_really_mean_it");
    let Some(mut p) = ctx.osdmap().pool(id).cloned() else {
        return Err((Errno::ENOENT, Errno::ENOENT.to_string()));
    };
    if !p.is_tier() && TIER_VARS.contains(&var) {
        return Err((Errno::EACCES, Errno::EACCES.to_string()));
    }
    match var {
        "size" => set_size(ctx, id, &mut p, int(val)?, sure)?,
        "min_size" => {
            refuse_flag(&p, pool_flags::NOSIZECHANGE, "min size", "nosizechange")?;
            let n = int(val)?;
            // Fewer shards than make up the data serve nobody.
            let least = match p.is_erasure() {
                true => erasure::read(ctx.osdmap(), &p.erasure_code_profile)?.data_chunks() as i64,
                false => 1,
            };
            if n < least || n > i64::from(p.size) {
                let size = p.size;
                let text = format!("pool min_size must be between {least} and size, which is set to {size}");
                return Err((Errno::EINVAL, text));
            }
            p.min_size = u8::try_from(n).unwrap_or(1);
        }
        "pg_num" => set_pg_num(ctx, id, &mut p, int(val)?)?,
        "pg_num_actual" => step_pg_num(ctx, &mut p, int(val)?)?,
        "pgp_num" => set_pgp_num(&mut p, int(val)?)?,
        "pgp_num_actual" => step_pgp_num(&mut p, int(val)?)?,
        "crush_rule" => {
            let rule = rule_by_name(ctx.osdmap(), val)
                .ok_or_else(|| (Errno::ENOENT, format!("crush rule {val} does not exist")))?;
            check_rule(ctx.osdmap(), rule, p.kind, p.size)?;
            p.crush_rule = u8::try_from(rule).unwrap_or(0);
        }
        "pg_autoscale_mode" => {
            p.autoscale_mode = AutoscaleMode::from_name(val)
                .ok_or_else(|| (Errno::EINVAL, format!("specified invalid mode {val}")))?;
        }
        "nodelete"
        | "nopgchange"
        | "nosizechange"
        | "write_fadvise_dontneed"
        | "noscrub"
        | "nodeep-scrub" => {
            let flag = pool_flags::by_name(var).unwrap_or(0);
            set_flag(&mut p, flag, val)?;
        }
        "bulk" => set_flag(&mut p, BULK, val)?,
        "hashpspool" => {
            if !sure {
                let text = "are you SURE?  this will remap all placement groups in this pool, this triggers large \
                            data movement, pass --yes-i-really-mean-it if you really do.";
                return Err((Errno::EPERM, text.to_owned()));
            }
            set_flag(&mut p, pool_flags::HASHPSPOOL, val)?;
        }
        "fast_read" => return Err(einval("fast read is not supported in replication pool")),
        "allow_ec_overwrites" if !p.is_erasure() => {
            return Err(einval("ec overwrites can only be enabled for an erasure coded pool"));
        }
        "allow_ec_overwrites" if ["false", "0"].contains(&val) => {
            return Err(einval("ec overwrites cannot be disabled once enabled"));
        }
        "allow_ec_overwrites" => set_flag(&mut p, pool_flags::EC_OVERWRITES, val)?,
        _ => set_opt(&mut p, var, val)?,
    }
    Ok(p)
}

fn einval(text: impl Into<String>) -> Refusal {
    (Errno::EINVAL, text.into())
}

fn int(val: &str) -> Result<i64, Refusal> {
    parse_int(val).map_err(|e| einval(format!("error parsing integer value '{val}': {e}")))
}

fn refuse_flag(p: &Pool, flag: u64, what: &str, name: &str) -> Result<(), Refusal> {
    if !p.has_flag(flag) {
        return Ok(());
    }
    let text = format!("pool {what} change is disabled; you must unset {name} flag for the pool first");
    Err((Errno::EPERM, text))
}

fn set_size(ctx: &WriteCtx<'_>, id: PoolId, p: &mut Pool, n: i64, sure: bool) -> Result<(), Refusal> {
    refuse_flag(p, pool_flags::NOSIZECHANGE, "size", "nosizechange")?;
    if p.is_erasure() {
        return Err((Errno::EOPNOTSUPP, "can not change the size of an erasure-coded pool".to_owned()));
    }
    let size = match u8::try_from(n) {
        Ok(size @ 1..=10) => size,
        _ => return Err(einval("pool size must be between 1 and 10")),
    };
    if size == 1 {
        if !ctx.settings.switch(ctx.state(), "mon_allow_pool_size_one") {
            return Err((Errno::EPERM, "configuring pool size as 1 is disabled by default.".to_owned()));
        }
        if !sure {
            let text = "WARNING: setting pool size 1 could lead to data loss without recovery. If you are *ABSOLUTELY \
                        CERTAIN* that is what you want, pass the flag --yes-i-really-mean-it.";
            return Err((Errno::EPERM, text.to_owned()));
        }
    }
    p.size = size;
    check_rule(ctx.osdmap(), p.crush_rule.into(), p.kind, size)?;
    check_pg_num(ctx.osdmap(), ctx.settings, ctx.batch, Some(id), p.pg_num.into(), size)?;
    p.min_size = size - size / 2;
    Ok(())
}

fn set_pg_num(ctx: &WriteCtx<'_>, id: PoolId, p: &mut Pool, n: i64) -> Result<(), Refusal> {
    refuse_flag(p, pool_flags::NOPGCHANGE, "pg_num", "nopgchange")?;
    if n == i64::from(p.pg_num_target) {
        return Ok(());
    }
    let max = crate::service::pool::max_pg_num(ctx.settings, ctx.state());
    if n <= 0 || n > max {
        let text = format!(
            "'pg_num' must be greater than 0 and less than or equal to {max} (you may adjust 'mon max pool pg num' \
             for higher values)"
        );
        return Err((Errno::ERANGE, text));
    }
    if n > i64::from(p.pg_num_target) {
        check_pg_num(ctx.osdmap(), ctx.settings, ctx.batch, Some(id), n, p.size)?;
    }
    let n = u32::try_from(n).unwrap_or(1);
    if p.pg_num_target == p.pgp_num_target {
        p.pgp_num_target = n;
    }
    p.pg_num_target = n;
    Ok(())
}

/// A manager's step towards the target: growth at once, and the merge of the last PG.
fn step_pg_num(ctx: &WriteCtx<'_>, p: &mut Pool, n: i64) -> Result<(), Refusal> {
    if n == i64::from(p.pg_num) {
        return Ok(());
    }
    let max = crate::service::pool::max_pg_num(ctx.settings, ctx.state());
    if n <= 0 || n > max {
        let text = format!(
            "'pg_num' must be greater than 0 and less than or equal to {max} (you may adjust 'mon max pool pg num' \
             for higher values)"
        );
        return Err((Errno::ERANGE, text));
    }
    if p.has_flag(pool_flags::CREATING) {
        return Err((Errno::EBUSY, "cannot adjust pg_num while initial PGs are being created".to_owned()));
    }
    let next = u32::try_from(n).unwrap_or(1);
    if next > p.pg_num {
        p.set_pg_num(next);
    } else if next < p.pgp_num {
        return Err(einval(format!("specified pg_num {n} < pgp_num {}", p.pgp_num)));
    } else if next + 1 < p.pg_num {
        let text = format!(
            "specified pg_num {n} < pg_num ({}) - 1; only single pg decrease is currently supported",
            p.pg_num
        );
        return Err(einval(text));
    } else {
        p.pg_num_pending = next;
    }
    resend(p, ctx.batch.next_osdmap_epoch());
    Ok(())
}

/// A manager's step of PGs' places towards the target.
fn step_pgp_num(p: &mut Pool, n: i64) -> Result<(), Refusal> {
    refuse_flag(p, pool_flags::NOPGCHANGE, "pgp_num", "nopgchange")?;
    if n <= 0 {
        return Err(einval(format!("specified pgp_num must > 0, but you set to {n}")));
    }
    for (what, most) in [("pg_num", p.pg_num), ("pg_num_pending", p.pg_num_pending)] {
        if n > i64::from(most) {
            return Err(einval(format!("specified pgp_num {n} > {what} {most}")));
        }
    }
    p.pgp_num = u32::try_from(n).unwrap_or(1);
    Ok(())
}

fn set_pgp_num(p: &mut Pool, n: i64) -> Result<(), Refusal> {
    refuse_flag(p, pool_flags::NOPGCHANGE, "pgp_num", "nopgchange")?;
    if n <= 0 {
        return Err(einval(format!("specified pgp_num must > 0, but you set to {n}")));
    }
    if n > i64::from(p.pg_num_target) {
        return Err(einval(format!("specified pgp_num {n} > pg_num {}", p.pg_num_target)));
    }
    p.pgp_num_target = u32::try_from(n).unwrap_or(1);
    Ok(())
}

fn set_flag(p: &mut Pool, flag: u64, val: &str) -> Result<(), Refusal> {
    match val {
        "true" | "1" => p.set_flag(flag),
        "false" | "0" => p.unset_flag(flag),
        _ => return Err(einval("expecting value 'true', 'false', '0', or '1'")),
    }
    Ok(())
}

/// Options that most pools do not have. `unset`, and a number of 0, remove them.
fn set_opt(p: &mut Pool, var: &str, val: &str) -> Result<(), Refusal> {
    let Some((_, kind)) = PoolOpts::describe(var) else {
        return Err(einval(format!("unrecognized variable '{var}'")));
    };
    let value = if val == "unset" { None } else { opt_value(p, var, val, kind)? };
    match value {
        Some(value) => {
            p.opts.set(var, value);
        }
        None => {
            p.opts.unset(var);
        }
    }
    Ok(())
}

fn opt_value(p: &Pool, var: &str, val: &str, kind: OptType) -> Result<Option<OptValue>, Refusal> {
    let known = |list: &[&str], text: &str| {
        if list.contains(&val) { Ok(()) } else { Err(einval(format!("{text} '{val}'"))) }
    };
    match var {
        "compression_mode" => {
            known(&["none", "passive", "aggressive", "force"], "unrecognized compression mode")?;
        }
        "compression_algorithm" => {
            let names = ["none", "snappy", "zlib", "zstd", "lz4", "brotli"];
            known(&names, "unrecognized compression_algorithm")?;
        }
        "fingerprint_algorithm" => {
            known(&["none", "sha1", "sha256", "sha512"], "unrecognized fingerprint_algorithm")?;
        }
        "csum_type" => {
            let at = CSUM_TYPES.iter().position(|n| *n == val);
            let at = at.ok_or_else(|| einval(format!("unrecognized csum_type '{val}'")))?;
            return Ok(Some(OptValue::Int(at as i64 + 1)));
        }
        _ => {}
    }
    Ok(match kind {
        OptType::Str => Some(OptValue::Str(val.to_owned())),
        OptType::Int => {
            let with_unit = var.contains("block") || var.contains("blob_size") || var == "target_size_bytes";
            let what = if var == "target_size_bytes" { "unit" } else { "int" };
            let n = if with_unit { parse_iec(val) } else { parse_int(val) };
            let n = n.map_err(|e| einval(format!("error parsing {what} value '{val}': {e}")))?;
            check_int(p, var, n)?;
            (n != 0).then_some(OptValue::Int(n))
        }
        OptType::Double => {
            let v =
                parse_float(val).map_err(|e| einval(format!("error parsing float value '{val}': {e}")))?;
            if var == "compression_required_ratio" && !(0.0..=1.0).contains(&v) {
                return Err(einval(format!("compression_required_ratio is out of range (0-1): '{val}'")));
            }
            if var == "pg_autoscale_bias" && !(0.0..=1_000.0).contains(&v) {
                return Err(einval("pg_autoscale_bias must be between 0 and 1000"));
            }
            (v != 0.0).then_some(OptValue::Double(v))
        }
    })
}

fn check_int(p: &Pool, var: &str, n: i64) -> Result<(), Refusal> {
    match var {
        "recovery_priority" if !(-10..=10).contains(&n) => {
            Err(einval("pool recovery_priority must be between -10 and 10"))
        }
        "pg_num_min" if n > i64::from(p.pg_num_target) => {
            Err(einval(format!("specified pg_num_min {n} > pg_num {}", p.pg_num_target)))
        }
        "pg_num_max" if n != 0 && n < i64::from(p.pg_num_target) => {
            Err(einval(format!("specified pg_num_max {n} < pg_num {}", p.pg_num_target)))
        }
        _ => Ok(()),
    }
}
