//! Damaged media: whatever changes, a read gives the right bytes or an error that says what is damaged, and nothing
//! that was acknowledged goes missing silently.

mod common;

use std::sync::Arc;

use common::*;
use store::{Corruption, Device, DeviceError, DeviceOp, Foreign, Options, Priority, Store, StoreError, Txn};
use testkit::{Rng, SimDevice};
use types::Fsid;

const DEVICE: u64 = 2 << 20;

fn try_open(device: &Arc<SimDevice>) -> Result<Store, StoreError> {
    Store::open(device.clone() as Arc<dyn Device>, small_options())
}

/// The byte range of the log on a device of this size, as the format lays it out.
fn log_start(device: &SimDevice) -> u64 {
    let at = (0..device.len()).step_by(4096).find(|at| device.peek(*at, 4) == b"LOGr");
    at.expect("a record")
}

#[test]
fn any_flipped_byte_of_a_log_is_refused_or_legally_cut() {
    const RECORDS: u64 = 64;
    let device = new_device(DEVICE, 512 << 10);
    let mut store = open(&device);
    let mut rng = Rng::new(5);
    let mut states = vec![Model::default()];
    for i in 0..RECORDS {
        let mut model = states.last().expect("never empty").clone();
        let mut txn = Txn::new();
        txn.write(&object(i % 3), 100 * i, rng.bytes(60)).set(space(1), format!("log.{i:03}"), rng.bytes(20));
        model.apply(&txn);
        commit(&mut store, device.as_ref(), txn);
        states.push(model);
    }
    drop(store);
    let start = log_start(&device);
    let (mut refused, mut cut) = (0, 0);
    let stride = (11 / effort()).max(1);
    for record in 0..RECORDS {
        let used = 64
            + u64::from(u32::from_le_bytes(
                device.peek(start + record * 4096 + 52, 4).try_into().expect("four bytes"),
            ));
        assert!((200..1000).contains(&used), "{used}");
        for at in ((record % stride)..used).step_by(stride as usize) {
            let damaged = Arc::new(device.fork());
            damaged.flip(start + record * 4096 + at, 1 << (at % 8));
            match try_open(&damaged) {
                Ok(mut store) => {
                    assert_eq!(record, RECORDS - 1, "only the last record may be taken for a torn tail");
                    states[RECORDS as usize - 1].assert_same(&mut store, "cut tail");
                    cut += 1;
                }
                Err(StoreError::Corrupt(Corruption::Log { record: named, .. })) => {
                    assert_eq!(named, record + 1);
                    refused += 1;
                }
                Err(e) => panic!("record {record}, byte {at}: {e}"),
            }
        }
    }
    assert!(refused > 1000 && cut > 20, "{refused} refused, {cut} cut");
}

/// A store with every kind of content, checkpointed, with some records in the log.
fn sample() -> (Arc<SimDevice>, Model) {
    let device = new_device(DEVICE, 256 << 10);
    let mut store = open(&device);
    let mut model = Model::default();
    let mut rng = Rng::new(11);
    for i in 0..60 {
        let txn = random_txn(&mut rng, &mut model, 8);
        commit(&mut store, device.as_ref(), txn);
        if i == 30 || i == 56 {
            checkpoint(&mut store, device.as_ref());
        }
    }
    // The last record may legally be taken for a torn tail: let it be an empty one.
    commit(&mut store, device.as_ref(), Txn::new());
    (device, model)
}

/// Reads everything; each answer must be right or an error. Returns how many errors there were.
fn assert_right_or_error(store: &mut Store, model: &Model, what: &str) -> u32 {
    let mut errors = 0;
    let mut expect = |ok: Result<bool, StoreError>| match ok {
        Ok(same) => assert!(same, "{what}: wrong answer"),
        Err(StoreError::Corrupt(_)) => errors += 1,
        Err(e) => panic!("{what}: {e}"),
    };
    for (key, o) in &model.objects {
        expect(store.read(key, 0, u64::MAX).map(|d| d == o.data));
        expect(store.attrs(key).map(|a| a.into_iter().eq(o.attrs.clone())));
        expect(
            store
                .omap_list(key, std::ops::Bound::Unbounded, usize::MAX, usize::MAX)
                .map(|(entries, _)| entries.into_iter().eq(o.omap.clone())),
        );
    }
    for ((space, key), value) in &model.keys {
        expect(store.get(*space, key).map(|v| v.as_ref() == Some(value)));
    }
    errors
}

#[test]
fn any_flipped_byte_gives_the_right_bytes_or_an_error() {
    let (device, model) = sample();
    let (mut refused, mut errors, mut harmless, mut noticed) = (0, 0, 0, 0);
    let mut rng = Rng::new(1);
    for block in 0..DEVICE / 4096 {
        if device.peek(block * 4096, 4096).iter().all(|b| *b == 0) {
            continue;
        }
        for _ in 0..6 * effort() {
            let damaged = Arc::new(device.fork());
            // Heads and tails of structures more often than their middle.
            let inside = if rng.one_in(2) { rng.below(96) } else { rng.below(4096) };
            damaged.flip(block * 4096 + inside, 1 << rng.below(8));
            let report = store::fsck(damaged.as_ref(), true);
            noticed += u32::from(report.is_ok_and(|r| !r.is_clean()));
            match try_open(&damaged) {
                Ok(mut store) => match assert_right_or_error(&mut store, &model, &format!("block {block}")) {
                    0 => {
                        checkpoint(&mut store, damaged.as_ref());
                        model.assert_same(&mut open(&damaged), &format!("block {block}, gone on"));
                        harmless += 1;
                    }
                    _ => errors += 1,
                },
                Err(StoreError::Corrupt(_)) => refused += 1,
                Err(e) => panic!("block {block}: {e}"),
            }
        }
    }
    assert!(refused > 5 && errors > 50 && noticed >= errors, "{refused} {errors} {harmless} {noticed}");
}

#[test]
fn a_lost_or_misdirected_write_is_found_or_does_no_harm() {
    let mut found = 0;
    for nth in 1..40 {
        for misdirect in [false, true] {
            let device = new_device(DEVICE, 256 << 10);
            let mut store = open(&device);
            let mut model = Model::default();
            let mut rng = Rng::new(nth);
            for i in 0..14 {
                if i == 6 && misdirect {
                    device.misdirect_write(nth, rng.below(DEVICE / 4096 - 64) * 4096);
                } else if i == 6 {
                    device.lose_write(nth);
                }
                let txn = random_txn(&mut rng, &mut model, 8);
                // Reading back what a replaced block held may already meet the damage.
                match store.submit(txn) {
                    Ok(_) => {}
                    Err(StoreError::Corrupt(_)) => break,
                    Err(e) => panic!("{e}"),
                }
                commit_all(&mut store, device.as_ref());
                if i == 5 || i == 10 {
                    checkpoint(&mut store, device.as_ref());
                }
            }
            if store.submitted().0 < 14 {
                found += 1;
                continue;
            }
            commit(&mut store, device.as_ref(), Txn::new());
            drop(store);
            match try_open(&device) {
                Ok(mut store) => {
                    found += u32::from(assert_right_or_error(&mut store, &model, &format!("write {nth}")) > 0)
                }
                Err(StoreError::Corrupt(_)) => found += 1,
                Err(e) => panic!("write {nth}: {e}"),
            }
        }
    }
    assert!(found >= 10, "{found}");
}

#[test]
fn rot_in_data_is_named_and_healed_by_a_new_write() {
    let device = new_device(DEVICE, 256 << 10);
    let mut store = open(&device);
    let (a, b) = (object(1), object(2));
    let mut txn = Txn::new();
    txn.write(&a, 0, vec![0x5a; 20_000]).write(&b, 0, vec![0xa5; 20_000]);
    commit(&mut store, device.as_ref(), txn);
    checkpoint(&mut store, device.as_ref());
    let place = (0..DEVICE).step_by(4096).filter(|at| device.peek(*at, 1) == [0x5a]).nth(2).expect("placed");
    device.flip(place + 77, 1);
    let rotten = StoreError::Corrupt(Corruption::Data { key: Box::new(a.clone()), offset: 8192, len: 4096 });
    assert_eq!(store.read(&a, 0, 20_000), Err(rotten.clone()));
    assert_eq!(store.read(&a, 9000, 10), Err(rotten.clone()));
    assert_eq!(store.read(&a, 0, 8192).map(|d| d.len()), Ok(8192));
    assert_eq!(store.read(&b, 0, 20_000).map(|d| d.len()), Ok(20_000));
    assert!(store.counters().corrupt_blocks >= 2);
    let before = store.submitted();
    let mut part = Txn::new();
    part.set(space(1), "k", "v").write(&a, 8200, vec![1; 10]);
    assert_eq!(store.submit(part), Err(rotten), "a partial overwrite must not bless rotten bytes");
    assert_eq!((store.submitted(), store.get(space(1), b"k")), (before, Ok(None)));
    let mut whole = Txn::new();
    whole.write(&a, 8192, vec![2; 4096]);
    commit(&mut store, device.as_ref(), whole);
    assert_eq!(store.read(&a, 8192, 4096).map(|d| d.to_vec()), Ok(vec![2; 4096]));
}

#[test]
fn rot_under_a_logged_partial_write_loses_that_block_and_no_other() {
    let device = new_device(DEVICE, 256 << 10);
    let mut store = open(&device);
    let a = object(1);
    let mut txn = Txn::new();
    txn.write(&a, 0, vec![0x5a; 20_000]);
    commit(&mut store, device.as_ref(), txn);
    checkpoint(&mut store, device.as_ref());
    let mut part = Txn::new();
    part.write(&a, 8200, vec![1; 10]).set(space(1), "k", "v");
    commit(&mut store, device.as_ref(), part);
    drop(store);
    let place = (0..DEVICE).step_by(4096).filter(|at| device.peek(*at, 1) == [0x5a]).nth(2).expect("placed");
    device.flip(place + 77, 1);
    let mut store = open(&device);
    let lost = StoreError::Corrupt(Corruption::Data { key: Box::new(a.clone()), offset: 8192, len: 4096 });
    assert_eq!(store.read(&a, 8192, 1), Err(lost.clone()));
    assert_eq!(store.read(&a, 0, 8192).map(|d| d.len()), Ok(8192));
    assert_eq!(store.get(space(1), b"k").map(|v| v.is_some()), Ok(true));
    checkpoint(&mut store, device.as_ref());
    let report = store::fsck(device.as_ref(), true).expect("fsck");
    assert_eq!(report.findings, vec![store::Finding::Lost { key: Box::new(a.clone()), offset: 8192 }]);
    assert_eq!(open(&device).read(&a, 8192, 1), Err(lost));
}

#[test]
fn one_superblock_copy_is_enough_and_none_is_refused() {
    let (device, model) = sample();
    for copy in [0, 1] {
        let damaged = Arc::new(device.fork());
        damaged.flip(copy * 4096 + 100, 1);
        model.assert_same(&mut try_open(&damaged).expect("the other copy"), "one copy");
        damaged.flip((1 - copy) * 4096 + 100, 1);
        assert_eq!(try_open(&damaged).err(), Some(StoreError::Corrupt(Corruption::Superblock)));
    }
    let empty = Arc::new(SimDevice::new(DEVICE));
    assert_eq!(try_open(&empty).err(), Some(StoreError::Foreign(Foreign::NotAStore)));
}

#[test]
fn a_damaged_allocation_map_is_made_anew_from_the_tree() {
    let (device, mut model) = sample();
    let mut rebuilt = 0;
    for block in 2..4 {
        for at in [0, 5, 8, 20, 60] {
            let damaged = Arc::new(device.fork());
            damaged.flip(block * 4096 + at, 0xff);
            let findings = store::fsck(damaged.as_ref(), true).expect("fsck").findings;
            rebuilt += u32::from(findings == vec![store::Finding::MapDigest]);
            let mut store = open(&damaged);
            let mut rng = Rng::new(at);
            let txn = random_txn(&mut rng, &mut model, 8);
            commit(&mut store, damaged.as_ref(), txn);
            checkpoint(&mut store, damaged.as_ref());
            assert_clean(&damaged, "rebuilt");
            model = Model::read_from(&mut open(&device));
        }
    }
    assert!(rebuilt >= 5, "{rebuilt}");
}

#[test]
fn a_store_of_another_owner_or_length_is_refused() {
    let (device, _) = sample();
    let other = Fsid([7; 16]);
    let open = |options| Store::open(device.clone() as Arc<dyn Device>, options).err();
    let expected = StoreError::Foreign(Foreign::Cluster { found: FSID, expected: other });
    assert_eq!(open(Options { expect_fsid: Some(other), ..Options::default() }), Some(expected));
    let expected = StoreError::Foreign(Foreign::Osd { found: OSD, expected: other });
    assert_eq!(open(Options { expect_osd_uuid: Some(other), ..Options::default() }), Some(expected));
    assert_eq!(
        open(Options { expect_fsid: Some(FSID), expect_osd_uuid: Some(OSD), ..Options::default() }),
        None
    );
    let longer = SimDevice::new(DEVICE + 4096);
    longer.write_at(0, &device.peek(0, DEVICE as usize)).expect("fits");
    let expected = Foreign::Length { found: DEVICE + 4096, expected: DEVICE };
    assert_eq!(try_open(&Arc::new(longer)).err(), Some(StoreError::Foreign(expected)));
}

#[test]
fn a_failing_device_stops_the_store_and_loses_nothing_acknowledged() {
    for op in [DeviceOp::Read, DeviceOp::Write, DeviceOp::Flush] {
        for nth in 1..30 {
            let device = new_device(DEVICE, 256 << 10);
            let mut store = open(&device);
            let mut rng = Rng::new(nth);
            let mut states = vec![Model::default()];
            device.fail_nth(op, nth);
            let failed = run_until_failure(&mut store, &device, &mut rng, &mut states);
            let durable = store.durable().0 as usize;
            if let Some(e) = failed {
                // Data that cannot be read is damaged data.
                let damaged =
                    op == DeviceOp::Read && matches!(e, StoreError::Corrupt(Corruption::Data { .. }));
                assert!(damaged || matches!(e, StoreError::Device(DeviceError::Io { .. })), "{e}");
                if op != DeviceOp::Read {
                    assert_eq!(store.submit(Txn::new()), Err(StoreError::Stopped));
                    assert!(store.take_commit().is_none() && store.take_checkpoint().is_none());
                }
            }
            drop(store);
            device.clear_faults();
            let found = Model::read_from(&mut try_open(&device).expect("mounts"));
            assert!(
                states[durable..].contains(&found),
                "{op:?} {nth}: a state at or after the last acknowledged"
            );
        }
    }
}

/// Works until the device fails; `states` gets the model after each accepted transaction.
fn run_until_failure(
    store: &mut Store,
    device: &Arc<SimDevice>,
    rng: &mut Rng,
    states: &mut Vec<Model>,
) -> Option<StoreError> {
    for i in 0..20 {
        let mut next = states.last().expect("never empty").clone();
        let txn = random_txn(rng, &mut next, 6);
        match store.submit(txn) {
            Ok(_) => states.push(next),
            Err(e) => return Some(e),
        }
        if let Some(job) = store.take_commit() {
            if let Err(e) = store.committed(job.execute(device.as_ref())) {
                return Some(e);
            }
        }
        if i % 4 == 3 {
            while let Some(job) = store.take_checkpoint() {
                if let Err(e) = store.checkpointed(job.execute(device.as_ref())) {
                    return Some(e);
                }
            }
        }
    }
    None
}

/// A part of a damaged block is changed: a client's transaction is refused, a member's loses the block and says so, also
/// when it is replayed from the log; nothing is made up.
#[test]
fn a_members_write_to_a_damaged_block_loses_that_block_alone() {
    for len in [100usize, 60_000] {
        let device = new_device(DEVICE, 512 << 10);
        let mut store = open(&device);
        let mut t = Txn::new();
        t.write(&object(1), 0, vec![0x55; 100_000]);
        commit(&mut store, device.as_ref(), t);
        checkpoint(&mut store, device.as_ref());
        drop(store);
        let damaged: Vec<u64> = (0..DEVICE)
            .step_by(4096)
            .filter(|at| device.peek(*at, 4096).iter().all(|b| *b == 0x55))
            .skip(5)
            .take(1)
            .collect();
        device.flip(damaged[0] + 9, 1);
        let mut store = open(&device);
        let bad = (0..24).find(|b| store.read(&object(1), b * 4096, 4096).is_err()).expect("one is bad");
        let mut t = Txn::new();
        t.write(&object(1), bad * 4096 + 50, vec![0x66; len]).set_attr(&object(1), "a", vec![1]);
        let refused = store.submit(t.clone());
        assert!(matches!(refused, Err(StoreError::Corrupt(Corruption::Data { .. }))), "{refused:?}");
        assert_eq!(store.take_lost(), vec![]);
        store.submit_as(t, Priority::Member).expect("submit");
        assert_eq!(store.take_lost(), vec![object(1)]);
        commit_all(&mut store, device.as_ref());
        for reopened in [false, true] {
            if reopened {
                drop(store);
                store = open(&device);
            }
            assert!(store.read(&object(1), bad * 4096, 10).is_err(), "the block is lost");
            assert!(store.read(&object(1), bad * 4096 + 60, 10).is_err(), "all of it");
            assert_eq!(store.read(&object(1), bad * 4096 - 10, 10), Ok(vec![0x55; 10].into()));
            let behind = if len > 4096 { 0x66 } else { 0x55 };
            assert_eq!(store.read(&object(1), (bad + 1) * 4096, 10), Ok(vec![behind; 10].into()));
            assert_eq!(store.attr(&object(1), b"a"), Ok(Some(vec![1].into())));
        }
        checkpoint(&mut store, device.as_ref());
        let mut t = Txn::new();
        t.remove(&object(1)).write(&object(1), 0, vec![1; 100_000]);
        commit(&mut store, device.as_ref(), t);
        checkpoint(&mut store, device.as_ref());
        assert_eq!(store.read(&object(1), 0, 100_000), Ok(vec![1; 100_000].into()));
        assert_clean(&device, "replaced");
    }
}

/// What is lost is lost in every copy that is made of it, and each is named, or nobody would replace it.
#[test]
fn copies_of_an_object_that_lost_a_block_are_named() {
    let device = new_device(DEVICE, 512 << 10);
    let mut store = open(&device);
    let mut t = Txn::new();
    t.write(&object(1), 0, vec![0x55; 40_000]).write(&object(9), 0, vec![0x44; 9000]);
    commit(&mut store, device.as_ref(), t);
    checkpoint(&mut store, device.as_ref());
    drop(store);
    let is_data = |at: &u64| device.peek(*at, 4096).iter().all(|b| *b == 0x55);
    let damaged = (0..DEVICE).step_by(4096).filter(is_data).nth(3).expect("a block");
    device.flip(damaged + 9, 1);
    let mut store = open(&device);
    let bad = (0..9).find(|b| store.read(&object(1), b * 4096, 4096).is_err()).expect("one is bad");
    let mut member = |change: &dyn Fn(&mut Txn)| {
        let mut t = Txn::new();
        change(&mut t);
        store.submit_as(t, Priority::Member).expect("submit");
        let named = store.take_lost();
        commit_all(&mut store, device.as_ref());
        named
    };
    let part = |t: &mut Txn| _ = t.write(&object(1), bad * 4096 + 50, vec![0x66; 100]);
    assert_eq!(member(&part), [object(1)]);
    assert_eq!(member(&|t| _ = t.clone_object(&object(1), &object(2))), [object(2)]);
    assert_eq!(member(&|t| _ = t.rename(&object(2), &object(3))), [object(3)]);
    assert_eq!(member(&|t| _ = t.clone_range(&object(1), &object(4), 0, 40_000, 0)), [object(4)]);
    assert_eq!(member(&|t| _ = t.clone_range(&object(1), &object(5), bad * 4096 + 7, 9, 0)), [object(5)]);
    // Parts that are whole, other objects, and what is replaced.
    assert_eq!(member(&|t| _ = t.clone_range(&object(1), &object(6), (bad + 1) * 4096, 4096, 0)), []);
    assert_eq!(member(&|t| _ = t.clone_object(&object(9), &object(7))), []);
    for (named, is_lost) in [(1, true), (3, true), (4, true), (6, false), (7, false), (8, false)] {
        assert_eq!(store.has_lost(&object(named)), Ok(is_lost), "{named}");
    }
    let mut t = Txn::new();
    t.write(&object(1), bad * 4096, vec![0x77; 4096]);
    commit(&mut store, device.as_ref(), t);
    assert_eq!(store.has_lost(&object(1)), Ok(false));
}

/// Whoever finds data damaged has it from another copy; a sector that cannot be read is no worse.
#[test]
fn data_that_cannot_be_read_is_named_as_damaged() {
    let device = new_device(4 << 20, 256 << 10);
    let mut store = open(&device);
    let mut t = Txn::new();
    t.write(&object(1), 0, vec![7; 64 << 10]);
    commit(&mut store, device.as_ref(), t);
    drop(store);
    let mut store = open(&device);
    store.stat(&object(1)).expect("metadata");
    device.fail_nth(DeviceOp::Read, 1);
    let read = store.read(&object(1), 0, 64 << 10);
    assert!(matches!(read, Err(StoreError::Corrupt(Corruption::Data { .. }))), "{read:?}");
    assert_eq!(store.counters().corrupt_blocks, 1);
    assert_eq!(store.read(&object(1), 0, 64 << 10).expect("reads"), vec![7; 64 << 10]);
}

/// On a slow device the number of reads decides how long an OSD takes to start. A piece that cannot be read as a whole is
/// read record by record.
#[test]
fn a_log_is_read_in_long_pieces() {
    const RECORDS: u64 = 1500;
    let device = new_device(64 << 20, 8 << 20);
    let mut store = open(&device);
    let mut model = Model::default();
    for i in 0..RECORDS {
        let mut t = Txn::new();
        t.set(space(1), format!("log.{:02}", i % 100), vec![i as u8; 100]);
        if i % 8 == 0 {
            // Placed: whether it counts depends on what follows.
            t.write(&object(i % 3), 0, vec![i as u8; 9000]);
        }
        model.apply(&t);
        commit(&mut store, device.as_ref(), t);
    }
    assert!(store.counters().checkpoints == 0 && store.counters().batches_direct > 100);
    let reads_to_open = |device: &Arc<SimDevice>| {
        let before = device.calls(DeviceOp::Read);
        let opened = try_open(device);
        (device.calls(DeviceOp::Read) - before, opened)
    };
    let (reads, opened) = reads_to_open(&device);
    model.assert_same(&mut opened.expect("opens"), "from the log");
    assert!(reads < 40, "{reads} reads for {RECORDS} records");
    let mut by_record = 0;
    for nth in 1..=reads {
        let fragile = Arc::new(device.fork());
        fragile.fail_nth(DeviceOp::Read, nth);
        match reads_to_open(&fragile) {
            (more, Ok(mut store)) => {
                model.assert_same(&mut store, "with a piece that could not be read");
                by_record += u64::from(more > reads);
            }
            (_, Err(e)) => assert!(matches!(e, StoreError::Device(_)), "{e}"),
        }
    }
    assert!(by_record >= 10, "{by_record} of {reads}");
}

/// A page of the metadata tree that is damaged is read from its second copy, and mended by the next checkpoint.
#[test]
fn a_damaged_page_is_read_from_its_copy_and_mended() {
    let device = new_device(4 << 20, 256 << 10);
    let mut store = open(&device);
    let mut model = Model::default();
    for i in 0..40u64 {
        let mut t = Txn::new();
        let entries = (0..20u8).map(|k| (vec![i as u8, k].into(), vec![k; 60].into())).collect();
        t.omap_set(&object(i), entries).set(space(1), format!("{i:03}"), vec![1; 400]);
        model.apply(&t);
        commit(&mut store, device.as_ref(), t);
    }
    checkpoint(&mut store, device.as_ref());
    assert_clean(&device, "sound");
    drop(store);
    let metadata = |device: &SimDevice| {
        let report = store::fsck(device, true).expect("a store");
        report.findings.iter().all(|f| matches!(f, store::Finding::PageCopy { .. })) && !report.is_clean()
    };
    let (mut first, mut second) = (0, 0);
    for block in 65..device.len() / 4096 {
        if device.peek(block * 4096, 4096).iter().all(|b| *b == 0) {
            continue;
        }
        let damaged = Arc::new(device.fork());
        damaged.flip(block * 4096 + 9, 0x20);
        if !metadata(&damaged) {
            continue;
        }
        let mut store = open(&damaged);
        model.assert_same(&mut store, "from the copies");
        match store.counters().corrupt_pages {
            0 => second += 1,
            _ => {
                first += 1;
                let mut t = Txn::new();
                t.set(space(2), "k", "v");
                commit(&mut store, damaged.as_ref(), t);
                checkpoint(&mut store, damaged.as_ref());
                assert_clean(&damaged, "mended");
            }
        }
    }
    assert!(first > 10 && second > 10, "{first} first copies, {second} second ones");
}
