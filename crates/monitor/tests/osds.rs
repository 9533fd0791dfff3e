//! The life of OSDs as the monitor sees it: boot, failure, silence, going out; PGs of new pools; managers.

mod common;

use common::{FSID, World, addr};
use maps::pool_flags;
use messages::Message;
use messages::mgr::{MMgrBeacon, MPgDigest};
use messages::osd::{
    MOsdAlive, MOsdBeacon, MOsdBoot, MOsdFailure, MOsdMarkMeDown, MOsdPgCreated, MOsdPgTemp, OsdSuperblock,
};
use monitor::state::{PgDigest, PoolUsage};
use types::{AddrVec, ConnId, Epoch, Fsid, PgId, PoolId};

fn uuid(id: i32) -> Fsid {
    Fsid([id as u8 + 1; 16])
}

fn boot_message(id: i32, w: &World) -> MOsdBoot {
    let at = |port: i32| AddrVec::single(addr(&format!("v2:127.0.0.1:{}/1", port + id)));
    let newest_map = w.mon.state().osdmap().epoch;
    let superblock = OsdSuperblock {
        cluster_fsid: FSID,
        whoami: id,
        osd_fsid: uuid(id),
        newest_map,
        ..OsdSuperblock::default()
    };
    MOsdBoot {
        superblock,
        cluster_addrs: at(7_000),
        hb_back_addrs: at(7_100),
        hb_front_addrs: at(7_200),
        metadata: [("hostname".to_owned(), "h".to_owned())].into(),
        features: types::features::PACIFIC,
        ..MOsdBoot::default()
    }
}

/// A cluster with OSDs on hosts of their own, all up, and a pool of eight PGs.
fn cluster(n: i32) -> (World, ConnId) {
    let mut w = World::new();
    let admin = w.admin();
    for id in 0..n {
        w.command(admin, &format!(r#"{{"prefix":"osd new","uuid":"{}"}}"#, uuid(id)));
        let args = format!(r#""args":["host=h{id}","root=default"]"#);
        w.command(admin, &format!(r#"{{"prefix":"osd crush add","id":{id},"weight":1.0,{args}}}"#));
        let conn = w.osd(id);
        let boot = boot_message(id, &w);
        w.send(conn, boot);
    }
    w.command(admin, r#"{"prefix":"osd pool create","pool":"p","pg_num":8}"#);
    w.take();
    (w, admin)
}

fn conn(id: i32) -> ConnId {
    ConnId(100 + id as u64)
}

fn up(w: &World) -> Vec<i32> {
    let map = w.mon.state().osdmap();
    (0..map.max_osd()).filter(|id| map.is_up(*id)).collect()
}

fn failure(target: i32, w: &World, secs: i32) -> MOsdFailure {
    let map = w.mon.state().osdmap();
    MOsdFailure {
        fsid: FSID,
        target_osd: target,
        target_addrs: map.osd(target).expect("in the map").client_addrs.clone(),
        epoch: map.epoch,
        flags: MOsdFailure::FAILED,
        failed_for_s: secs,
        ..MOsdFailure::default()
    }
}

#[test]
fn an_osd_boots_and_is_sent_the_map_that_says_so() {
    let (mut w, _) = cluster(1);
    assert_eq!(up(&w), [0]);
    let map = w.mon.state().osdmap();
    assert!(map.is_in(0));
    assert_eq!(map.osd(0).expect("there").info.up_from, Epoch(4));
    assert_eq!(
        w.mon.state().osd_metadata.get(&0).and_then(|m| m.get("hostname")).map(String::as_str),
        Some("h")
    );
    // A repetition changes nothing and brings the maps again.
    let (epoch, boot) = (map.epoch, boot_message(0, &w));
    w.send(conn(0), boot);
    assert_eq!(w.mon.state().osdmap().epoch, epoch);
}

#[test]
fn boots_that_do_not_fit_are_ignored() {
    let (mut w, _) = cluster(1);
    let good = boot_message(0, &w);
    let spoil: [fn(&mut MOsdBoot); 3] = [
        |m| m.superblock.cluster_fsid = Fsid([9; 16]),
        |m| m.superblock.osd_fsid = Fsid([9; 16]),
        |m| m.superblock.whoami = 5,
    ];
    for change in spoil {
        let mut bad = good.clone();
        change(&mut bad);
        bad.cluster_addrs = AddrVec::single(addr("v2:127.0.0.1:9999/9"));
        let epoch = w.mon.state().osdmap().epoch;
        w.send(conn(0), bad);
        assert_eq!(w.mon.state().osdmap().epoch, epoch);
    }
    // An OSD that nobody created.
    let stranger = w.osd(7);
    let boot = boot_message(7, &w);
    w.send(stranger, boot);
    assert_eq!(up(&w), [0]);
}

#[test]
fn a_new_life_at_another_address_first_goes_down() {
    let (mut w, _) = cluster(2);
    let epoch = w.mon.state().osdmap().epoch.0;
    let again = w.connect(300, "osd.0", 0, "v2:127.0.0.1:6999/2");
    let boot = boot_message(0, &w);
    w.send(again, boot);
    let map = w.mon.state().osdmap();
    assert_eq!((map.epoch.0, up(&w)), (epoch + 2, vec![0, 1]));
    let info = map.osd(0).expect("there").info;
    assert_eq!((info.down_at.0, info.up_from.0), (epoch + 1, epoch + 2));
}

#[test]
fn two_reporters_on_two_hosts_bring_an_osd_down() {
    let (mut w, _) = cluster(3);
    let report = failure(0, &w, 30);
    w.send(conn(1), report.clone());
    assert_eq!(up(&w), [0, 1, 2], "one is not enough");
    w.send(conn(2), report);
    assert_eq!(up(&w), [1, 2]);
}

#[test]
fn failures_need_the_grace_time_and_can_be_taken_back() {
    let (mut w, _) = cluster(3);
    let report = failure(0, &w, 5);
    w.send(conn(1), report.clone());
    w.send(conn(2), report.clone());
    assert_eq!(up(&w), [0, 1, 2]);
    w.send(conn(2), MOsdFailure { flags: 0, ..report.clone() });
    w.tick(60);
    assert_eq!(up(&w), [0, 1, 2]);
    w.send(conn(1), report.clone());
    w.send(conn(2), report);
    w.tick(100);
    assert_eq!(up(&w), [1, 2]);
}

#[test]
fn reports_that_are_not_repeated_do_not_count_for_ever() {
    let (mut w, _) = cluster(3);
    let report = failure(0, &w, 5);
    w.send(conn(1), report.clone());
    w.tick(200);
    // Long enough for the grace, but of one reporter.
    let report = failure(0, &w, 30);
    w.send(conn(2), report.clone());
    w.tick(201);
    assert_eq!(up(&w), [0, 1, 2], "the other one is stale");
    w.send(conn(1), report);
    assert_eq!(up(&w), [1, 2]);
}

#[test]
fn refused_connections_count_at_once_and_nodown_forbids() {
    let (mut w, admin) = cluster(2);
    w.command(admin, r#"{"prefix":"osd set","key":"nodown"}"#);
    let mut report = failure(0, &w, 0);
    report.flags |= MOsdFailure::IMMEDIATE;
    w.send(conn(1), report);
    assert_eq!(up(&w), [0, 1]);
    w.command(admin, r#"{"prefix":"osd unset","key":"nodown"}"#);
    let mut report = failure(0, &w, 0);
    report.flags |= MOsdFailure::IMMEDIATE;
    w.send(conn(1), report);
    assert_eq!(up(&w), [1]);
}

#[test]
fn silent_osds_go_down_and_long_down_ones_out_and_back_in() {
    let (mut w, _) = cluster(8);
    for secs in (0..1_100).step_by(100) {
        w.tick(secs);
        (1..8).for_each(|id| w.send(conn(id), MOsdBeacon::default()));
    }
    assert_eq!(up(&w), [1, 2, 3, 4, 5, 6, 7]);
    assert!(w.mon.state().osdmap().is_in(0));
    for secs in (1_100..1_900).step_by(100) {
        w.tick(secs);
        (1..8).for_each(|id| w.send(conn(id), MOsdBeacon::default()));
    }
    assert!(w.mon.state().osdmap().is_out(0), "out after ten minutes");
    let boot = boot_message(0, &w);
    w.send(conn(0), boot);
    let map = w.mon.state().osdmap();
    assert!(map.is_up(0) && map.is_in(0), "marked out automatically, so it comes back in");
}

#[test]
fn an_osd_that_stops_says_so_and_is_answered() {
    let (mut w, _) = cluster(2);
    let target_addrs = w.mon.state().osdmap().osd(0).expect("there").client_addrs.clone();
    let bye =
        MOsdMarkMeDown { fsid: FSID, target_osd: 0, target_addrs, request_ack: true, ..Default::default() };
    // Not in somebody else's name.
    w.send(conn(1), bye.clone());
    assert_eq!(up(&w), [0, 1]);
    // Nor by another process with its key, as a copy of its disk has.
    let copy = w.connect(150, "osd.0", 0, "v2:127.0.0.1:6800/2");
    w.send(copy, MOsdMarkMeDown { down_and_dead: true, ..bye.clone() });
    assert_eq!(up(&w), [0, 1]);
    w.send(conn(0), bye);
    assert_eq!(up(&w), [1]);
    assert!(w.sent(conn(0)).iter().any(|m| matches!(m, Message::OsdMarkMeDown(_))));
}

#[test]
fn temporary_sets_come_from_the_primary_only() {
    let (mut w, _) = cluster(3);
    let pg = PgId::new(PoolId(1), 0);
    let primary = w.mon.state().osdmap().pg_to_up_acting(pg).acting_primary;
    let other = (primary + 1) % 3;
    let wanted = vec![other, primary];
    let map_epoch = w.mon.state().osdmap().epoch;
    let ask = MOsdPgTemp { map_epoch, pg_temp: [(pg, wanted.clone())].into(), ..MOsdPgTemp::default() };
    w.send(conn(other), ask.clone());
    assert!(w.mon.state().osdmap().pg_temp.is_empty());
    w.send(conn(primary), ask);
    assert_eq!(w.mon.state().osdmap().pg_temp.get(&pg), Some(&wanted));
    let map_epoch = w.mon.state().osdmap().epoch;
    let end = MOsdPgTemp { map_epoch, pg_temp: [(pg, Vec::new())].into(), ..MOsdPgTemp::default() };
    w.send(conn(other), end);
    assert!(w.mon.state().osdmap().pg_temp.is_empty());
}

#[test]
fn up_thru_follows_the_wish() {
    let (mut w, _) = cluster(1);
    let epoch = w.mon.state().osdmap().epoch;
    let version = messages::PaxosVersion(epoch.0.into());
    w.send(conn(0), MOsdAlive { want: epoch, version });
    assert_eq!(w.mon.state().osdmap().osd(0).expect("there").info.up_thru, epoch);
}

#[test]
fn a_pool_is_creating_until_its_pgs_exist() {
    let (mut w, _) = cluster(2);
    let creating = |w: &World| {
        let map = w.mon.state().osdmap();
        map.pool(PoolId(1)).expect("there").has_flag(pool_flags::CREATING)
    };
    assert!(creating(&w));
    for seed in 0..8 {
        assert!(creating(&w));
        w.send(conn(0), MOsdPgCreated { pgid: PgId::new(PoolId(1), seed), ..Default::default() });
    }
    assert!(!creating(&w) && w.mon.state().creating.is_empty());
}

#[test]
fn the_manager_becomes_active_reports_and_is_replaced() {
    let (mut w, _) = cluster(2);
    let mgr = w.connect(50, "mgr.x", 4_200, "v2:127.0.0.1:6790/1");
    let addrs = AddrVec::single(addr("v2:127.0.0.1:6790/1"));
    let beacon = |name: &str, gid| MMgrBeacon {
        gid,
        name: name.to_owned(),
        addrs: addrs.clone(),
        available: true,
        fsid: FSID,
        ..MMgrBeacon::default()
    };
    w.send(mgr, beacon("x", 1));
    w.send(mgr, beacon("y", 2));
    let names = |w: &World| {
        let m = &w.mon.state().mgr;
        (m.active.as_ref().map(|a| a.name.clone()), m.standbys.len())
    };
    assert_eq!(names(&w), (Some("x".into()), 1));
    let epoch = w.mon.state().mgr.epoch;
    w.send(mgr, beacon("x", 1));
    assert_eq!(w.mon.state().mgr.epoch, epoch, "a beacon that says nothing new makes no epoch");
    // Its digest ends the pool's creation.
    let mut digest = PgDigest { epoch: w.mon.state().osdmap().epoch, ..PgDigest::default() };
    digest.pg_states.insert(0x82, 8);
    digest.pools.insert(PoolId(1), PoolUsage::default());
    let summary = codec::Encode::to_bytes(&digest);
    w.send(mgr, MPgDigest { gid: 1, summary, ..MPgDigest::default() });
    assert!(w.mon.state().creating.is_empty());
    // Only the second one goes on.
    for secs in [2, 20, 40] {
        w.tick(secs);
        w.send(mgr, beacon("y", 2));
    }
    assert_eq!(names(&w), (Some("y".into()), 0));
    assert!(w.mon.state().osdmap().blocklist.contains_key(&addrs.0[0]));
}

#[test]
fn maps_are_kept_while_any_pg_may_need_them() {
    let (mut w, admin) = cluster(2);
    w.command(admin, r#"{"prefix":"config set","who":"mon","name":"mon_min_osdmap_epochs","value":"10"}"#);
    for _ in 0..20 {
        for verb in ["set", "unset"] {
            w.command(admin, &format!(r#"{{"prefix":"osd {verb}","key":"noscrub"}}"#));
        }
    }
    let newest = w.mon.state().osds.newest();
    let beacon = |w: &mut World, osd: i32, pgs: std::ops::Range<u32>, clean: Epoch| {
        let m = MOsdBeacon {
            version: messages::PaxosVersion(newest.0.into()),
            pgs: pgs.map(|seed| PgId::new(PoolId(1), seed)).collect(),
            min_last_epoch_clean: clean,
            report_interval_s: 60,
            ..MOsdBeacon::default()
        };
        w.send(conn(osd), m);
    };
    let first = w.mon.state().osds.oldest();
    let oldest = |w: &mut World, secs: u64| {
        w.tick(secs);
        w.mon.state().osds.oldest()
    };
    beacon(&mut w, 0, 0..4, newest);
    beacon(&mut w, 1, 4..7, newest);
    assert_eq!(oldest(&mut w, 2), first, "nobody has spoken of the last PG: its members may be away");
    let then = Epoch(newest.0 - 30);
    beacon(&mut w, 1, 7..8, then);
    assert_eq!(oldest(&mut w, 4), then, "it was last clean there");
    // An OSD that has none of it goes on; what was told of the PG still counts.
    beacon(&mut w, 1, 4..7, newest);
    assert_eq!(oldest(&mut w, 6), then);
    beacon(&mut w, 0, 7..8, newest);
    assert_eq!(oldest(&mut w, 8), Epoch(newest.0 - 10), "the usual number stays");
}

#[test]
fn a_failed_manager_gives_way_and_may_come_back() {
    let (mut w, admin) = cluster(2);
    let mgr = w.connect(50, "mgr.x", 4_200, "v2:127.0.0.1:6790/1");
    let fail = |w: &mut World, who: &str| {
        let (code, outs, _) = w.command(admin, &format!(r#"{{"prefix":"mgr fail"{who}}}"#));
        (code, outs)
    };
    assert_eq!(fail(&mut w, ""), (0, "Currently no active mgr".to_owned()));
    let beacon = |name: &str, gid, nonce| MMgrBeacon {
        gid,
        name: name.to_owned(),
        addrs: AddrVec::single(addr(&format!("v2:127.0.0.1:6790/{nonce}"))),
        available: true,
        fsid: FSID,
        ..MMgrBeacon::default()
    };
    for (name, gid) in [("x", 1), ("y", 2), ("z", 3)] {
        w.send(mgr, beacon(name, gid, gid));
    }
    let names = |w: &World| {
        let m = &w.mon.state().mgr;
        (
            m.active.as_ref().map(|a| a.name.clone()),
            m.standbys.values().map(|d| d.name.clone()).collect::<Vec<_>>(),
        )
    };
    let is = |active: &str, standbys: &[&str]| {
        (Some(active.to_owned()), standbys.iter().map(|s| (*s).to_owned()).collect::<Vec<_>>())
    };
    assert_eq!(fail(&mut w, r#","who":"w""#).1, "Daemon not found 'w', already failed?");
    assert_eq!(names(&w), is("x", &["y", "z"]));
    assert_eq!(fail(&mut w, ""), (0, String::new()));
    assert_eq!(names(&w), is("y", &["z"]));
    assert!(w.mon.state().osdmap().blocklist.contains_key(&addr("v2:127.0.0.1:6790/1")));
    w.send(mgr, beacon("x", 1, 1));
    assert_eq!(names(&w), is("y", &["x", "z"]), "it stands by");
    assert_eq!(fail(&mut w, r#","who":"3""#), (0, String::new()));
    assert_eq!(fail(&mut w, r#","who":"y""#), (0, String::new()));
    assert_eq!(names(&w), is("x", &[]));
}

fn flags_text(w: &World) -> String {
    pool_flags::to_text(w.mon.state().osdmap().pool(PoolId(1)).expect("there").flags)
}

fn report(w: &mut World, objects: i64) {
    let mut digest = PgDigest { epoch: w.mon.state().osdmap().epoch, ..PgDigest::default() };
    digest.pg_states.insert(0x82, 8);
    let mut usage = PoolUsage::default();
    usage.stat.stats.sum.num_objects = objects;
    digest.pools.insert(PoolId(1), usage);
    let summary = codec::Encode::to_bytes(&digest);
    w.send(ConnId(1), MPgDigest { gid: 0, summary, ..MPgDigest::default() });
}

#[test]
fn full_osds_and_reached_quotas_make_pools_full() {
    let (mut w, admin) = cluster(2);
    report(&mut w, 5);
    assert_eq!(flags_text(&w), "hashpspool");
    let full = |state| messages::osd::MOsdFull { state, ..Default::default() };
    w.send(conn(0), full(maps::flags::osd_state::NEARFULL));
    assert_eq!(flags_text(&w), "hashpspool,nearfull");
    w.send(conn(1), full(maps::flags::osd_state::FULL));
    assert_eq!(flags_text(&w), "hashpspool,full");
    w.send(conn(1), full(0));
    w.send(conn(0), full(0));
    assert_eq!(flags_text(&w), "hashpspool");
    w.command(admin, r#"{"prefix":"osd pool set-quota","pool":"p","field":"max_objects","val":"5"}"#);
    w.tick(10);
    assert_eq!(flags_text(&w), "hashpspool,full,full_quota");
    report(&mut w, 4);
    w.tick(11);
    assert_eq!(flags_text(&w), "hashpspool");
}

#[test]
fn pg_counts_follow_their_target() {
    let (mut w, admin) = cluster(2);
    let counts = |w: &World| {
        let p = w.mon.state().osdmap().pool(PoolId(1)).expect("there").clone();
        (p.pg_num, p.pgp_num)
    };
    w.command(admin, r#"{"prefix":"osd pool set","pool":"p","var":"pg_num","val":"16"}"#);
    w.tick(10);
    assert_eq!(counts(&w), (8, 8), "not while the first ones are being made");
    report(&mut w, 0);
    w.tick(11);
    assert_eq!(counts(&w), (16, 8));
    w.tick(12);
    assert_eq!(counts(&w), (16, 8), "places follow when the manager has seen the new PGs");
    report(&mut w, 0);
    w.tick(13);
    assert_eq!(counts(&w), (16, 16));
}
