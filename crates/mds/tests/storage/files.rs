//! Files' objects: cut, probed; backtraces.

use codec::Decode;
use mds::format::{Backtrace, BaseInode};
use mds::storage::{Event, ObjectName, Settings, StorageError, Tag, Truncation};
use messages::fs::FileLayout;
use types::{Errno, Ino, PoolId, SnapContext, Utime};

use crate::common::cases;
use crate::model::{Bed, DATA, Object, Objects};

const INO: Ino = Ino(0x100_0000_0005);
const OLD_POOL: PoolId = PoolId(7);

fn layout() -> FileLayout {
    FileLayout { stripe_unit: 10, stripe_count: 2, object_size: 20, pool: DATA, pool_ns: "ns".into() }
}

fn object(no: u64) -> ObjectName {
    ObjectName { pool: DATA, nspace: "ns".into(), name: format!("10000000005.{no:08x}").into() }
}

/// A file of 100 bytes: objects of 20 bytes in sets of two.
fn file() -> Objects {
    let mut objects = Objects::default();
    for (no, size) in [(0, 20), (1, 20), (2, 20), (3, 20), (4, 10), (5, 10)] {
        objects.0.insert(object(no), Object { data: vec![1; size], ..Object::default() });
    }
    objects
}

fn sizes(objects: &Objects) -> Vec<usize> {
    (0..6).map(|no| objects.0.get(&object(no)).map_or(0, |o| o.data.len())).collect()
}

fn cut(size: u64, truncate_seq: u32) -> Truncation {
    Truncation { ino: INO, layout: layout(), snaps: SnapContext::default(), from: 100, size, truncate_seq }
}

#[test]
fn a_file_is_cut_where_its_bytes_lie() {
    for (size, want) in [
        (100, [20, 20, 20, 20, 10, 10]),
        (85, [20, 20, 20, 20, 5, 0]),
        (45, [20, 20, 5, 0, 0, 0]),
        (40, [20, 20, 0, 0, 0, 0]),
        (25, [15, 10, 0, 0, 0, 0]),
        (0, [0; 6]),
    ] {
        let mut bed = Bed::over(file());
        bed.storage.truncate(Tag(1), cut(size, 2));
        assert_eq!(bed.run(), [Event::Done { tag: Tag(1) }]);
        assert_eq!(sizes(&bed.objects), want, "{size}");
        // A client that has written since knows of the truncation.
        for no in 0..6 {
            let object = bed.objects.0.get_mut(&object(no)).expect("an object");
            object.truncate_seq = 2;
            object.data = vec![2; 20];
        }
        bed.storage.truncate(Tag(2), cut(size, 2));
        bed.run();
        assert_eq!(sizes(&bed.objects), [20; 6]);
    }
}

#[test]
fn a_failed_cut_is_told_and_a_few_objects_are_cut_at_once() {
    let mut bed = Bed::with(file(), Settings { ops_of_a_truncation: 2, ..Settings::default() });
    bed.storage.truncate(Tag(1), cut(0, 2));
    bed.collect();
    assert_eq!(bed.waiting.len(), 2);
    let op = bed.waiting.pop_front().expect("an operation");
    bed.storage.done(bed.now, op.id, Err(Errno::EIO));
    let error = StorageError::Os { object: "10000000005.00000000".into(), errno: Errno::EIO };
    assert_eq!(bed.run(), [Event::Failed { tag: Tag(1), error }]);
}

#[test]
fn the_end_of_a_file_is_found() {
    for (from, limit, size) in [(0, 200, 100), (90, 100, 100), (0, 50, 70), (100, 400, 100), (150, 400, 150)]
    {
        let mut bed = Bed::over(file());
        bed.storage.probe(Tag(1), INO, &layout(), from, limit);
        let events = bed.run();
        let [Event::Probed { tag: Tag(1), size: found, mtime }] = events[..] else { panic!("{events:?}") };
        assert_eq!(found, size, "{from} {limit}");
        assert_eq!(mtime > Utime::ZERO, from < 120, "the model's time is the object's size");
    }
    let mut bed = Bed::over(Objects::default());
    bed.storage.probe(Tag(1), INO, &layout(), 7, 100);
    assert_eq!(bed.run(), [Event::Probed { tag: Tag(1), size: 7, mtime: Utime::ZERO }]);
}

#[test]
fn backtraces_are_stored_and_fetched() {
    for (place, real) in cases("backtrace") {
        let mut trace = Backtrace::from_bytes(real.clone()).expect("a backtrace");
        let mut bed = Bed::over(Objects::default());
        bed.storage.store_backtrace(Tag(1), &trace, Some(&layout()));
        assert_eq!(bed.run(), [Event::Done { tag: Tag(1) }]);
        let name = format!("{:x}.00000000", trace.ino.0);
        let stored = &bed.objects.0[&ObjectName::new(trace.pool, name.as_str())];
        assert_eq!(
            (stored.xattrs.get("parent"), stored.xattrs.contains_key("layout")),
            (Some(&real), true),
            "{place}"
        );
        bed.storage.fetch_backtrace(Tag(2), trace.pool, trace.ino);
        assert_eq!(bed.run(), [Event::Backtrace { tag: Tag(2), result: Ok(Box::new(trace.clone())) }]);
        trace.old_pools = [OLD_POOL].into();
        bed.storage.store_backtrace(Tag(3), &trace, Some(&layout()));
        bed.run();
        let old = &bed.objects.0[&ObjectName::new(OLD_POOL, name.as_str())];
        assert_eq!(old.xattrs.keys().collect::<Vec<_>>(), ["parent"]);
    }
}

#[test]
fn a_backtrace_that_is_not_there_is_told_apart_from_a_damaged_one() {
    let mut bed = Bed::over(Objects::default());
    let name = "10000000005.00000000";
    let fetch = |bed: &mut Bed| {
        bed.storage.fetch_backtrace(Tag(2), DATA, INO);
        match bed.run().pop() {
            Some(Event::Backtrace { result: Err(error), .. }) => error,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(fetch(&mut bed), StorageError::Missing { object: name.into() });
    bed.objects.0.insert(ObjectName::new(DATA, name), Object::default());
    assert_eq!(fetch(&mut bed), StorageError::Os { object: name.into(), errno: Errno::ENODATA });
    let object = bed.objects.0.get_mut(&ObjectName::new(DATA, name)).expect("an object");
    object.xattrs.insert("parent".into(), "x".into());
    assert!(matches!(fetch(&mut bed), StorageError::Damaged { .. }));
}

#[test]
fn base_inodes_are_stored_and_loaded() {
    for (place, real) in cases("base_inode") {
        let inode = BaseInode::from_bytes(real.clone()).expect("an inode");
        let mut bed = Bed::over(Objects::default());
        bed.storage.store_base_inode(Tag(1), &inode);
        assert_eq!(bed.run(), [Event::Done { tag: Tag(1) }]);
        assert_eq!(bed.objects.get(&place).data, real);
        bed.storage.load_base_inode(Tag(2), inode.0.inode.ino);
        assert_eq!(bed.run(), [Event::BaseInode { tag: Tag(2), result: Ok(Box::new(inode)) }]);
    }
}
