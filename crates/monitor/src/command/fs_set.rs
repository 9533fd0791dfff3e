//! What a file system is set to: `fs set`, the features that its clients must have, and what its servers must know.
//!
//! Source: SetHandler, RequiredClientFeaturesHandler in src/mon/FSCommands.cc. `fs compat` is 16.2.15's.

use maps::{CLIENT_FEATURES, Filesystem, FsId, MdsGid, Release, mds_flags};
use types::{Errno, FeatureBits, FeatureSet, INLINE_DATA};

use crate::command::fs_edit::{commit, modify, named, truth};
use crate::command::{Access, Command, Reply, WriteCtx, flags, write};
use crate::service::mds::fail;
use crate::state::FsState;

const FS: Access = Access { module: "fs", perm: "rw" };
const MDS: Access = Access { module: "mds", perm: "rw" };

pub(super) const COMMANDS: &[Command] = &[
    write(
        MDS,
        "fs set name=fs_name,type=CephString \
         name=var,type=CephChoices,strings=max_mds|max_file_size|allow_new_snaps|inline_data|cluster_down|\
         allow_dirfrags|balancer|standby_count_wanted|session_timeout|session_autoclose|allow_standby_replay|down|\
         joinable|min_compat_client name=val,type=CephString name=yes_i_really_mean_it,type=CephBool,req=false \
         name=yes_i_really_really_mean_it,type=CephBool,req=false name=confirm,type=CephString,req=false,untold=true",
        "set fs parameter <var> to <val>",
        flags::NONE,
        set,
    ),
    write(
        MDS,
        "fs required_client_features name=fs_name,type=CephString name=subop,type=CephChoices,strings=add|rm \
         name=val,type=CephString",
        "add/remove required features of clients",
        flags::NONE,
        required_client_features,
    ),
    write(
        FS,
        "fs compat name=fs_name,type=CephString \
         name=subop,type=CephChoices,strings=rm_compat|rm_incompat|add_compat|add_incompat \
         name=feature,type=CephInt name=feature_str,type=CephString,req=false",
        "manipulate compat settings",
        flags::NONE,
        compat,
    ),
];

/// Source: MAX_MDS in src/mds/mdstypes.h, CEPH_MIN_STRIPE_UNIT.
const MAX_MDS: i64 = 0x100;
const MIN_STRIPE_UNIT: i64 = 65_536;
const TEXT_BYTES: usize = 256;

/// What a setting does to a file system, and the words for it.
type Change = (Box<dyn FnOnce(&mut Filesystem)>, String);

fn change(text: impl Into<String>, f: impl FnOnce(&mut Filesystem) + 'static) -> Result<Change, Reply> {
    Ok((Box::new(f), text.into()))
}

fn refuse<T>(errno: Errno, text: impl Into<String>) -> Result<T, Reply> {
    Err(Reply::error(errno, text))
}

fn set(ctx: &mut WriteCtx<'_>) -> Reply {
    let of = match named(ctx) {
        Ok(of) => of,
        Err(refusal) => return refusal,
    };
    let (var, val) = (ctx.args.text_or_empty("var").to_owned(), ctx.args.text_or_empty("val").to_owned());
    let wanted = match var.as_str() {
        "max_mds" => max_mds(&of, &val),
        "inline_data" => inline_data(ctx, &val),
        "balancer" => balancer(val),
        "max_file_size" => number(&var, &val).and_then(|n| match u64::try_from(n) {
            Ok(size) if n >= MIN_STRIPE_UNIT => change("", move |fs| fs.map.max_file_size = size),
            _ => refuse(Errno::ERANGE, format!("{var} must at least {MIN_STRIPE_UNIT}")),
        }),
        "allow_new_snaps" => truth(&val).and_then(|on| match on {
            true => change("enabled new snapshots", |fs| fs.map.allow(mds_flags::ALLOW_SNAPS)),
            false => change("disabled new snapshots", |fs| fs.map.flags &= !mds_flags::ALLOW_SNAPS),
        }),
        "allow_multimds" => change(
            "Multiple MDS is always enabled. Use the max_mds parameter to control the number of active MDSs allowed. \
             This command is DEPRECATED and will be REMOVED from future releases.",
            |_| (),
        ),
        "allow_multimds_snaps" => multimds_snaps(ctx, &val),
        "allow_dirfrags" => change(
            "Directory fragmentation is now permanently enabled. This command is DEPRECATED and will be REMOVED from \
             future releases.",
            |_| (),
        ),
        "down" => down(&of, &val),
        "cluster_down" | "joinable" => joinable(&of, &var, &val),
        "standby_count_wanted" => number(&var, &val).and_then(|n| match i32::try_from(n) {
            Ok(count) if count >= 0 => change("", move |fs| fs.map.standby_count_wanted = count),
            _ => refuse(Errno::ERANGE, format!("{var} must be non-negative")),
        }),
        "session_timeout" => seconds(&var, &val, |fs, s| fs.map.session_timeout = s),
        "session_autoclose" => seconds(&var, &val, |fs, s| fs.map.session_autoclose = s),
        "allow_standby_replay" => truth(&val).and_then(|on| match on {
            true => change("", |fs| fs.map.allow(mds_flags::ALLOW_STANDBY_REPLAY)),
            false => change("", |fs| fs.map.flags &= !mds_flags::ALLOW_STANDBY_REPLAY),
        }),
        "min_compat_client" => min_compat_client(&val),
        _ => refuse(Errno::EINVAL, format!("unknown variable {var}")),
    };
    match wanted {
        Ok((f, text)) => {
            let mut fs = ctx.batch.edit_fs();
            fs.map.modify_fs(of.fscid, f);
            end_followers(ctx, &mut fs, of.fscid);
            commit(ctx, fs);
            Reply::done(text)
        }
        Err(refusal) => refusal,
    }
}

/// Where nobody may follow a rank any more, those who do start anew as standbys.
fn end_followers(ctx: &mut WriteCtx<'_>, fs: &mut FsState, fscid: FsId) {
    let Some(map) = fs.map.filesystems.get(&fscid).map(|of| &of.map) else { return };
    if map.has_flag(mds_flags::ALLOW_STANDBY_REPLAY) {
        return;
    }
    let followers: Vec<MdsGid> = map.info.values().filter(|i| i.follows()).map(|i| i.gid).collect();
    for gid in followers {
        fail(ctx.now, ctx.settings, fs, ctx.batch, gid);
    }
}

fn integer(val: &str) -> Result<i64, String> {
    val.parse().map_err(|_| format!("Expected option value to be integer, got '{val}'"))
}

fn number(var: &str, val: &str) -> Result<i64, Reply> {
    integer(val).map_err(|_| Reply::error(Errno::EINVAL, format!("{var} requires an integer value")))
}

fn seconds(var: &str, val: &str, f: fn(&mut Filesystem, u32)) -> Result<Change, Reply> {
    let n = number(var, val)?;
    match u32::try_from(n) {
        Ok(s) if s >= 30 => change("", move |fs| f(fs, s)),
        _ => refuse(Errno::ERANGE, format!("{var} must be at least 30s")),
    }
}

fn max_mds(of: &Filesystem, val: &str) -> Result<Change, Reply> {
    let n = match integer(val) {
        Ok(n) => n,
        Err(text) => return refuse(Errno::EINVAL, text),
    };
    if n <= 0 {
        return refuse(Errno::EINVAL, "You must specify at least one MDS");
    }
    // Servers before Mimic made snapshots that several servers do not understand.
    let old_snaps =
        of.map.was_ever_allowed(mds_flags::ALLOW_SNAPS) && !of.map.has_flag(mds_flags::ALLOW_MULTIMDS_SNAPS);
    if n > 1 && n > of.map.max_mds.into() && old_snaps {
        let text =
            "multi-active MDS is not allowed while there are snapshots possibly created by pre-mimic MDS";
        return refuse(Errno::EINVAL, text);
    }
    match i32::try_from(n) {
        Ok(count) if n <= MAX_MDS => change("", move |fs| {
            fs.map.flags &= !mds_flags::NOT_JOINABLE;
            fs.map.max_mds = count;
        }),
        _ => refuse(Errno::EINVAL, format!("may not have more than {MAX_MDS} MDS ranks")),
    }
}

fn inline_data(ctx: &WriteCtx<'_>, val: &str) -> Result<Change, Reply> {
    if !truth(val)? {
        return change("inline data disabled", |fs| fs.map.inline_data = false);
    }
    if !ctx.args.flag("yes_i_really_really_mean_it") {
        let text = "Inline data support is deprecated and will be removed in a future release. Add \
                    --yes-i-really-really-mean-it if you are certain you want this enabled.";
        return refuse(Errno::EPERM, text);
    }
    change("inline data enabled", |fs| {
        fs.map.inline_data = true;
        fs.map.compat.incompat.0.insert(INLINE_DATA.0, INLINE_DATA.1.to_owned());
    })
}

/// What a metadata server asks for when the last snapshot of a server before Mimic is gone.
///
/// Source: MDSRank::set_mdsmap_multimds_snaps_allowed.
fn multimds_snaps(ctx: &WriteCtx<'_>, val: &str) -> Result<Change, Reply> {
    let on = truth(val)?;
    if ctx.args.text("confirm") != Some("--yes-i-am-really-a-mds") {
        return refuse(Errno::EPERM, "Warning! This command is for MDS only. Do not run it manually");
    }
    match on {
        true => change("enabled multimds with snapshot", |fs| fs.map.allow(mds_flags::ALLOW_MULTIMDS_SNAPS)),
        false => change("disabled multimds with snapshot", |fs| {
            fs.map.flags &= !mds_flags::ALLOW_MULTIMDS_SNAPS;
        }),
    }
}

fn balancer(val: String) -> Result<Change, Reply> {
    if val.len() > TEXT_BYTES {
        return refuse(Errno::ENAMETOOLONG, Errno::ENAMETOOLONG.to_string());
    }
    let text = match val.is_empty() {
        true => "unsetting the metadata load balancer".to_owned(),
        false => format!("setting the metadata load balancer to {val}"),
    };
    change(text, move |fs| fs.map.balancer = val)
}

fn down(of: &Filesystem, val: &str) -> Result<Change, Reply> {
    let name = &of.map.fs_name;
    if truth(val)? {
        return change(format!("{name} marked down. "), |fs| {
            if fs.map.max_mds > 0 {
                fs.map.old_max_mds = fs.map.max_mds;
                fs.map.max_mds = 0;
            }
        });
    }
    let max = of.map.old_max_mds.max(1);
    change(format!("{name} marked up, max_mds = {max}"), move |fs| fs.map.max_mds = max)
}

fn joinable(of: &Filesystem, var: &str, val: &str) -> Result<Change, Reply> {
    let on = truth(val)? != (var == "cluster_down");
    let mut text = of.map.fs_name.clone();
    text += match on {
        true => " marked joinable; MDS may join as newly active.",
        false => " marked not joinable; MDS cannot join as newly active.",
    };
    if var == "cluster_down" {
        text += " WARNING: cluster_down flag is deprecated and will be removed in a future version. Please use \
                 \"joinable\".";
    }
    change(text, move |fs| match on {
        true => fs.map.flags &= !mds_flags::NOT_JOINABLE,
        false => fs.map.flags |= mds_flags::NOT_JOINABLE,
    })
}

/// Source: MDSMap::set_min_compat_client.
fn min_compat_client(val: &str) -> Result<Change, Reply> {
    let Some(release) = Release::from_name(val) else {
        return refuse(Errno::EINVAL, format!("version {val} is not recognized"));
    };
    let steps = [
        (Release::OCTOPUS, "deleg_ino"),
        (Release::NAUTILUS, "multi_reconnect"),
        (Release::MIMIC, "mimic"),
        (Release::LUMINOUS, "luminous"),
        (Release(11), "kraken"),
        (Release::JEWEL, "jewel"),
    ];
    let step = steps.into_iter().find(|(since, _)| release >= *since);
    let bit = step.and_then(|(_, name)| CLIENT_FEATURES.iter().position(|f| *f == name));
    let text = "WARNING: setting min_compat_client is deprecated and may not do what you want.\nThe oldest release to set is \
                octopus.\nPlease migrate to `ceph fs required_client_features ...`.";
    change(text, move |fs| {
        let mut bits = FeatureBits::default();
        bit.into_iter().for_each(|bit| bits.insert(bit));
        fs.map.required_client_features = bits;
    })
}

fn required_client_features(ctx: &mut WriteCtx<'_>) -> Reply {
    let of = match named(ctx) {
        Ok(of) => of,
        Err(refusal) => return refusal,
    };
    let val = ctx.args.text_or_empty("val");
    let by_name = CLIENT_FEATURES.iter().position(|name| *name == val && val != "reserved");
    let bit = match (by_name, val.parse::<i64>()) {
        (Some(bit), _) => bit,
        (None, Err(_)) => return Reply::error(Errno::EINVAL, format!("Invalid feature name: {val}")),
        (None, Ok(n)) => match usize::try_from(n).ok().filter(|bit| *bit < CLIENT_FEATURES.len()) {
            Some(bit) => bit,
            None => return Reply::error(Errno::EINVAL, format!("Invalid feature id: {n}")),
        },
    };
    let name = CLIENT_FEATURES.get(bit).copied().unwrap_or("unknown");
    let (add, is_set) =
        (ctx.args.text("subop") == Some("add"), of.map.required_client_features.contains(bit));
    let text = match (add, is_set) {
        (true, false) => format!("added feature '{name}' to required_client_features"),
        (true, true) => format!("feature '{name}' is already set"),
        (false, true) => format!("removed feature '{name}' from required_client_features"),
        (false, false) => format!("feature '{name}' is already unset"),
    };
    modify(ctx, of.fscid, |fs| match add {
        true => fs.map.required_client_features.insert(bit),
        false => fs.map.required_client_features.remove(bit),
    });
    Reply::done(text)
}

fn compat(ctx: &mut WriteCtx<'_>) -> Reply {
    let of = match named(ctx) {
        Ok(of) => of,
        Err(refusal) => return refusal,
    };
    if !of.map.up.is_empty() {
        let text = "file system must be failed or down; use `ceph fs fail` to bring down";
        return Reply::error(Errno::EBUSY, text);
    }
    let subop = ctx.args.text_or_empty("subop").to_owned();
    let number = ctx.args.int("feature").unwrap_or(0);
    let is_removal = subop.starts_with("rm_");
    // A feature is a bit of a word: adding another one ends Ceph's monitors.
    let last = if is_removal { i64::MAX } else { 63 };
    let Some(feature) = u64::try_from(number).ok().filter(|_| (1..=last).contains(&number)) else {
        return Reply::error(Errno::EINVAL, format!("invalid feature value: {number}"));
    };
    let incompat = subop.ends_with("_incompat");
    let kind = if incompat { "incompat" } else { "compat" };
    let known = if incompat { &of.map.compat.incompat } else { &of.map.compat.compat };
    let known = known.0.contains_key(&feature);
    if is_removal {
        if !known {
            return Reply::done(format!("already removed {kind} feature {feature}"));
        }
        modify(ctx, of.fscid, |fs| drop(set_of(fs, incompat).0.remove(&feature)));
        return Reply::done(format!("removed {kind} feature {feature}"));
    }
    let Some(name) = ctx.args.text("feature_str").map(str::to_owned) else {
        return Reply::error(Errno::EINVAL, "adding a feature requires a feature string");
    };
    if known {
        return Reply::done("feature already exists");
    }
    if name.len() > TEXT_BYTES {
        return Reply::error(Errno::ENAMETOOLONG, Errno::ENAMETOOLONG.to_string());
    }
    let text = format!("added {kind} feature F({feature}, \"{name}\")");
    modify(ctx, of.fscid, |fs| drop(set_of(fs, incompat).0.insert(feature, name)));
    Reply::done(text)
}

fn set_of(fs: &mut Filesystem, incompat: bool) -> &mut FeatureSet {
    if incompat { &mut fs.map.compat.incompat } else { &mut fs.map.compat.compat }
}
