//! What changed between two states of an image, object by object from the clones' overlaps; object maps tell which objects
//! need no look.
//!
//! Source: src/librados/snap_set_diff.cc.

use std::collections::BTreeSet;

use rados::{CloneInfo, ObjectSnaps, SnapId};
use types::Errno;

use crate::error::{Error, Result};
use crate::header::{self, Access, Header, feature, flag};
use crate::image::Image;
use crate::io::shared_extents;
use crate::object_map::{self, EXISTS, Map, NONEXISTENT, PENDING};

/// A range of the image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Change {
    pub offset: u64,
    pub len: u64,
    /// Has data now; otherwise it reads as zeros.
    pub exists: bool,
}

/// Changes in the image's order.
pub type Changes = Vec<Change>;

/// What changed in one object.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct ObjectDiff {
    /// Disjoint, ascending.
    pub ranges: Vec<(u64, u64)>,
    end_size: u64,
    end_exists: bool,
}

impl Image {
    /// What changed from the snapshot with id `from` (0: from nothing, what the parent shares included) to what is open.
    ///
    /// # Errors
    /// EINVAL when `from` is newer than what is open; or the cluster fails.
    pub async fn changes(&self, from: u64) -> Result<Changes> {
        self.changes_of(from, true).await
    }

    async fn changes_of(&self, from: u64, with_parent: bool) -> Result<Changes> {
        self.check_order(from)?;
        let view = self.inner.view();
        let end = self.end();
        let from_size = view.header.snaps.iter().find(|s| s.id == from).map_or(0, |s| s.size);
        let objects = view.layout.objects(view.size.max(from_size));
        let told = self.told_by_maps(from).await?;
        let mut out = Changes::new();
        for object in 0..objects {
            let is_same = told.as_ref().is_some_and(|told| told.change(object) == ObjectState::Same);
            let diff = if is_same {
                ObjectDiff::default()
            } else {
                match view.data.list_snaps(&view.object(object)).await {
                    Ok(snaps) => diff(&snaps, from, end),
                    Err(e) if e.is_not_found() => ObjectDiff::default(),
                    Err(e) => return Err(e.into()),
                }
            };
            if !diff.end_exists && from == 0 {
                // All of what the parent shares is new.
                let shared = if with_parent { shared_extents(&view, object) } else { Vec::new() };
                out.extend(shared.into_iter().map(|e| Change { offset: e.image, len: e.len, exists: true }));
                continue;
            }
            for (start, stop) in diff.ranges {
                let data_end = if diff.end_exists { diff.end_size.clamp(start, stop) } else { start };
                for (from, to, exists) in [(start, data_end, true), (data_end, stop, false)] {
                    for e in view.layout.of_object(object, from, to - from) {
                        let len = e.len.min(view.size.saturating_sub(e.image));
                        if len > 0 {
                            out.push(Change { offset: e.image, len, exists });
                        }
                    }
                }
            }
        }
        out.sort_by_key(|c| c.offset);
        Ok(out)
    }

    /// Bytes of the objects that changed since the snapshot with id `from` (0: of all) and exist, as whole objects.
    ///
    /// # Errors
    /// As [`Image::changes`].
    pub async fn used_bytes(&self, from: u64) -> Result<u64> {
        self.check_order(from)?;
        let view = self.inner.view();
        let objects: BTreeSet<u64> = match self.told_by_maps(from).await? {
            Some(told) => {
                let all = 0..view.layout.objects(view.size);
                all.filter(|object| told.change(*object) == ObjectState::Data).collect()
            }
            None => {
                let changes = self.changes_of(from, false).await?;
                let extents = changes.iter().filter(|c| c.exists);
                extents.flat_map(|c| view.layout.extents(c.offset, c.len)).map(|e| e.object).collect()
            }
        };
        let len = |object| {
            let parts = view.layout.of_object(object, 0, view.layout.object_size);
            parts.iter().map(|e| e.len.min(view.size.saturating_sub(e.image))).sum::<u64>()
        };
        Ok(objects.into_iter().map(len).sum())
    }

    /// The id of the snapshot from which differences to what is open begin; 0 for none.
    ///
    /// # Errors
    /// ENOENT when there is no such snapshot; EINVAL when it is newer than what is open.
    pub fn diff_start(&self, name: Option<&str>) -> Result<u64> {
        let Some(name) = name else { return Ok(0) };
        let header = self.header();
        let found = header.snapshot(name);
        let found =
            found.ok_or_else(|| Error::refused(Errno::ENOENT, format!("there is no snapshot {name}")))?;
        self.check_order(found.id)?;
        Ok(found.id)
    }

    /// Source: src/librbd/api/DiffIterate.cc.
    fn check_order(&self, from: u64) -> Result<()> {
        if from > self.end() {
            return Err(Error::refused(Errno::EINVAL, "the first snapshot is newer than the last"));
        }
        Ok(())
    }

    fn end(&self) -> u64 {
        self.inner.snap_id.unwrap_or(SnapId::HEAD.0)
    }

    /// What object maps tell of the way from one state to the other; nothing when one of them is not to be relied upon.
    async fn told_by_maps(&self, from: u64) -> Result<Option<Told>> {
        let (inner, view) = (&self.inner, self.inner.view());
        let (header, end) = (&view.header, self.end());
        let invalid = flag::OBJECT_MAP_INVALID | flag::FAST_DIFF_INVALID;
        let on_the_way = header.snaps.iter().filter(|s| s.id >= from && s.id <= end);
        let is_invalid = on_the_way.clone().any(|s| s.flags & invalid != 0);
        let is_head = end == SnapId::HEAD.0;
        if !header.has(feature::FAST_DIFF) || is_invalid || is_head && header.flags & invalid != 0 {
            return Ok(None);
        }
        let head = is_head.then_some(None);
        let mut maps = Vec::new();
        for snap in on_the_way.map(|s| Some(s.id)).chain(head) {
            match object_map::load(&inner.meta, &inner.id, snap).await {
                Ok(map) => maps.push((snap == Some(from), map)),
                Err(e) if e.is_not_found() || e.errno() == Errno::EINVAL => return Ok(None),
                Err(e) => return Err(e),
            }
        }
        // A snapshot that was taken meanwhile took what changed out of the head's map, and a map may have become invalid.
        let now = header::read(&inner.meta, &inner.id, Access::of(inner.read_only, inner.policy)).await?;
        if !has_same_maps(header, &now) {
            return Ok(None);
        }
        let mut told = Told::default();
        for (is_start, map) in maps {
            told.pass(&map, is_start);
        }
        Ok(Some(told))
    }
}

/// Whether maps that were read between the two headers belong together.
fn has_same_maps(before: &Header, after: &Header) -> bool {
    let flags = |h: &Header| h.snaps.iter().map(|s| (s.id, s.flags)).collect::<Vec<_>>();
    (before.size, before.flags, before.features) == (after.size, after.flags, after.features)
        && before.snap_context == after.snap_context
        && flags(before) == flags(after)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum ObjectState {
    /// As at the start.
    #[default]
    Same,
    /// Perhaps changed; exists at the end.
    Data,
    /// Changed; does not exist at the end.
    Gone,
}

/// What the maps on the way tell of each object: whether it changed since the state before, and whether it exists.
/// Source: src/librbd/object_map/DiffRequest.cc.
#[derive(Debug, Default)]
struct Told {
    exists: Vec<bool>,
    changed: Vec<bool>,
}

impl Told {
    /// The next map on the way.
    fn pass(&mut self, map: &Map, is_start: bool) {
        let len = self.exists.len().max(map.len() as usize);
        self.exists.resize(len, false);
        self.changed.resize(len, false);
        for (object, (exists, changed)) in self.exists.iter_mut().zip(&mut self.changed).enumerate() {
            let state = map.get(object as u64);
            let now = state != NONEXISTENT;
            *changed |= !is_start && (matches!(state, EXISTS | PENDING) || now != *exists);
            *exists = now;
        }
    }

    fn change(&self, object: u64) -> ObjectState {
        let at = object as usize;
        let is = |all: &[bool]| all.get(at).copied().unwrap_or(false);
        match (is(&self.changed), is(&self.exists)) {
            (false, _) => ObjectState::Same,
            (true, true) => ObjectState::Data,
            (true, false) => ObjectState::Gone,
        }
    }
}

pub(crate) fn diff(snaps: &ObjectSnaps, start: u64, end: u64) -> ObjectDiff {
    let mut out = ObjectDiff::default();
    let mut start_size = 0;
    let mut saw_start = false;
    for (at, clone) in snaps.clones.iter().enumerate() {
        let Some((first, last)) = lifetime(clone, snaps.seq.0) else {
            out.ranges = insert(vec![], 0, clone.size);
            continue;
        };
        if last < start {
            continue;
        }
        if !saw_start {
            saw_start = true;
            if start < first {
                out.ranges = insert(out.ranges, 0, clone.size);
            } else {
                start_size = clone.size;
            }
        }
        out.end_size = clone.size;
        if end < first {
            return ObjectDiff { ranges: insert(vec![], 0, start_size), end_size: 0, end_exists: false };
        }
        if end <= last {
            out.end_exists = true;
            return out;
        }
        let next_size = snaps.clones.get(at + 1).map_or(0, |n| n.size);
        let mut from = 0;
        for (offset, len) in &clone.overlap {
            out.ranges = insert(out.ranges, from, *offset);
            from = offset.saturating_add(*len);
        }
        out.ranges = insert(out.ranges, from, clone.size.max(next_size));
    }
    // The object was removed after its last clone.
    if !out.end_exists {
        out.ranges = insert(vec![], 0, start_size);
    }
    out
}

/// The first and last snapshot that see the clone; nothing when no snapshot does any more.
fn lifetime(clone: &CloneInfo, seq: u64) -> Option<(u64, u64)> {
    if clone.clone == SnapId::HEAD {
        return Some((seq.saturating_add(1), SnapId::HEAD.0));
    }
    Some((clone.snaps.first()?.0, clone.snaps.last()?.0))
}

/// Adds `start..stop`, joining what it touches.
fn insert(mut ranges: Vec<(u64, u64)>, mut start: u64, mut stop: u64) -> Vec<(u64, u64)> {
    if start >= stop {
        return ranges;
    }
    ranges.retain(|(a, b)| {
        let touches = *a <= stop && *b >= start;
        if touches {
            start = start.min(*a);
            stop = stop.max(*b);
        }
        !touches
    });
    ranges.push((start, stop));
    ranges.sort_unstable();
    ranges
}

#[cfg(test)]
mod tests {
    use super::*;

    fn clone(id: u64, snaps: &[u64], size: u64, overlap: &[(u64, u64)]) -> CloneInfo {
        let snaps = snaps.iter().map(|s| SnapId(*s)).collect();
        CloneInfo { clone: SnapId(id), snaps, overlap: overlap.to_vec(), size }
    }

    #[test]
    fn maps_tell_what_is_the_same() {
        use crate::object_map::EXISTS_CLEAN as CLEAN;
        use ObjectState::{Data, Gone, Same};
        let map = |states: &[u8]| {
            let mut map = Map::empty(states.len() as u64);
            states.iter().enumerate().for_each(|(i, s)| map.set(i as u64, *s));
            map
        };
        let start = map(&[EXISTS, EXISTS, EXISTS, CLEAN, NONEXISTENT, EXISTS]);
        let middle = map(&[CLEAN, EXISTS, NONEXISTENT, CLEAN, EXISTS, CLEAN]);
        let end = map(&[CLEAN, CLEAN, NONEXISTENT, NONEXISTENT, CLEAN, CLEAN, EXISTS, NONEXISTENT]);
        let told = |maps: &[&Map], has_start| {
            let mut told = Told::default();
            maps.iter().enumerate().for_each(|(i, m)| told.pass(m, has_start && i == 0));
            (0..9).map(|o| told.change(o)).collect::<Vec<_>>()
        };
        let from_start = told(&[&start, &middle, &end], true);
        assert_eq!(from_start, [Same, Data, Gone, Gone, Data, Same, Data, Same, Same]);
        let from_nothing = told(&[&start, &middle, &end], false);
        assert_eq!(from_nothing, [Data, Data, Gone, Gone, Data, Data, Data, Same, Same]);
    }

    #[test]
    fn differences_between_snapshots() {
        // Written at 0..100, snapshot 4, 10..20 written, snapshot 6, cut to 50.
        let snaps = ObjectSnaps {
            clones: vec![
                clone(4, &[4], 100, &[(0, 10), (20, 80)]),
                clone(6, &[6], 100, &[(0, 50)]),
                clone(SnapId::HEAD.0, &[], 50, &[]),
            ],
            seq: SnapId(6),
        };
        let head = SnapId::HEAD.0;
        for (from, to, ranges, exists) in [
            (0, head, vec![(0, 100)], true),
            (0, 4, vec![(0, 100)], true),
            (4, 6, vec![(10, 20)], true),
            (4, head, vec![(10, 20), (50, 100)], true),
            (6, head, vec![(50, 100)], true),
            (0, 3, vec![], false),
        ] {
            let got = diff(&snaps, from, to);
            assert_eq!((got.ranges, got.end_exists), (ranges, exists), "{from} to {to}");
        }
        // An OSD may say anything.
        let absurd = ObjectSnaps {
            clones: vec![clone(4, &[4], 100, &[(u64::MAX - 1, 9)]), clone(head, &[], 50, &[])],
            seq: SnapId(u64::MAX),
        };
        let got = diff(&absurd, 4, head);
        assert_eq!((got.ranges, got.end_exists), (vec![(0, 100)], false));
        // Removed after the snapshot.
        let gone = ObjectSnaps { clones: vec![clone(4, &[4], 100, &[])], seq: SnapId(4) };
        let got = diff(&gone, 4, head);
        assert_eq!((got.ranges, got.end_exists), (vec![(0, 100)], false));
    }
}
