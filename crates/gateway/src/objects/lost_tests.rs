//! Requests of which no answer comes, in time or ever: they may be done, or be done later. Nothing that was
//! acknowledged, and nothing that is there, rests on objects that are gone.

use super::tests::*;
use super::upload_tests::{abort, begin, complete, part, uploads};
use super::*;
use crate::cluster::{Cluster, Lost, site};

/// Loses the answers of a change one after the other; what the change may leave `hold` looks at.
fn check<T: std::fmt::Debug>(
    prepare: impl Fn(&mut Cluster, &SharedBucket),
    change: impl Fn(&mut Cluster, &SharedBucket) -> Result<T, Error>,
    hold: impl Fn(&mut Cluster, &SharedBucket, Result<T, Error>, Lost),
) {
    for is_late in [false, true] {
        for after in 0.. {
            let mut c = Cluster::default();
            let b = bucket(&mut c);
            with_queues(&mut c);
            prepare(&mut c, &b);
            let lost = Lost { after, is_late };
            c.lost = Some(lost);
            let done = change(&mut c, &b);
            if c.lost.take().is_some() {
                assert!(after > 1 && done.is_ok(), "{after} {done:?}");
                break;
            }
            c.catch_up();
            collect_garbage(&mut c);
            hold(&mut c, &b, done, lost);
        }
    }
}

/// What listings show is there, and what is there they show.
fn listed_as_it_is(c: &mut Cluster, b: &SharedBucket, at: Lost) {
    let there: Vec<String> = ["from", "k"]
        .into_iter()
        .filter(|key| get(c, b, key) != Err(Error::NoSuchKey))
        .map(Into::into)
        .collect();
    assert_eq!(list(c, b), there, "{at:?}");
    // What the index learns from a listing counts when a change can be under way no longer.
    c.pass(200);
    assert_eq!(list(c, b), there, "{at:?}");
    let bytes: usize = there.iter().map(|key| get(c, b, key).unwrap().len()).sum();
    assert_eq!(stats(c, b), (there.len() as u64, bytes as u64), "{at:?}");
}

#[test]
fn an_object_that_may_be_written_keeps_its_tail() {
    let (old, new) = (ramp(6 * MIB), ramp(5 * MIB));
    for replaces in [false, true] {
        check(
            |c, b| {
                replaces.then(|| put(c, b, "k", &old).unwrap());
            },
            |c, b| put(c, b, "k", &new),
            |c, b, done, at| {
                let found = get(c, b, "k");
                match done.is_ok() {
                    true => assert!(found.as_ref().is_ok_and(|found| *found == new), "{at:?}"),
                    false if replaces => {
                        assert!(found.as_ref().is_ok_and(|f| *f == new || *f == old), "{at:?}");
                    }
                    false => {
                        let whole = found.as_ref().map_or_else(|e| *e == Error::NoSuchKey, |f| *f == new);
                        assert!(whole, "{at:?}");
                    }
                }
                listed_as_it_is(c, b, at);
            },
        );
    }
}

#[test]
fn a_copy_that_may_be_there_keeps_its_references() {
    let data = ramp(6 * MIB);
    check(
        |c, b| {
            put(c, b, "from", &data).unwrap();
        },
        |c, b| copy(c, b, "from", "k"),
        |c, b, done, at| {
            let found = get(c, b, "k");
            assert!(found.is_ok() || done.is_err(), "{at:?}");
            remove(c, b, "from").unwrap();
            collect_garbage(c);
            if found.is_ok() {
                assert!(get(c, b, "k").is_ok_and(|found| found == data), "{at:?}");
            }
            listed_as_it_is(c, b, at);
        },
    );
}

#[test]
fn a_removal_that_may_be_done_leaves_an_object_whole_or_gone() {
    let data = ramp(6 * MIB);
    check(
        |c, b| {
            put(c, b, "k", &data).unwrap();
        },
        |c, b| remove(c, b, "k"),
        |c, b, done, at| {
            match get(c, b, "k") {
                Ok(found) => assert!(done.is_err() && found == data, "{at:?}"),
                Err(e) => assert_eq!(e, Error::NoSuchKey, "{at:?}"),
            }
            listed_as_it_is(c, b, at);
        },
    );
}

#[test]
fn a_part_that_is_sent_again_leaves_the_first_or_takes_its_place() {
    let data = ramp(5 * MIB);
    let begun = std::cell::RefCell::new(None);
    check(
        |c, b| {
            let upload = begin(c, b, "k");
            part(c, b, &upload, 1, &data, "a").unwrap();
            begun.replace(Some(upload));
        },
        |c, b| part(c, b, begun.borrow().as_ref().unwrap(), 1, &data, "b"),
        |c, b, done, at| {
            let begun = begun.borrow();
            let upload = begun.as_ref().unwrap();
            let tags = if done.is_ok() { &["b"][..] } else { &["a", "b"] };
            let made = tags.iter().any(|tag| complete(c, b, upload, &[(1, tag)]).is_ok());
            assert!(made && get(c, b, "k").is_ok_and(|found| found == data), "{at:?} {done:?}");
        },
    );
}

#[test]
fn an_upload_makes_an_object_or_none() {
    let datas = [ramp(5 * MIB), ramp(3)];
    let begun = std::cell::RefCell::new(None);
    check(
        |c, b| {
            let upload = begin(c, b, "k");
            part(c, b, &upload, 1, &datas[0], "a").unwrap();
            begun.replace(Some(upload));
        },
        |c, b| {
            let begun = begun.borrow();
            let upload = begun.as_ref().unwrap();
            part(c, b, upload, 2, &datas[1], "b")?;
            complete(c, b, upload, &[(1, "a"), (2, "b")])
        },
        |c, b, done, at| {
            let whole = datas.concat();
            let found = get(c, b, "k");
            assert!(found.is_ok() || done.is_err(), "{at:?} {done:?}");
            if let Ok(found) = &found {
                assert!(*found == whole, "{at:?}");
            }
            // Whoever goes on with it makes it, or ends it without taking an object's bytes.
            c.pass(601);
            for upload in uploads(c, b) {
                let listed = site().parts(b, &upload, 0).run(c).unwrap().0;
                match listed.len() {
                    2 => drop(complete(c, b, &upload, &[(1, "a"), (2, "b")])),
                    _ => drop(abort(c, b, &upload)),
                }
                collect_garbage(c);
                if found.is_ok() || listed.len() == 2 {
                    assert!(get(c, b, "k").is_ok_and(|found| found == whole), "{at:?}");
                }
            }
        },
    );
}
