//! Erasure-coded objects on real stores, one for each shard, against a naive model: what requests change on
//! each shard, what they read for that, and how shards take writes back.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use erasure::ChunkSet;
use maps::{OsdMap, Pool, PoolType};
use pg::coded::{
    Adds, Gathered, Geometry, Kept, Needed, Parts, SplitStop, forget, kept_in, prepare, split, take_back,
};
use pg::{Dirty, EntryKind, LogEntry};
use store::{FormatOptions, ObjectKey, Op, Options, Store, Txn};
use testkit::{Rng, SimDevice};
use types::{Epoch, Errno, Eversion, Fsid, HObject, PgId, PoolId, SpgId};

const POOL: PoolId = PoolId(3);

fn object(name: &str) -> HObject {
    HObject { pool: POOL, name: name.into(), snap: types::SnapId::HEAD, ..HObject::min() }
}

fn id(shard: usize) -> SpgId {
    SpgId { pgid: PgId::new(POOL, 0), shard: shard as i8 }
}

fn profile(k: usize, m: usize, technique: &str) -> BTreeMap<String, String> {
    let (k, m) = (k.to_string(), m.to_string());
    let words =
        [("plugin", "jerasure"), ("technique", technique), ("k", &k), ("m", &m), ("packetsize", "32")];
    words.into_iter().map(|(k, v)| (k.to_owned(), v.to_owned())).collect()
}

/// One shard's store.
struct Shard {
    store: Store,
    device: Arc<SimDevice>,
    /// Records of writes that can be taken back, oldest first.
    kept: Vec<Kept>,
}

impl Shard {
    fn new() -> Self {
        let device = SimDevice::new(32 << 20);
        let fsid = Fsid::default();
        Store::format(&device, FormatOptions { fsid, osd_uuid: fsid, log_bytes: None }).unwrap();
        let device = Arc::new(device);
        let store = Store::open(device.clone(), Options::default()).unwrap();
        Self { store, device, kept: Vec::new() }
    }

    fn submit(&mut self, txn: Txn) {
        self.store.submit(txn).unwrap();
        if let Some(commit) = self.store.take_commit() {
            let done = commit.execute(&*self.device);
            self.store.committed(done).unwrap();
        }
        while self.store.checkpoint_due() {
            let Some(checkpoint) = self.store.take_checkpoint() else { break };
            let done = checkpoint.execute(&*self.device);
            self.store.checkpointed(done).unwrap();
        }
    }
}

/// What an object is: its data, and its attributes.
type Model = BTreeMap<HObject, (Vec<u8>, BTreeMap<Bytes, Bytes>)>;

struct Coded {
    geometry: Geometry,
    shards: Vec<Shard>,
    version: u64,
    /// Bytes that were gathered for the last write.
    gathered: Vec<Needed>,
}

impl Coded {
    fn new(values: &BTreeMap<String, String>, width: u32) -> Self {
        let mut map = OsdMap::default();
        map.erasure_code_profiles.insert("p".to_owned(), values.clone());
        let mut pool = Pool::new(PoolType::Erasure, 1);
        pool.size = erasure::Profile::new(values).unwrap().chunks() as u8;
        (pool.stripe_width, pool.erasure_code_profile) = (width, "p".to_owned());
        let geometry = Geometry::of_pool(&map, &pool).unwrap();
        let shards = (0..geometry.shards()).map(|_| Shard::new()).collect();
        Self { geometry, shards, version: 0, gathered: Vec::new() }
    }

    fn data_chunks(&self) -> usize {
        self.geometry.codec.data_chunk_count()
    }

    /// Reads a range of an object from shards that are there.
    fn read(&mut self, o: &HObject, range: Range<u64>, there: ChunkSet) -> Vec<u8> {
        let plan = self.geometry.stripes.read(&self.geometry.codec, range, there).unwrap();
        let read: Vec<Bytes> = plan
            .ranges()
            .iter()
            .map(|r| {
                assert!(there.contains(r.shard));
                let key = ObjectKey::new(r.shard as i8, o.clone());
                self.shards[r.shard].store.read(&key, r.offset, r.len).unwrap()
            })
            .collect();
        plan.assemble(&read.iter().map(Bytes::as_ref).collect::<Vec<_>>()).unwrap()
    }

    /// Splits a transaction, with the old bytes that it asks for from any shards that are enough.
    fn split(&mut self, txn: &Txn, model: &Model, rng: &mut Rng) -> Parts {
        self.gathered.clear();
        let mut gathered = Gathered::default();
        loop {
            let size = |o: &HObject| Ok(model.get(o).map_or(0, |(data, _)| data.len() as u64));
            match split(&self.geometry, txn, &gathered, size) {
                Ok(parts) => return parts,
                Err(SplitStop::Needs(needs)) => {
                    assert!(!needs.is_empty() && self.gathered.is_empty(), "asked twice: {needs:?}");
                    for need in needs {
                        let there = self.some_shards(rng);
                        let bytes = self.read(&need.object, need.range.clone(), there);
                        self.gathered.push(need.clone());
                        gathered.add(need, bytes.into());
                    }
                }
                Err(e) => panic!("{e:?}"),
            }
        }
    }

    /// As many shards as are enough, at random.
    fn some_shards(&self, rng: &mut Rng) -> ChunkSet {
        let mut all: Vec<usize> = (0..self.shards.len()).collect();
        while all.len() > self.data_chunks() {
            all.swap_remove(rng.below(all.len() as u64) as usize);
        }
        all.into_iter().collect()
    }

    fn entry(&mut self, o: &HObject) -> LogEntry {
        self.version += 1;
        LogEntry {
            kind: EntryKind::Modify,
            object: o.clone(),
            version: Eversion::new(Epoch(5), self.version),
            prior_version: Eversion::ZERO,
            user_version: self.version,
            reqid: Default::default(),
            mtime: Default::default(),
            return_code: 0,
            op_returns: Vec::new(),
            dirty: Dirty::ALL,
        }
    }

    /// Applies a split write on some shards.
    fn apply(&mut self, parts: &Parts, entries: &[LogEntry], on: ChunkSet) {
        let none = BTreeMap::new();
        for (at, (shard, part)) in self.shards.iter_mut().zip(&parts.shards).enumerate() {
            if on.contains(at) {
                let (txn, adds) = (part.txn.clone(), Adds { adds: &part.adds, old: &none });
                let ready = prepare(&mut shard.store, id(at), txn, adds, entries).unwrap();
                assert!(ready.damaged.is_empty());
                shard.kept.extend(ready.kept);
                shard.submit(ready.txn);
            }
        }
    }

    /// Takes everything above a version back, newest first, as a merge of logs does.
    fn take_back_to(&mut self, version: u64) {
        for (at, shard) in self.shards.iter_mut().enumerate() {
            let mut txn = Txn::new();
            while shard.kept.last().is_some_and(|kept| kept.version.version > version) {
                take_back(&mut txn, id(at), &shard.kept.pop().unwrap());
            }
            if !txn.is_empty() {
                shard.submit(txn);
            }
        }
    }

    /// Lets go of what is kept up to a version.
    fn forget_to(&mut self, version: u64) {
        for (at, shard) in self.shards.iter_mut().enumerate() {
            let mut txn = Txn::new();
            while shard.kept.first().is_some_and(|kept| kept.version.version <= version) {
                forget(&mut txn, id(at), &shard.kept.remove(0));
            }
            if !txn.is_empty() {
                shard.submit(txn);
            }
        }
    }

    /// Every object reads as the model has it, from several sets of shards; nothing else is there.
    fn check(&mut self, model: &Model, rng: &mut Rng) {
        let all = ChunkSet::first(self.shards.len());
        for (o, (data, attrs)) in model {
            for there in [all, self.some_shards(rng), self.some_shards(rng)] {
                let read = self.read(o, 0..data.len() as u64, there);
                assert!(read == *data, "{o} from {there:?}: {} bytes", data.len());
            }
            let length = self.geometry.stripes.shard_len(data.len() as u64);
            for (at, shard) in self.shards.iter_mut().enumerate() {
                let key = ObjectKey::new(at as i8, o.clone());
                assert_eq!(shard.store.stat(&key).unwrap().map(|s| s.size), Some(length), "{o} on {at}");
                let found: BTreeMap<Bytes, Bytes> = shard.store.attrs(&key).unwrap().into_iter().collect();
                assert_eq!(found, *attrs, "{o} on {at}");
            }
        }
        for (at, shard) in self.shards.iter_mut().enumerate() {
            assert_eq!(kept_in(&mut shard.store, id(at)).unwrap(), shard.kept, "records of shard {at}");
            let stored = shard.store.list_all(None, 10_000).unwrap();
            let (aside, objects): (Vec<_>, Vec<_>) = stored.into_iter().partition(|k| k.object.pool.0 < -1);
            assert!(aside.iter().all(|k| pg::coded::is_kept(&k.object)));
            assert!(aside.len() <= shard.kept.len(), "{} of {} kept", aside.len(), shard.kept.len());
            let names: Vec<HObject> = objects.into_iter().map(|k| k.object).collect();
            assert_eq!(names, model.keys().cloned().collect::<Vec<_>>(), "objects of shard {at}");
        }
    }
}

/// A request on one object: its transaction, as the operations make it, and what the objects were before.
fn request(coded: &mut Coded, model: &mut Model, rng: &mut Rng) -> (Txn, Vec<LogEntry>, Model) {
    let before = model.clone();
    let o = object(["a", "b", "c"][rng.below(3) as usize]);
    let key = ObjectKey::new(0, o.clone());
    let mut txn = Txn::new();
    let mut entries = Vec::new();
    let clones = clones_of(model, &o);
    if model.contains_key(&o) && rng.below(8) == 0 {
        // A snapshot was taken since.
        let clone = o.at(types::SnapId(coded.version + 1));
        txn.clone_object(&key, &ObjectKey::new(0, clone.clone()));
        model.insert(clone.clone(), model[&o].clone());
        entries.push(coded.entry(&clone));
    } else if !clones.is_empty() && rng.below(6) == 0 {
        // Its snapshot was removed.
        let clone = rng.pick(&clones).clone();
        txn.remove(&ObjectKey::new(0, clone.clone()));
        model.remove(&clone);
        entries.push(coded.entry(&clone));
    }
    let width = coded.geometry.stripes.stripe_width();
    for _ in 0..1 + rng.below(3) {
        one_operation(&key, width, &mut txn, model, rng);
    }
    let entry = coded.entry(&o);
    if let Some((_, attrs)) = model.get_mut(&o) {
        let version = Bytes::from(entry.version.to_string());
        txn.set_attr(&key, &b"info"[..], version.clone());
        attrs.insert(Bytes::from_static(b"info"), version);
    }
    entries.push(entry);
    (txn, entries, before)
}

fn clones_of(model: &Model, o: &HObject) -> Vec<HObject> {
    model.keys().filter(|c| c.name == o.name && !c.is_head()).cloned().collect()
}

fn one_operation(key: &ObjectKey, width: u64, txn: &mut Txn, model: &mut Model, rng: &mut Rng) {
    let o = &key.object;
    let clones = clones_of(model, o);
    match rng.below(10) {
        0 if model.contains_key(o) => {
            txn.remove(key);
            model.remove(o);
            return;
        }
        1 if !clones.is_empty() && txn.is_empty() => {
            let clone = rng.pick(&clones).clone();
            txn.remove(key).clone_object(&ObjectKey::new(0, clone.clone()), key);
            model.insert(o.clone(), model[&clone].clone());
            return;
        }
        _ => {}
    }
    if !model.contains_key(o) {
        txn.touch(key);
    }
    let (data, attrs) = model.entry(o.clone()).or_default();
    let size = data.len() as u64;
    let at = rng.below(size + 2 * width + 1);
    let len = 1 + rng.below(3 * width);
    match rng.below(8) {
        0 => {
            txn.truncate(key, at);
            data.resize(at as usize, 0);
        }
        1 => {
            txn.zero(key, at, len);
            data.resize(data.len().max((at + len) as usize), 0);
            data[at as usize..(at + len) as usize].fill(0);
        }
        2 => {
            let name = Bytes::from(format!("_{}", rng.below(3)));
            txn.set_attr(key, name.clone(), Bytes::from(at.to_string()));
            attrs.insert(name, Bytes::from(at.to_string()));
        }
        3 => {
            let name = Bytes::from(format!("_{}", rng.below(3)));
            txn.rm_attr(key, name.clone());
            attrs.remove(&name);
        }
        how => {
            // At random, an append, or whole stripes.
            let (at, len) = match how {
                4 => (size, len),
                5 => (at / width * width, width * (1 + rng.below(2))),
                6 => (at, 1 + rng.below(16)),
                _ => (at, len),
            };
            let bytes: Vec<u8> = (0..len).map(|_| rng.below(256) as u8).collect();
            data.resize(data.len().max((at + len) as usize), 0);
            data[at as usize..(at + len) as usize].copy_from_slice(&bytes);
            txn.write(key, at, bytes);
        }
    }
}

/// Random requests; some reach only some of the shards and are taken back, some are taken back after others.
fn run(values: &BTreeMap<String, String>, width: u32, seed: u64, steps: u64) {
    let mut rng = Rng::new(seed);
    let mut coded = Coded::new(values, width);
    let all = ChunkSet::first(coded.shards.len());
    let mut model = Model::new();
    // What the objects were, by the version that led there.
    let mut history: BTreeMap<u64, Model> = BTreeMap::from([(0, Model::new())]);
    for step in 0..steps {
        let stands_at = coded.version;
        let (txn, entries, before) = request(&mut coded, &mut model, &mut rng);
        let parts = coded.split(&txn, &before, &mut rng);
        if rng.below(3) == 0 {
            let some: ChunkSet = (0..coded.shards.len()).filter(|_| rng.below(2) == 0).collect();
            coded.apply(&parts, &entries, some);
            coded.take_back_to(stands_at);
            model = before;
            coded.version = stands_at;
        } else {
            coded.apply(&parts, &entries, all);
            history.insert(coded.version, model.clone());
        }
        if rng.below(6) == 0 {
            let versions: Vec<u64> = history.keys().copied().collect();
            let to = *rng.pick(&versions);
            coded.take_back_to(to);
            model = history[&to].clone();
            history.retain(|v, _| *v <= to);
            coded.version = to;
        }
        if rng.below(5) == 0 {
            let versions: Vec<u64> = history.keys().copied().collect();
            let to = *rng.pick(&versions);
            coded.forget_to(to);
            history.retain(|v, _| *v >= to);
        }
        if step % 4 == 0 {
            coded.check(&model, &mut rng);
        }
    }
    coded.check(&model, &mut rng);
}

#[test]
fn objects_on_shards_are_as_the_model_has_them_whatever_is_taken_back() {
    for seed in 0..6 {
        run(&profile(2, 1, "reed_sol_van"), 2 * 4096, seed, 60);
        run(&profile(3, 2, "reed_sol_van"), 3 * 4096, 10 + seed, 60);
    }
    for seed in 0..3 {
        run(&profile(4, 2, "reed_sol_van"), 4 * 4096, 20 + seed, 60);
        run(&profile(2, 2, "cauchy_good"), 2 * 4096, 30 + seed, 60);
    }
}

/// Row 30: a write that is cut between shards reads as the old one or as the new one, whichever shards have
/// it.
#[test]
fn a_write_on_any_of_the_shards_is_taken_back_whole() {
    let mut rng = Rng::new(7);
    let mut coded = Coded::new(&profile(2, 2, "reed_sol_van"), 8192);
    let (o, all) = (object("a"), ChunkSet::first(4));
    let key = ObjectKey::new(0, o.clone());
    let mut model = Model::new();
    let old = vec![1; 20_000];
    let mut txn = Txn::new();
    txn.touch(&key).write(&key, 0, old.clone());
    let parts = coded.split(&txn, &model, &mut rng);
    let entry = coded.entry(&o);
    coded.apply(&parts, &[entry], all);
    model.insert(o.clone(), (old, BTreeMap::new()));
    let writes: [fn(&mut Txn, &ObjectKey); 5] = [
        |txn, key| {
            txn.write(key, 5_000, vec![2; 100]);
        },
        |txn, key| {
            txn.write(key, 20_000, vec![2; 9_000]);
        },
        |txn, key| {
            txn.truncate(key, 3_000);
        },
        |txn, key| {
            txn.remove(key);
        },
        |txn, key| {
            txn.remove(key).touch(key).write(key, 100, vec![3; 30_000]);
        },
    ];
    for write in writes {
        for bits in 0..16u32 {
            let some: ChunkSet = (0..4).filter(|shard| bits >> shard & 1 == 1).collect();
            let (stands_at, mut txn) = (coded.version, Txn::new());
            write(&mut txn, &key);
            let parts = coded.split(&txn, &model, &mut rng);
            let entry = coded.entry(&o);
            coded.apply(&parts, &[entry], some);
            coded.take_back_to(stands_at);
            coded.version = stands_at;
            coded.check(&model, &mut rng);
        }
    }
}

/// What a small overwrite costs: one chunk's old bytes are read, and one range of `1 + m` chunks changes. The
/// other shards hear of the write, and store attributes alone.
#[test]
fn a_small_overwrite_changes_one_chunk_and_the_coding_chunks() {
    let mut rng = Rng::new(8);
    let mut coded = Coded::new(&profile(6, 2, "reed_sol_van"), 6 * 4096);
    let (o, all) = (object("a"), ChunkSet::first(8));
    let key = ObjectKey::new(0, o.clone());
    let mut model = Model::new();
    let mut txn = Txn::new();
    let data: Vec<u8> = (0..6 * 4096 * 3).map(|_| rng.below(256) as u8).collect();
    txn.touch(&key).write(&key, 0, data.clone());
    let parts = coded.split(&txn, &model, &mut rng);
    assert_eq!(coded.gathered, [], "whole stripes need nothing");
    let entry = coded.entry(&o);
    coded.apply(&parts, &[entry], all);
    model.insert(o.clone(), (data, BTreeMap::new()));
    for (at, shard) in [(8 * 4096u64, 2usize), (6 * 4096, 0), (17 * 4096, 5)] {
        let mut txn = Txn::new();
        txn.write(&key, at, vec![9; 4096]).set_attr(&key, &b"info"[..], &b"v"[..]);
        let parts = coded.split(&txn, &model, &mut rng);
        assert_eq!(coded.gathered, [Needed { object: o.clone(), range: at..at + 4096 }]);
        for (place, part) in parts.shards.iter().enumerate() {
            let writes = part.txn.ops().iter().filter(|op| matches!(op, Op::Write { .. })).count();
            let adds: Vec<(u64, usize)> = part.adds.iter().map(|a| (a.offset, a.data.len())).collect();
            let offset = at / (6 * 4096) * 4096;
            match place {
                6 | 7 => assert_eq!((writes, adds), (0, vec![(offset, 4096)])),
                place => assert_eq!((writes, adds), (usize::from(place == shard), vec![])),
            }
            assert!(part.txn.ops().iter().any(|op| matches!(op, Op::SetAttr { .. })), "{place} hears of it");
        }
        let entry = coded.entry(&o);
        coded.apply(&parts, &[entry], all);
        let (data, attrs) = model.get_mut(&o).unwrap();
        data[at as usize..at as usize + 4096].fill(9);
        attrs.insert(Bytes::from_static(b"info"), Bytes::from_static(b"v"));
        coded.check(&model, &mut rng);
    }
}

#[test]
fn omaps_are_refused() {
    let mut coded = Coded::new(&profile(2, 1, "reed_sol_van"), 8192);
    let key = ObjectKey::new(0, object("a"));
    let size = |_: &HObject| Ok(0);
    for change in [0, 1, 2] {
        let mut txn = Txn::new();
        match change {
            0 => txn.omap_set(&key, vec![(Bytes::from_static(b"k"), Bytes::from_static(b"v"))]),
            1 => txn.omap_clear(&key),
            _ => txn.omap_set_header(&key, Bytes::from_static(b"h")),
        };
        let refused = split(&coded.geometry, &txn, &Gathered::default(), size);
        assert_eq!(refused, Err(SplitStop::Refused(Errno::EOPNOTSUPP)));
    }
    coded.check(&Model::new(), &mut Rng::new(1));
}

/// A coding chunk that cannot be read takes no sum: the shard says that it has to be rebuilt.
#[test]
fn a_damaged_coding_chunk_takes_nothing_more() {
    let mut rng = Rng::new(9);
    let mut coded = Coded::new(&profile(4, 1, "reed_sol_van"), 16_384);
    let (o, model) = (object("a"), Model::new());
    let key = ObjectKey::new(0, o.clone());
    let mut txn = Txn::new();
    let stripe = [vec![5; 4096], vec![3; 4096], vec![1; 4096], vec![1; 4096]].concat();
    txn.touch(&key).write(&key, 0, stripe.repeat(30));
    let parts = coded.split(&txn, &model, &mut rng);
    let entry = coded.entry(&o);
    coded.apply(&parts, &[entry], ChunkSet::first(5));
    let mut txn = Txn::new();
    txn.write(&key, 16_384 * 7, vec![6; 16]);
    let model = Model::from([(o.clone(), (stripe.repeat(30), BTreeMap::new()))]);
    let parts = coded.split(&txn, &model, &mut rng);
    let adds = &parts.shards[4].adds;
    assert_eq!(adds.len(), 1);
    let shard = &mut coded.shards[4];
    let none = BTreeMap::new();
    let adds = Adds { adds, old: &none };
    let prepared = |shard: &mut Shard| prepare(&mut shard.store, id(4), Txn::new(), adds, &[]).unwrap();
    let ready = prepared(shard);
    assert!(ready.damaged.is_empty() && ready.txn.ops().len() == 1);
    // Nothing of it is in memory after a start, and its blocks on the medium are others.
    shard.store = Store::open(shard.device.clone(), Options::default()).unwrap();
    let blocks = (0..32u64 << 20).step_by(4096).filter(|at| shard.device.peek(*at, 4096) == [6; 4096]);
    let blocks: Vec<u64> = blocks.collect();
    assert!(blocks.len() >= 30, "{blocks:?}");
    blocks.iter().for_each(|at| shard.device.flip(at + 7, 0x10));
    let ready = prepared(shard);
    assert_eq!(ready.damaged, [o]);
    assert!(ready.txn.is_empty(), "what is there stays");
}
