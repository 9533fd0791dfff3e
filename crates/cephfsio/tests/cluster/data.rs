//! Files' bytes, written by one client and read by the other.

use cephfs::{Answer, Call};
use messages::fs::{Caps, OpenArgs, SetAttr};
use types::Errno;

use crate::setup::{Bed, content, create, name, with_folder};

#[test]
fn what_one_client_writes_the_other_reads() {
    with_folder("data", async |bed| {
        let Bed { mount, dir, path, .. } = bed;
        let dir = *dir;
        let mut other = bed.other();
        let set = |key: &str, value: &str| Call::SetXattr {
            node: dir,
            name: name(key),
            value: name(value),
            flags: 0,
        };
        for (key, value) in [("stripe_count", "3"), ("object_size", "131072"), ("stripe_unit", "65536")] {
            // In an order in which each is valid: the unit divides the object.
            let _ = mount.call(set(&format!("ceph.dir.layout.{key}"), value)).await;
        }
        for (key, value) in [("stripe_unit", "65536"), ("object_size", "131072"), ("stripe_count", "3")] {
            mount.call(set(&format!("ceph.dir.layout.{key}"), value)).await.expect("set");
        }
        for (i, n) in [0, 1, 4096, 65_536, 65_537, 400_000, 1_000_003].into_iter().enumerate() {
            let (handle, _) = create(mount, dir, &format!("ours-{i}")).await;
            mount.write(handle, 0, content(i, n)).await.expect("written");
            mount.call(Call::Fsync { handle }).await.expect("safe");
            mount.call(Call::Close { handle }).await.expect("closed");
            other.is(&format!("same('{path}/ours-{i}', {i}, {n})"), "True");

            // libcephfs of 16.2.15 ends itself when it is told to write nothing.
            let n = n.max(1);
            other.is(&format!("put('{path}/theirs-{i}', {i}, {n})"), "None");
            let node = mount.walk(&format!("{path}/theirs-{i}")).await.expect("there");
            assert_eq!(node.size, n as u64);
            let (handle, _) =
                mount.open(Call::Open { node: node.node, flags: OpenArgs::RDONLY }).await.expect("opens");
            assert_eq!(mount.read_to_end(handle).await.expect("read"), content(i, n), "{n}");
            let refused = mount.call(Call::Write { handle, offset: Some(0), data: name("x") }).await;
            assert_eq!(refused.expect_err("read only").errno(), Some(Errno::EBADF));
            mount.call(Call::Close { handle }).await.expect("closed");
        }
    });
}

#[test]
fn holes_ends_and_truncations() {
    with_folder("holes", async |bed| {
        let Bed { mount, dir, path, .. } = bed;
        let dir = *dir;
        let mut other = bed.other();
        let (handle, file) = create(mount, dir, "file").await;
        mount.write(handle, 10_000_000, name("end")).await.expect("written");
        let read = mount.read(handle, 9_999_998, 100).await.expect("read");
        assert_eq!(&read[..], b"\0\0end");
        assert!(mount.read(handle, 20_000_000, 5).await.expect("read").is_empty());
        other.is(&format!("f.stat('{path}/file').st_size"), "10000003");
        other.is(&format!("f.truncate('{path}/file', 4)"), "None");
        assert!(mount.read(handle, 4, 100).await.expect("read").is_empty());
        assert_eq!(&mount.read(handle, 0, 100).await.expect("read")[..], b"\0\0\0\0");

        // What was cut off does not come back.
        mount.write(handle, 0, content(1, 100_000)).await.expect("written");
        let set = SetAttr { size: 50_000, mask: SetAttr::SIZE, ..SetAttr::default() };
        mount.attr(Call::SetAttr { node: file.node, set }).await.expect("truncated");
        let set = SetAttr { size: 100_000, ..set };
        mount.attr(Call::SetAttr { node: file.node, set }).await.expect("made longer");
        let read = mount.read(handle, 0, 200_000).await.expect("read");
        assert_eq!(&read[..50_000], &content(1, 50_000)[..]);
        assert!(read[50_000..].iter().all(|b| *b == 0) && read.len() == 100_000);

        let append = |text: &str| Call::Write { handle, offset: None, data: name(text) };
        mount.call(append("one")).await.expect("appended");
        other.is(&format!("f.truncate('{path}/file', 100001)"), "None");
        assert_eq!(mount.call(append("two")).await.expect("appended"), Answer::Written(3));
        assert_eq!(&mount.read(handle, 100_000, 100).await.expect("read")[..], b"otwo");
        mount.call(Call::Close { handle }).await.expect("closed");
    });
}

/// Both have the file open: neither may believe what it knew before.
#[test]
fn two_writers_see_each_other_s_bytes_and_sizes() {
    with_folder("writers", async |bed| {
        let Bed { mount, dir, path, .. } = bed;
        let dir = *dir;
        let mut other = bed.other();
        let (handle, file) = create(mount, dir, "file").await;
        other.is(&format!("keep('{path}/file', 'r+')"), "None");
        for round in 0..20_u64 {
            let (ours, theirs) = (round * 20, round * 20 + 10);
            mount.write(handle, ours, name("0123456789")).await.expect("written");
            other.is(&format!("f.read(kept['{path}/file'], {ours}, 100)"), "b'0123456789'");
            other.is(&format!("f.write(kept['{path}/file'], b'abcdefghij', {theirs})"), "10");
            assert_eq!(&mount.read(handle, theirs, 100).await.expect("read")[..], b"abcdefghij");
            let attr =
                mount.attr(Call::GetAttr { node: file.node, mask: Caps::ALL_SHARED }).await.expect("asked");
            assert_eq!(attr.size, theirs + 10);
        }
        mount.call(Call::Close { handle }).await.expect("closed");
    });
}

/// What a file that is removed holds stays there for whoever has it open.
#[test]
fn an_open_file_survives_its_name() {
    with_folder("unlinked", async |bed| {
        let Bed { mount, dir, path, .. } = bed;
        let dir = *dir;
        let mut other = bed.other();
        let (handle, _) = create(mount, dir, "file").await;
        mount.write(handle, 0, name("kept")).await.expect("written");
        other.is(&format!("f.unlink('{path}/file')"), "None");
        assert_eq!(&mount.read(handle, 0, 10).await.expect("read")[..], b"kept");
        mount.write(handle, 4, name(" on")).await.expect("written");
        assert_eq!(&mount.read(handle, 0, 10).await.expect("read")[..], b"kept on");
        mount.call(Call::Close { handle }).await.expect("closed");
    });
}
