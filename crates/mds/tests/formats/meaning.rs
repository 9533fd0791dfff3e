//! Fields mean what the client did to the file system whose bytes these are.

use std::collections::BTreeSet;

use bytes::Bytes;
use codec::Decode;
use mds::format::{
    Backtrace, BaseInode, Dentry, Fnode, InoTable, InodeStore, JournalHeader, JournalPointer, Link, LogEvent,
    OpenFile, PurgeAction, PurgeItem, Rollback, SessionInfo, SnapMutation, SnapTable, TableServer, names,
};
use types::{Ino, PoolId, SnapId};

use crate::common::{cases, unhex};

/// A value by the end of its place.
fn stored<T: Decode>(kind: &str, place: &str) -> T {
    let found = cases(kind).into_iter().find(|(p, _)| p.ends_with(place));
    let (_, bytes) = found.unwrap_or_else(|| panic!("{kind}: no {place}"));
    T::from_bytes(bytes).expect("decodes")
}

/// A name's value, by its key.
fn dentry(key: &str) -> Dentry {
    let wanted = |place: &str| unhex(place.split('/').nth(1).expect("a key")) == key.as_bytes();
    let found = cases("dentry").into_iter().find(|(place, _)| wanted(place));
    Dentry::from_bytes(found.unwrap_or_else(|| panic!("no {key}")).1).expect("decodes")
}

fn inode(key: &str) -> InodeStore {
    match dentry(key).link {
        Link::Primary(inode) => *inode,
        Link::Remote { .. } => panic!("{key} is a hard link"),
    }
}

fn events() -> Vec<LogEvent> {
    let payload = |framed: Bytes| framed.slice(12..framed.len() - 8);
    cases("event").into_iter().map(|(_, e)| LogEvent::from_bytes(payload(e)).expect("decodes")).collect()
}

#[test]
fn inodes_have_the_attributes_that_were_set() {
    let lay = inode("lay_head").inode;
    let layout = (lay.layout.stripe_unit, lay.layout.stripe_count, lay.layout.object_size);
    assert_eq!(
        (layout, lay.layout.pool, lay.layout.pool_ns.as_str()),
        ((65_536, 2, 131_072), PoolId(4), "ns1")
    );
    assert!(lay.is_dir() && !lay.is_symlink());
    let b = inode("b_head");
    assert_eq!((b.inode.quota.max_bytes, b.inode.quota.max_files), (100_000_000, 1_000));
    assert_eq!(
        (b.inode.mode & 0o7777, b.xattrs.get(&b"user.dir"[..])),
        (0o750, Some(&Bytes::from(vec![b'v'; 40])))
    );
    assert_eq!(inode("p1_head").inode.export_pin, 1);
    let link = inode("sym2_head");
    assert!(link.inode.is_symlink());
    assert_eq!(link.symlink, "../\u{ff}\u{fe}");
    let hard = inode("hard_head");
    assert_eq!(hard.xattrs.get(&b"user.foo"[..]), Some(&Bytes::from_static(b"bar\0\x01\x02")));
    assert_eq!((hard.inode.size, hard.inode.nlink), (50, 1), "the other name was removed");
    assert_eq!(inode("moved_head").inode.size, 1_000, "it was cut");
}

#[test]
fn hard_links_and_strays_are_where_they_were_left() {
    assert_eq!(dentry("hardacross_head").link, Link::Remote { ino: Ino(0x100_0000_0007), d_type: 8 });
    let stray = inode("10000000007_head");
    assert_eq!((stray.inode.ino, stray.inode.nlink), (Ino(0x100_0000_0007), 1), "the hard link is left");
}

#[test]
fn snapshots_keep_what_was_there() {
    let realm = inode("s_head").realm.expect("a realm begins here");
    let names: Vec<_> = realm.snaps.values().map(|s| (s.snap, s.name.clone())).collect();
    assert_eq!(names, [(SnapId(3), "second".into())]);
    let one = inode("one_head");
    assert_eq!(one.inode.size, 50);
    let old = dentry("ln_2");
    assert_eq!(old.first, SnapId(2), "it had this name in the first snapshot only");
    let table: SnapTable = stored("snap_table", "mds_snaptable");
    let snaps: Vec<_> = table.snaps.values().map(|s| (s.snap, s.ino, s.name.clone())).collect();
    let want = [(3, 0x100_0000_01fe, "second"), (5, 0x100_0000_0230, "byrank1")];
    assert_eq!(snaps, want.map(|(s, ino, name)| (SnapId(s), Ino(ino), Bytes::from(name))));
    assert_eq!((table.version, table.last_snap), (11, SnapId(5)));
}

#[test]
fn directories_count_what_is_in_them() {
    let root: BaseInode = stored("base_inode", "1.00000000.inode");
    assert_eq!((root.0.inode.ino, root.0.inode.is_dir()), (Ino::ROOT, true));
    let fnode: Fnode = stored("fnode", "100.00000000");
    assert_eq!((fnode.fragstat.files, fnode.fragstat.subdirs), (0, i64::from(names::STRAYS)));
}

#[test]
fn backtraces_lead_to_the_root() {
    let trace: Backtrace = stored("backtrace", "20000000003.00000000");
    assert_eq!(trace.ino, Ino(0x200_0000_0003));
    let way: Vec<_> = trace.ancestors.iter().map(|a| (a.dir, a.name.clone())).collect();
    assert_eq!(way.last().map(|(dir, _)| *dir), Some(Ino::ROOT), "{way:?}");
    assert_eq!(way.first().map(|(_, name)| name.clone()), Some("q".into()));
}

#[test]
fn tables_say_who_is_there() {
    let session: SessionInfo = stored("session", "mds0_sessionmap/client.4174");
    assert_eq!(session.client.name.to_string(), "client.4174");
    assert_eq!(session.auth_name.to_string(), "client.admin");
    assert!(session.metadata.values.contains_key(&b"hostname"[..]) && !session.metadata.features.is_empty());
    assert!(!session.prealloc_inos.is_empty());
    let inos: InoTable = stored("ino_table", "mds0_inotable");
    let (first, count) = inos.free.iter().next().expect("numbers are left");
    assert_eq!(first + count, 0x200_0000_0000, "rank 1 has those behind");
    for (place, bytes) in cases("open_file") {
        let file = OpenFile::from_bytes(bytes).expect("decodes");
        assert!(place.ends_with(&format!("/{}", OpenFile::key(file.ino))), "{place}");
    }
}

#[test]
fn journals_are_where_pointers_say() {
    let pointer: JournalPointer = stored("pointer", "401.00000000");
    assert_eq!(pointer, JournalPointer { front: names::journal(1), back: Ino(0) });
    let header: JournalHeader = stored("journal_header", "200.00000000");
    assert!(header.is_ordered() && header.layout.is_valid());
    let items: Vec<_> = cases("purge_item")
        .into_iter()
        .map(|(_, e)| PurgeItem::from_bytes(e.slice(12..e.len() - 8)).expect("decodes"))
        .collect();
    let of = |action| items.iter().filter(|i| i.action == action).count();
    assert_eq!((of(PurgeAction::File), of(PurgeAction::Dir)), (3, 1), "{items:?}");
}

#[test]
fn every_kind_of_event_was_seen() {
    let kinds: BTreeSet<u32> = events().iter().map(LogEvent::kind).collect();
    assert_eq!(kinds, [2, 3, 4, 5, 6, 9, 10, 12, 20, 21, 22, 23, 24, 42, 43, 51].into());
    let names = |e: &LogEvent| -> usize {
        let lumps =
            e.metadata().map(|m| m.lumps.values().map(|l| l.full.len() + l.remote.len() + l.null.len()));
        lumps.map_or(0, Iterator::sum)
    };
    assert!(events().iter().map(names).sum::<usize>() > 20);
}

#[test]
fn events_say_what_was_done() {
    for event in events() {
        match event {
            LogEvent::Update(update) if &update.what[..] == b"mksnap" => {
                assert_eq!(update.metadata.table_tids.len(), 1, "the table of snapshots changes with it");
            }
            LogEvent::Fragment(e) if e.op == mds::format::Fragment::PREPARE => {
                assert_eq!((e.from.len(), e.bits), (2, -1), "two fragments are merged");
                assert_eq!(e.rollback.len(), 2);
                assert!(e.metadata.lumps.keys().any(|dir| (dir.ino, dir.frag) == (e.ino, e.base)));
            }
            LogEvent::Fragment(e) => assert!(e.rollback.is_empty()),
            LogEvent::PeerUpdate(e) => match e.rollback {
                Some(Rollback::Rename(rename)) => assert!(!rename.src.name.is_empty() && rename.req == e.req),
                Some(Rollback::Link(link)) => assert!(link.was_added && link.req == e.req),
                Some(Rollback::Rmdir(_)) => panic!("no folder was removed"),
                None => assert_eq!(e.op, mds::format::PeerUpdate::COMMIT),
            },
            LogEvent::TableServer(e) if e.op == TableServer::PREPARE => {
                let removed = SnapMutation::Destroy { ino: Ino(0x100_0000_01fe), snap: SnapId(2) };
                assert_eq!(SnapMutation::from_bytes(e.mutation), Ok(removed));
            }
            LogEvent::ImportStart(e) => {
                let opened = e.opened.expect("clients came along");
                assert_eq!(opened.metadata.map(|m| m.len()), Some(opened.clients.len()));
            }
            _ => {}
        }
    }
}
