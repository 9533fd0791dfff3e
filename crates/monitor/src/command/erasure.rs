//! `osd erasure-code-profile set` and `rm`. Source: OSDMonitor::prepare_command_impl.

use types::Errno;

use crate::command::crush_edit::write;
use crate::command::{Command, Reply, WriteCtx};
use crate::service::erasure::{check, parse, read, show};

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
    }
    ctx.osdmap_mut().erasure_code_profiles.insert(name.to_owned(), profile.values().clone());
    Reply::ok()
}

fn rm(ctx: &mut WriteCtx<'_>) -> Reply {
    let name = ctx.args.text_or_empty("name");
    let map = ctx.osdmap();
    let used = map.pools.iter().filter(|(_, p)| p.is_erasure() && p.erasure_code_profile == name);
    let pools: Vec<&str> = used.map(|(id, _)| map.pool_name(*id).unwrap_or_default()).collect();
    if !pools.is_empty() {
        let text = format!("{} pool(s) are using the erasure code profile '{name}'", pools.join(" "));
        return Reply::error(Errno::EBUSY, text);
    }
    if ctx.osdmap_mut().erasure_code_profiles.remove(name).is_none() {
        return Reply::done(format!("erasure-code-profile {name} does not exist"));
    }
    Reply::ok()
}
