//! A slice of work that ends: between requests of one object, where those that it leaves stay behind those
//! before them; and in the middle of a request that only reads, which goes on when others had their turn.

use bytes::Bytes;
use messages::Message;
use messages::osd::{Extent, MOsdBackoff, MOsdOp, Op, OsdOp, backoff_op, flags};
use pg::{Input, OsdConfig};
use types::{AuthName, ConnId, EntityType, Errno, PgId, PoolId};

use crate::shares::{MIB, ONE, answer, read, request, with_a_large_object, write};
use crate::sim::Sim;

/// A pool of one PG on so many OSDs that takes writes on two of them; its primary and the others. The client
/// `ONE` has written an object x and knows no backoffs, so that the OSD keeps what it sends.
struct Cluster {
    s: Sim,
    pool: PoolId,
    primary: i32,
    others: Vec<i32>,
}

impl Cluster {
    fn new(osds: u8, seed: u64) -> Self {
        let mut s = Sim::with_config(osds.into(), seed, OsdConfig::default());
        s.until("up", |s| (0..osds.into()).all(|o| s.mon.map.is_up(o)));
        let pool = s.mon.create_pool(osds, 2, 1);
        s.settle();
        let primary = s.mon.map.pg_to_up_acting(PgId::new(pool, 0)).acting_primary;
        let without = types::features::PACIFIC & !types::features::RADOS_BACKOFF;
        s.connect(ONE, |p| p.features = without);
        Self { s, pool, primary, others: (0..osds.into()).filter(|o| *o != primary).collect() }
    }

    fn put(&mut self, tid: u64, msg: MOsdOp) {
        let msg = Message::from(msg);
        self.s.input(self.primary, Input::Message { conn: ConnId(ONE as u64), tid, msg });
    }

    fn object_is_there(&mut self) {
        let msg = request(&self.s, self.pool, "x", vec![write(b"none")]);
        self.put(1, msg);
        assert_eq!(answer(&mut self.s, ONE, 1).0, 0);
    }

    /// More than a slice of work.
    fn heavy(&self) -> MOsdOp {
        let stats = (0..4100).map(|_| Op::Stat.into()).collect();
        MOsdOp { flags: flags::READ, ..request(&self.s, self.pool, "y", stats) }
    }

    /// Puts the requests while too few OSDs are up, starts one, and lets everything but the next slice of the
    /// primary happen once its slice is over. x holds what the last of them wrote.
    fn check(mut self, requests: Vec<MOsdOp>) {
        let tids = 2..2 + requests.len() as u64;
        tids.clone().zip(requests).for_each(|(tid, msg)| self.put(tid, msg));
        self.s.start(self.others[0]);
        self.s.until("a slice that is over", |s| s.nodes[self.primary as usize].again);
        for _ in 0..10 {
            for osd in [self.primary, self.others[0]] {
                self.s.commit(osd);
            }
            self.s.deliver_all(self.primary, self.others[0]);
            self.s.deliver_all(self.others[0], self.primary);
        }
        // The heavy one looks at what is not there.
        tids.for_each(|tid| assert!(answer(&mut self.s, ONE, tid).0 >= -2, "{tid}"));
        let object = self.s.client.object(&self.s.mon.map, self.pool, "x");
        assert_eq!(self.s.stored(self.primary, &object).as_deref(), Some(&b"last"[..]));
    }
}

#[test]
fn who_waits_for_a_write_stays_before_those_that_a_slice_left() {
    let mut c = Cluster::new(2, 5);
    c.object_is_there();
    c.s.kill(c.others[0]);
    c.s.run(200);
    let put = |content: &[u8]| request(&c.s, c.pool, "x", vec![read(), write(content)]);
    let requests = vec![put(b"first"), put(b"second"), c.heavy(), put(b"last")];
    c.check(requests);
}

#[test]
fn who_waits_for_its_object_stays_before_those_that_a_slice_left() {
    let mut c = Cluster::new(3, 5);
    c.s.kill(c.others[0]);
    c.s.run(300);
    // The one that returns lacks it.
    c.object_is_there();
    c.s.kill(c.others[1]);
    c.s.run(300);
    let put = |content: &[u8]| request(&c.s, c.pool, "x", vec![write(content)]);
    let requests = vec![put(b"first"), c.heavy(), put(b"last")];
    c.check(requests);
}

const TWO: i32 = ONE + 1;

/// A client that asks for much, and another one.
struct Two {
    s: Sim,
    pool: PoolId,
}

impl Two {
    /// An object `large` of 20 MiB is there.
    fn new() -> Self {
        let (mut s, pool) = with_a_large_object(600 << 20, 1);
        s.connect(TWO, |p| p.auth_name = AuthName::new(EntityType::Client, "other"));
        s.links.clear();
        Self { s, pool }
    }

    fn put(&mut self, conn: i32, tid: u64, name: &str, ops: Vec<OsdOp>) {
        let msg = Message::from(request(&self.s, self.pool, name, ops));
        self.s.input(0, Input::Message { conn: ConnId(conn as u64), tid, msg });
    }

    fn again(&mut self) {
        self.s.input(0, Input::Again { unread: Default::default(), free_bytes: 1 << 30 });
    }

    fn answers(&self, conn: i32) -> usize {
        self.s.links.get(&(0, conn)).map_or(0, |q| q.len())
    }
}

#[test]
fn a_long_read_goes_on_when_others_had_their_turn() {
    let mut c = Two::new();
    c.put(ONE, 10, "large", vec![Op::Stat.into(), read(), Op::Stat.into()]);
    // Its own requests stay behind it, another client's do not.
    c.put(ONE, 11, "small", vec![write(b"small")]);
    c.put(TWO, 10, "other", vec![write(b"other")]);
    c.put(TWO, 11, "other", vec![Op::Stat.into()]);
    assert_eq!((c.answers(ONE), c.answers(TWO)), (0, 0), "each slice is one turn");
    let mut slices = 0;
    while c.answers(ONE) == 0 {
        slices += 1;
        c.again();
        c.s.commit(0);
    }
    assert_eq!(slices, 5, "of 4 MiB each, for 20 MiB and what the others did");
    assert!(c.answers(TWO) >= 1, "between them");
    let (result, stat) = answer(&mut c.s, ONE, 10);
    assert_eq!((result, stat.is_empty()), (0, false));
    for (conn, tid) in [(ONE, 11), (TWO, 10), (TWO, 11)] {
        assert_eq!(answer(&mut c.s, conn, tid).0, 0, "{conn} {tid}");
    }
}

/// They look at all pieces of what was read.
#[test]
fn long_comparisons_and_checksums_are_of_all_their_bytes() {
    let mut c = Two::new();
    let mut bytes = vec![7; 6 << 20];
    let compare = |data: &[u8]| {
        Vec::from([Op::CmpExt { extent: Extent::new(0, 6 * MIB), data: data.to_vec().into() }.into()])
    };
    c.put(ONE, 10, "large", compare(&bytes));
    assert_eq!(answer(&mut c.s, ONE, 10).0, 0, "equal");
    bytes[5 << 20] = 8;
    c.put(ONE, 11, "large", compare(&bytes));
    assert_eq!(answer(&mut c.s, ONE, 11).0, -(4095 + (5 << 20)), "where they differ");
    let init = Bytes::from_static(&[0xff; 4]);
    let kind = messages::osd::checksum_type::CRC32C;
    let checksum = Op::Checksum { offset: 0, length: 6 * MIB, chunk_size: 2 << 20, kind, init };
    c.put(ONE, 12, "large", vec![checksum.into()]);
    let (result, sums) = answer(&mut c.s, ONE, 12);
    let sum = codec::crc32c(u32::MAX, &[7; 2 << 20]).to_le_bytes();
    assert_eq!((result, &sums[..]), (0, &[&[3, 0, 0, 0], &sum[..], &sum[..], &sum[..]].concat()[..]));
}

/// What it read before and what it reads now are of one moment.
#[test]
fn a_read_begins_anew_where_its_object_changed_meanwhile() {
    let mut c = Two::new();
    c.put(ONE, 10, "large", vec![read()]);
    assert_eq!(c.answers(ONE), 0, "8 of 20 MiB");
    let new = vec![9; 20 << 20];
    c.put(TWO, 10, "large", vec![write(&new)]);
    assert_eq!(answer(&mut c.s, TWO, 10).0, 0);
    let (result, data) = answer(&mut c.s, ONE, 10);
    assert_eq!(result, 0);
    assert!(data == new, "{} bytes that begin with {:?}", data.len(), data.first());
}

/// Writes the first byte.
fn poke(byte: u8) -> OsdOp {
    Op::Write { extent: Extent::new(0, 1), data: vec![byte].into() }.into()
}

/// Each time that it goes on, another client's write has changed its object, and is durable because a third
/// client's requests took the slice of the write.
#[test]
fn no_number_of_writes_keeps_a_long_read_from_its_end() {
    let mut c = Two::new();
    c.put(TWO, 1, "other", vec![write(b"other")]);
    assert_eq!(answer(&mut c.s, TWO, 1).0, 0);
    c.s.connect(TWO + 1, |p| p.auth_name = AuthName::new(EntityType::Client, "third"));
    c.s.links.clear();
    c.put(ONE, 10, "large", vec![read()]);
    (10..30).for_each(|tid| c.put(TWO, tid, "large", vec![poke(tid as u8)]));
    (10..15).for_each(|tid| c.put(TWO + 1, tid, "other", vec![Op::Stat.into(); 4_000]));
    for _ in 0..5 {
        c.again();
        c.s.commit(0);
    }
    assert_eq!(c.answers(ONE), 1, "it began anew once");
    let (result, data) = answer(&mut c.s, ONE, 10);
    assert_eq!((result, data.len() as u64), (0, 20 * MIB));
}

#[test]
fn many_long_reads_are_answered_in_their_order_and_go_with_their_clients() {
    let mut c = Two::new();
    for tid in 10..16 {
        c.put(ONE, tid, "large", vec![read()]);
        c.put(TWO, tid, "large", vec![read(), Op::Stat.into()]);
    }
    c.again();
    c.s.input(0, Input::Disconnected { conn: ConnId(TWO as u64) });
    for tid in 10..16 {
        let (result, data) = answer(&mut c.s, ONE, tid);
        assert_eq!((result, data.len() as u64), (0, 20 * MIB), "{tid}");
        assert!(data.iter().all(|b| *b == 7));
    }
    let order: Vec<u64> = c.s.strangers.iter().filter(|m| m.0 == ONE && m.1 >= 10).map(|m| m.1).collect();
    assert_eq!(order, [10, 11, 12, 13, 14, 15]);
    assert!(!c.s.strangers.iter().any(|m| m.0 == TWO), "nobody hears it");
}

/// What they hold has a bound: the younger one waits from then on.
#[test]
fn of_two_long_reads_that_hold_much_the_oldest_goes_on() {
    let mut c = Two::new();
    c.put(ONE, 10, "large", vec![read(); 5]);
    c.put(TWO, 10, "large", vec![read(); 5]);
    let mut slices = 0;
    while c.answers(ONE) == 0 {
        slices += 1;
        c.again();
    }
    // 64 MiB by turns, and what is then left of the first one's 100.
    assert!((28..36).contains(&slices), "{slices}");
    assert_eq!(c.answers(TWO), 0);
    c.put(ONE, 11, "large", vec![Op::Stat.into()]);
    (0..2).for_each(|_| c.again());
    assert_eq!(c.answers(ONE), 2, "who holds nothing waits for nobody");
    assert_eq!(answer(&mut c.s, TWO, 10).0, 0);
}

/// What it has read so far would keep others waiting.
#[test]
fn who_does_not_read_keeps_nothing_of_a_request_that_paused() {
    let mut c = Two::new();
    c.put(ONE, 10, "large", vec![read(); 5]);
    (0..19).for_each(|_| c.again());
    assert_eq!(c.answers(ONE), 0, "80 of 100 MiB");
    c.put(TWO, 10, "large", vec![read()]);
    let unread = std::collections::BTreeSet::from([ConnId(ONE as u64)]);
    for slice in 1..=5 {
        assert_eq!(c.answers(TWO), 0, "before slice {slice}");
        c.s.input(0, Input::Again { unread: unread.clone(), free_bytes: 1 << 30 });
    }
    assert_eq!(c.answers(TWO), 1);
    assert_eq!(answer(&mut c.s, ONE, 10).0, 0, "when it reads");
}

/// Its answer is what the store read: nothing gathers it.
#[test]
fn a_read_of_an_object_of_an_image_is_one_slice() {
    let mut c = Two::new();
    c.put(ONE, 9, "large", vec![Op::Read(Extent::new(0, MIB / 2)).into()]);
    assert_eq!(c.answers(ONE), 1);
    // The slice has half a mebibyte left.
    c.put(ONE, 10, "large", vec![Op::Read(Extent::new(MIB, 4 * MIB)).into()]);
    assert_eq!(c.answers(ONE), 2);
    assert_eq!(answer(&mut c.s, ONE, 10).1.len() as u64, 4 * MIB);
    c.put(TWO, 10, "large", vec![Op::Read(Extent::new(0, 4 * MIB + 1)).into()]);
    assert_eq!(c.answers(TWO), 0);
}

/// Answers that are known to be too many are refused before the first of them is read.
#[test]
fn what_is_too_much_is_refused_at_once() {
    let mut c = Two::new();
    for tid in 10..20 {
        c.put(ONE, tid, "large", vec![read(); 8]);
    }
    assert_eq!(c.answers(ONE), 10, "in one slice");
    assert_eq!(answer(&mut c.s, ONE, 19).0, Errno::E2BIG.neg());
}

/// A client hears of a backoff while a request that it sent before waits for its turn, and the backoff is
/// over before that turn has come. The request that the backoff dropped comes again, and runs first.
#[test]
fn an_acknowledged_backoff_holds_for_what_was_sent_before() {
    let mut c = Cluster::new(2, 5);
    c.object_is_there();
    let pools = (0..20).map(|_| c.s.mon.create_pool(1, 1, 1)).collect::<Vec<_>>();
    c.s.settle();
    let led = |p: &PoolId| c.s.mon.map.pg_to_up_acting(PgId::new(*p, 0)).acting == [c.primary];
    let other = pools.into_iter().find(led).expect("one of 20");
    c.s.connect(ONE, |_| {});
    c.s.connect(TWO, |p| p.auth_name = AuthName::new(EntityType::Client, "other"));
    c.s.kill(c.others[0]);
    c.s.run(300);
    let heavy = MOsdOp { ops: c.heavy().ops, flags: flags::READ, ..request(&c.s, other, "y", vec![]) };
    for tid in 1..4 {
        let msg = Message::from(heavy.clone());
        c.s.input(c.primary, Input::Message { conn: ConnId(TWO as u64), tid, msg });
    }
    let put = |c: &mut Cluster, tid, content: &[u8]| {
        let msg = request(&c.s, c.pool, "x", vec![write(content)]);
        c.put(tid, msg);
    };
    put(&mut c, 2, b"first");
    put(&mut c, 3, b"last");
    let told = |c: &mut Cluster, op| {
        c.s.deliver_all(c.primary, ONE);
        let all = c.s.strangers.iter().filter(|m| m.0 == ONE);
        let mut told = all.filter_map(|m| match &m.2 {
            Message::OsdBackoff(b) if b.op == op => Some(b.clone()),
            _ => None,
        });
        told.next()
    };
    let block = (0..9).find_map(|_| {
        c.s.input(c.primary, Input::Again { unread: Default::default(), free_bytes: 1 << 30 });
        told(&mut c, backoff_op::BLOCK)
    });
    let ack = MOsdBackoff { op: backoff_op::ACK_BLOCK, ..block.expect("too few members") };
    // Twice makes no difference.
    for _ in 0..2 {
        let msg = Message::from(ack.clone());
        c.s.input(c.primary, Input::Message { conn: ConnId(ONE as u64), tid: 0, msg });
    }
    c.s.unread.insert(ConnId(ONE as u64));
    c.s.start(c.others[0]);
    c.s.until("whole", |s| s.all_are("active+clean"));
    assert!(told(&mut c, backoff_op::UNBLOCK).is_some());
    put(&mut c, 2, b"first");
    put(&mut c, 3, b"last");
    c.s.unread.clear();
    for tid in 2..4 {
        assert_eq!(answer(&mut c.s, ONE, tid).0, 0, "{tid}");
    }
    c.s.settle();
    let object = c.s.client.object(&c.s.mon.map, c.pool, "x");
    assert_eq!(c.s.stored(c.primary, &object).as_deref(), Some(&b"last"[..]));
}
