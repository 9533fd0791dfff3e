//! The targets.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use codec::Decode;
use messages::Message;
use messages::wire::{Header, WireMessage};
use msgr::{Connection, Event, Limits, Local};
use types::{EntityAddr, Now};

use crate::budget::{Budget, DECODER};
use crate::commands::{mon_arguments, mon_commands};
use crate::crashes::{crash_report, mgr_arguments};
use crate::frames::{RECEIVE_BUFFER, frames, sealed_frames};
use crate::gateway::{rgw_manifest, rgw_names, rgw_policy, rgw_stored};
use crate::given::{admin_socket, cap_use, conf, nbd, option};
use crate::groups::{mon_state, pg_message, pg_part};
use crate::images::{rbd_diff, rbd_header, rbd_part, rbd_stored};
use crate::logins::{authorizer, login, login_client};
use crate::medium::{page, record, superblock};
use crate::methods::class_object;
use crate::mons::{mon_peer, mon_store, quorum_message};
use crate::osds::osd_requests;
use crate::replies::{output, replies};

/// Of a map that places as badly as its numbers allow: `crush::DRAW_BUDGET` bounds each placement.
const PLACES: Budget = DECODER.and_time(Duration::from_secs(4));

/// Monitors that hold a whole state several times over, and run dozens of commands.
const MONITOR: Budget = Budget::heap(64, 32 << 20).and_time(Duration::from_secs(10)).one_of(80);

/// An OSD whose requests may touch twice the largest object each.
const OSD: Budget = Budget::heap(64, 256 << 20).and_time(Duration::from_secs(20)).one_of(40);

/// Managers with the map of a real cluster, and dozens of commands.
const MANAGER: Budget = Budget::heap(64, 8 << 20).and_time(Duration::from_secs(10)).one_of(80);

/// A decoder under test.
#[derive(Clone, Copy)]
pub struct Target {
    pub name: &'static str,
    pub run: fn(&[u8]),
    pub budget: Budget,
}

macro_rules! targets {
    ($($name:ident: $budget:expr),+ $(,)?) => {
        /// Every target.
        pub const TARGETS: &[Target] =
            &[$( Target { name: stringify!($name), run: $name, budget: $budget } ),+];
    };
}
targets![
    addr: DECODER,
    hobject: DECODER,
    crush_map: PLACES,
    crush_text: DECODER,
    monmap: DECODER,
    osdmap: PLACES,
    incremental: DECODER,
    mgrmap: DECODER,
    message: DECODER,
    osd_op: DECODER,
    connection: Budget::heap(64, RECEIVE_BUFFER),
    frames: Budget::heap(64, RECEIVE_BUFFER),
    sealed_frames: Budget::heap(64, RECEIVE_BUFFER),
    // Maps that follow each other are held, old and new.
    replies: Budget::heap(64, 1 << 20).and_time(Duration::from_secs(4)).one_of(8),
    output: DECODER,
    keyring: DECODER,
    ticket: DECODER,
    authorizer: DECODER,
    login: DECODER,
    login_client: DECODER,
    // The programs of regular expressions are bounded, and large beside a pattern with counts.
    cap_use: Budget::heap(64, 1 << 20).and_time(Duration::from_secs(2)),
    option: DECODER,
    admin_socket: DECODER,
    nbd: DECODER,
    pg_part: DECODER,
    pg_message: DECODER,
    mon_state: DECODER,
    superblock: DECODER,
    record: DECODER,
    page: DECODER,
    mon_cap: DECODER,
    osd_cap: DECODER,
    mgr_cap: DECODER,
    command: DECODER,
    txn: DECODER,
    class_method: DECODER,
    // A few bytes make an object of 16 MiB, which is held as it was, as it becomes, and as it is encoded.
    class_object: Budget::heap(64, 128 << 20).and_time(Duration::from_secs(4)),
    quorum_message: DECODER,
    mon_store: DECODER,
    mon_peer: DECODER,
    mon_commands: MONITOR,
    mon_arguments: MONITOR,
    osd_requests: OSD,
    mgr_arguments: MANAGER,
    crash_report: MANAGER,
    conf: Budget::heap(64, 1 << 20),
    rgw_stored: DECODER,
    // Each stripe names its object.
    rgw_manifest: Budget::heap(64, 4 << 20),
    rgw_names: DECODER,
    rgw_policy: DECODER,
    rbd_header: DECODER,
    rbd_stored: DECODER,
    // States and ranges of objects whose maps have two bits for each.
    rbd_part: Budget::heap(256, 64 << 10),
    // An import reads so much at a time.
    rbd_diff: Budget::heap(64, 5 << 20),
];

fn addr(data: &[u8]) {
    let _ = types::AddrVec::from_bytes(data.to_vec());
}

fn hobject(data: &[u8]) {
    let _ = types::HObject::from_bytes(data.to_vec());
}

fn crush_map(data: &[u8]) {
    if let Ok(map) = crush::CrushMap::from_bytes(data.to_vec()) {
        // A map that was accepted must also be safe to place with.
        let weights = vec![0x10000; 64];
        for (id, rule) in map.rules.iter().enumerate().take(4) {
            if rule.is_some() {
                map.do_rule(id as u32, 1, 3, &weights, None);
            }
        }
    }
}

fn crush_text(data: &[u8]) {
    if let Ok(text) = std::str::from_utf8(data) {
        let _ = crush::CrushMap::compile(text);
    }
}

fn monmap(data: &[u8]) {
    let _ = maps::MonMap::from_bytes(data.to_vec());
}

fn osdmap(data: &[u8]) {
    if let Ok(map) = maps::OsdMap::from_bytes(data.to_vec()) {
        for pg in map.pgs().take(4) {
            map.pg_to_up_acting(pg);
        }
    }
}

fn incremental(data: &[u8]) {
    if let Ok(inc) = maps::Incremental::from_bytes(data.to_vec()) {
        let mut map = maps::OsdMap::default();
        let _ = map.apply(&inc);
    }
}

fn mgrmap(data: &[u8]) {
    let _ = maps::MgrMap::from_bytes(data.to_vec());
}

/// A message's number in two bytes, its version in one, the length of its front in four; then front and data.
fn message(data: &[u8]) {
    let Some((head, rest)) = data.split_first_chunk::<7>() else { return };
    let [t0, t1, version, len @ ..] = *head;
    let (front, body) = rest.split_at(rest.len().min(u32::from_le_bytes(len) as usize));
    let header = Header {
        ty: u16::from_le_bytes([t0, t1]),
        version: version.into(),
        compat_version: 1,
        ..Header::default()
    };
    let wire = WireMessage {
        header,
        front: Bytes::copy_from_slice(front),
        data: Bytes::copy_from_slice(body),
        ..WireMessage::default()
    };
    if let Ok(msg) = Message::decode(&wire) {
        let _ = msg.into_wire(1);
    }
}

/// Two bytes of opcode, 28 of arguments, then input data.
fn osd_op(data: &[u8]) {
    let Some((code, rest)) = data.split_first_chunk::<2>() else { return };
    let Some((arg, indata)) = rest.split_first_chunk::<28>() else { return };
    let op = messages::osd::OsdOp {
        code: messages::osd::OpCode(u16::from_le_bytes(*code)),
        arg: *arg,
        indata: Bytes::copy_from_slice(indata),
        ..messages::osd::OsdOp::default()
    };
    let _ = op.parse();
}

/// An accepting connection that grants everybody access, so that frames behind authentication are reached too.
fn connection(data: &[u8]) {
    let now = Now::default();
    let mut c = Connection::accept(now, Local::default(), EntityAddr::default(), Limits::default());
    let mut buf = BytesMut::from(data);
    c.handle_bytes(now, &mut buf);
    let mut out = Vec::new();
    for _ in 0..64 {
        let Some(event) = c.poll_event() else { break };
        match event {
            Event::AuthRequest { .. } | Event::AuthRequestMore { .. } => {
                c.auth_done(1, msgr::ConMode::Crc, Bytes::new(), &[], &[]);
            }
            Event::SessionRequest(_) => {
                c.accept_session(msgr::Session::incoming(msgr::Policy::stateless_server()), 1, 1);
            }
            _ => {}
        }
        c.take_outgoing(&mut out);
    }
}

fn keyring(data: &[u8]) {
    if let Ok(text) = std::str::from_utf8(data) {
        let _ = cephx::Keyring::parse(text);
    }
}

fn ticket(data: &[u8]) {
    let _ = cephx::TicketBlob::from_bytes(data.to_vec());
}

fn mon_cap(data: &[u8]) {
    if let Ok(text) = std::str::from_utf8(data) {
        let _ = cephx::caps::MonCap::parse(text);
    }
}

fn osd_cap(data: &[u8]) {
    if let Ok(text) = std::str::from_utf8(data) {
        let _ = cephx::caps::OsdCap::parse(text);
    }
}

fn mgr_cap(data: &[u8]) {
    if let Ok(text) = std::str::from_utf8(data) {
        let _ = cephx::caps::MgrCap::parse(text);
    }
}

fn command(data: &[u8]) {
    if let Ok(text) = std::str::from_utf8(data) {
        let _ = monitor::command::Args::parse(&[text.to_owned()]);
    }
}

fn txn(data: &[u8]) {
    let _ = store::Txn::from_bytes(data.to_vec());
}

/// One byte of class, one of method, one that says what the object holds, then the method's input. The object holds the
/// input too, as data and under the keys that a method looks at first: what is stored may be damaged.
fn class_method(data: &[u8]) {
    let Some(([class, method, holds], input)) = data.split_first_chunk::<3>() else { return };
    let Some(class) = classes::CLASSES.get(usize::from(*class) % classes::CLASSES.len()) else { return };
    let Some(method) = class.methods.get(usize::from(*method) % class.methods.len().max(1)) else { return };
    let stored = Bytes::copy_from_slice(input);
    let mut object = classes::fake::FakeObject::default();
    if holds & 1 != 0 {
        object.data = input.to_vec();
    }
    if holds & 2 != 0 {
        let keys =
            ["features", "size", "parent", "snap_seq", "snapshot_0000000000000001", "migration", "state"];
        // An object, a version of it and its head, in a bucket index.
        let index: [&[u8]; 3] = [b"a", b"\x801000_a\0iv1", b"\x801001_a"];
        let keys = keys.iter().map(|k| k.as_bytes()).chain(index);
        object.omap = keys.map(|k| (Bytes::from_static(k), stored.clone())).collect();
    }
    if holds & 4 != 0 {
        let attrs = ["lock.l", "refcount", "chunk_refs", "ceph.objclass.version", "cls_queue_urgent_data"];
        object.attrs = attrs.iter().map(|k| (Bytes::from_static(k.as_bytes()), stored.clone())).collect();
        object.header = stored.clone();
    }
    let mut view = classes::fake::Fake::default();
    if holds & 8 == 0 {
        view.object = Some(object);
    }
    // Twice: what the first call stored is there for the second.
    let _ = view.call(class.name, method.name, stored.clone());
    let _ = view.call(class.name, method.name, stored);
}
