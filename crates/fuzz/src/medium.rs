//! What a store's medium holds: the inputs come from a small store.

use std::sync::Arc;

use bytes::Bytes;
use store::{FormatOptions, ObjectKey, Options, Space, Store, Txn};
use testkit::SimDevice;
use types::{Fsid, HObject, PoolId};

pub(crate) use store::hostile::{page, record, superblock};

const MEDIUM_BYTES: u64 = 64 << 20;

fn object(nr: u32) -> ObjectKey {
    let name = format!("object.{nr}").into();
    ObjectKey::replicated(HObject {
        pool: PoolId(3),
        hash: nr.wrapping_mul(0x9e37_79b9),
        name,
        ..HObject::min()
    })
}

fn changes(nr: u32) -> Txn {
    let mut txn = Txn::new();
    let object = object(nr);
    let bytes = |len: usize| Bytes::from(vec![nr as u8 | 1; len]);
    txn.write(&object, u64::from(nr) * 512, bytes(9_000)).set_attr(&object, "_", bytes(90));
    txn.omap_set(&object, vec![("key".into(), bytes(30)), (format!("key.{nr}").into(), bytes(40))]);
    txn.omap_set_header(&object, bytes(7)).clone_object(&object, &self::object(nr + 1_000));
    txn.write(&object, 0, bytes(300)).zero(&object, 4_096, 4_096).truncate(&object, 7_000);
    txn.set(Space::Meta, format!("meta.{nr}"), bytes(20));
    txn
}

/// What is on the medium of a store with a checkpoint and more in its log.
fn medium() -> Option<Vec<u8>> {
    let device = Arc::new(SimDevice::new(MEDIUM_BYTES));
    let options = FormatOptions { fsid: Fsid([1; 16]), osd_uuid: Fsid([2; 16]), log_bytes: None };
    Store::format(device.as_ref(), options).ok()?;
    let mut store = Store::open(device.clone(), Options::default()).ok()?;
    for nr in 0..40 {
        store.submit(changes(nr)).ok()?;
        if nr % 4 == 0 {
            let commit = store.take_commit()?;
            store.committed(commit.execute(device.as_ref())).ok()?;
        }
        if nr != 36 {
            continue;
        }
        while let Some(step) = store.take_checkpoint() {
            store.checkpointed(step.execute(device.as_ref())).ok()?;
        }
    }
    let commit = store.take_commit()?;
    store.committed(commit.execute(device.as_ref())).ok()?;
    Some(device.peek(0, MEDIUM_BYTES as usize))
}

pub(crate) fn seeds_of(target: &str) -> Vec<Vec<u8>> {
    let [superblocks, records, pages] = store::hostile::found_on(&medium().unwrap_or_default());
    match target {
        "superblock" => superblocks,
        "record" => records,
        _ => pages,
    }
}
