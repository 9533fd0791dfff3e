//! Operations that change an object's data, create it or remove it. Source: PrimaryLogPG::do_osd_ops.

use bytes::{Bytes, BytesMut};
use maps::pool_flags;
use messages::osd::Extent;
use store::Txn;
use types::Errno;

use super::answer::{Answer, OpError, Outcome};
use super::scratch::Scratch;
use super::{Effect, ExecEnv, ExecStop};
use crate::object::info_flags;

pub(super) fn write(env: &ExecEnv<'_>, s: &mut Scratch<'_>, extent: Extent, mut data: Bytes) -> Outcome {
    let mut e = extent.normalised();
    if e.length != data.len() as u64 {
        return Err(Errno::EINVAL.into());
    }
    check_append(env, s, e.offset)?;
    let (seq, size) = (s.info().truncate_seq, s.info().size);
    if seq > e.truncate_seq && e.offset.wrapping_add(e.length) > size {
        // Sent before a truncation that is already done: what it cut off stays cut off.
        e.length = size.saturating_sub(e.offset);
        data.truncate(e.length as usize);
    }
    if e.truncate_seq > seq {
        truncate_before_write(s, e);
    }
    check_range(env, e.offset, e.length)?;
    s.work.spend(e.length)?;
    s.make_exist();
    let size = s.info().size;
    if e.length > 0 {
        s.txn.write(&s.key, e.offset, data);
        s.touch_range(e.offset, e.length);
        s.set_size(size.max(e.offset + e.length));
    } else if e.offset > size {
        s.txn.truncate(&s.key, e.offset);
        s.set_size(e.offset);
    } else {
        s.modify = true;
    }
    s.forget_digests();
    s.count_write(e.length);
    Ok(Answer::done())
}

/// Without `allow_ec_overwrites` an object of an erasure-coded pool is appended to where its end is a
/// stripe's boundary, or replaced as a whole. Source: pg_pool_t::requires_aligned_append.
fn check_append(env: &ExecEnv<'_>, s: &Scratch<'_>, offset: u64) -> Result<(), Errno> {
    let is_aligned = || offset % u64::from(env.pool.stripe_width.max(1)) == 0;
    match appends_alone(env) && !(offset == s.info().size && is_aligned()) {
        true => Err(Errno::EOPNOTSUPP),
        false => Ok(()),
    }
}

fn appends_alone(env: &ExecEnv<'_>) -> bool {
    env.gathered.is_some() && !env.pool.has_flag(pool_flags::EC_OVERWRITES)
}

/// A write that overtook the truncation that it knows of does the truncation.
fn truncate_before_write(s: &mut Scratch<'_>, e: Extent) {
    if s.present() {
        s.txn.truncate(&s.key, e.truncate_size);
        let size = s.info().size;
        s.touch_range(e.truncate_size, size.saturating_sub(e.truncate_size));
        s.set_size(e.truncate_size);
    }
    let info = s.info_mut();
    info.truncate_seq = e.truncate_seq;
    info.truncate_size = e.truncate_size;
}

pub(super) fn write_full(env: &ExecEnv<'_>, s: &mut Scratch<'_>, extent: Extent, data: Bytes) -> Outcome {
    let length = extent.length;
    if length != data.len() as u64 {
        return Err(Errno::EINVAL.into());
    }
    check_range(env, 0, length)?;
    s.work.spend(length)?;
    s.make_exist();
    let size = s.info().size;
    if length < size {
        s.txn.truncate(&s.key, length);
    }
    // Nothing written over an empty object changes nothing: no version counts it.
    if length > 0 {
        s.txn.write(&s.key, 0, data);
    }
    s.touch_range(0, size);
    s.set_size(length);
    s.forget_digests();
    s.count_write(length);
    Ok(Answer::done())
}

pub(super) fn append(env: &ExecEnv<'_>, s: &mut Scratch<'_>, extent: Extent, data: Bytes) -> Outcome {
    let info = s.info();
    let at = Extent {
        offset: info.size,
        length: extent.length,
        truncate_size: 0,
        truncate_seq: info.truncate_seq,
    };
    write(env, s, at, data)
}

/// Repeats `data` over a range. Source: PrimaryLogPG::do_writesame.
pub(super) fn write_same(
    env: &ExecEnv<'_>,
    s: &mut Scratch<'_>,
    range: Extent,
    data_length: u64,
    data: &Bytes,
) -> Outcome {
    if range.length == 0 {
        return Ok(Answer::done());
    }
    if data_length == 0 || range.length % data_length != 0 || data_length != data.len() as u64 {
        return Err(Errno::EINVAL.into());
    }
    // Checked before the data is multiplied.
    check_range(env, range.offset, range.length)?;
    if range.length > s.work.left() {
        return Err(ExecStop::Refused(Errno::E2BIG).into());
    }
    let mut all = BytesMut::with_capacity(range.length as usize);
    for _ in 0..range.length / data_length {
        all.extend_from_slice(data);
    }
    write(env, s, Extent::new(range.offset, range.length), all.freeze())
}

/// Makes a range zeros; one that reaches the end cuts the object off instead.
pub(super) fn zero(env: &ExecEnv<'_>, s: &mut Scratch<'_>, extent: Extent) -> Outcome {
    if appends_alone(env) {
        return Err(Errno::EOPNOTSUPP.into());
    }
    let e = extent.normalised();
    let (max, size) = (env.config.max_object_size, s.info().size);
    if s.state.exists && e.offset < max && e.length >= 1 && e.length <= max && e.offset + e.length >= size {
        if e.offset >= size {
            return Ok(Answer::kept(Bytes::new()));
        }
        return truncate(env, s, e);
    }
    check_range(env, e.offset, e.length)?;
    // Ceph's OSD dies of a length of 0 here.
    if s.present() && e.length > 0 {
        s.txn.zero(&s.key, e.offset, e.length);
        s.touch_range(e.offset, e.length);
        s.delta.writes += 1;
        s.forget_digests();
    }
    Ok(Answer::done())
}

/// The new size is the extent's offset.
pub(super) fn truncate(env: &ExecEnv<'_>, s: &mut Scratch<'_>, extent: Extent) -> Outcome {
    if appends_alone(env) {
        return Err(Errno::EOPNOTSUPP.into());
    }
    let e = extent.normalised();
    if !s.present() {
        return Ok(Answer::done());
    }
    check_range(env, e.offset, e.length)?;
    if e.truncate_seq != 0 {
        // Ceph's OSD dies of this one.
        if e.offset != e.truncate_size {
            return Err(Errno::EINVAL.into());
        }
        if e.truncate_seq <= s.info().truncate_seq {
            return Ok(Answer::done());
        }
        let info = s.info_mut();
        info.truncate_seq = e.truncate_seq;
        info.truncate_size = e.truncate_size;
    }
    s.txn.truncate(&s.key, e.offset);
    let size = s.info().size;
    s.touch_range(e.offset, size.saturating_sub(e.offset));
    s.set_size(e.offset);
    s.delta.writes += 1;
    s.forget_digests();
    Ok(Answer::done())
}

pub(super) fn create(s: &mut Scratch<'_>, exclusive: bool) -> Outcome {
    if s.present() && exclusive {
        return Err(Errno::EEXIST.into());
    }
    s.make_exist();
    s.modify = true;
    Ok(Answer::done())
}

/// Removes the head; with clones it stays as a whiteout, for they hang on it. Source: PrimaryLogPG::_delete_oid.
pub(super) fn delete(env: &ExecEnv<'_>, s: &mut Scratch<'_>) -> Outcome {
    let snapset = &s.state.snapset;
    let will_clone = env.snapc.snaps.first().is_some_and(|newest| *newest > snapset.seq);
    let whiteout = !snapset.clones.is_empty() || will_clone;
    let was_whiteout = s.info().test(info_flags::WHITEOUT);
    if !s.state.exists || (was_whiteout && whiteout) {
        return Err(Errno::ENOENT.into());
    }
    if s.before.exists {
        s.txn.remove(&s.key);
    } else {
        // The request itself made it: nothing has happened.
        s.txn = Txn::new();
        s.modify = false;
    }
    let size = s.info().size;
    s.touch_range(0, size);
    s.delta.writes += 1;
    s.set_size(0);
    s.forget_digests();
    // The flag that tells of an omap stays, as in Ceph: later operations of the request look at the omap that is stored.
    let watchers = std::mem::take(&mut s.info_mut().watchers);
    let gone = |(cookie, watcher)| Effect::Unwatch { cookie, watcher, tell: true };
    s.effects.extend(watchers.into_keys().map(gone));
    if whiteout {
        s.info_mut().flags |= info_flags::WHITEOUT;
        s.delta.whiteouts += 1;
        s.txn.touch(&s.key);
        return Ok(Answer::done());
    }
    s.delta.objects -= 1;
    if was_whiteout {
        s.delta.whiteouts -= 1;
        s.info_mut().flags &= !info_flags::WHITEOUT;
    }
    s.state.to_mut().exists = false;
    Ok(Answer::done())
}

/// Expected sizes of the object and of writes.
pub(super) fn alloc_hint(s: &mut Scratch<'_>, object_size: u64, write_size: u64, flags: u32) -> Outcome {
    s.make_exist();
    let info = s.info_mut();
    info.expected_object_size = object_size;
    info.expected_write_size = write_size;
    info.alloc_hint_flags = flags;
    s.txn.alloc_hint(&s.key, object_size, write_size);
    Ok(Answer::done())
}

/// Whether an object may have this range. Source: check_offset_and_length.
fn check_range(env: &ExecEnv<'_>, offset: u64, length: u64) -> Result<(), OpError> {
    let max = env.config.max_object_size;
    match offset.checked_add(length) {
        Some(end) if offset < max && end <= max => Ok(()),
        _ => Err(Errno::EFBIG.into()),
    }
}
