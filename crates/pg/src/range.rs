//! Which objects belong to a PG: one range of the object order.

use maps::{Pool, pg_mask, stable_mod};
use types::{HObject, PgId, PoolId};

/// Bits of an object's hash that decide about membership in the PG `seed` of a pool with `pg_num` PGs.
///
/// Source: pg_t::get_split_bits in src/osd/osd_types.cc.
pub fn split_bits(seed: u32, pg_num: u32) -> u32 {
    let mask = pg_mask(pg_num);
    let bits = mask.count_ones();
    let upper = (mask >> 1).wrapping_add(1);
    // With a count that is no power of two, some PGs have not been split yet and cover their sibling's half too.
    if bits > 0 && seed & upper == 0 && seed | upper >= pg_num { bits - 1 } else { bits }
}

/// The PG's objects: from the first, up to without the second.
pub fn pg_range(pgid: PgId, pg_num: u32) -> (HObject, HObject) {
    let bits = split_bits(pgid.seed, pg_num);
    let start = HObject::pg_start(pgid);
    let step = 1u64 << (32 - bits.min(32));
    let next = u64::from(pgid.seed.reverse_bits()) + step;
    let end = match u32::try_from(next) {
        Ok(reversed) => HObject { hash: reversed.reverse_bits(), ..start.clone() },
        Err(_) => HObject { pool: PoolId(pgid.pool.0.saturating_add(1)), hash: 0, ..start.clone() },
    };
    (start, end)
}

/// Whether an object of this hash is the PG's.
pub fn contains(pgid: PgId, pool: &Pool, hash: u32) -> bool {
    stable_mod(hash, pool.pg_num, pg_mask(pool.pg_num)) == pgid.seed
}

/// The PG that held the objects of `seed` when the pool had only `pg_num` PGs.
pub fn ancestor(pgid: PgId, pg_num: u32) -> PgId {
    if pgid.seed < pg_num {
        return pgid;
    }
    // Fold away top bits until the seed existed.
    let mut mask = pg_mask(pg_num);
    let mut seed = pgid.seed & mask;
    while seed >= pg_num {
        mask >>= 1;
        seed &= mask;
    }
    PgId { pool: pgid.pool, seed }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_and_stable_mod_agree() {
        for pg_num in [1u32, 2, 3, 5, 8, 12, 17, 64] {
            let pool = Pool { pg_num, ..Pool::default() };
            for hash in (0..40_000u32).map(|i| i.wrapping_mul(0x9e37_79b9)) {
                let object = HObject { pool: PoolId(3), hash, name: "o".into(), ..HObject::min() };
                let owners: Vec<u32> = (0..pg_num)
                    .filter(|seed| {
                        let (from, until) = pg_range(PgId::new(PoolId(3), *seed), pg_num);
                        object >= from && object < until
                    })
                    .collect();
                let owner = stable_mod(hash, pg_num, pg_mask(pg_num));
                assert_eq!(owners, [owner], "hash {hash:#x} of {pg_num}");
                assert!(contains(PgId::new(PoolId(3), owner), &pool, hash));
                for fewer in [1u32, 2, 3, 5] {
                    if fewer < pg_num {
                        let was = stable_mod(hash, fewer, pg_mask(fewer));
                        assert_eq!(
                            ancestor(PgId::new(PoolId(3), owner), fewer).seed,
                            was,
                            "{owner} of {pg_num}"
                        );
                    }
                }
            }
        }
    }
}
