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

fn edit(s: &mut Sim, pool: PoolId, f: impl FnOnce(&mut maps::Pool)) {
    s.mon.change(|inc, map| f(inc.pool_mut(map, pool).unwrap()));
}

/// Shrinks the pool; `meanwhile` is called between any two steps.
fn shrink(s: &mut Sim, pool: PoolId, to: u32, mut meanwhile: impl FnMut(&mut Sim, u32)) {
    edit(s, pool, |p| p.pgp_num = to);
    s.settle();
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
    s.settle();
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

/// It has one request at a time, and nothing else would bring it a map: a request that a merge drops must.
#[test]
fn who_waits_for_a_merged_pg_hears_of_it() {
    for seed in 10..14 {
        let (mut s, pool) = cluster(seed, 8, OsdConfig::default());
        write(&mut s, pool, 0..20, 1);
        s.settle();
        s.client.told = Some(s.mon.map.epoch);
        shrink(&mut s, pool, 3, |s, step| write(s, pool, step % 20..step % 20 + 1, step as u8));
        s.until("no requests", |s| s.client.is_idle());
        s.client.told = None;
        check(&mut s, pool, 3);
    }
}

/// However many there are: it asks nobody for those behind what it was given.
#[test]
fn a_client_that_is_far_behind_gets_all_maps() {
    let (mut s, pool) = cluster(18, 2, OsdConfig::default());
    s.client.told = Some(s.mon.map.epoch);
    let old = s.mon.map.clone();
    for _ in 0..130 {
        s.mon.change(|_, _| {});
    }
    s.until("all OSDs have the newest map", |s| {
        s.nodes.iter().filter_map(|n| n.core.as_ref()).all(|c| c.osdmap().epoch == s.mon.map.epoch)
    });
    s.client.write(&old, pool, "o1", vec![1]);
    s.until("answered", |s| s.client.is_idle());
    assert_eq!(s.client.told, Some(s.mon.map.epoch));
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
    s.kill(1);
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

/// A pair whose copies are on different OSDs since it was named: joined, only what both share would be whole,
/// and the rest would be deleted.
#[test]
fn a_pair_that_was_moved_apart_is_not_merged() {
    let (mut s, pool) = cluster(70, 2, OsdConfig::default());
    write(&mut s, pool, 0..40, 1);
    s.settle();
    edit(&mut s, pool, |p| p.pgp_num = 1);
    s.settle();
    let up = s.mon.map.pg_to_up_acting(PgId::new(pool, 1)).up;
    let third = (0..3).find(|o| !up.contains(o)).unwrap();
    s.mon.change(|inc, _| {
        inc.new_pg_upmap_items.insert(PgId::new(pool, 1), vec![(up[1], third)]);
    });
    s.settle();
    assert_eq!(s.mon.map.pg_to_up_acting(PgId::new(pool, 1)).acting, [up[0], third]);
    edit(&mut s, pool, |p| p.pg_num_pending -= 1);
    s.until("told", |s| !s.mon.merges.is_empty());
    assert_eq!(s.mon.merges, [false]);
    check(&mut s, pool, 2);
}

/// One of a pair that has much to recover: the merge is called off, and both serve.
#[test]
fn a_merge_that_has_to_wait_is_called_off() {
    for (seed, who) in [(80, 0), (81, 1)] {
        let (mut s, pool) = cluster(seed, 2, OsdConfig::default());
        edit(&mut s, pool, |p| p.pgp_num = 1);
        s.settle();
        write(&mut s, pool, 0..40, 1);
        s.settle();
        let members = s.mon.map.pg_to_up_acting(PgId::new(pool, 0)).acting;
        s.kill(members[who]);
        write(&mut s, pool, 0..40, 2);
        s.until("written", |s| s.client.is_idle());
        s.mon.change(|inc, _| inc.new_flags = maps::flags::map_flags::NORECOVER as i32);
        s.start(members[who]);
        s.until("held", |s| s.states().values().all(|t| t.contains("recovery_wait")));
        edit(&mut s, pool, |p| p.pg_num_pending -= 1);
        let begin = s.mono;
        s.until("named", |s| s.states().values().all(|t| t.contains("premerge")));
        let map = s.mon.map.clone();
        s.client.write(&map, pool, "new", vec![3; 30]);
        s.until("written", |s| s.client.is_idle());
        assert_eq!(s.mon.merges, [false]);
        let took = (s.mono - begin).as_secs();
        assert!((4..9).contains(&took), "{took} s");
        s.mon.change(|inc, _| inc.new_flags = 0);
        check(&mut s, pool, 2);
    }
}

fn settle_others(s: &mut Sim) {
    s.until("clean", |s| s.all_are("active+clean"));
}

fn shrink_others(s: &mut Sim, pool: PoolId) {
    shrink(s, pool, 1, |_, _| {});
    s.settle();
}

/// One PG has counted much further than the other: what the other remembers is as recent as before.
#[test]
fn a_merge_forgets_no_requests_of_the_pg_with_fewer_writes() {
    let small = OsdConfig {
        min_pg_log_entries: 3,
        max_pg_log_entries: 4,
        pg_log_trim_min: 1,
        pg_log_dups_tracked: 20,
        ..OsdConfig::default()
    };
    for quiet in 0..2 {
        let (mut s, pool) = cluster(80, 2, small.clone());
        let map = s.mon.map.clone();
        let in_pg = |s: &Sim, seed: u32, n: usize| -> Vec<String> {
            let names = (0..).map(|i| format!("n{i}"));
            names.filter(|name| s.client.object(&map, pool, name).hash & 1 == seed).take(n).collect()
        };
        let tid = s.client.create_exclusive(&map, pool, &in_pg(&s, quiet, 1)[0]);
        s.until("sent", |s| s.client.was_sent(tid));
        let mut msg = s.client.message_of(tid);
        for name in in_pg(&s, 1 - quiet, 40) {
            s.client.write(&map, pool, &name, vec![1]);
        }
        s.until("acked", |s| s.client.is_idle());
        shrink(&mut s, pool, 1, |_, _| {});
        s.settle();
        let map = s.mon.map.clone();
        for name in in_pg(&s, 1 - quiet, 8) {
            s.client.write(&map, pool, &name, vec![2]);
        }
        s.until("acked", |s| s.client.is_idle());
        (msg.epoch, msg.pgid.pgid) = (map.epoch, PgId::new(pool, 0));
        let again = s.client.resend(tid, &msg);
        let before = s.client.replies.len();
        s.send(crate::sim::CLIENT, map.pg_to_up_acting(PgId::new(pool, 0)).acting_primary, again);
        s.until("answered", |s| s.client.replies.len() > before);
        assert_eq!(s.client.replies.last().unwrap().1.result, 0, "it ran again; quiet: {quiet}");
    }
}

/// A request that ran in a PG that is no more is known to the one that took it in, also when both had counted
/// to the same version.
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
