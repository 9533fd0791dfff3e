//! Messages of file systems' clients: what is inside captured ones, and what is not accepted.

mod common;

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use codec::{Decode, Encode, Reader};
use common::{captured, captured_types};
use messages::fs::{
    CapDrop, CapOp, Caps, CreateReply, FileLocks, FsOp, InodeStat, MClientCaps, MClientReconnect,
    MClientReply, MClientRequest, Metric, ReaddirReply, RequestArgs, SessionOp, SetAttr, decode_xattrs,
    encode_xattrs, features,
};
use messages::{Message, Payload, WireMessage, type_numbers as ty};
use types::{Ino, SnapId};

fn all<T: Payload>() -> Vec<T> {
    captured(T::TYPE).iter().map(|w| T::from_wire(w).expect("decodes")).collect()
}

/// Cut anywhere it is an error, and whole it comes back.
fn check_cuts<T: Decode + Encode + PartialEq + std::fmt::Debug>(whole: &Bytes) -> T {
    for n in 0..whole.len() {
        assert!(T::from_bytes(whole.slice(..n)).is_err(), "{n} of {}", whole.len());
    }
    let value = T::from_bytes(whole.clone()).expect("decodes");
    assert_eq!(value.to_bytes(), whole);
    value
}

#[test]
fn traces_come_back_byte_for_byte() {
    let mut seen = (0, 0, 0);
    for reply in all::<MClientReply>() {
        let trace = reply.trace().expect("decodes");
        let mut again = MClientReply { trace: Bytes::new(), ..reply.clone() };
        again.set_trace(&trace);
        assert_eq!(again, reply);
        for n in 0..reply.trace.len() {
            let cut = MClientReply { trace: reply.trace.slice(..n), ..reply.clone() };
            assert!(cut.trace().is_err(), "{n}");
        }
        assert_eq!(reply.snap_trace().expect("decodes").to_bytes(), reply.snaps);
        let names = trace.dentry.iter().filter(|d| !d.name.is_empty()).count();
        seen = (seen.0 + names, seen.1 + usize::from(trace.target.is_some()), seen.2 + trace_snaps(&reply));
        if let Some(inode) = trace.target.filter(|i| i.inline_version == InodeStat::INLINE_NONE) {
            assert!(inode.ino != Ino(0) && inode.mode & 0o170_000 != 0, "{inode:?}");
        }
    }
    assert!(seen.0 > 10 && seen.1 > 10 && seen.2 > 0, "{seen:?}");
}

fn trace_snaps(reply: &MClientReply) -> usize {
    reply.snap_trace().expect("decodes").0.iter().map(|realm| realm.snaps.len()).sum()
}

#[test]
fn inodes_tell_their_extended_attributes() {
    let inodes = all::<MClientReply>().into_iter().filter_map(|m| m.trace().expect("decodes").target);
    let blobs: Vec<Bytes> = inodes.map(|i| i.xattrs).filter(|x| x.len() > 4).collect();
    let xattrs = decode_xattrs(&blobs[0]).expect("decodes");
    assert_eq!(encode_xattrs(&xattrs), blobs[0]);
    assert!(xattrs.keys().all(|k| k.starts_with(b"user.")) && !xattrs.is_empty(), "{xattrs:?}");
    for n in 1..blobs[0].len() {
        assert!(decode_xattrs(&blobs[0].slice(..n)).is_err(), "{n}");
    }
}

#[test]
fn what_replies_bring_besides_comes_back() {
    let (mut listings, mut created) = (0, 0);
    for reply in all::<MClientReply>().iter().filter(|r| !r.extra.is_empty()) {
        match reply.op {
            FsOp::READDIR | FsOp::LSSNAP => {
                let listing: ReaddirReply = check_cuts(&reply.extra);
                assert!(listing.flags & ReaddirReply::END != 0 && !listing.entries.is_empty());
                assert!(listing.entries.iter().all(|e| !e.name.is_empty() && e.inode.snap <= SnapId::HEAD));
                listings += 1;
            }
            FsOp::CREATE => {
                let made: CreateReply = check_cuts(&reply.extra);
                assert_eq!(Some(made.created), reply.trace().expect("decodes").target.map(|i| i.ino));
                created += 1;
            }
            op => assert!(op == FsOp::GETVXATTR || op == FsOp::OPEN, "{op}"),
        }
    }
    assert!(listings > 0 && created > 0, "{listings} {created}");
}

#[test]
fn requests_say_what_the_client_meant() {
    let requests = all::<MClientRequest>();
    let ops: BTreeSet<FsOp> = requests.iter().map(|m| m.op).collect();
    let must = [
        FsOp::LOOKUP,
        FsOp::GETATTR,
        FsOp::OPEN,
        FsOp::READDIR,
        FsOp::LSSNAP,
        FsOp::SETXATTR,
        FsOp::RMXATTR,
        FsOp::SETATTR,
        FsOp::SETFILELOCK,
        FsOp::MKNOD,
        FsOp::LINK,
        FsOp::UNLINK,
        FsOp::RENAME,
        FsOp::MKDIR,
        FsOp::SYMLINK,
        FsOp::CREATE,
        FsOp::MKSNAP,
        FsOp::RENAMESNAP,
    ];
    for op in must {
        assert!(ops.contains(&op), "no capture of {op}");
    }
    let has = |f: &dyn Fn(&MClientRequest) -> bool| assert!(requests.iter().any(f));
    has(
        &|m| matches!(&m.args, RequestArgs::SetAttr(a) if a.mask & SetAttr::MODE != 0 && a.mode & 0o777 == 0o600),
    );
    has(&|m| m.op == FsOp::SETXATTR && m.path2.path == "user.k1" && m.data == "v1");
    has(&|m| m.op == FsOp::SYMLINK && m.path.path == "sym" && m.path2.path == "file");
    has(&|m| m.drops.iter().any(|d: &CapDrop| !d.name.is_empty() && d.ino != Ino(0)));
    has(&|m| matches!(&m.args, RequestArgs::FileLock { lock, wait: true, .. } if lock.owner == 1 << 63 | 1));
    has(&|m| m.wide_counts && m.args != RequestArgs::None);
    for mut narrow in requests {
        narrow.wide_counts = false;
        (narrow.num_retry, narrow.num_fwd) = (3, 200);
        assert_eq!(MClientRequest::from_wire(&narrow.to_wire(1)), Ok(narrow));
    }
}

/// The form of clients from before birth times: without a version in front, and with a shorter union.
#[test]
fn requests_of_old_clients_are_read() {
    let wire =
        captured(ty::CLIENT_REQUEST).into_iter().find(|w| w.front.get(22..26) == Some(&[8, 0x11, 0, 0]));
    let wire = wire.expect("a setattr");
    let new = MClientRequest::from_wire(&wire).expect("decodes");
    let mut front = wire.front[2..90].to_vec();
    front.extend_from_slice(&wire.front[106..]);
    let mut old = WireMessage { front: front.into(), ..wire };
    old.header.version = 3;
    let got = MClientRequest::from_wire(&old).expect("decodes");
    assert_eq!((got.op, got.args, got.path, got.drops), (new.op, new.args, new.path, new.drops));
    assert!(!got.wide_counts && got.gids.is_empty());
}

#[test]
fn capabilities_say_what_was_flushed_and_moved() {
    let caps = all::<MClientCaps>();
    let ops: BTreeSet<CapOp> = caps.iter().map(|m| m.op).collect();
    for op in [CapOp::GRANT, CapOp::REVOKE, CapOp::UPDATE, CapOp::FLUSH_ACK, CapOp::EXPORT, CapOp::IMPORT] {
        assert!(ops.contains(&op), "no capture of {op:?}");
    }
    assert!(caps.iter().any(|m| m.op == CapOp::EXPORT && m.peer.rank == 1));
    assert!(
        caps.iter().any(|m| m.op == CapOp::UPDATE && m.dirty.intersects(Caps::ANY_FILE_WR) && m.size > 0)
    );
    assert!(caps.iter().any(|m| !m.snaps.0.is_empty()));
    let with_xattrs = caps.iter().find(|m| !m.xattrs.is_empty()).expect("some tell extended attributes");
    assert_eq!(decode_xattrs(&with_xattrs.xattrs), Ok(BTreeMap::new()));
    let mut wire = with_xattrs.to_wire(1);
    wire.middle = wire.middle.slice(1..);
    assert!(MClientCaps::from_wire(&wire).is_err(), "the attributes are not whole");
}

/// Each form ends where the next one's fields begin.
#[test]
fn older_forms_of_capabilities_are_read() {
    let is_flush = |w: &WireMessage| MClientCaps::from_wire(w).is_ok_and(|m| !m.dirty.is_empty());
    let mut wire = captured(ty::CLIENT_CAPS).into_iter().find(is_flush).expect("a flush");
    let newest = MClientCaps::from_wire(&wire).expect("decodes");
    let tails = [
        16,
        4,
        16,
        4 + newest.layout.pool_ns.len(),
        8,
        8,
        4,
        12 + newest.inline_data.len(),
        0,
        4 + newest.flock.len(),
    ];
    for (newer, tail) in (1..=10).rev().zip(tails) {
        wire.header.version = newer;
        wire.front = wire.front.slice(..wire.front.len() - tail);
        let got = MClientCaps::from_wire(&wire).unwrap_or_else(|e| panic!("version {newer}: {e}"));
        assert_eq!((got.op, got.size, got.dirty), (newest.op, newest.size, newest.dirty), "version {newer}");
        let cut = WireMessage { front: wire.front.slice(..wire.front.len() - 1), ..wire.clone() };
        assert!(MClientCaps::from_wire(&cut).is_err(), "version {newer}");
    }
}

#[test]
fn sessions_tell_features_and_reconnects_tell_locks() {
    let Ok(Message::ClientSession(open)) = Message::decode(&captured(ty::CLIENT_SESSION)[0]) else {
        panic!("a session")
    };
    assert_eq!(open.op, SessionOp::REQUEST_OPEN);
    assert!(open.features.contains(features::RETRY_FWD_32BITS) && open.metadata.contains_key("hostname"));
    let mut locks = 0;
    for reconnect in all::<MClientReconnect>() {
        let with = reconnect.caps.values().filter(|c| !c.flock.is_empty());
        for cap in with {
            let held: FileLocks = check_cuts(&cap.flock);
            locks += held.flock.len();
        }
        let whole = reconnect.to_wire(0);
        for n in 0..whole.data.len() {
            let cut = WireMessage { data: whole.data.slice(..n), ..whole.clone() };
            assert!(MClientReconnect::from_wire(&cut).is_err(), "{n}");
        }
        let mut old = whole;
        old.header.version = 3;
        assert!(MClientReconnect::from_wire(&old).is_err(), "of another form");
    }
    assert!(locks > 0);
}

#[test]
fn metrics_of_later_releases_are_passed_over() {
    let all: Vec<Metric> =
        all::<messages::fs::MClientMetrics>().into_iter().flat_map(|m| m.metrics).collect();
    assert!(all.len() > 9 && all.iter().all(|m| !matches!(m, Metric::Other { .. })));
    let other = Metric::Other { kind: 77, version: 9, compat: 3, body: Bytes::from_static(b"abc") };
    let two = vec![other, all[0].clone()];
    assert_eq!(Vec::decode(&mut Reader::new(two.to_bytes())), Ok(two));
}

#[test]
fn each_message_of_clients_was_captured() {
    let types = captured_types();
    for (number, _, name) in Message::KNOWN.iter().filter(|(_, _, name)| name.starts_with("client_")) {
        assert!(types.contains(number), "no capture of {name}");
    }
}

/// A claimed count allocates no more than the bytes that came allow.
#[test]
fn claimed_counts_are_bounded() {
    let short = |front: Vec<u8>| front.into();
    let mut snap = vec![0u8; 24];
    snap[12..16].copy_from_slice(&[0xff; 4]);
    let mut wire = captured(ty::CLIENT_SNAP).remove(0);
    wire.front = short(snap);
    assert!(Message::decode(&wire).is_err());
    let mut request = captured(ty::CLIENT_REQUEST).remove(0);
    let mut front = request.front.to_vec();
    front[20..22].copy_from_slice(&[0xff, 0xff]);
    request.front = front.into();
    assert!(Message::decode(&request).is_err());
    let listing = [&[1u8, 1, 12, 0, 0, 0][..], &[0; 12], &[0xff; 4], &[0; 600]].concat();
    assert!(ReaddirReply::from_bytes(listing).is_err());
}
