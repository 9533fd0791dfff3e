//! An object's attributes change beside all else that is done to it: by this core, which leaves the tags, and
//! as radosgw changes them.

use codec::Encode;

use super::tests::*;
use super::upload_tests::{begin, part};
use super::*;
use crate::cluster::{Cluster, NOW, run, site};
use crate::{Op, Plan, Request};

/// Of the object that is there, with a tail.
static OLD: std::sync::OnceLock<Vec<u8>> = std::sync::OnceLock::new();

const TAGS: &str = "user.rgw.x-amz-tagging";

/// How an attribute is changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum By {
    Us,
    Radosgw,
}

fn head(c: &mut Cluster, b: &SharedBucket) -> Option<Head> {
    site().head(b, &Key::plain("k"), 0).run(c).unwrap()
}

fn change(c: &mut Cluster, b: &SharedBucket, by: By, value: &'static str) {
    let Some(head) = head(c, b) else { return };
    if by == By::Us {
        let changes = vec![(TAGS.into(), Some(value.into()))];
        run(c, |moment| site().set_attrs(b, &Key::plain("k"), head, changes, moment)).unwrap();
        return;
    }
    let is = Op::AttrIs { name: Bytes::from_static(attr::ID_TAG), value: head.id_tag().unwrap().clone() };
    let tag = format!("_radosgw.{}\0", c.done.len());
    let request = Request::new(head.object).op(is).set_attr(TAGS, value).set_attr(attr::ID_TAG, tag);
    Plan::ask(request).run(c).unwrap();
}

/// Does something in the middle of a plan; nothing where the plan has no so many steps.
fn amid<T: Send + 'static>(
    mut plan: Plan<T>,
    c: &mut Cluster,
    steps: usize,
    meanwhile: impl FnOnce(&mut Cluster),
) -> Option<Result<T, Error>> {
    for _ in 0..steps {
        plan = step(plan, c);
    }
    let Plan::Ask(..) = plan else { return None };
    meanwhile(c);
    Some(plan.run(c))
}

/// Changes attributes after each step of what is planned for `k`, which has a tail.
fn check<T: std::fmt::Debug + Send + 'static>(
    prepare: impl Fn(&mut Cluster, &SharedBucket),
    plan: impl Fn(&mut Cluster, &SharedBucket) -> Plan<T>,
    hold: impl Fn(&mut Cluster, &SharedBucket, Result<T, Error>, (By, usize)),
) {
    let mut tried = 0;
    for by in [By::Us, By::Radosgw] {
        for steps in 0.. {
            let mut c = Cluster::default();
            let b = bucket(&mut c);
            with_queues(&mut c);
            put(&mut c, &b, "k", OLD.get_or_init(|| ramp(5 * MIB))).unwrap();
            prepare(&mut c, &b);
            let planned = plan(&mut c, &b);
            let Some(done) = amid(planned, &mut c, steps, |c| change(c, &b, by, "meanwhile")) else { break };
            // What garbage collection has by now is nobody's.
            collect_garbage(&mut c);
            hold(&mut c, &b, done, (by, steps));
            tried += 1;
        }
    }
    assert!(tried > 4, "{tried}");
}

fn moment<T>(c: &Cluster, plan: impl FnOnce(&mut crate::Moment) -> T) -> T {
    let mut entropy = types::SeededEntropy(c.done.len() as u64 + 1000);
    plan(&mut crate::Moment { now: NOW, entropy: &mut entropy })
}

#[test]
fn what_is_put_meanwhile_is_there() {
    check(
        |_, _| {},
        |c, b| {
            let upload = moment(c, |m| site().put(b, Key::plain("k"), Bytes::new(), 77, m)).unwrap();
            upload.write("new".into()).and_then(|upload| upload.finish(finish(Condition::Any)))
        },
        |c, b, done, at| {
            assert!(done.is_ok_and(|written| !written.overtaken), "{at:?}");
            assert_eq!((get(c, b, "k"), stats(c, b)), (Ok("new".into()), (1, 3)), "{at:?}");
        },
    );
}

#[test]
fn what_is_removed_meanwhile_is_gone() {
    check(
        |_, _| {},
        |c, b| moment(c, |m| site().remove(b, Key::plain("k"), m)),
        |c, b, done, at| {
            assert_eq!((done, get(c, b, "k")), (Ok(()), Err(Error::NoSuchKey)), "{at:?}");
            assert_eq!((list(c, b), stats(c, b)), (Vec::new(), (0, 0)), "{at:?}");
        },
    );
}

#[test]
fn what_is_completed_meanwhile_is_there() {
    check(
        |_, _| {},
        |c, b| {
            let upload = begin(c, b, "k");
            part(c, b, &upload, 1, b"part", "a").unwrap();
            let complete = Complete {
                parts: vec![(1, "a".into())],
                etag: super::upload_tests::joined,
                condition: Condition::Any,
                of_parts: None,
                number: 900,
                now: NOW,
            };
            moment(c, |m| site().complete_upload(b, upload, complete, m))
        },
        |c, b, done, at| {
            assert!(done.is_ok_and(|written| !written.overtaken), "{at:?}");
            assert_eq!((get(c, b, "k"), stats(c, b)), (Ok("part".into()), (1, 4)), "{at:?}");
        },
    );
}

#[test]
fn what_is_copied_over_meanwhile_is_there() {
    let data = ramp(6 * MIB);
    check(
        |c, b| {
            put(c, b, "from", &data).unwrap();
        },
        |c, b| {
            let opened = run(c, |m| site().open(b, &Key::plain("from"), 0, m)).unwrap();
            let to = copy_to(b, Key::plain("k"), 78);
            moment(c, |m| site().copy(opened, to, m))
        },
        |c, b, done, at| {
            assert!(done.is_ok_and(|written| !written.overtaken), "{at:?}");
            assert!(get(c, b, "k").unwrap() == data, "{at:?}");
        },
    );
}

/// A copy of an object over itself has attributes of the object as it was: when they change meanwhile it is
/// not made, and may be tried again.
#[test]
fn a_copy_over_itself_undoes_no_change_of_attributes() {
    check(
        |_, _| {},
        |c, b| {
            let opened = run(c, |m| site().open(b, &Key::plain("k"), 0, m)).unwrap();
            let finish = Finish { attrs: opened.head.attrs.clone(), ..finish(Condition::Any) };
            let to = CopyTo { finish, ..copy_to(b, Key::plain("k"), 78) };
            moment(c, |m| site().copy(opened, to, m))
        },
        |c, b, done, at| {
            assert!(Some(&get(c, b, "k").unwrap()[..]) == OLD.get().map(|old| &old[..]), "{at:?}");
            let tags = head(c, b).unwrap().attrs.get(TAGS.as_bytes()).cloned();
            assert_eq!(tags, Some("meanwhile".into()), "{at:?} {done:?}");
            assert!(matches!(done, Ok(Written { overtaken: false, .. }) | Err(Error::Raced)), "{done:?}");
        },
    );
}

#[test]
fn a_change_goes_on_beside_another_one() {
    let mut seen = 0;
    for by in [By::Us, By::Radosgw] {
        for steps in 0.. {
            let mut c = Cluster::default();
            let b = bucket(&mut c);
            put(&mut c, &b, "k", b"data").unwrap();
            let read = head(&mut c, &b).unwrap();
            let acl: Bytes = AccessControl::default().to_bytes();
            let changes = vec![(Bytes::from_static(ATTR_ACL), Some(acl.clone()))];
            let plan = moment(&c, |m| site().set_attrs(&b, &Key::plain("k"), read, changes, m));
            let Some(done) = amid(plan, &mut c, steps, |c| change(c, &b, by, "meanwhile")) else { break };
            assert_eq!(done, Ok(NOW), "{by:?} {steps}");
            let after = head(&mut c, &b).unwrap().attrs;
            assert_eq!(after.get(ATTR_ACL), Some(&acl));
            assert_eq!(after.get(TAGS.as_bytes()), Some(&"meanwhile".into()));
            seen += 1;
        }
    }
    assert!(seen > 4, "{seen}");
}

#[test]
fn a_read_goes_on_though_attributes_change() {
    for by in [By::Us, By::Radosgw] {
        let mut c = Cluster::default();
        let b = bucket(&mut c);
        let data = ramp(9 * MIB);
        put(&mut c, &b, "k", &data).unwrap();
        let opened = run(&mut c, |m| site().open(&b, &Key::plain("k"), 1000, m)).unwrap();
        change(&mut c, &b, by, "1");
        assert!(opened.read(0, u64::MAX).run(&mut c).unwrap() == data, "{by:?}");
        change(&mut c, &b, by, "2");
        assert_eq!(opened.read(5, 2000).run(&mut c).unwrap(), data[5..2005], "{by:?}");
        // Another object is not taken for it.
        put(&mut c, &b, "k", &data[1..]).unwrap();
        assert_eq!(opened.read(5, 2000).run(&mut c), Err(Error::Raced));
    }
}
