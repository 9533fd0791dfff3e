//! Garbage that is due goes, and stays where it cannot.

use types::Errno;

use super::tests::{DATA, MIB, bucket, garbage_of, get, put, ramp, remove, with_queues};
use crate::cluster::{Cluster, site};
use crate::{GARBAGE_SHARDS, Swept};

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
