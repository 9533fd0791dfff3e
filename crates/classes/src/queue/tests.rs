//! Queues by their calls: order, bounds, and inputs that an OSD of Ceph would not survive.

use codec::{Decode, Encode};

use super::head::Marker;
use super::*;
use crate::fake::Fake;

fn queue(size: u64) -> Fake {
    let mut f = Fake::default();
    let args = InitArgs { size, max_urgent: 0, urgent: Bytes::new() };
    assert!(f.call("queue", "queue_init", args.to_bytes()).is_ok());
    f
}

fn put(f: &mut Fake, data: &[u8]) -> Result<i32, Errno> {
    let args = EnqueueArgs { entries: vec![Bytes::copy_from_slice(data)] };
    f.call("queue", "queue_enqueue", args.to_bytes()).map(|(code, _)| code)
}

fn list_from(f: &mut Fake, start: &str, max: u64) -> Result<ListReply, Errno> {
    let args = ListArgs { max, start: Bytes::copy_from_slice(start.as_bytes()) };
    let (_, out) = f.call("queue", "queue_list_entries", args.to_bytes())?;
    Ok(ListReply::from_bytes(out).unwrap())
}

fn remove_to(f: &mut Fake, end: &Bytes) -> Result<(), Errno> {
    f.call("queue", "queue_remove_entries", RemoveArgs { end: end.clone() }.to_bytes()).map(|_| ())
}

#[test]
fn entries_of_any_length_come_out_in_order_round_after_round() {
    let mut f = queue(5000);
    let mut expected = Vec::new();
    let mut rounds = 0;
    for i in 0..400usize {
        let data = vec![i as u8; (i * 379) % 1700];
        if put(&mut f, &data).is_ok() {
            expected.push(data);
        } else {
            let page = list_from(&mut f, "", 2).unwrap();
            let got: Vec<_> = page.entries.iter().map(|e| e.data.to_vec()).collect();
            assert_eq!(got, expected.drain(..2).collect::<Vec<_>>());
            remove_to(&mut f, &page.next_marker).unwrap();
            rounds = rounds.max(Marker::parse(&page.next_marker).round);
        }
        let all = list_from(&mut f, "", u64::MAX).unwrap();
        assert_eq!(all.entries.iter().map(|e| e.data.to_vec()).collect::<Vec<_>>(), expected);
        assert!(!all.truncated);
        // Each entry's marker leads to it.
        for e in &all.entries {
            let one = list_from(&mut f, std::str::from_utf8(&e.marker).unwrap(), 1).unwrap();
            assert_eq!(one.entries, [Entry { data: e.data.clone(), marker: e.marker.clone() }]);
        }
    }
    assert!(rounds > 5, "{rounds}");
}

#[test]
fn a_full_queue_takes_nothing_until_something_is_removed() {
    let mut f = queue(40);
    assert_eq!(put(&mut f, &[1; 31]), Err(Errno::ENOSPC));
    for _ in 0..2 {
        assert!(put(&mut f, &[1; 10]).is_ok());
    }
    assert_eq!(put(&mut f, b""), Err(Errno::ENOSPC));
    let page = list_from(&mut f, "", 1).unwrap();
    assert!(page.truncated);
    assert!(remove_to(&mut f, &page.next_marker).is_ok());
    assert_eq!(remove_to(&mut f, &"0/1024".into()), Err(Errno::EINVAL));
    assert!(put(&mut f, &[2; 10]).is_ok());
    let all = list_from(&mut f, "", 9).unwrap();
    assert_eq!(all.entries.iter().map(|e| e.data[0]).collect::<Vec<_>>(), [1, 2]);
}

#[test]
fn places_behind_the_tail_are_answered_at_once() {
    let mut f = queue(1 << 40);
    assert!(put(&mut f, b"one").is_ok());
    // An OSD of Ceph would read on for years.
    let far = list_from(&mut f, "0/5000000", 10).unwrap();
    assert_eq!((far.truncated, far.entries.len()), (false, 0));
    assert_eq!(list_from(&mut f, "0/1025", 10), Err(Errno::EINVAL));
    // A ring whose end has wrapped makes one abort.
    let mut f = queue(u64::MAX);
    assert_eq!(put(&mut f, b"one"), Err(Errno::EINVAL));
}

#[test]
fn a_listing_ends_where_its_answer_is_full_and_goes_on_from_there() {
    const ENTRIES: usize = 400_000;
    let mut f = queue(8 << 20);
    let args = EnqueueArgs { entries: vec![Bytes::new(); ENTRIES] };
    f.call("queue", "queue_enqueue", args.to_bytes()).unwrap();
    let (mut marker, mut listed, mut pages) = (Bytes::new(), 0, 0);
    loop {
        let page = list_from(&mut f, std::str::from_utf8(&marker).unwrap(), u64::MAX).unwrap();
        (listed, pages) = (listed + page.entries.len(), pages + 1);
        if !page.truncated {
            break;
        }
        assert!(page.entries.len() <= ring::MAX_LISTED_BYTES / 100, "{}", page.entries.len());
        marker = page.next_marker;
    }
    assert_eq!((listed, pages), (ENTRIES, 2));
    // The largest entry is listed alone.
    let mut f = queue(15 << 20);
    assert!(put(&mut f, &vec![1; 14 << 20]).is_ok());
    assert_eq!(list_from(&mut f, "", u64::MAX).unwrap().entries.len(), 1);
}
