//! Placements that are kept from map to map are those of each map.

use crate::common;
use crate::common::random_map::random_map;

use std::sync::Arc;

use common::Random;
use maps::{OsdMap, PgMapping, Placements, pool_flags};
use types::PgId;

/// Changes one thing, of those that move PGs and those that do not.
fn change(map: &mut OsdMap, r: &mut Random) {
    let osd = r.below(map.osds.len() as u64) as usize;
    let pools: Vec<_> = map.pools.keys().copied().collect();
    let id = pools[r.below(pools.len() as u64) as usize];
    let pool = map.pools.get_mut(&id).expect("of the map");
    match r.below(10) {
        0 => map.osds[osd].state ^= maps::flags::osd_state::UP,
        1 => map.weights[osd] = [0, 0x4000, 0x10000][r.below(3) as usize],
        2 => pool.pgp_num = 1 + r.below(pool.pg_num.into()) as u32,
        3 => pool.pg_num += r.below(9) as u32,
        4 => pool.size = 1 + r.below(6) as u8,
        5 => pool.flags ^= pool_flags::HASHPSPOOL,
        6 => _ = map.pg_temp.insert(PgId::new(id, 0), vec![osd as i32]),
        7 => Arc::make_mut(&mut map.crush).tunables.choose_total_tries = 1 + r.below(50) as u32,
        8 => pool.crush_rule = r.below(4) as u8,
        // The same hierarchy somewhere else in memory, as a decoded map has it.
        _ => map.crush = Arc::new((*map.crush).clone()),
    }
}

#[test]
fn kept_placements_are_those_of_each_map() {
    let mut moved = 0;
    for seed in 0..12 {
        let (mut map, mut r, mut kept) = (random_map(seed), Random::new(seed), Placements::default());
        let mut before: Vec<PgMapping> = Vec::new();
        for step in 0..40 {
            change(&mut map, &mut r);
            let mut plain = Vec::new();
            map.for_each_pg(|pg, m| plain.push((pg, m.clone())));
            // One by one, and beyond the last; or all together, or first some and then all.
            for (pg, m) in plain.iter().filter(|_| step % 3 != 1) {
                assert_eq!(&kept.pg_to_up_acting(&map, *pg), m, "seed {seed}, step {step}: {pg}");
                let raw = PgId::new(pg.pool, pg.seed + 100_000);
                assert_eq!(kept.pg_to_up_acting(&map, raw), map.pg_to_up_acting(raw));
                if step % 3 == 2 && r.chance(30) {
                    break;
                }
            }
            if step % 3 > 0 {
                let mut all = Vec::new();
                kept.for_each_pg(&map, |pg, m| all.push((pg, m.clone())));
                assert_eq!(all, plain, "seed {seed}, step {step}");
            }
            let now: Vec<PgMapping> = plain.into_iter().map(|(_, m)| m).collect();
            moved += usize::from(now != before);
            before = now;
        }
    }
    assert!(moved > 200, "{moved} of the changes moved PGs");
}
