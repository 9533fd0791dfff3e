//! The images of a pool that are mirrored, by their id here and by the id that all sites share.

use std::collections::BTreeMap;

use bytes::Bytes;
use codec::wire_plain;
use types::Errno;

use super::super::types::{ListArgs, NameArgs};
use super::status;
use crate::registry::{Done, wire_grown};
use crate::{ObjectView, keys};

const PREFIX: &str = "image_";
const GLOBAL: &str = "global_";

/// Source: MirrorImageState in src/cls/rbd/cls_rbd_types.h.
const DISABLING: u8 = 0;
const ENABLED: u8 = 1;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(in crate::rbd) struct MirrorImage {
    pub(super) global_id: Bytes,
    state: u8,
    mode: u8,
}
wire_grown!(MirrorImage(2, 1) { global_id, state; 2: mode });

pub(in crate::rbd) struct SetArgs {
    image_id: Bytes,
    image: MirrorImage,
}
wire_plain!(SetArgs { image_id, image });

fn key(image_id: &Bytes) -> Bytes {
    keys::join(PREFIX, image_id)
}

fn global_key(global_id: &Bytes) -> Bytes {
    keys::join(GLOBAL, global_id)
}

/// Images behind an id, with their own ids.
pub(super) fn list(
    v: &mut dyn ObjectView,
    start_after: &[u8],
    max: u64,
) -> Result<Vec<(Bytes, MirrorImage)>, Errno> {
    keys::list_typed(v, start_after, PREFIX, max)
}

/// Whether an image is mirrored at the moment; one that cannot be read is not.
pub(super) fn is_enabled(v: &mut dyn ObjectView, global_id: &Bytes) -> bool {
    let image = keys::read(v, global_key(global_id)).and_then(|id: Bytes| keys::read(v, key(&id)));
    image.is_ok_and(|image: MirrorImage| image.state == ENABLED)
}

/// Ids here, and the ids that all sites share.
pub(in crate::rbd) fn mirror_image_list(
    v: &mut dyn ObjectView,
    args: ListArgs,
) -> Result<BTreeMap<Bytes, Bytes>, Errno> {
    let found = list(v, &args.start_after, args.max)?;
    Ok(found.into_iter().map(|(id, image)| (id, image.global_id)).collect())
}

pub(in crate::rbd) fn mirror_image_get_image_id(
    v: &mut dyn ObjectView,
    args: NameArgs,
) -> Result<Bytes, Errno> {
    keys::read(v, global_key(&args.name))
}

pub(in crate::rbd) fn mirror_image_get(v: &mut dyn ObjectView, args: NameArgs) -> Result<MirrorImage, Errno> {
    keys::read(v, key(&args.name))
}

/// An image keeps the id that it is mirrored by, and does not begin by being disabled.
pub(in crate::rbd) fn mirror_image_set(v: &mut dyn ObjectView, args: SetArgs) -> Result<Done, Errno> {
    let SetArgs { image_id, image } = args;
    match keys::find::<MirrorImage>(v, key(&image_id))? {
        Some(old) if old.global_id != image.global_id => return Err(Errno::EINVAL),
        Some(_) => {}
        None => {
            if keys::find::<Bytes>(v, global_key(&image.global_id))?.is_some() {
                return Err(Errno::EEXIST);
            }
            if image.state == DISABLING {
                return Err(Errno::ENOENT);
            }
        }
    }
    keys::write(v, key(&image_id), &image)?;
    keys::write(v, global_key(&image.global_id), &image_id)?;
    Ok(Done)
}

/// EBUSY unless the image is being disabled.
pub(in crate::rbd) fn mirror_image_remove(v: &mut dyn ObjectView, args: NameArgs) -> Result<Done, Errno> {
    let image: MirrorImage = keys::read(v, key(&args.name))?;
    if image.state != DISABLING {
        return Err(Errno::EBUSY);
    }
    v.omap_remove(key(&args.name))?;
    keys::remove(v, global_key(&image.global_id))?;
    status::remove(v, &image.global_id)?;
    Ok(Done)
}
