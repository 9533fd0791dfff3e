//! File systems come and go, and so do their data pools and mirrors.
//!
//! Source: src/mon/FSCommands.cc.

use maps::{Filesystem, FsId, MdsGid, MirrorPeer, OptValue, mds_flags};
use types::{Errno, INLINE_DATA, PoolId};

use crate::command::{Access, Command, Reply, WriteCtx, flags, write};
use crate::service::mds::{fail as fail_daemon, propose};
use crate::service::mds_tick::begin;
use crate::service::pool::edit_pool;
use crate::state::FsState;

const FS: Access = Access { module: "fs", perm: "rw" };
const MDS: Access = Access { module: "mds", perm: "rw" };

pub(super) const COMMANDS: &[Command] = &[
    write(
        FS,
        "fs new name=fs_name,type=CephString,goodchars=[A-Za-z0-9-_.] name=metadata,type=CephString \
         name=data,type=CephString name=force,type=CephBool,req=false \
         name=allow_dangerous_metadata_overlay,type=CephBool,req=false name=fscid,type=CephInt,range=0,req=false \
         name=recover,type=CephBool,req=false",
        "make new filesystem using named pools <metadata> and <data>",
        flags::NONE,
        new,
    ),
    write(
        FS,
        "fs fail name=fs_name,type=CephString",
        "bring the file system down and all of its ranks",
        flags::NONE,
        fail,
    ),
    write(
        FS,
        "fs rm name=fs_name,type=CephString name=yes_i_really_mean_it,type=CephBool,req=false",
        "disable the named filesystem",
        flags::NONE,
        rm,
    ),
    write(
        FS,
        "fs reset name=fs_name,type=CephString name=yes_i_really_mean_it,type=CephBool,req=false",
        "disaster recovery only: reset to a single-MDS map",
        flags::NONE,
        reset,
    ),
    write(
        FS,
        "fs flag set name=flag_name,type=CephChoices,strings=enable_multiple name=val,type=CephString \
         name=yes_i_really_mean_it,type=CephBool,req=false",
        "Set a global CephFS flag",
        flags::NONE,
        flag_set,
    ),
    write(
        MDS,
        "fs add_data_pool name=fs_name,type=CephString name=pool,type=CephString",
        "add data pool <pool>",
        flags::NONE,
        add_data_pool,
    ),
    write(
        MDS,
        "fs rm_data_pool name=fs_name,type=CephString name=pool,type=CephString",
        "remove data pool <pool>",
        flags::NONE,
        rm_data_pool,
    ),
    write(
        FS,
        "fs set_default name=fs_name,type=CephString",
        "set the default to the named filesystem",
        flags::DEPRECATED,
        set_default,
    ),
    write(
        FS,
        "fs set-default name=fs_name,type=CephString",
        "set the default to the named filesystem",
        flags::NONE,
        set_default,
    ),
    write(
        MDS,
        "fs mirror enable name=fs_name,type=CephString",
        "enable mirroring for a ceph filesystem",
        flags::NONE,
        |ctx| mirror(ctx, true),
    ),
    write(
        MDS,
        "fs mirror disable name=fs_name,type=CephString",
        "disable mirroring for a ceph filesystem",
        flags::NONE,
        |ctx| mirror(ctx, false),
    ),
    write(
        MDS,
        "fs mirror peer_add name=fs_name,type=CephString name=uuid,type=CephString \
         name=remote_cluster_spec,type=CephString name=remote_fs_name,type=CephString",
        "add a mirror peer for a ceph filesystem",
        flags::NONE,
        peer_add,
    ),
    write(
        MDS,
        "fs mirror peer_remove name=fs_name,type=CephString name=uuid,type=CephString",
        "remove a mirror peer for a ceph filesystem",
        flags::NONE,
        peer_remove,
    ),
];

/// File systems of a cluster, data pools of one, mirror peers of one, and bytes of a name.
const FILE_SYSTEMS_LIMIT: usize = 256;
const DATA_POOLS_LIMIT: usize = 1_024;
const PEERS_LIMIT: usize = 64;
const NAME_BYTES: usize = 256;

/// The file system that a command names, if the session may know it. Source: is_op_allowed.
pub(super) fn named(ctx: &WriteCtx<'_>) -> Result<Filesystem, Reply> {
    let name = ctx.args.text_or_empty("fs_name");
    let allowed = ctx.session.caps.allowed_fs_names();
    let known = |fs: &&Filesystem| allowed.is_empty() || allowed.contains(&fs.map.fs_name);
    let Some(fs) = ctx.state().fs.map.by_name(name).filter(known).cloned() else {
        return Err(Reply::error(Errno::ENOENT, format!("Filesystem not found: '{name}'")));
    };
    if !ctx.session.caps.fs_name_capable(&ctx.session.name, name, false, true) {
        return Err(Reply::error(Errno::EPERM, format!("Permission denied: '{name}'")));
    }
    Ok(fs)
}

/// Source: parse_bool in src/mon/MDSMonitor.cc.
pub(super) fn truth(text: &str) -> Result<bool, Reply> {
    match text {
        "true" | "yes" => Ok(true),
        "false" | "no" => Ok(false),
        _ => match text.parse::<i64>() {
            Ok(0) => Ok(false),
            Ok(1) => Ok(true),
            _ => Err(Reply::error(Errno::EINVAL, "value must be false|no|0 or true|yes|1")),
        },
    }
}

pub(super) fn commit(ctx: &mut WriteCtx<'_>, fs: FsState) {
    propose(ctx.now, ctx.settings, fs, ctx.batch);
}

/// Changes the file system that a command names.
pub(super) fn modify(ctx: &mut WriteCtx<'_>, fscid: FsId, change: impl FnOnce(&mut Filesystem)) {
    let mut fs = ctx.batch.edit_fs();
    fs.map.modify_fs(fscid, change);
    commit(ctx, fs);
}

fn pool_named(ctx: &WriteCtx<'_>, name: &str) -> Result<PoolId, Reply> {
    let missing = || Reply::error(Errno::ENOENT, format!("pool '{name}' does not exist"));
    ctx.osdmap().pool_by_name(name).ok_or_else(missing)
}

/// What a pool is wanted for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Use {
    Metadata,
    DefaultData,
    MoreData,
}

/// Whether a file system may use a pool. Source: FileSystemCommandHandler::_check_pool.
fn check_pool(ctx: &WriteCtx<'_>, id: PoolId, used: Use, force: bool) -> Result<(), Reply> {
    let map = ctx.osdmap();
    let Some(pool) = map.pool(id) else {
        return Err(Reply::error(Errno::ENOENT, format!("pool id '{}' does not exist", id.0)));
    };
    let named = format!("pool '{}' (id '{}')", map.pool_name(id).unwrap_or_default(), id.0);
    let refuse = |text: String| Err(Reply::error(Errno::EINVAL, text));
    if pool.is_erasure() {
        let is_erasure = format!("{named} is an erasure-coded pool");
        return match used {
            Use::Metadata => refuse(format!(
                "{is_erasure}.  Use of erasure-coded pools for CephFS metadata is not permitted"
            )),
            Use::DefaultData if !force => refuse(format!(
                "{is_erasure}. Use of an EC pool for the default data pool is discouraged; see the online CephFS \
                 documentation for more information. Use --force to override."
            )),
            _ if !pool.has_flag(maps::pool_flags::EC_OVERWRITES) => {
                refuse(format!("{is_erasure}, with no overwrite support"))
            }
            _ => Ok(()),
        };
    }
    if pool.is_tier() {
        return refuse(format!(" {named} is already in use as a cache tier."));
    }
    let apps = &pool.application_metadata;
    if !force && !apps.is_empty() && !apps.contains_key("cephfs") {
        return refuse(format!(" {named} has a non-CephFS application enabled."));
    }
    Ok(())
}

/// Notes at a pool what a file system uses it for: clients' capabilities name it by that.
fn tag_pool(ctx: &mut WriteCtx<'_>, id: PoolId, what: &str, fs: &str) {
    edit_pool(ctx.batch, id, |p| {
        let tags = p.application_metadata.entry("cephfs".to_owned()).or_default();
        tags.insert(what.to_owned(), fs.to_owned());
    });
}

fn new(ctx: &mut WriteCtx<'_>) -> Reply {
    let checked = check_new(ctx);
    let (metadata, data, wanted) = match checked {
        Ok(Some(checked)) => checked,
        Ok(None) => {
            let name = ctx.args.text_or_empty("fs_name");
            return Reply::done(format!("filesystem '{name}' already exists"));
        }
        Err(refusal) => return refusal,
    };
    let name = ctx.args.text_or_empty("fs_name").to_owned();
    tag_pool(ctx, data, "data", &name);
    tag_pool(ctx, metadata, "metadata", &name);
    edit_pool(ctx.batch, metadata, |p| {
        p.opts.set("recovery_priority", OptValue::Int(5));
        p.opts.set("pg_num_min", OptValue::Int(16));
        p.opts.set("pg_autoscale_bias", OptValue::Double(4.0));
    });
    let recover = ctx.args.flag("recover");
    let mut fs = ctx.batch.edit_fs();
    let fscid = fs.map.create(&name, metadata.0, data.0, ctx.now.wall, wanted);
    // Of 16.2's file systems each has the features of data in inodes, used or not.
    fs.map.modify_fs(fscid, |fs| {
        drop(fs.map.compat.incompat.0.insert(INLINE_DATA.0, INLINE_DATA.1.to_owned()))
    });
    let text = format!("new fs with metadata pool {} and data pool {}", metadata.0, data.0);
    if recover {
        // Its metadata is there: nobody begins it anew, and nobody takes it before it is let go.
        fs.map.modify_fs(fscid, |fs| {
            fs.map.r#in.insert(0);
            fs.map.failed.insert(0);
            fs.map.flags |= mds_flags::NOT_JOINABLE;
        });
    } else {
        fs = begin(ctx.now, ctx.settings, fs, ctx.batch, fscid);
    }
    commit(ctx, fs);
    Reply::done(text)
}

/// The pools of a new file system, and its number if one is asked for; nothing when it is there already.
fn check_new(ctx: &WriteCtx<'_>) -> Result<Option<(PoolId, PoolId, Option<FsId>)>, Reply> {
    let refuse = |errno, text: String| Err(Reply::error(errno, text));
    let metadata_name = ctx.args.text_or_empty("metadata");
    let metadata = pool_named(ctx, metadata_name)?;
    let data = pool_named(ctx, ctx.args.text_or_empty("data"))?;
    let name = ctx.args.text_or_empty("fs_name");
    if name.is_empty() {
        return refuse(Errno::EINVAL, "Filesystem name may not be empty".to_owned());
    }
    if name.len() > NAME_BYTES {
        return refuse(Errno::ENAMETOOLONG, Errno::ENAMETOOLONG.to_string());
    }
    let map = &ctx.state().fs.map;
    if let Some(known) = map.by_name(name) {
        let same = known.map.data_pools.first() == Some(&data.0) && known.map.metadata_pool == metadata.0;
        return match same {
            true => Ok(None),
            false => refuse(Errno::EINVAL, format!("filesystem already exists with name '{name}'")),
        };
    }
    let force = ctx.args.flag("force");
    let objects = ctx.state().digest.pools.get(&metadata).map_or(0, |usage| usage.stat.stats.sum.num_objects);
    if !force && objects > 0 {
        let text =
            format!("pool '{metadata_name}' already contains some objects. Use an empty pool instead.");
        return refuse(Errno::EINVAL, text);
    }
    if !map.filesystems.is_empty() && !map.enable_multiple {
        let text = "Creation of multiple filesystems is disabled.  To enable this experimental feature, use 'ceph fs \
                    flag set enable_multiple true'";
        return refuse(Errno::EINVAL, text.to_owned());
    }
    if map.filesystems.len() >= FILE_SYSTEMS_LIMIT {
        return refuse(
            Errno::EINVAL,
            format!("more than {FILE_SYSTEMS_LIMIT} file systems are not supported"),
        );
    }
    let overlay = ctx.args.flag("allow_dangerous_metadata_overlay");
    // Each in either role: what is another one's data or metadata stays its own.
    let taken = |fs: &Filesystem| [data.0, metadata.0].iter().any(|pool| fs.map.uses_pool(*pool));
    if !overlay && map.filesystems.values().any(taken) {
        let text = format!(
            "Filesystem '{name}' is already using one of the specified RADOS pools. This should ONLY be done in \
             emergencies and after careful reading of the documentation. Pass --allow-dangerous-metadata-overlay to \
             permit this."
        );
        return refuse(Errno::EEXIST, text);
    }
    let wanted = ctx.args.int("fscid").and_then(|id| FsId::try_from(id).ok());
    if let Some(id) = wanted {
        if !force {
            let text = "Pass --force to create a file system with a specific ID";
            return refuse(Errno::EINVAL, text.to_owned());
        }
        if map.filesystems.contains_key(&id) {
            return refuse(Errno::EINVAL, format!("filesystem already exists with id '{id}'"));
        }
    }
    check_pool(ctx, data, Use::DefaultData, force)?;
    check_pool(ctx, metadata, Use::Metadata, force)?;
    Ok(Some((metadata, data, wanted)))
}

fn fail(ctx: &mut WriteCtx<'_>) -> Reply {
    let of = match named(ctx) {
        Ok(of) => of,
        Err(refusal) => return refusal,
    };
    let mut fs = ctx.batch.edit_fs();
    fs.map.modify_fs(of.fscid, |fs| fs.map.flags |= mds_flags::NOT_JOINABLE);
    let gids: Vec<MdsGid> = of.map.info.keys().copied().collect();
    for gid in gids {
        fail_daemon(ctx.now, ctx.settings, &mut fs, ctx.batch, gid);
    }
    commit(ctx, fs);
    let name = &of.map.fs_name;
    Reply::done(format!(
        "{name} marked not joinable; MDS cannot join the cluster. All MDS ranks marked failed."
    ))
}

fn rm(ctx: &mut WriteCtx<'_>) -> Reply {
    let name = ctx.args.text_or_empty("fs_name").to_owned();
    if ctx.state().fs.map.by_name(&name).is_none() {
        return Reply::done(format!("filesystem '{name}' does not exist"));
    }
    let of = match named(ctx) {
        Ok(of) => of,
        Err(refusal) => return refusal,
    };
    if !of.map.up.is_empty() {
        let text = "all MDS daemons must be inactive/failed before removing filesystem. See `ceph fs fail`.";
        return Reply::error(Errno::EINVAL, text);
    }
    if !ctx.args.flag("yes_i_really_mean_it") {
        let text = "this is a DESTRUCTIVE operation and will make data in your filesystem permanently inaccessible.  \
                    Add --yes-i-really-mean-it if you are sure you wish to continue.";
        return Reply::error(Errno::EPERM, text);
    }
    let mut fs = ctx.batch.edit_fs();
    let followers: Vec<MdsGid> = of.map.info.keys().copied().collect();
    for gid in followers {
        fail_daemon(ctx.now, ctx.settings, &mut fs, ctx.batch, gid);
    }
    fs.map.erase_fs(of.fscid);
    commit(ctx, fs);
    Reply::ok()
}

fn reset(ctx: &mut WriteCtx<'_>) -> Reply {
    let of = match named(ctx) {
        Ok(of) => of,
        Err(refusal) => return refusal,
    };
    if !of.map.up.is_empty() {
        let text = "all MDS daemons must be inactive before resetting filesystem: set the cluster_down flag and use \
                    `ceph mds fail` to make this so";
        return Reply::error(Errno::EINVAL, text);
    }
    if !ctx.args.flag("yes_i_really_mean_it") {
        let text = "this is a potentially destructive operation, only for use by experts in disaster recovery.  Add \
                    --yes-i-really-mean-it if you are sure you wish to continue.";
        return Reply::error(Errno::EPERM, text);
    }
    let mut fs = ctx.batch.edit_fs();
    for gid in of.map.info.keys() {
        fail_daemon(ctx.now, ctx.settings, &mut fs, ctx.batch, *gid);
    }
    fs.map.reset_fs(of.fscid, ctx.now.wall);
    fs.map.modify_fs(of.fscid, |fs| {
        drop(fs.map.compat.incompat.0.insert(INLINE_DATA.0, INLINE_DATA.1.to_owned()))
    });
    commit(ctx, fs);
    Reply::ok()
}

fn flag_set(ctx: &mut WriteCtx<'_>) -> Reply {
    let text = ctx.args.text_or_empty("val");
    let value = match truth(text) {
        Ok(value) => value,
        Err(refusal) => {
            return Reply::error(Errno::EINVAL, format!("{}Invalid boolean value '{text}'", refusal.outs));
        }
    };
    let mut fs = ctx.batch.edit_fs();
    fs.map.enable_multiple = value;
    fs.map.ever_enabled_multiple |= value;
    commit(ctx, fs);
    Reply::ok()
}

/// A pool by its name, or by its number.
fn pool_or_id(ctx: &WriteCtx<'_>) -> Result<i64, Reply> {
    let name = ctx.args.text_or_empty("pool");
    let by_name = ctx.osdmap().pool_by_name(name).map(|id| id.0);
    let missing = || Reply::error(Errno::ENOENT, format!("pool '{name}' does not exist"));
    by_name.or_else(|| name.parse().ok()).ok_or_else(missing)
}

fn add_data_pool(ctx: &mut WriteCtx<'_>) -> Reply {
    let checked = named(ctx).and_then(|fs| {
        let id = pool_or_id(ctx)?;
        check_pool(ctx, PoolId(id), Use::MoreData, false)?;
        Ok((fs, id))
    });
    let (of, id) = match checked {
        Ok(checked) => checked,
        Err(refusal) => return refusal,
    };
    let name = of.map.fs_name.clone();
    if of.map.data_pools.contains(&id) {
        return Reply::done(format!("data pool {id} is already on fs {name}"));
    }
    let others = ctx.state().fs.map.filesystems.values().filter(|fs| fs.fscid != of.fscid);
    if let Some(other) = others.into_iter().find(|fs| fs.map.uses_pool(id)) {
        // Whoever may use this file system's data could write that one's.
        let text = format!("pool {id} is in use by file system '{}'", other.map.fs_name);
        return Reply::error(Errno::EINVAL, text);
    }
    if of.map.data_pools.len() >= DATA_POOLS_LIMIT {
        return Reply::error(Errno::EINVAL, format!("fs {name} has {DATA_POOLS_LIMIT} data pools"));
    }
    tag_pool(ctx, PoolId(id), "data", &name);
    modify(ctx, of.fscid, |fs| fs.map.data_pools.push(id));
    Reply::done(format!("added data pool {id} to fsmap"))
}

fn rm_data_pool(ctx: &mut WriteCtx<'_>) -> Reply {
    let checked = named(ctx).and_then(|fs| Ok((fs, pool_or_id(ctx)?)));
    let (of, id) = match checked {
        Ok(checked) => checked,
        Err(refusal) => return refusal,
    };
    if id < 0 {
        return Reply::error(Errno::EINVAL, format!("invalid pool id '{id}'"));
    }
    if of.map.data_pools.first() == Some(&id) {
        return Reply::error(Errno::EINVAL, "cannot remove default data pool");
    }
    if !of.map.data_pools.contains(&id) {
        return Reply::ok();
    }
    modify(ctx, of.fscid, |fs| fs.map.data_pools.retain(|p| *p != id));
    Reply::done(format!("removed data pool {id} from fsmap"))
}

fn set_default(ctx: &mut WriteCtx<'_>) -> Reply {
    let of = match named(ctx) {
        Ok(of) => of,
        Err(refusal) => return refusal,
    };
    let mut fs = ctx.batch.edit_fs();
    fs.map.legacy_client_fscid = of.fscid;
    commit(ctx, fs);
    Reply::ok()
}

fn mirror(ctx: &mut WriteCtx<'_>, on: bool) -> Reply {
    let of = match named(ctx) {
        Ok(of) => of,
        Err(refusal) => return refusal,
    };
    if of.mirror.mirrored != on {
        modify(ctx, of.fscid, |fs| {
            fs.mirror.mirrored = on;
            fs.mirror.peers.clear();
        });
    }
    Reply::ok()
}

/// The file system that a command names, when it is mirrored.
fn mirrored(ctx: &WriteCtx<'_>) -> Result<Filesystem, Reply> {
    let of = named(ctx)?;
    let off = || format!("Mirroring not enabled for filesystem '{}'", of.map.fs_name);
    if of.mirror.mirrored { Ok(of) } else { Err(Reply::error(Errno::EINVAL, off())) }
}

fn peer_add(ctx: &mut WriteCtx<'_>) -> Reply {
    let of = match mirrored(ctx) {
        Ok(of) => of,
        Err(refusal) => return refusal,
    };
    let text = |name: &str| ctx.args.text_or_empty(name).to_owned();
    let (uuid, fs_name) = (text("uuid"), text("remote_fs_name"));
    let spec = text("remote_cluster_spec");
    let Some((client_name, cluster_name)) = spec.split_once('@') else {
        let text = "invalid remote cluster spec -- should be <client>@<cluster>";
        return Reply::error(Errno::EINVAL, text);
    };
    let (client_name, cluster_name) = (client_name.to_owned(), cluster_name.to_owned());
    let peer = MirrorPeer { client_name, cluster_name, fs_name };
    if of.mirror.peers.values().any(|known| *known == peer) {
        return Reply::done("peer already exists");
    }
    let long = uuid.len() + spec.len() + peer.fs_name.len() > 4 * NAME_BYTES;
    if long || of.mirror.peers.len() >= PEERS_LIMIT {
        return Reply::error(Errno::EINVAL, format!("no room for more than {PEERS_LIMIT} peers"));
    }
    modify(ctx, of.fscid, |fs| drop(fs.mirror.peers.insert(uuid, peer)));
    Reply::ok()
}

fn peer_remove(ctx: &mut WriteCtx<'_>) -> Reply {
    let of = match mirrored(ctx) {
        Ok(of) => of,
        Err(refusal) => return refusal,
    };
    let uuid = ctx.args.text_or_empty("uuid").to_owned();
    if !of.mirror.peers.contains_key(&uuid) {
        return Reply::done(format!("cannot find peer with uuid: {uuid}"));
    }
    modify(ctx, of.fscid, |fs| drop(fs.mirror.peers.remove(&uuid)));
    Reply::ok()
}
