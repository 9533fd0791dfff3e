//! Snapshots against a naive model that copies everything: what a read at a snapshot sees, rollback, and trimming; and what
//! clones claim to share is the same.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use maps::SnapIntervals;
use messages::osd::{Extent, Op};
use pg::object::ObjectState;
use store::ObjectKey;
use testkit::Rng;
use types::{HObject, PgId, SnapContext, SnapId};

use crate::bench::{Bench, POOL, Request, object};

const NAMES: [&str; 3] = ["a", "b", "c"];

/// Each object's data; none of one that does not exist.
type Objects = BTreeMap<&'static str, Vec<u8>>;

#[derive(Default)]
struct Model {
    head: Objects,
    /// What was there when each snapshot that still exists was taken.
    snaps: BTreeMap<u64, Objects>,
    newest: u64,
}

impl Model {
    fn context(&self) -> SnapContext {
        SnapContext { seq: self.newest, snaps: self.snaps.keys().rev().copied().collect() }
    }
}

fn write(b: &mut Bench, m: &Model, name: &str, op: Op) -> i32 {
    let mut r = Request::new(name, vec![op.into()]);
    r.snapc = m.context();
    b.run(&r).result
}

fn change(rng: &mut Rng, b: &mut Bench, m: &mut Model) {
    let name = *rng.pick(&NAMES);
    let (at, len) = (rng.below(3) * 4096 + rng.below(50), 1 + rng.below(6000));
    let bytes = rng.bytes(len as usize);
    let extent = Extent::new(at, len);
    let op = match rng.below(8) {
        0..3 => Op::Write { extent, data: bytes.clone().into() },
        3 => Op::WriteFull { extent: Extent::new(0, len), data: bytes.clone().into() },
        4 => Op::Truncate(Extent::new(at, 0)),
        5 => Op::Zero(extent),
        6 => Op::Delete,
        _ => match m.snaps.keys().nth(rng.below(m.snaps.len().max(1) as u64) as usize) {
            Some(snap) => Op::Rollback { snap: SnapId(*snap) },
            None => return,
        },
    };
    let existed = m.head.contains_key(name);
    let code = write(b, m, name, op.clone());
    match op {
        Op::Delete => {
            assert_eq!(code, if existed { 0 } else { -2 });
            m.head.remove(name);
        }
        Op::Rollback { snap } => {
            assert_eq!(code, 0);
            match m.snaps[&snap.0].get(name).cloned() {
                Some(then) => m.head.insert(name, then),
                None => m.head.remove(name),
            };
        }
        Op::Write { .. } | Op::WriteFull { .. } => {
            let o = m.head.entry(name).or_default();
            if let Op::WriteFull { .. } = op {
                *o = bytes;
            } else {
                o.resize(o.len().max((at + len) as usize), 0);
                o[at as usize..(at + len) as usize].copy_from_slice(&bytes);
            }
        }
        _ => {
            let Some(o) = m.head.get_mut(name) else { return };
            match op {
                Op::Truncate(_) => o.resize(at as usize, 0),
                _ if (at as usize) < o.len() && (at + len) as usize >= o.len() => o.truncate(at as usize),
                _ if ((at + len) as usize) < o.len() => o[at as usize..(at + len) as usize].fill(0),
                _ => {}
            }
        }
    }
}

fn read(b: &mut Bench, name: &str, snap: SnapId) -> Option<Vec<u8>> {
    let mut r = Request::new(name, vec![Op::Read(Extent::default()).into()]);
    r.object.snap = snap;
    let reply = b.run(&r);
    (reply.result >= 0).then(|| reply.results[0].outdata.to_vec())
}

/// The stored bytes of a head or clone.
fn stored(b: &mut Bench, o: &HObject) -> Vec<u8> {
    let key = ObjectKey::replicated(o.clone());
    let size = b.store.stat(&key).unwrap().expect("an object").size;
    b.store.read(&key, 0, size).unwrap().to_vec()
}

fn check(b: &mut Bench, m: &Model, at: &str) {
    for name in NAMES {
        assert_eq!(read(b, name, SnapId::HEAD), m.head.get(name).cloned(), "{at}: {name}");
        for (snap, then) in &m.snaps {
            assert_eq!(read(b, name, SnapId(*snap)), then.get(name).cloned(), "{at}: {name} at {snap}");
        }
    }
    let (from, to) = (HObject::pg_start(PgId::new(POOL, 0)), HObject::max());
    let all = b.store.list(-1, &from, &to, 10_000).unwrap();
    let clones: Vec<&HObject> = all.iter().filter(|o| !o.is_head()).collect();
    assert_eq!((b.sums.objects, b.sums.clones), (all.len() as i64, clones.len() as i64), "{at}");
    let mut bytes = 0;
    for name in NAMES {
        let head = object(name);
        let state = ObjectState::load(&mut b.store, &ObjectKey::replicated(head.clone())).unwrap();
        if !state.exists {
            continue;
        }
        bytes += state.info.size;
        let mut newer = stored(b, &head);
        for (id, clone) in state.snapset.clones.iter().rev() {
            let data = stored(b, &head.at(SnapId(*id)));
            assert_eq!(data.len() as u64, clone.size, "{at}");
            assert!(
                clone.snaps.iter().any(|s| m.snaps.contains_key(s)),
                "{at}: {name} keeps {id} for nothing"
            );
            bytes += clone.size;
            for (start, len) in &clone.overlap {
                let range = *start as usize..(start + len) as usize;
                assert_eq!(data.get(range.clone()), newer.get(range), "{at}: {name} {id} {start}~{len}");
                bytes -= len;
            }
            newer = data;
        }
    }
    assert_eq!(b.sums.bytes, bytes as i64, "{at}: bytes");
}

fn trim(b: &mut Bench, removed: &BTreeSet<u64>) {
    let snaps: SnapIntervals = removed.iter().map(|s| (*s, 1)).collect();
    for name in NAMES {
        b.trim(name, &snaps);
    }
}

#[test]
fn snapshots_are_what_the_objects_were() {
    for seed in 0..30 {
        let rng = &mut Rng::new(seed);
        let (mut b, mut m) = (Bench::new(), Model::default());
        for i in 0..120 {
            match rng.below(12) {
                0 => {
                    m.newest += 1;
                    let now = m.head.clone();
                    m.snaps.insert(m.newest, now);
                }
                1 if m.snaps.len() > 3 => {
                    let all: Vec<u64> = m.snaps.keys().copied().collect();
                    let removed: BTreeSet<u64> = [*rng.pick(&all), *rng.pick(&all)].into_iter().collect();
                    m.snaps.retain(|s, _| !removed.contains(s));
                    trim(&mut b, &removed);
                    // Again: nothing is left to do.
                    trim(&mut b, &removed);
                }
                _ => change(rng, &mut b, &mut m),
            }
            check(&mut b, &m, &format!("seed {seed} step {i}"));
        }
        let removed = m.snaps.keys().copied().collect();
        m.snaps.clear();
        trim(&mut b, &removed);
        check(&mut b, &m, &format!("seed {seed} at the end"));
        assert_eq!(b.sums.objects, m.head.len() as i64, "a head that was kept for its clones goes with them");
    }
}

#[test]
fn trimming_what_has_no_clones_changes_nothing() {
    let mut b = Bench::new();
    b.op("a", Op::WriteFull { extent: Extent::new(0, 1), data: Bytes::from_static(b"x") });
    assert!(!b.trim("a", &[(1, 5)].into_iter().collect()));
    assert!(!b.trim("none", &[(1, 5)].into_iter().collect()));
}
