//! What the device is told of free space: when, and that nothing in use is ever among it. The simulated device spoils what is
//! discarded.

mod common;

use common::*;
use store::{DeviceOp, Store, StoreError, Txn};
use testkit::SimDevice;

const LEN: usize = 256 << 10;

fn put(store: &mut Store, device: &SimDevice, i: u64) {
    let mut txn = Txn::new();
    txn.write(&object(i), 0, content(i));
    commit(store, device, txn);
}

fn remove(store: &mut Store, device: &SimDevice, i: u64) {
    let mut txn = Txn::new();
    txn.remove(&object(i));
    commit(store, device, txn);
}

fn content(i: u64) -> Vec<u8> {
    vec![i as u8 + 1; LEN]
}

fn assert_there(store: &mut Store, objects: impl Iterator<Item = u64>) {
    for i in objects {
        assert_eq!(store.read(&object(i), 0, LEN as u64), Ok(content(i).into()), "object {i}");
    }
}

fn discarded(store: &Store) -> u64 {
    store.counters().discarded_bytes
}

#[test]
fn what_was_freed_is_discarded_when_it_has_been_free_for_a_while() {
    let device = new_device(16 << 20, 256 << 10);
    let mut store = open(&device);
    (0..8).for_each(|i| put(&mut store, device.as_ref(), i));
    assert!(!discard_step(&mut store, device.as_ref(), 10), "nothing was freed");
    (0..4).for_each(|i| remove(&mut store, device.as_ref(), i));
    checkpoint(&mut store, device.as_ref());
    assert!(!discard_step(&mut store, device.as_ref(), 12), "it has rested for two seconds");
    assert!(discard_step(&mut store, device.as_ref(), 13));
    while discard_step(&mut store, device.as_ref(), 13) {}
    assert_eq!(discarded(&store), 4 * LEN as u64);
    assert_there(&mut store, 4..8);
    assert_clean(&device, "after discards");
    assert_there(&mut open(&device), 4..8);
}

#[test]
fn what_was_freed_on_a_store_that_is_quiet_since_is_discarded_too() {
    let device = new_device(16 << 20, 256 << 10);
    let mut store = open(&device);
    (0..4).for_each(|i| put(&mut store, device.as_ref(), i));
    checkpoint(&mut store, device.as_ref());
    remove(&mut store, device.as_ref(), 1);
    let checkpoints = store.counters().checkpoints;
    let times = (1..20).filter(|now| discard_step(&mut store, device.as_ref(), *now)).count();
    assert_eq!(store.counters().checkpoints, checkpoints, "begun, and not gone on with");
    assert_eq!(times, 1);
    checkpoint(&mut store, device.as_ref());
    (20..30).for_each(|now| while discard_step(&mut store, device.as_ref(), now) {});
    assert_eq!(discarded(&store), LEN as u64);
    assert_there(&mut store, [0, 2, 3].into_iter());
}

/// Blocks that were freed and taken again in the meantime, and those that somebody wants while the job is under way.
#[test]
fn nothing_that_is_in_use_is_discarded() {
    let device = new_device(32 << 20, 512 << 10);
    let mut store = open(&device);
    for round in 0..40 {
        let now = 10 * round;
        (0..32).for_each(|i| put(&mut store, device.as_ref(), i));
        assert!(!discard_step(&mut store, device.as_ref(), now) || round > 0);
        (0..16).for_each(|i| remove(&mut store, device.as_ref(), 2 * i));
        checkpoint(&mut store, device.as_ref());
        discard_step(&mut store, device.as_ref(), now + 1);
        (0..4).for_each(|i| put(&mut store, device.as_ref(), 4 * i));
        let job = store.take_discard(std::time::Duration::from_secs(now + 5));
        assert!(store.take_checkpoint().is_none() || job.is_none(), "one at a time");
        assert!(job.is_none() || store.take_discard(std::time::Duration::from_secs(now + 9)).is_none());
        (4..8).for_each(|i| put(&mut store, device.as_ref(), 4 * i));
        if let Some(job) = job {
            let done = job.execute(device.as_ref());
            store.checkpointed(done).expect("discarded");
        }
        assert_there(&mut store, (0..8).map(|i| 4 * i).chain((0..16).map(|i| 2 * i + 1)));
        checkpoint(&mut store, device.as_ref());
        assert_clean(&device, &format!("round {round}"));
    }
    assert!(discarded(&store) > 40 * LEN as u64, "{}", discarded(&store));
}

#[test]
fn a_device_that_refuses_it_does_no_harm() {
    let device = new_device(16 << 20, 256 << 10);
    let mut store = open(&device);
    (0..4).for_each(|i| put(&mut store, device.as_ref(), i));
    (1..3).for_each(|i| remove(&mut store, device.as_ref(), i));
    checkpoint(&mut store, device.as_ref());
    device.fail_always(DeviceOp::Discard);
    assert!(discard_step(&mut store, device.as_ref(), 100));
    (1..3).for_each(|i| put(&mut store, device.as_ref(), i));
    assert_there(&mut store, 0..4);
}

/// A job takes blocks away for its time: whoever has room without it has room beside it.
#[test]
fn nobody_is_refused_for_a_discard_under_way() {
    let device = new_device(8 << 20, 512 << 10);
    let mut store = open(&device);
    let mut n = 0;
    loop {
        let mut txn = Txn::new();
        txn.write(&object(n), 0, content(n));
        match store.submit(txn) {
            Ok(_) => n += 1,
            Err(StoreError::Full { .. }) => break,
            Err(e) => panic!("{e}"),
        }
        commit_all(&mut store, device.as_ref());
    }
    let mut jobs = 0;
    for freed in 2..n {
        (0..freed).for_each(|i| remove(&mut store, device.as_ref(), i));
        checkpoint(&mut store, device.as_ref());
        discard_step(&mut store, device.as_ref(), 10 * freed);
        let available = store.statfs().available_bytes;
        let job = store.take_discard(std::time::Duration::from_secs(10 * freed + 5));
        jobs += u64::from(job.is_some());
        assert_eq!(store.statfs().available_bytes, available, "it is free all the same");
        // The first stays away: exactly as much as before may not fit, as the tree has grown.
        (1..freed).for_each(|i| put(&mut store, device.as_ref(), i));
        if let Some(job) = job {
            let done = job.execute(device.as_ref());
            store.checkpointed(done).expect("discarded");
        }
        assert_there(&mut store, 1..n);
        checkpoint(&mut store, device.as_ref());
        put(&mut store, device.as_ref(), 0);
    }
    assert!(jobs > 0);
}
