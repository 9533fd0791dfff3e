//! The manager as a state machine: inputs in, outputs compared as values.

mod common;

use std::time::Duration;

use bytes::Bytes;
use codec::{Decode, Encode};
use common::{ADMIN, OSDMAP, World, full_map, osd_conn, peer, reports, text};
use manager::{Input, Output};
use maps::OsdMap;
use messages::Message;
use messages::common::{MCommand, MCommandReply};
use messages::mgr::{MMgrConfigure, MMgrOpen, MPgDigest};
use messages::mon::{MConfig, MMonCommand, MMonCommandAck, MMonSubscribe, MOsdMap};
use messages::pg_state::{ACTIVE, CLEAN, PEERING, STALE};
use messages::pool_stats::{MPgStats, MPgStatsAck};
use monitor::state::PgDigest;
use types::{ConnId, EntityType, Epoch, PgId, PoolId};

const MS: Duration = Duration::from_millis(1);

fn digests(out: &[Output]) -> Vec<PgDigest> {
    let digest = |o: &Output| match o {
        Output::SendMon { msg: Message::PgDigest(MPgDigest { summary, .. }), .. } => {
            Some(PgDigest::from_bytes(summary.clone()).expect("a digest"))
        }
        _ => None,
    };
    out.iter().filter_map(digest).collect()
}

/// Where the OSD map subscription was asked to start.
fn osdmap_starts(out: &[Output]) -> Vec<u64> {
    let start = |o: &Output| match o {
        Output::SendMon { msg: Message::MonSubscribe(MMonSubscribe { what, .. }), .. } => {
            what.get("osdmap").map(|item| item.start)
        }
        _ => None,
    };
    out.iter().filter_map(start).collect()
}

fn recorded_map() -> OsdMap {
    OsdMap::from_bytes(Bytes::from_static(OSDMAP)).expect("a map")
}

/// The map's next epoch with something changed.
fn next_map(edit: impl FnOnce(&mut OsdMap)) -> MOsdMap {
    let mut map = recorded_map();
    map.epoch = map.epoch.next();
    edit(&mut map);
    full_map(map.to_bytes())
}

/// A report of osd.1 with some PGs changed.
fn change_pgs(w: &mut World, osd: i32, edit: impl Fn(&mut messages::stats::PgStat)) {
    let (_, mut report) = reports().into_iter().find(|(o, _)| *o == osd).expect("a report");
    report.pg_stats.values_mut().for_each(|s| {
        s.reported_seq += 1;
        edit(s);
    });
    w.message(osd_conn(osd), report);
}

#[test]
fn a_session_with_a_monitor_begins_with_subscriptions_and_the_beacon_follows_the_map() {
    let mut w = World::new();
    w.input(Input::MonConnected { gid: 7 });
    let out = w.sent();
    assert_eq!((out.len(), osdmap_starts(&out)), (1, vec![0]), "{out:?}");
    w.mon_sends(full_map(Bytes::from_static(OSDMAP)));
    let sent = w.sent();
    let beacon = |o: &Output| match o {
        Output::SendMon { msg: Message::MgrBeacon(beacon), .. } => Some(beacon.clone()),
        _ => None,
    };
    let beacons: Vec<_> = sent.iter().filter_map(beacon).collect();
    let [beacon] = beacons.as_slice() else { panic!("{sent:?}") };
    assert_eq!((beacon.gid, beacon.name.as_str(), beacon.available), (7, "x", true));
    assert_eq!(beacon.fsid, recorded_map().fsid);
    assert!(beacon.commands.iter().any(|c| c.cmdstring == "pg stat" && c.flags == 8));
    assert!(beacon.commands.iter().any(|c| c.cmdstring.starts_with("iostat ") && c.flags == 24));
    // The next beacon after two seconds, and none without a session.
    w.advance(1_750 * MS);
    assert_eq!(w.sent(), []);
    w.advance(250 * MS);
    assert!(matches!(w.sent().as_slice(), [Output::SendMon { msg: Message::MgrBeacon(_), .. }]));
}

#[test]
fn reports_are_acknowledged_and_the_digest_waits_for_all_osds() {
    let mut w = World::new();
    w.input(Input::MonConnected { gid: 7 });
    w.mon_sends(full_map(Bytes::from_static(OSDMAP)));
    w.sent();
    let mut all = reports();
    let (last, report) = all.pop().expect("reports");
    for (osd, report) in all {
        let pgs = report.pg_stats.iter().map(|(pg, s)| (*pg, (s.reported_seq, s.reported_epoch))).collect();
        w.connect_osd(osd);
        w.message(osd_conn(osd), report);
        assert_eq!(w.sent(), [Output::send(osd_conn(osd), 0, MPgStatsAck { pgs })]);
    }
    w.advance(3_000 * MS);
    assert_eq!(digests(&w.sent()), []);
    let warned = w.command(r#"{"prefix":"pg stat"}"#).expect("an answer");
    assert!(warned.status.starts_with("Warning: due to ceph-mgr restart"), "{}", warned.status);
    w.connect_osd(last);
    w.message(osd_conn(last), report);
    let digests = digests(&w.sent());
    let [digest] = digests.as_slice() else { panic!("{digests:?}") };
    assert_eq!(digest.pg_states, [(ACTIVE | CLEAN, 185)].into());
    assert_eq!((digest.pools.len(), digest.osds.len(), digest.checks.len()), (8, 3, 0));
    // 27.05 GiB of the 30 are below the full ratio; what is left on the fullest OSD bounds the pool.
    let avail = digest.pools[&PoolId(8)].avail_raw >> 30;
    assert!((26..28).contains(&avail), "{avail}");
}

#[test]
fn an_osd_that_never_reports_holds_the_digest_up_for_twenty_seconds() {
    let mut w = World::new();
    w.input(Input::MonConnected { gid: 7 });
    w.mon_sends(full_map(Bytes::from_static(OSDMAP)));
    w.advance(19_750 * MS);
    assert_eq!(digests(&w.sent()), []);
    w.advance(250 * MS);
    let digests = digests(&w.sent());
    assert_eq!(digests.iter().map(|d| d.pg_states.clone()).collect::<Vec<_>>(), [[(0, 185)].into()]);
}

#[test]
fn news_of_pg_states_go_out_at_once_and_others_every_two_seconds() {
    let mut w = World::recorded();
    w.advance(5_000 * MS);
    w.sent();
    // Nothing new, nothing sent but beacons.
    w.advance(10_000 * MS);
    assert_eq!(digests(&w.sent()), []);
    // New numbers: one now, the next two seconds later.
    change_pgs(&mut w, 1, |s| s.stats.sum.num_objects += 1);
    assert_eq!(digests(&w.sent()).len(), 1);
    change_pgs(&mut w, 1, |s| {
        s.reported_seq += 1;
        s.stats.sum.num_objects += 2;
    });
    w.advance(1_750 * MS);
    assert_eq!(digests(&w.sent()), []);
    w.advance(250 * MS);
    assert_eq!(digests(&w.sent()).len(), 1);
    // New states: not in the same 20 ms, but with the next input after them.
    change_pgs(&mut w, 1, |s| {
        s.reported_seq += 2;
        s.state = PEERING;
    });
    assert_eq!(digests(&w.sent()), []);
    w.advance(20 * MS);
    let sent = digests(&w.sent());
    assert_eq!(sent.len(), 1);
    assert_eq!(sent[0].pg_states.get(&PEERING).copied(), Some(70));
}

#[test]
fn a_new_monitor_is_told_everything_again() {
    let mut w = World::recorded();
    w.advance(10_000 * MS);
    w.sent();
    w.input(Input::MonConnected { gid: 9 });
    let out = w.sent();
    assert_eq!(osdmap_starts(&out), [u64::from(recorded_map().epoch.0) + 1]);
    assert_eq!(digests(&out).len(), 1);
}

#[test]
fn stale_reports_are_acknowledged_and_ignored() {
    let mut w = World::recorded();
    change_pgs(&mut w, 1, |s| s.state = PEERING);
    w.sent();
    // An earlier sequence, and an earlier epoch with a later one.
    change_pgs(&mut w, 1, |s| {
        s.reported_seq -= 1;
        s.state = ACTIVE;
    });
    change_pgs(&mut w, 1, |s| {
        s.reported_epoch = s.reported_epoch.prev();
        s.reported_seq += 10;
        s.state = ACTIVE;
    });
    let acks = w.sent().into_iter().filter(|o| matches!(o, Output::Send { msg: Message::PgStatsAck(_), .. }));
    assert_eq!(acks.count(), 2);
    let stat = text(&w.command(r#"{"prefix":"pg stat"}"#).expect("an answer"));
    assert!(stat.starts_with("185 pgs: 115 active+clean, 70 peering; "), "{stat}");
}

#[test]
fn reports_of_another_cluster_or_of_no_osd_are_dropped() {
    let mut w = World::recorded();
    let before = text(&w.command(r#"{"prefix":"pg dump"}"#).expect("an answer"));
    let (_, mut report) = reports().remove(0);
    w.message(ADMIN, report.clone());
    report.fsid = types::Fsid([9; 16]);
    w.message(osd_conn(0), report.clone());
    w.message(ConnId(999), report);
    assert_eq!(w.sent(), []);
    assert_eq!(text(&w.command(r#"{"prefix":"pg dump"}"#).expect("an answer")), before);
}

#[test]
fn a_gap_in_the_maps_starts_over_from_a_whole_one() {
    let mut w = World::recorded();
    let epoch = recorded_map().epoch;
    let later = Epoch(epoch.0 + 2);
    // It is not looked at: the one before it is missing.
    let bytes = Bytes::from_static(b"an increment");
    let gap = MOsdMap { incremental: [(later, bytes)].into(), newest: later, ..MOsdMap::default() };
    w.mon_sends(gap);
    assert_eq!(osdmap_starts(&w.sent()), [0]);
    let refused = w.command(r#"{"prefix":"pg stat"}"#).expect("an answer");
    assert_eq!(refused.result, -11);
    w.mon_sends(next_map(|_| ()));
    let stat = text(&w.command(r#"{"prefix":"pg stat"}"#).expect("an answer"));
    assert!(stat.starts_with("185 pgs: 185 active+clean; "), "{stat}");
}

#[test]
fn maps_that_do_not_decode_or_are_old_do_no_harm() {
    let mut w = World::recorded();
    w.mon_sends(full_map(Bytes::from_static(OSDMAP)));
    assert_eq!(w.sent(), []);
    let next = recorded_map().epoch.next();
    let broken =
        MOsdMap { full: [(next, Bytes::from_static(b"no map"))].into(), newest: next, ..MOsdMap::default() };
    w.mon_sends(broken);
    assert_eq!(osdmap_starts(&w.sent()), [0]);
}

#[test]
fn pools_come_and_go_and_their_pgs_with_them() {
    let mut w = World::recorded();
    let mut map = recorded_map();
    map.epoch = map.epoch.next();
    map.pools.remove(&PoolId(8));
    map.pool_names.remove(&PoolId(8));
    let mut pool = map.pools[&PoolId(2)].clone();
    pool.pg_num = 4;
    map.pools.insert(PoolId(9), pool);
    map.pool_names.insert(PoolId(9), "new".to_owned());
    w.mon_sends(full_map(map.to_bytes()));
    let stat = text(&w.command(r#"{"prefix":"pg stat"}"#).expect("an answer"));
    assert!(stat.starts_with("157 pgs: 4 unknown, 153 active+clean; "), "{stat}");
    let got = w.command(r#"{"prefix":"osd ok-to-stop","ids":["0"]}"#).expect("an answer");
    assert_eq!(
        (got.result, got.status.as_str()),
        (-11, "4 pgs have unknown state; cannot draw any conclusions")
    );
}

#[test]
fn reports_made_with_a_later_map_wait_for_it() {
    let mut w = World::recorded();
    let pg = PgId::new(PoolId(9), 0);
    let (_, mut report) = reports().remove(0);
    let mut stat = report.pg_stats.values().next().expect("a PG").clone();
    stat.state = ACTIVE | CLEAN;
    report.epoch = report.epoch.next();
    report.pg_stats = [(pg, stat)].into();
    w.message(osd_conn(0), report);
    assert_eq!(w.sent(), []);
    w.mon_sends(next_map(|map| {
        let mut pool = map.pools[&PoolId(2)].clone();
        pool.pg_num = 1;
        map.pools.insert(PoolId(9), pool);
        map.pool_names.insert(PoolId(9), "new".to_owned());
    }));
    let acks = w.sent().into_iter().filter(|o| matches!(o, Output::Send { msg: Message::PgStatsAck(_), .. }));
    assert_eq!(acks.count(), 1);
    let stat = text(&w.command(r#"{"prefix":"pg stat"}"#).expect("an answer"));
    assert!(stat.starts_with("186 pgs: 186 active+clean; "), "{stat}");
}

#[test]
fn osds_that_go_down_leave_stale_pgs_and_deleted_ones_nothing() {
    let mut w = World::recorded();
    w.advance(3_000 * MS);
    w.sent();
    w.mon_sends(next_map(|map| map.osds[1].state &= !maps::flags::osd_state::UP));
    let sent = digests(&w.sent());
    assert_eq!(sent.len(), 1);
    assert_eq!(sent[0].pg_states, [(ACTIVE | CLEAN, 115), (ACTIVE | CLEAN | STALE, 70)].into());
    assert_eq!(sent[0].checks.len(), 0);
    // What is stale for a minute is a reason for ill health.
    w.advance(59_000 * MS);
    assert!(digests(&w.sent()).iter().all(|d| d.checks.is_empty()));
    w.advance(6_000 * MS);
    let check =
        digests(&w.sent()).pop().expect("a digest").checks.remove("PG_AVAILABILITY").expect("a check");
    assert_eq!(check.summary, "Reduced data availability: 70 pgs stale");
    // It is deleted: its numbers are gone.
    let mut map = recorded_map();
    map.epoch = Epoch(map.epoch.0 + 2);
    map.osds[1] = maps::Osd::default();
    w.mon_sends(full_map(map.to_bytes()));
    let osds = text(&w.command(r#"{"prefix":"osd perf"}"#).expect("an answer"));
    assert_eq!(osds.lines().count(), 3, "{osds}");
}

#[test]
fn an_osd_that_is_out_counts_for_nothing() {
    let mut w = World::recorded();
    let out = next_map(|map| map.weights[2] = 0);
    w.mon_sends(out);
    let reply = w.command(r#"{"prefix":"osd df","format":"json"}"#).expect("an answer");
    let df: serde_json::Value = serde_json::from_slice(&reply.output).expect("JSON");
    assert_eq!(df["summary"]["total_kb"], 2 * 10_485_760);
    assert_eq!((&df["nodes"][2]["kb"], &df["nodes"][2]["pgs"]), (&0.into(), &112.into()));
    // Also when it reports again.
    change_pgs(&mut w, 2, |_| ());
    assert_eq!(w.command(r#"{"prefix":"osd df","format":"json"}"#).expect("an answer").output, reply.output);
    // But while PGs are not whole, what it stores may still be needed.
    for osd in [0, 1, 2] {
        change_pgs(&mut w, osd, |s| {
            s.reported_seq += 1;
            s.state = ACTIVE | messages::pg_state::DEGRADED;
            s.up = vec![0, 1];
            s.acting = vec![0, 1];
        });
    }
    let safe = w.command(r#"{"prefix":"osd safe-to-destroy","ids":["2"]}"#).expect("an answer");
    assert_eq!(safe.result, -16);
    assert!(
        safe.status.starts_with("OSD(s) 2 last reported they still store some PG data"),
        "{}",
        safe.status
    );
}

#[test]
fn rates_follow_the_reports_and_fade() {
    let mut w = World::recorded();
    w.advance(10_000 * MS);
    w.sent();
    change_pgs(&mut w, 0, |s| {
        s.stats.sum.num_wr += 10;
        s.stats.sum.num_wr_kb += 1_024;
    });
    w.advance(1_000 * MS);
    // osd.0 leads 62 PGs: 620 writes of 62 MiB within the ten seconds that are looked at.
    let stat = text(&w.command(r#"{"prefix":"pg stat"}"#).expect("an answer"));
    assert!(stat.ends_with(" avail; 6.2 MiB/s wr, 62 op/s\n"), "{stat}");
    let iostat = text(&w.command(r#"{"prefix":"iostat","width":80}"#).expect("an answer"));
    let row = "|      0 B/s | 6348 KiB/s | 6348 KiB/s |          0 |         62 |         62 |\n";
    assert_eq!(iostat, row);
    let pools = text(&w.command(r#"{"prefix":"osd pool stats","pool_name":"bench"}"#).expect("an answer"));
    assert!(pools.starts_with("pool bench id 8\n  client io "), "{pools}");
    let status = text(&w.command(r#"{"prefix":"osd status"}"#).expect("an answer"));
    let row: Vec<&str> = status.lines().nth(1).expect("osd.0").split_whitespace().collect();
    assert_eq!(row, ["0", "vm", "301M", "9938M", "62", "6348k", "0", "0", "exists,up"]);
    w.advance(1_000 * MS);
    let rates: Vec<u64> = digests(&w.sent()).iter().map(|d| d.rates.writes).collect();
    assert!(rates.last().is_some_and(|r| *r > 0), "{rates:?}");
    // Without further reports the rates are taken back.
    w.advance(15_000 * MS);
    assert_eq!(digests(&w.sent()).last().expect("a digest").rates.writes, 0);
    w.advance(10_000 * MS);
    assert_eq!(digests(&w.sent()), []);
}

#[test]
fn daemons_are_configured_and_their_options_shown() {
    let mut w = World::recorded();
    let config: std::collections::BTreeMap<String, std::collections::BTreeMap<i32, String>> = [
        ("debug_ms".to_owned(), [(2, "0/0".to_owned())].into()),
        ("keyring".to_owned(), [(0, "$osd_data/keyring".to_owned()), (2, "/k".to_owned())].into()),
    ]
    .into();
    let ignored: std::collections::BTreeMap<String, String> =
        [("debug_ms".to_owned(), "1/5".to_owned())].into();
    let open = MMgrOpen {
        daemon_name: "0".to_owned(),
        config: [config.to_bytes(), ignored.to_bytes()].concat().into(),
        config_defaults: std::collections::BTreeMap::from([("osd_x".to_owned(), "5".to_owned())]).to_bytes(),
        ..MMgrOpen::default()
    };
    w.message(osd_conn(0), open);
    assert_eq!(
        w.sent(),
        [Output::send(osd_conn(0), 0, MMgrConfigure { period_s: 5, ..MMgrConfigure::default() })]
    );
    let show = |w: &mut World, cmd: &str| {
        let reply = w.command(cmd).expect("an answer");
        (reply.result, text(&reply))
    };
    let want = "NAME      VALUE  SOURCE  OVERRIDES                   IGNORES\n\
                debug_ms  0/0    file                                mon    \n\
                keyring   /k     file    default[$osd_data/keyring]         \n";
    assert_eq!(show(&mut w, r#"{"prefix":"config show","who":"osd.0"}"#), (0, want.to_owned()));
    let with_key = r#"{"prefix":"config show","who":"osd.0","key":"osd_x"}"#;
    assert_eq!(show(&mut w, with_key), (0, "5\n".to_owned()));
    assert_eq!(show(&mut w, r#"{"prefix":"config show","who":"osd.0","key":"no"}"#).0, -2);
    assert_eq!(show(&mut w, r#"{"prefix":"config show","who":"osd.1"}"#).0, -2);
    assert_eq!(show(&mut w, r#"{"prefix":"config show","who":"osd"}"#).0, -22);
    let config = MConfig { options: [("mgr_stats_period".to_owned(), "7".to_owned())].into() };
    w.mon_sends(config);
    let own = show(&mut w, r#"{"prefix":"config show","who":"mgr.x","format":"json"}"#);
    assert_eq!(own, (0, r#"[{"name":"mgr_stats_period","value":"7","source":"mon"}]"#.to_owned()));
    let json = show(&mut w, r#"{"prefix":"config show-with-defaults","who":"osd.0","format":"json"}"#).1;
    assert_eq!(json, r#"[{"name":"osd_x","value":"5","source":"default"}]"#);
}

#[test]
fn a_monitors_options_are_what_it_told_or_are_asked_for() {
    let mut w = World::recorded();
    let (all, defaults) = (
        r#"{"prefix":"config show","who":"mon.a","format":"json"}"#,
        r#"{"prefix":"config show-with-defaults","who":"mon.a"}"#,
    );
    assert_eq!(w.command(all), None, "the monitors are asked");
    let conn = ConnId(60);
    w.input(Input::Connected { conn, peer: peer(EntityType::Mon, 0, "allow *") });
    let config = std::collections::BTreeMap::from([(
        "debug_ms".to_owned(),
        std::collections::BTreeMap::from([(2, "0/0".to_owned())]),
    )]);
    let ignored = std::collections::BTreeMap::<String, String>::new();
    let config = [config.to_bytes(), ignored.to_bytes()].concat().into();
    w.message(conn, MMgrOpen { daemon_name: "a".to_owned(), config, ..MMgrOpen::default() });
    let told = w.command(all).expect("an answer");
    assert_eq!(text(&told), r#"[{"name":"debug_ms","value":"0/0","source":"file"}]"#);
    assert_eq!(w.command(defaults), None, "of its defaults it told nothing");
}

#[test]
fn services_register_and_leave() {
    let mut w = World::recorded();
    let conn = ConnId(50);
    w.input(Input::Connected { conn, peer: peer(EntityType::Client, 4_144, "allow rw") });
    let service = messages::mgr::ServiceInfo {
        metadata: [("id".to_owned(), "x".to_owned())].into(),
        status: [("current_sync".to_owned(), "[]".to_owned())].into(),
    };
    let open = MMgrOpen {
        daemon_name: "4144".to_owned(),
        service_name: "rgw".to_owned(),
        service: Some(service),
        ..MMgrOpen::default()
    };
    w.message(conn, open);
    let dump = |w: &mut World, cmd: &str| -> serde_json::Value {
        serde_json::from_slice(&w.command(cmd).expect("an answer").output).expect("JSON")
    };
    let services = dump(&mut w, r#"{"prefix":"service dump"}"#);
    assert_eq!(services["services"]["rgw"]["daemons"]["4144"]["metadata"]["id"], "x");
    let status = dump(&mut w, r#"{"prefix":"service status"}"#);
    assert_eq!(status["rgw"]["4144"]["status"]["current_sync"], "[]");
    w.input(Input::Disconnected { conn });
    assert_eq!(dump(&mut w, r#"{"prefix":"service dump"}"#)["services"], serde_json::json!({}));
}

#[test]
fn what_the_monitors_have_to_do_is_asked_of_them() {
    let mut w = World::recorded();
    assert_eq!(w.command(r#"{"prefix":"osd purge","id":1,"force":true}"#), None);
    let sent = w.sent();
    let [Output::SendMon { tid, msg: Message::MonCommand(asked) }] = sent.as_slice() else {
        panic!("{sent:?}")
    };
    let json = r#"{"prefix":"osd purge-actual","id":1,"yes_i_really_mean_it":true}"#;
    assert_eq!(
        *asked,
        MMonCommand { fsid: recorded_map().fsid, cmd: vec![json.to_owned()], ..MMonCommand::default() }
    );
    // A new session: it is asked again.
    w.input(Input::MonConnected { gid: 8 });
    let again = w.sent().into_iter().filter(|o| *o == sent[0]).count();
    assert_eq!(again, 1);
    let ack = MMonCommandAck { status: "purged osd.1".to_owned(), ..MMonCommandAck::default() };
    w.input(Input::FromMon { tid: *tid, msg: ack.clone().into() });
    let answers = w.sent();
    let [Output::Send { conn: ADMIN, msg: Message::MgrCommandReply(reply), .. }] = answers.as_slice() else {
        panic!("{answers:?}")
    };
    assert_eq!((reply.result, reply.status.as_str()), (0, "purged osd.1"));
    // Nobody waits for it any more.
    w.input(Input::FromMon { tid: *tid, msg: ack.into() });
    assert_eq!(w.sent(), []);
}

#[test]
fn new_weights_go_to_the_monitors_with_the_reckoning_in_front() {
    let mut w = World::recorded();
    assert_eq!(
        w.command(r#"{"prefix":"osd reweight-by-pg","oload":101,"max_change":0.2,"max_osds":3}"#),
        None
    );
    let sent = w.sent();
    let [Output::SendMon { tid, msg: Message::MonCommand(asked) }] = sent.as_slice() else {
        panic!("{sent:?}")
    };
    assert_eq!(asked.cmd, [r#"{"prefix":"osd reweightn","weights":"{'0':'63643','1':'61700'}"}"#]);
    let tid = *tid;
    w.input(Input::FromMon { tid, msg: MMonCommandAck::default().into() });
    let answers = w.sent();
    let [Output::Send { msg: Message::MgrCommandReply(reply), .. }] = answers.as_slice() else {
        panic!("{answers:?}")
    };
    assert!(text(reply).starts_with("moved 16 / 370 "), "{}", text(reply));
}

#[test]
fn commands_that_a_monitor_passes_on_are_answered_to_it() {
    let mut w = World::recorded();
    let msg = MCommand {
        fsid: recorded_map().fsid,
        cmd: vec![r#"{"prefix":"crash stat"}"#.to_owned()],
        ..MCommand::default()
    };
    w.input(Input::FromMon { tid: 77, msg: msg.into() });
    let output = Bytes::from_static(b"0 crashes recorded\n");
    let reply = MCommandReply { result: 0, status: String::new(), output };
    assert_eq!(w.sent(), [Output::SendMon { tid: 77, msg: reply.into() }]);
}

#[test]
fn osds_are_told_to_scrub_and_whom_to_recover_first() {
    let mut w = World::recorded();
    let run = |w: &mut World, cmd: &str| {
        let reply = w.command(cmd).expect("an answer");
        (reply.result, reply.status, w.sent())
    };
    let (code, text, sent) = run(&mut w, r#"{"prefix":"pg deep-scrub","pgid":"2.0"}"#);
    assert_eq!((code, text.as_str()), (0, "instructing pg 2.0 on osd.2 to deep-scrub"));
    let [Output::Send { conn, msg: Message::OsdScrub2(scrub), .. }] = sent.as_slice() else {
        panic!("{sent:?}")
    };
    assert_eq!((*conn, scrub.deep, scrub.repair, scrub.pgs.len()), (osd_conn(2), true, false, 1));
    let (code, _, sent) = run(&mut w, r#"{"prefix":"osd pool repair","who":["bench"]}"#);
    let pgs = |o: &Output| match o {
        Output::Send { msg: Message::OsdScrub2(m), .. } if m.repair && !m.deep => m.pgs.len(),
        other => panic!("{other:?}"),
    };
    assert_eq!((code, sent.iter().map(pgs).sum::<usize>()), (0, 32));
    let (_, text, sent) = run(&mut w, r#"{"prefix":"osd scrub","who":"all"}"#);
    assert_eq!((text.as_str(), sent.len()), ("instructed osd(s) 0,1,2 to scrub", 3));
    assert_eq!(run(&mut w, r#"{"prefix":"osd scrub","who":"osd.9"}"#).0, -11);
    assert_eq!(run(&mut w, r#"{"prefix":"pg scrub","pgid":"x"}"#).0, -22);
    assert_eq!(run(&mut w, r#"{"prefix":"pg scrub","pgid":"99.1"}"#).0, -2);
    let not_needed = run(&mut w, r#"{"prefix":"pg force-recovery","pgid":["2.1"]}"#);
    assert_eq!(not_needed, (0, "pg 2.1 doesn't require recovery; \n".to_owned(), vec![]));
    change_pgs(&mut w, 2, |s| s.state = ACTIVE | messages::pg_state::DEGRADED);
    w.sent();
    let (code, text, sent) = run(&mut w, r#"{"prefix":"pg force-recovery","pgid":["2.0","2.1"]}"#);
    assert_eq!((code, text.as_str()), (0, "instructing pg(s) [2.0,2.1] on osd.2 to force-recovery; \n"));
    let [Output::Send { msg: Message::OsdForceRecovery(force), .. }] = sent.as_slice() else {
        panic!("{sent:?}")
    };
    assert_eq!((force.options, force.pgs.len()), (1, 2));
    w.input(Input::Disconnected { conn: osd_conn(2) });
    assert_eq!(run(&mut w, r#"{"prefix":"pg scrub","pgid":"2.0"}"#).0, -11);
}

/// A PG's first report sums up what happened before we looked: it is no traffic of now, whenever it comes.
#[test]
fn what_happened_before_the_first_report_makes_no_rate() {
    let mut w = World::new();
    w.input(Input::MonConnected { gid: 4_100 });
    w.mon_sends(full_map(Bytes::from_static(OSDMAP)));
    let reports = reports();
    for (osd, _) in &reports {
        w.connect_osd(*osd);
    }
    // Every OSD speaks, so that statistics count as complete, but some PGs' states come later.
    for (osd, report) in &reports {
        let mut first = report.clone();
        first.pg_stats.retain(|pg, _| pg.seed % 2 == 0);
        w.message(osd_conn(*osd), first);
    }
    w.advance(Duration::from_secs(2));
    for (osd, mut report) in reports {
        report.pg_stats.values_mut().for_each(|s| s.stats.sum.num_wr_kb += 1_000_000);
        report.pg_stats.retain(|pg, _| pg.seed % 2 == 1);
        w.message(osd_conn(osd), report);
    }
    w.advance(Duration::from_secs(3));
    let last = digests(&w.sent()).pop().expect("a digest");
    assert_eq!(last.rates, Default::default());
}

#[test]
fn a_manager_that_lost_its_place_says_nothing_more_until_it_has_it_again() {
    let mut w = World::recorded();
    let map = |active_gid: u64| {
        let map = maps::MgrMap { active_gid, ..maps::MgrMap::initial() };
        messages::mon::MMgrMap { map: messages::payload::RestOfFront(map.to_bytes()) }
    };
    w.mon_sends(map(4_100));
    change_pgs(&mut w, 1, |s| s.state = PEERING);
    w.advance(3_000 * MS);
    assert!(!digests(&w.sent()).is_empty());
    w.mon_sends(map(4_200));
    let sent = w.sent();
    let closed = sent.iter().filter(|o| matches!(o, Output::Close { .. })).count();
    assert_eq!(closed, 4, "the client and three OSDs go to the other one");
    assert_eq!(sent.last(), Some(&Output::Respawn), "its address is blocked");
    for (osd, report) in reports() {
        w.message(osd_conn(osd), report);
    }
    w.advance(5_000 * MS);
    assert_eq!(digests(&w.sent()), [], "the monitors listen to another one");
    w.mon_sends(map(4_100));
    for (osd, report) in reports() {
        w.connect_osd(osd);
        w.message(osd_conn(osd), report);
    }
    w.advance(3_000 * MS);
    assert!(!digests(&w.sent()).is_empty());
}

/// An OSD whose reports are ahead of every map does not push out those of others.
#[test]
fn reports_that_come_early_have_a_share_for_each_osd() {
    let mut w = World::new();
    w.input(Input::MonConnected { gid: 4_100 });
    let (osd, report) = reports().remove(0);
    for osd in [osd, 9] {
        w.connect_osd(osd);
    }
    w.message(osd_conn(osd), report.clone());
    for _ in 0..5_000 {
        let ahead = MPgStats { fsid: report.fsid, epoch: Epoch(u32::MAX), ..MPgStats::default() };
        w.message(osd_conn(9), ahead);
    }
    w.mon_sends(full_map(Bytes::from_static(OSDMAP)));
    let is_ack = |o: &Output| matches!(o, Output::Send { conn, msg: Message::PgStatsAck(_), .. } if *conn == osd_conn(osd));
    assert!(w.sent().iter().any(is_ack));
}

fn in_charge(w: &mut World, active_gid: u64) {
    let map = maps::MgrMap { active_gid, ..maps::MgrMap::initial() };
    w.mon_sends(messages::mon::MMgrMap { map: messages::payload::RestOfFront(map.to_bytes()) });
}

#[test]
fn who_loses_its_place_forgets_what_its_sessions_registered() {
    let mut w = World::recorded();
    let conn = ConnId(50);
    w.input(Input::Connected { conn, peer: peer(EntityType::Client, 4_144, "allow rw") });
    let service = Some(messages::mgr::ServiceInfo::default());
    let (daemon_name, service_name) = ("4144".to_owned(), "rgw".to_owned());
    w.message(conn, MMgrOpen { daemon_name, service_name, service, ..MMgrOpen::default() });
    in_charge(&mut w, 4_200);
    in_charge(&mut w, 4_100);
    w.input(Input::Connected { conn: common::ADMIN, peer: peer(EntityType::Client, 4_201, "allow *") });
    let dump = w.command(r#"{"prefix":"service dump"}"#).expect("an answer");
    let dump: serde_json::Value = serde_json::from_slice(&dump.output).expect("JSON");
    assert_eq!(dump["services"], serde_json::json!({}));
}

#[test]
fn who_takes_over_waits_for_reports_as_after_a_start() {
    let mut w = World::new();
    w.input(Input::MonConnected { gid: 4_100 });
    in_charge(&mut w, 4_200);
    assert!(!w.sent().contains(&Output::Respawn), "it never was in charge, and nobody blocked it");
    w.mon_sends(full_map(Bytes::from_static(OSDMAP)));
    w.advance(60_000 * MS);
    let mut all = reports();
    let (last, report) = all.pop().expect("reports");
    // One OSD knows of the change before we do.
    w.connect_osd(last);
    w.message(osd_conn(last), report);
    assert_eq!(digests(&w.sent()), [], "another one is in charge");
    in_charge(&mut w, 4_100);
    w.advance(1_000 * MS);
    assert_eq!(digests(&w.sent()), [], "nothing is known of most PGs");
    for (osd, report) in all {
        w.connect_osd(osd);
        w.message(osd_conn(osd), report);
    }
    let digests = digests(&w.sent());
    let [digest] = digests.as_slice() else { panic!("{digests:?}") };
    assert_eq!(digest.pg_states, [(ACTIVE | CLEAN, 185)].into());
}

#[test]
fn what_is_switched_off_does_not_answer() {
    let mut w = World::recorded();
    let mut map = maps::MgrMap { active_gid: 4_100, ..maps::MgrMap::initial() };
    let ask = |w: &mut World, map: &maps::MgrMap| {
        w.mon_sends(messages::mon::MMgrMap { map: messages::payload::RestOfFront(map.to_bytes()) });
        w.command(r#"{"prefix":"iostat"}"#).expect("an answer")
    };
    assert_eq!(ask(&mut w, &map).result, 0);
    map.modules.remove("iostat");
    let reply = ask(&mut w, &map);
    assert_eq!(reply.result, -95);
    assert!(reply.status.contains("use `ceph mgr module enable iostat`"), "{}", reply.status);
    assert_eq!(w.command(r#"{"prefix":"osd status"}"#).expect("an answer").result, 0, "always on");
}
