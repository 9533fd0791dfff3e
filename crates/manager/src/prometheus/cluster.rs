//! The series of the cluster as a whole, of its pools and of its daemons, but for daemons' own counters.
//!
//! Names, labels, types and the order of labels are those of Ceph's module, whose boards and alerts name
//! them; `pool_objects_repaired` has the label that it has there, which is not the one of other pools'
//! series.
//!
//! Source: Module._setup_static_metrics and the functions that it names in
//! src/pybind/mgr/prometheus/module.py (16.2).

use std::collections::{BTreeMap, BTreeSet};

use maps::{FsMap, MdsInfo, MgrMap, OptValue, OsdMap, Pool, PoolType, Release};
use messages::pg_state;
use monitor::command::pool_stats;
use monitor::state::{PoolUsage, Rates};
use types::{AddrKind, AddrVec, EntityAddr, PoolId};

use super::facts::{Facts, Fields, JOURNAL, text};
use super::history::History;
use super::text::{Exposition, Family, Kind};
use crate::daemons::Daemons;
use crate::digest::available;
use crate::pg_map::PgMap;
use crate::sums::Sums;
use Kind::{Counter, Gauge, Untyped};

/// What a series' name ends with, and its value for an OSD.
type OfOsd = (&'static str, fn(&OsdMap, i32) -> f64);
type OfStore = (&'static str, fn(&messages::stats::StorePerfStat) -> u64);

/// What the series are made of.
pub(super) struct Sources<'a> {
    pub map: &'a OsdMap,
    pub mgr_map: &'a MgrMap,
    pub fs_map: Option<&'a FsMap>,
    pub pgs: &'a PgMap,
    pub daemons: &'a Daemons,
    pub facts: &'a Facts,
    pub history: &'a History,
}

/// States of PGs that each pool has a series of. Source: PG_STATES in src/pybind/mgr/mgr_module.py.
const PG_STATES: [&str; 34] = [
    "active",
    "clean",
    "down",
    "recovery_unfound",
    "backfill_unfound",
    "scrubbing",
    "degraded",
    "inconsistent",
    "peering",
    "repair",
    "recovering",
    "forced_recovery",
    "backfill_wait",
    "incomplete",
    "stale",
    "remapped",
    "deep",
    "backfilling",
    "forced_backfill",
    "backfill_toofull",
    "recovery_wait",
    "recovery_toofull",
    "undersized",
    "activating",
    "peered",
    "snaptrim",
    "snaptrim_wait",
    "snaptrim_error",
    "creating",
    "unknown",
    "premerge",
    "failed_repair",
    "laggy",
    "wait",
];

const OSD_FLAGS: [&str; 9] =
    ["noup", "nodown", "noout", "noin", "nobackfill", "norebalance", "norecover", "noscrub", "nodeep-scrub"];

/// Of `ceph df detail`.
const DF_POOL: [&str; 16] = [
    "max_avail",
    "avail_raw",
    "stored",
    "stored_raw",
    "objects",
    "dirty",
    "quota_bytes",
    "quota_objects",
    "rd",
    "rd_bytes",
    "wr",
    "wr_bytes",
    "compress_bytes_used",
    "compress_under_bytes",
    "bytes_used",
    "percent_used",
];

impl Sources<'_> {
    /// All of them, in a fixed order.
    pub fn write(&self, out: &mut Exposition) {
        let sums = Sums::of(self.pgs);
        self.health(out);
        self.mons(out);
        self.file_systems(out);
        self.managers(out);
        self.osds(out);
        self.pool_metadata(out);
        self.services(out);
        self.daemon_health(out);
        self.flags(out);
        self.pgs(out);
        self.usage(out, &sums);
        self.objects(out, &sums);
    }

    fn health(&self, out: &mut Exposition) {
        if let Some(status) = self.facts.health() {
            out.single("health_status", Untyped, "Cluster health status", status);
        }
        let slow = match self.facts.checks.get("SLOW_OPS") {
            None => Some(0.0),
            // `42 slow ops, oldest one blocked for 12 sec, ...`
            Some((_, summary)) => {
                summary.split(' ').next().and_then(|word| word.parse::<u64>().ok()).map(float)
            }
        };
        if let Some(slow) = slow {
            let help = "OSD or Monitor requests taking a long time to process";
            out.single("healthcheck_slow_ops", Gauge, help, slow);
        }
        let help = "healthcheck status by type (0=inactive, 1=active)";
        let Some(mut family) = out.family("health_detail", Gauge, help) else { return };
        for (code, event) in self.history.events() {
            family.series(&[("name", code), ("severity", &event.severity)], flag(event.active));
        }
    }

    fn mons(&self, out: &mut Exposition) {
        let mons = &self.facts.mons;
        if let Some(mut family) = out.family("mon_quorum_status", Gauge, "Monitors in quorum") {
            for mon in mons {
                family.series(&[("ceph_daemon", &format!("mon.{}", mon.name))], flag(mon.in_quorum));
            }
        }
        if let Some(mut family) = out.family("mon_metadata", Untyped, "MON Metadata") {
            for mon in mons {
                let fields = self.facts.of("mon", &mon.name);
                let labels = [
                    ("ceph_daemon", format!("mon.{}", mon.name).as_str()),
                    ("hostname", text(fields, "hostname")),
                    ("public_addr", &mon.addr),
                    ("rank", &mon.rank),
                    ("ceph_version", text(fields, "ceph_version")),
                ]
                .map(|(name, text)| (name, text.to_owned()));
                series(&mut family, &labels, 1.0);
            }
        }
    }

    fn file_systems(&self, out: &mut Exposition) {
        let systems = || self.fs_map.into_iter().flat_map(|map| map.filesystems.values());
        if let Some(mut family) = out.family("fs_metadata", Untyped, "FS Metadata") {
            for fs in systems() {
                let pools: Vec<String> = fs.map.data_pools.iter().map(ToString::to_string).collect();
                let labels = [
                    ("data_pools", pools.join(",")),
                    ("fs_id", fs.fscid.to_string()),
                    ("metadata_pool", fs.map.metadata_pool.to_string()),
                    ("name", fs.map.fs_name.clone()),
                ];
                series(&mut family, &labels, 1.0);
            }
        }
        if let Some(mut family) = out.family("mds_metadata", Untyped, "MDS Metadata") {
            let standbys = self.fs_map.into_iter().flat_map(|map| map.standbys.values());
            let standbys = standbys.map(|(info, _)| ("-1".to_owned(), info));
            let ranks =
                systems().flat_map(|fs| fs.map.info.values().map(|info| (fs.fscid.to_string(), info)));
            for (fs, info) in standbys.chain(ranks) {
                self.mds(&mut family, fs, info);
            }
        }
    }

    fn mds(&self, family: &mut Family<'_>, fs: String, info: &MdsInfo) {
        let fields = self.facts.of("mds", &info.name);
        let labels = [
            ("ceph_daemon", format!("mds.{}", info.name)),
            ("fs_id", fs),
            ("hostname", text(fields, "hostname").to_owned()),
            ("public_addr", address(&info.addrs).map_or_else(String::new, |a| with_nonce(&a))),
            ("rank", info.rank.to_string()),
            ("ceph_version", text(fields, "ceph_version").to_owned()),
        ];
        series(family, &labels, 1.0);
    }

    fn managers(&self, out: &mut Exposition) {
        let map = self.mgr_map;
        // A name is told once, whichever of two processes has it.
        let mut all: BTreeMap<&str, bool> =
            map.standbys.values().map(|standby| (standby.name.as_str(), false)).collect();
        all.insert(&map.active_name, true);
        if let Some(mut family) = out.family("mgr_metadata", Gauge, "MGR metadata") {
            for name in all.keys() {
                let fields = self.facts.of("mgr", name);
                let labels = [
                    ("ceph_daemon", format!("mgr.{name}")),
                    ("hostname", text(fields, "hostname").to_owned()),
                    ("ceph_version", text(fields, "ceph_version").to_owned()),
                ];
                series(&mut family, &labels, 1.0);
            }
        }
        if let Some(mut family) = out.family("mgr_status", Gauge, "MGR status (0=standby, 1=active)") {
            for (name, is_active) in &all {
                family.series(&[("ceph_daemon", &format!("mgr.{name}"))], flag(*is_active));
            }
        }
        let always = map.always_on_modules.get(&u32::from(Release::PACIFIC.0));
        let state = |name: &str| match name {
            _ if always.is_some_and(|on| on.contains(name)) => 2.0,
            _ if map.modules.contains(name) => 1.0,
            _ => 0.0,
        };
        let help = "MGR module status (0=disabled, 1=enabled, 2=auto-enabled)";
        if let Some(mut family) = out.family("mgr_module_status", Gauge, help) {
            for module in &map.available_modules {
                family.series(&[("name", &module.name)], state(&module.name));
            }
        }
        let help = "MGR module runnable state i.e. can it run (0=no, 1=yes)";
        if let Some(mut family) = out.family("mgr_module_can_run", Gauge, help) {
            for module in &map.available_modules {
                family.series(&[("name", &module.name)], flag(module.can_run));
            }
        }
    }

    /// OSDs whose place and metadata are known: number, metadata, and where they are.
    fn known_osds(&self) -> Vec<KnownOsd<'_>> {
        let known = |(id, osd): (types::OsdId, &maps::Osd)| {
            let fields = self.facts.of("osd", &id.0.to_string())?;
            self.map.crush.item_name(id.0)?;
            let host = |addrs: &AddrVec| Some(address(addrs)?.socket?).map(|s| bracketed(s.ip()));
            Some(KnownOsd {
                id: id.0,
                fields,
                class: self.map.crush.item_class(id.0).unwrap_or_default(),
                public: host(&osd.client_addrs)?,
                cluster: host(&osd.cluster_addrs)?,
            })
        };
        self.map.existing_osds().filter_map(known).collect()
    }

    fn osds(&self, out: &mut Exposition) {
        let known = self.known_osds();
        if let Some(mut family) = out.family("osd_metadata", Untyped, "OSD Metadata") {
            for osd in &known {
                let field = |name: &str| text(Some(osd.fields), name).to_owned();
                let labels = [
                    ("back_iface", field("back_iface")),
                    ("ceph_daemon", format!("osd.{}", osd.id)),
                    ("cluster_addr", osd.cluster.clone()),
                    ("device_class", osd.class.to_owned()),
                    ("front_iface", field("front_iface")),
                    ("hostname", field("hostname")),
                    ("objectstore", field("osd_objectstore")),
                    ("public_addr", osd.public.clone()),
                    ("ceph_version", field("ceph_version")),
                ];
                series(&mut family, &labels, 1.0);
            }
        }
        self.disks(out, &known);
        let states: [OfOsd; 3] = [
            ("weight", |map, id| map.weight_f32(id).into()),
            ("up", |map, id| flag(map.is_up(id))),
            ("in", |map, id| flag(map.is_in(id))),
        ];
        for (name, value) in states {
            let help = format!("OSD status {name}");
            let Some(mut family) = out.family(&format!("osd_{name}"), Untyped, &help) else { continue };
            for osd in &known {
                family.series(&[("ceph_daemon", &format!("osd.{}", osd.id))], value(self.map, osd.id));
            }
        }
        let latencies: [OfStore; 2] = [
            ("apply_latency_ms", |perf| perf.apply_latency_ns),
            ("commit_latency_ms", |perf| perf.commit_latency_ns),
        ];
        for (name, ns) in latencies {
            let help = format!("OSD stat {name}");
            let Some(mut family) = out.family(&format!("osd_{name}"), Gauge, &help) else { continue };
            for (osd, report) in &self.pgs.osds {
                let ms = float(ns(&report.stat.perf)) / 1e6;
                family.series(&[("ceph_daemon", &format!("osd.{}", osd.0))], ms);
            }
        }
    }

    /// Which disks OSDs are on, and, for people, which OSDs are on each disk.
    fn disks(&self, out: &mut Exposition, known: &[KnownOsd<'_>]) {
        let disks: Vec<Disk> = known.iter().filter_map(Disk::of).collect();
        let help = "Associate Ceph daemon with disk used";
        if let Some(mut family) = out.family("disk_occupation", Untyped, help) {
            disks.iter().for_each(|disk| disk.write(&mut family, true));
        }
        let mut shared: BTreeMap<(&str, &str), Disk> = BTreeMap::new();
        for disk in &disks {
            let place = shared
                .entry((&disk.device, &disk.instance))
                .or_insert_with(|| Disk { daemons: String::new(), ..disk.clone() });
            let comma = if place.daemons.is_empty() { "" } else { ", " };
            place.daemons = format!("{}{comma}{}", place.daemons, disk.daemons);
        }
        if let Some(mut family) = out.family("disk_occupation_human", Untyped, help) {
            shared.values().for_each(|disk| disk.write(&mut family, false));
        }
    }

    fn pool_metadata(&self, out: &mut Exposition) {
        let Some(mut family) = out.family("pool_metadata", Untyped, "POOL Metadata") else { return };
        for (id, pool) in &self.map.pools {
            let (kind, description) = self.pool_kind(pool);
            let compression = match pool.opts.get("compression_mode") {
                Some(OptValue::Str(mode)) => mode.clone(),
                _ => "none".to_owned(),
            };
            let labels = [
                ("pool_id", id.0.to_string()),
                ("name", self.map.pool_name(*id).unwrap_or_default().to_owned()),
                ("type", kind.to_owned()),
                ("description", description),
                ("compression_mode", compression),
            ];
            series(&mut family, &labels, 1.0);
        }
    }

    fn pool_kind(&self, pool: &Pool) -> (&'static str, String) {
        if pool.kind == PoolType::Replicated {
            return ("replicated", format!("replica:{}", pool.size));
        }
        let profile = self.map.erasure_code_profiles.get(&pool.erasure_code_profile);
        let number = |name: &str| profile.and_then(|p| p.get(name));
        let description = match (number("k"), number("m")) {
            (Some(k), Some(m)) => format!("ec:{k}+{m}"),
            _ => "ec:unknown".to_owned(),
        };
        ("erasure", description)
    }

    /// Gateways and mirrors, which register here.
    fn services(&self, out: &mut Exposition) {
        let of = |service: &str| {
            let service = self.daemons.services.services.get(service);
            service.into_iter().flat_map(|service| &service.daemons)
        };
        if let Some(mut family) = out.family("rgw_metadata", Untyped, "RGW Metadata") {
            for (id, daemon) in of("rgw") {
                let field = |name: &str| daemon.metadata.get(name).cloned();
                let labels = [
                    ("ceph_daemon", format!("rgw.{}", field("id").unwrap_or_else(|| id.clone()))),
                    ("hostname", field("hostname").unwrap_or_default()),
                    ("ceph_version", field("ceph_version").unwrap_or_default()),
                    ("instance_id", id.clone()),
                ];
                series(&mut family, &labels, 1.0);
            }
        }
        if let Some(mut family) = out.family("rbd_mirror_metadata", Untyped, "RBD Mirror Metadata") {
            for (id, daemon) in of("rbd-mirror") {
                let field = |name: &str| daemon.metadata.get(name).cloned().unwrap_or_default();
                let labels = [
                    ("ceph_daemon", format!("rbd-mirror.{id}")),
                    ("id", field("id")),
                    ("instance_id", field("instance_id")),
                    ("hostname", field("hostname")),
                    ("ceph_version", field("ceph_version")),
                ];
                series(&mut family, &labels, 1.0);
            }
        }
    }

    /// What monitors and OSDs say that may make the cluster unhealthy.
    fn daemon_health(&self, out: &mut Exposition) {
        let help = "Health metrics for Ceph daemons";
        let Some(mut family) = out.family("daemon_health_metrics", Gauge, help) else { return };
        for (key, daemon) in self.daemons.daemons.iter().filter(|(_, d)| d.conn.is_some()) {
            let name = format!("{}.{}", key.service, key.id);
            let mut one = |kind: &str, value: f64| {
                family.series(&[("type", kind), ("ceph_daemon", &name)], value);
            };
            if daemon.tells.0 {
                one("SLOW_OPS", daemon.slow.0.into());
            }
            if daemon.tells.1 {
                one("PENDING_CREATING_PGS", float(daemon.pending_pgs));
            }
        }
    }

    fn flags(&self, out: &mut Exposition) {
        let text = self.map.flags_text();
        let set: BTreeSet<&str> = text.split(',').collect();
        for name in OSD_FLAGS {
            let help = format!("OSD Flag {name}");
            out.single(&format!("osd_flag_{name}"), Untyped, &help, flag(set.contains(name)));
        }
    }

    fn pgs(&self, out: &mut Exposition) {
        let mut pools: BTreeMap<PoolId, BTreeMap<u64, u32>> = BTreeMap::new();
        for (pg, stat) in &self.pgs.pgs {
            *pools.entry(pg.pool).or_default().entry(stat.state).or_default() += 1;
        }
        let mut family = |name: &str, help: &str, counts: &dyn Fn(u64) -> bool| {
            let Some(mut family) = out.family(name, Gauge, help) else { return };
            for (pool, states) in &pools {
                let pgs: u32 = states.iter().filter(|(bits, _)| counts(**bits)).map(|(_, pgs)| pgs).sum();
                family.series(&[("pool_id", &pool.0.to_string())], pgs.into());
            }
        };
        family("pg_total", "PG Total Count per Pool", &|_| true);
        for state in PG_STATES {
            let bit = pg_state::NAMES.iter().find(|(_, name)| *name == state).map_or(0, |(bit, _)| *bit);
            let counts = |bits: u64| if bit == 0 { bits == 0 } else { bits & bit != 0 };
            family(&format!("pg_{state}"), &format!("PG {state} per pool"), &counts);
        }
    }

    fn usage(&self, out: &mut Exposition, sums: &Sums) {
        let fs = &sums.osds.statfs;
        let all = [
            ("total_bytes", fs.total),
            ("total_used_bytes", fs.used()),
            ("total_used_raw_bytes", fs.used_raw()),
        ];
        for (name, value) in all {
            out.single(&format!("cluster_{name}"), Gauge, &format!("DF {name}"), float(value));
        }
        let mut by_rule: BTreeMap<u8, u64> = BTreeMap::new();
        let stats = |(id, pool): (&PoolId, &Pool)| {
            let avail = by_rule.entry(pool.crush_rule).or_insert_with(|| available(self.pgs, self.map, pool));
            let stat = sums.pools.get(id).map(|p| p.stat).unwrap_or_default();
            let usage = PoolUsage { stat, num_pg: pool.pg_num, rates: Rates::default(), avail_raw: *avail };
            Some((id.0.to_string(), pool_stats(self.map, *id, &usage)?))
        };
        let pools: Vec<_> = self.map.pools.iter().filter_map(stats).collect();
        for name in DF_POOL {
            let kind = if matches!(name, "rd" | "rd_bytes" | "wr" | "wr_bytes") { Counter } else { Gauge };
            let help = format!("DF pool {name}");
            let Some(mut family) = out.family(&format!("pool_{name}"), kind, &help) else { continue };
            for (id, stats) in &pools {
                if let Some(value) = stats.get(name).and_then(serde_json::Value::as_f64) {
                    family.series(&[("pool_id", id)], value);
                }
            }
        }
    }

    /// What is not as it should be, what is being done about it, and what was.
    fn objects(&self, out: &mut Exposition, sums: &Sums) {
        let total = &sums.total.stats.sum;
        for (name, value) in [
            ("degraded", total.num_objects_degraded),
            ("misplaced", total.num_objects_misplaced),
            ("unfound", total.num_objects_unfound),
        ] {
            let help = format!("Number of {name} objects");
            out.single(&format!("num_objects_{name}"), Gauge, &help, value as f64);
        }
        self.recovery(out);
        let help = "Number of objects repaired in a pool Count";
        if let Some(mut family) = out.family("pool_objects_repaired", Counter, help) {
            for id in self.map.pools.keys() {
                let repaired = sums.pools.get(id).map_or(0, |p| p.stat.stats.sum.num_objects_repaired);
                family.series(&[("poolid", &id.0.to_string())], repaired as f64);
            }
        }
    }

    fn recovery(&self, out: &mut Exposition) {
        let growth: Vec<_> = self.map.pools.keys().map(|id| (*id, self.pgs.pool_growth(*id))).collect();
        type Of = fn(&messages::stats::ObjectStatSum) -> i64;
        let stats: [(&str, Of, bool); 5] = [
            ("recovering_objects_per_sec", |d| d.num_objects_recovered, true),
            ("recovering_bytes_per_sec", |d| d.num_bytes_recovered, true),
            ("recovering_keys_per_sec", |d| d.num_keys_recovered, true),
            ("num_objects_recovered", |d| d.num_objects_recovered, false),
            ("num_bytes_recovered", |d| d.num_bytes_recovered, false),
        ];
        for (name, of, is_rate) in stats {
            let help = format!("OSD pool stats: {name}");
            let Some(mut family) = out.family(&format!("pool_{name}"), Gauge, &help) else { continue };
            for (id, growth) in &growth {
                let value = growth.as_ref().map_or(0.0, |(span, d)| {
                    let all = of(d).max(0) as f64;
                    if is_rate { (all / span.as_secs_f64()).trunc() } else { all }
                });
                family.series(&[("pool_id", &id.0.to_string())], value);
            }
        }
    }
}

/// An OSD that is told of.
struct KnownOsd<'a> {
    id: i32,
    fields: &'a Fields,
    class: &'a str,
    public: String,
    cluster: String,
}

/// A disk below an OSD.
#[derive(Clone)]
struct Disk {
    daemons: String,
    device: String,
    db_device: String,
    wal_device: String,
    instance: String,
    devices: String,
    device_ids: String,
}

impl Disk {
    /// As an OSD says, which has to know its disk and its host.
    fn of(osd: &KnownOsd<'_>) -> Option<Self> {
        let field = |name: &str| text(Some(osd.fields), name).to_owned();
        let (device, wal, db) = match field("osd_objectstore").as_str() {
            "filestore" => ("backend_filestore_dev_node", JOURNAL, ""),
            _ => ("bluestore_bdev_dev_node", "bluefs_wal_dev_node", "bluefs_db_dev_node"),
        };
        let device = field(device);
        let instance = field("hostname");
        if device.is_empty() || device == "unknown" || instance.is_empty() {
            return None;
        }
        let or_none = |text: String| if text.is_empty() { "N/A".to_owned() } else { text };
        Some(Self {
            daemons: format!("osd.{}", osd.id),
            device,
            db_device: field(db),
            wal_device: field(wal),
            instance,
            devices: or_none(field("devices")),
            device_ids: or_none(field("device_ids")),
        })
    }

    /// For people the labels are left out in which OSDs of one disk may differ.
    fn write(&self, family: &mut Family<'_>, is_whole: bool) {
        let all = [
            ("ceph_daemon", &self.daemons),
            ("device", &self.device),
            ("db_device", &self.db_device),
            ("wal_device", &self.wal_device),
            ("instance", &self.instance),
            ("devices", &self.devices),
            ("device_ids", &self.device_ids),
        ];
        let shown = |name: &str| is_whole || matches!(name, "ceph_daemon" | "device" | "instance");
        let labels: Vec<(&str, &str)> =
            all.iter().filter(|(name, _)| shown(name)).map(|(name, text)| (*name, text.as_str())).collect();
        family.series(&labels, 1.0);
    }
}

fn series<const N: usize>(family: &mut Family<'_>, labels: &[(&str, String); N], value: f64) {
    family.series(
        &std::array::from_fn::<_, N, _>(|at| labels.get(at).map_or(("", ""), |(n, t)| (*n, t))),
        value,
    );
}

fn flag(on: bool) -> f64 {
    if on { 1.0 } else { 0.0 }
}

fn float(n: u64) -> f64 {
    n as f64
}

/// The address that programs know which know one alone.
fn address(addrs: &AddrVec) -> Option<EntityAddr> {
    let legacy = addrs.0.iter().find(|a| a.kind == AddrKind::Legacy);
    legacy.or(addrs.0.first()).copied()
}

fn bracketed(ip: std::net::IpAddr) -> String {
    match ip {
        std::net::IpAddr::V4(ip) => ip.to_string(),
        std::net::IpAddr::V6(ip) => format!("[{ip}]"),
    }
}

fn with_nonce(addr: &EntityAddr) -> String {
    addr.socket.map_or_else(|| "-".to_owned(), |socket| format!("{socket}/{}", addr.nonce))
}
