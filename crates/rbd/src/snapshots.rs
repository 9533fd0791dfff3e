//! Snapshots: taking, removing, protecting, rolling back.
//!
//! Source: src/librbd/operation/Snapshot*Request.cc, src/librbd/object_map/Snapshot*Request.cc.

use std::sync::PoisonError;

use bytes::Bytes;
use codec::Encode;
use rados::{PoolId, WriteOp};
use types::{Errno, SnapId};

use crate::class::{self, HEAD, Namespace, OldParentKey, ProtectArgs, SnapAddArgs, SnapRenameArgs};
use crate::error::{Context, Error, Result};
use crate::header::{Snapshot, SnapshotKind, feature, flag};
use crate::image::Image;
use crate::object_map::{self, EXISTS, EXISTS_CLEAN, Map};
use crate::ops;

/// Source: RBD_PROTECTION_STATUS_*.
const UNPROTECTED: u8 = 0;
const UNPROTECTING: u8 = 1;
const PROTECTED: u8 = 2;

impl Image {
    fn user_snapshot(&self, name: &str) -> Result<Snapshot> {
        let found = self.inner.view().header.snapshot(name).cloned();
        found.ok_or_else(|| Error::refused(Errno::ENOENT, format!("there is no snapshot {name}")))
    }

    /// Takes a snapshot, between changes.
    ///
    /// # Errors
    /// EEXIST for a name in use.
    pub async fn create_snap(&self, name: &str) -> Result<u64> {
        let _quiet = self.inner.quiet().await?;
        let view = self.inner.view();
        let object = self.inner.header_object();
        let id = loop {
            let id = view.data.create_self_managed_snap().await?;
            let args = SnapAddArgs { name: name.into(), id: id.0, namespace: Namespace::user() };
            match class::change(&self.inner.meta, &object, "snapshot_add", args.to_bytes()).await {
                Ok(()) => break id,
                // Another snapshot took a newer id meanwhile.
                Err(e) if e.errno() == Errno::ESTALE => {}
                Err(e) => {
                    let _ = view.data.remove_self_managed_snap(id).await;
                    if e.errno() == Errno::EEXIST {
                        return Err(Error::refused(
                            Errno::EEXIST,
                            format!("there is a snapshot {name} already"),
                        ));
                    }
                    return Err(e);
                }
            }
        };
        // A change under the older view would overwrite what the snapshot holds.
        self.inner.refresh().await?;
        let mapped = match self.map_of_new_snap(id.0).await {
            Ok(()) => Ok(()),
            Err(e) => self.inner.invalidate_maps(&[HEAD, id.0], &e.to_string()).await,
        };
        self.inner.tell_header_update().await;
        mapped.map(|()| id.0)
    }

    /// The snapshot's map is the head's; from now on nothing of the head changed.
    async fn map_of_new_snap(&self, snap: u64) -> Result<()> {
        let inner = &self.inner;
        let header = &inner.view().header;
        if !header.has(feature::OBJECT_MAP)
            || inner.map.lock().unwrap_or_else(PoisonError::into_inner).is_none()
        {
            return Ok(());
        }
        let head = class::object::map(&inner.id, None);
        let size = inner.meta.stat(&head).await?.size;
        let bytes = inner.meta.read(&head, 0, size).await?;
        inner.meta.write_full(&class::object::map(&inner.id, Some(snap)), bytes).await?;
        if header.has(feature::FAST_DIFF) {
            let op = object_map::guarded().exec("rbd", "object_map_snap_add", Bytes::new());
            inner.meta.write_op(&head, op).await.context(|| format!("changing {head}"))?;
            let mut map = inner.map.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(map) = map.as_mut() {
                (0..map.len()).filter(|i| map.get(*i) == EXISTS).collect::<Vec<_>>().into_iter().for_each(
                    |i| {
                        map.set(i, EXISTS_CLEAN);
                    },
                );
            }
        }
        Ok(())
    }

    /// Removes a snapshot; one that clones need goes to the trash and leaves with the last of them.
    ///
    /// # Errors
    /// EBUSY while it is protected; ENOENT when there is none.
    pub async fn remove_snap(&self, name: &str) -> Result<()> {
        let snapshot = self.user_snapshot(name)?;
        self.remove_snap_by_id(snapshot.id).await
    }

    pub(crate) async fn remove_snap_by_id(&self, id: u64) -> Result<()> {
        let _quiet = self.inner.quiet().await?;
        self.remove_snap_quiet(id).await
    }

    /// The same while the caller keeps the gate shut.
    pub(crate) async fn remove_snap_quiet(&self, id: u64) -> Result<()> {
        self.inner.refresh().await?;
        let view = self.inner.view();
        let snapshot = view.header.snaps.iter().find(|s| s.id == id).cloned();
        let snapshot = snapshot.ok_or_else(|| Error::refused(Errno::ENOENT, "there is no such snapshot"))?;
        let object = self.inner.header_object();
        if snapshot.is_protected {
            return Err(Error::refused(Errno::EBUSY, format!("snapshot {} is protected", snapshot.name)));
        }
        if snapshot.child_count > 0 {
            if snapshot.kind == SnapshotKind::Trash {
                return Err(Error::refused(Errno::EBUSY, "clones need the snapshot"));
            }
            class::change(&self.inner.meta, &object, "snapshot_trash_add", class::number(id)).await?;
        } else {
            self.map_of_removed_snap(&snapshot).await?;
            view.data.remove_self_managed_snap(SnapId(id)).await?;
            class::change(&self.inner.meta, &object, "snapshot_remove", class::number(id)).await?;
        }
        self.inner.refresh().await?;
        self.inner.tell_header_update().await;
        Ok(())
    }

    /// What changed before the snapshot now changed before the next one.
    async fn map_of_removed_snap(&self, snapshot: &Snapshot) -> Result<()> {
        let inner = &self.inner;
        let view = inner.view();
        if !view.header.has(feature::OBJECT_MAP) {
            return Ok(());
        }
        let object = class::object::map(&inner.id, Some(snapshot.id));
        if view.header.has(feature::FAST_DIFF) {
            self.merge_into_next_map(snapshot).await?;
        }
        match inner.meta.remove(&object).await {
            Err(e) if !e.is_not_found() => Err(e).context(|| format!("removing {object}")),
            _ => Ok(()),
        }
    }

    /// Without a map to rely upon nobody knows what changed before the snapshot: then the next map is not to be relied upon.
    async fn merge_into_next_map(&self, snapshot: &Snapshot) -> Result<()> {
        let inner = &self.inner;
        let header = &inner.view().header;
        let invalid = flag::OBJECT_MAP_INVALID | flag::FAST_DIFF_INVALID;
        let next = header.snaps.iter().find(|s| s.id > snapshot.id);
        if next.map_or(header.flags, |s| s.flags) & invalid != 0 {
            return Ok(());
        }
        let next = next.map(|s| s.id);
        let has_head = inner.map.lock().unwrap_or_else(PoisonError::into_inner).is_some();
        let lost = if snapshot.flags & invalid != 0 {
            "it is invalid".to_owned()
        } else if next.is_none() && !has_head {
            "the head's map is not ours".to_owned()
        } else {
            match object_map::load(&inner.meta, &inner.id, Some(snapshot.id)).await {
                Ok(removed) => return self.merge_map(&removed, next).await,
                Err(e) => e.to_string(),
            }
        };
        let why = format!("the map of the removed snapshot {} is lost: {lost}", snapshot.name);
        inner.invalidate_maps(&[next.unwrap_or(HEAD)], &why).await
    }

    async fn merge_map(&self, removed: &Map, next: Option<u64>) -> Result<()> {
        let inner = &self.inner;
        let op = if next.is_some() { WriteOp::new() } else { object_map::guarded() };
        let op = op.exec("rbd", "object_map_snap_remove", removed.to_bytes());
        match inner.meta.write_op(&class::object::map(&inner.id, next), op).await {
            Err(e) if !e.is_not_found() => return Err(e.into()),
            _ => {}
        }
        if next.is_none() {
            let head = object_map::load(&inner.meta, &inner.id, None).await?;
            *inner.map.lock().unwrap_or_else(PoisonError::into_inner) = Some(head);
        }
        Ok(())
    }

    /// # Errors
    /// EEXIST for a name in use.
    pub async fn rename_snap(&self, from: &str, to: &str) -> Result<()> {
        let _ready = self.inner.ready().await?;
        if self.inner.view().header.snapshot(to).is_some() {
            return Err(Error::refused(Errno::EEXIST, format!("there is a snapshot {to} already")));
        }
        let args = SnapRenameArgs { id: self.user_snapshot(from)?.id, name: to.into() };
        let object = self.inner.header_object();
        class::change(&self.inner.meta, &object, "snapshot_rename", args.to_bytes()).await?;
        self.inner.refresh().await?;
        self.inner.tell_header_update().await;
        Ok(())
    }

    /// Keeps a snapshot from being removed, as clones of the first generation need.
    ///
    /// # Errors
    /// EBUSY when it is protected already.
    pub async fn protect_snap(&self, name: &str) -> Result<()> {
        let _ready = self.inner.ready().await?;
        let snapshot = self.user_snapshot(name)?;
        if snapshot.is_protected {
            return Err(Error::refused(Errno::EBUSY, format!("snapshot {name} is protected already")));
        }
        self.set_protection(snapshot.id, PROTECTED).await
    }

    /// # Errors
    /// EBUSY while there are clones of the first generation; EINVAL when it is not protected.
    pub async fn unprotect_snap(&self, name: &str) -> Result<()> {
        let _ready = self.inner.ready().await?;
        let snapshot = self.user_snapshot(name)?;
        if !snapshot.is_protected {
            return Err(Error::refused(Errno::EINVAL, format!("snapshot {name} is not protected")));
        }
        self.set_protection(snapshot.id, UNPROTECTING).await?;
        let children = self.old_children(snapshot.id).await;
        let status = match &children {
            Ok(0) => UNPROTECTED,
            _ => PROTECTED,
        };
        self.set_protection(snapshot.id, status).await?;
        match children? {
            0 => Ok(()),
            n => Err(Error::refused(Errno::EBUSY, format!("snapshot {name} has {n} clones"))),
        }
    }

    async fn set_protection(&self, id: u64, status: u8) -> Result<()> {
        let args = ProtectArgs { id, status };
        let object = self.inner.header_object();
        class::change(&self.inner.meta, &object, "set_protection_status", args.to_bytes()).await?;
        self.inner.refresh().await?;
        self.inner.tell_header_update().await;
        Ok(())
    }

    /// Clones of the first generation, in all pools.
    async fn old_children(&self, snap: u64) -> Result<usize> {
        let meta = &self.inner.meta;
        let key = OldParentKey { pool: meta.pool_id().0, image: self.inner.id.clone(), snap }.to_bytes();
        let mut count = 0;
        for (pool, _) in meta.cluster().pools() {
            let io = meta.cluster().pool_by_id(PoolId(pool.0)).await?;
            let children: Result<std::collections::BTreeSet<String>> =
                class::call(&io, class::object::CHILDREN, "get_children", key.clone()).await;
            match children {
                Ok(children) => count += children.len(),
                Err(e) if matches!(e.errno(), Errno::ENOENT | Errno::EOPNOTSUPP | Errno::EPERM) => {}
                Err(e) => return Err(e),
            }
        }
        Ok(count)
    }

    /// Makes the image what it was at a snapshot.
    ///
    /// # Errors
    /// ENOENT when there is no such snapshot.
    pub async fn rollback(&self, name: &str, progress: &(dyn Fn(u64, u64) + Sync)) -> Result<()> {
        let _quiet = self.inner.quiet().await?;
        self.inner.refresh().await?;
        let snapshot = self.user_snapshot(name)?;
        ops::resize_quiet(self, snapshot.size, progress).await?;
        let then = self.map_before_rollback(&snapshot).await?;
        let view = self.inner.view();
        let objects = view.layout.objects(snapshot.size);
        for object in 0..objects {
            match view.data.rollback(&view.object(object), SnapId(snapshot.id)).await {
                Err(e) if !e.is_not_found() => return Err(e.into()),
                _ => {}
            }
            progress(object + 1, objects);
        }
        // What exists now is what existed then, and all of it counts as changed.
        match then {
            Some(then) => self.save_map(then).await,
            None => Ok(()),
        }
    }

    /// Before the first object changes the map tells of every object that exists or existed then: wherever the rollback
    /// ends, no object is missing from it. Gives the map for its end.
    async fn map_before_rollback(&self, snapshot: &Snapshot) -> Result<Option<Map>> {
        let inner = &self.inner;
        let Some(now) = inner.map.lock().unwrap_or_else(PoisonError::into_inner).clone() else {
            return Ok(None);
        };
        if snapshot.flags & flag::OBJECT_MAP_INVALID != 0 {
            return inner.invalidate_map("the snapshot's map is invalid").await.map(|()| None);
        }
        let then = match object_map::load(&inner.meta, &inner.id, Some(snapshot.id)).await {
            Ok(map) => map,
            Err(e) => {
                let why = format!("the snapshot's map cannot be read: {e}");
                return inner.invalidate_map(&why).await.map(|()| None);
            }
        };
        self.save_map(then.existing_with(&now)).await?;
        Ok(Some(then.existing_with(&then)))
    }

    async fn save_map(&self, map: Map) -> Result<()> {
        let inner = &self.inner;
        let op = object_map::guarded().exec("rbd", "object_map_save", map.to_bytes());
        inner.meta.write_op(&class::object::map(&inner.id, None), op).await?;
        *inner.map.lock().unwrap_or_else(PoisonError::into_inner) = Some(map);
        Ok(())
    }
}
