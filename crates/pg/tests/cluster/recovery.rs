//! How recovery goes on: which PG is next, how much goes into a message, what options hold it back.

use std::collections::BTreeMap;
use std::time::Duration;

use pg::{Input, OsdConfig};
use types::{HObject, PgId, PoolId};

use crate::sim::Sim;

/// A cluster of two whose second OSD has missed so many objects of a pool, and is about to come back.
fn missed(config: OsdConfig, seed: u64, pg_num: u32, objects: u32, len: usize) -> (Sim, PoolId) {
    let mut s = Sim::with_config(2, seed, config);
    s.until("all up", |s| (0..2).all(|o| s.mon.map.is_up(o)));
    let pool = s.mon.create_pool(2, 1, pg_num);
    s.settle();
    s.kill(1);
    let map = s.mon.map.clone();
    for i in 0..objects {
        s.client.write(&map, pool, &format!("o{i}"), vec![i as u8; len]);
        s.until("written", |s| s.client.is_idle());
    }
    (s, pool)
}

/// The counters of OSD 0.
fn counter(s: &mut Sim, name: &str) -> u64 {
    let cmd = r#"{"prefix": "perf dump", "format": "json"}"#.to_owned();
    s.input(0, Input::AdminCommand { tid: 1, cmd });
    let reply = s.nodes[0].admin_replies.pop().expect("an answer");
    let told: serde_json::Value = serde_json::from_slice(&reply.data).expect("JSON");
    told["osd"][name].as_u64().expect("a counter")
}

/// When a PG is through, others go on at once: none waits for time to pass.
#[test]
fn the_next_pg_recovers_at_once() {
    for (seed, active) in [(1, 1), (2, 3), (3, 10)] {
        let config = OsdConfig { recovery_max_active: active, ..OsdConfig::default() };
        let (mut s, _) = missed(config, seed, 16, 120, 100);
        s.start(1);
        let begin = s.mono;
        s.settle();
        let took = s.mono - begin;
        assert!(took < Duration::from_secs(8), "{took:?} with {active} at one time");
        s.check_copies();
    }
}

/// What is begun together goes in one message, as far as its bounds allow.
#[test]
fn a_message_carries_several_objects() {
    let check = |config: OsdConfig, len: usize, messages: std::ops::RangeInclusive<u64>| {
        let (mut s, _) = missed(config, 5, 1, 60, len);
        s.start(1);
        s.settle();
        s.check_copies();
        assert_eq!(counter(&mut s, "push"), 60);
        let sent = counter(&mut s, "push_messages");
        assert!(messages.contains(&sent), "{sent} messages for objects of {len} bytes");
        let bytes = counter(&mut s, "push_out_bytes");
        let least = 60 * len as u64;
        assert!(bytes >= least && bytes < least + 60 * 600, "{bytes}");
    };
    check(OsdConfig::default(), 100, 6..=8);
    check(OsdConfig { max_push_objects: 3, ..OsdConfig::default() }, 100, 20..=24);
    check(OsdConfig { max_push_cost: 10_000, ..OsdConfig::default() }, 20_000, 60..=60);
}

/// A pause between objects holds on average, and lasts as long as it is set.
#[test]
fn recovery_sleeps() {
    let slow = OsdConfig { recovery_sleep: Duration::from_millis(250), ..OsdConfig::default() };
    let (mut s, _) = missed(slow, 7, 1, 40, 100);
    s.start(1);
    let begin = s.mono;
    s.settle();
    let took = s.mono - begin;
    assert!((9..=12).contains(&took.as_secs()), "40 objects, four a second: {took:?}");
    s.check_copies();
}

/// A primary backfills no more PGs at one time than it may; the others wait, and all come to their turn.
#[test]
fn backfills_wait_for_a_place() {
    let config = OsdConfig {
        min_pg_log_entries: 2,
        max_pg_log_entries: 2,
        pg_log_trim_min: 1,
        backfill_scan_max: 3,
        ..OsdConfig::default()
    };
    let (mut s, _) = missed(config, 9, 8, 120, 100);
    let states = |s: &Sim, what: &str| s.states().values().filter(|t| t.contains(what)).count();
    s.start(1);
    let mut most = 0;
    let mut waited = false;
    s.until("clean", |s| {
        most = most.max(states(s, "backfilling"));
        waited |= states(s, "backfill_wait") > 0;
        s.all_are("active+clean")
    });
    // Each of the two OSDs leads some.
    assert!(waited && (1..=2).contains(&most), "{most} at one time");
    s.check_copies();
}

/// Options under which a PG with 120 objects is backfilled, and one with a few objects recovers by its log.
fn short_logs() -> OsdConfig {
    OsdConfig { min_pg_log_entries: 60, max_pg_log_entries: 60, pg_log_trim_min: 1, ..OsdConfig::default() }
}

/// Whatever is set to pause between objects, writes wait for a range that is under way no longer than it takes to copy it.
#[test]
fn writes_to_a_range_do_not_wait_for_pauses() {
    let slow =
        OsdConfig { recovery_sleep: Duration::from_millis(250), backfill_scan_max: 40, ..short_logs() };
    let (mut s, pool) = missed(slow, 11, 1, 120, 100);
    s.start(1);
    s.until("backfilling", |s| s.states().values().any(|t| t.contains("backfilling")));
    let begin = s.mono;
    let map = s.mon.map.clone();
    for i in 0..120 {
        s.client.write(&map, pool, &format!("o{i}"), vec![7; 50]);
    }
    s.until("written", |s| s.client.is_idle());
    let took = s.mono - begin;
    assert!(took < Duration::from_secs(3), "{took:?}");
    s.settle();
    // On average the pauses hold: of three ranges, the last one's come after the end.
    let took = s.mono - begin;
    assert!((17..40).contains(&took.as_secs()), "{took:?}");
    s.check_copies();
}

/// What the copies of an OSD hold, by PG.
fn held(s: &mut Sim, osd: i32) -> BTreeMap<PgId, usize> {
    let map = s.mon.map.clone();
    let mut held = BTreeMap::new();
    let store = s.nodes[osd as usize].core.as_mut().unwrap().store_mut();
    for o in store.list(-1, &HObject::min(), &HObject::max(), 100_000).unwrap() {
        *held.entry(map.raw_pg_to_pg(PgId::new(o.pool, o.hash)).unwrap()).or_default() += 1;
    }
    held
}

/// PGs take turns: none is recovered while others that wait have not begun.
#[test]
fn pgs_recover_by_turns() {
    for seed in 21..24 {
        let config = OsdConfig { recovery_max_active: 1, ..OsdConfig::default() };
        let (mut s, pool) = missed(config, seed, 8, 200, 100);
        s.start(1);
        let whole = |s: &Sim| {
            let states = s.states().into_iter().filter(|(pg, _)| pg.ends_with("/[0, 1]"));
            states.filter(|(_, t)| t == "active+clean").count()
        };
        s.until("one is whole", |s| s.states().values().all(|t| t.contains("active")) && whole(s) > 0);
        let map = s.mon.map.clone();
        let held = held(&mut s, 1);
        let led = |seed: &u32| map.pg_to_up_acting(PgId::new(pool, *seed)).acting == [0, 1];
        let led: Vec<u32> = (0..8).filter(led).collect();
        assert!(led.len() > 1);
        for seed in led {
            let here = held.get(&PgId::new(pool, seed)).copied().unwrap_or(0);
            assert!(here >= 5, "{seed} has {here} objects: {held:?}");
        }
        s.settle();
        s.check_copies();
    }
}

/// A range that is under way is finished while other PGs still have much to recover.
#[test]
fn writes_to_a_range_do_not_wait_for_other_pgs() {
    for seed in 31..34 {
        let config = OsdConfig { recovery_max_active: 1, backfill_scan_max: 10, ..short_logs() };
        let mut s = Sim::with_config(2, seed, config);
        s.until("all up", |s| (0..2).all(|o| s.mon.map.is_up(o)));
        let (many, one) = (s.mon.create_pool(2, 1, 8), s.mon.create_pool(2, 1, 1));
        s.settle();
        s.kill(1);
        let map = s.mon.map.clone();
        for i in 0..250 {
            s.client.write(&map, many, &format!("m{i}"), vec![i as u8; 100]);
            s.until("written", |s| s.client.is_idle());
        }
        for i in 0..120 {
            s.client.write(&map, one, &format!("o{i}"), vec![i as u8; 100]);
            s.until("written", |s| s.client.is_idle());
        }
        let mut objects: Vec<HObject> =
            (0..120).map(|i| s.client.object(&map, one, &format!("o{i}"))).collect();
        objects.sort();
        s.start(1);
        let own = format!("{}.", one.0);
        s.until("backfilling", |s| {
            s.states().iter().any(|(pg, t)| pg.starts_with(&own) && t.contains("backfilling"))
        });
        let map = s.mon.map.clone();
        for object in &objects[..5] {
            s.client.write(&map, one, &object.name, vec![9; 20]);
        }
        s.until("written", |s| s.client.is_idle());
        let theirs = |pg: &str| !pg.starts_with(&own) && pg.ends_with("/[0, 1]");
        let left = s.states().iter().filter(|(pg, t)| theirs(pg) && t.contains("recover")).count();
        assert!(left > 0, "all others went first: {:?}", s.states());
        s.settle();
    }
}

/// With an OSD out and no other to take its place, the PG goes on with all three copies, and is clean.
#[test]
fn a_pg_whose_member_is_out_without_a_replacement_is_clean_and_remapped() {
    let mut s = Sim::new(3, 7);
    s.until("all up", |s| (0..3).all(|o| s.mon.map.is_up(o)));
    s.mon.create_pool(3, 2, 4);
    s.settle();
    s.mon.mark_out(2);
    s.until("remapped", |s| s.all_are("active+clean+remapped"));
    assert_eq!(s.mon.map.pg_temp.len(), 4);
    s.mon.mark_in(2);
    s.settle();
}

/// CRUSH finds too few OSDs, one of them new: it takes the place of a member as soon as it has all.
#[test]
fn a_new_member_of_a_short_up_set_serves_when_it_has_all() {
    let config = OsdConfig { min_pg_log_entries: 4, max_pg_log_entries: 4, ..short_logs() };
    let mut s = Sim::with_config(4, 7, config);
    s.until("all up", |s| (0..4).all(|o| s.mon.map.is_up(o)));
    let pool = s.mon.create_pool(3, 2, 8);
    s.settle();
    let map = s.mon.map.clone();
    for i in 0..160 {
        s.client.write(&map, pool, &format!("o{i}"), vec![i; 100]);
    }
    s.settle();
    (2..4).for_each(|o| s.mon.mark_out(o));
    s.until("remapped", |s| s.all_are("active+clean+remapped"));
    let mut came = 0;
    s.mon.map.for_each_pg(|pg, m| {
        assert_eq!((m.up.len(), m.acting.len()), (2, 3), "{pg} {m:?}");
        assert!(m.up.iter().all(|osd| m.acting.contains(osd)), "{pg} {m:?}");
        came += i32::from(m.acting.contains(&2) != m.acting.contains(&3));
    });
    assert!(came > 0, "all had both 0 and 1 before");
    (2..4).for_each(|o| s.mon.mark_in(o));
    s.settle();
    s.check_copies();
}
