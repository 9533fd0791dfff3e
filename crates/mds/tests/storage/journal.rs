//! The journal: what was told to be safe is read by the next server, whenever this one dies.

use std::time::Duration;

use codec::{Decode, Encode};
use mds::format::{JournalHeader, LogEvent};
use mds::storage::{EntryDamage, Event, Mode, StorageError};
use types::Errno;

use crate::common::{cases, position};
use crate::model::{Bed, Random, entry, number, replayed};

const OBJECT: u64 = 4 << 20;

fn safe_of(events: &[Event]) -> Option<u64> {
    events.iter().filter_map(|e| if let Event::Safe(pos) = e { Some(*pos) } else { None }).max()
}

/// Which entries of a run ended at or below `safe`.
fn told(ends: &[u64], safe: u64) -> usize {
    ends.iter().filter(|end| **end <= safe).count()
}

#[test]
fn entries_come_back_in_order_and_where_they_were_put() {
    let mut bed = Bed::fresh();
    let mut at = bed.storage.journal().write_pos;
    let mut places = Vec::new();
    for n in 0..50 {
        let end = bed.append(n, 100 + n as usize);
        places.push((at, end, n));
        at = end;
    }
    assert_eq!(safe_of(&bed.run()), Some(at));
    let mut next = Bed::over(bed.objects);
    next.open();
    next.storage.replay();
    let events = next.run();
    let found: Vec<_> = events
        .iter()
        .filter_map(|e| match e {
            Event::Replayed { at, next, event } => Some((*at, *next, number(event)?)),
            _ => None,
        })
        .collect();
    assert_eq!(found, places);
    assert_eq!(events.last(), Some(&Event::ReplayEnd { write_pos: at }));
}

/// A server dies after each number of operations, with those that wait in any order by object, executed or
/// not. Entries of 3 MB lie across objects.
#[test]
fn what_is_safe_survives_a_crash_at_every_operation() {
    for (bytes, count) in [(200, 12), (3_000_000, 5)] {
        for dies_at in 0..60 {
            let mut random = Random(dies_at as u64);
            let mut bed = Bed::fresh();
            let (mut ends, mut safe, mut n) = (Vec::new(), 0, 0);
            let mut steps = 0;
            let is_over = loop {
                if n < count && (bed.waiting.is_empty() || random.below(3) == 0) {
                    ends.push(bed.append(n, bytes));
                    n += 1;
                    continue;
                }
                if steps == dies_at || bed.waiting.is_empty() {
                    break bed.waiting.is_empty();
                }
                steps += 1;
                let at = first_of_its_object(&bed, random.below(bed.waiting.len()));
                bed.step(at);
                safe = safe_of(&bed.events).unwrap_or(safe).max(safe);
            };
            // What was under way may have come through or not, in order for each object.
            while !bed.waiting.is_empty() && random.below(3) > 0 {
                let at = first_of_its_object(&bed, random.below(bed.waiting.len()));
                let op = bed.waiting.remove(at).expect("an operation");
                let _ = bed.objects.execute(&op);
            }
            let (numbers, others) = replayed(bed.objects);
            assert!(matches!(others[..], [Event::ReplayEnd { .. }]), "{dies_at}: {others:?}");
            let want: Vec<u64> = (0..numbers.len() as u64).collect();
            assert_eq!(numbers, want, "{dies_at}: a prefix");
            assert!(numbers.len() >= told(&ends, safe), "{dies_at}: {safe} was safe");
            if is_over {
                assert_eq!(numbers.len(), count as usize);
            }
        }
    }
}

/// Operations on an object are executed in order.
fn first_of_its_object(bed: &Bed, at: usize) -> usize {
    let object = &bed.waiting[at].object;
    bed.waiting.iter().position(|op| op.object == *object).expect("it is there")
}

#[test]
fn a_torn_entry_ends_the_journal_and_is_written_over() {
    let mut bed = Bed::fresh();
    let ends: Vec<u64> = (0..4).map(|n| bed.append(n, 1_000)).collect();
    bed.run();
    for cut in [1, 11, 12, 500, 1_100] {
        let mut objects = bed.objects.clone();
        let data = &mut objects.get_mut("200.00000001").data;
        data.truncate((ends[2] - OBJECT) as usize + cut);
        assert_eq!(replayed(objects.clone()).0, [0, 1, 2], "{cut}");
        let mut next = Bed::over(objects).started();
        assert_eq!(next.storage.journal().write_pos, ends[2], "{cut}");
        next.append(7, 100);
        next.run();
        assert_eq!(replayed(next.objects).0, [0, 1, 2, 7], "{cut}");
    }
}

/// The rest of a former end, in objects behind a hole, never counts as entries.
#[test]
fn objects_ahead_of_the_end_are_removed_before_they_are_reached() {
    let mut bed = Bed::fresh();
    for no in 2..6 {
        bed.objects.put(&format!("200.{no:08x}"), vec![0x55; 1_000]);
    }
    let mut bed = Bed::over(bed.objects).started();
    assert!(bed.objects.find("200.00000002").is_none() && bed.objects.find("200.00000005").is_none());
    let room = OBJECT - (bed.storage.journal().write_pos - OBJECT);
    // An entry that ends exactly with the first object.
    let empty = entry(0, 8).to_bytes().len() + 20 - 8;
    let end = bed.append(0, room as usize - empty);
    bed.run();
    assert_eq!(end, 2 * OBJECT);
    assert_eq!(replayed(bed.objects).0, [0]);
}

#[test]
fn damage_is_told_with_its_place_and_nothing_behind_it_is_read() {
    let mut bed = Bed::fresh();
    let ends: Vec<u64> = (0..4).map(|n| bed.append(n, 1_000)).collect();
    bed.run();
    bed.now.mono += Duration::from_secs(60);
    bed.storage.tick(bed.now);
    bed.run();
    let damaged = |at: u64, change: fn(&mut u8)| {
        let mut objects = bed.objects.clone();
        change(&mut objects.get_mut("200.00000001").data[(at - OBJECT) as usize]);
        replayed(objects)
    };
    let fatal = |others: &[Event]| match others {
        [Event::Fatal(StorageError::DamagedEntry { at, error, .. })] => (*at, error.clone()),
        other => panic!("{other:?}"),
    };
    // The sentinel, the length, the event's length, the position behind.
    for (offset, is_frame) in [(0, true), (8, true), (20, false), (ends[2] - ends[1] - 8, true)] {
        let (numbers, others) = damaged(ends[1] + offset, |b| *b ^= 0x40);
        let (at, error) = fatal(&others);
        assert_eq!((numbers.as_slice(), at), (&[0, 1][..], ends[1]), "{offset}: {error}");
        let frame = matches!(error, EntryDamage::Frame(_) | EntryDamage::Hole);
        assert_eq!(frame, is_frame, "{offset}: {error}");
    }
    // A length that reaches beyond the end is no torn entry: the header says that the entry was whole.
    let (_, others) = damaged(ends[1] + 10, |b| *b = 1);
    assert_eq!(fatal(&others), (ends[1], EntryDamage::Hole));
    let mut objects = bed.objects.clone();
    objects.get_mut("200.00000001").data.truncate((ends[1] - OBJECT) as usize);
    let mut next = Bed::over(objects);
    next.storage.open(Mode::Active);
    assert_eq!(fatal(&next.run()), (ends[1], EntryDamage::Hole));
}

#[test]
fn headers_that_contradict_themselves_are_refused() {
    let bed = Bed::fresh();
    let header = JournalHeader::from_bytes(bed.objects.get("200.00000000").data.clone()).expect("a header");
    let with = |change: &dyn Fn(&mut JournalHeader)| {
        let mut header = header.clone();
        change(&mut header);
        let mut objects = bed.objects.clone();
        objects.put("200.00000000", header.to_bytes().to_vec());
        let mut next = Bed::over(objects);
        next.storage.open(Mode::Active);
        next.run()
    };
    let changes: [&dyn Fn(&mut JournalHeader); 6] = [
        &|h| h.magic = "else".into(),
        &|h| h.trimmed_pos = h.write_pos + 1,
        &|h| h.trimmed_pos = 0,
        &|h| h.layout.pool = types::PoolId(9),
        &|h| h.layout.object_size = 0,
        &|h| h.layout.stripe_count = 2,
    ];
    for (i, change) in changes.into_iter().enumerate() {
        let events = with(change);
        assert!(matches!(&events[..], [Event::Fatal(e)] if e.is_damage()), "{i}: {events:?}");
    }
}

#[test]
fn what_is_expired_is_trimmed_once_the_header_says_so() {
    let mut bed = Bed::fresh();
    let mut ends = Vec::new();
    for n in 0..8 {
        ends.push(bed.append(n, 3_000_000));
        bed.run();
    }
    assert!(bed.objects.find("200.00000001").is_some());
    bed.storage.mark_expired(ends[5]);
    bed.storage.flush(true, bed.now);
    bed.collect();
    assert_eq!(bed.waiting.len(), 1, "the header, and nothing before it is durable: {:?}", bed.waiting);
    assert_eq!(bed.run(), [Event::Expired(ends[5])]);
    let first = ends[5] / OBJECT;
    for no in 1..first {
        assert!(bed.objects.find(&format!("200.{no:08x}")).is_none(), "{no}");
    }
    assert!(bed.objects.find(&format!("200.{first:08x}")).is_some());
    assert_eq!(bed.storage.journal().trimmed_pos, first * OBJECT);
    assert_eq!(replayed(bed.objects).0, [6, 7]);
}

/// Only a crash between the header and the removals leaves objects behind; the next server removes them.
#[test]
fn objects_that_a_crash_left_behind_are_trimmed_later() {
    let mut bed = Bed::fresh();
    let ends: Vec<u64> = (0..4).map(|n| bed.append(n, 3_000_000)).collect();
    bed.run();
    bed.storage.mark_expired(ends[3]);
    bed.storage.flush(true, bed.now);
    bed.collect();
    bed.step(0);
    assert!(bed.objects.find("200.00000001").is_some());
    let next = Bed::over(bed.objects).started();
    assert!(next.objects.find("200.00000001").is_none());
    assert_eq!(replayed(next.objects).0, [0; 0]);
}

#[test]
fn the_header_follows_the_end_at_its_interval() {
    let mut bed = Bed::fresh();
    let end = bed.append(0, 100);
    bed.run();
    let header = |bed: &Bed| {
        JournalHeader::from_bytes(bed.objects.get("200.00000000").data.clone()).expect("a header").write_pos
    };
    assert!(header(&bed) < end);
    let due = bed.storage.deadline().expect("a tick is due");
    assert_eq!(due, bed.now.mono + Duration::from_secs(15));
    bed.now.mono = due;
    bed.storage.tick(bed.now);
    bed.run();
    assert_eq!((header(&bed), bed.storage.deadline()), (end, None));
}

#[test]
fn a_rank_that_follows_reads_on_and_takes_over() {
    let mut active = Bed::fresh();
    active.append(0, 100);
    active.run();
    let mut standby = Bed::over(active.objects.clone());
    standby.storage.open(Mode::Follow);
    assert!(matches!(standby.run()[..], [Event::Opened(_)]));
    standby.storage.replay();
    let numbers = |events: &[Event]| -> Vec<u64> {
        let of = |e: &Event| if let Event::Replayed { event, .. } = e { number(event) } else { None };
        events.iter().filter_map(of).collect()
    };
    assert_eq!(numbers(&standby.run()), [0]);
    for n in 1..6 {
        active.append(n, 3_000_000);
        active.run();
        standby.objects = active.objects.clone();
        standby.storage.follow();
        let events = standby.run();
        assert_eq!(numbers(&events), [n]);
        assert!(matches!(events.last(), Some(Event::ReplayEnd { .. })));
    }
    standby.storage.take_over();
    standby.run();
    standby.storage.start_writing();
    assert!(matches!(standby.run()[..], [Event::Writeable { .. }]));
    standby.append(9, 100);
    standby.run();
    assert_eq!(replayed(standby.objects).0, [0, 1, 2, 3, 4, 5, 9]);
}

#[test]
fn a_rank_that_was_outrun_says_so() {
    let mut active = Bed::fresh();
    let first = active.append(0, 100);
    active.run();
    let mut standby = Bed::over(active.objects.clone());
    standby.storage.open(Mode::Follow);
    standby.run();
    standby.storage.replay();
    standby.run();
    let ends: Vec<u64> = (1..6).map(|n| active.append(n, 3_000_000)).collect();
    active.run();
    active.storage.mark_expired(ends[3]);
    active.storage.flush(true, active.now);
    active.run();
    standby.objects = active.objects;
    standby.storage.follow();
    assert_eq!(standby.run(), [Event::Outrun { expire_pos: ends[3] }]);
    assert!(first < ends[3]);
}

#[test]
fn a_write_that_is_refused_ends_the_rank() {
    for errno in [mds::storage::BLOCKLISTED, Errno::ENOSPC] {
        let mut bed = Bed::fresh();
        bed.append(0, 100);
        let op = bed.waiting.pop_front().expect("a write");
        bed.storage.done(bed.now, op.id, Err(errno));
        bed.collect();
        let [Event::Fatal(error)] = &bed.events[..] else { panic!("{:?}", bed.events) };
        assert_eq!((error.is_blocklisted(), error.is_damage()), (errno == mds::storage::BLOCKLISTED, false));
        // Nothing follows.
        bed.events.clear();
        bed.storage.append(&entry(1, 100));
        bed.storage.flush(true, bed.now);
        assert_eq!(bed.run(), []);
    }
}

/// Writes are few while many entries come: what waits for one goes with the next.
#[test]
fn entries_that_wait_go_together() {
    let mut bed = Bed::fresh();
    for n in 0..1_000 {
        bed.append(n, 200);
    }
    assert_eq!(bed.waiting.len(), 2);
    bed.executed = 0;
    bed.run();
    assert_eq!(bed.executed, 3);
    assert_eq!(replayed(bed.objects).0.len(), 1_000);
}

#[test]
fn a_long_journal_is_read_within_the_bound() {
    let mut bed = Bed::fresh();
    for n in 0..12 {
        bed.append(n, 3_900_000);
        bed.run();
    }
    let mut next = Bed::over(bed.objects);
    next.open();
    next.storage.replay();
    next.collect();
    let mut most = 0;
    while !next.waiting.is_empty() {
        most = most.max(next.waiting.len());
        next.step(0);
        next.events.clear();
    }
    assert!((2..=6).contains(&most), "{most} reads of 4 MiB under way");
}

/// What a real server wrote, entry by entry, at the positions that it had.
#[test]
fn real_entries_are_replayed() {
    for (place, framed) in cases("event") {
        let at = position(&place);
        let mut bed = Bed::fresh();
        let mut header =
            JournalHeader::from_bytes(bed.objects.get("200.00000000").data.clone()).expect("a header");
        (header.trimmed_pos, header.expire_pos, header.write_pos) = (at / OBJECT * OBJECT, at, at);
        let (object, offset) = (at / OBJECT, (at % OBJECT) as usize);
        let whole = [&vec![0; offset][..], &framed[..]].concat();
        for (i, part) in whole.chunks(OBJECT as usize).enumerate() {
            bed.objects.put(&format!("200.{:08x}", object + i as u64), part.to_vec());
        }
        bed.objects.put("200.00000000", header.to_bytes().to_vec());
        let mut next = Bed::over(bed.objects);
        next.open();
        next.storage.replay();
        let events = next.run();
        let [Event::Replayed { at: found, event, .. }, Event::ReplayEnd { .. }] = &events[..] else {
            panic!("{place}: {events:?}")
        };
        let want = LogEvent::from_bytes(framed.slice(12..framed.len() - 8)).expect("an event");
        assert_eq!((*found, &**event), (at, &want), "{place}");
    }
}
