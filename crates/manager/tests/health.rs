//! What the digest tells of ill health, in Ceph's words.

mod common;

use codec::Decode;
use common::{World, osd_conn, peer, reports};
use manager::{Input, Output};
use messages::Message;
use messages::mgr::{DaemonHealthMetric, HealthCheck, MMgrOpen, MMgrReport, ServiceInfo};
use messages::pg_state::{
    ACTIVE, BACKFILL_TOOFULL, CLEAN, DEGRADED, DOWN, INCOMPLETE, INCONSISTENT, PEERING, RECOVERY_TOOFULL,
    RECOVERY_UNFOUND, UNDERSIZED,
};
use messages::stats::PgStat;
use monitor::state::PgDigest;
use types::{ConnId, EntityType, PgId, Utime};

/// The check with this code after some PGs' statistics changed.
fn check_of(code: &str, pgs: &[&str], edit: impl Fn(&mut PgStat)) -> Option<HealthCheck> {
    let mut w = World::recorded();
    let pgs: Vec<PgId> = pgs.iter().map(|pg| PgId::parse(pg).expect("a PG")).collect();
    for (osd, mut report) in reports() {
        report.pg_stats.retain(|pg, _| pgs.contains(pg));
        report.pg_stats.values_mut().for_each(|s| {
            s.reported_seq += 1;
            edit(s);
        });
        w.message(osd_conn(osd), report);
    }
    w.advance(std::time::Duration::from_secs(2));
    let digest = w.sent().into_iter().rev().find_map(|o| match o {
        Output::SendMon { msg: Message::PgDigest(m), .. } => {
            Some(PgDigest::from_bytes(m.summary).expect("a digest"))
        }
        _ => None,
    });
    digest.expect("a digest").checks.remove(code)
}

fn check(
    code: &str,
    pgs: &[&str],
    edit: impl Fn(&mut PgStat),
    summary: &str,
    detail: &[&str],
    severity: u8,
    count: i64,
) {
    let got = check_of(code, pgs, edit).expect("a check");
    let detail = detail.iter().map(|d| (*d).to_owned()).collect();
    assert_eq!(got, HealthCheck { severity, summary: summary.to_owned(), detail, count });
}

/// The check of slow operations when these OSDs report so many, and the age of the oldest.
fn slow_ops(reported: &[(i32, u64, u64)]) -> Option<String> {
    let mut w = World::recorded();
    for (osd, count, age_s) in reported {
        w.message(osd_conn(*osd), MMgrOpen { daemon_name: osd.to_string(), ..MMgrOpen::default() });
        let metric = DaemonHealthMetric { kind: 0, value: count | age_s << 32 };
        let report = MMgrReport {
            daemon_name: osd.to_string(),
            health_metrics: vec![metric],
            ..MMgrReport::default()
        };
        w.message(osd_conn(*osd), report);
    }
    w.advance(std::time::Duration::from_secs(2));
    let digest = w.sent().into_iter().rev().find_map(|o| match o {
        Output::SendMon { msg: Message::PgDigest(m), .. } => {
            Some(PgDigest::from_bytes(m.summary).expect("a digest"))
        }
        _ => None,
    });
    digest?.checks.remove("SLOW_OPS").map(|c| c.summary)
}

#[test]
fn slow_operations_are_told_of_in_cephs_words() {
    assert_eq!(slow_ops(&[(0, 0, 0)]), None);
    let one = "3 slow ops, oldest one blocked for 42 sec, osd.0 has slow ops";
    assert_eq!(slow_ops(&[(0, 3, 42)]).as_deref(), Some(one));
    let two = "5 slow ops, oldest one blocked for 50 sec, daemons [osd.0,osd.1] have slow ops.";
    assert_eq!(slow_ops(&[(0, 3, 42), (1, 2, 50)]).as_deref(), Some(two));
    assert_eq!(slow_ops(&[(0, 3, 42), (0, 0, 0)]), None);
}

fn slow_report(daemon_name: &str, service_name: &str, count: u64) -> MMgrReport {
    MMgrReport {
        daemon_name: daemon_name.to_owned(),
        service_name: service_name.to_owned(),
        health_metrics: vec![DaemonHealthMetric { kind: 0, value: count }],
        ..MMgrReport::default()
    }
}

/// Of the last digest, if one was sent within three seconds, whether it warns of slow operations.
fn warned(w: &mut World) -> Option<bool> {
    w.advance(std::time::Duration::from_secs(3));
    w.sent().into_iter().rev().find_map(|o| match o {
        Output::SendMon { msg: Message::PgDigest(m), .. } => {
            Some(PgDigest::from_bytes(m.summary).expect("a digest").checks.contains_key("SLOW_OPS"))
        }
        _ => None,
    })
}

#[test]
fn only_daemons_of_the_cluster_report_on_its_health() {
    let mut w = World::recorded();
    warned(&mut w);
    let conn = ConnId(77);
    w.input(Input::Connected { conn, peer: peer(EntityType::Client, 77, "allow r") });
    for (service_name, daemon_name) in [("rgw", "a"), ("", "77")] {
        let (service, named) = (Some(ServiceInfo::default()), service_name.to_owned());
        w.message(
            conn,
            MMgrOpen {
                daemon_name: daemon_name.to_owned(),
                service_name: named,
                service,
                ..MMgrOpen::default()
            },
        );
        warned(&mut w);
        for count in 1..4 {
            w.message(conn, slow_report(daemon_name, service_name, count));
            assert_ne!(warned(&mut w), Some(true), "{service_name}.{daemon_name}");
        }
    }
}

#[test]
fn slow_operations_of_an_osd_that_left_are_not_warned_of() {
    let mut w = World::recorded();
    w.message(osd_conn(0), MMgrOpen { daemon_name: "0".to_owned(), ..MMgrOpen::default() });
    w.message(osd_conn(0), slow_report("0", "", 3));
    assert_eq!(warned(&mut w), Some(true));
    w.input(Input::Disconnected { conn: osd_conn(0) });
    assert_eq!(warned(&mut w), Some(false));
}

/// As if it had been so for an hour.
fn long_ago(s: &mut PgStat) {
    let then = Utime::new(common::RECORDED_S - 3_600, 0);
    (s.last_active, s.last_peered, s.last_fullsized, s.last_change) = (then, then, then, then);
}

#[test]
fn an_idle_cluster_is_well() {
    assert_eq!(check_of("PG_AVAILABILITY", &[], |_| ()), None);
}

#[test]
fn degraded_pgs_count_objects_and_pgs() {
    check(
        "PG_DEGRADED",
        &["2.0", "8.0"],
        |s| {
            s.state = ACTIVE | DEGRADED | UNDERSIZED;
            s.acting.truncate(1);
            s.stats.sum.num_objects_degraded = 4;
            long_ago(s);
        },
        "Degraded data redundancy: 8/7608 objects degraded (0.105%), 2 pgs degraded, 2 pgs undersized",
        &[
            "pg 2.0 is stuck undersized for 60m, current state active+undersized+degraded, last acting [2]",
            "pg 8.0 is stuck undersized for 60m, current state active+undersized+degraded, last acting [1]",
        ],
        1,
        4,
    );
}

#[test]
fn what_is_new_is_not_stuck() {
    let fresh = |s: &mut PgStat| {
        s.state = PEERING;
        s.last_active = Utime::new(common::RECORDED_S - 30, 0);
        s.last_peered = s.last_active;
    };
    assert_eq!(check_of("PG_AVAILABILITY", &["2.0"], fresh), None);
}

#[test]
fn pgs_that_do_not_serve_are_stuck_by_and_by() {
    check(
        "PG_AVAILABILITY",
        &["2.0"],
        |s| {
            s.state = DOWN | PEERING;
            long_ago(s);
            s.last_peered = Utime::ZERO;
        },
        "Reduced data availability: 1 pg inactive, 1 pg down, 1 pg peering",
        &["pg 2.0 is stuck peering since forever, current state down+peering, last acting [2,1]"],
        1,
        3,
    );
    let got = check_of("PG_AVAILABILITY", &["2.0"], |s| {
        s.state = INCOMPLETE;
        long_ago(s);
    });
    // The pool's min_size is 1: lowering it cannot help.
    assert_eq!(got.expect("a check").detail, ["pg 2.0 is incomplete, acting [2,1]"]);
}

#[test]
fn damage_and_fullness_are_errors_or_warnings() {
    check(
        "PG_DAMAGED",
        &["2.0", "2.1"],
        |s| s.state = ACTIVE | CLEAN | INCONSISTENT,
        "Possible data damage: 2 pgs inconsistent",
        &[
            "pg 2.0 is active+clean+inconsistent, acting [2,1]",
            "pg 2.1 is active+clean+inconsistent, acting [2,1]",
        ],
        0,
        2,
    );
    let summary = |code: &str, bits: u64| {
        check_of(code, &["2.0"], |s| s.state = ACTIVE | bits)
            .map(|c| (c.severity, c.summary))
            .expect("a check")
    };
    let hindered =
        "Low space hindering backfill (add storage if this doesn't resolve itself): 1 pg backfill_toofull";
    assert_eq!(summary("PG_BACKFILL_FULL", BACKFILL_TOOFULL), (1, hindered.to_owned()));
    let blocking = "Full OSDs blocking recovery: 1 pg recovery_toofull".to_owned();
    assert_eq!(summary("PG_RECOVERY_FULL", RECOVERY_TOOFULL), (0, blocking));
}

#[test]
fn objects_that_are_lost_damaged_or_too_large_are_named() {
    let lost = |s: &mut PgStat| {
        s.state = ACTIVE | RECOVERY_UNFOUND | DEGRADED;
        s.stats.sum.num_objects_unfound = 2;
    };
    let (summary, detail) = ("2/3804 objects unfound (0.053%)", ["pg 8.0 has 2 unfound objects"]);
    check("OBJECT_UNFOUND", &["8.0"], lost, summary, &detail, 1, 2);
    let damaged = check_of("PG_DAMAGED", &["8.0"], lost).expect("a check");
    assert_eq!(damaged.detail, ["pg 8.0 is active+recovery_unfound+degraded, acting [1,0], 2 unfound"]);
    check("OSD_SCRUB_ERRORS", &["8.0"], |s| s.stats.sum.num_scrub_errors = 3, "3 scrub errors", &[], 0, 3);
    check(
        "LARGE_OMAP_OBJECTS",
        &["8.0", "2.0"],
        |s| s.stats.sum.num_large_omap_objects = 1,
        "2 large omap objects",
        &[
            "1 large objects found in pool 'cephfs.meta'",
            "1 large objects found in pool 'bench'",
            "Search the cluster log for 'Large omap object found' for more details.",
        ],
        1,
        2,
    );
}

#[test]
fn late_scrubs_are_named() {
    let late = |s: &mut PgStat| {
        s.last_scrub_stamp = Utime::new(1, 0);
        s.last_deep_scrub_stamp = Utime::new(1, 0);
    };
    let since = Utime::new(1, 0);
    let names: Vec<String> =
        ["2.0", "8.0"].iter().map(|pg| format!("pg {pg} not scrubbed since {since}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    check("PG_NOT_SCRUBBED", &["8.0", "2.0"], late, "2 pgs not scrubbed in time", &names, 1, 2);
    let deep = check_of("PG_NOT_DEEP_SCRUBBED", &["8.0"], late).expect("a check");
    assert_eq!(deep.summary, "1 pgs not deep-scrubbed in time");
    assert_eq!(deep.detail, [format!("pg 8.0 not deep-scrubbed since {since}")]);
}

#[test]
fn osds_with_many_repairs_are_named() {
    let digest = |count: u64| {
        let mut w = World::recorded();
        for (osd, mut report) in reports().into_iter().take(1) {
            report.osd_stat.num_shards_repaired = count;
            w.message(osd_conn(osd), report);
        }
        w.advance(std::time::Duration::from_secs(2));
        let sent = w.sent().into_iter().rev().find_map(|o| match o {
            Output::SendMon { msg: Message::PgDigest(m), .. } => Some(m.summary),
            _ => None,
        });
        let mut digest = PgDigest::from_bytes(sent.expect("a digest")).expect("a digest");
        digest.checks.remove("OSD_TOO_MANY_REPAIRS")
    };
    assert_eq!(digest(10), None);
    let found = digest(11).expect("a check");
    assert_eq!(found.summary, "Too many repaired reads on 1 OSDs");
    assert!(found.detail[0].ends_with(" had 11 reads repaired"), "{:?}", found.detail);
}

#[test]
fn details_are_bounded() {
    let all: Vec<String> = (0..32).flat_map(|i| [format!("8.{i:x}"), format!("5.{i:x}")]).collect();
    let all: Vec<&str> = all.iter().map(String::as_str).collect();
    let check = check_of("PG_DAMAGED", &all, |s| s.state = ACTIVE | INCONSISTENT).expect("a check");
    assert_eq!((check.count, check.detail.len()), (64, 51));
}
