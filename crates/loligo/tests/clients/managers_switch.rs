//! Ceph's manager and ours take over from each other, killed in turn, while clients work.

use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::{Duration, Instant};

use crate::cluster::{Cluster, runs, until};
use crate::managers::{Asking, CephMgr, answer, in_charge, installed};
use crate::managers_act::wanted;
use crate::quorum::{all_in_quorum, kill, leader};

/// Without a beacon for so long a manager is gone.
const GRACE: Duration = Duration::from_secs(5);
/// From a kill until commands are answered again.
const WITHOUT: Duration = Duration::from_secs(15);

/// Writes objects and reads them back until its input ends; what fails ends it.
const WRITER: &str = r#"
import os, rados, sys, threading
r = rados.Rados(conffile=os.environ['CEPH_CONF']); r.connect()
io = r.open_ioctx('p')
end = threading.Event()
threading.Thread(target=lambda: (sys.stdin.read(), end.set()), daemon=True).start()
n = 0
while not end.is_set():
    name, data = 'o%d' % (n % 64), os.urandom(4096 + n % 1000)
    io.write_full(name, data)
    if io.read(name, 1 << 16) != data: sys.exit(name + ' differs')
    n += 1
print(n)
"#;

struct Writer {
    child: Child,
    input: Option<ChildStdin>,
}

impl Writer {
    fn start(c: &Cluster) -> Self {
        let mut command = Command::new("/usr/bin/python3");
        command.args(["-c", WRITER]).env("CEPH_CONF", c.data().join("ceph.conf"));
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("python starts");
        let input = child.stdin.take();
        Self { child, input }
    }

    /// How many objects it wrote, all of which it read back.
    fn end(mut self) -> u64 {
        drop(self.input.take());
        let mut line = String::new();
        let out = self.child.stdout.take().expect("piped");
        BufReader::new(out).read_line(&mut line).expect("it ends");
        assert!(self.child.wait().expect("ended").success(), "a write or a read failed");
        line.trim().parse().expect("a number")
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn turns() -> usize {
    std::env::var("LOLIGO_MANAGER_SWITCHES").ok().and_then(|n| n.parse().ok()).unwrap_or(2)
}

/// `kill -9` to the manager of ours.
fn kill_ours(c: &Cluster) {
    let (_, pid) = c.pids().into_iter().find(|(name, _)| name == "mgr.x").expect("it runs");
    assert!(Command::new("kill").args(["-9", &pid.to_string()]).status().expect("kill runs").success());
    until("its end", || !runs(pid));
}

#[test]
fn managers_of_both_kinds_are_killed_in_turn() {
    if !installed("ceph-mgr") {
        return;
    }
    let c = Cluster::start(&["--processes"]);
    c.managed();
    c.pool("p", 8);
    c.ceph(&format!("config set mon mon_mgr_beacon_grace {}", GRACE.as_secs()));
    let writer = Writer::start(&c);
    let mut before: Vec<Asking> = (0..2).map(|_| Asking::start(&c)).collect();
    before.iter_mut().for_each(|a| a.ask(Duration::from_secs(60)));
    let mut theirs = Some(CephMgr::start(&c, "z"));
    let mut waits = Vec::new();
    for turn in 0..turns() {
        until("a manager that stands by", || answer(&c, "mgr stat")["num_standby"] == 1);
        let next = if turn % 2 == 0 { "z" } else { "x" };
        let killed = Instant::now();
        if next == "z" {
            kill_ours(&c);
        } else {
            drop(theirs.take());
        }
        // It waits for the next manager: a command that comes in between fails for nobody.
        c.ceph("osd df");
        waits.push(killed.elapsed());
        assert!(killed.elapsed() < WITHOUT, "{waits:?} without a manager");
        in_charge(&c, next);
        before.iter_mut().for_each(|a| a.ask(Duration::from_secs(5)));
        if next == "z" {
            c.up(&["--processes"]);
        } else {
            theirs = Some(CephMgr::start(&c, "z"));
        }
    }
    println!("without a manager for {waits:?}");
    let written = writer.end();
    assert!(written > 20 * waits.len() as u64, "{written} writes");
    if turns() % 2 == 1 {
        c.ceph("mgr fail z");
    }
    in_charge(&c, "x");
    c.healthy();
}

/// The monitors change the form of managers' tickets when Ceph's takes over, and agree on its reports;
/// whichever of them leads, it stays in charge and they know what it says.
#[test]
fn cephs_manager_serves_three_monitors_of_which_the_leader_dies() {
    if !wanted() || !installed("ceph-mgr") {
        return;
    }
    let c = Cluster::start(&["--mons", "3", "--processes", "--osd-size", "1G"]);
    c.managed();
    c.pool("p", 8);
    let mut before = Asking::start(&c);
    before.ask(Duration::from_secs(60));
    let _z = CephMgr::start(&c, "z");
    until("a manager that stands by", || answer(&c, "mgr stat")["num_standby"] == 1);
    c.ceph("mgr fail x");
    in_charge(&c, "z");
    let objects = |c: &Cluster| {
        let pools = answer(c, "df")["pools"].clone();
        let pool = pools.as_array().into_iter().flatten().find(|p| p["name"] == "p").cloned();
        pool.unwrap_or_default()["stats"]["objects"].as_u64()
    };
    for round in 0..3 {
        if round > 0 {
            let dead = leader(&c);
            let pid = kill(&c, &format!("mon.{dead}"));
            until("its end", || !runs(pid));
            until("another leader", || leader(&c) != dead);
        }
        c.ok("rados", &["-p", "p", "put", &format!("o{round}"), "/etc/hostname"]);
        until("its report", || objects(&c) == Some(round + 1));
        before.ask(Duration::from_secs(10));
        assert_eq!(answer(&c, "mgr dump")["active_name"], "z", "it stays in charge");
        c.up(&["--processes"]);
        until("a full quorum", || all_in_quorum(&c, 3));
    }
    c.ceph("mgr fail z");
    in_charge(&c, "x");
    before.ask(Duration::from_secs(10));
    c.healthy();
}
