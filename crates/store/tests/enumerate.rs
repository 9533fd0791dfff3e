//! Every sequence of one to three out of thirteen store operations, and what a power loss can leave of it:
//! each state mounts, is sound, and holds everything acknowledged and a prefix of the rest; and so does what
//! a second power loss leaves of the first checkpoint after each such mount.
//!
//! Every other sequence sends its small writes of whole blocks straight to their places, beside what stays in the log record.
//! Of sequences of three every other state is mounted. A part of them begins on a log that wraps, a nearly
//! full device, one with three regions of the allocation map, or with a superblock copy that does not prove
//! itself.
//!
//! A build with optimisation runs all 2,379 sequences, and goes on with commits beside checkpoints until it has seen at least
//! 200,000 states; others run a part of them.

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use common::*;
use store::{Checkpoint, Device, DeviceError, DeviceOp, Laid, Options, Store, StoreError, Txn};
use testkit::{Rng, SimDevice, crash_plans};

const DEVICE: u64 = 1 << 20;
const LOG: u64 = 128 << 10;
/// What a full run must reach, and what another one.
const STATES: usize = 200_000;
const STATES_OF_A_PART: usize = 2_000;
/// Tears tried per write.
const TEARS: usize = 8;
/// Each crash state is crashed again during its recovery, at one of about a dozen moments; one of so many at
/// all of them.
const AT_ALL_MOMENTS: usize = 97;
/// Blocks of a region of the allocation map (FORMAT.md).
const REGION_BYTES: u64 = 32_640 * 4096;
/// The log has so many blocks.
const LOG_BLOCKS: usize = (LOG >> 12) as usize;
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

/// What a sequence begins on.
struct Base {
    name: &'static str,
    device: Arc<SimDevice>,
    model: Model,
}

/// A store with checkpointed content, blocks that two objects share, and a durable record in the log.
fn base(name: &'static str, bytes: u64, log_bytes: u64) -> Base {
    let device = new_device(bytes, log_bytes);
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
    Base { name, device, model }
}

/// Records of one block each, until so many were written, with checkpoints that free the log behind them.
fn log_records(base: &mut Base, count: usize) {
    let mut store = open(&base.device);
    for i in 0..count {
        let mut txn = Txn::new();
        txn.set(space(1), "fill", vec![i as u8; 100]);
        base.model.apply(&txn);
        commit(&mut store, base.device.as_ref(), txn);
        if i % 8 == 7 {
            checkpoint(&mut store, base.device.as_ref());
        }
    }
}

/// The plain one, and those that a part of the sequences begins on.
fn bases() -> Vec<Base> {
    let plain = base("plain", DEVICE, LOG);
    // The next records begin in the last blocks of the log, or wrap.
    let wraps = (0..8).map(|left| {
        let mut wraps = base("a log that wraps", DEVICE, LOG);
        log_records(&mut wraps, LOG_BLOCKS - 1 - left);
        wraps
    });
    let mut full = base("a nearly full device", DEVICE, LOG);
    let mut store = open(&full.device);
    for i in 10.. {
        let mut txn = Txn::new();
        txn.write(&object(i), 0, data(i as u8, 8_192));
        if store.submit(txn.clone()).is_err() {
            break;
        }
        full.model.apply(&txn);
        commit_all(&mut store, full.device.as_ref());
    }
    drop(store);
    let regions = base("three regions", 3 * REGION_BYTES, 2 * REGION_BYTES - (8 << 20));
    let rotten = [0, 1].map(|copy| {
        let rotten = base("a rotten superblock copy", DEVICE, LOG);
        rotten.device.flip(copy * 4096 + 100, 1);
        rotten
    });
    let all = [plain].into_iter().chain(wraps).chain([full, regions]).chain(rotten);
    all.collect()
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
    /// A checkpoint of the first was built, and those between are durable since; it is being published beside
    /// the commit of the last.
    BetweenSteps,
    /// The log has room for none of it: a checkpoint has taken it over and is being built, or published.
    Absorbed,
    /// Space that is free is being discarded beside the commit of the last.
    BesideDiscard,
}

/// Discards as devices carry them out: at any time until the next flush, in any part.
struct Lazy<'a>(&'a SimDevice);

impl Device for Lazy<'_> {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), DeviceError> {
        self.0.read_at(offset, buf)
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> Result<(), DeviceError> {
        self.0.write_at(offset, data)
    }

    fn write_vectored_at(&self, offset: u64, pieces: &[&[u8]]) -> Result<(), DeviceError> {
        self.0.write_vectored_at(offset, pieces)
    }

    fn flush(&self) -> Result<(), DeviceError> {
        self.0.flush()
    }

    fn len(&self) -> u64 {
        self.0.len()
    }

    fn discard(&self, offset: u64, len: u64) -> Result<(), DeviceError> {
        self.0.discard_lazily(offset, len, 0xd5)
    }
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
    shapes: [AtomicUsize; 7],
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

/// One sequence, how it goes, and on what.
#[derive(Clone, Copy)]
struct Case<'a> {
    number: usize,
    sequence: &'a [usize],
    shape: Shape,
    base: &'a Base,
}

/// What comes before the sequence: a log without room, or space that may be discarded.
fn before_it(store: &mut Store, device: &SimDevice, shape: Shape, states: &mut Vec<Model>) {
    let last = |states: &[Model]| states.last().expect("never empty").clone();
    match shape {
        Shape::Absorbed => {
            for i in 0.. {
                let (mut next, mut txn) = (last(states), Txn::new());
                txn.set(space(1), "fill", vec![i as u8; 100]);
                next.apply(&txn);
                store.submit(txn).expect("submit");
                let Some(job) = store.take_commit() else { return states.push(next) };
                store.committed(job.execute(device)).expect("commit");
                *states = vec![next];
            }
        }
        Shape::BesideDiscard => {
            for is_there in [true, false] {
                let (mut next, mut txn) = (last(states), Txn::new());
                match is_there {
                    true => txn.write(&object(9), 0, data(93, 5 * 4_096)),
                    false => txn.remove(&object(9)),
                };
                next.apply(&txn);
                commit(store, device, txn);
                checkpoint(store, device);
                *states = vec![next];
            }
            assert!(store.take_discard(std::time::Duration::from_secs(1)).is_none(), "it has not rested");
        }
        _ => {}
    }
}

/// The job that is under way beside the last commit.
fn beside(store: &mut Store, shape: Shape) -> Option<Checkpoint> {
    match shape {
        Shape::BesideCheckpoint | Shape::BetweenSteps => store.take_checkpoint(),
        Shape::BesideDiscard => store.take_discard(std::time::Duration::from_secs(100)),
        _ => None,
    }
}

/// Leaves a sequence at its crash: the device with its unsynced writes, the legal states, and whether the last commit sent
/// small writes to their places or kept some in its record.
fn prepare(device: &Arc<SimDevice>, case: Case<'_>) -> (Vec<Model>, [bool; 2]) {
    let Case { number, sequence, shape, base } = case;
    let mut store = Store::open(device.clone() as Arc<dyn Device>, options(number)).expect("open");
    let mut states = vec![base.model.clone()];
    before_it(&mut store, device, shape, &mut states);
    let durable = match shape {
        Shape::Together | Shape::InCheckpoint | Shape::Absorbed => 0,
        Shape::OneByOne | Shape::BetweenSteps | Shape::BesideDiscard => sequence.len() - 1,
        Shape::BesideCheckpoint => 1,
    };
    let mut under_way = None;
    for (i, op) in sequence.iter().enumerate() {
        if i == durable {
            under_way = beside(&mut store, shape);
        }
        let mut next = states.last().expect("never empty").clone();
        let mut txn = Txn::new();
        OPERATIONS[*op].1(&mut txn, &next, i as u8 + 1);
        next.apply(&txn);
        match store.submit(txn) {
            Ok(_) if i < durable => {
                commit_all(&mut store, device.as_ref());
                states = vec![next];
            }
            Ok(_) => states.push(next),
            // On a full device it did not happen.
            Err(e) => assert!(matches!(e, StoreError::Full { .. }), "{}: {e}", base.name),
        }
        if let (0, Shape::BetweenSteps) = (i, shape) {
            assert!(checkpoint_step(&mut store, device.as_ref()), "built");
        }
    }
    if let Shape::InCheckpoint | Shape::Absorbed = shape {
        if let (Shape::Absorbed, 1) = (shape, number % 2) {
            assert!(checkpoint_step(&mut store, device.as_ref()), "built");
        }
        under_way = store.take_checkpoint();
    }
    let decided = |store: &Store| [store.counters().batches_direct, store.counters().batches_logged];
    let so_far = decided(&store);
    let last = store.take_commit();
    let now = decided(&store);
    device.fail_always(DeviceOp::Flush);
    if let Some(job) = under_way {
        let done = job.execute(&Lazy(device));
        // What discards leave is told by nobody.
        assert!(done.is_err() || matches!(shape, Shape::BesideDiscard), "a failed flush is told");
    }
    if let Some(job) = last {
        assert!(job.execute(device.as_ref()).is_err(), "a failed flush is told");
    }
    device.clear_faults();
    (states, [now[0] > so_far[0], now[1] > so_far[1]])
}

fn crash_everywhere(case: Case<'_>, counts: &Counts) {
    let device = Arc::new(case.base.device.fork());
    let (legal, [placed, logged]) = prepare(&device, case);
    let names: Vec<&str> = case.sequence.iter().map(|op| OPERATIONS[*op].0).collect();
    let every = if case.sequence.len() == 3 { 2 } else { 1 };
    let plans = crash_plans(&device.unsynced(), 512, TEARS);
    for (i, plan) in plans.iter().enumerate().filter(|(i, _)| (case.number + i) % every == 0) {
        let what = || format!("{}: {names:?} {:?} {plan:?}", case.base.name, case.shape);
        let crashed = Arc::new(device.crash(&plan.fates, &plan.order));
        let seen = mount(&crashed, &legal, &what);
        counts.first.fetch_add(1, Ordering::Relaxed);
        counts.shapes[case.shape as usize].fetch_add(1, Ordering::Relaxed);
        counts.placed.fetch_add(usize::from(placed), Ordering::Relaxed);
        counts.logged.fetch_add(usize::from(logged), Ordering::Relaxed);
        crash_again(&crashed, &legal[seen], case.number + i, &what, counts);
    }
}

/// The power goes again during the first checkpoint after a mount.
fn crash_again(
    crashed: &Arc<SimDevice>,
    seen: &Model,
    number: usize,
    what: &dyn Fn() -> String,
    counts: &Counts,
) {
    let mut store = open(crashed);
    crashed.record(true);
    checkpoint(&mut store, crashed.as_ref());
    let epochs = crashed.take_epochs();
    let moments: Vec<_> = epochs
        .iter()
        .enumerate()
        .flat_map(|(e, epoch)| crash_plans(epoch.writes(), 512, 1).into_iter().map(move |plan| (e, plan)))
        .collect();
    let chosen = |i: &usize| number % AT_ALL_MOMENTS == 0 || number % moments.len() == *i;
    for i in (0..moments.len()).filter(chosen) {
        let (e, second) = &moments[i];
        let len = crashed.as_ref().len();
        let again = Arc::new(epochs[*e].crash(len, 512, &second.fates, &second.order));
        let what = || format!("{}, then flush {e} {second:?}", what());
        mount(&again, std::slice::from_ref(seen), &what);
        counts.second.fetch_add(1, Ordering::Relaxed);
    }
}

/// All cases, and how many of them run however soon there are enough states.
fn work<'a>(all: &'a [Vec<usize>], bases: &'a [Base], full: bool) -> (Vec<Case<'a>>, usize) {
    let case = |(number, sequence): (usize, &'a Vec<usize>), shape: Shape, base: usize| Case {
        number,
        sequence,
        shape,
        base: &bases[base],
    };
    // Which shape makes a difference only from two operations on.
    let part = || all.iter().enumerate().filter(|(i, _)| full || i % PART == 0);
    let longer = || part().filter(|(_, sequence)| sequence.len() > 1);
    let mut work: Vec<_> = part().map(|one| case(one, Shape::Together, 0)).collect();
    work.extend(longer().map(|one| case(one, Shape::OneByOne, 0)));
    work.extend(longer().step_by(4).map(|one| case(one, Shape::InCheckpoint, 0)));
    for (shape, first) in [(Shape::BetweenSteps, 0), (Shape::Absorbed, 2), (Shape::BesideDiscard, 4)] {
        work.extend(longer().skip(first).step_by(8).map(|one| case(one, shape, 0)));
    }
    let shapes =
        [Shape::Together, Shape::InCheckpoint, Shape::BetweenSteps, Shape::OneByOne, Shape::BesideCheckpoint];
    for base in 1..bases.len() {
        // Mounts of a large device take longer.
        let every = if bases[base].device.as_ref().len() > DEVICE { 16 } else { 4 };
        let some = longer().skip(base).step_by(bases.len() * every);
        work.extend(some.enumerate().map(|(i, one)| case(one, shapes[i % shapes.len()], base)));
    }
    // However soon there are enough states, some are of this shape.
    work.extend(longer().skip(1).step_by(16).map(|one| case(one, Shape::BesideCheckpoint, 0)));
    let always = work.len();
    work.extend(longer().map(|one| case(one, Shape::BesideCheckpoint, 0)));
    (work, always)
}

#[test]
fn every_crash_state_of_every_short_sequence_is_legal() {
    let full = !cfg!(debug_assertions);
    let all = sequences();
    assert_eq!(all.len(), 2_379);
    let wanted = if full { STATES } else { STATES_OF_A_PART };
    let bases = bases();
    let (work, always) = work(&all, &bases, full);
    let (counts, next) = (Counts::default(), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                loop {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    let Some(case) = work.get(at) else { return };
                    if at >= always && counts.all() >= wanted && counts.of_each_kind() > wanted / 20 {
                        return;
                    }
                    crash_everywhere(*case, &counts);
                }
            });
        }
    });
    let (first, second) = (counts.first.into_inner(), counts.second.into_inner());
    println!("{first} crash states enumerated, and {second} after a second crash in recovery");
    assert!(first + second >= wanted, "{first} + {second} states, {wanted} wanted");
    assert!(second >= first, "each state is crashed again");
    let shapes = counts.shapes.map(AtomicUsize::into_inner);
    println!(
        "{shapes:?} by shape: together, one by one, in a checkpoint, beside one, between its steps, absorbed, beside a discard"
    );
    assert!(shapes.iter().all(|n| *n > 0), "each shape occurs: {shapes:?}");
    let (placed, logged) = (counts.placed.into_inner(), counts.logged.into_inner());
    println!("{placed} of a commit with placed small writes, {logged} of one with logged ones");
    assert!(placed > wanted / 20 && logged > wanted / 20, "{placed} and {logged}");
}
