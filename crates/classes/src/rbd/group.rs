//! Groups of images: their members, the group that an image belongs to, and snapshots of a whole group. A group's name is
//! in a directory of the form that images have.

use bytes::Bytes;
use codec::{wire_plain, wire_struct};
use types::{Errno, SnapId};

use super::features;
use super::types::NameArgs;
use crate::registry::{Done, Nothing, stored};
use crate::{ObjectView, keys};

/// In an image's header: its group.
const REF: &str = "rbd_group_ref";
/// In a group's header: its members.
const IMAGE: &str = "image_";
/// In a group's header: its snapshots.
const SNAP: &str = "snapshot_";

const NO_POOL: i64 = -1;

/// Source: GroupSnapshotState.
const INCOMPLETE: u8 = 0;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ImageSpec {
    image_id: Bytes,
    pool_id: i64,
}
wire_struct!(ImageSpec(1, 1) { image_id, pool_id });

impl ImageSpec {
    /// Empty for the place before the first image.
    fn key(&self) -> Bytes {
        if self.pool_id == NO_POOL {
            return Bytes::new();
        }
        [format!("{IMAGE}{:016x}_", self.pool_id).as_bytes(), &self.image_id].concat().into()
    }

    /// EIO for a key without a pool; the id ends where a word ends.
    fn from_key(key: &Bytes) -> Result<Self, Errno> {
        let own = keys::own_part(key, IMAGE);
        let bar = own.iter().position(|b| *b == b'_').ok_or(Errno::EIO)?;
        let pool = own.get(..bar).and_then(|hex| std::str::from_utf8(hex).ok());
        let pool_id = u64::from_str_radix(pool.ok_or(Errno::EIO)?, 16).map_err(|_| Errno::EIO)?;
        let image_id = own.slice((bar + 1).min(own.len())..);
        let end = image_id.iter().position(u8::is_ascii_whitespace).unwrap_or(image_id.len());
        Ok(Self { image_id: image_id.slice(..end), pool_id: pool_id as i64 })
    }
}

/// A member of a group, attached or on its way.
pub(super) struct ImageStatus {
    spec: ImageSpec,
    state: u8,
}
wire_struct!(ImageStatus(1, 1) { spec, state });

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct GroupSpec {
    pool_id: i64,
    group_id: Bytes,
}
wire_struct!(GroupSpec(1, 1) { pool_id, group_id });

pub(super) struct ImageListArgs {
    start_after: ImageSpec,
    max: u64,
}
wire_plain!(ImageListArgs { start_after, max });

/// A member's snapshot within a group's.
#[derive(Debug, Clone)]
struct MemberSnap {
    pool_id: i64,
    image_id: Bytes,
    snap_id: SnapId,
}
wire_struct!(MemberSnap(1, 1) { pool_id, image_id, snap_id });

#[derive(Debug, Clone)]
pub(super) struct GroupSnap {
    id: Bytes,
    name: Bytes,
    state: u8,
    members: Vec<MemberSnap>,
}
wire_struct!(GroupSnap(1, 1) { id, name, state, members });

pub(super) struct SnapListArgs {
    start_after: GroupSnap,
    max: u64,
}
wire_plain!(SnapListArgs { start_after, max });

pub(super) fn group_image_set(v: &mut dyn ObjectView, args: ImageStatus) -> Result<Done, Errno> {
    keys::write(v, args.spec.key(), &args.state)?;
    Ok(Done)
}

pub(super) fn group_image_remove(v: &mut dyn ObjectView, spec: ImageSpec) -> Result<Done, Errno> {
    v.omap_remove(spec.key())?;
    Ok(Done)
}

pub(super) fn group_image_list(
    v: &mut dyn ObjectView,
    args: ImageListArgs,
) -> Result<Vec<ImageStatus>, Errno> {
    let found = keys::list(v, &args.start_after.key(), IMAGE, args.max)?;
    let status = |(key, value)| Ok(ImageStatus { state: stored(value)?, spec: ImageSpec::from_key(&key)? });
    found.into_iter().map(status).collect()
}

/// EINVAL for a stored group that does not decode.
fn group_of(v: &mut dyn ObjectView) -> Result<Option<GroupSpec>, Errno> {
    match keys::find(v, REF) {
        Err(Errno::EIO) => Err(Errno::EINVAL),
        found => found,
    }
}

/// An image is in one group at most.
pub(super) fn image_group_add(v: &mut dyn ObjectView, args: GroupSpec) -> Result<Done, Errno> {
    match group_of(v)? {
        Some(old) if old == args => return Ok(Done),
        Some(_) => return Err(Errno::EEXIST),
        None => {}
    }
    features::set_op(v, features::op::GROUP, features::op::GROUP)?;
    keys::write(v, REF, &args)?;
    Ok(Done)
}

pub(super) fn image_group_remove(v: &mut dyn ObjectView, args: GroupSpec) -> Result<Done, Errno> {
    if group_of(v)?.ok_or(Errno::ENOENT)? != args {
        return Err(Errno::EBADF);
    }
    v.omap_remove(REF.into())?;
    features::set_op(v, 0, features::op::GROUP)?;
    Ok(Done)
}

/// Of pool -1 for an image without a group.
pub(super) fn image_group_get(v: &mut dyn ObjectView, _: Nothing) -> Result<GroupSpec, Errno> {
    Ok(group_of(v)?.unwrap_or(GroupSpec { pool_id: NO_POOL, group_id: Bytes::new() }))
}

fn snaps(v: &mut dyn ObjectView, start_after: &Bytes, max: u64) -> Result<Vec<GroupSnap>, Errno> {
    let found = keys::list_typed(v, start_after, SNAP, max)?;
    Ok(found.into_iter().map(|(_, snap)| snap).collect())
}

/// A snapshot begins incomplete, once; its name is its own in the group.
pub(super) fn group_snap_set(v: &mut dyn ObjectView, args: GroupSnap) -> Result<Done, Errno> {
    if args.name.is_empty() || args.id.is_empty() {
        return Err(Errno::EINVAL);
    }
    let all = snaps(v, &Bytes::new(), u64::MAX)?;
    if all.iter().any(|s| s.name == args.name && s.id != args.id) {
        return Err(Errno::EEXIST);
    }
    let key = keys::join(SNAP, &args.id);
    if args.state == INCOMPLETE && keys::optional(v.omap_value(&key))?.is_some() {
        return Err(Errno::EEXIST);
    }
    keys::write(v, key, &args)?;
    Ok(Done)
}

pub(super) fn group_snap_remove(v: &mut dyn ObjectView, args: NameArgs) -> Result<Done, Errno> {
    v.omap_remove(keys::join(SNAP, args.name))?;
    Ok(Done)
}

pub(super) fn group_snap_get_by_id(v: &mut dyn ObjectView, args: NameArgs) -> Result<GroupSnap, Errno> {
    keys::read(v, keys::join(SNAP, args.name))
}

/// What cannot be listed is not there, as Ceph has it.
pub(super) fn group_snap_list(v: &mut dyn ObjectView, args: SnapListArgs) -> Result<Vec<GroupSnap>, Errno> {
    Ok(snaps(v, &args.start_after.id, args.max).unwrap_or_default())
}
