//! Versions in a cluster in memory: as radosgw writes them, beside a naive bucket, and with gateways that
//! die.

use std::collections::BTreeMap;

use codec::Decode;
use rgw::{AccessControl, Bucket, Layout, Manifest, Owner, UserId, Versioning};
use serde_json::Value;
use types::{Entropy, SeededEntropy};

use super::tests::{DATA, MIB, collect_garbage, copy_to, finish, garbage_of, ramp, stats, step, with_queues};
use super::*;
use crate::cluster::{Cluster, NOW, run, site};
use crate::recorded::{Told, asked, bytes, ops, requests, session};
use crate::system::Attrs;
use crate::{Moment, NewBucket, Plan, Request};

pub(crate) fn owner() -> Owner {
    Owner { id: UserId::plain("recorded"), display_name: "R".into() }
}

pub(crate) fn remover() -> Remover {
    Remover { owner: owner(), ..Remover::default() }
}

pub(crate) fn with_flags(b: &SharedBucket, flags: u32) -> SharedBucket {
    Arc::new(BucketInfo { flags: Versioning(flags), ..BucketInfo::clone(b) })
}

pub(crate) const ENABLED: u32 = Versioning::VERSIONED;
pub(crate) const SUSPENDED: u32 = Versioning::VERSIONED | Versioning::VERSIONS_SUSPENDED;

/// A bucket that keeps versions.
pub(crate) fn bucket(c: &mut Cluster) -> SharedBucket {
    with_queues(c);
    let new = NewBucket {
        name: "b".into(),
        acl: AccessControl::private(owner()),
        placement: PlacementRule::default(),
        flags: Versioning(ENABLED),
        number: 1,
        max_buckets: None,
        attrs: <_>::default(),
    };
    Arc::new(run(c, |moment| site().create_bucket(new, moment)).unwrap())
}

pub(crate) fn put(c: &mut Cluster, b: &SharedBucket, key: &str, data: &[u8]) -> Result<Bytes, Error> {
    let (number, key) = (c.done.len() as u64, Key::plain(key.as_bytes().to_vec()));
    let data = Bytes::copy_from_slice(data);
    let written = run(c, |moment| {
        let upload = site().put(b, key, Bytes::new(), number, moment).unwrap();
        upload.write(data).and_then(|upload| upload.finish(finish(Condition::Any)))
    });
    written.map(|written| written.version)
}

pub(crate) fn version(key: &str, id: &Bytes) -> Key {
    Key { instance: id.clone(), ..Key::plain(key.as_bytes().to_vec()) }
}

pub(crate) fn get(c: &mut Cluster, b: &SharedBucket, key: Key) -> Result<Bytes, Error> {
    let opened = run(c, |m| site().open(b, &key, 1024, m))?;
    opened.read(0, u64::MAX).run(c)
}

pub(crate) fn remove(c: &mut Cluster, b: &SharedBucket, key: Key) -> Result<Removed, Error> {
    run(c, |moment| site().remove_version(b, key, &remover(), moment))
}

/// All versions, page by page: name, id, whether it is the latest, whether it is a delete marker.
pub(crate) fn versions(c: &mut Cluster, b: &SharedBucket, max: usize) -> Vec<(String, Bytes, bool, bool)> {
    let mut listing = Listing { max, versions: true, ..Listing::default() };
    let mut all = Vec::new();
    loop {
        let page = site().list(b, listing.clone()).run(c).unwrap();
        assert!(page.versions.len() <= max && page.objects.is_empty());
        all.extend(page.versions.into_iter().map(|v| {
            (String::from_utf8(v.key.name.to_vec()).unwrap(), v.key.instance, v.is_latest, v.is_marker)
        }));
        let Some(next) = page.next else { return all };
        (listing.after, listing.after_version) = (next, page.next_version);
    }
}

pub(crate) fn ids(c: &mut Cluster, b: &SharedBucket, key: &str) -> Vec<Bytes> {
    versions(c, b, 3).into_iter().filter(|(name, ..)| name == key).map(|(_, id, ..)| id).collect()
}

/// Letters that a request of radosgw's made up, as our entropy gives them.
fn told(texts: &[(&[u8], &[u8])]) -> Told {
    let place = |(table, text): &(&[u8], &[u8])| -> Vec<u8> {
        text.iter().map(|b| table.iter().position(|l| l == b).unwrap() as u8).collect()
    };
    Told(texts.iter().flat_map(place).collect())
}

const ANY: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
const IDS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-.";
const LOWER: &[u8] = b"0123456789abcdefghijklmnopqrstuvwxyz";

/// The attribute that a recorded request sets.
fn set_by(ops: &[Value], name: &[u8]) -> Option<Bytes> {
    ops.iter().find(|op| op[0] == "set_xattr" && bytes(&op[1]) == name).map(|op| bytes(&op[2]))
}

/// The letters of the change that a recorded request begins.
fn begun_by(ops: &[Value]) -> Bytes {
    let name = |op: &Value| Some(bytes(&op[1])).filter(|name| name.starts_with(b"user.rgw.olh.pending."));
    let name = ops.iter().filter(|op| op[0] == "set_xattr").find_map(name).unwrap();
    name.slice(b"user.rgw.olh.pending.".len() + 16..)
}

/// Recorded times of changes are those of the session; the times in their values are `NOW` in whole seconds.
fn at_our_time(ops: &[Value]) -> Vec<Value> {
    let pending: String = b"user.rgw.olh.pending.".iter().map(|b| format!("{b:02x}")).collect();
    let ours: String = format!("{:016x}", WHOLE.0.sec).bytes().map(|b| format!("{b:02x}")).collect();
    let text = |text: &str| match text.strip_prefix(&pending) {
        Some(rest) => format!("{pending}{ours}{}", &rest[32..]),
        None => text.to_owned(),
    };
    let one = |op: &Value| {
        Value::Array(
            op.as_array().unwrap().iter().map(|v| v.as_str().map_or(v.clone(), |t| text(t).into())).collect(),
        )
    };
    ops.iter().map(one).collect()
}

const WHOLE: RealTime = RealTime(types::Utime { sec: 1_700_000_000, nsec: 0 });
const PLACE: &str = "dc5339fc-692a-4314-a86f-9b4193102a07.6232.2_";

/// The recorded session in a cluster in memory.
struct Session {
    c: Cluster,
    bucket: SharedBucket,
}

impl Session {
    fn new() -> Self {
        let id: Bytes = "dc5339fc-692a-4314-a86f-9b4193102a07.6232.2".into();
        let bucket = Arc::new(BucketInfo {
            bucket: Bucket { name: "versions".into(), marker: id.clone(), id, ..Bucket::default() },
            placement: PlacementRule::named("default-placement"),
            layout: Layout::of_shards(11),
            ..BucketInfo::default()
        });
        let mut c = Cluster::default();
        for shard in session().index_objects(&bucket).unwrap() {
            let init = classes::client::Nothing;
            Plan::ask(Request::new(shard).call(&classes::client::index::INIT, &init)).run(&mut c).unwrap();
        }
        Self { c, bucket }
    }

    /// Writes what a recorded request wrote; `begins` is the request that begins the change of the name.
    fn put(&mut self, name: &'static str, flags: u32, want: &[Value], begins: Option<&[Value]>) {
        let site = Site { instance: 6230, ..session() };
        let mut attrs: Attrs =
            want.iter().filter(|op| op[0] == "set_xattr").map(|op| (bytes(&op[1]), bytes(&op[2]))).collect();
        let number = String::from_utf8(text(&attrs[attr::ID_TAG]).to_vec()).unwrap();
        let number: u64 = number.rsplit('.').next().unwrap().parse().unwrap();
        let manifest = Manifest::from_bytes(attrs[attr::MANIFEST].clone()).unwrap();
        attrs.retain(|name, _| {
            ![attr::ID_TAG, attr::TAIL_TAG, attr::MANIFEST, attr::SOURCE_ZONE].contains(&&name[..])
        });
        attrs.retain(|name, _| !name.starts_with(b"user.rgw.olh."));
        let id = manifest.object.key.instance.clone();
        let mut letters = vec![(IDS, &id[..]), (ANY, &manifest.prefix[1..32])];
        let begun = begins.map(|ops| {
            let or_any = |name: &[u8]| set_by(ops, name).unwrap_or_else(|| Bytes::from_static(&[b'a'; 32]));
            (begun_by(ops), or_any(attr::ID_TAG), or_any(b"user.rgw.olh.idtag"))
        });
        if let Some((op, id, name)) = &begun {
            letters.extend([(LOWER, &op[..]), (LOWER, &id[..]), (LOWER, &name[..]), (ANY, &[b'A'; 31][..])]);
        } else if flags & ENABLED != 0 {
            letters.extend([(LOWER, &[b'a'; 80][..]), (ANY, &[b'A'; 31][..])]);
        }
        let mut entropy = told(&letters);
        let mut moment = Moment { now: WHOLE, entropy: &mut entropy };
        let b = with_flags(&self.bucket, flags);
        let upload = site.put(&b, Key::plain(name), Bytes::new(), number, &mut moment).unwrap();
        let data = want.iter().find(|op| op[0] == "write_full").map(|op| bytes(&op[1])).unwrap();
        let finish = Finish { attrs, accounted_size: None, condition: Condition::Any, now: WHOLE };
        upload.write(data).and_then(|upload| upload.finish(finish)).run(&mut self.c).unwrap();
        assert!(entropy.0.is_empty());
    }

    fn remove(&mut self, key: Key, flags: u32, begins: &[Value], marker: Option<&[u8]>) {
        let op = begun_by(begins);
        let mut letters: Vec<(&[u8], &[u8])> =
            vec![(LOWER, &op[..]), (LOWER, &[b'a'; 64][..]), (ANY, &[b'A'; 31][..])];
        letters.extend(marker.map(|id| (IDS, id)));
        let mut entropy = told(&letters);
        let mut moment = Moment { now: WHOLE, entropy: &mut entropy };
        let b = with_flags(&self.bucket, flags);
        let site = Site { instance: 6230, ..session() };
        site.remove_version(&b, key, &remover(), &mut moment).run(&mut self.c).unwrap();
    }
}

/// The id in the name of a version's object.
fn id_of(oid: &str) -> Bytes {
    oid.split(':').nth(1).unwrap().as_bytes()[..31].to_vec().into()
}

#[test]
fn versions_are_written_and_removed_as_radosgw_does() {
    let mut s = Session::new();
    let name = format!("{PLACE}k");
    let recorded = requests(&name);
    let ids = [
        "eBYXeDa.zsw74lOKAxFqJNe1Y2TkTS3",
        "1JnbDtnC0ewQtxFv5w045NVXdAfF-ET",
        "lgyB1zNVBRhaIaOwF3NZgLdLaFbxfSA",
    ];
    for (n, id) in ids.iter().enumerate() {
        let want = &requests(&format!("{PLACE}_:{id}_k"))[0];
        s.put("k", ENABLED, want, Some(&recorded[2 * n]));
        assert_eq!(ops(asked(&s.c.done, &format!("{PLACE}_:{id}_k"))[0]), *want);
    }
    let key = |id: &str| version("k", &Bytes::copy_from_slice(id.as_bytes()));
    s.remove(key(""), ENABLED, &recorded[6], Some(b"g4S38v9VV0jpyClOo6sTs4WAJdWbia4"));
    for (n, id) in [(8, ids[1]), (10, "g4S38v9VV0jpyClOo6sTs4WAJdWbia4"), (12, ids[2]), (14, ids[0])] {
        s.remove(key(id), ENABLED, &recorded[n], None);
    }
    let got: Vec<Vec<Value>> = asked(&s.c.done, &name).into_iter().map(ops).collect();
    let want: Vec<Vec<Value>> = recorded.iter().map(|ops| at_our_time(ops)).collect();
    assert_eq!(got.len(), want.len());
    for (n, (got, want)) in got.iter().zip(&want).enumerate() {
        assert_eq!(got, want, "{n}");
    }
    assert!(s.c.get(DATA, &name).is_none());
}

#[test]
fn an_object_from_before_becomes_a_version_as_in_radosgw() {
    let mut s = Session::new();
    let name = format!("{PLACE}old");
    let recorded = requests(&name);
    s.put("old", 0, &recorded[0], None);
    let with_id = format!("{PLACE}_:SiL6bISwqL3.lSzwDuEfXvFgJqRZmCu_old");
    s.put("old", ENABLED, &requests(&with_id)[0], Some(&recorded[1]));
    // Versions are suspended; radosgw first tries whether there is nothing.
    s.put("old", SUSPENDED, &recorded[4], Some(&recorded[5]));
    s.remove(version("old", &"null".into()), SUSPENDED, &recorded[7], None);
    s.remove(version("old", &id_of(&with_id)), SUSPENDED, &recorded[10], None);
    let want = recorded.iter().enumerate().filter(|(n, _)| *n != 3).map(|(_, ops)| at_our_time(ops));
    let want: Vec<Vec<Value>> = want.collect();
    let got: Vec<Vec<Value>> = asked(&s.c.done, &name).into_iter().map(ops).collect();
    for (n, (got, want)) in got.iter().zip(&want).enumerate() {
        assert_eq!(got, want, "{n}");
    }
    assert_eq!(got.len(), want.len());
    assert!(s.c.get(DATA, &name).is_none());
}

#[test]
fn each_version_has_its_bytes_until_it_is_removed() {
    let mut c = Cluster::default();
    let b = bucket(&mut c);
    let datas = [ramp(5 * MIB), b"small".to_vec(), ramp(9 * MIB)];
    let ids: Vec<Bytes> = datas.iter().map(|data| put(&mut c, &b, "k", data).unwrap()).collect();
    for (id, data) in ids.iter().zip(&datas) {
        assert!(get(&mut c, &b, version("k", id)).unwrap() == *data);
    }
    assert!(get(&mut c, &b, Key::plain("k")).unwrap() == datas[2]);
    assert_eq!(get(&mut c, &b, version("k", &"null".into())), Err(Error::NoSuchKey));
    let marker = remove(&mut c, &b, Key::plain("k")).unwrap();
    assert!(marker.is_marker && !ids.contains(&marker.version));
    assert_eq!(get(&mut c, &b, Key::plain("k")), Err(Error::NoSuchKey));
    assert!(get(&mut c, &b, version("k", &ids[2])).unwrap() == datas[2]);
    let seen: Vec<_> =
        versions(&mut c, &b, 2).into_iter().map(|(_, id, latest, is)| (id, latest, is)).collect();
    let shown = |n: usize, latest| (ids[n].clone(), latest, false);
    let want = [(marker.version.clone(), true, true), shown(2, false), shown(1, false), shown(0, false)];
    assert_eq!(seen, want);
    assert_eq!(super::tests::list(&mut c, &b), Vec::<String>::new());
    // Without its marker it is there again.
    let gone = remove(&mut c, &b, version("k", &marker.version)).unwrap();
    assert_eq!(gone, marker);
    assert!(get(&mut c, &b, Key::plain("k")).unwrap() == datas[2]);
    assert_eq!(super::tests::list(&mut c, &b), ["k"]);
    assert_eq!(remove(&mut c, &b, version("k", &marker.version)), Err(Error::NoSuchKey));
    for id in [2, 0, 1] {
        assert!(!remove(&mut c, &b, version("k", &ids[id])).unwrap().is_marker);
    }
    assert_eq!((get(&mut c, &b, Key::plain("k")), versions(&mut c, &b, 9)), (Err(Error::NoSuchKey), vec![]));
    assert_eq!(garbage_of(&mut c).len(), 3);
    collect_garbage(&mut c);
    assert_eq!((c.names(DATA), stats(&mut c, &b)), (Vec::new(), (0, 0)));
}

#[test]
fn the_version_without_an_id_gives_way_to_the_next_one() {
    let mut c = Cluster::default();
    let enabled = bucket(&mut c);
    let (plain, suspended) = (with_flags(&enabled, 0), with_flags(&enabled, SUSPENDED));
    let before = ramp(5 * MIB);
    assert_eq!(put(&mut c, &plain, "k", &before).unwrap(), Bytes::new());
    let id = put(&mut c, &enabled, "k", b"with one").unwrap();
    let null = || version("k", &"null".into());
    assert!(get(&mut c, &enabled, null()).unwrap() == before);
    assert_eq!(ids(&mut c, &enabled, "k"), [id.clone(), "null".into()]);
    assert_eq!(put(&mut c, &suspended, "k", b"suspended").unwrap(), "null");
    assert_eq!(get(&mut c, &suspended, Key::plain("k")).unwrap(), "suspended");
    assert_eq!(ids(&mut c, &suspended, "k"), [Bytes::from("null"), id.clone()]);
    collect_garbage(&mut c);
    assert_eq!(get(&mut c, &suspended, null()).unwrap(), "suspended");
    // A delete marker without an id takes its place, and goes with the next version without one.
    let removed = remove(&mut c, &suspended, Key::plain("k")).unwrap();
    assert_eq!(removed, Removed { version: "null".into(), is_marker: true });
    assert_eq!(get(&mut c, &suspended, Key::plain("k")), Err(Error::NoSuchKey));
    assert_eq!(get(&mut c, &suspended, null()), Err(Error::NoSuchKey));
    assert_eq!(get(&mut c, &suspended, version("k", &id)).unwrap(), "with one");
    put(&mut c, &suspended, "k", b"again").unwrap();
    assert_eq!(get(&mut c, &suspended, Key::plain("k")).unwrap(), "again");
    assert_eq!(ids(&mut c, &suspended, "k"), [Bytes::from("null"), id.clone()]);
    remove(&mut c, &suspended, null()).unwrap();
    assert_eq!(get(&mut c, &suspended, Key::plain("k")).unwrap(), "with one");
    remove(&mut c, &suspended, version("k", &id)).unwrap();
    collect_garbage(&mut c);
    assert_eq!((c.names(DATA), versions(&mut c, &suspended, 9)), (Vec::new(), Vec::new()));
}

#[test]
fn an_older_version_is_copied_in_front_of_all() {
    let mut c = Cluster::default();
    let b = bucket(&mut c);
    let data = ramp(6 * MIB);
    let old = put(&mut c, &b, "k", &data).unwrap();
    put(&mut c, &b, "k", b"newer").unwrap();
    let opened = run(&mut c, |m| site().open(&b, &version("k", &old), 0, m)).unwrap();
    let to = copy_to(&b, Key::plain("k"), 70);
    let written = run(&mut c, |moment| site().copy(opened, to, moment)).unwrap();
    assert!(written.version != old && written.version.len() == 31);
    remove(&mut c, &b, version("k", &old)).unwrap();
    collect_garbage(&mut c);
    assert!(get(&mut c, &b, Key::plain("k")).unwrap() == data);
    assert_eq!(ids(&mut c, &b, "k").len(), 2);
}

#[test]
fn attributes_are_those_of_one_version() {
    let mut c = Cluster::default();
    let b = bucket(&mut c);
    let old = put(&mut c, &b, "k", b"old").unwrap();
    put(&mut c, &b, "k", b"new").unwrap();
    let head = run(&mut c, |m| site().shown(&b, &version("k", &old), 0, m)).unwrap().unwrap();
    let changes = vec![(Bytes::from("user.rgw.x-amz-tagging"), Some(Bytes::from("tags")))];
    run(&mut c, |moment| site().set_attrs(&b, &Key::plain("k"), head, changes, moment)).unwrap();
    let tags = |c: &mut Cluster, key: Key| {
        let head = run(c, |m| site().shown(&b, &key, 0, m)).unwrap().unwrap();
        head.attrs.get(&b"user.rgw.x-amz-tagging"[..]).cloned()
    };
    assert_eq!(
        (tags(&mut c, version("k", &old)), tags(&mut c, Key::plain("k"))),
        (Some("tags".into()), None)
    );
    assert_eq!(ids(&mut c, &b, "k").len(), 2);
}

#[test]
fn conditions_are_of_the_version_that_is_shown() {
    let mut c = Cluster::default();
    let b = bucket(&mut c);
    let put_if = |c: &mut Cluster, condition| {
        let number = c.done.len() as u64;
        run(c, |moment| {
            let upload = site().put(&b, Key::plain("k"), Bytes::new(), number, moment).unwrap();
            upload.write("data".into()).and_then(|upload| upload.finish(finish(condition)))
        })
    };
    assert_eq!(put_if(&mut c, Condition::Exists(None)), Err(Error::NoSuchKey));
    put_if(&mut c, Condition::Missing).unwrap();
    assert_eq!(put_if(&mut c, Condition::Missing), Err(Error::PreconditionFailed));
    put_if(&mut c, Condition::Exists(Some("etag".into()))).unwrap();
    remove(&mut c, &b, Key::plain("k")).unwrap();
    put_if(&mut c, Condition::Missing).unwrap();
    assert_eq!(ids(&mut c, &b, "k").len(), 4);
}

/// Wherever a gateway dies, what was acknowledged is there, and the next one goes on.
fn remove_if(c: &mut Cluster, b: &SharedBucket, key: Key, wanted: Wanted) -> Result<Removed, Error> {
    let by = Remover { wanted, ..remover() };
    run(c, |moment| site().remove_version(b, key, &by, moment))
}

/// Others than an object of five bytes, with the tag that tests give, has; and what it has.
fn wants() -> [(Wanted, bool); 6] {
    let (tag, now) = (|text: &'static str| Some(text.into()), u64::from(NOW.0.sec));
    [
        (Wanted { etag: tag("other"), ..Wanted::default() }, false),
        (Wanted { size: Some(4), ..Wanted::default() }, false),
        (Wanted { modified_s: Some(now + 1), ..Wanted::default() }, false),
        (Wanted { etag: tag("etag"), size: Some(4), ..Wanted::default() }, false),
        (Wanted { etag: tag("etag"), size: Some(5), modified_s: Some(now) }, true),
        (Wanted::default(), true),
    ]
}

#[test]
fn what_is_removed_is_what_is_wanted() {
    for (wanted, good) in wants() {
        let mut c = Cluster::default();
        let b = bucket(&mut c);
        let plain = || Key::plain("k");
        assert!(remove_if(&mut c, &b, version("k", &"none".into()), wanted.clone()).is_err());
        if !wanted.is_anything() {
            let gone = remove_if(&mut c, &b, plain(), wanted.clone());
            assert_eq!(gone, Err(Error::NoSuchKey), "no delete marker is made");
        }
        let id = put(&mut c, &b, "k", b"bytes").unwrap();
        for key in [plain(), version("k", &id)] {
            let removed = remove_if(&mut c, &b, key.clone(), wanted.clone());
            let failed = Some(Error::PreconditionFailed).filter(|_| !good);
            assert_eq!(removed.err(), failed, "{wanted:?} {key:?}");
        }
        // Without versions it is the same, and what is not there is as it is wanted.
        let mut c = Cluster::default();
        let b = super::tests::bucket(&mut c);
        assert_eq!(remove_if(&mut c, &b, plain(), wanted.clone()), Err(Error::NoSuchKey));
        super::tests::put(&mut c, &b, "k", b"bytes").unwrap();
        let removed = remove_if(&mut c, &b, plain(), wanted.clone());
        assert_eq!(removed.is_ok(), good, "{wanted:?}");
        assert_eq!(super::tests::list(&mut c, &b).is_empty(), good);
    }
}

#[test]
fn a_delete_marker_that_is_shown_is_told() {
    let mut c = Cluster::default();
    let b = bucket(&mut c);
    put(&mut c, &b, "k", b"bytes").unwrap();
    remove(&mut c, &b, Key::plain("k")).unwrap();
    let marker = site().marker_shown(&b, &Key::plain("k")).run(&mut c).unwrap();
    assert!(marker.is_some_and(|(id, put)| !id.is_empty() && put == NOW));
    assert_eq!(site().marker_shown(&b, &Key::plain("other")).run(&mut c), Ok(None));
}

#[test]
fn an_upload_is_completed_where_its_condition_holds() {
    for b in [false, true] {
        let mut c = Cluster::default();
        let b = if b { bucket(&mut c) } else { super::tests::bucket(&mut c) };
        let upload = super::upload_tests::begin(&mut c, &b, "k");
        super::upload_tests::part(&mut c, &b, &upload, 1, b"part", "a").unwrap();
        let complete = |c: &mut Cluster, condition| {
            let parts = vec![(1, "a".into())];
            let complete = Complete {
                parts,
                etag: super::upload_tests::joined,
                condition,
                of_parts: None,
                number: 900,
                now: NOW,
            };
            let upload = upload.clone();
            run(c, |moment| site().complete_upload(&b, upload, complete, moment)).map(drop)
        };
        assert_eq!(complete(&mut c, Condition::Exists(None)), Err(Error::NoSuchKey));
        assert_eq!(super::tests::list(&mut c, &b), Vec::<String>::new());
        put(&mut c, &b, "k", b"bytes").unwrap();
        assert_eq!(complete(&mut c, Condition::Missing), Err(Error::PreconditionFailed));
        let other = Condition::Exists(Some("other".into()));
        assert_eq!(complete(&mut c, other), Err(Error::PreconditionFailed));
        assert_eq!(complete(&mut c, Condition::Differs("etag".into())), Err(Error::PreconditionFailed));
        assert_eq!(get(&mut c, &b, Key::plain("k")), Ok("bytes".into()));
        // The upload is there still.
        assert_eq!(complete(&mut c, Condition::Exists(Some("etag".into()))), Ok(()));
        assert_eq!(get(&mut c, &b, Key::plain("k")), Ok("part".into()));
    }
}

#[test]
fn a_gateway_may_die_between_any_two_requests() {
    let old = ramp(5 * MIB);
    for removes in [false, true] {
        for left in 0.. {
            let mut c = Cluster::default();
            let b = bucket(&mut c);
            let first = put(&mut c, &b, "k", &old).unwrap();
            c.left = Some(left);
            let done = match removes {
                false => put(&mut c, &b, "k", b"new").map(drop),
                true => remove(&mut c, &b, version("k", &first)).map(drop),
            };
            c.left = None;
            let ended = done.is_ok() && left > 20;
            collect_garbage(&mut c);
            let shown = get(&mut c, &b, Key::plain("k"));
            match (removes, done.is_ok()) {
                (false, true) => assert_eq!(shown, Ok("new".into()), "{left}"),
                (false, false) => assert!(shown.is_ok_and(|s| s == old || s == "new"), "{left}"),
                (true, true) => assert_eq!(shown, Err(Error::NoSuchKey), "{left}"),
                (true, false) => {
                    assert!(shown.map_or_else(|e| e == Error::NoSuchKey, |s| s == old), "{left}")
                }
            }
            // The next one finds a name that it can change.
            let last = put(&mut c, &b, "k", b"last").unwrap();
            assert_eq!(get(&mut c, &b, Key::plain("k")), Ok("last".into()), "{left}");
            let listed = versions(&mut c, &b, 9);
            assert_eq!(listed.first().map(|(_, id, latest, _)| (id, *latest)), Some((&last, true)), "{left}");
            for (name, id, ..) in listed {
                remove(&mut c, &b, version(&name, &id)).unwrap();
            }
            collect_garbage(&mut c);
            assert_eq!(
                (get(&mut c, &b, Key::plain("k")), versions(&mut c, &b, 9)),
                (Err(Error::NoSuchKey), vec![])
            );
            if ended {
                break;
            }
        }
    }
}

/// Two change one name at once, step by step in turn: both changes are there.
#[test]
fn two_may_change_one_name_at_once() {
    for seed in 0..200 {
        let mut c = Cluster::default();
        let b = bucket(&mut c);
        let first = put(&mut c, &b, "k", b"first").unwrap();
        let mut entropy = SeededEntropy(seed + 500);
        let mut draw = [0; 64];
        SeededEntropy(seed).fill(&mut draw);
        let moment = &mut Moment { now: NOW, entropy: &mut entropy };
        let upload = site().put(&b, Key::plain("k"), Bytes::new(), 70, moment).unwrap();
        let mut one = upload.write("second".into()).and_then(|u| u.finish(finish(Condition::Any)));
        let mut other = site().remove_version(&b, version("k", &first), &remover(), moment);
        for n in draw {
            match n % 2 {
                0 => one = step(one, &mut c),
                _ => other = step(other, &mut c),
            }
        }
        let written = one.run(&mut c).unwrap();
        other.run(&mut c).unwrap();
        assert_eq!(get(&mut c, &b, Key::plain("k")), Ok("second".into()), "{seed}");
        assert_eq!(ids(&mut c, &b, "k"), [written.version], "{seed}");
        assert_eq!(get(&mut c, &b, version("k", &first)), Err(Error::NoSuchKey), "{seed}");
    }
}

/// A version's id and its bytes; none for a delete marker. Those of a name are in the order of their making.
type Kept = (Bytes, Option<Vec<u8>>);

/// A bucket that is no more than lists.
#[test]
fn versions_are_those_of_a_naive_bucket() {
    let mut random = SeededEntropy(7);
    let mut c = Cluster::default();
    let b = bucket(&mut c);
    let mut naive: BTreeMap<String, Vec<Kept>> = BTreeMap::new();
    for n in 0..120u32 {
        let mut draw = [0; 3];
        random.fill(&mut draw);
        let name = ["a", "a/b", "_c", "b", "b.c"][usize::from(draw[0]) % 5];
        let own = naive.entry(name.to_owned()).or_default();
        match draw[1] % 4 {
            0 | 1 => {
                let data = format!("{n}").into_bytes();
                own.push((put(&mut c, &b, name, &data).unwrap(), Some(data)));
            }
            2 => match remove(&mut c, &b, Key::plain(name)) {
                Ok(removed) => own.push((removed.version, None)),
                // There is one already.
                Err(e) => {
                    assert!(e == Error::NoSuchKey && own.last().is_some_and(|(_, data)| data.is_none()))
                }
            },
            _ if own.is_empty() => {}
            _ => {
                let (id, data) = own.remove(usize::from(draw[2]) % own.len());
                let removed = remove(&mut c, &b, version(name, &id)).unwrap();
                assert_eq!((removed.version, removed.is_marker), (id, data.is_none()));
            }
        }
        let shown = own.last().and_then(|(_, data)| data.clone());
        assert_eq!(get(&mut c, &b, Key::plain(name)).ok().map(|data| data.to_vec()), shown, "{n}");
        if n % 10 != 0 {
            continue;
        }
        let want: Vec<(String, Bytes, bool, bool)> = naive
            .iter()
            .flat_map(|(name, all)| {
                all.iter()
                    .rev()
                    .enumerate()
                    .map(|(n, (id, d))| (name.clone(), id.clone(), n == 0, d.is_none()))
            })
            .collect();
        for max in [1, 4, 1000] {
            let got = versions(&mut c, &b, max);
            let mut sorted = got.clone();
            sorted.sort_by(|a, b| a.0.cmp(&b.0));
            assert_eq!(sorted, want, "{n} {max}");
        }
        let visible = naive.values().filter(|all| all.last().is_some_and(|(_, data)| data.is_some())).count();
        assert_eq!(super::tests::list(&mut c, &b).len(), visible);
    }
    for (name, id, ..) in versions(&mut c, &b, 1000) {
        remove(&mut c, &b, version(&name, &id)).unwrap();
    }
    collect_garbage(&mut c);
    assert_eq!(c.names(DATA), Vec::<String>::new());
}

fn begin(c: &mut Cluster, b: &SharedBucket) -> UploadId {
    let upload = super::upload_tests::begin(c, b, "k");
    super::upload_tests::part(c, b, &upload, 1, &ramp(5 * MIB), "a").unwrap();
    super::upload_tests::part(c, b, &upload, 2, b"end", "b").unwrap();
    upload
}

fn complete(c: &mut Cluster, b: &SharedBucket, upload: &UploadId) -> Result<Written, Error> {
    super::upload_tests::complete(c, b, upload, &[(1, "a"), (2, "b")])
}

/// Wherever a gateway dies that completes an upload, the next one makes one version of it.
#[test]
fn an_upload_becomes_one_version() {
    let whole = [ramp(5 * MIB), b"end".to_vec()].concat();
    for left in 0.. {
        let mut c = Cluster::default();
        let b = bucket(&mut c);
        let first = put(&mut c, &b, "k", b"first").unwrap();
        let upload = begin(&mut c, &b);
        c.left = Some(left);
        let done = complete(&mut c, &b, &upload);
        c.left = None;
        // The lock of who died ends.
        c.pass(700);
        collect_garbage(&mut c);
        // One that stays on the list is completed once more, and makes nothing more.
        for upload in super::upload_tests::uploads(&mut c, &b) {
            complete(&mut c, &b, &upload).unwrap();
        }
        collect_garbage(&mut c);
        assert!(get(&mut c, &b, Key::plain("k")).unwrap() == whole, "{left}");
        let all = ids(&mut c, &b, "k");
        assert_eq!((all.len(), all.last()), (2, Some(&first)), "{left}");
        assert!(super::upload_tests::uploads(&mut c, &b).is_empty(), "{left}");
        if done.is_ok() && left > 20 {
            break;
        }
    }
}

/// The name in RADOS of a version has its id in front of the key, with an underscore between them.
#[test]
fn an_id_with_an_underscore_is_no_version_of_another_key() {
    let c = &mut Cluster::default();
    let b = bucket(c);
    let id = put(c, &b, "secret_k", b"not for all").unwrap();
    put(c, &b, "k", b"for all").unwrap();
    assert_eq!(get(c, &b, version("secret_k", &id)).unwrap(), &b"not for all"[..]);
    let other: Bytes = [&id[..], b"_secret"].concat().into();
    assert_eq!(version("k", &other).oid(), version("secret_k", &id).oid());
    assert_eq!(get(c, &b, version("k", &other)), Err(Error::NoSuchKey));
    assert_eq!(run(c, |m| site().shown(&b, &version("k", &other), 0, m)).unwrap(), None);
    assert_eq!(remove(c, &b, version("k", &other)), Err(Error::NoSuchKey));
    assert_eq!(get(c, &b, version("secret_k", &id)).unwrap(), &b"not for all"[..]);
}

/// A gateway that has not heard of it would remove the version's data alone.
#[test]
fn no_version_is_removed_from_a_bucket_that_is_thought_to_have_none() {
    let c = &mut Cluster::default();
    let b = bucket(c);
    let id = put(c, &b, "k", b"first").unwrap();
    let before = with_flags(&b, 0);
    assert_eq!(remove(c, &before, version("k", &id)), Err(Error::Versioned));
    assert_eq!(get(c, &b, version("k", &id)).unwrap(), &b"first"[..]);
    assert_eq!(remove(c, &b, version("k", &id)).unwrap().version, id);
    assert!(ids(c, &b, "k").is_empty());
}

/// The name at which the change is written down is the head of the version without an id.
#[test]
fn a_version_that_goes_leaves_the_times_of_others() {
    let mut c = Cluster::default();
    let b = bucket(&mut c);
    put(&mut c, &with_flags(&b, 0), "k", b"plain").unwrap();
    let id = put(&mut c, &b, "k", b"new").unwrap();
    remove(&mut c, &b, version("k", &id)).unwrap();
    let head = site().head(&b, &Key::plain("k"), 0).run(&mut c).unwrap().unwrap();
    assert_eq!((head.modified, get(&mut c, &b, Key::plain("k"))), (NOW, Ok("plain".into())));
}
