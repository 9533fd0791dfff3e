//! A pool's list of namespaces that hold images.

use bytes::Bytes;
use types::Errno;

use super::types::{ListArgs, NameArgs};
use crate::registry::Done;
use crate::{ObjectView, keys};

const PREFIX: &str = "name_";

pub(super) fn namespace_add(v: &mut dyn ObjectView, args: NameArgs) -> Result<Done, Errno> {
    let key = keys::join(PREFIX, args.name);
    if keys::optional(v.omap_value(&key))?.is_some() {
        return Err(Errno::EEXIST);
    }
    v.put(key, Bytes::new())?;
    Ok(Done)
}

pub(super) fn namespace_remove(v: &mut dyn ObjectView, args: NameArgs) -> Result<Done, Errno> {
    let key = keys::join(PREFIX, args.name);
    v.omap_value(&key)?;
    v.omap_remove(key)?;
    Ok(Done)
}

pub(super) fn namespace_list(v: &mut dyn ObjectView, args: ListArgs) -> Result<Vec<Bytes>, Errno> {
    let found = keys::list(v, &keys::join(PREFIX, &args.start_after), PREFIX, args.max)?;
    Ok(found.iter().map(|(key, _)| keys::own_part(key, PREFIX)).collect())
}
