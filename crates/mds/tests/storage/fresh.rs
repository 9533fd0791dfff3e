//! A fresh rank: what a server finds when it opens one, and what former attempts leave.

use codec::Decode;
use mds::format::{Backtrace, BaseInode, DirFrag, Fnode, LogEvent, names};
use mds::storage::{DirCommit, Event, Tag};
use messages::fs::Frag;
use types::{Ino, SnapId};

use crate::common::{cases, unhex};
use crate::model::{Bed, DATA, Objects, POOL, Random, noop};

fn first_event(objects: Objects) -> LogEvent {
    let mut bed = Bed::over(objects);
    bed.open();
    bed.storage.replay();
    match &bed.run()[..] {
        [Event::Replayed { event, .. }, Event::ReplayEnd { .. }] => (**event).clone(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_journal_begins_with_the_subtrees() {
    let LogEvent::SubtreeMap(map) = first_event(Bed::fresh().objects) else { panic!("another event") };
    let dir = |ino| DirFrag { ino, frag: Frag::ROOT };
    let own = [dir(Ino::ROOT), dir(names::mdsdir(0))];
    assert_eq!(map.subtrees.keys().copied().collect::<Vec<_>>(), own);
    assert_eq!((map.metadata.order.as_slice(), map.event_seq), (&own[..], 1));
}

/// Takes stamps of the real one's seconds out.
fn without_stamps(bytes: &[u8], seconds: u32) -> Vec<u8> {
    let mut out = bytes.to_vec();
    for at in 0..bytes.len().saturating_sub(7) {
        let found = u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
        if (seconds..seconds + 2).contains(&found) {
            out[at..at + 8].fill(0);
        }
    }
    out
}

/// Every object that ceph-mds made in an empty pool, but the table of open files, which it wrote later.
#[test]
fn a_fresh_rank_is_what_a_real_server_makes() {
    const SECONDS: u32 = 0x6b0b_ca3c;
    let mut bed = Bed::over(Objects::default());
    bed.now.wall = types::Utime::new(SECONDS, 1);
    bed.storage.create(bed.now, types::PoolId(3), SnapId(0));
    bed.run();
    let mut seen = std::collections::BTreeSet::new();
    for (place, real) in cases("fresh") {
        let name = place.split(['#', '/']).next().expect("a name");
        let object = bed.objects.find(name).unwrap_or_else(|| panic!("no {name}"));
        let ours = match (place.split_once('#'), place.split_once('/')) {
            (Some((_, "header")), _) => object.header.clone(),
            (Some((_, xattr)), _) => object.xattrs[xattr].clone(),
            (None, Some((_, key))) => object.omap[&unhex(key)[..]].clone(),
            (None, None) => object.data.clone().into(),
        };
        assert_eq!(without_stamps(&ours, SECONDS), without_stamps(&real, SECONDS), "{place}");
        seen.insert(name.to_owned());
    }
    let made: std::collections::BTreeSet<_> = bed.objects.0.keys().map(|o| o.name.to_string()).collect();
    assert_eq!(made, seen);
}

#[test]
fn the_root_and_the_folders_of_strays_are_there() {
    let mut bed = Bed::fresh();
    bed.storage.load_base_inode(Tag(1), Ino::ROOT);
    bed.storage.load_dir(Tag(2), DirFrag { ino: Ino::ROOT, frag: Frag::ROOT });
    bed.storage.load_dir(Tag(3), DirFrag { ino: names::mdsdir(0), frag: Frag::ROOT });
    let events = bed.run();
    let [
        Event::BaseInode { result: Ok(root), .. },
        Event::DirLoaded { loaded, .. },
        Event::DirLoaded { loaded: own, .. },
    ] = &events[..]
    else {
        panic!("{events:?}")
    };
    assert_eq!((root.0.inode.mode, root.0.inode.layout.pool), (0o040_755, DATA));
    assert!(root.0.realm.is_some() && loaded.dentries.is_empty());
    let strays: Vec<_> =
        own.dentries.iter().map(|(key, _)| String::from_utf8_lossy(&key.name).into_owned()).collect();
    assert_eq!(strays, (0..10).map(|i| format!("stray{i}")).collect::<Vec<_>>());
    let own_inode =
        BaseInode::from_bytes(bed.objects.get("100.00000000.inode").data.clone()).expect("an inode");
    assert_eq!(own_inode.0.inode.dirstat, own.fnode.fragstat);
    for i in 0..10 {
        let object = bed.objects.get(&format!("{:x}.00000000", names::stray(0, i).0));
        assert_eq!(Fnode::from_bytes(object.header.clone()).expect("a header").version, 1);
        let trace = Backtrace::from_bytes(object.xattrs["parent"].clone()).expect("a backtrace");
        assert_eq!((trace.pool, trace.ancestors[0].dir), (POOL, names::mdsdir(0)));
    }
}

/// An attempt that died, at any operation, is made anew.
#[test]
fn a_rank_is_made_again_after_a_crash() {
    for dies_at in 0..60 {
        let mut random = Random(dies_at as u64);
        let mut bed = Bed::over(Objects::default());
        bed.storage.create(bed.now, DATA, SnapId(0));
        bed.collect();
        for _ in 0..dies_at {
            if !bed.waiting.is_empty() {
                bed.step(random.below(bed.waiting.len()));
            }
        }
        let mut again = Bed::over(bed.objects);
        again.storage.create(again.now, DATA, SnapId(0));
        assert_eq!(again.run(), [Event::Created], "{dies_at}");
        assert!(matches!(first_event(again.objects), LogEvent::SubtreeMap(_)));
    }
}

/// A rank that worked and is made anew has nothing of before.
#[test]
fn a_rank_that_is_made_again_forgets() {
    let mut bed = Bed::fresh();
    bed.storage.append(&noop());
    let mut commit = DirCommit::default();
    commit.set.insert("name_head".into(), "value".into());
    bed.storage.commit_dir(Tag(1), DirFrag { ino: Ino::ROOT, frag: Frag::ROOT }, commit);
    bed.run();
    assert_eq!(bed.objects.get("1.00000000").omap.len(), 1);
    let mut again = Bed::over(bed.objects);
    again.storage.create(again.now, DATA, SnapId(7));
    again.run();
    first_event(again.objects.clone());
    assert!(again.objects.get("1.00000000").omap.is_empty());
    let table =
        mds::format::SnapTable::from_bytes(again.objects.get("mds_snaptable").data.clone()).expect("a table");
    assert_eq!(
        (table.last_snap, table.realms_v2_since),
        (SnapId(7), SnapId(8)),
        "numbers of before are not used again"
    );
}
