//! Whether a pool is mirrored, and by which name it is known to its peers.

use bytes::Bytes;
use types::Errno;

use super::super::types::NameArgs;
use super::peer;
use crate::registry::{Done, Nothing};
use crate::{ObjectView, keys};

const UUID: &str = "mirror_uuid";
const MODE: &str = "mirror_mode";

/// Source: MirrorMode in src/cls/rbd/cls_rbd_types.h.
const DISABLED: u32 = 0;
const IMAGE: u32 = 1;
const POOL: u32 = 2;

pub(super) fn uuid(v: &mut dyn ObjectView) -> Result<Bytes, Errno> {
    v.omap_value(UUID.as_bytes())
}

/// EINVAL unless the pool is mirrored.
pub(super) fn require_enabled(v: &mut dyn ObjectView) -> Result<(), Errno> {
    match keys::find(v, MODE)? {
        None | Some(DISABLED) => Err(Errno::EINVAL),
        Some(_) => Ok(()),
    }
}

pub(in crate::rbd) fn mirror_uuid_get(v: &mut dyn ObjectView, _: Nothing) -> Result<Bytes, Errno> {
    uuid(v)
}

/// The name stands as long as the pool is mirrored.
pub(in crate::rbd) fn mirror_uuid_set(v: &mut dyn ObjectView, args: NameArgs) -> Result<Done, Errno> {
    if args.name.is_empty() || keys::find(v, MODE)?.unwrap_or(DISABLED) != DISABLED {
        return Err(Errno::EINVAL);
    }
    v.put(UUID, args.name)?;
    Ok(Done)
}

pub(in crate::rbd) fn mirror_mode_get(v: &mut dyn ObjectView, _: Nothing) -> Result<u32, Errno> {
    keys::read(v, MODE)
}

/// Mirroring begins when the pool has a name, and ends when it has no peers.
pub(in crate::rbd) fn mirror_mode_set(v: &mut dyn ObjectView, mode: u32) -> Result<Done, Errno> {
    match mode {
        IMAGE | POOL => {
            keys::optional(uuid(v))?.ok_or(Errno::EINVAL)?;
            keys::write(v, MODE, &mode)?;
        }
        DISABLED => {
            if !peer::all(v)?.is_empty() {
                return Err(Errno::EBUSY);
            }
            keys::remove(v, MODE)?;
            keys::remove(v, UUID)?;
        }
        _ => return Err(Errno::EINVAL),
    }
    Ok(Done)
}
