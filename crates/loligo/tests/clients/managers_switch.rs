//! Ceph's manager and ours take over from each other, killed in turn, while clients work.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
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

/// fio on an image by librbd, until it is told to end: it reads what it wrote and proves it, 32 blocks later.
pub struct Fio(Child);

impl Fio {
    fn start(c: &Cluster) -> Self {
        c.ok("rbd", &["create", "p/image", "--size", "32M"]);
        Self::on(&c.data().join("ceph.conf"))
    }

    /// On `p/image` of the cluster that this file leads to.
    pub fn on(conf: &Path) -> Self {
        let words = "--name=switch --ioengine=rbd --clientname=admin --pool=p --rbdname=image --rw=randwrite --bs=4k \
                     --iodepth=8 --rate_iops=200 --loops=1000000 --verify=crc32c --verify_backlog=32 \
                     --verify_fatal=1 --verify_state_save=0 --output-format=json";
        let mut command = Command::new("fio");
        command.args(words.split_whitespace()).env("CEPH_CONF", conf);
        command.stdout(Stdio::piped());
        Self(command.spawn().expect("fio is installed"))
    }

    /// How many blocks it wrote and how many it proved.
    pub fn end(mut self) -> [u64; 2] {
        let pid = self.0.id().to_string();
        let running = self.0.try_wait().expect("a child").is_none();
        assert!(Command::new("kill").args(["-INT", &pid]).status().expect("kill runs").success() && running);
        let mut said = String::new();
        self.0.stdout.take().expect("piped").read_to_string(&mut said).expect("it ends");
        self.0.wait().expect("ended");
        let json = said.get(said.find('{').unwrap_or_default()..).unwrap_or_default();
        let all: serde_json::Value = serde_json::from_str(json).unwrap_or_else(|e| panic!("{e}: {said}"));
        let job = &all["jobs"][0];
        assert_eq!(job["error"], 0, "{said}");
        ["write", "read"].map(|of| job[of]["total_ios"].as_u64().expect("a number"))
    }
}

impl Drop for Fio {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn turns() -> usize {
    std::env::var("LOLIGO_MANAGER_SWITCHES").ok().and_then(|n| n.parse().ok()).unwrap_or(2)
}

/// `kill -9` to the manager of ours.
pub fn kill_ours(c: &Cluster) {
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
    let (writer, fio) = (Writer::start(&c), Fio::start(&c));
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
    let (written, by_fio) = (writer.end(), fio.end());
    println!("{written} objects, {by_fio:?} blocks written and proved by fio");
    assert!(written > 20 * waits.len() as u64, "{written} writes");
    assert!(by_fio.iter().all(|blocks| *blocks > 20 * waits.len() as u64), "{by_fio:?} blocks");
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
