//! Which ranges of which objects hold a range of a file.
//!
//! Source: Striper::file_to_extents in src/osdc/Striper.cc; names of objects: file_object_t in
//! src/include/fs_types.h.

use messages::fs::FileLayout;
use types::{HObject, Ino, SnapId};

/// A part of a file in one object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Piece {
    pub object_no: u64,
    pub offset: u64,
    pub length: u64,
    /// Where the part is in the file.
    pub file_offset: u64,
}

/// The parts of a range, in the order of the file. The layout is valid, and the range ends within 64 bits.
pub(crate) fn pieces(layout: &FileLayout, offset: u64, length: u64) -> Vec<Piece> {
    let unit = u64::from(layout.stripe_unit).max(1);
    let count = u64::from(layout.stripe_count).max(1);
    let units_per_object = (u64::from(layout.object_size) / unit).max(1);
    let mut pieces: Vec<Piece> = Vec::new();
    let (mut at, end) = (offset, offset.saturating_add(length));
    while at < end {
        let unit_no = at / unit;
        let (stripe, column) = (unit_no / count, unit_no % count);
        let (set, row) = (stripe / units_per_object, stripe % units_per_object);
        let in_unit = at % unit;
        let length = (unit - in_unit).min(end - at);
        let (object_no, offset) = (set * count + column, row * unit + in_unit);
        match pieces.last_mut() {
            Some(last) if last.object_no == object_no && last.offset + last.length == offset => {
                last.length += length;
            }
            _ => pieces.push(Piece { object_no, offset, length, file_offset: at }),
        }
        at += length;
    }
    pieces
}

/// The size up to which an object is left by a truncation of the file. Source: Striper::object_truncate_size.
pub(crate) fn object_truncate_size(layout: &FileLayout, object_no: u64, truncate_size: u64) -> u64 {
    if truncate_size == 0 || truncate_size == u64::MAX {
        return truncate_size;
    }
    let unit = u64::from(layout.stripe_unit).max(1);
    let count = u64::from(layout.stripe_count).max(1);
    let units_per_object = (u64::from(layout.object_size) / unit).max(1);
    let object_size = unit * units_per_object;
    let (set, truncated_set) = (object_no / count, truncate_size / object_size / count);
    if set != truncated_set {
        return if set > truncated_set { 0 } else { object_size };
    }
    let unit_no = truncate_size / unit;
    let (stripe, column) = (unit_no / count, unit_no % count);
    let row = (stripe % units_per_object) * unit;
    match (object_no % count).cmp(&column) {
        std::cmp::Ordering::Greater => row,
        std::cmp::Ordering::Equal => row + truncate_size % unit,
        std::cmp::Ordering::Less => row + unit,
    }
}

pub(crate) fn object(layout: &FileLayout, ino: Ino, object_no: u64, snap: SnapId) -> HObject {
    HObject {
        pool: layout.pool,
        hash: 0,
        nspace: layout.pool_ns.as_str().into(),
        key: types::Name::new(),
        name: format!("{:x}.{object_no:08x}", ino.0).into(),
        snap,
        max: false,
    }
}

#[cfg(test)]
mod tests {
    use types::PoolId;

    use super::*;

    fn layout(stripe_unit: u32, stripe_count: u32, object_size: u32) -> FileLayout {
        FileLayout { stripe_unit, stripe_count, object_size, pool: PoolId(3), pool_ns: String::new() }
    }

    /// Every byte is where the formula for one byte says.
    #[test]
    fn every_byte_has_its_place() {
        for l in [layout(4, 1, 4), layout(4, 1, 16), layout(4, 3, 8), layout(4, 2, 4)] {
            let place = |at: u64| {
                let (unit, count) = (u64::from(l.stripe_unit), u64::from(l.stripe_count));
                let per_object = u64::from(l.object_size) / unit;
                let (block, stripe) = (at / unit, at / unit / count);
                let object = stripe / per_object * count + block % count;
                (object, stripe % per_object * unit + at % unit)
            };
            for (offset, length) in [(0, 0), (0, 1), (0, 50), (3, 2), (7, 40), (24, 24)] {
                let got = pieces(&l, offset, length);
                let bytes = got.iter().flat_map(|p| {
                    (0..p.length).map(move |i| (p.file_offset + i, (p.object_no, p.offset + i)))
                });
                let want: Vec<_> = (offset..offset + length).map(|at| (at, place(at))).collect();
                let mut bytes: Vec<_> = bytes.collect();
                bytes.sort_unstable();
                if l.stripe_count == 1 {
                    assert_eq!(bytes, want, "{l:?} {offset} {length}");
                }
                assert_eq!(bytes.len() as u64, length);
                assert!(bytes.iter().map(|b| b.1).eq(want.iter().map(|b| b.1)), "{l:?} {offset} {length}");
            }
        }
    }

    /// An object keeps as many bytes as the file has in it below the size.
    #[test]
    fn a_truncation_leaves_each_object_its_bytes() {
        for l in [layout(4, 1, 8), layout(4, 3, 8)] {
            for size in 1..80 {
                let parts = pieces(&l, 0, size);
                for object_no in 0..12 {
                    let want =
                        parts.iter().filter(|p| p.object_no == object_no).map(|p| p.offset + p.length).max();
                    assert_eq!(
                        object_truncate_size(&l, object_no, size),
                        want.unwrap_or(0),
                        "{l:?} {size} {object_no}"
                    );
                }
            }
            assert_eq!(object_truncate_size(&l, 5, u64::MAX), u64::MAX);
        }
    }

    #[test]
    fn objects_are_named_after_inode_and_number() {
        let object = object(&layout(4, 1, 8), Ino(0x1_0000_0000), 17, SnapId::HEAD);
        assert_eq!((object.name.as_str(), object.pool), ("100000000.00000011", PoolId(3)));
    }
}
