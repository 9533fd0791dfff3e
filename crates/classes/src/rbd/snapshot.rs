//! Snapshots of an image: each under a key of its own in the header.

use bytes::Bytes;
use codec::wire_plain;
use types::{Errno, SnapId, Utime};

use super::types::{Namespace, Parent, Snap, SnapArgs, SnapInfo, protection};
use super::{features, header, old, parent};
use crate::registry::{Done, Nothing, Tail, stored};
use crate::{ObjectView, keys};

pub(super) const SEQ: &str = "snap_seq";
const PREFIX: &str = "snapshot_";
const LIMIT: &str = "snap_limit";

pub(super) struct AddArgs {
    name: Bytes,
    id: u64,
    namespace: Tail<Namespace>,
}
wire_plain!(AddArgs { name, id, namespace });

pub(super) struct RenameArgs {
    id: u64,
    name: Bytes,
}
wire_plain!(RenameArgs { id, name });

pub(super) struct ProtectArgs {
    id: u64,
    status: u8,
}
wire_plain!(ProtectArgs { id, status });

pub(super) struct LimitArgs {
    /// Snapshots; all ones for no limit.
    limit: u64,
}
wire_plain!(LimitArgs { limit });

/// Ids newest first, as clients write with them.
pub(super) struct Context {
    seq: u64,
    ids: Vec<u64>,
}
wire_plain!(Context { seq, ids });

/// An id as keys hold it.
pub(super) fn key_part(id: u64) -> String {
    format!("{id:016x}")
}

pub(super) fn key(id: u64) -> Bytes {
    keys::join(PREFIX, key_part(id))
}

pub(super) fn read(v: &mut dyn ObjectView, id: u64) -> Result<Snap, Errno> {
    keys::read(v, key(id))
}

/// Stores a snapshot. One that clusters before Nautilus wrote carries its parent; that moves to the image, where it is
/// unless the image was flattened.
pub(super) fn write(v: &mut dyn ObjectView, id: u64, mut snap: Snap) -> Result<(), Errno> {
    if snap.parent.exists() {
        if !parent::find(v)?.unwrap_or_default().exists() {
            parent::write(v, &Parent { head_overlap: None, ..snap.parent.clone() })?;
        }
        snap.parent_overlap = snap.parent.head_overlap;
        snap.parent = Parent::default();
    }
    keys::write(v, key(id), &snap)
}

/// Every snapshot, by id.
pub(super) fn all(v: &mut dyn ObjectView) -> Result<Vec<Snap>, Errno> {
    let found = keys::list(v, PREFIX.as_bytes(), PREFIX, u64::MAX)?;
    found.into_iter().map(|(_, value)| stored(value)).collect()
}

/// A snapshot's id, which must not stand for the image itself.
fn real(args: &SnapArgs) -> Result<u64, Errno> {
    args.snapshot().ok_or(Errno::EINVAL)
}

pub(super) fn get_snapcontext(v: &mut dyn ObjectView, _: Nothing) -> Result<Context, Errno> {
    let found = keys::list(v, PREFIX.as_bytes(), PREFIX, u64::MAX)?;
    let id = |key: &Bytes| {
        let hex = std::str::from_utf8(key.get(PREFIX.len()..)?).ok()?;
        u64::from_str_radix(hex, 16).ok()
    };
    let ids = found.iter().rev().map(|(k, _)| id(k).unwrap_or(0)).collect();
    Ok(Context { seq: keys::read(v, SEQ)?, ids })
}

pub(super) fn get_snapshot_name(v: &mut dyn ObjectView, args: SnapArgs) -> Result<Bytes, Errno> {
    Ok(read(v, real(&args)?)?.name)
}

pub(super) fn get_snapshot_timestamp(v: &mut dyn ObjectView, args: SnapArgs) -> Result<Utime, Errno> {
    Ok(read(v, real(&args)?)?.timestamp)
}

pub(super) fn snapshot_get(v: &mut dyn ObjectView, args: SnapArgs) -> Result<SnapInfo, Errno> {
    let Snap { id, namespace, name, image_size, timestamp, child_count, .. } = read(v, real(&args)?)?;
    Ok(SnapInfo { id, namespace, name, image_size, timestamp, child_count })
}

pub(super) fn get_protection_status(v: &mut dyn ObjectView, args: SnapArgs) -> Result<u8, Errno> {
    v.stat()?;
    match read(v, real(&args)?)?.protection {
        protection::LAST.. => Err(Errno::EIO),
        status => Ok(status),
    }
}

pub(super) fn set_protection_status(v: &mut dyn ObjectView, args: ProtectArgs) -> Result<Done, Errno> {
    v.stat()?;
    features::require(v, features::LAYERING)?;
    let id = real(&SnapArgs { snap_id: args.id })?;
    if args.status >= protection::LAST {
        return Err(Errno::EINVAL);
    }
    let snap = Snap { protection: args.status, ..read(v, id)? };
    write(v, id, snap)?;
    Ok(Done)
}

fn limit(v: &mut dyn ObjectView) -> Result<u64, Errno> {
    Ok(keys::find(v, LIMIT)?.unwrap_or(u64::MAX))
}

pub(super) fn snapshot_add(v: &mut dyn ObjectView, args: AddArgs) -> Result<Done, Errno> {
    let namespace = args.namespace.0.unwrap_or(Namespace::User);
    if matches!(namespace, Namespace::Unknown) || args.id > SnapId::MAX.0 {
        return Err(Errno::EINVAL);
    }
    if args.id < keys::read(v, SEQ)? {
        return Err(Errno::ESTALE);
    }
    let (image_size, flags) = (header::head_size(v)?, features::head_flags(v)?);
    let (limit, timestamp) = (limit(v)?, v.now());
    for (count, old) in (1..).zip(all(v)?) {
        if count >= limit {
            return Err(Errno::EDQUOT);
        }
        if (args.name == old.name && namespace == old.namespace) || args.id == old.id {
            return Err(Errno::EEXIST);
        }
    }
    let parent = parent::find(v)?.unwrap_or_default();
    if namespace.is_trash() {
        features::set_op(v, features::op::SNAP_TRASH, features::op::SNAP_TRASH)?;
    }
    keys::write(v, SEQ, &args.id)?;
    let (id, name) = (args.id, args.name);
    let snap = Snap { id, name, image_size, flags, timestamp, namespace, parent, ..Snap::default() };
    write(v, id, snap)?;
    Ok(Done)
}

pub(super) fn snapshot_rename(v: &mut dyn ObjectView, args: RenameArgs) -> Result<Done, Errno> {
    let taken = |s: &Snap| s.namespace.kind() == Namespace::USER && s.name == args.name;
    if all(v)?.iter().any(taken) {
        return Err(Errno::EEXIST);
    }
    let snap = read(v, args.id)?;
    if snap.namespace.kind() != Namespace::USER {
        return Err(Errno::EINVAL);
    }
    write(v, args.id, Snap { name: args.name, ..snap })?;
    Ok(Done)
}

/// Protected snapshots and those with clones stay. With the last snapshot that shares data with the image's parent goes
/// what the image keeps of that parent.
pub(super) fn snapshot_remove(v: &mut dyn ObjectView, args: SnapArgs) -> Result<Done, Errno> {
    let snap = read(v, args.snap_id)?;
    if snap.protection != protection::UNPROTECTED || snap.child_count > 0 {
        return Err(Errno::EBUSY);
    }
    keys::remove(v, key(args.snap_id))?;
    let others: Vec<Snap> = all(v)?.into_iter().filter(|s| s.id != args.snap_id).collect();
    let child_snaps = others.iter().any(Snap::has_parent);
    let trash_snaps = others.iter().any(|s| s.namespace.is_trash());
    let parent = parent::find(v)?.filter(Parent::exists);
    let child_head = parent.as_ref().is_some_and(|p| p.head_overlap.is_some());
    if parent.is_some() && !child_head && !child_snaps {
        parent::remove(v)?;
    }
    let mut over = 0;
    if !child_snaps && !child_head {
        over |= features::op::CLONE_CHILD;
    }
    if !trash_snaps {
        over |= features::op::SNAP_TRASH;
    }
    if over != 0 {
        features::set_op(v, 0, over)?;
    }
    Ok(Done)
}

/// Hides a snapshot that clones still need, under a name that nobody uses.
pub(super) fn snapshot_trash_add(v: &mut dyn ObjectView, args: SnapArgs) -> Result<Done, Errno> {
    let snap = read(v, args.snap_id)?;
    if snap.protection != protection::UNPROTECTED {
        return Err(Errno::EBUSY);
    }
    if snap.namespace.is_trash() {
        return Err(Errno::EEXIST);
    }
    features::set_op(v, features::op::SNAP_TRASH, features::op::SNAP_TRASH)?;
    let namespace =
        Namespace::Trash { original_name: snap.name.clone(), original_kind: snap.namespace.kind() };
    let name = super::random_uuid(v).into();
    write(v, args.snap_id, Snap { namespace, name, ..snap })?;
    Ok(Done)
}

pub(super) fn snapshot_get_limit(v: &mut dyn ObjectView, _: Nothing) -> Result<u64, Errno> {
    limit(v)
}

/// ERANGE when there are more snapshots already.
pub(super) fn snapshot_set_limit(v: &mut dyn ObjectView, args: LimitArgs) -> Result<Done, Errno> {
    if args.limit == u64::MAX {
        v.omap_remove(LIMIT.into())?;
        return Ok(Done);
    }
    let count = match old::snapshot_count(v)? {
        Some(count) => count,
        None => keys::list(v, PREFIX.as_bytes(), PREFIX, u64::MAX)?.len() as u64,
    };
    if args.limit < count {
        return Err(Errno::ERANGE);
    }
    keys::write(v, LIMIT, &args.limit)?;
    Ok(Done)
}
