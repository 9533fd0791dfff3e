//! Another server takes a rank over.

use std::time::Duration;

use cephfs::{Answer, Call, Effect, Node};
use maps::MdsState;
use messages::Message;
use messages::fs::{
    CapOp, Caps, FileLock, FsOp, LockKind, LockType, MClientCaps, MClientReconnect, MClientRequest,
};
use types::{Errno, Ino};

use crate::world::{ALL, FILE, World, folder, name};

fn reconnects(w: &mut World) -> Vec<MClientReconnect> {
    w.take(|e| match e {
        Effect::Send { msg: Message::ClientReconnect(m), .. } => Some(m.clone()),
        _ => None,
    })
}

#[test]
fn the_new_server_hears_of_capabilities_locks_and_requests() {
    let (mut w, handle) = World::opened(ALL);
    let lock = FileLock { owner: 7, lock: LockType::EXCL, ..FileLock::default() };
    let locked = w.submit(Call::Lock { handle, kind: LockKind::FLOCK, lock, wait: false });
    let (tid, _) = w.request();
    w.reply(tid, FsOp::SETFILELOCK, true, None, None);
    assert_eq!(w.done(locked), Ok(Answer::Done));
    let answered = w.submit(Call::Mkdir { dir: Node::ROOT, name: name("one"), mode: 0o755 });
    let (unsafe_tid, _) = w.request();
    w.reply(unsafe_tid, FsOp::MKDIR, false, Some("one"), Some(folder(Ino(70))));
    assert!(w.done(answered).is_ok());
    let sent = w.submit(Call::Mkdir { dir: Node::ROOT, name: name("two"), mode: 0o755 });
    let (sent_tid, _) = w.request();

    w.hold(0, 20, MdsState::REPLAY);
    w.send_map();
    assert!(w.out.iter().any(|e| matches!(e, Effect::Close(_))));
    let new = w.submit(Call::Mkdir { dir: Node::ROOT, name: name("three"), mode: 0o755 });
    assert!(w.requests().is_empty() && reconnects(&mut w).is_empty());

    w.hold(0, 20, MdsState::RECONNECT);
    w.send_map();
    let again = w.requests();
    let is_replay = |m: &MClientRequest| m.flags & MClientRequest::REPLAY != 0;
    let shown: Vec<_> = again.iter().map(|(tid, m)| (*tid, is_replay(m), m.ino)).collect();
    assert_eq!(shown, [(unsafe_tid, true, Ino(70)), (sent_tid, false, Ino(0))]);
    let told = reconnects(&mut w);
    let cap = &told[0].caps[&FILE];
    assert_eq!((cap.path_base, cap.path.clone(), cap.issued), (Ino(1), name("file"), ALL));
    assert!(cap.wanted.contains(Caps::FILE_WR) && !cap.flock.is_empty() && !told[0].more);

    w.hold(0, 20, MdsState::ACTIVE);
    w.send_map();
    let (new_tid, _) = w.request();
    for (tid, text, ino) in [(sent_tid, "two", 71), (new_tid, "three", 72)] {
        w.reply(tid, FsOp::MKDIR, true, Some(text), Some(folder(Ino(ino))));
    }
    assert!(w.done(sent).is_ok() && w.done(new).is_ok());
    w.reply(unsafe_tid, FsOp::MKDIR, true, Some("one"), Some(folder(Ino(70))));
    w.client.assert_idle();
}

/// A flush of what was being taken back comes before the reconnect, any other when the server serves.
#[test]
fn flushes_go_to_the_new_server() {
    for is_revoked in [true, false] {
        let (mut w, handle) = World::opened(ALL);
        let ticket = w.submit(Call::Write { handle, offset: Some(0), data: name("hello") });
        let objects = w.objects();
        w.objects_done(objects);
        assert!(w.done(ticket).is_ok());
        let fsync = w.submit(Call::Fsync { handle });
        let (tid, _) = w.caps_said().remove(0);
        if is_revoked {
            let revoke = w.caps(CapOp::REVOKE, Caps(0x155));
            w.say(0, revoke);
            w.caps_said();
        }
        w.hold(0, 20, MdsState::RECONNECT);
        w.send_map();
        let early = w.caps_said();
        assert_eq!(early.len(), usize::from(is_revoked));
        w.hold(0, 20, MdsState::ACTIVE);
        w.send_map();
        let mut all = early;
        all.extend(w.caps_said());
        assert_eq!((all[0].0, all[0].1.dirty, all[0].1.size), (tid, Caps::FILE_WR, 5));
        assert!(w.is_done(fsync).is_none());
        let ack = w.caps(CapOp::FLUSH_ACK, Caps(0x155));
        w.say(tid, MClientCaps { dirty: Caps::FILE_WR, ..ack });
        assert_eq!(w.done(fsync), Ok(Answer::Done));
    }
}

/// Who missed the time for a reconnect has lost what was not safe, and hears so.
#[test]
fn a_session_that_was_given_up_tells_fsync() {
    let (mut w, handle) = World::opened(ALL);
    let ticket = w.submit(Call::Write { handle, offset: Some(0), data: name("hello") });
    let objects = w.objects();
    w.objects_done(objects);
    assert!(w.done(ticket).is_ok());
    let waiting = w.submit(Call::Fsync { handle });
    w.hold(0, 20, MdsState::ACTIVE);
    w.send_map();
    assert_eq!(w.done(waiting), Err(Errno::EIO));
    // The file is opened again for the next write.
    let ticket = w.submit(Call::Write { handle, offset: Some(0), data: name("again") });
    w.open_session(0);
    let (tid, m) = w.request();
    assert_eq!(m.op, FsOp::OPEN);
    w.reply(tid, FsOp::OPEN, true, None, Some(crate::world::file(ALL)));
    let objects = w.objects();
    w.objects_done(objects);
    assert_eq!(w.done(ticket), Ok(Answer::Written(5)));
    w.pass(Duration::from_secs(6));
    assert!(w.caps_said().iter().any(|(_, m)| m.dirty == Caps::FILE_WR && m.size == 5));
}
