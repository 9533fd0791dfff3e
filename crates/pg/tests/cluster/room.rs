//! Full stores: members that have less room than the primary, and what the OSDs themselves must still write.

use maps::flags::osd_state;
use maps::pool_flags;
use pg::OsdConfig;

use crate::sim::Sim;

/// Writes objects of 256 KiB, several at a time, until some find no space; returns how many were tried.
fn fill(s: &mut Sim, pool: types::PoolId, at_once: usize) -> usize {
    s.client.full_allowed = true;
    let map = s.mon.map.clone();
    for i in 0..400 {
        for k in 0..at_once {
            s.client.write(&map, pool, &format!("o{}", i * at_once + k), vec![7; 256 << 10]);
        }
        s.until("answered", |s| s.client.is_idle());
        let answers = s.client.replies.iter().rev().take(at_once);
        if answers.filter(|(_, r)| r.result == -28).count() > 0 {
            return (i + 1) * at_once;
        }
    }
    panic!("never full");
}

/// A member whose device is much smaller fills first, whoever is primary; the writes are refused, nobody dies, and after
/// removals the pool takes writes again.
#[test]
fn a_member_without_room_stops_writes_and_stays_alive() {
    for (seed, at_once) in [(1, 1), (2, 1), (3, 6), (4, 6)] {
        let config = OsdConfig { min_pg_log_entries: 200, ..OsdConfig::default() };
        let mut s = Sim::with_devices(&[64 << 20, 16 << 20], seed, config);
        s.until("all up", |s| (0..2).all(|o| s.mon.map.is_up(o)));
        let pool = s.mon.create_pool(2, 1, 4);
        s.settle();
        let tried = fill(&mut s, pool, at_once);
        assert!((20..64).contains(&tried), "{tried}");
        let map = s.mon.map.clone();
        for i in 0..tried / 2 {
            s.client.remove(&map, pool, &format!("o{i}"));
            s.until("removed", |s| s.client.is_idle());
        }
        // Told of the space again, the primaries let writes pass.
        for _ in 0..3 {
            s.tick(std::time::Duration::from_millis(500));
            s.run(200);
        }
        s.client.full_allowed = false;
        for i in 0..tried / 4 {
            s.client.write(&map, pool, &format!("o{i}"), vec![9; 256 << 10]);
            s.until("written", |s| s.client.is_idle());
        }
        s.settle();
        s.check_copies();
    }
}

/// Maps, histories and logs are written while clients have used up everything that they may.
#[test]
fn a_full_osd_follows_maps_and_splits_pools() {
    // Nothing stops clients before the store does.
    let config = OsdConfig { min_pg_log_entries: 200, failsafe_full_ratio: 2.0, ..OsdConfig::default() };
    let mut s = Sim::with_config(2, 92, config);
    s.until("all up", |s| (0..2).all(|o| s.mon.map.is_up(o)));
    let pool = s.mon.create_pool(2, 1, 2);
    s.settle();
    fill(&mut s, pool, 3);
    let map = s.mon.map.clone();
    // Metadata alone may take some of the reserve.
    for i in 0..600 {
        s.client.write(&map, pool, &format!("small{i}"), vec![]);
        s.until("answered", |s| s.client.is_idle());
        if s.client.replies.last().is_some_and(|(_, r)| r.result != 0) {
            break;
        }
    }
    s.mon.change(|inc, map| {
        let mut wider = map.pools[&pool].clone();
        wider.set_pg_num(16);
        wider.pgp_num = 16;
        inc.new_pools.insert(pool, wider);
    });
    s.settle();
    for round in 0..6 {
        s.crash(round % 2);
        s.until("marked down", |s| !s.mon.map.is_up(round % 2));
        s.start(round % 2);
        s.settle();
    }
    s.check_copies();
}

/// A client that did not ask about room is not told that there is none: the write waits for room, or for the
/// map that calls the pool full, since the client then keeps it back itself. Its OSD says that it is full,
/// whatever the ratios are.
#[test]
fn a_plain_write_without_room_waits_for_the_map_or_for_room() {
    // By the ratio, and without it.
    [0.95, 1.5].into_iter().for_each(a_plain_write_waits);
}

/// A write that waits for the end of another stays before later ones of its object that met the full store
/// first.
#[test]
fn writes_of_an_object_keep_their_order_where_there_is_no_room() {
    let mut s = Sim::new(2, 94);
    s.mon.change(|inc, _| inc.new_full_ratio = 1.5);
    s.until("all up", |s| (0..2).all(|o| s.mon.map.is_up(o)));
    let pool = s.mon.create_pool(2, 1, 1);
    s.settle();
    fill(&mut s, pool, 1);
    s.client.full_allowed = false;
    s.settle();
    let (map, object) = (s.mon.map.clone(), s.client.object(&s.mon.map, pool, "x"));
    let primary = map.pg_to_up_acting(types::PgId::new(pool, 0)).acting_primary;
    s.cut = vec![(0, 1)];
    let first = s.client.read_and_write(&map, pool, "x", b"first");
    s.client.goes_on("x");
    s.client.read_and_write(&map, pool, "x", b"waits for the first");
    s.client.goes_on("x");
    s.deliver_requests(primary);
    s.client.write(&map, pool, "large", vec![1; 1 << 20]);
    s.deliver_requests(primary);
    let last = s.client.read_and_write(&map, pool, "x", b"last");
    s.deliver_requests(primary);
    s.commit(primary);
    s.cut.clear();
    s.until("the first is answered", |s| s.client.is_answered(first));
    s.run(50);
    assert!(s.client.is_busy("large") && !s.client.is_answered(last), "they wait for room");
    s.client.full_allowed = true;
    for i in 0..24 {
        s.client.remove(&map, pool, &format!("o{i}"));
    }
    s.until("answered", |s| s.client.is_idle());
    assert_eq!(s.stored(primary, &object).as_deref(), Some(&b"last"[..]));
}

fn a_plain_write_waits(full_ratio: f32) {
    let mut s = Sim::new(1, 93);
    s.mon.change(|inc, _| inc.new_full_ratio = full_ratio);
    s.until("all up", |s| s.mon.map.is_up(0));
    let pool = s.mon.create_pool(1, 1, 1);
    s.settle();
    let mark = |s: &mut Sim, full: bool| {
        s.mon.change(|inc, map| {
            let mut marked = map.pools[&pool].clone();
            if full {
                marked.set_flag(pool_flags::FULL)
            } else {
                marked.unset_flag(pool_flags::FULL)
            }
            inc.new_pools.insert(pool, marked);
        });
        s.run(200);
    };
    let make_room = |s: &mut Sim| {
        s.client.full_allowed = true;
        for i in 0..24 {
            let (map, answered) = (s.mon.map.clone(), s.client.replies.len());
            s.client.remove(&map, pool, &format!("o{i}"));
            s.until("removed, past the write that waits", |s| s.client.replies.len() > answered);
        }
        s.client.full_allowed = false;
    };
    for in_map in [true, false] {
        fill(&mut s, pool, 1);
        s.client.full_allowed = false;
        let (map, answered) = (s.mon.map.clone(), s.client.replies.len());
        s.client.write(&map, pool, "plain", vec![u8::from(in_map); 1 << 20]);
        s.until("told", |s| s.mon.told_full.get(&0) == Some(&osd_state::FULL));
        s.client.read(&map, pool, "o40");
        s.until("a read passes", |s| s.client.replies.len() > answered);
        if in_map {
            mark(&mut s, true);
        }
        assert!(s.client.is_busy("plain"), "{:?}", s.client.replies.last());
        make_room(&mut s);
        if in_map {
            mark(&mut s, false);
            assert!(s.client.is_busy("plain"), "dropped: only its client can bring it again");
            s.client.session_lost(0);
        }
        s.until("written", |s| s.client.is_idle());
        s.until("told", |s| s.mon.told_full.get(&0) != Some(&osd_state::FULL));
    }
    s.settle();
    s.check_copies();
}
