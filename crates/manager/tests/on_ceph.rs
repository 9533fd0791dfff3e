//! The manager on Ceph's monitors: its beacons, its reports, and the steps that it has them take.

mod common;

use std::time::Duration;

use bytes::Bytes;
use codec::{Decode, Encode};
use common::{CEPHS, OSDMAP, World, full_map, osd_conn, peer, reports};
use manager::{Input, Output};
use maps::{MgrMap, OsdMap, Pool, ServiceMap, Standby};
use messages::Message;
use messages::mgr::{MMgrBeacon, MMonMgrReport};
use messages::mon::{MMgrMap, MMonCommandAck, MOsdMap, MServiceMap};
use messages::payload::RestOfFront;
use messages::pg_map_digest::PgMapDigest;
use messages::pg_state::{ACTIVE, CLEAN, PEERING};
use monitor::Whose;
use serde_json::{Value, json};
use types::{AddrKind, AddrVec, ConnId, EntityAddr, EntityType, Epoch, Errno, PgId, PoolId};

const GID: u64 = 4_100;

fn mgr_map(w: &mut World, edit: impl FnOnce(&mut MgrMap)) {
    let mut map = MgrMap::initial();
    edit(&mut map);
    w.mon_sends(MMgrMap { map: RestOfFront(map.to_bytes()) });
}

fn standby(map: &mut MgrMap, gid: u64, name: &str) {
    map.standbys.insert(gid, Standby { gid, name: name.to_owned(), ..Standby::default() });
}

/// With a session, the maps, and somebody else in charge.
fn standing_by(force: bool, edit: impl FnOnce(&mut MgrMap)) -> World {
    let mut w = World::on(Some(CEPHS), force);
    w.input(Input::MonConnected { gid: GID });
    w.mon_sends(full_map(plain_map()));
    mgr_map(&mut w, |map| {
        (map.active_gid, map.active_name) = (7, "y".to_owned());
        edit(map);
    });
    w
}

/// In charge, with all reports of the recorded cluster.
fn in_charge() -> World {
    let mut w = standing_by(false, |_| ());
    mgr_map(&mut w, |map| (map.active_gid, map.active_name) = (GID, "x".to_owned()));
    for (osd, report) in reports() {
        w.connect_osd(osd);
        w.message(osd_conn(osd), report);
    }
    w.out.clear();
    w
}

fn beacons(out: &[Output]) -> Vec<MMgrBeacon> {
    let beacon = |o: &Output| match o {
        Output::SendMon { msg: Message::MgrBeacon(beacon), .. } => Some(MMgrBeacon::clone(beacon)),
        _ => None,
    };
    out.iter().filter_map(beacon).collect()
}

fn sent_reports(out: &[Output]) -> Vec<MMonMgrReport> {
    let report = |o: &Output| match o {
        Output::SendMon { msg: Message::MonMgrReport(report), .. } => Some(report.clone()),
        _ => None,
    };
    out.iter().filter_map(report).collect()
}

fn commands(out: &[Output]) -> Vec<(u64, Value)> {
    let command = |o: &Output| match o {
        Output::SendMon { tid, msg: Message::MonCommand(m) } => {
            Some((*tid, serde_json::from_str(&m.cmd.concat()).expect("JSON")))
        }
        _ => None,
    };
    out.iter().filter_map(command).collect()
}

fn warnings(out: &[Output]) -> Vec<&str> {
    let text = |o: &'_ Output| matches!(o, Output::Warn(_));
    out.iter()
        .filter(|o| text(o))
        .map(|o| if let Output::Warn(text) = o { text.as_str() } else { "" })
        .collect()
}

/// Those of modules in use.
fn in_use_warnings(out: &[Output]) -> Vec<&str> {
    warnings(out).into_iter().filter(|text| text.starts_with("modules are in use")).collect()
}

/// The recorded map without its file system.
fn plain_map() -> Bytes {
    let mut map = recorded_map();
    map.pools.values_mut().for_each(|pool| {
        pool.application_metadata.remove("cephfs");
    });
    map.to_bytes()
}

fn recorded_map() -> OsdMap {
    OsdMap::from_bytes(Bytes::from_static(OSDMAP)).expect("a map")
}

/// The recorded map with something changed, in its next epoch but `n`.
fn map_with(n: u32, edit: impl FnOnce(&mut OsdMap)) -> MOsdMap {
    let mut map = recorded_map();
    map.epoch = Epoch(map.epoch.0 + 1 + n);
    edit(&mut map);
    full_map(map.to_bytes())
}

#[test]
fn nothing_is_offered_before_the_monitors_said_whose_they_are() {
    let mut w = World::on(None, false);
    w.input(Input::MonConnected { gid: GID });
    w.mon_sends(full_map(Bytes::from_static(OSDMAP)));
    let asked = |out: &[Output]| -> Vec<u64> {
        let is_it = |c: &&(u64, Value)| c.1 == json!({ "prefix": "version" });
        commands(out).iter().filter(is_it).map(|c| c.0).collect()
    };
    let out = w.sent();
    assert_eq!((asked(&out).len(), beacons(&out).len()), (1, 0));
    for (osd, report) in reports() {
        w.connect_osd(osd);
        w.message(osd_conn(osd), report);
    }
    w.advance(Duration::from_secs(4));
    assert_eq!((sent_reports(&w.out).len(), beacons(&w.out).len()), (0, 0));
    // An answer that was lost is asked for again, and one that says nothing is told once.
    w.advance(Duration::from_secs(1));
    let tid = asked(&w.sent())[0];
    for _ in 0..2 {
        let refused = MMonCommandAck { result: Errno::EACCES.neg(), ..MMonCommandAck::default() };
        w.input(Input::FromMon { tid, msg: refused.into() });
    }
    assert_eq!(warnings(&w.sent()).len(), 1);
    w.advance(Duration::from_secs(5));
    let tid = asked(&w.sent())[0];
    let output = Bytes::from_static(CEPHS.as_bytes());
    w.input(Input::FromMon { tid, msg: MMonCommandAck { output, ..MMonCommandAck::default() }.into() });
    assert!(w.sent().contains(&Output::Monitors(Whose::Ceph)));
}

#[test]
fn it_stands_by_and_serves_when_the_monitors_say_so() {
    let mut w = standing_by(false, |_| ());
    let sent = w.sent();
    let first = beacons(&sent).pop().expect("a beacon");
    assert_eq!((first.available, first.gid, first.fsid), (false, GID, recorded_map().fsid));
    let cephadm = first.modules.iter().find(|m| m.name == "cephadm").expect("listed");
    assert!(!cephadm.can_run && !cephadm.error.is_empty());
    for (osd, report) in reports() {
        w.connect_osd(osd);
        w.message(osd_conn(osd), report);
    }
    w.advance(Duration::from_secs(30));
    let sent = w.sent();
    assert!(sent_reports(&sent).is_empty() && commands(&sent).is_empty(), "somebody else is in charge");
    mgr_map(&mut w, |map| (map.active_gid, map.active_name) = (GID, "x".to_owned()));
    let sent = w.sent();
    assert!(beacons(&sent).pop().is_some_and(|b| b.available && !b.commands.is_empty()));
    // What OSDs reported before counts.
    let report = sent_reports(&sent).pop().expect("a report");
    let digest = PgMapDigest::from_bytes(report.digest.clone()).expect("a digest");
    assert_eq!((digest.num_pg, digest.num_pg_active, digest.num_osd), (185, 185, 3));
    assert_eq!(digest.num_pg_by_state, [(ACTIVE | CLEAN, 185)].into());
    assert_eq!(digest.osd_last_seq.len(), 3);
    assert_eq!(digest.pools.len(), 8);
    assert_eq!(digest.num_pg_by_osd.values().map(|n| n.primary).sum::<i32>(), 185);
    assert!(digest.avail_by_rule.values().all(|avail| *avail > 26 << 30), "{:?}", digest.avail_by_rule);
    assert_eq!(
        digest.osd_sum.statfs.total,
        digest.osd_sum_by_class.values().map(|s| s.statfs.total).sum::<u64>()
    );
    let codes: Vec<&str> = report.checks.checks.keys().map(String::as_str).collect();
    assert_eq!((report.gid, codes.as_slice()), (GID, ["POOL_APP_NOT_ENABLED"].as_slice()));
    // Health is told soon, and when nothing happens nothing is said.
    w.advance(Duration::from_secs(10));
    w.sent();
    w.advance(Duration::from_secs(10));
    assert_eq!(sent_reports(&w.sent()).len(), 0);
    let (osd, mut report) = reports().remove(0);
    report.pg_stats.values_mut().for_each(|s| (s.reported_seq, s.state) = (s.reported_seq + 1, PEERING));
    w.message(osd_conn(osd), report);
    let report = sent_reports(&w.sent()).pop().expect("a report");
    assert!(PgMapDigest::from_bytes(report.digest).expect("a digest").num_pg_active < 185);
}

#[test]
fn modules_in_use_that_it_does_not_stand_for_keep_it_out_of_the_way() {
    let in_use = |map: &mut MgrMap| map.modules.extend(["cephadm".to_owned()]);
    let mut w = standing_by(false, in_use);
    w.advance(Duration::from_secs(10));
    let sent = w.sent();
    assert_eq!((beacons(&sent).len(), in_use_warnings(&sent).len()), (0, 1));
    let said = in_use_warnings(&sent)[0];
    assert!(said.contains("cephadm") && said.contains("--force"));
    // It is switched off: the place may be had.
    mgr_map(&mut w, |map| (map.active_gid, map.active_name) = (7, "y".to_owned()));
    assert_eq!(beacons(&w.sent()).len(), 1);
    // It is switched on again while we stand by: we ask to be left out at once.
    mgr_map(&mut w, |map| {
        (map.active_gid, map.active_name) = (7, "y".to_owned());
        standby(map, GID, "x");
        in_use(map);
    });
    let sent = w.sent();
    assert_eq!(in_use_warnings(&sent).len(), 1);
    let asked: Vec<Value> = commands(&sent).into_iter().map(|c| c.1).collect();
    assert_eq!(asked, [json!({ "prefix": "mgr fail", "who": "x" })]);
    w.advance(Duration::from_secs(10));
    assert_eq!(beacons(&w.sent()).len(), 0);
    // Forced, it says so and offers itself.
    let mut w = standing_by(true, in_use);
    let sent = w.sent();
    assert!(!beacons(&sent).is_empty() && in_use_warnings(&sent).len() == 1);
}

#[test]
fn a_file_system_is_the_work_of_a_module_that_is_always_on() {
    let mut w = standing_by(false, |map| standby(map, GID, "x"));
    assert!(!beacons(&w.sent()).is_empty());
    let with = |n: u32, name: &'static str| {
        map_with(n, |map| {
            map.pools
                .values_mut()
                .for_each(|p| p.application_metadata = [(name.to_owned(), Default::default())].into());
        })
    };
    w.mon_sends(with(0, "cephfs"));
    let sent = w.sent();
    assert!(in_use_warnings(&sent)[0].contains("volumes"), "{:?}", warnings(&sent));
    let asked: Vec<Value> = commands(&sent).into_iter().map(|c| c.1).collect();
    assert_eq!(asked, [json!({ "prefix": "mgr fail", "who": "x" })]);
    w.advance(Duration::from_secs(10));
    assert_eq!(beacons(&w.sent()).len(), 0);
    w.mon_sends(with(1, "rados"));
    assert_eq!(beacons(&w.sent()).len(), 1, "it is gone");
}

#[test]
fn what_nobody_does_any_more_is_said_once() {
    let mut w = standing_by(false, |_| ());
    let always = |out: &[Output]| warnings(out).iter().filter(|t| t.contains("always on")).count();
    assert_eq!(always(&w.sent()), 1);
    mgr_map(&mut w, |map| (map.active_gid, map.active_name) = (7, "y".to_owned()));
    assert_eq!(always(&w.sent()), 0);
}

#[test]
fn a_new_session_with_a_monitor_is_told_of_the_services_again() {
    let mut w = in_charge();
    let told = |out: &[Output]| sent_reports(out).iter().filter(|r| !r.service_map.is_empty()).count();
    w.advance(Duration::from_secs(4));
    w.sent();
    w.input(Input::MonConnected { gid: GID });
    w.advance(Duration::from_secs(4));
    assert_eq!(told(&w.sent()), 1);
}

#[test]
fn what_pools_use_of_an_osd_that_is_out_stays() {
    let mut w = in_charge();
    w.mon_sends(map_with(0, |map| map.weights[0] = 0));
    w.advance(Duration::from_secs(4));
    let report = sent_reports(&w.sent()).pop().expect("a report");
    let digest = PgMapDigest::from_bytes(report.digest).expect("a digest");
    assert_eq!(digest.pools[&8].num_store_stats, 3);
}

#[test]
fn of_two_processes_with_one_name_the_older_ends() {
    let ends = |out: &[Output]| out.iter().any(|o| matches!(o, Output::End(_)));
    let mut w = standing_by(false, |map| standby(map, GID, "x"));
    assert!(!ends(&w.sent()));
    // A monitor that is behind names an earlier life.
    mgr_map(&mut w, |map| standby(map, 4_000, "x"));
    assert!(!ends(&w.sent()));
    mgr_map(&mut w, |map| {
        standby(map, 4_200, "x");
        map.epoch = map.epoch.next();
    });
    assert!(ends(&w.sent()), "its place is another process's");
    // A new number after a new login is its own.
    let mut w = standing_by(false, |map| standby(map, GID, "x"));
    w.input(Input::MonConnected { gid: 4_200 });
    mgr_map(&mut w, |map| standby(map, GID, "x"));
    assert!(!ends(&w.sent()));
    // Nor is it one that lost its place to another name.
    let mut w = in_charge();
    mgr_map(&mut w, |map| (map.active_gid, map.active_name) = (7, "y".to_owned()));
    let sent = w.sent();
    assert!(!ends(&sent) && sent.contains(&Output::Respawn));
    let mut w = in_charge();
    mgr_map(&mut w, |map| {
        map.epoch = map.epoch.next();
        (map.active_gid, map.active_name) = (4_200, "x".to_owned());
        map.active_addrs =
            AddrVec::single(EntityAddr::parse("v2:10.0.0.2:6800/9", AddrKind::Msgr2).expect("one"));
    });
    assert!(ends(&w.sent()));
}

#[test]
fn the_service_map_goes_on_from_the_one_that_the_monitors_hold() {
    let mut w = in_charge();
    let mut theirs = ServiceMap { epoch: Epoch(17), ..ServiceMap::default() };
    theirs
        .services
        .entry("rgw".to_owned())
        .or_default()
        .daemons
        .insert("gone".to_owned(), Default::default());
    w.mon_sends(MServiceMap { map: RestOfFront(theirs.to_bytes()) });
    w.advance(Duration::from_secs(2));
    let maps = |out: &[Output]| -> Vec<ServiceMap> {
        let reports = sent_reports(out).into_iter().filter(|r| !r.service_map.is_empty());
        reports.map(|r| ServiceMap::from_bytes(r.service_map).expect("a map")).collect()
    };
    let sent = maps(&w.sent()).pop().expect("a service map");
    assert_eq!((sent.epoch, sent.services.len()), (Epoch(18), 0), "nobody has registered with us");
    // It comes back to us, and is not sent again.
    w.mon_sends(MServiceMap { map: RestOfFront(sent.to_bytes()) });
    w.advance(Duration::from_secs(10));
    assert_eq!(maps(&w.sent()), []);
}

/// The steps that the monitors were told to take since the last call; they take them.
fn steps(w: &mut World) -> Vec<(String, String)> {
    w.advance(Duration::from_secs(1));
    let sent = w.sent();
    let mut out = Vec::new();
    // What it asks of disks is no step.
    let is_step =
        |(_, json): &(u64, Value)| !json["prefix"].as_str().is_some_and(|p| p.ends_with("metadata"));
    for (tid, json) in commands(&sent).into_iter().filter(is_step) {
        let text = |key: &str| json[key].as_str().unwrap_or_default().to_owned();
        let what = if json["prefix"] == "osd pool set" { text("var") } else { text("prefix") };
        out.push((what, text("val") + &text("pgid")));
        w.input(Input::FromMon { tid, msg: MMonCommandAck::default().into() });
    }
    out
}

#[test]
fn pg_counts_take_a_step_at_a_time() {
    let mut w = in_charge();
    assert_eq!(steps(&mut w), []);
    let pool = PoolId(8);
    let with =
        |n: u32, edit: &dyn Fn(&mut Pool)| map_with(n, |map| edit(map.pools.get_mut(&pool).expect("it")));
    let pg_num = recorded_map().pools[&pool].pg_num;
    let pair = |var: &str, n: u32| (var.to_owned(), n.to_string());
    // More PGs, and their places once all of them are known.
    w.mon_sends(with(0, &|p| (p.pg_num_target, p.pgp_num_target) = (2 * pg_num, 2 * pg_num)));
    assert_eq!(steps(&mut w)[0], pair("pg_num_actual", 2 * pg_num));
    // Fewer: places first.
    w.mon_sends(with(1, &|p| (p.pg_num_target, p.pgp_num_target) = (pg_num / 2, pg_num / 2)));
    let moved = steps(&mut w);
    let [(var, val), ..] = moved.as_slice() else { panic!("no step") };
    let next: u32 = val.parse().expect("a number");
    assert!(var == "pgp_num_actual" && next < pg_num && next >= pg_num / 2, "{moved:?}");
    // Then the last PG, unless CRUSH is overruled for it.
    let last = PgId::new(pool, pg_num - 1);
    let merging = |upmap: bool| {
        map_with(if upmap { 2 } else { 3 }, |map| {
            let p = map.pools.get_mut(&pool).expect("the pool");
            (p.pg_num_target, p.pgp_num_target, p.pgp_num) = (pg_num / 2, pg_num / 2, pg_num / 2);
            map.pg_upmap_items.extend(upmap.then(|| (last, vec![(0, 1)])));
        })
    };
    // Both that are to be one lie on the same OSDs.
    for (osd, mut report) in reports() {
        report
            .pg_stats
            .values_mut()
            .for_each(|s| (s.reported_seq, s.acting) = (s.reported_seq + 1, vec![0, 1]));
        w.message(osd_conn(osd), report);
    }
    w.mon_sends(merging(true));
    assert!(steps(&mut w).contains(&("osd rm-pg-upmap-items".to_owned(), last.to_string())));
    w.mon_sends(merging(false));
    assert!(steps(&mut w).contains(&pair("pg_num_actual", pg_num - 1)));
}

#[test]
fn what_a_monitor_passes_on_was_checked_by_it() {
    let mut w = in_charge();
    let (mon, client) = (ConnId(40), ConnId(41));
    w.input(Input::Connected { conn: mon, peer: peer(EntityType::Mon, 0, "allow service x r") });
    w.input(Input::Connected { conn: client, peer: peer(EntityType::Client, 77, "allow service x r") });
    let asked =
        |w: &mut World, conn| w.command_as(conn, r#"{"prefix":"pg stat"}"#).expect("an answer").result;
    assert_eq!(asked(&mut w, mon), 0);
    assert_eq!(asked(&mut w, client), Errno::EACCES.neg());
}

/// Else they would let anything be set.
#[test]
fn monitors_of_ours_are_told_which_options_there_are() {
    let mut w = World::new();
    w.input(Input::MonConnected { gid: GID });
    w.mon_sends(full_map(Bytes::from_static(OSDMAP)));
    let beacon = beacons(&w.sent()).pop().expect("a beacon");
    let options = |name: &str| {
        let module = beacon.modules.iter().find(|m| m.name == name).expect("listed");
        module.options.keys().cloned().collect::<Vec<_>>()
    };
    assert_eq!(options("crash"), ["retain_interval", "warn_recent_interval"]);
    assert_eq!(options("pg_autoscaler"), ["noautoscale", "sleep_interval"]);
    assert!(options("prometheus").iter().any(|name| name == "server_port"));
    assert!(
        beacon.modules.iter().all(|m| m.can_run && m.name != "influx"),
        "what is not served is not there"
    );
}
