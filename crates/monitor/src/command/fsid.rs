//! The first two commands, as examples of how commands are written.

use serde_json::json;

use crate::command::{Command, Ctx, Handler, Reply, flags};

pub(super) const COMMANDS: &[Command] = &[
    Command {
        sig: "fsid",
        help: "the cluster's id",
        module: "mon",
        perm: "r",
        flags: flags::NONE,
        handler: Handler::Read(fsid),
    },
    Command {
        sig: "osd stat",
        help: "number of OSDs, how many are up and in",
        module: "osd",
        perm: "r",
        flags: flags::NONE,
        handler: Handler::Read(osd_stat),
    },
];

fn fsid(ctx: &Ctx<'_>) -> Reply {
    let fsid = ctx.state.fsid;
    Reply::show(ctx.format, || format!("{fsid}\n"), || json!({ "fsid": fsid.to_string() }))
}

/// Source: OSDMap::print_summary.
fn osd_stat(ctx: &Ctx<'_>) -> Reply {
    let map = ctx.osdmap();
    let n = map.counts();
    let remapped = map.pg_temp.len();
    let plain = || {
        let mut text = format!("{} osds: {} up", n.total, n.up);
        if !map.last_up_change.is_zero() {
            text += &format!(" (since {})", crate::text::span(ctx.now.wall.since(map.last_up_change)));
        }
        text += &format!(", {} in", n.r#in);
        if !map.last_in_change.is_zero() {
            text += &format!(" (since {})", crate::text::span(ctx.now.wall.since(map.last_in_change)));
        }
        text += &format!("; epoch: e{}", map.epoch);
        if remapped > 0 {
            text += &format!("; {remapped} remapped pgs");
        }
        text + "\n"
    };
    let value = || {
        json!({
            "epoch": map.epoch.0,
            "num_osds": n.total,
            "num_up_osds": n.up,
            "osd_up_since": map.last_up_change.sec,
            "num_in_osds": n.r#in,
            "osd_in_since": map.last_in_change.sec,
            "num_remapped_pgs": remapped,
        })
    };
    Reply::show(ctx.format, plain, value)
}
