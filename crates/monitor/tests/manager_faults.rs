//! What managers say that cannot be: it is refused or bounded, counted, and said in the log once.

use crate::common;

use codec::Encode;
use common::World;
use messages::mgr::{HealthCheck, MMgrBeacon, MMonMgrReport, MPgDigest, ProgressEvent};
use messages::stats::StoreStatfs;
use types::{AddrVec, PoolId, SnapId};

use crate::common::addr;
use crate::managers::{beacon, digest, pool_stat, report, under_ceph};

/// One of the monitor's own counters.
pub fn counted(w: &mut World, name: &str) -> u64 {
    let cmd = r#"{"prefix":"perf dump","logger":"mon"}"#.to_owned();
    let reply = w.mon.daemon_command(w.now, &[cmd]);
    let all: serde_json::Value = serde_json::from_slice(&reply.data).expect("JSON");
    all["mon"][name].as_u64().expect("a counter")
}

/// Warnings in the cluster log.
pub fn log(w: &World) -> Vec<String> {
    let log = w.mon.state().log.last(100, monitor::state::Priority::Warn, "cluster");
    log.iter().map(|e| e.text.clone()).collect()
}

pub fn refusals(w: &World) -> usize {
    log(w).iter().filter(|text| text.contains("was refused")).count()
}

#[test]
fn reports_that_say_nonsense_are_bounded_or_refused_and_said_once() {
    let (mut w, admin, mgr) = under_ceph();
    w.send(mgr, report(1, &digest(8)));
    let good = w.mon.state().digest.clone();
    for digest in [vec![0; (16 << 20) + 1], digest(8).to_bytes().slice(..50).to_vec()] {
        w.send(mgr, MMonMgrReport { gid: 1, digest: digest.into(), ..MMonMgrReport::default() });
    }
    let map = vec![0; (1 << 20) + 1].into();
    w.send(mgr, MMonMgrReport { service_map: map, ..report(1, &digest(3)) });
    w.send(mgr, MMonMgrReport { service_map: vec![1, 2, 3].into(), ..report(1, &digest(3)) });
    assert_eq!((w.mon.state().digest.clone(), refusals(&w)), (good, 2), "refused whole, and said by kind");
    assert_eq!((counted(&mut w, "mgr_refused"), counted(&mut w, "mgr_bounded")), (4, 2));

    // Sums that cannot be.
    let mut wild = digest(8);
    let mut stat = pool_stat(-7, i64::MAX);
    (stat.stats.sum.num_rd_kb, stat.stats.sum.num_object_copies) = (i64::MAX, i64::MIN);
    (stat.store_stats.allocated, stat.store_stats.omap_allocated) = (i64::MAX, i64::MIN);
    (stat.store_stats.data_stored, stat.stats.sum.num_objects_degraded) = (i64::MAX, i64::MAX);
    wild.pools.insert(1, stat);
    wild.sum_delta = stat;
    wild.sum_delta_span = types::Utime::new(0, 1);
    wild.pool_deltas = [(PoolId(1), (stat, types::Utime::ZERO))].into();
    wild.num_pg_by_pool = [(PoolId(1), i64::MAX)].into();
    wild.num_pg_by_state = [(0x82, i32::MAX), (0, i32::MIN), (1, i32::MAX)].into();
    wild.osd_sum.statfs = StoreStatfs { total: 5, available: u64::MAX, ..StoreStatfs::default() };
    wild.avail_by_rule = [(0, i64::MIN)].into();
    wild.purged_snaps = [(PoolId(1), vec![(SnapId(u64::MAX), 5), (SnapId(4), 0)])].into();
    w.send(mgr, report(1, &wild));
    let pools = &w.mon.state().digest.pools;
    assert_eq!(pools.get(&PoolId(1)).map(|p| p.stat.stats.sum.num_objects), Some(0));
    assert!(w.mon.state().digest.purged_snaps.is_empty());
    w.send(mgr, report(1, &wild));
    assert_eq!((counted(&mut w, "mgr_refused"), counted(&mut w, "mgr_bounded")), (4, 8));
    assert_eq!(cuts(&w, "pools with sums that cannot be"), 1);
    for command in ["status", "df", "osd pool stats", "health", "report"] {
        for format in ["plain", "json"] {
            let cmd = format!(r#"{{"prefix":"{command}","detail":"detail","format":"{format}"}}"#);
            let (code, text, _) = w.command(admin, &cmd);
            assert_ne!(code, -5, "{command}: {text}");
        }
    }

    // More checks and events than anybody reads.
    let mut loud = report(1, &digest(8));
    let check = HealthCheck { severity: 1, detail: vec!["x".to_owned(); 300], ..HealthCheck::default() };
    loud.checks.checks = (0..300).map(|i| (format!("CHECK_{i}"), check.clone())).collect();
    loud.progress = (0..300).map(|i| (i.to_string(), ProgressEvent::default())).collect();
    let before = counted(&mut w, "mgr_bounded");
    w.send(mgr, loud.clone());
    w.send(mgr, loud);
    // Of each: 44 checks and events, of each check 44 lines, and the two pools that the digest always has.
    assert_eq!(counted(&mut w, "mgr_bounded") - before, 2 * (44 + 44 + 300 * 44 + 2));
    assert_eq!(cuts(&w, "13288 checks, lines of checks or events beyond what is kept"), 1);
    let d = &w.mon.state().digest;
    assert_eq!((d.checks.len(), d.progress.len()), (256, 256));
    assert!(d.checks.values().all(|c| c.detail.len() == 256));
}

fn cuts(w: &World, what: &str) -> usize {
    log(w).iter().filter(|text| text.contains(" was cut: ") && text.contains(what)).count()
}

#[test]
fn pools_that_never_were_are_left_out_and_said() {
    let (mut w, admin, mgr) = under_ceph();
    // Of the pools in the digest one exists; 99 and -3 never did.
    for _ in 0..2 {
        w.send(mgr, report(1, &digest(8)));
    }
    assert_eq!((counted(&mut w, "mgr_bounded"), cuts(&w, "2 pools that never were")), (4, 1));
    // One that was removed may be in the reports that follow.
    let (code, ..) = w.command(
        admin,
        r#"{"prefix":"osd pool delete","pool":"p","pool2":"p","yes_i_really_really_mean_it":true}"#,
    );
    assert_eq!(code, 0);
    let mut of_before = digest(8);
    of_before.pools.retain(|id, _| *id == 1);
    w.send(mgr, report(1, &of_before));
    assert_eq!((counted(&mut w, "mgr_bounded"), cuts(&w, "")), (4, 1));
}

#[test]
fn what_a_manager_says_that_is_not_in_charge_is_counted() {
    let (mut w, _, mgr) = under_ceph();
    w.send(mgr, report(1, &digest(8)));
    let good = w.mon.state().digest.clone();
    for _ in 0..2 {
        w.send(mgr, report(2, &digest(3)));
        w.send(mgr, MPgDigest { gid: 3, ..MPgDigest::default() });
    }
    assert_eq!(w.mon.state().digest, good, "somebody else's");
    assert_eq!(counted(&mut w, "mgr_refused"), 4);
    let entries = w.mon.state().log.last(100, monitor::state::Priority::Info, "cluster");
    let said = entries.iter().filter(|e| e.text.ends_with("was refused: it is not in charge")).count();
    assert_eq!(said, 2, "once of each");
}

/// A good report between bad ones does not make them news.
#[test]
fn a_fault_is_said_once_while_the_same_manager_is_in_charge() {
    let (mut w, admin, mgr) = under_ceph();
    let cut =
        |gid| MMonMgrReport { gid, digest: digest(8).to_bytes().slice(..50), ..MMonMgrReport::default() };
    for _ in 0..3 {
        w.send(mgr, cut(1));
        w.send(mgr, report(1, &digest(8)));
    }
    assert_eq!((counted(&mut w, "mgr_refused"), refusals(&w)), (3, 1));
    w.send(mgr, beacon("y", 2, false));
    w.command(admin, r#"{"prefix":"mgr fail"}"#);
    w.send(mgr, beacon("y", 2, false));
    w.send(mgr, cut(2));
    assert_eq!((counted(&mut w, "mgr_refused"), refusals(&w)), (4, 2), "another one's");
    // Numbers without end fill no log.
    for gid in 1_000..1_600 {
        w.send(mgr, cut(gid));
    }
    let entries = w.mon.state().log.last(2_000, monitor::state::Priority::Info, "cluster");
    assert_eq!(entries.iter().filter(|e| e.text.contains("was refused")).count(), 2 + 255);
    assert_eq!(counted(&mut w, "mgr_refused"), 604);
}

#[test]
fn a_managers_beacon_speaks_for_its_sender_alone() {
    let mut w = World::new();
    let mgr = w.manager("x", 5);
    let at = |count: u32| AddrVec((0..count).map(|n| addr(&format!("v2:127.0.0.1:6790/{n}"))).collect());
    let many = MMgrBeacon { addrs: at(9), ..beacon("x", 5, true) };
    let of_clients = MMgrBeacon {
        client_names: vec!["volumes".to_owned()],
        client_addrs: vec![at(9)],
        ..beacon("x", 5, true)
    };
    for wrong in [beacon("x", 6, true), beacon("y", 5, true), beacon("y", 6, true), many, of_clients] {
        w.send(mgr, wrong.clone());
        assert_eq!(w.mon.state().mgr.active, None, "{wrong:?}");
    }
    assert_eq!(counted(&mut w, "mgr_refused"), 5);
    assert_eq!(refusals(&w), 2, "each kind is said once");
    w.send(mgr, MMgrBeacon { addrs: at(8), ..beacon("x", 5, true) });
    assert_eq!(w.mon.state().mgr.active.as_ref().map(|a| a.gid), Some(5));
}

/// Two processes with one manager's key, whose beacons each push the other out of its place.
#[test]
fn two_managers_of_one_name_do_not_fill_the_log() {
    let (mut w, _, mgr) = under_ceph();
    let begin = w.mon.state().osdmap().epoch;
    let active = |w: &World| w.mon.state().mgr.active.as_ref().map(|a| a.gid);
    let (mut last, mut changes) = (active(&w), 0);
    for secs in 2..302 {
        w.tick(secs);
        for gid in [1, 2] {
            w.send(mgr, beacon("z", gid, false));
            changes += u32::from(active(&w) != last);
            last = active(&w);
        }
    }
    assert!((30..40).contains(&changes), "{changes} in 300 s: six at once, and one in ten seconds");
    let entries = w.mon.state().log.last(5_000, monitor::state::Priority::Debug, "cluster");
    let said = entries.iter().filter(|e| e.text.contains("replacing it")).count();
    assert_eq!(said, changes as usize);
    assert_eq!(refusals(&w), 1);
    assert!(log(&w).iter().any(|text| text.contains("take each other's place again and again")));
    assert!(w.mon.state().osdmap().epoch.0 - begin.0 < 10, "each address is shut out once");
    // When one of them ends the other serves, however often they have changed places.
    let last = if active(&w) == Some(1) { 2 } else { 1 };
    for secs in 302..342 {
        w.tick(secs);
        w.send(mgr, beacon("z", last, false));
    }
    assert_eq!(active(&w), Some(last));
}
