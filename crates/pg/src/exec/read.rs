//! Operations that read an object.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use codec::{Encode, Writer};
use messages::osd::Extent;
use types::Errno;

use super::{ExecEnv, OpError, Scratch};

pub(super) fn read(env: &mut ExecEnv<'_>, s: &Scratch, extent: Extent) -> Result<Bytes, OpError> {
    if !s.state.exists {
        return Err(Errno::ENOENT.into());
    }
    let size = s.state.info.size;
    let length = if extent.length == 0 { size.saturating_sub(extent.offset) } else { extent.length };
    let length = length.min(size.saturating_sub(extent.offset));
    if length == 0 {
        return Ok(Bytes::new());
    }
    Ok(env.store.read(&s.key, extent.offset, length)?)
}

/// Size and mtime.
pub(super) fn stat(s: &Scratch) -> Result<Bytes, OpError> {
    if !s.state.exists {
        return Err(Errno::ENOENT.into());
    }
    let mut w = Writer::with_capacity(16);
    w.u64(s.state.info.size);
    s.state.info.mtime.encode(&mut w);
    Ok(w.into_bytes())
}

pub(super) fn omap_get_by_keys(
    env: &mut ExecEnv<'_>,
    s: &Scratch,
    keys: BTreeSet<Bytes>,
) -> Result<Bytes, OpError> {
    let keys: Vec<Bytes> = keys.into_iter().collect();
    let found: BTreeMap<Bytes, Bytes> = env.store.omap_get(&s.key, &keys)?.into_iter().collect();
    Ok(found.to_bytes())
}
