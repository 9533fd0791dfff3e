//! Placement group ids: pool and seed, and the same with an erasure-code shard.

use codec::{Decode, DecodeError, Encode, Reader, Writer};

use crate::{OsdId, PoolId};

/// A placement group: `pool.seed`, the seed printed in hex. Source: pg_t in src/osd/osd_types.h.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct PgId {
    pub pool: PoolId,
    pub seed: u32,
}

impl PgId {
    pub fn new(pool: PoolId, seed: u32) -> Self {
        Self { pool, seed }
    }

    /// The PG that takes this one in when PGs are merged: what is left without the highest bit of its number.
    #[must_use]
    pub fn parent(self) -> Self {
        let highest = self.seed.checked_ilog2().map_or(0, |bit| 1 << bit);
        Self { seed: self.seed & !highest, ..self }
    }

    /// Parses `pool.seed` with the seed in hex.
    pub fn parse(text: &str) -> Option<Self> {
        let (pool, seed) = text.split_once('.')?;
        Some(Self { pool: PoolId(pool.parse().ok()?), seed: u32::from_str_radix(seed, 16).ok()? })
    }
}

impl std::fmt::Display for PgId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{:x}", self.pool, self.seed)
    }
}

/// Version byte, pool, seed, and a "preferred OSD" that has been -1 for many releases.
impl Encode for PgId {
    fn encode(&self, w: &mut Writer) {
        w.u8(1);
        w.i64(self.pool.0);
        w.u32(self.seed);
        w.i32(-1);
    }
}
impl Decode for PgId {
    const MIN_SIZE: usize = 17;
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.skip(1)?;
        let pool = PoolId(r.i64()?);
        let seed = r.u32()?;
        r.skip(4)?;
        Ok(Self { pool, seed })
    }
}

/// A PG and, for erasure-coded pools, the shard; -1 for replicated ones. Source: spg_t in src/osd/osd_types.h.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SpgId {
    pub pgid: PgId,
    pub shard: i8,
}

codec::wire_struct!(SpgId(1, 1) { pgid, shard });

/// PG 0.0 of a replicated pool.
impl Default for SpgId {
    fn default() -> Self {
        Self::replicated(PgId::default())
    }
}

impl SpgId {
    pub const NO_SHARD: i8 = -1;

    pub fn replicated(pgid: PgId) -> Self {
        Self { pgid, shard: Self::NO_SHARD }
    }
}

impl std::fmt::Display for SpgId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.shard == Self::NO_SHARD {
            self.pgid.fmt(f)
        } else {
            write!(f, "{}s{}", self.pgid, self.shard)
        }
    }
}

/// A copy of a PG, as other copies address it: its OSD and, in erasure-coded pools, its shard. Source: pg_shard_t
/// in src/osd/osd_types.h.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PgShard {
    pub osd: OsdId,
    /// `SpgId::NO_SHARD` in replicated pools.
    pub shard: i8,
}

impl PgShard {
    pub const NONE: Self = Self { osd: OsdId::NONE, shard: SpgId::NO_SHARD };

    /// A copy in a replicated pool.
    pub fn replicated(osd: OsdId) -> Self {
        Self { osd, shard: SpgId::NO_SHARD }
    }
}

/// As Ceph prints it: `3`, or `3(1)`.
impl std::fmt::Display for PgShard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.shard {
            SpgId::NO_SHARD => self.osd.fmt(f),
            shard => write!(f, "{}({shard})", self.osd),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_print_as_ceph_prints_them() {
        let coded = PgShard { osd: OsdId(3), shard: 1 };
        assert_eq!([PgShard::replicated(OsdId(3)), coded].map(|c| c.to_string()), ["3", "3(1)"]);
        assert!(!OsdId::HOLE.is_osd() && !OsdId::NONE.is_osd() && OsdId(0).is_osd());
    }

    #[test]
    fn parents() {
        let parent = |seed| PgId::new(PoolId(1), seed).parent().seed;
        assert_eq!([0, 1, 2, 3, 5, 8, 31, 32, 1 << 31].map(parent), [0, 0, 0, 1, 1, 0, 15, 0, 0]);
    }
}
