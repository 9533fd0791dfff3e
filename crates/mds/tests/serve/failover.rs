//! The server dies at any of its writes: clients go on, and nothing that was answered is lost.

use std::time::Duration;

use bytes::Bytes;
use cephfs::{Answer, Call, Node};
use maps::MdsState;
use mds::Settings;
use messages::fs::FileLock;
use messages::fs::{LockKind, LockType};
use types::Errno;

use crate::world::{World, name};

/// Some changes of one client, seen by another in the end. The server dies before operation `at`.
fn script(journal_delay: Duration, at: usize) -> (bool, Vec<(&'static str, usize)>) {
    let mut w = World::with(Settings { journal_delay, ..Settings::default() }, &["allow *"; 2]);
    (0..2).for_each(|i| drop(w.ok(i, Call::Mount { path: Bytes::new() })));
    w.dies_in = Some(at);
    w.mkdir(0, "d").expect("made");
    w.put(0, "d/f", "hello");
    w.mkdir(0, "d/e").expect("made");
    w.rename(0, "d/f", "d/e/g").expect("renamed");
    w.put(0, "d/h", "more");
    w.link(0, "d/h", "d/e/i").expect("linked");
    w.unlink(0, "d/h").expect("unlinked");
    w.put(0, "gone", "x");
    w.unlink(0, "gone").expect("unlinked");
    w.ok(0, Call::Sync);
    let has_died = w.deaths > 0;
    w.dies_in = None;
    w.pass(Duration::from_secs(3));
    let mut steps = Vec::new();
    for i in [0, 1] {
        assert_eq!(w.list(i, ""), ["d"], "at {at}");
        assert_eq!(w.list(i, "d"), ["e"], "at {at}");
        assert_eq!(w.list(i, "d/e"), ["g", "i"], "at {at}");
        assert_eq!((w.get(i, "d/e/g").as_deref(), w.get(i, "d/e/i").as_deref()), (Ok("hello"), Ok("more")));
        steps.push(("client", i));
    }
    let i = w.stat(1, "d/e/i").expect("a file");
    assert_eq!((i.nlink, i.size), (1, 4), "at {at}");
    // Whoever reads the journal anew finds the same.
    w.restart();
    assert_eq!(
        (w.list(1, "d/e"), w.stat(0, "d/e").expect("a folder").nfiles),
        (vec!["g".into(), "i".into()], 2)
    );
    w.server.assert_idle();
    (has_died, steps)
}

/// With each event in a write of its own, and with several in one.
#[test]
fn the_server_dies_at_every_write() {
    let mut writes = Vec::new();
    for delay in [Duration::ZERO, Settings::default().journal_delay] {
        let mut at = 0;
        while script(delay, at).0 {
            at += 1;
            assert!(at < 500, "the script ends");
        }
        writes.push(at);
    }
    assert!(writes[0] > 10 && writes[1] > 2 && writes[1] < writes[0], "{writes:?}");
}

/// Two deaths, the second while the first is being mended.
#[test]
fn a_second_death_while_clients_come_back() {
    for at in 0..12 {
        let mut w = World::mounted(1);
        w.mkdir(0, "d").expect("made");
        let dir = w.node(0, "d");
        let made = w.submit(0, Call::Mkdir { dir, name: name("new"), mode: 0o755 });
        w.deliver_only_mail();
        assert!(w.is_done(0, made).is_some());
        w.fail_over();
        w.dies_in = Some(at);
        w.settle();
        w.pass(Duration::from_secs(2));
        w.dies_in = None;
        assert_eq!(w.server.state(), MdsState::ACTIVE, "at {at}");
        assert_eq!(w.list(0, "d"), ["new"], "at {at}");
    }
}

#[test]
fn open_files_and_locks_are_claimed() {
    let mut w = World::mounted(2);
    let a = w.create(0, "f").expect("made");
    w.write(0, a, 0, "hello");
    let lock = |kind| FileLock { lock: kind, owner: 3, start: 2, length: 4, ..FileLock::default() };
    let set = |handle, kind| Call::Lock { handle, kind: LockKind::FCNTL, lock: lock(kind), wait: false };
    w.ok(0, set(a, LockType::EXCL));
    w.restart();
    w.write(0, a, 5, " world");
    assert_eq!(w.get(1, "f").as_deref(), Ok("hello world"));
    let b = w.open(1, "f", 2).expect("open");
    assert_eq!(w.err(1, set(b, LockType::SHARED)), Errno::EAGAIN);
    w.ok(0, set(a, LockType::UNLOCK));
    w.ok(1, set(b, LockType::SHARED));
}

/// An unlinked file that is open is claimed by its number, and purged when it is closed.
#[test]
fn an_open_stray_outlives_the_server() {
    let mut w = World::mounted(1);
    let a = w.create(0, "f").expect("made");
    w.write(0, a, 0, "hello");
    w.unlink(0, "f").expect("unlinked");
    w.restart();
    assert_eq!(w.read(0, a), "hello");
    w.close(0, a);
    w.ok(0, Call::Unmount);
    w.pass(Duration::from_secs(10));
    assert!(w.objects.0.keys().all(|o| o.pool != crate::model::DATA), "{:?}", w.objects.0.keys());
}

/// A client that does not come back loses its session; the others wait for that, and no longer.
#[test]
fn clients_that_do_not_come_back_are_shut_out() {
    let mut w = World::mounted(2);
    let a = w.create(0, "f").expect("made");
    w.write(0, a, 0, "hello");
    w.clients[0].is_dead = true;
    w.settle();
    w.fail_over();
    w.settle();
    assert_eq!(w.server.state(), MdsState::RECONNECT);
    w.pass(Duration::from_secs(50));
    assert_eq!(w.server.state(), MdsState::ACTIVE);
    assert_eq!(w.stat(1, "f").expect("a file").size, 5, "found by its objects");
}

/// Monitors tell everybody at once, and who hears it first speaks first.
#[test]
fn clients_that_come_early_are_heard() {
    let mut w = World::mounted(2);
    w.is_server_last = true;
    let a = w.create(0, "f").expect("made");
    w.write(0, a, 0, "hello");
    for _ in 0..3 {
        w.restart();
        assert!(w.warnings.is_empty(), "{:?}", w.warnings);
    }
    w.write(0, a, 5, " world");
    assert_eq!(w.get(1, "f").as_deref(), Ok("hello world"));
}

/// The journal is cut while clients work, and what is left of it is enough.
#[test]
fn the_journal_is_cut_and_replayed() {
    let settings = mds::Settings { max_log_events: 64, segment_events: 50, ..mds::Settings::default() };
    let mut w = World::with(settings, &["allow *"]);
    w.ok(0, Call::Mount { path: name("") });
    for n in 0..300 {
        let dir = Node::ROOT;
        w.ok(0, Call::Mknod { dir, name: name(&format!("f{n}")), mode: 0o100_644, rdev: 0 });
        if n % 3 == 0 {
            w.ok(0, Call::Unlink { dir, name: name(&format!("f{n}")) });
        }
        if n % 30 == 0 {
            w.pass(Duration::from_secs(1));
        }
    }
    w.pass(Duration::from_secs(5));
    assert!(w.server.log_events() < 250, "{}", w.server.log_events());
    w.restart();
    let names = w.list(0, "");
    assert_eq!(names.len(), 200);
    assert!(!names.contains(&"f0".to_owned()) && names.contains(&"f1".to_owned()));
    let Answer::Attr(root) = w.ok(0, Call::GetAttr { node: Node::ROOT, mask: messages::fs::Caps(0x4100) })
    else {
        panic!("attributes")
    };
    assert_eq!((root.nfiles, root.rfiles), (200, 200));
}

/// With a bound on memory, folders and files come and go.
#[test]
fn a_small_cache_serves_a_large_tree() {
    let settings = mds::Settings { max_inodes: 60, max_log_events: 16, ..mds::Settings::default() };
    let mut w = World::with(settings, &["allow *", "allow *"]);
    w.ok(0, Call::Mount { path: name("") });
    for d in 0..20 {
        w.mkdir(0, &format!("d{d}")).expect("made");
        for f in 0..10 {
            w.put(0, &format!("d{d}/f{f}"), &format!("{d} {f}"));
        }
    }
    w.ok(0, Call::Unmount);
    w.pass(Duration::from_secs(20));
    assert!(w.server.inodes() < 120, "{}", w.server.inodes());
    w.ok(1, Call::Mount { path: name("") });
    for d in (0..20).rev() {
        assert_eq!(w.get(1, &format!("d{d}/f7")).as_deref(), Ok(format!("{d} 7").as_str()));
    }
    assert_eq!(w.list(1, "d3").len(), 10);
    w.restart();
    assert_eq!(w.get(1, "d0/f0").as_deref(), Ok("0 0"));
}
