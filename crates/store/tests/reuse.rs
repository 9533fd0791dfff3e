//! Space that comes back in large pieces: it is free before the next large writes need it, and they lie in few runs.

mod common;

use std::sync::Arc;

use bytes::Bytes;
use common::*;
use store::{Device, DeviceOp, Options, Store, Txn};
use testkit::{Rng, SimDevice};

const LARGE: u64 = 1 << 20;

/// With room in memory and log, which give no reason for a checkpoint.
fn open_roomy(device: &Arc<SimDevice>) -> Store {
    Store::open(device.clone() as Arc<dyn Device>, Options::default()).expect("open")
}

fn commit_as_an_osd(store: &mut Store, device: &SimDevice, txn: Txn) {
    commit(store, device, txn);
    while store.checkpoint_due() {
        checkpoint(store, device);
    }
}

fn put(store: &mut Store, device: &SimDevice, i: u64) {
    let mut txn = Txn::new();
    txn.write(&object(i), 0, vec![i as u8; LARGE as usize]);
    commit_as_an_osd(store, device, txn);
}

fn remove(store: &mut Store, device: &SimDevice, i: u64) {
    let mut txn = Txn::new();
    txn.remove(&object(i));
    commit_as_an_osd(store, device, txn);
}

/// Half the device is holes between blocks that were overwritten one by one, the rest is filled and emptied again and again.
#[test]
fn large_writes_find_the_space_of_removed_objects_and_not_the_holes() {
    let device = new_device(64 << 20, 4 << 20);
    let mut store = open_roomy(&device);
    let mut rng = Rng::new(6);
    for at in (0..12 * LARGE).step_by(4096) {
        let mut txn = Txn::new();
        txn.write(&object(0), at, rng.bytes(4096));
        commit_as_an_osd(&mut store, device.as_ref(), txn);
    }
    for _ in 0..12_000 {
        let mut txn = Txn::new();
        txn.write(&object(0), rng.below(12 * LARGE / 4096) * 4096, Bytes::from(vec![1; 4096]));
        commit_as_an_osd(&mut store, device.as_ref(), txn);
    }
    checkpoint(&mut store, device.as_ref());
    for round in 0..6 {
        let before = device.calls(DeviceOp::Write);
        (1..=22).for_each(|i| put(&mut store, device.as_ref(), i));
        let calls = device.calls(DeviceOp::Write) - before;
        assert!(calls <= 22 * 4, "round {round}: {calls} writes for 22 objects and their records");
        (1..=22).for_each(|i| remove(&mut store, device.as_ref(), i));
    }
    assert_clean(&device, "written and removed");
}

/// What asks for a checkpoint is what waits for one beside what is free, and a little waits for other reasons.
#[test]
fn a_checkpoint_is_due_when_much_waits_to_be_free() {
    let device = new_device(64 << 20, 4 << 20);
    let mut store = open_roomy(&device);
    (0..45).for_each(|i| put(&mut store, device.as_ref(), i));
    checkpoint(&mut store, device.as_ref());
    let checkpoints = |store: &Store| store.counters().checkpoints;
    let before = checkpoints(&store);
    let free = store.statfs().available_bytes / LARGE;
    assert!((10..18).contains(&free), "{free} MiB");
    let soon = free / 2 - 2;
    (0..soon).for_each(|i| remove(&mut store, device.as_ref(), i));
    assert_eq!(checkpoints(&store), before, "{soon} MiB wait, {free} are free");
    (soon..soon + 5).for_each(|i| remove(&mut store, device.as_ref(), i));
    assert_eq!(checkpoints(&store), before + 1);
}
