//! Tables: what was saved is there when the rank is opened again.

use std::collections::BTreeMap;

use bytes::Bytes;
use codec::Decode;
use mds::format::{SessionInfo, SnapTable};
use mds::storage::{Event, Mode, StorageError, Tables, Tag};
use types::{EntityName, Ino, SnapId};

use crate::common::cases;
use crate::model::{Bed, Objects};

fn opened(objects: Objects) -> Tables {
    let mut bed = Bed::over(objects);
    bed.storage.open(Mode::Active);
    match bed.run().pop() {
        Some(Event::Opened(tables)) => *tables,
        other => panic!("{other:?}"),
    }
}

#[test]
fn tables_are_what_was_saved() {
    let mut bed = Bed::fresh();
    let mut tables = opened(bed.objects.clone());
    tables.inos.version = 5;
    tables.inos.free.remove_run(0x100_0000_0000, 10);
    bed.storage.save_inos(Tag(1), &tables.inos);
    let (_, stored) = cases("snap_table").remove(0);
    tables.snaps = Some(Box::new(SnapTable::from_bytes(stored.clone()).expect("a table")));
    bed.storage.save_snaps(Tag(2), tables.snaps.as_ref().expect("a table"));
    assert_eq!(bed.run(), [Event::Done { tag: Tag(1) }, Event::Done { tag: Tag(2) }]);
    assert_eq!(bed.objects.get("mds_snaptable").data, stored, "byte for byte");
    assert_eq!(opened(bed.objects), tables);
}

#[test]
fn a_fresh_rank_has_numbers_and_no_session() {
    let tables = opened(Bed::fresh().objects);
    let free: Vec<_> = tables.inos.free.iter().collect();
    assert_eq!(free, [(1 << 40, 1 << 40)]);
    assert_eq!((tables.session_version, tables.sessions.len()), (0, 0));
    let snaps = tables.snaps.expect("the first rank has it");
    assert_eq!((snaps.last_snap, snaps.realms_v2_since), (SnapId(1), SnapId(2)));
    assert!(!tables.inos.free.contains(Ino(1)));
}

/// More sessions than a page has; those that changed are stored, those that closed go.
#[test]
fn sessions_are_saved_as_they_change() {
    let mut bed = Bed::fresh();
    let (_, real) = cases("session").remove(0);
    let info = SessionInfo::from_bytes(real.clone()).expect("a session");
    let changed: BTreeMap<_, _> = (0..2_500).map(|n| (EntityName::client(n), Some(&info))).collect();
    bed.storage.save_sessions(Tag(1), 2_500, &changed);
    let closed = BTreeMap::from([(EntityName::client(7), None)]);
    bed.storage.save_sessions(Tag(2), 2_501, &closed);
    assert_eq!(bed.run(), [Event::Done { tag: Tag(1) }, Event::Done { tag: Tag(2) }]);
    assert_eq!(bed.objects.get("mds0_sessionmap").omap.get(&b"client.8"[..]), Some(&real));
    let tables = opened(bed.objects);
    assert_eq!((tables.session_version, tables.sessions.len()), (2_501, 2_499));
    assert_eq!(tables.sessions.get(&EntityName::client(8)), Some(&info));
}

#[test]
fn tables_that_are_missing_or_damaged_end_the_rank() {
    let whole = Bed::fresh().objects;
    let fatal = |objects| {
        let mut bed = Bed::over(objects);
        bed.storage.open(Mode::Active);
        match &bed.run()[..] {
            [Event::Fatal(error)] => error.clone(),
            other => panic!("{other:?}"),
        }
    };
    for name in ["mds0_inotable", "mds_snaptable", "mds0_sessionmap", "200.00000000"] {
        let mut objects = whole.clone();
        objects.remove(name);
        assert_eq!(fatal(objects), StorageError::Missing { object: name.to_owned() });
    }
    for name in ["mds0_inotable", "mds_snaptable", "400.00000000", "200.00000000"] {
        let mut objects = whole.clone();
        objects.get_mut(name).data.truncate(5);
        assert!(matches!(fatal(objects), StorageError::Damaged { object, .. } if object == name), "{name}");
    }
    for (key, value) in [("client.x", &b""[..]), ("client.4", b"\x07"), ("nobody", b"")] {
        let mut objects = whole.clone();
        let (key, value) = (Bytes::from_static(key.as_bytes()), Bytes::from_static(value));
        objects.get_mut("mds0_sessionmap").omap.insert(key, value);
        assert!(fatal(objects).is_damage());
    }
    // File systems of old have no pointer.
    let mut objects = whole;
    objects.remove("400.00000000");
    opened(objects);
}
