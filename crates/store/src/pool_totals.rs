//! What each pool's objects take, kept as sums that go with every transaction and lie in the tree under one key.

use std::collections::BTreeMap;

use bytes::Bytes;
use codec::{Decode, Encode};

use crate::index::Index;
use crate::key::class;
use crate::stage::Delta;
use crate::{Corruption, PoolTotals, StoreError};

/// By pool. A transaction's blocks count for the pool of its first object.
pub(crate) type Pools = BTreeMap<i64, PoolTotals>;

const KEY: Bytes = Bytes::from_static(&[class::POOLS]);

codec::wire_plain!(PoolTotals { stored_bytes, allocated_bytes });

/// As the last checkpoint has them.
pub(crate) fn load(index: &mut Index) -> Result<Pools, StoreError> {
    let mut pools = match index.get(&KEY)? {
        Some(raw) => decode(raw)?,
        None => Pools::new(),
    };
    own(&mut pools);
    Ok(pools)
}

/// The pool that an object counts for: what is built aside is renamed when it is whole, and its blocks stay.
/// Source: hobject_t::POOL_TEMP_START in src/common/hobject.h.
pub(crate) fn owner(pool: i64) -> i64 {
    if pool < -1 { (-2i64).saturating_sub(pool) } else { pool }
}

/// Stores of earlier versions booked blocks of what was built aside on its own pool for good.
fn own(pools: &mut Pools) {
    let aside: Vec<i64> = pools.range(..-1).map(|(pool, _)| *pool).collect();
    for pool in aside {
        let blocks = pools.get_mut(&pool).map_or(0, |p| std::mem::take(&mut p.allocated_bytes));
        pools.entry(owner(pool)).or_default().allocated_bytes += blocks;
    }
    pools.retain(|_, totals| *totals != PoolTotals::default());
}

pub(crate) fn decode(raw: Bytes) -> Result<Pools, StoreError> {
    Pools::from_bytes(raw).map_err(|_| Corruption::Value { what: "pool totals" }.into())
}

/// The key and value for a checkpoint.
pub(crate) fn entry(pools: &Pools) -> (Bytes, Bytes) {
    (KEY, pools.to_bytes())
}

/// Bytes in the tree.
pub(crate) fn tree_bytes(pools: &Pools) -> u64 {
    64 + 24 * pools.len() as u64
}

pub(crate) fn add(pools: &mut Pools, delta: &Delta) {
    for (pool, stored_bytes) in &delta.stored_by_pool {
        pools.entry(*pool).or_default().stored_bytes += stored_bytes;
    }
    if let (Some(pool), true) = (delta.pool, delta.allocated_bytes != 0) {
        pools.entry(pool).or_default().allocated_bytes += delta.allocated_bytes;
    }
    pools.retain(|_, totals| *totals != PoolTotals::default());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_built_aside_counts_for_its_pool() {
        assert_eq!([0, 7, -1, -2, -9].map(owner), [0, 7, -1, 0, 7]);
        assert_eq!(owner(i64::MIN), i64::MAX - 1);
        let totals = |stored_bytes, allocated_bytes| PoolTotals { stored_bytes, allocated_bytes };
        let mut pools = Pools::from([
            (-9, totals(0, 40_960)),
            (-3, totals(5, 8_192)),
            (-1, totals(1, 4_096)),
            (1, totals(9, -8_192)),
            (7, totals(30_000, 0)),
        ]);
        own(&mut pools);
        let then =
            [(-3, totals(5, 0)), (-1, totals(1, 4_096)), (1, totals(9, 0)), (7, totals(30_000, 40_960))];
        assert_eq!(pools, Pools::from(then));
    }
}
