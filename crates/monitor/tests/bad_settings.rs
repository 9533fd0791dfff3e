//! Values that no monitor can work with: refused when they are set, without effect where they are in force already; and a
//! change that no map can carry is dropped alone.

use crate::common;

use common::{FSID, World};
use messages::Message;
use messages::mon::MMonCommand;

const NUMBERS: [&str; 9] = [
    "mon_osd_report_timeout",
    "mon_mgr_mkfs_grace",
    "mon_osd_blocklist_default_expire",
    "mon_osd_down_out_interval",
    "osd_heartbeat_grace",
    "auth_service_ticket_ttl",
    "mon_max_pool_pg_num",
    "mon_min_osdmap_epochs",
    "mon_osd_laggy_halflife",
];
const BAD: [&str; 7] = ["nan", "inf", "-inf", "1e400", "-1e300", "NaN", ""];

#[test]
fn a_setting_that_is_no_number_is_refused_even_with_force() {
    let mut w = World::new();
    let admin = w.admin();
    for name in NUMBERS {
        // Huge negative numbers are numbers: they are for the reader to bound.
        for bad in BAD.iter().filter(|b| !b.starts_with("-1e")) {
            for force in ["", r#","force":true"#] {
                let cmd = format!(
                    r#"{{"prefix":"config set","who":"mon","name":"{name}","value":"{bad}"{force}}}"#
                );
                assert_eq!(w.command(admin, &cmd).0, -22, "{cmd}");
            }
        }
    }
    let unknown = r#"{"prefix":"config set","who":"mon","name":"nobody_knows","value":"nan","force":true}"#;
    assert_eq!(w.command(admin, unknown).0, 0);
}

#[test]
fn a_setting_without_effect_is_kept_and_says_why() {
    let mut w = World::new();
    let admin = w.admin();
    let mut set = |who: &str, name: &str| {
        let cmd = format!(r#"{{"prefix":"config set","who":"{who}","name":"{name}","value":"5"}}"#);
        let (code, outs, _) = w.command(admin, &cmd);
        assert_eq!(code, 0, "{cmd}");
        outs
    };
    let turns = "osd_op_num_shards has no effect on Loligo's daemons: an OSD's requests run on one thread";
    for who in ["global", "osd", "osd/class:ssd", "class:ssd"] {
        assert_eq!(set(who, "osd_op_num_shards"), turns, "{who}");
    }
    assert_eq!(
        set("osd.1", "debug_ms"),
        "debug_ms has no effect on Loligo's osd: only Ceph's programs read it"
    );
    for (who, name) in
        [("global", "debug_ms"), ("client.a", "ms_async_op_threads"), ("osd", "osd_max_backfills")]
    {
        assert_eq!(set(who, name), "", "{who} {name}");
    }
}

#[test]
fn a_setting_that_is_no_number_stops_no_monitor() {
    for name in NUMBERS {
        for bad in BAD {
            let mut w = World::with_options(&[(name, bad)]);
            let admin = w.admin();
            for id in 0..2 {
                common::boot_osd(&mut w, id);
            }
            for secs in [10, 100, 1_000, 10_000] {
                w.tick(secs);
            }
            let conn = w.connect(7, "client.admin", 4_200, "v2:127.0.0.1:0/78");
            let cmd = r#"{"prefix":"osd blocklist","blocklistop":"add","addr":"10.0.0.1:0/5"}"#;
            assert_eq!(w.command(conn, cmd).0, 0, "{name} {bad}");
            assert_eq!(w.command(conn, r#"{"prefix":"status"}"#).0, 0, "{name} {bad}");
            let _ = admin;
        }
    }
}

/// More PGs than a map can carry: the option may say so, the pool is refused.
#[test]
fn a_pool_of_more_pgs_than_a_map_carries_is_refused() {
    let mut w =
        World::with_options(&[("mon_max_pool_pg_num", "5000000"), ("mon_max_pg_per_osd", "100000000")]);
    let admin = w.admin();
    common::boot_osd(&mut w, 0);
    common::boot_osd(&mut w, 1);
    let (code, text, _) =
        w.command(admin, r#"{"prefix":"osd pool create","pool":"p","pg_num":2000000,"pgp_num":2000000}"#);
    assert_eq!(code, -34, "{text}");
    assert!(text.contains("less than or equal to 1048576"), "{text}");
}

/// Of requests that are worked through together one makes a map that no monitor could read: the others happen.
#[test]
fn a_change_that_no_map_can_carry_is_dropped_alone() {
    let mut w = World::new();
    let admin = w.admin();
    w.mon.spoilt = Some("bad");
    let create = |pool: &str| {
        let cmd = format!(r#"{{"prefix":"osd pool create","pool":"{pool}"}}"#);
        (admin, Message::from(MMonCommand { fsid: FSID, cmd: vec![cmd], ..MMonCommand::default() }))
    };
    w.send_behind_a_change(vec![create("before"), create("bad"), create("behind")]);
    let acks = w.sent(admin).into_iter().filter_map(|m| match m {
        Message::MonCommandAck(ack) => Some((ack.result, ack.status)),
        _ => None,
    });
    let acks: Vec<(i32, String)> = acks.collect();
    // The change that was under way, then the three.
    assert_eq!(acks.iter().map(|(code, _)| *code).collect::<Vec<_>>(), [0, 0, -22, 0]);
    assert!(acks.iter().any(|(_, text)| text.contains("no map can carry it")), "{acks:?}");
    let names: Vec<&String> = w.mon.state().osds.map.pool_names.values().collect();
    assert_eq!(names, ["before", "behind"]);
    w.tick(30);
    assert_eq!(w.command(admin, r#"{"prefix":"osd pool create","pool":"later"}"#).0, 0);
}
