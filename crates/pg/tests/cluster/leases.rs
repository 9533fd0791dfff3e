//! Primaries that are replaced while members still let them answer: how long their successors wait.

use std::time::Duration;

use messages::Message;
use messages::osd::{MOsdPing, SignedSpan};
use pg::Input;
use types::{OsdId, PgId, PoolId};

use crate::scenarios::{cluster, write_all};
use crate::sim::{CLIENT, MON, Sim};

/// A cluster whose primary has just been answered by its members and is then cut off from everybody; its PG's primary.
fn cut_off(seed: u64) -> (Sim, PoolId, i32) {
    let (mut s, pool) = cluster(3, 3, 2, 1, seed);
    write_all(&mut s, pool, 0..1, 1);
    s.settle();
    // Longer than a process owes what its earlier life may have promised.
    for _ in 0..20 {
        s.tick(Duration::from_secs(1));
        deliver(&mut s);
    }
    let old = s.mon.map.pg_to_up_acting(PgId::new(pool, 0)).acting_primary;
    s.cut = (0..3).filter(|o| *o != old).map(|o| (old, o)).chain([(old, MON)]).collect();
    (s, pool, old)
}

/// Everything that is under way arrives.
fn deliver(s: &mut Sim) {
    while s.step() {}
}

/// Simulated seconds until the PG serves.
fn until_active(s: &mut Sim) -> f64 {
    let began = s.mono;
    for _ in 0..200 {
        deliver(s);
        if s.states().values().all(|state| state.starts_with("active")) {
            return (s.mono - began).as_secs_f64();
        }
        s.tick(Duration::from_millis(250));
    }
    panic!("never active: {:?}", s.states());
}

#[test]
fn a_new_primary_waits_for_what_members_promised_the_old_one() {
    let (mut s, _, old) = cut_off(301);
    s.mon.mark_down(old);
    let took = until_active(&mut s);
    // At most a lease of 16 s with room for clocks that run apart, at least that less a heartbeat's interval of 6 s.
    assert!((9.0..18.5).contains(&took), "{took} s");
}

#[test]
fn nobody_waits_for_a_dead_primary() {
    let (mut s, _, old) = cut_off(302);
    s.mon.mark_dead(old);
    let took = until_active(&mut s);
    assert!(took < 1.0, "{took} s");
}

#[test]
fn nobody_waits_for_a_primary_that_knows() {
    let (mut s, _, old) = cut_off(303);
    // It hears of the map, and the monitors of it.
    s.cut.retain(|(_, to)| *to != MON);
    s.mon.change(|inc, map| inc.mark_down(map, OsdId(old)));
    let took = until_active(&mut s);
    assert!(took < 3.0, "{took} s");
}

#[test]
fn one_that_is_out_but_up_answers_for_itself() {
    let (mut s, _, old) = cut_off(304);
    s.mon.mark_out(old);
    deliver(&mut s);
    s.tick(Duration::from_millis(250));
    deliver(&mut s);
    assert!(
        !s.states().values().all(|state| state.starts_with("active")),
        "it was not heard: {:?}",
        s.states()
    );
    s.cut.clear();
    let took = until_active(&mut s);
    assert!(took < 3.0, "{took} s");
}

/// Lets time pass, as its ticks come, without what `lost` picks.
fn pass(s: &mut Sim, seconds: u32, lost: impl Fn(&Message) -> bool) {
    for _ in 0..seconds * 4 {
        s.tick(Duration::from_millis(250));
        loop {
            s.links.values_mut().for_each(|q| q.retain(|m| !lost(m)));
            if !s.step() {
                break;
            }
        }
    }
}

/// A client with an older map reads at the old primary; whether it is answered at once.
fn is_answered(s: &mut Sim, map: &maps::OsdMap, pool: PoolId, old: i32) -> bool {
    let tid = s.client.read(map, pool, "o0");
    let (to, msg) = s.client.send_now(map, tid);
    assert_eq!(to, old);
    s.send(CLIENT, to, msg);
    deliver(s);
    s.client.is_idle()
}

#[test]
fn the_old_primary_answers_no_longer_than_it_may() {
    let (mut s, pool, old) = cut_off(305);
    let map = s.mon.map.clone();
    assert!(is_answered(&mut s, &map, pool, old), "its lease is new");
    // What nobody asked is no answer, whatever it says of when it was asked.
    for member in (0..3).filter(|o| *o != old) {
        let later = s.mono.as_secs() as i32;
        for sec in [later - 1, later + 100] {
            let forged = MOsdPing {
                fsid: crate::mon::FSID,
                map_epoch: map.epoch,
                op: MOsdPing::PING_REPLY,
                mono_ping_stamp: SignedSpan { sec, nsec: 1 },
                delta_ub: Some(SignedSpan { sec: 1_000, nsec: 0 }),
                ..MOsdPing::default()
            };
            s.input(old, Input::FromOsd { osd: OsdId(member), msg: forged.into() });
        }
    }
    pass(&mut s, 17, |_| false);
    assert!(!is_answered(&mut s, &map, pool, old), "its lease is over");
    s.cut.clear();
    s.until("answered", |s| s.client.is_idle());
}

#[test]
fn an_answer_with_a_newer_map_extends_no_lease() {
    let is_map = |m: &Message| matches!(m, Message::OsdMap(_));
    let (mut s, pool, old) = cut_off(306);
    s.cut = vec![(old, MON)];
    let map = s.mon.map.clone();
    pass(&mut s, 18, is_map);
    assert!(is_answered(&mut s, &map, pool, old), "members answer it");
    s.mon.change(|_, _| {});
    pass(&mut s, 18, is_map);
    assert!(!is_answered(&mut s, &map, pool, old), "they know more than it does");
    s.until("answered", |s| s.client.is_idle());
}

/// Power may have failed, and what it promised or learned may be forgotten: it speaks for nobody before it is up again.
#[test]
fn one_that_is_not_up_lets_nobody_answer() {
    let (mut s, _, old) = cut_off(307);
    s.cut.clear();
    let member = (old + 1) % 3;
    let epoch = s.mon.map.epoch;
    let lets = |s: &mut Sim| {
        let ask = MOsdPing {
            fsid: crate::mon::FSID,
            map_epoch: epoch,
            op: MOsdPing::PING,
            delta_ub: Some(SignedSpan { sec: 5, nsec: 0 }),
            ..MOsdPing::default()
        };
        s.links.clear();
        s.input(member, Input::FromOsd { osd: OsdId(old), msg: ask.into() });
        let answer = s.links.get(&(member, old)).and_then(|q| q.front().cloned());
        let Some(Message::OsdPing(m)) = answer else { panic!("{answer:?}") };
        assert_eq!((m.op, m.map_epoch), (MOsdPing::PING_REPLY, epoch));
        m.delta_ub.is_some_and(|lease| lease.sec > 0)
    };
    assert!(lets(&mut s));
    s.crash(member);
    s.start(member);
    assert!(!lets(&mut s), "the map shows an earlier life of it");
}

/// A write that waits for the end of another stays before later ones of its object that waited for the lease
/// first.
#[test]
fn writes_of_an_object_keep_their_order_without_a_lease() {
    let is_lost = |m: &Message| matches!(m, Message::OsdPing(_) | Message::OsdFailure(_));
    let (mut s, pool, old) = cut_off(308);
    let (map, object) = (s.mon.map.clone(), s.client.object(&s.mon.map, pool, "o0"));
    let first = s.client.read_and_write(&map, pool, "o0", b"first");
    s.client.goes_on("o0");
    s.client.read_and_write(&map, pool, "o0", b"waits for the first");
    s.client.goes_on("o0");
    s.deliver_requests(old);
    pass(&mut s, 17, is_lost);
    let last = s.client.read_and_write(&map, pool, "o0", b"last");
    s.deliver_requests(old);
    s.cut.clear();
    while !s.client.is_answered(first) {
        pass(&mut s, 1, is_lost);
    }
    assert!(!s.client.is_answered(last), "it waits for the lease");
    s.until("answered", |s| s.client.is_idle());
    assert_eq!(s.stored(old, &object).as_deref(), Some(&b"last"[..]));
}
