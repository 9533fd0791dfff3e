//! What becomes of a scrub's findings in erasure-coded PGs when objects change before the scrub ends, and
//! when whoever has found something ends first.

use pg::OsdConfig;
use store::{ObjectKey, Txn};
use types::PoolId;

use crate::coded_kit::{
    CHUNK, acting, bytes, change, check_shards, cluster_with, damaged, mark_damaged, primary, under_way,
};
use crate::scrub::{How, ask, lines, scrub};
use crate::sim::Sim;

/// A PG whose scrubs take several chunks, and the object that they come to first.
fn cluster(code: (u8, u8), seed: u64) -> (Sim, PoolId, String) {
    let config = OsdConfig { min_pg_log_entries: 200, scrub_chunk_max: 2, ..OsdConfig::default() };
    let (mut s, pool) = cluster_with(code, code.0, 0, seed, config);
    let map = s.mon.map.clone();
    let names: Vec<String> = (0..12).map(|at| format!("o{at}")).collect();
    for name in &names {
        let content = bytes(&mut s, 20 * CHUNK);
        s.client.write(&map, pool, name, content);
    }
    s.settle();
    let first = names.into_iter().min_by_key(|name| s.client.object(&map, pool, name)).expect("some");
    (s, pool, first)
}

/// Changes the shard at a place where no client does.
fn spoil(s: &mut Sim, pool: PoolId, place: usize, name: &str, spoil: impl FnOnce(&mut Txn, &ObjectKey)) {
    let (osd, object) = (acting(s, pool)[place], s.client.object(&s.mon.map, pool, name));
    change(s, pool, osd, &object, spoil);
}

/// Scrubs, and goes on until something is found. Other chunks are to come.
fn until_found(s: &mut Sim, pool: PoolId, how: How) {
    ask(s, pool, how);
    s.until("found", |s| lines(s, pool).iter().any(|line| line.contains(" shard ")));
    assert!(!is_over(s, pool));
}

fn is_over(s: &Sim, pool: PoolId) -> bool {
    let is_end = |line: &String| line.contains(" errors") || line.contains(" ok");
    lines(s, pool)
        .iter()
        .any(|line| (line.contains(" repair ") || line.contains(" deep-scrub ")) && is_end(line))
}

/// The request is executed, and all members have it durable, before the scrub has ended.
fn carry_out(s: &mut Sim, pool: PoolId) {
    let (first, members) = (primary(s, pool), acting(s, pool));
    s.deliver_requests(first);
    assert!(members.iter().any(|osd| under_way(s, first, *osd, "RepOp").is_some()));
    for osd in members.iter().filter(|osd| **osd != first) {
        s.deliver_all(first, *osd);
        s.commit(*osd);
    }
    s.commit(first);
    for osd in members.iter().filter(|osd| **osd != first) {
        s.deliver_all(*osd, first);
    }
    assert!(!is_over(s, pool));
}

/// What was found has been written over before the scrub's end: no error is counted, no repair has failed.
fn check_nothing_is_left(s: &mut Sim, pool: PoolId) {
    assert!(s.states().values().all(|t| !t.contains("inconsistent")), "{:?}", s.states());
    s.settle();
    let said = lines(s, pool);
    assert!(said.iter().any(|line| line.ends_with("written over")), "{said:#?}");
    assert!(s.states().values().all(|t| !t.contains("failed_repair")), "{:?}", s.states());
}

/// All shards are what clients wrote, and a scrub has nothing to say.
fn check(s: &mut Sim, pool: PoolId) {
    s.until("whole", |s| s.states().values().all(|t| t.contains("active+clean")));
    s.until("no requests", |s| s.client.is_idle());
    check_shards(s, pool);
    let end = scrub(s, pool, How::Deep);
    assert!(end.ends_with(" deep-scrub ok"), "{end}: {:#?}", lines(s, pool));
}

/// An object is deleted whose shard at the primary is bad: it is not lost, and can be made again at once.
#[test]
fn what_is_deleted_before_the_end_is_no_damage() {
    for seed in 0..4 {
        let (mut s, pool, name) = cluster((2, 2), seed);
        let first = primary(&s, pool);
        let place = acting(&s, pool).iter().position(|osd| *osd == first).unwrap();
        spoil(&mut s, pool, place, &name, |txn, key| {
            txn.truncate(key, CHUNK as u64);
        });
        let how = [How::Repair, How::Deep][seed as usize % 2];
        until_found(&mut s, pool, how);
        let map = s.mon.map.clone();
        s.client.remove(&map, pool, &name);
        carry_out(&mut s, pool);
        s.until("over", |s| is_over(s, pool));
        check_nothing_is_left(&mut s, pool);
        assert_eq!(damaged(&mut s, pool, first), 0);
        let new = bytes(&mut s, 3 * CHUNK);
        s.client.write(&map, pool, &name, new);
        s.deliver_requests(first);
        check(&mut s, pool);
    }
}

/// More shards are bad than the code makes up for; then the object is written as a whole.
#[test]
fn what_is_written_as_a_whole_is_no_damage() {
    for seed in 0..8 {
        let (mut s, pool, name) = cluster((4, 2), seed);
        for place in 0..3 {
            let place = (place * 2 + seed as usize) % 6;
            spoil(&mut s, pool, place, &name, |txn, key| {
                txn.truncate(key, CHUNK as u64);
            });
        }
        until_found(&mut s, pool, [How::Repair, How::Deep][seed as usize / 4]);
        let map = s.mon.map.clone();
        let new = bytes(&mut s, [20, 32][seed as usize % 2] * CHUNK);
        s.client.write(&map, pool, &name, new);
        if seed % 4 < 2 {
            carry_out(&mut s, pool);
        } else {
            s.deliver_requests(primary(&s, pool));
        }
        s.until("over", |s| is_over(s, pool));
        check_nothing_is_left(&mut s, pool);
        check(&mut s, pool);
    }
}

/// A shard is as wrong as before where an object was written in part. The primary ends before it is made
/// again: the next one knows.
#[test]
fn what_is_written_in_part_is_still_damaged() {
    for seed in 0..8 {
        let (mut s, pool, name) = cluster((4, 2), seed);
        let (first, members) = (primary(&s, pool), acting(&s, pool));
        let place = (0..6).cycle().skip(seed as usize).find(|at| members[*at] != first).unwrap();
        spoil(&mut s, pool, place, &name, |txn, key| {
            txn.write(key, CHUNK as u64 + 77, vec![0xe5; 9]);
        });
        until_found(&mut s, pool, How::Repair);
        // A stripe, for which nothing has to be read.
        let (map, part) = (s.mon.map.clone(), bytes(&mut s, 4 * CHUNK));
        s.client.patch(&map, pool, &name, 12 * CHUNK, &part);
        carry_out(&mut s, pool);
        s.until("over", |s| is_over(s, pool));
        s.deliver_all(first, members[place]);
        s.commit(members[place]);
        assert_eq!(damaged(&mut s, pool, members[place]), 1);
        s.restart(first);
        check(&mut s, pool);
    }
}

/// A member that has been told that its shard is gone remembers it until it is there, and no longer: a
/// deletion is told it as well.
#[test]
fn a_member_remembers_that_a_shard_is_gone() {
    for seed in 0..8 {
        let (mut s, pool, name) = cluster((2, 2), seed);
        let (first, members) = (primary(&s, pool), acting(&s, pool));
        let place = (0..4).cycle().skip(seed as usize).find(|at| members[*at] != first).unwrap();
        let osd = members[place];
        spoil(&mut s, pool, place, &name, |txn, key| {
            txn.remove(key);
        });
        until_found(&mut s, pool, How::Repair);
        s.until("over", |s| is_over(s, pool));
        s.deliver_all(first, osd);
        s.commit(osd);
        for _ in 0..10 {
            s.tick(std::time::Duration::from_millis(500));
        }
        s.commit(osd);
        assert_eq!(damaged(&mut s, pool, osd), 1);
        s.restart(first);
        check(&mut s, pool);
        assert_eq!(damaged(&mut s, pool, osd), 0);
        // A mark that outlives the object, as when the primary has not heard of it.
        let object = s.client.object(&s.mon.map, pool, &name);
        let map = s.mon.map.clone();
        s.client.remove(&map, pool, &name);
        s.settle();
        mark_damaged(&mut s, pool, osd, &object);
        s.restart(osd);
        s.until("forgotten", |s| acting(s, pool).contains(&osd) && damaged(s, pool, osd) == 0);
        check(&mut s, pool);
    }
}

/// The primary ends when a repair has begun, and a light scrub comes first when all is whole again: it says
/// nothing of what the repair was to make good, which is looked at again.
#[test]
fn a_light_scrub_does_not_end_a_repair() {
    for seed in 0..6 {
        let (mut s, pool, name) = cluster((4, 2), seed);
        let (first, members) = (primary(&s, pool), acting(&s, pool));
        let place = (0..6).cycle().skip(seed as usize).find(|at| members[*at] != first).unwrap();
        spoil(&mut s, pool, place, &name, |txn, key| {
            txn.write(key, CHUNK as u64 + 77, vec![0xe5; 9]);
        });
        until_found(&mut s, pool, How::Repair);
        s.until("over", |s| is_over(s, pool));
        for osd in members.iter().copied().filter(|osd| *osd != first) {
            s.deliver_all(first, osd);
        }
        s.commit(first);
        s.restart(first);
        let starts = |s: &Sim| lines(s, pool).first().is_some_and(|line| line.ends_with(" scrub starts"));
        s.until("asked", |s| {
            ask(s, pool, How::Light);
            starts(s) || lines(s, pool).iter().any(|line| line.contains(" scrub starts"))
        });
        s.until("good", |s| s.states().values().all(|t| t == "active+clean"));
        check(&mut s, pool);
    }
}
