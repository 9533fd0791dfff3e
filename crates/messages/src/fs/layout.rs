//! How a file's bytes lie in objects, and how much a folder may hold.
//!
//! Source: file_layout_t in src/include/fs_types.h, quota_info_t in src/mds/mdstypes.h.

use codec::{Decode, DecodeError, Encode, Reader, Writer};
use types::PoolId;

/// How a file is striped over objects, and where they are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileLayout {
    /// Bytes in one object before the next object of the set is written.
    pub stripe_unit: u32,
    /// Objects of a set.
    pub stripe_count: u32,
    pub object_size: u32,
    /// -1: none, as folders without a layout of their own have.
    pub pool: PoolId,
    pub pool_ns: String,
}

impl Default for FileLayout {
    fn default() -> Self {
        Self { stripe_unit: 0, stripe_count: 0, object_size: 0, pool: PoolId(-1), pool_ns: String::new() }
    }
}

impl FileLayout {
    /// Bytes of the form without a namespace.
    pub const OLD_BYTES: usize = 28;

    /// Source: file_layout_t::is_valid in src/common/fs_types.cc.
    pub fn is_valid(&self) -> bool {
        let grain = 65_536;
        self.stripe_unit >= grain
            && self.stripe_unit % grain == 0
            && self.object_size >= grain
            && self.object_size % grain == 0
            && self.object_size >= self.stripe_unit
            && self.object_size % self.stripe_unit == 0
            && self.stripe_count > 0
    }

    /// The form that capabilities and inodes carry; the namespace follows elsewhere. A pool below 0 is
    /// written as 0.
    ///
    /// Source: file_layout_t::to_legacy.
    pub fn encode_old(&self, w: &mut Writer) {
        w.u32(self.stripe_unit);
        w.u32(self.stripe_count);
        w.u32(self.object_size);
        w.zeros(12);
        w.u32(u32::try_from(self.pool.0).unwrap_or(0));
    }

    /// Source: file_layout_t::from_legacy: of zeros only, it is none.
    pub fn decode_old(r: &mut Reader) -> Result<Self, DecodeError> {
        let (stripe_unit, stripe_count, object_size) = (r.u32()?, r.u32()?, r.u32()?);
        r.skip(12)?;
        let pool = i64::from(r.i32()?);
        let is_none = (stripe_unit, stripe_count, object_size, pool) == (0, 0, 0, 0);
        let pool = PoolId(if is_none { -1 } else { pool });
        Ok(Self { stripe_unit, stripe_count, object_size, pool, pool_ns: String::new() })
    }
}

/// The form with everything, as it is stored.
impl Encode for FileLayout {
    fn encode(&self, w: &mut Writer) {
        w.envelope(2, 2, |w| {
            w.u32(self.stripe_unit);
            w.u32(self.stripe_count);
            w.u32(self.object_size);
            self.pool.encode(w);
            self.pool_ns.encode(w);
        });
    }
}

/// Either form: the first byte of the old one is 0. Source: file_layout_t::decode in src/common/fs_types.cc.
impl Decode for FileLayout {
    const MIN_SIZE: usize = Self::OLD_BYTES;
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        if r.peek_u8()? == 0 {
            return Self::decode_old(r);
        }
        r.envelope("file_layout_t", 2, |r, _| {
            Ok(Self {
                stripe_unit: r.u32()?,
                stripe_count: r.u32()?,
                object_size: r.u32()?,
                pool: PoolId::decode(r)?,
                pool_ns: String::decode(r)?,
            })
        })
    }
}

/// What a folder may hold with all below it; 0 for no bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Quota {
    pub max_bytes: i64,
    pub max_files: i64,
}
codec::wire_struct!(Quota(1, 1) { max_bytes, max_files });

impl Quota {
    pub fn is_enabled(self) -> bool {
        self.max_bytes != 0 || self.max_files != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layouts_come_back_without_their_namespace() {
        let check = |layout: FileLayout| {
            let bytes = Writer::collect(|w| layout.encode_old(w));
            assert_eq!(bytes.len(), FileLayout::OLD_BYTES);
            for n in 0..bytes.len() {
                assert!(FileLayout::decode_old(&mut Reader::new(bytes.slice(..n))).is_err(), "{n}");
            }
            assert_eq!(FileLayout::decode_old(&mut Reader::new(bytes)), Ok(layout));
        };
        let (stripe_unit, object_size) = (1 << 16, 1 << 22);
        let layout =
            FileLayout { stripe_unit, stripe_count: 2, object_size, pool: PoolId(3), ..Default::default() };
        assert!(layout.is_valid() && !FileLayout::default().is_valid());
        check(layout);
        check(FileLayout::default());
    }
}
