//! Large frames wait for a grant, and no frame may take for ever.

use crate::common;

use common::*;
use msgr::{ConMode, Error, Event, Grant, Limits, Policy};

const LARGE: usize = 4 << 20;

#[test]
fn a_large_frame_is_not_read_before_it_is_granted() {
    for mode in [ConMode::Crc, ConMode::Secure] {
        let (mut c, mut s) = ready_pair(mode, 1, Policy::lossy_client());
        s.conn.ask_above(64 << 10);
        for len in [100, LARGE, 1000] {
            c.conn.send(message(1, len)).expect("sent");
        }
        let bytes = c.outgoing();
        // Small frames go through; of the large one only its head does.
        let (first, rest) = bytes.split_at(2000);
        s.receive(first);
        assert_eq!(s.messages().len(), 1);
        let Grant::Wanted(wanted) = s.conn.grant() else { panic!("{:?}", s.conn.grant()) };
        assert!((LARGE..LARGE + 4096).contains(&wanted));
        assert!(s.buf.capacity() < 256 << 10, "no room is made: {}", s.buf.capacity());
        assert_eq!(s.conn.next_deadline(), Some(now(5).mono + Limits::default().idle_timeout));
        s.conn.grant_frame(now(5), &mut s.buf);
        assert_eq!(s.conn.grant(), Grant::Given);
        assert!(s.buf.capacity() >= LARGE);
        s.receive(rest);
        assert_eq!(s.messages().len(), 3);
        assert_eq!(s.conn.grant(), Grant::Unneeded);
        // The next one asks anew.
        c.conn.send(message(1, LARGE)).expect("sent");
        let bytes = c.outgoing();
        s.receive(&bytes[..200]);
        assert!(matches!(s.conn.grant(), Grant::Wanted(_)));
    }
}

#[test]
fn a_frame_has_its_time_and_single_bytes_give_it_no_more() {
    let (mut c, mut s) = ready_pair(ConMode::Crc, 1, Policy::lossy_client());
    c.conn.send(message(1, 1000)).expect("sent");
    let bytes = c.outgoing();
    s.receive(&bytes[..100]);
    let due = now(5).mono + Limits::default().frame_timeout_per_mib;
    assert_eq!(s.conn.next_deadline(), Some(due));
    let at = |mono| types::Now { mono, ..now(5) };
    let last = due - std::time::Duration::from_millis(1);
    s.buf.extend_from_slice(&bytes[100..101]);
    s.conn.handle_bytes(at(last), &mut s.buf);
    s.conn.tick(at(last));
    assert_eq!(s.conn.poll_event(), None);
    // What its owner did not read in time is not the peer's fault.
    let held = std::time::Duration::from_secs(7);
    s.conn.was_held(held);
    s.conn.tick(at(due));
    assert_eq!(s.conn.poll_event(), None);
    s.conn.tick(at(due + held));
    assert_eq!(s.conn.poll_event(), Some(Event::Closed(Error::FrameTimeout)));
}

#[test]
fn the_time_for_a_large_frame_counts_from_its_grant() {
    let (mut c, mut s) = ready_pair(ConMode::Crc, 1, Policy::lossy_client());
    s.conn.ask_above(64 << 10);
    c.conn.send(message(1, LARGE)).expect("sent");
    let bytes = c.outgoing();
    s.receive(&bytes[..100]);
    s.conn.tick(now(400_000));
    assert_eq!(s.conn.poll_event(), None);
    s.conn.grant_frame(now(400_000), &mut s.buf);
    let due = now(400_000).mono + 5 * Limits::default().frame_timeout_per_mib;
    assert_eq!(s.conn.next_deadline(), Some(due));
}

/// Its end may stand behind what it sent, and only an answer to what comes from us tells of it.
#[test]
fn a_peer_that_is_not_read_from_is_sent_something_now_and_then() {
    for mode in [ConMode::Crc, ConMode::Secure] {
        let (mut c, mut s) = ready_pair(mode, 1, Policy::lossy_client());
        let after = Limits::default().probe_held_after;
        let short = after - std::time::Duration::from_millis(1);
        s.conn.was_held(short);
        s.conn.tick(now(6));
        assert!(s.outgoing().is_empty(), "not yet");
        // Whoever was read from meanwhile would have been seen to end.
        c.conn.send(message(1, 10)).expect("sent");
        let bytes = c.outgoing();
        s.receive(&bytes);
        assert_eq!(s.messages().len(), 1);
        s.conn.was_held(short);
        s.conn.tick(now(7));
        assert!(s.outgoing().is_empty(), "it was read from");
        for _ in 0..2 {
            s.conn.was_held(after);
            s.conn.tick(now(8));
            let probe = s.outgoing();
            assert!(!probe.is_empty());
            c.receive(&probe);
            assert_eq!(c.conn.poll_event(), None, "nothing to a peer that lives");
            s.conn.tick(now(9));
            assert!(s.outgoing().is_empty(), "once");
        }
    }
}
