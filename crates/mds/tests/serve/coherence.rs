//! Two clients of the same names and files: each sees what the other did, as soon as the other was answered.

use std::time::Duration;

use cephfs::{Answer, Call};
use messages::fs::SetAttr;
use types::Errno;

use crate::world::{World, name};

#[test]
fn names_of_one_are_names_of_the_other() {
    let mut w = World::mounted(2);
    w.mkdir(0, "d").expect("made");
    assert_eq!(w.stat(1, "d/f"), Err(Errno::ENOENT));
    w.put(0, "d/f", "x");
    assert_eq!(w.get(1, "d/f").as_deref(), Ok("x"));
    assert_eq!(w.list(1, "d"), ["f"]);
    w.rename(1, "d/f", "d/g").expect("renamed");
    assert_eq!(w.stat(0, "d/f"), Err(Errno::ENOENT));
    assert_eq!((w.list(0, "d"), w.get(0, "d/g").as_deref()), (vec!["g".to_owned()], Ok("x")));
    w.unlink(0, "d/g").expect("unlinked");
    assert_eq!((w.stat(1, "d/g"), w.list(1, "d").len()), (Err(Errno::ENOENT), 0));
    w.rmdir(1, "d").expect("removed");
    assert_eq!(w.stat(0, "d"), Err(Errno::ENOENT));
}

#[test]
fn what_one_writes_the_other_reads_and_stats() {
    let mut w = World::mounted(2);
    let a = w.create(0, "f").expect("made");
    w.write(0, a, 0, "hello");
    assert_eq!(w.stat(1, "f").expect("a file").size, 5);
    let b = w.open(1, "f", 2).expect("open");
    assert_eq!(w.read(1, b), "hello");
    w.write(1, b, 5, " world");
    assert_eq!(w.read(0, a), "hello world");
    w.write(0, a, 11, "!");
    assert_eq!((w.read(1, b), w.stat(1, "f").expect("a file").size), ("hello world!".into(), 12));
    w.close(0, a);
    w.close(1, b);
    w.pass(Duration::from_secs(10));
    assert_eq!(w.stat(0, "f").expect("a file").size, 12);
}

#[test]
fn writers_are_given_room() {
    let mut w = World::mounted(1);
    let a = w.create(0, "f").expect("made");
    let mebibyte = "x".repeat(1 << 20);
    for i in 0..9 {
        w.write(0, a, i << 20, &mebibyte);
    }
    w.write(0, a, 40 << 20, "end");
    w.close(0, a);
    w.pass(Duration::from_secs(10));
    w.restart();
    assert_eq!(w.stat(0, "f").expect("a file").size, (40 << 20) + 3);
}

/// The client that is asked first holds everything of the file; the other one waits for its word.
#[test]
fn a_cut_of_one_is_seen_by_the_writer() {
    let mut w = World::mounted(2);
    let a = w.create(0, "f").expect("made");
    w.write(0, a, 0, "0123456789");
    let node = w.node(1, "f");
    let set = SetAttr { mask: SetAttr::SIZE, size: 3, ..SetAttr::default() };
    w.ok(1, Call::SetAttr { node, set });
    assert_eq!(w.read(0, a), "012");
    w.write(0, a, 5, "x");
    assert_eq!(w.get(1, "f").as_deref(), Ok("012\0\0x"));
}

/// What is not safe is not seen by others: the server dies with the event, the second client has not heard of
/// it.
#[test]
fn others_see_a_change_when_it_is_safe() {
    let mut w = World::mounted(2);
    w.mkdir(0, "d").expect("made");
    w.settle();
    // The journal's writes stop.
    let dir = w.node(0, "d");
    let made = w.submit(0, Call::Mkdir { dir, name: name("new"), mode: 0o755 });
    w.deliver_only_mail();
    assert!(w.is_done(0, made).is_some(), "its own client has the answer early");
    let looked = w.submit(1, Call::Walk { path: name("d/new"), follow: false });
    w.deliver_only_mail();
    assert!(w.is_done(1, looked).is_none());
    assert!(matches!(w.wait(1, looked), Ok(Answer::Attr(_))));
}

/// A client that has gone keeps nothing from others for longer than its session lasts.
#[test]
fn a_dead_writer_is_shut_out() {
    let mut w = World::mounted(2);
    let a = w.create(0, "f").expect("made");
    w.write(0, a, 0, "hello");
    w.ok(0, Call::Fsync { handle: a });
    w.write(0, a, 5, " world");
    w.clients[0].is_dead = true;
    let ticket = w.submit(1, Call::Walk { path: name("f"), follow: false });
    w.pass(Duration::from_secs(20));
    assert!(w.is_done(1, ticket).is_none(), "it may be alive");
    w.pass(Duration::from_secs(60));
    let Ok(Answer::Attr(attr)) = w.wait(1, ticket) else { panic!("it is there") };
    assert_eq!(attr.size, 11, "what it wrote and did not tell is found");
    assert!(w.warnings.iter().any(|t| t.contains("4100")), "{:?}", w.warnings);
    assert_eq!(w.get(1, "f").as_deref(), Ok("hello world"));
}

#[test]
fn a_client_that_closes_leaves_nothing() {
    let mut w = World::mounted(2);
    let a = w.create(0, "f").expect("made");
    w.write(0, a, 0, "hello");
    w.close(0, a);
    w.ok(0, Call::Unmount);
    assert_eq!(w.get(1, "f").as_deref(), Ok("hello"));
    w.server.assert_idle();
    w.restart();
    assert_eq!(w.get(1, "f").as_deref(), Ok("hello"));
}
