//! `osd tier ...`: which pool is a tier of which.
//!
//! Only what maps say of tiers: no OSD here moves objects between pools, and so a pool never gets an overlay, which
//! would send clients to the tier.
//!
//! Source: "osd tier" commands in OSDMonitor::prepare_command_impl, _check_become_tier, _check_remove_tier.

use maps::{CACHE_MODES, Pool, pool_flags};
use types::{Errno, PoolId};

use crate::command::crush_edit::write;
use crate::command::pool::pool_arg;
use crate::command::{Command, Reply, WriteCtx, flags};
use crate::service::pool::edit_pool;

pub(super) const COMMANDS: &[Command] = &[
    write(
        "osd tier add name=pool,type=CephPoolname name=tierpool,type=CephPoolname \
         name=force_nonempty,type=CephChoices,strings=--force-nonempty,req=false",
        "make the second pool a tier of the first",
        add,
    ),
    write(
        "osd tier rm name=pool,type=CephPoolname name=tierpool,type=CephPoolname",
        "the second pool is no tier of the first any more",
        rm,
    ),
    Command {
        flags: flags::DEPRECATED,
        ..write(
            "osd tier remove name=pool,type=CephPoolname name=tierpool,type=CephPoolname",
            "old name of osd tier rm",
            rm,
        )
    },
    write(
        "osd tier cache-mode name=pool,type=CephPoolname \
         name=mode,type=CephChoices,strings=writeback|readproxy|readonly|none \
         name=yes_i_really_mean_it,type=CephBool,req=false",
        "how a tier caches",
        cache_mode,
    ),
    write(
        "osd tier set-overlay name=pool,type=CephPoolname name=overlaypool,type=CephPoolname",
        "send clients of a pool to its tier",
        |_| Reply::error(Errno::EOPNOTSUPP, "cache tiers are not supported: no overlay can be set"),
    ),
    write(
        "osd tier rm-overlay name=pool,type=CephPoolname",
        "send clients of a pool to the pool itself again",
        rm_overlay,
    ),
    Command {
        flags: flags::DEPRECATED,
        ..write(
            "osd tier remove-overlay name=pool,type=CephPoolname",
            "old name of osd tier rm-overlay",
            rm_overlay,
        )
    },
];

/// The two pools that a command names.
fn pools(ctx: &WriteCtx<'_>) -> Result<(PoolId, PoolId), Reply> {
    let pool = |arg: &str| pool_arg(ctx.osdmap(), ctx.args.text_or_empty(arg));
    Ok((pool("pool")?, pool("tierpool")?))
}

fn add(ctx: &mut WriteCtx<'_>) -> Reply {
    let (base, tier) = match pools(ctx) {
        Ok(pools) => pools,
        Err(reply) => return reply,
    };
    let force = ctx.args.text("force_nonempty") == Some("--force-nonempty");
    if let Err(reply) = may_become_tier(ctx, base, tier, force) {
        return reply;
    }
    let epoch = ctx.batch.next_osdmap_epoch();
    edit_pool(ctx.batch, base, |p| {
        p.tiers.insert(tier.0.unsigned_abs());
        p.snap_epoch = epoch;
    });
    edit_pool(ctx.batch, tier, |p| p.tier_of = base);
    let (base, tier) = (ctx.args.text_or_empty("pool"), ctx.args.text_or_empty("tierpool"));
    Reply::done(format!("pool '{tier}' is now (or already was) a tier of '{base}'"))
}

/// Whether a pool can become another's tier; the refusal otherwise, or the answer when it is one already.
fn may_become_tier(ctx: &WriteCtx<'_>, base: PoolId, tier: PoolId, force: bool) -> Result<(), Reply> {
    let map = ctx.osdmap();
    let (Some(b), Some(t)) = (map.pool(base), map.pool(tier)) else { return Err(Reply::from(Errno::ENOENT)) };
    let name = |id: PoolId| map.pool_name(id).unwrap_or_default();
    let refuse = |errno: Errno, text: String| Err(Reply::error(errno, text));
    let (base_name, tier_name) = (name(base), name(tier));
    if b.tiers.contains(&tier.0.unsigned_abs()) {
        return Err(Reply::done(format!(
            "pool '{tier_name}' is now (or already was) a tier of '{base_name}'"
        )));
    }
    if base == tier {
        return refuse(Errno::EINVAL, format!("pool '{tier_name}' cannot be a tier of itself"));
    }
    if b.is_tier() {
        let text = format!(
            "pool '{base_name}' is already a tier of '{}', multiple tiers are not yet supported.",
            name(b.tier_of)
        );
        return refuse(Errno::EINVAL, text);
    }
    if !t.tiers.is_empty() {
        let its = t.tiers.iter().map(|id| format!("'{}',", name(PoolId(*id as i64)))).collect::<String>();
        let text = format!(
            "pool '{tier_name}' has following tier(s) already:{its} multiple tiers are not yet supported."
        );
        return refuse(Errno::EINVAL, text);
    }
    if t.is_tier() {
        return refuse(
            Errno::EINVAL,
            format!("tier pool '{tier_name}' is already a tier of '{}'", name(t.tier_of)),
        );
    }
    let objects = ctx.state().digest.pools.get(&tier).map_or(0, |u| u.stat.stats.sum.num_objects);
    if objects != 0 && !force {
        let text = format!("tier pool '{tier_name}' is not empty; --force-nonempty to force");
        return refuse(Errno::ENOTEMPTY, text);
    }
    if t.is_erasure() {
        let text = format!("tier pool '{tier_name}' is an ec pool, which cannot be a tier");
        return refuse(Errno::EOPNOTSUPP, text);
    }
    if t.snap_seq > 0 {
        let text = format!(
            "tier pool '{tier_name}' has snapshot state; it cannot be added as a tier without breaking the pool"
        );
        return refuse(Errno::ENOTEMPTY, text);
    }
    Ok(())
}

fn rm(ctx: &mut WriteCtx<'_>) -> Reply {
    let (base, tier) = match pools(ctx) {
        Ok(pools) => pools,
        Err(reply) => return reply,
    };
    let (base_name, tier_name) = (ctx.args.text_or_empty("pool"), ctx.args.text_or_empty("tierpool"));
    let Some(b) = ctx.osdmap().pool(base) else { return Reply::from(Errno::ENOENT) };
    if b.tiers.contains(&tier.0.unsigned_abs()) {
        if b.read_tier == tier {
            let text = format!(
                "tier pool '{tier_name}' is the overlay for '{base_name}'; please remove-overlay first"
            );
            return Reply::error(Errno::EBUSY, text);
        }
        edit_pool(ctx.batch, base, |p| {
            p.tiers.remove(&tier.0.unsigned_abs());
        });
        edit_pool(ctx.batch, tier, clear_tier);
    }
    Reply::done(format!("pool '{tier_name}' is now (or already was) not a tier of '{base_name}'"))
}

/// Source: pg_pool_t::clear_tier.
fn clear_tier(p: &mut Pool) {
    p.tier_of = PoolId(-1);
    p.read_tier = PoolId(-1);
    p.write_tier = PoolId(-1);
    p.cache_mode = 0;
    p.target_max_bytes = 0;
    p.target_max_objects = 0;
}

fn cache_mode(ctx: &mut WriteCtx<'_>) -> Reply {
    let name = ctx.args.text_or_empty("pool");
    let id = match pool_arg(ctx.osdmap(), name) {
        Ok(id) => id,
        Err(reply) => return reply,
    };
    let Some(p) = ctx.osdmap().pool(id) else { return Reply::from(Errno::ENOENT) };
    if !p.is_tier() {
        return Reply::error(Errno::EINVAL, format!("pool '{name}' is not a tier"));
    }
    let mode = ctx.args.text_or_empty("mode");
    let Some(number) = (0..).zip(CACHE_MODES).find_map(|(n, name)| (name == mode).then_some(n)) else {
        return Reply::error(Errno::EINVAL, format!("'{mode}' is not a valid cache mode"));
    };
    if mode == "readonly" && !ctx.args.flag("yes_i_really_mean_it") {
        let text = format!(
            "'{mode}' is not a well-supported cache mode and may corrupt your data.  pass --yes-i-really-mean-it to \
             force."
        );
        return Reply::error(Errno::EPERM, text);
    }
    let done = format!("set cache-mode for pool '{name}' to {mode}");
    if p.cache_mode == number {
        return Reply::done(done);
    }
    let was = p.cache_mode_name();
    if was == "writeback" && mode != "readproxy" {
        let text = format!("unable to set cache-mode '{mode}' on a '{was}' pool; only 'readproxy' allowed.");
        return Reply::error(Errno::EINVAL, text);
    }
    edit_pool(ctx.batch, id, |p| {
        p.cache_mode = number;
        p.set_flag(pool_flags::INCOMPLETE_CLONES);
    });
    Reply::done(done)
}

fn rm_overlay(ctx: &mut WriteCtx<'_>) -> Reply {
    let name = ctx.args.text_or_empty("pool");
    match pool_arg(ctx.osdmap(), name) {
        // None is ever set.
        Ok(_) => Reply::done(format!("there is now (or already was) no overlay for '{name}'")),
        Err(reply) => reply,
    }
}
