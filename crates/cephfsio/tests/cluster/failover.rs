//! The metadata server is failed in the middle of work, and another one takes its place.

use cephfs::{Answer, Call};
use messages::fs::{FileLock, LockKind, LockType};
use types::Errno;

use crate::setup::{Bed, alone, content, create, name};

#[test]
fn no_operation_is_lost_when_the_server_is_failed() {
    alone("failover", async |bed| {
        let Bed { mount, dir, path, .. } = bed;
        let dir = *dir;
        let mut other = bed.other();
        let admin = bed.cluster().await;
        let (kept, _) = create(mount, dir, "kept").await;
        let lock = FileLock { owner: 3, lock: LockType::EXCL, ..FileLock::default() };
        mount
            .call(Call::Lock { handle: kept, kind: LockKind::FLOCK, lock, wait: false })
            .await
            .expect("locked");
        let mut written = 0_u64;
        for round in 0..3 {
            // Calls under way while the server goes: some answered but not safe, some not answered, some not
            // sent.
            let work = async {
                for i in 0..60 {
                    let text = format!("file-{round}-{i}");
                    let (handle, _) = create(mount, dir, &text).await;
                    mount.write(handle, 0, content(i, 1000 + i)).await.expect("written");
                    mount.call(Call::Close { handle }).await.expect("closed");
                    let rename = |from: &str, to: String| Call::Rename {
                        dir,
                        name: name(from),
                        to_dir: dir,
                        to_name: to.into(),
                    };
                    mount.call(rename(&text, format!("done-{round}-{i}"))).await.expect("renamed");
                    let made = Call::Mkdir { dir, name: name(&format!("dir-{round}-{i}")), mode: 0o755 };
                    mount.attr(made).await.expect("made");
                    let gone = Call::Rmdir { dir, name: name(&format!("dir-{round}-{i}")) };
                    mount.call(gone).await.expect("removed");
                    let append = Call::Write { handle: kept, offset: None, data: name("0123456789") };
                    assert_eq!(mount.call(append).await.expect("appended"), Answer::Written(10));
                    written += 10;
                }
            };
            let fail = async {
                let json = r#"{"prefix": "mds fail", "role_or_gid": "cephfs:0"}"#;
                admin.mon_command(json, bytes::Bytes::new()).await.expect("failed");
            };
            tokio::join!(work, fail);
        }
        mount.call(Call::Fsync { handle: kept }).await.expect("safe");
        mount.call(Call::Sync).await.expect("safe");
        let size = format!("f.stat('{path}/kept').st_size");
        other.is(&size, &written.to_string());
        let mut names: Vec<_> = mount.list(dir).await.expect("listed").into_iter().map(|e| e.name).collect();
        names.sort();
        assert_eq!(names.len(), 181, "{names:?}");
        for (round, i) in [(0, 0), (0, 30), (1, 59), (2, 17)] {
            other.is(&format!("same('{path}/done-{round}-{i}', {i}, {})", 1000 + i), "True");
        }
        // The lock went along.
        other.is(&format!("keep('{path}/kept', 'r+')"), "None");
        let try_lock =
            format!("error(lambda: f.flock(kept['{path}/kept'], fcntl.LOCK_EX | fcntl.LOCK_NB, 1))");
        other.is(&try_lock, &Errno::EAGAIN.0.to_string());
        mount.call(Call::Close { handle: kept }).await.expect("closed");
    });
}
