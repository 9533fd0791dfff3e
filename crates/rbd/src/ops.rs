//! Changes of a whole image: size, parent.
//!
//! Source: src/librbd/operation/{Resize,Trim,Flatten}Request.cc, src/librbd/image/{Clone,AttachChild,DetachChild}Request.cc.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::PoisonError;

use bytes::Bytes;
use codec::Encode;
use rados::{IoCtx, PoolId, WriteOp};
use types::Errno;

use crate::class::{
    self, ChildArgs, ChildSpec, MaskArgs, OldChildArgs, OldParentKey, ParentAttachArgs, ParentSpec,
};
use crate::error::{Context, Error, Result};
use crate::header::{self, Header, SnapshotKind, feature, op_feature};
use crate::image::{Image, OpenOptions};
use crate::io::{ObjectChange, Running};
use crate::manage::CreateOptions;
use crate::{object_map, pool};

/// Objects flattened or removed at once.
const AT_ONCE: usize = 16;

/// What is said of whatever `stop` has ended.
pub(crate) fn cancelled() -> Error {
    Error::refused(Errno::ECANCELED, "it was cancelled")
}

/// Why a trim has ended early.
pub(crate) struct Untrimmed {
    pub error: Error,
    /// Objects that are whole: the first ones. `None` where no object was touched.
    pub left: Option<u64>,
}

impl From<Untrimmed> for Error {
    fn from(Untrimmed { error, .. }: Untrimmed) -> Self {
        error
    }
}

/// Removes what lies behind `size` bytes, from the end on, or what it comes to before `stop` ends it. The
/// lock is ours, and the gate is shut.
pub(crate) async fn trim(
    image: &Image,
    size: u64,
    progress: &(dyn Fn(u64, u64) + Sync),
    stop: &(dyn Fn() -> bool + Sync),
) -> std::result::Result<(), Untrimmed> {
    let view = image.inner.view();
    let (from, to) = (view.layout.objects(size), view.layout.objects(view.size));
    let drop_some = |objects: Range<u64>| {
        let gone = objects.map(|object| (object, ObjectChange::Drop)).collect();
        image.inner.change_objects(&view, gone)
    };
    trim_objects(from..to, drop_some, progress, stop).await?;
    // The last objects may hold bytes behind the new end.
    let tail = size..view.size.min(size.next_multiple_of(view.layout.object_size * view.layout.stripe_count));
    let mut cuts: BTreeMap<u64, u64> = BTreeMap::new();
    for extent in view.layout.extents(tail.start, tail.end.saturating_sub(tail.start)) {
        if extent.object < from {
            let cut = cuts.entry(extent.object).or_insert(extent.offset);
            *cut = extent.offset.min(*cut);
        }
    }
    let cuts = cuts.into_iter().map(|(object, offset)| (object, ObjectChange::Truncate { offset })).collect();
    let cut = image.inner.change_objects(&view, cuts).await;
    cut.map_err(|error| Untrimmed { error, left: Some(from) })
}

/// Drops objects from the end on, some at once.
async fn trim_objects<F: Future<Output = Result<()>>>(
    objects: Range<u64>,
    drop_some: impl Fn(Range<u64>) -> F,
    progress: &(dyn Fn(u64, u64) + Sync),
    stop: &(dyn Fn() -> bool + Sync),
) -> std::result::Result<(), Untrimmed> {
    let Range { start, end } = objects;
    let mut left = end;
    while left > start {
        if stop() {
            return Err(Untrimmed { error: cancelled(), left: Some(left).filter(|left| *left < end) });
        }
        let some = left.saturating_sub(AT_ONCE as u64).max(start)..left;
        left = some.start;
        drop_some(some).await.map_err(|error| Untrimmed { error, left: Some(left) })?;
        progress(end - left, end - start);
    }
    Ok(())
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
        trim(image, size, progress, &|| false).await?;
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
        self.flatten_unless(progress, &|| false).await
    }

    /// The same, but it ends early when `stop` says so before all is copied: the image keeps its parent.
    ///
    /// # Errors
    /// As [`Image::flatten`]; ECANCELED when it was stopped; EBUSY where another client keeps the lock.
    pub async fn flatten_unless(
        &self,
        progress: &(dyn Fn(u64, u64) + Sync),
        stop: &(dyn Fn() -> bool + Sync),
    ) -> Result<()> {
        drop(self.inner.wait_unless(self.inner.ready(), stop).await?);
        let view = self.inner.view();
        if view.header.parent.is_none() && finish_leaving(self).await? {
            return Ok(());
        }
        if view.header.parent.is_none() || view.overlap == 0 {
            return Err(Error::refused(Errno::EINVAL, "the image has no parent"));
        }
        let objects = view.layout.objects(view.overlap);
        let copy = |object| {
            let inner = self.inner.clone();
            async move { inner.flatten_object(object).await }
        };
        of_each(objects, progress, stop, copy).await?;
        // From here on it is not ended, if the lock is ours still.
        let _ready = self.inner.wait_unless(self.inner.ready(), stop).await?;
        // Without the exclusive lock others may have changed it meanwhile.
        self.inner.refresh().await?;
        let header = self.header();
        if !snaps_share(&header) || header.has(feature::DEEP_FLATTEN) {
            leave_parent(self).await?;
        } else {
            let object = self.inner.header_object();
            class::change(&self.inner.meta, &object, "parent_detach", crate::manage::nothing()).await?;
        }
        self.inner.refresh().await?;
        self.inner.tell_header_update().await;
        progress(objects, objects);
        Ok(())
    }
}

/// Whether snapshots share something with the parent.
fn snaps_share(header: &Header) -> bool {
    header.snaps.iter().any(|s| s.parent_overlap > 0)
}

/// Whether the image needs this parent still.
fn needs(header: &Header, parent: &header::Parent) -> bool {
    header.parent.as_ref() == Some(parent) && snaps_share(header)
}

/// In an image's metadata, while a parent that it has left has it on its list still: which one that is.
const LEFT: &str = ".loligo.left_parent";

/// A parent, and whether its own header lists its children rather than their pool.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Left {
    parent: header::Parent,
    is_new: bool,
}

impl Left {
    fn text(&self) -> String {
        let header::Parent { pool, namespace, image_id, snap } = &self.parent;
        format!("{pool}/{snap}/{}/{image_id}/{namespace}", u8::from(self.is_new))
    }

    fn parse(text: &str) -> Option<Self> {
        let [pool, snap, is_new, image_id, namespace] =
            text.split('/').collect::<Vec<_>>().try_into().ok()?;
        let parent = header::Parent {
            pool: pool.parse().ok()?,
            namespace: namespace.to_owned(),
            image_id: image_id.to_owned(),
            snap: snap.parse().ok()?,
        };
        Some(Self { parent, is_new: is_new == "1" })
    }
}

impl Image {
    /// Whether a flatten was broken off after the image had left its parent: another one ends it.
    ///
    /// # Errors
    /// The header cannot be read.
    pub async fn has_left_parent(&self) -> Result<bool> {
        left(self).await.map(|left| left.is_some())
    }
}

async fn left(image: &Image) -> Result<Option<Left>> {
    let (inner, name) = (&image.inner, LEFT.to_owned().to_bytes());
    let text: Bytes = match class::call(&inner.meta, &inner.header_object(), "metadata_get", name).await {
        Err(e) if e.is_not_found() => return Ok(None),
        other => other?,
    };
    Ok(std::str::from_utf8(&text).ok().and_then(Left::parse))
}

/// Has the image forget its parent, and then the parent its child. In this order an image never names a
/// snapshot that may be removed; what the parent still has on its list the image's metadata says until that
/// is over.
pub(crate) async fn leave_parent(image: &Image) -> Result<()> {
    let (inner, header) = (&image.inner, image.header());
    if let Some(parent) = header.parent {
        let left = Left { parent, is_new: header.op_features & op_feature::CLONE_CHILD != 0 };
        let said: BTreeMap<String, Bytes> = [(LEFT.to_owned(), Bytes::from(left.text()))].into();
        let op = WriteOp::new().exec("rbd", "parent_detach", crate::manage::nothing()).exec(
            "rbd",
            "metadata_set",
            said.to_bytes(),
        );
        match inner.meta.write_op(&inner.header_object(), op).await {
            // The image itself shares nothing any more.
            Err(e) if e.is_not_found() => {
                return match needs(&now(image).await?, &left.parent) {
                    true => Ok(()),
                    false => detach_child(image, &left.parent, left.is_new).await,
                };
            }
            other => other.map(drop).context(|| format!("parent_detach of {}", inner.header_object()))?,
        }
    }
    finish_leaving(image).await.map(drop)
}

/// The header as it is by now.
async fn now(image: &Image) -> Result<Header> {
    header::read(&image.inner.meta, &image.inner.id, header::Access::Read).await
}

/// Has the parent that the image has left forget it, if there is one. Where a snapshot needs it still, which
/// came about before the image left, the parent keeps the child.
async fn finish_leaving(image: &Image) -> Result<bool> {
    let Some(Left { parent, is_new }) = left(image).await? else { return Ok(false) };
    if !needs(&now(image).await?, &parent) {
        detach_child(image, &parent, is_new).await.map_err(|e| match e.errno() {
            // It is no fault of the image's that has no parent any more.
            Errno::EINVAL => {
                Error::refused(Errno::EIO, format!("the parent keeps the image on its list: {e}"))
            }
            _ => e,
        })?;
    }
    let (inner, name) = (&image.inner, LEFT.to_owned().to_bytes());
    class::change(&inner.meta, &inner.header_object(), "metadata_remove", name).await?;
    Ok(true)
}

/// Does something of each object, some at once. When `stop` ends it, those that were begun have ended.
async fn of_each<F>(
    objects: u64,
    progress: &(dyn Fn(u64, u64) + Sync),
    stop: &(dyn Fn() -> bool + Sync),
    one: impl Fn(u64) -> F,
) -> Result<()>
where
    F: Future<Output = Result<()>> + Send + 'static,
{
    let mut running = Running::default();
    let mut is_stopped = false;
    for object in 0..objects {
        if !running.has_room(AT_ONCE).await {
            break;
        }
        is_stopped = stop();
        if is_stopped {
            break;
        }
        running.tasks.spawn(one(object));
        progress(object, objects);
    }
    running.finish().await?;
    if is_stopped { Err(cancelled()) } else { Ok(()) }
}

fn child_spec(child: &crate::image::Inner) -> ChildSpec {
    ChildSpec {
        pool: child.meta.pool_id().0,
        image: child.id.clone(),
        namespace: child.meta.namespace().to_owned(),
    }
}

/// Takes the image off its parent's list, if it is there; a snapshot in the trash goes with its last clone,
/// or stays where that fails.
async fn detach_child(image: &Image, parent: &header::Parent, is_new: bool) -> Result<()> {
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
    let io = match child.meta.cluster().pool_by_id(PoolId(parent.pool)).await {
        Err(e) if e.is_not_found() => return Ok(()),
        other => other?.with_namespace(parent.namespace.clone()),
    };
    let args = ChildArgs { snap: parent.snap, child: child_spec(child) };
    let object = class::object::header(&parent.image_id);
    match class::change(&io, &object, "child_detach", args.to_bytes()).await {
        Err(e) if !e.is_not_found() => return Err(e),
        _ => {}
    }
    // What becomes of the parent's snapshot is no fault of the image's.
    if let Err(e) = remove_unused(&io, parent).await {
        let header::Parent { image_id, snap, .. } = parent;
        tracing::warn!(image = %image_id, snap, error = %e, "a snapshot in the trash stays without a clone");
    }
    Ok(())
}

/// Removes a snapshot in the trash that has no clones.
async fn remove_unused(io: &IoCtx, parent: &header::Parent) -> Result<()> {
    let header = match header::read(io, &parent.image_id, header::Access::Read).await {
        Err(e) if e.is_not_found() => return Ok(()),
        other => other?,
    };
    let snap = header.snaps.iter().find(|s| s.id == parent.snap);
    if !snap.is_some_and(|s| s.kind == SnapshotKind::Trash && s.child_count == 0) {
        return Ok(());
    }
    let parent_image = Image::open_by_id(io, &parent.image_id, OpenOptions::default()).await?;
    // Another client may keep the lock: then the snapshot stays.
    let inner = &parent_image.inner;
    let removed = match inner.wait_unless(inner.quiet(), &|| false).await {
        Ok(_quiet) => parent_image.remove_snap_quiet(parent.snap).await,
        Err(kept) => Err(kept),
    };
    let closed = parent_image.close().await;
    removed.and(closed)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    #[test]
    fn the_parent_that_was_left_is_read_as_it_was_written() {
        for (namespace, is_new) in [("", true), ("ns", false)] {
            let (namespace, image_id) = (namespace.to_owned(), "12ab".to_owned());
            let left = Left { parent: header::Parent { pool: 3, namespace, image_id, snap: 4 }, is_new };
            assert_eq!(Left::parse(&left.text()), Some(left));
        }
        for bad in ["", "3/4/1/12ab", "3/4/1/12ab/ns/", "x/4/1/12ab/", "3/-4/1/12ab/"] {
            assert_eq!(Left::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_parent_that_a_snapshot_shares_with_is_not_left() {
        let parent =
            |snap| header::Parent { pool: 3, namespace: String::new(), image_id: "12ab".into(), snap };
        for (named, overlaps, is_needed) in [
            (Some(4), vec![0, 8], true),
            (Some(4), vec![0, 0], false),
            (Some(4), vec![], false),
            (None, vec![8], false),
            // It has another one by now.
            (Some(5), vec![8], false),
        ] {
            let header = Header {
                snaps: overlaps.iter().copied().map(header::tests::snap_sharing).collect(),
                parent: named.map(parent),
                ..header::tests::header("rbd_data.12ab", None)
            };
            assert_eq!(needs(&header, &parent(4)), is_needed, "{named:?} {overlaps:?}");
        }
    }

    #[tokio::test]
    async fn a_trim_tells_what_it_has_left() {
        for (stops_at, fails_at, want) in [
            (100, None, Some(None)),
            (40, None, Some(Some(84 - 48))),
            (999, Some(3), Some(Some(84 - 64))),
            (999, None, None),
        ] {
            let dropped = AtomicU64::new(0);
            let drop_some = |some: Range<u64>| {
                let before = dropped.fetch_add(some.end - some.start, Ordering::SeqCst);
                let fails = fails_at.is_some_and(|at| before / AT_ONCE as u64 == at);
                async move { if fails { Err(Error::refused(Errno::EIO, "")) } else { Ok(()) } }
            };
            let stop = || stops_at == 100 || dropped.load(Ordering::SeqCst) >= stops_at;
            let ended = trim_objects(4..84, drop_some, &|_, _| {}, &stop).await;
            assert_eq!(ended.err().map(|e| e.left), want, "{stops_at} {fails_at:?}");
        }
    }

    #[tokio::test]
    async fn what_is_stopped_ends_when_all_that_was_begun_has_ended() {
        let (begun, ended) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let one = |_| {
            let (begun, ended) = (Arc::clone(&begun), Arc::clone(&ended));
            begun.fetch_add(1, Ordering::SeqCst);
            async move {
                for _ in 0..20 {
                    tokio::task::yield_now().await;
                }
                ended.fetch_add(1, Ordering::SeqCst);
                Ok(())
            }
        };
        let stop = || begun.load(Ordering::SeqCst) >= 5;
        let result = of_each(64, &|_, _| {}, &stop, &one).await;
        assert_eq!(result.err().map(|e| e.errno()), Some(Errno::ECANCELED));
        assert_eq!((begun.load(Ordering::SeqCst), ended.load(Ordering::SeqCst)), (5, 5));
        // Who comes when all is begun is too late: the copy is whole.
        let all = || begun.load(Ordering::SeqCst) >= 5 + 64;
        assert!(of_each(64, &|_, _| {}, &all, &one).await.is_ok());
    }
}
