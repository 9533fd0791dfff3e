//! Requests whose data the device has to read: others are served meanwhile, and each object's requests stay
//! in order.

use bytes::Bytes;
use messages::Message;
use messages::osd::{Extent, MOsdOp, Op, OsdOp};
use pg::{Input, OsdConfig};
use store::{DeviceError, DeviceOp};
use types::{ConnId, PoolId};

use crate::shares::{ONE, answer, read, request, write};
use crate::sim::Sim;

const TWO: i32 = ONE + 1;
const LARGE: usize = 300_000;

/// One OSD whose device has everything and whose memory nothing; the objects a and b have `LARGE` bytes.
struct Cold {
    s: Sim,
    pool: PoolId,
}

impl Cold {
    fn new() -> Self {
        Self::with(LARGE)
    }

    /// With objects of so many bytes.
    fn with(bytes: usize) -> Self {
        let mut s = Sim::with_config(1, 5, OsdConfig::default());
        s.until("up", |s| s.mon.map.is_up(0));
        let pool = s.mon.create_pool(1, 1, 1);
        s.settle();
        let mut c = Self { s, pool };
        [ONE, TWO].into_iter().for_each(|conn| c.s.connect(conn, |_| {}));
        for (tid, name) in (1..).zip(["a", "b"]) {
            c.put(ONE, tid, name, vec![write(&vec![7; bytes])]);
            assert_eq!(answer(&mut c.s, ONE, tid).0, 0);
        }
        c.start_again();
        c
    }

    fn start_again(&mut self) {
        self.s.crash(0);
        self.s.start(0);
        self.s.settle();
        [ONE, TWO].into_iter().for_each(|conn| self.s.connect(conn, |_| {}));
    }

    fn put(&mut self, conn: i32, tid: u64, name: &str, ops: Vec<OsdOp>) {
        let msg: MOsdOp = request(&self.s, self.pool, name, ops);
        self.s.input(0, Input::Message { conn: ConnId(conn as u64), tid, msg: Message::from(msg) });
    }

    fn reads(&self) -> usize {
        self.s.nodes[0].reads.len()
    }

    /// Whether the request was answered by now.
    fn has_answered(&mut self, conn: i32, tid: u64) -> bool {
        self.s.deliver_all(0, conn);
        self.s.strangers.iter().any(|(c, t, _)| (*c, *t) == (conn, tid))
    }

    fn data(&mut self, conn: i32, tid: u64) -> Vec<u8> {
        let (result, data) = answer(&mut self.s, conn, tid);
        assert_eq!(result, 0, "{tid}");
        data.to_vec()
    }
}

#[test]
fn others_are_served_while_the_device_reads() {
    let mut c = Cold::new();
    c.put(ONE, 10, "a", vec![Op::Stat.into(), read(), Op::Stat.into()]);
    c.put(ONE, 11, "a", vec![read()]);
    c.put(TWO, 10, "c", vec![write(b"new")]);
    c.put(TWO, 11, "b", vec![Op::Stat.into()]);
    c.s.commit(0);
    assert_eq!(c.reads(), 2);
    assert!(c.has_answered(TWO, 10) && c.has_answered(TWO, 11));
    assert!(!c.has_answered(ONE, 10) && !c.has_answered(ONE, 11));
    c.s.until("both", |s| s.nodes[0].reads.is_empty());
    assert_eq!(c.data(ONE, 11), [7; LARGE]);
    let (result, stat) = answer(&mut c.s, ONE, 10);
    assert_eq!((result, stat.len()), (0, 16));
}

#[test]
fn writes_of_the_object_wait_behind_the_read_and_others_behind_them() {
    let mut c = Cold::new();
    c.put(ONE, 10, "a", vec![read()]);
    c.put(ONE, 11, "a", vec![write(b"second")]);
    c.put(TWO, 10, "a", vec![read()]);
    c.put(TWO, 11, "b", vec![write(b"b")]);
    c.s.commit(0);
    assert!(c.has_answered(TWO, 11), "another object");
    assert_eq!(c.reads(), 1, "the second read waits for the write");
    assert!(!c.has_answered(ONE, 11));
    assert_eq!(c.data(ONE, 10), [7; LARGE]);
    assert_eq!(c.data(TWO, 10), b"second");
    assert_eq!(answer(&mut c.s, ONE, 11).0, 0);
}

#[test]
fn a_read_that_fails_is_tried_again_by_who_knows_where_the_object_is() {
    let mut c = Cold::new();
    c.put(ONE, 10, "a", vec![read()]);
    let (id, plan) = c.s.nodes[0].reads.pop().expect("a read");
    assert_eq!(plan.asked(), LARGE as u64);
    // As when its blocks are another object's by now.
    let failed = DeviceError::Io { op: DeviceOp::Read, offset: 0, len: 4096, errno: 5 };
    c.s.input(0, Input::Read { id, result: Err(failed.into()) });
    assert!(c.has_answered(ONE, 10));
    assert_eq!((c.reads(), c.data(ONE, 10)), (0, vec![7; LARGE]));
}

#[test]
fn a_read_that_fails_keeps_its_place_before_a_write() {
    let mut c = Cold::new();
    c.put(ONE, 10, "a", vec![read()]);
    c.put(ONE, 11, "a", vec![write(b"after it")]);
    let (id, _) = c.s.nodes[0].reads.pop().expect("a read");
    let failed = DeviceError::Io { op: DeviceOp::Read, offset: 0, len: 4096, errno: 5 };
    c.s.input(0, Input::Read { id, result: Err(failed.into()) });
    assert_eq!(c.data(ONE, 10), [7; LARGE]);
    assert_eq!(answer(&mut c.s, ONE, 11).0, 0);
}

/// It is longer than a slice: the device is asked for it several times.
#[test]
fn a_long_read_keeps_its_place_before_a_write() {
    let mut c = Cold::with(11 << 20);
    c.put(ONE, 10, "a", vec![Op::Stat.into(), read()]);
    c.put(ONE, 11, "a", vec![write(b"after it")]);
    c.put(TWO, 10, "a", vec![read()]);
    let mut pieces = 0;
    while !c.s.nodes[0].reads.is_empty() {
        pieces += usize::from(!c.s.nodes[0].reads[0].1.is_empty());
        c.s.read(0);
    }
    assert!(pieces > 2, "{pieces}");
    assert!(c.has_answered(ONE, 10), "it went on without a turn");
    let replies = c.s.strangers.iter().filter(|m| m.1 == 10 && m.0 == ONE);
    for (_, _, msg) in replies {
        let Message::OsdOpReply(r) = msg else { panic!("{msg:?}") };
        assert_eq!((r.ops[1].output_len(), r.ops[1].outdata[0]), (11 << 20, 7));
    }
    assert_eq!(answer(&mut c.s, ONE, 11).0, 0);
    assert_eq!(c.data(TWO, 10), b"after it");
}

#[test]
fn a_sparse_read_of_many_extents_leaves_the_core_too() {
    let mut c = Cold::new();
    let far = |at: u64| {
        let data = Bytes::from(vec![3; LARGE]);
        Op::Write { extent: Extent::new(at, LARGE as u64), data }.into()
    };
    c.put(ONE, 10, "c", vec![far(0), far(1 << 20), far(2 << 20)]);
    assert_eq!(answer(&mut c.s, ONE, 10).0, 0);
    let sparse =
        |c: &mut Cold, tid| c.put(ONE, tid, "c", vec![Op::SparseRead(Extent::new(0, 4 << 20)).into()]);
    sparse(&mut c, 11);
    let known = c.data(ONE, 11);
    c.start_again();
    sparse(&mut c, 12);
    let mut reads = 0;
    while !c.s.nodes[0].reads.is_empty() {
        c.s.read(0);
        reads += 1;
    }
    assert_eq!((reads, c.data(ONE, 12)), (3, known));
}

#[test]
fn who_waits_behind_a_client_that_leaves_goes_on() {
    let mut c = Cold::new();
    c.put(ONE, 10, "a", vec![read()]);
    c.put(TWO, 10, "a", vec![write(b"after it")]);
    c.s.input(0, Input::Disconnected { conn: ConnId(ONE as u64) });
    c.s.commit(0);
    assert!(c.has_answered(TWO, 10));
    // What is read for the one that left is for nobody.
    let (id, plan) = c.s.nodes[0].reads.pop().expect("a read");
    let result = plan.execute(c.s.nodes[0].device.as_ref());
    c.s.input(0, Input::Read { id, result });
    assert!(!c.has_answered(ONE, 10));
    c.put(TWO, 11, "a", vec![read()]);
    assert_eq!(c.data(TWO, 11), b"after it");
}

/// No request reads for itself, however many there are: each waits for the device.
#[test]
fn many_reads_leave_the_core_and_leave_others_theirs() {
    let mut c = Cold::new();
    let asked = (32 << 20) / LARGE as u64 + 20;
    for tid in 0..asked {
        c.put(ONE, 100 + tid, if tid % 2 == 0 { "a" } else { "b" }, vec![read()]);
    }
    while std::mem::take(&mut c.s.nodes[0].again) {
        c.s.input(0, Input::Again { unread: Default::default(), free_bytes: 1 << 30 });
    }
    assert!((0..asked).all(|tid| !c.has_answered(ONE, 100 + tid)), "the device has read nothing yet");
    c.put(TWO, 10, "a", vec![read()]);
    c.s.input(0, Input::Again { unread: Default::default(), free_bytes: 1 << 30 });
    assert!(!c.has_answered(TWO, 10), "another client's read waits for the device");
    assert_eq!(c.data(TWO, 10).len(), LARGE);
    for tid in 0..asked {
        assert_eq!(c.data(ONE, 100 + tid).len(), LARGE);
    }
}

/// What they hold has a bound: beyond it the oldest goes on, piece by piece, and others wait with what they
/// have.
#[test]
fn of_long_reads_beyond_their_share_the_oldest_goes_on_alone() {
    const PIECE: usize = 4 << 20;
    let mut c = Cold::with(3 * PIECE);
    let long = [100, 101, 102, 103];
    for tid in long {
        c.put(ONE, tid, "a", vec![read(); 3]);
    }
    assert_eq!(c.reads(), 4, "each its first piece");
    let any_answered = |c: &mut Cold| long.iter().any(|tid| c.has_answered(ONE, *tid));
    while c.reads() > 1 {
        c.s.read(0);
        assert!(!any_answered(&mut c), "all go on, until they hold two pieces each");
    }
    c.put(TWO, 10, "b", vec![Op::Read(Extent::new(0, PIECE as u64)).into()]);
    c.s.input(0, Input::Again { unread: Default::default(), free_bytes: 1 << 30 });
    assert_eq!(c.reads(), 2, "another one's read is asked for at once");
    for tid in long {
        while !c.has_answered(ONE, tid) {
            assert!(c.reads() > 0, "{tid} is forgotten");
            c.s.read(0);
        }
        let others = long.iter().filter(|other| c.has_answered(ONE, **other)).count();
        assert!(tid > 100 || others == 1, "the oldest first");
        assert!(c.data(ONE, tid).iter().all(|byte| *byte == 7));
    }
    assert_eq!(c.data(TWO, 10).len(), PIECE);
}

#[test]
fn who_reads_much_leaves_the_device_to_others() {
    let mut c = Cold::new();
    for tid in 0..40 {
        c.put(ONE, 100 + tid, "a", vec![read()]);
    }
    assert_eq!(c.reads(), 8, "what the device is asked for at a time for one client");
    c.put(TWO, 10, "b", vec![read()]);
    assert_eq!(c.reads(), 9, "another one's read is asked for at once");
    // The rest waits; each answer lets one more go.
    c.s.read(0);
    assert_eq!(c.reads(), 9);
    // Reads that the device was not asked for end with their connection.
    c.s.input(0, Input::Disconnected { conn: ConnId(ONE as u64) });
    let mut left = 0;
    while !c.s.nodes[0].reads.is_empty() {
        c.s.read(0);
        left += 1;
    }
    assert_eq!(left, 9);
    assert_eq!(c.data(TWO, 10), [7; LARGE]);
}

#[test]
fn requests_that_read_are_answered_after_another_interval() {
    let mut s = Sim::with_config(2, 5, OsdConfig::default());
    s.until("up", |s| (0..2).all(|o| s.mon.map.is_up(o)));
    let pool = s.mon.create_pool(2, 1, 1);
    s.settle();
    s.client.write(&s.mon.map.clone(), pool, "a", vec![7; LARGE]);
    s.settle();
    let primary = s.mon.map.pg_to_up_acting(types::PgId::new(pool, 0)).acting_primary;
    let other = 1 - primary;
    s.restart(primary);
    s.settle();
    s.client.read(&s.mon.map.clone(), pool, "a");
    s.deliver_requests(primary);
    assert_eq!(s.nodes[primary as usize].reads.len(), 1);
    s.kill(other);
    s.until("the answer, which the model has looked at", |s| s.client.is_idle());
}

/// The primary of a PG on two OSDs, cold, and the other one lacks the object x.
#[test]
fn writes_keep_their_order_whatever_each_has_waited_for() {
    let mut s = Sim::with_config(2, 5, OsdConfig::default());
    s.until("up", |s| (0..2).all(|o| s.mon.map.is_up(o)));
    let pool = s.mon.create_pool(2, 1, 1);
    s.settle();
    let primary = s.mon.map.pg_to_up_acting(types::PgId::new(pool, 0)).acting_primary;
    s.kill(1 - primary);
    s.run(300);
    s.connect(ONE, |_| {});
    let mut c = Two { s, pool, primary };
    c.put(1, vec![write(&[7; LARGE])]);
    assert_eq!(answer(&mut c.s, ONE, 1).0, 0);
    c.s.crash(primary);
    c.s.start(primary);
    c.s.run(300);
    c.s.connect(ONE, |_| {});
    c.s.start(1 - primary);
    let lacks = |s: &mut Sim| s.states().values().any(|s| s.contains("active") && s.contains("degraded"));
    c.s.until("an object that is lacking", |s| s.mon.map.is_up(1 - primary) && lacks(s));
    // The first write waits until the other one has the object; the read does not, and waits for the device.
    c.put(2, vec![write(b"first")]);
    c.put(3, vec![read()]);
    c.put(4, vec![write(b"second")]);
    c.s.until("the device is asked", |s| !s.nodes[primary as usize].reads.is_empty());
    assert!(lacks(&mut c.s), "the first write still waits");
    let (id, plan) = c.s.nodes[primary as usize].reads.pop().expect("a read");
    c.s.until("both have it", |s| !lacks(s));
    c.put(5, vec![write(b"third")]);
    let result = plan.execute(c.s.nodes[primary as usize].device.as_ref());
    c.s.input(primary, Input::Read { id, result });
    let (code, data) = answer(&mut c.s, ONE, 3);
    assert_eq!((code, data.len()), (0, LARGE));
    for tid in [2, 4, 5] {
        assert_eq!(answer(&mut c.s, ONE, tid).0, 0, "{tid}");
    }
    let object = c.s.client.object(&c.s.mon.map, pool, "x");
    assert_eq!(c.s.stored(primary, &object).as_deref(), Some(&b"third"[..]));
    let order: Vec<u64> = c.s.strangers.iter().map(|m| m.1).filter(|tid| [2, 4, 5].contains(tid)).collect();
    assert_eq!(order, [2, 4, 5]);
}

struct Two {
    s: Sim,
    pool: PoolId,
    primary: i32,
}

impl Two {
    fn put(&mut self, tid: u64, ops: Vec<OsdOp>) {
        let msg = Message::from(request(&self.s, self.pool, "x", ops));
        self.s.input(self.primary, Input::Message { conn: ConnId(ONE as u64), tid, msg });
    }
}
