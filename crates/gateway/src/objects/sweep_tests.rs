//! Garbage that is due goes, and stays where it cannot.

use classes::client::{gc, gc_queue};
use rgw::RawObject;
use types::Errno;

use super::tests::{DATA, MIB, bucket, garbage_of, get, put, ramp, remove, with_queues};
use crate::cluster::{Cluster, site};
use crate::{GARBAGE_SHARDS, Plan, Request, Swept};

fn sweep(c: &mut Cluster) -> usize {
    let of = |shard| site().sweep_garbage(shard).run(c).unwrap();
    let all: Vec<Swept> = (0..GARBAGE_SHARDS).map(of).collect();
    assert!(all.iter().all(|swept| !swept.more));
    all.iter().map(|swept| swept.entries).sum()
}

#[test]
fn garbage_goes_when_it_is_due() {
    for queues in [false, true] {
        let mut c = Cluster::default();
        let b = bucket(&mut c);
        if queues {
            with_queues(&mut c);
        }
        assert_eq!(sweep(&mut c), 0);
        put(&mut c, &b, "gone", &ramp(9 * MIB)).unwrap();
        put(&mut c, &b, "kept", &ramp(5 * MIB)).unwrap();
        remove(&mut c, &b, "gone").unwrap();
        assert_eq!((sweep(&mut c), c.names(DATA).len()), (0, 4));
        c.pass(2 * 3600 + 1);
        assert_eq!((sweep(&mut c), c.names(DATA).len(), sweep(&mut c)), (1, 2, 0), "{queues}");
        assert_eq!(get(&mut c, &b, "kept").unwrap(), ramp(5 * MIB));
    }
}

#[test]
fn garbage_that_cannot_go_stays_on_its_list() {
    let mut c = Cluster::default();
    let b = bucket(&mut c);
    with_queues(&mut c);
    put(&mut c, &b, "k", &ramp(5 * MIB)).unwrap();
    remove(&mut c, &b, "k").unwrap();
    c.pass(2 * 3600 + 1);
    // Of class `refcount`, and of no other that is called here.
    c.refuse = Some(("put", Errno::EIO));
    assert_eq!((sweep(&mut c), garbage_of(&mut c).len()), (0, 1));
    c.refuse = None;
    assert_eq!((sweep(&mut c), garbage_of(&mut c).len(), c.names(DATA).len()), (1, 0, 0));
}

/// A queue gives up entries from its front, by their number: one that is not due yet is not to go for
/// another.
#[test]
fn garbage_behind_what_is_not_due_waits() {
    let mut c = Cluster::default();
    let b = bucket(&mut c);
    with_queues(&mut c);
    for shard in 0..GARBAGE_SHARDS {
        let object = RawObject::new(&site().zone.gc, format!("gc.{shard}"));
        let info = rgw::Garbage { tag: "other".into(), ..rgw::Garbage::default() };
        let args = gc::SetArgs { expires_in_s: 24 * 3600, info };
        Plan::ask(Request::new(object).call(&gc_queue::ENQUEUE, &args)).run(&mut c).unwrap();
    }
    put(&mut c, &b, "k", &ramp(5 * MIB)).unwrap();
    remove(&mut c, &b, "k").unwrap();
    c.pass(2 * 3600 + 1);
    assert_eq!((sweep(&mut c), garbage_of(&mut c).len()), (0, 1));
    c.pass(24 * 3600);
    assert_eq!((sweep(&mut c), garbage_of(&mut c).len()), (GARBAGE_SHARDS as usize + 1, 0));
}
