//! Snapshots: of whole pools, and those that the client manages itself.

use codec::Decode;
use maps::PoolSnap;
use messages::mon::pool_op;
use messages::osd::{CloneInfo, ListSnapsResponse};
use objecter::{Outcome, Request};
use types::{Errno, SnapId};

use crate::cluster::unexpected;
use crate::error::check;
use crate::{Error, IoCtx, ReadOp, Result, WriteOp};

/// An object's clones.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ObjectSnaps {
    /// Ascending, the head last.
    pub clones: Vec<CloneInfo>,
    /// The newest snapshot that the object knows.
    pub seq: SnapId,
}

impl IoCtx {
    async fn pool_op(&self, op: u32, snap: SnapId, name: &str) -> Result<Option<bytes::Bytes>> {
        let request =
            Request::PoolOp { pool: self.pool_id(), op, snap, name: name.to_owned(), crush_rule: 0 };
        match self.cluster().ask(request).await? {
            Outcome::PoolOp { result, response } => {
                check(result)?;
                // Who made or removed a snapshot sees it in the map.
                self.cluster().wait_for_latest_map().await?;
                Ok(response)
            }
            other => Err(unexpected(other)),
        }
    }

    /// Makes a snapshot of the whole pool. EEXIST when there is one of this name; EINVAL on a pool with self-managed ones.
    pub async fn create_snap(&self, name: &str) -> Result<()> {
        if self.snap_by_name(name).is_some() {
            return Err(Error::Os(Errno::EEXIST));
        }
        self.pool_op(pool_op::CREATE_SNAP, SnapId(0), name).await.map(drop)
    }

    pub async fn remove_snap(&self, name: &str) -> Result<()> {
        if self.snap_by_name(name).is_none() {
            self.cluster().wait_for_latest_map().await?;
            self.snap_by_name(name).ok_or(Error::Os(Errno::ENOENT))?;
        }
        self.pool_op(pool_op::DELETE_SNAP, SnapId(0), name).await.map(drop)
    }

    /// The pool's snapshots, by id.
    pub fn snaps(&self) -> Vec<PoolSnap> {
        self.cluster()
            .map()
            .pool(self.pool_id())
            .map(|p| p.snaps.values().cloned().collect())
            .unwrap_or_default()
    }

    pub fn snap_by_name(&self, name: &str) -> Option<SnapId> {
        self.snaps().iter().find(|s| s.name == name).map(|s| s.snapid)
    }

    /// A new id for a self-managed snapshot. EINVAL on a pool with snapshots of its own.
    pub async fn create_self_managed_snap(&self) -> Result<SnapId> {
        let response = self.pool_op(pool_op::CREATE_UNMANAGED_SNAP, SnapId(0), "").await?;
        Ok(SnapId::from_bytes(response.unwrap_or_default())?)
    }

    /// Gives a self-managed snapshot up; OSDs then remove what only it needs.
    pub async fn remove_self_managed_snap(&self, snap: SnapId) -> Result<()> {
        self.pool_op(pool_op::DELETE_UNMANAGED_SNAP, snap, "").await.map(drop)
    }

    /// Makes an object what it was at a snapshot.
    pub async fn rollback(&self, object: &str, snap: SnapId) -> Result<()> {
        self.write_op(object, WriteOp::new().rollback(snap)).await.map(drop)
    }

    /// The object's clones.
    pub async fn list_snaps(&self, object: &str) -> Result<ObjectSnaps> {
        let reply = self.at_snap(SnapId::SNAPDIR).submit_read(object, ReadOp::new().list_snaps()).await?;
        let r = ListSnapsResponse::from_bytes(reply.output(0))?;
        Ok(ObjectSnaps { clones: r.clones, seq: r.seq })
    }
}
