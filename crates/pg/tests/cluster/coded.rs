//! Erasure-coded PGs: what shards hold is what clients wrote, whichever of them are left; what too few of
//! them have is taken back, and what has missed a write is read by nobody.

use std::collections::BTreeMap;

use messages::Message;
use pg::{OsdConfig, Portions};
use store::{ObjectKey, Txn};
use types::PoolId;

use crate::coded_kit::{
    CHUNK, acting, bytes, check_shards, cluster_with, one_request, primary, shard, under_way,
};
use crate::sim::Sim;

/// One OSD for each of `k` and `m` shards.
fn cluster(k: u8, m: u8, min_size: u8, seed: u64) -> (Sim, PoolId) {
    let config = OsdConfig { min_pg_log_entries: 200, ..OsdConfig::default() };
    cluster_with((k, m), min_size, 0, seed, config)
}

#[test]
fn what_clients_write_is_on_all_shards_and_reads_back() {
    for seed in 0..6 {
        let (k, m) = [(2, 1), (2, 2), (3, 2)][seed as usize % 3];
        let (mut s, pool) = cluster(k, m, k + 1.min(m - 1), seed);
        for _ in 0..60 {
            one_request(&mut s, pool);
            let steps = s.rng.below(30) as usize;
            s.run(steps);
        }
        s.settle();
        check_shards(&mut s, pool);
        assert!(s.client.acked > 10);
    }
}

/// Parts of objects are what they are, whether they lie in one chunk, at the primary or elsewhere, while
/// writes of the same objects go on, an OSD is down, or what was read before has to come from the device.
#[test]
fn parts_of_objects_read_as_they_are() {
    for seed in 0..9 {
        let (k, m) = [(2, 1), (4, 2), (2, 2)][seed as usize % 3];
        let (mut s, pool) = cluster(k, m, k, seed);
        let map = s.mon.map.clone();
        for at in 0..3 {
            let content = bytes(&mut s, 5 * CHUNK * usize::from(k) + at * 1000);
            s.client.write(&map, pool, &format!("o{at}"), content);
        }
        s.settle();
        for round in 0..150 {
            match round {
                50 => s.restart(primary(&s, pool)),
                100 => s.kill(acting(&s, pool)[usize::from(k)]),
                _ => {}
            }
            let (name, map) = (format!("o{}", s.rng.below(3)), s.mon.map.clone());
            if s.client.is_busy(&name) {
                s.run(5);
                continue;
            }
            let size = s.client.model[&name].acked.as_ref().map_or(0, Vec::len);
            let at = s.rng.below(size as u64 + 100) as usize;
            // Some end with a chunk, or begin with one.
            let at = if s.rng.below(3) == 0 { at / CHUNK * CHUNK } else { at };
            let len = [1, 100, CHUNK - at % CHUNK, CHUNK, 3 * CHUNK, 40 * CHUNK][s.rng.below(6) as usize];
            if s.rng.below(4) == 0 {
                let part = bytes(&mut s, len.min(5000));
                s.client.patch(&map, pool, &name, at.min(size), &part);
            } else {
                s.client.read_part(&map, pool, &name, (at, len));
            }
        }
        s.until("answered", |s| s.client.is_idle());
    }
}

/// Requests of one object keep their order, although a write first reads what it needs of other shards.
#[test]
fn a_read_behind_a_write_that_gathers_sees_what_it_wrote() {
    for seed in 0..20 {
        let (mut s, pool) = cluster(2, 1, 2, seed);
        let map = s.mon.map.clone();
        let content = bytes(&mut s, 6 * CHUNK);
        s.client.write(&map, pool, "o", content);
        s.settle();
        for round in 0..4 {
            let part = vec![round; 100];
            let at = s.rng.below(5 * CHUNK as u64) as usize;
            s.client.patch(&map, pool, "o", at, &part);
            s.deliver_requests(primary(&s, pool));
            // The model has the write as one that is under way; the answer must be what it leaves.
            let open = s.client.model["o"].open.clone();
            let was = s.client.model.get_mut("o").unwrap().acked.take();
            s.client.goes_on("o");
            s.client.read(&map, pool, "o");
            s.deliver_requests(primary(&s, pool));
            s.settle();
            assert!(was.is_some() && s.client.model["o"].acked == open[0]);
        }
        check_shards(&mut s, pool);
    }
}

/// With a shard less, data is made from the others; writes go on while there are min_size.
#[test]
fn an_osd_that_is_down_is_done_without() {
    for seed in 0..4 {
        let (mut s, pool) = cluster(2, 2, 3, seed);
        let map = s.mon.map.clone();
        for name in ["o0", "o1", "o2", "o3"] {
            let content = bytes(&mut s, 5 * CHUNK + 77);
            s.client.write(&map, pool, name, content);
        }
        s.settle();
        let members = acting(&s, pool);
        s.kill(members[seed as usize]);
        s.until("active", |s| s.states().values().all(|t| t.contains("active")));
        for _ in 0..60 {
            one_request(&mut s, pool);
            let steps = s.rng.below(30) as usize;
            s.run(steps);
        }
        s.until("answered", |s| s.client.is_idle());
        // Another one: no client is served, and nothing is lost.
        let another = members[(seed as usize + 1) % 4];
        s.kill(another);
        let map = s.mon.map.clone();
        s.client.read(&map, pool, "o1");
        s.run(3_000);
        assert!(!s.client.is_idle(), "fewer than min_size serve nobody");
        s.start(another);
        s.until("answered", |s| s.client.is_idle());
    }
}

/// A write that fewer members have than make up the data was acknowledged by nobody. Those that have it take
/// it back.
#[test]
fn a_write_that_too_few_have_is_taken_back() {
    let mut taken_back = 0;
    for seed in 0..24 {
        let (k, m) = [(2, 1), (2, 2)][seed as usize % 2];
        let (mut s, pool) = cluster(k, m, k, seed);
        let map = s.mon.map.clone();
        let content = bytes(&mut s, 4 * CHUNK + 100);
        s.client.write(&map, pool, "o", content.clone());
        s.settle();
        let first = primary(&s, pool);
        let members = acting(&s, pool);
        let others: Vec<i32> = members.iter().copied().filter(|osd| *osd != first).collect();
        let at = s.rng.below(3 * CHUNK as u64) as usize;
        let part = bytes(&mut s, 500);
        match seed % 3 {
            0 => s.client.remove(&map, pool, "o"),
            1 => s.client.write(&map, pool, "o", part.clone()),
            _ => s.client.patch(&map, pool, "o", at, &part),
        };
        s.deliver_requests(first);
        s.until("shipped", |s| others.iter().all(|to| under_way(s, first, *to, "RepOp").is_some()));
        // The primary has it durable, and some of the others.
        s.client.paused = true;
        s.commit(first);
        let have = seed as usize % others.len();
        for other in &others[..have.min(usize::from(k) - 1)] {
            s.deliver_all(first, *other);
            s.commit(*other);
        }
        s.kill(first);
        s.until("goes on", |s| {
            let whole = acting(s, pool).iter().filter(|osd| **osd != first).all(|osd| s.is_up_to_date(*osd));
            whole && s.states().values().all(|t| t.contains("active"))
        });
        s.start(first);
        s.until("whole", |s| s.all_are("active+clean"));
        taken_back += 1;
        // What was acknowledged counts, until the client sends again.
        let open = std::mem::take(&mut s.client.model.get_mut("o").unwrap().open);
        check_shards(&mut s, pool);
        s.client.model.get_mut("o").unwrap().open = open;
        s.client.paused = false;
        s.settle();
        check_shards(&mut s, pool);
    }
    assert_eq!(taken_back, 24);
}

/// An object, and a shard of it that was put back to what it was before the last write.
pub fn with_a_stale_shard(seed: u64) -> (Sim, PoolId) {
    let (mut s, pool) = cluster(2, 2, 3, seed);
    let map = s.mon.map.clone();
    let old = bytes(&mut s, 6 * CHUNK);
    s.client.write(&map, pool, "o", old);
    s.settle();
    let members = acting(&s, pool);
    let first = primary(&s, pool);
    let others: Vec<usize> = (0..members.len()).filter(|at| members[*at] != first).collect();
    let place = others[seed as usize % others.len()];
    let osd = members[place];
    let key = ObjectKey::new(place as i8, s.client.object(&map, pool, "o"));
    let store = s.nodes[osd as usize].core.as_mut().unwrap().store_mut();
    let info = store.attr(&key, b"_").unwrap().unwrap();
    let data = shard(&mut s, osd, place, pool, "o").unwrap();
    let new = bytes(&mut s, 6 * CHUNK);
    s.client.write(&map, pool, "o", new);
    s.settle();
    let mut txn = Txn::new();
    txn.write(&key, 0, data).set_attr(&key, &b"_"[..], info);
    s.nodes[osd as usize].core.as_mut().unwrap().store_mut().submit(txn).unwrap();
    (s, pool)
}

/// A shard of another version has missed a write. It is no part of any answer.
#[test]
fn a_stale_shard_is_not_mixed_in() {
    for seed in 0..6 {
        let (mut s, pool) = with_a_stale_shard(seed);
        let map = s.mon.map.clone();
        for _ in 0..3 {
            s.client.read(&map, pool, "o");
            s.until("read", |s| s.client.is_idle());
        }
    }
}

/// The next write names the version that it follows: a shard that has missed one tells so, and is not read
/// although it has the newest version then. A shard that a write only skips has heard of it, and is.
#[test]
fn a_write_does_not_make_a_stale_shard_good() {
    for seed in 0..12 {
        let (mut s, pool) = with_a_stale_shard(seed);
        let map = s.mon.map.clone();
        // A stripe behind the others: nothing is read for that.
        let part = bytes(&mut s, 2 * CHUNK);
        s.client.patch(&map, pool, "o", 6 * CHUNK, &part);
        s.until("written", |s| s.client.is_idle());
        s.client.read(&map, pool, "o");
        s.until("read", |s| s.client.is_idle());
    }
}

/// A coding chunk is not what it should be once something is added to it twice.
#[test]
fn a_write_that_comes_twice_is_not_applied_twice() {
    for seed in 0..6 {
        let (mut s, pool) = cluster(2, 2, 3, seed);
        let map = s.mon.map.clone();
        let content = bytes(&mut s, 6 * CHUNK);
        s.client.write(&map, pool, "o", content);
        s.settle();
        let first = primary(&s, pool);
        let members = acting(&s, pool);
        s.client.patch(&map, pool, "o", 10, &[7; 30]);
        s.deliver_requests(first);
        let coding: Vec<i32> = members[2..].iter().copied().filter(|osd| *osd != first).collect();
        s.until("shipped", |s| coding.iter().all(|to| under_way(s, first, *to, "RepOp").is_some()));
        for to in &coding {
            let at = under_way(&s, first, *to, "RepOp").unwrap();
            let link = s.links.get_mut(&(first, *to)).unwrap();
            let again: Message = link[at].clone();
            link.insert(at + 1, again);
        }
        s.settle();
        check_shards(&mut s, pool);
    }
}

/// What the medium has changed is noticed, and made from other shards.
#[test]
fn a_damaged_shard_is_done_without() {
    let (mut s, pool) = cluster(2, 2, 3, 4);
    let map = s.mon.map.clone();
    let content = [vec![0x11; CHUNK], vec![0x22; CHUNK]].concat().repeat(30);
    s.client.write(&map, pool, "o", content);
    s.settle();
    for place in [0, 1] {
        let osd = acting(&s, pool)[place];
        let (value, device) = ([0x11, 0x22][place], s.nodes[osd as usize].device.clone());
        // Nothing of it is in memory any more.
        s.restart(osd);
        s.settle();
        let blocks = (0..store::Device::len(&*device)).step_by(CHUNK);
        let blocks: Vec<u64> = blocks.filter(|at| device.peek(*at, CHUNK) == [value; CHUNK]).collect();
        assert!(blocks.len() >= 30);
        let device = s.nodes[osd as usize].device.clone();
        blocks.iter().for_each(|at| device.flip(at + 9, 1));
        s.client.read(&map, pool, "o");
        s.settle();
    }
    let log: BTreeMap<usize, usize> = s
        .nodes
        .iter()
        .enumerate()
        .map(|(osd, n)| (osd, n.log.iter().filter(|l| l.contains("no data")).count()))
        .collect();
    assert!(log.values().sum::<usize>() >= 2, "{log:?}");
}

/// A write of another shard than the member has is refused: nothing of it is stored, and nothing is read of
/// it.
#[test]
fn a_shard_in_another_place_is_refused() {
    for seed in 0..6 {
        let (k, m) = [(2, 1), (4, 2), (6, 2)][seed as usize % 3];
        let (mut s, pool) = cluster(k, m, k, seed);
        let map = s.mon.map.clone();
        let content = bytes(&mut s, 20 * CHUNK);
        s.client.write(&map, pool, "o", content);
        s.settle();
        let first = primary(&s, pool);
        let members = acting(&s, pool);
        let place = (0..members.len()).find(|at| members[*at] != first).unwrap();
        let osd = members[place];
        // It changes the attributes of every shard.
        let part = bytes(&mut s, 100);
        s.client.patch(&map, pool, "o", 7, &part);
        s.deliver_requests(first);
        s.until("shipped", |s| under_way(s, first, osd, "RepOp").is_some());
        let at = under_way(&s, first, osd, "RepOp").unwrap();
        let Message::Unknown(msg) = &mut s.links.get_mut(&(first, osd)).unwrap()[at] else { panic!() };
        // One object, of this shard.
        let (mut front, key) = (msg.front.to_vec(), [1, 0, 0, 0, place as u8, 4, 3]);
        let found = front.windows(key.len()).position(|bytes| bytes == key).expect("the object's key");
        front[found + 4] = ((place + 1) % members.len()) as u8;
        msg.front = front.into();
        s.settle();
        check_shards(&mut s, pool);
        let node = &mut s.nodes[osd as usize];
        assert!(node.log.iter().any(|line| line.contains("got a write") && line.contains("of shard")));
        let all = node.core.as_mut().unwrap().store_mut().list_all(None, usize::MAX).unwrap();
        assert!(all.iter().all(|key| usize::try_from(key.shard) == Ok(place)), "{all:?}");
        assert!(crate::counters::counter(&mut s, osd, "loligo_shards_refused") > 0);
    }
}

/// What the device has to be waited for is read outside the cores, at the primary and at members.
#[test]
fn shards_are_read_outside_the_core() {
    let mut seen = std::collections::BTreeSet::new();
    for seed in [1, 3, 5] {
        let (k, m) = [(2, 1), (4, 2), (6, 2)][seed as usize % 3];
        let (mut s, pool) = cluster(k, m, k, seed);
        let map = s.mon.map.clone();
        let content = bytes(&mut s, 100 * CHUNK);
        s.client.write(&map, pool, "o", content);
        s.settle();
        let members = acting(&s, pool);
        for osd in &members {
            s.restart(*osd);
            s.settle();
        }
        s.client.read(&map, pool, "o");
        s.until("read", |s| {
            let asked = (0..members.len()).filter(|at| !s.nodes[members[*at] as usize].reads.is_empty());
            seen.extend(asked.map(|at| members[at] == primary(s, pool)));
            s.client.is_idle()
        });
    }
    assert_eq!(seen.len(), 2, "a primary and a member");
}

/// What requests gather is on their client's account and has a bound: those that find no room wait, and all
/// are answered in the end.
#[test]
fn what_is_gathered_counts_and_has_a_bound() {
    let mut most = 0;
    for seed in 0..4 {
        let size = 20 * CHUNK as u64;
        let portions = Portions { gathered: 3 * size, ..Portions::default() };
        let config = OsdConfig { portions, ..OsdConfig::default() };
        let mut s = Sim::with_config(4, seed, config);
        s.until("all up", |s| (0..4).all(|o| s.mon.map.is_up(o)));
        let pool = s.mon.create_coded_pool(2, 2, 3);
        s.settle();
        let map = s.mon.map.clone();
        for at in 0..12 {
            let content = bytes(&mut s, size as usize);
            s.client.write(&map, pool, &format!("o{at}"), content);
        }
        s.settle();
        let first = primary(&s, pool) as usize;
        for at in 0..12 {
            let name = format!("o{at}");
            match at % 3 {
                0 => s.client.read_and_write(&map, pool, &name, &[at; 100]),
                1 => s.client.read(&map, pool, &name),
                _ => s.client.patch(&map, pool, &name, CHUNK + 7, &[at; 3 * CHUNK]),
            };
        }
        s.until("answered", |s| {
            let core = s.nodes[first].core.as_ref().unwrap();
            let (gathered, all) = (core.gathered_bytes(), core.request_bytes());
            // What one of them reads, and what is put together of it.
            assert!(gathered <= 3 * size && all >= gathered, "{gathered} of {all} bytes");
            most = most.max(gathered);
            s.client.is_idle()
        });
        let core = s.nodes[first].core.as_ref().unwrap();
        assert_eq!((core.gathered_bytes(), core.request_bytes()), (0, 0));
        for at in (0..12).step_by(3) {
            s.client.model.get_mut(&format!("o{at}")).unwrap().acked = Some(vec![at; 100]);
        }
        check_shards(&mut s, pool);
    }
    assert!(most > 0);
}
