//! Watches and notifies.

use std::time::Duration;

use bytes::Bytes;
use maps::flags::map_flags;
use maps::pool_flags;
use messages::osd::{MOsdOpReply, MWatchNotify, Op, flags, watch_event, watch_op};
use objecter::{Effect, Input, Outcome, Request, Ticket, WatchEvent};
use types::Errno;

use crate::bed::{Bed, POOL, Sent, object};

/// The watch operation in a request.
fn watch_of(sent: &Sent) -> (u64, u8, u32) {
    match sent.op().ops[0].parse() {
        Ok(Op::Watch { cookie, op, generation, .. }) => (cookie, op, generation),
        other => panic!("not a watch: {other:?}"),
    }
}

fn events(b: &mut Bed) -> Vec<WatchEvent> {
    let all = std::mem::take(&mut b.other);
    all.into_iter()
        .filter_map(|e| if let Effect::Watch { event, .. } = e { Some(event) } else { None })
        .collect()
}

fn watched(b: &mut Bed, name: &str) -> (u64, Sent) {
    let t = b.submit(Request::Watch { object: object(name), timeout_s: 30 });
    let sent = b.take_sent();
    let (cookie, op, _) = watch_of(&sent[0]);
    assert_eq!(op, watch_op::WATCH);
    b.reply(&sent[0], 0);
    assert_eq!(b.outcome(t), Some(&Outcome::Watching { cookie }));
    (cookie, sent[0].clone())
}

#[test]
fn a_watch_registers_again_after_a_reset_and_after_every_new_interval() {
    let mut b = Bed::new();
    let (cookie, first) = watched(&mut b, "a");
    b.reset(first.session);
    let again = b.take_sent();
    assert_eq!(again.len(), 1);
    assert_eq!(watch_of(&again[0]), (cookie, watch_op::RECONNECT, 1));
    // The session breaks before the answer: one more, and no second one beside it.
    b.reset(again[0].session);
    let again = b.take_sent();
    assert_eq!(again.iter().map(watch_of).collect::<Vec<_>>(), [(cookie, watch_op::RECONNECT, 2)]);
    b.reply(&again[0], 0);

    // A replica goes: operations would stay, watches register.
    let acting = b.map.pg_to_up_acting(again[0].op().pgid.pgid).acting;
    b.fail(acting[1]);
    b.give();
    let again = b.take_sent();
    assert_eq!(again.iter().map(watch_of).collect::<Vec<_>>(), [(cookie, watch_op::RECONNECT, 3)]);
    b.reply(&again[0], 0);
    b.boot(acting[1]);
    b.fail(acting[0]);
    b.give();
    // One epoch after the other: back, and then the primary goes.
    let again = b.take_sent();
    let last = again.last().expect("sent");
    let (c, op, _) = watch_of(last);
    assert_eq!((c, op), (cookie, watch_op::RECONNECT));
    let again = [last.clone()];
    assert!(events(&mut b).is_empty());
    // The new primary does not know it any more.
    b.reply(&again[0], Errno::ENOENT.neg());
    assert_eq!(events(&mut b), [WatchEvent::Error(Errno::ENOTCONN)]);
}

#[test]
fn a_registration_that_was_not_answered_is_made_anew() {
    let mut b = Bed::new();
    let t = b.submit(Request::Watch { object: object("a"), timeout_s: 0 });
    let first = b.take_sent();
    b.reset(first[0].session);
    let second = b.take_sent();
    assert_eq!(watch_of(&second[0]).1, watch_op::WATCH);
    assert_ne!(second[0].tid, first[0].tid);
    b.reply(&second[0], Errno::ENOENT.neg());
    assert_eq!(b.outcome(t), Some(&Outcome::Failed(Errno::ENOENT)));
    assert_eq!(b.core.deadline(), None, "nothing is left of it");
}

#[test]
fn pings_keep_it_and_say_how_old_it_is() {
    let mut b = Bed::new();
    let (cookie, _) = watched(&mut b, "a");
    b.pass(Duration::from_secs(6));
    let pings = b.take_sent();
    assert_eq!(pings.iter().map(watch_of).collect::<Vec<_>>(), [(cookie, watch_op::PING, 0)]);
    let t = b.submit(Request::WatchCheck { cookie });
    assert_eq!(b.outcome(t), Some(&Outcome::WatchAge(Duration::from_secs(6))));
    b.reply(&pings[0], 0);
    let t = b.submit(Request::WatchCheck { cookie });
    assert_eq!(b.outcome(t), Some(&Outcome::WatchAge(Duration::ZERO)));
    b.pass(Duration::from_secs(6));
    let pings = b.take_sent();
    b.reply(&pings[0], Errno::ENOTCONN.neg());
    assert_eq!(events(&mut b), [WatchEvent::Error(Errno::ENOTCONN)]);
    let t = b.submit(Request::WatchCheck { cookie });
    assert_eq!(b.outcome(t), Some(&Outcome::Failed(Errno::ENOTCONN)));
    b.pass(Duration::from_secs(20));
    assert!(b.take_sent().is_empty(), "a lost watch is not pinged");
    let t = b.submit(Request::Unwatch { cookie });
    let sent = b.take_sent();
    assert_eq!(watch_of(&sent[0]).1, watch_op::UNWATCH);
    b.reply(&sent[0], 0);
    assert_eq!(b.op_result(t), Some(0));
}

#[test]
fn a_busy_client_pings_too() {
    let mut b = Bed::new();
    let (cookie, _) = watched(&mut b, "a");
    let mut pings = 0;
    for _ in 0..24 {
        b.write("w");
        for sent in b.take_sent() {
            if sent.name() == "a" {
                assert_eq!(watch_of(&sent), (cookie, watch_op::PING, 0));
                pings += 1;
            }
            b.reply(&sent, 0);
        }
        b.pass(Duration::from_millis(500));
    }
    assert!(pings >= 1, "one operation at a time, each ended before the next");
}

#[test]
fn pings_go_on_while_writes_are_held_back() {
    let mut b = Bed::new();
    let (cookie, _) = watched(&mut b, "a");
    b.change(|inc, map| inc.pool_mut(map, POOL).expect("the pool").set_flag(pool_flags::FULL));
    b.give();
    b.pass(Duration::from_secs(6));
    let pings = b.take_sent();
    assert_eq!(pings.iter().map(watch_of).collect::<Vec<_>>(), [(cookie, watch_op::PING, 0)]);
    b.reply(&pings[0], 0);
    b.change(|inc, map| inc.change_flags(map, map_flags::PAUSERD, 0));
    b.give();
    b.pass(Duration::from_secs(6));
    assert!(b.take_sent().is_empty(), "paused reads hold pings back too");
}

#[test]
fn a_notification_is_not_pinged() {
    let mut b = Bed::new();
    b.submit(Request::Notify { object: object("a"), payload: Bytes::new(), timeout_s: 30 });
    let sent = b.take_sent();
    notified(&mut b, &sent[0], 5);
    b.pass(Duration::from_secs(8));
    assert!(b.take_sent().is_empty());
}

fn notified(b: &mut Bed, sent: &Sent, notify_id: u64) {
    let mut reply = MOsdOpReply::to(sent.op(), 0, b.map.epoch, flags::ONDISK);
    reply.ops[0].outdata = Bytes::copy_from_slice(&notify_id.to_le_bytes());
    b.input(Input::FromSession { session: sent.session, tid: sent.tid, msg: reply.into() });
}

fn event(cookie: u64, notify_id: u64, event: u8) -> MWatchNotify {
    let result = Bytes::from_static(b"replies");
    MWatchNotify { cookie, notify_id, event, result, notifier: 77, ..MWatchNotify::default() }
}

#[test]
fn notifies_reach_watchers_and_end_with_the_osds_word() {
    let mut b = Bed::new();
    let (cookie, watch) = watched(&mut b, "a");
    let msg = event(cookie, 9, watch_event::NOTIFY).into();
    b.input(Input::FromSession { session: watch.session, tid: 0, msg });
    let notify = WatchEvent::Notify { notify_id: 9, notifier: 77, payload: Bytes::new() };
    assert_eq!(events(&mut b), [notify]);

    let notify = |b: &mut Bed| -> Ticket {
        b.submit(Request::Notify { object: object("a"), payload: Bytes::from_static(b"hi"), timeout_s: 5 })
    };
    let t = notify(&mut b);
    let sent = b.take_sent();
    let Ok(Op::Notify { cookie, timeout_s: 5, .. }) = sent[0].op().ops[0].parse() else { panic!("{sent:?}") };
    notified(&mut b, &sent[0], 33);
    assert_eq!(b.outcome(t), None, "watchers have not answered");
    let from = |b: &mut Bed, m: MWatchNotify| {
        b.input(Input::FromSession { session: sent[0].session, tid: 0, msg: m.into() });
    };
    from(&mut b, event(cookie, 32, watch_event::NOTIFY_COMPLETE));
    assert_eq!(b.outcome(t), None, "the end of an earlier attempt");
    from(&mut b, event(cookie, 33, watch_event::NOTIFY_COMPLETE));
    let replies = Bytes::from_static(b"replies");
    assert_eq!(b.outcome(t), Some(&Outcome::Notified { result: 0, replies }));

    // A reset sends it again, as a new one.
    let t = notify(&mut b);
    let sent = b.take_sent();
    notified(&mut b, &sent[0], 40);
    b.reset(sent[0].session);
    let all = b.take_sent();
    assert!(all.iter().any(|s| matches!(s.op().ops[0].parse(), Ok(Op::Notify { .. }))));
    b.input(Input::Cancel(t, Errno::ECANCELED));
    assert_eq!(b.outcome(t), Some(&Outcome::Failed(Errno::ECANCELED)));
}

#[test]
fn an_osd_that_drops_a_watch_says_so_once() {
    let mut b = Bed::new();
    let (cookie, watch) = watched(&mut b, "a");
    for _ in 0..2 {
        let msg = event(cookie, 0, watch_event::DISCONNECT).into();
        b.input(Input::FromSession { session: watch.session, tid: 0, msg });
    }
    assert_eq!(events(&mut b), [WatchEvent::Error(Errno::ENOTCONN)]);
}

/// An earlier attempt was done there, and its watch timed out; whoever asks hears of the one that stands,
/// and it is pinged.
#[test]
fn the_end_of_an_earlier_attempt_is_no_end_of_the_watch() {
    let mut b = Bed::new();
    let t = b.submit(Request::Watch { object: object("a"), timeout_s: 30 });
    let sent = b.take_sent();
    let (cookie, ..) = watch_of(&sent[0]);
    let msg = event(cookie, 0, watch_event::DISCONNECT).into();
    b.input(Input::FromSession { session: sent[0].session, tid: 0, msg });
    assert_eq!(events(&mut b), []);
    b.reply(&sent[0], 0);
    assert_eq!(b.outcome(t), Some(&Outcome::Watching { cookie }));
    b.pass(Duration::from_secs(8));
    assert!(!b.take_sent().is_empty(), "pings");
}

#[test]
fn a_pool_that_goes_takes_its_watches() {
    let mut b = Bed::new();
    watched(&mut b, "a");
    let t = b.submit(Request::Watch { object: object("b"), timeout_s: 0 });
    b.change(|inc, map| inc.remove_pool(map, POOL));
    b.give();
    assert_eq!(b.outcome(t), Some(&Outcome::Failed(Errno::ENOENT)));
    assert_eq!(events(&mut b), [WatchEvent::Error(Errno::ENOTCONN)]);
}
