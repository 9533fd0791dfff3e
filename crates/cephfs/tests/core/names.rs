//! Names: what is taken from memory, and for how long; paths.

use std::time::Duration;

use cephfs::{Answer, Call, Node};
use codec::Encode;
use messages::fs::{
    CapOp, Caps, DirEntry, FsOp, LeaseAction, LeaseStat, MClientCaps, MClientLease, MClientReply,
    ReaddirReply, Trace, TraceDentry,
};
use types::{Errno, Ino, SnapId};

use crate::world::{World, folder, name, stat};

fn lookup(text: &str) -> Call {
    Call::Lookup { dir: Node::ROOT, name: name(text) }
}

/// A name with a lease in a folder that is not shared.
fn leased(w: &mut World, text: &str, duration_ms: u32) {
    let ticket = w.submit(lookup(text));
    let (tid, _) = w.request();
    let mut dir = folder(Ino(1));
    (dir.cap.caps, dir.cap.seq) = (Caps::PIN, 9);
    let lease = LeaseStat { mask: LeaseStat::VALID, duration_ms, seq: 3, ..LeaseStat::default() };
    let mut m = MClientReply { op: FsOp::LOOKUP, is_safe: true, ..MClientReply::default() };
    let dentry = TraceDentry { dir, name: name(text), lease, ..TraceDentry::default() };
    m.set_trace(&Trace { dentry: Some(dentry), target: Some(folder(Ino(60))) });
    w.say(tid, m);
    assert!(w.done(ticket).is_ok());
}

#[test]
fn a_lease_lasts_for_its_time_or_until_it_is_taken_back() {
    let mut w = World::mounted();
    leased(&mut w, "a", 30_000);
    let asks = |w: &mut World| {
        let ticket = w.submit(lookup("a"));
        if w.is_done(ticket).is_some() {
            return false;
        }
        let (tid, _) = w.request();
        w.refuse(tid, FsOp::LOOKUP, Errno::EIO);
        true
    };
    assert!(!asks(&mut w));
    w.now.mono += Duration::from_secs(29);
    assert!(!asks(&mut w));
    w.now.mono += Duration::from_secs(2);
    assert!(asks(&mut w));
    leased(&mut w, "a", 30_000);
    assert!(!asks(&mut w));
    let m = MClientLease {
        action: LeaseAction::REVOKE,
        ino: Ino(1),
        name: name("a"),
        seq: 3,
        last: SnapId::HEAD,
        ..Default::default()
    };
    w.say(0, m);
    let released = w.take(|e| match e {
        cephfs::Effect::Send { msg: messages::Message::ClientLease(m), .. } => Some(m.action),
        _ => None,
    });
    assert_eq!(released, [LeaseAction::RELEASE]);
    assert!(asks(&mut w));
}

#[test]
fn a_folder_that_was_listed_whole_has_no_other_names() {
    let mut w = World::mounted();
    let ticket = w.submit(Call::Readdir { dir: Node::ROOT, from: None });
    let (tid, m) = w.request();
    assert_eq!(m.op, FsOp::READDIR);
    let entry = DirEntry { name: name("only"), inode: folder(Ino(80)), ..DirEntry::default() };
    let listing = ReaddirReply { flags: ReaddirReply::END, entries: vec![entry], ..ReaddirReply::default() };
    let mut m =
        MClientReply { op: FsOp::READDIR, is_safe: true, extra: listing.to_bytes(), ..Default::default() };
    m.set_trace(&Trace { dentry: None, target: Some(folder(Ino(1))) });
    w.say(tid, m);
    assert!(matches!(w.done(ticket), Ok(Answer::Listing { entries, next: None }) if entries.len() == 1));
    let ticket = w.submit(lookup("other"));
    assert_eq!(w.done(ticket), Err(Errno::ENOENT));
    let ticket = w.submit(lookup("only"));
    assert!(w.done(ticket).is_ok() && w.requests().is_empty());
    // What is taken back was held for a reason: somebody may make names.
    let revoke = MClientCaps {
        op: CapOp::REVOKE,
        ino: Ino(1),
        cap_id: 1,
        seq: 5,
        caps: Caps(0x55),
        ..Default::default()
    };
    w.say(0, revoke);
    let grant = MClientCaps {
        op: CapOp::GRANT,
        ino: Ino(1),
        cap_id: 1,
        seq: 6,
        caps: Caps::ALL_SHARED,
        ..Default::default()
    };
    w.say(0, MClientCaps { mode: 0o040_755, nlink: 1, nfiles: -1, nsubdirs: -1, ..grant });
    let _ = w.submit(lookup("other"));
    assert_eq!(w.request().1.op, FsOp::LOOKUP);
}

#[test]
fn paths_go_through_links_and_up_and_into_snapshots() {
    let mut w = World::mounted();
    let walk = |path: &str| Call::Walk { path: name(path), follow: true };
    let ticket = w.submit(walk("/dir/link/../.."));
    let (tid, _) = w.request();
    w.reply(tid, FsOp::LOOKUP, true, Some("dir"), Some(folder(Ino(60))));
    let (tid, m) = w.request();
    assert_eq!((m.path.base, m.path.path), (Ino(60), name("link")));
    let mut link = stat(Ino(61), 0o120_777, Caps::ALL_SHARED);
    link.symlink = name("/dir");
    w.reply(tid, FsOp::LOOKUP, true, None, Some(link.clone()));
    assert!(matches!(w.done(ticket), Ok(Answer::Attr(attr)) if attr.node == Node::ROOT), "/dir/../..");

    let ticket = w.submit(walk("/dir/.snap/s1/x"));
    let (tid, m) = w.request();
    assert_eq!((m.op, m.path.base, m.path.path), (FsOp::LOOKUPSNAP, Ino(60), name("/s1")));
    let snap = |ino, mode| messages::fs::InodeStat { snap: SnapId(4), ..stat(ino, mode, Caps::ALL_SHARED) };
    w.reply(tid, FsOp::LOOKUPSNAP, true, None, Some(snap(Ino(60), 0o040_755)));
    let (tid, m) = w.request();
    assert_eq!((m.op, m.path.base, m.path.path), (FsOp::LOOKUP, Ino(60), name("/s1/x")));
    w.reply(tid, FsOp::LOOKUP, true, None, Some(snap(Ino(62), 0o100_644)));
    assert!(matches!(w.done(ticket), Ok(Answer::Attr(attr)) if attr.node.snap == SnapId(4)));

    // A link to itself ends.
    let ticket = w.submit(walk("/loop"));
    let (tid, _) = w.request();
    link.symlink = name("loop");
    (link.ino, link.cap.cap_id) = (Ino(63), 63);
    w.reply(tid, FsOp::LOOKUP, true, Some("loop"), Some(link));
    assert_eq!(w.done(ticket), Err(Errno::ELOOP));
}
