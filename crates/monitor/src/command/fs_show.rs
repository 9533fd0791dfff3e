//! File systems: there are none, and these commands say so in Ceph's words.
//!
//! Source: src/mon/MDSMonitor.cc, src/mon/FSCommands.cc.

use serde_json::{Value, json};
use types::Errno;

use crate::command::shape::{no_map, streamed};
use crate::command::{Command, Ctx, Handler, Reply, flags};
use crate::views;

const fn read(
    module: &'static str,
    sig: &'static str,
    help: &'static str,
    handler: fn(&Ctx<'_>) -> Reply,
) -> Command {
    Command { sig, help, module, perm: "r", flags: flags::NONE, handler: Handler::Read(handler) }
}

pub(super) const COMMANDS: &[Command] = &[
    read("fs", "fs ls", "list filesystems", ls),
    read("fs", "fs get name=fs_name,type=CephString", "get info about one filesystem", get),
    read(
        "mds",
        "fs dump name=epoch,type=CephInt,req=false,range=0",
        "dump all CephFS status, optionally from epoch",
        dump,
    ),
    read("mds", "fs feature ls", "list available cephfs features to be set/unset", feature_ls),
    Command { flags: flags::HIDDEN, ..read("mds", "mds stat", "show MDS status", mds_stat) },
    read(
        "mds",
        "mds metadata name=who,type=CephString,req=false",
        "fetch metadata for mds <role>",
        mds_metadata,
    ),
    read(
        "mds",
        "mds count-metadata name=property,type=CephString",
        "count MDSs by metadata field property",
        none,
    ),
    read("mds", "mds versions", "check running versions of MDSs", none),
    read("mds", "fs compat show name=fs_name,type=CephString", "show fs compatibility settings", get),
    read("mds", "mds compat show", "show mds compatibility settings", compat_show),
    read(
        "mds",
        "mds ok-to-stop name=ids,type=CephString,n=N",
        "check whether stopping the specified MDS would reduce immediate availability",
        ok_to_stop,
    ),
];

fn ls(ctx: &Ctx<'_>) -> Reply {
    streamed(ctx.format, || "No filesystems enabled".to_owned(), || json!([]))
}

fn get(ctx: &Ctx<'_>) -> Reply {
    let name = ctx.args.text_or_empty("fs_name");
    Reply::error(Errno::ENOENT, format!("filesystem '{name}' not found"))
}

fn dump(ctx: &Ctx<'_>) -> Reply {
    let map = views::fsmap(ctx.state);
    let wanted = ctx.args.int("epoch").filter(|epoch| *epoch != 0 && *epoch != i64::from(map.epoch.0));
    if let Some(epoch) = wanted {
        return no_map(epoch);
    }
    streamed(ctx.format, || map.print(), || map.dump()).with_outs(format!("dumped fsmap epoch {}", map.epoch))
}

fn mds_stat(ctx: &Ctx<'_>) -> Reply {
    let map = views::fsmap(ctx.state);
    let value = || {
        json!({
            "fsmap": map.dump(),
            "mdsmap_first_committed": map.epoch.0,
            "mdsmap_last_committed": map.epoch.0,
        })
    };
    streamed(ctx.format, String::new, value)
}

fn mds_metadata(ctx: &Ctx<'_>) -> Reply {
    match ctx.args.text("who") {
        None => Reply::json_line(ctx.format, &json!([])),
        Some(who) => {
            let text = format!("MDS named '{who}' does not exist, or is not up");
            Reply { data: Reply::json_line(ctx.format, &json!({})).data, ..Reply::error(Errno::EINVAL, text) }
        }
    }
}

fn none(ctx: &Ctx<'_>) -> Reply {
    Reply::json_line(ctx.format, &json!({}))
}

fn compat_show(ctx: &Ctx<'_>) -> Reply {
    let compat = views::fsmap(ctx.state).compat;
    let plain =
        || format!("compat={},rocompat={},incompat={}", compat.compat, compat.ro_compat, compat.incompat);
    let value = || views::fsmap(ctx.state).dump().get("compat").cloned().unwrap_or_default();
    streamed(ctx.format, plain, value)
}

fn ok_to_stop(ctx: &Ctx<'_>) -> Reply {
    Reply::done(format!("should be safe to stop [{}]", ctx.args.list("ids").join(",")))
}

/// Source: cephfs_feature_names in src/mds/cephfs_features.cc.
fn feature_ls(ctx: &Ctx<'_>) -> Reply {
    const NAMES: [&str; 19] = [
        "reserved",
        "reserved",
        "reserved",
        "reserved",
        "reserved",
        "jewel",
        "kraken",
        "luminous",
        "mimic",
        "reply_encoding",
        "reclaim_client",
        "lazy_caps_wanted",
        "multi_reconnect",
        "deleg_ino",
        "metric_collect",
        "alternate_name",
        "notify_session_state",
        "op_getvxattr",
        "32bits_retry_fwd",
    ];
    let plain = || NAMES.iter().enumerate().map(|(i, name)| format!("{i} {name}\n")).collect();
    let value =
        || NAMES.iter().enumerate().map(|(i, name)| json!({ "index": i, "name": name })).collect::<Vec<_>>();
    streamed(ctx.format, plain, || Value::Array(value()))
}
