//! A throw-away cluster in a temporary folder, and the clients that talk to it.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// Starts with `loligo up --detach`; stops with `loligo down` when dropped.
pub struct Cluster {
    pub dir: tempfile::TempDir,
}

pub fn binary() -> PathBuf {
    std::env::var_os("LOLIGO_BIN").map_or_else(|| env!("CARGO_BIN_EXE_loligo").into(), PathBuf::from)
}

pub fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// A port for the first monitor of a new cluster, below those that the kernel gives to whoever asks for any:
/// one of these may be another process's by the time that the monitor starts, or starts again.
pub fn mon_port() -> String {
    const FIRST: u32 = 10_000;
    /// Further monitors take the next ports.
    const STEP: u32 = 16;
    const PLACES: u32 = 1_300;
    static USED: AtomicU32 = AtomicU32::new(0);
    for _ in 0..PLACES {
        // Another run of tests on this machine begins elsewhere.
        let place = std::process::id().wrapping_add(USED.fetch_add(1, Ordering::Relaxed)) % PLACES;
        let port = (FIRST + place * STEP) as u16;
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            return port.to_string();
        }
    }
    panic!("no free port");
}

/// How long a test waits for what has to come about. It is for what hangs: on a slow disk a real monitor
/// needs a minute to make its store.
pub const PATIENCE: Duration = Duration::from_secs(240);

/// Asks until the answer is right: what daemons tell each other takes its time.
pub fn until(what: &str, mut good: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !good() {
        assert!(begin.elapsed() < PATIENCE, "{what} never came about");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Whether a process runs. One that was killed lives on until each of its threads has had its turn to end.
pub fn runs(pid: u32) -> bool {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let mut stats = threads.filter_map(|thread| std::fs::read_to_string(thread.path().join("stat")).ok());
    let state = |stat: &str| stat.rsplit_once(')').and_then(|(_, rest)| rest.trim_start().chars().next());
    stats.any(|stat| !matches!(state(&stat), Some('Z' | 'X')))
}

/// What a daemon answers over its socket, without `ceph`, which on a busy machine takes longer to start than monitors to elect
/// a leader; null while it does not run.
pub fn asked(socket: &Path, command: &str) -> serde_json::Value {
    let answer = || {
        let mut stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(Duration::from_secs(10)))?;
        stream.write_all(format!("{{\"prefix\": \"{command}\", \"format\": \"json\"}}\0").as_bytes())?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer)?;
        std::io::Result::Ok(answer)
    };
    // Its length is in front.
    answer().ok().and_then(|a| serde_json::from_slice(a.get(4..)?).ok()).unwrap_or_default()
}

impl Cluster {
    pub fn start(extra: &[&str]) -> Self {
        let cluster = Self { dir: tempfile::tempdir().expect("a temporary folder") };
        cluster.up(extra);
        cluster
    }

    pub fn data(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    /// `loligo up --detach`, on the new or the existing folder.
    pub fn up(&self, extra: &[&str]) {
        // Of an existing cluster the port is known.
        let port = if self.data().exists() { "0".to_owned() } else { mon_port() };
        let out = self.loligo(&[&["up", "--detach", "--mon-port", &port], extra].concat());
        assert!(out.status.success(), "up failed: {}", text(&out));
    }

    /// A `loligo` subcommand on this cluster's folder.
    pub fn loligo(&self, args: &[&str]) -> Output {
        let mut command = Command::new(binary());
        command.args(args).arg("--data").arg(self.data());
        command.output().expect("loligo runs")
    }

    /// A client with `CEPH_CONF` set, under a time limit that says when something hangs.
    pub fn client(&self, program: &str, args: &[&str]) -> Output {
        let mut command = Command::new("timeout");
        // Whole files of tests run under it, some of which wait for half a minute twice.
        command.args(["--kill-after=5", "300", program]).args(args);
        command.env("CEPH_CONF", self.data().join("ceph.conf")).current_dir(self.dir.path());
        command.output().expect("the client is installed (cargo xtask test installs it)")
    }

    /// A client that must succeed; gives its standard output.
    pub fn ok(&self, program: &str, args: &[&str]) -> String {
        let out = self.client(program, args);
        assert!(out.status.success(), "{program} {args:?} ended with {}: {}", out.status, text(&out));
        String::from_utf8_lossy(&out.stdout).into_owned()
    }

    /// A client that must fail; gives everything it said.
    pub fn fails(&self, program: &str, args: &[&str]) -> (i32, String) {
        let out = self.client(program, args);
        assert!(!out.status.success(), "{program} {args:?} should have failed: {}", text(&out));
        (out.status.code().unwrap_or(-1), text(&out))
    }

    pub fn ceph(&self, line: &str) -> String {
        self.ok("ceph", &line.split_whitespace().collect::<Vec<_>>())
    }

    /// A pool that health does not complain of for want of an application.
    pub fn pool(&self, name: &str, pgs: u32) {
        self.ceph(&format!("osd pool create {name} {pgs}"));
        self.ceph(&format!("osd pool application enable {name} rados"));
    }

    /// Waits until the manager serves: a cluster without PGs is healthy before.
    pub fn managed(&self) {
        until("a manager in charge", || {
            let map: serde_json::Value = serde_json::from_str(&self.ceph("mgr dump")).expect("JSON");
            map["available"] == true && self.client("ceph", &["pg", "stat"]).status.success()
        });
    }

    /// Waits for HEALTH_OK after something that PGs have to get over.
    pub fn healthy(&self) {
        until("health", || self.ceph("health").starts_with("HEALTH_OK"));
    }

    /// Health as it is now, without waiting: nothing may have disturbed the cluster.
    pub fn still_healthy(&self) {
        let health = self.ceph("health detail");
        assert!(health.starts_with("HEALTH_OK"), "{health}");
    }

    /// A Python program over python3-rados.
    pub fn python(&self, program: &str, args: &[&str]) -> Output {
        self.client("/usr/bin/python3", &[&["-c", program], args].concat())
    }

    /// Pids of every process of this cluster, from its pid files.
    pub fn pids(&self) -> Vec<(String, u32)> {
        let mut out = Vec::new();
        for entry in std::fs::read_dir(self.data()).expect("folder") {
            let path = entry.expect("entry").path();
            if path.extension().is_some_and(|e| e == "pid") {
                let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
                if let Ok(pid) = std::fs::read_to_string(&path).unwrap_or_default().trim().parse() {
                    out.push((name, pid));
                }
            }
        }
        out
    }

    /// `kill -9` to every process of this cluster.
    pub fn kill_all(&self) {
        for (name, pid) in self.pids() {
            let status = Command::new("kill").args(["-9", &pid.to_string()]).status().expect("kill runs");
            assert!(status.success(), "cannot kill {name}");
        }
    }

    /// The same, and waits until they are gone.
    pub fn end_all(&self) {
        let pids = self.pids();
        self.kill_all();
        until("the end of all processes", || pids.iter().all(|(_, pid)| !runs(*pid)));
    }

    pub fn mon_addr(&self) -> std::net::SocketAddr {
        let conf = std::fs::read_to_string(self.data().join("ceph.conf")).expect("ceph.conf");
        let at = conf.split("v2:").nth(1).expect("mon host").split('/').next().expect("address");
        at.parse().expect("address")
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if std::thread::panicking() {
            for entry in std::fs::read_dir(self.data()).into_iter().flatten().flatten() {
                let name = entry.file_name().to_string_lossy().into_owned();
                if name.starts_with("ceph-mon.") && name.ends_with(".asok") {
                    eprintln!("--- {name}: {}", asked(&entry.path(), "mon_status"));
                }
                if entry.path().extension().is_some_and(|e| e == "log") {
                    let log = std::fs::read_to_string(entry.path()).unwrap_or_default();
                    let tail: Vec<&str> = log.lines().rev().take(30).collect();
                    eprintln!("--- {}", entry.path().display());
                    tail.iter().rev().for_each(|l| eprintln!("{l}"));
                }
            }
        }
        self.loligo(&["down"]);
    }
}
