//! A client that writes the bytes of options and requests, and collects events.
#![allow(dead_code, reason = "each test file uses its part")]

use bytes::{BufMut, Bytes, BytesMut};
use nbd::{Event, Export, Session};

pub const MIB: u64 = 1 << 20;

pub fn exports() -> Vec<Export> {
    let export = |name: &str, size, read_only| Export {
        name: name.to_owned(),
        description: format!("image {name}"),
        size,
        read_only,
        multi_conn: true,
        preferred_block: 4096,
    };
    vec![export("disk", MIB, false), export("ro", 4096, true)]
}

pub fn option(code: u32, data: &[u8]) -> Bytes {
    let mut out = BytesMut::new();
    out.put_u64(0x4948_4156_454f_5054);
    out.put_u32(code);
    out.put_u32(data.len() as u32);
    out.put_slice(data);
    out.freeze()
}

pub fn string(text: &str) -> Vec<u8> {
    let mut out = (text.len() as u32).to_be_bytes().to_vec();
    out.extend(text.as_bytes());
    out
}

pub fn go(name: &str) -> Bytes {
    let mut data = string(name);
    data.extend([0, 0]);
    option(7, &data)
}

pub fn set_allocation(name: &str) -> Bytes {
    let mut data = string(name);
    data.extend(1u32.to_be_bytes());
    data.extend(string("base:allocation"));
    option(10, &data)
}

pub fn request(flags: u16, kind: u16, cookie: u64, offset: u64, len: u32, payload: &[u8]) -> Bytes {
    let mut out = BytesMut::new();
    out.put_u32(0x2560_9513);
    out.put_u16(flags);
    out.put_u16(kind);
    out.put_u64(cookie);
    out.put_u64(offset);
    out.put_u32(len);
    out.put_slice(payload);
    out.freeze()
}

/// Gives the bytes in one go and returns everything the session asks for.
pub fn feed(session: &mut Session, bytes: &[u8]) -> Vec<Event> {
    session.input().extend_from_slice(bytes);
    let mut out = Vec::new();
    while let Some(event) = session.next_event() {
        out.push(event);
    }
    out
}

/// A session behind its handshake with structured replies and `base:allocation` on `name`.
pub fn attached(name: &str) -> Session {
    let mut session = plain();
    for bytes in [option(8, &[]), set_allocation(name), go(name)] {
        feed(&mut session, &bytes);
    }
    assert!(session.export().is_some());
    session
}

/// A session that has the client's flags.
pub fn plain() -> Session {
    let (mut session, greeting) = Session::new(exports());
    assert_eq!(&greeting[..8], b"NBDMAGIC");
    assert!(feed(&mut session, &3u32.to_be_bytes()).is_empty());
    session
}
