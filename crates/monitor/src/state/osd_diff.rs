//! The increment between two OSD maps: services edit a working copy, and this finds what they changed.
//!
//! Invariant: for a working copy made by the edits of `service::osd`, applying `diff(old, new)` to `old` gives `new` but
//! for what an increment itself implies (epochs and stamps of OSDs that go up or down, pools' last change).

use std::collections::BTreeMap;

use codec::Encode;
use maps::flags::osd_state;
use maps::{Incremental, Osd, OsdMap, Release};
use types::Utime;

/// What leads from `old` to `new`, as the next epoch after `old`; `full_crc` is left to the caller.
pub fn diff(old: &OsdMap, new: &OsdMap, modified: Utime) -> Incremental {
    let mut inc = Incremental::new(old.fsid, old.epoch.next(), modified);
    diff_scalars(old, new, &mut inc);
    diff_pools(old, new, &mut inc);
    if old.osds.len() != new.osds.len() {
        inc.new_max_osd = new.max_osd();
    }
    let gone = Osd::default();
    for id in 0..new.max_osd() {
        let before = old.osd(id).unwrap_or(&gone);
        if let Some(after) = new.osd(id) {
            diff_osd(id, before, after, (old.weight(id), new.weight(id)), &mut inc);
        }
        if old.primary_affinity(id) != new.primary_affinity(id) {
            inc.new_primary_affinity.insert(id, new.primary_affinity(id));
        }
    }
    diff_placement(old, new, &mut inc);
    if old.crush != new.crush {
        // Two maps may differ in ways that have no wire form.
        inc.crush = new.crush.to_bytes();
        if inc.crush == old.crush.to_bytes() {
            inc.crush.clear();
        }
    }
    inc
}

fn diff_scalars(old: &OsdMap, new: &OsdMap, inc: &mut Incremental) {
    if old.flags != new.flags {
        // Bit 31 is unused, so the number stays positive.
        inc.new_flags = new.flags as i32;
    }
    if old.pool_max != new.pool_max {
        inc.new_pool_max = new.pool_max.into();
    }
    for (a, b, slot) in [
        (old.nearfull_ratio, new.nearfull_ratio, &mut inc.new_nearfull_ratio),
        (old.full_ratio, new.full_ratio, &mut inc.new_full_ratio),
        (old.backfillfull_ratio, new.backfillfull_ratio, &mut inc.new_backfillfull_ratio),
    ] {
        if a.to_bits() != b.to_bits() {
            *slot = b;
        }
    }
    let release = |a: Release, b: Release| if a == b { Release::UNSET } else { b };
    inc.new_require_min_compat_client = release(old.require_min_compat_client, new.require_min_compat_client);
    inc.new_require_osd_release = release(old.require_osd_release, new.require_osd_release);
    if old.last_up_change != new.last_up_change {
        inc.new_last_up_change = new.last_up_change;
    }
    if old.last_in_change != new.last_in_change {
        inc.new_last_in_change = new.last_in_change;
    }
    inc.new_blocklist = added(&old.blocklist, &new.blocklist);
    inc.old_blocklist = removed(&old.blocklist, &new.blocklist).collect();
    inc.new_range_blocklist = added(&old.range_blocklist, &new.range_blocklist);
    inc.old_range_blocklist = removed(&old.range_blocklist, &new.range_blocklist).collect();
    inc.new_crush_node_flags = with_removed(&old.crush_node_flags, &new.crush_node_flags, 0);
    inc.new_device_class_flags = with_removed(&old.device_class_flags, &new.device_class_flags, 0);
    inc.new_erasure_code_profiles = added(&old.erasure_code_profiles, &new.erasure_code_profiles);
    inc.old_erasure_code_profiles = removed(&old.erasure_code_profiles, &new.erasure_code_profiles).collect();
    if old.stretch != new.stretch {
        inc.stretch = Some(new.stretch);
    }
}

fn diff_pools(old: &OsdMap, new: &OsdMap, inc: &mut Incremental) {
    inc.new_pools = added(&old.pools, &new.pools);
    inc.new_pool_names = added(&old.pool_names, &new.pool_names);
    inc.old_pools = removed(&old.pools, &new.pools).collect();
    // The working copy starts with both empty: what is there was added in this step.
    inc.new_removed_snaps = new.new_removed_snaps.clone();
    inc.new_purged_snaps = new.new_purged_snaps.clone();
}

fn diff_osd(id: i32, old: &Osd, new: &Osd, weights: (u32, u32), inc: &mut Incremental) {
    let mut state = old.state;
    if weights.0 != weights.1 {
        inc.new_weight.insert(id, weights.1);
        if weights.1 != 0 {
            // Weights are applied before states.
            state = (state | osd_state::EXISTS) & !(osd_state::AUTOOUT | osd_state::NEW);
        }
    }
    let comes_up = new.is_up() && (!old.is_up() || old.client_addrs != new.client_addrs);
    if comes_up {
        inc.new_up_client.insert(id, new.client_addrs.clone());
        inc.new_up_cluster.insert(id, new.cluster_addrs.clone());
        inc.new_hb_back_up.insert(id, new.hb_back_addrs.clone());
        inc.new_hb_front_up.insert(id, new.hb_front_addrs.clone());
    }
    let implied = if comes_up { osd_state::EXISTS | osd_state::UP | osd_state::STOP } else { 0 };
    let flip = (state ^ new.state) & !implied;
    if flip != 0 {
        inc.new_state.insert(id, flip);
    }
    if old.exists() && !new.exists() {
        // Flipping EXISTS clears everything else.
        return;
    }
    if old.uuid != new.uuid {
        inc.new_uuid.insert(id, new.uuid);
    }
    if old.info.up_thru != new.info.up_thru {
        inc.new_up_thru.insert(id, new.info.up_thru);
    }
    if old.info.lost_at != new.info.lost_at {
        inc.new_lost.insert(id, new.info.lost_at);
    }
    let clean = (new.info.last_clean_begin, new.info.last_clean_end);
    if (old.info.last_clean_begin, old.info.last_clean_end) != clean {
        inc.new_last_clean_interval.insert(id, clean);
    }
    if old.xinfo != new.xinfo {
        inc.new_xinfo.insert(id, new.xinfo);
    }
}

fn diff_placement(old: &OsdMap, new: &OsdMap, inc: &mut Incremental) {
    inc.new_pg_temp = with_removed(&old.pg_temp, &new.pg_temp, Vec::new());
    inc.new_primary_temp = with_removed(&old.primary_temp, &new.primary_temp, -1);
    inc.new_pg_upmap = added(&old.pg_upmap, &new.pg_upmap);
    inc.old_pg_upmap = removed(&old.pg_upmap, &new.pg_upmap).collect();
    inc.new_pg_upmap_items = added(&old.pg_upmap_items, &new.pg_upmap_items);
    inc.old_pg_upmap_items = removed(&old.pg_upmap_items, &new.pg_upmap_items).collect();
}

/// Entries that are new or have another value.
fn added<K: Ord + Clone, V: PartialEq + Clone>(old: &BTreeMap<K, V>, new: &BTreeMap<K, V>) -> BTreeMap<K, V> {
    let changed = new.iter().filter(|(k, v)| old.get(k) != Some(v));
    changed.map(|(k, v)| (k.clone(), v.clone())).collect()
}

/// Keys that are gone.
fn removed<'a, K: Ord + Clone, V>(
    old: &'a BTreeMap<K, V>,
    new: &'a BTreeMap<K, V>,
) -> impl Iterator<Item = K> + 'a {
    old.keys().filter(|k| !new.contains_key(k)).cloned()
}

/// Changed entries, and removed ones with the value that stands for removal.
fn with_removed<K: Ord + Clone, V: PartialEq + Clone>(
    old: &BTreeMap<K, V>,
    new: &BTreeMap<K, V>,
    none: V,
) -> BTreeMap<K, V> {
    let mut out = added(old, new);
    out.extend(removed(old, new).map(|k| (k, none.clone())));
    out
}

#[cfg(test)]
mod tests {
    use maps::flags::{WEIGHT_IN, map_flags};
    use maps::{Pool, PoolType};
    use types::{Entropy, Epoch, Fsid, PgId, PoolId, SeededEntropy};

    use super::*;
    use crate::edit;

    /// One random edit of the kind that services make.
    fn random_edit(map: &mut OsdMap, seed: &mut SeededEntropy) {
        let mut pick = |n: u64| seed.next_u64() % n;
        let id = pick(8) as i32;
        let exists = map.exists(id);
        match pick(12) {
            0 => map.flags ^= map_flags::NOOUT,
            1 if !exists => {
                if id >= map.max_osd() {
                    map.set_max_osd(id as usize + 1);
                }
                edit::set_weight(map, id, WEIGHT_IN);
                if let Some(o) = edit::osd_mut(map, id) {
                    o.state |= osd_state::EXISTS | osd_state::NEW;
                    o.uuid = Fsid([id as u8 + 1; 16]);
                }
            }
            2 if exists && !map.is_up(id) => {
                let addr = types::EntityAddr::parse(
                    &format!("v2:10.0.0.{id}:1/{}", pick(9)),
                    types::AddrKind::Msgr2,
                );
                let o = edit::osd_mut(map, id).expect("exists");
                o.state |= osd_state::UP;
                o.client_addrs = types::AddrVec::single(addr.expect("an address"));
            }
            3 if exists => {
                edit::mark_down(map, id);
            }
            4 if exists => edit::set_weight(map, id, pick(3) as u32 * 0x8000),
            5 if exists => edit::mark_out_automatically(map, id),
            6 if exists && !map.is_up(id) => edit::remove_osd(map, id),
            7 => {
                map.pool_max += 1;
                let pool = PoolId(map.pool_max.into());
                map.pools.insert(pool, Pool::new(PoolType::Replicated, 4));
                map.pool_names.insert(pool, format!("p{pool}"));
            }
            8 => {
                if let Some(pool) = map.pools.keys().next().copied() {
                    map.pools.remove(&pool);
                    map.pool_names.remove(&pool);
                }
            }
            9 => {
                map.pg_upmap_items.insert(PgId::new(PoolId(1), pick(4) as u32), vec![(0, 1)]);
            }
            10 => map.full_ratio = 0.5 + pick(9) as f32 / 20.0,
            _ => {
                map.crush_node_flags.insert(-1, pick(2) as u32);
                map.crush_node_flags.retain(|_, flags| *flags != 0);
            }
        }
    }

    #[test]
    fn increments_lead_from_the_old_map_to_the_edited_one() {
        let mut seed = SeededEntropy(7);
        let mut map = OsdMap::new_cluster(Fsid([1; 16]), Utime::new(1, 0), crush::CrushMap::new_default());
        for round in 0..2_000u32 {
            let mut edited = map.clone();
            for _ in 0..=seed.next_u64() % 4 {
                random_edit(&mut edited, &mut seed);
            }
            let inc = diff(&map, &edited, Utime::new(2, round));
            map.apply(&inc).expect("fits");
            assert_eq!(map.epoch, Epoch(round + 2));
            let facts = |m: &OsdMap| {
                let osds: Vec<_> = m.osds.iter().map(|o| (o.state, o.uuid, o.xinfo.old_weight)).collect();
                let up: Vec<_> =
                    m.osds.iter().filter(|o| o.is_up()).map(|o| o.client_addrs.clone()).collect();
                let rest =
                    (m.flags, m.pool_names.clone(), m.pg_upmap_items.clone(), m.crush_node_flags.clone());
                (osds, up, m.weights.clone(), m.full_ratio.to_bits(), rest)
            };
            assert_eq!(facts(&map), facts(&edited), "round {round}: {inc:?}");
        }
    }

    #[test]
    fn nothing_edited_is_an_empty_increment() {
        let map = OsdMap::new_cluster(Fsid([1; 16]), Utime::new(1, 0), crush::CrushMap::new_default());
        assert_eq!(diff(&map, &map, Utime::ZERO), Incremental::new(map.fsid, Epoch(2), Utime::ZERO));
    }
}
