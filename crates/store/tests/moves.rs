//! Moving whole blocks from one object to another: what is refused, what clones keep, what damage does.

mod common;

use std::sync::Arc;

use common::*;
use store::{Corruption, Device, Laid, Misuse, ObjectKey, Priority, Store, StoreError, Txn, blocks_digest};
use testkit::{Rng, SimDevice};

const DEVICE: u64 = 4 << 20;
const BLOCK: u64 = 4096;

fn start() -> (Arc<SimDevice>, Store, Model) {
    let device = new_device(DEVICE, 256 << 10);
    let store = open(&device);
    (device, store, Model::default())
}

fn run(device: &Arc<SimDevice>, store: &mut Store, model: &mut Model, txn: Txn) {
    model.apply(&txn);
    commit(store, device.as_ref(), txn);
}

fn part(content: &[u8], src_offset: u64, offset: u64) -> Laid {
    Laid { offset, len: content.len() as u64, src_offset, digest: blocks_digest(content) }
}

fn aside() -> ObjectKey {
    object(1)
}

#[test]
fn what_is_not_there_as_stated_is_not_moved() {
    let (device, mut store, mut model) = start();
    let content = Rng::new(1).bytes(10 * BLOCK as usize);
    let mut t = Txn::new();
    // Block 4 is a hole, block 8 was written in part.
    t.write(&aside(), 0, content[..4 * 4096].to_vec()).write(
        &aside(),
        5 * BLOCK,
        content[5 * 4096..8 * 4096].to_vec(),
    );
    t.write(&aside(), 8 * BLOCK + 7, vec![1; 100]).write(&object(2), 0, vec![7; 100_000]);
    run(&device, &mut store, &mut model, t);
    let good = part(&content[..2 * 4096], 0, 0);
    let cases = [
        ("no source", object(3), object(2), good),
        ("itself", aside(), aside(), Laid { offset: 8 * BLOCK, ..good }),
        ("other content", aside(), object(2), Laid { digest: good.digest ^ 1, ..good }),
        ("content of other blocks", aside(), object(2), Laid { src_offset: BLOCK, ..good }),
        (
            "a hole",
            aside(),
            object(2),
            part(&[&content[3 * 4096..4 * 4096], &[0; 4096]].concat(), 3 * BLOCK, 0),
        ),
        (
            "a part of a block",
            aside(),
            object(2),
            part(&store.read(&aside(), 8 * BLOCK, BLOCK).map_or(vec![], |b| b.to_vec()), 8 * BLOCK, 0),
        ),
        ("beyond the end", aside(), object(2), part(&[0; 4096], 20 * BLOCK, 0)),
        ("not at a block", aside(), object(2), Laid { offset: 5, ..good }),
        ("not from a block", aside(), object(2), Laid { src_offset: 5, ..good }),
        ("not whole blocks", aside(), object(2), Laid { len: 5000, ..good }),
    ];
    for (what, src, dst, part) in cases {
        for priority in [Priority::Client, Priority::Member, Priority::Essential] {
            let mut t = Txn::new();
            t.write(&object(2), 0, "before").move_range(&src, &dst, part);
            let found = store.submit_as(t, priority);
            assert_eq!(found, Err(StoreError::Misuse(Misuse::BadMove)), "{what}");
        }
    }
    let mut t = Txn::new();
    t.move_range(&aside(), &object(2), Laid { offset: u64::MAX - 4095, ..good });
    assert_eq!(store.submit(t), Err(StoreError::Misuse(Misuse::ObjectTooLarge)));
    model.assert_same(&mut store, "nothing has happened");
    let mut t = Txn::new();
    t.move_range(&aside(), &object(2), good);
    run(&device, &mut store, &mut model, t);
    model.assert_same(&mut store, "what is good is moved");
}

/// No second copy: what moves takes no space and no bytes of the log, and what it replaces is free.
#[test]
fn blocks_move_without_being_written_again() {
    let (device, mut store, mut model) = start();
    let content = Rng::new(2).bytes(1 << 20);
    let mut t = Txn::new();
    t.write(&object(2), 0, vec![5; 1 << 20]);
    run(&device, &mut store, &mut model, t);
    let mut t = Txn::new();
    t.write(&aside(), 0, content.clone());
    run(&device, &mut store, &mut model, t);
    let (before, written) = (store.statfs(), store.counters());
    let mut t = Txn::new();
    t.move_range(&aside(), &object(2), part(&content, 0, 0)).remove(&aside());
    run(&device, &mut store, &mut model, t);
    let (after, counters) = (store.statfs(), store.counters());
    assert_eq!(before.allocated_bytes - after.allocated_bytes, 1 << 20);
    assert_eq!(counters.direct_bytes, written.direct_bytes);
    assert!(counters.log_bytes - written.log_bytes <= 2 * BLOCK);
    checkpoint(&mut store, device.as_ref());
    model.assert_same(&mut open(&device), "after a checkpoint");
    let report = store::fsck(device.as_ref(), true).expect("checked");
    assert_eq!(report.findings, []);
}

#[test]
fn a_clone_keeps_what_a_moved_block_replaces() {
    let (device, mut store, mut model) = start();
    let (old, new) = (Rng::new(3).bytes(64 << 10), Rng::new(4).bytes(64 << 10));
    let mut t = Txn::new();
    t.write(&object(2), 0, old).write(&aside(), 0, new.clone());
    run(&device, &mut store, &mut model, t);
    let mut t = Txn::new();
    t.clone_object(&object(2), &object(3)).move_range(&aside(), &object(2), part(&new, 0, 0));
    run(&device, &mut store, &mut model, t);
    // And what is moved out of an object that shares its blocks stays shared.
    let mut t = Txn::new();
    t.clone_object(&object(2), &object(6)).move_range(&object(2), &object(7), part(&new, 0, 4 * BLOCK));
    run(&device, &mut store, &mut model, t);
    checkpoint(&mut store, device.as_ref());
    let mut t = Txn::new();
    t.remove(&object(7)).write(&object(9), 0, Rng::new(5).bytes(256 << 10));
    run(&device, &mut store, &mut model, t);
    checkpoint(&mut store, device.as_ref());
    let mut t = Txn::new();
    t.write(&object(9), 0, Rng::new(6).bytes(256 << 10));
    run(&device, &mut store, &mut model, t);
    model.assert_same(&mut open(&device), "clones");
    checkpoint(&mut store, device.as_ref());
    let report = store::fsck(device.as_ref(), true).expect("checked");
    assert_eq!(report.findings, []);
}

/// The checksum goes with the block: damage that nobody saw before the move is seen by who reads the object.
#[test]
fn damage_of_a_moved_block_is_found_where_it_is_then() {
    let (device, mut store, mut model) = start();
    let content = Rng::new(7).bytes(128 << 10);
    let mut t = Txn::new();
    t.write(&aside(), 0, content.clone());
    run(&device, &mut store, &mut model, t);
    checkpoint(&mut store, device.as_ref());
    let at = (0..device.len() - 4096).step_by(4096);
    let at =
        at.into_iter().find(|at| device.peek(*at, 4096) == content[3 * 4096..4 * 4096]).expect("its place");
    device.flip(at + 9, 4);
    let mut t = Txn::new();
    t.move_range(&aside(), &object(2), part(&content, 0, 8 * BLOCK)).remove(&aside());
    commit(&mut store, device.as_ref(), t);
    for store in [&mut store, &mut open(&device)] {
        let found = store.read(&object(2), 8 * BLOCK, 128 << 10);
        let Err(StoreError::Corrupt(Corruption::Data { key, offset, .. })) = found else {
            panic!("{found:?}")
        };
        assert_eq!((*key, offset), (object(2), 11 * BLOCK));
        assert_eq!(store.read(&object(2), 12 * BLOCK, BLOCK).expect("good"), content[4 * 4096..5 * 4096]);
    }
    let _: Arc<dyn Device> = device;
}

#[test]
fn writes_take_from_elsewhere_what_lies_there() {
    let content = bytes::Bytes::from(Rng::new(8).bytes(5 * 4096));
    let (device, mut store, mut model) = start();
    let mut t = Txn::new();
    t.write(&aside(), 0, content.slice(96..96 + 2 * 4096)).write(
        &aside(),
        2 * BLOCK,
        content.slice(96 + 3 * 4096..96 + 4 * 4096),
    );
    run(&device, &mut store, &mut model, t);
    let (mut whole, mut split) = (Txn::new(), Txn::new());
    for t in [&mut whole, &mut split] {
        t.touch(&object(3))
            .write(&object(2), 4000, content.clone())
            .write(&object(3), 0, content.clone())
            .truncate(&object(3), 9);
    }
    let mut asked = 0;
    split.take_from(&aside(), |key, offset, data| {
        asked += 1;
        if *key != object(2) {
            return Vec::new();
        }
        assert_eq!((offset, data), (4000, &content));
        let first = part(&content[96..96 + 2 * 4096], 0, 4096);
        vec![first, part(&content[96 + 3 * 4096..96 + 4 * 4096], 2 * BLOCK, 4 * BLOCK)]
    });
    assert_eq!(asked, 2);
    assert_eq!(split.payload_len(), whole.payload_len() - 3 * 4096);
    split.remove(&aside());
    run(&device, &mut store, &mut model, split);
    let mut plain = model.clone();
    plain.apply(&whole);
    model.assert_same(&mut store, "split");
    assert_eq!(plain, model);
}
