//! Pools that get fewer PGs, under writes, kills and moves.

use std::time::Duration;

use pg::OsdConfig;
use types::{HObject, PgId, PoolId};

use crate::sim::Sim;

fn cluster(seed: u64, pg_num: u32, config: OsdConfig) -> (Sim, PoolId) {
    let mut s = Sim::with_config(3, seed, config);
    s.until("all up", |s| (0..3).all(|o| s.mon.map.is_up(o)));
    let pool = s.mon.create_pool(2, 1, pg_num);
    s.settle();
    (s, pool)
}

/// Unless the client is still busy.
fn write(s: &mut Sim, pool: PoolId, names: std::ops::Range<u32>, tag: u8) {
    if !s.client.is_idle() {
        return;
    }
    let map = s.mon.map.clone();
    for i in names {
        s.client.write(&map, pool, &format!("o{i}"), vec![tag, i as u8, tag]);
    }
}

/// Waits until all OSDs have the newest map and everything is whole.
fn settle(s: &mut Sim) {
    s.until("clean", |s| {
        let cores = s.nodes.iter().filter_map(|n| n.core.as_ref());
        cores.into_iter().all(|c| c.osdmap().epoch == s.mon.map.epoch) && s.all_are("active+clean")
    });
}

fn edit(s: &mut Sim, pool: PoolId, f: impl FnOnce(&mut maps::Pool)) {
    s.mon.change(|inc, map| f(inc.pool_mut(map, pool).unwrap()));
}

/// Shrinks the pool; `meanwhile` is called between any two steps.
fn shrink(s: &mut Sim, pool: PoolId, to: u32, mut meanwhile: impl FnMut(&mut Sim, u32)) {
    edit(s, pool, |p| p.pgp_num = to);
    settle(s);
    for step in 0..400 {
        let p = s.mon.map.pools[&pool].clone();
        if p.pg_num == to {
            return;
        }
        if p.pg_num_pending == p.pg_num && s.all_are("active+clean") {
            edit(s, pool, |p| p.pg_num_pending -= 1);
        }
        meanwhile(s, step);
        s.run(60);
        s.tick(Duration::from_millis(500));
    }
    panic!("never merged: {:?}", s.states());
}

fn check(s: &mut Sim, pool: PoolId, pg_num: u32) {
    settle(s);
    s.until("no requests", |s| s.client.is_idle());
    s.check_copies();
    assert_eq!(s.states().len() as u32, pg_num);
    // Whoever is no member holds nothing.
    for osd in 0..3 {
        let map = s.mon.map.clone();
        let foreign = |s: &mut Sim| {
            let store = s.nodes[osd as usize].core.as_mut().unwrap().store_mut();
            let all = store.list(-1, &HObject::min(), &HObject::max(), 10_000).unwrap();
            let member = |o: &HObject| {
                let pgid = map.raw_pg_to_pg(PgId::new(o.pool, o.hash)).unwrap();
                map.pg_to_up_acting(pgid).acting.contains(&osd)
            };
            all.iter().filter(|o| !member(o)).count()
        };
        s.until("nothing else is left", |s| foreign(s) == 0);
    }
    for i in 0..20 {
        let map = s.mon.map.clone();
        s.client.read(&map, pool, &format!("o{i}"));
    }
    s.until("read", |s| s.client.is_idle());
}

#[test]
fn pools_shrink_under_writes_and_grow_again() {
    for seed in 1..4 {
        let (mut s, pool) = cluster(seed, 8, OsdConfig::default());
        write(&mut s, pool, 0..60, 1);
        s.settle();
        shrink(&mut s, pool, 3, |s, step| write(s, pool, step % 6 * 10..step % 6 * 10 + 10, step as u8));
        check(&mut s, pool, 3);
        assert!(s.mon.merges.iter().filter(|ready| **ready).count() == 5, "{:?}", s.mon.merges);
        write(&mut s, pool, 0..60, 99);
        assert!(!s.client.is_idle());
        edit(&mut s, pool, |p| {
            p.set_pg_num(8);
            p.pgp_num = 8;
        });
        check(&mut s, pool, 8);
    }
}

/// Members die and come back at any step; whoever missed a merge is backfilled.
#[test]
fn merges_survive_kills() {
    for seed in 20..26 {
        let (mut s, pool) = cluster(seed, 6, OsdConfig::default());
        write(&mut s, pool, 0..60, 1);
        s.settle();
        let mut down: Option<i32> = None;
        shrink(&mut s, pool, 2, |s, step| {
            write(s, pool, step % 6 * 10..step % 6 * 10 + 10, step as u8);
            let steps = s.rng.below(40) as usize;
            s.run(steps);
            match down.take() {
                Some(osd) => s.start(osd),
                None if step % 5 == 1 => {
                    let osd = s.rng.below(3) as i32;
                    s.crash(osd);
                    s.notice_crash(osd);
                    down = Some(osd);
                }
                None => {}
            }
        });
        if let Some(osd) = down {
            s.start(osd);
        }
        check(&mut s, pool, 2);
    }
}

/// A member that was away for the whole merge, and has an older version of both.
#[test]
fn who_missed_a_merge_is_made_whole() {
    let (mut s, pool) = cluster(40, 2, OsdConfig::default());
    write(&mut s, pool, 0..40, 1);
    s.settle();
    s.crash(1);
    s.notice_crash(1);
    s.until("down", |s| !s.mon.map.is_up(1));
    s.mon.mark_out(1);
    write(&mut s, pool, 0..40, 2);
    s.until("written", |s| s.client.is_idle());
    settle_others(&mut s);
    shrink_others(&mut s, pool);
    write(&mut s, pool, 0..10, 3);
    s.until("written", |s| s.client.is_idle());
    s.start(1);
    s.mon.mark_in(1);
    s.until("up", |s| s.mon.map.is_up(1));
    check(&mut s, pool, 1);
}

/// A pair whose copies are on different OSDs since it was named: joined, only what both share would be whole, and the rest would
/// be deleted.
#[test]
fn a_pair_that_was_moved_apart_is_not_merged() {
    let (mut s, pool) = cluster(70, 2, OsdConfig::default());
    write(&mut s, pool, 0..40, 1);
    s.settle();
    edit(&mut s, pool, |p| p.pgp_num = 1);
    settle(&mut s);
    let up = s.mon.map.pg_to_up_acting(PgId::new(pool, 1)).up;
    let third = (0..3).find(|o| !up.contains(o)).unwrap();
    s.mon.change(|inc, _| {
        inc.new_pg_upmap_items.insert(PgId::new(pool, 1), vec![(up[1], third)]);
    });
    settle(&mut s);
    assert_eq!(s.mon.map.pg_to_up_acting(PgId::new(pool, 1)).acting, [up[0], third]);
    edit(&mut s, pool, |p| p.pg_num_pending -= 1);
    s.until("told", |s| !s.mon.merges.is_empty());
    assert_eq!(s.mon.merges, [false]);
    check(&mut s, pool, 2);
}

fn settle_others(s: &mut Sim) {
    s.until("clean", |s| s.all_are("active+clean"));
}

fn shrink_others(s: &mut Sim, pool: PoolId) {
    shrink(s, pool, 1, |_, _| {});
    settle(s);
}

/// A request that ran in a PG that is no more is known to the one that took it in, also when both had counted to the same version.
#[test]
fn a_resent_request_is_known_after_a_merge() {
    for seed in 60..64 {
        let (mut s, pool) = cluster(seed, 4, OsdConfig::default());
        let map = s.mon.map.clone();
        let mut sent = Vec::new();
        for i in 0..24 {
            let tid = s.client.create_exclusive(&map, pool, &format!("once{i}"));
            s.until("sent", |s| s.client.was_sent(tid));
            sent.push((tid, s.client.message_of(tid)));
            s.until("acked", |s| s.client.is_idle());
        }
        shrink(&mut s, pool, 1, |_, _| {});
        check(&mut s, pool, 1);
        let map = s.mon.map.clone();
        let primary = map.pg_to_up_acting(PgId::new(pool, 0)).acting_primary;
        for (tid, msg) in sent {
            let before = s.client.replies.len();
            let mut msg = msg.clone();
            msg.epoch = map.epoch;
            msg.pgid.pgid = PgId::new(pool, 0);
            let again = s.client.resend(tid, &msg);
            s.send(crate::sim::CLIENT, primary, again);
            s.until("answered", |s| s.client.replies.len() > before);
            assert_eq!(s.client.replies.last().unwrap().1.result, 0, "{tid} ran again");
        }
    }
}
