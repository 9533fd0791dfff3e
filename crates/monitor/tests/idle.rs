//! What a manager of Ceph's says of an idle cluster, and how few entries of the log that takes.

use crate::common;

use codec::Encode;
use common::{FSID, World, addr};
use messages::Message;
use messages::log::{LogEntry, MLog};
use messages::mgr::{MMgrBeacon, MMonMgrReport};
use messages::pg_map_digest::PgMapDigest;
use messages::stats::{PoolStat, StoreStatfs};
use types::{AddrVec, ConnId, PoolId};

/// Of mgr.z, which is Ceph's.
fn beacon() -> MMgrBeacon {
    MMgrBeacon {
        gid: 1,
        name: "z".to_owned(),
        addrs: AddrVec::single(addr("v2:127.0.0.1:6790/1")),
        available: true,
        fsid: FSID,
        ..MMgrBeacon::default()
    }
}

fn pool_stat(objects: i64) -> PoolStat {
    let mut stat = PoolStat::default();
    stat.stats.sum.num_objects = objects;
    stat
}

/// Pool 1 with so many of its 8 PGs clean; no client does anything.
fn digest(clean: i32) -> PgMapDigest {
    let mut d = PgMapDigest { num_pg: 8, num_osd: 1, ..PgMapDigest::default() };
    d.pools = [(1, pool_stat(7))].into();
    d.num_pg_by_pool = [(PoolId(1), 8)].into();
    d.num_pg_by_state = [(0x82, clean), (0x402, 8 - clean)].into();
    d.osd_sum.statfs = StoreStatfs { total: 1_000 << 20, available: 900 << 20, ..StoreStatfs::default() };
    d.osd_sum.num_osds = 1;
    d
}

fn report(digest: &PgMapDigest) -> MMonMgrReport {
    MMonMgrReport { gid: 1, digest: digest.to_bytes(), ..MMonMgrReport::default() }
}

/// With Ceph's manager in charge: an administrator's session, and the manager's.
fn under_ceph() -> (World, ConnId, ConnId) {
    let mut w = World::new();
    let admin = w.admin();
    common::boot_osd(&mut w, 0);
    w.command(admin, r#"{"prefix":"osd pool create","pool":"p","pg_num":8}"#);
    let mgr = w.connect(50, "mgr.z", 4_200, "v2:127.0.0.1:6790/1");
    w.send(mgr, beacon());
    w.take();
    (w, admin, mgr)
}

/// Ceph's manager says what PGs are like after each report: the line goes with the next entry of the log.
#[test]
fn lines_that_nobody_waits_for_make_no_entry_of_their_own() {
    let (mut w, admin, mgr) = under_ceph();
    w.send(mgr, report(&digest(8)));
    w.tick(30);
    let line = |seq, priority| {
        let channel = "cluster".to_owned();
        let entry = LogEntry { seq, priority, channel, text: format!("pgmap v{seq}"), ..LogEntry::default() };
        MLog { fsid: FSID, entries: vec![entry], ..MLog::default() }
    };
    let kept = |w: &mut World| {
        let acks = w.sent(mgr).into_iter().filter_map(|m| match m {
            Message::LogAck(ack) => Some(ack.last),
            _ => None,
        });
        acks.collect::<Vec<_>>()
    };
    let index = w.index;
    w.send(mgr, line(1, 0));
    assert_eq!((w.index, kept(&mut w)), (index, vec![]));
    w.send(mgr, report(&digest(7)));
    assert_eq!((w.index, kept(&mut w)), (index + 1, vec![1]), "one entry for both");
    // Alone it waits for a while, and no other line waits.
    w.send(mgr, line(2, 0));
    w.send(mgr, beacon());
    w.tick(35);
    assert!(kept(&mut w).is_empty(), "a beacon makes no entry to go with");
    w.tick(36);
    assert_eq!(kept(&mut w), [2]);
    w.send(mgr, line(3, 0));
    w.send(mgr, line(4, 1));
    assert_eq!(kept(&mut w), [3, 4]);
    w.send(admin, line(5, 0));
    assert!(w.mon.state().log.channels["cluster"].back().is_some_and(|(_, e)| e.text == "pgmap v5"));
}

/// Nobody notices by how much an OSD's own log has grown: that waits for another entry, or for five seconds.
#[test]
fn digests_of_an_idle_cluster_share_entries() {
    let (mut w, admin, mgr) = under_ceph();
    let idle = |available: u64| {
        let mut d = digest(8);
        d.osd_sum.statfs.available = available << 20;
        d
    };
    let known = |w: &World| w.mon.state().digest.statfs().available >> 20;
    // What the first report changes is said in the log.
    w.tick(20);
    w.send(mgr, report(&idle(901)));
    [21, 26, 30].into_iter().for_each(|at| w.tick(at));
    w.send(mgr, report(&idle(900)));
    let index = w.index;
    assert_eq!(known(&w), 900);
    for (at, available) in [(31, 899), (33, 898), (34, 897)] {
        w.tick(at);
        w.send(mgr, report(&idle(available)));
        w.send(mgr, beacon());
    }
    assert_eq!((w.index, known(&w)), (index, 900));
    w.tick(35);
    assert_eq!((w.index, known(&w)), (index + 1, 897), "the newest of them");
    w.send(mgr, report(&idle(896)));
    assert_eq!(known(&w), 897);
    w.command(admin, r#"{"prefix":"config set","who":"osd","name":"osd_max_backfills","value":"2"}"#);
    assert_eq!((w.index, known(&w)), (index + 2, 896), "with another entry");

    // As the monitors know it again: nothing waits any more.
    w.send(mgr, report(&idle(895)));
    w.send(mgr, report(&idle(896)));
    w.tick(40);
    assert_eq!((w.index, known(&w)), (index + 2, 896));

    // News at once, and what has waited is old then.
    w.send(mgr, report(&idle(895)));
    assert_eq!((w.index, known(&w)), (index + 3, 895), "the last one was long ago");
    w.send(mgr, report(&idle(500)));
    let mut degraded = digest(7);
    degraded.osd_sum.statfs.available = 894 << 20;
    w.send(mgr, report(&degraded));
    assert_eq!((w.index, known(&w)), (index + 4, 894));
    w.send(mgr, report(&idle(893)));
    let mut fuller = idle(892);
    fuller.pools.insert(1, pool_stat(8));
    w.send(mgr, report(&fuller));
    let mut busy = fuller.clone();
    (busy.sum_delta, busy.sum_delta_span) = (pool_stat(1), types::Utime::new(1, 0));
    busy.sum_delta.stats.sum.num_wr = 9;
    w.send(mgr, report(&busy));
    w.send(mgr, report(&fuller));
    assert_eq!((w.index, known(&w)), (index + 8, 892), "PGs, objects, rates that come and go");

    // Of a manager that has lost its place nothing is taken.
    fuller.osd_sum.statfs.available = 500 << 20;
    w.send(mgr, report(&fuller));
    w.command(admin, r#"{"prefix":"mgr fail","who":"z"}"#);
    w.tick(46);
    assert_eq!(known(&w), 892);
}
