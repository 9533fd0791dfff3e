//! Options and what they are answered with, byte for byte.

mod common;

use bytes::{BufMut, Bytes, BytesMut};
use common::{exports, feed, go, option, plain, set_allocation, string};
use nbd::{CloseReason, Event, Session};

fn reply(code: u32, kind: u32, body: &[u8]) -> Vec<u8> {
    let mut out = BytesMut::new();
    out.put_u64(0x0003_e889_0455_65a9);
    out.put_u32(code);
    out.put_u32(kind);
    out.put_u32(body.len() as u32);
    out.put_slice(body);
    out.to_vec()
}

fn check(given: &[Bytes], expected: &[Vec<u8>]) {
    let mut session = plain();
    let mut sent = Vec::new();
    for bytes in given {
        for event in feed(&mut session, bytes) {
            match event {
                Event::Send(bytes) => sent.extend_from_slice(&bytes),
                other => panic!("{other:?}"),
            }
        }
    }
    assert_eq!(sent, expected.concat());
}

#[test]
fn list_shows_every_export() {
    let mut disk = string("disk");
    disk.extend(b"image disk");
    let mut ro = string("ro");
    ro.extend(b"image ro");
    check(&[option(3, &[])], &[reply(3, 2, &disk), reply(3, 2, &ro), reply(3, 1, &[])]);
}

#[test]
fn go_tells_size_flags_and_block_sizes() {
    // HAS_FLAGS, FLUSH, FUA, TRIM, WRITE_ZEROES, MULTI_CONN, CACHE; no DF without structured replies.
    let mut export = vec![0, 0];
    export.extend((1u64 << 20).to_be_bytes());
    export.extend(0x056du16.to_be_bytes());
    let mut sizes = vec![0, 3];
    for size in [1u32, 4096, 32 << 20] {
        sizes.extend(size.to_be_bytes());
    }
    check(&[go("disk")], &[reply(7, 3, &export), reply(7, 3, &sizes), reply(7, 1, &[])]);
}

#[test]
fn tls_and_unknown_options_are_unsupported_and_the_talk_goes_on() {
    let unsup = (1 << 31) + 1;
    check(
        &[option(5, &[]), option(99, b"x"), option(8, &[])],
        &[reply(5, unsup, b"not supported"), reply(99, unsup, b"not supported"), reply(8, 1, &[])],
    );
}

#[test]
fn metadata_contexts() {
    let mut all = string("disk");
    all.extend(0u32.to_be_bytes());
    let mut context = 0u32.to_be_bytes().to_vec();
    context.extend(b"base:allocation");
    let mut selected = 1u32.to_be_bytes().to_vec();
    selected.extend(b"base:allocation");
    check(&[option(9, &all)], &[reply(9, 4, &context), reply(9, 1, &[])]);
    check(
        &[option(10, &all), option(8, &[])],
        &[reply(10, (1 << 31) + 3, b"structured replies come first"), reply(8, 1, &[])],
    );
    check(
        &[option(8, &[]), set_allocation("disk")],
        &[reply(8, 1, &[]), reply(10, 4, &selected), reply(10, 1, &[])],
    );
    check(
        &[option(8, &[]), set_allocation("none")],
        &[reply(8, 1, &[]), reply(10, (1 << 31) + 6, b"no such export")],
    );
}

#[test]
fn an_unknown_export_is_an_error_for_go_and_the_end_for_export_name() {
    check(&[go("none")], &[reply(7, (1 << 31) + 6, b"no such export")]);
    let mut session = plain();
    assert_eq!(feed(&mut session, &option(1, b"none")), [Event::Close(CloseReason::NoSuchExport)]);
}

#[test]
fn export_name_pads_only_for_clients_that_want_it() {
    for (flags, len) in [(1u32, 8 + 2 + 124), (3, 8 + 2)] {
        let (mut session, _) = Session::new(exports());
        feed(&mut session, &flags.to_be_bytes());
        let events = feed(&mut session, &option(1, b"disk"));
        assert!(matches!(&events[..], [Event::Send(bytes)] if bytes.len() == len), "{events:?}");
        assert_eq!(session.export(), Some(0));
    }
}

fn needing_tls() -> Session {
    let (mut session, greeting) = Session::with_tls(exports());
    assert_eq!(&greeting[..8], b"NBDMAGIC");
    assert!(feed(&mut session, &3u32.to_be_bytes()).is_empty());
    session
}

fn sent(code: u32, kind: u32, body: &[u8]) -> Event {
    Event::Send(reply(code, kind, body).into())
}

#[test]
fn nothing_is_told_before_tls_where_it_comes_first() {
    let (required, invalid) = ((1 << 31) + 5, (1 << 31) + 3);
    let mut session = needing_tls();
    for bytes in [option(3, &[]), go("disk"), option(8, &[]), set_allocation("disk"), option(99, b"x")] {
        let code = u32::from_be_bytes(bytes[8..12].try_into().expect("4"));
        assert_eq!(feed(&mut session, &bytes), [sent(code, required, b"TLS comes first")]);
    }
    assert_eq!(feed(&mut session, &option(5, b"x")), [sent(5, invalid, b"STARTTLS has no data")]);
    assert_eq!(feed(&mut session, &option(5, &[])), [sent(5, 1, &[]), Event::StartTls]);
    assert_eq!(feed(&mut session, &option(5, &[])), [sent(5, invalid, b"TLS is on")]);
    assert_eq!(feed(&mut session, &option(8, &[])), [sent(8, 1, &[])], "what was refused was not agreed");
    feed(&mut session, &go("disk"));
    assert_eq!(session.export(), Some(0));
}

#[test]
fn the_old_way_to_an_export_ends_a_connection_without_tls() {
    assert_eq!(feed(&mut needing_tls(), &option(1, b"disk")), [Event::Close(CloseReason::NoTls)]);
    assert_eq!(feed(&mut needing_tls(), &option(2, &[])), [sent(2, 1, &[])]);
}

#[test]
fn bytes_behind_starttls_are_not_taken_for_ones_that_came_through_it() {
    let mut session = needing_tls();
    let injected = [option(5, &[]), go("disk")].concat();
    assert_eq!(feed(&mut session, &injected), [sent(5, 1, &[]), Event::Close(CloseReason::BytesBeforeTls)]);
}

#[test]
fn abort_is_acknowledged() {
    check(&[option(2, &[])], &[reply(2, 1, &[])]);
}

#[test]
fn malformed_options_close() {
    let mut bad_magic = option(3, &[]).to_vec();
    bad_magic[0] = 0;
    let mut too_long = option(3, &[]).to_vec();
    too_long[12..16].copy_from_slice(&(70u32 << 10).to_be_bytes());
    let mut short_name = vec![0, 0, 0, 9];
    short_name.extend(b"disk\0\0");
    let mut extra = string("disk");
    extra.extend([0, 0, 7]);
    let mut claims_queries = string("disk");
    claims_queries.extend(u32::MAX.to_be_bytes());
    for bytes in [
        bad_magic,
        too_long,
        option(3, b"x").to_vec(),
        option(8, b"x").to_vec(),
        option(7, &short_name).to_vec(),
        option(7, &extra).to_vec(),
        option(7, &[]).to_vec(),
        option(1, b"\xff\xfe").to_vec(),
        option(1, b"a\0b").to_vec(),
        option(9, &claims_queries).to_vec(),
    ] {
        let mut session = plain();
        assert_eq!(feed(&mut session, &bytes), [Event::Close(CloseReason::MalformedOption)], "{bytes:?}");
        assert_eq!(feed(&mut session, &option(3, &[])), [], "nothing follows a close");
    }
}

#[test]
fn unknown_client_flags_close() {
    let (mut session, _) = Session::new(exports());
    assert_eq!(feed(&mut session, &7u32.to_be_bytes()), [Event::Close(CloseReason::UnknownFlags)]);
}
