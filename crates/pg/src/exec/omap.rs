//! Operations on an object's omap. Reads see the store as it was before the request.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use bytes::Bytes;
use codec::{Encode, Writer};
use store::KeyPage;
use types::Errno;

use super::answer::{Answer, OpError, Outcome};
use super::scratch::Scratch;
use super::work::ENTRY;
use super::{ExecEnv, compare};
use crate::object::info_flags;

/// What an entry of an answer takes beside key and value: their lengths.
const LENGTHS: u64 = 8;
/// Values that are looked up before their bytes are counted.
const KEYS_AT_ONCE: usize = 16;

/// Keys behind `start_after`, and whether there are more.
pub(super) fn keys(env: &mut ExecEnv<'_>, s: &mut Scratch<'_>, start_after: &[u8], max: u64) -> Outcome {
    let (entries, more) = list(env, s, start_after, max, &[])?;
    let bytes = entries.iter().map(|(key, _)| ENTRY as usize + key.len()).sum();
    answer(s, &entries, more, bytes, |(key, _), w| w.blob(key))
}

/// Keys behind `start_after` that begin with `prefix`, with their values, and whether there are more.
pub(super) fn vals(
    env: &mut ExecEnv<'_>,
    s: &mut Scratch<'_>,
    start_after: &[u8],
    max: u64,
    prefix: &[u8],
) -> Outcome {
    let (entries, more) = list(env, s, start_after, max, prefix)?;
    let bytes = weight(&entries) as usize;
    answer(s, &entries, more, bytes, |(key, value), w| {
        w.blob(key);
        w.blob(value);
    })
}

/// The entries, each as `put` writes it; `bytes` is about what they take.
fn answer(
    s: &mut Scratch<'_>,
    entries: &[(Bytes, Bytes)],
    more: bool,
    bytes: usize,
    put: impl Fn(&(Bytes, Bytes), &mut Writer),
) -> Outcome {
    let mut w = Writer::with_capacity(bytes);
    w.count(entries.len());
    entries.iter().for_each(|e| put(e, &mut w));
    more.encode(&mut w);
    s.count_read(w.len());
    Ok(Answer::kept(w.into_bytes()))
}

/// A page of entries, bounded by the OSD's options too.
pub(super) fn list(
    env: &mut ExecEnv<'_>,
    s: &mut Scratch<'_>,
    start_after: &[u8],
    max: u64,
    prefix: &[u8],
) -> Result<KeyPage, OpError> {
    if !s.info().test(info_flags::OMAP) {
        return Ok((Vec::new(), false));
    }
    // A page is short rather than too much, and leaves room for what the other operations answer.
    let room = s.work.answers_left();
    let max = max.min(env.config.max_omap_entries_per_request).min(room / (4 * LENGTHS)) as usize;
    let most = s.work.left().min(room / 2);
    let max_bytes = env.config.max_omap_bytes_per_request.min(most) as usize;
    let from = if prefix > start_after { Bound::Included(prefix) } else { Bound::Excluded(start_after) };
    let (mut entries, mut more) = env.store.omap_list(&s.key, from, max, max_bytes)?;
    s.work.note(weight(&entries));
    if prefix.is_empty() {
        return Ok((entries, more));
    }
    let fits = |(key, _): &(Bytes, Bytes)| key.starts_with(prefix);
    let count = entries.iter().take_while(|e| fits(e)).count();
    more &= count == entries.len();
    entries.truncate(count);
    if more {
        // The next key may be behind the prefix.
        let behind = entries.last().map_or(from, |(last, _)| Bound::Excluded(last.as_ref()));
        more = env.store.omap_list(&s.key, behind, 1, usize::MAX)?.0.iter().any(fits);
    }
    Ok((entries, more))
}

pub(super) fn header(env: &mut ExecEnv<'_>, s: &mut Scratch<'_>) -> Outcome {
    if !s.info().test(info_flags::OMAP) {
        return Ok(Answer::kept(Bytes::new()));
    }
    let header = env.store.omap_header(&s.key)?;
    s.work.spend(header.len() as u64)?;
    s.count_read(header.len());
    Ok(Answer::kept(header))
}

/// Those of the keys that exist, with their values.
pub(super) fn vals_by_keys(env: &mut ExecEnv<'_>, s: &mut Scratch<'_>, keys: BTreeSet<Bytes>) -> Outcome {
    let keys: Vec<Bytes> = keys.into_iter().collect();
    let found = get(env, s, &keys)?;
    let mut w = Writer::new();
    w.count(found.len());
    for (key, value) in &found {
        w.blob(key);
        w.blob(value);
    }
    s.count_read(w.len());
    Ok(Answer::kept(w.into_bytes()))
}

/// Those of the keys that exist.
pub(super) fn get(
    env: &mut ExecEnv<'_>,
    s: &mut Scratch<'_>,
    keys: &[Bytes],
) -> Result<Vec<(Bytes, Bytes)>, OpError> {
    if !s.info().test(info_flags::OMAP) {
        return Ok(Vec::new());
    }
    s.work.spend(keys.len() as u64 * ENTRY)?;
    let (mut found, mut bytes) = (Vec::new(), 0);
    for keys in keys.chunks(KEYS_AT_ONCE) {
        let more = env.store.omap_get(&s.key, keys)?;
        s.work.spend(weight(&more))?;
        bytes += weight(&more);
        s.work.may_answer(bytes)?;
        found.extend(more);
    }
    Ok(found)
}

fn weight(entries: &[(Bytes, Bytes)]) -> u64 {
    entries.iter().map(|(k, v)| ENTRY + (k.len() + v.len()) as u64).sum()
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
    if s.info().test(info_flags::OMAP) && !s.before.exists {
        // An earlier operation of the request has made the omap: the store does not know the object.
        return Err(Errno::ENOENT.into());
    }
    let keys: Vec<Bytes> = assertions.keys().cloned().collect();
    let found: BTreeMap<Bytes, Bytes> = get(env, s, &keys)?.into_iter().collect();
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
    s.work.spend(vals.iter().map(|(k, v)| ENTRY + (k.len() + v.len()) as u64).sum())?;
    s.make_exist();
    let bytes = 4 + vals.iter().map(|(k, v)| (8 + k.len() + v.len()) as u64).sum::<u64>();
    s.txn.omap_set(&s.key, vals.into_iter().collect());
    s.count_write(bytes);
    holds_omap(s);
    Ok(Answer::done())
}

pub(super) fn set_header(env: &ExecEnv<'_>, s: &mut Scratch<'_>, header: Bytes) -> Outcome {
    supported(env)?;
    s.work.spend(header.len() as u64)?;
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
    s.work.spend(keys.len() as u64 * ENTRY)?;
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
