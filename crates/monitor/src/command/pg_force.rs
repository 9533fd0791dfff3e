//! `osd force-create-pg` and `pg repeer`: a PG made anew, and one made to begin an interval.
//!
//! Source: OSDMonitor::prepare_command_impl.

use std::collections::BTreeSet;

use maps::{NO_OSD, pool_flags};
use types::Errno;

use crate::command::osd_settings::{pg_arg, pg_parsed};
use crate::command::{Command, Handler, Reply, WriteCtx, flags};
use crate::state::{Change, CreatingPool};

pub(super) const COMMANDS: &[Command] = &[
    Command {
        sig: "osd force-create-pg name=pgid,type=CephPgid name=yes_i_really_mean_it,type=CephBool,req=false",
        help: "make a PG anew, empty, whose copies are all lost",
        module: "osd",
        perm: "rw",
        flags: flags::NONE,
        handler: Handler::Write(create),
    },
    Command {
        sig: "pg repeer name=pgid,type=CephPgid",
        help: "make a PG peer again",
        module: "osd",
        perm: "rw",
        flags: flags::NONE,
        handler: Handler::Write(repeer),
    },
];

fn create(ctx: &mut WriteCtx<'_>) -> Reply {
    let pg = match pg_parsed(ctx) {
        Ok(pg) => pg,
        Err(reply) => return reply,
    };
    if !ctx.osdmap().pg_exists(pg) {
        return Reply::error(Errno::ENOENT, format!("pg {pg} should not exist"));
    }
    if !ctx.args.flag("yes_i_really_mean_it") {
        let text = "This command will recreate a lost (as in data lost) PG with data in it, such that the cluster will \
                    give up ever trying to recover the lost data.  Do this only if you are certain that all copies of \
                    the PG are in fact lost and you are willing to accept that the data is permanently destroyed.  \
                    Pass --yes-i-really-mean-it to proceed.";
        return Reply::error(Errno::EPERM, text);
    }
    let known = ctx.state().creating.get(&pg.pool).cloned();
    if known.as_ref().is_some_and(|c| c.seeds.contains(&pg.seed)) {
        return Reply::done(format!("pg {pg} already creating"));
    }
    let mut creating = known.unwrap_or_else(|| CreatingPool {
        epoch: ctx.osdmap().epoch,
        stamp: ctx.now.wall,
        seeds: BTreeSet::new(),
    });
    creating.seeds.insert(pg.seed);
    ctx.change(Change::Creating(pg.pool, Some(creating)));
    // OSDs heed the order to create only while the pool says that PGs are being made.
    if let Some(pool) = ctx.osdmap_mut().pools.get_mut(&pg.pool) {
        pool.set_flag(pool_flags::CREATING);
    }
    Reply::done(format!("pg {pg} now creating, ok"))
}

/// Gives the PG another acting set for a while; it asks for what it wants itself then.
fn repeer(ctx: &mut WriteCtx<'_>) -> Reply {
    let pg = match pg_parsed(ctx).and_then(|_| pg_arg(ctx, &|pg| format!("pg '{pg}' does not exist"))) {
        Ok(pg) => pg,
        Err(reply) => return reply,
    };
    let map = ctx.osdmap();
    let placed = map.pg_to_up_acting(pg);
    let primary = placed.acting_primary;
    if primary == NO_OSD {
        return Reply::error(Errno::EAGAIN, "pg currently has no primary");
    }
    let mut acting = vec![primary];
    if placed.acting.len() <= 1 {
        let other = (0..map.max_osd()).find(|id| *id != primary && map.is_up(*id));
        match other {
            Some(other) => acting.push(other),
            None => {
                let text = "not enough up OSDs in the cluster to force repeer";
                return Reply::error(Errno::EAGAIN, text);
            }
        }
    }
    ctx.osdmap_mut().pg_temp.insert(pg, acting);
    Reply::ok()
}
