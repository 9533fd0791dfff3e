//! Driving a store's jobs to completion on a device.

use std::sync::Arc;
use std::time::Duration;

use store::{Device, FormatOptions, Options, Store, Txn, TxnSeq};
use testkit::SimDevice;
use types::Fsid;

pub const FSID: Fsid = Fsid([0xaa; 16]);
pub const OSD: Fsid = Fsid([0xbb; 16]);

pub fn format_options(log_bytes: u64) -> FormatOptions {
    FormatOptions { fsid: FSID, osd_uuid: OSD, log_bytes: Some(log_bytes) }
}

/// A small store: little memory, so that checkpoints come often, direct writes from 16 KiB on, and small
/// ones straight to their places from two blocks on.
pub fn small_options() -> Options {
    Options {
        memory_bytes: 4 << 20,
        direct_write_min_bytes: 16 << 10,
        direct_batch_min_bytes: 8 << 10,
        discard_min_bytes: 8 << 10,
        discard_after: Duration::from_secs(3),
        ..Options::default()
    }
}

pub fn new_device(bytes: u64, log_bytes: u64) -> Arc<SimDevice> {
    let device = SimDevice::new(bytes);
    Store::format(&device, format_options(log_bytes)).expect("format");
    Arc::new(device)
}

pub fn open(device: &Arc<SimDevice>) -> Store {
    Store::open(device.clone() as Arc<dyn Device>, small_options()).expect("open")
}

/// Commits everything that was submitted.
pub fn commit_all(store: &mut Store, device: &dyn Device) -> TxnSeq {
    while store.durable() < store.submitted() {
        match store.take_commit() {
            Some(job) => {
                let done = job.execute(device);
                store.committed(done).expect("commit");
            }
            None => checkpoint(store, device),
        }
    }
    store.durable()
}

/// One step of a checkpoint, if one can be taken.
pub fn checkpoint_step(store: &mut Store, device: &dyn Device) -> bool {
    let Some(job) = store.take_checkpoint() else { return false };
    let done = job.execute(device);
    store.checkpointed(done).expect("checkpoint");
    true
}

/// Tells the store the time, and does what it wants done then; `false` when that is nothing.
pub fn discard_step(store: &mut Store, device: &dyn Device, seconds: u64) -> bool {
    let Some(job) = store.take_discard(Duration::from_secs(seconds)) else { return false };
    let done = job.execute(device);
    store.checkpointed(done).expect("discard");
    true
}

/// A whole checkpoint, with the commits it waits for.
pub fn checkpoint(store: &mut Store, device: &dyn Device) {
    let before = store.counters().checkpoints;
    while store.counters().checkpoints == before {
        if checkpoint_step(store, device) {
            continue;
        }
        match store.take_commit() {
            Some(job) => {
                let done = job.execute(device);
                store.committed(done).expect("commit");
            }
            None => return,
        }
    }
}

/// Submits and commits one transaction.
pub fn commit(store: &mut Store, device: &dyn Device, txn: Txn) {
    store.submit(txn).expect("submit");
    commit_all(store, device);
}

/// Asserts that an offline check of the device, data included, finds nothing.
pub fn assert_clean(device: &SimDevice, what: &str) {
    let report = store::fsck(device, true).unwrap_or_else(|e| panic!("{what}: {e}"));
    assert!(report.is_clean(), "{what}: {:#?}", report.findings);
}
