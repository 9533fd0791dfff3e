//! Planted bugs in the store's hard code: each is found by power losses at every flush of random work in
//! which commits and checkpoints go side by side, within a number of walks; the same walks without the bug
//! are good.

mod common;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use common::*;
use store::{Device, Options, Planted, Store, TxnSeq};
use testkit::{Fate, Rng, SimDevice, Write, crash_plans};

const DEVICE: u64 = 3 << 20;
/// Some transactions long, and a few.
const LOG: u64 = 128 << 10;
const SMALL_LOG: u64 = 64 << 10;
const STEPS: usize = 60;
/// Crash states that are mounted for each flush.
const PLANS: usize = 3;
/// Walks that may be needed: more than twice of what was.
const WALKS: u64 = 20;
/// Walks without a bug.
const HONEST_WALKS: u64 = 3;

fn open_with(device: &Arc<SimDevice>, planted: Option<Planted>) -> Store {
    let options = Options { planted, ..small_options() };
    Store::open(device.clone() as Arc<dyn Device>, options).expect("mounts")
}

/// A store at work, and every state that it went through.
struct Walk {
    device: Arc<SimDevice>,
    store: Store,
    planted: Option<Planted>,
    rng: Rng,
    /// Checkpoints come when the log is full, and then alone.
    fills_log: bool,
    /// By sequence number.
    states: Vec<Model>,
}

impl Walk {
    fn new(seed: u64, planted: Option<Planted>) -> Self {
        let fills_log = seed % 2 == 0;
        let device = new_device(DEVICE, if fills_log { SMALL_LOG } else { LOG });
        let store = open_with(&device, planted);
        assert_eq!(store.submitted(), TxnSeq(0));
        device.record(true);
        Self { device, store, planted, rng: Rng::new(seed), fills_log, states: vec![Model::default()] }
    }

    fn submit(&mut self) {
        let mut next = self.states.last().expect("never empty").clone();
        let txn = random_txn(&mut self.rng, &mut next, 6);
        // There may be no room: then nothing has happened.
        if self.store.submit(txn).is_ok() {
            self.states.push(next);
        }
    }

    /// `false`: there is nothing to write, or no room in the log.
    fn commit(&mut self) -> bool {
        let Some(job) = self.store.take_commit() else { return false };
        let done = job.execute(self.device.as_ref());
        self.store.committed(done).expect("committed");
        true
    }

    fn submit_and_commit(&mut self) {
        self.submit();
        self.commit();
    }

    fn step(&mut self) {
        let acked = self.store.durable().0 as usize;
        match self.rng.below(10) {
            0..=4 => self.submit(),
            5..=8 => {
                if !self.commit() && self.fills_log {
                    checkpoint_step(&mut self.store, self.device.as_ref());
                }
            }
            _ if self.fills_log && !self.rng.one_in(4) => {}
            _ => {
                checkpoint_step(&mut self.store, self.device.as_ref());
            }
        }
        for epoch in self.device.take_epochs() {
            let plans = crash_plans(epoch.writes(), 512, 1);
            for _ in 0..PLANS.min(plans.len()) {
                let plan = self.rng.pick(&plans);
                let crashed = Arc::new(epoch.crash(DEVICE, 512, &plan.fates, &plan.order));
                self.mount(&crashed, acked);
            }
            // No write is whole.
            let order: Vec<usize> = (0..epoch.writes().len()).collect();
            let fates: Vec<Fate> = epoch.writes().iter().map(|w| self.torn(w)).collect();
            self.mount(&Arc::new(epoch.crash(DEVICE, 512, &fates, &order)), acked);
        }
    }

    fn torn(&mut self, write: &Write) -> Fate {
        Fate::Torn((0..write.sectors(512)).map(|_| self.rng.one_in(2)).collect())
    }

    /// What a power loss left holds all that was acknowledged, and goes on.
    fn mount(&mut self, crashed: &Arc<SimDevice>, acked: usize) {
        let mut store = open_with(crashed, self.planted);
        let found = Model::read_from(&mut store);
        assert!(self.states.iter().skip(acked).any(|m| *m == found), "not a legal state");
        if self.rng.one_in(3) {
            checkpoint(&mut store, crashed.as_ref());
            drop(store);
            let report = store::fsck(crashed.as_ref(), true).expect("checked");
            // Without anything to do there is no checkpoint, and the second copy stays as it is.
            let sound = report.findings.iter().all(|f| matches!(f, store::Finding::SuperblockCopy { .. }));
            assert!(sound, "{:?}", report.findings);
            found.assert_same(&mut open_with(crashed, self.planted), "after a checkpoint");
        }
    }
}

/// Between a checkpoint's two steps commits go on until the log is full. A mount now needs all records since
/// the checkpoint before.
fn fill_between_the_steps(seed: u64, planted: Option<Planted>) {
    let mut walk = Walk::new(2 * seed, planted);
    checkpoint(&mut walk.store, walk.device.as_ref());
    (0..8).for_each(|_| walk.submit_and_commit());
    assert!(checkpoint_step(&mut walk.store, walk.device.as_ref()), "there is something to write");
    let full = (0..STEPS).find(|_| {
        walk.submit();
        let full = !walk.commit();
        walk.mount(&Arc::new(walk.device.fork()), walk.store.durable().0 as usize);
        full
    });
    assert!(full.is_some(), "the log takes more than it has room for");
}

fn walk(seed: u64, planted: Option<Planted>) {
    let mut walk = Walk::new(seed, planted);
    (0..STEPS).for_each(|_| walk.step());
}

/// The first of the walks that finds it; the one that found it last goes first.
fn is_found(planted: Planted, last: u64) {
    let finds = |seed: &u64| catch_unwind(AssertUnwindSafe(|| walk(*seed, Some(planted)))).is_err();
    let seeds = std::iter::once(last).chain((1..=WALKS).filter(|seed| *seed != last));
    let found = seeds.into_iter().find(finds);
    eprintln!("PLANTED BUG {planted:?}: walk {found:?}");
    walk(found.expect("found by one of the walks"), None);
}

#[test]
fn without_a_bug_all_is_well() {
    (1..=HONEST_WALKS).for_each(|seed| walk(seed, None));
}

#[test]
fn tail_too_soon() {
    let finds = |seed: &u64| {
        let planted = Some(Planted::TailTooSoon);
        catch_unwind(AssertUnwindSafe(|| fill_between_the_steps(*seed, planted))).is_err()
    };
    let found = (1..=WALKS).find(finds).expect("found by one of the walks");
    eprintln!("PLANTED BUG TailTooSoon: walk {found}");
    (1..=found).for_each(|seed| fill_between_the_steps(seed, None));
}

macro_rules! planted {
    ($($name:ident $bug:ident $seed:literal),+ $(,)?) => {
        $(#[test]
        fn $name() {
            is_found(Planted::$bug, $seed);
        })+
    };
}
planted![
    freed_too_soon FreedTooSoon 5,
    publishes_unflushed PublishesUnflushed 2,
    copies_at_once CopiesAtOnce 2,
    publishes_undurable PublishesUndurable 6,
    trusts_placed_data TrustsPlacedData 1,
    replay_takes_places ReplayTakesPlaces 1,
    move_forgets_sharers MoveForgetsSharers 1,
];
