//! Names, attributes and extended attributes, seen by both clients.

use bytes::Bytes;
use cephfs::{Answer, Call};
use messages::fs::{Caps, SetAttr};
use types::Errno;

use crate::setup::{Bed, create, name, with_folder};

#[test]
fn names_made_here_are_seen_there_and_the_reverse() {
    with_folder("names", async |bed| {
        let Bed { mount, dir, path, .. } = bed;
        let dir = *dir;
        let mut other = bed.other();
        let sub = mount.attr(Call::Mkdir { dir, name: name("sub"), mode: 0o750 }).await.expect("made");
        let (handle, file) = create(mount, sub.node, "file").await;
        mount.call(Call::Close { handle }).await.expect("closed");
        mount.attr(Call::Link { node: file.node, dir, name: name("hard") }).await.expect("linked");
        mount
            .attr(Call::Symlink { dir, name: name("soft"), target: name("sub/file") })
            .await
            .expect("linked");
        mount.attr(Call::Mknod { dir, name: name("pipe"), mode: 0o010_600, rdev: 0 }).await.expect("made");
        other.is(&format!("names('{path}')"), "['hard', 'pipe', 'soft', 'sub']");
        other.is(&format!("oct(f.stat('{path}/sub').st_mode)"), "'0o40750'");
        other.is(&format!("f.stat('{path}/soft').st_nlink"), "2");

        // The other client's changes.
        other.is(&format!("f.rename('{path}/hard', '{path}/sub/moved')"), "None");
        other.is(&format!("f.mkdir('{path}/sub/theirs', 0o700)"), "None");
        let gone = mount.walk(&format!("{path}/hard")).await.expect_err("it was renamed");
        assert_eq!(gone.errno(), Some(Errno::ENOENT));
        let moved = mount.walk(&format!("{path}/sub/../sub/./moved")).await.expect("there");
        assert_eq!((moved.node, moved.nlink), (file.node, 2));
        let soft = mount.walk(&format!("{path}/soft")).await.expect("followed");
        assert_eq!(soft.node, file.node);
        let listed: Vec<Bytes> =
            mount.list(sub.node).await.expect("listed").into_iter().map(|e| e.name).collect();
        assert_eq!(listed.len(), 3, "{listed:?}");

        // Renames over a name, and what is refused.
        let rename = |from: &str, to: &str| Call::Rename {
            dir: sub.node,
            name: name(from),
            to_dir: dir,
            to_name: name(to),
        };
        mount.call(rename("moved", "pipe")).await.expect("renamed");
        other.is(&format!("f.stat('{path}/pipe').st_ino == f.stat('{path}/sub/file').st_ino"), "True");
        let refused = [
            (Call::Rmdir { dir, name: name("sub") }, Errno::ENOTEMPTY),
            (Call::Unlink { dir, name: name("sub") }, Errno::EISDIR),
            (Call::Rmdir { dir, name: name("pipe") }, Errno::ENOTDIR),
            (Call::Mkdir { dir, name: name("sub"), mode: 0o755 }, Errno::EEXIST),
            (Call::Mkdir { dir, name: name("a/b"), mode: 0o755 }, Errno::EINVAL),
            (Call::Mkdir { dir, name: Bytes::from(vec![b'n'; 256]), mode: 0o755 }, Errno::ENAMETOOLONG),
            (Call::Unlink { dir, name: name("none") }, Errno::ENOENT),
            (Call::Lookup { dir, name: name("none") }, Errno::ENOENT),
            (Call::Walk { path: name(&format!("{path}/soft/x")), follow: true }, Errno::ENOTDIR),
        ];
        for (call, errno) in refused {
            let text = format!("{call:?}");
            assert_eq!(mount.call(call).await.expect_err(&text).errno(), Some(errno), "{text}");
        }
        mount.call(Call::Unlink { dir, name: name("pipe") }).await.expect("removed");
        mount.call(Call::Unlink { dir: sub.node, name: name("file") }).await.expect("removed");
        mount.call(Call::Rmdir { dir: sub.node, name: name("theirs") }).await.expect("removed");
        mount.call(Call::Rmdir { dir, name: name("sub") }).await.expect("removed");
        other.is(&format!("names('{path}')"), "['soft']");
    });
}

#[test]
fn attributes_are_the_same_for_both() {
    with_folder("attributes", async |bed| {
        let Bed { mount, dir, path, .. } = bed;
        let dir = *dir;
        let mut other = bed.other();
        let (handle, file) = create(mount, dir, "file").await;
        let node = file.node;
        let set = SetAttr {
            mode: 0o640,
            uid: 12,
            gid: 34,
            mtime: types::Utime::new(1_000_000_000, 5),
            mask: SetAttr::MODE | SetAttr::UID | SetAttr::GID | SetAttr::MTIME,
            ..SetAttr::default()
        };
        let attr = mount.attr(Call::SetAttr { node, set }).await.expect("set");
        assert_eq!((attr.mode & 0o777, attr.uid, attr.gid, attr.mtime.sec), (0o640, 12, 34, 1_000_000_000));
        let seen = "[oct(s.st_mode), s.st_uid, s.st_gid, s.st_mtime.year]";
        other.is(&format!("[{seen} for s in [f.stat('{path}/file')]][0]"), "['0o100640', 12, 34, 2001]");
        other.is(&format!("f.chmod('{path}/file', 0o600)"), "None");
        let attr = mount.attr(Call::GetAttr { node, mask: Caps::ALL_SHARED }).await.expect("asked");
        assert_eq!(attr.mode & 0o777, 0o600);

        let value = |name: &str| Call::GetXattr { node, name: crate::setup::name(name) };
        let set =
            |key: &str, value: &str| Call::SetXattr { node, name: name(key), value: name(value), flags: 0 };
        mount.call(set("user.one", "first")).await.expect("set");
        other.is(&format!("f.getxattr('{path}/file', 'user.one')"), "b'first'");
        other.is(&format!("f.setxattr('{path}/file', 'user.two', b'second', 0)"), "None");
        assert_eq!(mount.call(value("user.two")).await.expect("there"), Answer::Value(name("second")));
        mount.call(Call::RemoveXattr { node, name: name("user.one") }).await.expect("removed");
        assert_eq!(mount.call(value("user.one")).await.expect_err("gone").errno(), Some(Errno::ENODATA));
        assert_eq!(mount.call(value("other.one")).await.expect_err("no").errno(), Some(Errno::EOPNOTSUPP));
        let listed = mount.call(Call::ListXattr { node }).await.expect("listed");
        assert_eq!(listed, Answer::Names(vec![name("user.two")]));

        // Layouts and quotas.
        let set = |key: &str, value: &str| Call::SetXattr {
            node: dir,
            name: name(key),
            value: name(value),
            flags: 0,
        };
        mount.call(set("ceph.dir.layout.stripe_count", "3")).await.expect("set");
        mount.call(set("ceph.quota.max_files", "77")).await.expect("set");
        other.is(&format!("f.getxattr('{path}', 'ceph.quota.max_files')"), "b'77'");
        other.is(&format!("b'stripe_count=3' in f.getxattr('{path}', 'ceph.dir.layout')"), "True");
        let value = |name: &str| Call::GetXattr { node: dir, name: crate::setup::name(name) };
        let layout = mount.call(value("ceph.dir.layout")).await.expect("told");
        assert!(
            matches!(&layout, Answer::Value(v) if v.windows(14).any(|w| w == b"stripe_count=3")),
            "{layout:?}"
        );
        let count = mount.call(value("ceph.dir.layout.stripe_count")).await.expect("told");
        assert_eq!(count, Answer::Value(name("3")));
        let json = mount.call(value("ceph.dir.layout.json")).await.expect("told");
        assert!(matches!(&json, Answer::Value(v) if v.starts_with(b"{\"stripe_unit\"")), "{json:?}");
        let quota = mount.call(value("ceph.quota")).await.expect("told");
        assert_eq!(quota, Answer::Value(name("max_bytes=0 max_files=77")));
        assert_eq!(mount.call(value("ceph.dir.entries")).await.expect("told"), Answer::Value(name("1")));
        let wrong = mount.call(set("ceph.dir.layout.pool", "no-such-pool")).await.expect_err("refused");
        assert_eq!(wrong.errno(), Some(Errno::EINVAL));
        mount.call(Call::Close { handle }).await.expect("closed");
    });
}

/// More names than come in one answer.
#[test]
fn long_listings_come_in_parts() {
    with_folder("listing", async |bed| {
        let Bed { mount, dir, path, .. } = bed;
        let dir = *dir;
        let mut other = bed.other();
        let make = format!("[f.close(f.open('{path}/name-%d' % i, 'w', 0o644)) for i in range(2500)] and 1");
        other.is(&make, "1");
        let listed = mount.list(dir).await.expect("listed");
        let mut names: Vec<Bytes> = listed.into_iter().map(|e| e.name).collect();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), 2500);
        // The folder is known whole now: what is not in it, and what comes into it later.
        let missing = mount.call(Call::Lookup { dir, name: name("name-2500") }).await.expect_err("not there");
        assert_eq!(missing.errno(), Some(Errno::ENOENT));
        other.is(&format!("f.close(f.open('{path}/name-2500', 'w', 0o644))"), "None");
        mount.attr(Call::Lookup { dir, name: name("name-2500") }).await.expect("made meanwhile");
    });
}
