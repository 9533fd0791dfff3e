//! Erasure-coded PGs whose members lose messages, sessions and copies: nothing is acknowledged too early, and
//! no request waits for an answer that does not come.

use std::collections::VecDeque;
use std::time::Duration;

use maps::flags::map_flags;
use messages::Message;
use messages::osd::{Extent, Op};
use pg::{Input, OsdConfig, OsdCore, Portions};
use store::{DeviceError, DeviceOp};
use types::{ConnId, OsdId, PgId, PoolId};

use crate::coded_kit::{
    CHUNK, acting, bytes, check_shards, cluster_with, content, damage, long_log, primary, put_back, under_way,
};
use crate::counters::counter;
use crate::shares::{ONE, answer, request};
use crate::sim::{CLIENT, Sim};

fn all_under_way(s: &Sim, from: i32, to: &[i32], kind: &str) -> bool {
    to.iter().all(|to| under_way(s, from, *to, kind).is_some())
}

/// The primary takes a write back that no member has got, because a session was lost. Its device has it all
/// the same, and says so late: that is no word of the next write, which has the same version.
#[test]
fn a_write_that_was_taken_back_does_not_stand_for_the_next() {
    for (seed, code) in (0..8).zip([(2, 1), (2, 2)].into_iter().cycle()) {
        let (mut s, pool) = cluster_with(code, 2, 0, seed, long_log());
        let map = s.mon.map.clone();
        let (old, new) = (bytes(&mut s, 6 * CHUNK), bytes(&mut s, 6 * CHUNK));
        s.client.write(&map, pool, "o", old);
        s.settle();
        let first = primary(&s, pool);
        let others: Vec<i32> = acting(&s, pool).into_iter().filter(|osd| *osd != first).collect();
        s.client.write(&map, pool, "o", new);
        s.deliver_requests(first);
        assert!(all_under_way(&s, first, &others, "RepOp"));
        let core = s.nodes[first as usize].core.as_mut().unwrap();
        let late = core.store_mut().take_commit().expect("the write");
        for osd in &others {
            s.links.remove(&(first, *osd));
            s.input(first, Input::OsdReset { osd: OsdId(*osd) });
        }
        s.until("starts again", |s| {
            let starts = s.states().values().all(|t| t.contains("activating"));
            starts && !others.iter().any(|osd| s.links.get(&(first, *osd)).is_some_and(|q| !q.is_empty()))
        });
        let device = s.nodes[first as usize].device.clone();
        let core = s.nodes[first as usize].core.as_mut().unwrap();
        let seq = core.store_mut().committed(late.execute(&*device)).unwrap();
        s.input(first, Input::Durable(seq));
        s.commit(first);
        s.until("shipped again", |s| all_under_way(s, first, &others, "RepOp"));
        for osd in &others {
            s.deliver_all(first, *osd);
            s.commit(*osd);
            s.deliver_all(*osd, first);
        }
        assert!(!s.is_durable(first), "the write is durable there");
        s.deliver_all(first, CLIENT);
        assert!(!s.client.is_idle(), "the write was acknowledged, and may be lost");
        // All end, and the copy with the shortest log counts.
        for osd in [&[first][..], &others].concat() {
            s.crash(osd);
            s.start(osd);
        }
        s.settle();
        check_shards(&mut s, pool);
    }
}

/// An object that a read needs a stray for: another member's shard is stale, and the one in the stray's place
/// has nothing yet. Gives the stray, which has been asked and has not heard of it. It may have missed the
/// last write as well.
fn with_a_stray_asked(seed: u64, is_stale: bool) -> (Sim, PoolId, i32) {
    let (mut s, pool, stray) = with_a_stray_to_ask(seed, is_stale, Portions::default());
    let (first, map) = (primary(&s, pool), s.mon.map.clone());
    s.client.read(&map, pool, "o");
    s.until("asked", |s| under_way(s, first, stray, "ShardRead").is_some());
    (s, pool, stray)
}

/// The same before anybody reads it.
fn with_a_stray_to_ask(seed: u64, is_stale: bool, portions: Portions) -> (Sim, PoolId, i32) {
    let portions = Portions { ..portions };
    let mut s = Sim::with_config(4, seed, OsdConfig { portions, ..long_log() });
    s.until("all up", |s| (0..4).all(|o| s.mon.map.is_up(o)));
    let pool = s.mon.create_coded_pool(2, 1, 2);
    s.settle();
    let map = s.mon.map.clone();
    let (old, new) = (bytes(&mut s, 6 * CHUNK), bytes(&mut s, 6 * CHUNK));
    s.client.write(&map, pool, "o", old);
    s.settle();
    let (first, members) = (primary(&s, pool), acting(&s, pool));
    let others: Vec<i32> = members.iter().copied().filter(|osd| *osd != first).collect();
    // One that a read of the object asks.
    let bad = *members.iter().take(2).find(|osd| **osd != first).unwrap();
    let stray = *others.iter().find(|osd| **osd != bad).unwrap();
    let object = s.client.object(&map, pool, "o");
    let mut was = Vec::new();
    for osd in if is_stale { vec![bad, stray] } else { vec![bad] } {
        let place = members.iter().position(|member| *member == osd).unwrap();
        was.push((osd, content(&mut s, osd, place, object.clone())));
    }
    s.client.write(&map, pool, "o", new);
    s.settle();
    // Recovery has to do with them for a while.
    for at in 0..30 {
        s.client.write(&map, pool, &format!("x{at}"), vec![at; 10]);
    }
    s.settle();
    for (osd, was) in was {
        put_back(&mut s, osd, was);
        s.commit(osd);
    }
    s.mon.change(|inc, _| inc.new_flags = map_flags::NORECOVER as i32);
    s.kill(stray);
    s.mon.mark_out(stray);
    s.until("goes on without", |s| {
        let is_filled = acting(s, pool).iter().all(|osd| (0..4).contains(osd) && *osd != stray);
        is_filled && s.is_up_to_date(first) && s.states().values().all(|t| t.contains("active"))
    });
    s.start(stray);
    s.until("is a stray", |s| s.mon.map.is_up(stray) && s.is_up_to_date(first));
    s.run(300);
    (s, pool, stray)
}

/// A stray that was asked ends, and no new interval begins: the request does not wait for its answer.
#[test]
fn a_stray_that_ends_is_asked_no_more() {
    for seed in 0..8 {
        let (mut s, pool, stray) = with_a_stray_asked(seed, false);
        s.kill(stray);
        s.run(100);
        assert!(!s.client.is_idle(), "too few are left");
        s.mon.change(|inc, _| inc.new_flags = 0);
        s.start(stray);
        s.until("read", |s| s.client.is_idle());
        s.settle();
        check_shards(&mut s, pool);
    }
}

/// A stray goes while a request waits for room to gather: it is not asked any more when there is room.
#[test]
fn a_stray_that_went_before_there_was_room_is_not_asked() {
    for seed in 0..8 {
        let portions = Portions { gathered: 13 * CHUNK as u64, ..Portions::default() };
        let (mut s, pool, stray) = with_a_stray_to_ask(seed, false, portions);
        let (first, map) = (primary(&s, pool), s.mon.map.clone());
        let two = ONE + 1;
        s.connect(two, |_| {});
        // It finds the stale shard, and asks the stray.
        s.cut = vec![(first, stray)];
        s.client.read(&map, pool, "o");
        s.until("asked", |s| under_way(s, first, stray, "ShardRead").is_some());
        let asked = |s: &Sim| s.links.get(&(first, stray)).map_or(0, VecDeque::len);
        let before = asked(&s);
        let mut msg = request(&s, pool, "o", vec![Op::Read(Extent::new(0, 6 * CHUNK as u64)).into()]);
        msg.pgid = s.mon.map.primary_shard(PgId::new(pool, 0)).unwrap().1;
        s.input(first, Input::Message { conn: ConnId(two as u64), tid: 1, msg: Message::from(msg) });
        assert_eq!(asked(&s), before, "it has to wait");
        s.cut.clear();
        s.kill(stray);
        s.run(100);
        assert!(!s.client.is_idle(), "too few are left");
        s.mon.change(|inc, _| inc.new_flags = 0);
        s.start(stray);
        let (result, data) = answer(&mut s, two, 1);
        assert!(!s.all_are("active+clean"), "it was asked until the PG was clean");
        assert_eq!((result, Some(&*data)), (0, s.client.model["o"].acked.as_deref()));
        s.settle();
        check_shards(&mut s, pool);
    }
}

/// A stray that has missed a write has missed it: it is not asked again and again.
#[test]
fn a_stray_that_has_refused_is_not_asked_again() {
    for seed in 0..8 {
        let (mut s, pool, _) = with_a_stray_asked(seed, true);
        let first = primary(&s, pool);
        s.client.damage_allowed = true;
        s.until("answered", |s| s.client.is_idle());
        assert_eq!(s.client.replies.last().unwrap().1.result, -5, "too few have it");
        s.run(3_000);
        let refused = counter(&mut s, first, "loligo_shards_refused");
        assert!(refused <= 4, "{refused} refusals");
        assert!(s.states().values().all(|t| t.contains("unfound")), "{:?}", s.states());
    }
}

/// A stray that was asked is removed, for the PG is whole without it.
#[test]
fn a_stray_that_is_removed_is_asked_no_more() {
    for seed in 0..8 {
        let (mut s, pool, stray) = with_a_stray_asked(seed, false);
        let first = primary(&s, pool);
        // It goes before it has answered the request, and after it has answered recovery.
        let link = s.links.get_mut(&(first, stray)).unwrap();
        let asks =
            |msg: &Message| OsdCore::describe_message(msg).is_some_and(|text| text.contains("ShardRead"));
        let at = link.iter().rposition(asks).unwrap();
        link.remove(at);
        s.mon.change(|inc, _| inc.new_flags = 0);
        s.until("read", |s| s.client.is_idle());
        s.settle();
        check_shards(&mut s, pool);
    }
}

/// A request that waits for room to gather goes with its client. Those behind it do not wait for what it
/// waited for.
#[test]
fn a_request_that_is_gone_holds_nobody_up() {
    let size = 20 * CHUNK;
    for seed in 0..4 {
        let portions = Portions { gathered: 3 * size as u64, ..Portions::default() };
        let mut s = Sim::with_config(4, seed * 2, OsdConfig { portions, ..long_log() });
        s.until("all up", |s| (0..4).all(|o| s.mon.map.is_up(o)));
        let pool = s.mon.create_coded_pool(2, 2, 3);
        s.settle();
        let map = s.mon.map.clone();
        for name in ["a", "b", "c"] {
            let content = bytes(&mut s, size);
            s.client.write(&map, pool, name, content);
        }
        s.settle();
        let (first, members) = (primary(&s, pool), acting(&s, pool));
        // One of the two members with data does not answer; of the other's there is a chunk to read.
        let silent = usize::from(members[0] == first);
        s.cut = vec![(first, members[silent])];
        let (two, three) = (ONE + 1, ONE + 2);
        for conn in [two, three] {
            s.connect(conn, |_| {});
        }
        s.client.read(&map, pool, "a");
        s.deliver_requests(first);
        let ask = |s: &mut Sim, conn: i32, name: &str, extent| {
            let mut msg = request(s, pool, name, vec![Op::Read(extent).into()]);
            msg.pgid = s.mon.map.primary_shard(PgId::new(pool, 0)).unwrap().1;
            let msg = Message::from(msg);
            s.input(first, Input::Message { conn: ConnId(conn as u64), tid: 1, msg });
        };
        ask(&mut s, two, "b", Extent::new(0, size as u64));
        s.input(first, Input::Disconnected { conn: ConnId(two as u64) });
        ask(&mut s, three, "c", Extent::new(((1 - silent) * CHUNK) as u64, 10));
        let (result, data) = answer(&mut s, three, 1);
        let want = s.client.model["c"].acked.as_ref().unwrap();
        assert_eq!((result, &*data), (0, &want[(1 - silent) * CHUNK..][..10]));
        assert!(!s.client.is_idle());
        s.cut.clear();
        s.settle();
    }
}

/// Two of three shards are damaged, as a clean PG finds when it reads them, and a copy that it does without
/// comes back: its shard makes the object up, and it is not removed before.
#[test]
fn a_stray_whose_shard_is_needed_is_not_removed() {
    for seed in 0..6 {
        let (mut s, pool) = cluster_with((2, 1), 2, 1, seed, long_log());
        let map = s.mon.map.clone();
        let content = bytes(&mut s, 40 * CHUNK);
        s.client.write(&map, pool, "o", content);
        s.settle();
        let (first, members) = (primary(&s, pool), acting(&s, pool));
        let others: Vec<usize> = (0..3).filter(|at| members[*at] != first).collect();
        let stray = members[others[seed as usize % 2]];
        s.kill(stray);
        s.mon.mark_out(stray);
        s.settle();
        for place in others {
            damage(&mut s, pool, place, "o");
        }
        s.client.damage_allowed = true;
        let map = s.mon.map.clone();
        s.client.read(&map, pool, "o");
        s.until("known", |s| s.states().values().all(|t| t.contains("recovery_unfound")));
        s.until("answered", |s| s.client.is_idle());
        s.client.damage_allowed = false;
        // What was told while the object was busy is looked at.
        (0..6).for_each(|_| s.tick(Duration::from_millis(500)));
        s.start(stray);
        s.settle();
        check_shards(&mut s, pool);
        s.client.read(&map, pool, "o");
        s.settle();
    }
}

/// Damage that waits for a write of its object is damage: until it is made good the PG is not clean, and
/// removes no stray.
#[test]
fn a_pg_that_knows_of_damage_is_not_clean() {
    for seed in 0..8 {
        let (mut s, pool) = cluster_with((2, 2), 3, 0, seed, long_log());
        let map = s.mon.map.clone();
        let (old, part) = (bytes(&mut s, 6 * CHUNK), bytes(&mut s, 2 * CHUNK));
        s.client.write(&map, pool, "o", old);
        s.client.write(&map, pool, "other", vec![1; 10]);
        s.settle();
        let (first, members) = (primary(&s, pool), acting(&s, pool));
        let others: Vec<i32> = members.iter().copied().filter(|osd| *osd != first).collect();
        let (bad, late) = (others[seed as usize % 3], others[(seed as usize + 1) % 3]);
        let place = members.iter().position(|osd| *osd == bad).unwrap();
        let object = s.client.object(&map, pool, "o");
        let was = content(&mut s, bad, place, object);
        s.client.patch(&map, pool, "o", 6 * CHUNK, &part);
        s.settle();
        // One member misses a write of the other object, and its recovery has to wait.
        s.kill(late);
        s.client.write(&map, pool, "other", vec![2; 10]);
        s.until("written", |s| s.client.is_idle());
        put_back(&mut s, bad, was);
        s.commit(bad);
        s.mon.change(|inc, _| inc.new_flags = map_flags::NORECOVER as i32);
        s.start(late);
        s.until("back", |s| {
            let is_back = acting(s, pool).contains(&late) && members.iter().all(|osd| s.is_up_to_date(*osd));
            is_back && s.states().values().all(|t| t.contains("active"))
        });
        // The write is durable everywhere but where it says that the shard before it is stale.
        let map = s.mon.map.clone();
        s.client.patch(&map, pool, "o", 8 * CHUNK, &part);
        s.deliver_requests(first);
        s.until("shipped", |s| under_way(s, first, bad, "RepOp").is_some());
        s.deliver_all(first, bad);
        let core = s.nodes[bad as usize].core.as_mut().unwrap();
        let late_commit = core.store_mut().take_commit().expect("the write");
        s.until("told", |s| under_way(s, bad, first, "Damaged").is_some());
        s.deliver_all(bad, first);
        s.mon.change(|inc, _| inc.new_flags = 0);
        for _ in 0..1_500 {
            s.run(1);
            assert!(!s.all_are("active+clean"), "nobody has begun to make the shard again");
        }
        assert!(s.states().values().all(|t| !t.contains("degraded")), "{:?}", s.states());
        let device = s.nodes[bad as usize].device.clone();
        let core = s.nodes[bad as usize].core.as_mut().unwrap();
        let seq = core.store_mut().committed(late_commit.execute(&*device)).unwrap();
        s.input(bad, Input::Durable(seq));
        s.settle();
        check_shards(&mut s, pool);
    }
}

/// A shard refuses, and others make up for it: they are asked when there is room for what that takes more.
#[test]
fn what_is_planned_anew_waits_for_room() {
    for seed in 0..4 {
        let portions = Portions { gathered: 42 * CHUNK as u64, ..Portions::default() };
        let mut s = Sim::with_config(4, seed * 2, OsdConfig { portions, ..long_log() });
        s.until("all up", |s| (0..4).all(|o| s.mon.map.is_up(o)));
        let pool = s.mon.create_coded_pool(2, 2, 3);
        s.settle();
        let map = s.mon.map.clone();
        for name in ["a", "b"] {
            let content = bytes(&mut s, 20 * CHUNK);
            s.client.write(&map, pool, name, content);
        }
        s.settle();
        let (first, members) = (primary(&s, pool), acting(&s, pool));
        let place = (0..2).find(|at| members[*at] != first).unwrap();
        let bad = members[place];
        let object = s.client.object(&map, pool, "b");
        let was = content(&mut s, bad, place, object);
        let new = bytes(&mut s, 20 * CHUNK);
        s.client.write(&map, pool, "b", new);
        s.settle();
        put_back(&mut s, bad, was);
        s.commit(bad);
        let two = ONE + 1;
        s.connect(two, |_| {});
        // This one takes most of the room, until it is answered.
        s.client.read(&map, pool, "a");
        s.deliver_requests(first);
        let held = s.links.get_mut(&(first, bad)).unwrap().pop_back().expect("a question");
        let extent = Extent::new((place * CHUNK) as u64, CHUNK as u64);
        let mut msg = request(&s, pool, "b", vec![Op::Read(extent).into()]);
        msg.pgid = s.mon.map.primary_shard(PgId::new(pool, 0)).unwrap().1;
        s.input(first, Input::Message { conn: ConnId(two as u64), tid: 1, msg: Message::from(msg) });
        s.run(3_000);
        assert!(counter(&mut s, first, "loligo_shards_refused") > 0);
        assert!(s.strangers.iter().all(|(conn, ..)| *conn != two), "there is no room");
        s.links.entry((first, bad)).or_default().push_back(held);
        let (result, data) = answer(&mut s, two, 1);
        let want = s.client.model["b"].acked.as_ref().unwrap();
        assert_eq!((result, &*data), (0, &want[place * CHUNK..][..CHUNK]));
        s.settle();
    }
}

/// What a member has of a coding chunk, to which a write adds, is on its device: it is read outside of the
/// core, and the writes behind wait. Whoever ends meanwhile, and if the read fails, nothing is added to what
/// is not there, and nothing twice.
#[test]
fn what_a_write_adds_to_is_read_outside_the_core() {
    for seed in 0..12 {
        // Devices of odd seeds have to be waited for. Of six data chunks a difference reads fewer than all
        // others.
        let (mut s, pool) = cluster_with((6, 2), 7, 0, 2 * seed + 1, long_log());
        let map = s.mon.map.clone();
        let (content, part) = (bytes(&mut s, 100 * CHUNK), bytes(&mut s, 100));
        s.client.write(&map, pool, "o", content);
        s.settle();
        let members = acting(&s, pool);
        let coding = members[6..].iter().copied().find(|osd| *osd != primary(&s, pool)).unwrap();
        // Nothing of it is in memory any more.
        for _ in 0..2 {
            s.restart(coding);
            s.settle();
        }
        let (first, map) = (primary(&s, pool), s.mon.map.clone());
        s.client.patch(&map, pool, "o", 3 * CHUNK + 5, &part);
        s.deliver_requests(first);
        s.until("shipped", |s| under_way(s, first, coding, "RepOp").is_some());
        // What came before the write is stored.
        for _ in 0..under_way(&s, first, coding, "RepOp").unwrap() {
            let msg = s.links.get_mut(&(first, coding)).and_then(VecDeque::pop_front).unwrap();
            s.deliver(first, coding, msg);
        }
        let core = |s: &mut Sim| s.nodes[coding as usize].core.as_mut().unwrap().store_mut().submitted();
        let before = core(&mut s);
        s.client.write(&map, pool, "other", vec![1; 10]);
        s.deliver_requests(first);
        s.deliver_all(first, coding);
        assert_eq!(s.nodes[coding as usize].reads.len(), 1, "seed {seed}");
        assert!(core(&mut s) == before, "the writes wait");
        match seed % 4 {
            0 => s.read(coding),
            1 => {
                let (id, _) = s.nodes[coding as usize].reads.pop().unwrap();
                let failed = DeviceError::Io { op: DeviceOp::Read, offset: 0, len: 4096, errno: 5 };
                s.input(coding, Input::Read { id, result: Err(failed.into()) });
            }
            2 => s.restart(coding),
            _ => s.restart(first),
        }
        assert!(seed % 4 > 1 || core(&mut s) != before, "they go on");
        s.settle();
        check_shards(&mut s, pool);
        s.client.read(&s.mon.map.clone(), pool, "o");
        s.settle();
    }
}
