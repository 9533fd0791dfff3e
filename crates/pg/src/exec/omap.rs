//! Operations on an object's omap. Reads see the store as it was before the request.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use bytes::Bytes;
use codec::{Encode, Writer};
use types::Errno;

use super::answer::{Answer, OpError, Outcome};
use super::scratch::Scratch;
use super::{ExecEnv, compare};
use crate::object::info_flags;

/// Keys behind `start_after`, and whether there are more.
pub(super) fn keys(env: &mut ExecEnv<'_>, s: &mut Scratch<'_>, start_after: &[u8], max: u64) -> Outcome {
    page(env, s, start_after, max, &[], |key, _, w| w.blob(key))
}

/// Keys behind `start_after` that begin with `prefix`, with their values, and whether there are more.
pub(super) fn vals(
    env: &mut ExecEnv<'_>,
    s: &mut Scratch<'_>,
    start_after: &[u8],
    max: u64,
    prefix: &[u8],
) -> Outcome {
    page(env, s, start_after, max, prefix, |key, value, w| {
        w.blob(key);
        w.blob(value);
    })
}

fn page(
    env: &mut ExecEnv<'_>,
    s: &mut Scratch<'_>,
    start_after: &[u8],
    max: u64,
    prefix: &[u8],
    put: impl Fn(&[u8], &[u8], &mut Writer),
) -> Outcome {
    let max = max.min(env.config.max_omap_entries_per_request) as usize;
    let max_bytes = env.config.max_omap_bytes_per_request as usize;
    let mut w = Writer::new();
    w.u32(0);
    let (mut count, mut more) = (0, false);
    if s.info().test(info_flags::OMAP) {
        let from = if prefix > start_after { Bound::Included(prefix) } else { Bound::Excluded(start_after) };
        let (entries, rest) = env.store.omap_list(&s.key, from, max, max_bytes)?;
        let fits = |key: &Bytes| key.starts_with(prefix);
        count = entries.iter().take_while(|(k, _)| fits(k)).count();
        entries.iter().take(count).for_each(|(k, v)| put(k, v, &mut w));
        more = rest && count == entries.len();
        if more && !prefix.is_empty() {
            // The next key may be behind the prefix.
            let behind = entries.last().map_or(from, |(last, _)| Bound::Excluded(last.as_ref()));
            let (next, _) = env.store.omap_list(&s.key, behind, 1, usize::MAX)?;
            more = next.iter().any(|(k, _)| fits(k));
        }
    }
    w.patch_u32(0, count as u32);
    more.encode(&mut w);
    s.count_read(w.len());
    Ok(Answer::kept(w.into_bytes()))
}

pub(super) fn header(env: &mut ExecEnv<'_>, s: &mut Scratch<'_>) -> Outcome {
    if !s.info().test(info_flags::OMAP) {
        return Ok(Answer::kept(Bytes::new()));
    }
    let header = env.store.omap_header(&s.key)?;
    s.count_read(header.len());
    Ok(Answer::kept(header))
}

/// Those of the keys that exist, with their values.
pub(super) fn vals_by_keys(env: &mut ExecEnv<'_>, s: &mut Scratch<'_>, keys: BTreeSet<Bytes>) -> Outcome {
    let found = get(env, s, keys.into_iter().collect())?;
    let mut w = Writer::new();
    w.count(found.len());
    for (key, value) in &found {
        w.blob(key);
        w.blob(value);
    }
    s.count_read(w.len());
    Ok(Answer::kept(w.into_bytes()))
}

fn get(env: &mut ExecEnv<'_>, s: &Scratch<'_>, keys: Vec<Bytes>) -> Result<Vec<(Bytes, Bytes)>, OpError> {
    if !s.info().test(info_flags::OMAP) {
        return Ok(Vec::new());
    }
    Ok(env.store.omap_get(&s.key, &keys)?)
}

/// Guards the request: every key's value (empty when it is missing) fulfils its assertion.
pub(super) fn cmp(
    env: &mut ExecEnv<'_>,
    s: &mut Scratch<'_>,
    assertions: BTreeMap<Bytes, (Bytes, i32)>,
) -> Outcome {
    if !s.present() {
        return Err(Errno::ENOENT.into());
    }
    let found: BTreeMap<Bytes, Bytes> =
        get(env, s, assertions.keys().cloned().collect())?.into_iter().collect();
    s.delta.reads += 1;
    for (key, (given, op)) in &assertions {
        let stored = found.get(key).map_or(&[][..], |v| v);
        if !compare::omap_value_holds(stored, *op, given)? {
            return Err(Errno::ECANCELED.into());
        }
    }
    Ok(Answer::kept(Bytes::new()))
}

pub(super) fn set(env: &ExecEnv<'_>, s: &mut Scratch<'_>, vals: BTreeMap<Bytes, Bytes>) -> Outcome {
    supported(env)?;
    s.make_exist();
    let bytes = 4 + vals.iter().map(|(k, v)| (8 + k.len() + v.len()) as u64).sum::<u64>();
    s.txn.omap_set(&s.key, vals.into_iter().collect());
    s.count_write(bytes);
    holds_omap(s);
    Ok(Answer::done())
}

pub(super) fn set_header(env: &ExecEnv<'_>, s: &mut Scratch<'_>, header: Bytes) -> Outcome {
    supported(env)?;
    s.make_exist();
    s.txn.omap_set_header(&s.key, header);
    s.delta.writes += 1;
    holds_omap(s);
    Ok(Answer::done())
}

/// Removes keys and header.
pub(super) fn clear(env: &ExecEnv<'_>, s: &mut Scratch<'_>) -> Outcome {
    supported(env)?;
    if !s.present() {
        return Err(Errno::ENOENT.into());
    }
    if s.info().test(info_flags::OMAP) {
        s.txn.omap_clear(&s.key);
        s.delta.writes += 1;
        s.forget_digests();
        s.info_mut().flags &= !info_flags::OMAP;
    }
    Ok(Answer::done())
}

pub(super) fn remove(env: &ExecEnv<'_>, s: &mut Scratch<'_>, keys: BTreeSet<Bytes>) -> Outcome {
    supported(env)?;
    if !s.present() {
        return Err(Errno::ENOENT.into());
    }
    s.txn.omap_rm(&s.key, keys.into_iter().collect());
    s.delta.writes += 1;
    s.forget_digests();
    Ok(Answer::done())
}

/// Removes keys from `begin` up to, without, `end`.
pub(super) fn remove_range(env: &ExecEnv<'_>, s: &mut Scratch<'_>, begin: Bytes, end: Bytes) -> Outcome {
    supported(env)?;
    if !s.present() {
        return Err(Errno::ENOENT.into());
    }
    s.txn.omap_rm_range(&s.key, begin, end);
    s.delta.writes += 1;
    s.forget_digests();
    Ok(Answer::done())
}

/// Erasure-coded pools have no omaps.
fn supported(env: &ExecEnv<'_>) -> Result<(), OpError> {
    if env.pool.is_erasure() { Err(Errno::EOPNOTSUPP.into()) } else { Ok(()) }
}

fn holds_omap(s: &mut Scratch<'_>) {
    s.forget_digests();
    if !s.info().test(info_flags::OMAP) {
        s.info_mut().flags |= info_flags::OMAP;
    }
}
