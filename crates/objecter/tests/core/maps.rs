//! Following maps: gaps, jumps, damage, and maps of another cluster.

use messages::mon::MOsdMap;
use objecter::{Effect, Input, Outcome, Request};
use types::{Epoch, Fsid};

use crate::bed::Bed;

/// Epochs of the maps that the core told of.
fn told(b: &mut Bed) -> Vec<u32> {
    let all = std::mem::take(&mut b.other);
    all.into_iter().filter_map(|e| if let Effect::NewMap(m) = e { Some(m.epoch.0) } else { None }).collect()
}

#[test]
fn increments_are_applied_one_by_one() {
    let mut b = Bed::new();
    told(&mut b);
    (0..3).for_each(|_| b.change(|_, _| {}));
    b.give();
    assert_eq!(told(&mut b), [4, 5, 6]);
    assert_eq!(**b.core.map(), b.map);
    b.give_full();
    assert_eq!(told(&mut b), [0u32; 0], "nothing new");
}

#[test]
fn a_gap_is_asked_for() {
    let mut b = Bed::new();
    (0..3).for_each(|_| b.change(|_, _| {}));
    told(&mut b);
    let late = b.increments(Epoch(6));
    b.mon_says(0, late.into());
    assert_eq!(told(&mut b), [0u32; 0]);
    let subs = b.take_subscriptions();
    assert_eq!(subs[0].what["osdmap"].start, 4);
    b.give();
    assert_eq!(told(&mut b), [4, 5, 6]);
}

#[test]
fn after_a_jump_everything_is_sent_again() {
    let mut b = Bed::new();
    b.write("a");
    b.take_sent();
    (0..5).for_each(|_| b.change(|_, _| {}));
    // The monitor has trimmed what lies between.
    let jump = MOsdMap { oldest: b.map.epoch, ..b.full() };
    b.mon_says(0, jump.into());
    assert_eq!(b.core.map().epoch, b.map.epoch);
    assert_eq!(b.take_names(), ["a"], "its interval may have ended and begun again");
}

#[test]
fn a_damaged_increment_makes_us_take_a_whole_map() {
    let mut b = Bed::new();
    b.change(|_, _| {});
    let mut damaged = b.increments(b.map.epoch);
    for raw in damaged.incremental.values_mut() {
        *raw = raw.slice(..raw.len() - 20);
    }
    told(&mut b);
    b.mon_says(0, damaged.into());
    assert_eq!(told(&mut b), [0u32; 0]);
    assert_eq!(b.take_subscriptions()[0].what["osdmap"].start, 0);
    b.change(|_, _| {});
    b.give_full();
    assert_eq!(told(&mut b), [5]);
    b.change(|_, _| {});
    b.give();
    assert_eq!(told(&mut b), [6], "and then increments again");
}

#[test]
fn maps_of_another_cluster_are_not_ours() {
    let mut b = Bed::new();
    b.change(|_, _| {});
    told(&mut b);
    let foreign = MOsdMap { fsid: Fsid([9; 16]), ..b.increments(b.map.epoch) };
    b.mon_says(0, foreign.into());
    assert_eq!(told(&mut b), [0u32; 0]);
}

#[test]
fn osds_share_maps_too() {
    let mut b = Bed::new();
    b.write("a");
    let session = b.take_sent()[0].session;
    b.change(|_, _| {});
    let msg = b.increments(b.map.epoch).into();
    b.input(Input::FromSession { session, tid: 0, msg });
    assert_eq!(b.core.map().epoch, b.map.epoch);
}

#[test]
fn waiting_for_an_epoch() {
    let mut b = Bed::new();
    let now = b.submit(Request::WaitMap(b.map.epoch));
    assert_eq!(b.outcome(now), Some(&Outcome::Map(b.map.epoch)));
    let later = b.submit(Request::WaitMap(b.map.epoch.next()));
    assert_eq!(b.outcome(later), None);
    assert_eq!(b.take_subscriptions().len(), 1);
    b.change(|_, _| {});
    b.give();
    assert_eq!(b.outcome(later), Some(&Outcome::Map(b.map.epoch)));
}
