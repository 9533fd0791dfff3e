//! `config ...`: the config database.
//!
//! Source: ConfigMonitor::preprocess_command and prepare_command in src/mon/ConfigMonitor.cc.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};
use types::{AuthName, EntityType, Errno};

use crate::command::module_options;
use crate::command::{Command, Ctx, Handler, Reply, WriteCtx, flags};
use crate::options::{self, ModuleSetting, normalize};
use crate::service::subscribe::view_of;
use crate::state::{Change, ConfigChange, ConfigEntry, Mask, parse_who, split_key};
use crate::text::table::TextTable;

pub(super) const COMMANDS: &[Command] = &[
    write(
        "config set name=who,type=CephString name=name,type=CephString name=value,type=CephString \
         name=force,type=CephBool,req=false",
        "set an option for all, a type, or one daemon or client",
        set,
    ),
    write("config rm name=who,type=CephString name=name,type=CephString", "take an option back", rm),
    read(
        "config get name=who,type=CephString name=key,type=CephString,req=false",
        "options that apply to a daemon or client",
        get,
    ),
    read("config dump", "every option that is set", dump),
    read("config ls", "names of all options", ls),
    read("config help name=key,type=CephString", "type, level and default of an option", help),
    read(
        "config show name=who,type=CephString name=key,type=CephString,req=false",
        "options that the monitors set for a daemon",
        show,
    ),
    read(
        "config show-with-defaults name=who,type=CephString",
        "every option of a monitor, as it is or would be set",
        show_with_defaults,
    ),
    read("config log name=num,type=CephInt,req=false", "latest changes of options", log),
    write("config reset name=num,type=CephInt,range=0", "take back all changes since a version", reset),
    read("config generate-minimal-conf", "shortest conf file with which a client finds the cluster", minimal),
    write(
        "config assimilate-conf",
        "take over options from the conf file given with -i; what is left is printed",
        assimilate,
    ),
];

const fn read(sig: &'static str, help: &'static str, handler: fn(&Ctx<'_>) -> Reply) -> Command {
    Command { sig, help, module: "config", perm: "r", flags: flags::NONE, handler: Handler::Read(handler) }
}

const fn write(sig: &'static str, help: &'static str, handler: fn(&mut WriteCtx<'_>) -> Reply) -> Command {
    Command { sig, help, module: "config", perm: "rw", flags: flags::NONE, handler: Handler::Write(handler) }
}

/// Options set (`Some`) or removed, by `who/name`.
type Wanted = BTreeMap<String, Option<String>>;

/// Records what differs from what is there.
fn propose(ctx: &mut WriteCtx<'_>, wanted: Wanted, name: &str) {
    let mut diff = BTreeMap::new();
    for (key, value) in wanted {
        let old = split_key(&key).and_then(|(who, option)| ctx.state().config.get(who, option).cloned());
        if old != value {
            diff.insert(key, (old, value));
        }
    }
    if !diff.is_empty() {
        let change = ConfigChange { version: 0, stamp: ctx.now.wall, name: name.to_owned(), diff };
        ctx.change(Change::Config(change));
    }
}

/// `who/name` with the section and mask in their normal form.
fn key_of(who: &str, name: &str) -> Result<String, Reply> {
    let Some((section, mask)) = parse_who(who) else {
        return Err(Reply::error(Errno::EINVAL, format!("unrecognized config target '{who}'")));
    };
    let section = if section.is_empty() { "global" } else { section.as_str() };
    let mask = mask.text();
    let slash = if mask.is_empty() { "" } else { "/" };
    Ok(format!("{section}{slash}{mask}/{name}"))
}

fn set(ctx: &mut WriteCtx<'_>) -> Reply {
    let (who, name) = (ctx.args.text_or_empty("who"), normalize(ctx.args.text_or_empty("name")));
    let mut value = ctx.args.text_or_empty("value").to_owned();
    let described = module_options::find(ctx.state(), &name);
    let option = options::find(&name).or_else(|| described.as_ref().map(ModuleSetting::option));
    let of_module = name.starts_with("mgr/") && !module_options::are_known(ctx.state());
    if option.is_none() && !ctx.args.flag("force") && !of_module {
        return Reply::error(Errno::EINVAL, format!("unrecognized config option '{name}'"));
    }
    // Unlike Ceph's, --force sets what is unknown here, never what a known option does not take.
    if let Some(option) = option {
        value = match option.parse_value(&value) {
            Ok(value) => value,
            Err(e) => return Reply::error(Errno::EINVAL, format!("error parsing value: {e}")),
        };
        if option.not_by_monitors && !ctx.args.flag("force") {
            let text = format!("{name} is special and cannot be stored by the mon");
            return Reply::error(Errno::EINVAL, text);
        }
    }
    match key_of(who, &name) {
        Ok(key) => propose(ctx, [(key, Some(value))].into(), ""),
        Err(reply) => return reply,
    }
    // Ceph says nothing here.
    let section = parse_who(who).map(|(section, _)| section).filter(|s| !s.is_empty());
    let section = section.as_deref().unwrap_or("global");
    Reply::ok().with_outs(option.and_then(|o| o.no_effect_on(section)).unwrap_or_default())
}

fn rm(ctx: &mut WriteCtx<'_>) -> Reply {
    let name = normalize(ctx.args.text_or_empty("name"));
    match key_of(ctx.args.text_or_empty("who"), &name) {
        Ok(key) => propose(ctx, [(key, None)].into(), ""),
        Err(reply) => return reply,
    }
    Reply::ok()
}

fn entity(who: &str) -> Option<AuthName> {
    match AuthName::parse(who) {
        Some(name) => Some(name),
        None => EntityType::parse(who).map(|kind| AuthName::new(kind, "")),
    }
}

/// What applies to an entity by the database.
fn resolved(ctx: &Ctx<'_>, name: &AuthName) -> BTreeMap<String, ConfigEntry> {
    ctx.state.config.resolve(&view_of(ctx.osdmap(), name))
}

fn get(ctx: &Ctx<'_>) -> Reply {
    let who = ctx.args.text_or_empty("who");
    let Some(name) = entity(who) else {
        return Reply::error(Errno::EINVAL, format!("unrecognized entity '{who}'"));
    };
    let options = resolved(ctx, &name);
    if let Some(key) = ctx.args.text("key").filter(|k| !k.is_empty()) {
        let key = normalize(key);
        let described = module_options::find(ctx.state, &key);
        let known = options::find(&key).or_else(|| described.as_ref().map(ModuleSetting::option));
        let value = match (options.get(&key), known) {
            (Some(entry), _) => entry.value.clone(),
            (None, Some(option)) if option.name == "fsid" => ctx.state.fsid.to_string(),
            (None, Some(option)) => option.default_value(),
            (None, None) => return Reply::error(Errno::ENOENT, format!("unrecognized key '{key}'")),
        };
        return Reply::text(format!("{value}\n"));
    }
    let plain = || {
        let mut table = option_table();
        for e in options.values() {
            table.row(option_row(ctx, e.section.clone(), e.clone()));
        }
        table.render()
    };
    let value = || {
        let entry = |e: &ConfigEntry| {
            let mask = mask_fields(&e.mask);
            let at_runtime = traits(ctx, e).1;
            json!({ "value": e.value, "section": e.section, "mask": mask, "can_update_at_runtime": at_runtime })
        };
        Value::Object(options.iter().map(|(name, e)| (name.clone(), entry(e))).collect())
    };
    Reply::show(ctx.format, plain, value)
}

fn option_table() -> TextTable {
    ["WHO", "MASK", "LEVEL", "OPTION", "VALUE", "RO"].into_iter().fold(TextTable::new(), TextTable::left)
}

/// Level, and whether a running daemon takes it, of the option that an entry sets.
fn traits(ctx: &Ctx<'_>, e: &ConfigEntry) -> (&'static str, bool) {
    if let Some(option) = options::find(&e.name) {
        return (option.level, option.at_runtime);
    }
    let described = module_options::find(ctx.state, &e.name);
    described.map_or(("unknown", false), |d| (d.level, d.option().at_runtime))
}

fn option_row(ctx: &Ctx<'_>, who: String, e: ConfigEntry) -> [String; 6] {
    let (level, at_runtime) = traits(ctx, &e);
    let fixed = if at_runtime { "" } else { "*" };
    [who, e.mask.text(), level.to_owned(), e.name, e.value, fixed.to_owned()]
}

fn mask_fields(mask: &Mask) -> Map<String, Value> {
    let mut out = Map::new();
    if let Some((kind, value)) = &mask.location {
        out.insert("location_type".to_owned(), json!(kind));
        out.insert("location_value".to_owned(), json!(value));
    }
    if let Some(class) = &mask.device_class {
        out.insert("device_class".to_owned(), json!(class));
    }
    out
}

fn dump(ctx: &Ctx<'_>) -> Reply {
    let plain = || {
        let mut table = option_table();
        for e in ctx.state.config.iter() {
            let indent = match e.section.as_str() {
                "global" => "",
                s if s.contains('.') => "    ",
                _ => "  ",
            };
            let who = format!("{indent}{}", e.section);
            table.row(option_row(ctx, who, e));
        }
        table.render()
    };
    let value = || {
        let entry = |e: ConfigEntry| {
            let (level, at_runtime) = traits(ctx, &e);
            let mut out = json!({
                "section": e.section,
                "name": e.name,
                "value": e.value,
                "level": level,
                "can_update_at_runtime": at_runtime,
                "mask": e.mask.text(),
            });
            if let Some(out) = out.as_object_mut() {
                out.extend(mask_fields(&e.mask));
            }
            out
        };
        ctx.state.config.iter().map(entry).collect()
    };
    Reply::show(ctx.format, plain, value)
}

fn ls(ctx: &Ctx<'_>) -> Reply {
    let own = options::all().map(|o| o.name.to_owned());
    let names: Vec<String> = own.chain(module_options::names(ctx.state)).collect();
    Reply::show(ctx.format, || names.iter().map(|n| format!("{n}\n")).collect(), || json!(names))
}

fn help(ctx: &Ctx<'_>) -> Reply {
    let name = normalize(ctx.args.text_or_empty("key"));
    let described = module_options::find(ctx.state, &name);
    let Some(o) = options::find(&name).or_else(|| described.as_ref().map(ModuleSetting::option)) else {
        return Reply::error(Errno::ENOENT, "");
    };
    Reply::show(ctx.format, || o.help_text(), || o.schema())
}

/// Every option of this monitor; another daemon's options only the manager knows.
fn show_with_defaults(ctx: &Ctx<'_>) -> Reply {
    let who = ctx.args.text_or_empty("who");
    let Some(name) = AuthName::parse(who) else {
        return Reply::error(Errno::EINVAL, format!("unrecognized entity '{who}'"));
    };
    let set = values_of(ctx, &name);
    let mut values: BTreeMap<String, (String, &str)> =
        options::all().map(|o| (o.name.to_owned(), (o.default_value(), "default"))).collect();
    values.extend(set);
    show_values(ctx, &values)
}

/// What the config database sets for a daemon. What it was given by its own configuration file is known only to the daemon.
fn show(ctx: &Ctx<'_>) -> Reply {
    let who = ctx.args.text_or_empty("who");
    let Some(name) = AuthName::parse(who) else {
        return Reply::error(Errno::EINVAL, format!("unrecognized entity '{who}'"));
    };
    let values = values_of(ctx, &name);
    if let Some(key) = ctx.args.text("key").map(normalize) {
        return match (values.get(&key), options::find(&key)) {
            (Some((value, _)), _) => Reply::text(format!("{value}\n")),
            (None, Some(option)) => Reply::text(format!("{}\n", option.default_value())),
            (None, None) => Reply::error(Errno::ENOENT, format!("unrecognized key '{key}'")),
        };
    }
    show_values(ctx, &values)
}

/// Values by name, with their source.
fn values_of(ctx: &Ctx<'_>, name: &AuthName) -> BTreeMap<String, (String, &'static str)> {
    let mut values: BTreeMap<String, (String, &str)> =
        resolved(ctx, name).into_iter().map(|(k, e)| (k, (e.value, "mon"))).collect();
    if *name == ctx.settings.entity() {
        let local = ctx.settings.options.iter();
        values.extend(local.map(|(k, v)| (k.clone(), (v.clone(), "file"))));
    }
    values
}

fn show_values(ctx: &Ctx<'_>, values: &BTreeMap<String, (String, &'static str)>) -> Reply {
    let plain = || {
        let columns = ["NAME", "VALUE", "SOURCE", "OVERRIDES", "IGNORES"];
        let mut table = columns.into_iter().fold(TextTable::new(), TextTable::left);
        for (name, (value, source)) in values {
            table.row([name.as_str(), value.as_str(), source]);
        }
        table.render()
    };
    let entry = |(name, (value, source)): (&String, &(String, &str))| json!({ "name": name, "value": value, "source": source });
    Reply::show(ctx.format, plain, || values.iter().map(entry).collect())
}

fn log(ctx: &Ctx<'_>) -> Reply {
    let n = usize::try_from(ctx.args.int("num").unwrap_or(10)).unwrap_or(10);
    let changes = || ctx.state.config.history.iter().rev().take(n);
    let plain = || {
        let one = |c: &ConfigChange| {
            let by = if c.name.is_empty() { String::new() } else { format!(" --- {}", c.name) };
            let mut text = format!("--- {} --- {}{by} ---\n", c.version, stamp(c));
            for (key, (old, new)) in &c.diff {
                text += &old.as_ref().map(|v| format!("- {key} = {v}\n")).unwrap_or_default();
                text += &new.as_ref().map(|v| format!("+ {key} = {v}\n")).unwrap_or_default();
            }
            text
        };
        changes().map(one).collect()
    };
    let change = |(key, (old, new)): (&String, &(Option<String>, Option<String>))| {
        let mut out = Map::new();
        out.insert("name".to_owned(), json!(key));
        if let Some(v) = old {
            out.insert("previous_value".to_owned(), json!(v));
        }
        if let Some(v) = new {
            out.insert("new_value".to_owned(), json!(v));
        }
        Value::Object(out)
    };
    let one = |c: &ConfigChange| {
        let diff: Vec<Value> = c.diff.iter().map(change).collect();
        json!({ "version": c.version, "timestamp": stamp(c), "name": c.name, "changes": diff })
    };
    Reply::show(ctx.format, plain, || changes().map(one).collect())
}

fn stamp(c: &ConfigChange) -> String {
    if c.stamp.is_zero() { "0.000000".to_owned() } else { c.stamp.to_string() }
}

fn reset(ctx: &mut WriteCtx<'_>) -> Reply {
    let to = ctx.args.int("num").unwrap_or(-1);
    let db = &ctx.state().config;
    let oldest = db.history.front().map_or(db.version, |c| c.version - 1);
    let Ok(to) = u64::try_from(to)
        .map_err(|_| ())
        .and_then(|v| if (oldest..=db.version).contains(&v) { Ok(v) } else { Err(()) })
    else {
        let text = "must specify a valid historical version to revert to; see 'ceph config log' for a list of \
                    available configuration historical versions";
        return Reply::error(Errno::EINVAL, text);
    };
    let mut wanted = Wanted::new();
    for change in db.history.iter().rev().filter(|c| c.version > to) {
        for (key, (old, _)) in &change.diff {
            wanted.insert(key.clone(), old.clone());
        }
    }
    propose(ctx, wanted, &format!("reset to {to}"));
    Reply::ok()
}

fn minimal(ctx: &Ctx<'_>) -> Reply {
    let hosts: Vec<String> = ctx.state.monmap.ranked().map(|m| bracketed(&m.addrs)).collect();
    let fsid = ctx.state.fsid;
    let text = format!(
        "# minimal ceph.conf for {fsid}\n[global]\n\tfsid = {fsid}\n\tmon_host = {}\n",
        hosts.join(" ")
    );
    Reply::text(text)
}

/// A list of addresses always has brackets in a conf file.
fn bracketed(addrs: &types::AddrVec) -> String {
    let texts: Vec<String> = addrs.0.iter().map(ToString::to_string).collect();
    format!("[{}]", texts.join(","))
}

/// Takes over what it can of a conf file; gives back the rest.
fn assimilate(ctx: &mut WriteCtx<'_>) -> Reply {
    let Ok(text) = std::str::from_utf8(ctx.input) else {
        return Reply::error(Errno::EINVAL, "the conf is not text");
    };
    let mut wanted = Wanted::new();
    let mut rest: BTreeMap<String, BTreeMap<String, String>> = BTreeMap::new();
    let mut section = "global".to_owned();
    for line in text.lines().map(str::trim) {
        if line.is_empty() || line.starts_with(['#', ';']) {
            continue;
        }
        if let Some(name) = line.strip_prefix('[').and_then(|l| l.strip_suffix(']')) {
            name.trim().clone_into(&mut section);
            continue;
        }
        let Some((name, value)) = line.split_once('=') else {
            return Reply::error(Errno::EINVAL, format!("cannot parse '{line}'"));
        };
        let (name, value) = (normalize(name.trim()), value.trim().to_owned());
        let described = module_options::find(ctx.state(), &name);
        let option = options::find(&name)
            .or_else(|| described.as_ref().map(ModuleSetting::option))
            .filter(|o| !o.not_by_monitors && !o.cluster_creation);
        let parsed = option.and_then(|o| o.parse_value(&value).ok());
        let known = ctx.state().config.get(&section, &name);
        match (parsed, known) {
            (Some(parsed), None) if parse_who(&section).is_some() => {
                wanted.insert(format!("{section}/{name}"), Some(parsed));
            }
            (Some(parsed), Some(known)) if parsed == *known => {}
            _ => {
                rest.entry(section.clone()).or_default().insert(name, value);
            }
        }
    }
    propose(ctx, wanted, "");
    let mut out = String::new();
    for (section, options) in rest {
        out += &format!("\n[{section}]\n");
        out.extend(options.into_iter().map(|(name, value)| format!("\t{name} = {value}\n")));
    }
    Reply::text(out)
}
