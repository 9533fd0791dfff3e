//! Copies that are deleted while their PGs come back, or change their shape.

use std::time::Duration;

use pg::OsdConfig;
use store::{ObjectKey, Options, Space, Store, Txn};
use types::{HObject, PoolId};

use crate::sim::Sim;

/// Three OSDs that delete slowly, two copies, so many objects.
pub fn cluster(seed: u64, pg_num: u32, objects: u32) -> (Sim, PoolId) {
    let config = OsdConfig { delete_sleep: Duration::from_secs(3), ..OsdConfig::default() };
    let mut s = Sim::with_config(3, seed, config);
    s.until("all up", |s| (0..3).all(|o| s.mon.map.is_up(o)));
    let pool = s.mon.create_pool(2, 1, pg_num);
    s.settle();
    write(&mut s, pool, objects, 1);
    (s, pool)
}

fn write(s: &mut Sim, pool: PoolId, objects: u32, tag: u8) {
    let map = s.mon.map.clone();
    for i in 0..objects {
        s.client.write(&map, pool, &format!("o{i}"), vec![tag, i as u8, (i >> 8) as u8]);
        if i % 50 == 49 {
            s.until("written", |s| s.client.is_idle());
        }
    }
    s.settle();
}

fn stored(s: &mut Sim, osd: i32) -> Vec<HObject> {
    let store = s.nodes[osd as usize].core.as_mut().unwrap().store_mut();
    store.list(-1, &HObject::min(), &HObject::max(), 100_000).unwrap()
}

/// What the OSD holds of the pool without being a member.
fn foreign(s: &mut Sim, osd: i32) -> usize {
    let map = s.mon.map.clone();
    let all = stored(s, osd);
    let member = |o: &HObject| {
        let pgid = map.raw_pg_to_pg(types::PgId::new(o.pool, o.hash)).unwrap();
        map.pg_to_up_acting(pgid).acting.contains(&osd)
    };
    all.iter().filter(|o| !member(o)).count()
}

fn set_pg_num(s: &mut Sim, pool: PoolId, pg_num: u32) {
    s.mon.change(|inc, map| {
        let p = inc.pool_mut(map, pool).unwrap();
        p.set_pg_num(pg_num);
        p.pgp_num = pg_num;
    });
}

/// Waits until all OSDs have the newest map.
fn seen(s: &mut Sim) {
    s.until("the map is there", |s| {
        let cores = s.nodes.iter().filter_map(|n| n.core.as_ref());
        cores.into_iter().all(|c| c.osdmap().epoch == s.mon.map.epoch)
    });
}

/// Moves everything away from an OSD; returns when it has begun to delete, and is far from done.
pub fn move_away(s: &mut Sim, osd: i32) {
    let before = stored(s, osd).len();
    s.mon.mark_out(osd);
    s.until("deleting", |s| s.all_are("active+clean") && stored(s, osd).len() < before);
    assert!(stored(s, osd).len() > 200, "{} of {before}", stored(s, osd).len());
}

/// No deletion is hurried because its PG is wanted here again: the new copy takes over what is left, and makes it whole.
#[test]
fn a_copy_comes_back_where_it_is_being_deleted() {
    for seed in 1..3 {
        let (mut s, pool) = cluster(seed, 1, 700);
        let osd = s.mon.map.pg_to_up_acting(types::PgId::new(pool, 0)).acting[1];
        move_away(&mut s, osd);
        let left = stored(&mut s, osd).len();
        // Some of what is left there becomes old.
        write(&mut s, pool, 300, 2);
        s.mon.mark_in(osd);
        seen(&mut s);
        assert!(stored(&mut s, osd).len() + 600 > left, "much was deleted at once");
        if seed == 2 {
            s.run(30);
            s.restart(osd);
        }
        s.settle();
        s.check_copies();
        for other in 0..3 {
            s.until("nothing else is left", |s| foreign(s, other) == 0);
        }
        s.settle();
        s.check_copies();
    }
}

/// The mark of a deletion says what it is about: children that a split makes elsewhere leave nothing here, also after a
/// restart, and those that come here lose nothing.
#[test]
fn a_pg_splits_while_a_copy_of_it_is_deleted() {
    for seed in 11..13 {
        let (mut s, pool) = cluster(seed, 1, 700);
        let osd = s.mon.map.pg_to_up_acting(types::PgId::new(pool, 0)).acting[1];
        move_away(&mut s, osd);
        set_pg_num(&mut s, pool, 8);
        s.run(10);
        s.restart(osd);
        seen(&mut s);
        if seed % 2 == 0 {
            s.run(50);
            // Some children come here while the rest is still deleted.
            s.mon.mark_in(osd);
            s.run(50);
            s.restart(osd);
        }
        s.settle();
        s.until("nothing foreign is left", |s| foreign(s, osd) == 0);
        s.settle();
        s.check_copies();
    }
}

/// The mark of older releases names no objects: all that the copy may have held goes, and nothing of other copies.
#[test]
fn an_old_mark_spares_what_lives_here() {
    for seed in 21..24 {
        let (mut s, pool) = cluster(seed, 8, 100);
        let map = s.mon.map.clone();
        let of = |seed: u32| map.pg_to_up_acting(types::PgId::new(pool, seed)).acting;
        let id = types::SpgId::replicated(types::PgId::new(pool, 0));
        let osd = of(0)[0];
        let elsewhere = (1..8).find(|seed| !of(*seed).contains(&osd)).expect("a PG without a copy there");
        s.kill(osd);
        let device = s.nodes[osd as usize].device.clone();
        let mut store = Store::open(device.clone(), Options::default()).unwrap();
        let garbage = HObject { pool, hash: elsewhere, name: "garbage".into(), ..HObject::min() };
        let mut txn = Txn::new();
        txn.set(Space::Pg(id), &b"r"[..], &b""[..]).touch(&ObjectKey::replicated(garbage.clone()));
        store.submit(txn).unwrap();
        let done = store.take_commit().unwrap().execute(&*device);
        store.committed(done).unwrap();
        drop(store);
        let mut before = Store::open(device, Options::default()).unwrap();
        let before = before.list(-1, &HObject::min(), &HObject::max(), 1_000).unwrap();
        let kept = |o: &&HObject| {
            let pgid = map.raw_pg_to_pg(types::PgId::new(o.pool, o.hash)).unwrap();
            pgid.seed != 0 && **o != garbage
        };
        let kept: Vec<HObject> = before.iter().filter(kept).cloned().collect();
        assert!(kept.len() > 20 && before.len() > kept.len() + 3, "{} of {}", kept.len(), before.len());
        s.mon.mark_out(osd);
        // The deletion is done before the map moves anything.
        s.cut = vec![(osd, crate::sim::MON)];
        s.start(osd);
        s.run(200);
        assert_eq!(stored(&mut s, osd), kept);
        s.cut.clear();
        s.mon.mark_in(osd);
        s.until("up", |s| s.mon.map.is_up(osd));
        seen(&mut s);
        s.settle();
        s.check_copies();
        s.until("nothing foreign is left", |s| foreign(s, osd) == 0);
        s.settle();
        s.check_copies();
    }
}
