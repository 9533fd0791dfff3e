//! Primaries that are replaced while members still let them answer: how long their successors wait.

use std::time::Duration;

use types::{PgId, PoolId};

use crate::scenarios::{cluster, write_all};
use crate::sim::{MON, Sim};

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
    s.mon.change(|inc, map| inc.mark_down(map, types::OsdId(old)));
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
