//! Which steps the PG counts of pools can take towards their targets: how many places may change at once, and
//! whether a pair of PGs can be merged. Our monitors are told and take the steps, Ceph's are given a command
//! for each.
//!
//! Source: DaemonServer::adjust_pgs in src/mgr/DaemonServer.cc.

use std::collections::BTreeMap;

use maps::{OsdMap, Pool, pool_flags};
use messages::pg_state;
use monitor::state::PgSteps;
use serde_json::{Value, json};
use types::{PgId, PoolId};

use crate::mon_commands::MonRequest;
use crate::pg_map::PgMap;
use crate::sums::Sums;

/// Merges may lag behind places by so many PGs at least, so that unmerged ones do not pile up on few OSDs.
const LEAST_AHEAD: u32 = 8;

/// The steps of all pools that have some to take. At most `max_misplaced` of all copies of objects are to be out of place.
pub fn pg_steps(pgs: &PgMap, map: &OsdMap, max_misplaced: f64) -> BTreeMap<PoolId, PgSteps> {
    let on_the_way =
        |p: &Pool| p.pgp_num != p.pgp_num_goal() || p.pg_num_target < p.pg_num && p.pgp_num < p.pg_num;
    let pools = map.pools.iter().filter(|(_, p)| on_the_way(p) && !p.has_flag(pool_flags::CREATING));
    let pools: Vec<(PoolId, &Pool)> = pools.map(|(id, p)| (*id, p)).collect();
    if pools.is_empty() || !pgs.ready {
        return BTreeMap::new();
    }
    let sums = Sums::of(pgs);
    let room = room(&sums, max_misplaced);
    let steps = |(id, p): (PoolId, &Pool)| {
        let objects = sums.pools.get(&id).map_or(0, |s| s.stat.stats.sum.num_objects);
        let may_move = room.filter(|_| p.pgp_num != p.pgp_num_goal() && is_known(pgs, map, id, p));
        let pgp_num = may_move.map_or(0, |room| next_pgp_num(p, objects, room, max_misplaced));
        (id, PgSteps { of: p.last_change, pgp_num, merge: can_merge(pgs, id, p) })
    };
    pools.into_iter().map(steps).filter(|(_, s)| s.pgp_num != 0 || s.merge).collect()
}

/// The next step of each pool as a command for Ceph's monitors. At most `creating` PGs are to be on their way
/// into being.
pub fn commands(pgs: &PgMap, map: &OsdMap, max_misplaced: f64, creating: u32) -> Vec<MonRequest> {
    let aim = |p: &Pool| p.pg_num_target != p.pg_num || p.pgp_num != p.pgp_num_goal();
    let pools = map.pools.iter().filter(|(_, p)| aim(p) && !p.has_flag(pool_flags::CREATING));
    let pools: Vec<(PoolId, &Pool)> = pools.map(|(id, p)| (*id, p)).collect();
    if pools.is_empty() || !pgs.ready {
        return Vec::new();
    }
    let sums = Sums::of(pgs);
    let early =
        |(state, n): (&u64, &u32)| if state & pg_state::CREATING != 0 || *state == 0 { *n } else { 0 };
    let mut left = creating.saturating_sub(sums.by_state.iter().map(early).sum());
    let room = room(&sums, max_misplaced);
    let mut out = Vec::new();
    for (id, p) in pools {
        let Some(name) = map.pool_name(id) else { continue };
        let mut set = |var: &str, n: u32| {
            out.push(json!({ "prefix": "osd pool set", "pool": name, "var": var, "val": n.to_string() }));
        };
        if p.pg_num_target > p.pg_num && all_serve(pgs, id) {
            let add = left.min(p.pg_num_target - p.pg_num);
            left -= add;
            if add > 0 {
                set("pg_num_actual", p.pg_num + add);
            }
        } else if can_merge(pgs, id, p) && upmaps(map, id, p).next().is_none() {
            set("pg_num_actual", p.pg_num - 1);
            continue;
        }
        let objects = sums.pools.get(&id).map_or(0, |s| s.stat.stats.sum.num_objects);
        let moves = p.pgp_num != p.pgp_num_goal() && is_known(pgs, map, id, p);
        match room.filter(|_| moves).map_or(0, |room| next_pgp_num(p, objects, room, max_misplaced)) {
            next if next != 0 && next != p.pgp_num => set("pgp_num_actual", next),
            _ => {}
        }
        if p.pg_num_target < p.pg_num {
            out.extend(upmaps(map, id, p));
        }
    }
    let request = |json: Value| MonRequest { json: json.to_string(), ..MonRequest::default() };
    out.into_iter().map(request).collect()
}

/// Whether each PG of a pool has a primary that serves or waits for more OSDs.
fn all_serve(pgs: &PgMap, id: PoolId) -> bool {
    let mut states = pgs.pgs.iter().filter(|(pg, _)| pg.pool == id).map(|(_, s)| s.state).peekable();
    states.peek().is_some() && states.all(|state| state & (pg_state::ACTIVE | pg_state::PEERED) != 0)
}

/// What takes exceptions from CRUSH off the last PG and the one that takes it in: with them they do not
/// merge.
fn upmaps<'a>(map: &'a OsdMap, id: PoolId, p: &Pool) -> impl Iterator<Item = Value> + 'a {
    let source = PgId::new(id, p.pg_num.saturating_sub(1));
    [source, source.parent()].into_iter().flat_map(|pg| {
        let whole = map.pg_upmap.contains_key(&pg).then_some("osd rm-pg-upmap");
        let items = map.pg_upmap_items.contains_key(&pg).then_some("osd rm-pg-upmap-items");
        let command = move |prefix| json!({ "prefix": prefix, "pgid": pg.to_string() });
        whole.into_iter().chain(items).map(command)
    })
}

/// The part of all data that may be moved by one step; none while PGs have other worries.
fn room(sums: &Sums, max_misplaced: f64) -> Option<f64> {
    let sum = sums.total.stats.sum;
    if sums.num_active < sums.num_pg || sum.num_objects_degraded > 0 {
        return None;
    }
    let misplaced = sum.num_objects_misplaced.max(0) as f64 / sum.num_object_copies.max(1) as f64;
    // Half of what may be: objects are taken to be spread evenly, which they are not quite.
    (misplaced <= max_misplaced).then_some((max_misplaced - misplaced).min(max_misplaced / 2.0))
}

/// Whether the pool's PGs have been heard of since their places changed last.
fn is_known(pgs: &PgMap, map: &OsdMap, id: PoolId, p: &Pool) -> bool {
    let mut all = (0..p.pg_num).map(|seed| PgId::new(id, seed));
    all.all(|pg| pgs.pgs.get(&pg).is_some_and(|stat| stat.up == map.pg_to_up_acting(pg).up))
}

fn next_pgp_num(p: &Pool, objects: i64, room: f64, max_misplaced: f64) -> u32 {
    let (now, goal) = (p.pgp_num, p.pgp_num_goal());
    if goal > now && objects <= i64::from(p.pgp_num_target) {
        // As good as empty.
        return goal;
    }
    let most = ((f64::from(p.pg_num) * room) as u32).max(1);
    let next = goal.clamp(now.saturating_sub(most), now.saturating_add(most));
    if p.pgp_num_target != p.pg_num_target || p.pgp_num_target >= p.pg_num {
        return next;
    }
    let ahead = LEAST_AHEAD.max((f64::from(p.pg_num) * max_misplaced) as u32);
    next.max(p.pg_num.saturating_sub(ahead)).min(now)
}

/// Whether the last PG and the one that takes it in are clean, and on the same OSDs.
fn can_merge(pgs: &PgMap, id: PoolId, p: &Pool) -> bool {
    if p.pg_num_target >= p.pg_num || p.pg_num_pending != p.pg_num || p.pgp_num >= p.pg_num {
        return false;
    }
    let source = PgId::new(id, p.pg_num - 1);
    let pair = [source, source.parent()].map(|pg| pgs.pgs.get(&pg));
    let [Some(source), Some(target)] = pair else { return false };
    let whole = pg_state::ACTIVE | pg_state::CLEAN;
    source.state & target.state & whole == whole && source.acting == target.acting
}

#[cfg(test)]
mod tests {
    use maps::PoolType;

    use super::*;

    fn pool(pg_num: u32, pgp_num: u32, target: u32) -> Pool {
        let mut p = Pool::new(PoolType::Replicated, pg_num);
        (p.pgp_num, p.pg_num_target, p.pgp_num_target) = (pgp_num, target, target);
        p
    }

    #[test]
    fn places_change_by_as_many_as_there_is_room_for() {
        let next = |p: &Pool, objects, room| next_pgp_num(p, objects, room, 0.05);
        assert_eq!(next(&pool(16, 8, 16), 16, 0.025), 16, "an empty pool jumps");
        assert_eq!(next(&pool(16, 8, 16), 10_000, 0.025), 9, "always one");
        assert_eq!(next(&pool(1_024, 512, 1_024), 10_000, 0.025), 537);
        assert_eq!(next(&pool(1_024, 1_010, 1_024), 10_000, 0.025), 1_024);
        assert_eq!(next(&pool(1_024, 1_024, 512), 10_000, 0.025), 999);
        // Merges have to follow.
        assert_eq!(next(&pool(1_024, 980, 512), 10_000, 0.025), 973);
        assert_eq!(next(&pool(1_024, 973, 512), 10_000, 0.025), 973);
        assert_eq!(next(&pool(32, 24, 8), 10_000, 0.025), 24);
    }

    #[test]
    fn nothing_moves_while_there_is_no_room() {
        let sums = |misplaced, degraded, inactive: u32| {
            let mut s = Sums { num_pg: 8, num_active: 8 - inactive, ..Sums::default() };
            let sum = &mut s.total.stats.sum;
            (sum.num_object_copies, sum.num_objects_misplaced, sum.num_objects_degraded) =
                (1_000, misplaced, degraded);
            room(&s, 0.05)
        };
        assert_eq!(sums(0, 0, 0), Some(0.025));
        assert!(sums(40, 0, 0).is_some_and(|room| (room - 0.01).abs() < 1e-9));
        assert_eq!(sums(51, 0, 0), None);
        assert_eq!(sums(0, 1, 0), None);
        assert_eq!(sums(0, 0, 1), None);
    }
}
