//! A pool's trash: images that were moved there, and end there.
//!
//! Source: src/librbd/api/Trash.cc, src/librbd/trash/RemoveRequest.cc.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bytes::Bytes;
use codec::{Decode, Encode};
use rados::{CmpOp, IoCtx, WriteOp};
use types::{Errno, Utime};

use crate::class::{self, ListArgs, NameId, TrashAddArgs, TrashSpec};
use crate::error::{Context, Error, Result};
use crate::manage;
use crate::removal;

/// Entries of one page.
const PAGE: u64 = 64;
/// What a removal has left whole in the trash is not removed before its user has had time to miss it.
const KEPT: Duration = Duration::from_secs(24 * 3_600);

/// What moved an image there. Source: TrashImageSource.
mod source {
    pub const USER: u8 = 0;
    /// Nobody restores what a removal has moved there. Source: ALLOWED_RESTORE_SOURCES in
    /// src/librbd/api/Trash.cc.
    pub const REMOVING: u8 = 3;
    pub const USER_PARENT: u8 = 4;
}

/// Source: TrashImageState.
mod state {
    pub const NORMAL: u8 = 0;
    pub const MOVING: u8 = 1;
    pub const REMOVING: u8 = 2;
    pub const RESTORING: u8 = 3;
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
    source: u8,
    state: u8,
}

impl Entry {
    fn new(id: String, spec: TrashSpec) -> Self {
        let TrashSpec { source, name, deleted, deferred_until, state } = spec;
        Self { id, name, deleted, deferred_until, source, state }
    }

    /// Whether a user moved it there.
    #[must_use]
    pub fn is_users(&self) -> bool {
        self.source == source::USER || self.source == source::USER_PARENT
    }
}

/// # Errors
/// ENOENT when the image is not in the trash.
pub async fn get(io: &IoCtx, id: &str) -> Result<Entry> {
    let spec: TrashSpec =
        class::call(io, class::object::TRASH, "trash_get", id.to_owned().to_bytes()).await?;
    Ok(Entry::new(id.to_owned(), spec))
}

/// At most 64 of the pool and namespace of `io`, by id, behind this one.
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
            Self::DueOfUsers(now) if !entry.is_users() || now.sec < entry.deferred_until.sec => {
                return Err(Error::refused(Errno::ENOENT, "the image is not among those that may go"));
            }
            _ => {}
        }
        if entry.state != state::NORMAL && entry.state != state::REMOVING {
            return Err(pending());
        }
        Ok(())
    }
}

/// Removes an image that is in the trash, with its data. It ends early when `stop` says so: the image stays
/// there. What has lost data by then is not restored any more, but removed when that is asked for again.
///
/// # Errors
/// ENOENT when it is not there or not a user's as `which` says, or its parent or its data's pool are not
/// there; EPERM before its time; EBUSY while it is restored, or open elsewhere, or has a name; ENOTEMPTY
/// while it has snapshots; EMLINK while it is in a group; ECANCELED when it was stopped.
pub async fn remove(
    io: &IoCtx,
    id: &str,
    which: Which,
    progress: &(dyn Fn(u64, u64) + Sync),
    stop: &(dyn Fn() -> bool + Sync),
) -> Result<()> {
    which.check(&get(io, id).await?)?;
    removal::remove_marked(io, id, Mark::InTrash(which), progress, stop).await
}

/// How an image comes to be one that is being removed.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Mark<'a> {
    /// It has this name in the directory.
    Named(&'a str),
    /// It is in the trash, and may go.
    InTrash(Which),
    /// Another removal has moved it to the trash.
    Removed,
}

/// How it is none any more. Both hold for an entry that says what was `marked`: whoever goes on with the
/// removal writes it anew.
#[derive(Debug)]
pub(crate) enum Undo {
    /// By giving it back its name.
    PutBack { marked: Bytes },
    /// By having its entry say what it said before.
    Entry { marked: Bytes, before: TrashSpec },
}

impl Mark<'_> {
    /// Has the image's entry in the trash say that it is being removed. `None` where it has said so before,
    /// or where data may be gone.
    pub async fn set(self, io: &IoCtx, id: &str) -> Result<Option<Undo>> {
        match self {
            Self::Named(name) => take(io, name, id).await,
            Self::InTrash(which) => mark(io, id, Some(which)).await,
            Self::Removed => mark(io, id, None).await,
        }
    }
}

impl Undo {
    pub async fn carry_out(self, io: &IoCtx, id: &str) -> Result<()> {
        match self {
            Self::PutBack { marked } => put_back(io, id, marked).await,
            Self::Entry { marked, before } => replace(io, id, marked, &before).await,
        }
    }
}

async fn mark(io: &IoCtx, id: &str, which: Option<Which>) -> Result<Option<Undo>> {
    let (before, value) = stored(io, id).await?;
    if let Some(which) = which {
        which.check(&Entry::new(id.to_owned(), before.clone()))?;
    }
    mark_entry(io, id, before, value).await
}

/// Marks an entry that is still what it was, of these bytes.
async fn mark_entry(io: &IoCtx, id: &str, before: TrashSpec, value: Bytes) -> Result<Option<Undo>> {
    // An entry of the trash alone does not say that nobody uses the image.
    if let Some(name) = manage::name_of(io, id).await? {
        let what = format!("the image is {name}, and not in the trash alone");
        return Err(Error::refused(Errno::EBUSY, what));
    }
    let found = Found::of(&before)?;
    let marked = marked(&before, runtime::Clock::start().now().wall);
    replace(io, id, value, &marked).await?;
    let marked = marked.to_bytes();
    Ok(match found {
        Found::Begun => None,
        Found::Unnamed => Some(Undo::PutBack { marked }),
        Found::Whole => Some(Undo::Entry { marked, before }),
    })
}

/// What an entry says from now on. One that has said so before says something else all the same: whoever has
/// written that has no say any more.
fn marked(before: &TrashSpec, now: Utime) -> TrashSpec {
    let deleted = match before.state {
        state::REMOVING => now.max(before.deleted.plus(Duration::from_nanos(1))),
        _ => before.deleted,
    };
    TrashSpec { state: state::REMOVING, deleted, ..before.clone() }
}

/// How far the removal of an image has come, by its entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Found {
    Whole,
    /// It has lost its name alone.
    Unnamed,
    /// It may have lost data.
    Begun,
}

impl Found {
    fn of(spec: &TrashSpec) -> Result<Self> {
        match (spec.source, spec.state) {
            // Ceph has the latter as well when a removal has failed halfway.
            (_, state::REMOVING) | (source::REMOVING, state::NORMAL) => Ok(Self::Begun),
            (source::REMOVING, state::MOVING) => Ok(Self::Unnamed),
            (_, state::NORMAL) => Ok(Self::Whole),
            _ => Err(pending()),
        }
    }
}

fn pending() -> Error {
    Error::refused(Errno::EBUSY, "image is pending restoration")
}

/// Moves an image from the directory to the trash, where nobody restores it.
async fn take(io: &IoCtx, name: &str, id: &str) -> Result<Option<Undo>> {
    let now = runtime::Clock::start().now().wall;
    let spec = TrashSpec {
        source: source::REMOVING,
        name: name.to_owned(),
        deleted: now,
        deferred_until: now,
        state: state::MOVING,
    };
    let args = TrashAddArgs { id: id.to_owned(), spec: spec.clone() };
    match class::change(io, class::object::TRASH, "trash_add", args.to_bytes()).await {
        Err(e) if e.errno() != Errno::EEXIST => return Err(e),
        _ => {}
    }
    // An older entry is of a removal that was interrupted, perhaps when the image had another name.
    let (found, value) = stored(io, id).await?;
    if Found::of(&found)? != Found::Unnamed {
        return Err(Error::refused(Errno::EBUSY, "the image has a place in the trash already"));
    }
    replace(io, id, value, &spec).await?;
    let value = spec.to_bytes();
    let taken = match unname(io, name, id).await {
        Ok(()) => mark_entry(io, id, spec, value.clone()).await,
        // It may have happened, or happen yet, when the name was given back: nothing would lead to the image
        // then. The next removal that is tried goes on.
        Err(e) if may_have_happened(&e) => return Err(e),
        Err(e) => Err(e),
    };
    // It is whole: the image is open, and nobody else removes it.
    if taken.is_err() {
        if let Err(e) = put_back(io, id, value).await {
            tracing::warn!(image = name, error = %e, "the image is not removed, but may stay in the trash");
        }
    }
    taken
}

/// Whether a change that has failed so may have been made, or may be made yet.
fn may_have_happened(error: &Error) -> bool {
    use rados::Error::{BadReply, Os, ShutDown, Unreachable};
    let Error::Cluster { cause, .. } = error else { return false };
    match cause {
        Os(errno) => [Errno::ETIMEDOUT, Errno::ESHUTDOWN].contains(errno),
        Unreachable { .. } | BadReply(_) | ShutDown => true,
        _ => false,
    }
}

/// Takes the name off an image that has this id.
pub(crate) async fn unname(io: &IoCtx, name: &str, id: &str) -> Result<()> {
    manage::remove_id(io, name, id).await?;
    let entry = NameId { name: name.to_owned(), id: id.to_owned() };
    match class::change(io, class::object::DIRECTORY, "dir_remove_image", entry.to_bytes()).await {
        Err(e) if e.is_not_found() => Ok(()),
        other => other,
    }
}

/// The image of this name, and of this id if one is wanted, that a removal has moved to the trash.
pub(crate) async fn find_removed(io: &IoCtx, name: &str, wanted: Option<&str>) -> Result<Option<String>> {
    let is_it = |entry: &Entry| entry.source == source::REMOVING && entry.name == name;
    if let Some(id) = wanted {
        return match get(io, id).await {
            Err(e) if e.is_not_found() => Ok(None),
            other => other.map(|entry| is_it(&entry).then_some(entry.id)),
        };
    }
    let mut start_after = String::new();
    loop {
        let page = list(io, &start_after).await?;
        let Some(last) = page.last() else { return Ok(None) };
        start_after = last.id.clone();
        if let Some(entry) = page.into_iter().find(is_it) {
            return Ok(Some(entry.id));
        }
    }
}

/// Gives an image its name back that a removal has moved to the trash and left whole; one that has a name is
/// in the trash no more. Where another image has the name by now, it stays as if its user had moved it there;
/// so it does where this is interrupted. The entry is still what it was, of these bytes.
async fn put_back(io: &IoCtx, id: &str, value: Bytes) -> Result<()> {
    let spec = TrashSpec::from_bytes(value.clone())?;
    // The directory may have the name still, and nothing lead there from the name.
    if let Some(name) = manage::name_of(io, id).await? {
        if manage::give_name(io, &name, id).await? {
            return drop_entry(io, id, value).await;
        }
    }
    let restored = kept(spec, runtime::Clock::start().now().wall);
    replace(io, id, value, &restored).await?;
    let value = restored.to_bytes();
    if manage::give_name(io, &restored.name, id).await? || manage::name_of(io, id).await?.is_some() {
        return drop_entry(io, id, value).await;
    }
    replace(io, id, value, &TrashSpec { state: state::NORMAL, ..restored }).await
}

/// What the entry of an image says that is to have its name back.
fn kept(spec: TrashSpec, now: Utime) -> TrashSpec {
    let deferred_until = now.plus(KEPT).max(spec.deferred_until);
    TrashSpec { source: source::USER, state: state::RESTORING, deferred_until, ..spec }
}

/// Drops what an interrupted removal has left of an image that has its name still. Nobody else has it open:
/// it could be theirs.
pub(crate) async fn forget_left(io: &IoCtx, id: &str) -> Result<()> {
    let (found, value) = match stored(io, id).await {
        Err(e) if e.is_not_found() => return Ok(()),
        other => other?,
    };
    if Found::of(&found)? == Found::Unnamed && manage::name_of(io, id).await?.is_some() {
        put_back(io, id, value).await?;
    }
    Ok(())
}

fn key(id: &str) -> Bytes {
    Bytes::from(format!("id_{id}"))
}

/// The entry of an image, and its bytes.
async fn stored(io: &IoCtx, id: &str) -> Result<(TrashSpec, Bytes)> {
    let (object, key) = (class::object::TRASH, key(id));
    let not_found = || Error::refused(Errno::ENOENT, "the image is not in the trash");
    let found = match io.omap_by_keys(object, [key.clone()].into()).await {
        Err(e) if e.errno() == Errno::ENOENT => return Err(not_found()),
        other => other.context(|| format!("reading {object}"))?,
    };
    let value = found.get(&key).ok_or_else(not_found)?;
    Ok((TrashSpec::from_bytes(value.clone())?, value.clone()))
}

/// Changes an entry that is still what it was. The class alone would tell two that both have changed its
/// state.
async fn replace(io: &IoCtx, id: &str, before: Bytes, spec: &TrashSpec) -> Result<()> {
    let op = WriteOp::new()
        .omap_cmp([(key(id), (before, CmpOp::Eq))].into())
        .omap_set([(key(id), spec.to_bytes())].into());
    settle(io, op).await
}

/// Drops an entry that is still what it was.
async fn drop_entry(io: &IoCtx, id: &str, before: Bytes) -> Result<()> {
    let op = WriteOp::new().omap_cmp([(key(id), (before, CmpOp::Eq))].into()).omap_rm_keys([key(id)].into());
    settle(io, op).await
}

async fn settle(io: &IoCtx, op: WriteOp) -> Result<()> {
    match io.write_op(class::object::TRASH, op).await {
        Err(e) if e.errno() == Errno::ECANCELED => {
            Err(Error::refused(Errno::EBUSY, "somebody else changes the image's place in the trash"))
        }
        other => other.map(drop).context(|| format!("changing {}", class::object::TRASH)),
    }
}

/// Removes all that users have moved there and whose time has come at `now`, but not of the ids `except`;
/// what cannot be removed stays, and the rest goes. Each is looked at again before it goes, for much may
/// happen while those before it are removed. It begins behind the id `behind`, and goes round. When `stop`
/// says so it ends early: behind the id that it gives then, a later one goes on.
///
/// # Errors
/// As [`remove`] for the first that stays, unless it is stopped; ESHUTDOWN and ETIMEDOUT end it.
pub async fn purge(
    io: &IoCtx,
    now: Utime,
    except: &BTreeSet<String>,
    behind: &str,
    stop: &(dyn Fn() -> bool + Sync),
) -> Result<Option<String>> {
    let mut round = Round::new(behind);
    let mut first = Ok(None);
    loop {
        let page = list(io, &round.at).await?;
        let Some(page) = round.next(page) else { return first };
        for entry in page.iter().filter(|e| may_be_purged(e, now, except)) {
            let removed = remove(io, &entry.id, Which::DueOfUsers(now), &|_, _| {}, stop).await;
            if stop() {
                if let Err(e) = first {
                    tracing::warn!(error = %e, "an image stays in the trash");
                }
                return Ok(Some(entry.id.clone()));
            }
            match removed {
                Ok(()) => {}
                // Somebody else was quicker, has restored it, or wants it kept for longer.
                Err(e) if e.is_not_found() => {}
                Err(e) if e.errno() == Errno::ESHUTDOWN || e.errno() == Errno::ETIMEDOUT => return Err(e),
                Err(e) => first = first.and(Err(e)),
            }
        }
        if stop() {
            return Ok(Some(round.at));
        }
    }
}

/// Once through the trash, from the image behind one to that one.
struct Round<'a> {
    /// Behind this id the next page begins.
    at: String,
    /// Here it ends, once it has been at the trash's end.
    until: Option<&'a str>,
    /// Where it began, until then.
    from: Option<&'a str>,
}

impl<'a> Round<'a> {
    fn new(behind: &'a str) -> Self {
        Self { at: behind.to_owned(), until: None, from: Some(behind).filter(|id| !id.is_empty()) }
    }

    /// What of the page behind `at` belongs to it; `None` when it is over.
    fn next(&mut self, mut page: Vec<Entry>) -> Option<Vec<Entry>> {
        if let Some(last) = page.last() {
            self.at.clone_from(&last.id);
        } else {
            self.until = Some(self.from.take()?);
            self.at.clear();
            return Some(page);
        }
        if let Some(until) = self.until {
            page.retain(|entry| entry.id.as_str() <= until);
            if page.is_empty() {
                return None;
            }
        }
        Some(page)
    }
}

fn may_be_purged(entry: &Entry, now: Utime, except: &BTreeSet<String>) -> bool {
    entry.is_users() && entry.deferred_until.sec <= now.sec && !except.contains(&entry.id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_have_lost_data_is_not_taken_for_whole() {
        let found = |source, state| {
            Found::of(&TrashSpec { source, state, ..TrashSpec::default() }).map_err(|e| e.errno())
        };
        for (source, state, want) in [
            (source::USER, state::NORMAL, Ok(Found::Whole)),
            (source::USER_PARENT, state::NORMAL, Ok(Found::Whole)),
            (source::USER, state::REMOVING, Ok(Found::Begun)),
            (source::REMOVING, state::REMOVING, Ok(Found::Begun)),
            (source::REMOVING, state::NORMAL, Ok(Found::Begun)),
            (source::REMOVING, state::MOVING, Ok(Found::Unnamed)),
            (source::REMOVING, state::RESTORING, Err(Errno::EBUSY)),
            (source::USER, state::MOVING, Err(Errno::EBUSY)),
            (source::USER, state::RESTORING, Err(Errno::EBUSY)),
            (source::USER, 9, Err(Errno::EBUSY)),
        ] {
            assert_eq!(found(source, state), want, "{source} {state}");
        }
    }

    #[test]
    fn what_is_to_have_its_name_back_is_not_due_for_a_day() {
        let now = Utime::new(100, 5);
        let left = TrashSpec {
            source: source::REMOVING,
            name: "a".into(),
            deleted: now,
            deferred_until: now,
            state: state::MOVING,
        };
        let spec = TrashSpec { state: state::NORMAL, ..kept(left.clone(), now) };
        let entry = Entry::new("1".into(), spec);
        let day = 86_400;
        for (after, is_due) in [(0, false), (day - 1, false), (day + 1, true)] {
            let now = Utime::new(100 + after, 0);
            assert_eq!(may_be_purged(&entry, now, &BTreeSet::new()), is_due, "{after}");
            assert_eq!(Which::Due(now).check(&entry).is_ok(), is_due, "{after}");
        }
        // What is asked to stay longer does.
        let longer = TrashSpec { deferred_until: Utime::new(999_999, 0), ..left };
        assert_eq!(kept(longer, now).deferred_until, Utime::new(999_999, 0));
    }

    #[test]
    fn a_name_that_may_be_gone_is_not_given_back() {
        for (cause, want) in [
            (rados::Error::from(Errno::ETIMEDOUT), true),
            (rados::Error::from(Errno::ESHUTDOWN), true),
            (rados::Error::Unreachable { seconds: 30 }, true),
            (rados::Error::ShutDown, true),
            (rados::Error::from(Errno::EPERM), false),
            (rados::Error::from(Errno::EBUSY), false),
            // Something was compared, and is another one.
            (rados::Error::from(Errno::ECANCELED), false),
        ] {
            assert_eq!(may_have_happened(&Error::from(cause)), want);
        }
        assert!(!may_have_happened(&Error::refused(Errno::ETIMEDOUT, "nothing was sent")));
    }

    #[test]
    fn whoever_goes_on_with_a_removal_leaves_nothing_to_undo_to_others() {
        let at = |sec| Utime::new(sec, 0);
        let whole = TrashSpec { source: source::USER, deleted: at(5), ..TrashSpec::default() };
        let first = marked(&whole, at(9));
        assert_eq!(first, TrashSpec { state: state::REMOVING, ..whole });
        // Also by a clock that is behind, or in the same moment.
        for now in [4, 5, 9] {
            let second = marked(&first, at(now));
            assert_eq!(TrashSpec { deleted: first.deleted, ..second.clone() }, first);
            assert_ne!(second.to_bytes(), first.to_bytes(), "{now}");
        }
    }

    #[test]
    fn a_purge_begins_behind_the_image_at_which_the_last_one_was_stopped() {
        let entry = |id: &str| Entry::new(id.to_owned(), TrashSpec::default());
        for (behind, want) in [("", "abcde"), ("b", "cdeab"), ("e", "abcde"), ("bb", "cdeab"), ("x", "abcde")]
        {
            let (mut round, mut seen) = (Round::new(behind), String::new());
            // Two on each page.
            while let Some(page) = {
                let all = ["a", "b", "c", "d", "e"].into_iter().filter(|id| *id > round.at.as_str());
                let page = all.take(2).map(entry).collect();
                round.next(page)
            } {
                seen.extend(page.into_iter().map(|entry| entry.id));
            }
            assert_eq!(seen, want, "behind {behind:?}");
        }
    }

    #[test]
    fn what_others_are_at_is_not_purged() {
        let entry = |id: &str, state| Entry {
            id: id.into(),
            name: "a".into(),
            deleted: Utime::ZERO,
            deferred_until: Utime::new(99, 0),
            source: source::USER,
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
            source: if is_users { source::USER_PARENT } else { source::REMOVING },
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
