//! What the CRUSH map says: rules, classes, tunables, weight sets, the tree.
//!
//! Source: OSDMonitor::preprocess_command.

use std::collections::BTreeMap;

use crush::DEFAULT_CHOOSE_ARGS;
use serde_json::{Value, json};
use types::Errno;

use crate::command::osd_show::numbers;
use crate::command::shape::{padded, streamed};
use crate::command::{Command, Ctx, Format, Handler, Reply, flags};
use crate::crush_dump::{choose_args_json, crush_json, rule_json, rules_json, tunables_json};
use crate::osd_tree::{Tree, weight_set_name};

const fn read(sig: &'static str, help: &'static str, handler: fn(&Ctx<'_>) -> Reply) -> Command {
    Command { sig, help, module: "osd", perm: "r", flags: flags::NONE, handler: Handler::Read(handler) }
}

pub(super) const COMMANDS: &[Command] = &[
    Command { flags: flags::DEPRECATED, ..read("osd crush rule list", "list crush rules", rule_ls) },
    read("osd crush rule ls", "list crush rules", rule_ls),
    read(
        "osd crush rule ls-by-class name=class,type=CephString,goodchars=[A-Za-z0-9-_.]",
        "list all crush rules that reference the same <class>",
        rule_ls_by_class,
    ),
    read(
        "osd crush rule dump name=name,type=CephString,goodchars=[A-Za-z0-9-_.],req=false",
        "dump crush rule <name> (default all)",
        rule_dump,
    ),
    read("osd crush dump", "dump crush map", dump),
    read(
        "osd crush get-tunable name=tunable,type=CephChoices,strings=straw_calc_version",
        "get crush tunable <tunable>",
        get_tunable,
    ),
    read("osd crush show-tunables", "show current crush tunables", show_tunables),
    read(
        "osd crush tree name=shadow,type=CephChoices,strings=--show-shadow,req=false",
        "dump crush buckets and items in a tree view",
        tree,
    ),
    read(
        "osd crush ls name=node,type=CephString,goodchars=[A-Za-z0-9-_.]",
        "list items beneath a node in the CRUSH tree",
        ls,
    ),
    read("osd crush class ls", "list all crush device classes", class_ls),
    read(
        "osd crush class ls-osd name=class,type=CephString,goodchars=[A-Za-z0-9-_]",
        "list all osds belonging to the specific <class>",
        class_ls_osd,
    ),
    read(
        "osd crush get-device-class name=ids,type=CephString,n=N",
        "get classes of specified osd(s) <id> [<id>...]",
        get_device_class,
    ),
    read("osd crush weight-set ls", "list crush weight sets", weight_set_ls),
    read("osd crush weight-set dump", "dump crush weight sets", weight_set_dump),
    read(
        "osd erasure-code-profile get name=name,type=CephString,goodchars=[A-Za-z0-9-_.]",
        "get erasure code profile <name>",
        profile_get,
    ),
    read("osd erasure-code-profile ls", "list all erasure code profiles", profile_ls),
];

/// Words, one to a line or as a list.
fn words(ctx: &Ctx<'_>, words: &[&str]) -> Reply {
    Reply::show(ctx.format, || words.iter().map(|w| format!("{w}\n")).collect(), || json!(words))
}

fn rule_ls(ctx: &Ctx<'_>) -> Reply {
    let crush = &ctx.osdmap().crush;
    let rules = (0..).zip(&crush.rules).filter(|(_, rule)| rule.is_some());
    words(ctx, &rules.map(|(id, _)| crush.rule_name(id).unwrap_or_default()).collect::<Vec<_>>())
}

fn rule_ls_by_class(ctx: &Ctx<'_>) -> Reply {
    let crush = &ctx.osdmap().crush;
    let class = ctx.args.text_or_empty("class");
    if class.is_empty() {
        return Reply::error(Errno::EINVAL, "no class specified");
    }
    let Some(id) = crush.class_id(class) else {
        return Reply::error(Errno::ENOENT, format!("failed to get rules by class '{class}'"));
    };
    let name = |rule: &u32| i32::try_from(*rule).ok().and_then(|r| crush.rule_name(r)).unwrap_or_default();
    words(ctx, &crush.rules_by_class(id).iter().map(name).collect::<Vec<_>>())
}

fn rule_dump(ctx: &Ctx<'_>) -> Reply {
    let crush = &ctx.osdmap().crush;
    let name = ctx.args.text_or_empty("name");
    if name.is_empty() {
        return padded(ctx.format, &rules_json(crush));
    }
    let id = crush.rule_id(name);
    match id.and_then(|id| Some((id, crush.rule(u32::try_from(id).ok()?)?))) {
        Some((id, rule)) => padded(ctx.format, &rule_json(crush, id, rule)),
        None => Reply::error(Errno::ENOENT, format!("unknown crush rule '{name}'")),
    }
}

fn dump(ctx: &Ctx<'_>) -> Reply {
    padded(ctx.format, &crush_json(&ctx.osdmap().crush))
}

fn show_tunables(ctx: &Ctx<'_>) -> Reply {
    padded(ctx.format, &tunables_json(&ctx.osdmap().crush))
}

fn get_tunable(ctx: &Ctx<'_>) -> Reply {
    let version = ctx.osdmap().crush.tunables.straw_calc_version;
    Reply::show(ctx.format, || format!("{version}\n"), || json!({ "straw_calc_version": version }))
}

fn tree(ctx: &Ctx<'_>) -> Reply {
    let map = ctx.osdmap();
    let with_shadow = ctx.args.text("shadow") == Some("--show-shadow");
    let tree = Tree::of_crush(&map.crush, with_shadow);
    Reply::show(ctx.format, || tree.crush_text(map), || tree.crush_json(map))
}

fn ls(ctx: &Ctx<'_>) -> Reply {
    let crush = &ctx.osdmap().crush;
    let node = ctx.args.text_or_empty("node");
    let Some(id) = crush.item_id(node) else {
        return Reply::error(Errno::ENOENT, format!("node '{node}' does not exist"));
    };
    let items = if id >= 0 { vec![id] } else { crush.children(id).to_vec() };
    words(ctx, &items.iter().map(|item| crush.item_name(*item).unwrap_or_default()).collect::<Vec<_>>())
}

fn class_ls(ctx: &Ctx<'_>) -> Reply {
    Reply::json(ctx.format, &ctx.osdmap().crush.class_names.values().cloned().collect::<Vec<_>>().into())
}

fn class_ls_osd(ctx: &Ctx<'_>) -> Reply {
    let osds = ctx.osdmap().crush.devices_by_class(ctx.args.text_or_empty("class"));
    let osds: Vec<i32> = osds.into_iter().collect();
    match ctx.format {
        Format::Plain => numbers(ctx, &osds),
        _ => Reply::json(ctx.format, &json!(osds)),
    }
}

fn get_device_class(ctx: &Ctx<'_>) -> Reply {
    let crush = &ctx.osdmap().crush;
    let mut classes: BTreeMap<i32, &str> = BTreeMap::new();
    for id in ctx.args.list("ids") {
        let osd = id.strip_prefix("osd.").unwrap_or(&id).parse::<i32>().ok().filter(|osd| *osd >= 0);
        let Some(osd) = osd else {
            return Reply::error(Errno::EINVAL, format!("unable to parse osd id:'{id}'"));
        };
        classes.insert(osd, crush.item_class(osd).unwrap_or_default());
    }
    if ctx.format != Format::Plain {
        let list = classes.iter().map(|(osd, class)| json!({ "osd": osd, "device_class": class }));
        return Reply::json(ctx.format, &list.collect::<Vec<_>>().into());
    }
    let single = classes.len() == 1;
    let line = |(osd, class): (&i32, &&str)| match single {
        true => format!("{class}\n"),
        false => format!("osd.{osd} {class}\n"),
    };
    Reply::text(crate::text::full_lines(&classes.iter().map(line).collect::<String>()))
}

fn weight_set_ls(ctx: &Ctx<'_>) -> Reply {
    let map = ctx.osdmap();
    let known = map.crush.choose_args.keys().filter(|set| **set == DEFAULT_CHOOSE_ARGS || **set >= 0);
    let names: Vec<String> = known.map(|set| weight_set_name(map, *set)).collect();
    words(ctx, &names.iter().map(String::as_str).collect::<Vec<_>>())
}

fn weight_set_dump(ctx: &Ctx<'_>) -> Reply {
    Reply::json(ctx.format, &choose_args_json(&ctx.osdmap().crush))
}

fn profile_ls(ctx: &Ctx<'_>) -> Reply {
    let profiles = &ctx.osdmap().erasure_code_profiles;
    match ctx.format {
        Format::Plain => Reply::text(profiles.keys().map(|name| format!("{name}\n")).collect::<String>()),
        _ => padded(ctx.format, &profiles.keys().cloned().collect::<Vec<_>>().into()),
    }
}

fn profile_get(ctx: &Ctx<'_>) -> Reply {
    let name = ctx.args.text_or_empty("name");
    let Some(profile) = ctx.osdmap().erasure_code_profiles.get(name) else {
        return Reply::error(Errno::ENOENT, format!("unknown erasure code profile '{name}'"));
    };
    match ctx.format {
        Format::Plain => streamed(
            ctx.format,
            || profile.iter().map(|(key, value)| format!("{key}={value}\n")).collect(),
            || Value::Null,
        ),
        _ => padded(ctx.format, &json!(profile)),
    }
}
