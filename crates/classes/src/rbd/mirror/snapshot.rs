//! Snapshots that mirroring made: who still needs one, and how far its copy has come.

use bytes::Bytes;
use codec::wire_plain;
use types::Errno;

use super::super::snapshot;
use super::super::types::{MirrorNamespace, Namespace, Snap};
use crate::ObjectView;
use crate::registry::Done;

pub(in crate::rbd) struct UnlinkArgs {
    snap_id: u64,
    peer_uuid: Bytes,
}
wire_plain!(UnlinkArgs { snap_id, peer_uuid });

pub(in crate::rbd) struct ProgressArgs {
    snap_id: u64,
    complete: bool,
    last_copied_object: u64,
}
wire_plain!(ProgressArgs { snap_id, complete, last_copied_object });

/// EINVAL for a snapshot that mirroring did not make.
fn read(v: &mut dyn ObjectView, id: u64) -> Result<(Snap, MirrorNamespace), Errno> {
    let snap = snapshot::read(v, id)?;
    match snap.namespace.clone() {
        Namespace::Mirror(mirror) => Ok((snap, mirror)),
        _ => Err(Errno::EINVAL),
    }
}

fn write(v: &mut dyn ObjectView, id: u64, snap: Snap, mirror: MirrorNamespace) -> Result<Done, Errno> {
    snapshot::write(v, id, Snap { namespace: Namespace::Mirror(mirror), ..snap })?;
    Ok(Done)
}

/// The last peer lets go of a snapshot only while it is the newest: ERESTART otherwise, for the caller to remove it.
pub(in crate::rbd) fn mirror_image_snapshot_unlink_peer(
    v: &mut dyn ObjectView,
    args: UnlinkArgs,
) -> Result<Done, Errno> {
    let (snap, mut mirror) = read(v, args.snap_id)?;
    if !mirror.peers.contains(&args.peer_uuid) {
        return Err(Errno::ENOENT);
    }
    if mirror.peers.len() == 1 {
        let newer = |s: &Snap| s.id > args.snap_id && matches!(s.namespace, Namespace::Mirror(_));
        if snapshot::all(v)?.iter().any(newer) {
            return Err(Errno::ERESTART);
        }
    }
    mirror.peers.remove(&args.peer_uuid);
    write(v, args.snap_id, snap, mirror)
}

pub(in crate::rbd) fn mirror_image_snapshot_set_copy_progress(
    v: &mut dyn ObjectView,
    args: ProgressArgs,
) -> Result<Done, Errno> {
    let (snap, mut mirror) = read(v, args.snap_id)?;
    mirror.complete = args.complete;
    if mirror.is_non_primary() {
        mirror.last_copied_object = args.last_copied_object;
    }
    write(v, args.snap_id, snap, mirror)
}
