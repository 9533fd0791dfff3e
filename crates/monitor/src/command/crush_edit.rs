//! `osd crush ...`: where items stand and what they weigh; and the CRUSH map as a whole.
//!
//! Source: OSDMonitor::prepare_command_impl.

use codec::Decode;
use crush::{CrushMap, EditError, Location, parse_location, weight_from_f32};
use types::Errno;

use crate::command::{Command, Handler, Reply, WriteCtx, flags};
use crate::crush_check::{Rules, check};
use crate::edit::set_crush;
use crate::text::six_digits;

pub(super) const COMMANDS: &[Command] = &[
    write(
        "osd setcrushmap name=prior_version,type=CephInt,req=false",
        "replace the CRUSH map by the one given with -i",
        setcrushmap,
    ),
    write(
        "osd crush add-bucket name=name,type=CephString,goodchars=[A-Za-z0-9-_.] name=type,type=CephString \
         name=args,type=CephString,n=N,goodchars=[A-Za-z0-9-_.=],req=false",
        "make a bucket, at a place or at none",
        add_bucket,
    ),
    write(
        "osd crush rename-bucket name=srcname,type=CephString,goodchars=[A-Za-z0-9-_.] \
         name=dstname,type=CephString,goodchars=[A-Za-z0-9-_.]",
        "give a bucket another name",
        rename_bucket,
    ),
    write(
        "osd crush set name=id,type=CephOsdName name=weight,type=CephFloat,range=0.0 \
         name=args,type=CephString,n=N,goodchars=[A-Za-z0-9-_.=]",
        "place and weight of an OSD that is in the CRUSH map",
        |ctx| add_or_set(ctx, "set"),
    ),
    // Without an OSD; the one above comes first, because this one fits everything.
    write(
        "osd crush set name=prior_version,type=CephInt,req=false",
        "replace the CRUSH map by the one given with -i",
        setcrushmap,
    ),
    write(
        "osd crush add name=id,type=CephOsdName name=weight,type=CephFloat,range=0.0 \
         name=args,type=CephString,n=N,goodchars=[A-Za-z0-9-_.=]",
        "put an OSD into the CRUSH map",
        |ctx| add_or_set(ctx, "add"),
    ),
    write(
        "osd crush create-or-move name=id,type=CephOsdName name=weight,type=CephFloat,range=0.0 \
         name=args,type=CephString,n=N,goodchars=[A-Za-z0-9-_.=]",
        "put an OSD into the CRUSH map, or move it and keep its weight",
        create_or_move,
    ),
    write(
        "osd crush move name=name,type=CephString,goodchars=[A-Za-z0-9-_.] \
         name=args,type=CephString,n=N,goodchars=[A-Za-z0-9-_.=]",
        "move a bucket or an OSD",
        move_item,
    ),
    write(
        "osd crush swap-bucket name=source,type=CephString,goodchars=[A-Za-z0-9-_.] \
         name=dest,type=CephString,goodchars=[A-Za-z0-9-_.] name=yes_i_really_mean_it,type=CephBool,req=false",
        "exchange what two buckets hold",
        swap_bucket,
    ),
    write(
        "osd crush link name=name,type=CephString name=args,type=CephString,n=N,goodchars=[A-Za-z0-9-_.=]",
        "put a bucket into one more place",
        link,
    ),
    write(
        "osd crush rm name=name,type=CephString,goodchars=[A-Za-z0-9-_.] \
         name=ancestor,type=CephString,req=false,goodchars=[A-Za-z0-9-_.]",
        "remove an item from the CRUSH map, or from below one bucket",
        |ctx| remove(ctx, false),
    ),
    Command {
        flags: flags::DEPRECATED,
        ..write(
            "osd crush remove name=name,type=CephString,goodchars=[A-Za-z0-9-_.] \
             name=ancestor,type=CephString,req=false,goodchars=[A-Za-z0-9-_.]",
            "old name of osd crush rm",
            |ctx| remove(ctx, false),
        )
    },
    write(
        "osd crush unlink name=name,type=CephString,goodchars=[A-Za-z0-9-_.] \
         name=ancestor,type=CephString,req=false,goodchars=[A-Za-z0-9-_.]",
        "take an item out of where it stands, or from below one bucket",
        |ctx| remove(ctx, true),
    ),
    write("osd crush reweight-all", "sum the weights up again", reweight_all),
    write(
        "osd crush reweight name=name,type=CephString,goodchars=[A-Za-z0-9-_.] name=weight,type=CephFloat,range=0.0",
        "weight of an OSD in the CRUSH map",
        reweight,
    ),
    write(
        "osd crush reweight-subtree name=name,type=CephString,goodchars=[A-Za-z0-9-_.] \
         name=weight,type=CephFloat,range=0.0",
        "weight of every OSD below a bucket",
        reweight_subtree,
    ),
];

pub(super) const fn write(
    sig: &'static str,
    help: &'static str,
    handler: fn(&mut WriteCtx<'_>) -> Reply,
) -> Command {
    Command { sig, help, module: "osd", perm: "rw", flags: flags::NONE, handler: Handler::Write(handler) }
}

/// A refused edit as an operator is told of it.
pub(super) fn refused(e: &EditError) -> Reply {
    if let EditError::NotEmpty(_) = e {
        return Reply::from(Errno::ENOTEMPTY);
    }
    Reply::error(Errno(e.errno()), e.to_string())
}

/// Edits a copy of the CRUSH map; it is taken over when the edit succeeds and leaves a map that the pools can use.
pub(super) fn edit(
    ctx: &mut WriteCtx<'_>,
    edit: impl FnOnce(&mut CrushMap) -> Result<String, EditError>,
) -> Reply {
    let mut crush = ctx.osdmap().crush.as_ref().clone();
    match edit(&mut crush) {
        Ok(text) => {
            if crush == *ctx.osdmap().crush {
                return Reply::done(text);
            }
            if let Err((errno, why)) = check(ctx.osdmap(), &crush, Rules::InUse) {
                return Reply::error(errno, why);
            }
            if !set_crush(ctx.osdmap_mut(), &crush) {
                return Reply::error(Errno::EINVAL, "the edited map cannot be encoded");
            }
            Reply::done(text)
        }
        Err(e) => refused(&e),
    }
}

/// The location words of a command.
fn location(ctx: &WriteCtx<'_>) -> Result<Location, Reply> {
    let words = ctx.args.list("args");
    parse_location(words.iter().map(String::as_str)).map_err(|_| Reply::from(Errno::EINVAL))
}

/// `{host=a,root=default}`, as Ceph prints maps.
fn location_text(location: &Location) -> String {
    let pairs: Vec<String> = location.iter().map(|(k, v)| format!("{k}={v}")).collect();
    format!("{{{}}}", pairs.join(","))
}

/// How many devices a map may have that was made elsewhere, when there are fewer OSDs: as many as `mon_max_osd` allows.
const HIGHEST_DEVICES: i32 = 10_000;

fn setcrushmap(ctx: &mut WriteCtx<'_>) -> Reply {
    let bad = |text: String| Reply::error(Errno::EINVAL, text);
    let crush = match CrushMap::from_bytes(ctx.input.clone()) {
        Ok(crush) => crush,
        Err(e) => return bad(format!("Failed to parse crushmap: {e}")),
    };
    let version = i64::from(ctx.osdmap().crush_version);
    if let Some(prior) = ctx.args.int("prior_version") {
        // The same map again is a repetition of what succeeded.
        if prior == version - 1 && crush == *ctx.osdmap().crush {
            return Reply::done(version.to_string());
        }
        if prior != version {
            let text = format!("prior_version {prior} != crush version {version}");
            return Reply::error(Errno::EPERM, text);
        }
    }
    let legacy =
        crush.rules.iter().zip(0u32..).any(|(r, id)| r.as_ref().is_some_and(|r| u32::from(r.ruleset) != id));
    if legacy {
        return bad("crush maps with ruleset != ruleid are no longer allowed".to_owned());
    }
    // Before anything goes through all devices: a name alone makes them as many as its number says.
    if crush.max_devices > ctx.osdmap().max_osd().max(HIGHEST_DEVICES) {
        let id = crush.max_devices - 1;
        return bad(format!("crush map has device {id}, which is above any OSD number"));
    }
    if let Err((errno, why)) = check(ctx.osdmap(), &crush, Rules::All) {
        return Reply::error(errno, why);
    }
    let changed = crush != *ctx.osdmap().crush;
    if changed && !set_crush(ctx.osdmap_mut(), &crush) {
        return bad("Failed crushmap test: it cannot be encoded".to_owned());
    }
    Reply::done((version + i64::from(changed)).to_string())
}

fn add_bucket(ctx: &mut WriteCtx<'_>) -> Reply {
    let (name, kind) = (ctx.args.text_or_empty("name").to_owned(), ctx.args.text_or_empty("type").to_owned());
    let place = match location(ctx) {
        Ok(place) => place,
        Err(reply) => return reply,
    };
    let crush = &ctx.osdmap().crush;
    if crush.item_id(&name).is_some() {
        return Reply::done(format!("bucket '{name}' already exists"));
    }
    match crush.type_id(&kind) {
        None => return Reply::error(Errno::EINVAL, format!("type '{kind}' does not exist")),
        Some(0) => return Reply::error(Errno::EINVAL, format!("type '{kind}' is for devices, not buckets")),
        Some(_) => {}
    }
    if !crush::is_valid_name(&name) {
        return Reply::error(Errno::EINVAL, format!("error setting bucket name to '{name}'"));
    }
    edit(ctx, |crush| {
        let id = crush.add_bucket(&name, &kind)?;
        if place.is_empty() {
            return Ok(format!("added bucket {name} type {kind} to crush map"));
        }
        crush.move_bucket(id, &place)?;
        Ok(format!("added bucket {name} type {kind} to location {}", location_text(&place)))
    })
}

fn rename_bucket(ctx: &mut WriteCtx<'_>) -> Reply {
    let (from, to) =
        (ctx.args.text_or_empty("srcname").to_owned(), ctx.args.text_or_empty("dstname").to_owned());
    let crush = &ctx.osdmap().crush;
    let (has_from, has_to) = (crush.item_id(&from).is_some(), crush.item_id(&to).is_some());
    match (has_from, has_to) {
        // A repetition of what succeeded.
        (false, true) => {
            Reply::done(format!("srcname = '{from}' does not exist and dstname = '{to}' already exists"))
        }
        (false, false) => Reply::error(Errno::ENOENT, format!("srcname = '{from}' does not exist")),
        (true, true) => Reply::error(Errno::EEXIST, format!("dstname = '{to}' already exists")),
        (true, false) => edit(ctx, |crush| {
            crush.rename_bucket(&from, &to)?;
            Ok(format!("renamed bucket {from} into {to}"))
        }),
    }
}

/// The OSD of `id`, which must exist.
fn existing_osd(ctx: &WriteCtx<'_>, hint: &str) -> Result<i32, Reply> {
    let id = ctx.args.int("id").and_then(|id| i32::try_from(id).ok()).filter(|id| *id >= 0);
    let Some(id) = id else { return Err(Reply::error(Errno::EINVAL, "invalid osd id")) };
    if ctx.osdmap().exists(id) {
        Ok(id)
    } else {
        Err(Reply::error(Errno::ENOENT, format!("osd.{id} does not exist{hint}")))
    }
}

fn weight_arg(ctx: &WriteCtx<'_>) -> Result<(f64, u32), Reply> {
    let w = ctx.args.float("weight").unwrap_or(0.0);
    match weight_from_f32(w as f32) {
        Ok(fixed) => Ok((w, fixed)),
        Err(_) => Err(Reply::from(Errno::EOVERFLOW)),
    }
}

fn add_or_set(ctx: &mut WriteCtx<'_>, action: &str) -> Reply {
    let parsed = existing_osd(ctx, ". Create it before updating the crush map")
        .and_then(|id| Ok((id, weight_arg(ctx)?, location(ctx)?)));
    let (id, (w, weight), place) = match parsed {
        Ok(parsed) => parsed,
        Err(reply) => return reply,
    };
    let name = format!("osd.{id}");
    let (shown, at) = (six_digits(w), location_text(&place));
    if action == "set" && !ctx.osdmap().crush.item_names.contains_key(&id) {
        let text = format!(
            "unable to set item id {id} name '{name}' weight {shown} at location {at}: does not exist"
        );
        return Reply::error(Errno::ENOENT, text);
    }
    edit(ctx, |crush| {
        Ok(match crush.update_item(id, weight, &name, &place)? {
            true => {
                format!("{action} item id {id} name '{name}' weight {shown} at location {at} to crush map")
            }
            false => format!("set item id {id} name '{name}' weight {shown} at location {at}: no change"),
        })
    })
}

fn create_or_move(ctx: &mut WriteCtx<'_>) -> Reply {
    let parsed = existing_osd(ctx, ".  create it before updating the crush map")
        .and_then(|id| Ok((id, weight_arg(ctx)?, location(ctx)?)));
    let (id, (w, weight), place) = match parsed {
        Ok(parsed) => parsed,
        Err(reply) => return reply,
    };
    let name = format!("osd.{id}");
    let tail = format!(
        "item name '{name}' weight {} at location {} to crush map",
        six_digits(w),
        location_text(&place)
    );
    edit(ctx, |crush| {
        Ok(match crush.create_or_move_item(id, weight, &name, &place)? {
            true => format!("create-or-move updating {tail}"),
            false => format!("create-or-move updated {tail}"),
        })
    })
}

fn move_item(ctx: &mut WriteCtx<'_>) -> Reply {
    let name = ctx.args.text_or_empty("name").to_owned();
    let place = match location(ctx) {
        Ok(place) => place,
        Err(reply) => return reply,
    };
    let crush = &ctx.osdmap().crush;
    let Some(id) = crush.item_id(&name) else {
        return Reply::error(Errno::ENOENT, format!("item {name} does not exist"));
    };
    let tail = format!("item id {id} name '{name}' to location {} in crush map", location_text(&place));
    if crush.weight_at(id, &place).is_some() {
        return Reply::done(format!("no need to move {tail}"));
    }
    let weight = crush.item_weight(id).unwrap_or(0);
    edit(ctx, |crush| {
        if id >= 0 {
            crush.create_or_move_item(id, weight, &name, &place)?;
        } else {
            crush.move_bucket(id, &place)?;
        }
        Ok(format!("moved {tail}"))
    })
}

fn swap_bucket(ctx: &mut WriteCtx<'_>) -> Reply {
    let (from, to) = (ctx.args.text_or_empty("source").to_owned(), ctx.args.text_or_empty("dest").to_owned());
    let crush = &ctx.osdmap().crush;
    let Some(a) = crush.item_id(&from) else {
        return Reply::error(Errno::ENOENT, format!("source item {from} does not exist"));
    };
    let Some(b) = crush.item_id(&to) else {
        return Reply::error(Errno::ENOENT, format!("dest item {to} does not exist"));
    };
    if !ctx.args.flag("yes_i_really_mean_it") && crush.parent(a).is_some() {
        let text = format!(
            "source item {from} is not an orphan bucket; pass --yes-i-really-mean-it to proceed anyway"
        );
        return Reply::error(Errno::EPERM, text);
    }
    edit(ctx, |crush| {
        crush.swap_buckets(a, b)?;
        Ok(format!("swapped bucket of {from} to {to}"))
    })
}

fn link(ctx: &mut WriteCtx<'_>) -> Reply {
    let name = ctx.args.text_or_empty("name").to_owned();
    let place = match location(ctx) {
        Ok(place) => place,
        Err(reply) => return reply,
    };
    let crush = &ctx.osdmap().crush;
    let Some(id) = crush.item_id(&name) else {
        return Reply::error(Errno::ENOENT, format!("item {name} does not exist"));
    };
    let at = location_text(&place);
    if crush.weight_at(id, &place).is_some() {
        return Reply::done(format!(
            "no need to move item id {id} name '{name}' to location {at} in crush map"
        ));
    }
    edit(ctx, |crush| {
        crush.link_bucket(id, &place)?;
        Ok(format!("linked item id {id} name '{name}' to location {at} in crush map"))
    })
}

fn remove(ctx: &mut WriteCtx<'_>, unlink_only: bool) -> Reply {
    let name = ctx.args.text_or_empty("name").to_owned();
    let crush = &ctx.osdmap().crush;
    let Some(id) = crush.item_id(&name) else {
        return Reply::done(format!("device '{name}' does not appear in the crush map"));
    };
    let ancestor = match ctx.args.text("ancestor") {
        Some(a) => match crush.item_id(a) {
            Some(id) => Some(id),
            None => {
                return Reply::error(
                    Errno::ENOENT,
                    format!("ancestor item '{a}' does not appear in the crush map"),
                );
            }
        },
        None => None,
    };
    edit(ctx, |crush| {
        match ancestor {
            Some(ancestor) => crush.remove_item_under(id, ancestor, unlink_only)?,
            None => crush.remove_item(id, unlink_only)?,
        }
        Ok(format!("removed item id {id} name '{name}' from crush map"))
    })
}

fn reweight_all(ctx: &mut WriteCtx<'_>) -> Reply {
    edit(ctx, |crush| {
        crush.reweight()?;
        Ok("reweighted crush hierarchy".to_owned())
    })
}

fn reweight(ctx: &mut WriteCtx<'_>) -> Reply {
    let name = ctx.args.text_or_empty("name").to_owned();
    let Some(id) = ctx.osdmap().crush.item_id(&name) else {
        return Reply::error(Errno::ENOENT, format!("device '{name}' does not appear in the crush map"));
    };
    if id < 0 {
        return Reply::error(Errno::EINVAL, format!("device '{name}' is not a leaf in the crush map"));
    }
    let (w, weight) = match weight_arg(ctx) {
        Ok(parsed) => parsed,
        Err(reply) => return reply,
    };
    edit(ctx, |crush| {
        crush.adjust_item_weight(id, weight)?;
        Ok(format!("reweighted item id {id} name '{name}' to {} in crush map", six_digits(w)))
    })
}

fn reweight_subtree(ctx: &mut WriteCtx<'_>) -> Reply {
    let name = ctx.args.text_or_empty("name").to_owned();
    let Some(id) = ctx.osdmap().crush.item_id(&name) else {
        return Reply::error(Errno::ENOENT, format!("device '{name}' does not appear in the crush map"));
    };
    if id >= 0 {
        return Reply::error(Errno::EINVAL, format!("device '{name}' is not a subtree in the crush map"));
    }
    let (w, weight) = match weight_arg(ctx) {
        Ok(parsed) => parsed,
        Err(reply) => return reply,
    };
    edit(ctx, |crush| {
        crush.adjust_subtree_weight(id, weight)?;
        Ok(format!("reweighted subtree id {id} name '{name}' to {} in crush map", six_digits(w)))
    })
}
