//! Buckets whose index a reshard moves while they are written to.

use codec::Encode;
use types::SeededEntropy;

use super::tests::{MIB, collect_garbage, finish, list, ramp, step};
use super::upload_tests::{begin, joined, part};
use super::versions_tests::{ENABLED, SUSPENDED, bucket, get, ids, put, with_flags};
use super::*;
use crate::cluster::{Cluster, NOW, site};
use crate::{Moment, Op, Output, Plan, Request};

/// What radosgw leaves of a bucket that it reshards: another instance with the same entries, the name that
/// leads there, and nothing of the shards from before.
fn reshard(c: &mut Cluster, flags: u32) -> SharedBucket {
    let state = site().bucket(&Bytes::new(), &"b".into()).run(c).unwrap();
    let old = state.instance.value;
    let mut new = old.clone();
    new.flags = rgw::Versioning(flags);
    new.bucket.id = "zone-id.4161.moved".into();
    let object = site().instance_object(&new.bucket);
    Plan::ask(Request::new(object).op(Op::WriteFull(new.to_bytes()))).run(c).unwrap();
    let entry = rgw::EntryPoint { bucket: new.bucket.clone(), ..state.entry.value };
    let object = site().entry_object(&Bytes::new(), &"b".into());
    Plan::ask(Request::new(object).op(Op::WriteFull(entry.to_bytes()))).run(c).unwrap();
    let shards = site().index_objects(&old).unwrap().into_iter().zip(site().index_objects(&new).unwrap());
    for (from, to) in shards {
        let list = Request::new(from.clone()).op(Op::OmapList { after: Bytes::new(), max: 1000 });
        let Some(Output::Page { entries, .. }) = Plan::ask(list).run(c).unwrap().outputs.into_iter().next()
        else {
            panic!()
        };
        let init = classes::client::Nothing;
        let init = Request::new(to.clone()).call(&classes::client::index::INIT, &init);
        Plan::ask(init).run(c).unwrap();
        Plan::ask(Request::new(to).op(Op::OmapSet(entries.into_iter().collect()))).run(c).unwrap();
        Plan::ask(Request::new(from).op(Op::Remove { may_miss: false })).run(c).unwrap();
    }
    Arc::new(new)
}

/// Moves the index after each step of a write over what is there. What has begun is there then, and what
/// could not begin left all as it was.
fn check(flags: u32, plan: impl Fn(&mut Cluster, &SharedBucket) -> Plan<Written>) {
    let old = ramp(5 * MIB);
    let mut written = 0;
    for steps in 0.. {
        let mut c = Cluster::default();
        let b = with_flags(&bucket(&mut c), flags);
        let first = put(&mut c, &b, "k", &old).unwrap();
        let mut planned = plan(&mut c, &b);
        for _ in 0..steps {
            planned = step(planned, &mut c);
        }
        let Plan::Ask(..) = planned else { break };
        let moved = reshard(&mut c, flags);
        let done = planned.run(&mut c);
        collect_garbage(&mut c);
        let found = get(&mut c, &moved, Key::plain("k")).unwrap();
        match done {
            Ok(done) => {
                assert!(!done.overtaken && found == "new", "{flags} {steps}");
                written += 1;
                if flags == ENABLED {
                    assert_eq!(ids(&mut c, &moved, "k"), [done.version, first], "{steps}");
                }
            }
            // Not begun, or begun and not shown.
            Err(Error::NoSuchBucket | Error::NoSuchUpload) => assert!(found == old, "{flags} {steps}"),
            Err(e) => panic!("{flags} {steps}: {e:?}"),
        }
        c.pass(200);
        assert_eq!(list(&mut c, &moved), ["k"], "{flags} {steps}");
        // Also after what a listing tells.
        assert_eq!(list(&mut c, &moved), ["k"], "{flags} {steps}");
    }
    assert!(written > 1, "{written}");
}

fn moment<T>(c: &Cluster, plan: impl FnOnce(&mut Moment) -> T) -> T {
    let mut entropy = SeededEntropy(c.done.len() as u64 + 1000);
    plan(&mut Moment { now: NOW, entropy: &mut entropy })
}

#[test]
fn what_is_put_is_there() {
    for flags in [0, ENABLED, SUSPENDED] {
        check(flags, |c, b| {
            let upload = moment(c, |m| site().put(b, Key::plain("k"), Bytes::new(), 77, m)).unwrap();
            upload.write("new".into()).and_then(|upload| upload.finish(finish(Condition::Any)))
        });
    }
}

#[test]
fn what_is_completed_is_there() {
    for flags in [0, ENABLED] {
        check(flags, |c, b| {
            let upload = begin(c, b, "k");
            part(c, b, &upload, 1, b"new", "a").unwrap();
            let complete = Complete { parts: vec![(1, "a".into())], etag: joined, number: 900, now: NOW };
            moment(c, |m| site().complete_upload(b, upload, complete, m))
        });
    }
}

/// A bucket that is gone takes with it what comes too late.
#[test]
fn what_is_put_into_a_bucket_that_is_gone_goes_too() {
    let mut c = Cluster::default();
    let b = with_flags(&bucket(&mut c), 0);
    let upload = moment(&c, |m| site().put(&b, Key::plain("k"), Bytes::new(), 77, m)).unwrap();
    let data = Bytes::from(ramp(5 * MIB));
    let mut planned = upload.write(data).and_then(|upload| upload.finish(finish(Condition::Any)));
    // The tail, the index, the head.
    for _ in 0..3 {
        planned = step(planned, &mut c);
    }
    for object in site().index_objects(&b).unwrap() {
        Plan::ask(Request::new(object).op(Op::Remove { may_miss: false })).run(&mut c).unwrap();
    }
    let entry = site().entry_object(&Bytes::new(), &"b".into());
    Plan::ask(Request::new(entry).op(Op::Remove { may_miss: false })).run(&mut c).unwrap();
    assert_eq!(planned.run(&mut c), Err(Error::NoSuchBucket));
    assert_eq!(c.names(super::tests::DATA), Vec::<String>::new());
}
