//! Folders that move between two active servers while files in them are open.

use std::time::Duration;

use bytes::Bytes;
use cephfs::{Answer, Call, Node};
use cephfsio::Mount;
use rados::Cluster;

use crate::setup::{Bed, Other, alone_on_cephs, content, create, name};

async fn command(admin: &Cluster, json: &str) -> Bytes {
    admin.mon_command(json, Bytes::new()).await.expect("done").output
}

/// Waits until so many ranks are active.
async fn until_ranks(admin: &Cluster, wanted: usize) {
    loop {
        let dump = command(admin, r#"{"prefix": "fs dump", "format": "json"}"#).await;
        let dump: serde_json::Value = serde_json::from_slice(&dump).expect("JSON");
        let map = &dump["filesystems"][0]["mdsmap"];
        let states = map["info"].as_object().expect("servers").values();
        let active = states.filter(|i| i["state"] == "up:active").count();
        if active == wanted && map["in"].as_array().expect("ranks").len() == wanted {
            return;
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

/// Waits until a folder is where it was pinned to.
async fn until_pinned(other: &mut Other, mount: &Mount, dir: Node, path: &str, rank: &str) {
    let pin = Call::SetXattr { node: dir, name: name("ceph.dir.pin"), value: name(rank), flags: 0 };
    mount.call(pin).await.expect("pinned");
    let is_there =
        format!("any(s['dir']['path'] == '{path}' and s['auth_first'] == {rank} for s in subtrees({rank}))");
    while other.eval(&is_there) != "True" {
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

#[test]
fn open_files_move_with_their_folder() {
    alone_on_cephs("ranks", async |bed| {
        let Bed { mount, dir, path, .. } = bed;
        let dir = *dir;
        let (mut other, admin) = (bed.other(), bed.cluster().await);
        let set =
            |n| format!(r#"{{"prefix": "fs set", "fs_name": "cephfs", "var": "max_mds", "val": "{n}"}}"#);
        command(&admin, &set(2)).await;
        until_ranks(&admin, 2).await;
        let (kept, _) = create(mount, dir, "kept").await;
        let stays = mount.attr(Call::Mkdir { dir, name: name("sub"), mode: 0o755 }).await.expect("made").node;
        let mut written = 0;
        for (round, rank) in ["1", "0", "1"].into_iter().enumerate() {
            let pin = until_pinned(&mut other, mount, dir, path, rank);
            let work = async {
                for i in 0..40 {
                    let append = Call::Write { handle: kept, offset: None, data: name("0123456789") };
                    assert_eq!(mount.call(append).await.expect("appended"), Answer::Written(10));
                    let text = format!("file-{round}-{i}");
                    let (handle, _) = create(mount, stays, &text).await;
                    mount.write(handle, 0, content(i, 2000)).await.expect("written");
                    mount.call(Call::Close { handle }).await.expect("closed");
                    let (to_dir, to_name) = (dir, text.clone().into());
                    let up = Call::Rename { dir: stays, name: name(&text), to_dir, to_name };
                    mount.call(up).await.expect("renamed");
                }
            };
            tokio::join!(work, pin);
            written += 400;
            mount.call(Call::Fsync { handle: kept }).await.expect("safe");
            other.is(&format!("size('{path}/kept')"), &written.to_string());
            other.is(&format!("same('{path}/file-{round}-7', 7, 2000)"), "True");
        }
        // From a folder of one rank into a folder of the other.
        let top = mount.walk("/").await.expect("there").node;
        let away = format!("away-{}", std::process::id());
        let rename = Call::Rename { dir, name: name("file-0-0"), to_dir: top, to_name: away.clone().into() };
        mount.call(rename).await.expect("renamed");
        other.is(&format!("same('/{away}', 0, 2000)"), "True");
        mount.call(Call::Unlink { dir: top, name: away.into() }).await.expect("removed");
        mount.call(Call::Close { handle: kept }).await.expect("closed");
        assert_eq!(mount.list(dir).await.expect("listed").len(), 2 + 3 * 40 - 1);
        mount.call(Call::Sync).await.expect("safe");
        command(&admin, &set(1)).await;
        until_ranks(&admin, 1).await;
        other.is(&format!("len(names('{path}'))"), "121");
    });
}
