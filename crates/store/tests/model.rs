//! Random transactions against the naive model, with commits, checkpoints, crashes and reopening in between.

mod common;

use std::sync::Arc;

use common::*;
use testkit::Rng;

/// Runs a seed: after each step the store answers like the model, and after a reopen still does. Returns how
/// often it discarded.
fn run(seed: u64, steps: u64, device_bytes: u64, log_bytes: u64) -> u64 {
    let mut rng = Rng::new(seed);
    let mut device = new_device(device_bytes, log_bytes);
    let mut store = open(&device);
    let mut model = Model::default();
    let mut discards = 0;
    for step in 0..steps {
        let mut next = model.clone();
        let txn = random_txn(&mut rng, &mut next, 12);
        store.submit(txn).unwrap_or_else(|e| panic!("seed {seed} step {step}: {e}"));
        model = next;
        match rng.below(12) {
            0..=4 => {
                commit_all(&mut store, device.as_ref());
            }
            5 => checkpoint(&mut store, device.as_ref()),
            6 | 7 => {
                checkpoint_step(&mut store, device.as_ref());
            }
            8 => {
                commit_all(&mut store, device.as_ref());
                drop(store);
                device = Arc::new(device.crash_randomly(&mut rng));
                store = open(&device);
                assert_clean(&device, &format!("seed {seed} step {step}"));
            }
            _ => {}
        }
        discards += u64::from(discard_step(&mut store, device.as_ref(), step));
        while store.checkpoint_due() {
            checkpoint(&mut store, device.as_ref());
        }
        if step % 16 == 0 {
            model.assert_same(&mut store, &format!("seed {seed} step {step}"));
            let stored: u64 = store.statfs().stored_bytes;
            assert!(store.statfs().objects == model.objects.len() as u64 && stored <= 12 * 300_000);
        }
    }
    commit_all(&mut store, device.as_ref());
    model.assert_same(&mut store, &format!("seed {seed} at the end"));
    checkpoint(&mut store, device.as_ref());
    model.assert_same(&mut store, &format!("seed {seed} after the last checkpoint"));
    assert_clean(&device, &format!("seed {seed}"));
    drop(store);
    model.assert_same(&mut open(&device), &format!("seed {seed} reopened"));
    discards
}

#[test]
fn the_store_answers_like_the_model() {
    let discards: u64 = seeds(12).map(|seed| run(seed, 200, 16 << 20, 1 << 20)).sum();
    assert!(discards > 12 * effort(), "{discards} discards");
}

#[test]
fn a_tiny_log_makes_checkpoints_stand_in_for_it() {
    for seed in seeds(4) {
        run(100 + seed, 150, 16 << 20, 256 << 10);
    }
}
