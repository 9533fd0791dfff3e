//! The gateway's core on a cluster of ours, beside Debian's radosgw and radosgw-admin on the same pools:
//!
//! ```text
//! LOLIGO_BIN=target/release/loligo cargo test -p rgwio --test gateway_core
//! ```

mod setup;
mod versions;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use codec::Encode;
use gateway::{
    Complete, Condition, CopyTo, Error, Finish, FinishPart, Listing, Moment, NewBucket, Plan, SharedBucket,
    Site, Start, Subusers,
};
use md5::{Digest, Md5};
use rgw::{AccessControl, Compression, Key, Owner, PlacementRule, UserId, UserInfo, Versioning};
use rgwio::{Limits, Performer};
use serde_json::{Value, json};
use types::{RealTime, Utime};

use setup::{Server, Stock};

const MIB: usize = 1 << 20;

fn now() -> RealTime {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock");
    RealTime(Utime { sec: since.as_secs() as u32, nsec: since.subsec_nanos() })
}

/// A number that no other request has.
fn number() -> u64 {
    static USED: AtomicU64 = AtomicU64::new(1);
    USED.fetch_add(1, Ordering::Relaxed)
}

fn moment<T>(with: impl FnOnce(&mut Moment) -> T) -> T {
    with(&mut Moment { now: now(), entropy: &mut runtime::OsEntropy })
}

fn bytes(size: usize, seed: u8) -> Bytes {
    (0..size).map(|n| (n / 4096) as u8 ^ (n % 251) as u8 ^ seed).collect()
}

fn md5(data: &[u8]) -> Bytes {
    hex(&Md5::digest(data))
}

fn hex(digest: &[u8]) -> Bytes {
    digest.iter().map(|b| format!("{b:02x}")).collect::<String>().into()
}

/// Of an object of parts: the sum of their sums, and how many there are.
fn whole_etag(parts: &[Bytes]) -> Bytes {
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).expect("hex"), 16).expect("hex");
    let sums: Vec<u8> = parts.iter().flat_map(|part| part.chunks(2).map(byte).collect::<Vec<_>>()).collect();
    format!("{}-{}", String::from_utf8_lossy(&md5(&sums)), parts.len()).into()
}

/// The core, with a user.
struct Core {
    performer: Performer,
    site: Site,
    owner: Owner,
}

impl Core {
    async fn run<T: Send + 'static>(&self, plan: Plan<T>) -> Result<T, Error> {
        self.performer.run(plan).await
    }

    async fn ok<T: Send + 'static>(&self, plan: Plan<T>) -> T {
        self.run(plan).await.expect("it succeeds")
    }

    fn finish(&self, etag: Bytes) -> Finish {
        let acl = AccessControl::private(self.owner.clone()).to_bytes();
        let attrs = [
            ("user.rgw.acl", acl),
            ("user.rgw.etag", etag),
            ("user.rgw.content_type", Bytes::from_static(b"text/plain\0")),
            ("user.rgw.x-amz-meta-from", Bytes::from_static(b"core\0")),
        ];
        let attrs = attrs.map(|(name, value)| (Bytes::from_static(name.as_bytes()), value)).into();
        Finish { attrs, accounted_size: None, condition: Condition::Any, now: now() }
    }

    async fn bucket(&self, name: &'static str) -> SharedBucket {
        let state = self.ok(self.site.bucket(&Bytes::new(), &name.into())).await;
        Arc::new(state.instance.value)
    }

    async fn make_bucket(&self, name: &'static str) -> Result<SharedBucket, Error> {
        self.make_bucket_with(name, Versioning::default()).await
    }

    async fn make_bucket_with(&self, name: &'static str, flags: Versioning) -> Result<SharedBucket, Error> {
        let new = NewBucket {
            name: name.into(),
            acl: AccessControl::private(self.owner.clone()),
            placement: PlacementRule::default(),
            flags,
            number: number(),
            max_buckets: Some(10),
            attrs: <_>::default(),
        };
        self.run(moment(|m| self.site.create_bucket(new, m))).await.map(Arc::new)
    }

    async fn put(&self, bucket: &SharedBucket, name: &str, data: &Bytes) {
        let key = Key::plain(name.to_owned());
        let upload = moment(|m| self.site.put(bucket, key, Bytes::new(), number(), m)).expect("it begins");
        let upload = self.ok(upload.write(data.clone())).await;
        let written = self.ok(upload.finish(self.finish(md5(data)))).await;
        assert!(!written.overtaken, "{name}");
    }

    async fn get(&self, bucket: &SharedBucket, name: &str) -> Result<Bytes, Error> {
        let opened =
            self.run(moment(|m| self.site.open(bucket, &Key::plain(name.to_owned()), 4 << 20, m))).await?;
        self.run(opened.read(0, opened.size())).await
    }

    async fn remove(&self, bucket: &SharedBucket, name: &str) -> Result<(), Error> {
        self.run(moment(|m| self.site.remove(bucket, Key::plain(name.to_owned()), m))).await
    }

    async fn names(&self, bucket: &SharedBucket) -> Vec<String> {
        let listing = Listing { max: 1000, ..Listing::default() };
        let listed = self.ok(self.site.list(bucket, listing)).await;
        listed.objects.iter().map(|(key, _)| String::from_utf8_lossy(&key.name).into_owned()).collect()
    }

    /// An object of parts.
    async fn put_parts(&self, bucket: &SharedBucket, name: &'static str, parts: &[Bytes]) {
        let attrs = self.finish(Bytes::new()).attrs;
        let placement = bucket.placement.clone();
        let begin = moment(|m| self.site.begin_upload(bucket, name.into(), placement, attrs, m));
        let upload = self.ok(begin).await;
        let mut known = Vec::new();
        for (n, data) in (1u32..).zip(parts) {
            let begin = moment(|m| self.site.put_part(bucket, upload.clone(), n, m));
            let part = self.ok(begin).await;
            let part = self.ok(part.write(data.clone())).await;
            let acl = AccessControl::private(self.owner.clone()).to_bytes();
            let finish = FinishPart {
                attrs: [(Bytes::from_static(b"user.rgw.acl"), acl)].into(),
                etag: md5(data),
                accounted_size: None,
                compression: Compression::default(),
                checksum: None,
                now: now(),
            };
            known.push((n, self.ok(part.finish(finish)).await.etag));
        }
        let (condition, of_parts) = (Condition::Any, None);
        let complete =
            Complete { parts: known, etag: whole_etag, condition, of_parts, number: number(), now: now() };
        self.ok(moment(|m| self.site.complete_upload(bucket, upload, complete, m))).await;
    }
}

async fn core(server: &Server) -> Core {
    let cluster = rados::Cluster::connect(server.config()).await.expect("the cluster lets us in");
    let instance = cluster.global_id();
    let performer = Performer::new(cluster, &Limits::default());
    let start = Start { zone: "default".into(), zonegroup: "default".into(), instance };
    let site = performer.run(moment(|m| Site::start(start, m))).await.expect("a zone");
    let owner = Owner { id: UserId::plain("u"), display_name: "A user".into() };
    Core { performer, site, owner }
}

async fn make_user(core: &Core) {
    let mut info =
        UserInfo { id: core.owner.id.clone(), display_name: "A user".into(), ..UserInfo::default() };
    info.email = "U@example.com".into();
    info.add_key("KEYKEYKEY".into(), "secretsecret".into(), Bytes::new()).expect("a key");
    core.ok(moment(|m| core.site.create_user(info.clone(), m))).await;
    let again = core.run(moment(|m| core.site.create_user(info, m))).await;
    assert_eq!(again.err(), Some(Error::UserExists));
}

/// Names and contents of what the core writes.
fn written() -> Vec<(&'static str, Bytes)> {
    vec![
        ("_under", bytes(5, 1)),
        ("empty", Bytes::new()),
        ("größe/a b+c%2F", bytes(300, 2)),
        ("large", bytes(9 * MIB + 3, 3)),
        ("small", Bytes::from_static(b"hello")),
    ]
}

fn admin_agrees(server: &Server) {
    let user = server.admin("user info --uid=u");
    assert_eq!(user["keys"], json!([{"user": "u", "access_key": "KEYKEYKEY", "secret_key": "secretsecret"}]));
    assert_eq!(user["email"], "U@example.com");
    assert_eq!(server.admin("bucket list --uid=u"), json!(["b"]));
    let names: Vec<Value> = server
        .admin("bucket list --bucket=b")
        .as_array()
        .expect("a list")
        .iter()
        .map(|e| e["name"].clone())
        .collect();
    // As the index has them.
    assert_eq!(names, ["__under", "copy", "empty", "größe/a b+c%2F", "large", "parts", "small"]);
    let stats = server.admin("bucket stats --bucket=b");
    let size = 5 + 300 + 2 * (9 * MIB + 3) + 5 + 6 * MIB;
    assert_eq!(
        (&stats["owner"], &stats["usage"]["rgw.main"]["num_objects"]),
        (&json!("u"), &json!(7)),
        "{stats}"
    );
    assert_eq!(stats["usage"]["rgw.main"]["size"], size, "{stats}");
    let check = server.admin("bucket check --bucket=b");
    let wrong = |value: &Value| !(value.is_null() || *value == json!([]));
    assert!(!wrong(&check["invalid_multipart_entries"]), "{check}");
    let stat = server.admin("object stat --bucket=b --object=large");
    assert_eq!(
        (&stat["size"], &stat["manifest"]["head_size"]),
        (&json!(9 * MIB + 3), &json!(4 * MIB)),
        "{stat}"
    );
}

async fn core_fills_a_bucket(core: &Core) -> SharedBucket {
    let bucket = core.make_bucket("b").await.expect("a bucket");
    assert_eq!(core.make_bucket("b").await.err(), Some(Error::BucketExists));
    for (name, data) in written() {
        core.put(&bucket, name, &data).await;
        // Once more over itself: the tail that was there is garbage now.
        core.put(&bucket, name, &data).await;
    }
    let from = core.ok(moment(|m| core.site.open(&bucket, &Key::plain("large"), 0, m))).await;
    let finish = Finish { attrs: from.head.attrs.clone(), ..core.finish(Bytes::new()) };
    let to = CopyTo {
        seal: None,
        bucket: bucket.clone(),
        key: Key::plain("copy"),
        storage_class: Bytes::new(),
        finish,
        number: number(),
    };
    core.ok(moment(|m| core.site.copy(from, to, m))).await;
    core.put_parts(&bucket, "parts", &[bytes(5 * MIB, 4), bytes(MIB, 5)]).await;
    core.put(&bucket, "gone", &bytes(5 * MIB, 6)).await;
    core.remove(&bucket, "gone").await.expect("it is removed");
    assert_eq!(core.get(&bucket, "gone").await, Err(Error::NoSuchKey));
    assert_eq!(core.remove(&bucket, "gone").await, Err(Error::NoSuchKey));
    bucket
}

async fn core_reads(core: &Core, bucket: &SharedBucket) {
    for (name, data) in written() {
        assert!(core.get(bucket, name).await == Ok(data), "{name}");
    }
    assert!(core.get(bucket, "copy").await == Ok(bytes(9 * MIB + 3, 3)));
    let parts = [bytes(5 * MIB, 4), bytes(MIB, 5)].concat();
    assert!(core.get(bucket, "parts").await == Ok(parts.into()));
}

/// What the peer is to find: names, sizes, sums and etags.
async fn expectations(core: &Core, bucket: &SharedBucket) -> Value {
    let mut all = serde_json::Map::new();
    for name in core.names(bucket).await {
        let data = core.get(bucket, &name).await.expect("it is there");
        let head = core.ok(moment(|m| core.site.open(bucket, &Key::plain(name.clone()), 0, m))).await.head;
        let (sum, etag) = (md5(&data), head.etag());
        let [sum, etag] = [sum, etag].map(|text| String::from_utf8_lossy(&text).into_owned());
        all.insert(name, json!({"size": data.len(), "md5": sum, "etag": etag}));
    }
    all.into()
}

/// What the stock gateway wrote and changed is what the core reads, and the other way round.
async fn side_by_side(core: &Core, server: &Server, bucket: &SharedBucket) {
    let stock = Stock::start(server);
    let found = stock.python("reads", &expectations(core, bucket).await);
    assert_eq!(found, json!("equal"));

    // The peer writes over what the core wrote, removes some of it, and makes its own.
    let theirs = stock.python("writes", &Value::Null);
    for (name, want) in theirs.as_object().expect("objects") {
        let data = core.get(bucket, name).await.expect("the peer wrote it");
        assert_eq!(json!(String::from_utf8_lossy(&md5(&data))), want["md5"], "{name}");
        let head = core.ok(moment(|m| core.site.open(bucket, &Key::plain(name.clone()), 0, m))).await.head;
        assert_eq!(json!(String::from_utf8_lossy(&head.etag())), want["etag"], "{name}");
    }
    let listed = core.names(bucket).await;
    let mut names: Vec<&str> = theirs.as_object().expect("objects").keys().map(String::as_str).collect();
    names.sort_unstable();
    assert_eq!(listed, names);

    // The core writes over what the peer wrote, and removes the rest.
    for name in &names {
        core.put(bucket, name, &bytes(MIB, 7)).await;
    }
    assert_eq!(stock.python("reads", &expectations(core, bucket).await), json!("equal"));
    for name in names {
        core.remove(bucket, name).await.expect("it is removed");
    }
    assert_eq!(stock.python("reads", &json!({})), json!("equal"));
    let peers = core.bucket("peers").await;
    assert_eq!(core.names(&peers).await, ["theirs"]);
}

async fn everything(server: &Server) {
    let core = core(server).await;
    make_user(&core).await;
    let bucket = core_fills_a_bucket(&core).await;
    core_reads(&core, &bucket).await;
    admin_agrees(server);
    let garbage = server.admin("gc list --include-all");
    assert!(garbage.as_array().is_some_and(|chains| chains.len() >= 2), "{garbage}");
    if server.has_stock() {
        side_by_side(&core, server, &bucket).await;
    }
    let state = core.ok(core.site.bucket(&Bytes::new(), &"b".into())).await;
    let left = core.run(core.site.remove_bucket(state, now())).await;
    assert_eq!(left.is_ok(), server.has_stock(), "{left:?}");
    server.admin_line("gc process --include-all");
    assert_eq!(server.admin("gc list --include-all"), json!([]));
}

#[test]
fn the_core_shares_its_pools_with_cephs_gateway() {
    if !setup::installed("radosgw-admin") {
        return;
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let server = Server::start();
    runtime.expect("a runtime").block_on(everything(&server));
}

/// Many at once, on one bucket.
#[test]
fn plans_go_on_beside_each_other_and_end() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let server = Server::start();
    runtime.expect("a runtime").block_on(async {
        let core = Arc::new(core(&server).await);
        make_user(&core).await;
        let bucket = core.make_bucket("b").await.expect("a bucket");
        let tasks: Vec<_> = (0..64u8)
            .map(|n| {
                let (core, bucket) = (core.clone(), bucket.clone());
                tokio::spawn(async move { core.put(&bucket, &format!("o{n:02}"), &bytes(5000, n)).await })
            })
            .collect();
        for task in tasks {
            task.await.expect("it ends");
        }
        assert_eq!(core.names(&bucket).await.len(), 64);
        // Who goes before a plan's end leaves it whole.
        let key = Key::plain("left");
        let upload = moment(|m| core.site.put(&bucket, key, Bytes::new(), number(), m)).expect("it begins");
        let upload = core.ok(upload.write(bytes(6 * MIB, 1))).await;
        let going = core.performer.run(upload.finish(core.finish(md5(&bytes(6 * MIB, 1)))));
        let gone = tokio::time::timeout(std::time::Duration::from_millis(1), going).await;
        let begin = std::time::Instant::now();
        while gone.is_err() && core.get(&bucket, "left").await.is_err() {
            assert!(begin.elapsed().as_secs() < 60, "it never came about");
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
        assert!(core.get(&bucket, "left").await == Ok(bytes(6 * MIB, 1)));
    });
}
