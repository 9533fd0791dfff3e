//! Ceph's own manager in the place of ours, and back.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use crate::cluster::{Cluster, until};

/// Ceph's manager, which ends with the test.
struct CephMgr(Child);

impl CephMgr {
    /// As `mgr.<id>`, with a key of its own.
    fn start(c: &Cluster, id: &str) -> Self {
        let at = |name: &str| c.dir.path().join(format!("{name}.{id}"));
        let key = c.ok(
            "ceph",
            &[
                "auth",
                "get-or-create",
                &format!("mgr.{id}"),
                "mon",
                "allow profile mgr",
                "osd",
                "allow *",
                "mds",
                "allow *",
            ],
        );
        std::fs::write(at("keyring"), key).expect("written");
        std::fs::create_dir_all(at("data")).expect("a folder");
        let mut command = Command::new("ceph-mgr");
        command.args(["-f", "-i", id]).env("CEPH_CONF", c.data().join("ceph.conf"));
        for (option, path) in [("keyring", at("keyring")), ("mgr-data", at("data")), ("log-file", at("log"))]
        {
            command.arg(format!("--{option}={}", path.display()));
        }
        command.stdout(Stdio::null()).stderr(Stdio::null()).stdin(Stdio::null());
        Self(command.spawn().expect("ceph-mgr starts"))
    }
}

impl Drop for CephMgr {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A client that stays connected: it asks the manager when it is told to, and says how that went.
struct Asking {
    child: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
}

const ASK: &str = r#"
import os, rados, sys
r = rados.Rados(conffile=os.environ['CEPH_CONF']); r.connect()
for line in sys.stdin:
    print(r.mgr_command(line.strip(), b'', timeout=60)[0], flush=True)
"#;

impl Asking {
    fn start(c: &Cluster) -> Self {
        let mut command = Command::new("/usr/bin/python3");
        command.args(["-c", ASK]).env("CEPH_CONF", c.data().join("ceph.conf"));
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("python starts");
        let (to, from) = (child.stdin.take().expect("piped"), child.stdout.take().expect("piped"));
        Self { child, to, from: BufReader::new(from) }
    }

    /// The manager's answer, within so long.
    fn ask(&mut self, within: Duration) {
        let begin = Instant::now();
        writeln!(self.to, r#"{{"prefix": "pg stat"}}"#).expect("it listens");
        let mut line = String::new();
        self.from.read_line(&mut line).expect("it answers");
        assert_eq!(line.trim(), "0", "the manager's answer");
        assert!(begin.elapsed() < within, "{:?} until the manager answered", begin.elapsed());
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Whether a program is there; the gate has all of them.
fn installed(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).any(|dir| dir.join(program).is_file());
    assert!(found || std::env::var_os("LOLIGO_REQUIRE_PEERS").is_none(), "{program} is not installed");
    if !found {
        eprintln!("not tried with {program}: it is not installed");
    }
    found
}

fn json(c: &Cluster, line: &str) -> serde_json::Value {
    serde_json::from_str(&c.ceph(&format!("{line} -f json"))).expect("JSON")
}

fn in_charge(c: &Cluster, name: &str) {
    until(&format!("mgr.{name} in charge"), || {
        let map = json(c, "mgr dump");
        map["available"] == true && map["active_name"] == name
    });
}

#[test]
fn cephs_manager_serves_in_the_place_of_ours_and_gives_it_back() {
    if !installed("ceph-mgr") {
        return;
    }
    let c = Cluster::start(&[]);
    c.managed();
    c.pool("p", 8);
    let mut before = Asking::start(&c);
    before.ask(Duration::from_secs(60));
    let _z = CephMgr::start(&c, "z");
    until("a manager that stands by", || json(&c, "mgr stat")["num_standby"] == 1);
    c.still_healthy();

    c.ceph("mgr fail x");
    in_charge(&c, "z");
    // It was given the ticket that this one opens without having asked.
    before.ask(Duration::from_secs(10));
    assert!(c.ceph("health detail").contains("MGR_TICKETS_OF_CEPH"));
    assert!(c.ceph("log last 100 info audit").contains("tickets for managers have Ceph's form from now on"));
    c.ok("rados", &["-p", "p", "put", "x", "/etc/hostname"]);
    let size = std::fs::metadata("/etc/hostname").expect("a file").len();
    // What it is told by OSDs of ours, and what monitors of ours make of its report.
    until("its report", || {
        let df = json(&c, "df");
        let pool = df["pools"].as_array().into_iter().flatten().find(|p| p["name"] == "p");
        pool.is_some_and(|p| p["stats"]["objects"] == 1 && p["stats"]["stored"].as_u64() >= Some(size))
    });
    assert_eq!(json(&c, "osd df")["nodes"].as_array().map(Vec::len), Some(3));
    assert_eq!(
        json(&c, "status")["pgmap"]["bytes_total"],
        json(&c, "osd df")["summary"]["total_kb"].as_u64().unwrap_or_default() << 10
    );
    c.ceph("osd pool create q 4");
    c.ceph("osd pool application enable q rados");
    c.ceph("osd pool set p pg_num 4");
    let pool = |name: &str| {
        let pools = json(&c, "osd pool ls detail");
        pools.as_array().into_iter().flatten().find(|p| p["pool_name"] == name).cloned().unwrap_or_default()
    };
    until("fewer PGs, step by step", || pool("p")["pg_num"] == 4 && pool("p")["pg_placement_num"] == 4);
    c.ceph("osd pool delete q q --yes-i-really-really-mean-it");
    c.ceph("pg deep-scrub 1.0");
    let scrubbed = |c: &Cluster| json(c, "pg 1.0 query")["info"]["stats"]["last_deep_scrub_stamp"].clone();
    let first = scrubbed(&c);
    c.ceph("pg deep-scrub 1.0");
    until("a scrub", || scrubbed(&c) != first);

    c.ceph("mgr fail z");
    in_charge(&c, "x");
    before.ask(Duration::from_secs(10));
    c.healthy();
}
