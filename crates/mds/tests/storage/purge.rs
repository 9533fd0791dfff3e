//! The purge queue: what it was given goes, also after a crash, in bounded portions.

use codec::{Decode, Encode};
use mds::format::{JournalHeader, PurgeAction, PurgeItem, names};
use mds::storage::{Event, ObjectName, Settings, StorageError, Tag};
use messages::fs::{FileLayout, Frag, FragTree};
use types::{Errno, Ino, PoolId};

use crate::common::{cases, position};
use crate::model::{Bed, DATA, Object, Objects, POOL};

const OLD_POOL: PoolId = PoolId(7);

fn layout(pool_ns: &str) -> FileLayout {
    let pool_ns = pool_ns.to_owned();
    FileLayout { stripe_unit: 1 << 20, stripe_count: 1, object_size: 1 << 20, pool: DATA, pool_ns }
}

fn file(ino: u64, size: u64) -> PurgeItem {
    PurgeItem { action: PurgeAction::File, ino: Ino(ino), size, layout: layout(""), ..PurgeItem::default() }
}

/// Makes a file's objects.
fn fill(objects: &mut Objects, item: &PurgeItem, count: u64) {
    for no in 0..count {
        let name = ObjectName {
            pool: item.layout.pool,
            nspace: item.layout.pool_ns.as_str().into(),
            name: names::object(item.ino, no).into(),
        };
        objects.0.insert(name, Object { data: vec![1; 10], ..Object::default() });
    }
}

fn left(objects: &Objects) -> Vec<String> {
    let of_file = |name: &&ObjectName| name.pool != POOL;
    objects.0.keys().filter(of_file).map(|n| format!("{}/{}/{}", n.pool.0, n.nspace, n.name)).collect()
}

fn expired(bed: &Bed) -> bool {
    let header = JournalHeader::from_bytes(bed.objects.get("500.00000000").data.clone()).expect("a header");
    header.expire_pos == header.write_pos
}

#[test]
fn a_file_goes_with_its_backtraces() {
    let mut bed = Bed::fresh();
    let mut item = file(0x100, 5 << 20);
    item.layout = layout("ns");
    item.old_pools = [OLD_POOL].into();
    fill(&mut bed.objects, &item, 5);
    for pool in [DATA, OLD_POOL] {
        bed.objects.0.insert(ObjectName::new(pool, "100.00000000"), Object::default());
    }
    assert_eq!(left(&bed.objects).len(), 7);
    bed.storage.purge(Tag(1), &item);
    assert_eq!(bed.run(), [Event::Done { tag: Tag(1) }]);
    assert_eq!(left(&bed.objects).len(), 0);
    assert_eq!((bed.storage.purge_state().done, bed.storage.purge_state().ops_in_flight), (1, 0));
    assert!(expired(&bed));
}

#[test]
fn an_inode_is_not_let_go_before_the_queue_has_it() {
    let mut bed = Bed::fresh();
    let item = file(0x100, 1);
    fill(&mut bed.objects, &item, 1);
    bed.storage.purge(Tag(1), &item);
    bed.storage.flush(true, bed.now);
    bed.collect();
    assert_eq!((bed.waiting.len(), bed.events.len(), left(&bed.objects).len()), (1, 0, 1));
    assert!(bed.waiting[0].object.name.starts_with("500."), "{:?}", bed.waiting);
    bed.step(0);
    assert_eq!((&bed.events[..], left(&bed.objects).len()), (&[Event::Done { tag: Tag(1) }][..], 1));
    bed.run();
    assert_eq!(left(&bed.objects).len(), 0);
}

#[test]
fn an_empty_file_a_cut_one_and_a_folder() {
    let mut bed = Bed::fresh();
    let empty = file(0x100, 0);
    bed.objects.0.insert(ObjectName::new(DATA, "100.00000000"), Object::default());
    let cut = PurgeItem { action: PurgeAction::Truncate, ..file(0x200, 3 << 20) };
    fill(&mut bed.objects, &cut, 3);
    let half = |i| Frag::ROOT.child(1, i);
    let folder = PurgeItem {
        action: PurgeAction::Dir,
        ino: Ino(0x300),
        frag_tree: FragTree([(Frag::ROOT, 1)].into()),
        ..PurgeItem::default()
    };
    for frag in [Frag::ROOT, half(0), half(1)] {
        bed.objects.put(&names::object(Ino(0x300), frag.0.into()), Vec::new());
    }
    for (n, item) in [empty, cut, folder].iter().enumerate() {
        bed.storage.purge(Tag(n as u64), item);
    }
    bed.run();
    assert_eq!(left(&bed.objects), ["2//200.00000000"], "it keeps the backtrace");
    assert!(bed.objects.0[&ObjectName::new(DATA, "200.00000000")].data.is_empty());
    assert!(!bed.objects.0.keys().any(|n| n.name.starts_with("300.")));
}

/// What was handed over goes in the end, whenever the server dies.
#[test]
fn a_crash_at_every_operation_loses_no_item() {
    for dies_at in 0..80 {
        let mut bed = Bed::fresh();
        let items: Vec<_> = (0..4).map(|n| file(0x100 + n, 3 << 20)).collect();
        for (n, item) in items.iter().enumerate() {
            fill(&mut bed.objects, item, 3);
            bed.storage.purge(Tag(n as u64), item);
        }
        bed.storage.flush(true, bed.now);
        bed.collect();
        let mut steps = 0;
        while steps < dies_at && !bed.waiting.is_empty() {
            bed.step(0);
            steps += 1;
        }
        let done: Vec<_> = bed.events.iter().filter(|e| matches!(e, Event::Done { .. })).collect();
        let told = done.len();
        let mut next = Bed::over(bed.objects).started();
        next.run();
        let gone = items
            .iter()
            .filter(|item| !left(&next.objects).iter().any(|n| n.contains(&format!("{:x}.", item.ino.0))));
        assert!(gone.count() >= told, "{dies_at}: {told} were told");
        assert!(expired(&next), "{dies_at}");
    }
}

#[test]
fn a_long_queue_is_worked_off_in_portions() {
    let settings =
        Settings { max_purge_files: 4, max_purge_ops: 10, ops_of_a_purge: 3, ..Settings::default() };
    let fresh = Bed::fresh();
    let mut bed = Bed::with(fresh.objects, settings).started();
    for n in 0..100 {
        let item = file(0x1000 + n, 5 << 20);
        fill(&mut bed.objects, &item, 5);
        bed.storage.purge(Tag(n), &item);
    }
    bed.storage.flush(true, bed.now);
    bed.collect();
    let mut most = 0;
    while !bed.waiting.is_empty() {
        most = most.max(bed.waiting.iter().filter(|op| op.object.pool == DATA).count());
        bed.step(0);
        assert!(bed.storage.purge_state().executing <= 4);
    }
    assert!((4..=12).contains(&most), "{most}");
    assert_eq!((left(&bed.objects).len(), bed.storage.purge_state().done), (0, 100));
    assert!(expired(&bed));
}

#[test]
fn what_cannot_be_removed_is_counted_and_a_blocklisted_server_ends() {
    let mut bed = Bed::fresh();
    for (n, errno, is_end) in [(1, Errno::EPERM, false), (2, mds::storage::BLOCKLISTED, true)] {
        bed.storage.purge(Tag(n), &file(n, 1));
        bed.storage.flush(true, bed.now);
        bed.collect();
        while bed.waiting.front().is_some_and(|op| op.object.pool == POOL) {
            bed.step(0);
        }
        let op = bed.waiting.pop_front().expect("a removal");
        bed.storage.done(bed.now, op.id, Err(errno));
        let events = bed.run();
        assert_eq!(
            matches!(events.last(), Some(Event::Fatal(e)) if e.is_blocklisted()),
            is_end,
            "{events:?}"
        );
        assert_eq!(bed.storage.purge_state().failed, 1);
    }
}

#[test]
fn an_item_that_is_not_understood_stops_the_queue_and_not_the_rank() {
    let mut bed = Bed::fresh();
    bed.storage.purge(Tag(1), &file(0x100, 1));
    bed.storage.purge(Tag(2), &file(0x200, 1));
    bed.storage.flush(true, bed.now);
    bed.collect();
    bed.step(0);
    // The first item's action.
    let at = bed.objects.get("500.00000001").data.len() / 2;
    assert!(at > 30);
    bed.objects.get_mut("500.00000001").data[12 + 6] = 9;
    let mut next = Bed::over(bed.objects);
    next.open();
    next.storage.replay();
    next.run();
    next.storage.start_writing();
    let events = next.run();
    let stopped =
        |e: &Event| matches!(e, Event::PurgeStopped(StorageError::DamagedEntry { at: 0x40_0000, .. }));
    assert!(
        events.iter().any(stopped) && events.iter().any(|e| matches!(e, Event::Writeable { .. })),
        "{events:?}"
    );
    next.storage.purge(Tag(3), &file(0x300, 1));
    next.storage.flush(true, next.now);
    assert_eq!(next.run(), [Event::Done { tag: Tag(3) }]);
}

#[test]
fn a_file_system_without_a_queue_gets_one() {
    let mut bed = Bed::fresh();
    bed.objects.remove("500.00000000");
    let mut bed = Bed::over(bed.objects).started();
    let item = file(0x100, 1);
    fill(&mut bed.objects, &item, 1);
    bed.storage.purge(Tag(1), &item);
    bed.run();
    assert_eq!(left(&bed.objects).len(), 0);
    assert!(expired(&bed));
}

/// What a real server left in its queue is executed.
#[test]
fn real_items_are_executed() {
    for (place, framed) in cases("purge_item").into_iter().filter(|(place, _)| place.contains('@')) {
        let at = position(&place);
        let mut bed = Bed::fresh();
        let item = PurgeItem::from_bytes(framed.slice(12..framed.len() - 8)).expect("an item");
        fill(&mut bed.objects, &item, 2);
        let mut header =
            JournalHeader::from_bytes(bed.objects.get("500.00000000").data.clone()).expect("a header");
        (header.trimmed_pos, header.expire_pos, header.write_pos) = (4 << 20, at, at);
        bed.objects.put("500.00000000", header.to_bytes().to_vec());
        let whole = [&vec![0; (at - (4 << 20)) as usize][..], &framed[..]].concat();
        bed.objects.put("500.00000001", whole);
        let mut next = Bed::over(bed.objects).started();
        next.run();
        assert_eq!(next.storage.purge_state().done, 1, "{place}");
    }
}
