//! Each request, alone: what it answers, which errno, and that it is there after a failover.

use std::time::Duration;

use bytes::Bytes;
use cephfs::{Answer, Call, Node};
use messages::fs::{Caps, FileLock, LockKind, LockType, RequestArgs, SetAttr};
use types::{Errno, Ino};

use crate::world::{World, name};

#[test]
fn a_tree_is_made_listed_and_outlives_its_server() {
    let mut w = World::mounted(1);
    w.mkdir(0, "a").expect("made");
    w.mkdir(0, "a/b").expect("made");
    w.put(0, "a/b/file", "hello");
    w.put(0, "a/other", "");
    let (dir, target) = (w.node(0, "a"), name("b/file"));
    w.ok(0, Call::Symlink { dir, name: name("link"), target });
    let check = |w: &mut World| {
        assert_eq!(w.list(0, "a"), ["b", "link", "other"]);
        assert_eq!(w.list(0, "a/b"), ["file"]);
        assert_eq!(w.get(0, "a/b/file").as_deref(), Ok("hello"));
        let link = w.stat(0, "a/link").expect("a link");
        assert_eq!((link.symlink, link.size), (name("b/file"), 6));
        let a = w.stat(0, "a").expect("a folder");
        assert_eq!((a.nfiles, a.nsubdirs, a.nlink), (2, 1, 1));
    };
    check(&mut w);
    w.restart();
    check(&mut w);
    // Without the client's memory as well.
    w.ok(0, Call::Unmount);
    w.restart();
    w.add_client("allow *");
    w.ok(1, Call::Mount { path: Bytes::new() });
    assert_eq!(w.list(1, "a"), ["b", "link", "other"]);
    assert_eq!(w.get(1, "a/b/file").as_deref(), Ok("hello"));
}

#[test]
fn errnos_of_names() {
    let mut w = World::mounted(1);
    w.mkdir(0, "d").expect("made");
    w.mkdir(0, "d/full").expect("made");
    w.put(0, "f", "x");
    w.put(0, "d/full/g", "x");
    w.mkdir(0, "empty").expect("made");
    assert_eq!(w.mkdir(0, "d"), Err(Errno::EEXIST));
    assert_eq!(w.stat(0, "none"), Err(Errno::ENOENT));
    assert_eq!(w.stat(0, "f/x"), Err(Errno::ENOTDIR));
    assert_eq!(w.unlink(0, "none"), Err(Errno::ENOENT));
    assert_eq!(w.unlink(0, "d"), Err(Errno::EISDIR));
    assert_eq!(w.rmdir(0, "f"), Err(Errno::ENOTDIR));
    assert_eq!(w.rmdir(0, "d/full"), Err(Errno::ENOTEMPTY));
    assert_eq!(w.link(0, "d", "l"), Err(Errno::EPERM));
    assert_eq!(w.link(0, "f", "d"), Err(Errno::EEXIST));
    assert_eq!(w.rename(0, "none", "x"), Err(Errno::ENOENT));
    assert_eq!(w.rename(0, "d", "d/full/x"), Err(Errno::EINVAL));
    assert_eq!(w.rename(0, "f", "d"), Err(Errno::EISDIR));
    assert_eq!(w.rename(0, "d", "f"), Err(Errno::ENOTDIR));
    assert_eq!(w.rename(0, "empty", "d"), Err(Errno::ENOTEMPTY));
    let (dir, long) = (Node::ROOT, Bytes::from(vec![b'n'; 256]));
    assert_eq!(w.err(0, Call::Mkdir { dir, name: long, mode: 0o755 }), Errno::ENAMETOOLONG);
    assert_eq!(w.err(0, Call::Create { dir, name: name("f"), mode: 0o644, flags: 0o302 }), Errno::EEXIST);
    assert_eq!(w.list(0, ""), ["d", "empty", "f"]);
}

#[test]
fn renames_move_and_replace() {
    let mut w = World::mounted(1);
    w.mkdir(0, "a").expect("made");
    w.mkdir(0, "b").expect("made");
    w.put(0, "a/f", "one");
    w.put(0, "b/g", "two");
    w.rename(0, "a/f", "b/g").expect("replaced");
    w.rename(0, "a", "b/a").expect("moved");
    w.put(0, "b/a/new", "three");
    w.rename(0, "b/g", "b/g").expect("the same");
    for _ in 0..2 {
        assert_eq!(w.list(0, "b"), ["a", "g"]);
        assert_eq!((w.get(0, "b/g").as_deref(), w.get(0, "b/a/new").as_deref()), (Ok("one"), Ok("three")));
        assert_eq!(w.stat(0, "a"), Err(Errno::ENOENT));
        let b = w.stat(0, "b").expect("a folder");
        assert_eq!((b.nfiles, b.nsubdirs), (1, 1));
        w.restart();
    }
}

#[test]
fn hard_links_share_an_inode_and_outlive_the_first_name() {
    let mut w = World::mounted(2);
    w.mkdir(0, "d").expect("made");
    w.put(0, "one", "text");
    w.link(0, "one", "d/two").expect("linked");
    let (one, two) = (w.stat(0, "one").expect("one"), w.stat(1, "d/two").expect("two"));
    assert_eq!((one.node, one.nlink, two.nlink), (two.node, 2, 2));
    w.unlink(0, "one").expect("unlinked");
    assert_eq!(w.get(1, "d/two").as_deref(), Ok("text"));
    assert_eq!(w.stat(0, "d/two").expect("two").nlink, 1);
    w.restart();
    assert_eq!(w.get(1, "d/two").as_deref(), Ok("text"));
    // The link becomes the inode's own name.
    w.pass(Duration::from_secs(3));
    w.restart();
    assert_eq!((w.stat(0, "d/two").expect("two").nlink, w.get(0, "d/two").as_deref()), (1, Ok("text")));
}

#[test]
fn an_unlinked_file_lives_while_it_is_open_and_its_objects_go_after() {
    let mut w = World::mounted(1);
    w.put(0, "f", "text");
    let handle = w.open(0, "f", 0).expect("open");
    let ino = w.node(0, "f").ino;
    w.unlink(0, "f").expect("unlinked");
    assert_eq!(w.read(0, handle), "text");
    let object = format!("{:x}.00000000", ino.0);
    let has =
        |w: &World| w.objects.0.keys().any(|o| o.name.as_str() == object && o.pool == crate::model::DATA);
    w.pass(Duration::from_secs(10));
    assert!(has(&w));
    w.close(0, handle);
    w.ok(0, Call::Unmount);
    w.pass(Duration::from_secs(10));
    assert!(!has(&w), "it is purged");
}

#[test]
fn attributes_are_set() {
    let mut w = World::mounted(2);
    w.put(0, "f", "0123456789");
    let node = w.node(0, "f");
    let set = |mask, size| SetAttr { mask, size, mode: 0o600, uid: 7, gid: 8, ..SetAttr::default() };
    w.ok(0, Call::SetAttr { node, set: set(SetAttr::MODE | SetAttr::UID | SetAttr::GID, 0) });
    let attr = w.stat(1, "f").expect("a file");
    assert_eq!((attr.mode, attr.uid, attr.gid), (0o100_600, 7, 8));
    w.ok(1, Call::SetAttr { node, set: set(SetAttr::SIZE, 4) });
    w.pass(Duration::from_secs(1));
    assert_eq!((w.stat(0, "f").expect("a file").size, w.get(0, "f").as_deref()), (4, Ok("0123")));
    w.ok(0, Call::SetAttr { node, set: set(SetAttr::SIZE, 6) });
    assert_eq!(w.get(1, "f").as_deref(), Ok("0123\0\0"));
    w.restart();
    assert_eq!(w.get(1, "f").as_deref(), Ok("0123\0\0"));
    assert_eq!(w.err(0, Call::SetAttr { node: Node::ROOT, set: set(SetAttr::SIZE, 1) }), Errno::EISDIR);
}

#[test]
fn extended_attributes_are_kept() {
    let mut w = World::mounted(2);
    w.put(0, "f", "");
    let node = w.node(0, "f");
    let set =
        |key: &str, value: &str, flags| Call::SetXattr { node, name: name(key), value: name(value), flags };
    w.ok(0, set("user.a", "1", 0));
    w.ok(0, set("user.b", "2", 0));
    assert_eq!(w.err(0, set("user.a", "1", 1)), Errno::EEXIST);
    assert_eq!(w.err(0, set("user.c", "1", 2)), Errno::ENODATA);
    w.ok(1, Call::RemoveXattr { node, name: name("user.b") });
    for i in [0, 1] {
        assert_eq!(w.ok(i, Call::GetXattr { node, name: name("user.a") }), Answer::Value(name("1")));
        assert_eq!(w.err(i, Call::GetXattr { node, name: name("user.b") }), Errno::ENODATA);
    }
    w.restart();
    assert_eq!(w.ok(1, Call::GetXattr { node, name: name("user.a") }), Answer::Value(name("1")));
}

#[test]
fn layouts_and_quotas_are_set_by_attributes() {
    let mut w = World::mounted(1);
    w.mkdir(0, "d").expect("made");
    let node = w.node(0, "d");
    let set = |key: &str, value: &str| Call::SetXattr { node, name: name(key), value: name(value), flags: 0 };
    w.ok(0, set("ceph.dir.layout.object_size", "8388608"));
    assert_eq!(w.err(0, set("ceph.dir.layout.pool", "meta")), Errno::EINVAL, "no data pool");
    assert_eq!(w.err(0, set("ceph.dir.layout.pool", "none")), Errno::EINVAL);
    assert_eq!(w.err(0, set("ceph.dir.layout.stripe_unit", "7")), Errno::EINVAL);
    w.put(0, "d/f", "x");
    assert_eq!(w.stat(0, "d/f").expect("a file").layout.object_size, 8 << 20);
    w.ok(0, set("ceph.quota.max_bytes", "1000"));
    assert_eq!(w.stat(0, "d").expect("a folder").quota.max_bytes, 1000);
    w.restart();
    let d = w.stat(0, "d").expect("a folder");
    assert_eq!((d.quota.max_bytes, d.layout.object_size), (1000, 8 << 20));
}

#[test]
fn sums_reach_the_root() {
    let mut w = World::mounted(1);
    w.mkdir(0, "a").expect("made");
    w.mkdir(0, "a/b").expect("made");
    w.put(0, "a/b/f", "12345");
    w.put(0, "a/g", "123");
    w.pass(Duration::from_secs(10));
    let sums = |w: &mut World, path: &str| {
        let node = w.node(0, path);
        let mask = Caps::FILE_SHARED | Caps::FILE_WREXTEND;
        match w.ok(0, Call::GetAttr { node, mask }) {
            Answer::Attr(a) => (a.rbytes, a.rfiles, a.rsubdirs),
            other => panic!("{other:?}"),
        }
    };
    for _ in 0..2 {
        assert_eq!(
            (sums(&mut w, ""), sums(&mut w, "a"), sums(&mut w, "a/b")),
            ((8, 2, 3), (8, 2, 2), (5, 1, 1))
        );
        w.restart();
    }
    w.unlink(0, "a/b/f").expect("unlinked");
    w.rmdir(0, "a/b").expect("removed");
    w.pass(Duration::from_secs(3));
    assert_eq!(sums(&mut w, ""), (3, 1, 2));
}

#[test]
fn locks_on_files_wait_and_are_told() {
    let mut w = World::mounted(2);
    w.put(0, "f", "");
    let (a, b) = (w.open(0, "f", 2).expect("open"), w.open(1, "f", 2).expect("open"));
    let lock = |kind| FileLock { lock: kind, owner: 1, ..FileLock::default() };
    let set = |handle, kind, lock_kind, wait| Call::Lock { handle, kind, lock: lock(lock_kind), wait };
    w.ok(0, set(a, LockKind::FLOCK, LockType::EXCL, false));
    assert_eq!(w.err(1, set(b, LockKind::FLOCK, LockType::SHARED, false)), Errno::EAGAIN);
    let test = Call::TestLock { handle: b, kind: LockKind::FLOCK, lock: lock(LockType::SHARED) };
    assert!(matches!(w.ok(1, test), Answer::Lock(l) if l.lock == LockType::EXCL && l.client == 4100));
    let ticket = w.submit(1, set(b, LockKind::FLOCK, LockType::SHARED, true));
    w.settle();
    assert!(w.is_done(1, ticket).is_none());
    w.ok(0, set(a, LockKind::FLOCK, LockType::UNLOCK, false));
    assert_eq!(w.wait(1, ticket), Ok(Answer::Done));
    // The next server hears of it from its holder.
    w.restart();
    assert_eq!(w.err(0, set(a, LockKind::FLOCK, LockType::EXCL, false)), Errno::EAGAIN);
}

#[test]
fn large_folders_come_in_parts() {
    let mut w = World::mounted(1);
    w.mkdir(0, "d").expect("made");
    let dir = w.node(0, "d");
    let names: Vec<String> = (0..1_100).map(|n| format!("f{n:04}")).collect();
    for n in &names {
        w.ok(0, Call::Mknod { dir, name: name(n), mode: 0o100_644, rdev: 0 });
    }
    assert_eq!(w.list(0, "d"), names);
    w.restart();
    assert_eq!(w.list(0, "d"), names);
    assert_eq!(w.stat(0, "d").expect("a folder").nfiles, 1_100);
    assert_eq!(w.node(0, "d").ino, dir.ino);
    assert_ne!(dir.ino, Ino::ROOT);
}

#[test]
fn folders_that_are_removed_leave_no_object() {
    let mut w = World::mounted(1);
    w.mkdir(0, "d").expect("made");
    let ino = w.node(0, "d").ino;
    w.put(0, "d/f", "x");
    w.unlink(0, "d/f").expect("unlinked");
    w.rmdir(0, "d").expect("removed");
    w.ok(0, Call::Unmount);
    w.pass(Duration::from_secs(10));
    let object = format!("{:x}.00000000", ino.0);
    assert!(w.objects.find(&object).is_none());
}

#[test]
fn a_mirror_says_of_what_it_is_one() {
    const NAME: &str = "ceph.mirror.info";
    const VALUE: &str = "cluster_id=52b1d3c4-0a1b-4c2d-8e3f-0123456789ab fs_id=10";
    let mut w = World::mounted(1);
    w.mkdir(0, "d").expect("made");
    let dir = w.node(0, "d");
    let set = |node, value: &str, flags| Call::SetXattr { node, name: name(NAME), value: name(value), flags };
    let get = || Call::GetXattr { node: Node::ROOT, name: name(NAME) };
    let remove = || Call::RemoveXattr { node: Node::ROOT, name: name(NAME) };
    assert_eq!(w.err(0, get()), Errno::ENODATA);
    assert_eq!(w.err(0, remove()), Errno::ENODATA);
    assert_eq!(w.err(0, set(dir, VALUE, 0)), Errno::EINVAL);
    assert_eq!(w.err(0, set(Node::ROOT, "cluster_id=x fs_id=10", 0)), Errno::EINVAL);
    w.ok(0, set(Node::ROOT, VALUE, RequestArgs::XATTR_CREATE));
    assert_eq!(w.err(0, set(Node::ROOT, VALUE, RequestArgs::XATTR_CREATE)), Errno::EEXIST);
    for _ in 0..2 {
        assert_eq!(w.ok(0, get()), Answer::Value(name(VALUE)));
        w.restart();
    }
    w.ok(0, remove());
    assert_eq!(w.err(0, get()), Errno::ENODATA);
}
