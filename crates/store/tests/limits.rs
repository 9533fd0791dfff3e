//! Bounds: a full device, the memory budget, the largest objects, and space given back.

mod common;

use std::sync::Arc;

use bytes::Bytes;
use common::*;
use store::{Device, FormatOptions, Misuse, Options, Priority, Store, StoreError, Txn};
use testkit::{Rng, SimDevice};

/// Submits until the device is full; returns how many objects fit.
fn fill(store: &mut Store, device: &SimDevice, bytes: usize, make: &mut dyn FnMut(u64) -> Txn) -> u64 {
    let mut fit = 0;
    for i in 0..device.len() / bytes as u64 + 1000 {
        let before = store.submitted();
        match store.submit(make(i)) {
            Ok(_) => fit += 1,
            Err(StoreError::Full { .. }) => {
                assert_eq!(store.submitted(), before);
                // What is only waiting for a checkpoint may become free.
                commit_all(store, device);
                checkpoint(store, device);
                if store.submit(make(i)).is_err() {
                    return fit;
                }
                fit += 1;
            }
            Err(e) => panic!("{e}"),
        }
        if i % 8 == 0 {
            commit_all(store, device);
        }
        while store.checkpoint_due() {
            checkpoint(store, device);
        }
    }
    panic!("never full");
}

#[test]
fn a_full_device_refuses_whole_transactions_and_deletes_bring_it_back() {
    for (device_bytes, log, object_bytes) in
        [(1u64 << 20, 64u64 << 10, 3000usize), (8 << 20, 256 << 10, 50_000)]
    {
        let device = new_device(device_bytes, log);
        let mut store = open(&device);
        let mut fits = Vec::new();
        for round in 0..3 {
            let mut rng = Rng::new(round);
            let data = Bytes::from(rng.bytes(object_bytes));
            let n = fill(&mut store, &device, object_bytes, &mut |i| {
                let mut t = Txn::new();
                t.write(&object(i), 0, data.clone()).set_attr(&object(i), "_", vec![7; 200]);
                t.set(space(1), format!("log.{i:06}"), vec![1; 150]);
                t
            });
            commit_all(&mut store, device.as_ref());
            let statfs = store.statfs();
            assert!(statfs.stored_bytes * 10 > device_bytes * 4, "much of it is data: {statfs:?}");
            assert!(statfs.available_bytes < 3 * object_bytes as u64 + (64 << 10), "{statfs:?}");
            assert_eq!(store.read(&object(n - 1), 0, 1 << 20), Ok(data.clone()));
            drop(store);
            store = open(&device);
            for i in 0..n {
                assert_eq!(store.read(&object(i), 0, 1 << 20), Ok(data.clone()), "round {round} object {i}");
                let mut t = Txn::new();
                t.remove(&object(i)).unset(space(1), format!("log.{i:06}"));
                t.set(space(2), "last removed", format!("{i}"));
                store.submit(t).unwrap_or_else(|e| panic!("round {round}: remove {i} of {n}: {e}"));
                if i % 5 == 0 {
                    commit_all(&mut store, device.as_ref());
                }
                while store.checkpoint_due() {
                    checkpoint(&mut store, device.as_ref());
                }
            }
            commit_all(&mut store, device.as_ref());
            checkpoint(&mut store, device.as_ref());
            assert_eq!((store.statfs().objects, store.statfs().stored_bytes), (0, 0));
            assert_clean(&device, "emptied");
            fits.push(n);
        }
        assert!(fits.iter().all(|n| n.abs_diff(fits[0]) <= fits[0] / 20 + 2), "nothing leaks: {fits:?}");
    }
}

#[test]
fn omaps_and_attributes_fill_a_device_without_breaking_it() {
    let device = new_device(4 << 20, 256 << 10);
    let mut store = open(&device);
    let mut rng = Rng::new(1);
    let n = fill(&mut store, &device, 2000, &mut |i| {
        let mut t = Txn::new();
        let entries =
            (0..8).map(|k| (Bytes::from(format!("{i:05}-{k}")), Bytes::from(rng.bytes(200)))).collect();
        t.omap_set(&object(i % 40), entries).set_attr(&object(i % 40), format!("a{i}"), vec![1; 20]);
        t
    });
    assert!(n > 200, "{n}");
    assert_clean(&device, "full of omaps");
    for i in 0..40 {
        let mut t = Txn::new();
        t.remove(&object(i));
        store.submit(t).expect("removing always works");
        while store.checkpoint_due() {
            checkpoint(&mut store, device.as_ref());
        }
    }
    commit_all(&mut store, device.as_ref());
    checkpoint(&mut store, device.as_ref());
    assert_clean(&device, "emptied");
    assert_eq!((store.statfs().objects, store.statfs().omap_bytes), (0, 0));
}

#[test]
fn memory_stays_within_the_budget() {
    let checkpoints = [u32::MAX, 8 << 10].map(random_blocks_within_a_budget);
    assert!(checkpoints[0] > 3, "{checkpoints:?}");
    assert!(checkpoints[1] < checkpoints[0], "what is in its place needs none: {checkpoints:?}");
}

/// Returns the number of checkpoints.
fn random_blocks_within_a_budget(direct_batch_min_bytes: u32) -> u64 {
    let budget = 4 << 20;
    let device = new_device(96 << 20, 16 << 20);
    let options = Options { memory_bytes: budget, direct_batch_min_bytes, ..small_options() };
    let mut store = Store::open(device.clone() as Arc<dyn Device>, options).expect("open");
    let mut rng = Rng::new(2);
    let mut throttled = 0;
    for i in 0..6000 * effort() {
        let mut t = Txn::new();
        let o = object(rng.below(300));
        t.write(&o, rng.below(32) * 4096, rng.bytes(4096)).set_attr(&o, "_", vec![1; 250]);
        t.set(space(1), format!("log.{i:08}"), vec![2; 180]);
        if i >= 500 {
            t.unset(space(1), format!("log.{:08}", i - 500));
        }
        store.submit(t).expect("submit");
        if rng.one_in(3) {
            let _ = store.read(&object(rng.below(300)), 0, 8192).expect("read");
        }
        if i % 16 == 0 {
            let job = store.take_commit().expect("something");
            store.committed(job.execute(device.as_ref())).expect("commit");
        }
        // The checkpoint is slow here: one step every so often, unless the store asks to wait.
        if store.checkpoint_due() && i % 100 == 0 {
            checkpoint_step(&mut store, device.as_ref());
        }
        while store.throttled() {
            throttled += 1;
            commit_all(&mut store, device.as_ref());
            checkpoint(&mut store, device.as_ref());
        }
    }
    let counters = store.counters();
    assert!(throttled < 1000, "{counters:?} {throttled}");
    assert!(counters.memory_peak_bytes <= budget, "{} of {budget}", counters.memory_peak_bytes);
    counters.checkpoints
}

#[test]
fn large_and_sparse_objects_work() {
    let device = new_device(192 << 20, 4 << 20);
    let mut store = open(&device);
    let mut rng = Rng::new(4);
    let (a, b, c) = (object(1), object(2), object(3));
    let piece = Bytes::from(rng.bytes(4 << 20));
    for i in 0..32u64 {
        let mut t = Txn::new();
        t.write(&a, i * (4 << 20), piece.clone());
        commit(&mut store, device.as_ref(), t);
    }
    let mut t = Txn::new();
    t.write(&a, (128 << 20) - 5000, vec![1; 3000]).clone_object(&a, &b).write(
        &c,
        (4 << 30) - 10,
        vec![9; 10],
    );
    commit(&mut store, device.as_ref(), t);
    let used = store.statfs().allocated_bytes;
    assert!(used <= (128 << 20) + (64 << 10), "a clone and a hole take no space: {used}");
    checkpoint(&mut store, device.as_ref());
    drop(store);
    let mut store = open(&device);
    assert_eq!(store.stat(&b).expect("stat").map(|s| s.size), Some(128 << 20));
    assert_eq!(store.read(&b, 8 << 20, 4 << 20), Ok(piece.clone()));
    let tail = store.read(&a, (128 << 20) - 5001, 5001).expect("read");
    assert_eq!((tail[0], tail[1], tail[3001]), (piece[(4 << 20) - 5001], 1, piece[(4 << 20) - 2000]));
    assert_eq!(store.read(&c, (4 << 30) - 11, 100).map(|d| d.to_vec()), Ok([&[0][..], &[9; 10]].concat()));
    assert_eq!(store.extents(&c, 0, u64::MAX), Ok(vec![((4 << 30) - 10, 10)]));
    let mut t = Txn::new();
    t.write(&c, 4 << 30, vec![1]);
    assert_eq!(store.submit(t), Err(StoreError::Misuse(Misuse::ObjectTooLarge)));
    assert_clean(&device, "large");
}

#[test]
fn zeroing_truncating_and_removing_give_space_back() {
    let device = new_device(16 << 20, 1 << 20);
    let mut store = open(&device);
    let allocated = |store: &mut Store| {
        commit_all(store, device.as_ref());
        checkpoint(store, device.as_ref());
        store.statfs().allocated_bytes >> 12
    };
    let (a, b) = (object(1), object(2));
    let run = |store: &mut Store, build: &dyn Fn(&mut Txn)| {
        let mut t = Txn::new();
        build(&mut t);
        store.submit(t).expect("submit");
    };
    run(&mut store, &|t| drop_ref(t.write(&a, 0, vec![1; 400 * 4096])));
    assert_eq!(allocated(&mut store), 400);
    run(&mut store, &|t| drop_ref(t.zero(&a, 4096, 100 * 4096)));
    assert_eq!(allocated(&mut store), 300);
    run(&mut store, &|t| drop_ref(t.truncate(&a, 200 * 4096 + 1)));
    assert_eq!(allocated(&mut store), 101);
    run(&mut store, &|t| drop_ref(t.clone_object(&a, &b).write(&a, 0, vec![2; 4096])));
    assert_eq!(allocated(&mut store), 102);
    assert_eq!(store.stat(&b).expect("stat").map(|s| s.allocated_bytes >> 12), Some(101));
    run(&mut store, &|t| drop_ref(t.remove(&a)));
    assert_eq!(allocated(&mut store), 101);
    assert_eq!(store.read(&b, 0, 1), Ok(Bytes::from_static(&[1])));
    run(&mut store, &|t| drop_ref(t.remove(&b)));
    assert_eq!(allocated(&mut store), 0);
    assert_clean(&device, "empty");
}

fn drop_ref(_: &mut Txn) {}

#[test]
fn a_transaction_may_be_larger_than_the_log_but_has_a_bound() {
    let device = new_device(4 << 20, 64 << 10);
    let mut store = open(&device);
    let mut t = Txn::new();
    t.set(space(1), "k", vec![0; 97 << 20]);
    assert_eq!(store.submit(t), Err(StoreError::Misuse(Misuse::TxnTooLarge)));
    let mut t = Txn::new();
    t.clone_object(&object(1), &object(2));
    assert_eq!(store.submit(t), Err(StoreError::Misuse(Misuse::NoCloneSource)));
    assert_eq!(store.submitted().0, 0);
    for i in 0..10u8 {
        let mut t = Txn::new();
        t.set(space(1), "k", vec![i; 40_000 + usize::from(i) * 20_000]).set(space(2), "last", vec![i]);
        store.submit(t).expect("submit");
        commit_all(&mut store, device.as_ref());
        if i % 3 == 0 {
            store = open(&device);
        }
        assert_eq!(store.get(space(2), b"last"), Ok(Some(vec![i].into())));
        assert_eq!(
            store.get(space(1), b"k").map(|v| v.map(|v| v.len())),
            Ok(Some(40_000 + usize::from(i) * 20_000))
        );
    }
    assert_clean(&device, "large transactions");
}

#[test]
fn empty_transactions_do_not_fill_the_log_for_good() {
    let device = new_device(2 << 20, 64 << 10);
    let mut store = open(&device);
    for _ in 0..100 {
        commit(&mut store, device.as_ref(), Txn::new());
        while store.checkpoint_due() {
            checkpoint(&mut store, device.as_ref());
        }
    }
    assert!(store.counters().checkpoints > 5 && store.durable().0 == 100);
    drop(store);
    assert_eq!(open(&device).submitted().0, 100);
}

/// Each kind of transaction stops at its own mark, and what replaces data is none of those that give space back.
#[test]
fn the_reserve_is_kept_for_those_who_need_it() {
    for seed in seeds(4) {
        let device = new_device(16 << 20, 256 << 10);
        let mut store = open(&device);
        let mut rng = Rng::new(seed);
        let mut next = 0;
        let mut fill_as = |store: &mut Store, priority: Priority, data: bool| {
            let (mut done, mut refused) = (0u64, 0);
            while refused < 20 {
                let i = if data && rng.one_in(2) { rng.below(next + 1) } else { next };
                let mut t = Txn::new();
                match data {
                    true => t.truncate(&object(i), 0).write(&object(i), 0, rng.bytes(30_000)),
                    false => t.set(space(1), format!("{next:08}"), rng.bytes(300)),
                };
                match store.submit_as(t, priority) {
                    Ok(_) => (done, next) = (done + 1, next + 1),
                    Err(StoreError::Full { .. }) => refused += 1,
                    Err(e) => panic!("{e}"),
                }
                if rng.one_in(3) {
                    commit_all(store, device.as_ref());
                }
                if store.checkpoint_due() {
                    checkpoint_step(store, device.as_ref());
                }
            }
            done
        };
        let steps = [Priority::Client, Priority::Member, Priority::Essential].map(|p| (p, [true, false]));
        for (priority, kinds) in steps {
            for data in kinds {
                let done = fill_as(&mut store, priority, data);
                assert!(done > 0 || priority == Priority::Essential, "{priority:?} {data}");
            }
            if priority == Priority::Client {
                let mut t = Txn::new();
                for i in 0..60 {
                    t.set(space(3), format!("{i}"), vec![1; 600]);
                }
                store.submit_as(t, Priority::Essential).expect("the OSD's own is always accepted");
            }
        }
        commit_all(&mut store, device.as_ref());
        checkpoint(&mut store, device.as_ref());
        assert_clean(&device, "full to the last block");
    }
}

/// What an empty store keeps for itself: the log, of which a longer one saves checkpoints, and the reserve.
#[test]
fn an_empty_store_takes_little_of_a_small_device() {
    for (gib, per_mille) in [(1u64, 20), (4, 20), (10, 11), (20, 8)] {
        let device = Arc::new(SimDevice::new(gib << 30));
        let options = FormatOptions { log_bytes: None, ..format_options(0) };
        Store::format(device.as_ref(), options).expect("format");
        let statfs = open(&device).statfs();
        let used = statfs.total_bytes - statfs.available_bytes;
        assert!(used * 1000 <= statfs.total_bytes * per_mille, "{gib} GiB: {used}");
        assert_eq!(statfs.total_bytes, gib << 30);
    }
}
