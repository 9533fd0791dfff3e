//! Class `cephfs`: what a scan of a file system's data pool learns about a file, kept in attributes of one
//! object. Source: src/cls/cephfs/cls_cephfs.cc, src/cls/cephfs/cls_cephfs.h.

use bytes::Bytes;
use codec::{Decode, Encode, Reader, wire_struct};
use types::Errno;

use crate::ObjectView;
use crate::registry::{Class, Done, methods};

pub static CLASS: Class =
    Class { name: "cephfs", methods: methods![accumulate_inode_metadata RD_WR accumulate] };

/// One object of a file, as a scan found it.
struct Found {
    ceiling_attr: Bytes,
    mtime_attr: Bytes,
    size_attr: Bytes,
    /// Its place in the file.
    index: u64,
    /// Bytes.
    size: u64,
    /// Seconds since 1970.
    mtime: i64,
}
wire_struct!(Found(1, 1) { ceiling_attr, mtime_attr, size_attr, index, size, mtime });

/// The last object of a file that was found so far, and its bytes.
struct Ceiling {
    index: u64,
    size: u64,
}
wire_struct!(Ceiling(1, 1) { index, size });

fn accumulate(v: &mut dyn ObjectView, found: Found) -> Result<Done, Errno> {
    let ceiling = Ceiling { index: found.index, size: found.size };
    raise(v, &found.ceiling_attr, &ceiling, |new, old| new.index > old.index)?;
    raise(v, &found.mtime_attr, &found.mtime, |new, old| new > old)?;
    raise(v, &found.size_attr, &found.size, |new, old| new > old)?;
    Ok(Done)
}

/// Sets an attribute, unless what it holds is at least as great. What does not decode, or has bytes behind
/// it, counts as nothing.
fn raise<T: Encode + Decode>(
    v: &mut dyn ObjectView,
    attr: &Bytes,
    new: &T,
    greater: impl Fn(&T, &T) -> bool,
) -> Result<(), Errno> {
    // Ceph hands the name on as a string of C.
    let name = crate::wire::c_text(attr);
    let old = match v.xattr(name) {
        Err(Errno::ENOENT | Errno::ENODATA) => None,
        raw => whole(raw?),
    };
    if old.is_some_and(|old: T| !greater(new, &old)) {
        return Ok(());
    }
    v.set_xattr(name, new.to_bytes())
}

fn whole<T: Decode>(raw: Bytes) -> Option<T> {
    let mut r = Reader::new(raw);
    let value = T::decode(&mut r).ok()?;
    r.is_empty().then_some(value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::Fake;

    fn accumulate(f: &mut Fake, index: u64, size: u64, mtime: i64) {
        let (ceiling_attr, mtime_attr, size_attr) = ("ceiling".into(), "mtime".into(), "size".into());
        let found = Found { ceiling_attr, mtime_attr, size_attr, index, size, mtime };
        f.call("cephfs", "accumulate_inode_metadata", found.to_bytes()).unwrap();
    }

    fn attr<T: Decode>(f: &Fake, name: &'static str) -> T {
        T::from_bytes(f.object.as_ref().unwrap().attrs[name.as_bytes()].clone()).unwrap()
    }

    #[test]
    fn each_attribute_keeps_its_greatest() {
        let mut f = Fake::default();
        for (index, size, mtime) in [(3, 10, -5), (7, 4, 2), (5, 20, 1)] {
            accumulate(&mut f, index, size, mtime);
        }
        let ceiling: Ceiling = attr(&f, "ceiling");
        assert_eq!((ceiling.index, ceiling.size), (7, 4));
        assert_eq!((attr::<i64>(&f, "mtime"), attr::<u64>(&f, "size")), (2, 20));
    }

    #[test]
    fn a_value_with_bytes_behind_it_is_replaced() {
        let mut f = Fake::default();
        accumulate(&mut f, 1, 9, 9);
        let attrs = &mut f.object.as_mut().unwrap().attrs;
        attrs.insert("size".into(), [9u64.to_le_bytes().as_slice(), b"x"].concat().into());
        attrs.insert("mtime".into(), Bytes::new());
        accumulate(&mut f, 0, 3, 3);
        assert_eq!((attr::<u64>(&f, "size"), attr::<i64>(&f, "mtime")), (3, 3));
    }
}
