//! What members say that they have of an object of which the primary knows nothing: it was deleted long
//! ago, or the primary has lost it without a trace.

use bytes::Bytes;
use messages::Message;
use types::PoolId;

use crate::coded_kit::{
    CHUNK, a_member, acting, bytes, change, check_shards, cluster_with, damaged, lose, mark_damaged,
    place_of, primary, shard, short_log, under_way, with_object, write_others,
};
use crate::sim::Sim;

/// An object of which the log tells nothing any more.
fn cluster(seed: u64) -> (Sim, PoolId) {
    with_object((2, 2), 3, seed, short_log(), 6 * CHUNK)
}

/// The primary has lost its shard without a trace. Another copy, or the primary itself, has lost its own as
/// well and knows of that: it is made again, and so is the primary's.
#[test]
fn what_the_primary_has_lost_is_asked_for() {
    for seed in 0..8 {
        let (mut s, pool) = cluster(seed);
        let (first, (osd, _)) = (primary(&s, pool), a_member(&s, pool, seed));
        write_others(&mut s, pool, 8);
        let object = s.client.object(&s.mon.map, pool, "o");
        lose(&mut s, pool, first, &object);
        s.restart(first);
        s.settle();
        let teller = if seed % 4 == 3 { first } else { osd };
        lose(&mut s, pool, osd, &object);
        mark_damaged(&mut s, pool, teller, &object);
        s.restart(teller);
        s.settle();
        s.until("made", |s| damaged(s, pool, teller) == 0);
        if teller == osd {
            check_shards(&mut s, pool);
        } else {
            let place = place_of(&s, pool, first);
            assert!(shard(&mut s, first, place, pool, "o").is_some(), "seed {seed}");
        }
    }
}

/// A mark that has outlived its object, which nobody has and of which the log tells nothing, goes.
#[test]
fn a_mark_of_an_object_that_nobody_has_goes() {
    for seed in 0..4 {
        let (mut s, pool) = cluster(seed);
        let (first, (osd, _)) = (primary(&s, pool), a_member(&s, pool, seed));
        let (object, map) = (s.client.object(&s.mon.map, pool, "o"), s.mon.map.clone());
        s.client.remove(&map, pool, "o");
        s.settle();
        write_others(&mut s, pool, 8);
        let teller = if seed % 2 == 0 { first } else { osd };
        mark_damaged(&mut s, pool, teller, &object);
        s.restart(teller);
        s.until("gone", |s| acting(s, pool).contains(&teller) && damaged(s, pool, teller) == 0);
        s.settle();
        check_shards(&mut s, pool);
    }
}

/// A deleted object of which something is left at one member, whose attributes do not decode: it goes, with
/// its mark, whether or not the log tells of the deletion.
#[test]
fn what_does_not_decode_and_was_deleted_goes() {
    for seed in 0..4 {
        let (mut s, pool) = cluster(seed);
        let (osd, place) = a_member(&s, pool, seed);
        let (object, map) = (s.client.object(&s.mon.map, pool, "o"), s.mon.map.clone());
        s.client.remove(&map, pool, "o");
        s.settle();
        write_others(&mut s, pool, [0, 8][seed as usize % 2]);
        change(&mut s, pool, osd, &object, |txn, key| {
            txn.write(key, 0, vec![7; CHUNK]).set_attr(key, &b"_"[..], Bytes::from_static(b"no info"));
        });
        mark_damaged(&mut s, pool, osd, &object);
        s.restart(osd);
        s.until("gone", |s| acting(s, pool).contains(&osd) && damaged(s, pool, osd) == 0);
        s.settle();
        assert_eq!(shard(&mut s, osd, place, pool, "o"), None);
    }
}

/// Makes an answer about what a member has, which is under way, one that says that it cannot tell.
fn cannot_list(s: &mut Sim, from: i32, to: i32) {
    let at = under_way(s, from, to, "ScrubMap").expect("an answer");
    let Message::Unknown(msg) = &mut s.links.get_mut(&(from, to)).unwrap()[at] else { panic!() };
    let front = msg.front.to_vec();
    let len_at = |at: usize| u32::from_le_bytes(front[at..at + 4].try_into().unwrap()) as usize;
    let begins = |at: &usize| front[*at..at + 3] == [27, 1, 1] && len_at(at + 3) == front.len() - at - 7;
    let at = (0..front.len() - 7).find(begins).expect("the answer") + 7;
    let (mut new, id) = (front[..at - 4].to_vec(), &front[at..at + 8]);
    // No objects, nothing more, and why.
    let content = [id, &[0; 5], &[1, 2, 0, 0, 0], b"no"].concat();
    new.extend((content.len() as u32).to_le_bytes());
    new.extend(content);
    msg.front = new.into();
}

/// A member cannot list what it has of a range that is to be backfilled: that is no proof that there is
/// nothing.
#[test]
fn who_cannot_list_a_range_does_not_count_as_empty() {
    for seed in 0..6 {
        let (mut s, pool) = cluster_with((2, 2), 3, 1, seed, short_log());
        let map = s.mon.map.clone();
        let content = bytes(&mut s, 6 * CHUNK);
        s.client.write(&map, pool, "o", content);
        s.settle();
        write_others(&mut s, pool, 8);
        let (first, object) = (primary(&s, pool), s.client.object(&map, pool, "o"));
        lose(&mut s, pool, first, &object);
        s.restart(first);
        s.settle();
        let (osd, _) = a_member(&s, pool, seed);
        s.mon.mark_out(osd);
        let witness = |s: &Sim| {
            let mut all = 0..s.nodes.len() as i32;
            all.find(|from| under_way(s, *from, first, "ScrubMap").is_some())
        };
        s.until("asked", |s| witness(s).is_some());
        let from = witness(&s).unwrap();
        cannot_list(&mut s, from, first);
        s.settle();
        let told =
            |node: &crate::sim::Node| node.log.iter().any(|l| l.contains("cannot list its objects: no"));
        assert!(s.nodes.iter().any(told), "seed {seed}");
        assert!(!acting(&s, pool).contains(&osd));
        check_shards(&mut s, pool);
    }
}

/// The same of an object that members are asked about: the cluster log hears of it once.
#[test]
fn who_cannot_list_is_told_of_once() {
    for seed in 0..4 {
        let (mut s, pool) = cluster(seed);
        let (first, (osd, _)) = (primary(&s, pool), a_member(&s, pool, seed));
        let (object, map) = (s.client.object(&s.mon.map, pool, "o"), s.mon.map.clone());
        s.client.remove(&map, pool, "o");
        s.settle();
        write_others(&mut s, pool, 8);
        mark_damaged(&mut s, pool, osd, &object);
        s.restart(osd);
        s.restart(first);
        for _ in 0..3 {
            s.until("asked", |s| under_way(s, osd, first, "ScrubMap").is_some());
            cannot_list(&mut s, osd, first);
            s.deliver_all(osd, first);
        }
        let told = |l: &&String| l.contains("cannot list its objects: no");
        assert_eq!(s.nodes[first as usize].log.iter().filter(told).count(), 1, "seed {seed}");
        s.until("gone", |s| damaged(s, pool, osd) == 0);
        s.settle();
        check_shards(&mut s, pool);
    }
}

/// Two copies know of an object: the primary has lost its shard and knows that, another one has a good one,
/// and the rest has lost theirs without a trace. It cannot be made, and was not deleted all the same.
#[test]
fn what_two_copies_know_of_is_not_deleted() {
    for seed in 0..6 {
        let (mut s, pool) = cluster(seed);
        let (first, (osd, place)) = (primary(&s, pool), a_member(&s, pool, seed));
        write_others(&mut s, pool, 8);
        let object = s.client.object(&s.mon.map, pool, "o");
        for other in acting(&s, pool).into_iter().filter(|other| *other != osd) {
            lose(&mut s, pool, other, &object);
        }
        mark_damaged(&mut s, pool, first, &object);
        s.client.damage_allowed = true;
        s.restart(first);
        let is_told = |s: &Sim| s.nodes.iter().any(|n| n.log.iter().any(|l| l.contains("is unfound")));
        s.until("unfound", |s| is_told(s));
        for _ in 0..20 {
            s.run(500);
            s.tick(std::time::Duration::from_millis(500));
        }
        assert!(shard(&mut s, osd, place, pool, "o").is_some(), "seed {seed}");
        assert!(s.nodes.iter().all(|n| n.log.iter().all(|l| !l.contains("is lost for good"))));
    }
}
