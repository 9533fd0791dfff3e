//! What the builders make equals what a real monitor made of the same commands.

use crate::common;

use codec::{Decode, Encode};
use common::{chain, replay};
use crush::{CrushMap, RULE_REPLICATED, RuleMode};
use maps::flags::{WEIGHT_IN, WEIGHT_OUT, map_flags, osd_state};
use maps::{Incremental, OsdAddrs, OsdMap, Pool, PoolType};
use types::{AddrKind, AddrVec, EntityAddr, Epoch, Fsid, OsdId, PgId, PoolId, SnapId, Utime};

#[test]
fn a_new_cluster_starts_as_a_real_one() {
    let real = Incremental::from_bytes(chain(1).remove(0)).expect("a real increment");
    let real_map = OsdMap::from_bytes(real.fullmap.clone()).expect("a real map");
    let mut crush = CrushMap::new_default();
    // The recorded cluster spreads over OSDs, not hosts.
    crush
        .add_simple_rule("replicated_rule", "default", "osd", None, RuleMode::Firstn, RULE_REPLICATED, None)
        .expect("a free name");
    crush.finalize();
    let map = OsdMap::new_cluster(real.fsid, real_map.created, crush);
    assert_eq!(map, real_map);
    assert_eq!(map.to_bytes(), real.fullmap);
    let mut first = Incremental::first(&map);
    // The recorded monitor stamped the increment a little later than the map in it.
    first.modified = real.modified;
    assert_eq!(first.to_bytes(), real.to_bytes());
}

fn start() -> OsdMap {
    let mut map = OsdMap::before_first(Fsid::default(), Utime::ZERO);
    let new = OsdMap::new_cluster(Fsid([7; 16]), Utime::new(1_700_000_000, 0), CrushMap::new_default());
    map.apply(&Incremental::first(&new)).expect("the first map");
    map
}

fn step(map: &mut OsdMap, change: impl FnOnce(&OsdMap, &mut Incremental)) -> Incremental {
    let now = Utime::new(1_700_000_000 + map.epoch.0, 0);
    let mut inc = Incremental::after(map, now);
    change(map, &mut inc);
    let (next, bytes) = inc.finish(map, now).expect("our own increment");
    // A reader goes the same way over the wire.
    let mut reader = map.clone();
    let over_wire = Incremental::from_bytes(inc.to_bytes()).expect("our own bytes");
    assert_eq!(reader.apply_checked(&over_wire).expect("crc"), bytes);
    assert_eq!(reader, next);
    *map = next;
    inc
}

fn addrs(port: u16) -> OsdAddrs {
    let at = |port| {
        AddrVec::single(
            EntityAddr::parse(&format!("v2:127.0.0.1:{port}/1"), AddrKind::Msgr2).expect("parses"),
        )
    };
    OsdAddrs { client: at(port), cluster: at(port + 1), hb_back: at(port + 2), hb_front: at(port + 3) }
}

#[test]
fn the_life_of_an_osd() {
    let mut map = start();
    let osd = OsdId(0);
    let inc = step(&mut map, |map, inc| {
        assert_eq!(map.lowest_free_osd(inc), osd);
        inc.create_osd(map, osd, Fsid([1; 16]));
        assert_eq!(map.lowest_free_osd(inc), OsdId(1));
    });
    assert_eq!((inc.new_max_osd, inc.new_state.get(&0)), (1, Some(&9)), "as recorded from a real monitor");
    assert!(map.exists(0) && map.is_down(0) && map.is_out(0));
    step(&mut map, |map, inc| {
        inc.boot_osd(map, osd, addrs(6800), 0xff);
        inc.set_weight(osd, WEIGHT_IN);
    });
    assert!(map.is_up(0) && map.is_in(0));
    assert_eq!(map.osds[0].info.up_from, map.epoch);
    assert_eq!((map.last_up_change, map.last_in_change), (map.modified, map.modified));
    assert_eq!(map.up_osd_features(), 0xff);
    assert_eq!(map.osd_by_uuid(&Fsid([1; 16])), Some(osd));
    assert_eq!(map.osd_by_addr(&addrs(6800).hb_back.0[0]), Some(osd));
    step(&mut map, |map, inc| {
        inc.mark_down(map, osd);
        inc.mark_down(map, osd);
    });
    assert!(map.is_down(0));
    assert_eq!(map.osds[0].info.down_at, map.epoch);
    step(&mut map, |map, inc| inc.mark_out_automatically(map, osd));
    assert_eq!(map.osds[0].xinfo.old_weight, WEIGHT_IN);
    assert_eq!(map.weight(0), WEIGHT_OUT);
    assert_ne!(map.osds[0].state & osd_state::AUTOOUT, 0);
    step(&mut map, |map, inc| inc.destroy_osd(map, osd));
    assert!(map.is_destroyed(0));
    step(&mut map, |map, inc| inc.create_osd(map, osd, Fsid([2; 16])));
    assert!(!map.is_destroyed(0) && map.exists(0));
    step(&mut map, |map, inc| inc.remove_osd(map, osd));
    assert_eq!((map.exists(0), map.osds[0].uuid), (false, Fsid::default()));
}

#[test]
fn the_life_of_a_pool() {
    let mut map = start();
    let mut id = PoolId(0);
    step(&mut map, |map, inc| id = inc.create_pool(map, "a", Pool::new(PoolType::Replicated, 8)));
    assert_eq!((id, map.pool_max, map.pool_by_name("a")), (PoolId(1), 1, Some(id)));
    assert_eq!(map.pools[&id].last_change, map.epoch);
    step(&mut map, |map, inc| {
        let snap = inc.pool_mut(map, id).expect("exists").add_unmanaged_snap();
        assert_eq!(snap, SnapId(2));
        inc.rename_pool(id, "b");
        inc.set_pg_temp(PgId::new(id, 3), vec![0]);
    });
    assert_eq!((map.pool_by_name("a"), map.pool_by_name("b")), (None, Some(id)));
    step(&mut map, |map, inc| {
        inc.remove_snap(id, SnapId(2));
        inc.change_flags(map, map_flags::NOOUT | map_flags::PAUSERD, 0);
        inc.change_flags(map, 0, map_flags::PAUSERD);
    });
    assert!(map.in_removed_snaps_queue(id, SnapId(2)) && map.test_flag(map_flags::NOOUT));
    assert!(!map.test_flag(map_flags::PAUSERD));
    step(&mut map, |map, inc| inc.remove_pool(map, id));
    assert!(map.pools.is_empty() && map.pool_names.is_empty() && map.pg_temp.is_empty());
    step(&mut map, |map, inc| id = inc.create_pool(map, "a", Pool::new(PoolType::Erasure, 8)));
    assert_eq!(id, PoolId(2), "ids are not used twice");
}

#[test]
fn blocklists_and_increments_that_do_not_fit() {
    let mut map = start();
    let addr = EntityAddr::parse("any:10.0.0.1:0/7", AddrKind::Any).expect("parses");
    step(&mut map, |_, inc| inc.blocklist(addr, Utime::new(1_800_000_000, 0)));
    assert!(map.is_blocklisted(&addr));
    step(&mut map, |map, inc| inc.unblocklist(map, addr));
    assert!(!map.is_blocklisted(&addr));

    let before = map.clone();
    let refused = |change: &dyn Fn(&mut Incremental)| {
        let mut map = before.clone();
        let mut inc = Incremental::after(&map, Utime::ZERO);
        change(&mut inc);
        let error = map.apply(&inc).expect_err("refused");
        assert_eq!(map, before, "unchanged after: {error}");
        error.to_string()
    };
    assert!(refused(&|i| i.epoch = Epoch(99)).contains("epoch 99"));
    assert!(refused(&|i| i.fsid = Fsid([9; 16])).contains("cluster"));
    assert!(refused(&|i| i.set_weight(OsdId(5), 1)).contains("osd.5"));
    assert!(refused(&|i| i.set_weight(OsdId(-1), 1)).contains("osd.-1"));
    assert!(refused(&|i| i.new_max_osd = i32::MAX).contains("bound"));
    assert!(refused(&|i| i.crush = vec![1, 2, 3].into()).contains("inner map"));
    let purge = |i: &mut Incremental| {
        i.new_purged_snaps.insert(PoolId(1), [(1, 1)].into_iter().collect());
    };
    assert!(refused(&purge).contains("purges"));
    let no_heartbeat = |i: &mut Incremental| {
        i.new_max_osd = 1;
        i.new_up_client.insert(0, AddrVec::default());
    };
    assert!(refused(&no_heartbeat).contains("heartbeat"));
    let mut inc = Incremental::after(&before, Utime::ZERO);
    inc.full_crc = 1;
    assert!(before.clone().apply_checked(&inc).is_err(), "a wrong crc");
}

#[test]
fn state_changes_compose() {
    let map = replay(1, 50);
    let mut inc = Incremental::after(&map, Utime::ZERO);
    inc.change_state(&map, OsdId(0), osd_state::NOUP | osd_state::NOIN, osd_state::UP);
    inc.change_state(&map, OsdId(0), osd_state::UP, osd_state::NOIN);
    assert_eq!(inc.new_state.get(&0), Some(&osd_state::NOUP));
    inc.change_state(&map, OsdId(0), 0, osd_state::NOUP);
    assert!(inc.new_state.is_empty());
}
