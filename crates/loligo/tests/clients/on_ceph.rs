//! Our manager in the place of Ceph's, on Ceph's own monitors and OSDs.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::cluster::{Cluster, until};
use crate::managers_act::wanted;
use crate::managers_switch::Fio;
use crate::real_ceph::{RealCeph, installed};

/// Commands whose answers are compared.
const COMPARED: [&str; 16] = [
    // Of these two the monitors make the answer, from what they were reported.
    "status",
    "df detail",
    "osd df",
    "osd df tree",
    "pg dump",
    "pg ls",
    "pg stat",
    "osd perf",
    "osd pool stats",
    "balancer status",
    "osd pool autoscale-status",
    "progress json",
    "crash ls",
    "device ls",
    "service dump",
    "osd blocked-by",
];

/// What moves on a quiet cluster as well, by field.
const MOVING: [&str; 35] = [
    // Times, and numbers of reports and of maps.
    "stamp",
    "version",
    "modified",
    "epoch",
    "last_osdmap_epoch",
    "last_pg_scan",
    "reported_seq",
    "reported_epoch",
    "last_fresh",
    "last_unstale",
    "last_undegraded",
    "last_fullsized",
    "last_active",
    "last_peered",
    "last_clean",
    "last_change",
    "seq",
    "snap_trim_queue_len",
    // OSDs count PGs as well that are on their way in or out.
    "num_pgs",
    "election_epoch",
    "quorum_age",
    "commit_latency_ms",
    "apply_latency_ms",
    "commit_latency_ns",
    "apply_latency_ns",
    "network_ping_times",
    "last_optimize_duration",
    "last_optimize_started",
    "op_queue_age_hist",
    // Of the manager itself, and of when it looked last.
    "mgrmap",
    "no_optimization_needed",
    "optimize_result",
    "pg_stats_delta",
    "pool_stats_delta",
    "stamp_delta",
];

/// Places where two answers differ, at most a few.
fn differences(a: &Value, b: &Value, at: &str, out: &mut Vec<String>) {
    match (a, b) {
        (Value::Object(x), Value::Object(y)) => {
            let keys = x.keys().chain(y.keys().filter(|k| !x.contains_key(*k)));
            for key in keys.filter(|k| !k.ends_with("_sec")) {
                let at = format!("{at}/{key}");
                match (x.get(key), y.get(key)) {
                    (Some(a), Some(b)) if !MOVING.contains(&key.as_str()) => differences(a, b, &at, out),
                    (Some(_), Some(_)) => {}
                    (a, _) => {
                        out.push(format!("{at} is only in {}", if a.is_some() { "Ceph's" } else { "ours" }))
                    }
                }
            }
        }
        (Value::Array(x), Value::Array(y)) if x.len() == y.len() => {
            let (x, y) = (in_order(x), in_order(y));
            x.iter().zip(&y).enumerate().for_each(|(i, (a, b))| differences(a, b, &format!("{at}/{i}"), out));
        }
        (Value::Number(x), Value::Number(y)) => {
            let (x, y) = (x.as_f64().unwrap_or_default(), y.as_f64().unwrap_or_default());
            // Space: OSDs write their own maps and logs meanwhile.
            if (x - y).abs() > 0.02 * x.abs().max(y.abs()) {
                out.push(format!("{at}: {x} and {y}"));
            }
        }
        (a, b) if a == b => {}
        (a, b) => out.push(format!("{at}: {a} and {b}")),
    }
}

/// Lists of PGs and pools are in the order of a hash table.
fn in_order(list: &[Value]) -> Vec<Value> {
    let mut out = list.to_vec();
    out.sort_by_key(|v| ["pgid", "poolid", "osd", "id"].map(|key| v[key].to_string()));
    out
}

fn answers(c: &RealCeph) -> Vec<Value> {
    COMPARED.map(|line| serde_json::from_str(&c.ceph(line)).expect("JSON")).to_vec()
}

fn compare(theirs: &[Value], ours: &[Value]) {
    let mut all = Vec::new();
    for (line, (a, b)) in COMPARED.iter().zip(theirs.iter().zip(ours)) {
        let mut found = Vec::new();
        differences(a, b, "", &mut found);
        all.extend(found.into_iter().map(|difference| format!("{line}: {difference}")));
    }
    assert!(all.is_empty(), "{all:#?}");
}

fn pool(c: &RealCeph) -> Value {
    let pools = c.json("osd pool ls detail");
    pools.as_array().into_iter().flatten().find(|p| p["pool_name"] == "p").cloned().unwrap_or_default()
}

/// Waits until the monitors know what is to be compared: three objects of 4 MiB, twice, and the pool that
/// Ceph's manager makes.
fn quiet(c: &RealCeph) {
    clean(c);
    until("a report of all", || {
        let pgs = c.json("status")["pgmap"].clone();
        let states = json!([{ "state_name": "active+clean", "count": 9 }]);
        pgs["num_objects"] == 3
            && pgs["bytes_used"].as_u64() > Some(6 * (4 << 20))
            && pgs["pgs_by_state"] == states
    });
}

fn pg_states(c: &RealCeph) -> Vec<String> {
    let all = c.json("pg dump pgs_brief");
    let pgs = all["pg_stats"].as_array().cloned().unwrap_or_default();
    pgs.iter().filter_map(|pg| pg["state"].as_str().map(str::to_owned)).collect()
}

fn clean(c: &RealCeph) {
    until("clean PGs", || {
        let states = pg_states(c);
        !states.is_empty() && states.iter().all(|state| state == "active+clean")
    });
}

#[test]
fn our_manager_serves_in_the_place_of_cephs_on_its_own_cluster() {
    if !installed() {
        return;
    }
    let mut c = RealCeph::with_osds();
    c.ceph("osd pool create p 8");
    c.ceph("osd pool application enable p rados");
    // A module that ours does not stand for.
    c.ceph("mgr module enable selftest --force");
    c.start("ceph-mgr", "mgr.y", &[]);
    c.in_charge("y");
    std::fs::write(c.path("object"), vec![7; 4 << 20]).expect("written");
    for name in ["a", "b", "c"] {
        c.run("rados", &["-p", "p", "put", name, &c.path("object")]);
    }
    c.start_ours("mgr.x", &[]);
    until("a reason", || c.said("mgr.x").contains("does not stand for: selftest; it stays out of the way"));
    assert_eq!(c.json("mgr stat")["num_standby"], 0);
    quiet(&c);
    let theirs = answers(&c);
    c.ceph("mgr module disable selftest");
    until("one that stands by", || c.json("mgr stat")["num_standby"] == 1);
    c.ceph("mgr fail y");
    c.in_charge("x");
    let modules = c.json("mgr dump")["available_modules"].as_array().cloned().unwrap_or_default();
    assert!(
        modules.iter().any(|m| m["name"] == "cephadm" && m["can_run"] == false && m["error_string"] != "")
    );
    quiet(&c);
    compare(&theirs, &answers(&c));
    acts(&c);
    c.ceph("mgr fail x");
    c.in_charge("y");
    until("one that stands by", || c.json("mgr stat")["num_standby"] == 1);
}

/// One act of each kind, which ours has Ceph's daemons do.
fn acts(c: &RealCeph) {
    c.ceph("osd pool set p pg_num 10");
    until("more PGs", || pool(c)["pg_num"] == 10 && pool(c)["pg_placement_num"] == 10);
    c.ceph("osd pool set p pg_num 9");
    until("fewer PGs", || pool(c)["pg_num"] == 9 && pool(c)["pg_placement_num"] == 9);
    let stamp = |pgid: &str, name: &str| {
        let all = c.json("pg dump pgs");
        let pg = all["pg_stats"].as_array().into_iter().flatten().find(|pg| pg["pgid"] == pgid).cloned();
        pg.and_then(|pg| pg[name].as_str().map(str::to_owned))
    };
    let commands = [("scrub", "1.0", "last_scrub_stamp"), ("repair", "1.1", "last_deep_scrub_stamp")];
    let before = commands.map(|(_, pg, name)| stamp(pg, name).expect("it is known"));
    for (command, pg, _) in commands {
        c.ceph(&format!("pg {command} {pg}"));
    }
    for ((command, pg, name), before) in commands.iter().zip(before) {
        until(command, || stamp(pg, name).is_some_and(|now| now != before));
    }
    // Nothing moves, so that what is to move first can be said; there is something in each PG.
    c.run("rados", &["-p", "p", "bench", "9", "write", "-b", "4096", "--max-objects", "60", "--no-cleanup"]);
    c.ceph("osd set nobackfill");
    c.ceph("osd set norecover");
    c.ceph("osd out 2");
    // Which of the two it takes depends on how far back the logs go.
    let waits = |s: &String| s.contains("recover") || s.contains("backfill");
    until("PGs that wait", || pg_states(c).iter().any(waits));
    c.ceph("osd pool force-recovery p");
    c.ceph("osd pool force-backfill p");
    until("forced ones", || pg_states(c).iter().any(|s| s.contains("forced_")));
    c.ceph("osd in 2");
    c.ceph("osd unset norecover");
    c.ceph("osd unset nobackfill");
    clean(c);
    an_osd_that_stands_still_is_followed(c);
    removed_snapshots_end(c);
    assert_eq!(c.json("balancer status")["mode"], "upmap");
    c.ceph("config set mgr mgr/balancer/upmap_max_deviation 1");
    c.ceph("config set mgr mgr/balancer/sleep_interval 2");
    c.ceph("osd crush reweight osd.0 0.0002");
    until("exceptions of the balancer's", || {
        c.json("osd dump")["pg_upmap_items"].as_array().is_some_and(|items| !items.is_empty())
    });
}

/// The monitors keep a removed snapshot in their queue until the manager says that every PG is rid of it.
fn removed_snapshots_end(c: &RealCeph) {
    let queue = || c.json("osd dump")["removed_snaps_queue"].as_array().cloned().expect("a queue");
    assert_eq!(queue(), [] as [Value; 0]);
    c.ceph("osd set nosnaptrim");
    c.run("rados", &["-p", "p", "mksnap", "s"]);
    c.run("rados", &["-p", "p", "rmsnap", "s"]);
    until("a snapshot to remove", || !queue().is_empty());
    c.ceph("osd unset nosnaptrim");
    until("no snapshots to remove", || queue().is_empty());
}

/// What health and the PGs are said to be like while an OSD does not answer, and when it does again.
fn an_osd_that_stands_still_is_followed(c: &RealCeph) {
    let codes = || -> Vec<String> {
        let checks = c.json("health")["checks"].clone();
        checks.as_object().into_iter().flatten().map(|(code, _)| code.clone()).collect()
    };
    let says = |code: &str| codes().iter().any(|c| c == code);
    assert!(!says("OSD_DOWN") && !says("PG_DEGRADED"), "{:?}", codes());
    c.signal("osd.2", Signal::STOP);
    until("word of it", || says("OSD_DOWN") && says("PG_DEGRADED"));
    let states = pg_states(c);
    assert!(states.iter().any(|s| s == "active+undersized+degraded"), "{states:?}");
    c.signal("osd.2", Signal::CONT);
    clean(c);
    until("nothing of it", || !says("OSD_DOWN") && !says("PG_DEGRADED"));
}

/// What is said while an OSD of Ceph's ends and comes back under a client's load, by Ceph's manager and ours.
#[test]
fn an_osd_that_ends_under_load_is_followed_as_by_cephs_manager() {
    if !wanted() || !installed() {
        return;
    }
    let mut c = RealCeph::with_osds();
    c.ceph("osd pool create p 8");
    c.ceph("osd pool application enable p rbd");
    c.start("ceph-mgr", "mgr.y", &[]);
    c.in_charge("y");
    c.start_ours("mgr.x", &[]);
    until("one that stands by", || c.json("mgr stat")["num_standby"] == 1);
    c.run("rbd", &["create", "p/image", "--size", "32M"]);
    let fio = Fio::on(Path::new(&c.conf()));
    let mut progress = Vec::new();
    for (manager, next) in [("y", "x"), ("x", "y")] {
        progress.push(ends_and_comes_back(&mut c));
        c.ceph(&format!("mgr fail {manager}"));
        c.in_charge(next);
        until("one that stands by", || c.json("mgr stat")["num_standby"] == 1);
    }
    assert_eq!(progress[0], progress[1], "Ceph's and ours");
    let [written, proved] = fio.end();
    assert!(written > 0 && proved > 0);
}

/// The states that PGs are in while the OSD is gone, when nothing changes any more.
fn ends_and_comes_back(c: &mut RealCeph) -> BTreeSet<String> {
    let codes = |c: &RealCeph| -> BTreeSet<String> {
        let checks = c.json("health")["checks"].clone();
        checks.as_object().into_iter().flatten().map(|(code, _)| code.clone()).collect()
    };
    clean(c);
    let before = codes(c);
    c.stop("osd.2");
    let wanted: BTreeSet<String> =
        before.iter().cloned().chain(["OSD_DOWN", "PG_DEGRADED"].map(str::to_owned)).collect();
    let states = |c: &RealCeph| pg_states(c).into_iter().collect::<BTreeSet<_>>();
    let settled = ["active+clean", "active+undersized", "active+undersized+degraded"].map(str::to_owned);
    until("word of an OSD that has ended", || {
        codes(c) == wanted && states(c).iter().all(|s| settled.contains(s))
    });
    let seen = states(c);
    c.start("ceph-osd", "osd.2", &[]);
    clean(c);
    until("no word of it", || codes(c) == before);
    seen
}

#[test]
fn osds_and_monitors_are_not_mixed_with_cephs() {
    if !installed() {
        return;
    }
    let mut c = RealCeph::new();
    until("a quorum", || c.try_ceph("fsid").is_ok());
    let before = c.epochs();
    let uuid = "00000000-0000-4000-8000-000000000009";
    let conf = c.conf();
    let ours = crate::cluster::binary().display().to_string();
    let folder = c.path("osd.0");
    std::fs::create_dir_all(&folder).expect("a folder");
    c.run(&ours, &["osd", "-c", &conf, "-i", "0", "--mkfs", "--osd-uuid", uuid, "--size", "256M"]);
    c.start_ours("osd.0", &[]);
    assert!(!c.ends("osd.0"));
    let said = c.said("osd.0");
    assert!(said.contains("the monitors are Ceph's: its OSDs do not replicate with ours"), "{said}");

    let (monmap, keyring) = (c.path("map"), c.path("keyring"));
    c.run("ceph", &["mon", "getmap", "-o", &monmap]);
    std::fs::create_dir_all(c.path("mon.b")).expect("a folder");
    // Another process may have the usual port.
    let at = ["--public-addr", &format!("127.0.0.1:{}", crate::cluster::mon_port())];
    let made = Command::new(&ours)
        .args(["mon", "-c", &conf, "-i", "b", "--mkfs", "--monmap", &monmap, "--keyring", &keyring])
        .args(at)
        .output()
        .expect("loligo runs");
    assert!(made.status.success(), "{}", crate::cluster::text(&made));
    c.start_ours("mon.b", &at);
    assert!(!c.ends("mon.b"));
    let said = c.said("mon.b");
    assert!(said.contains("the other monitors are Ceph's: they form no quorum with ours"), "{said}");
    assert_eq!(c.epochs(), before, "nothing was joined");
}

#[test]
fn osds_and_monitors_of_cephs_are_not_mixed_with_ours() {
    if !installed() {
        return;
    }
    let ours = Cluster::start(&[]);
    let dir = ours.dir.path();
    let at = |name: &str| dir.join(name).display().to_string();
    let epochs = || -> Vec<u64> {
        let epoch = |line: &str| {
            let map: Value = serde_json::from_str(&ours.ceph(&format!("{line} -f json"))).expect("JSON");
            map["epoch"].as_u64().expect("an epoch")
        };
        ["mon dump", "osd dump", "mgr dump", "fs dump"].map(epoch).to_vec()
    };
    ours.healthy();
    // Its key is an administrator's doing, and no map's.
    let caps = ["mon", "allow profile osd", "mgr", "allow profile osd", "osd", "allow *"];
    let key = ours.ok("ceph", &[&["auth", "get-or-create", "osd.7"], &caps[..]].concat());
    std::fs::create_dir_all(at("osd.7")).expect("a folder");
    std::fs::write(at("osd.7/keyring"), key).expect("written");
    let before = epochs();
    let said = refused_osd(&ours);
    assert!(said.contains("osd.7: the monitors are Loligo's and take no OSD of Ceph's"), "{said}");
    let said = refused_monitor(&ours);
    assert!(said.contains("it forms no quorum with Loligo's"), "{said}");
    assert_eq!(epochs(), before, "nothing was joined");
}

/// What ceph-osd says when it comes to monitors of ours.
fn refused_osd(ours: &Cluster) -> String {
    let at = |name: &str| ours.dir.path().join(name).display().to_string();
    let (data, log) = (format!("--osd-data={}", at("osd.7")), format!("--log-file={}", at("osd.7.log")));
    let keyring = format!("--keyring={}", at("osd.7/keyring"));
    // Or else its last words are lost at times.
    let store = ["--osd-objectstore=memstore", &keyring, "--log-flush-on-exit=true"];
    let uuid = ["--osd-uuid", "00000000-0000-4000-8000-000000000007"];
    ours.ok("ceph-osd", &[&["--mkfs", "-i", "7", &data, &log][..], &uuid, &store].concat());
    let (_, said) = ours.fails("ceph-osd", &[&["-f", "-i", "7", &data, &log][..], &store].concat());
    said + &std::fs::read_to_string(at("osd.7.log")).unwrap_or_default()
}

/// What a monitor of ours says when ceph-mon comes to it, with the monitors' own key.
fn refused_monitor(ours: &Cluster) -> String {
    let at = |name: &str| ours.dir.path().join(name).display().to_string();
    let keyring = ours.data().join("mon.a/keyring").display().to_string();
    let (data, map) = (format!("--mon-data={}", at("mon.z")), at("monmap"));
    ours.ok("ceph", &["mon", "getmap", "-o", &map]);
    std::fs::create_dir_all(at("mon.z")).expect("a folder");
    let addr = format!("--public-addr=v2:127.0.0.1:{}/0", crate::cluster::mon_port());
    let log = format!("--log-file={}", at("mon.z.log"));
    // By itself it exits with 28 where less than 5 % of the disk are free.
    let own = [data.as_str(), &addr, &log, "--mon-data-avail-crit=0"];
    let mkfs = ["--mkfs", "-i", "z", "--monmap", &map, "--keyring", &keyring];
    ours.ok("ceph-mon", &[&mkfs[..], &own].concat());
    let mut command = Command::new("ceph-mon");
    command.args(["-f", "-i", "z"]).args(own).env("CEPH_CONF", ours.data().join("ceph.conf"));
    let mut theirs = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("ceph-mon starts");
    let said = || std::fs::read_to_string(ours.data().join("loligo.log")).unwrap_or_default();
    until("a word about a monitor", || {
        assert_eq!(theirs.try_wait().expect("a child"), None, "ceph-mon has ended; see mon.z.log");
        said().contains("a monitor of Ceph's at")
    });
    theirs.kill().expect("it runs");
    theirs.wait().expect("a child");
    said()
}
