//! A pool's trash: images that were moved there, and end there.
//!
//! Source: src/librbd/api/Trash.cc, src/librbd/trash/RemoveRequest.cc.

use std::collections::BTreeMap;

use codec::Encode;
use rados::IoCtx;
use types::{Errno, Utime};

use crate::class::{self, ListArgs, TrashSpec, TrashStateArgs};
use crate::error::{Error, Result};
use crate::image::{Image, OpenOptions};
use crate::pool;

/// Entries of one page.
const PAGE: u64 = 1024;

/// What moved an image there. Source: TrashImageSource.
mod source {
    pub const USER: u8 = 0;
    pub const USER_PARENT: u8 = 4;
}

/// Source: TrashImageState.
mod state {
    pub const NORMAL: u8 = 0;
    pub const REMOVING: u8 = 2;
}

/// An image in the trash.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    pub id: String,
    /// That it had.
    pub name: String,
    pub deleted: Utime,
    /// Until then it may be removed by force alone.
    pub deferred_until: Utime,
    /// Whether a user moved it there.
    pub is_users: bool,
    state: u8,
}

impl Entry {
    fn new(id: String, spec: TrashSpec) -> Self {
        let TrashSpec { source, name, deleted, deferred_until, state } = spec;
        let is_users = source == source::USER || source == source::USER_PARENT;
        Self { id, name, deleted, deferred_until, is_users, state }
    }
}

/// # Errors
/// ENOENT when the image is not in the trash.
pub async fn get(io: &IoCtx, id: &str) -> Result<Entry> {
    let spec: TrashSpec =
        class::call(io, class::object::TRASH, "trash_get", id.to_owned().to_bytes()).await?;
    Ok(Entry::new(id.to_owned(), spec))
}

/// All of the pool and namespace of `io`, by id.
///
/// # Errors
/// The list cannot be read.
pub async fn list(io: &IoCtx) -> Result<Vec<Entry>> {
    let mut all: Vec<Entry> = Vec::new();
    loop {
        let start_after = all.last().map(|e| e.id.clone()).unwrap_or_default();
        let input = ListArgs { start_after, max: PAGE }.to_bytes();
        let page: BTreeMap<String, TrashSpec> =
            match class::call(io, class::object::TRASH, "trash_list", input).await {
                Err(e) if e.is_not_found() => return Ok(all),
                other => other?,
            };
        let count = page.len() as u64;
        all.extend(page.into_iter().map(|(id, spec)| Entry::new(id, spec)));
        if count < PAGE {
            return Ok(all);
        }
    }
}

/// Removes an image that is in the trash, with its data. It ends early when `stop` does: the image stays
/// there, and has lost data. `now` is the wall clock, that an image's time is held against; `None`: by force.
///
/// # Errors
/// ENOENT when it is not there; EPERM before its time; EBUSY while it is restored, or open elsewhere;
/// ENOTEMPTY while it has snapshots; EMLINK while it is in a group; ECANCELED when it was stopped.
pub async fn remove(
    io: &IoCtx,
    id: &str,
    now: Option<Utime>,
    progress: &(dyn Fn(u64, u64) + Sync),
    stop: impl Future<Output = ()> + Send,
) -> Result<()> {
    let entry = get(io, id).await?;
    if now.is_some_and(|now| now < entry.deferred_until) {
        return Err(Error::refused(Errno::EPERM, "deferment time has not expired"));
    }
    if entry.state != state::NORMAL && entry.state != state::REMOVING {
        return Err(Error::refused(Errno::EBUSY, "image is pending restoration"));
    }
    set_state(io, id, state::REMOVING, state::NORMAL).await?;
    if let Err(e) = remove_image(io, id, progress, stop).await {
        if let Err(e) = set_state(io, id, state::NORMAL, state::REMOVING).await {
            tracing::warn!(image = id, error = %e, "the image cannot be restored from the trash");
        }
        return Err(e);
    }
    class::change(io, class::object::TRASH, "trash_remove", id.to_owned().to_bytes()).await
}

async fn remove_image(
    io: &IoCtx,
    id: &str,
    progress: &(dyn Fn(u64, u64) + Sync),
    stop: impl Future<Output = ()> + Send,
) -> Result<()> {
    let has_map = match Image::open_by_id(io, id, OpenOptions::default()).await {
        Ok(image) => pool::remove_data(io, &image, progress, stop).await?.1,
        // What an interrupted removal left.
        Err(e) if e.is_not_found() => true,
        Err(e) => return Err(e),
    };
    pool::remove_header(io, id, has_map).await
}

async fn set_state(io: &IoCtx, id: &str, new: u8, expected: u8) -> Result<()> {
    let args = TrashStateArgs { id: id.to_owned(), new, expected };
    class::change(io, class::object::TRASH, "trash_state_set", args.to_bytes()).await
}

/// Removes all that users have moved there and whose time has come at `now`; the first that cannot be removed
/// ends it.
///
/// # Errors
/// As [`remove`].
pub async fn purge(io: &IoCtx, now: Utime) -> Result<()> {
    for entry in list(io).await?.into_iter().filter(|e| e.is_users && e.deferred_until.sec <= now.sec) {
        match remove(io, &entry.id, None, &|_, _| {}, std::future::pending()).await {
            // Somebody else was quicker.
            Err(e) if e.is_not_found() => {}
            other => other?,
        }
    }
    Ok(())
}
