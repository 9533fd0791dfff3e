//! The life of OSDs as the monitor sees it: boot, failure, silence, going out; PGs of new pools; managers.

use crate::common;

use common::{FSID, World, addr, boot_message, boot_osd};
use maps::pool_flags;
use messages::Message;
use messages::mgr::{MMgrBeacon, MPgDigest};
use messages::osd::{
    MOsdAlive, MOsdBeacon, MOsdBoot, MOsdFailure, MOsdMarkMeDead, MOsdMarkMeDown, MOsdPgCreated,
    MOsdPgReadyToMerge, MOsdPgTemp,
};
use monitor::state::{PgDigest, PgSteps, PoolUsage};
use monitor::{ClockSkew, Input, QuorumView};
use types::{AddrVec, ConnId, Epoch, Fsid, PgId, PoolId};

/// A cluster with OSDs on hosts of their own, all up, and a pool of eight PGs.
fn cluster(n: i32) -> (World, ConnId) {
    let mut w = World::new();
    let admin = w.admin();
    for id in 0..n {
        boot_osd(&mut w, id);
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

fn beacon(name: &str, gid: u64, nonce: u32) -> MMgrBeacon {
    MMgrBeacon {
        gid,
        name: name.to_owned(),
        addrs: AddrVec::single(addr(&format!("v2:127.0.0.1:6790/{nonce}"))),
        available: true,
        fsid: FSID,
        metadata: [("loligo".to_owned(), "0.1".to_owned())].into(),
        ..MMgrBeacon::default()
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
fn what_an_osd_said_counts_no_more_when_it_goes_down_itself() {
    let (mut w, _) = cluster(4);
    let report = failure(0, &w, 100);
    let refused = |target: i32, w: &World| {
        let m = failure(target, w, 0);
        MOsdFailure { flags: m.flags | MOsdFailure::IMMEDIATE, ..m }
    };
    // In one batch: both have missed osd.0 for long, and one of them is gone itself.
    let gone = refused(2, &w);
    w.send_behind_a_change(vec![
        (conn(1), report.clone().into()),
        (conn(2), report.clone().into()),
        (conn(3), gone.into()),
    ]);
    assert_eq!(up(&w), [0, 1, 3]);
    w.tick(100);
    assert_eq!(up(&w), [0, 1, 3], "one is not enough");
    let report = failure(0, &w, 100);
    w.send(conn(1), report.clone());
    w.send(conn(3), report);
    assert_eq!(up(&w), [1, 3], "two that are up are");
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

/// What a primary's successor need not wait for: the process is dead, or knows that it is out.
#[test]
fn an_osd_is_known_to_be_dead_by_who_can_know() {
    let (mut w, admin) = cluster(4);
    let dead = |w: &World, id: i32| w.mon.state().osdmap().osd(id).expect("there").xinfo.dead_epoch;
    let newest = |w: &World| w.mon.state().osdmap().epoch;
    let mark = |target: i32, epoch: Epoch| MOsdMarkMeDead {
        fsid: FSID,
        target_osd: target,
        epoch,
        ..MOsdMarkMeDead::default()
    };
    // Nobody hears it: that proves nothing, until it has seen the map and says so itself.
    let report = failure(0, &w, 100);
    w.send(conn(1), report.clone());
    w.send(conn(2), report);
    assert_eq!((up(&w), dead(&w, 0)), (vec![1, 2, 3], Epoch(0)));
    let down_in = newest(&w);
    w.send(conn(1), mark(0, down_in));
    assert_eq!(dead(&w, 0), Epoch(0), "nobody speaks for another one");
    w.send(conn(0), mark(0, Epoch(down_in.0 + 100)));
    assert_eq!(dead(&w, 0), down_in, "no more than there is to know");
    w.send(conn(0), mark(0, Epoch(1)));
    assert_eq!(dead(&w, 0), down_in, "what was known stays known");
    // One that is up is not dead, whatever it says.
    let now = newest(&w);
    w.send(conn(1), mark(1, now));
    assert_eq!((up(&w), dead(&w, 1)), (vec![1, 2, 3], Epoch(0)));
    // Nobody listens at its address any more.
    let mut report = failure(1, &w, 0);
    report.flags |= MOsdFailure::IMMEDIATE;
    w.send(conn(2), report);
    assert_eq!((up(&w), dead(&w, 1)), (vec![2, 3], newest(&w)));
    // It stops in order.
    let stop = MOsdMarkMeDown {
        fsid: FSID,
        target_osd: 2,
        target_addrs: w.mon.state().osdmap().osd(2).expect("there").client_addrs.clone(),
        down_and_dead: true,
        ..MOsdMarkMeDown::default()
    };
    w.command(admin, r#"{"prefix":"config set","who":"mon","name":"mon_osd_min_up_ratio","value":"0"}"#);
    w.send(conn(3), stop.clone());
    assert_eq!(dead(&w, 2), Epoch(0), "nobody stops another one");
    w.send(conn(2), MOsdMarkMeDown { down_and_dead: false, ..stop.clone() });
    assert_eq!((up(&w), dead(&w, 2)), (vec![3], Epoch(0)), "down, and it may still answer");
    w.command(admin, r#"{"prefix":"osd down","ids":["3"],"definitely_dead":true}"#);
    assert_eq!((up(&w), dead(&w, 3)), (vec![], newest(&w)), "the operator says so");
}

/// Two reporters' silence is over before what they said of it is heard: a proposal was under way all that time.
#[test]
fn reports_that_were_held_back_are_weighed_with_what_came_behind_them() {
    let (mut w, _) = cluster(3);
    let report = failure(0, &w, 100);
    let back = MOsdFailure { flags: 0, ..report.clone() };
    let said = |m: &MOsdFailure| [1, 2].map(|osd| (conn(osd), Message::from(m.clone())));
    w.send_behind_a_change([said(&report), said(&back)].concat());
    w.tick(100);
    assert_eq!(up(&w), [0, 1, 2]);
    w.send_behind_a_change(said(&report).to_vec());
    assert_eq!(up(&w), [1, 2], "nobody took it back");
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

/// It had to log in again, after all monitors were away: nobody is to block the address that it still has.
#[test]
fn a_manager_with_another_number_is_the_same_process_while_its_address_is() {
    let (mut w, _) = cluster(1);
    let mgr = w.connect(50, "mgr.x", -1, "v2:127.0.0.1:0/50");
    let addrs = |nonce| beacon("x", 0, nonce).addrs;
    w.send(mgr, beacon("x", 1, 50));
    w.send(mgr, beacon("x", 2, 50));
    let active = |w: &World| w.mon.state().mgr.active.as_ref().map(|a| (a.gid, a.addrs.clone()));
    assert_eq!(active(&w), Some((2, addrs(50))));
    assert!(w.mon.state().osdmap().blocklist.is_empty());
    w.send(mgr, beacon("x", 3, 51));
    assert_eq!(active(&w), Some((3, addrs(51))), "another process");
    assert!(w.mon.state().osdmap().blocklist.keys().eq([&addr("any:127.0.0.1:6790/50")]));
}

#[test]
fn the_manager_becomes_active_reports_and_is_replaced() {
    let (mut w, _) = cluster(2);
    let mgr = w.connect(50, "mgr.x", 4_200, "v2:127.0.0.1:6790/1");
    let beacon = |name: &str, gid| beacon(name, gid, 1);
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
    for secs in [2, 20, 31] {
        w.tick(secs);
        w.send(mgr, beacon("y", 2));
    }
    assert_eq!(names(&w), (Some("x".into()), 1));
    let (code, outs, _) =
        w.command(mgr, r#"{"prefix":"config set","who":"mon","name":"mon_mgr_beacon_grace","value":"10s"}"#);
    assert_eq!(code, 0, "{outs}");
    w.tick(32);
    assert_eq!(names(&w), (Some("y".into()), 0), "after the grace that was set");
    assert!(w.mon.state().osdmap().any_blocklisted(&beacon("x", 1).addrs));
}

/// A monitor that was stopped hears the beacons that it missed after its own tick.
#[test]
fn a_monitor_that_was_away_takes_no_place_from_a_manager() {
    let (mut w, _) = cluster(1);
    let mgr = w.connect(50, "mgr.x", 4_200, "v2:127.0.0.1:6790/1");
    w.send(mgr, beacon("x", 1, 1));
    w.tick(1);
    w.tick(100);
    assert_eq!(w.mon.state().mgr.active.as_ref().map(|a| a.gid), Some(1));
    for secs in 101..140 {
        w.tick(secs);
    }
    assert_eq!(w.mon.state().mgr.active, None, "it is silent");
}

#[test]
fn maps_are_kept_while_any_pg_may_need_them() {
    let (mut w, admin) = cluster(2);
    // Of an erasure-coded pool OSDs speak as of any other one.
    let erasure = r#"{"prefix":"osd pool create","pool":"e","pg_num":4,"pool_type":"erasure"}"#;
    assert_eq!(w.command(admin, erasure).0, 0);
    w.command(admin, r#"{"prefix":"config set","who":"mon","name":"mon_min_osdmap_epochs","value":"10"}"#);
    for _ in 0..20 {
        for verb in ["set", "unset"] {
            w.command(admin, &format!(r#"{{"prefix":"osd {verb}","key":"noscrub"}}"#));
        }
    }
    let newest = w.mon.state().osds.newest();
    let beacon_of = |w: &mut World, pool: i64, osd: i32, pgs: std::ops::Range<u32>, clean: Epoch| {
        let m = MOsdBeacon {
            version: messages::PaxosVersion(newest.0.into()),
            pgs: pgs.map(|seed| PgId::new(PoolId(pool), seed)).collect(),
            min_last_epoch_clean: clean,
            report_interval_s: 60,
            ..MOsdBeacon::default()
        };
        w.send(conn(osd), m);
    };
    let beacon = |w: &mut World, osd: i32, pgs, clean| beacon_of(w, 1, osd, pgs, clean);
    let first = w.mon.state().osds.oldest();
    let oldest = |w: &mut World, secs: u64| {
        w.tick(secs);
        w.mon.state().osds.oldest()
    };
    beacon(&mut w, 0, 0..4, newest);
    beacon(&mut w, 1, 4..7, newest);
    beacon_of(&mut w, 2, 0, 0..3, newest);
    assert_eq!(oldest(&mut w, 2), first, "nobody has spoken of the last PG: its members may be away");
    let then = Epoch(newest.0 - 30);
    beacon(&mut w, 1, 7..8, then);
    assert_eq!(oldest(&mut w, 3), first, "nor of the last one of the other pool");
    beacon_of(&mut w, 2, 0, 3..4, newest);
    assert_eq!(oldest(&mut w, 4), then, "it was last clean there");
    // An OSD that has none of it goes on; what was told of the PG still counts.
    beacon(&mut w, 1, 4..7, newest);
    assert_eq!(oldest(&mut w, 6), then);
    beacon(&mut w, 0, 7..8, newest);
    assert_eq!(oldest(&mut w, 8), Epoch(newest.0 - 10), "the usual number stays");
}

/// OSDs make no PGs of a pool that does not fit its profile, as one that came with a map of an earlier
/// release: nobody will ever speak of them, and maps go all the same.
#[test]
fn maps_go_although_nobody_speaks_of_a_pool_that_is_not_served() {
    for misfit in [false, true] {
        let (mut w, admin) = cluster(2);
        let erasure = r#"{"prefix":"osd pool create","pool":"e","pg_num":4,"pool_type":"erasure"}"#;
        assert_eq!(w.command(admin, erasure).0, 0);
        w.begin_with(|map| {
            let pool = map.pools.get_mut(&PoolId(2)).expect("there");
            pool.size += u8::from(misfit);
        });
        let admin = w.admin();
        for id in 0..2 {
            boot_osd(&mut w, id);
        }
        let setting = r#"{"prefix":"config set","who":"mon","name":"mon_min_osdmap_epochs","value":"10"}"#;
        w.command(admin, setting);
        for _ in 0..20 {
            for verb in ["set", "unset"] {
                w.command(admin, &format!(r#"{{"prefix":"osd {verb}","key":"noscrub"}}"#));
            }
        }
        let (first, newest) = (w.mon.state().osds.oldest(), w.mon.state().osds.newest());
        for osd in 0..2 {
            let m = MOsdBeacon {
                version: messages::PaxosVersion(newest.0.into()),
                pgs: (0..4).map(|seed| PgId::new(PoolId(1), 4 * osd + seed)).collect(),
                min_last_epoch_clean: newest,
                report_interval_s: 60,
                ..MOsdBeacon::default()
            };
            w.send(conn(osd as i32), m);
        }
        w.tick(2);
        let expected = if misfit { Epoch(newest.0 - 10) } else { first };
        assert_eq!(w.mon.state().osds.oldest(), expected);
    }
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
    for (name, gid) in [("x", 1), ("y", 2), ("z", 3)] {
        w.send(mgr, beacon(name, gid, gid as u32));
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
    assert!(w.mon.state().osdmap().blocklist.contains_key(&addr("any:127.0.0.1:6790/1")));
    w.send(mgr, beacon("x", 1, 1));
    assert_eq!(names(&w), is("y", &["z"]), "its address is blocked");
    w.send(mgr, beacon("x", 4, 4));
    assert_eq!(names(&w), is("y", &["z", "x"]), "it stands by in another life");
    assert_eq!(fail(&mut w, r#","who":"3""#), (0, String::new()));
    assert_eq!(fail(&mut w, r#","who":"y""#), (0, String::new()));
    assert_eq!(names(&w), is("x", &[]));
    // Nobody is there to take its place: it does not take it back under the address that it lost.
    assert_eq!(fail(&mut w, ""), (0, String::new()));
    w.send(mgr, beacon("x", 4, 4));
    w.send(mgr, beacon("x", 5, 4));
    assert_eq!(w.mon.state().mgr.active, None);
    w.send(mgr, beacon("x", 6, 6));
    assert_eq!(names(&w), is("x", &[]));
}

/// The manager says that all PGs are active and clean in the newest map, and what the pool's next step is: seven places.
fn all_clean(w: &mut World, secs: u64) {
    let map = w.mon.state().osdmap();
    let mut digest = PgDigest { epoch: map.epoch, ..PgDigest::default() };
    let of = map.pool(PoolId(1)).expect("there").last_change;
    digest.steps.insert(PoolId(1), PgSteps { of, pgp_num: 7, merge: true });
    digest.pg_states.insert(messages::pg_state::ACTIVE | messages::pg_state::CLEAN, 8);
    digest.pools.insert(PoolId(1), PoolUsage::default());
    let summary = codec::Encode::to_bytes(&digest);
    w.send(ConnId(1), MPgDigest { gid: 0, summary, ..MPgDigest::default() });
    w.tick(secs);
}

#[test]
fn what_osds_say_of_merges_counts_once_and_from_who_leads_both() {
    let (mut w, admin) = cluster(2);
    let counts = |w: &World| {
        let p = w.mon.state().osdmap().pool(PoolId(1)).expect("there").clone();
        (p.pg_num, p.pg_num_pending)
    };
    all_clean(&mut w, 2);
    w.command(admin, r#"{"prefix":"osd pool set","pool":"p","var":"pg_num","val":"7"}"#);
    w.tick(4);
    assert_eq!(counts(&w), (8, 8), "what the manager said is older");
    for secs in [6, 8, 10] {
        all_clean(&mut w, secs);
    }
    assert_eq!(counts(&w), (8, 7), "named");
    let source = PgId::new(PoolId(1), 7);
    let leads = |w: &World, pg| w.mon.state().osdmap().pg_to_up_acting(pg).acting_primary;
    let leader = leads(&w, source);
    assert_eq!(leader, leads(&w, source.parent()));
    let named = w.mon.state().osdmap().epoch;
    let says = |w: &mut World, from: i32, pgid: PgId, ready: bool, epoch: Epoch| {
        let version = messages::PaxosVersion(epoch.0.into());
        w.send(conn(from), MOsdPgReadyToMerge { version, pgid, ready, ..Default::default() });
        counts(w)
    };
    for (from, pgid, epoch, why) in [
        (leader, source, named.prev(), "the pair was not named then"),
        (1 - leader, source, named, "it leads neither"),
        (leader, source.parent(), named, "that one stays"),
        (leader, PgId::new(PoolId(1), 6), named, "another pair"),
        (leader, PgId::new(PoolId(9), 7), named, "no such pool"),
        (40, source, named, "no such OSD"),
    ] {
        assert_eq!(says(&mut w, from, pgid, true, epoch), (8, 7), "{why}");
    }
    assert_eq!(
        says(&mut w, 1 - leader, source, false, named),
        (8, 7),
        "one that leads neither calls nothing off"
    );
    assert_eq!(says(&mut w, leader, source, false, named), (8, 8), "called off");
    assert_eq!(says(&mut w, leader, source, true, named), (8, 8), "of the attempt before");
    all_clean(&mut w, 12);
    assert_eq!(counts(&w), (8, 7), "named again");
    assert_eq!(says(&mut w, leader, source, true, named), (8, 7), "of the attempt before");
    let again = w.mon.state().osdmap().epoch;
    assert_eq!(says(&mut w, leader, source, true, again), (7, 7));
    assert_eq!(says(&mut w, leader, source, true, again), (7, 7), "twice");
    all_clean(&mut w, 14);
    assert_eq!(counts(&w), (7, 7), "that was all");
}

fn flags_text(w: &World) -> String {
    pool_flags::to_text(w.mon.state().osdmap().pool(PoolId(1)).expect("there").flags)
}

fn report(w: &mut World, objects: i64) {
    report_with(w, objects, None);
}

fn report_with(w: &mut World, objects: i64, steps: Option<PgSteps>) {
    let mut digest = PgDigest { epoch: w.mon.state().osdmap().epoch, ..PgDigest::default() };
    digest.pg_states.insert(0x82, 8);
    let mut usage = PoolUsage::default();
    usage.stat.stats.sum.num_objects = objects;
    digest.pools.insert(PoolId(1), usage);
    digest.steps.extend(steps.map(|s| (PoolId(1), s)));
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
    let step = |w: &mut World, pgp_num, stale| {
        let pool = w.mon.state().osdmap().pool(PoolId(1)).expect("there");
        let of = Epoch(pool.last_change.0 - u32::from(stale));
        report_with(w, 0, Some(PgSteps { of, pgp_num, merge: false }));
    };
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
    assert_eq!(counts(&w), (16, 8), "places follow when the manager says so");
    for (now, (pgp_num, stale, want)) in
        [(12, true, 8), (17, false, 8), (7, false, 8), (12, false, 12), (12, false, 12), (16, false, 16)]
            .into_iter()
            .enumerate()
    {
        step(&mut w, pgp_num, stale);
        w.tick(13 + now as u64);
        assert_eq!(counts(&w), (16, want), "step {now} to {pgp_num}, stale: {stale}");
    }
}

/// Seed 314 of the simulated hours: a new leader whose clock was an hour ahead let a dead lock holder in again at once.
#[test]
fn a_blocklist_entry_ends_by_the_slowest_clock_of_the_quorum() {
    let (mut w, admin) = cluster(1);
    w.command(admin, r#"{"prefix":"osd blocklist","blocklistop":"add","addr":"10.0.0.1:0/5","expire":600}"#);
    let behind = ClockSkew { name: "b".to_owned(), skew_ms: -3_600_000, latency_ms: 1 };
    let quorum = QuorumView { monitors: 2, term: 2, skews: vec![behind], ..QuorumView::alone() };
    w.input(Input::Quorum(quorum));
    let listed = |w: &World| w.mon.state().osdmap().blocklist.len();
    // By our clock it was over at 601, by the other's it is at 4,201.
    w.tick(4_195);
    assert_eq!(listed(&w), 1);
    w.tick(4_205);
    assert_eq!(listed(&w), 0);
}

/// The leader's clock is an hour behind; then it is away, and another one leads, by whose clock the entry
/// must last as long as was said (simulator, seed 1853).
#[test]
fn a_blocklist_entry_lasts_as_long_by_the_fastest_clock_of_the_quorum() {
    let (mut w, admin) = cluster(1);
    let ahead = ClockSkew { name: "b".to_owned(), skew_ms: 3_600_000, latency_ms: 1 };
    w.input(Input::Quorum(QuorumView { skews: vec![ahead], ..QuorumView::alone() }));
    w.command(admin, r#"{"prefix":"osd blocklist","blocklistop":"add","addr":"10.0.0.1:0/5","expire":600}"#);
    let listed = |w: &World| w.mon.state().osdmap().blocklist.len();
    // Those that are left agree with a clock of this much.
    w.input(Input::Quorum(QuorumView { term: 2, ..QuorumView::alone() }));
    w.tick(4_195);
    assert_eq!(listed(&w), 1);
    w.tick(4_210);
    assert_eq!(listed(&w), 0);
}

/// Monitors close the connection of one that sends them more.
#[test]
fn what_is_no_entry_of_the_log_together_is_tried_one_by_one() {
    let mut w = World::new();
    let admin = w.admin();
    let boots = (0..6).map(|id| {
        w.command(admin, &format!(r#"{{"prefix":"osd new","uuid":"{}"}}"#, common::uuid(id)));
        let conn = w.osd(id);
        let mut boot = boot_message(id, &w);
        boot.metadata.insert("x".to_owned(), "x".repeat(13 << 20));
        (conn, boot.into())
    });
    let boots: Vec<(ConnId, Message)> = boots.collect();
    let before = w.index;
    w.send_behind_a_change(boots);
    assert!((0..6).all(|id| w.mon.state().osdmap().is_up(id)));
    assert!(w.index - before >= 7, "{} entries for a change and 78 MiB", w.index - before);
}
