//! Operations: targets, resending, backoff, budget, fullness, time limits.

use std::time::Duration;

use maps::flags::map_flags;
use maps::pool_flags;
use messages::Message;
use messages::mon::MOsdMap;
use messages::osd::{MOsdBackoff, backoff_op, flags};
use objecter::{Input, OpRequest, Request, ServicePeer, Settings};
use types::{Epoch, Errno, PoolId, SnapContext, SnapId};

use crate::bed::{Bed, POOL, Sent, write};

#[test]
fn an_operation_goes_to_its_primary_and_its_answer_ends_it() {
    let mut b = Bed::new();
    let t = b.write("a");
    let sent = b.take_sent();
    assert_eq!(sent.len(), 1);
    let m = sent[0].op();
    assert_eq!(b.peer(sent[0].session), ServicePeer::Osd(b.osd_of("a")));
    assert_eq!((m.epoch, m.retry_attempt, m.pgid.pgid.pool), (b.map.epoch, 0, POOL));
    assert_eq!(m.flags, flags::WRITE | flags::ONDISK | flags::KNOWN_REDIR);
    assert_ne!(m.object.hash, 0);
    // An answer from elsewhere, and one to nothing.
    let stranger = Sent { session: sent[0].session, tid: 999, msg: sent[0].msg.clone() };
    b.reply(&stranger, 0);
    assert_eq!(b.op_result(t), None);
    b.reply(&sent[0], -2);
    assert_eq!(b.op_result(t), Some(-2));
    b.reply(&sent[0], 0);
    assert_eq!(b.done.len(), 1);
    assert_eq!(b.core.deadline(), None, "nothing waits");
}

#[test]
fn nothing_is_sent_before_the_first_map() {
    let mut b = Bed::without_map(Settings::default());
    let t = b.write("a");
    assert!(b.sent.is_empty() && b.asked.is_empty());
    b.input(Input::MonReady);
    let subs = b.take_subscriptions();
    assert_eq!(subs[0].what["osdmap"].start, 0);
    b.give_full();
    let sent = b.take_sent();
    b.reply(&sent[0], 0);
    assert_eq!(b.op_result(t), Some(0));
}

#[test]
fn a_reset_sends_again_in_order() {
    let mut b = Bed::new();
    let osd = b.osd_of("a");
    let others: Vec<String> = (0..20).map(|i| format!("o{i}")).filter(|n| b.osd_of(n) == osd).collect();
    for name in &others {
        b.write(name);
    }
    let first = b.take_sent();
    let session = first[0].session;
    b.reply(&first[0], 0);
    b.answers_open = false;
    b.reset(session);
    assert!(b.sent.is_empty(), "not before the new session stands");
    let (again, _) = b.open.iter().next().map(|(s, p)| (*s, p.clone())).expect("opened again at once");
    assert_ne!(again, session);
    b.input(Input::SessionReady(again));
    let second = b.take_sent();
    let names: Vec<&str> = second.iter().map(Sent::name).collect();
    assert_eq!(names, others[1..].iter().map(String::as_str).collect::<Vec<_>>());
    assert!(second.iter().all(|s| s.op().retry_attempt == 1 && s.op().flags & flags::RETRY != 0));
    // The old session's answers are nobody's.
    b.reply(&first[1], 0);
    assert_eq!(b.done.len(), 1);
    // Neither is an answer to the first attempt on the new one.
    let late = Sent { session: again, ..first[1].clone() };
    b.reply(&late, 0);
    assert_eq!(b.done.len(), 1);
    b.reply(&second[0], 0);
    assert_eq!(b.done.len(), 2);
}

#[test]
fn an_osd_that_cannot_be_reached_is_tried_again_later() {
    let mut b = Bed::new();
    b.answers_open = false;
    b.write("a");
    let session = *b.open.keys().next().expect("opened");
    b.reset(session);
    assert!(b.open.is_empty(), "not at once");
    assert_eq!(b.take_subscriptions().len(), 1, "perhaps it is down");
    b.answers_open = true;
    b.pass(Duration::from_secs(1));
    assert_eq!(b.take_names(), ["a"]);
}

#[test]
fn a_new_primary_gets_it_and_a_new_replica_does_not_matter() {
    let mut b = Bed::new();
    let osd = b.osd_of("a");
    b.write("a");
    let first = b.take_sent();
    let replica = (0..3).find(|o| {
        *o != osd && {
            let pg = first[0].op().pgid.pgid;
            b.map.pg_to_up_acting(pg).acting.contains(o)
        }
    });
    let replica = replica.expect("a replica");
    b.fail(replica);
    b.give();
    assert!(b.take_sent().is_empty(), "the primary has it");
    b.boot(replica);
    b.fail(osd);
    b.give();
    let second = b.take_sent();
    assert_eq!(second.len(), 1);
    assert_eq!(b.peer(second[0].session), ServicePeer::Osd(b.osd_of("a")));
    assert_ne!(b.osd_of("a"), osd);
    assert_eq!(second[0].op().epoch, b.map.epoch);
    assert_eq!(second[0].tid, first[0].tid, "duplicates are known by their number");
}

#[test]
fn an_osd_that_came_back_within_one_message_gets_it_again() {
    let mut b = Bed::new();
    let osd = b.osd_of("a");
    b.write("a");
    let first = b.take_sent();
    b.fail(osd);
    b.boot(osd);
    assert_eq!(b.osd_of("a"), osd);
    b.give();
    let sent = b.take_sent();
    let last = sent.last().expect("sent again");
    assert_eq!(b.peer(last.session), ServicePeer::Osd(osd));
    assert_ne!(last.session, first[0].session);
    assert!(!b.open.contains_key(&first[0].session), "the old process's session is closed");
}

#[test]
fn a_split_pg_gets_it_again() {
    let mut b = Bed::new();
    b.write("a");
    b.take_sent();
    b.change(|inc, map| inc.pool_mut(map, POOL).expect("the pool").set_pg_num(16));
    b.give();
    assert_eq!(b.take_names(), ["a"]);
}

#[test]
fn the_monitor_can_force_it() {
    let mut b = Bed::new();
    b.write("a");
    b.take_sent();
    let next = b.map.epoch.next();
    b.change(|inc, map| inc.pool_mut(map, POOL).expect("the pool").last_force_op_resend = next);
    b.give();
    assert_eq!(b.take_names(), ["a"]);
    b.change(|_, _| {});
    b.give();
    assert!(b.take_names().is_empty());
}

#[test]
fn snapshots_that_were_removed_meanwhile_are_left_out_when_it_is_sent_again() {
    for jumped in [false, true] {
        let mut b = Bed::new();
        b.submit(Request::Op(Box::new(OpRequest {
            snapc: SnapContext { seq: 9, snaps: vec![9, 7, 4] },
            ..write("a")
        })));
        b.take_sent();
        b.change(|inc, _| inc.remove_snap(POOL, SnapId(7)));
        b.change(|inc, _| inc.remove_snap(POOL, SnapId(5)));
        let osd = b.osd_of("a");
        b.fail(osd);
        if jumped {
            // The maps between are forgotten.
            let full = b.full();
            b.mon_says(0, MOsdMap { oldest: full.newest, ..full }.into());
        } else {
            b.give();
        }
        let sent = b.take_sent();
        let again = sent.last().expect("sent again").op();
        assert_eq!(again.snapc, SnapContext { seq: 9, snaps: vec![9, 4] }, "jumped: {jumped}");
    }
}

#[test]
fn paused_and_full_clusters_hold_operations_back() {
    let mut b = Bed::new();
    b.change(|inc, map| inc.change_flags(map, map_flags::PAUSEWR, 0));
    b.give();
    let subs = b.take_subscriptions();
    assert!(
        subs.iter().any(|s| s.what.get("osdmap").is_some_and(|i| !i.is_onetime())),
        "waits for every map"
    );
    b.write("w");
    b.read("r");
    assert_eq!(b.take_names(), ["r"]);
    b.change(|inc, map| inc.change_flags(map, map_flags::PAUSERD, map_flags::PAUSEWR));
    b.give();
    assert_eq!(b.take_names(), ["w"]);
    b.read("r2");
    assert!(b.take_names().is_empty());
    b.change(|inc, map| inc.change_flags(map, 0, map_flags::PAUSERD));
    b.give();
    // The OSD may have dropped what it had while reads were paused.
    assert_eq!(b.take_names(), ["r", "r2"]);

    b.change(|inc, map| inc.pool_mut(map, POOL).expect("the pool").set_flag(pool_flags::FULL));
    b.give();
    b.write("full");
    b.read("r3");
    let mut forced = write("forced");
    forced.flags |= flags::FULL_TRY;
    b.submit(Request::Op(Box::new(forced)));
    assert_eq!(b.take_names(), ["r3", "forced"]);
    b.change(|inc, map| inc.pool_mut(map, POOL).expect("the pool").unset_flag(pool_flags::FULL));
    b.give();
    assert_eq!(b.take_names(), ["w", "full"]);
}

#[test]
fn a_backoff_holds_its_range_until_it_ends() {
    let mut b = Bed::new();
    b.write("a");
    b.write("a");
    let first = b.take_sent();
    let (session, m) = (first[0].session, first[0].op().clone());
    let block = MOsdBackoff {
        pgid: m.pgid,
        epoch: m.epoch,
        op: backoff_op::BLOCK,
        id: 3,
        begin: m.object.clone(),
        end: m.object.clone(),
    };
    b.input(Input::FromSession { session, tid: 0, msg: block.clone().into() });
    let acks = b.take_sent();
    assert!(
        matches!(&acks[0].msg, Message::OsdBackoff(ack) if ack.op == backoff_op::ACK_BLOCK && ack.id == 3)
    );
    b.write("a");
    let other = (0..).map(|i| format!("x{i}")).find(|n| b.osd_of(n) == b.osd_of("a")).expect("one");
    b.write(&other);
    assert_eq!(b.take_names(), [other], "only what is not in the range");
    let unblock = MOsdBackoff { op: backoff_op::UNBLOCK, ..block.clone() };
    b.input(Input::FromSession { session, tid: 0, msg: unblock.into() });
    assert_eq!(b.take_names(), ["a", "a", "a"]);
    // A backoff ends with its session.
    b.input(Input::FromSession { session, tid: 0, msg: block.into() });
    b.take_sent();
    b.reset(session);
    assert_eq!(b.take_names().iter().filter(|n| *n == "a").count(), 3);
}

#[test]
fn the_budget_lets_others_wait_in_order() {
    let mut b = Bed::with(Settings { max_ops: 2, max_bytes: 1000, ..Settings::default() });
    let tickets: Vec<_> = (0..4).map(|i| b.write(&format!("o{i}"))).collect();
    let sent = b.take_sent();
    assert_eq!(sent.len(), 2);
    b.reply(&sent[1], 0);
    assert_eq!(b.take_names(), ["o2"]);
    b.input(Input::Cancel(tickets[3], Errno::ECANCELED));
    assert_eq!(b.op_result(tickets[3]), Some(Errno::ECANCELED.neg()));
    b.reply(&sent[0], 0);
    assert!(b.take_names().is_empty());
    // More bytes than the budget has: alone, but not never.
    let mut large = write("large");
    large.ops[0].indata = vec![0; 5000].into();
    b.submit(Request::Op(Box::new(large)));
    assert!(b.take_names().is_empty());
    let rest: Vec<_> = tickets.iter().filter(|t| b.op_result(**t).is_none()).collect();
    assert_eq!(rest.len(), 1);
    b.input(Input::Cancel(tickets[2], Errno::ECANCELED));
    assert_eq!(b.take_names(), ["large"]);
}

#[test]
fn time_limits_end_operations() {
    let mut b = Bed::new();
    let mut limited = write("a");
    limited.timeout = Some(Duration::from_secs(3));
    let t = b.submit(Request::Op(Box::new(limited)));
    let sent = b.take_sent();
    b.pass(Duration::from_secs(2));
    assert_eq!(b.op_result(t), None);
    b.pass(Duration::from_secs(1));
    assert_eq!(b.op_result(t), Some(Errno::ETIMEDOUT.neg()));
    b.reply(&sent[0], 0);
    assert_eq!(b.done.len(), 1);
}

#[test]
fn what_takes_long_asks_for_maps_and_signs_of_life() {
    let mut b = Bed::new();
    b.write("a");
    b.take_sent();
    b.asked.clear();
    b.pass(Duration::from_secs(12));
    assert!(b.take_sent().iter().any(|s| matches!(s.msg, Message::Ping(_))));
    let subs = b.take_subscriptions();
    assert_eq!(subs.len(), 1, "once");
    assert_eq!(subs[0].what["osdmap"].start, u64::from(b.map.epoch.0) + 1);
}

#[test]
fn an_unknown_pool_is_enoent_once_the_newest_map_says_so() {
    let mut b = Bed::new();
    let mut elsewhere = write("a");
    elsewhere.object.pool = PoolId(2);
    let t = b.submit(Request::Op(Box::new(elsewhere)));
    assert_eq!(b.op_result(t), None);
    let (tid, asked) = b.asked.pop().expect("asks which map is the newest");
    let Message::MonGetVersion(m) = asked else { panic!("{asked:?}") };
    assert_eq!((m.what.as_str(), m.handle), ("osdmap", tid));
    b.change(|_, _| {});
    let answer =
        messages::mon::MMonGetVersionReply { handle: tid, version: b.map.epoch.0.into(), oldest_version: 1 };
    b.mon_says(tid, answer.into());
    assert_eq!(b.op_result(t), None, "our map is older");
    b.give();
    assert_eq!(b.op_result(t), Some(Errno::ENOENT.neg()));
    // A pool that was there and goes.
    let t = b.write("a");
    b.change(|inc, map| inc.remove_pool(map, POOL));
    b.give();
    assert_eq!(b.op_result(t), Some(Errno::ENOENT.neg()));
    assert_eq!(b.map.epoch, Epoch(5));
}

#[test]
fn reads_of_replicas_fall_back_to_the_primary() {
    let mut b = Bed::new();
    let mut to_replica = 0;
    for _ in 0..8 {
        let mut any = write("a");
        any.flags = flags::READ | flags::BALANCE_READS;
        let t = b.submit(Request::Op(Box::new(any)));
        let sent = b.take_sent();
        if b.peer(sent[0].session) == ServicePeer::Osd(b.osd_of("a")) {
            b.reply(&sent[0], 0);
        } else {
            to_replica += 1;
            b.reply(&sent[0], Errno::EAGAIN.neg());
            let again = b.take_sent();
            assert_eq!(b.peer(again[0].session), ServicePeer::Osd(b.osd_of("a")));
            assert_eq!(again[0].op().flags & flags::BALANCE_READS, 0);
            b.reply(&again[0], 0);
        }
        assert_eq!(b.op_result(t), Some(0));
    }
    assert!(to_replica > 0);
}
