//! From an object to its PG, and from a PG to its OSDs: CRUSH, then explicit replacements, then who is up.
//!
//! Source: OSDMap::object_locator_to_pg, _pg_to_raw_osds, _apply_upmap, _raw_to_up_osds, _apply_primary_affinity,
//! _get_temp_osds and _pg_to_up_acting_osds in src/osd/OSDMap.cc; pg_pool_t in src/osd/osd_types.cc.

use crush::{Batch, CrushMap, ITEM_NONE, Scratch, hash::hash32_2, str_hash};
use types::{ObjectLocator, PgId, PoolId, SpgId};

use crate::flags::{MAX_PRIMARY_AFFINITY, WEIGHT_OUT};
use crate::pool::{pg_mask, pool_flags, stable_mod};
use crate::{OsdMap, Pool, PoolType};

/// "No OSD", as primary.
pub const NO_OSD: i32 = -1;

/// Where a PG lives. Lists of erasure-coded PGs have [`ITEM_NONE`] at positions without an OSD.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PgMapping {
    /// Who should serve, by CRUSH and who is up.
    pub up: Vec<i32>,
    /// [`NO_OSD`] when there is none; also in `acting_primary`.
    pub up_primary: i32,
    /// Who serves now.
    pub acting: Vec<i32>,
    pub acting_primary: i32,
}

impl PgMapping {
    /// The shard's position in the acting set when `osd` holds it there; replicated PGs look for the OSD anywhere.
    pub fn acting_role(&self, osd: i32, shard: i8) -> Option<usize> {
        match usize::try_from(shard) {
            Ok(at) => (self.acting.get(at) == Some(&osd)).then_some(at),
            Err(_) => self.acting.iter().position(|o| *o == osd),
        }
    }
}

impl Pool {
    /// Hash of an object's key within a namespace; the seed of its raw PG.
    pub fn hash_key(&self, key: &str, nspace: &str) -> u32 {
        let kind = u32::from(self.object_hash);
        if nspace.is_empty() {
            return str_hash(kind, key.as_bytes());
        }
        // The separator is a byte that names do not hold in practice.
        str_hash(kind, &[nspace.as_bytes(), b"\x1f", key.as_bytes()].concat())
    }

    /// Folds a raw PG's full-precision seed into the pool's PG count.
    pub fn raw_pg_to_pg(&self, raw: PgId) -> PgId {
        PgId::new(raw.pool, stable_mod(raw.seed, self.pg_num, pg_mask(self.pg_num)))
    }

    /// The number that CRUSH places: PGs above `pgp_num` share their parent's.
    pub fn placement_seed(&self, pg: PgId) -> u32 {
        let seed = stable_mod(pg.seed, self.pgp_num, pg_mask(self.pgp_num));
        if self.has_flag(pool_flags::HASHPSPOOL) {
            hash32_2(seed, pg.pool.0 as u32)
        } else {
            seed.wrapping_add(pg.pool.0 as u32)
        }
    }
}

/// The rule that serves pools of this rule number, type and size. Source: crush_find_rule in src/crush/mapper.c.
pub(crate) fn find_rule(crush: &CrushMap, ruleset: u8, kind: PoolType, size: u8) -> Option<u32> {
    let fits = |r: &crush::Rule| {
        r.ruleset == ruleset && r.rule_type == kind as u8 && (r.min_size..=r.max_size).contains(&size)
    };
    let at = crush.rules.iter().position(|r| r.as_ref().is_some_and(fits))?;
    u32::try_from(at).ok()
}

/// The first OSD of a list that is one.
fn first_osd(osds: &[i32]) -> i32 {
    osds.iter().copied().find(|o| *o != ITEM_NONE).unwrap_or(NO_OSD)
}

/// Computes placements, reusing its memory from one PG to the next.
#[derive(Debug)]
pub struct PgMapper<'a> {
    map: &'a OsdMap,
    scratch: Scratch,
    raw: Vec<i32>,
    out: PgMapping,
    /// The last pool's rule, for PGs come pool by pool.
    rule: Option<(PoolId, Option<u32>)>,
}

impl<'a> PgMapper<'a> {
    pub fn new(map: &'a OsdMap) -> Self {
        let (scratch, raw, out) = (Scratch::default(), Vec::new(), PgMapping::default());
        Self { map, scratch, raw, out, rule: None }
    }

    /// Up and acting set of a PG (or raw PG); empty when the pool does not exist.
    pub fn map(&mut self, pg: PgId) -> &PgMapping {
        self.forget();
        let Some(pool) = self.map.pool(pg.pool) else { return &self.out };
        let seed = self.raw_osds(pool, pg);
        self.up_and_acting(pool, pg, seed)
    }

    /// The mapping that follows from `raw`; `out` is fresh.
    fn up_and_acting(&mut self, pool: &Pool, pg: PgId, seed: u32) -> &PgMapping {
        self.map.apply_upmap(pool, pg, &mut self.raw);
        self.map.raw_to_up(pool, &self.raw, &mut self.out.up);
        self.out.up_primary = first_osd(&self.out.up);
        self.map.apply_primary_affinity(seed, pool, &mut self.out.up, &mut self.out.up_primary);
        self.temp_osds(pool, pg);
        if self.out.acting.is_empty() {
            self.out.acting.extend_from_slice(&self.out.up);
            if self.out.acting_primary == NO_OSD {
                self.out.acting_primary = self.out.up_primary;
            }
        }
        &self.out
    }

    fn forget(&mut self) {
        self.out.up.clear();
        self.out.acting.clear();
        self.out.up_primary = NO_OSD;
        self.out.acting_primary = NO_OSD;
    }

    /// What CRUSH alone gives for the PGs of a pool, in order, placed together: see [`CrushMap::place_all`].
    pub(crate) fn place_pool(
        &self,
        id: PoolId,
        pool: &Pool,
        batch: &mut Batch,
        mut f: impl FnMut(u32, &[i32]),
    ) {
        let map = self.map;
        let seeds: Vec<u32> = (0..pool.pg_num).map(|seed| pool.placement_seed(PgId::new(id, seed))).collect();
        // Without a rule nothing is placed, and every PG is told so.
        let rule = find_rule(&map.crush, pool.crush_rule, pool.kind, pool.size).unwrap_or(u32::MAX);
        let size = usize::from(pool.size);
        map.crush.place_all(rule, &seeds, size, &map.weights, Some(id.0), batch, |i, osds| f(i as u32, osds));
    }

    fn map_pool(&mut self, id: PoolId, pool: &Pool, batch: &mut Batch, f: &mut impl FnMut(PgId, &PgMapping)) {
        let places = Self::new(self.map);
        places.place_pool(id, pool, batch, |seed, osds| {
            let pg = PgId::new(id, seed);
            f(pg, self.map_placed(pool, pg, osds));
        });
    }

    /// The mapping that follows from what CRUSH alone gives.
    pub(crate) fn map_placed(&mut self, pool: &Pool, pg: PgId, osds: &[i32]) -> &PgMapping {
        self.forget();
        self.raw.clear();
        self.raw.extend_from_slice(osds);
        self.drop_missing(pool);
        self.up_and_acting(pool, pg, pool.placement_seed(pg))
    }

    fn drop_missing(&mut self, pool: &Pool) {
        if pool.can_shift_osds() {
            self.raw.retain(|o| self.map.exists(*o));
        } else {
            self.raw.iter_mut().filter(|o| !self.map.exists(**o)).for_each(|o| *o = ITEM_NONE);
        }
    }

    /// What CRUSH gives, less OSDs that do not exist; and the placement seed.
    fn raw_osds(&mut self, pool: &Pool, pg: PgId) -> u32 {
        self.crush_alone(pool, pg);
        self.drop_missing(pool);
        pool.placement_seed(pg)
    }

    /// What CRUSH alone gives.
    pub(crate) fn crush_alone(&mut self, pool: &Pool, pg: PgId) -> &[i32] {
        let seed = pool.placement_seed(pg);
        let rule = match self.rule {
            Some((of, rule)) if of == pg.pool => rule,
            _ => find_rule(&self.map.crush, pool.crush_rule, pool.kind, pool.size),
        };
        self.rule = Some((pg.pool, rule));
        self.raw.clear();
        if let Some(rule) = rule {
            self.map.crush.do_rule_into(
                rule,
                seed as i32,
                usize::from(pool.size),
                &self.map.weights,
                Some(pg.pool.0),
                &mut self.scratch,
                &mut self.raw,
            );
        }
        &self.raw
    }

    /// Fills in the acting set that overrides the up set for a while, and its primary, as far as there are any.
    fn temp_osds(&mut self, pool: &Pool, pg: PgId) {
        let pg = pool.raw_pg_to_pg(pg);
        if let Some(osds) = self.map.pg_temp.get(&pg) {
            self.map.raw_to_up(pool, osds, &mut self.out.acting);
        }
        self.out.acting_primary = match self.map.primary_temp.get(&pg) {
            Some(osd) => *osd,
            None => first_osd(&self.out.acting),
        };
    }
}

impl OsdMap {
    /// The raw PG of an object: its seed is the full hash. `None` when the pool does not exist.
    pub fn object_to_raw_pg(&self, locator: &ObjectLocator, name: &str) -> Option<PgId> {
        let pool = self.pool(locator.pool)?;
        let seed = match u32::try_from(locator.hash) {
            Ok(hash) => hash,
            Err(_) if locator.hash >= 0 => locator.hash as u32,
            Err(_) => {
                let key = if locator.key.is_empty() { name } else { &locator.key };
                pool.hash_key(key, &locator.nspace)
            }
        };
        Some(PgId::new(locator.pool, seed))
    }

    /// The PG that stores an object. `None` when the pool does not exist.
    pub fn object_to_pg(&self, locator: &ObjectLocator, name: &str) -> Option<PgId> {
        self.raw_pg_to_pg(self.object_to_raw_pg(locator, name)?)
    }

    pub fn raw_pg_to_pg(&self, raw: PgId) -> Option<PgId> {
        Some(self.pool(raw.pool)?.raw_pg_to_pg(raw))
    }

    /// Up and acting set of one PG. For many of them use a [`PgMapper`] or [`OsdMap::for_each_pg`].
    pub fn pg_to_up_acting(&self, pg: PgId) -> PgMapping {
        let mut mapper = PgMapper::new(self);
        mapper.map(pg);
        mapper.out
    }

    /// Maps every PG of the map, pool by pool, without allocating for each.
    pub fn for_each_pg(&self, mut f: impl FnMut(PgId, &PgMapping)) {
        let (mut mapper, mut batch) = (PgMapper::new(self), Batch::default());
        for (id, pool) in &self.pools {
            mapper.map_pool(*id, pool, &mut batch, &mut f);
        }
    }

    /// What CRUSH alone gives, and its first OSD. Not where data is: replacements and states do not count here.
    pub fn pg_to_raw_osds(&self, pg: PgId) -> (Vec<i32>, i32) {
        let mut mapper = PgMapper::new(self);
        if let Some(pool) = self.pool(pg.pool) {
            mapper.raw_osds(pool, pg);
        }
        let primary = first_osd(&mapper.raw);
        (mapper.raw, primary)
    }

    /// The up set before `pg_temp`, with its primary: what a redundant `pg_temp` equals. Source: OSDMap::pg_to_raw_up.
    pub fn pg_to_raw_up(&self, pg: PgId) -> (Vec<i32>, i32) {
        let (mut mapper, mut up) = (PgMapper::new(self), Vec::new());
        let Some(pool) = self.pool(pg.pool) else { return (up, NO_OSD) };
        let seed = mapper.raw_osds(pool, pg);
        self.apply_upmap(pool, pg, &mut mapper.raw);
        self.raw_to_up(pool, &mapper.raw, &mut up);
        // The first of the raw list, as Ceph has it, although it may be down.
        let mut primary = first_osd(&mapper.raw);
        self.apply_primary_affinity(seed, pool, &mut up, &mut primary);
        (up, primary)
    }

    /// The acting primary and the shard it holds. `None` when the PG has no primary.
    pub fn primary_shard(&self, pg: PgId) -> Option<(i32, SpgId)> {
        let pool = self.pool(pg.pool)?;
        let m = self.pg_to_up_acting(pg);
        if m.acting_primary == NO_OSD {
            return None;
        }
        if !pool.is_erasure() {
            return Some((m.acting_primary, SpgId::replicated(pg)));
        }
        let at = m.acting.iter().position(|o| *o == m.acting_primary)?;
        Some((m.acting_primary, SpgId { pgid: pg, shard: i8::try_from(at).ok()? }))
    }

    /// Whether a replacement may not be used, since its target is marked out. Unknown targets may.
    fn is_marked_out(&self, osd: i32) -> bool {
        usize::try_from(osd).ok().and_then(|i| self.weights.get(i)) == Some(&WEIGHT_OUT)
    }

    pub(crate) fn apply_upmap(&self, pool: &Pool, pg: PgId, raw: &mut Vec<i32>) {
        if self.pg_upmap.is_empty() && self.pg_upmap_items.is_empty() {
            return;
        }
        let pg = pool.raw_pg_to_pg(pg);
        if let Some(osds) = self.pg_upmap.get(&pg) {
            if osds.iter().any(|o| *o != ITEM_NONE && self.is_marked_out(*o)) {
                return;
            }
            raw.clone_from(osds);
        }
        for (from, to) in self.pg_upmap_items.get(&pg).into_iter().flatten() {
            if raw.contains(to) || (*to != ITEM_NONE && self.is_marked_out(*to)) {
                continue;
            }
            if let Some(slot) = raw.iter_mut().find(|o| *o == from) {
                *slot = *to;
            }
        }
    }

    /// Drops OSDs that are not up; in erasure-coded PGs they leave a hole.
    fn raw_to_up(&self, pool: &Pool, raw: &[i32], up: &mut Vec<i32>) {
        up.clear();
        if pool.can_shift_osds() {
            up.extend(raw.iter().copied().filter(|o| self.is_up(*o)));
        } else {
            up.extend(raw.iter().map(|o| if self.is_up(*o) { *o } else { ITEM_NONE }));
        }
    }

    /// Lets OSDs refuse to be primary in proportion to their affinity.
    fn apply_primary_affinity(&self, seed: u32, pool: &Pool, osds: &mut [i32], primary: &mut i32) {
        let real = |o: &i32| *o != ITEM_NONE;
        if self.primary_affinity.is_none()
            || osds.iter().filter(|o| real(o)).all(|o| self.primary_affinity(*o) == MAX_PRIMARY_AFFINITY)
        {
            return;
        }
        // PG and OSD go into the hash, so that each PG takes its own choice.
        let accepts = |o: i32| {
            let affinity = self.primary_affinity(o);
            affinity >= MAX_PRIMARY_AFFINITY || hash32_2(seed, o as u32) >> 16 < affinity
        };
        let willing = osds.iter().position(|o| real(o) && accepts(*o));
        // When all refuse, the first of them has to.
        let Some(at) = willing.or_else(|| osds.iter().position(real)) else { return };
        if let Some(osd) = osds.get(at) {
            *primary = *osd;
        }
        if pool.can_shift_osds() {
            if let Some(head) = osds.get_mut(..=at) {
                head.rotate_right(1);
            }
        }
    }
}
