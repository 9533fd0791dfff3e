//! The OSD as a daemon: its options, its session with the manager, its admin socket, operations that take long.

use std::collections::BTreeSet;
use std::time::Duration;

use codec::Decode;
use messages::Message;
use messages::mgr::{MMgrConfigure, MMgrReport};
use messages::osd::{MOsdFailure, MOsdPing};
use pg::{DiskQuestion, Input, pg_state};
use serde_json::{Value, json};
use types::{Epoch, Errno};

use crate::sim::{CLIENT, MON, Sim};

fn up(osds: i32, seed: u64) -> Sim {
    let mut s = Sim::new(osds, seed);
    s.until("all up", |s| s.nodes.iter().all(|n| n.core.as_ref().is_some_and(pg::OsdCore::is_up)));
    s
}

/// A command through the admin socket: its code, and its output.
fn ask(s: &mut Sim, osd: i32, cmd: Value) -> (i32, Value) {
    s.input(osd, Input::AdminCommand { tid: 1, cmd: cmd.to_string() });
    let reply = s.nodes[osd as usize].admin_replies.pop().expect("an answer");
    (reply.code, serde_json::from_slice(&reply.data).unwrap_or(Value::Null))
}

fn reports(s: &mut Sim, osd: i32) -> Vec<MMgrReport> {
    let told = std::mem::take(&mut s.nodes[osd as usize].told_mgr);
    let reports = told.into_iter().filter_map(|m| match m {
        Message::MgrReport(r) => Some(*r),
        _ => None,
    });
    reports.collect()
}

type Told = (
    std::collections::BTreeMap<String, std::collections::BTreeMap<i32, String>>,
    std::collections::BTreeMap<String, String>,
);

/// Whatever its disk has of the map that first shows it up, it comes back to it as the one that it was.
#[test]
fn an_osd_that_dies_as_soon_as_it_is_up_comes_back() {
    for seed in 0..20 {
        let mut s = Sim::new(1, seed);
        s.until("marked up", |s| s.mon.map.is_up(0));
        s.crash(0);
        s.start(0);
        s.until("up again", |s| s.nodes[0].core.as_ref().is_some_and(pg::OsdCore::is_up));
    }
}

#[test]
fn options_act_at_once_and_go_back() {
    let mut s = up(1, 3);
    let grace = |s: &Sim| s.nodes[0].core.as_ref().unwrap().config().heartbeat_grace;
    let was = grace(&s);
    let name = "osd_heartbeat_grace";
    assert_eq!(ask(&mut s, 0, json!({"prefix": "config set", "var": name, "val": ["7"]})).0, 0);
    assert_eq!(grace(&s), Duration::from_secs(7));
    s.input(0, Input::Config(vec![(name.into(), "9".into())]));
    assert_eq!(grace(&s), Duration::from_secs(7), "set by hand wins");
    assert_eq!(ask(&mut s, 0, json!({"prefix": "config unset", "var": name})).0, 0);
    assert_eq!(grace(&s), Duration::from_secs(9));
    // The monitors' options are all that they hold.
    s.input(0, Input::Config(vec![]));
    assert_eq!(grace(&s), was);
    assert_eq!(ask(&mut s, 0, json!({"prefix": "config set", "var": name, "val": ["x"]})).0, -22);
    let diff = ask(&mut s, 0, json!({"prefix": "config diff"})).1;
    assert_eq!(diff, json!({ "diff": {} }));
}

#[test]
fn the_manager_hears_of_options_and_of_slow_operations() {
    let mut s = up(2, 4);
    s.input(0, Input::MgrConnected);
    let told = std::mem::take(&mut s.nodes[0].told_mgr);
    let open = told.iter().find_map(|m| if let Message::MgrOpen(m) = m { Some(m) } else { None });
    assert_eq!(open.expect("introduces itself").daemon_name, "0");
    let configure = MMgrConfigure { period_s: 5, ..MMgrConfigure::default() };
    s.input(0, Input::FromMgr(configure.into()));
    let first = reports(&mut s, 0);
    assert_eq!(first.len(), 1);
    assert_eq!((first[0].config.len(), first[0].health_metrics[0].value), (0, 0));
    ask(&mut s, 0, json!({"prefix": "config set", "var": "osd_max_backfills", "val": ["3"]}));
    s.tick(Duration::from_millis(500));
    let news = reports(&mut s, 0);
    let (options, _) = Told::from_bytes(news[0].config.clone()).expect("options");
    assert_eq!(options["osd_max_backfills"], [(5, "3".to_owned())].into());

    // With one copy of two the pool takes no writes; such clients' wait at the OSD.
    s.client_without_backoffs();
    let pool = s.mon.create_pool(2, 2, 1);
    s.settle();
    let map = s.mon.map.clone();
    let primary = map.pg_to_up_acting(types::PgId { pool, seed: 0 }).acting_primary;
    s.crash(1 - primary);
    s.until("marked down", |s| !s.mon.map.is_up(1 - primary));
    let map = s.mon.map.clone();
    s.client.write(&map, pool, "slow", vec![1]);
    s.until("waits", |s| ask(s, primary, json!({"prefix": "ops"})).1["num_ops"] == 1);
    assert_eq!(ask(&mut s, primary, json!({"prefix": "dump_blocked_ops"})).1["num_blocked_ops"], 0);
    for _ in 0..80 {
        s.tick(Duration::from_millis(500));
    }
    let blocked = ask(&mut s, primary, json!({"prefix": "dump_blocked_ops"})).1;
    assert_eq!(blocked["num_blocked_ops"], 1, "{blocked}");
    assert_eq!(blocked["ops"][0]["type_data"]["flag_point"], "waiting for peered");
    if primary == 0 {
        let value = reports(&mut s, 0).pop().expect("reports").health_metrics[0].value;
        assert!(value as u32 == 1 && (30..60).contains(&(value >> 32)), "{value:x}");
    }
    s.start(1 - primary);
    s.until("answered", |s| s.client.is_idle());
    assert_eq!(ask(&mut s, primary, json!({"prefix": "ops"})).1["num_ops"], 0);
    let done = ask(&mut s, primary, json!({"prefix": "dump_historic_slow_ops"})).1;
    assert_eq!(done["Ops"].as_array().map(Vec::len), Some(1), "{done}");
}

#[test]
fn a_pg_that_has_not_started_misses_no_scrub() {
    let mut s = up(2, 6);
    s.input(0, Input::MgrConnected);
    s.input(0, Input::FromMgr(MMgrConfigure { period_s: 5, ..MMgrConfigure::default() }.into()));
    // Nobody answers the new PGs' primary, and nobody has noticed it yet.
    s.cut.push((0, 1));
    s.mon.create_pool(2, 1, 8);
    let made = s.mon.map.modified;
    let mut waiting = Vec::new();
    s.until("a report", |s| {
        for told in std::mem::take(&mut s.nodes[0].told_mgr) {
            if let Message::PgStats(m) = told {
                waiting.extend(m.pg_stats.into_values().filter(|p| p.state & pg_state::CREATING != 0));
            }
        }
        !waiting.is_empty()
    });
    for p in waiting {
        let stamps = [p.last_scrub_stamp, p.last_deep_scrub_stamp, p.last_clean_scrub_stamp];
        assert_eq!(stamps, [made; 3], "{}", pg_state::to_text(p.state));
    }
}

/// Ceph's manager measures a recovery by PGs that report with the map in which it noticed the cause.
#[test]
fn a_pg_that_has_changed_reports_with_the_maps_that_follow() {
    let mut s = up(1, 7);
    s.input(0, Input::MgrConnected);
    let pool = s.mon.create_pool(1, 1, 1);
    s.settle();
    let pg = types::PgId { pool, seed: 0 };
    // The maps that this OSD's reports were made with, and the PG's own.
    let reports = |s: &mut Sim| -> Vec<(Epoch, Option<Epoch>)> {
        let told = std::mem::take(&mut s.nodes[0].told_mgr);
        let of_pgs =
            told.into_iter().filter_map(|m| if let Message::PgStats(m) = m { Some(m) } else { None });
        of_pgs.map(|m| (m.epoch, m.pg_stats.get(&pg).map(|stat| stat.reported_epoch))).collect()
    };
    // It has said all that there was to say.
    for _ in 0..24 {
        s.tick(Duration::from_millis(500));
    }
    reports(&mut s);
    s.mon.change(|_, _| ());
    let newest = s.mon.map.epoch;
    s.until("a report with the newest map", |s| reports(s).contains(&(newest, Some(newest))));

    for _ in 0..240 {
        s.tick(Duration::from_millis(500));
    }
    reports(&mut s);
    s.mon.change(|_, _| ());
    let newest = s.mon.map.epoch;
    let mut seen = Vec::new();
    s.until("three reports with the newest map", |s| {
        seen.extend(reports(s));
        seen.iter().filter(|(with, _)| *with == newest).count() == 3
    });
    assert!(seen.iter().all(|(_, of_pg)| of_pg.is_none()), "nothing has happened for long: {seen:?}");
}

#[test]
fn commands_tell_of_what_is_here() {
    let mut s = up(1, 5);
    let status = ask(&mut s, 0, json!({"prefix": "status"})).1;
    assert_eq!((&status["whoami"], &status["state"]), (&json!(0), &json!("active")));
    assert_eq!(ask(&mut s, 0, json!({"prefix": "dump_watchers"})), (0, json!([])));
    let perf = ask(&mut s, 0, json!({"prefix": "perf dump", "logger": "osd", "counter": "numpg"})).1;
    assert_eq!(perf, json!({ "osd": { "numpg": 0 } }));
    assert_eq!(ask(&mut s, 0, json!({"prefix": "bogus"})).0, -22);
    assert_eq!(ask(&mut s, 0, json!({"prefix": "query", "pgid": "9.9"})).0, -2);
    assert_eq!(
        ask(&mut s, 0, json!({"prefix": "config get", "var": "osd_max_backfills"})).1["osd_max_backfills"],
        "1"
    );
}

/// Whether the OSD has clients wait, as it last said, and how often it began to.
fn holds(s: &Sim) -> (bool, u32) {
    s.nodes[0].holds_clients
}

#[test]
fn clients_wait_when_too_much_is_under_way() {
    let mut s = up(1, 6);
    let pool = s.mon.create_pool(1, 1, 1);
    s.settle();
    let set = |s: &mut Sim, name: &str, to: &str| {
        assert_eq!(ask(s, 0, json!({"prefix": "config set", "var": name, "val": [to]})).0, 0, "{name}");
    };
    let map = s.mon.map.clone();
    let write = |s: &mut Sim| {
        let before = holds(s).1;
        for i in 0..50 {
            s.client.write(&map, pool, &format!("o{i}"), vec![7; 10]);
        }
        s.until("done", |s| s.client.is_idle());
        s.until("let go", |s| !holds(s).0);
        holds(s).1 > before
    };
    assert!(!write(&mut s));
    set(&mut s, "osd_client_message_size_cap", "25");
    assert!(write(&mut s), "bytes");
    set(&mut s, "osd_client_message_size_cap", "0");
    set(&mut s, "osd_client_message_cap", "3");
    assert!(write(&mut s), "operations");
    set(&mut s, "osd_client_message_cap", "0");
    assert!(!write(&mut s));
}

/// What waits for PGs that do not serve has some room of its own.
#[test]
fn a_pg_that_does_not_serve_stops_others_late() {
    let mut s = up(2, 7);
    let idle = s.mon.create_pool(2, 2, 4);
    s.settle();
    s.client_without_backoffs();
    s.kill(1);
    let name = "osd_client_message_size_cap";
    assert_eq!(ask(&mut s, 0, json!({"prefix": "config set", "var": name, "val": ["6000"]})).0, 0);
    let write = |s: &mut Sim, from: u32, to: u32| {
        let map = s.mon.map.clone();
        let sent: Vec<u64> =
            (from..to).map(|i| s.client.write(&map, idle, &format!("o{i}"), vec![7; 1000])).collect();
        s.until("sent", |s| sent.iter().all(|tid| s.client.was_sent(*tid)));
        s.run(200);
    };
    write(&mut s, 0, 7);
    assert_eq!(holds(&s), (false, 0), "7,000 bytes and what is around them of 6,000 and 3,000");
    write(&mut s, 7, 9);
    assert_eq!(holds(&s), (true, 1), "9,000 and more");
    s.start(1);
    s.until("let go", |s| s.client.is_idle() && !holds(s).0);
}

/// What another OSD sends and nobody understands is named once, not passed over in silence.
#[test]
fn what_is_not_understood_is_logged_once() {
    let mut s = up(2, 8);
    s.mon.create_pool(2, 1, 4);
    let of_pg = |m: &Message| matches!(m, Message::Unknown(_));
    let found = |s: &Sim| s.links.get(&(0, 1)).and_then(|q| q.iter().find(|m| of_pg(m)).cloned());
    s.until("a message", |s| found(s).is_some());
    let Some(Message::Unknown(mut wire)) = found(&s) else { panic!("no message") };
    wire.front.truncate(10);
    let lines = |s: &Sim| s.nodes[1].log.iter().filter(|l| l.contains("osd.0 sends")).count();
    assert_eq!(lines(&s), 0);
    for _ in 0..3 {
        let msg = Message::Unknown(wire.clone());
        s.input(1, Input::Message { conn: types::ConnId(0), tid: 0, msg });
    }
    assert_eq!(lines(&s), 1);
    s.settle();
}

/// A client may have lost its monitor together with the OSD that went down: the others tell it, unless it knows.
#[test]
fn clients_hear_from_osds_that_another_one_is_down() {
    let mut s = up(3, 12);
    let pool = s.mon.create_pool(3, 1, 8);
    s.settle();
    let write_to_all = |s: &mut Sim| {
        let map = s.mon.map.clone();
        for i in 0..40 {
            s.client.write(&map, pool, &format!("o{i}"), vec![7; 10]);
        }
        s.until("written", |s| s.client.is_idle());
    };
    let told = |s: &mut Sim, after: Duration| {
        s.cut = (0..3).map(|osd| (osd, CLIENT)).collect();
        let epoch = s.mon.map.epoch;
        s.until("the map is known", |s| {
            [0, 1].into_iter().all(|o| ask(s, o, json!({"prefix": "status"})).1["newest_map"] == epoch.0)
        });
        s.tick(after);
        s.cut.clear();
        let mut newest = Vec::new();
        for osd in [0, 1] {
            for m in s.links.remove(&(osd, CLIENT)).unwrap_or_default() {
                let Message::Unknown(wire) = m else { panic!("{m:?}") };
                match Message::decode(&wire) {
                    Ok(Message::OsdMap(m)) => newest.push(m.last()),
                    other => panic!("{other:?}"),
                }
            }
        }
        newest
    };
    write_to_all(&mut s);
    s.mon.change(|inc, _| inc.new_flags = 1 << 12);
    assert_eq!(told(&mut s, Duration::from_millis(500)), [], "nobody went down");
    write_to_all(&mut s);
    s.crash(2);
    s.mon.mark_dead(2);
    let now = Some(s.mon.map.epoch);
    assert_eq!(told(&mut s, Duration::from_millis(500)), [now, now]);
    assert_eq!(told(&mut s, Duration::from_millis(500)), [], "once");
    s.start(2);
    s.settle();
    write_to_all(&mut s);
    s.crash(2);
    s.mon.mark_dead(2);
    assert_eq!(told(&mut s, Duration::from_secs(100)), [], "an idle client");
}

/// What `osd` has told the monitors about another one, which they have not got: FAILED or not.
fn told_of(s: &mut Sim, osd: i32, target: i32) -> Vec<bool> {
    let waiting = s.links.remove(&(osd, MON)).unwrap_or_default();
    let about = waiting.into_iter().filter_map(|m| match m {
        Message::OsdFailure(m) if m.target_osd == target => Some(m.flags & MOsdFailure::FAILED != 0),
        _ => None,
    });
    about.collect()
}

/// Whom `osd` pings next.
fn pinged_by(s: &mut Sim, osd: i32) -> BTreeSet<i32> {
    while s.step() {}
    let found = (0..100).find_map(|_| {
        s.tick(Duration::from_millis(500));
        let to = s.links.iter().filter(|((from, _), _)| *from == osd);
        let pings = |m: &Message| matches!(m, Message::OsdPing(p) if p.op == MOsdPing::PING);
        let pinged: BTreeSet<i32> = to.filter(|(_, q)| q.iter().any(pings)).map(|((_, to), _)| *to).collect();
        Some(pinged).filter(|p| !p.is_empty())
    });
    found.unwrap_or_default()
}

/// One that is no peer any more when its PG goes elsewhere is one until it answers: the report is still true.
#[test]
fn reports_of_failures_are_taken_back() {
    for leaves in [false, true] {
        let mut s = up(8, 7);
        let few = || Input::Config(vec![("osd_heartbeat_min_peers".into(), "0".into())]);
        (0..8).for_each(|osd| s.input(osd, few()));
        s.mon.create_pool(8, 1, 4);
        s.settle();
        // osd.0 does not hear osd.2, and the monitors hear of that later.
        let monitors: Vec<(i32, i32)> = (0..8).map(|osd| (osd, MON)).collect();
        s.cut = [(0, 2)].into_iter().chain(monitors.clone()).collect();
        (0..200).for_each(|_| s.tick(Duration::from_millis(500)));
        let told = told_of(&mut s, 0, 2);
        assert!(told.len() > 1 && told.iter().all(|failed| *failed), "{told:?}");
        if leaves {
            // No PG of osd.0 has it any more.
            s.mon.mark_out(2);
            for (to, msg) in s.mon.publish() {
                s.input(to, Input::FromMon(msg));
            }
            (0..20).for_each(|_| s.tick(Duration::from_millis(500)));
            let told = told_of(&mut s, 0, 2);
            assert!(!told.is_empty() && told.iter().all(|failed| *failed), "{told:?}");
        }
        s.cut = monitors;
        for _ in 0..20 {
            while s.step() {}
            s.tick(Duration::from_millis(500));
        }
        assert_eq!(told_of(&mut s, 0, 2), [false], "once; leaves: {leaves}");
    }
}

#[test]
fn an_osd_without_pgs_is_missed() {
    let mut s = up(12, 8);
    let pool = s.mon.create_pool(1, 1, 1);
    s.settle();
    let holder = s.mon.map.pg_to_up_acting(types::PgId { pool, seed: 0 }).acting_primary;
    let idle = (holder + 1) % 12;
    s.crash(idle);
    s.until("marked down", |s| !s.mon.map.is_up(idle));
}

#[test]
fn an_osd_pings_neighbours_besides_the_members_of_its_pgs() {
    let mut s = up(16, 9);
    let ten = (0..11).filter(|osd| *osd != 3).collect();
    assert_eq!(pinged_by(&mut s, 3), ten, "three hosts before its own, and those that follow");
    let set = |s: &mut Sim, var: &str, value: &str| {
        s.input(3, Input::Config(vec![(var.into(), value.into())]));
    };
    set(&mut s, "osd_heartbeat_min_peers", "0");
    assert_eq!(
        pinged_by(&mut s, 3),
        BTreeSet::from([0, 1, 2, 4]),
        "three hosts before its own, and the next"
    );
    set(&mut s, "osd_heartbeat_min_peers", "100");
    assert_eq!(pinged_by(&mut s, 3).len(), 15);
}

/// Who leads the monitors may be another one, who has heard nothing.
#[test]
fn failures_are_reported_again_to_another_monitor() {
    let mut s = up(2, 7);
    s.mon.create_pool(2, 1, 4);
    s.settle();
    s.cut = vec![(0, 1), (0, MON), (1, MON)];
    let half = Duration::from_millis(500);
    let second = (0..100).find(|_| {
        s.tick(half);
        !told_of(&mut s, 0, 1).is_empty()
    });
    assert!(second.is_some(), "reported");
    s.tick(half);
    assert!(told_of(&mut s, 0, 1).is_empty(), "not again so soon");
    s.input(0, Input::MonConnected);
    s.tick(half);
    assert_eq!(told_of(&mut s, 0, 1), [true]);
}

/// A clean PG needs no maps from before now, however long nothing happened to it; one that is not clean needs
/// those since it was.
#[test]
fn beacons_tell_from_where_on_maps_are_needed() {
    let mut s = up(3, 11);
    s.mon.create_pool(3, 1, 4);
    s.settle();
    for osd in 0..3 {
        s.input(osd, Input::Config(vec![("osd_beacon_report_interval".into(), "2".into())]));
    }
    let clean = s.mon.map.epoch;
    let skip_epochs = |s: &mut Sim| {
        for _ in 0..10 {
            s.mon.change(|inc, _| inc.new_flags = 1 << 12);
            s.mon.change(|inc, _| inc.new_flags = 0);
        }
        let newest = s.mon.map.epoch;
        s.until("that map and the next", |s| {
            let living: Vec<i32> = (0..3).filter(|o| s.nodes[*o as usize].core.is_some()).collect();
            living.into_iter().all(|o| ask(s, o, json!({"prefix": "status"})).1["newest_map"] == newest.0)
        });
        newest
    };
    let beacons = |s: &mut Sim| {
        let living: Vec<i32> = (0..3).filter(|o| s.nodes[*o as usize].core.is_some()).collect();
        s.tick(Duration::from_secs(2));
        let sent = living.iter().filter_map(|osd| s.links.get(&(*osd, MON))).flatten();
        let told = sent.filter_map(|m| match m {
            Message::OsdBeacon(b) => Some((b.pgs.clone(), b.min_last_epoch_clean)),
            _ => None,
        });
        told.collect::<Vec<_>>()
    };
    let newest = skip_epochs(&mut s);
    assert!(newest.0 >= clean.0 + 10);
    let told = beacons(&mut s);
    let pgs: usize = told.iter().map(|(pgs, _)| pgs.len()).sum();
    assert_eq!((told.len(), pgs), (3, 4), "each PG by its primary");
    assert!(told.iter().all(|(_, clean)| *clean == newest), "{told:?}");
    s.crash(2);
    s.mon.mark_down(2);
    let newest = skip_epochs(&mut s);
    let told = beacons(&mut s);
    let least = told.iter().filter(|(pgs, _)| !pgs.is_empty()).map(|(_, clean)| *clean).max();
    assert!(least.is_some_and(|e| e.0 + 10 < newest.0), "{told:?} at {newest}");
}

/// An increment that leads to another map than the monitors have is not used, nor told to anybody: the whole map is.
#[test]
fn a_map_whose_checksum_is_wrong_is_replaced_by_the_monitors() {
    let mut s = up(2, 8);
    let pool = s.mon.create_pool(2, 1, 4);
    s.settle();
    s.mon.mark_out(1);
    s.mon.spoil_newest();
    s.mon.mark_in(1);
    let wanted = s.mon.map.epoch;
    let newest = |s: &Sim, osd: usize| s.nodes[osd].core.as_ref().unwrap().osdmap().epoch;
    s.until("that map and the next", |s| (0..2).all(|osd| newest(s, osd) >= wanted));
    s.settle();
    // One may have got it from the other, which asked.
    assert!(s.mon.whole_asked >= 1);
    assert!(s.nodes.iter().any(|n| n.log.iter().any(|l| l.contains("bad OSD map"))));
    for node in &s.nodes {
        assert_eq!(node.core.as_ref().unwrap().osdmap().as_ref(), &s.mon.map);
    }
    let map = s.mon.map.clone();
    s.client.write(&map, pool, "o", vec![1]);
    s.settle();
    s.check_copies();
}

/// The shell knows the disks: it is asked without holding anything else up, and by few at a time.
#[test]
fn the_disks_are_asked_by_the_shell() {
    let mut s = up(1, 5);
    let ask = |s: &mut Sim, cmd: Value| s.input(0, Input::AdminCommand { tid: 7, cmd: cmd.to_string() });
    let answered = |s: &mut Sim| {
        let reply = s.nodes[0].admin_replies.pop()?;
        Some((reply.code, serde_json::from_slice(&reply.data).unwrap_or(Value::Null)))
    };
    ask(&mut s, json!({ "prefix": "list_devices" }));
    ask(&mut s, json!({ "prefix": "smart", "devid": "WD_1" }));
    assert_eq!(answered(&mut s), None, "the shell has not told anything");
    let asked = std::mem::take(&mut s.nodes[0].disk_questions);
    let smart = DiskQuestion::Smart { of: Some("WD_1".to_owned()), within: Duration::from_secs(5) };
    assert_eq!(asked.iter().map(|(_, q)| q.clone()).collect::<Vec<_>>(), [DiskQuestion::List, smart]);
    for (id, question) in asked.into_iter().rev() {
        let told = match question {
            DiskQuestion::List => json!([{ "device": "/dev/sda", "device_id": "WD_1" }]),
            DiskQuestion::Smart { .. } => json!({ "WD_1": { "smart_status": { "passed": true } } }),
        };
        s.input(0, Input::DisksTold { id, told: told.clone() });
        assert_eq!(answered(&mut s), Some((0, told.clone())));
        s.input(0, Input::DisksTold { id, told });
        assert_eq!(answered(&mut s), None, "once");
    }
    for _ in 0..4 {
        ask(&mut s, json!({ "prefix": "smart" }));
        assert_eq!(answered(&mut s), None);
    }
    ask(&mut s, json!({ "prefix": "smart" }));
    assert_eq!(answered(&mut s), Some((-Errno::EBUSY.0, Value::Null)));
    let (id, question) = s.nodes[0].disk_questions.pop().expect("a question");
    assert_eq!(question, DiskQuestion::Smart { of: None, within: Duration::from_secs(5) });
    s.input(0, Input::DisksTold { id, told: json!({}) });
    assert_eq!(answered(&mut s), Some((0, json!({}))));
    ask(&mut s, json!({ "prefix": "list_devices" }));
    assert_eq!((answered(&mut s), s.nodes[0].disk_questions.len()), (None, 4));
}
