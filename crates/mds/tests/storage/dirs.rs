//! Fragments of directories: pages, batches, damage.

use bytes::Bytes;
use codec::Decode;
use mds::format::{Dentry, DentryKey, DirFrag, Fnode, Link};
use mds::storage::{DirCommit, Event, LoadedDir, MAX_COMMIT_BYTES, Settings, StorageError, Tag};
use messages::fs::Frag;
use types::{Ino, SnapId};

use crate::common::{cases, unhex};
use crate::model::{Bed, Objects};

const DIR: DirFrag = DirFrag { ino: Ino(0x100_0000_0001), frag: Frag::ROOT };

fn link(ino: u64) -> Dentry {
    let link = Link::Remote { ino: Ino(ino), d_type: 8 };
    Dentry { first: SnapId(2), alternate_name: Bytes::new(), link }
}

fn new_dir(version: u64, names: u64) -> DirCommit {
    let mut commit = DirCommit::new(Fnode { version, ..Fnode::default() });
    commit.is_new = true;
    for n in 0..names {
        commit.set(&DentryKey::head(format!("name{n:05}")), &link(n));
    }
    commit
}

fn pages(events: Vec<Event>) -> Vec<LoadedDir> {
    let page = |event| match event {
        Event::DirLoaded { tag: Tag(5), dir: DIR, loaded } => *loaded,
        other => panic!("{other:?}"),
    };
    events.into_iter().map(page).collect()
}

#[test]
fn a_fragment_comes_in_pages() {
    let settings = Settings { names_per_page: 100, ..Settings::default() };
    let mut bed = Bed::with(Objects::default(), settings);
    bed.storage.commit_dir(Tag(1), DIR, new_dir(7, 250));
    assert_eq!(bed.run(), [Event::DirCommitted { tag: Tag(1), dir: DIR }]);
    bed.storage.load_dir(Tag(5), DIR);
    let pages = pages(bed.run());
    let of: Vec<_> = pages.iter().map(|p| (p.dentries.len(), p.fnode.version, p.is_last)).collect();
    assert_eq!(of, [(100, 7, false), (100, 7, false), (50, 7, true)]);
    let names = pages.iter().flat_map(|p| &p.dentries).enumerate();
    for (n, (key, dentry)) in names {
        assert_eq!((key, dentry), (&DentryKey::head(format!("name{n:05}")), &link(n as u64)));
    }
}

#[test]
fn names_are_found_by_their_keys() {
    let mut bed = Bed::over(Objects::default());
    bed.storage.commit_dir(Tag(1), DIR, new_dir(7, 10));
    bed.run();
    let keys = ["name00003", "other"].map(DentryKey::head);
    bed.storage.load_names(Tag(5), DIR, &keys);
    let found = &pages(bed.run())[0];
    assert_eq!((found.dentries.as_slice(), found.is_last), (&[(keys[0].clone(), link(3))][..], true));
}

#[test]
fn changes_leave_the_other_names() {
    let mut bed = Bed::over(Objects::default());
    bed.storage.commit_dir(Tag(1), DIR, new_dir(7, 3));
    let mut change = DirCommit::new(Fnode { version: 8, ..Fnode::default() });
    change.remove(&DentryKey::head("name00001"));
    change.set(&DentryKey { name: "name00001".into(), last: SnapId(4) }, &link(9));
    bed.storage.commit_dir(Tag(2), DIR, change);
    bed.run();
    bed.storage.load_dir(Tag(5), DIR);
    let found = &pages(bed.run())[0];
    let keys: Vec<_> =
        found.dentries.iter().map(|(key, _)| String::from_utf8(key.to_key()).expect("text")).collect();
    assert_eq!(
        (found.fnode.version, keys),
        (8, vec!["name00000_head".into(), "name00001_4".into(), "name00002_head".into()])
    );
}

/// The header with the new version comes last, however large the change is.
#[test]
fn a_large_commit_takes_several_operations() {
    let mut bed = Bed::over(Objects::default());
    bed.storage.commit_dir(Tag(1), DIR, new_dir(7, 0));
    bed.run();
    let mut change = DirCommit::new(Fnode { version: 8, ..Fnode::default() });
    for n in 0..25 {
        change.set.insert(format!("n{n}_head").into(), vec![0; 1 << 20].into());
    }
    bed.storage.commit_dir(Tag(2), DIR, change);
    bed.collect();
    assert_eq!(bed.waiting.len(), 3);
    for op in &bed.waiting {
        let bytes: usize =
            op.steps.iter().map(|s| messages::osd::OsdOp::from(s.op.clone()).indata.len()).sum();
        assert!(bytes < MAX_COMMIT_BYTES + 1_000, "{bytes}");
    }
    let version = |bed: &Bed| {
        Fnode::from_bytes(bed.objects.get(&DIR.object()).header.clone()).expect("a header").version
    };
    for _ in 0..2 {
        bed.step(0);
        assert_eq!((version(&bed), bed.events.len()), (7, 0));
    }
    bed.step(0);
    assert_eq!((version(&bed), &bed.events[..]), (8, &[Event::DirCommitted { tag: Tag(2), dir: DIR }][..]));
}

#[test]
fn a_fragment_without_its_object_is_damaged() {
    let mut bed = Bed::over(Objects::default());
    bed.storage.load_dir(Tag(5), DIR);
    let missing = StorageError::Missing { object: DIR.object() };
    assert!(missing.is_damage());
    assert_eq!(bed.run(), [Event::DirFailed { tag: Tag(5), dir: DIR, error: missing.clone() }]);
    bed.storage.commit_dir(Tag(1), DIR, DirCommit::new(Fnode::default()));
    assert_eq!(bed.run(), [Event::Fatal(missing)]);
    assert!(bed.objects.0.is_empty(), "nothing was made");
}

/// A name that is not understood is told; the others are good.
#[test]
fn damaged_names_are_told_apart() {
    let mut bed = Bed::over(Objects::default());
    bed.storage.commit_dir(Tag(1), DIR, new_dir(7, 3));
    bed.run();
    let object = bed.objects.get_mut(&DIR.object());
    object.omap.insert("name00001_head".into(), Bytes::from_static(b"\x02\0\0\0\0\0\0\0x"));
    object.omap.insert("nokey".into(), Bytes::from_static(b""));
    bed.storage.load_dir(Tag(5), DIR);
    let found = &pages(bed.run())[0];
    let damaged: Vec<_> = found.damaged.iter().map(|(key, _)| &key[..]).collect();
    assert_eq!((found.dentries.len(), damaged), (2, vec![&b"name00001_head"[..], b"nokey"]));
    bed.objects.get_mut(&DIR.object()).header = Bytes::new();
    bed.storage.load_dir(Tag(5), DIR);
    let events = bed.run();
    assert!(
        matches!(&events[..], [Event::DirFailed { error: StorageError::Damaged { .. }, .. }]),
        "{events:?}"
    );
}

#[test]
fn a_fragment_that_counts_as_new_again_keeps_its_names_and_a_removed_one_is_gone() {
    let mut bed = Bed::over(Objects::default());
    bed.storage.commit_dir(Tag(1), DIR, new_dir(7, 3));
    // As after a replay of the event that made it.
    bed.storage.commit_dir(Tag(2), DIR, new_dir(8, 1));
    bed.run();
    assert_eq!(bed.objects.get(&DIR.object()).omap.len(), 3);
    for tag in [Tag(3), Tag(4)] {
        bed.storage.remove_dir(tag, DIR);
        assert_eq!(bed.run(), [Event::DirRemoved { tag, dir: DIR }]);
    }
    assert!(bed.objects.0.is_empty());
}

/// What a real server stored is loaded, and stored again byte for byte.
#[test]
fn real_fragments_are_loaded() {
    let fnodes = cases("fnode");
    for (place, value) in cases("dentry") {
        let (object, key) = place.split_once('/').expect("object and key");
        let dir = DirFrag::of_object(object).expect("a fragment");
        let mut bed = Bed::over(Objects::default());
        bed.objects.put(object, Vec::new());
        let stored = bed.objects.get_mut(object);
        stored.header = fnodes[0].1.clone();
        stored.omap.insert(unhex(key).into(), value.clone());
        let before = stored.clone();
        bed.storage.load_dir(Tag(5), dir);
        let events = bed.run();
        let [Event::DirLoaded { loaded, .. }] = &events[..] else { panic!("{place}: {events:?}") };
        let mut commit = DirCommit::new(loaded.fnode.clone());
        loaded.dentries.iter().for_each(|(key, dentry)| commit.set(key, dentry));
        bed.storage.commit_dir(Tag(1), dir, commit);
        bed.run();
        assert_eq!(*bed.objects.get(object), before, "{place}");
    }
}
