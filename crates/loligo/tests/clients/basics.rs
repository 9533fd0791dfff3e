//! The main job: one command runs a cluster, and `ceph` and `rados` work on it.

use crate::cluster::{Cluster, runs, text, until};

#[test]
fn a_newcomers_first_session() {
    let c = Cluster::start(&[]);
    // The manager's commands work from the start.
    assert!(c.ceph("balancer status").contains("\"active\": true"));
    assert!(c.ceph("-s").contains("HEALTH_OK"));
    c.still_healthy();
    let tree = c.ceph("osd tree");
    for osd in ["osd.0", "osd.1", "osd.2"] {
        assert!(tree.contains(osd), "{tree}");
    }
    c.ceph("df");
    c.pool("p", 32);
    std::fs::write(c.dir.path().join("in"), b"hello, squid\n").expect("written");
    c.ok("rados", &["-p", "p", "put", "greeting", "in"]);
    assert_eq!(c.ok("rados", &["-p", "p", "ls"]), "greeting\n");
    c.ok("rados", &["-p", "p", "get", "greeting", "out"]);
    assert_eq!(std::fs::read(c.dir.path().join("out")).expect("read"), b"hello, squid\n");
    assert!(c.ok("rados", &["-p", "p", "stat", "greeting"]).contains("size 13"));
    assert!(c.ok("rados", &["df"]).contains('p'));
    c.ok("rados", &["-p", "p", "rm", "greeting"]);
    assert_eq!(c.ok("rados", &["-p", "p", "ls"]), "");
    assert!(c.ceph("-s").contains("HEALTH_OK"));
}

#[test]
fn rados_bench_small_and_large_with_verified_data() {
    let c = Cluster::start(&[]);
    c.pool("p", 32);
    c.ok("rados", &["-p", "p", "bench", "5", "write", "-b", "4096", "-t", "16", "--no-cleanup"]);
    c.ok("rados", &["-p", "p", "bench", "3", "rand", "-t", "16"]);
    c.ok("rados", &["-p", "p", "cleanup"]);
    c.ok("rados", &["-p", "p", "bench", "5", "write", "-t", "64", "--no-cleanup"]);
    // seq verifies each object against what was written, unless --no-verify says otherwise.
    c.ok("rados", &["-p", "p", "bench", "5", "seq", "-t", "64"]);
    c.ok("rados", &["-p", "p", "cleanup"]);
}

#[test]
fn a_second_up_says_so_and_down_stops_everything() {
    let c = Cluster::start(&["--processes"]);
    let again = c.loligo(&["up", "--detach", "--processes"]);
    assert!(again.status.success() && text(&again).contains("already running"), "{}", text(&again));
    assert_eq!(c.pids().len(), 5, "{:?}", c.pids());
    let down = c.loligo(&["down"]);
    assert!(down.status.success(), "{}", text(&down));
    assert_eq!(c.pids(), vec![]);
}

#[test]
fn up_starts_again_what_died() {
    let c = Cluster::start(&["--processes"]);
    let killed = c.pids().into_iter().find(|(name, _)| name == "osd.1").expect("osd.1 runs");
    std::process::Command::new("kill").args(["-9", &killed.1.to_string()]).status().expect("kill runs");
    // While it dies the others answer, and `up` cannot tell it from one that lives.
    until("the end of osd.1", || !runs(killed.1));
    c.up(&["--processes"]);
    let now = c.pids().into_iter().find(|(name, _)| name == "osd.1").expect("osd.1 runs again");
    assert_ne!(now.1, killed.1);
    c.still_healthy();
}

/// A process that was killed this instant may still hold its place: `up` must not call that cluster a running one.
#[test]
fn up_right_after_kill_nine_starts_it_again() {
    for mode in [&[][..], &["--processes"]] {
        let c = Cluster::start(mode);
        for _ in 0..5 {
            let before = c.pids();
            c.kill_all();
            c.up(mode);
            // The manager's process may not have written its number yet: `up` waits for the OSDs alone.
            until("new processes", || c.pids().iter().all(|p| !before.contains(p)));
            c.still_healthy();
        }
    }
}

#[test]
fn data_and_settings_survive_a_restart() {
    let c = Cluster::start(&[]);
    c.pool("p", 8);
    c.ok("rados", &["-p", "p", "put", "passwd", "/etc/passwd"]);
    c.ok("rados", &["-p", "p", "setxattr", "passwd", "who", "me"]);
    c.ok("rados", &["-p", "p", "setomapval", "passwd", "k", "v"]);
    c.ceph("config set osd osd_max_backfills 3");
    assert!(c.loligo(&["down"]).status.success());
    c.up(&[]);
    c.ok("rados", &["-p", "p", "get", "passwd", "copy"]);
    let copy = std::fs::read(c.dir.path().join("copy")).expect("read");
    assert_eq!(copy, std::fs::read("/etc/passwd").expect("read"));
    assert_eq!(c.ok("rados", &["-p", "p", "getxattr", "passwd", "who"]).trim(), "me");
    assert!(c.ok("rados", &["-p", "p", "listomapvals", "passwd"]).contains('k'));
    assert_eq!(c.ceph("config get osd osd_max_backfills").trim(), "3");
}

#[test]
fn unknown_options_in_ceph_conf_are_one_warning() {
    let c = Cluster::start(&[]);
    c.loligo(&["down"]);
    let path = c.data().join("ceph.conf");
    let conf = std::fs::read_to_string(&path).expect("ceph.conf");
    std::fs::write(
        &path,
        format!("{conf}\n[global]\nfoo bar = 1\nosd_nonsense = 2\nosd_max_backfills = 2\n"),
    )
    .expect("written");
    c.up(&[]);
    let log = std::fs::read_to_string(c.data().join("loligo.log")).expect("a log");
    let lines: Vec<&str> = log.lines().filter(|l| l.contains("unknown options")).collect();
    assert!(matches!(lines[..], [line] if line.ends_with("foo_bar, osd_nonsense")), "{log}");
    c.still_healthy();
}

#[test]
fn up_refuses_plainly() {
    let c = Cluster::start(&[]);
    let port = c.mon_addr().port().to_string();
    let taken = c.dir.path().join("other");
    let out = std::process::Command::new(crate::cluster::binary())
        .args(["up", "--detach", "--mon-port", &port, "--data"])
        .arg(&taken)
        .output()
        .expect("runs");
    assert_eq!(out.status.code(), Some(1));
    assert!(text(&out).contains("in use") && text(&out).trim().lines().count() == 1, "{}", text(&out));

    let strange = c.dir.path().join("strange");
    std::fs::create_dir(&strange).expect("made");
    std::fs::write(strange.join("loligo.json"), "{\"format\": 99}").expect("written");
    let out = std::process::Command::new(crate::cluster::binary())
        .args(["up", "--detach", "--data"])
        .arg(&strange)
        .output()
        .expect("runs");
    assert_eq!(out.status.code(), Some(1));
    assert!(text(&out).contains("format 99"), "{}", text(&out));

    let out = std::process::Command::new(crate::cluster::binary())
        .args(["up", "--detach", "--data", "/proc/loligo"])
        .output()
        .expect("runs");
    assert_eq!(out.status.code(), Some(1));
    assert_eq!(text(&out).trim().lines().count(), 1, "{}", text(&out));
}

/// `up --osds N` on a running or stopped cluster: the data moves onto the new OSDs and is whole.
#[test]
fn a_cluster_grows() {
    for mode in [&[][..], &["--processes"]] {
        let c = Cluster::start(&[mode, &["--osds", "2"]].concat());
        c.pool("p", 32);
        let data: Vec<u8> = (0..100_000u32).flat_map(u32::to_le_bytes).collect();
        std::fs::write(c.dir.path().join("in"), &data).expect("written");
        for i in 0..8 {
            c.ok("rados", &["-p", "p", "put", &format!("o{i}"), "in"]);
        }
        c.up(&[mode, &["--osds", "4"]].concat());
        assert!(c.ceph("osd stat").contains("4 osds: 4 up"), "{}", c.ceph("osd stat"));
        c.loligo(&["down"]);
        c.up(&[mode, &["--osds", "5"]].concat());
        assert!(c.ceph("osd stat").contains("5 osds: 5 up"), "{}", c.ceph("osd stat"));
        // `up` may have seen the PGs as they were the moment before osd.4 came.
        until("placement groups on osd.4", || c.ceph("pg ls-by-osd osd.4").contains("active+clean"));
        for i in 0..8 {
            c.ok("rados", &["-p", "p", "get", &format!("o{i}"), "out"]);
            assert!(std::fs::read(c.dir.path().join("out")).expect("read") == data, "object o{i}");
        }
        c.healthy();
    }
}
