//! Shards of erasure-coded objects whose attributes do not decode, and writes that a member's store refuses:
//! nobody waits for ever for what cannot be read, and what cannot be made is told of and can be given up.

use bytes::Bytes;
use maps::flags::map_flags;
use messages::Message;
use store::{ObjectKey, Space, Txn};
use types::{HObject, PgId, PoolId, SpgId};

use crate::coded_kit::{
    CHUNK, a_member, acting, bytes, change, check_shards, cluster_with, damaged, lose, mark_damaged,
    place_of, primary, shard, short_log, under_way, with_object, write_others,
};
use crate::coded_pgs::mark;
use crate::sim::Sim;

/// The shard's info is none any more.
fn spoil_info(s: &mut Sim, pool: PoolId, osd: i32, object: &HObject) {
    change(s, pool, osd, object, |txn, key| {
        txn.set_attr(key, &b"_"[..], Bytes::from_static(b"no info"));
    });
}

/// An object of which the log tells nothing any more.
fn cluster(seed: u64) -> (Sim, PoolId, HObject) {
    let (mut s, pool) = with_object((2, 2), 3, seed, short_log(), 6 * CHUNK);
    let map = s.mon.map.clone();
    write_others(&mut s, pool, 8);
    let object = s.client.object(&map, pool, "o");
    (s, pool, object)
}

/// The primary's own shard does not say what it is: members do. It is known to be damaged, or a request finds
/// that, or a member's damage.
#[test]
fn a_primary_whose_own_info_does_not_decode_asks_members() {
    for seed in 0..9 {
        let (mut s, pool, object) = cluster(seed);
        let (first, (osd, _)) = (primary(&s, pool), a_member(&s, pool, seed));
        spoil_info(&mut s, pool, first, &object);
        match seed % 3 {
            0 => mark_damaged(&mut s, pool, first, &object),
            1 => mark_damaged(&mut s, pool, osd, &object),
            _ => {}
        }
        s.restart(osd);
        s.restart(first);
        s.settle();
        let map = s.mon.map.clone();
        s.client.read(&map, pool, "o");
        s.settle();
        s.until("made again", |s| damaged(s, pool, first) + damaged(s, pool, osd) == 0);
        s.settle();
        check_shards(&mut s, pool);
    }
}

/// No shard that is left says what it is of: the object is unfound, requests are answered, and it can be
/// given up.
#[test]
fn what_no_attributes_tell_of_is_unfound() {
    for seed in 0..8 {
        let (mut s, pool, object) = cluster(seed);
        let first = primary(&s, pool);
        let members = acting(&s, pool);
        for osd in members.iter().copied() {
            if osd == first && seed % 2 == 0 {
                lose(&mut s, pool, osd, &object);
            } else {
                spoil_info(&mut s, pool, osd, &object);
                mark_damaged(&mut s, pool, osd, &object);
            }
        }
        s.client.damage_allowed = true;
        for osd in members.iter().copied() {
            s.restart(osd);
        }
        let is_told = |s: &Sim| s.nodes.iter().any(|n| n.log.iter().any(|l| l.contains("is unfound")));
        s.until("unfound", |s| is_told(s));
        let map = s.mon.map.clone();
        s.client.read(&map, pool, "o");
        s.until("answered", |s| s.client.is_idle());
        assert_eq!(s.client.replies.last().unwrap().1.result, -5, "seed {seed}");
        // The next primary knows of it.
        if seed % 4 < 2 {
            let first = primary(&s, pool);
            s.restart(first);
            s.until("active", |s| s.states().values().all(|t| t.contains("active")));
        }
        s.until("given up", |s| mark(s, pool, "delete").1.contains("1 objects unfound"));
        s.settle();
        for osd in members {
            let place = place_of(&s, pool, osd);
            assert_eq!(shard(&mut s, osd, place, pool, "o"), None, "seed {seed}");
            s.until("forgotten", |s| damaged(s, pool, osd) == 0);
        }
    }
}

/// What a copy that is made by a backfill has left of a deleted object goes before the backfill comes to it.
#[test]
fn what_a_backfills_target_has_left_of_a_deleted_object_goes() {
    for seed in 0..4 {
        let (mut s, pool) = cluster_with((2, 2), 3, 1, seed, short_log());
        let map = s.mon.map.clone();
        let content = bytes(&mut s, 6 * CHUNK);
        s.client.write(&map, pool, "o", content);
        s.settle();
        let object = s.client.object(&map, pool, "o");
        s.client.remove(&map, pool, "o");
        s.settle();
        write_others(&mut s, pool, 8);
        // What it remembers of trimmed entries goes.
        let first = primary(&s, pool);
        s.restart(first);
        s.settle();
        s.mon.change(|inc, _| inc.new_flags = map_flags::NOBACKFILL as i32);
        let (gone, place) = a_member(&s, pool, seed);
        s.mon.mark_out(gone);
        let pgid = PgId::new(pool, 0);
        let up = |s: &Sim| s.mon.map.pg_to_up_acting(pgid).up;
        let target = up(&s)[place];
        let id = SpgId { pgid, shard: place as i8 };
        let is_there = |s: &Sim| {
            s.nodes[target as usize].core.as_ref().unwrap().pg_states().iter().any(|(pg, _)| *pg == id)
        };
        s.until("copied", |s| is_there(s));
        s.until("waits", |s| s.states().values().all(|t| t.contains("active") && t.contains("backfill")));
        let key = ObjectKey::new(place as i8, object.clone());
        let mut txn = Txn::new();
        txn.write(&key, 0, vec![7; CHUNK]).set_attr(&key, &b"_"[..], Bytes::from_static(b"no info"));
        let mark = [&b"x"[..], &codec::Encode::to_bytes(&object)].concat();
        txn.set(Space::Pg(id), mark, codec::Encode::to_bytes(&object));
        s.nodes[target as usize].core.as_mut().unwrap().store_mut().submit(txn).unwrap();
        s.commit(target);
        s.restart(target);
        s.until("gone", |s| {
            let Some(core) = s.nodes[target as usize].core.as_mut() else { return false };
            let store = core.store_mut();
            let marks = store.scan(Space::Pg(id), b"x", Some(b"y"), usize::MAX).unwrap().len();
            marks == 0 && store.stat(&key).unwrap().is_none()
        });
        assert_ne!(acting(&s, pool)[place], target, "seed {seed}: {:?}", s.states());
        s.mon.change(|inc, _| inc.new_flags = 0);
        s.settle();
        check_shards(&mut s, pool);
    }
}

/// Has a write that is under way to a member begin behind where any object may end.
fn misplace(s: &mut Sim, from: i32, to: i32, offset: u64) {
    let at = under_way(s, from, to, "RepOp").expect("a write");
    let Message::Unknown(msg) = &mut s.links.get_mut(&(from, to)).unwrap()[at] else { panic!() };
    let write = [&offset.to_le_bytes()[..], &(CHUNK as u32).to_le_bytes()].concat();
    let mut found = 0;
    for part in [&mut msg.front, &mut msg.middle, &mut msg.data] {
        let mut raw = part.to_vec();
        let places: Vec<usize> = (0..raw.len()).filter(|at| raw[*at..].starts_with(&write)).collect();
        found += places.len();
        places.into_iter().for_each(|at| raw[at + 7] = 0x7f);
        *part = raw.into();
    }
    assert_eq!(found, 1);
}

/// A member's store refuses a write although all that it copies of is there: what the write changes is made
/// again there before it runs anew.
#[test]
fn what_a_refused_write_changes_is_made_again() {
    for seed in 0..6 {
        let (mut s, pool) = with_object((2, 2), 3, seed, short_log(), 12 * CHUNK);
        let map = s.mon.map.clone();
        let (first, (osd, _)) = (primary(&s, pool), a_member(&s, pool, seed));
        let stripe = bytes(&mut s, 2 * CHUNK);
        s.client.patch(&map, pool, "o", 6 * CHUNK, &stripe);
        s.deliver_requests(first);
        s.until("shipped", |s| under_way(s, first, osd, "RepOp").is_some());
        misplace(&mut s, first, osd, 3 * CHUNK as u64);
        s.settle();
        let log = &s.nodes[osd as usize].log;
        assert!(log.iter().any(|l| l.contains("cannot apply a write")), "{log:?}");
        assert!(log.iter().any(|l| l.contains("is damaged here")), "{log:?}");
        s.until("made again", |s| damaged(s, pool, osd) == 0);
        check_shards(&mut s, pool);
    }
}
