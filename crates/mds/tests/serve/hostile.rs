//! Clients that lie, reach beyond their keys, or give nothing back.

use std::time::Duration;

use bytes::Bytes;
use cephfs::{Answer, Call};
use messages::fs::{
    CapOp, CapReconnect, Caps, FilePath, FsOp, MClientCaps, MClientReconnect, MClientRequest, OpenArgs,
    RequestArgs, SetAttr,
};
use types::{Errno, Ino};

use crate::world::{World, name};

fn path(base: Ino, text: &str) -> FilePath {
    FilePath { base, path: name(text) }
}

fn request(op: FsOp, path: FilePath, args: RequestArgs) -> MClientRequest {
    MClientRequest { op, path, args, ..MClientRequest::default() }
}

#[test]
fn names_that_cannot_be_are_refused() {
    let mut w = World::mounted(1);
    let mkdir = RequestArgs::Mkdir { mode: 0o755 };
    let long = "n".repeat(256);
    for (text, errno) in [
        ("", Errno::EINVAL),
        (".", Errno::EINVAL),
        ("..", Errno::EINVAL),
        ("a\0b", Errno::EINVAL),
        ("../x", Errno::EINVAL),
        ("x//y", Errno::ENOENT),
        (long.as_str(), Errno::ENAMETOOLONG),
    ] {
        assert_eq!(w.raw(0, request(FsOp::MKDIR, path(Ino(1), text), mkdir.clone())), Err(errno), "{text:?}");
        let m = MClientRequest {
            path2: path(Ino(1), text),
            ..request(FsOp::RENAME, path(Ino(1), "to"), RequestArgs::None)
        };
        assert!(w.raw(0, m).is_err(), "{text:?}");
    }
    assert!(w.list(0, "").is_empty());
}

#[test]
fn the_servers_own_folders_are_out_of_reach() {
    let mut w = World::mounted(1);
    w.put(0, "f", "x");
    let handle = w.open(0, "f", 0).expect("open");
    w.unlink(0, "f").expect("unlinked");
    for ino in [0x100, 0x600, 0x603, 0x200, 0x500, 0, 2, 3] {
        let mask = RequestArgs::Mask(Caps::ALL_SHARED);
        assert_eq!(w.raw(0, request(FsOp::GETATTR, path(Ino(ino), ""), mask.clone())), Err(Errno::ESTALE));
        assert_eq!(w.raw(0, request(FsOp::LOOKUP, path(Ino(ino), "stray0"), mask)), Err(Errno::ESTALE));
    }
    w.close(0, handle);
}

#[test]
fn inodes_that_are_nowhere_are_stale() {
    let mut w = World::mounted(1);
    let args =
        RequestArgs::LookupIno { mask: Caps::ALL_SHARED, snap: types::SnapId::HEAD, parent: Ino(0), hash: 0 };
    assert_eq!(w.raw(0, request(FsOp::LOOKUPINO, path(Ino(1 << 41), ""), args)), Err(Errno::ESTALE));
}

#[test]
fn a_key_for_a_path_reaches_nothing_else() {
    let mut w = World::with(mds::Settings::default(), &["allow *", "allow rw path=/in"]);
    w.ok(0, Call::Mount { path: Bytes::new() });
    w.mkdir(0, "in").expect("made");
    w.mkdir(0, "out").expect("made");
    w.put(0, "out/f", "secret");
    w.put(0, "in/g", "own");
    w.ok(0, Call::Sync);
    let (outside, file, inside) = (w.node(0, "out"), w.node(0, "out/f"), w.node(0, "in"));
    assert_eq!(w.err(1, Call::Mount { path: Bytes::new() }), Errno::EACCES);
    w.ok(1, Call::Mount { path: name("in") });
    let mask = RequestArgs::Mask(Caps::ALL_SHARED);
    let get = |ino: Ino, text: &str| request(FsOp::GETATTR, path(ino, text), mask.clone());
    assert_eq!(w.raw(1, get(file.ino, "")), Err(Errno::EACCES));
    assert_eq!(w.raw(1, get(Ino(1), "out/f")), Err(Errno::EACCES));
    assert_eq!(w.raw(1, get(Ino(1), "out/none")), Err(Errno::EACCES), "nor whether it is there");
    let args =
        RequestArgs::LookupIno { mask: Caps::ALL_SHARED, snap: types::SnapId::HEAD, parent: Ino(0), hash: 0 };
    assert_eq!(w.raw(1, request(FsOp::LOOKUPINO, path(file.ino, ""), args)), Err(Errno::EACCES));
    let two = |op, a: FilePath, b: FilePath| MClientRequest { path2: b, ..request(op, a, RequestArgs::None) };
    assert_eq!(
        w.raw(1, two(FsOp::RENAME, path(outside.ino, "g"), path(inside.ino, "g"))),
        Err(Errno::EACCES)
    );
    assert_eq!(
        w.raw(1, two(FsOp::RENAME, path(inside.ino, "f"), path(outside.ino, "f"))),
        Err(Errno::EACCES)
    );
    assert_eq!(w.raw(1, two(FsOp::LINK, path(inside.ino, "f"), path(file.ino, ""))), Err(Errno::EACCES));
    let open = RequestArgs::Open(OpenArgs { pool: -1, ..OpenArgs::default() });
    assert_eq!(w.raw(1, request(FsOp::OPEN, path(file.ino, ""), open)), Err(Errno::EACCES));
    assert_eq!(w.get(0, "out/f").as_deref(), Ok("secret"));
    assert_eq!(w.list(0, "in"), ["g"]);
}

#[test]
fn root_is_squashed_and_readers_do_not_write() {
    let mut w = World::with(
        mds::Settings::default(),
        &["allow *", "allow rw root_squash", "allow r", "allow rw uid=5 gids=5"],
    );
    (0..3).for_each(|i| drop(w.ok(i, Call::Mount { path: Bytes::new() })));
    assert_eq!(w.err(3, Call::Mount { path: Bytes::new() }), Errno::EACCES, "its user is another one");
    w.put(0, "f", "x");
    w.mkdir(0, "z").expect("made");
    let make = |uid, gid, text: &str| MClientRequest {
        caller_uid: uid,
        caller_gid: gid,
        ..request(FsOp::MKDIR, path(Ino(1), text), RequestArgs::Mkdir { mode: 0o755 })
    };
    assert_eq!(w.raw(1, make(0, 0, "a")), Err(Errno::EACCES));
    assert_eq!(w.raw(1, make(1, 0, "a")), Err(Errno::EACCES));
    assert!(w.raw(1, make(1, 1, "a")).is_ok());
    assert_eq!(w.raw(2, make(1, 1, "b")), Err(Errno::EACCES));
    assert_eq!(w.get(2, "f").as_deref(), Ok("x"));
    // A key for one user is for that one, whoever the client says it is.
    assert_eq!(w.raw(3, make(0, 0, "c")), Err(Errno::EACCES));
    assert_eq!(w.raw(3, make(5, 5, "c")), Err(Errno::EACCES), "the root is another's");
    let layout = |w: &mut World, i| {
        let m = MClientRequest {
            caller_uid: 1,
            caller_gid: 1,
            path2: path(Ino(0), "ceph.dir.layout.pool"),
            data: name("data"),
            ..request(FsOp::SETXATTR, path(Ino(1), "z"), RequestArgs::SetXattr { flags: 0, osdmap_epoch: 0 })
        };
        w.raw(i, m)
    };
    assert_eq!(layout(&mut w, 1), Err(Errno::EACCES), "without `p` no layouts");
    assert!(layout(&mut w, 0).is_ok());
}

#[test]
fn a_layout_with_a_foreign_pool_is_refused() {
    let mut w = World::mounted(1);
    let open = |pool, object_size| {
        let args = OpenArgs { flags: 0o102, mode: 0o644, pool, object_size, ..OpenArgs::default() };
        request(FsOp::CREATE, path(Ino(1), "f"), RequestArgs::Open(args))
    };
    assert_eq!(w.raw(0, open(1, 0)), Err(Errno::EINVAL));
    assert_eq!(w.raw(0, open(99, 0)), Err(Errno::EINVAL));
    assert_eq!(w.raw(0, open(-1, 7)), Err(Errno::EINVAL));
    assert!(w.raw(0, open(2, 0)).is_ok());
}

/// A client that holds nothing of a file changes nothing by saying that it did.
#[test]
fn flushes_of_what_is_not_held_change_nothing() {
    let mut w = World::mounted(2);
    w.put(0, "f", "hello");
    w.ok(0, Call::Sync);
    let attr = w.stat(1, "f").expect("a file");
    let dirty = Caps::FILE_EXCL | Caps::FILE_WR | Caps::AUTH_EXCL | Caps::XATTR_EXCL;
    for cap_id in 0..20 {
        let m = MClientCaps {
            op: CapOp::UPDATE,
            ino: attr.node.ino,
            cap_id,
            seq: 1,
            caps: Caps(0xffff),
            wanted: Caps::NONE,
            dirty,
            size: 1 << 30,
            mode: 0o777,
            uid: 66,
            xattr_version: 99,
            truncate_seq: 99,
            ..MClientCaps::default()
        };
        w.say(1, 500 + cap_id, m.into());
    }
    w.settle();
    let after = w.stat(0, "f").expect("a file");
    assert_eq!((after.size, after.mode, after.uid), (attr.size, attr.mode, attr.uid));
    assert_eq!(w.get(0, "f").as_deref(), Ok("hello"));
}

/// What two clients claim at once only one can have; what is no inode nobody has.
#[test]
fn invented_capabilities_are_refused() {
    let settings =
        mds::Settings { cap_revoke_eviction_timeout: Duration::from_secs(10), ..mds::Settings::default() };
    let mut w = World::with(settings, &["allow *"; 2]);
    (0..2).for_each(|i| drop(w.ok(i, Call::Mount { path: Bytes::new() })));
    let a = w.create(0, "f").expect("made");
    w.write(0, a, 0, "hello");
    let ino = w.node(0, "f").ino;
    w.settle();
    w.fail_over();
    // The liar is first.
    let claim = |ino: Ino| CapReconnect {
        path_base: ino,
        cap_id: 9,
        wanted: Caps(0xffff),
        issued: Caps(0xffff),
        realm: Ino(1),
        ..CapReconnect::default()
    };
    let m = MClientReconnect {
        caps: [(ino, claim(ino)), (Ino(1 << 41), claim(Ino(1 << 41)))].into(),
        ..Default::default()
    };
    w.lie_at_reconnect = Some((1, m));
    w.settle();
    w.pass(Duration::from_secs(60));
    w.server.assert_invariants();
    w.write(0, a, 5, " world");
    w.ok(0, Call::Fsync { handle: a });
    assert_eq!(w.stat(0, "f").expect("a file").size, 11);
}

/// A client that never gives a capability back loses its session; the others go on.
#[test]
fn a_client_that_gives_nothing_back_suffers_alone() {
    let settings =
        mds::Settings { cap_revoke_eviction_timeout: Duration::from_secs(10), ..mds::Settings::default() };
    let mut w = World::with(settings, &["allow *"; 3]);
    (0..3).for_each(|i| drop(w.ok(i, Call::Mount { path: Bytes::new() })));
    let a = w.create(0, "f").expect("made");
    w.write(0, a, 0, "hello");
    w.ok(0, Call::Fsync { handle: a });
    w.deaf = Some(0);
    let ticket = w.submit(1, Call::Walk { path: name("f"), follow: false });
    w.pass(Duration::from_secs(5));
    assert!(w.is_done(1, ticket).is_none());
    w.mkdir(2, "other").expect("others are not kept");
    w.pass(Duration::from_secs(10));
    assert!(matches!(w.wait(1, ticket), Ok(Answer::Attr(_))));
}

#[test]
fn sizes_beyond_the_bound_are_refused() {
    let mut w = World::mounted(1);
    w.put(0, "f", "x");
    let node = w.node(0, "f");
    let set = SetAttr { mask: SetAttr::SIZE, size: (1 << 40) + 1, ..SetAttr::default() };
    assert_eq!(w.err(0, Call::SetAttr { node, set }), Errno::EFBIG);
}
