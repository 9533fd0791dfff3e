//! One story per test.

use std::time::Duration;

use bytes::Bytes;
use messages::osd::{MOsdOp, flags};
use pg::OsdConfig;
use types::Epoch;

use crate::sim::Sim;

pub fn cluster(osds: i32, size: u8, min_size: u8, pg_num: u32, seed: u64) -> (Sim, types::PoolId) {
    let mut s = Sim::new(osds, seed);
    s.until("all up", |s| (0..osds).all(|o| s.mon.map.is_up(o)));
    let pool = s.mon.create_pool(size, min_size, pg_num);
    s.settle();
    (s, pool)
}

pub fn write_all(s: &mut Sim, pool: types::PoolId, names: std::ops::Range<u32>, tag: u8) {
    for i in names {
        let name = format!("o{i}");
        let content = vec![tag, i as u8, tag];
        let map = s.mon.map.clone();
        s.client.write(&map, pool, &name, content);
    }
}

#[test]
fn writes_are_on_every_member_when_acknowledged() {
    let (mut s, pool) = cluster(3, 3, 2, 8, 1);
    write_all(&mut s, pool, 0..40, 1);
    s.until("all acked", |s| s.client.is_idle());
    s.check_copies();
    assert_eq!(s.client.acked, 40);
    for (_, r) in &s.client.replies {
        assert!(r.replay_version.epoch > Epoch(0) && r.user_version > 0);
        assert_eq!(r.bad_replay_version.version, r.user_version);
    }
    for i in 0..40 {
        let map = s.mon.map.clone();
        s.client.read(&map, pool, &format!("o{i}"));
    }
    s.settle();
}

#[test]
fn a_resent_request_gets_the_first_runs_result() {
    let (mut s, pool) = cluster(3, 3, 2, 4, 2);
    let map = s.mon.map.clone();
    let tid = s.client.create_exclusive(&map, pool, "once");
    let msg = {
        s.until("sent", |s| s.client.was_sent(tid));
        s.client.message_of(tid)
    };
    s.until("acked", |s| s.client.is_idle());
    let primary = map.pg_to_up_acting(msg.pgid.pgid).acting_primary;
    let again = s.client.resend(tid, &msg);
    s.send(crate::sim::CLIENT, primary, again);
    s.until("second reply", |s| s.client.replies.len() == 2);
    let [(_, a), (_, b)] = &s.client.replies[..] else { panic!() };
    assert_eq!((a.result, a.replay_version, a.user_version), (0, b.replay_version, b.user_version));
    assert_eq!(b.result, 0);
}

/// A client that may read anywhere asks a replica, and is sent on to the primary instead of waiting for ever.
#[test]
fn a_replica_refuses_reads_for_the_primary() {
    let (mut s, pool) = cluster(2, 2, 1, 1, 3);
    write_all(&mut s, pool, 0..1, 1);
    s.until("acked", |s| s.client.is_idle());
    let map = s.mon.map.clone();
    let tid = s.client.read(&map, pool, "o0");
    s.until("sent", |s| s.client.was_sent(tid));
    let msg = s.client.message_of(tid);
    s.until("answered", |s| s.client.is_idle());
    let mapped = map.pg_to_up_acting(msg.pgid.pgid);
    let replica = *mapped.acting.iter().find(|o| **o != mapped.acting_primary).unwrap();
    for flag in [flags::BALANCE_READS, flags::LOCALIZE_READS] {
        let before = s.client.replies.len();
        // One that is for the primary alone goes ahead, and gets no answer.
        for flags in [msg.flags, msg.flags | flag] {
            let again = s.client.resend(tid, &MOsdOp { flags, ..msg.clone() });
            s.send(crate::sim::CLIENT, replica, again);
        }
        s.until("refused", |s| s.client.replies.len() > before);
        let said: Vec<i32> = s.client.replies[before..].iter().map(|(_, r)| r.result).collect();
        assert_eq!(said, [types::Errno::EAGAIN.neg()]);
    }
}

#[test]
fn a_refused_write_is_remembered_too() {
    let (mut s, pool) = cluster(2, 2, 1, 1, 3);
    let map = s.mon.map.clone();
    let tid = s.client.remove(&map, pool, "absent");
    s.until("sent", |s| s.client.was_sent(tid));
    let msg = s.client.message_of(tid);
    s.until("answered", |s| s.client.is_idle());
    // Created meanwhile: a second run would succeed.
    s.client.write(&map, pool, "absent", vec![1]);
    s.until("written", |s| s.client.is_idle());
    let again = s.client.resend(tid, &msg);
    s.send(crate::sim::CLIENT, map.pg_to_up_acting(msg.pgid.pgid).acting_primary, again);
    s.until("third reply", |s| s.client.replies.len() == 3);
    assert_eq!(s.client.replies[2].1.result, -2);
    s.settle();
    s.check_copies();
}

#[test]
fn one_member_restarts_during_writes() {
    for seed in 10..14 {
        let (mut s, pool) = cluster(3, 3, 2, 8, seed);
        write_all(&mut s, pool, 0..30, 1);
        s.until("acked", |s| s.client.is_idle());
        write_all(&mut s, pool, 0..30, 2);
        s.run(40);
        s.crash(1);
        s.notice_crash(1);
        s.until("acked without it", |s| s.client.is_idle());
        write_all(&mut s, pool, 20..50, 3);
        s.run(30);
        s.start(1);
        s.settle();
        s.check_copies();
    }
}

#[test]
fn the_whole_cluster_is_killed_and_comes_back_in_any_order() {
    let orders = [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]];
    for (i, order) in orders.into_iter().enumerate() {
        let (mut s, pool) = cluster(3, 2, 1, 8, 20 + i as u64);
        write_all(&mut s, pool, 0..30, 1);
        s.until("some acked", |s| s.client.acked > 10);
        s.client.paused = true;
        for osd in 0..3 {
            s.crash(osd);
        }
        for osd in order {
            s.start(osd);
            let steps = s.rng.below(400) as usize;
            s.run(steps);
        }
        s.client.paused = false;
        s.settle();
        s.check_copies();
        assert_eq!(s.client.acked, 30);
    }
}

#[test]
fn too_few_members_take_no_writes() {
    let (mut s, pool) = cluster(3, 3, 2, 4, 30);
    write_all(&mut s, pool, 0..8, 1);
    s.settle();
    for osd in [1, 2] {
        s.crash(osd);
    }
    s.notice_crash(1);
    s.notice_crash(2);
    let acked = s.client.acked;
    write_all(&mut s, pool, 0..8, 2);
    s.run(3_000);
    assert_eq!(s.client.acked, acked, "written below min_size");
    assert!(
        s.states().values().all(|t| t.contains("peered") && t.contains("undersized")),
        "{:?}",
        s.states()
    );
    s.start(2);
    s.until("written with two", |s| s.client.is_idle());
    s.start(1);
    s.settle();
    s.check_copies();
}

#[test]
fn a_stale_copy_alone_serves_nothing() {
    let (mut s, pool) = cluster(2, 2, 1, 4, 31);
    write_all(&mut s, pool, 0..8, 1);
    s.settle();
    s.crash(0);
    s.notice_crash(0);
    write_all(&mut s, pool, 0..8, 2);
    s.until("written on one", |s| s.client.is_idle());
    s.crash(1);
    s.mon.mark_down(1);
    s.start(0);
    let replies = s.client.replies.len();
    let map = s.mon.map.clone();
    s.client.read(&map, pool, "o1");
    s.run(3_000);
    assert_eq!(s.client.replies.len(), replies, "a stale copy answered");
    assert!(s.states().values().all(|t| t == "down"), "{:?}", s.states());
    s.start(1);
    s.settle();
    s.check_copies();
}

#[test]
fn a_member_too_far_behind_is_backfilled() {
    for seed in 40..43 {
        let config = pg::OsdConfig {
            min_pg_log_entries: 3,
            max_pg_log_entries: 4,
            pg_log_trim_min: 1,
            backfill_scan_max: 5,
            ..pg::OsdConfig::default()
        };
        let mut s = Sim::with_config(3, seed, config);
        s.until("all up", |s| (0..3).all(|o| s.mon.map.is_up(o)));
        let pool = s.mon.create_pool(3, 1, 2);
        s.settle();
        write_all(&mut s, pool, 0..40, 1);
        s.settle();
        s.crash(2);
        s.notice_crash(2);
        for round in 2..5 {
            write_all(&mut s, pool, 0..60, round);
            s.until("written on two", |s| s.client.is_idle());
        }
        for i in 0..5 {
            let map = s.mon.map.clone();
            s.client.remove(&map, pool, &format!("o{i}"));
        }
        s.until("removed", |s| s.client.is_idle());
        s.start(2);
        s.run(200);
        write_all(&mut s, pool, 10..30, 9);
        s.settle();
        s.check_copies();
    }
}

#[test]
fn data_moves_when_an_osd_is_marked_out_and_in() {
    let (mut s, pool) = cluster(4, 2, 1, 16, 50);
    write_all(&mut s, pool, 0..60, 1);
    s.settle();
    s.mon.mark_out(3);
    write_all(&mut s, pool, 30..80, 2);
    s.settle();
    s.check_copies();
    s.mon.mark_in(3);
    s.settle();
    s.check_copies();
    // Copies that are not needed any more are gone.
    s.run(300);
    let map = s.mon.map.clone();
    for node in &s.nodes {
        let core = node.core.as_ref().unwrap();
        for (id, _) in core.pg_states() {
            let m = map.pg_to_up_acting(id.pgid);
            assert!(m.acting.contains(&core.whoami().0), "{id} still on {}", core.whoami());
        }
    }
}

/// CRUSH names one member only, and a copy is left on an OSD that is out: the PG keeps that copy and stays as it is.
/// `norebalance` holds what would only move whole PGs, and lets lost copies be made again.
#[test]
fn norebalance_holds_moves_and_not_repairs() {
    use maps::flags::map_flags::NOREBALANCE;
    let config = OsdConfig {
        min_pg_log_entries: 1,
        max_pg_log_entries: 2,
        pg_log_trim_min: 1,
        ..OsdConfig::default()
    };
    let mut s = Sim::with_config(4, 57, config);
    s.until("all up", |s| (0..4).all(|o| s.mon.map.is_up(o)));
    let pool = s.mon.create_pool(2, 1, 16);
    s.settle();
    write_all(&mut s, pool, 0..120, 1);
    s.settle();
    s.mon.change(|inc, map| inc.new_flags = (map.flags | NOREBALANCE) as i32);
    s.mon.mark_out(3);
    for _ in 0..10 {
        s.run(300);
        s.tick(std::time::Duration::from_millis(500));
    }
    let states = s.states();
    assert!(states.values().any(|t| t.contains("backfill_wait")), "{states:?}");
    assert!(states.values().all(|t| t.contains("active") && !t.contains("backfilling")), "{states:?}");
    // Without the OSD the same PGs lack copies.
    s.crash(3);
    s.notice_crash(3);
    s.settle();
    s.start(3);
    s.mon.mark_in(3);
    s.mon.change(|inc, map| inc.new_flags = (map.flags & !NOREBALANCE) as i32);
    s.settle();
    s.check_copies();
}

#[test]
fn a_copy_on_an_osd_that_is_out_is_kept_while_there_is_no_better_place() {
    let (mut s, pool) = cluster(3, 2, 1, 16, 55);
    write_all(&mut s, pool, 0..40, 1);
    s.settle();
    s.crash(0);
    s.notice_crash(0);
    s.run(500);
    s.mon.mark_out(2);
    for _ in 0..20 {
        s.run(200);
        s.tick(std::time::Duration::from_millis(500));
    }
    let epoch = s.mon.map.epoch;
    for _ in 0..20 {
        s.run(200);
        s.tick(std::time::Duration::from_millis(500));
    }
    assert_eq!(s.mon.map.epoch, epoch, "nobody asks for another acting set: {:?}", s.states());
    assert!(s.states().values().all(|t| t.contains("active")), "{:?}", s.states());
    s.start(0);
    s.mon.mark_in(2);
    s.settle();
    s.check_copies();
}

#[test]
fn a_pool_splits_its_pgs() {
    let (mut s, pool) = cluster(3, 2, 1, 4, 60);
    write_all(&mut s, pool, 0..60, 1);
    s.settle();
    write_all(&mut s, pool, 0..60, 2);
    s.run(60);
    for pg_num in [8, 11, 16] {
        s.mon.change(|inc, map| {
            let p = inc.pool_mut(map, pool).unwrap();
            p.set_pg_num(pg_num);
            p.pgp_num = pg_num;
        });
        s.run(100);
    }
    s.settle();
    s.check_copies();
    assert_eq!(s.states().len(), 16);
}

#[test]
fn a_deleted_pool_leaves_nothing() {
    let (mut s, pool) = cluster(2, 2, 1, 4, 70);
    write_all(&mut s, pool, 0..10, 1);
    s.settle();
    s.mon.change(|inc, map| inc.remove_pool(map, pool));
    s.run(500);
    for node in &mut s.nodes {
        let core = node.core.as_mut().unwrap();
        assert!(core.pg_states().is_empty());
        let all = core.store_mut().list(-1, &types::HObject::min(), &types::HObject::max(), 10).unwrap();
        assert_eq!(all, []);
        assert_eq!(core.store_mut().spaces().unwrap(), [store::Space::Meta]);
    }
}

#[test]
fn a_primary_that_is_cut_off_stops_answering_reads() {
    let (mut s, pool) = cluster(3, 3, 2, 1, 80);
    write_all(&mut s, pool, 0..1, 1);
    s.settle();
    let map = s.mon.map.clone();
    let old = map.pg_to_up_acting(types::PgId::new(pool, 0)).acting_primary;
    let others: Vec<i32> = (0..3).filter(|o| *o != old).collect();
    // The client and the old primary still reach each other, and the client has not heard of a new map.
    s.cut = others.iter().map(|o| (old, *o)).chain([(old, crate::sim::MON)]).collect();
    s.client.paused = true;
    let before = s.client.replies.len();
    let ask = |s: &mut Sim| {
        let tid = s.client.read(&map, pool, "o0");
        let (to, request) = s.client.send_now(&map, tid);
        assert_eq!(to, old);
        s.send(crate::sim::CLIENT, to, request);
        s.run(30);
    };
    s.tick(Duration::from_secs(3));
    ask(&mut s);
    assert_eq!(s.client.replies.len(), before + 1, "within the lease the primary answers");
    for _ in 0..24 {
        s.tick(Duration::from_secs(1));
        s.run(20);
    }
    assert!(!s.mon.map.is_up(old), "its peers have reported it");
    ask(&mut s);
    assert_eq!(s.client.replies.len(), before + 1, "a deposed primary answered");
    s.cut.clear();
    // Now the client hears of the maps, too.
    s.client.session_lost(old);
    s.client.paused = false;
    s.mon.resubscribe(old);
    s.until("everything answered", |s| s.client.is_idle());
    s.settle();
}

/// Random kills, restarts, cuts, moves and splits under random writes and reads; afterwards everything acknowledged
/// must be there, once.
fn thrash(seed: u64, rounds: u64) {
    let osds = 3 + (seed / 7 % 2) as i32;
    let log = [3, 10, 200][(seed % 3) as usize];
    let config = pg::OsdConfig {
        min_pg_log_entries: log,
        max_pg_log_entries: log * 2,
        pg_log_trim_min: 2,
        backfill_scan_max: 4,
        // It is the test that marks them down.
        max_markdown_count: 10_000,
        ..pg::OsdConfig::default()
    };
    let mut s = Sim::with_config(osds, seed, config);
    s.until("all up", |s| (0..osds).all(|o| s.mon.map.is_up(o)));
    let size = 2 + (seed % 2) as u8;
    let pool = s.mon.create_pool(size, size - 1, 4);
    s.settle();
    for round in 0..rounds {
        random_requests(&mut s, pool, round as u8);
        let steps = s.rng.below(120) as usize;
        s.run(steps);
        random_fault(&mut s, pool, osds);
    }
    s.cut.clear();
    for osd in 0..osds {
        s.mon.mark_in(osd);
        if s.nodes[osd as usize].core.is_none() {
            s.start(osd);
        }
    }
    s.settle();
    s.check_copies();
}

fn random_requests(s: &mut Sim, pool: types::PoolId, tag: u8) {
    for _ in 0..s.rng.below(12) {
        let name = format!("o{}", s.rng.below(24));
        if s.client.is_busy(&name) {
            continue;
        }
        let map = s.mon.map.clone();
        let unborn = s.client.model.get(&name).is_none_or(|e| e.acked.is_none());
        match s.rng.below(8) {
            0 => s.client.read(&map, pool, &name),
            1 => s.client.remove(&map, pool, &name),
            2 if unborn => s.client.create_exclusive(&map, pool, &name),
            _ => s.client.write(&map, pool, &name, vec![tag, s.rng.below(250) as u8]),
        };
    }
}

fn random_fault(s: &mut Sim, pool: types::PoolId, osds: i32) {
    let osd = s.rng.below(osds as u64) as i32;
    let other = (osd + 1) % osds;
    let alive = s.nodes[osd as usize].core.is_some();
    match s.rng.below(12) {
        0 | 1 if alive => {
            s.crash(osd);
            if s.rng.one_in(2) {
                s.notice_crash(osd);
            }
        }
        2..=5 if !alive => s.start(osd),
        6 if alive && s.rng.one_in(2) => s.mon.mark_down(osd),
        7 if osds > 3 && s.rng.one_in(3) => s.mon.mark_out(osd),
        8 => s.mon.mark_in(osd),
        9 if s.rng.one_in(4) => s.cut = vec![(osd, other)],
        10 => s.cut.clear(),
        11 if s.rng.one_in(10) => s.mon.change(|inc, map| {
            let p = inc.pool_mut(map, pool).unwrap();
            let more = (p.pg_num + 3).min(12);
            p.set_pg_num(more);
            p.pgp_num = more;
        }),
        _ => {}
    }
}

#[test]
fn thrashing_loses_nothing() {
    let from = std::env::var("PG_SEED").ok().and_then(|s| s.parse().ok());
    let count = std::env::var("PG_SEEDS").ok().and_then(|s| s.parse().ok()).unwrap_or(1);
    for seed in from.map_or(100..130, |s: u64| s..s + count) {
        println!("seed {seed}");
        thrash(seed, 60);
    }
}

#[test]
fn a_benchmark_writes_answers_and_leaves_nothing() {
    let mut s = Sim::new(1, 50);
    s.until("up", |s| s.mon.map.is_up(0));
    let mut run = |args: &str| {
        let cmd = format!(r#"{{"prefix":"bench"{args}}}"#);
        let msg = messages::common::MCommand { fsid: crate::mon::FSID, cmd: vec![cmd], input: Bytes::new() };
        s.send(crate::sim::CLIENT, 0, msg.into());
        let before = s.client.command_replies.len();
        s.until("answered", |s| s.client.command_replies.len() > before);
        let reply = s.client.command_replies.pop().unwrap();
        let from = types::HObject { pool: types::PoolId(0), ..types::HObject::min() };
        let to = types::HObject { pool: types::PoolId(1), ..types::HObject::min() };
        let left = s.nodes[0].core.as_mut().unwrap().store_mut().list(-1, &from, &to, 10).unwrap();
        assert_eq!(left, []);
        (reply.result, reply.status, String::from_utf8_lossy(&reply.output).into_owned())
    };
    let (code, _, output) = run(r#","size":4096,"count":200000"#);
    assert_eq!(code, 0);
    assert!(
        output.contains(r#""bytes_written": 200000"#) && output.contains(r#""blocksize": 4096"#),
        "{output}"
    );
    assert_eq!(run(r#","size":4096,"count":8192,"object_size":16384,"object_num":2"#).0, 0);
    for args in
        [r#","size":0"#, r#","size":134217728"#, r#","size":4096,"count":99999999999"#, r#","size":"x""#]
    {
        assert_eq!(run(args).0, -22, "{args}");
    }
}

#[test]
fn all_watches_of_a_client_that_is_gone_end_together() {
    let (s, pool) = cluster(3, 3, 2, 1, 51);
    watches_end_together(s, pool);
    // Writes of one object come one after the other there.
    let (s, pool) = crate::coded_kit::cluster_with((2, 1), 2, 0, 51, OsdConfig::default());
    watches_end_together(s, pool);
}

fn watches_end_together(mut s: Sim, pool: types::PoolId) {
    use messages::osd::{MOsdOp, Op, flags, watch_op};
    use pg::object::ObjectState;
    write_all(&mut s, pool, 0..1, 1);
    s.settle();
    let map = s.mon.map.clone();
    let object = s.client.object(&map, pool, "o0");
    let (primary, pgid) = map.primary_shard(types::PgId::new(pool, 0)).unwrap();
    let watchers = |s: &mut Sim| {
        let store = s.nodes[primary as usize].core.as_mut().unwrap().store_mut();
        let key = store::ObjectKey::new(pgid.shard, object.clone());
        ObjectState::load(store, &key).unwrap().info.watchers.len()
    };
    for cookie in 0..40 {
        let watch = Op::Watch { cookie, op: watch_op::WATCH, generation: 0, timeout_s: 10 };
        let msg = MOsdOp {
            pgid,
            epoch: map.epoch,
            flags: flags::WRITE | flags::READ | flags::ONDISK,
            explicit_reqid: Default::default(),
            client_inc: 0,
            mtime: Default::default(),
            object: object.clone(),
            ops: vec![watch.into()],
            snapc: Default::default(),
            retry_attempt: 0,
            features: 0,
        };
        let msg = messages::Message::Unknown(messages::Message::from(msg).into_wire(9_000 + cookie));
        s.send(crate::sim::CLIENT, primary, msg);
    }
    s.until("all watch", |s| watchers(s) == 40);
    s.run(200);
    s.input(primary, pg::Input::Disconnected { conn: types::ConnId(crate::sim::CLIENT as u64) });
    s.tick(Duration::from_secs(11));
    s.tick(Duration::from_millis(500));
    s.run(200);
    assert_eq!(watchers(&mut s), 0);
}

/// On a store without a free block every removal succeeds, though what it frees is free only after a checkpoint; and what
/// then fits is written.
#[test]
fn removals_on_a_full_store_succeed_and_make_room() {
    let (mut s, pool) = cluster(1, 1, 1, 4, 77);
    s.client.full_allowed = true;
    let map = s.mon.map.clone();
    let last = |s: &mut Sim| {
        s.until("answered", |s| s.client.is_idle());
        s.client.replies.last().expect("a reply").1.result
    };
    let mut count = 0;
    loop {
        s.client.write(&map, pool, &format!("big{count}"), vec![count as u8; 256 << 10]);
        match last(&mut s) {
            0 => count += 1,
            e => break assert_eq!(e, types::Errno::ENOSPC.neg()),
        }
        assert!(count < 400, "48 MiB never fill up");
    }
    assert!(count > 40, "only {count} objects of 256 KiB on 48 MiB");
    // Small ones fill what is left.
    for i in 0..2_000 {
        s.client.write(&map, pool, &format!("small{i}"), vec![7; 5_000]);
        if last(&mut s) != 0 {
            break;
        }
    }
    for i in 0..count {
        s.client.remove(&map, pool, &format!("big{i}"));
        assert_eq!(last(&mut s), 0, "removal {i} of {count}");
    }
    for i in 0..count / 2 {
        s.client.write(&map, pool, &format!("again{i}"), vec![i as u8; 256 << 10]);
        assert_eq!(last(&mut s), 0, "write {i} into what {count} removals freed");
    }
    s.check_copies();
}
