//! Finding an object's entry in the index.

use bytes::Bytes;
use types::Errno;

use super::names;
use crate::{ObjectView, keys};
use ::rgw::index::entry::{Entry, Key, VERSION_MARKER};

/// An object's entry, or why there is none, and its omap key in both cases.
pub(super) struct Located {
    pub at: Bytes,
    pub entry: Result<Entry, Errno>,
}

/// Finds an entry. Where versions of an object stand under its plain name, that is the version without an id;
/// when `marker_first` is set, the delete marker without one comes before it.
pub(super) fn locate(v: &mut dyn ObjectView, key: &Key, marker_first: bool) -> Located {
    let located = at(v, names::entry(key));
    let versioned = located.entry.as_ref().is_ok_and(|e| e.has(VERSION_MARKER));
    if !key.instance.is_empty() || !versioned {
        return located;
    }
    if marker_first {
        let marker = at(v, names::delete_marker(key));
        if marker.entry.is_ok() {
            return marker;
        }
    }
    at(v, names::instance(key))
}

fn at(v: &mut dyn ObjectView, at: Bytes) -> Located {
    let entry = keys::read(v, &at);
    Located { at, entry }
}
