//! `osd pool ...`: making, removing, renaming, listing pools, their snapshots and quotas.

use maps::AutoscaleMode;
use serde_json::{Value, json};
use types::{Errno, PoolId};

use crate::command::{Command, Ctx, Handler, Reply, WriteCtx, flags};
use crate::service::pool::{self, NewPool, edit_pool};
use crate::text::units;
use admin::units::parse_iec;

pub(super) const COMMANDS: &[Command] = &[
    read(
        "osd pool ls name=detail,type=CephChoices,strings=detail,req=false",
        "names of the pools, or all that is known of them",
        ls,
    ),
    write(
        "osd pool create name=pool,type=CephPoolname name=pg_num,type=CephInt,req=false \
         name=pgp_num,type=CephInt,req=false \
         name=pool_type,type=CephChoices,strings=replicated|erasure,req=false \
         name=erasure_code_profile,type=CephString,req=false,goodchars=[A-Za-z0-9-_.] \
         name=rule,type=CephString,req=false name=expected_num_objects,type=CephInt,range=0,req=false \
         name=size,type=CephInt,range=0,req=false name=pg_num_min,type=CephInt,range=0,req=false \
         name=pg_num_max,type=CephInt,range=0,req=false \
         name=autoscale_mode,type=CephChoices,strings=on|off|warn,req=false \
         name=bulk,type=CephBool,req=false name=target_size_bytes,type=CephInt,range=0,req=false \
         name=target_size_ratio,type=CephFloat,range=0|1,req=false",
        "make a pool",
        create,
    ),
    write(
        "osd pool delete name=pool,type=CephPoolname name=pool2,type=CephPoolname,req=false \
         name=yes_i_really_really_mean_it,type=CephBool,req=false \
         name=yes_i_really_really_mean_it_not_faking,type=CephBool,req=false",
        "delete a pool with everything in it",
        delete,
    ),
    write(
        "osd pool rm name=pool,type=CephPoolname name=pool2,type=CephPoolname,req=false \
         name=yes_i_really_really_mean_it,type=CephBool,req=false \
         name=yes_i_really_really_mean_it_not_faking,type=CephBool,req=false",
        "delete a pool with everything in it",
        delete,
    ),
    write(
        "osd pool rename name=srcpool,type=CephPoolname name=destpool,type=CephPoolname",
        "give a pool another name",
        rename,
    ),
    write(
        "osd pool mksnap name=pool,type=CephPoolname name=snap,type=CephString",
        "take a snapshot of a pool",
        mksnap,
    ),
    write(
        "osd pool rmsnap name=pool,type=CephPoolname name=snap,type=CephString",
        "remove a snapshot of a pool",
        rmsnap,
    ),
    write(
        "osd pool set-quota name=pool,type=CephPoolname \
         name=field,type=CephChoices,strings=max_objects|max_bytes name=val,type=CephString",
        "limit the bytes or objects in a pool; 0 lifts the limit",
        set_quota,
    ),
    read(
        "osd pool get-quota name=pool,type=CephPoolname",
        "limits of a pool, and what counts against them",
        get_quota,
    ),
];

const fn read(sig: &'static str, help: &'static str, handler: fn(&Ctx<'_>) -> Reply) -> Command {
    Command { sig, help, module: "osd", perm: "r", flags: flags::NONE, handler: Handler::Read(handler) }
}

const fn write(sig: &'static str, help: &'static str, handler: fn(&mut WriteCtx<'_>) -> Reply) -> Command {
    Command { sig, help, module: "osd", perm: "rw", flags: flags::NONE, handler: Handler::Write(handler) }
}

/// The pool that an argument names, or the refusal.
pub(super) fn pool_arg(map: &maps::OsdMap, name: &str) -> Result<PoolId, Reply> {
    map.pool_by_name(name).ok_or_else(|| Reply::error(Errno::ENOENT, format!("unrecognized pool '{name}'")))
}

fn ls(ctx: &Ctx<'_>) -> Reply {
    let map = ctx.osdmap();
    let detail = ctx.args.text("detail") == Some("detail");
    let name = |id: &PoolId| map.pool_name(*id).unwrap_or_default();
    let plain = || {
        if !detail {
            return map.pools.keys().map(|id| format!("{}\n", name(id))).collect();
        }
        let line = |(id, p): (&PoolId, &maps::Pool)| {
            let snaps = p.snaps.values().map(|s| format!("\tsnap {} '{}' {}\n", s.snapid.0, s.name, s.stamp));
            let snaps: String = snaps.collect();
            format!("pool {id} '{}' {}\n{snaps}", name(id), p.describe())
        };
        map.pools.iter().map(line).collect::<String>() + "\n"
    };
    let value = || {
        let entry = |(id, p): (&PoolId, &maps::Pool)| {
            if !detail {
                return json!(name(id));
            }
            let mut out = json!({ "pool_id": id.0, "pool_name": name(id) });
            if let (Some(out), Value::Object(rest)) = (out.as_object_mut(), p.dump()) {
                out.extend(rest);
            }
            out
        };
        map.pools.iter().map(entry).collect::<Value>()
    };
    Reply::show(ctx.format, plain, value)
}

fn create(ctx: &mut WriteCtx<'_>) -> Reply {
    let args = ctx.args;
    let name = args.text_or_empty("pool");
    let kind = args.text("pool_type").unwrap_or("replicated");
    if let Some(pool) = ctx.osdmap().pool_by_name(name).and_then(|id| ctx.osdmap().pool(id)) {
        if pool.kind.name() != kind {
            return Reply::error(Errno::EINVAL, format!("pool '{name}' cannot change to type {kind}"));
        }
        return Reply::done(format!("pool '{name}' already exists"));
    }
    // The client has put the rule into the next free word, which for replicated pools is the profile.
    let (mut rule_name, mut expected) =
        (args.text_or_empty("rule"), args.int("expected_num_objects").unwrap_or(0));
    let profile = args.text_or_empty("erasure_code_profile");
    let erasure = (kind == "erasure").then_some(if profile.is_empty() { "default" } else { profile });
    if !profile.is_empty() && erasure.is_none() {
        if !rule_name.is_empty() {
            expected = match rule_name.parse() {
                Ok(n) => n,
                Err(_) => {
                    let text = format!(
                        "error parsing integer value '{rule_name}': Expected option value to be integer, got '{rule_name}'"
                    );
                    return Reply::error(Errno::EINVAL, text);
                }
            };
        }
        rule_name = profile;
    }
    let int = |name: &str| args.int(name).unwrap_or(0);
    let new = NewPool {
        name,
        pg_num: int("pg_num"),
        pgp_num: args.int("pgp_num").unwrap_or(int("pg_num")),
        pg_num_min: int("pg_num_min"),
        pg_num_max: int("pg_num_max"),
        size: int("size"),
        rule: -1,
        rule_name,
        expected_num_objects: u64::try_from(expected).unwrap_or(0),
        autoscale: args.text("autoscale_mode").and_then(AutoscaleMode::from_name),
        target_size_bytes: int("target_size_bytes"),
        target_size_ratio: args.float("target_size_ratio").unwrap_or(0.0),
        bulk: args.flag("bulk"),
        erasure,
    };
    match pool::create(ctx.batch, ctx.settings, ctx.now, &new) {
        Ok(_) => Reply::done(format!("pool '{name}' created")),
        Err((errno, text)) => Reply::error(errno, text),
    }
}

fn delete(ctx: &mut WriteCtx<'_>) -> Reply {
    let (name, again) = (ctx.args.text_or_empty("pool"), ctx.args.text_or_empty("pool2"));
    let Some(id) = ctx.osdmap().pool_by_name(name) else {
        return Reply::done(format!("pool '{name}' does not exist"));
    };
    let sure = ctx.args.flag("yes_i_really_really_mean_it")
        || ctx.args.flag("yes_i_really_really_mean_it_not_faking");
    if name != again || !sure {
        let text = format!(
            "WARNING: this will *PERMANENTLY DESTROY* all data stored in pool {name}.  If you are *ABSOLUTELY CERTAIN* \
             that is what you want, pass the pool name *twice*, followed by --yes-i-really-really-mean-it."
        );
        return Reply::error(Errno::EPERM, text);
    }
    match pool::remove(ctx.batch, ctx.settings, id) {
        Ok(text) => Reply::done(text),
        Err((errno, text)) => Reply::error(errno, text),
    }
}

fn rename(ctx: &mut WriteCtx<'_>) -> Reply {
    let (from, to) = (ctx.args.text_or_empty("srcpool"), ctx.args.text_or_empty("destpool"));
    let map = ctx.osdmap();
    let taken = map.pool_by_name(to).is_some();
    let Some(id) = map.pool_by_name(from) else {
        if taken {
            let text =
                format!("pool '{from}' does not exist; pool '{to}' does -- assuming successful rename");
            return Reply::done(text);
        }
        return Reply::error(Errno::ENOENT, format!("unrecognized pool '{from}'"));
    };
    if taken {
        return Reply::error(Errno::EEXIST, format!("pool '{to}' already exists"));
    }
    if to.is_empty() {
        return Reply::from(Errno::EINVAL);
    }
    if let Err((errno, why)) = pool::check_name(to) {
        return Reply::error(errno, why);
    }
    ctx.osdmap_mut().pool_names.insert(id, to.to_owned());
    Reply::done(format!("pool '{from}' renamed to '{to}'"))
}

fn mksnap(ctx: &mut WriteCtx<'_>) -> Reply {
    let (name, snap) = (ctx.args.text_or_empty("pool"), ctx.args.text_or_empty("snap"));
    let id = match pool_arg(ctx.osdmap(), name) {
        Ok(id) => id,
        Err(reply) => return reply,
    };
    let Some(p) = ctx.osdmap().pool(id) else { return Reply::from(Errno::ENOENT) };
    if p.is_unmanaged_snaps_mode() {
        return Reply::error(Errno::EINVAL, format!("pool {name} is in unmanaged snaps mode"));
    }
    if p.snap_by_name(snap).is_some() {
        return Reply::done(format!("pool {name} snap {snap} already exists"));
    }
    if p.is_tier() {
        return Reply::error(Errno::EINVAL, format!("pool {name} is a cache tier"));
    }
    let (epoch, now) = (ctx.batch.next_osdmap_epoch(), ctx.now.wall);
    edit_pool(ctx.batch, id, |p| {
        p.add_snap(snap, now);
        p.snap_epoch = epoch;
    });
    Reply::done(format!("created pool {name} snap {snap}"))
}

fn rmsnap(ctx: &mut WriteCtx<'_>) -> Reply {
    let (name, snap) = (ctx.args.text_or_empty("pool"), ctx.args.text_or_empty("snap"));
    let id = match pool_arg(ctx.osdmap(), name) {
        Ok(id) => id,
        Err(reply) => return reply,
    };
    let Some(p) = ctx.osdmap().pool(id) else { return Reply::from(Errno::ENOENT) };
    if p.is_unmanaged_snaps_mode() {
        return Reply::error(Errno::EINVAL, format!("pool {name} is in unmanaged snaps mode"));
    }
    let Some(snapid) = p.snap_by_name(snap) else {
        return Reply::done(format!("pool {name} snap {snap} does not exist"));
    };
    let epoch = ctx.batch.next_osdmap_epoch();
    edit_pool(ctx.batch, id, |p| {
        p.remove_snap(snapid);
        p.snap_epoch = epoch;
    });
    pool::queue_removed_snap(ctx.batch, id, snapid);
    Reply::done(format!("removed pool {name} snap {snap}"))
}

fn set_quota(ctx: &mut WriteCtx<'_>) -> Reply {
    let (name, field) = (ctx.args.text_or_empty("pool"), ctx.args.text_or_empty("field"));
    let id = match pool_arg(ctx.osdmap(), name) {
        Ok(id) => id,
        Err(reply) => return reply,
    };
    let text = ctx.args.text_or_empty("val");
    let value = match parse_iec(text).map(u64::try_from) {
        Ok(Ok(v)) => v,
        Ok(Err(_)) => return Reply::error(Errno::EINVAL, format!("error parsing value '{text}': negative")),
        Err(e) => return Reply::error(Errno::EINVAL, format!("error parsing value '{text}': {e}")),
    };
    edit_pool(ctx.batch, id, |p| match field {
        "max_objects" => p.quota_max_objects = value,
        _ => p.quota_max_bytes = value,
    });
    Reply::done(format!("set-quota {field} = {value} for pool {name}"))
}

/// Source: "osd pool get-quota" in OSDMonitor::preprocess_command.
fn get_quota(ctx: &Ctx<'_>) -> Reply {
    let name = ctx.args.text_or_empty("pool");
    let map = ctx.osdmap();
    let Some((id, p)) = map.pool_by_name(name).and_then(|id| Some((id, map.pool(id)?))) else {
        return Reply::error(Errno::ENOENT, format!("unrecognized pool '{name}'"));
    };
    let sum = ctx.state.digest.pools.get(&id).map(|u| u.stat.stats.sum).unwrap_or_default();
    let plain = || {
        let objects = match p.quota_max_objects {
            0 => "N/A".to_owned(),
            n => format!("{} objects  (current num objects: {} objects)", units::count(n), sum.num_objects),
        };
        let bytes = match p.quota_max_bytes {
            0 => "N/A".to_owned(),
            n => format!("{}  (current num bytes: {} bytes)", units::bytes(n), sum.num_bytes),
        };
        format!("quotas for pool '{name}':\n  max objects: {objects}\n  max bytes  : {bytes}\n")
    };
    let value = || {
        json!({
            "pool_name": name,
            "pool_id": id.0,
            "quota_max_objects": p.quota_max_objects,
            "current_num_objects": sum.num_objects,
            "quota_max_bytes": p.quota_max_bytes,
            "current_num_bytes": sum.num_bytes,
        })
    };
    Reply::show(ctx.format, plain, value)
}
