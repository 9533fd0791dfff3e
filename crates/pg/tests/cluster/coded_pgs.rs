//! Erasure-coded PGs that are divided and joined, with what takes their writes back; their snapshots; and
//! objects that are given up.

use std::time::Duration;

use messages::Message;
use messages::osd::{Extent, Op};
use pg::Input;
use serde_json::json;
use store::Space;
use types::{ConnId, PgId, PoolId, SnapContext, SpgId};

use crate::client::Expected;
use crate::coded_kit::{
    CHUNK, acting, bytes, check_shards, cluster_with, content, long_log, mark_damaged, one_request, place_of,
    primary, put_back, short_log, under_way,
};
use crate::coded_stale::make_stale;
use crate::scrub::{How, scrub};
use crate::shares::{ONE, answer, request};
use crate::sim::{MON, Sim};

fn edit(s: &mut Sim, pool: PoolId, f: impl FnOnce(&mut maps::Pool)) {
    s.mon.change(|inc, map| f(inc.pool_mut(map, pool).unwrap()));
}

fn write_many(s: &mut Sim, pool: PoolId, names: std::ops::Range<u32>) {
    let map = s.mon.map.clone();
    for at in names {
        let content = bytes(s, [0, 10, CHUNK, 5 * CHUNK + 7][at as usize % 4]);
        s.client.write(&map, pool, &format!("n{at}"), content);
    }
}

fn read_all(s: &mut Sim, pool: PoolId) {
    let map = s.mon.map.clone();
    for name in s.client.model.keys().cloned().collect::<Vec<_>>() {
        s.client.read(&map, pool, &name);
    }
    s.until("read", |s| s.client.is_idle());
}

/// A primary knows nothing of an object of which a member says that it has it, and that was deleted. The PG
/// divides before that has turned out.
#[test]
fn a_child_knows_what_was_perhaps_deleted() {
    for seed in 0..4 {
        let (mut s, pool) = cluster_with((2, 2), 3, 0, seed, short_log());
        let map = s.mon.map.clone();
        let moves = |s: &Sim, name: &str| s.client.object(&map, pool, name).hash % 2 == 1;
        let name = (0..).map(|at| format!("n{at}")).find(|name| moves(&s, name)).unwrap();
        let old = bytes(&mut s, 6 * CHUNK);
        s.client.write(&map, pool, &name, old);
        s.settle();
        let (first, members) = (primary(&s, pool), acting(&s, pool));
        let place = (0..4).cycle().skip(seed as usize).find(|at| members[*at] != first).unwrap();
        let object = s.client.object(&map, pool, &name);
        let was = content(&mut s, members[place], place, object);
        s.client.remove(&map, pool, &name);
        s.settle();
        for at in 0..8 {
            s.client.write(&map, pool, "other", vec![at; 10]);
            s.settle();
        }
        put_back(&mut s, members[place], was);
        s.commit(members[place]);
        s.restart(members[place]);
        s.settle();
        let map = s.mon.map.clone();
        let new = bytes(&mut s, 3 * CHUNK);
        s.client.write(&map, pool, &name, new);
        s.until("unfound", |s| s.nodes[first as usize].log.iter().any(|line| line.contains("is unfound")));
        edit(&mut s, pool, |p| p.set_pg_num(2));
        s.settle();
        check_shards(&mut s, pool);
    }
}

/// Objects that are kept aside on any OSD.
fn kept(s: &mut Sim) -> usize {
    let stores = s.nodes.iter_mut().filter_map(|n| n.core.as_mut()).map(pg::OsdCore::store_mut);
    let all = stores.flat_map(|store| store.list_all(None, usize::MAX).unwrap());
    all.filter(|key| pg::coded::is_kept(&key.object)).count()
}

#[test]
fn pools_grow_and_shrink_under_writes() {
    for seed in 0..4 {
        let (mut s, pool) = cluster_with((2, 1), 2, 1, seed, long_log());
        write_many(&mut s, pool, 0..24);
        s.settle();
        write_many(&mut s, pool, 0..12);
        s.run(100);
        edit(&mut s, pool, |p| {
            p.set_pg_num(4);
            p.pgp_num = [4, 1][seed as usize % 2];
        });
        for _ in 0..10 {
            one_request(&mut s, pool);
            s.run(20);
        }
        s.settle();
        check_shards(&mut s, pool);
        assert_eq!(s.states().len(), 4);
        edit(&mut s, pool, |p| p.pgp_num = 1);
        s.settle();
        for step in 0..400 {
            let p = s.mon.map.pools[&pool].clone();
            if p.pg_num == 1 {
                break;
            }
            if p.pg_num_pending == p.pg_num && s.all_are("active+clean") {
                edit(&mut s, pool, |p| p.pg_num_pending -= 1);
            }
            if step % 3 == 0 {
                one_request(&mut s, pool);
            }
            s.run(60);
            s.tick(Duration::from_millis(500));
        }
        assert_eq!(s.mon.map.pools[&pool].pg_num, 1, "{:?}", s.states());
        s.settle();
        check_shards(&mut s, pool);
        read_all(&mut s, pool);
        s.until("nothing is kept", |s| kept(s) == 0);
    }
}

/// A write that too few members have is taken back in the PG that has the object by then: of two maps that
/// come together, the second may divide what the first has made.
#[test]
fn a_write_is_taken_back_by_a_child() {
    for (seed, steps) in (0..12).zip([&[4][..], &[2, 4]].into_iter().cycle()) {
        let (mut s, pool) = cluster_with((2, 2), 2, 0, seed, long_log());
        let map = s.mon.map.clone();
        let names: Vec<String> = (0..12).map(|at| format!("n{at}")).collect();
        for name in &names {
            let content = bytes(&mut s, 4 * CHUNK);
            s.client.write(&map, pool, name, content);
        }
        s.settle();
        let first = primary(&s, pool);
        let others: Vec<i32> = acting(&s, pool).into_iter().filter(|osd| *osd != first).collect();
        for name in &names {
            s.client.patch(&map, pool, name, 10 + seed as usize * CHUNK / 2, &[7; 30]);
        }
        s.deliver_requests(first);
        s.until("shipped", |s| others.iter().all(|to| under_way(s, first, *to, "RepOp").is_some()));
        s.run(30);
        s.client.paused = true;
        // Three have some of them, and come to the map that divides the PG with them: the fourth alone does
        // not make up what was there before.
        s.commit(first);
        for to in &others[..2] {
            s.deliver_all(first, *to);
            s.commit(*to);
        }
        for to in &others[2..] {
            s.links.remove(&(first, *to));
        }
        s.crash(first);
        for pg_num in steps {
            edit(&mut s, pool, |p| {
                p.set_pg_num(*pg_num);
                p.pgp_num = *pg_num;
            });
        }
        s.notice_crash(first);
        s.until("goes on", |s| !s.mon.map.is_up(first) && s.states().values().all(|t| t.contains("active")));
        s.start(first);
        s.client.paused = false;
        s.settle();
        check_shards(&mut s, pool);
        read_all(&mut s, pool);
        s.until("nothing is kept", |s| kept(s) == 0);
    }
}

/// A primary copies an object of another PG, whose primary gathers it of shards; OSDs end meanwhile.
#[test]
fn objects_are_copied_from_one_pg_to_another() {
    for seed in 0..4 {
        let (mut s, pool) = cluster_with((2, 2), 3, 1, seed, long_log());
        edit(&mut s, pool, |p| {
            p.set_pg_num(4);
            p.pgp_num = 4;
        });
        write_many(&mut s, pool, 0..12);
        s.settle();
        let map = s.mon.map.clone();
        for at in 0..12 {
            s.client.copy(&map, pool, &format!("c{at}"), &format!("n{at}"));
        }
        s.run(40);
        if seed % 2 == 1 {
            let osd = acting(&s, pool)[seed as usize];
            s.restart(osd);
        }
        s.until("copied", |s| s.client.is_idle());
        s.settle();
        check_shards(&mut s, pool);
        read_all(&mut s, pool);
    }
}

/// As in Ceph's pools without `allow_ec_overwrites`: an append begins at a stripe's boundary; else an object
/// is replaced or removed as a whole.
#[test]
fn without_overwrites_objects_grow_by_whole_stripes() {
    let (mut s, pool) = cluster_with((2, 1), 2, 0, 1, long_log());
    edit(&mut s, pool, |p| p.flags &= !maps::pool_flags::EC_OVERWRITES);
    s.settle();
    s.connect(ONE, |_| {});
    let mut tid = 0;
    let mut ask = |s: &mut Sim, op: Op| {
        tid += 1;
        let mut msg = request(s, pool, "o", vec![op.into()]);
        msg.pgid = s.mon.map.primary_shard(PgId::new(pool, 0)).unwrap().1;
        let first = primary(s, pool);
        s.input(first, Input::Message { conn: ConnId(ONE as u64), tid, msg: Message::from(msg) });
        answer(s, ONE, tid)
    };
    let write = |offset: usize, len: usize| Op::Write {
        extent: Extent::new(offset as u64, len as u64),
        data: vec![7; len].into(),
    };
    let stripe = 2 * CHUNK;
    for (op, want) in [
        (write(stripe, 10), -95),
        (write(0, 2 * stripe), 0),
        (write(stripe, 10), -95),
        (write(2 * stripe + 1, 10), -95),
        (Op::Zero(Extent::new(0, 10)), -95),
        (Op::Truncate(Extent::new(0, 0)), -95),
        (Op::Append { extent: Extent::new(0, 10), data: vec![7; 10].into() }, 0),
        (Op::Append { extent: Extent::new(0, 10), data: vec![7; 10].into() }, -95),
        (Op::Read(Extent::new(0, 0)), 0),
        (Op::WriteFull { extent: Extent::new(0, 5), data: vec![7; 5].into() }, 0),
        (Op::Delete, 0),
    ] {
        let text = format!("{op:?}");
        let (result, data) = ask(&mut s, op);
        assert_eq!(result, want, "{text}");
        let read = if text.starts_with("Read") { 2 * stripe + 10 } else { 0 };
        assert_eq!(data, vec![7; read], "{text}");
    }
}

/// How many clones each OSD has stored.
fn clones(s: &mut Sim, pool: PoolId) -> Vec<usize> {
    let count = |core: &mut pg::OsdCore| {
        let all = core.store_mut().list_all(None, usize::MAX).unwrap();
        all.iter().filter(|key| key.object.pool == pool && !key.object.is_head()).count()
    };
    s.nodes.iter_mut().filter_map(|n| n.core.as_mut()).map(count).collect()
}

#[test]
fn clones_of_removed_snapshots_go_from_every_shard() {
    for seed in 0..4 {
        let (mut s, pool) = cluster_with((2, 2), 3, 0, seed, long_log());
        for snap in 0..3 {
            s.client.snapc = SnapContext { seq: snap, snaps: (1..=snap).rev().collect() };
            write_many(&mut s, pool, 0..8);
            s.settle();
        }
        // Objects without data get no clones.
        assert_eq!(clones(&mut s, pool), [12; 4]);
        let end = scrub(&mut s, pool, How::Deep);
        assert!(end.ends_with(" deep-scrub ok"), "{end}");
        // One of the members is away, and then one ends in the middle.
        let osd = acting(&s, pool)[seed as usize];
        s.kill(osd);
        for snap in [1, 2] {
            let gone = [(snap, 1)].into_iter().collect();
            s.mon.change(|inc, _| {
                inc.new_removed_snaps.insert(pool, gone);
            });
            s.run(200);
            if snap == 1 {
                s.start(osd);
                s.until("half of the clones are gone", |s| clones(s, pool) == [6; 4]);
            } else {
                let another = acting(&s, pool)[(seed as usize + 1) % 4];
                s.restart(another);
            }
        }
        s.until("all clones are gone", |s| clones(s, pool) == [0; 4]);
        s.settle();
        check_shards(&mut s, pool);
        let end = scrub(&mut s, pool, How::Deep);
        assert!(end.ends_with(" deep-scrub ok"), "{end}");
    }
}

/// Asks the PG's primary to give up what is unfound; its answer.
pub fn mark(s: &mut Sim, pool: PoolId, how: &str) -> (i32, String) {
    let cmd = json!({ "prefix": "mark_unfound_lost", "pgid": format!("{pool}.0"), "mulcmd": how });
    let to = primary(s, pool);
    s.input(to, Input::AdminCommand { tid: 1, cmd: cmd.to_string() });
    let reply = s.nodes[to as usize].admin_replies.pop().expect("an answer");
    let text = String::from_utf8(reply.data.to_vec()).unwrap() + &reply.outs;
    (reply.code, text.trim().to_owned())
}

/// An object of which too few shards are left is deleted on all members when it is given up.
#[test]
fn what_is_given_up_is_deleted_everywhere() {
    for seed in 0..6 {
        let (mut s, pool) = cluster_with((2, 2), 3, 0, seed, long_log());
        let map = s.mon.map.clone();
        for name in ["a", "o"] {
            let content = bytes(&mut s, 6 * CHUNK);
            s.client.write(&map, pool, name, content);
        }
        s.settle();
        let object = s.client.object(&map, pool, "o");
        let members = acting(&s, pool);
        let lost: Vec<i32> = (0..3).map(|at| members[(seed as usize + at) % 4]).collect();
        for osd in &lost {
            mark_damaged(&mut s, pool, *osd, &object);
        }
        for osd in &lost {
            s.restart(*osd);
        }
        s.until("unfound", |s| s.states().values().all(|t| t.contains("recovery_unfound")));
        assert_eq!(mark(&mut s, pool, "revert"), (-22, "mode must be 'delete' for ec pool".into()));
        s.until("given up", |s| mark(s, pool, "delete").0 == 0);
        s.client.model.insert("o".into(), Expected::default());
        s.settle();
        check_shards(&mut s, pool);
        let map = s.mon.map.clone();
        s.client.read(&map, pool, "o");
        s.settle();
        let content = bytes(&mut s, 3 * CHUNK);
        s.client.write(&map, pool, "o", content);
        s.settle();
        check_shards(&mut s, pool);
        read_all(&mut s, pool);
    }
}

/// A member has named a newer version of an object, and the PG is divided before its primary looks at that:
/// the child looks at it.
#[test]
fn what_members_have_named_goes_to_the_child() {
    for seed in 0..6 {
        let (mut s, pool) = cluster_with((2, 2), 3, 0, seed, short_log());
        let map = s.mon.map.clone();
        let moves = |name: &String| s.client.object(&map, pool, name).hash % 4 != 0;
        let name = (0..).map(|at| format!("n{at}")).find(moves).unwrap();
        make_stale(&mut s, pool, &name, seed, 8);
        let first = primary(&s, pool);
        s.restart(first);
        s.settle();
        let (first, map) = (primary(&s, pool), s.mon.map.clone());
        let parent = SpgId { pgid: PgId::new(pool, 0), shard: place_of(&s, pool, first) as i8 };
        let content = bytes(&mut s, 5 * CHUNK + 3);
        s.client.write(&map, pool, &name, content);
        s.deliver_requests(first);
        let others: Vec<i32> = acting(&s, pool).into_iter().filter(|osd| *osd != first).collect();
        s.until("refused", |s| others.iter().any(|osd| under_way(s, *osd, first, "Newer").is_some()));
        edit(&mut s, pool, |p| p.set_pg_num(4));
        for (to, msg) in s.mon.publish() {
            s.send(MON, to, msg);
        }
        for osd in &others {
            s.deliver_all(*osd, first);
        }
        s.deliver_all(MON, first);
        s.until("divided", |s| {
            let store = s.nodes[first as usize].core.as_mut().unwrap().store_mut();
            let lacking = store.scan(Space::Pg(parent), b"m", Some(b"n"), usize::MAX).unwrap();
            assert!(lacking.is_empty(), "the parent lacks an object of its child");
            s.states().len() == 4 && s.all_are("active+clean") && s.client.is_idle()
        });
        s.settle();
        check_shards(&mut s, pool);
        read_all(&mut s, pool);
    }
}
