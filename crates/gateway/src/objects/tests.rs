//! Objects in a cluster in memory: as radosgw writes them, beside a naive bucket, and with gateways that die.

use std::collections::{BTreeMap, BTreeSet};

use classes::client::{gc_queue, index};
use codec::{Decode, Encode};
use rgw::index::{Entry, Meta};
use rgw::{AccessControl, Bucket, Layout, Manifest, Owner, UserId, Versioning};
use types::{Entropy, RealTime, SeededEntropy};

use super::*;
use crate::cluster::{Cluster, NOW, run, site};
use crate::recorded::{Told, argument, asked, bytes, ops, requests, session, with};
use crate::system::Attrs;
use crate::{Moment, NewBucket, Plan, Request};

pub(super) const DATA: &str = "default.rgw.buckets.data";
pub(super) const MIB: usize = 1 << 20;

pub(crate) fn bucket(c: &mut Cluster) -> SharedBucket {
    let owner = Owner { id: UserId::plain("u"), display_name: "U".into() };
    let new = NewBucket {
        name: "b".into(),
        acl: AccessControl::private(owner),
        placement: PlacementRule::default(),
        flags: Versioning::default(),
        number: 1,
        max_buckets: None,
        attrs: <_>::default(),
    };
    Arc::new(run(c, |moment| site().create_bucket(new, moment)).unwrap())
}

pub(super) fn finish(condition: Condition) -> Finish {
    let acl = AccessControl::private(Owner { id: UserId::plain("u"), display_name: "U".into() });
    let attrs = Attrs::from([
        ("user.rgw.acl".into(), acl.to_bytes()),
        ("user.rgw.etag".into(), "etag".into()),
        ("user.rgw.content_type".into(), "text/plain\0".into()),
    ]);
    Finish { attrs, accounted_size: None, condition, now: NOW }
}

/// Where a copy goes: not encrypted, of the bucket's own class, and whatever is there.
pub(super) fn copy_to(bucket: &SharedBucket, key: Key, number: u64) -> CopyTo {
    CopyTo {
        bucket: bucket.clone(),
        key,
        storage_class: Bytes::new(),
        finish: finish(Condition::Any),
        seal: None,
        number,
    }
}

/// Writes in pieces of a size that fits no stripe.
fn put_if(
    c: &mut Cluster,
    b: &SharedBucket,
    key: &str,
    data: &[u8],
    condition: Condition,
) -> Result<Written, Error> {
    let number = c.done.len() as u64;
    let key = Key::plain(key.as_bytes().to_vec());
    let pieces: Vec<Bytes> = data.chunks(3 * MIB + 7).map(Bytes::copy_from_slice).collect();
    run(c, |moment| {
        let upload = site().put(b, key, Bytes::new(), number, moment).unwrap();
        let written = pieces
            .into_iter()
            .fold(Plan::ok(upload), |plan, piece| plan.and_then(move |upload| upload.write(piece)));
        written.and_then(move |upload| upload.finish(finish(condition)))
    })
}

pub(super) fn put(c: &mut Cluster, b: &SharedBucket, key: &str, data: &[u8]) -> Result<Written, Error> {
    put_if(c, b, key, data, Condition::Any)
}

pub(crate) fn get(c: &mut Cluster, b: &SharedBucket, key: &str) -> Result<Bytes, Error> {
    let opened = run(c, |m| site().open(b, &Key::plain(key.as_bytes().to_vec()), 1024, m))?;
    opened.read(0, u64::MAX).run(c)
}

pub(super) fn remove(c: &mut Cluster, b: &SharedBucket, key: &str) -> Result<(), Error> {
    let key = Key::plain(key.as_bytes().to_vec());
    run(c, |moment| site().remove(b, key, moment))
}

pub(super) fn names(listed: &Listed) -> Vec<String> {
    listed.objects.iter().map(|(key, _)| String::from_utf8_lossy(&key.name).into_owned()).collect()
}

pub(crate) fn list(c: &mut Cluster, b: &SharedBucket) -> Vec<String> {
    names(&site().list(b, Listing { max: 1000, ..Listing::default() }).run(c).unwrap())
}

/// A ramp of bytes that no two stripes have alike.
pub(super) fn ramp(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 31 + i / 251 + i / MIB) as u8).collect()
}

pub(super) fn stats(c: &mut Cluster, b: &SharedBucket) -> (u64, u64) {
    let stats = site().bucket_stats(b).run(c).unwrap();
    (stats.objects(), stats.bytes())
}

/// Makes queues of the objects for garbage, as gateways do when they start.
pub(super) fn with_queues(c: &mut Cluster) {
    for n in 0..32 {
        let object = RawObject::new(&site().zone.gc, format!("gc.{n}"));
        let version = rgw::ObjectVersion { version: 1, tag: Bytes::new() };
        let init = Request::new(object)
            .call(&gc_queue::INIT, &gc_queue::InitArgs { size: 1 << 20, max_deferred: 50 })
            .call(&classes::client::version::SET, &classes::client::version::VersionArgs { version });
        Plan::ask(init).run(c).unwrap();
    }
}

/// What garbage collection knows of.
fn garbage(c: &mut Cluster) -> Vec<rgw::Garbage> {
    let mut all = Vec::new();
    for n in 0..32 {
        let object = RawObject::new(&site().zone.gc, format!("gc.{n}"));
        let args = gc_queue::ListArgs { max: 100, expired_only: false, ..Default::default() };
        let reply = Plan::ask(Request::new(object).call(&gc_queue::LIST, &args)).run(c).unwrap();
        all.extend(reply.answer(0, &gc_queue::LIST).unwrap().entries);
    }
    all
}

/// Names of the objects that garbage collection knows of.
pub(super) fn garbage_of(c: &mut Cluster) -> BTreeSet<String> {
    let objects = garbage(c).into_iter().flat_map(|entry| entry.chain.objects);
    objects.map(|o| String::from_utf8_lossy(&o.name).into_owned()).collect()
}

/// Does what garbage collection does when the time of all it knows of has come.
pub(super) fn collect_garbage(c: &mut Cluster) {
    for entry in garbage(c) {
        let raw = |o: rgw::GarbageObject| RawObject::new(&rgw::Pool::new(DATA, ""), o.name);
        let objects = entry.chain.objects.into_iter().map(raw).collect();
        crate::garbage::remove_now(objects, entry.tag).run(c).unwrap();
    }
}

/// The objects that hold an object, by its head; those of none where it is not there.
pub(super) fn held_by(c: &mut Cluster, b: &SharedBucket, key: &'static str) -> Vec<String> {
    let Some(head) = site().head(b, &Key::plain(key), 0).run(c).unwrap() else { return Vec::new() };
    let tail = super::put::waste(&site(), &head);
    let mut held: Vec<String> =
        tail.iter().chain([&head.object]).map(|o| String::from_utf8_lossy(&o.oid).into_owned()).collect();
    held.sort();
    held
}

/// Performs the requests that a plan has now.
pub(crate) fn step<T>(plan: Plan<T>, c: &mut Cluster) -> Plan<T> {
    match plan {
        Plan::Ask(requests, next) => {
            next(requests.into_iter().map(|r| crate::Rados::perform(c, r)).collect())
        }
        Plan::Wait(time, next) => {
            crate::Rados::wait(c, time);
            next()
        }
        done => done,
    }
}

/// The bucket of the recorded session.
pub(super) fn recorded_bucket() -> SharedBucket {
    let id: Bytes = "dc5339fc-692a-4314-a86f-9b4193102a07.6232.1".into();
    Arc::new(BucketInfo {
        bucket: Bucket { name: "plain".into(), marker: id.clone(), id, ..Bucket::default() },
        placement: PlacementRule::named("default-placement"),
        layout: Layout::of_shards(11),
        ..BucketInfo::default()
    })
}

/// Writes an object with what a recorded request gave it.
fn put_as_recorded(c: &mut Cluster, name: &'static str, want: &[serde_json::Value], now: RealTime) {
    let mut attrs: Attrs =
        want.iter().filter(|op| op[0] == "set_xattr").map(|op| (bytes(&op[1]), bytes(&op[2]))).collect();
    let tag = attrs.remove(attr::ID_TAG).unwrap();
    for made in [attr::TAIL_TAG, attr::SOURCE_ZONE] {
        attrs.remove(made);
    }
    let manifest = Manifest::from_bytes(attrs.remove(attr::MANIFEST).unwrap()).unwrap();
    let number = String::from_utf8(text(&tag).to_vec()).unwrap();
    let number: u64 = number.rsplit('.').next().unwrap().parse().unwrap();
    let mut entropy = Told::letters(&[&manifest.prefix[1..32]]);
    let mut moment = Moment { now, entropy: &mut entropy };
    let site = Site { instance: 6230, ..session() };
    let upload = site.put(&recorded_bucket(), Key::plain(name), Bytes::new(), number, &mut moment).unwrap();
    let data = argument(want, "write_full", 1);
    let finish = Finish { attrs, accounted_size: None, condition: Condition::Any, now };
    upload.write(data).and_then(|upload| upload.finish(finish)).run(c).unwrap();
}

#[test]
fn objects_are_written_and_removed_as_radosgw_does() {
    let mut c = Cluster::default();
    let head = "dc5339fc-692a-4314-a86f-9b4193102a07.6232.1_a";
    let recorded = requests(head);
    // A new one; one in its place, for which radosgw also tries whether there is none; its end.
    let shard = session().index_object(&recorded_bucket(), b"a").unwrap();
    let index_oid = String::from_utf8(shard.oid.to_vec()).unwrap();
    let changes: Vec<_> = requests(&index_oid).into_iter().filter(|ops| ops[0][0] == "call").collect();
    // The shard has other objects, too.
    let of_a = |ops: &[serde_json::Value]| match ops.get(1).and_then(|op| op[2].as_str()) {
        Some("bucket_prepare_op") => {
            let args = index::PrepareArgs::from_bytes(argument(ops, "bucket_prepare_op", 3)).unwrap();
            args.key.name == "a"
        }
        Some("bucket_complete_op") => {
            let args = index::CompleteArgs::from_bytes(argument(ops, "bucket_complete_op", 3)).unwrap();
            args.key.name == "a"
        }
        _ => false,
    };
    let changes: Vec<_> = changes.into_iter().filter(|ops| of_a(ops)).collect();
    Plan::ask(Request::new(shard.clone()).call(&index::INIT, &classes::client::Nothing)).run(&mut c).unwrap();
    let completed = index::CompleteArgs::from_bytes(argument(&changes[1], "bucket_complete_op", 3)).unwrap();
    put_as_recorded(&mut c, "a", &recorded[0], completed.meta.mtime);
    assert_eq!(ops(asked(&c.done, head)[0]), recorded[0]);

    let replaced = index::CompleteArgs::from_bytes(argument(&changes[3], "bucket_complete_op", 3)).unwrap();
    put_as_recorded(&mut c, "a", &recorded[2], replaced.meta.mtime);
    assert_eq!(ops(asked(&c.done, head)[1]), recorded[2]);

    let removed = index::PrepareArgs::from_bytes(argument(&changes[4], "bucket_prepare_op", 3)).unwrap();
    let mut entropy = Told::letters(&[&removed.tag[1..]]);
    let mut moment = Moment { now: NOW, entropy: &mut entropy };
    session().remove(&recorded_bucket(), Key::plain("a"), &mut moment).run(&mut c).unwrap();
    assert_eq!(ops(asked(&c.done, head)[2]), recorded[3]);

    // The index hears the same, but for the numbers of pools and versions.
    let ours: Vec<_> = asked(&c.done, &index_oid)[1..].iter().map(|r| ops(r)).collect();
    assert_eq!((ours.len(), &ours[..1]), (6, &changes[..1]));
    for (got, want) in ours.iter().zip(&changes) {
        match got[1][2].as_str().unwrap() {
            "bucket_prepare_op" => assert_eq!(got, want),
            _ => {
                let complete = |ops: &[serde_json::Value]| {
                    let args =
                        index::CompleteArgs::from_bytes(argument(ops, "bucket_complete_op", 3)).unwrap();
                    index::CompleteArgs { written: <_>::default(), ..args }
                };
                assert_eq!(complete(got), complete(want));
            }
        }
    }
    assert_eq!(with(head, "create"), recorded[0]);
}

#[test]
fn what_was_written_is_read_whole_and_in_ranges() {
    let mut c = Cluster::default();
    let b = bucket(&mut c);
    with_queues(&mut c);
    for (key, len) in [
        ("empty", 0),
        ("small", 5),
        ("head", 4 * MIB),
        ("over", 4 * MIB + 1),
        ("large", 13 * MIB + 11),
        ("_odd", 9),
    ] {
        let data = ramp(len);
        put(&mut c, &b, key, &data).unwrap();
        assert!(get(&mut c, &b, key).unwrap() == data, "{key}");
        let opened = run(&mut c, |m| site().open(&b, &Key::plain(key), 100, m)).unwrap();
        assert_eq!((opened.size(), opened.head.etag()), (len as u64, "etag".into()));
        for (from, length) in
            [(0, 1), (4 * MIB - 3, 6), (len / 2, 5 * MIB), (len, 9), (len + 9, 9), (1, usize::MAX)]
        {
            let got = opened.read(from as u64, length as u64).run(&mut c).unwrap();
            let end = len.min(from.saturating_add(length));
            assert!(got == data.get(from..end).unwrap_or_default(), "{key} {from} {length}");
        }
    }
    assert_eq!(stats(&mut c, &b).0, 6);
    let tails: Vec<String> = c.names(DATA).into_iter().filter(|n| n.contains("__shadow_")).collect();
    assert_eq!(tails.len(), 1 + 3);
    // One request for a small one.
    let mut entropy = SeededEntropy(1);
    let moment = &mut Moment { now: NOW, entropy: &mut entropy };
    let opened = site().open(&b, &Key::plain("small"), 1024, moment);
    let Plan::Ask(requests, _) = opened else { panic!("nothing asked") };
    assert_eq!(requests.len(), 1);
    let opened = run(&mut c, |m| site().open(&b, &Key::plain("small"), 1024, m)).unwrap();
    assert!(matches!(opened.read(0, 5), Plan::Done(Ok(_))));
}

#[test]
fn tails_that_nobody_needs_are_collected() {
    let mut c = Cluster::default();
    let b = bucket(&mut c);
    with_queues(&mut c);
    put(&mut c, &b, "k", &ramp(9 * MIB)).unwrap();
    let tail = |c: &Cluster| -> BTreeSet<String> {
        c.names(DATA).into_iter().filter(|n| n.contains("__shadow_")).collect()
    };
    let first = tail(&c);
    put(&mut c, &b, "k", &ramp(5 * MIB)).unwrap();
    assert_eq!((first.len(), garbage_of(&mut c)), (2, first.clone()));
    // They stay for those that read them.
    assert!(first.is_subset(&tail(&c)));
    assert_eq!(stats(&mut c, &b), (1, 5 * MIB as u64));
    remove(&mut c, &b, "k").unwrap();
    assert_eq!(garbage_of(&mut c), tail(&c));
    assert_eq!((stats(&mut c, &b), get(&mut c, &b, "k").err()), ((0, 0), Some(Error::NoSuchKey)));
    assert_eq!(remove(&mut c, &b, "k"), Err(Error::NoSuchKey));
    assert_eq!(list(&mut c, &b), Vec::<String>::new());
}

#[test]
fn without_queues_garbage_goes_where_it_went_before() {
    let mut c = Cluster::default();
    let b = bucket(&mut c);
    put(&mut c, &b, "k", &ramp(5 * MIB)).unwrap();
    remove(&mut c, &b, "k").unwrap();
    let shards = c.names("default.rgw.log:gc");
    assert_eq!(shards.len(), 1);
    let omap = &c.get("default.rgw.log:gc", &shards[0]).unwrap().omap;
    assert_eq!(omap.keys().map(|k| k[0]).collect::<Vec<_>>(), [b'0', b'1']);
}

#[test]
fn conditions_hold_for_what_is_there() {
    let mut c = Cluster::default();
    let b = bucket(&mut c);
    let exists = |etag: Option<&'static str>| Condition::Exists(etag.map(Bytes::from));
    assert_eq!(put_if(&mut c, &b, "k", b"1", exists(None)), Err(Error::NoSuchKey));
    assert!(put_if(&mut c, &b, "k", b"1", Condition::Missing).is_ok());
    assert_eq!(put_if(&mut c, &b, "k", b"2", Condition::Missing), Err(Error::PreconditionFailed));
    assert_eq!(put_if(&mut c, &b, "k", b"3", exists(Some("other"))), Err(Error::PreconditionFailed));
    assert_eq!(get(&mut c, &b, "k").unwrap(), "1");
    assert!(put_if(&mut c, &b, "k", b"4", exists(Some("etag"))).is_ok());
    let differs = |etag: &'static str| Condition::Differs(etag.into());
    assert_eq!(put_if(&mut c, &b, "k", b"4", differs("etag")), Err(Error::PreconditionFailed));
    assert!(put_if(&mut c, &b, "k", b"6", differs("other")).is_ok());
    assert!(put_if(&mut c, &b, "k", b"5", exists(None)).is_ok());
    assert_eq!((get(&mut c, &b, "k").unwrap(), stats(&mut c, &b)), ("5".into(), (1, 1)));
    // Nothing is left of changes that were given up.
    for name in c.names("default.rgw.buckets.index") {
        for value in c.get("default.rgw.buckets.index", &name).unwrap().omap.values() {
            assert!(Entry::from_bytes(value.clone()).unwrap().pending.is_empty());
        }
    }
}

#[test]
fn what_cannot_be_written_is_refused() {
    let mut c = Cluster::default();
    let b = bucket(&mut c);
    let mut entropy = SeededEntropy(1);
    let mut moment = Moment { now: NOW, entropy: &mut entropy };
    let versioned = Arc::new(BucketInfo { flags: Versioning(Versioning::VERSIONED), ..(*b).clone() });
    for (bucket, name, class, error) in
        [(&b, "", "", Error::InvalidArgument), (&b, "k", "COLD", Error::NoSuchPlacement)]
    {
        let got = site().put(bucket, Key::plain(name), class.into(), 1, &mut moment);
        assert_eq!(got.map(|_| ()), Err(error), "{name} {class}");
    }
    let got = site().remove(&versioned, Key::plain("k"), &mut moment).run(&mut c);
    assert_eq!(got, Err(Error::Versioned));
}

/// A naive bucket: what a listing of some names gives.
fn expected(all: &BTreeSet<Bytes>, l: &Listing) -> (Vec<Bytes>, Vec<Bytes>, Option<Bytes>) {
    let (mut keys, mut prefixes, mut last) = (Vec::new(), Vec::new(), l.after.clone());
    for name in all.iter().filter(|name| name.starts_with(&l.prefix)) {
        let rest = &name[l.prefix.len()..];
        let at = (!l.delimiter.is_empty())
            .then(|| rest.windows(l.delimiter.len()).position(|w| w == l.delimiter.as_ref()))
            .flatten();
        let prefix = at.map(|at| name.slice(..l.prefix.len() + at + l.delimiter.len()));
        let shown = prefix.clone().unwrap_or(name.clone());
        if shown <= last {
            continue;
        }
        if keys.len() + prefixes.len() == l.max {
            return (keys, prefixes, Some(last));
        }
        last = shown.clone();
        if prefix.is_some() { prefixes.push(shown) } else { keys.push(shown) }
    }
    (keys, prefixes, None)
}

#[test]
fn listings_are_those_of_a_naive_bucket() {
    let mut c = Cluster::default();
    let b = bucket(&mut c);
    let (mut entropy, mut all) = (SeededEntropy(7), BTreeSet::new());
    let mut draw = |n: usize| (entropy.next_u64() % n as u64) as usize;
    for _ in 0..300 {
        let len = 1 + draw(6);
        let name: String = (0..len).map(|_| ['a', 'b', '/', '_', 'é', 'z'][draw(6)]).collect();
        put(&mut c, &b, &name, b"x").unwrap();
        all.insert(Bytes::from(name));
    }
    for name in all.clone().into_iter().filter(|_| draw(4) == 0) {
        remove(&mut c, &b, std::str::from_utf8(&name).unwrap()).unwrap();
        all.remove(&name);
    }
    // Parts of uploads are nobody's objects.
    let entry =
        Entry { exists: true, key: rgw::index::Key::plain("_multipart_a.1".into()), ..Entry::default() };
    let part = BTreeMap::from([(entry.key.name.clone(), entry.to_bytes())]);
    for shard in site().index_objects(&b).unwrap() {
        Plan::ask(Request::new(shard).op(crate::Op::OmapSet(part.clone()))).run(&mut c).unwrap();
    }
    for prefix in ["", "a", "_", "a/", "zz", "_m"] {
        for delimiter in ["", "/", "_", "a/", "é"] {
            for max in [1, 2, 7, 1000] {
                let mut l =
                    Listing { prefix: prefix.into(), delimiter: delimiter.into(), max, ..Listing::default() };
                loop {
                    let got = site().list(&b, l.clone()).run(&mut c).unwrap();
                    let keys: Vec<Bytes> = got.objects.iter().map(|(key, _)| key.name.clone()).collect();
                    assert_eq!((keys, got.prefixes, got.next.clone()), expected(&all, &l), "{l:?}");
                    let Some(next) = got.next else { break };
                    l.after = next;
                }
            }
        }
    }
}

/// Deleted versions hide many entries, which the class passes over without an entry to show.
#[test]
fn a_listing_goes_on_behind_what_is_hidden() {
    let mut c = Cluster::default();
    let b = bucket(&mut c);
    let flags = rgw::index::entry::DELETE_MARKER;
    let hidden = |n: usize| {
        let key = rgw::index::Key::plain(format!("k{n:06}").into());
        (key.name.clone(), Entry { key, flags, ..Entry::default() }.to_bytes())
    };
    let shard = site().index_object(&b, b"last").unwrap();
    let entries: BTreeMap<_, _> = (0..2000).map(hidden).collect();
    Plan::ask(Request::new(shard).op(crate::Op::OmapSet(entries))).run(&mut c).unwrap();
    put(&mut c, &b, "last", b"x").unwrap();
    let listing = Listing { max: 1, ..Listing::default() };
    assert_eq!(names(&site().list(&b, listing).run(&mut c).unwrap()), ["last"]);
}

/// An upload has more parts than a page's steps go over, in one shard, and objects lie before and behind them.
#[test]
fn parts_of_an_upload_hide_no_objects() {
    let mut c = Cluster::default();
    let b = bucket(&mut c);
    let part = |n: usize| {
        let name = format!("_multipart_m/big.2~ID.{n}");
        let key = rgw::index::Key::plain(name.into());
        (key.name.clone(), Entry { exists: true, key, ..Entry::default() }.to_bytes())
    };
    let shard = site().index_object(&b, b"m/big").unwrap();
    let entries: BTreeMap<_, _> = (0..2000).map(part).collect();
    Plan::ask(Request::new(shard).op(crate::Op::OmapSet(entries))).run(&mut c).unwrap();
    let all: Vec<String> = ('A'..='Z')
        .chain('a'..='z')
        .map(String::from)
        .chain(["_A".into(), "_a".into(), "m/a".into()])
        .collect();
    for name in &all {
        put(&mut c, &b, name, b"x").unwrap();
    }
    let wanted: BTreeSet<String> = all.into_iter().collect();
    for (max, delimiter) in [(1, ""), (7, ""), (1000, ""), (1, "/")] {
        let mut listing = Listing { max, delimiter: delimiter.into(), ..Listing::default() };
        let mut found = BTreeSet::new();
        loop {
            let page = site().list(&b, listing.clone()).run(&mut c).unwrap();
            found.extend(names(&page));
            let Some(next) = page.next else { break };
            assert!(next > listing.after);
            listing.after = next;
        }
        let with_slash = |name: &&String| delimiter.is_empty() || !name.contains('/');
        assert_eq!(found, wanted.iter().filter(with_slash).cloned().collect(), "{max} {delimiter}");
    }
    // A list of uploads goes on from uploads alone.
    let listing = Listing { max: 1, ..Listing::default() };
    let page = site().uploads(&b, listing).run(&mut c).unwrap();
    assert_eq!((page.objects.len(), page.next), (0, None));
}

/// A name has more versions than an answer goes over, in whatever place the one without an id is.
#[test]
fn a_listing_goes_on_behind_the_versions_of_a_name() {
    for null in (0..150).step_by(2).chain([71, 143]) {
        let mut c = Cluster::default();
        let b = bucket(&mut c);
        let mut entries = BTreeMap::new();
        for n in 0..150 {
            let instance = if n == null { Bytes::new() } else { format!("i{n}").into() };
            let key = rgw::index::Key { name: "k".into(), instance };
            let flags = rgw::index::entry::VERSIONED;
            // The index has larger epochs first, as nines' complement here.
            let epoch = 0xff - n as u64;
            let entry = Entry { key, flags, versioned_epoch: epoch, exists: true, ..Entry::default() };
            let (instance, value) = (entry.key.instance.clone(), entry.to_bytes());
            let listed = format!("k\0v8{:03}\0i", 0xff - epoch);
            entries.insert(Bytes::from([listed.as_bytes(), &instance[..]].concat()), value.clone());
            entries.insert(Bytes::from([b"\x801000_k\0i", &instance[..]].concat()), value);
        }
        let shard = site().index_object(&b, b"last").unwrap();
        Plan::ask(Request::new(shard).op(crate::Op::OmapSet(entries))).run(&mut c).unwrap();
        put(&mut c, &b, "last", b"x").unwrap();
        for after in ["", "j", "k"] {
            let listing = Listing { max: 1, after: after.into(), ..Listing::default() };
            assert_eq!(names(&site().list(&b, listing).run(&mut c).unwrap()), ["last"], "{null} {after}");
        }
    }
}

/// Wherever a gateway dies, an object is what it was or what it becomes, the list says the same, and so do
/// the sums once it was listed.
#[test]
fn a_gateway_may_die_between_any_two_requests() {
    let (old, new) = (ramp(5 * MIB), ramp(9 * MIB + 1));
    for (before, removing) in [(false, false), (true, false), (true, true)] {
        let mut finished = 0;
        for left in 0..30 {
            let mut c = Cluster::default();
            let b = bucket(&mut c);
            with_queues(&mut c);
            if before {
                put(&mut c, &b, "k", &old).unwrap();
            }
            c.left = Some(left);
            let done = match removing {
                true => remove(&mut c, &b, "k").is_ok(),
                false => put(&mut c, &b, "k", &new).is_ok(),
            };
            c.left = None;
            finished += usize::from(done);
            let got = get(&mut c, &b, "k");
            let was = if before { Ok(&old) } else { Err(&Error::NoSuchKey) };
            let becomes = if removing { Err(&Error::NoSuchKey) } else { Ok(&new) };
            let is = |want: Result<&Vec<u8>, &Error>| match (&got, want) {
                (Ok(got), Ok(want)) => got == want,
                (Err(got), Err(want)) => got == want,
                _ => false,
            };
            assert!(is(becomes) || (is(was) && !done), "{before} {removing} {left}: {:?}", got.err());
            // Changes that nobody completed count for two minutes.
            c.pass(121);
            let wanted: Vec<&str> = if got.is_ok() { vec!["k"] } else { vec![] };
            assert_eq!(list(&mut c, &b), wanted, "{left}");
            assert_eq!(list(&mut c, &b), wanted, "{left}");
            let len = got.as_ref().map_or(0, |data| data.len() as u64);
            assert_eq!(stats(&mut c, &b), (wanted.len() as u64, len), "{before} {removing} {left}");
            // Nothing of it keeps the next one from being written.
            put(&mut c, &b, "k", b"again").unwrap();
            assert_eq!((get(&mut c, &b, "k").unwrap(), stats(&mut c, &b)), ("again".into(), (1, 5)));
        }
        assert!((1..30).contains(&finished), "{finished}");
    }
}

/// A bucket is removed while an object is put: either the bucket stays and has it, or it was refused.
#[test]
fn an_object_is_not_put_into_a_bucket_that_goes() {
    let mut removed = 0;
    for steps in 0..24 {
        let mut c = Cluster::default();
        let b = bucket(&mut c);
        with_queues(&mut c);
        let there = site().bucket(&Bytes::new(), &"b".into()).run(&mut c).unwrap();
        let mut entropy = SeededEntropy(9);
        let mut moment = Moment { now: NOW, entropy: &mut entropy };
        let upload = site().put(&b, Key::plain("k"), Bytes::new(), 7, &mut moment).unwrap();
        let mut putting = upload.write(ramp(5 * MIB).into()).and_then(|u| u.finish(finish(Condition::Any)));
        let mut removing = site().remove_bucket(there, NOW);
        // Half of the time the removal is what is stopped.
        for _ in 0..steps / 2 {
            if steps % 2 == 0 {
                putting = step(putting, &mut c);
            } else {
                removing = step(removing, &mut c);
            }
        }
        let (put, gone) = if steps % 2 == 0 {
            let gone = removing.run(&mut c);
            (putting.run(&mut c), gone)
        } else {
            (putting.run(&mut c), removing.run(&mut c))
        };
        if gone.is_ok() {
            assert!(matches!(put, Err(Error::NoSuchBucket | Error::Resharding)), "{steps} {put:?}");
            assert_eq!((c.names(DATA), c.names("default.rgw.buckets.index")), (vec![], vec![]), "{steps}");
            removed += 1;
        } else {
            assert_eq!((put.map(|_| ()), gone), (Ok(()), Err(Error::BucketNotEmpty)), "{steps}");
            c.pass(121);
            assert_eq!(list(&mut c, &b), ["k"], "{steps}");
            self::put(&mut c, &b, "k", b"again").unwrap();
        }
    }
    assert!((1..24).contains(&removed), "{removed}");
}

/// As gateways remove buckets that hold nobody off.
#[test]
fn an_index_that_went_meanwhile_takes_its_object_with_it() {
    for steps in 0..6 {
        let mut c = Cluster::default();
        let b = bucket(&mut c);
        let mut entropy = SeededEntropy(9);
        let mut moment = Moment { now: NOW, entropy: &mut entropy };
        let upload = site().put(&b, Key::plain("k"), Bytes::new(), 7, &mut moment).unwrap();
        let mut putting = upload.write(ramp(5 * MIB).into()).and_then(|u| u.finish(finish(Condition::Any)));
        for _ in 0..steps {
            putting = step(putting, &mut c);
        }
        let finished = matches!(putting, Plan::Done(_));
        for shard in site().index_objects(&b).unwrap() {
            Plan::ask(Request::new(shard).op(crate::Op::Remove { may_miss: false })).run(&mut c).unwrap();
        }
        let entry = site().entry_object(&Bytes::new(), &"b".into());
        Plan::ask(Request::new(entry).op(crate::Op::Remove { may_miss: false })).run(&mut c).unwrap();
        let put = putting.run(&mut c).map(|_| ());
        if !finished {
            assert_eq!((put, c.names(DATA)), (Err(Error::NoSuchBucket), vec![]), "{steps}");
            assert_eq!(c.names("default.rgw.buckets.index"), Vec::<String>::new());
        }
    }
}

/// Two gateways whose requests come in all orders: one of the two objects is there, whole and counted.
#[test]
fn two_may_write_one_object_at_once() {
    for seed in 0..60 {
        let mut c = Cluster::default();
        let b = bucket(&mut c);
        with_queues(&mut c);
        if seed % 2 == 0 {
            put(&mut c, &b, "k", b"before").unwrap();
        }
        let mut entropy = SeededEntropy(seed);
        let datas = [ramp(5 * MIB), ramp(4 * MIB + 9)];
        let begin = |n: usize, moment: &mut Moment| {
            let upload = site().put(&b, Key::plain("k"), Bytes::new(), 100 + n as u64, moment).unwrap();
            upload.write(datas[n].clone().into()).and_then(|u| u.finish(finish(Condition::Any)))
        };
        let mut moment = Moment { now: NOW, entropy: &mut entropy };
        let mut plans = vec![begin(0, &mut moment), begin(1, &mut moment)];
        while plans.iter().any(|plan| matches!(plan, Plan::Ask(..))) {
            let n = (entropy.next_u64() % 2) as usize;
            let plan = std::mem::replace(&mut plans[n], Plan::failed(Error::Unexpected));
            plans[n] = step(plan, &mut c);
        }
        let done: Vec<bool> = plans
            .into_iter()
            .map(|plan| match plan {
                Plan::Done(written) => written.unwrap().overtaken,
                Plan::Ask(..) | Plan::Wait(..) => panic!("not done"),
            })
            .collect();
        let got = get(&mut c, &b, "k").unwrap();
        assert!(datas.iter().any(|data| got == data), "{seed} {done:?}");
        assert_eq!(
            (list(&mut c, &b), stats(&mut c, &b)),
            (vec!["k".into()], (1, got.len() as u64)),
            "{seed}"
        );
        // Of the one that lost nothing is left but what is to be collected.
        let garbage = garbage_of(&mut c);
        let tails = c.names(DATA).into_iter().filter(|n| n.contains("__shadow_") && !garbage.contains(n));
        assert_eq!(tails.count(), 1, "{seed} {done:?}");
    }
}

#[test]
fn an_index_that_moves_holds_writers_off() {
    let mut c = Cluster::default();
    let b = bucket(&mut c);
    for shard in site().index_objects(&b).unwrap() {
        let resharding = rgw::index::Resharding { status: 1, ..Default::default() };
        let args = index::SetReshardingArgs { resharding };
        Plan::ask(Request::new(shard).call(&index::SET_RESHARDING, &args)).run(&mut c).unwrap();
    }
    assert_eq!(put(&mut c, &b, "k", &ramp(5 * MIB)), Err(Error::Resharding));
    assert_eq!(c.names(DATA), Vec::<String>::new());
}

#[test]
fn a_listing_shows_what_was_said_of_an_object() {
    let mut c = Cluster::default();
    let b = bucket(&mut c);
    put(&mut c, &b, "k", b"12345").unwrap();
    let listed = site().list(&b, Listing { max: 9, ..Listing::default() }).run(&mut c).unwrap();
    let want = Meta {
        category: 1,
        size: 5,
        accounted_size: 5,
        mtime: NOW,
        etag: "etag".into(),
        owner: "u".into(),
        owner_name: "U".into(),
        content_type: "text/plain".into(),
        ..Meta::default()
    };
    assert_eq!(listed.objects, [(Key::plain("k"), want)]);
}

/// A gateway dies before the index hears of a compressed object: its list has the size that clients see.
#[test]
fn a_listing_finds_out_what_was_compressed() {
    let mut open = 0;
    for left in 0..6 {
        let mut c = Cluster::default();
        let b = bucket(&mut c);
        let kind = rgw::Compression { kind: "zlib".into(), size: 1000, ..Default::default() };
        let mut finish = Finish { accounted_size: Some(1000), ..finish(Condition::Any) };
        finish.attrs.insert(attr::COMPRESSION.into(), kind.to_bytes());
        c.left = Some(left);
        let done = run(&mut c, |moment| {
            let upload = site().put(&b, Key::plain("k"), Bytes::new(), 1, moment).unwrap();
            upload.write("12345".into()).and_then(|upload| upload.finish(finish))
        });
        c.left = None;
        let shard = site().index_object(&b, b"k").unwrap();
        let shard = c.get("default.rgw.buckets.index", std::str::from_utf8(&shard.oid).unwrap());
        let entry = shard.and_then(|o| o.omap.get(&b"k"[..])).map(|raw| Entry::from_bytes(raw.clone()));
        open += usize::from(done.is_ok() && entry.is_some_and(|e| !e.unwrap().pending.is_empty()));
        c.pass(121);
        let listed = site().list(&b, Listing { max: 9, ..Listing::default() }).run(&mut c).unwrap();
        let sizes = listed.objects.iter().map(|(_, meta)| (meta.size, meta.accounted_size));
        assert!(sizes.eq(done.ok().map(|_| (5, 1000))), "{left}");
    }
    assert!(open > 0);
}

pub(super) fn copy(
    c: &mut Cluster,
    b: &SharedBucket,
    from: &'static str,
    to: &'static str,
) -> Result<Written, Error> {
    let opened = run(c, |m| site().open(b, &Key::plain(from), 1024, m))?;
    let to = copy_to(b, Key::plain(to), c.done.len() as u64);
    run(c, |moment| site().copy(opened, to, moment))
}

#[test]
fn copies_share_a_tail_until_the_last_of_them_goes() {
    let mut c = Cluster::default();
    let b = bucket(&mut c);
    with_queues(&mut c);
    let data = ramp(9 * MIB + 1);
    put(&mut c, &b, "k", &data).unwrap();
    let tail: BTreeSet<String> = c.names(DATA).into_iter().filter(|n| n.contains("__shadow_")).collect();
    copy(&mut c, &b, "k", "copy").unwrap();
    copy(&mut c, &b, "copy", "again").unwrap();
    // Over itself it keeps what it has.
    copy(&mut c, &b, "copy", "copy").unwrap();
    assert_eq!((c.names(DATA).len(), garbage_of(&mut c).len()), (3 + tail.len(), 0));
    for key in ["k", "copy", "again"] {
        assert!(get(&mut c, &b, key).unwrap() == data, "{key}");
    }
    assert_eq!(stats(&mut c, &b), (3, 3 * data.len() as u64));
    // What garbage collection does when their time has come: it gives each tag's references back.
    for (n, key) in ["k", "again", "copy"].into_iter().enumerate() {
        let tag = site().head(&b, &Key::plain(key), 0).run(&mut c).unwrap().unwrap().tail_tag();
        remove(&mut c, &b, key).unwrap();
        assert_eq!(garbage_of(&mut c), tail);
        let pool =
            &site().zone.placement[&b"default-placement"[..]].classes[&b"STANDARD"[..]].data.clone().unwrap();
        let objects = tail.iter().map(|oid| RawObject::new(pool, oid.clone())).collect();
        crate::garbage::remove_now(objects, tag).run(&mut c).unwrap();
        let left = c.names(DATA).into_iter().filter(|n| n.contains("__shadow_")).count();
        assert_eq!(left, if n < 2 { tail.len() } else { 0 }, "{key}");
    }
}

/// A copy in the place of one that shares its tail gives back the reference of the one that was there.
#[test]
fn a_copy_made_twice_has_one_reference() {
    let mut c = Cluster::default();
    let b = bucket(&mut c);
    with_queues(&mut c);
    let data = ramp(5 * MIB);
    put(&mut c, &b, "k", &data).unwrap();
    for _ in 0..3 {
        copy(&mut c, &b, "k", "copy").unwrap();
        collect_garbage(&mut c);
        assert!(get(&mut c, &b, "copy").unwrap() == data);
    }
    remove(&mut c, &b, "k").unwrap();
    collect_garbage(&mut c);
    assert!(get(&mut c, &b, "copy").unwrap() == data);
    remove(&mut c, &b, "copy").unwrap();
    collect_garbage(&mut c);
    assert_eq!(c.names(DATA), Vec::<String>::new());
}

#[test]
fn small_objects_are_copied_whole() {
    let mut c = Cluster::default();
    let b = bucket(&mut c);
    put(&mut c, &b, "k", b"12345").unwrap();
    copy(&mut c, &b, "k", "copy").unwrap();
    copy(&mut c, &b, "k", "k").unwrap();
    remove(&mut c, &b, "k").unwrap();
    assert_eq!((get(&mut c, &b, "copy").unwrap(), stats(&mut c, &b)), ("12345".into(), (1, 5)));
    assert_eq!(copy(&mut c, &b, "k", "x"), Err(Error::NoSuchKey));
}

/// The source goes, tail and all, while it is copied: what is left of it is not harmed, and nothing is kept.
#[test]
fn a_copy_that_cannot_be_made_takes_no_reference_of_others() {
    let mut c = Cluster::default();
    let b = bucket(&mut c);
    with_queues(&mut c);
    put(&mut c, &b, "k", &ramp(9 * MIB)).unwrap();
    let tail: Vec<String> = c.names(DATA).into_iter().filter(|n| n.contains("__shadow_")).collect();
    let opened = run(&mut c, |m| site().open(&b, &Key::plain("k"), 0, m)).unwrap();
    let pool = rgw::Pool::new(DATA, "");
    let gone = Request::new(RawObject::new(&pool, tail[0].clone())).op(crate::Op::Remove { may_miss: false });
    Plan::ask(gone).run(&mut c).unwrap();
    let to = copy_to(&b, Key::plain("copy"), 77);
    assert!(run(&mut c, |moment| site().copy(opened, to, moment)).is_err());
    assert!(c.names(DATA).contains(&tail[1]));
    assert_eq!((list(&mut c, &b), get(&mut c, &b, "copy").err()), (vec!["k".into()], Some(Error::NoSuchKey)));
}

/// Wherever another one writes or removes the object while it is copied over itself, nothing of what is there
/// then is at garbage collection.
#[test]
fn a_copy_over_itself_takes_no_other_ones_place() {
    let (old, other) = (ramp(9 * MIB), ramp(5 * MIB));
    for (removes, writes) in [(true, false), (false, true), (true, true)] {
        for steps in 0..10 {
            let mut c = Cluster::default();
            let b = bucket(&mut c);
            with_queues(&mut c);
            put(&mut c, &b, "k", &old).unwrap();
            let opened = run(&mut c, |m| site().open(&b, &Key::plain("k"), 1024, m)).unwrap();
            let to = copy_to(&b, Key::plain("k"), 77);
            let mut entropy = SeededEntropy(9);
            let mut plan = site().copy(opened, to, &mut Moment { now: NOW, entropy: &mut entropy });
            for _ in 0..steps {
                plan = step(plan, &mut c);
            }
            if removes {
                remove(&mut c, &b, "k").unwrap();
            }
            if writes {
                put(&mut c, &b, "k", &other).unwrap();
            }
            // It fails where what it copies goes before all is read.
            let done = plan.run(&mut c).map(|_| ());
            assert!(matches!(done, Ok(()) | Err(Error::Rados(_) | Error::Raced)), "{steps} {done:?}");
            let got = get(&mut c, &b, "k");
            assert!(if writes { got.unwrap() == other } else { got == Err(Error::NoSuchKey) }, "{steps}");
            let wanted: Vec<String> = if writes { vec!["k".into()] } else { vec![] };
            assert_eq!(list(&mut c, &b), wanted, "{removes} {writes} {steps}");
            let head = site().head(&b, &Key::plain("k"), 0).run(&mut c).unwrap();
            let tail = head.map(|head| super::put::waste(&site(), &head)).unwrap_or_default();
            let garbage = garbage_of(&mut c);
            assert!(tail.iter().all(|o| !garbage.contains(std::str::from_utf8(&o.oid).unwrap())), "{steps}");
        }
    }
}

#[test]
fn a_page_ends_though_little_is_found() {
    let mut c = Cluster::default();
    let b = bucket(&mut c);
    // The index knows no underscore as a delimiter: all names are read.
    let names: Vec<String> =
        (0..400).map(|n| format!("{}_{n:03}", if n < 390 { "d" } else { "e" })).collect();
    for name in &names {
        put(&mut c, &b, name, b"x").unwrap();
    }
    let (mut after, mut found, mut pages) = (Bytes::new(), Vec::new(), 0);
    loop {
        let listing = Listing { delimiter: "_".into(), max: 1, after, ..Listing::default() };
        let mut plan = site().list(&b, listing);
        let mut steps = 0;
        let listed = loop {
            match plan {
                Plan::Done(result) => break result.unwrap(),
                Plan::Ask(requests, next) => {
                    steps += 1;
                    plan = next(requests.into_iter().map(|r| crate::Rados::perform(&mut c, r)).collect());
                }
                Plan::Wait(..) => panic!("nothing is to be waited for"),
            }
        };
        assert!(steps <= 2 * 64 + 2, "{steps}");
        pages += 1;
        found.extend(listed.prefixes);
        match listed.next {
            Some(next) => after = next,
            None => break,
        }
    }
    assert_eq!(found, ["d_", "e_"]);
    assert!(pages < 20, "{pages}");
}
