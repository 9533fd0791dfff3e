//! Feature bits of an image, and the methods that read and change them. Source: src/include/rbd/features.h.

use codec::wire_plain;
use types::Errno;

use super::types::SnapArgs;
use crate::registry::{Done, Nothing, Tail};
use crate::{ObjectView, keys};

pub(super) const LAYERING: u64 = 1 << 0;
pub(super) const STRIPING_V2: u64 = 1 << 1;
const EXCLUSIVE_LOCK: u64 = 1 << 2;
const OBJECT_MAP: u64 = 1 << 3;
const FAST_DIFF: u64 = 1 << 4;
pub(super) const DEEP_FLATTEN: u64 = 1 << 5;
const JOURNALING: u64 = 1 << 6;
pub(super) const DATA_POOL: u64 = 1 << 7;
/// Some operation feature is set.
pub(super) const OPERATIONS: u64 = 1 << 8;
pub(super) const MIGRATING: u64 = 1 << 9;
const NON_PRIMARY: u64 = 1 << 10;
const DIRTY_CACHE: u64 = 1 << 11;

/// Every feature that Ceph 16 knows.
pub(super) const ALL: u64 = (1 << 12) - 1;

/// A client that does not know one of these must not open the image.
const INCOMPATIBLE: u64 = LAYERING | STRIPING_V2 | DATA_POOL | DIRTY_CACHE;
/// A client that does not know one of these must not write to the image.
const RW_INCOMPATIBLE: u64 = ALL;
const MUTABLE: u64 = EXCLUSIVE_LOCK | OBJECT_MAP | FAST_DIFF | JOURNALING | NON_PRIMARY | DIRTY_CACHE;
const DISABLE_ONLY: u64 = DEEP_FLATTEN;
/// Set by other methods only.
const INTERNAL: u64 = OPERATIONS | MIGRATING;

/// Features that operations leave behind, which an older client must know in order to open the image.
pub(super) mod op {
    pub const CLONE_PARENT: u64 = 1 << 0;
    pub const CLONE_CHILD: u64 = 1 << 1;
    pub const GROUP: u64 = 1 << 2;
    pub const SNAP_TRASH: u64 = 1 << 3;
    pub const ALL: u64 = CLONE_PARENT | CLONE_CHILD | GROUP | SNAP_TRASH;
}

const KEY: &str = "features";
const OP_KEY: &str = "op_features";
const FLAGS_KEY: &str = "flags";

pub(super) struct GetArgs {
    /// Not looked at: snapshots have no features of their own.
    snap_id: u64,
    read_only: Tail<bool>,
}
wire_plain!(GetArgs { snap_id, read_only });

pub(super) struct GetReply {
    features: u64,
    incompatible: u64,
}
wire_plain!(GetReply { features, incompatible });

/// New bits, and which of them count.
pub(super) struct MaskArgs {
    bits: u64,
    mask: u64,
}
wire_plain!(MaskArgs { bits, mask });

pub(super) struct SetFlagsArgs {
    bits: u64,
    mask: u64,
    snap_id: Tail<u64>,
}
wire_plain!(SetFlagsArgs { bits, mask, snap_id });

fn merged(old: u64, bits: u64, mask: u64) -> u64 {
    (old & !mask) | (bits & mask)
}

pub(super) fn read(v: &mut dyn ObjectView) -> Result<Option<u64>, Errno> {
    keys::find(v, KEY)
}

pub(super) fn write(v: &mut dyn ObjectView, features: u64) -> Result<(), Errno> {
    keys::write(v, KEY, &features)
}

/// ENOEXEC when the image lacks a feature; an image of the first format has none.
pub(super) fn require(v: &mut dyn ObjectView, needed: u64) -> Result<(), Errno> {
    match read(v)? {
        Some(features) if features & needed == needed => Ok(()),
        _ => Err(Errno::ENOEXEC),
    }
}

/// Changes operation features, and with them the feature that says whether there are any.
pub(super) fn set_op(v: &mut dyn ObjectView, bits: u64, mask: u64) -> Result<(), Errno> {
    let old_features: u64 = keys::read(v, KEY)?;
    let old: u64 = keys::find(v, OP_KEY)?.unwrap_or(0);
    let new = merged(old, bits, mask);
    if new == old {
        return Ok(());
    }
    let features = if new == 0 {
        keys::remove(v, OP_KEY)?;
        old_features & !OPERATIONS
    } else {
        keys::write(v, OP_KEY, &new)?;
        old_features | OPERATIONS
    };
    if features == old_features { Ok(()) } else { write(v, features) }
}

pub(super) fn get_all_features(_: &mut dyn ObjectView, _: Nothing) -> Result<u64, Errno> {
    Ok(ALL)
}

pub(super) fn get_features(v: &mut dyn ObjectView, args: GetArgs) -> Result<GetReply, Errno> {
    let features: u64 = keys::read(v, KEY)?;
    let read_only = args.read_only.0.unwrap_or(false);
    let incompatible = features & if read_only { INCOMPATIBLE } else { RW_INCOMPATIBLE };
    Ok(GetReply { features, incompatible })
}

pub(super) fn set_features(v: &mut dyn ObjectView, args: MaskArgs) -> Result<Done, Errno> {
    let old = read(v)?.unwrap_or(0);
    if args.mask & INTERNAL != 0 {
        return Err(Errno::EINVAL);
    }
    let mask = args.mask & ALL;
    let (on, off) = (args.bits & mask, !args.bits & mask);
    if on & !MUTABLE != 0 || off & !(MUTABLE | DISABLE_ONLY) != 0 {
        return Err(Errno::EINVAL);
    }
    write(v, merged(old, args.bits, mask))?;
    Ok(Done)
}

pub(super) fn op_features_get(v: &mut dyn ObjectView, _: Nothing) -> Result<u64, Errno> {
    Ok(keys::find(v, OP_KEY)?.unwrap_or(0))
}

pub(super) fn op_features_set(v: &mut dyn ObjectView, args: MaskArgs) -> Result<Done, Errno> {
    if args.mask & !op::ALL != 0 {
        return Err(Errno::EINVAL);
    }
    set_op(v, args.bits, args.mask)?;
    Ok(Done)
}

/// The flags that a snapshot taken now inherits.
pub(super) fn head_flags(v: &mut dyn ObjectView) -> Result<u64, Errno> {
    Ok(keys::find(v, FLAGS_KEY)?.unwrap_or(0))
}

pub(super) fn get_flags(v: &mut dyn ObjectView, args: SnapArgs) -> Result<u64, Errno> {
    match args.snapshot() {
        None => head_flags(v),
        Some(id) => Ok(super::snapshot::read(v, id)?.flags),
    }
}

pub(super) fn set_flags(v: &mut dyn ObjectView, args: SetFlagsArgs) -> Result<Done, Errno> {
    let of = SnapArgs { snap_id: args.snap_id.0.unwrap_or(super::types::HEAD) };
    match of.snapshot() {
        None => {
            let flags = merged(head_flags(v)?, args.bits, args.mask);
            keys::write(v, FLAGS_KEY, &flags)?;
        }
        Some(id) => {
            let mut snap = super::snapshot::read(v, id)?;
            snap.flags = merged(snap.flags, args.bits, args.mask);
            super::snapshot::write(v, id, snap)?;
        }
    }
    Ok(Done)
}
