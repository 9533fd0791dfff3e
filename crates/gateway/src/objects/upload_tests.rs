//! Uploads in a cluster in memory: as radosgw makes them, and with gateways that die.

use classes::client::index;
use codec::{Decode, Encode};
use rgw::{AccessControl, Compression, Owner, PartInfo, UserId};
use serde_json::{Value, json};
use types::RealTime;

use super::tests::*;
use super::*;
use crate::cluster::{Cluster, NOW, run, site};
use crate::recorded::{Told, argument, asked, bytes, ops, requests, session, with};
use crate::system::Attrs;
use crate::{Moment, Op, Plan, Request};

/// Names the parts in their order.
pub(super) fn joined(etags: &[Bytes]) -> Bytes {
    format!("{}-{}", etags.iter().map(|e| String::from_utf8_lossy(e)).collect::<String>(), etags.len()).into()
}

pub(super) fn attrs() -> Attrs {
    let owner = Owner { id: UserId::plain("u"), display_name: "U".into() };
    let acl = AccessControl::private(owner).to_bytes();
    Attrs::from([("user.rgw.acl".into(), acl), ("user.rgw.x-amz-meta-a".into(), "b\0".into())])
}

pub(super) fn begin(c: &mut Cluster, b: &SharedBucket, name: &'static str) -> UploadId {
    let rule = PlacementRule::named("default-placement");
    run(c, |moment| site().begin_upload(b, name.into(), rule, attrs(), moment)).unwrap()
}

pub(super) fn part(
    c: &mut Cluster,
    b: &SharedBucket,
    upload: &UploadId,
    number: u32,
    data: &[u8],
    etag: &'static str,
) -> Result<PartInfo, Error> {
    let finish = FinishPart {
        attrs: attrs(),
        etag: etag.into(),
        accounted_size: None,
        compression: Compression::default(),
        checksum: None,
        now: NOW,
    };
    let pieces: Vec<Bytes> = data.chunks(3 * MIB + 7).map(Bytes::copy_from_slice).collect();
    run(c, |moment| {
        let begun = site().put_part(b, upload.clone(), number, moment);
        let write = |plan: Plan<Part>, piece| plan.and_then(move |part: Part| part.write(piece));
        pieces.into_iter().fold(begun, write).and_then(move |part| part.finish(finish))
    })
}

pub(super) fn complete(
    c: &mut Cluster,
    b: &SharedBucket,
    upload: &UploadId,
    parts: &[(u32, &'static str)],
) -> Result<Written, Error> {
    let parts = parts.iter().map(|(number, etag)| (*number, Bytes::from(*etag))).collect();
    let complete =
        Complete { parts, etag: joined, condition: Condition::Any, of_parts: None, number: 900, now: NOW };
    run(c, |moment| site().complete_upload(b, upload.clone(), complete, moment))
}

pub(super) fn abort(c: &mut Cluster, b: &SharedBucket, upload: &UploadId) -> Result<(), Error> {
    run(c, |moment| site().abort_upload(b, upload.clone(), moment))
}

pub(super) fn uploads(c: &mut Cluster, b: &SharedBucket) -> Vec<UploadId> {
    let listing = Listing { max: 100, ..Listing::default() };
    let listed = site().uploads(b, listing).run(c).unwrap();
    listed.objects.iter().map(|(key, _)| UploadId::from_name(&key.name).unwrap()).collect()
}

#[test]
fn parts_make_a_whole_and_nothing_else_is_left() {
    let mut c = Cluster::default();
    let b = bucket(&mut c);
    with_queues(&mut c);
    let upload = begin(&mut c, &b, "dir/k.1");
    assert_eq!((uploads(&mut c, &b), list(&mut c, &b)), (vec![upload.clone()], vec![]));
    let datas = [ramp(9 * MIB + 5), ramp(5 * MIB), ramp(3)];
    for (n, etag) in [(1, "b"), (0, "a"), (2, "c")] {
        part(&mut c, &b, &upload, n as u32 + 1, &datas[n], etag).unwrap();
    }
    let (parts, more) = site().parts(&b, &upload, 1).run(&mut c).unwrap();
    let shown: Vec<_> = parts.iter().map(|p| (p.number, p.size, p.etag.clone())).collect();
    assert_eq!((shown, more), (vec![(2, 5 * MIB as u64, "b".into()), (3, 3, "c".into())], false));

    complete(&mut c, &b, &upload, &[(1, "a"), (2, "b"), (3, "c")]).unwrap();
    assert!(get(&mut c, &b, "dir/k.1").unwrap() == datas.concat());
    let head = site().head(&b, &Key::plain("dir/k.1"), 0).run(&mut c).unwrap().unwrap();
    assert_eq!((head.etag(), head.head_size), ("abc-3".into(), 0));
    assert_eq!(head.attrs[&b"user.rgw.x-amz-meta-a"[..]], "b\0");
    assert_eq!((uploads(&mut c, &b), list(&mut c, &b)), (vec![], vec!["dir/k.1".into()]));
    assert_eq!(stats(&mut c, &b), (1, datas.concat().len() as u64));
    assert_eq!(c.names("default.rgw.buckets.non-ec"), Vec::<String>::new());
    assert_eq!(complete(&mut c, &b, &upload, &[(1, "a")]), Err(Error::NoSuchUpload));
    // All parts are the whole's tail.
    let parts = c.names(DATA).into_iter().filter(|n| n.contains("dir/k.1.2~")).collect();
    remove(&mut c, &b, "dir/k.1").unwrap();
    assert_eq!((garbage_of(&mut c), stats(&mut c, &b)), (parts, (0, 0)));
}

/// Of a part that is uploaded again and again the index keeps entries, which hold no bucket back.
#[test]
fn a_bucket_with_parts_of_no_upload_can_be_removed() {
    let mut c = Cluster::default();
    let b = bucket(&mut c);
    with_queues(&mut c);
    let upload = begin(&mut c, &b, "k");
    for _ in 0..3 {
        part(&mut c, &b, &upload, 1, &ramp(5), "a").unwrap();
    }
    let gone = |c: &mut Cluster| {
        let state = site().bucket(&b.bucket.tenant, &b.bucket.name).run(c).unwrap();
        site().remove_bucket(state, NOW).run(c)
    };
    assert_eq!(gone(&mut c), Err(Error::BucketNotEmpty), "an upload is something");
    complete(&mut c, &b, &upload, &[(1, "a")]).unwrap();
    assert_eq!(gone(&mut c), Err(Error::BucketNotEmpty), "and so is its object");
    remove(&mut c, &b, "k").unwrap();
    let listed = |c: &Cluster| -> Vec<String> {
        let text = |bytes: &Bytes| String::from_utf8_lossy(bytes).into_owned();
        let shards = site().index_objects(&b).unwrap();
        let shard = |o: &RawObject| c.get(&text(&o.pool.to_text()), &text(&o.oid)).unwrap().omap.clone();
        shards.iter().flat_map(|o| shard(o).into_keys()).map(|key| text(&key)).collect()
    };
    assert!(listed(&c).iter().any(|name| name.contains("multipart")), "{:?}", listed(&c));
    assert_eq!(gone(&mut c), Ok(()));
}

#[test]
fn a_part_can_be_uploaded_again() {
    let mut c = Cluster::default();
    let b = bucket(&mut c);
    with_queues(&mut c);
    let upload = begin(&mut c, &b, "k");
    part(&mut c, &b, &upload, 1, &ramp(7 * MIB), "a").unwrap();
    let again: Vec<u8> = ramp(6 * MIB).into_iter().rev().collect();
    part(&mut c, &b, &upload, 1, &again, "b").unwrap();
    assert_eq!(complete(&mut c, &b, &upload, &[(1, "a")]), Err(Error::InvalidPart));
    complete(&mut c, &b, &upload, &[(1, "b")]).unwrap();
    assert!(get(&mut c, &b, "k").unwrap() == again);
    assert_eq!((list(&mut c, &b), stats(&mut c, &b)), (vec!["k".into()], (1, 6 * MIB as u64)));
}

#[test]
fn an_upload_that_is_given_up_leaves_garbage_alone() {
    let mut c = Cluster::default();
    let b = bucket(&mut c);
    with_queues(&mut c);
    let upload = begin(&mut c, &b, "k");
    for number in [1, 2] {
        part(&mut c, &b, &upload, number, &ramp(6 * MIB), "a").unwrap();
    }
    abort(&mut c, &b, &upload).unwrap();
    let left = c.names(DATA).into_iter().collect();
    assert_eq!((garbage_of(&mut c), stats(&mut c, &b), uploads(&mut c, &b)), (left, (0, 0), vec![]));
    assert_eq!(abort(&mut c, &b, &upload), Err(Error::NoSuchUpload));
    assert_eq!(part(&mut c, &b, &upload, 3, b"x", "a").err(), Some(Error::NoSuchUpload));
    let there = site().bucket(&Bytes::new(), &"b".into()).run(&mut c).unwrap();
    site().remove_bucket(there, NOW).run(&mut c).unwrap();
}

/// A part is given up, and another one of its number is uploaded behind each request that this takes.
#[test]
fn a_part_that_is_given_up_takes_nothing_of_its_successor() {
    for at in 0..4 {
        let mut c = Cluster::default();
        let b = bucket(&mut c);
        with_queues(&mut c);
        let upload = begin(&mut c, &b, "k");
        let begun = run(&mut c, |moment| site().put_part(&b, upload.clone(), 1, moment)).unwrap();
        let begun = begun.write(ramp(12 * MIB).into()).run(&mut c).unwrap();
        let (mut plan, mut asked) = (begun.give_up::<()>(Error::Raced), 0);
        let data: Vec<u8> = ramp(12 * MIB).into_iter().rev().collect();
        while let Plan::Ask(requests, next) = plan {
            let mut replies = Vec::new();
            for request in requests {
                if asked == at {
                    part(&mut c, &b, &upload, 1, &data, "a").unwrap();
                }
                replies.push(crate::Rados::perform(&mut c, request));
                asked += 1;
            }
            plan = next(replies);
        }
        if at >= asked {
            part(&mut c, &b, &upload, 1, &data, "a").unwrap();
        }
        complete(&mut c, &b, &upload, &[(1, "a")]).unwrap();
        assert!(get(&mut c, &b, "k").unwrap() == data, "{at}");
        assert_eq!(c.names(DATA), held_by(&mut c, &b, "k"), "{at}");
    }
}

/// What cannot be removed of a part keeps its first stripe there, and so its names from being used again.
#[test]
fn a_part_that_cannot_be_given_up_keeps_its_names() {
    let mut c = Cluster::default();
    let b = bucket(&mut c);
    let upload = begin(&mut c, &b, "k");
    let begun = run(&mut c, |moment| site().put_part(&b, upload.clone(), 1, moment)).unwrap();
    let begun = begun.write(ramp(12 * MIB).into()).run(&mut c).unwrap();
    let all = c.names(DATA);
    c.left = Some(1);
    assert_eq!(begun.give_up::<()>(Error::Raced).run(&mut c), Err(Error::Raced));
    let left = c.names(DATA);
    assert_eq!((all.len(), left.len()), (3, 2));
    assert!(left.iter().any(|name| name.contains("__multipart_")), "{left:?}");
}

/// The upload goes while a part is written: nothing is left of the part.
#[test]
fn a_part_of_an_upload_that_went_leaves_nothing() {
    let mut c = Cluster::default();
    let b = bucket(&mut c);
    with_queues(&mut c);
    let upload = begin(&mut c, &b, "k");
    let begun = run(&mut c, |moment| site().put_part(&b, upload.clone(), 1, moment)).unwrap();
    let begun = begun.write(ramp(5 * MIB).into()).run(&mut c).unwrap();
    abort(&mut c, &b, &upload).unwrap();
    let (etag, compression) = ("a".into(), Compression::default());
    let finish =
        FinishPart { attrs: attrs(), etag, accounted_size: None, compression, checksum: None, now: NOW };
    assert_eq!(begun.finish(finish).run(&mut c).err(), Some(Error::NoSuchUpload));
    assert_eq!((c.names(DATA), stats(&mut c, &b)), (vec![], (0, 0)));
}

#[test]
fn what_is_not_an_uploads_is_refused() {
    let mut c = Cluster::default();
    let b = bucket(&mut c);
    with_queues(&mut c);
    let upload = begin(&mut c, &b, "k");
    for number in [0, MAX_PARTS + 1] {
        assert_eq!(part(&mut c, &b, &upload, number, b"x", "a").err(), Some(Error::InvalidPart));
    }
    assert_eq!(complete(&mut c, &b, &upload, &[]), Err(Error::InvalidPart));
    part(&mut c, &b, &upload, 1, &vec![0; MIN_PART as usize - 1], "a").unwrap();
    part(&mut c, &b, &upload, 2, b"x", "b").unwrap();
    for (parts, error) in [
        (&[(1, "a")][..], Error::InvalidPart),
        (&[(2, "a"), (3, "b")], Error::InvalidPart),
        (&[(1, "c"), (2, "b")], Error::InvalidPart),
        (&[(1, "a"), (2, "b")], Error::PartTooSmall),
    ] {
        assert_eq!(complete(&mut c, &b, &upload, parts), Err(error), "{parts:?}");
    }
    // A refusal gives the lock back, and another one's is not taken.
    part(&mut c, &b, &upload, 1, &ramp(MIN_PART as usize), "a").unwrap();
    let object =
        site().head_object(&b, &Key::within("multipart", format!("k.{}.meta", id(&upload)))).unwrap();
    let others = classes::client::lock::LockArgs {
        name: "RGWCompleteMultipart".into(),
        kind: 1,
        cookie: "other".into(),
        tag: Bytes::new(),
        description: Bytes::new(),
        duration: types::Utime::new(600, 0),
        flags: 0,
    };
    Plan::ask(Request::new(object).call(&classes::client::lock::LOCK, &others)).run(&mut c).unwrap();
    assert_eq!(complete(&mut c, &b, &upload, &[(1, "a"), (2, "b")]), Err(Error::Raced));
    assert_eq!(abort(&mut c, &b, &upload), Err(Error::Raced));
    c.pass(601);
    complete(&mut c, &b, &upload, &[(1, "a"), (2, "b")]).unwrap();
}

fn id(upload: &UploadId) -> String {
    String::from_utf8(upload.id.to_vec()).unwrap()
}

/// Wherever a gateway dies, the upload can be completed, or is: its bytes are never handed to garbage
/// collection on the way.
#[test]
fn a_gateway_may_die_while_it_completes() {
    let data = ramp(5 * MIB + 1);
    let mut finished = 0;
    for left in 0..20 {
        let mut c = Cluster::default();
        let b = bucket(&mut c);
        with_queues(&mut c);
        let upload = begin(&mut c, &b, "k");
        part(&mut c, &b, &upload, 1, &data, "a").unwrap();
        c.left = Some(left);
        let done = complete(&mut c, &b, &upload, &[(1, "a")]).is_ok();
        c.left = None;
        // The lock of the one that died.
        c.pass(601);
        match complete(&mut c, &b, &upload, &[(1, "a")]) {
            Ok(_) => assert!(!done || !uploads(&mut c, &b).contains(&upload)),
            Err(e) => assert_eq!((e, done), (Error::NoSuchUpload, true), "{left}"),
        }
        finished += usize::from(done);
        assert!(get(&mut c, &b, "k").unwrap() == data, "{left}");
        assert_eq!((garbage_of(&mut c).len(), uploads(&mut c, &b)), (0, vec![]), "{left}");
        list(&mut c, &b);
        assert_eq!(stats(&mut c, &b), (1, data.len() as u64), "{left}");
    }
    assert!((1..20).contains(&finished), "{finished}");
}

/// What may follow an attempt that died: whoever does it, no object loses its bytes.
#[test]
fn who_ends_an_upload_anew_takes_no_bytes_from_an_object() {
    type Deed = fn(&mut Cluster, &SharedBucket, &UploadId) -> Result<(), Error>;
    let completes: Deed = |c, b, u| complete(c, b, u, &[(1, "a"), (2, "b")]).map(|_| ());
    let aborts: Deed = abort;
    let writes: Deed = |c, b, _| put(c, b, "k", b"other").map(|_| ());
    let removes: Deed = |c, b, _| remove(c, b, "k");
    let copies: Deed = |c, b, _| copy(c, b, "k", "k").map(|_| ());
    let collects: Deed = |c, _, _| {
        collect_garbage(c);
        Ok(())
    };
    let follow: [&[Deed]; 10] = [
        &[aborts],
        &[completes],
        &[completes, aborts],
        &[aborts, completes],
        &[writes, completes],
        &[writes, aborts],
        &[writes, collects, completes],
        &[removes, completes],
        &[removes, collects, completes],
        &[copies, completes, aborts],
    ];
    let datas = [ramp(5 * MIB), ramp(9)];
    for first in [completes, aborts] {
        for (n, deeds) in follow.iter().enumerate() {
            for left in 0..20 {
                let mut c = Cluster::default();
                let b = bucket(&mut c);
                with_queues(&mut c);
                let upload = begin(&mut c, &b, "k");
                for (data, (number, etag)) in datas.iter().zip([(1, "a"), (2, "b")]) {
                    part(&mut c, &b, &upload, number, data, etag).unwrap();
                }
                c.left = Some(left);
                let _ = first(&mut c, &b, &upload);
                c.left = None;
                for deed in deeds.iter().chain([&aborts]) {
                    c.pass(601);
                    let done = deed(&mut c, &b, &upload);
                    let said = matches!(done, Ok(()) | Err(Error::NoSuchUpload | Error::NoSuchKey));
                    assert!(said, "{n} {left}: {done:?}");
                }
                collect_garbage(&mut c);
                let got = get(&mut c, &b, "k");
                let whole = got.as_ref().is_ok_and(|got| *got == datas.concat() || *got == "other");
                assert!(whole || got == Err(Error::NoSuchKey), "{n} {left}: {:?}", got.err());
                assert_eq!(uploads(&mut c, &b), vec![], "{n} {left}");
            }
        }
    }
}

/// Another one writes the object while it is completed: what loses is garbage, and nothing stays of it.
#[test]
fn a_completion_that_is_overtaken_leaves_no_parts() {
    let mut overtaken = 0;
    for steps in 0..16 {
        for before in [false, true] {
            let mut c = Cluster::default();
            let b = bucket(&mut c);
            with_queues(&mut c);
            if before {
                put(&mut c, &b, "k", b"before").unwrap();
            }
            let upload = begin(&mut c, &b, "k");
            part(&mut c, &b, &upload, 1, &ramp(6 * MIB), "a").unwrap();
            let parts = vec![(1, "a".into())];
            let complete = Complete {
                parts,
                etag: joined,
                condition: Condition::Any,
                of_parts: None,
                number: 900,
                now: NOW,
            };
            let mut entropy = types::SeededEntropy(3);
            let mut moment = Moment { now: NOW, entropy: &mut entropy };
            let mut plan = site().complete_upload(&b, upload, complete, &mut moment);
            for _ in 0..steps {
                plan = step(plan, &mut c);
            }
            put(&mut c, &b, "k", &ramp(5 * MIB)).unwrap();
            overtaken += usize::from(plan.run(&mut c).unwrap().overtaken);
            collect_garbage(&mut c);
            let held = held_by(&mut c, &b, "k");
            assert_eq!((c.names(DATA), uploads(&mut c, &b)), (held, vec![]), "{steps} {before}");
            let len = get(&mut c, &b, "k").unwrap().len() as u64;
            assert_eq!((list(&mut c, &b), stats(&mut c, &b)), (vec!["k".into()], (1, len)), "{steps}");
        }
    }
    assert!(overtaken > 0);
}

const UPLOAD: &str = "2~CQ_YtEoZNCNs6kIQaML2jNKGzmxE26g";
const MARKER: &str = "dc5339fc-692a-4314-a86f-9b4193102a07.6232.1";

/// Attributes that a recorded request sets, but for those that each gets.
fn set_by(want: &[Value]) -> Attrs {
    let set = want.iter().filter(|op| op[0] == "set_xattr");
    let mut attrs: Attrs = set.map(|op| (bytes(&op[1]), bytes(&op[2]))).collect();
    attrs.remove(attr::SOURCE_ZONE);
    attrs
}

#[test]
fn uploads_are_made_as_radosgw_makes_them() {
    let mut c = Cluster::default();
    let (b, site) = (recorded_bucket(), Site { instance: 6230, ..session() });
    let meta = format!("{MARKER}__multipart_whole.{UPLOAD}.meta");
    let shard = site.index_object(&b, b"whole").unwrap();
    Plan::ask(Request::new(shard).call(&index::INIT, &classes::client::Nothing)).run(&mut c).unwrap();
    let recorded = requests(&meta);
    let told = [&UPLOAD.as_bytes()[2..], &b"WS0ZdMGe9mQKKDttSnOnGNrl1zkWtXX"[..]];
    let mut entropy = Told::letters(&told);
    let mut moment = Moment { now: NOW, entropy: &mut entropy };
    let rule = PlacementRule::named("default-placement");
    let begun = site.begin_upload(&b, "whole".into(), rule, set_by(&recorded[0]), &mut moment);
    let upload = begun.run(&mut c).unwrap();
    assert_eq!(ops(asked(&c.done, &meta)[0]), recorded[0]);

    // The part's time on the list is when it was written there.
    let parts: Vec<PartInfo> = part_lists(&meta);
    for (info, data) in parts.iter().zip([vec![7; 5 << 20], b"end".to_vec()]) {
        let oid = format!("{MARKER}__multipart_whole.{UPLOAD}.{}", info.number);
        let want = with(&oid, "obj_store_pg_ver");
        let mut entropy = types::SeededEntropy(1);
        let mut moment = Moment { now: NOW, entropy: &mut entropy };
        let (mut attrs, etag) = (set_by(&want), info.etag.clone());
        attrs.remove(attr::ETAG);
        let (accounted_size, compression) = (None, Compression::default());
        let finish =
            FinishPart { attrs, etag, accounted_size, compression, checksum: None, now: info.modified };
        let written = site
            .put_part(&b, upload.clone(), info.number, &mut moment)
            .and_then(|part| part.write(data.into()))
            .and_then(|part| part.finish(finish))
            .run(&mut c)
            .unwrap();
        assert_eq!(&written, info);
        let got = asked(&c.done, &oid);
        assert_eq!((ops(got[0])[0].clone(), ops(got[1])), (json!(["create", 1]), want));
    }
    complete_as_recorded(&mut c, &b, &site, upload, &parts);
    assert_eq!(ops(asked(&c.done, &meta).last().unwrap()), *recorded.last().unwrap());
    let is_lock = |ops: &Vec<Value>| ops.first().is_some_and(|op| op[1] == "lock");
    let lock = asked(&c.done, &meta).into_iter().map(ops).find(is_lock);
    assert_eq!(lock.as_ref(), recorded.iter().find(|ops| is_lock(ops)));
}

/// What the session put on an upload's list.
fn part_lists(meta: &str) -> Vec<PartInfo> {
    let session = include_str!("../../../classes/tests/data/radosgw.jsonl");
    let objects = session.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let object = objects.into_iter().find(|o| o["object"] == meta).unwrap();
    let sets = object["requests"].as_array().unwrap().iter().filter(|r| r["ops"][0][0] == "omap_set");
    let values = sets.flat_map(|r| r["ops"][0][1].as_object().unwrap().values().cloned().collect::<Vec<_>>());
    values.map(|raw| PartInfo::from_bytes(bytes(&raw)).unwrap()).collect()
}

fn complete_as_recorded(
    c: &mut Cluster,
    b: &SharedBucket,
    site: &Site,
    upload: UploadId,
    parts: &[PartInfo],
) {
    let whole = format!("{MARKER}_whole");
    let want = with(&whole, "create");
    let tag = String::from_utf8(text(&argument(&want, "set_xattr", 2)).to_vec()).unwrap();
    let complete = Complete {
        parts: parts.iter().map(|p| (p.number, p.etag.clone())).collect(),
        etag: |_| "46d35c5ad9bc6410d1564c87922ac597-2".into(),
        condition: Condition::Any,
        of_parts: None,
        number: tag.rsplit('.').next().unwrap().parse().unwrap(),
        now: RealTime::default(),
    };
    let mut entropy = types::SeededEntropy(2);
    let mut moment = Moment { now: NOW, entropy: &mut entropy };
    site.complete_upload(b, upload, complete, &mut moment).run(c).unwrap();
    let got = asked(&c.done, &whole)[0];
    // The upload's own version in its placement group goes over to the whole; here it is another one.
    let version = |op: &Value| op[1].as_str().is_some_and(|name| *bytes(&name.into()) == *attr::PG_VERSION);
    let others = |ops: &[Value]| ops.iter().filter(|op| !version(op)).cloned().collect::<Vec<_>>();
    assert_eq!(others(&ops(got)), others(&want));
    assert!(got.ops.iter().any(|op| matches!(op, Op::SetAttr { name, .. } if name == attr::PG_VERSION)));
}
