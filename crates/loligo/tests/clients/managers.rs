//! Ceph's own manager in the place of ours, and back.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::cluster::{Cluster, text, until};

/// Ceph's manager, which ends with the test.
pub struct CephMgr(Child);

impl CephMgr {
    /// As `mgr.<id>`, with a key of its own.
    pub fn start(c: &Cluster, id: &str) -> Self {
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

/// A client that stays connected: it asks the manager or the monitors when it is told to, and says how that
/// went.
pub struct Asking {
    child: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
}

const ASK: &str = r#"
import json, os, rados, sys
r = rados.Rados(conffile=os.environ['CEPH_CONF']); r.connect()
for line in sys.stdin:
    to, command = line.rstrip('\n').split(' ', 1)
    ask = r.mgr_command if to == 'mgr' else r.mon_command
    code, out, status = ask(command, b'', timeout=60)
    print(json.dumps([code, out.decode(), status]), flush=True)
"#;

/// A daemon of a service, which reports to whichever manager is in charge, until it is dropped.
struct Service(Child);

const PORTAL: &str = r#"
import os, rados, sys
r = rados.Rados(conffile=os.environ['CEPH_CONF']); r.connect()
r.service_daemon_register('gate', 'a', {'daemon_type': 'portal', 'zone_id': 'z'})
sys.stdin.read()
"#;

impl Service {
    fn start(c: &Cluster) -> Self {
        let mut command = Command::new("/usr/bin/python3");
        command.args(["-c", PORTAL]).env("CEPH_CONF", c.data().join("ceph.conf")).stdin(Stdio::piped());
        Self(command.spawn().expect("python starts"))
    }

    fn is_shown(&self, c: &Cluster) {
        let line = "    gate: 1 portal active (1 hosts, 1 zones)\n";
        until("a service in the status", || c.ceph("status").contains(line));
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Code, output and status of a command.
pub type Said = (i32, String, String);

impl Asking {
    pub fn start(c: &Cluster) -> Self {
        let mut command = Command::new("/usr/bin/python3");
        command.args(["-c", ASK]).env("CEPH_CONF", c.data().join("ceph.conf"));
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("python starts");
        let (to, from) = (child.stdin.take().expect("piped"), child.stdout.take().expect("piped"));
        Self { child, to, from: BufReader::new(from) }
    }

    /// What `to` (`mgr` or `mon`) answers to a command.
    pub fn command(&mut self, to: &str, command: &Value) -> Said {
        writeln!(self.to, "{to} {command}").expect("it listens");
        let mut line = String::new();
        self.from.read_line(&mut line).expect("it answers");
        serde_json::from_str(&line).expect("JSON")
    }

    /// The manager's answer, within so long.
    pub fn ask(&mut self, within: Duration) {
        let begin = Instant::now();
        let (code, _, status) = self.command("mgr", &json!({ "prefix": "pg stat" }));
        assert_eq!(code, 0, "the manager's answer: {status}");
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
pub fn installed(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).any(|dir| dir.join(program).is_file());
    assert!(found || std::env::var_os("LOLIGO_REQUIRE_PEERS").is_none(), "{program} is not installed");
    if !found {
        eprintln!("not tried with {program}: it is not installed");
    }
    found
}

pub fn answer(c: &Cluster, line: &str) -> Value {
    serde_json::from_str(&c.ceph(&format!("{line} -f json"))).expect("JSON")
}

pub fn in_charge(c: &Cluster, name: &str) {
    until(&format!("mgr.{name} in charge"), || {
        let map = answer(c, "mgr dump");
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
    let portal = Service::start(&c);
    portal.is_shown(&c);
    let _z = CephMgr::start(&c, "z");
    until("a manager that stands by", || answer(&c, "mgr stat")["num_standby"] == 1);
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
        let df = answer(&c, "df");
        let pool = df["pools"].as_array().into_iter().flatten().find(|p| p["name"] == "p");
        pool.is_some_and(|p| p["stats"]["objects"] == 1 && p["stats"]["stored"].as_u64() >= Some(size))
    });
    assert_eq!(answer(&c, "osd df")["nodes"].as_array().map(Vec::len), Some(3));
    assert_eq!(
        answer(&c, "status")["pgmap"]["bytes_total"],
        answer(&c, "osd df")["summary"]["total_kb"].as_u64().unwrap_or_default() << 10
    );
    portal.is_shown(&c);
    acts(&c);
    // Through the monitors, as programs that know of no managers ask.
    let (code, out, status) = before.command("mon", &json!({ "prefix": "pg stat", "format": "json" }));
    assert!(code == 0 && out.contains("num_pgs"), "{code} {out} {status}");
    what_one_was_told_the_other_knows(&c, &mut before);
    portal.is_shown(&c);
}

/// What a manager does by commands of its own and by messages to OSDs.
fn acts(c: &Cluster) {
    c.ceph("osd pool create q 4");
    c.ceph("osd pool application enable q rados");
    c.ceph("osd pool set p pg_num 4");
    let pool = |name: &str| {
        let pools = answer(c, "osd pool ls detail");
        pools.as_array().into_iter().flatten().find(|p| p["pool_name"] == name).cloned().unwrap_or_default()
    };
    until("fewer PGs, step by step", || pool("p")["pg_num"] == 4 && pool("p")["pg_placement_num"] == 4);
    c.ceph("osd pool delete q q --yes-i-really-really-mean-it");
    let out = c.python(SNAPS, &[]);
    assert!(out.status.success(), "{}", text(&out));
    // It tells the monitors what all PGs have purged.
    until("the end of removed snapshots", || {
        answer(c, "osd dump")["removed_snaps_queue"].as_array().is_some_and(Vec::is_empty)
    });
    let scrubbed = || answer(c, "pg 1.0 query")["info"]["stats"]["last_deep_scrub_stamp"].clone();
    for verb in ["deep-scrub", "repair"] {
        let before = scrubbed();
        c.ceph(&format!("pg {verb} 1.0"));
        until(verb, || scrubbed() != before);
    }
    let said = text(&c.client("ceph", &["pg", "force-recovery", "1.0"]));
    assert!(said.contains("doesn't require recovery"), "{said}");
}

/// Snapshots of a pool, made and removed.
const SNAPS: &str = r#"
import os, rados
r = rados.Rados(conffile=os.environ['CEPH_CONF']); r.connect()
io = r.open_ioctx('p')
for i in range(30):
    io.create_snap('s%d' % i)
    io.write_full('x%d' % (i % 5), b'%d' % i)
for i in range(30): io.remove_snap('s%d' % i)
"#;

fn what_one_was_told_the_other_knows(c: &Cluster, before: &mut Asking) {
    let is_balancer = |active: bool, mode: &str| {
        let status = answer(c, "balancer status");
        status["active"] == active && status["mode"] == mode
    };
    post_crash(c, "under-z");
    c.ceph("balancer mode crush-compat");
    c.ceph("balancer off");
    c.ceph("mgr fail z");
    in_charge(c, "x");
    before.ask(Duration::from_secs(10));
    c.healthy();
    until("the last one's reports", || crashes(c) == ["under-z"]);
    until("the last one's settings", || is_balancer(false, "crush-compat"));
    post_crash(c, "under-x");
    c.ceph("crash archive under-z");
    c.ceph("balancer mode upmap");
    c.ceph("balancer on");
    until("a manager that stands by", || answer(c, "mgr stat")["num_standby"] == 1);
    c.ceph("mgr fail x");
    in_charge(c, "z");
    until("the last one's reports", || crashes(c) == ["under-x", "under-z"]);
    assert!(answer(c, "crash info under-z")["archived"].is_string());
    assert!(is_balancer(true, "upmap"));
}

fn crashes(c: &Cluster) -> Vec<String> {
    let all = answer(c, "crash ls");
    let ids = all.as_array().into_iter().flatten().filter_map(|r| r["crash_id"].as_str());
    let mut ids: Vec<String> = ids.map(str::to_owned).collect();
    ids.sort_unstable();
    ids
}

/// One of long ago, of which health does not complain.
pub fn post_crash(c: &Cluster, id: &str) {
    let report = json!({
        "crash_id": id, "timestamp": "2026-01-01T00:00:00.000000Z", "entity_name": "osd.0",
        "process_name": "ceph-osd", "utsname_hostname": "h", "ceph_version": "16.2.15", "backtrace": ["a", "b"],
    });
    let file = c.dir.path().join(id);
    std::fs::write(&file, report.to_string()).expect("written");
    c.ok("ceph", &["crash", "post", "-i", &file.display().to_string()]);
}
