//! Values under omap keys, typed; and listings of keys with a prefix.

use bytes::Bytes;
use codec::{Decode, Encode};
use types::Errno;

use crate::ObjectView;
use crate::registry::stored;

/// Entries that one look into the omap asks for. Source: RBD_MAX_KEYS_READ in src/cls/rbd/cls_rbd.cc.
const PAGE: u64 = 64;

/// The value under a key: ENOENT without it, EIO when it does not decode.
pub(crate) fn read<T: Decode>(v: &mut dyn ObjectView, key: impl AsRef<[u8]>) -> Result<T, Errno> {
    stored(v.omap_value(key.as_ref())?)
}

/// The value under a key, if there is one.
pub(crate) fn find<T: Decode>(v: &mut dyn ObjectView, key: impl AsRef<[u8]>) -> Result<Option<T>, Errno> {
    optional(read(v, key))
}

/// Takes ENOENT for "there is none".
pub(crate) fn optional<T>(result: Result<T, Errno>) -> Result<Option<T>, Errno> {
    match result {
        Err(Errno::ENOENT) => Ok(None),
        other => other.map(Some),
    }
}

pub(crate) fn write(
    v: &mut dyn ObjectView,
    key: impl Into<Bytes>,
    value: &(impl Encode + ?Sized),
) -> Result<(), Errno> {
    v.put(key, value.to_bytes())
}

/// Removes a key if it is there; the object need not exist.
pub(crate) fn remove(v: &mut dyn ObjectView, key: impl Into<Bytes>) -> Result<(), Errno> {
    optional(v.omap_remove(key.into())).map(|_| ())
}

/// A key out of its prefix and its own part.
pub(crate) fn join(prefix: &str, own: impl AsRef<[u8]>) -> Bytes {
    [prefix.as_bytes(), own.as_ref()].concat().into()
}

/// At most `max` entries behind `start_after` whose keys begin with `prefix`.
pub(crate) fn list(
    v: &mut dyn ObjectView,
    start_after: &[u8],
    prefix: &str,
    max: u64,
) -> Result<Vec<(Bytes, Bytes)>, Errno> {
    list_bytes(v, start_after, prefix.as_bytes(), max)
}

/// As `list`, with a prefix that need not be text.
pub(crate) fn list_bytes(
    v: &mut dyn ObjectView,
    start_after: &[u8],
    prefix: &[u8],
    max: u64,
) -> Result<Vec<(Bytes, Bytes)>, Errno> {
    let mut all: Vec<(Bytes, Bytes)> = Vec::new();
    while (all.len() as u64) < max {
        let behind = all.last().map_or_else(|| Bytes::copy_from_slice(start_after), |(k, _)| k.clone());
        let (page, more) = v.omap_list(&behind, prefix, PAGE.min(max - all.len() as u64))?;
        // An empty page that promises more would promise it for ever.
        let goes_on = more && !page.is_empty();
        all.extend(page);
        if !goes_on {
            break;
        }
    }
    Ok(all)
}

/// As `list`, from an entry's own part on, with the prefix taken off the keys and the values decoded (EIO when one does
/// not).
pub(crate) fn list_typed<T: Decode>(
    v: &mut dyn ObjectView,
    start_after: &[u8],
    prefix: &str,
    max: u64,
) -> Result<Vec<(Bytes, T)>, Errno> {
    let found = list(v, &join(prefix, start_after), prefix, max)?;
    found.into_iter().map(|(key, value)| Ok((own_part(&key, prefix), stored(value)?))).collect()
}

/// A key without its prefix.
pub(crate) fn own_part(key: &Bytes, prefix: &str) -> Bytes {
    key.slice(prefix.len().min(key.len())..)
}
