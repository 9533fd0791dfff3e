//! Calls that are given up, and those whose time is over.

use std::time::Duration;

use bytes::Bytes;
use cephfs::{Answer, Call, Effect, Handle, Input, Node, Ticket};
use maps::MdsState;
use messages::Message;
use messages::fs::{Caps, FileLock, FsOp, LockKind, LockType, OpenArgs, RequestArgs};
use types::Errno;

use crate::world::{ALL, FILE, World, file, name};

const INTERRUPTED: Errno = Errno(4);

fn cancel(w: &mut World, ticket: Ticket) {
    w.input(Input::Cancel(ticket));
    assert_eq!(w.done(ticket), Err(Errno::ECANCELED));
}

fn lock_args(w: &mut World) -> Vec<(u64, LockKind, FileLock)> {
    let args = |(tid, m): (u64, messages::fs::MClientRequest)| match m.args {
        RequestArgs::FileLock { kind, lock, .. } => (tid, kind, lock),
        args => panic!("{args:?}"),
    };
    w.requests().into_iter().map(args).collect()
}

/// A lock that another client is in the way of.
fn waiting(w: &mut World, handle: Handle) -> (Ticket, u64) {
    let lock = FileLock { owner: 7, lock: LockType::EXCL, length: 5, ..FileLock::default() };
    let ticket = w.submit(Call::Lock { handle, kind: LockKind::FLOCK, lock, wait: true });
    let asked = lock_args(w);
    assert_eq!(asked.len(), 1);
    (ticket, asked[0].0)
}

#[test]
fn a_lock_that_nobody_waits_for_is_given_up_at_the_server() {
    let (mut w, handle) = World::opened(ALL);
    let (ticket, tid) = waiting(&mut w, handle);
    cancel(&mut w, ticket);
    let said = lock_args(&mut w);
    let (interrupt, kind, lock) = said[0];
    assert_eq!((said.len(), kind, lock.lock, lock.length), (1, LockKind::FLOCK_INTR, LockType::UNLOCK, 5));
    assert!(lock.owner & 7 == 7 && lock.owner > 7, "marked as it was: {:x}", lock.owner);
    w.refuse(tid, FsOp::SETFILELOCK, INTERRUPTED);
    w.reply(interrupt, FsOp::SETFILELOCK, true, None, None);
    assert!(w.requests().is_empty());
    w.client.assert_idle();
}

/// The server gave it before it heard.
#[test]
fn a_lock_that_comes_too_late_is_given_back() {
    let (mut w, handle) = World::opened(ALL);
    let (ticket, tid) = waiting(&mut w, handle);
    cancel(&mut w, ticket);
    lock_args(&mut w);
    w.reply(tid, FsOp::SETFILELOCK, true, None, None);
    let said = lock_args(&mut w);
    assert_eq!((said.len(), said[0].1, said[0].2.lock), (1, LockKind::FLOCK, LockType::UNLOCK));
    // The next holder of the rank is not told of it, and is not asked for it.
    w.hold(0, 20, MdsState::RECONNECT);
    w.send_map();
    let flocks = w.take(|e| match e {
        Effect::Send { msg: Message::ClientReconnect(m), .. } => Some(m.caps[&FILE].flock.len()),
        _ => None,
    });
    assert_eq!(flocks, [0]);
}

#[test]
fn a_lock_that_was_given_up_is_not_asked_of_the_next_holder() {
    let (mut w, handle) = World::opened(ALL);
    let (ticket, tid) = waiting(&mut w, handle);
    cancel(&mut w, ticket);
    lock_args(&mut w);
    w.hold(0, 20, MdsState::RECONNECT);
    w.send_map();
    assert!(w.requests().iter().all(|(t, _)| *t != tid));
}

#[test]
fn what_waits_for_capabilities_can_be_given_up() {
    let (mut w, handle) = World::opened(Caps(0x155));
    let write = w.submit(Call::Write { handle, offset: Some(0), data: name("hello") });
    let read = w.submit(Call::Read { handle, offset: 0, length: 5 });
    cancel(&mut w, write);
    cancel(&mut w, read);
    w.client.assert_idle();
    let grant = w.caps(messages::fs::CapOp::GRANT, ALL);
    w.say(0, grant);
    assert!(w.objects().is_empty());
}

/// What is under way to objects happens; the capability is in use until then.
#[test]
fn a_write_under_way_ends_by_itself() {
    let (mut w, handle) = World::opened(ALL);
    let ticket = w.submit(Call::Write { handle, offset: Some(0), data: name("hello") });
    w.input(Input::Cancel(ticket));
    assert!(w.is_done(ticket).is_none());
    let objects = w.objects();
    w.objects_done(objects);
    assert_eq!(w.done(ticket), Ok(Answer::Written(5)));
}

/// The server believes that the file is open, and hears that it is not.
#[test]
fn an_open_that_was_given_up_wants_nothing() {
    for op in [FsOp::OPEN, FsOp::CREATE] {
        let mut w = World::mounted();
        let ticket = w.submit(match op {
            FsOp::OPEN => Call::Open { node: Node::head(FILE), flags: OpenArgs::RDWR },
            _ => Call::Create { dir: Node::ROOT, name: name("file"), mode: 0o644, flags: OpenArgs::RDWR },
        });
        let (tid, _) = w.request();
        cancel(&mut w, ticket);
        w.reply(tid, op, true, Some("file"), Some(file(ALL)));
        w.pass(Duration::from_secs(6));
        let said = w.caps_said();
        let m = &said.last().expect("it is told").1;
        assert!(m.wanted.is_empty() && !m.caps.intersects(Caps::FILE_WR), "{m:?}");
    }
}

#[test]
fn a_mount_ends_with_its_time_or_its_caller() {
    let mut w = World::new();
    assert_eq!(w.client.deadline(), None);
    let ticket = w.submit(Call::Mount { path: Bytes::new() });
    let given_up = w.submit(Call::Mount { path: Bytes::new() });
    assert!(w.client.deadline().is_some());
    cancel(&mut w, given_up);
    w.pass(Duration::from_secs(299));
    assert!(w.is_done(ticket).is_none());
    w.pass(Duration::from_secs(2));
    assert_eq!(w.done(ticket), Err(Errno::ETIMEDOUT));
    w.client.assert_idle();
    w.hold(0, 10, MdsState::ACTIVE);
    w.send_map();
    assert!(w.requests().is_empty(), "nobody asks any more");
}

#[test]
fn an_unmount_that_no_server_answers_ends_with_its_time() {
    let mut w = World::mounted();
    let given_up = w.submit(Call::Unmount);
    cancel(&mut w, given_up);
    let ticket = w.submit(Call::Unmount);
    w.pass(Duration::from_secs(301));
    assert_eq!(w.done(ticket), Err(Errno::ETIMEDOUT));
    assert!(w.out.iter().any(|e| matches!(e, Effect::Close(_))), "the connection is closed");
    w.client.assert_idle();
}
