//! Removing an image: it leaves the pool's directory for the trash, and ends there.
//!
//! Invariants
//! 1. Before the first byte of data goes the image has no name, and its entry in the trash says that it is
//!    being removed: nobody opens it by its name or restores it.
//! 2. From then on the entry says so until nothing is left, whatever interrupts that. Whoever removes the
//!    image again goes on with it.
//! 3. What is refused or stopped before leaves the image where it was. The image is open, and watched, from
//!    before the entry says so until it does not any more: nobody else has begun to remove data by then, for
//!    an image that others watch is not removed.
//! 4. The last look at what keeps an image comes when the exclusive lock is ours.
//!
//! Source: Image::remove in src/librbd/api/Image.cc, src/librbd/image/{PreRemove,Remove}Request.cc. Ceph
//! makes an image restorable whose removal failed halfway.

use std::sync::PoisonError;

use codec::Encode;
use messages::osd::WatchItem;
use rados::IoCtx;
use types::{EntityName, Errno};

use crate::class;
use crate::error::{Context, Error, Result};
use crate::header::feature;
use crate::image::{self, Image, OpenOptions};
use crate::notify::ClientId;
use crate::ops::Untrimmed;
use crate::trash::{self, Mark};
use crate::{manage, ops};

/// Too many links: what Ceph's tool says of an image in a group.
const EMLINK: Errno = Errno(31);

/// Why a removal has ended early.
struct Broken {
    error: Error,
    /// Whether data may be gone.
    has_lost: bool,
}

impl From<Error> for Broken {
    fn from(error: Error) -> Self {
        Self { error, has_lost: false }
    }
}

/// Removes an image and its data, or what an interrupted removal left of it.
///
/// # Errors
/// ENOTEMPTY while it has snapshots; EBUSY while another client has it open; EMLINK while it is in a group.
pub async fn remove(io: &IoCtx, name: &str, progress: &(dyn Fn(u64, u64) + Sync)) -> Result<()> {
    remove_named(io, name, None, progress, &|| false).await
}

/// The same of the image that has this id as well. It ends early when `stop` says so: what has lost data by
/// then stays in the trash, where nobody restores it.
///
/// # Errors
/// As [`remove`]; ENOENT when the name is another image's by now; ECANCELED when it was stopped.
pub async fn remove_this(
    io: &IoCtx,
    [name, id]: [&str; 2],
    progress: &(dyn Fn(u64, u64) + Sync),
    stop: &(dyn Fn() -> bool + Sync),
) -> Result<()> {
    remove_named(io, name, Some(id), progress, stop).await
}

async fn remove_named(
    io: &IoCtx,
    name: &str,
    wanted: Option<&str>,
    progress: &(dyn Fn(u64, u64) + Sync),
    stop: &(dyn Fn() -> bool + Sync),
) -> Result<()> {
    let named = named(io, name).await?.filter(|id| wanted.is_none_or(|wanted| wanted == id));
    let (id, mark) = match named {
        Some(id) => (id, Mark::Named(name)),
        None => match trash::find_removed(io, name, wanted).await? {
            Some(id) => (id, Mark::Removed),
            None => return Err(Error::refused(Errno::ENOENT, format!("there is no image {name}"))),
        },
    };
    remove_marked(io, &id, mark, progress, stop).await
}

/// The id of the image of this name. Without an entry in the directory the name is one that was left, perhaps
/// by an image that has another by now, or one of an image that is being made.
async fn named(io: &IoCtx, name: &str) -> Result<Option<String>> {
    let in_directory =
        class::call(io, class::object::DIRECTORY, "dir_get_id", name.to_owned().to_bytes()).await;
    match in_directory {
        Err(e) if e.is_not_found() => {}
        other => return other.map(Some),
    }
    let id = match image::id_of(io, name).await {
        Err(e) if e.is_not_found() => return Ok(None),
        other => other?,
    };
    let is_left = manage::name_of(io, &id).await?.is_none() && !is_headerless(io, &id).await?;
    Ok(is_left.then_some(id))
}

/// Removes what is left of an image whose header, the last to need its data, is gone.
async fn remove_left(io: &IoCtx, name: &str, id: &str) -> Result<()> {
    // A header that is there by now is one that somebody has just made.
    remove_object(io, &class::object::map(id, None)).await?;
    trash::unname(io, name, id).await
}

/// Marks an image as one that is being removed, and removes it.
pub(crate) async fn remove_marked(
    io: &IoCtx,
    id: &str,
    mark: Mark<'_>,
    progress: &(dyn Fn(u64, u64) + Sync),
    stop: &(dyn Fn() -> bool + Sync),
) -> Result<()> {
    let has_map = match Image::open_by_id(io, id, OpenOptions::default()).await {
        Ok(image) => {
            let result = remove_data(io, &image, mark, progress, stop).await;
            let has_map = image.header().has(feature::OBJECT_MAP);
            // The lock and the watch go with the header.
            let closed = image.close().await;
            result?;
            closed.map_err(unfinished)?;
            has_map
        }
        // What an interrupted removal left. Where the header is there, something else is missing that the
        // data cannot be found without.
        Err(e) if e.is_not_found() && is_headerless(io, id).await? => match mark {
            Mark::Named(name) => return remove_left(io, name, id).await,
            mark => mark.set(io, id).await.map(|_| true)?,
        },
        Err(e) => return Err(e),
    };
    remove_header(io, id, has_map).await?;
    match class::change(io, class::object::TRASH, "trash_remove", id.to_owned().to_bytes()).await {
        // Nothing is left of it.
        Err(e) if e.is_not_found() => Ok(()),
        other => other,
    }
}

async fn remove_data(
    io: &IoCtx,
    image: &Image,
    mark: Mark<'_>,
    progress: &(dyn Fn(u64, u64) + Sync),
    stop: &(dyn Fn() -> bool + Sync),
) -> Result<()> {
    if let Err(refusal) = check(io, image).await {
        if matches!(mark, Mark::Named(_)) {
            forget_left(io, image).await;
        }
        return Err(refusal);
    }
    let undo = mark.set(io, image.id()).await?;
    let Err(broken) = empty(io, image, progress, stop).await else { return Ok(()) };
    if let Some(undo) = undo.filter(|_| !broken.has_lost) {
        if let Err(e) = undo.carry_out(io, image.id()).await {
            tracing::warn!(image = image.id(), error = %e, "the image is not removed, but stays in the trash");
        }
    }
    Err(broken.error)
}

/// The image stays, and what an interrupted removal has left of it in the trash does not.
async fn forget_left(io: &IoCtx, image: &Image) {
    let forgotten = async {
        check_open(io, image).await?;
        trash::forget_left(io, image.id()).await
    };
    if let Err(e) = forgotten.await {
        tracing::debug!(image = image.id(), error = %e, "its place in the trash is not looked at");
    }
}

async fn empty(
    io: &IoCtx,
    image: &Image,
    progress: &(dyn Fn(u64, u64) + Sync),
    stop: &(dyn Fn() -> bool + Sync),
) -> std::result::Result<(), Broken> {
    // Until the lock was ours somebody may have changed it.
    let _quiet = image.inner.wait_unless(image.inner.quiet(), stop).await?;
    image.refresh().await?;
    check(io, image).await?;
    if stop() {
        return Err(ops::cancelled().into());
    }
    if let Err(Untrimmed { error, left }) = ops::trim(image, 0, progress, stop).await {
        let is_stopped = error.errno() == Errno::ECANCELED;
        if let Some(left) = left.filter(|_| is_stopped) {
            shrink(image, left).await;
        }
        return Err(Broken { error: unfinished(error), has_lost: left.is_some() });
    }
    ops::leave_parent(image).await.map_err(|error| Broken { error: unfinished(error), has_lost: true })
}

/// Has the header say that the image has so many objects left, for whoever goes on with its removal. An
/// object map says that already.
async fn shrink(image: &Image, left: u64) {
    let (inner, view) = (&image.inner, image.inner.view());
    if inner.map.lock().unwrap_or_else(PoisonError::into_inner).is_some() {
        return;
    }
    let size = class::number(view.layout.holding(left).min(view.size));
    if let Err(e) = class::change(&inner.meta, &inner.header_object(), "set_size", size).await {
        tracing::debug!(image = image.id(), error = %e, "its removal begins anew when it goes on");
    }
}

/// What is missing when data is gone is no image: its removal is to go on.
fn unfinished(error: Error) -> Error {
    match error.is_not_found() {
        true => Error::refused(Errno::EIO, format!("the image is not removed as a whole: {error}")),
        false => error,
    }
}

/// What keeps an image from being removed.
async fn check(io: &IoCtx, image: &Image) -> Result<()> {
    let header = image.header();
    if !header.has_own_data(io.pool_id(), image.id()) {
        let what = "the image's header names data objects that are not its own";
        return Err(Error::refused(Errno::EOPNOTSUPP, what));
    }
    if !header.snaps.is_empty() {
        return Err(Error::refused(Errno::ENOTEMPTY, "the image has snapshots"));
    }
    let object = image.inner.header_object();
    let group: class::GroupSpec = class::call(io, &object, "image_group_get", manage::nothing()).await?;
    if group.pool >= 0 && !group.id.is_empty() {
        return Err(Error::refused(EMLINK, "the image is in a group"));
    }
    check_open(io, image).await
}

/// Refuses an image that is open elsewhere.
async fn check_open(io: &IoCtx, image: &Image) -> Result<()> {
    let watchers = io.list_watchers(&image.inner.header_object()).await?;
    check_watchers(&watchers, |client| image.inner.is_us(client))
}

/// Refuses an image that somebody else has open. Without a watch of ours nobody else would see that we have.
fn check_watchers(watchers: &[WatchItem], is_us: impl Fn(ClientId) -> bool) -> Result<()> {
    let is_ours = |w: &WatchItem| {
        w.name == EntityName::client(w.name.num)
            && is_us(ClientId { global_id: w.name.num as u64, watch: w.cookie })
    };
    if !watchers.iter().all(is_ours) {
        return Err(Error::refused(Errno::EBUSY, "the image is still open elsewhere"));
    }
    if watchers.is_empty() {
        return Err(Error::refused(Errno::EBUSY, "the watch on the image is lost"));
    }
    Ok(())
}

async fn remove_header(io: &IoCtx, id: &str, has_map: bool) -> Result<()> {
    let objects = [has_map.then(|| class::object::map(id, None)), Some(class::object::header(id))];
    for object in objects.into_iter().flatten() {
        remove_object(io, &object).await?;
    }
    Ok(())
}

async fn remove_object(io: &IoCtx, object: &str) -> Result<()> {
    match io.remove(object).await {
        Err(e) if !e.is_not_found() => Err(e).context(|| format!("removing {object}")),
        _ => Ok(()),
    }
}

/// Whether there is no header of this id.
async fn is_headerless(io: &IoCtx, id: &str) -> Result<bool> {
    match io.stat(&class::object::header(id)).await {
        Ok(_) => Ok(false),
        Err(e) if e.errno() == Errno::ENOENT => Ok(true),
        Err(e) => Err(e.into()),
    }
}

#[cfg(test)]
mod tests {
    use types::{EntityAddr, EntityType};

    use super::*;

    #[test]
    fn a_removal_that_has_begun_does_not_end_for_want_of_something() {
        let errno = |errno| unfinished(Error::refused(errno, "")).errno();
        assert_eq!([Errno::ENOENT, Errno::EBUSY].map(errno), [Errno::EIO, Errno::EBUSY]);
        assert_eq!(unfinished(rados::Error::from(Errno::ENOENT).into()).errno(), Errno::EIO);
    }

    #[test]
    fn an_image_that_anybody_else_watches_is_not_removed() {
        let watch = |client, cookie| WatchItem {
            name: EntityName::client(client),
            cookie,
            timeout_s: 30,
            addr: EntityAddr::default(),
        };
        let is_us = |client: ClientId| client.global_id == 7 && [1, 2].contains(&client.watch);
        let daemon = WatchItem { name: EntityName { kind: EntityType::Osd as u8, num: 7 }, ..watch(7, 1) };
        for (watchers, is_free) in [
            (vec![watch(7, 2)], true),
            // The first one is lost, and not over yet.
            (vec![watch(7, 1), watch(7, 2)], true),
            (vec![watch(8, 2)], false),
            (vec![watch(7, 3)], false),
            (vec![watch(7, 2), watch(8, 3)], false),
            (vec![daemon], false),
            (vec![], false),
        ] {
            assert_eq!(check_watchers(&watchers, is_us).is_ok(), is_free, "{watchers:?}");
        }
    }
}
