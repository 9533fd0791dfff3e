//! What OSDs tell of themselves: alerts of their stores, slow heartbeats, PGs that wait to be made; and how
//! many PGs they have.
//!
//! Source: PGMap::get_health_checks in src/mon/PGMap.cc, PendingPGs in
//! src/mgr/DaemonHealthMetricCollector.cc.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use admin::options::Values;
use maps::OsdMap;
use messages::mgr::HealthCheck;
use messages::stats::PeerPingTimes;
use types::Utime;

use super::{MAX_DETAIL, WARNING};
use crate::daemons::Daemons;
use crate::pg_map::PgMap;
use crate::sums::Sums;

/// Pairs of OSDs in the detail of slow heartbeats.
const MAX_PAIRS: usize = 10;
/// Characters of what a store complains of.
const MAX_TEXT: usize = 256;
/// Different codes of alerts; OSDs give them their names.
const MAX_CODES: usize = 64;

/// Options of the checks.
#[derive(Debug, Clone)]
pub(super) struct Limits {
    /// PGs per OSD that is in; 0 is no bound.
    min_pgs: u64,
    max_pgs: u64,
    /// OSDs that there should be, where the monitors do not look for it themselves.
    fewest: Option<usize>,
    /// A heartbeat that takes longer is slow; 0: none is.
    ping_us: f64,
    /// Ping times that are older do not count, in seconds.
    ping_age_s: u64,
    /// Buckets of this type are not named: they are the unit of failure.
    reporter_level: String,
    /// A PG's queue of snapshots to trim that is too long; 0: none is.
    snap_trim_queue: u32,
}

impl Limits {
    pub(super) fn of(options: &Values, on_ceph: bool) -> Self {
        let count = |name: &str| u64::try_from(options.int(name)).unwrap_or(0);
        let grace_s = options.float("osd_heartbeat_grace").max(0.0);
        let ping_us = match options.float("mon_warn_on_slow_ping_time") * 1e3 {
            0.0 => grace_s * 1e6 * options.float("mon_warn_on_slow_ping_ratio"),
            set => set,
        };
        let wanted = on_ceph && options.get("mon_warn_on_too_few_osds").as_deref() == Some("true");
        Self {
            min_pgs: count("mon_pg_warn_min_per_osd"),
            max_pgs: count("mon_max_pg_per_osd"),
            fewest: wanted.then(|| count("osd_pool_default_size") as usize),
            ping_us,
            ping_age_s: grace_s as u64 * 60,
            reporter_level: options.get("mon_osd_reporter_subtree_level").unwrap_or_default(),
            snap_trim_queue: u32::try_from(options.int("mon_osd_snap_trim_queue_warn_on")).unwrap_or(0),
        }
    }
}

type Checks = BTreeMap<String, HealthCheck>;

fn warn(out: &mut Checks, code: &str, summary: String, count: u64, detail: Vec<String>) {
    let count = i64::try_from(count).unwrap_or(i64::MAX);
    out.insert(code.to_owned(), HealthCheck { severity: WARNING, summary, detail, count });
}

pub(super) fn checks(pgs: &PgMap, sums: &Sums, map: &OsdMap, now: Utime, limits: &Limits, out: &mut Checks) {
    alerts(sums, out);
    pgs_per_osd(pgs, sums, map, limits, out);
    too_few(map, limits, out);
    slow_pings(pgs, map, now, limits, out);
    snap_trim_queues(pgs, limits, out);
}

/// What stores complain of, by the code that they give it.
fn alerts(sums: &Sums, out: &mut Checks) {
    let mut by_code: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for (osd, alerts) in &sums.osds.alerts {
        for (code, text) in alerts.iter().take(MAX_DETAIL) {
            if by_code.len() < MAX_CODES || by_code.contains_key(code.as_str()) {
                by_code
                    .entry(code)
                    .or_default()
                    .push(format!(" osd.{osd} {}", text.chars().take(MAX_TEXT).collect::<String>()));
            }
        }
    }
    for (code, detail) in by_code {
        let what = match code {
            "BLUEFS_SPILLOVER" => " experiencing BlueFS spillover",
            "BLUESTORE_NO_COMPRESSION" => " have broken BlueStore compression",
            "BLUESTORE_LEGACY_STATFS" => " reporting legacy (not per-pool) BlueStore stats",
            "BLUESTORE_DISK_SIZE_MISMATCH" => {
                " have dangerous mismatch between BlueStore block device and free list sizes"
            }
            "BLUESTORE_NO_PER_PG_OMAP" => " reporting legacy (not per-pg) BlueStore omap usage stats",
            "BLUESTORE_SPURIOUS_READ_ERRORS" => " have spurious read errors",
            _ => "",
        };
        let count = detail.len() as u64;
        warn(out, code, format!("{count} OSD(s){what}"), count, detail);
    }
}

fn pgs_per_osd(pgs: &PgMap, sums: &Sums, map: &OsdMap, limits: &Limits, out: &mut Checks) {
    let up = u64::try_from(sums.total.up).unwrap_or(0).max(pgs.pgs.len() as u64);
    let Some(per) = up.checked_div(map.counts().r#in as u64) else { return };
    let (min, max) = (limits.min_pgs, limits.max_pgs);
    if per != 0 && per < min && !map.pools.is_empty() {
        let summary = format!("too few PGs per OSD ({per} < min {min})");
        warn(out, "TOO_FEW_PGS", summary, min - per, Vec::new());
    }
    if max != 0 && per > max {
        let summary = format!("too many PGs per OSD ({per} > max {max})");
        warn(out, "TOO_MANY_PGS", summary, per - max, Vec::new());
    }
}

fn too_few(map: &OsdMap, limits: &Limits, out: &mut Checks) {
    let (count, Some(fewest)) = (map.counts().total, limits.fewest) else { return };
    if count < fewest {
        let summary = format!("OSD count {count} < osd_pool_default_size {fewest}");
        warn(out, "TOO_FEW_OSDS", summary, (fewest - count) as u64, Vec::new());
    }
}

/// Averages over 1, 5 and 15 minutes, in microseconds.
type Averages = fn(&PeerPingTimes) -> [u32; 3];

fn slow_pings(pgs: &PgMap, map: &OsdMap, now: Utime, limits: &Limits, out: &mut Checks) {
    let networks: [(&str, &str, Averages); 2] = [
        ("OSD_SLOW_PING_TIME_BACK", "back", |t| t.back.average_us),
        ("OSD_SLOW_PING_TIME_FRONT", "front", |t| t.front.average_us),
    ];
    if limits.ping_us <= 0.0 {
        return;
    }
    for (code, network, averages) in networks {
        // Of those that are as slow, the higher numbers come first, as Ceph lists them.
        let mut slow: Vec<(u32, i32, i32, bool)> = Vec::new();
        for (from, report) in &pgs.osds {
            for (to, times) in &report.stat.hb_pingtime {
                let old = u64::from(now.sec.saturating_sub(times.last_update_s)) > limits.ping_age_s;
                let [one, five, fifteen] = averages(times);
                let us = one.max(five).max(fifteen);
                if !old && f64::from(us) > limits.ping_us {
                    slow.push((us, from.0, *to, one < five && five < fifteen));
                }
            }
        }
        slow.sort_unstable_by_key(|s| Reverse(*s));
        let Some((longest, ..)) = slow.first() else { continue };
        let summary = format!("Slow OSD heartbeats on {network} (longest {}ms)", ms(*longest));
        let who = |osd: i32| {
            let down = if map.is_down(osd) { " (down)" } else { "" };
            format!("osd.{osd} [{}]{down}", parents(map, osd, limits))
        };
        let line = |(us, from, to, improving): &(u32, i32, i32, bool)| {
            let (from, to, ms) = (who(*from), who(*to), ms(*us));
            let end = if *improving { " possibly improving" } else { "" };
            format!("Slow OSD heartbeats on {network} from {from} to {to} {ms} msec{end}")
        };
        let mut detail: Vec<String> = slow.iter().take(MAX_PAIRS).map(line).collect();
        if slow.len() > MAX_PAIRS {
            detail.push(
                "Truncated long network list.  Use ceph daemon mgr.# dump_osd_network for more information"
                    .to_owned(),
            );
        }
        warn(out, code, summary, slow.len() as u64, detail);
    }
}

fn ms(us: u32) -> String {
    format!("{}.{:03}", us / 1_000, us % 1_000)
}

/// Names of the buckets around an OSD. Source: PGMap::osd_parentage.
fn parents(map: &OsdMap, osd: i32, limits: &Limits) -> String {
    let around = map.crush.full_location(osd).into_iter();
    let named = around.filter(|(kind, _)| kind != "root" && *kind != limits.reporter_level);
    let names: BTreeSet<String> = named.map(|(_, name)| name).collect();
    names.into_iter().collect::<Vec<_>>().join(",")
}

fn snap_trim_queues(pgs: &PgMap, limits: &Limits, out: &mut Checks) {
    let least = limits.snap_trim_queue;
    let long = pgs.pgs.iter().map(|(pg, s)| (s.snaptrimq_len, *pg)).filter(|(n, _)| *n >= least);
    let long: Vec<(u32, types::PgId)> = if least == 0 { Vec::new() } else { long.collect() };
    let Some((longest, pg)) = long.iter().max() else { return };
    let line = |(n, pg): &(u32, types::PgId)| format!("snap trim queue for pg {pg} at {n}");
    let mut detail: Vec<String> = long.iter().take(MAX_DETAIL - 1).map(line).collect();
    if long.len() > detail.len() {
        detail.push("...more pgs affected".to_owned());
    }
    detail.push(format!("longest queue on pg {pg} at {longest}"));
    detail.push(
        "try decreasing \"osd snap trim sleep\" and/or increasing \"osd pg max concurrent snap trims\"."
            .to_owned(),
    );
    let count = long.len() as u64;
    let summary = format!("snap trim queue for {count} pg(s) >= {least} (mon_osd_snap_trim_queue_warn_on)");
    warn(out, "PG_SLOW_SNAP_TRIMMING", summary, count, detail);
}

/// PGs that OSDs were told to make and have no room for.
pub fn pending_pgs(daemons: &Daemons) -> Option<(String, HealthCheck)> {
    let waiting: Vec<(String, u64)> =
        daemons.pending_pgs().map(|(k, n)| (format!("{}.{}", k.service, k.id), n)).collect();
    let count = waiting.iter().fold(0u64, |sum, (_, n)| sum.saturating_add(*n));
    let names: Vec<String> = waiting.into_iter().map(|(name, _)| name).collect();
    let who = match names.as_slice() {
        [] => return None,
        [one] => format!("{one} has pending PGs"),
        all => format!("osds [{}] have pending PGs.", all.join(",")),
    };
    let summary = format!("{count} PGs pending on creation");
    let check = HealthCheck { severity: WARNING, summary, detail: vec![who], count: 1 };
    Some(("PENDING_CREATING_PGS".to_owned(), check))
}
