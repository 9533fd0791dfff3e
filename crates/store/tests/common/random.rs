//! Random transactions over a few objects, spaces and keys, so that they meet often.

use bytes::Bytes;
use store::{Laid, ObjectKey, Space, Txn};
use testkit::Rng;
use types::{HObject, PgId, PoolId, SnapId, SpgId};

use super::Model;

pub fn object(i: u64) -> ObjectKey {
    let object = HObject {
        pool: PoolId(1 + (i % 2) as i64),
        hash: (i as u32).wrapping_mul(0x9e37_79b1),
        name: format!("object-{i}").into(),
        key: if i % 5 == 0 { "locator".into() } else { Default::default() },
        snap: if i % 3 == 0 { SnapId(4) } else { SnapId::HEAD },
        ..HObject::min()
    };
    ObjectKey::new(if i % 4 == 0 { 1 } else { -1 }, object)
}

pub fn space(i: u64) -> Space {
    match i {
        0 => Space::Meta,
        _ => Space::Pg(SpgId::replicated(PgId::new(PoolId(1), i as u32))),
    }
}

fn key(rng: &mut Rng) -> Bytes {
    format!("key-{:03}", rng.below(60)).into()
}

fn value(rng: &mut Rng) -> Bytes {
    let len = if rng.one_in(20) { 5000 } else { rng.below(60) };
    rng.bytes(len as usize).into()
}

/// An offset, often at a block's edge.
fn offset(rng: &mut Rng, max: u64) -> u64 {
    let at = rng.below(max);
    if rng.one_in(2) { at & !4095 } else { at }
}

fn length(rng: &mut Rng) -> u64 {
    match rng.below(6) {
        0 => 4096,
        1 => 4096 * (1 + rng.below(4)),
        2 => 16384 + rng.below(40_000),
        3 => rng.below(20_000),
        _ => rng.below(600),
    }
}

/// One to five operations that are legal on the model, which they are applied to.
pub fn random_txn(rng: &mut Rng, model: &mut Model, objects: u64) -> Txn {
    let mut txn = Txn::new();
    for _ in 0..1 + rng.below(5) {
        let mut one = Txn::new();
        random_op(rng, model, objects, &mut one);
        model.apply(&one);
        txn.append(one);
    }
    txn
}

fn random_op(rng: &mut Rng, model: &Model, objects: u64, t: &mut Txn) {
    const OBJECT_MAX: u64 = 150_000;
    let (a, b) = (object(rng.below(objects)), object(rng.below(objects)));
    let exists = model.objects.contains_key(&a);
    match rng.below(35) {
        32..=34 if exists => random_move(rng, model, (&a, &b), t),
        0 => t.touch(&a),
        1..=9 => {
            let len = length(rng) as usize;
            t.write(&a, offset(rng, OBJECT_MAX), rng.bytes(len))
        }
        10 | 11 => t.zero(&a, offset(rng, OBJECT_MAX), length(rng)),
        12 => t.truncate(&a, offset(rng, OBJECT_MAX)),
        13 => t.remove(&a),
        14 => t.set_attr(&a, key(rng), value(rng)),
        15 => t.rm_attr(&a, key(rng)),
        16 => t.rm_attrs(&a),
        17 | 18 => {
            let entries = (0..rng.below(8)).map(|_| (key(rng), value(rng))).collect();
            t.omap_set(&a, entries)
        }
        19 => {
            let keys = (0..rng.below(8)).map(|_| key(rng)).collect();
            t.omap_rm(&a, keys)
        }
        20 => t.omap_rm_range(&a, key(rng), key(rng)),
        21 => t.omap_clear(&a),
        22 => t.omap_set_header(&a, value(rng)),
        23 | 24 if exists => t.clone_object(&a, &b),
        25 | 26 if exists => {
            let src = offset(rng, OBJECT_MAX);
            let dst = if rng.one_in(2) { src } else { offset(rng, OBJECT_MAX) };
            t.clone_range(&a, &b, src, length(rng), dst)
        }
        27 if exists => t.rename(&a, &b),
        28 | 29 => t.set(space(rng.below(3)), key(rng), value(rng)),
        30 => t.unset_range(space(rng.below(3)), key(rng), key(rng)),
        31 if rng.one_in(10) => t.drop_space(space(rng.below(3))),
        _ => t.unset(space(rng.below(3)), key(rng)),
    };
}

/// Moves whole blocks of the first object to the second, if it has some that were written whole.
fn random_move<'a>(
    rng: &mut Rng,
    model: &Model,
    (a, b): (&ObjectKey, &ObjectKey),
    t: &'a mut Txn,
) -> &'a mut Txn {
    let object = &model.objects[a];
    let whole: Vec<usize> = (0..object.data.len() / 4096)
        .filter(|block| object.written[block * 4096..][..4096].iter().all(|w| *w))
        .collect();
    if whole.is_empty() || a == b {
        return t.touch(a);
    }
    let first = *rng.pick(&whole);
    let most = 1 + rng.below(6) as usize;
    let blocks = (first..).take(most).take_while(|block| whole.contains(block)).count();
    let (at, len) = (first * 4096, blocks * 4096);
    let digest = store::blocks_digest(&object.data[at..at + len]);
    let offset = if rng.one_in(2) { at as u64 } else { 4096 * rng.below(30) };
    t.move_range(a, b, Laid { offset, len: len as u64, src_offset: at as u64, digest })
}

/// Factor by which `LOLIGO_STORE_EFFORT` enlarges the long tests.
pub fn effort() -> u64 {
    number("LOLIGO_STORE_EFFORT").unwrap_or(1)
}

/// So many seeds, times the effort, from `LOLIGO_STORE_SEED` on.
pub fn seeds(count: u64) -> std::ops::Range<u64> {
    let first = number("LOLIGO_STORE_SEED").unwrap_or(0);
    first..first + count * effort()
}

fn number(variable: &str) -> Option<u64> {
    let value = std::env::var(variable).ok()?;
    Some(value.parse().unwrap_or_else(|_| panic!("{variable} is no number: '{value}'")))
}
