//! The balancer: its commands, and what it does by itself. The monitors are played by hand.

mod common;

use std::collections::BTreeMap;
use std::time::Duration;

use codec::Encode;
use common::{ADMIN, World, full_map, osd_conn, text};
use crush::{CrushMap, RULE_REPLICATED, RuleMode};
use manager::Output;
use maps::flags::{WEIGHT_IN, osd_state};
use maps::{OsdMap, Pool, PoolType, Release};
use messages::Message;
use messages::mon::{MConfig, MMonCommandAck};
use messages::pg_state;
use messages::pool_stats::MPgStats;
use messages::stats::{OsdStat, PgStat};
use serde_json::{Value, json};
use types::{Epoch, Fsid, PgId, PoolId, Utime};

const OSDS: i32 = 6;
const POOL: PoolId = PoolId(1);

/// Six OSDs of the same size on hosts of their own, and a pool of 64 PGs with three copies.
fn map() -> OsdMap {
    let mut crush = CrushMap::new_default();
    for id in 0..OSDS {
        let place = [("host".to_owned(), format!("h{id}")), ("root".to_owned(), "default".to_owned())];
        crush.insert_item(id, 0x10000, &format!("osd.{id}"), &BTreeMap::from(place)).expect("free");
    }
    let rule = crush
        .add_simple_rule("r", "default", "host", None, RuleMode::Firstn, RULE_REPLICATED, None)
        .expect("a free name");
    crush.finalize();
    let mut map = OsdMap::new_cluster(Fsid([1; 16]), Utime::new(1, 0), crush);
    map.epoch = Epoch(10);
    map.require_min_compat_client = Release::LUMINOUS;
    map.set_max_osd(OSDS as usize);
    map.weights.iter_mut().for_each(|w| *w = WEIGHT_IN);
    map.osds.iter_mut().for_each(|o| o.state = osd_state::EXISTS | osd_state::UP);
    let mut pool = Pool::new(PoolType::Replicated, 64);
    (pool.size, pool.min_size, pool.crush_rule) = (3, 2, rule as u8);
    map.pools.insert(POOL, pool);
    map.pool_names.insert(POOL, "p".to_owned());
    map
}

fn report(w: &mut World, map: &OsdMap, state: u64, degraded: i64) {
    for osd in 0..OSDS {
        let mut pg_stats = BTreeMap::new();
        map.for_each_pg(|pg, m| {
            if m.acting_primary != osd {
                return;
            }
            let mut s = PgStat { state, acting: m.acting.clone(), up: m.up.clone(), ..PgStat::default() };
            (s.acting_primary, s.up_primary) = (m.acting_primary, m.up_primary);
            s.reported_epoch = map.epoch;
            s.stats.sum.num_bytes = 1 << 20;
            s.stats.sum.num_objects = 4;
            s.stats.sum.num_object_copies = 12;
            s.stats.sum.num_objects_degraded = degraded;
            pg_stats.insert(pg, s);
        });
        let mut osd_stat = OsdStat::default();
        (osd_stat.statfs.total, osd_stat.statfs.available) = (10 << 30, 9 << 30);
        let m = MPgStats { fsid: map.fsid, osd_stat, pg_stats, epoch: map.epoch, ..MPgStats::default() };
        w.message(osd_conn(osd), m);
    }
}

fn configure(w: &mut World, options: &[(&str, &str)]) {
    let options = options.iter().map(|(k, v)| (format!("mgr/balancer/{k}"), (*v).to_owned())).collect();
    w.mon_sends(MConfig { options });
}

fn cluster(options: &[(&str, &str)]) -> (World, OsdMap) {
    let (mut w, map) = (World::new(), map());
    w.input(manager::Input::MonConnected { gid: 4_100 });
    w.mon_sends(full_map(map.to_bytes()));
    (0..OSDS).for_each(|osd| w.connect_osd(osd));
    report(&mut w, &map, pg_state::ACTIVE | pg_state::CLEAN, 0);
    configure(&mut w, options);
    w.sent();
    (w, map)
}

/// Commands that the monitors are asked to run, with their numbers.
fn asked(w: &mut World) -> Vec<(u64, Value)> {
    let sent = w.sent();
    let commands = sent.into_iter().filter_map(|o| match o {
        Output::SendMon { tid, msg: Message::MonCommand(m) } => {
            Some((tid, serde_json::from_str(&m.cmd[0]).expect("JSON")))
        }
        _ => None,
    });
    commands.collect()
}

/// Plays the monitors: makes the changes and answers.
fn obey(w: &mut World, map: &mut OsdMap, commands: &[(u64, Value)]) {
    for (_, c) in commands {
        let pg = c["pgid"].as_str().and_then(PgId::parse);
        let ids: Vec<i32> =
            c["id"].as_array().into_iter().flatten().map(|v| v.as_i64().expect("a number") as i32).collect();
        match (c["prefix"].as_str().expect("a command"), pg) {
            ("osd pg-upmap-items", Some(pg)) => {
                let items = ids.chunks(2).map(|p| (p[0], p[1])).collect();
                map.pg_upmap_items.insert(pg, items);
            }
            ("osd rm-pg-upmap-items", Some(pg)) => {
                map.pg_upmap_items.remove(&pg);
            }
            other => panic!("{other:?}"),
        }
    }
    map.epoch = map.epoch.next();
    w.mon_sends(full_map(map.to_bytes()));
    report(w, map, pg_state::ACTIVE | pg_state::CLEAN, 0);
    w.sent();
    for (tid, _) in commands {
        w.input(manager::Input::FromMon { tid: *tid, msg: MMonCommandAck::default().into() });
    }
}

fn ask(w: &mut World, json: Value) -> (i32, String, String) {
    let reply = w.command(&json.to_string()).expect("an answer at once");
    (reply.result, reply.status.clone(), text(&reply))
}

#[test]
fn by_itself_it_comes_to_an_end() {
    let (mut w, mut map) = cluster(&[("upmap_max_deviation", "1"), ("sleep_interval", "5")]);
    let pools = [POOL].into();
    let before = map.deviation(&pools).expect("OSDs");
    assert!(before.max > 1.0, "the test needs an uneven start: {before:?}");
    let mut rounds = 0;
    loop {
        w.advance(Duration::from_secs(6));
        let commands = asked(&mut w);
        if commands.is_empty() {
            break;
        }
        // No more than one in twenty PGs at a time.
        assert!(commands.len() <= 3, "{commands:?}");
        // Nothing more before the answers.
        w.advance(Duration::from_secs(30));
        assert_eq!(asked(&mut w), []);
        obey(&mut w, &mut map, &commands);
        rounds += 1;
        assert!(rounds < 50, "it goes on for ever");
    }
    let after = map.deviation(&pools).expect("OSDs");
    assert!(rounds > 0 && after.max <= 1.0, "{before:?} -> {after:?} in {rounds} rounds");
    w.advance(Duration::from_secs(60));
    assert_eq!(asked(&mut w), [], "nothing moves that is even");
    let (_, _, status) = ask(&mut w, json!({ "prefix": "balancer status" }));
    let status: Value = serde_json::from_str(&status).expect("JSON");
    assert_eq!((&status["active"], &status["no_optimization_needed"]), (&json!(true), &json!(true)));
}

/// What is not well, settings, the PGs' state, degraded objects.
type Trouble<'a> = (&'a str, &'a [(&'a str, &'a str)], u64, i64);

#[test]
fn it_waits_until_all_is_well_and_for_its_hours() {
    let eager: &[(&str, &str)] = &[("upmap_max_deviation", "1"), ("sleep_interval", "5")];
    let cases: [Trouble<'_>; 5] = [
        ("degraded", &[], pg_state::ACTIVE | pg_state::CLEAN, 1),
        ("inactive", &[], pg_state::PEERING, 0),
        ("off", &[("active", "false")], pg_state::ACTIVE | pg_state::CLEAN, 0),
        ("no mode", &[("mode", "none")], pg_state::ACTIVE | pg_state::CLEAN, 0),
        (
            "not its hour",
            &[("begin_time", "0000"), ("end_time", "0000")],
            pg_state::ACTIVE | pg_state::CLEAN,
            0,
        ),
    ];
    for (what, options, state, degraded) in cases {
        let (mut w, map) = cluster(&[eager, options].concat());
        report(&mut w, &map, state, degraded);
        w.advance(Duration::from_secs(20));
        assert_eq!(asked(&mut w), [], "{what}");
    }
    // And before it knows what is set, it does nothing at all.
    let (mut w, map) = (World::new(), map());
    w.input(manager::Input::MonConnected { gid: 4_100 });
    w.mon_sends(full_map(map.to_bytes()));
    (0..OSDS).for_each(|osd| w.connect_osd(osd));
    report(&mut w, &map, pg_state::ACTIVE | pg_state::CLEAN, 0);
    w.sent();
    w.advance(Duration::from_secs(120));
    assert_eq!(asked(&mut w), []);
}

#[test]
fn plans_are_made_shown_and_carried_out() {
    let (mut w, mut map) = cluster(&[("active", "false"), ("upmap_max_deviation", "1")]);
    let plan = |what: &str| json!({ "prefix": format!("balancer {what}"), "plan": "a" });
    assert_eq!(ask(&mut w, plan("show")).1, "plan a not found");
    assert_eq!(
        ask(&mut w, json!({ "prefix": "balancer optimize", "plan": "a", "pools": ["x"] })).1,
        "pools ['x'] not found"
    );
    assert_eq!(ask(&mut w, plan("optimize")).0, 0);
    assert_eq!(ask(&mut w, json!({ "prefix": "balancer ls" })).2, "[\n    \"a\"\n]\n");
    let shown = ask(&mut w, plan("show")).2;
    assert!(shown.starts_with("# starting osdmap epoch 10\n# starting crush version"), "{shown}");
    assert_eq!(shown.matches("ceph osd pg-upmap-items 1.").count(), 3, "{shown}");
    let dumped: Value = serde_json::from_str(&ask(&mut w, plan("dump")).2).expect("JSON");
    assert_eq!(dumped["new_pg_upmap_items"].as_array().map(Vec::len), Some(3));
    let score = |w: &mut World, option: Value| {
        let (_, _, said) = ask(w, option);
        let number = said.split_once("score ").and_then(|(_, s)| s.split(' ').next());
        number.expect("a score").parse::<f64>().expect("a number")
    };
    let now = score(&mut w, json!({ "prefix": "balancer eval" }));
    let then = score(&mut w, json!({ "prefix": "balancer eval", "option": "a" }));
    assert!(then < now && now < 1.0, "{now} -> {then}");
    w.sent();
    assert_eq!(w.command(&plan("execute").to_string()), None, "it waits for the monitors");
    let commands = asked(&mut w);
    assert_eq!(commands.len(), 3);
    obey(&mut w, &mut map, &commands);
    assert!(w.sent().iter().any(|o| matches!(o, Output::Send { conn, .. } if *conn == ADMIN)), "answered");
    assert_eq!(ask(&mut w, plan("show")).0, -2, "a plan is used up");
    let again = score(&mut w, json!({ "prefix": "balancer eval" }));
    assert!((again - then).abs() < 1e-6, "{again} {then}");
}

#[test]
fn the_first_refusal_of_the_monitors_is_the_answer() {
    let (mut w, _) = cluster(&[("active", "false"), ("upmap_max_deviation", "1")]);
    ask(&mut w, json!({ "prefix": "balancer optimize", "plan": "a" }));
    w.sent();
    w.command(r#"{"prefix":"balancer execute","plan":"a"}"#);
    for (i, (tid, _)) in asked(&mut w).into_iter().enumerate() {
        let (result, status) = if i == 0 { (0, "") } else { (-1, "no") };
        let msg = MMonCommandAck { result, status: status.to_owned(), ..MMonCommandAck::default() };
        w.input(manager::Input::FromMon { tid, msg: msg.into() });
    }
    let replies: Vec<_> = w
        .sent()
        .into_iter()
        .filter_map(|o| match o {
            Output::Send { msg: Message::MgrCommandReply(r), .. } => Some((r.result, r.status)),
            _ => None,
        })
        .collect();
    assert_eq!(replies, [(-1, "no".to_owned())]);
}

#[test]
fn weights_for_placement_make_the_score_better() {
    let (mut w, mut map) = cluster(&[("active", "false"), ("mode", "crush-compat")]);
    w.mon_sends(full_map({
        map.epoch = map.epoch.next();
        // Allow more to move at once than five in a hundred.
        map.to_bytes()
    }));
    report(&mut w, &map, pg_state::ACTIVE | pg_state::CLEAN, 0);
    let options = [
        ("target_max_misplaced_ratio", "0.5"),
        ("mgr/balancer/active", "false"),
        ("mgr/balancer/mode", "crush-compat"),
    ];
    let options = options.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
    w.mon_sends(MConfig { options });
    let (code, why, _) = ask(&mut w, json!({ "prefix": "balancer optimize", "plan": "a" }));
    assert_eq!((code, why.as_str()), (0, ""));
    let eval = |w: &mut World, option: Value| ask(w, option).2;
    let now = eval(&mut w, json!({ "prefix": "balancer eval" }));
    let then = eval(&mut w, json!({ "prefix": "balancer eval", "option": "a" }));
    let number =
        |said: &str| said.split("score ").nth(1).and_then(|s| s.split(' ').next()?.parse::<f64>().ok());
    assert!(number(&then) < number(&now), "{now} -> {then}");
    w.sent();
    w.command(r#"{"prefix":"balancer execute","plan":"a"}"#);
    let commands = asked(&mut w);
    assert_eq!(commands[0].1["prefix"], "osd crush weight-set create-compat");
    assert_eq!(commands.len(), 1 + OSDS as usize);
    let sum: f64 = commands[1..].iter().map(|(_, c)| c["weight"][0].as_f64().expect("a weight")).sum();
    assert!((sum - f64::from(OSDS)).abs() < 1e-6, "the root weighs what it weighed: {sum}");

    // By itself it finds the same, one step at a time.
    let (mut w, _) = cluster(&[("active", "false"), ("mode", "crush-compat")]);
    w.mon_sends(full_map(map.to_bytes()));
    report(&mut w, &map, pg_state::ACTIVE | pg_state::CLEAN, 0);
    let options = [("target_max_misplaced_ratio", "0.5"), ("mgr/balancer/mode", "crush-compat")];
    let options = options.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
    w.sent();
    w.mon_sends(MConfig { options });
    let mut turns = 0;
    let found = loop {
        w.advance(Duration::from_millis(250));
        let commands = asked(&mut w);
        if !commands.is_empty() {
            break commands;
        }
        turns += 1;
        assert!(turns < 30, "more than the search may have steps");
    };
    assert!(turns > 1, "commands and reports wait for no whole search");
    let only = |all: &[(u64, Value)]| all.iter().map(|(_, c)| c.clone()).collect::<Vec<_>>();
    assert_eq!(only(&found), only(&commands));
}

#[test]
fn settings_are_kept_by_the_monitors() {
    let (mut w, _) = cluster(&[]);
    let cases = [
        (json!({ "prefix": "balancer off" }), "active", "false"),
        (json!({ "prefix": "balancer on" }), "active", "true"),
        (json!({ "prefix": "balancer mode", "mode": "none" }), "mode", "none"),
        (json!({ "prefix": "balancer pool add", "pools": ["p"] }), "pool_ids", "1"),
        (json!({ "prefix": "balancer pool rm", "pools": ["p"] }), "pool_ids", ""),
    ];
    for (command, name, value) in cases {
        w.sent();
        assert_eq!(w.command(&command.to_string()), None, "{command}");
        let commands = asked(&mut w);
        let want = json!({ "prefix": "config set", "who": "mgr", "name": format!("mgr/balancer/{name}"), "value": value });
        assert_eq!(commands.into_iter().map(|(_, c)| c).collect::<Vec<_>>(), [want]);
    }
    let refusals = [
        (
            json!({ "prefix": "balancer optimize", "plan": "a" }),
            "Balancer enabled, disable to optimize manually",
        ),
        (json!({ "prefix": "balancer execute", "plan": "a" }), "Balancer enabled, disable to execute a plan"),
        (json!({ "prefix": "balancer pool add", "pools": ["p", "x"] }), "pool(s) ['x'] not found"),
        (json!({ "prefix": "balancer eval", "option": "x" }), "option \"x\" not a plan or a pool"),
    ];
    for (command, why) in refusals {
        assert_eq!(ask(&mut w, command.clone()).1, why, "{command}");
    }
}
