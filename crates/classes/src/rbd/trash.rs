//! A pool's trash: images that were removed and can still come back.

use std::collections::BTreeMap;

use bytes::Bytes;
use codec::wire_plain;
use types::{Errno, Utime};

use super::header::is_valid_id;
use super::types::{ListArgs, NameArgs};
use crate::registry::{Done, Raw, input, wire_grown};
use crate::{ObjectView, keys};

const PREFIX: &str = "id_";

/// An image in the trash. Source: TrashImageSpec in src/cls/rbd/cls_rbd_types.h.
#[derive(Debug, Clone, Default)]
pub(super) struct TrashSpec {
    source: u8,
    name: Bytes,
    deleted: Utime,
    /// From then on it may be purged.
    deferred_until: Utime,
    state: u8,
}
wire_grown!(TrashSpec(2, 1) { source, name, deleted, deferred_until; 2: state });

pub(super) struct AddArgs {
    id: Bytes,
    spec: TrashSpec,
}
wire_plain!(AddArgs { id, spec });

pub(super) struct StateArgs {
    id: Bytes,
    new: u8,
    expected: u8,
}
wire_plain!(StateArgs { id, new, expected });

/// The trash comes into being with its first entry.
pub(super) fn trash_add(v: &mut dyn ObjectView, raw: Raw) -> Result<Done, Errno> {
    v.create(false)?;
    let args: AddArgs = input(&raw.0)?;
    if !is_valid_id(&args.id) {
        return Err(Errno::EINVAL);
    }
    let key = keys::join(PREFIX, args.id);
    if keys::find::<TrashSpec>(v, &key)?.is_some() {
        return Err(Errno::EEXIST);
    }
    keys::write(v, key, &args.spec)?;
    Ok(Done)
}

pub(super) fn trash_remove(v: &mut dyn ObjectView, args: NameArgs) -> Result<Done, Errno> {
    let key = keys::join(PREFIX, args.name);
    v.omap_value(&key)?;
    v.omap_remove(key)?;
    Ok(Done)
}

pub(super) fn trash_list(
    v: &mut dyn ObjectView,
    args: ListArgs,
) -> Result<BTreeMap<Bytes, TrashSpec>, Errno> {
    Ok(keys::list_typed(v, &args.start_after, PREFIX, args.max)?.into_iter().collect())
}

/// As stored.
pub(super) fn trash_get(v: &mut dyn ObjectView, args: NameArgs) -> Result<Raw, Errno> {
    v.omap_value(&keys::join(PREFIX, args.name)).map(Raw)
}

/// ESTALE when the image is neither in the expected state nor already in the new one.
pub(super) fn trash_state_set(v: &mut dyn ObjectView, args: StateArgs) -> Result<Done, Errno> {
    let key = keys::join(PREFIX, args.id);
    let spec: TrashSpec = keys::read(v, &key)?;
    if spec.state == args.expected {
        keys::write(v, key, &TrashSpec { state: args.new, ..spec })?;
    } else if spec.state != args.new {
        return Err(Errno::ESTALE);
    }
    Ok(Done)
}
