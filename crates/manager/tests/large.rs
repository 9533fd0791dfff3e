//! What a hundred OSDs with ten thousand PGs cost, by simulated reports: the monitors' CPU, the bytes of
//! digests, and what a scrape takes.
//!
//! `cargo test -p manager --test large -- --nocapture` prints the figures.

mod common;
#[path = "../../monitor/tests/common/mod.rs"]
mod monitors;

use std::collections::BTreeMap;
use std::time::Duration;

use codec::Encode;
use manager::{Ask, Input, Output};
use maps::{MgrMap, OsdMap};
use messages::Message;
use messages::mgr::{
    MMgrBeacon, MMgrDigest, MMgrOpen, MMgrReport, MMonMgrReport, MPgDigest, PerfCounterType,
};
use messages::mon::{MMgrMap, MMonCommandAck, MMonSubscribe, SubscribeItem};
use messages::payload::RestOfFront;
use messages::pg_state::{ACTIVE, CLEAN, DEGRADED, UNDERSIZED};
use messages::pool_stats::MPgStats;
use messages::stats::{OsdStat, PgStat, StoreStatfs};
use serde_json::{Value, json};
use testkit::exposition;
use types::{AddrVec, ConnId, Epoch, PgId, Utime};

const OSDS: i32 = 100;
const POOLS: u32 = 10;
const PGS_OF_POOL: u32 = 1_000;
/// An OSD reports this often.
const REPORT_EVERY_S: u64 = 5;
const BEACON_EVERY_S: u64 = 5;
/// Until the first digests are through.
const WARM_S: u64 = 30;
/// Of simulated time that is measured.
const SECONDS: u64 = 20;
/// Monitors and managers tick four times a second.
const TICKS: u64 = 4;
/// What an entry of the log takes of a monitor's disk beside its own bytes: seven pages
/// (docs/performance-log.md).
const ENTRY_BYTES: u64 = 7 * 4096;
const MGR: ConnId = ConnId(50);

/// What this thread has run, wherever the machine's other work lets it.
fn cpu_time() -> Duration {
    let t = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(t.tv_sec as u64, t.tv_nsec as u32)
}

/// What the simulated OSDs do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Load {
    /// Nothing: reports say the same again.
    Idle,
    /// Every PG is written to between two reports.
    Writes,
    /// The same while an OSD is down, and no PG of it has recovered.
    Degraded,
}

/// A monitor, a manager and the reports of OSDs.
struct Large {
    mons: monitors::World,
    mgr: common::World,
    load: Load,
    /// Whose the manager is, for the monitor.
    ours: bool,
    report: u64,
    /// That the manager has.
    map: Epoch,
    measured: Measured,
}

/// What came of it.
#[derive(Debug, Default)]
struct Measured {
    monitor: Duration,
    /// Proposals of the monitor, and their bytes.
    entries: u64,
    entry_bytes: u64,
    /// The largest of each.
    mgr_digest: usize,
    pg_digest: usize,
    pg_map_digest: usize,
}

impl Large {
    /// Pools are made and the OSDs are up; the manager's monitors are ours, or Ceph's by what they say.
    fn new(load: Load, version: &'static str) -> Self {
        let mut mons = monitors::World::new();
        let admin = mons.admin();
        for id in 0..OSDS {
            monitors::boot_osd(&mut mons, id);
        }
        for pool in 0..POOLS {
            let cmd = format!(r#"{{"prefix":"osd pool create","pool":"p{pool}","pg_num":{PGS_OF_POOL}}}"#);
            let (code, text, _) = mons.command(admin, &cmd);
            assert_eq!(code, 0, "{text}");
            let cmd = format!(r#"{{"prefix":"osd pool application enable","pool":"p{pool}","app":"rados"}}"#);
            mons.command(admin, &cmd);
        }
        if load == Load::Degraded {
            assert_eq!(mons.command(admin, r#"{"prefix":"osd down","ids":["7"]}"#).0, 0);
        }
        mons.connect(MGR.0, "mgr.x", 4_200, "v2:127.0.0.1:6790/1");
        let ours = version == common::OURS;
        mons.send(MGR, beacon(ours));
        let what = [("mgrdigest".to_owned(), SubscribeItem { start: 0, flags: 0 })].into();
        mons.send(MGR, MMonSubscribe { what, ..MMonSubscribe::default() });
        mons.take();
        let mut mgr = common::World::on(Some(version), false);
        mgr.now = mons.now;
        mgr.input(manager::Input::MonConnected { gid: 1 });
        (0..OSDS).for_each(|osd| mgr.connect_osd(osd));
        let mut this =
            Self { mons, mgr, load, ours, report: 0, map: Epoch(0), measured: Measured::default() };
        this.publish();
        // On Ceph's monitors it waits for its turn.
        let lives = [(7, "y"), (1, "x")].into_iter().skip(usize::from(ours));
        for (active_gid, name) in lives {
            let map = MgrMap { active_gid, active_name: name.to_owned(), ..MgrMap::initial() };
            this.mgr.mon_sends(MMgrMap { map: RestOfFront(map.to_bytes()) });
        }
        this
    }

    /// Tells the manager of a newer map.
    fn publish(&mut self) {
        let map = self.mons.mon.state().osdmap();
        if map.epoch > self.map {
            self.map = map.epoch;
            self.mgr.mon_sends(common::full_map(map.to_bytes()));
        }
    }

    /// Runs until the first digest is taken, and then for as long as is measured.
    fn run(mut self) -> Measured {
        let by_primary = pgs_by_primary(self.mons.mon.state().osdmap());
        let start = self.mons.now.mono.as_secs() + 1;
        let warm = start + WARM_S;
        for at in start..warm + SECONDS {
            if at == warm {
                self.measured = Measured { mgr_digest: 0, ..Measured::default() };
            }
            for tick in 0..TICKS {
                let now = monitors::at(at);
                let part = Duration::from_secs(1) / TICKS as u32 * tick as u32;
                let now = types::Now { mono: now.mono + part, wall: now.wall.plus(part) };
                (self.mons.now, self.mgr.now) = (now, now);
                self.publish();
                self.mgr.input(manager::Input::Tick);
                self.monitor(|w| w.input(monitor::Input::Tick));
                self.deliver();
            }
            if at % BEACON_EVERY_S == 0 {
                let beacon = beacon(self.ours).into();
                self.monitor(|w| w.bring(MGR, beacon));
            }
            self.report += 1;
            for osd in (0..OSDS).filter(|osd| *osd as u64 % REPORT_EVERY_S == at % REPORT_EVERY_S) {
                let pgs = by_primary.get(&osd).map(Vec::as_slice).unwrap_or_default();
                self.mgr.message(common::osd_conn(osd), self.stats(osd, pgs, at < warm));
                self.deliver();
            }
        }
        self.measured
    }

    /// What an OSD says. At first it tells of all its PGs.
    fn stats(&self, osd: i32, pgs: &[(PgId, Vec<i32>)], first: bool) -> MPgStats {
        let statfs = StoreStatfs {
            total: 8 << 40,
            available: (7 << 40) - (self.report << 20),
            ..StoreStatfs::default()
        };
        let map = self.mons.mon.state().osdmap();
        let down = self.load == Load::Degraded;
        let of = |(pg, acting): &(PgId, Vec<i32>)| {
            let short = if acting.len() < 2 { UNDERSIZED | DEGRADED } else { 0 };
            let mut stat = PgStat {
                reported_seq: self.report,
                reported_epoch: map.epoch,
                state: ACTIVE | if short == 0 { CLEAN } else { short },
                up: acting.clone(),
                acting: acting.clone(),
                up_primary: osd,
                acting_primary: osd,
                last_clean: if short == 0 {
                    self.mons.now.wall
                } else {
                    Utime::from_unix(Duration::from_secs(1))
                },
                ..PgStat::default()
            };
            let now = self.mons.now.wall;
            (stat.last_active, stat.last_fresh, stat.last_peered) = (now, now, now);
            (stat.last_scrub_stamp, stat.last_deep_scrub_stamp) = (now, now);
            let sum = &mut stat.stats.sum;
            (sum.num_objects, sum.num_bytes, sum.num_object_copies) = (2_000, 8 << 30, 4_000);
            sum.num_objects_degraded = if short == 0 { 0 } else { 2_000 };
            (sum.num_wr, sum.num_wr_kb) = (self.report as i64 * 100, self.report as i64 * 400);
            (*pg, stat)
        };
        let told = if self.load == Load::Idle && !first { vec![] } else { pgs.iter().map(of).collect() };
        let is_up = !(down && osd == 7);
        MPgStats {
            fsid: map.fsid,
            osd_stat: OsdStat { statfs, seq: self.report, num_pgs: 200, num_osds: 1, ..OsdStat::default() },
            pg_stats: if is_up { told.into_iter().collect() } else { BTreeMap::new() },
            epoch: map.epoch,
            ..MPgStats::default()
        }
    }

    /// Takes what the manager says to the monitor, and what that sends to the manager.
    fn deliver(&mut self) {
        for out in self.mgr.sent() {
            let Output::SendMon { msg, .. } = out else { continue };
            match &msg {
                Message::PgDigest(MPgDigest { summary, .. }) => {
                    self.measured.pg_digest = self.measured.pg_digest.max(summary.len());
                }
                Message::MonMgrReport(MMonMgrReport { digest, .. }) => {
                    self.measured.pg_map_digest = self.measured.pg_map_digest.max(digest.len());
                }
                _ => continue,
            }
            self.monitor(|w| w.bring(MGR, msg));
        }
    }

    /// Has the monitor do something, and what is proposed be committed.
    fn monitor(&mut self, what: impl FnOnce(&mut monitors::World)) {
        let begin = cpu_time();
        what(&mut self.mons);
        let log: Vec<usize> = self.mons.log.iter().map(bytes::Bytes::len).collect();
        self.mons.run();
        let sent = self.mons.take();
        self.measured.monitor += cpu_time().saturating_sub(begin);
        self.measured.entries += log.len() as u64;
        self.measured.entry_bytes += log.iter().sum::<usize>() as u64;
        for out in sent {
            if let monitor::Output::Send { msg: Message::MgrDigest(d), .. } = out {
                self.measured.mgr_digest = self.measured.mgr_digest.max(size(&d));
            }
        }
    }
}

fn size(digest: &MMgrDigest) -> usize {
    digest.mon_status_json.len() + digest.health_json.len()
}

fn beacon(ours: bool) -> MMgrBeacon {
    let metadata = if ours { ("loligo", "0.1") } else { ("ceph_version", common::CEPHS) };
    MMgrBeacon {
        gid: 1,
        name: "x".to_owned(),
        addrs: AddrVec::single(monitors::addr("v2:127.0.0.1:6790/1")),
        available: true,
        fsid: monitors::FSID,
        metadata: [(metadata.0.to_owned(), metadata.1.to_owned())].into(),
        ..MMgrBeacon::default()
    }
}

fn pgs_by_primary(map: &OsdMap) -> BTreeMap<i32, Vec<(PgId, Vec<i32>)>> {
    let mut out: BTreeMap<i32, Vec<(PgId, Vec<i32>)>> = BTreeMap::new();
    map.for_each_pg(|pg, at| out.entry(at.acting_primary).or_default().push((pg, at.acting.clone())));
    assert_eq!(out.values().map(Vec::len).sum::<usize>(), (POOLS * PGS_OF_POOL) as usize);
    assert!(map.epoch > Epoch(1));
    out
}

#[test]
fn what_ten_thousand_pgs_cost_the_monitors_is_bounded() {
    for load in [Load::Idle, Load::Writes, Load::Degraded] {
        for (version, whose) in [(common::OURS, "our manager"), (common::CEPHS, "as Ceph's manager")] {
            let m = Large::new(load, version).run();
            let part = m.monitor.as_secs_f64() / SECONDS as f64;
            println!(
                "{load:?}, {whose}: monitor {:.2} % of a core, {} entries a minute of {} bytes in all; MMgrDigest {}, \
                 MPgDigest {}, PGMapDigest {} bytes",
                part * 100.0,
                m.entries * 60 / SECONDS,
                m.entry_bytes,
                m.mgr_digest,
                m.pg_digest,
                m.pg_map_digest
            );
            let bytes_s = (m.entries * ENTRY_BYTES + m.entry_bytes) / SECONDS;
            println!("{bytes_s} bytes a second of a monitor's disk, at {ENTRY_BYTES} an entry");
            assert!(load != Load::Idle || bytes_s < 20_000, "{bytes_s}: {m:?}");
            assert!(m.entries > 0 && m.mgr_digest > 0 && m.pg_digest.max(m.pg_map_digest) > 0, "{m:?}");
            assert!(part < 0.05, "{m:?}");
            assert!(m.mgr_digest < 64 << 10, "{m:?}");
            assert!(m.pg_digest.max(m.pg_map_digest) < 512 << 10, "{m:?}");
        }
    }
}

/// Counters of an OSD: as many as one of Ceph's tells of.
const COUNTERS: usize = 250;
/// How long a scrape may take: what is built for tests is slower.
const SCRAPE: Duration = Duration::from_millis(if cfg!(debug_assertions) { 1_000 } else { 100 });
const SCRAPE_BYTES: usize = 10 << 20;

/// An OSD's session, and what it counts: half of it are averages.
fn counts(mgr: &mut common::World, osd: i32) {
    let daemon_name = osd.to_string();
    mgr.message(common::osd_conn(osd), MMgrOpen { daemon_name: daemon_name.clone(), ..MMgrOpen::default() });
    let what = |n: usize| PerfCounterType {
        path: format!("part_{}.counter_{n:03}_of_some_length", n % 7),
        description: format!("What an OSD counts under the number {n}"),
        kind: if n % 2 == 0 { 5 } else { 10 },
        priority: 5,
        ..PerfCounterType::default()
    };
    let mut declare_types: Vec<PerfCounterType> = (0..COUNTERS).map(what).collect();
    declare_types.sort_by(|a, b| a.path.cmp(&b.path));
    let mut w = codec::Writer::new();
    w.envelope(1, 1, |w| {
        for what in &declare_types {
            let values = if what.kind == 5 { 3 } else { 1 };
            (0..values).for_each(|_| w.u64(1_234_567_890));
        }
    });
    let packed = w.into_bytes();
    mgr.message(
        common::osd_conn(osd),
        MMgrReport { daemon_name, declare_types, packed, ..MMgrReport::default() },
    );
}

/// What the monitors answer to the questions of a scrape.
fn answered(cmd: &str) -> String {
    let daemon = |id: i32| {
        json!({ "id": id, "hostname": format!("host{}", id / 10), "ceph_version": common::OURS, "cpu": "c".repeat(900),
            "osd_objectstore": "loligo", "bluestore_bdev_dev_node": format!("/dev/sd{id}") })
    };
    let cmd: Value = serde_json::from_str(cmd).expect("JSON");
    let value = match cmd["prefix"].as_str().expect("a prefix") {
        "health" => json!({ "status": "HEALTH_OK", "checks": {} }),
        "quorum_status" => json!({ "quorum": [0], "monmap": { "mons": [] } }),
        "osd metadata" => (0..OSDS).map(daemon).collect(),
        _ => json!([]),
    };
    value.to_string()
}

#[test]
fn a_scrape_of_ten_thousand_pgs_is_quick_and_small() {
    let mut l = Large::new(Load::Idle, common::OURS);
    let modules = ["prometheus".to_owned()].into();
    let map = MgrMap { active_gid: 1, active_name: "x".to_owned(), modules, ..MgrMap::initial() };
    l.mgr.mon_sends(MMgrMap { map: RestOfFront(map.to_bytes()) });
    let by_primary = pgs_by_primary(l.mons.mon.state().osdmap());
    for osd in 0..OSDS {
        let pgs = by_primary.get(&osd).map(Vec::as_slice).unwrap_or_default();
        let stats = l.stats(osd, pgs, true);
        l.mgr.message(common::osd_conn(osd), stats);
        counts(&mut l.mgr, osd);
    }
    l.mgr.tells_metadata = false;
    let mut costs = Vec::new();
    for id in 1..=3 {
        l.mgr.sent();
        let begin = cpu_time();
        l.mgr.input(Input::Ask { id, ask: Ask::Metrics });
        let asked = l.mgr.sent();
        let mut cost = cpu_time().saturating_sub(begin);
        for out in asked {
            let Output::SendMon { tid, msg: Message::MonCommand(m) } = out else { continue };
            let ack = MMonCommandAck { output: answered(&m.cmd[0]).into(), ..MMonCommandAck::default() };
            let begin = cpu_time();
            l.mgr.input(Input::FromMon { tid, msg: ack.into() });
            cost += cpu_time().saturating_sub(begin);
        }
        let reply = l.mgr.sent().into_iter().find_map(|o| match o {
            Output::Answer { id: of, reply } if of == id => Some(reply),
            _ => None,
        });
        let text = reply.expect("an answer").data;
        let lines = text.iter().filter(|b| **b == b'\n').count();
        println!("scrape {id}: {cost:?} of CPU, {} bytes, {lines} lines", text.len());
        let all = exposition::parse(std::str::from_utf8(&text).expect("text")).expect("well-formed");
        let pgs: f64 = all["ceph_pg_active"].series.iter().map(|(_, pgs)| pgs).sum();
        assert_eq!((pgs, all["ceph_osd_metadata"].series.len()), (10_000.0, OSDS as usize));
        assert_eq!(all["ceph_part_1_counter_001_of_some_length"].series.len(), OSDS as usize);
        assert!(text.len() < SCRAPE_BYTES, "{} bytes", text.len());
        costs.push(cost);
    }
    // The machine's other work may stand in the way of one.
    assert!(costs.iter().min().is_some_and(|least| *least < SCRAPE), "{costs:?}");
}
