//! Shards that have missed a write, as after a medium that lost one: they are told by the version that the
//! log names, wherever they are, and are made again.

use ::bytes::Bytes;
use erasure::ChunkSet;
use messages::Message;
use messages::osd::{Extent, Op};
use pg::coded::Geometry;
use pg::{OsdConfig, Portions};
use store::{ObjectKey, Txn};
use types::{PoolId, SnapContext, SnapId};

use crate::coded_kit::{
    CHUNK, a_member, acting, bytes, check_object, check_shards, cluster_with, content, damage, damaged,
    long_log, lose, mark_damaged, place_of, primary, put_back, shard, short_log, start_empty, under_way,
    with_object, write_others,
};
use crate::sim::Sim;

/// An object of which the primary's shard is what it was before the last write: six chunks, or nothing, for
/// which no shard has to be asked.
fn with_a_stale_primary(seed: u64, config: OsdConfig, more: usize) -> (Sim, PoolId) {
    let (mut s, pool) = cluster_with((2, 2), 3, 0, seed, config);
    make_stale(&mut s, pool, "o", seed, more);
    (s, pool)
}

/// The same of an object of this name.
pub fn make_stale(s: &mut Sim, pool: PoolId, name: &str, seed: u64, more: usize) {
    let map = s.mon.map.clone();
    let old = bytes(s, [6 * CHUNK, 0][seed as usize / 2 % 2]);
    s.client.write(&map, pool, name, old);
    s.settle();
    let first = primary(s, pool);
    let place = place_of(s, pool, first);
    let object = s.client.object(&map, pool, name);
    let was = content(s, first, place, object);
    let new = bytes(s, 7 * CHUNK + 11);
    s.client.write(&map, pool, name, new);
    s.settle();
    write_others(s, pool, more);
    put_back(s, first, was);
    s.commit(first);
}

/// Lines of any OSD that say of a copy that it gives no data.
fn refusals(s: &Sim) -> Vec<String> {
    let all = s.nodes.iter().flat_map(|n| n.log.iter());
    all.filter(|line| line.contains("gives no data")).cloned().collect()
}

/// The log says what the primary's own shard has to be: nothing of the stale one is an answer, the others
/// stay what they are, and it is made again.
#[test]
fn a_primary_does_not_believe_its_own_stale_shard() {
    for seed in 0..12 {
        let (mut s, pool) = with_a_stale_primary(seed, long_log(), 0);
        let first = primary(&s, pool);
        let map = s.mon.map.clone();
        if seed % 3 == 0 {
            // What it still knows is forgotten.
            s.restart(first);
            s.until("active", |s| s.states().values().all(|t| t.contains("active")));
        }
        match seed % 2 {
            0 => s.client.read(&map, pool, "o"),
            _ => {
                let part = bytes(&mut s, 100);
                s.client.patch(&map, pool, "o", 3 * CHUNK + 5, &part)
            }
        };
        s.until("answered", |s| s.client.is_idle());
        s.client.read(&map, pool, "o");
        s.settle();
        check_shards(&mut s, pool);
        let told = refusals(&s);
        assert!(told.iter().all(|line| line.contains(&format!("osd.{first}("))), "{told:?}");
    }
}

/// The same of an object that was deleted.
#[test]
fn a_primary_removes_what_the_log_says_is_deleted() {
    for seed in 0..4 {
        let (mut s, pool) = with_object((2, 2), 3, seed, long_log(), [3 * CHUNK, 0][seed as usize % 2]);
        let map = s.mon.map.clone();
        let first = primary(&s, pool);
        let place = place_of(&s, pool, first);
        let object = s.client.object(&map, pool, "o");
        let was = content(&mut s, first, place, object);
        s.client.remove(&map, pool, "o");
        s.settle();
        put_back(&mut s, first, was);
        s.client.read(&map, pool, "o");
        s.settle();
        assert_eq!(shard(&mut s, first, place, pool, "o"), None);
        check_shards(&mut s, pool);
    }
}

/// The log tells nothing of the write any more: then the others do.
#[test]
fn a_primary_learns_of_members_that_its_shard_is_stale() {
    let config = OsdConfig {
        min_pg_log_entries: 2,
        max_pg_log_entries: 2,
        pg_log_trim_min: 1,
        ..OsdConfig::default()
    };
    for seed in 0..8 {
        // Six chunks of then: the read asks others.
        let (mut s, pool) = with_a_stale_primary(seed / 2 * 4 + seed % 2, config.clone(), 8);
        let first = primary(&s, pool);
        let map = s.mon.map.clone();
        s.restart(first);
        s.settle();
        s.client.read(&map, pool, "o");
        s.until("read", |s| s.client.is_idle());
        s.settle();
        check_shards(&mut s, pool);
        assert_eq!(refusals(&s), [""; 0]);
    }
}

/// A write that needs nothing of other shards follows the version that the primary has. Members that have a
/// newer one do not take it, and the primary hears of theirs.
#[test]
fn a_write_that_follows_a_stale_primary_is_refused() {
    for seed in 0..12 {
        let (mut s, pool) = with_a_stale_primary(seed, short_log(), 8);
        let first = primary(&s, pool);
        let map = s.mon.map.clone();
        s.restart(first);
        s.settle();
        match seed % 3 {
            0 => {
                let part = bytes(&mut s, 2 * CHUNK);
                s.client.patch(&map, pool, "o", 8 * CHUNK, &part)
            }
            1 => {
                let content = bytes(&mut s, 5 * CHUNK + 3);
                s.client.write(&map, pool, "o", content)
            }
            _ => {
                let name = "x".to_owned();
                s.client.change(&map, pool, "o", vec![Op::SetXattr { name, value: Bytes::from_static(b"y") }])
            }
        };
        s.until("answered", |s| s.client.is_idle());
        s.client.read(&map, pool, "o");
        s.settle();
        check_shards(&mut s, pool);
        assert_eq!(refusals(&s), [""; 0]);
        let told =
            s.nodes.iter().flat_map(|n| &n.log).filter(|l| l.contains("that follows an older version"));
        assert!(told.count() > 0, "seed {seed}");
    }
}

/// A primary whose shard is stale and damaged asks members for its version: they have good shards, and say
/// so.
#[test]
fn members_of_a_stale_and_damaged_primary_are_not_given_up() {
    for seed in 0..8 {
        let (mut s, pool) = with_a_stale_primary(seed, short_log(), 8);
        let (first, map) = (primary(&s, pool), s.mon.map.clone());
        let object = s.client.object(&map, pool, "o");
        mark_damaged(&mut s, pool, first, &object);
        s.restart(first);
        s.settle();
        s.client.read(&map, pool, "o");
        s.settle();
        check_shards(&mut s, pool);
        assert_eq!(refusals(&s), [""; 0]);
    }
}

/// A stale primary does not put its version in the place of a newer one, of which a member has damaged data.
#[test]
fn a_newer_shard_is_not_overwritten() {
    for seed in 0..8 {
        let (mut s, pool) = with_a_stale_primary(seed, short_log(), 8);
        let (first, (osd, _)) = (primary(&s, pool), a_member(&s, pool, seed));
        let map = s.mon.map.clone();
        s.restart(first);
        s.settle();
        let object = s.client.object(&map, pool, "o");
        mark_damaged(&mut s, pool, osd, &object);
        s.restart(osd);
        s.settle();
        s.until("made again", |s| damaged(s, pool, osd) == 0);
        s.client.read(&map, pool, "o");
        s.settle();
        check_shards(&mut s, pool);
        assert_eq!(refusals(&s), [""; 0]);
    }
}

/// A clone is made of the head, a rolled back head of a clone: where that has missed a write, what is made of
/// it has the newest version, and is damaged all the same.
#[test]
fn what_is_copied_of_a_stale_shard_is_made_again() {
    for seed in 0..12 {
        let (mut s, pool) = cluster_with((2, 2), 3, 0, seed, long_log());
        let map = s.mon.map.clone();
        let (old, new) = (bytes(&mut s, 6 * CHUNK), bytes(&mut s, 6 * CHUNK));
        s.client.write(&map, pool, "o", old);
        s.settle();
        let head = s.client.object(&map, pool, "o");
        let (osd, place) = a_member(&s, pool, seed);
        let mut was = content(&mut s, osd, place, head.clone());
        s.client.write(&map, pool, "o", new.clone());
        s.settle();
        s.client.snapc = SnapContext { seq: 1, snaps: vec![1] };
        let clone = head.at(SnapId(1));
        let newest = bytes(&mut s, 5 * CHUNK);
        if seed % 2 == 0 {
            put_back(&mut s, osd, was);
            s.client.write(&map, pool, "o", newest);
            s.settle();
        } else {
            s.client.write(&map, pool, "o", newest);
            s.settle();
            was.key.object = clone.clone();
            put_back(&mut s, osd, was);
            s.client.rollback(&map, pool, "o", SnapId(1), new.clone());
            s.settle();
            // That the clone is stale itself nobody has noticed yet.
            assert_eq!(s.client.model["o"].acked.as_deref(), Some(&*new));
        }
        s.client.read(&map, pool, "o");
        s.settle();
        check_shards(&mut s, pool);
        if seed % 2 == 0 {
            check_object(&mut s, pool, &clone, &new);
        }
    }
}

/// That a shard is of no use is durable with the write that gives it the newest version: in one transaction.
#[test]
fn a_write_says_itself_that_a_shard_is_stale() {
    for seed in 0..3 {
        let (mut s, pool) = cluster_with((2, 1), 2, 0, seed, long_log());
        let map = s.mon.map.clone();
        s.client.write(&map, pool, "o", vec![1; 10]);
        s.settle();
        let (first, (osd, _)) = (primary(&s, pool), a_member(&s, pool, seed));
        let object = s.client.object(&map, pool, "o");
        lose(&mut s, pool, osd, &object);
        s.client.write(&map, pool, "o", vec![3; 10]);
        s.deliver_requests(first);
        s.until("shipped", |s| under_way(s, first, osd, "RepOp").is_some());
        let submitted = |s: &mut Sim| s.nodes[osd as usize].core.as_mut().unwrap().store_mut().submitted().0;
        let before = submitted(&mut s);
        s.deliver_all(first, osd);
        assert_eq!((damaged(&mut s, pool, osd), submitted(&mut s)), (1, before + 1));
        s.commit(osd);
        s.restart(osd);
        s.settle();
        s.until("made again", |s| damaged(s, pool, osd) == 0);
        check_shards(&mut s, pool);
    }
}

/// Where the answer to a read of a shard, which is under way, says whether there is one.
fn refuse_with(s: &mut Sim, from: i32, to: i32, result: i32) {
    let at = under_way(s, from, to, "ShardPart").expect("an answer");
    let Message::Unknown(msg) = &mut s.links.get_mut(&(from, to)).unwrap()[at] else { panic!() };
    let mut front = msg.front.to_vec();
    let end = front.len();
    assert_eq!(front[end - 4..], [0; 4], "it was no refusal");
    front[end - 4..].copy_from_slice(&result.to_le_bytes());
    (msg.front, msg.data) = (front.into(), Bytes::new());
}

/// What a member refuses for another reason than the shard's own says nothing of the shard.
#[test]
fn a_refusal_that_tells_nothing_of_the_shard_costs_no_shard() {
    for (seed, result) in (0..4).zip([-22, -11, -22, -11]) {
        let (mut s, pool) = with_object((2, 2), 3, seed, long_log(), 6 * CHUNK);
        let map = s.mon.map.clone();
        let first = primary(&s, pool);
        let members = acting(&s, pool);
        let osd = *members.iter().take(2).find(|osd| **osd != first).unwrap();
        s.client.read(&map, pool, "o");
        s.deliver_requests(first);
        s.until("answered", |s| under_way(s, osd, first, "ShardPart").is_some());
        refuse_with(&mut s, osd, first, result);
        s.until("read", |s| s.client.is_idle());
        s.settle();
        assert_eq!(refusals(&s), [""; 0]);
        assert_eq!(crate::counters::counter(&mut s, first, "loligo_shards_refused"), 0);
        check_shards(&mut s, pool);
    }
}

/// A request that gathers a second time takes no late answer to the first for one to the second.
#[test]
fn an_answer_that_comes_late_answers_nothing_else() {
    let mut late = 0;
    for seed in 0..8 {
        let (mut s, pool) = cluster_with((2, 2), 3, 0, seed, long_log());
        let map = s.mon.map.clone();
        let old = bytes(&mut s, 8 * CHUNK);
        s.client.write(&map, pool, "o", old.clone());
        s.settle();
        let first = primary(&s, pool);
        let members = acting(&s, pool);
        let chunk = (0..2).find(|at| members[*at] != first).unwrap();
        let osd = members[chunk];
        // It reads some bytes, and then those that it needs to change others, which may be of the same shard.
        let at = ((4 + seed as usize % 2) * CHUNK + 10) as u64;
        let read = Op::Read(Extent::new((chunk * CHUNK) as u64, 5));
        let write = Op::Write { extent: Extent::new(at, 5), data: Bytes::from_static(b"12345") };
        s.client.change(&map, pool, "o", vec![read, write]);
        s.deliver_requests(first);
        s.until("answered", |s| under_way(s, osd, first, "ShardPart").is_some());
        let place = under_way(&s, osd, first, "ShardPart").unwrap();
        let again = s.links[&(osd, first)][place].clone();
        s.deliver_all(osd, first);
        late += usize::from(under_way(&s, first, osd, "ShardRead").is_some());
        s.links.entry((osd, first)).or_default().push_front(again);
        s.deliver_all(osd, first);
        s.until("written", |s| s.client.is_idle());
        let mut want = old;
        want[at as usize..at as usize + 5].copy_from_slice(b"12345");
        s.client.model.get_mut("o").unwrap().acked = Some(want);
        s.client.read(&map, pool, "o");
        s.settle();
        check_shards(&mut s, pool);
    }
    assert!(late > 2, "{late}");
}

/// As many shards as make up the data need not do so where the code has groups: what cannot be made of all
/// that are left is lost, and requests do not wait for it.
#[test]
fn shards_that_do_not_decode_are_not_enough() {
    let words = [("plugin", "lrc"), ("k", "4"), ("m", "2"), ("l", "3")];
    for seed in 0..3 {
        let portions = Portions { ..Portions::default() };
        let mut s = Sim::with_config(8, seed, OsdConfig { portions, ..long_log() });
        s.until("all up", |s| (0..8).all(|o| s.mon.map.is_up(o)));
        let pool = s.mon.create_pool_of_profile(&words, 4, 8, 5);
        s.settle();
        let map = s.mon.map.clone();
        let geometry = Geometry::of_pool(&map, map.pool(pool).unwrap()).unwrap();
        let old = bytes(&mut s, 9 * CHUNK);
        s.client.write(&map, pool, "o", old);
        s.settle();
        let members = acting(&s, pool);
        let data: ChunkSet = geometry.codec.data_chunks().iter().copied().collect();
        let decodes = |set| geometry.codec.minimum_to_decode(data, set).is_ok();
        let own = place_of(&s, pool, primary(&s, pool));
        let sets = (0..1u32 << 8).map(|bits| (0..8).filter(|at| bits >> at & 1 == 1).collect::<ChunkSet>());
        let mut left = sets.filter(|set| set.len() == 4 && set.contains(own) && !decodes(*set));
        let left = left.next_back().expect("a set of four that makes nothing");
        let object = s.client.object(&map, pool, "o");
        let mut was = Vec::new();
        for place in (0..8).filter(|at| !left.contains(*at)) {
            was.push((members[place], content(&mut s, members[place], place, object.clone())));
        }
        let new = bytes(&mut s, 9 * CHUNK);
        s.client.write(&map, pool, "o", new);
        s.settle();
        was.into_iter().for_each(|(osd, was)| put_back(&mut s, osd, was));
        s.client.damage_allowed = true;
        s.client.read(&map, pool, "o");
        s.until("answered", |s| s.client.is_idle());
        assert_eq!(s.client.replies.last().unwrap().1.result, -5);
    }
}

/// A record goes back from what its write has left. Where the object was made again since, the record says
/// nothing of the rest, and the object is missing.
#[test]
fn a_record_is_not_laid_over_another_version() {
    for seed in 0..8 {
        let (mut s, pool) = cluster_with((2, 2), 2, 0, seed, long_log());
        let map = s.mon.map.clone();
        let old = bytes(&mut s, 8 * CHUNK);
        s.client.write(&map, pool, "o", old);
        s.client.write(&map, pool, "other", vec![1; 10]);
        s.settle();
        let (first, (osd, place)) = (primary(&s, pool), a_member(&s, pool, seed));
        let others: Vec<i32> = acting(&s, pool).into_iter().filter(|osd| *osd != first).collect();
        s.client.patch(&map, pool, "o", 10, &[7; 30]);
        s.deliver_requests(first);
        s.until("shipped", |s| others.iter().all(|to| under_way(s, first, *to, "RepOp").is_some()));
        s.client.paused = true;
        s.commit(first);
        s.deliver_all(first, osd);
        // Another version, of which other bytes differ.
        let object = s.client.object(&map, pool, "other");
        let info = content(&mut s, osd, place, object).info;
        let key = ObjectKey::new(place as i8, s.client.object(&map, pool, "o"));
        let mut txn = Txn::new();
        txn.write(&key, 3 * CHUNK as u64, vec![9; 50]).set_attr(&key, &b"_"[..], info);
        s.nodes[osd as usize].core.as_mut().unwrap().store_mut().submit(txn).unwrap();
        s.commit(osd);
        s.kill(first);
        s.until("goes on", |s| {
            let whole = others.iter().all(|osd| s.is_up_to_date(*osd));
            whole && s.states().values().all(|t| t.contains("active"))
        });
        s.start(first);
        s.until("whole", |s| s.all_are("active+clean"));
        let open = std::mem::take(&mut s.client.model.get_mut("o").unwrap().open);
        check_shards(&mut s, pool);
        s.client.model.get_mut("o").unwrap().open = open;
        s.client.paused = false;
        s.settle();
        check_shards(&mut s, pool);
    }
}

/// All places are filled, and too few have an object: while a copy is away that has it, requests wait.
#[test]
fn an_object_is_not_lost_while_a_holder_is_away() {
    for seed in 0..4 {
        let (mut s, pool) = cluster_with((2, 1), 2, 1, seed, long_log());
        let map = s.mon.map.clone();
        let (old, new) = (bytes(&mut s, 6 * CHUNK), bytes(&mut s, 6 * CHUNK));
        s.client.write(&map, pool, "o", old);
        s.settle();
        let (osd, place) = a_member(&s, pool, seed);
        let (away, _) = a_member(&s, pool, seed + 1);
        let object = s.client.object(&map, pool, "o");
        let was = content(&mut s, osd, place, object);
        s.client.write(&map, pool, "o", new);
        s.settle();
        put_back(&mut s, osd, was);
        s.kill(away);
        s.mon.mark_out(away);
        s.until("filled", |s| {
            let members = acting(s, pool);
            members.iter().all(|osd| (0..4).contains(osd) && *osd != away)
                && s.states().values().all(|t| t.contains("active"))
        });
        let map = s.mon.map.clone();
        s.client.read(&map, pool, "o");
        s.run(3_000);
        assert!(!s.client.is_idle(), "nobody can read it");
        s.start(away);
        s.until("read", |s| s.client.is_idle());
    }
}

/// The same where the primary's own attributes are of no use either.
#[test]
fn nobody_waits_for_an_object_that_is_lost() {
    for seed in 0..4 {
        let (mut s, pool) = with_object((2, 1), 2, seed, long_log(), 6 * CHUNK);
        let map = s.mon.map.clone();
        let (first, (osd, _)) = (primary(&s, pool), a_member(&s, pool, seed));
        let object = s.client.object(&map, pool, "o");
        for osd in [osd, first] {
            mark_damaged(&mut s, pool, osd, &object);
        }
        s.client.damage_allowed = true;
        for osd in [osd, first] {
            s.kill(osd);
        }
        let map = s.mon.map.clone();
        s.client.read(&map, pool, "o");
        for osd in [osd, first] {
            s.start(osd);
        }
        s.until("answered", |s| s.client.is_idle());
        assert_eq!(s.client.replies.last().unwrap().1.result, -5);
    }
}

/// A stray that has nothing of very many objects is asked once for each.
#[test]
fn what_a_stray_refuses_is_remembered() {
    const COUNT: usize = 1_100;
    let config = OsdConfig { min_pg_log_entries: 2 * COUNT, ..OsdConfig::default() };
    let (mut s, pool) = cluster_with((2, 1), 2, 1, 2, config);
    let map = s.mon.map.clone();
    let names: Vec<String> = (0..COUNT).map(|at| format!("x{at}")).collect();
    for some in names.chunks(50) {
        for name in some {
            s.client.write(&map, pool, name, vec![1; 10]);
        }
        s.until("written", |s| s.client.is_idle());
    }
    s.settle();
    let (first, (stray, _), (other, _)) = (primary(&s, pool), a_member(&s, pool, 0), a_member(&s, pool, 1));
    for osd in [stray, other] {
        let (place, mut txn) = (place_of(&s, pool, osd) as i8, Txn::new());
        for name in &names {
            txn.remove(&ObjectKey::new(place, s.client.object(&map, pool, name)));
        }
        s.nodes[osd as usize].core.as_mut().unwrap().store_mut().submit(txn).unwrap();
        s.commit(osd);
    }
    s.kill(stray);
    s.mon.mark_out(stray);
    s.until("filled", |s| {
        let members = acting(s, pool);
        members.iter().all(|osd| (0..4).contains(osd) && *osd != stray)
            && s.states().values().all(|t| t.contains("active"))
    });
    s.start(stray);
    let refused = |s: &mut Sim| crate::counters::counter(s, first, "loligo_shards_refused") as usize;
    for _ in 0..100 {
        s.run(1_000);
        if refused(&mut s) >= 2 * COUNT {
            break;
        }
    }
    s.run(10_000);
    assert_eq!(refused(&mut s), 2 * COUNT);
}

/// All of a shard that is asked for is there: an answer that is too short is none, and no zeros are read in
/// its place.
#[test]
fn a_part_that_is_too_short_is_no_answer() {
    for seed in 0..4 {
        let (mut s, pool) = with_object((2, 2), 3, seed, long_log(), 6 * CHUNK);
        let map = s.mon.map.clone();
        let first = primary(&s, pool);
        let members = acting(&s, pool);
        let osd = *members.iter().take(2).find(|osd| **osd != first).unwrap();
        s.client.read(&map, pool, "o");
        s.deliver_requests(first);
        s.until("answered", |s| under_way(s, osd, first, "ShardPart").is_some());
        let at = under_way(&s, osd, first, "ShardPart").unwrap();
        let Message::Unknown(msg) = &mut s.links.get_mut(&(osd, first)).unwrap()[at] else { panic!() };
        msg.data = msg.data.slice(..msg.data.len() - 1 - seed as usize * CHUNK / 2);
        s.until("read", |s| s.client.is_idle());
        s.settle();
        assert_eq!(refusals(&s).len(), 1);
        check_shards(&mut s, pool);
    }
}

/// The primary has lost an object without a trace, which it would make anew: members know better.
#[test]
fn what_the_primary_has_lost_is_not_made_anew() {
    for seed in 0..8 {
        let (mut s, pool) = with_object((2, 2), 3, seed, short_log(), 6 * CHUNK);
        let map = s.mon.map.clone();
        write_others(&mut s, pool, 8);
        let first = primary(&s, pool);
        let object = s.client.object(&map, pool, "o");
        lose(&mut s, pool, first, &object);
        s.restart(first);
        s.settle();
        let map = s.mon.map.clone();
        let part = bytes(&mut s, 2 * CHUNK);
        match seed % 4 {
            0 => s.client.patch(&map, pool, "o", 8 * CHUNK, &part),
            1 => s.client.patch(&map, pool, "o", 3 * CHUNK + 7, &part),
            2 => s.client.write(&map, pool, "o", part),
            _ => {
                let name = "x".to_owned();
                s.client.change(&map, pool, "o", vec![Op::SetXattr { name, value: Bytes::from_static(b"y") }])
            }
        };
        s.settle();
        check_shards(&mut s, pool);
        s.client.read(&map, pool, "o");
        s.settle();
        assert_eq!(refusals(&s), [""; 0]);
    }
}

/// The same where too few of the shards that are left can be read: that is damage, and no deletion.
#[test]
fn what_nobody_can_read_was_not_deleted() {
    for seed in 0..8 {
        let (mut s, pool) = with_object((2, 2), 3, seed, short_log(), 40 * CHUNK);
        let map = s.mon.map.clone();
        write_others(&mut s, pool, 8);
        let (first, members) = (primary(&s, pool), acting(&s, pool));
        let object = s.client.object(&map, pool, "o");
        lose(&mut s, pool, first, &object);
        s.restart(first);
        s.settle();
        let others: Vec<usize> = (0..4).filter(|place| members[*place] != first).collect();
        for place in others.iter().copied().filter(|place| *place != others[seed as usize % 3]) {
            // Nobody knows of the damage yet, or the member does.
            if seed % 2 == 0 {
                damage(&mut s, pool, place, "o");
            } else {
                mark_damaged(&mut s, pool, members[place], &object);
                s.restart(members[place]);
                s.settle();
            }
        }
        s.client.damage_allowed = true;
        let map = s.mon.map.clone();
        let new = bytes(&mut s, 2 * CHUNK);
        s.client.write(&map, pool, "o", new);
        s.until("answered", |s| s.client.is_idle());
        assert_eq!(s.client.replies.last().unwrap().1.result, -5, "seed {seed}");
        s.run(1_000);
        for place in others {
            let store = s.nodes[members[place] as usize].core.as_mut().unwrap().store_mut();
            let key = ObjectKey::new(place as i8, s.client.object(&map, pool, "o"));
            assert!(store.stat(&key).unwrap().is_some(), "seed {seed}");
        }
    }
}

/// The primary has lost an object, or a write of it, without a trace, when another member is backfilled: the
/// new one gets its shard, and so does the primary.
#[test]
fn what_the_primary_has_lost_is_backfilled() {
    for seed in 0..12 {
        let (mut s, pool) = cluster_with((2, 2), 3, 1, seed, short_log());
        let map = s.mon.map.clone();
        if seed % 3 < 2 {
            let content = bytes(&mut s, 6 * CHUNK);
            // The log tells of it, or does not any more.
            let (before, after) = if seed % 3 == 0 { (0, 8) } else { (8, 0) };
            write_others(&mut s, pool, before);
            s.client.write(&map, pool, "o", content);
            s.settle();
            write_others(&mut s, pool, after);
            let first = primary(&s, pool);
            let object = s.client.object(&map, pool, "o");
            lose(&mut s, pool, first, &object);
        } else {
            make_stale(&mut s, pool, "o", seed, 8);
        }
        let first = primary(&s, pool);
        s.restart(first);
        s.settle();
        let (osd, _) = a_member(&s, pool, seed);
        s.mon.mark_out(osd);
        s.settle();
        assert!(!acting(&s, pool).contains(&osd));
        check_shards(&mut s, pool);
        let map = s.mon.map.clone();
        s.client.read(&map, pool, "o");
        s.settle();
    }
}

/// A member has missed that an object was deleted: when that is made again, what it has is no hindrance.
#[test]
fn what_a_member_did_not_delete_is_deleted() {
    for seed in 0..8 {
        let (mut s, pool) = with_object((2, 2), 3, seed, short_log(), 6 * CHUNK);
        let map = s.mon.map.clone();
        let (osd, place) = a_member(&s, pool, seed);
        let object = s.client.object(&map, pool, "o");
        let was = content(&mut s, osd, place, object);
        s.client.remove(&map, pool, "o");
        s.settle();
        write_others(&mut s, pool, 8);
        put_back(&mut s, osd, was);
        s.commit(osd);
        s.restart(osd);
        s.settle();
        let map = s.mon.map.clone();
        let new = bytes(&mut s, 3 * CHUNK);
        s.client.write(&map, pool, "o", new);
        s.settle();
        check_shards(&mut s, pool);
        s.client.read(&map, pool, "o");
        s.settle();
        check_shards(&mut s, pool);
    }
}

/// A primary whose shard is stale deletes the object, and too few members hear of it: what they have counts
/// all the same.
#[test]
fn a_deletion_by_a_stale_primary_costs_no_good_shard() {
    for seed in 0..8 {
        let (mut s, pool) = with_a_stale_primary(seed, short_log(), 8);
        let first = primary(&s, pool);
        s.restart(first);
        s.settle();
        let map = s.mon.map.clone();
        let others: Vec<i32> = acting(&s, pool).into_iter().filter(|osd| *osd != first).collect();
        s.client.remove(&map, pool, "o");
        s.deliver_requests(first);
        s.until("shipped", |s| others.iter().all(|to| under_way(s, first, *to, "RepOp").is_some()));
        s.client.paused = true;
        s.commit(first);
        for osd in &others[..2] {
            s.deliver_all(first, *osd);
            s.commit(*osd);
        }
        s.kill(first);
        s.until("goes on", |s| {
            let whole = others.iter().all(|osd| s.is_up_to_date(*osd));
            whole && s.states().values().all(|t| t.contains("active"))
        });
        s.start(first);
        s.until("whole", |s| s.all_are("active+clean"));
        let open = std::mem::take(&mut s.client.model.get_mut("o").unwrap().open);
        let last = primary(&s, pool);
        if last != first {
            check_shards(&mut s, pool);
        }
        s.client.model.get_mut("o").unwrap().open = open;
        s.client.paused = false;
        s.settle();
        check_shards(&mut s, pool);
        assert_eq!(refusals(&s), [""; 0]);
    }
}

/// A primary that does not know whether an object was deleted ends, for a moment or longer, or another one
/// takes its place: whoever is the primary then finds out.
#[test]
fn what_was_perhaps_deleted_is_not_forgotten() {
    for seed in 0..12 {
        let (mut s, pool) = with_object((2, 2), 3, seed, short_log(), 6 * CHUNK);
        let map = s.mon.map.clone();
        let (osd, place) = a_member(&s, pool, seed);
        let object = s.client.object(&map, pool, "o");
        let was = content(&mut s, osd, place, object);
        s.client.remove(&map, pool, "o");
        s.settle();
        write_others(&mut s, pool, 8);
        put_back(&mut s, osd, was);
        s.commit(osd);
        s.restart(osd);
        s.settle();
        let first = primary(&s, pool);
        let map = s.mon.map.clone();
        let new = bytes(&mut s, 3 * CHUNK);
        s.client.write(&map, pool, "o", new.clone());
        s.until("unfound", |s| s.nodes[first as usize].log.iter().any(|line| line.contains("is unfound")));
        s.client.paused = true;
        s.commit(first);
        let goes_on =
            |s: &mut Sim| primary(s, pool) != first && s.states().values().all(|t| t.contains("active"));
        match seed % 3 {
            0 => s.restart(first),
            1 => {
                s.kill(first);
                s.until("goes on", goes_on);
                s.start(first);
            }
            _ => {
                s.mon.change(|inc, _| {
                    inc.new_primary_affinity.insert(first, 0);
                });
                s.until("goes on", goes_on);
            }
        }
        s.until("clean", |s| s.all_are("active+clean"));
        s.client.paused = false;
        s.settle();
        check_shards(&mut s, pool);
    }
}

/// Two primaries in turn do not know whether an object was deleted, and both end before they find out. What
/// they lack for a doubt is no loss: whoever is the primary then deletes it.
#[test]
fn what_two_primaries_in_turn_doubt_is_deleted() {
    for seed in 0..6 {
        let (mut s, pool) = cluster_with((2, 2), 3, 0, seed, short_log());
        let map = s.mon.map.clone();
        let (old, new) = (bytes(&mut s, 6 * CHUNK), bytes(&mut s, 3 * CHUNK));
        s.client.write(&map, pool, "o", old);
        s.settle();
        let first = primary(&s, pool);
        let members = acting(&s, pool);
        // The last one has missed the deletion: it is no primary while one of the others is there.
        let (osd, place) = (members[3], 3);
        assert_ne!(osd, first);
        let object = s.client.object(&map, pool, "o");
        let was = content(&mut s, osd, place, object);
        s.client.remove(&map, pool, "o");
        s.settle();
        write_others(&mut s, pool, 8);
        put_back(&mut s, osd, was);
        s.commit(osd);
        s.restart(osd);
        s.settle();
        let map = s.mon.map.clone();
        s.client.write(&map, pool, "o", new);
        let mut ended = Vec::new();
        for _ in 0..2 {
            let now = primary(&s, pool);
            s.client.paused = false;
            s.until("doubted", |s| s.nodes[now as usize].log.iter().any(|line| line.contains("is unfound")));
            s.client.paused = true;
            s.commit(now);
            s.kill(now);
            ended.push(now);
            s.until("goes on", |s| {
                primary(s, pool) != now
                    && acting(s, pool).iter().all(|osd| s.is_up_to_date(*osd))
                    && s.states().values().all(|t| t.contains("active") || t.contains("peered"))
            });
        }
        assert!(!ended.contains(&osd), "seed {seed}");
        ended.into_iter().for_each(|osd| s.start(osd));
        s.until("clean", |s| s.all_are("active+clean"));
        s.client.paused = false;
        s.settle();
        check_shards(&mut s, pool);
    }
}

/// A member was made anew since an object was deleted, and its log begins behind that. What its medium gives
/// back of the object is no hindrance: the primary's log tells.
#[test]
fn what_only_the_log_of_the_primary_deletes_is_deleted() {
    for seed in 0..4 {
        let (mut s, pool) = with_object((2, 2), 3, seed, short_log(), 6 * CHUNK);
        let map = s.mon.map.clone();
        write_others(&mut s, pool, 8);
        s.config = OsdConfig { pg_log_trim_min: 1_000, ..s.config.clone() };
        for osd in acting(&s, pool) {
            s.restart(osd);
        }
        s.settle();
        let (osd, place) = a_member(&s, pool, seed);
        let object = s.client.object(&map, pool, "o");
        let was = content(&mut s, osd, place, object);
        s.kill(osd);
        let map = s.mon.map.clone();
        s.client.remove(&map, pool, "o");
        s.client.write(&map, pool, "other", vec![1; 20]);
        s.until("written", |s| s.client.is_idle());
        s.client.write(&map, pool, "another", vec![2; 20]);
        s.until("written", |s| s.client.is_idle());
        start_empty(&mut s, osd);
        s.settle();
        put_back(&mut s, osd, was);
        s.commit(osd);
        let map = s.mon.map.clone();
        let new = bytes(&mut s, 3 * CHUNK);
        s.client.write(&map, pool, "o", new);
        s.settle();
        check_shards(&mut s, pool);
        s.client.read(&map, pool, "o");
        s.settle();
        check_shards(&mut s, pool);
    }
}
