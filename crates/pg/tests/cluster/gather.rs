//! Commits that nobody waits for yet: a primary's part of a write is needed when the other members have done theirs.

use std::time::Duration;

use types::PoolId;

use crate::sim::Sim;

fn cluster(osds: i32, size: u8, pg_num: u32) -> (Sim, PoolId) {
    let mut s = Sim::new(osds, 6);
    let pool = s.mon.create_pool(size, 1, pg_num);
    s.settle();
    // Whatever is left from the beginning.
    s.tick(Duration::from_millis(500));
    while s.step() {}
    (s, pool)
}

fn write(s: &mut Sim, pool: PoolId, name: &str) {
    let map = s.mon.map.clone();
    s.client.write(&map, pool, name, name.as_bytes().to_vec());
}

fn members(s: &mut Sim, pool: PoolId, name: &str) -> Vec<i32> {
    let map = s.mon.map.clone();
    let object = s.client.object(&map, pool, name);
    let pgid = map.raw_pg_to_pg(types::PgId::new(pool, object.hash)).expect("the pool is there");
    map.pg_to_up_acting(pgid).acting
}

/// Transactions that an OSD has submitted and not made durable.
fn open_txns(s: &mut Sim, osd: i32) -> u64 {
    let store = s.nodes[osd as usize].core.as_mut().expect("it runs").store_mut();
    store.submitted().0 - store.durable().0
}

/// Of each number of copies: no tick is needed for an answer.
#[test]
fn writes_are_answered_without_a_tick() {
    for size in 1..=3 {
        let (mut s, pool) = cluster(3, size, 1);
        for i in 0..200 {
            write(&mut s, pool, &format!("object {}", i % 20));
            if i % 7 == 0 {
                while s.step() {}
                assert!(s.client.is_idle(), "{size} copies, write {i}");
            }
        }
        while s.step() {}
        assert!(s.client.is_idle(), "{size} copies");
        s.check_copies();
    }
}

#[test]
fn a_primary_commits_its_part_when_the_others_have_or_at_a_tick() {
    let (mut s, pool) = cluster(2, 2, 1);
    let acting = members(&mut s, pool, "one");
    let (primary, member) = (acting[0], acting[1]);
    write(&mut s, pool, "one");
    // The member's answer stays on its way.
    while open_txns(&mut s, member) == 0 {
        assert!(s.step(), "the member never got it");
    }
    assert_eq!(open_txns(&mut s, primary), 1);
    s.cut.push((primary, member));
    while s.step() {}
    assert_eq!(
        (open_txns(&mut s, primary), open_txns(&mut s, member)),
        (1, 0),
        "the member waits for nobody"
    );
    s.cut.clear();
    while s.step() {}
    assert_eq!(open_txns(&mut s, primary), 0);
    assert!(s.client.is_idle());

    write(&mut s, pool, "two");
    s.cut.push((primary, member));
    while s.step() {}
    assert_eq!(open_txns(&mut s, primary), 1);
    s.input(primary, pg::Input::Tick);
    while s.step() {}
    assert_eq!(open_txns(&mut s, primary), 0, "the member has not even heard of it");
    assert!(!s.client.is_idle());
    s.cut.clear();
    while s.step() {}
    assert!(s.client.is_idle());
}

/// What a member's primary waits for takes along what the member put off as a primary itself.
#[test]
fn a_write_of_another_primary_takes_along_what_was_put_off() {
    let (mut s, pool) = cluster(3, 2, 16);
    let map = s.mon.map.clone();
    let mut name_on = |acting: [i32; 2]| {
        let on = |name: &String| members(&mut s, pool, name) == acting;
        (0..1000).map(|i| format!("{i} on {acting:?}")).find(on).expect("16 PGs have all pairs")
    };
    let (own, others) = (name_on([0, 1]), name_on([2, 0]));
    s.client.write(&map, pool, &own, vec![1; 10]);
    while open_txns(&mut s, 0) == 0 {
        assert!(s.step(), "the primary never got it");
    }
    s.cut.push((0, 1));
    while s.step() {}
    assert_eq!(open_txns(&mut s, 0), 1, "put off");
    s.client.write(&map, pool, &others, vec![2; 10]);
    while s.step() {}
    assert_eq!(open_txns(&mut s, 0), 0);
    assert!(s.client.is_busy(&own) && !s.client.is_busy(&others));
    s.cut.clear();
    while s.step() {}
    assert!(s.client.is_idle());
}
