//! Edits of a working OSD map that several services and commands make.

use std::sync::Arc;

use codec::{Decode, Encode};
use maps::flags::{WEIGHT_IN, WEIGHT_OUT, osd_state};
use maps::{OsdMap, pool_flags};
use types::{PgId, Utime};

/// Marks an OSD down; false when it was not up.
pub(crate) fn mark_down(map: &mut OsdMap, id: i32) -> bool {
    match osd_mut(map, id).filter(|o| o.is_up()) {
        Some(o) => {
            o.state &= !osd_state::UP;
            true
        }
        None => false,
    }
}

/// Sets a weight; the same side effects as applying it has.
pub(crate) fn set_weight(map: &mut OsdMap, id: i32, weight: u32) {
    if let Some(slot) = usize::try_from(id).ok().and_then(|i| map.weights.get_mut(i)) {
        *slot = weight;
    }
    if weight != WEIGHT_OUT {
        if let Some(o) = osd_mut(map, id) {
            o.state |= osd_state::EXISTS;
            o.state &= !(osd_state::AUTOOUT | osd_state::NEW);
            o.xinfo.old_weight = 0;
        }
    }
}

/// Marks an OSD in with the weight it had before it was marked out automatically, or fully.
pub(crate) fn mark_in(map: &mut OsdMap, id: i32) {
    let old = map.osd(id).map_or(0, |o| o.xinfo.old_weight);
    set_weight(map, id, if old > 0 { old } else { WEIGHT_IN });
}

/// Marks an OSD out because it was down for long.
pub(crate) fn mark_out_automatically(map: &mut OsdMap, id: i32) {
    let weight = map.weight(id);
    set_weight(map, id, WEIGHT_OUT);
    if let Some(o) = osd_mut(map, id) {
        o.state |= osd_state::AUTOOUT;
        o.xinfo.old_weight = weight;
    }
}

/// Removes an OSD from the tables of OSDs. CRUSH is the caller's business.
pub(crate) fn remove_osd(map: &mut OsdMap, id: i32) {
    set_weight(map, id, WEIGHT_OUT);
    if let Some(o) = osd_mut(map, id) {
        *o = maps::Osd::default();
    }
    if let Some(affinity) = &mut map.primary_affinity {
        if let Some(slot) = usize::try_from(id).ok().and_then(|i| affinity.get_mut(i)) {
            *slot = maps::flags::MAX_PRIMARY_AFFINITY;
        }
    }
}

pub(crate) fn osd_mut(map: &mut OsdMap, id: i32) -> Option<&mut maps::Osd> {
    map.osds.get_mut(usize::try_from(id).ok()?)
}

/// Whether marking one more OSD down leaves enough of them. Source: OSDMonitor::can_mark_down.
pub(crate) fn can_mark_down(map: &OsdMap, id: i32, min_ratio: f64) -> bool {
    let n = map.counts();
    !map.is_nodown(id) && n.total > 0 && n.up as f64 / n.total as f64 >= min_ratio
}

/// Source: OSDMonitor::can_mark_out.
pub(crate) fn can_mark_out(map: &OsdMap, id: i32, min_ratio: f64) -> bool {
    let n = map.counts();
    !map.is_noout(id) && n.total > 0 && n.r#in as f64 / n.total as f64 >= min_ratio
}

/// What follows from a batch's edits: times of the last changes, and temporary sets that say nothing any more.
/// Source: OSDMonitor::encode_pending, OSDMap::clean_temps.
pub(crate) fn settle(old: &OsdMap, new: &mut OsdMap, now: Utime) {
    mark_full_pools(new);
    let epoch = old.epoch.next();
    for (id, pool) in &mut new.pools {
        if old.pools.get(id) != Some(pool) {
            pool.last_change = epoch;
        }
    }
    let all = 0..old.max_osd().max(new.max_osd());
    let ups_changed = all.clone().any(|id| {
        let addrs = |m: &OsdMap| m.osd(id).map(|o| o.client_addrs.clone());
        old.is_up(id) != new.is_up(id) || new.is_up(id) && addrs(old) != addrs(new)
    });
    if ups_changed {
        new.last_up_change = now;
    }
    if all.clone().any(|id| old.is_in(id) != new.is_in(id)) {
        new.last_in_change = now;
    }
    if ups_changed
        || old.pg_temp != new.pg_temp
        || old.pools.len() != new.pools.len()
        || old.crush != new.crush
    {
        clean_temps(new);
    }
    let upmaps = |m: &OsdMap| (m.pg_upmap.clone(), m.pg_upmap_items.clone());
    if !(new.pg_upmap.is_empty() && new.pg_upmap_items.is_empty())
        && (old.crush != new.crush
            || old.weights != new.weights
            || old.pools != new.pools
            || upmaps(old) != upmaps(new))
    {
        new.clean_upmaps();
    }
}

/// How full a pool is follows from the fullest OSD that its rule uses; a pool over its quota is full whatever the OSDs say.
/// Source: OSDMonitor::encode_pending, OSDMap::get_full_pools.
fn mark_full_pools(map: &mut OsdMap) {
    const FLAGS: u64 = pool_flags::FULL | pool_flags::BACKFILLFULL | pool_flags::NEARFULL;
    const STATES: u32 = osd_state::FULL | osd_state::BACKFILLFULL | osd_state::NEARFULL;
    let level = |state: u32| match state {
        s if s & osd_state::FULL != 0 => pool_flags::FULL,
        s if s & osd_state::BACKFILLFULL != 0 => pool_flags::BACKFILLFULL,
        _ => pool_flags::NEARFULL,
    };
    let alive = |id: i32| map.is_up(id) && map.is_in(id);
    let full: Vec<(i32, u64)> = map
        .existing_osds()
        .filter(|(id, o)| o.state & STATES != 0 && alive(id.0))
        .map(|(id, o)| (id.0, level(o.state)))
        .collect();
    let crush = Arc::clone(&map.crush);
    for pool in map.pools.values_mut() {
        // Finding a rule's devices costs a walk; as a rule no OSD is full.
        let devices = match full.is_empty() {
            true => Default::default(),
            false => crush.rule_weights(pool.crush_rule.into()),
        };
        let levels = full.iter().filter(|(id, _)| devices.contains_key(id)).map(|(_, level)| *level);
        let order = [pool_flags::NEARFULL, pool_flags::BACKFILLFULL, pool_flags::FULL];
        let worst = levels.max_by_key(|level| order.iter().position(|f| f == level)).unwrap_or(0);
        let flag = if pool.has_flag(pool_flags::FULL_QUOTA) { pool_flags::FULL } else { worst };
        pool.flags = pool.flags & !FLAGS | flag;
    }
}

fn clean_temps(map: &mut OsdMap) {
    let useless = |pg: &PgId, osds: &Vec<i32>| {
        if !map.pg_exists(*pg) {
            return true;
        }
        let alive = osds.iter().any(|o| map.is_up(*o));
        !alive || (!map.primary_temp.contains_key(pg) && map.pg_to_raw_up(*pg).0 == *osds)
    };
    let drop: Vec<PgId> =
        map.pg_temp.iter().filter(|(pg, osds)| useless(pg, osds)).map(|(pg, _)| *pg).collect();
    for pg in drop {
        map.pg_temp.remove(&pg);
    }
    let dangling = |pg: &PgId, osd: &i32| !map.pg_exists(*pg) || map.is_down(*osd);
    let drop: Vec<PgId> =
        map.primary_temp.iter().filter(|(pg, osd)| dangling(pg, osd)).map(|(pg, _)| *pg).collect();
    for pg in drop {
        map.primary_temp.remove(&pg);
    }
}

/// Takes over an edited CRUSH map in the form that everybody will decode; false when it has none.
pub(crate) fn set_crush(map: &mut OsdMap, edited: &crush::CrushMap) -> bool {
    match crush::CrushMap::from_bytes(edited.to_bytes()) {
        Ok(crush) => {
            map.crush = Arc::new(crush);
            true
        }
        Err(_) => false,
    }
}
