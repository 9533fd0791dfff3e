//! Every state that a power loss can leave during a commit or a checkpoint of a small store mounts, is sound, and is
//! one of the legal states: nothing acknowledged is lost, nothing is applied by halves.

mod common;

use std::sync::Arc;

use bytes::Bytes;
use common::*;
use store::{Device, DeviceOp, ObjectKey, Store, Txn};
use testkit::{Rng, SimDevice, crash_plans};

const DEVICE: u64 = 2 << 20;
const LOG: u64 = 256 << 10;
/// Tears tried per write.
const TEARS: usize = 64;

fn obj(i: u64) -> ObjectKey {
    object(i)
}

fn entries(n: u8) -> Vec<(Bytes, Bytes)> {
    (0..n).map(|i| (Bytes::from(format!("k{i:02}")), Bytes::from(vec![i; 40]))).collect()
}

/// A store with checkpointed content, shared blocks, and two durable records in the log.
fn base() -> (Arc<SimDevice>, Store, Model) {
    let device = new_device(DEVICE, LOG);
    let mut store = open(&device);
    let mut model = Model::default();
    let mut rng = Rng::new(7);
    let mut first = Txn::new();
    first.write(&obj(1), 0, rng.bytes(9000)).write(&obj(2), 100, rng.bytes(20_000));
    first.set_attr(&obj(1), "a", "1").omap_set(&obj(1), entries(20)).set(space(1), "log.1", "x");
    let mut second = Txn::new();
    second.clone_object(&obj(1), &obj(3)).write(&obj(1), 10, rng.bytes(50)).set(space(1), "log.2", "y");
    let mut third = Txn::new();
    third.write(&obj(2), 4096, rng.bytes(4096)).omap_set(&obj(2), entries(3)).set(space(0), "m", "z");
    for (i, txn) in [first, second, third].into_iter().enumerate() {
        model.apply(&txn);
        commit(&mut store, device.as_ref(), txn);
        if i == 1 {
            checkpoint(&mut store, device.as_ref());
        }
    }
    (device, store, model)
}

/// A list of named transactions.
#[derive(Default)]
struct Named(Vec<(&'static str, Txn)>);

impl Named {
    fn add(&mut self, name: &'static str, build: impl FnOnce(&mut Txn)) {
        let mut t = Txn::new();
        build(&mut t);
        self.0.push((name, t));
    }
}

/// One transaction per kind of operation, and a few that mix them.
fn transactions() -> Vec<(&'static str, Txn)> {
    let mut all = Named::default();
    data_transactions(&mut all);
    key_transactions(&mut all);
    all.0
}

fn data_transactions(all: &mut Named) {
    let mut rng = Rng::new(99);
    let (small, block, large) = (rng.bytes(700), rng.bytes(4096), rng.bytes(40_000));
    all.add("touch", |t| {
        t.touch(&obj(5));
    });
    all.add("partial overwrite", |t| {
        t.write(&obj(1), 4000, small.clone());
    });
    all.add("block overwrite", |t| {
        t.write(&obj(2), 8192, block.clone());
    });
    all.add("overwrite of log data", |t| {
        t.write(&obj(2), 4100, small.clone());
    });
    all.add("large write", |t| {
        t.write(&obj(5), 0, large.clone());
    });
    all.add("large unaligned overwrite", |t| {
        t.write(&obj(2), 3001, large.clone());
    });
    all.add("zero", |t| {
        t.zero(&obj(2), 1000, 9000);
    });
    all.add("truncate", |t| {
        t.truncate(&obj(2), 5000);
    });
    all.add("remove", |t| {
        t.remove(&obj(1));
    });
    all.add("client write", |t| {
        t.write(&obj(2), 0, block.clone()).set_attr(&obj(2), "_", "info").set(
            space(1),
            "log.4",
            small.clone(),
        );
    });
    all.add("snapshot write", |t| {
        t.clone_object(&obj(2), &obj(6)).write(&obj(2), 0, large.clone()).write(&obj(2), 50, small.clone());
        t.set_attr(&obj(6), "_", "clone").omap_set(&obj(6), entries(2)).set(space(1), "log.5", "s");
    });
}

fn key_transactions(all: &mut Named) {
    all.add("attributes", |t| {
        t.set_attr(&obj(1), "b", "2").rm_attr(&obj(1), "a");
    });
    all.add("clear attributes", |t| {
        t.rm_attrs(&obj(1));
    });
    all.add("omap set", |t| {
        t.omap_set(&obj(1), entries(30)).omap_set_header(&obj(1), "h");
    });
    all.add("omap remove", |t| {
        t.omap_rm(&obj(1), vec!["k01".into(), "zz".into()]);
    });
    all.add("omap remove range", |t| {
        t.omap_rm_range(&obj(1), "k03", "k09");
    });
    all.add("omap clear", |t| {
        t.omap_clear(&obj(1));
    });
    all.add("clone", |t| {
        t.clone_object(&obj(2), &obj(5));
    });
    all.add("clone over shared", |t| {
        t.clone_object(&obj(2), &obj(3));
    });
    all.add("clone range", |t| {
        t.clone_range(&obj(2), &obj(1), 0, 12_000, 8192);
    });
    all.add("clone range unaligned", |t| {
        t.clone_range(&obj(2), &obj(1), 5, 9_000, 100);
    });
    all.add("rename", |t| {
        t.rename(&obj(1), &obj(2));
    });
    all.add("keys", |t| {
        t.set(space(1), "log.3", "w").unset(space(1), "log.1").set(space(0), "m", "v");
    });
    all.add("key range", |t| {
        t.unset_range(space(1), "log.0", "log.2");
    });
    all.add("drop space", |t| {
        t.drop_space(space(1));
    });
}

/// Mounts a crashed device and asserts that it is sound and in one of the legal states; returns which.
fn assert_legal(device: &Arc<SimDevice>, legal: &[&Model], what: &str) -> usize {
    let mut store = Store::open(device.clone() as Arc<dyn Device>, small_options())
        .unwrap_or_else(|e| panic!("{what}: does not mount: {e}"));
    let found = Model::read_from(&mut store);
    let which = legal.iter().position(|m| **m == found);
    let report = store::fsck(device.as_ref(), true).unwrap_or_else(|e| panic!("{what}: {e}"));
    let sound = report.findings.iter().all(|f| matches!(f, store::Finding::SuperblockCopy { .. }));
    assert!(sound, "{what}: {:#?}", report.findings);
    which.unwrap_or_else(|| panic!("{what}: not a legal state"))
}

/// Mounts, goes on working, checkpoints, and mounts again: what was seen stays.
fn assert_goes_on(device: &Arc<SimDevice>, seen: &Model, what: &str) {
    let mut store = open(device);
    let mut model = seen.clone();
    let mut txn = Txn::new();
    txn.write(&obj(9), 0, vec![9; 30_000]).write(&obj(1), 0, vec![8; 100]).set(space(2), "after", "crash");
    model.apply(&txn);
    commit(&mut store, device.as_ref(), txn);
    model.assert_same(&mut open(device), &format!("{what}, gone on"));
    checkpoint(&mut store, device.as_ref());
    assert_clean(device, &format!("{what}, gone on"));
    model.assert_same(&mut open(device), &format!("{what}, gone on and checkpointed"));
}

#[test]
fn a_commit_is_all_or_nothing_in_every_crash_state() {
    let (device, mut store, before) = base();
    drop(store);
    let mut states = 0;
    for (name, txn) in transactions() {
        let device = Arc::new(device.fork());
        store = open(&device);
        let mut after = before.clone();
        after.apply(&txn);
        store.submit(txn).expect(name);
        after.assert_same(&mut store, name);
        let job = store.take_commit().expect("something to commit");
        device.fail_nth(DeviceOp::Flush, 1);
        assert!(store.committed(job.execute(device.as_ref())).is_err(), "a failed flush must be reported");
        assert!(store.submit(Txn::new()).is_err(), "a store with a failed flush must stop");
        device.clear_faults();
        let writes = device.unsynced();
        let mut outcomes = [0, 0];
        for (i, plan) in crash_plans(&writes, 512, TEARS).iter().enumerate() {
            let what = format!("{name}, {plan:?}");
            let crashed = Arc::new(device.crash(&plan.fates, &plan.order));
            let which = assert_legal(&crashed, &[&before, &after], &what);
            outcomes[which] += 1;
            states += 1;
            if i % 17 == 0 {
                assert_goes_on(&crashed, [&before, &after][which], &what);
            }
        }
        assert!(outcomes.iter().all(|n| *n > 0), "{name}: {outcomes:?} states before and after");
    }
    assert!(states > 1000, "{states}");
}

#[test]
fn a_checkpoint_changes_nothing_in_any_crash_state() {
    let (device, store, before) = base();
    drop(store);
    for (name, txn) in transactions() {
        let device = Arc::new(device.fork());
        let mut store = open(&device);
        let mut model = before.clone();
        model.apply(&txn);
        commit(&mut store, device.as_ref(), txn);
        device.record(true);
        checkpoint(&mut store, device.as_ref());
        let epochs = device.take_epochs();
        assert_eq!(epochs.len(), 3, "one flush for the pages, one for each superblock copy");
        for (e, epoch) in epochs.iter().enumerate() {
            for (i, plan) in crash_plans(epoch.writes(), 512, 4).iter().enumerate() {
                let what = format!("{name}, checkpoint flush {e}, {plan:?}");
                let crashed = Arc::new(epoch.crash(DEVICE, 512, &plan.fates, &plan.order));
                assert_legal(&crashed, &[&model], &what);
                if i % 13 == 0 {
                    assert_goes_on(&crashed, &model, &what);
                }
            }
        }
    }
}

/// A crash while the store, mounted after a crash, does its first checkpoint.
#[test]
fn a_second_crash_during_recovery_loses_nothing() {
    let (device, mut store, before) = base();
    let mut rng = Rng::new(3);
    let mut after = before.clone();
    let mut txn = Txn::new();
    txn.write(&obj(1), 0, rng.bytes(30_000)).clone_object(&obj(2), &obj(7)).write(
        &obj(2),
        9,
        rng.bytes(5000),
    );
    after.apply(&txn);
    store.submit(txn).expect("submit");
    let job = store.take_commit().expect("commit");
    device.fail_nth(DeviceOp::Flush, 1);
    assert!(job.execute(device.as_ref()).is_err());
    for plan in crash_plans(&device.unsynced(), 512, 4) {
        let crashed = Arc::new(device.crash(&plan.fates, &plan.order));
        let which = assert_legal(&crashed, &[&before, &after], &format!("{plan:?}"));
        let seen = [&before, &after][which];
        let mut store = open(&crashed);
        crashed.record(true);
        checkpoint(&mut store, crashed.as_ref());
        for (e, epoch) in crashed.take_epochs().iter().enumerate() {
            for second in crash_plans(epoch.writes(), 512, 2) {
                let again = Arc::new(epoch.crash(DEVICE, 512, &second.fates, &second.order));
                assert_legal(&again, &[seen], &format!("{plan:?}, then flush {e} {second:?}"));
            }
        }
    }
}

/// A commit and a checkpoint whose writes are under way together.
#[test]
fn a_commit_beside_a_checkpoint_is_all_or_nothing() {
    for seed in seeds(6) {
        let (device, mut store, mut before) = base();
        let mut rng = Rng::new(seed);
        let txn = random_txn(&mut rng, &mut before, 6);
        commit(&mut store, device.as_ref(), txn);
        let build = store.take_checkpoint().expect("there is content");
        let mut after = before.clone();
        let txn = random_txn(&mut rng, &mut after, 6);
        store.submit(txn).expect("submit");
        let commit = store.take_commit().expect("commit");
        device.fail_always(DeviceOp::Flush);
        assert!(build.execute(device.as_ref()).is_err() && commit.execute(device.as_ref()).is_err());
        for plan in crash_plans(&device.unsynced(), 512, 6) {
            let crashed = Arc::new(device.crash(&plan.fates, &plan.order));
            assert_legal(&crashed, &[&before, &after], &format!("seed {seed}, {plan:?}"));
        }
    }
}

/// Long random histories with random power losses, everything acknowledged being checked after each.
#[test]
fn nothing_acknowledged_is_lost_in_random_histories() {
    for seed in seeds(20) {
        let mut rng = Rng::new(seed);
        let mut device = new_device(8 << 20, LOG);
        let mut store = open(&device);
        // States by transaction since the last durable one.
        let mut states = vec![Model::default()];
        let mut first = store.durable().0;
        for step in 0..60 {
            let mut next = states.last().expect("never empty").clone();
            let mut txn = random_txn(&mut rng, &mut next, 8);
            if rng.one_in(12) {
                // Larger than the log.
                let mut large = Txn::new();
                let len = LOG + rng.below(100_000);
                large.set(space(1), "large", rng.bytes(len as usize));
                next.apply(&large);
                txn.append(large);
            }
            store.submit(txn).expect("submit");
            states.push(next);
            let (mut commit, mut step_job) = (None, None);
            if rng.one_in(2) {
                commit = store.take_commit();
            }
            if rng.one_in(3) || store.checkpoint_due() {
                step_job = store.take_checkpoint();
            }
            let crash = rng.one_in(10);
            if crash {
                device.fail_always(DeviceOp::Flush);
            }
            if let Some(done) = step_job.map(|job| job.execute(device.as_ref())) {
                let _ = store.checkpointed(done);
            }
            if let Some(done) = commit.map(|job| job.execute(device.as_ref())) {
                let _ = store.committed(done);
            }
            let durable = store.durable().0;
            if crash {
                let what = format!("seed {seed} step {step}");
                let kept = &states[(durable - first) as usize..];
                device = Arc::new(device.crash_randomly(&mut rng));
                let legal: Vec<&Model> = kept.iter().collect();
                let which = assert_legal(&device, &legal, &what);
                states = vec![kept[which].clone()];
                store = open(&device);
                first = store.durable().0;
            }
        }
    }
}
