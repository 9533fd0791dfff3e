//! Removed snapshots are trimmed on every copy, whatever happens meanwhile.

use types::{HObject, PoolId, SnapContext, SnapId};

use crate::sim::Sim;

fn write_all(s: &mut Sim, pool: PoolId, count: u8, tag: u8) {
    let map = s.mon.map.clone();
    for i in 0..count {
        s.client.write(&map, pool, &format!("o{i}"), vec![tag, i, tag]);
    }
    s.until("acked", |s| s.client.is_idle());
}

/// A pool whose objects have a clone each for the snapshots 1 and 2.
fn with_clones(seed: u64) -> (Sim, PoolId) {
    let mut s = Sim::new(3, seed);
    s.until("all up", |s| (0..3).all(|o| s.mon.map.is_up(o)));
    let pool = s.mon.create_pool(3, 2, 4);
    s.settle();
    write_all(&mut s, pool, 30, 1);
    for snap in [1, 2] {
        s.client.snapc = SnapContext { seq: snap, snaps: (1..=snap).rev().collect() };
        write_all(&mut s, pool, 30, 1 + snap as u8);
    }
    s.settle();
    (s, pool)
}

/// How many clones each OSD has stored.
fn clones(s: &mut Sim, pool: PoolId) -> Vec<usize> {
    let from = HObject { pool, ..HObject::min() };
    let until = HObject { pool: PoolId(pool.0 + 1), ..HObject::min() };
    let count = |core: &mut pg::OsdCore| {
        let all = core.store_mut().list(-1, &from, &until, 10_000).unwrap();
        all.iter().filter(|o| !o.is_head()).count()
    };
    s.nodes.iter_mut().filter_map(|n| n.core.as_mut()).map(count).collect()
}

fn remove(s: &mut Sim, pool: PoolId, snaps: &[u64]) {
    let set = snaps.iter().map(|snap| (*snap, 1)).collect();
    s.mon.change(|inc, _| {
        inc.new_removed_snaps.insert(pool, set);
    });
}

#[test]
fn clones_of_removed_snapshots_go_from_every_copy() {
    let (mut s, pool) = with_clones(60);
    assert_eq!(clones(&mut s, pool), [60; 3]);
    remove(&mut s, pool, &[1]);
    s.until("half of the clones are gone", |s| clones(s, pool) == [30; 3]);
    s.settle();
    // The monitors take off the queue what every PG has reported.
    s.mon.change(|inc, map| {
        inc.new_purged_snaps = map.removed_snaps_queue.clone();
    });
    remove(&mut s, pool, &[2]);
    s.until("all clones are gone", |s| clones(s, pool) == [0; 3]);
    s.settle();
    s.check_copies();
}

/// A request can be sent before a snapshot is removed and arrive after it is purged everywhere.
#[test]
fn a_write_that_knows_a_purged_snapshot_makes_no_clone_for_it() {
    let (mut s, pool) = with_clones(61);
    let map = s.mon.map.clone();
    s.client.snapc = SnapContext::default();
    s.client.write(&map, pool, "late", vec![1]);
    s.until("acked", |s| s.client.is_idle());
    remove(&mut s, pool, &[1, 2]);
    s.until("all clones are gone", |s| clones(s, pool) == [0; 3]);
    s.settle();
    s.mon.change(|inc, map| {
        inc.new_purged_snaps = map.removed_snaps_queue.clone();
    });
    s.settle();
    assert!(s.mon.map.removed_snaps_queue.is_empty());
    for (seq, made) in [(2, [0; 3]), (3, [1; 3])] {
        s.client.snapc = SnapContext { seq, snaps: (1..=seq).rev().collect() };
        s.client.write(&map, pool, "late", vec![2]);
        s.until("acked", |s| s.client.is_idle());
        s.settle();
        assert_eq!(clones(&mut s, pool), made, "up to snapshot {seq}");
    }
    remove(&mut s, pool, &[3]);
    s.until("all clones are gone", |s| clones(s, pool) == [0; 3]);
    s.check_copies();
}

/// Every member copies its own clone: one that lacks it yet is sent that first.
#[test]
fn a_rollback_waits_until_every_member_has_the_clone() {
    for seed in 62..66 {
        let (mut s, pool) = with_clones(seed);
        s.crash(2);
        s.notice_crash(2);
        s.client.snapc = SnapContext { seq: 3, snaps: vec![3, 2, 1] };
        write_all(&mut s, pool, 30, 5);
        s.start(2);
        s.until("all up", |s| s.mon.map.is_up(2));
        let map = s.mon.map.clone();
        for i in 0..30u8 {
            s.client.rollback(&map, pool, &format!("o{i}"), SnapId(3), vec![3, i, 3]);
        }
        // Later writes do not overtake them.
        for i in 0..10u8 {
            s.client.goes_on(&format!("o{i}"));
            s.client.write(&map, pool, &format!("o{i}"), vec![6, i, 6]);
        }
        s.until("rolled back", |s| s.client.is_idle());
        s.settle();
        s.check_copies();
        for i in 0..10u8 {
            let object = s.client.object(&map, pool, &format!("o{i}"));
            assert_eq!(s.stored(0, &object), Some(vec![6, i, 6]), "o{i}");
        }
    }
}

#[test]
fn trimming_goes_on_after_crashes() {
    for seed in 70..76 {
        let (mut s, pool) = with_clones(seed);
        remove(&mut s, pool, &[1, 2]);
        let steps = s.rng.below(400) as usize;
        s.run(steps);
        let victim = s.rng.below(3) as i32;
        s.crash(victim);
        s.notice_crash(victim);
        s.run(100);
        s.start(victim);
        s.until("all clones are gone", |s| clones(s, pool) == [0; 3]);
        s.settle();
        s.check_copies();
    }
}

#[test]
fn nothing_is_trimmed_while_it_is_forbidden_or_a_copy_is_missing() {
    use maps::flags::map_flags;
    let (mut s, pool) = with_clones(80);
    s.mon.change(|inc, map| inc.new_flags = (map.flags | map_flags::NOSNAPTRIM) as i32);
    remove(&mut s, pool, &[1, 2]);
    s.run(2_000);
    assert_eq!(clones(&mut s, pool), [60; 3]);
    s.crash(2);
    s.notice_crash(2);
    s.mon.change(|inc, map| inc.new_flags = (map.flags & !map_flags::NOSNAPTRIM) as i32);
    s.run(2_000);
    assert_eq!(clones(&mut s, pool), [60; 2]);
    s.start(2);
    s.until("all clones are gone", |s| clones(s, pool) == [0; 3]);
}

/// Trimming on a store without a free block: what finds no room is tried again, and no clone is passed over.
#[test]
fn trimming_a_full_store_leaves_no_clone() {
    let mut s = Sim::new(1, 91);
    s.until("all up", |s| s.mon.map.is_up(0));
    let pool = s.mon.create_pool(1, 1, 1);
    s.settle();
    s.client.full_allowed = true;
    let map = s.mon.map.clone();
    // Heads, clones of them, then small objects, until each kind finds no room.
    for (tag, count, len, seq) in
        [(1u8, 60u32, 256 << 10, 0u64), (2, 400, 256 << 10, 1), (3, 4_000, 4_000, 1)]
    {
        if seq > 0 {
            s.client.snapc = SnapContext { seq, snaps: vec![seq] };
        }
        for i in 0..count {
            let name = if tag == 3 { format!("small{i}") } else { format!("o{i}") };
            s.client.write(&map, pool, &name, vec![tag; len]);
            s.until("answered", |s| s.client.is_idle());
            if s.client.replies.last().expect("a reply").1.result != 0 {
                assert!(tag != 1, "60 heads fit");
                break;
            }
        }
    }
    assert!(clones(&mut s, pool)[0] > 30, "{:?} clones", clones(&mut s, pool));
    remove(&mut s, pool, &[1]);
    s.until("all clones are gone", |s| clones(s, pool) == [0]);
    s.settle();
    s.check_copies();
}
