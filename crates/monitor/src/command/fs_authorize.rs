//! `fs authorize`: a client's key with capabilities for folders of a file system.
//!
//! Source: "fs authorize" in AuthMonitor::prepare_command in src/mon/AuthMonitor.cc.

use std::collections::BTreeMap;

use cephx::EntityAuth;
use types::{AuthName, Errno};

use crate::command::auth::{check_caps, entity_keyring, new_key};
use crate::command::{Access, Command, Reply, WriteCtx, flags, write};
use crate::state::Change;

pub(super) const COMMANDS: &[Command] = &[write(
    Access { module: "auth", perm: "rwx" },
    "fs authorize name=filesystem,type=CephString name=entity,type=CephString name=caps,type=CephString,n=N",
    "add auth for <entity> to access file system <filesystem> based on following directory and permissions pairs",
    flags::NONE,
    authorize,
)];

fn authorize(ctx: &mut WriteCtx<'_>) -> Reply {
    match try_authorize(ctx) {
        Ok(reply) | Err(reply) => reply,
    }
}

fn try_authorize(ctx: &mut WriteCtx<'_>) -> Result<Reply, Reply> {
    let refuse = |errno, text: String| Err(Reply::error(errno, text));
    let entity = ctx.args.text_or_empty("entity");
    let name = AuthName::parse(entity).filter(|_| !entity.contains(char::is_control));
    let Some(name) = name else { return refuse(Errno::EINVAL, "bad entity name".to_owned()) };
    let filesystem = ctx.args.text_or_empty("filesystem").to_owned();
    let every = filesystem == "*" || filesystem == "all";
    if !every && ctx.state().fs.map.by_name(&filesystem).is_none() {
        return refuse(Errno::EINVAL, format!("filesystem {filesystem} does not exist."));
    }
    let fsname = if every { String::new() } else { format!(" fsname={filesystem}") };
    let (mds, osd_perm) = grants(&ctx.args.list("caps"), &fsname)?;
    let caps: BTreeMap<String, String> = [
        ("mon".to_owned(), format!("allow r{fsname}")),
        ("osd".to_owned(), format!("allow {osd_perm} tag cephfs data={filesystem}")),
        ("mds".to_owned(), mds),
    ]
    .into();
    for (service, text) in &caps {
        check_caps(service, text).map_err(|e| Reply::error(Errno::EINVAL, e))?;
    }
    if let Some(known) = ctx.state().auth.get(&name).cloned() {
        let differs = caps.iter().any(|(service, text)| known.caps.get(service) != Some(text));
        if differs {
            let text = format!(
                "{name} already has fs capabilities that differ from those supplied. To generate a new auth key for \
                 {name}, first remove {name} from configuration files, execute 'ceph auth rm {name}', then execute \
                 this command again."
            );
            return refuse(Errno::EINVAL, text);
        }
        return Ok(entity_keyring(ctx.format, &name, &known));
    }
    let auth = EntityAuth { key: new_key(ctx), caps };
    ctx.change(Change::AuthSet(name.clone(), auth.clone()));
    Ok(entity_keyring(ctx.format, &name, &auth))
}

/// The metadata servers' part, and what the OSDs must allow: from folders, permissions, and `root_squash` behind
/// them where it is wanted.
fn grants(words: &[String], fsname: &str) -> Result<(String, &'static str), Reply> {
    let refuse = |text: String| Err(Reply::error(Errno::EINVAL, text));
    let (mut mds, mut osd) = (Vec::new(), "r");
    let mut words = words.iter().map(String::as_str).peekable();
    while let (Some(path), Some(perm)) = (words.next(), words.next()) {
        let squash = words.next_if(|word| *word == "root_squash").is_some();
        if perm != "r" && !perm.starts_with("rw") {
            return refuse("Permission flags must start with 'r' or 'rw'.".to_owned());
        }
        if perm.starts_with("rw") {
            osd = "rw";
        }
        let mut last = '\0';
        for flag in perm.chars().skip(2) {
            if last >= flag {
                let text = "Permission flags (except 'rw') must be specified in alphabetical order.";
                return refuse(text.to_owned());
            }
            if !matches!(flag, 'p' | 's') {
                return refuse(format!("Unknown permission flag '{flag}'."));
            }
            last = flag;
        }
        let path = if path == "/" { String::new() } else { format!(" path={path}") };
        let squash = if squash { " root_squash" } else { "" };
        mds.push(format!("allow {perm}{fsname}{path}{squash}"));
    }
    Ok((mds.join(", "), osd))
}
