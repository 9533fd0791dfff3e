//! A pool's trash: images that were moved there, and end there.
//!
//! Source: src/librbd/api/Trash.cc, src/librbd/trash/RemoveRequest.cc.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use codec::{Decode, Encode};
use rados::{CmpOp, IoCtx, WriteOp};
use types::{Errno, Utime};

use crate::class::{self, ListArgs, TrashSpec, TrashStateArgs};
use crate::error::{Context, Error, Result};
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

/// At most 1,024 of the pool and namespace of `io`, by id, behind this one.
///
/// # Errors
/// The list cannot be read.
pub async fn list(io: &IoCtx, start_after: &str) -> Result<Vec<Entry>> {
    let input = ListArgs { start_after: start_after.to_owned(), max: PAGE }.to_bytes();
    let page: BTreeMap<String, TrashSpec> =
        match class::call(io, class::object::TRASH, "trash_list", input).await {
            Err(e) if e.is_not_found() => return Ok(Vec::new()),
            other => other?,
        };
    Ok(page.into_iter().map(|(id, spec)| Entry::new(id, spec)).collect())
}

/// Which entries of the trash may go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Which {
    /// Any whose time has come at this moment.
    Due(Utime),
    /// Of those only what a user has moved there.
    DueOfUsers(Utime),
}

impl Which {
    /// As librbd does, a removal asks for the whole time and a purge for its seconds. Source: Trash::remove,
    /// Trash::purge.
    fn check(self, entry: &Entry) -> Result<()> {
        match self {
            Self::Due(now) if now < entry.deferred_until => {
                return Err(Error::refused(Errno::EPERM, "deferment time has not expired"));
            }
            Self::DueOfUsers(now) if !entry.is_users || now.sec < entry.deferred_until.sec => {
                return Err(Error::refused(Errno::ENOENT, "the image is not among those that may go"));
            }
            _ => {}
        }
        if entry.state != state::NORMAL && entry.state != state::REMOVING {
            return Err(Error::refused(Errno::EBUSY, "image is pending restoration"));
        }
        Ok(())
    }
}

/// Removes an image that is in the trash, with its data. It ends early when `stop` says so: the image stays
/// there, and has lost data.
///
/// # Errors
/// ENOENT when it is not there or not a user's as `which` says, or its parent or its data's pool are not
/// there; EPERM before its time; EBUSY while it is restored, or open elsewhere; ENOTEMPTY while it has snapshots;
/// EMLINK while it is in a group; ECANCELED when it was stopped.
pub async fn remove(
    io: &IoCtx,
    id: &str,
    which: Which,
    progress: &(dyn Fn(u64, u64) + Sync),
    stop: &(dyn Fn() -> bool + Sync),
) -> Result<()> {
    let is_ours = mark(io, id, which).await?;
    if let Err(e) = remove_marked(io, id, which, progress, stop).await {
        // Whoever else is removing it, or has begun to, may have removed data.
        if is_ours {
            if let Err(e) = set_state(io, id, state::NORMAL, state::REMOVING).await {
                tracing::warn!(image = id, error = %e, "the image cannot be restored from the trash");
            }
        }
        return Err(e);
    }
    class::change(io, class::object::TRASH, "trash_remove", id.to_owned().to_bytes()).await
}

/// Has the entry say that the image is being removed: whether it did not say so before. The class alone would
/// tell two that both have changed it.
async fn mark(io: &IoCtx, id: &str, which: Which) -> Result<bool> {
    let (object, key) = (class::object::TRASH, Bytes::from(format!("id_{id}")));
    let found =
        io.omap_by_keys(object, [key.clone()].into()).await.context(|| format!("reading {object}"))?;
    let Some(value) = found.get(&key) else {
        return Err(Error::refused(Errno::ENOENT, "the image is not in the trash"));
    };
    let entry = Entry::new(id.to_owned(), TrashSpec::from_bytes(value.clone())?);
    which.check(&entry)?;
    if entry.state == state::REMOVING {
        return Ok(false);
    }
    let args = TrashStateArgs { id: id.to_owned(), new: state::REMOVING, expected: state::NORMAL };
    let op = WriteOp::new().omap_cmp([(key, (value.clone(), CmpOp::Eq))].into()).exec(
        "rbd",
        "trash_state_set",
        args.to_bytes(),
    );
    match io.write_op(object, op).await {
        Err(e) if e.errno() == Errno::ECANCELED => {
            Err(Error::refused(Errno::EBUSY, "somebody else changes the image's place in the trash"))
        }
        other => other.map(|_| true).context(|| format!("trash_state_set of {object}")),
    }
}

/// Once the entry says that the image is being removed nobody restores it: what it was found to be before may
/// have changed until then.
async fn remove_marked(
    io: &IoCtx,
    id: &str,
    which: Which,
    progress: &(dyn Fn(u64, u64) + Sync),
    stop: &(dyn Fn() -> bool + Sync),
) -> Result<()> {
    which.check(&get(io, id).await?)?;
    remove_image(io, id, progress, stop).await
}

async fn remove_image(
    io: &IoCtx,
    id: &str,
    progress: &(dyn Fn(u64, u64) + Sync),
    stop: &(dyn Fn() -> bool + Sync),
) -> Result<()> {
    let has_map = match Image::open_by_id(io, id, OpenOptions::default()).await {
        Ok(image) => pool::remove_data(io, &image, progress, stop).await?.1,
        // What an interrupted removal left. Where the header is there, something else is missing that the
        // data cannot be found without.
        Err(e) if e.is_not_found() && pool::is_headerless(io, id).await? => true,
        Err(e) => return Err(e),
    };
    pool::remove_header(io, id, has_map).await
}

async fn set_state(io: &IoCtx, id: &str, new: u8, expected: u8) -> Result<()> {
    let args = TrashStateArgs { id: id.to_owned(), new, expected };
    class::change(io, class::object::TRASH, "trash_state_set", args.to_bytes()).await
}

/// Removes all that users have moved there and whose time has come at `now`, but not of the ids `except`; what
/// cannot be removed stays, and the rest goes. Each is looked at again before it goes, for much may happen
/// while those before it are removed.
///
/// # Errors
/// As [`remove`] for the first that stays; ESHUTDOWN and ETIMEDOUT end it.
pub async fn purge(io: &IoCtx, now: Utime, except: &BTreeSet<String>) -> Result<()> {
    let (mut first, mut start_after) = (Ok(()), String::new());
    loop {
        let page = list(io, &start_after).await?;
        let Some(last) = page.last() else { return first };
        start_after = last.id.clone();
        for entry in page.iter().filter(|e| may_be_purged(e, now, except)) {
            match remove(io, &entry.id, Which::DueOfUsers(now), &|_, _| {}, &|| false).await {
                // Somebody else was quicker, has restored it, or wants it kept for longer.
                Err(e) if e.is_not_found() => {}
                Err(e) if e.errno() == Errno::ESHUTDOWN || e.errno() == Errno::ETIMEDOUT => return Err(e),
                other => first = first.and(other),
            }
        }
    }
}

fn may_be_purged(entry: &Entry, now: Utime, except: &BTreeSet<String>) -> bool {
    entry.is_users && entry.deferred_until.sec <= now.sec && !except.contains(&entry.id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_others_are_at_is_not_purged() {
        let entry = |id: &str, state| Entry {
            id: id.into(),
            name: "a".into(),
            deleted: Utime::ZERO,
            deferred_until: Utime::new(99, 0),
            is_users: true,
            state,
        };
        let except = ["1".to_owned()].into();
        for (entry, want) in [
            (entry("1", state::REMOVING), false),
            (entry("1", state::NORMAL), false),
            (entry("2", state::REMOVING), true),
            (entry("2", state::NORMAL), true),
        ] {
            assert_eq!(may_be_purged(&entry, Utime::new(100, 0), &except), want, "{entry:?}");
        }
    }

    #[test]
    fn what_is_kept_longer_restored_or_nobodys_stays() {
        let entry = |is_users, until: u32, state| Entry {
            id: "1".into(),
            name: "a".into(),
            deleted: Utime::ZERO,
            deferred_until: Utime::new(until, 5),
            is_users,
            state,
        };
        let now = Utime::new(100, 0);
        let errno = |which: Which, entry: Entry| which.check(&entry).err().map(|e| e.errno());
        let (normal, restoring) = (state::NORMAL, 3);
        for (which, entry, want) in [
            (Which::Due(now), entry(true, 99, normal), None),
            (Which::Due(now), entry(false, 99, state::REMOVING), None),
            (Which::Due(now), entry(true, 100, normal), Some(Errno::EPERM)),
            (Which::Due(now), entry(true, 99, restoring), Some(Errno::EBUSY)),
            (Which::DueOfUsers(now), entry(true, 100, normal), None),
            (Which::DueOfUsers(now), entry(true, 101, normal), Some(Errno::ENOENT)),
            (Which::DueOfUsers(now), entry(false, 99, normal), Some(Errno::ENOENT)),
            (Which::DueOfUsers(now), entry(true, 99, restoring), Some(Errno::EBUSY)),
        ] {
            assert_eq!(errno(which, entry.clone()), want, "{which:?} {entry:?}");
        }
    }
}
