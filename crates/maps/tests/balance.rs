//! Balancing by replacements: it helps, ends, keeps to the rules, and leaves alone what is even.

use crate::common;

use std::collections::{BTreeMap, BTreeSet};

use common::Random;
use crush::{CrushMap, RULE_REPLICATED, RuleMode};
use maps::flags::{WEIGHT_IN, osd_state};
use maps::{BalanceGoal, OsdMap, Pool, PoolType};
use types::{Fsid, PgId, PoolId, Utime};

const POOL: PoolId = PoolId(1);

/// Racks of hosts of OSDs of the same or of random weights, all up and in, with one pool of three copies.
fn cluster(seed: u64, domain: &str, pg_num: u32) -> OsdMap {
    let r = &mut Random::new(seed);
    let mut crush = CrushMap::new_default();
    let (racks, hosts, osds) = (3 + r.below(3), 1 + r.below(3), 1 + r.below(4));
    let mut id = 0;
    for rack in 0..racks {
        for host in 0..hosts {
            for _ in 0..osds {
                let place = [
                    ("host".to_owned(), format!("h{rack}-{host}")),
                    ("rack".to_owned(), format!("r{rack}")),
                    ("root".to_owned(), "default".to_owned()),
                ];
                let weight = if seed % 2 == 0 { 0x10000 } else { 0x8000 * (1 + r.below(4) as u32) };
                crush.insert_item(id, weight, &format!("osd.{id}"), &BTreeMap::from(place)).expect("free");
                id += 1;
            }
        }
    }
    let rule = crush
        .add_simple_rule("r", "default", domain, None, RuleMode::Firstn, RULE_REPLICATED, None)
        .expect("a free name");
    crush.finalize();
    let mut map = OsdMap::new_cluster(Fsid([1; 16]), Utime::new(1, 0), crush);
    map.set_max_osd(id as usize);
    map.weights.iter_mut().for_each(|w| *w = WEIGHT_IN);
    map.osds.iter_mut().for_each(|o| o.state = osd_state::EXISTS | osd_state::UP);
    let mut pool = Pool::new(PoolType::Replicated, pg_num);
    (pool.size, pool.min_size, pool.crush_rule) = (3, 2, rule as u8);
    map.pools.insert(POOL, pool);
    map.pool_names.insert(POOL, "p".to_owned());
    map
}

fn run(map: &mut OsdMap, deviation: u32, max: usize, bytes: &BTreeMap<PgId, u64>) -> usize {
    let pools = BTreeSet::from([POOL]);
    let goal =
        BalanceGoal { pools: &pools, max_deviation: deviation, max_changes: max, bytes, least_bytes: 1 };
    let changes = map.balance(&goal);
    for (pg, items) in &changes {
        match items.is_empty() {
            true => map.pg_upmap_items.remove(pg),
            false => map.pg_upmap_items.insert(*pg, items.clone()),
        };
    }
    changes.len()
}

fn worst(map: &OsdMap) -> f64 {
    map.deviation(&BTreeSet::from([POOL])).expect("OSDs").max
}

#[test]
fn a_search_ends_helps_and_keeps_to_the_rule() {
    for seed in 0..40 {
        let domain = ["osd", "host", "rack"][seed as usize % 3];
        let mut map = cluster(seed, domain, 64 + 32 * (seed as u32 % 4));
        let before = worst(&map);
        run(&mut map, 1, 100_000, &BTreeMap::new());
        let after = worst(&map);
        assert!(after <= before, "seed {seed}: {before} -> {after}");
        if seed % 2 == 0 && domain != "rack" {
            assert!(after <= 1.0, "seed {seed}: equal OSDs can be even: {after}");
        }
        let shape = map.pool_rule_shape(POOL).expect("a rule");
        for pg in map.pgs() {
            let placed = map.pg_to_up_acting(pg);
            assert!(placed.up.len() == 3 && shape.fits(&placed.up), "seed {seed} pg {pg}: {:?}", placed.up);
        }
        assert_eq!(run(&mut map, 1, 100_000, &BTreeMap::new()), 0, "seed {seed}: nothing is left to do");
        let mut clean = map.clone();
        assert!(!clean.clean_upmaps(), "seed {seed}: every replacement is valid and needed");
    }
}

#[test]
fn few_changes_at_a_time_come_to_an_end_too() {
    let mut map = cluster(4, "host", 128);
    let mut runs = 0;
    while run(&mut map, 1, 3, &BTreeMap::new()) > 0 {
        runs += 1;
        assert!(runs < 500, "it goes on for ever");
    }
    assert!(worst(&map) <= 1.0 && runs > 1, "{runs} runs, {}", worst(&map));
}

#[test]
fn what_is_within_the_bound_is_left_alone() {
    let mut map = cluster(2, "osd", 64);
    let bound = worst(&map).ceil() as u32;
    assert_eq!(run(&mut map, bound, 1_000, &BTreeMap::new()), 0);
    assert!(bound > 1 && run(&mut map, 1, 1_000, &BTreeMap::new()) > 0);
}

#[test]
fn bytes_are_evened_out_where_pgs_are_not_of_one_size() {
    let mut map = cluster(6, "osd", 96);
    run(&mut map, 1, 100_000, &BTreeMap::new());
    // As after a split that has not come through: some PGs are four times as large.
    let bytes: BTreeMap<PgId, u64> =
        map.pgs().map(|pg| (pg, if pg.seed % 3 == 0 { 4 << 30 } else { 1 << 30 })).collect();
    let held = |map: &OsdMap| {
        let mut held: BTreeMap<i32, u64> = BTreeMap::new();
        map.for_each_pg(|pg, m| m.up.iter().for_each(|o| *held.entry(*o).or_default() += bytes[&pg]));
        let mean = held.values().sum::<u64>() as f64 / held.len() as f64;
        held.values().map(|b| (*b as f64 - mean).abs() / (2u64 << 30) as f64).fold(0.0, f64::max)
    };
    let before = held(&map);
    let changes = run(&mut map, 1, 100_000, &bytes);
    let after = held(&map);
    assert!(changes > 0 && before > 1.5 && after <= 1.1, "{changes} changes: {before} -> {after} mean PGs");
    assert!(worst(&map) <= 2.0, "the PGs' number stays even: {}", worst(&map));
    assert_eq!(run(&mut map, 1, 100_000, &bytes), 0);
}

#[test]
fn replacements_that_became_wrong_are_taken_back() {
    let base = {
        let mut map = cluster(4, "host", 64);
        run(&mut map, 1, 100_000, &BTreeMap::new());
        map
    };
    assert!(!base.pg_upmap_items.is_empty());
    let (pg, (from, to)) = base.pg_upmap_items.iter().map(|(pg, i)| (*pg, i[0])).next_back().expect("some");
    type Spoil = Box<dyn Fn(&mut OsdMap)>;
    let cases: [(&str, Spoil); 6] = [
        (
            "the PG is gone",
            Box::new(move |m| m.pools.get_mut(&POOL).expect("there").set_pg_num(pg.seed.max(1))),
        ),
        ("the pool is gone", Box::new(|m| m.pools.clear())),
        ("the target is out", Box::new(move |m| m.weights[to as usize] = 0)),
        ("the source is not the PG's any more", Box::new(move |m| m.weights[from as usize] = 0)),
        (
            "the target left the tree",
            Box::new(move |m| {
                let mut crush = (*m.crush).clone();
                crush.remove_item(to, false).expect("it is there");
                m.crush = crush.into();
            }),
        ),
        (
            "two copies would be on one host",
            Box::new(move |m| {
                let other = m.pg_to_up_acting(pg).up.into_iter().find(|o| *o != to).expect("another");
                let mut crush = (*m.crush).clone();
                let place = crush.full_location(other);
                crush.create_or_move_item(to, 0x10000, &format!("osd.{to}"), &place).expect("moved");
                m.crush = crush.into();
            }),
        ),
    ];
    for (what, spoil) in cases {
        let mut map = base.clone();
        map.pg_upmap_items.retain(|p, _| *p == pg);
        spoil(&mut map);
        assert!(map.clean_upmaps() && map.pg_upmap_items.is_empty(), "{what}");
    }
    // A list that says what CRUSH says, and pairs of which one has no effect.
    let mut map = base.clone();
    map.pg_upmap_items.clear();
    let (raw, _) = map.pg_to_raw_osds(pg);
    map.pg_upmap.insert(pg, raw);
    assert!(map.clean_upmaps() && map.pg_upmap.is_empty());
    map.pg_upmap_items.insert(pg, vec![(from, to), (9_999, to)]);
    assert!(map.clean_upmaps());
    assert_eq!(map.pg_upmap_items[&pg], [(from, to)]);
}
