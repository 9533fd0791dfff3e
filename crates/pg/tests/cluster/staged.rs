//! Large writes whose data goes ahead in pieces: they are whole everywhere or nowhere, in their order, and
//! nothing of them is left aside, whatever happens in between.

use std::collections::VecDeque;

use bytes::Bytes;
use messages::Message;
use messages::osd::{Extent, Op, OsdOp};
use pg::{Input, OsdConfig, OsdCore, Portions};
use store::{ObjectKey, Txn};
use types::{AuthName, ConnId, EntityType, HObject, OsdId, PoolId, SnapContext, SnapId};

use crate::shares::{ONE, answer, request};
use crate::sim::{CLIENT, Sim};

const KIB: usize = 1 << 10;
/// From here on writes are staged, in pieces of so many bytes.
const LEAST: usize = 64 * KIB;
const PIECE: usize = 16 * KIB;
const TWO: i32 = CLIENT + 2;

fn config() -> OsdConfig {
    OsdConfig {
        min_pg_log_entries: 200,
        portions: Portions { stage_from: LEAST, stage_piece: PIECE as u64, ..Portions::default() },
        ..OsdConfig::default()
    }
}

fn cluster_of(osds: i32, size: u8, pg_num: u32, seed: u64) -> (Sim, PoolId) {
    let mut s = Sim::with_config(osds, seed, config());
    s.until("all up", |s| (0..osds).all(|o| s.mon.map.is_up(o)));
    let pool = s.mon.create_pool(size, size.min(2), pg_num);
    s.settle();
    (s, pool)
}

fn content(tag: u32, len: usize) -> Vec<u8> {
    (0..len as u32).map(|i| (i.wrapping_mul(2_654_435_761).wrapping_add(tag << 9) >> 11) as u8).collect()
}

fn cores(s: &mut Sim) -> impl Iterator<Item = &mut OsdCore> {
    s.nodes.iter_mut().filter_map(|n| n.core.as_mut())
}

/// Objects aside, by OSD that runs.
fn aside(s: &mut Sim) -> Vec<usize> {
    let until = HObject { pool: PoolId(-1), ..HObject::min() };
    let count =
        |core: &mut OsdCore| core.store_mut().list(-1, &HObject::min(), &until, 1_000).expect("a list").len();
    cores(s).map(count).collect()
}

fn nothing_is_aside(s: &mut Sim) {
    for _ in 0..4 {
        s.tick(std::time::Duration::from_millis(500));
        s.run(200);
    }
    let left = aside(s);
    assert!(left.iter().all(|n| *n == 0), "left aside: {left:?}");
}

/// A counter over all OSDs that run.
fn counted(s: &mut Sim, name: &str) -> u64 {
    let mut sum = 0;
    for osd in 0..s.nodes.len() as i32 {
        if s.nodes[osd as usize].core.is_none() {
            continue;
        }
        s.input(osd, Input::AdminCommand { tid: 1, cmd: r#"{"prefix":"perf dump"}"#.into() });
        let reply = s.nodes[osd as usize].admin_replies.pop().expect("an answer");
        let told: serde_json::Value = serde_json::from_slice(&reply.data).expect("JSON");
        sum += told["osd"][name].as_u64().expect("a counter");
    }
    sum
}

fn staged(s: &mut Sim) -> u64 {
    counted(s, "staged")
}

fn idle(s: &mut Sim) {
    s.until("answered", |s| s.client.is_idle());
}

#[test]
fn what_is_large_goes_ahead_and_is_whole_everywhere() {
    for seed in 300..304 {
        let (mut s, pool) = cluster_of(3, 3, 4, seed);
        let map = s.mon.map.clone();
        s.most_queued = Some(0);
        s.client.write(&map, pool, "whole", content(1, 500_001));
        idle(&mut s);
        s.client.write(&map, pool, "part", content(2, 90 * KIB));
        idle(&mut s);
        // In the middle of a block, over what is there and beyond it.
        s.client.patch(&map, pool, "part", 7_001, &content(3, 300 * KIB));
        idle(&mut s);
        s.client.copy(&map, pool, "copy", "part");
        idle(&mut s);
        s.client.write(&map, pool, "small", content(4, LEAST));
        idle(&mut s);
        for name in ["whole", "part", "copy"] {
            s.client.read(&map, pool, name);
        }
        s.settle();
        s.check_copies();
        assert_eq!(staged(&mut s), 4, "seed {seed}");
        nothing_is_aside(&mut s);
    }
}

/// What one entity has under way is bounded however large its writes are, and all of it is two pieces for
/// each member.
#[test]
fn few_pieces_are_under_way() {
    let (mut s, pool) = cluster_of(3, 3, 1, 310);
    let map = s.mon.map.clone();
    s.most_queued = Some(0);
    for i in 0..6 {
        s.client.write(&map, pool, &format!("o{i}"), content(i, 800 * KIB));
    }
    idle(&mut s);
    let most = s.most_queued.expect("counted");
    assert!(most < 2 * 2 * PIECE + 64 * KIB, "{most} bytes were under way");
    assert!(staged(&mut s) >= 6);
    s.settle();
    s.check_copies();
    nothing_is_aside(&mut s);
}

/// Small writes of the same object that come behind a large one stay behind it, and reads see it.
#[test]
fn requests_of_an_object_keep_their_order() {
    for seed in 320..326 {
        let (mut s, pool) = cluster_of(3, 3, 1, seed);
        s.connect(ONE, |_| {});
        let primary = s.mon.map.pg_to_up_acting(types::PgId::new(pool, 0)).acting_primary;
        let large = content(9, 300 * KIB);
        let whole = Op::WriteFull { extent: Extent::new(0, large.len() as u64), data: large.clone().into() };
        let append = |text: &'static str| {
            let data = Bytes::from_static(text.as_bytes());
            OsdOp::from(Op::Append { extent: Extent::new(0, data.len() as u64), data })
        };
        let read = || OsdOp::from(Op::Read(Extent::new(0, 0)));
        let requests: Vec<Vec<OsdOp>> = vec![
            vec![append("first")],
            vec![whole.clone().into()],
            vec![append("second")],
            vec![read()],
            vec![whole.into(), append("third")],
            vec![append("fourth")],
            vec![read()],
        ];
        for (tid, ops) in (1..).zip(requests) {
            let msg = Message::from(request(&s, pool, "o", ops));
            s.input(primary, Input::Message { conn: ConnId(ONE as u64), tid, msg });
        }
        let with = |tail: &str| [large.as_slice(), tail.as_bytes()].concat();
        assert!(answer(&mut s, ONE, 4).1 == with("second"), "seed {seed}");
        assert!(answer(&mut s, ONE, 7).1 == with("thirdfourth"), "seed {seed}");
        assert!(staged(&mut s) >= 2);
        nothing_is_aside(&mut s);
    }
}

/// Two clients write the same object, and one of them sends again what is under way.
#[test]
fn a_request_that_comes_again_is_done_once() {
    for seed in 330..334 {
        let (mut s, pool) = cluster_of(2, 2, 1, seed);
        s.connect(ONE, |_| {});
        s.connect(TWO, |_| {});
        let primary = s.mon.map.pg_to_up_acting(types::PgId::new(pool, 0)).acting_primary;
        let append = |tag: u32| {
            let data = Bytes::from(content(tag, 100 * KIB));
            OsdOp::from(Op::Append { extent: Extent::new(0, data.len() as u64), data })
        };
        // The last one is the first again.
        for (conn, tag) in [(ONE, 1), (TWO, 2), (ONE, 1)] {
            let msg = Message::from(request(&s, pool, "o", vec![append(tag)]));
            s.input(primary, Input::Message { conn: ConnId(conn as u64), tid: 1, msg });
            let steps = s.rng.below(20) as usize;
            s.run(steps);
        }
        let answers = |s: &Sim| {
            let replies = s.strangers.iter().filter(|m| matches!(m.2, Message::OsdOpReply(_)));
            replies.count()
        };
        s.until("three answers", |s| answers(s) == 3);
        for conn in [ONE, TWO] {
            assert_eq!(answer(&mut s, conn, 1).0, 0);
        }
        let object = s.client.object(&s.mon.map, pool, "o");
        let (one, two) = (content(1, 100 * KIB), content(2, 100 * KIB));
        let found = s.stored(primary, &object).expect("it is there");
        let whole = [[one.clone(), two.clone()].concat(), [two, one].concat()];
        assert!(whole.contains(&found), "seed {seed}: {} bytes", found.len());
        nothing_is_aside(&mut s);
    }
}

#[test]
fn what_is_refused_is_not_sent_ahead() {
    let (mut s, pool) = cluster_of(2, 2, 1, 340);
    s.connect(ONE, |_| {});
    let primary = s.mon.map.pg_to_up_acting(types::PgId::new(pool, 0)).acting_primary;
    let data = Bytes::from(content(1, 100 * KIB));
    let write = |offset| {
        let extent = Extent::new(offset, data.len() as u64);
        OsdOp::from(Op::Write { extent, data: data.clone() })
    };
    let guard = Op::CmpXattr { name: "a".into(), op: 1, mode: 1, value: "b".into() };
    let cases = [
        vec![write(128 << 20)],
        vec![guard.into(), write(0)],
        vec![write(0), Op::AssertVer { version: 77 }.into()],
        vec![
            write(0),
            Op::OmapRmKeys { keys: Default::default() }.into(),
            write(127 << 20),
            write(128 << 20),
        ],
    ];
    for (tid, ops) in (1..).zip(cases) {
        let msg = Message::from(request(&s, pool, "o", ops));
        s.input(primary, Input::Message { conn: ConnId(ONE as u64), tid, msg });
        assert!(answer(&mut s, ONE, tid).0 < 0, "request {tid}");
    }
    assert_eq!((counted(&mut s, "staged"), aside(&mut s)), (0, vec![0, 0]));
}

#[test]
fn deaths_in_the_middle_leave_nothing_behind() {
    for seed in 350..366 {
        let (mut s, pool) = cluster_of(3, 3, 2, seed);
        let map = s.mon.map.clone();
        for i in 0..4 {
            s.client.write(&map, pool, &format!("o{i}"), content(i, 200 * KIB));
        }
        let steps = s.rng.below(120) as usize;
        s.run(steps);
        let victim = s.rng.below(3) as i32;
        s.crash(victim);
        s.notice_crash(victim);
        idle(&mut s);
        for i in 0..4 {
            s.client.patch(&map, pool, &format!("o{i}"), 5_000, &content(i + 9, 150 * KIB));
        }
        let steps = s.rng.below(60) as usize;
        s.run(steps);
        s.start(victim);
        idle(&mut s);
        s.settle();
        s.check_copies();
        nothing_is_aside(&mut s);
    }
}

/// Messages between OSDs were lost, in an interval that goes on.
#[test]
fn a_lost_session_leaves_no_hole() {
    for seed in 370..382 {
        let (mut s, pool) = cluster_of(3, 3, 1, seed);
        let map = s.mon.map.clone();
        let primary = map.pg_to_up_acting(types::PgId::new(pool, 0)).acting_primary;
        let member = (0..3).find(|o| *o != primary).expect("a member");
        s.client.write(&map, pool, "o", content(1, 400 * KIB));
        let steps = s.rng.below(60) as usize;
        s.run(steps);
        s.links.insert((primary, member), VecDeque::new());
        s.input(member, Input::OsdReset { osd: OsdId(primary) });
        if s.rng.one_in(2) {
            s.input(primary, Input::OsdReset { osd: OsdId(member) });
        }
        idle(&mut s);
        s.settle();
        s.check_copies();
        nothing_is_aside(&mut s);
    }
}

/// What a member lacks of a write is not made up: it leaves, and is caught up.
#[test]
fn a_member_that_lacks_a_piece_applies_nothing() {
    let (mut s, pool) = cluster_of(3, 3, 1, 390);
    let map = s.mon.map.clone();
    let primary = map.pg_to_up_acting(types::PgId::new(pool, 0)).acting_primary;
    let member = (0..3).find(|o| *o != primary).expect("a member");
    s.client.write(&map, pool, "o", content(1, 300 * KIB));
    let until = HObject { pool: PoolId(-1), ..HObject::min() };
    let all_there = |s: &mut Sim| {
        let store = s.nodes[member as usize].core.as_mut().expect("runs").store_mut();
        let there = store.list(-1, &HObject::min(), &until, 9).expect("a list").pop();
        let key = ObjectKey::replicated(there?);
        let stat = store.stat(&key).expect("stat").expect("listed");
        (stat.size >= 290 * KIB as u64).then_some(key)
    };
    s.until("it is all there", |s| all_there(s).is_some());
    let key = all_there(&mut s).expect("it is there");
    let store = s.nodes[member as usize].core.as_mut().expect("runs").store_mut();
    let mut txn = Txn::new();
    txn.zero(&key, 64 << 10, 4096);
    store.submit(txn).expect("submitted");
    idle(&mut s);
    s.settle();
    s.check_copies();
    let complaint = |line: &String| line.contains("cannot apply a write") && line.contains("moved");
    assert_eq!(s.nodes[member as usize].log.iter().filter(|l| complaint(l)).count(), 1);
    nothing_is_aside(&mut s);
}

#[test]
fn a_client_that_leaves_takes_its_pieces_along() {
    for seed in 400..408 {
        let (mut s, pool) = cluster_of(3, 3, 1, seed);
        for conn in [ONE, TWO] {
            s.connect(conn, |p| p.auth_name = AuthName::new(EntityType::Client, conn.to_string()));
        }
        let primary = s.mon.map.pg_to_up_acting(types::PgId::new(pool, 0)).acting_primary;
        let whole = |tag: u32| {
            let data = Bytes::from(content(tag, 400 * KIB));
            OsdOp::from(Op::WriteFull { extent: Extent::new(0, data.len() as u64), data })
        };
        for (conn, tag) in [(ONE, 1), (TWO, 2)] {
            let msg = Message::from(request(&s, pool, "o", vec![whole(tag)]));
            s.input(primary, Input::Message { conn: ConnId(conn as u64), tid: 1, msg });
        }
        let steps = 5 + s.rng.below(40) as usize;
        s.run(steps);
        s.input(primary, Input::Disconnected { conn: ConnId(ONE as u64) });
        assert_eq!(answer(&mut s, TWO, 1).0, 0, "who waits behind it goes on");
        let object = s.client.object(&s.mon.map, pool, "o");
        assert!(s.stored(primary, &object).expect("written") == content(2, 400 * KIB), "seed {seed}");
        nothing_is_aside(&mut s);
    }
}

#[test]
fn a_pool_that_goes_leaves_nothing_aside() {
    let (mut s, pool) = cluster_of(3, 3, 1, 410);
    s.connect(ONE, |_| {});
    let primary = s.mon.map.pg_to_up_acting(types::PgId::new(pool, 0)).acting_primary;
    for tid in 0..3 {
        let data = Bytes::from(content(tid, 400 * KIB));
        let write = Op::WriteFull { extent: Extent::new(0, data.len() as u64), data };
        let msg = Message::from(request(&s, pool, &format!("o{tid}"), vec![write.into()]));
        s.input(primary, Input::Message { conn: ConnId(ONE as u64), tid: tid.into(), msg });
    }
    s.until("something is aside", |s| aside(s).iter().all(|n| *n > 0));
    s.mon.change(|inc, _| {
        inc.old_pools.insert(pool);
    });
    s.until("nothing is there", |s| {
        let empty = |core: &mut OsdCore| core.store_mut().list_all(None, 1).expect("a list").is_empty();
        cores(s).all(empty)
    });
}

fn send_large(s: &mut Sim, pool: PoolId, (who, tid): (i32, u64), len: usize) {
    let data = Bytes::from(content(tid as u32, len));
    let write = Op::WriteFull { extent: Extent::new(0, len as u64), data };
    let msg = Message::from(request(s, pool, &format!("o{tid}"), vec![write.into()]));
    s.input(0, Input::Message { conn: ConnId(who as u64), tid, msg });
}

fn is_answered(s: &Sim, who: i32, tid: u64) -> bool {
    s.strangers.iter().any(|m| (m.0, m.1) == (who, tid) && matches!(m.2, Message::OsdOpReply(_)))
}

/// What waits for those ahead of it goes on when their PG is gone.
#[test]
fn a_pool_that_goes_makes_way_for_another() {
    let (mut s, gone) = cluster_of(1, 1, 1, 411);
    let pool = s.mon.create_pool(1, 1, 1);
    s.settle();
    s.connect(ONE, |_| {});
    for (tid, pool) in (1..).zip([gone, gone, gone, pool]) {
        send_large(&mut s, pool, (ONE, tid), 400 * KIB);
    }
    s.until("something is aside", |s| aside(s).iter().all(|n| *n > 0));
    assert!(!is_answered(&s, ONE, 4), "it waits for those ahead of it");
    s.mon.change(|inc, _| {
        inc.old_pools.insert(gone);
    });
    s.until("the last one is answered", |s| is_answered(s, ONE, 4));
    nothing_is_aside(&mut s);
}

/// A large write that finds no room aside is not passed by smaller ones for ever.
#[test]
fn the_oldest_write_is_the_next_to_begin() {
    let mut config = config();
    config.portions.aside = 600 * KIB as u64;
    let mut s = Sim::with_config(1, 412, config);
    s.until("up", |s| s.mon.map.is_up(0));
    let pool = s.mon.create_pool(1, 1, 1);
    s.settle();
    s.connect(ONE, |_| {});
    s.connect(TWO, |_| {});
    // One client has one or two writes aside all the time.
    for tid in [1, 2] {
        send_large(&mut s, pool, (ONE, tid), 100 * KIB);
    }
    send_large(&mut s, pool, (TWO, 100), 550 * KIB);
    for tid in 3..30 {
        s.until("one more is answered", |s| is_answered(s, ONE, tid - 2) || is_answered(s, TWO, 100));
        send_large(&mut s, pool, (ONE, tid), 100 * KIB);
    }
    assert!(is_answered(&s, TWO, 100), "27 writes have passed it");
    s.until("all are answered", |s| (1..30).all(|tid| is_answered(s, ONE, tid)));
    nothing_is_aside(&mut s);
}

#[test]
fn snapshots_keep_what_was_there() {
    for seed in 420..424 {
        let (mut s, pool) = cluster_of(3, 3, 1, seed);
        let map = s.mon.map.clone();
        let (old, new) = (content(1, 300 * KIB), content(2, 250 * KIB));
        s.client.write(&map, pool, "o", old.clone());
        idle(&mut s);
        s.client.snapc = SnapContext { seq: 1, snaps: vec![1] };
        s.client.write(&map, pool, "o", new.clone());
        idle(&mut s);
        // And what is moved in is shared with a clone in turn.
        s.client.snapc = SnapContext { seq: 2, snaps: vec![2, 1] };
        s.client.patch(&map, pool, "o", 4_096, &content(3, 120 * KIB));
        idle(&mut s);
        s.settle();
        s.check_copies();
        let object = s.client.object(&map, pool, "o");
        for (osd, (snap, want)) in (0..3).flat_map(|osd| [(1, &old), (2, &new)].map(|case| (osd, case))) {
            let clone = HObject { snap: SnapId(snap), ..object.clone() };
            assert!(s.stored(osd, &clone).as_ref() == Some(want), "seed {seed}: clone {snap} on osd.{osd}");
        }
        assert!(staged(&mut s) >= 3);
        nothing_is_aside(&mut s);
    }
}

/// A member that is backfilled gets large writes of what it has, and of what it does not have yet.
#[test]
fn large_writes_reach_a_member_that_is_backfilled() {
    for seed in 430..436 {
        let (mut s, pool) = cluster_of(4, 3, 1, seed);
        let map = s.mon.map.clone();
        for i in 0..30 {
            s.client.write(&map, pool, &format!("o{i}"), content(i, 20 * KIB));
        }
        idle(&mut s);
        s.settle();
        let acting = map.pg_to_up_acting(types::PgId::new(pool, 0)).acting;
        s.mon.mark_out(acting[2]);
        s.until("a map", |s| s.mon.map.epoch > map.epoch);
        let map = s.mon.map.clone();
        for round in 0..4 {
            for i in 0..6 {
                s.client.write(&map, pool, &format!("o{}", 5 * i + round), content(i + 50, 100 * KIB));
            }
            let steps = s.rng.below(80) as usize;
            s.run(steps);
            idle(&mut s);
        }
        s.settle();
        s.check_copies();
        assert!(staged(&mut s) > 0);
        nothing_is_aside(&mut s);
    }
}

/// Where a member has no room the request is treated as ever: it waits, or is refused.
#[test]
fn without_room_nothing_stays_aside() {
    for seed in [1, 2] {
        let mut s = Sim::with_devices(&[64 << 20, 16 << 20], seed, config());
        s.until("all up", |s| (0..2).all(|o| s.mon.map.is_up(o)));
        let pool = s.mon.create_pool(2, 1, 4);
        s.settle();
        s.client.full_allowed = true;
        let map = s.mon.map.clone();
        let mut full = false;
        for i in 0..200 {
            s.client.write(&map, pool, &format!("o{i}"), content(i, 400 * KIB));
            idle(&mut s);
            full = s.client.replies.last().expect("an answer").1.result == -28;
            if full {
                break;
            }
        }
        assert!(full, "never full");
        s.settle();
        s.check_copies();
        nothing_is_aside(&mut s);
    }
}

/// What an OSD had aside when it died is gone when it has started.
#[test]
fn a_start_removes_what_was_aside() {
    let (mut s, pool) = cluster_of(3, 3, 1, 440);
    let map = s.mon.map.clone();
    s.client.write(&map, pool, "o", content(1, 800 * KIB));
    let all_durable = |s: &mut Sim| (0..3).all(|osd| s.is_durable(osd));
    s.until("something durable is aside", |s| aside(s).iter().all(|n| *n > 0) && all_durable(s));
    for osd in 0..3 {
        s.crash(osd);
    }
    for osd in 0..3 {
        s.start(osd);
    }
    assert_eq!(aside(&mut s), [0, 0, 0]);
    idle(&mut s);
    s.settle();
    s.check_copies();
}

/// A member that says nothing holds a request up no longer than it would without staging: its data goes as a
/// whole.
#[test]
fn a_silent_member_ends_the_staging() {
    // Nobody takes it for dead meanwhile.
    let config = OsdConfig { heartbeat_grace: std::time::Duration::from_secs(600), ..config() };
    let mut s = Sim::with_config(3, 450, config);
    s.until("all up", |s| (0..3).all(|o| s.mon.map.is_up(o)));
    let pool = s.mon.create_pool(3, 2, 1);
    s.settle();
    let map = s.mon.map.clone();
    let primary = map.pg_to_up_acting(types::PgId::new(pool, 0)).acting_primary;
    let member = (0..3).find(|o| *o != primary).expect("a member");
    s.client.write(&map, pool, "o", content(1, 400 * KIB));
    s.until("something is aside", |s| aside(s).iter().all(|n| *n > 0));
    s.cut = vec![(primary, member)];
    for _ in 0..24 {
        s.tick(std::time::Duration::from_millis(500));
        s.run(200);
    }
    assert_eq!((aside(&mut s)[primary as usize], s.client.is_idle()), (0, false));
    s.cut.clear();
    idle(&mut s);
    s.settle();
    s.check_copies();
    assert_eq!(staged(&mut s), 0);
    nothing_is_aside(&mut s);
}
