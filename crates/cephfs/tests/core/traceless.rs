//! A success that shows nothing, as when a server finds after a failover that a request was done before.

use cephfs::{Answer, Call, Node};
use messages::fs::{Caps, FsOp, InodeStat, SetAttr};
use types::{Errno, Ino};

use crate::world::{ALL, FILE, World, file, folder, name};

fn refused_when_asked(w: &mut World, text: &str) {
    let ticket = w.submit(Call::Lookup { dir: Node::ROOT, name: name(text) });
    let (tid, m) = w.request();
    assert_eq!((m.op, m.path.path), (FsOp::LOOKUP, name(text)), "what was known is void");
    w.refuse(tid, FsOp::LOOKUP, Errno::ENOENT);
    assert_eq!(w.done(ticket), Err(Errno::ENOENT));
}

#[test]
fn what_was_made_is_looked_up() {
    let mut w = World::mounted();
    let ticket = w.submit(Call::Mkdir { dir: Node::ROOT, name: name("dir"), mode: 0o700 });
    let (tid, _) = w.request();
    w.reply(tid, FsOp::MKDIR, true, None, None);
    let (tid, m) = w.request();
    assert_eq!((m.op, m.path.base, m.path.path), (FsOp::LOOKUP, Ino(1), name("dir")));
    let made = InodeStat { mode: 0o040_700, ..folder(Ino(60)) };
    w.reply(tid, FsOp::LOOKUP, true, Some("dir"), Some(made));
    let Ok(Answer::Attr(attr)) = w.done(ticket) else { panic!("its attributes") };
    assert_eq!((attr.node, attr.mode), (Node::head(Ino(60)), 0o040_700));
}

#[test]
fn what_was_set_is_read() {
    let (mut w, _) = World::opened(Caps(0x155));
    let set = SetAttr { mode: 0o600, mask: SetAttr::MODE, ..SetAttr::default() };
    let ticket = w.submit(Call::SetAttr { node: Node::head(FILE), set });
    let (tid, _) = w.request();
    w.reply(tid, FsOp::SETATTR, true, None, None);
    let (tid, m) = w.request();
    assert_eq!((m.op, m.path.base), (FsOp::GETATTR, FILE));
    let mut now = InodeStat { mode: 0o100_600, ..file(Caps(0x155)) };
    (now.version, now.cap.seq) = (20, 2);
    w.reply(tid, FsOp::GETATTR, true, None, Some(now));
    assert!(matches!(w.done(ticket), Ok(Answer::Attr(attr)) if attr.mode == 0o100_600));
}

#[test]
fn a_file_that_was_made_is_opened() {
    let mut w = World::mounted();
    let ticket = w.submit(Call::Create { dir: Node::ROOT, name: name("file"), mode: 0o644, flags: 0o302 });
    let (tid, _) = w.request();
    w.reply(tid, FsOp::CREATE, true, None, None);
    let (tid, m) = w.request();
    assert_eq!((m.op, m.path.base, m.path.path), (FsOp::OPEN, Ino(1), name("file")));
    w.reply(tid, FsOp::OPEN, true, None, Some(file(ALL)));
    assert!(matches!(w.done(ticket), Ok(Answer::Opened { attr, .. }) if attr.node == Node::head(FILE)));
    // A server that never shows the file is not asked for ever.
    let ticket = w.submit(Call::Create { dir: Node::ROOT, name: name("other"), mode: 0o644, flags: 2 });
    for op in [FsOp::CREATE, FsOp::OPEN] {
        let (tid, _) = w.request();
        w.reply(tid, op, true, None, None);
    }
    assert_eq!(w.done(ticket), Err(Errno::EIO));
}

#[test]
fn a_name_that_was_removed_is_not_known() {
    let mut w = World::mounted();
    for op in [FsOp::UNLINK, FsOp::RMDIR, FsOp::RENAME] {
        let ticket = w.submit(Call::Lookup { dir: Node::ROOT, name: name("old") });
        let (tid, _) = w.request();
        w.reply(tid, FsOp::LOOKUP, true, Some("old"), Some(folder(Ino(60))));
        assert!(w.done(ticket).is_ok());
        let (dir, old) = (Node::ROOT, name("old"));
        let ticket = w.submit(match op {
            FsOp::UNLINK => Call::Unlink { dir, name: old },
            FsOp::RMDIR => Call::Rmdir { dir, name: old },
            _ => Call::Rename { dir, name: old, to_dir: dir, to_name: name("new") },
        });
        let (tid, _) = w.request();
        w.reply(tid, op, true, None, None);
        assert_eq!(w.done(ticket), Ok(Answer::Done));
        refused_when_asked(&mut w, "old");
    }
}
