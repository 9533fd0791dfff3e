//! Heads and their clones in erasure-coded PGs: what a write copies of, and what waits while the head is
//! written.

use codec::{Decode, Encode};
use pg::OsdConfig;
use pg::object::ObjectInfo;
use store::{ObjectKey, Txn};
use types::{PoolId, SnapContext, SnapId};

use crate::coded_kit::{
    CHUNK, a_member, bytes, check_object, check_shards, cluster_with, damaged, lose, mark_damaged, place_of,
    primary, short_log, under_way, write_others,
};
use crate::sim::Sim;

fn cluster(seed: u64) -> (Sim, PoolId) {
    let config = OsdConfig { min_pg_log_entries: 200, ..OsdConfig::default() };
    cluster_with((2, 2), 3, 0, seed, config)
}

/// The next write of the head makes a clone for this snapshot.
fn take_snapshot(s: &mut Sim, id: u64) {
    s.client.snapc = SnapContext { seq: id, snaps: vec![id] };
}

/// A member cannot make a clone, or a rolled back head, of a shard that it has lost without a trace. It says
/// what it lacks, and the write is not refused for ever.
#[test]
fn what_a_write_copies_of_is_made_first_where_it_is_gone() {
    for seed in 0..12 {
        let (mut s, pool) = cluster(seed);
        let map = s.mon.map.clone();
        let (old, new) = (bytes(&mut s, 6 * CHUNK + 7), bytes(&mut s, 5 * CHUNK));
        s.client.write(&map, pool, "o", old.clone());
        s.settle();
        let head = s.client.object(&map, pool, "o");
        let clone = head.at(SnapId(1));
        let (osd, _) = a_member(&s, pool, seed);
        take_snapshot(&mut s, 1);
        if seed % 2 == 0 {
            lose(&mut s, pool, osd, &head);
            let part = bytes(&mut s, CHUNK);
            s.client.patch(&map, pool, "o", 2 * CHUNK, &part);
        } else {
            s.client.write(&map, pool, "o", new);
            s.settle();
            lose(&mut s, pool, osd, &clone);
            s.client.rollback(&map, pool, "o", SnapId(1), old.clone());
        }
        s.until("written", |s| s.client.is_idle());
        s.settle();
        s.until("made again", |s| damaged(s, pool, osd) == 0);
        check_shards(&mut s, pool);
        check_object(&mut s, pool, &clone, &old);
    }
}

/// That it lacks what a write copies of is durable with the member, which ends before the primary hears of
/// it.
#[test]
fn a_member_remembers_what_a_refused_write_was_to_copy_of() {
    for seed in 0..3 {
        let (mut s, pool) = cluster(seed);
        let map = s.mon.map.clone();
        let old = bytes(&mut s, 6 * CHUNK);
        s.client.write(&map, pool, "o", old.clone());
        s.settle();
        let head = s.client.object(&map, pool, "o");
        let (first, (osd, _)) = (primary(&s, pool), a_member(&s, pool, seed));
        take_snapshot(&mut s, 1);
        lose(&mut s, pool, osd, &head);
        s.client.write(&map, pool, "o", old.clone());
        s.deliver_requests(first);
        s.until("shipped", |s| under_way(s, first, osd, "RepOp").is_some());
        s.deliver_all(first, osd);
        s.commit(osd);
        assert_eq!(damaged(&mut s, pool, osd), 1);
        s.restart(osd);
        s.until("written", |s| s.client.is_idle());
        s.settle();
        s.until("made again", |s| damaged(s, pool, osd) == 0);
        check_shards(&mut s, pool);
        check_object(&mut s, pool, &head.at(SnapId(1)), &old);
    }
}

/// A member lacks a clone, and other objects come before it. Meanwhile the head is written without a pause:
/// the clone is made between two of the writes.
#[test]
fn a_clone_is_made_while_its_head_is_written() {
    for seed in 0..4 {
        let config = OsdConfig { min_pg_log_entries: 5_000, recovery_max_active: 1, ..OsdConfig::default() };
        let (mut s, pool) = cluster_with((2, 2), 3, 0, seed, config);
        let map = s.mon.map.clone();
        let old = bytes(&mut s, 6 * CHUNK);
        s.client.write(&map, pool, "o", old.clone());
        s.settle();
        let clone = ObjectKey::new(0, s.client.object(&map, pool, "o").at(SnapId(1)));
        let (osd, place) = a_member(&s, pool, seed);
        s.kill(osd);
        s.until("served", |s| s.states().values().all(|t| t.contains("active+undersized")));
        let map = s.mon.map.clone();
        for at in 0..6 {
            let content = bytes(&mut s, 20 * CHUNK);
            s.client.write(&map, pool, &format!("before{at}"), content);
        }
        s.until("written", |s| s.client.is_idle());
        take_snapshot(&mut s, 1);
        s.client.write(&map, pool, "o", vec![0; 10]);
        s.until("written", |s| s.client.is_idle());
        s.start(osd);
        s.until("up", |s| s.mon.map.is_up(osd));
        let key = ObjectKey { shard: place as i8, ..clone };
        let (map, acked) = (s.mon.map.clone(), s.client.acked);
        let mut sent = 0;
        let mut is_made = false;
        for step in 0..40_000 {
            while sent < s.client.acked - acked + 3 {
                s.client.goes_on("o");
                s.client.write(&map, pool, "o", vec![sent as u8; 10]);
                sent += 1;
            }
            s.run(1);
            let core = s.nodes[osd as usize].core.as_mut().unwrap();
            is_made = is_made || step % 50 == 0 && core.store_mut().stat(&key).unwrap().is_some();
            if is_made {
                break;
            }
        }
        assert!(is_made, "seed {seed}: {sent} writes, and no clone");
        s.settle();
        check_object(&mut s, pool, &key.object, &old);
    }
}

/// The primary has missed a write of a clone, and sends what it has to a member that has lost its shard's
/// data. The member refuses that while the head is written: the clone is made anew, in the version that it
/// has.
#[test]
fn a_clone_that_is_refused_while_its_head_is_written_is_made_anew() {
    for seed in 0..6 {
        let (mut s, pool) = cluster_with((2, 2), 3, 0, seed, short_log());
        let map = s.mon.map.clone();
        // No data, for which no other shard is asked.
        s.client.write(&map, pool, "o", Vec::new());
        s.settle();
        take_snapshot(&mut s, 1);
        let content = bytes(&mut s, 6 * CHUNK);
        s.client.write(&map, pool, "o", content);
        s.settle();
        write_others(&mut s, pool, 8);
        let (first, (osd, _)) = (primary(&s, pool), a_member(&s, pool, seed));
        let place = place_of(&s, pool, first);
        let clone = s.client.object(&map, pool, "o").at(SnapId(1));
        let key = ObjectKey::new(place as i8, clone.clone());
        let store = s.nodes[first as usize].core.as_mut().unwrap().store_mut();
        let mut info = ObjectInfo::from_bytes(store.attr(&key, b"_").unwrap().unwrap()).unwrap();
        info.version.version -= 1;
        let mut txn = Txn::new();
        txn.set_attr(&key, &b"_"[..], info.to_bytes());
        store.submit(txn).unwrap();
        s.commit(first);
        s.restart(first);
        s.settle();
        mark_damaged(&mut s, pool, osd, &clone);
        s.restart(osd);
        s.until("sent", |s| under_way(s, first, osd, "Push").is_some());
        let content = bytes(&mut s, 4 * CHUNK);
        s.client.write(&s.mon.map.clone(), pool, "o", content);
        s.deliver_requests(first);
        assert!(under_way(&s, first, osd, "RepOp").is_some(), "seed {seed}");
        s.deliver_all(first, osd);
        s.deliver_all(osd, first);
        s.settle();
        s.until("made", |s| damaged(s, pool, osd) == 0);
        check_shards(&mut s, pool);
        check_object(&mut s, pool, &clone, &[]);
    }
}
