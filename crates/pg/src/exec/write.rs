//! Operations that change an object.

use std::collections::BTreeMap;

use bytes::Bytes;
use messages::osd::Extent;
use types::Errno;

use super::{ExecEnv, OpError, Scratch};
use crate::object::{ObjectState, info_flags};

pub(super) fn write(env: &ExecEnv<'_>, s: &mut Scratch, extent: Extent, data: Bytes) -> Result<(), OpError> {
    if extent.length != data.len() as u64 {
        return Err(Errno::EINVAL.into());
    }
    let end = check_range(env, extent.offset, extent.length)?;
    make_exist(s);
    if !data.is_empty() {
        s.txn.write(&s.key, extent.offset, data);
        set_size(s, s.state.info.size.max(end));
    }
    count_write(s, extent.length);
    Ok(())
}

pub(super) fn write_full(
    env: &ExecEnv<'_>,
    s: &mut Scratch,
    extent: Extent,
    data: Bytes,
) -> Result<(), OpError> {
    if extent.length != data.len() as u64 {
        return Err(Errno::EINVAL.into());
    }
    check_range(env, 0, extent.length)?;
    make_exist(s);
    if extent.length < s.state.info.size {
        s.txn.truncate(&s.key, extent.length);
    }
    if !data.is_empty() {
        s.txn.write(&s.key, 0, data);
    }
    set_size(s, extent.length);
    count_write(s, extent.length);
    Ok(())
}

pub(super) fn create(s: &mut Scratch, exclusive: bool) -> Result<(), OpError> {
    if s.state.exists && exclusive {
        return Err(Errno::EEXIST.into());
    }
    make_exist(s);
    s.modify = true;
    s.user_modify = true;
    Ok(())
}

pub(super) fn delete(s: &mut Scratch) -> Result<(), OpError> {
    if !s.state.exists {
        return Err(Errno::ENOENT.into());
    }
    s.txn.remove(&s.key);
    s.delta.objects -= 1;
    s.delta.bytes -= s.state.info.size as i64;
    if s.state.info.test(info_flags::OMAP) {
        s.delta.objects_omap -= 1;
    }
    s.delta.writes += 1;
    s.state = ObjectState { snapset: std::mem::take(&mut s.state.snapset), ..ObjectState::default() };
    s.modify = true;
    s.user_modify = true;
    Ok(())
}

pub(super) fn omap_set(
    env: &ExecEnv<'_>,
    s: &mut Scratch,
    vals: BTreeMap<Bytes, Bytes>,
) -> Result<(), OpError> {
    let bytes: u64 = vals.iter().map(|(k, v)| (k.len() + v.len()) as u64).sum();
    if bytes > env.config.max_omap_bytes_per_request {
        return Err(Errno::EINVAL.into());
    }
    make_exist(s);
    if !s.state.info.test(info_flags::OMAP) {
        s.state.info.flags |= info_flags::OMAP;
        s.delta.objects_omap += 1;
    }
    s.txn.omap_set(&s.key, vals.into_iter().collect());
    count_write(s, bytes);
    Ok(())
}

/// The end of a range that an object may have. Source: check_offset_and_length in src/osd/PrimaryLogPG.cc.
fn check_range(env: &ExecEnv<'_>, offset: u64, length: u64) -> Result<u64, OpError> {
    match offset.checked_add(length) {
        Some(end) if end <= env.config.max_object_size => Ok(end),
        _ => Err(Errno::EFBIG.into()),
    }
}

fn make_exist(s: &mut Scratch) {
    if !s.state.exists {
        s.state.exists = true;
        s.txn.touch(&s.key);
        s.delta.objects += 1;
    }
}

fn set_size(s: &mut Scratch, size: u64) {
    s.delta.bytes += size as i64 - s.state.info.size as i64;
    s.state.info.size = size;
}

fn count_write(s: &mut Scratch, bytes: u64) {
    s.delta.writes += 1;
    s.delta.write_kib += bytes.div_ceil(1024) as i64;
    s.modify = true;
    s.user_modify = true;
}
