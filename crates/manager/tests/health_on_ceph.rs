//! What Ceph's monitors know of ill health from their manager alone, in the words of Ceph's manager.

mod common;

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use codec::{Decode, Encode};
use common::{CEPHS, OSDMAP, RECORDED_S, World, full_map, osd_conn, reports};
use manager::{Input, Output};
use maps::{MgrMap, OsdMap, Pool};
use messages::Message;
use messages::mgr::{DaemonHealthMetric, HealthCheck, MMgrOpen, MMgrReport};
use messages::mon::{MConfig, MMgrMap};
use messages::payload::RestOfFront;
use messages::stats::{OsdStat, PeerPingTimes, PgStat, PingTimes};
use types::{Epoch, PoolId};

const GID: u64 = 4_100;
const POOL: PoolId = PoolId(8);

type Checks = BTreeMap<String, HealthCheck>;

/// The recorded cluster with a manager of ours in charge of it, on Ceph's monitors.
struct Cluster {
    options: Vec<(&'static str, &'static str)>,
    map: OsdMap,
    stats: Vec<(i32, messages::pool_stats::MPgStats)>,
}

impl Cluster {
    fn new() -> Self {
        Self::as_recorded().pool(|p| {
            p.application_metadata.insert("rados".to_owned(), BTreeMap::new());
        })
    }

    /// Its pool `bench` has no application.
    fn as_recorded() -> Self {
        let map = OsdMap::from_bytes(Bytes::from_static(OSDMAP)).expect("a map");
        Self { options: Vec::new(), map, stats: reports() }
    }

    fn with(mut self, option: &'static str, value: &'static str) -> Self {
        self.options.push((option, value));
        self
    }

    fn pool(mut self, edit: impl FnOnce(&mut Pool)) -> Self {
        edit(self.map.pools.get_mut(&POOL).expect("the pool"));
        self
    }

    fn osd(mut self, osd: i32, edit: impl FnOnce(&mut OsdStat)) -> Self {
        let report = self.stats.iter_mut().find(|(id, _)| *id == osd).expect("the OSD");
        edit(&mut report.1.osd_stat);
        self
    }

    /// Changes the statistics of the first PG of the pool.
    fn pg(mut self, edit: impl Fn(&mut PgStat)) -> Self {
        let stats = self.stats.iter_mut().flat_map(|(_, report)| &mut report.pg_stats);
        stats.filter(|(pg, _)| pg.pool == POOL && pg.seed == 0).for_each(|(_, stat)| edit(stat));
        self
    }

    fn start(self) -> World {
        let mut w = World::on(Some(CEPHS), false);
        w.input(Input::MonConnected { gid: GID });
        let options = self.options.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        w.mon_sends(MConfig { options });
        let mut map = self.map;
        map.epoch = Epoch(map.epoch.0 + 1);
        w.mon_sends(full_map(map.to_bytes()));
        let mut mgr = MgrMap::initial();
        (mgr.active_gid, mgr.active_name) = (GID, "x".to_owned());
        w.mon_sends(MMgrMap { map: RestOfFront(mgr.to_bytes()) });
        for (osd, report) in self.stats {
            w.connect_osd(osd);
            w.message(osd_conn(osd), report);
        }
        w
    }

    fn checks(self) -> Checks {
        checks(&mut self.start())
    }
}

/// What the last report says.
fn checks(w: &mut World) -> Checks {
    w.advance(Duration::from_secs(3));
    let report = w.sent().into_iter().rev().find_map(|o| match o {
        Output::SendMon { msg: Message::MonMgrReport(report), .. } => Some(report),
        _ => None,
    });
    report.expect("a report").checks.checks
}

fn check(cluster: Cluster, code: &str, severity: u8, summary: &str, detail: &[&str], count: i64) {
    let got = cluster.checks();
    let detail = detail.iter().map(|d| (*d).to_owned()).collect();
    let want = HealthCheck { severity, summary: summary.to_owned(), detail, count };
    assert_eq!(got, [(code.to_owned(), want)].into());
}

#[test]
fn a_cluster_at_rest_is_well() {
    assert_eq!(Cluster::new().checks(), Checks::new());
}

#[test]
fn alerts_of_stores_are_told_by_their_code() {
    let spilled = |osd: i32| {
        let text = "spilled over 1 MiB metadata from 'db' device".to_owned();
        move |s: &mut OsdStat| {
            s.alerts.entry(osd).or_default().insert("BLUEFS_SPILLOVER".to_owned(), text);
        }
    };
    check(
        Cluster::new().osd(0, spilled(0)).osd(2, spilled(2)),
        "BLUEFS_SPILLOVER",
        1,
        "2 OSD(s) experiencing BlueFS spillover",
        &[
            " osd.0 spilled over 1 MiB metadata from 'db' device",
            " osd.2 spilled over 1 MiB metadata from 'db' device",
        ],
        2,
    );
    let long = Cluster::new().osd(1, |s| {
        s.alerts.entry(1).or_default().insert("LONG".to_owned(), "x".repeat(1 << 20));
    });
    assert!(long.checks()["LONG"].detail.iter().all(|line| line.len() < 300), "nor by one line");
    let many = Cluster::new().osd(1, |s| {
        for n in 0..1_000 {
            s.alerts.entry(n).or_default().insert(format!("CODE_{n}"), String::new());
        }
    });
    assert_eq!(many.checks().len(), 64, "one OSD cannot fill the report");
}

#[test]
fn pgs_that_wait_to_be_made_are_counted() {
    let mut w = Cluster::new().start();
    let mut tell = |osd: i32, value: u64| {
        w.message(osd_conn(osd), MMgrOpen { daemon_name: osd.to_string(), ..MMgrOpen::default() });
        let report = MMgrReport {
            daemon_name: osd.to_string(),
            health_metrics: vec![DaemonHealthMetric { kind: 1, value }],
            ..MMgrReport::default()
        };
        w.message(osd_conn(osd), report);
        checks(&mut w).remove("PENDING_CREATING_PGS").map(|c| (c.summary, c.detail))
    };
    let said = |summary: &str, detail: &str| Some((summary.to_owned(), vec![detail.to_owned()]));
    assert_eq!(tell(1, 4), said("4 PGs pending on creation", "osd.1 has pending PGs"));
    let both = said("7 PGs pending on creation", "osds [osd.1,osd.2] have pending PGs.");
    assert_eq!(tell(2, 3), both);
    tell(1, 0);
    assert_eq!(tell(2, 0), None);
}

#[test]
fn slow_heartbeats_are_told_by_network() {
    let times = |us: [u32; 3]| PingTimes { average_us: us, ..PingTimes::default() };
    let slow = |last_update_s: u32, back: [u32; 3], front: [u32; 3]| {
        let times = PeerPingTimes { last_update_s, back: times(back), front: times(front) };
        Cluster::new().osd(0, move |s| {
            s.hb_pingtime.insert(1, times);
        })
    };
    let got = slow(RECORDED_S, [1_000_001, 1_200_034, 1_300_000], [10, 1_000_000, 0]).checks();
    let back = got.get("OSD_SLOW_PING_TIME_BACK").expect("a check");
    assert_eq!(got.len(), 1, "exactly a second is not slow: {got:?}");
    assert_eq!(back.summary, "Slow OSD heartbeats on back (longest 1300.000ms)");
    let line = "Slow OSD heartbeats on back from osd.0 [] to osd.1 [] 1300.000 msec possibly improving";
    assert_eq!((back.detail.as_slice(), back.count), ([line.to_owned()].as_slice(), 1));
    let front = slow(RECORDED_S, [0; 3], [1_500_250, 0, 0]).checks();
    assert_eq!(
        front["OSD_SLOW_PING_TIME_FRONT"].summary,
        "Slow OSD heartbeats on front (longest 1500.250ms)"
    );
    assert_eq!(slow(RECORDED_S - 1_300, [2_000_000; 3], [2_000_000; 3]).checks(), Checks::new(), "too old");
    let set = slow(RECORDED_S, [6_000, 0, 0], [0; 3]).with("mon_warn_on_slow_ping_time", "5");
    assert_eq!(set.checks().len(), 1);
}

#[test]
fn osds_are_to_have_neither_too_few_pgs_nor_too_many() {
    // 185 PGs of two or three copies on three OSDs.
    let per = |code: &str, option, value| {
        Cluster::new().with(option, value).checks().remove(code).map(|c| c.summary)
    };
    let few = per("TOO_FEW_PGS", "mon_pg_warn_min_per_osd", "1000").expect("a check");
    let found: u64 =
        few.chars().filter(char::is_ascii_digit).take(3).collect::<String>().parse().expect("a number");
    assert_eq!(few, format!("too few PGs per OSD ({found} < min 1000)"));
    let many = per("TOO_MANY_PGS", "mon_max_pg_per_osd", "5");
    assert_eq!(many, Some(format!("too many PGs per OSD ({found} > max 5)")));
    check(
        Cluster::new().with("osd_pool_default_size", "5"),
        "TOO_FEW_OSDS",
        1,
        "OSD count 3 < osd_pool_default_size 5",
        &[],
        2,
    );
    let off = Cluster::new().with("osd_pool_default_size", "5").with("mon_warn_on_too_few_osds", "false");
    assert_eq!(off.checks(), Checks::new());
}

#[test]
fn quotas_count_from_their_thresholds() {
    let at = |objects: u64, warn, full| {
        let cluster =
            Cluster::new().pool(|p| p.quota_max_objects = objects).pg(|s| s.stats.sum.num_objects = 1 << 20);
        cluster
            .with("mon_pool_quota_warn_threshold", warn)
            .with("mon_pool_quota_crit_threshold", full)
            .checks()
    };
    let codes = |checks: Checks| checks.into_keys().collect::<Vec<_>>();
    assert_eq!(codes(at(1_200_000, "0", "0")), [""; 0]);
    assert_eq!(codes(at(1_200_000, "80", "0")), ["POOL_NEAR_FULL"]);
    let full = at(1_200_000, "80", "85").remove("POOL_FULL").expect("a check");
    assert_eq!((full.severity, full.summary.as_str()), (0, "1 pools full"));
    assert!(full.detail[0].ends_with(" objects (max 1200000)"), "{:?}", full.detail);
    assert_eq!(codes(at(1_000, "80", "85")), [""; 0], "that it is reached the monitors say themselves");
}

#[test]
fn pools_that_are_split_badly_are_named() {
    check(
        Cluster::new().pool(|p| p.pgp_num_target = p.pg_num_target / 2),
        "SMALLER_PGP_NUM",
        1,
        "1 pools have pg_num > pgp_num",
        &["pool bench pg_num 32 > pgp_num 16"],
        1,
    );
    let skew =
        Cluster::new().pg(|s| s.stats.sum.num_objects = 1 << 20).with("mon_pg_warn_max_object_skew", "2");
    let skew = skew.checks().remove("MANY_OBJECTS_PER_PG").expect("a check");
    assert_eq!(skew.summary, "1 pools have many more objects per pg than average");
    assert!(skew.detail[0].starts_with("pool bench objects per pg (3"), "{:?}", skew.detail);
}

#[test]
fn pools_of_no_declared_use_and_full_caches_are_named() {
    let bare = Cluster::as_recorded().checks();
    let bare = bare.get("POOL_APP_NOT_ENABLED").filter(|_| bare.len() == 1).expect("a check");
    assert_eq!(bare.summary, "1 pool(s) do not have an application enabled");
    assert_eq!((bare.detail.len(), bare.detail[0].as_str()), (2, "application not enabled on pool 'bench'"));
    let cache = Cluster::new().pool(|p| {
        (p.target_max_objects, p.target_max_bytes, p.cache_target_full_ratio_micro) =
            (3_000, 1 << 60, 800_000);
    });
    let cache = cache.checks().remove("CACHE_POOL_NEAR_FULL").expect("a check");
    assert_eq!(cache.summary, "1 cache pools at or near target size");
    assert_eq!(cache.detail.len(), 1, "{:?}", cache.detail);
}

#[test]
fn long_queues_of_snapshots_are_told() {
    let got = Cluster::new().pg(|s| s.snaptrimq_len = 40_000).checks();
    let check = got.get("PG_SLOW_SNAP_TRIMMING").expect("a check");
    let want = "snap trim queue for 1 pg(s) >= 32768 (mon_osd_snap_trim_queue_warn_on)";
    assert_eq!((check.summary.as_str(), check.count, check.detail.len()), (want, 1, 3));
    assert_eq!(check.detail[0], "snap trim queue for pg 8.0 at 40000");
}
