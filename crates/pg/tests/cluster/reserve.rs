//! Places for backfills: how many at one time, at the primaries and at the targets, and who goes first.

use std::time::Duration;

use pg::OsdConfig;
use types::{HObject, PoolId};

use crate::sim::Sim;

/// Whoever comes new is backfilled, and that takes a while.
fn short_logs() -> OsdConfig {
    OsdConfig {
        min_pg_log_entries: 2,
        max_pg_log_entries: 2,
        pg_log_trim_min: 1,
        backfill_scan_max: 3,
        ..OsdConfig::default()
    }
}

/// OSDs of which the last has no data yet.
fn cluster(devices: &[u64], seed: u64, pg_num: u32, config: OsdConfig) -> (Sim, PoolId) {
    let mut s = Sim::with_devices(devices, seed, config);
    s.until("all up", |s| (0..devices.len() as i32).all(|o| s.mon.map.is_up(o)));
    s.mon.mark_out(devices.len() as i32 - 1);
    let pool = s.mon.create_pool(2, 1, pg_num);
    s.settle();
    (s, pool)
}

fn fill(s: &mut Sim, pool: PoolId, objects: u32, len: usize) {
    let map = s.mon.map.clone();
    for i in 0..objects {
        s.client.write(&map, pool, &format!("o{i}"), vec![i as u8; len]);
        if i % 20 == 19 {
            s.until("written", |s| s.client.is_idle());
        }
    }
    s.settle();
}

/// PGs in a state, by whether an OSD is up for them and does not serve yet.
fn moving_to(s: &Sim, osd: i32, state: &str) -> usize {
    let has = |text: &str| text.trim_matches(['[', ']']).split(", ").any(|o| o == osd.to_string());
    let moves = |pg: &str| {
        let (up, acting) = pg.split_once(' ').unwrap().1.split_once('/').unwrap();
        has(up) && !has(acting)
    };
    s.states().iter().filter(|(pg, text)| moves(pg) && text.split('+').any(|t| t == state)).count()
}

/// Several primaries move PGs to one OSD: it takes in no more at one time than it may.
#[test]
fn a_target_takes_in_few_pgs_at_one_time() {
    for (seed, places) in [(1, 1), (2, 2)] {
        let config = OsdConfig { max_backfills: places, ..short_logs() };
        let (mut s, pool) = cluster(&[48 << 20; 4], seed, 16, config);
        fill(&mut s, pool, 200, 100);
        s.mon.mark_in(3);
        let (mut most, mut waited) = (0, 0);
        s.until("moved", |s| {
            most = most.max(moving_to(s, 3, "backfilling"));
            waited = waited.max(moving_to(s, 3, "backfill_wait"));
            s.all_are("active+clean") && s.mon.map.pg_temp.is_empty()
        });
        assert_eq!(most, places, "with {waited} waiting");
        assert!(waited > places);
        s.settle();
        s.check_copies();
    }
}

/// The same while primaries and the target die: no place is lost, and none is given twice.
#[test]
fn places_survive_kills() {
    for seed in 10..14 {
        let config = short_logs();
        let (mut s, pool) = cluster(&[48 << 20; 4], seed, 8, config);
        fill(&mut s, pool, 100, 100);
        s.mon.mark_in(3);
        for _ in 0..6 {
            let steps = s.rng.below(200) as usize;
            s.run(steps);
            let victim = s.rng.below(4) as i32;
            s.restart(victim);
        }
        s.settle();
        s.check_copies();
    }
}

fn set_backfillfull(s: &mut Sim, ratio: f32) {
    s.mon.change(|inc, _| inc.new_backfillfull_ratio = ratio);
}

/// A target says no to what it has no room for, is left alone, and is asked again later.
#[test]
fn a_target_without_room_says_no() {
    let config = OsdConfig { max_backfills: 8, ..short_logs() };
    let (mut s, pool) = cluster(&[96 << 20, 96 << 20, 96 << 20, 40 << 20], 20, 8, config);
    fill(&mut s, pool, 80, 400_000);
    set_backfillfull(&mut s, 0.5);
    s.settle();
    s.mon.mark_in(3);
    s.until("refused", |s| moving_to(s, 3, "backfill_toofull") > 0 && moving_to(s, 3, "backfilling") == 0);
    for _ in 0..20 {
        s.run(50);
        s.tick(Duration::from_millis(500));
    }
    let full = maps::flags::osd_state::BACKFILLFULL;
    assert_eq!(s.mon.map.osd(3).map(|o| o.state & full), Some(0), "it was not filled up");
    let used = |s: &mut Sim| {
        let statfs = s.nodes[3].core.as_mut().unwrap().store_mut().statfs();
        (statfs.total_bytes - statfs.available_bytes) as f64 / statfs.total_bytes as f64
    };
    let share = used(&mut s);
    assert!(share < 0.5, "{share} of the target is used");
    set_backfillfull(&mut s, 0.95);
    s.until("moved", |s| s.all_are("active+clean") && s.mon.map.pg_temp.is_empty());
    assert!(used(&mut s) > 0.5);
    s.settle();
    s.check_copies();
}

/// What lacks copies goes before what is only elsewhere.
#[test]
fn degraded_before_misplaced() {
    for seed in 30..33 {
        let (mut s, moved) = cluster(&[48 << 20; 4], seed, 8, short_logs());
        fill(&mut s, moved, 150, 100);
        // A pool of its own: of three copies one is lacking until the last OSD is in.
        let lacking = s.mon.create_pool(4, 1, 4);
        s.until("active", |s| s.states().values().all(|t| t.contains("active")));
        let map = s.mon.map.clone();
        for i in 0..80 {
            s.client.write(&map, lacking, &format!("l{i}"), vec![5; 100]);
            s.until("written", |s| s.client.is_idle());
        }
        s.mon.mark_in(3);
        let (mut first, mut last) = (None, None);
        s.until("moved", |s| {
            let now = s.mono;
            let of = |pool: PoolId| {
                let own = format!("{}.", pool.0);
                s.states().iter().filter(|(pg, t)| pg.starts_with(&own) && *t != "active+clean").count()
            };
            if of(lacking) == 0 {
                first = first.or(Some(now));
            }
            if of(moved) > 0 {
                last = Some(now);
            }
            s.all_are("active+clean") && s.mon.map.pg_temp.is_empty()
        });
        assert!(first < last, "{first:?} {last:?}");
        s.settle();
        let store = s.nodes[3].core.as_mut().unwrap().store_mut();
        let held = store.list(-1, &HObject::min(), &HObject::max(), 10_000).unwrap();
        assert_eq!(held.iter().filter(|o| o.pool == lacking).count(), 80);
    }
}

/// The flags of the map, and whether an OSD is too full for backfills.
fn set_flags(s: &mut Sim, flags: u32, toofull: Option<(i32, bool)>) {
    let full = maps::flags::osd_state::BACKFILLFULL;
    s.mon.change(|inc, map| {
        inc.new_flags = flags as i32;
        if let Some((osd, wanted)) = toofull {
            if map.osd(osd).is_some_and(|o| (o.state & full != 0) != wanted) {
                inc.new_state.insert(osd, full);
            }
        }
    });
}

/// All that can happen without any time passing.
fn all_messages(s: &mut Sim) {
    for _ in 0..50_000 {
        if !s.step() {
            return;
        }
    }
    panic!("no end of messages");
}

/// All that can happen, and every PG has looked again at what it may do.
fn all_pgs_go_on(s: &mut Sim) {
    all_messages(s);
    s.tick(Duration::from_secs(2));
    all_messages(s);
}

/// The lower of two targets has room again while one primary has the higher one: nobody keeps what another one waits for.
#[test]
fn places_are_taken_in_order_when_a_target_has_room_again() {
    for seed in 40..43 {
        let mut s = Sim::with_devices(&[48 << 20; 4], seed, short_logs());
        s.until("all up", |s| (0..4).all(|o| s.mon.map.is_up(o)));
        s.mon.mark_out(2);
        s.mon.mark_out(3);
        let pool = s.mon.create_pool(4, 1, 8);
        s.until("active", |s| s.states().values().all(|t| t.contains("active")));
        let map = s.mon.map.clone();
        for i in 0..160 {
            s.client.write(&map, pool, &format!("o{i}"), vec![i as u8; 100]);
        }
        s.until("written", |s| s.client.is_idle());
        set_flags(&mut s, 0, Some((2, true)));
        s.mon.mark_in(2);
        s.mon.mark_in(3);
        s.until("one has the higher", |s| moving_to(s, 3, "backfilling") == 1);
        let states = s.states();
        let (pg, _) = states.iter().find(|(_, t)| t.contains("backfilling")).unwrap();
        let primary: i32 = pg.rsplit_once("/[").unwrap().1.split([',', ']']).next().unwrap().parse().unwrap();
        // It hears nothing of the targets while the others give up what they asked for, and begin anew with the lower one.
        s.cut = vec![(primary, 2), (primary, 3)];
        set_flags(&mut s, maps::flags::map_flags::NOBACKFILL, None);
        all_pgs_go_on(&mut s);
        set_flags(&mut s, 0, Some((2, false)));
        all_pgs_go_on(&mut s);
        s.cut.clear();
        s.until("moved", |s| s.all_are("active+clean") && s.mon.map.pg_temp.is_empty());
        s.settle();
        s.check_copies();
    }
}
