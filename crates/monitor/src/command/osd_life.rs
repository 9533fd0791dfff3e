//! OSDs come and go: new, create, destroy, purge, lost.
//!
//! Source: OSDMonitor::prepare_command_osd_new, _create, _destroy, _purge; AuthMonitor::validate_osd_new.

use std::collections::BTreeMap;

use cephx::{CryptoKey, EntityAuth};
use maps::flags::{WEIGHT_IN, osd_state};
use serde_json::json;
use types::{AuthName, EntityType, Errno, Fsid};

use crate::command::osd_state::osd_arg;
use crate::command::{Command, Handler, Reply, WriteCtx, flags};
use crate::edit;
use crate::state::Change;

/// Source: mon_max_osd.
const MAX_OSD: i32 = 10_000;

pub(super) const COMMANDS: &[Command] = &[
    write(
        "osd new name=uuid,type=CephUUID,req=true name=id,type=CephOsdName,req=false",
        "register an OSD by its UUID; its number is printed. With -i: its keys as JSON. With a number: replace a destroyed OSD",
        new,
    ),
    write(
        "osd create name=uuid,type=CephUUID,req=false name=id,type=CephOsdName,req=false",
        "register an OSD; its number is printed",
        create,
    ),
    write(
        "osd lost name=id,type=CephOsdName name=yes_i_really_mean_it,type=CephBool,req=false",
        "give up the data of an OSD for good",
        lost,
    ),
    write(
        "osd destroy name=id,type=CephOsdName name=force,type=CephBool,req=false \
         name=yes_i_really_mean_it,type=CephBool,req=false",
        "forget the keys of an OSD, so that its data can never be read, and keep its number for another disk",
        |ctx| destroy_or_purge(ctx, false),
    ),
    write(
        "osd purge name=id,type=CephOsdName name=force,type=CephBool,req=false \
         name=yes_i_really_mean_it,type=CephBool,req=false",
        "forget an OSD: its number, its keys and its place in the CRUSH map",
        |ctx| destroy_or_purge(ctx, true),
    ),
    hidden(
        "osd destroy-actual name=id,type=CephOsdName name=yes_i_really_mean_it,type=CephBool,req=false",
        "destroy without asking whether that is safe",
        |ctx| destroy_or_purge(ctx, false),
    ),
    hidden(
        "osd purge-actual name=id,type=CephOsdName name=yes_i_really_mean_it,type=CephBool,req=false",
        "purge without asking whether that is safe",
        |ctx| destroy_or_purge(ctx, true),
    ),
    write(
        "osd purge-new name=id,type=CephOsdName name=yes_i_really_mean_it,type=CephBool,req=false",
        "forget an OSD that never started",
        purge_new,
    ),
];

const fn write(sig: &'static str, help: &'static str, handler: fn(&mut WriteCtx<'_>) -> Reply) -> Command {
    Command { sig, help, module: "osd", perm: "rw", flags: flags::NONE, handler: Handler::Write(handler) }
}

const fn hidden(sig: &'static str, help: &'static str, handler: fn(&mut WriteCtx<'_>) -> Reply) -> Command {
    Command { sig, help, module: "osd", perm: "rw", flags: flags::HIDDEN, handler: Handler::Write(handler) }
}

fn new(ctx: &mut WriteCtx<'_>) -> Reply {
    let text = ctx.args.text_or_empty("uuid");
    let Some(uuid) = Fsid::parse(text).filter(|u| !u.is_zero()) else {
        return Reply::error(Errno::EINVAL, format!("invalid UUID value '{text}'."));
    };
    let secrets = match Secrets::parse(ctx.input) {
        Ok(secrets) => secrets,
        Err(reply) => return reply,
    };
    let id = match choose_id(ctx, Some(uuid)) {
        Ok(Chosen::Exists(id)) | Ok(Chosen::Fresh(id)) => id,
        Err(reply) => return reply,
    };
    let fresh = !ctx.osdmap().exists(id) || ctx.osdmap().is_destroyed(id);
    if let Err(reply) = store_secrets(ctx, id, uuid, &secrets) {
        return reply;
    }
    if fresh {
        make(ctx, id, uuid);
    }
    Reply::show(ctx.format, || format!("{id}\n"), || json!({ "osdid": id }))
}

fn create(ctx: &mut WriteCtx<'_>) -> Reply {
    let uuid = match ctx.args.text("uuid") {
        Some(text) => match Fsid::parse(text) {
            Some(uuid) => Some(uuid),
            None => return Reply::error(Errno::EINVAL, format!("invalid UUID value '{text}'.")),
        },
        None => None,
    };
    if uuid.is_none() && ctx.args.int("id").is_some() {
        return Reply::error(Errno::EINVAL, "need uuid when specifying id");
    }
    match choose_id(ctx, uuid) {
        Ok(chosen) => {
            let id = match chosen {
                Chosen::Exists(id) => id,
                Chosen::Fresh(id) => {
                    make(ctx, id, uuid.unwrap_or_default());
                    id
                }
            };
            Reply::show(ctx.format, || format!("{id}\n"), || json!({ "osdid": id }))
        }
        Err(reply) => reply,
    }
}

enum Chosen {
    /// This UUID has it already.
    Exists(i32),
    Fresh(i32),
}

/// The number for a UUID: the one that it has, the one asked for, or the lowest free one.
fn choose_id(ctx: &WriteCtx<'_>, uuid: Option<Fsid>) -> Result<Chosen, Reply> {
    let map = ctx.osdmap();
    let asked = match ctx.args.int("id") {
        Some(id) => match i32::try_from(id) {
            Ok(id) if (0..MAX_OSD).contains(&id) => Some(id),
            _ => return Err(Reply::error(Errno::EINVAL, format!("invalid osd id value '{id}'."))),
        },
        None => None,
    };
    let known = uuid.and_then(|u| map.osd_by_uuid(&u)).map(|id| id.0);
    match (known, asked) {
        (Some(has), Some(id)) if has != id => {
            let uuid = uuid.unwrap_or_default();
            Err(Reply::error(Errno::EEXIST, format!("uuid {uuid} already in use for different id {has}")))
        }
        (Some(has), _) => Ok(Chosen::Exists(has)),
        (None, Some(id)) if map.exists(id) && !map.is_destroyed(id) => {
            let uuid = uuid.unwrap_or_default();
            Err(Reply::error(Errno::EINVAL, format!("id {id} already in use and does not match uuid {uuid}")))
        }
        (None, Some(id)) => Ok(Chosen::Fresh(id)),
        (None, None) => {
            let free = (0..MAX_OSD).find(|id| !map.exists(*id));
            free.map(Chosen::Fresh).ok_or_else(|| Reply::error(Errno::ERANGE, "every osd id is in use"))
        }
    }
}

fn make(ctx: &mut WriteCtx<'_>, id: i32, uuid: Fsid) {
    let map = ctx.osdmap_mut();
    // Another OSD may have had the number: what PGs remember of that one is not on this disk.
    let used_again = id < map.max_osd() && !map.exists(id);
    let epoch = map.epoch;
    if id >= map.max_osd() {
        map.set_max_osd(usize::try_from(id).unwrap_or(0) + 1);
    }
    // It counts as in from the start, so that one that never comes up is noticed.
    edit::set_weight(map, id, WEIGHT_IN);
    if let Some(o) = edit::osd_mut(map, id) {
        o.state = o.state & !osd_state::DESTROYED | osd_state::EXISTS | osd_state::NEW;
        o.uuid = uuid;
        if used_again {
            o.info.lost_at = epoch;
        }
    }
}

/// What `-i` brings: keys for the OSD and its lockbox.
#[derive(Default)]
struct Secrets {
    cephx: Option<CryptoKey>,
    lockbox: Option<CryptoKey>,
    dmcrypt: Option<String>,
    device_class: Option<String>,
}

impl Secrets {
    fn parse(input: &[u8]) -> Result<Self, Reply> {
        if input.is_empty() {
            return Ok(Self::default());
        }
        let bad = |text: &str| Reply::error(Errno::EINVAL, text);
        let fields: BTreeMap<String, String> =
            serde_json::from_slice(input).map_err(|_| bad("unable to parse json"))?;
        let key = |name: &str| match fields.get(name) {
            Some(text) => CryptoKey::from_base64(text).map(Some).map_err(|_| bad("invalid cephx secret")),
            None => Ok(None),
        };
        let out = Self {
            cephx: key("cephx_secret")?,
            lockbox: key("cephx_lockbox_secret")?,
            dmcrypt: fields.get("dmcrypt_key").cloned(),
            device_class: fields.get("crush_device_class").cloned(),
        };
        if out.cephx.is_none() && (out.lockbox.is_some() || out.dmcrypt.is_some()) {
            return Err(bad("require 'cephx_secret' key"));
        }
        if out.lockbox.is_some() != out.dmcrypt.is_some() {
            return Err(bad("require both lockbox and dmcrypt keys"));
        }
        Ok(out)
    }
}

fn store_secrets(ctx: &mut WriteCtx<'_>, id: i32, uuid: Fsid, secrets: &Secrets) -> Result<(), Reply> {
    if let Some(class) = &secrets.device_class {
        let mut crush = ctx.osdmap().crush.as_ref().clone();
        if crush.set_device_class(id, class).is_ok() {
            edit::set_crush(ctx.osdmap_mut(), &crush);
        }
    }
    let caps =
        |pairs: &[(&str, &str)]| pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
    let mut add = Vec::new();
    if let Some(key) = &secrets.cephx {
        let caps = caps(&[("mon", "allow profile osd"), ("mgr", "allow profile osd"), ("osd", "allow *")]);
        let name = AuthName::new(EntityType::Osd, id.to_string());
        add.push((name, EntityAuth { key: key.clone(), caps }));
    }
    if let Some(key) = &secrets.lockbox {
        let allow = format!("allow command \"config-key get\" with key=\"dm-crypt/osd/{uuid}/luks\"");
        let name = AuthName::new(EntityType::Client, format!("osd-lockbox.{uuid}"));
        add.push((name, EntityAuth { key: key.clone(), caps: caps(&[("mon", &allow)]) }));
    }
    for (name, auth) in &add {
        if ctx.state().auth.entities.get(name).is_some_and(|known| known.key.secret() != auth.key.secret()) {
            let text = format!("existing entity '{name}' differs from the one given");
            return Err(Reply::error(Errno::EEXIST, text));
        }
    }
    for (name, auth) in add {
        ctx.change(Change::AuthSet(name, auth));
    }
    if let Some(key) = &secrets.dmcrypt {
        let name = format!("dm-crypt/osd/{uuid}/luks");
        ctx.change(Change::Kv(name, Some(key.clone().into_bytes().into())));
    }
    Ok(())
}

fn lost(ctx: &mut WriteCtx<'_>) -> Reply {
    if !ctx.args.flag("yes_i_really_mean_it") {
        let text = "are you SURE?  this might mean real, permanent data loss.  pass --yes-i-really-mean-it if you \
                    really do.";
        return Reply::error(Errno::EPERM, text);
    }
    let id = match osd_arg(ctx) {
        Ok(id) => id,
        Err(reply) => return reply,
    };
    if ctx.osdmap().is_up(id) {
        return Reply::error(Errno::EBUSY, format!("osd.{id} is not down"));
    }
    let down_at = ctx.osdmap().osd(id).map_or(types::Epoch(0), |o| o.info.down_at);
    if let Some(o) = edit::osd_mut(ctx.osdmap_mut(), id) {
        o.info.lost_at = down_at;
    }
    Reply::done(format!("marked osd lost in epoch {down_at}"))
}

fn destroy_or_purge(ctx: &mut WriteCtx<'_>, purge: bool) -> Reply {
    let id = match i32::try_from(ctx.args.int("id").unwrap_or(-1)) {
        Ok(id) if id >= 0 => id,
        _ => return Reply::error(Errno::EINVAL, "invalid osd id"),
    };
    if !ctx.args.flag("yes_i_really_mean_it") && !ctx.args.flag("force") {
        let text = "Are you SURE?  Did you verify with 'ceph osd safe-to-destroy'?  This will mean real, permanent \
                    data loss, as well as deletion of cephx and lockbox keys. Pass --yes-i-really-mean-it if you \
                    really do.";
        return Reply::error(Errno::EPERM, text);
    }
    let in_crush = ctx.osdmap().crush.is_placed(id);
    let known = ctx.osdmap().exists(id) || purge && in_crush;
    if !known {
        return Reply::done(format!("osd.{id} does not exist"));
    }
    if ctx.osdmap().is_up(id) {
        return Reply::error(Errno::EBUSY, format!("osd.{id} is not `down`."));
    }
    if purge {
        let mut crush = ctx.osdmap().crush.as_ref().clone();
        if crush.item_names.contains_key(&id) {
            if let Err(e) = crush.remove_item(id, false) {
                return Reply::error(Errno(e.errno()), format!("error removing osd.{id} from crush: {e}"));
            }
            edit::set_crush(ctx.osdmap_mut(), &crush);
        }
    }
    forget_secrets(ctx, id);
    if purge {
        edit::remove_osd(ctx.osdmap_mut(), id);
        return Reply::done(format!("purged osd.{id}"));
    }
    if let Some(o) = edit::osd_mut(ctx.osdmap_mut(), id) {
        o.state |= osd_state::DESTROYED;
        o.uuid = Fsid::default();
        // Its keys are gone, and with them whatever the disk holds. A disk that takes its place is empty.
        o.info.lost_at = o.info.lost_at.max(o.info.down_at);
    }
    Reply::done(format!("destroyed osd.{id}"))
}

fn purge_new(ctx: &mut WriteCtx<'_>) -> Reply {
    let id = i32::try_from(ctx.args.int("id").unwrap_or(-1)).unwrap_or(-1);
    let known = ctx.osdmap().osd(id).filter(|o| o.exists());
    if known.is_some_and(|o| !o.is_up() && o.state & osd_state::NEW == 0) {
        return Reply::error(Errno::EPERM, format!("osd.{id} is not new"));
    }
    destroy_or_purge(ctx, true)
}

/// Keys of the OSD and of its lockbox.
fn forget_secrets(ctx: &mut WriteCtx<'_>, id: i32) {
    let uuid = ctx.osdmap().osd(id).map(|o| o.uuid).unwrap_or_default();
    let names = [
        AuthName::new(EntityType::Osd, id.to_string()),
        AuthName::new(EntityType::Client, format!("osd-lockbox.{uuid}")),
    ];
    for name in names {
        if ctx.state().auth.entities.contains_key(&name) {
            ctx.change(Change::AuthRemove(name));
        }
    }
    let prefixes = [format!("dm-crypt/osd/{uuid}/"), format!("daemon-private/osd.{id}/")];
    let kv = &ctx.state().kv;
    let keys: Vec<String> =
        kv.keys().filter(|k| prefixes.iter().any(|p| k.starts_with(p.as_str()))).cloned().collect();
    for key in keys {
        ctx.change(Change::Kv(key, None));
    }
}
