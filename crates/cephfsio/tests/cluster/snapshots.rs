//! Snapshots: taken and removed by making folders in `.snap`.

use cephfs::Call;
use messages::fs::OpenArgs;
use types::{Errno, SnapId};

use crate::setup::{Bed, create, name, with_folder_on_cephs};

#[test]
fn a_snapshot_keeps_what_was_there() {
    with_folder_on_cephs("snapshots", async |bed| {
        let Bed { mount, dir, path, .. } = bed;
        let dir = *dir;
        let mut other = bed.other();
        let sub = mount.attr(Call::Mkdir { dir, name: name("sub"), mode: 0o755 }).await.expect("made").node;
        let (handle, _) = create(mount, sub, "file").await;
        mount.write(handle, 0, name("before")).await.expect("written");
        let snaps = mount.attr(Call::Lookup { dir, name: name(".snap") }).await.expect("there").node;
        assert_eq!(snaps.snap, SnapId::SNAPDIR);
        // Not flushed yet: what is written belongs to it all the same.
        mount.attr(Call::Mkdir { dir: snaps, name: name("ours"), mode: 0o755 }).await.expect("taken");
        mount.write(handle, 0, name("after, and longer")).await.expect("written");
        other.is(&format!("f.mkdir('{path}/.snap/theirs', 0o755)"), "None");
        // Our server's answer comes after its word of the snapshot.
        assert_eq!(mount.list(snaps).await.expect("listed").len(), 2);
        mount.write(handle, 0, name("last")).await.expect("written");
        mount.call(Call::Fsync { handle }).await.expect("safe");

        let names: Vec<_> = mount.list(snaps).await.expect("listed").into_iter().map(|e| e.name).collect();
        assert_eq!(names, [name("ours"), name("theirs")]);
        let read = async |at: &str| {
            let node = mount.walk(&format!("{path}/{at}sub/file")).await.expect("there").node;
            let (handle, _) = mount.open(Call::Open { node, flags: OpenArgs::RDONLY }).await.expect("opens");
            let data = mount.read_to_end(handle).await.expect("read");
            mount.call(Call::Close { handle }).await.expect("closed");
            data
        };
        assert_eq!(read(".snap/ours/").await, "before");
        assert_eq!(read(".snap/theirs/").await, "after, and longer");
        assert_eq!(read("").await, "lastr, and longer");
        other.is(&format!("f.stat('{path}/.snap/ours/sub/file').st_size"), "6");

        let old = mount.walk(&format!("{path}/.snap/ours/sub")).await.expect("there").node;
        let refused = [
            Call::Mkdir { dir: old, name: name("x"), mode: 0o755 },
            Call::Unlink { dir: old, name: name("file") },
        ];
        for call in refused {
            assert_eq!(mount.call(call).await.expect_err("read only").errno(), Some(Errno::EROFS));
        }
        let rename = Call::Rename { dir: snaps, name: name("ours"), to_dir: snaps, to_name: name("first") };
        mount.call(rename).await.expect("renamed");
        other.is(&format!("names('{path}/.snap')"), "['first', 'theirs']");
        for snap in ["first", "theirs"] {
            mount.call(Call::Rmdir { dir: snaps, name: name(snap) }).await.expect("removed");
        }
        assert!(mount.list(snaps).await.expect("listed").is_empty());
        mount.call(Call::Close { handle }).await.expect("closed");
    });
}
