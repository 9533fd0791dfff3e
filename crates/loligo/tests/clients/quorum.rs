//! Three monitors as processes: any one killed, two killed, all killed, one with a new disk, one more, one less.

use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::cluster::{Cluster, PATIENCE, asked, runs, text};

const MONS: [&str; 3] = ["a", "b", "c"];

/// Kills a daemon and gives its pid.
pub fn kill(c: &Cluster, daemon: &str) -> u32 {
    let pid = c.pids().into_iter().find(|(name, _)| name == daemon).expect("it runs").1;
    let status = Command::new("kill").args(["-9", &pid.to_string()]).status().expect("kill runs");
    assert!(status.success(), "cannot kill {daemon}");
    pid
}

/// Kills all monitors of three but one, and waits until they are gone. The leader goes last: if it went first, the other two
/// could agree on the one that is left before the second one is gone.
fn leave_only(c: &Cluster, left: &str) {
    let leads = leader(c);
    let mut others: Vec<&str> = MONS.into_iter().filter(|m| *m != left).collect();
    others.sort_by_key(|m| *m == leads);
    let pids: Vec<u32> = others.into_iter().map(|m| kill(c, &format!("mon.{m}"))).collect();
    wait("the end of the others", PATIENCE, || pids.iter().all(|pid| !runs(*pid)));
}

/// A monitor of three that does not lead. What a leader was told before it knew that it is alone may be kept once it is not,
/// as with Ceph; what others are told goes nowhere.
fn not_the_leader(c: &Cluster) -> &'static str {
    let leads = leader(c);
    MONS.into_iter().find(|m| *m != leads).expect("another")
}

/// Asks for a pool, for 8 s, where nobody may agree to it.
fn ask_in_vain(c: &Cluster, pool: &str) {
    let change = Command::new("timeout")
        .args(["8", "ceph", "osd", "pool", "create", pool, "8"])
        .env("CEPH_CONF", c.data().join("ceph.conf"))
        .output()
        .expect("ceph runs");
    assert!(!change.status.success(), "one of three decides nothing: {}", text(&change));
}

fn json(text: &str) -> serde_json::Value {
    serde_json::from_str(text).expect("JSON")
}

/// What a monitor says of itself, quorum or not.
fn mon_status(c: &Cluster, mon: &str) -> serde_json::Value {
    asked(&c.data().join(format!("ceph-mon.{mon}.asok")), "mon_status")
}

pub fn leader(c: &Cluster) -> String {
    let status = json(&c.ceph("quorum_status"));
    status["quorum_leader_name"].as_str().expect("a leader").to_owned()
}

fn wait(what: &str, limit: Duration, mut good: impl FnMut() -> bool) -> Duration {
    let begin = Instant::now();
    while !good() {
        assert!(begin.elapsed() < limit, "{what} takes more than {limit:?}");
        // Who asks all the time takes the CPU from those who have to change.
        std::thread::sleep(Duration::from_millis(20));
    }
    begin.elapsed()
}

/// Every living monitor answers, to a client that knows only this one.
fn each_answers(c: &Cluster, living: &[&str], line: &str) -> Vec<String> {
    each_answers_words(c, living, &line.split_whitespace().collect::<Vec<_>>())
}

fn each_answers_words(c: &Cluster, living: &[&str], words: &[&str]) -> Vec<String> {
    let dump = json(&c.ceph("mon dump -f json"));
    let mons = dump["mons"].as_array().expect("monitors");
    let addr = |mon: &str| {
        let found = mons.iter().find(|m| m["name"] == mon).expect("in the map");
        found["public_addrs"]["addrvec"][0]["addr"].as_str().expect("an address").to_owned()
    };
    living.iter().map(|mon| c.ok("ceph", &[&["-m", &format!("v2:{}", addr(mon))], words].concat())).collect()
}

pub fn all_in_quorum(c: &Cluster, mons: usize) -> bool {
    json(&c.ceph("quorum_status"))["quorum"].as_array().map(Vec::len) == Some(mons)
}

#[test]
fn any_one_of_three_monitors_may_die() {
    let c = Cluster::start(&["--mons", "3", "--processes", "--osd-size", "1G"]);
    let conf = std::fs::read_to_string(c.data().join("ceph.conf")).expect("ceph.conf");
    assert_eq!(conf.matches("v2:").count(), 3, "{conf}");
    wait("a full quorum", PATIENCE, || all_in_quorum(&c, 3));
    c.pool("p", 8);
    let mut at_each = each_answers(&c, &MONS, "osd pool ls");
    at_each.dedup();
    assert_eq!(at_each, ["p\n"], "a change is seen at every monitor at once");
    for round in 0..3 {
        let dead = leader(&c);
        let living: Vec<&str> = MONS.into_iter().filter(|m| *m != dead).collect();
        kill(&c, &format!("mon.{dead}"));
        let took = wait("another leader", Duration::from_secs(10), || {
            living.iter().any(|m| mon_status(&c, m)["state"] == "leader")
        });
        eprintln!("mon.{dead} killed: another leads after {took:?}");
        assert!(took < Duration::from_secs(3), "{took:?}");
        c.ceph(&format!("osd pool create q{round} 8"));
        // A user made at one monitor logs in at the other at once.
        let name = format!("client.u{round}");
        let made = each_answers_words(&c, &living[..1], &["auth", "get-or-create", &name, "mon", "allow r"]);
        std::fs::write(c.dir.path().join("keyring"), &made[0]).expect("written");
        let seen = each_answers(&c, &living[1..], &format!("-n {name} --keyring keyring osd pool ls"));
        assert!(seen[0].contains(&format!("q{round}")), "{seen:?}");
        let health = c.ceph("health detail");
        assert!(health.contains("1/3 mons down, quorum "), "{health}");
        assert!(health.contains(&format!("mon.{dead} (rank ")), "{health}");
        assert!(c.ceph("-s").contains(&format!("out of quorum: {dead}")));
        std::fs::write(c.dir.path().join("file"), format!("round {round}")).expect("written");
        c.ok("rados", &["-p", "p", "put", &format!("o{round}"), "file"]);
        c.up(&["--processes"]);
        wait("a full quorum", PATIENCE, || all_in_quorum(&c, 3));
    }
    // They are asked one after the other, and the map may change by itself in between.
    wait("equal answers of all", PATIENCE, || {
        let dumps = each_answers(&c, &MONS, "osd dump");
        dumps.iter().all(|d| *d == dumps[0])
    });
    assert_eq!(c.ok("rados", &["-p", "p", "ls"]).lines().count(), 3);
}

#[test]
fn without_a_majority_nothing_changes_and_nothing_is_lost() {
    let c = Cluster::start(&["--mons", "3", "--processes", "--osd-size", "1G"]);
    c.pool("p", 8);
    wait("a full quorum", PATIENCE, || all_in_quorum(&c, 3));
    let left = not_the_leader(&c);
    leave_only(&c, left);
    ask_in_vain(&c, "never");
    wait("the last one to see that it is alone", PATIENCE, || mon_status(&c, left)["state"] == "electing");
    c.up(&["--processes"]);
    wait("a full quorum", PATIENCE, || all_in_quorum(&c, 3));
    assert_eq!(c.ceph("osd pool ls"), "p\n", "the change that nobody agreed to did not happen");

    // A leader that is left alone does not say that it is done. Whether it is, all say the same from then on.
    let left = leader(&c);
    leave_only(&c, &left);
    ask_in_vain(&c, "perhaps");
    wait("the leader to see that it is alone", PATIENCE, || mon_status(&c, &left)["state"] == "electing");
    c.up(&["--processes"]);
    wait("a full quorum", PATIENCE, || all_in_quorum(&c, 3));
    let pools = c.ceph("osd pool ls");
    assert!(["p\n", "p\nperhaps\n"].contains(&pools.as_str()), "{pools}");
    c.end_all();
    c.up(&["--processes"]);
    wait("a full quorum", PATIENCE, || all_in_quorum(&c, 3));
    assert_eq!(each_answers(&c, &MONS, "osd pool ls"), [pools.as_str(); 3]);
    // All in one process, too.
    c.loligo(&["down"]);
    c.up(&[]);
    wait("a full quorum", PATIENCE, || all_in_quorum(&c, 3));
    assert_eq!(each_answers(&c, &MONS, "osd pool ls"), [pools.as_str(); 3]);
}

/// The commands of the monitors' and the manager's tables; see there.
const EVERY_COMMAND: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/clients/every_command.py");

#[test]
fn every_command_and_new_logins_work_without_any_one_monitor() {
    let c = Cluster::start(&["--mons", "3", "--processes", "--osd-size", "1G"]);
    c.pool("p", 8);
    for (round, dead) in ["1", "2", "3"].into_iter().zip(MONS) {
        wait("a full quorum", PATIENCE, || all_in_quorum(&c, 3));
        kill(&c, &format!("mon.{dead}"));
        c.ok("/usr/bin/python3", &[EVERY_COMMAND, "answered", round]);
        let name = format!("client.new{round}");
        let caps = ["mon", "allow r", "osd", "allow rw pool=p"];
        let made = c.ok("ceph", &[&["auth", "get-or-create", &name], caps.as_slice()].concat());
        std::fs::write(c.dir.path().join("keyring"), &made).expect("written");
        let login = ["-n", &name, "--keyring", "keyring", "-p", "p"];
        c.ok("rados", &[login.as_slice(), &["put", &name, "keyring"]].concat());
        assert_eq!(c.ok("rados", &[login.as_slice(), &["get", &name, "-"]].concat()), made);
        c.up(&["--processes"]);
    }
    wait("a full quorum", PATIENCE, || all_in_quorum(&c, 3));

    // Nothing is to change by itself from here on.
    c.ceph("balancer off");
    let state =
        || ["auth ls", "osd dump", "config dump", "config-key dump", "mon dump"].map(|line| c.ceph(line));
    let mut before = state();
    wait("a quiet cluster", PATIENCE, || {
        std::thread::sleep(Duration::from_secs(1));
        let last = std::mem::replace(&mut before, state());
        last == before
    });
    let mut asks = Command::new("timeout")
        .args(["240", "/usr/bin/python3", EVERY_COMMAND, "silent"])
        .env("CEPH_CONF", c.data().join("ceph.conf"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("python runs");
    let mut said = String::new();
    let mut out = BufReader::new(asks.stdout.take().expect("piped"));
    out.read_line(&mut said).expect("a line");
    assert_eq!(said, "ready\n");
    let left = not_the_leader(&c);
    leave_only(&c, left);
    // On a busy machine it may have come to lead in between, and a leader may keep what it is told before it knows.
    wait("the last one to see that it is alone", PATIENCE, || mon_status(&c, left)["state"] == "electing");
    drop(asks.stdin.take());
    let (code, new) = c.fails("ceph", &["--connect-timeout", "4", "auth", "get-or-create", "client.never"]);
    assert_ne!(code, 0, "{new}");
    out.read_to_string(&mut said).expect("the rest");
    assert!(asks.wait().expect("an end").success(), "answered without a majority: {said}");
    // What a client left unread when it ended may be carried out as long as its end is not seen.
    let socket = c.data().join(format!("ceph-mon.{left}.asok"));
    wait("the clients' end to be seen", PATIENCE, || {
        let open = asked(&socket, "sessions");
        open.as_array().is_some_and(|open| !open.iter().any(|s| s["entity_name"] == "client.admin"))
    });
    c.up(&["--processes"]);
    wait("a full quorum", PATIENCE, || all_in_quorum(&c, 3));
    let after = state();
    for (was, is) in before.iter().zip(&after) {
        let changed = |a: &str, b: &str| -> Vec<String> {
            a.lines().filter(|l| !b.lines().any(|o| o == *l)).map(str::to_owned).collect()
        };
        assert!(was == is, "changed: {:#?} to {:#?}", changed(was, is), changed(is, was));
    }
}

#[test]
fn the_last_monitor_store_of_three_is_made_a_quorum_of_its_own() {
    let c = Cluster::start(&["--mons", "3", "--processes", "--osd-size", "1G"]);
    wait("a full quorum", PATIENCE, || all_in_quorum(&c, 3));
    c.pool("p", 8);
    std::fs::write(c.dir.path().join("file"), "kept").expect("written");
    c.ok("rados", &["-p", "p", "put", "o", "file"]);
    c.ceph("config-key set k v");
    let running = c.loligo(&["mon", "--id", "a", "--extract-monmap", "map"]);
    assert!(!running.status.success(), "not while it runs: {}", text(&running));
    // A monitor that is dying still holds its store.
    c.end_all();
    for lost in ["b", "c"] {
        std::fs::remove_file(c.data().join(format!("mon.{lost}/store.redb"))).expect("lost");
    }
    let map = c.dir.path().join("map").display().to_string();
    let mon = |more: &[&str]| c.loligo(&[&["mon", "--id", "a"], more].concat());
    let refused = |more: &[&str], why: &str| {
        let out = mon(more);
        assert!(!out.status.success() && text(&out).contains(why), "{more:?}: {}", text(&out));
    };
    let out = mon(&["--extract-monmap", &map]);
    assert!(out.status.success(), "{}", text(&out));
    assert!(c.ok("monmaptool", &["--print", &map]).contains("mon.c"));
    let sure = "--yes-i-really-mean-it";
    refused(&["--inject-monmap", &map, sure], "it must name a alone");
    c.ok("monmaptool", &[&map, "--rm", "b", "--rm", "c"]);
    refused(&["--inject-monmap", &map], "the stores of mon.b and mon.c must never run again");
    let foreign = c.dir.path().join("foreign").display().to_string();
    let fsid = "22222222-0000-0000-0000-000000000000";
    c.ok("monmaptool", &["--create", "--fsid", fsid, "--addv", "a", "[v2:127.0.0.1:3300]", &foreign]);
    refused(&["--inject-monmap", &foreign, sure], "that is a map of cluster");
    let out = mon(&["--inject-monmap", &map, sure]);
    assert!(out.status.success(), "{}", text(&out));
    c.up(&["--processes"]);
    assert!(all_in_quorum(&c, 1));
    assert_eq!(c.ceph("config-key get k"), "v");
    assert_eq!(c.ok("rados", &["-p", "p", "get", "o", "-"]), "kept");
    c.ceph("osd pool create q 8");
    // Others join it as new ones, and it may die.
    let out = c.loligo(&["up", "--detach", "--processes", "--mons", "3"]);
    assert!(out.status.success(), "{}", text(&out));
    wait("three monitors", PATIENCE, || all_in_quorum(&c, 3));
    kill(&c, "mon.a");
    assert_eq!(c.ceph("osd pool ls"), "p\nq\n");
}

#[test]
fn monitors_come_with_new_disks_and_are_added_and_removed() {
    let c = Cluster::start(&["--mons", "3", "--processes", "--osd-size", "1G"]);
    wait("a full quorum", PATIENCE, || all_in_quorum(&c, 3));
    c.pool("p", 8);
    let wiped = if leader(&c) == "b" { "c" } else { "b" };
    kill(&c, &format!("mon.{wiped}"));
    std::fs::remove_file(c.data().join(format!("mon.{wiped}/store.redb"))).expect("wiped");
    c.ceph("osd pool create q 8");
    c.up(&["--processes"]);
    wait("the new disk to be let in", PATIENCE, || all_in_quorum(&c, 3));
    assert_eq!(each_answers(&c, &[wiped], "osd pool ls"), ["p\nq\n"]);
    // It votes: with it, another one may die.
    let other = MONS.into_iter().find(|m| *m != wiped).expect("another");
    kill(&c, &format!("mon.{other}"));
    c.ceph("osd pool create r 8");
    c.up(&["--processes"]);
    wait("a full quorum", PATIENCE, || all_in_quorum(&c, 3));

    let out = c.loligo(&["up", "--detach", "--processes", "--mons", "5"]);
    assert!(out.status.success(), "{}", text(&out));
    wait("five monitors", PATIENCE, || all_in_quorum(&c, 5));
    assert_eq!(each_answers(&c, &["d", "e"], "osd pool ls"), ["p\nq\nr\n", "p\nq\nr\n"]);
    let (_, said) = c.fails("ceph", &["mon", "add", "d", "127.0.0.1:1"]);
    assert!(said.contains("mon.d already exists at address"), "{said}");
    let gone = if leader(&c) == "e" { "d" } else { "e" };
    let removed = c.client("ceph", &["mon", "rm", gone]);
    let said = text(&removed);
    assert!(removed.status.success(), "{said}");
    // A client of the monitor that goes loses its connection, asks another one again, and hears that it is done.
    if !said.contains("does not exist or has already been removed") {
        assert!(said.contains(&format!("removing mon.{gone} at v2:")), "{said}");
        assert!(said.contains("there will be 4 monitors"), "{said}");
    }
    wait("four monitors", PATIENCE, || all_in_quorum(&c, 4));
    assert!(c.ceph("mon stat").contains("4 mons at"));

    // The one that stays is none of those that the OSDs knew when they started.
    for (gone, left) in MONS.into_iter().zip([3, 2, 1]) {
        let removed = c.client("ceph", &["mon", "rm", gone]);
        assert!(removed.status.success(), "{}", text(&removed));
        wait("one monitor less", PATIENCE, || all_in_quorum(&c, left));
    }
    c.ceph("osd down 0 1 2");
    c.ceph("osd pool create s 8");
    c.healthy();
    let mgr = json(&c.ceph("mgr dump --format json"));
    assert_eq!(mgr["available"], true, "{mgr}");
}
