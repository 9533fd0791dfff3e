//! Who was cloned from what: the first generation lists a pool's clones in one object, the second lists a snapshot's
//! clones beside the snapshot.

use std::collections::BTreeSet;

use bytes::Bytes;
use codec::{Encode, wire_plain};
use types::Errno;

use super::types::SnapArgs;
use super::{features, snapshot};
use crate::registry::{Done, wire_grown};
use crate::{ObjectView, keys};

const CHILDREN: &str = "snap_children_";

/// A snapshot that was cloned; its encoding is the key of its clones' ids.
pub(super) struct ParentKey {
    pool_id: u64,
    image_id: Bytes,
    snap_id: u64,
}
wire_plain!(ParentKey { pool_id, image_id, snap_id });

pub(super) struct ChildArgs {
    parent: ParentKey,
    child: Bytes,
}
wire_plain!(ChildArgs { parent, child });

#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ChildSpec {
    pool_id: i64,
    pool_namespace: Bytes,
    image_id: Bytes,
}
wire_grown!(ChildSpec(2, 1) { pool_id, image_id; 2: pool_namespace });

pub(super) struct AttachArgs {
    snap_id: u64,
    child: ChildSpec,
}
wire_plain!(AttachArgs { snap_id, child });

pub(super) fn add_child(v: &mut dyn ObjectView, args: ChildArgs) -> Result<Done, Errno> {
    let key = args.parent.to_bytes();
    let mut children: BTreeSet<Bytes> = keys::find(v, &key)?.unwrap_or_default();
    if !children.insert(args.child) {
        return Err(Errno::EEXIST);
    }
    keys::write(v, key, &children)?;
    Ok(Done)
}

pub(super) fn remove_child(v: &mut dyn ObjectView, args: ChildArgs) -> Result<Done, Errno> {
    let key = args.parent.to_bytes();
    let mut children: BTreeSet<Bytes> = keys::read(v, &key)?;
    if !children.remove(&args.child) {
        return Err(Errno::ENOENT);
    }
    if children.is_empty() {
        v.omap_remove(key)?;
    } else {
        keys::write(v, key, &children)?;
    }
    Ok(Done)
}

pub(super) fn get_children(v: &mut dyn ObjectView, args: ParentKey) -> Result<BTreeSet<Bytes>, Errno> {
    keys::read(v, args.to_bytes())
}

fn children_key(snap_id: u64) -> Bytes {
    keys::join(CHILDREN, snapshot::key_part(snap_id))
}

fn children(v: &mut dyn ObjectView, snap_id: u64) -> Result<BTreeSet<ChildSpec>, Errno> {
    Ok(keys::find(v, children_key(snap_id))?.unwrap_or_default())
}

pub(super) fn child_attach(v: &mut dyn ObjectView, args: AttachArgs) -> Result<Done, Errno> {
    let mut snap = snapshot::read(v, args.snap_id)?;
    if snap.namespace.is_trash() {
        return Err(Errno::ENOENT);
    }
    let mut children = children(v, args.snap_id)?;
    if !children.insert(args.child) {
        return Err(Errno::EEXIST);
    }
    keys::write(v, children_key(args.snap_id), &children)?;
    snap.child_count = snap.child_count.wrapping_add(1);
    snapshot::write(v, args.snap_id, snap)?;
    features::set_op(v, features::op::CLONE_PARENT, features::op::CLONE_PARENT)?;
    Ok(Done)
}

pub(super) fn child_detach(v: &mut dyn ObjectView, args: AttachArgs) -> Result<Done, Errno> {
    let mut snap = snapshot::read(v, args.snap_id)?;
    let mut children = children(v, args.snap_id)?;
    if snap.child_count as usize != children.len() {
        return Err(Errno::EINVAL);
    }
    if !children.remove(&args.child) {
        return Err(Errno::ENOENT);
    }
    if children.is_empty() {
        keys::remove(v, children_key(args.snap_id))?;
    } else {
        keys::write(v, children_key(args.snap_id), &children)?;
    }
    snap.child_count = snap.child_count.wrapping_sub(1);
    let was_last = snap.child_count == 0;
    snapshot::write(v, args.snap_id, snap)?;
    let others = |v: &mut dyn ObjectView| {
        Ok(snapshot::all(v)?.iter().any(|s| s.id != args.snap_id && s.child_count > 0))
    };
    if was_last && !others(v)? {
        features::set_op(v, 0, features::op::CLONE_PARENT)?;
    }
    Ok(Done)
}

pub(super) fn children_list(v: &mut dyn ObjectView, args: SnapArgs) -> Result<BTreeSet<ChildSpec>, Errno> {
    snapshot::read(v, args.snap_id)?;
    keys::read(v, children_key(args.snap_id))
}
