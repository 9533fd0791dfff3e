//! `osd crush rule ...`, device classes and tunables.
//!
//! Source: OSDMonitor::prepare_command_impl.

use crush::{RULE_REPLICATED, RuleMode};
use types::Errno;

use crate::command::crush_edit::{edit, refused, write};
use crate::command::{Command, Reply, WriteCtx};
use crate::service::erasure;

pub(super) const COMMANDS: &[Command] = &[
    write(
        "osd crush rule create-simple name=name,type=CephString,goodchars=[A-Za-z0-9-_.] \
         name=root,type=CephString,goodchars=[A-Za-z0-9-_.] name=type,type=CephString,goodchars=[A-Za-z0-9-_.] \
         name=mode,type=CephChoices,strings=firstn|indep,req=false",
        "make a rule: a root, a failure domain, and how gaps are filled",
        create_rule,
    ),
    write(
        "osd crush rule create-replicated name=name,type=CephString,goodchars=[A-Za-z0-9-_.] \
         name=root,type=CephString,goodchars=[A-Za-z0-9-_.] name=type,type=CephString,goodchars=[A-Za-z0-9-_.] \
         name=class,type=CephString,goodchars=[A-Za-z0-9-_.],req=false",
        "make a rule for replicated pools: a root, a failure domain, and a device class",
        create_rule,
    ),
    write("osd crush rule rm name=name,type=CephString,goodchars=[A-Za-z0-9-_.]", "remove a rule", rm_rule),
    write(
        "osd crush rule rename name=srcname,type=CephString,goodchars=[A-Za-z0-9-_.] \
         name=dstname,type=CephString,goodchars=[A-Za-z0-9-_.]",
        "give a rule another name",
        rename_rule,
    ),
    write(
        "osd crush set-device-class name=class,type=CephString name=ids,type=CephString,n=N",
        "device class of OSDs",
        set_class,
    ),
    write(
        "osd crush rm-device-class name=ids,type=CephString,n=N",
        "take the device class off OSDs",
        rm_class,
    ),
    write(
        "osd crush class create name=class,type=CephString,goodchars=[A-Za-z0-9-_]",
        "make a device class",
        class_create,
    ),
    write(
        "osd crush class rm name=class,type=CephString,goodchars=[A-Za-z0-9-_]",
        "remove a device class, and take it off its devices",
        class_rm,
    ),
    write(
        "osd crush class rename name=srcname,type=CephString,goodchars=[A-Za-z0-9-_] \
         name=dstname,type=CephString,goodchars=[A-Za-z0-9-_]",
        "give a device class another name",
        class_rename,
    ),
    write(
        "osd crush tunables name=profile,type=CephChoices,strings=legacy|argonaut|bobtail|firefly|hammer|jewel|\
optimal|default",
        "set of constants that placement computes with",
        tunables,
    ),
    write(
        "osd crush set-tunable name=tunable,type=CephChoices,strings=straw_calc_version name=value,type=CephInt",
        "one constant that placement computes with",
        set_tunable,
    ),
    write(
        "osd crush set-all-straw-buckets-to-straw2",
        "give buckets of the old algorithm straw the newer one",
        straw2,
    ),
    write(
        "osd crush rule create-erasure name=name,type=CephString,goodchars=[A-Za-z0-9-_.] \
         name=profile,type=CephString,req=false,goodchars=[A-Za-z0-9-_.=]",
        "make a rule for pools with an erasure code profile",
        create_erasure_rule,
    ),
];

fn create_rule(ctx: &mut WriteCtx<'_>) -> Reply {
    let arg = |name: &str| ctx.args.text_or_empty(name).to_owned();
    let (name, root, kind) = (arg("name"), arg("root"), arg("type"));
    let class = ctx.args.text("class").map(ToOwned::to_owned);
    let mode = ctx.args.text("mode").map_or(Ok(RuleMode::Firstn), RuleMode::from_name);
    let mode = match mode {
        Ok(mode) => mode,
        Err(e) => return refused(&e),
    };
    let crush = &ctx.osdmap().crush;
    if crush.rule_id(&name).is_some() {
        return Reply::done(format!("rule {name} already exists"));
    }
    if crush.item_id(&root).is_none() {
        return Reply::error(Errno::ENOENT, format!("root item {root} does not exist"));
    }
    if crush.type_id(&kind).is_none() {
        return Reply::error(Errno::EINVAL, format!("unknown type {kind}"));
    }
    if let Some(class) = class.as_deref().filter(|c| crush.class_id(c).is_none()) {
        return Reply::error(Errno::EINVAL, format!("device class {class} does not exist"));
    }
    edit(ctx, |crush| {
        crush.add_simple_rule(&name, &root, &kind, class.as_deref(), mode, RULE_REPLICATED, None)?;
        Ok(String::new())
    })
}

fn rm_rule(ctx: &mut WriteCtx<'_>) -> Reply {
    let name = ctx.args.text_or_empty("name");
    let Some(id) = ctx.osdmap().crush.rule_id(name).and_then(|id| u32::try_from(id).ok()) else {
        return Reply::done(format!("rule {name} does not exist"));
    };
    if ctx.osdmap().pools.values().any(|p| u32::from(p.crush_rule) == id) {
        return Reply::error(Errno::EBUSY, format!("crush ruleset {name} {id} is in use"));
    }
    edit(ctx, |crush| {
        crush.remove_rule(id)?;
        Ok(String::new())
    })
}

fn rename_rule(ctx: &mut WriteCtx<'_>) -> Reply {
    let (from, to) =
        (ctx.args.text_or_empty("srcname").to_owned(), ctx.args.text_or_empty("dstname").to_owned());
    let crush = &ctx.osdmap().crush;
    match (crush.rule_id(&from), crush.rule_id(&to)) {
        (None, Some(_)) => Reply::done(format!("already renamed to '{to}'")),
        (None, None) => Reply::error(Errno::ENOENT, format!("source rule name '{from}' does not exist")),
        (Some(_), Some(_)) => {
            Reply::error(Errno::EEXIST, format!("destination rule name '{to}' already exists"))
        }
        (Some(_), None) => edit(ctx, |crush| {
            crush.rename_rule(&from, &to)?;
            Ok(String::new())
        }),
    }
}

/// OSDs that a command names, and what is said of those that do not exist.
fn osds(ctx: &WriteCtx<'_>) -> (Vec<i32>, String, bool) {
    let (mut ids, mut said, mut bad) = (Vec::new(), String::new(), false);
    for word in ctx.args.list("ids") {
        if matches!(word.as_str(), "all" | "any" | "*") {
            ids = ctx.osdmap().existing_osds().map(|(id, _)| id.0).collect();
            break;
        }
        match word.strip_prefix("osd.").unwrap_or(&word).parse::<i32>() {
            Ok(id) if ctx.osdmap().exists(id) => ids.push(id),
            Ok(id) => said += &format!("osd.{id} does not exist. "),
            Err(_) => {
                bad = true;
                said += &format!(
                    "Expected option value to be integer, got '{word}', unable to parse osd id:\"{word}\". "
                );
            }
        }
    }
    (ids, said, bad)
}

/// Numbers with commas between, as Ceph prints sets.
fn numbers(ids: &[i32]) -> String {
    ids.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
}

fn set_class(ctx: &mut WriteCtx<'_>) -> Reply {
    let class = ctx.args.text_or_empty("class").to_owned();
    let (ids, mut said, bad) = osds(ctx);
    if bad {
        return Reply::error(Errno::EINVAL, said);
    }
    for id in &ids {
        match ctx.osdmap().crush.item_class(*id) {
            Some(has) if has != class => {
                let text = format!(
                    "osd.{id} has already bound to class '{has}', can not reset class to '{class}'; use 'ceph osd \
                     crush rm-device-class <id>' to remove old class first"
                );
                return Reply::error(Errno::EBUSY, text);
            }
            _ => {}
        }
    }
    edit(ctx, |crush| {
        let mut done = Vec::new();
        for id in ids {
            if crush.item_class(id) == Some(class.as_str()) {
                said += &format!(
                    "osd.{id} already set to class {class}. set-device-class item id {id} name 'osd.{id}' \
                     device_class '{class}': no change. "
                );
                continue;
            }
            crush.set_device_class(id, &class)?;
            done.push(id);
        }
        Ok(format!("{said}set osd(s) {} to class '{class}'", numbers(&done)))
    })
}

fn rm_class(ctx: &mut WriteCtx<'_>) -> Reply {
    let (ids, mut said, bad) = osds(ctx);
    if bad {
        return Reply::error(Errno::EINVAL, said);
    }
    edit(ctx, |crush| {
        let mut done = Vec::new();
        for id in ids {
            if crush.item_class(id).is_none() {
                said += &format!("osd.{id} belongs to no class, ");
                continue;
            }
            crush.remove_device_class(id)?;
            done.push(id);
        }
        Ok(format!("{said}done removing class of osd(s): {}", numbers(&done)))
    })
}

fn class_create(ctx: &mut WriteCtx<'_>) -> Reply {
    let class = ctx.args.text_or_empty("class").to_owned();
    if ctx.osdmap().crush.class_id(&class).is_some() {
        return Reply::done(format!("class '{class}' already exists"));
    }
    edit(ctx, |crush| {
        let id = crush.create_class(&class)?;
        Ok(format!("created class {class} with id {id} to crush map"))
    })
}

fn class_rm(ctx: &mut WriteCtx<'_>) -> Reply {
    let class = ctx.args.text_or_empty("class").to_owned();
    let crush = &ctx.osdmap().crush;
    let Some(id) = crush.class_id(&class) else { return Reply::ok() };
    let used = crush.rules_by_class(id);
    if !used.is_empty() {
        let name = |rule: &u32| crush.rule_name(i32::try_from(*rule).unwrap_or(-1)).unwrap_or_default();
        let names: Vec<String> = used.iter().map(|rule| format!("'{}'", name(rule))).collect();
        let text = format!("class '{class}' still referenced by crush_rule(s): {}", names.join(","));
        return Reply::error(Errno::EBUSY, text);
    }
    let profiles = ctx.osdmap().erasure_code_profiles.iter();
    let users: Vec<&str> = profiles
        .filter(|(_, p)| p.get("crush-device-class") == Some(&class))
        .map(|(name, _)| name.as_str())
        .collect();
    if !users.is_empty() {
        let text =
            format!("class '{class}' is still referenced by erasure-code-profile(s): {}", users.join(","));
        return Reply::error(Errno::EBUSY, text);
    }
    edit(ctx, |crush| {
        let devices = crush.devices_by_class(&class);
        for device in &devices {
            crush.remove_device_class(*device)?;
        }
        crush.class_names.remove(&id);
        // Without devices there are no buckets of the class, and other empty classes are to stay.
        if !devices.is_empty() {
            crush.rebuild_class_roots()?;
        }
        Ok(format!("removed class {class} with id {id} from crush map"))
    })
}

fn class_rename(ctx: &mut WriteCtx<'_>) -> Reply {
    let (from, to) =
        (ctx.args.text_or_empty("srcname").to_owned(), ctx.args.text_or_empty("dstname").to_owned());
    let crush = &ctx.osdmap().crush;
    match (crush.class_id(&from), crush.class_id(&to)) {
        (None, Some(_)) => Reply::done(format!("already renamed to '{to}'")),
        (None, None) => {
            let text = format!("fail to rename '{from}' to '{to}' : (2) No such file or directory");
            Reply::error(Errno::ENOENT, text)
        }
        (Some(_), Some(_)) => {
            Reply::error(Errno::EEXIST, format!("fail to rename '{from}' to '{to}' : (17) File exists"))
        }
        (Some(_), None) => edit(ctx, |crush| {
            crush.rename_class(&from, &to)?;
            Ok(format!("rename class '{from}' to '{to}'"))
        }),
    }
}

fn tunables(ctx: &mut WriteCtx<'_>) -> Reply {
    let profile = ctx.args.text_or_empty("profile").to_owned();
    let Some(new) = ctx.osdmap().crush.tunables.with_profile(&profile) else {
        return Reply::error(Errno::EINVAL, format!("unrecognized profile '{profile}'"));
    };
    edit(ctx, |crush| {
        crush.tunables = new;
        Ok(format!("adjusted tunables profile to {profile}"))
    })
}

fn set_tunable(ctx: &mut WriteCtx<'_>) -> Reply {
    let value = ctx.args.int("value").unwrap_or(0);
    let Some(version) = u8::try_from(value).ok().filter(|v| *v <= 1) else {
        return Reply::error(Errno::EINVAL, "value must be 0 or 1; got ".to_owned() + &value.to_string());
    };
    edit(ctx, |crush| {
        crush.tunables.straw_calc_version = version;
        Ok(format!("adjusted tunable straw_calc_version to {value}"))
    })
}

fn straw2(ctx: &mut WriteCtx<'_>) -> Reply {
    edit(ctx, |crush| {
        crush.straw_buckets_to_straw2()?;
        Ok(String::new())
    })
}

fn create_erasure_rule(ctx: &mut WriteCtx<'_>) -> Reply {
    let name = ctx.args.text_or_empty("name").to_owned();
    let profile = ctx.args.text("profile").filter(|p| !p.is_empty()).unwrap_or("default");
    if ctx.osdmap().crush.rule_id(&name).is_some() {
        return Reply::done(format!("rule {name} already exists"));
    }
    let made = erasure::read(ctx.osdmap(), profile).and_then(|made| erasure::rule(ctx.batch, &name, &made));
    match made {
        Ok(id) => Reply::done(format!("created rule {name} at {id}")),
        Err((errno, text)) => Reply::error(errno, text),
    }
}
