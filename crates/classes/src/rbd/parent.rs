//! The parent of a clone, as the clone's header names it: both generations of methods.

use bytes::Bytes;
use codec::wire_plain;
use types::Errno;

use super::types::{Parent, ParentSpec, SnapArgs};
use super::{features, header, snapshot};
use crate::registry::{Done, Nothing, Tail};
use crate::{ObjectView, keys};

const KEY: &str = "parent";

/// A parent as the first generation of methods knows it: without a namespace.
pub(super) struct OldParent {
    pool_id: i64,
    image_id: Bytes,
    snap_id: u64,
    overlap: u64,
}
wire_plain!(OldParent { pool_id, image_id, snap_id, overlap });

pub(super) struct AttachArgs {
    spec: ParentSpec,
    overlap: u64,
    reattach: Tail<bool>,
}
wire_plain!(AttachArgs { spec, overlap, reattach });

pub(super) fn find(v: &mut dyn ObjectView) -> Result<Option<Parent>, Errno> {
    keys::find(v, KEY)
}

pub(super) fn write(v: &mut dyn ObjectView, parent: &Parent) -> Result<(), Errno> {
    keys::write(v, KEY, parent)
}

pub(super) fn remove(v: &mut dyn ObjectView) -> Result<(), Errno> {
    keys::remove(v, KEY)
}

/// The parent shares no more than the image's size. A parent that the image has already is taken again only by
/// `reattach`, or when nothing but snapshots shared data with it.
fn attach(v: &mut dyn ObjectView, mut parent: Parent, reattach: bool) -> Result<Done, Errno> {
    v.stat()?;
    features::require(v, features::LAYERING)?;
    let overlap = parent.head_overlap.unwrap_or(0);
    if !parent.exists() || overlap == 0 {
        return Err(Errno::EINVAL);
    }
    if let Some(old) = find(v)? {
        if (old.head_overlap.is_some() || old != parent) && !reattach {
            return Err(Errno::EEXIST);
        }
    }
    parent.head_overlap = Some(overlap.min(header::head_size(v)?));
    write(v, &parent)?;
    Ok(Done)
}

/// Forgets the parent, as far as no snapshot shares data with it; with deep-flatten the snapshots forget it too.
fn detach(v: &mut dyn ObjectView, old_method: bool) -> Result<Done, Errno> {
    v.stat()?;
    let features = features::read(v)?.unwrap_or(0);
    if features & features::LAYERING == 0 {
        return Err(Errno::ENOEXEC);
    }
    let parent = find(v)?.ok_or(Errno::ENOENT)?;
    if old_method && !parent.pool_namespace.is_empty() {
        return Err(Errno::EXDEV);
    }
    if parent.head_overlap.is_none() {
        return Err(Errno::ENOENT);
    }
    let mut children = snapshot::all(v)?;
    children.retain(|s| s.has_parent());
    if features & features::DEEP_FLATTEN == 0 && !children.is_empty() {
        write(v, &Parent { head_overlap: None, ..parent })?;
        return Ok(Done);
    }
    for mut snap in children {
        snap.parent = Parent::default();
        snap.parent_overlap = None;
        snapshot::write(v, snap.id, snap)?;
    }
    remove(v)?;
    features::set_op(v, 0, features::op::CLONE_CHILD)?;
    Ok(Done)
}

pub(super) fn get_parent(v: &mut dyn ObjectView, args: SnapArgs) -> Result<OldParent, Errno> {
    v.stat()?;
    let mut parent = Parent::default();
    if features::require(v, features::LAYERING).is_ok() {
        parent = find(v)?.unwrap_or_default();
        if !parent.pool_namespace.is_empty() {
            return Err(Errno::EXDEV);
        }
        if let Some(id) = args.snapshot() {
            let snap = keys::optional(snapshot::read(v, id))?.unwrap_or_default();
            parent = match snap.parent_overlap {
                _ if snap.parent.exists() => snap.parent,
                Some(_) if !parent.exists() => return Err(Errno::EINVAL),
                Some(overlap) => Parent { head_overlap: Some(overlap), ..parent },
                None => Parent::default(),
            };
        }
    }
    let Parent { pool_id, image_id, snap_id, head_overlap, .. } = parent;
    Ok(OldParent { pool_id, image_id, snap_id, overlap: head_overlap.unwrap_or(0) })
}

pub(super) fn set_parent(v: &mut dyn ObjectView, args: OldParent) -> Result<Done, Errno> {
    let OldParent { pool_id, image_id, snap_id, overlap } = args;
    let spec = ParentSpec { pool_id, pool_namespace: Bytes::new(), image_id, snap_id };
    attach(v, spec.with_overlap(overlap), false)
}

pub(super) fn remove_parent(v: &mut dyn ObjectView, _: Nothing) -> Result<Done, Errno> {
    detach(v, true)
}

pub(super) fn parent_get(v: &mut dyn ObjectView, _: Nothing) -> Result<ParentSpec, Errno> {
    v.stat()?;
    if features::require(v, features::LAYERING).is_err() {
        return Ok(Parent::default().spec());
    }
    let parent = match find(v)? {
        Some(parent) => parent,
        None => {
            let of_snaps = snapshot::all(v)?.into_iter().map(|s| s.parent).filter(Parent::exists);
            of_snaps.last().unwrap_or_default()
        }
    };
    Ok(parent.spec())
}

pub(super) fn parent_overlap_get(v: &mut dyn ObjectView, args: SnapArgs) -> Result<Option<u64>, Errno> {
    if features::require(v, features::LAYERING).is_err() {
        return Ok(None);
    }
    let Some(id) = args.snapshot() else {
        return Ok(find(v)?.and_then(|p| p.head_overlap));
    };
    let snap = snapshot::read(v, id)?;
    let of_parent = if snap.parent.exists() { snap.parent.head_overlap } else { None };
    Ok(snap.parent_overlap.or(of_parent))
}

pub(super) fn parent_attach(v: &mut dyn ObjectView, args: AttachArgs) -> Result<Done, Errno> {
    attach(v, args.spec.with_overlap(args.overlap), args.reattach.0.unwrap_or(false))
}

pub(super) fn parent_detach(v: &mut dyn ObjectView, _: Nothing) -> Result<Done, Errno> {
    detach(v, false)
}
