//! What Ceph's manager does of itself on our monitors and OSDs, each act until its end. It takes minutes, which only
//! `cargo xtask soak` gives it.

use std::time::{Duration, Instant};

use serde_json::Value;

use crate::cluster::{Cluster, text, until};
use crate::managers::{CephMgr, answer, in_charge, installed};
use crate::managers_switch::kill_ours;
use crate::real_ceph::{self, RealCeph};

/// Snapshots that librbd's way makes and removes, by several clients at once.
const SNAPS: &str = r#"
import os, rados, sys, threading
count, threads = int(sys.argv[1]), 8
r = rados.Rados(conffile=os.environ['CEPH_CONF']); r.connect()
def work(first):
    io = r.open_ioctx('snapped')
    mine = []
    for i in range(first, count, threads):
        snap = io.create_self_managed_snap()
        mine.append(snap)
        io.set_self_managed_snap_write(mine[::-1])
        io.write_full('x%d' % (i % 16), b'%d' % i)
        if len(mine) > 4: io.remove_self_managed_snap(mine.pop(0))
    for snap in mine: io.remove_self_managed_snap(snap)
    io.close()
all = [threading.Thread(target=work, args=(i,)) for i in range(threads)]
[t.start() for t in all]; [t.join() for t in all]
"#;
const SNAP_COUNT: u64 = 1_000;

fn pool(c: &Cluster, name: &str) -> Value {
    let pools = answer(c, "osd pool ls detail");
    pools.as_array().into_iter().flatten().find(|p| p["pool_name"] == name).cloned().unwrap_or_default()
}

fn counts(c: &Cluster, name: &str) -> [u64; 2] {
    let pool = pool(c, name);
    ["pg_num", "pg_placement_num"].map(|of| pool[of].as_u64().expect("a number"))
}

/// How many PGs are in each state that one is in.
fn states(c: &Cluster) -> Vec<(String, u64)> {
    let summary = answer(c, "pg stat")["pg_summary"]["num_pg_by_state"].clone();
    let state =
        |s: &Value| (s["name"].as_str().unwrap_or_default().to_owned(), s["num"].as_u64().unwrap_or(0));
    summary.as_array().into_iter().flatten().map(state).collect()
}

fn clean(c: &Cluster) {
    until("all PGs clean", || states(c).iter().all(|(state, _)| state == "active+clean"));
}

/// Whether tests of managers run that the gate has no time for.
pub fn wanted() -> bool {
    let wanted = std::env::var_os("LOLIGO_MANAGER_ACTS").is_some();
    if !wanted {
        println!("skipped: set LOLIGO_MANAGER_ACTS=1 to run it");
    }
    wanted
}

#[test]
fn what_cephs_manager_does_of_itself_comes_to_its_end() {
    if !wanted() || !installed("ceph-mgr") {
        return;
    }
    let c = Cluster::start(&["--osds", "4"]);
    c.managed();
    c.pool("snapped", 8);
    c.ceph("osd pool create images 8");
    c.ceph("osd pool application enable images rbd");
    c.ceph("config set global mon_target_pg_per_osd 24");
    let _z = CephMgr::start(&c, "z");
    until("a manager that stands by", || answer(&c, "mgr stat")["num_standby"] == 1);
    c.ceph("mgr fail x");
    in_charge(&c, "z");
    images_are_flattened(&c);
    snapshots_end(&c);
    pg_counts_follow_the_autoscaler(&c);
    the_balancer_moves_pgs(&c);
    recovery_is_forced_and_shown(&c);
    c.ceph("mgr fail z");
    in_charge(&c, "x");
    c.healthy();
}

/// Its module is a librbd client with the manager's key.
fn images_are_flattened(c: &Cluster) {
    c.ok("rbd", &["create", "images/parent", "--size", "32M"]);
    c.ok("rbd", &["bench", "images/parent", "--io-type", "write", "--io-total", "4M", "--io-size", "256K"]);
    c.ok("rbd", &["snap", "create", "images/parent@s"]);
    c.ok("rbd", &["snap", "protect", "images/parent@s"]);
    c.ok("rbd", &["clone", "images/parent@s", "images/child"]);
    let task = c.ceph("rbd task add flatten images/child");
    assert!(task.contains("Flattening image images/child"), "{task}");
    until("a flat image", || !c.ok("rbd", &["info", "images/child"]).contains("parent:"));
    until("no tasks", || answer(c, "rbd task list").as_array().is_some_and(Vec::is_empty));
    c.ok("rbd", &["snap", "unprotect", "images/parent@s"]);
    let diff = c.ok("rbd", &["export-diff", "images/parent", "-"]).len();
    assert!(diff >= 4 << 20);
}

/// OSDs tell it what they have purged, it tells the monitors what all have, and these forget it.
fn snapshots_end(c: &Cluster) {
    let out = c.python(SNAPS, &[&SNAP_COUNT.to_string()]);
    assert!(out.status.success(), "{}", text(&out));
    assert!(pool(c, "snapped")["snap_seq"].as_u64() >= Some(SNAP_COUNT));
    until("the end of removed snapshots", || {
        answer(c, "osd dump")["removed_snaps_queue"].as_array().is_some_and(Vec::is_empty)
    });
    until("no clones", || {
        let df = answer(c, "df");
        let pool = df["pools"].as_array().into_iter().flatten().find(|p| p["name"] == "snapped");
        pool.is_some_and(|p| p["stats"]["objects"] == 16)
    });
}

/// An administrator's step, and what the autoscaler makes of a pool that is to have nearly all the data.
fn pg_counts_follow_the_autoscaler(c: &Cluster) {
    c.pool("steps", 8);
    for count in [32, 8] {
        c.ceph(&format!("osd pool set steps pg_num {count}"));
        until("steps", || counts(c, "steps") == [count, count]);
    }
    c.ceph("config set mgr mgr/pg_autoscaler/sleep_interval 1");
    c.pool("large", 4);
    c.ceph("osd pool set large target_size_ratio 0.9");
    c.ceph("osd pool set large pg_autoscale_mode on");
    until("what the autoscaler wants", || counts(c, "large") == [64, 64]);
    c.ceph("osd pool set large pg_autoscale_mode off");
    clean(c);
}

fn the_balancer_moves_pgs(c: &Cluster) {
    c.ceph("config set mgr mgr/balancer/upmap_max_deviation 1");
    c.ceph("config set mgr mgr/balancer/sleep_interval 1");
    c.ceph("balancer mode upmap");
    c.ceph("balancer on");
    // One OSD is to have far less than the others.
    c.ceph("osd crush reweight osd.0 0.002");
    until("exceptions of the balancer's", || {
        answer(c, "osd dump")["pg_upmap_items"].as_array().is_some_and(|items| !items.is_empty())
    });
    c.ceph("balancer off");
    clean(c);
}

fn recovery_is_forced_and_shown(c: &Cluster) {
    c.ok(
        "rados",
        &["-p", "large", "bench", "9", "write", "-b", "4096", "--max-objects", "200", "--no-cleanup"],
    );
    c.ceph("osd set nobackfill");
    c.ceph("osd set norecover");
    c.ceph("osd out 3");
    let waits = |s: &str| s.contains("recover") || s.contains("backfill");
    until("PGs that wait", || states(c).iter().any(|(s, _)| waits(s)));
    c.ceph("osd pool force-recovery large");
    c.ceph("osd pool force-backfill large");
    until("forced ones", || states(c).iter().any(|(s, _)| s.contains("forced_")));
    until("its event", || {
        let said = answer(c, "progress json");
        let events =
            ["events", "completed"].iter().flat_map(|list| said[list].as_array().into_iter().flatten());
        let mut messages = events.filter_map(|e| e["message"].as_str());
        messages.any(|m| m == "Rebalancing after osd.3 marked out")
    });
    c.ceph("osd unset norecover");
    c.ceph("osd unset nobackfill");
    clean(c);
    c.ceph("osd in 3");
    clean(c);
}

/// How much longer Ceph's manager may take on our monitors than on Ceph's, from the end of the one before.
const LATER: Duration = Duration::from_secs(2);
const ROUNDS: usize = 5;

/// Two of Ceph's managers, of which the one in charge is failed: how long until the other one answers.
fn takes_over(ask: &dyn Fn(&str) -> Value, fail: &dyn Fn(&str)) -> Duration {
    until("a manager in charge and one that stands by", || {
        let map = ask("mgr dump");
        map["available"] == true && map["standbys"].as_array().is_some_and(|s| s.len() == 1)
    });
    let map = ask("mgr dump");
    let [old, next] = [&map["active_name"], &map["standbys"][0]["name"]].map(|n| n.as_str().expect("a name"));
    let began = Instant::now();
    fail(old);
    until(&format!("mgr.{next} in charge"), || {
        let map = ask("mgr dump");
        map["available"] == true && map["active_name"] == next
    });
    began.elapsed()
}

#[test]
fn cephs_manager_is_active_as_soon_as_on_ceph() {
    if !wanted() || !installed("ceph-mgr") || !real_ceph::installed() {
        return;
    }
    let c = Cluster::start(&["--processes"]);
    c.managed();
    // What it takes to load modules, and how often it looks, is to be the same on both sides.
    ["nfs", "restful"].into_iter().for_each(|module| drop(c.ceph(&format!("mgr module disable {module}"))));
    c.ceph("config set mgr mgr_tick_period 1");
    let _managers = ["z", "w"].map(|id| CephMgr::start(&c, id));
    until("managers that stand by", || answer(&c, "mgr stat")["num_standby"] == 2);
    kill_ours(&c);
    let mut theirs = RealCeph::with_osds();
    ["x", "y"].into_iter().for_each(|id| theirs.start("ceph-mgr", &format!("mgr.{id}"), &[]));
    let (mut on_ours, mut on_ceph) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        on_ceph.push(takes_over(&|line| theirs.json(line), &|name| {
            drop(theirs.ceph(&format!("mgr fail {name}")))
        }));
        on_ours.push(takes_over(&|line| answer(&c, line), &|name| drop(c.ceph(&format!("mgr fail {name}")))));
    }
    println!("on our monitors {on_ours:?}, on Ceph's {on_ceph:?}");
    let median = |times: &mut Vec<Duration>| {
        times.sort_unstable();
        times.get(ROUNDS / 2).copied().unwrap_or_default()
    };
    assert!(median(&mut on_ours) <= median(&mut on_ceph) + LATER);
}
