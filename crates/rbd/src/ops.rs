//! Changes of a whole image: size, parent.
//!
//! Source: src/librbd/operation/{Resize,Trim,Flatten}Request.cc, src/librbd/image/{Clone,AttachChild,DetachChild}Request.cc.

use codec::Encode;
use rados::{IoCtx, PoolId};
use std::sync::PoisonError;
use types::Errno;

use crate::class::{
    self, ChildArgs, ChildSpec, MaskArgs, OldChildArgs, OldParentKey, ParentAttachArgs, ParentSpec,
};
use crate::error::{Error, Result};
use crate::header::{self, SnapshotKind, feature, op_feature};
use crate::image::{Image, OpenOptions};
use crate::io::{ObjectChange, Running};
use crate::manage::CreateOptions;
use crate::{object_map, pool};

/// Objects flattened or removed at once.
const AT_ONCE: usize = 16;

/// Removes what lies behind `size` bytes. The lock is ours, and the gate is shut.
pub(crate) async fn trim(image: &Image, size: u64, progress: &dyn Fn(u64, u64)) -> Result<()> {
    let view = image.inner.view();
    let (from, to) = (view.layout.objects(size), view.layout.objects(view.size));
    let mut at = from;
    while at < to {
        let end = (at + AT_ONCE as u64).min(to);
        let gone = (at..end).map(|object| (object, ObjectChange::Drop)).collect();
        image.inner.change_objects(&view, gone).await?;
        at = end;
        progress(at - from, to - from);
    }
    // The last objects may hold bytes behind the new end.
    let tail = size..view.size.min(size.next_multiple_of(view.layout.object_size * view.layout.stripe_count));
    let mut cuts: std::collections::BTreeMap<u64, u64> = std::collections::BTreeMap::new();
    for extent in view.layout.extents(tail.start, tail.end.saturating_sub(tail.start)) {
        if extent.object < from {
            let cut = cuts.entry(extent.object).or_insert(extent.offset);
            *cut = extent.offset.min(*cut);
        }
    }
    let cuts = cuts.into_iter().map(|(object, offset)| (object, ObjectChange::Truncate { offset })).collect();
    image.inner.change_objects(&view, cuts).await
}

pub(crate) async fn resize(image: &Image, size: u64, progress: &(dyn Fn(u64, u64) + Sync)) -> Result<()> {
    let _quiet = image.inner.quiet().await?;
    resize_quiet(image, size, progress).await
}

/// Resizes while the caller keeps the gate shut.
pub(crate) async fn resize_quiet(
    image: &Image,
    size: u64,
    progress: &(dyn Fn(u64, u64) + Sync),
) -> Result<()> {
    let inner = &image.inner;
    let view = inner.view();
    if !view.layout.is_possible(size) {
        return Err(Error::refused(Errno::EINVAL, format!("{size} bytes are more than an image can have")));
    }
    let objects = view.layout.objects(size);
    let has_map = inner.map.lock().unwrap_or_else(PoisonError::into_inner).is_some();
    if size < view.size {
        trim(image, size, progress).await?;
    } else if has_map {
        object_map::resize(&inner.meta, &inner.id, objects, false).await?;
    }
    class::change(&inner.meta, &inner.header_object(), "set_size", class::number(size)).await?;
    if has_map && size < view.size {
        object_map::resize(&inner.meta, &inner.id, objects, false).await?;
    }
    if let Some(map) = inner.map.lock().unwrap_or_else(PoisonError::into_inner).as_mut() {
        map.resize(objects);
    }
    inner.refresh().await?;
    inner.tell_header_update().await;
    Ok(())
}

impl Image {
    /// Changes the size; what lies behind a smaller one is gone.
    ///
    /// # Errors
    /// EINVAL for more objects than the object map holds, or more bytes than an image can have.
    pub async fn resize(&self, size: u64, progress: &(dyn Fn(u64, u64) + Sync)) -> Result<()> {
        resize(self, size, progress).await
    }

    /// Makes a clone of the snapshot that is open, in the pool and namespace of `child_io`.
    ///
    /// # Errors
    /// EINVAL when no snapshot is open, or the parent or the options lack layering.
    pub async fn clone_to(&self, child_io: &IoCtx, name: &str, options: &CreateOptions) -> Result<()> {
        let view = self.inner.view();
        let refuse = |what: &str| Err(Error::refused(Errno::EINVAL, what));
        let Some(snap) = self.inner.snap_id else { return refuse("a clone is made of a snapshot") };
        if !view.header.has(feature::LAYERING) || options.features & feature::LAYERING == 0 {
            return refuse("a clone needs the layering feature on both sides");
        }
        let snapshot = view.header.snaps.iter().find(|s| s.id == snap);
        let is_old = snapshot.is_some_and(|s| s.is_protected);
        pool::create(child_io, name, view.size, options).await?;
        let child = Image::open(child_io, name, OpenOptions::default()).await?;
        let result = self.attach(&child, snap, is_old).await;
        child.close().await?;
        if result.is_err() {
            let _ = pool::remove(child_io, name, &|_, _| {}).await;
        }
        result
    }

    async fn attach(&self, child: &Image, snap: u64, is_old: bool) -> Result<()> {
        let (parent, child) = (&self.inner, &child.inner);
        let header = child.header_object();
        let spec = ParentSpec {
            pool: parent.meta.pool_id().0,
            namespace: parent.meta.namespace().to_owned(),
            image: parent.id.clone(),
            snap,
        };
        let args = ParentAttachArgs { spec, overlap: self.size(), reattach: false };
        class::change(&child.meta, &header, "parent_attach", args.to_bytes()).await?;
        if is_old && parent.meta.namespace().is_empty() && child.meta.namespace().is_empty() {
            let key = OldParentKey { pool: parent.meta.pool_id().0, image: parent.id.clone(), snap };
            let args = OldChildArgs { parent: key, child: child.id.clone() };
            return class::change(&child.meta, class::object::CHILDREN, "add_child", args.to_bytes()).await;
        }
        let args = MaskArgs { bits: op_feature::CLONE_CHILD, mask: op_feature::CLONE_CHILD };
        class::change(&child.meta, &header, "op_features_set", args.to_bytes()).await?;
        let args = ChildArgs { snap, child: child_spec(child) };
        class::change(&parent.meta, &parent.header_object(), "child_attach", args.to_bytes()).await?;
        parent.tell_header_update().await;
        Ok(())
    }

    /// Copies what the image shares with its parent, and forgets the parent.
    ///
    /// # Errors
    /// EINVAL when there is no parent.
    pub async fn flatten(&self, progress: &(dyn Fn(u64, u64) + Sync)) -> Result<()> {
        drop(self.inner.ready().await?);
        let view = self.inner.view();
        let Some(parent) = view.header.parent.clone().filter(|_| view.overlap > 0) else {
            return Err(Error::refused(Errno::EINVAL, "the image has no parent"));
        };
        let objects = view.layout.objects(view.overlap);
        let mut running = Running::default();
        for object in 0..objects {
            if !running.has_room(AT_ONCE).await {
                break;
            }
            let inner = self.inner.clone();
            running.tasks.spawn(async move { inner.flatten_object(object).await });
            progress(object, objects);
        }
        running.finish().await?;
        let _ready = self.inner.ready().await?;
        let header = self.header();
        let snaps_share = header.snaps.iter().any(|s| s.parent_overlap > 0);
        if !snaps_share || header.has(feature::DEEP_FLATTEN) {
            detach_child(self, &parent, header.op_features & op_feature::CLONE_CHILD != 0).await?;
        }
        let object = self.inner.header_object();
        class::change(&self.inner.meta, &object, "parent_detach", crate::manage::nothing()).await?;
        self.inner.refresh().await?;
        self.inner.tell_header_update().await;
        progress(objects, objects);
        Ok(())
    }
}

fn child_spec(child: &crate::image::Inner) -> ChildSpec {
    ChildSpec {
        pool: child.meta.pool_id().0,
        image: child.id.clone(),
        namespace: child.meta.namespace().to_owned(),
    }
}

/// Takes the image off its parent's list; a snapshot in the trash goes with its last clone.
pub(crate) async fn detach_child(image: &Image, parent: &header::Parent, is_new: bool) -> Result<()> {
    let child = &image.inner;
    if !is_new {
        let key = OldParentKey { pool: parent.pool, image: parent.image_id.clone(), snap: parent.snap };
        let args = OldChildArgs { parent: key, child: child.id.clone() };
        return match class::change(&child.meta, class::object::CHILDREN, "remove_child", args.to_bytes())
            .await
        {
            Err(e) if !e.is_not_found() => Err(e),
            _ => Ok(()),
        };
    }
    let io =
        child.meta.cluster().pool_by_id(PoolId(parent.pool)).await?.with_namespace(parent.namespace.clone());
    let args = ChildArgs { snap: parent.snap, child: child_spec(child) };
    let object = class::object::header(&parent.image_id);
    match class::change(&io, &object, "child_detach", args.to_bytes()).await {
        Err(e) if e.is_not_found() => return Ok(()),
        other => other?,
    }
    let header = header::read(&io, &parent.image_id, header::Access::Read).await?;
    let snap = header.snaps.iter().find(|s| s.id == parent.snap);
    if snap.is_some_and(|s| s.kind == SnapshotKind::Trash && s.child_count == 0) {
        let parent_image = Image::open_by_id(&io, &parent.image_id, OpenOptions::default()).await?;
        let removed = parent_image.remove_snap_by_id(parent.snap).await;
        parent_image.close().await?;
        return removed;
    }
    Ok(())
}
