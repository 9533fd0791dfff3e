//! Allocation maps of several regions: what a checkpoint leaves that was built and never published.

mod common;

use std::panic::catch_unwind;
use std::sync::Arc;

use common::*;
use store::{Device, Options, Planted, Store, Txn};
use testkit::SimDevice;

/// Blocks of a region of the allocation map (FORMAT.md).
const REGION_BYTES: u64 = 32_640 * 4096;
const LARGE: u64 = 1 << 20;

fn put(store: &mut Store, device: &SimDevice, i: u64) {
    let mut txn = Txn::new();
    txn.write(&object(i), 0, vec![i as u8 + 1; LARGE as usize]);
    commit(store, device, txn);
}

fn remove(i: u64) -> Txn {
    let mut txn = Txn::new();
    txn.remove(&object(i));
    txn
}

/// Every page of the tree is written anew.
fn mark_all(store: &mut Store, device: &SimDevice, objects: &[u64], mark: u8) {
    let mut txn = Txn::new();
    for i in objects {
        txn.set_attr(&object(*i), "mark", vec![mark]);
    }
    commit(store, device, txn);
    checkpoint(store, device);
}

/// The log fills the first region and most of the second; the objects lie behind it.
fn three_regions() -> Arc<SimDevice> {
    new_device(3 * REGION_BYTES, 2 * REGION_BYTES - 8 * LARGE)
}

fn an_unpublished_checkpoint(planted: Option<Planted>) {
    let open = |device: &Arc<SimDevice>| {
        let options = Options { planted, ..small_options() };
        Store::open(device.clone() as Arc<dyn Device>, options).expect("open")
    };
    let device = three_regions();
    let mut store = open(&device);
    (0..12).for_each(|i| put(&mut store, &device, i));
    checkpoint(&mut store, device.as_ref());
    (0..5).for_each(|i| commit(&mut store, device.as_ref(), remove(i)));
    checkpoint(&mut store, device.as_ref());
    drop(store);
    // The tree moves to where those were, in the second region.
    let mut store = open(&device);
    let kept: Vec<u64> = (5..12).collect();
    mark_all(&mut store, &device, &kept, 1);
    drop(store);
    // A checkpoint frees blocks of the third region, and is not published: what it waits for was never committed.
    let mut store = open(&device);
    store.submit(remove(11)).expect("submitted");
    assert!(checkpoint_step(&mut store, device.as_ref()), "built");
    drop(store);
    // The next ones change the second region alone.
    for mark in 2..5 {
        let mut store = open(&device);
        mark_all(&mut store, &device, &kept, mark);
        drop(store);
        assert_clean(&device, "a checkpoint after one that was not published");
    }
    let mut store = open(&device);
    for i in kept {
        assert_eq!(store.read(&object(i), 0, LARGE).expect("read"), vec![i as u8 + 1; LARGE as usize]);
    }
}

#[test]
fn a_slot_of_a_checkpoint_that_was_never_published_does_not_come_back() {
    an_unpublished_checkpoint(None);
}

#[test]
fn a_planted_bug_brings_such_a_slot_back() {
    let bug = Some(Planted::UnpublishedStay);
    assert!(catch_unwind(|| an_unpublished_checkpoint(bug)).is_err(), "it is not found");
}
