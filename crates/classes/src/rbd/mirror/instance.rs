//! The daemons that mirror a pool, and which of them has which image.

use std::collections::BTreeMap;

use bytes::Bytes;
use codec::{wire_plain, wire_struct};
use types::{Errno, Utime};

use super::super::types::{ListArgs, NameArgs};
use super::image;
use super::status::{self, Daemon};
use crate::registry::{Done, Nothing};
use crate::{ObjectView, keys};

const INSTANCE: &str = "instance_";
const MAP: &str = "image_map_";

/// Which daemon has an image, and what the policy that gave it keeps.
#[derive(Debug, Clone)]
pub(in crate::rbd) struct ImageMap {
    instance_id: Bytes,
    mapped: Utime,
    data: Bytes,
}
wire_struct!(ImageMap(1, 1) { instance_id, mapped, data });

pub(in crate::rbd) struct UpdateArgs {
    global_id: Bytes,
    map: ImageMap,
}
wire_plain!(UpdateArgs { global_id, map });

pub(in crate::rbd) fn mirror_image_instance_get(
    v: &mut dyn ObjectView,
    args: NameArgs,
) -> Result<Daemon, Errno> {
    let there = status::watchers(v)?;
    status::local_daemon(v, &args.name, &there)
}

/// At most `max` images whose daemon is there.
pub(in crate::rbd) fn mirror_image_instance_list(
    v: &mut dyn ObjectView,
    args: ListArgs,
) -> Result<BTreeMap<Bytes, Daemon>, Errno> {
    let there = status::watchers(v)?;
    let mut found = BTreeMap::new();
    if args.max == 0 {
        return Ok(found);
    }
    for (id, image) in image::list(v, &args.start_after, u64::MAX)? {
        if let Ok(daemon) = status::local_daemon(v, &image.global_id, &there) {
            found.insert(id, daemon);
        }
        if found.len() as u64 >= args.max {
            break;
        }
    }
    Ok(found)
}

pub(in crate::rbd) fn mirror_instances_list(v: &mut dyn ObjectView, _: Nothing) -> Result<Vec<Bytes>, Errno> {
    let found = keys::list(v, INSTANCE.as_bytes(), INSTANCE, u64::MAX)?;
    Ok(found.iter().map(|(key, _)| keys::own_part(key, INSTANCE)).collect())
}

pub(in crate::rbd) fn mirror_instances_add(v: &mut dyn ObjectView, args: NameArgs) -> Result<Done, Errno> {
    v.put(keys::join(INSTANCE, args.name), Bytes::new())?;
    Ok(Done)
}

pub(in crate::rbd) fn mirror_instances_remove(v: &mut dyn ObjectView, args: NameArgs) -> Result<Done, Errno> {
    v.omap_remove(keys::join(INSTANCE, args.name))?;
    Ok(Done)
}

/// EINVAL for a stored entry that does not decode.
pub(in crate::rbd) fn mirror_image_map_list(
    v: &mut dyn ObjectView,
    args: ListArgs,
) -> Result<BTreeMap<Bytes, ImageMap>, Errno> {
    match keys::list_typed(v, &args.start_after, MAP, args.max) {
        Err(Errno::EIO) => Err(Errno::EINVAL),
        found => Ok(found?.into_iter().collect()),
    }
}

pub(in crate::rbd) fn mirror_image_map_update(
    v: &mut dyn ObjectView,
    args: UpdateArgs,
) -> Result<Done, Errno> {
    keys::write(v, keys::join(MAP, args.global_id), &args.map)?;
    Ok(Done)
}

pub(in crate::rbd) fn mirror_image_map_remove(v: &mut dyn ObjectView, args: NameArgs) -> Result<Done, Errno> {
    keys::remove(v, keys::join(MAP, args.name))?;
    Ok(Done)
}
