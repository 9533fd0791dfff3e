//! What tests of erasure-coded PGs share: clusters with such a pool, what shards hold, and how they are
//! spoilt.

use ::bytes::Bytes;
use codec::Encode;
use erasure::{ChunkSet, ShardRange};
use pg::coded::Geometry;
use pg::{OsdConfig, OsdCore, Portions};
use store::{FormatOptions, ObjectKey, Space, Store, Txn};
use testkit::SimDevice;
use types::{HObject, PgId, PoolId, SpgId};

use crate::mon;
use crate::sim::Sim;

pub const CHUNK: usize = 4096;

pub fn min_size((k, m): (u8, u8)) -> u8 {
    if m > 1 { k + 1 } else { k }
}

/// A log that tells all that happens in a test.
pub fn long_log() -> OsdConfig {
    OsdConfig { min_pg_log_entries: 500, ..OsdConfig::default() }
}

/// A log that soon tells nothing of a write any more.
pub fn short_log() -> OsdConfig {
    OsdConfig { min_pg_log_entries: 2, max_pg_log_entries: 2, pg_log_trim_min: 1, ..OsdConfig::default() }
}

/// One OSD for each of `k` and `m` shards, and some more.
pub fn cluster_with(
    (k, m): (u8, u8),
    min_size: u8,
    spares: i32,
    seed: u64,
    config: OsdConfig,
) -> (Sim, PoolId) {
    let portions = Portions { ..Portions::default() };
    let config = OsdConfig { portions, ..config };
    let osds = i32::from(k + m) + spares;
    let mut s = Sim::with_config(osds, seed, config);
    s.until("all up", |s| (0..osds).all(|o| s.mon.map.is_up(o)));
    let pool = s.mon.create_coded_pool(k, m, min_size);
    s.settle();
    (s, pool)
}

/// One OSD for each shard, and an object "o" of so many bytes.
pub fn with_object(code: (u8, u8), min_size: u8, seed: u64, config: OsdConfig, len: usize) -> (Sim, PoolId) {
    let (mut s, pool) = cluster_with(code, min_size, 0, seed, config);
    let (map, content) = (s.mon.map.clone(), bytes(&mut s, len));
    s.client.write(&map, pool, "o", content);
    s.settle();
    (s, pool)
}

pub fn acting(s: &Sim, pool: PoolId) -> Vec<i32> {
    s.mon.map.pg_to_up_acting(PgId::new(pool, 0)).acting
}

pub fn primary(s: &Sim, pool: PoolId) -> i32 {
    s.mon.map.pg_to_up_acting(PgId::new(pool, 0)).acting_primary
}

pub fn place_of(s: &Sim, pool: PoolId, osd: i32) -> usize {
    acting(s, pool).iter().position(|member| *member == osd).expect("a member")
}

/// A member that is not the primary, and its place.
pub fn a_member(s: &Sim, pool: PoolId, seed: u64) -> (i32, usize) {
    let first = primary(s, pool);
    let members = acting(s, pool);
    let others: Vec<i32> = members.into_iter().filter(|osd| *osd != first).collect();
    let osd = others[seed as usize % others.len()];
    (osd, place_of(s, pool, osd))
}

pub fn bytes(s: &mut Sim, len: usize) -> Vec<u8> {
    (0..len).map(|_| s.rng.below(256) as u8).collect()
}

/// Writes another object so often.
pub fn write_others(s: &mut Sim, pool: PoolId, times: usize) {
    let map = s.mon.map.clone();
    for at in 0..times {
        s.client.write(&map, pool, "other", vec![at as u8; 10]);
        s.settle();
    }
}

/// A change or a read of one of some objects, if nothing is under way on it.
pub fn one_request(s: &mut Sim, pool: PoolId) {
    let name = format!("o{}", s.rng.below(4));
    if s.client.is_busy(&name) {
        return;
    }
    let map = s.mon.map.clone();
    let size = s.client.model.get(&name).and_then(|e| e.acked.as_ref()).map_or(0, Vec::len);
    let (what, at) = (s.rng.below(10), s.rng.below(size as u64 + 1) as usize);
    let len = 1 + s.rng.below(4 * CHUNK as u64) as usize;
    match what {
        0 => s.client.remove(&map, pool, &name),
        1 | 2 => {
            let content = bytes(s, 3 * len);
            s.client.write(&map, pool, &name, content)
        }
        3..=5 => s.client.read(&map, pool, &name),
        6 => {
            let part = bytes(s, len);
            s.client.patch(&map, pool, &name, size, &part)
        }
        _ => {
            let part = bytes(s, len);
            s.client.patch(&map, pool, &name, at, &part)
        }
    };
}

/// Requests while something else goes on.
pub fn requests(s: &mut Sim, pool: PoolId, count: usize) {
    for _ in 0..count {
        one_request(s, pool);
        let steps = s.rng.below(30) as usize;
        s.run(steps);
    }
}

/// Reads every object, and compares it with what was written.
pub fn read_all(s: &mut Sim, pool: PoolId) {
    let map = s.mon.map.clone();
    for name in s.client.model.keys().cloned().collect::<Vec<_>>() {
        if !s.client.is_busy(&name) {
            s.client.read(&map, pool, &name);
        }
    }
    s.until("read", |s| s.client.is_idle());
}

/// What the shard at a place has stored of an object.
pub fn shard(s: &mut Sim, osd: i32, place: usize, pool: PoolId, name: &str) -> Option<Vec<u8>> {
    let key = ObjectKey::new(place as i8, s.client.object(&s.mon.map, pool, name));
    let store = s.nodes[osd as usize].core.as_mut()?.store_mut();
    let stat = store.stat(&key).unwrap()?;
    Some(store.read(&key, 0, stat.size).unwrap().to_vec())
}

/// Puts every object together from every choice of as many shards as make up the data.
pub fn check_shards(s: &mut Sim, pool: PoolId) {
    let map = s.mon.map.clone();
    for (name, want) in s.client.model.clone() {
        let pgid = map.raw_pg_to_pg(PgId::new(pool, s.client.object(&map, pool, &name).hash)).unwrap();
        let members = map.pg_to_up_acting(pgid).acting;
        let shards: Vec<Option<Vec<u8>>> =
            members.iter().enumerate().map(|(at, osd)| shard(s, *osd, at, pool, &name)).collect();
        match &want.acked {
            Some(content) => check_choices(s, pool, &name, &shards, content),
            None => assert!(shards.iter().all(Option::is_none), "{name} is not gone"),
        }
    }
}

/// The same of an object, a clone say, that has this content.
pub fn check_object(s: &mut Sim, pool: PoolId, object: &HObject, want: &[u8]) {
    let members = acting(s, pool).into_iter().enumerate();
    let shards: Vec<Option<Vec<u8>>> =
        members.map(|(at, osd)| Some(content(s, osd, at, object.clone()).data)).collect();
    check_choices(s, pool, &object.to_string(), &shards, want);
}

fn check_choices(s: &Sim, pool: PoolId, name: &str, shards: &[Option<Vec<u8>>], want: &[u8]) {
    let map = &s.mon.map;
    let geometry = Geometry::of_pool(map, map.pool(pool).unwrap()).unwrap();
    for bits in 0..1u32 << shards.len() {
        let there: ChunkSet = (0..shards.len()).filter(|at| bits >> at & 1 == 1).collect();
        if there.len() != geometry.codec.data_chunk_count() {
            continue;
        }
        let plan = geometry.stripes.read(&geometry.codec, 0..want.len() as u64, there).unwrap();
        let part = |r: &ShardRange| {
            let all = shards[r.shard].as_ref().unwrap_or_else(|| panic!("{name} is not on {}", r.shard));
            &all[r.offset as usize..(r.offset + r.len) as usize]
        };
        let read: Vec<&[u8]> = plan.ranges().iter().map(part).collect();
        assert!(plan.assemble(&read).unwrap() == want, "{name} from {there}");
    }
}

/// What a store has of an object.
pub struct Content {
    pub key: ObjectKey,
    pub data: Vec<u8>,
    pub info: Bytes,
}

pub fn content(s: &mut Sim, osd: i32, place: usize, object: HObject) -> Content {
    let key = ObjectKey::new(place as i8, object);
    let store = s.nodes[osd as usize].core.as_mut().unwrap().store_mut();
    let info = store.attr(&key, b"_").unwrap().expect("it is there");
    let size = store.stat(&key).unwrap().unwrap().size;
    let data = store.read(&key, 0, size).unwrap().to_vec();
    Content { key, data, info }
}

/// Makes an OSD's object what it was.
pub fn put_back(s: &mut Sim, osd: i32, was: Content) {
    let mut txn = Txn::new();
    txn.truncate(&was.key, was.data.len() as u64);
    txn.write(&was.key, 0, was.data).set_attr(&was.key, &b"_"[..], was.info);
    s.nodes[osd as usize].core.as_mut().unwrap().store_mut().submit(txn).unwrap();
}

/// Changes what a member has stored of an object, as no client does.
pub fn change(
    s: &mut Sim,
    pool: PoolId,
    osd: i32,
    object: &HObject,
    change: impl FnOnce(&mut Txn, &ObjectKey),
) {
    let mut txn = Txn::new();
    change(&mut txn, &ObjectKey::new(place_of(s, pool, osd) as i8, object.clone()));
    s.nodes[osd as usize].core.as_mut().unwrap().store_mut().submit(txn).unwrap();
    s.commit(osd);
}

/// A member's shard of an object goes without a trace.
pub fn lose(s: &mut Sim, pool: PoolId, osd: i32, object: &HObject) {
    change(s, pool, osd, object, |txn, key| {
        txn.remove(key);
    });
}

/// A copy's mark that its shard of an object is damaged.
pub fn mark_damaged(s: &mut Sim, pool: PoolId, osd: i32, object: &HObject) {
    let id = SpgId { pgid: PgId::new(pool, 0), shard: place_of(s, pool, osd) as i8 };
    let mut txn = Txn::new();
    let key = [&b"x"[..], &object.to_bytes()].concat();
    txn.set(Space::Pg(id), key, object.to_bytes());
    s.nodes[osd as usize].core.as_mut().unwrap().store_mut().submit(txn).unwrap();
    s.commit(osd);
}

/// Objects that a copy has stored as damaged.
pub fn damaged(s: &mut Sim, pool: PoolId, osd: i32) -> usize {
    let id = SpgId { pgid: PgId::new(pool, 0), shard: place_of(s, pool, osd) as i8 };
    let store = s.nodes[osd as usize].core.as_mut().unwrap().store_mut();
    store.scan(Space::Pg(id), b"x", Some(b"y"), usize::MAX).unwrap().len()
}

/// Blocks of an object's shard on an OSD's device are changed. Nothing of it is in memory any more.
pub fn damage(s: &mut Sim, pool: PoolId, place: usize, name: &str) {
    let osd = acting(s, pool)[place];
    s.restart(osd);
    s.settle();
    let data = shard(s, osd, place, pool, name).expect("it is there");
    s.restart(osd);
    s.settle();
    let device = s.nodes[osd as usize].device.clone();
    let block = &data[..CHUNK];
    let blocks = (0..store::Device::len(&*device)).step_by(CHUNK);
    let blocks: Vec<u64> = blocks.filter(|at| device.peek(*at, CHUNK) == block).collect();
    assert!(!blocks.is_empty());
    blocks.iter().for_each(|at| device.flip(at + 9, 1));
}

/// An OSD that has lost all it had starts again, with an empty disk.
pub fn start_empty(s: &mut Sim, osd: i32) {
    let device = SimDevice::new(48 << 20);
    let options = FormatOptions { fsid: mon::FSID, osd_uuid: mon::uuid(osd), log_bytes: None };
    Store::format(&device, options).expect("format");
    s.nodes[osd as usize].device = device.into();
    s.mon.change(|inc, map| {
        inc.new_lost.insert(osd, map.epoch);
    });
    s.start(osd);
}

/// Messages under way from one OSD to another.
pub fn under_way(s: &Sim, from: i32, to: i32, kind: &str) -> Option<usize> {
    let link = s.links.get(&(from, to))?;
    link.iter().position(|msg| OsdCore::describe_message(msg).is_some_and(|text| text.contains(kind)))
}
