//! What changed between two states of an image, object by object from the clones' overlaps.
//!
//! Source: src/librados/snap_set_diff.cc.

use rados::{CloneInfo, ObjectSnaps, SnapId};

use crate::error::Result;
use crate::image::Image;
use crate::io::shared_extents;

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
struct ObjectDiff {
    /// Disjoint, ascending.
    ranges: Vec<(u64, u64)>,
    end_size: u64,
    end_exists: bool,
}

impl Image {
    /// What changed from the snapshot with id `from` (0: from nothing) to what is open.
    ///
    /// # Errors
    /// The cluster fails.
    pub async fn changes(&self, from: u64) -> Result<Changes> {
        let view = self.inner.view();
        let end = self.inner.snap_id.unwrap_or(SnapId::HEAD.0);
        let from_size = view.header.snaps.iter().find(|s| s.id == from).map_or(0, |s| s.size);
        let objects = view.layout.objects(view.size.max(from_size));
        let mut out = Changes::new();
        for object in 0..objects {
            let diff = match view.data.list_snaps(&view.object(object)).await {
                Ok(snaps) => diff(&snaps, from, end),
                Err(e) if e.is_not_found() => ObjectDiff::default(),
                Err(e) => return Err(e.into()),
            };
            if !diff.end_exists && from == 0 {
                // All of what the parent shares is new.
                out.extend(shared_extents(&view, object).into_iter().map(|e| Change {
                    offset: e.image,
                    len: e.len,
                    exists: true,
                }));
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
}

fn diff(snaps: &ObjectSnaps, start: u64, end: u64) -> ObjectDiff {
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
            from = offset + len;
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
        return Some((seq + 1, SnapId::HEAD.0));
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
        // Removed after the snapshot.
        let gone = ObjectSnaps { clones: vec![clone(4, &[4], 100, &[])], seq: SnapId(4) };
        let got = diff(&gone, 4, head);
        assert_eq!((got.ranges, got.end_exists), (vec![(0, 100)], false));
    }
}
