//! `osd pool application ...`: what a pool is used for.
//!
//! Source: OSDMonitor::prepare_command_pool_application.

use std::collections::BTreeMap;

use serde_json::json;
use types::Errno;

use crate::command::pool::pool_arg;
use crate::command::{Command, Ctx, Format, Handler, Reply, WriteCtx, flags};
use crate::service::pool::edit_pool;

/// Source: MAX_POOL_APPLICATIONS, _KEYS and _LENGTH in src/mon/OSDMonitor.cc.
const MAX_APPS: usize = 4;
const MAX_KEYS: usize = 64;
const MAX_LENGTH: usize = 128;

pub(super) const COMMANDS: &[Command] = &[
    write(
        "osd pool application enable name=pool,type=CephPoolname \
         name=app,type=CephString,goodchars=[A-Za-z0-9-_.] name=yes_i_really_mean_it,type=CephBool,req=false",
        "say what a pool is used for (cephfs, rbd, rgw, ...)",
        enable,
    ),
    write(
        "osd pool application disable name=pool,type=CephPoolname name=app,type=CephString \
         name=yes_i_really_mean_it,type=CephBool,req=false",
        "say that a pool is not used for something any more",
        disable,
    ),
    write(
        "osd pool application set name=pool,type=CephPoolname name=app,type=CephString \
         name=key,type=CephString,goodchars=[A-Za-z0-9-_.] \
         name=value,type=CephString,goodchars=[A-Za-z0-9-_.=]",
        "note a key and a value with an application of a pool",
        set,
    ),
    write(
        "osd pool application rm name=pool,type=CephPoolname name=app,type=CephString name=key,type=CephString",
        "remove a key from an application of a pool",
        rm,
    ),
    Command {
        sig: "osd pool application get name=pool,type=CephPoolname,req=false name=app,type=CephString,req=false \
              name=key,type=CephString,req=false",
        help: "applications of pools with their keys and values",
        module: "osd",
        perm: "r",
        flags: flags::NONE,
        handler: Handler::Read(get),
    },
];

const fn write(sig: &'static str, help: &'static str, handler: fn(&mut WriteCtx<'_>) -> Reply) -> Command {
    Command { sig, help, module: "osd", perm: "rw", flags: flags::NONE, handler: Handler::Write(handler) }
}

type Apps = BTreeMap<String, BTreeMap<String, String>>;

/// The pool, its applications, and the names in the command.
fn with_apps(
    ctx: &mut WriteCtx<'_>,
    change: impl FnOnce(&mut Apps, &str, &str, &WriteCtx<'_>) -> Result<String, Reply>,
) -> Reply {
    let (pool, app) = (ctx.args.text_or_empty("pool"), ctx.args.text_or_empty("app"));
    let id = match pool_arg(ctx.osdmap(), pool) {
        Ok(id) => id,
        Err(reply) => return reply,
    };
    if app.is_empty() {
        return Reply::error(Errno::EINVAL, "application name must be provided");
    }
    let old = ctx.osdmap().pool(id).map(|p| p.application_metadata.clone()).unwrap_or_default();
    let mut apps = old.clone();
    match change(&mut apps, pool, app, ctx) {
        Ok(text) => {
            if apps != old {
                edit_pool(ctx.batch, id, |p| p.application_metadata = apps);
            }
            Reply::done(text)
        }
        Err(reply) => reply,
    }
}

fn enable(ctx: &mut WriteCtx<'_>) -> Reply {
    with_apps(ctx, |apps, pool, app, ctx| {
        let enabled = format!("enabled application '{app}' on pool '{pool}'");
        if apps.contains_key(app) {
            return Ok(enabled);
        }
        if !apps.is_empty() && !ctx.args.flag("yes_i_really_mean_it") {
            let text = format!(
                "Are you SURE? Pool '{pool}' already has an enabled application; pass --yes-i-really-mean-it to \
                 proceed anyway"
            );
            return Err(Reply::error(Errno::EPERM, text));
        }
        if apps.len() >= MAX_APPS {
            let text = format!("too many enabled applications on pool '{pool}'; max {MAX_APPS}");
            return Err(Reply::error(Errno::EINVAL, text));
        }
        if app.len() > MAX_LENGTH {
            let text = format!("application name '{app}' too long; max length {MAX_LENGTH}");
            return Err(Reply::error(Errno::EINVAL, text));
        }
        apps.insert(app.to_owned(), BTreeMap::new());
        Ok(enabled)
    })
}

fn disable(ctx: &mut WriteCtx<'_>) -> Reply {
    with_apps(ctx, |apps, pool, app, ctx| {
        if !ctx.args.flag("yes_i_really_mean_it") {
            let text = "Are you SURE? Disabling an application within a pool might result in loss of application \
                        functionality; pass --yes-i-really-mean-it to proceed anyway";
            return Err(Reply::error(Errno::EPERM, text));
        }
        Ok(match apps.remove(app) {
            Some(_) => format!("disable application '{app}' on pool '{pool}'"),
            None => format!("application '{app}' is not enabled on pool '{pool}'"),
        })
    })
}

fn set(ctx: &mut WriteCtx<'_>) -> Reply {
    with_apps(ctx, |apps, pool, app, ctx| {
        let (key, value) = (ctx.args.text_or_empty("key"), ctx.args.text_or_empty("value"));
        if key.is_empty() {
            return Err(Reply::error(Errno::EINVAL, "key must be provided"));
        }
        let Some(keys) = apps.get_mut(app) else {
            let text = format!("application '{app}' is not enabled on pool '{pool}'");
            return Err(Reply::error(Errno::ENOENT, text));
        };
        if keys.len() >= MAX_KEYS && !keys.contains_key(key) {
            let text = format!("too many keys set for application '{app}' on pool '{pool}'; max {MAX_KEYS}");
            return Err(Reply::error(Errno::EINVAL, text));
        }
        for (what, text) in [("key", key), ("value", value)] {
            if text.len() > MAX_LENGTH {
                let text = format!("{what} '{text}' too long; max length {MAX_LENGTH}");
                return Err(Reply::error(Errno::EINVAL, text));
            }
        }
        keys.insert(key.to_owned(), value.to_owned());
        Ok(format!("set application '{app}' key '{key}' to '{value}' on pool '{pool}'"))
    })
}

fn rm(ctx: &mut WriteCtx<'_>) -> Reply {
    with_apps(ctx, |apps, pool, app, ctx| {
        let key = ctx.args.text_or_empty("key");
        let Some(keys) = apps.get_mut(app) else {
            let text = format!("application '{app}' is not enabled on pool '{pool}'");
            return Err(Reply::error(Errno::ENOENT, text));
        };
        Ok(match keys.remove(key) {
            Some(_) => format!("removed application '{app}' key '{key}' on pool '{pool}'"),
            None => format!("application '{app}' on pool '{pool}' does not have key '{key}'"),
        })
    })
}

fn get(ctx: &Ctx<'_>) -> Reply {
    let map = ctx.osdmap();
    // There is no plain form of these.
    let format = if ctx.format.is_plain() { Format::JsonPretty } else { ctx.format };
    let (pool, app, key) = (ctx.args.text("pool"), ctx.args.text("app"), ctx.args.text("key"));
    let Some(pool) = pool.filter(|p| !p.is_empty()) else {
        let named = map.pools.iter().map(|(id, p)| {
            let name = map.pool_name(*id).unwrap_or_default().to_owned();
            (name, json!(p.application_metadata))
        });
        return Reply::json(format, &serde_json::Value::Object(named.collect()));
    };
    let p = match pool_arg(map, pool).map(|id| map.pool(id)) {
        Ok(Some(p)) => p,
        Ok(None) => return Reply::from(Errno::ENOENT),
        Err(reply) => return reply,
    };
    let Some(app) = app else { return Reply::json(format, &json!(p.application_metadata)) };
    let Some(keys) = p.application_metadata.get(app) else {
        return Reply::error(Errno::ENOENT, format!("pool '{pool}' has no application '{app}'"));
    };
    let Some(key) = key else { return Reply::json(format, &json!(keys)) };
    match keys.get(key) {
        Some(value) => Reply::text(format!("{value}\n")),
        None => {
            let text = format!("application '{app}' on pool '{pool}' does not have key '{key}'");
            Reply::error(Errno::ENOENT, text)
        }
    }
}
