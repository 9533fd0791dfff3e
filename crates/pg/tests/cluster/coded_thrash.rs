//! Everything at random with erasure-coded PGs: what ends and comes back, what is lost, what divides, what is
//! snapshot and trimmed, what a medium damages and a repair makes good.

use codec::Decode;
use erasure::ChunkSet;
use pg::OsdConfig;
use pg::coded::Geometry;
use pg::object::ObjectInfo;
use store::{ObjectKey, Txn};
use types::{HObject, PgId, PoolId, SnapContext};

use crate::coded_kit::{CHUNK, check_shards, cluster_with, content, min_size, put_back, read_all, requests};
use crate::coded_recovery::fault;
use crate::scrub::{How, scrub_pg};
use crate::sim::Sim;

const CODES: [(u8, u8); 5] = [(2, 1), (2, 2), (3, 2), (4, 2), (3, 3)];

/// What a run is made of besides ends and returns.
struct Plan {
    divides: bool,
    snapshots: bool,
    /// Shards go, or miss a write. The log has to name all objects then: a primary takes its own store's
    /// word for what the log does not name.
    damages: bool,
}

/// What is damaged without anybody's knowing: no more than the code makes up for besides what ends.
#[derive(Default)]
struct Damage {
    is_there: bool,
}

fn config(seed: u64, log: usize) -> OsdConfig {
    OsdConfig {
        min_pg_log_entries: log,
        max_pg_log_entries: log * 2,
        pg_log_trim_min: 2,
        backfill_scan_max: [2, 5][seed as usize % 2],
        recovery_max_chunk: [1 << 20, CHUNK as u64][seed as usize / 2 % 2],
        max_markdown_count: 10_000,
        ..OsdConfig::default()
    }
}

fn thrash(seed: u64, rounds: usize) {
    let code = CODES[seed as usize % CODES.len()];
    let plan = Plan {
        divides: seed / 5 % 3 == 1,
        snapshots: seed / 3 % 2 == 0,
        damages: code.1 > 1 && seed / 5 % 3 != 0,
    };
    let log = if plan.damages { 5_000 } else { [2, 10, 500][seed as usize / 7 % 3] };
    let (mut s, pool) =
        cluster_with(code, min_size(code), 1 + seed as i32 % 2, 50_000 + seed, config(seed, log));
    let osds = s.nodes.len() as i32;
    let mut damage = Damage::default();
    for round in 0..rounds {
        requests(&mut s, pool, 4);
        fault(&mut s, osds);
        if plan.divides && s.rng.one_in(20) {
            divide(&mut s, pool);
        }
        if plan.snapshots && s.rng.one_in(8) {
            snapshot(&mut s, pool, round as u64 + 1);
        }
        if plan.damages {
            damage.next(&mut s, pool);
        }
    }
    s.cut.clear();
    for osd in 0..osds {
        s.mon.mark_in(osd);
        if s.nodes[osd as usize].core.is_none() {
            s.start(osd);
        }
    }
    s.settle();
    if damage.is_there {
        scrub_all(&mut s, pool, How::Repair);
        s.until("repaired", |s| s.states().values().all(|t| t.contains("active+clean")));
        let ends = scrub_all(&mut s, pool, How::Deep);
        assert!(ends.iter().all(|end| end.ends_with(" ok")), "seed {seed}: {ends:?}");
    }
    s.settle();
    if !plan.snapshots {
        check_shards(&mut s, pool);
    }
    // A deleted object with snapshots leaves its head.
    check_families(&mut s, pool);
    read_all(&mut s, pool);
}

/// Twice as many PGs, up to eight.
fn divide(s: &mut Sim, pool: PoolId) {
    let (now, moves) = (s.mon.map.pools[&pool].pg_num, s.rng.one_in(2));
    if now < 8 {
        s.mon.change(|inc, map| {
            let pool = inc.pool_mut(map, pool).unwrap();
            pool.set_pg_num(now * 2);
            pool.pgp_num = if moves { now * 2 } else { pool.pgp_num };
        });
    }
}

/// The members of an object's PG, by place.
fn members_of(s: &Sim, pool: PoolId, name: &str) -> Vec<i32> {
    let (map, hash) = (&s.mon.map, s.client.object(&s.mon.map, pool, name).hash);
    let pgid = map.raw_pg_to_pg(PgId::new(pool, hash)).expect("the pool is there");
    map.pg_to_up_acting(pgid).acting
}

/// Scrubs every PG of the pool; the last line of each.
fn scrub_all(s: &mut Sim, pool: PoolId, how: How) -> Vec<String> {
    (0..s.mon.map.pools[&pool].pg_num).map(|seed| scrub_pg(s, PgId::new(pool, seed), how)).collect()
}

/// Another snapshot, or one less.
fn snapshot(s: &mut Sim, pool: PoolId, id: u64) {
    let mut snaps = s.client.snapc.snaps.clone();
    if snaps.len() > 2 || !snaps.is_empty() && s.rng.one_in(3) {
        let gone = snaps.remove(s.rng.below(snaps.len() as u64) as usize);
        s.mon.change(|inc, _| {
            inc.new_removed_snaps.insert(pool, [(gone, 1)].into_iter().collect());
        });
    } else {
        snaps.insert(0, id);
    }
    let seq = s.client.snapc.seq.max(id);
    s.client.snapc = SnapContext { seq, snaps };
}

impl Damage {
    /// Damages a shard of some object, or has all made good.
    fn next(&mut self, s: &mut Sim, pool: PoolId) {
        // An OSD may have ended without anybody's knowing.
        let all_run = s.nodes.iter().all(|node| node.core.is_some());
        let is_calm = s.client.is_idle() && s.cut.is_empty() && all_run && s.all_are("active+clean");
        if !is_calm || !s.rng.one_in(2) {
            return;
        }
        if std::mem::take(&mut self.is_there) {
            scrub_all(s, pool, How::Repair);
            return;
        }
        let name = format!("o{}", s.rng.below(4));
        let members = members_of(s, pool, &name);
        let place = s.rng.below(members.len() as u64) as usize;
        // The newest map may have a hole that no PG knows of yet.
        if s.nodes.get(members[place] as usize).is_none() {
            return;
        }
        let object = s.client.object(&s.mon.map, pool, &name);
        let key = ObjectKey::new(place as i8, object.clone());
        let osd = members[place];
        let store = s.nodes[osd as usize].core.as_mut().unwrap().store_mut();
        if store.stat(&key).unwrap().is_none() {
            return;
        }
        self.is_there = true;
        if s.rng.one_in(2) {
            let mut txn = Txn::new();
            txn.remove(&key);
            s.nodes[osd as usize].core.as_mut().unwrap().store_mut().submit(txn).unwrap();
        } else {
            let was = content(s, osd, place, object);
            let (map, part) = (s.mon.map.clone(), vec![s.rng.below(256) as u8; 3 * CHUNK]);
            s.client.write(&map, pool, &name, part);
            s.until("written", |s| s.client.is_idle());
            if s.all_are("active+clean") && members_of(s, pool, &name) == members {
                put_back(s, osd, was);
            }
        }
        s.commit(osd);
    }
}

/// Every object of the pool, clones too, is the same from each choice of as many shards as make up the data.
fn check_families(s: &mut Sim, pool: PoolId) {
    let map = s.mon.map.clone();
    let found = map.pool(pool).unwrap().clone();
    let geometry = Geometry::of_pool(&map, &found).unwrap();
    let mut all: Vec<(PgId, HObject)> = Vec::new();
    for core in s.nodes.iter_mut().filter_map(|n| n.core.as_mut()) {
        for key in core.store_mut().list_all(None, usize::MAX).unwrap() {
            let Some(pgid) = map.raw_pg_to_pg(PgId::new(key.object.pool, key.object.hash)) else { continue };
            if key.object.pool == pool {
                all.push((pgid, key.object));
            }
        }
    }
    all.sort();
    all.dedup();
    for (pgid, object) in all {
        let members = map.pg_to_up_acting(pgid).acting;
        let there = members.iter().enumerate().filter(|(place, osd)| {
            let key = ObjectKey::new(*place as i8, object.clone());
            let core = s.nodes[**osd as usize].core.as_mut().unwrap();
            core.store_mut().stat(&key).unwrap().is_some()
        });
        match there.count() {
            // Of a copy that is being removed.
            0 => continue,
            n => assert_eq!(n, members.len(), "{object} of {pgid} is not on all of {members:?}"),
        }
        check_family(s, &geometry, &members, &object);
    }
}

fn check_family(s: &mut Sim, geometry: &Geometry, members: &[i32], object: &HObject) {
    let mut shards = Vec::new();
    for (place, osd) in members.iter().enumerate() {
        shards.push(content(s, *osd, place, object.clone()));
    }
    assert!(shards.iter().all(|shard| shard.info == shards[0].info), "{object}: infos differ");
    let size = ObjectInfo::from_bytes(shards[0].info.clone()).unwrap().size;
    let mut first: Option<Vec<u8>> = None;
    for bits in 0..1u32 << members.len() {
        let there: ChunkSet = (0..members.len()).filter(|at| bits >> at & 1 == 1).collect();
        if there.len() != geometry.codec.data_chunk_count() {
            continue;
        }
        let plan = geometry.stripes.read(&geometry.codec, 0..size, there).unwrap();
        let part = |r: &erasure::ShardRange| &shards[r.shard].data[r.offset as usize..][..r.len as usize];
        let read: Vec<&[u8]> = plan.ranges().iter().map(part).collect();
        let bytes = plan.assemble(&read).unwrap();
        assert!(first.get_or_insert_with(|| bytes.clone()) == &bytes, "{object} from {there}");
    }
}

#[test]
fn everything_at_once_loses_nothing() {
    let from = std::env::var("PG_SEED").ok().and_then(|s| s.parse().ok());
    let rounds = std::env::var("PG_ROUNDS").ok().and_then(|s| s.parse().ok()).unwrap_or(60);
    let all: Vec<u64> = from.map_or_else(|| (0..15).collect(), |seed| vec![seed]);
    for seed in all {
        thrash(seed, rounds);
    }
}
