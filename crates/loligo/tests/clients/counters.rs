//! Counters: what daemons count of a client's work, and what managers, ours and Ceph's, know of it.

use std::process::{Child, Command, Stdio};

use serde_json::Value;

use crate::cluster::{Cluster, until};
use crate::managers::{CephMgr, answer, in_charge, installed};

/// The counters of one part of a daemon.
fn perf(c: &Cluster, daemon: &str, logger: &str) -> Value {
    answer(c, &format!("tell {daemon} perf dump {logger}"))[logger].clone()
}

/// The sum over all OSDs.
fn sum(c: &Cluster, name: &str) -> u64 {
    let osds = c.ceph("osd ls");
    osds.lines().map(|osd| perf(c, &format!("osd.{osd}"), "osd")[name].as_u64().expect("a number")).sum()
}

/// Objects of one size, written and read with `rados`, one after the other.
fn work(c: &Cluster, objects: u64, bytes: usize) {
    let file = c.dir.path().join("content");
    std::fs::write(&file, vec![7; bytes]).expect("written");
    let file = file.to_str().expect("a path");
    for i in 0..objects {
        c.ok("rados", &["-p", "p", "put", &format!("o{i}"), file]);
        c.ok("rados", &["-p", "p", "get", &format!("o{i}"), "/dev/null"]);
    }
}

/// `rbd bench`, which ends with the test.
struct Writer(Child);

impl Writer {
    fn start(c: &Cluster, image: &str) -> Self {
        let mut command = Command::new("rbd");
        command.args(["bench", image, "--io-type", "write", "--io-size", "64K", "--io-total", "20G"]);
        command.env("CEPH_CONF", c.data().join("ceph.conf")).stdout(Stdio::null()).stderr(Stdio::null());
        Self(command.spawn().expect("rbd is installed"))
    }

    fn stop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.stop();
    }
}

#[test]
fn a_clients_work_is_counted_and_told_to_the_manager() {
    let c = Cluster::start(&[]);
    c.managed();
    c.pool("p", 8);
    let names = ["op_w", "op_w_in_bytes", "op_r", "op_r_out_bytes"];
    let before = names.map(|name| sum(&c, name));
    work(&c, 3, 10_000);
    let after = names.map(|name| sum(&c, name));
    let came: Vec<u64> = after.iter().zip(before).map(|(a, b)| a - b).collect();
    assert_eq!(came, [3, 30_000, 3, 30_000]);
    assert!(sum(&c, "subop_w") >= 3, "the members' part");
    // The manager has the same of each daemon when its period is over.
    let told = |daemon: &str| answer(&c, &format!("tell mgr.x counters dump {daemon}"));
    until("the manager knows", || {
        let osds = c.ceph("osd ls");
        let of = |osd: &str| told(&format!("osd.{osd}"))["osd"]["op_w"].as_u64().unwrap_or(0);
        osds.lines().map(of).sum::<u64>() == after[0]
    });
    until("a monitor's", || told("mon.a")["mon"]["num_sessions"].as_u64() > Some(0));
    // A higher threshold leaves what matters most.
    c.ceph("config set mgr mgr_stats_threshold 10");
    until("less", || {
        let osd = told("osd.0");
        osd["osd"]["op"].is_number() && osd["osd"]["op_w"].is_null()
    });
    c.ceph("tell osd.0 perf reset all");
    assert_eq!(perf(&c, "osd.0", "osd")["op_w"], 0);
}

#[test]
fn cephs_manager_shows_what_our_daemons_count() {
    if !installed("ceph-mgr") {
        return;
    }
    let c = Cluster::start(&[]);
    c.managed();
    c.ceph("osd pool create p 8");
    c.ceph("osd pool application enable p rbd");
    let _z = CephMgr::start(&c, "z");
    until("a manager that stands by", || answer(&c, "mgr stat")["num_standby"] == 1);
    c.ceph("mgr fail x");
    in_charge(&c, "z");
    c.ok("rbd", &["create", "p/image", "--size", "64M"]);
    c.ok("rbd", &["bench", "p/image", "--io-type", "write", "--io-total", "8M", "--io-size", "64K"]);
    until("latencies of OSDs", || {
        let told = answer(&c, "osd perf");
        let infos = told["osdstats"]["osd_perf_infos"].as_array().cloned().unwrap_or_default();
        infos.len() == c.ceph("osd ls").lines().count()
            && infos.iter().any(|o| o["perf_stats"]["commit_latency_ns"].as_u64() > Some(0))
    });
    // A writer for as long as it takes: the manager asks the OSDs when it is first asked, and shows rates.
    let mut writer = Writer::start(&c, "p/image");
    let shown = c.ok("rbd", &["perf", "image", "iostat", "p", "--iterations", "1", "--format", "json"]);
    assert!(shown.contains("\"image\":\"image\"") && shown.contains("\"write_bytes\""), "{shown}");
    writer.stop();
    let counted = answer(&c, "rbd perf image counters p write_bytes");
    let of_image = counted["counters"].as_array().expect("images").iter().find_map(|o| o.get("0/image"));
    let write_bytes = of_image.and_then(|sums| sums[2].as_u64()).expect("the sum of what was written");
    assert!(write_bytes > 0 && write_bytes % (64 << 10) == 0, "{counted}");
}
