//! Maps that everybody has forgotten: who had a PG in them is not known any more, and nobody goes on without asking those.

use codec::Encode;
use maps::OsdMap;
use messages::mon::MOsdMap;
use pg::{Input, OsdConfig};
use types::{Epoch, OsdId, PgId, PoolId};

use crate::mon::FSID;
use crate::scenarios::write_all;
use crate::sim::Sim;

/// A cluster whose OSDs keep few maps, and the members of its only PG.
fn cluster(osds: i32, seed: u64) -> (Sim, PoolId, Vec<i32>) {
    let config = OsdConfig { map_cache_size: 4, min_pg_log_entries: 200, ..OsdConfig::default() };
    let mut s = Sim::with_config(osds, seed, config);
    s.until("all up", |s| (0..osds).all(|o| s.mon.map.is_up(o)));
    let pool = s.mon.create_pool(2, 1, 1);
    s.settle();
    write_all(&mut s, pool, 0..8, 1);
    s.settle();
    let members = members(&s, pool);
    (s, pool, members)
}

fn members(s: &Sim, pool: PoolId) -> Vec<i32> {
    s.mon.map.pg_to_up_acting(PgId::new(pool, 0)).acting
}

fn all_have_the_newest(s: &mut Sim) {
    s.until("the newest map", |s| {
        let mut cores = s.nodes.iter().filter_map(|n| n.core.as_ref());
        cores.all(|c| c.osdmap().epoch == s.mon.map.epoch)
    });
}

/// Nothing happens to the clean cluster for many epochs, and the monitors forget most of them.
fn idle_and_trim(s: &mut Sim) {
    s.settle();
    for _ in 0..20 {
        s.mon.change(|_, _| {});
    }
    all_have_the_newest(s);
    s.mon.trim(Epoch(s.mon.map.epoch.0 - 6));
    // The OSDs hear of it with the next map.
    s.mon.change(|_, _| {});
    all_have_the_newest(s);
    s.settle();
}

/// All these die in the same epoch, and stay members of nothing.
fn lose(s: &mut Sim, osds: &[i32]) {
    osds.iter().for_each(|osd| s.crash(*osd));
    s.mon.change(|inc, map| {
        for osd in osds {
            inc.mark_down(map, OsdId(*osd));
            inc.set_weight(OsdId(*osd), maps::flags::WEIGHT_OUT);
        }
    });
}

fn bring_back(s: &mut Sim, osd: i32) {
    s.start(osd);
    s.mon.mark_in(osd);
    s.until("up", |s| s.mon.map.is_up(osd));
}

fn stays_down(s: &mut Sim) {
    for _ in 0..20 {
        s.run(300);
        assert!(s.states().values().all(|t| t.contains("down") || t == "none"), "{:?}", s.states());
    }
    assert!(s.states().values().all(|t| t.contains("down")), "{:?}", s.states());
}

/// Written by those who died last.
fn is_all_there(s: &mut Sim, pool: PoolId) {
    s.settle();
    s.check_copies();
    let map = s.mon.map.clone();
    for i in 0..16 {
        s.client.read(&map, pool, &format!("o{i}"));
    }
    s.until("read", |s| s.client.is_idle());
    for (_, reply) in s.client.replies.iter().rev().take(16) {
        assert_eq!(reply.result, 0);
    }
}

#[test]
fn a_copy_from_before_the_kept_maps_waits_for_those_who_wrote_since() {
    for seed in 1..4 {
        let (mut s, pool, had) = cluster(3, seed);
        let stale = had[(seed % 2) as usize];
        lose(&mut s, &[stale]);
        s.settle();
        write_all(&mut s, pool, 0..16, 2);
        idle_and_trim(&mut s);
        let last = members(&s, pool);
        assert!(last.len() == 2 && !last.contains(&stale), "{last:?}");
        lose(&mut s, &last);
        bring_back(&mut s, stale);
        assert_eq!(members(&s, pool), [stale]);
        stays_down(&mut s);
        last.iter().for_each(|osd| bring_back(&mut s, *osd));
        is_all_there(&mut s, pool);
    }
}

#[test]
fn one_that_never_had_the_pg_does_not_begin_it_anew() {
    for seed in 11..14 {
        let (mut s, pool, _) = cluster(4, seed);
        write_all(&mut s, pool, 0..16, 2);
        idle_and_trim(&mut s);
        let had = members(&s, pool);
        lose(&mut s, &had);
        stays_down(&mut s);
        had.iter().for_each(|osd| bring_back(&mut s, *osd));
        is_all_there(&mut s, pool);
    }
}

/// It saw the present members already, as one that was no member, and missed that the PG was elsewhere in the meantime. The
/// members' present lives began while it was away.
#[test]
fn an_interval_does_not_reach_over_forgotten_maps() {
    for seed in 21..24 {
        let (mut s, pool, had) = cluster(3, seed);
        let stale = had[0];
        // It knows who follows it, and dies before its copy is deleted.
        s.cut = (0..3).map(|osd| (stale, osd)).collect();
        s.mon.mark_out(stale);
        while s.step() {}
        let core = s.nodes[stale as usize].core.as_ref();
        assert!(core.is_some_and(|c| c.osdmap().epoch == s.mon.map.epoch));
        s.cut.clear();
        s.crash(stale);
        s.mon.mark_down(stale);
        s.settle();
        let last = members(&s, pool);
        // One by one: at no time nobody has it.
        for osd in &last {
            s.crash(*osd);
            s.notice_crash(*osd);
            s.until("down", |s| !s.mon.map.is_up(*osd));
            s.start(*osd);
            s.until("up", |s| s.mon.map.is_up(*osd));
            all_have_the_newest(&mut s);
            s.settle();
        }
        assert_eq!(members(&s, pool), last);
        write_all(&mut s, pool, 0..16, 2);
        idle_and_trim(&mut s);
        lose(&mut s, &last);
        bring_back(&mut s, stale);
        stays_down(&mut s);
        last.iter().for_each(|osd| bring_back(&mut s, *osd));
        is_all_there(&mut s, pool);
    }
}

/// Another OSD that no longer has the increments sends its newest map alone; what lies between is not to be skipped.
#[test]
fn maps_that_the_monitors_have_are_not_skipped() {
    let (mut s, _, _) = cluster(3, 31);
    s.crash(0);
    s.mon.mark_down(0);
    for _ in 0..10 {
        s.mon.change(|_, _| {});
    }
    s.run(500);
    s.start(0);
    let at = |s: &Sim| s.nodes[0].core.as_ref().unwrap().osdmap().epoch;
    let (was, newest) = (at(&s), s.mon.map.epoch);
    let whole = |map: &OsdMap, oldest: Epoch| MOsdMap {
        fsid: FSID,
        full: [(map.epoch, map.to_bytes())].into(),
        oldest,
        newest,
        ..MOsdMap::default()
    };
    let (then, now) = (s.mon.map_at(Epoch(newest.0 - 5)).clone(), s.mon.map.clone());
    for oldest in [was, then.epoch] {
        s.input(0, Input::FromOsd { osd: OsdId(1), msg: whole(&now, oldest).into() });
        assert_eq!(at(&s), was, "oldest {oldest}");
    }
    s.input(0, Input::FromOsd { osd: OsdId(1), msg: whole(&then, then.epoch).into() });
    assert_eq!(at(&s), then.epoch);
    s.settle();
}

/// A pool that is younger than the oldest map waits for nobody but whoever had it.
#[test]
fn a_new_pool_serves_beside_forgotten_maps() {
    let (mut s, _, _) = cluster(4, 41);
    idle_and_trim(&mut s);
    s.crash(0);
    s.mon.mark_down(0);
    let pool = s.mon.create_pool(2, 1, 8);
    s.until("active", |s| s.states().values().all(|t| t.starts_with("active")));
    write_all(&mut s, pool, 0..16, 3);
    s.until("written", |s| s.client.is_idle());
}

#[test]
fn another_clusters_map_stops_no_osd_when_a_peer_brings_it() {
    let mut s = Sim::new(2, 7);
    s.until("all up", |s| (0..2).all(|o| s.mon.map.is_up(o)));
    let foreign = MOsdMap { fsid: types::Fsid([9; 16]), newest: Epoch(90), ..MOsdMap::default() };
    let before = s.nodes[0].core.as_ref().map(|c| c.osdmap().epoch);
    // The simulation panics when an OSD gives up.
    s.input(0, Input::FromOsd { osd: OsdId(1), msg: foreign.clone().into() });
    let net = pg::HeartbeatNet::Back;
    s.input(0, Input::FromHeartbeat { osd: OsdId(1), net, msg: foreign.into() });
    assert_eq!(s.nodes[0].core.as_ref().map(|c| c.osdmap().epoch), before);
}
