//! From an object to the OSD that serves it in a map, and whether that changed since the operation was sent.

use std::collections::BTreeMap;
use std::sync::Arc;

use maps::flags::map_flags;
use maps::{NO_OSD, OsdMap, PgMapper, PgMapping, Pool, pool_flags};
use messages::osd::flags;
use types::{Epoch, HObject, PgId, SpgId};

/// Where a PG is served, with everything whose change begins a new interval for clients.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Placement {
    pub(crate) mapping: PgMapping,
    pub(crate) spg: SpgId,
    size: u8,
    min_size: u8,
    pg_num: u32,
    pg_num_pending: u32,
    flags: u32,
}

/// Flags of the map that belong to an interval. Source: PastIntervals::is_new_interval.
const INTERVAL_FLAGS: u32 = map_flags::SORTBITWISE | map_flags::RECOVERY_DELETES;

/// Placements of the PGs that were asked for; one that a new map does not change stays the same allocation.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Placements {
    by_pg: BTreeMap<PgId, (Epoch, Arc<Placement>)>,
}

impl Placements {
    pub(crate) fn of(&mut self, map: &OsdMap, pool: &Pool, pg: PgId) -> Arc<Placement> {
        let old = self.by_pg.get_mut(&pg);
        if let Some((epoch, placement)) = &old {
            if *epoch == map.epoch {
                return Arc::clone(placement);
            }
        }
        let fresh = place(map, pool, pg);
        match old {
            Some((epoch, placement)) => {
                *epoch = map.epoch;
                if **placement != fresh {
                    *placement = Arc::new(fresh);
                }
                Arc::clone(placement)
            }
            None => {
                let placement = Arc::new(fresh);
                self.by_pg.insert(pg, (map.epoch, Arc::clone(&placement)));
                placement
            }
        }
    }

    /// Forgets PGs that are gone.
    pub(crate) fn prune(&mut self, map: &OsdMap) {
        self.by_pg.retain(|pg, _| map.pg_exists(*pg));
    }
}

fn place(map: &OsdMap, pool: &Pool, pg: PgId) -> Placement {
    let mapping = PgMapper::new(map).map(pg).clone();
    let mut spg = SpgId::replicated(pg);
    if pool.is_erasure() {
        let at = mapping.acting.iter().position(|o| *o == mapping.acting_primary);
        spg.shard = at.and_then(|at| i8::try_from(at).ok()).unwrap_or(SpgId::NO_SHARD);
    }
    Placement {
        mapping,
        spg,
        size: pool.size,
        min_size: pool.min_size,
        pg_num: pool.pg_num,
        pg_num_pending: pool.pg_num_pending,
        flags: map.flags & INTERVAL_FLAGS,
    }
}

/// What a request was last aimed at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) placement: Option<Arc<Placement>>,
    /// [`NO_OSD`] when the PG has none.
    pub(crate) osd: i32,
    pub(crate) paused: bool,
    pub(crate) used_replica: bool,
    /// The pool was there in some map.
    pub(crate) pool_existed: bool,
    last_force_resend: Epoch,
    hashed: bool,
}

impl Default for Target {
    /// Aimed at nothing.
    fn default() -> Self {
        Self {
            placement: None,
            osd: NO_OSD,
            paused: false,
            used_replica: false,
            pool_existed: false,
            last_force_resend: Epoch(0),
            hashed: false,
        }
    }
}

/// What a map means for a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Change {
    None,
    /// It has to be sent (again).
    Resend,
    NoPool,
}

/// Whose changes make a request be sent again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Watching {
    /// The primary, and the PG itself: the primary keeps what it was sent over other changes.
    Primary,
    /// Every new interval.
    Interval,
}

impl Target {
    pub(crate) fn spg(&self) -> SpgId {
        self.placement.as_ref().map_or_else(SpgId::default, |p| p.spg)
    }

    /// Aims `object` by this map. `salt` chooses among copies that may be read.
    ///
    /// Source: Objecter::_calc_target.
    pub(crate) fn aim(
        &mut self,
        map: &OsdMap,
        placements: &mut Placements,
        object: &mut HObject,
        op_flags: u32,
        watching: Watching,
        salt: u64,
    ) -> Change {
        let Some(pool) = map.pool(object.pool) else {
            self.placement = None;
            self.osd = NO_OSD;
            return Change::NoPool;
        };
        self.pool_existed = true;
        if !self.hashed {
            self.hashed = true;
            if op_flags & flags::PGOP == 0 {
                object.hash = pool.hash_key(object.effective_key(), &object.nspace);
            }
        }
        let mut resend = self.is_forced(map, pool);
        let pause = should_pause(map, pool, op_flags);
        resend |= self.paused && !pause;
        self.paused = pause;

        let pg = pool.raw_pg_to_pg(PgId::new(object.pool, object.hash));
        let placement = placements.of(map, pool, pg);
        resend |= match &self.placement {
            None => true,
            Some(old) if Arc::ptr_eq(old, &placement) => false,
            Some(old) => match watching {
                Watching::Interval => true,
                Watching::Primary => {
                    let primary_moved = old.mapping.acting_primary != placement.mapping.acting_primary;
                    let replica_moved = self.used_replica && old.mapping.acting != placement.mapping.acting;
                    primary_moved || replica_moved || old.spg != placement.spg || was_split(old, &placement)
                }
            },
        };
        if !resend {
            return Change::None;
        }
        self.osd = placement.mapping.acting_primary;
        self.used_replica = false;
        let acting = &placement.mapping.acting;
        if op_flags & (flags::BALANCE_READS | flags::LOCALIZE_READS) != 0
            && op_flags & flags::WRITE == 0
            && pool.is_replicated()
            && acting.len() > 1
        {
            let at = (salt % acting.len() as u64) as usize;
            self.osd = acting.get(at).copied().unwrap_or(NO_OSD);
            self.used_replica = at > 0;
        }
        self.placement = Some(placement);
        Change::Resend
    }

    /// The monitor asked for operations to be sent again in this map.
    fn is_forced(&mut self, map: &OsdMap, pool: &Pool) -> bool {
        if pool.last_force_op_resend != map.epoch || self.last_force_resend >= pool.last_force_op_resend {
            return false;
        }
        self.last_force_resend = pool.last_force_op_resend;
        true
    }
}

/// Whether the PG gave objects away or was merged between the two maps. Source: pg_t::is_split, is_merge_target.
fn was_split(old: &Placement, new: &Placement) -> bool {
    old.pg_num != new.pg_num && {
        let (fewer, more) = (old.pg_num.min(new.pg_num), old.pg_num.max(new.pg_num));
        let mask = maps::pg_mask(fewer);
        let seed = old.spg.pgid.seed;
        seed >= fewer || (fewer..more).any(|child| maps::stable_mod(child, fewer, mask) == seed)
    }
}

/// Whether operations with these flags have to wait. Source: Objecter::target_should_be_paused.
pub(crate) fn should_pause(map: &OsdMap, pool: &Pool, op_flags: u32) -> bool {
    let respects_full = op_flags & (flags::FULL_TRY | flags::FULL_FORCE) == 0;
    let full = map.test_flag(map_flags::FULL) || pool.has_flag(pool_flags::FULL);
    let pause_reads = map.test_flag(map_flags::PAUSERD);
    let pause_writes = map.test_flag(map_flags::PAUSEWR) || (full && respects_full);
    (op_flags & flags::READ != 0 && pause_reads) || (op_flags & flags::WRITE != 0 && pause_writes)
}
