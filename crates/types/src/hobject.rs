//! An object's full identity inside the cluster, in the order that placement groups list objects in.

use std::cmp::Ordering;

use codec::{Decode, DecodeError, Encode, Reader, Writer};

use crate::{Name, PgId, PoolId, SnapId};

/// Pool, placement hash, namespace, locator key, name and snapshot; `max` is above every object.
///
/// Sorts by the bit-reversed hash, so that a PG's objects stay together when it splits. Source: src/common/hobject.cc.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct HObject {
    pub pool: PoolId,
    pub hash: u32,
    pub nspace: Name,
    /// Locator key; empty when the name itself places the object.
    pub key: Name,
    pub name: Name,
    pub snap: SnapId,
    pub max: bool,
}

impl HObject {
    /// Below every object: pool is the least 64-bit number. Source: hobject_t::is_min.
    pub fn min() -> Self {
        Self {
            pool: PoolId(i64::MIN),
            hash: 0,
            nspace: Name::new(),
            key: Name::new(),
            name: Name::new(),
            snap: SnapId(0),
            max: false,
        }
    }

    /// Above every object. Source: hobject_t::get_max (pool keeps its default, the least number).
    pub fn max() -> Self {
        Self { max: true, ..Self::min() }
    }

    pub fn is_min(&self) -> bool {
        *self == Self::min()
    }

    pub fn is_head(&self) -> bool {
        self.snap == SnapId::HEAD
    }

    /// The same object at another snapshot.
    #[must_use]
    pub fn at(&self, snap: SnapId) -> Self {
        Self { snap, ..self.clone() }
    }

    #[must_use]
    pub fn head(&self) -> Self {
        self.at(SnapId::HEAD)
    }

    /// The 33-bit sort key: the reversed hash, or one above all of them for `max`.
    pub fn bitwise_key(&self) -> u64 {
        if self.max { 1 << 32 } else { u64::from(self.hash.reverse_bits()) }
    }

    /// What placement hashes: the key, else the name.
    pub fn effective_key(&self) -> &str {
        if self.key.is_empty() { &self.name } else { &self.key }
    }

    /// The least position of a PG of `pg_num_bits` significant seed bits. Source: pg_t::get_hobj_start in src/osd/osd_types.cc.
    pub fn pg_start(pgid: PgId) -> Self {
        Self { pool: pgid.pool, hash: pgid.seed, ..Self::min() }
    }
}

impl Ord for HObject {
    fn cmp(&self, o: &Self) -> Ordering {
        self.max
            .cmp(&o.max)
            .then_with(|| self.pool.cmp(&o.pool))
            .then_with(|| self.bitwise_key().cmp(&o.bitwise_key()))
            .then_with(|| self.nspace.as_bytes().cmp(o.nspace.as_bytes()))
            .then_with(|| {
                if self.key.is_empty() && o.key.is_empty() {
                    Ordering::Equal
                } else {
                    self.effective_key().as_bytes().cmp(o.effective_key().as_bytes())
                }
            })
            .then_with(|| self.name.as_bytes().cmp(o.name.as_bytes()))
            .then_with(|| self.snap.cmp(&o.snap))
            // `Eq` compares the key field itself; keep `Ord` consistent with it.
            .then_with(|| self.key.cmp(&o.key))
    }
}
impl PartialOrd for HObject {
    fn partial_cmp(&self, o: &Self) -> Option<Ordering> {
        Some(self.cmp(o))
    }
}

impl Encode for HObject {
    fn encode(&self, w: &mut Writer) {
        w.envelope(4, 3, |w| {
            self.key.encode(w);
            self.name.encode(w);
            self.snap.encode(w);
            w.u32(self.hash);
            self.max.encode(w);
            self.nspace.encode(w);
            w.i64(self.pool.0);
        });
    }
}
impl Decode for HObject {
    const MIN_SIZE: usize = 6;
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.envelope("hobject_t", 4, |r, env| {
            let key = Name::decode(r)?;
            let name = Name::decode(r)?;
            let snap = SnapId::decode(r)?;
            let hash = r.u32()?;
            let max = env.version >= 2 && bool::decode(r)?;
            let (nspace, pool) = if env.version >= 4 {
                (Name::decode(r)?, PoolId(r.i64()?))
            } else {
                (Name::new(), PoolId(-1))
            };
            if max {
                return Ok(Self::max());
            }
            Ok(Self { pool, hash, nspace, key, name, snap, max })
        })
    }
}

/// `pool:reversed-hash:nspace:key:name:snap`, Ceph's log form, without escaping.
impl std::fmt::Display for HObject {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.max {
            return f.write_str("MAX");
        }
        if self.is_min() {
            return f.write_str("MIN");
        }
        let rev = self.hash.reverse_bits();
        write!(f, "{}:{rev:08x}:{}:{}:{}:{}", self.pool, self.nspace, self.key, self.name, self.snap)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn obj(hash: u32, name: &str) -> HObject {
        HObject { pool: PoolId(1), hash, name: name.into(), snap: SnapId::HEAD, ..HObject::min() }
    }

    #[test]
    fn sorts_by_reversed_hash_and_max_is_last() {
        let mut v = vec![HObject::max(), obj(1, "a"), obj(2, "a"), obj(4, "b"), obj(4, "a"), HObject::min()];
        v.sort();
        assert_eq!(
            v,
            vec![HObject::min(), obj(4, "a"), obj(4, "b"), obj(2, "a"), obj(1, "a"), HObject::max()]
        );
    }

    #[test]
    fn round_trip_and_truncation() {
        for o in [obj(0x1234, "name"), HObject::max(), HObject::min()] {
            let b = o.to_bytes();
            assert_eq!(HObject::from_bytes(b.clone()), Ok(o));
            for n in 0..b.len() {
                assert!(HObject::from_bytes(b.slice(..n)).is_err());
            }
        }
    }
}
