//! A pool's directory of images, and that of its groups: names to ids and back. Source: rbd_directory and
//! rbd_group_directory in src/include/rbd_types.h.

use std::collections::BTreeMap;

use bytes::Bytes;
use codec::{Encode, wire_plain};
use types::Errno;

use super::header::is_valid_id;
use super::types::{ListArgs, NameArgs, NameIdArgs};
use crate::registry::{Done, Raw, input};
use crate::{ObjectView, keys};

const NAME: &str = "name_";
const ID: &str = "id_";
const STATE: &str = "state";

/// Whether images may be added. Source: DirectoryState.
const READY: u8 = 0;
const ADD_DISABLED: u8 = 1;

pub(super) struct RenameArgs {
    from: Bytes,
    to: Bytes,
    id: Bytes,
}
wire_plain!(RenameArgs { from, to, id });

pub(super) struct StateArgs {
    state: u8,
}
wire_plain!(StateArgs { state });

/// EEXIST for a name in use; EBADF for an id in use, unless this is a rename, which keeps its id.
fn add(v: &mut dyn ObjectView, name: &Bytes, id: &Bytes, id_is_new: bool) -> Result<Done, Errno> {
    if name.is_empty() || !is_valid_id(id) {
        return Err(Errno::EINVAL);
    }
    let missing = |v: &mut dyn ObjectView, key: &Bytes| v.omap_value(key).err() == Some(Errno::ENOENT);
    let (name_key, id_key) = (keys::join(NAME, name), keys::join(ID, id));
    if !missing(v, &name_key) {
        return Err(Errno::EEXIST);
    }
    if id_is_new && !missing(v, &id_key) {
        return Err(Errno::EBADF);
    }
    v.omap_set(BTreeMap::from([(name_key, id.to_bytes()), (id_key, name.to_bytes())]))?;
    Ok(Done)
}

/// ESTALE when name and id do not belong together.
fn remove(v: &mut dyn ObjectView, name: &Bytes, id: &Bytes) -> Result<Done, Errno> {
    let (name_key, id_key) = (keys::join(NAME, name), keys::join(ID, id));
    let stored_id: Bytes = keys::read(v, &name_key)?;
    let stored_name: Bytes = keys::read(v, &id_key)?;
    if stored_name != *name || stored_id != *id {
        return Err(Errno::ESTALE);
    }
    v.omap_remove(name_key)?;
    v.omap_remove(id_key)?;
    Ok(Done)
}

pub(super) fn dir_get_id(v: &mut dyn ObjectView, args: NameArgs) -> Result<Bytes, Errno> {
    keys::read(v, keys::join(NAME, args.name))
}

pub(super) fn dir_get_name(v: &mut dyn ObjectView, args: NameArgs) -> Result<Bytes, Errno> {
    keys::read(v, keys::join(ID, args.name))
}

/// Names and ids.
pub(super) fn dir_list(v: &mut dyn ObjectView, args: ListArgs) -> Result<BTreeMap<Bytes, Bytes>, Errno> {
    Ok(keys::list_typed(v, &args.start_after, NAME, args.max)?.into_iter().collect())
}

/// The directory comes into being with its first entry.
pub(super) fn dir_add_image(v: &mut dyn ObjectView, raw: Raw) -> Result<Done, Errno> {
    v.create(false)?;
    let args: NameIdArgs = input(&raw.0)?;
    add(v, &args.name, &args.id, true)
}

pub(super) fn dir_remove_image(v: &mut dyn ObjectView, args: NameIdArgs) -> Result<Done, Errno> {
    remove(v, &args.name, &args.id)
}

pub(super) fn dir_rename_image(v: &mut dyn ObjectView, args: RenameArgs) -> Result<Done, Errno> {
    remove(v, &args.from, &args.id)?;
    add(v, &args.to, &args.id, false)
}

pub(super) fn dir_state_assert(v: &mut dyn ObjectView, args: StateArgs) -> Result<Done, Errno> {
    let state: u8 = keys::read(v, STATE)?;
    if state == args.state { Ok(Done) } else { Err(Errno::ENOENT) }
}

/// A directory that holds images cannot be closed.
pub(super) fn dir_state_set(v: &mut dyn ObjectView, args: StateArgs) -> Result<Done, Errno> {
    let exists = keys::optional(v.stat())?.is_some();
    match args.state {
        READY => {}
        ADD_DISABLED if !exists => return Err(Errno::ENOENT),
        ADD_DISABLED => {
            if !keys::list(v, NAME.as_bytes(), NAME, 1)?.is_empty() {
                return Err(Errno::EBUSY);
            }
        }
        _ => return Err(Errno::EINVAL),
    }
    keys::write(v, STATE, &args.state)?;
    Ok(Done)
}
