//! Sessions: opened when they are needed, renewed, refused, closed.

use std::time::Duration;

use bytes::Bytes;
use cephfs::{Answer, Call, Effect, Input, Node};
use maps::MdsState;
use messages::Message;
use messages::fs::{Caps, FsOp, MClientRequestForward, MClientSession, SessionOp};
use types::{Errno, Ino};

use crate::world::{World, folder, name};

fn said(w: &mut World) -> Vec<SessionOp> {
    w.take(|e| match e {
        Effect::Send { msg: Message::ClientSession(m), .. } => Some(m.op),
        _ => None,
    })
}

#[test]
fn a_mount_waits_for_a_map_and_for_a_server_that_serves() {
    let mut w = World::new();
    let ticket = w.submit(Call::Mount { path: Bytes::new() });
    assert!(
        w.out
            .iter()
            .any(|e| matches!(e, Effect::SendMon(Message::MonSubscribe(m)) if m.what.contains_key("mdsmap")))
    );
    w.hold(0, 10, MdsState::REPLAY);
    w.send_map();
    assert!(said(&mut w).is_empty() && w.requests().is_empty());
    w.hold(0, 10, MdsState::ACTIVE);
    w.send_map();
    w.open_session(0);
    assert_eq!(said(&mut w), [SessionOp::REQUEST_RENEWCAPS]);
    let (tid, m) = w.request();
    assert_eq!((m.op, m.path.base, m.wide_counts), (FsOp::GETATTR, Ino(1), true));
    w.reply(tid, FsOp::GETATTR, true, None, Some(folder(Ino(1))));
    assert!(matches!(w.done(ticket), Ok(Answer::Attr(attr)) if attr.node == Node::ROOT && attr.is_dir()));
}

#[test]
fn without_a_file_system_a_mount_fails() {
    let mut w = World::new();
    let ticket = w.submit(Call::Mount { path: Bytes::new() });
    w.map.enabled = false;
    w.send_map();
    assert_eq!(w.done(ticket), Err(Errno::ENOENT));
}

#[test]
fn a_refused_client_says_so() {
    let mut w = World::new();
    w.send_map();
    let ticket = w.submit(Call::Mount { path: Bytes::new() });
    w.say(0, MClientSession { op: SessionOp::REJECT, ..Default::default() });
    assert_eq!(w.done(ticket), Err(Errno::EPERM));
    let again = w.submit(Call::Mount { path: Bytes::new() });
    assert_eq!(w.done(again), Err(Errno::EPERM));
}

/// What one server refuses another may allow.
#[test]
fn the_next_holder_of_a_rank_is_asked_again() {
    let mut w = World::new();
    w.send_map();
    let ticket = w.submit(Call::Mount { path: Bytes::new() });
    w.say(0, MClientSession { op: SessionOp::REJECT, ..Default::default() });
    assert_eq!(w.done(ticket), Err(Errno::EPERM));
    said(&mut w);
    w.hold(0, 20, MdsState::ACTIVE);
    w.send_map();
    let again = w.submit(Call::Mount { path: Bytes::new() });
    w.open_session(0);
    let (tid, _) = w.request();
    w.reply(tid, FsOp::GETATTR, true, None, Some(folder(Ino(1))));
    assert!(w.done(again).is_ok());
}

#[test]
fn a_refusal_says_why() {
    let blocked = [("error_string".to_owned(), "blocklisted (blacklisted)".to_owned())].into();
    let m = MClientSession { op: SessionOp::REJECT, metadata: blocked, ..Default::default() };
    let old = MClientSession { op: SessionOp::OPEN, ..Default::default() };
    for (word, errno) in [(m, Errno::ESHUTDOWN), (old, Errno::EOPNOTSUPP)] {
        let mut w = World::new();
        w.send_map();
        let mount = w.submit(Call::Mount { path: Bytes::new() });
        w.say(0, word);
        assert_eq!(w.done(mount), Err(errno));
        let again = w.submit(Call::Mount { path: Bytes::new() });
        assert_eq!(w.done(again), Err(errno));
    }
}

/// What only the server tells waits for a session like all that it is asked.
#[test]
fn attributes_of_the_server_s_open_a_session() {
    let ask = || Call::GetXattr { node: Node::ROOT, name: name("ceph.dir.layout.json") };
    let mut w = World::mounted();
    w.say(0, MClientSession { op: SessionOp::CLOSE, ..Default::default() });
    let ticket = w.submit(ask());
    w.open_session(0);
    let (tid, m) = w.request();
    assert_eq!(m.op, FsOp::GETVXATTR);
    w.refuse(tid, FsOp::GETVXATTR, Errno::ENODATA);
    assert_eq!(w.done(ticket), Err(Errno::ENODATA));
    // A server that does not know the request is not sent it.
    w.say(0, MClientSession { op: SessionOp::CLOSE, ..Default::default() });
    let ticket = w.submit(ask());
    let features = types::FeatureBits::from([messages::fs::features::REPLY_ENCODING]);
    w.say(0, MClientSession { op: SessionOp::OPEN, features, ..Default::default() });
    assert_eq!(w.done(ticket), Err(Errno::EOPNOTSUPP));
    assert!(w.requests().is_empty());
}

/// Without renewal what was given is not used: the server may have given it to others.
#[test]
fn capabilities_end_with_the_time_of_the_session() {
    let mut w = World::mounted();
    let ask = Call::GetAttr { node: Node::ROOT, mask: Caps::ALL_SHARED };
    let ticket = w.submit(ask.clone());
    assert!(w.done(ticket).is_ok() && w.requests().is_empty(), "from memory");
    w.pass(Duration::from_secs(21));
    assert_eq!(said(&mut w), [SessionOp::REQUEST_RENEWCAPS]);
    w.pass(Duration::from_secs(40));
    let ticket = w.submit(ask.clone());
    assert!(w.is_done(ticket).is_none(), "the session is in doubt");
    let (tid, _) = w.request();
    w.reply(tid, FsOp::GETATTR, true, None, Some(folder(Ino(1))));
    assert!(w.done(ticket).is_ok());
}

#[test]
fn a_forwarded_request_goes_to_the_other_rank() {
    let mut w = World::mounted();
    w.hold(1, 11, MdsState::ACTIVE);
    w.send_map();
    let ticket = w.submit(Call::Mkdir { dir: Node::ROOT, name: name("dir"), mode: 0o755 });
    let (tid, _) = w.request();
    w.say(tid, MClientRequestForward { rank: 1, num_fwd: 1, must_resend: true });
    assert!(w.out.iter().any(|e| matches!(e, Effect::Open { rank: 1, .. })));
    w.open_session(1);
    let (again, m) = w.request();
    assert_eq!((again, m.num_fwd), (tid, 1));
    w.reply(tid, FsOp::MKDIR, true, Some("dir"), Some(folder(Ino(7))));
    assert!(matches!(w.done(ticket), Ok(Answer::Attr(attr)) if attr.node.ino == Ino(7)));
}

/// A close states how many of the server's words were seen, again when more come.
#[test]
fn an_unmount_closes_when_all_is_safe() {
    let mut w = World::mounted();
    let made = w.submit(Call::Mkdir { dir: Node::ROOT, name: name("dir"), mode: 0o755 });
    let (tid, _) = w.request();
    w.reply(tid, FsOp::MKDIR, false, Some("dir"), Some(folder(Ino(7))));
    assert!(w.done(made).is_ok());
    let ticket = w.submit(Call::Unmount);
    assert_eq!(said(&mut w), [SessionOp::REQUEST_FLUSH_MDLOG], "not closed before it is safe");
    w.reply(tid, FsOp::MKDIR, true, None, None);
    assert_eq!(said(&mut w), [SessionOp::REQUEST_CLOSE]);
    let push = messages::fs::MClientQuota { ino: Ino(7), ..Default::default() };
    w.say(0, push);
    let seqs = w.take(|e| match e {
        Effect::Send { msg: Message::ClientSession(m), .. } => Some(m.seq),
        _ => None,
    });
    assert_eq!(seqs, [1]);
    let late = w.submit(Call::Sync);
    assert_eq!(w.done(late), Err(Errno::ESHUTDOWN));
    w.say(0, MClientSession { op: SessionOp::CLOSE, ..Default::default() });
    assert_eq!(w.done(ticket), Ok(Answer::Done));
    w.client.assert_idle();
}

#[test]
fn what_is_recalled_is_given_back() {
    let mut w = World::mounted();
    for i in 0..10_u64 {
        let text = format!("dir{i}");
        let ticket = w.submit(Call::Lookup { dir: Node::ROOT, name: name(&text) });
        let (tid, _) = w.request();
        w.reply(tid, FsOp::LOOKUP, true, Some(&text), Some(folder(Ino(50 + i))));
        assert!(w.done(ticket).is_ok());
    }
    let used = w.submit(Call::Lookup { dir: Node::ROOT, name: name("dir3") });
    assert!(w.done(used).is_ok());
    w.say(0, MClientSession { op: SessionOp::RECALL_STATE, max_caps: 4, ..Default::default() });
    let given = w.take(|e| match e {
        Effect::Send { msg: Message::ClientCapRelease(m), .. } => Some(m.caps.clone()),
        _ => None,
    });
    let inos: Vec<u64> = given.concat().iter().map(|c| c.ino.0).collect();
    assert_eq!(inos, [50, 51, 52, 54, 55, 56, 57], "the oldest first; the root stays");
}

/// It may be another process at the address: a new map says so. Without one the session is over after a
/// while.
#[test]
fn a_forgotten_connection_is_no_end_of_the_session_yet() {
    let mut w = World::mounted();
    let conn = w.conn();
    w.input(Input::SessionGone(conn));
    w.pass(Duration::from_secs(5));
    w.hold(0, 12, MdsState::RECONNECT);
    w.send_map();
    let told = w.take(|e| matches!(e, Effect::Send { msg: Message::ClientReconnect(_), .. }).then_some(()));
    assert_eq!(told.len(), 1);
    w.hold(0, 12, MdsState::ACTIVE);
    w.send_map();
    let conn = w.conn();
    w.input(Input::SessionGone(conn));
    w.pass(Duration::from_secs(21));
    let ticket = w.submit(Call::GetAttr { node: Node::ROOT, mask: Caps::ALL_SHARED });
    w.open_session(0);
    let (tid, _) = w.request();
    w.reply(tid, FsOp::GETATTR, true, None, Some(folder(Ino(1))));
    assert!(w.done(ticket).is_ok());
}
