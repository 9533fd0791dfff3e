//! Daemons one by one: `ceph daemon`, `ceph tell`, their options, and clients that send more than an OSD takes.

use std::os::unix::fs::{FileTypeExt, PermissionsExt};

use crate::cluster::{Cluster, text, until};

/// A process's highest resident size, in bytes.
fn most_resident(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("the process lives");
    let line = status.lines().find(|l| l.starts_with("VmHWM:")).expect("VmHWM");
    line.split_whitespace().nth(1).and_then(|kb| kb.parse::<u64>().ok()).expect("a number") * 1024
}

fn sockets_answer(c: &Cluster) {
    for daemon in ["mon.a", "mgr.x", "osd.0", "osd.1", "osd.2"] {
        let path = c.data().join(format!("ceph-{daemon}.asok"));
        let meta = std::fs::metadata(&path).expect("the socket");
        assert!(meta.file_type().is_socket() && meta.permissions().mode() & 0o777 == 0o600, "{daemon}");
        for ask in [vec!["daemon", daemon], vec!["tell", daemon]] {
            let ceph = |words: &[&str]| c.ok("ceph", &[ask.as_slice(), words].concat());
            assert!(ceph(&["version"]).contains("\"release\": \"pacific\""), "{daemon}");
            assert!(ceph(&["perf", "dump"]).starts_with("{\n"), "{daemon}");
            assert!(ceph(&["help"]).contains("config show"), "{daemon}");
            assert!(ceph(&["config", "get", "osd_max_backfills"]).contains("\"1\""), "{daemon}");
        }
        let (_, said) = c.fails("ceph", &["daemon", daemon, "nonsense"]);
        assert!(said.contains("no valid command found"), "{said}");
    }
    let bogus = c.ok("ceph", &["daemon", "osd.0", "config", "get", "bogus"]);
    let want = "ERROR: (2) No such file or directory\nerror getting 'bogus': (2) No such file or directory\n";
    assert_eq!(bogus, want);
    assert!(c.ok("ceph", &["daemon", "osd.1", "status"]).contains("\"whoami\": 1"));
    assert!(c.ok("ceph", &["daemon", "mon.a", "mon_status"]).contains("\"state\": \"leader\""));
}

#[test]
fn every_daemon_has_a_socket_of_its_own() {
    let c = Cluster::start(&[]);
    sockets_answer(&c);
    c.loligo(&["down"]);
    assert!(!c.data().join("ceph-osd.0.asok").exists(), "gone with its daemon");
    c.up(&["--processes"]);
    sockets_answer(&c);
    c.kill_all();
    c.up(&["--processes"]);
    sockets_answer(&c);
}

#[test]
fn options_go_from_the_monitors_to_the_daemons_and_back() {
    let c = Cluster::start(&[]);
    c.managed();
    // ENOENT as long as the daemon has not introduced itself to the manager.
    let shown = |words: &[&str]| {
        let out = c.client("ceph", &[&["config", "show"], words].concat());
        String::from_utf8_lossy(&out.stdout).trim().to_owned()
    };
    let value = |words: &str| c.ceph(words).trim().to_owned();
    c.ceph("config set osd osd_max_backfills 5");
    c.ceph("tell osd.0 config set osd_recovery_sleep 0.5");
    until("the option's arrival", || shown(&["osd.1", "osd_max_backfills"]) == "5");
    until("the override's", || shown(&["osd.0"]).contains("override"));
    until("osd.2's introduction", || !shown(&["osd.2"]).is_empty());
    assert_eq!(value("config show osd.0 osd_recovery_sleep"), "0.500000");
    assert!(c.ceph("config show mon.a").contains("keyring"));
    assert!(c.ceph("config show-with-defaults osd.2").lines().count() > 1_700);
    for (line, why) in [
        ("config set osd osd_max_backfills abc", "strict_si_cast: unit prefix not recognized"),
        ("config set osd osd_memory_target 1", "Value '1' is below minimum 939524096"),
        ("config set osd bogus 1", "unrecognized config option 'bogus'"),
        ("tell osd.0 config set osd_op_num_shards 9", "(1) Operation not permitted"),
    ] {
        let (_, said) = c.fails("ceph", &line.split_whitespace().collect::<Vec<_>>());
        assert!(said.contains(why), "{line}: {said}");
    }
}

/// Its address is blocked for a day, so that nothing of its last life can write; Ceph's manager starts anew, too.
#[test]
fn a_failed_manager_comes_back_under_another_address() {
    let c = Cluster::start(&[]);
    let dump = |line: &str| serde_json::from_str::<serde_json::Value>(&c.ceph(line)).expect("JSON");
    let active = || {
        let begin = std::time::Instant::now();
        loop {
            let map = dump("mgr dump");
            if map["available"] == true {
                return (map["active_addrs"]["addrvec"][0].clone(), map["active_gid"].clone());
            }
            assert!(begin.elapsed() < crate::cluster::PATIENCE, "no manager is in charge: {map}");
        }
    };
    let mut lives = vec![active()];
    for _ in 0..2 {
        c.ceph("mgr fail");
        let now = active();
        assert!(lives.iter().all(|(addr, gid)| *addr != now.0 && *gid != now.1), "{now:?} after {lives:?}");
        let blocked: Vec<String> =
            dump("osd dump -f json")["blocklist"].as_object().expect("a list").keys().cloned().collect();
        // Blocked whatever protocol it speaks: such addresses have no prefix.
        let text = |addr: &serde_json::Value| {
            format!("{}/{}", addr["addr"].as_str().unwrap_or_default(), addr["nonce"])
        };
        assert!(!blocked.contains(&text(&now.0)), "{blocked:?}");
        assert!(lives.iter().all(|(addr, _)| blocked.contains(&text(addr))), "{blocked:?} {lives:?}");
        lives.push(now);
        // It has its sessions and its socket. EAGAIN as long as it has no OSD map.
        until("the manager's first map", || c.client("ceph", &["pg", "stat"]).status.success());
        assert!(c.ceph("pg stat").contains("1 pgs") || c.ceph("pg stat").contains("0 pgs"));
        assert!(c.ceph("daemon mgr.x version").contains("pacific"));
    }
}

/// Writes 4 MiB objects all at once; nothing limits the client.
const FLOOD: &str = r#"
import os, rados, sys
limits = dict(objecter_inflight_op_bytes=str(1 << 34), objecter_inflight_ops='100000')
r = rados.Rados(conffile=os.environ['CEPH_CONF'], conf=limits); r.connect()
io = r.open_ioctx('p')
data = os.urandom(4 << 20)
waiting = [io.aio_write_full('o%d' % (i % 20), data) for i in range(int(sys.argv[1]))]
for w in waiting:
    w.wait_for_complete()
    if w.get_return_value() != 0: sys.exit('error %d' % w.get_return_value())
for i in range(20):
    if io.read('o%d' % i, 4 << 20) != data: sys.exit('o%d differs' % i)
"#;

#[test]
fn a_flood_of_writes_waits_in_the_sockets() {
    const CAP: u64 = 32 << 20;
    /// A write's data is in the store's log and cache for a while after it is answered, and in frames before it is an
    /// operation.
    const STORE: u64 = 320 << 20;
    let c = Cluster::start(&["--processes"]);
    c.pool("p", 8);
    c.ceph(&format!("config set osd osd_client_message_size_cap {CAP}"));
    let out = c.python(FLOOD, &["250"]);
    assert!(out.status.success(), "{}", text(&out));
    for (name, pid) in c.pids().into_iter().filter(|(name, _)| name.starts_with("osd.")) {
        let bytes = most_resident(pid);
        assert!(bytes < CAP + STORE, "{name} had {bytes} bytes resident");
    }
}
