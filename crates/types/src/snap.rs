//! Snapshot ids and the context that a write carries.

use codec::{Decode, DecodeError, Encode, Reader, Writer, wire_plain};

/// A snapshot's id; the head of an object and the "snapdir" have reserved values. Source: src/include/rados.h.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SnapId(pub u64);

impl SnapId {
    /// The object's newest, writable state.
    pub const HEAD: Self = Self(u64::MAX - 1);
    /// Stands for the snapshots of an object as a whole.
    pub const SNAPDIR: Self = Self(u64::MAX);
    /// Above every real id.
    pub const MAX: Self = Self(u64::MAX - 2);
}

impl Default for SnapId {
    fn default() -> Self {
        Self::HEAD
    }
}
impl From<u64> for SnapId {
    fn from(id: u64) -> Self {
        Self(id)
    }
}
impl From<SnapId> for u64 {
    fn from(id: SnapId) -> Self {
        id.0
    }
}
impl Encode for SnapId {
    fn encode(&self, w: &mut Writer) {
        w.u64(self.0);
    }
}
impl Decode for SnapId {
    const MIN_SIZE: usize = 8;
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.u64().map(Self)
    }
}
impl std::fmt::Display for SnapId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match *self {
            Self::HEAD => f.write_str("head"),
            Self::SNAPDIR => f.write_str("snapdir"),
            Self(v) => write!(f, "{v:x}"),
        }
    }
}

/// The newest snapshot a writer knows, and all that exist, newest first.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct SnapContext {
    /// 0 when the pool or image never had one.
    pub seq: u64,
    pub snaps: Vec<u64>,
}

wire_plain!(SnapContext { seq, snaps });

impl SnapContext {
    /// Whether ids strictly fall and none is above `seq`; a last id of 0, which is no snapshot, passes.
    /// Source: SnapContext::is_valid in src/common/snap_types.cc.
    pub fn is_valid(&self) -> bool {
        self.seq <= SnapId::MAX.0
            && self.snaps.first().is_none_or(|first| *first <= self.seq)
            && self.snaps.windows(2).all(|w| matches!(w, [a, b] if a > b))
    }
}

#[cfg(test)]
mod tests {
    use super::SnapContext;

    #[test]
    fn contexts_out_of_order_are_invalid() {
        let ctx = |seq, snaps: &[u64]| SnapContext { seq, snaps: snaps.to_vec() }.is_valid();
        assert!(ctx(0, &[]) && ctx(4, &[4, 2, 1]) && ctx(4, &[2, 0]));
        assert!(!ctx(3, &[4]) && !ctx(4, &[1, 2]) && !ctx(4, &[2, 2]) && !ctx(4, &[0, 0]));
    }
}
