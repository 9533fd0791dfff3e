//! CRUSH's answers, kept from one map to the next: most maps change neither the hierarchy nor a weight.
//!
//! Invariant: a kept answer is what CRUSH gives with the hierarchy, weights and pool settings kept beside it.
//! Up states, upmaps and temporary mappings are never kept.

use std::collections::BTreeMap;
use std::sync::Arc;

use crush::{Batch, CrushMap};
use types::{PgId, PoolId};

use crate::mapping::{PgMapper, PgMapping, find_rule};
use crate::pool::pool_flags;
use crate::{OsdMap, Pool};

/// See the module.
#[derive(Debug, Default)]
pub struct Placements {
    crush: Arc<CrushMap>,
    weights: Vec<u32>,
    pools: BTreeMap<PoolId, Placed>,
    batch: Batch,
}

/// What of a pool CRUSH is asked with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Asked {
    rule: Option<u32>,
    size: usize,
    pg_num: u32,
    pgp_num: u32,
    hashed: bool,
}

impl Asked {
    fn of(map: &OsdMap, pool: &Pool) -> Self {
        Self {
            rule: find_rule(&map.crush, pool.crush_rule, pool.kind, pool.size),
            size: usize::from(pool.size),
            pg_num: pool.pg_num,
            pgp_num: pool.pgp_num,
            hashed: pool.has_flag(pool_flags::HASHPSPOOL),
        }
    }
}

/// The answers for one pool: `asked.size` places for each PG, of which the first so many hold its OSDs.
#[derive(Debug, Default)]
struct Placed {
    asked: Asked,
    osds: Vec<i32>,
    /// By PG; `None` when CRUSH was not asked yet.
    counts: Vec<Option<u8>>,
    unknown: usize,
}

impl Placed {
    fn new(asked: Asked) -> Self {
        let n = asked.pg_num as usize;
        Self { asked, osds: vec![0; n * asked.size], counts: vec![None; n], unknown: n }
    }

    fn get(&self, seed: u32) -> Option<&[i32]> {
        let at = seed as usize;
        let count = (*self.counts.get(at)?)?;
        let from = at * self.asked.size;
        self.osds.get(from..from + usize::from(count))
    }

    fn put(&mut self, seed: u32, osds: &[i32]) {
        let at = seed as usize;
        let place = self.osds.get_mut(at * self.asked.size..at * self.asked.size + osds.len());
        if let (Some(place), Some(count), Ok(n)) = (place, self.counts.get_mut(at), u8::try_from(osds.len()))
        {
            place.copy_from_slice(osds);
            self.unknown -= usize::from(count.is_none());
            *count = Some(n);
        }
    }
}

impl Placements {
    /// Forgets what does not hold in this map.
    fn follow(&mut self, map: &OsdMap) {
        let same = Arc::ptr_eq(&self.crush, &map.crush) || self.crush == map.crush;
        if !same || self.weights != map.weights {
            self.pools.clear();
            self.weights.clone_from(&map.weights);
        }
        if !Arc::ptr_eq(&self.crush, &map.crush) {
            self.crush = Arc::clone(&map.crush);
        }
    }

    fn pool(&mut self, map: &OsdMap, id: PoolId, pool: &Pool) -> &mut Placed {
        let asked = Asked::of(map, pool);
        let placed = self.pools.entry(id).or_default();
        if placed.asked != asked {
            *placed = Placed::new(asked);
        }
        placed
    }

    /// [`OsdMap::pg_to_up_acting`].
    pub fn pg_to_up_acting(&mut self, map: &OsdMap, pg: PgId) -> PgMapping {
        let mut mapper = PgMapper::new(map);
        let Some(pool) = map.pool(pg.pool).filter(|pool| pg.seed < pool.pg_num) else {
            return mapper.map(pg).clone();
        };
        self.follow(map);
        let placed = self.pool(map, pg.pool, pool);
        if placed.get(pg.seed).is_none() {
            placed.put(pg.seed, mapper.crush_alone(pool, pg));
        }
        match placed.get(pg.seed) {
            Some(osds) => mapper.map_placed(pool, pg, osds).clone(),
            None => mapper.map(pg).clone(),
        }
    }

    /// [`OsdMap::for_each_pg`].
    pub fn for_each_pg(&mut self, map: &OsdMap, mut f: impl FnMut(PgId, &PgMapping)) {
        self.follow(map);
        self.pools.retain(|id, _| map.pools.contains_key(id));
        let mut mapper = PgMapper::new(map);
        for (id, pool) in &map.pools {
            let mut batch = std::mem::take(&mut self.batch);
            let placed = self.pool(map, *id, pool);
            if placed.unknown > 0 {
                mapper.place_pool(*id, pool, &mut batch, |seed, osds| placed.put(seed, osds));
            }
            for seed in 0..pool.pg_num {
                let pg = PgId::new(*id, seed);
                match placed.get(seed) {
                    Some(osds) => f(pg, mapper.map_placed(pool, pg, osds)),
                    None => f(pg, mapper.map(pg)),
                }
            }
            self.batch = batch;
        }
    }
}
