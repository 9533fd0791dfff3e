//! A slice of work that ends between requests of one object: those that it leaves stay behind those before
//! them.

use messages::Message;
use messages::osd::{MOsdOp, Op, flags};
use pg::{Input, OsdConfig};
use types::{ConnId, PgId, PoolId};

use crate::shares::{ONE, answer, read, request, write};
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
