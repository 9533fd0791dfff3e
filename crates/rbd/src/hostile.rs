//! What a cluster or a stream tells of an image, on bytes alone: for fuzz targets, which have no cluster.

use bytes::Bytes;
use codec::{Decode, Encode};
use messages::osd::ListSnapsResponse;
use rados::{LockInfo, ObjectSnaps};

use crate::class::Striping;
use crate::diff::diff;
use crate::error::{Error, Result};
use crate::header::{Access, Basics, Header, Snapshot};
use crate::io::object_pieces;
use crate::layout::Extent;
use crate::mark::Seen;
use crate::notify::{Message, Response};
use crate::object_map::Map;
use crate::stream::{self, Record};

/// Bytes of an image that are looked up; a stripe may have a single one.
const LOOKED_UP: u64 = 1_000;
/// Objects of a map that are changed.
const CHANGED: u64 = 100;

/// The replies to the methods that a header is read with: of the image, of its striping, of each snapshot.
/// What is accepted can be computed with.
///
/// # Errors
/// As opening the image.
pub fn header(replies: &[Bytes], striping: Option<Bytes>, snaps: &[Vec<Bytes>]) -> Result<Header> {
    let basics = Basics::of("header", replies, Access::Read)?;
    let striping = striping.map(Striping::from_bytes).transpose()?;
    let snaps = snaps.iter().map(|replies| Snapshot::of(replies)).collect::<Result<_>>()?;
    let header = basics.with("header", replies, striping, snaps)?;
    let (layout, size) = (&header.layout, header.size);
    let len = LOOKED_UP.min(size);
    for from in [0, size - len] {
        let extents = layout.extents(from, len);
        assert_eq!(extents.iter().map(|e| e.len).sum::<u64>(), len, "every byte lies somewhere");
        for e in extents.iter().take(3) {
            assert!(e.object < layout.objects(size), "in an object of the image");
            let back = layout.of_object(e.object, e.offset, e.len);
            assert_eq!(back.first().map(|b| b.image), Some(e.image), "and comes from there");
        }
    }
    Ok(header)
}

/// The attributes and keys of a header that tell of its lock and of a cache's mark; or a lock alone.
///
/// # Errors
/// They are malformed.
pub fn mark(xattrs: Bytes, omap: Bytes) -> Result<()> {
    if let Ok(lock) = LockInfo::from_attribute(xattrs.clone()) {
        let again = LockInfo::from_attribute(lock.to_attribute())?;
        assert_eq!(again, lock, "a lock comes back as it was understood");
    }
    let seen = Seen::of(xattrs, omap)?;
    if let (Some(mark), Some(holder)) = (&seen.mark, seen.holder()) {
        mark.is_by(holder);
    }
    Ok(())
}

/// An object map; what is read can be changed, resized and written again.
///
/// # Errors
/// It is malformed.
pub fn object_map(raw: Bytes) -> Result<()> {
    let mut map = Map::from_bytes(raw)?;
    assert_eq!(Map::from_bytes(map.to_bytes()).as_ref(), Ok(&map), "it comes back as it went");
    let states: Vec<u8> = (0..map.len().min(CHANGED)).map(|object| map.get(object)).collect();
    assert!(states.iter().all(|state| *state < 4), "two bits each");
    let twice = map.existing_with(&map);
    assert_eq!(twice.len(), map.len());
    map.resize(map.len() / 2);
    map.resize(map.len() + CHANGED);
    (0..CHANGED).for_each(|object| map.set(object, 3));
    assert_eq!(map.get(CHANGED - 1), 3);
    Ok(())
}

/// The clones that an OSD tells of; what changed between two of an image's states.
///
/// # Errors
/// They are malformed.
pub fn clones(raw: Bytes, from: u64, to: u64) -> Result<()> {
    let ListSnapsResponse { clones, seq } = ListSnapsResponse::from_bytes(raw)?;
    let changed = diff(&ObjectSnaps { clones, seq }, from, to);
    let mut end = 0;
    for (start, stop) in changed.ranges {
        assert!(start < stop && (end == 0 || end <= start), "ranges are disjoint and in order");
        end = stop;
    }
    Ok(())
}

/// What an OSD answered to a read of so many bytes of an object; so many are what comes of it.
///
/// # Errors
/// It is malformed, or of another extent.
pub fn pieces(output: Bytes, offset: u64, len: u64) -> Result<()> {
    let mut out = Vec::new();
    object_pieces(&Extent { object: 0, offset, len, image: 0 }, output, &mut out)?;
    let sum: u64 = out.iter().map(block::Piece::len).sum();
    assert_eq!(sum, len, "pieces fill what was asked for");
    Ok(())
}

/// What clients of an image tell each other.
///
/// # Errors
/// It is malformed.
pub fn notification(payload: Bytes) -> Result<()> {
    let _ = Response::from_bytes(payload.clone());
    let message = Message::parse(payload)?;
    if !matches!(message, Message::Maintenance(_) | Message::Other(_)) {
        assert_eq!(Message::parse(message.to_bytes()).as_ref(), Ok(&message), "it comes back as it went");
    }
    Ok(())
}

/// A stream of differences, read to its end as an import does: the bytes of data in it.
///
/// # Errors
/// As an import.
pub fn differences(mut raw: &[u8]) -> Result<u64> {
    stream::read_banner(&mut raw)?;
    let (mut size, mut bytes) = (0, 0);
    loop {
        match Record::read(&mut raw)? {
            Record::From(_) | Record::To(_) => {}
            Record::Size(new) => size = new,
            Record::Range { is_data, offset, len } => {
                let end = offset.checked_add(len).filter(|end| *end <= size);
                end.ok_or_else(|| Error::refused(types::Errno::EINVAL, "a range outside the image"))?;
                let mut left = if is_data { len } else { 0 };
                while left > 0 {
                    let part = stream::STEP.min(left);
                    stream::read_exact(&mut raw, part as usize)?;
                    left -= part;
                    bytes += part;
                }
            }
            Record::End => return Ok(bytes),
        }
    }
}
