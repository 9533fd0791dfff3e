//! A bucket that keeps versions: what the core writes and removes there is what Ceph's gateway finds, and the
//! other way round.

use bytes::Bytes;
use gateway::{Listing, Removed, Remover, SharedBucket};
use rgw::{Key, Versioning};
use serde_json::{Value, json};

use super::setup::{Server, Stock, installed};
use super::{Core, MIB, bytes, core, make_user, md5, moment, number};

fn version(name: &str, id: &str) -> Key {
    Key { instance: id.to_owned().into(), ..Key::plain(name.to_owned()) }
}

impl Core {
    /// Writes a version; its id.
    async fn put_version(&self, bucket: &SharedBucket, name: &str, data: &Bytes) -> String {
        let key = Key::plain(name.to_owned());
        let upload = moment(|m| self.site.put(bucket, key, Bytes::new(), number(), m)).expect("it begins");
        let upload = self.ok(upload.write(data.clone())).await;
        let written = self.ok(upload.finish(self.finish(md5(data)))).await;
        String::from_utf8_lossy(&written.version).into_owned()
    }

    async fn remove_version(&self, bucket: &SharedBucket, key: Key) -> Removed {
        let by = Remover { owner: self.owner.clone(), ..Remover::default() };
        self.ok(moment(|m| self.site.remove_version(bucket, key, &by, m))).await
    }

    /// All versions as the peer tells of them: name, id, whether it is the latest, and the sum of its bytes.
    async fn versions(&self, bucket: &SharedBucket) -> Value {
        let mut all: Vec<(String, String, bool, Option<String>)> = Vec::new();
        let mut listing = Listing { max: 2, versions: true, ..Listing::default() };
        loop {
            let page = self.ok(self.site.list(bucket, listing.clone())).await;
            for found in page.versions {
                let (name, id) = (found.key.name.clone(), found.key.instance.clone());
                let [name, id] = [name, id].map(|text| String::from_utf8_lossy(&text).into_owned());
                let sum = match found.is_marker {
                    true => None,
                    false => {
                        let opened =
                            self.ok(moment(|m| self.site.open(bucket, &version(&name, &id), 0, m))).await;
                        let data = self.ok(opened.read(0, opened.size())).await;
                        Some(String::from_utf8_lossy(&md5(&data)).into_owned())
                    }
                };
                all.push((name, id, found.is_latest, sum));
            }
            let Some(next) = page.next else { break };
            (listing.after, listing.after_version) = (next, page.next_version);
        }
        all.sort();
        json!(all)
    }
}

async fn everything(server: &Server) {
    let core = core(server).await;
    make_user(&core).await;
    let bucket = core.make_bucket_with("kept", Versioning(Versioning::VERSIONED)).await.expect("a bucket");
    let mut ids = Vec::new();
    for data in [bytes(5, 1), bytes(6 * MIB, 2), bytes(7, 3)] {
        ids.push(core.put_version(&bucket, "k", &data).await);
    }
    core.put_version(&bucket, "_gone", &bytes(9, 4)).await;
    assert!(core.remove_version(&bucket, Key::plain("_gone")).await.is_marker);
    core.put_parts(&bucket, "parts", &[bytes(5 * MIB, 5), bytes(MIB, 6)]).await;
    core.put_parts(&bucket, "parts", &[bytes(5 * MIB, 7), bytes(MIB, 8)]).await;
    assert!(!core.remove_version(&bucket, version("k", &ids[1])).await.is_marker);

    let stock = Stock::start(server);
    assert_eq!(stock.python("versions", &core.versions(&bucket).await), json!("equal"));
    assert_eq!(stock.python("changes", &json!(ids[0])), core.versions(&bucket).await);
    core.put_version(&bucket, "theirs", &bytes(11, 9)).await;
    assert_eq!(stock.python("versions", &core.versions(&bucket).await), json!("equal"));

    // The peer suspends versions: what has no id is written over.
    let theirs = stock.python("suspends", &Value::Null);
    let bucket = core.bucket("kept").await;
    assert!(bucket.flags.has(Versioning::VERSIONS_SUSPENDED));
    assert_eq!(theirs, core.versions(&bucket).await);
    for name in ["k", "new", "theirs"] {
        core.put_version(&bucket, name, &bytes(MIB, 10)).await;
    }
    core.remove_version(&bucket, Key::plain("new")).await;
    assert_eq!(stock.python("versions", &core.versions(&bucket).await), json!("equal"));

    // Nothing is left of what both wrote, and nobody finds any of it.
    for found in core.versions(&bucket).await.as_array().expect("a list") {
        let text = |at: usize| found[at].as_str().expect("a text");
        core.remove_version(&bucket, version(text(0), text(1))).await;
    }
    assert_eq!(stock.python("versions", &json!([])), json!("equal"));
    server.admin_line("gc process --include-all");
    let left = server.rados(&["-p", "default.rgw.buckets.data", "ls"]);
    assert_eq!(left.lines().filter(|line| !line.is_empty()).collect::<Vec<_>>(), Vec::<&str>::new());
    let stats = server.admin("bucket stats --bucket=kept");
    let size = &stats["usage"]["rgw.main"]["size"];
    assert!(size.is_null() || *size == json!(0), "{stats}");
}

#[test]
fn the_core_shares_versions_with_cephs_gateway() {
    if !installed("radosgw") {
        return;
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let server = Server::start();
    runtime.expect("a runtime").block_on(everything(&server));
}
