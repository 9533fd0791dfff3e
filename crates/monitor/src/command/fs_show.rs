//! What is known of file systems and metadata servers.
//!
//! Source: MDSMonitor::preprocess_command, gid_from_arg, dump_metadata in src/mon/MDSMonitor.cc.

use std::borrow::Cow;
use std::collections::BTreeMap;

use maps::{CLIENT_FEATURES, Filesystem, FsMap, MdsGid, MdsInfo, compat_json, list_text};
use serde_json::{Map, Value, json};
use types::{Epoch, Errno};

use crate::command::shape::streamed;
use crate::command::{Command, Ctx, Handler, Reply, flags};
use crate::session::Session;
use crate::state::FsState;

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
        |ctx| counted(ctx, ctx.args.text_or_empty("property")),
    ),
    read("mds", "mds versions", "check running versions of MDSs", |ctx| counted(ctx, "ceph_version")),
    read(
        "mds",
        "fs compat show name=fs_name,type=CephString",
        "show fs compatibility settings",
        fs_compat_show,
    ),
    Command {
        flags: flags::DEPRECATED,
        ..read("mds", "mds compat show", "show mds compatibility settings", compat_show)
    },
    read(
        "mds",
        "mds ok-to-stop name=ids,type=CephString,n=N",
        "check whether stopping the specified MDS would reduce immediate availability",
        ok_to_stop,
    ),
];

/// The file systems that a session may know of.
pub(crate) fn visible<'a>(map: &'a FsMap, session: Option<&Session>) -> Cow<'a, FsMap> {
    let allowed = session.map(|s| s.caps.allowed_fs_names()).unwrap_or_default();
    if allowed.is_empty() {
        return Cow::Borrowed(map);
    }
    let mut map = map.clone();
    map.filesystems.retain(|_, fs| allowed.contains(&fs.map.fs_name));
    if !map.filesystems.contains_key(&map.legacy_client_fscid) {
        map.legacy_client_fscid = maps::NO_FS;
    }
    Cow::Owned(map)
}

fn seen<'a>(ctx: &'a Ctx<'_>) -> Cow<'a, FsMap> {
    visible(&ctx.state.fs.map, ctx.session())
}

fn ls(ctx: &Ctx<'_>) -> Reply {
    let map = seen(ctx);
    let name = |id: i64| ctx.osdmap().pool_name(types::PoolId(id)).unwrap_or_default().to_owned();
    let plain = || {
        if map.filesystems.is_empty() {
            return "No filesystems enabled".to_owned();
        }
        let line = |fs: &Filesystem| {
            let data: String = fs.map.data_pools.iter().map(|id| name(*id) + " ").collect();
            let metadata = name(fs.map.metadata_pool);
            format!("name: {}, metadata pool: {metadata}, data pools: [{data}]\n", fs.map.fs_name)
        };
        map.filesystems.values().map(line).collect()
    };
    let one = |fs: &Filesystem| {
        json!({
            "name": fs.map.fs_name,
            "metadata_pool": name(fs.map.metadata_pool),
            "metadata_pool_id": fs.map.metadata_pool,
            "data_pool_ids": fs.map.data_pools,
            "data_pools": fs.map.data_pools.iter().map(|id| name(*id)).collect::<Vec<_>>(),
        })
    };
    streamed(ctx.format, plain, || map.filesystems.values().map(one).collect())
}

fn not_found(name: &str) -> Reply {
    Reply::error(Errno::ENOENT, format!("filesystem '{name}' not found"))
}

fn get(ctx: &Ctx<'_>) -> Reply {
    let name = ctx.args.text_or_empty("fs_name");
    match seen(ctx).by_name(name) {
        Some(fs) => streamed(ctx.format, || fs.print(), || fs.dump()),
        None => not_found(name),
    }
}

fn dump(ctx: &Ctx<'_>) -> Reply {
    let now = &ctx.state.fs.map;
    let wanted = ctx.args.int("epoch").filter(|e| *e != i64::from(now.epoch.0));
    let old = match wanted {
        Some(epoch) => {
            let then = u32::try_from(epoch).ok().and_then(|e| ctx.state.fs_history.map_at(Epoch(e)));
            let Some(then) = then else { return Reply::error(Errno::ENOENT, "") };
            Some(then)
        }
        None => None,
    };
    let map = visible(old.as_ref().unwrap_or(now), ctx.session());
    streamed(ctx.format, || map.print(), || map.dump()).with_outs(format!("dumped fsmap epoch {}", map.epoch))
}

fn mds_stat(ctx: &Ctx<'_>) -> Reply {
    let map = seen(ctx);
    let oldest = ctx.state.fs_history.oldest().unwrap_or(map.epoch);
    let value = || {
        json!({
            "fsmap": map.dump(),
            "mdsmap_first_committed": oldest.0,
            "mdsmap_last_committed": map.epoch.0,
        })
    };
    streamed(ctx.format, || map.summary(), value)
}

/// A daemon by its rank (`0`, `fs:0`), its number or its name. Source: MDSMonitor::gid_from_arg.
pub(super) fn daemon_arg<'a>(map: &'a FsMap, text: &str) -> Result<&'a MdsInfo, String> {
    if let Ok((fs, rank)) = role(map, text) {
        if let Some(info) = fs.map.holder(rank) {
            return Ok(info);
        }
    }
    match text.parse::<MdsGid>() {
        Ok(gid) => map.daemon(gid).ok_or_else(String::new),
        Err(_) => {
            let unknown = || format!("MDS named '{text}' does not exist, or is not up");
            map.daemon_named(text).ok_or_else(unknown)
        }
    }
}

/// A rank: `0` of the default file system, or `fs:0`. Source: FSMap::parse_role.
pub(super) fn role<'a>(map: &'a FsMap, text: &str) -> Result<(&'a Filesystem, i32), Reply> {
    let (fs, rank) = match text.split_once(':') {
        None => {
            let fs = map.filesystems.get(&map.legacy_client_fscid);
            (fs.ok_or_else(|| Reply::error(Errno::ENOENT, "No filesystem selected"))?, text)
        }
        Some((fs, rank)) => {
            let fs = map.by_name_or_id(fs);
            (fs.ok_or_else(|| Reply::error(Errno::ENOENT, "Invalid filesystem"))?, rank)
        }
    };
    let number = rank.parse::<i32>().ok().filter(|n| *n >= 0);
    let Some(number) = number else {
        return Err(Reply::error(Errno::EINVAL, format!("Invalid rank '{rank}'")));
    };
    match fs.map.r#in.contains(&number) {
        true => Ok((fs, number)),
        false => Err(Reply::error(Errno::ENOENT, format!("Rank '{number}' not found"))),
    }
}

/// What a daemon told, behind its addresses.
fn metadata_json(fs: &FsState, info: &MdsInfo) -> Map<String, Value> {
    let told = fs.metadata.get(&info.gid).into_iter().flatten();
    told.map(|(k, v)| (k.clone(), v.as_str().into())).collect()
}

fn mds_metadata(ctx: &Ctx<'_>) -> Reply {
    let map = seen(ctx);
    let Some(who) = ctx.args.text("who") else {
        let mut daemons: Vec<&MdsInfo> = map.daemons().collect();
        daemons.sort_by_key(|i| i.gid);
        let one = |info: &&MdsInfo| {
            let mut value = Map::new();
            value.insert("name".to_owned(), info.name.as_str().into());
            value.extend(metadata_json(&ctx.state.fs, info));
            Value::Object(value)
        };
        return Reply::json_line(ctx.format, &daemons.iter().map(one).collect());
    };
    match daemon_arg(&map, who) {
        Ok(info) => Reply::json_line(ctx.format, &metadata_json(&ctx.state.fs, info).into()),
        Err(text) => {
            Reply { data: Reply::json_line(ctx.format, &json!({})).data, ..Reply::error(Errno::EINVAL, text) }
        }
    }
}

/// How many daemons have each value of a field; `unknown` stands for none.
pub(super) fn count_metadata(fs: &FsState, field: &str) -> BTreeMap<String, u64> {
    let mut counts = BTreeMap::new();
    for told in fs.metadata.values() {
        let value = told.get(field).cloned().unwrap_or_else(|| "unknown".to_owned());
        *counts.entry(value).or_insert(0) += 1;
    }
    counts
}

fn counted(ctx: &Ctx<'_>, field: &str) -> Reply {
    Reply::json_line(ctx.format, &json!(count_metadata(&ctx.state.fs, field)))
}

fn fs_compat_show(ctx: &Ctx<'_>) -> Reply {
    let name = ctx.args.text_or_empty("fs_name");
    match seen(ctx).by_name(name) {
        Some(fs) => streamed(ctx.format, || fs.map.compat.to_string(), || compat_json(&fs.map.compat)),
        None => not_found(name),
    }
}

fn compat_show(ctx: &Ctx<'_>) -> Reply {
    let compat = &ctx.state.fs.map.compat;
    streamed(ctx.format, || compat.to_string(), || compat_json(compat))
}

fn ok_to_stop(ctx: &Ctx<'_>) -> Reply {
    let map = seen(ctx);
    if map.is_any_degraded() {
        return Reply::error(Errno::EBUSY, "one or more filesystems is currently degraded");
    }
    let ids = ctx.args.list("ids");
    // Whoever is not there is not missed.
    let mut stopping: Vec<&MdsInfo> = ids.iter().filter_map(|id| daemon_arg(&map, id).ok()).collect();
    stopping.sort_by_key(|i| i.gid);
    stopping.dedup_by_key(|i| i.gid);
    let stops = |gid: MdsGid| stopping.iter().any(|i| i.gid == gid);
    let follower = |info: &MdsInfo| map.fs_of(info.gid)?.map.follower(info.rank).map(|f| f.gid);
    let is_standby = |info: &&&MdsInfo| map.standbys.contains_key(&info.gid);
    let without_follower =
        |info: &&&MdsInfo| !is_standby(info) && !info.follows() && follower(info).is_none_or(stops);
    let active: Vec<MdsGid> = stopping.iter().filter(without_follower).map(|i| i.gid).collect();
    let standby: Vec<MdsGid> = stopping.iter().filter(is_standby).map(|i| i.gid).collect();
    if map.standbys.len() - standby.len() < active.len() {
        let text = format!(
            "insufficent standby MDS daemons to stop active gids {} and/or standby gids {}",
            list_text(active),
            list_text(standby)
        );
        return Reply::error(Errno::EBUSY, text);
    }
    Reply::done(format!("should be safe to stop [{}]", ids.join(",")))
}

fn feature_ls(ctx: &Ctx<'_>) -> Reply {
    let plain = || CLIENT_FEATURES.iter().enumerate().map(|(i, name)| format!("{i} {name}\n")).collect();
    let one = |(i, name): (usize, &&str)| json!({ "index": i, "name": name });
    streamed(ctx.format, plain, || CLIENT_FEATURES.iter().enumerate().map(one).collect())
}
