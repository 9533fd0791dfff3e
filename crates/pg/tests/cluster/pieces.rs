//! Large objects are recovered in pieces, and of objects of which an older version is there only what changed.

use std::collections::BTreeMap;
use std::ops::Bound;

use bytes::Bytes;
use messages::osd::{Extent, Op};
use pg::{Input, OsdConfig};
use store::ObjectKey;
use types::{HObject, PgId, PoolId, SnapContext, SnapId};

use crate::sim::Sim;

const MIB: usize = 1 << 20;

fn cluster(osds: usize, size: u8, seed: u64, device_mib: u64, config: OsdConfig) -> (Sim, PoolId) {
    let mut s = Sim::with_devices(&vec![device_mib << 20; osds], seed, config);
    s.until("all up", |s| (0..osds as i32).all(|o| s.mon.map.is_up(o)));
    let pool = s.mon.create_pool(size, 1, 1);
    s.settle();
    (s, pool)
}

/// Pieces of a MiB at most.
fn small_pieces() -> OsdConfig {
    OsdConfig { recovery_max_chunk: MIB as u64, ..OsdConfig::default() }
}

fn acting(s: &Sim, pool: PoolId) -> Vec<i32> {
    s.mon.map.pg_to_up_acting(PgId::new(pool, 0)).acting
}

fn done(s: &mut Sim) {
    s.until("done", |s| s.client.is_idle());
}

fn patch(s: &mut Sim, pool: PoolId, name: &str, offset: usize, part: &[u8]) {
    let map = s.mon.map.clone();
    s.client.patch(&map, pool, name, offset, part);
    done(s);
}

fn change(s: &mut Sim, pool: PoolId, name: &str, ops: Vec<Op>) {
    let map = s.mon.map.clone();
    s.client.change(&map, pool, name, ops);
    done(s);
}

fn set_keys(keys: impl Iterator<Item = u32>, tag: u8) -> Op {
    let pair = |i: u32| (Bytes::from(format!("key{i:07}")), Bytes::from(vec![tag; (i % 40) as usize]));
    Op::OmapSetVals { vals: keys.map(pair).collect() }
}

/// All of an object: size, data, where it was written, attributes, omap.
type Whole = (u64, Bytes, Vec<(u64, u64)>, Vec<(Bytes, Bytes)>, Bytes, Vec<(Bytes, Bytes)>);

/// Everything that an OSD holds, whatever its pool.
fn held(s: &mut Sim, osd: i32) -> BTreeMap<HObject, Whole> {
    let store = s.nodes[osd as usize].core.as_mut().unwrap().store_mut();
    let mut all = BTreeMap::new();
    for object in store.list(-1, &HObject::min(), &HObject::max(), 10_000).unwrap() {
        let key = ObjectKey::replicated(object.clone());
        let size = store.stat(&key).unwrap().unwrap().size;
        let (omap, more) = store.omap_list(&key, Bound::Unbounded, usize::MAX, usize::MAX).unwrap();
        assert!(!more);
        let whole = (
            size,
            store.read(&key, 0, size).unwrap(),
            store.extents(&key, 0, size).unwrap(),
            store.attrs(&key).unwrap(),
            store.omap_header(&key).unwrap(),
            omap,
        );
        all.insert(object, whole);
    }
    all
}

/// Objects that are being built aside on an OSD.
fn aside(s: &mut Sim, osd: i32) -> usize {
    let Some(core) = s.nodes[osd as usize].core.as_mut() else { return 0 };
    let until = HObject { pool: PoolId(-1), ..HObject::min() };
    core.store_mut().list(-1, &HObject::min(), &until, 100).unwrap().len()
}

/// All members hold the same, to the byte, and nothing else.
fn check(s: &mut Sim, pool: PoolId, objects: usize) {
    s.settle();
    s.check_copies();
    let members = acting(s, pool);
    let first = held(s, members[0]);
    assert_eq!(first.len(), objects, "{:?}", first.keys());
    for osd in &members[1..] {
        let other = held(s, *osd);
        assert_eq!(other.keys().collect::<Vec<_>>(), first.keys().collect::<Vec<_>>(), "osd.{osd}");
        for (object, whole) in other {
            assert!(whole == first[&object], "{object} on osd.{osd} differs");
        }
    }
    for osd in members {
        let totals = s.nodes[osd as usize].core.as_mut().unwrap().store_mut().pool_totals().clone();
        assert!(totals.keys().all(|p| *p >= -1), "osd.{osd}: blocks of what was built aside: {totals:?}");
        assert!(totals.values().all(|t| t.allocated_bytes >= 0), "osd.{osd}: {totals:?}");
    }
}

/// Blocks that a member's objects of the pool take.
fn allocated(s: &mut Sim, osd: i32, pool: PoolId) -> i64 {
    let store = s.nodes[osd as usize].core.as_mut().unwrap().store_mut();
    store.pool_totals()[&pool.0].allocated_bytes
}

/// The bytes of objects that an OSD has sent in recovery.
fn sent(s: &mut Sim, osd: i32) -> u64 {
    let cmd = r#"{"prefix": "perf dump", "format": "json"}"#.to_owned();
    s.input(osd, Input::AdminCommand { tid: 1, cmd });
    let reply = s.nodes[osd as usize].admin_replies.pop().expect("an answer");
    let told: serde_json::Value = serde_json::from_slice(&reply.data).expect("JSON");
    told["osd"]["push_out_bytes"].as_u64().expect("a counter")
}

/// 40 MiB with holes, 100,000 keys, attributes, and a clone: pushed to a member, and pulled by the primary.
#[test]
fn a_large_object_with_everything_comes_whole() {
    let (mut s, pool) = cluster(2, 2, 1, 260, OsdConfig::default());
    for (seed, by_primary) in [(2u8, false), (3, true)] {
        let members = acting(&s, pool);
        let victim = if by_primary { members[0] } else { members[1] };
        s.kill(victim);
        s.client.snapc = SnapContext::default();
        let name = format!("big{seed}");
        let filled: Vec<u8> = (0..9 * MIB + 77).map(|i| (i / 4096) as u8 ^ seed).collect();
        patch(&mut s, pool, &name, 0, &filled);
        patch(&mut s, pool, &name, 20 * MIB + 5, &filled[..5 * MIB]);
        patch(&mut s, pool, &name, 40 * MIB - 1, &[7]);
        for at in (0..100_000u32).step_by(5_000) {
            change(&mut s, pool, &name, vec![set_keys(at..at + 5_000, seed)]);
        }
        let value = Bytes::from(vec![seed; 3_000]);
        change(
            &mut s,
            pool,
            &name,
            vec![
                Op::OmapSetHeader { header: Bytes::from_static(b"the header") },
                Op::SetXattr { name: "a".into(), value: value.clone() },
                Op::SetXattr { name: "b".into(), value },
            ],
        );
        s.client.snapc = SnapContext { seq: u64::from(seed), snaps: vec![u64::from(seed)] };
        patch(&mut s, pool, &name, 21 * MIB, &filled[..MIB]);
        s.start(victim);
        s.most_queued = Some(0);
        s.settle();
        let most = s.most_queued.take().unwrap();
        assert!((MIB..26 * MIB).contains(&most), "{most} bytes under way at one time");
        check(&mut s, pool, 2 * usize::from(seed - 1));
    }
}

/// A member that was away comes back to twelve objects of many pieces.
fn twelve_come_bounded(s: &mut Sim, pool: PoolId, victim: i32) {
    for i in 0..12u8 {
        patch(s, pool, &format!("o{i}"), 0, &vec![i; 5 * MIB]);
    }
    s.start(victim);
    s.most_queued = Some(0);
    s.settle();
    let most = s.most_queued.take().unwrap();
    // Two pieces at a time, and a least one of each object that was begun.
    assert!((MIB..6 * MIB).contains(&most), "{most} bytes under way at one time");
    check(s, pool, 12);
}

/// What is under way at one time does not grow with the objects.
#[test]
fn what_recovery_holds_is_bounded() {
    for (seed, by_primary) in [(11, false), (12, true)] {
        let (mut s, pool) = cluster(3, 3, seed, 260, small_pieces());
        let members = acting(&s, pool);
        let victim = if by_primary { members[0] } else { members[2] };
        s.kill(victim);
        twelve_come_bounded(&mut s, pool, victim);
        for osd in members {
            assert_eq!(allocated(&mut s, osd, pool), 12 * 5 * MIB as i64, "osd.{osd}");
        }
    }
}

/// A backfill's objects go in pieces too.
#[test]
fn a_backfill_is_bounded_too() {
    let short =
        OsdConfig { min_pg_log_entries: 2, max_pg_log_entries: 2, pg_log_trim_min: 1, ..small_pieces() };
    let (mut s, pool) = cluster(2, 2, 13, 260, short);
    let victim = acting(&s, pool)[1];
    s.kill(victim);
    twelve_come_bounded(&mut s, pool, victim);
}

/// Source or target die while an object is half there: nothing of it is left, and it comes whole in the end.
#[test]
fn kills_between_pieces() {
    for seed in 20..28u64 {
        let (mut s, pool) = cluster(3, 3, seed, 160, small_pieces());
        let members = acting(&s, pool);
        let by_primary = seed % 2 == 0;
        let victim = if by_primary { members[0] } else { members[2] };
        patch(&mut s, pool, "o0", 0, &vec![1; 6 * MIB]);
        s.kill(victim);
        for i in 0..3u8 {
            patch(&mut s, pool, &format!("o{i}"), MIB, &vec![10 + i; 5 * MIB]);
        }
        change(&mut s, pool, "o1", vec![set_keys(0..9_000, 5)]);
        s.start(victim);
        s.until("half there", |s| aside(s, victim) > 0);
        let steps = s.rng.below(30) as usize;
        s.run(steps);
        // Of the source: the primary, or whoever it asked; else the target.
        let dies = match seed / 2 % 2 == 0 {
            true => victim,
            false if by_primary => *members.iter().filter(|o| **o != victim).min().unwrap(),
            false => members[0],
        };
        s.restart(dies);
        if dies == victim {
            assert_eq!(aside(&mut s, victim), 0, "after a restart");
        }
        check(&mut s, pool, 3);
        for osd in 0..3 {
            assert_eq!(aside(&mut s, osd), 0, "osd.{osd}");
        }
    }
}

/// Another interval begins while an object is half there, and the target has no more part in the PG.
#[test]
fn a_target_that_leaves_keeps_nothing() {
    let (mut s, pool) = cluster(3, 2, 40, 160, small_pieces());
    patch(&mut s, pool, "o", 0, &vec![1; 6 * MIB]);
    let members = acting(&s, pool);
    let new = (0..3).find(|o| !members.contains(o)).unwrap();
    s.mon.mark_out(members[1]);
    s.until("half there", |s| aside(s, new) > 0);
    s.mon.mark_in(members[1]);
    check(&mut s, pool, 1);
    s.until("nothing is left", |s| held(s, new).is_empty());
}

/// 4 KiB of each of some objects of 4 MiB changed: little more than that is sent, from the primary or to it.
#[test]
fn only_what_changed_is_sent() {
    for (seed, by_primary) in [(51, false), (52, true)] {
        let (mut s, pool) = cluster(2, 2, seed, 160, OsdConfig::default());
        for i in 0..6u8 {
            patch(&mut s, pool, &format!("o{i}"), 0, &vec![i; 4 * MIB]);
        }
        change(&mut s, pool, "o1", vec![set_keys(0..5_000, 1)]);
        s.settle();
        let members = acting(&s, pool);
        let (victim, source) = if by_primary { (members[0], members[1]) } else { (members[1], members[0]) };
        s.kill(victim);
        for i in 0..6u8 {
            let name = format!("o{i}");
            patch(&mut s, pool, &name, MIB + 4096 * usize::from(i), &[99; 4096]);
            patch(&mut s, pool, &name, 3 * MIB, &[98; 100]);
        }
        let before = sent(&mut s, source);
        s.start(victim);
        s.settle();
        let bytes = sent(&mut s, source) - before;
        let dirty = 6 * (4096 + 4096);
        assert!(bytes >= dirty && bytes < dirty + 6 * 600, "{bytes} bytes for {dirty}");
        check(&mut s, pool, 6);
    }
}

/// Where the older version is another one than the primary believes, all of the object is sent.
#[test]
fn without_the_older_version_all_is_sent() {
    let (mut s, pool) = cluster(2, 2, 60, 160, OsdConfig::default());
    patch(&mut s, pool, "o", 0, &vec![1; 2 * MIB]);
    s.settle();
    let members = acting(&s, pool);
    s.kill(members[1]);
    patch(&mut s, pool, "o", 0, &[2; 4096]);
    let device = s.nodes[members[1] as usize].device.clone();
    let mut store = store::Store::open(device.clone(), store::Options::default()).unwrap();
    let object = s.client.object(&s.mon.map, pool, "o");
    store.submit(std::mem::take(store::Txn::new().remove(&ObjectKey::replicated(object)))).unwrap();
    let commit = store.take_commit().unwrap().execute(&*device);
    store.committed(commit).unwrap();
    drop(store);
    s.start(members[1]);
    check(&mut s, pool, 1);
    assert!(sent(&mut s, members[0]) > 2 * MIB as u64);
}

/// One random change of one of a few objects, of which the model knows nothing.
fn any_change(s: &mut Sim, pool: PoolId, snaps: &mut u64) {
    let name = format!("r{}", s.rng.below(6));
    let at = |s: &mut Sim| s.rng.below(300_000);
    let data = |s: &mut Sim, max: u64| {
        let len = 1 + s.rng.below(max) as usize;
        Bytes::from(s.rng.bytes(len))
    };
    let mut ops = Vec::new();
    for _ in 0..1 + s.rng.below(2) {
        let (offset, length) = (at(s), 1 + s.rng.below(60_000));
        ops.push(match s.rng.below(12) {
            0..=3 => {
                let data = data(s, 20_000);
                Op::Write { extent: Extent::new(offset, data.len() as u64), data }
            }
            4 => Op::Zero(Extent::new(offset, length)),
            5 => Op::Truncate(Extent::new(offset, 0)),
            6 => {
                let data = data(s, 5_000);
                Op::Append { extent: Extent::new(0, data.len() as u64), data }
            }
            7 => set_keys(offset as u32 % 50..offset as u32 % 50 + 10, length as u8),
            8 => Op::SetXattr { name: "x".into(), value: data(s, 100) },
            9 if *snaps > 0 => Op::Rollback { snap: SnapId(1 + offset % *snaps) },
            10 if s.rng.one_in(3) => Op::Delete,
            11 if s.rng.one_in(2) => {
                *snaps += 1;
                s.client.snapc = SnapContext { seq: *snaps, snaps: (1..=*snaps).rev().collect() };
                Op::Create
            }
            _ => Op::OmapClear,
        });
    }
    if !s.client.is_busy(&name) {
        let map = s.mon.map.clone();
        s.client.change(&map, pool, &name, ops);
    }
}

/// Whatever is done to objects while members come and go, all copies are the same in the end.
#[test]
fn copies_agree_after_any_changes() {
    for seed in 100..106 {
        let config = OsdConfig { recovery_max_chunk: 100_000, ..OsdConfig::default() };
        let (mut s, pool) = cluster(3, 3, seed, 96, config);
        let mut snaps = 0;
        for _ in 0..8 {
            for _ in 0..25 {
                any_change(&mut s, pool, &mut snaps);
                let steps = s.rng.below(40) as usize;
                s.run(steps);
            }
            if s.rng.one_in(2) {
                s.settle();
            }
            let victim = s.rng.below(3) as i32;
            s.kill(victim);
            for _ in 0..s.rng.below(20) {
                any_change(&mut s, pool, &mut snaps);
                let steps = s.rng.below(40) as usize;
                s.run(steps);
            }
            s.start(victim);
        }
        s.settle();
        let members = acting(&s, pool);
        let objects = held(&mut s, members[0]).len();
        check(&mut s, pool, objects);
    }
}
