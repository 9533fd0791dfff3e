//! `auth ...`: keys and capabilities.
//!
//! Source: AuthMonitor::preprocess_command and prepare_command in src/mon/AuthMonitor.cc.

use std::collections::BTreeMap;

use cephx::caps::validate_caps;
use cephx::{CryptoKey, EntityAuth, Keyring};
use serde_json::{Value, json};
use types::{AuthName, EntityType, Errno};

use crate::command::{Access, Command, Ctx, Format, Handler, Reply, WriteCtx, flags, write};
use crate::state::{Change, State};

/// What changes something here, and needs.
const WRITES: Access = Access { module: "auth", perm: "rwx" };

pub(super) const COMMANDS: &[Command] = &[
    read("auth ls", "all entities with their keys and capabilities", flags::NONE, ls),
    read("auth list", "all entities with their keys and capabilities", flags::DEPRECATED, ls),
    read(
        "auth export name=entity,type=CephString,req=false",
        "keyring of one entity, or of all",
        flags::NONE,
        export,
    ),
    read("auth get name=entity,type=CephString", "keyring of one entity", flags::NONE, get),
    read("auth get-key name=entity,type=CephString", "an entity's key alone", flags::NONE, get_key),
    read("auth print-key name=entity,type=CephString", "an entity's key alone", flags::NONE, get_key),
    read("auth print_key name=entity,type=CephString", "an entity's key alone", flags::NONE, get_key),
    write(WRITES, "auth import", "take over entities from the keyring given with -i", flags::NONE, import),
    write(
        WRITES,
        "auth add name=entity,type=CephString name=caps,type=CephString,n=N,req=false",
        "add an entity, with the key given with -i or a new one",
        flags::NONE,
        add,
    ),
    write(
        WRITES,
        "auth get-or-create name=entity,type=CephString name=caps,type=CephString,n=N,req=false",
        "keyring of an entity, which is made when it does not exist",
        flags::NONE,
        |ctx| get_or_create(ctx, false),
    ),
    write(
        WRITES,
        "auth get-or-create-key name=entity,type=CephString name=caps,type=CephString,n=N,req=false",
        "key of an entity, which is made when it does not exist",
        flags::NONE,
        |ctx| get_or_create(ctx, true),
    ),
    write(
        WRITES,
        "auth caps name=entity,type=CephString name=caps,type=CephString,n=N",
        "replace an entity's capabilities",
        flags::NONE,
        caps,
    ),
    write(WRITES, "auth rm name=entity,type=CephString", "remove an entity", flags::NONE, rm),
    write(WRITES, "auth del name=entity,type=CephString", "remove an entity", flags::DEPRECATED, rm),
];

const fn read(sig: &'static str, help: &'static str, flags: u32, handler: fn(&Ctx<'_>) -> Reply) -> Command {
    Command { sig, help, module: "auth", perm: "rx", flags, handler: Handler::Read(handler) }
}

/// Entities that are listed: all but the monitors' own, which stands in their keyring only.
fn listed(state: &State) -> impl Iterator<Item = (&AuthName, &EntityAuth)> {
    state.auth.entities.iter().filter(|(name, _)| name.kind != EntityType::Mon || !name.id.is_empty())
}

fn entity_json(name: &AuthName, auth: &EntityAuth) -> Value {
    json!({ "entity": name.to_string(), "key": auth.key.to_base64(), "caps": auth.caps })
}

/// One entity as a keyring, or as a list of one in JSON.
fn keyring(format: Format, name: &AuthName, auth: &EntityAuth) -> Reply {
    let plain = || {
        let mut ring = Keyring::new();
        ring.insert(name.clone(), auth.clone());
        ring.to_string()
    };
    Reply::show(format, plain, || json!([entity_json(name, auth)]))
}

fn ls(ctx: &Ctx<'_>) -> Reply {
    let plain = || {
        let one = |(name, auth): (&AuthName, &EntityAuth)| {
            let caps: String = auth.caps.iter().map(|(s, c)| format!("\tcaps: [{s}] {c}\n")).collect();
            format!("{name}\n\tkey: {}\n{caps}", auth.key.to_base64())
        };
        listed(ctx.state).map(one).collect()
    };
    let value =
        || json!({ "auth_dump": listed(ctx.state).map(|(n, a)| entity_json(n, a)).collect::<Vec<_>>() });
    let reply = Reply::show(ctx.format, plain, value);
    if ctx.format.is_plain() { reply.with_outs("installed auth entries:\n") } else { reply }
}

/// Of an entity that is there, which an earlier release may have let in under any name.
fn name_arg(text: &str) -> Result<AuthName, Reply> {
    AuthName::parse(text).ok_or_else(|| Reply::error(Errno::EINVAL, "bad entity name"))
}

/// Of one that may be made.
fn new_name_arg(text: &str) -> Result<AuthName, Reply> {
    let name = name_arg(text)?;
    match is_plain(text) {
        true => Ok(name),
        false => Err(Reply::error(Errno::EINVAL, "bad entity name")),
    }
}

/// In a keyring a line break would end the section, or the value, and begin another one.
fn is_plain(text: &str) -> bool {
    !text.contains(char::is_control)
}

fn export(ctx: &Ctx<'_>) -> Reply {
    let Some(text) = ctx.args.text("entity") else {
        let plain = || {
            let mut ring = Keyring::new();
            listed(ctx.state).for_each(|(n, a)| ring.insert(n.clone(), a.clone()));
            ring.to_string()
        };
        let value = || listed(ctx.state).map(|(n, a)| entity_json(n, a)).collect();
        return Reply::show(ctx.format, plain, value).with_outs("exported master keyring");
    };
    let name = match name_arg(text) {
        Ok(name) => name,
        Err(reply) => return reply,
    };
    match ctx.state.auth.get(&name) {
        Some(auth) => {
            keyring(ctx.format, &name, auth).with_outs(format!("export auth(key={})", auth.key.to_base64()))
        }
        None => {
            let text = format!("no key for auth(key={})", CryptoKey::EMPTY.to_base64());
            Reply::error(Errno::ENOENT, text)
        }
    }
}

fn get(ctx: &Ctx<'_>) -> Reply {
    let name = match name_arg(ctx.args.text_or_empty("entity")) {
        Ok(name) => name,
        Err(reply) => return reply,
    };
    match ctx.state.auth.get(&name) {
        Some(auth) => keyring(ctx.format, &name, auth).with_outs(format!("exported keyring for {name}")),
        None => Reply::error(Errno::ENOENT, format!("failed to find {name} in keyring")),
    }
}

fn get_key(ctx: &Ctx<'_>) -> Reply {
    let name = match name_arg(ctx.args.text_or_empty("entity")) {
        Ok(name) => name,
        Err(reply) => return reply,
    };
    match ctx.state.auth.get(&name) {
        Some(auth) => {
            Reply::show(ctx.format, || auth.key.to_base64(), || json!({ "key": auth.key.to_base64() }))
        }
        None => Reply::error(Errno::ENOENT, format!("don't have {name}")),
    }
}

/// Services and capability strings in turns.
fn caps_arg(ctx: &WriteCtx<'_>) -> Result<BTreeMap<String, String>, Reply> {
    let words = ctx.args.list("caps");
    if words.len() % 2 != 0 {
        return Err(Reply::error(Errno::EINVAL, "bad capabilities request; odd number of arguments"));
    }
    let mut out = BTreeMap::new();
    for pair in words.chunks_exact(2) {
        if let [service, text] = pair {
            // A line break between words is as good as a blank.
            let text = text.replace(['\n', '\r', '\t'], " ");
            check_caps(service, &text).map_err(|e| Reply::error(Errno::EINVAL, e))?;
            out.insert(service.clone(), text);
        }
    }
    Ok(out)
}

pub(super) fn check_caps(service: &str, text: &str) -> Result<(), String> {
    match is_plain(text) {
        true => validate_caps(service, text).map_err(|e| e.to_string()),
        false => Err(format!("{service} caps have a line break or a control character")),
    }
}

pub(super) fn new_key(ctx: &mut WriteCtx<'_>) -> CryptoKey {
    CryptoKey::generate(ctx.now.wall, ctx.entropy)
}

/// An existing entity must have these capabilities (others too), or the request is refused.
fn differs(
    name: &AuthName,
    auth: &EntityAuth,
    wanted: &BTreeMap<String, String>,
    what: &str,
) -> Option<Reply> {
    let bad = wanted.iter().find(|(service, text)| auth.caps.get(*service) != Some(*text))?;
    let text = format!("{what} {name} exists but cap {} does not match", bad.0);
    Some(Reply::error(Errno::EINVAL, text))
}

fn add(ctx: &mut WriteCtx<'_>) -> Reply {
    let parsed = new_name_arg(ctx.args.text_or_empty("entity")).and_then(|name| Ok((name, caps_arg(ctx)?)));
    let (name, mut caps) = match parsed {
        Ok(parsed) => parsed,
        Err(reply) => return reply,
    };
    let mut key = None;
    if !ctx.input.is_empty() {
        let given = std::str::from_utf8(ctx.input).ok().and_then(|text| Keyring::parse(text).ok());
        let Some(given) = given else { return Reply::error(Errno::EINVAL, "error decoding keyring") };
        let Some(auth) = given.get(&name) else {
            return Reply::error(Errno::EINVAL, format!("keyring does not include {name}"));
        };
        if !auth.caps.is_empty() && !caps.is_empty() && auth.caps != caps {
            let text = "caps cannot be specified both in keyring and in command";
            return Reply::error(Errno::EINVAL, text);
        }
        if caps.is_empty() {
            if let Some(why) = auth.caps.iter().find_map(|(service, text)| check_caps(service, text).err()) {
                return Reply::error(Errno::EINVAL, why);
            }
            caps.clone_from(&auth.caps);
        }
        key = Some(auth.key.clone());
    }
    if let Some(auth) = ctx.state().auth.get(&name) {
        if let Some(refusal) = differs(&name, auth, &caps, "entity") {
            return refusal;
        }
        if key.is_some_and(|key| key.secret() != auth.key.secret()) {
            return Reply::error(Errno::EINVAL, format!("entity {name} exists but key does not match"));
        }
        return Reply::ok();
    }
    let key = key.unwrap_or_else(|| new_key(ctx));
    ctx.change(Change::AuthSet(name.clone(), EntityAuth { key, caps }));
    Reply::done(format!("added key for {name}"))
}

fn get_or_create(ctx: &mut WriteCtx<'_>, key_only: bool) -> Reply {
    let parsed = new_name_arg(ctx.args.text_or_empty("entity")).and_then(|name| Ok((name, caps_arg(ctx)?)));
    let (name, caps) = match parsed {
        Ok(parsed) => parsed,
        Err(reply) => return reply,
    };
    let known = ctx.state().auth.get(&name).cloned();
    let auth = match known {
        Some(auth) => match differs(&name, &auth, &caps, "key for") {
            Some(refusal) => return refusal,
            None => auth,
        },
        None => {
            let auth = EntityAuth { key: new_key(ctx), caps };
            ctx.change(Change::AuthSet(name.clone(), auth.clone()));
            auth
        }
    };
    let text = auth.key.to_base64();
    if key_only {
        return Reply::show(ctx.format, || format!("{text}\n"), || json!({ "key": text }));
    }
    entity_keyring(ctx.format, &name, &auth)
}

/// An entity's key as a keyring without capabilities, or all of it in JSON.
pub(super) fn entity_keyring(format: Format, name: &AuthName, auth: &EntityAuth) -> Reply {
    let plain = || format!("[{name}]\n\tkey = {}\n", auth.key.to_base64());
    Reply::show(format, plain, || json!([entity_json(name, auth)]))
}

fn caps(ctx: &mut WriteCtx<'_>) -> Reply {
    let parsed = name_arg(ctx.args.text_or_empty("entity")).and_then(|name| {
        match ctx.state().auth.entities.get(&name).cloned() {
            Some(auth) => Ok((name, auth, caps_arg(ctx)?)),
            None => Err(Reply::error(Errno::ENOENT, format!("couldn't find entry {name}"))),
        }
    });
    let (name, auth, caps) = match parsed {
        Ok(parsed) => parsed,
        Err(reply) => return reply,
    };
    ctx.change(Change::AuthSet(name.clone(), EntityAuth { caps, ..auth }));
    Reply::done(format!("updated caps for {name}"))
}

fn rm(ctx: &mut WriteCtx<'_>) -> Reply {
    let name = match name_arg(ctx.args.text_or_empty("entity")) {
        Ok(name) => name,
        Err(reply) => return reply,
    };
    if !ctx.state().auth.entities.contains_key(&name) {
        return Reply::done(format!("entity {name} does not exist"));
    }
    if name.kind == EntityType::Mon && name.id.is_empty() {
        return Reply::error(Errno::EPERM, "the monitors' own key cannot be removed");
    }
    ctx.change(Change::AuthRemove(name));
    Reply::done("updated")
}

fn import(ctx: &mut WriteCtx<'_>) -> Reply {
    if ctx.input.is_empty() {
        return Reply::error(Errno::EINVAL, "auth import: no data supplied");
    }
    let ring = match std::str::from_utf8(ctx.input).map(Keyring::parse) {
        Ok(Ok(ring)) => ring,
        Ok(Err(e)) => return Reply::error(Errno::EINVAL, format!("error decoding keyring: {e}")),
        Err(_) => return Reply::error(Errno::EINVAL, "error decoding keyring: not text"),
    };
    for (name, auth) in &ring.entries {
        if !is_plain(&name.id) {
            return Reply::error(Errno::EINVAL, "bad entity name");
        }
        for (service, text) in &auth.caps {
            if let Err(why) = check_caps(service, text) {
                return Reply::error(Errno::EINVAL, format!("{name}: {why}"));
            }
        }
    }
    for (name, auth) in ring.entries {
        ctx.change(Change::AuthSet(name, auth));
    }
    Reply::done("imported keyring")
}
