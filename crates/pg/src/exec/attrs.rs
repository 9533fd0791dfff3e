//! Operations on extended attributes. Reads see the store as it was before the request.

use std::collections::BTreeMap;

use bytes::Bytes;
use codec::Encode;
use messages::osd::cmp_mode;
use types::Errno;

use super::answer::{Answer, OpError, Outcome};
use super::scratch::Scratch;
use super::work::ENTRY;
use super::{ExecEnv, compare};
use crate::object::{user_attr, user_attr_name};

/// One attribute's value; `None` when the object exists without it.
fn stored(env: &mut ExecEnv<'_>, s: &Scratch<'_>, name: &[u8]) -> Result<Option<Bytes>, OpError> {
    if !s.before.exists {
        return Err(Errno::ENOENT.into());
    }
    // The empty name would be that of our own info.
    if name.is_empty() { Ok(None) } else { Ok(env.store.attr(&s.key, &user_attr(name))?) }
}

pub(super) fn get(env: &mut ExecEnv<'_>, s: &mut Scratch<'_>, name: &[u8]) -> Outcome {
    s.delta.reads += 1;
    let value = stored(env, s, name)?.ok_or(Errno::ENODATA)?;
    s.work.spend(value.len() as u64)?;
    s.delta.read_kib += value.len().div_ceil(1024) as i64;
    Ok(Answer::data(value))
}

/// All attributes of clients, in name order.
pub(super) fn visible(env: &mut ExecEnv<'_>, s: &mut Scratch<'_>) -> Result<BTreeMap<Bytes, Bytes>, OpError> {
    let found = env.store.attrs(&s.key)?;
    s.work.spend(found.iter().map(|(k, v)| ENTRY + (k.len() + v.len()) as u64).sum())?;
    let name = |stored: &Bytes| user_attr_name(stored).map(|name| stored.slice_ref(name));
    Ok(found.into_iter().filter_map(|(stored, value)| Some((name(&stored)?, value))).collect())
}

/// The same, encoded. An object that this request has just made answers ENOENT and an empty map.
pub(super) fn get_all(env: &mut ExecEnv<'_>, s: &mut Scratch<'_>) -> Outcome {
    let data = visible(env, s)?.to_bytes();
    s.count_read(data.len());
    let rval = if s.before.exists { 0 } else { Errno::ENOENT.neg() };
    Ok(Answer::of(rval, data))
}

/// Guards the request: 1 when the comparison holds, ECANCELED when not. A missing attribute compares as empty.
pub(super) fn cmp(
    env: &mut ExecEnv<'_>,
    s: &mut Scratch<'_>,
    name: &[u8],
    (op, mode): (u8, u8),
    given: &Bytes,
) -> Outcome {
    let value = stored(env, s, name)?.unwrap_or_default();
    s.work.spend(value.len() as u64)?;
    s.count_read(value.len());
    let order = match mode {
        cmp_mode::STRING => given.as_ref().cmp(value.as_ref()),
        cmp_mode::U64 => {
            let given = given.as_ref().try_into().map_err(|_| Errno::EINVAL)?;
            u64::from_le_bytes(given).cmp(&compare::stored_number(&value))
        }
        _ => return Err(Errno::EINVAL.into()),
    };
    if compare::holds(op, order)? { Ok(Answer::of(1, Bytes::new())) } else { Err(Errno::ECANCELED.into()) }
}

pub(super) fn set(env: &ExecEnv<'_>, s: &mut Scratch<'_>, name: &[u8], value: Bytes) -> Outcome {
    let max = env.config.max_attr_size;
    if max > 0 && value.len() as u64 > max {
        return Err(Errno::EFBIG.into());
    }
    if name.len() > env.config.max_attr_name_len {
        return Err(Errno::ENAMETOOLONG.into());
    }
    s.work.spend(value.len() as u64)?;
    s.make_exist();
    if name.is_empty() {
        // In Ceph the object's own info replaces this one at once.
        s.modify = true;
    } else {
        s.txn.set_attr(&s.key, user_attr(name), value);
    }
    s.delta.writes += 1;
    Ok(Answer::done())
}

pub(super) fn remove(s: &mut Scratch<'_>, name: &[u8]) -> Outcome {
    if !s.present() {
        return Err(Errno::ENOENT.into());
    }
    if name.is_empty() {
        s.modify = true;
    } else {
        s.txn.rm_attr(&s.key, user_attr(name));
    }
    s.delta.writes += 1;
    Ok(Answer::done())
}
