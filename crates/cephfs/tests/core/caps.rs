//! Capabilities of files: used, taken back, flushed.

use std::time::Duration;

use cephfs::{Answer, Call, Input};
use messages::fs::{
    CapOp, Caps, FsOp, InodeStat, MClientCaps, MClientSnap, RequestArgs, SnapOp, SnapRealmInfo, SnapTrace,
};
use types::{Epoch, Errno, Ino};

use crate::world::{ALL, FILE, World, file, name};

fn write(w: &mut World, handle: cephfs::Handle, offset: u64, text: &str) -> cephfs::Ticket {
    w.submit(Call::Write { handle, offset: Some(offset), data: name(text) })
}

#[test]
fn a_revocation_is_answered_when_the_write_is_over_and_brings_the_size() {
    let (mut w, handle) = World::opened(ALL);
    let ticket = write(&mut w, handle, 0, "hello");
    let objects = w.objects();
    assert_eq!((objects.len(), objects[0].1.object.name.as_str()), (1, "64.00000000"));
    let revoke = w.caps(CapOp::REVOKE, Caps(0x155));
    w.say(0, revoke.clone());
    let said = w.caps_said();
    let kept = Caps(0x155) | Caps::FILE_WR;
    assert_eq!(
        (said.len(), said[0].1.caps, said[0].1.dirty),
        (1, kept, Caps::NONE),
        "the write is under way"
    );
    // Another one has to wait for the capability.
    let second = write(&mut w, handle, 5, "world");
    assert!(w.objects().is_empty());
    w.objects_done(objects);
    assert_eq!(w.done(ticket), Ok(Answer::Written(5)));
    let said = w.caps_said();
    let (tid, m) = &said[0];
    assert_eq!((m.op, m.seq, m.size, m.dirty), (CapOp::UPDATE, revoke.seq, 5, Caps::FILE_WR));
    assert_eq!(m.flags & MClientCaps::SYNC, MClientCaps::SYNC, "somebody waits for it");
    assert!(!m.caps.intersects(Caps::FILE_WR) && *tid > 0 && m.wanted.contains(Caps::FILE_WR), "{m:?}");
    let ack =
        MClientCaps { op: CapOp::FLUSH_ACK, dirty: Caps::FILE_WR, ..w.caps(CapOp::FLUSH_ACK, Caps(0x155)) };
    w.say(*tid, ack);
    let grant = w.caps(CapOp::GRANT, ALL);
    w.say(0, MClientCaps { size: 5, ..grant });
    let objects = w.objects();
    w.objects_done(objects);
    assert_eq!(w.done(second), Ok(Answer::Written(5)));
}

/// The capability is in use until the objects have answered.
#[test]
fn a_file_may_be_closed_while_it_is_written() {
    let (mut w, handle) = World::opened(ALL);
    let ticket = write(&mut w, handle, 0, "hello");
    let objects = w.objects();
    let closed = w.submit(Call::Close { handle });
    assert!(w.done(closed).is_ok());
    let revoke = w.caps(CapOp::REVOKE, Caps(0x155));
    w.say(0, revoke);
    w.objects_done(objects);
    assert_eq!(w.done(ticket), Ok(Answer::Written(5)));
    let said = w.caps_said();
    let m = &said.last().expect("it is flushed").1;
    assert!(m.dirty == Caps::FILE_WR && !m.caps.intersects(Caps::FILE_WR), "{m:?}");
}

/// Nothing is granted for a handle that is gone.
#[test]
fn a_call_that_waits_ends_with_its_handle() {
    let (mut w, handle) = World::opened(Caps(0x155));
    let ticket = write(&mut w, handle, 0, "hello");
    let read = w.submit(Call::Read { handle, offset: 0, length: 5 });
    assert!(w.objects().is_empty());
    let closed = w.submit(Call::Close { handle });
    assert!(w.done(closed).is_ok());
    assert_eq!(w.done(ticket), Err(Errno::EBADF));
    assert_eq!(w.done(read), Err(Errno::EBADF));
    w.client.assert_idle();
}

fn offsets(w: &mut World) -> (Vec<u64>, Vec<(cephfs::ObjectTicket, objecter::OpRequest)>) {
    let objects = w.objects();
    let offset = |r: &objecter::OpRequest| match r.ops[0].parse().expect("an operation") {
        messages::osd::Op::Write { extent, .. } => extent.offset,
        op => panic!("{op:?}"),
    };
    (objects.iter().map(|(_, r)| offset(r)).collect(), objects)
}

#[test]
fn appends_of_one_mount_follow_each_other() {
    for caps in [ALL, Caps(0x155)] {
        let (mut w, handle) = World::opened(caps);
        let tickets = [(); 3].map(|()| w.submit(Call::Write { handle, offset: None, data: name("hello") }));
        if caps != ALL {
            assert!(w.objects().is_empty());
            let grant = w.caps(CapOp::GRANT, ALL);
            w.say(0, MClientCaps { size: 100, ..grant });
        }
        let first = if caps == ALL { 0 } else { 100 };
        for (i, ticket) in tickets.into_iter().enumerate() {
            let (at, objects) = offsets(&mut w);
            assert_eq!(at, [first + 5 * i as u64]);
            w.objects_done(objects);
            assert_eq!(w.done(ticket), Ok(Answer::Written(5)));
        }
    }
}

/// With another writer there is no size without the server's word, which takes the right to write.
#[test]
fn an_append_asks_for_the_size_once() {
    let (mixed, shared) = (Caps(0x1855), Caps(0x955));
    let (mut w, handle) = World::opened(mixed);
    let ticket = w.submit(Call::Write { handle, offset: None, data: name("hello") });
    let (tid, asked) = w.request();
    assert_eq!(asked.args, RequestArgs::Mask(Caps::FILE_SHARED));
    for caps in [mixed.without(Caps::FILE_WR), shared] {
        let m = w.caps(if caps == shared { CapOp::GRANT } else { CapOp::REVOKE }, caps);
        w.say(0, MClientCaps { size: 90, ..m });
    }
    w.reply(tid, FsOp::GETATTR, true, None, Some(InodeStat { size: 90, ..file(shared) }));
    let m = w.caps(CapOp::REVOKE, shared.without(Caps::FILE_SHARED));
    w.say(0, MClientCaps { size: 90, ..m });
    assert!(w.objects().is_empty());
    // The other one has written meanwhile.
    let grant = w.caps(CapOp::GRANT, mixed);
    w.say(0, MClientCaps { size: 100, ..grant });
    assert!(w.requests().is_empty(), "it would be asked for ever");
    let (at, objects) = offsets(&mut w);
    assert_eq!(at, [100]);
    w.objects_done(objects);
    assert_eq!(w.done(ticket), Ok(Answer::Written(5)));
}

/// Who appends behind a write that failed does not wait for it.
#[test]
fn an_append_goes_on_after_one_that_failed() {
    let (mut w, handle) = World::opened(ALL);
    let tickets = [(); 2].map(|()| w.submit(Call::Write { handle, offset: None, data: name("hello") }));
    let (_, objects) = offsets(&mut w);
    w.input(Input::ObjectDone(objects[0].0, Err(Errno::ENOSPC)));
    assert_eq!(w.done(tickets[0]), Err(Errno::ENOSPC));
    let (at, objects) = offsets(&mut w);
    assert_eq!(at, [0]);
    w.objects_done(objects);
    assert!(w.done(tickets[1]).is_ok());
}

/// The server acknowledges no flush of a snapshot without a change.
#[test]
fn a_snapshot_without_a_change_is_not_waited_for() {
    let (mut w, handle) = World::opened(ALL);
    let ticket = write(&mut w, handle, 0, "lost");
    let objects = w.objects();
    let realm = SnapRealmInfo { ino: Ino(1), created: 1, seq: 2, snaps: vec![2], ..SnapRealmInfo::default() };
    w.say(0, MClientSnap { op: SnapOp::CREATE, trace: SnapTrace(vec![realm]), ..MClientSnap::default() });
    w.input(Input::ObjectDone(objects[0].0, Err(Errno::ENOSPC)));
    assert_eq!(w.done(ticket), Err(Errno::ENOSPC));
    // The server hears that nothing comes.
    let said = w.caps_said();
    assert_eq!((said[0].1.op, said[0].1.dirty), (CapOp::FLUSHSNAP, Caps::NONE));
    let ticket = w.submit(Call::Fsync { handle });
    assert_eq!(w.done(ticket), Ok(Answer::Done));
}

/// Whose own open failed keeps what another handle wants.
#[test]
fn a_failed_open_leaves_the_other_handle_s_wishes() {
    let mut w = World::mounted();
    let open = Call::Open { node: cephfs::Node::head(FILE), flags: 2 };
    let tickets = [w.submit(open.clone()), w.submit(open)];
    let requests = w.requests();
    w.reply(requests[0].0, FsOp::OPEN, true, None, Some(file(ALL)));
    assert!(matches!(w.done(tickets[0]), Ok(Answer::Opened { .. })));
    w.refuse(requests[1].0, FsOp::OPEN, Errno::EACCES);
    assert_eq!(w.done(tickets[1]), Err(Errno::EACCES));
    let revoke = w.caps(CapOp::REVOKE, Caps(0x155));
    w.say(0, revoke);
    let said = w.caps_said();
    let wanted = said.last().expect("it is given back").1.wanted;
    assert!(wanted.contains(Caps::FILE_WR | Caps::FILE_RD), "{wanted}");
}

/// Otherwise it would give, and others would wait for, what nobody uses.
#[test]
fn the_server_hears_that_a_closed_file_is_not_wanted() {
    let (mut w, handle) = World::opened(Caps(0x155));
    let wants = w.submit(Call::Read { handle, offset: 0, length: 1 });
    let closed = w.submit(Call::Close { handle });
    assert!(w.done(closed).is_ok() && w.done(wants).is_err());
    w.caps_said();
    w.pass(Duration::from_secs(6));
    let said = w.caps_said();
    assert_eq!(said.iter().map(|(_, m)| (m.caps, m.wanted)).collect::<Vec<_>>(), [(Caps(0x155), Caps::NONE)]);
    w.pass(Duration::from_secs(6));
    assert!(w.caps_said().is_empty(), "once");
}

/// A server keeps an inode without a name for as long as somebody has a capability of it.
#[test]
fn a_capability_of_what_has_no_name_is_given_back() {
    let released = |w: &mut World| {
        let all = w.take(|e| match e {
            cephfs::Effect::Send { msg: messages::Message::ClientCapRelease(m), .. } => Some(m.caps.clone()),
            _ => None,
        });
        all.concat().iter().any(|c| c.ino == FILE)
    };
    let (mut w, handle) = World::opened(Caps(0x155));
    let grant = w.caps(CapOp::GRANT, Caps(0x155));
    w.say(0, MClientCaps { nlink: 0, ..grant });
    w.pass(Duration::from_secs(2));
    assert!(!released(&mut w), "it is open");
    let closed = w.submit(Call::Close { handle });
    assert!(w.done(closed).is_ok());
    w.pass(Duration::from_secs(2));
    assert!(released(&mut w));
}

/// Another rank may show a file as it was; what the responsible one says is newer all the same.
#[test]
fn the_responsible_rank_s_word_counts_after_another_one_s() {
    let mut w = World::mounted();
    let ask = Call::GetAttr { node: cephfs::Node::head(FILE), mask: Caps::ALL_SHARED };
    let shown = |w: &mut World, flags: u32, version: u64, size: u64| {
        let ticket = w.submit(ask.clone());
        let (tid, _) = w.request();
        let mut stat = file(Caps::PIN);
        (stat.version, stat.size, stat.cap.seq, stat.mode) =
            (version, size, version as u32, 0o100_600 + size as u32);
        stat.cap.flags = flags as u8;
        w.reply(tid, FsOp::GETATTR, true, None, Some(stat));
        let Ok(Answer::Attr(attr)) = w.done(ticket) else { panic!("attributes") };
        (attr.size, attr.mode - 0o100_600)
    };
    let auth = u32::from(messages::fs::ReplyCap::AUTH);
    assert_eq!(shown(&mut w, 0, 20, 0), (0, 0));
    assert_eq!(shown(&mut w, 0, 30, 1), (1, 1), "nobody else has said anything");
    assert_eq!(shown(&mut w, auth, 30, 2), (2, 2), "of the same version");
    assert_eq!(shown(&mut w, 0, 50, 3), (2, 2), "which the responsible rank does not confirm");
    assert_eq!(shown(&mut w, auth, 40, 4), (4, 4));
    assert_eq!(shown(&mut w, auth, 30, 5), (4, 4), "old");
}

#[test]
fn what_nobody_uses_is_given_back_at_once() {
    let (mut w, _) = World::opened(ALL);
    let revoke = w.caps(CapOp::REVOKE, Caps(0x155));
    w.say(0, revoke);
    let said = w.caps_said();
    assert_eq!((said.len(), said[0].1.caps), (1, Caps(0x155)));
}

#[test]
fn fsync_waits_for_the_flush_and_a_close_flushes_later() {
    let (mut w, handle) = World::opened(ALL);
    let ticket = write(&mut w, handle, 0, "hello");
    let objects = w.objects();
    w.objects_done(objects);
    assert!(w.done(ticket).is_ok() && w.caps_said().is_empty(), "kept back for a while");
    let ticket = w.submit(Call::Fsync { handle });
    let said = w.caps_said();
    assert_eq!((said.len(), said[0].1.size), (1, 5));
    assert!(w.is_done(ticket).is_none());
    let ack = w.caps(CapOp::FLUSH_ACK, ALL);
    w.say(said[0].0, MClientCaps { dirty: Caps::FILE_WR, ..ack });
    assert_eq!(w.done(ticket), Ok(Answer::Done));

    let ticket = write(&mut w, handle, 5, "!");
    let objects = w.objects();
    w.objects_done(objects);
    assert!(w.done(ticket).is_ok());
    let ticket = w.submit(Call::Close { handle });
    assert_eq!(w.done(ticket), Ok(Answer::Done));
    assert!(w.caps_said().is_empty());
    w.pass(Duration::from_secs(6));
    let said = w.caps_said();
    let m = &said[0].1;
    assert_eq!((m.dirty, m.size, m.wanted), (Caps::FILE_WR, 6, Caps::NONE));
    assert!(!m.caps.intersects(Caps::FILE_WR | Caps::FILE_EXCL | Caps::FILE_BUFFER), "{}", m.caps);
}

#[test]
fn a_write_beyond_the_bound_asks_for_room() {
    let (mut w, handle) = World::opened(ALL);
    let ticket = write(&mut w, handle, 10 << 20, "far");
    assert!(w.objects().is_empty());
    let said = w.caps_said();
    assert_eq!(said[0].1.max_size, (10 << 20) + 3);
    let grant = w.caps(CapOp::GRANT, ALL);
    w.say(0, MClientCaps { max_size: 20 << 20, ..grant });
    let objects = w.objects();
    assert_eq!(objects[0].1.object.name.as_str(), "64.00000002");
    w.objects_done(objects);
    assert_eq!(w.done(ticket), Ok(Answer::Written(3)));
}

/// Without the shared capability the size is the server's to say; what is short is asked again, then filled
/// up.
#[test]
fn a_short_read_asks_for_the_size() {
    let (mut w, handle) = World::opened(Caps::PIN | Caps::FILE_RD);
    let ticket = w.submit(Call::Read { handle, offset: 0, length: 10 });
    let objects = w.objects();
    w.objects_done(objects);
    let (tid, m) = w.request();
    assert_eq!(m.op, FsOp::GETATTR);
    let mut longer = file(Caps::PIN | Caps::FILE_RD);
    (longer.size, longer.version, longer.cap.seq) = (4, 20, 2);
    w.reply(tid, FsOp::GETATTR, true, None, Some(longer));
    let objects = w.objects();
    w.objects_done(objects);
    assert_eq!(w.done(ticket), Ok(Answer::Data(name("\0\0\0\0"))));
}

/// The size that the file had goes into the snapshot, the one that it has later does not.
#[test]
fn a_snapshot_gets_what_was_written_before_it() {
    let (mut w, handle) = World::opened(ALL);
    let first = write(&mut w, handle, 0, "before");
    let objects = w.objects();
    assert!(objects[0].1.snapc.snaps.is_empty());
    let realm = SnapRealmInfo { ino: Ino(1), created: 1, seq: 2, snaps: vec![2], ..SnapRealmInfo::default() };
    w.say(0, MClientSnap { op: SnapOp::CREATE, trace: SnapTrace(vec![realm]), ..MClientSnap::default() });
    let second = write(&mut w, handle, 0, "after, and longer");
    assert!(w.objects().is_empty(), "the older write has to end first");
    w.objects_done(objects);
    assert!(w.done(first).is_ok());
    let said = w.caps_said();
    let (tid, m) = &said[0];
    assert_eq!((m.op, m.size, m.snap_follows), (CapOp::FLUSHSNAP, 6, 0));
    let objects = w.objects();
    assert_eq!((objects[0].1.snapc.seq, &objects[0].1.snapc.snaps), (2, &vec![2]));
    w.objects_done(objects);
    assert!(w.done(second).is_ok());
    let ticket = w.submit(Call::Fsync { handle });
    let later = w.caps_said();
    assert_eq!((later[0].1.op, later[0].1.size, later[0].1.snap_follows), (CapOp::UPDATE, 17, 2));
    let ack = w.caps(CapOp::FLUSH_ACK, ALL);
    w.say(later[0].0, MClientCaps { dirty: Caps::FILE_WR, ..ack });
    assert!(w.is_done(ticket).is_none(), "the snapshot is not safe yet");
    let ack = w.caps(CapOp::FLUSHSNAP_ACK, ALL);
    w.say(*tid, ack);
    assert_eq!(w.done(ticket), Ok(Answer::Done));
}

#[test]
fn objects_wait_for_the_map_that_blocks_others() {
    let (mut w, handle) = World::opened(ALL);
    let grant = w.caps(CapOp::GRANT, ALL);
    w.say(0, MClientCaps { osd_epoch_barrier: Epoch(9), ..grant });
    assert!(w.out.iter().any(|e| *e == cephfs::Effect::NeedOsdMap(Epoch(9))));
    let ticket = write(&mut w, handle, 0, "x");
    assert!(w.objects().is_empty());
    w.input(Input::OsdMap(Epoch(8)));
    assert!(w.objects().is_empty());
    w.input(Input::OsdMap(Epoch(9)));
    let objects = w.objects();
    w.objects_done(objects);
    assert!(w.done(ticket).is_ok());
}

#[test]
fn an_inode_moves_to_another_rank_with_its_capability() {
    let (mut w, handle) = World::opened(ALL);
    w.hold(1, 11, maps::MdsState::ACTIVE);
    w.send_map();
    let from = w.conn();
    let mut export = w.caps(CapOp::EXPORT, ALL);
    export.peer = messages::fs::CapPeer { cap_id: 500, seq: 1, migrate_seq: 1, rank: 1, flags: 1 };
    w.input(Input::FromSession { session: from, tid: 0, msg: export.into() });
    w.open_session(1);
    let import = w.caps(CapOp::IMPORT, ALL);
    w.say(0, MClientCaps { cap_id: 500, seq: 1, migrate_seq: 1, ..import });
    let ticket = write(&mut w, handle, 0, "x");
    let objects = w.objects();
    w.objects_done(objects);
    assert!(w.done(ticket).is_ok());
    let revoke = w.caps(CapOp::REVOKE, Caps(0x155));
    w.say(0, MClientCaps { cap_id: 500, migrate_seq: 1, ..revoke });
    let said = w.caps_said();
    let m = &said.last().expect("the new rank is answered").1;
    assert_eq!((m.cap_id, m.dirty), (500, Caps::FILE_WR));
    // The old rank's is gone: its next holder hears nothing of the file.
    w.hold(0, 30, maps::MdsState::RECONNECT);
    w.send_map();
    let told = w.take(|e| match e {
        cephfs::Effect::Send { msg: messages::Message::ClientReconnect(m), .. } => {
            Some(m.caps.contains_key(&FILE))
        }
        _ => None,
    });
    assert_eq!(told, [false]);
}

#[test]
fn a_handle_that_does_not_write_or_is_closed_is_refused() {
    let (mut w, handle) = World::opened(ALL);
    let ticket = w.submit(Call::Close { handle });
    assert!(w.done(ticket).is_ok());
    let ticket = write(&mut w, handle, 0, "x");
    assert_eq!(w.done(ticket), Err(Errno::EBADF));
    let ticket = w.submit(Call::Open { node: cephfs::Node::head(FILE), flags: 0 });
    let (tid, _) = w.request();
    w.reply(tid, FsOp::OPEN, true, None, Some(file(Caps(0x0d55))));
    let Ok(Answer::Opened { handle, .. }) = w.done(ticket) else { panic!("open") };
    let ticket = write(&mut w, handle, 0, "x");
    assert_eq!(w.done(ticket), Err(Errno::EBADF));
    let ticket = w.submit(Call::Open { node: cephfs::Node::head(FILE), flags: 0o2000 });
    assert_eq!(w.done(ticket), Err(Errno::EINVAL), "a flag that is not known");
    let set = messages::fs::SetAttr { mask: 1 << 20, ..Default::default() };
    let ticket = w.submit(Call::SetAttr { node: cephfs::Node::head(FILE), set });
    assert_eq!(w.done(ticket), Err(Errno::EINVAL), "an attribute that is not known");
}
