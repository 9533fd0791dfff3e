//! How an image's bytes lie in its data objects: striping, both directions.
//!
//! Source: src/osdc/Striper.cc (the arithmetic of file_to_extents and get_num_objects).

/// All in bytes but `stripe_count`, which is in objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layout {
    pub object_size: u64,
    pub stripe_unit: u64,
    pub stripe_count: u64,
}

/// The most bytes of an image, and of one period of its stripes: their sum is still a number.
const MAX_BYTES: u64 = 1 << 62;

/// A range of the image that lies in one piece in one object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extent {
    pub object: u64,
    /// In the object.
    pub offset: u64,
    pub len: u64,
    /// In the image.
    pub image: u64,
}

impl Layout {
    /// Objects of `1 << order` bytes, one behind the other.
    #[must_use]
    pub fn simple(order: u8) -> Self {
        let object_size = 1 << order;
        Self { object_size, stripe_unit: object_size, stripe_count: 1 }
    }

    /// Whether an image of so many bytes can lie so: stripes fill objects, and every number stays below 2^64.
    #[must_use]
    pub fn is_possible(&self, size: u64) -> bool {
        let Self { object_size, stripe_unit: unit, stripe_count: count } = *self;
        let fits = unit > 0 && count > 0 && unit <= object_size && object_size % unit == 0;
        let period = object_size.checked_mul(count);
        fits && size <= MAX_BYTES && period.is_some_and(|period| period <= MAX_BYTES)
    }

    fn stripes_per_object(&self) -> u64 {
        self.object_size / self.stripe_unit
    }

    /// The pieces of a range, in the image's order; neighbours in one object are one piece.
    #[must_use]
    pub fn extents(&self, offset: u64, len: u64) -> Vec<Extent> {
        let mut out: Vec<Extent> = Vec::new();
        let (mut at, end) = (offset, offset.saturating_add(len));
        while at < end {
            let block = at / self.stripe_unit;
            let (stripe, column) = (block / self.stripe_count, block % self.stripe_count);
            let object = stripe / self.stripes_per_object() * self.stripe_count + column;
            let in_block = at % self.stripe_unit;
            let offset = stripe % self.stripes_per_object() * self.stripe_unit + in_block;
            let part = (self.stripe_unit - in_block).min(end - at);
            match out.last_mut() {
                Some(last) if last.object == object && last.offset + last.len == offset => last.len += part,
                _ => out.push(Extent { object, offset, len: part, image: at }),
            }
            at += part;
        }
        out
    }

    /// The pieces of the image that a range of an object holds, in the object's order.
    #[must_use]
    pub fn of_object(&self, object: u64, offset: u64, len: u64) -> Vec<Extent> {
        let mut out: Vec<Extent> = Vec::new();
        let (set, column) = (object / self.stripe_count, object % self.stripe_count);
        let (mut at, end) = (offset, offset.saturating_add(len).min(self.object_size));
        while at < end {
            let in_block = at % self.stripe_unit;
            let stripe = set * self.stripes_per_object() + at / self.stripe_unit;
            let image = (stripe * self.stripe_count + column) * self.stripe_unit + in_block;
            let part = (self.stripe_unit - in_block).min(end - at);
            match out.last_mut() {
                Some(last) if last.image + last.len == image => last.len += part,
                _ => out.push(Extent { object, offset: at, len: part, image }),
            }
            at += part;
        }
        out
    }

    /// Objects of an image of so many bytes.
    #[must_use]
    pub fn objects(&self, size: u64) -> u64 {
        let period = self.object_size.saturating_mul(self.stripe_count);
        let rest = size % period;
        let absent = if rest > 0 && rest < self.stripe_count * self.stripe_unit {
            self.stripe_count - rest.div_ceil(self.stripe_unit)
        } else {
            0
        };
        size.div_ceil(period) * self.stripe_count - absent
    }

    /// Bytes of an image that has the first so many objects, and no other period of stripes.
    #[must_use]
    pub fn holding(&self, objects: u64) -> u64 {
        let period = self.object_size.saturating_mul(self.stripe_count);
        objects.div_ceil(self.stripe_count).saturating_mul(period)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: Layout = Layout { object_size: 64, stripe_unit: 64, stripe_count: 1 };
    const STRIPED: Layout = Layout { object_size: 64, stripe_unit: 16, stripe_count: 3 };

    #[test]
    fn both_directions_agree() {
        for layout in [PLAIN, STRIPED, Layout { object_size: 64, stripe_unit: 16, stripe_count: 1 }] {
            for size in [1, 16, 17, 48, 64, 191, 192, 193, 500] {
                let mut owner = vec![None; size as usize];
                for e in layout.extents(0, size) {
                    for i in 0..e.len {
                        owner[(e.image + i) as usize] = Some((e.object, e.offset + i));
                    }
                }
                let mut seen = 0;
                for object in 0..layout.objects(size) {
                    let mut any = false;
                    for e in layout.of_object(object, 0, layout.object_size) {
                        for i in 0..e.len.min(size.saturating_sub(e.image)) {
                            assert_eq!(owner[(e.image + i) as usize], Some((object, e.offset + i)));
                            seen += 1;
                            any = true;
                        }
                    }
                    assert!(any, "object {object} of {size} bytes in {layout:?} holds nothing");
                }
                assert_eq!(seen, size);
                for left in 0..=layout.objects(size) {
                    let held = layout.objects(layout.holding(left));
                    assert!((left..left + layout.stripe_count).contains(&held), "{left} of {layout:?}");
                }
            }
        }
    }

    #[test]
    fn what_cannot_be_computed_is_refused() {
        let layout = |stripe_unit, stripe_count| Layout { object_size: 1 << 22, stripe_unit, stripe_count };
        for (layout, size, is_possible) in [
            (layout(1 << 22, 1), 0, true),
            (layout(1 << 16, 5), 1 << 62, true),
            (layout(1 << 16, 1 << 40), 1 << 62, true),
            (layout(1 << 16, 1 << 41), 0, false),
            (layout(1 << 16, u64::MAX), 0, false),
            (layout(1 << 22, 1), (1 << 62) + 1, false),
            (layout(1 << 22, 1), u64::MAX, false),
            (layout(0, 1), 0, false),
            (layout(1 << 22, 0), 0, false),
            (layout(3 << 20, 1), 0, false),
            (layout(1 << 23, 1), 0, false),
        ] {
            assert_eq!(layout.is_possible(size), is_possible, "{size} bytes in {layout:?}");
            if is_possible {
                let objects = layout.objects(size);
                let last = objects.saturating_sub(1);
                assert!(layout.of_object(last, 0, layout.object_size).iter().all(|e| e.image <= 1 << 63));
                assert_eq!(layout.extents(size.saturating_sub(1), size.min(1)).len() as u64, size.min(1));
            }
        }
    }

    #[test]
    fn neighbours_are_one_piece() {
        let e = |object, offset, len, image| Extent { object, offset, len, image };
        assert_eq!(PLAIN.extents(60, 10), [e(0, 60, 4, 60), e(1, 0, 6, 64)]);
        assert_eq!(STRIPED.extents(10, 20), [e(0, 10, 6, 10), e(1, 0, 14, 16)]);
        assert_eq!(Layout { stripe_count: 1, ..STRIPED }.extents(0, 64), [e(0, 0, 64, 0)]);
    }
}
