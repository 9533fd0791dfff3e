//! Which erasure-coded pools an OSD serves: those whose profile it knows, and whose size and stripes are the
//! profile's. Of the others it makes no copies, and their requests are refused with EOPNOTSUPP. All PGs of a
//! pool share its code.
//!
//! Invariant: every erasure-coded pool of the map that was followed last is here, and no other one.

use std::collections::BTreeMap;
use std::sync::Arc;

use erasure::MisfitError;
use maps::OsdMap;
use types::PoolId;

use crate::coded::Geometry;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct CodedPools {
    /// `None` for a pool that does not fit its profile. One that does goes on to do so: neither changes while
    /// the pool is there.
    known: BTreeMap<PoolId, Option<Arc<Geometry>>>,
}

impl CodedPools {
    /// Learns the pools of a map, and gives those that cannot be served and were not known before.
    pub fn follow(&mut self, map: &OsdMap) -> Vec<(PoolId, MisfitError)> {
        self.known.retain(|id, _| map.pool(*id).is_some());
        let mut misfits = Vec::new();
        for (id, pool) in map.pools.iter().filter(|(_, pool)| pool.is_erasure()) {
            let known = self.known.get(id);
            if matches!(known, Some(Some(_))) {
                continue;
            }
            let is_new = known.is_none();
            let geometry = match Geometry::of_pool(map, pool) {
                Ok(geometry) => Some(Arc::new(geometry)),
                Err(e) => {
                    misfits.extend(is_new.then_some((*id, e)));
                    None
                }
            };
            self.known.insert(*id, geometry);
        }
        misfits
    }

    /// The code of a pool that is served.
    pub fn geometry(&self, pool: PoolId) -> Option<Arc<Geometry>> {
        self.known.get(&pool).cloned().flatten()
    }

    pub fn serves(&self, pool: PoolId) -> bool {
        matches!(self.known.get(&pool), Some(Some(_)))
    }

    /// Whether requests of the pool can have no other answer.
    pub fn refuses(&self, pool: PoolId) -> bool {
        matches!(self.known.get(&pool), Some(None))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map_with(plugin: &str) -> OsdMap {
        let mut map = OsdMap::default();
        let words = [("plugin", plugin), ("technique", "reed_sol_van"), ("k", "2"), ("m", "1")];
        let values = words.map(|(k, v)| (k.to_owned(), v.to_owned()));
        map.erasure_code_profiles.insert("p".to_owned(), values.into());
        let mut pool = maps::Pool::new(maps::PoolType::Erasure, 8);
        pool.erasure_code_profile = "p".to_owned();
        (pool.size, pool.stripe_width) = (3, 8192);
        map.pools.insert(PoolId(1), pool);
        map.pools.insert(PoolId(2), maps::Pool::new(maps::PoolType::Replicated, 8));
        map
    }

    #[test]
    fn a_pool_whose_profile_is_not_known_is_told_of_once() {
        let mut pools = CodedPools::default();
        let map = map_with("clay");
        assert_eq!(pools.follow(&map).len(), 1);
        assert!(pools.refuses(PoolId(1)) && !pools.serves(PoolId(1)));
        assert_eq!(pools.follow(&map), []);
        // The profile was put right by force.
        assert_eq!(pools.follow(&map_with("jerasure")), []);
        assert!(pools.serves(PoolId(1)) && !pools.refuses(PoolId(1)));
        // Whoever asks gets the same one, also after the next map.
        let first = pools.geometry(PoolId(1)).unwrap();
        assert_eq!(pools.follow(&map_with("jerasure")), []);
        assert!(Arc::ptr_eq(&first, &pools.geometry(PoolId(1)).unwrap()));
        // A replicated pool is none of them, and neither is one that is gone.
        assert!(!pools.refuses(PoolId(2)) && !pools.serves(PoolId(2)));
        assert_eq!(pools.follow(&OsdMap::default()), []);
        assert!(!pools.serves(PoolId(1)));
    }

    #[test]
    fn a_pool_of_another_size_than_its_profile_is_not_served() {
        let mut map = map_with("jerasure");
        map.pools.get_mut(&PoolId(1)).unwrap().size = 2;
        let mut pools = CodedPools::default();
        assert_eq!(pools.follow(&map), [(PoolId(1), MisfitError::Size { chunks: 3, size: 2 })]);
        assert!(pools.refuses(PoolId(1)));
    }
}
