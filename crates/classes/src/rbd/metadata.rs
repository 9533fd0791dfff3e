//! An image's or a pool's metadata: values under names that users choose.

use std::collections::BTreeMap;

use bytes::Bytes;
use types::Errno;

use super::types::{ListArgs, NameArgs};
use crate::registry::Done;
use crate::{ObjectView, keys};

const PREFIX: &str = "metadata_";

/// Entries that a listing answers which asks for none in particular.
const DEFAULT_MAX: u64 = 64;

pub(super) fn metadata_list(v: &mut dyn ObjectView, args: ListArgs) -> Result<BTreeMap<Bytes, Bytes>, Errno> {
    let max = if args.max == 0 { DEFAULT_MAX } else { args.max };
    let found = keys::list(v, &keys::join(PREFIX, &args.start_after), PREFIX, max)?;
    Ok(found.into_iter().map(|(key, value)| (keys::own_part(&key, PREFIX), value)).collect())
}

pub(super) fn metadata_set(v: &mut dyn ObjectView, values: BTreeMap<Bytes, Bytes>) -> Result<Done, Errno> {
    v.omap_set(values.into_iter().map(|(name, value)| (keys::join(PREFIX, name), value)).collect())?;
    Ok(Done)
}

pub(super) fn metadata_remove(v: &mut dyn ObjectView, args: NameArgs) -> Result<Done, Errno> {
    v.omap_remove(keys::join(PREFIX, args.name))?;
    Ok(Done)
}

pub(super) fn metadata_get(v: &mut dyn ObjectView, args: NameArgs) -> Result<Bytes, Errno> {
    v.omap_value(&keys::join(PREFIX, args.name))
}
