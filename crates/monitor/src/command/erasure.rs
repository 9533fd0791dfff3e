//! `osd erasure-code-profile set` and `rm`. Source: OSDMonitor::prepare_command_impl.

use maps::OsdMap;
use types::Errno;

use crate::command::crush_edit::write;
use crate::command::{Command, Reply, WriteCtx};
use crate::service::erasure::{Values, check, parse, read, show};

pub(super) const COMMANDS: &[Command] = &[
    write(
        "osd erasure-code-profile set name=name,type=CephString,goodchars=[A-Za-z0-9-_.] \
         name=profile,type=CephString,n=N,req=false name=force,type=CephBool,req=false",
        "make an erasure code profile of key=value words; --force replaces one that exists",
        set,
    ),
    write(
        "osd erasure-code-profile rm name=name,type=CephString,goodchars=[A-Za-z0-9-_.]",
        "remove an erasure code profile",
        rm,
    ),
];

fn set(ctx: &mut WriteCtx<'_>) -> Reply {
    let (name, force) = (ctx.args.text_or_empty("name"), ctx.args.flag("force"));
    let map = ctx.osdmap();
    let made = parse(&ctx.args.list("profile")).and_then(|values| check(map, &values, force));
    let profile = match made {
        Ok(profile) => profile,
        Err((errno, text)) => return Reply::error(errno, text),
    };
    if let Some(old) = map.erasure_code_profiles.get(name) {
        // One that cannot be read is not the same.
        let old = read(map, name).map_or_else(|_| old.clone(), |old| old.values().clone());
        if &old == profile.values() {
            return Reply::ok();
        }
        if !force {
            let text = format!(
                "will not override erasure code profile {name} because the existing profile {} is different from the \
                 proposed profile {}",
                show(&old),
                show(profile.values())
            );
            return Reply::error(Errno::EPERM, text);
        }
        // Ceph takes it, and what the pools hold is read by another code from then on.
        let pools = pools_of(map, name);
        if !pools.is_empty() && code_of(&old) != code_of(profile.values()) {
            let text = format!("pool(s) {} hold data of the code of profile '{name}'", pools.join(" "));
            return Reply::error(Errno::EBUSY, text);
        }
    }
    ctx.osdmap_mut().erasure_code_profiles.insert(name.to_owned(), profile.values().clone());
    Reply::ok()
}

/// The pools that use a profile.
fn pools_of<'a>(map: &'a OsdMap, profile: &str) -> Vec<&'a str> {
    let used = map.pools.iter().filter(|(_, p)| p.is_erasure() && p.erasure_code_profile == profile);
    used.map(|(id, _)| map.pool_name(*id).unwrap_or_default()).collect()
}

/// What of a profile decides how shards are made: not where they lie, nor the chunks of new pools.
fn code_of(values: &Values) -> Vec<(&String, &String)> {
    let is_code = |key: &&String| !key.starts_with("crush-") && *key != "stripe_unit";
    values.iter().filter(|(key, _)| is_code(key)).collect()
}

fn rm(ctx: &mut WriteCtx<'_>) -> Reply {
    let name = ctx.args.text_or_empty("name");
    let map = ctx.osdmap();
    let pools = pools_of(map, name);
    if !pools.is_empty() {
        let text = format!("{} pool(s) are using the erasure code profile '{name}'", pools.join(" "));
        return Reply::error(Errno::EBUSY, text);
    }
    if ctx.osdmap_mut().erasure_code_profiles.remove(name).is_none() {
        return Reply::done(format!("erasure-code-profile {name} does not exist"));
    }
    Reply::ok()
}
