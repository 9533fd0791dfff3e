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
    match index.get(&KEY)? {
        Some(raw) => decode(raw),
        None => Ok(Pools::new()),
    }
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
