//! Snapshots: which clone serves a read, when a write makes a clone, what clones share with the head, and rollback.
//! Source: PrimaryLogPG::find_object_context, make_writeable, _rollback_to; SnapSet in src/osd/osd_types.h.

use std::borrow::Cow;

use bytes::Bytes;
use codec::Encode;
use messages::osd::{CloneInfo as ListedClone, ListSnapsResponse, flags};
use store::Txn;
use types::{Errno, Eversion, HObject, SnapId};

use super::answer::{Answer, Outcome};
use super::scratch::Scratch;
use super::work::ENTRY;
use super::{EntryDraft, ExecEnv, ExecStop, write};
use crate::dirty::Dirty;
use crate::entry::EntryKind;
use crate::object::{CloneInfo, INFO_ATTR, ObjectInfo, ObjectState, SNAPSET_ATTR, SnapSet, info_flags};

/// What serves a read of a snapshot.
pub(super) enum Serving {
    Head,
    Clone(HObject),
    /// The object did not exist then.
    Nothing,
}

/// Finds what serves a read of `snap`.
pub(super) fn serving(env: &ExecEnv<'_>, head: &HObject, snapset: &SnapSet, snap: SnapId) -> Serving {
    if snap.0 > snapset.seq {
        return Serving::Head;
    }
    let direct = env.flags & flags::MAP_SNAP_CLONE != 0;
    let found =
        if direct { snapset.clones.get_key_value(&snap.0) } else { snapset.clones.range(snap.0..).next() };
    let Some((id, clone)) = found else { return Serving::Nothing };
    let removed = env.map.in_removed_snaps_queue(env.pgid.pgid.pool, snap);
    if direct || (clone.snaps.contains(&snap.0) && !removed) {
        Serving::Clone(head.at(SnapId(*id)))
    } else {
        Serving::Nothing
    }
}

/// The object that a read looks at, and its state. ENOENT when nothing serves it.
pub(super) fn resolve<'a>(
    env: &mut ExecEnv<'_>,
    head: &HObject,
    state: &'a ObjectState,
) -> Result<(HObject, Cow<'a, ObjectState>), ExecStop> {
    let none = Err(ExecStop::Refused(Errno::ENOENT));
    if !state.exists {
        return none;
    }
    let on_head = |seen: bool| if seen { Ok((head.head(), Cow::Borrowed(state))) } else { none.clone() };
    match env.snapid {
        SnapId::HEAD => on_head(state.is_present()),
        // Snapshots are listed although the head is gone.
        SnapId::SNAPDIR => on_head(true),
        snap => match serving(env, head, &state.snapset, snap) {
            Serving::Nothing => none,
            Serving::Head => on_head(state.is_present()),
            Serving::Clone(clone) => {
                let found = load_clone(env, &clone)?;
                if found.is_present() { Ok((clone, Cow::Owned(found))) } else { none }
            }
        },
    }
}

fn load_clone(env: &mut ExecEnv<'_>, clone: &HObject) -> Result<ObjectState, ExecStop> {
    if env.missing.contains(clone) {
        return Err(ExecStop::Missing(clone.clone()));
    }
    let key = env.key(clone.clone());
    let state = ObjectState::load(env.store, &key)?;
    match (env.is_stale)(clone, state.info.version) {
        true => Err(ExecStop::Missing(clone.clone())),
        false => Ok(state),
    }
}

/// Clones, what they stand for and what they share, and the head.
pub(super) fn list(s: &mut Scratch<'_>) -> Outcome {
    let snapset = &s.state.snapset;
    let mut clones: Vec<ListedClone> = Vec::with_capacity(snapset.clones.len() + 1);
    for (id, c) in &snapset.clones {
        let snaps = c.snaps.iter().rev().map(|s| SnapId(*s)).collect();
        clones.push(ListedClone { clone: SnapId(*id), snaps, overlap: c.overlap.clone(), size: c.size });
    }
    if s.present() {
        let size = s.info().size;
        clones.push(ListedClone { clone: SnapId::HEAD, snaps: Vec::new(), overlap: Vec::new(), size });
    }
    let answer = ListSnapsResponse { clones, seq: SnapId(snapset.seq) }.to_bytes();
    s.work.spend(answer.len() as u64)?;
    s.delta.reads += 1;
    Ok(Answer::data(answer))
}

/// Makes the head what it was at a snapshot; it goes when it did not exist then.
pub(super) fn rollback(env: &mut ExecEnv<'_>, s: &mut Scratch<'_>, snap: SnapId) -> Outcome {
    let head = s.key.object.clone();
    let serving =
        if s.before.exists { serving(env, &head, &s.before.snapset, snap) } else { Serving::Nothing };
    let clone = match serving {
        Serving::Head if s.before.is_present() => {
            s.modify = true;
            return Ok(Answer::done());
        }
        Serving::Head | Serving::Nothing => return remove_for_rollback(env, s),
        Serving::Clone(clone) => clone,
    };
    if (env.is_degraded)(&clone) {
        // Every member copies its own clone. Source: PrimaryLogPG::_rollback_to, block_write_on_degraded_snap.
        return Err(ExecStop::Missing(clone).into());
    }
    let then = load_clone(env, &clone)?;
    if !then.is_present() {
        return remove_for_rollback(env, s);
    }
    if s.state.exists {
        s.txn.remove(&s.key);
    }
    s.txn.clone_object(&env.key(clone.clone()), &s.key);
    let later = s.before.snapset.clones.range(clone.snap.0..);
    s.work.spend(later.map(|(_, c)| ENTRY + c.overlap.len() as u64 * ENTRY).sum())?;
    // What differs between the head and the clone: all that any clone from there on does not share.
    let size = s.info().size;
    let mut shared = vec![(0, size)];
    for c in s.before.snapset.clones.range(clone.snap.0..).map(|(_, c)| c) {
        shared = intersect(&shared, &c.overlap);
    }
    s.modified.extend(subtract(&[(0, size)], &shared));
    if !s.state.exists {
        s.delta.objects += 1;
        s.state.to_mut().exists = true;
    } else if s.info().test(info_flags::WHITEOUT) {
        s.delta.whiteouts -= 1;
    }
    s.set_size(then.info.size);
    let kept = info_flags::DATA_DIGEST | info_flags::OMAP_DIGEST | info_flags::OMAP;
    let info = s.info_mut();
    info.flags = (info.flags & !kept & !info_flags::WHITEOUT) | (then.info.flags & kept);
    info.data_digest = then.info.data_digest;
    info.omap_digest = then.info.omap_digest;
    Ok(Answer::done())
}

fn remove_for_rollback(env: &ExecEnv<'_>, s: &mut Scratch<'_>) -> Outcome {
    if !s.before.info.watchers.is_empty() {
        return Err(Errno::EBUSY.into());
    }
    // Nothing there to remove is as good.
    match write::delete(env, s) {
        Err(super::answer::OpError::Errno(Errno::ENOENT)) => Ok(Answer::done()),
        done => done,
    }
}

/// Keeps what the object was before the request, if a snapshot was taken since it last changed, and notes what the newest
/// clone no longer shares with the head. Returns the clone's log entry.
pub(super) fn make_writeable(env: &ExecEnv<'_>, head: &HObject, s: &mut Scratch<'_>) -> Option<EntryDraft> {
    let newest = env.snapc.snaps.first().copied().unwrap_or(0);
    let seq = s.state.snapset.seq;
    let entry = (s.before.is_present() && newest > seq).then(|| make_clone(env, head, s, seq));
    if !s.state.snapset.clones.is_empty() {
        let modified = normalise(std::mem::take(&mut s.modified));
        if let Some(mut newest) = s.state.to_mut().snapset.clones.last_entry() {
            let c = newest.get_mut();
            let lost = intersect(&modified, &c.overlap);
            // The clone keeps these bytes for itself from now on.
            s.delta.bytes += total(&lost) as i64;
            c.overlap = subtract(&c.overlap, &lost);
        }
    }
    if env.snapc.seq > seq {
        s.state.to_mut().snapset.seq = env.snapc.seq;
    }
    entry
}

fn make_clone(env: &ExecEnv<'_>, head: &HObject, s: &mut Scratch<'_>, seq: u64) -> EntryDraft {
    let object = head.at(SnapId(env.snapc.seq));
    let key = env.key(object.clone());
    let before = &s.before.info;
    let version = env.first_version;
    let info = clone_info(before, version);
    // Before all that the request does to the head.
    let mut txn = Txn::new();
    txn.clone_object(&s.key, &key);
    txn.set_attr(&key, Bytes::from_static(INFO_ATTR), info.to_bytes());
    txn.rm_attr(&key, Bytes::from_static(SNAPSET_ATTR));
    txn.append(std::mem::take(&mut s.txn));
    s.txn = txn;
    s.delta.objects += 1;
    s.delta.clones += 1;
    s.delta.objects_omap += i64::from(before.test(info_flags::OMAP));
    let snaps = env.snapc.snaps.iter().copied().take_while(|snap| *snap > seq).collect();
    let overlap = if before.size > 0 { vec![(0, before.size)] } else { Vec::new() };
    let (prior_version, user_version, size) = (before.version, before.user_version, before.size);
    s.state.to_mut().snapset.clones.insert(object.snap.0, CloneInfo { snaps, size, overlap });
    let dirty = Dirty::ALL;
    EntryDraft { kind: EntryKind::Clone, object, version, prior_version, user_version, dirty }
}

/// A clone's info: the head's but for who watches. Source: object_info_t::copy_user_bits.
fn clone_info(head: &ObjectInfo, version: Eversion) -> ObjectInfo {
    ObjectInfo {
        version,
        prior_version: head.version,
        watchers: Default::default(),
        expected_object_size: 0,
        expected_write_size: 0,
        alloc_hint_flags: 0,
        ..head.clone()
    }
}

type Ranges = Vec<(u64, u64)>;

/// Sorts ranges (offset, length) and joins those that touch.
fn normalise(mut ranges: Ranges) -> Ranges {
    ranges.sort_unstable();
    let mut out: Ranges = Vec::with_capacity(ranges.len());
    for (start, len) in ranges.into_iter().filter(|(_, len)| *len > 0) {
        match out.last_mut() {
            Some((s, l)) if *s + *l >= start => *l = (*l).max(start + len - *s),
            _ => out.push((start, len)),
        }
    }
    out
}

/// What is in both; each is sorted and disjoint.
pub(super) fn intersect(a: &[(u64, u64)], b: &[(u64, u64)]) -> Ranges {
    let mut out = Ranges::new();
    let (mut i, mut j) = (a.iter().peekable(), b.iter().peekable());
    while let (Some((s, l)), Some((t, m))) = (i.peek(), j.peek()) {
        let (start, end) = ((*s).max(*t), (s + l).min(t + m));
        if start < end {
            out.push((start, end - start));
        }
        if s + l < t + m {
            i.next()
        } else {
            j.next()
        };
    }
    out
}

/// What is in `a` and not in `b`; each is sorted and disjoint.
fn subtract(a: &[(u64, u64)], b: &[(u64, u64)]) -> Ranges {
    let mut out = Ranges::new();
    let mut cuts = b.iter().peekable();
    for (s, l) in a {
        let (mut at, end) = (*s, s + l);
        while let Some((t, m)) = cuts.peek() {
            if *t >= end {
                break;
            }
            if *t > at {
                out.push((at, t - at));
            }
            at = at.max(t + m);
            if t + m > end {
                // It may cut the next range too.
                break;
            }
            cuts.next();
        }
        if at < end {
            out.push((at, end - at));
        }
    }
    out
}

pub(super) fn total(ranges: &[(u64, u64)]) -> u64 {
    ranges.iter().map(|(_, len)| len).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bits(ranges: &[(u64, u64)]) -> u64 {
        ranges.iter().fold(0, |acc, (s, l)| acc | (((1u64 << l) - 1) << s))
    }

    /// Ranges of set bits.
    fn ranges(bits: u64) -> Ranges {
        normalise((0..12).filter(|i| bits >> i & 1 == 1).map(|i| (i, 1)).collect())
    }

    #[test]
    fn ranges_behave_as_sets_of_bytes() {
        let mut x = 0x2545_f491_4f6c_dd1du64;
        for _ in 0..4000 {
            x ^= x << 13;
            x ^= x >> 7;
            x ^= x << 17;
            let (a, b) = (x & 0xfff, x >> 20 & 0xfff);
            let (ra, rb) = (ranges(a), ranges(b));
            assert_eq!((bits(&ra), total(&ra)), (a, u64::from(a.count_ones())));
            assert_eq!(bits(&intersect(&ra, &rb)), a & b, "{ra:?} {rb:?}");
            assert_eq!(bits(&subtract(&ra, &rb)), a & !b, "{ra:?} {rb:?}");
        }
        assert_eq!(normalise(vec![(5, 5), (0, 4), (3, 3), (20, 0)]), [(0, 10)]);
    }
}
