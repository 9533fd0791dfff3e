//! Every sequence of one to three out of thirteen store operations, and every state that a power loss can leave of it: each
//! mounts, is sound, and holds everything acknowledged and a prefix of the rest; and so does what a second power loss leaves
//! of the first checkpoint after such a mount.
//!
//! Every other sequence sends its small writes of whole blocks straight to their places, beside what stays in the log record.
//!
//! A build with optimisation runs all 2,379 sequences, and goes on with commits beside checkpoints until it has seen at least
//! 200,000 states; others run a part of them.

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use common::*;
use store::{Device, DeviceOp, Laid, Options, Store, Txn};
use testkit::{Rng, SimDevice, crash_plans};

const DEVICE: u64 = 1 << 20;
const LOG: u64 = 128 << 10;
/// What a full run must reach, and what another one.
const STATES: usize = 200_000;
const STATES_OF_A_PART: usize = 2_000;
/// Tears tried per write.
const TEARS: usize = 8;
/// One of so many crash states is crashed again during its recovery, which leaves about a dozen more.
const AGAIN_EVERY: usize = 23;
const AGAIN_EVERY_OF_A_PART: usize = 97;
/// Without optimisation one of so many sequences runs.
const PART: usize = 61;

type Operation = fn(&mut Txn, &Model, u8);

fn data(tag: u8, len: usize) -> Vec<u8> {
    Rng::new(u64::from(tag) + 1).bytes(len)
}

fn present(model: &Model, i: u64) -> bool {
    model.objects.contains_key(&object(i))
}

/// `tag` is the operation's place in its sequence, so that no two write the same bytes.
const OPERATIONS: [(&str, Operation); 13] = [
    ("touch", |t, _, _| {
        t.touch(&object(5));
    }),
    ("small write", |t, _, tag| {
        t.write(&object(1), 4_000, data(tag, 300));
    }),
    ("block write", |t, _, tag| {
        t.write(&object(2), 8_192, data(tag, 4_096));
    }),
    ("large write", |t, _, tag| {
        t.write(&object(2), 2_000, data(tag, 20_000));
    }),
    ("zero", |t, _, _| {
        t.zero(&object(2), 1_000, 5_000);
    }),
    ("truncate", |t, _, _| {
        t.truncate(&object(2), 5_000);
    }),
    ("remove", |t, _, _| {
        t.remove(&object(1));
    }),
    ("clone", |t, model, _| {
        if present(model, 2) {
            t.clone_object(&object(2), &object(3));
        }
        t.touch(&object(3));
    }),
    ("rename", |t, model, _| {
        if present(model, 1) {
            t.rename(&object(1), &object(2));
        }
        t.touch(&object(1));
    }),
    ("move", |t, model, _| {
        let whole = |o: &ModelObject| o.written.get(4_096..12_288).is_some_and(|w| w.iter().all(|w| *w));
        if let Some(o) = model.objects.get(&object(2)).filter(|o| whole(o)) {
            let digest = store::blocks_digest(&o.data[4_096..12_288]);
            let part = Laid { offset: 0, len: 8_192, src_offset: 4_096, digest };
            t.move_range(&object(2), &object(4), part);
        }
        t.touch(&object(4));
    }),
    ("attributes", |t, _, tag| {
        t.set_attr(&object(1), "_", vec![tag; 30]).rm_attr(&object(2), "a");
    }),
    ("omap", |t, _, tag| {
        let entries = (tag..tag + 5).map(|i| (Bytes::from(format!("k{i:02}")), Bytes::from(vec![tag; 40])));
        t.omap_set(&object(1), entries.collect()).omap_rm_range(&object(2), "k03", "k09");
    }),
    ("keys", |t, _, tag| {
        t.set(space(1), "log.3", vec![tag; 100]).unset(space(1), "log.1");
    }),
];

/// A store with checkpointed content, blocks that two objects share, and a durable record in the log.
fn base() -> (Arc<SimDevice>, Model) {
    let device = new_device(DEVICE, LOG);
    let mut store = open(&device);
    let mut model = Model::default();
    let mut first = Txn::new();
    first.write(&object(1), 0, data(90, 5_000)).write(&object(2), 100, data(91, 12_000));
    first.set_attr(&object(2), "a", "1").set(space(1), "log.1", "x").clone_object(&object(2), &object(4));
    let entries = (0..12).map(|i| (Bytes::from(format!("k{i:02}")), Bytes::from(vec![i; 40]))).collect();
    first.omap_set(&object(2), entries);
    let mut second = Txn::new();
    second.write(&object(2), 4_096, data(92, 4_096)).set(space(0), "m", "z");
    for (i, txn) in [first, second].into_iter().enumerate() {
        model.apply(&txn);
        commit(&mut store, device.as_ref(), txn);
        if i == 0 {
            checkpoint(&mut store, device.as_ref());
        }
    }
    (device, model)
}

/// All sequences of one, two and three operations.
fn sequences() -> Vec<Vec<usize>> {
    let n = OPERATIONS.len();
    let mut out: Vec<Vec<usize>> = (0..n).map(|a| vec![a]).collect();
    for from in [0, n] {
        let shorter: Vec<_> = out[from..].to_vec();
        out.extend(shorter.iter().flat_map(|s| (0..n).map(|b| [s.as_slice(), &[b]].concat())));
    }
    out
}

/// How much of a sequence is durable before the power goes.
#[derive(Debug, Clone, Copy)]
enum Shape {
    /// All of it is one commit under way.
    Together,
    /// The last is under way, the others are durable.
    OneByOne,
    /// A checkpoint that was begun when all of it had been submitted is under way beside its commit.
    InCheckpoint,
    /// The first is durable, and a checkpoint is under way beside the commit of the others.
    BesideCheckpoint,
}

/// From how many bytes on a commit's small writes go straight to their places: from one block, or never.
fn options(number: usize) -> Options {
    let direct_batch_min_bytes = if number % 2 == 0 { 4_096 } else { u32::MAX };
    Options { direct_batch_min_bytes, ..small_options() }
}

/// Mounts, and tells which legal state it is.
fn mount(device: &Arc<SimDevice>, legal: &[Model], what: &dyn Fn() -> String) -> usize {
    let mut store = Store::open(device.clone() as Arc<dyn Device>, small_options())
        .unwrap_or_else(|e| panic!("{}: does not mount: {e}", what()));
    let found = Model::read_from(&mut store);
    let report = store::fsck(device.as_ref(), true).unwrap_or_else(|e| panic!("{}: {e}", what()));
    let sound = report.findings.iter().all(|f| matches!(f, store::Finding::SuperblockCopy { .. }));
    assert!(sound, "{}: {:#?}", what(), report.findings);
    legal.iter().position(|m| *m == found).unwrap_or_else(|| panic!("{}: not a legal state", what()))
}

/// States that were mounted: after a first crash, after a second.
#[derive(Default)]
struct Counts {
    first: AtomicUsize,
    second: AtomicUsize,
    /// Of the first, those of a commit that sent small writes to their places, and of one that kept them in its record.
    placed: AtomicUsize,
    logged: AtomicUsize,
    /// Of the first, by shape.
    shapes: [AtomicUsize; 4],
    again_every: usize,
}

impl Counts {
    fn all(&self) -> usize {
        self.first.load(Ordering::Relaxed) + self.second.load(Ordering::Relaxed)
    }

    /// Of the two ways that small writes go, the one with fewer states.
    fn of_each_kind(&self) -> usize {
        self.placed.load(Ordering::Relaxed).min(self.logged.load(Ordering::Relaxed))
    }
}

/// Leaves a sequence at its crash: the device with its unsynced writes, the legal states, and whether the last commit sent
/// small writes to their places or kept some in its record.
fn prepare(
    device: &Arc<SimDevice>,
    before: &Model,
    (number, sequence, shape): (usize, &[usize], Shape),
) -> (Vec<Model>, [bool; 2]) {
    let mut store = Store::open(device.clone() as Arc<dyn Device>, options(number)).expect("open");
    let mut states = vec![before.clone()];
    let durable = match shape {
        Shape::Together | Shape::InCheckpoint => 0,
        Shape::OneByOne => sequence.len() - 1,
        Shape::BesideCheckpoint => 1,
    };
    let mut under_way = None;
    for (i, op) in sequence.iter().enumerate() {
        if i == durable {
            if let Shape::BesideCheckpoint = shape {
                under_way = store.take_checkpoint();
            }
        }
        let mut next = states.last().expect("never empty").clone();
        let mut txn = Txn::new();
        OPERATIONS[*op].1(&mut txn, &next, i as u8 + 1);
        next.apply(&txn);
        if i < durable {
            commit(&mut store, device.as_ref(), txn);
            states = vec![next];
        } else {
            store.submit(txn).expect("submit");
            states.push(next);
        }
    }
    if let Shape::InCheckpoint = shape {
        under_way = store.take_checkpoint();
    }
    let decided = |store: &Store| [store.counters().batches_direct, store.counters().batches_logged];
    let so_far = decided(&store);
    let last = store.take_commit();
    let now = decided(&store);
    device.fail_always(DeviceOp::Flush);
    if let Some(job) = under_way {
        assert!(job.execute(device.as_ref()).is_err(), "a failed flush is told");
    }
    if let Some(job) = last {
        assert!(job.execute(device.as_ref()).is_err(), "a failed flush is told");
    }
    device.clear_faults();
    (states, [now[0] > so_far[0], now[1] > so_far[1]])
}

fn crash_everywhere(
    base: &(Arc<SimDevice>, Model),
    (number, sequence, shape): (usize, &[usize], Shape),
    counts: &Counts,
) {
    let device = Arc::new(base.0.fork());
    let (legal, [placed, logged]) = prepare(&device, &base.1, (number, sequence, shape));
    let names: Vec<&str> = sequence.iter().map(|op| OPERATIONS[*op].0).collect();
    for (i, plan) in crash_plans(&device.unsynced(), 512, TEARS).iter().enumerate() {
        let what = || format!("{names:?} {shape:?} {plan:?}");
        let crashed = Arc::new(device.crash(&plan.fates, &plan.order));
        let seen = mount(&crashed, &legal, &what);
        counts.first.fetch_add(1, Ordering::Relaxed);
        counts.shapes[shape as usize].fetch_add(1, Ordering::Relaxed);
        counts.placed.fetch_add(usize::from(placed), Ordering::Relaxed);
        counts.logged.fetch_add(usize::from(logged), Ordering::Relaxed);
        if (number + i) % counts.again_every == 0 {
            crash_again(&crashed, &legal[seen], &what, counts);
        }
    }
}

/// The power goes again during the first checkpoint after a mount.
fn crash_again(crashed: &Arc<SimDevice>, seen: &Model, what: &dyn Fn() -> String, counts: &Counts) {
    let mut store = open(crashed);
    crashed.record(true);
    checkpoint(&mut store, crashed.as_ref());
    for (e, epoch) in crashed.take_epochs().iter().enumerate() {
        for second in crash_plans(epoch.writes(), 512, 1) {
            let again = Arc::new(epoch.crash(DEVICE, 512, &second.fates, &second.order));
            let what = || format!("{}, then flush {e} {second:?}", what());
            mount(&again, std::slice::from_ref(seen), &what);
            counts.second.fetch_add(1, Ordering::Relaxed);
        }
    }
}

#[test]
fn every_crash_state_of_every_short_sequence_is_legal() {
    let full = !cfg!(debug_assertions);
    let all = sequences();
    assert_eq!(all.len(), 2_379);
    // Which shape makes a difference only from two operations on.
    let part = || all.iter().enumerate().filter(|(i, _)| full || i % PART == 0);
    let longer = || part().filter(|(_, sequence)| sequence.len() > 1);
    let mut work: Vec<_> = part().map(|(i, sequence)| (i, sequence, Shape::Together)).collect();
    work.extend(longer().map(|(i, sequence)| (i, sequence, Shape::OneByOne)));
    work.extend(longer().step_by(4).map(|(i, sequence)| (i, sequence, Shape::InCheckpoint)));
    // However soon there are enough states, some are of this shape.
    work.extend(longer().skip(1).step_by(16).map(|(i, sequence)| (i, sequence, Shape::BesideCheckpoint)));
    let always = work.len();
    work.extend(longer().map(|(i, sequence)| (i, sequence, Shape::BesideCheckpoint)));
    let (wanted, again_every) =
        if full { (STATES, AGAIN_EVERY) } else { (STATES_OF_A_PART, AGAIN_EVERY_OF_A_PART) };
    let base = base();
    let (counts, next) = (Counts { again_every, ..Counts::default() }, AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                loop {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    let Some((number, sequence, shape)) = work.get(at) else { return };
                    if at >= always && counts.all() >= wanted && counts.of_each_kind() > wanted / 20 {
                        return;
                    }
                    crash_everywhere(&base, (*number, sequence.as_slice(), *shape), &counts);
                }
            });
        }
    });
    let (first, second) = (counts.first.into_inner(), counts.second.into_inner());
    println!("{first} crash states enumerated, and {second} after a second crash in recovery");
    assert!(first + second >= wanted, "{first} + {second} states, {wanted} wanted");
    assert!(second > 0);
    let shapes = counts.shapes.map(AtomicUsize::into_inner);
    println!("{shapes:?} by shape: together, one by one, in a checkpoint, beside one");
    assert!(shapes.iter().all(|n| *n > 0), "each shape occurs: {shapes:?}");
    let (placed, logged) = (counts.placed.into_inner(), counts.logged.into_inner());
    println!("{placed} of a commit with placed small writes, {logged} of one with logged ones");
    assert!(placed > wanted / 20 && logged > wanted / 20, "{placed} and {logged}");
}
