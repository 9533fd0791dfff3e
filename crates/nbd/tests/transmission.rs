//! Requests and replies, byte for byte; hostile bytes never panic.

mod common;

use bytes::Bytes;
use common::{MIB, attached, exports, feed, go, option, plain, request, set_allocation};
use nbd::{CloseReason, Command, Event, NbdError, Piece, Range, Request, Session};
use proptest::prelude::*;

fn check(export: &str, bytes: &[u8], expected: Result<Command, NbdError>) {
    let mut session = attached(export);
    let events = feed(&mut session, bytes);
    let expected = match expected {
        Ok(command) => Event::Request(Request { cookie: 7, command }),
        Err(e) => Event::Send(session.replies().error(7, e)),
    };
    assert_eq!(events, [expected], "{bytes:?}");
}

#[test]
fn requests_are_checked() {
    let end = MIB - 1;
    let data = Bytes::from_static(b"abcd");
    let cases: Vec<(&str, Bytes, Result<Command, NbdError>)> = vec![
        ("disk", request(0, 0, 7, 5, 10, &[]), Ok(Command::Read { offset: 5, len: 10, whole: false })),
        ("disk", request(4, 0, 7, 5, 10, &[]), Ok(Command::Read { offset: 5, len: 10, whole: true })),
        ("disk", request(0, 0, 7, end, 2, &[]), Err(NbdError::Invalid)),
        ("disk", request(0, 0, 7, u64::MAX, 2, &[]), Err(NbdError::Invalid)),
        ("disk", request(1, 1, 7, 0, 4, b"abcd"), Ok(Command::Write { offset: 0, data, fua: true })),
        ("disk", request(0, 1, 7, end, 4, b"abcd"), Err(NbdError::NoSpace)),
        ("ro", request(0, 1, 7, 0, 4, b"abcd"), Err(NbdError::NotPermitted)),
        ("ro", request(0, 4, 7, 0, 4, &[]), Err(NbdError::NotPermitted)),
        ("ro", request(0, 6, 7, 0, 4, &[]), Err(NbdError::NotPermitted)),
        ("disk", request(0, 3, 7, 0, 0, &[]), Ok(Command::Flush)),
        ("disk", request(0, 3, 7, 0, 1, &[]), Err(NbdError::Invalid)),
        ("disk", request(0, 4, 7, 0, 9, &[]), Ok(Command::Trim { offset: 0, len: 9, fua: false })),
        (
            "disk",
            request(2, 6, 7, 0, 9, &[]),
            Ok(Command::WriteZeroes { offset: 0, len: 9, fua: false, punch: false }),
        ),
        ("disk", request(8, 7, 7, 0, 9, &[]), Ok(Command::BlockStatus { offset: 0, len: 9, one: true })),
        ("disk", request(0, 7, 7, 0, 0, &[]), Err(NbdError::Invalid)),
        ("disk", request(0, 5, 7, 0, 9, &[]), Ok(Command::Cache { offset: 0, len: 9 })),
        ("disk", request(0, 8, 7, 0, 9, &[]), Err(NbdError::Invalid)),
        ("disk", request(2, 0, 7, 0, 9, &[]), Err(NbdError::Invalid)),
        ("disk", request(16, 6, 7, 0, 9, &[]), Err(NbdError::Invalid)),
    ];
    for (export, bytes, expected) in cases {
        check(export, &bytes, expected);
    }
}

#[test]
fn a_read_above_the_cap_is_refused_even_on_a_larger_export() {
    let mut big = exports();
    big[0].size = 1 << 40;
    let (mut session, _) = Session::new(big);
    feed(&mut session, &3u32.to_be_bytes());
    feed(&mut session, &go("disk"));
    let events = feed(&mut session, &request(0, 0, 7, 0, (32 << 20) + 1, &[]));
    assert_eq!(events, [Event::Send(session.replies().error(7, NbdError::Overflow))]);
}

#[test]
fn malformed_requests_close() {
    let mut magic = request(0, 0, 7, 0, 1, &[]).to_vec();
    magic[0] = 1;
    for (bytes, why) in [
        (magic, CloseReason::MalformedRequest),
        (request(0, 1, 7, 0, (32 << 20) + 1, &[]).to_vec(), CloseReason::TooLong),
        (request(0, 2, 7, 0, 0, &[]).to_vec(), CloseReason::Left),
    ] {
        let mut session = attached("disk");
        assert_eq!(feed(&mut session, &bytes), [Event::Close(why)]);
        assert!(session.is_closed());
    }
}

#[test]
fn block_status_needs_the_context_of_the_same_export() {
    let mut session = plain();
    for bytes in [option(8, &[]), set_allocation("ro"), go("disk")] {
        feed(&mut session, &bytes);
    }
    let events = feed(&mut session, &request(0, 7, 7, 0, 9, &[]));
    assert_eq!(events, [Event::Send(session.replies().error(7, NbdError::Invalid))]);
}

#[test]
fn a_write_tells_of_its_data_before_it_comes() {
    let mut session = attached("disk");
    let write = request(0, 1, 7, 0, 100, &[9; 100]);
    assert_eq!(session.payload_to_come(), 0);
    assert_eq!(feed(&mut session, &write[..20]), []);
    assert_eq!(session.payload_to_come(), 0);
    assert_eq!(feed(&mut session, &write[20..90]), []);
    assert_eq!(session.payload_to_come(), 100);
    assert_eq!(feed(&mut session, &write[90..]).len(), 1);
    assert_eq!(session.payload_to_come(), 0);
}

#[test]
fn a_shrunk_export_refuses_what_lies_behind_its_end() {
    let mut session = attached("disk");
    session.resize(0, 4096);
    let events = feed(&mut session, &request(0, 0, 7, 4096, 1, &[]));
    assert_eq!(events, [Event::Send(session.replies().error(7, NbdError::Invalid))]);
}

#[test]
fn simple_replies() {
    let mut session = plain();
    feed(&mut session, &go("disk"));
    let ok = b"\x67\x44\x66\x98\0\0\0\0\0\0\0\0\0\0\0\x07";
    assert_eq!(session.replies().done(7)[..], ok[..]);
    assert_eq!(
        session.replies().error(7, NbdError::NoSpace)[..],
        b"\x67\x44\x66\x98\0\0\0\x1c\0\0\0\0\0\0\0\x07"[..]
    );
    let pieces = vec![Piece::Data(Bytes::from_static(b"ab")), Piece::Zeros(2)];
    assert_eq!(session.replies().data(7, 0, pieces, false).concat(), [&ok[..], b"ab\0\0"].concat());
}

#[test]
fn structured_replies() {
    let session = attached("disk");
    let pieces = vec![Piece::Data(Bytes::from_static(b"ab")), Piece::Zeros(1), Piece::Zeros(2)];
    let head = b"\x66\x8e\x33\xef";
    let cookie = b"\0\0\0\0\0\0\0\x07";
    let parts = [
        &head[..],
        b"\0\0\0\x01",
        cookie,
        b"\0\0\0\x0a",
        b"\0\0\0\0\0\0\0\x10",
        b"ab", // data at 16
        &head[..],
        b"\0\x01\0\x02",
        cookie,
        b"\0\0\0\x0c",
        b"\0\0\0\0\0\0\0\x12",
        b"\0\0\0\x03", // hole at 18
    ];
    assert_eq!(session.replies().data(7, 16, pieces.clone(), false).concat(), parts.concat());
    let whole = [&head[..], b"\0\x01\0\x01", cookie, b"\0\0\0\x0d", b"\0\0\0\0\0\0\0\x10", b"ab\0\0\0"];
    assert_eq!(session.replies().data(7, 16, pieces, true).concat(), whole.concat());
    let none = [&head[..], b"\0\x01\0\0", cookie, b"\0\0\0\0"];
    assert_eq!(session.replies().data(7, 16, vec![], false).concat(), none.concat());
    let error = [&head[..], b"\0\x01\x80\x01", cookie, b"\0\0\0\x06", b"\0\0\0\x05\0\0"];
    assert_eq!(session.replies().error(7, NbdError::Io)[..], error.concat());
}

#[test]
fn block_status_joins_and_cuts() {
    let session = attached("disk");
    let range = |len, hole| Range { len, hole, zero: hole };
    let ranges = [range(10, false), range(5, false), range(0, true), range(100, true), range(9, false)];
    let body = |reply: Bytes| reply[24..].to_vec();
    assert_eq!(
        body(session.replies().block_status(7, 20, &ranges, false)),
        b"\0\0\0\x0f\0\0\0\0\0\0\0\x05\0\0\0\x03"
    );
    assert_eq!(body(session.replies().block_status(7, 20, &ranges, true)), b"\0\0\0\x0f\0\0\0\0");
}

#[test]
fn every_split_of_a_talk_gives_the_same_events() {
    let talk = [
        3u32.to_be_bytes().to_vec(),
        option(8, &[]).to_vec(),
        set_allocation("disk").to_vec(),
        go("disk").to_vec(),
        request(0, 1, 1, 0, 4, b"abcd").to_vec(),
        request(0, 0, 2, 0, 4, &[]).to_vec(),
        request(0, 2, 3, 0, 0, &[]).to_vec(),
    ]
    .concat();
    let (mut session, _) = Session::new(exports());
    let whole = feed(&mut session, &talk);
    for at in 0..talk.len() {
        let (mut session, _) = Session::new(exports());
        let mut events = feed(&mut session, &talk[..at]);
        events.extend(feed(&mut session, &talk[at..]));
        assert_eq!(events, whole, "split at {at}");
    }
}

proptest! {
    #[test]
    fn any_bytes_are_survived(flags in 0u32..4, chunks in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..80), 0..20)) {
        let (mut session, _) = Session::new(exports());
        feed(&mut session, &flags.to_be_bytes());
        for chunk in &chunks {
            feed(&mut session, chunk);
        }
    }

    #[test]
    fn any_option_is_survived(code in 0u32..12, data in prop::collection::vec(any::<u8>(), 0..200), cut in 0usize..200) {
        let mut session = plain();
        feed(&mut session, &option(8, &[]));
        feed(&mut session, &option(code, &data));
        let bytes = option(code, &data);
        feed(&mut session, &bytes[..cut.min(bytes.len())]);
    }

    #[test]
    fn a_request_lies_inside_its_export(flags: u16, kind in 0u16..10, offset: u64, near in 0u64..4096, len: u32) {
        for offset in [offset, MIB - near] {
            let mut session = attached("disk");
            if kind == 1 { continue; }
            for event in feed(&mut session, &request(flags & 31, kind, 1, offset, len % 8192, &[])) {
                let Event::Request(request) = event else { continue };
                let (offset, len) = match request.command {
                    Command::Read { offset, len, .. } | Command::Trim { offset, len, .. }
                    | Command::WriteZeroes { offset, len, .. } | Command::BlockStatus { offset, len, .. }
                    | Command::Cache { offset, len } => (offset, len),
                    Command::Write { .. } | Command::Flush => continue,
                };
                prop_assert!(offset + u64::from(len) <= MIB);
            }
        }
    }
}
