//! A pool's images: listing, making, renaming, removing.

use std::collections::BTreeMap;

use codec::Encode;
use rados::{IoCtx, WriteOp};
use types::Errno;

use crate::class::{self, ListArgs, RenameArgs};
use crate::error::{Context, Error, Result};
use crate::image::{Image, OpenOptions};
use crate::manage::{self, CreateOptions};

pub use crate::removal::{remove, remove_this};

/// Entries of one page of the directory. Source: RBD_MAX_KEYS_READ.
const PAGE: u64 = 64;

/// What is left of a bound on what is read of a pool. Whoever may write there chooses how long names are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Room {
    pub entries: usize,
    pub bytes: usize,
}

impl Room {
    const ENDLESS: Self = Self { entries: usize::MAX, bytes: usize::MAX };

    /// Whether an entry of so many bytes found room, which it then has.
    pub fn take(&mut self, bytes: usize) -> bool {
        let fits = self.entries > 0 && bytes <= self.bytes;
        if fits {
            (self.entries, self.bytes) = (self.entries - 1, self.bytes - bytes);
        }
        fits
    }
}

/// Names and ids of the images in the pool and namespace of `io`, by name.
///
/// # Errors
/// The directory cannot be read.
pub async fn list(io: &IoCtx) -> Result<BTreeMap<String, String>> {
    list_up_to(io, Room::ENDLESS).await.map(|(all, _)| all)
}

/// The same, but of no more images than there is room for; and whether these are all.
///
/// # Errors
/// As [`list`].
pub async fn list_up_to(io: &IoCtx, mut room: Room) -> Result<(BTreeMap<String, String>, bool)> {
    let mut all = BTreeMap::new();
    let mut start_after = String::new();
    loop {
        let input = ListArgs { start_after, max: PAGE }.to_bytes();
        let page: BTreeMap<String, String> =
            match class::call(io, class::object::DIRECTORY, "dir_list", input).await {
                Err(e) if e.is_not_found() => return Ok((all, true)),
                other => other?,
            };
        let count = page.len() as u64;
        let Some(last) = page.keys().next_back() else { return Ok((all, true)) };
        start_after = last.clone();
        if !fill(&mut all, page, &mut room, |(name, id)| name.len() + id.len()) {
            return Ok((all, false));
        }
        if count < PAGE {
            return Ok((all, true));
        }
    }
}

/// The namespaces of a pool.
///
/// # Errors
/// The list cannot be read.
pub async fn namespaces(io: &IoCtx) -> Result<Vec<String>> {
    namespaces_up_to(io, Room::ENDLESS).await.map(|(all, _)| all)
}

/// The same, but no more than there is room for; and whether these are all.
///
/// # Errors
/// As [`namespaces`].
pub async fn namespaces_up_to(io: &IoCtx, mut room: Room) -> Result<(Vec<String>, bool)> {
    let io = io.with_namespace("");
    let mut all: Vec<String> = Vec::new();
    loop {
        let input = ListArgs { start_after: all.last().cloned().unwrap_or_default(), max: PAGE }.to_bytes();
        let page: Vec<String> =
            match class::call(&io, class::object::NAMESPACES, "namespace_list", input).await {
                Err(e) if e.is_not_found() => return Ok((all, true)),
                other => other?,
            };
        let count = page.len() as u64;
        if !fill(&mut all, page, &mut room, String::len) {
            return Ok((all, false));
        }
        if count < PAGE {
            return Ok((all, true));
        }
    }
}

/// Adds what there is room for, in its order: whether that is all.
fn fill<T>(
    all: &mut impl Extend<T>,
    page: impl IntoIterator<Item = T>,
    room: &mut Room,
    bytes: impl Fn(&T) -> usize,
) -> bool {
    let mut is_all = true;
    all.extend(page.into_iter().take_while(|entry| {
        is_all = room.take(bytes(entry));
        is_all
    }));
    is_all
}

/// # Errors
/// EEXIST when there is one of this name.
pub async fn create_namespace(io: &IoCtx, name: &str) -> Result<()> {
    if name.is_empty() || name.contains(['/', '@']) {
        return Err(Error::refused(Errno::EINVAL, format!("'{name}' cannot be a namespace's name")));
    }
    let io = io.with_namespace("");
    match class::change(&io, class::object::NAMESPACES, "namespace_add", name.to_owned().to_bytes()).await {
        Err(e) if e.errno() == Errno::EEXIST => {
            return Err(Error::refused(Errno::EEXIST, format!("there is a namespace {name} already")));
        }
        other => other?,
    }
    set_directory(&io.with_namespace(name), DIRECTORY_READY).await
}

/// Whether images may be added. Source: DirectoryState in src/cls/rbd/cls_rbd_types.h.
const DIRECTORY_READY: u8 = 0;
const DIRECTORY_CLOSED: u8 = 1;

/// EBUSY to close one that has images.
async fn set_directory(inside: &IoCtx, state: u8) -> Result<()> {
    let object = class::object::DIRECTORY;
    let op = WriteOp::new().create(false).exec("rbd", "dir_state_set", state.to_bytes());
    inside.write_op(object, op).await.map(drop).context(|| format!("changing {object}"))
}

/// # Errors
/// EBUSY while it has images; ENOENT when there is none of this name.
pub async fn remove_namespace(io: &IoCtx, name: &str) -> Result<()> {
    let (io, inside) = (io.with_namespace(""), io.with_namespace(name));
    if !namespaces(&io).await?.iter().any(|n| n == name) {
        return Err(Error::refused(Errno::ENOENT, format!("there is no namespace {name}")));
    }
    // From here on nobody adds an image.
    match set_directory(&inside, DIRECTORY_CLOSED).await {
        Err(e) if e.errno() == Errno::EBUSY => {
            return Err(Error::refused(Errno::EBUSY, format!("namespace {name} has images")));
        }
        other => other?,
    }
    let removed = remove_closed_namespace(&io, &inside, name).await;
    if removed.as_ref().is_err_and(|e| e.errno() != Errno::ENOENT) {
        // It stays, and is of use.
        if let Err(e) = set_directory(&inside, DIRECTORY_READY).await {
            tracing::warn!(namespace = name, error = %e, "the namespace takes no new images");
        }
    }
    removed
}

async fn remove_closed_namespace(io: &IoCtx, inside: &IoCtx, name: &str) -> Result<()> {
    let trash: Result<BTreeMap<String, bytes::Bytes>> = class::call(
        inside,
        class::object::TRASH,
        "trash_list",
        ListArgs { start_after: String::new(), max: 1 }.to_bytes(),
    )
    .await;
    match trash {
        Ok(found) if !found.is_empty() => {
            return Err(Error::refused(Errno::EBUSY, format!("namespace {name} has images in its trash")));
        }
        Err(e) if !e.is_not_found() => return Err(e),
        _ => {}
    }
    match inside.remove(class::object::DIRECTORY).await {
        Err(e) if !e.is_not_found() => return Err(e.into()),
        _ => {}
    }
    class::change(io, class::object::NAMESPACES, "namespace_remove", name.to_owned().to_bytes()).await
}

/// Makes an image of `size` bytes and gives its id.
///
/// # Errors
/// EEXIST for a name in use; EINVAL for options that do not fit together.
pub async fn create(io: &IoCtx, name: &str, size: u64, options: &CreateOptions) -> Result<String> {
    manage::create(io, name, size, options).await
}

/// # Errors
/// EEXIST for a name in use; ENOENT when there is no such image.
pub async fn rename(io: &IoCtx, from: &str, to: &str) -> Result<()> {
    let (old, new) = (class::object::id(from), class::object::id(to));
    let image = Image::open(io, from, OpenOptions::default()).await?;
    let id = image.id().to_owned();
    let content = io.read(&old, 0, 4096).await.context(|| format!("reading {old}"))?;
    let made = io.write_op(&new, WriteOp::new().create(true).write_full(content)).await;
    let result = match made {
        Err(e) if e.errno() == Errno::EEXIST => {
            Err(Error::refused(Errno::EEXIST, format!("there is an image {to} already")))
        }
        Err(e) => Err(e.into()),
        Ok(_) => {
            let args = RenameArgs { from: from.into(), to: to.into(), id };
            let renamed =
                class::change(io, class::object::DIRECTORY, "dir_rename_image", args.to_bytes()).await;
            let gone = if renamed.is_ok() { &old } else { &new };
            io.remove(gone).await.context(|| format!("removing {gone}"))?;
            renamed
        }
    };
    image.inner.tell_header_update().await;
    image.close().await?;
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_names_fill_a_bound_as_many_do() {
        let room = Room { entries: 3, bytes: 10 };
        for (page, want) in [
            (vec!["a", "b", "c"], (3, true)),
            (vec!["a", "b", "c", "d"], (3, false)),
            (vec!["12345", "12345"], (2, true)),
            (vec!["12345", "123456", "c"], (1, false)),
            (vec!["12345678901"], (0, false)),
        ] {
            let (mut all, mut room) = (Vec::new(), room);
            let is_all = fill(&mut all, page.clone(), &mut room, |name| name.len());
            assert_eq!((all.len(), is_all), want, "{page:?}");
        }
    }
}
