//! Buckets whose index a reshard moves while they are written to.

use classes::client::index;
use codec::Encode;
use types::SeededEntropy;

use super::tests::{MIB, collect_garbage, finish, list, ramp, step};
use super::upload_tests::{begin, joined, part};
use super::versions_tests::{
    ENABLED, SUSPENDED, bucket, get, ids, put, remover, version, versions, with_flags,
};
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
        let init = Request::new(to.clone()).call(&index::INIT, &init);
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
            let complete = Complete {
                parts: vec![(1, "a".into())],
                etag: joined,
                condition: Condition::Any,
                of_parts: None,
                number: 900,
                now: NOW,
            };
            moment(c, |m| site().complete_upload(b, upload, complete, m))
        });
    }
}

/// Moves the index after each step of a removal, of what is shown or of one of two versions, the newest
/// first. It is removed all the same.
fn check_removal(flags: u32, which: Option<usize>) {
    for steps in 0.. {
        let mut c = Cluster::default();
        let b = with_flags(&bucket(&mut c), flags);
        let first = if flags == SUSPENDED { with_flags(&b, ENABLED) } else { b.clone() };
        put(&mut c, &first, "k", b"old").unwrap();
        put(&mut c, &b, "k", b"new").unwrap();
        let before = ids(&mut c, &b, "k");
        let key = which.map_or(Key::plain("k"), |n| version("k", &before[n]));
        let of = key.clone();
        let mut planned = moment(&c, |m| site().remove_version(&b, of, &remover(), m));
        for _ in 0..steps {
            planned = step(planned, &mut c);
        }
        let Plan::Ask(..) = planned else { break };
        let moved = reshard(&mut c, flags);
        let removed = planned.run(&mut c).unwrap();
        let (is_there, after) = (get(&mut c, &moved, key), ids(&mut c, &moved, "k"));
        let kept = before.into_iter().enumerate().filter(|(n, _)| Some(*n) != which);
        let kept: Vec<Bytes> = kept.map(|(_, id)| id).collect();
        let want = match (flags, which) {
            (0, _) => Vec::new(),
            (_, Some(_)) => kept,
            // In the place of the version without an id.
            (SUSPENDED, None) => vec![removed.version.clone(), kept[1].clone()],
            (_, None) => [vec![removed.version.clone()], kept].concat(),
        };
        assert_eq!((is_there, after), (Err(Error::NoSuchKey), want), "{flags} {which:?} {steps}");
        assert_eq!(removed.is_marker, flags != 0 && which.is_none(), "{flags} {which:?} {steps}");
        c.pass(200);
        let shown = if which == Some(1) { vec!["k"] } else { Vec::new() };
        let shown = if flags != 0 && which == Some(0) { vec!["k"] } else { shown };
        assert_eq!(list(&mut c, &moved), shown, "{flags} {which:?} {steps}");
        assert!(steps < 40);
    }
}

#[test]
fn what_is_removed_is_gone() {
    check_removal(0, None);
    for flags in [ENABLED, SUSPENDED] {
        for which in [None, Some(0), Some(1)] {
            check_removal(flags, which);
        }
    }
}

/// Marks the index as one that moves. Source: RGWRados::Bucket::UpdateIndex::guard_reshard.
fn hold(c: &mut Cluster, b: &SharedBucket) {
    for shard in site().index_objects(b).unwrap() {
        let resharding = rgw::index::Resharding { status: 1, new_instance: "new".into(), shards: 11 };
        let args = index::SetReshardingArgs { resharding };
        Plan::ask(Request::new(shard).call(&index::SET_RESHARDING, &args)).run(c).unwrap();
    }
}

/// Has the index be in motion after each step of what is planned, until it is waited for.
fn check_wait<T: Send + std::fmt::Debug + 'static>(
    flags: u32,
    plan: impl Fn(&mut Cluster, &SharedBucket) -> Plan<T>,
    hold_true: impl Fn(&mut Cluster, &SharedBucket, usize),
) {
    let mut waited = 0;
    for steps in 0.. {
        let mut c = Cluster::default();
        let b = with_flags(&bucket(&mut c), flags);
        put(&mut c, &b, "k", b"old").unwrap();
        let mut planned = plan(&mut c, &b);
        for _ in 0..steps {
            planned = step(planned, &mut c);
        }
        let Plan::Ask(..) = planned else { break };
        hold(&mut c, &b);
        c.meanwhile = Some(Box::new(move |c| drop(reshard(c, flags))));
        planned.run(&mut c).unwrap();
        match c.meanwhile.take() {
            // It was done with the index before.
            Some(meanwhile) => meanwhile(&mut c),
            None => waited += 1,
        }
        let state = site().bucket(&Bytes::new(), &"b".into()).run(&mut c).unwrap();
        let moved = Arc::new(state.instance.value);
        hold_true(&mut c, &moved, steps);
    }
    assert!(waited > 0);
}

#[test]
fn a_put_waits_for_an_index_that_moves() {
    for flags in [0, ENABLED, SUSPENDED] {
        let plan = |c: &mut Cluster, b: &SharedBucket| {
            let upload = moment(c, |m| site().put(b, Key::plain("k"), Bytes::new(), 77, m)).unwrap();
            upload.write("new".into()).and_then(|upload| upload.finish(finish(Condition::Any)))
        };
        check_wait(flags, plan, |c, moved, steps| {
            assert_eq!(get(c, moved, Key::plain("k")).unwrap(), "new", "{flags} {steps}");
            let count = if flags == ENABLED { 2 } else { 1 };
            assert_eq!(ids(c, moved, "k").len(), count, "{flags} {steps}");
        });
    }
}

#[test]
fn a_removal_waits_for_an_index_that_moves() {
    for flags in [0, ENABLED, SUSPENDED] {
        let plan = |c: &mut Cluster, b: &SharedBucket| {
            moment(c, |m| site().remove_version(b, Key::plain("k"), &remover(), m))
        };
        check_wait(flags, plan, |c, moved, steps| {
            assert_eq!(get(c, moved, Key::plain("k")), Err(Error::NoSuchKey), "{flags} {steps}");
            assert_eq!(list(c, moved), Vec::<String>::new(), "{flags} {steps}");
        });
    }
}

/// An index that never comes back is not waited for without end.
#[test]
fn a_move_without_an_end_is_told() {
    let mut c = Cluster::default();
    let b = bucket(&mut c);
    hold(&mut c, &b);
    assert_eq!(put(&mut c, &b, "k", b"x"), Err(Error::Resharding));
    assert_eq!(versions(&mut c, &b, 3), Vec::new());
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
