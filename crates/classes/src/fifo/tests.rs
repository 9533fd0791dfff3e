//! What the recorded calls do not reach.

use bytes::Bytes;
use codec::{Decode, Encode};
use types::{Errno, RealTime};

use super::reader::Entries;
use super::types::*;
use crate::ObjectView;
use crate::fake::Fake;

fn params(max_part_size: u64) -> Params {
    Params { max_part_size, max_entry_size: 1000, full_size_threshold: max_part_size }
}

/// A part that holds entries.
fn part(max_part_size: u64, entries: &[&'static [u8]]) -> Fake {
    let mut f = Fake::default();
    let init = InitArgs { old_tag: OldTag, params: params(max_part_size) };
    f.call("fifo", "init_part", init.to_bytes()).unwrap();
    if !entries.is_empty() {
        assert_eq!(push(&mut f, entries), Ok(entries.len() as i32));
    }
    f
}

fn push(f: &mut Fake, entries: &[&'static [u8]]) -> Result<i32, Errno> {
    let entries: Vec<Bytes> = entries.iter().map(|e| Bytes::from_static(e)).collect();
    let total = entries.iter().map(|e| e.len() as u64).sum();
    let args = PushArgs { old_tag: OldTag, entries, total };
    f.call("fifo", "push_part", args.to_bytes()).map(|(pushed, _)| pushed)
}

fn list(f: &mut Fake, offset: u64, max: i32) -> Result<ListReply, Errno> {
    let (_, out) = f.call("fifo", "part_list", ListArgs { old_tag: None, offset, max }.to_bytes())?;
    Ok(ListReply::from_bytes(out).unwrap())
}

/// Overwrites bytes of the part.
fn damage(f: &mut Fake, at: u64, bytes: &[u8]) {
    f.object.as_mut().unwrap().data[at as usize..][..bytes.len()].copy_from_slice(bytes);
}

#[test]
fn sizes_of_what_stands_in_front_of_entries() {
    let mark = Mark { magic: 0, mark_size: 0, header_size: 0, data_size: 0, index: 0, reserved: 0 };
    let header = EntryHeader { time: RealTime::default() };
    assert_eq!(mark.to_bytes().len() as u64, MARK_SIZE);
    assert_eq!(header.to_bytes().len() as u64, ENTRY_HEADER_SIZE);
    assert_eq!(MARK_SIZE + ENTRY_HEADER_SIZE, u64::from(ENTRY_OVERHEAD));
    let header = PartHeader { params: params(u64::MAX), ..PartHeader::default() };
    assert!(header.to_bytes().len() as u64 <= PART_HEADER_SIZE);
}

#[test]
fn a_push_says_how_many_found_room() {
    let mut f = part(600, &[]);
    assert_eq!(push(&mut f, &[b"0123456789", b"0123456789", b"never"]), Ok(2));
    assert_eq!(push(&mut f, &[b"x"]), Err(Errno::ERANGE));
    assert_eq!(push(&mut f, &[]), Err(Errno::ERANGE), "a full part is told first");
}

#[test]
fn a_listing_goes_on_behind_an_entry() {
    let mut f = part(4096, &[b"a", b"", b"c"]);
    let all = list(&mut f, 0, 100).unwrap();
    assert_eq!(all.entries.iter().map(|e| &e.data[..]).collect::<Vec<_>>(), [&b"a"[..], b"", b"c"]);
    let rest = list(&mut f, all.entries[0].offset, 1).unwrap();
    assert_eq!((rest.entries.len(), rest.entries[0].offset, rest.more), (1, all.entries[1].offset, true));
    assert_eq!(list(&mut f, all.entries[2].offset, 9).unwrap().entries, []);
}

#[test]
fn damaged_entries_are_refused() {
    // The mark's number; the size of the entry's header, then of its data, beyond the object; a header that
    // is none.
    for (at, bytes, errno) in [
        (0, &[0xff; 8][..], Errno::ERANGE),
        (16, &[0xff; 8], Errno::ERANGE),
        (24, &[0xff; 4], Errno::ERANGE),
        (MARK_SIZE, &[9, 9], Errno::EIO),
    ] {
        let mut f = part(4096, &[b"entry"]);
        damage(&mut f, PART_HEADER_SIZE + at, bytes);
        assert_eq!(list(&mut f, 0, 10).map(|_| ()), Err(errno), "{at}");
    }
}

#[test]
fn sizes_beyond_32_bits_are_refused_before_anything_is_read() {
    // The sizes of the mark, of the entry's header and of its data, where the lower half fits.
    for at in [8, 16, 24] {
        for high in [[1, 0, 0, 0], [0xff; 4]] {
            let mut f = part(4096, &[b"entry"]);
            damage(&mut f, PART_HEADER_SIZE + at + 4, &high);
            assert_eq!(list(&mut f, 0, 10).map(|_| ()), Err(Errno::ERANGE), "{at}");
            // The part's header, and its entries.
            assert_eq!(f.subop(), 2, "{at}");
        }
    }
}

#[test]
fn what_is_listed_keeps_nothing_else_in_memory() {
    let mut f = part(4096, &[b"entry", b"other"]);
    f.begin();
    let mut header = PartHeader::from_bytes(f.read(0, PART_HEADER_SIZE).unwrap()).unwrap();
    let mut entries = Entries::new(&mut f, &header, 0);
    let listed = [entries.next().unwrap(), entries.next().unwrap()];
    assert!(entries.is_at_end() && listed.iter().all(|entry| entry.data.is_unique()));
    // A part that claims to go on reads once more, and finds nothing.
    header.next_offset += 1;
    let mut entries = Entries::new(&mut f, &header, listed[1].offset);
    assert_eq!(entries.next().map(|entry| entry.data), Ok("other".into()));
    assert_eq!(entries.next().map(|_| ()), Err(Errno::ERANGE));
}

#[test]
fn a_push_of_nothing_fails_behind_the_header() {
    let mut f = part(4096, &[b"entry"]);
    f.now.sec += 5;
    let now = RealTime(f.now);
    let args = PushArgs { old_tag: OldTag, entries: vec![], total: 0 };
    f.begin();
    assert_eq!(f.call_within("fifo", "push_part", args.to_bytes()), Err(Errno::EFAULT));
    f.commit();
    let (_, info) = f.call("fifo", "get_part_info", Bytes::from_static(&[1, 1, 0, 0, 0, 0])).unwrap();
    assert_eq!(PartReply::from_bytes(info).unwrap().header.max_time, now);
    assert_eq!(list(&mut f, 0, 10).unwrap().entries.len(), 1);
}

#[test]
fn a_task_that_is_none_is_neither_stored_nor_read() {
    let version = Version { instance: "v".into(), number: 1 };
    let create = CreateArgs {
        id: "q".into(),
        version: Some(version.clone()),
        pool: Bytes::new(),
        namespace: Bytes::new(),
        prefix: None,
        max_part_size: 4096,
        max_entry_size: 100,
        exclusive: true,
    };
    let mut f = Fake::default();
    f.call("fifo", "create_meta", create.to_bytes()).unwrap();
    let (kind, part) = (1_i32, 5_i64);
    let task = |kind: i32, part: i64| {
        let fields = [&kind.to_le_bytes()[..], &part.to_le_bytes(), &[0; 4]].concat();
        Task::from_bytes([&[1, 1, 16, 0, 0, 0][..], &fields].concat()).unwrap()
    };
    let mut add = |task| {
        let none = (None, None, None, None);
        let (tail, head, min_push, max_push) = none;
        let args = UpdateArgs {
            version: version.clone(),
            tail,
            head,
            min_push,
            max_push,
            add: vec![task],
            remove: vec![],
        };
        f.call("fifo", "update_meta", args.to_bytes()).map(|_| ())
    };
    for bad in [task(0, part), task(4, part), task(kind, -1)] {
        assert_eq!(add(bad), Err(Errno::EINVAL));
    }
    assert_eq!(add(task(kind, part)), Ok(()));
    // The task ends the header: its kind stands behind two numbers and an envelope's head.
    let size = f.object.as_ref().unwrap().data.len() as u64;
    damage(&mut f, size - 16, &[9]);
    assert_eq!(f.call("fifo", "get_meta", GetArgs { version: None }.to_bytes()), Err(Errno::EIO));
}
