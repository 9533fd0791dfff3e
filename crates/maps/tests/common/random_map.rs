//! Random OSD maps from a seed: hierarchy, rules, pools of both types, states, and every kind of exception.

use std::collections::BTreeMap;

use crush::{ChooseArg, ChooseArgMap, CrushMap, ITEM_NONE, RULE_ERASURE, RULE_REPLICATED, RuleMode};
use maps::flags::{WEIGHT_IN, WEIGHT_OUT, osd_state};
use maps::{OsdMap, Pool, PoolType, pool_flags};
use types::{Epoch, Fsid, PgId, PoolId, Utime};

use crate::common::Random;

pub fn random_map(seed: u64) -> OsdMap {
    let r = &mut Random::new(seed);
    let max_osd = 1 + r.below(24) as i32;
    let (crush, replicated, erasure) = random_crush(r, max_osd);
    let fsid = Fsid([seed as u8; 16]);
    let mut map = OsdMap::new_cluster(fsid, Utime::new(1_700_000_000 + seed as u32, 0), crush);
    map.epoch = Epoch(1 + r.below(1_000) as u32);
    map.set_max_osd(max_osd as usize);
    random_states(r, &mut map);
    for id in 1..=1 + r.below(4) as i64 {
        let (kind, rule) =
            if r.chance(60) { (PoolType::Replicated, replicated) } else { (PoolType::Erasure, erasure) };
        let pool = random_pool(r, kind, rule);
        map.pools.insert(PoolId(id), pool);
        map.pool_names.insert(PoolId(id), format!("pool{id}"));
        map.pool_max = id as i32;
    }
    random_exceptions(r, &mut map);
    map
}

/// Hosts of OSDs below a root, device classes, and perhaps weight sets; with a rule of each mode.
fn random_crush(r: &mut Random, max_osd: i32) -> (CrushMap, u8, u8) {
    let mut crush = CrushMap::new_default();
    let hosts = 1 + r.below(6);
    for osd in 0..max_osd {
        let weight = if r.chance(5) { 0 } else { 0x4000 * (1 + r.below(8) as u32) };
        let host = format!("host{}", r.below(hosts));
        let location = [("host".to_owned(), host), ("root".to_owned(), "default".to_owned())];
        crush.insert_item(osd, weight, &format!("osd.{osd}"), &BTreeMap::from(location)).expect("a free id");
    }
    let domain = if r.chance(50) { "host" } else { "osd" };
    let mut rule = |name: &str, mode, kind| {
        crush.add_simple_rule(name, "default", domain, None, mode, kind, None).expect("a free name") as u8
    };
    let replicated = rule("replicated_rule", RuleMode::Firstn, RULE_REPLICATED);
    let erasure = rule("ec_rule", RuleMode::Indep, RULE_ERASURE);
    crush.finalize();
    if r.chance(30) {
        let args = crush.buckets.iter().map(|b| match b {
            Some(b) => {
                let set = b.weighted_items().map(|(_, w)| w / 2 + r.below(0x8000) as u32).collect();
                ChooseArg { weight_sets: vec![set], ids: Vec::new() }
            }
            None => ChooseArg::default(),
        });
        let args = args.collect();
        let id = if r.chance(50) { crush::DEFAULT_CHOOSE_ARGS } else { 1 };
        crush.choose_args.insert(id, ChooseArgMap { args });
    }
    (crush, replicated, erasure)
}

fn random_states(r: &mut Random, map: &mut OsdMap) {
    let n = map.osds.len();
    for (o, weight) in map.osds.iter_mut().zip(map.weights.iter_mut()) {
        *weight = match r.below(10) {
            0 => WEIGHT_OUT,
            1 => 1 + r.below(0xffff) as u32,
            _ => WEIGHT_IN,
        };
        o.state = match r.below(12) {
            0 => 0,
            1 | 2 => osd_state::EXISTS,
            _ => osd_state::EXISTS | osd_state::UP,
        };
        o.uuid = Fsid([r.below(256) as u8; 16]);
        o.xinfo.features = u64::MAX >> r.below(32);
        o.info.up_from = Epoch(r.below(100) as u32);
    }
    if r.chance(40) {
        let affinity = |r: &mut Random| if r.chance(50) { WEIGHT_IN } else { r.below(0x1_0000) as u32 };
        map.primary_affinity = Some((0..n).map(|_| affinity(r)).collect());
    }
}

fn random_pool(r: &mut Random, kind: PoolType, rule: u8) -> Pool {
    let mut pool = Pool::new(kind, 1 + r.below(48) as u32);
    pool.crush_rule = rule;
    pool.size = 1 + r.below(5) as u8;
    pool.min_size = 1;
    if r.chance(30) {
        pool.pgp_num = 1 + r.below(pool.pg_num.into()) as u32;
        pool.pgp_num_target = pool.pgp_num;
    }
    if r.chance(20) {
        pool.unset_flag(pool_flags::HASHPSPOOL);
    }
    if kind == PoolType::Erasure {
        pool.erasure_code_profile = "default".to_owned();
        pool.stripe_width = 4096;
    }
    pool
}

/// Temporary and lasting replacements, sensible or not. An empty list would mean "none" and is never stored.
fn random_exceptions(r: &mut Random, map: &mut OsdMap) {
    let max_osd = map.osds.len() as u64;
    for pg in map.pgs().collect::<Vec<PgId>>() {
        let erasure = map.pools[&pg.pool].is_erasure();
        let size = map.pools[&pg.pool].size;
        let osds = |r: &mut Random| {
            let one = |r: &mut Random| {
                if erasure && r.chance(15) { ITEM_NONE } else { r.below(max_osd) as i32 }
            };
            (0..size).map(|_| one(r)).collect::<Vec<i32>>()
        };
        if r.chance(6) {
            map.pg_temp.insert(pg, osds(r));
        }
        if r.chance(4) {
            map.primary_temp.insert(pg, r.below(max_osd) as i32);
        }
        if r.chance(6) {
            map.pg_upmap.insert(pg, osds(r));
        }
        if r.chance(6) {
            let items = (0..1 + r.below(2)).map(|_| (r.below(max_osd) as i32, r.below(max_osd) as i32));
            map.pg_upmap_items.insert(pg, items.collect());
        }
    }
}
