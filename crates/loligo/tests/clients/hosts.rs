//! Three hosts in network namespaces: daemons by a plain ceph.conf, two networks, and partitions of them.

use std::process::{Command, Output};
use std::time::{Duration, Instant};

use crate::cluster::{binary, text};

struct Hosts {
    dir: tempfile::TempDir,
}

impl Hosts {
    fn script(&self, args: &[&str]) -> Output {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/hosts.py");
        let mut command = Command::new("timeout");
        command
            .args(["240", "/usr/bin/python3", script])
            .args(args)
            .arg("--dir")
            .arg(self.dir.path().join("c"));
        command.output().expect("the script runs")
    }

    fn ok(&self, line: &str) {
        let out = self.script(&line.split_whitespace().collect::<Vec<_>>());
        assert!(out.status.success(), "{line}: {}", text(&out));
    }

    fn ceph(&self, line: &str) -> serde_json::Value {
        let mut command = Command::new("timeout");
        command.args(["240", "ceph", "-c"]).arg(self.dir.path().join("c/ceph.conf"));
        let out = command.args(line.split_whitespace()).args(["-f", "json"]).output().expect("ceph runs");
        assert!(out.status.success(), "{line}: {}", text(&out));
        serde_json::from_slice(&out.stdout).unwrap_or_default()
    }

    fn up_osds(&self) -> u64 {
        self.ceph("osd stat")["num_up_osds"].as_u64().expect("a number")
    }

    fn wait(&self, what: &str, mut good: impl FnMut(&Self) -> bool) -> Duration {
        let begin = Instant::now();
        while !good(self) {
            assert!(begin.elapsed() < crate::cluster::PATIENCE, "{what} takes too long");
        }
        begin.elapsed()
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        self.script(&["down"]);
    }
}

#[test]
fn three_hosts_with_two_networks_live_through_partitions() {
    if !rustix::process::getuid().is_root() {
        eprintln!("network namespaces need root: nothing was tested");
        return;
    }
    let hosts = Hosts { dir: tempfile::tempdir().expect("a temporary folder") };
    let set = "--set osd_heartbeat_grace=3 --set osd_heartbeat_interval=1";
    hosts.ok(&format!("up --hosts 3 --size 1G {set} --loligo {}", binary().display()));
    // Two are enough for the OSDs to come up.
    hosts.wait("a full quorum", |h| h.ceph("quorum_status")["quorum"].as_array().map(Vec::len) == Some(3));
    let metadata = hosts.ceph("osd metadata 1");
    let net =
        |key: &str| metadata[key].as_str().and_then(|a| a.split('.').nth(2)).unwrap_or_default().to_owned();
    let nets = ["front_addr", "hb_front_addr", "back_addr", "hb_back_addr"].map(net);
    assert_eq!(nets, ["1", "1", "2", "2"], "{metadata}");
    let found = hosts.ceph("osd find 1")["crush_location"].clone();
    assert_eq!(found, serde_json::json!({"host": "h2", "rack": "rack-1", "root": "default"}));
    hosts.ceph("osd pool create p 16");
    hosts.wait("clean PGs", |h| {
        let status = h.ceph("status");
        let states = status["pgmap"]["pgs_by_state"].as_array().cloned().unwrap_or_default();
        !states.is_empty() && states.iter().all(|s| s["state_name"] == "active+clean")
    });
    // Cut off from the other OSDs alone: it goes, and does not come and go while the monitors still hear it.
    hosts.ok("partition h2 --net cluster");
    let down = hosts.wait("a failure report", |h| h.up_osds() == 2);
    eprintln!("marked down after {down:?}");
    let begin = Instant::now();
    while begin.elapsed() < Duration::from_secs(6) {
        assert_eq!(hosts.up_osds(), 2, "it stays away while nobody can reach it");
    }
    hosts.ok("heal h2");
    hosts.wait("the OSD to come back", |h| h.up_osds() == 3);
    // The host of the leader: the others go on, and it comes back.
    let leader = hosts.ceph("quorum_status")["quorum_leader_name"].as_str().map(str::to_owned);
    let host = ["h1", "h2", "h3"]
        [["a", "b", "c"].iter().position(|m| Some(*m) == leader.as_deref()).expect("a leader")];
    hosts.ok(&format!("partition {host}"));
    let begin = Instant::now();
    hosts.ceph("config-key set k v");
    eprintln!("a command after the leader's host was cut off took {:?}", begin.elapsed());
    hosts.ok("heal");
    hosts.wait("everybody back", |h| {
        let status = h.ceph("status");
        status["quorum"].as_array().map(Vec::len) == Some(3) && h.up_osds() == 3
    });
}
