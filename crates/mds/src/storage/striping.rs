//! Which bytes of a file lie in which object.
//!
//! Source: src/osdc/Striper.cc.

use messages::fs::FileLayout;

/// The numbers of a layout that has none that is 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stripes {
    unit: u64,
    count: u64,
    /// Bytes of a file that lie in one set of objects.
    pub(super) set_bytes: u64,
}

impl Stripes {
    /// `None` for a layout that no file can have.
    pub(super) fn of(layout: &FileLayout) -> Option<Self> {
        let (unit, count) = (u64::from(layout.stripe_unit), u64::from(layout.stripe_count));
        let object = u64::from(layout.object_size);
        if unit == 0 || count == 0 || object < unit {
            return None;
        }
        let set_bytes = (object / unit).checked_mul(unit)?.checked_mul(count)?;
        Some(Self { unit, count, set_bytes })
    }

    /// The first object of the set that has this byte of the file.
    pub(super) fn set_begin(&self, offset: u64) -> u64 {
        offset / self.set_bytes * self.count
    }

    /// Objects up to the end of the set that has the last byte of a file of `size`.
    pub(super) fn set_end(&self, size: u64) -> u64 {
        size.div_ceil(self.set_bytes).saturating_mul(self.count)
    }

    /// Objects that a file of `size` has. Source: Striper::get_num_objects.
    pub(super) fn objects(&self, size: u64) -> u64 {
        let all = self.set_end(size);
        let rest = size % self.set_bytes;
        let stripe = self.unit * self.count;
        if rest == 0 || rest >= stripe { all } else { all - (self.count - rest.div_ceil(self.unit)) }
    }

    /// Bytes of an object that a file of `size` has there.
    pub(super) fn size_in_object(&self, object: u64, size: u64) -> u64 {
        let (set, column) = (object / self.count, object % self.count);
        let in_set = size.saturating_sub(set.saturating_mul(self.set_bytes)).min(self.set_bytes);
        let stripe = self.unit * self.count;
        let tail = (in_set % stripe).saturating_sub(column * self.unit).min(self.unit);
        in_set / stripe * self.unit + tail
    }

    /// Where a file ends whose last byte is the last one of an object of `size` bytes, which are some.
    pub(super) fn end_of_file(&self, object: u64, size: u64) -> u64 {
        let last = size.saturating_sub(1);
        let (set, column) = (object / self.count, object % self.count);
        let block = (last / self.unit).saturating_mul(self.count).saturating_add(column);
        let in_set = block.saturating_mul(self.unit).saturating_add(last % self.unit);
        set.saturating_mul(self.set_bytes).saturating_add(in_set).saturating_add(1)
    }
}

#[cfg(test)]
mod tests {
    use types::PoolId;

    use super::*;

    fn stripes(unit: u32, count: u32, object: u32) -> Stripes {
        let layout = FileLayout {
            stripe_unit: unit,
            stripe_count: count,
            object_size: object,
            pool: PoolId(1),
            pool_ns: String::new(),
        };
        Stripes::of(&layout).expect("a layout")
    }

    /// Object and place of each byte, by Ceph's formula for one byte.
    fn place(s: (u64, u64, u64), at: u64) -> (u64, u64) {
        let (unit, count, object) = s;
        let (block, per_object) = (at / unit, object / unit);
        let (stripe, column) = (block / count, block % count);
        (stripe / per_object * count + column, stripe % per_object * unit + at % unit)
    }

    #[test]
    fn each_object_has_the_bytes_that_the_formula_says() {
        for s in [(4, 1, 4), (4, 1, 8), (4, 3, 8), (2, 2, 8)] {
            let it = stripes(s.0 as u32, s.1 as u32, s.2 as u32);
            for size in 0..100 {
                let places: Vec<_> = (0..size).map(|at| place(s, at)).collect();
                let objects = places.iter().map(|p| p.0 + 1).max().unwrap_or(0);
                assert_eq!(it.objects(size), objects, "{s:?} {size}");
                assert!(it.set_end(size) >= objects && it.set_end(size) % s.1 == 0);
                for object in 0..30 {
                    let want = places.iter().filter(|p| p.0 == object).map(|p| p.1 + 1).max();
                    assert_eq!(it.size_in_object(object, size), want.unwrap_or(0), "{s:?} {size} {object}");
                }
                if let Some(last) = places.last() {
                    assert_eq!(it.end_of_file(last.0, last.1 + 1), size, "{s:?}");
                    assert!(it.set_begin(size - 1) <= last.0);
                }
            }
        }
    }

    #[test]
    fn layouts_that_no_file_can_have_are_none() {
        assert_eq!(Stripes::of(&FileLayout::default()), None);
        let large = stripes(1 << 31, u32::MAX, 1 << 31);
        assert_eq!(large.size_in_object(u64::MAX, u64::MAX), 0);
        assert!(large.objects(u64::MAX) > 0);
    }
}
