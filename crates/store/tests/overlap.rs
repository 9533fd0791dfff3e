//! Work that overlaps a checkpoint, and crashes that follow one another.

mod common;

use std::sync::Arc;

use common::*;
use store::{Device, DeviceOp, Found, Store, Txn};
use testkit::{Rng, SimDevice, crash_plans};

const DEVICE: u64 = 2 << 20;
const LOG: u64 = 256 << 10;

fn state(device: &Arc<SimDevice>) -> Model {
    Model::read_from(&mut open(device))
}

/// A process that dies leaves its writes in caches below; what the next one serves from there must survive power loss.
#[test]
fn what_was_served_after_a_restart_survives_a_power_loss() {
    let device = new_device(DEVICE, LOG);
    let mut store = open(&device);
    let mut model = Model::default();
    for round in 0..3u64 {
        let mut t = Txn::new();
        t.write(&object(1), round * 5000, vec![round as u8 + 1; 20_000]).set(
            space(1),
            format!("{round}"),
            "v",
        );
        model.apply(&t);
        store.submit(t).expect("submit");
        device.fail_nth(DeviceOp::Flush, 1);
        let job = store.take_commit().expect("commit");
        assert!(job.execute(device.as_ref()).is_err());
        device.clear_faults();
        store = open(&device);
        model.assert_same(&mut store, "after the restart");
        let lost = vec![testkit::Fate::Lost; device.unsynced().len()];
        let order: Vec<usize> = (0..lost.len()).collect();
        model.assert_same(&mut open(&Arc::new(device.crash(&lost, &order))), "after the power loss");
    }
}

/// Blocks that a checkpoint is writing, or has written, are overwritten in part while it runs; then the next
/// checkpoint is cut short in every way.
#[test]
fn overwriting_what_a_checkpoint_holds_leaves_it_whole() {
    let device = new_device(DEVICE, LOG);
    let mut store = open(&device);
    let mut model = Model::default();
    let run = |store: &mut Store, model: &mut Model, at: u64, byte: u8| {
        let mut t = Txn::new();
        t.write(&object(1), at, vec![byte; 100]).write(&object(2), at, vec![byte; 4096]);
        model.apply(&t);
        commit(store, device.as_ref(), t);
    };
    for round in 0..4u8 {
        run(&mut store, &mut model, 0, 10 + round);
        run(&mut store, &mut model, 4096, 20 + round);
        let build = store.take_checkpoint().expect("content");
        run(&mut store, &mut model, 50, 30 + round);
        store.checkpointed(build.execute(device.as_ref())).expect("built");
        run(&mut store, &mut model, 4200, 40 + round);
        let publish = store.take_checkpoint().expect("second step");
        store.checkpointed(publish.execute(device.as_ref())).expect("published");
        run(&mut store, &mut model, 60, 50 + round);
        device.record(true);
        checkpoint(&mut store, device.as_ref());
        for (e, epoch) in device.take_epochs().iter().enumerate() {
            for plan in crash_plans(epoch.writes(), 512, 2) {
                let crashed = Arc::new(epoch.crash(DEVICE, 512, &plan.fates, &plan.order));
                assert_eq!(state(&crashed), model, "round {round}, flush {e}, {plan:?}");
            }
        }
        device.record(false);
    }
}

/// The superblock copy that is the only good one is never the first to be written.
#[test]
fn a_second_crash_in_the_superblock_never_brings_back_an_old_state() {
    let device = new_device(DEVICE, LOG);
    let mut store = open(&device);
    let mut rng = Rng::new(8);
    let mut model = Model::default();
    for _ in 0..20 {
        let txn = random_txn(&mut rng, &mut model, 6);
        commit(&mut store, device.as_ref(), txn);
    }
    device.record(true);
    checkpoint(&mut store, device.as_ref());
    let epochs = device.take_epochs();
    for first in &epochs[1..] {
        for plan in crash_plans(first.writes(), 512, 1) {
            let crashed = Arc::new(first.crash(DEVICE, 512, &plan.fates, &plan.order));
            let mut store = open(&crashed);
            let mut next = model.clone();
            for _ in 0..10 {
                let txn = random_txn(&mut rng, &mut next, 6);
                commit(&mut store, crashed.as_ref(), txn);
            }
            crashed.record(true);
            checkpoint(&mut store, crashed.as_ref());
            for second in &crashed.take_epochs()[1..] {
                for again in crash_plans(second.writes(), 512, 1) {
                    let twice = Arc::new(second.crash(DEVICE, 512, &again.fates, &again.order));
                    next.assert_same(&mut open(&twice), &format!("{plan:?} then {again:?}"));
                }
            }
        }
    }
}

/// With the log full, a checkpoint stands in for the records that wait; nothing may be written behind them before.
#[test]
fn records_that_a_checkpoint_stands_in_for_are_durable_before_later_ones() {
    let device = new_device(4 << 20, 64 << 10);
    let mut store = open(&device);
    let mut model = Model::default();
    let mut rng = Rng::new(5);
    let mut txn = |model: &mut Model| {
        let mut t = Txn::new();
        t.write(&object(rng.below(6)), rng.below(50_000), rng.bytes(3000)).write(
            &object(7),
            0,
            rng.bytes(9000),
        );
        model.apply(&t);
        t
    };
    for _ in 0..40 {
        let t = txn(&mut model);
        store.submit(t).expect("submit");
    }
    // Part of the queue fits into the log, one commit of it is under way, the rest does not fit.
    let first = store.take_commit().expect("commit");
    assert!(store.checkpoint_due() && store.throttled());
    let build = store.take_checkpoint().expect("checkpoint");
    let stood_in = store.submitted();
    let later = txn(&mut model.clone());
    store.submit(later).expect("submit");
    assert!(store.take_checkpoint().is_none(), "one at a time");
    store.checkpointed(build.execute(device.as_ref())).expect("built");
    assert!(store.take_checkpoint().is_none(), "not before the commit under way is through");
    store.committed(first.execute(device.as_ref())).expect("committed");
    assert!(store.durable() < stood_in);
    assert!(store.take_commit().is_none(), "a record behind missing ones could be replayed without them");
    let publish = store.take_checkpoint().expect("second step");
    assert_eq!(store.checkpointed(publish.execute(device.as_ref())), Ok(stood_in));
    assert_eq!(state(&device), model);
    let commit = store.take_commit().expect("room again");
    assert_eq!(store.committed(commit.execute(device.as_ref())), Ok(store.submitted()));
    assert_clean(&device, "after standing in");
}

fn blocks(first: u64, count: u64, byte: u8) -> Txn {
    let mut t = Txn::new();
    (first..first + count).for_each(|i| {
        t.write(&object(i % 3), i / 3 * 4096, vec![byte; 4096]);
    });
    t
}

/// Single writes stay in the log and are moved by a checkpoint; batches go to their places, and no checkpoint writes
/// them again.
#[test]
fn a_batch_of_small_writes_is_written_once() {
    let device = new_device(4 << 20, 512 << 10);
    let mut store = open(&device);
    let mut model = Model::default();
    let mut submit = |store: &mut Store, txn: Txn| {
        model.apply(&txn);
        store.submit(txn).expect("submit");
        model.assert_same(store, "before its commit");
        model.clone()
    };
    submit(&mut store, blocks(0, 1, 1));
    commit_all(&mut store, device.as_ref());
    let one = store.counters();
    assert_eq!((one.batches_direct, one.batches_logged, one.direct_bytes), (0, 1, 0));
    for i in 0..30 {
        submit(&mut store, blocks(i, 1, 2));
    }
    // Overwritten before it is decided on, in whole and in part.
    submit(&mut store, blocks(5, 1, 3));
    let mut part = Txn::new();
    part.write(&object(0), 4_096 + 10, vec![4; 20]);
    let model = submit(&mut store, part);
    commit_all(&mut store, device.as_ref());
    let many = store.counters();
    // The block that only the log had is replaced in memory.
    assert_eq!((many.batches_direct, many.batches_logged, many.direct_bytes), (1, 1, 30 * 4096));
    assert!(many.log_bytes - one.log_bytes < 16 << 10, "{many:?}");
    model.assert_same(&mut store, "in place");
    model.assert_same(&mut open(&device), "from the log");
    checkpoint(&mut store, device.as_ref());
    // That one, the block that was overwritten in part, pages, superblock and map.
    assert!(store.counters().checkpoint_bytes < 32 << 10, "{:?}", store.counters());
    assert_clean(&device, "checkpointed");
    model.assert_same(&mut open(&device), "from the checkpoint");
}

/// A checkpoint that begins while a single small write waits leaves its data to the commit, and waits for that.
#[test]
fn a_checkpoint_takes_waiting_small_writes_for_placed() {
    let device = new_device(4 << 20, 512 << 10);
    let mut store = open(&device);
    let mut model = Model::default();
    for round in 1..5u8 {
        let first = blocks(u64::from(round), 1, round);
        model.apply(&first);
        store.submit(first).expect("submit");
        let build = store.take_checkpoint().expect("content");
        let freed = blocks(u64::from(round), 1, round + 100);
        model.apply(&freed);
        store.submit(freed).expect("submit");
        store.checkpointed(build.execute(device.as_ref())).expect("built");
        assert!(store.take_checkpoint().is_none(), "its data is not durable");
        commit_all(&mut store, device.as_ref());
        assert_eq!(store.counters().batches_direct, u64::from(round));
        let publish = store.take_checkpoint().expect("second step");
        store.checkpointed(publish.execute(device.as_ref())).expect("published");
        model.assert_same(&mut store, "published");
        assert_clean(&device, "published");
        model.assert_same(&mut open(&device), "opened");
    }
}

/// What is in memory is read at once; else a plan comes, of the whole range.
#[test]
fn a_read_at_once_does_not_wait_for_the_device() {
    let device = new_device(DEVICE, LOG);
    let mut store = open(&device);
    let mut t = Txn::new();
    t.write(&object(1), 0, vec![1; 40_000]);
    commit(&mut store, device.as_ref(), t);
    checkpoint(&mut store, device.as_ref());
    device.set_slow(true);
    let mut t = Txn::new();
    t.write(&object(1), 4096, vec![2; 4096]);
    store.submit(t).expect("accepted");
    let at_once =
        |store: &mut Store, offset, len| match store.read_at_once(&object(1), offset, len).expect("read") {
            Found::Data(data) => Ok(data.to_vec()),
            Found::OnDevice(plan) => Err(plan),
        };
    assert_eq!(at_once(&mut store, 4096, 4096), Ok(vec![2; 4096]), "not even committed");
    assert_eq!(at_once(&mut store, 50_000, 4096), Ok(vec![]), "behind the end");
    // In part in memory.
    let plan = at_once(&mut store, 4000, 9000).expect_err("the device must be waited for");
    assert_eq!((plan.asked(), plan.len(), plan.is_in_memory()), (9000, 9000, false));
    let whole = [vec![1; 96], vec![2; 4096], vec![1; 4808]].concat();
    assert_eq!(plan.execute(device.as_ref()).map(|d| d.to_vec()), Ok(whole.clone()));
    let short = at_once(&mut store, 39_000, 9000).expect_err("the device must be waited for");
    assert_eq!((short.asked(), short.len()), (9000, 1000));
    device.set_slow(false);
    assert_eq!(at_once(&mut store, 4000, 9000), Ok(whole));
}

/// A plan made before blocks were given to other data does not return that data.
#[test]
fn a_read_plan_that_waited_too_long_fails_instead_of_lying() {
    let device = new_device(DEVICE, LOG);
    let mut store = open(&device);
    let mut t = Txn::new();
    t.write(&object(1), 0, vec![1; 40_000]);
    commit(&mut store, device.as_ref(), t);
    checkpoint(&mut store, device.as_ref());
    let plan = store.plan_read(&object(1), 100, 30_000).expect("plan");
    assert!(!plan.is_in_memory() && plan.len() == 30_000);
    assert_eq!(plan.clone().execute(device.as_ref()).map(|d| d.to_vec()), Ok(vec![1; 30_000]));
    let mut stale = 0;
    for round in 2..80u8 {
        let mut t = Txn::new();
        t.write(&object(1), 0, vec![round; 40_000]);
        commit(&mut store, device.as_ref(), t);
        checkpoint(&mut store, device.as_ref());
        match plan.clone().execute(device.as_ref()) {
            Ok(data) => assert_eq!(data.to_vec(), vec![1; 30_000]),
            Err(_) => stale += 1,
        }
        assert_eq!(store.read(&object(1), 100, 30_000).map(|d| d.to_vec()), Ok(vec![round; 30_000]));
    }
    assert!(stale > 0, "the blocks were reused");
}

/// Stores opened on one device image share nothing: the device is the only state.
#[test]
fn opening_writes_nothing() {
    let device = new_device(DEVICE, LOG);
    let mut store = open(&device);
    let mut t = Txn::new();
    t.write(&object(1), 0, vec![1; 40_000]).set(space(1), "k", "v");
    commit(&mut store, device.as_ref(), t);
    let before = device.fork();
    let writes = device.calls(DeviceOp::Write);
    drop(Store::open(device.clone() as Arc<dyn Device>, small_options()).expect("open"));
    assert!(device.calls(DeviceOp::Write) == writes && device.same_content(&before));
}
