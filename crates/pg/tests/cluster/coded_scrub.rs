//! Scrubs of erasure-coded PGs: what is wrong with a shard is found by its length, its attributes, its
//! checksums and the parity that all shards have, told by shard, and made good.

use pg::OsdConfig;
use store::{ObjectKey, Txn};
use types::PoolId;

use crate::coded_kit::{
    CHUNK, acting, bytes, check_shards, cluster_with, content, damage, one_request, primary, put_back, shard,
};
use crate::scrub::{How, found, lines, listed, scrub};
use crate::sim::Sim;

const READ: u64 = 1 << 3;
const EC_HASH: u64 = 1 << 12;
const EC_SIZE: u64 = 1 << 13;
const MISSING: u64 = 1 << 1;
const INFO_MISSING: u64 = 1 << 14;
/// Of the object, which blames no shard.
const DIGESTS_DIFFER: u64 = 1 << 4;

fn config(seed: u64) -> OsdConfig {
    // Strides of less than a shard, and chunks of few objects.
    OsdConfig {
        min_pg_log_entries: 200,
        deep_scrub_stride: [4096, 1 << 19][seed as usize % 2],
        scrub_chunk_max: 2,
        ..OsdConfig::default()
    }
}

fn cluster(code: (u8, u8), seed: u64) -> (Sim, PoolId) {
    let (mut s, pool) = cluster_with(code, code.0, 0, seed, config(seed));
    let map = s.mon.map.clone();
    for at in 0..4 {
        let content = bytes(&mut s, [0, 10, 3 * CHUNK + 5, 20 * CHUNK][at]);
        s.client.write(&map, pool, &format!("o{at}"), content);
    }
    s.settle();
    (s, pool)
}

#[test]
fn nothing_is_found_while_clients_write() {
    for (seed, code) in (0..6).zip([(2, 1), (4, 2), (6, 2)].into_iter().cycle()) {
        let (mut s, pool) = cluster(code, seed);
        for round in 0..6 {
            for _ in 0..6 {
                one_request(&mut s, pool);
                let steps = s.rng.below(10) as usize;
                s.run(steps);
            }
            let how = if round % 2 == 0 { How::Deep } else { How::Light };
            let end = scrub(&mut s, pool, how);
            assert!(end.ends_with("scrub ok"), "{end}: {:#?}", lines(&s, pool));
        }
        s.settle();
        check_shards(&mut s, pool);
    }
}

/// What may be wrong with a shard of "o3", and the bits that a scrub tells of it. Some of it takes a deep
/// one.
const FAULTS: [(&str, u64, bool); 6] = [
    ("is gone", MISSING, false),
    ("is too short", EC_SIZE, false),
    ("has no attributes", INFO_MISSING, false),
    ("does not pass its checksum", READ, true),
    ("has other bytes", EC_HASH, true),
    ("has zeros for bytes", EC_HASH, true),
];

fn spoil(s: &mut Sim, pool: PoolId, place: usize, fault: &str) {
    let osd = acting(s, pool)[place];
    let key = ObjectKey::new(place as i8, s.client.object(&s.mon.map, pool, "o3"));
    let mut txn = Txn::new();
    match fault {
        "is gone" => txn.remove(&key),
        "is too short" => txn.truncate(&key, CHUNK as u64),
        "has no attributes" => txn.rm_attr(&key, &b"_"[..]),
        "has other bytes" => txn.write(&key, CHUNK as u64 + 77, vec![0xe5; 9]),
        "has zeros for bytes" => txn.zero(&key, CHUNK as u64, 2 * CHUNK as u64),
        _ => return damage(s, pool, place, "o3"),
    };
    s.nodes[osd as usize].core.as_mut().unwrap().store_mut().submit(txn).unwrap();
    s.commit(osd);
}

#[test]
fn what_is_wrong_with_a_shard_is_found_told_and_made_good() {
    let mut seed = 0;
    for code in [(2, 2), (4, 2)] {
        for (fault, bit, is_deep) in FAULTS {
            for place in 0..usize::from(code.0 + code.1) {
                seed += 1;
                let (mut s, pool) = cluster(code, seed);
                spoil(&mut s, pool, place, fault);
                let osd = acting(&s, pool)[place];
                if is_deep {
                    assert!(scrub(&mut s, pool, How::Light).ends_with(" scrub ok"), "{fault}");
                } else {
                    let end = scrub(&mut s, pool, How::Light);
                    assert!(!end.ends_with("ok"), "{fault} at {place}: {end}");
                }
                let end = scrub(&mut s, pool, How::Deep);
                assert!(!end.ends_with("ok"), "{fault} at {place}: {end}");
                let (result, entries) = listed(&mut s, pool, false, "");
                assert_eq!((result, entries.len()), (0, 1), "{fault}");
                let (name, errors, shards) = found(&entries[0]);
                assert_eq!((&*name, errors & DIGESTS_DIFFER), ("o3", 0), "{fault} at {place}");
                for (other, errors) in shards {
                    let is_told = errors & bit != 0;
                    assert_eq!(is_told, other == osd, "{fault} at {place}: osd.{other} has {errors:x}");
                    assert!(is_told || errors == 0, "{fault} at {place}: osd.{other} has {errors:x}");
                }
                scrub(&mut s, pool, How::Repair);
                s.settle();
                check_shards(&mut s, pool);
                let end = scrub(&mut s, pool, How::Deep);
                assert!(end.ends_with(" deep-scrub ok"), "{fault}: {end}: {:#?}", lines(&s, pool));
            }
        }
    }
}

/// With one coding shard, parity that does not hold says of no shard that it is the wrong one: nothing is
/// repaired.
#[test]
fn nobody_is_blamed_where_nothing_tells_who_is_wrong() {
    for place in 0..3 {
        let (mut s, pool) = cluster((2, 1), 50 + place as u64);
        spoil(&mut s, pool, place, "has other bytes");
        for how in [How::Deep, How::Repair, How::Deep] {
            assert!(!scrub(&mut s, pool, how).ends_with("ok"));
        }
        let (_, entries) = listed(&mut s, pool, false, "");
        let (name, errors, shards) = found(&entries[0]);
        assert_eq!((&*name, errors), ("o3", DIGESTS_DIFFER));
        assert!(shards.iter().all(|(_, errors)| *errors == 0), "{shards:?}");
    }
}

/// Some two places of a code.
fn pairs(code: (u8, u8)) -> Vec<(usize, usize)> {
    let size = usize::from(code.0 + code.1);
    (0..size).flat_map(|a| [(a, (a + 1) % size), (a, (a + 3) % size)]).collect()
}

/// Where a shard is gone and the others do not match each other, nothing tells which of them is wrong: none
/// is made of them. It is made when they match again.
#[test]
fn nothing_is_made_of_shards_that_do_not_match() {
    for (seed, (gone, wrong)) in (100..).zip(pairs((4, 2))) {
        let (mut s, pool) = cluster((4, 2), seed);
        let object = s.client.object(&s.mon.map, pool, "o3");
        let members = acting(&s, pool);
        let was = content(&mut s, members[wrong], wrong, object);
        spoil(&mut s, pool, gone, "is gone");
        spoil(&mut s, pool, wrong, "has other bytes");
        assert!(!scrub(&mut s, pool, How::Repair).ends_with("ok"));
        s.run(2_000);
        assert_eq!(shard(&mut s, members[gone], gone, pool, "o3"), None, "it was made of a wrong one");
        put_back(&mut s, members[wrong], was);
        s.commit(members[wrong]);
        scrub(&mut s, pool, How::Repair);
        s.settle();
        check_shards(&mut s, pool);
        let end = scrub(&mut s, pool, How::Deep);
        assert!(end.ends_with(" deep-scrub ok"), "{end}: {:#?}", lines(&s, pool));
    }
}

/// Two shards of an object are wrong, and a scrub knows of both: neither is made of the other.
#[test]
fn no_shard_is_made_of_another_that_is_wrong() {
    for (seed, (gone, wrong)) in (150..).zip(pairs((4, 3))) {
        let (mut s, pool) = cluster((4, 3), seed);
        spoil(&mut s, pool, gone, ["is gone", "is too short"][seed as usize % 2]);
        spoil(&mut s, pool, wrong, "has other bytes");
        scrub(&mut s, pool, How::Repair);
        s.settle();
        check_shards(&mut s, pool);
        let end = scrub(&mut s, pool, How::Deep);
        assert!(end.ends_with(" deep-scrub ok"), "{end}: {:#?}", lines(&s, pool));
    }
}

/// The primary ends when it has told of what its repair will make: its shards say themselves that they are of
/// no use.
#[test]
fn what_a_scrub_has_found_outlives_the_interval() {
    for (seed, wrong) in (200..).zip(0..6) {
        let (mut s, pool) = cluster((4, 2), seed);
        let (first, members) = (primary(&s, pool), acting(&s, pool));
        if members[wrong] == first {
            continue;
        }
        spoil(&mut s, pool, wrong, "has other bytes");
        scrub(&mut s, pool, How::Repair);
        s.deliver_all(first, members[wrong]);
        s.commit(members[wrong]);
        if seed % 2 == 0 {
            s.restart(members[wrong]);
        }
        s.restart(first);
        // The errors go with the damage: the next primary looks again by itself.
        s.settle();
        check_shards(&mut s, pool);
        let end = scrub(&mut s, pool, How::Deep);
        assert!(end.ends_with(" deep-scrub ok"), "{end}: {:#?}", lines(&s, pool));
    }
}

/// Errors that were made good do not come back with another primary.
#[test]
fn errors_that_were_made_good_are_gone_for_all_members() {
    for seed in 300..304 {
        let (mut s, pool) = cluster((4, 2), seed);
        spoil(&mut s, pool, seed as usize % 6, "has other bytes");
        scrub(&mut s, pool, How::Repair);
        s.settle();
        s.run(200);
        let first = primary(&s, pool);
        s.kill(first);
        s.until("served", |s| primary(s, pool) != first && s.states().values().all(|t| t.contains("active")));
        assert!(s.states().values().all(|t| !t.contains("inconsistent")), "{:?}", s.states());
    }
}
