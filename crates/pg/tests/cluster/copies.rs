//! Objects copied by their OSDs, also between PGs.

use types::PoolId;

use crate::sim::Sim;

fn cluster(seed: u64, objects: u32) -> (Sim, PoolId) {
    let mut s = Sim::new(3, seed);
    s.until("all up", |s| (0..3).all(|o| s.mon.map.is_up(o)));
    let pool = s.mon.create_pool(3, 2, 8);
    s.settle();
    let map = s.mon.map.clone();
    for i in 0..objects {
        // Two of them need several pieces.
        let size = if i < 2 { 9 << 20 } else { 10 + i as usize };
        s.client.write(&map, pool, &format!("o{i}"), (0..size).map(|b| (b as u32 ^ i) as u8).collect());
    }
    s.until("acked", |s| s.client.is_idle());
    (s, pool)
}

#[test]
fn a_copy_is_what_the_source_was_wherever_it_is() {
    let (mut s, pool) = cluster(90, 12);
    let map = s.mon.map.clone();
    for i in 0..12 {
        s.client.copy(&map, pool, &format!("c{i}"), &format!("o{i}"));
    }
    s.settle();
    // Over objects that exist, and in a circle: each waits for nobody.
    for i in 2..12 {
        s.client.copy(&map, pool, &format!("c{i}"), &format!("o{}", 13 - i));
    }
    s.settle();
    s.check_copies();
    for i in 0..12 {
        s.client.read(&map, pool, &format!("c{i}"));
    }
    s.settle();
}

#[test]
fn copies_of_nothing_and_of_themselves_are_refused() {
    let (mut s, pool) = cluster(91, 3);
    let map = s.mon.map.clone();
    s.client.copy(&map, pool, "x", "nothing");
    s.settle();
    let before = s.client.replies.len();
    s.client.model.remove("y");
    s.client.copy(&map, pool, "y", "y");
    s.settle();
    assert_eq!(s.client.replies[before].1.result, -22);
    s.check_copies();
}

#[test]
fn objects_that_are_copied_from_each_other_do_not_wait_for_each_other() {
    let (mut s, pool) = cluster(92, 4);
    let map = s.mon.map.clone();
    s.client.copy(&map, pool, "o2", "o3");
    s.client.copy(&map, pool, "o3", "o2");
    s.until("both are done", |s| s.client.is_idle());
    let both: Vec<i32> = s.client.replies.iter().rev().take(2).map(|(_, r)| r.result).collect();
    assert_eq!(both, [0, 0]);
}

#[test]
fn copies_go_on_when_a_primary_dies() {
    for seed in 100..106 {
        let (mut s, pool) = cluster(seed, 8);
        let map = s.mon.map.clone();
        for i in 0..8 {
            s.client.copy(&map, pool, &format!("c{i}"), &format!("o{i}"));
        }
        let steps = s.rng.below(150) as usize;
        s.run(steps);
        let victim = s.rng.below(3) as i32;
        s.crash(victim);
        s.notice_crash(victim);
        s.until("all are done", |s| s.client.is_idle());
        s.start(victim);
        s.settle();
        s.check_copies();
    }
}
